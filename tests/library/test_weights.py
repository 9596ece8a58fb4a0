"""Weights of rows: one row of a summed weight is as good as equal rows, in everything."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, renyi, scores, shifted

import condvendi_jax as cv
from condvendi_jax import metrics
from condvendi_jax.grams import _grams as grams
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.scores import clusters
from condvendi_jax.spectra import _estimators as estimators
from condvendi_jax.spectra._order_two import factors_of

N = 14
COPIES = np.array([1, 3, 0, 2, 1, 4, 2, 0, 1, 2, 5, 1, 3, 2])
ROWS = np.repeat(np.arange(N), COPIES)
KEY = jax.random.key(0)
ENTROPIES = [
    {"order": 1},
    {"order": 2},
    {"order": 0.5},
    {"order": math.inf},
    {"order": 1, "truncation": 5},
    {"order": 2, "truncation": 3},
]


def kernels(name="gaussian"):
    """In the precision of the test."""
    pair = (cv.Cosine(), cv.Cosine()) if name == "cosine" else (cv.Gaussian(0.8), cv.Gaussian(0.6))
    return dict(zip(("output_kernel", "prompt_kernel"), pair, strict=True))


def oracle_grams(outputs, prompts, name="gaussian"):
    if name == "cosine":
        return cosine_gram(outputs), cosine_gram(prompts)
    return gaussian_gram(outputs, 0.8), gaussian_gram(prompts, 0.6)


def oracle(gram_x, gram_t, weights, *, order, truncation=None):
    """The scores by the eigenvalues of diag(w)^(1/2) K diag(w)^(1/2), without rows of no weight."""
    kept = weights > 0
    roots = np.sqrt(weights[kept] / weights.sum())

    def entropy(gram):
        weighted = roots[:, None] * gram[np.ix_(kept, kept)] * roots[None, :]
        values = np.linalg.eigvalsh(weighted)
        values = np.where(values > 16 * np.finfo(float).eps * values[-1], values, 0)
        return renyi(values if truncation is None else shifted(values, truncation), order)

    x, t, joint = map(entropy, (gram_x, gram_t, gram_x * gram_t))
    return np.exp(np.array([x, joint - t, x + t - joint], np.float64))


def repeated(pairs, rows=ROWS):
    return tuple(array[rows] for array in pairs)


@pytest.mark.parametrize("options", ENTROPIES, ids=str)
@pytest.mark.parametrize("kernel", ["gaussian", "cosine"])
def test_a_weight_is_as_good_as_copies(kernel, options, x64):
    pairs = draw_pairs(N)
    expected = oracle(*oracle_grams(*pairs, kernel), COPIES, **options)
    if options["order"] >= 1:  # Below, the zeros of equal rows are rounding, each with a root.
        of_rows = scores(*oracle_grams(*repeated(pairs), kernel), **options)
        np.testing.assert_allclose(expected, [*of_rows.values()], rtol=1e-9)
    for weights in (COPIES, 0.3 * COPIES, np.sqrt(1e-300) * COPIES):
        found = cv.decompose(*pairs, **kernels(kernel), **options, weights=weights)
        assert_close(found.scores, expected, loosened=1e3 if options["order"] < 1 else 1)
    uneven = cv.decompose(*pairs, **kernels(kernel), **options, weights=COPIES + 1)
    assert np.abs(np.array(uneven.scores) - expected).max() > 1e-3


@pytest.mark.parametrize("method", [cv.Stored, cv.MatrixFree])
def test_estimates_of_weighted_rows_lie_in_their_intervals(method, x64, monkeypatch):
    """One draw, and intervals widened by half, as those of unweighted rows are tested."""
    budget = functools.partial(estimators.Budget, block=8, sweeps=8, probes=16, steps=12)
    monkeypatch.setattr(estimators, "Budget", budget)  # With fewer products than rows.
    monkeypatch.setattr(grams, "_DENSE_UP_TO", 100 if method is cv.MatrixFree else 2048)
    pairs = draw_pairs(301 if method is cv.MatrixFree else 300)
    weights = np.random.default_rng(1).integers(0, 4, len(pairs[0]))
    for options in ({"order": 1}, {"order": 1, "truncation": 20}, {"order": 3}):
        found = cv.decompose(
            *pairs, **kernels(), **options, weights=weights, method=method(KEY, rtol=0.05)
        )
        expected = oracle(*oracle_grams(*pairs), weights, **options)
        assert found.estimation is not None and max(found.estimation.standard_errors) > 0
        for value, (low, high) in zip(expected, found.intervals, strict=True):
            wider = (high - low) / 4 + 1e-9
            assert low - wider <= value <= high + wider, options
            assert high - low < 0.15 * value


def test_features_of_weighted_rows_score_as_those_of_copies(x64):
    pairs = draw_pairs(N)
    for order in (1, 2):
        for count in (8, 64):  # Through the covariance of features, and through the rows' Gram.
            options = {"order": order, "method": cv.RandomFeatures(KEY, count=count), **kernels()}
            merged = cv.decompose(*pairs, **options, weights=COPIES)
            assert_close(merged.scores, cv.decompose(*repeated(pairs), **options).scores)


def order_two(gram_x, gram_t, weights):
    """The scores as quadratic forms, which have derivatives at a weight of zero."""
    p = weights / weights.sum()
    x, t, joint = (p @ np.square(g) @ p for g in (gram_x, gram_t, gram_x * gram_t))
    return np.array([1 / x, t / joint, joint / (x * t)])


@pytest.mark.parametrize("kernel", ["gaussian", "cosine"])
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_in_the_weights(order, kernel, x64):
    pairs = draw_pairs(N)
    weights = 0.5 + COPIES if order == 1 else 1.0 * COPIES
    matrices = oracle_grams(*pairs, kernel)
    exact = functools.partial(oracle, order=1) if order == 1 else order_two
    expected = np.stack(
        [
            (exact(*matrices, weights + step) - exact(*matrices, weights - step)) / 2e-6
            for step in 1e-6 * np.eye(N)
        ],
        axis=1,
    )

    def found(weights):
        return jnp.stack(
            cv.decompose(*pairs, **kernels(kernel), weights=weights, order=order).scores
        )

    for mode in (jax.jacrev, jax.jacfwd):
        np.testing.assert_allclose(mode(found)(jnp.asarray(weights)), expected, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*all kernel values between")
def test_no_rounding_of_the_weights_stands_for_pairs_of_equal_prompts():
    weights = np.random.default_rng(0).uniform(0.5, 2, 30)
    outputs, prompts = np.arange(30)[:, None] // 2, np.arange(30)[:, None]
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    found = cv.decompose(outputs, prompts, **kernels, weights=weights, order=2, unbiased=True)
    assert np.isnan([found.conditional, found.information]).all()


def test_derivatives_in_the_weights_in_tiles(x64):
    """Where nothing of size n^2 is stored: order 2, and what an estimate differentiates."""
    pairs = draw_pairs(40)
    points = cv.Pairs(*pairs, **kernels())
    gram = math.prod(oracle_grams(*pairs))
    weights = np.random.default_rng(1).integers(0, 3, 40) / 40
    norms = functools.partial(pairwise.squared_norms, *factors_of(points), tile_size=16)
    found = jax.grad(lambda w: norms(weights=w)[2])(jnp.asarray(weights))
    assert_close(found, 2 * np.square(gram) @ weights)

    left, right = np.random.default_rng(2).normal(size=(2, 40, 3))
    gram_x, gram_t = points.grams(in_tiles=True)
    tiled = gram_x * gram_t

    def slope(roots):
        return tiled.scaled(roots).bilinear_slope(jnp.asarray(left), jnp.asarray(right))

    roots = np.sqrt(weights + 0.1)
    both = gram * (left @ right.T + right @ left.T)
    assert_close(jax.grad(slope)(jnp.asarray(roots)), both @ roots)
    assert slope(jnp.asarray(roots)) == 0


def test_all_weight_on_one_row_scores_one():
    pairs = draw_pairs(N, dtype=np.float32)
    alone = np.arange(N) == 4
    for weights in (alone, 3 * alone):
        for method in (cv.Exact(), cv.RandomFeatures(KEY, count=8)):
            for order in (1, 2):
                options = {"weights": weights, "order": order, "method": method, **kernels()}
                np.testing.assert_allclose(cv.decompose(*pairs, **options).scores, 1, rtol=1e-4)
    with pytest.warns(UserWarning, match="needs at least three rows: it is NaN for n = 1"):
        found = cv.evaluate(*pairs, **kernels(), weights=alone * 0.7).order(2)
    assert found.decomposition.n == 1 and np.isnan(found.standard_errors).all()
    # Three equal outputs do have an error.
    three = cv.evaluate(pairs[0], output_kernel=cv.Gaussian(0.8), weights=3 * alone).order(2)
    assert three.standard_errors.vendi == pytest.approx(0, abs=1e-6)


def errors_of(evaluation):
    return np.array([list(scored.standard_errors) for scored in evaluation.orders])


MANY = np.random.default_rng(3).integers(0, 4, 48)
ORDERS = [0.5, 1, 2]  # At 0.5 there are too many modes for influences: groups are deleted.


@pytest.mark.parametrize("bandwidth", [0.2, 3.0])
def test_integer_weights_are_independent_copies_for_errors(bandwidth, x64):
    outputs = draw_pairs(48)[0]
    options = {"output_kernel": cv.Gaussian(bandwidth), "orders": ORDERS}
    merged = cv.evaluate(outputs, **options, weights=MANY.astype(np.uint8))
    copies = cv.evaluate(np.repeat(outputs, MANY, axis=0), **options)
    np.testing.assert_allclose(errors_of(merged), errors_of(copies), rtol=1e-6)
    assert [o.errors_by for o in merged.orders] == [o.errors_by for o in copies.orders]
    # Other numbers are weights of one row each: where rows overlap, less is known than from as
    # many rows.
    floats = cv.evaluate(outputs, **options, weights=1.0 * MANY)
    assert bandwidth < 1 or errors_of(floats)[2, 0] > 1.1 * errors_of(merged)[2, 0]
    kept = cv.evaluate(outputs[MANY > 0], **options, weights=1.0 * MANY[MANY > 0])
    assert_close(errors_of(kept), errors_of(floats))
    both = ((outputs, MANY.astype(np.uint64)), (np.repeat(outputs, MANY, axis=0), None))
    grouped = [cv.evaluate(x, **options, groups=6, weights=weights) for x, weights in both]
    np.testing.assert_allclose(errors_of(grouped[0]), errors_of(grouped[1]), rtol=1e-6)
    with pytest.raises(ValueError, match="at most 16,384 .* received 480,000; give labels"):
        cv.evaluate(outputs, **options, groups=6, weights=np.full(48, 10_000))


def test_differences_of_models_have_the_errors_of_copies(x64):
    models = {"a": draw_pairs(48)[0], "b": draw_pairs(48, seed=1)[0]}
    options = {"output_kernel": cv.Gaussian(3.0), "orders": [1, 2]}
    merged = cv.compare(models, **options, weights=MANY)
    many = {name: np.repeat(outputs, MANY, axis=0) for name, outputs in models.items()}
    for one, two in zip(merged.rankings, cv.compare(many, **options).rankings, strict=True):
        np.testing.assert_allclose(one.differences[0][2:], two.differences[0][2:], rtol=1e-6)
        assert one.letters == two.letters


@pytest.mark.filterwarnings("ignore:models. a .60 prompts")  # Not tested, but described.
def test_any_weights_keep_errors_over_prompts(x64):
    """Sixty prompts; two kinds of outputs of each, one to three times.

    Integer weights say as well which pairs are of two rows, and how many rows answer a prompt.
    """
    prompts = np.repeat(draw_pairs(60)[1], 2, axis=0)
    models = {
        name: draw_pairs(120, seed=s, modes=9)[0] + prompts[:, :1]
        for s, name in [(1, "a"), (2, "b")]
    }
    # As many of each model.
    copies = {
        name: np.random.default_rng(s).permutation(np.arange(120) % 3 + 1)
        for s, name in [(3, "a"), (4, "b")]
    }
    options = {**kernels(), "orders": [1, 2]}
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
        if scale != 1:
            continue
        for one, two in zip(found.rankings, expected.rankings, strict=True):
            assert_close([*one.values.values()], [*two.values.values()])
            for name in models:
                assert_close(one.standard_errors[name], two.standard_errors[name])
            assert_close(one.differences[0][2:], two.differences[0][2:])


@pytest.mark.parametrize("order", [1, 2])
def test_contributions_of_labels_do_not_change_by_merging(order, x64):
    pairs, labels = draw_pairs(N), np.arange(N) % 3
    merged = cv.contributions(*pairs, **kernels(), order=order, weights=COPIES)
    copies = cv.contributions(*repeated(pairs), **kernels(), order=order)
    by_label = copies.by(labels[ROWS])
    for label, found in merged.by(labels).items():
        np.testing.assert_allclose(found, by_label[label], atol=1e-9)
    np.testing.assert_allclose(merged.influences.vendi[ROWS], copies.influences.vendi, atol=1e-7)


def test_rows_that_share_nothing_score_as_much_as_their_weights_allow():
    weights = np.arange(1, 31) / 7
    p = weights / weights.sum()
    rows = 100 * np.arange(30, dtype=np.float32)[:, None]
    for order, truncation in [(1, None), (2, None), (math.inf, None), (1, 4)]:
        with pytest.warns(UserWarning, match="numerically the identity"):
            found = cv.evaluate(
                rows,
                output_kernel=cv.Gaussian(1.0),
                weights=weights,
                orders=[order],
                truncation=truncation,
                errors=False,
            )
        kept = p if truncation is None else shifted(p, truncation)
        (scored,) = found.orders
        assert_close(scored.decomposition.vendi, np.exp(renyi(kept, order)), loosened=3)
        assert scored.saturated["vendi"] == "largest"


def test_a_bandwidth_rule_sees_copies(x64):
    outputs = draw_pairs(N)[0]
    for rule in ("variance", "median"):
        found = [
            cv.Pairs(*a, rule=rule, key=KEY, **w).bandwidths["outputs"]
            for a, w in [((outputs,), {"weights": COPIES}), ((outputs[ROWS],), {})]
        ]
        assert found[0] == found[1]
    plain, weighed = (
        cv.Pairs(outputs, rule="median", key=KEY, weights=w).bandwidths["outputs"].bandwidth
        for w in (None, np.where(COPIES > 2, 0.9, 0.001))
    )
    assert plain != weighed


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), r"weights: expected 14 weights, one for each row, received shape \(5,\)"),
        (np.ones((N, 1)), r"weights: expected 14 weights, .* received shape \(14, 1\)"),
        (np.zeros(N), "weights: expected one above zero, received 14 zeros"),
        (np.arange(N) - 1, "weights: expected non-negative numbers, received -1 in row 0"),
        (np.where(np.arange(N) == 3, np.nan, 1), "weights: expected finite numbers, received nan"),
        (np.where(np.arange(N) == 3, np.inf, 1), "received inf in row 3"),
        (
            np.full(N, 2**60),
            r"weights: expected integers .* below 2\^53, received a sum of 1.61e\+19",
        ),
        (np.full(N, "a"), "weights: expected real numbers, received an array of <U1"),
        (np.ones(N, complex), "weights: expected real numbers"),
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


@pytest.mark.parametrize("kernel", ["cosine", "gaussian"])
def test_streams_of_weighted_batches_merge_to_the_scores_of_copies(kernel, x64):
    pairs = draw_pairs(N)
    first, second, one, two = (
        metrics.StoredDecomposition(**kernels(kernel), tile_size=4) for _ in range(4)
    )
    for metric, rows in ((first, slice(0, 3)), (first, slice(3, 9)), (second, slice(9, N))):
        outputs, prompts = (array[rows] for array in pairs)
        metric.update(outputs=outputs, prompts=prompts, weights=COPIES[rows])
    first.merge(second)
    first.update(outputs=pairs[0][:2], prompts=pairs[1][:2], weights=[0, 0])
    assert first.n == np.count_nonzero(COPIES)
    matrices = oracle_grams(*pairs, kernel)
    for options in ({"order": 2}, {"order": 1}, {"order": 1, "truncation": 3}):
        assert_close(first.compute(**options).scores, oracle(*matrices, COPIES, **options))
    # Equal weights are none, and masked rows count for nothing.
    mask = COPIES > 1
    one.update(outputs=pairs[0], prompts=pairs[1], weights=np.full(N, 0.3), mask=mask)
    two.update(outputs=pairs[0][mask], prompts=pairs[1][mask])
    assert_close(one.compute(order=2).scores, two.compute(order=2).scores)
    with pytest.raises(ValueError, match="weights: expected non-negative numbers, received -1"):
        one.update(outputs=pairs[0], prompts=pairs[1], weights=COPIES - 1)


@pytest.mark.parametrize("kind", clusters.AGGREGATES)
@pytest.mark.parametrize("order", [1, 2])
def test_clusters_of_weighted_rows(kind, order, x64):
    outputs, labels = draw_pairs(N)[0], np.repeat(["a", "b", "c"], [5, 7, 2])
    options = {"kernel": cv.Gaussian(0.8), "order": order, "aggregate": kind}
    found = clusters.cluster_vendi(outputs, labels, **options, weights=0.3 * COPIES)
    assert_close(found, clusters.cluster_vendi(outputs[ROWS], labels[ROWS], **options))
    few = np.where(labels == "b", 0, COPIES)  # Without the cluster.
    kept = np.repeat(np.arange(N), few)
    found = clusters.cluster_vendi(outputs, labels, **options, weights=few)
    assert_close(found, clusters.cluster_vendi(outputs[kept], labels[kept], **options))
    points = cv.Pairs(outputs, output_kernel=cv.Gaussian(0.8), weights=few)
    assert_close(clusters.cluster_vendi(points, labels, order=order, aggregate=kind), found)


def test_prompt_modes_of_weighted_rows(x64):
    pairs = draw_pairs(N)
    merged = clusters.prompt_modes(*pairs, **kernels(), weights=COPIES)
    copies = clusters.prompt_modes(*repeated(pairs), **kernels())
    for one, two in zip(merged, copies, strict=True):
        for name in ("share", "vendi", "rke", "output_shares"):
            assert_close(getattr(one, name), getattr(two, name))
        summed = np.bincount(ROWS, two.weights, minlength=N)
        np.testing.assert_allclose(one.weights, summed, atol=1e-9)


def test_curves_of_weighted_rows_are_those_of_their_prefixes(x64):
    pairs, options = draw_pairs(N), {"entropies": [cv.von_neumann, cv.renyi(2)], **kernels()}
    curves = cv.convergence_curve(*pairs, [2, 9, N], **options, weights=COPIES)
    sizes = np.cumsum(COPIES)[[1, 8, -1]].tolist()
    expected = cv.convergence_curve(*repeated(pairs), sizes, **options)
    for one, two in zip(curves, expected, strict=True):
        assert_close(np.stack(one.scores), np.stack(two.scores))
    assert_close(np.stack(curves[1].unbiased.scores), np.stack(expected[1].unbiased.scores))
    shares = np.random.default_rng(0).uniform(size=N)
    (_, curve) = cv.convergence_curve(*pairs, [N], **options, weights=shares)
    unbiased = cv.decompose(*pairs, **kernels(), order=2, unbiased=True, weights=shares)
    assert_close(np.stack(curve.unbiased.scores)[:, 0], np.stack(unbiased.scores))
    with pytest.raises(ValueError, match="sizes: all weights of the first 2 rows are zero"):
        cv.convergence_curve(*pairs, [2, N], **options, weights=np.arange(N) // 2)


def test_baselines_of_weighted_rows(x64):
    many = draw_pairs(40)
    copies = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), copies)
    mid, found = cv.baselines.mutual_information_divergence, {}
    for name, arrays, weights in (("merged", many, copies), ("copies", repeated(many, rows), None)):
        others = {"reference_outputs": arrays[0][::-1], "reference_prompts": arrays[1][::-1]}
        reversed_weights = None if weights is None else weights[::-1]
        found[name] = [
            mid(*arrays, weights=weights),
            mid(*draw_pairs(9), **others, reference_weights=reversed_weights),
            mid(*arrays, reference_outputs=many[0], reference_prompts=many[1], weights=weights),
            cv.baselines.rrke(
                arrays[0],
                arrays[0][::-1] + 1,
                kernel=cv.Gaussian(0.8),
                weights=weights,
                reference_weights=reversed_weights,
            ),
        ]
    assert_close(found["merged"], found["copies"])
    with pytest.raises(ValueError, match="reference_weights: received some without references"):
        mid(*many, weights=copies, reference_weights=copies)
    with pytest.raises(ValueError, match="more than 5 reference pairs, received 4"):
        mid(*many, weights=np.arange(40) < 4)


def test_features_of_rows_have_no_weights():
    points = cv.Pairs(
        draw_pairs(N, dtype=np.float32)[0], output_kernel=cv.Gaussian(0.8), weights=COPIES
    )
    with pytest.raises(ValueError, match="weights: received some, and .* features have none"):
        cv.spectra.fourier_features(points, key=KEY)


def test_errors_of_the_decomposition_have_weights(x64):
    pairs = draw_pairs(30)
    weights = np.random.default_rng(0).integers(0, 3, 30)
    points = cv.Pairs(*pairs, **kernels(), weights=weights)
    labels = np.arange(30) % 6
    rows = np.repeat(np.arange(30), weights)
    for order in (1, 2):
        own = cv.decomposition_errors(points, order=order, groups=labels)
        copies = cv.decomposition_errors(
            *repeated(pairs, rows), **kernels(), order=order, groups=labels[rows]
        )
        assert_close(np.array(own), np.array(copies))
