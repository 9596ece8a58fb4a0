"""Products of a kernel matrix with vectors, tile by tile, and the matrix itself."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.base.devices import Layout
from condvendi_jax.data.kernels import PRECISION, Kernel, inner_products
from condvendi_jax.grams.fold import (
    Block,
    Factors,
    Parts,
    Subsets,
    block_of,
    default_tile_size,
    fold_pairs,
    kernel_tiles,
    kernels_of,
    number_of_points,
    on_devices,
    position,
)

_OF_A_TILE = 16  # So small a part of a tile's side are rows of a stored matrix at once: 64, cached.

# Products, and the matrix itself


def _unit_tiles(
    subsets: Subsets, kernels: tuple[Kernel, ...], rows: Block, columns: Block, diagonal: bool
) -> list[jax.Array]:
    """A tile of every product of kernels, with ones on the diagonal."""
    tiles = kernel_tiles(subsets, kernels, rows.points, columns.points)
    ones = jnp.eye(tiles[0].shape[0], dtype=bool)
    return [jnp.where(ones, 1, tile) for tile in tiles] if diagonal else tiles


@functools.partial(jax.jit, static_argnames=("subsets", "layout"))
def matvecs(
    factors: Factors,
    subsets: Subsets,
    vectors: tuple[jax.Array, ...],
    *,
    layout: Layout | None = None,
) -> tuple[jax.Array, ...]:
    """(K_s / n) V_s for every subset s of the factors, K_s their Hadamard product, in one pass.

    There is one V_s, `[rows, m]`, for every subset.
    """
    product = functools.partial(jnp.matmul, precision=PRECISION)
    contract_rows = (((0,), (0,)), ((), ()))

    def to_columns(tile: jax.Array, of_rows: jax.Array) -> jax.Array:
        """The transposed tile times the vectors."""
        # The barrier keeps XLA from a transposed copy: on a CPU it takes longer than the product.
        product = lax.dot_general(of_rows, tile, contract_rows, precision=PRECISION)
        return lax.optimization_barrier(product).T

    def local(factors: Factors, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        block, size = block_of(layout, factors, vectors, len(subsets))

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            tiles = _unit_tiles(subsets, kernels_of(factors), rows, columns, diagonal)
            of_rows = tuple(map(product, tiles, columns.beside))
            column_parts = None if diagonal else tuple(map(to_columns, tiles, rows.beside))
            return Parts(None, (of_rows,), (column_parts,))

        _, (out,) = fold_pairs(layout, size, block, tile)
        inside, n = block.inside[: factors[0].n, None] > 0, number_of_points(factors, layout)
        return tuple(jnp.where(inside, of[: factors[0].n], 0) / n for of in out)

    return on_devices(layout, local, factors, vectors)


@functools.partial(jax.jit, static_argnames=("subsets", "layout"))
def row_squares_beside(
    factors: Factors,
    subsets: Subsets,
    lefts: tuple[jax.Array, ...],
    rights: tuple[jax.Array, ...],
    *,
    scale: jax.Array | None = None,
    layout: Layout | None = None,
) -> tuple[jax.Array, ...]:
    """Sums of squares along the rows of diag(w) K_s diag(w) / n - L_s R_s^T, `[rows]` each.

    There are an L_s and an R_s, `[rows, m]`, for every subset s of the factors, and L_s R_s^T is
    symmetric. The difference is taken entry by entry: where little is left of K_s / n, its norm
    keeps the digits that a difference of norms loses. w is `scale`, `[rows]`, or ones.
    """
    scale = jnp.ones(lefts[0].shape[0], factors[0].dtype) if scale is None else scale

    def local(factors: Factors, *beside: Any) -> tuple[jax.Array, ...]:
        block, size = block_of(layout, factors, beside, len(subsets))

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            (lefts_i, _, scale_i), (_, rights_j, scale_j) = rows.beside, columns.beside
            weights = scale_i[:, None] * scale_j[None, :] / n
            tiles = _unit_tiles(subsets, kernels_of(factors), rows, columns, diagonal)
            rests = [
                jnp.square(tile * weights - inner_products(left, right))
                for tile, left, right in zip(tiles, lefts_i, rights_j, strict=True)
            ]
            to_rows, to_columns = (tuple(jnp.sum(of, axis=k) for of in rests) for k in (1, 0))
            return Parts(None, (to_rows,), (None if diagonal else to_columns,))

        _, (sums,) = fold_pairs(layout, size, block, tile)
        return tuple(of[: factors[0].n] for of in sums)

    n = number_of_points(factors, layout)
    return on_devices(layout, local, factors, lefts, rights, scale)


@functools.partial(jax.jit, static_argnames=("n", "layout"))
def stored_row_squares_beside(
    matrix: jax.Array, left: jax.Array, right: jax.Array, *, n: int, layout: Layout | None = None
) -> jax.Array:
    """Sums of squares along the rows of K / n - L R^T, for stored K `[rows, rows]`."""

    def local(_: Factors, matrix: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
        if layout is not None:
            right = lax.all_gather(right, layout.axis, tiled=True)

        def row_sum(row: tuple[jax.Array, jax.Array]) -> jax.Array:
            values, left_i = row
            approximated = jnp.matmul(right, left_i, precision=PRECISION)
            return jnp.sum(jnp.square(values / n - approximated))

        return lax.map(row_sum, (matrix, left), batch_size=default_tile_size() // _OF_A_TILE)

    return on_devices(layout, local, (), matrix, left, right)


@functools.partial(jax.jit, static_argnames="layout")
def assemble(factors: Factors, *, layout: Layout | None = None) -> jax.Array:
    """The Hadamard product K of all factors as an array, block by block: `[rows, rows]`, by rows.

    Nothing else of its size is made: the last block of rows overlaps the one before. With a layout
    the points are gathered, and K is zero in the rows and columns of the padding. Not
    differentiable in reverse mode.
    """

    def local(factors: Factors) -> jax.Array:
        rows, everyone = factors[0].n, (tuple(range(len(factors))),)
        size = min(rows, default_tile_size())
        points = everything = tuple(factor.points for factor in factors)
        if layout is not None:
            everything = lax.all_gather(points, layout.axis, tiled=True)
        n, width = number_of_points(factors, layout), rows * (layout.blocks if layout else 1)
        first, across = position(layout) * rows, jnp.arange(width)

        def fill(k: jax.Array, matrix: jax.Array) -> jax.Array:
            start = jnp.minimum(k * size, rows - size)
            some = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), points)
            (block,) = kernel_tiles(everyone, kernels_of(factors), some, everything)
            along = first + start + jnp.arange(size)
            block = jnp.where(along[:, None] == across[None, :], 1, block)
            if width > n:
                block = jnp.where((along[:, None] < n) & (across < n)[None, :], block, 0)
            return lax.dynamic_update_slice_in_dim(matrix, block, start, axis=0)

        count = math.ceil(rows / size)
        return lax.fori_loop(0, count, fill, jnp.zeros((rows, width), factors[0].dtype))

    return on_devices(layout, local, factors)
