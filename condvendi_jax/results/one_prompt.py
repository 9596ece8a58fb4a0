"""What is known of the number of different outputs to one prompt."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Figure, Result, plain
from condvendi_jax.statistics.asked_once import Bins, Mean

State = Literal["known", "at most", "cannot be told"]
_TWO_SIDED = 1.96  # Standard errors in half of a 95% interval.
_WANTED = 0.2  # Of the number.
_MOST = 100_000  # Prompts that anyone asks.
_INDEPENDENT = (
    "to one prompt: each prompt counts once, and {} are taken as independent given "
    "their prompts; pass groups= (--groups_file) if some share a seed, a style or a person"
)


@dataclasses.dataclass(frozen=True, repr=False)
class Curve(Result):
    """How alike outputs are by the distance of their prompts.

    Attributes:
      ends: the upper ends of the bins of distances `[b]`, the last of which is infinite.
      distances: the mean distances in the bins `[b]`.
      similarity: the mean squared kernel of outputs to prompts in each bin, with a band that holds
        all of them in about 95% of samples, and how much weight of pairs there is.
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
        names = ("from", "to", "distance", "similarity", "low", "high", "share_of_pairs")
        values, low, high, _, pairs = self.similarity
        columns = [0.0, *self.ends[:-1]], self.ends, self.distances, values, low, high, pairs
        lines = zip(*(map(float, column) for column in columns), strict=True)
        return [dict(zip(names, line, strict=True)) for line in lines if line[-1] > 0]

    def parts(self) -> list[str | tables.Table]:
        rows = [
            [f"{low:.3g} to {high:.3g}", tables.with_interval(similarity, band), f"{pairs:.1%}"]
            for low, high, _, similarity, *band, pairs in map(dict.values, self.lines())
        ]
        heading = ["distance of prompts", "similarity of outputs (95% band)", "pairs"]
        return [tables.Table(heading, rows)]

    def as_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"bins": [*map(plain_ends, self.lines())]}
        shown["mean_distance_of_near_prompts"] = self.distance
        near = {"similarity_of_near_prompts": self.near.value}
        return shown | near | {"read_at_0": plain(self.read_at_0)}

    def plot(self) -> Figure:
        """The similarity against the distance, with its band and what is read at distance 0."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.of_distances(self)


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
      at_most: what it is at most, with about 95% confidence (docs/studies/asked_once.md), or NaN.
      total: the number over all prompts: no less, of independent outputs (`cv-order-2-identity`).
      prompts: how many prompts it was computed from.
      repeated: whether these were asked several times.
      left_out: how many others were asked once, and do not count.
      borrowed: where prompts that repeat have a kernel by which others are similar, the share of
        Conditional-RKE that is borrowed from other prompts, and would go if all were told apart.
      reason: why it cannot be told, in words; None elsewhere.
      curve: likeness of outputs by distance of prompts; None where prompts repeat or have none.
    """

    state: State
    value: float
    low: float
    high: float
    at_most: float
    total: float
    prompts: int
    repeated: bool
    left_out: int = 0
    borrowed: float | None = None
    reason: str | None = None
    curve: Curve | None = None

    def parts(self) -> list[str | tables.Table]:
        return [in_a_sentence({"": self}), *(self.curve.parts() if self.curve else [])]

    def as_dict(self) -> dict[str, Any]:
        names = ("value", "low", "high", "at_most", "total")
        return super().as_dict() | plain_ends({name: getattr(self, name) for name in names})

    def note(self, noun: str = "outputs") -> str:
        """What was assumed, or how much of a score comes from other prompts; '' if nothing."""
        if self.borrowed is not None:
            whose = "Conditional-RKE between similar prompts comes from other prompts"
            return f"to one prompt: {self.in_words()}; {self.borrowed:.0%} of the {whose}"
        return _INDEPENDENT.format(noun) if self.curve and not self.repeated else ""

    def twice(self, precision: float) -> int | None:
        """How many prompts, asked twice, tell the number within a share of it, 95% of the time.

        At most: from the smallest similarity that the outputs may have. None where that is 0.
        """
        similarity = 1 / self.at_most
        if not 0 < similarity <= 1:
            return None
        # The variance of a coin, relative to its mean.
        return math.ceil((_TWO_SIDED / precision) ** 2 * (1 - similarity) / similarity)

    def in_words(self) -> str:
        """'about 3.1 [2.8, 3.6]', 'at most 7.7', or 'cannot be told'."""
        if self.state == "known":
            if math.isinf(self.high):
                return f"> {self.low:.3g}"
            return f"about {tables.with_interval(self.value, (self.low, self.high))}"
        if math.isnan(self.at_most):
            return self.state
        most = f"at most {tables.rough(self.at_most)}"
        return most if self.state == "at most" else f"{self.state}, {most}"


def notes_of(known: Mapping[str, OnePrompt], noun: str = "outputs") -> list[str]:
    """The notes of models by their names, each once, with the names of those that differ."""
    notes = {name: note for name, one in known.items() if (note := one.note(noun))}
    named = (f"{k}, {note}" if k and known[k].repeated else note for k, note in notes.items())
    return list(dict.fromkeys(named))


def in_a_sentence(models: Mapping[str, OnePrompt], noun: str = "outputs") -> str:
    """The number of each model, and what to do where it cannot be told."""
    by = sorted(models.items(), key=lambda item: -np.nan_to_num(item[1].value, nan=-1))
    first, states = by[0][1], {one.state for one in models.values()}
    single = [one for _, one in by if not one.repeated]
    advice = f" {ask_twice(single)}." if states != {"known"} and single else ""
    if states == {"cannot be told"} and len(by) == 1:
        return f"How many {noun} to one prompt differ {first.in_words()}: {first.reason}.{advice}"
    shown = [one.in_words() + (f" ({name})" if name else "") for name, one in by]
    start, end = f"Different {noun} to one prompt", ""
    if not single and any(one.left_out for one in models.values()):
        asked = {one.prompts for one in models.values()}
        whose = "one prompt that was" if asked == {1} else f"{tables.span(asked)} prompts that were"
        end = f", by the {whose} asked several times"
    elif len(single) == len(by):
        start += ", estimated from near prompts" if states == {"known"} else ", each asked once"
    return f"{start}: {tables.listed(shown)}{end}.{advice}"


def ask_twice(models: Sequence[OnePrompt], precision: float = _WANTED) -> str:
    """What to do: ask prompts twice, and how many where that can be said."""
    counts = [count for one in models if (count := one.twice(precision))]
    if not counts or max(counts) > _MOST:
        return "Ask each prompt twice"
    return f"To know it within {precision:.0%}, ask at most {max(counts):,} prompts twice"


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
      what: the numbers in words, as 'effectively different answers to a prompt, of 8'.
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
