"""Mixtures in the plane, their pairing, and the closed forms of Gaussian mixtures."""

import itertools

import jax
import numpy as np
import pytest
from gaussian_mixtures import GaussianMixture
from oracles import gaussian_gram

import condvendi_jax as cv
from experiments.generators.mixtures2d import columns, draw_pairs, match, mixture

pytestmark = pytest.mark.slow


def test_the_matching_is_the_least_of_all():
    generator = np.random.default_rng(0)
    for _ in range(5):
        outputs, prompts = generator.normal(size=(2, 6, 2))
        costs = np.linalg.norm(prompts[:, None] - outputs[None], axis=-1)
        totals = {
            order: costs[np.arange(6), order].sum() for order in itertools.permutations(range(6))
        }
        assert tuple(match(outputs, prompts)) == min(totals, key=totals.__getitem__)


def test_centres_are_in_two_columns_and_a_single_one_between_them():
    np.testing.assert_array_equal(columns(1.5, 2), [[-1.5, 0], [1.5, 0]])
    np.testing.assert_array_equal(columns(1.5, 3), [[-1.5, -1.5], [-1.5, 1.5], [1.5, 0]])
    np.testing.assert_array_equal(columns(1.5, 1), [[0, 0]])


def test_pairs_keep_every_point_and_its_component():
    key, outputs, prompts = jax.random.key(0), mixture(4, 4.0, 0.2), mixture(2, 4.0, 0.3)
    pairs = draw_pairs(outputs, prompts, key, 800)
    assert np.bincount(pairs.output_modes).tolist() == [200] * 4
    assert np.bincount(pairs.prompt_modes).tolist() == [400] * 2
    noise = pairs.outputs - outputs.centres[pairs.output_modes]
    np.testing.assert_allclose(np.cov(noise.T), 0.04 * np.eye(2), atol=0.01)
    further = mixture(4, 8.0, 0.2)
    moved = draw_pairs(further, mixture(2, 8.0, 0.3), key, 800)
    other = moved.outputs - further.centres[moved.output_modes]
    # The noise is the key's.
    np.testing.assert_allclose(np.sort(noise[:, 0]), np.sort(other[:, 0]), atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_gaussian_mixture_against_samples():
    """Closed-form RKE and Conditional-RKE against the U-statistic of a sample."""
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(2, 3, 3)) * 0.5
    mixture = GaussianMixture(
        rng.normal(size=(2, 3)), factors @ factors.transpose(0, 2, 1), [0.3, 0.7], d_x=2
    )
    n = 3000
    outputs, prompts = (np.asarray(part) for part in mixture.sample(jax.random.key(0), n))
    off = ~np.eye(n, dtype=bool)
    kx, kt = gaussian_gram(outputs, 0.8)[off] ** 2, gaussian_gram(prompts, 1.1)[off] ** 2
    exact = mixture.rke(kernel=cv.Gaussian(0.8))
    np.testing.assert_allclose(exact, 1 / kx.mean(), rtol=0.05)
    conditional = mixture.conditional_rke(
        output_kernel=cv.Gaussian(0.8), prompt_kernel=cv.Gaussian(1.1)
    )
    np.testing.assert_allclose(conditional, kt.mean() / (kx * kt).mean(), rtol=0.05)
