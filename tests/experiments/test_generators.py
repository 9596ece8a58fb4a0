"""Generators: latent diffusion, the encoder of pictures, GANs on mixtures."""

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from small import mean_squared_kernels

from experiments.data import load
from experiments.generators import (
    diffusion,
    fitting,
    latent_diffusion,
    mixture_gan,
    picture_encoder,
    pictures,
)
from experiments.generators.fitting import Places
from experiments.generators.latent_diffusion import GRID, Autoencoder, Denoiser, Sizes
from experiments.generators.mixture_gan import KINDS, Mixture
from experiments.lab import records

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optax_promotes")]

SIZES = Sizes(channels=1, latent=2, hidden=8, blocks=1, patch=4, width=16, depth=1, heads=2)
IDENTITY = records.identify("small", 1, {"width": 16}, {}, 0)
# Two kinds, in two wordings each; the latents of each are constants, 1 and -0.5.
WORDINGS = np.random.default_rng(0).normal(size=(2, 2, 384)).astype(np.float32) / 20


ARRAYS = (
    jnp.repeat(jnp.array([1.0, -0.5]), 4)[:, None, None, None] * jnp.ones((1, GRID, GRID, 2)),
    jnp.repeat(jnp.arange(2), 4),
    jnp.asarray(WORDINGS),
)


def fit(arrays, steps):
    """A denoiser of them."""
    loss = functools.partial(latent_diffusion._denoising_loss, batch=32)
    given = Denoiser(SIZES, rngs=nnx.Rngs(0)), loss, arrays, jax.random.key(0), IDENTITY, Places()
    return fitting.fit(*given, steps=steps, rate=3e-3)


def test_the_denoiser_learns_what_its_prompts_show():
    """Every kind is one picture: E[x | z, prompt] is that picture, without a prompt their mean."""
    network = fitting.restore(Denoiser, SIZES, fit(ARRAYS, 400))
    noisy = jax.random.normal(jax.random.key(1), (6, GRID, GRID, 2))
    prompts = jnp.asarray(np.concatenate([WORDINGS.reshape(4, -1), np.zeros((2, 384), "f4")]))
    clean = jax.jit(latent_diffusion.clean_prediction)(network, noisy, jnp.asarray(0.9), prompts)
    means = np.asarray(clean).mean((1, 2, 3))
    np.testing.assert_allclose(means, [1, 1, -0.5, -0.5, 0.25, 0.25], atol=0.2)


def test_the_loss_is_the_squared_error_of_v_at_the_time_that_the_model_sees():
    class Exact:
        """Knows that all latents are `level`: v = (alpha z - level) / sigma."""

        def __call__(self, latents, times, prompts):
            given.append((np.abs(prompts).max(1) > 0, np.asarray(times)))
            signal, spread = (
                f(times)[:, None, None, None] for f in (diffusion.alpha, diffusion.sigma)
            )
            return (signal * latents - level) / spread

    given, level = [], 0.7
    loss: Any = functools.partial(latent_diffusion._denoising_loss, batch=512)
    arrays = jnp.full((5, GRID, GRID, 2), level), jnp.zeros(5, int), jnp.asarray(WORDINGS)
    assert float(loss(Exact(), arrays, jax.random.key(0))) < 1e-6
    # A tenth of the prompts are left out; one time lies in each part of the interval.
    assert 0.85 < given[0][0].mean() < 0.95
    np.testing.assert_array_equal(np.floor(512 * given[0][1]), np.arange(512))
    level = 0.0
    assert float(loss(Exact(), arrays, jax.random.key(0))) > 0.1


def test_the_autoencoders_loss_by_hand():
    """Latents of mean 2 and deviation 3, and pictures that are a tenth too bright."""

    class Constant:
        def encode(self, pixels):
            shape = (len(pixels), GRID, GRID, 2)
            return jnp.full(shape, 2.0), jnp.full(shape, np.log(9.0))

        def decode(self, latents):
            drawn.append(np.asarray(latents))
            return jnp.full((len(latents), 32, 32, 1), 0.3)

    drawn, pixels = [], jnp.full((5, 32, 32, 1), 51, jnp.uint8)
    coder: Any = Constant()
    found = latent_diffusion._autoencoding_loss(coder, pixels, jax.random.key(0), batch=40)
    divergence = (4 + 9 - 1 - np.log(9)) / 2
    assert float(found) == pytest.approx(0.1 + 5 * 0.01 + 1e-4 * divergence, rel=1e-5)
    assert drawn[0].shape == (40, GRID, GRID, 2)
    # Within five errors of 5,120 draws.
    assert abs(drawn[0].mean() - 2) < 0.2 and abs(drawn[0].std() - 3) < 0.15


@pytest.mark.parametrize("bias, bound", [(1e3, 5), (-1e3, -20)])
def test_the_variance_of_latents_stays_in_bounds(bias, bound):
    coder = Autoencoder(SIZES, rngs=nnx.Rngs(0))
    assert coder.moments.bias is not None
    coder.moments.bias[...] = jnp.full_like(coder.moments.bias[...], bias)
    means, log_variances = coder.encode(jnp.zeros((1, 32, 32, SIZES.channels)))
    assert (log_variances == bound).all() and (jnp.sign(means) == np.sign(bias)).all()


def test_parameters_are_averaged_over_the_updates():
    def loss(model, arrays, key):
        jax.debug.callback(lambda kernel: seen.append(kernel[:, 0]), model.kernel[...])
        return jnp.sum(jnp.square(model.kernel[...])) / 2  # Its slope is the kernel.

    network, seen = nnx.Linear(2, 1, use_bias=False, rngs=nnx.Rngs(0)), []
    network.kernel[...] = jnp.array([[2.0], [-1.5]])
    given = network, loss, None, jax.random.key(0), IDENTITY, Places()
    # Before each update: the longer training sees what the other's last one gives.
    _, found = (fitting.fit(*given, steps=of, rate=0.1, horizon=40) for of in (31, 30))
    jax.effects_barrier()
    average = seen[0]
    for step, params in enumerate(seen[1:31]):
        keep = min(0.999, (1 + step) / (10 + step))
        average = keep * average + (1 - keep) * params
    np.testing.assert_allclose(found["kernel"][:, 0], average, rtol=1e-3)
    assert len(seen) == 31 + 30 and np.sum(np.square(seen[30])) < 1


def test_a_training_that_diverges_says_so():
    arrays = (ARRAYS[0].at[0].set(jnp.nan), *ARRAYS[1:])
    with pytest.raises(FloatingPointError, match="small: the loss is nan at step 0"):
        fit(arrays, 20)


@pytest.mark.parametrize(("name", "best", "least"), [("fashion", 1, 0.8), ("emoji", 5, 0.4)])
def test_the_shipped_models_draw_what_the_shipped_encoders_recognise(name, best, least):
    """Whatever changes a network, the sampler or a file of parameters is seen here."""
    model, judge = latent_diffusion.load(name), picture_encoder.load(name)
    kinds = np.arange(30) * len(model.prompts.names) // 30
    prompts = jnp.asarray(model.prompts.embeddings[kinds, 0], jnp.float32)
    denoise = diffusion.guided(model.denoise, model.unconditional, 3.0)
    options = {"shape": model.shape, "steps": 15, "solver": "dpm2"}
    latents, _ = diffusion.sample(denoise, jax.random.key(0), prompts, **options)
    features = judge(model.decode(latents))
    logits = np.asarray(judge.logits(features, picture_encoder.prompts_of(name)))
    assert np.mean(picture_encoder.found_among(logits, kinds, best)) > least


def test_a_model_is_trained_once_on_what_is_not_held_out_and_then_read(tmp_path, monkeypatch):
    """On a collection of sixteen pictures, for three updates and two."""
    rng = np.random.default_rng(0)
    read = pictures.Pictures(
        rng.integers(0, 256, (16, 32, 32, 1), np.uint8), np.arange(16) % 2, np.arange(16) >= 12
    )
    prompts = pictures.Prompts(np.array(["one", "two"]), WORDINGS)
    collection = pictures.Collection(
        "fashion", lambda folder: read, lambda: prompts, pictures.digest_of(read), "ask for them"
    )
    monkeypatch.setitem(pictures.COLLECTIONS, "fashion", collection)
    training = latent_diffusion.Training(
        "fashion", SIZES, encoding_steps=3, denoising_steps=2, horizon=6, batch=4
    )
    monkeypatch.setitem(latent_diffusion.TRAININGS, "fashion", training)
    places = Places(tmp_path, tmp_path / "cache", tmp_path / "shipped")
    fits, fit = [], fitting.fit
    monkeypatch.setattr(
        fitting, "fit", lambda *of, **sizes: fits.append((of, sizes)) or fit(*of, **sizes)
    )
    model = latent_diffusion.load("fashion", places)
    monkeypatch.setattr(fitting, "fit", None)
    again = latent_diffusion.load("fashion", dataclasses.replace(places, pictures=None))
    for one, other in ((model.coder, again.coder), (model.denoiser, again.denoiser)):
        chex.assert_trees_all_equal(one, other)
    # Latents have zero mean and unit variance.
    ((_, _, pixels, first, *_), coder), ((_, _, arrays, second, *_), denoiser) = fits
    latents, kinds, wordings = arrays
    assert (coder["steps"], denoiser["steps"]) == (3, 2) and first != second  # Keys.
    np.testing.assert_array_equal(pixels, read.pixels[:12])
    np.testing.assert_allclose(np.mean(latents, (0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(np.std(latents, (0, 1, 2)), 1, rtol=1e-4)
    np.testing.assert_array_equal(kinds, read.kinds[:12])
    np.testing.assert_array_equal(wordings, WORDINGS)
    raw, _ = model.coder.encode(read.pixels[:12] / np.float32(255))
    shown = model.decode(jnp.asarray(latents))
    np.testing.assert_allclose(shown, np.clip(model.coder.decode(raw), 0, 1), atol=1e-4)


TINY = picture_encoder.Training(
    "fashion", channels=1, hidden=4, features=8, steps=60, batch=16, rate=1e-2
)


def stirred():
    """A network for loops none of whose parameters is zero."""
    network = picture_encoder.PictureEncoder(TINY, rngs=nnx.Rngs(0))
    graph, state = nnx.split(latent_diffusion.looped(network))
    leaves, tree = jax.tree.flatten(state)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    pairs = zip(keys, leaves, strict=True)
    moved = [0.3 * jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in pairs]
    return nnx.merge(graph, jax.tree.unflatten(tree, moved))


def test_features_are_directions_and_the_same_in_the_loops_of_a_sampler():
    network = stirred()
    pixels = jax.random.uniform(jax.random.key(0), (3, 32, 32, 1))
    features = network(pixels)
    assert features.shape == (3, 8)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    assert np.abs(features[0] - features[1]).max() > 1e-3
    graph = nnx.graphdef(picture_encoder.PictureEncoder(TINY, rngs=nnx.Rngs(0)))
    plain = nnx.merge(graph, nnx.state(network))
    assert plain.blocks[0].first.conv_general_dilated is not latent_diffusion.as_product
    np.testing.assert_allclose(features, plain(pixels), atol=1e-5)


def test_a_shifted_picture_is_moved_whole_and_its_edge_repeated():
    picture = np.arange(36).reshape(6, 6)
    wide = np.pad(picture, 2, mode="edge")
    allowed = {wide[i : i + 6, j : j + 6].tobytes(): (i, j) for i in range(5) for j in range(5)}
    many = jnp.asarray(np.repeat(picture[None, :, :, None], 200, axis=0))
    found = np.asarray(picture_encoder.shifted(many, jax.random.key(0)))[..., 0]
    seen = {allowed[np.ascontiguousarray(one, picture.dtype).tobytes()] for one in found}
    assert len(seen) == 25


def test_the_loss_is_the_cross_entropy_of_the_right_prompt_which_is_found_among_the_best():
    network = stirred()
    pixels = np.full((5, 32, 32, 1), 90, np.uint8)  # No shift changes it.
    prompts = jax.random.normal(jax.random.key(2), (4, 384))
    arrays = jnp.asarray(pixels), jnp.full(5, 2), prompts
    loss = jax.jit(functools.partial(picture_encoder._loss, batch=3))
    found = loss(network, arrays, jax.random.key(0))
    features = network(jnp.asarray(pixels / np.float32(255)))
    logits = np.asarray(network.logits(features, prompts), np.float64)[0]
    assert float(found) == pytest.approx(np.log(np.exp(logits).sum()) - logits[2], rel=1e-4)

    logits, kinds = np.array([[3.0, 2, 1], [3, 2, 1], [1, 1, 0]]), np.array([0, 1, 0])
    for best, wanted in ((1, [True, False, False]), (2, [True, True, True])):
        assert picture_encoder.found_among(logits, kinds, best).tolist() == wanted


def test_a_training_learns_what_is_not_held_out_and_is_kept(tmp_path, monkeypatch):
    """Of pictures with a bar that lies, stands or is not there, in noise."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=300)
    pixels = rng.integers(0, 60, size=(300, 32, 32, 1))
    pixels[kinds == 0, 12:20] += 150
    pixels[kinds == 1, :, 12:20] += 150
    found = pictures.Pictures(pixels.astype(np.uint8), kinds, rng.random(300) < 0.3)
    embeddings = np.random.default_rng(1).normal(size=(3, 2, 384)).astype(np.float32)
    prompts = pictures.Prompts(np.array(["lies", "stands", "none"]), embeddings)
    collection = pictures.Collection(
        "fashion", lambda _: found, lambda: prompts, pictures.digest_of(found), "here"
    )
    monkeypatch.setitem(pictures.COLLECTIONS, "fashion", collection)
    monkeypatch.setitem(picture_encoder.TRAININGS, "fashion", TINY)
    places = Places(cache=tmp_path, shipped=tmp_path)
    with pytest.raises(ValueError, match="no folder of pictures is given"):
        picture_encoder.load("fashion", places)
    found_there = dataclasses.replace(places, pictures=tmp_path)
    for seen, of in zip(found_there.seen("fashion"), (found.pixels, found.kinds), strict=True):
        np.testing.assert_array_equal(seen, of[~found.held_out])
    encoder = picture_encoder.load("fashion", found_there)
    mean = embeddings.mean(axis=1)
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    directions = picture_encoder.prompts_of("fashion")
    np.testing.assert_allclose(directions, unit, atol=1e-6)
    pixels, kinds = found.part(held_out=True)
    features = fitting.in_parts(encoder, pixels)
    logits = np.asarray(encoder.logits(jnp.asarray(features), directions))
    assert np.mean(picture_encoder.found_among(logits, kinds, 1)) > 0.95
    again = picture_encoder.load("fashion", places)  # Without pictures.
    chex.assert_trees_all_equal(again, encoder)


@pytest.mark.parametrize(("name", "best", "least"), [("fashion", 1, 0.88), ("emoji", 5, 0.53)])
def test_the_shipped_encoder_finds_the_prompts_of_shipped_held_out_features(name, best, least):
    encoder, pairs = picture_encoder.load(name), load(f"{name}_features")
    kinds = pairs.labels["kind"]
    judged = encoder.logits(jnp.asarray(pairs.outputs), picture_encoder.prompts_of(name))
    logits = np.asarray(judged)
    assert np.mean(picture_encoder.found_among(logits, kinds, best)) > least
    prompts = pictures.COLLECTIONS[name].prompts()
    np.testing.assert_array_equal(prompts.names[kinds], pairs.labels["types"])
    cosines = np.max(np.einsum("np,nwp->nw", pairs.prompts, prompts.embeddings[kinds]), axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-3)  # A wording of its own kind.


WIDTH, BATCH = 16, 64
# One Gaussian, N((2, 0), I): what a generator's mean must move to.
TARGET = Mixture(((2.0, 0.0),), 1.0, "one Gaussian")


def trainer(kind, **changes):
    training = mixture_gan.Training("", kind, steps=10_000, width=WIDTH, batch=BATCH)
    return mixture_gan.Trainer(dataclasses.replace(KINDS[kind], **changes), TARGET, training)


def test_good_samples_and_captured_modes_by_hand():
    mixture = Mixture(((0.0, 0.0), (1.0, 0.0)), 0.01, "two")
    points = np.array([[0, 0], [0.029, 0], [0.031, 0], [0.5, 0], [1, 0.029], [1, -0.031]])
    shares = mixture.good_shares(points)
    np.testing.assert_allclose(shares, [2 / 6, 1 / 6])
    assert mixture.captured(np.array([[0.05, 0.049], [0.5, 0.5], [0, 1]])).tolist() == [1, 2, 1]
    np.testing.assert_allclose(mixture.good_shares(points.reshape(2, 3, 2))[0], [2 / 3, 0])


@pytest.mark.parametrize("name", mixture_gan.MIXTURES)
def test_the_score_of_a_mixture_is_its_closed_form(name):
    mixture = mixture_gan.MIXTURES[name]
    for width in (0.05, 0.3, 2.0):
        expected = 1 / np.mean(mean_squared_kernels(mixture.centres, mixture.scale, width))
        assert mixture.rke(width) == pytest.approx(expected, rel=1e-4)
    modes = len(mixture.centres)
    assert mixture.rke(mixture.counting_bandwidth()) == pytest.approx(modes, rel=1e-3)


def test_losses_and_penalties_by_hand():
    """The penalty is that of the slope between the points."""
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
    real, fake = jax.random.normal(jax.random.key(0), (2, 50, 2))
    slope, key = jnp.array([0.6, 0.8]), jax.random.key(1)
    for factor in (0.0, 0.5, 1.0, 3.0):
        found = mixture_gan.gradient_penalty(lambda x, f=factor: f * x @ slope, real, fake, key)
        assert float(found) == pytest.approx((factor - 1) ** 2, abs=1e-5)

    def penalty(w):
        return mixture_gan.gradient_penalty(lambda x: w * x[:, 0], real, fake, key)

    assert np.isfinite(jax.grad(penalty)(0.0))


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
    # A step updates the critic as often as its kind says.
    networks, losses = run(of.step, of.start(jax.random.key(0)), 4)
    assert networks.critic_moments[0].count == 20 and networks.generator_moments[0].count == 4
    assert losses.shape == (4,)


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


SHORT = mixture_gan.Training("ring", "vanilla", steps=6, seeds=2, width=8, batch=16, points=3)


def test_networks_trained_side_by_side_are_those_trained_alone():
    alone, both = (mixture_gan.train(dataclasses.replace(SHORT, seeds=k)) for k in (1, 2))
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
