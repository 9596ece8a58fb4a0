"""Scores that differ by rounding alone are reported as saturated, and nothing is made of them."""

import json
import math

import numpy as np
import pytest
from oracles import draw_pairs

import condvendi_jax as cv
from condvendi_jax.cli import files
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import saturation

ORDER_1, ORDER_2 = Entropy(), cv.renyi(2)
SCORES = ("vendi", "conditional", "information")
N = 40
WIDE = pytest.mark.filterwarnings("ignore:.*the Gram is numerically constant")
NARROW = pytest.mark.filterwarnings("ignore:.*the Gram is numerically the identity")


@pytest.mark.parametrize(
    ("values", "n", "entropy", "limit"),
    [
        ([1.0], 40, ORDER_2, "smallest"),
        ([1 + 5e-7, 1 - 5e-7], 40, ORDER_2, "smallest"),
        ([1 + 1e-5], 40, ORDER_2, None),
        ([1 + 1e-5], 40, ORDER_1, "smallest"),
        ([1.001], 40, ORDER_1, None),
        ([40.0, 50.00001], [40, 50], ORDER_2, "largest"),
        ([40.0, 40.0], [40, 50], ORDER_2, "equal"),
        ([1.0, 40.0], 40, ORDER_2, None),
        ([5.0], 40, Entropy(truncation=5), "largest"),
        ([3.0], 40, ORDER_2, None),
        ([3.0, 3.000001], 40, ORDER_2, "equal"),
        ([3.0, 3.0001], 40, ORDER_2, None),
        ([3.0, 3.0, 4.0], 40, ORDER_2, None),
        ([math.nan], 40, ORDER_2, None),
        ([1.0, math.nan], 40, ORDER_2, None),
        ([1.0], 1, ORDER_2, None),
        ([1.01], 40, Entropy(order=0.5), None),
        ([1.001], 40, Entropy(order=0.5), "smallest"),
    ],
)
def test_limits_by_hand(values, n, entropy, limit):
    assert saturation.limit_of(values, n, entropy, np.float32) == limit
    exact = all(value == int(value) for value in values if value == value)
    # float64 resolves what float32 does not.
    assert saturation.limit_of(values, n, entropy, np.float64) == (limit if exact else None)


@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 100.0])
def test_another_order_of_the_rows_moves_a_score_by_no_more_than_rounding(bandwidth, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    kernels = {name: cv.Gaussian(bandwidth) for name in ("output_kernel", "prompt_kernel")}
    rng = np.random.default_rng(0)
    for entropy in (ORDER_1, ORDER_2, Entropy(truncation=5)):
        options = kernels | {"order": entropy.order, "truncation": entropy.truncation}
        orders = [rng.permutation(N) for _ in range(4)]
        found = np.array([cv.decompose(*(p[r] for p in pairs), **options).scores for r in orders])
        moved = np.ptp(found, axis=0) / np.mean(found, axis=0)
        assert moved.max() <= saturation.rounding(entropy, dtype)


def _compare(bandwidth, sizes=(N, N), **options):
    """Two models that differ, at any bandwidth that tells outputs apart."""
    pairs = dict(a=draw_pairs(sizes[0]), b=draw_pairs(sizes[1], seed=1))
    return cv.compare(
        {name: x.astype(np.float32) for name, (x, _) in pairs.items()},
        {name: t.astype(np.float32) for name, (_, t) in pairs.items()},
        output_kernel=cv.Gaussian(bandwidth),
        prompt_kernel=cv.Gaussian(0.5),
        groups=8,
        **options,
    )


def _nothing_is_tested(ranking):
    (difference,) = ranking.differences
    assert math.isnan(difference.p_value) and math.isnan(difference.adjusted)
    assert set(ranking.letters.values()) == {""}


@WIDE
def test_scores_of_one_are_neither_ranked_nor_tested():
    found = _compare(1e5)
    assert len(found.rankings) == 6
    for ranking in found.rankings:
        assert ranking.saturated == "smallest"
        _nothing_is_tested(ranking)
    assert found.untested is None
    words = str(found)
    assert "RKE: a, b (saturated; not ranked)" in words
    why = "saturated: RKE is not tested; it is 1 up to rounding, because all outputs count"
    assert why in words
    assert ">" not in words.split("score  ")[0]
    content = json.loads(json.dumps(files.jsonable(found.as_dict()), allow_nan=False))
    assert {ranking["saturated"] for ranking in content["rankings"]} == {"smallest"}


@NARROW
@pytest.mark.filterwarnings("ignore:models. n differs")
def test_scores_of_n_are_not_compared_between_models_of_different_n():
    found = _compare(1e-5, sizes=(N, N + 10))
    for order in (1, 2):
        ranking = found.ranking("vendi", order)
        assert ranking.saturated == "largest"
        assert list(ranking.values) == ["a", "b"]  # As given: 50 is not above 40.
        _nothing_is_tested(ranking)


def test_equal_scores_are_not_tested():
    x = draw_pairs(N, dtype=np.float32)[0]
    again = np.random.default_rng(0).permutation(N)
    # The same outputs in another order: an order of rounding errors.
    found = cv.compare({"a": x, "b": x[again]}, output_kernel=cv.Gaussian(0.7), groups=8)
    for ranking in found.rankings:
        assert ranking.saturated == "equal"
        _nothing_is_tested(ranking)
    assert "RKE is not tested; all values are equal up to rounding" in found.markdown()


def test_two_of_three_models_that_rounding_parts_are_not_told_apart():
    x = draw_pairs(N, dtype=np.float32)[0]
    again = np.random.default_rng(0).permutation(N)
    models = {"a": x, "b": x[again], "wide": 4 * x}
    found = cv.compare(models, output_kernel=cv.Gaussian(0.7), groups=8)
    for ranking in found.rankings:
        assert ranking.saturated is None
        assert ranking.difference("a", "b").p_value == 1
        assert set(ranking.letters["a"]) & set(ranking.letters["b"])
        assert ranking.difference("wide", "a").adjusted < 0.05


def test_scores_that_differ_are_tested():
    assert all(r.saturated is None and all(r.letters.values()) for r in _compare(0.7).rankings)


@pytest.mark.parametrize(
    ("bandwidth", "limit", "words"),
    [
        pytest.param(1e5, "smallest", "is 1 up to rounding, because all outputs count", marks=WIDE),
        pytest.param(1e-5, "largest", "is as large as it can be up to rounding", marks=NARROW),
        (0.7, None, None),
    ],
)
def test_an_evaluation_says_what_is_saturated(bandwidth, limit, words):
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    kernels = {"output_kernel": cv.Gaussian(bandwidth), "prompt_kernel": cv.Gaussian(0.5)}
    found = cv.evaluate(outputs, prompts, **kernels, errors=False)
    for scored in found.orders:
        assert scored.saturated.get("vendi") == limit
        assert scored.as_dict(SCORES)["saturated"] == scored.saturated
    assert ("saturated: " in str(found)) == (limit is not None)
    alone = cv.evaluate(outputs, output_kernel=kernels["output_kernel"], errors=False)
    assert all(scored.saturated == ({"vendi": limit} if limit else {}) for scored in alone.orders)
    assert words is None or f"saturated: total of order 2 (RKE) {words}" in str(found)
