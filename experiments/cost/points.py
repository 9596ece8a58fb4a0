"""The points that the benchmark measures on: a mixture and real sets, and at which n."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import data as data_sets
from experiments.data import PairedEmbeddings, mixture
from experiments.lab import Bandwidths, scales

# What is measured beside the shipped pictures of emoji: captions of photographs, as outputs.
_BESIDE = {"captions": "captioning"}
# Of the median distance: about what the papers' variance rule gives, and a far harder spectrum.
_NARROW = 0.65
_REAL_N = 4000


@dataclasses.dataclass(frozen=True)
class Points:
    """A data set of the benchmark.

    Its kind is 'mixture', 'real', or 'narrow' (the same arrays as the real data before it, under
    smaller bandwidths).
    """

    description: str
    n: int
    bandwidths: Bandwidths
    kind: str


def paths(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """The files of a data set's outputs and prompts; what is narrow has those of the set."""
    word = re.sub(r"\W+", "_", name.removesuffix(", narrow"))
    return folder / f"{word}-outputs.npy", folder / f"{word}-prompts.npy"


def write_mixture(
    folder: pathlib.Path, name: str, n: int, dimensions: Sequence[int], seed: int
) -> None:
    """Writes n outputs `[n, d_x]` and prompts `[n, d_t]` of `mixture.fill_mixture`."""
    outputs, prompts = (
        np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for path, d in zip(paths(folder, name), dimensions, strict=True)
    )
    mixture.fill_mixture(outputs, prompts, seed)


def write(
    folder: pathlib.Path, load: Callable[[], PairedEmbeddings], study: Any, seed: int
) -> tuple[dict[str, Points], dict[str, np.ndarray]]:
    """Writes the points that the processes read, the real data in a random order.

    Gives the data sets by name, and all arrays that enter.
    """
    points: dict[str, Points] = {}
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, description: str, bandwidths: Bandwidths, kind: str) -> None:
        outputs, prompts = (np.load(path, mmap_mode="r") for path in paths(folder, name))
        arrays.update({f"{name} outputs": outputs, f"{name} prompts": prompts})
        points[name] = Points(description, len(outputs), bandwidths, kind)

    dimensions = study.output_dimension, study.prompt_dimension
    n = max((study.largest[part] for part in study.measured), default=2)
    write_mixture(folder, "mixture", n, dimensions, seed)
    given = Bandwidths("given", study.bandwidth, study.bandwidth, "given")
    add("mixture", mixture.describe(dimensions), given, "mixture")
    for index, (name, pairs) in enumerate(_real(load).items()):
        order = np.random.default_rng(seed).permutation(len(pairs))  # The first n are a sample.
        for path, rows in zip(paths(folder, name), (pairs.outputs, pairs.prompts), strict=True):
            np.save(path, np.asarray(rows, np.float32)[order])
        median = scales.by_rule(pairs, "median", seed)
        add(name, pairs.description, median, "real")
        if index == 0:
            narrow = {"kind": "narrow", "bandwidths": median.scaled(_NARROW)}
            points[f"{name}, narrow"] = dataclasses.replace(points[name], **narrow)
    return points, arrays


def _real(load: Callable[[], PairedEmbeddings]) -> Mapping[str, PairedEmbeddings]:
    """The user's pairs by their name, which is never the mixture's; beside emoji, `_BESIDE`."""
    pairs = load()
    beside = _BESIDE if pairs.name == "emoji" else {}
    name = f"{pairs.name} (set)" if pairs.name == "mixture" else pairs.name
    return {name: pairs} | {of: data_sets.load(which) for of, which in beside.items()}


def cells(study: Any) -> Iterator[tuple[str, str, int]]:
    """Part, data and n: every part on the mixture, the measure on the real data too."""
    for part in study.measured:
        largest = study.largest[part]
        for name, points in study.points.items():
            if points.kind == "mixture":
                sizes = [largest] if part == "measure" else doubling(study.smallest, largest)
                yield from ((part, name, n) for n in sizes)
            elif part == "measure" and points.kind in ("real", "narrow"):
                yield part, name, min(points.n, largest, _REAL_N)


def doubling(size: int, largest: int) -> list[int]:
    """Doubling sizes, ending at `largest`: none lies between half of it and itself."""
    below = []
    while size <= largest / 2:
        below.append(size)
        size *= 2
    return [*below, largest]
