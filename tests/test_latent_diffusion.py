"""Latent diffusion: shapes by hand, trainings with a known answer, runs that are taken up again."""

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.data import pictures
from experiments.generators import checkpoints, diffusion, fitting, latent_diffusion
from experiments.generators.fitting import Places, Trainer
from experiments.generators.latent_diffusion import GRID, Sizes, Training
from experiments.lab import store

SIZES = Sizes(channels=1, latent=2, hidden=8, blocks=1, patch=4, width=16, depth=1, heads=2)
IDENTITY = store.identify("small", 1, {"width": 16}, {}, 0)
# Two kinds, in two wordings each, and the latents of each: constants.
WORDINGS = np.random.default_rng(0).normal(size=(2, 2, 384)).astype(np.float32) / 20
LEVELS = np.array([1.0, -0.5], np.float32)
LATER = ("denoising_steps", "denoising_rate", "horizon")  # Of the denoiser alone.
DENOISE = jax.jit(functools.partial(latent_diffusion._denoise, SIZES))


@pytest.fixture(autouse=True)
def optax_promotes():
    """Adam takes a power of the float b1 and a whole number."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def denoising(steps, rate=3e-3, batch=32, horizon=None):
    graph, params = nnx.split(latent_diffusion._make_denoiser(SIZES))
    loss = latent_diffusion._denoising_loss(batch)
    arrays = (
        jnp.asarray(np.repeat(LEVELS, 4))[:, None, None, None] * jnp.ones((1, GRID, GRID, 2)),
        jnp.repeat(jnp.arange(2), 4),
        jnp.asarray(WORDINGS),
    )
    return Trainer(graph, loss, steps=steps, rate=rate, horizon=horizon), params, arrays


def fit(folder, trainer, params, arrays, say=lambda words: None, identity=IDENTITY):
    return fitting.fit(
        trainer, params, arrays, jax.random.key(0), identity=identity,
        places=Places(cache=folder, say=say), every=0.0,
    )  # fmt: skip


# --- networks ---------------------------------------------------------------------------------


def test_squares_of_positions_become_channels_and_come_back():
    x = jnp.arange(2 * 4 * 4 * 3.0).reshape(2, 4, 4, 3)
    deep = latent_diffusion.to_depth(x, 2)
    assert deep.shape == (2, 2, 2, 12)
    np.testing.assert_array_equal(deep[1, 0, 1], x[1, :2, 2:].reshape(-1))
    np.testing.assert_array_equal(latent_diffusion.from_depth(deep, 2), x)


def test_the_autoencoder_has_the_shapes_it_says():
    coder = latent_diffusion._make_autoencoder(dataclasses.replace(SIZES, channels=3))
    mean, log_variance = jax.eval_shape(coder.encode, jnp.ones((2, 32, 32, 3)))
    assert mean.shape == log_variance.shape == (2, GRID, GRID, 2)
    assert jax.eval_shape(coder.decode, mean).shape == (2, 32, 32, 3)


def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_a_layer_is_scaled_shifted_attention_and_a_gated_network():
    """Against NumPy in float64, head by head."""
    layer = latent_diffusion.Layer(8, 2, rngs=nnx.Rngs(1))
    rng = np.random.default_rng(0)
    x, condition, table = (rng.normal(size=shape) for shape in ((2, 3, 8), (2, 6, 8), (6, 8)))
    layer.table[...] = jnp.asarray(table, jnp.float32)
    weights = {
        name: [np.asarray(part, np.float64) for part in (of.kernel[...], of.bias[...])]
        for name in ("mix", "out", "up", "down")
        for of in (getattr(layer, name),)
    }

    def linear(name, rows):
        return rows @ weights[name][0] + weights[name][1]

    def normal(rows):
        return (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-6)

    expected = []
    for tokens, given in zip(x, condition + table, strict=True):
        shift, scale, gate, shift_up, scale_up, gate_up = given
        q, k, v = np.split(linear("mix", normal(tokens) * (1 + scale) + shift), 3, axis=1)
        heads = [
            softmax(q[:, part] @ k[:, part].T / 2) @ v[:, part]
            for part in (slice(0, 4), slice(4, 8))
        ]
        tokens = tokens + gate * linear("out", np.concatenate(heads, axis=1))
        inner = linear("up", normal(tokens) * (1 + scale_up) + shift_up)
        gelu = inner / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        expected.append(tokens + gate_up * linear("down", gelu))
    found = nnx.jit(lambda own, *given: own(*given))(
        layer, jnp.asarray(x, jnp.float32), jnp.asarray(condition, jnp.float32)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_before_its_training_a_denoiser_says_that_v_is_zero():
    params = nnx.state(latent_diffusion._make_denoiser(SIZES))
    latents = jax.random.normal(jax.random.key(0), (3, GRID, GRID, 2))
    time = jnp.asarray(0.3)
    found = DENOISE(params, latents, time, jnp.ones((3, 384)))
    np.testing.assert_allclose(found, np.cos(0.15 * np.pi) * latents, rtol=1e-6)


# --- trainings --------------------------------------------------------------------------------


def test_the_denoiser_learns_what_its_prompts_show(tmp_path):
    """Every kind is one picture: E[x | z, prompt] is that picture, without a prompt their mean."""
    trainer, params, arrays = denoising(400)
    found = fit(tmp_path, trainer, params, arrays)
    noisy = jax.random.normal(jax.random.key(1), (6, GRID, GRID, 2))
    prompts = jnp.asarray(np.concatenate([WORDINGS.reshape(4, -1), np.zeros((2, 384), "f4")]))
    clean = DENOISE(found, noisy, jnp.asarray(0.9), prompts)
    means = np.asarray(clean).mean((1, 2, 3))
    np.testing.assert_allclose(means, [1, 1, -0.5, -0.5, 0.25, 0.25], atol=0.2)
    assert not list(tmp_path.iterdir())


def test_the_loss_is_the_squared_error_of_v_at_the_time_that_the_model_sees():
    class Exact:
        """Knows that all latents are `level`: v = (alpha z - level) / sigma."""

        def __call__(self, latents, times, prompts):
            given.append(np.abs(prompts).max(1) > 0)
            signal, spread = (
                f(times)[:, None, None, None] for f in (diffusion.alpha, diffusion.sigma)
            )
            return (signal * latents - level) / spread

    given, level = [], 0.7
    loss = latent_diffusion._denoising_loss(512)
    arrays = jnp.full((5, GRID, GRID, 2), level), jnp.zeros(5, int), jnp.asarray(WORDINGS)
    assert float(loss(Exact(), arrays, jax.random.key(0))) < 1e-6
    # A tenth of the prompts are left out.
    assert 0.85 < given[0].mean() < 0.95
    level = 0.0
    assert float(loss(Exact(), arrays, jax.random.key(0))) > 0.1


def test_the_autoencoder_learns_to_give_back_its_pictures(tmp_path):
    sizes = dataclasses.replace(SIZES, hidden=16)
    pixels = jnp.asarray(np.repeat([40, 215], 4).astype(np.uint8))[:, None, None, None]
    pixels = jnp.broadcast_to(pixels, (8, 32, 32, 1))
    graph, params = nnx.split(latent_diffusion._make_autoencoder(sizes))
    trainer = Trainer(graph, latent_diffusion._autoencoding_loss(8), steps=150, rate=5e-3)
    lines = []
    found = fit(tmp_path, trainer, params, pixels, say=lines.append)
    latents = latent_diffusion._encode(sizes, found, pixels[::4] / 255)
    errors = np.abs(latent_diffusion._decode(sizes, found, latents) - pixels[::4] / 255)
    assert errors.mean() < 0.1
    assert [line.split(":")[0] for line in lines] == ["small 100 of 150", "small 150 of 150"]


def test_averages_follow_the_parameters_slowly():
    trainer, params, arrays = denoising(200)
    at = trainer.start(params)
    history = [np.asarray(at.params["leave"]["bias"][...])]
    for _ in range(20):
        at, _ = trainer.advance(at, arrays, jax.random.key(0))
        history.append(np.asarray(at.params["leave"]["bias"][...]))
    average = history[0].astype(np.float64)
    for step, bias in enumerate(history[1:]):
        keep = min(0.999, (1 + step) / (10 + step))
        average = keep * average + (1 - keep) * bias
    np.testing.assert_allclose(at.average["leave"]["bias"][...], average, rtol=1e-4, atol=1e-7)
    assert int(at.step) == 20


def test_a_training_may_end_before_its_horizon(tmp_path):
    """What is done by then is what the longer training had done."""
    (short, params, arrays), (longer, _, _) = denoising(100, horizon=200), denoising(200)
    at, key = longer.start(params), jax.random.key(0)
    for _ in range(100):
        at, _ = longer.advance(at, arrays, key)
    found = fit(tmp_path, short, params, arrays)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(at.average), strict=True):
        np.testing.assert_array_equal(one, other)
    ended = fit(tmp_path, denoising(100)[0], params, arrays)
    assert (found["leave"]["kernel"][...] != ended["leave"]["kernel"][...]).any()


def test_an_interrupted_training_goes_on_where_it_was(tmp_path):
    trainer, params, arrays = denoising(250)
    whole = fit(tmp_path / "whole", trainer, params, arrays)
    lines = []

    def interrupted(words):
        lines.append(words)
        if "200" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "other", trainer, params, arrays, interrupted)
    assert len(list((tmp_path / "other").iterdir())) == 1
    found = fit(tmp_path / "other", trainer, params, arrays, lines.append)
    assert [line.split(":")[0].split()[1] for line in lines] == ["100", "200", "200", "250"]
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not list((tmp_path / "other").iterdir())


def test_the_state_of_another_or_a_damaged_training_is_named_and_left(tmp_path):
    trainer, params, arrays = denoising(20)
    whole = fit(tmp_path, trainer, params, arrays)
    path = tmp_path / checkpoints.file_name(IDENTITY).replace(".safetensors", ".unfinished")
    path.write_bytes(b"damaged")
    lines = []
    again = fit(tmp_path, trainer, params, arrays, lines.append)
    assert "damaged" in lines[0] and str(path) in lines[0] and "anew" in lines[0]
    np.testing.assert_array_equal(whole["leave"]["bias"][...], again["leave"]["bias"][...])


def test_a_training_that_diverges_says_so(tmp_path):
    trainer, params, arrays = denoising(20)
    arrays = (arrays[0].at[0].set(jnp.nan), *arrays[1:])
    with pytest.raises(FloatingPointError, match="small: the loss is nan at step 0"):
        fit(tmp_path, trainer, params, arrays)


# --- models -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A collection of sixteen pictures, trained for three updates."""
    rng = np.random.default_rng(0)
    read = pictures.Pictures(
        rng.integers(0, 256, (16, 32, 32, 1), np.uint8), np.arange(16) % 2, np.arange(16) >= 12
    )
    prompts = pictures.Prompts(np.array(["one", "two"]), WORDINGS)
    collection = pictures.Collection(
        "fashion", lambda folder: read, lambda: prompts, 1, pictures.digest_of(read), "ask for them"
    )
    monkeypatch.setitem(pictures.COLLECTIONS, "fashion", collection)
    training = Training("fashion", SIZES, encoding_steps=3, denoising_steps=3, horizon=3, batch=4)
    monkeypatch.setitem(latent_diffusion.TRAININGS, "fashion", training)
    return Places(tmp_path, tmp_path / "cache", tmp_path / "shipped"), training, read


def test_a_model_is_trained_once_and_then_read(small, monkeypatch):
    places, training, read = small
    model = latent_diffusion.load("fashion", places)
    monkeypatch.setattr(fitting, "fit", None)
    again = latent_diffusion.load("fashion", dataclasses.replace(places, pictures=None))
    for one, other in zip(
        jax.tree.leaves((model.coder, model.params)),
        jax.tree.leaves((again.coder, again.params)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert {path.suffix for path in places.cache.iterdir()} == {".safetensors"}
    # Latents of the training pictures, and of nothing else, have zero mean and unit variance.
    latents = np.asarray(model.encode(jnp.asarray(read.pixels[:12] / np.float32(255))))
    np.testing.assert_allclose(latents.mean((0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(latents.std((0, 1, 2)), 1, rtol=1e-4)
    shown = model.decode(jnp.asarray(latents))
    assert shown.shape == (12, 32, 32, 1)
    assert float(shown.min()) >= 0 and float(shown.max()) <= 1


def test_every_number_of_a_training_is_in_its_identity(small):
    _, training, _ = small
    for name in ("encoding_steps", "batch", "encoding_rate", *LATER):
        other = dataclasses.replace(training, **{name: getattr(training, name) * 2})
        assert latent_diffusion.identity(other) != latent_diffusion.identity(training)
        found, before = map(latent_diffusion.coder_identity, (other, training))
        assert (found != before) == (name not in LATER)
    for field in dataclasses.fields(SIZES):
        sizes = dataclasses.replace(SIZES, **{field.name: getattr(SIZES, field.name) * 2})
        other = dataclasses.replace(training, sizes=sizes)
        assert latent_diffusion.identity(other) != latent_diffusion.identity(training)


def test_what_cannot_be_loaded_is_said_in_a_line(small):
    places, _, _ = small
    with pytest.raises(ValueError, match="model: expected one of fashion, emoji, received 'cars'"):
        latent_diffusion.load("cars", places)
    with pytest.raises(ValueError, match="fashion: no folder of pictures is given; ask for them"):
        latent_diffusion.load("fashion", dataclasses.replace(places, pictures=None))
    with pytest.raises(ValueError, match="no such folder"):
        latent_diffusion.load("fashion", dataclasses.replace(places, pictures=places.shipped))


def test_samples_follow_their_key_and_their_prompts(small):
    places, _, _ = small
    model = latent_diffusion.load("fashion", places)
    prompts = jnp.asarray(WORDINGS[0])

    def draw(key, prompts=prompts):
        denoise = diffusion.guided(model.denoise, model.unconditional, 2.0)
        return diffusion.sample(denoise, jax.random.key(key), prompts, shape=model.shape, steps=3)[
            0
        ]

    np.testing.assert_array_equal(draw(0), draw(0))
    assert (draw(0) != draw(1)).any()
    assert (draw(0) != draw(0, jnp.asarray(WORDINGS[1]))).any()


def test_samplers_of_one_model_are_compiled_once(small):
    model = latent_diffusion.load("fashion", small[0])
    structures = [jax.tree.structure(model.denoise) for _ in range(2)]
    assert structures[0] == structures[1]


# --- command lines ----------------------------------------------------------------------------


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True)


@pytest.mark.parametrize("module", ["latent_diffusion", "picture_encoder"])
def test_a_model_needs_the_name_of_a_collection(module):
    whole = "-m", f"experiments.generators.{module}"
    done = python(*whole)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.endswith(": expected one of fashion, emoji, received ''.\n")
    assert done.stderr.count("\n") == 1
    assert all(flag in python(*whole, "--help").stdout for flag in ("--output", "--pictures"))


def test_flags_say_where_a_training_finds_and_leaves_things():
    program = """
from experiments.generators import fitting
fitting.run(lambda name, p: p.say(f"{name} {p.pictures} {p.cache} {p.shipped}"))
"""
    done = python("-c", program, "fashion", "--output=a", "--pictures=b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "fashion b a a\n")
    done = python("-c", program, "fashion", "emoji")
    assert done.returncode == 2 and "unexpected argument 'emoji'" in done.stderr
