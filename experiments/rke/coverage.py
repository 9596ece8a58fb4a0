"""How many samples diversity metrics need, and how they see lost modes: RKE figure 3.

Half of the outputs are the reference. Of the other half, only some types are kept.
"""

import itertools
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.conditional_vendi.settling import samples_settle
from experiments.data import PairedEmbeddings
from experiments.lab import curves, figures, scales, style, tables

SHARES = ("Recall", "Coverage")
# So many numbers of samples, between these or as far as the data go.
_SIZES, _SMALLEST, _LARGEST = 8, 50, 2000
# A curve has settled where single samples stay this near to its last value.
_NEAR = 0.05


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
    return float(np.mean(np.any(across <= reach(within, k), axis=1)))


def coverage(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references with a sample within their reach (Naeem et al. 2020, eq. 4).

    Of distances `[references, samples]` and of references `[r, r]`.
    """
    return float(np.mean(np.min(across, axis=1) <= reach(within, k)))


def reach(within: np.ndarray, k: int) -> np.ndarray:
    """The distance to the k-th neighbour; the zero in front is that to the point itself."""
    return np.partition(within, k, axis=1)[:, k]


def neighbourly(
    across: np.ndarray, of_samples: np.ndarray, of_references: np.ndarray, k: int
) -> list[float]:
    """Precision, recall, density and coverage (Kynkaanniemi et al. 2019, Naeem et al. 2020).

    Of distances `[references, samples]`, of samples `[s, s]` and of references `[r, r]`.
    """
    density = np.sum(across <= reach(of_references, k)[:, None]) / (k * len(of_samples))
    recalls = recall(across.T, of_references, k), recall(across, of_samples, k)
    return [*recalls, float(density), coverage(across, of_references, k)]


def expected_coverage(sizes: np.ndarray, k: int) -> np.ndarray:
    """The coverage of n references by n samples of the same distribution (Naeem et al. 2020).

    Of a reference's neighbours among n - 1 references and n samples, the k nearest must not all be
    references: all orders are equally likely.
    """
    steps, sizes = np.arange(1, k + 1), np.asarray(sizes, float)[:, None]
    return 1 - np.prod((sizes - steps) / (2 * sizes - steps), axis=1)


class Coverage(lab.Study):
    """How many samples do RKE-MC, recall and coverage need?"""

    name = "coverage"
    control = "All samples have the same reference; the number of samples is the question."
    grows = ("kept", "n")
    data = "dogs"
    needs = ("types",)
    paired = False
    version = 2
    drawings = "coverage", "coverage_neighbours", "coverage_bandwidths"

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
        width = self.output_bandwidth or (
            bandwidth.bandwidth_by_rule(pairs.outputs, "std", key=key, partitions=1).bandwidth
        )
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "types": types},
            output_bandwidth=width,
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
        shares = np.full((len(SHARES), len(self.neighbours), len(sizes)), np.nan)
        for (at, size), (row, k) in itertools.product(enumerate(there), enumerate(self.neighbours)):
            first = (slice(size), slice(size))
            shares[0, row, at] = recall(across[first], of_samples[first], k)
            shares[1, row, at] = coverage(across[first], of_references[first], k)
        modes = np.full((len(self.scales), len(sizes)), np.nan)
        for row, scale in enumerate(self.scales):
            of = {"output_kernel": cv.Gaussian(scale * width), "entropies": [cv.Entropy(2)]}
            (curve,) = curves.convergence_curve(samples, None, there, **of)
            modes[row, : len(there)] = np.asarray(curve.vendi)
        labels = {"metric": list(SHARES), "k": list(self.neighbours), "n": sizes}
        whole = {"share": (tuple(labels), shares), "modes": (("scale", "n"), modes)}
        return xr.Dataset(whole, labels | {"scale": list(self.scales)})

    def tables(self, run):
        """Each metric at every setting and number of samples."""
        for metric, curve in by_metric(run.found).items():
            rows, names = ("setting", "n"), {"setting": f"{metric}, k or multiple"}
            yield tables.table(curve, rows=rows, columns="kept", error="error", names=names)

    @classmethod
    def figures(cls, runs):
        return {name: of for run in runs for name, of in _figures(run).items()}

    @classmethod
    def facts(cls, runs):
        found, metrics = runs[0].found, by_metric(runs[0].found)
        modes = metrics["RKE-MC"].assign(orders=runs[0].study.repeats)

        def line(metric, kept, setting):
            return metrics[metric].value.sel(kept=kept, setting=setting).dropna("n")

        equal = [curve.sel(n=shared(found)).expand_dims(metric=[m]) for m, curve in metrics.items()]
        names = {kept: f"{kept} breeds" for kept in runs[0].study.kept}
        of = {"rows": ("metric", "setting"), "columns": "kept", "names": names, "digits": 3}
        return {
            "last": lambda *of: line(*of)[-1],
            "settled": lambda kept, setting: samples_settle(
                modes.sel(kept=kept, setting=setting), _NEAR
            ),
            "shared": shared(found),
            "table": tables.table(xr.concat(equal, "metric", join="outer"), **of),
        }


def by_metric(found: xr.Dataset) -> dict[str, xr.Dataset]:
    """Means and standard deviations over the repeats, where every repeat has so many samples.

    Of each metric; `setting` is the number of neighbours, or the multiple of the bandwidth.
    """
    values = {name: found.share.sel(metric=name, drop=True).rename(k="setting") for name in SHARES}
    values["RKE-MC"] = found.modes.rename(scale="setting")
    return {name: tables.spreads(of, "repeat") for name, of in values.items()}


def shared(found: xr.Dataset) -> int:
    """The largest number of samples that every repeat has of every number of types."""
    return int(found.n[np.isfinite(found.modes).all(("kept", "repeat", "scale"))].max())


def _figures(run):
    """Metrics against the number of samples; shares against k; RKE-MC by bandwidth."""
    study, equal, metrics = run.study, shared(run.found), by_metric(run.found)
    whole = metrics["RKE-MC"].value.sel(kept=max(study.kept)).isel(n=-1, drop=True)
    modes = metrics["RKE-MC"] = metrics["RKE-MC"] / whole  # Of the last value of all types.
    middle = {name: of.setting.values[of.sizes["setting"] // 2] for name, of in metrics.items()}
    few, names = min(study.kept), {k: f"{k} of {study.types} types" for k in study.kept}

    def known(panel, part):
        for kept in study.kept:
            panel.axhline(kept / study.types, color=style.BLACK, linestyle=":", linewidth=1)
        if "n" in part.dims:
            style.log_counts(panel, study.sizes[:: -(-len(study.sizes) // 3)])
        if "n" in part.dims and part["metric"] == SHARES[1]:
            expected = expected_coverage(study.sizes, middle[SHARES[1]])
            panel.plot(study.sizes, expected, color=style.GREY, linewidth=4, alpha=0.4, zorder=0)
        panel.set_ylim(0, 1.1)

    def drawn(of, x, x_label):
        shown: Any = xr.concat(list(of.values()), xr.IndexVariable("metric", [*of]))
        figure = figures.facets(
            shown, x=x, hue="kept", column="metric", error="error", sharey=True, each=known,
            names=names, x_label=x_label, y_label="share (dotted: of types)",
            size=(7 / len(of), 2.6),
        )  # fmt: skip
        words = []
        for name, metric in of.items():
            at = metric.value.sel(kept=few).sel({"n": equal} if x == "n" else {}).values
            spread = f" to {at.max():.0%}" if at.ndim else ""
            words.append(f"{name} {at.min():.0%}{spread}")
        words = f"Samples of {names[few]} ({few / study.types:.0%}): {', '.join(words)}"
        style.headline(figure, words)
        n = f"a random half is the reference; k = {middle[SHARES[0]]}, bandwidth "
        n += f"{study.output_bandwidth:.3g}; RKE-MC over its last value"
        return figures.caption(figure, run, n=n, bars=f"deviation over {study.repeats} repeats")

    along = {name: of.sel(setting=middle[name], drop=True) for name, of in metrics.items()}
    by = {f"RKE-MC x {x:g}": modes.sel(setting=x, drop=True) for x in study.scales}
    shares = {name: metrics[name].sel(n=equal, drop=True) for name in SHARES}
    return {
        run.folder.name: drawn(along, "n", "number of samples"),
        f"{run.folder.name}_neighbours": drawn(shares, "setting", "nearest neighbours k"),
        f"{run.folder.name}_bandwidths": drawn(by, "n", "number of samples"),
    }
