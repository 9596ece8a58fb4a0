"""What is known of the number of different outputs to one prompt."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result, plain
from condvendi_jax.base.tables import Table
from condvendi_jax.statistics.asked_once import Bins, Mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

State = Literal["known", "at most", "cannot be told"]
TWICE = "Ask each prompt twice (condvendi plan says how many prompts)"


@dataclasses.dataclass(frozen=True, repr=False)
class Curve(Result):
    """How alike outputs are by the distance of their prompts.

    Attributes:
      ends: the upper ends of the bins of distances `[b]`, the last of which is infinite.
      distances: the mean distances in the bins `[b]`.
      similarity: the mean squared kernel of outputs to prompts in each bin, with a band that holds
        all of them in 95% of samples, and how much weight of pairs there is.
      read_at_0: the similarity that a line through near pairs has at distance 0; NaN without one.
      distance: the mean distance of near prompts.
      near: the similarity of outputs to near prompts.
    """

    ends: np.ndarray
    distances: np.ndarray
    similarity: Bins
    distance: float
    near: Mean
    read_at_0: float

    def lines(self) -> list[dict[str, Any]]:
        """A line for each bin of distances."""
        bins = self.similarity
        columns = {
            "from": [0.0, *self.ends[:-1]],
            "to": self.ends,
            "distance": self.distances,
            "similarity": bins.values,
            "low": bins.low,
            "high": bins.high,
            "share_of_pairs": bins.pairs,
        }
        lines = [
            dict(zip(columns, map(float, line), strict=True))
            for line in zip(*columns.values(), strict=True)
        ]
        return [line for line in lines if line["share_of_pairs"] > 0]

    def parts(self) -> list[str | Table]:
        """A row for each bin."""
        rows = [
            [f"{line['from']:.3g} to {line['to']:.3g}", f"{line['similarity']:.3g}"]
            + [
                tables.interval((line["low"], line["high"])).strip(),
                f"{line['share_of_pairs']:.1%}",
            ]
            for line in self.lines()
        ]
        return [Table(["distance of prompts", "similarity of outputs", "95% band", "pairs"], rows)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "bins": [plain_ends(line) for line in self.lines()],
            "mean_distance_of_near_prompts": self.distance,
            "similarity_of_near_prompts": self.near.value,
            "read_at_0": plain(self.read_at_0),
        }

    def plot(self) -> Figure:
        """The similarity against the distance, with its band and what is read at distance 0."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.over_distances(self)


def plain_ends(line: Mapping[str, float]) -> dict[str, Any]:
    """A line for JSON, which has no infinity: an open end is None."""
    return {name: value if math.isfinite(value) else None for name, value in line.items()}


@dataclasses.dataclass(frozen=True, repr=False)
class OnePrompt(Result):
    """How many outputs to one prompt differ: known, at most so many, or not to be told.

    The number is one over how often two outputs to one prompt count as the same, in the mean over
    prompts, each once or by its weight.

    Attributes:
      state: 'known', where prompts repeat or near ones show it; 'at most'; or 'cannot be told'.
      value, low, high: the number with its 95% interval; NaN unless it is known.
      at_most: what it is at most, with 95% confidence; NaN where prompts repeat.
      total: the number over all prompts, which it cannot exceed.
      prompts: how many prompts it was computed from.
      repeated: whether these were asked several times.
      reason: why it cannot be told, in words; None elsewhere.
      curve: how alike outputs are by the distance of prompts; None where prompts repeat or have no
        distance.
    """

    state: State
    value: float
    low: float
    high: float
    at_most: float
    total: float
    prompts: int
    repeated: bool
    reason: str | None = None
    curve: Curve | None = None

    def parts(self) -> list[str | Table]:
        """The sentence and, for prompts that were asked once, the curve."""
        return [in_a_sentence({"": self}), *(self.curve.parts() if self.curve else [])]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        numbers = {name: getattr(self, name) for name in ("value", "low", "high", "at_most")}
        return {
            "state": self.state,
            **plain_ends(numbers),
            "total": self.total,
            "prompts": self.prompts,
            "repeated": self.repeated,
            "reason": self.reason,
            "curve": self.curve and self.curve.as_dict(),
        }

    def in_words(self) -> str:
        """'about 3.1 [2.8, 3.6]', 'at most 7.7', or 'cannot be told'."""
        if self.state == "known":
            return (
                f"about {tables.rough(self.value)} {tables.interval((self.low, self.high)).strip()}"
            )
        return f"at most {tables.rough(self.at_most)}" if self.state == "at most" else self.state


def in_a_sentence(models: Mapping[str, OnePrompt]) -> str:
    """The number of each model, and what to do where it cannot be told."""
    by = sorted(models.items(), key=lambda item: -np.nan_to_num(item[1].value, nan=-1))
    first = by[0][1]
    if all(one.state == "cannot be told" for one in models.values()):
        words = f"How many outputs to one prompt differ cannot be told: {first.reason}. {TWICE}."
        return words
    shown = [one.in_words() + (f" ({name})" if name else "") for name, one in by]
    words = f"Different outputs to one prompt: {tables.listed(shown)}"
    if all(one.repeated for one in models.values()):
        return f"{words}."
    some = any(one.state == "known" and not one.repeated for one in models.values())
    words += ", with 95% confidence: each prompt was asked once"
    words += ", and near prompts show it." if some else "."
    known = all(one.state == "known" for one in models.values())
    return words if known else f"{words} {TWICE}."
