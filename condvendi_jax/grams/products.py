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
    fold_rectangle,
    fold_upper,
    kernel_tile,
    kernel_tiles,
    kernels_of,
    number_of_points,
    on_devices,
    position,
    shift,
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


@functools.partial(jax.jit, static_argnames=("subsets", "tile_size", "layout"))
def matvecs(
    factors: Factors,
    subsets: Subsets,
    vectors: tuple[jax.Array, ...],
    *,
    tile_size: int | None = None,
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
        block, size = block_of(layout, factors, vectors, tile_size)

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            tiles = _unit_tiles(subsets, kernels_of(factors), rows, columns, diagonal)
            of_rows = tuple(map(product, tiles, columns.beside))
            column_parts = None if diagonal else tuple(map(to_columns, tiles, rows.beside))
            return Parts(None, (of_rows,), (column_parts,))

        _, (out,) = fold_pairs(layout, size, block, tile)
        inside, n = block.inside[: factors[0].n, None] > 0, number_of_points(factors, layout)
        return tuple(jnp.where(inside, of[: factors[0].n], 0) / n for of in out)

    return on_devices(layout, local, factors, vectors)


@functools.partial(jax.jit, static_argnames=("subsets", "tile_size", "layout"))
def row_squares_beside(
    factors: Factors,
    subsets: Subsets,
    lefts: tuple[jax.Array, ...],
    rights: tuple[jax.Array, ...],
    *,
    scale: jax.Array | None = None,
    tile_size: int | None = None,
    layout: Layout | None = None,
) -> tuple[jax.Array, ...]:
    """Sums of squares along the rows of diag(w) K_s diag(w) / n - L_s R_s^T, `[rows]` each.

    There are an L_s and an R_s, `[rows, m]`, for every subset s of the factors, and L_s R_s^T is
    symmetric. The difference is taken entry by entry: where little is left of K_s / n, its norm
    keeps the digits that a difference of norms loses. w is `scale`, `[rows]`, or ones.
    """
    scale = jnp.ones(lefts[0].shape[0], factors[0].dtype) if scale is None else scale

    def local(factors: Factors, *beside: Any) -> tuple[jax.Array, ...]:
        block, size = block_of(layout, factors, beside, tile_size)

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


@functools.partial(jax.jit, static_argnames=("tile_size", "layout"))
def assemble(
    factors: Factors, *, tile_size: int | None = None, layout: Layout | None = None
) -> jax.Array:
    """The Hadamard product K of all factors as an array, tile by tile: `[rows, rows]`, by rows.

    The last tiles overlap their neighbours: cutting padding off would take a copy of that size.
    With a layout the blocks make a full ring, and K is zero in the rows and columns of the padding.
    Not differentiable in reverse mode.
    """

    def local(factors: Factors) -> jax.Array:
        rows, kernels = factors[0].n, kernels_of(factors)
        count = math.ceil(rows / (tile_size or default_tile_size()))
        size = math.ceil(rows / count)
        points = tuple(factor.points for factor in factors)
        me = position(layout)

        def rows_from(tree: Any, start: Any) -> Any:
            return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), tree)

        def tile(origin: Any, other: Any, top: Any, left: Any) -> jax.Array:
            """Points of this device against those of a block; zero in the padding."""
            tile = kernel_tile(kernels, rows_from(points, top), rows_from(other, left))
            along, across = (k + jnp.arange(size) for k in (me * rows + top, origin * rows + left))
            tile = jnp.where(along[:, None] == across[None, :], 1, tile)
            if layout is None or layout.rows == layout.n:
                return tile
            both = (along[:, None] < layout.n) & (across[None, :] < layout.n)
            return jnp.where(both, tile, 0)

        def start(k: Any) -> jax.Array:
            return jnp.minimum(k * size, rows - size)

        def mirrored(i: Any, j: Any, matrix: jax.Array, *, diagonal: bool) -> jax.Array:
            # Overlapping tiles beside the diagonal hold some of it as well.
            top, left = start(i), start(j)
            both = tile(me, points, top, left)
            matrix = lax.dynamic_update_slice(matrix, both.T, (left, me * rows + top))
            return lax.dynamic_update_slice(matrix, both, (top, me * rows + left))

        width = rows if layout is None else layout.rows
        matrix = fold_upper(count, mirrored, jnp.zeros((rows, width), factors[0].dtype))
        if layout is None or layout.blocks == 1:
            return matrix

        def fill(origin: Any, other: Any, matrix: jax.Array) -> jax.Array:
            def meet(i: Any, j: Any, matrix: jax.Array) -> jax.Array:
                at = (start(i), origin * rows + start(j))
                block = tile(origin, other, start(i), start(j))
                return lax.dynamic_update_slice(matrix, block, at)

            return fold_rectangle((0, count), (0, count), meet, matrix)

        def hop(h: Any, carry: Any) -> Any:
            other, matrix = carry
            following = shift(ring, other, 1)
            return following, fill((me + h) % ring.blocks, other, matrix)

        ring, last = layout, layout.blocks - 1
        other, matrix = lax.fori_loop(1, last, hop, (shift(ring, points, 1), matrix))
        return fill((me + last) % ring.blocks, other, matrix)

    return on_devices(layout, local, factors)
