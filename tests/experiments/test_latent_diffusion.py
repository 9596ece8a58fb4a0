"""Latent diffusion: shapes by hand, trainings with a known answer, runs that are taken up again."""

import dataclasses
import functools
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import records
from experiments.data import pictures
from experiments.generators import checkpoints, diffusion, fitting, latent_diffusion
from experiments.generators.fitting import Places, Trainer
from experiments.generators.latent_diffusion import GRID, Sizes, Training

pytestmark = pytest.mark.slow

SIZES = Sizes(channels=1, latent=2, hidden=8, blocks=1, patch=4, width=16, depth=1, heads=2)
IDENTITY = records.identify("small", 1, {"width": 16}, {}, 0)
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


def test_log_variances_stay_where_their_exponentials_are_finite():
    coder = latent_diffusion._make_autoencoder(SIZES)
    coder.moments.kernel[...] *= 0
    coder.moments.bias[...] = jnp.array([0.0, 3.0, 1e3, -1e3])
    mean, log_variance = coder.encode(jnp.ones((1, 32, 32, 1)))
    np.testing.assert_array_equal(mean[0, 0, 0], [0, 3])
    np.testing.assert_array_equal(log_variance[0, 0, 0], [5, -20])


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
            given.append((np.abs(prompts).max(1) > 0, np.asarray(times)))
            signal, spread = (
                f(times)[:, None, None, None] for f in (diffusion.alpha, diffusion.sigma)
            )
            return (signal * latents - level) / spread

    given, level = [], 0.7
    loss = latent_diffusion._denoising_loss(512)
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
    found = latent_diffusion._autoencoding_loss(40)(Constant(), pixels, jax.random.key(0))
    divergence = (4 + 9 - 1 - np.log(9)) / 2
    assert float(found) == pytest.approx(0.1 + 5 * 0.01 + 1e-4 * divergence, rel=1e-5)
    assert drawn[0].shape == (40, GRID, GRID, 2)
    # Within five errors of 5,120 draws.
    assert abs(drawn[0].mean() - 2) < 0.2 and abs(drawn[0].std() - 3) < 0.15


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


def test_updates_are_adams_with_clipped_slopes_and_decaying_weights():
    """Against NumPy in float64: up to the rate in a tenth of the horizon, then down as a cosine."""

    def loss(model, arrays, key):
        return jnp.sum(jnp.square(model.kernel[...])) / 2  # Its slope is the kernel.

    graph, params = nnx.split(nnx.Linear(2, 1, use_bias=False, rngs=nnx.Rngs(0)))
    params["kernel"][...] = jnp.array([[2.0], [-1.5]])
    rate, horizon = 0.1, 40
    trainer = Trainer(graph, loss, steps=30, rate=rate, horizon=horizon)
    at, found = trainer.start(params), []
    x, mean, square = np.array([2.0, -1.5]), np.zeros(2), np.zeros(2)
    expected, norms = [], []
    for step in range(30):
        at, _ = trainer.advance(at, None, jax.random.key(0))
        found.append(np.asarray(at.params["kernel"][...])[:, 0])
        norms.append(np.linalg.norm(x))
        slope = x / max(1.0, norms[-1])
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        way = mean / (1 - 0.9 ** (step + 1)) / np.sqrt(square / (1 - 0.999 ** (step + 1)))
        down = 0.01 + 0.99 * (1 + np.cos(np.pi * (step - 4) / (horizon - 4))) / 2
        x = x - rate * (step / 4 if step < 4 else down) * (way + 1e-3 * x)
        expected.append(x)
    assert norms[0] > 2 and norms[-1] < 0.9  # Clipped at first, and no longer.
    # In float32 one less 0.999 to a power of few steps is right to three or four digits.
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=3e-5)


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
    chex.assert_trees_all_equal(found, at.average)
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
    chex.assert_trees_all_equal(whole, found)
    assert not list((tmp_path / "other").iterdir())


def test_a_training_is_written_down_now_and_then(tmp_path, monkeypatch):
    """A line takes fifty seconds here: the third is the first after two minutes."""
    trainer, params, arrays = denoising(14)
    lines, written = [], []
    monkeypatch.setattr(fitting, "_STEPS_A_LINE", 2)
    monkeypatch.setattr(fitting.time, "monotonic", lambda: 50.0 * len(lines))
    monkeypatch.setattr(
        checkpoints, "save", lambda path, tree, identity: written.append((len(lines), int(tree[0])))
    )
    places = Places(cache=tmp_path, say=lines.append)
    fitting.fit(trainer, params, arrays, jax.random.key(0), identity=IDENTITY, places=places)
    assert len(lines) == 7 and written == [(3, 6), (6, 12)]


def test_the_state_of_another_or_a_damaged_training_is_named_and_left(tmp_path):
    trainer, params, arrays = denoising(20)
    whole = fit(tmp_path, trainer, params, arrays)
    path = tmp_path / checkpoints.file_name(IDENTITY).replace(".safetensors", ".unfinished")
    at, _ = trainer.advance(trainer.start(params), arrays, jax.random.key(1))
    leaves = dict(enumerate(jax.tree.leaves(at)))
    other = records.identify("small", 1, {"width": 32}, {}, 0)
    for write, words in (
        (lambda: path.write_bytes(b"damaged"), "damaged"),
        (lambda: checkpoints.save(path, leaves, other), "of another training (width"),
    ):
        write()
        lines = []
        again = fit(tmp_path, trainer, params, arrays, lines.append)
        assert words in lines[0] and str(path) in lines[0] and "anew" in lines[0]
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
    stored = [checkpoints.load(path) for path in places.cache.iterdir()]
    networks = [tree[name] for tree in stored for name in ("coder", "denoiser") if name in tree]
    assert len(networks) == 2
    assert {leaf.dtype for leaf in jax.tree.leaves(networks)} == {np.dtype(np.float16)}
    # Latents of the training pictures, and of nothing else, have zero mean and unit variance.
    latents = np.asarray(model.encode(jnp.asarray(read.pixels[:12] / np.float32(255))))
    np.testing.assert_allclose(latents.mean((0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(latents.std((0, 1, 2)), 1, rtol=1e-4)
    shown = model.decode(jnp.asarray(latents))
    assert shown.shape == (12, 32, 32, 1)
    wild = model.decode(jnp.asarray(1000 * latents))
    assert float(wild.min()) == 0 and float(wild.max()) == 1
    raw = latent_diffusion._encode(SIZES, model.coder, read.pixels[:12] / np.float32(255))
    np.testing.assert_allclose(shown, latent_diffusion._decode(SIZES, model.coder, raw), atol=1e-4)


def test_the_denoiser_is_trained_on_scaled_latents_for_as_long_as_is_said(small, monkeypatch):
    places, training, read = small
    training = dataclasses.replace(training, denoising_steps=2, horizon=6)
    trainers, fits = [], []
    fit = fitting.fit
    monkeypatch.setattr(
        fitting,
        "Trainer",
        lambda *given, **names: trainers.append(names) or Trainer(*given, **names),
    )
    monkeypatch.setattr(fitting, "fit", lambda *given, **n: fits.append(given) or fit(*given, **n))
    latent_diffusion.load("fashion", places, training=training)
    assert trainers == [
        {"steps": 3, "rate": training.encoding_rate},
        {"steps": 2, "rate": training.denoising_rate, "horizon": 6},
    ]
    (*_, pixels, first), (*_, (latents, kinds, wordings), second) = fits
    np.testing.assert_array_equal(pixels, read.pixels[:12])
    np.testing.assert_allclose(np.mean(latents, (0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(np.std(latents, (0, 1, 2)), 1, rtol=1e-4)
    np.testing.assert_array_equal(kinds, read.kinds[:12])
    np.testing.assert_array_equal(wordings, WORDINGS)
    assert first != second  # Keys.


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
