"""The data sets of the project, by name, and the file that each is shipped in.

A set's file `NAME.npz` holds float16 embeddings under `outputs`, `prompts` and `further_ROLE`,
labels under `label_ROLE`, and `description`, `licence`, `cut` and `provenance`. Where an entry X is
a table of what occurs, `X_index` `[n]` says which row each pair has. The builders' `write_set`
writes it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.data import mixture
from experiments.data.pairs import PairedEmbeddings

SEED = 0  # Of what the builders draw.
FOLDER = Path(__file__).parent
EMOJI_FILE = FOLDER / "emoji.npz"
FURTHER, LABEL, INDEX = "further_", "label_", "_index"
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


def read_set(path: Path) -> PairedEmbeddings:
    """Reads a set's file: every pair, embeddings scaled to unit norm again in float32.

    Raises:
      ValueError: an entry is missing.
    """
    with np.load(path, allow_pickle=False) as stored:
        missing = {"outputs", "prompts", "description"} - set(stored.files)
        if missing:
            raise ValueError(f"{path}: {min(missing)} is missing; found {', '.join(stored.files)}")
        entries = {name: stored[name] for name in stored.files}

    def of_pairs(name: str, change: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
        values = change(entries[name])
        index = entries.get(name + INDEX)
        return values if index is None else values[index]

    def named(prefix: str) -> list[str]:
        found = [name.removeprefix(prefix) for name in entries if name.startswith(prefix)]
        return [name for name in found if not name.endswith(INDEX)]

    return PairedEmbeddings(
        name=path.stem,
        outputs=of_pairs("outputs", _unit_rows),
        prompts=of_pairs("prompts", _unit_rows),
        description=str(entries["description"]),
        labels={role: of_pairs(LABEL + role) for role in named(LABEL)},
        further={role: of_pairs(FURTHER + role, _unit_rows) for role in named(FURTHER)},
    )


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


def _shipped(name: str) -> Callable[[], PairedEmbeddings]:
    return functools.partial(read_set, FOLDER / f"{name}.npz")


def _types(name: str, licence: str, description: str) -> DataSet:
    """A set of photographs of ten kinds, with prompts that name the kind and that do not."""
    return DataSet(
        load=_shipped(name),
        builder=f"python -m experiments.builders.kinds {name}",
        licence=licence,
        description=f"{description}; prompts with the kind named and unnamed, two text encoders",
    )


SETS = {
    "emoji": DataSet(
        load=load_emoji,
        builder="python -m experiments.builders.emoji",
        licence="Apache-2.0, MIT, CC-BY-4.0 and CC-BY-SA-4.0, by designer: ATTRIBUTION.md",
        description="nine designers' drawings of 1,652 named emoji, each with its name as prompt",
    ),
    "dogs": _types(
        "dogs",
        "NC: Stanford Dogs, under ImageNet's terms, for non-commercial research and education",
        "1,400 photographs of 10 breeds of dog",
    ),
    "fruits": _types(
        "fruits", "MIT: Grocery Store Dataset", "1,121 photographs of 10 kinds of fruit in shops"
    ),
    "clothing": _types(
        "clothing", "CC0-1.0: Clothing Dataset", "1,396 photographs of 10 kinds of clothing"
    ),
    "animals": _types(
        "animals",
        "NC: Tiny-ImageNet, under ImageNet's terms, for non-commercial research and education",
        "1,400 small photographs of 10 kinds of animal",
    ),
    "objects": _types(
        "objects",
        "NC: Tiny-ImageNet, under ImageNet's terms, for non-commercial research and education",
        "1,400 small photographs of 10 kinds of object",
    ),
    "captions": DataSet(
        load=_shipped("captions"),
        builder="python -m experiments.builders.captions",
        licence="NC: Flickr8k, for non-commercial research only",
        description="8,091 photographs of Flickr8k, each with a human caption of it as prompt",
    ),
    "captioning": DataSet(
        load=_shipped("captioning"),
        builder="python -m experiments.builders.captions",
        licence="NC: Flickr8k, for non-commercial research only",
        description="five human captions each of photographs of Flickr8k, which are the prompts",
    ),
    "gallery": DataSet(
        load=_shipped("gallery"),
        builder="python -m experiments.builders.gallery",
        licence="not stated by the source (github.com/dcsan/imagen): embeddings and labels only",
        description="pictures by seven text-to-image sources on up to 41 shared prompts",
    ),
    "video": DataSet(
        load=_shipped("video"),
        builder="python -m experiments.builders.video",
        licence="FETV: not stated; Shap-E: MIT",
        description="clips of four text-to-video models, of Shap-E, and real ones, by prompt",
    ),
    "language": DataSet(
        load=_shipped("language"),
        builder="python -m experiments.builders.language",
        licence="Apache-2.0; the terms of the models, whose answers were embedded, vary",
        description="answers of 23 language models to the same instructions, whole and cut",
    ),
    "answers": DataSet(
        load=_shipped("answers"),
        builder="python -m experiments.builders.answers answers",
        licence="not stated by the source (NoveltyBench's site): embeddings and labels only",
        description="ten answers of 24 language models to each of 100 prompts, whole and cut",
    ),
    "post_training": DataSet(
        load=_shipped("post_training"),
        builder="python -m experiments.builders.answers post_training",
        licence="not stated by the source: embeddings and labels only",
        description="ten answers to each of 300 prompts after four stages of a model's training",
    ),
    "same_answers": DataSet(
        load=_shipped("same_answers"),
        builder="python -m experiments.builders.answers same_answers",
        licence="MIT (NoveltyBench's labels, as the source states it)",
        description="1,100 pairs of answers to a prompt that people called the same or different",
    ),
    "human": DataSet(
        load=_shipped("human"),
        builder="python -m experiments.builders.human",
        licence="MIT (Tevet and Berant), as the source states it",
        description="sets of responses to a context that people judged for diversity, nine tasks",
    ),
    "sketches": DataSet(
        load=_shipped("sketches"),
        builder="python -m experiments.builders.sketches",
        licence="not stated for the weights; the code beside them is Apache-2.0",
        description="drawings by Sketch-RNN of 29 classes at seven temperatures",
    ),
    "sketched_animals": DataSet(
        load=_shipped("sketched_animals"),
        builder="python -m experiments.builders.sketches",
        licence="not stated for the weights; the code beside them is Apache-2.0",
        description="drawings by Sketch-RNN of ten animals at three temperatures, named or not",
    ),
    "quickdraw": DataSet(
        load=_shipped("quickdraw"),
        builder="python -m experiments.builders.quickdraw",
        licence="MIT: weights of ml5.js, trained on Quick, Draw! (CC-BY-4.0)",
        description="drawings of 50 classes by a conditional VAE, its latents truncated to 0 ... 1",
    ),
    "stories": DataSet(
        load=_shipped("stories"),
        builder="python -m experiments.builders.stories",
        licence="Apache-2.0, as the model and the project",
        description="stories of a small language model at four temperatures, whole and cut",
    ),
    "fashion_features": DataSet(
        load=_shipped("fashion_features"),
        builder="python -m experiments.builders.features fashion",
        licence="MIT: Fashion-MNIST",
        description="10,000 held-out pictures of Fashion-MNIST, embedded by what is trained here",
    ),
    "emoji_features": DataSet(
        load=_shipped("emoji_features"),
        builder="python -m experiments.builders.features emoji",
        licence="Apache-2.0, MIT, CC-BY-4.0 and CC-BY-SA-4.0, by designer: ATTRIBUTION.md",
        description="a tenth of the drawings of emoji, held out of an encoder trained here",
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
