"""What a jackknife is made of: the scores without each group, by every method of having spectra."""

import functools

import jax
import numpy as np
import pytest
from canonical import N, errors_at, slow
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, gaussian_grams, scores

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy

KEY = jax.random.key(0)
GAUSSIANS = {"output_kernel": cv.Gaussian(0.75), "prompt_kernel": cv.Gaussian(0.5)}
COSINES = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine()}
# Of unequal size: 17, 16 and 15 rows.
LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [17, 16, 15]))


@pytest.mark.parametrize(
    ("order", "truncation"), [(0.5, None), (1, None), (1, 5), (np.inf, 5), slow(0.5, N)]
)
@pytest.mark.parametrize("kernels", [GAUSSIANS, COSINES, None], ids=["gaussian", "dual", "alone"])
def test_deletions_are_decompositions_of_the_rows_that_are_kept(order, truncation, kernels, x64):
    """31 to 33 rows are kept. Both cosine Grams and their product have fewer features."""
    pairs = draw_pairs(N, d_x=3, d_t=2)
    if kernels is None:
        kernels, pairs = {"output_kernel": cv.Gaussian(0.75)}, (pairs[0], None)
    entropy = Entropy(order=order, truncation=truncation)
    points = Pairs(*pairs, **kernels)
    groups = cv.inference.group_rows(N, LABELS)
    calls = []
    found = cv.inference.delete_groups(
        points, entropy, groups, method=cv.Exact(), progress=lambda: calls.append(1)
    )
    assert len(calls) == (4 if entropy.needs_spectrum else 1)
    kept = [np.arange(N), *(np.flatnonzero(groups.membership != g) for g in range(3))]
    for turn, rows in enumerate(kept):
        grams = _oracle_grams(*(None if p is None else p[rows] for p in pairs), kernels)
        fitted = None if truncation is None else min(truncation, len(rows))
        for name, score in scores(*grams, order=order, truncation=fitted).items():
            whole, deleted = getattr(found.decomposition, name), getattr(found.deleted, name)
            got = whole if turn == 0 else deleted[turn - 1]
            # At order 0.5 a mode is the root of its eigenvalue: so is what rounding leaves of it.
            assert_close(got, score, loosened=1e4 if order < 1 else 1)
    assert found.decomposition.estimation is None


def test_estimated_deletions_keep_all_eigenvalues_where_the_truncation_is_larger():
    """32 rows are left of 48: all their eigenvalues, not 40."""
    points = Pairs(*draw_pairs(N, dtype=np.float32), **GAUSSIANS)
    groups, entropy = cv.inference.group_rows(N, LABELS), Entropy(truncation=40)
    delete = functools.partial(cv.inference.delete_groups, points, entropy, groups)
    exact, estimated = (delete(method=m).deleted for m in (cv.Exact(), cv.Stored(KEY)))
    np.testing.assert_allclose(estimated, exact, rtol=1e-3)


def _oracle_grams(outputs, prompts, kernels):
    """Both Grams; without prompts, that of one prompt for all."""
    if prompts is None:
        return gaussian_gram(outputs, 0.75), np.ones((len(outputs), len(outputs)))
    if kernels is COSINES:
        return cosine_gram(outputs), cosine_gram(prompts)
    return gaussian_grams((outputs, prompts), (0.75, 0.5))


def test_wide_cosine_kernels_are_masked_as_matrices(x64):
    pairs = draw_pairs(N, d_x=40, d_t=30)
    points = Pairs(*pairs, **COSINES)
    groups = cv.inference.group_rows(N, LABELS)
    found = cv.inference.delete_groups(points, Entropy(), groups, method=cv.Exact())
    rows = groups.membership != 1
    expected = cv.decompose(*(p[rows] for p in pairs), **COSINES).scores
    for got, score in zip(found.deleted, expected, strict=True):
        assert_close(got[1], float(score))


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
    prompts = np.repeat(np.arange(30.0)[:, None], np.arange(30) % 4 + 1, axis=0)
    kinds = prompts[:, 0].astype(int)
    groups = cv.inference.group_rows(len(prompts), 6, key=KEY, kinds=kinds)
    assert (groups.count, groups.units) == (6, "rows of one prompt")
    for prompt in range(30):
        assert len(set(groups.membership[prompts[:, 0] == prompt])) == 1
    sizes = np.bincount(groups.membership)
    assert sizes.max() - sizes.min() <= 4
    assert_close(groups.fractions, sizes / len(prompts))
    other = cv.inference.group_rows(len(prompts), 6, key=jax.random.key(1), kinds=kinds)
    assert (groups.membership != other.membership).any()


@pytest.mark.parametrize("kinds", [np.zeros(20, int), np.arange(20), None])
def test_rows_are_grouped_one_by_one_where_prompts_say_nothing(kinds):
    groups = cv.inference.group_rows(20, 6, key=KEY, kinds=kinds)
    assert (groups.count, groups.units) == (6, "rows")
    assert sorted(np.bincount(groups.membership)) == [3, 3, 3, 3, 4, 4]
