"""A number with its error and interval."""

from __future__ import annotations

import math
from typing import NamedTuple

from condvendi_jax.base import tables
from condvendi_jax.statistics.influences import Error


class Estimate(NamedTuple):
    """A score, its standard error (NaN if there is none) and the ends of its interval at 95%."""

    value: float
    error: float
    ends: tuple[float, ...] | None

    @classmethod
    def of(cls, error: Error) -> Estimate:
        """An estimate with its interval, from its error."""
        known = not math.isnan(error.standard_error)
        ends = error.interval() if known else None
        return cls(error.value, error.standard_error, ends)

    @property
    def short(self) -> str:
        """The value with its error, or with its interval where this is not symmetric."""
        return tables.with_interval(*self) + (self.interval if tables.lopsided(*self) else "")

    @property
    def interval(self) -> str:
        """' [4.2, 5.6]'; '' where there is no interval, or no upper end to speak of."""
        if self.ends is None or not self.ends[1] <= tables.OPEN * self.ends[0]:  # Or NaN.
            return ""
        return f" {tables.interval(self.ends)}"

    def as_dict(self) -> dict[str, float]:
        """The value, the error and the ends of the interval, NaN where there is none."""
        low, high = self.ends or (math.nan, math.nan)
        return {"value": self.value, "standard_error": self.error, "low": low, "high": high}
