"""Sums of squared kernel values over pairs of rows: in total, by row, with their gradients."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.base.devices import Layout
from condvendi_jax.data.kernels import PRECISION, Kernel
from condvendi_jax.grams.fold import (
    Block,
    Factor,
    Factors,
    Parts,
    Subsets,
    block_of,
    cut,
    fold_pairs,
    geometries_of,
    number_of_points,
    on_devices,
    pairwise_sum,
    sum_over_devices,
)


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
    """Sums `weights[i, g] k(i, j)^2` over the rows of a tile, i < j, `[subset, g, column]`."""
    size = weights.shape[0]
    counted = jnp.triu(jnp.ones((size, size), bool), 1) if diagonal else None
    products = squared_products(subsets, kernels, geometries, counted)
    contract_rows = (((0,), (0,)), ((), ()))

    def contracted(weights: jax.Array, products: list[jax.Array]) -> jax.Array:
        return jnp.stack(
            [lax.dot_general(weights, p, contract_rows, precision=PRECISION) for p in products]
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
    layout: Layout | None, factors: Factors, subsets: Subsets, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sums over earlier points on one device, `[k * size, subset, g]`, and the padded weights."""
    block, size = block_of(layout, factors, weights)
    kernels, _ = zip(*factors, strict=True)

    def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
        reduce = _sequentially(functools.partial(_weighted_sums, subsets, diagonal))
        geometries = geometries_of(kernels, rows.points, columns.points)
        sums = reduce(kernels, geometries, rows.beside)
        return Parts(None, (None,), (jnp.moveaxis(sums, -1, 0),))

    _, (sums,) = fold_pairs(layout, size, block, tile)
    return sums, block.beside


def _ones_unless(weights: jax.Array | None, factors: Factors) -> jax.Array:
    """The weights `[rows]`, ones where None."""
    return jnp.ones(factors[0].n, factors[0].dtype) if weights is None else weights


def arrival_sums(factors: Factors, subsets: Subsets, *, weights: jax.Array) -> jax.Array:
    """Weighted sums of squared kernel products over the earlier points, for every point.

        sums[s, g, j] = sum over i < j of weights[i, g] prod over f in s of k_f(i, j)^2

    for every subset s of the factors and weights `[n, g]`. Their sum up to any n' is that over the
    pairs of the first n' points. Not differentiable in reverse mode.
    """
    sums, _ = _arrivals(None, factors, subsets, weights)
    return jnp.moveaxis(sums[: factors[0].n], 0, -1)


def squared_norms(
    factors: Factors,
    subsets: Subsets,
    *,
    weights: jax.Array | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """||K_s||_F^2 / n^2 for every subset s of the factors, `[len(subsets)]`, in one pass.

    With `weights` w as placed, of sum one, sum_ij w_i w_j K_s(i, j)^2. In reverse mode the same
    pass accumulates the gradients of all in the points and kernels: a value with its gradient costs
    about two passes. The gradient in the weights takes another.
    """
    others = squares_of_others(factors, subsets, weights=weights, layout=layout)
    n = number_of_points(factors, layout)
    return others + (1 / n if weights is None else jnp.sum(jnp.square(weights)))


def squares_of_others(
    factors: Factors,
    subsets: Subsets,
    *,
    weights: jax.Array | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """`squared_norms` without the pairs of a point with itself."""
    sums: Any = _pair_sums(factors, _ones_unless(weights, factors), subsets, layout)
    n = number_of_points(factors, layout) if weights is None else 1
    return 2 * (sums / n) / n


@functools.partial(jax.jit, static_argnames=("subsets", "layout"))
def row_norms(
    factors: Factors,
    subsets: Subsets,
    *,
    weights: jax.Array | None = None,
    layout: Layout | None = None,
) -> jax.Array:
    """sum over j != i of w_j prod over f in s of k_f(i, j)^2 for every point i.

    `[len(subsets), rows]`, in one pass; `weights` are as placed, ones where None. Zero in the
    padding, not divided by n, and not differentiable in reverse mode.
    """

    def local(factors: Factors, weights: jax.Array) -> jax.Array:
        block, size = block_of(layout, factors, weights)
        kernels, _ = zip(*factors, strict=True)

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            geometries = geometries_of(kernels, rows.points, columns.points)
            counted = ~jnp.eye(size, dtype=bool) if diagonal else None
            products = squared_products(subsets, kernels, geometries, counted)
            to_rows = [jnp.sum(p * columns.beside[None, :], axis=1) for p in products]
            to_columns = [jnp.sum(p * rows.beside[:, None], axis=0) for p in products]
            to_rows, to_columns = (jnp.stack(part, axis=-1) for part in (to_rows, to_columns))
            return Parts(None, (to_rows,), (None if diagonal else to_columns,))

        _, (sums,) = fold_pairs(layout, size, block, tile)
        return jnp.where(block.inside[:, None] > 0, sums, 0)[: factors[0].n]

    return on_devices(layout, local, factors, _ones_unless(weights, factors)).T


def row_squares(factors: Factors, subsets: Subsets, row: jax.Array) -> jax.Array:
    """prod over f in s of k_f(row, j)^2 for every point j, `[len(subsets), n]`."""
    kernels, points = zip(*factors, strict=True)
    geometries = geometries_of(kernels, cut(points, row, 1), points)
    products = squared_products(subsets, kernels, geometries, None)
    return jnp.stack(products)[:, 0]


# The derivative of sums over pairs


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
@functools.partial(jax.jit, static_argnums=(2, 3))
def _pair_sums(
    factors: Factors, weights: jax.Array, subsets: Subsets, layout: Layout | None
) -> jax.Array:
    """Sums over the pairs i < j of w_i w_j times squared products of kernels, `[subset]`."""

    def local(factors: Factors, weights: jax.Array) -> jax.Array:
        sums, columns = _arrivals(layout, factors, subsets, weights[:, None])
        return sum_over_devices(layout, pairwise_sum((sums[..., 0] * columns).T))

    return on_devices(layout, local, factors, weights, shared=True)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _sums_and_gradients(
    factors: Factors,
    weights: jax.Array,
    perturbed: tuple[tuple[bool, ...], tuple[bool, ...]],
    subsets: Subsets,
    layout: Layout | None,
) -> tuple[jax.Array, Any, Any]:
    """The sums, and the gradients of each in the perturbed kernels and points, in one pass."""

    def selected(flags: tuple[bool, ...], parts: Any) -> tuple[Any, ...]:
        """The flagged parts; None, an empty tree, in the place of the others."""
        return tuple(part if flag else None for flag, part in zip(flags, parts, strict=True))

    def filled(parts: Any, defaults: Any) -> tuple[Any, ...]:
        """The parts, with the default in the place of every None."""
        pairs = zip(parts, defaults, strict=True)
        return tuple(default if part is None else part for part, default in pairs)

    def local(factors: Factors, weights: jax.Array) -> tuple[Any, Any, Any]:
        block, size = block_of(layout, factors, weights)
        kernels, _ = zip(*factors, strict=True)

        def tile(rows: Block, columns: Block, *, diagonal: bool) -> Parts:
            def total(subset: Any, *moving: Any) -> tuple[jax.Array, jax.Array]:
                moved, *points = map(filled, moving, (kernels, rows.points, columns.points))
                geometries = geometries_of(moved, *points)
                of_rows = rows.beside[:, None]
                sums = _weighted_sums((subset,), diagonal, moved, geometries, of_rows)
                sums = sums[0, 0] * columns.beside
                return jnp.sum(sums), sums

            points = (selected(perturbed[1], part.points) for part in (rows, columns))
            moving = selected(perturbed[0], kernels), *points
            gradients = jax.grad(total, (1, 2, 3), has_aux=True)
            pulled, sums = zip(*(gradients(subset, *moving) for subset in subsets), strict=True)
            shared, to_rows, to_columns = zip(*pulled, strict=True)
            return Parts(shared, (None, to_rows), (jnp.stack(sums, axis=-1), to_columns))

        kernel_slopes, (sums, point_slopes) = fold_pairs(layout, size, block, tile)
        totals, kernel_slopes = sum_over_devices(layout, (pairwise_sum(sums.T), kernel_slopes))
        return totals, kernel_slopes, jax.tree.map(lambda leaf: leaf[: factors[0].n], point_slopes)

    return on_devices(layout, local, factors, weights, shared=(True, True, False))


def _pair_sums_forward(
    factors: Any, weights: Any, subsets: Subsets, layout: Layout | None
) -> tuple[jax.Array, Any]:
    perturbed = tuple(
        tuple(any(leaf.perturbed for leaf in jax.tree.leaves(factor[part])) for factor in factors)
        for part in (0, 1)
    )
    weighted = weights.perturbed
    factors, weights = jax.tree.map(lambda leaf: leaf.value, (factors, weights))
    sums, *gradients = _sums_and_gradients(factors, weights, perturbed, subsets, layout)
    weight_slopes = None
    if weighted:
        weight_slopes = row_norms(factors, subsets, weights=weights, layout=layout)
    return sums, (gradients, weight_slopes)


def _pair_sums_backward(
    subsets: Subsets, layout: Any, residuals: Any, cotangent: jax.Array
) -> tuple[Any, Any]:
    gradients, weight_slopes = residuals

    def combined(*slopes: jax.Array) -> jax.Array:
        pairs = zip(cotangent, slopes, strict=True)
        return functools.reduce(jnp.add, [c.astype(of.dtype) * of for c, of in pairs])

    pulled = (jax.tree.map(combined, *slopes) for slopes in gradients)
    factors = tuple(map(Factor, *pulled))
    return factors, None if weight_slopes is None else cotangent @ weight_slopes


_pair_sums.defvjp(_pair_sums_forward, _pair_sums_backward, symbolic_zeros=True)
