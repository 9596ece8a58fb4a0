"""Draws of types and their prompts, clusters of them, and how their scores go together."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.base import checks, extras
from condvendi_jax.scores import clusters
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, curves, tables

PROMPTINGS = ("type unspecified", "type specified")
FAMILIES = ("Vendi", "RKE")
KINDS = ("Conditional-{}", "{}", "Cluster-{}", "K-means Cluster-{}")
SCORES = tuple(kind.format(family) for family in FAMILIES for kind in KINDS)
CLUSTERED = tuple(kind.format(family) for family in FAMILIES for kind in KINDS[2:])
_ORDERS = (1, 2)


def rows_of(model: str, pairs: PairedEmbeddings) -> np.ndarray:
    """Which pairs are of a model, booleans `[n]`."""
    if "models" not in pairs.labels:
        raise ValueError(f"--model: {pairs.name} has no label 'models', which --models would give.")
    models = pairs.labels["models"].astype(str)
    if model not in models:
        raise ValueError(f"--model: unknown {model!r}; known: {', '.join(np.unique(models))}.")
    return models == model


def draw_rows(
    types: np.ndarray, per_type: int, *, exchanged: bool, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of outputs and of prompts of one draw, type after type in a random order.

    Args:
      types: of each pair, `[n]`.
      per_type: how many pairs of each type.
      exchanged: whether prompts are exchanged at random between the pairs of a type.
      seed: of the draw.
    """
    generator = np.random.default_rng(seed)
    outputs, prompts = [], []
    for name in generator.permutation(np.unique(types)):
        rows = np.flatnonzero(types == name)
        outputs.append(generator.permutation(rows)[:per_type])
        prompts.append(generator.permutation(rows)[:per_type] if exchanged else outputs[-1])
    return np.concatenate(outputs), np.concatenate(prompts)


def scores_by_count(
    outputs: np.ndarray,
    texts: Sequence[np.ndarray],
    types: np.ndarray,
    sizes: np.ndarray,
    means: Sequence[Sequence[np.ndarray]],
    kernels: dict[str, Any],
) -> np.ndarray:
    """Every score of the first outputs, `[promptings, scores, j]`.

    Args:
      outputs: `[n, d]`, type after type.
      texts: of each prompting, the prompts of the outputs.
      types: of the outputs, numbered from 0.
      sizes: how many outputs j = 1, 2, ... types have.
      means: of each prompting, the K-means clusters of so many types.
      kernels: of outputs and prompts.
    """
    by_types, *by_means = np.split(
        cluster_scores(
            outputs, [*(types[:n] for n in sizes), *means[0], *means[1]], kernels["output_kernel"]
        ),
        1 + len(texts),
        axis=1,
    )
    found = []
    for p, text in enumerate(texts):
        for f, curve in enumerate(
            curves.convergence_curve(outputs, text, sizes.tolist(), **kernels)
        ):
            # A prompt that names no type names one category: one cluster, whose score is Vendi.
            named = by_types[f] if p else curve.vendi
            found += [curve.conditional, curve.vendi, named, by_means[p][f]]
    return np.reshape(found, (len(PROMPTINGS), len(SCORES), len(sizes)))


def cluster_scores(
    outputs: np.ndarray, labelings: Sequence[np.ndarray], kernel: cv.Kernel
) -> np.ndarray:
    """Cluster-Vendi and Cluster-RKE (CV G.1, the arithmetic mean), `[families, labelings]`.

    All clusterings at once, in a few calls.

    Args:
      outputs: `[n, d]`.
      labelings: the clusters of the first outputs, each of integers from 0 on.
      kernel: of the outputs.
    """
    lengths = np.array([len(labels) for labels in labelings])
    rows = np.concatenate([np.arange(n) for n in lengths])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    labels = owner * len(outputs) + np.concatenate(labelings)
    scores = []
    for order in _ORDERS:
        found = clusters.scores_by_cluster(outputs[rows], labels, kernel=kernel, order=order)
        weighted = found.sizes * np.asarray(found.scores)
        scores.append(np.bincount(found.names // len(outputs), weighted) / lengths)
    return np.stack(scores)


def by_k_means(points: np.ndarray, k: int, restarts: int, key: jax.Array) -> np.ndarray:
    """The clusters of each start of K-means `[restarts, n]`, the best first.

    There are k, or fewer where there are fewer distinct points, which share a cluster where equal.
    """
    with extras.needed("clusters", package="scikit-learn", purpose="this study"):
        from sklearn.cluster import KMeans

    seeds = jax.random.randint(key, (restarts,), 0, np.iinfo(np.int32).max)
    distinct, kind = checks.distinct_rows(points)
    # In float64: squared distances in float32 would merge points that differ.
    rows = points[np.unique(kind, return_index=True)[1]].astype(np.float64)
    one_start: Any = {"n_init": 1}
    fits: list[Any] = [
        KMeans(min(k, distinct), random_state=seed, **one_start).fit(
            rows, sample_weight=np.bincount(kind)
        )
        for seed in np.asarray(seeds).tolist()
    ]
    fits.sort(key=lambda fit: fit.inertia_)
    return np.stack([fit.labels_[kind] for fit in fits])


def growth(found: xr.DataArray) -> xr.Dataset:
    """How many times the score of all types is that of one: mean and spread over draws."""
    return tables.spreads(found.isel(j=-1) / found.isel(j=0).mean("repeat"), "repeat")


def conditional_of(clustered: str) -> str:
    """The conditional score of the family of a score by clusters."""
    return f"Conditional-{clustered.rpartition('-')[2]}"


def correlations(found: xr.DataArray, over: list[str]) -> xr.DataArray:
    """Pearson's correlation, in each draw, of the scores by clusters with the conditional ones.

    NaN where a score does not change beyond rounding in some draw.

    Args:
      found: scores by repeat, prompting, score and j, and other axes.
      over: the axes along which they go together: j, or both promptings' j.
    """
    x = found.sel(score=list(CLUSTERED))
    y = found.sel(score=[conditional_of(name) for name in CLUSTERED])
    y = y.assign_coords(score=x.score)
    x_varies, y_varies = (
        (v.max(over) - v.min(over) > agreement.rounding(1.0) * v.max(over)).all("repeat")
        for v in (x, y)
    )
    return xr.corr(x, y, over).where(x_varies & y_varies)
