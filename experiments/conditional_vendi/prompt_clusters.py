"""Prompts in ever finer clusters, answered by their centres: CV figures 4 and 23."""

import itertools

import jax
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.base import checks
from experiments import lab
from experiments.conditional_vendi import type_draws
from experiments.lab import figures, style, tables

# Sizes of equal ratio, from a cluster of so many prompts on down to single ones.
_POINTS, _COARSEST = 6, 40
_SHARE = 0.5
ALL = "all outputs"
_FURTHER = ("captions", "t2i", "t2i_second")
# The panels of CV fig 4, and all scores in the order of decompositions of orders 1 and 2.
PANELS = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")
SCORES = ("Vendi", *PANELS[:2], "RKE", *PANELS[2:])


class PromptClusters(lab.Study):
    """How do the scores change if a model gives one output to each cluster of prompts?"""

    packages = {"clusters": "scikit-learn"}
    takes = ("models",)
    control = (
        "All k have the same prompts; but more clusters are more different outputs, which alone "
        "raises scores."
    )
    runs = ((), *((f"--data={data}",) for data in _FURTHER))

    bandwidths: lab.Scales = lab.Scales()
    counts: tuple[int, ...] | None = lab.flag(
        help="Numbers of clusters k; by default six, from a fortieth of the prompts to all of "
        "them.",
        at_least=1,
    )
    largest: int = lab.flag(
        400, "This many prompts are drawn at random where there are more.", at_least=2
    )
    repeats: int = lab.flag(3, "Starts of K-means, each with outputs of its own draw.", at_least=2)
    prompts: int = lab.resolved(0)
    models: tuple[str, ...] = lab.resolved(())
    left_out: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        pairs = load()
        _, kind = checks.distinct_rows(pairs.prompts)
        models = np.asarray(pairs.labels.get("models", np.full(len(pairs), ALL))).astype(str)
        has = pd.crosstab(models, kind) > 0
        kept = has[has.mean(axis=1) >= _SHARE]
        shared = np.flatnonzero(kept.all() & (len(kept) > 0))
        if len(shared) < 4:
            raise ValueError(f"expected 4 prompts or more that all models have, got {len(shared)}.")
        if len(shared) > self.largest:
            generator = np.random.default_rng(seed)
            shared = np.sort(generator.choice(shared, self.largest, replace=False))
        n = len(shared)
        spaced = np.geomspace(max(2, n / _COARSEST), n, _POINTS).round().astype(int)
        counts = tuple(sorted(self.counts or set(spaced.tolist())))
        if counts[-1] > n:
            raise ValueError(f"--counts: expected at most the {n} prompts, received {counts}.")
        rows = pd.DataFrame({"model": models, "prompt": kind}).groupby(["model", "prompt"]).indices
        prompts = pairs.prompts[np.unique(kind, return_index=True)[1][shared]]
        keys = jax.random.split(jax.random.key(seed), len(counts))
        clusterings = [
            type_draws.by_k_means(prompts, count, self.repeats, key)
            for count, key in zip(counts, keys, strict=True)
        ]
        return self.ready(
            pairs,
            state=(pairs.outputs, prompts, shared, rows, clusterings),
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "models": models},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            counts=counts,
            prompts=n,
            models=tuple(kept.index),
            left_out=tuple(has.index.difference(kept.index)),
        )

    def axes(self):
        return {"model": self.models, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, model, scale):
        """The scores of a model at every k for every start of K-means.

        `agreement` is the mean adjusted Rand index of two starts.
        """
        outputs, prompts, shared, rows, clusterings = state
        generator = np.random.default_rng(np.asarray(jax.random.key_data(context.shared_key)))
        axes = {"score": list(SCORES), "k": list(self.counts or ()), "repeat": range(self.repeats)}
        values = []  # By repeat, k and score.
        for repeat in range(self.repeats):
            drawn = outputs[[generator.choice(rows[model, prompt]) for prompt in shared]]
            answered = [drawn[answers(prompts, starts[repeat])] for starts in clusterings]
            values.append([scores_of(x, prompts, scale) for x in answered])
        values = np.transpose(values).astype(float)
        agreement = [
            np.mean([type_draws.rand_index(*two) for two in itertools.combinations(starts, 2)])
            for starts in clusterings
        ]
        return xr.Dataset({"value": (tuple(axes), values), "agreement": ("k", agreement)}, axes)

    def tables(self, run):
        """Each score at every k, with its spread over the starts."""
        names, rows = {k: f"k = {k:,}" for k in self.counts or ()}, ("scale", "model", "score")
        yield tables.table(_over_starts(run), rows=rows, columns="k", error="error", names=names)

    @classmethod
    def facts(cls, runs):
        names = ["emoji", *_FURTHER]
        facts = dict(zip(names, map(_over_starts, runs), strict=True))
        ends = [of.isel(k=[0, -1]).assign_coords(k=["fewest", "all"]) for of in facts.values()]
        ends = [of.mean("model").sel(scale=1) for of in ends]
        ends = xr.concat(ends, xr.DataArray(names, dims="data", name="data"))
        table = tables.table(ends, rows=("data", "k"), columns="score", digits=3)
        orders = facts["t2i"].value.sel(scale=1, score=list(PANELS[:2])).isel(k=-1)
        tau, _ = stats.kendalltau(*orders.transpose("score", "model"))
        return facts | {"tau": tau, "ends": table}

    @classmethod
    def figures(cls, runs):
        # The folder of a run names its data.
        return {run.folder.name.replace("-", "_"): _figure(run) for run in runs}


def answers(prompts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of prompts `[n, d]` in clusters `[n]`: whose output each gets, its cluster's medoid's."""
    medoid = np.empty(len(prompts), int)
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        centre = prompts[members].mean(axis=0)
        nearest = np.argmin(np.sum((prompts[members] - centre) ** 2, axis=1))
        medoid[members] = members[nearest]
    return medoid


def scores_of(outputs: np.ndarray, prompts: np.ndarray, scale: lab.Bandwidths) -> np.ndarray:
    """`SCORES` of some pairs."""
    orders = (cv.decompose(outputs, prompts, order=k, **scale.kernels) for k in (1, 2))
    return np.ravel([order.scores for order in orders])


def _over_starts(run: lab.Run) -> xr.Dataset:
    """The scores of the figures: means and standard deviations over the starts."""
    return tables.spreads(run.found.value.sel(score=list(PANELS)), "repeat")


def over_models(values: xr.DataArray) -> xr.Dataset:
    """Means of the scores over models as `value`, and `ends`, the least and the largest."""
    ends = xr.concat([values.min("model"), values.max("model")], "end")
    return xr.Dataset({"value": values.mean("model"), "ends": ends})


def _figure(run: lab.Run) -> Figure:
    """Each score against k: a line for each multiple of the bandwidths."""
    study, found = run.study, over_models(_over_starts(run).value)
    drawn = figures.facets(
        found, x="k", hue="scale", column="score", error="ends", log_y=True,
        names={scale: f"x {scale:g}" for scale in found.scale.values},
        across=2, size=(3.45, 2.2), sharey=True, x_label="clusters of prompts, k",
        each=lambda panel, _: style.log_counts(panel, study.counts),
    )  # fmt: skip
    last = (found.value.isel(k=-1) - found.value.isel(k=0)).to_series()
    falls = dict.fromkeys(score for _, score in last[last < 0].index)
    but = f", but {' and '.join(falls)} falls at some bandwidths" if falls else ""
    style.headline(drawn, f"Scores rise from k = {study.counts[0]} to {study.counts[-1]}{but}")
    n = f"{study.prompts} prompts, outputs of medoids; {study.repeats} starts"
    n += f"; without {', '.join(study.left_out)}" if study.left_out else ""
    bars = f"range of {len(study.models)} models" if len(study.models) > 1 else ""
    return figures.caption(drawn, run, n=n, bars=bars)
