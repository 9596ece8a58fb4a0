"""Products of a kernel matrix with vectors, tile by tile, and the matrix itself."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.base.devices import Layout
from condvendi_jax.data.kernels import PRECISION, inner_products
from condvendi_jax.grams.fold import Block, Parts, Tiles, default_tile_size, fold_pairs, position


@jax.jit
def matvecs(tiles: Tiles, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
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

    def local(tiles: Tiles, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        block, size = tiles.block(vectors, len(tiles.subsets))

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            values = tiles.values(rows.points, columns.points, diagonal)
            row_parts = tuple(map(product, values, columns.beside))
            column_parts = None if diagonal else tuple(map(to_columns, values, rows.beside))
            return Parts(None, (row_parts,), (column_parts,))

        _, (images,) = fold_pairs(tiles.layout, size, block, tile)
        rows = tiles.factors[0].n
        inside = block.inside[:rows, None] > 0
        return tuple(jnp.where(inside, image[:rows], 0) / tiles.n for image in images)

    return tiles.on_devices(local, vectors)


@jax.jit
def row_squares_beside(
    tiles: Tiles, left: jax.Array, right: jax.Array, *, scale: jax.Array | None = None
) -> jax.Array:
    """Sums of squares along the rows of diag(w) K diag(w) / n - L R^T, `[rows]`.

    K is the one product of the tiles; L and R are `[rows, m]`, L R^T symmetric. The difference is
    taken entry by entry: where little is left of K / n, its norm keeps the digits that a
    difference of norms loses. w is `scale`, `[rows]`, or ones.
    """
    scale = jnp.ones(left.shape[0], tiles.factors[0].dtype) if scale is None else scale

    def local(tiles: Tiles, *beside: Any) -> jax.Array:
        block, size = tiles.block(beside)

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            (left, _, scale_i), (_, right, scale_j) = rows.beside, columns.beside
            weights = scale_i[:, None] * scale_j[None, :] / tiles.n
            (values,) = tiles.values(rows.points, columns.points, diagonal)
            squares = jnp.square(values * weights - inner_products(left, right))
            to_rows, to_columns = (jnp.sum(squares, axis=k) for k in (1, 0))
            return Parts(None, (to_rows,), (None if diagonal else to_columns,))

        _, (sums,) = fold_pairs(tiles.layout, size, block, tile)
        return sums[: tiles.factors[0].n]

    return tiles.on_devices(local, left, right, scale)


def _over_tiles(
    visit: Callable[..., jax.Array], carry: jax.Array, shape: tuple[int, ...], symmetric: bool
) -> jax.Array:
    """Folds `visit(carry, rows, columns)` over the tiles of a stored matrix.

    `rows` and `columns` are pairs: the index of the first row or column of the tile, and a mask
    that is false for those that the tile before has too, because the last tile reaches back over
    it. If `symmetric`, only tiles on and above the diagonal are visited.
    """
    size = math.ceil(shape[0] / math.ceil(shape[0] / default_tile_size()))
    down, across = (math.ceil(length / size) for length in shape)

    def place(k: jax.Array, length: int) -> tuple[jax.Array, jax.Array]:
        start = jnp.minimum(k * size, length - size)
        return start, start + jnp.arange(size) >= k * size

    def column(j: jax.Array, carry: jax.Array) -> jax.Array:
        def tile(i: jax.Array, carry: jax.Array) -> jax.Array:
            return visit(carry, place(i, shape[0]), place(j, shape[1]))

        return lax.fori_loop(0, j + 1 if symmetric else down, tile, carry)

    return lax.fori_loop(0, across, column, carry)


@functools.partial(jax.jit, static_argnames="layout")
def stored_row_squares_beside(
    matrix: jax.Array, left: jax.Array, right: jax.Array, *, layout: Layout | None = None
) -> jax.Array:
    """Sums of squares along the rows of K / n - L R^T, for stored K `[rows, rows]`."""
    n = matrix.shape[0] if layout is None else layout.n

    def local(_: Tiles, matrix: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
        if layout is not None:
            right = lax.all_gather(right, layout.axis, tiled=True)

        def visit(sums: jax.Array, rows: Any, columns: Any) -> jax.Array:
            (top, of_rows), (side, of_columns) = rows, columns
            cut = functools.partial(lax.dynamic_slice_in_dim, slice_size=of_rows.size)
            tile = cut(cut(matrix, top), side, axis=1)
            rest = tile / n - inner_products(cut(left, top), cut(right, side))
            squares = jnp.where(of_rows[:, None] & of_columns[None, :], jnp.square(rest), 0)
            parts = [(top, jnp.sum(squares, axis=1))]
            if layout is None:
                parts.append((side, jnp.where(top < side, jnp.sum(squares, axis=0), 0)))
            for first, part in parts:
                sums = lax.dynamic_update_slice(sums, cut(sums, first) + part, (first,))
            return sums

        sums = jnp.zeros(matrix.shape[0], matrix.dtype)
        return _over_tiles(visit, sums, matrix.shape, symmetric=layout is None)

    return Tiles((), (), layout).on_devices(local, matrix, left, right)


@jax.jit
def assemble(tiles: Tiles) -> jax.Array:
    """The one product K of the tiles as an array, tile by tile: `[rows, rows]`, by rows.

    Nothing else of its size is made. With a layout the points are gathered, and K is zero in the
    rows and columns of the padding. Not differentiable in reverse mode.
    """

    def local(tiles: Tiles) -> jax.Array:
        layout, rows, n = tiles.layout, tiles.factors[0].n, tiles.n
        points = everything = tiles.points
        if layout is not None:
            everything = lax.all_gather(points, layout.axis, tiled=True)
        width = rows * (layout.blocks if layout else 1)
        first = position(layout) * rows

        def visit(matrix: jax.Array, of_rows: Any, of_columns: Any) -> jax.Array:
            (top, mask), (side, _) = of_rows, of_columns
            cut = functools.partial(lax.dynamic_slice_in_dim, slice_size=mask.size)
            some = jax.tree.map(lambda leaf: cut(leaf, top), points)
            others = jax.tree.map(lambda leaf: cut(leaf, side), everything)
            (tile,) = tiles.values(some, others)
            along, across = first + top + jnp.arange(mask.size), side + jnp.arange(mask.size)
            tile = jnp.where(along[:, None] == across[None, :], 1, tile)
            if width > n:
                tile = jnp.where((along[:, None] < n) & (across[None, :] < n), tile, 0)
            matrix = lax.dynamic_update_slice(matrix, tile, (top, side))
            if layout is not None:
                return matrix
            return lax.dynamic_update_slice(matrix, tile.T, (side, top))

        matrix = jnp.zeros((rows, width), tiles.factors[0].dtype)
        return _over_tiles(visit, matrix, matrix.shape, symmetric=layout is None)

    return tiles.on_devices(local)
