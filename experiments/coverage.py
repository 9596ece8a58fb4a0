"""How many samples diversity metrics need, and what they see of lost modes: RKE figure 3.

Half of the outputs are the reference. Of the other half, some types are kept, as if by a model that
captures no others: RKE-MC of those samples, and their recall and coverage of the reference, against
the number of samples.

    python -m experiments.coverage --kept=1,3,10
"""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import _extras, bandwidth
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, scales, style
from experiments.neighbour_metrics import coverage, expected_coverage, recall

METRICS = ("Recall", "Coverage", "RKE-MC")
_LARGEST = 2000
_SMALLEST = 50
_SIZES = 8
# A curve has settled where it stays this near to its last value.
_NEAR = 0.05


@dataclasses.dataclass(frozen=True)
class Coverage(lab.Study):
    """How many samples do RKE-MC, recall and coverage need?"""

    name = "coverage"
    reproduces = "RKE fig 3"
    duration = "1 minute"
    data = "dogs"
    needs = ("types",)
    paired = False
    runs = ((),)
    drawings = ("coverage",)

    rule: str = lab.flag(
        "std",
        "How the bandwidth is chosen on all outputs: std (RKE), variance (CV), median distance.",
        choices=bandwidth.RULES,
    )
    output_bandwidth: float | None = lab.flag(
        None, "The bandwidth, in the units of the outputs, in the place of the rule's.", above=0
    )
    scales: tuple[float, ...] = lab.flag(
        scales.SCALES, "Multiples of it at which RKE is repeated.", above=0
    )
    neighbours: tuple[int, ...] = lab.flag(
        (3, 5, 10), "Nearest neighbours of recall and coverage; as many as scales.", at_least=1
    )
    kept: tuple[int, ...] | None = lab.flag(
        None, "Types that the samples have; a fifth, half and all of them if unset."
    )
    sizes: tuple[int, ...] | None = lab.flag(
        None,
        "Numbers of samples, and of references; up to half of the outputs, or "
        f"{_LARGEST:,}, if unset.",
    )
    repeats: int = lab.flag(5, "Random halves, orders and choices of types.", at_least=1)
    described: str = lab.resolved("")
    types: int = lab.resolved(0)

    def prepare(self, load, seed):
        """Chooses the types that are kept, the sizes and the bandwidth."""
        if len(self.neighbours) != len(self.scales):
            raise ValueError(
                f"--neighbours: expected as many as scales, {len(self.scales)}, received "
                f"{len(self.neighbours)}."
            )
        if self.output_bandwidth is not None and self.rule != Coverage.rule:
            raise ValueError(f"--rule={self.rule} means nothing beside --output_bandwidth.")
        pairs = load()
        types = pairs.labels["types"]
        count = len(np.unique(types))
        kept = self.kept or tuple(sorted({max(1, count // 5), max(1, count // 2), count}))
        if not all(1 <= j <= count for j in kept):
            raise ValueError(
                f"--kept: expected numbers between 1 and the {count} types, received "
                f"{', '.join(map(str, kept))}."
            )
        key = jax.random.key(seed)
        cells = itertools.product(kept, range(self.repeats))
        fewest = min(len(split(pairs, *cell, key)[0]) for cell in cells)
        chosen = bandwidth.RuledBandwidth(self.output_bandwidth, "given")
        if self.output_bandwidth is None:
            chosen = bandwidth.bandwidth_by_rule(pairs.outputs, self.rule, key=key, partitions=1)
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "types": types},
            output_bandwidth=chosen.bandwidth,
            kept=kept,
            sizes=_sizes(self.sizes, len(pairs) // 2, max(self.neighbours), fewest),
            described=chosen.rule,
            types=count,
        )

    def axes(self):
        """Every number of types in every random choice."""
        return {"kept": self.kept, "repeat": range(self.repeats)}

    def compute(self, state, context, *, kept, repeat):
        """The metrics of one random half with some of the types against the other half.

        Returns:
          `value` with the axes `metric`, `width` (the place among the numbers of neighbours, or
          among the scales) and `n`; NaN where there are not so many samples.
        """
        sizes, width = list(self.sizes or ()), self.output_bandwidth or 0.0
        samples, references = (
            state.outputs[rows[: sizes[-1]]]
            for rows in split(state, kept, repeat, context.shared_key)
        )
        with _extras.needed("clusters", package="scikit-learn", purpose="this study"):
            from sklearn import metrics
        context.say("distances")
        within = [metrics.pairwise_distances(points) for points in (references, samples)]
        across = metrics.pairwise_distances(references, samples)
        values = np.full((len(METRICS), len(self.scales), len(sizes)), np.nan)
        there = [size for size in sizes if size <= len(samples)]
        for (at, size), (row, k) in itertools.product(enumerate(there), enumerate(self.neighbours)):
            near = across[:size, :size]
            values[0, row, at] = recall(near, within[1][:size, :size], k)
            values[1, row, at] = coverage(near, within[0][:size, :size], k)
        context.say("RKE")
        for row, scale in enumerate(self.scales):
            kernel = cv.Gaussian(scale * width)
            (curve,) = cv.convergence_curve(
                samples, None, there, output_kernel=kernel, entropies=[cv.renyi(2)]
            )
            values[2, row, : len(there)] = np.asarray(curve.vendi)
        labels = {"metric": list(METRICS), "width": range(len(self.scales)), "n": sizes}
        return xr.Dataset({"value": (tuple(labels), values)}, labels)

    def tables(self, run):
        """Where each curve ends, its spread there, and from how many samples on it stays near."""
        found = run.found
        near = f"within {_NEAR:.0%} from"
        grid = Table("metric", "with", "types", "samples", "mean", "sd", near)
        curves = over_repeats(found)
        places = itertools.product(range(len(self.scales)), self.kept or ())
        for metric, (width, kept) in itertools.product(METRICS, places):
            curve = curves.sel(metric=metric, width=width, kept=kept).dropna("n")
            sizes, last = curve.n.values.tolist(), curve.isel(n=-1)
            settled = cv.inference.settled_from(sizes, curve.value.values, tolerance=_NEAR)
            start = "not settled" if settled is None else f"{settled:,}"
            shown = (
                f"{sizes[-1]:,}",
                f"{last.value.item():.3g}",
                f"{last.error.item():.2g}",
                start,
            )
            grid.add_row(metric, self.words(metric, width), str(kept), *shown)
        yield grid

    def words(self, metric: str, width: int) -> str:
        """How many neighbours a metric takes, or which bandwidth."""
        if metric != "RKE-MC":
            return f"k = {self.neighbours[width]}"
        return f"bandwidth {self.scales[width] * (self.output_bandwidth or 0):.3g}"

    @classmethod
    def figures(cls, runs):
        """Recall, coverage and RKE-MC side by side, as in RKE fig 3."""
        return {run.folder.name: _figure(run) for run in runs}


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


def split(
    pairs: PairedEmbeddings, kept: int, repeat: int, key: jax.Array
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the samples, some types of a random half, and of the references, the other half.

    The halves and the order of the types are those of the repeat, whatever the number of types.
    """
    generator = np.random.default_rng((int(jax.random.bits(key)), repeat))
    order = generator.permutation(len(pairs))
    half = len(pairs) // 2
    labels = pairs.labels["types"]
    types = generator.permutation(np.unique(labels))[:kept]
    return order[:half][np.isin(labels[order[:half]], types)], order[half:]


def over_repeats(found: xr.Dataset) -> xr.Dataset:
    """Means and standard deviations where every repeat has so many samples."""
    values = found.value
    mean, spread = (getattr(values, of)("repeat", skipna=False) for of in ("mean", "std"))
    return xr.Dataset({"value": mean, "error": spread})


def _figure(run: lab.Run) -> Figure:
    """A column a metric; a row a number of neighbours, and a multiple of the bandwidth."""
    study, found = run.study, over_repeats(run.found)
    least, most = min(study.kept), max(study.kept)

    def title(width, metric):
        if least == most:
            return metric
        curves = found.value.sel(metric=metric, width=width)
        share = (curves.sel(kept=least) / curves.sel(kept=most)).dropna("n").values[-1]
        return f"{metric} keeps {share:.0%} with {least} of {most} types"

    def label(width):
        return f"{study.words('Recall', width)}, {study.words('RKE-MC', width)}"

    def limits(panel, part):
        metric, width = part.metric.item(), part.width.item()
        if metric == "Coverage":
            expected = expected_coverage(study.sizes, study.neighbours[width])
            panel.plot(study.sizes, expected, color=style.GREY, linewidth=4, alpha=0.4, zorder=0)
        top = found.value.sel(metric=metric, width=width).max().item()
        panel.set_ylim(0, 1.05 * (top if metric == "RKE-MC" else 1))
        style.log_counts(panel, study.sizes[:: -(-len(study.sizes) // 5)])

    drawn = figures.facets(
        found, x="n", hue="kept", row="width", column="metric", error="error", title=title,
        names={j: f"samples of {j} of {study.types} types" for j in study.kept}, each=limits,
        x_label="number of samples", y_label=label, size=(3.8, 2.4), sharey=False,
    )  # fmt: skip
    rule = "given" if study.described == "given" else f"{study.rule} rule"
    n = f"a random half is the reference; bandwidth {study.output_bandwidth:.3g} ({rule})"
    bars = f"one standard deviation over {study.repeats} random halves and choices of types"
    bars += ". Grey: the coverage that equal distributions would have"
    return figures.caption(drawn, run, n=n, bars=bars)


if __name__ == "__main__":
    lab.main(Coverage)
