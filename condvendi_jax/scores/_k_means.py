"""K-means over several starts, which shows how far its clusters depend on the start."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import _extras, validation


class Clustering(NamedTuple):
    """The clusters of the best of several starts of K-means.

    Compute a score for each of the `alternatives` to see how far it depends on the start.
    """

    labels: np.ndarray  # The cluster of each point, `[n]`, from 0.
    centres: np.ndarray  # `[k, d]`, in the units of the points.
    medoids: np.ndarray  # The row of the point nearest to each centre, `[k]`.
    inertia: float  # The sum of squared distances to the centres.
    alternatives: np.ndarray  # The labels of every start, `[restarts, n]`, the best first.
    inertias: np.ndarray  # The inertia of every start, `[restarts]`, ascending.

    @property
    def agreement(self) -> float:
        """The mean adjusted Rand index of two starts: 1 where all agree, 0 as by chance."""
        with _extras.needed("clusters", package="scikit-learn", purpose="the adjusted Rand index"):
            from sklearn.metrics import adjusted_rand_score

        pairs = itertools.combinations(self.alternatives, 2)
        return float(np.mean([adjusted_rand_score(*pair) for pair in pairs] or 1))


# In distances of the nearest 90% of the rows from the centre. A row beyond the first decides the
# variance, which tolerances are relative to; beyond the second, squares lose all other rows.
_FAR, _TOO_FAR = 30, 1e8


@validation.outside_transformations
def k_means(points: ArrayLike, count: int, *, key: jax.Array, restarts: int = 10) -> Clustering:
    """The best of several runs of scikit-learn's K-means, each started by k-means++.

    The problem is not convex, and different starts can end in different clusters (CV G.1): the
    result keeps all of them. Equal points share a cluster.

    Args:
      points: embeddings `[n, d]`, usually of prompts.
      count: the number of clusters, at most the number of distinct points.
      key: draws the starts.
      restarts: the number of starts.

    Raises:
      TypeError, ValueError: the points are not a finite real array `[n, d]`, `count` exceeds the
        number of distinct points, `count` or `restarts` is below 1, the key is missing, or a point
        is 1e8 times as far away as others.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> prompts = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], np.float32)
      >>> found = cv.clusters.k_means(prompts, 2, key=jax.random.key(0))
      >>> print(sorted(found.medoids.tolist()), found.agreement)
      [1, 4] 1.0
    """
    with _extras.needed("clusters", package="scikit-learn", purpose="K-means"):
        from sklearn.cluster import KMeans

    given = validation.as_array(points, name="points")
    origin = validation.origin_of(given)
    array = np.asarray(validation.check_embeddings(given, name="points", origin=origin))
    count = validation.check_count(count, name="count", minimum=1)
    restarts = validation.check_count(restarts, name="restarts", minimum=1)
    validation.check_key(key)
    kinds, kind = validation.distinct_rows(array)
    if count > kinds:
        raise ValueError(f"count: expected at most the {kinds} distinct points, received {count}.")
    first = np.unique(kind, return_index=True)[1]
    copies = np.bincount(kind)
    seeds = np.asarray(jax.random.randint(key, (restarts,), 0, np.iinfo(np.int32).max))
    # In float64: squared distances in float32 would merge points that differ.
    array = array.astype(np.float64)
    sizes = np.abs(array - np.median(array, axis=0)).max(axis=1)
    farthest, usual = sizes.max(), np.quantile(sizes, 0.9, method="lower")
    if 0 < _TOO_FAR * usual < farthest:
        raise ValueError(
            f"points: row {int(sizes.argmax())} is {farthest / usual:.0e} times as far away as "
            "others, whose distances K-means would lose; leave it out."
        )
    options: Any = {"n_init": 1, "tol": 0.0 if farthest > _FAR * usual else 1e-4}
    solvers = [KMeans(count, random_state=int(seed), **options) for seed in seeds]
    fits: list[Any] = [one.fit(array[first], sample_weight=copies) for one in solvers]
    fits.sort(key=lambda fit: fit.inertia_)
    best = fits[0]
    own = best.labels_[kind][:, None] == np.arange(count)
    distances = np.where(own, best.transform(array), np.inf)
    return Clustering(
        labels=best.labels_[kind],
        centres=best.cluster_centers_ + (0 if origin is None else origin),
        medoids=np.argmin(distances, axis=0),
        inertia=float(best.inertia_),
        alternatives=np.stack([fit.labels_[kind] for fit in fits]),
        inertias=np.array([fit.inertia_ for fit in fits]),
    )
