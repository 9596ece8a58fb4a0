"""Real pretrained models in Flax NNX: texts and pictures -> embeddings.

| module | what it holds |
|---|---|
| interface.py | the `Encoder` protocol, and how to plug in another model |
| items.py | a user's prompts, texts and pictures: reading and pairing them |
| record_files.py | files of language models' answers: JSONL, CSV, Parquet, evaluation logs |
| records.py | which of their fields hold prompts, answers and models |
| answers.py | what a model was given and said: chats, reasoning, what may not be an answer |
| embedding.py | embedding them by an encoder that is named, with a cache by content |
| minilm.py | all-MiniLM-L6-v2, texts -> 384-d unit vectors |
| efficientnet.py | EfficientNet-Lite0, pictures -> 1280-d ImageNet features |
| weights.py | finding and reading the published weights without importing their packages |

The library does not import this package, but for `cv.read_records` where that is used. This package
imports a model where it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from condvendi_jax.encoders.interface import Encoder

if TYPE_CHECKING:
    from condvendi_jax.encoders.efficientnet import load_efficientnet
    from condvendi_jax.encoders.minilm import load_minilm

__all__ = ["Encoder", "load_efficientnet", "load_minilm"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = name.removeprefix("load_")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
