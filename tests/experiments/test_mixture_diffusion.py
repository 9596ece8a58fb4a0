"""The diffusion on mixtures: against NumPy, numerical integration and exact samples."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import condvendi_jax as cv
from experiments.generators import diffusion, mixture_diffusion
from experiments.generators.mixture_diffusion import MIXTURES, PromptedMixture, mean_length

pytestmark = pytest.mark.slow

CENTRES = np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.5]])
WEIGHTS = np.array([[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]])
SPREAD = 0.5


def small():
    return PromptedMixture(jnp.asarray(CENTRES), jnp.asarray(SPREAD), jnp.asarray(WEIGHTS))


@functools.cache
def drawn(name, solver, steps):
    """3,000 samples of every prompt by a solver, or of the law itself."""
    mixture = MIXTURES[name]()
    prompts = jnp.repeat(mixture.prompts, 3000, axis=0)
    key = jax.random.key(1)
    if solver == "exact":
        points = mixture.sample(key, prompts)
    else:
        points, _ = diffusion.sample(
            mixture.denoise, key, prompts, shape=(2,), steps=steps, solver=solver
        )
    return np.asarray(points).reshape(len(mixture.weights), 3000, 2)


def test_the_clean_prediction_is_the_posterior_mean_by_integration(x64):
    """E[x | z] as the ratio of two integrals over a fine grid of x."""
    axis = np.linspace(-5, 7, 601)
    x = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    latents = np.array([[0.3, -0.4], [1.2, 1.0], [-2.0, 2.0]])
    for time in (0.05, 0.4, 0.9):
        signal, noise = np.cos(np.pi / 2 * time), np.sin(np.pi / 2 * time)
        for prompt, weights in enumerate(WEIGHTS):
            density = sum(
                w * stats.multivariate_normal(c, SPREAD**2).pdf(x)
                for w, c in zip(weights, CENTRES, strict=True)
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


def test_the_clean_prediction_is_tweedies(x64):
    """(z + sigma^2 grad log p_t(z)) / alpha, the gradient by central differences in NumPy."""
    time, z = 0.3, np.array([0.8, 0.6])
    signal, noise = np.cos(np.pi / 2 * time), np.sin(np.pi / 2 * time)
    variance = signal**2 * SPREAD**2 + noise**2

    def log_density(point):
        away = np.sum((point - signal * CENTRES) ** 2, axis=1)
        return np.log(WEIGHTS[0] @ np.exp(-away / (2 * variance)))

    step = 1e-5
    slope = [
        (log_density(z + step * e) - log_density(z - step * e)) / (2 * step) for e in np.eye(2)
    ]
    found = small().denoise(jnp.asarray(z)[None], jnp.asarray(time), jnp.eye(2)[:1])
    np.testing.assert_allclose(found[0], (z + noise**2 * np.array(slope)) / signal, rtol=1e-8)


def test_components_that_a_prompt_lacks_have_no_part(x64):
    latents = jnp.array([[-1.0, 2.5]])
    mixture = small()
    lacking = mixture.denoise(latents, jnp.asarray(0.05), mixture.prompts[:1])
    others = PromptedMixture(mixture.centres[:2], mixture.spread, mixture.weights[:1, :2])
    alone = others.denoise(latents, jnp.asarray(0.05), jnp.ones((1, 1)))
    np.testing.assert_allclose(lacking, alone, rtol=1e-12)


def test_no_prompt_is_all_prompts_equally(x64):
    mixture = small()
    rows = jnp.stack([mixture.unconditional, mixture.prompts[1], jnp.array([0.5, 0.5])])
    expected = np.stack([WEIGHTS.mean(0), WEIGHTS[1], WEIGHTS.mean(0)])
    np.testing.assert_allclose(mixture.weights_of(rows), expected, atol=1e-15)


def test_precision_follows_the_latents(dtype):
    mixture = small()
    assert mixture.denoise(jnp.zeros((1, 2)), jnp.asarray(0.5), mixture.prompts[:1]).dtype == dtype


@pytest.mark.parametrize("name", MIXTURES)
def test_exact_samples_are_of_the_law(name):
    mixture = MIXTURES[name]()
    for prompt, points in enumerate(drawn(name, "exact", None)):
        weights = np.asarray(mixture.weights[prompt])
        band = 4 * np.sqrt(weights * (1 - weights) / 3000) + 1e-3
        shares = mixture.shares(points, prompt)
        assert np.all(np.abs(shares - weights) <= band + 0.02 * weights)
        middle = weights @ np.asarray(mixture.centres)
        np.testing.assert_allclose(points.mean(axis=0), middle, atol=0.2)
        # Rayleigh's law beyond 3.
        assert 0.5 * np.exp(-4.5) < 1 - shares.sum() < 2 * np.exp(-4.5)
        assert abs(mixture.energy_distance(points, prompt)) < 0.02


@pytest.mark.parametrize("solver", diffusion.SOLVERS)
def test_sampled_points_are_of_the_law(solver):
    """Energy distance and shares at 60 steps; too few steps are told from it."""
    mixture = MIXTURES["apart"]()
    for prompt, points in enumerate(drawn("apart", solver, 60)):
        weights = np.asarray(mixture.weights[prompt])
        assert abs(mixture.energy_distance(points, prompt)) < 0.02
        shares = mixture.shares(points, prompt)
        assert np.abs(shares - weights).sum() / 2 < 0.04
        assert shares.sum() > 0.97
    few = drawn("apart", solver, 3)
    assert min(mixture.energy_distance(p, j) for j, p in enumerate(few)) > 0.02


def test_the_energy_distance_is_that_of_large_samples():
    mixture = MIXTURES["shared"]()
    points = drawn("shared", "exact", None)
    first, second = points[0][:1000], points[1][:1500]
    lengths = [
        np.linalg.norm(a[:, None] - b[None], axis=-1)
        for a, b in ((first, second), (first, first), (second, second))
    ]
    across, among, within = lengths
    empirical = (
        2 * across.mean()
        - among.sum() / (len(first) * (len(first) - 1))
        - within.sum() / (len(second) * (len(second) - 1))
    )
    assert mixture.energy_distance(first, 1) == pytest.approx(empirical, rel=0.05)
    assert empirical > 0.5


def test_the_energy_distance_of_the_law_to_itself_is_nought_on_average():
    mixture = MIXTURES["apart"]()
    batches = drawn("apart", "exact", None)[0].reshape(100, 30, 2)
    values = np.array([mixture.energy_distance(batch, 0) for batch in batches])
    assert abs(values.mean()) < 4 * values.std(ddof=1) / 10


@pytest.mark.parametrize("mean", [0.0, 0.7, 3.0, 200.0])
def test_the_mean_length_is_rices(mean):
    spread = 0.8
    if mean < 100:
        value, _ = integrate.quad(
            lambda r: r * stats.rice(mean / spread, scale=spread).pdf(r), 0, 20
        )
    else:
        value = mean + spread**2 / (2 * mean)
    assert mean_length(np.array(mean), spread) == pytest.approx(value, rel=1e-6)


def test_shares_by_hand():
    """The third component is of the second prompt alone: for the first its points are nowhere."""
    points = np.array([[0.0, 1.4], [0.0, -1.6], [2.0, 1.0], [-1.0, 2.5], [9.0, 9.0]])
    np.testing.assert_allclose(small().shares(points, 0), [0.2, 0.2, 0])
    np.testing.assert_allclose(small().shares(points, 1), [0.2, 0.2, 0.2])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"centres": np.zeros((3, 3))},
            r"centres: expected finite \[k, 2\], received shape \(3, 3\)",
        ),
        ({"centres": np.full((3, 2), np.nan)}, "centres: expected finite"),
        ({"spread": 0.0}, "spread: expected a positive number, received 0.0"),
        ({"spread": [0.1, 0.2]}, "spread: expected a positive number"),
        ({"weights": np.ones((2, 2)) / 2}, r"weights: expected \[m, 3\], received shape \(2, 2\)"),
        ({"weights": [[0.5, 0.6, -0.1]]}, "weights: expected rows of probabilities"),
        ({"weights": [[0.5, 0.6, 0.1]]}, "weights: expected rows of probabilities"),
    ],
)
def test_what_is_no_mixture_is_refused(change, words):
    given = {"centres": CENTRES, "spread": SPREAD, "weights": WEIGHTS} | change
    with pytest.raises(ValueError, match=words):
        mixture_diffusion.mixture(**given)


@pytest.mark.parametrize("name", MIXTURES)
def test_the_population_is_that_of_the_pairs(name):
    """Its closed form of Conditional-RKE against the score of exact samples."""
    mixture = MIXTURES[name]()
    kernels = {"output_kernel": cv.Gaussian(1.0), "prompt_kernel": cv.Gaussian(0.5)}
    outputs = drawn(name, "exact", None)[:, :200].reshape(-1, 2)
    prompts = jnp.repeat(mixture.prompts, 200, axis=0)
    found = float(cv.conditional_rke(outputs, prompts, **kernels))
    exact = float(mixture.population().conditional_rke(**kernels))
    assert found == pytest.approx(exact, rel=0.06)


def test_mixtures_are_what_they_say():
    shared, apart = MIXTURES["shared"](), MIXTURES["apart"]()
    np.testing.assert_allclose(shared.weights.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(shared.weights.mean(axis=0), 1 / 6, rtol=1e-6)
    np.testing.assert_array_equal(np.argmax(shared.weights, axis=1), np.arange(6))
    np.testing.assert_allclose(apart.weights.sum(axis=1), 1, rtol=1e-6)
    assert np.all(np.count_nonzero(apart.weights, axis=0) == 1)
    assert np.all(np.count_nonzero(apart.weights, axis=1) == 4)


def test_a_key_gives_its_sample_again_and_another_key_another():
    mixture = small()
    first, again, other = (
        np.asarray(mixture.sample(jax.random.key(seed), mixture.prompts)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.all(first != other)
