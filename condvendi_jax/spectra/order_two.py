"""Order 2: sums of squared kernels over the pairs of different rows, and what follows from them.

Of rows with the shares w, the squared norm of a Gram is a mean over all pairs of rows,

    ||K||^2 = sum_i w_i^2 + sum over i != j of w_i w_j k_ij^2.

The first sum is what the pairs of a row with itself add, whatever the data are: 1 / n if all shares
are equal. The papers' scores have it, so that they grow with n. The unbiased ones replace it:

- where prompts repeat, by the mean over the other answers to the same prompt. That is the norm of
  these prompts, with infinitely many answers to each;
- elsewhere by the mean over all other rows: that of infinitely many rows.

`PairMeans` has both, and the norms of any other design (`cv-order-2-designs`).
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, devices, programs
from condvendi_jax.data.kernel_choice import ENOUGH_REPEATED
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, PerTerm, eigenvalues, of_squared_norm
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.grams.operators import OfPoints, grams_of
from condvendi_jax.spectra import pair_sums as over_pairs
from condvendi_jax.spectra.pair_sums import Leaving, PairSums, by_rows, factor, in_order, weight_of

FROBENIUS = "frobenius"  # The method of these entropies.
_MOST = 0.9  # Of the weight of all rows: without such a group, sums are taken anew.
_OF_SUMS = 16  # Of a difference of sums: so many roundings, relative to them, may be its error.
_ROUNDING = 1e-12  # Of shares of pairs: less than this may be rounding.


def frobenius(points: Pairs, terms: tuple[str, ...], *, unbiased: bool = False) -> PerTerm:
    """The papers' entropies of order 2, or those without pairs of a row with itself."""
    if unbiased:
        return entropies_of(Answers.of(points).norms())
    kinds = over_pairs.compared_rows(points)
    near = over_pairs.in_numpy(points)
    if kinds is not None:
        norms = np.full(2 * len(kinds) - 1, math.nan, points.dtype)
        for k in (PerTerm._fields.index(name) for name in terms):
            if k == 0 and kinds[0] is None and near is None:
                norms[k] = _squared_norms(factor(points, 0), True)[0]
            else:
                given = kinds, over_pairs.TERMS[k], over_pairs.once
                norms[k] = _norms_of_sums(points, over_pairs.sums_of_term(points, *given))
    elif near is None:
        norms = _squared_norms(points, checks.is_concrete(points))
    else:
        norms = _norms_of_sums(near, over_pairs.all_row_sums(points))
    values = entropies_of(norms)
    return PerTerm(*(getattr(values, t) if t in terms else None for t in PerTerm._fields))


@functools.partial(programs.compiled, static_argnums=1)
def _squared_norms(points: Pairs, in_tiles: bool) -> jax.Array:
    """The squared norms of K_X / n and, with prompts, of K_T and the pairs, `[terms]`."""
    first, *second = grams_of(points)
    grams = [first, *second, *(first * other for other in second)]
    if in_tiles or (second and all(isinstance(gram, OfPoints) for gram in grams)):
        return pairwise.squared_norms(over_pairs.tiles_of(points), weights=points.weights)
    shares = over_pairs.placed_shares(points)  # Matrices have derivatives in forward mode too.
    return jnp.stack([gram.squared_norm_by(shares) for gram in grams])


def _norms_of_sums(points: Pairs, sums: np.ndarray) -> np.ndarray:
    """The squared norms of sums over the other rows `[..., n]`."""
    return ((sums + points.shares) @ points.shares).astype(points.dtype)


@functools.partial(devices.compiled_elsewhere, of_jax=True)
def entropies_of(norms: Any) -> PerTerm:
    """CV eq. 4 and 11 from the squared norms of K_X / n and, with prompts, K_T and the pairs."""
    return PerTerm(*map(of_squared_norm, norms), *(None,) * (3 - norms.shape[0]))


def single_answers(
    prompt: np.ndarray, draws: np.ndarray, model: np.ndarray, *, exact: bool
) -> np.ndarray | None:
    """The rows of prompts to which some model has a single answer, booleans `[n]`.

    None where all prompts are equal, and where single answers are most draws of a model; if prompts
    count as equal or different (`exact`), where too few prompts have several, too. Prompts and
    models have numbers from 0; `draws` are `Pairs.draws`, so that a batch is a single answer.
    """
    answers = model * (prompt.max() + 1) + prompt
    single = np.isin(prompt, prompt[np.bincount(answers, draws)[answers] < 1.5])
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
    def apart(cls, pairs: Pairs) -> Self:
        """All rows of pairs, as if no prompt repeated."""
        copies = np.ones(pairs.n, int) if pairs.copies is None else np.maximum(pairs.copies, 1)
        return cls(pairs, np.arange(pairs.n), copies, None, 0)

    @classmethod
    def of(cls, pairs: Pairs) -> Self:
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
            why = "inside jax.jit it is not known which prompts are equal."
            expected = "expected prompt_ids, the label of the prompt of every row"
            raise ValueError(f"unbiased: {expected}: {why}")
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
        if points.batches is None and over_pairs.compared_rows(points) is None:
            groups = ()
            if self.kind is not None:
                groups = over_pairs.leaving_of(np.ones(points.n), self.kind)
            return _norms(points, jnp.asarray(self.copies, points.dtype), groups)
        if not checks.is_concrete(points):
            raise ValueError("batches: expected None inside a transformation such as jax.jit.")
        means, _ = pair_means(over_pairs.row_sums(points), self.inside(), self)
        return jnp.asarray(means.norms(0.0 if self.kind is None else None), points.dtype)

    def inside(self, compute: over_pairs.Compute = over_pairs.once) -> Inside:
        """Sums with the others of each prompt and batch."""
        points = self.points

        def summed(kinds: np.ndarray | None) -> np.ndarray | None:
            if kinds is None:
                return None
            groups = over_pairs.leaving_of(points.shares, kinds)
            parts = [over_pairs.sums_inside(points, part, compute) for part in groups]
            return by_rows(groups, parts, points.n)

        batches = None if points.batches is None else points.batch_kinds
        return Inside(summed(self.kind), summed(batches))


@jax.jit
def _norms(points: Pairs, copies: jax.Array, groups: Sequence[Leaving]) -> jax.Array:
    total = over_pairs.squares_of_others(points, points.weights)
    shares = over_pairs.placed_shares(points)[: copies.shape[0]]
    # The pairs of a row with itself, and with its copies: exactly zero where there are none.
    alone, others = jnp.square(shares) / copies, jnp.square(shares) * (1 - 1 / copies)
    if not groups:
        return (total + jnp.sum(others)) / (1 - jnp.sum(alone))
    for group in groups:
        there = jnp.asarray(group.weights, points.dtype)
        weights, paired, copied = (there * part[group.rows] for part in (shares, alone, others))
        every = jnp.square(jnp.sum(weights, axis=1))
        times = every / (every - jnp.sum(paired, axis=1))
        inside = over_pairs.by_group(points, group._replace(weights=weights), over_pairs.sum_pairs)
        total += eigenvalues.matmul(inside, times - 1) + jnp.sum(times * jnp.sum(copied, axis=1))
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


def _apart(answers: Answers, inside: Inside) -> tuple[np.ndarray, np.ndarray]:
    """Of each row, the weight that is left out, and what it adds to sums with others."""
    shares = answers.points.shares
    if inside.batch is not None:
        kinds = answers.points.batch_kinds
        return np.bincount(kinds, shares)[kinds], -inside.batch
    return shares / answers.copies, shares - shares / answers.copies


def within_each(answers: Answers, inside: Inside) -> np.ndarray:
    """The mean of squared kernels over two different answers to each prompt, `[..., terms, p]`."""
    assert answers.kind is not None and inside.prompt is not None
    shares, kind = answers.points.shares, answers.kind
    alone, others = _apart(answers, inside)
    pairs = np.square(np.bincount(kind, shares)) - np.bincount(kind, shares * alone)
    return by_number(shares * (inside.prompt + others), kind, pairs.size) / pairs


@np.errstate(invalid="ignore", divide="ignore")
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
    alone, others = _apart(answers, inside)
    if kind is None or inside.prompt is None:
        between, paired = sums + others, shares * alone
        squares = paired * np.ones((*sums.shape[:-1], 1))
    else:
        # Where prompts have nothing in common, the difference is rounding.
        between, paired = sums - inside.prompt, np.square(np.bincount(kind, shares))
        between = np.where(between > _ROUNDING * sums, between, 0)
        squares = paired * within_each(answers, inside)
    same, total = float(paired.sum()), between @ shares
    if inside.prompt is not None:
        total = np.where(total > rounding * (sums @ shares), total, 0)
    means = PairMeans(squares.sum(axis=-1) / same, total / (1 - same), same)  # NaN of a single row.
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
        within = rest / kept
    rest = np.maximum(total[..., None] - in_order(taken, leaving), 0)
    # NaN where one prompt is left: what is between prompts would be rounding over rounding.
    left = np.square(1 - lost)
    pairs = np.where(left - kept > _ROUNDING, left - kept, np.nan)
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
            others = over_pairs.to_float64(over_pairs.squares_of_others(points, weights))
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
    return Sloped(Computed(values, None, FROBENIUS), PerTerm(*rows, *missing), deletions, pair_sums)


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
