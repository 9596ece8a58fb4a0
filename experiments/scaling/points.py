"""The points that the benchmark measures on: the mixture, shipped sets, and at which n."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments import data as data_sets
from experiments import records
from experiments.data import PairedEmbeddings, mixture
from experiments.lab import Bandwidths, scales
from experiments.scaling.contests import FRESH

if TYPE_CHECKING:
    from experiments.scaling.study import Scaling

# What is measured beside the shipped pictures of emoji, by the name that says what its outputs are.
BESIDE = {"photographs": "captions", "captions": "captioning"}
_SMALLEST = {"order 2": 500, "exact": 500, "measure": 2000}
# Of the median distance: about what the papers' variance rule gives, and a far harder spectrum.
_NARROW = 0.65
# Without --full the measure takes real data at this n and whole; and up to here order 2 takes them
# at every size, and features are compared with all eigenvalues.
_MIDDLE_N = 4000
# With more dimensions a million points would not fit beside their features.
_FEATURES_DIMENSIONS = (64, 48)

Paths = tuple[pathlib.Path, pathlib.Path]


@dataclasses.dataclass(frozen=True)
class Points:
    """A data set of the benchmark.

    Attributes:
      description: what it is.
      n: how many pairs there are.
      bandwidths: of outputs and prompts.
      kind: 'mixture', 'few dimensions' (the mixture of the features), 'real', or 'narrow' (the same
        arrays as the real data before it, under smaller bandwidths).
      digests: of outputs and prompts as they are measured, as the store writes them.
    """

    description: str
    n: int
    bandwidths: Bandwidths
    kind: str
    digests: tuple[str, str]


def write(
    folder: pathlib.Path, sets: Mapping[str, PairedEmbeddings], study: Scaling, seed: int
) -> tuple[dict[str, Points], dict[str, Paths], dict[str, np.ndarray]]:
    """Writes the points that the processes read.

    Args:
      folder: that is written into.
      sets: the real data by name.
      study: whose parts, sizes and mixture are prepared.
      seed: of the points and their order.

    Returns:
      The data sets by name, where their points lie on disk, and all arrays that enter.
    """
    points: dict[str, Points] = {}
    paths: dict[str, Paths] = {}
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, description: str, kind: str, of: Paths, bandwidths: Bandwidths) -> None:
        outputs, prompts = (np.load(path, mmap_mode="r") for path in of)
        digests = (records.hash_array(outputs), records.hash_array(prompts))
        points[name] = Points(description, len(outputs), bandwidths, kind, digests)
        paths[name] = of
        if kind != "narrow":  # Its arrays are those before it.
            arrays.update({f"{name} outputs": outputs, f"{name} prompts": prompts})

    def add_mixture(name: str, kind: str, n: int, dimensions: tuple[int, int]) -> None:
        made = write_mixture(folder, name, n, dimensions, seed)
        given = Bandwidths("given", study.bandwidth, study.bandwidth, "given")
        add(name, mixture.describe(dimensions), kind, made, given)

    parts = [part for part in study.measured if part not in ("features", "cold start")]
    n = max((study.largest[part] for part in parts), default=2)
    add_mixture("mixture", "mixture", n, (study.output_dimension, study.prompt_dimension))
    for index, (name, pairs) in enumerate(sets.items()):
        median = scales.by_rule(pairs, "median", seed)
        real = write_points(folder, name, pairs, study.real_n, seed)
        add(name, pairs.description, "real", real, median)
        if index == 0:
            add(f"{name}, narrow", pairs.description, "narrow", real, median.scaled(_NARROW))
    if "features" in study.measured:
        name = "mixture, d = {} and {}".format(*_FEATURES_DIMENSIONS)
        add_mixture(name, "few dimensions", study.largest["features"], _FEATURES_DIMENSIONS)
    return points, paths, arrays


def cells(study: Scaling) -> Iterator[tuple[str, str, int]]:
    """Part, data and n: every part on the mixture at doubling sizes, then on the real data."""
    for part in study.measured:
        if part == "cold start":
            yield part, "none", 0
            continue
        # The mixtures come first.
        of_part = sorted(study.points.items(), key=lambda item: item[1].kind in ("real", "narrow"))
        for name, points in of_part:
            yield from ((part, name, n) for n in _sizes_of(part, name, points, study))


def _sizes_of(part: str, name: str, points: Points, study: Scaling) -> list[int]:
    """The sizes at which a part takes a data set.

    The first calls and the jackknife take the mixture alone; features their own mixture, and real
    data at a middle size. Order 2 takes real data at small sizes, every second one without --full,
    and whole; all eigenvalues of one Gram, those of the first set only; the measure, a middle size
    and the whole set, and what is narrow at the middle size.
    """
    largest, kind = study.largest[part], points.kind
    if part in FRESH:
        return [largest] if kind == "mixture" else []
    if part == "features":
        middle = min(_MIDDLE_N, largest)
        of_kind = {"few dimensions": {middle, largest}, "real": {min(points.n, middle)}}
        return sorted(of_kind.get(kind, ()))
    middle = min(points.n, _MIDDLE_N)
    if kind == "mixture":
        return sizes(part, largest)
    if kind == "narrow":
        return [middle] if part == "measure" else []
    if kind != "real":
        return []
    if part == "measure":
        return sizes(part, points.n) if study.full else sorted({middle, points.n})
    whole = min(largest, points.n)
    if part == "exact":
        first = next(name for name, of in study.points.items() if of.kind == "real")
        return [whole] if name == first else []
    small = sizes(part, min(whole, _MIDDLE_N))
    return sorted({*(small if study.full else small[1::2]), whole})


def sizes(part: str, largest: int) -> list[int]:
    """Doubling sizes, ending at `largest`: none lies between half of it and itself."""
    below = []
    size = _SMALLEST[part]
    while size <= largest / 2:
        below.append(size)
        size *= 2
    return [*below, largest]


def truncations(n: int) -> list[int]:
    """A few, a twentieth, and 0.4 n, which is the papers' 10,000 of 25,000."""
    return sorted({min(10, n), max(1, n // 20), max(1, round(0.4 * n))})


def load_sets(
    load: Callable[[], PairedEmbeddings], beside: Sequence[str] | None
) -> dict[str, PairedEmbeddings]:
    """The real data by the names that they have here: those of the user first.

    Args:
      load: gives the pairs that the user named.
      beside: names in `BESIDE`, or 'none'; all of it beside emoji and none beside others if None.

    Raises:
      ValueError: the same set would be there twice.
    """
    pairs = load()
    if beside is None:
        beside = tuple(BESIDE) if pairs.name == "emoji" else ()
    if "none" in beside:
        beside = ()
    # Never the name of the mixture, nor of what is beside it.
    taken = pairs.name == "mixture" or pairs.name in beside
    found = {f"{pairs.name} (set)" if taken else pairs.name: pairs}
    for name in dict.fromkeys(beside):
        if pairs.name == BESIDE[name]:
            raise ValueError(f"--beside={name}: --data={pairs.name} is the same set.")
        found[name] = data_sets.load(BESIDE[name])
    return found


def _paths(folder: pathlib.Path, name: str) -> Paths:
    word = re.sub(r"\W+", "_", name)
    return folder / f"{word}-outputs.npy", folder / f"{word}-prompts.npy"


def write_mixture(
    folder: pathlib.Path, name: str, n: int, dimensions: Sequence[int], seed: int
) -> Paths:
    """The files of n outputs `[n, d_x]` and prompts `[n, d_t]` of `mixture.fill_mixture`."""
    paths = _paths(folder, name)
    outputs, prompts = (
        np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for path, d in zip(paths, dimensions, strict=True)
    )
    mixture.fill_mixture(outputs, prompts, seed)
    outputs.flush()
    prompts.flush()
    return paths


def write_points(
    folder: pathlib.Path, name: str, pairs: PairedEmbeddings, largest: int | None, seed: int
) -> Paths:
    """The files of the pairs in a random order, so that the first n of them are a sample.

    Args:
      folder, name: where, and what the files are called.
      pairs: all of them.
      largest: the most that are kept; all where None.
      seed: of the order.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))[:largest]
    paths = _paths(folder, name)
    for path, points in zip(paths, (pairs.outputs, pairs.prompts), strict=True):
        np.save(path, np.asarray(points, np.float32)[order])
    return paths
