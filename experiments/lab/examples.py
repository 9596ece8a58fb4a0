"""Small data that studies are tried on."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

import numpy as np

_N, _MODES = 150, 10


def write_pairs(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes a mixture of ten modes whose prompts name the mode; gives the flags that read it."""
    generator = np.random.default_rng(seed)
    mode = generator.integers(0, _MODES, _N)
    outputs = generator.normal(size=(_MODES, 6))[mode] + 0.3 * generator.normal(size=(_N, 6))
    prompts = generator.normal(size=(_MODES, 4))[mode]
    labels = {"types": [f"type {m % 5}" for m in mode], "models": [f"model {m % 2}" for m in mode]}
    np.save(folder / "x.npy", outputs.astype(np.float32))
    np.save(folder / "t.npy", prompts.astype(np.float32))
    for role, words in labels.items():
        (folder / f"{role}.txt").write_text("\n".join(words) + "\n")
    return [f"--outputs={folder / 'x.npy'}", f"--prompts={folder / 't.npy'}"]


def small_pairs(*flags: str) -> Callable[[pathlib.Path, int], Sequence[str]]:
    """A study's `small`: these flags, on pairs that are written into the folder."""
    return lambda folder, seed: [*write_pairs(folder, seed), *flags]
