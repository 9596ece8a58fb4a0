"""Finite features of Gaussian kernels: spectra that cost O(n D^2), linear in n, and approximate.

Random Fourier features (Rahimi and Recht, 2007) write k(x, y) as the mean of cos(w^T (x - y)) over
random frequencies w. A product of Gaussian kernels is one on the pairs, so that outputs, prompts
and pairs share one draw: the angles of a pair are the sums of those of its parts. The Nystroem
features of m landmarks are K_nm K_mm^(-1/2), rows scaled to unit norm, the pairs' of the same
landmarks. What is approximated is the kernel: where it has many small eigenvalues, most are lost.

Nothing of size n x D is held: covariances Z^T Z / n are sums over blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax import features
from condvendi_jax.kernels import Gaussian

_PRECISION = lax.Precision.HIGHEST
# Rows whose features are held at once: of 4,096 features in float32, 64 MiB.
_ROWS = 4096
# Landmarks repeat one another: directions of K_mm below this many eps of the largest are left out.
_RESOLVED = 32


def draw_frequencies(
    kernels: Sequence[Gaussian], dimensions: Sequence[int], *, key: jax.Array, count: int
) -> tuple[jax.Array, ...]:
    """Frequencies w ~ N(0, I / bandwidth^2) of each kernel, `[count, d]`.

    Args:
      kernels: of the parts of a pair.
      dimensions: of their points.
      key: draws them.
      count: how many, common to all parts.
    """
    keys = jax.random.split(key, len(kernels))
    return tuple(
        jax.random.normal(k, (count, dimension)) / kernel.bandwidth
        for k, kernel, dimension in zip(keys, kernels, dimensions, strict=True)
    )


@jax.jit
def fourier_covariances(
    points: tuple[jax.Array, ...], frequencies: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Z^T Z / n `[2 count, 2 count]` of each part and, of two, of the pairs.

    The two features of a frequency, cosine and sine, are neighbours: the matrix without a block of
    them is that of fewer frequencies.

    Args:
      points: `[n, d]` for each part.
      frequencies: as `draw_frequencies` gives them.
    """
    scale = 1 / math.sqrt(frequencies[0].shape[0])

    def of_rows(rows: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        angles = [
            jnp.matmul(part, w.T, precision=_PRECISION)
            for part, w in zip(rows, frequencies, strict=True)
        ]
        angles += [angles[0] + angles[1]] if len(angles) == 2 else []
        waves = [jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=2) * scale for angle in angles]
        return tuple(wave.reshape(wave.shape[0], -1) for wave in waves)

    # The angles of far points would have few digits; a shift turns all features alike.
    return _mean_outer_products(of_rows, tuple(map(_centred, points)))


@jax.jit
def nystroem_covariances(
    kernels: tuple[Gaussian, ...], points: tuple[jax.Array, ...], landmarks: jax.Array
) -> tuple[jax.Array, ...]:
    """Z^T Z / n `[m, m]` of each part and, of two, of the pairs, from rows as landmarks.

    Args:
      kernels: of the parts.
      points: `[n, d]` for each part.
      landmarks: `[m]`, the rows.

    Returns:
      The covariances. What their traces lack to one is the share of the kernel's trace that the
      landmarks do not span.
    """
    prepared = tuple(k.prepare(part) for k, part in zip(kernels, points, strict=True))
    chosen = jax.tree.map(lambda leaf: leaf[landmarks], prepared)

    def with_landmarks(rows: tuple[jax.Array, ...]) -> list[jax.Array]:
        grams = [k.cross(r, c) for k, r, c in zip(kernels, rows, chosen, strict=True)]
        return [*grams, grams[0] * grams[1]] if len(grams) == 2 else grams

    roots = [_inverse_root(gram) for gram in with_landmarks(chosen)]

    def of_rows(rows: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        images = [
            jnp.matmul(gram, root, precision=_PRECISION)
            for gram, root in zip(with_landmarks(rows), roots, strict=True)
        ]
        return tuple(images)

    return _mean_outer_products(of_rows, prepared)


def _centred(points: jax.Array) -> jax.Array:
    shifted = points - points[:1]
    return shifted - jnp.mean(shifted, axis=0, keepdims=True)


def _inverse_root(gram: jax.Array) -> jax.Array:
    """K^(-1/2) on the directions that rounding leaves to K."""
    values, vectors = jnp.linalg.eigh(gram)
    kept = values > _RESOLVED * jnp.finfo(gram.dtype).eps * values[-1]
    scales = jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0)
    return jnp.matmul(vectors * scales[None, :], vectors.T, precision=_PRECISION)


def _mean_outer_products(
    of_rows: Callable[[Any], tuple[jax.Array, ...]], points: Any
) -> tuple[jax.Array, ...]:
    """The means of z z^T over all rows, for each of the features that `of_rows` makes of them."""
    n = jax.tree.leaves(points)[0].shape[0]
    size = min(n, _ROWS)
    count = math.ceil(n / size)

    def add(k: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        # The last block reaches back over its neighbour: rows that counted there do not again.
        first = jnp.minimum(k * size, n - size)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), points)
        new = (first + jnp.arange(size) >= k * size)[:, None]
        return tuple(
            total + features.outer_products(jnp.where(new, z, 0)) / n
            for total, z in zip(sums, of_rows(rows), strict=True)
        )

    shapes = jax.eval_shape(of_rows, jax.tree.map(lambda leaf: leaf[:size], points))
    zeros = tuple(jnp.zeros((shape.shape[1],) * 2, shape.dtype) for shape in shapes)
    return lax.fori_loop(0, count, add, zeros)


def spectra_of_groups(covariance: jax.Array, groups: int) -> tuple[jax.Array, list[jax.Array]]:
    """Eigenvalues of a covariance of features, and without each group of neighbouring features.

    Args:
      covariance: `[D, D]`, of trace one, each feature of equal weight with its neighbour.
      groups: how many, a divisor of D / 2.

    Returns:
      `[D]`, and `[D - D / groups]` for every group left out; each of sum one.
    """
    size = covariance.shape[0]
    width = size // groups
    everything = features.eigenvalues(covariance, size)
    left = []
    for first in range(0, size, width):
        kept = jnp.concatenate([jnp.arange(first), jnp.arange(first + width, size)])
        part = covariance[kept][:, kept]
        left.append(features.eigenvalues(part / jnp.trace(part), size - width))
    return everything, left
