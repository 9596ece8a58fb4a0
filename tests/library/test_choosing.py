"""Choosing rows: brute force in NumPy, and what arguments do."""

import itertools

import canonical
import numpy as np
import pytest
from canonical import N
from oracles import assert_close, draw_pairs, gaussian_gram

import condvendi_jax as cv


def kernels(paired=True):
    return canonical.kernels((0.8, 0.6)[: 1 + paired])


def draw(n, *, kinds=None, seed=0):
    """Pairs, the prompts of `kinds` different ones, with the squared kernels above and below."""
    outputs, prompts = draw_pairs(n, seed=seed)
    if kinds is not None:
        prompts = prompts[np.arange(n) % kinds]
    of_prompts, squares = gaussian_gram(prompts, 0.6) ** 2, gaussian_gram(outputs, 0.8) ** 2
    sums = {"conditional": (of_prompts, of_prompts * squares), "vendi": (squares**0, squares)}
    return outputs, prompts, sums


def score_of(squares, rows):
    above, below = (of[np.ix_(rows, rows)].sum() for of in squares)
    return above / below


def objective(squares, rows, gains):
    return 1 / score_of(squares, rows) - np.mean(gains[list(rows)])


def greedy(squares, k, *, kinds, per_prompt, gains=None):
    """The rows, by the objectives of all sets that a step may lead to."""
    n = len(kinds)
    weights = 1 + 1e-4 * np.eye(n)
    above, below = (np.einsum("ni,ij,nj->n", weights, of, weights) for of in squares)
    rows = [int(np.argmax(above / below if gains is None else gains))]
    gains = np.zeros(n) if gains is None else gains
    while len(rows) < k:
        full = [i for i in range(n) if np.sum(kinds[rows] == kinds[i]) >= (per_prompt or n)]
        allowed = set(range(n)) - {*rows, *full}
        rows.append(min(allowed, key=lambda i: objective(squares, [*rows, i], gains)))
    return rows


@pytest.mark.parametrize(("per_prompt", "trade"), [(None, None), (2, None), (2, 0.03), (None, 0.3)])
def test_rows_are_those_of_a_greedy_search(per_prompt, trade, x64):
    outputs, prompts, squares = draw(N, kinds=6)
    quality = np.random.default_rng(2).normal(size=N)
    options = {} if trade is None else {"quality": quality, "trade": trade}
    options |= {"per_prompt": per_prompt, "k": 11}
    found = cv.select(outputs, prompts, **options, **kernels())
    allowed = {"kinds": np.arange(N) % 6, "per_prompt": per_prompt}
    gains = None if trade is None else trade * quality
    assert found.rows.tolist() == greedy(squares["conditional"], 11, **allowed, gains=gains)
    scores = [score_of(squares["conditional"], found.rows[: m + 1]) for m in range(11)]
    assert_close(found.scores, scores)
    assert np.isnan(found.gap)


@pytest.mark.parametrize("width", [2.0, 0.3], ids=["alike", "distinct"])
@pytest.mark.parametrize("trade", [None, 0, 0.3, 2.0])
def test_gap_bounds_what_the_best_rows_have_less(trade, width, x64):
    outputs, quality = draw_pairs(9, seed=4)[0], np.random.default_rng(5).normal(size=9)
    squares = np.ones((9, 9)), gaussian_gram(outputs, width) ** 2
    options = {} if trade is None else {"quality": quality, "trade": trade}
    chosen = cv.select(outputs, k=4, kernel=cv.Gaussian(width), **options)
    gains = (trade or 0) * quality
    if trade:
        expected = greedy(squares, 4, kinds=np.zeros(9), per_prompt=9, gains=gains)
        assert chosen.rows.tolist() == expected
    assert trade is None or chosen.rows[0] == quality.argmax()
    value = objective(squares, chosen.rows, gains)
    best = min(objective(squares, rows, gains) for rows in itertools.combinations(range(9), 4))
    assert 0 <= chosen.gap >= value - best - 1e-12
    means = squares[1][:, chosen.rows].mean(axis=1)
    plane = np.sort(2 * means - gains)[:4].mean() - means[chosen.rows].mean()
    assert_close(chosen.gap, value - max(plane, 1 / 4 - np.sort(gains)[-4:].mean()))


def test_quality_in_any_unit_and_dtype_gives_the_same_rows():
    outputs, quality = draw(N)[0].astype(np.float32), np.arange(N) % 8
    expected = cv.select(outputs, k=6, quality=quality, trade=0.25, **kernels(False)).rows
    worse = np.where(quality == 0, -1e9, quality)  # Rows that are not chosen.
    better = np.where(np.arange(N) == 7, 1e9, quality)  # The first row that is chosen.
    units = [(quality + 2.0**40, 1), (quality.astype("u1"), 1), (8.0 * quality, 8)]
    for same, unit in [(better, 1), (worse, 1), *units]:
        chosen = cv.select(outputs, k=6, quality=same, trade=0.25 / unit, **kernels(False))
        assert chosen.rows.tolist() == expected.tolist()
    assert not (expected == cv.select(outputs, k=6, **kernels(False)).rows).all()


def test_the_order_of_rows_matters_for_ties_alone(x64):
    outputs, _, squares = draw(N)
    order = np.random.default_rng(1).permutation(N)
    found, moved = (cv.select(x, k=N, **kernels(False)) for x in (outputs, outputs[order]))
    assert order[moved.rows].tolist() == found.rows.tolist()
    assert_close(found.scores[-1], score_of(squares["vendi"], range(N)))
    # Of equal rows the first is chosen; these kernel values are 0 and 1 exactly.
    tied = cv.select([[2], [1], [0], [0], [1]], k=4, kernel=cv.Gaussian(0.01))
    assert tied.rows.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 13}, "k: expected at most 12 rows, received 13"),
        ({"k": 0}, "k: expected an integer of at least 1, received 0"),
        ({"k": 2.0}, "k: expected an integer .* received 2.0"),
        ({"per_prompt": 0}, "per_prompt: expected an integer of at least 1"),
        ({"k": 9, "per_prompt": 2}, "k: expected at most 8 rows, at most 2 of each prompt"),
        ({"quality": [1] * 12}, "quality, trade: expected both or neither, received no trade"),
        ({"trade": 1}, "quality, trade: expected both or neither, received no quality"),
        ({"trade": 1, "quality": [1] * 11}, r"quality: expected 12 numbers.* shape \(11,\)"),
        ({"trade": 1, "quality": [np.nan] * 12}, "quality: expected finite numbers"),
        ({"trade": -1, "quality": [1] * 12}, "trade: expected a number of at least 0.* -1"),
        ({"trade": np.nan, "quality": [1] * 12}, "trade: expected a number of .* received nan"),
        ({"trade": 1e29, "quality": [0, 20] * 6}, "trade: .* below 1e30 over the range"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_refused(arguments, message):
    outputs, prompts = (a.astype(np.float32) for a in draw(12, kinds=4)[:2])
    with pytest.raises(ValueError, match=message):
        cv.select(outputs, prompts, **{"k": 3} | arguments, **kernels())
