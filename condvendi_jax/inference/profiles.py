"""Scores of models at every bandwidth of a ladder, and over which of them one model leads.

Bands and signs come from the influences of rows at every bandwidth. With a random multiplier for
each independent group of rows, their sums have the joint distribution of the errors of all models
at all bandwidths, and so of the largest of them (docs/bandwidths.md).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.kernel_choice import NAMES
from condvendi_jax.data.kernels import Gaussian
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import errors as errors_of
from condvendi_jax.inference import population, saturation
from condvendi_jax.inference.designs import Common
from condvendi_jax.inference.errors import FEWEST_ROWS, Groups, Units
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.inference.population import Population
from condvendi_jax.inference.shared_prompts import Rows
from condvendi_jax.results.profile import Over, PairProfile, Profile
from condvendi_jax.spectra import order_two
from condvendi_jax.spectra.order_two import Leaving, to_float64
from condvendi_jax.statistics import intervals, multiplicity

LADDER: tuple[float, ...] = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""The default multiples of the bandwidths: from 1/8 to 8, two to an octave."""
# Draws of the multipliers: a p-value of 0.05 has a standard error of 0.003.
_DRAWS = 5000
_LARGEST = 1e300  # Squares that are larger may overflow where they are added.
_TIES = 1e-5  # Relative: draws that are as large but for rounding count as larger.
# Rows that one pass may have at several bandwidths without being asked for: a few seconds.
_CHEAP = 10_000
_ENTROPY = Entropy(order=2)


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
      seed, progress, data: see `compare`. The kernels whose bandwidths move are `Gaussian`.
      unbiased, one_population: see `compare`. Models are compared on the prompts that all share.
      groups: the label of each row, `[n]`: rows of one label depend on each other. If None, rows of
        equal prompts do.
      level: the bands of a model cover all of its scores at once, and all signs of all pairs are
        right at once, with probability 1 - level.

    Returns:
      A `Profile`; `print` shows it, and its `plot` draws it.

    Raises:
      TypeError, ValueError: `over` is unknown, a kernel that moves is not a `Gaussian`, the
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
    pairs = {name: rows.supported() for name, rows in pairs.items()}
    rows = Rows.of(pairs)
    shared = None if one_population else rows.numbers()
    level = checks.check_number(level, name="level", above=0, below=1)
    options: dict[str, Any] = {"over": over, "multiples": multiples, "level": level}
    return _of_pairs(rows.together(pairs, shared), plan, differ=shared and shared.apart, **options)


def of_plan(
    plan: Plan, pairs: Mapping[str, Pairs], *, level: float, asked: bool, differ: str | None
) -> Profile | None:
    """Computes the profile for `compare`: order 2 over all Gaussian bandwidths.

    None above 10,000 rows, unless it is `asked` for, and of two rows, which have no errors;
    ValueError if it cannot be computed.
    """
    refused, kernels = None, next(iter(pairs.values())).kernels
    if not any(isinstance(kernel, Gaussian) for kernel in kernels):
        refused = "a Gaussian kernel, whose bandwidth moves"
    elif all(of.needs_spectrum for of in plan.entropies):
        refused = "order 2 without truncation, of all pairs of rows"
    elif not plan.errors or plan.count is not None:
        refused = "errors, from the influences of rows"
    if asked and refused:
        raise ValueError(f"profile: expected {refused}.")
    cheap = len(pairs) > 1 and sum(rows.n for rows in pairs.values()) <= _CHEAP
    few = min(rows.total for rows in pairs.values()) < FEWEST_ROWS
    if refused or few or not (asked or cheap):
        return None
    return _of_pairs(pairs, plan, over=None, multiples=LADDER, level=level, differ=differ)


def _of_pairs(
    pairs: Mapping[str, Pairs],
    plan: Plan,
    *,
    over: Any,
    multiples: Sequence[float],
    level: float,
    differ: str | None,
) -> Profile:
    """Computes the profile of pairs under the same kernels; `differ`: why it tests nothing."""
    first = next(iter(pairs.values()))
    gaussian = [isinstance(kernel, Gaussian) for kernel in first.kernels]
    of_all = "both" if all(gaussian) or not any(gaussian) else NAMES[gaussian.index(True)]
    over = over or of_all
    moving, ladder = _moving(first, over), _check_multiples(multiples)
    common, units = Common.of(pairs), Units.of(pairs, None, plan.keys.groups)
    groups, unbiased, along = units.of_models, plan.unbiased, {}
    for name, rows in pairs.items():
        plan.progress("all bandwidths" + (f" of {name}" if name else ""))
        along[name] = _populations(rows, moving, ladder, groups[name], unbiased=unbiased)
    curves = curves_of(pairs, along, units, common, unbiased=unbiased)
    options: dict[str, Any] = {"over": over, "ladder": ladder, "level": level, "seed": plan.seed}
    if not unbiased and len(pairs) > 1:
        differ = differ or common.differ
    return of_curves(pairs, curves, units, entropy=_ENTROPY, differ=differ, **options)


def curves_of(
    pairs: Mapping[str, Pairs],
    along: Mapping[str, Sequence[Population]],
    units: Units,
    common: Common,
    *,
    unbiased: bool = True,
) -> dict[str, Curve]:
    """The curve of each model at order 2, from its scores under each of several kernels."""
    first, curves = [scores[0] for scores in along.values()], {}
    shares = common.shares(first, unbiased=True) if unbiased else (None, 0.0)
    for name, of in along.items():
        at = [scores.at(*shares) for scores in of]
        curves[name] = _curve_of(pairs[name], at, units.of_models[name], unbiased=unbiased)
    return curves


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
    differ: str | None = None,
) -> Profile:
    """The profile of models with these curves, with bands and signs."""
    first = next(iter(pairs.values()))
    rounding = saturation.rounding(entropy, first.dtype)
    tested = Tested(curves, units.matched != "none", level, seed, rounding, differ)
    # Each `[scores, models, m]`, of one score without prompts, and else of three.
    values = np.exp(np.stack([curve.logs for curve in curves.values()], axis=1))
    saturated = np.stack([curve.saturated for curve in curves.values()], axis=1)
    bands, told = zip(*map(tested.of_score, range(len(values))), strict=True)
    missing = [None] * (3 - len(values))
    return Profile(
        tuple(pairs),
        tuple(rows.total for rows in pairs.values()),
        entropy.order,
        over,
        ladder,
        first.bandwidths,
        *(PerScore(*of, *missing) for of in (values, bands, saturated)),
        pairs=tuple(itertools.chain(*told)),
        level=level,
        units=next(iter(units.of_models.values())).units,
        groups=1 + min(curve.freedom for curve in curves.values()),
        seed=seed,
        untested=tested.untested,
    )


def _moving(points: Pairs, over: Over) -> list[int]:
    """The numbers of the kernels that move; ValueError where one of them has no bandwidth."""
    choices = (*NAMES, "both") if points.paired else ("outputs", "both")
    if over not in choices:
        raise ValueError(f"over: expected one of {', '.join(choices)}, received {over!r}.")
    moving = [k for k in range(len(points.kernels)) if over in (NAMES[k], "both")]
    for index in moving:
        if not isinstance(points.kernels[index], Gaussian):
            raise ValueError(
                f"over: expected a Gaussian kernel of the {NAMES[index]}, whose bandwidth moves, "
                f"received {points.kernels[index]!r}."
            )
    return moving


def _check_multiples(multiples: Any) -> np.ndarray:
    """The multiples as float64 `[m]`, or ValueError."""
    ladder = np.array(multiples, np.float64) if np.ndim(multiples) == 1 else np.zeros(0)
    ascending = ladder.size > 0 and np.isfinite(ladder).all() and (np.diff(ladder) > 0).all()
    if not ascending or ladder[0] <= 0:
        raise ValueError(f"multiples: expected ascending numbers above 0, received {multiples!r}.")
    return ladder


class Curve(NamedTuple):
    """One model along the ladder. What is tested is one over a score: a mean similarity."""

    logs: np.ndarray  # Of the scores, `[scores, m]`.
    tested: np.ndarray  # One over the scores, `[scores, m]`; NaN where they are not known.
    of_units: np.ndarray  # The influences of groups of rows on them, `[scores, m, g]`.
    copies: np.ndarray  # How many independent groups each of g groups stands for, `[g]`.
    shares: np.ndarray  # Of groups in a score, over the root of their copies, `[scores, g]`.
    ends: np.ndarray | None  # The logarithms of 95% intervals, `[scores, m, 2]`; None: Student's.
    limits: saturation.Nearly  # Where scores are nearly at a limit, `[scores, m]`.
    freedom: int  # The number of independent groups less one.
    untested: str | None  # Why influences give no errors.
    refused: Any = False  # Where errors are too small, `[m]`.
    undefined: Any = False  # Where there is no score or no finite error, `[scores, m]`.

    @property
    def saturated(self) -> np.ndarray:
        """Where a score has no band, `[scores, m]`."""
        return self.limits.largest | self.limits.smallest | self.refused

    def effective(self, score: int) -> float:
        """The degrees of freedom: of as many groups of equal shares, less one."""
        count = 1 / np.sum(np.square(self.shares[score]))
        return max(min(count - 1, self.freedom), 1.0)


def _curve_of(pairs: Pairs, along: Sequence[Population], units: Groups, *, unbiased: bool) -> Curve:
    """The curve of one model at order 2, from the scores at each bandwidth."""
    scores, first = (3 if pairs.paired else 1), along[0]
    doubt = first.withheld or errors_of.too_few(pairs, units, _ENTROPY)
    similarities = np.array([of.similarities[:scores] for of in along]).T
    influences = np.zeros((scores, len(along), units.count))
    for k, of in enumerate(along):
        if of.influences is not None:
            influences[:, k] = np.concatenate(of.influences[:scores])
    known = similarities > 0
    safe = np.where(known, similarities, 1)
    inverted = np.array(population.INVERTED[:scores])[:, None]
    tested = np.where(inverted, similarities, np.where(known, 1 / safe, math.nan))
    logs = np.where(known, -np.log(np.where(inverted, safe, 1 / safe)), math.inf)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        slopes = np.where(inverted, 1.0, -1 / safe**2)
        of_units = np.where(known[..., None], influences, 0) * slopes[..., None]
        squares = np.square(tested) + np.sum(np.square(of_units), axis=2)
    # There is no error if no two rows have similar prompts once some unit is left out.
    undefined = ~(squares < _LARGEST)
    points = first.answers.points
    units = units._replace(membership=units.membership[first.answers.rows], of_all=units.count)
    copies = np.ones(units.count, int)
    if points.copies is not None and units.units == "rows":
        copies = np.maximum(points.copies, 1)
    rows = np.bincount(units.membership, points.shares, units.count)
    # Of prompts that repeat, the pairs of a prompt with itself count.
    of_pairs = rows**2 / np.sum(rows**2) if first.repeated else rows
    shares = [rows, of_pairs, of_pairs][:scores]
    limits = (np.stack(ends, axis=1) for ends in zip(*(of.limits for of in along), strict=True))
    ends = [of.intervals[:scores] for of in along if unbiased and of.intervals is not None]
    with np.errstate(divide="ignore"):
        logs_of_ends = np.log(np.swapaxes(ends, 0, 1)) if ends else None
    return Curve(
        logs,
        tested,
        np.where(undefined[..., None], 0, of_units),
        copies,
        np.array(shares) / np.sqrt(copies),
        logs_of_ends,
        saturation.Nearly(*limits),
        max(first.freedom, 1),
        doubt,
        undefined=undefined,
    )


def _populations(
    pairs: Pairs, moving: Sequence[int], ladder: np.ndarray, units: Groups | None, *, unbiased: bool
) -> list[Population]:
    """The scores of order 2 at every multiple of the bandwidths, in one pass."""
    answers = order_two.Answers.of(pairs) if unbiased else order_two.Answers.apart(pairs)
    kernels = list(answers.points.kernels)
    for index in moving:  # All multiples use the form of the kernel that suits the narrowest.
        kernel: Any = kernels[index]
        narrowest = _times(kernel, ladder[0]).suited_to(answers.points.arrays[index])
        kernels[index] = Gaussian(kernel.bandwidth, unit=narrowest.unit)
    points = answers.points.under(tuple(kernels))
    multiples = jnp.asarray(ladder, points.dtype)

    def along(function: Callable[..., jax.Array], *leaving: Leaving) -> np.ndarray:
        """A function of the points at every multiple, `[m, ...]`."""
        return to_float64(_at_every(function, points, tuple(moving), multiples, *leaving))

    inside = functools.partial(along, order_two.sums_inside)
    within = order_two.Inside()  # The papers' scores count the pairs within a batch.
    if unbiased:
        within = answers.inside(lambda _, leaving: inside(leaving))
    sums = along(order_two.row_sums)[..., : points.n]
    return population.of_each(answers, units, sums, within, inside)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _at_every(
    function: Callable[..., jax.Array],
    points: Pairs,
    moving: tuple[int, ...],
    multiples: jax.Array,
    *given: Any,
) -> jax.Array:
    """A function of the points at every multiple of the bandwidths that move, `[m, ...]`."""

    def at(times: jax.Array) -> jax.Array:
        kernels = list(points.kernels)
        for index in moving:
            kernels[index] = _times(kernels[index], times)
        return function(points.under(tuple(kernels)), *given)

    return jax.vmap(at)(multiples)


def _times(kernel: Any, times: Any) -> Gaussian:
    width = jnp.asarray(kernel.bandwidth)
    return Gaussian(width * jnp.asarray(times, width.dtype), unit=kernel.unit)


class Tested(NamedTuple):
    """Bands and signs of models along the ladder, from draws of all their errors together."""

    curves: Mapping[str, Curve]
    matched: bool  # Whether the groups of all models are the same.
    level: float
    seed: int
    rounding: float  # Relative: no error counts as smaller.
    differ: str | None = None  # Why the scores of models cannot be compared.

    @property
    def untested(self) -> str | None:
        """Why nothing is tested; None where something is."""
        reasons = (curve.untested for curve in self.curves.values())
        return next(filter(None, reasons), self.differ)

    def of_score(self, score: int) -> tuple[np.ndarray, list[PairProfile]]:
        """The bands of each model, `[models, m, 2]`, and every two models."""
        if self.untested is not None:
            count = next(iter(self.curves.values())).logs.shape[1]
            bands = np.full((len(self.curves), count, 2), math.nan)
            none = np.zeros(count, int), [self.untested] * count, math.nan, math.nan
            two = itertools.combinations(self.curves, 2)
            return bands, [PairProfile(*of, PerScore._fields[score], *none) for of in two]
        draws, curves = self.draws(score), list(self.curves.values())
        bands = np.array([self._band(draws[:, k], curve, score) for k, curve in enumerate(curves)])
        return bands, self._differences(draws, score)

    def draws(self, score: int) -> np.ndarray:
        """Errors of each model along the ladder by Student's t, `[draws, models, m]`."""
        generator, drawn = np.random.default_rng([self.seed, score]), []
        for curve in self.curves.values():
            block = curve.of_units[score]
            normal = np.zeros(len(block)), block @ block.T / block.shape[1], _DRAWS, "ignore"
            drawn.append(generator.multivariate_normal(*normal, method="eigh"))
        freedom = self.freedom(score)
        spread = np.sqrt(generator.chisquare(freedom, (_DRAWS, 1, 1)) / freedom)
        return np.stack(drawn, axis=1) / spread

    def freedom(self, score: int) -> float:
        """The degrees of freedom of errors, of the model that has the fewest."""
        return min(curve.effective(score) for curve in self.curves.values())

    @property
    def _unit(self) -> float:
        """The scale of the influences of groups: that of the mean of as many values."""
        first, freedom = next(iter(self.curves.values())), [c.freedom for c in self.curves.values()]
        return math.sqrt(first.copies.size * (1 + 1 / min(freedom)))

    def changes(self, score: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums of influences, `[draws, models, m]`, and of shares, with a random sign a group.

        The test of docs/bandwidths.md: exact for alike models and groups of equal shares, however
        skewed they are.
        """
        generator, curves = np.random.default_rng([self.seed, score]), [*self.curves.values()]
        blocks = [curve.of_units[score] / self._unit for curve in curves]
        block = np.concatenate([*blocks, *(curve.shares[score][None] for curve in curves)])
        copies, sums = curves[0].copies, 0.0
        for start in range(0, copies.size, 1000):
            some, many = block[:, start : start + 1000], copies[start : start + 1000]
            heads = generator.integers(2, size=(_DRAWS, many.size), dtype=np.int8)
            if many.max() > 1:
                heads = generator.binomial(many, 0.5, heads.shape)
            sums = sums + (2.0 * heads - many) @ (some / np.sqrt(many)).T
        own, shares = np.split(np.asarray(sums), [-len(curves)], axis=1)
        return own.reshape(_DRAWS, len(curves), -1), shares[..., None]

    def errors(self, score: int, *curves: Curve, apart: Any = 0.0) -> np.ndarray:
        """The standard errors of what is tested, or of a difference of two models, `[m]`.

        If two are `apart` by `[m]`, the root mean square of each group's part in it is added.
        """
        of_units = [curve.of_units[score] for curve in curves]
        if len(curves) > 1 and self.matched:
            shares = self._unit * np.mean([curve.shares[score] for curve in curves], axis=0)
            of_units = [of_units[0] - of_units[1] + np.multiply.outer(apart, shares)]
        errors = np.sqrt(sum(np.mean(np.square(of), axis=1) for of in of_units))
        largest = np.max([np.abs(curve.tested[score]) for curve in curves], axis=0)
        return np.maximum(errors, self.rounding * largest)

    def _band(self, draws: np.ndarray, curve: Curve, score: int) -> np.ndarray:
        """The ends of the band of a model, `[m, 2]`: 95% intervals, longer by the largest error."""
        errors, kept = self.errors(score, curve), ~(curve.saturated | curve.undefined)[score]
        logs, band = curve.logs[score][kept, None], np.full((kept.size, 2), math.nan)
        if not kept.any():
            return band
        usual = intervals.student(self.freedom(score))
        largest = np.max(np.abs(draws[:, kept]) / errors[kept], axis=1)
        times = np.quantile(largest, 1 - self.level) / usual
        if curve.ends is None:
            around = usual * (errors / curve.tested[score])[kept, None] * [-1, 1]
        else:
            around = curve.ends[score][kept] - logs
        with np.errstate(over="ignore"):  # An end may be open.
            band[kept] = np.exp(logs + times * around)
        return band

    def _differences(self, draws: np.ndarray, score: int) -> list[PairProfile]:
        """Every two models: signs, why they are not tested, the p-value alone and among all."""
        pairs = list(itertools.combinations(range(len(self.curves)), 2))
        if not pairs:
            return []
        names, curves = zip(*self.curves.items(), strict=True)
        name, shares = PerScore._fields[score], np.zeros((1, len(curves), 1))
        if self.matched:
            draws, shares = self.changes(score)
        observed, reasons = np.zeros((len(pairs), draws.shape[2])), []
        drawn = np.empty((len(draws), *observed.shape), np.float32)
        for k, (one, two) in enumerate(pairs):
            first, second = curves[one], curves[two]
            logs = np.array([first.logs[score], second.logs[score]])
            ends = zip(first.limits, second.limits, strict=True)
            limits = saturation.Nearly(*(np.array([a[score], b[score]]) for a, b in ends))
            why = saturation.untested(name, (names[one], names[two]), logs, limits)
            for place in np.flatnonzero(first.refused | second.refused).tolist():
                why[place] = "rows are few for so many modes"
            undefined = np.ones_like(first.limits.largest) & (first.undefined | second.undefined)
            for place in np.flatnonzero(undefined[score]).tolist():
                why[place] = why[place] or "their errors are not defined"
            values = np.array([first.tested[score], second.tested[score]])
            tested = np.array([reason is None for reason in why]) & np.isfinite(values).all(axis=0)
            values = np.where(tested, values, 0)
            apart = values[0] - values[1]
            scale = np.where(tested, self.errors(score, first, second, apart=apart), math.inf)
            known = np.abs(apart) > self.rounding * np.abs(values).max(axis=0)
            observed[k] = np.where(known, apart, 0) / scale
            both = apart * (shares[:, one] + shares[:, two]) / 2
            np.divide(np.abs(draws[:, one] - draws[:, two] + both), scale, out=drawn[:, k])
            reasons.append(why)
        largest = np.abs(observed) * (1 - _TIES)
        told = multiplicity.stepped_down(largest, drawn, self.level)
        p_values = np.array(multiplicity.joint_p_values(largest.max(axis=1), drawn.max(axis=2)))
        p_values[:, [None not in why for why in reasons]] = math.nan
        signs = np.where(told, -np.sign(observed), 0).astype(int)
        return [
            PairProfile(names[one], names[two], name, signs[k], reasons[k], *p_values[:, k])
            for k, (one, two) in enumerate(pairs)
        ]
