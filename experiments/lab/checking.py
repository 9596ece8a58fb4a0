"""Whether a study computes its committed results again: `python -m experiments check NAME`.

Cells are computed into a folder of their own and compared, variable by variable, with the committed
ones: labels and words must be equal, numbers within the study's `tolerance` of the largest of that
variable in the cell. What a study measures of the machine (`Study.unrepeated`) is not compared,
nor what lies outside of `Study.checked`. A study whose samples grow along an axis has to say so
(`Study.grows`).
"""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Iterator

import numpy as np
import xarray as xr
from rich.table import Table

from experiments import data
from experiments.lab import records, runner, sizes, store
from experiments.lab.study import Study


def check(study: type[Study], folder: pathlib.Path, count: int | None = None) -> tuple[Table, bool]:
    """Computes the committed runs of a study again and compares them.

    The cells, the first `count` of each run or all, are computed into the folder; those that it has
    are not computed again. Returns a table with a line a run, and whether all of them agree.

    Raises:
      ValueError: the study has no committed results, or does not say where its samples grow.
    """
    named = f"{study.name}: largest relative differences (tolerance {study.tolerance:g})"
    grid, agree = Table("run", "cells", "seconds", "largest", "where", "agrees", title=named), True
    for words in study.runs or ((),):
        given = runner.parse(study, words)
        shipped = getattr(given, "data", None)
        name = given.study.folder(shipped)
        committed = store.read_run(runner.COMMITTED / name, study)
        load = functools.partial(data.load, shipped or study.data or "")
        again = runner.run(given.study, load, committed.seed, folder / name, count=count)
        sizes.refuse_unsaid(again)
        of_identity = records.differences(committed.identity, again.identity)
        apart = [w for w in of_identity if re.split(r"\W", w)[0] not in study.unrepeated]
        largest, where = 0.0, ""
        there = {str(cell): result for cell, result in committed.results.items()}
        for cell, result in again.results.items():
            kept = committed.study.checked(there[str(cell)])
            pair = there[str(cell)].sel(kept), result.sel(kept)
            for variable, difference in differences(*pair, study):
                if difference > largest or np.isnan(difference):
                    largest, where = difference, f"{variable} of {cell}"
        fits = not apart and largest <= study.tolerance
        seconds = sum(origin["seconds"] for origin in again.provenance.values())
        cells = f"{len(again.results)} of {len(committed.results)}"
        found = [f"{largest:.2g}", "; ".join(apart) or where or "-", "yes" if fits else "NO"]
        grid.add_row(name, cells, f"{seconds:.0f}", *found)
        agree = agree and fits
    return grid, agree


def differences(
    committed: xr.Dataset, again: xr.Dataset, study: type[Study]
) -> Iterator[tuple[str, float]]:
    """The difference of every variable over its largest number; infinite where words differ."""
    names = {*map(str, committed.variables), *map(str, again.variables)} - {*study.unrepeated}
    for name in sorted(names):
        pair = [found[name].values for found in (committed, again) if name in found.variables]
        if len(pair) == 1 or pair[0].shape != pair[1].shape:
            yield name, np.inf
        elif any(values.dtype.kind in "US" for values in pair):
            yield name, 0.0 if np.array_equal(pair[0], pair[1]) else np.inf
        else:
            yield name, _apart(*(values.astype(float) for values in pair))


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    fine = np.isfinite(one)
    if not np.array_equal(fine, np.isfinite(other)):
        return np.inf
    largest = np.abs(one[fine]).max(initial=0)
    return float(np.abs(one[fine] - other[fine]).max(initial=0) / (largest or 1.0))
