"""Rebuild the drawings by Sketch-RNN: 29 classes at seven temperatures, and ten animals at three.

python -m experiments.builders.sketches --source=CLONE
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from condvendi_jax.encoders import load_efficientnet, load_minilm
from experiments.builders import common
from experiments.data import strokes
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


def build(output: Path, cache: Path, repository: Repository) -> None:
    """Draws, embeds and writes both sets and the strokes that are shown."""
    names = sorted((*ANIMALS, *THINGS))
    wordings, pictures, texts = WORDINGS["sketches"], load_efficientnet(), load_minilm()
    published = sketch_rnn.load(repository, [name.replace(" ", "_") for name in names])
    settings = {"repository": repository.reference, "classes": names, "draws": DRAWS, "seed": SEED}
    points = records.cached(
        cache,
        "sketches-points",
        version=_VERSION,
        settings={**settings, "temperatures": list(TEMPERATURES)},
        arrays={},
        build=lambda: {"points": draw(published)},
    )["points"]
    flat, side = points.reshape(-1, *points.shape[-2:]), common.side_of(pictures)
    drawings = (strokes.picture(strokes.lines(one), side) for one in flat)
    features = common.embed(
        "sketches-pictures", drawings, pictures, cache=cache, arrays={"points": points}
    )
    outputs, dimensions = common.principal_rows(features, DIMENSIONS)

    labels = common.knob_labels(names, TEMPERATURES, DRAWS, wordings)
    types, models, typed, wording = labels.values()
    words = [f"{temperature:g}" for temperature in TEMPERATURES]
    named, unnamed = (
        common.embed_texts(sentences, texts, cache=cache, name="sketches-prompts")
        for sentences in (wordings.specified(names), wordings.unspecified())
    )
    lengths = np.tile(np.repeat(published.lengths, DRAWS), len(words))
    ends = flat[:, :, 4] == 1  # Not those at the lengths of a cut.
    ended = ends.any(axis=1) & (ends.argmax(axis=1) < lengths)
    written: dict[str, Any] = {
        "provenance": common.origins(repository, *common.OF_DRAWINGS),
        "cut": {
            "drawings": f"{DRAWS} of each class at each temperature, seed {SEED}",
            "ended": {word: round(float(ended[models == word].mean()), 4) for word in words},
            "dimensions": dimensions,
        },
    }
    encoders = f"{len(wordings.templates)} wordings; {pictures.name} pictures, {texts.name} prompts"
    common.write_set(
        output,
        "sketches",
        outputs=outputs,
        prompts=(named, typed),
        labels={**labels, "ended": ended.astype(np.uint8)},
        description=f"{len(outputs):,} drawings by Sketch-RNN of {len(names)} classes at "
        f"{len(words)} temperatures, {encoders}",
        **written,
    )
    animals, three = ANIMALS[:TYPES], [words[0], words[len(words) // 2], words[-1]]
    kept = np.isin(types, animals) & np.isin(models, three)
    animals_file, strokes_file = RECIPES["sketches"].files_beside(output)
    common.write_set(
        animals_file,
        "sketched_animals",
        outputs=outputs[kept],
        prompts=(unnamed, wording[kept]),
        further={"typed_prompts": (named, typed[kept])},
        labels={"types": types[kept], "models": models[kept], "wording": wording[kept]},
        description=f"{int(kept.sum()):,} drawings by Sketch-RNN of {len(animals)} animals at "
        f"temperatures {', '.join(three)}, {encoders}",
        **written,
    )
    shown = {
        (name, word): strokes.lines(points[t, c, 0])
        for c, name in enumerate(names)
        for t, word in enumerate(words)
    }
    strokes.write(strokes_file, shown)


_BESIDE = "sketched_animals.npz", "drawings/{}.json"
RECIPES = {"sketches": common.Recipe(build, {"source": sketch_rnn.REPOSITORY}, _BESIDE)}

if __name__ == "__main__":
    common.run(RECIPES)
