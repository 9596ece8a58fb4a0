"""How many samples diversity metrics need, and how they see lost modes: RKE figure 3.

Half of the outputs are the reference. Of the other half, only some types are kept.
"""

import itertools

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax.base import extras
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.conditional_vendi.settling import settled_from
from experiments.data import PairedEmbeddings
from experiments.lab import curves, figures, scales, style


def split(
    pairs: PairedEmbeddings, kept: int, repeat: int, key: jax.Array
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the samples, some types of a random half, and of the references, the other half.

    The halves and the order of the types are those of the repeat, whatever the number of types.
    """
    generator = np.random.default_rng((int(jax.random.bits(key)), repeat))
    samples, references = np.split(generator.permutation(len(pairs)), [len(pairs) // 2])
    labels = pairs.labels["types"]
    types = generator.permutation(np.unique(labels))[:kept]
    return samples[np.isin(labels[samples], types)], references


def recall(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references within the reach of a sample (Kynkaanniemi et al. 2019, eq. 2).

    Of distances `[references, samples]` and of samples `[s, s]`, which reach to their k-th
    neighbour.
    """
    return float(np.mean(np.any(across <= _reach(within, k)[None, :], axis=1)))


def coverage(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references with a sample within their reach (Naeem et al. 2020, eq. 4).

    Of distances `[references, samples]` and of references `[r, r]`.
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


METRICS = ("Recall", "Coverage", "RKE-MC")
# So many numbers of samples, between these or as far as the data go.
_SIZES, _SMALLEST, _LARGEST = 8, 50, 2000
# A curve has settled where it stays this near to its last value.
_NEAR = 0.05


class Coverage(lab.Study):
    """How many samples do RKE-MC, recall and coverage need?"""

    name = "coverage"
    reproduces = "RKE fig 3"
    duration = "1 minute"
    packages = {"clusters": "scikit-learn"}
    data = "dogs"
    needs = ("types",)
    paired = False
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
        (3, 5, 10),
        "Nearest neighbours of recall and coverage, beside each of the scales.",
        at_least=1,
        repeats=True,
    )
    kept: tuple[int, ...] | None = lab.flag(
        None, "Types that the samples have; a fifth, half and all of them if unset."
    )
    repeats: int = lab.flag(5, "Random halves, orders and choices of types.", at_least=1)
    sizes: tuple[int, ...] = lab.resolved(())
    described: str = lab.resolved("")
    types: int = lab.resolved(0)

    def prepare(self, load, seed):
        count, scales = len(self.neighbours), len(self.scales)
        if count != scales:
            raise ValueError(f"--neighbours: expected as many as scales, {scales}, not {count}.")
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
        most, largest = max(self.neighbours), min(len(pairs) // 2, _LARGEST)
        fewest = min(largest, *(len(split(pairs, *cell, key)[0]) for cell in cells))
        if fewest <= most:
            raise ValueError(
                f"--neighbours: {most} are not fewer than the {fewest} samples of the types kept."
            )
        smallest = min(max(_SMALLEST, most + 1), fewest, largest)
        sizes = np.geomspace(smallest, largest, _SIZES).round().astype(int)
        chosen = bandwidth.RuledBandwidth(self.output_bandwidth, "given")
        if self.output_bandwidth is None:
            chosen = bandwidth.bandwidth_by_rule(pairs.outputs, self.rule, key=key, partitions=1)
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "types": types},
            output_bandwidth=chosen.bandwidth,
            kept=kept,
            sizes=tuple(np.unique(sizes).tolist()),
            described=chosen.rule,
            types=count,
        )

    def axes(self):
        return {"kept": self.kept, "repeat": range(self.repeats)}

    def compute(self, state, context, *, kept, repeat):
        """The metrics of one random half with some of the types against the other half.

        By `width` (the place among the numbers of neighbours, or among the scales) and `n`; NaN
        where there are not so many samples.
        """
        sizes, width = list(self.sizes), self.output_bandwidth or 0.0
        halves = split(state, kept, repeat, context.shared_key)
        samples, references = (state.outputs[rows[: sizes[-1]]] for rows in halves)
        with extras.needed("clusters", package="scikit-learn", purpose="this study"):
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
            (curve,) = curves.convergence_curve(
                samples, None, there, output_kernel=kernel, entropies=[cv.renyi(2)]
            )
            values[2, row, : len(there)] = np.asarray(curve.vendi)
        labels = {"metric": list(METRICS), "width": range(len(self.scales)), "n": sizes}
        return xr.Dataset({"value": (tuple(labels), values)}, labels)

    def tables(self, run):
        """Where each curve ends, its spread there, and from how many samples on it stays near."""
        near = f"within {_NEAR:.0%} from"
        grid = Table("metric", "with", "types", "samples", "mean", "sd", near)
        curves = over_repeats(run.found)
        axes = METRICS, range(len(self.scales)), self.kept or ()
        for metric, width, kept in itertools.product(*axes):
            curve = curves.sel(metric=metric, width=width, kept=kept).dropna("n")
            last, start = curve.isel(n=-1), settled_from(curve.value, _NEAR)
            grid.add_row(
                metric,
                self.words(width),
                str(kept),
                f"{last.n.item():,}",
                f"{last.value.item():.3g}",
                f"{last.error.item():.2g}",
                "not settled" if start is None else f"{start:,}",
            )
        yield grid

    def words(self, width: int) -> str:
        """How many neighbours recall and coverage take, and the bandwidth of RKE-MC."""
        bandwidth = self.scales[width] * (self.output_bandwidth or 0)
        return f"k = {self.neighbours[width]}, bandwidth {bandwidth:.3g}"

    @classmethod
    def figures(cls, runs):
        return {run.folder.name: _figure(run) for run in runs}


def over_repeats(found: xr.Dataset) -> xr.Dataset:
    """Means and standard deviations where every repeat has so many samples."""
    mean, spread = (getattr(found.value, of)("repeat", skipna=False) for of in ("mean", "std"))
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
        x_label="number of samples", y_label=study.words, size=(3.8, 2.4), sharey=False,
    )  # fmt: skip
    rule = "given" if study.described == "given" else f"{study.rule} rule"
    n = f"a random half is the reference; bandwidth {study.output_bandwidth:.3g} ({rule})"
    bars = f"one standard deviation over {study.repeats} random halves and choices of types"
    bars += ". Grey: the coverage that equal distributions would have"
    return figures.caption(drawn, run, n=n, bars=bars)
