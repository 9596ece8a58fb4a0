"""The result of `evaluate`: the scores of one model with their errors."""

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from condvendi_jax.base import tables
from condvendi_jax.base.result import Figure, Result, plain
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.entropies import Decomposition, PerScore
from condvendi_jax.results.estimate import Estimate, Quality
from condvendi_jax.results.one_prompt import Bar, Bars, OnePrompt, in_a_sentence, notes_of
from condvendi_jax.statistics.reasons import SPLIT, in_words

#: Where all scores of some models are: 1, the number of rows, or one value.
Limit = Literal["smallest", "largest", "equal"]
HEADINGS = {"vendi": "total", "conditional": "conditional", "information": "information"}
ERRORS_COVER = "one standard error (sampling only, at these bandwidths)"
INTERVALS = "[low, high]: 95%, over other samples at these bandwidths"
DIFFER = "effectively: as many {}, all equally common, would agree as often"
_ORDERS = {1.0: "1 (Vendi)", 2.0: "2 (RKE)"}
_ROUNDED = 0.01  # Rounding may move a score by this share of it without a note.


def score_names(bandwidths: Mapping[str, RuledBandwidth]) -> tuple[str, ...]:
    """Vendi without prompts; conditional if outputs are compared within prompts only; else all."""
    if "prompts" not in bandwidths:
        return ("vendi",)
    return ("conditional",) if bandwidths["outputs"].within_prompts else PerScore._fields


def score_name(score: str, order: float, truncation: int | None) -> str:
    """A score in words: 'Conditional-Vendi', 'RKE', 'Vendi, t = 50'."""
    kind = "RKE" if order == 2 else "Vendi"
    prefix = "" if score == "vendi" else f"{score.capitalize()}-"
    of_order = "" if order in (1, 2) else f" of order {order:g}"
    return prefix + kind + of_order + _cut(truncation)


def _cut(truncation: int | None) -> str:
    return "" if truncation is None else f", t = {truncation:,}"


def plain_order(order: float) -> float | str:
    """An order, or an end of an interval, for JSON, which has no infinity."""
    return "inf" if math.isinf(order) else int(order) if float(order).is_integer() else order


def of_entropy(scored: Any) -> dict[str, Any]:
    """The order and the truncation of scores, for JSON."""
    return {"order": plain_order(scored.order), "truncation": scored.truncation}


class ErrorsBy(NamedTuple):
    """The way in which standard errors were computed. `str` gives it in words."""

    method: Literal["influences", "deletions"]  # Of rows, or of groups of them.
    groups: int  # The number of groups of rows that count as independent.
    units: str  # What a group is: 'rows', 'rows of one prompt' or 'given labels'.
    reason: str | None = None  # Why groups were deleted instead, or influences give no error (NaN).

    def __str__(self) -> str:
        units = in_words(self.units)
        if self.method == "deletions":
            return f"from leaving out {self.groups} groups of {units}"
        words = f"from the influences of {self.groups:,} {units}"
        return words if self.reason is None else f"{words}, but withheld: {self.reason}"


@dataclasses.dataclass(frozen=True)
class ScoredOrder:
    """The scores of one order.

    Attributes:
      decomposition: the scores, and how they were computed.
      errors: an `Error` for each score, of the sample, at these kernels, with the influences of
        groups of rows `[replicates, g]`; None where they were not computed.
      saturated: by name, the limit (`saturation.limits_of`) that a score is near.
      errors_by: how the standard errors were computed.
      largest: the largest score that the weights of the rows allow; n where they are equal.
      slope: how much each score grew with the last doubling of the answers to each prompt, or of
        the rows where no prompt repeats; None where it was not computed.
      population: at order 2 without truncation, of all pairs of rows, the unbiased scores with
        their errors and intervals (`inference.population.Population`); None elsewhere.
    """

    decomposition: Decomposition
    errors: PerScore | None
    saturated: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    errors_by: ErrorsBy | None = None
    largest: float = math.nan
    slope: PerScore | None = None
    population: Any = None

    @property
    def standard_errors(self) -> PerScore | None:
        """Of the sample, at these kernels; None where they were not computed."""
        return self.errors and self.errors.map(lambda error: error.standard_error)

    @property
    def influences(self) -> PerScore | None:
        """Of each group of rows on each score, `[replicates, g]`."""
        return self.errors and self.errors.map(lambda error: error.influences)

    @property
    def unbiased(self) -> PerScore | None:
        """The unbiased scores of order 2, which do not depend on n: see `decompose`."""
        return self.population and self.population.values

    @property
    def name(self) -> str:
        """The order for a table: '1 (Vendi)', 'inf, t = 50'."""
        order = self.decomposition.order
        return _ORDERS.get(order, f"{order:g}") + _cut(self.decomposition.truncation)

    def estimate(self, name: str, *, unbiased: bool) -> Estimate:
        """A score with its error and interval; the plug-in score unless `unbiased`."""
        scores, result = self.population, self.decomposition
        if unbiased and scores is not None:
            error, value = scores.errors and getattr(scores.errors, name), scores.values
            return Estimate.of(error) if error else Estimate(getattr(value, name), math.nan, None)
        value, ends = float(getattr(result.scores, name)), None
        if result.estimation:
            ends = tuple(map(float, getattr(result.intervals, name)))
        if self.errors is None:
            return Estimate(value, math.nan, ends)
        error = dataclasses.replace(getattr(self.errors, name), value=value)
        return Estimate.of(error.with_noise(ends), *self.possible(name))

    def possible(self, name: str) -> tuple[float, float]:
        """The least and the largest value of a plug-in score."""
        whole, most = self.decomposition, self.largest
        if whole.truncation is not None and name != "vendi":  # A joint entropy may be the smaller.
            return 1 / most, most**2 if name == "information" else most
        return float(name != "information" or whole.order == 1), most

    @property
    def given(self) -> Estimate:
        """Of the answers to a prompt that were given, how many differ; the papers' score if not."""
        if given := self.population and self.population.given:
            return given
        return self.estimate("conditional", unbiased=False)

    def as_dict(self, names: Sequence[str], *, unbiased: bool = True) -> dict[str, Any]:
        """Plain numbers: the named scores, their errors and intervals, the entropies."""
        result = self.decomposition

        def of_names(values: PerScore | None) -> dict[str, Any] | None:
            return values and {name: plain(getattr(values, name)) for name in names}

        entropies = ("entropy_outputs", "entropy_prompts", "entropy_joint")[: len(names)]
        shown = of_entropy(result) | {"method": result.method, **(of_names(result.scores) or {})}
        shown["intervals"] = result.estimation and of_names(result.intervals)
        shown["standard_errors"] = of_names(self.standard_errors)
        shown |= plain({"errors_by": self.errors_by, "saturated": self.saturated})
        shown |= {name: float(getattr(result, name)) for name in entropies}
        scores = self.population.as_dict(names) if self.population and unbiased else None
        return shown | {"slope_per_doubling": of_names(self.slope), "unbiased": scores}


#: The code of advice on texts that may be refusals, errors or placeholders.
DOUBT = "answers doubtful"


class Advice(NamedTuple):
    """What is nearly saturated, no answer or not seen, and what to do. `str` gives the sentence.

    The code is 'outputs' or 'prompts', and 'alike', 'apart', 'different' (of a prompt), 'cut' (by
    the truncation) or 'blended'; 'answers doubtful'; 'models', of what they share; or of what the
    encoder does not see, 'cut', 'scripts', 'code', 'formulas', 'numbers or letters' or 'notations'.
    """

    code: str
    finding: str
    evidence: str  # The scores or texts that show it.
    remedy: str  # What it means, and what to change.

    def __str__(self) -> str:
        return f"{self.finding} ({self.evidence}). {self.remedy}"

    def note(self) -> str:
        """The sentence for notes, where it says whether it is about saturation."""
        return f"{'saturated: ' * self.code.startswith(('outputs', 'prompts'))}{self}"

    def as_dict(self) -> dict[str, str]:
        """The code and the sentence, for JSON."""
        return {"code": self.code, "sentence": str(self)}


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """Scores with errors, and everything that was chosen on the way. Prints as a table.

    Attributes:
      n: the number of pairs, or of outputs.
      dtype: the name of the dtype of the computation.
      bandwidths: of outputs and prompts, with the rule in words.
      orders: the scores of each order.
      seed: of everything that is drawn.
      distinct_prompts: how many prompts differ; None without prompts, and on several devices.
      weighted: whether the rows have weights.
      unbiased: whether order 2 is shown without the pairs of a row with itself.
      advice: on nearly saturated scores (`saturation.advice`), and texts that may be no answers.
      answers: the fewest and most to a prompt; None unless prompts repeat, equal or different.
      encoder: of texts that were embedded: `text_encoder`, its name, and path and details.
      one_prompt: of the outputs to one prompt; None without prompts, or for papers' scores alone.
      quality: how many outputs are good, and good and different; None without quality.
      failed: why optional parts, such as 'quality', could not be computed, by name.
      read: which outputs and prompts these are, and what was cut from them; '' of arrays.
      noun: what texts call the outputs: 'answers', 'pictures', 'runs' of agents, or 'outputs'.
    """

    n: int
    dtype: str
    bandwidths: Mapping[str, RuledBandwidth]
    orders: tuple[ScoredOrder, ...]
    seed: int
    distinct_prompts: int | None = None
    weighted: bool = False
    unbiased: bool = True
    advice: tuple[Advice, ...] = ()
    answers: tuple[int, int] | None = None
    encoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    one_prompt: OnePrompt | None = None
    quality: Quality | None = None
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read: str = ""
    noun: str = "outputs"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores: see `score_names`."""
        return score_names(self.bandwidths)

    @property
    def paired(self) -> bool:
        """Whether there are prompts."""
        return "prompts" in self.bandwidths

    def order(self, order: float) -> ScoredOrder:
        """The scores of one order; KeyError where it was not computed."""
        computed = {scored.decomposition.order: scored for scored in self.orders}
        if order not in computed:
            raise KeyError(f"order {order}: computed were {[*computed]}.")
        return computed[order]

    def choices(self) -> dict[str, Any]:
        """The dtype, the bandwidths and the seed as plain data."""
        shown = {name: plain(getattr(self, name)) for name in ("dtype", "bandwidths", "seed")}
        cover = of_kernels(ERRORS_COVER, self.bandwidths)
        cover = cover if any(o.errors_by for o in self.orders) else None
        return {**shown, "errors_cover": cover, **self.encoder}

    def as_dict(self) -> dict[str, Any]:
        names = ("distinct_prompts", "answers", "advice", "one_prompt", "quality", "failed", "read")
        shown = {name: plain(getattr(self, name)) for name in names}
        scores = [scored.as_dict(self.names, unbiased=self.unbiased) for scored in self.orders]
        shown["differ"] = bars({"": self}).as_dict()
        return {"n": self.n, **self.choices(), **shown, "scores": scores}

    def record(self, model: str, **about: Any) -> dict[str, Any]:
        """The finite scores as a record of Every Eval Ever (schema 0.3.0), for JSON.

        Args:
          model: its name, 'developer/model' where others should find it.
          about: `name` of the evaluation, where it follows no frozen protocol; `organization` that
            ran it; `encoder` of embeddings that you made, by its name or
            `{"text_encoder": NAME, "text_encoder_revision": REVISION}`.
        """
        from condvendi_jax.results import record  # It imports this module.

        return record.record_of(self, model, **about)

    def _shown(self) -> Iterator[tuple[ScoredOrder, bool, str]]:
        """Every order, whether unbiased, with its name; plug-in scores follow unbiased ones."""
        for scored in self.orders:
            unbiased = self.unbiased and scored.population is not None
            yield scored, unbiased, scored.name
            if unbiased:
                yield scored, False, f"{scored.name}, plug-in"

    def lines(self) -> list[dict[str, Any]]:
        """A line for each order and score, and another one for a plug-in score."""
        lines = []
        for scored, unbiased, _ in self._shown():
            start = of_entropy(scored.decomposition)
            for name in self.names:
                line = start | {"unbiased": unbiased, "score": name, "n": self.n}
                lines.append(line | scored.estimate(name, unbiased=unbiased).as_dict())
        return lines

    def table(self) -> tables.Table:
        """A row for each order, and another one for its plug-in scores if they are biased."""
        names, shown = self.names, self._shown()
        rows = [[label, *(str(o.estimate(n, unbiased=u)) for n in names)] for o, u, label in shown]
        if self.one_prompt and not self.answers:
            to_one = {"conditional": self.one_prompt.in_words()}
            rows.append(["2, to one prompt", *(to_one.get(name, "") for name in self.names)])
        return tables.Table(["order", *(HEADINGS[name] for name in self.names)], rows)

    def notes(self) -> list[str]:
        """The bandwidths, what the errors cover, and what to know before reading the scores."""
        notes = [*kernel_notes(self), *unbiased_notes([self])]
        for scored in self.orders:
            fixed = scored.population and scored.population.fixed_error
            if fixed and self.unbiased and scored.saturated.get("conditional") != "largest":
                error = f"the standard error of conditional is {fixed:.2g}"
                notes.append(f"order 2: over other {self.noun} to these prompts alone, {error}")
        prompts = self.distinct_prompts
        what = self.noun + " to each prompt" * bool(prompts and 1 < prompts < self.n)
        for scored in self.orders:
            if scored.slope is not None:
                slopes = [f"{HEADINGS[n]} by {getattr(scored.slope, n):+.2g}" for n in self.names]
                words = f"the last doubling of the {what} changed {', '.join(slopes)}"
                notes.append(f"order {scored.name}: {words}")
        notes += notes_of({"": self.one_prompt}, self.noun) if self.one_prompt else []
        notes += [str(self.quality)] if self.quality else []
        notes += [item.note() for item in self.advice]
        if estimated := {o.decomposition.method for o in self.orders if o.decomposition.estimation}:
            methods = ", ".join(sorted(estimated))
            what = "covers the scores that all eigenvalues would give"
            notes.append(f"estimated by {methods}: [low, high] {what}")
        for scored in self.orders:
            if (moved := math.expm1(max(scored.decomposition.rounding or (0,)))) > _ROUNDED:
                words = f"rounding to {self.dtype} may change scores by {moved:.0%}; use x64"
                notes.append(f"order {scored.name}: {words}")
        return notes + error_notes([self]) + not_computed(self.failed) + read_lines(self.read)

    @property
    def encoder_name(self) -> str:
        """The name of the encoder of texts or pictures, if `evaluate` or `compare` used one."""
        return str(self.encoder.get("text_encoder") or self.encoder.get("image_encoder") or "")

    @property
    def kernels(self) -> str:
        """The kernels of outputs and prompts, and how they were chosen, in words."""
        return chosen_kernels(self.bandwidths, self.noun)

    def plot(self) -> Figure:
        """How many outputs differ, with the 95% interval."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.forest(bars({"": self}), "", self.bandwidths["outputs"].bandwidth)

    def parts(self) -> list[str | tables.Table]:
        """What to mend, the scores in a sentence and as a table, and the bandwidths."""
        lines = [*warning_lines(self.advice), meaning({"": self}), "", self.table(), ""]
        lines += [str(self.quality)] if self.quality else []
        lines += about_rows([self])
        if any(scored.errors_by for scored in self.orders):
            lines.append(of_kernels(INTERVALS, self.bandwidths))
        if counted_answers({"": self}) and not of_one_prompt({"": self}):
            lines.append(tables.capitalized(DIFFER.format(self.noun)))
        if self.unbiased and any(scored.population for scored in self.orders):
            lines.append(f"Order 2: {UNBIASED}; plug-in: of these {self.noun}, the papers' formula")
        return [*lines, *not_computed(self.failed), *read_lines(self.read), MORE]

    def details(self) -> str:
        """The table, and below it all that was chosen, and what its numbers mean."""
        title = f"{self.n:,} {'pairs' if self.paired else self.noun}, {self.dtype}"
        return "\n".join([title, meaning({"": self}), str(self.table()), *self.notes()])


def read_lines(words: str) -> list[str]:
    """What was read, as a line of its own; none of arrays."""
    return [f"Read: {words}"] if words else []


def about_rows(evaluations: Collection[Evaluation]) -> Iterator[str]:
    """The kernels; of which prompts scores are, and how they count, or that there are none."""
    first = next(iter(evaluations))
    yield first.kernels
    if not first.paired:
        yield "Without prompts: part of this diversity may be that of the prompts"
    known = [one for result in evaluations if (one := result.one_prompt)]
    if any("at most" in one.in_words() for one in known):
        yield "At most: with about 95% confidence"
    if any(one.curve for one in known):
        yield "Conditional and information compare similar prompts, too"
    if first.paired and any(result.weighted for result in evaluations):
        yield "Weights: given; where they are not integers, prompts count by them, not each once"


UNBIASED = "the estimate if you sampled forever"
#: The last line of what a result prints.
MORE = "Choices, tests and notes: .details() or --verbose"


def not_computed(failed: Mapping[str, str]) -> list[str]:
    """A line for each optional part that could not be computed."""
    return [f"not computed: {name} ({why})" for name, why in failed.items()]


def warning_lines(advice: Sequence[Advice]) -> list[str]:
    """What to mend before the scores are used, a line each; `meaning` says which answers differ."""
    return [f"WARNING: {item}" for item in advice if item.code != "outputs different"]


def chosen_kernels(bandwidths: Mapping[str, RuledBandwidth], noun: str = "outputs") -> str:
    """What was chosen for outputs and prompts, and why, in a line."""
    every = bandwidths.items()
    words = "; ".join(f"{k}: {'bandwidth ' if h.bandwidth else ''}{h}" for k, h in every)
    equal = "prompts: equal or different(, because prompts repeat)?"
    words = re.sub(equal, f"only {noun} to the same prompt are compared", words)
    return tables.capitalized(re.sub("^outputs", noun, words))


def given_answers(evaluations: Mapping[str, Evaluation]) -> str:
    """How many answers a prompt has, where prompts repeat: '8', '4 to 8'; else nothing."""
    answers = [count for result in evaluations.values() for count in result.answers or ()]
    return tables.span(answers) if answers else ""


def counted_answers(evaluations: Mapping[str, Evaluation]) -> str:
    """`given_answers` where a number counts these: not of truncated scores, or unequal models."""
    numbers = {result.answers for result in evaluations.values()}
    cut = any(o.decomposition.truncation for e in evaluations.values() for o in e.orders)
    return given_answers(evaluations) if len(numbers) == 1 and not cut else ""


def of_one_prompt(evaluations: Mapping[str, Evaluation]) -> dict[str, OnePrompt]:
    """What is known of the outputs to one prompt, where the given answers do not say it."""
    known = {model: one for model, result in evaluations.items() if (one := result.one_prompt)}
    given = all(result.answers for result in evaluations.values())
    return {} if given and not any(one.left_out for one in known.values()) else known


def bars(evaluations: Mapping[str, Evaluation]) -> Bars:
    """How many outputs of each model differ, the most diverse first.

    Of repeated prompts, how many of the given answers differ, or what is known of the outputs to
    one prompt; else a score, of order 2 if there is one, unbiased unless nearly all rows differ.
    """
    first, given = next(iter(evaluations.values())), counted_answers(evaluations)
    name, apart = "conditional" if first.paired else "vendi", []
    what, title, models, limit = f"different {first.noun} to one prompt", "", [], math.nan
    effective = "effectively " * bool(given)
    for model, one in (known := of_one_prompt(evaluations)).items():
        bar = Bar(model, one.value, one.low, one.high)
        most = bar._replace(low=1.0, high=one.at_most, words=one.in_words())
        models.append(bar if one.state == "known" else most)
    place = max(range(len(first.orders)), key=lambda k: first.orders[k].decomposition.order == 2)
    for model, result in () if known else evaluations.items():
        order, unbiased = result.orders[place], first.unbiased
        estimate = order.given if given and unbiased else order.estimate(name, unbiased=unbiased)
        value, (low, high) = estimate.value, estimate.ends or (math.nan, math.nan)
        if most := order.saturated.get(name) == "largest":
            apart.append(model)
        if (most and not given) or not math.isfinite(value):  # There may be many more.
            value, high = order.estimate(name, unbiased=False).value, math.inf
        models.append(Bar(model, value, min(low, value), high))
    if not known:
        decomposition = first.orders[place].decomposition
        title = score_name(name, decomposition.order, decomposition.truncation)
        what = f"{effective}different {first.noun}"
        what += " for similar prompts" * (first.paired and not first.answers)
        what += f" to a prompt, of {given}" if given else " to a prompt" * bool(first.answers)
        if given and first.unbiased:  # Not the score, which is for any number of answers.
            title, limit = "", max(e.answers[1] for e in evaluations.values() if e.answers)
    values = {bar.model: math.inf if bar.model in apart else bar.value for bar in models}
    models.sort(key=lambda bar: -np.nan_to_num(values[bar.model], nan=-1.0, posinf=math.inf))
    return Bars(what, tuple(models), title, limit, apart)


def meaning(evaluations: Mapping[str, Evaluation], numbers: Bars | None = None) -> str:
    """How many outputs of each model differ, in a sentence: the numbers, or those of `bars`.

    A second sentence says what these data cannot tell.
    """
    first = next(iter(evaluations.values()))
    if known := of_one_prompt(evaluations):
        return in_a_sentence(known, first.noun)
    numbers, given = numbers or bars(evaluations), counted_answers(evaluations)
    apart, top = numbers.apart, numbers.models[0]
    things = first.noun if first.answers or not first.paired else "pairs of output and prompt"
    start, verb = f"{numbers.what}: about", ""
    if given:
        start, verb = f"of {given} {things} to a prompt, effectively", " differ"
    shown = [f"{tables.rough(bar.value)} ({bar.model})" for bar in numbers.models]
    shown[0] = f"{tables.rough(top.value)}{verb}" + (f" ({top.model})" if shown[1:] else "")
    by = numbers.by and f", by {numbers.by}"
    words = f"{tables.capitalized(start)} {tables.listed(shown)}{by}."
    if apart[1:]:
        many = given or tables.span(result.n for result in evaluations.values())
        words += f" {many} {things} cannot tell {tables.listed(apart)} apart."
    elif apart:
        whose = apart[0] and f" of {apart[0]}"
        by_weight = f"The number{whose} is nearly the largest that the weights allow"
        nearly = by_weight if first.weighted else f"Nearly all {things}{whose} differ"
        words += f" {nearly}: there may be many more."
    return words


def kernel_notes(result: Evaluation) -> list[str]:
    """The encoder, if `evaluate` or `compare` used one, and each bandwidth with its rule."""
    bandwidths = result.bandwidths
    starts = {name: "" if h.within_prompts else "bandwidth of " for name, h in bandwidths.items()}
    widths = {name: f"{h.bandwidth:.4g}, " if h.bandwidth else "" for name, h in bandwidths.items()}
    notes = [f"embedded by {result.encoder_name}"] if result.encoder_name else []
    return notes + [f"{starts[k]}{k}: {widths[k]}{h.rule}" for k, h in bandwidths.items()]


def unbiased_notes(evaluations: Collection[Evaluation]) -> list[str]:
    """Notes on unbiased scores."""
    scores = [o.population for e in evaluations for o in e.orders if o.population and e.unbiased]
    if not scores:
        return []
    prompts = [0 if p.answers.kind is None else int(p.answers.kind.max()) + 1 for p in scores]
    noun = next(iter(evaluations)).noun
    whose, sample = f"for any number of {noun}", noun
    if min(prompts):
        whose = f"for {min(prompts):,} prompts with any number of {noun} to each"
        sample = f"prompts and their {noun}"
    notes = [f"order 2: unbiased, {whose}; plug-in: the papers' formula, which grows with n"]
    if any(p.intervals is not None for p in scores):
        notes.append(f"order 2: [low, high] is over other {sample}")
    if any(e.unbiased and e.answers and e.answers[0] < e.answers[1] for e in evaluations):
        notes.append(f"each prompt counts once, whatever its number of {noun}; in plug-in each row")
    if left_out := max(p.answers.left_out for p in scores):
        notes.append(f"order 2 leaves out {left_out:,} prompts that were asked once")
    if scores[0].labels is not None:
        words = "errors of Conditional-RKE are over other prompts and other labels"
        notes.append(f"{words}; RKE and Information-RKE have none: {SPLIT}")
    return notes + [f"order 2 has no errors: {p.reason}" for p in scores[:1] if p.reason]


def of_kernels(words: str, bandwidths: Mapping[str, RuledBandwidth]) -> str:
    """What is said of errors, which are not 'at these bandwidths' where there are none."""
    some = any(chosen.bandwidth for chosen in bandwidths.values())
    return words if some else re.sub(",? at these bandwidths", "", words)


def error_notes(evaluations: Collection[Evaluation]) -> list[str]:
    """A note on what standard errors cover and how they were computed, if there are any."""
    words: dict[str, dict[str, None]] = {}
    for scored in itertools.chain.from_iterable(result.orders for result in evaluations):
        if scored.errors_by is not None:
            words.setdefault(str(scored.errors_by), {})[scored.name] = None
    lines = [f"order {', '.join(o)}: {w}" if len(words) > 1 else w for w, o in words.items()]
    start = of_kernels(INTERVALS, next(iter(evaluations)).bandwidths)
    return [f"{start}; {'; '.join(lines)}"] if words else []
