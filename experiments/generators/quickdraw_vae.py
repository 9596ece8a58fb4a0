"""A conditional VAE of drawings (ml5.js, trained on Quick, Draw!): class and latent to a picture.

The decoder of a variational autoencoder: 16 Gaussian latents beside the class as a one-hot, a dense
layer to 7 x 7, and three transposed convolutions with doublings between them, to 28 x 28. Latents
multiplied by psi below 1 are truncated. The weights are read from a clone of a public repository,
in the layers format of TensorFlow.js, at a commit whose hash says what they are; none are part of
this project.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from experiments.data.repository import Repository

REPOSITORY = ("ml5js/ml5-data-and-models", "0612a3e7c51cbffdc5db701dff49d16d1ac26fa8")
FOLDER = "models/CVAE/quick_draw"
MODEL, LABELS = f"{FOLDER}/models/model.json", f"{FOLDER}/manifest.json"
_HIGHEST = jax.lax.Precision.HIGHEST
_KERNEL = (3, 3)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a decoder is.

    Attributes:
      latents: Gaussian inputs.
      classes: entries of the one-hot, of which the first stands for none.
      side: of the square that the dense layer gives.
      channels: of that square, and behind the first two convolutions.
    """

    latents: int
    classes: int
    side: int
    channels: tuple[int, int, int]


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
    """A decoder as it was published: the names of its classes, its parameters and sizes."""

    names: tuple[str, ...]
    params: nnx.State
    sizes: Sizes


@functools.partial(jax.jit, static_argnames=("sizes",))
def sample(
    params: nnx.State, key: jax.Array, prompts: ArrayLike, *, psi: ArrayLike, sizes: Sizes
) -> jax.Array:
    """A drawing of each class that is named, from latents psi * z with z ~ N(0, 1).

    The same key gives the same z whatever psi is.

    Args:
      params: of a decoder.
      key: of the latents.
      prompts: numbers of classes `[n]`, from 0.
      psi: 0 gives the one drawing of each class at the middle of the latents, 1 the model.
      sizes: of the decoder.

    Returns:
      Ink in [0, 1], float32 `[n, 4 side, 4 side]`.
    """
    prompts = jnp.asarray(prompts)
    latents = jnp.asarray(psi) * jax.random.normal(key, (*prompts.shape, sizes.latents))
    # The first entry of the one-hot is no class.
    classes = jax.nn.one_hot(prompts + 1, sizes.classes)
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(sizes, rngs=nnx.Rngs(0))))
    return nnx.merge(graph, params)(latents, classes)


def load(repository: Repository) -> Published:
    """The published decoder, from a clone of the repository at its commit.

    Raises:
      ValueError: a file is not there, with its name.
    """
    labels, model = map(json.loads, repository.read([LABELS, MODEL]))
    (manifest,) = model["weightsManifest"]
    (content,) = repository.read([f"{FOLDER}/models/{path}" for path in manifest["paths"]])
    return published(
        tuple(label.replace("_", " ") for label in labels["labels"]),
        {entry["name"]: entry["shape"] for entry in manifest["weights"]},
        content,
    )


def published(
    names: tuple[str, ...], shapes: Mapping[str, Sequence[int]], content: bytes
) -> Published:
    """A decoder of the named classes, of float32 arrays, little end first, one after the other.

    A transposed convolution's kernel `[3, 3, out, in]` is what `nnx.ConvTranspose` has with
    `transpose_kernel`. Convolutions are in the order of their names.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(np.frombuffer(content, "<f4"), ends[:-1])
    layers: dict[str, dict[str, nnx.Param]] = {}
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        layer, _, kind = name.rpartition("/")
        layers.setdefault(layer, {})[kind] = nnx.Param(jnp.asarray(part.reshape(shape)))
    *convolutions, dense = (layers[name] for name in sorted(layers))
    inputs, flat = dense["kernel"].shape
    first, second, third = (layer["kernel"].shape[3] for layer in convolutions)
    classes = len(names) + 1
    sizes = Sizes(inputs - classes, classes, math.isqrt(flat // first), (first, second, third))
    params = {"dense": dense, "convolutions": dict(enumerate(convolutions))}
    return Published(names, nnx.State(params), sizes)
