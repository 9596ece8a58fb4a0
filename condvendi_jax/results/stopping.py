"""Whether prompts have enough answers: what `enough` returns."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result, plain
from condvendi_jax.statistics.intervals import prompt_mean


class AskedPrompt(NamedTuple):
    """The chance that one more answer to a prompt is `new`, and the rule: `after` so many, stop.

    `news` and `bounds` are `new`, NaN of one answer, and `at_most` after 1, 2, ... `answers`.
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
        said = f" answers, the next one is new with a chance of {self.new:.2g}"
        said = f"{said} (at most {self.at_most:.3g})" if self.answers > 1 else " answer cannot tell"
        return f"{name}{self.answers:,}{said}: {'stop' if self.stop else 'ask again'}"


@dataclasses.dataclass(frozen=True, repr=False)
class Enough(Result):
    """Whether each prompt has enough answers, and whether all have, `stop`. Prints as lines.

    `new` is the mean over the prompts with two answers or more, `ends` are those of its interval at
    95% over prompts, None of one. `at_most` is that of one prompt, NaN of several.
    """

    prompts: tuple[AskedPrompt, ...]
    level: float

    stop = property(lambda self: all(prompt.stop for prompt in self.prompts))
    at_most = property(lambda self: math.nan if self.prompts[1:] else self.prompts[0].at_most)
    new = property(lambda self: float(self._known.mean()) if self._known.size else math.nan)
    _known = property(lambda self: np.array([p.new for p in self.prompts if p.answers > 1]))

    @property
    def ends(self) -> tuple[float, ...] | None:
        if (n := self._known.size) > 1:
            error, lost = self._known.std(ddof=1) / math.sqrt(n), (self._known - self.new) / (n - 1)
            return tuple(map(float, prompt_mean(self.new, error, lost, np.full(n, 1 / n))(0.05)))

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        return [plain(dict([*prompt._asdict().items()][:6])) for prompt in self.prompts]

    def parts(self) -> list[str]:
        stopped, mean = sum(p.stop for p in self.prompts), tables.with_interval(self.new, self.ends)
        words = f"{stopped:,} of {len(self.prompts):,} prompts have enough answers; "
        words += f"one more is new with a mean chance of {mean}"
        held = f"'at most' holds at every look, with {100 * (1 - self.level):g}% confidence"
        asked = sorted(self.prompts, key=lambda p: -np.nan_to_num(p.new, nan=1))
        rest = len(asked) - tables.LISTED
        shown = [*map(str, asked[: tables.LISTED]), *[f"... and {rest:,} others"] * (rest > 0)]
        return [*[words] * (len(asked) > 1), *shown, held]
