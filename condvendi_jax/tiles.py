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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.kernels import Kernel

# Measured on CPU: at 1,024 the tiles of a pass stay in the cache; at 2,048 they do not, and the
# pass takes twice as long. An accelerator wants larger tiles to fill its cores.
CPU_TILE = 1024
ACCELERATOR_TILE = 4096
_LANES = 16
_PRECISION = lax.Precision.HIGHEST

Subsets = tuple[tuple[int, ...], ...]


class Factor(NamedTuple):
    """One factor of a Hadamard product: a kernel and its prepared points (leading axis n)."""

    kernel: Kernel
    points: Any

    @property
    def n(self) -> int:
        """The number of points."""
        return jax.tree.leaves(self.points)[0].shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the points."""
        return jax.tree.leaves(self.points)[0].dtype


Factors = tuple[Factor, ...]


def _split(factors: Factors) -> tuple[tuple[Kernel, ...], tuple[Any, ...]]:
    """The kernels and the prepared points of the factors."""
    return tuple(f.kernel for f in factors), tuple(f.points for f in factors)


def default_tile_size() -> int:
    """The tile size that suits the default device."""
    return CPU_TILE if jax.default_backend() == "cpu" else ACCELERATOR_TILE


def _layout(n: int, tile_size: int) -> tuple[int, int]:
    """The number of tiles a side, and the size near `tile_size` that wastes least on padding."""
    count = math.ceil(n / tile_size)
    return count, math.ceil(n / count / _LANES) * _LANES


def _pad(tree: Any, length: int) -> Any:
    """Pads the leading axis of every leaf with copies of its first entry.

    Copies, not zeros: a kernel may be undefined at zero. No result reads the padding, since sums
    run over i < j, or multiply it by zero weights.
    """

    def pad(leaf: jax.Array) -> jax.Array:
        missing = length - leaf.shape[0]
        return jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (missing, *leaf.shape[1:]))])

    return jax.tree.map(pad, tree)


def _block(tree: Any, index: Any, size: int) -> Any:
    """Rows `index * size ... (index + 1) * size` of every leaf."""
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, index * size, size), tree)


def _add_block(tree: Any, block: Any, index: Any, size: int) -> Any:
    """Adds a block to rows `index * size ... (index + 1) * size` of every leaf."""
    summed = jax.tree.map(jnp.add, _block(tree, index, size), block)
    return jax.tree.map(
        lambda leaf, rows: lax.dynamic_update_slice_in_dim(leaf, rows, index * size, axis=0),
        tree,
        summed,
    )


def _fold_upper(count: int, visit: Callable[..., Any], carry: Any) -> Any:
    """Folds `visit(i, j, carry, diagonal=...)` over the tiles on and above the diagonal.

    Tiles come in the order of max(i, j), the inner loop with a traced trip count: the arrivals of
    a block of columns are complete when the next block starts.
    """

    def column(j: jax.Array, carry: Any) -> Any:
        carry = lax.fori_loop(0, j, lambda i, inner: visit(i, j, inner, diagonal=False), carry)
        return visit(j, j, carry, diagonal=True)

    return lax.fori_loop(0, count, column, carry)


def _geometries(kernels: tuple[Kernel, ...], rows: Any, columns: Any) -> tuple[Any, ...]:
    """The geometry of every factor for all pairs of a block of rows and a block of columns."""
    return tuple(
        kernel.geometry(left, right)
        for kernel, left, right in zip(kernels, rows, columns, strict=True)
    )


def _kernel_tile(kernels: tuple[Kernel, ...], rows: Any, columns: Any) -> jax.Array:
    """The Hadamard product of all kernels for all pairs of two blocks of points."""
    geometries = _geometries(kernels, rows, columns)
    profiles = [k.profile(g) for k, g in zip(kernels, geometries, strict=True)]
    return functools.reduce(jnp.multiply, profiles)


def _weighted_sums(
    subsets: Subsets,
    diagonal: bool,
    kernels: tuple[Kernel, ...],
    geometries: tuple[Any, ...],
    weights: jax.Array,
) -> jax.Array:
    """Sums `weights[i, g] k(i, j)^2` over the rows of a tile, `[subset, g, column]`.

    On a diagonal tile only rows i < j count.
    """
    squares = [
        jnp.square(kernel.profile(geometry))
        for kernel, geometry in zip(kernels, geometries, strict=True)
    ]
    if diagonal:
        above = jnp.triu(jnp.ones(squares[0].shape, bool), 1)
        squares = [jnp.where(above, square, 0) for square in squares]
    products = [functools.reduce(jnp.multiply, [squares[f] for f in s]) for s in subsets]
    contract_rows = (((0,), (0,)), ((), ()))
    return jnp.stack(
        [lax.dot_general(weights, p, contract_rows, precision=_PRECISION) for p in products]
    )


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
    count, size = _layout(n, tile_size)
    kernels, points = _split(factors)
    points, padded_weights = _pad(
        (points, jnp.ones((n, 1), dtype) if weights is None else weights), count * size
    )

    def visit(i: Any, j: Any, sums: jax.Array, *, diagonal: bool) -> jax.Array:
        geometries = _geometries(kernels, _block(points, i, size), _block(points, j, size))
        reduce = _sequentially(functools.partial(_weighted_sums, subsets, diagonal))
        block = reduce(kernels, geometries, _block(padded_weights, i, size))
        return _add_block(sums, jnp.moveaxis(block, -1, 0), j, size)

    sums = jnp.zeros((count * size, len(subsets), padded_weights.shape[1]), dtype)
    return jnp.moveaxis(_fold_upper(count, visit, sums)[:n], 0, -1)


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
    return _squared_norms(*_split(factors), subsets, tile_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _squared_norms(
    kernels: tuple[Kernel, ...], points: Any, subsets: Subsets, tile_size: int
) -> jax.Array:
    factors = tuple(map(Factor, kernels, points))
    return _total(arrival_sums(factors, subsets, tile_size=tile_size)[:, 0])


def _total(sums: jax.Array) -> jax.Array:
    """The squared norms, over n^2, out of the arrival sums `[subset, n]`."""
    n = sums.shape[-1]
    return (2 * (_pairwise_sum(sums) / n) + 1) / n


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
    n = jax.tree.leaves(points)[0].shape[0]
    count, size = _layout(n, tile_size)
    padded = _pad(points, count * size)
    inside = (jnp.arange(count * size) < n).astype(jax.tree.leaves(points)[0].dtype)
    ones = jnp.ones((size, 1), inside.dtype)

    def visit(i: Any, j: Any, carry: Any, *, diagonal: bool) -> Any:
        def sums(of_kernels: Any, of_rows: Any, of_columns: Any) -> jax.Array:
            geometries = _geometries(
                all_kernels := _fill(of_kernels, kernels),
                _fill(of_rows, rows),
                _fill(of_columns, columns),
            )
            return _weighted_sums(subsets, diagonal, all_kernels, geometries, ones)[:, 0]

        rows, columns = _block(padded, i, size), _block(padded, j, size)
        active_rows, active_columns = (_select(perturbed[1], part) for part in (rows, columns))
        block, pull_back = jax.vjp(
            sums, _select(perturbed[0], kernels), active_rows, active_columns
        )
        arrivals, gradients = carry[0], dict(carry[1])
        arrivals = _add_block(arrivals, block.T, j, size)
        for s, (to_kernels, to_points) in gradients.items():
            # Columns of the padding are no results: what was copied there must not count.
            seed = jnp.zeros_like(block).at[s].set(_block(inside, j, size))
            from_kernels, from_rows, from_columns = pull_back(seed)
            to_points = _add_block(_add_block(to_points, from_rows, i, size), from_columns, j, size)
            gradients[s] = (jax.tree.map(jnp.add, to_kernels, from_kernels), to_points)
        return arrivals, gradients

    zero = jax.tree.map(
        jnp.zeros_like, (_select(perturbed[0], kernels), _select(perturbed[1], padded))
    )
    arrivals = jnp.zeros((count * size, len(subsets)), inside.dtype)
    arrivals, gradients = _fold_upper(count, visit, (arrivals, dict.fromkeys(depending, zero)))
    # d(norm) = d(2 sum / n^2); the padding's own rows never enter a pair with i < j < n.
    scaled = jax.tree.map(lambda leaf: leaf * (2 / n / n), gradients)
    trimmed = {s: (k, jax.tree.map(lambda leaf: leaf[:n], p)) for s, (k, p) in scaled.items()}
    return _total(arrivals[:n].T), (trimmed, kernels, points)


def _squared_norms_backward(
    subsets: Subsets, tile_size: int, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any]:
    gradients, kernels, points = residuals
    combined = jax.tree.map(
        lambda *per_norm: sum(cotangent[s] * g for s, g in zip(gradients, per_norm, strict=True)),
        *gradients.values(),
    )
    zeros = jax.tree.map(jnp.zeros_like, (kernels, points))
    of_kernels, of_points = combined
    return _fill(of_kernels, zeros[0]), _fill(of_points, zeros[1])


_squared_norms.defvjp(_squared_norms_forward, _squared_norms_backward, symbolic_zeros=True)


def _select(flags: tuple[bool, ...], parts: Any) -> tuple[Any, ...]:
    """The flagged parts; None, an empty tree, in the place of the others."""
    return tuple(part if flag else None for flag, part in zip(flags, parts, strict=True))


def _fill(parts: Any, defaults: Any) -> tuple[Any, ...]:
    """The parts, with the default in the place of every None."""
    return tuple(
        default if part is None else part for part, default in zip(parts, defaults, strict=True)
    )


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


def _pairwise_sum(values: jax.Array) -> jax.Array:
    """Sums the last axis as a tree of blocks: n = 1e6 equal numbers keep float32's digits."""
    while values.shape[-1] > 1:
        width = min(128, values.shape[-1])
        padding = -values.shape[-1] % width
        values = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
        values = jnp.sum(values.reshape(*values.shape[:-1], -1, width), axis=-1)
    return values[..., 0]


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
    count, size = _layout(n, tile_size)
    kernels, points = _split(factors)
    points = _pad(points, count * size)
    padded = jnp.pad(vectors, ((0, count * size - n), (0, 0)))

    def visit(i: Any, j: Any, out: jax.Array, *, diagonal: bool) -> jax.Array:
        tile = _kernel_tile(kernels, _block(points, i, size), _block(points, j, size))
        if diagonal:
            tile = jnp.where(jnp.eye(size, dtype=bool), 1, tile)
            return _add_block(
                out, jnp.matmul(tile, _block(padded, j, size), precision=_PRECISION), j, size
            )
        right = jnp.matmul(tile, _block(padded, j, size), precision=_PRECISION)
        left = jnp.matmul(tile.T, _block(padded, i, size), precision=_PRECISION)
        return _add_block(_add_block(out, right, i, size), left, j, size)

    return _fold_upper(count, visit, jnp.zeros_like(padded))[:n] / n


def assemble(factors: Factors, *, tile_size: int) -> jax.Array:
    """The Hadamard product K of all factors as an array `[n, n]`, tile by tile.

    Nothing else of that size is made. The last tiles overlap their neighbours, so that no padding
    has to be cut off, which would take a copy. Not differentiable in reverse mode.
    """
    n = factors[0].n
    count = math.ceil(n / tile_size)
    size = math.ceil(n / count)
    kernels, points = _split(factors)
    along = jnp.arange(size)

    def visit(i: Any, j: Any, matrix: jax.Array, *, diagonal: bool) -> jax.Array:
        del diagonal  # Overlapping tiles beside the diagonal hold some of it as well.
        top, left = jnp.minimum(i * size, n - size), jnp.minimum(j * size, n - size)
        rows, columns = (
            jax.tree.map(lambda leaf, at=at: lax.dynamic_slice_in_dim(leaf, at, size), points)
            for at in (top, left)
        )
        tile = _kernel_tile(kernels, rows, columns)
        same = (top + along)[:, None] == (left + along)[None, :]
        tile = jnp.where(same, 1, tile)
        matrix = lax.dynamic_update_slice(matrix, tile.T, (left, top))
        return lax.dynamic_update_slice(matrix, tile, (top, left))

    return _fold_upper(count, visit, jnp.zeros((n, n), factors[0].dtype))


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
    return _bilinear_slope(*_split(factors), left, right, tile_size)


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
    count, size = _layout(n, tile_size)
    padded = _pad(points, count * size)
    # Zero weights keep the padding out.
    weights = [jnp.pad(w, ((0, count * size - n), (0, 0))) for w in (left, right)]

    def visit(i: Any, j: Any, carry: Any, *, diagonal: bool) -> Any:
        def tile(kernels: Any, rows: Any, columns: Any) -> jax.Array:
            return _kernel_tile(kernels, rows, columns)

        _, pull_back = jax.vjp(tile, kernels, _block(padded, i, size), _block(padded, j, size))
        (left_i, right_i), (left_j, right_j) = _block(weights, i, size), _block(weights, j, size)
        # (i, j) and (j, i) at once; the diagonal of a normalised kernel is constant.
        seed = _outer(left_i, right_j) + _outer(right_i, left_j)
        if diagonal:
            seed = jnp.triu(seed, 1)
        from_kernels, from_rows, from_columns = pull_back(seed)
        to_kernels, to_points = carry
        to_points = _add_block(_add_block(to_points, from_rows, i, size), from_columns, j, size)
        return jax.tree.map(jnp.add, to_kernels, from_kernels), to_points

    zeros = jax.tree.map(jnp.zeros_like, (kernels, padded))
    to_kernels, to_points = _fold_upper(count, visit, zeros)
    scale = cotangent / n
    scaled = jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), (to_kernels, to_points))
    trimmed = jax.tree.map(lambda leaf: leaf[:n], scaled[1])
    return scaled[0], trimmed, jnp.zeros_like(left), jnp.zeros_like(right)


def _outer(left: jax.Array, right: jax.Array) -> jax.Array:
    """Inner products of the rows of `[a, m]` and `[b, m]`, `[a, b]`."""
    return lax.dot_general(left, right, (((1,), (1,)), ((), ())), precision=_PRECISION)


_bilinear_slope.defvjp(_bilinear_slope_forward, _bilinear_slope_backward)
