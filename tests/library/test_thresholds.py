"""What is tested, and how, at every threshold and beside it; letters and intervals agree."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from pairs_of_errors import minus, over, p_value

import condvendi_jax as cv
from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import comparisons, profiles, saturation
from condvendi_jax.inference import errors as errors_of
from condvendi_jax.inference.errors import Groups
from condvendi_jax.results.evaluation import ErrorsBy
from condvendi_jax.statistics import reasons
from condvendi_jax.statistics.influences import Error, root_mean_square

EXACT = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}


def rows(n, weights=None):
    outputs = np.arange(n, dtype=np.float32)[:, None]
    return cv.Pairs(outputs, output_kernel=cv.Gaussian(9.0), weights=weights)


@pytest.mark.parametrize(
    ("units", "entropy", "fewest"),
    [
        ("rows", cv.Entropy(2), 20),
        ("rows", cv.Entropy(1), 20),
        ("given labels", cv.Entropy(2), 7),
        ("given labels", cv.Entropy(1), 50),
        ("given labels", cv.Entropy(2, 5), 50),
    ],
)
def test_the_fewest_units_whose_influences_make_an_error(units, entropy, fewest):
    for count, few in ((fewest, False), (fewest - 1, True)):
        groups = Groups(np.arange(count), units)
        reason = errors_of.too_few(rows(count), groups, entropy)
        assert (reason is not None) == few
        assert not few or reason == f"there are fewer than {fewest} {units}"


def test_rows_of_unequal_weights_count_for_fewer():
    """Of 21 one has the weight w: (20 + w)^2 / (20 + w^2) is 19.66, which is 20, and 19.48."""
    for w, few in ((2.3, False), (2.4, True)):
        groups, pairs = Groups(np.arange(21), "rows"), rows(21, np.r_[w, np.ones(20)])
        assert (errors_of.too_few(pairs, groups, cv.Entropy(2)) is not None) == few


def test_copies_of_a_row_are_units_of_their_own():
    changes, copies = np.array([[1.0, -2.0, 0.5, 1.2]]), np.array([1, 3, 2, 2])
    errors = []
    for times, weights in ((np.ones(4, int), copies), (copies, None)):
        pairs, of_rows = rows(times.sum(), weights), np.repeat(changes, times, axis=1)
        units = Groups(np.arange(times.sum()), "rows")
        errors.append(root_mean_square(errors_of.unit_influences(of_rows, pairs, units)))
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-6)


def test_an_interval_of_an_estimated_spectrum_is_that_of_a_normal_variable():
    error = Error(2.0, np.full((1, 4), 0.3)).with_noise(scipy.stats.norm.interval(0.95, 2, 0.4))
    assert error.standard_error == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(("units", "modes"), [("rows", 4.0), ("given labels", 20.0)])
def test_the_share_of_modes_at_which_derivatives_do_not_do(units, modes):
    """0.1 of 40 rows, and 0.5 of the rows of groups."""
    groups = Groups(np.arange(40), units)

    def reason(times, **other):
        whole = {"order": 1, "truncation": None, "entropies": (0.5, math.log(modes * times))}
        deleted = other.pop("deleted", False)
        whole = SimpleNamespace(**whole | other)
        found = SimpleNamespace(decomposition=whole, deleted=deleted)
        return errors_of.too_many_modes(rows(40), found, groups)

    assert reason(0.999) is None
    assert reason(1.001) == f"40 rows are few for {modes:.0f} modes"
    assert reason(2, order=2) is reason(2, truncation=5) is reason(2, deleted=True) is None
    assert reason(2, order=1.99) is not None


def scored(groups, kept=None, units="prompts"):
    by = None if groups is None else ErrorsBy("influences", groups, units, None)
    population = None if kept is None else SimpleNamespace(freedom=kept - 1)
    return SimpleNamespace(errors_by=by, population=population)


@pytest.mark.parametrize(
    ("orders", "fewest"),
    [
        ([scored(7)], None),
        ([scored(6)], 6),
        ([scored(9), scored(6)], 6),
        ([scored(9, kept=7)], None),
        ([scored(9, kept=6)], 6),  # Of nine prompts six have several answers.
        ([scored(9, kept=1)], None),  # Of one nothing is known, which is another reason.
    ],
)
def test_seven_groups_are_the_fewest_of_a_test(orders, fewest):
    found = comparisons._too_few(orders, SimpleNamespace(unbiased=True))
    assert found == (fewest and reasons.too_few(fewest, "prompts", 7))


def test_groups_of_unbiased_scores_count_where_these_are_tested():
    plan = SimpleNamespace(unbiased=False)
    assert comparisons._too_few([scored(9, kept=6)], plan) is None
    assert comparisons._too_few([scored(None)], plan) == reasons.NO_ERRORS
    assert comparisons._too_few([], plan) is None


@pytest.mark.parametrize(("prompts", "tested"), [(7, True), (6, False)])
def test_seven_prompts_are_the_fewest_of_a_test_of_quality(prompts, tested):
    rng, qualities = np.random.default_rng(0), {}
    for name, value in (("a", 2.0), ("b", 3.0)):
        error = Error(value, rng.normal(size=(1, prompts)) / 9, "prompts", prompts - 1)
        number = SimpleNamespace(value=value, ends=error.interval(), error=error.standard_error)
        qualities[name] = SimpleNamespace(number=number, error=error, draws=4)
    found = comparisons._by_quality(qualities, comparisons._Tests(0.05, 1.1, 1))
    assert [*found.values] == ["b", "a"] and found.draws == 4
    (difference,) = found.differences
    expected = None if tested else reasons.too_few(6, "prompts", 7)
    assert difference.reason == expected and math.isnan(difference.p_value) != tested


def difference_of(errors, tests, *, rounding=0.0):
    values = {name: error.value for name, error in errors.items()}
    return comparisons._differences(values, errors, tests, {}, rounding=rounding)[0]


def test_errors_of_differences_hold_those_of_the_estimates():
    """An estimate's own error is in no influence."""
    of_groups = np.array([[[0.3, -0.1, 0.2]], [[0.1, 0.1, -0.2]]])
    errors = {"a": Error(5.0, of_groups[0], freedom=2), "b": Error(3.0, of_groups[1], freedom=2)}
    noise = {"a": 0.4, "b": 0.3}
    noisy = {name: dataclasses.replace(errors[name], noise=noise[name]) for name in noise}
    jackknife = np.sqrt((0.2**2 + 0.2**2 + 0.4**2) / 3)
    tests = comparisons._Tests(level=0.05, margin=2.0, number=1)
    exact, estimated = difference_of(errors, tests), difference_of(noisy, tests)
    assert exact.standard_error == pytest.approx(jackknife)
    assert estimated.standard_error == pytest.approx(np.hypot(jackknife, 0.5))
    assert estimated.p_value > exact.p_value
    # b is at least half of a: 2 b - a is above 0 by 1.
    room = np.array([2 * 0.1 - 0.3, 2 * 0.1 + 0.1, -2 * 0.2 - 0.2])
    error = np.hypot(np.sqrt(np.mean(room**2)), np.hypot(0.4, 2 * 0.3))
    assert estimated.equal_p_value == pytest.approx(scipy.stats.t.sf(1 / error, 2), rel=1e-4)


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_ratios_are_at_the_level_of_the_tests(level):
    """And the smallest ratio that is found is of one of three tests."""
    rng = np.random.default_rng(0)
    errors = {m: Error(x, rng.normal(size=(1, 9)), freedom=8) for m, x in (("a", 9.0), ("b", 7.0))}
    tests = comparisons._Tests(level, 1.1, 3, matched=False)
    found = difference_of(errors, tests)
    expected = over(errors["a"], errors["b"], matched=False, level=level)
    assert (found.ratio_low, found.ratio_high) == expected
    error = math.hypot(*(of.standard_error for of in errors.values()))
    smallest = error * (scipy.stats.t.isf(level / 6, 8) + scipy.stats.t.ppf(0.8, 8))
    root = math.sqrt(found.detectable)
    assert root - 1 / root == pytest.approx(smallest / math.sqrt(63))


def test_values_that_differ_by_rounding_have_no_test():
    tests = comparisons._Tests(0.05, 1.1, 1)
    rng = np.random.default_rng(0)
    one = Error(2.0, 1e-9 * rng.normal(size=(1, 9)), freedom=8)
    for apart, p in ((0.99e-6, 1.0), (1.01e-6, 0.0)):
        two = Error(2 * (1 - apart), 1e-9 * rng.normal(size=(1, 9)), freedom=8)
        found = difference_of({"a": one, "b": two}, tests, rounding=1e-6)
        assert found.p_value == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "near", "expected"),
    [
        ([2.0, 2.0 * (1 - 0.99e-5)], [None, None], "equal"),
        ([2.0, 2.0 * (1 - 1.01e-5)], [None, None], None),
        ([2.0, 3.0], ["largest", "largest"], "largest"),
        ([2.0, 3.0], ["largest", None], None),
        ([1.0, 1.0], ["smallest", "smallest"], "smallest"),
        ([5.0, 5.0], ["largest", "largest"], "equal"),
        ([math.nan, 5.0], ["largest", "largest"], None),
        ([math.inf, math.inf], ["largest", "largest"], "largest"),
        ([5.0], [None], None),
    ],
)
def test_the_limit_of_all_models(values, near, expected):
    assert comparisons._limit(values, near, 1e-5) == expected


def difference(one, two, p, adjusted=None):
    adjusted = p if adjusted is None else adjusted
    return comparisons.Difference(one, two, 1.0, p_value=p, adjusted=adjusted)


def test_letters_part_models_at_the_level():
    values, apart = {"a": 3.0, "b": 2.0}, {"a": "a", "b": "b"}
    assert comparisons._letters(values, [difference("a", "b", 0.01, 0.05)], 0.05) == apart
    shared = comparisons._letters(values, [difference("a", "b", 0.01, 0.0501)], 0.05)
    assert shared == {"a": "a", "b": "a"}
    none = comparisons._letters(values, [difference("a", "b", math.nan)], 0.05)
    assert none == {"a": "", "b": ""}


def curve(values, influences, limits=None):
    """One score `[bandwidths]` with influences `[bandwidths, units]`."""
    freedom = influences.shape[-1] - 1
    both = zip(values, influences, strict=True)
    errors = [Error(value, of[None], freedom=freedom) for value, of in both]
    none = np.zeros((3, len(values)), bool)
    limits = limits or saturation.Nearly(none, none)
    return profiles.Curve([PerScore(*[of] * 3) for of in errors], limits)


def test_a_band_of_few_units_is_that_of_student():
    """At one bandwidth, of 5,000 draws with three degrees of freedom: 3.18, not 1.96."""
    of = np.array([[0.1, -0.1, 0.1, -0.1]])
    tested = profiles.Tested({"a": curve([1.0], of)}, True, 0.05, 0, 1e-6)
    (((low, high),),), none = tested.of_score("vendi")
    width = 0.1 * scipy.stats.t.isf(0.025, 3)
    np.testing.assert_allclose([low, high], [1 - width, 1 + width], rtol=0.03)
    assert none == []


@pytest.mark.parametrize("matched", [True, False])
def test_a_sign_of_few_units_is_that_of_student(matched):
    rng = np.random.default_rng(0)
    one, two = 0.1 * rng.normal(size=(2, 1, 5))
    two += 0.8 * one
    curves = {"a": curve([1.0], one), "b": curve([1.25], two)}
    tested = profiles.Tested(curves, matched, 0.05, 0, 1e-6)
    (pair,) = tested.of_score("vendi")[1]
    both = Error(1.0, one, freedom=4), Error(1.25, two, freedom=4)
    expected = p_value(minus(*both, matched=matched))
    assert 0.01 < expected < 0.3
    assert pair.p_value == pytest.approx(expected, abs=0.02)
    assert pair.adjusted == pair.p_value
    sign = -1 if pair.p_value < 0.05 else 0
    assert pair.signs.tolist() == [sign]


def test_the_level_apart_is_the_p_value_of_the_difference():
    rng = np.random.default_rng(1)
    one, two = 0.1 * rng.normal(size=(2, 3, 9))
    two += 0.5 * one
    values = np.array([1.0, 1.1, 1.0]), np.array([1.1, 1.1, 1.6])
    drawn = [
        profiles._Drawn.of(curve(v, i), "vendi", 1e-6)
        for v, i in zip(values, (one, two), strict=True)
    ]
    correlation = np.mean(drawn[0].relative * drawn[1].relative, axis=1)
    found = drawn[0].level_apart(drawn[1], correlation)
    both = zip(drawn[0].errors, drawn[1].errors, strict=True)
    expected = [p_value(minus(a, b, matched=True)) for a, b in both]
    np.testing.assert_allclose(found, expected, rtol=0.01)
    assert found[1] == 1


def test_a_level_below_which_0_is_inside_again_does_not_count_at_a_bandwidth():
    """Of the levels of both ends alone, 1e-3 to 0.03: there the ends hold 0."""

    def ends(level):
        inside = (level > 1e-3) & (level < 0.03)
        return np.where(inside, 0.5, 0.9), np.full_like(level, 1.1)

    one = dataclasses.replace(Error(1.0, np.full((1, 4), 0.1)), ends=ends)
    two = dataclasses.replace(Error(0.8, np.full((1, 4), 0.0)), ends=lambda _: (0.8, 0.8))
    none = saturation.Nearly(*[np.zeros((3, 1), bool)] * 2)
    drawn = [
        profiles._Drawn.of(profiles.Curve([PerScore(*[of] * 3)], none), "vendi", 1e-6)
        for of in (one, two)
    ]
    (found,) = drawn[0].level_apart(drawn[1], 0.0)
    assert 0.024 < found < 0.037


def test_what_may_overflow_is_not_known():
    for size, known in ((0.9e150, True), (1.1e150, False)):
        found = profiles._finite(Error(1.0, np.full((1, 1), size)))
        assert (found.reason is None) == known
        assert known or found.reason == reasons.OVERFLOW


def test_a_band_is_the_interval_at_the_level_of_the_largest_of_the_draws():
    error = Error(2.0, np.full((1, 8), 0.3), freedom=7)
    model = SimpleNamespace(errors=[error], scores=[error], kept=np.array([True]))
    draws = np.full((20, 1), -scipy.stats.t.isf(0.005, 7))
    (found,) = profiles.Tested({}, False, 0.05, 0, 1e-6)._band(draws, model, 7)
    np.testing.assert_allclose(found, error.interval(0.01))
