"""Rebuild fashion_prompts.npz: the wordings of the ten kinds of Fashion-MNIST, embedded."""

import pathlib

import numpy as np

from condvendi_jax.encoders import load_minilm
from experiments.builders import common
from experiments.data.wordings import WORDINGS
from experiments.generators.pictures import FASHION, FASHION_FILE


def build(output: pathlib.Path, cache: pathlib.Path) -> None:
    """Writes embeddings of the wordings, float16 `[kinds, wordings, p]`."""
    sentences = WORDINGS["fashion"].specified(FASHION)
    rows = common.embed_texts(sentences, load_minilm(), cache=cache, name="fashion-prompts")
    embeddings = rows.reshape(len(FASHION), -1, rows.shape[1]).astype(np.float16)
    common.write_arrays(output, embeddings=embeddings)


RECIPES = {FASHION_FILE.stem: common.Recipe(build)}

if __name__ == "__main__":
    common.run(RECIPES)
