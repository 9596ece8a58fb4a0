"""The points that the benchmark measures on: the mixture, shipped sets, and at which n."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from experiments import data as data_sets
from experiments import records
from experiments.data import PairedEmbeddings, mixture
from experiments.lab import Bandwidths, scales

# What is measured beside the shipped pictures of emoji, by the name that says what its outputs are.
BESIDE = {"photographs": "captions", "captions": "captioning"}
# The parts whose calls are the first of their processes.
FRESH = ("first call", "jackknife")
_SMALLEST = {"order 2": 500, "exact": 500, "measure": 2000}
# Of the median distance: about what the papers' variance rule finds, and a far harder spectrum.
_NARROW = 0.65
_ROLES = ("outputs", "prompts")
Paths = tuple[pathlib.Path, pathlib.Path]
# Without --full the measure takes real data at this n and whole; and up to here order 2 takes them
# at every size, and features are compared with all eigenvalues.
_MIDDLE_N = 4000
# With more dimensions a million points would not fit beside their features.
_FEATURES_DIMENSIONS = (64, 48)


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


@dataclasses.dataclass(frozen=True)
class Written:
    """The data sets by name, where their points lie on disk, and all arrays that enter."""

    points: dict[str, Points]
    paths: dict[str, Paths]
    arrays: dict[str, np.ndarray]


def write(
    folder: pathlib.Path,
    sets: Mapping[str, PairedEmbeddings],
    parts: Sequence[str],
    largest: Mapping[str, int],
    dimensions: tuple[int, int],
    width: float,
    real_n: int | None,
    seed: int,
) -> Written:
    """Writes the points that the processes read.

    Args:
      folder: that is written into.
      sets: the real data by name.
      parts: of the benchmark.
      largest: the largest n of each part.
      dimensions: of the mixture.
      width: the bandwidth of the mixture's outputs and prompts.
      real_n: how many of real data are kept at most; all where None.
      seed: of the points and their order.
    """
    written = Written({}, {}, {})

    def add(name: str, description: str, kind: str, of: Paths, bandwidths: Bandwidths) -> None:
        outputs, prompts = (np.load(path, mmap_mode="r") for path in of)
        digests = (records.hash_array(outputs), records.hash_array(prompts))
        written.points[name] = Points(description, len(outputs), bandwidths, kind, digests)
        written.paths[name] = of
        if kind != "narrow":  # Whose arrays are those before it.
            written.arrays.update({f"{name} outputs": outputs, f"{name} prompts": prompts})

    given = Bandwidths("given", width, width, "given")
    n = max((largest[part] for part in parts if part not in ("features", "cold start")), default=2)
    made = write_mixture(folder, "mixture", n, dimensions, seed)
    add("mixture", mixture.describe(dimensions), "mixture", made, given)
    for index, (name, pairs) in enumerate(sets.items()):
        median = scales.by_rule(pairs, "median", seed)
        real = write_points(folder, name, pairs, real_n, seed)
        add(name, pairs.description, "real", real, median)
        if index == 0:
            add(f"{name}, narrow", pairs.description, "narrow", real, median.scaled(_NARROW))
    if "features" in parts:
        name = "mixture, d = {} and {}".format(*_FEATURES_DIMENSIONS)
        made = write_mixture(folder, name, largest["features"], _FEATURES_DIMENSIONS, seed)
        add(name, mixture.describe(_FEATURES_DIMENSIONS), "few dimensions", made, given)
    return written


def cells(
    points: Mapping[str, Points], parts: Sequence[str], largest: Mapping[str, int], full: bool
) -> Iterator[tuple[str, str, int]]:
    """Part, data and n: every part on the mixture at doubling sizes, then on the real data.

    Args:
      points: the data sets by name.
      parts, largest: as `write`.
      full: whether real data are taken at all sizes.
    """
    for part in parts:
        if part == "cold start":
            yield part, "none", 0
        elif part in FRESH:
            yield part, of_kind(points, "mixture")[0], largest[part]
        elif part == "features":
            (name,) = of_kind(points, "few dimensions")
            middle = min(_MIDDLE_N, largest[part])
            yield from ((part, name, n) for n in sorted({middle, largest[part]}))
            for name in of_kind(points, "real"):
                yield part, name, min(points[name].n, middle)
        else:
            (name,) = of_kind(points, "mixture")
            yield from ((part, name, n) for n in sizes(part, largest[part]))
            for name in of_kind(points, "real", "narrow"):
                of_part = real_sizes(part, name, points, largest, full)
                yield from ((part, name, n) for n in of_part)


def of_kind(points: Mapping[str, Points], *kinds: str) -> list[str]:
    """The names of the data of these kinds."""
    return [name for name, of in points.items() if of.kind in kinds]


def real_sizes(
    part: str, name: str, points: Mapping[str, Points], largest: Mapping[str, int], full: bool
) -> list[int]:
    """The sizes at which a part takes real data.

    Order 2 takes them at small sizes, every second one without --full, and whole; all eigenvalues
    of one Gram, those of the first set only; the measure, a middle size and the whole set; what is
    narrow, at the middle size.
    """
    of = points[name]
    if of.kind == "narrow":
        return [min(of.n, _MIDDLE_N)] if part == "measure" else []
    if part == "order 2":
        whole = min(largest[part], of.n)
        small = sizes(part, min(whole, _MIDDLE_N))
        return sorted({*(small if full else small[1::2]), whole})
    if part == "exact":
        first = name == of_kind(points, "real")[0]
        return [min(largest[part], of.n)] if first else []
    if full:
        return sizes(part, of.n)
    return sorted({min(of.n, _MIDDLE_N), of.n})


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
    outputs, prompts = (folder / f"{word}-{role}.npy" for role in _ROLES)
    return outputs, prompts


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
      largest: how many are kept at most; all where None.
      seed: of the order.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))[:largest]
    paths = _paths(folder, name)
    for path, points in zip(paths, (pairs.outputs, pairs.prompts), strict=True):
        np.save(path, np.asarray(points, np.float32)[order])
    return paths
