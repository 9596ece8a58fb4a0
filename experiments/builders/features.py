"""Rebuild fashion_features.npz or emoji_features.npz: held-out real pictures as their features.

fashion_prompts.npz has the wordings of the ten kinds.
"""

import pathlib

import numpy as np

from condvendi_jax.cli.flags import flag
from experiments.builders.common import NewSet, Work, recipe
from experiments.data.sets import SEED
from experiments.data.wordings import WORDINGS
from experiments.generators import fitting, picture_encoder
from experiments.generators.pictures import COLLECTIONS, FASHION, FASHION_FILE

_WORDS = {"fashion": "photographs of ten kinds of clothing", "emoji": "drawings of emoji"}
_TAKES = {"pictures": (str | None, flag(None, "Folder of the real pictures."))}


@recipe("fashion_features", takes=_TAKES)
@recipe("emoji_features", takes=_TAKES)
def build(work: Work) -> NewSet:
    """What is held out, in the order of the collection."""
    name = work.name.removesuffix("_features")
    folder = pathlib.Path(work.flags.pictures) if work.flags.pictures else None
    collection = COLLECTIONS[name]
    found, prompts = collection.load(folder), collection.prompts()
    encoder = picture_encoder.load(name, fitting.Places(folder, work.cache / "trained"))
    pixels, kinds = found.part(held_out=True)
    wordings = prompts.embeddings.shape[1]
    words = np.random.default_rng(SEED).integers(wordings, size=len(kinds))
    return NewSet(
        fitting.in_parts(encoder, pixels),
        (prompts.embeddings.reshape(-1, encoder.training.prompt), kinds * wordings + words),
        labels={"types": prompts.names[kinds], "kind": kinds},
        description=f"{len(kinds):,} held-out {_WORDS[name]}, features of an encoder "
        "that was trained on the others, MiniLM embeddings of their prompts",
        cut={"held out": len(kinds), "of": len(found.kinds)},
        origins=picture_encoder.provenance(encoder.training),
    )


@recipe(FASHION_FILE.stem)
def build_prompts(work: Work) -> dict[str, np.ndarray]:
    """Embeddings of the wordings, float16 `[kinds, wordings, p]`."""
    rows = work.embed_texts(WORDINGS["fashion"].specified(FASHION))
    return {"embeddings": rows.reshape(len(FASHION), -1, rows.shape[1]).astype(np.float16)}
