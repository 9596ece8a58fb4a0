"""Order 2: sums of squared kernels over the pairs of different rows, and what follows from them.

Of rows with the shares w, the squared norm of a Gram is a mean over all pairs of rows,

    ||K||^2 = sum_i w_i^2 + sum over i != j of w_i w_j k_ij^2.

The first sum is what the pairs of a row with itself add, whatever the data are: 1 / n if all shares
are equal. The papers' scores have it, so that they grow with n. The unbiased ones replace it:

- where prompts repeat, by the mean over the other answers to the same prompt. That is the norm of
  these prompts, with infinitely many answers to each;
- elsewhere by the mean over all other rows: that of infinitely many rows.

`PairMeans` has both, and the norms of any other design of prompts and answers (docs/proofs.md).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax import entropies
from condvendi_jax.base import checks, programs
from condvendi_jax.base.devices import compiled_elsewhere, on_host, placed
from condvendi_jax.data.kernel_choice import ENOUGH_REPEATED
from condvendi_jax.data.kernels import WithinPrompts, takes_stacks
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Decomposition, PerTerm
from condvendi_jax.entropies.eigenvalues import matmul
from condvendi_jax.grams import grams_of, to_host
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.grams.fold import Tiles
from condvendi_jax.grams.operators import OfPoints, factor_of

FROBENIUS = "frobenius"  # The method of these entropies.
_AT_ONCE = 1 << 20  # Kernel values of groups of rows that are computed at once.
_MOST = 0.9  # Of the weight of all rows: without such a group, sums are taken anew.
# Rows of which NumPy needs less time than a compiled program, in blocks that stay in the cache.
_IN_NUMPY, _BLOCK = 1 << 11, 128
_TILED_ABOVE = 1 << 10  # Rows of a group whose kernel values are not stored.
_OF_SUMS = 16  # Of a difference of sums: so many roundings, relative to them, may be its error.
_ROUNDING = 1e-12  # Of shares of pairs: less than this may be rounding.


class Leaving(NamedTuple):
    """Groups of up to m rows that leave together: which rows, and how much of the weight of each.

    Groups of sizes that differ by more than a factor of two are in several `Leaving`.
    """

    groups: np.ndarray  # The numbers of the groups, `[G]`.
    rows: np.ndarray  # The numbers of the rows of each group, `[G, m]`.
    weights: Any  # That each loses, `[G, m]`; zero where a group has fewer than m rows.


def leaving_of(
    points: Pairs, membership: np.ndarray | None, count: int, weights: np.ndarray | None = None
) -> list[Leaving]:
    """Each of `count` groups of points, by their numbers `[n]`, with all the weight of its rows.

    Without numbers, each row by itself, or one copy of it. Weights are shares where None.
    """
    weights = points.shares if weights is None else weights
    if membership is None:
        copies = np.ones(points.n) if points.copies is None else np.maximum(points.copies, 1)
        rows = np.arange(points.n)
        return [Leaving(rows, rows[:, None], (weights / copies)[:, None])]
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


def frobenius(points: Pairs, terms: tuple[str, ...], *, unbiased: bool = False) -> PerTerm:
    """The papers' entropies of order 2, or those without pairs of a row with itself."""
    if unbiased:
        return entropies_of(Answers.of(points).norms())
    kinds = _compared_rows(points)
    if kinds is None:
        if (near := _near(points)) is None:
            values = entropies_of(_squared_norms(points, checks.is_concrete(points)))
        else:
            values = entropies_of(_norms_of_sums(near, _row_sums(points)))
        return PerTerm(*(getattr(values, t) if t in terms else None for t in PerTerm._fields))
    norms = {}
    for name, factors in zip(PerTerm._fields, _TERMS, strict=True):
        if name not in terms:
            continue
        if factors == (0,) and kinds[0] is None and _near(points) is None:
            norms[name] = np.asarray(_squared_norms(factor(points, 0), True), points.dtype)[0]
        else:
            norms[name] = _norms_of_sums(points, _sums_of_term(points, kinds, factors, once))
    computed = entropies_of(np.array([*norms.values()]))
    return PerTerm(**dict.fromkeys(PerTerm._fields) | dict(zip(norms, computed, strict=False)))


@functools.partial(programs.compiled, static_argnums=1)
def _squared_norms(points: Pairs, in_tiles: bool) -> jax.Array:
    """The squared norms of K_X / n and, with prompts, of K_T and the pairs, `[terms]`."""
    first, *second = grams_of(points)
    grams = [first, *second, *(first * other for other in second)]
    if in_tiles or (second and all(isinstance(gram, OfPoints) for gram in grams)):
        return pairwise.squared_norms(tiles_of(points), weights=points.weights)
    shares = _shares(points)  # Matrices have derivatives in forward mode too.
    return jnp.stack([gram.squared_norm_by(shares) for gram in grams])


def _norms_of_sums(points: Pairs, sums: np.ndarray) -> np.ndarray:
    """The squared norms of sums over the other rows `[..., n]`."""
    return ((sums + points.shares) @ points.shares).astype(points.dtype)


def entropies_of(norms: Any) -> PerTerm:
    """CV eq. 4 and 11 from the squared norms of K_X / n and, with prompts, K_T and the pairs."""
    return jax.tree.map(placed, _entropies_of(norms))


@compiled_elsewhere
def _entropies_of(norms: Any) -> PerTerm:
    missing = (None,) * (3 - norms.shape[0])
    return PerTerm(*map(entropies.of_squared_norm, norms), *missing)


# Sums over the other rows


#: The factors of each term: of the outputs, the prompts, and both.
_TERMS = ((0,), (1,), (0, 1))
#: How a compiled function of points, of whose arrays it says the numbers, is computed on the host.
Compute = Callable[..., np.ndarray]


def once(function: Callable[..., Any], points: Pairs, factors: Sequence[int], *given: Any) -> Any:
    """A function of points as they are."""
    return to_float64(function(points, *given))


def row_sums(points: Pairs, compute: Compute = once, *, outputs: bool = True) -> np.ndarray:
    """Weighted sums of squared kernels of each row with all others, float64 `[..., terms, n]`.

    Those of the `outputs` alone are zero where they are not asked for.

    Where a kernel says that rows are equal or different, only the pairs of equal ones are visited,
    block by block: the cost of such a term is linear in the number of blocks.
    """
    kinds = _compared_rows(points)
    if kinds is None:
        return compute(_row_sums, points, range(len(points.arrays)))[..., : points.n]
    asked = _TERMS[not outputs : 2 * len(kinds) - 1]
    terms = [_sums_of_term(points, kinds, factors, compute) for factors in asked]
    terms = terms if outputs else [np.zeros(points.n), *terms]
    return np.stack(np.broadcast_arrays(*terms), axis=-2)


def _row_sums(points: Pairs) -> Any:
    """The sums of each term, `[terms, rows]`; of few rows on the host by NumPy."""
    near = _near(points)
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
    return pairwise.row_norms(tiles_of(points), weights=_shares(points))


def cut(tree: Any, start: int, size: int) -> Any:
    """Rows of every leaf, from `start` on."""
    return jax.tree.map(lambda leaf: leaf[start : start + size], tree)


def _near(points: Pairs, most: int = 0) -> Pairs | None:
    """The points for NumPy, if it is the faster: few rows on the host, under kernels of ours."""
    few = points.layout is None and (most or points.n) <= _IN_NUMPY
    return on_host(points) if few and all(map(takes_stacks, points.kernels)) else None


def _squares(kernels: Sequence[Any], parts: Sequence[tuple[Any, Any]]) -> list[np.ndarray]:
    """The squared kernel of each term for all pairs of two blocks, in NumPy."""
    with np.errstate(all="ignore"):  # As compiled programs do.
        factors = [np.square(k.cross(*both)) for k, both in zip(kernels, parts, strict=True)]
        return [*factors, *(factors[0] * other for other in factors[1:])]


def _shares(points: Pairs) -> jax.Array:
    if points.weights is not None:
        return points.weights
    return jnp.full(points.arrays[0].shape[0], 1 / points.n, points.dtype)


def factor(points: Pairs, index: int) -> Pairs:
    """The outputs, or the prompts, alone."""
    arrays, kernels = points.arrays[index : index + 1], points.kernels[index : index + 1]
    return Pairs.trusted(arrays, kernels, n=points.n, weights=points.weights)


def _compared_rows(points: Pairs) -> list[np.ndarray | None] | None:
    """For each kernel the numbers of rows of which only equal ones count, or None if all do.

    None instead where terms are not sums over blocks: inside transformations, on several devices,
    or where no kernel, or the blocks of both, leave pairs of two factors to compute.
    """
    blocks = [kernel.compares_equality or _within(kernel) for kernel in points.kernels]
    if points.layout is not None or not checks.is_concrete(points) or not any(blocks):
        return None
    if len(blocks) == 2 and not any(kernel.compares_equality for kernel in points.kernels):
        return None
    kinds: list[np.ndarray | None] = []
    for kernel, array, apart in zip(points.kernels, points.arrays, blocks, strict=True):
        rows = to_host(array)[:, :1] if _within(kernel) else array
        kinds.append(_labels(rows) if apart else None)
    return kinds


def _within(kernel: Any) -> bool:
    return isinstance(kernel, WithinPrompts)


def _sums_of_term(
    points: Pairs, kinds: Sequence[Any], factors: Sequence[int], compute: Compute
) -> np.ndarray:
    """The sums of one term over the other rows, float64 `[..., n]`."""
    numbers = [kinds[k] for k in factors if kinds[k] is not None]
    compared = [k for k in factors if not points.kernels[k].compares_equality]
    if not numbers:
        (index,) = factors
        return compute(_row_sums, factor(points, index), factors)[..., 0, :]
    equal = numbers[0]
    if len(numbers) > 1:
        equal = np.unique(numbers, axis=1, return_inverse=True)[1].reshape(-1)
    if not compared:
        return np.bincount(equal, points.shares)[equal] - points.shares
    groups = leaving_of(points, equal, equal.max() + 1)
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
        terms = [*same.values(), of_equal(*labels.values())][: 2 * len(equal) - 1]
        return np.stack(terms)
    (label,) = labels.values()
    if not ((label == label[:, :1]) | (weights <= 0)).all():
        return _inside(points, leaving, compute, factors)
    # Of one label each: its kernel is 1.
    near = _inside(factor(points, other[0]), leaving, compute, other)[..., 0, :, :]
    terms = (near, *same.values(), near) if other == [0] else (*same.values(), near, near)
    return np.stack(np.broadcast_arrays(*terms), axis=-3)


def _labels(array: Any) -> np.ndarray:
    """The number of the label of each row, `[n]`."""
    rows = to_host(array)
    if rows.shape[1] == 1:
        return np.unique(rows[:, 0], return_inverse=True)[1].reshape(-1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _inside(
    points: Pairs, leaving: Leaving, compute: Compute, factors: Sequence[int]
) -> np.ndarray:
    if leaving.rows.shape[1] > 1:
        return compute(_sums_by_group, points, factors, leaving)
    return np.zeros((2 * len(points.arrays) - 1, *leaving.rows.shape))


def _sums_by_group(points: Pairs, leaving: Leaving) -> Any:
    """`_row_sums` of each group, `[terms, G, m]`; of small ones on the host by NumPy."""
    size = leaving.rows.shape[1]
    near = _near(points, size)
    if near is None:
        return _by_group(points, leaving, _sum_rows)
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
def _by_group(points: Pairs, groups: Leaving, function: Callable[[Pairs], jax.Array]) -> jax.Array:
    """A function of the rows of each group, with the weights that leave, `[terms, G, ...]`."""
    sets = jnp.asarray(groups.rows), jnp.asarray(groups.weights, points.dtype)

    def compute(group: tuple[jax.Array, jax.Array]) -> jax.Array:
        arrays = tuple(array[group[0]] for array in points.arrays)
        return function(Pairs.trusted(arrays, points.kernels, n=group[0].size, weights=group[1]))

    at_once = max(1, _AT_ONCE // sets[0].shape[1] ** 2)
    return jnp.swapaxes(lax.map(compute, sets, batch_size=at_once), 0, 1)


def _sum_rows(points: Pairs) -> jax.Array:
    """`row_sums` of weighted rows, from their squared Grams if they are few."""
    if points.n > _TILED_ABOVE:
        return _row_sums(points)
    others = 1 - jnp.eye(points.n, dtype=points.dtype)
    squares = [jnp.square(gram.dense().matrix) * others for gram in grams_of(points)]
    squares += [squares[0] * prompts for prompts in squares[1:]]
    return jnp.stack([matmul(square, _shares(points)) for square in squares])


def _sum_pairs(points: Pairs) -> jax.Array:
    """`squares_of_others` of weighted rows, from their squared Grams if they are few."""
    if points.n > _TILED_ABOVE:
        return squares_of_others(points, points.weights)
    return matmul(_sum_rows(points), _shares(points))


class PairSums(NamedTuple):
    """Sums of squared kernels over the pairs of different rows, in float64."""

    rows: np.ndarray  # `row_sums`, `[terms, n]`.
    leaving: Sequence[Leaving]
    inside: Sequence[np.ndarray]  # `sums_inside` these groups, `[terms, G, m]` each.

    @classmethod
    def of(cls, points: Pairs, leaving: Sequence[Leaving]) -> PairSums:
        """The sums of points."""
        inside = [sums_inside(points, part) for part in leaving]
        return cls(row_sums(points), leaving, inside)


def to_float64(array: jax.Array) -> np.ndarray:
    """An array in float64 on the host of every process."""
    return np.asarray(to_host(array), np.float64)


def by_rows(leaving: Sequence[Leaving], inside: Sequence[np.ndarray], n: int) -> np.ndarray:
    """`sums_inside` `[..., G, m]` of groups without a row in common, by the rows `[..., n]`."""
    by_row = np.zeros((*np.broadcast_shapes(*(sums.shape[:-2] for sums in inside)), n))
    for part, sums in zip(leaving, inside, strict=True):
        there = part.weights > 0
        by_row[..., part.rows[there]] = sums[..., there]
    return by_row


# Means over pairs of different rows


def single_answers(
    prompt: np.ndarray, draws: np.ndarray, model: np.ndarray, *, exact: bool
) -> np.ndarray | None:
    """The rows of prompts to which some model has a single answer, booleans `[n]`.

    None where all prompts are equal, and where single answers are most draws of a model; if prompts
    count as equal or different (`exact`), where too few prompts have several, too. Prompts and
    models have numbers from 0; `draws` are `Pairs.draws`, so that a batch is a single answer.
    """
    answers = model * (prompt.max() + 1) + prompt
    alone = np.bincount(answers, draws)[answers] < 1.5
    single = np.isin(prompt, prompt[alone])
    several = np.bincount(model, draws * ~single) / np.bincount(model, draws)
    enough = exact and np.unique(prompt[~single]).size >= ENOUGH_REPEATED
    return single if prompt.any() and (enough or several.min() >= 0.5) else None


class Inside(NamedTuple):
    """By row, sums of squared kernels with other rows, `[..., terms, n]` in float64."""

    prompt: np.ndarray | None = None  # That answer the same prompt; None where no prompt repeats.
    batch: np.ndarray | None = None  # Of the same batch; None without batches.


class Answers(NamedTuple):
    """The rows that answer the same prompt, and for how much they count."""

    points: Pairs  # The rows that count.
    rows: np.ndarray  # Their numbers among all rows.
    copies: np.ndarray  # How many independent rows each of them is, `[n]`.
    kind: np.ndarray | None  # The number of the prompt of each; None where too few repeat.
    left_out: int  # How many prompts with a single answer do not count, beside others with several.

    @property
    def of_prompts(self) -> float:
        """The share of the pairs of a prompt with itself, 0 where no prompt repeats."""
        if self.kind is None:
            return 0.0
        return float(np.sum(np.square(np.bincount(self.kind, self.points.shares))))

    @classmethod
    def apart(cls, pairs: Pairs) -> Answers:
        """All rows of pairs, as if no prompt repeated."""
        copies = np.ones(pairs.n, int) if pairs.copies is None else np.maximum(pairs.copies, 1)
        return cls(pairs, np.arange(pairs.n), copies, None, 0)

    @classmethod
    def of(cls, pairs: Pairs) -> Answers:
        """The answers of pairs that count.

        Prompts repeat where at least half of the rows answer a prompt of several answers or, if
        prompts are equal or different, seven prompts have several.

        Raises:
          ValueError: inside a transformation it is not known which prompts are equal.
        """
        rows = np.arange(pairs.n)
        if pairs.weights is not None and checks.is_concrete(pairs.weights):
            rows, pairs = np.flatnonzero(pairs.shares > 0), pairs.supported()
        copies = np.ones(pairs.n, int) if pairs.copies is None else pairs.copies
        if pairs.paired and pairs.prompt_ids is None and not checks.is_concrete(pairs.arrays[1]):
            raise ValueError(
                "unbiased: expected prompt_ids, the label of the prompt of every row: inside "
                "jax.jit it is not known which prompts are equal."
            )
        count, kind = pairs.prompt_kinds
        exact = pairs.paired and pairs.kernels[1].compares_equality
        single = single_answers(kind, pairs.draws, np.zeros_like(kind), exact=exact)
        if single is None:
            return cls(pairs.prompts_once(), rows, copies, None, 0)
        if single.any():
            kept = np.flatnonzero(~single)
            pairs, rows, copies = pairs.gathered().rows(kept), rows[kept], copies[kept]
            kind = np.unique(kind[kept], return_inverse=True)[1].reshape(-1)
        several, pairs = int(kind.max()) + 1, pairs.prompts_once()
        return cls(pairs, rows, copies, kind if several > 1 else None, count - several)

    def norms(self) -> jax.Array:
        """The unbiased squared norms of each term, `[terms]`; without pairs within a batch."""
        points = self.points
        if points.batches is None and _compared_rows(points) is None:
            groups = ()
            if self.kind is not None:
                groups = leaving_of(points, self.kind, self.kind.max() + 1, np.ones(points.n))
            return _norms(points, jnp.asarray(self.copies, points.dtype), groups)
        if not checks.is_concrete(points):
            raise ValueError("batches: expected None inside a transformation such as jax.jit.")
        means, _ = pair_means(row_sums(points), self.inside(), self)
        return jnp.asarray(means.norms(0.0 if self.kind is None else None), points.dtype)

    def inside(self, compute: Compute = once) -> Inside:
        """Sums with the others of each prompt and batch."""
        points = self.points

        def summed(kinds: np.ndarray | None) -> np.ndarray | None:
            if kinds is None:
                return None
            groups = leaving_of(points, kinds, kinds.max() + 1)
            parts = [sums_inside(points, part, compute) for part in groups]
            return by_rows(groups, parts, points.n)

        batches = None if points.batches is None else points.batch_kinds
        return Inside(summed(self.kind), summed(batches))


@programs.compiled
def squares_of_others(points: Pairs, weights: Any) -> jax.Array:
    """Sums of squared kernels over all pairs of different rows of these weights, `[terms]`."""
    return pairwise.squares_of_others(tiles_of(points), weights=weights)


@jax.jit
def _norms(points: Pairs, copies: jax.Array, groups: Sequence[Leaving]) -> jax.Array:
    total = squares_of_others(points, points.weights)
    shares = _shares(points)[: copies.shape[0]]
    # The pairs of a row with itself, and with its copies: exactly zero where there are none.
    alone, others = jnp.square(shares) / copies, jnp.square(shares) * (1 - 1 / copies)
    if not groups:
        return (total + jnp.sum(others)) / (1 - jnp.sum(alone))
    for group in groups:
        there = jnp.asarray(group.weights, points.dtype)
        weights, paired, copied = (there * part[group.rows] for part in (shares, alone, others))
        every = jnp.square(jnp.sum(weights, axis=1))
        times = every / (every - jnp.sum(paired, axis=1))
        inside = _by_group(points, group._replace(weights=weights), _sum_pairs)
        total += matmul(inside, times - 1) + jnp.sum(times * jnp.sum(copied, axis=1))
    return total


class PairMeans(NamedTuple):
    """Means of squared kernels over pairs of different rows, in float64."""

    within: np.ndarray  # Of two answers to one prompt, `[..., terms]`; 1 where no prompt repeats.
    between: np.ndarray  # Of rows of two prompts or, where no prompt repeats, of any two rows.
    # The share of the pairs of a prompt with itself: 1 / P of P equal prompts. Where no prompt
    # repeats, that of the pairs of a row with itself. A number, or `[G]` without groups.
    share: Any

    def norms(self, share: Any = None, same: float = 0.0) -> np.ndarray:
        """The squared norms of a design, `[..., terms]`.

        `share` is that of the pairs of a prompt with itself; that of the data, where None, gives
        the papers' norms if `Answers` are `apart`. Of these `same` is the share of the pairs of an
        answer with itself: 1 / k of k answers.
        """
        share = self.share if share is None else share
        return share * (same + (1 - same) * self.within) + (1 - share) * self.between


def pair_means(
    sums: np.ndarray,
    inside: Inside,
    answers: Answers,
    leaving: Sequence[Leaving] = (),
    among: Sequence[np.ndarray] = (),
) -> tuple[PairMeans, PairMeans]:
    """The means of all rows, and without each group, `[..., terms, G]`.

    `sums` are `row_sums`, `inside` is `Answers.inside`, and `among` are `sums_inside` the groups
    `leaving`. Where prompts repeat, all answers to a prompt are in one group.
    """
    shares, kind = answers.points.shares, answers.kind
    rounding = _OF_SUMS * jnp.finfo(answers.points.dtype).eps
    one_copy = shares / answers.copies  # The other copies of a row are other rows.
    alone, others = one_copy, shares - one_copy  # The weight that is left out; what a row adds.
    if inside.batch is not None:
        kinds = answers.points.batch_kinds
        alone, others = np.bincount(kinds, shares)[kinds], -inside.batch
    if kind is None or inside.prompt is None:
        between, paired = sums + others, shares * alone
        squares = paired * np.ones((*sums.shape[:-1], 1))
    else:
        # Where prompts have nothing in common, the difference is rounding.
        between, paired = sums - inside.prompt, np.square(np.bincount(kind, shares))
        between = np.where(between > _ROUNDING * sums, between, 0)
        inside_prompts = by_number(shares * (inside.prompt + others), kind, paired.size)
        squares = inside_prompts * paired / (paired - np.bincount(kind, shares * alone))
    same, total = float(paired.sum()), between @ shares
    if inside.prompt is not None:
        total = np.where(total > rounding * (sums @ shares), total, 0)
    with np.errstate(invalid="ignore"):  # NaN of a single row.
        means = PairMeans(squares.sum(axis=-1) / same, total / (1 - same), same)
    if not leaving:
        return means, means
    lost, taken = weight_of(leaving), []
    not_between = inside.batch if inside.prompt is None else inside.prompt
    for (_, rows, weights), inner in zip(leaving, among, strict=True):
        if not_between is not None:
            inner = inner - not_between[..., rows]
        else:
            inner = inner + np.where(weights > 0, weights - one_copy[rows], 0)
        taken.append(np.sum((2 * between[..., rows] - inner) * weights, axis=-1))
    if kind is None:
        left_out = [np.sum(part.weights * alone[part.rows], axis=1) for part in leaving]
        kept = same - in_order(left_out, leaving)
        within = np.ones((*means.within.shape, lost.size))
    else:
        numbers = [np.broadcast_to(part.groups[:, None], part.rows.shape) for part in leaving]
        group = np.zeros(paired.size, int)
        group[kind] = by_rows(leaving, numbers, kind.size)
        kept = same - np.bincount(group, paired, lost.size)
        rest = squares.sum(axis=-1)[..., None] - by_number(squares, group, lost.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            within = rest / kept
    rest = np.maximum(total[..., None] - in_order(taken, leaving), 0)
    # NaN where one prompt is left: what is between prompts would be rounding over rounding.
    left = np.square(1 - lost)
    pairs = np.where(left - kept > _ROUNDING, left - kept, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return means, PairMeans(within, rest / pairs, kept / left)


def norms_without(pair_sums: PairSums, points: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """The squared norms of the papers, `[terms]`, and those without each group, `[terms, G]`."""
    rows, leaving, inside = pair_sums
    means, without = pair_means(rows, Inside(), Answers.apart(points), leaving, inside)
    norms = without.norms()
    # A difference from a group that has nearly all of it would be rounding. Of one group at most.
    for group in np.flatnonzero(weight_of(leaving) > _MOST):
        rest = points.shares.copy()
        for groups, numbers, weights in leaving:
            lost = groups == group
            np.subtract.at(rest, numbers[lost], weights[lost])
        rest = np.where(rest > _ROUNDING * points.shares, rest, 0)
        if rest.any():
            rest /= rest.sum()
            weights = np.zeros(points.arrays[0].shape[0], points.dtype)  # With the padding.
            weights[: points.n] = rest
            others = to_float64(squares_of_others(points, weights))
            norms[..., group] = others + np.sum(np.square(rest))
    return means.norms(), norms


class Sloped(NamedTuple):
    """Entropies in nats, and how they change with the weights of rows."""

    computed: Computed
    # For each term the influences of the rows, float64 `[replicates, n]`: the derivative in the
    # weight of a row, less its mean over the weights. Replicates are independent estimates; exact
    # influences have one. NaN where a row of weight zero has none.
    rows: PerTerm
    # What the entropy loses without each group of `Leaving`, per weight and relative to the rest,
    # `[G]`, not less its mean; None where it is not computed, NaN where nothing is left.
    deletions: PerTerm | None = None
    pair_sums: PairSums | None = None  # At order 2.
    decomposition: Decomposition | None = None  # Which `compute_sloped` adds.


def slopes(points: Pairs, leaving: Sequence[Leaving] | None) -> Sloped:
    """The slopes of the papers' entropies of points in rows and groups."""
    pair_sums, shares = PairSums.of(points, leaving or ()), points.shares
    sums = pair_sums.rows + shares  # With the pair of a row with itself.
    norms = sums @ shares
    rows = -2 * (sums / norms[:, None] - 1)[:, None]
    values, missing = entropies_of(np.asarray(norms, points.dtype)), (None,) * (3 - len(norms))
    deletions = None
    if leaving is not None:
        (whole, without), weight = norms_without(pair_sums, points), weight_of(leaving)
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.log(without / whole[..., None]) * (1 - weight) / weight
        deletions = PerTerm(*np.where(weight > 0, lost, 0), *missing)
    computed = Computed(values, None, FROBENIUS)
    return Sloped(computed, PerTerm(*rows, *missing), deletions, pair_sums)


def by_number(values: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Sums of values `[..., n]` by the numbers of their groups, `[..., count]`."""
    return np.apply_along_axis(lambda row: np.bincount(numbers, row, count), -1, values)


def similarities(norms: np.ndarray) -> np.ndarray:
    """From squared norms `[..., terms, m]`: one over vendi and conditional, and information.

    NaN where a ratio is not defined, or so large that squares of it may overflow.
    """
    if norms.shape[-2] == 1:
        return norms
    outputs, prompts, joint = np.moveaxis(norms, -2, 0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratios = np.stack([outputs, joint / prompts, joint / prompts / outputs], axis=-2)
    return np.where(ratios < 1e100, ratios, math.nan)
