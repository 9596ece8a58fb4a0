"""Cluster-Vendi: the scores of the outputs of each cluster of prompts, and their aggregates.

Where the prompt kernel is one within clusters of prompts and zero between them, the joint Gram is
block-diagonal, and Conditional-Vendi a power mean of the clusters' scores (CV Theorems 5 and 6).
The Cluster-Vendi that CV compares it with (G.1) is their arithmetic mean.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import entropies
from condvendi_jax.base import checks, extras
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy
from condvendi_jax.entropies import eigenvalues as spectra
from condvendi_jax.grams import DenseGram
from condvendi_jax.scores.modes import PromptMode, prompt_modes
from condvendi_jax.spectra import computation, methods
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method

__all__ = [
    "AGGREGATES",
    "ClusterScores",
    "Clustering",
    "PromptMode",
    "cluster_rke",
    "cluster_vendi",
    "k_means",
    "prompt_modes",
    "scores_by_cluster",
]

AGGREGATES = ("arithmetic", "conditional")
"""The ways to combine the scores of clusters, by name."""
# Clusters of up to this many points are padded to a few sizes and computed together; `method`
# computes larger ones, one by one: padding would repeat too much of their O(n^3) work.
_TOGETHER_UP_TO = 1024
# Padded sizes are powers of two from 4, and above 64 also the sizes halfway between them.
_SMALLEST, _FINE_ABOVE = 4, 64
# Rows computed in one call, over several clusters: it bounds the memory of their matrices.
_ROWS = 1024


class ClusterScores(NamedTuple):
    """The score of the outputs of each of m clusters."""

    names: np.ndarray  # The distinct labels, sorted.
    sizes: np.ndarray  # The number of points of each.
    scores: jax.Array  # Effective numbers of modes.
    order: float
    weights: np.ndarray  # The weight of each: its size where points are not weighted.

    def aggregate(self, kind: str) -> jax.Array:
        """One score for all clusters: see `cluster_vendi`."""
        share = self.weights / self.weights.sum()
        if kind == "arithmetic":
            return jnp.sum(jnp.asarray(share, self.scores.dtype) * self.scores)
        return jnp.exp(_conditional_entropy(share, jnp.log(self.scores), self.order))


def _conditional_entropy(share: np.ndarray, entropy: jax.Array, order: float) -> jax.Array:
    """H(X|T) in nats where the prompt kernel is the indicator of clusters of shares p.

    H(X|T) = log(sum_i w_i e^((1 - a) H_i)) / (1 - a), w_i ~ p_i^a, at order a.
    """
    if order == 1:
        return jnp.sum(jnp.asarray(share, entropy.dtype) * entropy)
    if math.isinf(order):
        log_largest = entropy - jnp.asarray(np.log(share), entropy.dtype)
        return jnp.min(log_largest) + math.log(share.max())
    log_weights = order * np.log(share)
    log_weights = jnp.asarray(log_weights - np.logaddexp.reduce(log_weights), entropy.dtype)
    if abs(order - 1) < entropies.NEAR_ONE:
        # The weights sum to one: without the cancellation that 1 / (1 - a) would magnify.
        powers = jnp.expm1((1 - order) * entropy)
        return jnp.log1p(jnp.sum(jnp.exp(log_weights) * powers)) / (1 - order)
    return jax.nn.logsumexp(log_weights + (1 - order) * entropy) / (1 - order)


def cluster_vendi(
    outputs: ArrayLike | Pairs,
    labels: ArrayLike,
    *,
    kernel: Kernel | None = None,
    order: float = 1,
    aggregate: str = "arithmetic",
    method: Method = AUTO,
) -> jax.Array:
    """Cluster-Vendi: the Vendi scores of the outputs of each cluster, aggregated (CV G.1).

    The aggregate 'arithmetic' is the printed one, sum_i p_i Vendi(S_i) with p_i = |S_i| / n, or the
    share of the weight.
    'conditional' is Conditional-Vendi with a prompt kernel that is one within clusters and zero
    between them: the power mean of CV Theorem 6,

        exp(H_a(X, T) - H_a(T)) = (sum_i w_i Vendi_a(S_i)^(1 - a))^(1 / (1 - a)),  w_i ~ p_i^a,

    the weighted geometric mean at order 1 and the harmonic mean with weights p_i^2 at order 2 (CV
    Theorem 5). At order 1, and for clusters of equal size at every order, it is at most the
    arithmetic mean; where scores of clusters of equal size vary by a relative standard deviation
    c, the two differ by about a c^2 / 2, relatively.

    Args:
      outputs: embeddings `[n, d]`, or `Pairs`, whose prompts are not used. Their weights, which
        must be concrete, count; a cluster whose rows all have weight zero is left out.
      labels: the cluster of each point, `[n]`: integers, strings, or numbers that are not NaN. They
        decide shapes and must be concrete, also inside `jax.jit`.
      kernel: the kernel of the outputs; None for `Pairs`, which have theirs.
      order: the Renyi order in (0, inf].
      aggregate: 'arithmetic' or 'conditional'.
      method: how to compute the spectra of clusters of more than 1,024 points; those of the
        others are exact.

    Returns:
      A scalar, an effective number of modes, in [1, n]; a cluster of one point has the score 1.
      Differentiable in the outputs and in the bandwidth.

      For a jackknife error pass the labels to `standard_error` as a column beside the outputs. It
      leaves out whole clusters; where they are fixed leave out rows: `groups=np.arange(n) % 20`.

    Raises:
      TypeError, ValueError: the outputs are not a finite real array `[n, d]`; the labels are not n,
        of different kinds, or hold a NaN; or another argument is not one of those above.

    References:
      CV appendix G.1, and Theorems 5 and 6 (with their proofs' errors, docs/theory.md).

    Examples:
      One prompt has four outputs of its own and the other, as often, one:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs, labels = np.c_[[0, 1, 2, 3, 9, 9, 9, 9]], np.repeat(["dog", "sofa"], 4)
      >>> for kind in ("arithmetic", "conditional"):  # (4 + 1) / 2, and sqrt(4 * 1).
      ...     options = dict(kernel=cv.Gaussian(0.1), aggregate=kind)
      ...     print(f"{cv.clusters.cluster_vendi(outputs, labels, **options):.2f}")
      2.50
      2.00
    """
    if aggregate not in AGGREGATES:
        raise ValueError(
            f"aggregate: expected one of {', '.join(AGGREGATES)}, received {aggregate!r}."
        )
    scores = scores_by_cluster(outputs, labels, kernel=kernel, order=order, method=method)
    return scores.aggregate(aggregate)


def cluster_rke(
    outputs: ArrayLike | Pairs,
    labels: ArrayLike,
    *,
    kernel: Kernel | None = None,
    aggregate: str = "arithmetic",
) -> jax.Array:
    """Cluster-RKE, `cluster_vendi` at order 2, with its arguments: exact at any n (CV G.1)."""
    return cluster_vendi(outputs, labels, kernel=kernel, order=2, aggregate=aggregate)


def scores_by_cluster(
    outputs: ArrayLike | Pairs,
    labels: ArrayLike,
    *,
    kernel: Kernel | None = None,
    order: float = 1,
    method: Method = AUTO,
) -> ClusterScores:
    """The Vendi score of each cluster's outputs; the arguments are those of `cluster_vendi`."""
    entropy = Entropy(order=order)
    methods.check_method(method)
    points = _outputs_alone(outputs, kernel)
    checks.check_indices({"outputs": points, "labels": labels})
    names, cluster = checks.check_labels(labels, points.n)
    masses = None
    if points.weights is not None:
        if not checks.is_concrete(points.weights):
            raise TypeError("weights: expected concrete ones, received a traced array.")
        present, cluster = np.unique(cluster[points.shares > 0], return_inverse=True)
        names, points = names[present], points.supported()
        masses = np.bincount(cluster, points.shares)
    sizes = np.bincount(cluster)
    masses = sizes if masses is None else masses
    rows = np.split(np.argsort(cluster, kind="stable"), np.cumsum(sizes)[:-1])
    by_cluster: list[Any] = [None] * len(sizes)
    for padded, members in _by_size(sizes).items():
        if padded > _TOGETHER_UP_TO:
            for c in members:
                (computed,) = computation.compute(points.rows(rows[c]), (entropy,), method)
                by_cluster[c] = computed.values.outputs
            continue
        together = max(1, _ROWS // padded)
        for start in range(0, len(members), together):
            some = members[start : start + together]
            # Clusters and their points repeat: one program is compiled for each padded size.
            filled = np.resize(some, together)
            table = np.stack([np.resize(rows[c], padded) for c in filled])
            inside = np.arange(padded)[None, :] < sizes[filled][:, None]
            values = _entropies_of_clusters(points, table, inside, entropy)
            spectra.check_spectra(values)
            for c, value in zip(some, values, strict=False):
                by_cluster[c] = value
    return ClusterScores(names, sizes, jnp.exp(jnp.stack(by_cluster)), entropy.order, masses)


def _outputs_alone(outputs: ArrayLike | Pairs, kernel: Kernel | None) -> Pairs:
    if not isinstance(outputs, Pairs):
        return Pairs(outputs, output_kernel=check_kernel(kernel, name="kernel")).gathered()
    if kernel is not None:
        raise TypeError(f"kernel: expected none beside Pairs, received {kernel!r}.")
    pairs = outputs.gathered()
    return Pairs.trusted(pairs.arrays[:1], pairs.kernels[:1], n=pairs.n, weights=pairs.weights)


def _by_size(sizes: np.ndarray) -> dict[int, list[int]]:
    """The clusters by the size that they are padded to."""
    by_size: dict[int, list[int]] = {}
    for cluster, size in enumerate(sizes.tolist()):
        power = max(_SMALLEST, 1 << (size - 1).bit_length())
        between = 3 * power // 4
        padded = between if power > _FINE_ABOVE and size <= between else power
        by_size.setdefault(padded, []).append(cluster)
    return by_size


@functools.partial(jax.jit, static_argnums=3)
def _entropies_of_clusters(
    points: Pairs, table: ArrayLike, inside: ArrayLike, entropy: Entropy
) -> jax.Array:
    """The entropies `[m]` of clusters of rows `[m, s]`; rows that are not `inside` only pad."""

    def entropy_of(cluster: tuple[jax.Array, jax.Array]) -> jax.Array:
        rows, inside = cluster
        gram = DenseGram.from_points(points.kernels[0], points.arrays[0][rows])
        weights = inside.astype(gram.dtype)
        if points.weights is not None:
            weights = jnp.where(inside, points.weights[rows], 0)
        shares = weights / jnp.sum(weights)
        if not entropy.needs_spectrum:
            return entropies.of_squared_norm(gram.squared_norm_by(shares))
        return entropy.of_spectrum(gram.weighted(shares).eigenvalues())

    return lax.map(entropy_of, (table, inside))


class Clustering(NamedTuple):
    """The labels of several starts of K-means.

    Compute a score with each of the `alternatives` to see how far it depends on the start.

    Attributes:
      alternatives: the cluster of each point in every start, `[restarts, n]`, the best start first.
      inertias: the sum of squared distances to the centres of every start, `[restarts]`.
    """

    alternatives: np.ndarray
    inertias: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """The cluster of each point in the best start, `[n]`, from 0."""
        return self.alternatives[0]

    @property
    def agreement(self) -> float:
        """The mean adjusted Rand index of two starts: 1 where all agree, 0 as by chance."""
        with extras.needed("clusters", package="scikit-learn", purpose="the adjusted Rand index"):
            from sklearn.metrics import adjusted_rand_score

        pairs = itertools.combinations(self.alternatives, 2)
        return float(np.mean([adjusted_rand_score(*pair) for pair in pairs] or 1))


@checks.outside_transformations
def k_means(points: ArrayLike, count: int, *, key: jax.Array, restarts: int = 10) -> Clustering:
    """Runs scikit-learn's K-means from several starts, each chosen by k-means++.

    The problem is not convex, and different starts can end in different clusters (CV G.1). Equal
    points share a cluster. For centres, and for tolerances, call scikit-learn's `KMeans`.

    Args:
      points: embeddings `[n, d]`, usually of prompts.
      count: the number of clusters, at most the number of distinct points.
      key: draws the starts.
      restarts: the number of starts.

    Raises:
      TypeError, ValueError: the points are not a finite real array `[n, d]`, `count` exceeds the
        number of distinct points, `count` or `restarts` is below 1, or the key is missing.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> prompts = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], np.float32)
      >>> clustering = cv.clusters.k_means(prompts, 2, key=jax.random.key(0))
      >>> print(np.bincount(clustering.labels), clustering.agreement)
      [3 3] 1.0
    """
    with extras.needed("clusters", package="scikit-learn", purpose="K-means"):
        from sklearn.cluster import KMeans

    array = np.asarray(checks.check_embeddings(points, name="points"))
    count = checks.check_count(count, name="count", minimum=1)
    restarts = checks.check_count(restarts, name="restarts", minimum=1)
    seeds = jax.random.randint(checks.check_key(key), (restarts,), 0, np.iinfo(np.int32).max)
    distinct, kind = checks.distinct_rows(array)
    if count > distinct:
        message = f"expected at most the {distinct} distinct points, received {count}."
        raise ValueError(f"count: {message}")
    # In float64: squared distances in float32 would merge points that differ.
    rows = array[np.unique(kind, return_index=True)[1]].astype(np.float64)
    one_start: Any = {"n_init": 1}
    fits: list[Any] = [
        KMeans(count, random_state=seed, **one_start).fit(rows, sample_weight=np.bincount(kind))
        for seed in np.asarray(seeds).tolist()
    ]
    fits.sort(key=lambda fit: fit.inertia_)
    inertias = np.array([fit.inertia_ for fit in fits])
    return Clustering(np.stack([fit.labels_[kind] for fit in fits]), inertias)
