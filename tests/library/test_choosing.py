"""Choosing rows: brute force in NumPy, optima, what arguments do."""

import itertools

import numpy as np
import pytest
from oracles import assert_close, draw_pairs, gaussian_gram

import condvendi_jax as cv
from experiments.data import load

N = 30


def kernels(paired=True):
    """In the precision of the test."""
    prompts = {"prompt_kernel": cv.Gaussian(0.6)} if paired else {}
    return {"output_kernel": cv.Gaussian(0.8)} | prompts


def draw(n, *, kinds=None, seed=0):
    """Pairs, the prompts of `kinds` different ones, with the squared kernels above and below."""
    outputs, prompts = draw_pairs(n, seed=seed)
    if kinds is not None:
        prompts = prompts[np.arange(n) % kinds]
    of_prompts = gaussian_gram(prompts, 0.6) ** 2
    squares = gaussian_gram(outputs, 0.8) ** 2
    sums = {"conditional": (of_prompts, of_prompts * squares), "vendi": (squares**0, squares)}
    return outputs, prompts, sums


def score_of(squares, rows):
    above, below = (of[np.ix_(rows, rows)].sum() for of in squares)
    return above / below


def greedy(squares, k, *, kinds, per_prompt, first):
    """The rows, by the scores of all sets that a step may lead to."""
    n = len(kinds)
    if first is None:
        weights = 1 + 1e-4 * np.eye(n)
        above, below = (np.einsum("ni,ij,nj->n", weights, of, weights) for of in squares)
        first = int(np.argmax(above / below))
    rows = [first]
    while len(rows) < k:
        full = [i for i in range(n) if np.sum(kinds[rows] == kinds[i]) >= (per_prompt or n)]
        allowed = set(range(n)) - {*rows, *full}
        rows.append(max(allowed, key=lambda i: score_of(squares, [*rows, i])))
    return rows


@pytest.mark.parametrize("score", ["conditional", "vendi"])
@pytest.mark.parametrize("per_prompt", [None, 2])
@pytest.mark.parametrize("first", [None, 7])
def test_rows_are_those_of_a_greedy_search(score, per_prompt, first, x64):
    outputs, prompts, squares = draw(N, kinds=6)
    limits = {"per_prompt": per_prompt, "first": first}
    found = cv.select(outputs, prompts, k=11, score=score, **limits, **kernels())
    expected = greedy(squares[score], 11, kinds=np.arange(N) % 6, **limits)
    assert found.rows.tolist() == expected
    assert_close(found.scores, [score_of(squares[score], found.rows[: m + 1]) for m in range(11)])


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
    ("score", "worst", "usual"), [("vendi", 0.94, 0.99), ("conditional", 0.75, 0.97)]
)
def test_greedy_sets_come_near_the_best_sets(score, worst, usual, x64):
    """Of 11 rows of 20 draws, against all sets of 3, 4 and 5 rows."""
    ratios = []
    for seed, k in itertools.product(range(20), (3, 4, 5)):
        outputs, prompts, squares = draw(11, seed=seed)
        found = cv.select(outputs, prompts, k=k, score=score, **kernels())
        best = max(score_of(squares[score], rows) for rows in itertools.combinations(range(11), k))
        ratios.append(found.scores[-1] / best)
    assert worst < min(ratios) < usual < np.mean(ratios) <= max(ratios) < 1 + 1e-9


def test_chosen_emoji_are_more_diverse_than_farthest_points_and_random_ones():
    emoji = load("emoji")
    outputs = emoji.outputs[emoji.labels["types"] == "animals-nature"]
    squares = gaussian_gram(outputs, 0.79) ** 2
    found = cv.select(outputs, k=30, kernel=cv.Gaussian(0.79))
    farthest = [int(found.rows[0])]
    while len(farthest) < 30:
        farthest.append(int(np.argmin(squares[farthest].max(axis=0))))
    drawn = np.random.default_rng(0).integers(len(outputs), size=(20, 30))
    other, *rest = (score_of((squares**0, squares), rows) for rows in (farthest, *drawn))
    assert found.scores[-1] > 1.05 * other > 1.2 * max(rest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 13}, "k: expected at most 12 rows, received 13"),
        ({"k": 0}, "k: expected an integer of at least 1, received 0"),
        ({"k": 2.0}, "k: expected an integer .* received 2.0"),
        ({"per_prompt": 0}, "per_prompt: expected an integer of at least 1"),
        ({"k": 9, "per_prompt": 2}, "k: expected at most 8 rows, at most 2 of each prompt"),
        ({"first": 12}, "first: expected a row number from 0 to 11, received 12"),
        ({"score": "information"}, "score: expected 'conditional' or 'vendi', received"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_refused(arguments, message):
    outputs, prompts = (a.astype(np.float32) for a in draw(12, kinds=4)[:2])
    with pytest.raises(ValueError, match=message):
        cv.select(outputs, prompts, **{"k": 3} | arguments, **kernels())
