"""Finite features of kernels: covariances in O(n D^2), linear in n, and approximate.

Random Fourier features (Rahimi and Recht, 2007; FKEA: Ospanov et al., 2024) write a Gaussian kernel
as the mean of cos(w^T (x - y)) over random frequencies w. Outputs, prompts and pairs share one
draw: the angles of a pair are the sums of those of its parts. The Nystroem features of m landmarks
(Williams and Seeger, 2001) are K_nm K_mm^(-1/2). `terms` are names of terms, as in `_methods`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax import validation
from condvendi_jax.entropies import PerTerm
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams._grams import FeatureGram
from condvendi_jax.kernels import Gaussian, Kernel, Product
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.spectra import _influences as influences

DEFAULT_COUNT = 1024
DEFAULT_LANDMARKS = 512
# Entries of features held at once: 64 MiB of float32 for each of outputs, prompts and pairs.
_ENTRIES = 2**24
# In eps of the largest eigenvalue of K_mm: below, rounding decides the eigenvector, which happens
# where landmarks repeat one another.
_RESOLVED = 32
_CENTRED, _LARGEST_ANGLE = 64, 1e18

_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
Terms = tuple[str, ...]
# Features of blocks of rows `[b, d]` of the parts: an array `[b, D]` for each term.
FeatureMap = Callable[[tuple[jax.Array, ...]], tuple[jax.Array, ...]]


@takes_pairs
def fourier_features(pairs: Pairs, *, key: jax.Array, count: int = DEFAULT_COUNT) -> PerTerm:
    """Random Fourier features of outputs, prompts and pairs, from one draw of frequencies.

    z(x) = (cos w_j^T x, sin w_j^T x)_j / sqrt(count), w_j ~ N(0, I / bandwidth^2), of unit norm.
    The mean of <z(x), z(y)> is the kernel, its standard deviation at most 1 / sqrt(2 count).
    Scores of these features are too low at order 1; `RandomFeatures` corrects them, gives
    intervals, and needs memory that does not grow with n.

    Args:
      pairs: the data, or `outputs, prompts, output_kernel=, prompt_kernel=` as for `Pairs`. The
        kernels are `Gaussian`, or products of such.
      key: draws the frequencies.
      count: how many frequencies; there are twice as many features.

    Returns:
      `FeatureGram`s of features `[n, 2 count]`, cosine and sine of a frequency side by side; None
      for prompts and pairs where there are no prompts. Differentiable in points and bandwidths.

    Raises:
      TypeError, ValueError: as `Pairs`, a kernel is not Gaussian, or rows are weighted.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
      >>> sharp = cv.Gaussian(0.1)
      >>> grams = cv.spectra.fourier_features(points, output_kernel=sharp, key=jax.random.key(0))
      >>> print(grams.outputs.features.shape, f"{np.exp(cv.von_neumann(grams.outputs)):.1f}")
      (4, 2048) 2.0
    """
    pairs.refuse_weights("Fourier features")
    points = pairs.gathered()
    frequencies = draw_frequencies(points, key=key, count=count)
    return _grams(fourier_map(points, frequencies, PerTerm._fields)(points.arrays))


@takes_pairs
def nystroem_features(
    pairs: Pairs, *, key: jax.Array, landmarks: int = DEFAULT_LANDMARKS
) -> PerTerm:
    """Nystroem features of outputs, prompts and pairs, from the same rows as landmarks.

    z(x) = K_mm^(-1/2) k_m(x): the inner products are those of the kernel, projected to what the
    landmarks span. They are scaled to unit norm. For scores see `Nystroem`, which accounts for what
    the landmarks do not span.

    Args:
      pairs: the data, or `outputs, prompts, output_kernel=, prompt_kernel=` as for `Pairs`.
      key: draws the landmarks, rows of the points.
      landmarks: how many, m; all rows where there are fewer.

    Returns:
      `FeatureGram`s of features `[n, m]`; None for prompts and pairs where there are no prompts.

    Raises:
      TypeError, ValueError: as `Pairs`, a row's kernel with all landmarks is zero, or rows are
        weighted.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
      >>> grams = cv.spectra.nystroem_features(
      ...     points, output_kernel=cv.Gaussian(0.3), key=jax.random.key(0), landmarks=4
      ... )
      >>> print(grams.outputs.features.shape)
      (4, 4)
    """
    pairs.refuse_weights("Nystroem features")
    points = pairs.gathered()
    chosen = draw_rows(points.n, key=key, count=landmarks)
    images = nystroem_map(points, points.rows(chosen).arrays, PerTerm._fields)(points.arrays)
    norms = [jnp.linalg.norm(image, axis=1, keepdims=True) for image in images]
    if validation.is_concrete(*norms) and not all(bool((norm > 0).all()) for norm in norms):
        raise ValueError(
            "landmarks: expected some near every row, received ones of which a row's kernel is "
            "zero; give more, or a larger bandwidth."
        )
    return _grams([z / norm for z, norm in zip(images, norms, strict=True)])


def _grams(images: Sequence[jax.Array]) -> PerTerm:
    grams = [FeatureGram.trusted(image) for image in images]
    return PerTerm(*grams, *[None] * (3 - len(grams)))


def length_scale(kernel: Kernel) -> jax.Array:
    """The bandwidth of a Gaussian kernel, or of a product of them; TypeError for any other."""
    if isinstance(kernel, Gaussian):
        return kernel.bandwidth
    if isinstance(kernel, Product):
        scales = jnp.stack([length_scale(factor) for factor in kernel.factors])
        # The largest of them first: squares may leave the range of the dtype.
        least = jnp.min(scales)
        return least / jnp.sqrt(jnp.sum(jnp.square(least / scales)))
    raise TypeError(
        f"kernel: random Fourier features are of Gaussian kernels and their products, received "
        f"{kernel!r}; Nystroem features are of any kernel."
    )


def draw_frequencies(points: Pairs, *, key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    """Frequencies w ~ N(0, I / bandwidth^2) of each part, `[count, d]`."""
    count = validation.check_count(count, name="count", minimum=1)
    scales = [length_scale(kernel) for kernel in points.kernels]
    keys = jax.random.split(validation.check_key(key), len(scales))
    return tuple(
        jax.random.normal(k, (count, part.shape[1]), part.dtype) / scale.astype(part.dtype)
        for k, part, scale in zip(keys, points.arrays, scales, strict=True)
    )


def draw_rows(n: int, *, key: jax.Array, count: int) -> jax.Array:
    """The numbers of some of n rows, `[count]`; all where there are fewer."""
    count = validation.check_count(count, name="landmarks", minimum=1)
    return jax.random.permutation(validation.check_key(key), n)[:count]


def _of_terms(parts: Sequence[Any], joined: Callable[[Any, Any], Any], terms: Terms) -> list[Any]:
    """The parts of outputs and prompts and, joined, of pairs: those that belong to the terms."""
    everything = [*parts, joined(*parts)] if len(parts) == 2 else list(parts)
    named = zip(PerTerm._fields, everything, strict=False)
    return [part for name, part in named if name in terms]


def fourier_map(points: Pairs, frequencies: tuple[jax.Array, ...], terms: Terms) -> FeatureMap:
    """Features `[b, 2 count]` of unit norm: cosine and sine of a frequency are neighbours."""
    # The angles of far points would have few digits; a shift turns all features alike. The median
    # of some rows is no far row's.
    some = [jnp.sort(part[:: -(-points.n // _CENTRED)], axis=0) for part in points.arrays]
    origins = [ordered[len(ordered) // 2] for ordered in some]
    # No angle overflows. Rows so far away are like no other rows whatever their angles.
    limits = [_LARGEST_ANGLE / jnp.max(jnp.abs(w)) for w in frequencies]
    scale = 1 / math.sqrt(frequencies[0].shape[0])

    def waves(angles: jax.Array) -> jax.Array:
        both = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=2) * scale
        return both.reshape(angles.shape[0], -1)

    def of_rows(rows: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        angles = [
            _product(jnp.clip(part - origin[None], -limit, limit), w.T)
            for part, origin, limit, w in zip(rows, origins, limits, frequencies, strict=True)
        ]
        return tuple(map(waves, _of_terms(angles, jnp.add, terms)))

    return of_rows


def nystroem_map(points: Pairs, landmarks: tuple[jax.Array, ...], terms: Terms) -> FeatureMap:
    """Features `[b, m]`, of a norm up to one: what the landmarks span of a point."""

    def with_landmarks(rows: tuple[jax.Array, ...]) -> list[jax.Array]:
        crossed = []
        for kernel, part, chosen in zip(points.kernels, rows, landmarks, strict=True):
            # Together, since a kernel may move its points to their mean.
            both, n = kernel.prepare(jnp.concatenate([part, chosen])), part.shape[0]
            own = jax.tree.map(lambda leaf, n=n: leaf[:n], both)
            of_chosen = jax.tree.map(lambda leaf, n=n: leaf[n:], both)
            crossed.append(kernel.cross(own, of_chosen))
        return _of_terms(crossed, jnp.multiply, terms)

    roots = [_inverse_root(gram) for gram in with_landmarks(landmarks)]

    def of_rows(rows: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(map(_product, with_landmarks(rows), roots))

    return of_rows


@functools.partial(jax.jit, static_argnames="terms")
def residual_squares(
    points: Pairs, landmarks: tuple[jax.Array, ...], terms: Terms
) -> tuple[jax.Array, ...]:
    """The squares `[n, n]` of what landmarks leave of few points' kernel, for every term."""
    crossed = [k.prepare(part) for k, part in zip(points.kernels, points.arrays, strict=True)]
    exact = [k.cross(part, part) for k, part in zip(points.kernels, crossed, strict=True)]
    images = nystroem_map(points, landmarks, terms)(points.arrays)
    return tuple(
        jnp.square(gram - _product(z, z.T))
        for gram, z in zip(_of_terms(exact, jnp.multiply, terms), images, strict=True)
    )


def _inverse_root(gram: jax.Array) -> jax.Array:
    """K^(-1/2), pseudo-inverse below rounding."""
    values, vectors = jnp.linalg.eigh(gram)
    kept = values > _RESOLVED * jnp.finfo(gram.dtype).eps * values[-1]
    scales = jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0)
    return _product(vectors * scales[None, :], vectors.T)


@functools.partial(jax.jit, static_argnames=("terms", "groups"))
def fourier_grams(
    points: Pairs, frequencies: tuple[jax.Array, ...], terms: Terms, groups: int
) -> tuple[jax.Array, ...]:
    """Z_g Z_g^T / n `[groups, n, n]` of every term, Z_g the features of a group of frequencies.

    Rows of Z_g are scaled by the roots of n times their weights.

    The sum over some groups has the non-zero eigenvalues of their covariance Z^T Z / n. Over all
    groups its trace is one.
    """
    scales = jnp.sqrt(_relative_weights(points))[:, None]

    def of_group(chosen: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        images = (z * scales for z in fourier_map(points, chosen, terms)(points.arrays))
        return tuple(_product(z, z.T) / (groups * points.n) for z in images)

    return lax.map(of_group, tuple(w.reshape(groups, -1, w.shape[1]) for w in frequencies))


@functools.partial(jax.jit, static_argnames=("make", "terms"))
def covariances(
    make: Callable[..., FeatureMap], points: Pairs, drawn: tuple[jax.Array, ...], terms: Terms
) -> tuple[jax.Array, ...]:
    """Z^T Z / n, or Z^T diag(weights) Z, of every term, a block of rows at a time.

    `make` is `fourier_map`, for a trace of one, or `nystroem_map`, whose trace lacks what the
    landmarks do not span; `drawn` are its frequencies or landmarks.
    """
    of_rows, n = make(points, drawn, terms), points.n
    scales = jnp.sqrt(_relative_weights(points))
    shapes, size = jax.eval_shape(of_rows, points.arrays), _block_size(of_rows, points)

    def add(k: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        first, images = _block(of_rows, points, k, size)
        # Rows that counted in the block before do not count again.
        new = first + jnp.arange(size) >= k * size
        scale = jnp.where(new, lax.dynamic_slice_in_dim(scales, first, size), 0)[:, None]
        return tuple(
            total + spectra.outer_products(z * scale) / n
            for total, z in zip(sums, images, strict=True)
        )

    zeros = tuple(jnp.zeros((shape.shape[1],) * 2, shape.dtype) for shape in shapes)
    return lax.fori_loop(0, math.ceil(n / size), add, zeros)


@functools.partial(jax.jit, static_argnames=("make", "terms"))
def row_forms(
    make: Callable[..., FeatureMap],
    points: Pairs,
    drawn: tuple[jax.Array, ...],
    matrices: tuple[jax.Array, ...],
    terms: Terms,
) -> tuple[jax.Array, ...]:
    """z_i^T S z_i `[n]` of every term's features, a block of rows at a time.

    `make` and `drawn` are as in `covariances`; S `[D, D]` is the matrix of a term.
    """
    of_rows, n = make(points, drawn, terms), points.n
    size = _block_size(of_rows, points)

    def add(k: jax.Array, found: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        first, images = _block(of_rows, points, k, size)
        return tuple(
            lax.dynamic_update_slice_in_dim(whole, influences.row_forms(z, own), first, axis=0)
            for whole, z, own in zip(found, images, matrices, strict=True)
        )

    zeros = tuple(jnp.zeros(n, own.dtype) for own in matrices)
    return lax.fori_loop(0, math.ceil(n / size), add, zeros)


def _block_size(of_rows: FeatureMap, points: Pairs) -> int:
    width = jax.eval_shape(of_rows, points.arrays)[0].shape[1]
    return max(1, min(points.n, _ENTRIES // width))


def _block(
    of_rows: FeatureMap, points: Pairs, k: jax.Array, size: int
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The first row, and the features, of a block; the last reaches back over its neighbour."""
    first = jnp.minimum(k * size, points.n - size)
    rows = tuple(lax.dynamic_slice_in_dim(part, first, size) for part in points.arrays)
    return first, of_rows(rows)


def _relative_weights(points: Pairs) -> jax.Array:
    """The weights of points on one device, relative to 1 / n: `[n]`."""
    if points.weights is None:
        return jnp.ones(points.n, points.dtype)
    return points.n * points.weights
