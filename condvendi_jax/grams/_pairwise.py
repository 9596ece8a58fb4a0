"""The one engine for sums over pairs of points, on one device or many; never an n x n array.

A Gram is a Hadamard product of factors, each a kernel on prepared points. Two blocks of points make
a tile; K is symmetric, and only tiles on and above the diagonal are evaluated. An operation says
what a tile contributes to a total, to the points of its rows and to those of its columns, and
`fold_pairs` visits the tiles and adds, in O(tile^2 + n d) memory. With a `Layout` each of P devices
holds a block of points, `layout.rows` in all, and copies go round a ring: see `_half_ring`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from condvendi_jax.grams._layouts import Layout
from condvendi_jax.kernels import Kernel

# At 1,024 the tiles of a pass stay in a CPU's cache; at 2,048 they do not, and it takes twice as
# long. An accelerator needs larger tiles to occupy its cores.
CPU_TILE = 1024
ACCELERATOR_TILE = 4096
# Where products are taken with several matrices at once, all their tiles are to stay in the cache.
# At n = 8,192 three matrices and 16 columns take 13.3 ms for 2^20 pairs, at 1,024 they take 16.9.
_CPU_SHARED_TILE = 512
# With at most this many tiles a side, strips of unequal length are used instead: without a loop a
# CPU uses all cores, and nearly half of the pairs are still skipped: 3 / 8 of them with 4 strips.
# Up to the second number one strip is used. Both are choices, not limits: results do not differ.
_STRIPS = 4
_ONE_STRIP_UP_TO = 400
_LANES = 16  # The size of a tile is a multiple of the vector width of CPUs in float32.
_PRECISION = lax.Precision.HIGHEST

# For every product of factors, the indices of the factors.
Subsets = tuple[tuple[int, ...], ...]


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


Factors = tuple[Factor, ...]


def default_tile_size() -> int:
    """The tile size that suits the default device."""
    return CPU_TILE if jax.default_backend() == "cpu" else ACCELERATOR_TILE


def shared_tile_size() -> int:
    """The same where a tile is multiplied for several matrices at once."""
    return _CPU_SHARED_TILE if jax.default_backend() == "cpu" else ACCELERATOR_TILE


def tiling(n: int, tile_size: int | None) -> tuple[int, int]:
    """The number of tiles a side, and the size near `tile_size` that pads least."""
    count = math.ceil(n / (tile_size or default_tile_size()))
    return count, math.ceil(n / count / _LANES) * _LANES


def pad(tree: Any, length: int) -> Any:
    """Pads the leading axis of every leaf with its first entry: a kernel may be undefined at 0."""

    def longer(leaf: jax.Array) -> jax.Array:
        missing = length - leaf.shape[0]
        return jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (missing, *leaf.shape[1:]))])

    return jax.tree.map(longer, tree)


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


# The fold over pairs of tiles


class _Block(NamedTuple):
    """The points of one device, padded to whole tiles."""

    points: tuple[Any, ...]  # The prepared points of every factor.
    inside: jax.Array  # 1 for a point, 0 for padding.
    beside: Any  # Arrays that accompany the points, zero in the padding.


class Parts(NamedTuple):
    """What a tile contributes; on a diagonal tile rows and columns go to the same points."""

    shared: Any  # A tree that is summed over all tiles.
    rows: tuple[Any, ...]  # Trees of arrays with an entry for every row, or None in place of one.
    columns: tuple[Any, ...]  # As many, with an entry for every column.


def _cut(tree: Any, index: Any, size: int) -> Any:
    """Rows `index * size ... (index + 1) * size` of every leaf."""
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, index * size, size), tree)


def _add_block(tree: Any, added: Any, index: Any, size: int) -> Any:
    """Adds a block to rows `index * size ... (index + 1) * size` of every leaf."""

    def add(leaf: jax.Array, block: jax.Array) -> jax.Array:
        summed = _cut(leaf, index, size) + block
        return lax.dynamic_update_slice_in_dim(leaf, summed, index * size, axis=0)

    return jax.tree.map(add, tree, added)


def _fold_upper(count: int, visit: Callable[..., Any], carry: Any) -> Any:
    """Folds `visit(i, j, carry, diagonal=...)` over the tiles on and above the diagonal."""

    def column(j: jax.Array, carry: Any) -> Any:
        carry = lax.fori_loop(0, j, lambda i, inner: visit(i, j, inner, diagonal=False), carry)
        return visit(j, j, carry, diagonal=True)

    return lax.fori_loop(0, count, column, carry)


def _fold_rectangle(
    rows: tuple[Any, Any], columns: tuple[Any, Any], visit: Callable[..., Any], carry: Any
) -> Any:
    """Folds `visit(i, j, carry)` over the tiles of the given ranges."""

    def row(i: jax.Array, carry: Any) -> Any:
        return lax.fori_loop(*columns, lambda j, inner: visit(i, j, inner), carry)

    return lax.fori_loop(*rows, row, carry)


def fold_pairs(
    layout: Layout | None, size: int, block: Any, tile: Callable[..., Parts]
) -> tuple[Any, tuple[Any, ...]]:
    """Adds up what the tiles contribute, over all pairs of points.

    `block` has arrays `[k * size, ...]`; `tile(rows, columns, diagonal=...)` takes two blocks of
    `size` points. The results are `Parts.shared` summed over the tiles of this device, and the sums
    of the other parts, `[k * size, ...]`, for its points.
    """
    count = jax.tree.leaves(block)[0].shape[0] // size
    first = jax.eval_shape(lambda block: _cut(block, 0, size), block)
    parts = jax.eval_shape(functools.partial(tile, diagonal=False), first, first)
    shared = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), parts.shared)
    go, stay = jax.tree.map(
        lambda leaf: jnp.zeros((count * size, *leaf.shape[1:]), leaf.dtype),
        (parts.rows, parts.columns),
    )

    def add(sums: tuple[Any, ...], added: tuple[Any, ...], index: Any) -> tuple[Any, ...]:
        return tuple(
            whole if part is None else _add_block(whole, part, index, size)
            for whole, part in zip(sums, added, strict=True)
        )

    def own(i: Any, j: Any, carry: Any, *, diagonal: bool) -> Any:
        shared, stay = carry
        more = tile(_cut(block, i, size), _cut(block, j, size), diagonal=diagonal)
        stay = add(add(stay, more.rows, i), more.columns, j)
        return jax.tree.map(jnp.add, shared, more.shared), stay

    carry = _fold_upper(count, own, (shared, stay))
    if layout is None or layout.blocks == 1:
        return carry

    def visit(_: Any, other: Any, rows: Any, columns: Any, stay: Any, go: Any) -> Any:
        def meet(i: Any, j: Any, carry: Any) -> Any:
            (shared, stay), go = carry
            more = tile(_cut(other, i, size), _cut(block, j, size), diagonal=False)
            shared = jax.tree.map(jnp.add, shared, more.shared)
            return (shared, add(stay, more.columns, j)), add(go, more.rows, i)

        return _fold_rectangle(rows, columns, meet, (stay, go))

    (shared, stay), home = _half_ring(layout, count, block, visit, carry, go)
    returned = tuple(
        part if gathered is None else jax.tree.map(jnp.add, part, gathered)
        for part, gathered in zip(stay, home, strict=True)
    )
    return shared, returned


def _half_ring(
    layout: Layout, count: int, block: Any, visit: Callable[..., Any], stay: Any, go: Any
) -> tuple[Any, Any]:
    """Lets every unordered pair of different blocks meet once, in P / 2 hops.

    After h hops a device has the block of the device h places ahead; the next one is under way
    meanwhile. Hops 1 ... (P - 1) / 2 bring each pair together once; for an even P there is one
    more, P / 2, at which two devices hold each other's block and divide its tiles, `count` a side.

    `visit(origin, other, rows, columns, stay, go)` takes tiles `rows` of the visiting block, number
    `origin`, against `columns` of the own one. It returns `stay`, the sums of the own block, and
    `go`, those of the visitor, which come home with it.
    """
    size = layout.blocks
    me, last, everything = _position(layout), size // 2, (0, count)

    def hop(h: Any, carry: Any) -> Any:
        other, stay, go = carry
        following = _shift(layout, other, 1)
        stay, go = visit((me + h) % size, other, everything, everything, stay, go)
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
    stay, go = visit((me + last) % size, other, rows, columns, stay, go)
    return stay, _shift(layout, go, -last)


def _shift(layout: Layout, tree: Any, distance: int) -> Any:
    """What the device `distance` places ahead in the ring has."""
    count = layout.blocks
    pairs = [(source, (source - distance) % count) for source in range(count)]
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, layout.axis, pairs), tree)


def _position(layout: Layout | None) -> Any:
    """Which block the device has, in the dtype of loop counters."""
    return 0 if layout is None else jnp.asarray(lax.axis_index(layout.axis), int)


def _total(layout: Layout | None, tree: Any) -> Any:
    """The sum over all devices."""
    return tree if layout is None else lax.psum(tree, layout.axis)


def _on_devices(
    layout: Layout | None, function: Callable[..., Any], factors: Factors, *beside: Any, out: Any
) -> Any:
    """`function(factors, *beside)` of the rows of each device; `out` says how results lie."""
    if layout is None:
        return function(factors, *beside)
    of_factors = tuple(Factor(PartitionSpec(), layout.spec) for _ in factors)
    mapped = jax.shard_map(
        function,
        mesh=layout.mesh,
        in_specs=(of_factors, *(layout.spec,) * len(beside)),
        out_specs=out,
        # The varying axes of loop carries are not tracked: all results are sums or blocks.
        check_vma=False,
    )
    return mapped(factors, *beside)


def _spec(layout: Layout | None) -> Any:
    return None if layout is None else layout.spec


def _number(factors: Factors, layout: Layout | None) -> int:
    """n, without the padding."""
    return factors[0].n if layout is None else layout.n


def _block(
    layout: Layout | None, factors: Factors, beside: Any, tile_size: int | None
) -> tuple[_Block, int]:
    """The block of this device, and the side of its tiles."""
    rows = factors[0].n
    count, size = tiling(rows, tile_size)
    length = count * size
    inside = jnp.arange(length) < rows
    if layout is not None:
        inside = layout.inside(_position(layout), length)

    def zero_padded(leaf: jax.Array) -> jax.Array:
        padded = jnp.pad(leaf, [(0, length - rows), *[(0, 0)] * (leaf.ndim - 1)])
        return jnp.where(inside.reshape(-1, *(1,) * (leaf.ndim - 1)), padded, 0)

    points = pad(tuple(factor.points for factor in factors), length)
    beside = jax.tree.map(zero_padded, beside)
    return _Block(points, inside.astype(factors[0].dtype), beside), size


def _kernels(factors: Factors) -> tuple[Kernel, ...]:
    return tuple(factor.kernel for factor in factors)


def _geometries(kernels: tuple[Kernel, ...], rows: Any, columns: Any) -> tuple[Any, ...]:
    """The geometry of every factor for all pairs of a block of rows and a block of columns."""
    triples = zip(kernels, rows, columns, strict=True)
    return tuple(kernel.geometry(left, right) for kernel, left, right in triples)


def _kernel_tiles(
    subsets: Subsets, kernels: tuple[Kernel, ...], rows: Any, columns: Any
) -> list[jax.Array]:
    """The Hadamard products of subsets of the kernels for all pairs of two blocks of points."""
    pairs = zip(kernels, _geometries(kernels, rows, columns), strict=True)
    tiles = [kernel.profile(geometry) for kernel, geometry in pairs]
    return [functools.reduce(jnp.multiply, [tiles[f] for f in s]) for s in subsets]


def _kernel_tile(kernels: tuple[Kernel, ...], rows: Any, columns: Any) -> jax.Array:
    """The Hadamard product of all kernels for all pairs of two blocks of points."""
    return _kernel_tiles((tuple(range(len(kernels))),), kernels, rows, columns)[0]


def _unit_tiles(
    subsets: Subsets, kernels: tuple[Kernel, ...], rows: _Block, columns: _Block, diagonal: bool
) -> list[jax.Array]:
    """A tile of every product of kernels, with ones on the diagonal."""
    tiles = _kernel_tiles(subsets, kernels, rows.points, columns.points)
    ones = jnp.eye(tiles[0].shape[0], dtype=bool)
    return [jnp.where(ones, 1, tile) for tile in tiles] if diagonal else tiles


# Squared norms


def squared_products(
    subsets: Subsets, kernels: tuple[Kernel, ...], geometries: Any, counted: jax.Array | None
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
    subsets: Subsets,
    diagonal: bool,
    kernels: tuple[Kernel, ...],
    geometries: tuple[Any, ...],
    weights: jax.Array,
) -> jax.Array:
    """Sums `weights[i, g] k(i, j)^2` over the rows of a tile, `[subset, g, column]`.

    On a diagonal tile only rows i < j count.
    """
    size = weights.shape[0]
    counted = jnp.triu(jnp.ones((size, size), bool), 1) if diagonal else None
    products = squared_products(subsets, kernels, geometries, counted)
    contract_rows = (((0,), (0,)), ((), ()))

    def contracted(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        return jnp.stack(
            [lax.dot_general(weights, p, contract_rows, precision=_PRECISION) for p in products]
        )

    def summed(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        return jnp.sum(jnp.stack(products) * weights[None], axis=1)[:, None]

    if weights.shape[1] > 1:
        return contracted(weights, products)
    # For a contraction, a GPU's compiler writes the products to memory and reads them again; a
    # plain sum it fuses with them.
    return lax.platform_dependent(weights, products, cpu=contracted, default=summed)


# Makes a vmap over kernel parameters take one after the other, on one geometry of a tile.
_sequentially = jax.custom_batching.sequential_vmap


def _arrivals(
    layout: Layout | None, factors: Factors, subsets: Subsets, weights: Any, tile_size: int | None
) -> tuple[jax.Array, jax.Array]:
    """`arrival_sums` on one device, `[k * size, subset, g]`, and the weights of its points."""
    block, size = _block(layout, factors, weights, tile_size)
    kernels = _kernels(factors)

    def tile(rows: _Block, columns: _Block, *, diagonal: bool) -> Parts:
        reduce = _sequentially(functools.partial(_weighted_sums, subsets, diagonal))
        weights = rows.inside[:, None] if rows.beside is None else rows.beside
        sums = reduce(kernels, _geometries(kernels, rows.points, columns.points), weights)
        return Parts(None, (None,), (jnp.moveaxis(sums, -1, 0),))

    _, (sums,) = fold_pairs(layout, size, block, tile)
    return sums, _mass(block)


def _mass(block: _Block) -> jax.Array:
    """The weight of each point, zero in the padding: the first that accompany them, or ones."""
    return (
        block.inside if block.beside is None else block.beside.reshape(block.inside.size, -1)[:, 0]
    )


def _weighted_total(sums: jax.Array, mass: jax.Array) -> jax.Array:
    """Weights `[rows]` times sums `[rows, subset]`, summed over points; the padding weighs zero."""
    return pairwise_sum(jnp.where(mass[:, None] > 0, sums * mass[:, None], 0).T)


def arrival_sums(
    factors: Factors,
    subsets: Subsets,
    *,
    tile_size: int | None = None,
    weights: jax.Array | None = None,
) -> jax.Array:
    """Weighted sums of squared kernel products over the earlier points, for every point.

    For every subset s of the factors, every column g of the weights and every point j:

        sums[s, g, j] = sum over i < j of weights[i, g] prod over f in s of k_f(i, j)^2.

    Their sum up to any n' is the sum over the pairs of the first n' points, so that all prefixes
    come out of one pass. One-hot weights split the sums by the group of i. `weights` are `[n, g]`,
    ones where None, and the result is `[len(subsets), g, n]`. It is not differentiable in reverse
    mode: see `squared_norms`.
    """
    n = factors[0].n
    if tiling(n, tile_size)[0] <= _STRIPS:
        return _arrivals_in_strips(factors, subsets, weights)
    sums, _ = _arrivals(None, factors, subsets, weights, tile_size)
    return jnp.moveaxis(sums[:n], 0, -1)


def _arrivals_in_strips(factors: Factors, subsets: Subsets, weights: jax.Array | None) -> jax.Array:
    """`arrival_sums` of few points: a strip of them at a time, against all points up to its end."""
    n = factors[0].n
    kernels, points = _kernels(factors), tuple(factor.points for factor in factors)
    size = n if n <= _ONE_STRIP_UP_TO else math.ceil(n / _STRIPS)

    def sums(first: int, end: int, kernels: tuple[Kernel, ...], geometries: Any) -> jax.Array:
        earlier = jnp.arange(end)[None, :] < jnp.arange(first, end)[:, None]
        products = squared_products(subsets, kernels, geometries, earlier)
        if weights is None:
            return jnp.stack([jnp.sum(product, axis=1)[None] for product in products])
        of_rows = weights[:end]
        return jnp.stack([jnp.matmul(p, of_rows, precision=_PRECISION).T for p in products])

    strips = []
    for first in range(0, n, size):
        end = min(first + size, n)
        strip = jax.tree.map(lambda leaf, first=first, end=end: leaf[first:end], points)
        everything = jax.tree.map(lambda leaf, end=end: leaf[:end], points)
        # The strip's points are rows here: a CPU is fastest at sums along rows.
        geometries = _geometries(kernels, strip, everything)
        strips.append(_sequentially(functools.partial(sums, first, end))(kernels, geometries))
    return jnp.concatenate(strips, axis=-1)


def squared_norms(
    factors: Factors,
    subsets: Subsets,
    *,
    weights: jax.Array | None = None,
    tile_size: int | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """||K_s||_F^2 / n^2 for every subset s of the factors, `[len(subsets)]`, in one pass.

    With `weights` w as placed, of sum one, sum_ij w_i w_j K_s(i, j)^2. In reverse mode the same
    pass accumulates the gradients of all in the points and kernels: a value with its gradient costs
    about two passes. The gradient in the weights takes another.
    """
    options: Any = {"weights": weights, "tile_size": tile_size, "layout": layout}
    own = 1 / _number(factors, layout) if weights is None else jnp.sum(jnp.square(weights))
    return squares_of_others(factors, subsets, **options) + own


def squares_of_others(
    factors: Factors,
    subsets: Subsets,
    *,
    weights: jax.Array | None = None,
    tile_size: int | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """`squared_norms` without the pairs of a point with itself."""
    sums: Any = _pair_sums(factors, weights, subsets, layout, tile_size)
    if weights is not None:
        return 2 * sums
    n = _number(factors, layout)
    return 2 * (sums / n) / n


@functools.partial(jax.jit, static_argnames=("subsets", "size"))
def strip_sums(
    kernels: tuple[Kernel, ...],
    points: tuple[Any, ...],
    subsets: Subsets,
    weights: jax.Array,
    strip: jax.Array,
    size: int,
) -> jax.Array:
    """`arrival_sums` of the points `strip * size ... (strip + 1) * size`, `[len(subsets), size]`.

    One program for all strips. The prepared points and the weights are padded to whole strips,
    `[k * size, ...]`, the weights with zeros.
    """
    columns = _cut(points, strip, size)

    def add(i: jax.Array, sums: jax.Array, *, diagonal: bool = False) -> jax.Array:
        rows, mass = _cut((points, weights[:, None]), i, size)
        geometries = _geometries(kernels, rows, columns)
        return sums + _weighted_sums(subsets, diagonal, kernels, geometries, mass)[:, 0]

    sums = lax.fori_loop(0, strip, add, jnp.zeros((len(subsets), size), weights.dtype))
    return add(strip, sums, diagonal=True)


def prefix_norms(
    factors: Factors,
    subsets: Subsets,
    *,
    weights: jax.Array | None = None,
    tile_size: int | None = None,
) -> jax.Array:
    """||K_s||_F^2 / n'^2 of the first n' points, n' = 1 ... n, `[len(subsets), n]`, in one pass.

    With `weights` w `[n]`, sum_ij w_i w_j K_s(i, j)^2 / (sum_i w_i)^2.
    """
    columns = None if weights is None else weights[:, None]
    sums = arrival_sums(factors, subsets, tile_size=tile_size, weights=columns)[:, 0]
    # Scanned sums add in a tree: the error grows with log n, not with n.
    scan = functools.partial(lax.associative_scan, jnp.add, axis=-1)
    if weights is None:
        sizes = jnp.arange(1, factors[0].n + 1, dtype=sums.dtype)
        return scan(2 * sums + 1) / jnp.square(sizes)[None]
    totals = scan((2 * sums + weights[None, :]) * weights[None, :])
    return totals / jnp.square(scan(weights))[None]


@functools.partial(jax.jit, static_argnames=("subsets", "tile_size", "layout", "own"))
def row_norms(
    factors: Factors,
    subsets: Subsets,
    *,
    own: bool = True,
    weights: jax.Array | None = None,
    tile_size: int | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """sum_j w_j prod over f in s of k_f(i, j)^2 for every point i, `[len(subsets), rows]`.

    One pass; `weights` are as placed, ones where None. With the pair of a point with itself only
    where `own`. Zero in the padding, not divided by n, and not differentiable in reverse mode.
    """

    def local(factors: Factors, weights: jax.Array) -> jax.Array:
        block, size = _block(layout, factors, weights, tile_size)
        kernels = _kernels(factors)

        def tile(rows: _Block, columns: _Block, *, diagonal: bool) -> Parts:
            geometries = _geometries(kernels, rows.points, columns.points)
            counted = ~jnp.eye(size, dtype=bool) if diagonal else None
            products = squared_products(subsets, kernels, geometries, counted)
            to_rows = [jnp.sum(p * columns.beside[None, :], axis=1) for p in products]
            to_columns = [jnp.sum(p * rows.beside[:, None], axis=0) for p in products]
            stacked = (jnp.stack(parts, axis=-1) for parts in (to_rows, to_columns))
            of_rows, of_columns = stacked
            return Parts(None, (of_rows,), (None if diagonal else of_columns,))

        _, (sums,) = fold_pairs(layout, size, block, tile)
        sums = sums + block.beside[:, None] if own else sums
        sums = jnp.where(block.inside[:, None] > 0, sums, 0)
        return sums[: factors[0].n]

    given = jnp.ones(factors[0].n, factors[0].dtype) if weights is None else weights
    return _on_devices(layout, local, factors, given, out=_spec(layout)).T


def row_squares(factors: Factors, subsets: Subsets, row: jax.Array) -> jax.Array:
    """prod over f in s of k_f(row, j)^2 for every point j, `[len(subsets), n]`."""
    points = tuple(factor.points for factor in factors)
    kernels, one = _kernels(factors), _cut(points, row, 1)
    products = squared_products(subsets, kernels, _geometries(kernels, one, points), None)
    return jnp.stack(products)[:, 0]


def bilinear_slope(
    factors: Factors,
    left: jax.Array,
    right: jax.Array,
    *,
    tile_size: int | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """A zero whose gradient is that of sum_ij (K / n)_ij <left_i, right_j>, K the Hadamard product.

    `left` and `right` are constants, `[n, m]` or as placed by the layout.
    """
    subsets = (tuple(range(len(factors))),)
    zeros: Any = _pair_sums(factors, (left, right), subsets, layout, tile_size)
    return zeros[0] / _number(factors, layout)


# The derivative of sums over pairs


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _pair_sums(
    factors: Factors, beside: Any, subsets: Subsets, layout: Layout | None, tile_size: int | None
) -> jax.Array:
    """Sums over the pairs i < j for every subset of the factors, `[subset]`.

    Without `beside`, of the squared products of kernels; with weights w `[rows]`, of w_i w_j times
    these. With `beside = (left, right)`, zeros with the gradient of the sum over all pairs of
    K_ij <left_i, right_j>.
    """
    if isinstance(beside, tuple):
        return jnp.zeros(len(subsets), factors[0].dtype)
    return _squared_sums(factors, beside, subsets, layout, tile_size)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _squared_sums(
    factors: Factors,
    weights: jax.Array | None,
    subsets: Subsets,
    layout: Layout | None,
    tile_size: int | None,
) -> jax.Array:
    columns = None if weights is None else weights[:, None]
    if layout is None:
        sums = arrival_sums(factors, subsets, tile_size=tile_size, weights=columns)[:, 0]
        return pairwise_sum(sums if weights is None else sums * weights[None, :])

    def local(factors: Factors, *columns: jax.Array) -> jax.Array:
        sums, mass = _arrivals(layout, factors, subsets, columns[0] if columns else None, tile_size)
        return _total(layout, _weighted_total(sums[..., 0], mass))

    beside = () if columns is None else (columns,)
    return _on_devices(layout, local, factors, *beside, out=PartitionSpec())


def _column_sums(
    subsets: Subsets, diagonal: bool, kernels: tuple[Kernel, ...], rows: _Block, columns: _Block
) -> jax.Array:
    """What the rows of a tile add to `_pair_sums` for each of its columns, `[subset, column]`."""
    if not isinstance(rows.beside, tuple):
        geometries = _geometries(kernels, rows.points, columns.points)
        weights = _mass(rows)[:, None]
        return _weighted_sums(subsets, diagonal, kernels, geometries, weights)[:, 0]
    (left_i, right_i), (left_j, right_j) = rows.beside, columns.beside
    # (i, j) and (j, i) at once; the diagonal of a normalised kernel is constant.
    weights = outer(left_i, right_j) + outer(right_i, left_j)
    weights = jnp.triu(weights, 1) if diagonal else weights
    return jnp.sum(_kernel_tile(kernels, rows.points, columns.points) * weights, axis=0)[None]


def _selected(flags: tuple[bool, ...], parts: Any) -> tuple[Any, ...]:
    """The flagged parts; None, an empty tree, in the place of the others."""
    return tuple(part if flag else None for flag, part in zip(flags, parts, strict=True))


def _filled(parts: Any, defaults: Any) -> tuple[Any, ...]:
    """The parts, with the default in the place of every None."""
    pairs = zip(parts, defaults, strict=True)
    return tuple(default if part is None else part for part, default in pairs)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _sums_and_gradients(
    factors: Factors,
    beside: Any,
    perturbed: tuple[tuple[bool, ...], tuple[bool, ...]],
    subsets: Subsets,
    layout: Layout | None,
    tile_size: int | None,
) -> tuple[Any, Any, jax.Array]:
    """The gradients of each sum in the perturbed kernels and points, and the sums: one pass."""
    # A sum has no gradient in the factors that it does not hold: by sum, the flags of the rest.
    held = {
        s: tuple(tuple(flag and f in subset for f, flag in enumerate(flags)) for flags in perturbed)
        for s, subset in enumerate(subsets)
        if any(perturbed[0][f] or perturbed[1][f] for f in subset)
    }

    bilinear = isinstance(beside, tuple)

    def local(factors: Factors, beside: Any) -> tuple[Any, Any, jax.Array]:
        block, size = _block(layout, factors, beside, tile_size)
        kernels = _kernels(factors)

        def tile(rows: _Block, columns: _Block, *, diagonal: bool) -> Parts:
            def sums(of_kernels: Any, of_rows: Any, of_columns: Any) -> jax.Array:
                return _column_sums(
                    subsets,
                    diagonal,
                    _filled(of_kernels, kernels),
                    rows._replace(points=_filled(of_rows, rows.points)),
                    columns._replace(points=_filled(of_columns, columns.points)),
                )

            moving = (_selected(perturbed[1], part.points) for part in (rows, columns))
            values, pull_back = jax.vjp(sums, _selected(perturbed[0], kernels), *moving)
            pulled: tuple[dict[int, Any], ...] = ({}, {}, {})
            for s, (of_kernels, of_points) in held.items():
                # The columns of the padding do not count.
                mass = columns.inside if bilinear else _mass(columns)
                seed = jnp.zeros_like(values).at[s].set(mass)
                flags = (of_kernels, of_points, of_points)
                for to, flag, part in zip(pulled, flags, pull_back(seed), strict=True):
                    to[s] = _selected(flag, part)
            shared, to_rows, to_columns = pulled
            if bilinear:
                return Parts(shared, (to_rows,), (to_columns,))
            return Parts(shared, (None, to_rows), (values.T, to_columns))

        shared, (*sums, to_points) = fold_pairs(layout, size, block, tile)
        trimmed = jax.tree.map(lambda leaf: leaf[: factors[0].n], to_points)
        totals = jnp.zeros(len(subsets), block.inside.dtype)
        if sums:
            totals = _weighted_total(sums[0], _mass(block))
        return *_total(layout, (shared, totals)), trimmed

    out = (PartitionSpec(), PartitionSpec(), _spec(layout))
    of_kernels, totals, of_points = _on_devices(layout, local, factors, beside, out=out)
    return of_kernels, of_points, totals


def _pair_sums_forward(
    factors: Any, beside: Any, subsets: Subsets, layout: Layout | None, tile_size: int | None
) -> tuple[jax.Array, Any]:
    perturbed = tuple(
        tuple(any(leaf.perturbed for leaf in jax.tree.leaves(factor[part])) for factor in factors)
        for part in (0, 1)
    )
    weighted = beside is not None and not isinstance(beside, tuple) and beside.perturbed
    factors, beside = jax.tree.map(lambda leaf: leaf.value, (factors, beside))
    *gradients, sums = _sums_and_gradients(factors, beside, perturbed, subsets, layout, tile_size)
    of_weights = None
    if weighted:
        options: Any = {"weights": beside, "tile_size": tile_size, "layout": layout}
        of_weights = row_norms(factors, subsets, **options) - beside[None, :]
    return sums, (*gradients, of_weights, (None,) * len(factors))


def _pair_sums_backward(
    subsets: Subsets, layout: Any, tile_size: Any, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any]:
    del subsets, layout, tile_size

    def combined(of_sums: dict[int, Any], factor: int) -> Any:
        parts = [
            jax.tree.map(lambda leaf, s=s: cotangent[s].astype(leaf.dtype) * leaf, parts[factor])
            for s, parts in of_sums.items()
            if parts[factor] is not None
        ]
        return jax.tree.map(lambda *terms: sum(terms), *parts) if parts else None

    *gradients, of_weights, like = residuals
    found = (Factor(*(combined(part, f) for part in gradients)) for f in range(len(like)))
    return tuple(found), None if of_weights is None else cotangent @ of_weights


_pair_sums.defvjp(_pair_sums_forward, _pair_sums_backward, symbolic_zeros=True)


# Products, and the matrix itself


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
    product = functools.partial(jnp.matmul, precision=_PRECISION)
    contract_rows = (((0,), (0,)), ((), ()))

    def to_columns(tile: jax.Array, of_rows: jax.Array) -> jax.Array:
        """The transposed tile times the vectors, without a transposed copy of the tile.

        The barrier keeps XLA from making that copy, which on a CPU takes longer than the product.
        """
        found = lax.dot_general(of_rows, tile, contract_rows, precision=_PRECISION)
        return lax.optimization_barrier(found).T

    def local(factors: Factors, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        block, size = _block(layout, factors, vectors, tile_size)

        def tile(rows: _Block, columns: _Block, *, diagonal: bool) -> Parts:
            tiles = _unit_tiles(subsets, _kernels(factors), rows, columns, diagonal)
            of_rows = tuple(map(product, tiles, columns.beside))
            of_columns = None if diagonal else tuple(map(to_columns, tiles, rows.beside))
            return Parts(None, (of_rows,), (of_columns,))

        _, (out,) = fold_pairs(layout, size, block, tile)
        inside, n = block.inside[: factors[0].n, None] > 0, _number(factors, layout)
        return tuple(jnp.where(inside, of[: factors[0].n], 0) / n for of in out)

    return _on_devices(layout, local, factors, vectors, out=_spec(layout))


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
        block, size = _block(layout, factors, beside, tile_size)

        def tile(rows: _Block, columns: _Block, *, diagonal: bool) -> Parts:
            (lefts_i, _, scale_i), (_, rights_j, scale_j) = rows.beside, columns.beside
            weights = scale_i[:, None] * scale_j[None, :] / n
            tiles = _unit_tiles(subsets, _kernels(factors), rows, columns, diagonal)
            rests = [
                jnp.square(tile * weights - outer(left, right))
                for tile, left, right in zip(tiles, lefts_i, rights_j, strict=True)
            ]
            to_rows, to_columns = (tuple(jnp.sum(of, axis=k) for of in rests) for k in (1, 0))
            return Parts(None, (to_rows,), (None if diagonal else to_columns,))

        _, (sums,) = fold_pairs(layout, size, block, tile)
        return tuple(of[: factors[0].n] for of in sums)

    n = _number(factors, layout)
    return _on_devices(layout, local, factors, lefts, rights, scale, out=_spec(layout))


@functools.partial(jax.jit, static_argnames=("n", "layout"))
def stored_row_squares_beside(
    matrix: jax.Array, left: jax.Array, right: jax.Array, *, n: int, layout: Layout | None = None
) -> jax.Array:
    """The same of K / n - L R^T for a stored K, `[rows, rows]`, and L, R `[rows, k]`."""
    if layout is None:
        return _stored_upper_row_squares(matrix, left, right)

    def local(_: Factors, matrix: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
        right = lax.all_gather(right, layout.axis, tiled=True)
        count = matrix.shape[0]
        size = min(count, CPU_TILE)

        def add(k: jax.Array, sums: jax.Array) -> jax.Array:
            # The last block reaches back over its neighbour, and finds the same sums again.
            first = jnp.minimum(k * size, count - size)
            block, left_i = (lax.dynamic_slice_in_dim(part, first, size) for part in (matrix, left))
            rest = block / n - outer(left_i, right)
            found = jnp.sum(jnp.square(rest), axis=1)
            return lax.dynamic_update_slice_in_dim(sums, found, first, axis=0)

        return lax.fori_loop(0, math.ceil(count / size), add, jnp.zeros(count, matrix.dtype))

    return _on_devices(layout, local, (), matrix, left, right, out=_spec(layout))


def _stored_upper_row_squares(matrix: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """`stored_row_squares_beside` on one device, from the tiles on and above the diagonal."""
    n = matrix.shape[0]
    size = min(n, default_tile_size())
    cut = functools.partial(lax.dynamic_slice_in_dim, slice_size=size)

    def place(k: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where tile k begins, and 1 for what counts."""
        # The last tile reaches back over its neighbour, whose points do not count again.
        first = jnp.minimum(k * size, n - size)
        return first, (first + jnp.arange(size) >= k * size).astype(matrix.dtype)

    def added(sums: jax.Array, first: jax.Array, more: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice_in_dim(sums, cut(sums, first) + more, first, axis=0)

    def visit(i: jax.Array, j: jax.Array, sums: jax.Array, *, diagonal: bool) -> jax.Array:
        (top, rows), (side, columns) = place(i), place(j)
        tile = lax.dynamic_slice(matrix, (top, side), (size, size))
        squares = jnp.square(tile / n - outer(cut(left, top), cut(right, side)))
        sums = added(sums, top, rows * jnp.sum(squares * columns[None, :], axis=1))
        if diagonal:
            return sums
        return added(sums, side, columns * jnp.sum(squares * rows[:, None], axis=0))

    return _fold_upper(-(-n // size), visit, jnp.zeros(n, matrix.dtype))


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
        rows, kernels = factors[0].n, _kernels(factors)
        count = math.ceil(rows / (tile_size or default_tile_size()))
        size = math.ceil(rows / count)
        points = tuple(factor.points for factor in factors)
        me = _position(layout)

        def cut(tree: Any, start: Any) -> Any:
            return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), tree)

        def tile(origin: Any, other: Any, top: Any, left: Any) -> jax.Array:
            """Own points against those of a block, ones on the diagonal and zero in the padding."""
            tile = _kernel_tile(kernels, cut(points, top), cut(other, left))
            along, across = (k + jnp.arange(size) for k in (me * rows + top, origin * rows + left))
            tile = jnp.where(along[:, None] == across[None, :], 1, tile)
            if layout is None or layout.rows == layout.n:
                return tile
            both = (along[:, None] < layout.n) & (across[None, :] < layout.n)
            return jnp.where(both, tile, 0)

        def start(k: Any) -> jax.Array:
            return jnp.minimum(k * size, rows - size)

        def own(i: Any, j: Any, matrix: jax.Array, *, diagonal: bool) -> jax.Array:
            del diagonal  # Overlapping tiles beside the diagonal hold some of it as well.
            top, left = start(i), start(j)
            both = tile(me, points, top, left)
            matrix = lax.dynamic_update_slice(matrix, both.T, (left, me * rows + top))
            return lax.dynamic_update_slice(matrix, both, (top, me * rows + left))

        width = rows if layout is None else layout.rows
        matrix = _fold_upper(count, own, jnp.zeros((rows, width), factors[0].dtype))
        if layout is None or layout.blocks == 1:
            return matrix

        def fill(origin: Any, other: Any, matrix: jax.Array) -> jax.Array:
            def meet(i: Any, j: Any, matrix: jax.Array) -> jax.Array:
                at = (start(i), origin * rows + start(j))
                block = tile(origin, other, start(i), start(j))
                return lax.dynamic_update_slice(matrix, block, at)

            return _fold_rectangle((0, count), (0, count), meet, matrix)

        def hop(h: Any, carry: Any) -> Any:
            other, matrix = carry
            following = _shift(ring, other, 1)
            return following, fill((me + h) % ring.blocks, other, matrix)

        ring, last = layout, layout.blocks - 1
        other, matrix = lax.fori_loop(1, last, hop, (_shift(ring, points, 1), matrix))
        return fill((me + last) % ring.blocks, other, matrix)

    return _on_devices(layout, local, factors, out=_spec(layout))
