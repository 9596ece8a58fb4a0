"""Unbiased scores of order 2, their errors and intervals, from sums over all pairs in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from canonical import named
from oracles import (
    between_ends,
    cosine_gram,
    directional_difference,
    gaussian_gram,
    mean_ends,
    mover,
)

import condvendi_jax as cv
from condvendi_jax.inference import errors as grouping
from condvendi_jax.inference import population as populations
from condvendi_jax.statistics import reasons
from condvendi_jax.statistics.influences import Error, TwoWayError

EXACT = cv.Indicator()
KERNELS = {"gaussian": (cv.Gaussian(1.2), cv.Gaussian(0.8)), "indicator": (EXACT, EXACT)}
KERNELS |= {"cosine": (cv.Cosine(), EXACT)}
NUMBERS = [3, 2, 5, 2, 4, 2, 2, 4]
K = 4
REPEATED = np.repeat(np.arange(12), K)
LEVELS = (0.2, 0.05, 0.002)


def squared(kernel, rows):
    """k^2 of every two rows, in float64."""
    if isinstance(kernel, cv.Indicator):
        return np.all(rows[:, None] == rows[None], axis=-1).astype(float)
    if isinstance(kernel, cv.Gaussian):
        return gaussian_gram(rows, float(kernel.bandwidth)) ** 2
    return cosine_gram(rows) ** 2


def pair_mean(squares, w, ids, own=None, batches=None):
    """The mean over rows of different batches, a share `own` of one prompt; None: by weights."""
    batches = np.arange(w.size) if batches is None else batches
    of_pairs, same = np.outer(w, w) * (batches[:, None] != batches), ids[:, None] == ids
    shares, within = np.bincount(ids, w), np.zeros(ids.max() + 1)
    for p in np.flatnonzero(np.bincount(ids) > 1):
        block = np.ix_(ids == p, ids == p)
        within[p] = np.average(squares[block], weights=of_pairs[block])
    own = np.sum(shares**2) if own is None else own
    between = np.average(squares, weights=of_pairs * ~same) if own < 1 else 0
    return own * np.average(within, weights=shares**2) + (1 - own) * between


def similarities_of(kernels, arrays, *how):
    """One over RKE and over Conditional-RKE, and Information-RKE, by `pair_mean`."""
    x, t = (squared(kernel, rows) for kernel, rows in zip(kernels, arrays, strict=True))
    x, t, joint = (pair_mean(squares, *how) for squares in (x, t, x * t))
    return np.array([x, joint / t, joint / t / x])


def scores_of(similarities):
    return similarities ** [-1, -1, 1]


def by_brute_force(outputs, prompts, kernels, copies=None, weights=None):
    """The scores of rows, as many as `copies` say; without weights each prompt counts once."""
    rows = np.repeat(np.arange(len(outputs)), 1 if copies is None else copies)
    ids = np.unique(prompts, axis=0, return_inverse=True)[1].ravel()
    several, own = np.bincount(ids[rows])[ids[rows]] > 1, 0
    if several.mean() >= 0.5:
        rows, own = rows[several], None
    w = np.ones(len(outputs)) if weights is None else weights
    if weights is None and prompts.any():
        w = 1 / np.maximum(np.bincount(ids[rows], minlength=ids.max() + 1), 1)[ids]
    ids = np.arange(rows.size) if own == 0 or not prompts.any() else ids[rows]
    arrays = outputs[rows], prompts[rows]
    own = own if prompts.any() else 0
    return scores_of(similarities_of(kernels, arrays, w[rows] / w[rows].sum(), ids, own))


def data(kernel, numbers):
    """Outputs and prompts with these numbers of answers to each prompt, and the prompts' ids."""
    rng = np.random.default_rng(0)
    prompt = np.repeat(np.arange(len(numbers)), numbers)
    places = rng.normal(size=(len(numbers), 2))
    outputs = rng.integers(4, size=(prompt.size, 2)) + 0.0
    if kernel != "indicator":
        outputs = outputs + rng.normal(size=outputs.shape)
    order = rng.permutation(prompt.size)
    prompts = places[prompt][order].astype(np.float32)
    ids = np.unique(prompts, axis=0, return_inverse=True)[1].ravel()
    return outputs[order].astype(np.float32), prompts, ids


def population(outputs, prompts, kernels=KERNELS["indicator"], **options):
    outputs = np.asarray(outputs).reshape(len(prompts), -1)
    pairs = cv.Pairs(outputs, prompts, **named(kernels), **options)
    return populations.of_pairs(pairs, grouping.group_models({"": pairs}, None)[0][""])


# Scores


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("numbers", [NUMBERS, [1] * 24, [1, 1, 1, 3, 3, 3, 4, 8], [2] + [1] * 22])
@pytest.mark.parametrize("weighted", [None, "copies", "shares"])
@pytest.mark.filterwarnings("ignore:.*all kernel values between:UserWarning")
def test_scores_are_those_of_all_pairs_in_float64(kernel, numbers, weighted):
    outputs, prompts, _ = data(kernel, numbers)
    kernels, rng, given = KERNELS[kernel], np.random.default_rng(1), {}
    if weighted == "copies":
        given["copies"] = rng.integers(1, 3, len(outputs))
    if weighted == "shares":
        given["weights"] = rng.uniform(0.5, 2, len(outputs))
    options = {"weights": given.get("copies", given.get("weights")), "unbiased": True}
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = by_brute_force(outputs, prompts, kernels, **given)
    found = cv.decompose(outputs, prompts, **named(kernels), order=2, **options)
    np.testing.assert_allclose(np.array(found.scores), expected, rtol=2e-6)
    alone = cv.rke(outputs, kernel=kernels[0], **options)
    expected = by_brute_force(outputs, np.zeros((len(outputs), 1)), kernels, **given)
    np.testing.assert_allclose(alone, expected[0], rtol=2e-6)


def test_gradients_inside_jit_are_those_of_all_pairs(x64):
    *arrays, ids = data("gaussian", NUMBERS)
    outputs, prompts = (rows.astype(float) for rows in arrays)

    def score(outputs, width):
        kernels = named([cv.Gaussian(width)] * 2)
        return cv.conditional_rke(outputs, prompts, **kernels, prompt_ids=ids, unbiased=True)

    def expected(outputs, width):
        return by_brute_force(outputs, prompts, [cv.Gaussian(width)] * 2)[1]

    found = jax.jit(jax.grad(score, argnums=(0, 1)))(jnp.asarray(outputs), 1.2)
    way = np.random.default_rng(0).normal(size=outputs.shape)
    slope = directional_difference(lambda x: expected(x, 1.2), outputs, way)
    assert np.vdot(way, found[0]) == pytest.approx(slope, rel=1e-7)
    slope = directional_difference(lambda width: expected(outputs, width), 1.2, 1.0)
    assert float(found[1]) == pytest.approx(slope, rel=1e-7)


def test_what_has_no_unbiased_score_is_refused():
    outputs, prompts, _ = data("gaussian", NUMBERS)
    kernels = named(KERNELS["gaussian"])
    for options in ({"order": 1}, {"order": 3}, {"order": 2, "truncation": 4}):
        with pytest.raises(ValueError, match="unbiased: expected order 2 without truncation"):
            cv.decompose(outputs, prompts, **kernels, **options, unbiased=True)
    with pytest.raises(ValueError, match="unbiased: expected prompt_ids"):
        jax.jit(lambda x: cv.rke(x, prompts, **kernels, unbiased=True))(outputs)
    with pytest.raises(ValueError, match="unbiased: expected True or False"):
        cv.evaluate(outputs, output_kernel=cv.Gaussian(1.2), unbiased=2, errors=False)


# Errors


@pytest.mark.parametrize(
    ("numbers", "kernel"),
    [
        ([3, 3, 5, 3, 4, 3, 3, 4], "gaussian"),
        ([3, 3, 5, 3, 4, 3, 3, 4], "indicator"),
        ([1] * 24, "gaussian"),
    ],
)
def test_errors_are_those_of_the_jackknife_over_prompts_or_rows(numbers, kernel):
    *arrays, ids = data(kernel, numbers)
    found = population(*arrays, KERNELS[kernel])

    def similarities(kept):
        """By brute force; a fixed share of the pairs is of one prompt."""
        number = ids[kept]
        w = 1 / np.bincount(number)[number] / np.unique(number).size
        rows = [array[kept] for array in arrays]
        return similarities_of(KERNELS[kernel], rows, w, number, found.share)

    whole = similarities(np.full(ids.size, True))
    np.testing.assert_allclose(found.similarities, whole, rtol=1e-5)
    np.testing.assert_allclose(found.values, scores_of(whole), rtol=1e-5)
    units = ids if found.repeated else np.arange(ids.size)
    count = units.max() + 1
    without = [similarities(units != unit) for unit in range(count)]
    error = np.sqrt((count - 1) * np.var(without, axis=0))
    expected = error * [whole[0] ** -2, whole[1] ** -2, 1]
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-4)
    assert found.fixed_error is None  # Prompts are similar, or one has three answers.


@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_of_fixed_prompts_is_that_of_pairs_of_pairs(weighted, x64):
    """U^2 less the mean of h_ij h_kl over four different answers is unbiased for Var U."""
    *arrays, ids = data("gaussian", [4, 6, 5, 4, 6])
    outputs, prompts = (rows.astype(float) for rows in arrays)
    shares = np.array([2.0, 1, 3, 1, 1])[ids] if weighted else np.ones(ids.size)
    squares, terms = squared(cv.Gaussian(1.2), outputs), []
    for rows in (np.flatnonzero(ids == prompt) for prompt in range(5)):
        pairs = np.array([*itertools.permutations(rows, 4)]).T
        similarity, both = squares[pairs[0], pairs[1]], squares[pairs[2], pairs[3]]
        terms.append((shares[rows].sum() ** 2, similarity.mean(), np.mean(similarity * both)))
    weight, similarity, apart = np.array(terms).T
    weight /= weight.sum()
    error = np.sqrt(np.sum(weight**2 * (similarity**2 - apart)))
    found = population(outputs, prompts, (cv.Gaussian(1.2), EXACT), weights=shares)
    assert found.fixed_error == pytest.approx(error / (weight @ similarity) ** 2, rel=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", "indicator"])
def test_pairs_of_one_batch_are_left_out(kernel, x64):
    """Two answers to a batch: means over pairs of other batches, and the jackknife of prompts."""
    *arrays, ids = data(kernel, [4, 6, 4, 8, 4, 6, 2, 4])
    outputs, prompts = (rows.astype(float) for rows in arrays)
    batches = np.zeros(38, int)
    for prompt in range(8):
        batches[ids == prompt] = np.arange(np.sum(ids == prompt)) // 2
    kept = np.bincount(ids)[ids] > 2  # One batch is like one answer.
    alone = np.unique([ids, batches], axis=1, return_inverse=True)[1].ravel()

    def similarities(rows):
        w = 1 / np.bincount(ids)[ids[rows]]
        how = w, ids[rows], 1 / 7, alone[rows]
        return similarities_of(KERNELS[kernel], (outputs[rows], prompts[rows]), *how)

    pairs = cv.Pairs(outputs, prompts, **named(KERNELS[kernel]), batches=batches)
    whole = similarities(kept)
    decomposed = cv.decompose(pairs, order=2, unbiased=True).scores
    found = cv.evaluate(pairs, orders=[2]).order(2).population
    for values in (decomposed, found.values):
        np.testing.assert_allclose(values, scores_of(whole), rtol=1e-9)
    without = [similarities(kept & (ids != prompt)) for prompt in np.unique(ids[kept])]
    error = np.sqrt(6 * np.var(without, axis=0)) * [whole[0] ** -2, whole[1] ** -2, 1]
    np.testing.assert_allclose(found.standard_errors, error, rtol=1e-6)
    assert found.answers.left_out == 1 and found.fixed_error is None
    if kernel == "indicator":
        table = [of.similarity for of in cv.prompt_table(pairs, order=2).prompts]
        assert np.nanmean(table) == pytest.approx(whole[1], rel=1e-9)
    alone_given = cv.Pairs(outputs, output_kernel=KERNELS[kernel][0], batches=batches)
    other = batches[:, None] != batches
    score = cv.evaluate(alone_given, orders=[2]).order(2).unbiased.vendi
    expected = 1 / squared(KERNELS[kernel][0], outputs)[other].mean()
    assert score == pytest.approx(expected, rel=1e-9)
    decomposed = cv.decompose(alone_given, order=2, unbiased=True).vendi
    assert float(decomposed) == pytest.approx(score, rel=1e-9)


# Intervals


def answers(kind):
    """Of 12 prompts, labels `[12, K]`: few refusals, many, or one answer with every other."""
    rng = np.random.default_rng(5)
    labels = 10 + 5 * np.arange(12)[:, None] + rng.integers(5, size=(12, K))
    labels[: {"few": 2, "many": 9, "alone": 0}[kind]] = 0
    labels[-1, :2] = 0 if kind == "few" else labels[-1, 0]
    return labels


class Oracle:
    """What the scores and their parts lose without each unit, and the errors of the jackknife."""

    def __init__(self, labels, unit):
        self.own, self.unit = 1 / len(labels), unit
        self.lost = np.bincount(unit) / unit.size
        self.whole = self.means(labels)
        without = [self.means(labels[unit != g]) for g in range(self.lost.size)]
        self.changes = self.whole - np.array(without)
        self.shares = self.lost**2 / np.sum(self.lost**2)
        self.freedom = max(1 / np.sum(self.shares**2) - 1, 1)
        within, between = np.transpose([self.whole, *without])
        outputs = self.own * within + (1 - self.own) * between
        self.vendi, self.information = outputs[0], within[0] / outputs[0]
        self.lost_information = self.information - within[1:] / outputs[1:]

    def means(self, labels):
        """The mean similarity within prompts, and between two of them."""
        ids = np.repeat(np.arange(len(labels)), K)
        alike = squared(EXACT, labels.reshape(-1, 1))
        return np.array([pair_mean(alike, np.ones(ids.size), ids, own) for own in (1, 0)])

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
        moved = np.maximum(self.part(mean_ends, within, one, level), 1e-300)
        moved = np.sort(slope * within / self.information * np.log(moved / within))
        value = math.log(self.information)
        below, above = np.hypot(ends - value, moved)
        return math.exp(value - below), math.exp(min(value + above, -math.log(self.own)))


UNITS = {
    "prompts": np.arange(12),
    "groups": np.repeat([0, 1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 2, 2, 4]),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("kind", ["few", "many", "alone"])
def test_intervals_of_prompts_with_several_answers(kind, units, level):
    labels, unit = answers(kind), UNITS[units]
    groups = None if units == "prompts" else np.repeat(unit, K)
    found, oracle = population(labels, REPEATED, groups=groups), Oracle(labels, unit)
    received = *found.similarities[:2], found.values.information
    expected = oracle.vendi, oracle.whole[0], oracle.information
    np.testing.assert_allclose(received, expected, rtol=1e-5)
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


@pytest.mark.parametrize("how", ["alone", "weights", "groups"])
@pytest.mark.parametrize("level", LEVELS)
def test_intervals_of_rows_of_which_no_prompt_repeats(level, how):
    """Student's of the logit and, of information, of the logarithm."""
    rng, n = np.random.default_rng(2), 24
    arrays, kernels = rng.normal(size=(2, n, 2)).astype(np.float32), KERNELS["gaussian"]
    weights, groups = rng.uniform(0.2, 3, n), np.arange(n) // 3
    given = {"weights": weights, "groups": groups}
    found = population(*arrays, kernels, **({how: given[how]} if how in given else {}))
    shares = weights / weights.sum() if how == "weights" else np.full(n, 1 / n)
    rows, freedom = 1 / np.sum(shares**2), 7 if how == "groups" else n - 1
    assert found.freedom == freedom and (rows < 20) == (how == "weights")
    t = scipy.stats.t.isf(level / 2, [min(freedom, rows - 1), freedom])
    for error in found.errors[:2]:
        value, spread = error.inverse.value, error.inverse.standard_error
        assert error.freedom == freedom
        logit = math.log(value / (1 - value))
        ends = logit + np.array([-1, 1]) * t[0] * spread / value / (1 - value)
        np.testing.assert_allclose(error.inverse.interval(level), 1 / (1 + np.exp(-ends)))
    error = found.errors.information
    times = math.exp(t[1] * error.standard_error / error.value)
    expected = error.value / times, error.value * times
    np.testing.assert_allclose(error.interval(level), expected)
    expected = similarities_of(kernels, arrays, shares, np.arange(n), 0)[0]
    assert found.similarities.vendi == pytest.approx(expected, rel=1e-4)


def test_a_similarity_of_one_in_100_000_is_no_rounding():
    """Two rows at the distance d: exp(-d^2 / 2) squared is 1e-5 at d^2 = log(1e5)."""
    rows = np.float32([[0], [math.sqrt(math.log(1e5))]])
    kernel = {"output_kernel": cv.Gaussian(1.0)}
    found = cv.evaluate(rows, **kernel, orders=[2], errors=False).order(2)
    assert found.unbiased.vendi == pytest.approx(1e5, rel=1e-4)


@pytest.mark.filterwarnings("ignore:outputs. under Indicator.. all kernel values")
def test_scores_of_answers_that_all_differ_have_open_intervals():
    """No upper end of the scores; nothing is known of information but that 12 prompts bound it."""
    labels = 1 + np.arange(12 * K).reshape(12, K)
    found = population(labels, REPEATED)
    assert found.at(0.0, 0.0).intervals.information == (0, math.inf)  # Of prompts without end.
    intervals = found.intervals
    assert intervals.vendi[1] == intervals.conditional[1] == math.inf
    assert intervals.conditional[0] > 1
    assert intervals.information == pytest.approx((0, 12))
    labels[:, 1] = labels[:, 0]  # One pair in six is alike: every score of a prompt is 6.
    found = population(labels, REPEATED)
    assert found.values.conditional == pytest.approx(6)
    assert found.intervals.conditional[1] < math.inf


def test_outputs_that_all_agree_have_the_interval_of_no_unlike_pair():
    found = population(np.zeros((12, K), int), REPEATED)
    assert found.values == pytest.approx((1, 1, 1))
    low, high = found.intervals.conditional
    expected = mean_ends(1.0, 0.0, np.zeros(12), np.full(12, 1 / 12), 0.05)
    assert (low, 1 / high) == pytest.approx((1, expected[0]))
    for seed in range(6):  # Multiples of one vector, whose cosines are one but for rounding.
        rng = np.random.default_rng(seed)
        outputs = np.outer(rng.uniform(1, 2, 40), rng.normal(size=5)).astype(np.float32)
        with pytest.warns(UserWarning, match="numerically constant"):
            found = cv.evaluate(outputs, output_kernel=cv.Cosine(), orders=[2])
        low, high = found.order(2).population.intervals.vendi
        assert (low, high) == pytest.approx((1, 1 / (1 + math.log(0.025) / 40)), rel=1e-5)


def test_two_units_are_the_fewest_with_an_error():
    labels = answers("many")
    found = population(labels, REPEATED, groups=REPEATED // 6)
    assert found.freedom == 1 and found.errors is not None and found.reason is None
    split = population(labels, REPEATED, groups=np.arange(12 * K) % 3)
    assert split.errors.vendi.reason == split.errors.information.reason == reasons.SPLIT
    assert split.errors.conditional.reason is None  # Over prompts and labels.
    groups = np.r_[np.zeros(12 * K, int), 1]
    found = population(np.r_[labels.ravel(), 5], np.r_[REPEATED, 12], groups=groups)
    assert found.errors is None and found.reason == reasons.ONE_UNIT


def test_given_answers_with_themselves_by_hand():
    """1 / k + (1 - 1 / k) U of k = 4: its mean over prompts, and the error of the mean."""
    labels = answers("many")
    found = population(labels, REPEATED)
    alike = np.array([np.sum(row[:, None] == row) / 16 for row in labels])
    value, error = alike.mean(), alike.std(ddof=1) / math.sqrt(12)
    assert found.given[:2] == pytest.approx((1 / value, error / value**2), rel=1e-5)
    ends = [1 / (1 / K + (1 - 1 / K) / end) for end in found.intervals.conditional]
    np.testing.assert_allclose(found.given.ends, ends, rtol=1e-9)


# Answers that share a seed with answers to other prompts

SEEDS = 8
OF_SEED, OF_PROMPT = np.tile(np.arange(SEEDS), 12), np.repeat(np.arange(12), SEEDS)
LABELS = named(KERNELS["indicator"]) | {"orders": [2]}


def with_styles(rng):
    """A seed has a style, which a part of its answers to all prompts shows, `[prompts, seeds]`."""
    own, style = rng.integers(4, size=(12, SEEDS)), rng.integers(9, 12, size=SEEDS)
    return np.where(rng.random((12, SEEDS)) < 0.5, style, own)


def test_errors_over_prompts_and_seeds_are_those_by_hand():
    drawn = with_styles(np.random.default_rng(0))
    found = cv.evaluate(drawn.ravel(), OF_PROMPT, groups=OF_SEED, **LABELS)
    population = found.order(2).population
    means = ((drawn[:, :, None] == drawn[:, None]).sum(axis=2) - 1) / (SEEDS - 1)
    similar = means.mean(axis=1)
    moved = (similar[:, None] - similar.mean() + 2 * (means - similar[:, None])) / drawn.size
    parts = moved.sum(axis=1), moved.sum(axis=0), moved.ravel()
    prompts, seeds, cells = (p.size / (p.size - 1) * np.sum(p**2) for p in parts)
    error = np.sqrt(max(prompts + seeds - cells, prompts, seeds))
    assert population.values.conditional == pytest.approx(1 / similar.mean(), rel=1e-5)
    received = population.standard_errors
    assert received.conditional == pytest.approx(error / similar.mean() ** 2, rel=1e-4)
    assert np.isnan(received.vendi) and np.isnan(received.information)
    assert "over other prompts and other labels" in found.details()
    one_way = cv.evaluate(drawn.ravel(), OF_PROMPT, **LABELS).order(2).population
    low, high = population.intervals.conditional
    least, most = one_way.intervals.conditional
    assert 1 < low < least < most < high
    changes, equal = (similar - similar.mean()) / 11, np.full(12, 1 / 12)
    ends = mean_ends(similar.mean(), error, changes, equal, 0.05, SEEDS - 1)
    assert (1 / high, 1 / low) == pytest.approx(ends, rel=1e-4)
    given = population.given  # One over 1 / k + (1 - 1 / k) times the similarity.
    assert given.error == pytest.approx((1 - 1 / SEEDS) * error * given.value**2, rel=1e-4)
    assert 1 < given.ends[0] < given.value < given.ends[1] < SEEDS
    assert found.as_dict()["scores"][0]["unbiased"]["intervals"]["vendi"] is None


def test_the_variance_counts_what_both_share_once_and_is_at_least_the_larger():
    def two_way(*errors):
        """Of prompts, labels and cells, each with two units of this error."""
        prompts, *parts = (Error(2.0, np.array([[x, -x]]), freedom=1) for x in errors)
        return TwoWayError(**vars(prompts), **dict(zip(("labels", "cells"), parts, strict=True)))

    one = two_way(3.0, 2.0, 1.0)
    assert one.standard_error == pytest.approx(12**0.5)
    assert two_way(3.0, 2.0, 4.0).standard_error == pytest.approx(3)
    # What two models share by prompt and by seed cancels.
    assert one.correlation(one, matched=True) == pytest.approx(1)
    assert one.covariance(one) == pytest.approx(9 + 4 - 1)
    assert one.correlation(one, matched=False) == 0


def test_seeds_of_two_models_are_tested_together():
    rng = np.random.default_rng(1)
    models = {"a": with_styles(rng).ravel(), "b": rng.integers(9, 12, 12 * SEEDS)}
    found = cv.compare(models, OF_PROMPT, groups=OF_SEED, profile=False, **LABELS)
    difference = found.ranking("conditional", 2).difference("a", "b")
    assert difference.reason is None and 0 < difference.p_value <= 1
    assert "split the answers" in found.ranking("vendi", 2).difference("a", "b").reason
    assert found.ranking("vendi", 2).as_dict()["intervals"] is None
