"""Errors, corrections, power and shrinkage: values derived by hand and independent programs."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
from pairs_of_errors import minus, over, p_value

from condvendi_jax.statistics import (
    influences,
    intervals,
    multiplicity,
    power,
    reasons,
    sequential,
    shrinkage,
)
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.power import Spread

T = scipy.stats.t.isf(0.025, 9)
ONE = Error(0.4, np.array([[0.1, -0.1, 0.1, -0.1]]), "prompts", 9)
TWO = Error(0.25, np.array([[0.1, -0.1, -0.1, 0.1]]) / 2, "rows", 4)


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# Errors


def test_an_error_is_the_root_mean_square_of_influences_and_noise():
    assert ONE.standard_error == pytest.approx(0.1)
    assert dataclasses.replace(ONE, noise=0.24).standard_error == pytest.approx(0.26)
    same(ONE.interval(), (0.4 - 0.1 * T, 0.4 + 0.1 * T))
    same(ONE.interval(0.01), 0.4 + 0.1 * scipy.stats.t.isf(0.005, 9) * np.array([-1, 1]))
    assert dataclasses.replace(ONE, ends=lambda level: (level, 1)).interval(0.3) == (0.3, 1)


def test_one_over_an_estimate():
    found = ONE.inverted()
    assert (found.value, found.inverse, found.freedom, found.units) == (2.5, ONE, 9, "prompts")
    same(found.influences, -ONE.influences / 0.16)
    same(found.interval(), (1 / (0.4 + 0.1 * T), 1 / (0.4 - 0.1 * T)))
    assert dataclasses.replace(ONE, value=0.99e-12).inverted().value == math.inf
    assert dataclasses.replace(ONE, value=1.01e-12).inverted().value == pytest.approx(1 / 1.01e-12)


def test_an_error_in_logarithms_has_a_symmetric_interval_of_the_logarithm():
    times = math.exp(T * 0.1 / 0.4)
    same(ONE.in_logarithms().interval(), (0.4 / times, 0.4 * times))
    inverted = ONE.inverted().in_logarithms()
    same(inverted.interval(), (2.5 / times, 2.5 * times))
    assert inverted.inverse.ends is not None


def test_an_error_times_a_number():
    found = dataclasses.replace(ONE, noise=0.1).times(3)
    assert (found.value, found.noise) == (pytest.approx(1.2), pytest.approx(0.3))
    assert found.standard_error == pytest.approx(3 * math.hypot(0.1, 0.1))
    same(ONE.times(3).interval(), (1.2 - 0.3 * T, 1.2 + 0.3 * T))
    inverted = ONE.inverted().times(3)
    same([inverted.value, inverted.inverse.value], [7.5, 0.4 / 3])
    same(inverted.interval(), 3 * np.array(ONE.inverted().interval()))


@pytest.mark.parametrize(("matched", "correlation"), [(True, 0.6), (False, 0.0)])
def test_the_difference_of_two_errors(matched, correlation):
    """Of 0.1 and 0.05 with a correlation of 0.6: 0.01 + 0.0025 - 0.006 = 0.0065."""
    other = dataclasses.replace(TWO, influences=np.array([[0.1, -0.1, 0.02, 0.02]]) / 2, noise=0.02)
    one = dataclasses.replace(ONE, influences=np.array([[0.1, -0.1, 0.1, -0.1]]), noise=0.03)
    squares = 0.01 + 0.0009, (0.1**2 + 0.02**2) / 8 + 0.0004
    mixed = 0.01 / 4 if matched else 0
    variance = sum(squares) - 2 * mixed
    found = minus(one, other, matched=matched)
    assert (found.value, found.freedom) == (pytest.approx(0.15), 4)
    assert (found.units, found.noise) == ("prompts", pytest.approx(math.hypot(0.02, 0.03)))
    assert found.standard_error == pytest.approx(math.sqrt(variance))
    r = mixed / math.sqrt(math.prod(squares))
    assert one.correlation(other, matched=matched) == pytest.approx(r)
    assert (r > 0.3) == matched == (correlation > 0)
    a, b = (
        math.sqrt(s) * scipy.stats.t.isf(0.025, f) for s, f in zip(squares, (9, 4), strict=True)
    )
    width = math.sqrt(a**2 + b**2 - 2 * r * a * b)
    same(found.interval(), (0.15 - width, 0.15 + width))
    error = influences.standard_error_apart(one, other, matched=matched)
    assert error == pytest.approx(math.sqrt(variance))
    reason = reasons.NO_PAIRS
    for pair in ((dataclasses.replace(one, reason=reason), other), (one, ONE)):
        expected = pair[0].reason
        assert minus(*pair, matched=matched).reason == expected
    assert minus(one, dataclasses.replace(other, reason=reason), matched=matched).reason == reason


def test_unmatched_units_keep_their_own_mean_squares():
    """Of 4 and 2 units; with 3 replicates of one, the other is the same in all of them."""
    two = np.array([[0.3, -0.3]])
    found = influences.apart(ONE.influences, two, matched=False)
    scales = np.sqrt([6 / 4] * 4 + [6 / 2] * 2)
    same(found, scales * np.array([[0.1, -0.1, 0.1, -0.1, -0.3, 0.3]]))
    assert influences.error_of(found) == pytest.approx(math.hypot(0.1, 0.3))
    several = np.arange(12.0).reshape(3, 4)
    assert influences.apart(several, two, matched=False).shape == (3, 6)
    same(influences.apart(several, ONE.influences, matched=True), several - ONE.influences)
    assert influences.apart(several, several[:2], matched=True).shape == (2, 4)


def test_a_correlation_is_between_minus_one_and_one():
    same(ONE.correlation(ONE.times(2), matched=True), 1)
    opposite = dataclasses.replace(ONE, influences=-ONE.influences)
    same(ONE.correlation(opposite, matched=True), -1)
    assert ONE.correlation(TWO, matched=True) == pytest.approx(0, abs=1e-12)
    nothing = dataclasses.replace(ONE, influences=0 * ONE.influences)
    assert ONE.correlation(nothing, matched=True) == nothing.correlation(ONE, matched=True) == 0
    assert ONE.correlation(ONE, matched=False) == 0


def test_differences_and_ratios_of_inverses_are_those_of_what_they_invert():
    for matched in (True, False):
        apart = minus(ONE.inverted(), TWO.inverted(), matched=matched)
        expected = minus(TWO, ONE, matched=matched)
        assert apart.value == pytest.approx(-0.15)  # As 2.5 is less than 4.
        assert p_value(apart) == p_value(expected) < 1
        assert intervals.p_value(apart.at_levels, sides=1) == 1.0
        above = intervals.p_value(minus(ONE, TWO, matched=matched).at_levels, sides=1)
        assert above == pytest.approx(p_value(apart) / 2)
        for level in (0.05, p_value(apart) * 1.001, p_value(apart) * 0.999):
            found = over(ONE.inverted(), TWO.inverted(), matched=matched, level=level)
            assert found == over(TWO, ONE, matched=matched, level=level)
            assert (found[1] < 1) == (level > p_value(apart))
    both = ONE.at_levels, TWO.at_levels
    expected = intervals.quotient((0.4, 0.25), both, 0.0)(0.05)
    same(over(ONE, TWO, matched=False, level=0.05), expected)


@pytest.mark.parametrize(("apart", "noisy"), [(0.999, False), (1.001, True)])
def test_noise_stays_in_where_it_is_more_than_half_of_the_variance(apart, noisy):
    """Two replicates 1 - d and 1 + d: products are 1 - d^2, the mean square is 1."""
    d = apart * math.sqrt(0.5)
    of = np.array([[1 - d, d - 1], [1 + d, -1 - d]])
    assert influences.is_noisy(of) == noisy
    assert influences.error_of(of) == pytest.approx(1 if noisy else math.sqrt(1 - d**2))


def test_the_noise_of_three_replicates_by_hand():
    """Products of different ones: (2 + 3 + 6) / 3."""
    assert influences.error_of(np.array([[1.0], [2.0], [3.0]])) == pytest.approx(math.sqrt(11 / 3))
    assert influences.error_of(np.array([[3.0, 4.0]])) == pytest.approx(math.sqrt(12.5))


def test_deletions_of_equal_groups_are_the_jackknife_and_absent_groups_do_not_count():
    """A mean of groups 1, 2, 6: it has the error of their mean."""
    values = np.array([1.0, 2.0, 6.0])
    deleted = np.array([4.0, 3.5, 1.5])
    found = influences.group_influences(3.0, deleted, np.full(3, 1 / 3))
    error = values.std(ddof=1) / math.sqrt(3)
    same(influences.root_mean_square(found), error)
    same(found, (values - 3) / math.sqrt(2))
    with_absent = np.array([1 / 3, 0, 1 / 3, 0, 1 / 3])
    found = influences.group_influences(3.0, np.array([4.0, 3, 3.5, 3, 1.5]), with_absent)
    assert found[1] == found[3] == 0
    same(influences.root_mean_square(found), error)


# Many tests


def test_holm_counts_only_what_was_tested():
    assert multiplicity.holm([]) == []
    found = multiplicity.holm([0.04, math.nan, 0.01, 0.03, 0.9])
    same(found, [0.09, math.nan, 0.04, 0.09, 0.9])
    same(multiplicity.holm([0.6, 0.9]), [1.0, 1.0])
    same(multiplicity.holm([0.2]), [0.2])


def test_stepping_down_drops_what_is_told():
    """At 0.25 of 4 draws the limit of both is 3 or 5.25; of the second alone it is 1.75."""
    drawn = np.array([[0.0, 1], [3, 1], [3, 1], [6, 4]])
    assert multiplicity.stepped_down(np.array([9.0, 2.0]), drawn, 0.25).tolist() == [True, True]
    assert multiplicity.stepped_down(np.array([3.0, 2.0]), drawn, 0.25).tolist() == [False, False]
    limit = np.quantile(drawn[:, 0], 0.75)
    assert not multiplicity.stepped_down(np.array([limit]), drawn[:, :1], 0.25).any()
    assert multiplicity.stepped_down(np.array([limit + 1e-9]), drawn[:, :1], 0.25).all()


def test_joint_p_values_by_hand():
    drawn = np.array([[0.0, 1], [3, 1], [2, 5], [4, 0]])
    alone, adjusted = multiplicity.joint_p_values(np.array([3.0, 1.0]), drawn)
    same(alone, [3 / 5, 4 / 5])
    same(adjusted, [4 / 5, 4 / 5])


# Components, power, evidence and reasons


def test_components_need_four_answers():
    """Answers a, a, b, b, of which 8 of 24 ordered quadruples are two alike pairs; a, a, b; and

    a, a, a, b, of which 6 of 24 ordered triples are alike and no quadruple is two alike pairs.
    """
    kind = np.repeat([0, 1, 2], [4, 3, 4])
    sums = np.array([1.0, 1, 1, 1, 1, 1, 0, 2, 2, 2, 0])
    found = shrinkage.of_sums(sums, sums, np.ones(11, int), kind, 3)
    same(found.answers, [4, 3, 4])
    same(found.similarity, [1 / 3, 1 / 3, 1 / 2])
    same(found.of_answers, [0 - 1 / 3, math.nan, 1 / 4 - 0])
    np.testing.assert_allclose(found.of_pairs, [1 / 3 + 1 / 3, math.nan, 1 / 2 - 2 / 4], atol=1e-12)
    same(found.within()[[0, 2]], [4 * (-1 / 3) / 4 + 2 * (2 / 3) / 12, 4 * (1 / 4) / 4])
    copied = shrinkage.of_sums(np.ones(2), np.ones(2), np.array([2, 2]), np.zeros(2, int), 1)
    same(np.array(copied).T[0], np.array(found).T[0])


PILOT = Spread("conditional", 0.2, 0.01, 0.02, 0.03, 0.4, 50, 4)


def test_power_by_hand():
    assert PILOT.variance(5) == pytest.approx(0.01 + 0.08 / 5 + 0.06 / 20)
    assert PILOT._replace(of_answers=math.nan).variance(5) == 0.01
    assert PILOT.relative == pytest.approx(math.sqrt(0.01 + 0.02 + 0.005) / 0.2)
    assert (PILOT.unit, PILOT._replace(score="vendi").unit) == ("prompts", "outputs")
    assert PILOT.effect(1.44) == pytest.approx(0.2 * (1.2 - 1 / 1.2))
    places = scipy.stats.norm.ppf((np.arange(20) + 0.5) / 20)
    for at, spread in ((None, places), (0.0, np.zeros(1)), (1.5, np.full(1, 1.5))):
        errors = np.sqrt(0.029 / 40 * np.exp(0.4 * spread))
        expected = scipy.stats.t.cdf(0.08 / errors - scipy.stats.t.isf(0.025, 39), 39).mean()
        assert PILOT.power(5, 40, 0.08, 0.05, at) == pytest.approx(expected)
    ratio = PILOT.smallest_ratio(5, 40, 0.05, 0.8)
    assert PILOT.power(5, 40, PILOT.effect(ratio), 0.05) == pytest.approx(0.8)
    lacking = scipy.stats.t.ppf([0.8, 0.9], 9)
    assert power.detectable(0.3, 0.1, 9) == pytest.approx(0.3 + 0.1 * lacking[0])
    assert power.detectable(0.3, 0.1, 9, 0.9) == pytest.approx(0.3 + 0.1 * lacking[1])
    assert power.ratio_of(0.5 - 0.2, math.sqrt(0.1)) == pytest.approx(2.5)
    assert math.isnan(power.ratio_of(0.1, 0.0))


def test_bounds_of_a_mean_similarity_by_hand():
    """Variance linear in the mean: (s - m)^2 = q^2 slope s, of a slope of at least 1 / pairs."""
    for mean, error, pairs in ((0.3, 0.1, 100.0), (0.3, 0.1, 10.0), (0.0, 0.0, 50.0)):
        slope = max(error**2 / mean if mean else 0, 1 / pairs)
        roots = np.roots([1, -2 * mean - 4 * slope, mean**2])
        width = 2 * math.sqrt(error**2 + slope**2)
        expected = max(mean + 2 * slope - width, 0), mean + 2 * slope + width
        same(sequential.bounds(mean, error, pairs, 2.0), expected)
        if error**2 / max(mean, 1e-9) > 1 / pairs:
            same(np.sort(roots), expected)
    assert sequential.bounds(0.9, 0.2, 10.0, 3.0)[1] == 1
    same(sequential.kl(0.2, 0.5), 0.2 * math.log(0.4) + 0.8 * math.log(1.6))


def test_evidence_after_two_looks_by_hand():
    process = sequential.EProcess(np.array([0.2, 0.4]), 0.0, np.array(0.3))
    same(process.expected, [0.2, 0.4])
    stakes = np.array([0.9, 0.45, 0.225, 0.1125]) / 0.4
    gains = [np.prod(1 + stakes[:, None] * (np.array(x) - [0.2, 0.4]), axis=1) for x in LOOKS]
    same(math.exp(process.update(np.array(LOOKS[0]))), np.mean(gains[0]) / 2 + 1 / 2)
    both = np.mean(gains[0] * gains[1]) / 2 + np.mean(gains[1]) / 6 + 1 / 3
    same(math.exp(process.update(np.array(LOOKS[1]))), both)
    # The variance of 0.2 and 0.4 is 0.02, of which twice the square of the error is half.
    same(
        sequential.EProcess(np.array([0.2, 0.4]), 0.1 * math.sqrt(0.5), 0.3).expected, [0.25, 0.35]
    )
    same(sequential.EProcess(np.array([0.2, 0.4]), 0.0, 0.9).expected, [0.8, 1.0])
    same(sequential.EProcess(np.zeros(2), 0.0, 0.1).expected, [0.1, 0.1])


LOOKS = ([0.5, 0.3], [0.1, 0.6])


def test_reasons_are_sentences_and_the_first_counts():
    words = "3 groups of prompts are too few: a test needs 7"
    assert reasons.too_few(3, "prompts", 7) == words
    assert reasons.first([None, reasons.SPLIT, reasons.DESIGNS]) is reasons.SPLIT
    assert reasons.first([None]) is None


def test_stepping_down_many_statistics_takes_the_largest_of_those_left():
    rng = np.random.default_rng(0)
    drawn = np.abs(rng.normal(size=(60, 15, 13))).astype(np.float32)
    observed = np.round(np.abs(rng.normal(1.5, 1.2, size=(15, 13))), 1)  # Some are equal.
    told = np.zeros(observed.shape, bool)
    while (further := ~told & (observed > np.quantile(drawn[:, ~told].max(axis=1), 0.7))).any():
        told |= further
    assert 0 < told.sum() < told.size
    np.testing.assert_array_equal(multiplicity.stepped_down(observed, drawn, 0.3), told)


def test_deletions_of_unequal_groups_by_hand():
    """Busing, Meijer and van der Leeden (1999), eq. 7 and 8, of three groups."""
    shares, whole = np.array([0.5, 0.3, 0.2]), 2.0
    deleted = np.array([1.5, 2.5, 2.1])
    h = 1 / shares
    estimate = 3 * whole - np.sum((1 - 1 / h) * deleted)
    pseudo = h * whole - (h - 1) * deleted
    variance = np.mean((pseudo - estimate) ** 2 / (h - 1))
    found = influences.group_influences([whole, 2 * whole], [deleted, 2 * deleted], shares)
    same(influences.root_mean_square(found), math.sqrt(variance) * np.array([1, 2]))
