"""Rebuild the drawings by Sketch-RNN: 29 classes at seven temperatures, ten animals at three."""

import json
import sys
from collections.abc import Sequence

import jax
import numpy as np

from experiments.builders import common
from experiments.builders.common import NewSet, Work
from experiments.data.repository import Repository
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS
from experiments.generators import sketch_rnn
from experiments.lab import records

ANIMALS = (
    *("ant", "bear", "bird", "dog", "dolphin", "hedgehog", "lobster", "monkey", "mosquito"),
    *("parrot", "rabbit", "rhinoceros", "sheep", "tiger"),
)
THINGS = (
    *("ambulance", "antyoga", "bicycle", "bulldozer", "calendar", "diving board", "key", "lantern"),
    *("palm tree", "pool", "rain", "roller coaster", "toothbrush", "toothpaste", "trombone"),
)
TEMPERATURES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
DRAWS, DIMENSIONS, TYPES = 50, 192, 10
_MARGIN = 0.08  # Of the side, left free all round.
_WIDTH = 0.015  # Of a line, in sides.
_OVERSAMPLED = 4
_GRID = 255  # Steps of a stored coordinate across a drawing.
_VERSION = 1  # Raised when what is drawn from the same weights and key changes.


def draw(published: sketch_rnn.Published) -> np.ndarray:
    """`[temperatures, classes, draws, steps, 5]`, in the models' units, cut at their lengths."""
    key, found = jax.random.key(SEED), []
    for index, temperature in enumerate(TEMPERATURES):
        sys.stderr.write(f"drawings at temperature {temperature:g}\n")
        points = sketch_rnn.sample(
            published.params,
            jax.random.fold_in(key, index),
            np.arange(len(published.names)),
            draws=DRAWS,
            temperature=temperature,
            max_steps=int(published.lengths.max()),
        )
        found.append(np.asarray(points))
    points = np.stack(found)
    for index, length in enumerate(published.lengths):
        points[:, index, :, length:] = sketch_rnn.END
    return points


def lines(points: np.ndarray) -> list[np.ndarray]:
    """The lines of a drawing, each `[points, 2]` with y downwards, in units of the offsets.

    The pen starts at the origin and on the paper. Points `[steps, 5]` are the offset from the last,
    and the pen's state after it as a one-hot of down, up (a line ends), end (of the drawing).
    """
    ends = np.flatnonzero(points[:, 4])
    points = points[: ends[0]] if len(ends) else points
    places = np.concatenate([np.zeros((1, 2)), np.cumsum(points[:, :2], axis=0)])
    parts = np.split(places, 1 + np.flatnonzero(points[:, 3]) + 1)
    return [part for part in parts if len(part) > 1]


def fitted(drawing: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same lines moved and scaled to touch the unit square from inside, in its middle."""
    if not drawing:
        return []
    places = np.concatenate(drawing)
    low, high = places.min(axis=0), places.max(axis=0)
    size = max(float((high - low).max()), np.finfo(np.float32).tiny)
    return [(line - (low + high) / 2) / size + 0.5 for line in drawing]


def picture(drawing: Sequence[np.ndarray], side: int) -> np.ndarray:
    """The lines in black on white, smoothed and as large as can be, uint8 `[side, side, 3]`."""
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


@common.recipe(
    "sketches",
    *common.OF_DRAWINGS,
    beside=["sketched_animals.npz", "drawings/{}.json"],
    source=sketch_rnn.REPOSITORY,
)
def build(work: Work, repository: Repository) -> tuple[NewSet, NewSet, bytes]:
    """All drawings, some of animals, and the strokes that are shown."""
    names, wordings = sorted((*ANIMALS, *THINGS)), WORDINGS["sketches"]
    published = sketch_rnn.load(repository, [name.replace(" ", "_") for name in names])
    settings = {"repository": repository.reference, "classes": names, "draws": DRAWS, "seed": SEED}
    points = records.cached(
        work.cache,
        "sketches-points",
        version=_VERSION,
        settings={**settings, "temperatures": list(TEMPERATURES)},
        arrays={},
        build=lambda: {"points": draw(published)},
    )["points"]
    flat, side = points.reshape(-1, *points.shape[-2:]), work.pictures.side
    drawings = (picture(lines(one), side) for one in flat)
    features = work.embed(drawings, work.pictures, arrays={"points": points})
    outputs, dimensions = common.principal_rows(features, DIMENSIONS)
    named, unnamed = map(work.embed_texts, (wordings.specified(names), wordings.unspecified()))

    labels = common.knob_labels(names, TEMPERATURES, DRAWS, wordings)
    types, models, typed, wording = labels.values()
    words = [f"{temperature:g}" for temperature in TEMPERATURES]
    lengths = np.tile(np.repeat(published.lengths, DRAWS), len(words))
    ends = flat[:, :, 4] == 1  # Not those at the lengths of a cut.
    ended = ends.any(axis=1) & (ends.argmax(axis=1) < lengths)
    encoders = f"{work.pictures.name} pictures, {work.texts.name} prompts"
    encoders = f"{len(wordings.templates)} wordings; {encoders}"
    every = NewSet(
        outputs,
        (named, typed),
        labels={**labels, "ended": ended.astype(np.uint8)},
        description=f"{len(outputs):,} drawings by Sketch-RNN of {len(names)} classes at "
        f"{len(words)} temperatures, {encoders}",
        cut={
            "drawings": f"{DRAWS} of each class at each temperature, seed {SEED}",
            "ended": {word: round(float(ended[models == word].mean()), 4) for word in words},
            "dimensions": dimensions,
        },
    )
    chosen, three = ANIMALS[:TYPES], [words[0], words[len(words) // 2], words[-1]]
    kept = np.isin(types, chosen) & np.isin(models, three)
    animals = NewSet(
        outputs[kept],
        (unnamed, wording[kept]),
        labels={"types": types[kept], "models": models[kept], "wording": wording[kept]},
        description=f"{int(kept.sum()):,} drawings by Sketch-RNN of {len(chosen)} animals at "
        f"temperatures {', '.join(three)}, {encoders}",
        cut=every.cut,
        further={"typed_prompts": (named, typed[kept])},
    )
    shown = [
        {
            "type": name,
            "model": word,
            "lines": [
                np.round(_GRID * line).astype(int).tolist()
                for line in fitted(lines(points[t, c, 0]))
            ],
        }
        for c, name in enumerate(names)
        for t, word in enumerate(words)
    ]
    return every, animals, json.dumps(shown, separators=(",", ":")).encode()
