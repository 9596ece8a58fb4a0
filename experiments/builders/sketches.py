"""Rebuild the drawings by Sketch-RNN: 29 classes at seven temperatures, and ten animals at three.

    python -m experiments.builders.sketches --source=CLONE

Needs the extra `embed` and the two weights packages (README.md). Weights are read from the clone.
Every class is drawn so often at every temperature, logits and deviations by the same temperature
(`generators/sketch_rnn.py`); a drawing that has not ended by the length of the longest one of its
training is cut there. Each gets a wording (`wordings.py`) at random, the same at every temperature.

`sketches.npz` has them all, with prompts that name the class. `sketched_animals.npz` has the first
ten animals in the order of the alphabet, at the lowest, the middle and the highest temperature,
with prompts that name the animal and that do not. One drawing of every class at every temperature
is kept as strokes, to be shown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags

from condvendi_jax.bandwidth import median_heuristic
from condvendi_jax.cli import command
from condvendi_jax.encoders import Encoder, load_efficientnet, load_minilm
from condvendi_jax.encoders.efficientnet import PACKAGE as EFFICIENTNET_PACKAGE
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from experiments import records
from experiments.builders import common
from experiments.data import strokes
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER, SEED
from experiments.data.wordings import WORDINGS
from experiments.generators import sketch_rnn

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
ANIMALS_SET = "sketched_animals"
_BATCH = 256
_VERSION = 1  # Raised when what is drawn from the same weights and key changes, or its pictures.


def file_name(name: str) -> str:
    """A class as the repository's files call it."""
    return name.replace(" ", "_")


def draw(published: sketch_rnn.Published, temperatures: Sequence[float], draws: int) -> np.ndarray:
    """`[temperatures, classes, draws, steps, 5]`, in the models' units, cut at their lengths."""
    steps = int(published.lengths.max())
    key = jax.random.key(SEED)
    found = []
    for index, temperature in enumerate(temperatures):
        sys.stderr.write(f"drawings at temperature {temperature:g}\n")
        points = sketch_rnn.sample(
            published.params,
            jax.random.fold_in(key, index),
            np.arange(len(published.names)),
            draws=draws,
            temperature=temperature,
            max_steps=steps,
        )
        found.append(np.asarray(points))
    points = np.stack(found)
    for index, length in enumerate(published.lengths):
        points[:, index, :, length:] = sketch_rnn.END
    return points


def embed(drawings: Sequence[strokes.Lines], encoder: Encoder) -> np.ndarray:
    """The features of pictures of some drawings, `[n, d]`."""
    side: int = getattr(encoder, "side", strokes.SIDE)
    rows = []
    for start in range(0, len(drawings), _BATCH):
        batch = drawings[start : start + _BATCH]
        rows.append(encoder.encode(np.stack([strokes.picture(one, side) for one in batch])))
        sys.stderr.write(f"drawings: {start + len(batch):,} of {len(drawings):,}\n")
    return np.concatenate(rows)


def build(
    repository: Repository,
    names: Sequence[str],
    *,
    temperatures: Sequence[float],
    draws: int,
    cache: Path,
    output: Path,
) -> None:
    """Draws, embeds and writes the set's file, and beside it the strokes that are shown.

    Args:
      repository: of the weights.
      names: of the classes, in their order.
      temperatures: rising.
      draws: drawings of a class at a temperature.
      cache: folder of what is made.
      output: the file of all drawings, `NAME.npz`; the animals go beside it, the strokes to
        `drawings/NAME.json`.
    """
    wordings, pictures, texts = WORDINGS["sketches"], load_efficientnet(), load_minilm()
    published = sketch_rnn.load(repository, [file_name(name) for name in names])
    settings = {
        "repository": repository.reference,
        "classes": list(names),
        "temperatures": list(temperatures),
        "draws": draws,
        "seed": SEED,
    }
    points = records.cached(
        cache,
        "sketches-points",
        version=_VERSION,
        settings=settings,
        arrays={},
        build=lambda: {"points": draw(published, temperatures, draws)},
    )["points"]
    flat = points.reshape(-1, *points.shape[-2:])
    drawings = [strokes.lines(one) for one in flat]
    features = common.unit_rows(
        records.cached(
            cache,
            "sketches-pictures",
            version=_VERSION,
            settings={"encoder": pictures.name},
            arrays={"points": points},
            build=lambda: {"features": embed(drawings, pictures)},
        )["features"]
    )
    outputs, share = common.principal_rows(features, min(DIMENSIONS, features.shape[1]))

    each = len(names) * draws
    number = np.tile(np.repeat(np.arange(len(names)), draws), len(temperatures))
    wording = np.tile(wordings.pair(each, SEED), len(temperatures))
    typed = number * len(wordings.templates) + wording
    words = [f"{temperature:g}" for temperature in temperatures]
    types, models = np.array(names)[number], np.repeat(words, each)
    named, unnamed = (
        common.embed_texts(sentences, texts, cache=cache, name="sketches-prompts")
        for sentences in (wordings.specified(names), wordings.unspecified())
    )
    encoders = f"{pictures.name} pictures, {texts.name} prompts"
    written: dict[str, Any] = {
        "licence": "not stated for the weights (github.com/hardmaru/sema-demo, code Apache-2.0): "
        "embeddings and labels of drawings by them only",
        "provenance": [
            repository.reference,
            *common.versions("jax", "flax", "pillow", MINILM_PACKAGE, EFFICIENTNET_PACKAGE),
        ],
    }
    # A limit that was reached is no end of a drawing's own.
    ended = flat[:, :, 4].argmax(axis=1) < published.lengths[number]
    ended &= flat[:, :, 4].any(axis=1)
    cut = {
        "drawings": f"{draws} of each class at each temperature, seed {SEED}",
        "ended": {word: round(float(ended[models == word].mean()), 4) for word in words},
        "dimensions": f"{outputs.shape[1]} of {features.shape[1]} principal directions, with "
        f"{share:.4f} of the squared norm",
        "cost": cost(features, outputs, named[typed]),
    }
    common.write_set(
        output,
        outputs=outputs,
        prompts=(named, typed),
        labels={
            "types": types,
            "models": models,
            "prompt": typed,
            "wording": wording,
            "ended": ended.astype(np.uint8),
        },
        description=f"{len(outputs):,} drawings by Sketch-RNN of {len(names)} classes at "
        f"{len(words)} temperatures, {len(wordings.templates)} wordings; {encoders}",
        cut=cut,
        **written,
    )
    animals = [name for name in names if name in ANIMALS][:TYPES]
    three = list(dict.fromkeys((words[0], words[len(words) // 2], words[-1])))
    kept = np.isin(types, animals) & np.isin(models, three)
    common.write_set(
        output.with_name(f"{ANIMALS_SET}.npz"),
        outputs=outputs[kept],
        prompts=(unnamed, wording[kept]),
        further={"typed_prompts": (named, typed[kept])},
        labels={"types": types[kept], "models": models[kept], "wording": wording[kept]},
        description=f"{int(kept.sum()):,} drawings by Sketch-RNN of {len(animals)} animals at "
        f"temperatures {', '.join(three)}, {len(wordings.templates)} wordings; {encoders}",
        cut={"types": f"the first {TYPES} animals by name", **cut},
        **written,
    )
    strokes.write(
        output.parent / "drawings" / f"{output.stem}.json",
        {
            (name, word): strokes.lines(points[t, c, 0])
            for c, name in enumerate(names)
            for t, word in enumerate(words)
        },
    )


def cost(
    features: np.ndarray, outputs: np.ndarray, prompts: np.ndarray
) -> dict[str, dict[str, float] | dict[str, dict[str, float]]]:
    """What directions left out, and then float16, cost at the medians of the distances."""
    whole = PairedEmbeddings("whole", features, prompts, "before the cut")
    cut = PairedEmbeddings("cut", outputs, prompts, "after the cut")
    halved = PairedEmbeddings(
        "halved", common.unit_rows(outputs.astype(np.float16)), prompts, "as written"
    )
    widths = {
        side: float(median_heuristic(points, key=jax.random.key(SEED)))
        for side, points in (("outputs", features), ("prompts", prompts))
    }
    return {
        "bandwidths": widths,
        "directions": common.cost_of(whole, cut, widths),
        "float16": common.cost_of(cut, halved, widths),
    }


def main(argv: list[str]) -> None:
    """Opens the clone, draws, embeds and writes."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    if values.draws < 1:
        raise ValueError(f"--draws: expected a positive number, received {values.draws}.")
    cache, output = Path(values.cache_dir), Path(values.output)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(
        FOLDER / "sketches.npz",
        output.with_name(f"{ANIMALS_SET}.npz"),
        output.parent / "drawings" / f"{output.stem}.json",
    )
    repository = Repository.opened(*sketch_rnn.REPOSITORY, source=values.source, cache=cache)
    build(
        repository,
        sorted((*ANIMALS, *THINGS)),
        temperatures=TEMPERATURES,
        draws=values.draws,
        cache=cache,
        output=output,
    )


if __name__ == "__main__":
    common.define_flags(FOLDER / "sketches.npz", source=sketch_rnn.REPOSITORY[0])
    flags.DEFINE_integer("draws", DRAWS, "Drawings of each class at each temperature.")
    command.run(main)
