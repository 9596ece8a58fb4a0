"""Mixtures of Gaussians against large samples."""

import jax
import numpy as np
import pytest
from oracles import gaussian_gram

from condvendi_jax.data.kernels import Gaussian
from experiments.generators.populations import GaussianMixture


@pytest.mark.slow
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
    exact = mixture.rke(kernel=Gaussian(0.8))
    np.testing.assert_allclose(exact, 1 / kx.mean(), rtol=0.05)
    conditional = mixture.conditional_rke(output_kernel=Gaussian(0.8), prompt_kernel=Gaussian(1.1))
    np.testing.assert_allclose(conditional, kt.mean() / (kx * kt).mean(), rtol=0.05)
