"""Finite features of kernels: covariances in O(n D^2), linear in n, and approximate.

Random Fourier features (Rahimi and Recht, 2007; FKEA: Ospanov et al., 2024) write a Gaussian kernel
as the mean of cos(w^T (x - y)) over random frequencies w. Outputs, prompts and pairs share one
draw: the angles of a pair are the sums of those of its parts. `terms` are names of terms, as in
`_methods`.
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

DEFAULT_COUNT = 1024
# Entries of features held at once: 64 MiB of float32 for each of outputs, prompts and pairs.
_ENTRIES = 2**24
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
        f"{kernel!r}; cv.MatrixFree(key=...) is of any kernel."
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


@functools.partial(jax.jit, static_argnames="terms")
def covariances(
    points: Pairs, frequencies: tuple[jax.Array, ...], terms: Terms
) -> tuple[jax.Array, ...]:
    """Z^T Z / n, or Z^T diag(weights) Z, of every term, a block of rows at a time."""
    of_rows, n = fourier_map(points, frequencies, terms), points.n
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
