"""The points that the benchmark measures on: the mixture, shipped sets, and at which n."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import data as data_sets
from experiments.data import PairedEmbeddings, mixture
from experiments.lab import Bandwidths, records, scales

# What is measured beside the shipped pictures of emoji, by the name that says what its outputs are.
BESIDE = {"photographs": "captions", "captions": "captioning"}
_SMALLEST = {"order 2": 500, "exact": 500, "measure": 2000}
# Of the median distance: about what the papers' variance rule gives, and a far harder spectrum.
_NARROW = 0.65
# Of the distance to the mean: emoji that are drawn twice differ by so much.
_MOVED = 0.1
# The measure takes real data at this n and whole; up to here order 2 takes them at smaller sizes.
_MIDDLE_N = 4000


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
    digests: tuple[str, str]  # Of outputs and prompts, as the store writes them.


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


def write_emoji_like(
    folder: pathlib.Path, name: str, n: int, dimensions: Sequence[int], seed: int
) -> list[float]:
    """Writes n emoji, drawn again and moved a little, as a mixture is; gives their bandwidths.

    They are projected on their first principal directions. Bandwidths are `_NARROW` of the median
    distance to the first row, which is about the papers' bandwidth for emoji.
    """
    rng, emoji = np.random.default_rng(seed), data_sets.load("emoji")
    rows, bandwidths = rng.integers(len(emoji), size=n), []
    for path, of, d in zip(
        paths(folder, name), (emoji.outputs, emoji.prompts), dimensions, strict=True
    ):
        centred = np.asarray(of, np.float64) - np.mean(of, axis=0, dtype=np.float64)
        _, directions = np.linalg.eigh(centred.T @ centred)
        projected = (centred @ directions[:, -d:])[rows]
        lengths = np.linalg.norm(projected, axis=1, keepdims=True)
        moved = projected + _MOVED / d**0.5 * lengths * rng.normal(size=projected.shape)
        apart = np.linalg.norm(moved[rng.integers(n, size=4000)] - moved[:1], axis=1)
        np.save(path, moved.astype(np.float32))
        bandwidths.append(_NARROW * float(np.median(apart)))
    return bandwidths


def write_pairs(folder: pathlib.Path, name: str, pairs: PairedEmbeddings, seed: int) -> None:
    """Writes the pairs in a random order, so that the first n of them are a sample."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    for path, points in zip(paths(folder, name), (pairs.outputs, pairs.prompts), strict=True):
        np.save(path, np.asarray(points, np.float32)[order])


def write(
    folder: pathlib.Path, sets: Mapping[str, PairedEmbeddings], study: Any, seed: int
) -> tuple[dict[str, Points], dict[str, np.ndarray]]:
    """Writes the points that the processes read, the real data in the order of the seed.

    Gives the data sets by name, and all arrays that enter.
    """
    points: dict[str, Points] = {}
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, description: str, bandwidths: Bandwidths, kind: str) -> None:
        outputs, prompts = (np.load(path, mmap_mode="r") for path in paths(folder, name))
        arrays.update({f"{name} outputs": outputs, f"{name} prompts": prompts})
        digests = (records.hash_array(outputs), records.hash_array(prompts))
        points[name] = Points(description, len(outputs), bandwidths, kind, digests)

    n = max((study.largest[part] for part in study.measured if part != "cold start"), default=2)
    dimensions = study.output_dimension, study.prompt_dimension
    write_mixture(folder, "mixture", n, dimensions, seed)
    given = Bandwidths("given", study.bandwidth, study.bandwidth, "given")
    add("mixture", mixture.describe(dimensions), given, "mixture")
    for index, (name, pairs) in enumerate(sets.items()):
        median = scales.by_rule(pairs, "median", seed)
        write_pairs(folder, name, pairs, seed)
        add(name, pairs.description, median, "real")
        if index == 0:
            narrow = {"kind": "narrow", "bandwidths": median.scaled(_NARROW)}
            points[f"{name}, narrow"] = dataclasses.replace(points[name], **narrow)
    return points, arrays


def cells(study: Any) -> Iterator[tuple[str, str, int]]:
    """Part, data and n: every part on the mixture at doubling sizes, then on the real data."""
    for part in study.measured:
        if part == "cold start":
            yield part, "none", 0
            continue
        for name, points in study.points.items():
            yield from ((part, name, n) for n in _sizes_of(part, name, points, study))


def _sizes_of(part: str, name: str, points: Points, study: Any) -> list[int]:
    """The sizes at which a part takes a data set."""
    largest = study.largest[part]
    whole, middle = min(largest, points.n), min(points.n, _MIDDLE_N)
    match points.kind, part:
        case "mixture", "first call" | "jackknife":
            return [largest]
        case "mixture", "order 2" | "exact" | "measure":
            return doubling(part, largest)
        case "narrow", "measure":
            return [middle]
        case "real", "order 2":
            return sorted({*doubling(part, min(whole, _MIDDLE_N))[1::2], whole})
        case "real", "exact":
            first = next(of for of, other in study.points.items() if other.kind == "real")
            return [whole] if name == first else []
        case "real", "measure":
            return sorted({middle, points.n})
    return []


def doubling(part: str, largest: int) -> list[int]:
    """Doubling sizes, ending at `largest`: none lies between half of it and itself."""
    below = []
    size = _SMALLEST[part]
    while size <= largest / 2:
        below.append(size)
        size *= 2
    return [*below, largest]


def load_sets(
    load: Callable[[], PairedEmbeddings], beside: Sequence[str] | None
) -> dict[str, PairedEmbeddings]:
    """The real data by the names that they have here: those of the user first.

    Beside them stand names of `BESIDE`, or 'none'; if None, all of it beside emoji only.
    """
    pairs = load()
    if beside is None:
        beside = tuple(BESIDE) if pairs.name == "emoji" else ()
    beside = [name for name in beside if name != "none"]
    # Never the name of the mixture, nor of what is beside it.
    taken = pairs.name in ("mixture", *beside)
    found = {f"{pairs.name} (set)" if taken else pairs.name: pairs}
    for name in beside:
        if pairs.name == BESIDE[name]:
            raise ValueError(f"--beside={name}: --data={pairs.name} is the same set.")
        found[name] = data_sets.load(BESIDE[name])
    return found
