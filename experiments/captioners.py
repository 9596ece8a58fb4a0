"""Captioners whose number of answers is known, made of the human captions of photographs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.data import PairedEmbeddings

OTHER, ALL = "other", "all"
_SWAPPED, _SHUFFLED, _ONE = "swapped", "shuffled", "one for all"


@dataclasses.dataclass(frozen=True)
class Answers:
    """Who says what: rows of the captions and of the photographs, `[n]` each, by captioner.

    `membership` is the jackknife's group of each of the captioner's pairs.
    """

    captions: Mapping[str, np.ndarray]
    photographs: Mapping[str, np.ndarray]
    membership: Mapping[str, np.ndarray]


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


def kinds_of(
    pairs: PairedEmbeddings, rows: np.ndarray, wanted: tuple[str, ...] | None
) -> dict[str, np.ndarray]:
    """The photographs of each kind, by their numbers; `rows` has a row of each photograph."""
    if "pictures" not in pairs.labels:
        if wanted is not None:
            raise ValueError("--kinds means nothing without --pictures.")
        return {ALL: np.arange(len(rows))}
    kinds = pairs.labels["pictures"][rows].astype(str)
    names = [kind for kind in np.unique(kinds).tolist() if kind != OTHER]
    unknown = [kind for kind in wanted or () if kind not in names]
    if unknown or not names:
        raise ValueError(
            f"--kinds: expected some of {', '.join(names) or 'no kinds'}, "
            f"received {', '.join(unknown) or 'none'}."
        )
    return {kind: np.flatnonzero(kinds == kind) for kind in wanted or names}


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
        said[_SWAPPED] = own[_others(count, rng)]
        columns = [own[_others(count, rng), k] for k in range(each)]
        said[_SHUFFLED] = np.stack(columns, axis=1)
        embedded = pairs.outputs[own.ravel()]
        nearest = own.ravel()[np.argmax(embedded @ embedded.sum(axis=0))]
        said[_ONE] = np.full((count, 1), nearest)
    per = {name: captions.shape[1] for name, captions in said.items()}
    return Answers(
        captions={name: captions.ravel() for name, captions in said.items()},
        photographs={name: np.repeat(own[:, 0], k) for name, k in per.items()},
        membership={name: np.repeat(group, k) for name, k in per.items()},
    )


def _others(count: int, rng: np.random.Generator) -> np.ndarray:
    """A random other number for each number below `count`: a cycle through all of them."""
    order = rng.permutation(count)
    found = np.empty(count, int)
    found[order] = np.roll(order, 1)
    return found
