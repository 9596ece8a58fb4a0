"""The data sets of the project, by name, and the file that each is shipped in.

A set's file `NAME.npz` holds float16 embeddings under `outputs`, `prompts` and `further_ROLE`,
labels under `label_ROLE`, and `description`, `licence`, `cut` and `provenance`. Where an entry X is
a table of what occurs, `X_index` `[n]` says which row each pair has. The builders' `NewSet`
writes it.
"""

import dataclasses
import functools
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.data import mixture
from experiments.data.pairs import PairedEmbeddings

SEED = 0  # Of what the builders draw.
FOLDER = Path(__file__).parent
EMOJI_FILE = FOLDER / "emoji.npz"
FURTHER, LABEL, INDEX = "further_", "label_", "_index"
TEXT = "text_"  # Of labels that are scores of texts, which are not shipped.
_MIXTURE_N, _MIXTURE_DIMENSIONS = 4000, (64, 32)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set that every study can take."""

    load: Callable[[], PairedEmbeddings]
    builder: str  # The command that makes its file anew; '-' where it is computed.
    licence: str  # Whose it is and under what terms it may be used.
    description: str  # What it is, in a line.


def _unit_rows(embeddings: np.ndarray) -> np.ndarray:
    # float16 leaves norms up to 1e-4 from 1, and the cosine kernel's diagonal shall be exact.
    rows = embeddings.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def read_set(path: Path) -> PairedEmbeddings:
    """Reads a set's file: every pair, embeddings scaled to unit norm again in float32."""
    with np.load(path, allow_pickle=False) as stored:
        missing = {"outputs", "prompts", "description"} - set(stored.files)
        if missing:
            raise ValueError(f"{path}: {min(missing)} is missing; found {', '.join(stored.files)}")
        entries = dict(stored)
    of_pairs = {}
    for name in (name for name in entries if not name.endswith(INDEX)):
        embedded = name.startswith(("outputs", "prompts", FURTHER))
        values = _unit_rows(entries[name]) if embedded else entries[name]
        of_pairs[name] = values[entries[name + INDEX]] if name + INDEX in entries else values

    def starting(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(prefix): v for k, v in of_pairs.items() if k.startswith(prefix)}

    return PairedEmbeddings(
        path.stem,
        of_pairs["outputs"],
        of_pairs["prompts"],
        str(entries["description"]),
        labels=starting(LABEL),
        further=starting(FURTHER),
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
    """4,000 pairs of `mixture.draw`, d = 64 and 32, seed 0."""
    outputs, prompts = mixture.draw(_MIXTURE_N, _MIXTURE_DIMENSIONS, seed=0)
    return PairedEmbeddings("mixture", outputs, prompts, mixture.describe(_MIXTURE_DIMENSIONS))


def load_human() -> PairedEmbeddings:
    """The judged sets of responses, with similarities inside each set that need no embedding."""
    pairs = read_set(FOLDER / "human.npz")
    with np.load(FOLDER / "human_similarities.npz", allow_pickle=False) as stored:
        rows = {role: stored[role].astype(np.float32) for role in stored.files}
    return dataclasses.replace(pairs, further={**pairs.further, **rows})


def load_t2i_second() -> PairedEmbeddings:
    """The pictures of t2i by their second encoder."""
    pairs = read_set(FOLDER / "t2i.npz")
    words = pairs.description.replace("Lite0", "Lite2")
    return dataclasses.replace(
        pairs, name="t2i_second", outputs=pairs.further["second"], description=words, further={}
    )


def load_caption_pairs() -> PairedEmbeddings:
    """The photographs with their first captions, and with further ones out of two other files."""
    first, five = read_set(FOLDER / "captions.npz"), read_set(FOLDER / "captioning.npz")
    with np.load(FOLDER / "caption_pairs.npz", allow_pickle=False) as stored:
        prompts, photograph = _unit_rows(stored["prompts"]), stored["photograph"].astype(int)
        description = str(stored["description"])
    further = five.labels["caption"] > 0
    photograph = np.concatenate([np.arange(len(first)), five.labels["prompt"][further], photograph])
    return PairedEmbeddings(
        "caption_pairs",
        first.outputs[photograph],
        np.concatenate([first.prompts, five.outputs[further], prompts]),
        description,
        {"photograph": photograph, "pictures": first.labels["pictures"][photograph]},
    )


_LOADERS = {"emoji": load_emoji, "mixture": load_mixture, "human": load_human}
_LOADERS |= {"t2i_second": load_t2i_second, "caption_pairs": load_caption_pairs}
# Those of sets.toml, in its order; where there is no loader above they are files.
SETS = {
    name: DataSet(
        load=_LOADERS.get(name) or functools.partial(read_set, FOLDER / f"{name}.npz"),
        builder=f"python -m experiments.builders {of['builder']}" if "builder" in of else "-",
        licence=of["licence"],
        description=of["description"],
    )
    for name, of in tomllib.loads((FOLDER / "sets.toml").read_text(encoding="utf-8")).items()
}


def load(name: str) -> PairedEmbeddings:
    """Loads a data set of the project; ValueError with the known names where this is none."""
    if name not in SETS:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(SETS)}")
    return SETS[name].load()
