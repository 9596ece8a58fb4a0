"""Weights of largest entropy near equal weights, beside SciPy's optimiser in float64."""

import math

import numpy as np
import pytest
from oracles import gaussian_gram
from scipy.optimize import minimize

import condvendi_jax as cv

# Prompts of 4, 3 and 1 rows, in no order; in the first two, one row is unlike the others.
PROMPT = np.array([1, 0, 1, 2, 0, 1, 0, 1])
OUTPUTS = np.float32([[0], [0], [0.1], [0.5], [0.2], [0.3], [1.5], [2]])
CENTRES = np.float32([[0], [0.4], [1.5]])
GRAM = gaussian_gram(OUTPUTS, 0.8)
SAME = (PROMPT[:, None] == PROMPT).astype(float)
KERNELS = {"output_kernel": cv.Gaussian(0.8)}
CASES = {
    "similar prompts": (
        (OUTPUTS, CENTRES[PROMPT], {**KERNELS, "prompt_kernel": cv.Gaussian(0.6)}),
        GRAM * gaussian_gram(CENTRES[PROMPT], 0.6),
    ),
    "equal or different prompts": ((OUTPUTS, PROMPT, KERNELS), GRAM * SAME),
    "no prompts": ((OUTPUTS, None, KERNELS), GRAM),
}


def entropy(gram, weights):
    roots = np.sqrt(np.maximum(weights, 0))
    values = np.linalg.eigvalsh(gram * roots[:, None] * roots)
    values = values[values > 1e-300]
    return -np.sum(values * np.log(values))


def squared_distance(gram, weights):
    moved = weights - 1 / 8
    return moved @ gram @ moved


def largest_entropy(gram, same, limit):
    equal = {"type": "eq", "fun": lambda w: same @ (w - 1 / 8)}
    near = {"type": "ineq", "fun": lambda w: 100 * (limit - squared_distance(gram, w))}
    found = minimize(
        lambda w: -entropy(gram, w),
        np.full(8, 1 / 8),
        method="SLSQP",
        bounds=[(1e-9, 1)] * 8,
        constraints=[equal, near],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert squared_distance(gram, found.x) <= limit * (1 + 1e-6)
    return -found.fun


@pytest.mark.parametrize("distance", [0.03, 0.06, 5.0])
@pytest.mark.parametrize("name", CASES)
def test_entropy_is_the_largest_within_the_distance(name, distance, x64):
    (outputs, prompts, kernels), gram = CASES[name]
    same = np.unique(PROMPT)[:, None] == PROMPT if prompts is not None else np.ones((1, 8))
    weights = cv.reweight(outputs, prompts, distance=distance, **kernels)
    np.testing.assert_allclose(same @ weights, same @ np.full(8, 1 / 8), rtol=1e-12)
    assert squared_distance(gram, weights) <= distance**2 * (1 + 1e-6)
    best = largest_entropy(gram, same.astype(float), distance**2)
    assert best - 3e-4 < entropy(gram, weights) < best + 1e-6
    assert best > entropy(gram, np.full(8, 1 / 8)) + 2e-3  # So that equal weights would fail.


@pytest.mark.parametrize("name", CASES)
def test_kkt_conditions_bound_the_distance_to_the_optimum(name, x64):
    """The gap of the Lagrangian at the multiplier that fits best, by numerical derivatives."""
    (outputs, prompts, kernels), gram = CASES[name]
    members = [PROMPT == k for k in range(3)] if prompts is not None else [np.full(8, True)]
    weights, step = cv.reweight(outputs, prompts, distance=0.03, **kernels), 1e-7
    moves = step * np.eye(8)
    rising = [entropy(gram, weights + of) - entropy(gram, weights - of) for of in moves]
    rising, away = np.array(rising) / (2 * step), 2 * gram @ (weights - 1 / 8)
    for of in members:
        rising[of] -= weights[of] @ rising[of] / weights[of].sum()
        away[of] -= weights[of] @ away[of] / weights[of].sum()
    multiplier = (weights * away) @ rising / ((weights * away) @ away)
    slopes = rising - multiplier * away
    assert multiplier > 0.1
    assert sum(weights[of].sum() * slopes[of].max() for of in members) < 2e-3
    np.testing.assert_allclose(squared_distance(gram, weights), 0.03**2, rtol=0.05)


def test_scores_that_take_the_weights_rise_with_the_distance(x64):
    found = [None, *(cv.reweight(OUTPUTS, PROMPT, distance=of, **KERNELS) for of in (0.03, 0.06))]
    scores = [cv.decompose(OUTPUTS, PROMPT, weights=of, **KERNELS).conditional for of in found]
    assert scores[2] > 1.01 * scores[1] > 1.02 * scores[0]
    assert found[2][PROMPT == 2].item() == pytest.approx(1 / 8)  # A single output.


def test_equal_rows_share_the_weight_of_one():
    weights = cv.reweight([[0], [0], [0], [1]], kernel=cv.Gaussian(0.1), distance=1)
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 6, 1 / 2], rtol=1e-2)


@pytest.mark.parametrize("distance", [0, -1.0, math.nan, math.inf, "near", None])
def test_distance_is_a_number_above_zero(distance):
    with pytest.raises(ValueError, match="distance: expected a finite number above 0, received"):
        cv.reweight(OUTPUTS, distance=distance, **KERNELS)


def test_weighted_data_are_refused():
    with pytest.raises(ValueError, match="weights: received some, and data to reweight have none"):
        cv.reweight(OUTPUTS, distance=0.1, weights=np.arange(1, 9), **KERNELS)
