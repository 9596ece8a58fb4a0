"""Drawings as strokes: their lines, pictures of them, and the few that are shipped to be shown."""

import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from condvendi_jax.base.files import atomic_writer

SIDE = 224
_MARGIN = 0.08  # Of the side, left free all round.
_WIDTH = 0.015  # Of a line, in sides.
_OVERSAMPLED = 4
_GRID = 255  # Steps of a stored coordinate across a drawing.

Lines = list[np.ndarray]


def lines(points: np.ndarray) -> Lines:
    """The lines of a drawing, each `[points, 2]` with y downwards, in units of the offsets.

    The pen starts at the origin and on the paper. Where it is lifted a line ends, and what follows
    the end of the drawing is left out.

    Args:
      points: `[steps, 5]`: the offset from the last point, and the pen's state after it as a
        one-hot of down, up, end.
    """
    ends = np.flatnonzero(points[:, 4])
    points = points[: ends[0]] if len(ends) else points
    places = np.concatenate([np.zeros((1, 2)), np.cumsum(points[:, :2], axis=0)])
    parts = np.split(places, 1 + np.flatnonzero(points[:, 3]) + 1)
    return [part for part in parts if len(part) > 1]


def fitted(drawing: Sequence[np.ndarray]) -> Lines:
    """The same lines moved and scaled to touch the unit square from inside, in its middle."""
    if not drawing:
        return []
    places = np.concatenate(drawing)
    low, high = places.min(axis=0), places.max(axis=0)
    size = max(float((high - low).max()), np.finfo(np.float32).tiny)
    return [(line - (low + high) / 2) / size + 0.5 for line in drawing]


def picture(drawing: Sequence[np.ndarray], side: int = SIDE) -> np.ndarray:
    """The lines in black on white, smoothed, as large as the margin lets them be.

    Args:
      drawing: its lines; none give a white picture.
      side: pixels of the picture.

    Returns:
      uint8 `[side, side, 3]`.
    """
    from PIL import Image, ImageDraw

    large = side * _OVERSAMPLED
    image = Image.new("L", (large, large), 255)
    pen = ImageDraw.Draw(image)
    width = max(1, round(_WIDTH * large))
    for line in fitted(drawing):
        places = large * (_MARGIN + (1 - 2 * _MARGIN) * line)
        pen.line([tuple(place) for place in places.tolist()], fill=0, width=width, joint="curve")
        for x, y in places[[0, -1]].tolist():  # Round ends.
            pen.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=0)
    small = np.asarray(image.resize((side, side), Image.Resampling.BOX))
    return np.repeat(small[:, :, None], 3, axis=2)


def write(path: pathlib.Path, drawings: Mapping[tuple[str, str], Sequence[np.ndarray]]) -> None:
    """Writes drawings by the type and the model, to a 255th of their size; makes the folder."""
    content = [
        {
            "type": kind,
            "model": model,
            "lines": [np.round(_GRID * line).astype(int).tolist() for line in fitted(drawing)],
        }
        for (kind, model), drawing in drawings.items()
    ]
    path.parent.mkdir(exist_ok=True)
    with atomic_writer(path) as file:
        file.write(json.dumps(content, separators=(",", ":")).encode())


def read(path: pathlib.Path) -> dict[tuple[str, str], Lines]:
    """The drawings of a file by the type and the model, fitted to the unit square."""
    return {
        (found["type"], found["model"]): [np.array(line) / _GRID for line in found["lines"]]
        for found in json.loads(path.read_bytes())
    }
