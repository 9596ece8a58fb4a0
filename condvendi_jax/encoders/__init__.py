"""Real pretrained models in JAX: texts and pictures -> embeddings.

| module | content |
|---|---|
| interface.py | the `Encoder` protocol, and how to plug in another model |
| record_files.py | the one reader of tables: JSONL, CSV, Parquet, JSON, logs of Inspect |
| items.py | a user's prompts, texts and pictures: reading and pairing them |
| records.py | records of language models: the fields of prompts, answers and models |
| answers.py | chats, reasoning, and texts that may not be answers |
| embedding.py | embedding by an encoder that is named, with a cache by content |
| minilm.py | all-MiniLM-L6-v2, texts -> 384-d unit vectors |
| efficientnet.py | EfficientNet-Lite0, pictures -> 1280-d ImageNet features |
| weights.py | the published weights, read without importing their packages |
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
