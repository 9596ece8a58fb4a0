"""Cluster-Vendi: the scores of the outputs of each cluster of prompts, and their aggregates.

Where the prompt kernel is one within clusters of prompts and zero between them, the joint Gram is
block-diagonal, and Conditional-Vendi a power mean of the clusters' scores (CV Theorems 5 and 6).
The Cluster-Vendi that CV compares it with (G.1) is their arithmetic mean.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import entropies, validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import DenseGram
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.kernels import Kernel, check_kernel
from condvendi_jax.pairs import Pairs
from condvendi_jax.scores._k_means import Clustering, k_means
from condvendi_jax.scores._modes import PromptMode, prompt_modes
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Method

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
    weights: np.ndarray | None = None  # The weight of each; its size where None.

    def aggregate(self, kind: str) -> jax.Array:
        """One score for all clusters: see `cluster_vendi`."""
        weights = self.sizes if self.weights is None else self.weights
        share = weights / weights.sum()
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
    weights: ArrayLike | None = None,
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
      outputs: embeddings `[n, d]`, or `Pairs`, whose prompts are not used.
      labels: the cluster of each point, `[n]`: integers, strings, or numbers that are not NaN. They
        decide shapes and must be concrete, also inside `jax.jit`.
      kernel: the kernel of the outputs; None for `Pairs`, which have theirs.
      weights: as `Pairs`, and concrete; None for `Pairs`, which have theirs. A cluster whose rows
        all have weight zero is left out.
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
    options: Any = {"kernel": kernel, "weights": weights, "order": order, "method": method}
    return scores_by_cluster(outputs, labels, **options).aggregate(aggregate)


def cluster_rke(
    outputs: ArrayLike | Pairs,
    labels: ArrayLike,
    *,
    kernel: Kernel | None = None,
    weights: ArrayLike | None = None,
    aggregate: str = "arithmetic",
) -> jax.Array:
    """Cluster-RKE, `cluster_vendi` at order 2, with its arguments: exact at any n (CV G.1)."""
    options: Any = {"kernel": kernel, "weights": weights, "aggregate": aggregate}
    return cluster_vendi(outputs, labels, order=2, **options)


def scores_by_cluster(
    outputs: ArrayLike | Pairs,
    labels: ArrayLike,
    *,
    kernel: Kernel | None = None,
    weights: ArrayLike | None = None,
    order: float = 1,
    method: Method = AUTO,
) -> ClusterScores:
    """The Vendi score of each cluster's outputs; arguments as `cluster_vendi`."""
    entropy = Entropy(order=order)
    methods.check_method(method)
    points = _outputs_alone(outputs, kernel, weights)
    validation.check_indices({"outputs": points, "labels": labels})
    names, cluster = validation.check_labels(labels, points.n)
    of_clusters = None
    if points.weights is not None:
        if not validation.is_concrete(points.weights):
            raise TypeError("weights: expected concrete ones, received a traced array.")
        present, cluster = np.unique(cluster[points.shares > 0], return_inverse=True)
        names, points = names[present], points.supported()
        of_clusters = np.bincount(cluster, points.shares)
    sizes = np.bincount(cluster)
    rows = np.split(np.argsort(cluster, kind="stable"), np.cumsum(sizes)[:-1])
    by_cluster: list[Any] = [None] * len(sizes)
    for padded, members in _by_size(sizes).items():
        if padded > _TOGETHER_UP_TO:
            for c in members:
                (computed,) = methods.compute(points.rows(rows[c]), (entropy,), method)
                by_cluster[c] = computed.values.outputs
            continue
        together = max(1, _ROWS // padded)
        for start in range(0, len(members), together):
            some = members[start : start + together]
            # Clusters and their points repeat: one program is compiled for each padded size.
            filled = np.resize(some, together)
            table = np.stack([np.resize(rows[c], padded) for c in filled])
            inside = np.arange(padded)[None, :] < sizes[filled][:, None]
            values = _padded_entropies(points, table, inside, entropy)
            for c, value in zip(some, values, strict=False):
                by_cluster[c] = value
    return ClusterScores(names, sizes, jnp.exp(jnp.stack(by_cluster)), entropy.order, of_clusters)


def _outputs_alone(
    outputs: ArrayLike | Pairs, kernel: Kernel | None, weights: ArrayLike | None
) -> Pairs:
    if not isinstance(outputs, Pairs):
        kernel = check_kernel(kernel, name="kernel")
        return Pairs(outputs, output_kernel=kernel, weights=weights).gathered()
    for name, given in {"kernel": kernel, "weights": weights}.items():
        if given is not None:
            raise TypeError(f"{name}: expected none beside Pairs, received {given!r}.")
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


def _padded_entropies(
    points: Pairs, table: np.ndarray, inside: np.ndarray, entropy: Entropy
) -> jax.Array:
    """The entropies `[m]` of clusters of rows `[m, s]`, some of which only fill them up."""
    if not entropy.needs_spectrum:
        return entropies.of_squared_norm(_of_clusters(points, table, inside, whole=False))
    values = _entropies_of(_of_clusters(points, table, inside, whole=True), entropy)
    spectra.check_spectra(values)
    return values


# A program of its own: compiling the spectra takes longest, and serves every order.
@functools.partial(jax.jit, static_argnums=1)
def _entropies_of(eigenvalues: jax.Array, entropy: Entropy) -> jax.Array:
    return jax.vmap(entropy.of_spectrum)(eigenvalues)


@functools.partial(jax.jit, static_argnames="whole")
def _of_clusters(points: Pairs, table: ArrayLike, inside: ArrayLike, *, whole: bool) -> jax.Array:
    """The spectra of the Grams of clusters, zero in rows that fill them up, or squared norms."""

    def of_cluster(cluster: tuple[jax.Array, jax.Array]) -> jax.Array:
        rows, inside = cluster
        gram = DenseGram.from_points(points.kernels[0], points.arrays[0][rows])
        weights = inside.astype(gram.dtype)
        if points.weights is not None:
            weights = jnp.where(inside, points.weights[rows], 0)
        shares = weights / jnp.sum(weights)
        return gram.weighted(shares).eigenvalues() if whole else gram.squared_norm_by(shares)

    return lax.map(of_cluster, (table, inside))
