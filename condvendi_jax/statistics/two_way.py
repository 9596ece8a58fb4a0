"""Errors of rows that depend on each other two ways, such as by their prompt and by their seed."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.influences import Error, error_of
from condvendi_jax.statistics.intervals import Ends

_LEAST = 1e-300  # So that nothing is divided by 0.


@dataclasses.dataclass(frozen=True, eq=False)
class TwoWayError(Error):
    """The error of an estimate whose rows are clustered by prompts and by other labels.

    The variance is that over prompts and that over labels, less that over the rows that share both,
    which both of them have (Cameron, Gelbach and Miller, 2011, eq. 2.13); at least the larger one.

    Attributes:
      labels, cells: the errors of the same estimate with the labels as units, and with the rows of
        one prompt and label. Those of the prompts are the error's own.
    """

    labels: Error = dataclasses.field(kw_only=True)
    cells: Error = dataclasses.field(kw_only=True)

    @functools.cached_property
    def standard_error(self) -> float:
        """Over other prompts and other labels."""
        prompts, labels = error_of(self.influences) ** 2, self.labels.standard_error**2
        both = prompts + labels - self.cells.standard_error**2
        return math.sqrt(max(both, prompts, labels))

    @functools.cached_property
    def at_levels(self) -> Ends:
        """The interval over prompts, which is longer by the larger error and its freedom."""
        prompts, error = self.ends, error_of(self.influences)
        if prompts is None or not error > 0:
            return intervals.symmetric(self.value, self.standard_error, self.labels.freedom)
        fewest = min(self.freedom, self.labels.freedom)

        def ends(level: float) -> tuple[float, float]:
            both = [intervals.student(freedom, level) for freedom in (fewest, self.freedom)]
            longer = np.divide(both[0], np.maximum(both[1], _LEAST)) * self.standard_error / error
            low, high = (longer * (end - self.value) for end in prompts(level))
            return self.value + low, self.value + high

        return ends

    def covariance(self, other: Any) -> float:
        """Over prompts and over labels, less that over the rows that share both."""
        labels, cells = self.labels.covariance(other.labels), self.cells.covariance(other.cells)
        return super().covariance(other) + labels - cells

    def inverted(self) -> Error:
        """The error of one over the estimate."""
        parts = {"labels": self.labels.inverted(), "cells": self.cells.inverted()}
        return dataclasses.replace(super().inverted(), **parts)
