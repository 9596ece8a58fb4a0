"""What outputs of other prompts do to scores of relevance: CV figure 12, MID figure 1."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables

SAME, OTHER = "same prompt", "other prompts"
# A score is saturated where this much of its whole change has happened.
SATURATED = 0.9
# Below so many standard deviations over the draws a metric is said not to move.
_MOVES = 2.0
_ROUNDS = 1000


class Drawn(NamedTuple):
    """Rows of one draw: some are scored, others are what MID and the map are fitted to."""

    rows: np.ndarray  # That are scored, `[n]`.
    partners: np.ndarray  # Another output of each one's prompt, none twice, `[n]`.
    order: np.ndarray  # In which the outputs are replaced, `[n]`.
    reference: np.ndarray  # All rows of the other half of the prompts.


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


def alignment(
    pairs: PairedEmbeddings, drawn: Drawn, dimensions: int
) -> Callable[[np.ndarray], list[float]]:
    """MID (MID eq. 5) and the mean cosine of prompts and mapped outputs, as a function of outputs.

    The two embeddings share no space. Both are centred and turned onto their leading directions in
    the reference; the map is the least-squares one from outputs to prompts there, and MID's
    Gaussian is that of the reference.
    """
    turn_outputs = leading(pairs.outputs[drawn.reference], dimensions)
    turn_prompts = leading(pairs.prompts[drawn.reference], dimensions)
    reference = turn_outputs(pairs.outputs[drawn.reference])
    targets = turn_prompts(pairs.prompts[drawn.reference])
    prompts = turn_prompts(pairs.prompts[drawn.rows])
    linear = np.linalg.lstsq(reference, targets)[0]
    given, fitted_x, fitted_t = (a.astype(np.float32) for a in (prompts, reference, targets))

    def measure(outputs: np.ndarray) -> list[float]:
        turned = turn_outputs(outputs)
        mid = cv.baselines.mutual_information_divergence(
            turned.astype(np.float32), given, reference_outputs=fitted_x, reference_prompts=fitted_t
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


def left(found: xr.Dataset) -> xr.DataArray:
    """How much is left of the range of each metric, of each draw.

    1 where nothing is replaced, 0 where all outputs are others'; NaN where the range is within
    chance of a draw.
    """
    of_other = found.value.sel(replaced=OTHER, drop=True)
    end = of_other.sel(share=1, drop=True)
    span = of_other.sel(share=0, drop=True) - end
    moves = abs(span.mean("repeat")) > _MOVES * span.std("repeat", ddof=1)
    return (found.value - end) / span.where(moves & (span != 0))


def saturates(curves: xr.DataArray) -> xr.DataArray:
    """The share from which on 90% of the change have happened for good, of each draw."""

    def reached(left: np.ndarray) -> float:
        if np.isnan(left).any():
            return np.nan
        last = np.flatnonzero(1 - left < SATURATED)[-1]
        around = slice(last, last + 2)
        return np.interp(SATURATED, 1 - left[around], shares[around])

    shares = curves.share.values
    return xr.apply_ufunc(reached, curves, input_core_dims=[["share"]], vectorize=True)


INFORMATION, FITTED = ("Information-Vendi", "Information-RKE"), ("MID", "cosine")
METRICS = (*INFORMATION, *FITTED)
_COLOURS = {"MID": style.SKY, "cosine": style.GREY}
# Of every dimension of a fitted Gaussian or map, so many prompts at least.
_PROMPTS_A_DIMENSION = 4
_FEWEST_PROMPTS = 8
_DIMENSIONS = 32


class Substitution(lab.Study):
    """Which scores fall when outputs are replaced by those of other prompts, and how fast?"""

    name = "substitution"
    reproduces = "CV fig 12; CV-early fig 8; MID fig 1"
    duration = "1 minute"
    takes = ("prompt",)
    # The last with the gallery's number of directions, for MID depends on it.
    runs = ((), ("--data=gallery",), ("--dimensions=5", "--scales=1"))
    drawings = ("substitution",)

    bandwidths: lab.Scales = lab.Scales()
    pairs: int = lab.flag(300, "Pairs that are scored, at most.", at_least=4)
    steps: int = lab.flag(10, "Steps from no output replaced to all of them.", at_least=1)
    dimensions: int = lab.flag(
        _DIMENSIONS,
        "Leading directions that MID and the map see; at most a quarter of the prompts fitted to.",
        at_least=1,
    )
    repeats: int = lab.flag(5, "Draws of prompts, outputs and replacements.", at_least=2)
    data_name: str = lab.resolved("")
    scored: int = lab.resolved(0)

    def variant(self):
        return "" if self.dimensions == _DIMENSIONS else f"{self.dimensions}-directions"

    def prepare(self, load, seed):
        pairs = load()
        prompt = pairs.prompt_numbers
        counts = np.bincount(prompt)
        several = np.sort(counts[counts > 1])
        if len(several) < _FEWEST_PROMPTS:
            raise ValueError(
                f"--prompt: expected at least {_FEWEST_PROMPTS} prompts of several outputs each, "
                f"received {len(several)}."
            )
        half = len(several) // 2
        most = (len(several) - half) // _PROMPTS_A_DIMENSION
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "prompt": prompt},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            dimensions=min(self.dimensions, most, pairs.outputs.shape[1], pairs.prompts.shape[1]),
            data_name=pairs.name,
            # As many whichever prompts are drawn.
            scored=min(self.pairs, int(np.sum(several[:half] // 2))),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis, "repeat": range(self.repeats)}

    def compute(self, state, context, *, scale, repeat):
        """The metrics of one draw against the share that is replaced, by SAME and by OTHER."""
        prompt = state.prompt_numbers
        key = jax.random.fold_in(context.shared_key, repeat)
        generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        drawn = draw_rows(prompt, self.scored, generator)
        fitted = alignment(state, drawn, self.dimensions)
        kernels = {"method": cv.Exact(), **scale.kernels}

        def measure(rows):
            outputs, prompts = state.outputs[rows], state.prompts[drawn.rows]
            found = [cv.decompose(outputs, prompts, order=k, **kernels) for k in (1, 2)]
            return [*(float(of.information) for of in found), *fitted(outputs)]

        shares, values = [step / self.steps for step in range(self.steps + 1)], []
        for share in shares:
            replaced = round(share * self.scored)
            context.say(f"{replaced:,} of {self.scored:,} replaced")
            same = measure(by_partners(drawn, replaced))
            rows = by_others(drawn, prompt, replaced, generator)
            values.append([same, measure(rows) if replaced else same])
        axes = {"share": shares, "replaced": [SAME, OTHER], "metric": list(METRICS)}
        return xr.Dataset({"value": (tuple(axes), values)}, axes)

    def tables(self, run):
        """Each metric at both ends; how much of its range SAME takes, and where it saturates."""
        ends = tables.spreads(run.found.value.sel(share=[0, 1]), "repeat")
        rows = ("scale", "metric", "share")
        yield tables.table(ends, rows=rows, columns="replaced", error="error")
        curves = left(run.found)
        lost = 1 - curves.sel(replaced=SAME, share=1, drop=True)
        reached = saturates(curves.sel(replaced=OTHER, drop=True))
        names = [f"{SAME}, of the range", f"{SATURATED:.0%} changed from"]
        both = xr.concat([lost, reached], "of").assign_coords(of=names)
        both = tables.spreads(both, "repeat")
        yield tables.table(both, rows=("scale", "metric"), columns="of", error="error")

    @classmethod
    def figures(cls, runs):
        columns = 1 + max(run.found.sizes["scale"] for run in runs)
        figure, axes = style.panels(columns * len(runs), columns=columns, size=(2.9, 3.0))
        for place, run in enumerate(runs):
            first, *row = axes[place * columns : (place + 1) * columns]
            _raw(first, run)
            curves = left(run.found)
            for panel, scale in zip(row, curves.scale.values, strict=False):
                _scaled(panel, curves.sel(scale=scale), f"bandwidths x {scale:g}")
            row[0].set_ylabel("share of the range left")
        for panel in axes[-columns:]:
            panel.set_xlabel("share replaced, %")
        style.legend_above(figure, axes[1], columns=6)
        scored = " and ".join(str(run.study.scored) for run in runs)
        repeats = runs[0].study.repeats
        n = f"{scored} pairs, replaced by outputs of {OTHER} or, dashed, of the {SAME}"
        bars = f"one standard deviation of {repeats} draws"
        return {"substitution": figures.caption(figure, runs, n=n, bars=bars)}


def _raw(panel: Axes, run: lab.Run) -> None:
    """Information-Vendi and -RKE of a run themselves."""
    values = run.found.value.sel(scale=run.study.bandwidths.shown, metric=list(INFORMATION))
    _lines(panel, values)
    ends = values.sel(metric=INFORMATION[0], replaced=OTHER).mean("repeat")
    falls = f"falls from {ends.sel(share=0):.3g} to {ends.sel(share=1):.3g}"
    panel.set_title(f"{run.study.data_name}: Information-Vendi\n{falls}")
    panel.set_ylabel("effective number of modes")
    panel.set_ylim(bottom=0)


def _scaled(panel: Axes, curves: xr.DataArray, words: str) -> None:
    """What is left of the range of each metric that moves."""
    _lines(panel, curves.dropna("metric", how="all"))
    panel.axhline(1 - SATURATED, color=style.BLACK, linewidth=0.6, linestyle=":")
    panel.set_ylim(-0.25, 1.6)
    vendi = curves.sel(metric=INFORMATION[0], replaced=OTHER)
    if vendi.notnull().any():
        reached = saturates(vendi).mean()
        words = f"{words}: Information-Vendi\nhas fallen by {SATURATED:.0%} at {reached:.0%}"
    panel.set_title(words)


def _lines(panel: Axes, values: xr.DataArray) -> None:
    """Means and deviations of metrics: whole lines by OTHER, dashed by SAME."""
    x = 100 * values.share
    for metric in values.metric.values.tolist():
        colour = _COLOURS.get(metric) or style.score_colour(metric)
        # MID is wide, so that it is seen where the cosine lies on it.
        width = 3.5 if metric == "MID" else 1.5
        for replaced, dashes, label in ((OTHER, "-", metric), (SAME, "--", None)):
            found = tables.spreads(values.sel(metric=metric, replaced=replaced), "repeat")
            panel.plot(x, found.value, dashes, color=colour, linewidth=width, label=label)
            low, high = found.value - found.error, found.value + found.error
            panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
