"""The diffusion on mixtures: against NumPy, numerical integration and exact samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.generators import mixture_diffusion
from experiments.generators.mixture_diffusion import MIXTURES, mean_length

pytestmark = pytest.mark.slow

CENTRES = np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.5]])
WEIGHTS = np.array([[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]])
SPREAD = 0.5


def small():
    return mixture_diffusion.mixture(CENTRES, SPREAD, WEIGHTS)


def test_the_clean_prediction_is_the_posterior_mean_by_integration(x64):
    """E[x | z] as the ratio of two integrals over a fine grid of x."""
    axis = np.linspace(-5, 7, 601)
    x = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    latents = np.array([[0.3, -0.4], [1.2, 1.0], [-2.0, 2.0]])
    normal: Any = stats.multivariate_normal
    for time in (0.05, 0.4, 0.9):
        signal, noise = np.cos(np.pi / 2 * time), np.sin(np.pi / 2 * time)
        for prompt, weights in enumerate(WEIGHTS):
            density = sum(
                w * normal(c, SPREAD**2).pdf(x) for w, c in zip(weights, CENTRES, strict=True)
            )
            found = mixture_diffusion.clean_prediction(
                small(),
                jnp.asarray(latents),
                jnp.asarray(time),
                jnp.tile(jnp.eye(2)[prompt], (3, 1)),
            )
            for z, value in zip(latents, found, strict=True):
                likelihood = np.exp(-np.sum((z - signal * x) ** 2, axis=1) / (2 * noise**2))
                posterior = density * likelihood
                np.testing.assert_allclose(value, posterior @ x / posterior.sum(), rtol=1e-6)


def test_no_prompt_is_all_prompts_equally(x64):
    mixture = small()
    rows = jnp.stack([mixture.unconditional, mixture.prompts[1], jnp.array([0.5, 0.5])])
    expected = np.stack([WEIGHTS.mean(0), WEIGHTS[1], WEIGHTS.mean(0)])
    np.testing.assert_allclose(mixture.weights_of(rows), expected, atol=1e-15)


@pytest.mark.parametrize("name", MIXTURES)
def test_exact_samples_are_of_the_law(name):
    mixture = MIXTURES[name]()
    prompts = jnp.repeat(mixture.prompts, 3000, axis=0)
    drawn = np.asarray(mixture.sample(jax.random.key(1), prompts)).reshape(-1, 3000, 2)
    for prompt, points in enumerate(drawn):
        weights = np.asarray(mixture.weights[prompt])
        band = 4 * np.sqrt(weights * (1 - weights) / 3000) + 1e-3
        shares = mixture.shares(points, prompt)
        assert np.all(np.abs(shares - weights) <= band + 0.02 * weights)
        # Rayleigh's law beyond 3.
        assert 0.5 * np.exp(-4.5) < 1 - shares.sum() < 2 * np.exp(-4.5)
        # On average the distance of the law to itself is nought.
        values = [mixture.energy_distance(batch, prompt) for batch in points.reshape(100, 30, 2)]
        assert abs(np.mean(values)) < 4 * np.std(values, ddof=1) / 10


def test_the_mean_length_is_rices():
    found = mean_length(np.array([0.0, 0.7, 3.0, 200.0]), 0.8)
    between = stats.rice([0.7 / 0.8, 3 / 0.8], scale=0.8).mean()
    expected = [0.8 * np.sqrt(np.pi / 2), *between, 200 + 0.8**2 / 400]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_shares_by_hand():
    """The third component is of the second prompt alone: for the first its points are nowhere."""
    points = np.array([[0.0, 1.4], [0.0, -1.6], [2.0, 1.0], [-1.0, 2.5], [9.0, 9.0]])
    np.testing.assert_allclose(small().shares(points, 0), [0.2, 0.2, 0])
    np.testing.assert_allclose(small().shares(points, 1), [0.2, 0.2, 0.2])


def test_mixtures_are_what_they_say():
    shared, apart = MIXTURES["shared"](), MIXTURES["apart"]()
    np.testing.assert_allclose(shared.weights.mean(axis=0), 1 / 6, rtol=1e-6)
    np.testing.assert_array_equal(np.argmax(shared.weights, axis=1), np.arange(6))
    assert np.all(np.count_nonzero(apart.weights, axis=0) == 1)
    assert np.all(np.count_nonzero(apart.weights, axis=1) == 4)
