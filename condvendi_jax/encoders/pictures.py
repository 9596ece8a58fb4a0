"""Pictures as colours, the way that a viewer shows them."""

import io
import os
import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import extras, files
from condvendi_jax.records.items import PICTURE_ENDINGS


def pillow() -> tuple[Any, Any]:
    """Pillow's modules `Image` and `ImageOps`; MissingExtra if it is not installed."""
    with extras.needed("embed", package="Pillow", purpose="decoding pictures"):
        from PIL import Image, ImageOps
    return Image, ImageOps


class Content(NamedTuple):
    """A picture of Pillow as a file would hold it, in place of a path."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name

    def read_bytes(self) -> bytes:
        """The content, a PNG."""
        return self.content


def is_picture(item: Any) -> bool:
    """Whether an item is a path, a text that ends as names of pictures do, or of Pillow."""
    named = isinstance(item, str) and item.lower().endswith(PICTURE_ENDINGS)
    pillow = getattr(sys.modules.get("PIL.Image"), "Image", ())
    return named or isinstance(item, (os.PathLike, Content, pillow))


def located(item: Any, row: int = 0) -> pathlib.Path | Content:
    """The path of a picture, or the content of one of Pillow."""
    if isinstance(item, (str, os.PathLike, Content)):
        return item if isinstance(item, Content) else files.expanded(item)
    stream = io.BytesIO()
    as_viewed(item).save(stream, "PNG", compress_level=1)
    return Content(f"row {row}", stream.getvalue())


def checked(values: Any, name: str) -> list[Any] | None:
    """The pictures of a list as `located` gives them; None where it is a list of other things.

    ValueError if a file is missing, or some rows are no pictures. A few texts may end as names do.
    """
    items = values if isinstance(values, (list, tuple)) else []
    shown = [located(x, row) if is_picture(x) else "" for row, x in enumerate(items)]
    there = [isinstance(x, Content) or os.path.isfile(x) for x in shown]
    few = not any(there) and 2 * sum(map(bool, shown)) < len(items)
    if not any(shown) or (few and all(isinstance(item, str) for item in items)):
        return None
    if not all(there):
        row = there.index(False)
        raise ValueError(
            f"{name}: expected a picture in every row, received {str(items[row])[:80]!r} in row "
            f"{row}, which is no file from {os.getcwd()}: correct the path, or leave the row out. "
            f"If these are texts, pass `cv.encoders.load_minilm().encode({name})`."
        )
    return shown


def as_viewed(opened: Any) -> Any:
    """A picture of Pillow in RGB, as `decode_image` gives it; ValueError if it has no colours."""
    Image, ImageOps = pillow()  # noqa: N806 - as Pillow names them.
    picture = ImageOps.exif_transpose(opened)
    if picture.mode == "F":  # Pillow would clip it: 0..1 would become black.
        raise ValueError("expected colours of 8 or 16 bits, received real numbers.")
    if picture.mode.startswith("I"):  # Grey of 16 or 32 bits, which Pillow would clip to 8.
        grey = np.asarray(picture).astype(np.int64)
        if grey.min() < 0 or grey.max() > 65535:
            raise ValueError("expected colours of 8 or 16 bits, received wider integers.")
        scale = 257 if grey.max() > 255 else 1  # Of 16 bits, 0 to 255 would be all black.
        picture = Image.fromarray((grey // scale).astype(np.uint8))
    if picture.has_transparency_data:
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture.convert("RGBA"))
    return picture.convert("RGB")


def decode_image(content: bytes, *, name: str, side: int | None = None) -> np.ndarray:
    """A picture as colours, uint8 `[height, width, 3]`, the way that a viewer shows it.

    It is turned as its EXIF orientation says, put on white where it is transparent; of an animation
    the first frame is taken. Colour profiles are not applied. With `side`, the shorter side is
    resampled (bicubic) to this many pixels, and the middle square is cut out. `name` is for errors.
    """
    Image, ImageOps = pillow()  # noqa: N806 - as Pillow names them.
    try:
        with Image.open(io.BytesIO(content)) as opened:
            picture = as_viewed(opened)
            if side is not None:
                picture = ImageOps.fit(picture, (side, side), Image.Resampling.BICUBIC)
            return np.array(picture)
    except Exception as error:  # Damaged pictures fail in any of the decoders' ways.
        why = f"{str(error).partition(' <_io')[0]}. Save it again as .png, or leave it out."
        raise ValueError(f"{name}: cannot be decoded as a picture: {why}") from error
