"""A conditional VAE of drawings (ml5.js, trained on Quick, Draw!): class and latent to a picture.

The weights are read from a clone of a public repository, in the layers format of TensorFlow.js.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from experiments.data.repository import Repository

REPOSITORY = ("ml5js/ml5-data-and-models", "0612a3e7c51cbffdc5db701dff49d16d1ac26fa8")
FOLDER = "models/CVAE/quick_draw"
MODEL, LABELS = f"{FOLDER}/models/model.json", f"{FOLDER}/manifest.json"
_EXACT: Any = {"precision": jax.lax.Precision.HIGHEST}


class Decoder(NamedTuple):
    """Latents and a class to a picture: a dense layer, and convolutions of what is enlarged."""

    latents: jax.Array  # What the dense layer makes of Gaussian inputs, [latents, units].
    classes: jax.Array  # What it adds for a class, the first of which is none, [classes, units].
    convolutions: Sequence[Mapping[str, jax.Array]]  # "kernel" [3, 3, out, in] and "bias" [out].


class Published(NamedTuple):
    """A decoder as it was published, and the names of its classes."""

    names: tuple[str, ...]
    decoder: Decoder


@jax.jit
def sample(decoder: Decoder, key: jax.Array, prompts: ArrayLike, psi: ArrayLike) -> jax.Array:
    """A drawing of each class `[n]`, counted from 0, from latents psi * z with z ~ N(0, 1).

    Ink in [0, 1], float32 `[n, side, side]`. The same key gives the same z whatever psi is; at 0 a
    class has the one drawing of the middle of the latents.
    """
    prompts, (of_latents, of_classes, convolutions) = jnp.asarray(prompts), decoder
    latents = jnp.asarray(psi) * jax.random.normal(key, (*prompts.shape, len(of_latents)))
    x = jnp.dot(latents, of_latents, **_EXACT) + of_classes[prompts + 1]
    channels = convolutions[0]["kernel"].shape[-1]
    side = math.isqrt(x.shape[-1] // channels)
    x = x.reshape(-1, side, side, channels)
    for index, layer in enumerate(convolutions):
        if index:
            x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
        way = {"strides": (1, 1), "padding": "SAME", "transpose_kernel": True, **_EXACT}
        x = jax.lax.conv_transpose(jax.nn.relu(x), layer["kernel"], **way)
        x += layer["bias"][None, None, None]
    return jax.nn.sigmoid(x[..., 0])


def load(repository: Repository) -> Published:
    """The published decoder, from a clone of the repository at its commit.

    The arrays are float32, little end first, one after the other, and the convolutions in the order
    of their names.

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
    layers: dict[str, dict[str, jax.Array]] = {}
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        layer, _, kind = name.rpartition("/")
        layers.setdefault(layer, {})[kind] = jnp.asarray(part.reshape(shape))
    *convolutions, dense = (layers[name] for name in sorted(layers))
    kernel, classes = dense["kernel"], 1 + len(names)
    of_classes = kernel[-classes:] + dense["bias"][None]
    return Published(names, Decoder(kernel[:-classes], of_classes, convolutions))
