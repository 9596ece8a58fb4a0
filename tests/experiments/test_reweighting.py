"""Weights of largest entropy near equal weights, beside SciPy's optimiser in float64."""

import numpy as np
import pytest
from oracles import gaussian_gram
from scipy.optimize import minimize

import condvendi_jax as cv
from experiments.language_models.post_training import reweight

# Prompts of 4, 3 and 1 rows, in no order; in the first two, one row is unlike the others.
PROMPT = np.array([1, 0, 1, 2, 0, 1, 0, 1])
OUTPUTS = np.array([[0], [0], [0.1], [0.5], [0.2], [0.3], [1.5], [2]], "f4")
CENTRES = np.array([[0], [0.4], [1.5]], "f4")
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


@pytest.mark.parametrize("distance", [0.03, 5.0])
@pytest.mark.parametrize("name", CASES)
def test_entropy_is_the_largest_within_the_distance(name, distance, x64):
    (outputs, prompts, kernels), gram = CASES[name]
    same = np.unique(PROMPT)[:, None] == PROMPT if prompts is not None else np.ones((1, 8))
    weights = reweight(cv.Pairs(outputs, prompts, **kernels), distance=distance)
    np.testing.assert_allclose(same @ weights, same @ np.full(8, 1 / 8), rtol=1e-12)
    assert squared_distance(gram, weights) <= distance**2 * (1 + 1e-6)
    best = largest_entropy(gram, same.astype(float), distance**2)
    assert best - 3e-4 < entropy(gram, weights) < best + 1e-6
    assert best > entropy(gram, np.full(8, 1 / 8)) + 2e-3  # So that equal weights would fail.


def test_equal_rows_share_the_weight_of_one():
    pairs = cv.Pairs([[0], [0], [0], [1]], output_kernel=cv.Gaussian(0.1))
    weights = reweight(pairs, distance=1)
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 6, 1 / 2], rtol=1e-2)
