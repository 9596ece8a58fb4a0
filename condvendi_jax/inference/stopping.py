"""Whether to ask a model again: the chance that one more answer to a prompt is new."""

import dataclasses
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import checks, tables
from condvendi_jax.base.devices import compiled_elsewhere, to_host
from condvendi_jax.base.result import Result, plain
from condvendi_jax.data import kernels, shapes
from condvendi_jax.data.bandwidth import AUTO
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.inference.datasets import Dataset, by_row
from condvendi_jax.inference.quality import Asked, mean_over_prompts
from condvendi_jax.results.estimate import Estimate
from condvendi_jax.statistics import sequential

kernel_values = compiled_elsewhere(kernels.of_all)


class AskedPrompt(NamedTuple):
    """The chance that one more answer to a prompt is `new`, NaN after one answer, and the rule."""

    prompt: Any
    answers: int
    new: float
    at_most: float
    stop: bool
    news: np.ndarray  # `new` and, in `bounds`, `at_most` after 1, 2, ... answers.
    bounds: np.ndarray

    def __str__(self) -> str:
        said = f" answers, the next one is new with a chance of {self.new:.2g}"
        said = f"{said} (at most {self.at_most:.3g})" if self.answers > 1 else " answer cannot tell"
        return f"{self.answers:,}{said}: {'stop' if self.stop else 'ask again'}"


@dataclasses.dataclass(frozen=True, repr=False)
class Enough(Result):
    """Whether each prompt has enough answers, and whether all have, `stop`. Prints as lines."""

    prompts: tuple[AskedPrompt, ...]
    new: Estimate  # The mean over prompts with two answers or more.
    level: float

    stop = property(lambda self: all(prompt.stop for prompt in self.prompts))

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        return [plain(dict([*prompt._asdict().items()][:5])) for prompt in self.prompts]

    def parts(self) -> list[str]:
        """How many prompts have enough answers; and those where the next one is likeliest new."""
        sure = f"{100 * (1 - self.level):g}% confidence"
        held = f"'at most' holds at every look at a prompt, with {sure}, if answers are independent"
        if len(self.prompts) == 1:
            return [str(self.prompts[0]), held]
        words = f"{sum(p.stop for p in self.prompts):,} of {len(self.prompts):,} prompts have"
        words = f"{words} enough answers; one more is new with a mean chance of {self.new}"
        asked = sorted(self.prompts, key=lambda p: -np.nan_to_num(p.new, nan=1))
        shown = [f"prompt {p.prompt!r}: {p}" for p in asked[: tables.LISTED]]
        rest = len(asked) - len(shown)
        return [words, *shown, *[f"... and {rest:,} others"] * (rest > 0), held]


@checks.outside_transformations
def enough(
    outputs: Any,
    prompts: Any = None,
    *,
    until: float = 0.1,
    most: int | None = None,
    sure: bool = False,
    quality: Any = None,
    at_least: float | None = None,
    level: float = 0.05,
    encoder: Any = None,
    similarity: Any = None,
    clean: bool = True,
    output_kernel: Any = None,
) -> Enough:
    """Whether each prompt has enough answers, by the chance that one more is new.

    New answers count as the same as none before; answers are drawn independently.

    Args:
      outputs, prompts: as `evaluate`, the answers to a prompt in the order of asking. Without
        prompts, each list of answers is of one prompt, and answers in no list are of the same one.
      until: stop if the chance is at most this: the price of an answer over the worth of a new one.
      most: the number of answers to a prompt at which to stop in any case.
      sure: whether to stop only if the upper end of the chance is at most `until`.
      quality, at_least: as `evaluate`; good answers that are unlike earlier good ones are new.
      level: the upper ends of a prompt hold at all numbers of answers with probability 1 - level,
        if no `clean` cuts what most answers share (`cv-new-answers` of docs/theory.md).
      encoder, similarity, clean, output_kernel: as `evaluate`. Arrays, and encoders without a
        bandwidth, need a kernel: a rule would change it with every answer.

    Raises:
      TypeError, ValueError: as `evaluate`, or there is no kernel, or a number is not valid.

    Examples:
      >>> import condvendi_jax as cv
      >>> print(cv.enough([3, 7, 3, 3, 7, 3, 3, 3]))  # The classes of the answers to one prompt.
      8 answers, the next one is new with a chance of 0 (at most 0.561): stop
      'at most' holds at every look at a prompt, with 95% confidence, if answers are independent
    """
    until = checks.check_number(until, name="until", above=0, below=1)
    level = checks.check_number(level, name="level", above=0, below=1)
    largest = math.inf if most is None else checks.check_count(most, name="most", minimum=1)
    sure = checks.check_flag(sure, name="sure")
    checks.check_indices({"outputs": outputs, "quality": quality})
    if not hasattr(outputs, "__len__"):
        raise TypeError(f"outputs: expected a list or an array, received {type(outputs).__name__}.")
    if hasattr(outputs, "columns") and prompts is None:
        raise TypeError("outputs: received a table; pass its column of answers, and of prompts.")
    if isinstance(outputs, list) and any(isinstance(x, list) and not x for x in outputs or [[]]):
        raise ValueError("outputs: received a list without answers; ask its prompt first.")
    if prompts is None and not isinstance(outputs, Similarities):
        outputs = shapes.without_table(outputs, numbers := range(len(outputs)))
        labels = similarity is not None or (output_kernel and kernels.is_equality(output_kernel))
        outputs, split = by_row({"": outputs}, numbers, lists=bool(labels))
        one = isinstance(split, range) and getattr(outputs[""], "ndim", 2) < 3
        outputs, prompts = outputs[""], [0] * len(numbers) if one else split
    data = Dataset.of({"": outputs}, prompts, encoder, similarity, clean, across=False)
    rule = AUTO if data.encoder and data.encoder.bandwidth is not None else None
    chosen: Any = {"output_kernel": output_kernel, "prompt_kernel": kernels.Indicator()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*are below 1e-6")  # A few answers may all differ.
        pairs = data.matched(refuse=True).pairs(**chosen, similar_prompts=False, rule=rule)[""]
    rated, pairs = Asked.of({"": pairs}, quality, at_least, None), pairs.gathered()
    good = np.ones(pairs.n) if rated is None else 1.0 * (rated.values[""] >= rated.at_least)
    labels = {number: label for (label, _), number in pairs.prompt_numbers.items()}
    results, (count, kinds), ids = list[AskedPrompt](), pairs.prompt_kinds, pairs.prompt_ids
    for kind in range(count):
        rows = np.flatnonzero(kinds == kind)
        points = to_host(pairs.arrays[0])[rows]
        similar = np.square(np.asarray(kernel_values(pairs.kernels[0], points), np.float64))
        news, bounds = sequential.after_each(similar, good[rows], level)
        last = rows.size, float(news[-1]), float(bounds[-1])
        stop = rows.size >= largest or (max(last[1:]) if sure else last[1]) <= until
        label = None if ids is None else labels.get(int(ids[rows[0]]), int(rows[0]))
        results.append(AskedPrompt(label, *last, stop, news, bounds))
    known = np.array([p.new for p in results if p.answers > 1] or [math.nan])
    mean = Estimate.of(mean_over_prompts(known, np.arange(known.size), known.size))
    return Enough(tuple(results), mean, level)
