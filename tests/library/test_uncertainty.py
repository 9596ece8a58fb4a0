"""Standard errors by deletions, against NumPy; labels; convergence curves."""

import functools

import jax
import numpy as np
import pytest
from canonical import OUTPUTS, PROMPTS, N, errors_at
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_grams, scores

import condvendi_jax as cv
from condvendi_jax.base import labelling
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference.errors import Groups, deal
from experiments.lab.curves import order_two_curves

KERNELS = {"output_kernel": cv.Gaussian(0.75), "prompt_kernel": cv.Gaussian(0.5)}
COSINES = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine()}
KEY = jax.random.key(0)
# Of unequal size: 17, 16 and 15 rows.
LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [17, 16, 15]))


def by_deletions(grams, order, truncation):
    """Busing, Meijer and van der Leeden (1999), for three groups of unequal sizes."""
    kept = [np.arange(N), *(np.flatnonzero(LABELS != group) for group in range(3))]
    parts = []
    for rows in kept:
        t = truncation and min(truncation, rows.size)
        rest = (gram[np.ix_(rows, rows)] for gram in grams)
        parts.append([*scores(*rest, order=order, truncation=t).values()])
    whole, *deleted = np.array(parts)
    h, deleted = N / np.bincount(LABELS)[:, None], np.array(deleted)
    centre = 3 * whole - np.sum((1 - 1 / h) * deleted, axis=0)
    pseudo = h * whole - (h - 1) * deleted
    return np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1), axis=0))


@pytest.mark.parametrize(
    ("order", "truncation"), [(0.5, None), (1, None), (1, 5), (1, 40), (2, None), (np.inf, 5)]
)
@pytest.mark.parametrize("kernels", [KERNELS, COSINES, None], ids=["gaussian", "dual", "alone"])
def test_errors_are_those_of_the_scores_of_the_rows_that_are_kept(order, truncation, kernels, x64):
    """31 to 33 rows are kept. Both cosine Grams and their product have fewer features."""
    pairs = draw_pairs(N, d_x=3, d_t=2)
    grams = map(cosine_gram, pairs) if kernels is COSINES else gaussian_grams(pairs, (0.75, 0.5))
    x, t = grams
    if kernels is None:
        kernels, pairs, t = {"output_kernel": cv.Gaussian(0.75)}, pairs[:1], np.ones((N, N))
    entropy, said = Entropy(order=order, truncation=truncation), []
    found = cv.inference.delete_groups(
        Pairs(*pairs, **kernels),
        entropy,
        Groups(LABELS, "given labels"),
        method=cv.Exact(),
        progress=said.append,
    )
    # At order 0.5 a mode is the root of its eigenvalue: so is what rounding leaves of it.
    rtol, atol = (1e-4, 1e-6) if order < 1 else (1e-8, 1e-12)
    expected = by_deletions((x, t), order, truncation)
    np.testing.assert_allclose(found.standard_errors, expected, rtol=rtol, atol=atol)
    errors = np.sqrt(np.mean(np.square(found.influences), axis=(1, 2)))
    np.testing.assert_allclose(errors, found.standard_errors, rtol=1e-12)
    assert len(said) == found.errors_by.groups == 3 and found.errors_by.method == "deletions"


def test_deletions_of_weighted_rows_are_those_of_copies(x64):
    copies = 1 + np.arange(N) % 3
    pairs = Pairs(*draw_pairs(N), **KERNELS, weights=copies)
    found = cv.inference.delete_groups(pairs, Entropy(1), Groups(LABELS, "given labels"))
    rows = Groups(np.repeat(LABELS, copies), "given labels")
    expected = cv.inference.delete_groups(pairs.repeated(), Entropy(1), rows)
    np.testing.assert_allclose(found.influences, expected.influences, rtol=1e-8)


@pytest.mark.slow
def test_errors_that_are_those_of_the_estimates_say_so():
    """All deletions of even points of a circle have one score: estimates show their noise."""
    angles = 2 * np.pi * np.arange(600) / 600
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    options = {"output_kernel": cv.Gaussian(0.02), "order": 1, "groups": np.arange(600) % 8}
    exact = errors_at(circle, **options, method=cv.Exact())
    with pytest.warns(UserWarning, match="error of vendi is mostly that of the estimated spectra"):
        method = cv.Stored(KEY, rtol=0.1)
        coarse = errors_at(circle, **options, method=method)
    assert coarse.vendi > 10 * exact.vendi


def test_groups_by_prompt_hold_together_and_are_even():
    kinds = np.repeat(np.arange(30), np.arange(30) % 4 + 1)
    groups = deal(6, KEY, kinds, np.ones(kinds.size, int))
    assert (groups.count, groups.units) == (6, "rows of one prompt")
    assert all(np.unique(groups.membership[kinds == prompt]).size == 1 for prompt in range(30))
    sizes = np.bincount(groups.membership)
    assert sizes.max() - sizes.min() <= 4
    other = deal(6, jax.random.key(1), kinds, np.ones(kinds.size, int))
    assert (groups.membership != other.membership).any()


@pytest.mark.parametrize("kinds", [np.zeros(20, int), np.arange(20)])
def test_rows_are_grouped_one_by_one_where_prompts_say_nothing(kinds):
    groups = deal(6, KEY, kinds, np.ones(20, int))
    assert (groups.count, groups.units) == (6, "rows")
    assert sorted(np.bincount(groups.membership)) == [3, 3, 3, 3, 4, 4]


def test_labels_need_no_key_and_may_be_words():
    numbers = np.arange(N) % 3
    words = np.array(["blue", "red", "green"])[numbers]
    errors = functools.partial(errors_at, OUTPUTS, PROMPTS, **KERNELS, order=2)
    one, two = errors(groups=numbers), errors(groups=words)
    assert_close(np.stack(one), np.array(two), loosened=10)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(N), "groups: expected two distinct labels or more, received one"),
        ([*np.arange(N - 1.0), np.nan], "groups: received NaN in row 47"),
    ],
)
def test_bad_labels_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        errors_at(OUTPUTS, PROMPTS, **KERNELS, groups=groups)


def test_errors_warn_of_a_truncation_beyond_n_and_not_of_one_beyond_the_deletions():
    options = {**KERNELS, "groups": 4}
    errors_at(OUTPUTS, PROMPTS, **options, truncation=N - 1)
    with pytest.warns(UserWarning, match="truncation 49 exceeds n = 48"):
        errors_at(OUTPUTS, PROMPTS, **options, truncation=N + 1)


def test_curves_of_order_two_are_those_of_separate_decompositions(x64):
    pairs = draw_pairs(N)
    found = order_two_curves(cv.Pairs(*pairs, **KERNELS), (1, 20))
    for entropies, unbiased in zip(found, (False, True), strict=True):
        first = cv.decompose(*(p[:20] for p in pairs), **KERNELS, order=2, unbiased=unbiased)
        assert_close(entropies[:, 1], np.stack(first.entropies))
    assert np.isnan(found[1][2, 0])


_KERNEL = {"output_kernel": cv.Gaussian(1.0)}
_UNTRACEABLE = {
    "evaluate": lambda x: cv.evaluate(x, **_KERNEL, orders=[2]).n,
    "compare": lambda x: cv.compare({"a": x, "b": x}, **_KERNEL, orders=[2]).groups,
    "bandwidth_by_rule": lambda x: cv.bandwidth_by_rule(x, "variance", key=KEY).bandwidth,
    "contributions": lambda x: cv.contributions(x, **_KERNEL).influences.vendi,
}


@pytest.mark.parametrize("name", _UNTRACEABLE)
def test_what_depends_on_numbers_says_so_inside_jit(name):
    with pytest.raises(TypeError, match=f"{name}: cannot run inside jax.jit, jax.vmap or jax.grad"):
        jax.jit(_UNTRACEABLE[name])(OUTPUTS)


def test_labels_that_a_common_dtype_would_make_equal_stay_apart():
    kinds, numbers = labelling.check_labels([2**53, 2**53 + 1, 0.5, np.int8(3)], 4)
    assert len(kinds) == 4
    assert numbers.tolist() == [2, 3, 0, 1]
    dates = np.array(["2026-01-02", "2026-01-01", "2026-01-02"], "M8[D]")
    assert labelling.check_labels(dates, 3)[1].tolist() == [1, 0, 1]
