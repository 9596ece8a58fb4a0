"""Intervals of numbers: each is a function of the level, from an error and from what skews it.

The level is about the share of samples whose interval misses the truth (docs/errors.md), 0.05 for
one at 95%; it may be an array. A difference is tested by the smallest level at which its interval
excludes 0, so that a test and an interval cannot disagree.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy  # Its modules are imported when they are used.

#: The two ends of an interval, at a level or at each of several.
Ends = Callable[[Any], tuple[Any, Any]]

_OF_A_PROMPT = 0.2  # Of a typical prompt, which a far end adds at 95%; by simulation.
# Of the skewness at 95%: at an end that is near a bound, far from it, and at the far end of a mean
# between prompts, whose variance may rise three times as steeply; by simulation.
_NEAR, _FAR, _BETWEEN = 2.0, 1.25, 6.0
NO_PAIR = 1e-12  # A similarity that may be rounding: one over it is infinite.
_ALL_ALIKE, _NO_ERROR = 1e-6, 1e-7  # From 1, and of an error relative to its value; so too.
LEAST = 1e-300  # So that nothing is divided by 0.
_BETWEEN_TWO = 24  # Levels between two of `LEVELS`.
_USUAL = 0.05
#: Levels at which a test looks first.
LEVELS = np.exp(np.linspace(math.log(1e-30), 0, 160))


def student(freedom: Any, level: Any = _USUAL) -> Any:
    """Half the width of an interval by Student's t, in standard errors."""
    if (level is LEVELS or level is _USUAL) and isinstance(freedom, (int, float)):
        return _student(float(freedom), level is LEVELS)
    return _quantile(freedom, np.asarray(level))


@functools.lru_cache(maxsize=1024)
def _student(freedom: float, at_levels: bool) -> Any:
    """Many intervals have the same freedom."""
    return _quantile(freedom, LEVELS if at_levels else _USUAL)


def _quantile(freedom: Any, level: Any) -> Any:
    return np.maximum(-scipy.special.stdtrit(freedom, level / 2), 0)  # Rounding, at level 1.


def symmetric(value: float, error: float, freedom: float) -> Ends:
    """Student's interval of a value with a standard error."""

    def ends(level: Any) -> tuple[Any, Any]:
        width = student(freedom, level) * error
        return value - width, value + width

    return ends


class _Moments(NamedTuple):
    """What the ends of a mean over prompts are made of."""

    value: float
    error: float
    second: float  # The sums of the squares and cubes of what the mean loses without each prompt.
    third: float
    typical: float  # The share of a typical prompt.
    freedom: float  # One less than as many prompts of equal shares.

    @classmethod
    def of(cls, value: float, error: float, changes: np.ndarray, shares: np.ndarray) -> Self:
        squares = np.sum(shares**2)
        second, third = float(np.sum(changes**2)), float(np.sum(changes**3))
        typical, freedom = float(np.sum(shares**3) / squares), max(float(1 / squares) - 1, 1.0)
        return cls(value, error, second, third, typical, freedom)

    def flipped(self) -> Self:
        return self._replace(value=1 - self.value, third=-self.third)  # Of one less the mean.

    def near(self, level: Any) -> Any:
        """The end on the side of a bound at 0: the variance is linear in the mean (Wilson, 1927).

        At levels above 5% the skewness moves it less, in proportion to the critical value.
        """
        t, growth = self._at(level)
        skewness = _NEAR * np.minimum(growth, 1) * _skewness(self.third, self.second)
        return self.value + self.error * (skewness - np.hypot(t, skewness))

    def far(self, level: Any) -> Any:
        """The other end, with a part of a prompt added that is at the bound 1.

        The skewness moves it with the square of the critical value (Hall, 1992).
        """
        t, growth = self._at(level)
        growth, far = growth * np.maximum(growth, 1), 1 - self.value
        added = _OF_A_PROMPT * growth * self.typical
        variance = added * self.typical * far**2
        third = self.third + variance * self.typical * far
        skewness = _FAR * growth * _skewness(third, self.second + variance)
        spread = np.sqrt(self.error**2 + variance) * (skewness + np.hypot(t, skewness))
        return (self.value + added + spread) / (1 + added)

    def far_of_mode(self, level: Any) -> Any:
        """The upper end of a root of a mean between prompts: see `between_mean`."""
        t, growth = self._at(level)
        growth = growth * np.maximum(growth, 1) * (_BETWEEN if self.third > 0 else _NEAR)
        skewness = growth * _skewness(self.third, self.second)
        return self.value + self.error * (skewness + np.hypot(t, skewness))

    def _at(self, level: Any) -> tuple[Any, Any]:
        """The critical value at a level, and relative to that at 5%."""
        t = student(self.freedom, level)
        return t, t / float(student(self.freedom))


def _skewness(third: Any, second: Any) -> Any:
    """A third moment over a second one to the power 1.5; 0 where this underflows."""
    scale = np.asarray(second) ** 1.5
    return np.where(scale > 0, third, 0) / np.where(scale > 0, scale, 1)


def prompt_mean(
    value: float, error: float, changes: np.ndarray, shares: np.ndarray, freedom: float = math.inf
) -> Ends:
    """The interval of a number in [0, 1], a mean over prompts of these shares.

    `changes` are what it loses without each prompt; an error that is not of prompts alone may have
    a smaller `freedom`. Wilson's interval where all are 0 or 1; docs/errors.md has the coverage.
    """
    moments = _Moments.of(value, error, changes, shares)
    moments = moments._replace(freedom=min(freedom, moments.freedom))
    nearer = moments.flipped() if value > 0.5 else moments
    ends = inside(lambda level: (nearer.near(level), nearer.far(level)), 0.0, 1.0)
    return shifted(1, scaled(-1, ends)) if value > 0.5 else ends


def between_mean(value: float, error: float, changes: np.ndarray, shares: np.ndarray) -> Ends:
    """The interval of the mean similarity of answers to two different prompts.

    It is the square of the length of a mean over prompts, so that its root is nearly a mean. Let a
    share p of prompts have one common answer beside a background b: the variance of the root of
    b + p^2 rises with it at 3 - 2 p^2 / (b + p^2) times the slope of a mean, at most three times.
    An answer that at most one prompt of the sample has adds the square of its share.
    """
    root = math.sqrt(max(0.0, value))
    slope = 0.5 / root if root > 0 else 0.0
    moments = _Moments.of(root, slope * error, slope * changes, shares)

    def ends(level: Any) -> tuple[Any, Any]:
        low = 1 - moments.flipped().far(level) if root > 0.5 else moments.near(level)
        high = np.clip(moments.far_of_mode(level), 0, 1) ** 2
        beyond = scipy.special.betainccinv(2, max(moments.freedom, 1e-9), level)
        unseen = beyond**2 * (1 - value)
        return np.clip(low, 0, 1) ** 2, np.minimum(value + np.hypot(high - value, unseen), 1)

    return ends


def row_mean(value: float, error: float, freedom: float, rows: float) -> Ends:
    """The interval of a mean over all pairs of rows: Student's, of the logit; or one-sided.

    Where no pair is alike, or none unlike, the ends are the Poisson means of which at most one
    pair, or no row, is seen.
    """

    def unseen(level: Any, count: int) -> Any:
        return scipy.special.gammainccinv(count, np.asarray(level) / 2) / rows

    if value < NO_PAIR:
        return lambda level: (np.zeros_like(level, float), np.minimum(unseen(level, 2) ** 2, 1.0))
    if value > 1 - _ALL_ALIKE or error < _NO_ERROR * value:
        return inside(lambda level: (value - unseen(level, 1), value + unseen(level, 1)), 0.0, 1.0)
    logit = symmetric(math.log(value / (1 - value)), error / (value * (1 - value)), freedom)
    return lambda level: tuple(map(scipy.special.expit, logit(level)))


def ratio(value: float, error: float, freedom: float) -> Ends:
    """The interval of a ratio of similarities: Student's, on the scale of the logarithm."""
    if not 0 < value < math.inf:
        return lambda level: (np.zeros_like(level, float), np.full_like(level, math.inf, float))

    def ends(level: Any) -> tuple[Any, Any]:
        times = np.exp(np.minimum(student(freedom, level) * error / value, 700.0))
        return value / times, value * times

    return ends


def joined(value: float, rest: Ends, slope: float, mean: float, of_mean: Ends) -> Ends:
    """Of a value whose logarithm moves by `slope` with an independent mean's, and the rest."""
    log = math.log(value)

    def logs(ends: Ends, level: Any) -> np.ndarray:
        return np.log(np.maximum(np.broadcast_arrays(*ends(level)), LEAST))

    def ends(level: Any) -> tuple[Any, Any]:
        moved = np.sort(slope * (logs(of_mean, level) - math.log(mean)), axis=0)
        far = np.hypot(logs(rest, level) - log, moved)
        return np.exp(np.minimum(log - far[0], 700.0)), np.exp(np.minimum(log + far[1], 700.0))

    return ends


def total(values: Sequence[float], both: Sequence[Ends], correlation: float) -> Ends:
    """Of the sum of two values (MOVER: Zou and Donner, 2008)."""
    return difference([values[0], -values[1]], [both[0], scaled(-1, both[1])], -correlation)


def shifted(by: float, ends: Ends) -> Ends:
    """Of a number and a constant."""
    return lambda level: tuple(by + end for end in ends(level))


def scaled(factor: float, ends: Ends) -> Ends:
    """Of a number times a factor."""
    rising = 1 if factor >= 0 else -1
    return lambda level: tuple(factor * end for end in ends(level)[::rising])


def of_reciprocal(ends: Ends, rounding: float = 0.0) -> Ends:
    """Of one over a number: infinite where it may be at most `rounding`."""

    def reciprocal(level: Any) -> tuple[Any, Any]:
        low, high = (np.asarray(end, float) for end in ends(level))
        with np.errstate(divide="ignore"):
            return 1 / high, np.where(low <= rounding, math.inf, 1 / low)

    return reciprocal


def inside(ends: Ends, least: float, most: float) -> Ends:
    """No end beyond what is possible."""
    return lambda level: tuple(np.clip(end, least, most) for end in ends(level))


def open_below(ends: Ends, most: float | None = None) -> Ends:
    """From 0 to the upper end, or to `most`."""
    return lambda level: (np.zeros_like(level, float), ends(level)[1] if most is None else most)


def difference(values: Any, both: Sequence[Ends], correlation: Any = 0.0) -> Ends:
    """Of the difference of two values, from the ends of both (MOVER: Zou and Donner, 2008, eq. 5).

    Each end is as far from it as the ends of both values on its side, which add up like errors of
    this correlation.
    """

    def distance(one: Any, two: Any) -> Any:
        with np.errstate(invalid="ignore", over="ignore"):  # Of infinite or very large ends.
            square = one**2 - 2 * correlation * one * two + two**2
        return np.where(np.isnan(square), math.inf, np.sqrt(np.maximum(square, 0)))

    def ends(level: Any) -> tuple[Any, Any]:
        (low, high), (other_low, other_high) = (ends_of(level) for ends_of in both)
        below = distance(values[0] - low, other_high - values[1])
        above = distance(high - values[0], values[1] - other_low)
        return values[0] - values[1] - below, values[0] - values[1] + above

    return ends


def quotient(values: Any, both: Sequence[Ends], correlation: Any = 0.0) -> Ends:
    """Of the quotient of two positive values (Donner and Zou, 2012).

    Its lower end is the factor M at which the lower end of the difference of the first and M times
    the second is 0: it excludes 1 where the interval of the difference excludes 0.
    """

    def least(one: float, two: float, low: Any, high: Any) -> Any:
        below, above = one - low, high - two
        mixed = one * two - correlation * below * above
        last, first = one**2 - below**2, two**2 - above**2
        root = np.sqrt(np.maximum(mixed**2 - last * first, 0))
        # Both are one root of the quadratic; the second is known where `low` is 0, too.
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            roots = last / np.maximum(mixed + root, LEAST), (mixed - root) / -np.abs(first)
        quotient = np.where((mixed < 0) & (first < 0) & (last >= 0), roots[1], roots[0])
        return np.where(np.isinf(high), 0.0, np.maximum(quotient, 0))

    def ends(level: Any) -> tuple[Any, Any]:
        (low, high), (other_low, other_high) = (ends_of(level) for ends_of in both)
        swapped = least(values[1], values[0], other_low, high)
        largest = np.where(swapped > 0, 1 / np.maximum(swapped, LEAST), math.inf)
        return least(values[0], values[1], low, other_high), largest

    return ends


def remembered(ends: Ends) -> Ends:
    """The same interval, which is computed once at `LEVELS`."""
    at_levels = functools.cache(lambda: ends(LEVELS))
    return lambda level: at_levels() if level is LEVELS else ends(level)


def of_several(every: Sequence[Ends], chosen: np.ndarray) -> Ends:
    """Of the numbers `chosen` `[p]` of several, at levels `[levels]`, or `[p, levels]` of each."""

    def ends(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = np.empty((2, len(chosen), levels.shape[-1]))
        for number in np.unique(chosen):
            rows = chosen == number
            both = every[number](levels if levels.ndim == 1 else levels[rows])
            result[0, rows], result[1, rows] = both
        return result[0], result[1]

    return ends


def p_value(ends: Ends, *, sides: int = 2) -> Any:
    """The smallest level from which on an interval excludes 0; of one side, is above 0.

    At a level of 2a an interval misses the truth at one end in a share a of samples: one side has
    half of the level. 1 where it never does. Where ends are at a bound, intervals of a matched
    difference may exclude 0 at smaller levels and not between: these do not count. Of several
    intervals, whose ends are `[p, levels]`, an array `[p]`.
    """

    def margins(levels: np.ndarray) -> np.ndarray:
        low, high = ends(levels)
        return (np.maximum(low, np.negative(high)) if sides == 2 else low) + 0 * levels

    first = margins(LEVELS)
    # The second time between two levels of the first.
    logs = np.linspace(*crossing(first, np.log(LEVELS))[:2], _BETWEEN_TWO, axis=-1)
    level = np.exp(crossing(margins(np.exp(logs)), logs)[2])
    result = np.where(first[..., -1] > 0, level * sides / 2, 1.0)
    return float(result) if result.ndim == 0 else result


def crossing(margins: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where margins `[..., levels]` are above 0 from a level on: the logs of levels around it.

    And its own, interpolated; the last one where they never are. `[...]` each.
    """
    margins = np.minimum.accumulate(margins[..., ::-1], axis=-1)[..., ::-1]  # From each level on.
    place = np.maximum(np.argmax(margins > 0, axis=-1), 1)[..., None]
    both = margins, np.broadcast_to(logs, margins.shape)
    around = (np.take_along_axis(values, place - k, -1)[..., 0] for values in both for k in (1, 0))
    before, after, low, high = around
    between = (before > -math.inf) & (before < 0) & (after > 0)
    before = np.where(between, before, -1)
    part = before / (before - np.where(between, after, 0))
    return low, high, np.where(margins[..., -1] > 0, low + part * (high - low), logs[..., -1])


def bernstein(means: np.ndarray, blocks: int, delta: float) -> tuple[float, float]:
    """The ends of c in [0, 1] with a mean of k_T^2 (k_X^2 - c) within Bernstein's bound."""
    (t, j, tt, tj, jj), x = means, math.log(3 / delta) / blocks

    def margin(c: float) -> float:
        bx, square = max(c, 1 - c) * x, max(jj - 2 * c * tj + c**2 * tt, 0)
        return 4 / 3 * bx + math.sqrt(bx**2 + 2 * x * square) - abs(j - c * t)

    # The bound is convex in c, so that there is at most one root on either side of the estimate.
    root = scipy.optimize.brentq
    least = root(margin, 0.0, j / t) if margin(0.0) < 0 else 0.0
    return least, root(margin, j / t, 1.0) if margin(1.0) < 0 else 1.0
