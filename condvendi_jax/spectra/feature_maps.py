"""Covariances of random Fourier features: approximate, in O(n D^2) time, linear in n.

Random Fourier features (Rahimi and Recht, 2007; FKEA: Ospanov et al., 2024) write a Gaussian kernel
as the mean of cos(w^T (x - y)) over random frequencies w. Outputs, prompts and pairs share one
draw: the angles of a pair are the sums of those of its parts. `terms` are names of fields of
`PerTerm`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.data.kernels import Gaussian, Kernel, Product
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import PerTerm, eigenvalues

DEFAULT_COUNT = 1024
# Entries of features held at once: 64 MiB of float32 for each of outputs, prompts and pairs.
_ENTRIES = 2**24
_CENTRED, _LARGEST_ANGLE = 64, 1e18

_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
Terms = tuple[str, ...]


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
    scales = [length_scale(kernel) for kernel in points.kernels]
    keys = jax.random.split(key, len(scales))
    return tuple(
        jax.random.normal(k, (count, part.shape[1]), part.dtype) / scale.astype(part.dtype)
        for k, part, scale in zip(keys, points.arrays, scales, strict=True)
    )


def _of_terms(parts: Sequence[Any], joined: Callable[[Any, Any], Any], terms: Terms) -> list[Any]:
    """The parts of outputs and prompts and, joined, of pairs: those that belong to the terms."""
    everything = [*parts, joined(*parts)] if len(parts) == 2 else list(parts)
    named = zip(PerTerm._fields, everything, strict=False)
    return [part for name, part in named if name in terms]


def fourier_map(
    points: Pairs, frequencies: tuple[jax.Array, ...], terms: Terms
) -> Callable[[tuple[jax.Array, ...]], tuple[jax.Array, ...]]:
    """A function of rows `[b, d]` of the parts: features `[b, 2 count]` of unit norm by term.

    The cosine and the sine of a frequency are neighbours.
    """
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


@functools.partial(jax.jit, static_argnames="terms")
def covariances(
    points: Pairs, frequencies: tuple[jax.Array, ...], terms: Terms
) -> tuple[jax.Array, ...]:
    """Z^T Z / n, or Z^T diag(weights) Z, of every term, a block of rows at a time.

    Of fewer rows than features, the rows of Z / sqrt(n) themselves, `[n, 2 count]`.
    """
    of_rows, n = fourier_map(points, frequencies, terms), points.n
    weights = jnp.ones(n, points.dtype) if points.weights is None else n * points.weights
    scales, shapes = jnp.sqrt(weights), jax.eval_shape(of_rows, points.arrays)
    if n < shapes[0].shape[1]:
        return tuple(z * (scales / math.sqrt(n))[:, None] for z in of_rows(points.arrays))
    size = max(1, min(n, _ENTRIES // shapes[0].shape[1]))

    def add(k: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        # The last block reaches back over its neighbour, whose rows do not count again.
        first = jnp.minimum(k * size, n - size)
        new = first + jnp.arange(size) >= k * size
        images = of_rows(
            tuple(lax.dynamic_slice_in_dim(part, first, size) for part in points.arrays)
        )
        scale = jnp.where(new, lax.dynamic_slice_in_dim(scales, first, size), 0)[:, None]
        return tuple(
            total + eigenvalues.outer_products(z * scale) / n
            for total, z in zip(sums, images, strict=True)
        )

    zeros = tuple(jnp.zeros((shape.shape[1],) * 2, shape.dtype) for shape in shapes)
    return lax.fori_loop(0, math.ceil(n / size), add, zeros)
