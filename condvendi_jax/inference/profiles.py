"""Scores of models at every bandwidth of a ladder, and over which of them one model leads.

Bands and signs hold at all bandwidths at once, at about the level. With a random multiplier for
each independent group of rows, the sums of their influences have about the joint distribution of
the errors of all models at all bandwidths (docs/bandwidths.md). An interval at the level of the
largest is a band, and a difference whose interval excludes 0 at that level has a sign.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # Its modules are imported when they are used.
from jax.typing import ArrayLike

from condvendi_jax.base import checks, programs
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.data.rows import NAMES, prompts_by_model
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import population, saturation
from condvendi_jax.inference.designs import Common, Rows
from condvendi_jax.inference.errors import FEWEST_ROWS, Groups, Units, too_few
from condvendi_jax.inference.evaluations import Data, Plan, answers_to_each, takes_data
from condvendi_jax.inference.population import Population
from condvendi_jax.results.profile import Over, PairProfile, Profile
from condvendi_jax.spectra import order_two, pair_sums
from condvendi_jax.statistics import intervals, multiplicity, reasons
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.reasons import Reason, Saturated

LADDER: tuple[float, ...] = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""The default multiples of the bandwidths: from 1/8 to 8, two to an octave."""
# Rows that one pass may have at several bandwidths without being asked for: a few seconds.
_CHEAP = 10_000
# Pairs of rows, of all models, that one pass compares at several bandwidths; above it prompts are
# drawn, of which so many at least are needed.
_MOST_PAIRS, _FEWEST_DRAWN = 2**28, 100
_ENTROPY = Entropy(order=2)
_DRAWS = 5000  # Draws of the multipliers: a p-value of 0.05 has a standard error of 0.003.
_AT_ONCE = 50
_LARGEST = 1e300  # Squares that are larger may overflow where they are added.
_TIES = 1e-5  # Relative: draws that are as large but for rounding count as larger.


@takes_data
def profile(
    models: Mapping[str, ArrayLike | Labels] | ArrayLike | Labels,
    prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
    *,
    over: Over | None = None,
    multiples: Sequence[float] = LADDER,
    unbiased: bool = True,
    one_population: bool = False,
    groups: ArrayLike | None = None,
    level: float = 0.05,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
    **data: Unpack[Data],
) -> Profile:
    """The scores of order 2 at every bandwidth of a ladder, and where one model leads.

    One pass over the pairs of rows gives all of them. Use it before you conclude anything from
    scores at one bandwidth: it says over which bandwidths a conclusion holds.

    Args:
      models: the outputs of each by name, as `compare`; or those of one.
      prompts: as `compare`.
      over: which bandwidths the multiples multiply: those of 'outputs', 'prompts' or 'both'; where
        None, those that there are.
      multiples: of the chosen bandwidths, ascending.
      seed, progress, data: see `compare`. A kernel of your own moves as `Kernel` says.
      unbiased, one_population: see `compare`. Models are compared on the prompts that all share.
      groups: the label of each row, `[n]`: rows of one label depend on each other. If None, rows of
        equal prompts do.
      level: the bands of a model cover all of its scores at once, and all signs of all pairs are
        right at once, with probability about 1 - level (docs/bandwidths.md).

    Raises:
      TypeError, ValueError: `over` is unknown, a kernel that moves has no bandwidth, the
        multiples are not ascending numbers above 0, or `compare` would refuse the arguments.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.normal(size=(300, 2)).astype(np.float32)
      >>> few, many = (prompts + s * rng.normal(size=(300, 2)).astype(np.float32) for s in (0.2, 1))
      >>> kernel = cv.Gaussian(1.0)
      >>> options = dict(output_kernel=kernel, prompt_kernel=kernel, multiples=[0.5, 1, 2])
      >>> result = cv.profile({"few": few, "many": many}, prompts, **options)
      >>> result.pair("many", "few").signs.tolist()
      [1, 1, 1]
    """
    plan = Plan([2], None, None, True, groups, seed, progress, unbiased=unbiased)
    if plan.count is not None:
        raise ValueError(f"groups: expected the label of each row or None, received {groups!r}.")
    pairs = plan.pairs(models if isinstance(models, Mapping) else {"": models}, prompts, **data)
    rows = Rows.of({name: of_model.supported() for name, of_model in pairs.items()})
    shared = None if one_population else rows.numbers()
    level = checks.check_number(level, name="level", above=0, below=1)
    together, differ = rows.together(shared), shared and shared.apart
    return _of_pairs(together, plan, over, multiples, level, differ)


def of_plan(
    plan: Plan, pairs: Mapping[str, Pairs], *, level: float, asked: bool, differ: Reason | None
) -> Profile | None:
    """Computes the profile for `compare`: order 2 over all bandwidths.

    None above 10,000 rows, unless it is `asked` for, and of two rows, which have no errors;
    ValueError if it cannot be computed.
    """
    refused, kernels = None, next(iter(pairs.values())).kernels
    if all(kernel.known_bandwidth is None for kernel in kernels):
        refused = "a Gaussian kernel, whose bandwidth moves, or one of yours with a `bandwidth`"
    elif all(entropy.needs_spectrum for entropy in plan.entropies):
        refused = "order 2 without truncation, of all pairs of rows"
    elif not plan.errors or plan.count is not None:
        refused = "errors, from the influences of rows"
    if asked and refused:
        raise ValueError(f"profile: expected {refused}.")
    cheap = len(pairs) > 1 and sum(rows.n for rows in pairs.values()) <= _CHEAP
    if refused or min(rows.total for rows in pairs.values()) < FEWEST_ROWS or not (asked or cheap):
        return None
    return _of_pairs(pairs, plan, None, LADDER, level, differ)


def _of_pairs(
    pairs: Mapping[str, Pairs], plan: Plan, over: Any, multiples: Any, level: float, differ: Any
) -> Profile:
    """Computes the profile of pairs under the same kernels; `differ`: why it tests nothing."""
    first = next(iter(pairs.values()))
    moves = [kernel.known_bandwidth is not None for kernel in first.kernels]
    over = over or ("both" if all(moves) or not any(moves) else NAMES[moves.index(True)])
    moving = _moving(first, over)
    ladder = np.array(multiples, np.float64) if np.ndim(multiples) == 1 else np.zeros(0)
    finite = ladder.size > 0 and np.isfinite(ladder).all()
    if not (finite and (np.diff(ladder, prepend=0) > 0).all()):
        raise ValueError(f"multiples: expected ascending numbers above 0, received {multiples!r}.")
    common, units = Common.of(pairs), Units.of(pairs, None, plan.keys.groups)
    unbiased, curves, shares = plan.unbiased, {}, (None, 0.0)
    if unbiased:
        shares = common.shares(map(order_two.Answers.of, pairs.values()), unbiased=True)
    drawn, sampled = _drawn(pairs, plan.seed) if unbiased else ({}, 0)
    for name, rows in pairs.items():
        plan.progress("all bandwidths" + (f" of {name}" if name else ""))

        def curve(rows: Pairs, groups: Groups, outputs: bool = True) -> Curve:
            along = _populations(rows, moving, ladder, groups, unbiased=unbiased, outputs=outputs)
            return curve_of(along, rows, groups, shares, unbiased=unbiased)

        groups = units.of_models[name]
        curves[name] = curve(rows, groups, not sampled)
        if sampled:
            some = drawn[name]
            groups = groups._replace(membership=groups.membership[some], of_all=groups.count)
            curves[name] = curves[name].beside(curve(rows.rows(some), groups))
    if not unbiased and len(pairs) > 1:
        differ = differ or (common.reason if common.design is None else reasons.GROWING)
    how: Any = {"over": over, "ladder": ladder, "level": level, "seed": plan.seed}
    whole = of_curves(pairs, curves, units, entropy=_ENTROPY, differ=differ, **how)
    counts = np.concatenate([*map(answers_to_each, pairs.values())])
    answers = int(counts[0]) if unbiased and len({*counts}) == 1 else 1
    return dataclasses.replace(whole, sampled=sampled, answers=answers)


def _drawn(pairs: Mapping[str, Pairs], seed: int) -> tuple[dict[str, np.ndarray], int]:
    """The rows of each model whose prompts are compared with others, and how many these are.

    None and 0 where all are. All pairs of rows are compared, but for answers to one prompt.
    """
    models = [*pairs.values()]
    (count, kinds), work = prompts_by_model(models), sum(rows.n**2 for rows in models)
    equal, share = models[0].kernels[-1].compares_equality, math.sqrt(_MOST_PAIRS / work)
    if not equal or share >= 1 or count * share < _FEWEST_DRAWN:
        return {}, 0
    chosen = np.random.default_rng(seed).permutation(count) < int(count * share)
    rows = (np.flatnonzero(chosen[of_model]) for of_model in kinds)
    return dict(zip(pairs, rows, strict=True)), int(chosen.sum())


def curve_of(
    scores: Sequence[Population], pairs: Pairs, units: Groups, shares: Any, *, unbiased: bool = True
) -> Curve:
    """The curve of a model at order 2 under several kernels, at the design of `Common.shares`."""
    at = [under_one.at(*shares) for under_one in scores]
    reason = at[0].reason or too_few(pairs, units, _ENTROPY)
    reason = reasons.SPLIT if at[0].labels is not None else reason
    unknown = functools.partial(Error, influences=np.full((1, 1), math.nan), reason=reason)
    errors = [under_one.errors or under_one.values.map(unknown) for under_one in at]
    if not unbiased:
        errors = [of_scores.map(Error.in_logarithms) for of_scores in errors]
    limits = zip(*(under_one.limits for under_one in at), strict=True)
    return Curve(errors, saturation.Nearly(*(np.stack(ends, axis=1) for ends in limits)), reason)


def of_curves(
    pairs: Mapping[str, Pairs],
    curves: Mapping[str, Curve],
    units: Units,
    *,
    entropy: Entropy,
    over: Over,
    ladder: np.ndarray,
    level: float,
    seed: int,
    differ: Reason | None = None,
) -> Profile:
    """The profile of models with these curves, with bands and signs."""
    first = next(iter(pairs.values()))
    names = PerScore._fields if first.paired else ("vendi",)
    rounding = saturation.rounding(entropy, first.dtype)
    tested = Tested(curves, units.matched != "none", level, seed, rounding, differ)
    bands, told = zip(*map(tested.of_score, names), strict=True)
    # Each `[scores, models, m]`, of one score without prompts, and else of three.
    values = [[[e.value for e in curve.of(name)] for curve in curves.values()] for name in names]
    saturated = [[curve.saturated(name) for curve in curves.values()] for name in names]
    missing, parts = [None] * (3 - len(names)), (values, bands, saturated)
    values, bands, saturated = (PerScore(*map(np.array, part), *missing) for part in parts)
    numbers = tuple(rows.total for rows in pairs.values())
    chosen = entropy.order, over, ladder, first.bandwidths, values, bands, saturated
    groups = min(rows.independent(pairs[name]) for name, rows in units.of_models.items())
    tests = tuple(itertools.chain(*told)), level, next(iter(units.of_models.values())).units
    return Profile(tuple(pairs), numbers, *chosen, *tests, groups, seed, tested.reason)


def _moving(points: Pairs, over: Over) -> list[int]:
    """The numbers of the kernels that move; ValueError where one of them has no bandwidth."""
    choices = (*NAMES, "both") if points.paired else ("outputs", "both")
    if over not in choices:
        raise ValueError(f"over: expected one of {', '.join(choices)}, received {over!r}.")
    moving = [k for k in range(len(points.kernels)) if over in (NAMES[k], "both")]
    for index in moving:
        if points.kernels[index].known_bandwidth is None:
            moves = f"a Gaussian kernel of the {NAMES[index]}, whose bandwidth moves"
            yours = f"or one of yours with a `bandwidth`, received {points.kernels[index]!r}."
            raise ValueError(f"over: expected {moves}, {yours}")
    return moving


def _populations(
    pairs: Pairs,
    moving: Sequence[int],
    ladder: np.ndarray,
    units: Groups | None,
    *,
    unbiased: bool,
    outputs: bool = True,
) -> list[Population]:
    """The scores of order 2 at every multiple; without `outputs`, the conditional one alone."""
    answers = order_two.Answers.of(pairs) if unbiased else order_two.Answers.apart(pairs)
    kernels: list[Any] = list(answers.points.kernels)
    for index in moving:  # All multiples use the form of the kernel that suits the narrowest.
        kernel = kernels[index]
        narrowest = kernel.with_bandwidth(kernel.bandwidth * float(ladder[0]))
        fitting = narrowest.suited_to(answers.points.arrays[index])
        kernels[index] = fitting.with_bandwidth(kernel.bandwidth)
    points = answers.points.under(tuple(kernels))
    leaves = {index: jax.tree.leaves(kernels[index]) for index in moving}
    traced = all(any(x is kernels[k].bandwidth for x in leaves[k]) for k in moving)

    def along(function: Any, points: Pairs, factors: Sequence[int], *given: Any) -> np.ndarray:
        """The function at every multiple, `[m, ...]`; `factors` are the numbers of the kernels."""
        moved = tuple(k for k, factor in enumerate(factors) if factor in moving)
        if traced:
            multiples = jnp.asarray(ladder, points.dtype)
            return pair_sums.to_float64(_at_every(function, points, moved, multiples, *given))
        several = (_times(points, moved, times) for times in ladder.tolist())
        return np.stack([pair_sums.to_float64(function(scaled, *given)) for scaled in several])

    # The papers' scores count the pairs within a batch.
    within = answers._replace(points=points).inside(along) if unbiased else order_two.Inside()
    inside = functools.partial(pair_sums.sums_inside, points, compute=along)
    sums = pair_sums.row_sums(points, along, outputs=outputs)
    return population.of_each(answers, units, sums, within, inside)


@functools.partial(programs.compiled, static_argnums=(0, 2))
def _at_every(
    function: Callable, points: Pairs, moving: tuple[int, ...], multiples: jax.Array, *given: Any
) -> jax.Array:
    """A function of the points at every multiple of the bandwidths that move, `[m, ...]`."""
    return jax.vmap(lambda times: function(_times(points, moving, times), *given))(multiples)


def _times(points: Pairs, moving: tuple[int, ...], times: Any) -> Pairs:
    """The points under kernels with multiples of their bandwidths."""
    kernels: list[Any] = list(points.kernels)
    for index in moving:
        kernels[index] = kernels[index].with_bandwidth(kernels[index].bandwidth * times)
    return points.under(tuple(kernels))


class Curve(NamedTuple):
    """One model along the ladder."""

    errors: Sequence[PerScore]  # At each bandwidth, an `Error` of each score.
    limits: saturation.Nearly  # Where scores are nearly at a limit, `[scores, m]`.
    reason: Reason | None = None  # Why nothing is tested.

    def of(self, score: str) -> list[Error]:
        """The errors of a score, of each bandwidth; where they may overflow, they are unknown."""
        return [_finite(getattr(errors, score)) for errors in self.errors]

    def beside(self, sampled: Curve) -> Curve:
        """The conditional score of this curve, with the others of sampled prompts."""
        both = zip(self.errors, sampled.errors, strict=True)
        errors = [some._replace(conditional=whole.conditional) for whole, some in both]
        given = np.array([[score == "conditional"] for score in PerScore._fields])
        limits = saturation.Nearly(*map(np.where, [given] * 2, self.limits, sampled.limits))
        return Curve(errors, limits, self.reason or sampled.reason)

    def saturated(self, score: str) -> np.ndarray:
        """Where a score has no band, as it is nearly at a limit, `[m]`."""
        index = PerScore._fields.index(score)
        few = [isinstance(error.reason, Saturated) for error in self.of(score)]
        return self.limits.largest[index] | self.limits.smallest[index] | few


def _finite(error: Error) -> Error:
    """The error, or that it is not known."""
    tested = error.inverse or error
    with np.errstate(over="ignore", invalid="ignore"):
        square = tested.value**2 + np.sum(np.square(tested.influences))
    if error.reason is not None or square < _LARGEST:
        return error
    return dataclasses.replace(error, reason=reasons.OVERFLOW)


class Tested(NamedTuple):
    """Bands and signs of models along the ladder, from draws of all their errors together."""

    curves: Mapping[str, Curve]
    matched: bool  # Whether the groups of all models are the same.
    level: float
    seed: int
    rounding: float  # Relative: no difference or error counts as smaller.
    differ: Reason | None = None  # Why the scores of models cannot be compared.

    @property
    def reason(self) -> Reason | None:
        """Why nothing is tested; None where something is."""
        return reasons.first([*(curve.reason for curve in self.curves.values()), self.differ])

    def of_score(self, score: str) -> tuple[np.ndarray, list[PairProfile]]:
        """The bands of each model, `[models, m, 2]`, and every two models."""
        count = len(next(iter(self.curves.values())).errors)
        if self.reason is not None:
            bands = np.full((len(self.curves), count, 2), math.nan)
            none = np.zeros(count, int), [self.reason] * count, math.nan, math.nan
            two = itertools.combinations(self.curves, 2)
            return bands, [PairProfile(*names, score, *none) for names in two]
        models = [_Drawn.of(curve, score, self.rounding) for curve in self.curves.values()]
        freedom = max(min(error.freedom for model in models for error in model.errors), 1.0)
        draws = self._draws(models, freedom, PerScore._fields.index(score))
        bands = np.array([self._band(*pair, freedom) for pair in zip(draws, models, strict=True)])
        return bands, self._differences(score, models, draws, freedom)

    def _draws(self, models: Sequence[_Drawn], freedom: float, number: int) -> np.ndarray:
        """Errors of each model, in standard errors, by Student's t, `[models, draws, m]`."""
        generator, sets = np.random.default_rng([self.seed, number]), [[model] for model in models]
        drawn = []
        for together in [models] if self.matched else sets:
            block = np.concatenate([model.relative for model in together])
            normal = np.zeros(len(block)), block @ block.T / block.shape[1], _DRAWS, "ignore"
            drawn.append(generator.multivariate_normal(*normal, method="eigh"))
        spread = np.sqrt(generator.chisquare(freedom, (_DRAWS, 1)) / freedom)
        every = np.concatenate(drawn, axis=1) / spread
        return np.moveaxis(every.reshape(_DRAWS, len(models), -1), 1, 0)

    def _band(self, draws: np.ndarray, model: _Drawn, freedom: float) -> np.ndarray:
        """The ends of the band of a model, `[m, 2]`: intervals at the level of the largest."""
        band = np.full((len(model.errors), 2), math.nan)
        if not model.kept.any():
            return band
        largest = np.max(np.abs(draws[:, model.kept]), axis=1)
        # The level of an interval so many standard errors to each side.
        level = 2 * scipy.special.stdtr(freedom, -np.quantile(largest, 1 - self.level)).item()
        kept = itertools.compress(model.scores, model.kept)
        band[model.kept] = [error.interval(level) for error in kept]
        return band

    def _differences(
        self, score: str, models: Sequence[_Drawn], draws: np.ndarray, freedom: float
    ) -> list[PairProfile]:
        """Every two models: signs, why they are not tested, the p-value alone and among all."""
        pairs = list(itertools.combinations(range(len(models)), 2))
        if not pairs:
            return []
        names = list(self.curves)
        observed, every = np.zeros((len(pairs), draws.shape[2])), []
        parts = np.zeros((2, *observed.shape))
        for k, (one, two) in enumerate(pairs):
            first, second = models[one], models[two]
            every.append(first.untested(second, score, (names[one], names[two])))
            tested = np.array([reason is None for reason in every[k]])
            if not tested.any():
                continue
            correlation = np.mean(first.relative * second.relative, axis=1) if self.matched else 0.0
            levels = first.level_apart(second, correlation)
            apart = np.where(tested, first.values - second.values, 0)
            largest = np.maximum(np.abs(first.values), np.abs(second.values))
            known = tested & (np.abs(apart) > self.rounding * largest)
            reached = np.where(known, intervals.student(freedom, levels), 0)
            sign = -1 if first.errors[0] is not first.scores[0] else 1
            observed[k] = sign * np.sign(apart) * reached
            # Relative to the larger error, as scores may be as large as floating-point allows.
            scale = np.maximum(first.scales, second.scales)
            a, b = first.scales / scale, second.scales / scale
            error = np.sqrt(np.maximum(a**2 - 2 * correlation * a * b + b**2, self.rounding**2))
            parts[:, k] = np.where(tested, (a / error, b / error), 0)
        drawn = np.zeros((_DRAWS, *observed.shape), np.float32)
        (one, two), by_draw = np.array(pairs).T, np.moveaxis(draws, 1, 0)
        for some in range(0, _DRAWS, _AT_ONCE):  # A few at once stay in the cache.
            few = by_draw[some : some + _AT_ONCE]
            apart = parts[0] * few.take(one, axis=1) - parts[1] * few.take(two, axis=1)
            drawn[some : some + _AT_ONCE] = np.abs(apart)
        largest = np.abs(observed) * (1 - _TIES)
        told = multiplicity.stepped_down(largest, drawn, self.level)
        p_values = np.array(multiplicity.joint_p_values(largest.max(axis=1), drawn.max(axis=2)))
        p_values[:, [None not in why for why in every]] = math.nan
        signs = np.where(told, np.sign(observed), 0).astype(int)
        return [
            PairProfile(names[one], names[two], score, signs[k], every[k], *p_values[:, k])
            for k, (one, two) in enumerate(pairs)
        ]


class _Drawn(NamedTuple):
    """One score of one model along the ladder, for draws of its errors."""

    scores: list[Error]
    errors: list[Error]  # Of one over a score, if that is what is tested.
    limits: saturation.Nearly  # `[m]` each.
    values: np.ndarray  # `[m]`; 1 where there is no number.
    scales: np.ndarray  # The standard errors, `[m]`; 1 where there are none.
    relative: np.ndarray  # Influences in standard errors, `[m, g]`; 0 where there are none.
    kept: np.ndarray  # Where there is a band, `[m]`.
    ends: np.ndarray  # Of the intervals at `LEVELS`, `[2, m, levels]`; 0 where there are none.

    @classmethod
    def of(cls, curve: Curve, score: str, rounding: float) -> _Drawn:
        index, scores = PerScore._fields.index(score), curve.of(score)
        errors = [error.inverse or error for error in scores]
        known = np.array([error.reason is None for error in errors])
        values = np.where(known, [error.value for error in errors], 1)
        rows = np.array([np.mean(error.influences, axis=0) for error in errors])
        rows = np.where(known[:, None], rows, 0)
        scales = [error.standard_error if error.reason is None else 1.0 for error in errors]
        scales = np.maximum(scales, np.maximum(rounding * np.abs(values), intervals.LEAST))
        ends = saturation.Nearly(*(end[index] for end in curve.limits))
        at_levels = np.zeros((2, len(errors), intervals.LEVELS.size))
        for place in np.flatnonzero(known):
            at_levels[0, place], at_levels[1, place] = errors[place].at_levels(intervals.LEVELS)
        rest = rows / scales[:, None], known & ~curve.saturated(score), at_levels
        return cls(scores, errors, ends, values, scales, *rest)

    def untested(self, other: _Drawn, score: str, names: tuple[str, str]) -> list[Reason | None]:
        values = np.array([[error.value for error in model.scores] for model in (self, other)])
        limits = (np.array(ends) for ends in zip(self.limits, other.limits, strict=True))
        why = saturation.untested(score, names, values, saturation.Nearly(*limits))
        both = zip(why, self.errors, other.errors, strict=True)
        return [reason or one.reason or two.reason for reason, one, two in both]

    def level_apart(self, other: _Drawn, correlation: np.ndarray | float) -> np.ndarray:
        """The smallest level from which on the interval of the difference excludes 0, `[m]`."""
        values = self.values[:, None], other.values[:, None]
        ends: Any = [lambda _, model=model: model.ends for model in (self, other)]
        correlation = np.reshape(correlation, (-1, 1))
        low, high = intervals.difference(values, ends, correlation)(intervals.LEVELS)
        return np.exp(intervals.crossing(np.maximum(low, -high), np.log(intervals.LEVELS))[2])
