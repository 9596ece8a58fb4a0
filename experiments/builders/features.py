"""Rebuild fashion_features.npz or emoji_features.npz: held-out real pictures as their features.

    python -m experiments.builders.features fashion --pictures=DIR

What generated pictures are held against, without the pictures: the features of the encoder that was
trained on the others (experiments.generators.picture_encoder), each with a prompt of its kind.
"""

from __future__ import annotations

import pathlib

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from experiments.builders import common
from experiments.data import pictures
from experiments.data.sets import FOLDER, SEED
from experiments.generators import fitting, picture_encoder

_LICENCES = {
    "fashion": "MIT (Fashion-MNIST)",
    "emoji": "by designer, as emoji.npz: Apache-2.0, MIT, CC-BY-4.0 and CC-BY-SA-4.0",
}
_WORDS = {"fashion": "photographs of ten kinds of clothing", "emoji": "drawings of emoji"}


def build(
    collection: pictures.Collection,
    found: pictures.Pictures,
    encoder: picture_encoder.Encoder,
    output: pathlib.Path,
) -> None:
    """Embeds what is held out, in the order of the collection, and writes it."""
    pixels, kinds = found.part(held_out=True)
    prompts = collection.prompts()
    wordings = prompts.embeddings.shape[1]
    words = np.random.default_rng(SEED).integers(wordings, size=len(kinds))
    common.write_set(
        output,
        outputs=picture_encoder.features_of(encoder, pixels),
        prompts=(prompts.embeddings.reshape(-1, encoder.training.prompt), kinds * wordings + words),
        labels={"types": prompts.names[kinds], "kind": kinds},
        description=f"{len(kinds):,} held-out {_WORDS[collection.name]}, features of an encoder "
        "that was trained on the others, MiniLM embeddings of their prompts",
        licence=_LICENCES[collection.name],
        provenance=picture_encoder.provenance(encoder.training),
        cut={"held out": len(kinds), "of": len(found.kinds)},
    )


def main(argv: list[str]) -> None:
    """Reads the pictures, embeds and writes."""
    command.no_words(argv[2:])
    known = pictures.COLLECTIONS
    name = argv[1] if len(argv) > 1 else ""
    if name not in known:
        raise ValueError(f"expected one of {', '.join(known)}, received {name!r}.")
    output = pathlib.Path(flags.FLAGS.output or FOLDER / f"{name}_features.npz")
    common.check_output(FOLDER / f"{name}_features.npz", sources=("pictures",))
    folder = pathlib.Path(flags.FLAGS.pictures) if flags.FLAGS.pictures else None
    found = known[name].load(folder)
    encoder = picture_encoder.load(name, fitting.Places(folder))
    build(known[name], found, encoder, output)


if __name__ == "__main__":
    flags.DEFINE_string("output", None, "The file to write; NAME_features.npz here if unset.")
    common.define_overwrite()
    flags.DEFINE_string("pictures", None, "Folder of the real pictures.")
    command.run(main)
