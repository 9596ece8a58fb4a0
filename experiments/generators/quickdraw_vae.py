"""A conditional VAE of drawings (ml5.js, trained on Quick, Draw!): class and latent to a picture.

The decoder of a variational autoencoder: 16 Gaussian latents beside the class as a one-hot, a dense
layer to 7 x 7, and three transposed convolutions with doublings between them, to 28 x 28. Latents
multiplied by psi below 1 are truncated. The weights are read from a clone of a public repository,
in the layers format of TensorFlow.js; none are part of this project.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from experiments.data.repository import Repository

REPOSITORY = ("ml5js/ml5-data-and-models", "0612a3e7c51cbffdc5db701dff49d16d1ac26fa8")
FOLDER = "models/CVAE/quick_draw"
TOPOLOGY, LABELS = f"{FOLDER}/models/model.json", f"{FOLDER}/manifest.json"
_HIGHEST = jax.lax.Precision.HIGHEST
_KERNEL = (3, 3)
# The layers that have weights, and what each ends in; the names in the file end in a number.
_LAYERS = (
    ("Dense", "relu"),
    ("Conv2DTranspose", "relu"),
    ("Conv2DTranspose", "relu"),
    ("Conv2DTranspose", "sigmoid"),
)
_ORDER = (
    *("InputLayer", "InputLayer", "Concatenate", "Dense", "Reshape", "Conv2DTranspose"),
    *("UpSampling2D", "Conv2DTranspose", "UpSampling2D", "Conv2DTranspose"),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a decoder is; the defaults are those of the published one.

    Attributes:
      latents: Gaussian inputs.
      classes: entries of the one-hot, of which the first stands for none.
      side: of the square that the dense layer gives.
      channels: of that square, and behind the first two convolutions.
    """

    latents: int = 16
    classes: int = 51
    side: int = 7
    channels: tuple[int, int, int] = (16, 32, 16)


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
    params: nnx.State,
    key: jax.Array,
    prompts: ArrayLike,
    *,
    psi: ArrayLike = 1.0,
    sizes: Sizes = Sizes(),
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
    latents = psi * jax.random.normal(key, (*prompts.shape, sizes.latents))
    return decode(params, latents, prompts, sizes=sizes)


@functools.partial(jax.jit, static_argnames=("sizes",))
def decode(
    params: nnx.State, latents: ArrayLike, prompts: ArrayLike, *, sizes: Sizes = Sizes()
) -> jax.Array:
    """The drawings of some latents `[n, latents]` and classes `[n]`, as `sample` gives them."""
    # The first entry of the one-hot is no class.
    classes = jax.nn.one_hot(jnp.asarray(prompts) + 1, sizes.classes)
    model = nnx.merge(_graph(sizes), params)
    return model(jnp.asarray(latents, jnp.float32), classes)


@functools.cache
def _graph(sizes: Sizes) -> nnx.GraphDef:
    return nnx.split(nnx.eval_shape(lambda: Decoder(sizes, rngs=nnx.Rngs(0))))[0]


def load(repository: Repository) -> Published:
    """The published decoder, from a clone of the repository.

    Raises:
      ValueError: a file is not there, is damaged or is not such a decoder, with its name.
    """
    labels, topology = repository.read([LABELS, TOPOLOGY])
    names = read_labels(labels)
    sizes, manifest = read_topology(topology)
    if len(names) != sizes.classes - 1:
        raise ValueError(
            f"{LABELS}: expected {sizes.classes - 1} labels, as {TOPOLOGY} has them, received "
            f"{len(names)}."
        )
    path = f"{FOLDER}/models/{manifest['paths'][0]}"
    (content,) = repository.read([path])
    arrays = read_weights(content, manifest["weights"], path)
    return Published(names, params_of(arrays), sizes)


def read_labels(content: bytes) -> tuple[str, ...]:
    """The names of the classes, words with spaces.

    Raises:
      ValueError: the content is no list of different names.
    """
    try:
        labels = json.loads(content)["labels"]
        names = tuple(label.replace("_", " ") for label in labels)
        if not names or len(set(names)) < len(names):
            raise ValueError("no labels, or one twice")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{LABELS}: expected different labels: {_short(error)}") from error
    return names


def read_topology(content: bytes) -> tuple[Sizes, dict[str, Any]]:
    """The sizes of the decoder that a `model.json` describes, and its manifest of weights.

    Raises:
      ValueError: it is not JSON, or its layers are not those of `Decoder`.
    """
    try:
        model = json.loads(content)
        layers = model["modelTopology"]["model_config"]["config"]["layers"]
        (manifest,) = model["weightsManifest"]
        kinds = tuple(layer["class_name"] for layer in layers)
        settings = [layer["config"] for layer in layers]
        ends = tuple(
            (kind, s["activation"])
            for kind, s in zip(kinds, settings, strict=True)
            if "activation" in s
        )
        if kinds != _ORDER or ends != _LAYERS:
            raise ValueError(f"the layers are {', '.join(kinds)}")
        reshaped = settings[4]["target_shape"]
        convolutions = [s for kind, s in zip(kinds, settings, strict=True) if kind in _ORDER[5]]
        for s in convolutions:
            if (s["kernel_size"], s["strides"], s["padding"]) != (list(_KERNEL), [1, 1], "same"):
                raise ValueError(f"{s['name']} is of another kind")
        for s in (settings[6], settings[8]):
            if s["size"] != [2, 2]:
                raise ValueError(f"{s['name']} does not double")
        sizes = Sizes(
            latents=int(settings[0]["batch_input_shape"][1]),
            classes=int(settings[1]["batch_input_shape"][1]),
            side=int(reshaped[0]),
            channels=(reshaped[2], convolutions[0]["filters"], convolutions[1]["filters"]),
        )
        shapes = {entry["name"]: tuple(entry["shape"]) for entry in manifest["weights"]}
        if len(manifest["paths"]) != 1 or sorted(shapes.values()) != sorted(_shapes(sizes)):
            raise ValueError(f"the shapes of its weights are {list(shapes.values())}")
        if {entry["dtype"] for entry in manifest["weights"]} != {"float32"}:
            raise ValueError("its weights are not all float32")
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"{TOPOLOGY}: not a decoder of this kind: {_short(error)}") from error
    return sizes, manifest


def _shapes(sizes: Sizes) -> list[tuple[int, ...]]:
    first, second, third = sizes.channels
    flat = first * sizes.side**2
    found: list[tuple[int, ...]] = [(sizes.latents + sizes.classes, flat), (flat,)]
    for inputs, outputs in ((first, second), (second, third), (third, 1)):
        found += [(*_KERNEL, outputs, inputs), (outputs,)]
    return found


def read_weights(content: bytes, entries: list[dict[str, Any]], path: str) -> dict[str, np.ndarray]:
    """The arrays of a shard by name: float32, little end first, one after the other.

    Raises:
      ValueError: the shard is longer or shorter than its entries, or holds what is not finite.
    """
    counts = [math.prod(entry["shape"]) for entry in entries]
    if len(content) != 4 * sum(counts):
        raise ValueError(f"{path}: expected {4 * sum(counts):,} bytes, received {len(content):,}.")
    values = np.frombuffer(content, "<f4")
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: not all of its numbers are finite.")
    parts = np.split(values, np.cumsum(counts)[:-1])
    return {
        entry["name"]: part.reshape(entry["shape"])
        for entry, part in zip(entries, parts, strict=True)
    }


def params_of(arrays: dict[str, np.ndarray]) -> nnx.State:
    """The parameters of `Decoder`, from arrays by the names of the file.

    A transposed convolution's kernel `[3, 3, out, in]` is what `nnx.ConvTranspose` has with
    `transpose_kernel`.
    """
    names = sorted({name.rpartition("/")[0] for name in arrays})
    dense = next(name for name in names if arrays[f"{name}/kernel"].ndim == 2)
    layers = {
        name: {
            part: nnx.Param(jnp.asarray(arrays[f"{name}/{part}"])) for part in ("kernel", "bias")
        }
        for name in names
    }
    convolutions = [layers[name] for name in names if name != dense]
    return nnx.State({"dense": layers[dense], "convolutions": dict(enumerate(convolutions))})


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
