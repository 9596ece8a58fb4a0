"""How diverse captioners are: CV figure 20, with captioners whose diversity is known.

Captions are outputs and photographs are prompts. A captioner that gives the first k of a
photograph's human captions has k answers to it; one that gives another photograph's captions, or
one and the same caption always, is wrong in a known way. Several captioners of one's own, told
apart by `models`, stand side by side as in the paper.

    python -m experiments.captioning
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import inference, validation
from condvendi_jax.pairs import Pairs
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, examples, style
from experiments.lab.study import option

OTHER, ALL = "other", "all"
_SWAPPED, _SHUFFLED, _ONE = "swapped", "shuffled", "one for all"
_RTOL = 0.005
_SCORES = ("vendi", "conditional", "information")
_FAMILIES = {1.0: "Vendi", 2.0: "RKE"}


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    kinds: tuple[str, ...] | None = option(
        None, f"Kinds of pictures, of the labels pictures; all but '{OTHER}' if unset."
    )
    photographs: int = option(40, "Photographs of each kind at most, drawn at random.")
    orders: tuple[float, ...] = option((1.0, 2.0), "Renyi orders of the scores.")
    groups: int = option(10, "Groups of photographs that the jackknife leaves out in turn.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on; `photographs` is their number by kind."""

    data: str
    kernel: str
    photographs: dict[str, int]
    captions: int
    captioners: tuple[str, ...]
    orders: tuple[float, ...]
    groups: int
    bandwidths: dict[str, choices.Bandwidths]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One scale of the bandwidths and one kind of picture, or 'all' kinds together."""

    scale: str
    kind: str


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of every captioner, effective numbers of modes.

    Attributes:
      values: `[captioners, orders, 3]`: Vendi (RKE), Conditional-* and Information-*.
      influences: `[captioners, orders, 3, groups]`, of the groups of photographs that the jackknife
        leaves out; the error of a score is their root mean square, and that of a difference of two
        captioners the root mean square of their differences.
    """

    values: np.ndarray
    influences: np.ndarray

    def error(self, captioner: int, order: int, score: int, other: int | None = None) -> float:
        """The standard error of a score, or of its difference from another captioner's."""
        influences = self.influences[captioner, order, score]
        if other is not None:
            influences = influences - self.influences[other, order, score]
        return float(np.sqrt(np.mean(np.square(influences))))


@dataclasses.dataclass(frozen=True)
class Answers:
    """Who says what: rows of the captions and of the photographs, `[n]` each, by captioner.

    `membership` is the jackknife's group of each of the captioner's pairs.
    """

    captions: Mapping[str, np.ndarray]
    photographs: Mapping[str, np.ndarray]
    membership: Mapping[str, np.ndarray]


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Draws photographs of each kind, and decides who says what of them."""
    orders = tuple(map(validation.check_order, options.orders))
    for name in ("photographs", "groups"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=2)
    pairs = load()
    models, rows = by_photograph(pairs)
    kinds = _kinds(pairs, rows[0, :, 0], options.kinds)
    rng = np.random.default_rng(seed)
    drawn = {
        kind: np.sort(rng.permutation(numbers)[: options.photographs])
        for kind, numbers in kinds.items()
    }
    if len(drawn) > 1:
        drawn[ALL] = np.concatenate(list(drawn.values()))
    for kind, numbers in drawn.items():
        if len(numbers) < options.groups:
            raise ValueError(
                f"--groups: expected at most the {len(numbers)} photographs of {kind}, "
                f"received {options.groups}."
            )
    state = {
        kind: answers(pairs, rows[:, numbers], models, options.groups, rng)
        for kind, numbers in drawn.items()
    }
    settings = Settings(
        data=pairs.description,
        kernel=options.kernel,
        photographs={kind: len(numbers) for kind, numbers in drawn.items()},
        captions=rows.shape[2],
        captioners=tuple(next(iter(state.values())).captions),
        orders=orders,
        groups=options.groups,
        bandwidths=choices.choose_scaled(pairs, options, seed),
    )
    return lab.Setup(settings, pairs.arrays, state=(pairs, state))


def by_photograph(pairs: PairedEmbeddings) -> tuple[list[str], np.ndarray]:
    """The captioners, and the rows of their captions `[captioners, photographs, captions]`.

    Every captioner has the same photographs and as many captions of each: those that all have.

    Raises:
      ValueError: rows of one photograph differ, or no photograph has captions of all.
    """
    prompt = pairs.labels["prompt"]
    _, first, photograph = np.unique(prompt, return_index=True, return_inverse=True)
    strangers = np.flatnonzero((pairs.prompts != pairs.prompts[first[photograph]]).any(axis=1))
    if strangers.size:
        row = strangers[0]
        raise ValueError(
            f"--prompt: expected rows of one photograph to be equal, received others in the rows "
            f"{first[photograph[row]]} and {row} of {prompt[row]}."
        )
    names = pairs.labels.get("models", np.zeros(len(pairs), int))
    models, who = np.unique(names, return_inverse=True)
    counts = np.zeros((len(models), len(first)), int)
    np.add.at(counts, (who, photograph), 1)
    shared = np.flatnonzero(counts.min(axis=0))
    if not shared.size:
        raise ValueError("--models: expected photographs that all of them captioned, found none.")
    each = counts[:, shared].min()
    order = np.lexsort((np.arange(len(pairs)), photograph, who))
    starts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    return [str(m) for m in models], order[starts[:, shared, None] + np.arange(each)]


def _kinds(
    pairs: PairedEmbeddings, rows: np.ndarray, wanted: tuple[str, ...] | None
) -> dict[str, np.ndarray]:
    """The photographs of each kind, by their numbers; `rows` has a row of each photograph."""
    if "pictures" not in pairs.labels:
        if wanted is not None:
            raise ValueError("--kinds means nothing without --pictures.")
        return {ALL: np.arange(len(rows))}
    kinds = pairs.labels["pictures"][rows].astype(str)
    names = [kind for kind in np.unique(kinds).tolist() if kind != OTHER]
    unknown = [kind for kind in wanted or () if kind not in names]
    if unknown or not names:
        raise ValueError(
            f"--kinds: expected some of {', '.join(names) or 'no kinds'}, "
            f"received {', '.join(unknown) or 'none'}."
        )
    return {kind: np.flatnonzero(kinds == kind) for kind in wanted or names}


def answers(
    pairs: PairedEmbeddings,
    rows: np.ndarray,
    models: Sequence[str],
    groups: int,
    rng: np.random.Generator,
) -> Answers:
    """What each captioner says of some photographs.

    Several captioners give their own captions. Of one captioner there are, as captioners, its first
    k captions of each photograph for k = 1 ... K, which need no matching of n because repeating all
    pairs changes no score; `swapped`, all K captions of another photograph; `shuffled`, K captions
    of K other photographs; and `one for all`, the caption that is nearest to all the others.

    Args:
      pairs: all pairs.
      rows: `[captioners, photographs, K]`.
      models: the captioners' names.
      groups: of the jackknife.
      rng: puts photographs into groups, and captions on other photographs.
    """
    count, each = rows.shape[1:]
    group = rng.permutation(count) % groups
    own = rows[0]
    said = dict(zip(models, rows, strict=True))
    if len(models) == 1:
        said = {f"k = {k}": own[:, :k] for k in range(1, each + 1)}
        said[_SWAPPED] = own[_others(count, rng)]
        columns = [own[_others(count, rng), k] for k in range(each)]
        said[_SHUFFLED] = np.stack(columns, axis=1)
        embedded = pairs.outputs[own.ravel()]
        nearest = own.ravel()[np.argmax(embedded @ embedded.sum(axis=0))]
        said[_ONE] = np.full((count, 1), nearest)
    per = {name: captions.shape[1] for name, captions in said.items()}
    return Answers(
        captions={name: captions.ravel() for name, captions in said.items()},
        photographs={name: np.repeat(own[:, 0], k) for name, k in per.items()},
        membership={name: np.repeat(group, k) for name, k in per.items()},
    )


def _others(count: int, rng: np.random.Generator) -> np.ndarray:
    """A random other number for each number below `count`: a cycle through all of them."""
    order = rng.permutation(count)
    found = np.empty(count, int)
    found[order] = np.roll(order, 1)
    return found


def cells(settings: Settings) -> list[Cell]:
    """Every scale with every kind."""
    return [Cell(scale, kind) for scale in settings.bandwidths for kind in settings.photographs]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scores:
    """The scores of all captioners, with and without each group of photographs."""
    settings, (pairs, state) = setup.settings, setup.state
    said: Answers = state[cell.kind]
    kernels: dict[str, Any] = settings.bandwidths[cell.scale].kernels()
    values, influences = [], []
    for captioner in settings.captioners:
        context.say(captioner)
        points = Pairs(
            pairs.outputs[said.captions[captioner]],
            pairs.prompts[said.photographs[captioner]],
            **kernels,
        )
        groups = inference.Groups(said.membership[captioner], "photographs")
        method = cv.Auto(context.key, rtol=_RTOL)
        found = [
            inference.delete_groups(points, cv.Entropy(order=order), groups, method=method)
            for order in settings.orders
        ]
        values.append([np.array(f.decomposition.scores) for f in found])
        influences.append([np.array(jax.tree.leaves(f.influences())) for f in found])
    return Scores(np.array(values), np.array(influences))


def table(run: lab.Run) -> Table:
    """Every score with its error, and what Conditional-* rises by over the captioner before."""
    settings = run.settings
    grid = Table("bandwidths", "pictures", "captioner", "order", *_SCORES, "conditional rises by")
    for cell, found in run.results.items():
        for who, captioner in enumerate(settings.captioners):
            for index, order in enumerate(settings.orders):
                row = [
                    f"{found.values[who, index, score]:.4g} +- {found.error(who, index, score):.2g}"
                    for score in range(len(_SCORES))
                ]
                rise = "-"
                if who:
                    value = found.values[who, index, 1] - found.values[who - 1, index, 1]
                    rise = f"{value:.3g} +- {found.error(who, index, 1, who - 1):.2g}"
                grid.add_row(cell.scale, cell.kind, captioner, f"{order:g}", *row, rise)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Kinds of pictures from above to below and captioners from left to right, as CV fig 20.

    The second figure has all kinds together at every scale of the bandwidths.
    """
    (run,) = runs
    settings = run.settings
    scales, kinds = list(settings.bandwidths), list(settings.photographs)
    middle = choices.shown(settings.bandwidths)
    shapes = {"captioning": [[Cell(middle, kind)] for kind in kinds]}
    if len(scales) > 1:
        shapes["captioning_bandwidth"] = [[Cell(scale, kinds[-1])] for scale in scales]
    return {name: _figure(run, [cell for (cell,) in rows]) for name, rows in shapes.items()}


def _figure(run: lab.Run, shown: Sequence[Cell]) -> Figure:
    """A row a cell, a column an order."""
    settings = run.settings
    orders = settings.orders
    figure, axes = style.panels(
        len(shown) * len(orders), columns=len(orders), size=(6.2, 2.1), sharex=True, sharey="row"
    )
    for index, panel in enumerate(axes):
        cell, order = shown[index // len(orders)], index % len(orders)
        _panel(panel, run.results[cell], order, settings)
        if order == 0:
            panel.set_ylabel(_row_name(cell, settings, scaled=len({c.scale for c in shown}) > 1))
    for order, panel in zip(orders, axes, strict=False):
        panel.set_title(f"{_family(order)}: order {order:g}")
    for panel in axes[-len(orders) :]:
        panel.set_xticks(range(len(settings.captioners)), settings.captioners, rotation=20)
    style.legend_above(figure, axes[0])
    style.caption(figure, _caption(run, shown))
    return figure


def _panel(axes: Axes, found: Scores, order: int, settings: Settings) -> None:
    """Bars of Conditional-*, Information-* and their product, with their numbers above."""
    family, several = _family(settings.orders[order]), len(settings.orders) > 1
    x = np.arange(len(settings.captioners))
    shown = (
        (1, "Conditional-", style.score_colour("Conditional-Vendi")),
        (2, "Information-", style.score_colour("Information-Vendi")),
        (0, "", style.GREY),
    )
    for place, (score, name, colour) in enumerate(shown):
        values = found.values[:, order, score]
        errors = [found.error(who, order, score) for who in range(len(values))]
        ending = ("*" if name else "Vendi or RKE") if several else family
        bars = axes.bar(
            x + 0.29 * (place - 1), values, 0.27, yerr=errors, color=colour, label=name + ending
        )
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=5.5, padding=1)
    axes.set_yscale("log")
    axes.set_ylim(0.9, 1.8 * found.values.max())
    style.log_numbers(axes.yaxis)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", visible=False)


def _family(order: float) -> str:
    return _FAMILIES.get(order, f"order-{order:g} Vendi")


def _row_name(cell: Cell, settings: Settings, *, scaled: bool) -> str:
    if not scaled:
        return f"{cell.kind} ({settings.photographs[cell.kind]})"
    return f"bandwidths x {cell.scale}"


def _caption(run: lab.Run, shown: Sequence[Cell]) -> str:
    """What data, n, bandwidths, rule, seed and errors are shown."""
    settings = run.settings
    counts = {cell.kind: settings.photographs[cell.kind] for cell in shown}
    numbers = ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
    scales = dict.fromkeys(cell.scale for cell in shown)
    widths = [settings.bandwidths[scale] for scale in scales]
    pairs = " and ".join(
        f"{b.outputs:.3g} / {b.prompts:.3g}" for b in widths if b.outputs is not None
    )
    rules = settings.bandwidths.get("1", widths[0]).rule
    parts = [
        f"{settings.data.rstrip('.')}; photographs: {numbers}, drawn with seed {run.seed}",
        f"Effective numbers of modes; bars of error are one jackknife standard error over "
        f"{settings.groups} groups of photographs",
        f"Bandwidths of captions / photographs: {pairs} ({rules}, times {', '.join(scales)})"
        if pairs
        else "Cosine kernel",
    ]
    return ". ".join(parts) + "."


STUDY = lab.Study(
    name="captioning",
    version=1,
    question="Do the scores see how many different captions a captioner has for a photograph?",
    reproduces="CV fig 20",
    duration="3 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Scores,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    small=lambda folder, seed: [
        *examples.write_captions(folder, seed),
        "--output_bandwidth=1",
        "--prompt_bandwidth=1",
        "--groups=4",
    ],
    committed=((),),
    data="captioning",
    labels=("prompt",),
    more_labels=("models", "pictures"),
    variant=lambda options: "" if options.kernel == "gaussian" else options.kernel,
    figures=("captioning", "captioning_bandwidth"),
)


if __name__ == "__main__":
    lab.main(STUDY)
