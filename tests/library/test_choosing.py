"""Choosing rows: brute force in NumPy, and what arguments do."""

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
    of_prompts = gaussian_gram(prompts, 0.6) ** 2
    squares = gaussian_gram(outputs, 0.8) ** 2
    sums = {"conditional": (of_prompts, of_prompts * squares), "vendi": (squares**0, squares)}
    return outputs, prompts, sums


def score_of(squares, rows):
    above, below = (of[np.ix_(rows, rows)].sum() for of in squares)
    return above / below


def greedy(squares, k, *, kinds, per_prompt):
    """The rows, by the scores of all sets that a step may lead to."""
    n = len(kinds)
    weights = 1 + 1e-4 * np.eye(n)
    above, below = (np.einsum("ni,ij,nj->n", weights, of, weights) for of in squares)
    rows = [int(np.argmax(above / below))]
    while len(rows) < k:
        full = [i for i in range(n) if np.sum(kinds[rows] == kinds[i]) >= (per_prompt or n)]
        allowed = set(range(n)) - {*rows, *full}
        rows.append(max(allowed, key=lambda i: score_of(squares, [*rows, i])))
    return rows


@pytest.mark.parametrize("per_prompt", [None, 2])
def test_rows_are_those_of_a_greedy_search(per_prompt, x64):
    outputs, prompts, squares = draw(N, kinds=6)
    found = cv.select(outputs, prompts, k=11, per_prompt=per_prompt, **kernels())
    expected = greedy(squares["conditional"], 11, kinds=np.arange(N) % 6, per_prompt=per_prompt)
    assert found.rows.tolist() == expected
    scores = [score_of(squares["conditional"], found.rows[: m + 1]) for m in range(11)]
    assert_close(found.scores, scores)


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
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_refused(arguments, message):
    outputs, prompts = (a.astype(np.float32) for a in draw(12, kinds=4)[:2])
    with pytest.raises(ValueError, match=message):
        cv.select(outputs, prompts, **{"k": 3} | arguments, **kernels())
