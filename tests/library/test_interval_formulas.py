"""Intervals: values derived by hand, an independent program, and what holds of every interval."""

import math

import numpy as np
import pytest
import scipy.stats
from oracles import between_ends, mean_ends, mover

from condvendi_jax.statistics import intervals

LEVELS = (0.3, 0.1, 0.05, 0.01, 1e-4)
BESIDE = 1 + 1e-9


def fixed(low, high):
    """The same interval at every level."""
    return lambda _: (low, high)


def of_prompts(values):
    """The mean, its error, what it loses without each prompt, and the shares."""
    values = np.array(values, float)
    n, mean = values.size, values.mean()
    lost = (values - mean) / (n - 1)
    return mean, math.sqrt(np.sum(lost**2) * (n - 1) / n), lost, np.full(n, 1 / n)


def of_shares(seed, top=1.0, n=12):
    """The same of unequal shares, with values up to `top`."""
    rng = np.random.default_rng(seed)
    shares, values = rng.dirichlet(np.ones(n)), top * rng.random(n) ** 3
    mean = shares @ values
    lost = shares / (1 - shares) * (values - mean)
    return mean, 0.9 * math.sqrt(np.sum(lost**2)), lost, shares


@pytest.mark.parametrize(
    ("values", "level", "expected"),
    [
        ([0] * 10, 0.05, (0, 0.2998132803)),  # About 3 / P.
        ([0] * 10, 0.01, (0, 0.6061247500)),
        ([1] * 10, 0.05, (1 - 0.2998132803, 1)),
        ([1] + [0] * 9, 0.05, (0, 0.4826889538)),
        ([1] + [0] * 9, 0.01, (0, 0.7662167703)),
        ([0] + [1] * 9, 0.05, (0.5173110462, 1)),
        ([0, 1] * 5, 0.05, (0.1229738062, 0.8836779786)),  # At one half the bound is 0.
        ([0] * 4 + [1] * 5, 0.05, (0.1247093443, 0.9353356601)),
        ([0.25, 0.75] * 5, 0.05, (0.311487, 0.704741)),
        ([0.1, 0.2, 0.3, 0.4], 0.05, (0.044574, 0.744940)),
    ],
)
def test_a_mean_over_prompts_by_hand(values, level, expected):
    found = intervals.prompt_mean(*of_prompts(values))(level)
    np.testing.assert_allclose(found, expected, atol=6e-7)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("top", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_means_of_unequal_shares_are_those_of_an_independent_program(seed, top, level):
    moments = of_shares(seed, top)
    found = intervals.prompt_mean(*moments)(level)
    np.testing.assert_allclose(found, mean_ends(*moments, level), rtol=1e-9, atol=1e-12)
    found = intervals.between_mean(*moments)(level)
    np.testing.assert_allclose(found, between_ends(*moments, level), rtol=1e-7, atol=1e-12)
    one_less = 1 - moments[0], moments[1], -moments[2], moments[3]
    mirrored = intervals.shifted(1, intervals.scaled(-1, intervals.prompt_mean(*one_less)))(level)
    np.testing.assert_allclose(mirrored, mean_ends(*moments, level), rtol=1e-9, atol=1e-12)
    found = intervals.between_mean(*one_less)(level)
    np.testing.assert_allclose(found, between_ends(*one_less, level), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(("value", "half"), [(0.5, 0.5), (0.25, 0.5)])
def test_the_bound_is_0_up_to_one_half_and_1_above(value, half):
    """Of a mean, and of the root of a mean between prompts; the ends differ on both sides."""
    _, error, lost, shares = of_prompts([0.2, 0.3, 0.3, 0.3, 0.9])
    of, oracle = intervals.prompt_mean, mean_ends
    if value < half:
        of, oracle = intervals.between_mean, between_ends
    ends = []
    for at in (value, value * BESIDE):
        ends.append(of(at, error, lost, shares)(0.05))
        np.testing.assert_allclose(ends[-1], oracle(at, error, lost, shares, 0.05), rtol=1e-9)
    assert abs(ends[0][0] - ends[1][0]) > 0.01


def with_a_common_answer(m):
    """Ten prompts of which m have one sure answer, and the others none that recurs."""
    has = np.array([1.0] * m + [0.0] * (10 - m))
    between = m * (m - 1) / 90
    lost = between - (m * (m - 1) - 2 * has * (m - 1)) / 72
    lost -= lost.mean()
    return between, math.sqrt(0.9 * np.sum(lost**2)), lost, np.full(10, 0.1)


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        (0, (0, 0.155364709)),  # The square of .394162, of which ten have none or one in 5%.
        (1, (0, 0.155364709)),
        (2, (0, 0.7788257641)),
        (5, (0.0051133731, 0.7725952595)),
        (7, (0.0528326387, 0.9693486883)),
        (8, (0.1147333888, 1)),
        (10, (0.4902614424, 1)),
    ],
)
def test_a_mean_between_prompts_by_hand(m, expected):
    found = intervals.between_mean(*with_a_common_answer(m))(0.05)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_of_few_prompts_one_degree_of_freedom_is_left():
    """Two of unequal shares: 1 / sum of squares - 1 is below 1."""
    shares, lost = np.array([0.9, 0.1]), np.array([0.01, -0.02])
    found = intervals.prompt_mean(0.3, 0.001, lost, shares)(0.2)
    np.testing.assert_allclose(found, mean_ends(0.3, 0.001, lost, shares, 0.2), rtol=1e-9)


@pytest.mark.parametrize(
    ("value", "error", "level", "expected"),
    [
        (0.0, 0.1, 0.05, (0, (5.571643390938 / 40) ** 2)),  # At most one of a Poisson mean.
        (0.0, 0.1, 1e-40, (0, 1)),  # Not more than all pairs.
        (0.99e-12, 1e-14, 0.05, (0, (5.571643390938 / 40) ** 2)),
        (1e-12, 1e-14, 0.05, (0.978235e-12, 1.022249e-12)),
        (1.0, 0.1, 0.05, (1 - 3.688879454114 / 40, 1)),  # None of a Poisson mean.
        (1 - 0.99e-6, 0.1, 0.05, (1 - 0.99e-6 - 3.688879454114 / 40, 1)),
        (1 - 1.01e-6, 1.01e-7, 0.05, (1 - 1.2596e-6, 1 - 8.0985e-7)),
        (0.3, 0.1, 0.05, (0.1318353283, 0.5474151117)),
        (0.3, 0.1, 0.01, (0.0909706444, 0.6473120481)),
        (0.3, 0.3e-7 * BESIDE, 0.05, (0.2999999346, 0.3000000654)),
        (0.3, 0.3e-7 / BESIDE, 0.05, (0.3 - 3.688879454114 / 40, 0.3 + 3.688879454114 / 40)),
        (0.05, 0.0, 0.05, (0, 0.05 + 3.688879454114 / 40)),
        (0.3, 0.0, 0.01, (0.3 - math.log(200) / 40, 0.3 + math.log(200) / 40)),
    ],
)
def test_a_mean_over_pairs_of_rows_by_hand(value, error, level, expected):
    """12 degrees of freedom, 40 rows; a logit within Student's 2.178813 standard errors."""
    found = intervals.row_mean(value, error, 12, 40)(level)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if 0.01 < value < 0.9 else 3e-4)
    if error >= 1e-7 * value > 0.01e-7 and value < 1 - 1e-6:
        logit, width = math.log(value / (1 - value)), scipy.stats.t.isf(level / 2, 12) * error
        ends = logit + np.array([-1, 1]) * width / value / (1 - value)
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-ends)), rtol=1e-9)


def test_intervals_of_one_number_by_hand():
    t = scipy.stats.t.isf([0.025, 0.005], 9)
    np.testing.assert_allclose(intervals.student(9, [0.05, 0.01]), t)
    assert float(intervals.student(9)) == pytest.approx(t[0])
    found = intervals.symmetric(3.0, 0.2, 9)(np.array([0.05, 0.01]))
    np.testing.assert_allclose(found, [3 - 0.2 * t, 3 + 0.2 * t])
    found = intervals.ratio(2.0, 0.5, 9)(0.05)
    np.testing.assert_allclose(found, [2 * math.exp(-t[0] / 4), 2 * math.exp(t[0] / 4)])
    assert intervals.ratio(2.0, 1e6, 9)(0.05)[1] == pytest.approx(2 * math.exp(700))
    for value in (0.0, math.inf):
        assert np.array(intervals.ratio(value, 1.0, 9)(0.05)).tolist() == [0, math.inf]
    ends = fixed(0.2, 0.5)
    for of, expected in (
        (intervals.of_reciprocal, (2, 5)),
        (lambda ends: intervals.shifted(3, ends), (3.2, 3.5)),
        (lambda ends: intervals.scaled(3, ends), (0.6, 1.5)),
        (lambda ends: intervals.scaled(-3, ends), (-1.5, -0.6)),
        (lambda ends: intervals.inside(ends, 0.3, 0.4), (0.3, 0.4)),
        (lambda ends: intervals.inside(ends, 0.1, 0.6), (0.2, 0.5)),
        (intervals.open_below, (0, 0.5)),
        (lambda ends: intervals.open_below(ends, 0.9), (0, 0.9)),
    ):
        np.testing.assert_allclose(of(ends)(0.05), expected)


def test_one_over_what_may_be_0_is_infinite():
    for low, high in ((0.99e-12, math.inf), (1.01e-12, pytest.approx(1 / 1.01e-12))):
        assert intervals.of_reciprocal(fixed(low, 0.5), 1e-12)(0.05)[1] == high
    assert intervals.of_reciprocal(fixed(0.0, 0.0))(0.05) == (math.inf, math.inf)


def test_two_numbers_by_hand():
    both = (0.3, 0.1), (fixed(0.2, 0.5), fixed(0.05, 0.25))
    for r, expected in (
        (0.0, (0.2 - math.sqrt(0.1**2 + 0.15**2), 0.2 + math.sqrt(0.2**2 + 0.05**2))),
        (0.5, (0.2 - math.sqrt(0.0325 - 0.015), 0.2 + math.sqrt(0.0425 - 0.01))),
        (1.0, (0.15, 0.35)),
    ):
        np.testing.assert_allclose(intervals.difference(*both, r)(0.05), expected)
        np.testing.assert_allclose(mover((0.3, 0.1), ((0.2, 0.5), (0.05, 0.25)), r), expected)
    for r, expected in (
        (0.0, (1.0871191548, 7.0550504633)),
        (0.5, (1.3048349393, 5.4415184401)),
        (1.0, (1.6, 10 / 3)),
    ):
        np.testing.assert_allclose(intervals.quotient(*both, r)(0.05), expected)
    for r, expected in ((0.0, (0.4 - math.sqrt(0.0125), 0.65)), (1.0, (0.25, 0.75))):
        np.testing.assert_allclose(intervals.total(*both, r)(0.05), expected)
    # The distances of the mean, 0.1 and 0.2, times the slope, beside 0.05 and 0.15.
    for slope, (below, above) in ((2, (0.2, 0.4)), (-2, (0.4, 0.2))):
        mean, rest = fixed(*np.exp((0.2, 0.5))), fixed(*np.exp((0.05, 0.25)))
        found = intervals.joined(math.exp(0.1), rest, slope, math.exp(0.3), mean)(0.05)
        expected = 0.1 - math.hypot(0.05, below), 0.1 + math.hypot(0.15, above)
        np.testing.assert_allclose(np.log(found), expected)
    # The logarithm of an end that is 0 is that of 1e-300, and no exponential overflows.
    found = intervals.joined(1.0, fixed(0, 1), 1, 0.5, fixed(0.5, 0.5))(0.05)
    np.testing.assert_allclose(found, (1e-300, 1), rtol=1e-12)
    found = intervals.joined(1.0, fixed(1, 1), 3, 0.5, fixed(0, math.inf))(0.05)
    np.testing.assert_allclose(found, (0, math.exp(700)), rtol=1e-12)


def test_open_ends_make_open_differences_and_quotients():
    for correlation in (0.0, 1.0):
        both = (0.3, 0.1), (fixed(0.2, math.inf), fixed(0.05, math.inf))
        assert intervals.difference(*both, correlation)(0.05) == (-math.inf, math.inf)
    both = (0.3, 0.1), (fixed(0.2, 0.5), fixed(0.0, 0.25))
    assert intervals.quotient(*both)(0.05)[1] == math.inf
    # Ends that may be negative make no negative ratio.
    wide = fixed(-1.0, 2.0), fixed(-0.9, 1.7)
    assert intervals.quotient((0.5, 0.4), wide, 0.7)(0.05) == (0, math.inf)
    # Nothing is known where the upper end of the second is infinite.
    assert intervals.quotient(both[0], (both[1][0], fixed(0.05, math.inf)))(0.05)[0] == 0


@pytest.mark.parametrize(("t", "sides"), [(2.0, 2), (2.0, 1), (0.01, 2), (30.0, 2)])
def test_p_values_of_symmetric_intervals_are_those_of_student(t, sides):
    expected = scipy.stats.t.sf(t, 9) * sides
    for sign in (1, -1) if sides == 2 else (1,):
        ends = intervals.symmetric(sign * t, 1.0, 9)
        assert intervals.p_value(ends, sides=sides) == pytest.approx(expected, rel=1e-4)


def test_p_values_at_the_ends_of_what_is_looked_at():
    assert intervals.p_value(intervals.symmetric(0.0, 1.0, 9)) == 1
    assert intervals.p_value(intervals.symmetric(-1.0, 1.0, 9), sides=1) == 1
    for ends in ((0.0, 1.0), (-1.0, 0.0)):  # 0 is no further than an end.
        assert intervals.p_value(fixed(*ends)) == 1
    for ends in ((1.0, 2.0), (-2.0, -1.0)):
        assert intervals.p_value(fixed(*ends)) == pytest.approx(1e-30, rel=0.05)


def random_ends(seed):
    """A value with a function of the level, of each kind in turn."""
    rng = np.random.default_rng(seed)
    kind, moments = seed % 5, of_shares(seed, rng.uniform(0.1, 1), n=int(rng.integers(3, 30)))
    value, error = moments[:2]
    less = 1 - value, error, -moments[2], moments[3]
    return value, (
        intervals.prompt_mean(*moments),
        intervals.between_mean(*moments),
        intervals.row_mean(value, error, 9, 20),
        intervals.inside(intervals.symmetric(value, error, 9), 0, 1),
        intervals.shifted(1, intervals.scaled(-1, intervals.prompt_mean(*less))),
    )[kind]


@pytest.mark.parametrize("seed", range(25))
def test_ends_are_nested_in_the_level_and_contain_the_value(seed):
    levels = np.geomspace(1e-12, 1, 400)
    value, ends = random_ends(seed)
    other, of_other = random_ends(seed + 1)
    both = (value, other), (ends, of_other)
    for at, of, correlation in (
        (value, ends, 0),
        (1 / value, intervals.of_reciprocal(ends), 0),
        *((value - other, intervals.difference(*both, r), r) for r in (0.0, 0.6)),
        *((value + other, intervals.total(*both, r), r) for r in (0.0, -0.6)),
        *((value / other, intervals.quotient(*both, r), r) for r in (0.0, 0.6)),
    ):
        low, high = of(levels)
        room = 1e-9 * abs(at) + 1e-12
        assert np.all(low <= at + room) and np.all(at <= high + room)
        if not correlation:  # Else the ends of one that is at a bound grow no further.
            assert np.all(low[:-1] <= low[1:] + room) and np.all(high[1:] <= high[:-1] + room)


@pytest.mark.parametrize("inside", [-0.1, 0.0])
def test_a_level_below_which_0_is_inside_again_is_no_p_value(inside):
    """Up to the level 0.01 the ends exclude 0; from there to 0.03 they do not."""

    def ends(level):
        apart = (level < 0.01) | (level > 0.03)
        return np.where(apart, 0.1, inside), np.ones_like(level)

    for sides in (1, 2):
        p = intervals.p_value(ends, sides=sides)
        assert p == pytest.approx(0.03 * sides / 2, rel=0.02)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(20))
def test_tests_ratios_and_intervals_of_a_difference_agree(seed, correlation):
    (one, ends), (two, other) = random_ends(seed), random_ends(seed + 6)
    both = (one, two), (ends, other)
    difference = intervals.difference(*both, correlation)
    p = intervals.p_value(difference)
    for level in (p * 0.999, p * 1.001, 0.2, 0.05, 0.001):
        if level >= 1 or abs(level / p - 1) < 1e-4:
            continue
        low, high = difference(level)
        assert (low > 0 or high < 0) == (p <= level)
        least, largest = intervals.quotient(*both, correlation)(level)
        assert (least > 1, largest < 1) == (low > 0, high < 0)
        if low > 0:  # At the factor `least` the interval of the difference touches 0.
            scaled = intervals.scaled(least, other)
            touching = intervals.difference((one, least * two), (ends, scaled), correlation)
            assert touching(level)[0] == pytest.approx(0, abs=1e-9)


def test_what_is_added_without_any_unlike_prompt_is_a_fifth_of_a_prompt():
    """(a + sqrt(v) (g + hypot(t, g))) / (1 + a), of a = 1/50, v = a/10, g = 1.25 (v/10) / v^1.5."""
    a, t = 0.02, scipy.stats.t.isf(0.025, 9)
    v = a / 10
    g = 1.25 * v / 10 / v**1.5
    expected = (a + math.sqrt(v) * (g + math.hypot(t, g))) / (1 + a)
    assert intervals.prompt_mean(*of_prompts([0] * 10))(0.05)[1] == pytest.approx(expected)


def test_the_bound_of_bernstein_by_hand():
    """Of independent pairs, 0 or 1 with the mean 0.2: |0.2 - c| is the bound."""
    means, blocks, delta = np.array([1, 0.2, 1, 0.2, 0.2]), 500, 0.05
    low, high = intervals.bernstein(means, blocks, delta)
    x = math.log(3 / delta) / blocks
    for c in (low, high):
        largest, square = max(c, 1 - c) * x, 0.2 - 2 * c * 0.2 + c**2
        bound = 4 / 3 * largest + math.sqrt(largest**2 + 2 * x * square)
        assert abs(0.2 - c) == pytest.approx(bound)
    assert low < 0.2 < high
    assert intervals.bernstein(means, 3, delta) == (0.0, 1.0)
