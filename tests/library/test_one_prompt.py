"""Prompts that were asked once: sums by distance, bounds and estimates against plain NumPy."""

import dataclasses
import itertools
import math
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.data import kernel_choice
from condvendi_jax.data.kernels import WithinPrompts
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import fold
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.inference import asked_once
from condvendi_jax.results import one_prompt
from condvendi_jax.results.one_prompt import OnePrompt
from condvendi_jax.spectra import order_two
from condvendi_jax.statistics import asked_once as statistics
from condvendi_jax.statistics.asked_once import Mean

N, D = 60, 4
ORDER_2: Any = {"output_kernel": cv.Gaussian(1.0), "orders": [2]}
approx = pytest.approx


def squared_distances(points):
    points = np.asarray(points, np.float64)
    return np.sum((points[:, None] - points) ** 2, axis=-1)


def similar(outputs, width=1.0):
    """The squared kernel."""
    return np.exp(-squared_distances(outputs) / width**2)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    prompts = rng.normal(size=(N, D))
    outputs = 0.5 * prompts + 0.4 * rng.normal(size=(N, D))
    return outputs.astype(np.float32), prompts.astype(np.float32)


def pairs_of(outputs, prompts, width=1.0, **options):
    kernels = {"output_kernel": cv.Gaussian(width), "prompt_kernel": cv.Gaussian(1.0)}
    return Pairs(np.float32(outputs), np.float32(prompts), **(kernels | options))


def told(*data, ends=None, **options) -> Any:
    return asked_once.of_pairs(pairs_of(*data, **options), ends)


def one_of(*data, **options) -> Any:
    return cv.evaluate(*data, **(ORDER_2 | options)).one_prompt


def near_of(prompts, shares=None, labels=None):
    labels = np.full(len(prompts), -1) if labels is None else labels
    shares = np.full(len(prompts), 1 / len(prompts)) if shares is None else shares
    return statistics.near_pairs(*pairwise.nearest(jnp.asarray(prompts), labels, 5), shares)


def test_nearest_prompts_are_those_of_all_distances(points):
    _, prompts = points
    labels = np.where(np.arange(N) < 30, np.arange(N) % 3, -1)
    apart = np.sqrt(squared_distances(prompts))
    np.fill_diagonal(apart, np.inf)
    apart[(labels[:, None] == labels) & (labels >= 0)] = np.inf
    found, others = pairwise.nearest(jnp.asarray(prompts), labels, 8)
    np.testing.assert_allclose(found, np.sort(apart, axis=1)[:, :8], rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(apart, others, axis=1), found, rtol=1e-4)


def test_curve_is_the_mean_squared_kernel_in_each_bin(points, monkeypatch):
    outputs, prompts = (part[:50].copy() for part in points)
    prompts[1] = prompts[0]  # Of another group.
    labels, weights = np.arange(50) % 20, 1.0 + np.arange(50) % 3
    monkeypatch.setattr(fold, "CPU_TILE", 16)  # No other test has 50 rows.
    curve = told(outputs, prompts, groups=labels, weights=weights).curve
    apart, others = np.sqrt(squared_distances(prompts)), ~np.eye(50, dtype=bool)
    squares, shares = similar(outputs), weights / weights.sum()
    ends = np.quantile(apart[others], 2.0 ** np.arange(1, 6) / 49)
    np.testing.assert_allclose(curve.ends, [*ends[:4], math.inf], rtol=1e-4)
    counted = (labels[:, None] != labels) * np.outer(shares, shares)
    assert curve.similarity.pairs.sum() == approx(counted.sum(), rel=1e-5)
    bins = itertools.pairwise([-1, *curve.ends])
    for (start, end), line in zip(bins, curve.lines(), strict=True):
        assert (line["from"], line["to"]) == (max(start, 0), end)
        inside = (apart > start) & (apart <= end)
        mean = np.average(squares, weights=counted * inside)
        assert line["similarity"] == approx(mean, rel=1e-4)
        assert line["low"] < line["similarity"] < line["high"]
        assert line["distance"] == approx(apart[inside & others].mean(), rel=1e-4)
    near = near_of(prompts, shares, labels)
    assert curve.distance == approx(near.weights @ near.distances)
    assert curve.near.value == approx(near.weights @ squares[near.one, near.other], rel=1e-4)


def test_prompts_at_one_point_are_one_bin_with_a_95_percent_band(points):
    curve = told(points[0], np.ones((N, D)), groups=np.arange(N)).curve
    bins = curve.similarity
    assert bins.values == approx((similar(points[0]).sum() - N) / N / (N - 1), rel=1e-4)
    error = Mean(bins.values[0], bins.changes[0]).error
    assert (bins.high - bins.values)[0] == approx(1.96 * error, rel=0.05)
    assert math.isnan(curve.read_at_0) and curve.distance == 0


def test_changes_are_the_derivatives_in_the_weights_of_prompts(points):
    outputs, prompts = points
    apart, squares = squared_distances(prompts), similar(outputs)
    inside = (apart > 0) & (apart < 4)
    shares = np.full(N, 1 / N)
    sums = np.stack([inside, inside * squares]).astype(float) @ shares
    bins = statistics.in_bins(sums[:1], sums[1:], shares, 0.05)

    def mean(shares):
        return np.average(squares, weights=inside * np.outer(shares, shares))

    assert bins.values[0] == approx(mean(shares))
    for row in (0, 17):
        moved = shares * (1 + 1e-6 * (np.arange(N) == row))
        slope = (mean(moved) - mean(shares)) / 1e-6
        assert bins.changes[0, row] == approx(slope, rel=1e-3)


def test_band_of_one_bin_is_two_sided_and_of_equal_bins_no_wider():
    shares, weights, sums = np.full(4, 1 / 4), np.ones((1, 4)), np.array([[0.4, 0.45, 0.52, 0.5]])
    one = statistics.in_bins(weights, sums, shares, 0.05)
    error = math.sqrt(np.sum(one.changes**2) * 4 / 3)
    assert Mean(one.values[0], one.changes[0]).error == approx(error)
    assert (one.high - one.values)[0] == approx(1.96 * error, rel=0.05)
    assert statistics.in_bins(weights, 2 * sums, shares, 0.05).high[0] == 1
    many = statistics.in_bins(np.repeat(weights, 5, 0), np.repeat(sums, 5, 0), shares, 0.05)
    np.testing.assert_allclose(many.high, one.high[0], rtol=5e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_near_pairs_count_prompts_by_their_shares(points, weighted):
    shares = np.where(np.arange(N) < 20, 1.0 + weighted, 1.0)
    shares /= shares.sum()
    near = near_of(points[1], shares)
    assert np.all(near.one < near.other)
    apart = np.sqrt(squared_distances(points[1]))
    np.testing.assert_allclose(near.distances, apart[near.one, near.other], rtol=1e-4)
    np.testing.assert_allclose(near.shares, shares, rtol=0.03)
    assert near.weights.sum() == approx(1)
    assert near.distances.mean() < apart.mean()


def test_weights_of_pairs_are_local_gaussians_scaled_by_prompts():
    """Scaling rows and columns leaves the ratio w_ab w_cd / (w_ad w_cb) as it was."""
    prompts = np.array([[0.0], [1.0], [1.9], [3.1], [4.6]], np.float32)
    near = near_of(prompts)
    nearest, apart = np.array([1.0, 0.9, 0.9, 1.2, 1.5]), np.abs(prompts - prompts.T)
    found = np.zeros((5, 5))
    found[near.one, near.other] = found[near.other, near.one] = np.log(near.weights)
    logarithms = found, -(apart**2) / np.outer(nearest, nearest) / 0.25
    ratios = [log[0, 1] + log[2, 3] - log[0, 3] - log[2, 1] for log in logarithms]
    assert ratios[0] == approx(ratios[1], rel=1e-3)


def test_line_is_read_at_zero_as_by_least_squares(points):
    outputs, prompts = points
    near = near_of(prompts)
    squares = similar(outputs)[near.one, near.other]
    fit = np.polyfit(near.distances, squares, 1, w=np.sqrt(near.weights))
    zero = statistics.at_zero(near, squares)
    assert zero.value == approx(fit[1])
    heavier = near.weights * np.where((near.one == 5) | (near.other == 5), 1 + 1e-6, 1)
    moved = np.polyfit(near.distances, squares, 1, w=np.sqrt(heavier))[1]
    assert zero.changes[5] == approx((moved - fit[1]) / 1e-6, rel=1e-3)
    mean, moved = statistics.near_mean(near, squares), np.average(squares, weights=heavier)
    assert mean.changes[5] == approx((moved - mean.value) / 1e-6, rel=1e-3)
    equal = near_of(np.eye(5, dtype=np.float32))  # Through equal distances there is no line.
    assert math.isnan(statistics.at_zero(equal, np.linspace(0, 1, equal.one.size)).value)


def constant(value, error=0.0):
    """A mean of many prompts, without error or with some."""
    return Mean(value, np.resize([error / 100, -error / 100], 10**4))


# Means everywhere, near, near and shifted, and at distance 0, some with an error; how close near
# prompts are; and the upper end of the interval, if there is one.
KNOWN: dict[str, tuple[Any, ...]] = {
    "ends within a factor of three": (0.1, 0.3, None, 0.88, 1, 0.88),
    "ends farther apart": (0.1, 0.3, None, 0.92, 1, None),
    "near prompts are no more alike": (0.3, 0.3, None, 0.4, 1, None),
    "near prompts are more alike": (0.29, 0.3, None, 0.4, 1, 0.4),
    "the line falls": (0.1, 0.3, None, 0.2, 1, None),
    "there is no line": (0.1, 0.3, None, math.nan, 1, None),
    "similarities may be rounding": (1e-14, 1e-13, None, 1.2e-13, 1, None),
    "near prompts are more alike by chance": (0.29, (0.3, 0.02), None, 0.4, 1, None),
    "all prompts are less alike by chance": ((0.3, 0.02), 0.29, None, 0.4, 1, None),
    "only shifted outputs are more alike": (0.3, 0.3, 0.35, 0.4, 1, None),
    "three errors above the line": (0.1, 0.35, None, (0.4, 0.02), 1, 0.46),
    "at most one": (0.1, 0.35, None, (0.99, 0.02), 1, 1.0),
    "close prompts of a flat curve": (0.3, 0.3, None, 0.32, 0.24, 0.32),
    "prompts that are not close": (0.3, 0.3, None, 0.32, 0.26, None),
}


@pytest.mark.parametrize("case", KNOWN)
def test_interval_is_given_where_near_prompts_show_it(case):
    *means, reach, high = KNOWN[case]
    given = [m if m is None else constant(*np.atleast_1d(m)) for m in means]
    found = statistics.known(*given, np.full(10**4, 1e-4), reach)
    if not any(isinstance(mean, tuple) for mean in means[:3]):
        assert found.at_least == approx(max(filter(None, means[:3])), rel=1e-2)
    assert math.isfinite(found.low) == math.isfinite(found.high) == (high is not None)
    if high is not None:
        assert (found.low, found.high) == (found.at_least, approx(high, rel=1e-3))


def test_limit_is_the_largest_of_those_tried_at_a_level_for_all(points):
    outputs, prompts = points
    near = near_of(prompts)
    mean, low = statistics.near_mean(near, similar(outputs)[near.one, near.other]), constant(0.0)
    alone = statistics.known(mean, low._replace(changes=np.zeros(N)), None, mean, near.shares)
    two = statistics.lower_limit(mean, near.shares, 0.025)
    assert alone.at_least == approx(two)
    assert two == statistics.ends_of(mean, near.shares)(0.05)[0]
    three = statistics.known(mean, mean, mean, mean, near.shares).at_least
    assert three == approx(statistics.lower_limit(mean, near.shares, 0.05 / 3))
    assert three < two


def sampled(rng, share, n=300):
    """Outputs of which a share follows the prompt, in one space, and a share is its own."""
    prompts = rng.normal(size=(n, 1))
    kinds = np.where(rng.random(n) < share, np.floor(prompts[:, 0]), rng.integers(100, 104, size=n))
    return kinds[:, None], prompts


def test_bound_holds_and_dense_smooth_prompts_are_known():
    rng, truth = np.random.default_rng(0), 0.5**2 + 0.5**2 / 4
    samples = [told(*sampled(rng, 0.5), 0.1) for _ in range(6)]
    assert sum(one.at_most >= 1 / truth for one in samples) >= 5
    known = [one for one in samples if one.state == "known"]
    assert known
    for one in known:
        assert one.low <= 1 / truth * 1.2
        assert one.value == approx(math.sqrt(one.low * one.high))


def test_outputs_that_move_with_their_prompts_have_a_better_bound(points):
    rng = np.random.default_rng(0)
    prompts = 1 + rng.normal(size=(N, 20)).astype(np.float32)
    outputs = prompts / 2 - 7 + 0.05 * rng.normal(size=(N, 20)).astype(np.float32)
    elsewhere = told(np.c_[outputs, 0 * outputs[:, :1]], prompts)
    assert told(outputs, prompts).at_most < 1.3 < 50 < elsewhere.at_most
    # Under a kernel of differences.
    cosine = pairs_of(*points, output_kernel=cv.Cosine())
    assert asked_once._slope(cosine) == 0 < asked_once._slope(pairs_of(*points))


LABELS = {"prompt_kernel": cv.Indicator()}
WITHIN = {"output_kernel": WithinPrompts("given", False)}


@pytest.mark.filterwarnings("ignore:prompts")  # All are different.
@pytest.mark.parametrize(
    ("outputs", "prompts", "options", "reason"),
    [
        (np.eye(2), np.eye(2), {}, "2 prompts that were asked once are too few"),
        (np.eye(3), np.eye(3), {"groups": np.zeros(3)}, "all prompts are of one group"),
        (np.eye(6), np.arange(6)[:, None], LABELS, "labels, which have no distance"),
        (np.eye(6, 7), np.eye(6), {}, "outputs to near ones are no more alike"),
        (np.c_[np.arange(6), np.eye(6)], np.eye(6), WITHIN, "outputs to two are not compared"),
    ],
)
def test_what_cannot_be_told_says_why(outputs, prompts, options, reason):
    found = told(outputs, prompts, 0.3, **options)
    assert found.state == "cannot be told"
    assert reason in str(found)
    assert "Ask each prompt twice" in str(found)
    assert found.as_dict()["value"] is None


def test_limit_is_that_of_all_pairs_and_of_near_ones(points, monkeypatch):
    known = mock.Mock(wraps=statistics.known)
    monkeypatch.setattr(statistics, "known", known)
    found = told(*points)
    everywhere, *_, reach = known.call_args.args
    squares = similar(points[0])
    value = (squares.sum() - N) / N / (N - 1)
    assert 1 / found.total == approx(everywhere.value) == approx(value, rel=1e-5)
    changes = 2 * ((squares.sum(axis=1) - 1) / (N - 1) - value) / N
    np.testing.assert_allclose(everywhere.changes, changes, rtol=1e-4, atol=1e-6)
    near, apart = near_of(points[1]), np.sqrt(squared_distances(points[1]))
    mean = apart.sum() / N / (N - 1)
    assert reach == approx(near.weights @ near.distances / mean, rel=1e-5)


def test_limit_of_groups_is_wider_than_that_of_as_many_prompts(points):
    alone, grouped = (told(*points, groups=groups) for groups in (None, np.arange(N) // 6))
    mean = Mean(0.5, np.arange(6.0))
    assert mean.by(None) is mean
    assert mean.by(np.array(list("aabbcc"))).changes.tolist() == [1, 5, 9]
    assert grouped.at_most > alone.at_most
    assert grouped.curve.plot().axes[0].get_xlim()[0] == 0


@pytest.mark.parametrize("scale", [1e-4, 1e-18])
def test_no_row_is_a_pair_with_itself_in_any_unit(points, scale):
    outputs, prompts = points
    curve = told(outputs, np.r_[prompts[:-1] * scale, np.ones((1, D))]).curve
    assert curve.similarity.pairs.sum() == approx(1 - 1 / N, rel=1e-5)


@pytest.mark.parametrize(
    ("width", "less", "state"),
    [
        (1.0, 1.06, "at most"),
        (1.0, 1.04, "cannot be told"),
        (5.0, 0.5, "at most"),  # A number below three is worth saying.
        (5.0, 0.3, "cannot be told"),
    ],
)
def test_limit_is_said_where_it_is_small_or_below_the_number_over_all(
    points, monkeypatch, width, less, state
):
    total = told(*points, width).total
    known = statistics.Known(less / total, math.nan, math.nan)
    monkeypatch.setattr(statistics, "known", lambda *_, **__: known)
    found = told(*points, width)
    assert (found.state, found.at_most) == (state, approx(total / less))


def test_equal_outputs_are_one():
    found = told(np.ones((N, 2)), np.random.default_rng(0).normal(size=(N, 2)))
    assert found.low == 1 <= found.at_most < 1.3
    assert found.total == approx(1)


def number(state, at_most=math.nan, value=math.nan, low=math.nan, high=math.nan, **options):
    options = {"prompts": 10, "repeated": False} | options
    return OnePrompt(state, value, low, high, at_most, 50.0, **options)


AT_MOST, KNOWN_ONE = number("at most", 8.2), number("known", 2.6, 2.0, 1.5, 2.5)
UNKNOWN = number("cannot be told", 5.0, reason="outputs differ")
REPEATED = number("known", value=5.0, low=4.0, high=7.0, repeated=True)
OTHER = dataclasses.replace(KNOWN_ONE, repeated=True, left_out=3, prompts=12)
SOLE = dataclasses.replace(OTHER, prompts=1)
ADVICE = "To know it within 20%, ask at most 692 prompts twice."


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ((REPEATED,), ": about 5.0 [4.0, 7.0] (A)."),
        (
            (OTHER, REPEATED),
            ": about 5.0 [4.0, 7.0] (B) and about 2.00 [1.50, 2.50] (A), by the 10 to 12 prompts "
            "that were asked several times.",
        ),
        ((SOLE,), ": about 2.00 [1.50, 2.50] (A), by the one prompt that was asked several times."),
        ((KNOWN_ONE,), ", estimated from near prompts: about 2.00 [1.50, 2.50] (A)."),
        ((AT_MOST,), f", each asked once: at most 8.2 (A). {ADVICE}"),
        ((AT_MOST, REPEATED), f": about 5.0 [4.0, 7.0] (B) and at most 8.2 (A). {ADVICE}"),
        (
            (AT_MOST, UNKNOWN, KNOWN_ONE),
            ", each asked once: about 2.00 [1.50, 2.50] (C), at most 8.2 (A) and cannot be told, "
            f"at most 5 (B). {ADVICE}",
        ),
    ],
)
def test_sentence_of_several_models(models, words):
    found = one_prompt.in_a_sentence(dict(zip("ABC", models, strict=False)))
    assert found == f"Different outputs to one prompt{words}"


def test_prompts_to_ask_twice_are_for_the_model_that_needs_most_up_to_what_anyone_asks():
    assert one_prompt.ask_twice([UNKNOWN, AT_MOST]) + "." == ADVICE
    most = dataclasses.replace(UNKNOWN, at_most=1000.0)
    assert "at most 95,944 prompts" in one_prompt.ask_twice([UNKNOWN, most])
    more = dataclasses.replace(UNKNOWN, at_most=2000.0)
    assert one_prompt.ask_twice([UNKNOWN, more]) == "Ask each prompt twice"
    assert one_prompt.ask_twice([AT_MOST], 0.1).startswith("To know it within 10%")
    assert number("at most", math.inf).twice(0.2) is None


def test_an_open_end_is_said_in_words():
    assert number("known", value=5.0, low=4.0, high=math.inf).in_words() == "> 4"
    assert number("known", value=5.0).in_words() == "about 5"
    assert number("known", value=5.0).note() == ""


def asked(several, **options):
    """Rows of which some prompts have two, and the others one."""
    kinds = np.r_[np.repeat(np.arange(several), 2), np.arange(several, N - several)]
    return pairs_of(np.arange(N)[:, None] % 7, kinds[:, None], **(options | LABELS))


def test_prompts_repeat_where_seven_of_each_model_do():
    def repeat(*models, kernels: Any = (None, None), similar=False):
        return kernel_choice._count_as_repeated(models, kernels, "auto", similar)

    assert repeat(asked(7)) and not repeat(asked(6)) and not repeat(asked(7), asked(6))
    once = np.where(np.arange(N) % 2, 0.0, 1.0) + (np.arange(N) >= 14)
    assert not repeat(asked(7, weights=once))
    assert repeat(asked(1)._but(copies=np.full(N, 2)))
    assert not repeat(asked(7), similar=True)
    assert repeat(asked(7), kernels=(None, cv.Indicator()), similar=True)
    assert not repeat(asked(7), kernels=(cv.Gaussian(1.0), cv.Indicator()))


@pytest.mark.parametrize(
    ("several", "once", "exact", "told"),
    [(7, 46, True, True), (7, 46, False, False), (6, 46, True, False), (5, 10, False, True)],
)
def test_single_answers_are_left_out_beside_enough_prompts_with_several(several, once, exact, told):
    prompt = np.r_[np.repeat(np.arange(several), 2), several + np.arange(once)]
    ones, model = np.ones(prompt.size), np.zeros(prompt.size, int)
    single = order_two.single_answers(prompt, ones, model, exact=exact)
    assert (single is not None) == told
    if told:
        np.testing.assert_array_equal(single, prompt >= several)


def test_single_answers_are_counted_by_batches_and_models():
    two, ones, one_model = np.repeat(np.arange(5), 2), np.ones(40), np.zeros(40, int)
    of_models = np.r_[two, two, np.arange(5, 25)]  # Most of the second model are single.
    batches = np.r_[np.zeros(30, int), np.arange(1, 11)]  # Three of one prompt.
    for prompt, draws, model in (
        (one_model, ones, one_model),
        (of_models, ones, np.repeat([0, 1], [10, 30])),
        (batches, np.where(batches > 0, 1.0, 0.1), one_model),
    ):
        assert order_two.single_answers(prompt, draws, model, exact=False) is None


def answers(several, count=40, each=5):
    """Of some prompts several answers, of the others one; a third of all is one answer."""
    rng = np.random.default_rng(2)
    kinds = np.repeat(np.arange(count), np.where(np.arange(count) < several, each, 1))
    prompts = np.random.default_rng(1).normal(size=(count, D)).astype(np.float32)[kinds]
    own = 10 * kinds + rng.integers(4, size=kinds.size)
    outputs = np.where(rng.random(kinds.size) < 0.5, own, -1)[:, None].astype(np.float32)
    return outputs, prompts, kinds


@pytest.mark.parametrize("several", [0, 8, 40])
def test_prompts_that_repeat_are_used_however_few(several):
    outputs, prompts, kinds = answers(several)
    options: Any = {"prompt_ids": kinds, "output_kernel": cv.Gaussian(0.5), "orders": [2]}
    found = cv.evaluate(outputs, prompts, **options)
    one: Any = found.one_prompt
    unbiased: Any = found.order(2).unbiased
    truth = 1 / (1 / 4 + 1 / 16)
    assert one.repeated == (several > 0)
    first = str(found).splitlines()[0]
    if several == 0:
        assert one.state in ("at most", "cannot be told") and "asked once" in first
        assert one.prompts == 40 and "independent given their prompts" in found.details()
    else:
        assert one.state == "known" and one.low < truth < one.high
        assert (one.value, one.total) == (unbiased.conditional, unbiased.vendi)
        assert math.isnan(one.at_most)
        assert (one.prompts, one.left_out, one.borrowed) == (several, 40 - several, None)
        of_similar = one_of(outputs, prompts, **options, prompt_kernel=cv.Gaussian(1.0))
        assert of_similar.value == approx(one.value, rel=1e-4)
        assert first.startswith("Of 5 outputs" if several == 40 else "Different outputs to one")
        assert several < 40 or "asked once" not in str(cv.plan(found))
    assert (found.table().rows[-1][2] == one.in_words()) == (several == 0)
    plain = found.as_dict()["one_prompt"]
    assert (plain["state"], plain["value"]) == (one.state, one.value if several else None)


def test_what_similar_prompts_lend_is_the_excess_of_the_identity():
    outputs, prompts, kinds = answers(40)
    weights = 1.0 + np.arange(40) % 3
    options: Any = {"prompt_ids": kinds, "weights": weights[kinds], "orders": [2]}
    options |= {"output_kernel": cv.Gaussian(0.5), "prompt_kernel": cv.Gaussian(1.0)}
    found = cv.evaluate(outputs, prompts, **options)
    one: Any = found.one_prompt
    same, near = similar(outputs, 0.5), similar(prompts) * (kinds[:, None] != kinds)
    near *= np.outer(weights[kinds], weights[kinds])
    conditional = np.sum(near * same) / np.sum(near)
    own = np.array([(same[kinds == k][:, kinds == k].sum() - 5) / 20 for k in range(40)])
    by = np.bincount(kinds, np.sum(near, axis=1))
    assert one.borrowed == approx(1 - conditional / (by @ own / by.sum()), rel=1e-4)
    squares = weights**2  # As prompts count in Conditional-RKE.
    assert one.value == approx(1 / np.average(own, weights=squares), rel=1e-4)
    assert f"{one.borrowed:.0%} of the Conditional-RKE between similar" in found.details()


@pytest.mark.filterwarnings("ignore:outputs")  # All are different.
def test_answers_that_never_agree_tell_nothing():
    _, prompts, kinds = answers(40)
    options = {"prompt_ids": kinds, "output_kernel": cv.Gaussian(0.1)}
    options |= {"prompt_kernel": cv.Gaussian(1.0)}
    outputs = np.arange(200, dtype=np.float32)[:, None]
    one = one_of(outputs, prompts, **options)
    assert one.reason.startswith("no two answers to a prompt count as the same")
    assert "twice" not in str(one)
    assert one.borrowed is None and math.isnan(one.value)
    # The same five answers to each prompt, but to the first: more alike across prompts.
    one = one_of(outputs % 5 * (outputs >= 5), prompts, **options)
    assert (one.state, one.borrowed) == ("known", 0)


def test_one_prompt_is_that_of_all_rows_and_not_said_of_outputs_alone_or_papers_scores(points):
    one = one_of(points[0], np.zeros(N, int))
    assert (one.state, one.prompts, one.value) == ("known", 1, approx(one.total, rel=1e-6))
    assert one_of(points[0]) is one_of(*points, unbiased=False) is one_of(*points, orders=[1])
    assert one_of(points[0]) is None


def test_models_asked_once_are_compared_at_one_distance():
    rng = np.random.default_rng(0)
    prompts = rng.normal(size=(300, 2)).astype(np.float32)
    real = prompts + 0.1 * rng.normal(size=(300, 2)).astype(np.float32)
    models = {"real": real, "shuffled": rng.permutation(real)}
    groups = np.arange(300) // 2  # Rows of one group are no pair.
    options: Any = {"output_kernel": cv.Gaussian(0.5), "orders": [2], "profile": False}
    found = cv.compare(models, prompts, groups=groups, **options)
    ranking = found.ranking("near", 2)
    assert ranking.plug_in is None
    assert found.main[0] is ranking and list(ranking.values) == ["shuffled", "real"]
    apart = np.sqrt(squared_distances(prompts))
    inside = (groups[:, None] != groups) & (apart <= ranking.within)
    words = {}
    for name, outputs in models.items():
        one: Any = found.evaluations[name].one_prompt
        words[name] = one.in_words()
        changes = np.bincount(groups, one.curve.similarity.changes[0])
        error = math.sqrt(np.sum(changes**2) * 150 / 149) * ranking.values[name] ** 2
        assert ranking.standard_errors[name] == approx(error)
        expected = 1 / similar(outputs, 0.5)[inside].mean()
        assert ranking.values[name] == approx(expected, rel=0.02)  # At the edge.
    difference = ranking.difference("shuffled", "real")
    assert 2 < difference.ratio_low < difference.ratio_high < math.inf
    for table in (found.summary(), found.scores()):
        assert table.heading[2] == "to one prompt"
        assert {row[0]: row[2] for row in table.rows} == words
    assert "prompts closer than" in str(found) and "near" in found.to_dataframe()["score"].tolist()


@pytest.mark.parametrize("errors", [True, False])
def test_models_of_other_prompts_share_the_bins_of_distances(points, errors):
    outputs, prompts = points
    models, prompts = {"one": outputs, "two": outputs}, {"one": prompts, "two": 1.3 * prompts}
    options: Any = ORDER_2 | {"profile": False, "one_population": True, "errors": errors}
    found = cv.compare(models, prompts, **(options | {"orders": [2, 1]}))
    known: Any = [found.evaluations[name].one_prompt for name in models]
    curves = [one.curve for one in known]
    np.testing.assert_array_equal(curves[0].ends, curves[1].ends)
    (ranking,) = [ranking for ranking in found.rankings if ranking.score == "near"]
    assert (ranking.order, ranking.within) == (2, curves[0].ends[0])
    assert (ranking.intervals is not None) == errors
    # Prompts of the second model are further apart: it has fewer pairs in the first bin.
    assert 0 < curves[1].similarity.pairs[0] < curves[0].similarity.pairs[0]
    for name, curve in zip(ranking.intervals or (), curves, strict=errors):
        mean = Mean(curve.similarity.values[0], curve.similarity.changes[0])
        low, high = statistics.ends_of(mean, np.full(N, 1 / N))(0.05)
        assert ranking.intervals[name] == approx((1 / high, 1 / low))


@pytest.mark.filterwarnings("ignore:prompts")  # The far ones are all different.
def test_no_distance_is_shared_where_a_model_has_no_curve(points):
    one = told(*points)
    assert math.isfinite(asked_once.at_one_distance({"one": one}, None)[0])
    none = dataclasses.replace(one, curve=None)
    other = told(*points, ends=np.array([math.inf]))  # One bin.
    far = told(points[0], 8 * points[1], ends=one.curve.ends)
    assert len(far.curve.lines()) < len(far.curve.ends)
    apart = {"one": one, "two": far}
    for known in ({}, {"one": one, "two": none}, {"one": one, "two": other}, {"": other}, apart):
        within, errors = asked_once.at_one_distance(known, None)
        assert math.isnan(within) and not errors


def test_a_pilot_asked_once_says_how_many_prompts_to_ask_twice(points):
    found = cv.evaluate(*points, **ORDER_2)
    one: Any = found.one_prompt
    similarity = 1 / one.at_most
    expected = math.ceil((1.96 / 0.5) ** 2 * (1 - similarity) / similarity)
    assert one.twice(0.5) == expected
    words = f"To know it within 50%, ask at most {expected:,} prompts twice"
    assert words in str(cv.plan(found, ratio=1.5))
    plan = cv.plan(found, budget=1000)
    assert plan.twice == one_prompt.ask_twice([one], plan.best.ratio - 1)
    assert "95% band" in str(one)


def test_weights_count_prompts(points):
    weights = np.where(np.arange(N) < 30, 3.0, 0.0)
    kernel = {"prompt_kernel": cv.Gaussian(1.0)}
    alone = one_of(*(part[:30] for part in points), **kernel)
    assert one_of(*points, weights=weights, **kernel).at_most == approx(alone.at_most, rel=1e-4)
