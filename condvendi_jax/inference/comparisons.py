"""Which of several models is more diverse, and whether the difference is real.

What models share, such as their prompts, moves all their scores alike and cancels in a difference:
its error is the root mean square of the differences of the influences of each group of rows.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks, optional
from condvendi_jax.data.models import of_each_model
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import between as between_models
from condvendi_jax.inference import datasets, designs, profiles, saturation
from condvendi_jax.inference.designs import Common
from condvendi_jax.inference.errors import FEWEST_ROWS, Units
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.inference.population import Population
from condvendi_jax.inference.quality import Asked
from condvendi_jax.inference.shared_prompts import Rows
from condvendi_jax.records.answers import recurring
from condvendi_jax.results.comparison import Comparison, SharedPrompts
from condvendi_jax.results.evaluation import DOUBT, Evaluation, ScoredOrder
from condvendi_jax.results.quality import Quality
from condvendi_jax.results.ranking import FEWEST_TESTED, Difference, Ranking
from condvendi_jax.spectra.methods import Method
from condvendi_jax.statistics.influences import error_of
from condvendi_jax.statistics.multiplicity import holm, letter_display
from condvendi_jax.statistics.power import detectable, ratio_of

# The width of a 95% interval of a normal variable, in standard errors.
_WIDTH = 2 * 1.96
_NO_ERRORS = "standard errors were not computed of every order"
_ONE_PROMPT = (
    "without one of the groups all rows have the same prompt, for which conditional and "
    "information say nothing"
)
_NO_PAIRS = "no two rows have similar prompts: give several answers to each prompt"
_ALL_DIFFERENT = "no two outputs to similar prompts count as the same: use a wider bandwidth"


@takes_data
def compare(
    models: Mapping[str, ArrayLike | Labels],
    prompts: ArrayLike | Labels | Mapping[str, ArrayLike | Labels] | None = None,
    *,
    orders: Sequence[float] = (2, 1),
    truncation: int | None = None,
    method: Method | None = None,
    errors: bool = True,
    unbiased: bool = True,
    quality: ArrayLike | Mapping[str, ArrayLike] | None = None,
    at_least: float | None = None,
    draws: int | None = None,
    groups: int | ArrayLike | None = None,
    level: float = 0.05,
    equal_ratio: float = 1.1,
    one_population: bool = False,
    profile: bool | None = None,
    seed: int = 0,
    progress: Callable[[str], Any] = lambda _: None,
    **data: Unpack[Data],
) -> Comparison:
    """Scores of several models under one bandwidth, and the paired difference of every two.

    Args:
      models: the outputs of each by name, embeddings `[n, d_x]` of one encoder, or as `evaluate`.
      prompts: embeddings `[n, d_t]` or labels that all models share row by row; or those of each
        model by name, whose rows are matched where they are equal; or None to compare outputs
        alone. Models are compared on the prompts that they share: all on those of all models, or
        two by two where pairs share others. Models that share none are not compared.
      encoder, output_kernel, prompt_kernel, similar_prompts: see `evaluate`.
      rule: as `evaluate`; applied to the outputs of all models, an equal number of each.
      orders, truncation, method, unbiased, seed, progress: see `evaluate`.
      errors: as `evaluate`; differences are tested only where there are errors of all models.
      quality: as `evaluate`, `[n]` for all models, or that of each model by its name.
      at_least, draws: as `evaluate`, the same for all models, which are ranked by the number of
        good and different outputs, too: `ranking("quality", 0)`.
      prompt_ids: which prompts are the same, within models and across them: a label, such as the
        text, for each row `[n]` of all models, or those of each model by its name.
      groups: as `evaluate`; labels need models of the same rows. Rows with equal prompts stay
        together, within models and across them.
      batches, weights: as `Pairs`: `[n]` for all models, or those of each model by its name.
      level: the family-wise rate of false differences, within a score, that the letters allow.
      equal_ratio: models are stated to be equal where two one-sided tests at the level, after Holm,
        show that the ratio of their scores is smaller.
      one_population: whether the prompts of all models are samples of one population, so that
        models are also compared on prompts that they do not share.
      profile: whether to say over which bandwidths the order of the models holds, at order 2; as
        `profile` does, over both bandwidths. Where None, up to 10,000 rows of all models together.

    Returns:
      A `Comparison`; `print` shows it as tables. Of one model it is its evaluation, ranked alone.

    Raises:
      TypeError, ValueError: the arrays of the models do not fit together, a model has no row in
        some group, a profile is asked for where there is none, or as `evaluate`.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng = np.random.default_rng(0)
      >>> prompts = rng.normal(size=(300, 2)).astype(np.float32)
      >>> few, many = (prompts + s * rng.normal(size=(300, 2)).astype(np.float32) for s in (0.2, 1))
      >>> result = cv.compare({"few": few, "many": many}, prompts, rule="median", orders=[2])
      >>> list(result.ranking("conditional", 2).values), result.ranking("conditional", 2).letters
      (['many', 'few'], {'many': 'a', 'few': 'b'})
    """
    plan = Plan(orders, truncation, method, errors, groups, seed, progress, unbiased=unbiased)
    level = checks.check_number(level, name="level", above=0, below=1)
    margin = checks.check_number(equal_ratio, name="equal_ratio", above=1)
    checks.check_flag(one_population, name="one_population")
    given = plan.pairs(models, prompts, **data)
    for name, of_model in of_each_model(quality, models, "quality").items():
        checks.check_indices({"outputs": models[name], "quality": of_model})
    rated = Asked.of(given, quality, at_least, draws)
    pairs = {name: rows.supported() for name, rows in given.items()}
    numbers = {name: rows.total for name, rows in pairs.items()}
    if plan.errors and min(numbers.values()) < FEWEST_ROWS:
        raise ValueError(f"models: expected three outputs of each or more, received {numbers}.")
    rows = Rows.of(pairs)
    shared = None if one_population else rows.numbers()
    together = rows.together(pairs, shared)
    if shared is not None and shared.one_set:
        pairs, rated = together, rated and rated.of_rows(rows.chosen([*pairs]))
    tests = _Tests(level, margin, math.comb(len(pairs), 2))
    whole = _ranked(pairs, plan, tests)
    if shared is not None and not shared.one_set:
        whole = _by_two(whole, pairs, rows, shared, plan, tests)
    evaluations, rankings, units = whole.evaluations, whole.rankings, whole.units
    between, over, asked, failed = None, None, bool(profile), dict[str, str]()
    with optional.part("quality", failed, asked=True):
        if rated:
            scored = rated.scored(pairs, units)
            of_models = zip(evaluations.items(), scored.values(), strict=True)
            evaluations = {m: dataclasses.replace(of, quality=q) for (m, of), q in of_models}
            comparable = not (shared and shared.apart)
            rankings.append(_by_quality(scored, whole.tests, comparable))
    with optional.part("overlaps", failed):
        between = between_models.of_plan(pairs, plan, evaluations)
    if asked or (profile is None and (whole.untested is None or whole.undefined)):
        differ = shared and shared.apart
        with optional.part("profile", failed, asked=asked):
            over = profiles.of_plan(plan, together, level=level, asked=asked, differ=differ)
    found = Comparison(
        evaluations,
        tuple(rankings),
        "none" if units is None else units.matched,
        level,
        whole.untested,
        between,
        over,
        given,
        None if all(ranking.unbiased for ranking in rankings) else whole.common.design,
        shared,
        failed,
    )
    return with_texts(found, plan.texts, one_population=one_population)


class _Tests(NamedTuple):
    """How differences are tested."""

    level: float
    margin: float
    number: int  # Of all pairs of models, within a score.
    paired: bool = True  # Whether outputs of different models belong together.
    wanted: bool = True  # Whether there are tests at all.


class _Ranked(NamedTuple):
    """Models by all scores."""

    evaluations: dict[str, Evaluation]
    units: Units | None
    common: Common
    tests: _Tests
    rankings: list[Ranking]
    untested: str | None
    undefined: bool  # Whether there is no score of some model.


def _ranked(pairs: Mapping[str, Pairs], plan: Plan, tests: _Tests) -> _Ranked:
    """Scores models, and tests every difference."""
    evaluations, units = plan.evaluate(pairs)
    common, untested, undefined = Common.of(pairs), None, False
    every = [scored for evaluation in evaluations.values() for scored in evaluation.orders]
    computed = [scored.errors_by for scored in every if scored.errors_by]
    unbiased_scores = [scored.population for scored in every if plan.unbiased and scored.population]
    kept = [
        scored.errors_by._replace(groups=scored.population.freedom + 1)
        for scored in every
        if plan.unbiased and scored.errors_by and scored.population and scored.population.freedom
    ]
    fewest = min(computed + kept, key=lambda by: by.groups, default=None)
    if fewest and fewest.groups < FEWEST_TESTED and len(evaluations) > 1:
        untested = (
            f"{fewest.groups} groups of {fewest.units} are too few, at least "
            f"{FEWEST_TESTED} are needed"
        )
    paired = units is not None and units.matched != "none"
    tests, rankings = tests._replace(paired=paired, wanted=untested is None), []
    for of_models in zip(*(evaluation.orders for evaluation in evaluations.values()), strict=True):
        scored = dict(zip(evaluations, of_models, strict=True))
        compared = _compared(scored, pairs, plan, common, units)
        unbiased = plan.unbiased and of_models[0].population is not None
        for score in next(iter(evaluations.values())).names:
            rankings.append(_ranking(score, scored, compared, tests, unbiased=unbiased))
    if untested is None and any(not r.tested and not (r.saturated or r.reasons) for r in rankings):
        missing = len(computed) < len(every)
        withheld = [by.reason for by in computed if by.withheld]
        withheld += [of.withheld for of in unbiased_scores if of.withheld]
        main = [[*r.values.values()] for r in rankings if r.unbiased and r.score != "information"]
        undefined = not np.isfinite(main).all()
        other = common.untested or (withheld[0] if withheld else _ONE_PROMPT)
        if undefined:
            other = _NO_PAIRS if np.isnan(main).any() else _ALL_DIFFERENT
        untested = _NO_ERRORS if missing else other
    return _Ranked(evaluations, units, common, tests, rankings, untested, undefined)


def _by_two(
    whole: _Ranked,
    pairs: Mapping[str, Pairs],
    rows: Rows,
    shared: SharedPrompts,
    plan: Plan,
    tests: _Tests,
) -> _Ranked:
    """Tests two models on the prompts that they share, pair by pair."""
    if all(ranking.saturated for ranking in whole.rankings):
        return whole
    rankings, untested = [], shared.untested
    tested: dict[frozenset[str], list[Ranking]] = {}
    for two, count in shared.pairs.items():
        if shared.enough(count, two):
            plan.progress(f"prompts that {' and '.join(two)} share")
            found = _ranked(rows.restricted(pairs, two), plan, tests)
            tested[frozenset(two)], untested = found.rankings, untested or found.untested
    for place, ranking in enumerate(whole.rankings):
        differences = []
        for one, two in itertools.combinations(ranking.values, 2):
            difference = Difference(one, two, ranking.values[one] - ranking.values[two])
            if found := tested.get(frozenset((one, two))):
                difference = found[place].difference(one, two)
            differences.append(difference)
        adjusted, reasons = _adjusted(differences), collections.defaultdict(list)
        for of_two in tested.values():
            for why, names in of_two[place].reasons.items():
                reasons[why] += names
        changed = {"letters": _letters(ranking.values, adjusted, tests.level), "reasons": reasons}
        rankings.append(dataclasses.replace(ranking, differences=adjusted, **changed))
    return whole._replace(rankings=rankings, untested=untested)


def with_texts(
    found: Comparison, texts: Mapping[str, Sequence[Any]], *, one_population: bool
) -> Comparison:
    """The comparison with advice on texts of its rows that may not be what a model said.

    Where some answer many prompts, with the order of models `without` them if it is another.
    """
    evaluations = {
        name: datasets.advised(of, found.pairs[name], texts.get(name))
        for name, of in found.evaluations.items()
    }
    found, fewer, left_out = dataclasses.replace(found, evaluations=evaluations), {}, []
    if not any(item.code == DOUBT for item in found.advice):
        return found
    for name, pairs in found.pairs.items():
        of_model = [text.strip() for text in texts[name]]
        common = recurring(of_model, pairs.prompt_kinds[1].tolist())
        left_out += [text for text in of_model if text in common]
        rows = np.flatnonzero([text not in common for text in of_model])
        fewer[name] = pairs.gathered().rows(rows)
    if not left_out:
        return found
    main, first = found.main[0], found.first
    try:
        again = compare(
            fewer,
            orders=[main.order],
            truncation=main.truncation,
            errors=any(scored.errors_by for scored in first.orders),
            unbiased=first.unbiased,
            level=found.level,
            one_population=one_population,
            profile=False,
            seed=first.seed,
        )
        words = str(again.main[0])
    except ValueError as error:
        words = f"not compared ({error})"
    whose = f"the {len(left_out):,} rows of {len({*left_out})} texts that answer many prompts"
    without = "" if words == str(main) else f"Without {whose}: {words}"
    return dataclasses.replace(found, without=without)


class _Compared(NamedTuple):
    """The scores of one model and order, brought to the design that all models have."""

    values: PerScore
    influences: PerScore | None  # Of each unit, on the similarities where there are some.
    standard_errors: PerScore | None
    intervals: PerScore | None  # Of unbiased scores, or of estimated ones.
    similarities: PerScore | None = None  # Of a `Population`; tested in place of the scores.
    freedom: int | None = None  # Of the errors of unbiased scores.


def _compared(
    scored: Mapping[str, ScoredOrder],
    pairs: Mapping[str, Pairs],
    plan: Plan,
    common: Common,
    units: Units | None,
) -> dict[str, _Compared]:
    """Models by one order, at one design. Unbiased scores have that of the fewest prompts."""
    known: dict[str, Population] = {m: of.population for m, of in scored.items() if of.population}
    compared = {}
    if known and (plan.unbiased or common.design is not None):
        shares = common.shares(known.values(), unbiased=plan.unbiased)
        for name, population in known.items():
            of = population.at(*shares)
            intervals = of.intervals if plan.unbiased else None
            shown = of.values, of.influences, of.standard_errors, intervals
            compared[name] = _Compared(*shown, of.similarities, of.freedom or None)
        return compared
    for name, result in scored.items():
        whole, errors = result.decomposition, result.standard_errors
        scores, intervals = whole.scores, whole.intervals
        influences = None if common.untested else result.influences
        if common.design is not None:
            entropy = Entropy(whole.order, whole.truncation)
            plan.progress(f"order {entropy.order:g} of {name} at {common.design}")
            groups = units and units.of_models[name]
            of = pairs[name], entropy, plan.method, groups, common.design
            scores, errors, influences, intervals = designs.at_design(*of, seed=plan.seed)
        estimated = intervals if whole.estimation else None
        compared[name] = _Compared(scores, influences, errors, estimated)
    return compared


def _ranking(
    score: str,
    scored: Mapping[str, ScoredOrder],
    compared: Mapping[str, _Compared],
    tests: _Tests,
    *,
    unbiased: bool,
) -> Ranking:
    """All models by one score of one order."""
    first = next(iter(scored.values())).decomposition
    entropy = Entropy(order=first.order, truncation=first.truncation)
    values = {name: float(getattr(of.values, score)) for name, of in compared.items()}
    near: dict[str, Any] = {name: of.saturated.get(score) for name, of in scored.items()}
    limit = _limit(list(values.values()), near.values(), saturation.rounding(entropy, first.dtype))
    if limit == "equal" and tests.number > math.comb(len(values), 2):  # Beside other models.
        limit = None
    apart = {name: math.inf for name, end in near.items() if end == "largest"}
    if limit is None:  # Otherwise rounding would decide on the order, or the tail of a kernel.
        by = {**values, **apart}
        values = dict(sorted(values.items(), key=lambda of: -np.nan_to_num(by[of[0]], nan=-1)))

    def of_each(name_of: str) -> dict[str, Any]:
        """This score in results, of the models that have them, in the order of the values."""
        results = {name: getattr(compared[name], name_of) for name in values}
        return {name: getattr(of, score) for name, of in results.items() if of is not None}

    reasons = _reasons(score, values, near)
    errors, intervals = of_each("standard_errors"), of_each("intervals")
    freedom = [o.errors_by.groups - 1 for o in scored.values() if o.errors_by]
    freedom += [of.freedom for of in compared.values() if of.freedom is not None]
    differences = _differences(
        values,
        of_each("influences"),
        {} if unbiased else intervals,
        tests._replace(wanted=tests.wanted and limit is None),
        at={} if score == "information" else of_each("similarities"),
        left_out=[pair for pairs in reasons.values() for pair in pairs],
        rounding=saturation.rounding(entropy, first.dtype),
        freedom=min(freedom, default=1),
    )
    if unbiased:  # What nearly always differs has no number, and so no difference from others.
        unknown = {"value": math.nan, "standard_error": math.nan, "detectable": math.nan}
        differences = tuple(
            of._replace(**unknown) if {*of[:2]} & apart.keys() else of for of in differences
        )
    plain = {name: float(getattr(scored[name].decomposition.scores, score)) for name in values}
    return Ranking(
        score=score,
        order=first.order,
        truncation=first.truncation,
        values=values,
        standard_errors={name: float(errors.get(name, math.nan)) for name in values},
        intervals=intervals or None,
        differences=differences,
        letters=_letters(values, differences, tests.level),
        saturated=limit,
        unbiased=unbiased,
        plug_in=plain,
        level=tests.level,
        margin=tests.margin,
        reasons={why: [f"{a} - {b}" for a, b in pairs] for why, pairs in reasons.items()},
    )


def _reasons(
    score: str, values: Mapping[str, float], near: Mapping[str, str | None]
) -> dict[str, list[tuple[str, str]]]:
    """The pairs of models that are not tested by a score near a limit, by the reason."""
    reasons = collections.defaultdict(list)
    for pair in itertools.combinations(values, 2):
        ends = (np.array([[near[m] == end] for m in pair]) for end in ("smallest", "largest"))
        numbers = np.array([[values[name]] for name in pair])
        (why,) = saturation.untested(score, pair, numbers, saturation.Nearly(*ends))
        if why:
            reasons[why].append(pair)
    return reasons


def _letters(
    values: Mapping[str, float], differences: Sequence[Difference], level: float
) -> dict[str, str]:
    """The letters of models; empty for those of two that are not tested."""
    apart = {frozenset(d[:2]) for d in differences if d.adjusted <= level}
    none = {name: "" for d in differences if math.isnan(d.p_value) for name in d[:2]}
    return {**letter_display(list(values), apart), **none}


def _by_quality(qualities: Mapping[str, Quality], tests: _Tests, comparable: bool) -> Ranking:
    """All models by the number of good and different outputs, which is a mean over prompts."""
    ordered = dict(sorted(qualities.items(), key=lambda item: -item[1].number.value))
    values = {name: float(of.number.value) for name, of in ordered.items()}
    intervals: Any = {name: of.number.ends for name, of in ordered.items()}
    freedom = min(of.freedom for of in ordered.values())
    differences = _differences(
        values,
        {name: of.influences for name, of in ordered.items()},
        {},
        tests._replace(wanted=comparable and freedom + 1 >= FEWEST_TESTED),
        rounding=1e-5,
        freedom=freedom,
    )
    return Ranking(
        score="quality",
        order=0,
        truncation=None,
        values=values,
        standard_errors={name: of.number.error for name, of in ordered.items()},
        intervals=intervals,
        differences=differences,
        letters=_letters(values, differences, tests.level),
        level=tests.level,
        margin=tests.margin,
        draws=next(iter(ordered.values())).draws,
    )


def _limit(
    values: Sequence[float], near: Iterable[saturation.Limit | None], rounding: float
) -> saturation.Limit | None:
    """The limit that all models are near, or `equal` values of them; None of NaN."""
    end: Any = None if np.isnan(values).any() or len({*near}) > 1 else next(iter(near))
    several = len(values) > 1 and np.isfinite(values).all()  # Infinite where no rows are alike.
    equal = several and np.ptp(values) <= rounding * np.abs(values).max()
    return "equal" if equal and end != "smallest" else end


def _differences(
    values: Mapping[str, float],
    influences: Mapping[str, np.ndarray],
    intervals: Mapping[str, tuple[float, float]],
    tests: _Tests,
    *,
    freedom: int,
    at: Mapping[str, float] | None = None,
    left_out: Sequence[tuple[str, str]] = (),
    rounding: float = 0.0,
) -> tuple[Difference, ...]:
    """Every pair of models but those left out, with p-values for each and all if `wanted`.

    Influences are on `at`, one over the values, where it is given, and its differences are tested.
    """
    differences = []
    for one, two in itertools.combinations(values, 2):
        value = values[one] - values[two]
        estimated = [np.subtract(*intervals[name]) / _WIDTH for name in (one, two) if intervals]
        error = of_tested = math.nan
        compared = [(at or values)[name] for name in (one, two)]
        apart = compared[0] - compared[1]
        if influences:
            both = influences[one], influences[two]
            of_tested = error = math.hypot(_error(*both, tests.paired), *estimated)
            if at:
                with np.errstate(invalid="ignore"):
                    error = _error(
                        both[0] * values[one] ** 2, both[1] * values[two] ** 2, tests.paired
                    )
        nothing = at and not any(compared)  # No two outputs are alike.
        left = nothing or not tests.wanted or (one, two) in left_out
        if left or math.isnan(of_tested) or math.isnan(apart):
            differences.append(Difference(one, two, value, error))
            continue
        rounded = abs(apart) <= rounding * np.abs(compared).max()
        p_value = 1.0 if rounded else 2 * _tail(abs(apart), of_tested, freedom)
        found = detectable(of_tested, freedom, tests.level / tests.number)
        smallest = ratio_of(found, math.sqrt(abs(math.prod(compared))))
        a, b = zip(compared, both, estimated or [0, 0], strict=True)
        inside = [_inside(*of, tests) for of in ((a, b), (b, a))]
        equal = max(_tail(*of, freedom) for of in inside)
        differences.append(Difference(one, two, value, error, p_value, math.nan, equal, smallest))
    return _adjusted(differences)


def _tail(distance: float, error: float, freedom: int) -> float:
    """How often Student's t exceeds a distance in units of its error."""
    from scipy.special import stdtr  # Imported where it is used: it is slow to import.

    return float(stdtr(freedom, -distance / error)) if error > 0 else float(distance <= 0)


def _adjusted(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """Differences with the p-values of all at once."""
    adjusted = [holm([getattr(d, name) for d in differences]) for name in ("p_value", "equal")]
    return tuple(
        d._replace(adjusted=p, equal=equal)
        for d, p, equal in zip(differences, *adjusted, strict=True)
    )


def _inside(one: Any, two: Any, tests: _Tests) -> tuple[float, float]:
    """By how much the first value is below the margin times the second, and the error of that."""
    (value, influences, noise), (other, of_other, of_estimate) = one, two
    sampling = _error(influences, tests.margin * of_other, tests.paired)
    return tests.margin * other - value, math.hypot(sampling, noise, tests.margin * of_estimate)


def _error(one: np.ndarray, two: np.ndarray, paired: bool) -> float:
    """The error of a difference from the influences `[replicates, g]` of two models."""
    if paired:
        count = min((len(of) for of in (one, two) if len(of) > 1), default=1)
        return error_of(one[:count] - two[:count])
    return math.hypot(error_of(one), error_of(two))
