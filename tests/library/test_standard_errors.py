"""Standard errors, against NumPy: by influences, by deletions of rows or groups; the groups."""

import jax
import numpy as np
import pytest
from canonical import OUTPUTS, PROMPTS, errors_at, kernels, slow
from canonical import N as FEW
from oracles import (
    assert_close,
    cosine_gram,
    draw_pairs,
    gaussian_grams,
    score_losses,
    scores,
    weighted_logs,
)

import condvendi_jax as cv
from condvendi_jax.base import labelling
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import errors as errors_of
from condvendi_jax.inference.errors import Groups, deal
from condvendi_jax.spectra import AUTO, pair_sums
from experiments.lab.curves import order_two_curves

N = 100
WIDTHS = (0.75, 0.5)
KERNELS = kernels(WIDTHS)
COSINES = dict.fromkeys(KERNELS, cv.Cosine())
WIDE = dict.fromkeys(KERNELS, cv.Gaussian(3.0))
ONES, WEIGHTS = np.ones(N), np.random.default_rng(2).uniform(0.5, 2, size=N)
WEIGHED = pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
# 50 groups of unequal sizes, in no order; one of half of the rows; three of 17, 16 and 15.
LABELS = np.random.default_rng(1).permutation([*range(50), *range(0, 40, 4), *range(40)])
LARGE = np.minimum(np.arange(N), 50)
THREE = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [17, 16, 15]))
KEY = jax.random.key(0)


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


def error_of(of_groups):
    """G / (G - 1) times the sum of squares over G groups, `[3]`."""
    return np.sqrt(len(of_groups) / (len(of_groups) - 1) * np.sum(of_groups**2, axis=0))


@WEIGHED
@pytest.mark.parametrize(
    "order, t, labels",
    [(2, 7, LABELS), (1, 7, LABELS), (1.8, None, LABELS), slow(1, None, LARGE)],
    ids=["order 2", "order 1", "order 1.8", "a large group"],
)
def test_errors_are_sums_of_derivatives_over_the_rows_of_a_group(order, t, labels, weights, x64):
    """Also of a group of half of the rows at order 1, in place of its deletion."""
    pairs, given = draw_pairs(N), ONES if weights is None else weights
    options = {"orders": [order], "truncation": t, "groups": labels, "weights": weights}
    (scored,) = cv.evaluate(*pairs, **(KERNELS if t else WIDE), **options).orders
    grams = grams_of(*pairs, widths=WIDTHS if t else (3, 3))
    expected = error_of(slopes(grams, given, labels, order, t))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-5)
    assert scored.errors_by == ("influences", labels.max() + 1, "given labels", None)


def test_rows_of_equal_prompts_are_a_group_and_outputs_alone_are_not(x64):
    outputs, prompts = draw_pairs(N)
    prompts = prompts[LABELS]
    found = cv.evaluate(outputs, prompts, **KERNELS, orders=[2])
    (scored,), grams = found.orders, grams_of(outputs, prompts)
    expected = error_of(score_losses(grams, ONES, LABELS, 2))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-6)
    assert scored.errors_by == ("influences", 50, "rows of one prompt", None)
    assert "from the influences of 50 prompts" in found.details()
    (alone,) = cv.evaluate(outputs, output_kernel=cv.Gaussian(WIDTHS[0]), orders=[2]).orders
    expected = error_of(score_losses(grams, ONES, np.arange(N), 2))[0]
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
    expected = error_of(score_losses(grams, given, labels, order))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-6)
    if kernel == "cosine":
        whole = cv.decompose(*pairs, **chosen, weights=weights)
        np.testing.assert_allclose(scored.decomposition.rounding, whole.rounding, rtol=1e-6)
    if kernel == "gaussian" and order == 1:
        by_slopes = error_of(slopes(grams, given, labels, 1))
        assert np.all(np.abs(np.array(scored.standard_errors) / by_slopes - 1) > 0.02)


@pytest.mark.parametrize("largest, order", [(40, 2), (9, 1)])
def test_deletions_of_unequal_groups_are_exact_in_tiles(largest, order, x64, monkeypatch):
    monkeypatch.setattr(pair_sums, "_TILED_ABOVE", 16)
    pairs, weights = draw_pairs(90), WEIGHTS[:90]  # No other program is of 90 rows.
    labels = np.random.default_rng(0).permutation(np.maximum(np.arange(90) - largest + 1, 0))
    options = {"orders": [order], "groups": labels, "weights": weights}
    (scored,) = cv.evaluate(*pairs, **KERNELS, **options).orders
    expected = error_of(score_losses(grams_of(*pairs), weights, labels, order))
    np.testing.assert_allclose(scored.standard_errors, expected, rtol=1e-6)


@pytest.mark.parametrize("heavy", [1e4, 1e6])
def test_deletions_keep_their_digits_where_one_row_has_nearly_all_the_weight(heavy):
    arrays, weights = draw_pairs(N, dtype=np.float32), np.where(np.arange(N) == 3, heavy, 1.0)
    labels, grams = np.arange(N) % 20, grams_of(*arrays)
    pairs = Pairs(*arrays, **KERNELS, weights=weights, groups=labels)
    found = errors_at(pairs, order=2)
    expected = error_of(score_losses(grams, weights, labels, 2))
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
    ("options", "method", "reason"),
    [
        ({"groups": LABELS % 49}, "deletions", "there are fewer than 50 given labels"),
        ({"groups": LABELS % 7, "orders": [2]}, "influences", None),
        ({"orders": [0.5], "groups": np.arange(N)[::-1]}, "deletions", "100 rows are few"),
        ({"orders": [0.5], **WIDE}, "influences", None),
        ({"orders": [2], "groups": 25}, "deletions", None),
    ],
)
def test_groups_are_deleted_where_influences_would_not_do(options, method, reason):
    pairs = draw_pairs(N, dtype=np.float32)
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
    options |= {"unbiased": False, "profile": False}
    matched = cv.compare(models | {"third": first}, prompts, **options, groups=LABELS)
    grams = [grams_of(of, prompts) for of in (first, second)]
    one, two = (score_losses(of, ONES, LABELS, order) for of in grams)
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


def test_an_error_that_is_mostly_noise_comes_with_a_warning():
    pairs = Pairs(*draw_pairs(N, dtype=np.float32), **KERNELS)
    found = errors_of.row_influences(pairs, cv.Entropy(2), AUTO)
    noise = 300 * np.random.default_rng(0).normal(size=(4, N))
    found = found._replace(changes=found.changes._replace(vendi=found.changes.vendi + noise))
    with pytest.warns(UserWarning, match="the standard error of vendi is mostly that of the estim"):
        errors_of._by_influences(pairs, found, Groups(np.arange(N), "rows"), None)


# By deletions of groups


def by_deletions(grams, order, truncation):
    """Busing, Meijer and van der Leeden (1999), for three groups of unequal sizes."""
    parts = []
    for rows in (np.flatnonzero(THREE != group) for group in (3, 0, 1, 2)):
        t = truncation and min(truncation, rows.size)
        rest = (gram[np.ix_(rows, rows)] for gram in grams)
        parts.append([*scores(*rest, order=order, truncation=t).values()])
    whole, *deleted = np.array(parts)
    h, deleted = FEW / np.bincount(THREE)[:, None], np.array(deleted)
    centre = 3 * whole - np.sum((1 - 1 / h) * deleted, axis=0)
    pseudo = h * whole - (h - 1) * deleted
    return np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1), axis=0))


@pytest.mark.parametrize(
    ("order", "truncation"), [(0.5, None), (1, None), (1, 5), (1, 40), (2, None), (np.inf, 5)]
)
@pytest.mark.parametrize("kernels", [KERNELS, COSINES, None], ids=["gaussian", "dual", "alone"])
def test_errors_are_those_of_the_scores_of_the_rows_that_are_kept(order, truncation, kernels, x64):
    """31 to 33 rows are kept. Both cosine Grams and their product have fewer features."""
    pairs, said = draw_pairs(FEW), []
    x, t = map(cosine_gram, pairs) if kernels is COSINES else gaussian_grams(pairs, WIDTHS)
    if kernels is None:
        kernels, pairs, t = {"output_kernel": cv.Gaussian(0.75)}, pairs[:1], np.ones((FEW, FEW))
    given = Pairs(*pairs, **kernels), Entropy(order, truncation), Groups(THREE, "given labels")
    found = cv.inference.delete_groups(*given, method=cv.Exact(), progress=said.append)
    # At order 0.5 a mode is the root of its eigenvalue: so is what rounding leaves of it.
    rtol, atol = (1e-4, 1e-6) if order < 1 else (1e-8, 1e-12)
    expected = by_deletions((x, t), order, truncation)
    np.testing.assert_allclose(found.standard_errors, expected, rtol=rtol, atol=atol)
    errors = np.sqrt(np.mean(np.square(found.influences), axis=(1, 2)))
    np.testing.assert_allclose(errors, found.standard_errors, rtol=1e-12)
    assert len(said) == found.errors_by.groups == 3 and found.errors_by.method == "deletions"


def test_deletions_of_weighted_rows_are_those_of_copies(x64):
    copies = 1 + np.arange(FEW) % 3
    pairs = Pairs(*draw_pairs(FEW), **KERNELS, weights=copies)
    found, expected = (
        cv.inference.delete_groups(of, Entropy(1), Groups(labels, "given labels")).influences
        for of, labels in ((pairs, THREE), (pairs.repeated(), np.repeat(THREE, copies)))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.slow
def test_errors_that_are_those_of_the_estimates_say_so():
    """All deletions of even points of a circle have one score: estimates show their noise."""
    angles = 2 * np.pi * np.arange(600) / 600
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    options = {"output_kernel": cv.Gaussian(0.02), "order": 1, "groups": np.arange(600) % 8}
    exact = errors_at(circle, **options, method=cv.Exact())
    with pytest.warns(UserWarning, match="error of vendi is mostly that of the estimated spectra"):
        coarse = errors_at(circle, **options, method=cv.Stored(KEY, rtol=0.1))
    assert coarse.vendi > 10 * exact.vendi


def test_groups_by_prompt_hold_together_and_are_even():
    kinds = np.repeat(np.arange(30), np.arange(30) % 4 + 1)
    groups, other = (
        deal(6, jax.random.key(seed), kinds, np.ones(kinds.size, int)) for seed in (0, 1)
    )
    assert (groups.count, groups.units) == (6, "rows of one prompt")
    assert all(np.unique(groups.membership[kinds == prompt]).size == 1 for prompt in range(30))
    assert np.ptp(np.bincount(groups.membership)) <= 4
    assert (groups.membership != other.membership).any()
    for kinds in (np.zeros(20, int), np.arange(20)):  # Prompts say nothing: rows one by one.
        groups = deal(6, KEY, kinds, np.ones(20, int))
        assert (groups.count, groups.units) == (6, "rows")
        assert sorted(np.bincount(groups.membership)) == [3, 3, 3, 3, 4, 4]


def test_labels_need_no_key_and_may_be_words():
    numbers = np.arange(FEW) % 3
    words = np.array(["blue", "red", "green"])[numbers]
    one, two = (
        errors_at(OUTPUTS, PROMPTS, **KERNELS, order=2, groups=labels)
        for labels in (numbers, words)
    )
    assert_close(np.stack(one), np.array(two), loosened=10)
    dates = np.array(["2026-01-02", "2026-01-01", "2026-01-02"], "M8[D]")
    assert labelling.check_labels(dates, 3)[1].tolist() == [1, 0, 1]
    for groups, message in (
        (np.zeros(FEW), "groups: expected two distinct labels or more, received one"),
        ([*np.arange(FEW - 1.0), np.nan], "groups: received NaN in row 47"),
    ):
        with pytest.raises(ValueError, match=message):
            errors_at(OUTPUTS, PROMPTS, **KERNELS, groups=groups)


def test_errors_warn_of_a_truncation_beyond_n_and_not_of_one_beyond_the_deletions():
    options = {**KERNELS, "groups": 4}
    errors_at(OUTPUTS, PROMPTS, **options, truncation=FEW - 1)
    with pytest.warns(UserWarning, match="truncation 49 exceeds n = 48"):
        errors_at(OUTPUTS, PROMPTS, **options, truncation=FEW + 1)


def test_curves_of_order_two_are_those_of_separate_decompositions(x64):
    pairs = draw_pairs(FEW)
    found = order_two_curves(cv.Pairs(*pairs, **KERNELS), (1, 20))
    for entropies, unbiased in zip(found, (False, True), strict=True):
        first = cv.decompose(*(p[:20] for p in pairs), **KERNELS, order=2, unbiased=unbiased)
        assert_close(entropies[:, 1], np.stack(first.entropies))
    assert np.isnan(found[1][2, 0])


KERNEL = {"output_kernel": cv.Gaussian(1.0)}
UNTRACEABLE = {
    "evaluate": lambda x: cv.evaluate(x, **KERNEL, orders=[2]).n,
    "compare": lambda x: cv.compare({"a": x, "b": x}, **KERNEL, orders=[2]).groups,
    "bandwidth_by_rule": lambda x: cv.bandwidth_by_rule(x, "variance", key=KEY).bandwidth,
    "contributions": lambda x: cv.contributions(x, **KERNEL).influences.vendi,
}


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_what_depends_on_numbers_says_so_inside_jit(name):
    with pytest.raises(TypeError, match=f"{name}: cannot run inside jax.jit, jax.vmap or jax.grad"):
        jax.jit(UNTRACEABLE[name])(OUTPUTS)
