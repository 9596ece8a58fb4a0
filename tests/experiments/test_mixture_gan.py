"""GANs on mixtures: losses, bounds and penalties by hand, and steps whose direction is known."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import condvendi_jax as cv
from experiments.generators import checkpoints, mixture_gan
from experiments.generators.fitting import Places
from experiments.generators.mixture_gan import KINDS, MIXTURES, Mixture, Training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optax_promotes")]

WIDTH, BATCH = 16, 64
# One Gaussian, N((2, 0), I): what a generator's mean must move to.
TARGET = Mixture(((2.0, 0.0),), 1.0, "one Gaussian")


def trainer(kind, **changes):
    training = Training("", kind, steps=10_000, width=WIDTH, batch=BATCH)
    return mixture_gan.Trainer(dataclasses.replace(KINDS[kind], **changes), TARGET, training)


def test_the_mixtures_are_those_of_the_literature():
    ring, grid = (np.array(MIXTURES[name].centres) for name in ("ring", "grid"))
    turns = np.arange(8) * np.pi / 4
    np.testing.assert_allclose(ring @ [1, 1j], 2 / 1.414 * np.exp(1j * turns), atol=1e-6)
    sides = np.arange(-2, 3) * 2 / 2.828
    np.testing.assert_allclose(grid, [(x, y) for y in sides for x in sides], atol=1e-6)
    assert (MIXTURES["ring"].scale, MIXTURES["grid"].scale) == (0.02 / 1.414, 0.05 / 2.828)


@pytest.mark.parametrize("name", MIXTURES)
def test_samples_have_the_rke_of_the_closed_form(name):
    mixture, n, kernel = MIXTURES[name], 1000, cv.Gaussian(0.1)
    points = mixture.sample(jax.random.key(0), n)
    # Of n points, n of n^2 pairs are a point with itself.
    mean = 1 / n + (1 - 1 / n) / mixture.population().rke(kernel=kernel)
    assert float(cv.rke(points, kernel=kernel)) == pytest.approx(1 / float(mean), rel=0.04)
    assert (points != mixture.sample(jax.random.key(1), n)).any()
    counting = cv.Gaussian(mixture.counting_bandwidth())
    count = float(mixture.population().rke(kernel=counting))
    assert count == pytest.approx(len(mixture.centres), rel=1e-3)


@pytest.mark.parametrize("name", MIXTURES)
def test_samples_follow_their_weights_and_are_good_as_the_rayleigh_law_says(name):
    mixture, key = MIXTURES[name], jax.random.key(0)
    weights = np.zeros(len(mixture.centres))
    weights[1], weights[-1] = 0.25, 0.75
    for given, wanted in ((None, 1 / len(weights)), (jnp.asarray(weights), weights)):
        shares = mixture.good_shares(np.asarray(mixture.sample(key, 20_000, given)))
        np.testing.assert_allclose(shares, wanted * (1 - np.exp(-4.5)), atol=0.01)
        assert shares.sum() == pytest.approx(1 - np.exp(-4.5), abs=0.003)
        assert mixture.captured(shares) == np.count_nonzero(wanted * np.ones(len(weights)))


def test_good_samples_and_captured_modes_by_hand():
    mixture = Mixture(((0.0, 0.0), (1.0, 0.0)), 0.01, "two")
    points = np.array([[0, 0], [0.029, 0], [0.031, 0], [0.5, 0], [1, 0.029], [1, -0.031]])
    shares = mixture.good_shares(points)
    np.testing.assert_allclose(shares, [2 / 6, 1 / 6])
    assert mixture.captured(np.array([[0.05, 0.049], [0.5, 0.5], [0, 1]])).tolist() == [1, 2, 1]
    np.testing.assert_allclose(mixture.good_shares(points.reshape(2, 3, 2))[0], [2 / 3, 0])


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

    def bowl(points):
        return jnp.sum(jnp.square(points), axis=1) / 2

    # The slope of the bowl is the distance from its middle: of points halfway along a segment.
    ends = jnp.tile(jnp.array([[2.0, 0.0]]), (4000, 1)), jnp.zeros((4000, 2))
    found = mixture_gan.gradient_penalty(bowl, *ends, key)
    assert float(found) == pytest.approx(1 / 3, rel=0.05)
    assert found != mixture_gan.gradient_penalty(bowl, *ends, jax.random.key(2))
    slopes = jax.grad(lambda w: mixture_gan.gradient_penalty(lambda x: w * x[:, 0], *ends, key))
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


def test_the_norms_gradient_is_the_outer_product_of_the_singular_vectors():
    kernel = jax.random.normal(jax.random.key(0), (4, 3))
    u, s, v = np.linalg.svd(np.asarray(kernel, np.float64))
    found, slope = jax.value_and_grad(mixture_gan._norm_along)(kernel, jnp.asarray(v[0], "f4"))
    assert float(found) == pytest.approx(s[0], rel=1e-5)
    np.testing.assert_allclose(slope, np.outer(u[:, 0], v[0]), atol=1e-5)


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
    samples = [
        mixture_gan.sample({"layers": n.generator}, jax.random.key(9), 64)
        for n in (networks, after)
    ]
    assert samples[1][:, 0].mean() > samples[0][:, 0].mean() + 0.3


def test_clipped_weights_stay_within_their_bound():
    largest = []
    for clip in (0.01, None):
        of = trainer("wgan_wc", clip=clip)
        networks, _ = run(of.critic_step, of.start(jax.random.key(0)), 3)
        largest.append([float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(networks.critic)])
    assert max(largest[0]) == pytest.approx(0.01)
    assert max(largest[1]) > 0.1


def test_a_step_updates_the_critic_as_often_as_its_kind_says():
    of = trainer("sngan")
    networks, losses = run(of.step, of.start(jax.random.key(0)), 4)
    assert networks.critic_moments[0].count == 20 and networks.generator_moments[0].count == 4
    assert losses.shape == (4, 2)
    before, after = (jax.tree.leaves(n.directions) for n in (of.start(jax.random.key(0)), networks))
    assert len(after) == 4
    assert all((a != b).any() for a, b in zip(before[:3], after[:3], strict=True))


def test_the_rate_falls_in_the_second_half():
    rates = [float(mixture_gan._falling(0.2, 100)(step)) for step in (0, 49, 50, 75, 100)]
    np.testing.assert_allclose(rates, [0.2, 0.2, 0.2, 0.1, 0], atol=1e-6)


def test_the_penalty_enters_the_critics_loss_with_its_weight():
    networks, found = trainer("wgan_gp").start(jax.random.key(0)), []
    for weight in (0.0, 0.1, 0.2):
        of = trainer("wgan_gp", penalty=weight)
        found.append(float(of.critic_step(networks, jax.random.key(3))[1]))
    without, some, more = found
    assert some - without > 0.001
    assert more - without == pytest.approx(2 * (some - without), rel=1e-3)


TINY = Training("ring", "vanilla", steps=6, seeds=2, width=8, batch=16, points=3)


@pytest.fixture(scope="module")
def both():
    with jax.numpy_dtype_promotion("standard"):
        return mixture_gan.train(TINY, 0)


def test_networks_trained_side_by_side_are_those_trained_alone(both):
    alone = mixture_gan.train(dataclasses.replace(TINY, seeds=1), 0)
    for name, leaf in checkpoints.flatten(alone["generator"]).items():
        pair = checkpoints.flatten(both["generator"])[name]
        np.testing.assert_allclose(pair[0], leaf[0], atol=1e-5)
        if "kernel" in name:
            assert np.abs(pair[1] - leaf[0]).max() > 0.01
    np.testing.assert_allclose(both["trace"]["rke"][0], alone["trace"]["rke"][0], rtol=1e-3)
    other = mixture_gan.train(dataclasses.replace(TINY, seeds=1, points=1), 1)
    kernels = [of["generator"]["layers"][0]["kernel"] for of in (alone, other)]
    assert (kernels[0] != kernels[1]).all()


def test_the_trace_is_of_the_networks_as_they_were(both):
    trace = both["trace"]
    assert trace["step"].tolist() == [2, 4, 6]
    assert {trace[name].shape for name in mixture_gan.TRACES} == {(2, 3)}
    mixture = MIXTURES["ring"]
    key = jax.random.split(jax.random.fold_in(jax.random.key(0), 1), 3)[2]
    points = mixture_gan.sample(mixture_gan.one(both["generator"], 1), key, 1000)
    kernel = cv.Gaussian(mixture.counting_bandwidth())
    assert trace["rke"][1, -1] == pytest.approx(float(cv.rke(points, kernel=kernel)), rel=1e-4)
    assert trace["good"][1, -1] == pytest.approx(mixture.good_shares(np.asarray(points)).sum())


def test_the_numbers_of_a_training_its_kind_and_its_data_are_in_its_identity(monkeypatch):
    found = [mixture_gan.identity(TINY), mixture_gan.identity(TINY, seed=1)]
    for change in ({"mixture": "grid"}, {"kind": "lsgan"}, {"steps": 7}, {"batch": 17}):
        found.append(mixture_gan.identity(dataclasses.replace(TINY, **change)))
    of_kind = {"rate": 2e-3, "critic_steps": 2, "clip": 0.2, "penalty": 0.3, "spectral": True}
    of_data = {"scale": 0.2, "centres": ((9.0, 9.0),)}
    for known, key, changes in ((KINDS, "vanilla", of_kind), (MIXTURES, "ring", of_data)):
        for name, value in changes.items():
            with monkeypatch.context() as patch:
                patch.setitem(known, key, dataclasses.replace(known[key], **{name: value}))
                found.append(mixture_gan.identity(TINY))
    assert len({checkpoints.file_name(identity) for identity in found}) == len(found) == 13


def test_samples_are_those_of_a_forward_pass_in_float64_and_follow_the_key(both):
    params = mixture_gan.one(both["generator"], 0)
    key = jax.random.key(4)
    points = mixture_gan.sample(params, key, 50)
    values = np.asarray(jax.random.normal(key, (50, 2)), np.float64)
    for index in range(4):
        layer = params["layers"][index]
        values = np.maximum(values, 0) if index else values
        values = values @ layer["kernel"].astype(np.float64) + layer["bias"]
    np.testing.assert_allclose(points, values, atol=1e-5)
    np.testing.assert_array_equal(points, mixture_gan.sample(params, key, 50))
    assert (points != mixture_gan.sample(params, jax.random.key(5), 50)).all()


def test_how_far_a_trace_still_moves_by_hand():
    flat = np.ones((2, 20))
    assert mixture_gan.settled(flat) == 0
    # The last two tenths have means 1 and 2 in one seed, 3 and 4 in the other: 1 of sqrt(2).
    steps = np.zeros((2, 20))
    steps[0, -4:], steps[1, -4:] = (1, 1, 2, 2), (3, 3, 4, 4)
    assert mixture_gan.settled(steps) == pytest.approx(1 / np.sqrt(2))
    assert mixture_gan.settled(steps[:1]) == np.inf


def test_what_the_default_study_takes_is_shipped(monkeypatch, tmp_path):
    monkeypatch.setattr(mixture_gan, "train", None)
    for (kind, of), mixture in itertools.product(KINDS.items(), MIXTURES):
        found = mixture_gan.trained(Training(mixture, kind, of.steps), Places(cache=tmp_path))
        assert found["generator"]["layers"][0]["kernel"].shape == (5, 2, 64)
        drawn = mixture_gan.sample(mixture_gan.one(found["generator"], 0), jax.random.key(0), 99)
        assert np.isfinite(drawn).all()
