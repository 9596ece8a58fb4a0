"""Studies planned from a pilot, and models stated to be equal, against brute force in NumPy."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.stats
from canonical import N
from oracles import components, difference_ends, equality_p_value, gaussian_gram, prompt_mean_ends

import condvendi_jax as cv
from condvendi_jax.inference import population
from condvendi_jax.spectra import order_two
from condvendi_jax.statistics.power import Spread, unseen_variance

PROMPTS, EACH = 12, N // 12
KINDS = np.repeat(np.arange(PROMPTS), EACH)
KERNELS = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Indicator(), "orders": [2]}
PLAIN = {"profile": False, **KERNELS}


def answers(seed, spread=1.0):
    """Answers in the plane, some prompts with wider ones than others."""
    rng = np.random.default_rng(seed)
    widths = spread * np.repeat(rng.uniform(0.3, 2, PROMPTS), EACH)
    return (widths[:, None] * rng.normal(size=(N, 2))).astype(np.float32)


MODELS = {"a": answers(1), "b": answers(2), "c": answers(3, 1.5)}


def moments(outputs):
    """U, zeta_1 and delta of each prompt."""
    points = outputs.reshape(PROMPTS, EACH, 2)
    return np.transpose([components(gaussian_gram(prompt, 1.0)) for prompt in points])


def evaluated(outputs, *prompts, **options):
    return cv.evaluate(outputs, *prompts, **(KERNELS | options))


@pytest.fixture(scope="module")
def compared():
    return cv.compare(MODELS, KINDS, **PLAIN)


def test_the_error_of_few_answers_is_at_least_that_of_equally_common_ones():
    """Of a, a, b, b, b: U is 0.4, and of two pairs of four answers both are alike in 0.2."""
    outputs = np.tile([0, 0, 1, 1, 1], 3)
    pairs = cv.Pairs(outputs, np.repeat(np.arange(3), 5), rule="median")
    of = order_two.Answers.of(pairs.under((cv.Indicator(), cv.Indicator())))
    found = population.components_of(of, of.inside())
    np.testing.assert_allclose(found.within(), 0.4**2 - 0.2, rtol=1e-5)
    weights = np.array([0.5, 0.25, 0.25])
    expected = math.sqrt(np.sum(weights**2) * 2 / 20 * (0.4 - 0.2))
    assert found.error(weights) == pytest.approx(expected, rel=1e-5)


def spread_of(one, two):
    """Between prompts, zeta_1 and delta of the paired difference of two models."""
    (first, *of_first), (second, *of_second) = moments(MODELS[one]), moments(MODELS[two])
    zeta_1, delta = np.mean(np.add(of_first, of_second), axis=1)
    within = 4 * zeta_1 / EACH + 2 * delta / (EACH * (EACH - 1))
    return np.var(first - second, ddof=1) - within, zeta_1, delta, first - second


@pytest.mark.parametrize("pair", ["ab", "ac", "bc"])
def test_the_spread_of_a_difference_has_three_components(compared, pair):
    found = cv.plan(compared, models=[*pair]).spread
    between, zeta_1, delta, difference = spread_of(*pair)
    expected = max(between, 0), max(zeta_1, 0), max(delta, 0)
    np.testing.assert_allclose(found[2:5], expected, rtol=1e-4, atol=1e-6)
    squares = (difference - difference.mean()) ** 2
    error = squares.std() / math.sqrt(PROMPTS) / squares.mean()
    assert found.relative_error == pytest.approx(max(error, math.sqrt(2 / 11)), rel=1e-4)
    means = [moments(MODELS[name])[0].mean() for name in pair]
    assert found.similarity == pytest.approx(math.sqrt(math.prod(means)), rel=1e-5)


def power_of(spread, prompts, k, ratio, level):
    """Of a t-test, in the mean over a normal logarithm of the variance, by 20 equal parts."""
    variance = spread.between + 4 * spread.of_answers / k + 2 * spread.of_pairs / (k * (k - 1))
    effect = spread.similarity * (math.sqrt(ratio) - 1 / math.sqrt(ratio))
    parts = scipy.stats.norm.ppf((np.arange(20) + 0.5) / 20)
    errors = np.sqrt(variance * np.exp(spread.relative_error * parts) / prompts)
    student = scipy.stats.t(prompts - 1)
    return np.mean(student.cdf(effect / errors - student.ppf(1 - level / 2)))


def test_the_smallest_number_of_prompts_reaches_the_power(compared):
    planned = cv.plan(compared, ratio=1.2, prompt_cost=3, power=0.9)
    assert (planned.level, planned.pairs) == (0.05 / 3, 3)
    for size in planned.sizes:
        assert size.cost == size.prompts * (3 + size.answers)
        at = (size.answers, 1.2, planned.level)
        assert power_of(planned.spread, size.prompts, *at) == pytest.approx(size.power)
        assert size.power >= 0.9 > power_of(planned.spread, size.prompts - 1, *at)
    assert planned.best == min(planned.sizes, key=lambda size: size.cost)
    assert planned.reached and f"{planned.best.prompts:,} prompts" in str(planned)
    spreads = [cv.plan(compared, models=pair).spread for pair in itertools.combinations("abc", 2)]
    assert planned.spread.relative == max(spread.relative for spread in spreads)


def test_prompts_that_a_pilot_has_not_seen_may_add_to_the_variance(compared):
    """The upper end at 95% of one side of a mean of squares, which two models add up.

    Of ten zeros: t is 1.833113, 0.810337 of that at 5%, so that 0.0162067 is added, of the variance
    0.00162067; the skewness is 1.25 * 0.810337 * 0.1 / 0.0402576.
    """
    zeros = (0.0162067 + 0.0402576 * (2.516113 + math.hypot(1.833113, 2.516113))) / 1.0162067
    assert unseen_variance(np.zeros(10)) == pytest.approx(zeros, rel=1e-5)
    *_, difference = spread_of("a", "c")
    squares = (difference - difference.mean()) ** 2 * PROMPTS / (PROMPTS - 1)
    excess = prompt_mean_ends(squares, 0.1)[1] - squares.mean()
    assert cv.plan(compared, models=["a", "c"]).spread.unseen == pytest.approx(excess, rel=1e-4)
    values, *_ = moments(MODELS["a"])
    squares = (values - values.mean()) ** 2 * PROMPTS / (PROMPTS - 1)
    excess = prompt_mean_ends(squares, 0.1)[1] - squares.mean()
    alone = cv.plan(evaluated(MODELS["a"], KINDS)).spread
    assert alone.unseen == pytest.approx(math.sqrt(2) * excess, rel=1e-4)


SPREAD = Spread("conditional", 0.25, 0.01, math.nan, math.nan, 0.2, 30, 5.0, 0.02)


def test_a_plan_says_how_many_prompts_it_may_take():
    """With the variance at its ends, or with that of unseen prompts, where this is more."""
    effect = SPREAD.effect(1.2)
    low, high = SPREAD.needed_range(5, 0.8, effect, 0.05)
    for prompts, variance in ((low, 0.01 * math.exp(-0.329)), (high, 0.03)):
        for at_least, count in ((True, prompts), (False, prompts - 1)):
            student = scipy.stats.t(count - 1)
            shift = effect / math.sqrt(variance / count) - student.ppf(0.975)
            assert (student.cdf(shift) >= 0.8) == at_least
    seen = SPREAD._replace(unseen=0.0).needed_range(5, 0.8, effect, 0.05)
    assert seen[0] == low and high > seen[1]
    assert seen[1] == SPREAD.needed(5, 0.8, effect, 0.05, 1.645, most=10**7) > 1.5 * low


@pytest.mark.parametrize(("most", "first"), [(300, None), (301, 150)])
def test_a_pilot_is_too_small_where_three_times_the_prompts_may_be_needed(compared, most, first):
    planned = cv.plan(compared, ratio=1.2)
    best = planned.best._replace(prompts=100)
    plan = dataclasses.replace(planned, spread=SPREAD, best=best, needed=(40, most))
    assert plan.larger_pilot == plan.as_dict()["larger_pilot"] == first
    assert f"it may take 40 to {most} prompts" in str(plan)
    assert ("This pilot is too small: ask 150 prompts first" in str(plan)) == bool(first)
    many = dataclasses.replace(plan, spread=SPREAD._replace(prompts=90))
    assert many.larger_pilot == (first and 180)
    rows = dataclasses.replace(plan, spread=SPREAD._replace(unseen=0.0))
    assert rows.larger_pilot == (first and 60)
    none = dataclasses.replace(plan, needed=None)
    assert none.larger_pilot is None and "may take" not in str(none)


def test_a_plan_says_whether_more_answers_than_the_pilots_may_help(compared):
    """Of the variance 0.01 + 2 * pairs / 20, at the five answers of the pilot."""
    planned = cv.plan(compared, ratio=1.2)
    for pairs, k, said in ((0.08, 5, "56% is"), (0.12, 4, "45% is"), (0.12, 5, "More than 5")):
        spread = SPREAD._replace(of_answers=0.0, of_pairs=pairs)
        best = planned.best._replace(answers=k)
        assert said in str(dataclasses.replace(planned, spread=spread, best=best))


def test_a_range_is_that_of_the_best_size(compared):
    planned = cv.plan(compared, ratio=1.2)
    options = planned.power, planned.spread.effect(1.2), planned.level
    assert planned.needed == planned.spread.needed_range(planned.best.answers, *options)
    low, high = planned.needed
    assert low < planned.best.prompts < high
    assert cv.plan(compared, ratio=1.001, prompts=20).needed is None
    assert cv.plan(compared, budget=400).needed is None


def test_a_budget_finds_the_smallest_ratio(compared):
    planned = cv.plan(compared, models=["b", "a"], budget=400, level=0.01)
    assert (planned.models, planned.level, planned.pairs) == (("b", "a"), 0.01, 1)
    assert all(size.prompts == 400 // size.answers for size in planned.sizes)
    assert planned.best.ratio == min(size.ratio for size in planned.sizes)
    at = (planned.best.prompts, planned.best.answers, planned.best.ratio, 0.01)
    assert power_of(planned.spread, *at) == pytest.approx(0.8, abs=1e-4)
    low, high = planned.open_power
    assert low < 0.8 < high and "a budget of 400" in str(planned)


def test_pairs_of_answers_are_a_pilot_of_two_answers():
    pairs = evaluated(MODELS["a"], np.arange(N) // 2)
    assert {size.answers for size in cv.plan(pairs).sizes} == {2}


def test_few_prompts_cannot_find_a_small_difference(compared):
    planned = cv.plan(compared, ratio=1.001, prompts=20)
    assert not planned.reached and planned.best.prompts == 20
    assert "cannot be found" in str(planned)
    assert {size.answers for size in planned.sizes} == {2, 3, 4}  # The pilot has four.
    both = cv.plan(compared, ratio=2.0, budget=1e6)
    assert both.best == cv.plan(compared, ratio=2.0).best and both.reached
    assert not cv.plan(compared, ratio=1.1, budget=50).reached


def test_one_model_stands_for_two_without_anything_in_common():
    planned = cv.plan(evaluated(MODELS["a"], KINDS))
    values, *_ = moments(MODELS["a"])
    whole = planned.spread.variance(EACH)
    assert whole == pytest.approx(2 * np.var(values, ddof=1), rel=1e-4)
    assert planned.best == cv.plan(cv.compare({"a": MODELS["a"]}, KINDS, **PLAIN)).best


def test_the_spread_of_rows_and_of_similar_prompts_is_that_of_errors():
    outputs, kernel = {name: MODELS[name] for name in "ab"}, {"prompt_kernel": cv.Gaussian(1.0)}
    prompts = np.linspace(0, 2, N, dtype=np.float32)[:, None]
    for given, count in ((prompts, N), (prompts[KINDS], PROMPTS)):
        pilot = cv.compare(outputs, given, **PLAIN | kernel)
        planned = cv.plan(pilot)
        of_models = [of.order(2).population for of in pilot.evaluations.values()]
        difference = np.subtract(*(of.influences.conditional for of in of_models))
        variance = count * np.mean(difference**2) * count / (count - 1)
        assert planned.spread.variance(1) == pytest.approx(variance) and not planned.spread.unseen
        assert planned.spread[6:8] == (count, N / count)
        assert planned.best.answers == N / count
    alone = cv.plan(cv.compare(outputs, **PLAIN | {"prompt_kernel": None}))
    assert alone.spread.score == "vendi" and "outputs" in str(alone)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ratio": 1.0}, "ratio: expected a finite number above 1"),
        ({"power": 1.0}, "power: expected a number between 0.5 and 1"),
        ({"level": 0}, "level: expected a number between 0 and 1"),
        ({"prompts": 4}, "prompts: expected an integer of at least 7"),
        ({"prompt_cost": -1}, "prompt_cost: expected"),
        ({"budget": 9}, "budget: expected at least 14"),
        ({"models": ["a", "z"]}, "models: expected two of"),
        ({"models": "ab"}, "models: expected two of"),
        ({"models": ["a", "b", "a"]}, "models: expected two of"),
    ],
)
def test_bad_plans_are_refused(compared, options, words):
    with pytest.raises(ValueError, match=words):
        cv.plan(compared, **options)


SAME = np.repeat(MODELS["a"][:PROMPTS], EACH, axis=0)  # Similarities of 1, up to rounding.
TWINS = {"a": MODELS["a"], "b": MODELS["a"]}


@pytest.mark.parametrize(
    ("pilot", "words"),
    [
        (lambda x: {"a": 1}, "pilot: expected what evaluate or compare returns"),
        (lambda x: evaluated(x, np.arange(N) // 12), "at least 7 prompts, better 30, received 4"),
        (lambda x: evaluated(x, np.zeros(N, int)), "pilot: expected at least 7 prompts"),
        (lambda x: evaluated(x, prompt_kernel=None, errors=False), "pilot: expected errors"),
        (lambda x: evaluated(SAME, KINDS), "the same for all prompts"),
        (lambda x: cv.compare(TWINS, KINDS, **PLAIN), "the same for all prompts"),
        (lambda x: evaluated(x, KINDS, orders=[3], errors=False), "expected scores of order 2"),
    ],
)
def test_bad_pilots_are_refused(pilot, words):
    with pytest.raises((TypeError, ValueError), match=words):
        cv.plan(pilot(MODELS["a"]))


def test_equality_is_two_one_sided_tests():
    with pytest.raises(ValueError, match="equal_ratio: expected a finite number above"):
        cv.compare(MODELS, KINDS, **PLAIN, equal_ratio=1.0)
    ranking = cv.compare(MODELS, KINDS, **PLAIN, equal_ratio=1.6).ranking("conditional", 2)
    of_prompts = {name: moments(outputs)[0] for name, outputs in MODELS.items()}
    expected, smallest = {}, {}
    for one, two in itertools.combinations(ranking.values, 2):
        a, b = of_prompts[one], of_prompts[two]
        expected[one, two] = equality_p_value(a, b, 1.6)
        low, high = difference_ends(a, b, 0.05 / 3)  # At the level of three pairs.
        apart = a.mean() - b.mean()
        error = np.std(a - b, ddof=1) / math.sqrt(PROMPTS)
        change = apart - low if apart > 0 else high - apart
        change += scipy.stats.t.ppf(0.8, PROMPTS - 1) * error
        smallest[one, two] = change / math.sqrt(a.mean() * b.mean())
    adjusted = dict(zip(expected, cv.inference.holm([*expected.values()]), strict=True))
    for found in ranking.differences:
        assert found.equal_p_value == pytest.approx(adjusted[found[:2]], rel=1e-3)
        ratio = math.sqrt(found.detectable)
        assert ratio - 1 / ratio == pytest.approx(smallest[found[:2]], rel=1e-3)


def test_equal_and_not_told_apart_are_two_sentences():
    twins = {"a": MODELS["a"], "twin": MODELS["a"][::-1].copy()[::-1], "c": MODELS["c"]}
    found = cv.compare(twins, KINDS, **PLAIN)
    assert "Equal within 10%: a - twin" in str(found)
    assert found.ranking("conditional", 2).equality().count("a - twin") == 1
    wide = cv.compare(MODELS, KINDS, **PLAIN, equal_ratio=1.0001)
    words = wide.ranking("conditional", 2).equality()
    assert "neither different nor equal within under 0.1%" in words.replace("Neither", "neither")
    missed = "this sample would miss differences below"
    assert missed in words and f"No difference is shown: {missed}" in str(wide)
    assert words.replace("%", "\\%") in str(cv.report.latex(wide, long=True))
    alone = cv.compare({"a": MODELS["a"]}, KINDS, **PLAIN)
    assert not alone.rankings[0].equality()
