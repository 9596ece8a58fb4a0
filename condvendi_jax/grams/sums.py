"""Sums over pairs of rows, tile by tile: of squared kernels with their gradients, of products.

Also of pairs by the distance of their prompts, and nearest rows.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax.base import devices, programs
from condvendi_jax.data.kernels import PRECISION, Gaussian, Kernel, inner_products
from condvendi_jax.grams import fold
from condvendi_jax.grams.fold import Block, Factor, Parts, Tiles, fold_pairs, geometries_of

Subsets = tuple[tuple[int, ...], ...]
_CONTRACT_ROWS = (((0,), (0,)), ((), ()))
_AT_ONCE = 1 << 24  # Distances that are held at once.
_PAIRS_AT_ONCE = 1 << 12  # Pairs of rows, with all their coordinates.


def squared_products(
    subsets: Subsets, kernels: Any, geometries: Any, counted: jax.Array | None = None
) -> list[jax.Array]:
    """prod over f in s of k_f^2 for all pairs of two blocks, for every subset s of the factors.

    `geometries` are `[a, b]` for each kernel; pairs that are not `counted`, `[a, b]`, are zero.
    """
    pairs = zip(kernels, geometries, strict=True)
    squares = [jnp.square(kernel.profile(geometry)) for kernel, geometry in pairs]
    if counted is not None:
        squares = [jnp.where(counted, square, 0) for square in squares]
    return [functools.reduce(jnp.multiply, [squares[f] for f in s]) for s in subsets]


def _weighted_sums(
    subsets: Subsets, diagonal: bool, kernels: Any, geometries: Any, weights: jax.Array
) -> jax.Array:
    """Sums `weights[i, g] k(i, j)^2` over the rows of a tile, i < j, `[subset, g, column]`."""
    size = weights.shape[0]
    counted = jnp.triu(jnp.ones((size, size), bool), 1) if diagonal else None
    products = squared_products(subsets, kernels, geometries, counted)

    def contracted(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        product = functools.partial(lax.dot_general, precision=PRECISION)
        return jnp.stack([product(weights, p, _CONTRACT_ROWS) for p in products])

    def summed(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        return jnp.sum(jnp.stack(products) * weights[None], axis=1)[:, None]

    if weights.shape[1] > 1:
        return contracted(weights, products)
    # A GPU's compiler fuses a plain sum with the products, and stores them for a contraction.
    return lax.platform_dependent(weights, products, cpu=contracted, default=summed)


def _arrivals(tiles: Tiles, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sums over earlier points on one device, `[k * size, subset, g]`, and the padded weights."""
    block, size = tiles.block(weights)

    def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
        reduce = functools.partial(_weighted_sums, tiles.subsets, diagonal)
        # A vmap over kernel parameters takes one after the other, on one geometry of a tile.
        reduce = jax.custom_batching.sequential_vmap(reduce)
        geometries = geometries_of(tiles.kernels, rows.points, columns.points)
        return None, (None,), (jnp.moveaxis(reduce(tiles.kernels, geometries, rows.beside), -1, 0),)

    _, (sums,) = fold_pairs(tiles.layout, size, block, tile)
    return sums, block.beside


def _ones_unless(weights: jax.Array | None, tiles: Tiles) -> jax.Array:
    return jnp.ones(tiles.factors[0].n, tiles.factors[0].dtype) if weights is None else weights


def arrival_sums(tiles: Tiles, *, weights: jax.Array) -> jax.Array:
    """Weighted sums of squared kernel products over the earlier points, for every point.

        sums[s, g, j] = sum over i < j of weights[i, g] prod over f in s of k_f(i, j)^2

    for every subset s of the factors and weights `[n, g]`, on one device. Their sum up to any n' is
    that over the pairs of the first n' points. Not differentiable in reverse mode.
    """
    sums, _ = _arrivals(tiles, weights)
    return jnp.moveaxis(sums[: tiles.n], 0, -1)


def squared_norms(tiles: Tiles, *, weights: jax.Array | None = None) -> jax.Array:
    """||K_s||_F^2 / n^2 for every subset s of the factors, `[len(subsets)]`, in one pass.

    With `weights` w as placed, of sum one, sum_ij w_i w_j K_s(i, j)^2. In reverse mode the same
    pass accumulates the gradients of all in the points and kernels: a value with its gradient costs
    about two passes. The gradient in the weights takes another.
    """
    same = 1 / tiles.n if weights is None else jnp.sum(jnp.square(weights))
    return squares_of_others(tiles, weights=weights) + same


def squares_of_others(tiles: Tiles, *, weights: jax.Array | None = None) -> jax.Array:
    """`squared_norms` without the pairs of a point with itself."""
    sums: Any = _pair_sums(tiles, _ones_unless(weights, tiles))
    n = tiles.n if weights is None else 1
    return 2 * (sums / n) / n


@jax.jit
def row_norms(tiles: Tiles, *, weights: jax.Array | None = None) -> jax.Array:
    """sum over j != i of w_j prod over f in s of k_f(i, j)^2 for every point i.

    `[len(subsets), rows]`, in one pass; `weights` are as placed, ones where None. Zero in the
    padding, not divided by n, and not differentiable in reverse mode.
    """

    def tile(tiles: Tiles, rows: Block, columns: Block, diagonal: bool) -> tuple[Any, Any]:
        def summed(kernels: Any, geometries: Any, along: Any, down: Any) -> tuple[Any, Any]:
            counted = ~jnp.eye(along.size, dtype=bool) if diagonal else None
            products = squared_products(tiles.subsets, kernels, geometries, counted)
            to_rows = [jnp.sum(p * along[None, :], axis=1) for p in products]
            to_columns = [jnp.sum(p * down[:, None], axis=0) for p in products]
            return jnp.stack(to_rows, axis=-1), jnp.stack(to_columns, axis=-1)

        geometries = geometries_of(tiles.kernels, rows.points, columns.points)
        # As `_arrivals`: a vmap over kernels takes one after the other.
        summed = jax.custom_batching.sequential_vmap(summed)
        return summed(tiles.kernels, geometries, *columns.beside, *rows.beside)

    return fold.sums_by_row(tiles, tile, _ones_unless(weights, tiles)).T


@jax.custom_vjp
@jax.jit
def _pair_sums(tiles: Tiles, weights: jax.Array) -> jax.Array:
    """Sums over the pairs i < j of w_i w_j times squared products of kernels, `[subset]`."""

    def local(tiles: Tiles, weights: jax.Array) -> jax.Array:
        sums, columns = _arrivals(tiles, weights[:, None])
        return fold.sum_over_devices(tiles.layout, fold.pairwise_sum((sums[..., 0] * columns).T))

    return tiles.on_devices(local, weights, shared=True)


@functools.partial(jax.jit, static_argnums=2)
def _sums_and_gradients(
    tiles: Tiles, weights: jax.Array, perturbed: tuple[tuple[bool, ...], tuple[bool, ...]]
) -> tuple[jax.Array, Any, Any]:
    """The sums, and the gradients of each in the perturbed kernels and points, in one pass."""

    def selected(flags: tuple[bool, ...], parts: Any) -> tuple[Any, ...]:
        """The flagged parts; None, an empty tree, in the place of the others."""
        return tuple(part if flag else None for flag, part in zip(flags, parts, strict=True))

    def filled(parts: Any, defaults: Any) -> tuple[Any, ...]:
        pairs = zip(parts, defaults, strict=True)
        return tuple(default if part is None else part for part, default in pairs)

    def local(tiles: Tiles, weights: jax.Array) -> tuple[Any, Any, Any]:
        block, size = tiles.block(weights)

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            def total(subset: Any, *moving: Any) -> tuple[jax.Array, jax.Array]:
                kernels, *points = map(filled, moving, (tiles.kernels, rows.points, columns.points))
                geometries = geometries_of(kernels, *points)
                weights = rows.beside[:, None]
                sums = _weighted_sums((subset,), diagonal, kernels, geometries, weights)
                sums = sums[0, 0] * columns.beside
                return jnp.sum(sums), sums

            points = (selected(perturbed[1], part.points) for part in (rows, columns))
            moving = selected(perturbed[0], tiles.kernels), *points
            gradients = jax.grad(total, (1, 2, 3), has_aux=True)
            pulled, sums = zip(*[gradients(s, *moving) for s in tiles.subsets], strict=True)
            shared, to_rows, to_columns = zip(*pulled, strict=True)
            return shared, (None, to_rows), (jnp.stack(sums, axis=-1), to_columns)

        slopes, (sums, point_slopes) = fold_pairs(tiles.layout, size, block, tile)
        shared = fold.sum_over_devices(tiles.layout, (fold.pairwise_sum(sums.T), slopes))
        return *shared, fold.cut(point_slopes, 0, tiles.factors[0].n)

    return tiles.on_devices(local, weights, shared=(True, True, False))


def _pair_sums_forward(tiles: Any, weights: Any) -> tuple[jax.Array, Any]:
    def moved(part: Any) -> bool:
        return any(leaf.perturbed for leaf in jax.tree.leaves(part))

    perturbed = tuple(tuple(map(moved, parts)) for parts in (tiles.kernels, tiles.points))
    weighted = weights.perturbed
    tiles, weights = jax.tree.map(lambda leaf: leaf.value, (tiles, weights))
    sums, *gradients = _sums_and_gradients(tiles, weights, perturbed)
    weight_slopes = row_norms(tiles, weights=weights) if weighted else None
    return sums, (gradients, weight_slopes, dataclasses.replace(tiles, factors=()))


def _pair_sums_backward(residuals: Any, cotangent: jax.Array) -> tuple[Any, Any]:
    gradients, weight_slopes, empty = residuals

    def combined(*slopes: jax.Array) -> jax.Array:
        pairs = zip(cotangent, slopes, strict=True)
        return functools.reduce(jnp.add, [c.astype(slope.dtype) * slope for c, slope in pairs])

    pulled = (jax.tree.map(combined, *slopes) for slopes in gradients)
    tiles = dataclasses.replace(empty, factors=tuple(map(Factor, *pulled)))
    return tiles, None if weight_slopes is None else cotangent @ weight_slopes


_pair_sums.defvjp(_pair_sums_forward, _pair_sums_backward, symbolic_zeros=True)


@programs.compiled
def matvecs(tiles: Tiles, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """(K_s / n) V_s for every subset s of the factors and its V_s, `[rows, m]`, in one pass."""
    product = functools.partial(jnp.matmul, precision=PRECISION)

    def to_columns(tile: jax.Array, of_rows: jax.Array) -> jax.Array:
        # The barrier keeps XLA from a transposed copy: on a CPU it takes longer than the product.
        product = lax.dot_general(of_rows, tile, _CONTRACT_ROWS, precision=PRECISION)
        return lax.optimization_barrier(product).T

    def tile(tiles: Tiles, rows: Block, columns: Block, diagonal: bool) -> tuple[Any, Any]:
        values = tiles.values(rows.points, columns.points, diagonal)
        down = None if diagonal else tuple(map(to_columns, values, rows.beside))
        return tuple(map(product, values, columns.beside)), down

    images = fold.sums_by_row(tiles, tile, *vectors, matrices=len(tiles.subsets))
    return tuple(image / tiles.n for image in images)


@jax.jit
def row_squares_beside(
    tiles: Tiles, left: jax.Array, right: jax.Array, *, scale: jax.Array | None = None
) -> jax.Array:
    """Sums of squares along the rows of diag(w) K diag(w) / n - L R^T, `[rows]`.

    K is the one product of the tiles; L and R are `[rows, m]`, L R^T symmetric. The difference is
    taken entry by entry: where little is left of K / n, its norm keeps the digits that a
    difference of norms loses. w is `scale`, `[rows]`, or ones.
    """

    def tile(tiles: Tiles, rows: Block, columns: Block, diagonal: bool) -> tuple[Any, Any]:
        (left, _, scale_i), (_, right, scale_j) = rows.beside, columns.beside
        weights = scale_i[:, None] * scale_j[None, :] / tiles.n
        (values,) = tiles.values(rows.points, columns.points, diagonal)
        squares = jnp.square(values * weights - inner_products(left, right))
        return jnp.sum(squares, axis=1), jnp.sum(squares, axis=0)

    return fold.sums_by_row(tiles, tile, left, right, _ones_unless(scale, tiles))


def _over_tiles(
    visit: Callable[..., jax.Array], carry: jax.Array, shape: tuple[int, ...], symmetric: bool
) -> jax.Array:
    """Folds `visit(carry, rows, columns)` over the tiles of a stored matrix.

    `rows` and `columns` are pairs: the index of the first row or column of the tile, and a mask
    that is false for those that the tile before has too, because the last tile reaches back over
    it. If `symmetric`, only tiles on and above the diagonal are visited.
    """
    size = math.ceil(shape[0] / math.ceil(shape[0] / fold.default_tile_size()))
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
    matrix: jax.Array, left: jax.Array, right: jax.Array, *, layout: devices.Layout | None = None
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
        first = fold.position(layout) * rows

        def visit(matrix: jax.Array, of_rows: Any, of_columns: Any) -> jax.Array:
            (top, mask), (side, _) = of_rows, of_columns
            cut = functools.partial(lax.dynamic_slice_in_dim, slice_size=mask.size)
            some = jax.tree.map(lambda leaf: cut(leaf, top), points)
            (tile,) = tiles.values(some, jax.tree.map(lambda leaf: cut(leaf, side), everything))
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


def distance_kernel(points: Any) -> tuple[Gaussian, float]:
    """A kernel whose geometry is that of distances of points, and twice the square of its unit."""
    scale = float(jnp.sqrt(jnp.sum(jnp.var(points, axis=0))))
    kernel = Gaussian(scale if scale > 0 else 1.0).suited_to(points)
    return kernel, 2.0 * (1.0 if kernel.unit is None else kernel.unit) ** 2


@jax.jit
def sums_by_distance(
    tiles: Tiles, edges: jax.Array, weights: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Of each row, by the distance of its prompt to others, weights and squared kernels.

        sum over j in b of w_j,    sum over j in b of w_j k_X(i, j)^2

    for every bin b of distances, `[bins, rows]` each, in one pass. Weights and labels are as
    placed; rows of one label, -1 excepted, are no pair.

    Args:
      tiles: outputs, and prompts under a kernel whose geometry is that of distances.
      edges: the lower and upper ends of the bins as geometries, `[2, bins]`.
    """

    def tile(tiles: Tiles, rows: Block, columns: Block, diagonal: bool) -> Any:
        outputs, prompts = geometries_of(tiles.kernels, rows.points, columns.points)
        squares = jnp.square(tiles.kernels[0].profile(outputs))
        (w_rows, l_rows), (w_columns, l_columns) = rows.beside, columns.beside
        counted = (l_rows[:, None] != l_columns[None]) | (l_rows[:, None] < 0)
        if diagonal:
            counted &= ~jnp.eye(l_rows.size, dtype=bool)
        prompts = jnp.where(counted, prompts, -2)  # Below all edges.

        def of_bin(ends: jax.Array) -> tuple[jax.Array, jax.Array]:
            inside = (prompts > ends[0]) & (prompts <= ends[1])
            ones, kept = inside.astype(squares.dtype), jnp.where(inside, squares, 0)
            to_rows = [part @ w_columns for part in (ones, kept)]
            to_columns = [w_rows @ part for part in (ones, kept)]
            return jnp.stack(to_rows, -1), jnp.stack(to_columns, -1)

        return [jnp.moveaxis(part, 0, 1) for part in jax.lax.map(of_bin, edges.T)]

    sums = fold.sums_by_row(tiles, tile, weights, labels)
    return sums[..., 0].T, sums[..., 1].T


@functools.partial(jax.jit, static_argnums=3)
def _nearest(kernel: Kernel, points: Any, labels: jax.Array, count: int) -> tuple[Any, Any]:
    """The squared distances of each row to its nearest rows and their numbers, `[n, count]`."""
    n = labels.shape[0]

    def of_row(row: tuple[Any, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        point, label, number = row
        squares = kernel.geometry(jax.tree.map(lambda leaf: leaf[None], point), points)[0]
        same = (labels == label) & (label >= 0)
        squares = jnp.where(same | (jnp.arange(n) == number), jnp.inf, squares)
        least, which = jax.lax.top_k(-squares, count)
        return -least, which

    at_once = max(1, min(n, _AT_ONCE // n))
    return jax.lax.map(of_row, (points, labels, jnp.arange(n)), batch_size=at_once)


def nearest(points: Any, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The distances of each row to the nearest rows of other labels, and their numbers.

    `[n, count]` each, by rising distance, which is infinite where there are fewer. Rows labelled -1
    are near any.
    """
    count = min(count, points.shape[0] - 1)
    kernel, unit = distance_kernel(points)
    squares, which = _nearest(kernel, kernel.prepare(points), jnp.asarray(labels), count)
    return np.sqrt(unit * np.asarray(squares, np.float64)), np.asarray(which)


@jax.jit
def _squares(kernel: Kernel, left: jax.Array, right: jax.Array) -> jax.Array:
    at_once = min(left.shape[0], _PAIRS_AT_ONCE)
    return jnp.square(jax.lax.map(lambda pair: kernel(*pair), (left, right), batch_size=at_once))


def squares_of_pairs(kernel: Kernel, left: Any, right: Any) -> np.ndarray:
    """The squared kernel of each row of one array with the same row of another, `[m]`."""
    m = left.shape[0]
    padded = np.resize(np.arange(m), 1 << (m - 1).bit_length())  # So that one program serves many.
    return np.asarray(_squares(kernel, left[padded], right[padded]), np.float64)[:m]


def few_distances(points: Any, rows: int) -> np.ndarray:
    """The distances of some rows, evenly spaced, to all others, sorted; fewer rows of many."""
    n = points.shape[0]
    rows = min(rows, n, max(1, _AT_ONCE // n))
    chosen = np.unique(np.linspace(0, n - 1, rows).astype(int))
    kernel, unit = distance_kernel(points)
    prepared = kernel.prepare(points)
    some = jax.tree.map(lambda leaf: leaf[chosen], prepared)
    squares = np.array(kernel.geometry(some, prepared), np.float64)
    squares[np.arange(chosen.size), chosen] = math.inf
    return np.sqrt(unit * np.sort(squares, axis=None)[: -chosen.size])
