"""The data sets of the project, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.data import mixture
from experiments.data.pairs import PairedEmbeddings

EMOJI_FILE = Path(__file__).parent / "emoji.npz"
_MIXTURE_N, _MIXTURE_DIMENSIONS = 4000, (64, 32)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set that every study can take.

    Attributes:
      load: gives its pairs.
      builder: the command that makes its file anew; '-' where it is computed.
      licence: whose it is and under what terms it may be used.
      description: what it is, in a line.
    """

    load: Callable[[], PairedEmbeddings]
    builder: str
    licence: str
    description: str


def _unit_rows(embeddings: np.ndarray) -> np.ndarray:
    # float16 leaves norms up to 1e-4 from 1, and the cosine kernel's diagonal shall be exact.
    rows = embeddings.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def load_emoji() -> PairedEmbeddings:
    """The shipped set: emoji by several designers, each paired with the emoji's name.

    Ordered by concept, then designer. README.md in this folder describes it, ATTRIBUTION.md names
    the designers and their licences. Labels: `prompt`, `prompt_texts`, `types` and `subtypes` (the
    groups of the CLDR), and `models`, who are the designers.
    """
    with np.load(EMOJI_FILE, allow_pickle=False) as stored:
        prompt, designer = stored["prompt_index"], stored["designer_index"]
        return PairedEmbeddings(
            name="emoji",
            outputs=_unit_rows(stored["outputs"]),
            prompts=_unit_rows(stored["prompt_embeddings"])[prompt],
            description=str(stored["description"]),
            labels={
                "prompt": prompt.astype(np.int64),
                "prompt_texts": stored["prompt_texts"][prompt],
                "types": stored["groups"][prompt],
                "subtypes": stored["subgroups"][prompt],
                "models": stored["designers"][designer],
            },
        )


def load_mixture() -> PairedEmbeddings:
    """4,000 pairs of `mixture.fill_mixture`, d = 64 and 32, seed 0."""
    outputs, prompts = (np.empty((_MIXTURE_N, d), np.float32) for d in _MIXTURE_DIMENSIONS)
    mixture.fill_mixture(outputs, prompts, seed=0)
    return PairedEmbeddings("mixture", outputs, prompts, mixture.describe(_MIXTURE_DIMENSIONS))


SETS = {
    "emoji": DataSet(
        load=load_emoji,
        builder="python -m experiments.data.build_emoji",
        licence="Apache-2.0, MIT, CC-BY-4.0 and CC-BY-SA-4.0, by designer: ATTRIBUTION.md",
        description="nine designers' drawings of 1,652 named emoji, each with its name as prompt",
    ),
    "mixture": DataSet(
        load=load_mixture,
        builder="-",
        licence="Apache-2.0, as the project",
        description="100 Gaussian modes in 10 kinds; a prompt names the kind and a mode of its own",
    ),
}


def load(name: str) -> PairedEmbeddings:
    """Loads a data set of the project.

    Raises:
      ValueError: the name is unknown, with the known ones.
    """
    if name not in SETS:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(SETS)}")
    return SETS[name].load()
