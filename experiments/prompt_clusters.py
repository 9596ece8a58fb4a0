"""Prompts in ever finer clusters, answered by their centres: CV figures 4 and 23.

Prompts are clustered into k groups, and every prompt is paired with the output of its group's
medoid: a model that tells k prompts apart. The scores of such models against k, a line a model, for
bandwidths by rule, half and double.

    python -m experiments.prompt_clusters --data=emoji
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax import validation
from experiments import lab
from experiments.lab import figures, style, tables

# Sizes of equal ratio, from a cluster of so many prompts on down to single ones.
_POINTS, _COARSEST = 6, 40
_SHARE = 0.5
ALL = "all outputs"
_ORDERS = (1.0, 2.0)
# In the order of the scores of a decomposition, order by order.
SCORES = tuple(
    f"{of}{name}" for name in ("Vendi", "RKE") for of in ("", "Conditional-", "Information-")
)
# The panels of CV fig 4.
PANELS = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")


@dataclasses.dataclass(frozen=True)
class PromptClusters(lab.Study):
    """What do finer clusters of prompts, each answered by one output, do to the scores?"""

    name = "prompt_clusters"
    reproduces = "CV figs 4, 23; CV-early fig 4"
    duration = "1 minute"
    takes = ("models",)
    runs = ((), ("--data=captions",), ("--data=gallery",))
    drawings = ("prompt_clusters", "prompt_clusters_captions", "prompt_clusters_gallery")

    bandwidths: lab.Scales = lab.Scales()
    counts: tuple[int, ...] | None = lab.flag(
        None,
        "Numbers of clusters k; by default six, from a fortieth of the prompts to all of them.",
    )
    largest: int = lab.flag(
        400, "This many prompts are drawn at random where there are more.", at_least=2
    )
    repeats: int = lab.flag(3, "Starts of K-means, each with outputs of its own draw.", at_least=2)
    prompts: int = lab.resolved(0)
    models: tuple[str, ...] = lab.resolved(())
    left_out: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Finds the prompts that the models share, and clusters them."""
        pairs = load()
        kinds, kind = validation.distinct_rows(pairs.prompts)
        models = np.asarray(pairs.labels.get("models", np.full(len(pairs), ALL))).astype(str)
        having = {m: np.unique(kind[models == m]) for m in np.unique(models).tolist()}
        kept = {m: found for m, found in having.items() if len(found) >= _SHARE * kinds}
        every = [set(found.tolist()) for found in kept.values()] or [set()]
        shared = np.array(sorted(set.intersection(*every)))
        if len(shared) < 4:
            raise ValueError(
                f"the models have {len(shared)} prompts in common; at least 4 are needed."
            )
        if len(shared) > self.largest:
            generator = np.random.default_rng(seed)
            shared = np.sort(generator.choice(shared, self.largest, replace=False))
        counts = _counts(self.counts, len(shared))
        rows = {
            m: [np.flatnonzero((kind == p) & (models == m)) for p in shared.tolist()] for m in kept
        }
        prompts = pairs.prompts[[of_prompt[0] for of_prompt in next(iter(rows.values()))]]
        keys = jax.random.split(jax.random.key(seed), len(counts))
        clusterings = {
            count: cv.clusters.k_means(prompts, count, key=key, restarts=self.repeats)
            for count, key in zip(counts, keys, strict=True)
        }
        return self.ready(
            pairs,
            state=(pairs.outputs, prompts, rows, clusterings),
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "models": models},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            counts=counts,
            prompts=len(shared),
            models=tuple(kept),
            left_out=tuple(m for m in having if m not in kept),
        )

    def axes(self):
        """Every model under every scale of the bandwidths."""
        return {"model": self.models, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, model, scale):
        """The scores of a model at every k for every start of K-means, and how starts agree.

        `agreement` is the mean adjusted Rand index of two starts.
        """
        outputs, prompts, rows, clusterings = state
        generator = np.random.default_rng(np.asarray(jax.random.key_data(context.shared_key)))
        values = np.empty((len(_ORDERS), 3, len(clusterings), self.repeats))
        for repeat in range(self.repeats):
            drawn = outputs[[generator.choice(of_prompt) for of_prompt in rows[model]]]
            for index, clusters in enumerate(clusterings.values()):
                answered = drawn[answers(prompts, clusters.alternatives[repeat])]
                decompose = functools.partial(cv.decompose, answered, prompts, **scale.kernels)
                for order, value in enumerate(_ORDERS):
                    values[order, :, index, repeat] = decompose(order=value).scores
        agreement = [clusters.agreement for clusters in clusterings.values()]
        return xr.Dataset(
            {
                "value": (("score", "k", "repeat"), values.reshape(len(SCORES), *values.shape[2:])),
                "agreement": (("k",), agreement),
            },
            {"score": list(SCORES), "k": list(clusterings), "repeat": range(self.repeats)},
        )

    def tables(self, run):
        """Each score at every k, with its spread over the starts."""
        found = run.found
        names = {k: f"k = {k:,}" for k in self.counts or ()}
        rows = ("scale", "model", "score")
        yield tables.table(_averaged(found), rows=rows, columns="k", error="error", names=names)

    @classmethod
    def figures(cls, runs):
        """A figure a data set: scores against k, a line a model, a row of panels a bandwidth."""
        # The folder of a run names its data.
        return {run.folder.name.replace("-", "_"): _figure(run) for run in runs}


def _counts(given: tuple[int, ...] | None, prompts: int) -> tuple[int, ...]:
    if given is None:
        spaced = np.geomspace(max(2, prompts / _COARSEST), prompts, _POINTS)
        return tuple(sorted(set(spaced.round().astype(int).tolist())))
    counts = tuple(sorted(set(given)))
    if counts[0] < 1 or counts[-1] > prompts:
        raise ValueError(
            f"--counts: expected numbers between 1 and the {prompts} prompts, received {counts}."
        )
    return counts


def answers(prompts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For each prompt the number of its cluster's medoid, whose output it gets, `[n]`.

    Args:
      prompts: `[n, d]`.
      labels: the cluster of each, `[n]`.
    """
    medoid = np.empty(len(prompts), int)
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        centre = prompts[members].mean(axis=0)
        nearest = np.argmin(np.sum((prompts[members] - centre) ** 2, axis=1))
        medoid[members] = members[nearest]
    return medoid


def _averaged(found: xr.Dataset) -> xr.Dataset:
    """The scores of the figures: means and standard deviations over the starts."""
    values = found.value.sel(score=list(PANELS))
    return xr.Dataset({"value": values.mean("repeat"), "error": values.std("repeat", ddof=1)})


def _figure(run: lab.Run) -> Figure:
    """Scores from left to right, bandwidths from above to below."""
    study, found = run.study, _averaged(run.found)
    cosine = study.bandwidths.kernel == "cosine"
    drawn = figures.facets(
        found,
        x="k",
        hue="model",
        row="scale",
        column="score",
        error="error",
        title=lambda scale, score: f"{score} {trend(found.sel(scale=scale, score=score).value)}",
        x_label="clusters of prompts, k",
        y_label=lambda s: (
            ("cosine kernel" if cosine else f"bandwidths x {s:g}") + "\nnumber of modes"
        ),
        size=(2.9, 2.4),
        sharey=False,
        each=lambda panel, _: style.log_counts(panel, study.counts),
    )
    n = f"{study.prompts} prompts{' that all models have' if len(study.models) > 1 else ''}, each "
    n += "with an output of its cluster's medoid"
    if study.left_out:
        n += f"; without {', '.join(study.left_out)} (less than half of the prompts)"
    return figures.caption(
        drawn, run, n=n, bars=f"one standard deviation over {study.repeats} starts"
    )


def trend(values: xr.DataArray) -> str:
    """What a score does as k grows, in the mean over the models."""
    mean = values.mean("model")
    first, last = mean.values[[0, -1]]
    if mean.max() > 1.001 * max(first, last):  # By more than rounding.
        return f"is highest at k = {mean.k.values[mean.argmax('k')]}"
    return f"{'rises' if last > first else 'falls'} to {last / first:.3g} times"


if __name__ == "__main__":
    lab.main(PromptClusters)
