"""Intervals and errors of unbiased scores: which formula each takes, from sums over pairs."""

import math

import jax
import numpy as np
import pytest
import scipy.stats
from canonical import named
from oracles import between_ends, gaussian_gram, mean_ends, mover

import condvendi_jax as cv
from condvendi_jax.inference import errors as grouping
from condvendi_jax.inference import population as populations
from condvendi_jax.statistics import reasons

EXACT = (cv.Indicator(), cv.Indicator())
K = 4
LEVELS = (0.2, 0.05, 0.002)


def answers(kind, prompts=12):
    """Of 12 prompts, labels `[prompts, K]`: few refusals, many, or one answer with every other."""
    rng = np.random.default_rng(5)
    labels = 10 + 5 * np.arange(prompts)[:, None] + rng.integers(5, size=(prompts, K))
    refused = {"few": 2, "many": 9, "alone": 0}[kind]
    labels[:refused] = 0
    labels[-1, :2] = 0 if kind == "few" else labels[-1, 0]
    return labels


def population(outputs, prompts, kernels=EXACT, **options):
    outputs = np.float32(outputs).reshape(len(prompts), -1)
    pairs = cv.Pairs(outputs, prompts, **named(kernels), **options)
    groups, _ = grouping.group_models({"": pairs}, None, key=jax.random.key(0))
    return populations.of_pairs(pairs, groups[""])


def means(labels):
    """The mean similarity within prompts, and between two of them."""
    rows = labels.ravel()
    alike = rows[:, None] == rows
    prompt = np.repeat(np.arange(len(labels)), K)
    same = prompt[:, None] == prompt
    other = same & ~np.eye(rows.size, dtype=bool)
    return np.array([alike[other].mean(), alike[~same].mean()])


class Oracle:
    """What the scores and their parts lose without each unit, and the errors of the jackknife."""

    def __init__(self, labels, unit):
        self.own, self.unit = 1 / len(labels), unit
        self.lost = np.bincount(unit) / unit.size
        self.whole = means(labels)
        without = [means(labels[unit != g]) for g in range(self.lost.size)]
        self.changes = self.whole - np.array(without)
        self.shares = self.lost**2 / np.sum(self.lost**2)
        self.freedom = max(1 / np.sum(self.shares**2) - 1, 1)
        within, between = np.transpose([self.whole, *without])
        outputs = self.own * within + (1 - self.own) * between
        self.vendi, self.information = outputs[0], within[0] / outputs[0]
        self.lost_information = self.information - within[1:] / outputs[1:]

    def influences(self, changes):
        """Of units, whose sum of squares is the square of the error."""
        effects = changes * (1 - self.lost) / self.lost
        effects -= self.lost @ effects
        count = self.lost.size
        return self.lost * effects * math.sqrt(count / (count - 1))

    def part(self, ends, value, changes, level):
        error = math.sqrt(np.sum(self.influences(changes) ** 2))
        return np.array(ends(value, error, changes, self.shares, level))

    def of_vendi(self, level):
        """The sum of the mean within prompts and that between them, with their correlation."""
        (within, between), (one, two) = self.whole, self.changes.T
        first = self.own * self.part(mean_ends, within, one, level)
        second = (1 - self.own) * self.part(between_ends, between, two, level)
        one, two = self.influences(one), self.influences(two)
        square = np.sum(one**2) * np.sum(two**2)
        r = np.sum(one * two) / math.sqrt(square) if square else 1.0
        values = self.own * within, -(1 - self.own) * between
        low, high = mover(values, (first, -second[::-1]), -r)
        return max(low, 0), min(high, 1)

    def ends_of_information(self, level):
        """It moves with the mean within prompts; the rest is that of the mean between them."""
        (within, between), (one, two) = self.whole, self.changes.T
        mean, rest = self.influences(one), self.influences(two)
        square = np.sum(mean**2)
        left = two - np.sum(rest * mean) / square * one if square else two
        ends = (1 - self.own) * (self.part(between_ends, between, left, level) - between)
        ends = np.log(self.information * self.vendi / (self.vendi + ends[::-1]))
        slope = np.sum(self.influences(self.lost_information) * mean) / square if square else 0
        slope *= within / self.information
        moved = np.log(np.maximum(self.part(mean_ends, within, one, level), 1e-300)) - math.log(
            within
        )
        moved, value = np.sort(slope * moved), math.log(self.information)
        below, above = np.hypot(ends - value, moved)
        return math.exp(value - below), math.exp(min(value + above, -math.log(self.own)))


UNITS = {
    "prompts": np.arange(12),
    "groups": np.repeat([0, 1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 2, 2, 4]),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("kind", ["few", "many", "alone"])
def test_errors_of_prompts_with_several_answers(kind, units, level):
    labels, unit = answers(kind), UNITS[units]
    groups = None if units == "prompts" else np.repeat(unit, K)
    found = population(labels, np.repeat(np.arange(12), K), groups=groups)
    oracle = Oracle(labels, unit)
    np.testing.assert_allclose(
        [found.similarities.vendi, found.similarities.conditional, found.values.information],
        [oracle.vendi, oracle.whole[0], oracle.information],
        rtol=1e-5,
    )
    errors = found.errors
    within = oracle.part(mean_ends, oracle.whole[0], oracle.changes[:, 0], level)
    for error, ends in ((errors.vendi, oracle.of_vendi(level)), (errors.conditional, within)):
        np.testing.assert_allclose(error.inverse.interval(level), ends, rtol=1e-4, atol=1e-7)
        low, high = error.interval(level)
        np.testing.assert_allclose([1 / high, 1 / low], ends, rtol=1e-4, atol=1e-7)
    expected = oracle.ends_of_information(level)
    np.testing.assert_allclose(errors.information.interval(level), expected, rtol=1e-4)
    for error in errors:
        assert error.freedom == pytest.approx(oracle.freedom)
        assert error.units == found.units.units and error.reason is None
    assert found.freedom == oracle.lost.size - 1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_errors_of_rows_of_which_no_prompt_repeats(level, weighted):
    """Student's of the logit and, of information, of the logarithm."""
    rng, n = np.random.default_rng(2), 24
    outputs, prompts = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)).astype(np.float32)
    weights = rng.uniform(0.2, 3, n) if weighted else None
    found = population(outputs, prompts, (cv.Gaussian(1.2), cv.Gaussian(0.8)), weights=weights)
    shares = np.full(n, 1 / n) if weights is None else weights / weights.sum()
    rows = 1 / np.sum(shares**2)
    assert found.freedom == n - 1 and (rows < 20) == weighted
    t = scipy.stats.t.isf(level / 2, rows - 1)
    for name in ("vendi", "conditional"):
        error = getattr(found.errors, name)
        value, spread = error.inverse.value, error.inverse.standard_error
        assert error.freedom == n - 1
        logit = math.log(value / (1 - value))
        ends = logit + np.array([-1, 1]) * t * spread / value / (1 - value)
        np.testing.assert_allclose(error.inverse.interval(level), 1 / (1 + np.exp(-ends)))
    value, spread = found.errors.information.value, found.errors.information.standard_error
    times = math.exp(scipy.stats.t.isf(level / 2, n - 1) * spread / value)
    np.testing.assert_allclose(
        found.errors.information.interval(level), [value / times, value * times]
    )
    squares = [gaussian_gram(of, width) ** 2 for of, width in ((outputs, 1.2), (prompts, 0.8))]
    w = np.outer(shares, shares) * ~np.eye(n, dtype=bool)
    expected = np.sum(w * squares[0]) / w.sum()
    assert found.similarities.vendi == pytest.approx(expected, rel=1e-4)


def test_groups_of_rows_have_fewer_degrees_of_freedom_than_rows():
    rng, n = np.random.default_rng(2), 24
    outputs, prompts = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)).astype(np.float32)
    kernels, groups = (cv.Gaussian(1.2), cv.Gaussian(0.8)), np.arange(n) // 3
    error = population(outputs, prompts, kernels, groups=groups).errors.conditional.inverse
    width = scipy.stats.t.isf(0.025, 7) * error.standard_error / error.value / (1 - error.value)
    logit = math.log(error.value / (1 - error.value))
    ends = 1 / (1 + np.exp(-logit + width)), 1 / (1 + np.exp(-logit - width))
    np.testing.assert_allclose(error.interval(), ends)


@pytest.mark.filterwarnings("ignore:outputs. under Indicator.. all kernel values")
def test_scores_of_answers_that_all_differ_have_open_intervals():
    """No upper end of the scores; nothing is known of information but that 12 prompts bound it."""
    labels = 1 + np.arange(12 * K).reshape(12, K)
    found = population(labels, np.repeat(np.arange(12), K))
    assert found.intervals.vendi[1] == found.intervals.conditional[1] == math.inf
    assert found.intervals.conditional[0] > 1
    assert found.intervals.information == pytest.approx((0, 12))
    labels[:, 1] = labels[:, 0]  # One pair in six is alike: every score of a prompt is 6.
    found = population(labels, np.repeat(np.arange(12), K))
    assert found.values.conditional == pytest.approx(6)
    assert found.intervals.conditional[1] < math.inf


def test_all_outputs_alike_and_one_prompt_with_equal_answers():
    found = population(np.zeros((12, K)), np.repeat(np.arange(12), K))
    assert found.values == pytest.approx((1, 1, 1))
    low, high = found.intervals.conditional
    expected = mean_ends(1.0, 0.0, np.zeros(12), np.full(12, 1 / 12), 0.05)
    assert (low, 1 / high) == pytest.approx((1, expected[0]))


def test_two_units_are_the_fewest_with_an_error():
    labels, prompts = answers("many"), np.repeat(np.arange(12), K)
    found = population(labels, prompts, groups=np.repeat(np.arange(12) // 6, K))
    assert found.freedom == 1 and found.errors is not None and found.reason is None
    split = population(labels, prompts, groups=np.arange(12 * K) % 3)
    assert split.errors.vendi.reason == split.errors.information.reason == reasons.SPLIT
    assert split.errors.conditional.reason is None  # Over prompts and labels.
    one = np.r_[np.repeat(np.arange(12), K), 12]
    outputs = np.r_[labels.ravel(), 5]
    found = population(outputs, one, groups=np.r_[np.zeros(12 * K, int), 1])
    assert found.errors is None and found.reason == reasons.ONE_UNIT


def test_given_answers_with_themselves_by_hand():
    """1 / k + (1 - 1 / k) U of k = 4: its mean over prompts, and the error of the mean."""
    labels = answers("many")
    found = population(labels, np.repeat(np.arange(12), K))
    alike = np.array([np.sum(row[:, None] == row) / 16 for row in labels])
    value, error = alike.mean(), alike.std(ddof=1) / math.sqrt(12)
    np.testing.assert_allclose(found.given[:2], (1 / value, error / value**2), rtol=1e-5)
    ends = 1 / value + scipy.stats.t.isf(0.025, 11) * error / value**2 * np.array([-1, 1])
    np.testing.assert_allclose(found.given.ends, np.maximum(ends, 1), rtol=1e-5)
