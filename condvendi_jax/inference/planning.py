"""How many prompts, and answers to each, a difference of two models takes.

The difference of two models' mean similarities, over P prompts with k answers to each, has the
variance (tau^2 + 4 zeta_1 / k + 2 delta / (k (k - 1))) / P: tau^2 is that between prompts of the
difference, and the rest, over other answers, the sum of both models' (`components`).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.base.result import Figure, Result
from condvendi_jax.base.tables import Table, listed, percent, span
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.inference.population import Population, components_of
from condvendi_jax.results import comparison, one_prompt
from condvendi_jax.results.evaluation import Evaluation, chosen_kernels, score_name
from condvendi_jax.statistics.power import FEWEST_TESTED, MOST, POWER, Spread, unseen_variance

_ANSWERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 100)  # Up to the pilot's number.
_LEAST = 1e-4  # Relative: a smaller deviation may be rounding.
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
        """Everything as plain data, with what the pilot leaves open."""
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
        """What is found with how many prompts, what the pilot leaves open, and some sizes."""
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
            if share < 0.5 and self.best.answers == round(spread.answers):
                words = f"More than {self.best.answers} answers to each prompt may cost less: "
                words += "to plan them, take a pilot with as many"
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


@checks.outside_transformations
def plan(
    pilot: Evaluation | comparison.Comparison,
    *,
    models: Sequence[str] | None = None,
    ratio: float | None = None,
    power: float = POWER,
    level: float | None = None,
    prompts: int | None = None,
    prompt_cost: float = 0.0,
    budget: float | None = None,
) -> StudyPlan:
    """Prompts, and answers to each, for a wanted difference of Conditional-RKE, from a pilot.

    Args:
      pilot: of order 2, with at least 7 prompts, better 30: what `compare` returns; or `evaluate`,
        as if a second model had the same spread, and nothing in common with the first.
      models: two of a comparison; where None, those whose difference takes the most prompts.
      ratio: of two scores, to be found; where None, 1.1 or the smallest that a `budget` finds.
      power: how often it is to be found, in the mean over what the pilot leaves open.
      level: of the two-sided t-test; where None, 0.05 or a comparison's, divided by its pairs.
      prompts: the most that there are; any number where None.
      prompt_cost, budget: of one prompt, and the most for each model, where an answer costs one.

    Returns:
      A `StudyPlan`, with the best number of prompts for each number of answers up to the pilot's.
      Fewer take four or more answers to each prompt of the pilot, and an `Indicator` of prompts.

    Raises:
      TypeError, ValueError: the pilot lacks order 2, prompts or equal outputs; a number is wrong.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> answers = rng.integers(rng.integers(2, 9, 30), size=(10, 30)).T.reshape(-1, 1)
      >>> prompts = np.repeat(np.arange(30), 10)
      >>> pilot = cv.evaluate(answers, prompts, output_kernel=cv.Indicator(), orders=[2])
      >>> cv.plan(pilot, ratio=1.5).reached
      True
    """
    power = checks.check_number(power, name="power", above=0.5, below=1)
    if budget is not None:
        checks.check_number(budget, name="budget", above=0)
    at_least_0 = {"above": -math.ulp(0), "expected": "a number of at least 0"}
    checks.check_number(prompt_cost, name="prompt_cost", **at_least_0)
    wanted = MOST if prompts is None else prompts
    most = checks.check_count(wanted, name="prompts", minimum=FEWEST_TESTED)
    chosen, spread, pairs = _of_pilot(pilot, models)
    if level is None:
        level = (pilot.level if isinstance(pilot, comparison.Comparison) else 0.05) / pairs
    else:
        level, pairs = checks.check_number(level, name="level", above=0, below=1), 1
    if ratio is not None:
        checks.check_number(ratio, name="ratio", above=1)
    elif budget is None:
        ratio = 1.1
    ours = round(spread.answers)
    # What more answers than the pilot's would change depends on a difference of two estimates.
    numbers = [k for k in _ANSWERS if k < ours and not math.isnan(spread.of_answers)] + [ours]
    sizes = []
    for k in numbers:
        price = prompt_cost + k
        count = most if budget is None else min(int(budget / price), most)
        if ratio is not None and count > FEWEST_TESTED:
            count = spread.needed(k, power, spread.effect(ratio), level, most=count)
        if count >= FEWEST_TESTED:
            chance = ratio and spread.power(k, count, spread.effect(ratio), level)
            smallest = spread.smallest_ratio(k, count, level, power)
            sizes.append(Size(count, k, count * price, smallest, chance))
    if not sizes:
        least = FEWEST_TESTED * (prompt_cost + min(numbers))
        size = f"{FEWEST_TESTED} prompts with {min(numbers)} answers each"
        raise ValueError(f"budget: expected at least {least:g}, for {size}, received {budget!r}.")
    reached = [size for size in sizes if (size.power or 0) >= power]
    best = min(reached, key=lambda size: size.cost, default=min(sizes, key=lambda size: size.ratio))
    every = [pilot] if isinstance(pilot, Evaluation) else [*pilot.evaluations.values()]
    settings = f"{chosen_kernels(every[0].bandwidths, every[0].noun)}; seed {every[0].seed}"
    of_test, needed = (ratio, power, level, pairs, budget), None
    if ratio is not None and best in reached:
        needed = spread.needed_range(best.answers, power, spread.effect(ratio), level)
    once = [one for e in every if (one := e.one_prompt) and not one.repeated]
    twice = one_prompt.ask_twice(once, (ratio or best.ratio) - 1) if once else ""
    return StudyPlan(chosen, spread, *of_test, best, tuple(sizes), settings, needed, twice)


def _of_pilot(pilot: Any, chosen: Sequence[str] | None) -> tuple[tuple[str, ...], Spread, int]:
    """The models of a plan, how their difference varies, and the number of pairs of models."""
    if not isinstance(pilot, Evaluation | comparison.Comparison):
        expected = "expected what evaluate or compare returns for one encoder"
        raise TypeError(f"pilot: {expected}, received {type(pilot).__name__}.")
    several = isinstance(pilot, comparison.Comparison)
    evaluations = pilot.evaluations if several else {"": pilot}
    scored = {
        name: result.population
        for name, evaluation in evaluations.items()
        for result in evaluation.orders
        if result.decomposition.order == 2 and isinstance(result.population, Population)
    }
    if len(scored) < len(evaluations):
        raise ValueError("pilot: expected scores of order 2, without truncation, of all rows.")
    names = [*scored]
    if chosen is not None:
        two = isinstance(chosen, list | tuple) and [name for name in names if name in chosen]
        if not two or not len(two) == len(chosen) == 2:
            raise ValueError(f"models: expected two of {names}, received {chosen!r}.")
        names = [*chosen]
    score = "conditional" if next(iter(evaluations.values())).paired else "vendi"
    if apart := [m for m in names if evaluations[m].order(2).saturated.get(score) == "largest"]:
        outputs = f"nearly all outputs{apart[0] and f' of {listed(apart)}'} count as different"
        expected = "so that it does not tell how many there are; expected some that agree"
        cure = "give more answers to each prompt, a wider bandwidth of a Gaussian kernel"
        raise ValueError(f"pilot: {outputs}, {expected}: {cure}, or other models.")
    rows_match = several and pilot.matched != "none"
    spreads = {
        pair: _spread([scored[name] for name in pair], len(names) > 1, rows_match)
        for pair in itertools.combinations(names * 2 if len(names) == 1 else names, 2)
    }
    pair = max(spreads, key=lambda pair: spreads[pair].relative)
    return tuple(dict.fromkeys(pair)), spreads[pair], math.comb(max(len(scored), 2), 2)


def _spread(two: Sequence[Population], several: bool, rows_match: bool) -> Spread:
    """How the difference of two models varies, over prompts or, where none repeats, over rows."""
    points = [population.answers.points for population in two]
    score = "conditional" if points[0].paired else "vendi"
    similarities = [getattr(population.similarities, score) for population in two]
    answers, of_answers, of_pairs, inside = 1.0, math.nan, math.nan, math.nan
    repeated = all(population.repeated for population in two)
    drawn = all(pairs.kernels[-1].compares_equality and pairs.batches is None for pairs in points)
    matched = several and (rows_match or (repeated and drawn))
    if repeated and drawn:
        maybe = [components_of(model.answers, model.inside) for model in two]
        of_models = [parts for parts in maybe if parts is not None]
        if len(of_models) < len(two):
            raise ValueError("pilot: expected answers of equal weight to each prompt.")
        values = [  # By a number of the prompt that both models share.
            dict(zip(number.tolist(), c.similarity[model.answers.kind].tolist(), strict=True))
            for number, model, c in zip(prompts_by_model(points)[1], two, of_models, strict=True)
        ]
        answers = np.mean([c.answers.mean() for c in of_models])
        means = [np.mean([c.of_answers, c.of_pairs, c.within()], axis=1) for c in of_models]
        of_answers, of_pairs, inside = np.sum(means, axis=0)
    else:
        if any(population.influences is None for population in two):
            raise ValueError("pilot: expected errors, which say how much rows vary.")
        influences = [getattr(population.influences, score)[0] for population in two]
        values = [dict(enumerate(vector * math.sqrt(vector.size))) for vector in influences]
        answers = points[0].total / influences[0].size if repeated else 1.0
    shared = [key for key in values[0] if matched and key in values[1]]
    parts = [np.array([*model.values()]) for model in values]
    if len(shared) >= FEWEST_TESTED:
        if not math.isnan(inside):
            similarities = [float(np.mean([model[key] for key in shared])) for model in values]
        parts = [np.array([values[0][key] - values[1][key] for key in shared])]
    count = min(map(len, parts))
    if points[0].paired:  # All answers to one prompt say nothing about others.
        count = min(count, *(pairs.prompt_kinds[0] for pairs in points))
    if count < FEWEST_TESTED:
        expected = f"expected at least {FEWEST_TESTED} prompts, better 30"
        raise ValueError(f"pilot: {expected}, received {count}.")
    squares = [np.square(part - part.mean()) * part.size / (part.size - 1) for part in parts]
    variance = float(sum(square.mean() for square in squares))
    if not variance > (_LEAST * max(similarities)) ** 2:
        same = "the difference of two models is the same for all prompts"
        expected = "expected models, or prompts, that differ."
        raise ValueError(f"pilot: {same}, so that any number of them finds it; {expected}")
    error = math.sqrt(sum(square.var() / square.size for square in squares)) / variance
    error = max(error, math.sqrt(2 / (count - 1)))  # At least that of a normal variable.
    between, unseen = variance, 0.0
    if not math.isnan(inside):
        between = max(variance - inside, 0.0)
        unseen = math.hypot(*map(unseen_variance, squares))
    parts = between, max(of_answers, 0.0), max(of_pairs, 0.0)
    similarity = math.sqrt(similarities[0] * similarities[1])
    return Spread(score, similarity, *parts, error, count, float(answers), unseen)
