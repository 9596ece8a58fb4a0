"""The result of `compare`: several models side by side."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from condvendi_jax.base import tables
from condvendi_jax.base.result import Figure, Result, plain
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.results import evaluation as evaluations
from condvendi_jax.results.between import Between
from condvendi_jax.results.estimate import Quality
from condvendi_jax.results.evaluation import Advice, Evaluation
from condvendi_jax.results.one_prompt import Bar, Bars, notes_of
from condvendi_jax.results.profile import Profile
from condvendi_jax.results.ranking import Ranking
from condvendi_jax.statistics.multiplicity import holm
from condvendi_jax.statistics.power import FEWEST_TESTED
from condvendi_jax.statistics.reasons import Reason, Saturated, first

MATCHED = {"rows": "matched row by row", "prompts": "matched by equal prompts"}
MATCHED["labels"] = "matched by the labels of their groups"
#: What the column of letters says, of the score before it.
ALIKE = "alike: models that share a letter cannot be told apart by the score to its left"
MATCHED["none"] = "not matched: errors of differences are those of independent samples"


class Design(NamedTuple):
    """The number of prompts, and of answers to each; if no prompt repeats, prompts are rows."""

    prompts: int
    answers: int

    def __str__(self) -> str:
        words = f"{self.prompts:,} prompts with {self.answers:,} answers each"
        return f"{self.prompts:,} outputs" if self.answers == 1 else words


class SharedPrompts(NamedTuple):
    """How many prompts models share, where they do not all have the same ones."""

    models: dict[str, int]  # The prompts of each model.
    all: int  # Those that all models have.
    pairs: dict[tuple[str, str], int]  # Those that each two models have.

    def enough(self, count: int, models: Sequence[str]) -> bool:
        """Whether models are compared on so many prompts: 7, or all that one of them has."""
        return count >= min(FEWEST_TESTED, *(self.models[name] for name in models))

    @property
    def one_set(self) -> bool:
        """Whether all models are scored and compared on the prompts that all have."""
        return self.reason is None and max(self.pairs.values()) == self.all

    @property
    def reason(self) -> Reason | None:
        """Why some models are not compared."""
        few = {two: count for two, count in self.pairs.items() if not self.enough(count, two)}
        if not few:
            return None
        start = f"{self._in_words(few)} share fewer than {FEWEST_TESTED} prompts; pass"
        mend = "one_population=True (--one_population) if the prompts of all models are samples of"
        return Reason(f"{start} {mend} one population")

    @property
    def apart(self) -> Reason | None:
        """Why not all models are compared at once; None where they can be."""
        if self.enough(self.all, [*self.models]):
            return None
        return self.reason or Reason(f"all models together share {self.all:,} prompts")

    def __str__(self) -> str:
        if self.one_set:
            rest = {name: count - self.all for name, count in self.models.items()}
            left = tables.listed([f"{count:,} ({name})" for name, count in rest.items() if count])
            words = f"On the {self.all:,} prompts that all models answer; other prompts left out"
            return f"{words}: {left}"
        numbers = tables.listed([f"{count:,} ({name})" for name, count in self.models.items()])
        if not max(self.pairs.values()):
            return f"Prompts differ, so scores do not show which model is more diverse: {numbers}"
        two = f"two models are compared on those that both answer: {self._in_words(self.pairs)}"
        return f"Prompts differ: scores are of each model's own, {numbers}; {two}"

    @staticmethod
    def _in_words(pairs: Mapping[tuple[str, str], int]) -> str:
        return tables.listed([f"{a} and {b} ({count:,})" for (a, b), count in pairs.items()])

    def as_dict(self) -> dict[str, Any]:
        pairs = [[*two, count] for two, count in self.pairs.items()]
        return {"models": self.models, "all": self.all, "pairs": pairs, "one_set": self.one_set}


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Models side by side. Prints as tables; `condvendi_jax.report` writes it for others.

    Attributes:
      evaluations: the scores of each model by its name, all under the same bandwidths.
      rankings: one for each order and score.
      matched: how outputs of models belong together: 'rows', 'prompts', 'labels' or 'none'.
      level: about the family-wise rate of false differences that the letters allow.
      between: how many models are different; None of one, and if order 2 is not of all pairs.
      profile: order 2 over a ladder of bandwidths; None where it is not computed (`compare`).
      pairs: the data of each model, with rows of weight zero; for `report.html`.
      matching: advice on prompts that models do not share, and on answers that they do.
      without: the order of models without texts that answer many prompts; '' if as with them.
      at: the design at which models of other designs are scored; None where none is needed.
      shared_prompts: how many prompts models share; None if they are the same or one population.
      failed: why optional parts, such as 'profile', could not be computed, by name.
      read: which outputs and prompts these are, and what was cut from them; '' of arrays.
    """

    evaluations: dict[str, Evaluation]
    rankings: tuple[Ranking, ...]
    matched: str
    level: float
    between: Between | None = None
    profile: Profile | None = None
    pairs: Mapping[str, Pairs] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    at: Design | None = None
    shared_prompts: SharedPrompts | None = None
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    without: str = ""
    read: str = ""
    matching: tuple[Advice, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order in which they were given."""
        return tuple(self.evaluations)

    @property
    def n(self) -> dict[str, int]:
        """The number of outputs of each model."""
        return {name: evaluation.n for name, evaluation in self.evaluations.items()}

    @property
    def first(self) -> Evaluation:
        """The evaluation of the first model: what was chosen is the same for all."""
        return next(iter(self.evaluations.values()))

    @property
    def bandwidths(self) -> Mapping[str, RuledBandwidth]:
        """The bandwidths of outputs and prompts, which all models share."""
        return self.first.bandwidths

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The advice on several models, each code once, with the evidence of every model."""
        codes: dict[str, dict[str, Advice]] = {}
        for model, evaluation in self.evaluations.items():
            for item in evaluation.advice:
                codes.setdefault(item.code, {})[model] = item
        merged = [*self.matching]
        for code, by_model in codes.items():
            first = next(iter(by_model.values()))
            if len(by_model) < len(self.models) or len({a.evidence for a in by_model.values()}) > 1:
                words = "; ".join(f"{model}: {item.evidence}" for model, item in by_model.items())
                first = first._replace(evidence=words)
            if code == evaluations.DOUBT and self.without:
                first = first._replace(remedy=f"{first.remedy}. {self.without}")
            merged.append(first)
        return tuple(merged)

    def ranking(self, score: str, order: float) -> Ranking:
        """The models by one score; KeyError where it was not computed."""
        for ranking in self.rankings:
            if (ranking.score, ranking.order) == (score, order):
                return ranking
        computed = ", ".join(f"({r.score!r}, {r.order:g})" for r in self.rankings)
        raise KeyError(f"({score!r}, {order:g}): computed were {computed}.")

    @property
    def qualities(self) -> dict[str, Quality]:
        """How many outputs of each model are good, and good and different; empty if not known."""
        return {name: result.quality for name, result in self.evaluations.items() if result.quality}

    def as_dict(self) -> dict[str, Any]:
        names = ("n", "matched", "read", "level", "at", "shared_prompts", "advice", "rankings")
        shown = {name: getattr(self, name) for name in (*names, "between", "profile", "failed")}
        shown["errors_by"] = [scored.errors_by for scored in self.first.orders]
        shown |= {"untested": self.untested(), "quality": self.qualities or None}
        shown["differ"] = self.bars.as_dict()
        for name in ("distinct_prompts", "one_prompt"):
            shown[name] = {model: getattr(e, name) for model, e in self.evaluations.items()}
        known = {model: one for model, one in shown["one_prompt"].items() if one}
        return self.first.choices() | plain(shown | {"one_prompt": known})

    def record(self, **about: Any) -> dict[str, dict[str, Any]]:
        """The record of each model, of the prompts it is scored on; as `Evaluation.record`."""
        return {name: e.record(name, **about) for name, e in self.evaluations.items()}

    def scores(self) -> tables.Table:
        """A row for each model: its scores with intervals, plug-in scores and letters."""
        columns = self._to_one_prompt
        for ranking in self.rankings:
            columns += ranking.columns(plug_in=True).items()
        return self._table(columns)

    def _table(self, columns: Sequence[tuple[str, Mapping[str, str]]]) -> tables.Table:
        """Models and their n: by the main score if it was tested, else as they were given."""
        models = self.main[0].values if self.main[0].tested else self.models
        rows = [[m, f"{self.n[m]:,}", *(cells.get(m, "-") for _, cells in columns)] for m in models]
        return tables.Table(["model", "n", *(name for name, _ in columns)], rows)

    @property
    def _to_one_prompt(self) -> list[tuple[str, dict[str, str]]]:
        """A column on the outputs to one prompt, unless conditional says it."""
        every = {m: e.one_prompt for m, e in self.evaluations.items() if not e.answers}
        known = {model: one.in_words() for model, one in every.items() if one}
        return [("to one prompt", known)] if known else []

    def differences(self) -> tables.Table:
        """A row for each score and pair of models."""

        def p(value: float) -> str:  # Very small ones depend on tails that are uncertain.
            return "<0.001" if value < 0.001 else f"{value:.2g}".replace("nan", "-")

        rows = [
            [ranking.name, f"{of_two.first} - {of_two.second}"]
            + ["-" if math.isnan(x) else f"{x:.3g}" for x in of_two[2:4]]
            + [ranking.ratio_in_words(of_two)]
            + [*map(p, of_two[4:7]), tables.percent(of_two.detectable)]
            for ranking in self.rankings
            for of_two in ranking.differences
        ]
        heading = ["score", "models", "difference", "standard error", "ratio", "p", "adjusted p"]
        return tables.Table([*heading, f"{self.rankings[0].equal}, p", "missed below"], rows)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each score and model, `bars` too, and for the number of different models."""
        lines = [line for ranking in self.rankings for line in ranking.lines()]
        blank = dict.fromkeys(lines[0], None)
        if not self.bars.by:  # Else it is a score, which has lines.
            start = blank | {"score": "differ", "order": 2}
            lines += [start | line for line in self.bars.as_dict()["models"]]
        if self.between:
            number = {"value": self.between.number, "standard_error": self.between.standard_error}
            number |= {"score": "different_models", "order": 2}
            lines.append(blank | number)
        return lines

    def pair_lines(self) -> list[dict[str, Any]]:
        """A line for each difference of two models by each score, and for each overlap."""
        lines = [line for ranking in self.rankings for line in ranking.pair_lines()]
        for overlap in self.between.lines() if self.between else ():
            lines.append(dict.fromkeys(lines[0], None) | {"score": "overlap", "order": 2} | overlap)
        return lines

    @property
    def reason(self) -> Reason | None:
        """Why some differences are not tested; None where all are, but for saturated scores."""
        every = [reason for ranking in self.rankings for reason in ranking.reasons]
        return first([reason for reason in every if not isinstance(reason, Saturated)])

    def untested(self, *, saturated: bool = True) -> list[str]:
        """Which differences are not tested, and why; or without those of `saturated` scores."""
        names: dict[str, list[str]] = {}
        for ranking in self.rankings:
            for reason, pairs in ranking.reasons.items():
                some = len(pairs) < len(ranking.differences)
                words = reason + (f" ({tables.listed(sorted(pairs))})" if some else "")
                if saturated or not isinstance(reason, Saturated):
                    names.setdefault(words, []).append(ranking.name)
        lines = []
        for words, scores in names.items():
            some = len(scores) < len(self.rankings)
            start = f"no test of {tables.listed(scores)}" if some else "differences are not tested"
            lines.append(f"{start}: {words}")
        return lines

    def notes(self) -> list[str]:
        """The bandwidths, what the errors and letters say, and what was not tested."""
        notes = [str(self.shared_prompts)] if self.shared_prompts else []
        notes += evaluations.kernel_notes(self.first)
        notes += evaluations.unbiased_notes(self.evaluations.values())
        noun = self.first.noun
        words = f"numbers of {noun} differ: scores that grow with them are those of"
        notes += [f"{words} {self.at}"] if self.at else []
        growing = [o.name for o in self.first.orders if o.decomposition.order < 2]
        if growing and len(self.models) > 1:
            words = f"can rank a model with many rare {noun} too low"
            notes.append(f"order {', '.join(growing)} {words}")
        known = {name: one for name, e in self.evaluations.items() if (one := e.one_prompt)}
        notes += notes_of(known, noun)
        notes += [item.note() for item in self.advice]
        notes += [f"{name}: {quality}" for name, quality in self.qualities.items()]
        notes += evaluations.error_notes(self.evaluations.values())
        notes += evaluations.not_computed(self.failed)
        if len(self.models) == 1:
            return notes
        if any(ranking.tested for ranking in self.rankings):
            notes += [
                f"models that share a letter cannot be told apart at the level {self.level:g}, "
                "which does not show that they are equal (Holm, over all pairs within a score)",
                "equal: two one-sided tests, also by Holm; missed below: the sample would miss a "
                "smaller ratio of scores more often than once in five samples",
            ]
        notes += self.untested()
        if self.profile and self.profile.reason is None:
            notes.append(f"over the bandwidths: {self.profile.joint_confidence()}")
        if self.between:
            notes += self.between.notes()
        notes += evaluations.read_lines(self.read)
        return [*notes, f"{noun} of different models are {MATCHED[self.matched]}"]

    @property
    def main(self) -> list[Ranking]:
        """The rankings of a short table: of near prompts, Conditional, outputs alone, quality."""
        name = "conditional" if self.first.paired else "vendi"
        main = [ranking for ranking in self.rankings if ranking.score == "near"]
        by_order = sorted(self.rankings, key=lambda ranking: ranking.order != 2)
        main += [ranking for ranking in by_order if ranking.score == name]
        main += [r for r in self.rankings if r.score == "vendi" and r not in main][:1]
        return main + [r for r in self.rankings if r.score == "quality"]

    @property
    def bars(self) -> Bars:
        """How many outputs of each model differ, in the order of the main ranking."""
        bars = evaluations.bars(self.evaluations)
        by_name, letters = {bar.model: bar for bar in bars.models}, self.main[0].letters
        if bars.by and self.at:  # Of unequal numbers of answers: scores at those of all.
            for name in by_name:
                score = self.main[0].estimate(name)
                low, high = score.ends or (math.nan, math.nan)
                by_name[name] = Bar(name, score.value, low, high)
        ranked = (by_name[model]._replace(letters=marks) for model, marks in letters.items())
        return bars._replace(models=tuple(ranked))

    def verdict(self) -> str:
        """A sentence: who leads, that no difference is shown, or why none is tested."""
        return self.main[0].verdict(self.profile.turning if self.profile else ())

    def plot(self) -> Figure:
        """How many outputs of each model differ, with 95% intervals: a forest plot."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        title = self.verdict() if len(self.models) > 1 else ""
        return plots.forest(self.bars, title, self.bandwidths["outputs"].bandwidth)

    def headline(self) -> list[str]:
        """How many outputs differ and, where prompts do, of which prompts that is."""
        shared = [f"{self.shared_prompts}."] if self.shared_prompts else []
        return [evaluations.meaning(self.evaluations, self.bars), *shared]

    def parts(self) -> list[str | tables.Table]:
        """What to mend, the scores in a sentence and as a table, who leads, and the bandwidths."""
        lines: list[str | tables.Table] = [*evaluations.warning_lines(self.advice)]
        lines += self.headline()
        main, several = self.main[0], len(self.models) > 1
        if several:
            lines += [self.verdict(), f"{tables.capitalized(main.name)}: {main}"]
        lines += map(tables.capitalized, self.untested(saturated=False) if main.tested else ())
        if len(main.states) > 1:  # Else the verdict says all.
            lines += filter(None, [main.equality(), main.ranks()])
        rated = [ranking for ranking in self.main if ranking.score == "quality" and several]
        lines += [f"{tables.capitalized(ranking.name)}: {ranking}" for ranking in rated]
        if left_out := {m: q.left_out for m, q in self.qualities.items() if q.left_out}:
            start = f"Prompts with too few {self.first.noun} for the draws, left out of good"
            counts = [f"{count:,} ({m})" for m, count in left_out.items()]
            lines.append(f"{start}: {tables.listed(counts)}")
        lines += ["", self.summary(), "", *evaluations.about_rows(self.evaluations.values())]
        covered = evaluations.of_kernels(evaluations.INTERVALS, self.bandwidths)
        said = {covered: not all(map(math.isnan, main.standard_errors.values()))}
        counted = self.bars.what.startswith("effectively")
        said |= {evaluations.DIFFER.format(self.first.noun): counted}
        said |= {f"RKE: {evaluations.UNBIASED}": any(ranking.unbiased for ranking in self.main)}
        said |= {ALIKE: several and any(any(r.letters.values()) for r in self.main)}
        notes = [note for note, shown in said.items() if shown]
        failed = evaluations.not_computed(self.failed)
        read = evaluations.read_lines(self.read and f"{self.read}; {self._matching}")
        return [*lines, "; ".join(notes), *failed, *read, evaluations.MORE]

    @property
    def _matching(self) -> str:
        words = f"models {MATCHED[self.matched].partition(':')[0]}"
        numbers = [e.distinct_prompts or 0 for e in self.evaluations.values()]
        count = min(numbers)
        if self.shared_prompts:
            count, numbers = self.shared_prompts.all, [*self.shared_prompts.models.values()]
        known = self.matched in ("rows", "prompts") and max(numbers)
        return f"{words}, {count:,} of {max(numbers):,} prompts" if known else words

    def summary(self) -> tables.Table:
        """A short table: the main scores and, where prompts repeat, how many answers differ."""
        columns, main = [], self.main[0]
        given = evaluations.counted_answers(self.evaluations)
        if given and main.order == 2 and main.unbiased:
            differ = {m: str(e.order(2).given) for m, e in self.evaluations.items()}
            columns.append((f"differ, of {given}", differ))
        columns += self._to_one_prompt
        if self.qualities:
            columns.append(("share good", {m: str(q.share) for m, q in self.qualities.items()}))
        for ranking in self.main:
            shown = ranking.columns(plug_in=False)
            lettered = any(name == "alike" for name, _ in columns)
            columns += [item for item in shown.items() if not (lettered and item[0] == "alike")]
        return self._table(columns)

    def details(self) -> str:
        """The tables, and below them what their numbers mean."""
        rankings = [f"{ranking.name}: {ranking.in_full()}" for ranking in self.rankings]
        said = [*self.headline(), *([self.verdict()] if len(self.models) > 1 else [])]
        parts = [said, [str(self.scores())], rankings]
        if self.profile:
            parts.append([self.profile.heading(), *self.profile.leads()])
        if (differences := self.differences()).rows:
            parts.append([str(differences)])
        if self.between:
            parts.append([self.between.headline(), str(self.between.table())])
        return "\n\n".join("\n".join(part) for part in [*parts, self.notes()] if part)


class Agreement(NamedTuple):
    """Whether one of two models leads under all encoders: 'A > B', or who leads under which.

    A sign is 1 where the comparison under an encoder shows that the first leads, -1 the second. The
    p-value is the largest of all, or 1 if encoders put different models ahead; `adjusted` is by
    Holm, over pairs. Both are NaN where an encoder has no test, for the `reason`.
    """

    first: str
    second: str
    signs: dict[str, int]
    reason: Reason | None
    p_value: float = math.nan
    adjusted: float = math.nan
    holds: bool = False

    def __str__(self) -> str:
        shown = {name: " > ".join(self[:2][::sign]) for name, sign in self.signs.items() if sign}
        if self.holds:
            return next(iter(shown.values()))
        told = [f"{order} under {n}{' only' * (len(shown) == 1)}" for n, order in shown.items()]
        if abs(sum(self.signs.values())) == len(self.signs):  # By Holm, for other pairs.
            told.append("not for all pairs at once")
        told += [f"not tested: {self.reason}"] if self.reason else []
        return f"{self.first} - {self.second} ({'; '.join(told) or 'no significant difference'})"


@dataclasses.dataclass(frozen=True, repr=False)
class Consensus(Result):
    """Models under several encoders or similarities, and which lead under all. Prints as lines.

    One leads under all where every test shows it: an intersection-union test (Berger, 1982).
    """

    comparisons: Mapping[str, Comparison]
    orders: dict[str, str]  # Of the models, in words.
    pairs: tuple[Agreement, ...]  # Every two models, by Conditional-RKE or, without prompts, RKE.
    level: float  # The largest rate of studies with a false statement under all.

    @classmethod
    def of(cls, comparisons: Mapping[str, Comparison]) -> Self:
        """What holds under all comparisons, which are of the same models and level."""
        # Not every encoder may have a ranking of near prompts.
        main = {n: next(r for r in c.main if r.score != "near") for n, c in comparisons.items()}
        (one, *_), pairs, p_values = main.values(), list[Agreement](), list[float]()
        for two in itertools.combinations(one.values, 2):
            tests = {name: ranking.difference(*two) for name, ranking in main.items()}
            # A NaN, of a score without a number, has the sign of the difference, too.
            ways = {name: int(math.copysign(1, d.value)) for name, d in tests.items()}
            signs = {n: ways[n] * (d.adjusted <= one.level) for n, d in tests.items()}
            pairs.append(Agreement(*two, signs, first([d.reason for d in tests.values()])))
            known = [d.p_value for d in tests.values() if d.reason is None]
            sure = len(known) == len(main) and len({*ways.values()}) == 1
            # A pair that one encoder tests counts among the pairs, as it does there.
            p_values.append(max(known) if sure else 1.0 if known else math.nan)
        for k, (p, adjusted) in enumerate(zip(p_values, holm(p_values), strict=True)):
            if pairs[k].reason is None:
                tested = {"p_value": p, "adjusted": adjusted, "holds": adjusted <= one.level}
                pairs[k] = pairs[k]._replace(**tested)
        orders = {name: f"{ranking.name}: {ranking}" for name, ranking in main.items()}
        return cls(comparisons, orders, tuple(pairs), one.level)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each two models and each encoder, with the sign under it."""
        every = [(pair, *item) for pair in self.pairs for item in pair.signs.items()]
        return [{"under": name, **p._asdict(), "signs": sign} for p, name, sign in every]

    def parts(self) -> list[str]:
        advice = dict.fromkeys(item for c in self.comparisons.values() for item in c.advice)
        told, rest = ([str(p) for p in self.pairs if p.holds == holds] for holds in (True, False))
        words = f"Under all {len(self.comparisons)}: {tables.listed(told or ['none'])}"
        words += f"; not under all: {tables.listed(rest)}" if rest else ""
        held = f"A statement under all is false in at most about {100 * self.level:.3g}% of studies"
        orders = (f"{name}: {order}" for name, order in self.orders.items())
        return [*evaluations.warning_lines([*advice]), *orders, words, *[held] * bool(told)]
