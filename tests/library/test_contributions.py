"""Contributions of rows: derivatives of the scores, deletions, sums by label; NumPy oracles."""

import math

import numpy as np
import precision
import pytest
from canonical import N, kernels, slow
from oracles import assert_close, draw_pairs, gaussian_gram, weighted_logs

import condvendi_jax as cv
from condvendi_jax.grams import sums
from condvendi_jax.spectra import pair_sums

ENTROPIES = [*({"order": order} for order in (1, 2, math.inf)), {"order": 1, "truncation": 7}]
ENTROPIES += [*(slow({"order": order}) for order in (0.5, 1.05, 3))]
ENTROPIES += [slow({"order": 2, "truncation": 5})]


def weighted_scores(outputs, prompts, weights, **options):
    x, t = gaussian_gram(outputs, 0.8), gaussian_gram(prompts, 0.6)
    return np.exp(weighted_logs((x, t, x * t), weights, **options))


@pytest.mark.parametrize("options", ENTROPIES, ids=str)
def test_influences_are_derivatives_in_the_weights_of_rows(options, x64):
    pairs, step = draw_pairs(N), 1e-4
    found = cv.contributions(*pairs, **kernels(), **options)
    assert_close(found.decomposition.scores, weighted_scores(*pairs, np.ones(N), **options))
    for row in (0, 17, N - 1):
        moved = step * (np.arange(N) == row)
        # Of fourth order in the step, which is so long that the rounding of the scores is small.
        expected = sum(
            share * weighted_scores(*pairs, 1 / N + steps * moved, **options) / (12 * step)
            for steps, share in ((-2, 1), (-1, -8), (1, 8), (2, -1))
        )
        np.testing.assert_allclose([of[row] for of in found.influences], expected, atol=1e-7)
    for influences in found.influences:
        assert abs(influences.mean()) < 1e-12 * N


@pytest.mark.slow
def test_row_sums_do_not_depend_on_the_tiles():
    outputs, prompts = draw_pairs(N - 7, dtype=np.float32)  # The last tile is padded.
    tiles = pair_sums.tiles_of(cv.Pairs(outputs, prompts, **kernels()))
    squares = [gaussian_gram(outputs, 0.8) ** 2, gaussian_gram(prompts, 0.6) ** 2]
    expected = np.stack([g.sum(axis=1) - 1 for g in (*squares, squares[0] * squares[1])])
    with precision.tiles(16):
        assert_close(sums.row_norms(tiles), expected)


def test_equal_rows_contribute_equally_and_labels_add_up():
    outputs, prompts = (np.repeat(a, 3, axis=0) for a in draw_pairs(16, dtype=np.float32))
    prompt = np.repeat(np.arange(16), 3)
    for order in (1, 2):
        found = cv.contributions(outputs, prompts, **kernels(), order=order)
        for influences in found.influences:
            assert np.ptp(influences.reshape(16, 3), axis=1).max() < 1e-3
        by_prompt = found.by(prompt)
        assert list(by_prompt) == list(range(16))
        for name, influences in zip(found.influences._fields, found.influences, strict=True):
            told = [getattr(of, name) for of in by_prompt.values()]
            np.testing.assert_allclose(told, influences.reshape(16, 3).sum(axis=1) / 48, atol=1e-6)
            assert abs(sum(told)) < 1e-4
    with pytest.raises(ValueError, match="labels: expected 48 labels, .* shape .47,."):
        found.by(prompt[1:])


def test_outputs_alone_have_no_information():
    outputs, _ = draw_pairs(N, dtype=np.float32)
    alone = cv.contributions(outputs, kernel=cv.Gaussian(0.8), order=2)
    np.testing.assert_array_equal(alone.influences.conditional, alone.influences.vendi)
    np.testing.assert_array_equal(alone.influences.information, 0)
    one = cv.contributions(outputs[:1], kernel=cv.Gaussian(0.8), order=2)
    assert one.influences.vendi == 0
