"""The effective number of different models, and the overlap of every two."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result
from condvendi_jax.base.tables import Table
from condvendi_jax.inference.results.ranking import FEWEST_TESTED, Difference


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Between(Result):
    """The effective number of different models, and the overlap of every two. Prints as text.

    Attributes:
      models: their names.
      paired: whether prompts are given.
      number: the effective number of different models, exp I(X; M | T): 1 if all say the same given
        the prompts.
      largest: exp H(M | T), which the number reaches if no two models have an output in common: how
        many models there are or, if they have prompts of their own, fewer.
      overlaps: of every two models, `[m, m]`: the share of their outputs that they have in common,
        1 if they say the same given the prompts and 0 if nothing is common; NaN if they have no
        prompt in common, or if no two of their outputs are alike. Two samples of one model have 1
        in the mean, and may have more.
      influences: the effect of each group of the jackknife on the number, `[g]`, whose root mean
        square is the standard error; None where there are no errors.
      overlap_influences: the same of the overlaps, `[m, m, g]`.
      units: what the groups are made of.
      rounding: overlaps that differ by no more than this are equal.
      untested: why `difference` tests nothing; None where it does.
      left_out: how many prompts were left out, to which some model has a single answer.
    """

    models: tuple[str, ...]
    paired: bool
    number: float
    largest: float
    overlaps: np.ndarray
    influences: np.ndarray | None
    overlap_influences: np.ndarray | None
    units: str | None
    rounding: float
    untested: str | None = None
    left_out: int = 0

    @property
    def groups(self) -> int | None:
        """The number of groups of the jackknife; None where there are no errors."""
        return None if self.influences is None else self.influences.size

    @property
    def standard_error(self) -> float:
        """The standard error of the number, NaN where there is none."""
        return math.nan if self.influences is None else float(_root_mean_square(self.influences))

    @property
    def overlap_errors(self) -> np.ndarray:
        """The standard errors of the overlaps, `[m, m]`, NaN where there are none."""
        if self.overlap_influences is None:
            return np.full_like(self.overlaps, math.nan)
        return _root_mean_square(self.overlap_influences)

    def difference(self, first: tuple[str, str], second: tuple[str, str]) -> Difference:
        """The overlap of two models less that of two others, with a paired test.

        Args:
          first, second: the names of two models each.

        Returns:
          A `Difference` of one test, so that `adjusted` is the p-value; NaN without errors, with
          fewer than seven groups, or where `untested` says why.

        Raises:
          KeyError: a name is not that of a model.
        """
        from scipy.special import stdtr  # Imported where it is used: it is slow to import.

        one, two = (tuple(map(self._number_of, pair)) for pair in (first, second))
        value = float(self.overlaps[one] - self.overlaps[two])
        error = p_value = math.nan
        if self.overlap_influences is not None:
            groups = self.overlap_influences[one] - self.overlap_influences[two]
            error = float(_root_mean_square(groups))
            if self.untested:
                pass
            elif abs(value) <= self.rounding:
                p_value = 1.0
            elif groups.size >= FEWEST_TESTED and not math.isnan(error):
                p_value = float(2 * stdtr(groups.size - 1, -abs(value) / error)) if error else 0.0
        names = " and ".join(first), " and ".join(second)
        return Difference(*names, value, error, p_value, p_value)

    def _number_of(self, model: str) -> int:
        if model not in self.models:
            raise KeyError(f"{model!r} is none of the models {[*self.models]}.")
        return self.models.index(model)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the influences as plain data, for JSON."""
        errors = self.overlap_errors
        return {
            "number": self.number,
            "standard_error": self.standard_error,
            "largest": self.largest,
            "overlaps": [
                {
                    "first": self.models[one],
                    "second": self.models[two],
                    "value": float(self.overlaps[one, two]),
                    "standard_error": float(errors[one, two]),
                }
                for one, two in itertools.combinations(range(len(self.models)), 2)
            ],
            "groups": self.groups,
            "groups_of": self.units,
            "untested": self.untested,
            "prompts_left_out": self.left_out,
        }

    def headline(self) -> str:
        """The number of different models in a line."""
        limit, largest = f"{len(self.models)}", f"{self.largest:.4g}"
        if largest != limit:
            limit += f" (at most {largest}, because prompts differ between models)"
        number = tables.with_error(self.number, self.standard_error)
        return f"effective number of different models{self._given}, order 2: {number} of {limit}"

    @property
    def _given(self) -> str:
        return " given the prompts" if self.paired else ""

    def table(self) -> Table:
        """A row for each model: its overlap with every other."""

        def cell(value: float, error: float) -> str:
            if math.isnan(value):
                return "-"
            # Numbers and errors below 1e-5 are rounding.
            return tables.with_error(round(value, 5) + 0.0, error if error >= 1e-5 else None)

        rows = zip(self.models, self.overlaps, self.overlap_errors, strict=True)
        cells = [[name, *map(cell, overlaps, errors)] for name, overlaps, errors in rows]
        return Table(["overlap", *self.models], cells)

    def notes(self) -> list[str]:
        """The meaning of an overlap, and where the errors come from."""
        undefined = np.isnan(self.overlaps).any()
        notes = [
            f"overlap: the share of their outputs that two models have in common{self._given}; 1 if"
            " they say the same, 0 if nothing is common, above 1 if outputs of one model avoid each"
            " other" + (", - if they have no prompt in common" if undefined else "")
        ]
        if self.left_out:
            notes.append(
                f"different models and overlaps leave out {self.left_out} prompts to which a model "
                "has a single answer"
            )
        if self.groups is not None:
            notes.append(
                "± of different models and overlaps: one standard error of the sample, from "
                f"deletions of {self.groups} groups of {self.units}"
            )
        return notes

    def lines(self) -> list[dict[str, Any]]:
        """A line for each overlap of two models."""
        return self.as_dict()["overlaps"]

    def parts(self) -> list[str | Table]:
        """The number in a line, the overlaps as a table, and what they mean."""
        return [self.headline(), self.table(), *self.notes()]


def _root_mean_square(influences: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.square(influences), axis=-1))
