"""Latent diffusion: shapes by hand, trainings with a known answer."""

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.generators import diffusion, fitting, latent_diffusion, picture_encoder, pictures
from experiments.generators.fitting import Places
from experiments.generators.latent_diffusion import GRID, Autoencoder, Denoiser, Sizes, Training
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
    training = Training("fashion", SIZES, encoding_steps=3, denoising_steps=2, horizon=6, batch=4)
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
