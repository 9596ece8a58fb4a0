"""The result of `plan`: how many prompts and answers a study needs."""

import dataclasses
import math
from typing import Any, NamedTuple

from condvendi_jax.base.result import Figure, Result
from condvendi_jax.base.tables import Table, rough, span
from condvendi_jax.results.evaluation import score_name
from condvendi_jax.statistics.power import Spread

_UNKNOWN = 3  # Times the number of prompts: where more may be needed, the pilot is too small.
_SHOWN = (2, 3, 5, 10, 20)  # Numbers of answers, beside the best.


class Size(NamedTuple):
    """A study of some size, for each model.

    Attributes:
      prompts, answers: the number of prompts, or of outputs where none repeats; answers to each.
      cost: of all prompts and answers.
      ratio: the smallest ratio of two scores that it finds with the power of the plan.
      power: for the ratio that the plan is asked for, if any.
    """

    prompts: int
    answers: int
    cost: float
    ratio: float
    power: float | None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StudyPlan(Result):
    """Prompts and answers for a difference of two models, from a pilot. Prints as a table.

    Attributes:
      models: the two, or the one of the pilot, which stands for both.
      spread: how their difference varies.
      ratio: of the two scores that is to be found; None where a budget alone is given.
      power, level, pairs: of the test; the number of pairs of models that share the level.
      budget: None where the ratio decides.
      best: the cheapest size with this power or, of a budget, that with the smallest ratio.
      sizes: one for each number of answers, the best prompts for each.
      settings: the kernels and the seed of the pilot, in words.
      needed: the ends of the number of prompts with the answers of `best`, in 90% of what the pilot
        leaves open, prompts unlike its own among it; None where `best` lacks the power.
      twice: how many prompts to ask twice, in words; '' where prompts of the pilot repeat.
    """

    models: tuple[str, ...]
    spread: Spread
    ratio: float | None
    power: float
    level: float
    pairs: int
    budget: float | None
    best: Size
    sizes: tuple[Size, ...]
    settings: str
    needed: tuple[int, int] | None = None
    twice: str = ""

    @property
    def larger_pilot(self) -> int | None:
        """The prompts of a pilot that is large enough; None where this one is."""
        if self.needed is None or self.needed[1] <= _UNKNOWN * self.best.prompts:
            return None
        spread, variance = self.spread, self.spread.variance(self.spread.answers)
        return max(2 * spread.prompts, math.ceil(1.5 / variance) if spread.unseen else 0)

    @property
    def reached(self) -> bool:
        """Whether `best` has the power for the ratio."""
        return self.best.power is None or self.best.power >= self.power

    @property
    def open_power(self) -> tuple[float, float]:
        """The ends of the power of `best` in 90% of what the pilot leaves open."""
        effect = self.spread.effect(self.ratio or self.best.ratio)
        size = self.best.answers, self.best.prompts, effect, self.level
        return self.spread.power(*size, at=1.645), self.spread.power(*size, at=-1.645)

    def as_dict(self) -> dict[str, Any]:
        more = {"open_power": self.open_power, "larger_pilot": self.larger_pilot}
        return super().as_dict() | more

    @property
    def _words(self) -> str:
        number, k = f"{self.best.prompts:,} {self.spread.unit}", self.best.answers
        return number if k == 1 else f"{number} with {k:,} answers each"

    def lines(self) -> list[dict[str, Any]]:
        """A line for each number of answers."""
        return [size._asdict() for size in self.sizes]

    def plot(self) -> Figure:
        """The power against the number of prompts, with what the pilot leaves open."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        ratio, power = percent(self.ratio or self.best.ratio), self.best.power or self.power
        title = f"{self._words} find a difference of {ratio} in {power:.0%} of studies"
        return plots.of_plan(self, title)

    def parts(self) -> list[str | Table]:
        size, spread = self.best, self.spread
        models = [*filter(None, self.models), "another model"][:2]
        joined = " and ".join(models) if len(models) > 1 else "two such models"
        what = f"{score_name(spread.score, 2, None)} of {joined}"
        test = f"power {self.power:.0%}, level {self.level:.2g}"
        if self.pairs > 1:
            test += f" for each of {self.pairs} pairs"
        claim = f"A difference of {percent(self.ratio or size.ratio)} in {what} ({test})"
        if self.ratio is None:
            claim += f" is the smallest that a budget of {self.budget:g} finds: {self._words}"
        elif self.reached:
            claim += f" takes {self._words}"
        else:
            claim += f" cannot be found: {self._words} find it in {size.power:.0%} of studies; "
            claim += f"the smallest difference is {percent(size.ratio)}"
        low, high = self.open_power
        few = "" if spread.prompts > 99 else "only "
        pilot = f"The pilot has {few}{spread.prompts:,} {spread.unit}"
        pilot += f": the true power may be {low:.0%} to {high:.0%}"
        if self.needed:
            pilot += f", and it may take {span(self.needed)} {spread.unit}"
        if self.larger_pilot:
            pilot += f". This pilot is too small: ask {self.larger_pilot:,} {spread.unit} first"
        words = "Other numbers of answers need a pilot with four answers to each prompt"
        if not math.isnan(spread.of_answers):
            share = spread.between / spread.variance(spread.answers)
            words = f"Of the variance of the difference at {spread.answers:.3g} answers, "
            words += f"{share:.0%} is between prompts, and more answers do not help against it"
        once = [f"Each prompt was asked once. {self.twice}"] if self.twice else []
        return [claim, pilot, *once, "", self.table(), "", words, self.settings]

    def table(self) -> Table:
        """Some sizes of the study; numbers and costs are those of one model."""
        rows = [
            [f"{k:,}", f"{p:,}", f"{k * p:,}", f"{cost:,.0f}", percent(ratio)]
            for p, k, cost, ratio, _ in self.sizes
            if k in _SHOWN or k == self.best.answers
        ]
        heading = ["answers each", self.spread.unit, "outputs a model", "cost a model", "finds"]
        return Table(heading, rows)


def percent(ratio: float) -> str:
    """A ratio of scores as a difference: '12%', '2.4x'; '-' of none."""
    if not math.isfinite(ratio):
        return "-"
    if not ratio < 2:
        return f"{rough(ratio)}x"
    return f"{100 * (ratio - 1):.2g}%" if ratio > 1.001 else "under 0.1%"
