"""Scores at a smaller design, against brute force in NumPy over all subsets, and by simulation."""

import jax
import numpy as np
import pytest
from oracles import gaussian_gram, score_losses, weighted_logs

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import designs
from condvendi_jax.inference import errors as grouping
from condvendi_jax.inference.designs import at_design, design_of, slope
from condvendi_jax.inference.errors import Groups
from condvendi_jax.results.comparison import Design

EXACT = cv.Exact()
LABELS = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
WIDTH = 0.75


def floats(values):
    """In the precision of the test, which no warning is about."""
    return np.asarray(values, np.float64 if jax.config.jax_enable_x64 else np.float32)


def repeated(prompts, answers, *, seed=0, kernel=None):
    """Answers in the plane to each of some prompts, and their kernels."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(prompts, 1, 2)) + 0.5 * rng.normal(size=(prompts, answers, 2))
    labels = np.repeat(np.arange(float(prompts)), answers)[:, None]
    kernel = cv.Gaussian(WIDTH) if kernel is None else kernel
    arrays = floats(outputs.reshape(-1, 2)), floats(labels)
    return Pairs(*arrays, output_kernel=kernel, prompt_kernel=cv.Indicator())


def units_of(pairs):
    return grouping.group_models({"": pairs}, None)[0][""]


def grams_of(pairs, rows):
    """Of outputs, prompts and both, of some rows."""
    outputs, prompts = (np.asarray(array, np.float64)[rows] for array in pairs.arrays)
    x, t = gaussian_gram(outputs, WIDTH), (prompts == prompts.T).astype(float)
    return x, t, x * t


def scores_of(pairs, rows, order=1):
    return np.exp(weighted_logs(grams_of(pairs, rows), np.ones(len(rows)), order))


@pytest.mark.parametrize(
    "prompts, weights, expected",
    [
        ([0, 0, 1, 1, 2, 2], None, (3, 2)),
        ([0, 1, 2, 0, 1, 2, 2], None, (3, 2)),
        ([0, 0, 0, 1, 1, 2], None, (2, 2)),
        ([0, 0, 1, 2, 3], None, (5, 1)),
        ([0, 1, 2, 3], None, (4, 1)),
        ([0, 0, 0, 0], None, (4, 1)),
        ([0, 1, 2], [3, 2, 4], (3, 2)),
        ([0, 1, 2], [0.5, 0.5, 0.5], (3, 1)),
        ([0, 0, 1], [0.5, 0.5, 0.7], None),
    ],
)
@pytest.mark.filterwarnings("ignore:.*numerically the identity")
def test_design_counts_prompts_and_answers(prompts, weights, expected):
    rows = np.array(prompts, np.float32)[:, None]
    weights = None if weights is None else np.array(weights)
    pairs = Pairs(0 * rows, rows, **LABELS, weights=weights)
    assert design_of(pairs) == expected


def test_common_design_is_the_smallest_in_both_numbers():
    models = {"a": repeated(4, 5), "b": repeated(6, 3)}
    assert designs.Common.of(models).design == (4, 3)
    rows = np.zeros((3, 1), np.float32)
    models["c"] = Pairs(rows, rows, **LABELS, weights=np.array([0.1, 0.2, 0.3]))
    assert designs.Common.of(models).design is None


def standard_errors(found):
    return [error.standard_error for error in found.errors]


@pytest.mark.parametrize(("at", "order"), [((8, 4), 1), ((8, 2), 2), ((6, 3), 1), ((6, 3), 3)])
def test_scores_are_means_over_subsets_and_errors_from_the_mean_deletion(at, order, x64):
    """At order 3, where influences of 8 prompts would be too few, the scores are computed again."""
    pairs, count = repeated(8, 4), 8
    alone, other = (
        at_design(pairs, Entropy(order), EXACT, None, Design(*at), seed=seed) for seed in (3, 1)
    )
    found = at_design(pairs, Entropy(order), EXACT, units_of(pairs), Design(*at), seed=3)
    chosen = designs._subsets(designs._rows_by_prompt(pairs), Design(*at), 3)
    assert (len(chosen) == 1) == (at == (8, 4)) == (alone.scores == other.scores)
    expected, scores = np.zeros((3, count)), []
    for rows in chosen:
        prompts, of_row = np.unique(rows // 4, return_inverse=True)
        scores.append(scores_of(pairs, rows, order))
        if order < 3:
            own = score_losses(grams_of(pairs, rows), np.ones(rows.size), of_row, order).T
        else:  # The usual jackknife of the score itself, `(G - 1) (mean - without) / G`.
            without = [scores_of(pairs, rows[of_row != p], order) for p in range(at[0])]
            own = (at[0] - 1) / at[0] * (np.mean(without, axis=0) - without).T
        expected[:, prompts] += own / len(chosen)
    # Deviations from the mean of m prompts are too small by (m - 1) / m, of all by (G - 1) / G.
    expected *= at[0] / (at[0] - 1) * (count - 1) / count
    errors = np.sqrt(count / (count - 1) * np.sum(expected**2, axis=1))
    np.testing.assert_allclose(found.scores, np.mean(scores, axis=0), rtol=1e-9)
    np.testing.assert_allclose(standard_errors(found), errors, rtol=1e-6)
    np.testing.assert_allclose(alone.scores, found.scores, rtol=1e-9)
    assert alone.errors is alone.intervals is None


@pytest.mark.parametrize("at", [(6, 2), (3, 4), (3, 2), (6, 3), (5, 4)])
def test_every_answer_is_used_about_equally_often(at):
    rows = list(np.arange(24).reshape(6, 4))
    chosen = designs._subsets(rows, Design(*at), 0)
    assert all(np.unique(of).size == np.prod(at) == of.size for of in chosen)
    assert all({*np.unique(of // 4, return_counts=True)[1]} == {at[1]} for of in chosen)
    assert all(np.unique(of // 4).size == at[0] for of in chosen)
    counts = np.bincount(np.concatenate(chosen), minlength=24)
    assert counts.min() >= 1 and counts.max() - counts.min() <= 1


@pytest.mark.parametrize(
    ("prompts", "answers", "subsets"), [(2, 1, 64), (10, 3, 20), (99, 3, 4), (10, 1, 60)]
)
def test_subsets_use_every_answer_twice_where_4_to_64_do(prompts, answers, subsets):
    """Of 300 answers to 100 prompts; 600 / (prompts x answers), up to the next integer."""
    every = list(np.arange(300).reshape(100, 3))
    chosen = designs._subsets(every, Design(prompts, answers), 0)
    assert chosen.shape == (subsets, prompts * answers)


def test_copies_of_a_row_are_rows_of_their_own(x64):
    outputs, copies = np.random.default_rng(0).normal(size=(30, 2)), 1 + np.arange(30) % 3
    pairs = Pairs(outputs, output_kernel=cv.Gaussian(WIDTH), weights=copies)
    models = (pairs, pairs.repeated())
    found, expected = (
        at_design(of, Entropy(), EXACT, units_of(of), Design(60, 1)) for of in models
    )
    np.testing.assert_allclose(standard_errors(found), standard_errors(expected), rtol=1e-9)


def test_unequal_numbers_of_answers_become_equal(x64):
    counts = np.array([2, 5, 3, 4, 1, 2])
    outputs = np.random.default_rng(0).normal(size=(counts.sum(), 2))
    prompts = np.repeat(np.arange(6.0), counts)[:, None]
    kernels = {"output_kernel": cv.Gaussian(WIDTH), "prompt_kernel": cv.Indicator()}
    pairs = Pairs(outputs, prompts, **kernels)
    assert design_of(pairs) == (5, 2)
    found = at_design(pairs, Entropy(), EXACT, units_of(pairs), Design(5, 2))
    influences = found.errors.vendi.influences
    assert influences.shape == (1, 6)
    assert np.flatnonzero(influences[0] == 0).tolist() == [4]  # It has one answer.
    rows = designs._subsets(designs._rows_by_prompt(pairs), Design(5, 2), 0)
    expected = np.mean([scores_of(pairs, of) for of in rows], axis=0)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-9)


def test_estimated_spectra_give_errors_and_intervals():
    outputs = floats(np.random.default_rng(0).normal(size=(200, 2)))
    pairs, at = Pairs(outputs, output_kernel=cv.Gaussian(1.5)), Design(100, 1)
    methods = EXACT, cv.Stored(jax.random.key(0))
    exact, estimated = (at_design(pairs, Entropy(), of, units_of(pairs), at) for of in methods)
    assert estimated.scores.vendi == pytest.approx(exact.scores.vendi, rel=0.01)
    assert standard_errors(estimated)[0] == pytest.approx(standard_errors(exact)[0], rel=0.1)
    low, high = estimated.intervals.vendi
    assert low < estimated.scores.vendi < high


def test_groups_of_prompts_are_units(x64):
    pairs, labels = repeated(8, 3), np.repeat(np.arange(4), 6)
    found = at_design(pairs, Entropy(3), EXACT, Groups(labels, "given labels"), Design(8, 2))
    assert found.errors.conditional.influences.shape == (1, 4)
    assert np.isfinite(standard_errors(found)).all()
    every = at_design(pairs, Entropy(3), EXACT, units_of(pairs), Design(8, 2))
    assert abs(standard_errors(found)[0] / standard_errors(every)[0] - 1) > 0.02


def test_errors_are_withheld_where_derivatives_make_them_too_small():
    rng = np.random.default_rng(0)
    pairs = Pairs(floats(rng.normal(size=(120, 9))), output_kernel=cv.Gaussian(0.5))
    found = at_design(pairs, Entropy(1.5), EXACT, units_of(pairs), Design(60, 1))
    assert np.isnan(standard_errors(found)[0]) and np.isfinite(found.scores.vendi)
    groups = Groups(np.arange(120) % 10, "given labels")
    found = at_design(pairs, Entropy(1.5), EXACT, groups, Design(60, 1))
    assert found.errors.vendi.influences.shape == (1, 10) and standard_errors(found)[0] > 0


def test_truncation_above_a_subset_keeps_all_eigenvalues():
    pairs = repeated(4, 4)
    one, two = (at_design(pairs, Entropy(1, t), EXACT, None, Design(4, 2)) for t in (8, 12))
    np.testing.assert_allclose(one.scores, two.scores, rtol=1e-6)


def test_designs_beyond_that_of_the_model_are_refused():
    for at in ((5, 4), (4, 5), (0, 1), (4, 0)):
        with pytest.raises(ValueError, match="expected a design of at most"):
            at_design(repeated(4, 4), Entropy(), EXACT, None, Design(*at))
    outputs = np.zeros((3, 1), np.float32)
    pairs = Pairs(outputs, output_kernel=cv.Indicator(), weights=np.array([0.1, 0.2, 0.3]))
    with pytest.raises(ValueError, match="at most None"):
        at_design(pairs, Entropy(), EXACT, None, Design(2, 1))
    assert slope(pairs, Entropy(), EXACT, cv.decompose(pairs).scores) is None


@pytest.mark.parametrize("n", [8, 5])
@pytest.mark.filterwarnings("ignore:.*numerically the identity")
def test_slope_of_answers_that_all_differ_is_half_their_number(n):
    pairs = Pairs(floats(np.arange(n))[:, None], output_kernel=cv.Indicator())
    grown = slope(pairs, Entropy(), EXACT, cv.decompose(pairs).scores)
    assert grown.vendi == pytest.approx(n / 2, rel=1e-5)


def test_slope_is_seeded_and_of_halves_of_each_prompt():
    pairs = repeated(6, 4)
    scores = cv.decompose(pairs).scores
    one, two = (slope(pairs, Entropy(), EXACT, scores, seed=seed) for seed in (0, 1))
    assert one.vendi != two.vendi
    half = np.array(scores) - one
    assert half[0] / half[1] == pytest.approx(half[2], rel=0.05)  # Six prompts in each half.
