"""GANs on mixtures: losses, bounds and penalties by hand, and steps whose direction is known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.stats import norm

import condvendi_jax as cv
from experiments.generators import checkpoints, mixture_gan
from experiments.generators.mixture_gan import KINDS, MIXTURES, Mixture, Training

pytestmark = pytest.mark.slow

WIDTH, BATCH = 16, 64
# One Gaussian at (3, 0): what a generator's mean must move to.
TARGET = Mixture(((3.0, 0.0),), 0.1, "one Gaussian")


def trainer(kind, mixture=TARGET, steps=10_000, **changes):
    kind = dataclasses.replace(KINDS[kind], **changes)
    return mixture_gan.Trainer(kind, mixture, width=WIDTH, batch=BATCH, steps=steps)


@pytest.fixture(autouse=True)
def optax_promotes():
    """Adam takes a power of the float b1 and a whole number."""
    with jax.numpy_dtype_promotion("standard"):
        yield


# --- the data ---------------------------------------------------------------------------------


def test_the_mixtures_are_those_of_the_literature():
    ring, grid = (np.array(MIXTURES[name].centres) for name in ("ring", "grid"))
    np.testing.assert_allclose(np.linalg.norm(ring, axis=1), 2 / 1.414)
    angles = np.sort(np.arctan2(ring[:, 1], ring[:, 0]) % (2 * np.pi))
    np.testing.assert_allclose(angles, np.arange(8) * np.pi / 4, atol=1e-6)
    sides = np.unique(grid.round(6))
    np.testing.assert_allclose(sides, np.arange(-2, 3) * 2 / 2.828, atol=1e-6)
    assert len(np.unique(grid, axis=0)) == 25
    assert (MIXTURES["ring"].scale, MIXTURES["grid"].scale) == (0.02 / 1.414, 0.05 / 2.828)
    for centres in (ring, grid):
        np.testing.assert_allclose(centres.var(axis=0), 1, rtol=1e-3)


@pytest.mark.parametrize("name", MIXTURES)
def test_samples_have_the_rke_of_the_closed_form(name):
    mixture, n = MIXTURES[name], 1000
    weights = jnp.arange(len(mixture.centres)) % 2 / (len(mixture.centres) // 2)
    for weighted in (None, weights):
        points = mixture.sample(jax.random.key(0), n, weighted)
        kernel = cv.Gaussian(0.1)
        # Of n points, n of n^2 pairs are a point with itself.
        mean = 1 / n + (1 - 1 / n) / mixture.population(weighted).rke(kernel=kernel)
        assert float(cv.rke(points, kernel=kernel)) == pytest.approx(1 / float(mean), rel=0.04)
        assert (points != mixture.sample(jax.random.key(1), n, weighted)).any()


def test_good_samples_and_captured_modes_by_hand():
    mixture = Mixture(((0.0, 0.0), (1.0, 0.0)), 0.01, "two")
    points = np.array([[0, 0], [0.029, 0], [0.031, 0], [0.5, 0], [1, 0.029], [1, -0.031]])
    shares = mixture.good_shares(points)
    np.testing.assert_allclose(shares, [2 / 6, 1 / 6])
    assert mixture.captured(np.array([[0.05, 0.049], [0.5, 0.5], [0, 1]])).tolist() == [1, 2, 1]
    np.testing.assert_allclose(mixture.good_shares(points.reshape(2, 3, 2))[0], [2 / 3, 0])


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixtures_samples_are_good_as_the_rayleigh_law_says(name):
    mixture = MIXTURES[name]
    shares = mixture.good_shares(np.asarray(mixture.sample(jax.random.key(0), 20_000)))
    assert shares.sum() == pytest.approx(1 - np.exp(-4.5), abs=0.003)
    assert mixture.captured(shares) == len(mixture.centres)
    # A line through all centres captures none: it passes a mode in 3% or less of its length.
    angle = np.linspace(0, 2 * np.pi, 20_000)
    if name == "ring":
        circle = 2 / 1.414 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        assert mixture.captured(mixture.good_shares(circle)) == 0


@pytest.mark.parametrize("name", MIXTURES)
def test_the_counting_bandwidth_counts(name):
    mixture = MIXTURES[name]
    kernel = cv.Gaussian(mixture.counting_bandwidth())
    assert float(mixture.population().rke(kernel=kernel)) == pytest.approx(
        len(mixture.centres), rel=1e-3
    )


# --- the parts of a GAN -----------------------------------------------------------------------


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
    for factor in (1.0, 0.5, 3.0):
        found = mixture_gan.gradient_penalty(lambda x, f=factor: f * x @ slope, real, fake, key)
        assert float(found) == pytest.approx((factor - 1) ** 2, abs=1e-5)
    assert mixture_gan.gradient_penalty(lambda x: 0 * x[:, 0], real, fake, key) == pytest.approx(
        1, abs=1e-5
    )

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
    network = mixture_gan.Network((2, 8, 5, 1), spectral=True, rngs=nnx.Rngs(0))
    for _ in range(100):
        for direction, value in zip(network.directions, network.iterated(), strict=True):
            direction.set_value(value)
    norms = [np.linalg.norm(kernel, 2) for kernel in network.kernels()]
    np.testing.assert_allclose(norms, 1, rtol=1e-4)
    raw = [np.linalg.norm(layer.kernel[...], 2) for layer in network.layers]
    assert (np.abs(np.array(raw) - 1) > 0.05).all()
    # Its slope nowhere exceeds one, as that of the plain network does.
    points = 3 * jax.random.normal(jax.random.key(1), (200, 2))
    slopes = jax.grad(lambda x: jnp.sum(network(x)))(points)
    assert np.linalg.norm(slopes, axis=1).max() <= 1 + 1e-4
    plain = mixture_gan.Network((2, 8, 5, 1), rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(plain.kernels()[0], plain.layers[0].kernel[...])


def test_the_norms_gradient_is_the_outer_product_of_the_singular_vectors():
    kernel = jax.random.normal(jax.random.key(0), (4, 3))
    u, s, v = np.linalg.svd(np.asarray(kernel, np.float64))
    found, slope = jax.value_and_grad(mixture_gan._norm_along)(kernel, jnp.asarray(v[0], "f4"))
    assert float(found) == pytest.approx(s[0], rel=1e-5)
    np.testing.assert_allclose(slope, np.outer(u[:, 0], v[0]), atol=1e-5)


# --- steps of a training ----------------------------------------------------------------------


def shift(mean):
    """The parameters of a generator that adds a mean to its noise."""
    units = (2, WIDTH, WIDTH, WIDTH, 2)
    layers = {i: {"kernel": np.zeros(units[i : i + 2])} for i in range(4)}
    pairs = np.array([[1.0, -1.0, 0, 0], [0, 0, 1, -1]])
    layers[0]["kernel"][:, :4] = pairs
    layers[1]["kernel"][:4, :4] = layers[2]["kernel"][:4, :4] = np.eye(4)
    layers[3]["kernel"][:4] = pairs.T
    for index, layer in layers.items():
        layer["bias"] = np.zeros(units[index + 1]) if index < 3 else np.array(mean, float)
    return jax.tree.map(jnp.float32, {"layers": layers})


def started(of, mean=None, seed=0):
    networks = of.start(jax.random.key(seed))
    if mean is None:
        return networks
    return networks._replace(generator=checkpoints.restore(networks.generator, shift(mean)))


def run(step, networks, count, seed=1):
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.jit(lambda networks: jax.lax.scan(step, networks, keys))(networks)


def same(one, other):
    return jax.tree.all(jax.tree.map(jnp.array_equal, one, other))


def test_a_shifting_generator_shifts():
    points = mixture_gan.sample(shift((-1.0, 2.0)), jax.random.key(0), 500)
    noise = jax.random.normal(jax.random.key(0), (500, 2))
    np.testing.assert_allclose(points, np.asarray(noise) + [-1.0, 2.0], atol=1e-5)


@pytest.mark.parametrize("name", ["vanilla", pytest.param("lsgan", marks=pytest.mark.slow)])
def test_critics_learn_the_optimum_of_two_known_gaussians(name):
    """N((1, 0), I) is real and N((-1, 0), I) generated; the best critics are known."""
    of = trainer(name, Mixture(((1.0, 0.0),), 1.0, "one"), rate=3e-3, steps=800)
    _, losses = run(of.critic_step, started(of, mean=(-1.0, 0.0)), 800)
    x = np.linspace(-9, 9, 4001)
    p, q = norm.pdf(x, 1), norm.pdf(x, -1)
    share = p / (p + q)
    best = {
        "vanilla": np.trapezoid(-p * np.log(share) - q * np.log1p(-share), x),
        "lsgan": np.trapezoid(p * (1 - share) ** 2 + q * share**2, x) / 2,
    }[name]
    assert losses[:5].mean() > 1.3 * best
    assert losses[-200:].mean() == pytest.approx(best, rel=0.1)


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=[pytest.mark.slow] * (k in ("vanilla", "lsgan"))) for k in KINDS]
)
def test_critics_of_every_kind_tell_apart_and_generators_move_to_the_data(name):
    """N((2, 0), I) is real; generated is N((0, 0), I), which stands still at first."""
    # With a bound of 0.01, a clipped critic of 16 units is all but constant.
    changes = {"clip": 0.1} if name == "wgan_wc" else {}
    of = trainer(name, Mixture(((2.0, 0.0),), 1.0, "one"), rate=2e-3, **changes)
    first = started(of, mean=(0.0, 0.0))
    networks, losses = run(of.critic_step, first, 200)
    assert losses[-20:].mean() < losses[:20].mean()
    assert same(networks.generator, first.generator)
    ends = jnp.array([[3.0, 0.0], [-1.0, 0.0]])
    real, fake = of.criticise(networks.critic, networks.directions, ends)
    assert real > fake
    after, losses = run(of.generator_step, networks, 60)
    assert losses[-10:].mean() < losses[:10].mean()
    assert same(after.critic, networks.critic)
    means = [of.generate(n.generator, jax.random.key(9)).mean(axis=0)[0] for n in (networks, after)]
    assert means[1] > means[0] + 0.3


def test_clipped_weights_stay_within_their_bound():
    largest = []
    for clip in (0.01, None):
        of = trainer("wgan_wc", clip=clip)
        networks, _ = run(of.critic_step, started(of), 3)
        largest.append([float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(networks.critic)])
    assert max(largest[0]) == pytest.approx(0.01)
    assert max(largest[1]) > 0.1


def test_a_step_updates_the_critic_as_often_as_its_kind_says():
    of = trainer("sngan")
    networks, losses = run(of.step, started(of), 4)
    counts = [
        int(moments[0].count) for moments in (networks.critic_moments, networks.generator_moments)
    ]
    assert counts == [20, 4]
    assert losses.shape == (4, 2)
    before, after = (jax.tree.leaves(n.directions) for n in (started(of), networks))
    assert len(after) == 4
    assert all((a != b).any() for a, b in zip(before[:3], after[:3], strict=True))


def test_the_rate_falls_in_the_second_half():
    rates = [float(mixture_gan._falling(0.2, 100)(step)) for step in (0, 49, 50, 75, 100)]
    np.testing.assert_allclose(rates, [0.2, 0.2, 0.2, 0.1, 0], atol=1e-6)


def test_the_penalty_weighs():
    of, without = trainer("wgan_gp", rate=1e-3), trainer("wgan_gp", penalty=0.0, rate=1e-3)
    points = jax.random.normal(jax.random.key(3), (200, 2))
    slopes = []
    for one in (of, without):
        networks, _ = run(one.critic_step, started(one, mean=(-3.0, 0.0)), 100)
        criticise = jax.tree_util.Partial(one.criticise, networks.critic, networks.directions)
        judged, pull = jax.vjp(criticise, points)
        (slope,) = pull(jnp.ones_like(judged))
        slopes.append(np.linalg.norm(slope, axis=1).mean())
    assert slopes[0] < slopes[1]


# --- trainings --------------------------------------------------------------------------------

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


def test_the_trace_is_of_the_networks_as_they_were(both):
    trace = both["trace"]
    assert trace["step"].tolist() == [2, 4, 6]
    assert {name: trace[name].shape for name in mixture_gan.TRACES} == dict.fromkeys(
        mixture_gan.TRACES, (2, 3)
    )
    mixture = MIXTURES["ring"]
    key = jax.random.split(jax.random.fold_in(jax.random.key(0), 1), 3)[2]
    points = mixture_gan.sample(mixture_gan.one(both["generator"], 1), key, 1000)
    kernel = cv.Gaussian(mixture.counting_bandwidth())
    assert trace["rke"][1, -1] == pytest.approx(float(cv.rke(points, kernel=kernel)), rel=1e-4)
    assert trace["good"][1, -1] == pytest.approx(mixture.good_shares(np.asarray(points)).sum())


@pytest.mark.parametrize("change", [{"mixture": "grid"}, {"kind": "lsgan"}, {"batch": 17}])
def test_every_setting_of_a_training_changes_it_and_its_identity(both, change):
    other = dataclasses.replace(TINY, **change)
    found = mixture_gan.train(dataclasses.replace(other, seeds=1, points=1), 0)
    first, second = (of["generator"]["layers"][1]["bias"][0] for of in (both, found))
    assert first.shape != second.shape or (first != second).any()
    names = {checkpoints.file_name(mixture_gan.identity(of)) for of in (TINY, other)}
    assert len(names) == 2


@pytest.mark.parametrize(
    "change",
    [{"rate": 2e-3}, {"critic_steps": 2}, {"clip": 0.2}, {"penalty": 0.3}, {"spectral": True}],
)
def test_a_kinds_numbers_belong_to_the_identity(monkeypatch, change):
    before = mixture_gan.identity(TINY)
    changed = dataclasses.replace(mixture_gan.KINDS[TINY.kind], **change)
    monkeypatch.setitem(mixture_gan.KINDS, TINY.kind, changed)
    assert mixture_gan.identity(TINY) != before


def test_the_data_belong_to_the_identity(monkeypatch):
    before = mixture_gan.identity(TINY)
    mixture = mixture_gan.MIXTURES[TINY.mixture]
    moved = ((9.0, 9.0), *mixture.centres[1:])
    for changed in (
        dataclasses.replace(mixture, scale=2 * mixture.scale),
        dataclasses.replace(mixture, centres=moved),
    ):
        monkeypatch.setitem(mixture_gan.MIXTURES, TINY.mixture, changed)
        assert mixture_gan.identity(TINY) != before


def test_another_seed_is_another_training(both):
    other = mixture_gan.train(dataclasses.replace(TINY, points=1), 1)
    assert (
        other["generator"]["layers"][0]["kernel"] != both["generator"]["layers"][0]["kernel"]
    ).all()
    names = {checkpoints.file_name(mixture_gan.identity(TINY, seed)) for seed in (0, 1)}
    assert len(names) == 2


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
    assert mixture_gan.sample(params, key, 7).shape == (7, 2)


def test_how_far_a_trace_still_moves_by_hand():
    flat = np.ones((2, 20))
    assert mixture_gan.settled(flat) == 0
    # The last two tenths have means 1 and 2 in one seed, 3 and 4 in the other: 1 of sqrt(2).
    steps = np.zeros((2, 20))
    steps[0, -4:], steps[1, -4:] = (1, 1, 2, 2), (3, 3, 4, 4)
    assert mixture_gan.settled(steps) == pytest.approx(1 / np.sqrt(2))
    assert mixture_gan.settled(steps[:1]) == np.inf


def test_what_the_default_study_takes_is_shipped(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("trained")

    monkeypatch.setattr(mixture_gan, "train", refuse)
    for mixture in MIXTURES:
        for kind, of in KINDS.items():
            found = mixture_gan.trained(Training(mixture, kind, of.steps), cache=tmp_path)
            assert found["generator"]["layers"][0]["kernel"].shape == (5, 2, 64)
            drawn = mixture_gan.sample(
                mixture_gan.one(found["generator"], 0), jax.random.key(0), 99
            )
            assert np.isfinite(drawn).all()
