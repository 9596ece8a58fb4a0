"""A conditional VAE of drawings (ml5.js, trained on Quick, Draw!): class and latent to a picture.

The weights are read from a clone of a public repository, in the layers format of TensorFlow.js.
"""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from experiments.data.repository import Repository
from experiments.generators import checkpoints

REPOSITORY = ("ml5js/ml5-data-and-models", "0612a3e7c51cbffdc5db701dff49d16d1ac26fa8")
FOLDER = "models/CVAE/quick_draw"
MODEL, LABELS = f"{FOLDER}/models/model.json", f"{FOLDER}/manifest.json"
_HIGHEST = jax.lax.Precision.HIGHEST
_KERNEL = (3, 3)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a decoder is."""

    latents: int  # Gaussian inputs.
    classes: int  # Entries of the one-hot, of which the first stands for none.
    side: int  # Of the square that the dense layer gives.
    channels: tuple[int, int, int]  # Of that square, and behind the first two convolutions.


class Decoder(nnx.Module):
    """Latents and a class to a picture."""

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        first, second, third = sizes.channels
        inputs = sizes.latents + sizes.classes
        self.sizes = sizes
        self.dense = nnx.Linear(inputs, first * sizes.side**2, precision=_HIGHEST, rngs=rngs)
        self.convolutions = nnx.List(
            nnx.ConvTranspose(
                *channels, _KERNEL, transpose_kernel=True, precision=_HIGHEST, rngs=rngs
            )
            for channels in ((first, second), (second, third), (third, 1))
        )

    def __call__(self, latents: jax.Array, classes: jax.Array) -> jax.Array:
        """Ink in [0, 1] `[n, 4 side, 4 side]` of latents `[n, latents]` and one-hots."""
        sizes = self.sizes
        x = nnx.relu(self.dense(jnp.concatenate([latents, classes], axis=-1)))
        x = x.reshape(-1, sizes.side, sizes.side, sizes.channels[0])
        first, second, last = self.convolutions
        x = _doubled(nnx.relu(first(x)))
        x = _doubled(nnx.relu(second(x)))
        return nnx.sigmoid(last(x))[..., 0]


def _doubled(x: jax.Array) -> jax.Array:
    """Every pixel of `[n, h, w, c]` four times."""
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


@dataclasses.dataclass(frozen=True)
class Published:
    """A decoder as it was published, and the names of its classes."""

    names: tuple[str, ...]
    decoder: Decoder


@jax.jit
def sample(decoder: Decoder, key: jax.Array, prompts: ArrayLike, psi: ArrayLike) -> jax.Array:
    """A drawing of each class `[n]`, counted from 0, from latents psi * z with z ~ N(0, 1).

    Ink in [0, 1], float32 `[n, 4 side, 4 side]`. The same key gives the same z whatever psi is; at
    0 a class has the one drawing of the middle of the latents.
    """
    prompts, sizes = jnp.asarray(prompts), decoder.sizes
    latents = jnp.asarray(psi) * jax.random.normal(key, (*prompts.shape, sizes.latents))
    # The first entry of the one-hot is no class.
    return decoder(latents, jax.nn.one_hot(prompts + 1, sizes.classes))


def load(repository: Repository) -> Published:
    """The published decoder, from a clone of the repository at its commit.

    The arrays are float32, little end first, one after the other, and the convolutions in the order
    of their names. A transposed convolution's kernel `[3, 3, out, in]` is what `nnx.ConvTranspose`
    has with `transpose_kernel`.

    Raises:
      ValueError: a file is not there, with its name.
    """
    labels, model = map(json.loads, repository.read([LABELS, MODEL]))
    (manifest,) = model["weightsManifest"]
    (content,) = repository.read([f"{FOLDER}/models/{path}" for path in manifest["paths"]])
    names = tuple(label.replace("_", " ") for label in labels["labels"])
    shapes = {entry["name"]: entry["shape"] for entry in manifest["weights"]}
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(np.frombuffer(content, "<f4"), ends[:-1])
    layers: dict[str, dict[str, np.ndarray]] = {}
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        layer, _, kind = name.rpartition("/")
        layers.setdefault(layer, {})[kind] = part.reshape(shape)
    *convolutions, dense = (layers[name] for name in sorted(layers))
    inputs, flat = dense["kernel"].shape
    first, second, third = (layer["kernel"].shape[3] for layer in convolutions)
    classes = len(names) + 1
    sizes = Sizes(inputs - classes, classes, math.isqrt(flat // first), (first, second, third))
    params = {"dense": dense, "convolutions": dict(enumerate(convolutions))}
    return Published(names, checkpoints.restore(lambda: Decoder(sizes, rngs=nnx.Rngs(0)), params))
