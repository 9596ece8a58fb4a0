"""Diversity by clusters and by modes of prompts: scores of each, aggregated, and how to find them.

Where prompts fall into clusters whose members the prompt kernel cannot tell apart, and which it
tells apart from each other, the joint Gram is block-diagonal: its spectrum is the union of
p_i * spectrum of cluster i. H(X|T) = H(X, T) - H(T) is then an average of the clusters' entropies,
and Conditional-Vendi a power mean of their scores (CV Theorems 5 and 6); the Cluster-Vendi that CV
compares it with (G.1) is their arithmetic mean.

Without clusters there are modes: eigendirections v of K_T / n, each of which weights the pairs by
v_i^2 (CV-early section 5, CV figs 6 and 13-15).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import _extras, entropies, validation
from condvendi_jax.entropies import Entropy, PerTerm, von_neumann
from condvendi_jax.grams import Gram
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams._weighted import weighted
from condvendi_jax.kernels import Kernel, check_kernel
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Method

AGGREGATES = ("arithmetic", "conditional")
# Clusters of up to so many points are padded to a few sizes and computed together; larger ones by
# the method, one by one.
_TOGETHER_UP_TO = 1024
# Up to so many rows eigenvectors come from a matrix.
_DENSE_UP_TO = 2048
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
      method: how to compute the spectra of clusters of more than 1,024 points; those of the
        others are exact.

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
      >>> print(f"{cv.clusters.cluster_vendi(outputs, labels, **options):.2f}")  # (4 + 1) / 2
      2.50
      >>> found = cv.clusters.cluster_vendi(outputs, labels, **options, aggregate="conditional")
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
      >>> for mean in ("arithmetic", "conditional"):
      ...     found = cv.clusters.cluster_rke(
      ...         outputs, labels, kernel=cv.Gaussian(0.1), aggregate=mean
      ...     )
      ...     print(f"{mean} {found:.2f}")
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
    points = Pairs(outputs, output_kernel=check_kernel(kernel, name="kernel")).gathered()
    names, cluster = validation.check_labels(labels, points.n)
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
    points: Pairs, table: np.ndarray, kept: np.ndarray, entropy: Entropy
) -> jax.Array:
    """The entropies `[m]` of clusters given by row numbers `[m, s]`, of which some are kept."""
    if not entropy.needs_spectrum:
        return _squared_norm_entropies(points, table, kept)
    found = _entropies_of(_spectra(points, table, kept), entropy)
    spectra.check_spectra(found)
    return found


# Programs of their own: compiling the spectra takes longest, and serves every order.
@jax.jit
def _spectra(points: Pairs, table: jax.Array, kept: jax.Array) -> jax.Array:
    return _of_each(points, table, kept, spectra.spectrum)


@functools.partial(jax.jit, static_argnums=1)
def _entropies_of(eigenvalues: jax.Array, entropy: Entropy) -> jax.Array:
    return jax.vmap(entropy.of_spectrum)(eigenvalues)


@jax.jit
def _squared_norm_entropies(points: Pairs, table: jax.Array, kept: jax.Array) -> jax.Array:
    def of_matrix(matrix: jax.Array) -> jax.Array:
        return entropies.of_squared_norm(jnp.sum(jnp.sum(jnp.square(matrix), axis=1)))

    return _of_each(points, table, kept, of_matrix)


def _of_each(
    points: Pairs, table: jax.Array, kept: jax.Array, function: Callable[[jax.Array], jax.Array]
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


class Clustering(NamedTuple):
    """Points in clusters, by the best of several starts of K-means.

    Attributes:
      labels: the cluster of each point, `[n]`, from 0.
      centres: `[k, d]`, in the units of the points.
      medoids: the row of the point nearest to each centre, `[k]`; of all points of its cluster it
        has the least sum of squared distances to the others.
      inertia: the sum of squared distances to the centres.
      alternatives: the labels of every start, `[restarts, n]`, the best first. What a score gives
        for each of them says how far it depends on the start.
      inertias: of every start, `[restarts]`, ascending.
    """

    labels: np.ndarray
    centres: np.ndarray
    medoids: np.ndarray
    inertia: float
    alternatives: np.ndarray
    inertias: np.ndarray

    @property
    def agreement(self) -> float:
        """The mean adjusted Rand index of two starts: 1 where all agree, 0 as by chance."""
        with _extras.needed("clusters", package="scikit-learn", purpose="the adjusted Rand index"):
            from sklearn.metrics import adjusted_rand_score

        pairs = list(itertools.combinations(self.alternatives, 2))
        return float(np.mean([adjusted_rand_score(*pair) for pair in pairs])) if pairs else 1.0


@validation.outside_transformations
def k_means(points: ArrayLike, count: int, *, key: jax.Array, restarts: int = 10) -> Clustering:
    """Clusters points by K-means: scikit-learn's, k-means++ from several starts, the best kept.

    The problem is not convex, and starts end in different clusters (CV G.1): the result says how
    different. Equal points fall into one cluster.

    Args:
      points: embeddings `[n, d]`, of prompts.
      count: how many clusters, at most as many as there are distinct points.
      key: of the starts.
      restarts: how many starts, each kept as an alternative.

    Raises:
      TypeError, ValueError: the points are no finite real array `[n, d]`, there are fewer distinct
        ones than clusters, `count` or `restarts` is below 1, or the key is missing.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> prompts = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], np.float32)
      >>> found = cv.clusters.k_means(prompts, 2, key=jax.random.key(0))
      >>> print(found.labels[:3] == found.labels[0], found.agreement)
      [ True  True  True] 1.0
      >>> print(sorted(found.medoids.tolist()))
      [1, 4]
      >>> outputs = np.arange(6, dtype=np.float32)[:, None]
      >>> scores = [
      ...     cv.clusters.cluster_vendi(outputs, labels, kernel=cv.Gaussian(1.0))
      ...     for labels in found.alternatives
      ... ]
      >>> print(f"{np.mean(scores):.2f} +- {np.std(scores):.2f}")
      2.29 +- 0.00
    """
    with _extras.needed("clusters", package="scikit-learn", purpose="K-means"):
        from sklearn.cluster import KMeans

    array = np.asarray(validation.check_embeddings(points, name="points"))
    count = validation.check_count(count, name="count", minimum=1)
    restarts = validation.check_count(restarts, name="restarts", minimum=1)
    validation.check_key(key)
    kinds, kind = validation.distinct_rows(array)
    if count > kinds:
        raise ValueError(f"count: expected at most the {kinds} distinct points, received {count}.")
    first = np.unique(kind, return_index=True)[1]
    often = np.bincount(kind)
    seeds = np.asarray(jax.random.randint(key, (restarts,), 0, np.iinfo(np.int32).max))
    fits: list[Any] = [
        # In float64: squared distances in float32 would merge points that differ.
        KMeans(n_clusters=count, n_init=cast(Any, 1), random_state=int(seed)).fit(
            array[first].astype(np.float64), sample_weight=often
        )
        for seed in seeds
    ]
    fits.sort(key=lambda fit: fit.inertia_)
    best = fits[0]
    distances = best.transform(array.astype(np.float64))
    distances = np.where(best.labels_[kind][:, None] == np.arange(count), distances, np.inf)
    return Clustering(
        labels=best.labels_[kind],
        centres=best.cluster_centers_,
        medoids=np.argmin(distances, axis=0),
        inertia=float(best.inertia_),
        alternatives=np.stack([fit.labels_[kind] for fit in fits]),
        inertias=np.array([fit.inertia_ for fit in fits]),
    )


class PromptMode(NamedTuple):
    """One eigendirection v of K_T / n, and the outputs as it weights them.

    Attributes:
      share: its eigenvalue; all of them sum to one.
      direction: v, `[n]`, of unit norm; its largest entry is positive.
      vendi, rke: exp of the entropy of order 1 and 2 of K_X o v v^T, a matrix of trace one: the
        effective number of modes of the outputs that the prompt mode carries.
      output_shares: the leading eigenvalues of that matrix, `[m]`.
      output_directions: its leading eigenvectors, `[n, m]`: the output modes in the prompt mode.
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
        """How many pairs carry the mode, effectively: 1 / sum v_i^4, in [1, n]."""
        return float(1 / np.sum(np.square(self.weights)))

    def pairs(self, count: int) -> np.ndarray:
        """The rows of the pairs that carry the mode most, `[count]`."""
        return np.argsort(-self.weights, kind="stable")[:count]

    def output_pairs(self, count: int) -> np.ndarray:
        """The rows of the pairs that carry each output mode most, `[m, count]`."""
        return np.argsort(-np.abs(self.output_directions), axis=0, kind="stable")[:count].T


@validation.outside_transformations
def prompt_modes(
    outputs: ArrayLike,
    prompts: ArrayLike,
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    count: int = 3,
    directions: int = 3,
    method: Method = AUTO,
) -> list[PromptMode]:
    """The leading modes of the prompts, and how diverse the outputs are in each.

    By K_X o K_T / n = sum_i lambda_i (K_X o v_i v_i^T), with lambda_i and v_i of K_T / n (CV-early
    section 5): every term has trace lambda_i, and a diversity of its own. By the concavity of the
    von Neumann entropy Conditional-Vendi is at most the geometric mean of all modes' `vendi`,
    weighted by their shares, and equal to it where modes have no pair in common.

    A mode is a direction and not a set. The first is near the average prompt unless the bandwidth
    is small. Where eigenvalues are equal, as those of prompt clusters of one size, every rotation
    of their directions would do, and which one comes out is chance. K_X o v v^T does not know the
    signs of v: a direction that sets dogs against sofas weights both.

    Args:
      outputs, prompts, output_kernel, prompt_kernel: as `decompose`.
      count: how many prompt modes, at most as many as there are distinct prompts.
      directions: how many output modes of each, at most n.
      method: how to compute the entropy of order 1, as `decompose`; that of order 2 is exact.

    Returns:
      The modes, by falling eigenvalue; their arrays lie on the host.

      Matrices are made up to 2,048 rows (of distinct prompts, and of outputs); beyond, eigenvectors
      come from products with a Gram that is stored where it fits (SciPy's `eigsh`).

    Raises:
      TypeError, ValueError: as `decompose`, or `count` or `directions` is out of range.

    References:
      CV-early section 5; CV figs 6, 13-15 and 24.

    Examples:
      Twice as many prompts about dogs as about sofas, with four outputs and one:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts = np.repeat([[0.0], [1.0]], [8, 4], axis=0).astype(np.float32)
      >>> outputs = np.array([0, 1, 2, 3] * 2 + [9] * 4, np.float32)[:, None]
      >>> sharp = cv.Gaussian(0.1)
      >>> modes = cv.clusters.prompt_modes(
      ...     outputs, prompts, output_kernel=sharp, prompt_kernel=sharp, count=2
      ... )
      >>> for mode in modes:
      ...     print(f"share {mode.share:.2f}, size {mode.size:.0f}: vendi {mode.vendi:.2f}")
      share 0.67, size 8: vendi 4.00
      share 0.33, size 4: vendi 1.00
    """
    methods.check_method(method)
    points = Pairs(
        outputs, prompts, output_kernel=output_kernel, prompt_kernel=prompt_kernel
    ).gathered()
    of_prompts = np.asarray(points.arrays[1])
    kinds, kind = validation.distinct_rows(of_prompts)
    for name, value, largest in (("count", count, kinds), ("directions", directions, points.n)):
        if validation.check_count(value, name=name, minimum=1) > largest:
            raise ValueError(f"{name}: expected at most {largest}, received {value}.")
    # Equal prompts have equal entries in every direction: one row of their common weight each.
    first, often = np.unique(kind, return_index=True)[1], np.bincount(kind)
    _, distinct = points.rows(first).grams()
    values, vectors = _leading(weighted(distinct, np.sqrt(often / points.n)), count)
    of_outputs, *_ = points.grams()
    found = []
    for share, vector in zip(values, vectors.T, strict=True):
        direction = (vector / np.sqrt(often))[kind]
        direction *= np.sign(direction[np.argmax(np.abs(direction))])
        gram = weighted(of_outputs, direction)
        (computed,) = method.suited_to(PerTerm(gram, None, None), methods.OUTPUTS).entropies(
            PerTerm(gram, None, None), (von_neumann,), methods.OUTPUTS
        )
        shares, along = _leading(gram, directions)
        found.append(
            PromptMode(
                share=float(share),
                direction=direction,
                vendi=math.exp(float(computed.values.outputs)),
                rke=1 / float(_squared_norm(gram)),
                output_shares=shares,
                output_directions=along,
            )
        )
    return found


def _leading(gram: Gram, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading eigenvalues `[count]` of K / n, falling, and their unit vectors `[n, count]`."""
    import scipy.linalg  # Imported where they are needed: they are slow.
    import scipy.sparse.linalg

    n = gram.n
    if n <= _DENSE_UP_TO:
        matrix = np.asarray(gram.dense().matrix, np.float64) / n
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(n - count, n - 1))
    else:
        held = gram.store() if memory.fits(n, gram.dtype) else gram
        operator: Any = scipy.sparse.linalg.LinearOperator
        product = operator(
            (n, n), lambda vector: np.asarray(_matvec(held, vector.ravel())), dtype=gram.dtype
        )
        # Any start will do; one and the same gives the same signs and digits.
        start = np.random.default_rng(0).normal(size=n).astype(gram.dtype)
        values, vectors = scipy.sparse.linalg.eigsh(product, k=count, v0=start)
    order = np.argsort(-values)
    return np.maximum(values[order], 0), vectors[:, order]


@jax.jit
def _matvec(gram: Gram, vector: jax.Array) -> jax.Array:
    return gram.matvec(vector)


@jax.jit
def _squared_norm(gram: Gram) -> jax.Array:
    return gram.squared_frobenius_norm()
