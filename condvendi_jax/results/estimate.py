"""A number with its error and interval; how many outputs of a model are good, and different."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result
from condvendi_jax.statistics.influences import Error


class Estimate(NamedTuple):
    """A score, its standard error (NaN if there is none) and the ends of its interval at 95%."""

    value: float
    error: float
    ends: tuple[float, ...] | None

    @classmethod
    def of(cls, error: Error, least: float = -math.inf, most: float = math.inf) -> Self:
        """An estimate from its error, with its interval inside what is possible."""
        low, high = error.interval()
        ends = None if error.reason or math.isnan(low) else (max(low, least), min(high, most))
        return cls(error.value, error.standard_error, ends)

    def __str__(self) -> str:
        """The value with its interval: '4.6 [4.2, 5.1]'."""
        return tables.with_interval(self.value, self.ends)

    def as_dict(self) -> dict[str, float]:
        """The value, the error and the ends of the interval, NaN where there is none."""
        low, high = self.ends or (math.nan, math.nan)
        return {"value": self.value, "standard_error": self.error, "low": low, "high": high}


@dataclasses.dataclass(frozen=True, repr=False)
class Quality(Result):
    """The good outputs of a model, and how many of them are different. Prints as a sentence.

    Attributes:
      at_least: the quality from which an output is good.
      draws: the number k of outputs that a user sees for each prompt.
      share: the share of good outputs, a mean over prompts.
      number: of outputs among k draws that are good and do not count as the same as an earlier good
        one, a mean over prompts: the sum over m < k of E[g_1 (1 - g_2 k(x_1, x_2)^2) ...
        (1 - g_(m+1) k(x_1, x_(m+1))^2)], where g is 1 if good, else 0 (`cv-good-and-different`).
      diversity: unbiased Conditional-RKE of good outputs of prompts with two or more; else NaN.
      prompts, left_out: how many prompts have k outputs and count, and how many have fewer.
      diverse_prompts: how many prompts have two good outputs.
      error: of the number, with the influences of independent prompts.
    """

    at_least: float
    draws: int
    share: Estimate
    number: Estimate
    diversity: Estimate
    prompts: int
    left_out: int
    diverse_prompts: int
    error: Error

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().as_dict().items() if name != "error"}

    def parts(self) -> list[str]:
        diverse = f"{self.diversity} ({self.diverse_prompts:,} prompts with two)"
        words = [
            f"share of outputs with a quality of at least {self.at_least:g}: {self.share}",
            f"of {self.draws:,} draws {self.number} are good and different",
            f"diversity among good outputs {diverse}",
        ]
        if self.left_out:
            words.append(f"{self.left_out:,} prompts with fewer outputs are left out")
        return ["; ".join(words)]


def undominated(models: Mapping[str, Quality]) -> list[str]:
    """The models of which no other is at least as good in share and diversity, better in one."""
    points = {m: (rated.share.value, rated.diversity.value) for m, rated in models.items()}
    known = {m: np.array(point) for m, point in points.items() if not math.isnan(point[1])}
    beaten = {m for m, a in known.items() for b in known.values() if all(b >= a) and any(b > a)}
    return [model for model in known if model not in beaten]
