"""How many samples diversity metrics need, and what they see of lost modes: RKE figure 3.

Half of the outputs are the reference. Of the other half, some types are kept, as if by a model that
captures no others: RKE-MC of those samples, and their recall and coverage of the reference, against
the number of samples.

    python -m experiments.coverage --kept=1,3,10
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import _extras, bandwidth, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, style
from experiments.lab.study import option, positive

METRICS = ("Recall", "Coverage", "RKE-MC")
_LARGEST = 2000
_SMALLEST = 50
_SIZES = 8
# A curve has settled where it stays this near to its last value.
_NEAR = 0.05


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    rule: str = option(
        "std",
        "How the bandwidth is chosen on all outputs: std (RKE), variance (CV), median distance.",
        choices=bandwidth.RULES,
    )
    output_bandwidth: float | None = option(
        None, "The bandwidth, in the units of the outputs, in the place of the rule's."
    )
    scales: tuple[float, ...] = option(choices.SCALES, "Multiples of it at which RKE is repeated.")
    neighbours: tuple[int, ...] = option(
        (3, 5, 10), "Nearest neighbours of recall and coverage; as many as scales."
    )
    kept: tuple[int, ...] | None = option(
        None, "Types that the samples have; a fifth, half and all of them if unset."
    )
    sizes: tuple[int, ...] | None = option(
        None,
        "Numbers of samples, and of references; up to half of the outputs, or "
        f"{_LARGEST:,}, if unset.",
    )
    repeats: int = option(5, "Random halves, orders and choices of types.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the curves depend on."""

    data: str
    n: int
    bandwidth: float
    rule: str
    scales: tuple[float, ...]
    neighbours: tuple[int, ...]
    types: int
    kept: tuple[int, ...]
    sizes: tuple[int, ...]
    repeats: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """How many types the samples have, and one random choice."""

    kept: int
    repeat: int


@dataclasses.dataclass(frozen=True)
class Curves:
    """The metrics against the number of samples, `[k, m]`; NaN where there are not so many.

    Attributes:
      recall, coverage: by the numbers of neighbours.
      rke: by the scales.
    """

    recall: np.ndarray
    coverage: np.ndarray
    rke: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options against the outputs and their types, and chooses the bandwidth."""
    validation.check_count(options.repeats, name="--repeats", minimum=1)
    for k in options.neighbours:
        validation.check_count(k, name="--neighbours", minimum=1)
    scales = tuple(positive(scale, name="scales") for scale in options.scales)
    if len(options.neighbours) != len(scales):
        raise ValueError(
            f"--neighbours: expected as many as scales, {len(scales)}, received "
            f"{len(options.neighbours)}."
        )
    if options.output_bandwidth is not None and options.rule != Options.rule:
        raise ValueError(f"--rule={options.rule} means nothing beside --output_bandwidth.")
    pairs = load()
    count = len(np.unique(pairs.labels["types"]))
    kept = options.kept or tuple(sorted({max(1, count // 5), max(1, count // 2), count}))
    if not all(1 <= j <= count for j in kept) or len(set(kept)) < len(kept):
        raise ValueError(
            f"--kept: expected different numbers between 1 and the {count} types, received "
            f"{', '.join(map(str, kept))}."
        )
    key = jax.random.key(seed)
    splits = [split(pairs, cell, key)[0] for cell in _cells(kept, options.repeats)]
    sizes = _sizes(options.sizes, len(pairs) // 2, max(options.neighbours), min(map(len, splits)))
    if options.output_bandwidth is None:
        chosen = bandwidth.bandwidth_by_rule(pairs.outputs, options.rule, key=key, partitions=1)
    else:
        width = positive(options.output_bandwidth, name="output_bandwidth")
        chosen = bandwidth.RuledBandwidth(width, "given")
    assert chosen.bandwidth is not None
    settings = Settings(
        data=pairs.description,
        n=len(pairs),
        bandwidth=chosen.bandwidth,
        rule=chosen.rule,
        scales=scales,
        neighbours=options.neighbours,
        types=count,
        kept=kept,
        sizes=sizes,
        repeats=options.repeats,
    )
    arrays = {"outputs": pairs.outputs, "types": pairs.labels["types"]}
    return lab.Setup(settings, arrays, state=pairs)


def _sizes(
    given: tuple[int, ...] | None, half: int, neighbours: int, fewest: int
) -> tuple[int, ...]:
    """The numbers of samples, ascending: the least of them for every number of types."""
    if given is None:
        largest = min(half, _LARGEST)
        smallest = min(max(_SMALLEST, neighbours + 1), fewest, largest)
        given = tuple(np.geomspace(smallest, largest, _SIZES).round().astype(int).tolist())
    sizes = tuple(sorted(set(given)))
    if sizes[0] <= neighbours or sizes[-1] > half:
        raise ValueError(
            f"--sizes: expected numbers above {neighbours} neighbours and up to half of the "
            f"outputs, {half}, received {', '.join(map(str, sizes))}."
        )
    if sizes[0] > fewest:
        raise ValueError(
            f"--sizes: {fewest} samples are left where types are, the least size is {sizes[0]}."
        )
    return sizes


def cells(settings: Settings) -> list[Cell]:
    """Every number of types in every random choice."""
    return _cells(settings.kept, settings.repeats)


def _cells(kept: Sequence[int], repeats: int) -> list[Cell]:
    return [Cell(types, repeat) for types in kept for repeat in range(repeats)]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Curves:
    """The metrics of one random half with some of the types against the other half."""
    settings: Settings = setup.settings
    samples, references = (
        setup.state.outputs[rows[: settings.sizes[-1]]]
        for rows in split(setup.state, cell, context.shared_key)
    )
    sizes = [size for size in settings.sizes if size <= len(samples)]
    with _extras.needed("clusters", package="scikit-learn", purpose="this study"):
        from sklearn import metrics
    context.say("distances")
    within = [metrics.pairwise_distances(points) for points in (references, samples)]
    across = metrics.pairwise_distances(references, samples)
    found = {
        name: np.full((len(settings.scales), len(settings.sizes)), np.nan)
        for name in ("recall", "coverage", "rke")
    }
    for at, size in enumerate(sizes):
        near = across[:size, :size]
        for row, k in enumerate(settings.neighbours):
            found["recall"][row, at] = recall(near, within[1][:size, :size], k)
            found["coverage"][row, at] = coverage(near, within[0][:size, :size], k)
    context.say("RKE")
    for row, scale in enumerate(settings.scales):
        kernel = cv.Gaussian(scale * settings.bandwidth)
        (curve,) = cv.convergence_curve(
            samples, None, sizes, output_kernel=kernel, entropies=[cv.renyi(2)]
        )
        found["rke"][row, : len(sizes)] = np.asarray(curve.vendi)
    return Curves(**found)


def split(pairs: PairedEmbeddings, cell: Cell, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the samples, some types of a random half, and of the references, the other half.

    The halves and the order of the types are those of the repeat, whatever the number of types.
    """
    generator = np.random.default_rng((int(jax.random.bits(key)), cell.repeat))
    order = generator.permutation(len(pairs))
    half = len(pairs) // 2
    labels = pairs.labels["types"]
    types = generator.permutation(np.unique(labels))[: cell.kept]
    return order[:half][np.isin(labels[order[:half]], types)], order[half:]


def recall(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references within the reach of a sample (Kynkaanniemi et al. 2019, eq. 2).

    Args:
      across: distances of references and samples, `[r, s]`.
      within: of the samples among themselves, `[s, s]`; a sample reaches to its k-th neighbour.
      k: less than s.
    """
    return float(np.mean(np.any(across <= _reach(within, k)[None, :], axis=1)))


def coverage(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references with a sample within their reach (Naeem et al. 2020, eq. 4).

    Args:
      across: distances of references and samples, `[r, s]`.
      within: of the references among themselves, `[r, r]`; each reaches to its k-th neighbour.
      k: less than r.
    """
    return float(np.mean(np.min(across, axis=1) <= _reach(within, k)))


def _reach(within: np.ndarray, k: int) -> np.ndarray:
    """The distance to the k-th neighbour; the zero in front is that to the point itself."""
    return np.partition(within, k, axis=1)[:, k]


def expected_coverage(sizes: np.ndarray, k: int) -> np.ndarray:
    """The coverage of n references by n samples of the same distribution (Naeem et al. 2020).

    Of a reference's neighbours among n - 1 references and n samples, the k nearest must not all be
    references: all orders are equally likely.
    """
    steps = np.arange(1, k + 1)
    sizes = np.asarray(sizes, float)[:, None]
    return 1 - np.prod((sizes - steps) / (2 * sizes - steps), axis=1)


def curves(run: lab.Run, metric: str, row: int, kept: int) -> np.ndarray:
    """One metric of every repeat, `[repeats, m]`."""
    name = {"Recall": "recall", "Coverage": "coverage", "RKE-MC": "rke"}[metric]
    found = [getattr(f, name)[row] for cell, f in run.results.items() if cell.kept == kept]
    return np.stack(found)


def table(run: lab.Run) -> Table:
    """Where each curve ends, its spread there, and from how many samples on it stays near."""
    settings = run.settings
    grid = Table("metric", "with", "types", "samples", "mean", "sd", f"within {_NEAR:.0%} from")
    for metric in METRICS:
        for row, scale in enumerate(settings.scales):
            way = (
                f"bandwidth x {scale:g}"
                if metric == "RKE-MC"
                else f"k = {settings.neighbours[row]}"
            )
            for kept in settings.kept:
                values = curves(run, metric, row, kept)
                there = np.isfinite(values).all(axis=0)
                mean, sd = values[:, there].mean(axis=0), values[:, there].std(axis=0)
                sizes = np.array(settings.sizes)[there].tolist()
                settled = cv.inference.settled_from(sizes, mean, tolerance=_NEAR)
                start = "not settled" if settled is None else f"{settled:,}"
                shown = (f"{sizes[-1]:,}", f"{mean[-1]:.3g}", f"{sd[-1]:.2g}", start)
                grid.add_row(metric, way, str(kept), *shown)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Recall, coverage and RKE-MC side by side, as in RKE fig 3."""
    return {run.folder.name: _figure(run) for run in runs}


def _figure(run: lab.Run) -> Figure:
    """A column a metric; a row a number of neighbours, and a multiple of the bandwidth."""
    settings = run.settings
    rows = len(settings.scales)
    figure, axes = style.panels(3 * rows, columns=3, size=(3.8, 2.4), sharex=True)
    panels = np.array(axes, object).reshape(rows, 3)
    sizes = np.array(settings.sizes)
    for row, (scale, k) in enumerate(zip(settings.scales, settings.neighbours, strict=True)):
        for panel, metric in zip(panels[row], METRICS, strict=True):
            for index, kept in enumerate(settings.kept):
                values = curves(run, metric, row, kept)
                there = np.isfinite(values).all(axis=0)
                mean, sd = values[:, there].mean(axis=0), values[:, there].std(axis=0)
                look = {"color": style.CYCLE[index], "marker": style.MARKERS[index]}
                label = f"samples of {kept} of {settings.types} types"
                panel.plot(sizes[there], mean, label=label, **look)
                panel.fill_between(
                    sizes[there], mean - sd, mean + sd, color=look["color"], alpha=0.25
                )
            title = f"{metric}, k = {k}"
            if metric == "RKE-MC":
                title = f"{metric}, bandwidth {scale:g} x {settings.bandwidth:.3g}"
            else:
                panel.set_ylim(0, 1.05)
            if metric == "Coverage":
                expected = expected_coverage(sizes, k)
                panel.plot(
                    sizes, expected, color=style.GREY, linewidth=1, label="of equal distributions"
                )
            panel.set_title(title)
            style.log_counts(panel, settings.sizes[:: -(-len(sizes) // 5)])
    for panel in panels[:, 2]:
        panel.set_ylim(0, 1.05 * panel.get_ylim()[1])
    for panel in panels[-1]:
        panel.set_xlabel("number of samples")
    style.legend_above(figure, panels[0, 1], columns=4)
    style.caption(
        figure,
        f"{settings.data.rstrip('.')}: {settings.n:,} outputs, a random half as reference. Means "
        f"and bands of one standard deviation over {settings.repeats} random halves and choices of "
        f"types, seed {run.seed}. Bandwidth: {settings.rule}.",
    )
    return figure


STUDY = lab.StudyRecord(
    name="coverage",
    version=1,
    question="How many samples do RKE-MC, recall and coverage need?",
    reproduces="RKE fig 3",
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
    committed=((),),
    figures=("coverage",),
    data="dogs",
    labels=("types",),
    paired=False,
)


if __name__ == "__main__":
    lab.main(STUDY)
