"""Text-conditioned latent diffusion of small pictures, trained here on real ones.

An autoencoder of convolutions (Rombach et al. 2022), and a transformer that denoises its latents
(Peebles and Xie 2023; one table for all layers, as in PixArt), trained to predict v (Salimans and
Ho 2022) under the cosine schedule and sampled with an average of its parameters.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.generators import diffusion, fitting, pictures
from experiments.lab import records

VERSION = 1
SEED = 0
_DROPPED = 0.1  # Prompts that are left out, for classifier-free guidance.
_DIVERGENCE = 1e-4  # Weight of the autoencoder's divergence from a Gaussian, a latent.
GRID = 8  # Positions along each side of the latents.
_FREQUENCIES = 32
_ANGLES = np.pi * 2.0 ** np.linspace(-1, 8, _FREQUENCIES, dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large the two networks are."""

    channels: int  # Of the pictures.
    latent: int  # Channels of the latents.
    hidden: int  # Channels of the autoencoder.
    blocks: int  # Residual blocks of its decoder at the latents' positions.
    patch: int  # Positions along each side of a token of the denoiser.
    width: int  # Of its tokens.
    depth: int  # Its layers.
    heads: int  # Of its attention.
    prompt: int = 384  # Entries of a prompt's embedding.


@dataclasses.dataclass(frozen=True)
class Training:
    """How the two networks are trained; rates are the largest of Adam."""

    collection: str  # One of `pictures.COLLECTIONS`.
    sizes: Sizes
    encoding_steps: int  # Updates of the autoencoder.
    denoising_steps: int  # Updates of the denoiser.
    horizon: int  # Updates over which its rate falls; the last of them may not be reached.
    batch: int = 128  # Pictures an update.
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


def as_product(x: jax.Array, kernel: jax.Array, *_: Any, **__: Any) -> jax.Array:
    """`jax.lax.conv_general_dilated` by an odd kernel, of the same size, as a matrix product.

    From `[b, h, w, c]` to `[b, h, w, d]` by `[rows, columns, c, d]`.
    """
    (rows, columns), channels = kernel.shape[:2], kernel.shape[-1]
    h, w = x.shape[1:3]
    wide = jnp.pad(x, ((0, 0), (rows // 2,) * 2, (columns // 2,) * 2, (0, 0)))
    moved = [wide[:, i : i + h, j : j + w] for i in range(rows) for j in range(columns)]
    return jnp.matmul(jnp.concatenate(moved, axis=-1), kernel.reshape(-1, channels))


def looped(model: fitting.M) -> fitting.M:
    """The network for the loops of a sampler, where XLA's convolutions take ten times as long."""
    for _, part in nnx.iter_modules(model):
        if isinstance(part, nnx.Conv):
            part.conv_general_dilated = as_product
    return model


class Residual(nnx.Module):
    """Two 3 x 3 convolutions added to what comes in, `[b, h, w, c]`."""

    def __init__(self, channels: int, *, rngs: nnx.Rngs):
        zeros = nnx.initializers.zeros
        self.norm = nnx.LayerNorm(channels, rngs=rngs)
        self.first = nnx.Conv(channels, channels, (3, 3), rngs=rngs)
        self.second = nnx.Conv(channels, channels, (3, 3), kernel_init=zeros, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """The same shape."""
        return x + self.second(nnx.silu(self.first(nnx.silu(self.norm(x)))))


class Autoencoder(nnx.Module):
    """Pictures `[b, 32, 32, channels]` in [0, 1] to latents `[b, 8, 8, latent]` and back."""

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        patch, hidden = (pictures.SIDE // GRID) ** 2, sizes.hidden
        residual = functools.partial(Residual, rngs=rngs)
        self.enter = nnx.Linear(patch * sizes.channels, hidden, rngs=rngs)
        self.reading = nnx.List([residual(hidden)])
        self.moments = nnx.Linear(hidden, 2 * sizes.latent, rngs=rngs)
        self.leave = nnx.Linear(sizes.latent, hidden, rngs=rngs)
        self.coarse = nnx.List(residual(hidden) for _ in range(sizes.blocks))
        self.widen = nnx.Linear(hidden, 2 * hidden, rngs=rngs)
        self.fine = nnx.List([residual(hidden // 2)])
        self.paint = nnx.Conv(hidden // 2, 4 * sizes.channels, (3, 3), rngs=rngs)

    @jax.jit
    def encode(self, pixels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Means and log-variances of the latents; these in bounds, as `exp` is taken of them."""
        x = self.reading[0](self.enter(to_depth(2 * pixels - 1, pictures.SIDE // GRID)))
        mean, log_variance = jnp.split(self.moments(x), 2, axis=-1)
        return mean, jnp.clip(log_variance, -20, 5)

    @jax.jit
    def decode(self, latents: jax.Array) -> jax.Array:
        """Pictures; a little outside [0, 1] where the network overshoots."""
        x = self.leave(latents)
        for block in self.coarse:
            x = block(x)
        x = self.fine[0](from_depth(self.widen(x), 2))
        return (from_depth(self.paint(nnx.silu(x)), 2) + 1) / 2


def _standardize(x: jax.Array) -> jax.Array:
    """Rows of zero mean and unit variance."""
    return jax.nn.standardize(x, variance=jnp.var(x, axis=-1, keepdims=True), epsilon=1e-6)


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
        mixed = self.mix(_standardize(x) * (1 + scale) + shift)
        q, k, v = mixed.reshape(b, tokens, 3, self.heads, -1).transpose(2, 0, 1, 3, 4)
        attended = jax.nn.dot_product_attention(q, k, v).reshape(b, tokens, width)
        x = x + gate * self.out(attended)
        inner = nnx.gelu(self.up(_standardize(x) * (1 + scale_up) + shift_up))
        return x + gate_up * self.down(inner)


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
        x = self.leave(_standardize(x) * (1 + scale) + shift)
        return from_depth(x.reshape(len(x), side, side, -1), self.sizes.patch)


def _autoencoding_loss(
    model: Autoencoder, pixels: jax.Array, key: jax.Array, *, batch: int
) -> jax.Array:
    """Absolute and squared errors a pixel, and the divergence of the latents from a Gaussian."""
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


def _denoising_loss(model: Denoiser, arrays: Any, key: jax.Array, *, batch: int) -> jax.Array:
    """Squared error of v at uniform times; the wording of a prompt is drawn anew each time."""
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


@dataclasses.dataclass(frozen=True)
class Model:
    """A trained model, with what its samplers need."""

    prompts: pictures.Prompts  # The names and wordings that it knows.
    coder: Autoencoder
    shift: jax.Array  # Mean of the latents of the training pictures, [latent].
    scale: jax.Array  # Their standard deviation, [latent].
    denoiser: Denoiser  # Of the shifted and scaled latents.

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one picture's latents."""
        return GRID, GRID, self.denoiser.sizes.latent

    @property
    def unconditional(self) -> jax.Array:
        """The prompt that stands for none, `[p]`."""
        return jnp.zeros(self.denoiser.sizes.prompt)

    @property
    def denoise(self) -> diffusion.Denoiser:
        """Clean latents of noisy ones `[b, 8, 8, latent]`, of unit variance in all."""
        return jax.tree_util.Partial(clean_prediction, self.denoiser)

    def decode(self, latents: jax.Array) -> jax.Array:
        """Pictures in [0, 1] of latents."""
        scale, shift = (of[None, None, None] for of in (self.scale, self.shift))
        return jnp.clip(self.coder.decode(latents * scale + shift), 0, 1)


def clean_prediction(
    model: Denoiser, latents: jax.Array, time: jax.Array, prompts: jax.Array
) -> jax.Array:
    """Clean latents of noisy ones at one time, from the v of a network."""
    found = model(latents, jnp.broadcast_to(time, latents.shape[:1]), prompts)
    return diffusion.alpha(time) * latents - diffusion.sigma(time) * found


def coder_identity(training: Training) -> records.Identity:
    """Whose the parameters of the autoencoder are; losses and networks are `VERSION`'s."""
    given = dataclasses.asdict(training.sizes) | dataclasses.asdict(training)
    names = "channels", "latent", "hidden", "blocks", "encoding_steps", "encoding_rate", "batch"
    settings = {
        **{name: given[name] for name in names},
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


def train_coder(training: Training, places: fitting.Places) -> dict[str, Any]:
    """Trains the autoencoder; with the mean and standard deviation of its latents, `[latent]`."""
    pixels, _ = places.seen(training.collection)
    coder = fitting.fit(
        Autoencoder(training.sizes, rngs=nnx.Rngs(SEED)),
        functools.partial(_autoencoding_loss, batch=training.batch),
        jnp.asarray(pixels),
        jax.random.key(SEED),
        coder_identity(training),
        places,
        steps=training.encoding_steps,
        rate=training.encoding_rate,
    )
    latents = _latents(training.sizes, coder, pixels)
    return {"coder": coder, "shift": latents.mean((0, 1, 2)), "scale": latents.std((0, 1, 2))}


def _latents(sizes: Sizes, coder: Mapping[Any, Any], pixels: np.ndarray) -> np.ndarray:
    """Means of the latents of pictures in bytes."""
    network = fitting.restore(Autoencoder, sizes, coder)
    return fitting.in_parts(lambda part: network.encode(part / np.float32(255))[0], pixels)


def train_denoiser(
    training: Training, coder: Mapping[str, Any], places: fitting.Places
) -> dict[str, Any]:
    """Trains the denoiser on the latents of pictures and on the wordings of what they show."""
    pixels, kinds = places.seen(training.collection)
    latents = _latents(training.sizes, coder["coder"], pixels)
    latents = (latents - coder["shift"]) / coder["scale"]
    wordings = pictures.COLLECTIONS[training.collection].prompts().embeddings
    denoiser = fitting.fit(
        Denoiser(training.sizes, rngs=nnx.Rngs(SEED)),
        functools.partial(_denoising_loss, batch=training.batch),
        tuple(map(jnp.asarray, (latents, kinds, wordings))),
        jax.random.key(SEED + 1),
        identity(training),
        places,
        steps=training.denoising_steps,
        rate=training.denoising_rate,
        horizon=training.horizon,
    )
    return {"denoiser": denoiser}


def load(name: str, places: fitting.Places | None = None) -> Model:
    """The model of a collection: the shipped one, that of the cache, or one that is trained now.

    ValueError where the collection is unknown, or where there are no pictures to train on.
    """
    if name not in TRAININGS:
        raise ValueError(f"model: expected one of {', '.join(TRAININGS)}, received {name!r}.")
    training, places = TRAININGS[name], places or fitting.Places()
    coder = places.trained(coder_identity(training), lambda: train_coder(training, places))
    found = places.trained(identity(training), lambda: train_denoiser(training, coder, places))
    return Model(
        pictures.COLLECTIONS[name].prompts(),
        looped(fitting.restore(Autoencoder, training.sizes, coder["coder"])),
        jnp.asarray(coder["shift"]),
        jnp.asarray(coder["scale"]),
        fitting.restore(Denoiser, training.sizes, found["denoiser"]),
    )


def main(name: str, places: fitting.Places) -> None:
    """Trains what is not there."""
    model = load(name, places)
    count = sum(leaf.size for leaf in jax.tree.leaves((model.coder, model.denoiser)))
    print(f"{name}: {count:,} parameters")


if __name__ == "__main__":
    fitting.run(main)
