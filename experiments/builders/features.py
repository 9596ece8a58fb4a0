"""Rebuild fashion_features.npz or emoji_features.npz: held-out real pictures as their features.

python -m experiments.builders.features fashion --pictures=DIR
python -m experiments.builders.features fashion_prompts    # The wordings of its ten kinds.
"""

import functools
import pathlib

import numpy as np

from condvendi_jax.cli.flags import flag
from condvendi_jax.encoders import load_minilm
from experiments.builders import common
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS
from experiments.generators import fitting, picture_encoder
from experiments.generators.pictures import COLLECTIONS, FASHION, FASHION_FILE

_WORDS = {"fashion": "photographs of ten kinds of clothing", "emoji": "drawings of emoji"}


def build(
    name: str, output: pathlib.Path, cache: pathlib.Path, *, pictures: str | None = None
) -> None:
    """Embeds what is held out, in the order of the collection, and writes it."""
    folder = pathlib.Path(pictures) if pictures else None
    collection = COLLECTIONS[name]
    found, prompts = collection.load(folder), collection.prompts()
    encoder = picture_encoder.load(name, fitting.Places(folder, cache / "trained"))
    pixels, kinds = found.part(held_out=True)
    wordings = prompts.embeddings.shape[1]
    words = np.random.default_rng(SEED).integers(wordings, size=len(kinds))
    common.write_set(
        output,
        f"{name}_features",
        outputs=picture_encoder.features_of(encoder, pixels),
        prompts=(prompts.embeddings.reshape(-1, encoder.training.prompt), kinds * wordings + words),
        labels={"types": prompts.names[kinds], "kind": kinds},
        description=f"{len(kinds):,} held-out {_WORDS[name]}, features of an encoder "
        "that was trained on the others, MiniLM embeddings of their prompts",
        provenance=picture_encoder.provenance(encoder.training),
        cut={"held out": len(kinds), "of": len(found.kinds)},
    )


def build_prompts(output: pathlib.Path, cache: pathlib.Path) -> None:
    """Writes embeddings of the wordings, float16 `[kinds, wordings, p]`."""
    sentences = WORDINGS["fashion"].specified(FASHION)
    rows = common.embed_texts(sentences, load_minilm(), cache=cache, name="fashion-prompts")
    embeddings = rows.reshape(len(FASHION), -1, rows.shape[1]).astype(np.float16)
    common.write_arrays(output, embeddings=embeddings)


_TAKES = {"pictures": (str | None, flag(None, "Folder of the real pictures."))}
RECIPES = {
    name: common.Recipe(functools.partial(build, name), stem=f"{name}_features", takes=_TAKES)
    for name in _WORDS
}
RECIPES[FASHION_FILE.stem] = common.Recipe(build_prompts)

if __name__ == "__main__":
    common.run(RECIPES)
