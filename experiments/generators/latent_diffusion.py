"""Text-conditioned latent diffusion of small pictures, trained here on real ones.

    python -m experiments.generators.latent_diffusion fashion --pictures=DIR

A variational autoencoder of convolutions takes a picture of 32 x 32 pixels to 8 x 8 positions of a
few channels (Rombach et al. 2022); a transformer over patches of these denoises them, its layers
scaled and shifted by the time and by the MiniLM embedding of the prompt (Peebles and Xie 2023; one
table for all layers, as in PixArt). It is trained to predict v (Salimans and Ho 2022) under the
cosine schedule, with a tenth of the prompts left out for classifier-free guidance, and sampled with
an average of its parameters. A training that is interrupted goes on where it was.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import records
from experiments.data import pictures
from experiments.generators import checkpoints, diffusion, fitting

VERSION = 1
SEED = 0
GRID = 8  # Positions along each side of the latents.
_DROPPED = 0.1  # Prompts that are left out, for classifier-free guidance.
_DIVERGENCE = 1e-4  # Weight of the autoencoder's divergence from a Gaussian, a latent.
_FREQUENCIES = 32
_ANGLES = np.pi * 2.0 ** np.linspace(-1, 8, _FREQUENCIES, dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large the two networks are.

    Attributes:
      channels: of the pictures.
      latent: channels of the latents.
      hidden: channels of the autoencoder.
      blocks: residual blocks of its decoder at the latents' positions.
      patch: positions along each side of a token of the denoiser.
      width: of its tokens.
      depth: its layers.
      heads: of its attention.
      prompt: entries of a prompt's embedding.
    """

    channels: int
    latent: int
    hidden: int
    blocks: int
    patch: int
    width: int
    depth: int
    heads: int
    prompt: int = 384


@dataclasses.dataclass(frozen=True)
class Training:
    """How the two networks are trained.

    Attributes:
      collection: of pictures, one of `pictures.COLLECTIONS`.
      sizes: of the networks.
      encoding_steps: updates of the autoencoder.
      denoising_steps: updates of the denoiser.
      horizon: updates over which its rate falls as a cosine, of which the last may not be reached.
      batch: pictures an update.
      encoding_rate: largest rate of Adam for the autoencoder.
      denoising_rate: largest rate for the denoiser.
    """

    collection: str
    sizes: Sizes
    encoding_steps: int
    denoising_steps: int
    horizon: int
    batch: int = 128
    encoding_rate: float = 2e-3
    denoising_rate: float = 1e-3


TRAININGS = {
    "fashion": Training(
        "fashion",
        Sizes(channels=1, latent=4, hidden=32, blocks=2, patch=2, width=96, depth=4, heads=4),
        encoding_steps=3_000,
        denoising_steps=6_000,
        horizon=12_000,
    ),
    "emoji": Training(
        "emoji",
        Sizes(channels=3, latent=8, hidden=64, blocks=3, patch=4, width=224, depth=4, heads=7),
        encoding_steps=2_500,
        denoising_steps=12_000,
        horizon=12_000,
    ),
}


Convolve = Callable[..., jax.Array]


def as_product(x: jax.Array, kernel: jax.Array, *_: Any, **__: Any) -> jax.Array:
    """`jax.lax.conv_general_dilated` by an odd kernel, of the same size, as a matrix product.

    In the loops of a sampler XLA's own convolutions take ten times as long on CPUs.

    Args:
      x: `[b, h, w, c]`.
      kernel: `[rows, columns, c, d]`.

    Returns:
      `[b, h, w, d]`.
    """
    (rows, columns), channels = kernel.shape[:2], kernel.shape[-1]
    h, w = x.shape[1:3]
    wide = jnp.pad(x, ((0, 0), (rows // 2,) * 2, (columns // 2,) * 2, (0, 0)))
    moved = [wide[:, i : i + h, j : j + w] for i in range(rows) for j in range(columns)]
    return jnp.matmul(jnp.concatenate(moved, axis=-1), kernel.reshape(-1, channels))


class Residual(nnx.Module):
    """Two 3 x 3 convolutions added to what comes in, `[b, h, w, c]`."""

    def __init__(
        self, channels: int, *, rngs: nnx.Rngs, convolve: Convolve = jax.lax.conv_general_dilated
    ):
        options: Any = {"rngs": rngs, "conv_general_dilated": convolve}
        zeros = nnx.initializers.zeros
        self.norm = nnx.LayerNorm(channels, rngs=rngs)
        self.first = nnx.Conv(channels, channels, (3, 3), **options)
        self.second = nnx.Conv(channels, channels, (3, 3), kernel_init=zeros, **options)

    def __call__(self, x: jax.Array) -> jax.Array:
        """The same shape."""
        return x + self.second(nnx.silu(self.first(nnx.silu(self.norm(x)))))


class Autoencoder(nnx.Module):
    """Pictures `[b, 32, 32, channels]` in [0, 1] to latents `[b, 8, 8, latent]` and back."""

    def __init__(
        self, sizes: Sizes, *, rngs: nnx.Rngs, convolve: Convolve = jax.lax.conv_general_dilated
    ):
        patch, hidden = (pictures.SIDE // GRID) ** 2, sizes.hidden
        residual = functools.partial(Residual, rngs=rngs, convolve=convolve)
        self.enter = nnx.Linear(patch * sizes.channels, hidden, rngs=rngs)
        self.reading = nnx.List([residual(hidden)])
        self.moments = nnx.Linear(hidden, 2 * sizes.latent, rngs=rngs)
        self.leave = nnx.Linear(sizes.latent, hidden, rngs=rngs)
        self.coarse = nnx.List(residual(hidden) for _ in range(sizes.blocks))
        self.widen = nnx.Linear(hidden, 2 * hidden, rngs=rngs)
        self.fine = nnx.List([residual(hidden // 2)])
        self.paint = nnx.Conv(
            *(hidden // 2, 4 * sizes.channels, (3, 3)), rngs=rngs, conv_general_dilated=convolve
        )

    def encode(self, pixels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Means and log-variances of the latents; these in bounds, as `exp` is taken of them."""
        x = self.enter(to_depth(2 * pixels - 1, pictures.SIDE // GRID))
        for block in self.reading:
            x = block(x)
        mean, log_variance = jnp.split(self.moments(x), 2, axis=-1)
        return mean, jnp.clip(log_variance, -20, 5)

    def decode(self, latents: jax.Array) -> jax.Array:
        """Pictures; a little outside [0, 1] where the network overshoots."""
        x = self.leave(latents)
        for block in self.coarse:
            x = block(x)
        x = from_depth(self.widen(x), 2)
        for block in self.fine:
            x = block(x)
        return (from_depth(self.paint(nnx.silu(x)), 2) + 1) / 2


def to_depth(x: jax.Array, side: int) -> jax.Array:
    """Squares of side x side positions as channels of one."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // side, side, w // side, side, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, h // side, w // side, side * side * c)


def from_depth(x: jax.Array, side: int) -> jax.Array:
    """The inverse of `to_depth`."""
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, side, side, c // side**2)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, h * side, w * side, c // side**2)


class Layer(nnx.Module):
    """A layer of the transformer, scaled and shifted by a condition."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs):
        self.heads = heads
        self.mix = nnx.Linear(width, 3 * width, rngs=rngs)
        self.out = nnx.Linear(width, width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)
        self.table = nnx.Param(jnp.zeros((6, width)))

    def __call__(self, x: jax.Array, condition: jax.Array) -> jax.Array:
        """Tokens `[b, tokens, width]` under conditions `[b, 6, width]`."""
        parts = (condition + self.table[...][None])[:, :, None]
        shift, scale, gate, shift_up, scale_up, gate_up = parts.swapaxes(0, 1)
        b, tokens, width = x.shape
        mixed = self.mix(_normal(x) * (1 + scale) + shift)
        q, k, v = mixed.reshape(b, tokens, 3, self.heads, -1).transpose(2, 0, 1, 3, 4)
        attended = jax.nn.dot_product_attention(q, k, v).reshape(b, tokens, width)
        x = x + gate * self.out(attended)
        inner = nnx.gelu(self.up(_normal(x) * (1 + scale_up) + shift_up))
        return x + gate_up * self.down(inner)


def _normal(x: jax.Array) -> jax.Array:
    """Rows of zero mean and unit variance."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-6)


class Denoiser(nnx.Module):
    """v of noised latents: v = alpha eps - sigma x."""

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        width, side = sizes.width, GRID // sizes.patch
        self.sizes = sizes
        token = sizes.latent * sizes.patch**2
        self.enter = nnx.Linear(token, width, rngs=rngs)
        self.places = nnx.Param(0.02 * jax.random.normal(rngs.params(), (side * side, width)))
        self.clock = nnx.Linear(2 * _FREQUENCIES, width, rngs=rngs)
        self.prompt = nnx.Linear(sizes.prompt, width, rngs=rngs)
        self.prompt_inner = nnx.Linear(width, width, rngs=rngs)
        self.modulate = nnx.Linear(width, 6 * width, rngs=rngs)
        self.layers = nnx.List(Layer(width, sizes.heads, rngs=rngs) for _ in range(sizes.depth))
        self.final = nnx.Linear(width, 2 * width, kernel_init=nnx.initializers.zeros, rngs=rngs)
        self.leave = nnx.Linear(width, token, kernel_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, latents: jax.Array, times: jax.Array, prompts: jax.Array) -> jax.Array:
        """v `[b, 8, 8, latent]` of latents, times `[b]` and prompts `[b, p]` (zeros: none)."""
        x = to_depth(latents, self.sizes.patch)
        side = x.shape[1]
        x = self.enter(x.reshape(len(x), side * side, -1)) + self.places[...][None]
        angles = times[:, None] * _ANGLES[None]
        clock = self.clock(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1))
        words = self.prompt_inner(nnx.silu(self.prompt(prompts * self.sizes.prompt**0.5)))
        condition = nnx.silu(clock + words)
        modulation = self.modulate(condition).reshape(len(x), 6, -1)
        for layer in self.layers:
            x = layer(x, modulation)
        shift, scale = jnp.split(self.final(condition)[:, None], 2, axis=-1)
        x = self.leave(_normal(x) * (1 + scale) + shift)
        return from_depth(x.reshape(len(x), side, side, -1), self.sizes.patch)


def _autoencoding_loss(batch: int) -> Callable[[Any, Any, jax.Array], jax.Array]:
    """Absolute and squared errors a pixel, and the divergence of the latents from a Gaussian."""

    def loss(model: Autoencoder, pixels: jax.Array, key: jax.Array) -> jax.Array:
        rows, noise = jax.random.split(key)
        real = pixels[jax.random.randint(rows, (batch,), 0, len(pixels))].astype(jnp.float32) / 255
        mean, log_variance = model.encode(real)
        drawn = mean + jnp.exp(log_variance / 2) * jax.random.normal(noise, mean.shape)
        decoded = model.decode(drawn)
        # Other shapes would broadcast to a number that can be trained as well.
        chex.assert_equal_shape([decoded, real])
        error = decoded - real
        divergence = jnp.mean(jnp.square(mean) + jnp.exp(log_variance) - 1 - log_variance) / 2
        return jnp.mean(jnp.abs(error) + 5 * jnp.square(error)) + _DIVERGENCE * divergence

    return loss


def _denoising_loss(batch: int) -> Callable[[Any, Any, jax.Array], jax.Array]:
    """Squared error of v at uniform times; the wording of a prompt is drawn anew each time."""

    def loss(model: Denoiser, arrays: Any, key: jax.Array) -> jax.Array:
        latents, kinds, wordings = arrays
        rows, words, clock, noise, left_out = jax.random.split(key, 5)
        rows = jax.random.randint(rows, (batch,), 0, len(latents))
        words = jax.random.randint(words, (batch,), 0, wordings.shape[1])
        clean, prompts = latents[rows], wordings[kinds[rows], words]
        prompts *= jax.random.bernoulli(left_out, 1 - _DROPPED, (batch, 1))
        # One time in each part of the interval: what the draw of times adds to the noise is least.
        times = (jnp.arange(batch) + jax.random.uniform(clock, (batch,))) / batch
        signal, spread = (f(times)[:, None, None, None] for f in (diffusion.alpha, diffusion.sigma))
        drawn = jax.random.normal(noise, clean.shape)
        found = model(signal * clean + spread * drawn, times, prompts)
        chex.assert_equal_shape([found, clean])
        return jnp.mean(jnp.square(found - (signal * drawn - spread * clean)))

    return loss


def _make_autoencoder(sizes: Sizes, seed: int = SEED) -> Autoencoder:
    return Autoencoder(sizes, rngs=nnx.Rngs(seed))


def _make_looped(sizes: Sizes) -> Autoencoder:
    """The autoencoder for the loops of a sampler."""
    return Autoencoder(sizes, rngs=nnx.Rngs(SEED), convolve=as_product)


def _make_denoiser(sizes: Sizes, seed: int = SEED) -> Denoiser:
    return Denoiser(sizes, rngs=nnx.Rngs(seed))


@dataclasses.dataclass(frozen=True)
class Model:
    """A trained model, with what its samplers need.

    Attributes:
      training: how it was trained.
      prompts: the names and wordings that it knows.
      coder: parameters of the autoencoder.
      shift: mean of the latents of the training pictures, `[latent]`.
      scale: their standard deviation, `[latent]`.
      params: of the denoiser.
    """

    training: Training
    prompts: pictures.Prompts
    coder: Any
    shift: jax.Array
    scale: jax.Array
    params: Any

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one picture's latents."""
        return GRID, GRID, self.training.sizes.latent

    @property
    def unconditional(self) -> jax.Array:
        """The prompt that stands for none, `[p]`."""
        return jnp.zeros(self.training.sizes.prompt)

    @property
    def denoise(self) -> diffusion.Denoiser:
        """Clean latents of noisy ones `[b, 8, 8, latent]`, of unit variance in all."""
        return jax.tree_util.Partial(_denoiser_of(self.training.sizes), self.params)

    def encode(self, pixels: jax.Array) -> jax.Array:
        """Latents of pictures `[b, 32, 32, channels]` in [0, 1]."""
        found = _encode(self.training.sizes, self.coder, pixels)
        return (found - self.shift[None, None, None]) / self.scale[None, None, None]

    def decode(self, latents: jax.Array) -> jax.Array:
        """Pictures in [0, 1] of latents."""
        raw = latents * self.scale[None, None, None] + self.shift[None, None, None]
        return _decode(self.training.sizes, self.coder, raw)


@functools.cache
def _graph(make: Callable[[Sizes], nnx.Module], sizes: Sizes) -> nnx.GraphDef:
    return nnx.graphdef(nnx.eval_shape(lambda: make(sizes)))


@functools.cache
def _denoiser_of(sizes: Sizes) -> Callable[..., jax.Array]:
    """The same function whenever it is asked for: another one would be compiled again."""
    return functools.partial(_denoise, sizes)


def _denoise(
    sizes: Sizes, params: Any, latents: jax.Array, time: jax.Array, prompts: jax.Array
) -> jax.Array:
    model = nnx.merge(_graph(_make_denoiser, sizes), params)
    found = model(latents, jnp.broadcast_to(time, latents.shape[:1]), prompts)
    return diffusion.alpha(time) * latents - diffusion.sigma(time) * found


@functools.partial(jax.jit, static_argnums=0)
def _encode(sizes: Sizes, coder: Any, pixels: jax.Array) -> jax.Array:
    return nnx.merge(_graph(_make_autoencoder, sizes), coder).encode(pixels)[0]


@functools.partial(jax.jit, static_argnums=0)
def _decode(sizes: Sizes, coder: Any, latents: jax.Array) -> jax.Array:
    return jnp.clip(nnx.merge(_graph(_make_looped, sizes), coder).decode(latents), 0, 1)


def coder_identity(training: Training) -> records.Identity:
    """Whose the parameters of the autoencoder are; losses and networks are `VERSION`'s."""
    sizes = training.sizes
    settings = {
        **{name: getattr(sizes, name) for name in ("channels", "latent", "hidden", "blocks")},
        **{name: getattr(training, name) for name in ("encoding_steps", "encoding_rate", "batch")},
        "pictures": pictures.COLLECTIONS[training.collection].digest,
        "divergence": _DIVERGENCE,
        "average": fitting.AVERAGE,
    }
    name = f"latent_diffusion-{training.collection}-autoencoder"
    return records.identify(name, VERSION, settings, {}, SEED)


def identity(training: Training) -> records.Identity:
    """Whose the parameters of the denoiser are."""
    prompts = pictures.COLLECTIONS[training.collection].prompts()
    settings = {
        **dataclasses.asdict(training),
        "autoencoder": records.digest(coder_identity(training)),
        "left_out": _DROPPED,
        "average": fitting.AVERAGE,
    }
    name = f"latent_diffusion-{training.collection}-denoiser"
    return records.identify(name, VERSION, settings, {"prompts": prompts.embeddings}, SEED)


def train_coder(training: Training, pixels: np.ndarray, places: fitting.Places) -> dict[str, Any]:
    """Trains the autoencoder on pictures uint8 `[n, 32, 32, channels]`."""
    graph, params = nnx.split(_make_autoencoder(training.sizes))
    loss = _autoencoding_loss(training.batch)
    trainer = fitting.Trainer(
        graph, loss, steps=training.encoding_steps, rate=training.encoding_rate
    )
    found = fitting.fit(
        trainer,
        params,
        jnp.asarray(pixels),
        jax.random.key(SEED),
        identity=coder_identity(training),
        places=places,
    )
    stored = fitting.halves(found)
    latents = _latents(training.sizes, checkpoints.restore(params, stored), pixels)
    return {"coder": stored, "shift": latents.mean((0, 1, 2)), "scale": latents.std((0, 1, 2))}


def _latents(sizes: Sizes, coder: Any, pixels: np.ndarray) -> np.ndarray:
    """Means of the latents of pictures in bytes, some at a time."""
    parts = np.array_split(pixels, -(-len(pixels) // 500))
    return np.concatenate([_encode(sizes, coder, part / np.float32(255)) for part in parts])


def train_denoiser(
    training: Training,
    coder: Mapping[str, Any],
    pixels: np.ndarray,
    kinds: np.ndarray,
    places: fitting.Places,
) -> dict[str, Any]:
    """Trains the denoiser on the latents of pictures and on the wordings of what they show."""
    sizes = training.sizes
    own = checkpoints.restore(
        nnx.state(nnx.eval_shape(lambda: _make_autoencoder(sizes))), coder["coder"]
    )
    latents = (_latents(sizes, own, pixels) - coder["shift"]) / coder["scale"]
    wordings = pictures.COLLECTIONS[training.collection].prompts().embeddings
    graph, params = nnx.split(_make_denoiser(sizes))
    loss = _denoising_loss(training.batch)
    trainer = fitting.Trainer(
        graph,
        loss,
        steps=training.denoising_steps,
        rate=training.denoising_rate,
        horizon=training.horizon,
    )
    found = fitting.fit(
        trainer,
        params,
        (jnp.asarray(latents), jnp.asarray(kinds), jnp.asarray(wordings)),
        jax.random.key(SEED + 1),
        identity=identity(training),
        places=places,
    )
    return {"denoiser": fitting.halves(found)}


def load(
    name: str, places: fitting.Places | None = None, *, training: Training | None = None
) -> Model:
    """A trained model: the shipped one, or that of the cache, or one that is trained now.

    Args:
      name: of the collection.
      places: of its pictures and of parameters; the project's and the user's where None.
      training: another one than the collection's own.

    Raises:
      ValueError: an unknown collection, or something is to be trained and there are no pictures.
    """
    if name not in TRAININGS:
        raise ValueError(f"model: expected one of {', '.join(TRAININGS)}, received {name!r}.")
    training = TRAININGS[name] if training is None else training
    places = fitting.Places() if places is None else places
    sizes, collection = training.sizes, pictures.COLLECTIONS[name]
    read = functools.cache(lambda: collection.load(places.pictures))

    def real() -> tuple[np.ndarray, np.ndarray]:
        found = read()
        return found.pixels[~found.held_out], found.kinds[~found.held_out]

    coder = places.trained(
        coder_identity(training), lambda: train_coder(training, real()[0], places)
    )
    found = places.trained(
        identity(training), lambda: train_denoiser(training, coder, *real(), places)
    )
    shapes = [nnx.state(nnx.eval_shape(lambda make=make: make(sizes))) for make in _MAKERS]
    return Model(
        training,
        collection.prompts(),
        checkpoints.restore(shapes[0], coder["coder"]),
        jnp.asarray(coder["shift"]),
        jnp.asarray(coder["scale"]),
        checkpoints.restore(shapes[1], found["denoiser"]),
    )


_MAKERS = (_make_autoencoder, _make_denoiser)


def main(name: str, places: fitting.Places) -> None:
    """Trains what is not there."""
    started = time.perf_counter()
    model = load(name, places)
    count = sum(leaf.size for leaf in jax.tree.leaves((model.coder, model.params)))
    print(f"{name}: {count:,} parameters, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    fitting.run(main)
