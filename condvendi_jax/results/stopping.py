"""Whether prompts have enough answers: what `enough` returns."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result, plain
from condvendi_jax.results.estimate import Estimate


class AskedPrompt(NamedTuple):
    """The chance that one more answer to a prompt is `new`, its upper end, and the rule.

    `news` and `bounds` are both after 1, 2, ... `answers`; `new` is NaN after one.
    """

    prompt: Any
    answers: int
    new: float
    at_most: float
    stop: bool
    news: np.ndarray
    bounds: np.ndarray

    def __str__(self) -> str:
        name = "" if self.prompt is None else f"prompt {self.prompt!r}: "
        said = f" answers, the next one is new with a chance of {self.new:.2g}"
        said = f"{said} (at most {self.at_most:.3g})" if self.answers > 1 else " answer cannot tell"
        return f"{name}{self.answers:,}{said}: {'stop' if self.stop else 'ask again'}"


@dataclasses.dataclass(frozen=True, repr=False)
class Enough(Result):
    """Whether each prompt has enough answers, and whether all have, `stop`. Prints as lines.

    `new` is the mean over the prompts with two answers or more, with an interval over prompts.
    """

    prompts: tuple[AskedPrompt, ...]
    new: Estimate
    level: float

    stop = property(lambda self: all(prompt.stop for prompt in self.prompts))

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        return [plain(dict([*prompt._asdict().items()][:5])) for prompt in self.prompts]

    def parts(self) -> list[str]:
        asked = sorted(self.prompts, key=lambda p: -np.nan_to_num(p.new, nan=1))
        parts = [*map(str, asked[: tables.LISTED])]
        if (rest := len(asked) - tables.LISTED) > 0:
            parts.append(f"... and {rest:,} others")
        if len(asked) > 1:
            words = f"{sum(p.stop for p in asked):,} of {len(asked):,} prompts have enough answers"
            parts.insert(0, f"{words}; one more is new with a mean chance of {self.new}")
        held = f"'at most' holds at every look, with {100 * (1 - self.level):g}% confidence"
        return [*parts, held]
