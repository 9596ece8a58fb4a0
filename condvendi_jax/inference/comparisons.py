"""Which of several models is more diverse, and whether the difference is real.

What models share, such as their prompts, moves all their scores alike and cancels in a difference:
its error is the root mean square of the differences of the influences of each group of rows.
"""

import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Labels, Pairs, of_each_model
from condvendi_jax.encoders import limits
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import asked_once, datasets, designs, profiles, saturation
from condvendi_jax.inference import between as between_models
from condvendi_jax.inference.designs import AtDesign, Common, Rows
from condvendi_jax.inference.errors import FEWEST_ROWS, Units
from condvendi_jax.inference.evaluations import Data, Plan, takes_data
from condvendi_jax.inference.population import Population
from condvendi_jax.inference.quality import Asked
from condvendi_jax.records import answers, matching
from condvendi_jax.results.comparison import Comparison, Consensus, SharedPrompts
from condvendi_jax.results.estimate import Estimate, Quality
from condvendi_jax.results.evaluation import DOUBT, Advice, Evaluation, ScoredOrder
from condvendi_jax.results.ranking import Difference, Ranking
from condvendi_jax.spectra.methods import Method
from condvendi_jax.statistics import intervals, reasons
from condvendi_jax.statistics.influences import Error, standard_error_apart
from condvendi_jax.statistics.multiplicity import holm, letter_display, winner_interval
from condvendi_jax.statistics.power import FEWEST_TESTED, detectable, ratio_of


def _under_each(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Compares models under each of several encoders or similarities, and tells what all show."""

    @functools.wraps(compare)
    def compared(models: Any, prompts: Any = None, **given: Any) -> Any:
        results = {}
        for name, (x, how) in datasets.views(models, prompts, given).items():
            results[name] = compare(x, prompts, **given | how)
        return Consensus.of(results) if len(results) > 1 else results.popitem()[1]

    return compared


@takes_data
@_under_each
def compare(
    models: Mapping[str, ArrayLike | Labels | Mapping[str, ArrayLike]],
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
      models: the outputs of each by name, embeddings `[n, d_x]` of one encoder, or as `evaluate`;
        one model is ranked alone. With prompts also arrays by the encoder, then by the model.
      prompts: embeddings `[n, d_t]` or labels that all models share row by row; or those of each
        model by name, whose rows are matched where they are equal; or None to compare outputs
        alone. Models are compared on the prompts that they share: all on those of all models, or
        two by two where pairs share others. Models that share none are not compared.
      encoder, similarity: as `evaluate`; or lists, whose comparisons a `Consensus` holds.
      output_kernel: as `evaluate`; of several encoders and similarities also by their names.
      prompt_kernel, similar_prompts, orders, truncation, method, unbiased, seed, progress: see
        `evaluate`.
      rule: as `evaluate`; applied to the outputs of all models, an equal number of each.
      errors: as `evaluate`; differences are tested only where there are errors of all models.
      quality: as `evaluate`, `[n]` for all models, or that of each model by its name.
      at_least, draws: as `evaluate`; models are ranked by the number of good and different outputs,
        too: `ranking("quality", 0)`.
      prompt_ids: which prompts are the same, within models and across them: a label, such as the
        text, for each row `[n]` of all models, or those of each model by its name.
      groups: as `evaluate`; labels need models of the same rows. Rows of equal prompts stay
        together across models.
      batches, weights: as `Pairs`: `[n]` for all models, or those of each model by its name.
      level: about the family-wise rate of false differences, within a score, that letters allow.
      equal_ratio: models are stated to be equal where two one-sided tests at the level, after Holm,
        show that the ratio of their scores is smaller.
      one_population: whether the prompts of all models are samples of one population, so that
        models are also compared on prompts that they do not share.
      profile: whether to say over which bandwidths the order of the models holds, at order 2; as
        `profile` does, over both bandwidths. Where None, up to 10,000 rows of all models together.

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
    together = rows.together(shared)
    if shared is not None and shared.one_set:
        pairs, rated = together, rated and rated.of_rows(rows.chosen([*pairs]))
    tests = _Tests(level, margin, math.comb(len(pairs), 2))
    evaluations, units, common, tested, rankings = _ranked(pairs, plan, tests)
    if shared is not None and not shared.one_set:
        rankings = _by_two(rankings, rows, shared, plan, tests)
    differ = shared and shared.apart
    between, over, asked, failed = None, None, bool(profile), dict[str, str]()
    with checks.optional("quality", failed, asked=True):
        if rated:
            scored = rated.scored(pairs, units)
            for name, evaluation in evaluations.items():
                evaluations[name] = dataclasses.replace(evaluation, quality=scored[name])
            rankings.append(_by_quality(scored, tested._replace(reason=tested.reason or differ)))
    with checks.optional("overlaps", failed):
        between = between_models.of_plan(pairs, plan, evaluations)
    why = {difference.reason for ranking in rankings for difference in ranking.differences}
    some = None, reasons.NO_PAIRS, reasons.ALL_DIFFERENT
    # Models are tested at some bandwidth, or may be at others.
    told = any(reason in some or isinstance(reason, reasons.Saturated) for reason in why)
    if asked or (profile is None and told):
        with checks.optional("profile", failed, asked=asked):
            over = profiles.of_plan(plan, together, level=level, asked=asked, differ=differ)
    matched = "none" if units is None else units.matched
    at = None if all(ranking.unbiased for ranking in rankings) else common.design
    rest = between, over, given, at, shared, failed
    result = Comparison(evaluations, tuple(rankings), matched, level, *rest)
    return with_texts(result, plan.dataset, one_population=one_population)


class _Tests(NamedTuple):
    level: float
    margin: float
    number: int  # Of all pairs of models, within a score.
    matched: bool = True  # Whether outputs of different models belong together.
    reason: reasons.Reason | None = None  # Why there are no tests.


def _ranked(
    pairs: Mapping[str, Pairs], plan: Plan, tests: _Tests
) -> tuple[dict[str, Evaluation], Units | None, Common, _Tests, list[Ranking]]:
    """Scores models, and tests every difference; `tests` then say how they are matched."""
    evaluations, units = plan.evaluate(pairs)
    common, rankings = Common.of(pairs), []
    every = [scored for evaluation in evaluations.values() for scored in evaluation.orders]
    matched = units is not None and units.matched != "none"
    tests = tests._replace(matched=matched, reason=tests.reason or _too_few(every, plan))
    same = {
        frozenset(two)
        for two in itertools.combinations(pairs, 2)
        if all(pairs[m].across_models for m in two)
        and all(map(np.array_equal, *(pairs[name].gathered().arrays for name in two)))
    }
    for of_models in zip(*(evaluation.orders for evaluation in evaluations.values()), strict=True):
        scored = dict(zip(evaluations, of_models, strict=True))
        compared = _compared(scored, pairs, plan, common, units)
        unbiased = plan.unbiased and of_models[0].population is not None
        for score in next(iter(evaluations.values())).names:
            rankings.append(_ranking(score, scored, compared, tests, same, unbiased=unbiased))
        if of_models[0].decomposition.order == 2:
            known = {name: e.one_prompt for name, e in evaluations.items() if e.one_prompt}
            within, errors = asked_once.at_one_distance(known, units)
            near = {}
            for name, error in errors.items():
                parts = [error.value, *((error, error.interval()) if units else ())]
                near[name] = AtDesign(*(types.SimpleNamespace(near=part) for part in parts))
            if near:
                ranking = _ranking("near", scored, near, tests, same, unbiased=unbiased)
                rankings.append(dataclasses.replace(ranking, within=within))
    return evaluations, units, common, tests, rankings


def _too_few(every: Sequence[ScoredOrder], plan: Plan) -> reasons.Reason | None:
    """That some score has too few independent groups for a test."""
    counts = []
    for scored in every:
        if scored.errors_by:
            kept = scored.population.freedom if plan.unbiased and scored.population else 0
            groups = scored.errors_by.groups
            counts.append((min(groups, kept + 1) if kept else groups, scored.errors_by.units))
    if not counts:
        return reasons.NO_ERRORS if every else None
    groups, units = min(counts, key=lambda count: count[0])
    return None if groups >= FEWEST_TESTED else reasons.too_few(groups, units, FEWEST_TESTED)


def _by_two(
    whole: list[Ranking], rows: Rows, shared: SharedPrompts, plan: Plan, tests: _Tests
) -> list[Ranking]:
    """Tests two models on the prompts that they share, pair by pair."""
    if all(ranking.saturated for ranking in whole):
        return whole
    rankings, tested = [], dict[frozenset[str], list[Ranking]]()
    for two, count in shared.pairs.items():
        if shared.enough(count, two):
            plan.progress(f"prompts that {' and '.join(two)} share")
            *_, tested[frozenset(two)] = _ranked(rows.restricted(two), plan, tests)
    for place, ranking in enumerate(whole):
        differences = []
        for one, two in itertools.combinations(ranking.values, 2):
            value = ranking.values[one] - ranking.values[two]
            untested = Difference(one, two, value, reason=shared.reason)
            of_two = tested.get(frozenset((one, two)))
            differences.append(of_two[place].difference(one, two) if of_two else untested)
        winner = ranking.winner if any(d.reason is None for d in differences) else None
        rankings.append(_retested(ranking, _adjusted(differences), winner))
    return rankings


def _retested(ranking: Ranking, differences: Iterable[Difference], winner: Any) -> Ranking:
    """The ranking with other differences, and their letters."""
    changed: Any = {"differences": tuple(differences), "winner": winner}
    changed["letters"] = _letters(ranking.values, changed["differences"], ranking.level)
    return dataclasses.replace(ranking, **changed)


def with_texts(
    comparison: Comparison, dataset: datasets.Dataset | None, *, one_population: bool
) -> Comparison:
    """The comparison with advice on texts; models in scripts that are confused are not tested."""
    if dataset is None:
        return comparison
    evaluations = {**comparison.evaluations}
    for name, evaluation in evaluations.items():
        evaluations[name] = datasets.advised(evaluation, comparison.pairs[name], dataset, name)
    asked, said = dataset.asked, dataset.texts
    odd = matching.few(asked, dataset.fields) if comparison.shared_prompts else []
    odd += matching.copies({m: zip(asked.get(m, said[m]), said[m], strict=True) for m in said})
    advice = tuple(Advice("models", *words) for words in odd)
    known: Any = {"evaluations": evaluations, "read": dataset.read, "matching": advice}
    comparison, fewer, left_out = dataclasses.replace(comparison, **known), {}, []
    if apart := limits.apart(dataset.scripts):
        return _untested(comparison, apart)
    if not any(item.code == DOUBT for item in comparison.advice):
        return comparison
    for name, pairs in comparison.pairs.items():
        of_model = [text.strip() for text in dataset.texts[name]]
        common = answers.recurring(of_model, pairs.prompt_kinds[1].tolist())
        left_out += [text for text in of_model if text in common]
        fewer[name] = pairs.gathered().rows(np.flatnonzero([t not in common for t in of_model]))
    if not left_out:
        return comparison
    main, first = comparison.main[0], comparison.first
    try:
        errors = any(scored.errors_by for scored in first.orders)
        how: Any = {"orders": [main.order], "truncation": main.truncation, "errors": errors}
        how |= {"unbiased": first.unbiased, "level": comparison.level, "seed": first.seed}
        words = str(compare(fewer, one_population=one_population, profile=False, **how).main[0])
    except ValueError as error:
        words = f"not compared ({error})"
    whose = f"the {len(left_out):,} rows of {len({*left_out})} texts that answer many prompts"
    without = "" if words == str(main) else f"Without {whose}: {words}"
    return dataclasses.replace(comparison, without=without)


def _untested(comparison: Comparison, apart: Collection[frozenset[str]]) -> Comparison:
    """The comparison without tests of models that are `apart`, and without what rests on them."""
    why = reasons.SCRIPTS

    def untested(of_two: Difference) -> Difference:
        return Difference(*of_two[:3], reason=why) if {*of_two[:2]} in apart else of_two

    rankings = tuple(_retested(r, map(untested, r.differences), None) for r in comparison.rankings)
    failed = {**comparison.failed, "overlaps": why}
    over = comparison.profile and dataclasses.replace(comparison.profile, reason=why)
    changed: Any = {"rankings": rankings, "between": None, "profile": over, "failed": failed}
    return dataclasses.replace(comparison, **changed)


def _compared(
    scored: Mapping[str, ScoredOrder],
    pairs: Mapping[str, Pairs],
    plan: Plan,
    common: Common,
    units: Units | None,
) -> dict[str, AtDesign]:
    """Models by one order, at one design. Unbiased scores have that of the fewest prompts."""
    known: dict[str, Population] = {m: s.population for m, s in scored.items() if s.population}
    if known and (plan.unbiased or common.design is not None):
        shares = common.shares(known.values(), unbiased=plan.unbiased)
        at = {name: population.at(*shares) for name, population in known.items()}
        return {
            name: AtDesign(score.values, score.errors, score.intervals if plan.unbiased else None)
            for name, score in at.items()
        }
    compared = {}
    for name, result in scored.items():
        whole = result.decomposition
        ends = whole.intervals if whole.estimation else None
        compared[name] = AtDesign(whole.scores, None if common.reason else result.errors, ends)
        if common.design is not None:
            entropy = Entropy(whole.order, whole.truncation)
            plan.progress(f"order {entropy.order:g} of {name} at {common.design}")
            groups = units and units.of_models[name]
            inputs = pairs[name], entropy, plan.method, groups, common.design
            compared[name] = designs.at_design(*inputs, seed=plan.seed)
    return compared


def _ranking(
    score: str,
    scored: Mapping[str, ScoredOrder],
    compared: Mapping[str, AtDesign],
    tests: _Tests,
    same: Collection[frozenset[str]],
    *,
    unbiased: bool,
) -> Ranking:
    first = next(iter(scored.values())).decomposition
    entropy = Entropy(order=first.order, truncation=first.truncation)
    rounding = saturation.rounding(entropy, first.dtype)
    values = {name: float(getattr(result.scores, score)) for name, result in compared.items()}
    of_limit = "vendi" if score == "near" else score
    near: dict[str, Any] = {name: result.saturated.get(of_limit) for name, result in scored.items()}
    limit = _limit(list(values.values()), near.values(), rounding)
    if limit == "equal" and tests.number > math.comb(len(values), 2):  # Beside other models.
        limit = None
    apart = {m: math.inf for m, end in near.items() if end == "largest" and values[m] > 0}
    if limit is None:  # Otherwise rounding would decide on the order, or the tail of a kernel.
        by = {**values, **apart}
        values = dict(sorted(values.items(), key=lambda item: -np.nan_to_num(by[item[0]], nan=-1)))

    def of_models(name_of: str) -> dict[str, Any]:
        """This score in results, of the models that have them, in the order of the values."""
        results = {name: getattr(compared[name], name_of) for name in values}
        return {m: getattr(result, score) for m, result in results.items() if result is not None}

    errors, ends = of_models("errors"), of_models("intervals")
    ends = {m: both for m, both in ends.items() if both and not math.isnan(both[0])}
    estimated: dict[str, Error] = dict(errors)
    if not unbiased:  # With the errors of samples and of spectra.
        estimated = {m: error.with_noise(ends.get(m)) for m, error in errors.items()}
        both = {m: Estimate.of(e, *scored[m].possible(of_limit)) for m, e in estimated.items()}
        ends |= {m: estimate.ends for m, estimate in both.items() if estimate.ends}

    def reason(pair: tuple[str, str]) -> reasons.Reason | None:
        """Why two models are not tested: they are the same, or near a limit of the score."""
        near_ends = (np.array([[near[m] == end] for m in pair]) for end in ("smallest", "largest"))
        numbers = np.array([[values[name]] for name in pair])
        (why,) = saturation.untested(of_limit, pair, numbers, saturation.Nearly(*near_ends))
        why = why or (reasons.EQUAL if limit == "equal" else None)
        return reasons.IDENTICAL if why and frozenset(pair) in same else why

    untested = {pair: why for pair in itertools.combinations(values, 2) if (why := reason(pair))}
    differences = _differences(values, estimated, tests, untested, rounding=rounding, same=same)
    if unbiased:  # What nearly always differs has no number, and so no difference from others.
        unknown = dict.fromkeys(("value", "standard_error", "detectable"), math.nan)
        differences = [d._replace(**unknown) if {*d[:2]} & {*apart} else d for d in differences]
    plain = {m: float(getattr(scored[m].decomposition.scores, of_limit)) for m in values}
    by_model = {m: errors[m].standard_error if m in errors else math.nan for m in values}
    scores = score, first.order, first.truncation, values, by_model, ends or None
    more: Any = {"saturated": limit, "plug_in": plain if of_limit == score else None}
    return _tested_ranking(scores, estimated, differences, tests, unbiased=unbiased, **more)


def _tested_ranking(
    scores: tuple[str, float, int | None, dict[str, float], dict[str, float], Any],
    errors: Mapping[str, Error],
    differences: Sequence[Difference],
    tests: _Tests,
    **more: Any,
) -> Ranking:
    """A ranking by `scores`, which are its first fields, with what the tests say."""
    letters = _letters(scores[3], differences, tests.level)
    tested = any(d.reason is None for d in differences[: len(errors) - 1])
    known = tested and not any(error.reason for error in errors.values())
    ends = [error.at_levels for error in errors.values()]
    winner = winner_interval(ends, tests.level) if known else None
    more |= {"level": tests.level, "margin": tests.margin, "winner": winner}
    return Ranking(*scores, tuple(differences), letters, **more)


def _letters(names: Iterable[str], pairs: Sequence[Difference], level: float) -> dict[str, str]:
    """The letters of models; empty for those of two that are not tested."""
    apart = {frozenset(d[:2]) for d in pairs if d.adjusted <= level}
    none = {name: "" for d in pairs if math.isnan(d.p_value) for name in d[:2]}
    return {**letter_display(list(names), apart), **none}


def _by_quality(qualities: Mapping[str, Quality], tests: _Tests) -> Ranking:
    """All models by the number of good and different outputs, which is a mean over prompts."""
    ordered = dict(sorted(qualities.items(), key=lambda item: -item[1].number.value))
    values = {name: float(quality.number.value) for name, quality in ordered.items()}
    intervals: Any = {name: quality.number.ends for name, quality in ordered.items()}
    errors = {name: quality.error for name, quality in ordered.items()}
    if (groups := 1 + int(min(error.freedom for error in errors.values()))) < FEWEST_TESTED:
        few = reasons.too_few(groups, "prompts", FEWEST_TESTED)
        tests = tests._replace(reason=tests.reason or few)
    differences = _differences(values, errors, tests, {}, rounding=1e-5)
    by_model = {name: quality.number.error for name, quality in ordered.items()}
    scores = "quality", 0, None, values, by_model, intervals
    draws = next(iter(ordered.values())).draws
    return _tested_ranking(scores, errors, differences, tests, draws=draws)


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
    errors: Mapping[str, Error],
    tests: _Tests,
    untested: Mapping[tuple[str, str], reasons.Reason],
    *,
    rounding: float,
    same: Collection[frozenset[str]] = (),
) -> tuple[Difference, ...]:
    """Every pair of models, with p-values or why there are none; `same` have the same rows."""
    differences = []
    for pair in itertools.combinations(values, 2):
        two = [errors[name] for name in pair if name in errors]
        missing = reasons.NO_ERRORS if len(two) < 2 else two[0].reason or two[1].reason
        if all(values[name] == math.inf for name in pair):
            missing = reasons.ALL_DIFFERENT
        reason = untested.get(pair) or tests.reason or missing
        difference = Difference(*pair, values[pair[0]] - values[pair[1]], reason=reason)
        if len(two) == 2:
            error = standard_error_apart(two[0], two[1], matched=tests.matched)
            difference = difference._replace(standard_error=error)
        if reason is None and frozenset(pair) in same:
            sure = {"p_value": 1.0, "equal_p_value": 0.0, "ratio_low": 1.0, "ratio_high": 1.0}
            difference = difference._replace(**sure)
        differences.append(difference)
    known = [d for d in differences if d.reason is None and math.isnan(d.p_value)]
    tested: Any = {d[:2]: d for d in _tested(known, errors, tests, rounding)} if known else {}
    return _adjusted([tested.get(d[:2], d) for d in differences])


def _tested(
    untested: Sequence[Difference], errors: Mapping[str, Error], tests: _Tests, rounding: float
) -> list[Difference]:
    """Differences with their intervals and p-values, before those of others count."""
    names, matched = list(errors), tests.matched
    one, two = np.array([[names.index(name) for name in d[:2]] for d in untested]).T
    every: list[Any] = [*errors.values()]
    if all(error.inverse for error in every):  # The second less the first is tested.
        one, two, every = two, one, [error.inverse for error in every]
    pairs = [(every[a], every[b]) for a, b in zip(one, two, strict=True)]
    correlation = np.array([[a.correlation(b, matched=matched)] for a, b in pairs])
    error = np.array([standard_error_apart(a, b, matched=matched) for a, b in pairs])
    freedom = np.array([min(a.freedom, b.freedom) for a, b in pairs])
    values = np.array([[[e.value for e in pair] for pair in pairs]]).T
    ends = [intervals.of_several([e.at_levels for e in every], chosen) for chosen in (one, two)]
    apart, difference = intervals.difference(values, ends, correlation), values[0] - values[1]
    difference, sizes = difference[:, 0], np.abs(values[..., 0])
    low, high = (end[:, 0] for end in apart(np.array([tests.level / tests.number])))
    length = np.where(difference > 0, difference - low, high - difference)
    quotient = intervals.quotient(values, ends, correlation)(np.array([tests.level]))

    def p_within(k: int) -> np.ndarray:
        """Of the test that number k of the two, times the margin, is above the other."""
        both = tests.margin * values[k], values[1 - k]
        of_both = intervals.scaled(tests.margin, ends[k]), ends[1 - k]
        return intervals.p_value(intervals.difference(both, of_both, correlation), sides=1)

    rounded = np.abs(difference) <= rounding * sizes.max(axis=0)
    p_values = np.where(rounded, 1, intervals.p_value(apart))
    smallest = ratio_of(detectable(length, error, freedom), np.sqrt(np.abs(np.prod(sizes, axis=0))))
    names_of = ("ratio_low", "ratio_high", "p_value", "equal_p_value", "detectable")
    equal = np.maximum(p_within(0), p_within(1))
    columns = *(end[:, 0] for end in quotient), p_values, equal, smallest
    rows = zip(untested, np.stack(columns, axis=1).tolist(), strict=True)
    return [d._replace(**dict(zip(names_of, row, strict=True))) for d, row in rows]


def _adjusted(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    names = ("p_value", "equal_p_value")
    adjusted = [holm([getattr(d, name) for d in differences]) for name in names]
    rows = zip(differences, *adjusted, strict=True)
    return tuple(d._replace(adjusted=p, equal_p_value=equal) for d, p, equal in rows)
