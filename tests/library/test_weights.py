"""Weights of rows: one row of a summed weight is as good as equal rows, in everything."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import precision
import pytest
from canonical import errors_at, named
from oracles import (
    assert_close,
    cosine_gram,
    draw_pairs,
    gaussian_gram,
    renyi,
    scores,
    shifted,
    weighted_logs,
)

import condvendi_jax as cv
from condvendi_jax.grams import operators, sums
from condvendi_jax.inference import designs, errors
from condvendi_jax.scores import clusters
from condvendi_jax.spectra import refinement
from condvendi_jax.spectra.pair_sums import tiles_of

N = 14
COPIES = np.array([1, 3, 0, 2, 1, 4, 2, 0, 1, 2, 5, 1, 3, 2])
ROWS = np.repeat(np.arange(N), COPIES)
KEY = jax.random.key(0)
ENTROPIES = [{"order": order} for order in (1, 2, 0.5, math.inf)]
ENTROPIES += [{"order": 1, "truncation": 5}, {"order": 2, "truncation": 3}]


def kernels(name="gaussian"):
    """In the precision of the test."""
    pair = (cv.Cosine(), cv.Cosine()) if name == "cosine" else (cv.Gaussian(0.8), cv.Gaussian(0.6))
    return named(pair)


def oracle_grams(outputs, prompts, name="gaussian"):
    if name == "cosine":
        return cosine_gram(outputs), cosine_gram(prompts)
    return gaussian_gram(outputs, 0.8), gaussian_gram(prompts, 0.6)


def oracle(gram_x, gram_t, weights, **options):
    """The scores by the eigenvalues of diag(w)^(1/2) K diag(w)^(1/2), without rows of no weight."""
    kept = np.flatnonzero(weights)
    grams = [gram[np.ix_(kept, kept)] for gram in (gram_x, gram_t, gram_x * gram_t)]
    return np.exp(weighted_logs(grams, weights[kept], **options))


def repeated(pairs, rows=ROWS):
    return tuple(array[rows] for array in pairs)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [*(("gaussian", options) for options in ENTROPIES), ("cosine", ENTROPIES[0])],
    ids=str,
)
def test_a_weight_is_as_good_as_copies(kernel, options, x64):
    pairs = draw_pairs(N)
    expected = oracle(*oracle_grams(*pairs, kernel), COPIES, **options)
    if options["order"] >= 1:  # Below, the zeros of equal rows are rounding, each with a root.
        of_rows = scores(*oracle_grams(*repeated(pairs), kernel), **options)
        np.testing.assert_allclose(expected, [*of_rows.values()], rtol=1e-9)
    for weights in (COPIES, np.sqrt(1e-300) * COPIES):
        found = cv.decompose(*pairs, **kernels(kernel), **options, weights=weights)
        assert_close(found.scores, expected, loosened=1e3 if options["order"] < 1 else 1)
    uneven = cv.decompose(*pairs, **kernels(kernel), **options, weights=COPIES + 1)
    assert np.abs(np.array(uneven.scores) - expected).max() > 1e-3


@pytest.mark.parametrize("method", [cv.Stored, pytest.param(cv.MatrixFree, marks=pytest.mark.slow)])
def test_estimates_of_weighted_rows_lie_in_their_intervals(method, x64, monkeypatch):
    """One draw, and intervals widened by half, as those of unweighted rows are tested."""
    budget = functools.partial(refinement.Budget, block=8, sweeps=8, probes=16, steps=12)
    monkeypatch.setattr(refinement, "Budget", budget)  # With fewer products than rows.
    monkeypatch.setattr(operators, "_DENSE_UP_TO", 100 if method is cv.MatrixFree else 2048)
    pairs = draw_pairs(301 if method is cv.MatrixFree else 300)
    weights = np.random.default_rng(1).integers(0, 4, len(pairs[0]))
    for options in ({"order": 1}, {"order": 1, "truncation": 20}, {"order": 3}):
        options = options | {"weights": weights}
        found = cv.decompose(*pairs, **kernels(), **options, method=method(KEY, rtol=0.05))
        expected = oracle(*oracle_grams(*pairs), **options)
        assert found.estimation is not None and max(found.estimation.standard_errors) > 0
        for value, (low, high) in zip(expected, found.intervals, strict=True):
            wider = (high - low) / 4 + 1e-9
            assert low - wider <= value <= high + wider, options
            assert high - low < 0.15 * value


def by_label(x, t, labels, weights):
    found = cv.contributions(x, t, **kernels(), order=1, weights=weights).by(labels)
    return [found[label] for label in sorted(found)]


def of_clusters(x, t, labels, weights):
    points = cv.Pairs(x, output_kernel=cv.Gaussian(0.8), weights=weights)
    return [clusters.cluster_vendi(points, labels, order=2)]


def of_modes(x, t, labels, weights):
    modes = clusters.prompt_modes(x, t, **kernels(), weights=weights)
    return [[mode.share, mode.vendi, mode.rke] for mode in modes]


def of_rules(x, t, labels, weights):
    pairs = (cv.Pairs(x, rule=rule, key=KEY, weights=weights) for rule in ("variance", "median"))
    return [own.bandwidths["outputs"].bandwidth for own in pairs]


def of_errors(x, t, labels, weights):
    orders = [cv.evaluate(x, **ONE, orders=[1, 2], weights=weights)]
    orders += [cv.evaluate(x, **ONE, orders=[2], groups=6, weights=weights)]
    of_orders = [scored.standard_errors for found in orders for scored in found.orders]
    points = {**kernels(), "weights": weights, "groups": labels}
    return [*of_orders, *(errors_at(x, t, **points, order=order) for order in (1, 2))]


def of_prompts(x, t, labels, weights):
    options = {**kernels(), "labels": labels, "weights": weights}
    tables = [cv.prompt_table(x, t, **options, order=order).prompts for order in (1, 2)]
    each = [own for table in tables for own in table]
    found = cv.evaluate(x, labels, **ONE, orders=[2], weights=weights).order(2).population
    return [
        *([own.n, own.share, own.score, own.similarity, *own.contributions] for own in each),
        found.fixed_error,
    ]


def of_models(x, t, labels, weights):
    options = {**kernels(), "groups": labels, "weights": weights}
    found = cv.between_models({"a": x, "b": x**2}, t, **options)
    return [found.number, found.overlaps, found.standard_error]


def of_bandwidths(x, t, labels, weights):
    models = {"a": x, "b": x**2}
    found = cv.profile(models, t, **kernels(), multiples=[0.5, 2.0], weights=weights)
    return [*found.values, found.n, found.groups]


def of_any_n(x, t, labels, weights):
    found = cv.inference.finite_sample_interval(x, **ONE, weights=weights, confidence=0.2)
    return found.score, found.low, found.high


def of_smaller_designs(x, t, labels, weights):
    pairs = cv.Pairs(x, 1.0 * labels[:, None], **kernels(), weights=weights)
    groups, _ = errors.group_models({"": pairs}, None, key=KEY)
    at = designs.design_of(pairs)._replace(answers=3)
    found = designs.at_design(pairs, cv.von_neumann, cv.Exact(), groups[""], at)
    return [found.scores, [error.influences for error in found.errors]]


ONE = {"output_kernel": cv.Gaussian(3.0)}
OPERATORS = {
    function.__name__: function
    for function in (
        *(by_label, of_clusters, of_modes, of_rules, of_errors, of_prompts, of_models),
        *(of_bandwidths, of_any_n, of_smaller_designs),
    )
}


SLOW = "of_errors", "of_smaller_designs", "of_prompts"


@pytest.mark.parametrize(
    "operator", [n if n not in SLOW else pytest.param(n, marks=pytest.mark.slow) for n in OPERATORS]
)
def test_merged_rows_are_as_good_as_copies(operator, x64):
    pairs, labels = draw_pairs(N), np.arange(N) % 3
    merged = OPERATORS[operator](*pairs, labels, COPIES)
    copies = OPERATORS[operator](*repeated(pairs), labels[ROWS], None)
    for one, two in zip(merged, copies, strict=True):
        np.testing.assert_allclose(np.array(one), np.array(two), rtol=1e-6, atol=1e-9)
    uneven = OPERATORS[operator](*pairs, labels, COPIES + 1)
    changes = zip(map(np.ravel, merged), map(np.ravel, uneven), strict=True)
    assert max(np.abs(one - two).max() for one, two in changes) > 1e-3


def order_two(gram_x, gram_t, weights):
    """The scores as quadratic forms, which have derivatives at a weight of zero."""
    p = weights / weights.sum()
    x, t, joint = (p @ np.square(g) @ p for g in (gram_x, gram_t, gram_x * gram_t))
    return np.array([1 / x, t / joint, joint / (x * t)])


@pytest.mark.parametrize(("order", "kernel"), [(1, "gaussian"), (2, "gaussian"), (2, "cosine")])
def test_derivatives_in_the_weights(order, kernel, x64):
    pairs = draw_pairs(N)
    weights = 0.5 + COPIES if order == 1 else 1.0 * COPIES
    matrices = oracle_grams(*pairs, kernel)
    exact = functools.partial(oracle, order=1) if order == 1 else order_two
    steps = 1e-6 * np.eye(N)
    ends = ([exact(*matrices, weights + sign * step) for step in steps] for sign in (1, -1))
    expected = np.subtract(*map(np.transpose, ends)) / 2e-6

    def found(weights):
        options = kernels(kernel) | {"weights": weights, "order": order}
        return jnp.stack(cv.decompose(*pairs, **options).scores)

    # A sum over tiles has no derivative in forward mode.
    for mode in (jax.jacrev, jax.jacfwd) if kernel == "gaussian" else (jax.jacrev,):
        np.testing.assert_allclose(mode(found)(jnp.asarray(weights)), expected, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*all kernel values between")
def test_no_rounding_of_the_weights_stands_for_pairs_of_equal_prompts():
    weights = np.random.default_rng(0).uniform(0.5, 2, 30)
    outputs, prompts = np.arange(30)[:, None] // 2, np.arange(30)[:, None]
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    found = cv.decompose(outputs, prompts, **kernels, weights=weights, order=2, unbiased=True)
    assert np.isnan([found.conditional, found.information]).all()


@pytest.mark.slow
def test_derivatives_in_the_weights_in_tiles(x64):
    pairs = draw_pairs(40)
    points = cv.Pairs(*pairs, **kernels())
    gram = math.prod(oracle_grams(*pairs))
    weights = np.random.default_rng(1).integers(0, 3, 40) / 40
    norms = functools.partial(sums.squared_norms, tiles_of(points))
    with precision.tiles(16):
        found = jax.grad(lambda w: norms(weights=w)[2])(jnp.asarray(weights))
    assert_close(found, 2 * np.square(gram) @ weights)


def test_all_weight_on_one_row_scores_one():
    pairs = draw_pairs(N, dtype=np.float32)
    alone = np.arange(N) == 4
    for order in (1, 2):
        options = {"weights": 3 * alone, "order": order, **kernels()}
        np.testing.assert_allclose(cv.decompose(*pairs, **options).scores, 1, rtol=1e-4)
    with pytest.warns(UserWarning, match="needs at least three rows: it is NaN for n = 1"):
        found = cv.evaluate(*pairs, **kernels(), weights=alone * 0.7).order(2)
    assert found.decomposition.n == 1 and np.isnan(found.standard_errors).all()
    # Three equal outputs do have an error.
    three = cv.evaluate(pairs[0], output_kernel=cv.Gaussian(0.8), weights=3 * alone).order(2)
    assert three.standard_errors.vendi == pytest.approx(0, abs=1e-6)


def errors_of(evaluation):
    return np.array([list(scored.standard_errors) for scored in evaluation.orders])


def test_other_weights_than_integers_are_of_one_row_each(x64):
    """Where rows overlap, less is known than from as many rows."""
    many = np.random.default_rng(3).integers(0, 4, 48)
    outputs, options = draw_pairs(48)[0], {**ONE, "orders": [2]}
    merged, floats = (cv.evaluate(outputs, **options, weights=w) for w in (many, 1.0 * many))
    assert errors_of(floats)[0, 0] > 1.1 * errors_of(merged)[0, 0]
    kept = cv.evaluate(outputs[many > 0], **options, weights=1.0 * many[many > 0])
    assert_close(errors_of(kept), errors_of(floats))
    with pytest.raises(ValueError, match="at most 16,384 .* received 480,000; give labels"):
        cv.evaluate(outputs, **options, groups=6, weights=np.full(48, 10_000))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:models. a .60 prompts")  # Not tested, but described.
def test_any_weights_keep_errors_over_prompts(x64):
    """Sixty prompts; two kinds of outputs of each, one to three times."""
    prompts = np.repeat(draw_pairs(60)[1], 2, axis=0)
    outputs = (draw_pairs(120, seed=seed, modes=9)[0] + prompts[:, :1] for seed in (1, 2))
    models = dict(zip("ab", outputs, strict=True))
    # As many of each model.
    draw = (np.random.default_rng(s).permutation(np.arange(120) % 3 + 1) for s in (3, 4))
    copies = dict(zip("ab", draw, strict=True))
    options = {**kernels(), "orders": [2]}
    many = {name: np.repeat(x, copies[name], axis=0) for name, x in models.items()}
    asked = {name: np.repeat(prompts, copies[name], axis=0) for name in models}
    expected = cv.compare(many, asked, **options)
    for scale in (1, 0.3):
        weights = {name: scale * w for name, w in copies.items()}
        found = cv.compare(models, prompts, **options, weights=weights)
        for name, of_model in found.evaluations.items():
            for one, two in zip(of_model.orders, expected.evaluations[name].orders, strict=True):
                assert_close([*one.decomposition.scores], [*two.decomposition.scores])
                assert_close([*one.standard_errors], [*two.standard_errors])
        for one, two in zip(found.rankings, expected.rankings, strict=True):
            if scale == 1:
                assert_close(one.differences[0][2:10], two.differences[0][2:10])


def test_rows_that_share_nothing_score_as_much_as_their_weights_allow():
    weights = np.arange(1, 31) / 7
    p = weights / weights.sum()
    rows = 100 * np.arange(30, dtype=np.float32)[:, None]
    for order, truncation in [(1, None), (2, None), (math.inf, None), (1, 4)]:
        with pytest.warns(UserWarning, match="numerically the identity"):
            options = {"weights": weights, "orders": [order], "truncation": truncation}
            found = cv.evaluate(rows, output_kernel=cv.Gaussian(1.0), **options, errors=False)
        kept = p if truncation is None else shifted(p, truncation)
        (scored,) = found.orders
        assert_close(scored.decomposition.vendi, np.exp(renyi(kept, order)), loosened=3)
        assert scored.saturated.get("vendi") == (None if truncation else "largest")
        assert found.advice[0].code == ("outputs cut" if truncation else "outputs apart")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), r"weights: expected 14 weights, one for each row, received shape \(5,\)"),
        (np.zeros(N), "weights: expected one above zero, received 14 zeros"),
        (np.arange(N) - 1, "weights: expected non-negative numbers, received -1 in row 0"),
        (np.where(np.arange(N) == 3, np.nan, 1), "weights: expected finite numbers, received nan"),
        (np.where(np.arange(N) == 3, np.inf, 1), "received inf in row 3"),
        (np.full(N, 2**60), r"weights: expected integers .* below 2\^53, .* sum of 1.61e\+19"),
        (np.full(N, "a"), "weights: expected real numbers, not 'a'"),
        (np.ma.masked_equal(COPIES, 0), "weights: .*masked"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_weights_are_refused(weights, message):
    pairs = draw_pairs(N, dtype=np.float32)
    with pytest.raises((TypeError, ValueError), match=message):
        cv.Pairs(*pairs, **kernels(), weights=weights)
    by_model = {"good": np.ones(N), "bad": weights}
    with pytest.raises((TypeError, ValueError), match=f"bad: .*{message}"):
        cv.compare({"good": pairs[0], "bad": pairs[0]}, pairs[1], **kernels(), weights=by_model)


def test_weights_of_other_models_and_beside_pairs_are_refused():
    outputs = draw_pairs(N, dtype=np.float32)[0]
    with pytest.raises(ValueError, match=r"weights: expected those of \['a', 'b'\], .* of \['a'\]"):
        cv.compare({"a": outputs, "b": outputs}, rule="median", weights={"a": COPIES})
    pairs = cv.Pairs(outputs, output_kernel=cv.Gaussian(0.8))
    for function in (cv.evaluate, cv.decompose):
        with pytest.raises(TypeError, match="received Pairs and .*weights"):
            function(pairs, weights=COPIES)


def test_clusters_without_weight_are_left_out(x64):
    outputs, labels = draw_pairs(N)[0], np.repeat(["a", "b", "c"], [5, 7, 2])
    few = np.where(labels == "b", 0, COPIES)
    kept = np.repeat(np.arange(N), few)
    expected = clusters.cluster_vendi(outputs[kept], labels[kept], kernel=cv.Gaussian(0.8))
    points = cv.Pairs(outputs, output_kernel=cv.Gaussian(0.8), weights=few)
    assert_close(clusters.cluster_vendi(points, labels), expected)
