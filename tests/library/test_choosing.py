"""Choosing rows and mixing models: brute force in NumPy, optima, what arguments do."""

import itertools
import math

import canonical
import numpy as np
import pytest
from canonical import N
from oracles import assert_close, draw_pairs, gaussian_gram

import condvendi_jax as cv


def kernels(paired=True):
    return canonical.kernels((0.8, 0.6)[: 1 + paired])


def named(models):
    return dict(zip("abc", models, strict=False))


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


@pytest.mark.parametrize("per_prompt", [None, 2])
@pytest.mark.parametrize("first", [None, 7])
def test_rows_are_those_of_a_greedy_search(per_prompt, first, x64):
    outputs, prompts, squares = draw(N, kinds=6)
    limits = {"per_prompt": per_prompt, "first": first}
    found = cv.select(outputs, prompts, k=11, **limits, **kernels())
    expected = greedy(squares["conditional"], 11, kinds=np.arange(N) % 6, **limits)
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
        ({"first": 12}, "first: expected a row number below 12, received 12"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_refused(arguments, message):
    outputs, prompts = (a.astype(np.float32) for a in draw(12, kinds=4)[:2])
    with pytest.raises(ValueError, match=message):
        cv.select(outputs, prompts, **{"k": 3} | arguments, **kernels())


def mixture_scores(models, prompts, weights, *, shared):
    """For weights `[w, m]`: from means over the pairs of rows that are not of one prompt."""
    m, n = len(models), len(models[0])
    squares = gaussian_gram(np.concatenate(models), 0.8) ** 2
    alone = prompts is None
    of_prompts = squares**0 if alone else gaussian_gram(np.concatenate(prompts), 0.6) ** 2
    of_row = np.arange(m * n) % n if shared else np.arange(m * n)
    apart = of_row[:, None] != of_row
    parts = (apart * of for of in (of_prompts, of_prompts * squares, 1))
    above, below, pairs = (of.reshape(m, n, m, n).sum(axis=(1, 3)) for of in parts)
    above, below = (np.einsum("wi,ij,wj->w", weights, of / pairs, weights) for of in (above, below))
    return above / below


@pytest.mark.parametrize("how", ["shared", "own", "alone"])
def test_no_mixture_on_a_fine_grid_is_better(how, x64):
    m, n, steps = (3, 5, 10) if how == "shared" else (2, 4, 200)
    rng = np.random.default_rng(3)
    prompts = list(rng.normal(size=(m, n, 2)))
    if how == "shared":
        prompts = prompts[:1] * m
    models = [centre + 0.4 * rng.normal(size=(n, 2)) for centre in range(m)]
    given = {"shared": prompts[0], "own": named(prompts), "alone": None}[how]
    found = cv.mixture(named(models), given, **kernels(how != "alone"))

    def scores(weights):
        of = None if how == "alone" else prompts
        return mixture_scores(models, of, np.array(weights), shared=how == "shared")

    if how == "shared":  # Copies of the prompts are the same prompts.
        copies = cv.mixture(named(models), named(prompts), **kernels())
        assert copies.weights == found.weights and copies.gain_error == found.gain_error
    weights = np.array([*found.weights.values()])
    grid = [w for w in itertools.product(range(steps + 1), repeat=m) if sum(w) == steps]
    assert math.isclose(weights.sum(), 1) and weights.min() >= 0
    assert found.gain > 0 and found.gain == found.score - max(found.model_scores.values())
    assert_close(found.score, scores([weights])[0])
    assert_close([*found.model_scores.values()], scores(np.eye(m)))
    assert found.score > scores(np.array(grid) / steps).max() - 1e-9
    moved = scores((1 - 1e-6) * weights + 1e-6 * np.eye(m))
    slopes = [*found.slopes.values()]
    np.testing.assert_allclose(slopes, (moved - found.score) / 1e-6, atol=1e-4)
    assert max(slopes) < 1e-6


def test_disjoint_models_are_mixed_equally_and_what_adds_nothing_is_left_out(x64):
    sharp = {"output_kernel": cv.Gaussian(0.1)}
    some = np.arange(40.0)[:, None] % 4
    found = cv.mixture({"a": some, "b": some + 4, "c": 0 * some}, **sharp)
    np.testing.assert_allclose([*found.weights.values()], [0.5, 0.5, 0], atol=1e-6)
    # Of 40 * 39 pairs of rows of one model 4 * 10 * 9 are equal, and of two models none.
    assert_close(found.score, 2 * (40 * 39) / (4 * 10 * 9))
    assert found.slopes["c"] < -0.9 and found.best == "a"
    assert "Weights: a 0.50, b 0.50\nGain over the best model, a: 4.33" in str(found)
    shared = {"prompts": np.arange(40.0)[:, None] % 5, **kernels()}
    near = some + 1e-3 * np.arange(2)  # A gain of 1e-6.
    for models, options in (([some + [0, 0], near], shared), ([some, 0 * some], sharp)):
        found = cv.mixture(named(models), **options)
        assert found.gain == found.gain_error == 0
        assert [*found.weights.values()] == [1, 0]
        assert str(found).splitlines()[1] == "No mixture is better than the best model, a."
    # Alone, a has the largest score. It answers another prompt: mixed with b or c it loses.
    models = named([some, some % 3 + 4, some % 3 + 7])
    prompts = named(0 * some + np.array([0, 1, 1])[:, None, None])
    options = {"prompt_kernel": cv.Gaussian(0.1), "groups": np.arange(40) // 4, **sharp}
    found = cv.mixture(models, prompts, **options)
    np.testing.assert_allclose([*found.weights.values()], [0, 0.5, 0.5], atol=1e-6)


def test_errors_are_those_of_deleted_groups_at_fixed_weights(x64):
    rng, labels = np.random.default_rng(0), np.arange(8) % 4
    prompts = rng.normal(size=(8, 2))
    models = [centre + 0.5 * rng.normal(size=(8, 2)) for centre in (0, 1)]
    found = cv.mixture(named(models), prompts, groups=labels, **kernels())
    assert (found.groups, found.units) == (4, "given labels")
    compared = np.array([[*found.weights.values()], np.eye(2)["ab".index(found.best)]])
    deleted = []
    for kept in (labels != group for group in range(4)):
        parts = [own[kept] for own in models], [prompts[kept]] * 2
        deleted.append(mixture_scores(*parts, compared, shared=True))
    of_mixture, of_best = np.array(deleted).T
    assert_close(found.standard_error, math.sqrt(3 * np.var(of_mixture)))
    assert_close(found.gain_error, math.sqrt(3 * np.var(of_mixture - of_best)))


def test_what_arguments_of_a_mixture_do():
    rng = np.random.default_rng(0)
    prompts = np.repeat(rng.normal(size=(N // 2, 2)), 2, axis=0).astype(np.float32)
    models = named([(prompts + s * rng.normal(size=(N, 2))).astype(np.float32) for s in (0.5, 1)])
    others = [{}, {"rule": "median"}, {"seed": 1}, {"groups": 5}, kernels()]
    results = [cv.mixture(models, prompts, **options) for options in others]
    assert len({result.standard_error for result in results}) == 5
    assert results[4].bandwidths["outputs"].bandwidth == pytest.approx(0.8)
    assert (results[0].name, results[0].units) == ("Conditional-RKE", "rows of one prompt")
    far = cv.mixture({"a": models["a"], "b": models["b"] + 1e4}, **kernels(False))
    assert_close(cv.rke(models["a"], **kernels(False), unbiased=True), far.model_scores["a"])
    with pytest.raises(ValueError, match="models: expected three outputs of each or more"):
        cv.mixture({"a": prompts[:2]}, prompts[:2], **kernels())
    two = np.arange(N, dtype=np.float32)[:, None] % 2
    with pytest.warns(UserWarning, match="2 distinct prompts in 2 groups give no standard errors"):
        assert math.isnan(cv.mixture(models, two, **kernels()).standard_error)
