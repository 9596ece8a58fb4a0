"""Bands and signs that hold at all bandwidths at once.

With a random multiplier for each independent group of rows, the sums of their influences have the
joint distribution of the errors of all models at all bandwidths, and so of the largest of them
(docs/bandwidths.md). An interval at the level of the largest is a band, and a difference whose
interval excludes 0 at that level has a sign.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import saturation
from condvendi_jax.results.profile import PairProfile
from condvendi_jax.statistics import intervals, multiplicity, reasons
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.reasons import Reason, Saturated

# Draws of the multipliers: a p-value of 0.05 has a standard error of 0.003.
_DRAWS = 5000
_LEAST = 1e-300  # So that nothing is divided by 0.
_LARGEST = 1e300  # Squares that are larger may overflow where they are added.
_TIES = 1e-5  # Relative: draws that are as large but for rounding count as larger.


class Curve(NamedTuple):
    """One model along the ladder."""

    errors: Sequence[PerScore]  # At each bandwidth, an `Error` of each score.
    limits: saturation.Nearly  # Where scores are nearly at a limit, `[scores, m]`.
    reason: Reason | None = None  # Why nothing is tested.

    def of(self, score: str) -> list[Error]:
        """The errors of a score, of each bandwidth; where they may overflow, they are unknown."""
        return [_finite(getattr(errors, score)) for errors in self.errors]

    def values(self, score: str) -> np.ndarray:
        """A score at each bandwidth, `[m]`."""
        return np.array([error.value for error in self.of(score)])

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
        freedom = min(model.freedom for model in models)
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
        level = _level_of(np.quantile(largest, 1 - self.level), freedom)
        for place in np.flatnonzero(model.kept).tolist():
            band[place] = model.scores[place].interval(level)
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
        drawn = np.zeros((_DRAWS, *observed.shape), np.float32)
        for k, (one, two) in enumerate(pairs):
            first, second = models[one], models[two]
            why = first.untested(second, score, (names[one], names[two]))
            tested = np.array([reason is None for reason in why])
            every.append(why)
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
            difference = np.abs(a * draws[one] - b * draws[two]) / error
            drawn[:, k, tested] = difference[:, tested]
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

    @classmethod
    def of(cls, curve: Curve, score: str, rounding: float) -> _Drawn:
        """A score of a curve."""
        index, scores = PerScore._fields.index(score), curve.of(score)
        errors = [error.inverse or error for error in scores]
        known = np.array([error.reason is None for error in errors])
        values = np.where(known, [error.value for error in errors], 1)
        rows = np.array([np.mean(error.influences, axis=0) for error in errors])
        rows = np.where(known[:, None], rows, 0)
        scales = [error.standard_error if error.reason is None else 1.0 for error in errors]
        scales = np.maximum(scales, np.maximum(rounding * np.abs(values), _LEAST))
        ends = saturation.Nearly(*(end[index] for end in curve.limits))
        kept = known & ~curve.saturated(score)
        return cls(scores, errors, ends, values, scales, rows / scales[:, None], kept)

    @property
    def freedom(self) -> float:
        """The fewest degrees of freedom."""
        return max(min(error.freedom for error in self.errors), 1.0)

    @property
    def at_levels(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the intervals, `[m, levels]` each."""
        ends = np.zeros((2, len(self.errors), intervals.LEVELS.size))
        for place, error in enumerate(self.errors):
            if error.reason is None:
                ends[0, place], ends[1, place] = error.at_levels(intervals.LEVELS)
        return ends[0], ends[1]

    def untested(self, other: _Drawn, score: str, names: tuple[str, str]) -> list[Reason | None]:
        """Why two models are not tested, at each bandwidth."""
        values = [[error.value for error in model.scores] for model in (self, other)]
        with np.errstate(divide="ignore"):
            logs = np.log(np.array(values))
        limits = (np.array(ends) for ends in zip(self.limits, other.limits, strict=True))
        why = saturation.untested(score, names, logs, saturation.Nearly(*limits))
        both = zip(self.errors, other.errors, strict=True)
        return [
            reason or one.reason or two.reason for reason, (one, two) in zip(why, both, strict=True)
        ]

    def level_apart(self, other: _Drawn, correlation: np.ndarray | float) -> np.ndarray:
        """The smallest level from which on the interval of the difference excludes 0, `[m]`."""
        values, both = (self.values[:, None], other.values[:, None]), (self, other)
        ends = [lambda _, ends=model.at_levels: ends for model in both]
        correlation = np.reshape(correlation, (-1, 1))
        low, high = intervals.difference(values, ends, correlation)(None)
        margin = np.maximum(low, -high)[:, ::-1]
        margin = np.minimum.accumulate(margin, axis=1)[:, ::-1]  # It rises with the level.
        place = np.clip(np.argmax(margin > 0, axis=1), 1, None)
        none = ~(margin > 0).any(axis=1)
        before, after = (margin[np.arange(len(place)), place - step] for step in (1, 0))
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.nan_to_num(-before / (after - before), nan=1.0)
        logs = np.log(intervals.LEVELS)
        between = logs[place - 1] + np.clip(part, 0, 1) * (logs[place] - logs[place - 1])
        return np.where(none, 1.0, np.exp(between))


def _level_of(times: float, freedom: float) -> float:
    """The level of an interval so many standard errors to each side."""
    from scipy.special import stdtr  # Imported where it is used: it is slow to import.

    return float(2 * stdtr(freedom, -times))
