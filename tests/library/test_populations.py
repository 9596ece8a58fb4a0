"""Populations against independent oracles: NumPy spectra and large samples."""

import jax
import numpy as np
import pytest
from oracles import gaussian_gram

import condvendi_jax as cv
from condvendi_jax.data.kernels import Gaussian
from condvendi_jax.scores.populations import FiniteSupport, GaussianMixture

pytestmark = pytest.mark.usefixtures("x64")


def _pairs():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5))
    return rng.normal(size=(5, 2)), rng.normal(size=(5, 3)), weights


def _kernels():
    return {"output_kernel": Gaussian(0.7), "prompt_kernel": Gaussian(1.3)}


def test_scores_are_those_of_points_repeated_by_their_weights():
    """Also for every order and truncation; and `vendi` alone without a prompt kernel."""
    x, t, _ = _pairs()
    counts = np.array([1, 2, 3, 4, 10])
    population = FiniteSupport(x, t, counts / 20)
    rows = np.repeat(np.arange(5), counts)
    joint = (gaussian_gram(x, 0.7) * gaussian_gram(t, 1.3))[np.ix_(rows, rows)] / 20
    expected = np.sort(np.linalg.eigvalsh(joint))[::-1][:5]
    np.testing.assert_allclose(population.spectrum(**_kernels()), expected, atol=1e-12)
    for options in ({"order": 0.5}, {}, {"order": 2}, {"truncation": 2}):
        exact = population.scores(**_kernels(), **options)
        found = cv.decompose(x[rows], t[rows], **_kernels(), **options)
        np.testing.assert_allclose(exact, found.scores, rtol=1e-6)
        alone = population.scores(output_kernel=Gaussian(0.7), **options)
        assert (alone.vendi, alone.conditional, alone.information) == (exact.vendi, None, None)


def test_scores_of_samples_approach_those_of_the_population():
    """Their bias and spread fall with n: at 2,000 draws they are below 2%."""
    population = FiniteSupport(*_pairs())
    outputs, prompts = population.sample(jax.random.key(3), 2000)
    found = cv.decompose(outputs, prompts, **_kernels(), order=2)
    np.testing.assert_allclose(found.scores, population.scores(**_kernels(), order=2), rtol=0.02)
    alone = FiniteSupport(_pairs()[0], weights=_pairs()[2]).sample(jax.random.key(3), 2000)
    np.testing.assert_array_equal(alone, outputs)


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
    kx, kt = gaussian_gram(outputs, 0.8)[off] ** 2, gaussian_gram(prompts, 1.1)[off] ** 2
    exact = mixture.rke(kernel=Gaussian(0.8))
    np.testing.assert_allclose(exact, 1 / kx.mean(), rtol=0.05)
    conditional = mixture.conditional_rke(output_kernel=Gaussian(0.8), prompt_kernel=Gaussian(1.1))
    np.testing.assert_allclose(conditional, kt.mean() / (kx * kt).mean(), rtol=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FiniteSupport(np.zeros((2, 1)), weights=[0.5, 0.6]), "weights"),
        (lambda: FiniteSupport(np.zeros((2, 1)), np.zeros((3, 1))), "prompts"),
        (
            lambda: FiniteSupport(np.zeros((2, 1))).spectrum(prompt_kernel=Gaussian(1.0)),
            "no prompts",
        ),
        (lambda: GaussianMixture([[0.0]], [0.1, 0.2]), "covariances"),
        (lambda: GaussianMixture([[0.0, 1.0]], [0.1], d_x=2), "d_x"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_gradients_reach_the_parameters():
    """Weights and positions may be traced."""

    def of_positions(separation):
        means = separation * np.array([[0.0], [1.0]])
        return GaussianMixture(means, [0.1, 0.2]).rke(kernel=Gaussian(0.5))

    def of_weights(first):
        weights = jax.numpy.stack([first, 1 - first])
        population = FiniteSupport([[0.0], [1.0]], weights=weights)
        return population.scores(output_kernel=Gaussian(0.5)).vendi

    for function, point in ((of_positions, 1.3), (of_weights, 0.3)):
        slope = (function(point + 1e-5) - function(point - 1e-5)) / 2e-5
        np.testing.assert_allclose(jax.grad(function)(point), slope, rtol=1e-6)
