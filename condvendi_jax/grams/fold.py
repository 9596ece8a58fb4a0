"""Sums over pairs of points, on one device or many, without an n x n array.

A Gram is a Hadamard product of factors, each a kernel on prepared points. Two blocks of points make
a tile; K is symmetric, and only tiles on and above the diagonal are evaluated. An operation
returns the contributions of a tile to a total, to the points of its rows and to those of its
columns, and `fold_pairs` visits the tiles and adds, in O(tile^2 + n d) memory. With a `Layout` each
of P devices holds a block of points, `layout.rows` in all, and copies go round a ring.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from condvendi_jax.base.devices import Layout, namespace

# At 1,024 the tiles of a pass stay in a CPU's cache; at 2,048 they do not, and it takes twice as
# long. An accelerator needs larger tiles to occupy its cores.
CPU_TILE = 1024
ACCELERATOR_TILE = 4096
# For products with several matrices at once, all their tiles should stay in the cache.
# At n = 8,192 three matrices and 16 columns take 13.3 ms for 2^20 pairs, at 1,024 they take 16.9.
_CPU_SHARED_TILE = 512
_LANES = 16  # The size of a tile is a multiple of the vector width of CPUs in float32.


class Factor(NamedTuple):
    """One factor of a Hadamard product: a kernel and its prepared points (leading axis n)."""

    kernel: Any
    points: Any

    @property
    def n(self) -> int:
        return jax.tree.leaves(self.points)[0].shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        return jax.tree.leaves(self.points)[0].dtype


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tiles:
    """Hadamard products of factors, for which one pass over the pairs of points serves them all."""

    factors: tuple[Factor, ...]  # Of points `[n, ...]` or, on a layout, `[layout.rows, ...]`.
    #: The indices of the factors of every product.
    subsets: tuple[tuple[int, ...], ...] = dataclasses.field(metadata={"static": True})
    layout: Layout | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def n(self) -> int:
        """The number of points on all devices, without the padding."""
        return self.factors[0].n if self.layout is None else self.layout.n

    @property
    def kernels(self) -> tuple[Any, ...]:
        return tuple(factor.kernel for factor in self.factors)

    @property
    def points(self) -> tuple[Any, ...]:
        return tuple(factor.points for factor in self.factors)

    def values(self, rows: Any, columns: Any, diagonal: bool = False) -> list[jax.Array]:
        """The products of kernels for all pairs of two blocks; ones on a `diagonal`."""
        triples = zip(self.kernels, rows, columns, strict=True)
        values = [kernel.cross(left, right) for kernel, left, right in triples]
        products = [functools.reduce(operator.mul, [values[f] for f in s]) for s in self.subsets]
        xp = namespace(products[0])
        ones = xp.eye(*products[0].shape, dtype=bool)
        return [xp.where(ones, 1, product) for product in products] if diagonal else products

    def block(self, beside: Any, matrices: int = 1) -> tuple["Block", int]:
        """The block of this device, with what is `beside` its points, and the side of its tiles."""
        rows = self.factors[0].n
        count = math.ceil(rows / default_tile_size(matrices))
        size = math.ceil(rows / count / _LANES) * _LANES  # With the least padding.
        length = count * size
        inside = jnp.arange(length) < rows
        if self.layout is not None:
            inside = self.layout.inside(position(self.layout), length)

        def padded(leaf: jax.Array) -> jax.Array:
            """With copies of the last entry: a kernel may be undefined at 0."""
            return jnp.pad(leaf, [(0, length - rows), *[(0, 0)] * (leaf.ndim - 1)], mode="edge")

        def zero_padded(leaf: jax.Array) -> jax.Array:
            return jnp.where(inside.reshape(-1, *(1,) * (leaf.ndim - 1)), padded(leaf), 0)

        points, beside = jax.tree.map(padded, self.points), jax.tree.map(zero_padded, beside)
        return Block(points, inside.astype(self.factors[0].dtype), beside), size

    def on_devices(self, function: Callable[..., Any], *beside: Any, shared: Any = False) -> Any:
        """Calls `function(tiles, *beside)` on the rows of each device.

        `shared`, a tree prefix, is true for results that all devices share; others lie by rows.
        """
        if self.layout is None:
            return function(self, *beside)
        lie = self.layout.spec
        factor_specs = tuple(Factor(PartitionSpec(), lie) for _ in self.factors)
        mapped = jax.shard_map(
            function,
            mesh=self.layout.mesh,
            in_specs=(dataclasses.replace(self, factors=factor_specs), *(lie,) * len(beside)),
            out_specs=jax.tree.map(lambda same: PartitionSpec() if same else lie, shared),
            # The varying axes of loop carries are not tracked: all results are sums or blocks.
            check_vma=False,
        )
        return mapped(self, *beside)


def default_tile_size(matrices: int = 1) -> int:
    """The tile size that suits the default device, for products with several matrices at once."""
    if jax.default_backend() == "cpu":
        return CPU_TILE if matrices == 1 else _CPU_SHARED_TILE
    return ACCELERATOR_TILE


def pairwise_sum(values: jax.Array) -> jax.Array:
    """Sums the last axis as a tree of blocks: n = 1e6 equal numbers keep float32's digits."""
    while values.shape[-1] > 1:
        width = min(128, values.shape[-1])
        values = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % width)])
        values = jnp.sum(values.reshape(*values.shape[:-1], -1, width), axis=-1)
    return values[..., 0]


class Block(NamedTuple):
    """The points of one device, padded to whole tiles."""

    points: tuple[Any, ...]  # The prepared points of every factor.
    inside: jax.Array  # 1 for a point, 0 for padding.
    beside: Any  # Arrays that accompany the points, zero in the padding.


#: The contributions of a tile: a tree that is summed over all tiles, trees of arrays with an entry
#: for every row, or None in place of one, and as many with an entry for every column. On a diagonal
#: tile rows and columns go to the same points.
Parts = tuple[Any, tuple[Any, ...], tuple[Any, ...]]


def cut(tree: Any, index: Any, size: int) -> Any:
    """Rows `index * size ... (index + 1) * size` of every leaf."""
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, index * size, size), tree)


def fold_pairs(
    layout: Layout | None, size: int, block: Any, tile: Callable[..., Parts]
) -> tuple[Any, tuple[Any, ...]]:
    """Sums the contributions of all tiles, over all pairs of points.

    `block` has arrays `[k * size, ...]`; `tile(rows, columns, diagonal=...)` takes two blocks of
    `size` points. The results are the shared parts summed over the tiles of this device, and the
    sums of the other parts, `[k * size, ...]`, for its points.
    """
    count = jax.tree.leaves(block)[0].shape[0] // size
    first = jax.eval_shape(lambda block: cut(block, 0, size), block)
    shared, *of_points = jax.eval_shape(functools.partial(tile, diagonal=False), first, first)
    shared = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shared)
    go, stay = jax.tree.map(lambda p: jnp.zeros((count * size, *p.shape[1:]), p.dtype), of_points)

    def add(sums: tuple[Any, ...], added: tuple[Any, ...], index: Any = 0) -> tuple[Any, ...]:
        """Adds arrays, where there are any, from row `index * size` on."""

        def add_leaf(leaf: jax.Array, block: jax.Array) -> jax.Array:
            summed = lax.dynamic_slice_in_dim(leaf, index * size, len(block)) + block
            return lax.dynamic_update_slice_in_dim(leaf, summed, index * size, axis=0)

        both = zip(sums, added, strict=True)
        return tuple(s if part is None else jax.tree.map(add_leaf, s, part) for s, part in both)

    def meet(other: Any, i: Any, j: Any, carry: Any, *, diagonal: bool = False) -> Any:
        """Adds a tile of rows of another block, or this, and columns of this."""
        shared, go, stay = carry
        more, rows, columns = tile(cut(other, i, size), cut(block, j, size), diagonal=diagonal)
        return jax.tree.map(jnp.add, shared, more), add(go, rows, i), add(stay, columns, j)

    def column(j: jax.Array, carry: Any) -> Any:
        carry = lax.fori_loop(0, j, lambda i, inner: meet(block, i, j, inner), carry)
        return meet(block, j, j, carry, diagonal=True)

    shared, near, stay = lax.fori_loop(0, count, column, (shared, go, stay))
    stay = add(stay, near)
    if layout is None or layout.blocks == 1:
        return shared, stay

    # Every unordered pair of different blocks meets once, in P / 2 hops: after h hops a device has
    # the block of the device h places ahead, with the sums of that block, which come home with it.
    def visit(other: Any, rows: tuple[Any, Any], columns: tuple[Any, Any], carry: Any) -> Any:
        def row(i: jax.Array, carry: Any) -> Any:
            return lax.fori_loop(*columns, lambda j, inner: meet(other, i, j, inner), carry)

        return lax.fori_loop(*rows, row, carry)

    def hop(_: Any, state: Any) -> Any:
        other, carry = state
        following = shift(layout, other, 1)  # The next block is under way meanwhile.
        shared, go, stay = visit(other, everything, everything, carry)
        return following, (shared, shift(layout, go, 1), stay)

    last, everything = layout.blocks // 2, (0, count)
    state = shift(layout, block, 1), (shared, go, stay)
    other, carry = lax.fori_loop(1, last, hop, state) if last > 1 else state
    rows = columns = everything
    if layout.blocks % 2 == 0:
        # In the last hop two devices hold each other's block and divide its tiles. The first takes
        # the first half of its columns, the second what is left of the same block, which visits it.
        first = position(layout) < last
        columns = (0, jnp.where(first, count // 2, count))
        rows = (jnp.where(first, 0, count // 2), count)
    shared, go, stay = visit(other, rows, columns, carry)
    return shared, add(stay, shift(layout, go, -last))


def sums_by_row(tiles: Tiles, tile: Callable[..., Any], *beside: Any, matrices: int = 1) -> Any:
    """The sums over all tiles for every row, a tree `[rows, ...]`, zero in the padding.

    `tile(tiles, rows, columns, diagonal)`, of two `Block`s, returns those of its rows and columns.
    """

    def local(tiles: Tiles, *beside: Any) -> Any:
        block, size = tiles.block(beside, matrices)

        def parts(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            to_rows, to_columns = tile(tiles, rows, columns, diagonal)
            return None, (to_rows,), (None if diagonal else to_columns,)

        def inside(leaf: jax.Array) -> jax.Array:
            there = block.inside.reshape(-1, *(1,) * (leaf.ndim - 1)) > 0
            return jnp.where(there, leaf, 0)[: tiles.factors[0].n]

        _, (sums,) = fold_pairs(tiles.layout, size, block, parts)
        return jax.tree.map(inside, sums)

    return tiles.on_devices(local, *beside)


def shift(layout: Layout, tree: Any, distance: int) -> Any:
    """The tree of the device `distance` places ahead in the ring."""
    count = layout.blocks
    pairs = [(source, (source - distance) % count) for source in range(count)]
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, layout.axis, pairs), tree)


def position(layout: Layout | None) -> Any:
    """The number of the device's block, in the dtype of loop counters."""
    return 0 if layout is None else jnp.asarray(lax.axis_index(layout.axis), int)


def geometries_of(kernels: Any, rows: Any, columns: Any) -> tuple[Any, ...]:
    """The geometry of every kernel for all pairs of a block of rows and a block of columns."""
    triples = zip(kernels, rows, columns, strict=True)
    return tuple(kernel.geometry(left, right) for kernel, left, right in triples)


def sum_over_devices(layout: Layout | None, tree: Any) -> Any:
    """The sum over all devices."""
    return tree if layout is None else lax.psum(tree, layout.axis)
