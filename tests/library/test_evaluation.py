"""Scores with errors in one call: what was chosen, what every argument does, what is shown."""

import itertools
import json
import math

import jax
import numpy as np
import pytest
import scipy.stats
from canonical import FEW_PROMPTS, KERNELS, OUTPUTS, PROMPTS, SCORES, N
from oracles import assert_close, draw_pairs

import condvendi_jax as cv
from condvendi_jax.base import files, tables
from condvendi_jax.spectra import computation

PAIRS = OUTPUTS, PROMPTS


def test_progress_counts_the_deletions():
    said = []
    cv.evaluate(*PAIRS, orders=[1], groups=8, progress=said.append)
    assert said[:3] == ["bandwidth of outputs", "bandwidth of prompts", "order 1"]
    assert said[-2:] == ["errors of order 1: 7 of 8 groups done", "slope of order 1"]


def test_bandwidths_follow_the_rule_in_words():
    words = "std < 0.01 over 10 disjoint subsets of 4, mean of 400 partitions"
    options = {"orders": [2], "errors": False, "rule": "std"}
    found = cv.evaluate(*PAIRS, **options, prompt_kernel=cv.Gaussian(0.6))
    chosen = found.bandwidths["outputs"]
    assert found.bandwidths["prompts"] == (pytest.approx(0.6), "given", None)
    kernel = cv.Gaussian(chosen.bandwidth)
    assert_close(found.order(2).decomposition.vendi, float(cv.rke(OUTPUTS, kernel=kernel)))
    line = f"bandwidth of outputs: {chosen.bandwidth:.4g}, "
    assert words in found.details().partition(line)[2].splitlines()[0]


def test_one_prompt_for_all_rows_brings_no_information():
    found = cv.evaluate(OUTPUTS, np.ones((N, 2), np.float32), rule="median", groups=6)
    for scored in found.orders:
        assert_close(scored.decomposition.conditional, float(scored.decomposition.vendi))
        assert_close(scored.decomposition.information, 1)
        assert scored.standard_errors.vendi > 0
        assert scored.errors_by.units == "rows"
    assert str(found.bandwidths["prompts"]) == "equal or different, because prompts repeat"


def test_outputs_alone():
    found = cv.evaluate(OUTPUTS, output_kernel=cv.Cosine(), orders=[1, 2], groups=5)
    assert found.names == ("vendi",) and found.bandwidths["outputs"].bandwidth is None
    for scored in found.orders:
        assert scored.standard_errors.vendi > 0
        entry = scored.as_dict(found.names)
        assert "conditional" not in entry and "entropy_joint" not in entry
        assert entry["vendi"] == pytest.approx(np.exp(entry["entropy_outputs"]), rel=1e-6)
    assert "conditional" not in found.details() and f"{N} outputs" in found.details()
    assert "bandwidth of outputs: none: the cosine kernel has no bandwidth" in found.details()


def test_one_row_scores_one_and_has_no_error():
    outputs, prompts = draw_pairs(1, dtype=np.float32)
    with pytest.warns(UserWarning, match="at least three rows"):
        found = cv.evaluate(outputs, prompts)
    for scored in found.orders:
        assert_close(np.array(scored.decomposition.scores), 1)
        assert np.isnan(scored.standard_errors).all()
        assert scored.errors_by is None
    assert found.bandwidths["outputs"] == (1.0, "arbitrary: n = 1", None)
    assert "no prompt has two answers" in str(found)


@pytest.mark.slow
def test_the_seed_is_recorded_and_changes_subsets_and_groups():
    options = {"orders": [2], "groups": 7, "rule": "variance"}
    zero, again, one = (cv.evaluate(*PAIRS, **options, seed=s) for s in (0, 0, 1))
    assert (zero.seed, one.seed) == (0, 1)
    assert zero.as_dict() == again.as_dict()
    given = [cv.evaluate(*PAIRS, **KERNELS, orders=[2], groups=7, seed=s).orders[0] for s in (0, 1)]
    assert given[0].standard_errors != given[1].standard_errors
    assert zero.bandwidths["outputs"].bandwidth != one.bandwidths["outputs"].bandwidth


def test_estimates_come_with_their_intervals():
    pairs = draw_pairs(80, dtype=np.float32)
    method = cv.MatrixFree(jax.random.key(0), rtol=1e-2)
    found = cv.evaluate(*pairs, **KERNELS, orders=[1, 2], errors=False, method=method)
    one, two = found.orders
    assert (one.decomposition.method, two.decomposition.method) == ("matrix-free", "frobenius")
    low, high = one.as_dict(SCORES)["intervals"]["conditional"]
    exact = cv.decompose(*pairs, **KERNELS).conditional
    assert low - (high - low) / 4 < exact < high + (high - low) / 4
    assert two.as_dict(SCORES)["intervals"] is None
    assert f"[{low:.3f}, {high:.3f}]" in found.details()
    assert "estimated by matrix-free" in found.details()


def test_the_interval_of_a_plug_in_score_is_inside_what_is_possible():
    found = cv.evaluate(*PAIRS, output_kernel=cv.Gaussian(0.4), prompt_kernel=cv.Cosine())
    for order, score in itertools.product(found.orders, SCORES):
        value, error, (low, high) = order.estimate(score, unbiased=False)
        width = scipy.stats.t.isf(0.025, order.errors_by.groups - 1) * error
        least = 0 if (order.decomposition.order, score) == (2, "information") else 1
        assert (low, high) == pytest.approx((max(value - width, least), min(value + width, N)))


def test_a_truncated_score_below_one_is_inside_its_interval():
    rng = np.random.default_rng(16)
    pairs = rng.normal(size=(2, 24, 2)).astype(np.float32)
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(0.3)}
    scored = cv.evaluate(*pairs, **kernels, orders=[2], truncation=4).order(2)
    value, _, (low, high) = scored.estimate("conditional", unbiased=False)
    assert 1 / 4 <= low < value < 0.999 and high <= 4
    assert scored.possible("information") == (1 / 4, 16) and scored.possible("vendi") == (1, 4)


def test_a_truncation_that_keeps_everything_changes_no_number():
    plain = cv.evaluate(*PAIRS, **KERNELS)
    assert cv.evaluate(*PAIRS, **KERNELS, truncation=N).as_dict() == plain.as_dict()
    with pytest.warns(UserWarning, match=f"exceeds n = {N}: all eigenvalues are kept"):
        assert cv.evaluate(*PAIRS, **KERNELS, truncation=N + 1).as_dict() == plain.as_dict()
    models, quiet = {"few": OUTPUTS[: N // 2], "many": OUTPUTS}, {"orders": [1], "errors": False}
    with pytest.warns(UserWarning, match=f"{N // 2} eigenvalues of each are kept"):
        both = cv.compare(models, **quiet, truncation=N - 1)
    assert {r.truncation for r in both.rankings} == {N // 2}


def test_more_groups_than_rows_are_one_a_row():
    outputs, _ = draw_pairs(9, dtype=np.float32)
    found = cv.evaluate(outputs, output_kernel=cv.Gaussian(1.0), orders=[2], groups=np.int64(20))
    by = found.order(2).errors_by
    assert (by.method, by.groups, by.units) == ("deletions", 9, "rows")


def test_an_evaluation_is_plain_data():
    found = cv.evaluate(*PAIRS, **KERNELS, orders=[1, np.inf], groups=5, seed=4)
    content = json.loads(json.dumps(files.jsonable(found.as_dict()), allow_nan=False))
    assert (content["n"], content["dtype"], content["seed"]) == (N, "float32", 4)
    assert [entry["order"] for entry in content["scores"]] == [1, "inf"]
    by = {"method": "deletions", "groups": 5, "units": "rows", "reason": None}
    for entry, scored in zip(content["scores"], found.orders, strict=True):
        assert entry["errors_by"] == by
        for name in SCORES:
            assert entry[name] == float(getattr(scored.decomposition, name))
            assert entry["standard_errors"][name] == float(getattr(scored.standard_errors, name))
    with pytest.raises(KeyError, match="order 3: computed were"):
        found.order(3)


def test_pairs_are_evaluated_as_their_arrays_are():
    labels = np.arange(N) % 6
    ready = cv.Pairs(*PAIRS, **KERNELS, groups=labels)
    expected = cv.evaluate(*PAIRS, **KERNELS, groups=labels)
    assert cv.evaluate(ready).as_dict() == expected.as_dict()
    for wrong in ({"prompts": PROMPTS}, {"groups": labels}, KERNELS):
        with pytest.raises(TypeError, match="expected Pairs alone"):
            cv.evaluate(ready, **wrong)


def test_an_evaluation_is_a_comparison_of_one():
    options = {"orders": [1, 2], "groups": 8, "rule": "median", "unbiased": False}
    alone = cv.evaluate(OUTPUTS, FEW_PROMPTS, **options)
    compared = cv.compare({"own": OUTPUTS}, FEW_PROMPTS, **options)
    of_one, expected = compared.evaluations["own"].as_dict(), alone.as_dict()
    for own in expected["scores"]:  # A comparison has profiles, and no slopes.
        own["slope_per_doubling"] = None
    assert of_one == expected
    for ranking in compared.rankings:
        assert (ranking.letters, ranking.differences) == ({"own": "a"}, ())
        scored = alone.order(ranking.order).decomposition
        assert ranking.values["own"] == float(getattr(scored, ranking.score))
    assert "RKE: own\n" in compared.details()
    assert "outputs of different models" not in compared.details()


@pytest.mark.parametrize("errors", [True, False])
def test_differences_are_tested_where_there_are_errors(errors):
    models = {"a": OUTPUTS, "b": 0.5 * OUTPUTS}
    found = cv.compare(models, PROMPTS, **KERNELS, errors=errors, groups=8, profile=False)
    assert [r.tested for r in found.rankings] == [errors] * 7
    assert (found.reason is None) == errors
    for ranking in found.rankings:
        assert np.isfinite(ranking.differences[0].p_value) == ranking.tested
        assert np.isfinite(ranking.standard_errors["a"]) == ranking.tested
    assert "nan" not in found.details() + found.comma_separated()


BAD = {
    "rule": ({"rule": "mean"}, "rule: expected one of auto, variance, std, median"),
    "order": ({"orders": [-1]}, "order: expected a number above 0"),
    "no order": ({"orders": []}, "orders: expected different numbers"),
    "order twice": ({"orders": [2, 2.0]}, "orders: expected different numbers"),
    "truncation": ({"truncation": 0}, "truncation: expected"),
    "method": ({"method": "exact"}, "method: expected cv.Auto"),
    "errors": ({"errors": "some"}, "errors: expected True or False, received 'some'"),
    "groups": ({"groups": 1}, "groups: expected an integer of at least 2, received 1"),
    "prompt kernel": ({"prompts": None}, "prompts: expected beside prompt_kernel"),
    "seed": ({"seed": 2**31}, r"seed: expected an integer below 2\^31"),
    "few rows": (
        {"outputs": OUTPUTS[:19], "prompts": PROMPTS[:19], "output_kernel": None}
        | {"rule": "variance"},
        "'variance' needs 20 rows, received 19",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_any_score(monkeypatch, name):
    def compute(*_, **__):
        pytest.fail("computed")

    monkeypatch.setattr(computation, "compute_sloped", compute)
    monkeypatch.setattr(computation, "score", compute)
    change, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        cv.evaluate(**({"outputs": OUTPUTS, "prompts": PROMPTS, **KERNELS} | change))


def test_values_are_rounded_to_what_their_error_leaves_and_columns_are_aligned():
    for value, ends, text in (
        (4.6312, (4.3894, 4.8731), "4.63 [4.39, 4.87]"),
        (1234.5, (1210.3, 1258.7), "1234 [1210, 1259]"),
        (173.4, (36.09, 206.2), "173 [36, 206]"),
        (1.94, (1.6, 50.2), "1.9 [1.6, 50.2]"),  # A sentence says 1.9.
        (0.07799, (0.0, 0.27), "0.08 [0.00, 0.27]"),
        (29.999958, (29.999892, 30.0), "30.00 [30.00, 30.00]"),  # Four digits.
        (1.0, (1.0, 1.0), "1"),
        (3.14159, (math.nan, math.nan), "3.142"),
        (2.54321, None, "2.543"),
        (5.0, (4.0, 401.0), "> 4"),
        (math.inf, (4.0, math.inf), "> 4"),
        (5.0, (0.0, math.inf), "unknown"),
        (math.inf, None, "unknown"),
        (math.nan, None, "-"),
    ):
        assert tables.with_interval(value, ends) == text
    got = str(tables.Table(["a", "bc"], [["long", "1"], ["x", "22222"]]))
    assert got.splitlines() == ["a        bc", "-----------", "long      1", "x     22222"]


def test_repeated_prompts_that_count_as_alike_are_said():
    """Two prompts at similarity s, 3 to 1: RKE is 1 / (10/16 + 6/16 s^2), and 1.6 where s is 0."""
    prompts = np.repeat(np.array([[0.0], [1.0]], np.float32), [36, 12], axis=0)
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [2], "errors": False}
    found = cv.evaluate(OUTPUTS, prompts, **options, prompt_kernel=cv.Gaussian(1.0))
    counted = 1 / (10 / 16 + 6 / 16 * np.exp(-1.0))
    assert found.advice[-1].evidence == f"RKE {counted:.3g} of 2 distinct prompts"
    narrow = cv.evaluate(OUTPUTS, prompts, **options, prompt_kernel=cv.Gaussian(0.1))
    assert "WARNING" not in str(narrow)  # It counts 1.6, as their frequencies have it.


@pytest.mark.filterwarnings("ignore:there are no standard errors")
def test_no_model_is_scored_with_the_stored_matrices_of_another():
    options = {**KERNELS, "method": cv.Stored(jax.random.key(0))}
    models = {"a": OUTPUTS, "b": OUTPUTS[::-1] ** 2}
    found = cv.compare(models, PROMPTS, orders=[1, 2], profile=False, **options).evaluations
    for name, of in models.items():
        alone = cv.evaluate(of, PROMPTS, orders=[2], errors=False, **options).order(2)
        for score in SCORES:
            expected = getattr(alone.decomposition.scores, score)
            assert_close(getattr(found[name].order(2).decomposition.scores, score), expected)
