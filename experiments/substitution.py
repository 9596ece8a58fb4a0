"""What outputs of other prompts do to scores of relevance: CV figure 12, MID figure 1.

A growing share of the outputs is replaced, (a) by other outputs of the same prompts, (b) by outputs
of other prompts. Information-Vendi and -RKE should stay under (a) and fall under (b); beside them
stand MID and the cosine of prompts with what a linear map makes of the outputs.

    python -m experiments.substitution --data=emoji
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option

_ALIGNMENT = "alignment"
_INFORMATION = ("Information-Vendi", "Information-RKE")
_FITTED = ("MID", "cosine")
_COLOURS = {"MID": style.SKY, "cosine": style.GREY}
# Of every dimension of a fitted Gaussian or map, so many prompts at least.
_PROMPTS_A_DIMENSION = 4
_FEWEST_PROMPTS = 8
# A score is saturated where this much of its whole change has happened.
_SATURATED = 0.9
# Below so many standard deviations over the draws a metric is said not to move.
_MOVES = 2.0
_ROUNDS = 1000


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    pairs: int = option(300, "Pairs that are scored, at most.")
    shares: tuple[float, ...] = option(
        tuple(k / 10 for k in range(11)), "Shares of the outputs that are replaced, from 0 to 1."
    )
    dimensions: int = option(
        32,
        "Leading directions of outputs and of prompts that MID and the linear map see; at most a "
        "quarter of the prompts that they are fitted to.",
    )
    repeats: int = option(5, "Draws of prompts, outputs and replacements.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the curves depend on."""

    name: str
    data: str
    n: int
    prompts: int
    scored: int
    shares: tuple[float, ...]
    dimensions: int
    repeats: int
    bandwidths: dict[str, choices.Bandwidths]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A multiple of the bandwidths, or the metrics without any ('alignment'); and a draw."""

    part: str
    repeat: int


@dataclasses.dataclass(frozen=True)
class Curves:
    """Metrics against the share that is replaced, `[metrics, shares]` each.

    Attributes:
      same: by other outputs of the same prompts.
      other: by outputs of other prompts.
    """

    same: np.ndarray
    other: np.ndarray


class Drawn(NamedTuple):
    """Rows of one draw.

    Attributes:
      rows: that are scored, `[n]`.
      partners: another output of each one's prompt, none twice, `[n]`.
      order: in which the outputs are replaced, `[n]`.
      reference: rows of the other half of the prompts, that MID and the map are fitted to.
    """

    rows: np.ndarray
    partners: np.ndarray
    order: np.ndarray
    reference: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options against the pairs, and chooses the bandwidths."""
    for name, least in {"pairs": 4, "dimensions": 1, "repeats": 2}.items():
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=least)
    shares = tuple(sorted(set(options.shares)))
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
        raise ValueError(
            f"--shares: expected numbers from 0 to 1, both among them, received {options.shares}."
        )
    pairs = load()
    prompt = pairs.prompt_numbers
    several = np.sort((count := np.bincount(prompt))[count > 1])
    if len(several) < _FEWEST_PROMPTS:
        raise ValueError(
            f"--prompt: expected at least {_FEWEST_PROMPTS} prompts of several outputs each, "
            f"received {len(several)}."
        )
    half = len(several) // 2
    settings = Settings(
        name=pairs.name,
        data=pairs.description,
        n=len(pairs),
        prompts=len(several),
        # As many whichever prompts are drawn.
        scored=min(options.pairs, int(np.sum(several[:half] // 2))),
        shares=shares,
        dimensions=min(
            options.dimensions,
            max(1, (len(several) - half) // _PROMPTS_A_DIMENSION),
            pairs.outputs.shape[1],
            pairs.prompts.shape[1],
        ),
        repeats=options.repeats,
        bandwidths=choices.choose_scaled(pairs, options, seed),
    )
    arrays = {"outputs": pairs.outputs, "prompts": pairs.prompts, "prompt": prompt}
    return lab.Setup(settings, arrays, state=pairs)


def cells(settings: Settings) -> list[Cell]:
    """Every multiple of the bandwidths, and what needs none, in every draw."""
    parts = [*settings.bandwidths, _ALIGNMENT]
    return [Cell(part, repeat) for part in parts for repeat in range(settings.repeats)]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Curves:
    """The metrics of one draw; all bandwidths have the same draws."""
    settings, pairs = setup.settings, setup.state
    prompt = pairs.prompt_numbers
    key = jax.random.fold_in(context.shared_key, cell.repeat)
    generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
    drawn = draw_rows(prompt, settings.scored, generator)
    if cell.part == _ALIGNMENT:
        measure = alignment(pairs, drawn, settings.dimensions)
    else:
        kernels = settings.bandwidths[cell.part].kernels()
        measure = functools.partial(information, pairs.prompts[drawn.rows], kernels)
    count = [round(share * settings.scored) for share in settings.shares]
    same, other = [], []
    for replaced in count:
        context.say(f"{replaced:,} of {settings.scored:,} replaced")
        same.append(measure(pairs.outputs[by_partners(drawn, replaced)]))
        rows = by_others(drawn, prompt, replaced, generator)
        other.append(measure(pairs.outputs[rows]) if replaced else same[0])
    return Curves(np.array(same).T, np.array(other).T)


def draw_rows(prompt: np.ndarray, scored: int, generator: np.random.Generator) -> Drawn:
    """Half of the prompts to score, half to fit to; half of a prompt's outputs as partners."""
    order = generator.permutation(len(prompt))
    ends = np.cumsum(np.bincount(prompt))[:-1]
    of_prompt = np.split(order[np.argsort(prompt[order], kind="stable")], ends)
    several = [rows for rows in of_prompt if len(rows) > 1]
    shuffled = [several[k] for k in generator.permutation(len(several)).tolist()]
    half = len(shuffled) // 2
    rows = np.concatenate([found[: len(found) // 2] for found in shuffled[:half]])
    partners = np.concatenate([found[-(len(found) // 2) :] for found in shuffled[:half]])
    return Drawn(
        rows[:scored],
        partners[:scored],
        generator.permutation(min(scored, len(rows))),
        np.concatenate(shuffled[half:]),
    )


def by_partners(drawn: Drawn, replaced: int) -> np.ndarray:
    """The rows of the outputs, the first `replaced` of the order by their partners, `[n]`."""
    rows, chosen = drawn.rows.copy(), drawn.order[:replaced]
    rows[chosen] = drawn.partners[chosen]
    return rows


def by_others(
    drawn: Drawn, prompt: np.ndarray, replaced: int, generator: np.random.Generator
) -> np.ndarray:
    """The rows of the outputs, the first `replaced` of the order permuted among them, `[n]`.

    No output stays with its prompt, unless one prompt has most of those that are permuted. The
    outputs as a whole are the same, so that nothing but their relation to the prompts changes.
    """
    chosen = drawn.order[:replaced]
    own, given = prompt[drawn.rows[chosen]], generator.permutation(drawn.rows[chosen])
    for _ in range(_ROUNDS):
        stayed = np.flatnonzero(prompt[given] == own)
        if not stayed.size:
            break
        with_whom = int(generator.integers(replaced))
        given[[stayed[0], with_whom]] = given[[with_whom, stayed[0]]]
    rows = drawn.rows.copy()
    rows[chosen] = given
    return rows


def information(
    prompts: np.ndarray, kernels: Mapping[str, cv.Kernel], outputs: np.ndarray
) -> list[float]:
    """Information-Vendi and Information-RKE."""
    given: dict[str, Any] = dict(kernels)
    return [
        float(cv.decompose(outputs, prompts, order=order, method=cv.Exact(), **given).information)
        for order in (1, 2)
    ]


def alignment(
    pairs: PairedEmbeddings, drawn: Drawn, dimensions: int
) -> Callable[[np.ndarray], list[float]]:
    """MID (MID eq. 5) and the mean cosine of prompts and mapped outputs, as a function of outputs.

    The two embeddings share no space. Both are centred and turned onto their leading directions in
    the reference; the map is the least-squares one from outputs to prompts there, and MID's
    Gaussian is that of the reference.
    """
    turn_outputs, turn_prompts = (
        leading(points[drawn.reference], dimensions) for points in (pairs.outputs, pairs.prompts)
    )
    reference = turn_outputs(pairs.outputs[drawn.reference])
    targets = turn_prompts(pairs.prompts[drawn.reference])
    prompts = turn_prompts(pairs.prompts[drawn.rows])
    linear = np.linalg.lstsq(reference, targets)[0]

    def measure(outputs: np.ndarray) -> list[float]:
        turned = turn_outputs(outputs)
        mid = cv.baselines.mutual_information_divergence(
            turned.astype(np.float32),
            prompts.astype(np.float32),
            reference_outputs=reference.astype(np.float32),
            reference_prompts=targets.astype(np.float32),
        )
        mapped = turned @ linear
        norms = np.linalg.norm(mapped, axis=1) * np.linalg.norm(prompts, axis=1)
        return [float(mid), float(np.mean(np.sum(mapped * prompts, axis=1) / norms))]

    return measure


def leading(points: np.ndarray, dimensions: int) -> Callable[[np.ndarray], np.ndarray]:
    """Points, less the mean of these, on the leading principal directions of these."""
    mean = np.mean(points, axis=0, dtype=np.float64)
    centred = points - mean
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dimensions]
    return lambda others: (others - mean) @ directions


class Metric(NamedTuple):
    """A metric over all draws: values `[repeats, shares]` under (a) and under (b)."""

    name: str
    same: np.ndarray
    other: np.ndarray

    @property
    def range(self) -> np.ndarray:
        """By how much replacing all outputs by others' lowers it, `[repeats, 1]`."""
        return self.other[:, :1] - self.other[:, -1:]

    @property
    def moves(self) -> bool:
        """Whether that is more than chance of a draw."""
        return bool(abs(self.range.mean()) > _MOVES * self.range.std(ddof=1))

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """1 where nothing is replaced, 0 where all outputs are others', of each draw."""
        left = values - self.other[:, -1:]
        return np.divide(left, self.range, out=np.full_like(left, np.nan), where=self.range != 0)

    def saturates(self, shares: Sequence[float]) -> np.ndarray:
        """The share from which on 90% of the change have happened, of each draw `[repeats]`."""
        return np.array([_reached(shares, 1 - row) for row in self.scaled(self.other)])


def _reached(shares: Sequence[float], changed: np.ndarray) -> float:
    """Where a curve has reached 0.9 for good, between the shares by a straight line."""
    last = int(np.flatnonzero(changed < _SATURATED)[-1])
    step = (_SATURATED - changed[last]) / (changed[last + 1] - changed[last])
    return float(shares[last] + step * (shares[last + 1] - shares[last]))


def metrics(run: lab.Run, scale: str) -> list[Metric]:
    """All metrics, those of information at one multiple of the bandwidths."""
    found = []
    for part, names in ((scale, _INFORMATION), (_ALIGNMENT, _FITTED)):
        draws = [run.results[Cell(part, repeat)] for repeat in range(run.settings.repeats)]
        for index, name in enumerate(names):
            curves = (np.stack([getattr(d, kind)[index] for d in draws]) for kind in _KINDS)
            found.append(Metric(name, *curves))
    return found


_KINDS = tuple(field.name for field in dataclasses.fields(Curves))


def _with_error(values: np.ndarray) -> str:
    return report.with_error(float(np.mean(values)), float(np.std(values, ddof=1)))


def table(run: lab.Run) -> Table:
    """Each metric at both ends, how much of its range (a) takes, and where it saturates."""
    grid = Table(
        "bandwidths", "metric", "none replaced", "all, same prompt", "all, other prompts",
        "same prompt, of the range", f"{_SATURATED:.0%} changed from",
    )  # fmt: skip
    for place, scale in enumerate(run.settings.bandwidths):
        for metric in metrics(run, scale):
            fitted = metric.name in _FITTED
            if fitted and place:
                continue
            lost, shares = 1 - metric.scaled(metric.same)[:, -1], run.settings.shares
            grid.add_row(
                "-" if fitted else scale,
                metric.name,
                *map(_with_error, (metric.other[:, 0], metric.same[:, -1], metric.other[:, -1])),
                _with_error(lost) if metric.moves else "does not move",
                _with_error(metric.saturates(shares)) if metric.moves else "-",
            )
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """A row a data set: Information-Vendi as in CV fig 12, then all metrics on one scale."""
    runs = sorted(runs, key=lambda run: run.settings.name != STUDY.data)
    columns = 1 + max(len(run.settings.bandwidths) for run in runs)
    figure, axes = style.panels(columns * len(runs), columns=columns, size=(2.9, 3.2))
    for place, run in enumerate(runs):
        row = axes[place * columns : (place + 1) * columns]
        scales = list(run.settings.bandwidths)
        _panel_raw(row[0], run, scales[len(scales) // 2])
        for panel, scale in zip(row[1:], scales, strict=False):
            _panel_scaled(panel, run, scale)
        row[1].set_ylabel("share of the range left")
        for panel in row[1 + len(scales) :]:
            panel.remove()
    style.legend_above(figure, axes[1], columns=6)
    style.caption(figure, " ".join(_caption(run) for run in runs) + _NOTE)
    return {"substitution": figure}


_NOTE = (
    " Whole lines: replaced by outputs of other prompts; dashed: by other outputs of the same "
    "prompts. Means and one standard deviation over the draws. On the right 1 is nothing replaced, "
    "0 all by outputs of other prompts, for each draw by itself; a metric whose range is below two "
    "standard deviations is left out. MID and cosine take no bandwidth; they are fitted to the "
    "other half of the prompts."
)


def _panel_raw(axes: Axes, run: lab.Run, scale: str) -> None:
    shares = 100 * np.array(run.settings.shares)
    for metric in metrics(run, scale)[: len(_INFORMATION)]:
        _lines(axes, shares, metric, metric.same, metric.other)
    axes.set(xlabel="share replaced, %", ylabel="effective number of modes")
    axes.set_ylim(bottom=0)
    bandwidths = run.settings.bandwidths[scale]
    widths = "cosine kernel"
    if bandwidths.outputs is not None:
        widths = f"bandwidths {bandwidths.outputs:.3g}, {bandwidths.prompts:.3g}"
    axes.set_title(f"{run.settings.name}: Information-*\n{widths}")


def _panel_scaled(axes: Axes, run: lab.Run, scale: str) -> None:
    shares = 100 * np.array(run.settings.shares)
    for metric in metrics(run, scale):
        if metric.moves:
            scaled = metric.scaled(metric.same), metric.scaled(metric.other)
            _lines(axes, shares, metric, *scaled)
    axes.axhline(1 - _SATURATED, color=style.BLACK, linewidth=0.6, linestyle=":")
    axes.set(xlabel="share replaced, %", ylim=(-0.25, 1.6))
    words = "" if scale == "cosine" else f"\nbandwidths times {scale}"
    axes.set_title(f"{run.settings.name}: scaled{words}")


def _lines(
    axes: Axes, shares: np.ndarray, metric: Metric, same: np.ndarray, other: np.ndarray
) -> None:
    colour = _COLOURS.get(metric.name) or style.score_colour(metric.name)
    for values, dashes, label in ((other, "-", metric.name), (same, "--", None)):
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
        # MID is wide, so that it is seen where the cosine lies on it.
        width = 3.5 if metric.name == "MID" else 1.5
        axes.plot(shares, mean, dashes, color=colour, linewidth=width, label=label)
        axes.fill_between(
            shares, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0
        )


def _caption(run: lab.Run) -> str:
    settings = run.settings
    first = next(iter(settings.bandwidths.values()))
    rule = choices.describe({"": settings.bandwidths.get("1", first)})
    return (
        f"{settings.data.rstrip('.')}: {settings.scored:,} pairs of half of the "
        f"{settings.prompts:,} prompts with several outputs, {settings.repeats} draws, seed "
        f"{run.seed}; {settings.dimensions} leading directions for MID and cosine. {rule}."
    )


STUDY = lab.StudyRecord(
    name="substitution",
    version=1,
    question="Which scores notice that outputs belong to other prompts, and from which share on?",
    reproduces="CV fig 12; CV-early fig 8; MID fig 1",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Curves,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((), ("--data=gallery",)),
    figures=("substitution",),
    more_labels=("prompt",),
)


if __name__ == "__main__":
    lab.main(STUDY)
