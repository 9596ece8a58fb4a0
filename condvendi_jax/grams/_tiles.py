"""The tile engine: sums over all pairs of points that never hold an n x n array.

The joint Gram of several point sets is a Hadamard product of factors, each a kernel on prepared
points. One pass over the upper-triangular tiles (I, J), I <= J, evaluates every factor once per
pair and reduces the squares of any products of factors. Memory is O(tile^2 + n d).

What is kept is not the total but, for every point j, its weighted sum over the points i < j. The
sum of these *arrivals* up to any n' is the sum over the pairs of the first n' points, so all
prefixes come out of one pass; with one-hot weights the sums are split by the group of i, which is
what a delete-group jackknife needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.grams import _blocks as blocks
from condvendi_jax.grams._blocks import Factor, Factors, Subsets
from condvendi_jax.kernels import Kernel

# Measured on CPU: at 1,024 the tiles of a pass stay in the cache; at 2,048 they do not, and the
# pass takes twice as long. An accelerator wants larger tiles to fill its cores.
CPU_TILE = 1024
ACCELERATOR_TILE = 4096
# Up to so many tiles a side, so many strips of unequal length take their place: what is no loop
# uses all cores, and nearly half of the pairs are still saved. Few points are one strip.
_STRIPS = 4
_ONE_STRIP_UP_TO = 400
_PRECISION = lax.Precision.HIGHEST


def default_tile_size() -> int:
    """The tile size that suits the default device."""
    return CPU_TILE if jax.default_backend() == "cpu" else ACCELERATOR_TILE


def _sequentially(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Makes a vmap over kernel parameters take one after the other.

    The geometry of a tile is then shared by all bandwidths, and no array of bandwidths x tile^2 is
    made: it would leave the cache.
    """
    return jax.custom_batching.sequential_vmap(function)


def arrival_sums(
    factors: Factors, subsets: Subsets, *, tile_size: int, weights: jax.Array | None = None
) -> jax.Array:
    """Weighted sums of squared kernel products over the earlier points, for every point.

    For every subset s of the factors, every column g of the weights and every point j:

        sums[s, g, j] = sum over i < j of weights[i, g] prod over f in s of k_f(i, j)^2.

    Args:
      factors: the factors of the Hadamard product, all of n points.
      subsets: for every result, the indices of the factors whose product it sums.
      tile_size: about how many points a tile has a side.
      weights: `[n, g]`; plain sums, g = 1, where None.

    Returns:
      `[len(subsets), g, n]`. Not differentiable in reverse mode: see `squared_norms`.
    """
    n, dtype = factors[0].n, factors[0].dtype
    count, size = blocks.tiling(n, tile_size)
    kernels, points = blocks.kernels_and_points(factors)
    if count <= _STRIPS:
        return _arrivals_in_strips(kernels, points, subsets, weights)
    points, padded_weights = blocks.pad(
        (points, jnp.ones((n, 1), dtype) if weights is None else weights), count * size
    )

    def visit(i: Any, j: Any, sums: jax.Array, *, diagonal: bool) -> jax.Array:
        rows, columns = (blocks.block(points, k, size) for k in (i, j))
        geometries = blocks.geometries(kernels, rows, columns)
        reduce = _sequentially(functools.partial(blocks.weighted_sums, subsets, diagonal))
        block = reduce(kernels, geometries, blocks.block(padded_weights, i, size))
        return blocks.add_block(sums, jnp.moveaxis(block, -1, 0), j, size)

    sums = jnp.zeros((count * size, len(subsets), padded_weights.shape[1]), dtype)
    return jnp.moveaxis(blocks.fold_upper(count, visit, sums)[:n], 0, -1)


def _arrivals_in_strips(
    kernels: tuple[Kernel, ...], points: Any, subsets: Subsets, weights: jax.Array | None
) -> jax.Array:
    """`arrival_sums` of few points: those of a strip at a time, from all points up to its end."""
    n = jax.tree.leaves(points)[0].shape[0]
    size = n if n <= _ONE_STRIP_UP_TO else math.ceil(n / _STRIPS)

    def sums(first: int, end: int, kernels: tuple[Kernel, ...], geometries: Any) -> jax.Array:
        earlier = jnp.arange(end)[None, :] < jnp.arange(first, end)[:, None]
        squares = [
            jnp.where(earlier, jnp.square(kernel.profile(geometry)), 0)
            for kernel, geometry in zip(kernels, geometries, strict=True)
        ]
        products = [functools.reduce(jnp.multiply, [squares[f] for f in s]) for s in subsets]
        if weights is None:
            return jnp.stack([jnp.sum(product, axis=1)[None] for product in products])
        of_rows = weights[:end]
        return jnp.stack([jnp.matmul(p, of_rows, precision=_PRECISION).T for p in products])

    found = []
    for first in range(0, n, size):
        end = min(first + size, n)
        strip = jax.tree.map(lambda leaf, first=first, end=end: leaf[first:end], points)
        everything = jax.tree.map(lambda leaf, end=end: leaf[:end], points)
        # The strip's points are rows here: sums along rows are what a CPU does fastest.
        geometries = blocks.geometries(kernels, strip, everything)
        found.append(_sequentially(functools.partial(sums, first, end))(kernels, geometries))
    return jnp.concatenate(found, axis=-1)


def squared_norms(factors: Factors, subsets: Subsets, *, tile_size: int) -> jax.Array:
    """||K_s||_F^2 / n^2 for every subset s of the factors, in one pass.

    Under reverse-mode differentiation the same pass also accumulates the gradient of every norm in
    whatever is differentiated (points, bandwidths), so that a value with its gradient costs about
    two passes and no more memory than O(tile^2 + n d).

    Args:
      factors, subsets, tile_size: as for `arrival_sums`.

    Returns:
      `[len(subsets)]`, each in [1/n, 1].
    """
    return _squared_norms(*blocks.kernels_and_points(factors), subsets, tile_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _squared_norms(
    kernels: tuple[Kernel, ...], points: Any, subsets: Subsets, tile_size: int
) -> jax.Array:
    factors = tuple(map(Factor, kernels, points))
    return _total(arrival_sums(factors, subsets, tile_size=tile_size)[:, 0])


def _total(sums: jax.Array) -> jax.Array:
    """The squared norms, over n^2, out of the arrival sums `[subset, n]`."""
    n = sums.shape[-1]
    return (2 * (blocks.pairwise_sum(sums) / n) + 1) / n


def _squared_norms_forward(
    kernels: Any, points: Any, subsets: Subsets, tile_size: int
) -> tuple[jax.Array, Any]:
    """The norms, and the gradient of each in what is perturbed, from one pass over the tiles."""
    perturbed = [
        tuple(any(leaf.perturbed for leaf in jax.tree.leaves(part)) for part in parts)
        for parts in (kernels, points)
    ]
    kernels, points = jax.tree.map(lambda leaf: leaf.value, (kernels, points))
    # A norm that holds no perturbed factor has no gradient; its products would be of zeros.
    depending = [
        s
        for s, subset in enumerate(subsets)
        if any(perturbed[0][f] or perturbed[1][f] for f in subset)
    ]
    # Nor has it one in the factors that it does not hold.
    held = {
        s: [tuple(flag and f in subsets[s] for f, flag in enumerate(part)) for part in perturbed]
        for s in depending
    }
    n = jax.tree.leaves(points)[0].shape[0]
    count, size = blocks.tiling(n, tile_size)
    padded = blocks.pad(points, count * size)
    inside = (jnp.arange(count * size) < n).astype(jax.tree.leaves(points)[0].dtype)
    ones = jnp.ones((size, 1), inside.dtype)

    def visit(i: Any, j: Any, carry: Any, *, diagonal: bool) -> Any:
        def sums(of_kernels: Any, of_rows: Any, of_columns: Any) -> jax.Array:
            geometries = blocks.geometries(
                all_kernels := blocks.filled(of_kernels, kernels),
                blocks.filled(of_rows, rows),
                blocks.filled(of_columns, columns),
            )
            return blocks.weighted_sums(subsets, diagonal, all_kernels, geometries, ones)[:, 0]

        rows, columns = (blocks.block(padded, k, size) for k in (i, j))
        active_rows, active_columns = (
            blocks.selected(perturbed[1], part) for part in (rows, columns)
        )
        block, pull_back = jax.vjp(
            sums, blocks.selected(perturbed[0], kernels), active_rows, active_columns
        )
        arrivals, gradients = carry[0], dict(carry[1])
        arrivals = blocks.add_block(arrivals, block.T, j, size)
        for s, (to_kernels, to_points) in gradients.items():
            # Columns of the padding are no results: what was copied there must not count.
            seed = jnp.zeros_like(block).at[s].set(blocks.block(inside, j, size))
            from_kernels, *from_points = pull_back(seed)
            from_kernels = blocks.selected(held[s][0], from_kernels)
            from_rows, from_columns = (blocks.selected(held[s][1], part) for part in from_points)
            to_points = blocks.add_block(to_points, from_rows, i, size)
            to_points = blocks.add_block(to_points, from_columns, j, size)
            gradients[s] = (jax.tree.map(jnp.add, to_kernels, from_kernels), to_points)
        return arrivals, gradients

    zeros = jax.tree.map(jnp.zeros_like, (kernels, padded))
    zero = {
        s: tuple(blocks.selected(flags, part) for flags, part in zip(of, zeros, strict=True))
        for s, of in held.items()
    }
    arrivals = jnp.zeros((count * size, len(subsets)), inside.dtype)
    arrivals, gradients = blocks.fold_upper(count, visit, (arrivals, zero))
    # d(norm) = d(2 sum / n^2); the padding's own rows never enter a pair with i < j < n.
    scaled = jax.tree.map(lambda leaf: leaf * (2 / n / n), gradients)
    trimmed = {s: (k, jax.tree.map(lambda leaf: leaf[:n], p)) for s, (k, p) in scaled.items()}
    return _total(arrivals[:n].T), (trimmed, kernels, points)


def _squared_norms_backward(
    subsets: Subsets, tile_size: int, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any]:
    gradients, kernels, points = residuals

    def combined(of: int, factor: int) -> Any:
        parts = [
            jax.tree.map(functools.partial(jnp.multiply, cotangent[s]), found[of][factor])
            for s, found in gradients.items()
            if found[of][factor] is not None
        ]
        return jax.tree.map(lambda *terms: sum(terms), *parts) if parts else None

    zeros = jax.tree.map(jnp.zeros_like, (kernels, points))
    factors = range(len(kernels))
    of_kernels, of_points = ([combined(of, f) for f in factors] for of in (0, 1))
    return blocks.filled(of_kernels, zeros[0]), blocks.filled(of_points, zeros[1])


_squared_norms.defvjp(_squared_norms_forward, _squared_norms_backward, symbolic_zeros=True)


def prefix_norms(factors: Factors, subsets: Subsets, *, tile_size: int) -> jax.Array:
    """||K_s||_F^2 / n'^2 of the first n' points, for every n' = 1 ... n at the cost of the last.

    Args:
      factors, subsets, tile_size: as for `arrival_sums`.

    Returns:
      `[len(subsets), n]`, where entry n' - 1 is of the first n' points.
    """
    sums = arrival_sums(factors, subsets, tile_size=tile_size)[:, 0]
    # Scanned sums add in a tree: the error grows with log n, not with n.
    totals = lax.associative_scan(jnp.add, 2 * sums + 1, axis=-1)
    sizes = jnp.arange(1, factors[0].n + 1, dtype=sums.dtype)
    return totals / jnp.square(sizes)[None]


def group_norms(
    factors: Factors, subsets: Subsets, membership: jax.Array, *, tile_size: int
) -> jax.Array:
    """||K_s||_F^2 split by the groups of the two points of a pair, in one pass.

    Args:
      factors, subsets, tile_size: as for `arrival_sums`.
      membership: `[n, g]`, one-hot: which group a point is in.

    Returns:
      `[len(subsets), g, g]`: entry (a, b) sums k(i, j)^2 over i in a and j in b, not divided by
      n^2; symmetric, and its total is the squared Frobenius norm of K_s.
    """
    sums = arrival_sums(factors, subsets, tile_size=tile_size, weights=membership)
    pairs = jnp.einsum("sgn,nh->sgh", sums, membership, precision=_PRECISION)
    sizes = jnp.sum(membership, axis=0)
    return pairs + jnp.swapaxes(pairs, -1, -2) + jnp.diag(sizes)[None]


def matvec(factors: Factors, vectors: jax.Array, *, tile_size: int) -> jax.Array:
    """(K / n) V for the Hadamard product K of all factors and vectors V `[n, m]`, tile by tile.

    Each tile above the diagonal serves twice, K_IJ and its transpose.
    """
    n = vectors.shape[0]
    count, size = blocks.tiling(n, tile_size)
    kernels, points = blocks.kernels_and_points(factors)
    padded = jnp.pad(vectors, ((0, count * size - n), (0, 0)))
    block = (blocks.pad(points, count * size), padded)
    product = functools.partial(jnp.matmul, precision=_PRECISION)

    def visit(i: Any, j: Any, out: jax.Array, *, diagonal: bool) -> jax.Array:
        (rows, left), (columns, right) = (blocks.block(block, k, size) for k in (i, j))
        tile = blocks.kernel_tile(kernels, rows, columns)
        if diagonal:
            tile = jnp.where(jnp.eye(size, dtype=bool), 1, tile)
            return blocks.add_block(out, product(tile, right), j, size)
        out = blocks.add_block(out, product(tile, right), i, size)
        return blocks.add_block(out, product(tile.T, left), j, size)

    return blocks.fold_upper(count, visit, jnp.zeros_like(padded))[:n] / n


def squared_norm_beside(
    factors: Factors, left: jax.Array, right: jax.Array, *, tile_size: int
) -> jax.Array:
    """||K / n - L R^T||_F^2 for the product K of all factors; L, R `[n, m]`, L R^T symmetric.

    The difference is taken entry by entry: where little is left of K / n, its norm keeps the
    digits that a difference of norms loses.
    """
    n = left.shape[0]
    count, size = blocks.tiling(n, tile_size)
    kernels, points = blocks.kernels_and_points(factors)
    padding = ((0, count * size - n), (0, 0))
    present = jnp.pad(jnp.ones((n, 1), left.dtype), padding)
    beside = (jnp.pad(left, padding), jnp.pad(right, padding), present)
    whole = (blocks.pad(points, count * size), *beside)

    def visit(i: Any, j: Any, sums: jax.Array, *, diagonal: bool) -> jax.Array:
        (rows, l_i, _, there_i), (columns, _, r_j, there_j) = (
            blocks.block(whole, k, size) for k in (i, j)
        )
        tile = blocks.kernel_tile(kernels, rows, columns)
        if diagonal:
            tile = jnp.where(jnp.eye(size, dtype=bool), 1, tile)
        rest = tile / n - blocks.outer(l_i, r_j)
        squares = jnp.square(rest) * there_i * there_j.T
        twice = 1 if diagonal else 2
        return blocks.add_block(sums, twice * jnp.sum(squares, axis=0), j, size)

    sums = blocks.fold_upper(count, visit, jnp.zeros(count * size, left.dtype))
    return blocks.pairwise_sum(sums)


def squared_norm_of_rows(
    matrix: jax.Array,
    left: jax.Array,
    right: jax.Array,
    *,
    n: int,
) -> jax.Array:
    """||K / n - L R^T||_F^2 over some rows of a stored K, a block of them at a time.

    Args:
      matrix: the rows of K, `[m, columns]`.
      left: L `[m, k]` at these rows.
      right: R `[columns, k]`.
      n: what K is divided by.
    """
    count = matrix.shape[0]
    size = min(count, CPU_TILE)

    def of_block(start: jax.Array) -> jax.Array:
        # The last block overlaps its neighbour: rows that were counted there do not count again.
        first = jnp.minimum(start, count - size)
        block, left_i = (lax.dynamic_slice_in_dim(part, first, size) for part in (matrix, left))
        rest = block / n - blocks.outer(left_i, right)
        new = first + jnp.arange(size) >= start
        return jnp.sum(jnp.where(new, jnp.sum(jnp.square(rest), axis=1), 0))

    return jnp.sum(lax.map(of_block, jnp.arange(math.ceil(count / size)) * size))


def assemble(factors: Factors, *, tile_size: int) -> jax.Array:
    """The Hadamard product K of all factors as an array `[n, n]`, tile by tile.

    Nothing else of that size is made. The last tiles overlap their neighbours, so that no padding
    has to be cut off, which would take a copy. Not differentiable in reverse mode.
    """
    n = factors[0].n
    count = math.ceil(n / tile_size)
    size = math.ceil(n / count)
    kernels, points = blocks.kernels_and_points(factors)
    along = jnp.arange(size)

    def visit(i: Any, j: Any, matrix: jax.Array, *, diagonal: bool) -> jax.Array:
        del diagonal  # Overlapping tiles beside the diagonal hold some of it as well.
        top, left = jnp.minimum(i * size, n - size), jnp.minimum(j * size, n - size)
        rows, columns = (
            jax.tree.map(lambda leaf, at=at: lax.dynamic_slice_in_dim(leaf, at, size), points)
            for at in (top, left)
        )
        tile = blocks.kernel_tile(kernels, rows, columns)
        same = (top + along)[:, None] == (left + along)[None, :]
        tile = jnp.where(same, 1, tile)
        matrix = lax.dynamic_update_slice(matrix, tile.T, (left, top))
        return lax.dynamic_update_slice(matrix, tile, (top, left))

    return blocks.fold_upper(count, visit, jnp.zeros((n, n), factors[0].dtype))


def bilinear_slope(
    factors: Factors, left: jax.Array, right: jax.Array, *, tile_size: int
) -> jax.Array:
    """A zero whose gradient is that of sum_ij (K / n)_ij <left_i, right_j>, K the Hadamard product.

    The sum itself is not computed: whoever differentiates an estimate knows its value already. One
    pass over the tiles above the diagonal, O(tile^2 + n (d + m)) memory, m columns.

    Args:
      factors: the factors of the product, of n points.
      left: `[n, m]`, a constant.
      right: `[n, m]`, a constant.
      tile_size: about how many points a tile has a side.
    """
    return _bilinear_slope(*blocks.kernels_and_points(factors), left, right, tile_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _bilinear_slope(
    kernels: Any, points: Any, left: jax.Array, right: jax.Array, tile_size: int
) -> jax.Array:
    del kernels, points, right, tile_size
    return jnp.zeros((), left.dtype)


def _bilinear_slope_forward(
    kernels: Any, points: Any, left: jax.Array, right: jax.Array, tile_size: int
) -> tuple[jax.Array, Any]:
    del tile_size
    return jnp.zeros((), left.dtype), (kernels, points, left, right)


def _bilinear_slope_backward(
    tile_size: int, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any, jax.Array, jax.Array]:
    kernels, points, left, right = residuals
    n = left.shape[0]
    count, size = blocks.tiling(n, tile_size)
    padded = blocks.pad(points, count * size)
    # Zero weights keep the padding out.
    weights = [jnp.pad(w, ((0, count * size - n), (0, 0))) for w in (left, right)]

    def visit(i: Any, j: Any, carry: Any, *, diagonal: bool) -> Any:
        def tile(kernels: Any, rows: Any, columns: Any) -> jax.Array:
            return blocks.kernel_tile(kernels, rows, columns)

        rows, columns = (blocks.block(padded, k, size) for k in (i, j))
        _, pull_back = jax.vjp(tile, kernels, rows, columns)
        (left_i, right_i), (left_j, right_j) = (blocks.block(weights, k, size) for k in (i, j))
        # (i, j) and (j, i) at once; the diagonal of a normalised kernel is constant.
        seed = blocks.outer(left_i, right_j) + blocks.outer(right_i, left_j)
        if diagonal:
            seed = jnp.triu(seed, 1)
        from_kernels, from_rows, from_columns = pull_back(seed)
        to_kernels, to_points = carry
        to_points = blocks.add_block(to_points, from_rows, i, size)
        to_points = blocks.add_block(to_points, from_columns, j, size)
        return jax.tree.map(jnp.add, to_kernels, from_kernels), to_points

    zeros = jax.tree.map(jnp.zeros_like, (kernels, padded))
    to_kernels, to_points = blocks.fold_upper(count, visit, zeros)
    scale = cotangent / n
    scaled = jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), (to_kernels, to_points))
    trimmed = jax.tree.map(lambda leaf: leaf[:n], scaled[1])
    return scaled[0], trimmed, jnp.zeros_like(left), jnp.zeros_like(right)


_bilinear_slope.defvjp(_bilinear_slope_forward, _bilinear_slope_backward)
