"""What a study and the lab hand to each other: a cell, its context, and the results of a run."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import xarray as xr

from experiments.data import SETS
from experiments.lab import records


@dataclasses.dataclass(frozen=True)
class Cell:
    """One step of a run, by the values of its axes; its result is saved by itself.

    `str` of each value names the files of the cell and gives its random key.
    """

    axes: tuple[tuple[str, Any], ...]

    @property
    def values(self) -> dict[str, Any]:
        """The values by axis, as `Study.compute` takes them."""
        return dict(self.axes)

    @property
    def coordinates(self) -> dict[str, Any]:
        """The values by axis, as results are labelled: a number or a word."""
        return {name: getattr(value, "coordinate", value) for name, value in self.axes}

    def __str__(self) -> str:
        """The values as one word: the name of its files, and what its key is folded from."""
        return "-".join(re.sub(r"[^\w.+]+", "_", str(value)) for _, value in self.axes)


@dataclasses.dataclass(frozen=True)
class Context:
    """What a cell is computed in."""

    key: jax.Array  # The cell's own, folded from the seed and the cell's name.
    shared_key: jax.Array  # That of the seed, for what all cells have in common.
    say: Callable[[str], None]  # Shows in words what is being done.

    @property
    def shared_seed(self) -> int:
        """A seed of NumPy's by the shared key."""
        return int(jax.random.randint(self.shared_key, (), 0, 2**31 - 1))


def gather(parts: Sequence[tuple[Mapping[str, Any], xr.Dataset]]) -> xr.Dataset:
    """The results of cells at their coordinates as one, the axes of the cells first.

    NaN where there is no cell, and beyond the end of an axis that is longer in another cell.
    """
    if not parts[0][0]:
        return parts[0][1]
    axis = next(iter(parts[0][0]))
    lengths = {pair for _, found in parts for pair in found.sizes.items()}
    uneven = {dim for dim, count in Counter(dim for dim, _ in lengths).items() if count > 1}
    groups: dict[Any, list[tuple[dict[str, Any], xr.Dataset]]] = {}
    for place, found in parts:
        rest = dict(place)
        numbered = found.assign_coords({dim: found[dim] for dim in uneven & {*found.dims}})
        groups.setdefault(rest.pop(axis), []).append((rest, numbered))
    options: Any = {"data_vars": "all", "coords": "minimal", "join": "outer", "compat": "equals"}
    along = xr.concat(map(gather, groups.values()), axis, **options)
    return along.assign_coords({axis: list(groups)})


@dataclasses.dataclass(frozen=True)
class Run:
    """The saved results of one run, read back."""

    study: Any  # Whose results they are, with its fields resolved.
    folder: pathlib.Path
    identity: records.Identity  # What they depend on.
    results: Mapping[Cell, xr.Dataset]  # Of the finished cells, in the order of the study.
    provenance: Mapping[Cell, Mapping[str, Any]]  # Versions, device, dtype, date and seconds.
    missing: Sequence[Cell]  # Those that are not finished.

    @property
    def seed(self) -> int:
        """What every random choice derives from."""
        return self.identity["seed"]

    @functools.cached_property
    def found(self) -> xr.Dataset:
        """All results, with the axes of the cells as their first."""
        return gather([(cell.coordinates, found) for cell, found in self.results.items()])

    @property
    def data(self) -> str:
        """The shipped set, other than the study's own, that the folder names; '' for none."""
        words = f"{self.folder.name}-"
        names = (name for name in SETS if words.startswith(f"{self.study.name}-{name}-"))
        return next(names, "")
