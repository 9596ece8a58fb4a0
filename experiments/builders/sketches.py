"""Rebuild the drawings by Sketch-RNN: 29 classes at seven temperatures, ten animals at three.

Sketch-RNN (Ha and Eck 2017, arXiv 1704.03477) draws stroke by stroke at a temperature: here one
recurrent network a class, without latents, with weights read from a clone of a public repository.
"""

import base64
import functools
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from experiments.builders import common
from experiments.builders.common import NewSet, Work
from experiments.data.repository import Repository
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS
from experiments.lab import records

REPOSITORY = ("hardmaru/sema-demo", "09ceb6579d01e57db3f792d0e631284c331538dd")
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
# The point after which a drawing is finished: no offset, and of the pen's down, up, end the last.
END = (0.0, 0.0, 0.0, 0.0, 1.0)
_PENS = 3
_MIXTURE = 6  # Parameters of a component: weight, two means, two deviations, correlation.
_LARGEST, _STEPS = 10.0, 32767  # Weights are stored as so many steps to the largest one.
_dot = functools.partial(jnp.dot, precision=jax.lax.Precision.HIGHEST)

State = tuple[jax.Array, jax.Array]


class Mixture(NamedTuple):
    """What the next point is drawn from; m components, offsets in units of the model."""

    logits: jax.Array  # Of the components, [..., m].
    means: jax.Array  # [..., m, 2].
    deviations: jax.Array  # [..., m, 2], positive.
    correlations: jax.Array  # Of the two offsets of a component, [..., m].
    pens: jax.Array  # Logits of the pen's next state, down, up or end, [..., 3].


class Params(NamedTuple):
    """Of an LSTM with gates in the order i, g, f, o, in the order of its file."""

    readout: jax.Array  # [units, 3 + 6 m].
    readout_bias: jax.Array  # [3 + 6 m].
    inputs: jax.Array  # [5, 4 units].
    recurrent: jax.Array  # [units, 4 units].
    bias: jax.Array  # [4 units].


def advance(params: Params, state: State, points: jax.Array) -> tuple[State, Mixture]:
    """From the state `[b, units]` twice and the last points `[b, 5]` to the next ones."""
    hidden, cell = state
    gates = _dot(points, params.inputs) + params.bias[None] + _dot(hidden, params.recurrent)
    i, g, f, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
    read = _dot(hidden, params.readout) + params.readout_bias[None]
    pens, rest = jnp.split(read, [_PENS], axis=-1)
    logits, x, y, log_x, log_y, correlations = jnp.split(rest, _MIXTURE, axis=-1)
    means, logs = jnp.stack([x, y], axis=-1), jnp.stack([log_x, log_y], axis=-1)
    return (hidden, cell), Mixture(logits, means, jnp.exp(logs), jnp.tanh(correlations), pens)


@functools.partial(jax.jit, static_argnames=("draws", "max_steps"))
def sample(
    params: Params, key: jax.Array, *, draws: int, temperature: ArrayLike, max_steps: int
) -> jax.Array:
    """Drawings of all classes of the parameters, `[k, draws, max_steps, 5]`.

    Logits of components and pens are divided by the temperature, and the deviations multiplied by
    its root (Ha and Eck, eq. 8); at 0 every step is the most likely component's mean. A point is
    the offset from the last one in the model's units, and the pen's state after it as a one-hot of
    down, up, end. After its end a drawing repeats `END`.
    """

    def of_class(own: Params, key: jax.Array) -> jax.Array:
        rest = jnp.zeros((draws, len(own.recurrent)))

        def step(carry: tuple[State, jax.Array], key: jax.Array) -> tuple[Any, jax.Array]:
            state, last = carry
            state, mixture = advance(own, state, last)
            point = _next_point(mixture, key, temperature)
            ended = (last[:, -1] == 1) | (point[:, -1] == 1)
            point = jnp.where(ended[:, None], jnp.asarray(END), point)
            return (state, point), point

        start = ((rest, rest), jnp.zeros((draws, len(END))))
        _, points = jax.lax.scan(step, start, jax.random.split(key, max_steps))
        return points.swapaxes(0, 1)

    return jax.vmap(of_class)(params, jax.random.split(key, len(params.bias)))


def _next_point(mixture: Mixture, key: jax.Array, temperature: ArrayLike) -> jax.Array:
    """A point of each drawing, `[draws, 5]`."""
    keys = jax.random.split(key, 3)

    def choose(key: jax.Array, logits: jax.Array) -> jax.Array:
        # The largest of logits and noise is a draw from their softmax, at 0 the most likely.
        return jnp.argmax(logits + temperature * jax.random.gumbel(key, logits.shape), -1)

    component, pen = choose(keys[0], mixture.logits), choose(keys[1], mixture.pens)
    chosen = jnp.arange(len(component)), component
    mean, spread, correlation = (
        of[chosen] for of in (mixture.means, mixture.deviations, mixture.correlations)
    )
    first, second = jax.random.normal(keys[2], (2, len(mean)))
    second = correlation * first + jnp.sqrt(1 - correlation**2) * second
    spread *= jnp.sqrt(jnp.asarray(temperature, jnp.float32))
    offset = mean + spread * jnp.stack([first, second], axis=-1)
    return jnp.concatenate([offset, jax.nn.one_hot(pen, _PENS)], axis=-1)


def load(repository: Repository, names: Sequence[str]) -> tuple[Params, np.ndarray]:
    """The generators of some classes, as in `models/NAME.gen.json`; ValueError where one is not.

    Each array of their parameters is `[classes, ...]`. With them come the points of the longest
    drawing that each was trained on, `[classes]`. A file is JSON: a dictionary, the shapes of the
    arrays, and each as the base64 form of whole numbers of 16 bits, little end first, 32,767 of
    which are a weight of 10.
    """
    lengths, arrays = [], []
    for content in repository.read([f"models/{name}.gen.json" for name in names]):
        info, shapes, encoded = json.loads(content)
        whole = (np.frombuffer(base64.b64decode(text), "<i2") for text in encoded)
        lengths.append(info["max_seq_len"])
        arrays.append([of.reshape(shape) for of, shape in zip(whole, shapes, strict=True)])
    stacked = (np.stack(of) * (_LARGEST / _STEPS) for of in zip(*arrays, strict=True))
    params = Params(*(jnp.asarray(of, jnp.float32) for of in stacked))
    return params, np.array(lengths)


def draw(params: Params, lengths: np.ndarray) -> np.ndarray:
    """`[temperatures, classes, draws, steps, 5]`, in the models' units, cut at their lengths."""
    key, found = jax.random.key(SEED), []
    for index, temperature in enumerate(TEMPERATURES):
        sys.stderr.write(f"drawings at temperature {temperature:g}\n")
        sizes = {"draws": DRAWS, "max_steps": int(lengths.max())}
        points = sample(params, jax.random.fold_in(key, index), temperature=temperature, **sizes)
        found.append(np.asarray(points))
    points = np.stack(found)
    for index, length in enumerate(lengths):
        points[:, index, :, length:] = END
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
    return np.asarray(image.resize((side, side), Image.Resampling.BOX).convert("RGB"))


@common.recipe(
    "sketches",
    *common.OF_DRAWINGS,
    beside=["sketched_animals.npz", "drawings/{}.json"],
    source=REPOSITORY,
)
def build(work: Work, repository: Repository) -> tuple[NewSet, NewSet, bytes]:
    """All drawings, some of animals, and the strokes that are shown."""
    names, wordings = sorted((*ANIMALS, *THINGS)), WORDINGS["sketches"]
    params, trained = load(repository, [name.replace(" ", "_") for name in names])
    settings = {"repository": repository.reference, "classes": names, "draws": DRAWS, "seed": SEED}
    points = records.cached(
        work.cache,
        "sketches-points",
        version=_VERSION,
        settings={**settings, "temperatures": list(TEMPERATURES)},
        arrays={},
        build=lambda: {"points": draw(params, trained)},
    )["points"]
    flat, side = points.reshape(-1, *points.shape[-2:]), work.pictures.side
    drawings = (picture(lines(one), side) for one in flat)
    features = work.embed(drawings, work.pictures, arrays={"points": points})
    outputs, dimensions = common.principal_rows(features, DIMENSIONS)
    named, unnamed = map(work.embed_texts, (wordings.specified(names), wordings.unspecified()))

    labels = common.knob_labels(names, TEMPERATURES, DRAWS, wordings)
    types, models, typed, wording = labels.values()
    words = [f"{temperature:g}" for temperature in TEMPERATURES]
    lengths = np.tile(np.repeat(trained, DRAWS), len(words))
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
