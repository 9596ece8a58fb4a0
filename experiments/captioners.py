"""Captioners whose number of answers is known, made of the human captions of photographs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.data import PairedEmbeddings

OTHER, ALL = "other", "all"


class Answers(NamedTuple):
    """Who says what of some photographs.

    Attributes:
      captions: by captioner, rows of the pairs `[photographs, k]`.
      photographs: a row of each photograph.
      groups: of the jackknife, of each photograph.
    """

    captions: dict[str, np.ndarray]
    photographs: np.ndarray
    groups: np.ndarray


def by_photograph(pairs: PairedEmbeddings) -> tuple[list[str], np.ndarray]:
    """The captioners, and the rows of their captions `[captioners, photographs, captions]`.

    Every captioner has the same photographs and as many captions of each: those that all have.

    Raises:
      ValueError: rows of one photograph differ, or no photograph has captions of all.
    """
    prompt = pairs.labels["prompt"]
    _, first, photograph = np.unique(prompt, return_index=True, return_inverse=True)
    strangers = np.flatnonzero((pairs.prompts != pairs.prompts[first[photograph]]).any(axis=1))
    if strangers.size:
        row = strangers[0]
        raise ValueError(
            f"--prompt: expected rows of one photograph to be equal, received others in the rows "
            f"{first[photograph[row]]} and {row} of {prompt[row]}."
        )
    names = pairs.labels.get("models", np.zeros(len(pairs), int))
    models, who = np.unique(names, return_inverse=True)
    counts = np.zeros((len(models), len(first)), int)
    np.add.at(counts, (who, photograph), 1)
    shared = np.flatnonzero(counts.min(axis=0))
    if not shared.size:
        raise ValueError("--models: expected photographs that all of them captioned, found none.")
    each = counts[:, shared].min()
    order = np.lexsort((np.arange(len(pairs)), photograph, who))
    starts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    return [str(m) for m in models], order[starts[:, shared, None] + np.arange(each)]


def kinds_of(pairs: PairedEmbeddings, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The photographs of each kind but `OTHER`, by their numbers; `rows` has one of each."""
    kinds = pairs.labels.get("pictures", np.full(len(pairs), ALL))[rows].astype(str)
    names = [kind for kind in np.unique(kinds).tolist() if kind != OTHER]
    if not names:
        raise ValueError(f"--pictures: expected kinds of pictures, received '{OTHER}' for all.")
    return {kind: np.flatnonzero(kinds == kind) for kind in names}


def answers(
    pairs: PairedEmbeddings,
    rows: np.ndarray,
    models: Sequence[str],
    groups: int,
    rng: np.random.Generator,
) -> Answers:
    """What each captioner says of some photographs.

    Several captioners give their own captions. Of one captioner there are, as captioners, its first
    k captions of each photograph for k = 1 ... K, which need no matching of n because repeating all
    pairs changes no score; `swapped`, all K captions of another photograph; `shuffled`, K captions
    of K other photographs; and `one for all`, the caption that is nearest to all the others.

    Args:
      pairs: all pairs.
      rows: `[captioners, photographs, K]`.
      models: the captioners' names.
      groups: of the jackknife.
      rng: puts photographs into groups, and captions on other photographs.
    """
    count, each = rows.shape[1:]
    group = rng.permutation(count) % groups
    own = rows[0]
    said = dict(zip(models, rows, strict=True))
    if len(models) == 1:
        said = {f"k = {k}": own[:, :k] for k in range(1, each + 1)}
        said["swapped"] = own[_others(count, rng)]
        said["shuffled"] = np.stack([own[_others(count, rng), k] for k in range(each)], axis=1)
        embedded = pairs.outputs[own.ravel()]
        nearest = own.ravel()[np.argmax(embedded @ embedded.sum(axis=0))]
        said["one for all"] = np.full((count, 1), nearest)
    return Answers(said, own[:, 0], group)


def _others(count: int, rng: np.random.Generator) -> np.ndarray:
    """A random other number for each number below `count`: a cycle through all of them."""
    order = rng.permutation(count)
    found = np.empty(count, int)
    found[order] = np.roll(order, 1)
    return found
