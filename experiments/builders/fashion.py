"""Rebuild fashion_prompts.npz: the wordings of the ten kinds of Fashion-MNIST, embedded.

    python -m experiments.builders.fashion

Needs the extra `embed` and the weights package of all-MiniLM-L6-v2 (README.md).
"""

from __future__ import annotations

import pathlib

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.cli.files import atomic_writer
from condvendi_jax.encoders import Encoder, load_minilm
from experiments.builders import common
from experiments.data import pictures


def build(texts: Encoder) -> np.ndarray:
    """Unit-norm embeddings of the wordings, float16 `[kinds, wordings, p]`."""
    rows = np.asarray(texts.encode(pictures.fashion_wordings()), np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit.reshape(len(pictures.FASHION), -1, rows.shape[1]).astype(np.float16)


def main(argv: list[str]) -> None:
    """Embeds and writes."""
    command.no_words(argv[1:])
    output = pathlib.Path(flags.FLAGS.output)
    common.check_output(pictures.FASHION_FILE, sources=())
    embeddings = build(load_minilm())
    with atomic_writer(output) as stream:
        np.savez_compressed(stream, embeddings=embeddings)
    print(f"{output}: {embeddings.shape[0]} kinds in {embeddings.shape[1]} wordings")


if __name__ == "__main__":
    flags.DEFINE_string("output", str(pictures.FASHION_FILE), "File to write.")
    common.define_overwrite()
    command.run(main)
