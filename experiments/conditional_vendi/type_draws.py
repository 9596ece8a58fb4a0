"""Draws of types and their prompts, clusters of them, and how their scores go together."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.base import checks, extras
from condvendi_jax.scores import clusters
from experiments.lab import agreement, curves, tables

PROMPTINGS = ("type unspecified", "type specified")
FAMILIES = ("Vendi", "RKE")
KINDS = ("Conditional-{}", "{}", "Cluster-{}", "K-means Cluster-{}")
SCORES = tuple(kind.format(family) for family in FAMILIES for kind in KINDS)
CLUSTERED = tuple(kind.format(family) for family in FAMILIES for kind in KINDS[2:])


def draw_rows(
    types: np.ndarray, per_type: int, *, exchanged: bool, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of outputs and of prompts of one draw, type after type in a random order.

    If `exchanged`, prompts are exchanged at random between the pairs of a type.
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
    """Every score of the first outputs `[n, d]`, `[promptings, scores, j]`.

    Outputs stand type after type, so that the first `sizes[j]` have j types. For each prompting,
    `texts` are the prompts, and `means` their K-means clusters for every j.
    """
    labelings = [*(types[:n] for n in sizes), *means[0], *means[1]]
    clustered = cluster_scores(outputs, labelings, kernels["output_kernel"])
    by_types, *by_means = np.split(clustered, 1 + len(texts), axis=1)
    found = []
    for p, text in enumerate(texts):
        orders = curves.convergence_curve(outputs, text, sizes.tolist(), **kernels)
        for f, curve in enumerate(orders):
            # A prompt that names no type names one category: one cluster, whose score is Vendi.
            named = by_types[f] if p else curve.vendi
            found += [curve.conditional, curve.vendi, named, by_means[p][f]]
    return np.reshape(found, (len(PROMPTINGS), len(SCORES), len(sizes)))


def cluster_scores(
    outputs: np.ndarray, labelings: Sequence[np.ndarray], kernel: cv.Kernel
) -> np.ndarray:
    """Cluster-Vendi and Cluster-RKE (CV G.1, the arithmetic mean), `[families, labelings]`.

    Each labeling has the clusters of the first outputs, integers from 0 on. All are scored at once.
    """
    lengths = np.array([len(labels) for labels in labelings])
    rows = np.concatenate([np.arange(n) for n in lengths])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    labels = owner * len(outputs) + np.concatenate(labelings)
    scores = []
    for order in (1, 2):
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


def rand_index(first: np.ndarray, second: np.ndarray) -> float:
    """The adjusted Rand index of two clusterings: 1 where they are the same, 0 at chance."""
    with extras.needed("clusters", package="scikit-learn", purpose="this study"):
        from sklearn.metrics import adjusted_rand_score
    return float(adjusted_rand_score(first, second))


def growth(found: xr.DataArray) -> xr.Dataset:
    """How many times the score of all types is that of one: mean and spread over draws."""
    return tables.spreads(found.isel(j=-1) / found.isel(j=0).mean("repeat"), "repeat")


def conditional_of(clustered: str) -> str:
    """The conditional score of the family of a score by clusters."""
    return f"Conditional-{clustered.rpartition('-')[2]}"


def correlations(found: xr.DataArray, over: list[str]) -> xr.DataArray:
    """Pearson's correlation, in each draw, of the scores by clusters with the conditional ones.

    Along the axes `over`: j, or both promptings' j. NaN where a score does not change beyond
    rounding in some draw.
    """
    x = found.sel(score=list(CLUSTERED))
    y = found.sel(score=[conditional_of(name) for name in CLUSTERED])
    y = y.assign_coords(score=x.score)
    x_varies, y_varies = (
        (v.max(over) - v.min(over) > agreement.rounding(1.0) * v.max(over)).all("repeat")
        for v in (x, y)
    )
    return xr.corr(x, y, over).where(x_varies & y_varies)
