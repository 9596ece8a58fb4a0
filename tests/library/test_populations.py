"""Populations against independent oracles: NumPy spectra, quadrature and large samples."""

import jax
import numpy as np
import pytest
from scipy import integrate

from condvendi_jax.kernels import Gaussian
from condvendi_jax.testing._populations import (
    Exponential,
    FiniteSupport,
    GaussianMixture,
    Uniform,
)

pytestmark = pytest.mark.usefixtures("x64")


def _gram(points, bandwidth):
    distances = np.sum((points[:, None] - points[None]) ** 2, axis=-1)
    return np.exp(-distances / (2 * bandwidth**2))


def _pairs():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5))
    return rng.normal(size=(5, 2)), rng.normal(size=(5, 3)), weights


def test_spectrum_is_that_of_the_infinite_sample():
    """Repeating each atom by its (rational) weight gives the population's Gram."""
    x, t, _ = _pairs()
    counts = np.array([1, 2, 3, 4, 10])
    population = FiniteSupport(x, t, counts / 20)
    index = np.repeat(np.arange(5), counts)
    dense = (_gram(x, 0.7) * _gram(t, 1.3))[np.ix_(index, index)] / 20
    expected = np.sort(np.linalg.eigvalsh(dense))[::-1][:5]
    got = population.spectrum(output_kernel=Gaussian(0.7), prompt_kernel=Gaussian(1.3))
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_finite_support_scores():
    """The order-2 scores are ratios of mean squared kernels."""
    x, t, w = _pairs()
    population = FiniteSupport(x, t, w)
    kx, kt = _gram(x, 0.7) ** 2, _gram(t, 1.3) ** 2
    kernels = {"output_kernel": Gaussian(0.7), "prompt_kernel": Gaussian(1.3)}
    conditional = population.conditional_vendi(**kernels, order=2)
    np.testing.assert_allclose(population.rke(kernel=Gaussian(0.7)), 1 / (w @ kx @ w))
    np.testing.assert_allclose(conditional, (w @ kt @ w) / (w @ (kx * kt) @ w))
    for order in (0.5, 1, 2, np.inf):
        product = population.conditional_vendi(
            **kernels, order=order
        ) * population.information_vendi(**kernels, order=order)
        np.testing.assert_allclose(product, population.vendi(kernel=Gaussian(0.7), order=order))


@pytest.mark.slow
def test_frequencies_agree_with_samples():
    """A sample's frequencies under the same key are those of its points."""
    x, t, w = _pairs()
    population = FiniteSupport(x, t, w)
    key = jax.random.key(3)
    outputs, prompts = population.sample(key, 400)
    frequencies = population.frequencies(key, 400)
    for i in range(5):
        assert np.isclose(np.mean(np.all(np.asarray(outputs) == x[i], axis=1)), frequencies[i])
        assert np.isclose(np.mean(np.all(np.asarray(prompts) == t[i], axis=1)), frequencies[i])
    reweighted = population.reweighted(frequencies)
    np.testing.assert_allclose(reweighted.weights, frequencies)


def test_truncation_and_order_matter():
    """Each argument of the entropy changes it, and a full truncation does not."""
    x, t, w = _pairs()
    kernels = {"output_kernel": Gaussian(0.7), "prompt_kernel": Gaussian(1.3)}
    population = FiniteSupport(x, t, w)
    values = [population.conditional_vendi(**kernels, truncation=t) for t in (5, 2)]
    np.testing.assert_allclose(values[0], population.conditional_vendi(**kernels))
    assert abs(values[1] - values[0]) > 1e-3
    assert population.vendi(kernel=Gaussian(0.7), order=2) < population.vendi(kernel=Gaussian(0.7))


@pytest.mark.slow
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
    kx, kt = _gram(outputs, 0.8)[off] ** 2, _gram(prompts, 1.1)[off] ** 2
    exact = mixture.rke(kernel=Gaussian(0.8))
    np.testing.assert_allclose(exact, 1 / kx.mean(), rtol=0.05)
    conditional = mixture.conditional_rke(output_kernel=Gaussian(0.8), prompt_kernel=Gaussian(1.1))
    np.testing.assert_allclose(conditional, kt.mean() / (kx * kt).mean(), rtol=0.05)


@pytest.mark.slow
def test_isotropic_is_a_special_covariance():
    """A variance and its multiple of the identity give one answer; the bandwidth matters."""
    means = [[0.0, 0.0], [2.0, 1.0]]
    plain = GaussianMixture(means, [0.1, 0.4])
    full = GaussianMixture(means, [0.1 * np.eye(2), 0.4 * np.eye(2)])
    np.testing.assert_allclose(plain.rke(kernel=Gaussian(0.5)), full.rke(kernel=Gaussian(0.5)))
    assert plain.rke(kernel=Gaussian(0.5)) > 1.2 * plain.rke(kernel=Gaussian(1.0))


@pytest.mark.parametrize("bandwidth", [0.05, 0.6, 4.0])
def test_uniform_and_exponential_against_quadrature(bandwidth):
    """One-dimensional closed forms against the density of the difference of two draws."""

    def kernel(z):
        return np.exp(-((z / bandwidth) ** 2))

    uniform = integrate.quad(
        lambda z: 2 * (3 - z) / 9 * kernel(z), 0, 3, points=[min(bandwidth, 3)]
    )[0]
    exact = Uniform([-1.0], [2.0]).rke(kernel=Gaussian(bandwidth))
    np.testing.assert_allclose(exact, 1 / uniform, rtol=1e-8)
    end = 40 * bandwidth
    exponential = integrate.quad(lambda z: 1.5 * np.exp(-1.5 * z) * kernel(z), 0, end, limit=200)[0]
    exact = Exponential([1.5]).rke(kernel=Gaussian(bandwidth))
    np.testing.assert_allclose(exact, 1 / exponential, rtol=1e-8)


@pytest.mark.parametrize(
    "population",
    [
        lambda: GaussianMixture([[0.0, 0.0], [1.0, 0.0]], [0.2, 0.3]),
        lambda: Uniform([0.0, 0.0], [1.0, 2.0]),
        lambda: Exponential([1.0, 2.0]),
    ],
    ids=["mixture", "uniform", "exponential"],
)
def test_small_bandwidth_gives_the_collision_density(population):
    """E[k^2] -> (sqrt(pi) bandwidth)^d times the integral of the squared density."""
    population = population()
    bandwidth = 1e-3
    scaled = 1 / population.rke(kernel=Gaussian(bandwidth)) / (np.pi * bandwidth**2)
    np.testing.assert_allclose(scaled, population.collision_density(), rtol=5e-3)


@pytest.mark.slow
def test_sample_means():
    """Samples have the population's mean, and another key draws another sample."""
    for population, mean in (
        (Uniform([0.0, 1.0], [1.0, 5.0]), [0.5, 3.0]),
        (Exponential([1.0, 4.0]), [1.0, 0.25]),
        (GaussianMixture([[1.0], [3.0]], [0.1, 0.1], [0.25, 0.75]), [2.5]),
    ):
        draws = population.sample(jax.random.key(0), 20000)
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.04)
        assert not np.allclose(draws[:5], population.sample(jax.random.key(1), 5))


def test_bad_input_is_named():
    """Every refusal says what was received."""
    with pytest.raises(ValueError, match="weights"):
        FiniteSupport(np.zeros((2, 1)), weights=[0.5, 0.6])
    with pytest.raises(ValueError, match="prompts"):
        FiniteSupport(np.zeros((2, 1)), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="no prompts"):
        FiniteSupport(np.zeros((2, 1))).spectrum(prompt_kernel=Gaussian(1.0))
    with pytest.raises(ValueError, match="covariances"):
        GaussianMixture([[0.0]], [0.1, 0.2])
    with pytest.raises(ValueError, match="d_x"):
        GaussianMixture([[0.0, 1.0]], [0.1], d_x=2)
    with pytest.raises(ValueError, match="low < high"):
        Uniform([1.0], [0.0])
    with pytest.raises(ValueError, match="above 0"):
        Exponential([0.0])


def test_gradients_reach_the_parameters():
    """Weights and positions may be traced: d RKE / d separation agrees with differences."""

    def score(separation):
        return GaussianMixture(separation * np.array([[0.0], [1.0]]), [0.1, 0.2]).rke(
            kernel=Gaussian(0.5)
        )

    def weighted(first):
        weights = jax.numpy.stack([first, 1 - first])
        return FiniteSupport([[0.0], [1.0]], weights=weights).vendi(kernel=Gaussian(0.5))

    for function, point in ((score, 1.3), (weighted, 0.3)):
        slope = (function(point + 1e-5) - function(point - 1e-5)) / 2e-5
        np.testing.assert_allclose(jax.grad(function)(point), slope, rtol=1e-6)
