"""How many samples diversity metrics need, and how they see lost modes: RKE figure 3.

Half of the outputs are the reference. Of the other half, only some types are kept.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.conditional_vendi.convergence import verdict
from experiments.data import PairedEmbeddings
from experiments.lab import curves, figures, scales, style, tables

SHARES = ("Recall", "Coverage")
# So many numbers of samples, between these or as far as the data go.
_SIZES, _SMALLEST, _LARGEST = 8, 50, 5000
# A curve has settled where single samples stay this near to its last value.
_NEAR = 0.05


def width_by_rule(points: Any, key: jax.Array) -> float:
    """The bandwidth by the rule of RKE, the standard deviations of samples."""
    return bandwidth.bandwidth_by_rule(points, "std", key=key, partitions=1).bandwidth or 0.0


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


def neighbourly(
    across: np.ndarray, of_samples: np.ndarray, of_references: np.ndarray, k: int
) -> np.ndarray:
    """Precision, recall, density and coverage (Kynkaanniemi et al. 2019, Naeem et al. 2020).

    Of distances `[references, samples]`, of samples `[s, s]` and of references `[r, r]`: whether
    one lies within the reach of another, the distance to its k-th neighbour.
    """
    # The zero in front is the distance to the point itself.
    own, real = (np.partition(within, k, axis=1)[:, k] for within in (of_samples, of_references))
    near = across <= real[:, None]
    recall, density = np.any(across <= own, axis=1).mean(), near.sum() / (k * len(own))
    return np.array([near.any(axis=0).mean(), recall, density, near.any(axis=1).mean()])


def expected_coverage(sizes: np.ndarray, k: int) -> np.ndarray:
    """The coverage of n references by n samples of the same distribution (Naeem et al. 2020).

    Of a reference's neighbours among n - 1 references and n samples, the k nearest must not all be
    references: all orders are equally likely.
    """
    steps, sizes = np.arange(1, k + 1), np.asarray(sizes, float)[:, None]
    return 1 - np.prod((sizes - steps) / (2 * sizes - steps), axis=1)


class Coverage(lab.Study):
    """How many samples do RKE-MC, recall and coverage need?"""

    data = "fashion_features"
    needs = ("types",)
    paired = False
    version = 2
    runs = ((), ("--data=dogs",))
    control = "Metrics are compared at equal numbers of samples and of references."
    grows = ("kept", "n")

    output_bandwidth: float | None = lab.flag(
        None, "The bandwidth, in the units of the outputs; by the rule of RKE if unset.", above=0
    )
    scales: tuple[float, ...] = lab.flag(scales.SCALES, "Multiples of it, for RKE-MC.", above=0)
    neighbours: tuple[int, ...] = lab.flag(
        (3, 5, 10), "Nearest neighbours of recall and coverage.", at_least=1
    )
    kept: tuple[int, ...] | None = lab.flag(
        None, "Types that the samples have; a fifth, half and all of them if unset."
    )
    repeats: int = lab.flag(5, "Random halves, orders and choices of types.", at_least=1)
    sizes: tuple[int, ...] = lab.resolved(())
    types: int = lab.resolved(0)

    def prepare(self, load, seed):
        pairs = load()
        types = pairs.labels["types"]
        count = len(np.unique(types))
        kept = self.kept or tuple(sorted({max(1, count // 5), max(1, count // 2), count}))
        if not all(1 <= j <= count for j in kept):
            said = f"between 1 and the {count} types, received {', '.join(map(str, kept))}"
            raise ValueError(f"--kept: expected numbers {said}.")
        key = jax.random.key(seed)
        cells = itertools.product(kept, range(self.repeats))
        most, largest = max(self.neighbours), min(len(pairs) // 2, _LARGEST)
        fewest = min(largest, *(len(split(pairs, *cell, key)[0]) for cell in cells))
        if fewest <= most:
            there = f"the {fewest} samples of the types kept"
            raise ValueError(f"--neighbours: {most} are not fewer than {there}.")
        smallest = min(max(_SMALLEST, most + 1), fewest, largest)
        sizes = np.geomspace(smallest, largest, _SIZES).round().astype(int)
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "types": types},
            output_bandwidth=self.output_bandwidth or width_by_rule(pairs.outputs, key),
            kept=kept,
            sizes=tuple(np.unique(sizes).tolist()),
            types=count,
        )

    def axes(self):
        return {"kept": self.kept, "repeat": range(self.repeats)}

    def compute(self, state, context, *, kept, repeat):
        """The metrics of one random half with some of the types against the other half.

        NaN where there are not so many samples.
        """
        sizes, width = list(self.sizes), self.output_bandwidth or 0.0
        halves = split(state, kept, repeat, context.shared_key)
        samples, references = (state.outputs[rows[: sizes[-1]]] for rows in halves)
        of_references, of_samples = (distance.cdist(of, of) for of in (references, samples))
        across = distance.cdist(references, samples)
        there = [size for size in sizes if size <= len(samples)]
        shares, modes = [], []
        for size in there:
            first = slice(size), slice(size)
            parts = across[first], of_samples[first], of_references[first]
            shares.append([neighbourly(*parts, k)[1::2] for k in self.neighbours])
        for scale in self.scales:
            pairs = cv.Pairs(samples, kernel=cv.Gaussian(scale * width))
            modes.append(np.exp(curves.order_two_curves(pairs, there)[0][0]))
        labels = {"metric": list(SHARES), "k": list(self.neighbours), "n": there}
        whole = {"share": (tuple(labels), np.transpose(shares)), "modes": (("scale", "n"), modes)}
        return xr.Dataset(whole, labels | {"scale": list(self.scales)}).reindex(n=sizes)

    def tables(self, run):
        """Each metric at every k, or multiple of the bandwidth, and number of samples."""
        for metric, curve in by_metric(run.found).items():
            setting = "k" if metric in SHARES else "scale"
            names = {"k": f"{metric}, k", "scale": f"{metric}, bandwidth x"}
            options = {"columns": "kept", "error": "error", "names": names}
            yield tables.table(curve, rows=(setting, "n"), **options)

    @classmethod
    def figures(cls, runs):
        return {run.folder.name: _figure(run) for run in runs}

    @classmethod
    def facts(cls, runs):
        metrics = {run.folder.name: by_metric(run.found) for run in runs}
        sizes = {run.folder.name: shared(run.found) for run in runs}

        def table(run, names, setting):
            equal = {name: metrics[run][name].sel(n=sizes[run]) for name in names}
            shown: Any = xr.concat(list(equal.values()), xr.IndexVariable("metric", list(equal)))
            return tables.table(shown, rows=("metric", setting), columns="kept", digits=3)

        def settled(run, kept, scale):
            curve = metrics[run]["RKE-MC"].sel(kept=kept, scale=scale)
            return verdict(curve.assign(orders=runs[0].study.repeats), _NEAR)[1]

        def last(run, metric, kept, **setting):
            return metrics[run][metric].value.sel(kept=kept, **setting).dropna("n")[-1]

        return {
            "last": last,
            "settled": settled,
            "shared": sizes,
            "shares": lambda run: table(run, SHARES, "k"),
            "modes": lambda run: table(run, ["RKE-MC"], "scale"),
        }


def by_metric(found: xr.Dataset, of: Callable[..., xr.Dataset] = tables.spreads) -> dict[str, Any]:
    """Means and standard deviations over the repeats, where every repeat has so many samples."""
    values = {name: found.share.sel(metric=name, drop=True) for name in SHARES}
    return {name: of(v, "repeat") for name, v in (values | {"RKE-MC": found.modes}).items()}


def shared(found: xr.Dataset) -> int:
    """The largest number of samples that every repeat has of every number of types."""
    return int(found.n[np.isfinite(found.modes).all(("kept", "repeat", "scale"))].max())


def _figure(run: lab.Run) -> Figure:
    """The metrics against the number of samples; RKE-MC at two bandwidths, over its last values."""
    study, metrics, every = run.study, by_metric(run.found, tables.t_intervals), max(run.study.kept)
    k = study.neighbours[len(study.neighbours) // 2]
    shown = {f"{name}, k = {k}": metrics[name].sel(k=k, drop=True) for name in SHARES}
    settled = []
    for scale in study.scales[:2]:
        modes = metrics["RKE-MC"].sel(scale=scale, drop=True)
        width = f"{scale * study.output_bandwidth:.2g}"
        last = modes.value.sel(kept=every)[-1].item()
        shown[f"RKE-MC, bandwidth {width}: {last:.3g} at the end"] = modes / last
        single = by_metric(run.found)["RKE-MC"].sel(kept=every, scale=scale)
        _, start = verdict(single.assign(orders=study.repeats), _NEAR)
        settled += [f"{start:,} (bandwidth {width})"] if start else []

    def known(panel, part):
        for kept in study.kept if part.metric.item().startswith(SHARES) else ():
            panel.axhline(kept / study.types, color=style.BLACK, linestyle=":", linewidth=1)
        style.log_counts(panel, study.sizes[:: -(-len(study.sizes) // 3)])
        if part.metric.item().startswith(SHARES[1]):
            expected = expected_coverage(study.sizes, k)
            panel.plot(study.sizes, expected, color=style.GREY, linewidth=4, alpha=0.4, zorder=0)
        panel.set_ylim(0, 1.1)

    whole: Any = xr.concat(list(shown.values()), xr.IndexVariable("metric", list(shown)))
    names = {kept: f"{kept} of {study.types} types" for kept in study.kept}
    figure = figures.facets(
        whole, x="n", hue="kept", column="metric", across=2, error="error", sharey=True, each=known,
        names=names, x_label="number of samples", y_label="share of references", size=(3.45, 2.2),
    )  # fmt: skip
    figure.axes[2].set_ylabel("RKE-MC over its last value")
    words = f"5% of its end from {' or '.join(settled) or 'no number of'} samples on"
    style.headline(figure, f"RKE-MC of {every} types stays within {words}")
    n = f"{2 * study.sizes[-1]:,} outputs, half of them the reference; dotted: share of the types"
    return figures.caption(figure, run, n=n, bars=f"95% of means over {study.repeats} repeats")
