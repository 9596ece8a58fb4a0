"""Prompts drawn whole, what they are called, and one output of each."""

from __future__ import annotations

import numpy as np

from condvendi_jax import validation
from condvendi_jax.encoders.items import decode_image, list_images
from experiments.data import PairedEmbeddings

_SIDE = 40  # Pixels of a picture in the figure.


def whole_prompts(prompts: np.ndarray, largest: int, seed: int) -> np.ndarray:
    """The rows of prompts drawn at random until the next one would be too many."""
    _, kind = validation.distinct_rows(prompts)
    often = np.bincount(kind)
    order = np.random.default_rng(seed).permutation(len(often))
    drawn = order[np.cumsum(often[order]) <= largest]
    return np.flatnonzero(np.isin(kind, drawn))


def names_of(pairs: PairedEmbeddings, first: np.ndarray) -> tuple[str, ...]:
    """What the prompts of some rows are called: their words or number in the set, if it knows."""
    for role, form in {"prompt_texts": "{}", "prompt": "prompt {}"}.items():
        if role in pairs.labels:
            return tuple(form.format(name) for name in pairs.labels[role][first].tolist())
    return tuple(f"prompt {number}" for number in range(len(first)))


def read_pictures(folder: str | None, n: int, rows: np.ndarray) -> np.ndarray:
    """The pictures of some of n outputs, uint8 `[rows, side, side, 3]`; none without a folder."""
    if folder is None:
        return np.zeros((0, _SIDE, _SIDE, 3), np.uint8)
    paths = list_images(folder)
    if len(paths) != n:
        raise ValueError(
            f"--pictures: expected one for each of {n:,} outputs, found {len(paths):,}."
        )
    chosen = [paths[row] for row in rows]
    return np.stack([decode_image(p.read_bytes(), name=str(p), side=_SIDE) for p in chosen])


def one_of_each(prompts: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """A row of each prompt, in turn the first, second, ... of those that it has."""
    rows = [[np.flatnonzero(kind == p) for p in of_mode] for of_mode in prompts]
    return np.array([[r[j % len(r)] for j, r in enumerate(of_mode)] for of_mode in rows])
