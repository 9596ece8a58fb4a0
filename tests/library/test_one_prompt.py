"""Prompts that were asked once: sums by distance, bounds and estimates against plain NumPy."""

import dataclasses
import math
from typing import Any

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


def squared_distances(points):
    points = np.asarray(points, np.float64)
    return np.sum((points[:, None] - points) ** 2, axis=-1)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    prompts = rng.normal(size=(N, D))
    outputs = 0.5 * prompts + 0.4 * rng.normal(size=(N, D))
    return outputs.astype(np.float32), prompts.astype(np.float32)


def pairs_of(outputs, prompts, width=1.0, kernel=None, **options):
    outputs, prompts = (np.asarray(of, np.float32) for of in (outputs, prompts))
    kernels = {"output_kernel": cv.Gaussian(width), "prompt_kernel": kernel or cv.Gaussian(1.0)}
    return Pairs(outputs, prompts, **kernels, **options)


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
    outputs, prompts = (of[:50].copy() for of in points)
    prompts[1] = prompts[0]  # Of another group.
    labels, weights = np.arange(50) % 20, 1.0 + np.arange(50) % 3
    monkeypatch.setattr(fold, "CPU_TILE", 16)  # No other test has 50 rows.
    found = asked_once.of_pairs(pairs_of(outputs, prompts, groups=labels, weights=weights))
    curve: Any = found.curve
    apart, squares = np.sqrt(squared_distances(prompts)), np.exp(-squared_distances(outputs))
    ends = np.quantile(apart[~np.eye(50, dtype=bool)], 2.0 ** np.arange(1, 6) / 49)
    np.testing.assert_allclose(curve.ends, [*ends[:4], math.inf], rtol=1e-4)
    shares = weights / weights.sum()
    counted = (labels[:, None] != labels) * np.outer(shares, shares)
    assert curve.similarity.pairs.sum() == pytest.approx(counted.sum(), rel=1e-5)
    ends = [-1, *curve.ends]
    for k, line in enumerate(curve.lines()):
        assert (line["from"], line["to"]) == (max(ends[k], 0), ends[k + 1])
        inside = counted * ((apart > ends[k]) & (apart <= ends[k + 1]))
        assert line["similarity"] == pytest.approx(np.average(squares, weights=inside), rel=1e-4)
        assert line["low"] < line["similarity"] < line["high"]
        inside = (apart > ends[k]) & (apart <= ends[k + 1]) & ~np.eye(50, dtype=bool)
        assert line["distance"] == pytest.approx(apart[inside].mean(), rel=1e-4)
    near = near_of(prompts, shares, labels)
    assert curve.distance == pytest.approx(near.weights @ near.distances)
    assert curve.near.value == pytest.approx(near.weights @ squares[near.one, near.other], rel=1e-4)


def test_prompts_at_one_point_are_one_bin_with_a_95_percent_band(points):
    outputs = points[0]
    found: Any = asked_once.of_pairs(pairs_of(outputs, np.ones((N, D)), groups=np.arange(N)))
    bins, squares = found.curve.similarity, np.exp(-squared_distances(outputs))
    assert bins.values == pytest.approx((squares.sum() - N) / N / (N - 1), rel=1e-4)
    error = Mean(bins.values[0], bins.changes[0]).error
    assert (bins.high - bins.values)[0] == pytest.approx(1.96 * error, rel=0.05)
    assert math.isnan(found.curve.read_at_0) and found.curve.distance == 0


def test_changes_are_the_derivatives_in_the_weights_of_prompts(points):
    outputs, prompts = points
    apart, squares = squared_distances(prompts), np.exp(-squared_distances(outputs))
    inside = (apart > 0) & (apart < 4)

    def mean(shares):
        weights = inside * np.outer(shares, shares)
        return np.sum(weights * squares) / np.sum(weights)

    shares = np.full(N, 1 / N)
    sums = np.stack([inside, inside * squares]).astype(float) @ shares
    bins = statistics.in_bins(sums[:1], sums[1:], shares, 0.05)
    assert bins.values[0] == pytest.approx(mean(shares))
    for row in (0, 17):
        moved = shares.copy()
        moved[row] *= 1 + 1e-6
        slope = (mean(moved) - mean(shares)) / 1e-6
        assert bins.changes[0, row] == pytest.approx(slope, rel=1e-3)


def test_band_of_one_bin_is_two_sided_and_of_equal_bins_no_wider():
    shares, weights, sums = np.full(4, 1 / 4), np.ones((1, 4)), np.array([[0.4, 0.45, 0.52, 0.5]])
    one = statistics.in_bins(weights, sums, shares, 0.05)
    error = math.sqrt(np.sum(one.changes**2) * 4 / 3)
    assert Mean(one.values[0], one.changes[0]).error == pytest.approx(error)
    assert (one.high - one.values)[0] == pytest.approx(1.96 * error, rel=0.05)
    assert statistics.in_bins(weights, 2 * sums, shares, 0.05).high[0] == 1
    many = statistics.in_bins(np.repeat(weights, 5, 0), np.repeat(sums, 5, 0), shares, 0.05)
    np.testing.assert_allclose(many.high, one.high[0], rtol=5e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_near_pairs_count_prompts_by_their_shares(points, weighted):
    shares = np.where(np.arange(N) < 20, 2.0, 1.0) if weighted else np.ones(N)
    shares /= shares.sum()
    near = near_of(points[1], shares)
    assert np.all(near.one < near.other)
    apart = np.sqrt(squared_distances(points[1]))
    np.testing.assert_allclose(near.distances, apart[near.one, near.other], rtol=1e-4)
    np.testing.assert_allclose(near.shares, shares, rtol=0.03)
    assert near.weights.sum() == pytest.approx(1)
    assert near.distances.mean() < apart.mean()


def test_weights_of_pairs_are_local_gaussians_scaled_by_prompts():
    """Scaling rows and columns leaves the ratio w_ab w_cd / (w_ad w_cb) as it was."""
    prompts = np.array([[0.0], [1.0], [1.9], [3.1], [4.6]], np.float32)
    near = near_of(prompts)
    nearest, apart = np.array([1.0, 0.9, 0.9, 1.2, 1.5]), np.abs(prompts - prompts.T)
    logarithms = -(apart**2) / np.outer(nearest, nearest) / 0.25
    found = np.zeros((5, 5))
    found[near.one, near.other] = found[near.other, near.one] = np.log(near.weights)
    for of in (logarithms, found):
        of[...] -= of[0, 1] - 0.0
    ratio = [of[0, 1] + of[2, 3] - of[0, 3] - of[2, 1] for of in (logarithms, found)]
    assert ratio[1] == pytest.approx(ratio[0], rel=1e-3)


def test_line_is_read_at_zero_as_by_least_squares(points):
    outputs, prompts = points
    near = near_of(prompts)
    squares = np.exp(-squared_distances(outputs))[near.one, near.other]
    fit = np.polyfit(near.distances, squares, 1, w=np.sqrt(near.weights))
    zero = statistics.at_zero(near, squares)
    assert zero.value == pytest.approx(fit[1])
    heavier = near.weights * np.where((near.one == 5) | (near.other == 5), 1 + 1e-6, 1)
    moved = np.polyfit(near.distances, squares, 1, w=np.sqrt(heavier))[1]
    assert zero.changes[5] == pytest.approx((moved - fit[1]) / 1e-6, rel=1e-3)
    mean, moved = statistics.near_mean(near, squares), np.average(squares, weights=heavier)
    assert mean.changes[5] == pytest.approx((moved - mean.value) / 1e-6, rel=1e-3)


def test_line_through_equal_distances_reads_nothing():
    corners = np.eye(5, dtype=np.float32)
    near = near_of(corners)
    assert math.isnan(statistics.at_zero(near, np.linspace(0, 1, near.one.size)).value)


def constant(value, error=0.0):
    """A mean of many prompts, without error or with some."""
    return Mean(value, np.resize([error / 100, -error / 100], 10**4))


SHARES = np.full(10**4, 1e-4)


@pytest.mark.parametrize(
    ("everywhere", "near", "zero", "given"),
    [
        (0.1, 0.3, 0.88, True),
        (0.1, 0.3, 0.92, False),  # More than a factor of three.
        (0.3, 0.3, 0.4, False),  # Near prompts are no more alike.
        (0.29, 0.3, 0.4, True),
        (0.1, 0.3, 0.2, False),  # The line falls.
        (0.1, 0.3, math.nan, False),
        (1e-14, 1e-13, 1.2e-13, False),  # Which may be rounding.
    ],
)
def test_interval_is_given_where_near_prompts_are_more_alike(everywhere, near, zero, given):
    means = constant(everywhere), constant(near), None, constant(zero)
    found = statistics.known(*means, SHARES)
    assert found.at_least == pytest.approx(max(everywhere, near), rel=1e-2)
    assert math.isfinite(found.low) == given
    if given:
        assert found.low == found.at_least
        assert found.high == pytest.approx(zero, rel=1e-2)


@pytest.mark.parametrize(
    ("everywhere", "near", "shifted"),
    [
        (constant(0.29), constant(0.3, 0.02), None),
        (constant(0.3, 0.02), constant(0.29), None),
        (constant(0.3), constant(0.3), constant(0.35)),
    ],
)
def test_interval_needs_near_prompts_that_are_more_alike_beyond_chance(everywhere, near, shifted):
    found = statistics.known(everywhere, near, shifted, constant(0.4), SHARES)
    assert math.isnan(found.low)


@pytest.mark.parametrize(("zero", "high"), [(0.4, 0.46), (0.99, 1.0)])
def test_interval_ends_three_errors_above_the_line_and_at_most_at_one(zero, high):
    means = constant(0.1), constant(0.35), None, constant(zero, 0.02)
    assert statistics.known(*means, SHARES).high == pytest.approx(high, rel=1e-3)


@pytest.mark.parametrize(("reach", "given"), [(0.24, True), (0.26, False)])
def test_close_prompts_show_the_number_even_if_the_curve_is_flat(reach, given):
    flat = constant(0.3)
    found = statistics.known(flat, flat, None, flat._replace(value=0.32), SHARES, reach)
    assert math.isfinite(found.low) == given


def test_limit_is_the_largest_of_those_tried_at_a_level_for_all(points):
    outputs, prompts = points
    near = near_of(prompts)
    squares = np.exp(-squared_distances(outputs))[near.one, near.other]
    mean, low = statistics.near_mean(near, squares), constant(0.0)
    alone = statistics.known(mean, low._replace(changes=np.zeros(N)), None, mean, near.shares)
    two = statistics.lower_limit(mean, near.shares, 0.025)
    assert alone.at_least == pytest.approx(two)
    assert two == statistics.ends_of(mean, near.shares)(0.05)[0]
    three = statistics.known(mean, mean, mean, mean, near.shares).at_least
    assert three == pytest.approx(statistics.lower_limit(mean, near.shares, 0.05 / 3))
    assert three < two


def sampled(rng, share, n=300):
    """Outputs of which a share follows the prompt, in one space, and a share is its own."""
    prompts = rng.normal(size=(n, 1))
    kinds = np.where(rng.random(n) < share, np.floor(prompts[:, 0]), rng.integers(100, 104, size=n))
    return kinds[:, None], prompts


def test_bound_holds_and_dense_smooth_prompts_are_known():
    rng, held, known = np.random.default_rng(0), 0, []
    truth = 0.5**2 + 0.5**2 / 4
    for _ in range(6):
        found = asked_once.of_pairs(pairs_of(*sampled(rng, 0.5), 0.1))
        held += found.at_most >= 1 / truth
        known.append(found.state == "known")
        if known[-1]:
            assert found.low <= 1 / truth * 1.2
            assert found.value == pytest.approx(math.sqrt(found.low * found.high))
    assert held >= 5
    assert any(known)


def test_outputs_that_move_with_their_prompts_have_a_better_bound():
    rng = np.random.default_rng(0)
    prompts = 1 + rng.normal(size=(N, 20)).astype(np.float32)
    outputs = prompts / 2 - 7 + 0.05 * rng.normal(size=(N, 20)).astype(np.float32)
    found = asked_once.of_pairs(pairs_of(outputs, prompts))
    elsewhere = asked_once.of_pairs(pairs_of(np.c_[outputs, 0 * outputs[:, :1]], prompts))
    assert found.at_most < 1.3 < 50 < elsewhere.at_most


def test_outputs_move_only_under_a_kernel_of_differences(points):
    kernels: Any = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Gaussian(1.0)}
    assert asked_once._slope(Pairs(*points, **kernels)) == 0 < asked_once._slope(pairs_of(*points))


@pytest.mark.filterwarnings("ignore:prompts")  # All are different.
@pytest.mark.parametrize(
    ("outputs", "prompts", "reason"),
    [
        (np.eye(2), np.eye(2), "2 prompts that were asked once are too few"),
        (np.eye(3), np.eye(3), "all prompts are of one group"),
        (np.eye(6), np.arange(6)[:, None], "labels, which have no distance"),
        (np.eye(6, 7), np.eye(6), "outputs to near ones are no more alike"),
    ],
)
def test_what_cannot_be_told_says_why(outputs, prompts, reason):
    kernel = cv.Indicator() if prompts.shape[1] == 1 else None
    groups = np.zeros(3) if len(prompts) == 3 else None
    found = asked_once.of_pairs(pairs_of(outputs, prompts, 0.3, kernel, groups=groups))
    assert found.state == "cannot be told"
    assert reason in str(found)
    assert "Ask each prompt twice" in str(found)
    assert found.as_dict()["value"] is None


def test_limit_is_that_of_all_pairs_and_of_near_ones(points, monkeypatch):
    seen: list[Any] = []
    known = statistics.known
    monkeypatch.setattr(
        statistics, "known", lambda *parts, **_: seen.append(parts) or known(*parts)
    )
    found = asked_once.of_pairs(pairs_of(*points))
    ((everywhere, _, _, _, _, reach),) = seen
    squares = np.exp(-squared_distances(points[0]))
    value = (squares.sum() - N) / N / (N - 1)
    assert 1 / found.total == pytest.approx(everywhere.value) == pytest.approx(value, rel=1e-5)
    changes = 2 * ((squares.sum(axis=1) - 1) / (N - 1) - value) / N
    np.testing.assert_allclose(everywhere.changes, changes, rtol=1e-4, atol=1e-6)
    near, apart = near_of(points[1]), np.sqrt(squared_distances(points[1]))
    mean = apart.sum() / N / (N - 1)
    assert reach == pytest.approx(near.weights @ near.distances / mean, rel=1e-5)


def test_limit_of_groups_is_wider_than_that_of_as_many_prompts(points):
    groups = np.arange(N) // 6
    alone, grouped = (asked_once.of_pairs(pairs_of(*points, groups=of)) for of in (None, groups))
    mean = Mean(0.5, np.arange(6.0))
    assert mean.by(None) is mean
    assert mean.by(np.array(list("aabbcc"))).changes.tolist() == [1, 5, 9]
    assert grouped.at_most > alone.at_most and grouped.curve is not None
    assert grouped.curve.plot().axes[0].get_xlim()[0] == 0


@pytest.mark.parametrize("scale", [1e-4, 1e-18])
def test_no_row_is_a_pair_with_itself_in_any_unit(points, scale):
    outputs, prompts = points
    far = np.r_[prompts[:-1] * scale, np.ones((1, D))]
    curve: Any = asked_once.of_pairs(pairs_of(outputs, far)).curve
    assert curve.similarity.pairs.sum() == pytest.approx(1 - 1 / N, rel=1e-5)


def test_outputs_that_are_compared_within_prompts_alone_tell_nothing(points):
    outputs = np.c_[np.arange(N), points[0]].astype(np.float32)
    kernels = {"output_kernel": WithinPrompts("given", False), "prompt_kernel": cv.Gaussian(1.0)}
    found = asked_once.of_pairs(Pairs(outputs, points[1], **kernels))
    assert found.reason == "prompts were asked once, and outputs to two are not compared"


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
    pairs = pairs_of(*points, width=width)
    total = asked_once.of_pairs(pairs).total
    known = statistics.Known(less / total, math.nan, math.nan)
    monkeypatch.setattr(statistics, "known", lambda *_, **__: known)
    found = asked_once.of_pairs(pairs)
    assert (found.state, found.at_most) == (state, pytest.approx(total / less))


def test_equal_outputs_are_one():
    rng = np.random.default_rng(0)
    pairs = pairs_of(np.ones((N, 2)), rng.normal(size=(N, 2)))
    found = asked_once.of_pairs(pairs)
    assert found.low == 1 <= found.at_most < 1.3
    assert found.total == pytest.approx(1)


def number(state, at_most=math.nan, value=math.nan, low=math.nan, high=math.nan, **options):
    options = {"prompts": 10, "repeated": False} | options
    return OnePrompt(state, value, low, high, at_most, 50.0, **options)


AT_MOST, KNOWN = number("at most", 8.2), number("known", 2.6, 2.0, 1.5, 2.5)
UNKNOWN = number("cannot be told", 5.0, reason="outputs differ")
REPEATED = number("known", value=5.0, low=4.0, high=7.0, repeated=True)
OTHER = dataclasses.replace(KNOWN, repeated=True, left_out=3, prompts=12)
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
        ((KNOWN,), ", estimated from near prompts: about 2.00 [1.50, 2.50] (A)."),
        ((AT_MOST,), f", each asked once: at most 8.2 (A). {ADVICE}"),
        ((AT_MOST, REPEATED), f": about 5.0 [4.0, 7.0] (B) and at most 8.2 (A). {ADVICE}"),
        (
            (AT_MOST, UNKNOWN, KNOWN),
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


# Which prompts count as repeated.


def asked(several, **options):
    """Rows of which some prompts have two, and the others one."""
    kinds = np.r_[np.repeat(np.arange(several), 2), np.arange(several, N - several)]
    outputs = np.arange(N)[:, None] % 7
    return pairs_of(outputs, kinds[:, None], kernel=cv.Indicator(), **options)


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
    def left_out(prompt, draws, model):
        return order_two.single_answers(prompt, draws, model, exact=False)

    two, ones = np.repeat(np.arange(5), 2), np.ones(40)
    assert left_out(np.zeros(40, int), ones, np.zeros(40, int)) is None
    of_models = np.r_[two, two, np.arange(5, 25)]  # Most of the second model are single.
    assert left_out(of_models, ones, np.repeat([0, 1], [10, 30])) is None
    batches = np.r_[np.zeros(30, int), np.arange(1, 11)]  # Three of one prompt.
    assert left_out(batches, np.where(batches > 0, 1.0, 0.1), np.zeros(40, int)) is None


# Evaluations and comparisons.


def answers(rng, several, count=40, each=5):
    """Of some prompts several answers, of the others one; a third of all is one answer."""
    numbers = np.where(np.arange(count) < several, each, 1)
    kinds = np.repeat(np.arange(count), numbers)
    prompts = np.random.default_rng(1).normal(size=(count, D)).astype(np.float32)[kinds]
    own = 10 * kinds + rng.integers(4, size=kinds.size)
    return (
        np.where(rng.random(kinds.size) < 0.5, own, -1)[:, None].astype(np.float32),
        prompts,
        kinds,
    )


@pytest.mark.parametrize("several", [0, 8, 40])
def test_prompts_that_repeat_are_used_however_few(several):
    rows = answers(np.random.default_rng(2), several)
    options: Any = {"prompt_ids": rows[2], "output_kernel": cv.Gaussian(0.5), "orders": [2]}
    found = cv.evaluate(*rows[:2], **options)
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
        similar = cv.evaluate(*rows[:2], **options, prompt_kernel=cv.Gaussian(1.0)).one_prompt
        assert similar is not None and similar.value == pytest.approx(one.value, rel=1e-4)
        assert first.startswith("Of 5 outputs" if several == 40 else "Different outputs to one")
    cells = found.table().rows[-1]
    assert (cells[2] == one.in_words()) == (several == 0)
    plain = found.as_dict()["one_prompt"]
    assert (plain["state"], plain["value"]) == (one.state, one.value if several else None)


def test_what_similar_prompts_lend_is_the_excess_of_the_identity():
    outputs, prompts, kinds = answers(np.random.default_rng(2), 40)
    outputs, weights = outputs.astype(np.float64), 1.0 + np.arange(40) % 3
    found = cv.evaluate(
        outputs.astype(np.float32),
        prompts,
        prompt_ids=kinds,
        weights=weights[kinds],
        output_kernel=cv.Gaussian(0.5),
        prompt_kernel=cv.Gaussian(1.0),
        orders=[2],
    )
    one: Any = found.one_prompt
    same = np.exp(-squared_distances(outputs) / 0.25)
    near = np.exp(-squared_distances(prompts)) * (kinds[:, None] != kinds)
    near *= np.outer(weights[kinds], weights[kinds])
    conditional = np.sum(near * same) / np.sum(near)
    own = np.array([(same[kinds == k][:, kinds == k].sum() - 5) / 20 for k in range(40)])
    by = np.bincount(kinds, np.sum(near, axis=1))
    assert one.borrowed == pytest.approx(1 - conditional / (by @ own / by.sum()), rel=1e-4)
    squares = weights**2  # As prompts count in Conditional-RKE.
    assert one.value == pytest.approx(1 / np.average(own, weights=squares), rel=1e-4)
    assert f"{one.borrowed:.0%} of the Conditional-RKE between similar" in found.details()


@pytest.mark.filterwarnings("ignore:outputs")  # All are different.
def test_answers_that_never_agree_tell_nothing():
    _, prompts, kinds = answers(np.random.default_rng(2), 40)
    options: Any = {"prompt_ids": kinds, "output_kernel": cv.Gaussian(0.1), "orders": [2]}
    options["prompt_kernel"] = cv.Gaussian(1.0)
    outputs = np.arange(200, dtype=np.float32)[:, None]
    one: Any = cv.evaluate(outputs, prompts, **options).one_prompt
    assert one.reason.startswith("no two answers to a prompt count as the same")
    assert "twice" not in str(one)
    assert one.borrowed is None and math.isnan(one.value)
    # The same five answers to each prompt, but to the first: more alike across prompts.
    one = cv.evaluate(outputs % 5 * (outputs >= 5), prompts, **options).one_prompt
    assert (one.state, one.borrowed) == ("known", 0)


def test_one_prompt_for_all_rows_is_the_one(points):
    options: Any = {"output_kernel": cv.Gaussian(1.0), "orders": [2]}
    one: Any = cv.evaluate(points[0], np.zeros(N, int), **options).one_prompt
    assert (one.state, one.prompts, one.value) == ("known", 1, pytest.approx(one.total, rel=1e-6))


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
    for name, outputs in models.items():
        one: Any = found.evaluations[name].one_prompt
        changes = np.bincount(groups, one.curve.similarity.changes[0])
        error = math.sqrt(np.sum(changes**2) * 150 / 149) * ranking.values[name] ** 2
        assert ranking.standard_errors[name] == pytest.approx(error)
        squares = np.exp(-squared_distances(outputs) / 0.25)
        assert ranking.values[name] == pytest.approx(
            1 / squares[inside].mean(), rel=0.02
        )  # At the edge.
    difference = ranking.difference("shuffled", "real")
    assert 2 < difference.ratio_low < difference.ratio_high < math.inf
    for table in (found.summary(), found.scores()):
        known = {name: e.one_prompt for name, e in found.evaluations.items()}
        assert table.heading[2] == "to one prompt"
        assert {row[0]: row[2] for row in table.rows} == {
            name: one and one.in_words() for name, one in known.items()
        }
    assert "prompts closer than" in str(found) and "near" in found.to_dataframe()["score"].tolist()


def test_models_of_other_prompts_share_the_bins_of_distances(points):
    outputs, prompts = points
    models, prompts = {"one": outputs, "two": outputs}, {"one": prompts, "two": 1.3 * prompts}
    options: Any = {"orders": [2], "profile": False, "one_population": True}
    found = cv.compare(models, prompts, output_kernel=cv.Gaussian(1.0), **options)
    known: Any = [found.evaluations[name].one_prompt for name in models]
    curves = [one.curve for one in known]
    np.testing.assert_array_equal(curves[0].ends, curves[1].ends)
    ranking = found.ranking("near", 2)
    assert ranking.within == curves[0].ends[0] and ranking.intervals is not None
    # Prompts of the second model are further apart: it has fewer pairs in the first bin.
    assert 0 < curves[1].similarity.pairs[0] < curves[0].similarity.pairs[0]
    for name, curve in zip(models, curves, strict=True):
        mean = Mean(curve.similarity.values[0], curve.similarity.changes[0])
        low, high = statistics.ends_of(mean, np.full(N, 1 / N))(0.05)
        assert ranking.intervals[name] == pytest.approx((1 / high, 1 / low))


def test_only_order_two_is_compared_at_one_distance_and_without_errors_it_has_no_interval(points):
    models: Any = {"one": points[0], "two": 2 * points[0]}
    options: Any = {"output_kernel": cv.Gaussian(1.0), "errors": False, "profile": False}
    found = cv.compare(models, points[1], orders=[2, 1], **options)
    (near,) = [ranking for ranking in found.rankings if ranking.score == "near"]
    assert (near.order, near.intervals) == (2, None)


@pytest.mark.filterwarnings("ignore:prompts")  # The far ones are all different.
def test_no_distance_is_shared_where_a_model_has_no_curve(points):
    one = asked_once.of_pairs(pairs_of(*points))
    assert math.isfinite(asked_once.at_one_distance({"one": one}, None)[0])
    none = dataclasses.replace(one, curve=None)
    other = asked_once.of_pairs(pairs_of(*points), np.array([math.inf]))  # One bin.
    far = asked_once.of_pairs(pairs_of(points[0], 8 * points[1]), one.curve and one.curve.ends)
    assert far.curve is not None and len(far.curve.lines()) < len(far.curve.ends)
    apart = {"one": one, "two": far}
    for known in ({}, {"one": one, "two": none}, {"one": one, "two": other}, {"": other}, apart):
        within, errors = asked_once.at_one_distance(known, None)
        assert math.isnan(within) and not errors


def test_a_pilot_asked_once_says_how_many_prompts_to_ask_twice(points):
    found = cv.evaluate(*points, output_kernel=cv.Gaussian(1.0), orders=[2])
    one: Any = found.one_prompt
    similarity = 1 / one.at_most
    expected = math.ceil((1.96 / 0.5) ** 2 * (1 - similarity) / similarity)
    assert one.twice(0.5) == expected
    words = f"To know it within 50%, ask at most {expected:,} prompts twice"
    assert words in str(cv.plan(found, ratio=1.5))
    plan = cv.plan(found, budget=1000)
    assert plan.twice == one_prompt.ask_twice([one], plan.best.ratio - 1)
    assert "95% band" in str(one)


def test_a_pilot_of_several_answers_says_nothing_of_asking_twice():
    outputs, _, kinds = answers(np.random.default_rng(2), 40)
    found = cv.evaluate(outputs, kinds, output_kernel=cv.Gaussian(0.5), orders=[2])
    assert "asked once" not in str(cv.plan(found))


def test_one_prompt_is_not_said_of_outputs_alone_or_of_the_papers_scores(points):
    options: Any = {"output_kernel": cv.Gaussian(1.0), "orders": [2]}
    assert cv.evaluate(points[0], **options).one_prompt is None
    assert cv.evaluate(*points, unbiased=False, **options).one_prompt is None
    assert cv.evaluate(*points, **{**options, "orders": [1]}).one_prompt is None


def test_weights_count_prompts(points):
    weights = np.where(np.arange(N) < 30, 3.0, 0.0)
    half = [of[:30] for of in points]
    options: Any = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(1.0)}
    found = cv.evaluate(*points, weights=weights, orders=[2], **options).one_prompt
    alone = cv.evaluate(*half, orders=[2], **options).one_prompt
    assert found is not None and alone is not None
    assert found.at_most == pytest.approx(alone.at_most, rel=1e-4)
