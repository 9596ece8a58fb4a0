"""The representation that suits the points, and several Grams in one pass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.base.devices import Layout
from condvendi_jax.data.kernels import Cosine, Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import fold, products, sums
from condvendi_jax.grams.fold import Factors
from condvendi_jax.grams.operators import (
    DenseGram,
    FeatureGram,
    Gram,
    Operator,
    TiledGram,
    factor_of,
    tile_size_of,
)

# Up to this n a matrix takes 16 MiB in float32 and milliseconds to make; the eigenvalues need it,
# and it has derivatives of every mode.
_DENSE_UP_TO = 2048


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("factors",),
    meta_fields=("subsets", "tile_size", "layout"),
)
@dataclasses.dataclass(frozen=True)
class SharedTiles:
    """Grams that share factors, as pairs do with outputs and prompts: one pass serves them all."""

    factors: Factors  # All of them, each once.
    subsets: fold.Subsets  # The indices of the factors of each Gram.
    tile_size: int | None = None
    layout: Layout | None = None

    @classmethod
    def of(cls, grams: Sequence[Operator]) -> SharedTiles | None:
        """The tiles that the Grams share; None if one is not tiled or no two share a factor."""
        if len(grams) < 2 or not all(isinstance(gram, TiledGram) for gram in grams):
            return None
        tiled = cast("Sequence[TiledGram]", grams)
        known = {id(factor): factor for gram in tiled for factor in gram.factors()}
        if len({gram.layout for gram in tiled}) > 1 or len(known) == sum(
            len(gram.factors()) for gram in tiled
        ):
            return None
        order = list(known)
        subsets = tuple(tuple(order.index(id(f)) for f in gram.factors()) for gram in tiled)
        tile_size = tile_size_of(*tiled) or fold.default_tile_size(len(tiled))
        return cls(tuple(known.values()), subsets, tile_size, tiled[0].layout)

    def squared_frobenius_norms(self) -> jax.Array:
        """||K / n||_F^2 of every Gram."""
        return sums.squared_norms(self.factors, self.subsets, **self._options)

    def matvecs(self, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """(K / n) V of every Gram, with a V, `[n, m]` as placed, for each."""
        return products.matvecs(self.factors, self.subsets, vectors, **self._options)

    def row_squares_beside_each(
        self, lefts: tuple[jax.Array, ...], rights: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        """`Operator.row_squares_beside` of every Gram."""
        of = self.factors, self.subsets, lefts, rights
        return products.row_squares_beside(*of, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {"tile_size": self.tile_size, "layout": self.layout}


def gram(kernel: Kernel, points: ArrayLike) -> Gram:
    """The Gram of `points` under `kernel`, in a representation that suits n.

    The cosine kernel on fewer dimensions than points gives a `FeatureGram`. Otherwise a small Gram
    is a `DenseGram` and a large one a `TiledGram`. To choose between these, construct one of them.

    Args:
      kernel: a normalised kernel.
      points: embeddings `[n, d]`.

    Raises:
      TypeError, ValueError: the points are not a finite real array `[n, d]`, or the kernel is not a
        kernel or is not defined on them.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
      >>> gram = cv.gram(cv.Gaussian(0.1), points)
      >>> print(gram.eigenvalues().round(3))
      [0.5 0.5 0.  0. ]
    """
    check_kernel(kernel, name="kernel")
    array = checks.as_array(points, name="points")
    origin = checks.origin_of(array) if kernel.shift_invariant else None
    checked = checks.check_embeddings(array, name="points", origin=origin)
    if checks.is_concrete(checked, kernel):
        with jax.ensure_compile_time_eval():
            kernel.check_points(checked, name="points")
            kernel = kernel.suited_to(checked)
    return represent(kernel, checked)


def represent(
    kernel: Kernel, points: jax.Array, *, layout: Layout | None = None, in_tiles: bool = False
) -> Gram:
    """The Gram of points that are checked already, on the devices of a layout.

    `points` are `[n, d]`, or `[layout.rows, d]` where they were padded. With `in_tiles` the
    matrix of few points is not stored either.
    """
    n, dimension = points.shape[0] if layout is None else layout.n, points.shape[1]
    if isinstance(kernel, Cosine) and dimension < n:
        z = factor_of(kernel, points, layout).points
        if layout is not None:
            inside = jnp.arange(layout.rows) < n
            z = layout.constrain(jnp.where(inside[:, None], z, 0))
        return FeatureGram.trusted(z, layout)
    if layout is None and n <= _DENSE_UP_TO and not in_tiles:
        return DenseGram.from_points(kernel, points)
    return TiledGram.from_points(kernel, points, layout=layout)


@functools.partial(jax.jit, static_argnames="in_tiles")
def grams_of(pairs: Pairs, *, in_tiles: bool = False) -> tuple[Gram, ...]:
    """The Gram of the outputs and, where there are any, of the prompts, without weights.

    With `in_tiles` no matrix is stored, even of few points: the quickest way to a norm, but without
    derivatives in forward mode.
    """
    parts = zip(pairs.kernels, pairs.arrays, strict=True)
    options: Any = {"layout": pairs.layout, "in_tiles": in_tiles}
    return tuple(represent(kernel, array, **options) for kernel, array in parts)
