"""The error of an estimate, from the influences of independent units.

An influence is the change of the estimate that a unit makes, scaled so that the root mean square
over units is the standard error. A difference, its interval and its test come from two `Error`s.
"""

import dataclasses
import functools
import math
from typing import Any, Self

import numpy as np

from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.reasons import Reason

NOISE = 0.5  # Where noise is a larger part of the variance, it stays in.
_WIDTH = 2 * 1.96  # The width of a 95% interval of a normal variable, in standard errors.


@dataclasses.dataclass(frozen=True, eq=False)
class Error:
    """How far an estimate may be from the truth."""

    value: float  # The estimate.
    influences: np.ndarray  # Of the units, `[replicates, g]`; NaN where there is no error.
    units: str = "rows"  # What a unit is.
    freedom: float = math.inf  # The degrees of freedom of the standard error.
    reason: Reason | None = None  # Why there is no error; None where there is one.
    ends: intervals.Ends | None = None  # The interval at each level; where None, Student's.
    noise: float = 0.0  # The standard error of estimated spectra, which comes on top.
    inverse: "Error | None" = None  # Of one over it, if a mean, by which differences are tested.

    @functools.cached_property
    def standard_error(self) -> float:
        """The root mean square of the influences, less the noise of replicates (Efron, 2014)."""
        return math.hypot(error_of(self.influences), self.noise)

    @functools.cached_property
    def at_levels(self) -> intervals.Ends:
        """The interval at each level."""
        usual = self.value, self.standard_error, self.freedom
        return intervals.remembered(self.ends or intervals.symmetric(*usual))

    def interval(self, level: float = 0.05) -> tuple[float, float]:
        """The ends of the interval, which misses the truth in a share `level` of samples."""
        low, high = self.at_levels(level)
        return float(low), float(high)

    def inverted(self) -> Self:
        """The error of one over the estimate, whose differences are tested as those of this one."""
        with np.errstate(invalid="ignore", divide="ignore"):
            value = 1 / self.value if self.value > intervals.NO_PAIR else math.inf
            more: Any = {"value": value, "influences": -self.influences * value**2}
        ends = intervals.of_reciprocal(self.at_levels, intervals.NO_PAIR)
        return dataclasses.replace(self, ends=ends, inverse=self, **more)

    def in_logarithms(self) -> "Error":
        """This error with Student's interval of the logarithm, or of what is inverted."""
        if self.inverse is not None:
            return self.inverse.in_logarithms().inverted()
        ends = intervals.ratio(self.value, self.standard_error, self.freedom)
        return dataclasses.replace(self, ends=ends)

    def times(self, factor: float) -> Self:
        """The error of the estimate times a positive number."""
        more: Any = {n: factor * getattr(self, n) for n in ("value", "influences", "noise")}
        more["inverse"] = self.inverse and self.inverse.times(1 / factor)
        return dataclasses.replace(self, ends=intervals.scaled(factor, self.at_levels), **more)

    def with_noise(self, ends: tuple[float, ...] | None) -> "Error":
        """This error and that of an estimated spectrum, whose interval at 95% has these ends."""
        return dataclasses.replace(self, noise=(ends[1] - ends[0]) / _WIDTH) if ends else self

    def correlation(self, other: "Error", *, matched: bool) -> float:
        """The correlation of two errors, 0 unless they have the same units."""
        product = self.standard_error * other.standard_error
        if not (matched and product > 0):
            return 0.0
        return min(max(self.covariance(other) / product, -1.0), 1.0)

    def covariance(self, other: "Error") -> float:
        """The covariance of two errors of the same units, half of a^2 + b^2 - (a - b)^2."""
        both = apart(self.influences, other.influences, matched=True)
        one, two = error_of(self.influences), error_of(other.influences)
        return (one**2 + two**2 - error_of(both) ** 2) / 2


@dataclasses.dataclass(frozen=True, eq=False)
class TwoWayError(Error):
    """The error of an estimate whose rows are clustered by prompts and by other labels.

    The variance is that over prompts and that over labels, less that over the rows that share both,
    which both of them have (Cameron, Gelbach and Miller, 2011, eq. 2.13); at least the larger one.
    The influences are those of the prompts.
    """

    labels: Error = dataclasses.field(kw_only=True)  # Of the same estimate, with labels as units.
    cells: Error = dataclasses.field(kw_only=True)  # With the rows of one prompt and label.

    @functools.cached_property
    def standard_error(self) -> float:
        """Over other prompts and other labels."""
        prompts, labels = error_of(self.influences) ** 2, self.labels.standard_error**2
        return math.sqrt(max(prompts + labels - self.cells.standard_error**2, prompts, labels))

    def covariance(self, other: Any) -> float:
        """Over prompts and over labels, less that over the rows that share both."""
        labels, cells = self.labels.covariance(other.labels), self.cells.covariance(other.cells)
        return super().covariance(other) + labels - cells

    def inverted(self) -> Self:
        """The error of one over the estimate."""
        parts = {"labels": self.labels.inverted(), "cells": self.cells.inverted()}
        return dataclasses.replace(super().inverted(), **parts)


def apart(one: np.ndarray, two: np.ndarray, *, matched: bool) -> np.ndarray:
    """The influences `[replicates, g]` on a difference, of the same units or of all of both."""
    replicates = min((len(part) for part in (one, two) if len(part) > 1), default=1)
    one, two = one[:replicates], two[:replicates]
    if matched:
        return one - two
    shape, size = (replicates, one.shape[1] + two.shape[1]), (one.shape[1], two.shape[1])
    parts = [np.broadcast_to(part, (replicates, part.shape[1])) for part in (one, -two)]
    scales = np.repeat(np.sqrt(shape[1] / np.array(size)), size)  # Each keeps its own mean square.
    return scales * np.concatenate(parts, axis=1)


def standard_error_apart(one: Error, two: Error, *, matched: bool) -> float:
    """The standard error of the difference of two estimates, on their own scale."""
    with np.errstate(invalid="ignore"):
        influences = apart(one.influences, two.influences, matched=matched)
    return math.hypot(error_of(influences), one.noise, two.noise)


def root_mean_square(values: np.ndarray) -> Any:
    """The root mean square over the last axis."""
    return np.sqrt(np.mean(np.square(values), axis=-1))


def error_of(of_units: np.ndarray) -> float:
    """The error of the mean of replicates `[replicates, G]`, less what their noise adds to it."""
    naive, unbiased = root_mean_square(np.mean(of_units, axis=0)), _without_noise(of_units)
    return float(naive) if is_noisy(of_units) else math.sqrt(unbiased)


def is_noisy(of_units: np.ndarray) -> bool:
    """Whether most of the mean square is the noise of the replicates, which then stays in it."""
    return _without_noise(of_units) < NOISE * root_mean_square(np.mean(of_units, axis=0)) ** 2


def _without_noise(of_units: np.ndarray) -> float:
    """The mean square without noise: from products of different replicates."""
    count = of_units.shape[0]
    if count == 1:
        return float(np.vdot(of_units, of_units)) / of_units.size
    products = np.square(of_units.sum(axis=0)) - np.square(of_units).sum(axis=0)
    return float(np.mean(products)) / (count * (count - 1))


def group_influences(whole: Any, deleted: Any, shares: np.ndarray) -> np.ndarray:
    """The influence of each group on a score, `[..., g]`; their root mean square is the error.

    The delete-m_j jackknife. The score is `whole` `[...]` with all rows, and `deleted` `[..., g]`
    without each group, of the given share of the rows. The error of a difference of two scores is
    that of the differences of their influences, where both were computed without the same groups.
    A group without rows has no influence, and does not count in the mean square.
    """
    whole, deleted = np.asarray(whole, np.float64)[..., None], np.asarray(deleted, np.float64)
    present = shares > 0
    count = np.count_nonzero(present)
    h = 1 / np.where(present, shares, 0.5)
    pseudo = h * whole - (h - 1) * deleted
    rest = np.where(present, (1 - shares) * deleted, 0)
    estimate = count * whole - np.sum(rest, axis=-1, keepdims=True)
    return np.where(present, (pseudo - estimate) * np.sqrt(shares.size / count / (h - 1)), 0)
