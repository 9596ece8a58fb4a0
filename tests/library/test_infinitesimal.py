"""Standard errors from influences, against NumPy: derivatives by differences, every row deleted."""

import jax
import numpy as np
import pytest
from canonical import errors_at, kernels, slow
from oracles import cosine_gram, draw_pairs, gaussian_grams, weighted_logs

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import errors as errors_of
from condvendi_jax.inference.errors import Groups
from condvendi_jax.spectra import AUTO, pair_sums
from condvendi_jax.statistics import influences as influences_of

N = 100
WIDTHS = (0.75, 0.5)
KERNELS = kernels(WIDTHS)
WIDE = dict.fromkeys(KERNELS, cv.Gaussian(3.0))
ONES, WEIGHTS = np.ones(N), np.random.default_rng(2).uniform(0.5, 2, size=N)
WEIGHED = pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
# 50 groups of unequal sizes, in no order.
LABELS = np.random.default_rng(1).permutation([*range(50), *range(0, 40, 4), *range(40)])


def grams_of(outputs, prompts, *, widths=WIDTHS):
    x, t = gaussian_grams((outputs, prompts), widths)
    return x, t, x * t


def slopes(grams, weights, labels, order, t=None):
    """The derivative of each score as a group's weight grows and the others' shrink, `[G, 3]`."""
    shares, found = weights / weights.sum(), []
    for own in (labels == label for label in np.unique(labels)):
        move = 1e-5 * (shares * own - shares[own].sum() * shares)
        ends = [np.exp(weighted_logs(grams, shares + s * move, order, t)) for s in (1, -1)]
        found.append(np.subtract(*ends) / 2e-5)
    return np.array(found)


def losses(grams, weights, labels, order=1):
    """The loss of log scores without each group, times the score and the rest, centred."""
    whole, shares = weighted_logs(grams, weights, order), np.bincount(labels, weights)
    found = []
    for label in range(shares.size):
        kept = np.flatnonzero(labels != label)
        rest = [gram[np.ix_(kept, kept)] for gram in grams]
        rest = weighted_logs(rest, weights[kept], order)
        found.append((whole - rest) * (1 - shares[label] / shares.sum()))
    means = np.outer(shares / shares.sum(), np.sum(found, axis=0))
    return np.exp(whole) * (np.array(found) - means)


def error_of(of_groups):
    """G / (G - 1) times the sum of squares over G groups, `[3]`."""
    return np.sqrt(len(of_groups) / (len(of_groups) - 1) * np.sum(of_groups**2, axis=0))


@WEIGHED
@pytest.mark.parametrize("order, t", [(2, 7), (1, 7), (1.8, None)])
def test_errors_are_sums_of_derivatives_over_the_rows_of_a_group(order, t, weights, x64):
    pairs, given = draw_pairs(N), ONES if weights is None else weights
    options = {"orders": [order], "truncation": t, "groups": LABELS, "weights": weights}
    (scored,) = cv.evaluate(*pairs, **(KERNELS if t else WIDE), **options).orders
    grams = grams_of(*pairs, widths=WIDTHS if t else (3, 3))
    expected = error_of(slopes(grams, given, LABELS, order, t))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-5)
    assert scored.errors_by == ("influences", 50, "given labels", None)


def test_rows_of_equal_prompts_are_a_group_and_outputs_alone_are_not(x64):
    outputs, prompts = draw_pairs(N)
    prompts = prompts[LABELS]
    found = cv.evaluate(outputs, prompts, **KERNELS, orders=[2])
    (scored,), grams = found.orders, grams_of(outputs, prompts)
    expected = error_of(losses(grams, ONES, LABELS, 2))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-6)
    assert scored.errors_by == ("influences", 50, "rows of one prompt", None)
    assert "from the influences of 50 prompts" in found.details()
    (alone,) = cv.evaluate(outputs, output_kernel=cv.Gaussian(WIDTHS[0]), orders=[2]).orders
    expected = error_of(losses(grams, ONES, np.arange(N), 2))[0]
    np.testing.assert_allclose(alone.standard_errors.vendi, expected, rtol=1e-6)
    assert alone.errors_by == ("influences", N, "rows", None)


@pytest.mark.parametrize(
    ("kernel", "order", "labels", "weights"),
    [
        ("gaussian", 1, np.arange(N), None),
        ("gaussian", 1, LABELS, WEIGHTS),
        ("cosine", 1, np.arange(N), WEIGHTS),
        slow("cosine", 1, LABELS, None),
        slow("gaussian", 2, np.arange(N), WEIGHTS),
        slow("gaussian", 2, LABELS, None),
        ("gaussian", 2, LABELS, WEIGHTS),
    ],
)
def test_errors_are_those_of_deleting_each_unit(kernel, order, labels, weights, x64):
    pairs, given = draw_pairs(N), ONES if weights is None else weights
    chosen, grams = KERNELS, grams_of(*pairs)
    if kernel == "cosine":  # Of 6 features in all.
        chosen, (x, t) = dict.fromkeys(KERNELS, cv.Cosine()), map(cosine_gram, pairs)
        grams = (x, t, x * t)
    options = {**chosen, "orders": [order], "groups": labels, "weights": weights}
    (scored,) = cv.evaluate(*pairs, **options).orders
    expected = error_of(losses(grams, given, labels, order))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-6)
    if kernel == "cosine":
        whole = cv.decompose(*pairs, **chosen, weights=weights)
        np.testing.assert_allclose(scored.decomposition.rounding, whole.rounding, rtol=1e-6)
    if kernel == "gaussian" and order == 1:
        by_slopes = error_of(slopes(grams, given, labels, 1))
        assert np.all(np.abs(np.array(scored.standard_errors) / by_slopes - 1) > 0.02)


@pytest.mark.slow
def test_derivatives_stand_for_the_deletion_of_large_groups_at_order_one(x64):
    pairs, labels = draw_pairs(N), np.minimum(np.arange(N), 50)
    (scored,) = cv.evaluate(*pairs, **WIDE, orders=[1], groups=labels).orders
    expected = error_of(slopes(grams_of(*pairs, widths=(3, 3)), ONES, labels, 1))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-5)
    (scored,) = cv.evaluate(*pairs, **KERNELS, orders=[1], groups=labels).orders
    assert "100 rows are few for" in scored.errors_by.reason


@pytest.mark.parametrize("largest, order", [(50, 2), (9, 1)])
def test_deletions_of_unequal_groups_are_exact_in_tiles(largest, order, x64, monkeypatch):
    monkeypatch.setattr(pair_sums, "_TILED_ABOVE", 16)
    jax.clear_caches()
    pairs = draw_pairs(N)
    labels = np.random.default_rng(0).permutation(np.maximum(np.arange(N) - largest + 1, 0))
    options = {"orders": [order], "groups": labels, "weights": WEIGHTS}
    (scored,) = cv.evaluate(*pairs, **KERNELS, **options).orders
    expected = error_of(losses(grams_of(*pairs), WEIGHTS, labels, order))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-6)


@pytest.mark.parametrize("heavy", [1e4, 1e6])
def test_deletions_keep_their_digits_where_one_row_has_nearly_all_the_weight(heavy):
    arrays, weights = draw_pairs(N, dtype=np.float32), np.where(np.arange(N) == 3, heavy, 1.0)
    labels, grams = np.arange(N) % 20, grams_of(*arrays)
    pairs = Pairs(*arrays, **KERNELS, weights=weights, groups=labels)
    found = errors_at(pairs, order=2)
    expected = error_of(losses(grams, weights, labels, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("order", [1, 2])
def test_rows_with_labels_of_their_own_are_independent(order, x64):
    """Also where prompts repeat."""
    outputs, prompts = draw_pairs(N)
    options, order_of_rows = {**KERNELS, "orders": [order]}, np.random.default_rng(3).permutation(N)
    (alone,) = cv.evaluate(outputs, prompts, **options).orders
    (labelled,) = cv.evaluate(outputs, prompts, **options, groups=order_of_rows).orders
    np.testing.assert_allclose(labelled.standard_errors, alone.standard_errors, rtol=1e-12)
    assert labelled.errors_by == alone.errors_by == ("influences", N, "rows", None)
    options["groups"] = order_of_rows
    (repeated,) = cv.evaluate(outputs, prompts[LABELS], **options).orders
    assert repeated.errors_by == alone.errors_by


@pytest.mark.parametrize(
    ("n", "options", "method", "reason"),
    [
        (19, {"orders": [2]}, "deletions", "there are fewer than 20 rows"),
        (N, {"groups": LABELS % 49}, "deletions", "there are fewer than 50 given labels"),
        (N, {"groups": LABELS % 49, "orders": [2]}, "influences", None),
        (N, {"groups": LABELS % 49, "orders": [2], "truncation": 5}, "deletions", "50"),
        (N, {"groups": LABELS % 6, "orders": [2]}, "deletions", "fewer than 7 given labels"),
        (N, {"groups": LABELS % 7, "orders": [2]}, "influences", None),
        (N, {"orders": [0.5], "groups": np.arange(N)[::-1]}, "deletions", "100 rows are few"),
        (N, {"orders": [0.5], **WIDE}, "influences", None),
        (N, {"orders": [2], "groups": 25}, "deletions", None),
    ],
)
def test_groups_are_deleted_where_influences_would_not_do(n, options, method, reason):
    pairs = (points[:n] for points in draw_pairs(N, dtype=np.float32))
    (scored,) = cv.evaluate(*pairs, **(KERNELS | {"orders": [1]} | options)).orders
    assert scored.errors_by.method == method
    assert (scored.errors_by.groups == 20) == (reason == "100 rows are few")
    assert str(reason) in str(scored.errors_by.reason)


@pytest.mark.parametrize("labels", [np.arange(N), LABELS], ids=["rows", "groups"])
def test_errors_of_estimates_are_withheld_where_derivatives_would_be_too_small(labels):
    pairs, narrow = draw_pairs(N, dtype=np.float32), dict.fromkeys(KERNELS, cv.Gaussian(0.3))
    options = {"orders": [1], "groups": labels, "method": cv.Stored(jax.random.key(0), rtol=0.2)}
    with pytest.warns(UserWarning, match="no standard errors .NaN.: .* give fewer groups"):
        found = cv.evaluate(*pairs, **narrow, **options)
    assert np.isnan(found.orders[0].standard_errors).all()
    assert (
        ", but withheld: derivatives make errors too small if 100 rows are few" in found.details()
    )
    models = {"a": pairs[0], "b": pairs[0][::-1]}
    with pytest.warns(UserWarning, match="no standard errors"):
        compared = cv.compare(models, pairs[1], **narrow, **options)
    assert "withheld: derivatives make errors too small" in compared.details()
    assert not any(ranking.tested for ranking in compared.rankings)


@pytest.mark.slow
def test_the_doubt_of_one_model_deletes_the_groups_of_all():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    models, options = {"few": outputs, "many": 30 * outputs}, {**WIDE, "orders": [0.5]}
    alone = [cv.evaluate(of, prompts, **options).orders[0] for of in models.values()]
    assert [of.errors_by.method for of in alone] == ["influences", "deletions"]
    together = cv.compare(models, prompts, **options).evaluations.values()
    assert {of.orders[0].errors_by.method for of in together} == {"deletions"}


@pytest.mark.parametrize("order", [1, 2])
def test_what_models_share_cancels_in_their_difference(order, x64):
    first, prompts = draw_pairs(N)
    second = first + 0.3 * np.random.default_rng(4).normal(size=first.shape)
    models, options = {"first": first, "second": second}, {**KERNELS, "orders": [order]}
    options["unbiased"] = False
    matched = cv.compare(models | {"third": first}, prompts, **options, groups=LABELS)
    grams = [grams_of(of, prompts) for of in (first, second)]
    one, two = (losses(of, ONES, LABELS, order) for of in grams)
    # Other prompts, and labels of none: nothing is shared.
    own = {"first": prompts, "second": prompts + 1}
    unmatched = cv.compare(models, own, **options, one_population=True)
    assert unmatched.matched == "none"
    for name, expected in zip(PerScore._fields, error_of(one - two), strict=True):
        ranking, apart = (found.ranking(name, order) for found in (matched, unmatched))
        assert ranking.difference("first", "third").standard_error == 0
        of_both = np.hypot(*apart.standard_errors.values())
        for found, error in ((ranking, expected), (apart, of_both)):
            difference = found.difference("first", "second")
            np.testing.assert_allclose(difference.standard_error, error, rtol=1e-5)


def test_noise_of_replicates_is_taken_out_unless_it_is_most_of_the_error():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=50)
    for noise, kept in ((0.8, 0), (8.0, 8.0**2 / 4)):
        several = truth + noise * rng.normal(size=(400, 4, 50))
        squares = np.square([influences_of.error_of(of) for of in several])
        np.testing.assert_allclose(squares.mean(), np.mean(truth**2) + kept, rtol=0.05)


def test_an_error_that_is_mostly_noise_comes_with_a_warning():
    pairs = Pairs(*draw_pairs(N, dtype=np.float32), **KERNELS)
    found = errors_of.row_influences(pairs, cv.Entropy(2), AUTO)
    noise = 300 * np.random.default_rng(0).normal(size=(4, N))
    found = found._replace(changes=found.changes._replace(vendi=found.changes.vendi + noise))
    with pytest.warns(UserWarning, match="the standard error of vendi is mostly that of the estim"):
        errors_of._by_influences(pairs, found, Groups(np.arange(N), "rows"), None)
