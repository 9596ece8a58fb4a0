"""GANs on mixtures: losses, bounds and penalties by hand, and steps whose direction is known."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian_mixtures import GaussianMixture

import condvendi_jax as cv
from experiments.generators import mixture_gan
from experiments.generators.mixture_gan import KINDS, Mixture, Training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optax_promotes")]

WIDTH, BATCH = 16, 64
# One Gaussian, N((2, 0), I): what a generator's mean must move to.
TARGET = Mixture(((2.0, 0.0),), 1.0, "one Gaussian")


def trainer(kind, **changes):
    training = Training("", kind, steps=10_000, width=WIDTH, batch=BATCH)
    return mixture_gan.Trainer(dataclasses.replace(KINDS[kind], **changes), TARGET, training)


def test_good_samples_and_captured_modes_by_hand():
    mixture = Mixture(((0.0, 0.0), (1.0, 0.0)), 0.01, "two")
    points = np.array([[0, 0], [0.029, 0], [0.031, 0], [0.5, 0], [1, 0.029], [1, -0.031]])
    shares = mixture.good_shares(points)
    np.testing.assert_allclose(shares, [2 / 6, 1 / 6])
    assert mixture.captured(np.array([[0.05, 0.049], [0.5, 0.5], [0, 1]])).tolist() == [1, 2, 1]
    np.testing.assert_allclose(mixture.good_shares(points.reshape(2, 3, 2))[0], [2 / 3, 0])


@pytest.mark.parametrize("name", mixture_gan.MIXTURES)
def test_the_score_of_a_mixture_is_that_of_general_gaussians(name):
    mixture = mixture_gan.MIXTURES[name]
    covariances = np.tile(mixture.scale**2 * np.eye(2), (len(mixture.centres), 1, 1))
    general = GaussianMixture(mixture.centres, covariances)
    for width in (0.05, 0.3, 2.0):
        expected = float(general.rke(kernel=cv.Gaussian(width)))
        assert mixture.rke(width) == pytest.approx(expected, rel=1e-4)
    assert mixture.rke(mixture.counting_bandwidth()) == pytest.approx(len(covariances), rel=1e-3)


def test_losses_by_hand():
    real, fake = jnp.array([2.0, 0.5]), jnp.array([-1.0, 3.0])

    def softplus(x):
        return np.log1p(np.exp(np.asarray(x, float)))

    critics = {
        "vanilla": softplus(-real).mean() + softplus(fake).mean(),
        "lsgan": (np.mean([1, 0.25]) + np.mean([1, 9])) / 2,
        "wgan_wc": 1 - 1.25,
        "wgan_gp": 1 - 1.25,
        "sngan": np.mean([0, 0.5]) + np.mean([0, 4]),
    }
    generators = {"vanilla": softplus(-fake).mean(), "lsgan": np.mean([4, 4]) / 2}
    for name, kind in KINDS.items():
        assert float(kind.critic_loss(real, fake)) == pytest.approx(critics[name], rel=1e-6)
        expected = generators.get(name, -1.0)
        assert float(kind.generator_loss(fake)) == pytest.approx(expected, rel=1e-6)


def test_the_penalty_is_that_of_the_slope_between_the_points():
    real, fake = jax.random.normal(jax.random.key(0), (2, 50, 2))
    slope = jnp.array([0.6, 0.8])
    key = jax.random.key(1)
    for factor in (0.0, 0.5, 1.0, 3.0):
        found = mixture_gan.gradient_penalty(lambda x, f=factor: f * x @ slope, real, fake, key)
        assert float(found) == pytest.approx((factor - 1) ** 2, abs=1e-5)

    slopes = jax.grad(
        lambda w: mixture_gan.gradient_penalty(lambda x: w * x[:, 0], real, fake, key)
    )
    assert np.isfinite(slopes(0.0))


def test_a_spectral_networks_kernels_have_norm_one():
    of = trainer("sngan")
    _, layers, directions, *_ = of.start(jax.random.key(0))
    for _ in range(200):
        directions = mixture_gan.iterated(layers, directions)
    found = mixture_gan.normalised(layers, directions)
    for index, layer in layers.items():
        assert np.linalg.norm(found[index]["kernel"], 2) == pytest.approx(1, rel=1e-3)
        assert abs(np.linalg.norm(layer["kernel"], 2) - 1) > 0.05
        np.testing.assert_array_equal(found[index]["bias"], layer["bias"])
    points = 3 * jax.random.normal(jax.random.key(1), (200, 2))
    slopes = jax.grad(lambda x: jnp.sum(of.criticise(layers, directions, x)))(points)
    assert np.linalg.norm(slopes, axis=1).max() <= 1 + 1e-3


def run(step, networks, count):
    """Networks after so many steps, and the losses of each."""
    keys = jax.random.split(jax.random.key(1), count)
    return jax.jit(lambda networks: jax.lax.scan(step, networks, keys))(networks)


@pytest.mark.parametrize("name", KINDS)
def test_critics_of_every_kind_tell_apart_and_generators_move_to_the_data(name):
    """N((2, 0), I) is real; what is generated has its mean near 0, and stands still at first."""
    of = trainer(name, rate=2e-3)
    first = of.start(jax.random.key(0))
    networks, losses = run(of.critic_step, first, 200)
    assert losses[-20:].mean() < losses[:20].mean()
    chex.assert_trees_all_equal(networks.generator, first.generator)
    ends = jnp.array([[3.0, 0.0], [-1.0, 0.0]])
    real, fake = of.criticise(networks.critic, networks.directions, ends)
    assert real > fake
    after, losses = run(of.generator_step, networks, 60)
    assert losses[-10:].mean() < losses[:10].mean()
    chex.assert_trees_all_equal(after.critic, networks.critic)
    samples = [mixture_gan.sample(n.generator, jax.random.key(9), 64) for n in (networks, after)]
    assert samples[1][:, 0].mean() > samples[0][:, 0].mean() + 0.3


def test_a_step_updates_the_critic_as_often_as_its_kind_says():
    of = trainer("sngan")
    networks, losses = run(of.step, of.start(jax.random.key(0)), 4)
    assert networks.critic_moments[0].count == 20 and networks.generator_moments[0].count == 4
    assert losses.shape == (4,)


TINY = Training("ring", "vanilla", steps=6, seeds=2, width=8, batch=16, points=3)


def test_networks_trained_side_by_side_are_those_trained_alone():
    alone, both = (mixture_gan.train(dataclasses.replace(TINY, seeds=k)) for k in (1, 2))
    for one, pair in zip(*(jax.tree.leaves(of["generator"]) for of in (alone, both)), strict=True):
        np.testing.assert_allclose(pair[0], one[0], atol=1e-5)
        assert pair[0].ndim == 1 or np.abs(pair[1] - one[0]).max() > 0.01
    np.testing.assert_allclose(both["trace"]["rke"][0], alone["trace"]["rke"][0], rtol=1e-3)


def test_how_far_a_trace_still_moves_by_hand():
    flat = np.ones((2, 20))
    assert mixture_gan.settled(flat) == 0
    # The last two tenths have means 1 and 2 in one seed, 3 and 4 in the other: 1 of sqrt(2).
    steps = np.zeros((2, 20))
    steps[0, -4:], steps[1, -4:] = (1, 1, 2, 2), (3, 3, 4, 4)
    assert mixture_gan.settled(steps) == pytest.approx(1 / np.sqrt(2))
    assert mixture_gan.settled(steps[:1]) == np.inf
