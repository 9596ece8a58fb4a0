"""Whether prompts have enough answers: what `enough` returns."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result, plain


class AskedPrompt(NamedTuple):
    """A prompt, None without prompts, and the chance that one more answer is `new`, NaN after one.

    `after` is the first number of answers at which the rule said stop, or None. `news` and `bounds`
    are `new` and `at_most` after each of 1, 2, ... answers.
    """

    prompt: Any
    answers: int
    new: float
    at_most: float
    stop: bool
    after: int | None
    news: np.ndarray
    bounds: np.ndarray

    def __str__(self) -> str:
        name = "" if self.prompt is None else f"prompt {self.prompt!r}: "
        chance = f"is new with a chance of {self.new:.2g} (at most {self.at_most:.2g})"
        chance = chance if self.answers > 1 else "may be new: one answer cannot tell"
        plural = "s" * (self.answers > 1)
        does = "stop" if self.stop else "ask again"
        return f"{name}{self.answers:,} answer{plural}, the next one {chance}: {does}"


@dataclasses.dataclass(frozen=True, repr=False)
class Enough(Result):
    """Whether each prompt has enough answers; all have if `stop`. Prints a line for each prompt.

    `new` is the mean over the prompts with two answers, with the `ends` of its interval at 95% over
    prompts, None of fewer than two. `at_most` is that of one prompt, NaN of several.
    """

    prompts: tuple[AskedPrompt, ...]
    level: float
    new: float
    ends: tuple[float, float] | None

    at_most = property(lambda self: np.nan if self.prompts[1:] else self.prompts[0].at_most)
    stop = property(lambda self: all(prompt.stop for prompt in self.prompts))

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        return [plain(dict([*prompt._asdict().items()][:6])) for prompt in self.prompts]

    def parts(self) -> list[str]:
        stopped, several = sum(prompt.stop for prompt in self.prompts), len(self.prompts)
        mean = f"{stopped:,} of {several:,} prompts have enough answers; the next one is new with "
        mean += f"a mean chance of {tables.with_interval(self.new, self.ends)}"
        held = f"'at most' holds at every look, with {100 * (1 - self.level):g}% confidence"
        return [*[mean] * (several > 1), *map(str, self.prompts), held]
