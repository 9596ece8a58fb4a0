"""Pictures as colours, the way that a viewer shows them."""

import io
from typing import Any

import numpy as np

from condvendi_jax.base import extras


def pillow() -> tuple[Any, Any]:
    """Pillow's modules `Image` and `ImageOps`; MissingExtra if it is not installed."""
    with extras.needed("embed", package="Pillow", purpose="decoding pictures"):
        from PIL import Image, ImageOps
    return Image, ImageOps


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
        raise ValueError(f"{name}: cannot be decoded as a picture: {error}") from error
