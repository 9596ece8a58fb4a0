"""Sums over all pairs of points that are spread over devices: blocks meet in a ring.

Each of the P devices keeps its block of points and passes a copy on (`lax.ppermute`). K is
symmetric, so that after P / 2 hops every pair of blocks has met once, and what a visiting block
gathered goes home with it. Two blocks that meet are worked on tile by tile, as in `tiles`: no
device ever holds all points, and none an n x n array.

Kernels and prepared points are given as in `tiles`, the points `[layout.rows, ...]`, as the layout
says, the padding included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from condvendi_jax.grams import _blocks as blocks
from condvendi_jax.grams import _tiles as tiles
from condvendi_jax.grams._blocks import Subsets
from condvendi_jax.grams._layouts import Layout
from condvendi_jax.kernels import Kernel

_PRECISION = lax.Precision.HIGHEST


def _on_every_device(
    layout: Layout, function: Callable[..., Any], *, whole: int, out_specs: Any
) -> Callable[..., Any]:
    """`function` of local blocks: its first `whole` arguments are replicated, the others blocks."""

    def call(*arguments: Any) -> Any:
        specs = (PartitionSpec(),) * whole + (layout.spec,) * (len(arguments) - whole)
        mapped = jax.shard_map(
            function,
            mesh=layout.mesh,
            in_specs=specs,
            out_specs=out_specs,
            # The varying axes of loop carries are not tracked: all results are psums or blocks.
            check_vma=False,
        )
        return mapped(*arguments)

    return call


def _shift(layout: Layout, tree: Any, distance: int) -> Any:
    """What the device `distance` places ahead in the ring has."""
    count = layout.blocks
    pairs = [(source, (source - distance) % count) for source in range(count)]
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, layout.axis, pairs), tree)


def _half_ring(
    layout: Layout, count: int, block: Any, visit: Callable[..., Any], stay: Any, go: Any
) -> tuple[Any, Any]:
    """Lets every unordered pair of different blocks meet once, in P / 2 hops.

    After h hops a device has the block of the device h places ahead. Hops 1 ... (P - 1) / 2 bring
    each pair together once; for an even P there is one more, P / 2, at which the two devices of a
    pair hold each other's block. They divide its tiles between them.

    The next block is under way while the present one is worked on.

    Args:
      layout: where the blocks are.
      count: how many tiles a block has a side.
      block: the device's own block, which a copy of goes round.
      visit: `visit(hop, origin, other, rows, columns, stay, go) -> (stay, go)` takes the tiles
        `rows` of the visiting block, whose index is `origin`, against the tiles `columns` of the
        device's own; both are ranges, a first and an end.
      stay: what accumulates for the device's own block, `visit` adding to it.
      go: zeros like what accumulates for a visiting block; it travels along, and returns.

    Returns:
      `stay`, and what `go` held when it came home.
    """
    size = layout.blocks
    if size == 1:
        return stay, go
    me, last, everything = _position(layout), size // 2, (0, count)

    def hop(h: Any, carry: Any) -> Any:
        other, stay, go = carry
        following = _shift(layout, other, 1)
        stay, go = visit(h, (me + h) % size, other, everything, everything, stay, go)
        return following, stay, _shift(layout, go, 1)

    carry = (_shift(layout, block, 1), stay, go)
    other, stay, go = lax.fori_loop(1, last, hop, carry) if last > 1 else carry
    rows = columns = everything
    if size % 2 == 0:
        # The first of the two devices takes the first half of its own tiles, the second what is
        # left of the same block, which is the one that visits it.
        first = me < last
        columns = (0, jnp.where(first, count // 2, count))
        rows = (jnp.where(first, 0, count // 2), count)
    stay, go = visit(last, (me + last) % size, other, rows, columns, stay, go)
    return stay, _shift(layout, go, -last)


def _fold_rectangle(
    rows: tuple[Any, Any], columns: tuple[Any, Any], visit: Callable[..., Any], carry: Any
) -> Any:
    """Folds `visit(i, j, carry)` over the tiles of the given ranges."""

    def row(i: jax.Array, carry: Any) -> Any:
        return lax.fori_loop(*columns, lambda j, inner: visit(i, j, inner), carry)

    return lax.fori_loop(*rows, row, carry)


def _position(layout: Layout) -> jax.Array:
    """Which block the device has, in the dtype of loop counters."""
    return jnp.asarray(lax.axis_index(layout.axis), int)


def _slots(layout: Layout) -> int:
    """How many partial sums a device has: one a hop, and that of its own block."""
    return layout.blocks // 2 + 1


def squared_norms(
    kernels: tuple[Kernel, ...], points: Any, *, subsets: Subsets, layout: Layout, tile_size: int
) -> jax.Array:
    """||K_s||_F^2 / n^2 for every subset s of the factors, in one half ring, `[subset]`.

    Under reverse-mode differentiation the backward pass is another half ring.
    """
    return _squared_norms(kernels, points, subsets, layout, tile_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _squared_norms(
    kernels: tuple[Kernel, ...], points: Any, subsets: Subsets, layout: Layout, tile_size: int
) -> jax.Array:
    count, size = blocks.tiling(layout.block_rows, tile_size)

    def local(kernels: tuple[Kernel, ...], points: Any) -> jax.Array:
        me = _position(layout)
        block = blocks.pad(points, count * size)
        own_inside = layout.inside(me, count * size)

        def tile(
            other: Any, inside: jax.Array, i: Any, j: Any, sums: Any, *, diagonal: bool = False
        ) -> jax.Array:
            rows, columns = blocks.block(other, i, size), blocks.block(block, j, size)
            weights = blocks.block(inside, i, size).astype(sums.dtype)[:, None]
            geometries = blocks.geometries(kernels, rows, columns)
            added = blocks.weighted_sums(subsets, diagonal, kernels, geometries, weights)
            return blocks.add_block(sums, added[:, 0].T, j, size)

        def total(sums: jax.Array) -> jax.Array:
            return blocks.pairwise_sum(jnp.where(own_inside[:, None], sums, 0).T)

        def visit(
            hop: Any, origin: Any, other: Any, rows: Any, columns: Any, totals: jax.Array, go: Any
        ) -> Any:
            meet = functools.partial(tile, other, layout.inside(origin, count * size))
            return totals.at[hop].set(total(_fold_rectangle(rows, columns, meet, zero))), go

        zero = jnp.zeros((count * size, len(subsets)), jax.tree.leaves(points)[0].dtype)
        meet = functools.partial(tile, block, own_inside)
        totals = jnp.zeros((_slots(layout), len(subsets)), zero.dtype)
        totals = totals.at[0].set(total(blocks.fold_upper(count, meet, zero)))
        totals, _ = _half_ring(layout, count, block, visit, totals, ())
        return lax.psum(blocks.pairwise_sum(totals.T), layout.axis)

    mapped = _on_every_device(layout, local, whole=1, out_specs=PartitionSpec())
    return (2 * (mapped(kernels, points) / layout.n) + 1) / layout.n


def _squared_norms_forward(
    kernels: Any, points: Any, subsets: Subsets, layout: Layout, tile_size: int
) -> tuple[Any, Any]:
    flags = [
        tuple(any(leaf.perturbed for leaf in jax.tree.leaves(part)) for part in parts)
        for parts in (kernels, points)
    ]
    kernels, points = jax.tree.map(lambda leaf: leaf.value, (kernels, points))
    active = tuple(map(blocks.selected, flags, (kernels, points)))
    norms = _squared_norms(kernels, points, subsets, layout, tile_size)
    return norms, (active, kernels, points)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _squared_norms_backward(
    subsets: Subsets, layout: Layout, tile_size: int, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any]:
    """The gradient of the norms, weighted by the cotangent `[subset]`."""
    active, kernels, points = residuals

    def weighted(
        worth: jax.Array, kernels: Any, rows: Any, columns: Any, *inside: Any, diagonal: bool
    ) -> jax.Array:
        of_rows, of_columns = inside
        geometries = blocks.geometries(kernels, rows, columns)
        sums = blocks.weighted_sums(subsets, diagonal, kernels, geometries, of_rows[:, None])
        return jnp.sum(worth[:, None, None] * sums * of_columns[None, None, :])

    inside = (jnp.arange(layout.rows) < layout.n).astype(cotangent.dtype)
    # d(norm) = d(2 sum / n^2), in two steps for the range of float32.
    worth = cotangent * (2 / layout.n / layout.n)
    found = _gradient_ring(layout, tile_size, weighted, worth, active, kernels, points, inside)
    zeros = jax.tree.map(jnp.zeros_like, (kernels, points))
    return blocks.filled(found[0], zeros[0]), blocks.filled(found[1], zeros[1])


_squared_norms.defvjp(_squared_norms_forward, _squared_norms_backward, symbolic_zeros=True)


def _gradient_ring(
    layout: Layout,
    tile_size: int,
    contribution: Callable[..., jax.Array],
    worth: jax.Array,
    active: tuple[Any, Any],
    kernels: tuple[Kernel, ...],
    points: Any,
    beside: Any,
) -> tuple[Any, Any]:
    """The gradient of a sum over all pairs of points i < j, in one half ring.

    A visiting block carries the gradient of its points with it, and brings it home.

    Args:
      layout: where the points are.
      tile_size: the side of a tile.
      contribution: `contribution(worth, kernels, rows, columns, beside_rows, beside_columns,
        diagonal=...)`, what a tile adds to the sum, a scalar: the pairs i < j of a diagonal one.
      worth: passed to it, on every device.
      active: the kernels and the points that a gradient is wanted in, None for the others.
      kernels: all of them.
      points: the prepared points `[rows, ...]` of all of them.
      beside: arrays `[rows, ...]` that go with the points and are padded with zeros.

    Returns:
      The gradients in the shape of `active`.
    """
    count, size = blocks.tiling(layout.block_rows, tile_size)
    moving = tuple(part is not None for part in active[1])

    def local(active_kernels: Any, kernels: Any, worth: Any, points: Any, beside: Any) -> Any:
        def zero_padded(leaf: jax.Array) -> jax.Array:
            missing = count * size - leaf.shape[0]
            return jnp.pad(leaf, [(0, missing), *[(0, 0)] * (leaf.ndim - 1)])

        block = (blocks.pad(points, count * size), jax.tree.map(zero_padded, beside))

        def pull_back(other: Any, i: Any, j: Any, *, diagonal: bool) -> Any:
            """The gradients of a tile in the kernels, its rows and its columns."""
            rows, beside_rows = blocks.block(other, i, size)
            columns, beside_columns = blocks.block(block, j, size)

            def value(of_kernels: Any, of_rows: Any, of_columns: Any) -> jax.Array:
                filled = map(
                    blocks.filled, (of_kernels, of_rows, of_columns), (kernels, rows, columns)
                )
                return contribution(worth, *filled, beside_rows, beside_columns, diagonal=diagonal)

            selected = (blocks.selected(moving, part) for part in (rows, columns))
            return jax.grad(value, argnums=(0, 1, 2))(active_kernels, *selected)

        def own(i: Any, j: Any, stay: Any, *, diagonal: bool) -> Any:
            of_kernels, of_rows, of_columns = pull_back(block, i, j, diagonal=diagonal)
            to_points = blocks.add_block(stay[1], of_rows, i, size)
            to_points = blocks.add_block(to_points, of_columns, j, size)
            return jax.tree.map(jnp.add, stay[0], of_kernels), to_points

        def visit(
            hop: Any, origin: Any, other: Any, rows: Any, columns: Any, stay: Any, go: Any
        ) -> Any:
            del hop, origin

            def meet(i: Any, j: Any, carry: Any) -> Any:
                (to_kernels, to_points), go = carry
                of_kernels, of_rows, of_columns = pull_back(other, i, j, diagonal=False)
                to_kernels = jax.tree.map(jnp.add, to_kernels, of_kernels)
                to_points = blocks.add_block(to_points, of_columns, j, size)
                return (to_kernels, to_points), blocks.add_block(go, of_rows, i, size)

            return _fold_rectangle(rows, columns, meet, (stay, go))

        zero = jax.tree.map(jnp.zeros_like, blocks.selected(moving, block[0]))
        stay = (jax.tree.map(jnp.zeros_like, active_kernels), zero)
        stay = blocks.fold_upper(count, own, stay)
        (to_kernels, to_points), home = _half_ring(layout, count, block, visit, stay, zero)
        to_points = jax.tree.map(lambda a, b: (a + b)[: layout.block_rows], to_points, home)
        return lax.psum(to_kernels, layout.axis), to_points

    mapped = _on_every_device(layout, local, whole=3, out_specs=(PartitionSpec(), layout.spec))
    return mapped(active[0], kernels, worth, points, beside)


def bilinear_slope(
    kernels: tuple[Kernel, ...],
    points: Any,
    left: jax.Array,
    right: jax.Array,
    *,
    layout: Layout,
    tile_size: int,
) -> jax.Array:
    """A zero whose gradient is that of sum_ij (K / n)_ij <left_i, right_j>: `tiles` has more."""
    return _bilinear_slope(kernels, points, left, right, layout, tile_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _bilinear_slope(
    kernels: Any, points: Any, left: jax.Array, right: jax.Array, layout: Layout, tile_size: int
) -> jax.Array:
    del kernels, points, right, layout, tile_size
    return jnp.zeros((), left.dtype)


def _bilinear_slope_forward(
    kernels: Any, points: Any, left: jax.Array, right: jax.Array, layout: Layout, tile_size: int
) -> tuple[jax.Array, Any]:
    del layout, tile_size
    return jnp.zeros((), left.dtype), (kernels, points, left, right)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _bilinear_slope_backward(
    layout: Layout, tile_size: int, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any, jax.Array, jax.Array]:
    kernels, points, left, right = residuals

    def weighted(
        worth: jax.Array, kernels: Any, rows: Any, columns: Any, *beside: Any, diagonal: bool
    ) -> jax.Array:
        (left_i, right_i), (left_j, right_j) = beside
        # (i, j) and (j, i) at once; the diagonal of a normalised kernel is constant.
        weights = blocks.outer(left_i, right_j) + blocks.outer(right_i, left_j)
        weights = jnp.triu(weights, 1) if diagonal else weights
        return worth * jnp.sum(blocks.kernel_tile(kernels, rows, columns) * weights)

    inside = (jnp.arange(layout.rows) < layout.n)[:, None]
    beside = tuple(jnp.where(inside, part, 0) for part in (left, right))
    worth = cotangent / layout.n
    everything = (kernels, points)
    found = _gradient_ring(layout, tile_size, weighted, worth, everything, kernels, points, beside)
    return *found, jnp.zeros_like(left), jnp.zeros_like(right)


_bilinear_slope.defvjp(_bilinear_slope_forward, _bilinear_slope_backward)


@functools.partial(jax.jit, static_argnames=("layout", "tile_size"))
def matvec(
    kernels: tuple[Kernel, ...], points: Any, vectors: jax.Array, *, layout: Layout, tile_size: int
) -> jax.Array:
    """(K / n) V for vectors `[rows, m]`; each tile serves twice, K_IJ and its transpose."""
    count, size = blocks.tiling(layout.block_rows, tile_size)
    product = functools.partial(jnp.matmul, precision=_PRECISION)

    def local(kernels: tuple[Kernel, ...], points: Any, vectors: jax.Array) -> jax.Array:
        inside = layout.inside(_position(layout), count * size)[:, None]
        padding = ((0, count * size - layout.block_rows), (0, 0))
        vectors = jnp.where(inside, jnp.pad(vectors, padding), 0)
        block = (blocks.pad(points, count * size), vectors)

        def own(i: Any, j: Any, out: jax.Array, *, diagonal: bool) -> jax.Array:
            (rows, left), (columns, right) = (blocks.block(block, k, size) for k in (i, j))
            tile = blocks.kernel_tile(kernels, rows, columns)
            if diagonal:
                tile = jnp.where(jnp.eye(size, dtype=bool), 1, tile)
                return blocks.add_block(out, product(tile, right), i, size)
            out = blocks.add_block(out, product(tile, right), i, size)
            return blocks.add_block(out, product(tile.T, left), j, size)

        def visit(
            hop: Any, origin: Any, other: Any, rows: Any, columns: Any, stay: Any, go: Any
        ) -> Any:
            del hop, origin

            def meet(i: Any, j: Any, carry: Any) -> Any:
                stay, go = carry
                rows, left = blocks.block(other, i, size)
                columns, right = blocks.block(block, j, size)
                tile = blocks.kernel_tile(kernels, rows, columns)
                stay = blocks.add_block(stay, product(tile.T, left), j, size)
                return stay, blocks.add_block(go, product(tile, right), i, size)

            return _fold_rectangle(rows, columns, meet, (stay, go))

        zero = jnp.zeros_like(vectors)
        stay = blocks.fold_upper(count, own, zero)
        stay, home = _half_ring(layout, count, block, visit, stay, zero)
        return jnp.where(inside, stay + home, 0)[: layout.block_rows] / layout.n

    mapped = _on_every_device(layout, local, whole=1, out_specs=layout.spec)
    return mapped(kernels, points, vectors)


@functools.partial(jax.jit, static_argnames=("layout", "tile_size"))
def squared_norm_beside(
    kernels: tuple[Kernel, ...],
    points: Any,
    left: jax.Array,
    right: jax.Array,
    *,
    layout: Layout,
    tile_size: int,
) -> jax.Array:
    """||K / n - L R^T||_F^2 by a half ring: `tiles` has more."""
    count, size = blocks.tiling(layout.block_rows, tile_size)
    padding = ((0, count * size - layout.block_rows), (0, 0))

    def local(
        kernels: tuple[Kernel, ...], points: Any, left: jax.Array, right: jax.Array
    ) -> jax.Array:
        present = layout.inside(_position(layout), count * size)[:, None].astype(left.dtype)
        beside = (jnp.pad(left, padding), jnp.pad(right, padding))
        block = (blocks.pad(points, count * size), *beside, present)

        def squares(one: Any, other: Any, *, diagonal: bool) -> jax.Array:
            (rows, left_i, _, there_i), (columns, _, right_j, there_j) = one, other
            tile = blocks.kernel_tile(kernels, rows, columns)
            tile = jnp.where(jnp.eye(size, dtype=bool), 1, tile) if diagonal else tile
            rest = tile / layout.n - blocks.outer(left_i, right_j)
            # Every pair but those of the diagonal tiles is met once.
            weights = there_i * there_j.T * (1 if diagonal else 2)
            return jnp.sum(weights * jnp.square(rest), axis=0)

        def own(i: Any, j: Any, sums: jax.Array, *, diagonal: bool) -> jax.Array:
            pair = (blocks.block(block, k, size) for k in (i, j))
            return blocks.add_block(sums, squares(*pair, diagonal=diagonal), j, size)

        def visit(
            hop: Any, origin: Any, other: Any, rows: Any, columns: Any, stay: Any, go: Any
        ) -> Any:
            del hop, origin

            def meet(i: Any, j: Any, sums: jax.Array) -> jax.Array:
                pair = blocks.block(other, i, size), blocks.block(block, j, size)
                return blocks.add_block(sums, squares(*pair, diagonal=False), j, size)

            return _fold_rectangle(rows, columns, meet, stay), go

        zero = jnp.zeros(count * size, left.dtype)
        sums = blocks.fold_upper(count, own, zero)
        sums, _ = _half_ring(layout, count, block, visit, sums, jnp.zeros(1, left.dtype))
        return lax.psum(blocks.pairwise_sum(sums), layout.axis)

    mapped = _on_every_device(layout, local, whole=1, out_specs=PartitionSpec())
    return mapped(kernels, points, left, right)


@functools.partial(jax.jit, static_argnames="layout")
def squared_norm_of_rows(
    matrix: jax.Array, left: jax.Array, right: jax.Array, *, layout: Layout
) -> jax.Array:
    """||K / n - L R^T||_F^2 of a stored K, every device taking its rows."""

    def local(matrix: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
        gathered = lax.all_gather(right, layout.axis, tiled=True)
        own = tiles.squared_norm_of_rows(matrix, left, gathered, n=layout.n)
        return lax.psum(own, layout.axis)

    mapped = _on_every_device(layout, local, whole=0, out_specs=PartitionSpec())
    return mapped(matrix, left, right)


@functools.partial(jax.jit, static_argnames=("layout", "tile_size"))
def matrix(
    kernels: tuple[Kernel, ...], points: Any, *, layout: Layout, tile_size: int
) -> jax.Array:
    """K `[rows, rows]`, sharded by rows, in a full ring; zero in the padding."""
    rows = layout.block_rows
    size = min(tile_size, rows)
    count = -(-rows // size)

    def local(kernels: tuple[Kernel, ...], points: Any) -> jax.Array:
        me = _position(layout)
        own_inside = layout.inside(me, rows)

        def cut(tree: Any, start: Any) -> Any:
            return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), tree)

        def fill(origin: Any, other: Any, matrix: jax.Array) -> jax.Array:
            inside = layout.inside(origin, rows)

            def meet(i: Any, j: Any, matrix: jax.Array) -> jax.Array:
                # The last tile of a side reaches back over the one before it: no padding.
                first, second = (jnp.minimum(k * size, rows - size) for k in (i, j))
                tile = blocks.kernel_tile(kernels, cut(points, first), cut(other, second))
                along = me * rows + first + jnp.arange(size)
                across = origin * rows + second + jnp.arange(size)
                tile = jnp.where(along[:, None] == across[None, :], 1, tile)
                both = cut(own_inside, first)[:, None] & cut(inside, second)[None, :]
                tile = jnp.where(both, tile, 0)
                return lax.dynamic_update_slice(matrix, tile, (first, origin * rows + second))

            return _fold_rectangle((0, count), (0, count), meet, matrix)

        def hop(h: Any, carry: Any) -> Any:
            other, matrix = carry
            following = _shift(layout, other, 1)
            return following, fill((me + h) % layout.blocks, other, matrix)

        matrix = jnp.zeros((rows, layout.rows), jax.tree.leaves(points)[0].dtype)
        last = layout.blocks - 1
        other, matrix = lax.fori_loop(0, last, hop, (points, matrix)) if last else (points, matrix)
        return fill((me + last) % layout.blocks, other, matrix)

    mapped = _on_every_device(layout, local, whole=1, out_specs=layout.spec)
    return mapped(kernels, points)
