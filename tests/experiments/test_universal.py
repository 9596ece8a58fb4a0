"""The Universal Sentence Encoder: the wrapper on a model of the test, and the package itself."""

import numpy as np

from condvendi_jax.encoders import Encoder
from experiments.builders import common
from experiments.builders.common import UniversalEncoder


class Lengths:
    """Rows of norm 3 whose direction says how long the text is; keeps the sizes of its batches."""

    def __init__(self):
        self.batches = []

    def encode(self, texts):
        self.batches.append(len(texts))
        rows = np.zeros((len(texts), 512))
        rows[np.arange(len(texts)), [len(text) for text in texts]] = 3
        return rows


def test_rows_are_unit_vectors_in_the_order_of_the_texts(monkeypatch):
    monkeypatch.setattr(common, "UNIVERSAL_BATCH", 2)
    encoder = UniversalEncoder(Lengths())
    rows = encoder.encode(np.array(["abc", "a", "ab", "", "abcd"]))
    assert isinstance(encoder, Encoder)
    assert rows.dtype == np.float32
    assert rows.shape == (5, encoder.dimension)
    assert rows.argmax(axis=1).tolist() == [3, 1, 2, 0, 4]
    np.testing.assert_array_equal(rows.max(axis=1), 1)
    assert encoder.model.batches == [2, 2, 1]
    assert encoder.encode([]).shape == (0, 512)
