"""Sums of squared kernels over pairs of different rows: of all, of blocks, and inside groups."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, devices, programs
from condvendi_jax.data.kernels import WithinPrompts, takes_stacks
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies.eigenvalues import matmul
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.grams.fold import Tiles
from condvendi_jax.grams.operators import factor_of, grams_of

_AT_ONCE = 1 << 20  # Kernel values of groups of rows that are computed at once.
# Rows of which NumPy needs less time than a compiled program, in blocks that stay in the cache.
_IN_NUMPY, _BLOCK = 1 << 11, 128
_TILED_ABOVE = 1 << 10  # Rows of a group whose kernel values are not stored.


class Leaving(NamedTuple):
    """Groups of up to m rows that leave together: which rows, and how much of the weight of each.

    Groups of sizes that differ by more than a factor of two are in several `Leaving`.
    """

    groups: np.ndarray  # The numbers of the groups, `[G]`.
    rows: np.ndarray  # The numbers of the rows of each group, `[G, m]`.
    weights: Any  # That each loses, `[G, m]`; zero where a group has fewer than m rows.


def leaving_of(weights: np.ndarray, membership: np.ndarray, count: int = 0) -> list[Leaving]:
    """Each group of rows, by their numbers `[n]`, with all the weight `[n]` of its rows."""
    sizes = np.bincount(membership, minlength=count)
    order, ends = np.argsort(membership, kind="stable"), np.cumsum(sizes)
    octaves, leaving = np.ceil(np.log2(np.maximum(sizes, 1))), []
    for octave in np.unique(octaves):
        groups = np.flatnonzero(octaves == octave)
        place = np.arange(max(sizes[groups].max(), 1))
        inside = place < sizes[groups, None]
        rows = order[np.where(inside, (ends - sizes)[groups, None] + place, 0)]
        leaving.append(Leaving(groups, rows, np.where(inside, weights[rows], 0)))
    return leaving


def weight_of(leaving: Sequence[Leaving]) -> np.ndarray:
    """The weight that leaves with each group, `[G]`."""
    return in_order([np.sum(part.weights, axis=1) for part in leaving], leaving)


def in_order(parts: Sequence[Any], leaving: Sequence[Leaving]) -> np.ndarray:
    """One array `[..., G]` by the numbers of the groups, from a part for each of leaving."""
    order = np.argsort(np.concatenate([part.groups for part in leaving]))
    return np.concatenate(parts, axis=-1)[..., order]


def tiles_of(points: Pairs) -> Tiles:
    """The tiles of X and, with prompts, of T and the joint."""
    parts = zip(points.kernels, points.arrays, strict=True)
    factors = tuple(factor_of(kernel, array, points.layout) for kernel, array in parts)
    return Tiles(factors, ((0,), (1,), (0, 1)) if points.paired else ((0,),), points.layout)


#: The factors of each term: of the outputs, the prompts, and both.
TERMS = ((0,), (1,), (0, 1))
#: How a compiled function of points, of whose arrays it says the numbers, is computed on the host.
Compute = Callable[..., np.ndarray]


def once(function: Callable[..., Any], points: Pairs, factors: Sequence[int], *given: Any) -> Any:
    """A function of points as they are."""
    return to_float64(function(points, *given))


def row_sums(points: Pairs, compute: Compute = once, *, outputs: bool = True) -> np.ndarray:
    """Weighted sums of squared kernels of each row with all others, float64 `[..., terms, n]`.

    Those of the `outputs` alone are zero where they are not asked for. Where a kernel says that
    rows are equal or different, only pairs of equal ones are visited: the cost is linear in blocks.
    """
    kinds = compared_rows(points)
    if kinds is None:
        return compute(all_row_sums, points, range(len(points.arrays)))[..., : points.n]
    asked = TERMS[not outputs : 2 * len(kinds) - 1]
    terms = [sums_of_term(points, kinds, factors, compute) for factors in asked]
    terms = terms if outputs else [np.zeros(points.n), *terms]
    return np.stack(np.broadcast_arrays(*terms), axis=-2)


def all_row_sums(points: Pairs) -> Any:
    """The sums of each term, `[terms, rows]`; of few rows on the host by NumPy."""
    near = in_numpy(points)
    if near is None:
        return _compiled_row_sums(points)
    weights, sums = near.shares.astype(near.dtype), []
    prepared = [k.prepare(array) for k, array in zip(near.kernels, near.arrays, strict=True)]
    for start in range(0, near.n, _BLOCK):  # Blocks of rows with themselves and all later ones.
        parts = [(cut(part, start, _BLOCK), cut(part, start, near.n)) for part in prepared]
        below, terms = start + _BLOCK, _squares(near.kernels, parts)
        sums = sums or [np.zeros(near.n) for _ in terms]
        for total, square in zip(sums, terms, strict=True):
            np.fill_diagonal(square, 0)
            total[start:below] += square @ weights[start:]
            total[below:] += weights[start:below] @ square[:, _BLOCK:]
    return np.stack(sums)


@programs.compiled
def _compiled_row_sums(points: Pairs) -> jax.Array:
    return pairwise.row_norms(tiles_of(points), weights=placed_shares(points))


def cut(tree: Any, start: int, size: int) -> Any:
    """Rows of every leaf, from `start` on."""
    return jax.tree.map(lambda leaf: leaf[start : start + size], tree)


def in_numpy(points: Pairs, most: int = 0) -> Pairs | None:
    """The points for NumPy, if it is the faster: few rows on the host, under kernels of ours."""
    few = points.layout is None and (most or points.n) <= _IN_NUMPY
    return devices.on_host(points) if few and all(map(takes_stacks, points.kernels)) else None


def _squares(kernels: Sequence[Any], parts: Sequence[tuple[Any, Any]]) -> list[np.ndarray]:
    """The squared kernel of each term for all pairs of two blocks, in NumPy."""
    with np.errstate(all="ignore"):  # As compiled programs do.
        factors = [np.square(k.cross(*both)) for k, both in zip(kernels, parts, strict=True)]
        return [*factors, *(factors[0] * other for other in factors[1:])]


def placed_shares(points: Pairs) -> jax.Array:
    """The share of each row, as placed."""
    if points.weights is not None:
        return points.weights
    return jnp.full(points.arrays[0].shape[0], 1 / points.n, points.dtype)


def factor(points: Pairs, index: int) -> Pairs:
    """The outputs, or the prompts, alone."""
    arrays, kernels = points.arrays[index : index + 1], points.kernels[index : index + 1]
    return Pairs.trusted(arrays, kernels, n=points.n, weights=points.weights)


def compared_rows(points: Pairs) -> list[np.ndarray | None] | None:
    """For each kernel the numbers of rows of which only equal ones count, or None if all do.

    None instead where terms are not sums over blocks: inside transformations, on several devices,
    or where no kernel, or the blocks of both, leave pairs of two factors to compute.
    """
    within = [isinstance(kernel, WithinPrompts) for kernel in points.kernels]
    blocks = [k.compares_equality or w for k, w in zip(points.kernels, within, strict=True)]
    if points.layout is not None or not checks.is_concrete(points) or not any(blocks):
        return None
    if len(blocks) == 2 and not any(kernel.compares_equality for kernel in points.kernels):
        return None
    both = zip(points.arrays, within, strict=True)
    rows = (devices.to_host(array)[:, :1] if first else array for array, first in both)
    return [_labels(array) if apart else None for array, apart in zip(rows, blocks, strict=True)]


def equal_rows(kinds: Sequence[Any], factors: Sequence[int]) -> np.ndarray | None:
    """Numbers of rows, `[n]`, of which only equal ones count in a term; None where all do."""
    numbers = [kinds[k] for k in factors if kinds[k] is not None]
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    return np.unique(numbers, axis=1, return_inverse=True)[1].reshape(-1)


def sums_of_term(
    points: Pairs, kinds: Sequence[Any], factors: Sequence[int], compute: Compute
) -> np.ndarray:
    """The sums of one term over the other rows, float64 `[..., n]`."""
    equal = equal_rows(kinds, factors)
    compared = [k for k in factors if not points.kernels[k].compares_equality]
    if equal is None:
        return compute(all_row_sums, factor(points, factors[0]), factors)[..., 0, :]
    if not compared:
        return np.bincount(equal, points.shares)[equal] - points.shares
    groups = leaving_of(points.shares, equal)
    near = factor(points, compared[0])
    parts = [_inside(near, part, compute, compared) for part in groups]
    return by_rows(groups, parts, points.n)[..., 0, :]


def sums_inside(points: Pairs, leaving: Leaving, compute: Compute = once) -> np.ndarray:
    """Of each row, the sum over others of its group of k^2 times the weight that they lose.

    Float64 `[..., terms, G, m]`.
    """
    factors, weights = range(len(points.arrays)), leaving.weights
    equal = [k for k in factors if points.kernels[k].compares_equality]
    if not equal or not checks.is_concrete(points):
        return _inside(points, leaving, compute, factors)
    labels = {k: _labels(points.arrays[k])[leaving.rows] for k in equal}

    def of_equal(*numbers: np.ndarray) -> np.ndarray:
        groups = np.broadcast_to(np.arange(len(weights))[:, None], weights.shape)
        keys = np.stack([groups, *numbers]).reshape(1 + len(numbers), -1)
        same = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
        return np.bincount(same, weights.ravel())[same].reshape(weights.shape) - weights

    same = {k: of_equal(of_rows) for k, of_rows in labels.items()}
    other = [k for k in factors if k not in equal]
    if not other:
        return np.stack([*same.values(), of_equal(*labels.values())][: 2 * len(equal) - 1])
    (label,) = labels.values()
    if not ((label == label[:, :1]) | (weights <= 0)).all():
        return _inside(points, leaving, compute, factors)
    # Of one label each: its kernel is 1.
    near = _inside(factor(points, other[0]), leaving, compute, other)[..., 0, :, :]
    terms = (near, *same.values(), near) if other == [0] else (*same.values(), near, near)
    return np.stack(np.broadcast_arrays(*terms), axis=-3)


def _labels(array: Any) -> np.ndarray:
    """The number of the label of each row, `[n]`."""
    rows = devices.to_host(array)
    axis = None if rows.shape[1] == 1 else 0
    return np.unique(rows, axis=axis, return_inverse=True)[1].reshape(-1)


def _inside(points: Pairs, groups: Leaving, compute: Compute, factors: Sequence[int]) -> np.ndarray:
    if groups.rows.shape[1] > 1:
        return compute(_sums_by_group, points, factors, groups)
    return np.zeros((2 * len(points.arrays) - 1, *groups.rows.shape))


def _sums_by_group(points: Pairs, leaving: Leaving) -> Any:
    """`all_row_sums` of each group, `[terms, G, m]`; of small ones on the host by NumPy."""
    size = leaving.rows.shape[1]
    near = in_numpy(points, size)
    if near is None:
        return by_group(points, leaving, _sum_rows)
    sums, at_once = [], max(1, _AT_ONCE // (size * max(size, near.arrays[0].shape[1])))
    for start in range(0, len(leaving.rows), at_once):
        rows, weights = cut((leaving.rows, leaving.weights), start, at_once)
        arrays = zip(near.kernels, near.arrays, strict=True)
        prepared = [kernel.prepare(array[rows]) for kernel, array in arrays]
        terms = _squares(near.kernels, [(part, part) for part in prepared])
        others = weights.astype(near.dtype)[:, None] * (1 - np.eye(size, dtype=near.dtype))
        sums.append([np.sum(square * others, axis=-1) for square in terms])
    return np.concatenate(sums, axis=1)


@functools.partial(programs.compiled, static_argnums=2)
def by_group(points: Pairs, groups: Leaving, function: Callable[[Pairs], jax.Array]) -> jax.Array:
    """A function of the rows of each group, with the weights that leave, `[terms, G, ...]`."""
    sets = jnp.asarray(groups.rows), jnp.asarray(groups.weights, points.dtype)

    def compute(group: tuple[jax.Array, jax.Array]) -> jax.Array:
        arrays = tuple(array[group[0]] for array in points.arrays)
        return function(Pairs.trusted(arrays, points.kernels, n=group[0].size, weights=group[1]))

    at_once = max(1, _AT_ONCE // sets[0].shape[1] ** 2)
    return jnp.swapaxes(jax.lax.map(compute, sets, batch_size=at_once), 0, 1)


def _sum_rows(points: Pairs) -> jax.Array:
    """`row_sums` of weighted rows, from their squared Grams if they are few."""
    if points.n > _TILED_ABOVE:
        return all_row_sums(points)
    others = 1 - jnp.eye(points.n, dtype=points.dtype)
    squares = [jnp.square(gram.dense().matrix) * others for gram in grams_of(points)]
    squares += [squares[0] * prompts for prompts in squares[1:]]
    return jnp.stack([matmul(square, placed_shares(points)) for square in squares])


def sum_pairs(points: Pairs) -> jax.Array:
    """`squares_of_others` of weighted rows, from their squared Grams if they are few."""
    if points.n > _TILED_ABOVE:
        return squares_of_others(points, points.weights)
    return matmul(_sum_rows(points), placed_shares(points))


class PairSums(NamedTuple):
    """Sums of squared kernels over the pairs of different rows, in float64."""

    rows: np.ndarray  # `row_sums`, `[terms, n]`.
    leaving: Sequence[Leaving]
    inside: Sequence[np.ndarray]  # `sums_inside` these groups, `[terms, G, m]` each.

    @classmethod
    def of(cls, points: Pairs, leaving: Sequence[Leaving]) -> Self:
        """The sums of points."""
        return cls(row_sums(points), leaving, [sums_inside(points, part) for part in leaving])


def to_float64(array: jax.Array) -> np.ndarray:
    """An array in float64 on the host of every process."""
    return np.asarray(devices.to_host(array), np.float64)


def by_rows(leaving: Sequence[Leaving], inside: Sequence[np.ndarray], n: int) -> np.ndarray:
    """`sums_inside` `[..., G, m]` of groups without a row in common, by the rows `[..., n]`."""
    by_row = np.zeros((*np.broadcast_shapes(*(sums.shape[:-2] for sums in inside)), n))
    for part, sums in zip(leaving, inside, strict=True):
        there = part.weights > 0
        by_row[..., part.rows[there]] = sums[..., there]
    return by_row


@programs.compiled
def squares_of_others(points: Pairs, weights: Any) -> jax.Array:
    """Sums of squared kernels over all pairs of different rows of these weights, `[terms]`."""
    return pairwise.squares_of_others(tiles_of(points), weights=weights)
