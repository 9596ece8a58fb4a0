"""How many outputs of each model differ: the numbers that pages, figures and papers show first."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.results.one_prompt import plain_ends


class Bar(NamedTuple):
    """How many outputs of a model differ, with the ends of the 95% interval.

    The value is NaN where it is not known; low is NaN without an error; high is infinite where so
    many rows cannot tell it. Models that share one of the `letters` cannot be told apart.
    """

    model: str
    value: float
    low: float
    high: float
    words: str = ""  # In place of the numbers.
    letters: str = ""

    @property
    def known(self) -> bool:
        """Whether the value is one, not an end alone."""
        return math.isfinite(self.value) and not math.isinf(self.high)

    def __str__(self) -> str:
        """'3.1 [2.9, 3.6]', '> 13.4', or its words."""
        return self.words or tables.with_interval(self.value, (self.low, self.high))


class Bars(NamedTuple):
    """The numbers of several models, the most diverse first.

    Attributes:
      what: the numbers in words, as 'different answers to a prompt, of 8'.
      models: a bar for each model.
      by: the name of the score; '' where it is that of one prompt.
      limit: what the numbers are at most; NaN without a limit.
      apart: the models whose rows nearly all count as different.
    """

    what: str
    models: tuple[Bar, ...]
    by: str = ""
    limit: float = math.nan
    apart: Sequence[str] = ()

    @property
    def axis(self) -> str:
        """What an axis of the numbers is called."""
        return tables.capitalized(self.what + f", by {self.by}" * bool(self.by))

    @property
    def end(self) -> float:
        """The end of the axis: the limit, or beyond the largest number that is known."""
        known = [x for bar in self.models for x in bar[1:4] if math.isfinite(x)]
        return max(2.0, *(1.05 * x for x in known)) if math.isnan(self.limit) else self.limit

    def place(self, value: float) -> str:
        """Where a number stands on the axis, for HTML."""
        return f"{100 * (min(max(value, 1), self.end) - 1) / (self.end - 1):.2f}%"

    def as_dict(self) -> dict[str, Any]:
        """What the numbers are; of each model value, low and high, None where not known."""
        numbers = [dict(zip(Bar._fields[1:4], bar[1:4], strict=True)) for bar in self.models]
        both = zip(self.models, map(plain_ends, numbers), strict=True)
        return {"what": self.axis, "models": [{"model": bar.model} | ends for bar, ends in both]}

    @property
    def ticks(self) -> list[float]:
        """The numbers along the axis, which begins at 1."""
        step = next(s * 10**k for k in range(12) for s in (1, 2, 5) if self.end < 8 * s * 10**k + 2)
        return [1, *(x for x in np.arange(0, self.end + 1e-6, step).tolist() if x > 1)]
