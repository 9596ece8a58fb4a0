"""Prompts in ever finer clusters, answered by their centres: CV figures 4 and 23."""

import itertools

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax.base import checks, extras
from experiments import lab
from experiments.conditional_vendi import type_draws
from experiments.lab import figures, style, tables

# Sizes of equal ratio, from a cluster of so many prompts on down to single ones.
_POINTS, _COARSEST = 6, 40
_SHARE = 0.5
ALL = "all outputs"
# In the order of the scores of a decomposition, first those of order 1, then those of order 2.
SCORES = tuple(
    f"{of}{name}" for name in ("Vendi", "RKE") for of in ("", "Conditional-", "Information-")
)
# The panels of CV fig 4.
PANELS = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")


class PromptClusters(lab.Study):
    """How do the scores change if a model gives one output to each cluster of prompts?"""

    name = "prompt_clusters"
    reproduces = "CV figs 4, 23; CV-early fig 4"
    duration = "1 minute"
    packages = {"clusters": "scikit-learn"}
    takes = ("models",)
    runs = ((), ("--data=captions",), ("--data=gallery",))
    drawings = ("prompt_clusters", "prompt_clusters_captions", "prompt_clusters_gallery")

    bandwidths: lab.Scales = lab.Scales()
    counts: tuple[int, ...] | None = lab.flag(
        None,
        "Numbers of clusters k; by default six, from a fortieth of the prompts to all of them.",
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
        kinds, kind = checks.distinct_rows(pairs.prompts)
        models = np.asarray(pairs.labels.get("models", np.full(len(pairs), ALL))).astype(str)
        names, model = np.unique(models, return_inverse=True)
        has = np.zeros((len(names), kinds), bool)
        has[model, kind] = True
        kept = has.mean(axis=1) >= _SHARE
        shared = np.flatnonzero(has[kept].all(axis=0) & kept.any())
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
        rows = {
            name: [np.flatnonzero((kind == p) & (models == name)) for p in shared]
            for name in names[kept].tolist()
        }
        prompts = pairs.prompts[np.unique(kind, return_index=True)[1][shared]]
        keys = jax.random.split(jax.random.key(seed), len(counts))
        clusterings = [
            type_draws.by_k_means(np.asarray(prompts, np.float32), count, self.repeats, key)
            for count, key in zip(counts, keys, strict=True)
        ]
        return self.ready(
            pairs,
            state=(pairs.outputs, prompts, rows, clusterings),
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "models": models},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            counts=counts,
            prompts=n,
            models=tuple(rows),
            left_out=tuple(names[~kept].tolist()),
        )

    def axes(self):
        return {"model": self.models, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, model, scale):
        """The scores of a model at every k for every start of K-means, and how starts agree.

        `agreement` is the mean adjusted Rand index of two starts.
        """
        outputs, prompts, rows, clusterings = state
        generator = np.random.default_rng(np.asarray(jax.random.key_data(context.shared_key)))
        axes = {"score": list(SCORES), "k": list(self.counts or ()), "repeat": range(self.repeats)}
        values = np.empty(tuple(map(len, axes.values())))
        for repeat in range(self.repeats):
            drawn = outputs[[generator.choice(of_prompt) for of_prompt in rows[model]]]
            for index, clusters in enumerate(clusterings):
                answered = drawn[answers(prompts, clusters[repeat])]
                found = [
                    cv.decompose(answered, prompts, order=order, **scale.kernels).scores
                    for order in (1.0, 2.0)
                ]
                values[:, index, repeat] = np.ravel(found)
        with extras.needed("clusters", package="scikit-learn", purpose="this study"):
            from sklearn.metrics import adjusted_rand_score
        pairs = list(itertools.combinations(range(self.repeats), 2))
        agreement = [
            np.mean([adjusted_rand_score(starts[a], starts[b]) for a, b in pairs] or 1)
            for starts in clusterings
        ]
        return xr.Dataset({"value": (tuple(axes), values), "agreement": ("k", agreement)}, axes)

    def tables(self, run):
        """Each score at every k, with its spread over the starts."""
        names = {k: f"k = {k:,}" for k in self.counts or ()}
        rows = ("scale", "model", "score")
        yield tables.table(_over_starts(run), rows=rows, columns="k", error="error", names=names)

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


def _over_starts(run: lab.Run) -> xr.Dataset:
    """The scores of the figures: means and standard deviations over the starts."""
    return tables.spreads(run.found.value.sel(score=list(PANELS)), "repeat")


def _figure(run: lab.Run) -> Figure:
    """Scores from left to right, bandwidths from above to below."""
    study, found = run.study, _over_starts(run)

    def y_label(scale):
        cosine = study.bandwidths.kernel == "cosine"
        return ("cosine kernel" if cosine else f"bandwidths x {scale:g}") + "\nnumber of modes"

    drawn = figures.facets(
        found,
        x="k",
        hue="model",
        row="scale",
        column="score",
        error="error",
        title=lambda scale, score: f"{score} {trend(found.sel(scale=scale, score=score).value)}",
        x_label="clusters of prompts, k",
        y_label=y_label,
        size=(2.9, 2.4),
        sharey=False,
        each=lambda panel, _: style.log_counts(panel, study.counts),
    )
    n = f"{study.prompts} prompts{' that all models have' if len(study.models) > 1 else ''}, each "
    n += "with an output of its cluster's medoid"
    if study.left_out:
        n += f"; without {', '.join(study.left_out)} (less than half of the prompts)"
    bars = f"one standard deviation over {study.repeats} starts"
    return figures.caption(drawn, run, n=n, bars=bars)


def trend(values: xr.DataArray) -> str:
    """What a score does as k grows, in the mean over the models."""
    mean = values.mean("model")
    first, last = mean.values[[0, -1]]
    if mean.max() > 1.001 * max(first, last):  # By more than rounding.
        return f"is highest at k = {mean.k.values[mean.argmax('k')]}"
    return f"{'rises' if last > first else 'falls'} to {last / first:.3g} times"
