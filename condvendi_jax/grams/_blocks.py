"""Blocks of points and the tiles between them: what all sums over pairs of points are made of.

n points are cut into blocks of equal size, the last one padded, and a pair of blocks makes a tile
of every array `[n, n]`. `tiles` goes over them on one device, `rings` between several, and
`metrics` as a stream grows.
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

_LANES = 16
_PRECISION = lax.Precision.HIGHEST

# For every product of factors, the indices of the factors.
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


def kernels_and_points(factors: Factors) -> tuple[tuple[Kernel, ...], tuple[Any, ...]]:
    """The kernels and the prepared points of the factors."""
    return tuple(f.kernel for f in factors), tuple(f.points for f in factors)


def tiling(n: int, tile_size: int) -> tuple[int, int]:
    """The number of tiles a side, and the size near `tile_size` that wastes least on padding."""
    count = math.ceil(n / tile_size)
    return count, math.ceil(n / count / _LANES) * _LANES


def pad(tree: Any, length: int) -> Any:
    """Pads the leading axis of every leaf with copies of its first entry.

    Copies, not zeros: a kernel may be undefined at zero. No result reads the padding, since sums
    run over i < j, or multiply it by zero weights.
    """

    def longer(leaf: jax.Array) -> jax.Array:
        missing = length - leaf.shape[0]
        return jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (missing, *leaf.shape[1:]))])

    return jax.tree.map(longer, tree)


def block(tree: Any, index: Any, size: int) -> Any:
    """Rows `index * size ... (index + 1) * size` of every leaf."""
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, index * size, size), tree)


def add_block(tree: Any, added: Any, index: Any, size: int) -> Any:
    """Adds a block to rows `index * size ... (index + 1) * size` of every leaf."""
    summed = jax.tree.map(jnp.add, block(tree, index, size), added)
    return jax.tree.map(
        lambda leaf, rows: lax.dynamic_update_slice_in_dim(leaf, rows, index * size, axis=0),
        tree,
        summed,
    )


def fold_upper(count: int, visit: Callable[..., Any], carry: Any) -> Any:
    """Folds `visit(i, j, carry, diagonal=...)` over the tiles on and above the diagonal.

    Tiles come in the order of max(i, j), the inner loop with a traced trip count: the arrivals of
    a block of columns are complete when the next block starts.
    """

    def column(j: jax.Array, carry: Any) -> Any:
        carry = lax.fori_loop(0, j, lambda i, inner: visit(i, j, inner, diagonal=False), carry)
        return visit(j, j, carry, diagonal=True)

    return lax.fori_loop(0, count, column, carry)


def geometries(kernels: tuple[Kernel, ...], rows: Any, columns: Any) -> tuple[Any, ...]:
    """The geometry of every factor for all pairs of a block of rows and a block of columns."""
    return tuple(
        kernel.geometry(left, right)
        for kernel, left, right in zip(kernels, rows, columns, strict=True)
    )


def kernel_tile(kernels: tuple[Kernel, ...], rows: Any, columns: Any) -> jax.Array:
    """The Hadamard product of all kernels for all pairs of two blocks of points."""
    pairs = zip(kernels, geometries(kernels, rows, columns), strict=True)
    profiles = [kernel.profile(geometry) for kernel, geometry in pairs]
    return functools.reduce(jnp.multiply, profiles)


def weighted_sums(
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

    def contracted(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        return jnp.stack(
            [lax.dot_general(weights, p, contract_rows, precision=_PRECISION) for p in products]
        )

    def summed(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        return jnp.sum(jnp.stack(products) * weights[None], axis=1)[:, None]

    if weights.shape[1] > 1:
        return contracted(weights, products)
    # A GPU's compiler writes the products of a contraction to memory and reads them again; one sum
    # of them all it takes on the way.
    return lax.platform_dependent(weights, products, cpu=contracted, default=summed)


def selected(flags: tuple[bool, ...], parts: Any) -> tuple[Any, ...]:
    """The flagged parts; None, an empty tree, in the place of the others."""
    return tuple(part if flag else None for flag, part in zip(flags, parts, strict=True))


def filled(parts: Any, defaults: Any) -> tuple[Any, ...]:
    """The parts, with the default in the place of every None."""
    return tuple(
        default if part is None else part for part, default in zip(parts, defaults, strict=True)
    )


def pairwise_sum(values: jax.Array) -> jax.Array:
    """Sums the last axis as a tree of blocks: n = 1e6 equal numbers keep float32's digits."""
    while values.shape[-1] > 1:
        width = min(128, values.shape[-1])
        padding = -values.shape[-1] % width
        values = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
        values = jnp.sum(values.reshape(*values.shape[:-1], -1, width), axis=-1)
    return values[..., 0]


def outer(left: jax.Array, right: jax.Array) -> jax.Array:
    """Inner products of the rows of `[a, m]` and `[b, m]`, `[a, b]`."""
    return lax.dot_general(left, right, (((1,), (1,)), ((), ())), precision=_PRECISION)
