"""Several models in the order of one score, with a test of every difference."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Result
from condvendi_jax.results.estimate import Estimate
from condvendi_jax.results.evaluation import Limit, of_entropy, plain_order, score_name
from condvendi_jax.statistics import multiplicity
from condvendi_jax.statistics.reasons import IDENTICAL, Reason

_FEWEST_RANKED = 4  # Models: fewer are told apart in a sentence.


class Difference(NamedTuple):
    """The difference of two models in one score.

    Attributes:
      first, second: the models.
      value: the score of the first minus that of the second, in effective numbers of modes; NaN
        where nearly all answers of a model differ, so that its score is a limit.
      standard_error: of the value: of the sample and of the estimates, if any.
      p_value: of no difference, two-sided: the smallest level at which the interval excludes 0; 1
        where the values differ by no more than rounding; NaN where there is no test.
      adjusted: the same for all pairs of models at once, by Holm's step-down.
      equal_p_value: of two one-sided tests that the ratio of the scores is within the margin
        (Schuirmann, 1987), for all pairs at once, by Holm's step-down.
      detectable: the smallest ratio that four of five samples find, at the level divided by pairs.
      ratio_low, ratio_high: the interval of the ratio of the first score to the second, at the
        level of the ranking (Donner and Zou, 2012). It excludes 1 where the p-value is below it.
      reason: why there is no test; None where there is one.
    """

    first: str
    second: str
    value: float
    standard_error: float = math.nan
    p_value: float = math.nan
    adjusted: float = math.nan
    equal_p_value: float = math.nan
    detectable: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    reason: Reason | None = None

    @property
    def pair(self) -> str:
        """The two models: 'A - B'."""
        return f"{self.first} - {self.second}"

    def swapped(self) -> Self:
        """The difference of the second model and the first."""
        ends = (1 / end if end else math.inf for end in (self.ratio_high, self.ratio_low))
        swapped = dict(zip(("ratio_low", "ratio_high"), ends, strict=True))
        return self._replace(first=self.second, second=self.first, value=-self.value, **swapped)


@dataclasses.dataclass(frozen=True, repr=False)
class Ranking(Result):
    """All models by one score of one order. Prints as a line.

    Attributes:
      score: vendi, conditional, information, near: the number of different outputs for prompts
        that are near each other; or quality: the number of good and different outputs.
      order: the Renyi order; 0 of quality, which counts frequent and rare outputs alike.
      truncation: how many eigenvalues are kept, or None.
      values: the score of each model, the largest first; those whose rows nearly all count as
        different before others, in the given order, as all are where `saturated`.
      standard_errors: of each model by itself; NaN where there are none.
      intervals: (low, high) at 95% of each model that has one: of unbiased scores for the
        population, where high may be infinite; of others for samples of this size. Without errors,
        of estimated scores for the exact ones, and None where these are known.
      differences: of every pair of models, in the order of `values`.
      letters: models that share one cannot be told apart; empty for two that are not tested.
      saturated: the limit that all values have nearly reached: models are not ranked or tested.
      unbiased: whether the values are unbiased scores, compared on the scale of the similarity.
      plug_in: the score of each model's sample as the papers have it.
      level: about the family-wise rate of false differences, and of false equalities.
      margin: the ratio of scores within which models are stated to be equal.
      draws: of quality, the number of outputs among which good and different ones are counted.
      within: of near, the distance that prompts are closer than.
      winner: (low, high) of the first model, whichever that is, at the level; None without tests.
    """

    score: str
    order: float
    truncation: int | None
    values: dict[str, float]
    standard_errors: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None
    differences: tuple[Difference, ...]
    letters: dict[str, str]
    saturated: Limit | None = None
    unbiased: bool = False
    plug_in: dict[str, float] | None = None
    level: float = 0.05
    margin: float = 1.1
    draws: int | None = None
    within: float | None = None
    winner: tuple[float, float] | None = None

    @property
    def tested(self) -> bool:
        """Whether some differences were tested; those of saturated models are not."""
        p_values = [of_two.p_value for of_two in self.differences]
        return all(self.letters.values()) if not p_values else not all(map(math.isnan, p_values))

    @property
    def reasons(self) -> dict[Reason, list[str]]:
        """The pairs of models, such as 'A - B', that are not tested, by the reason."""
        reasons = dict.fromkeys(d.reason for d in self.differences if d.reason is not None)
        return {why: [d.pair for d in self.differences if d.reason == why] for why in reasons}

    def _ahead(self, name: str) -> np.ndarray:
        """`[i, j]`: a p-value of model i and j where i has the larger score, 1 elsewhere."""
        places = {model: place for place, model in enumerate(self.values)}
        p_values = np.ones((len(places), len(places)))
        for of_two in self.differences:
            pair = places[of_two.first], places[of_two.second]
            if not math.isnan(p_value := getattr(of_two, name)):
                p_values[pair[::-1] if of_two.value < 0 else pair] = p_value  # NaN: the first.
        return p_values

    @property
    def known(self) -> list[str]:
        """The models that have a number, in the order of the values."""
        return [model for model, value in self.values.items() if not math.isnan(value)]

    @property
    def rank_sets(self) -> dict[str, tuple[int, int]]:
        """The first and the last rank that each model may have: all at once, as the letters."""
        sets = multiplicity.rank_sets(self._ahead("adjusted") <= self.level)
        return dict(zip(self.values, sets, strict=True))

    @property
    def best(self) -> list[str]:
        """The models that may be the best, at the level."""
        p_values = multiplicity.best_p_values(self._ahead("p_value") / 2)
        known, sets = self.known, zip(self.rank_sets.items(), p_values, strict=True)
        return [m for (m, (first, _)), p in sets if first == 1 and p > self.level and m in known]

    @property
    def name(self) -> str:
        """The score in words: 'Conditional-Vendi', 'RKE', 'Vendi, t = 50'."""
        if self.draws is not None:
            return f"good and different, of {self.draws:,} draws"
        if self.within is not None:
            return f"different outputs for prompts closer than {self.within:.3g}"
        return score_name(self.score, self.order, self.truncation)

    @property
    def equal(self) -> str:
        """What equality means, in words: 'equal within 10%'."""
        return f"equal within {tables.percent(self.margin)}"

    def difference(self, first: str, second: str) -> Difference:
        """The difference of two models, in that order; KeyError where they were not compared."""
        both = {d[:2]: d for d in (*self.differences, *map(Difference.swapped, self.differences))}
        if (first, second) in both:
            return both[first, second]
        raise KeyError(f"{first!r} and {second!r} were not compared; there are {[*self.values]}.")

    def ratio_in_words(self, difference: Difference) -> str:
        """The ratio of two scores with its interval: '1.4 [1.1, 1.9]'; '-' if not tested."""
        if math.isnan(difference.ratio_low):
            return "-"
        ratio = self.values[difference.first] / self.values[difference.second]
        return tables.with_interval(ratio, (difference.ratio_low, difference.ratio_high))

    def as_dict(self) -> dict[str, Any]:
        known = {m: self.estimate(m).ends for m in self.values} if self.intervals else {}
        intervals = {m: ends and [*map(plain_order, ends)] for m, ends in known.items()} or None
        shown = {"order": plain_order(self.order), "intervals": intervals, "best": self.best}
        shown["winner"] = self.winner and [plain_order(end) for end in self.winner]
        return super().as_dict() | shown | {"rank_sets": self.rank_sets}

    def estimate(self, model: str) -> Estimate:
        """The score of a model with its error and interval."""
        ends = (self.intervals or {}).get(model)
        return Estimate(self.values[model], self.standard_errors[model], ends)

    def columns(self, *, plug_in: bool) -> dict[str, dict[str, str]]:
        """The columns of a table: a cell for each model of the score, its plug-in and letters."""
        columns = {self.name: {model: str(self.estimate(model)) for model in self.values}}
        if plug_in and self.unbiased and self.plug_in:
            columns["plug-in"] = {model: f"{x:.4g}" for model, x in self.plug_in.items()}
        lettered = len(self.values) > 1 and any(self.letters.values())
        return columns | ({"alike": self.letters} if lettered else {})

    def lines(self) -> list[dict[str, Any]]:
        """A line for each model."""
        start, lines = {"score": self.score} | of_entropy(self), []
        for model, ranks in self.rank_sets.items():
            places = dict(zip(("first_rank", "last_rank"), ranks, strict=True))
            line = start | {"model": model} | self.estimate(model).as_dict()
            lines.append(line | {"letters": self.letters[model]} | places)
        return lines

    def pair_lines(self) -> list[dict[str, Any]]:
        """A line for each difference of two models."""
        names, start = {"adjusted": "adjusted_p_value"}, {"score": self.score} | of_entropy(self)
        rows = [{names.get(k, k): v for k, v in d._asdict().items()} for d in self.differences]
        return [start | row for row in rows]

    def parts(self) -> list[str]:
        """The models in descending order, and which of them differ: 'A > B >= C'."""
        if self.saturated:
            why = "equal up to rounding" if self.saturated == "equal" else "saturated"
            same = {*self.reasons} == {IDENTICAL}
            words = IDENTICAL if same else f"{why}: neither ranked nor tested"
            return [f"{', '.join(self.values)} ({words})"]
        adjusted = {d[:2]: d.adjusted for d in self.differences if {*d[:2]} <= {*self.known}}
        states = {two: p if math.isnan(p) else p <= self.level for two, p in adjusted.items()}
        words = [order_in_words(self.known, states)]
        if none := [model for model in self.values if model not in self.known]:
            words.append(f"no number for {tables.listed(none)}")
        return ["; ".join(filter(None, words))]

    @property
    def states(self) -> set[str]:
        """Whether pairs of models are told 'apart', are 'equal' within the margin, or neither."""
        tests = ((d.adjusted, d.equal_p_value) for d in self.differences)
        told = {(apart <= self.level, equal <= self.level) for apart, equal in tests}
        return {"apart" if apart else "equal" if equal else "neither" for apart, equal in told}

    def equality(self) -> str:
        """Which models are equal within the margin, which are not told apart, and what would be."""
        if not self.tested or not self.differences:
            return ""
        within = [d for d in self.differences if d.equal_p_value <= self.level]
        alike = [d for d in self.differences if d.adjusted > self.level and d not in within]
        kinds = {self.equal: within, f"neither different nor {self.equal}": alike}
        lines = [f"{k}: {tables.listed([d.pair for d in two])}" for k, two in kinds.items() if two]
        return tables.capitalized("; ".join([*lines, *self._missed([*within, *alike])]))

    def _missed(self, differences: Iterable[Difference]) -> list[str]:
        ratios = [d.detectable for d in differences if math.isfinite(d.detectable)]
        if not ratios:
            return []
        least, *most = dict.fromkeys(tables.percent(ratio) for ratio in (min(ratios), max(ratios)))
        pairs = f" (for some pairs, below {most[0]})" if most else ""
        return [f"this sample would miss differences below {least}{pairs}"]

    def ranks(self) -> str:
        """The ranks that four models or more may have, and the interval of the first."""
        count = len(self.values)
        if self.winner is None or count < _FEWEST_RANKED:
            return ""
        sets = {model: ends for model, ends in self.rank_sets.items() if ends != (1, count)}
        ranks = [f"{model} ({tables.span(ends)})" for model, ends in sets.items()] or ["all open"]
        best = ("one of " if len(self.best) > 1 else "") + tables.listed(self.best)
        first, value = next(iter(self.values.items()))
        largest = tables.with_interval(value, self.winner)
        words = f"Ranks at {100 - 100 * self.level:.4g}%: {tables.listed(ranks)}; the best: {best}"
        return f"{words}; {first}, as the largest of {count}: {largest}"

    def verdict(self, turning: Sequence[str] = ()) -> str:
        """Who leads, that no difference is shown, or why none is tested; and pairs that turn."""
        if not self.tested or not self.differences:
            reasons = tables.listed([*self.reasons]) or "nothing was tested"
            return f"These data cannot tell the models apart: {reasons}."
        if "apart" in self.states:
            ahead = [model for model in self.known if self.rank_sets[model][0] == 1]
            tested = all(d.reason is None for d in self.differences if {*d[:2]} <= {*ahead})
            apart = "cannot be told apart" if tested else "not all of them are compared"
            words = f"{tables.listed(ahead)} lead, and {apart}"
            if len(ahead) == 1:
                others = [*self.values.keys() - {*ahead}]
                whom = others[0] if len(others) == 1 else "every other model"
                words = f"{ahead[0]} leads: it is more diverse than {whom}"
                ratio, known = self.ratio_in_words(self.differences[0]), self.values[ahead[0]]
                if len(others) == 1 and math.isfinite(known) and "[" in ratio:
                    both = f"{known:.4g} against {self.values[whom]:.4g}"
                    how = f"by {self.name}"
                    if self.score == "near":
                        how = f"for {self.name.partition(' for ')[2]}"
                    words = f"{ahead[0]} leads: it is {ratio} times as diverse as {whom}"
                    words += f", {how} ({both})"
                if self.rank_sets[ahead[0]] != (1, 1):
                    words = f"{ahead[0]} leads, but is not told apart from every other model"
        elif self.states == {"equal"}:
            words = f"The models are {self.equal}"
        else:
            words = ": ".join(["No difference is shown", *self._missed(self.differences)])
        pairs = turning and f" The order changes with the bandwidth ({tables.listed(turning)})."
        return f"{words}.{pairs or ''}"

    def in_full(self) -> str:
        """The line of `str`, `equality` and `ranks`."""
        return ". ".join(filter(None, [str(self), self.equality(), self.ranks()]))


def order_in_words(names: Sequence[str], states: Mapping[tuple[str, str], float]) -> str:
    """Models in descending order, and which of them differ: 'A > B >= C'.

    The state of two models, in this order, is 1 if their difference is significant, 0 if it is not,
    NaN if it was not tested. Where a chain would be wrong about two models, pairs are listed.
    """
    known = {pair: -1 if math.isnan(state) else int(state) for pair, state in states.items()}
    links = [known[pair] for pair in itertools.pairwise(names)]
    places = {name: place for place, name in enumerate(names)}
    untested = [f"{one} - {two}" for (one, two), state in known.items() if state < 0]
    if untested and len(untested) == len(states):
        return ", ".join(names) + " (in descending order; not tested)"
    notes = [f"not tested: {tables.listed(untested)}"] if untested else []
    if all(state == max(links[places[a] : places[b]]) for (a, b), state in known.items()):
        if {*links} <= {0}:
            return ", ".join(names) + (" (no significant difference)" if links else "")
        signs = [{1: " > ", 0: " >= ", -1: ", "}[link] for link in links]
        words = "".join(map("".join, zip(names, [*signs, ""], strict=True)))
        notes = [">=: no significant difference", *notes] if 0 in links else notes
        return words + (f" ({'; '.join(notes)})" if notes else "")
    told = [f"{one} > {two}" for (one, two), state in states.items() if state == 1]
    notes = [f"significant: {tables.listed(told) if told else 'none'}", *notes]
    return f"{', '.join(names)} (in descending order; {'; '.join(notes)})"
