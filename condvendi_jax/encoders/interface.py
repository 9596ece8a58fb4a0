"""The protocol of an encoder, and how to plug in another model."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Encoder(Protocol):
    """Anything that turns items (pictures, texts) into embeddings, one row an item.

    The two sides need not share a space. Any model in any framework plugs in with a few lines:

        class ClipImages:
            name = "CLIP ViT-B/32"
            dimension = 512

            def encode(self, items):
                return np.asarray(clip_model.image_features(items), np.float32)

    An encoder may have more members, which `embedding.embed` looks for:

    - `side = 224`: pictures are resampled and cut to a square of it (`pictures.decode_image`).
    - `describe_cut(texts) -> str | None`: a warning with the number of texts that it would not read
      to the end, or not know the words of, or None.
    - `details = {"weights": "1a2b"}`: what else the embeddings depend on, for JSON and the cache.
    - `language = "English"`: of its texts; results then name what it does not see (`limits`).
    - `bandwidth = 0.5`: the default of its outputs, which should fit people's judgements.
    """

    @property
    def name(self) -> str:
        """The model's name, as a figure's caption gives it."""
        ...

    @property
    def dimension(self) -> int:
        """The length d of an embedding."""
        ...

    def encode(self, items: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Embed n items: float32 `[n, d]`, rows in the order of the items."""
        ...


class EncoderError(ValueError):
    """An encoder raised an error, which is the cause of this one."""

    caused_by_users_code = True  # The command line prints the traceback of the cause.


def check_several(items: Any) -> None:
    """Raises TypeError for one text or path, which would be taken letter by letter."""
    if isinstance(items, (str, bytes, os.PathLike)):
        mend = "for one item pass a list, [item]"
        raise TypeError(f"items: expected a sequence, received one {type(items).__name__}; {mend}.")


def checked_texts(items: Iterable[Any]) -> list[str]:
    """The items as a list, after a check that they are texts; else TypeError."""
    check_several(items)
    texts = list(items)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            received = f"{type(text).__name__} {repr(text)[:80]}"
            raise TypeError(f"items[{index}]: expected a text (str), received {received}.")
    return texts


def padded_size(count: int, limit: int) -> int:
    """The power of two, at most `limit`, that a batch of `count` items is padded to.

    No sequence of calls then compiles a function for more than log2(limit) + 1 sizes.
    """
    return min(limit, 1 << max(count - 1, 0).bit_length())
