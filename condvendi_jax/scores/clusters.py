"""Cluster-Vendi, the scores of the outputs of clusters of prompts; and the modes of prompts."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # Its modules are imported when they are used.
from jax.typing import ArrayLike

from condvendi_jax.base import checks, labelling, memory
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs, takes_pairs
from condvendi_jax.entropies import Entropy, von_neumann
from condvendi_jax.grams import Operator, grams_of
from condvendi_jax.spectra import computation, exact, methods, pair_sums
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method

__all__ = ["ClusterScores", "PromptMode", "cluster_vendi", "prompt_modes", "scores_by_cluster"]

# Clusters of up to this many points are padded and computed together. `method` computes larger
# ones, one by one: padding would repeat too much of their O(n^3) work.
_TOGETHER_UP_TO = 1024
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


def cluster_vendi(
    outputs: ArrayLike | Pairs,
    labels: ArrayLike,
    *,
    kernel: Kernel | None = None,
    order: float = 1,
    method: Method = AUTO,
) -> jax.Array:
    """Cluster-Vendi, or at order 2 Cluster-RKE: the mean of the scores of all clusters (CV G.1).

    It is sum_i p_i Vendi(S_i) with p_i = |S_i| / n, or the share of the weight. Conditional-Vendi
    with the clusters as prompts under `Indicator`, their geometric mean, is at most as large.

    Args:
      outputs: embeddings `[n, d]`, or `Pairs`, whose prompts are not used. Their weights, which
        must be concrete, count; a cluster whose rows all have weight zero is left out.
      labels: the cluster of each point, `[n]`: integers, strings, or numbers that are not NaN;
        concrete, also inside `jax.jit`, as they decide shapes.
      kernel: the kernel of the outputs; None for `Pairs`, which have theirs.
      order: the Renyi order in (0, inf].
      method: how to compute the spectra of clusters of more than 1,024 points; others are exact.

    Returns:
      A scalar, an effective number of modes, in [1, n]; a cluster of one point has the score 1.
      Differentiable in the outputs and in the bandwidth.

    Raises:
      TypeError, ValueError: the outputs are not a finite real array `[n, d]`; the labels are not n,
        of different kinds, or hold a NaN; or another argument is not one of those above.

    Examples:
      One prompt has four outputs that the other lacks, which, as often, has one:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs, labels = np.c_[[0, 1, 2, 3, 9, 9, 9, 9]], np.repeat(["dog", "sofa"], 4)
      >>> score = cv.clusters.cluster_vendi(outputs, labels, kernel=cv.Gaussian(0.1))
      >>> print(f"{score:.2f}")  # (4 + 1) / 2
      2.50
    """
    clusters = scores_by_cluster(outputs, labels, kernel=kernel, order=order, method=method)
    shares = jnp.asarray(clusters.weights / clusters.weights.sum(), clusters.scores.dtype)
    return jnp.sum(shares * clusters.scores)


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
    if not isinstance(outputs, Pairs):
        outputs = Pairs(outputs, output_kernel=check_kernel(kernel, name="kernel"))
    elif kernel is not None:
        raise TypeError(f"kernel: expected none beside Pairs, received {kernel!r}.")
    points = pair_sums.factor(outputs.gathered(), 0)
    checks.check_indices({"outputs": outputs, "labels": labels})
    names, cluster = labelling.check_labels(labels, points.n)
    weighted = points.weights is not None
    if weighted:
        if not checks.is_concrete(points.weights):
            raise TypeError("weights: expected concrete ones, received a traced array.")
        present, cluster = np.unique(cluster[points.shares > 0], return_inverse=True)
        names, points = names[present], points.supported()
    sizes, masses = np.bincount(cluster), np.bincount(cluster, points.shares)
    rows, by_cluster = np.argsort(cluster, kind="stable"), dict[int, Any]()
    small, shares = np.flatnonzero(sizes <= _TOGETHER_UP_TO), points.shares / masses[cluster]
    for computed in exact.compute_sets(points, rows, sizes, small, shares, entropy):
        by_cluster.update(zip(computed.sets.tolist(), computed.values, strict=True))
    for c in np.flatnonzero(sizes > _TOGETHER_UP_TO).tolist():
        (one,) = computation.compute(points.rows(np.flatnonzero(cluster == c)), (entropy,), method)
        by_cluster[c] = one.values.outputs
    scores = jnp.exp(jnp.stack([by_cluster[c] for c in range(sizes.size)]))
    return ClusterScores(names, sizes, scores, entropy.order, masses if weighted else sizes)


class PromptMode(NamedTuple):
    """One eigendirection v of K_T / n, and the diversity of the outputs that it weights.

    Attributes:
      share: its eigenvalue; the eigenvalues of all modes sum to one.
      direction: v, `[n]`, of unit norm; its largest entry is positive. Of weighted rows it is the
        eigenvector of diag(w)^(1/2) K_T diag(w)^(1/2).
      vendi, rke: exp of the entropy of order 1 and 2 of K_X o v v^T, a matrix of trace one: the
        effective number of modes of the outputs in this prompt mode.
    """

    share: float
    direction: np.ndarray
    vendi: float
    rke: float

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
def prompt_modes(pairs: Pairs, *, count: int = 3, method: Method = AUTO) -> list[PromptMode]:
    """The leading modes of the prompts, and how diverse the outputs are in each.

    K_X o K_T / n = sum_i lambda_i (K_X o v_i v_i^T)                          (CV-early section 5)

    with lambda_i and v_i the eigenvalues and eigenvectors of K_T / n. Every term has trace lambda_i
    and a diversity of its own. A mixture's entropy is at most the mean one plus that of the shares
    (`cv-concave`, of two). So Conditional-Vendi is at most the geometric mean of `vendi` over all
    modes, weighted by their shares; equal to it where no two modes share a pair.

    A mode is a direction, not a set of pairs, and arbitrary among those of equal eigenvalues, as of
    prompt clusters of one size. K_X o v v^T ignores signs: a contrast of dogs and sofas has both.

    Args:
      pairs: the data, or `outputs, prompts, output_kernel=, prompt_kernel=` as for `Pairs`.
      count: the number of prompt modes, at most the number of distinct prompts.
      method: how to compute the entropy of order 1; that of order 2 is exact.

    Returns:
      The modes in descending order of their eigenvalues, as arrays of NumPy.

    Raises:
      TypeError, ValueError: the pairs are refused by `decompose`, or `count` is out of range.

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
    methods.check_method(method)
    if not pairs.paired:
        raise ValueError("prompts: expected embeddings [n, d], received None.")
    pairs = pairs.gathered()
    _, kind = pairs.prompt_kinds
    masses = np.bincount(kind, pairs.shares)
    kinds = int(np.count_nonzero(masses))
    if checks.check_count(count, name="count", minimum=1) > kinds:
        raise ValueError(f"count: expected at most {kinds}, received {count}.")
    # One row for each prompt: entries of its rows are in the ratio of the roots of their weights.
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
        grams = {"outputs": gram}
        suited = method.suited_to(grams, methods.OUTPUTS)
        (computed,) = suited.entropies(grams, (von_neumann,), methods.OUTPUTS)
        vendi, rke = math.exp(computed.values.outputs), 1 / float(_squared_norm(gram))
        modes.append(PromptMode(float(share), direction, vendi, rke))
    return modes


def _leading(gram: Operator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading eigenvalues `[count]` of K / n, descending, and the eigenvectors `[n, count]`."""
    n = gram.n
    if n <= _DENSE_UP_TO:
        matrix = np.asarray(gram.dense().matrix, np.float64) / n
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(n - count, n - 1))
    else:
        matvec = functools.partial(_matvec, gram.store() if memory.fits(n, gram.dtype) else gram)
        product = scipy.sparse.linalg.LinearOperator((n, n), matvec, dtype=gram.dtype)
        # The same start gives the same signs and digits at every call.
        start = np.random.default_rng(0).normal(size=n).astype(gram.dtype)
        values, vectors = scipy.sparse.linalg.eigsh(product, k=count, v0=start)
    order = np.argsort(-values)
    return np.maximum(values[order], 0), vectors[:, order]
