"""Random Fourier features in place of the kernel: approximate, in O(n D^2) time, linear in n.

They write a Gaussian kernel as the mean of cos(w^T (x - y)) over random frequencies w (Rahimi and
Recht, 2007). Outputs, prompts and pairs share one draw: the angles of a pair are the sums of those
of its parts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Gaussian
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy, PerTerm, eigenvalues
from condvendi_jax.spectra import feature_errors
from condvendi_jax.spectra.estimated import estimated
from condvendi_jax.spectra.methods import Method, Terms

DEFAULT_COUNT = 1024
# Entries of features held at once: 64 MiB of float32 for each of outputs, prompts and pairs.
_ENTRIES = 2**24
_CENTRED, _LARGEST_ANGLE = 64, 1e18


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures(Method):
    """Random Fourier features of Gaussian kernels: time and memory linear in n, at any order.

    FKEA (Ospanov et al., 2024) scores the features as they are, at order 1 too low by tenths of a
    nat. This method extrapolates to infinitely many frequencies, with intervals: narrow from order
    2 on, coarse at order 1 where many small eigenvalues matter, and coarser below.

    Points are on one device; no standard errors; not inside `jax.jit` and not differentiable. The
    time is O(n count^2 + count^3).

    Attributes:
      key: draws the frequencies, which outputs, prompts and pairs share.
      count: how many, a multiple of 8; there are twice as many features.
    """

    name: ClassVar[str] = "random-features"
    approximates: ClassVar[bool] = True
    key: jax.Array
    count: int = dataclasses.field(default=DEFAULT_COUNT, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", checks.check_key(self.key))
        count = checks.check_count(self.count, name="count", minimum=1)
        if count % feature_errors.GROUPS:
            raise ValueError(
                f"count: expected a multiple of {feature_errors.GROUPS}, received {count}."
            )

    def suited(self, points: Pairs, terms: Terms) -> RandomFeatures:
        if points.layout is not None:
            raise ValueError(
                f"method: {self.name} needs points on one device, received ones on a mesh."
            )
        if not checks.is_concrete(points):
            raise TypeError(
                f"method: {self.name} estimates, which cannot be done inside jit or vmap nor "
                "differentiated; cv.Exact() can."
            )
        for kernel in points.kernels:
            if not isinstance(kernel, Gaussian):
                raise TypeError(
                    "kernel: random Fourier features are of Gaussian kernels, received "
                    f"{kernel!r}; cv.MatrixFree(key=...) is of any kernel."
                )
        memory.check_fourier(
            points.n,
            self.count,
            points.dtype,
            terms=len(terms),
            dimensions=sum(part.shape[1] for part in points.arrays),
        )
        return self

    def of_points(self, points: Pairs, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        # The key draws the same features for every subset, so that their errors are much the same.
        self.suited(points, terms)
        drawn = draw_frequencies(points, key=self.key, count=self.count)
        matrices = covariances(points, drawn, terms)
        by_term = [feature_errors.fourier_estimates(m, wanted, points.n) for m in matrices]
        rows = zip(*by_term, strict=True)
        return [estimated(terms, row, self.name, points.dtype) for row in rows]


def draw_frequencies(points: Pairs, *, key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    """Frequencies w ~ N(0, I / bandwidth^2) of each part, `[count, d]`."""
    keys, kernels = jax.random.split(key, len(points.arrays)), cast(Any, points.kernels)
    return tuple(
        jax.random.normal(k, (count, part.shape[1]), part.dtype)
        / kernel.bandwidth.astype(part.dtype)
        for k, part, kernel in zip(keys, points.arrays, kernels, strict=True)
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
            eigenvalues.matmul(jnp.clip(part - origin[None], -limit, limit), w.T)
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
