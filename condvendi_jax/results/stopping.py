"""Whether prompts have enough answers: what `enough` returns."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result, plain
from condvendi_jax.statistics.intervals import prompt_mean


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
        said = f"is new with a chance of {self.new:.2g} (at most {self.at_most:.2g})"
        several, one = self.answers > 1, "1 answer, which cannot tell if the next one is new"
        said = f"{self.answers:,} answers, the next one {said}" if several else one
        return f"{name}{said}: {'stop' if self.stop else 'ask again'}"


@dataclasses.dataclass(frozen=True, repr=False)
class Enough(Result):
    """Whether each prompt has enough answers. Prints a line for each.

    `stop` is whether all have, `new` the mean over the prompts with two answers, `ends` those of
    its interval at 95% over prompts, None of one; `at_most` is that of one prompt, NaN of several.
    """

    prompts: tuple[AskedPrompt, ...]
    level: float

    stop = property(lambda self: all(prompt.stop for prompt in self.prompts))
    at_most = property(lambda self: math.nan if self.prompts[1:] else self.prompts[0].at_most)
    new = property(lambda self: float(self._known.mean()) if self._known.size else math.nan)
    _known = property(lambda self: np.array([p.new for p in self.prompts if p.answers > 1]))

    @property
    def ends(self) -> tuple[float, float] | None:
        if (n := self._known.size) > 1:
            error, lost = self._known.std(ddof=1) / math.sqrt(n), (self._known - self.new) / (n - 1)
            low, high = prompt_mean(self.new, float(error), lost, np.full(n, 1 / n))(0.05)
            return float(low), float(high)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        return [plain(dict([*prompt._asdict().items()][:6])) for prompt in self.prompts]

    def parts(self) -> list[str]:
        stopped, count = sum(prompt.stop for prompt in self.prompts), len(self.prompts)
        mean = f"{stopped:,} of {count:,} prompts have enough answers; the next one is new with "
        mean += f"a mean chance of {tables.with_interval(self.new, self.ends)}"
        held = f"'at most' holds at every look, with {100 * (1 - self.level):g}% confidence"
        return [*[mean] * (count > 1), *map(str, self.prompts), held]
