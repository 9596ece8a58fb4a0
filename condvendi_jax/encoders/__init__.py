"""Texts and pictures to embeddings: reading them, and pretrained models in JAX."""

from typing import TYPE_CHECKING

import lazy_loader

from condvendi_jax.encoders.interface import Encoder

if TYPE_CHECKING:
    from condvendi_jax.encoders.efficientnet import load_efficientnet
    from condvendi_jax.encoders.minilm import load_minilm

__all__ = ["Encoder", "load_efficientnet", "load_minilm"]
_LOADERS = {"efficientnet": ["load_efficientnet"], "minilm": ["load_minilm"]}
__getattr__, *_ = lazy_loader.attach(__name__, submod_attrs=_LOADERS)
