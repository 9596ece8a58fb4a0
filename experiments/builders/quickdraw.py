"""Rebuild the drawings by a conditional VAE: 50 classes at six truncations of its latents.

The VAE (ml5.js, trained on Quick, Draw!) makes a picture of a class and a latent. Its weights are
read from a clone of a public repository, in the layers format of TensorFlow.js.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from experiments.builders import common
from experiments.builders.common import NewSet, Work
from experiments.data.repository import Repository
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS

REPOSITORY = ("ml5js/ml5-data-and-models", "0612a3e7c51cbffdc5db701dff49d16d1ac26fa8")
FOLDER = "models/CVAE/quick_draw"
MODEL, LABELS = f"{FOLDER}/models/model.json", f"{FOLDER}/manifest.json"
PSI = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
DRAWS, DIMENSIONS = 16, 448
_SHOWN, _SHOWN_DRAWS = 10, 2  # Classes, evenly among all, and drawings of each.
_EXACT: Any = {"precision": jax.lax.Precision.HIGHEST}


class Decoder(NamedTuple):
    """Latents and a class to a picture: a dense layer, and convolutions of what is enlarged."""

    latents: jax.Array  # What the dense layer makes of Gaussian inputs, [latents, units].
    classes: jax.Array  # What it adds for a class, the first of which is none, [classes, units].
    convolutions: Sequence[Mapping[str, jax.Array]]  # "kernel" [3, 3, out, in] and "bias" [out].


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


def load(repository: Repository) -> tuple[list[str], Decoder]:
    """The classes and their published decoder; ValueError names a file that is not there.

    The arrays are float32, little end first, one after the other, and the convolutions in the order
    of their names.
    """
    labels, model = map(json.loads, repository.read([LABELS, MODEL]))
    (manifest,) = model["weightsManifest"]
    (content,) = repository.read([f"{FOLDER}/models/{path}" for path in manifest["paths"]])
    names = [label.replace("_", " ") for label in labels["labels"]]
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
    return names, Decoder(kernel[:-classes], of_classes, convolutions)


def draw(decoder: Decoder, count: int) -> np.ndarray:
    """Ink in [0, 1], `[psi, classes, draws, side, side]`, of the same latents times each psi."""
    classes, key = np.repeat(np.arange(count), DRAWS), jax.random.key(SEED)
    ink = np.stack([sample(decoder, key, classes, psi) for psi in PSI])
    return ink.reshape(len(PSI), count, DRAWS, *ink.shape[-2:])


def picture(ink: np.ndarray, side: int) -> np.ndarray:
    """Black on white, enlarged: uint8 `[side, side, 3]` of ink `[s, s]`."""
    from PIL import Image

    grey = Image.fromarray(np.round(255 * (1 - ink)).astype(np.uint8))
    return np.asarray(grey.resize((side, side), Image.Resampling.BICUBIC).convert("RGB"))


@common.recipe("quickdraw", *common.OF_DRAWINGS, beside=["drawings/{}.npz"], source=REPOSITORY)
def build(work: Work, repository: Repository) -> tuple[NewSet, dict[str, np.ndarray]]:
    """The drawings, and a few of them to be shown."""
    wordings, (names, decoder) = WORDINGS["quickdraw"], load(repository)
    ink, side = draw(decoder, len(names)), work.pictures.side
    # Drawings without latents are equal.
    distinct, index = np.unique(ink.reshape(-1, *ink.shape[-2:]), axis=0, return_inverse=True)
    pictures = (picture(one, side) for one in distinct)
    features = work.embed(pictures, work.pictures, arrays={"ink": distinct})[index.reshape(-1)]
    outputs, dimensions = common.principal_rows(features, DIMENSIONS)
    labels = common.knob_labels(names, PSI, DRAWS, wordings)
    made = NewSet(
        outputs,
        (work.embed_texts(wordings.specified(names)), labels["prompt"]),
        labels=labels,
        description=f"{len(outputs):,} drawings by a conditional VAE of {len(names)} classes at "
        f"{len(PSI)} truncations, {len(wordings.templates)} wordings; {work.pictures.name} "
        f"pictures, {work.texts.name} prompts",
        cut={
            "drawings": f"{DRAWS} of each class at each psi from the same latents, seed {SEED}",
            "dimensions": dimensions,
        },
    )
    shown = np.linspace(0, len(names) - 1, min(_SHOWN, len(names))).astype(int)
    return made, {
        "ink": np.round(255 * ink[:, shown, :_SHOWN_DRAWS]).astype(np.uint8),
        "types": np.array(names)[shown],
        "models": np.array([f"{psi:g}" for psi in PSI]),
    }
