"""Networks of small pictures: an autoencoder, a denoiser of its latents, and what they are of."""

import dataclasses
import functools
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.generators import pictures

GRID = 8  # Positions along each side of the latents.
_FREQUENCIES = 32
_ANGLES = np.pi * 2.0 ** np.linspace(-1, 8, _FREQUENCIES, dtype=np.float32)
M = TypeVar("M", bound=nnx.Module)


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


def looped(model: M) -> M:
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
