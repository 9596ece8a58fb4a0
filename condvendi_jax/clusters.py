"""Diversity by clusters of prompts: the score of each cluster, aggregated; K-means to find them.

Where prompts fall into clusters whose members the prompt kernel cannot tell apart, and which it
tells apart from each other, the joint Gram is block-diagonal: its spectrum is the union of
p_i * spectrum of cluster i. H(X|T) = H(X, T) - H(T) is then an average of the clusters' entropies,
and Conditional-Vendi a power mean of their scores (CV Theorems 5 and 6); the Cluster-Vendi that CV
compares it with (G.1) is their arithmetic mean.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import entropies, methods, spectra, validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.kernels import Kernel
from condvendi_jax.methods import AUTO, Method
from condvendi_jax.points import Points

AGGREGATES = ("arithmetic", "conditional")
# Clusters of up to so many points are padded to a few sizes and computed together; larger ones by
# the method, one by one.
_TOGETHER_UP_TO = 1024
# The least size, and from where on there is one halfway between powers of two.
_LEAST, _FINE_ABOVE = 4, 64
_ROWS = 1024  # Of clusters that are computed in one call, where they are smaller.


class ClusterScores(NamedTuple):
    """The score of the outputs of each cluster.

    Attributes:
      names: the labels that occur, `[m]`, sorted.
      sizes: how many points have each, `[m]`.
      scores: effective numbers of modes, `[m]`.
      order: of the entropies.
    """

    names: np.ndarray
    sizes: np.ndarray
    scores: jax.Array
    order: float

    def aggregate(self, kind: str) -> jax.Array:
        """One score of them all: see `cluster_vendi`."""
        share = self.sizes / self.sizes.sum()
        if kind == "arithmetic":
            return jnp.sum(jnp.asarray(share, self.scores.dtype) * self.scores)
        return jnp.exp(_conditional_entropy(share, jnp.log(self.scores), self.order))


def _conditional_entropy(share: np.ndarray, entropy: jax.Array, order: float) -> jax.Array:
    """H(X|T) in nats where the prompt kernel is the indicator of clusters.

    The joint spectrum is the union of p_i lambda(cluster i), that of the prompts is p, so that at
    order a H(X|T) = log(sum_i w_i e^((1 - a) H_i)) / (1 - a), w_i ~ p_i^a.

    Args:
      share: p, `[m]`.
      entropy: H_a of each cluster, `[m]`.
      order: a.
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
    outputs: ArrayLike,
    labels: ArrayLike,
    *,
    kernel: Kernel,
    order: float = 1,
    aggregate: str = "arithmetic",
    method: Method = AUTO,
) -> jax.Array:
    """Cluster-Vendi: the Vendi scores of the outputs of each cluster, aggregated (CV G.1).

    Two aggregates. 'arithmetic' is the printed one, sum_i p_i Vendi(S_i) with p_i = |S_i| / n.
    'conditional' is what Conditional-Vendi becomes where the prompt kernel is exactly one within
    clusters and zero between them: the power mean of CV Theorem 6,

        exp(H_a(X, T) - H_a(T)) = (sum_i w_i Vendi_a(S_i)^(1 - a))^(1 / (1 - a)),  w_i ~ p_i^a,

    the weighted geometric mean at order 1, and at order 2 the harmonic mean with weights p_i^2 (CV
    Theorem 5). At order 1, and at every order where clusters are of equal size, it is at most the
    arithmetic mean, by the inequality of power means, with equality where all clusters have one
    score. With clusters of several sizes at another order it may be above: large clusters count for
    more. If the scores vary by a relative standard deviation c between clusters, the two differ by
    about a c^2 / 2, relatively, at order a and equal sizes.

    Args:
      outputs: embeddings `[n, d]`.
      labels: the cluster of each point, `[n]`: integers, strings, or numbers that are not NaN. Also
        inside `jax.jit` and `jax.grad` they must be concrete, since they decide shapes.
      kernel: a normalised kernel.
      order: the Renyi order in (0, inf].
      aggregate: 'arithmetic' or 'conditional'.
      method: how the spectra of clusters of more than 1,024 points are had; those of the others are
        always taken whole.

    Returns:
      A scalar, an effective number of modes, in [1, n]; a cluster of one point has the score 1.
      Differentiable in the outputs and in the bandwidth.

      A jackknife error comes from `standard_error` with the labels as a column. As prompts they
      keep their rows together: without more, whole clusters are left out, the error for clusters
      that are a sample. For given clusters, leave out rows: `groups=np.arange(n) % 20`, shuffled.

    Raises:
      TypeError, ValueError: the outputs are no finite real array `[n, d]` of n >= 1; the labels are
        not n, not plain, or hold a NaN; the order or the aggregate are not among those above.

    References:
      CV appendix G.1, and Theorems 5 and 6 (with their proofs' errors, docs/theory.md).

    Examples:
      One prompt has four outputs of its own and the other, as often, one:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.array([0, 1, 2, 3, 9, 9, 9, 9], np.float32)[:, None]
      >>> labels = np.repeat(["dog", "sofa"], 4)
      >>> options = dict(kernel=cv.Gaussian(0.1))
      >>> print(f"{cv.cluster_vendi(outputs, labels, **options):.2f}")  # (4 + 1) / 2
      2.50
      >>> found = cv.cluster_vendi(outputs, labels, **options, aggregate="conditional")
      >>> print(f"{found:.2f}")  # sqrt(4 * 1)
      2.00
    """
    if aggregate not in AGGREGATES:
        raise ValueError(
            f"aggregate: expected one of {', '.join(AGGREGATES)}, received {aggregate!r}."
        )
    found = scores_by_cluster(outputs, labels, kernel=kernel, order=order, method=method)
    return found.aggregate(aggregate)


def cluster_rke(
    outputs: ArrayLike, labels: ArrayLike, *, kernel: Kernel, aggregate: str = "arithmetic"
) -> jax.Array:
    """Cluster-RKE, `cluster_vendi` at order 2: exact at any n (CV G.1).

    Args, Returns, Raises: as `cluster_vendi`.

    Examples:
      Four outputs of one prompt, and of the other one; (4 + 1) / 2, and 2 / (1 / 4 + 1 / 1):

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.array([0, 1, 2, 3, 9, 9, 9, 9], np.float32)[:, None]
      >>> labels = [0, 0, 0, 0, 1, 1, 1, 1]
      >>> for aggregate in ("arithmetic", "conditional"):
      ...     found = cv.cluster_rke(outputs, labels, kernel=cv.Gaussian(0.1), aggregate=aggregate)
      ...     print(f"{aggregate} {found:.2f}")
      arithmetic 2.50
      conditional 1.60
    """
    return cluster_vendi(outputs, labels, kernel=kernel, order=2, aggregate=aggregate)


def scores_by_cluster(
    outputs: ArrayLike,
    labels: ArrayLike,
    *,
    kernel: Kernel,
    order: float = 1,
    method: Method = AUTO,
) -> ClusterScores:
    """The Vendi score of order `order` of each cluster's outputs; arguments as `cluster_vendi`."""
    entropy = Entropy(order=order)
    methods.check_method(method)
    points = Points.checked(outputs, output_kernel=kernel, kernel_names=("kernel", "")).gathered()
    names, cluster = _clusters(labels, points.n)
    by_cluster = np.argsort(cluster, kind="stable")
    sizes = np.bincount(cluster)
    rows = np.split(by_cluster, np.cumsum(sizes)[:-1])
    of_cluster: list[Any] = [None] * len(sizes)
    for padded, members in _by_size(sizes).items():
        if padded > _TOGETHER_UP_TO:
            for c in members:
                (computed,) = methods.compute(points.rows(rows[c]), (entropy,), method)
                of_cluster[c] = computed.values.outputs
            continue
        together = max(1, _ROWS // padded)
        for start in range(0, len(members), together):
            some = members[start : start + together]
            # A fixed number, so that a program is compiled once a size: the last are repeated.
            filled = np.resize(some, together)
            # What fills a cluster up is its first point, of weight zero.
            table = np.stack([np.resize(rows[c], padded) for c in filled])
            kept = np.arange(padded)[None, :] < sizes[filled][:, None]
            found = _padded_entropies(points, table, kept, entropy)
            for c, value in zip(some, found, strict=False):
                of_cluster[c] = value
    return ClusterScores(names, sizes, jnp.exp(jnp.stack(of_cluster)), entropy.order)


def _by_size(sizes: np.ndarray) -> dict[int, list[int]]:
    """The clusters by the size that they are padded to: few sizes are few programs to compile."""
    found: dict[int, list[int]] = {}
    for cluster, size in enumerate(sizes.tolist()):
        power = max(_LEAST, 1 << (size - 1).bit_length())
        between = 3 * power // 4
        padded = between if power > _FINE_ABOVE and size <= between else power
        found.setdefault(padded, []).append(cluster)
    return found


def _padded_entropies(
    points: Points, table: np.ndarray, kept: np.ndarray, entropy: Entropy
) -> jax.Array:
    """The entropies `[m]` of clusters given by row numbers `[m, s]`, of which some are kept."""
    if not entropy.needs_spectrum:
        return _squared_norm_entropies(points, table, kept)
    return _entropies_of(_spectra(points, table, kept), entropy)


# Programs of their own: compiling the spectra takes longest, and serves every order.
@jax.jit
def _spectra(points: Points, table: jax.Array, kept: jax.Array) -> jax.Array:
    return _of_each(points, table, kept, spectra.spectrum)


@functools.partial(jax.jit, static_argnums=1)
def _entropies_of(eigenvalues: jax.Array, entropy: Entropy) -> jax.Array:
    return jax.vmap(entropy.of_spectrum)(eigenvalues)


@jax.jit
def _squared_norm_entropies(points: Points, table: jax.Array, kept: jax.Array) -> jax.Array:
    def of_matrix(matrix: jax.Array) -> jax.Array:
        return entropies.of_squared_norm(jnp.sum(jnp.sum(jnp.square(matrix), axis=1)))

    return _of_each(points, table, kept, of_matrix)


def _of_each(
    points: Points, table: jax.Array, kept: jax.Array, function: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """A function of each cluster's K / |S|, of zeros in the rows and columns that fill it up."""
    (kernel,), (array,) = points.kernels, points.arrays
    size = table.shape[1]

    def of_cluster(cluster: tuple[jax.Array, jax.Array]) -> jax.Array:
        rows, inside = cluster
        prepared = kernel.prepare(array[rows])
        matrix = jnp.where(jnp.eye(size, dtype=bool), 1, kernel.cross(prepared, prepared))
        weights = inside.astype(matrix.dtype) / jnp.sqrt(jnp.sum(inside, dtype=matrix.dtype))
        return function(matrix * weights[:, None] * weights[None, :])

    return lax.map(of_cluster, (table, kept))


def _clusters(labels: ArrayLike, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The labels that occur, sorted, and the number of the one that each point has, `[n]`.

    Raises:
      TypeError: the labels are traced, masked, or neither numbers nor strings.
      ValueError: they are not `[n]`, or hold a NaN.
    """
    if not validation.is_concrete(labels):
        raise TypeError(
            "labels: expected concrete labels, received a traced array: they decide shapes."
        )
    array = np.asarray(validation.as_array(labels, name="labels"))
    if array.dtype == object and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "iubUSf":
        raise TypeError(
            f"labels: expected integers or strings [n], received an array of dtype {array.dtype}."
        )
    if array.shape != (n,):
        raise ValueError(
            f"labels: expected one for each of the {n} outputs, received shape {array.shape}."
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"labels: received NaN in row {int(np.isnan(array).argmax())}.")
    names, cluster = np.unique(array, return_inverse=True)
    return names, cluster.reshape(n)
