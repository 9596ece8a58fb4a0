"""The effective number of different models, and the overlap of every two."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result
from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.influences import Error, root_mean_square
from condvendi_jax.statistics.reasons import Reason, in_words

_SHARE = 1.1  # A larger overlap is no share of outputs; two samples of one model may have this.


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Between(Result):
    """The effective number of different models, and the overlap of every two. Prints as text.

    Attributes:
      models: their names.
      paired: whether prompts are given.
      number: the effective number of different models, exp I(X; M | T): 1 if all say the same.
      largest: exp H(M | T), which the number reaches if no two models have an output in common: how
        many models there are or, if they have prompts of their own, fewer.
      overlaps: of every two models, `[m, m]`: the share of their outputs that they have in common;
        NaN if they have no prompt in common, or no two of their outputs are alike. Two samples of
        one model have 1 in the mean; above 1.1 too few outputs repeat to tell.
      error: of the number, with the influences of the groups of the jackknife; None if not asked.
      overlap_influences: the same of the overlaps, `[m, m, g]`.
      left_out: how many prompts were left out, to which some model has a single answer.
    """

    models: tuple[str, ...]
    paired: bool
    number: float
    largest: float
    overlaps: np.ndarray
    error: Error | None
    overlap_influences: np.ndarray | None
    left_out: int = 0

    @property
    def groups(self) -> int | None:
        """The number of groups of the jackknife; None where there are no errors."""
        return None if self.error is None or self.error.reason else self.error.influences.size

    @property
    def standard_error(self) -> float:
        """The standard error of the number, NaN where there is none."""
        return math.nan if self.error is None else self.error.standard_error

    @property
    def overlap_errors(self) -> np.ndarray:
        """The standard errors of the overlaps, `[m, m]`, NaN where there are none."""
        if self.overlap_influences is None:
            return np.full_like(self.overlaps, math.nan)
        return root_mean_square(self.overlap_influences)

    @property
    def reason(self) -> Reason | None:
        """Why there are no errors although they were asked for."""
        return self.error and self.error.reason

    def as_dict(self) -> dict[str, Any]:
        """Everything but the influences as plain data, for JSON."""
        names = ("number", "standard_error", "largest", "groups", "reason")
        more = {"overlaps": self.lines(), "groups_of": self.error and self.error.units}
        more["prompts_left_out"] = self.left_out
        return {name: getattr(self, name) for name in names} | more

    def headline(self) -> str:
        """The number of different models in a line."""
        limit, largest = f"{len(self.models)}", f"{self.largest:.4g}"
        if largest != limit:
            limit += f" (at most {largest}, because prompts differ between models)"
        number = self._known(self.number, self.standard_error, self.largest)
        if self.number < 1 / _SHARE and largest == limit:  # It is at least 1 for equal prompts.
            number = "unknown (too few repeats to tell)"
        return f"effective number of different models{self._given}, order 2: {number} of {limit}"

    @property
    def _given(self) -> str:
        return " given the prompts" if self.paired else ""

    def table(self) -> tables.Table:
        """A row for each model: its overlap with every other."""

        def cell(value: float, error: float) -> str:
            return "unknown" if value > _SHARE else self._known(value, error, math.inf)

        rows = zip(self.models, self.overlaps, self.overlap_errors, strict=True)
        cells = [[name, *map(cell, overlaps, errors)] for name, overlaps, errors in rows]
        return tables.Table(["overlap", *self.models], cells)

    def notes(self) -> list[str]:
        """The meaning of an overlap, and where the errors come from."""
        notes = [
            "overlap: how often outputs of two models agree, over how often two of one model"
            f" do{self._given}; 1 if they say the same, 0 if nothing is common; unknown: too few"
            " repeats to tell"
            + (", - if they have no prompt in common" if np.isnan(self.overlaps).any() else "")
        ]
        both = "different models and overlaps"
        if self.left_out:
            prompts = f"{self.left_out} prompts to which a model has a single answer"
            notes.append(f"{both} leave out {prompts}")
        if self.reason:
            notes.append(f"{both} have no errors: {self.reason}")
        elif self.error is not None:
            groups = f"leaving out {self.groups} groups of {in_words(self.error.units)}"
            notes.append(f"[low, high] of {both}: 95%, for other samples, from {groups}")
        return notes

    def _known(self, value: float, error: float, most: float) -> str:
        """A number with its interval, at least 0; below 1e-5 both are rounding."""
        width = intervals.student((self.groups or 2) - 1) * error
        ends = max(value - width, 0.0), min(value + width, most)
        return tables.with_interval(round(value, 5) + 0.0, ends if error >= 1e-5 else None)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each overlap of two models."""
        names = ("first", "second", "value", "standard_error")
        values, errors = self.overlaps.tolist(), self.overlap_errors.tolist()
        pairs = itertools.combinations(enumerate(self.models), 2)
        lines = ((one, two, values[i][j], errors[i][j]) for (i, one), (j, two) in pairs)
        return [dict(zip(names, line, strict=True)) for line in lines]

    def parts(self) -> list[str | tables.Table]:
        return [self.headline(), self.table(), *self.notes()]
