"""Paired (picture, prompt) embeddings, the shipped ones and one's own, by one interface."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from condvendi_jax.files import read_array

EMOJI_FILE = Path(__file__).parent / "emoji.npz"


@dataclass(frozen=True, eq=False)
class PairedEmbeddings:
    """The embeddings of n (output, prompt) pairs, and what is known about each pair.

    Attributes:
      name: short name of the set.
      outputs: X, float32 `[n, d_x]`.
      prompts: T, float32 `[n, d_t]`; pairs of one prompt have identical rows.
      description: one line for a figure's caption: what the data are and how they were embedded.
      prompt_texts: the prompts' words, `[n]`, or None.
      prompt_index: integer `[n]`, equal for the pairs of one prompt, or None.
      types: the group of each pair, `[n]`, or None.
      subtypes: the subgroup of each pair, `[n]`, or None.
      designers: who (or which model) made each output, `[n]`, or None.

    Raises:
      ValueError: if a field's length is not that of `outputs`, with both lengths.
    """

    name: str
    outputs: np.ndarray
    prompts: np.ndarray
    description: str
    prompt_texts: np.ndarray | None = None
    prompt_index: np.ndarray | None = None
    types: np.ndarray | None = None
    subtypes: np.ndarray | None = None
    designers: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check that the fields describe the same pairs."""
        for field in ("prompts", "prompt_texts", "prompt_index", "types", "subtypes", "designers"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.outputs):
                raise ValueError(
                    f"outputs and {field} must have the same length, "
                    f"received {len(self.outputs)} and {len(values)}"
                )

    def __len__(self) -> int:
        """The number of pairs n."""
        return len(self.outputs)


def _unit_rows(embeddings: np.ndarray) -> np.ndarray:
    # float16 leaves norms up to 1e-4 from 1, and the cosine kernel's diagonal shall be exact.
    rows = embeddings.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def load_emoji() -> PairedEmbeddings:
    """The shipped set: emoji by several designers, each paired with the emoji's name.

    Ordered by concept, then designer. README.md in this folder describes it, ATTRIBUTION.md names
    the designers and their licences.
    """
    with np.load(EMOJI_FILE, allow_pickle=False) as stored:
        prompt, designer = stored["prompt_index"], stored["designer_index"]
        return PairedEmbeddings(
            name="emoji",
            outputs=_unit_rows(stored["outputs"]),
            prompts=_unit_rows(stored["prompt_embeddings"])[prompt],
            description=str(stored["description"]),
            prompt_texts=stored["prompt_texts"][prompt],
            prompt_index=prompt.astype(np.int64),
            types=stored["groups"][prompt],
            subtypes=stored["subgroups"][prompt],
            designers=stored["designers"][designer],
        )


def load_files(
    *,
    outputs: str | os.PathLike[str],
    prompts: str | os.PathLike[str],
    types: str | os.PathLike[str] | None = None,
    keys: Mapping[str, str | None] | None = None,
) -> PairedEmbeddings:
    """One's own embeddings, from .npy, .npz or .safetensors files.

    Args:
      outputs: file of `[n, d_x]` numbers.
      prompts: file of `[n, d_t]` numbers, row by row the prompts of the outputs.
      types: file of n labels (numbers or strings), if there are any.
      keys: which array of a file that holds several, by role: `{"outputs": "x"}`.

    Returns:
      The pairs, under the stem of the outputs' file as their name.

    Raises:
      ValueError: if an embedding file does not hold a matrix of numbers, if the labels are not one
        column, or if the lengths differ; with what was received.
    """
    keys = keys or {}
    x, name = _matrix(outputs, "outputs", keys.get("outputs")), Path(outputs).stem
    return PairedEmbeddings(
        name=name,
        outputs=x,
        prompts=_matrix(prompts, "prompts", keys.get("prompts")),
        description=f"{name}: {len(x):,} pairs from {Path(outputs).name} and {Path(prompts).name}",
        types=None if types is None else _labels(types, keys.get("types")),
    )


def _matrix(path: str | os.PathLike[str], role: str, key: str | None) -> np.ndarray:
    array = read_array(path, key=key)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{role} must be a matrix [n, d] of numbers, "
            f"received {array.dtype} of shape {array.shape} from {os.fspath(path)}"
        )
    return array.astype(np.float32)


def _labels(path: str | os.PathLike[str], key: str | None) -> np.ndarray:
    array = read_array(path, key=key)
    if array.ndim != 1:
        raise ValueError(
            f"types must be one label a pair [n], "
            f"received shape {array.shape} from {os.fspath(path)}"
        )
    return array


_SETS = {"emoji": load_emoji}


def load(
    name_or_files: str | Mapping[str, str | os.PathLike[str]],
    *,
    keys: Mapping[str, str | None] | None = None,
) -> PairedEmbeddings:
    """Load a shipped set by name, or one's own files.

    Args:
      name_or_files: `"emoji"`, or the arguments of `load_files`:
        `{"outputs": "x.npy", "prompts": "t.npy"}` and, where there are labels, `"types"`.
      keys: as `load_files`.

    Raises:
      ValueError: if the name is unknown, with the known ones; if a file's role is unknown or one
        is missing; or as `load_files` does.
    """
    if isinstance(name_or_files, str):
        if name_or_files not in _SETS:
            raise ValueError(f"unknown data set {name_or_files!r}; known: {', '.join(_SETS)}")
        return _SETS[name_or_files]()
    roles = set(name_or_files)
    if not {"outputs", "prompts"} <= roles <= {"outputs", "prompts", "types"}:
        raise ValueError(
            "files must be given for outputs, prompts and (if there are labels) types, "
            f"received {', '.join(sorted(roles)) or 'none'}"
        )
    return load_files(**name_or_files, keys=keys)
