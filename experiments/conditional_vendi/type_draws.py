"""Draws of types and their prompts, clusters of them, and how their scores go together."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import special

import condvendi_jax as cv
from condvendi_jax.base import checks, extras
from condvendi_jax.entropies import eigenvalues
from experiments.lab import agreement, tables

PROMPTINGS = ("type unspecified", "type specified")
FAMILIES = ("Vendi", "RKE")
KINDS = ("Conditional-{}", "{}", "Cluster-{}", "K-means Cluster-{}")
UNBIASED = "Conditional-RKE, unbiased"
SCORES = (*(kind.format(family) for family in FAMILIES for kind in KINDS), UNBIASED)
# The conditional score of the family of each score by clusters.
CONDITIONAL = {kind.format(of): f"Conditional-{of}" for of in FAMILIES for kind in KINDS[2:]}


def draw_rows(
    types: np.ndarray, counts: Sequence[int], *, exchanged: bool, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of outputs and of prompts of one draw, type after type in a random order.

    The first type has `counts[0]` rows, and so on. If `exchanged`, prompts are exchanged at random
    between the pairs of a type.
    """
    generator = np.random.default_rng(seed)
    outputs, prompts = [], []
    for name, count in zip(generator.permutation(np.unique(types)), counts, strict=True):
        rows = np.flatnonzero(types == name)
        outputs.append(generator.permutation(rows)[:count])
        prompts.append(generator.permutation(rows)[:count] if exchanged else outputs[-1])
    return np.concatenate(outputs), np.concatenate(prompts)


def gram_of(kernel: cv.Kernel, points: Any) -> np.ndarray:
    """The kernel of every two points, `[n, n]` in float64."""
    ready = kernel.prepare(jnp.asarray(points))
    return np.asarray(kernel.cross(ready, ready), np.float64)


def effective(gram: np.ndarray) -> np.ndarray:
    """Vendi, RKE and unbiased RKE, which leaves out each row with itself, of a Gram matrix."""
    n = len(gram)
    vendi = np.exp(special.entr(eigenvalues.spectrum(gram / n).clip(0)).sum())
    squares, alone = np.sum(gram**2), np.sum(np.diag(gram) ** 2)
    return np.array([vendi, n**2 / squares, n * (n - 1) / (squares - alone)])


def by_cluster(gram: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Cluster-Vendi and Cluster-RKE: the mean over rows of the score of their cluster (CV G.1)."""
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    scores = [len(rows) * effective(gram[np.ix_(rows, rows)])[:2] for rows in members]
    return np.sum(scores, axis=0) / len(labels)


@np.errstate(divide="ignore", invalid="ignore")  # Unbiased, all may differ: infinite.
def scores_of(
    outputs: np.ndarray, prompts: Sequence[np.ndarray], types: np.ndarray, means: Sequence[Any]
) -> np.ndarray:
    """Every score of some outputs by both promptings, `[promptings, scores]`.

    From the Gram matrices `[n, n]` of outputs and of each prompting, the type of each row, and the
    clusters `means` of each prompting by K-means, None where they are not scored.
    """
    whole, found = effective(outputs), []
    for named, (gram, clusters) in enumerate(zip(prompts, means, strict=True)):
        conditional = effective(outputs * gram) / effective(gram)
        # A prompt that names no type names one category: one cluster, whose score is Vendi.
        cluster = by_cluster(outputs, types) if named else whole[:2]
        k_means = [np.nan] * 2 if clusters is None else by_cluster(outputs, clusters)
        columns = zip(conditional[:2], whole[:2], cluster, k_means, strict=True)
        found.append([*np.ravel([*columns]), conditional[2]])
    return np.array(found)


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
        KMeans(min(k, distinct), random_state=seed, **one_start).fit(rows, None, np.bincount(kind))
        for seed in np.asarray(seeds).tolist()
    ]
    fits.sort(key=lambda fit: fit.inertia_)
    return np.stack([fit.labels_[kind] for fit in fits])


def rand_index(first: np.ndarray, second: np.ndarray) -> float:
    """The adjusted Rand index of two clusterings: 1 where they are the same, 0 at chance."""
    from sklearn.metrics import adjusted_rand_score

    return adjusted_rand_score(first, second)


def over_one(found: xr.DataArray) -> xr.Dataset:
    """How many times the score of j types is that of one: the mean and 95% interval of draws."""
    return tables.t_intervals(found / found.isel(j=0, drop=True), "repeat")


def correlations(found: xr.DataArray, over: list[str]) -> xr.DataArray:
    """Pearson's correlation, in each draw, of the scores by clusters with the conditional ones.

    Along the axes `over`: j, or both promptings' j. NaN where a score does not change beyond
    rounding in some draw.
    """
    least, most = found.min(over), found.max(over)
    varies = (most - least > agreement.rounding(1.0) * most).all("repeat")
    found = found.where(varies)
    x, y = found.sel(score=[*CONDITIONAL]), found.sel(score=[*CONDITIONAL.values()])
    return xr.corr(x, y.assign_coords(score=x.score), over)
