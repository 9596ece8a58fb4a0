"""Cluster-Vendi, the scores of the outputs of clusters of prompts; and the modes of prompts.

Where the prompt kernel is one within clusters of prompts and zero between them, the joint Gram is
block-diagonal, and Conditional-Vendi a power mean of the clusters' scores (CV Theorems 5 and 6).
The Cluster-Vendi that CV compares it with (G.1) is their arithmetic mean.

Modes of prompts describe prompts that fall into no clusters (CV-early section 5, CV figs 6 and
13-15): eigendirections v of K_T / n, each of which weights the pairs by v_i^2.
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

from condvendi_jax import entropies
from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.data.signatures import takes_pairs
from condvendi_jax.entropies import Entropy, von_neumann
from condvendi_jax.entropies import eigenvalues as spectra
from condvendi_jax.grams import DenseGram, Operator, grams_of
from condvendi_jax.spectra import computation, methods
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method

__all__ = [
    "AGGREGATES",
    "ClusterScores",
    "PromptMode",
    "cluster_vendi",
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
# Up to this many rows eigenvectors come from a matrix, as `grams` stores matrices up to this size.
_DENSE_UP_TO = 2048
_matvec = jax.jit(lambda gram, vector: gram.matvec(vector.ravel()))
_squared_norm = jax.jit(lambda gram: gram.squared_frobenius_norm())


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
    """H(X|T) = log(sum_i w_i e^((1 - a) H_i)) / (1 - a) of clusters i of shares p, w_i ~ p_i^a."""
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
    """Cluster-Vendi, or at order 2 Cluster-RKE: the scores of all clusters, aggregated (CV G.1).

    The aggregate 'arithmetic' is the printed one, sum_i p_i Vendi(S_i) with p_i = |S_i| / n, or the
    share of the weight. 'conditional' is Conditional-Vendi with a prompt kernel that is one within
    clusters and zero between them: the power mean of CV Theorem 6,

        exp(H_a(X, T) - H_a(T)) = (sum_i w_i Vendi_a(S_i)^(1 - a))^(1 / (1 - a)),  w_i ~ p_i^a,

    the weighted geometric mean at order 1 and the harmonic mean with weights p_i^2 at order 2 (CV
    Theorem 5). For clusters of equal size it is at most the arithmetic mean.

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
      One prompt has four outputs that the other lacks, which, as often, has one:

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


class PromptMode(NamedTuple):
    """One eigendirection v of K_T / n, and the diversity of the outputs that it weights.

    Attributes:
      share: its eigenvalue; the eigenvalues of all modes sum to one.
      direction: v, `[n]`, of unit norm; its largest entry is positive. Of weighted rows it is the
        eigenvector of diag(w)^(1/2) K_T diag(w)^(1/2).
      vendi, rke: exp of the entropy of order 1 and 2 of K_X o v v^T, a matrix of trace one: the
        effective number of modes of the outputs in this prompt mode.
      output_shares, output_directions: that matrix's leading eigenvalues `[m]` and eigenvectors
        `[n, m]`, the output modes in the prompt mode.
    """

    share: float
    direction: np.ndarray
    vendi: float
    rke: float
    output_shares: np.ndarray
    output_directions: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """v_i^2, the share of each pair in the mode, `[n]`, of sum one."""
        return np.square(self.direction)

    @property
    def size(self) -> float:
        """The effective number of pairs that carry the mode: 1 / sum v_i^4, in [1, n]."""
        return float(1 / np.sum(np.square(self.weights)))


@checks.outside_transformations
@takes_pairs
def prompt_modes(
    pairs: Pairs, *, count: int = 3, directions: int = 3, method: Method = AUTO
) -> list[PromptMode]:
    """The leading modes of the prompts, and how diverse the outputs are in each.

    K_X o K_T / n = sum_i lambda_i (K_X o v_i v_i^T)                          (CV-early section 5)

    with lambda_i and v_i the eigenvalues and eigenvectors of K_T / n. Every term has trace lambda_i
    and a diversity of its own. By the concavity of the von Neumann entropy, Conditional-Vendi is at
    most the geometric mean of `vendi` over all modes, weighted by their shares, and equal to it
    where no two modes share a pair.

    A mode is a direction, not a set of pairs. The first is near the average prompt unless the
    bandwidth is small. Directions of equal eigenvalues, as of prompt clusters of one size, are
    arbitrary. K_X o v v^T ignores signs: a v that contrasts dogs with sofas weights both.

    Args:
      pairs: the data, or `outputs, prompts, output_kernel=, prompt_kernel=` as for `Pairs`.
      count: the number of prompt modes, at most the number of distinct prompts.
      directions: the number of output modes in each, at most n.
      method: how to compute the entropy of order 1; that of order 2 is exact.

    Returns:
      The modes in descending order of their eigenvalues, as arrays of NumPy. Beyond 2,048 rows no
      matrix is formed: eigenvectors come from products with a Gram, by SciPy's `eigsh`.

    Raises:
      TypeError, ValueError: the pairs are refused by `decompose`, or `count` or `directions` is out
        of range.

    References:
      CV-early section 5; CV figs 6, 13-15 and 24.

    Examples:
      Twice as many prompts about dogs as about sofas, with four outputs and one:

      >>> import condvendi_jax as cv
      >>> outputs = [[x] for x in [0, 1, 2, 3, 0, 1, 2, 3, 9, 9, 9, 9]]
      >>> prompts = 8 * [[0]] + 4 * [[1]]
      >>> sharp = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> for mode in cv.clusters.prompt_modes(outputs, prompts, **sharp, count=2):
      ...     print(f"share {mode.share:.2f}, size {mode.size:.0f}: vendi {mode.vendi:.2f}")
      share 0.67, size 8: vendi 4.00
      share 0.33, size 4: vendi 1.00
    """
    methods.check_gram_method(method)
    if not pairs.paired:
        raise ValueError("prompts: expected embeddings [n, d], received None.")
    pairs = pairs.gathered()
    _, kind = pairs.prompt_kinds
    masses = np.bincount(kind, pairs.shares)
    kinds = int(np.count_nonzero(masses))
    for name, value, largest in (("count", count, kinds), ("directions", directions, pairs.n)):
        if checks.check_count(value, name=name, minimum=1) > largest:
            raise ValueError(f"{name}: expected at most {largest}, received {value}.")
    # Rows of one prompt have entries in the ratio of the roots of their weights: one row for each
    # prompt, of their total weight.
    _, first = np.unique(kind, return_index=True)
    _, distinct = grams_of(pairs.rows(first))
    values, vectors = _leading(distinct.weighted(masses), count)
    within = np.sqrt(pairs.shares / np.where(masses > 0, masses, 1)[kind])
    gram_x, _ = grams_of(pairs)
    modes = []
    for share, vector in zip(values, vectors.T, strict=True):
        direction = vector[kind] * within
        direction *= np.sign(direction[np.argmax(np.abs(direction))])
        gram = gram_x.scaled(jnp.asarray(direction, gram_x.dtype))
        vendi = math.exp(computation.entropy_of(gram, von_neumann, method))
        rke = 1 / float(_squared_norm(gram))
        leading = _leading(gram, directions)
        modes.append(PromptMode(float(share), direction, vendi, rke, *leading))
    return modes


def _leading(gram: Operator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading eigenvalues `[count]` of K / n, descending, and the eigenvectors `[n, count]`."""
    import scipy.linalg  # The imports are slow.
    import scipy.sparse.linalg

    n = gram.n
    if n <= _DENSE_UP_TO:
        matrix = np.asarray(gram.dense().matrix, np.float64) / n
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(n - count, n - 1))
    else:
        stored = gram.store() if memory.fits(n, gram.dtype) else gram
        operator: Any = scipy.sparse.linalg.LinearOperator
        product = operator((n, n), functools.partial(_matvec, stored), dtype=gram.dtype)
        # The same start gives the same signs and digits at every call.
        start = np.random.default_rng(0).normal(size=n).astype(gram.dtype)
        values, vectors = scipy.sparse.linalg.eigsh(product, k=count, v0=start)
    order = np.argsort(-values)
    return np.maximum(values[order], 0), vectors[:, order]
