"""The default bandwidth: by brute force, in any order, of any number of rows, and at the limits."""

from unittest import mock

import jax
import numpy as np
import pytest
from canonical import FEW_PROMPTS, OUTPUTS, PROMPTS, N
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import condvendi_jax as cv
from condvendi_jax.data import bandwidth

UNEVEN = np.repeat(np.arange(8), [1, 1, 2, 2, 3, 4, 5, 6])  # The prompts of 24 rows.
ROWS = OUTPUTS[:24]
SHARES = np.random.default_rng(1).uniform(0.5, 2, 24)
GRID = np.arange(24, dtype=np.float32)[:, None]  # Rows closer to even than independent ones.
CLUSTERS = ROWS + 200 * (np.arange(24) < 7)[:, None].astype(np.float32)
FAR = ROWS + 1e6 * (np.arange(24) == 7)[:, None].astype(np.float32)


def chosen(*arrays, role="outputs", **options):
    return cv.Pairs(*arrays, rule="auto", **options).bandwidths[role]


def once_each(prompts):
    """Weights with which each prompt counts once."""
    return 1 / np.bincount(prompts)[prompts]


def variance_by_sets(rows, prompts, weights, width):
    """Of RKE of 100 rows, from all pairs, triples and quadruples of rows of different prompts."""
    h = np.exp(-cdist(rows, rows, "sqeuclidean") / width**2)
    apart = (prompts[:, None] != prompts).astype(float)

    def mean(values, letters, pairs):
        """sum w_i w_j ... values / sum w_i w_j ..., over the letters, all of different prompts."""
        places = ",".join([*letters, *pairs])
        factors = [weights] * len(letters) + [apart] * len(pairs)
        masses = np.einsum(f"{places}->", *factors, optimize=True)
        names, arrays = zip(*values, strict=True)
        total = np.einsum(f"{places},{','.join(names)}->", *factors, *arrays, optimize=True)
        return total / masses

    three = ["ij", "ik", "jk"]
    u = mean([("ij", h)], "ij", ["ij"])
    u_square = mean([("ij", h), ("kl", h)], "ijkl", [*three, "il", "jl", "kl"])
    z1 = max(mean([("ij", h), ("ik", h)], "ijk", three) - u_square, 0)
    z2 = mean([("ij", h**2)], "ij", ["ij"]) - u_square
    return (4 * 98 * z1 + 2 * z2) / 9900 * 0.99**2 / (0.01 + 0.99 * u) ** 4


def check_by_sets(found, rows, prompts, weights, times=1):
    """The variance is 0.01 there, and smaller at all larger bandwidths."""
    rows = rows.astype(np.float64)
    widths = found.bandwidth / times * np.array([1, 1.05, *2.0 ** (np.arange(1, 8) / 2)])
    variances = [variance_by_sets(rows, prompts, weights, width) for width in widths]
    assert variances[0] == pytest.approx(0.01, rel=1e-4)
    assert max(variances[1:]) < 0.01


@pytest.mark.parametrize("rows", [ROWS, FAR, GRID, CLUSTERS])
def test_outputs_alone_by_brute_force(rows):
    found = chosen(rows)
    check_by_sets(found, rows, np.arange(24), np.ones(24))
    assert found.rule == "the smallest bandwidth at which RKE of 100 rows has a variance below 0.01"
    assert str(found) == f"{found.bandwidth:.4g}, the default rule"
    assert found.relative_error is None


@pytest.mark.parametrize("weights", [None, SHARES])
def test_each_prompt_counts_once_unless_weights_are_given(weights):
    found = chosen(ROWS, UNEVEN, weights=weights)
    check_by_sets(found, ROWS, UNEVEN, once_each(UNEVEN) if weights is None else weights, times=0.5)
    assert str(found).endswith(", half of the default rule, because prompts repeat")


def test_integer_weights_are_copies_of_rows():
    copies = 1 + (np.arange(24) % 3 == 0)
    rows = np.repeat(ROWS, copies, axis=0)
    check_by_sets(chosen(ROWS, weights=copies), rows, np.arange(32), np.ones(32))
    assert chosen(ROWS, weights=copies) == chosen(rows)
    dropped = chosen(OUTPUTS, weights=(np.arange(N) < 24).astype(float))
    assert dropped.bandwidth == pytest.approx(chosen(ROWS).bandwidth, rel=1e-6)


def test_models_count_equally_and_share_prompts():
    rows = {"a": OUTPUTS[:16], "b": OUTPUTS[16:40]}
    prompts = {"a": np.arange(16) // 2, "b": UNEVEN + 4}
    found = cv.Pairs.of_models(rows, prompts, rule="auto")["a"].bandwidths["outputs"]
    weights = np.concatenate([once_each(prompts["a"]) / 8, once_each(UNEVEN) / 8])
    both = np.concatenate([*prompts.values()])
    check_by_sets(found, OUTPUTS[:40], both, weights, times=0.5)
    alone = cv.Pairs.of_models({"a": ROWS[:12], "b": ROWS[12:]}, rule="auto")["a"]
    assert alone.bandwidths["outputs"].bandwidth == pytest.approx(chosen(ROWS).bandwidth)


def test_of_fewer_than_six_prompts_all_rows_are_compared():
    for count in (5, 6):
        rows = OUTPUTS[: 4 * count]
        halved = chosen(rows, np.arange(4 * count) % count).bandwidth
        same = halved == pytest.approx(chosen(rows).bandwidth / 2, rel=1e-6)
        assert same == (count == 5)


def test_similar_prompts_count_once_each():
    """However often each is asked; below six the rule is the median of their distances."""
    options = {"output_kernel": cv.Gaussian(1.0), "role": "prompts", "similar_prompts": True}
    found = chosen(ROWS, PROMPTS[UNEVEN], **options)
    check_by_sets(found, PROMPTS[UNEVEN], UNEVEN, once_each(UNEVEN))
    few = np.float32([[0.0], [3.0], [5.0]])[np.arange(24) % 3]
    assert chosen(ROWS, few, **options) == (3.0, "median distance", None)


@given(seed=st.integers(0, 2**32 - 1), most=st.sampled_from([3000, 48]), similar=st.booleans())
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
def test_no_order_and_no_seed_moves_the_bandwidth(seed, most, similar):
    """With a refusal to a third of the prompts, of all rows or of half of them."""
    rng = np.random.default_rng(seed)
    outputs = {name: rng.normal(size=(N, 3)).astype(np.float32) for name in "ab"}
    outputs["a"][rng.random(N) < 0.3] = 1
    order = rng.permutation(N)
    moved = {name: outputs[name][order] for name in "ba"}
    how, both = {"rule": "auto", "similar_prompts": similar}, []
    with mock.patch.object(bandwidth, "MOST_ROWS", most):
        for number, data in enumerate([(outputs, FEW_PROMPTS), (moved, FEW_PROMPTS[order])]):
            pairs = cv.Pairs.of_models(*data, **how, key=jax.random.key(number))
            both.append(pairs["a"].bandwidths)
    for name in ["outputs", "prompts"][: 1 + similar]:
        assert both[0][name].bandwidth == pytest.approx(both[1][name].bandwidth, rel=1e-6)


def test_of_more_rows_than_the_limit_each_is_taken_by_its_weight():
    """Rows of a fifth fill one of five places each; all others together fill the last."""
    weights = np.array([0.2, 0.05, 0.2, 0.05, 0.2, 0.05, 0.2, 0.05])
    options = {"most": 5, "content": OUTPUTS[:8], "prompts": np.arange(8)}
    rows, labels, shares = bandwidth.to_compare(weights, None, **options)
    counts = np.bincount(rows, minlength=8)
    assert counts[::2].tolist() == [1, 1, 1, 1] and counts[1::2].sum() == 1
    assert labels.tolist() == rows.tolist() and shares.tolist() == [0.2] * 5
    rows, labels, _ = bandwidth.to_compare(weights, np.int64(weights * 20), **options)
    assert len(set(labels)) == 5 and len(rows) == 5


def draw_plane(rng, prompts, answers):
    """Answers about a point of the plane for each prompt, some more spread than others."""
    spread = np.exp(rng.normal(0, 0.6, prompts))[:, None, None]
    rows = 2 * rng.normal(size=(prompts, 1, 2)) + spread * rng.normal(size=(prompts, answers, 2))
    rows = rows.reshape(-1, 2).astype(np.float32)
    return (rows, np.repeat(np.arange(prompts), answers)) if answers > 1 else (rows,)


@pytest.mark.parametrize(("few", "many", "answers"), [(20, 120, 5), (50, 600, 1)])
def test_the_mean_bandwidth_is_free_of_the_number_of_rows(few, many, answers):
    rng = np.random.default_rng(0)
    means = [
        np.mean([chosen(*draw_plane(rng, prompts, answers)).bandwidth for _ in range(draws)])
        for prompts, draws in ((few, 40), (many, 8))
    ]
    assert means[0] / means[1] == pytest.approx(1, abs=0.1)


def test_where_the_variance_stays_small_the_bandwidth_is_that_of_the_largest():
    """Unit vectors of many dimensions: at smaller bandwidths RKE would only count them."""
    rows = np.random.default_rng(0).normal(size=(24, 512))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    widths = chosen(rows).bandwidth * np.array([0.7, 1, 1.4])
    small, largest, large = (
        variance_by_sets(rows.astype(float), np.arange(24), np.ones(24), width) for width in widths
    )
    assert max(small, large) < largest < 0.01


def test_few_and_equal_rows():
    assert chosen(ROWS[:1]) == (1.0, "arbitrary: n = 1", None)
    assert chosen(np.ones((30, 2), np.float32)) == (1.0, "arbitrary: all rows are identical", None)
    few = chosen(ROWS[:19], np.arange(19) % 7)
    key = jax.random.key(0)
    assert few == cv.bandwidth_by_rule(ROWS[:19], "median", key=key)
    assert chosen(ROWS[:20]).rule == bandwidth.DEFAULT


def test_distances_that_are_all_equal_have_a_bandwidth_that_tells_rows_apart():
    with pytest.warns(UserWarning, match="the Gram is numerically the identity"):
        found = chosen(np.eye(24, dtype=np.float32))
    assert found.bandwidth == pytest.approx(2**0.5 / 16, rel=0.5)


def test_rows_at_the_end_of_the_range_are_far(x64):
    """The squares of their distances are no numbers."""
    near, rows = ROWS.astype(np.float64), {}
    for far in (1e50, 1e200):
        rows[far] = chosen(np.concatenate([near, np.full((2, 3), far)])).bandwidth
    assert rows[1e50] == pytest.approx(rows[1e200])
