"""The texts and pictures of a page, each cut to what the page has room for."""

import base64
import io
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import extras, tables
from condvendi_jax.encoders.pictures import as_viewed
from condvendi_jax.report.behind import Behind

# Bytes of all texts, of a prompt, and of all pictures of a page.
_TEXT_BYTES, _PROMPT_BYTES, _PICTURE_BYTES = 900_000, 4_000, 1_300_000
_SIDES = (96, 64, 48, 40)  # Of pictures, in pixels: the first that fits, or the last.


class Item(NamedTuple):
    """An output or a prompt as a page shows it."""

    text: str  # As far as there is room; or the name of a picture, or the number of a row.
    rest: int = 0  # How many more characters the text has.
    picture: str | None = None  # A small one in base64.


class Items:
    """The outputs and prompts of a page, by their texts or pictures, or else by their rows."""

    def __init__(
        self,
        behind: Behind,
        outputs: Mapping[str, Sequence[Any]] | None,
        prompts: Mapping[str, Sequence[Any]] | None,
    ):
        self.behind, self.prompts = behind, prompts
        self.note, self.limit, self.side = "", _TEXT_BYTES, 0
        self.outputs: list[Any] | None = None
        self.pictures: dict[int, str] = {}
        if outputs is None:
            self.note = "No texts or pictures were given: outputs are shown by their row."
            return
        places = zip(behind.model.tolist(), behind.row.tolist(), strict=True)
        self.outputs = [outputs[behind.models[model]][row] for model, row in places]
        shown = {k: self.outputs[k] for k in np.flatnonzero(behind.group >= 0).tolist()}
        texts = [item for item in shown.values() if isinstance(item, str)]
        sizes = [len(text.encode("utf-8", "replace")) for text in texts]
        if sum(sizes) > _TEXT_BYTES:
            self.limit = max(_TEXT_BYTES // len(sizes), 40)
        if cut := sum(size > self.limit for size in sizes):
            self.note = f"{cut:,} long texts are cut to {self.limit:,} bytes."
        paths = {k: item for k, item in shown.items() if not isinstance(item, str)}
        if paths:
            self._draw(paths)

    def _draw(self, paths: Mapping[int, Any]) -> None:
        """Makes small pictures of the outputs, as large as the page has room for."""
        sample = [*paths.values()][:: max(1, len(paths) // 20)]
        for self.side in _SIDES:
            mean = np.mean([len(_thumbnail(path, self.side)) for path in sample])
            if mean * len(paths) <= _PICTURE_BYTES:
                break
        self.pictures = {k: _thumbnail(path, self.side) for k, path in paths.items()}

    def output(self, k: int, limit: int | None = None) -> Item:
        """An output; a text of at most `limit` bytes."""
        if self.outputs is None:
            return Item(f"row {self.behind.row[k]}")
        item = self.outputs[k]
        if isinstance(item, str):
            return _cut(item, min(limit or self.limit, self.limit))
        return Item(pathlib.Path(item).name, picture=self.pictures.get(k))

    def equal(self, one: int, two: int) -> bool:
        """Whether two outputs are the same text."""
        texts = self.outputs
        return bool(texts) and isinstance(texts[one], str) and texts[one] == texts[two]

    def prompt(self, number: int, width: int | None = None) -> Item:
        """A prompt, in one line of at most `width` characters if it is given."""
        first = self.behind.first[number]
        row = self.behind.row[first]
        if self.prompts is not None:
            name = str(self.prompts[self.behind.models[self.behind.model[first]]][row])
        else:
            name = f"prompt of row {row}" if self.behind.main == "conditional" else "all outputs"
        return _cut(name if width is None else tables.shortened(name, width), _PROMPT_BYTES)


def _cut(text: str, limit: int) -> Item:
    """A text without the characters beyond a number of bytes."""
    kept = text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
    return Item(kept, len(text) - len(kept))


def _thumbnail(path: str | os.PathLike[str], side: int) -> str:
    """A picture of at most side x side pixels as WebP, in base64."""
    with extras.needed("embed", package="Pillow", purpose="showing pictures"):
        from PIL import Image
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * side, 2 * side))
            picture = as_viewed(opened)
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"{path}: expected a picture that Pillow can read ({error}).") from error
    picture.thumbnail((side, side))
    stream = io.BytesIO()
    picture.save(stream, "WEBP", quality=50, method=6)
    return base64.b64encode(stream.getvalue()).decode()
