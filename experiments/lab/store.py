"""The folder of a run: one that never shows the results of other data.

A damaged cell is named and computed anew; a cell of another identity is refused with what differs.
"""

from __future__ import annotations

import fcntl
import json
import pathlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import xarray as xr

from condvendi_jax.base import files
from experiments.lab import records, results
from experiments.lab.cells import Cell, Run
from experiments.lab.folders import RUN, DamagedError
from experiments.lab.study import Study

_ENDINGS = (".json", ".nc", ".png", ".pdf")  # Of what a run writes.


class Store:
    """The folder of one run's results: `run.json`, and a netCDF file a finished cell.

    A context manager; the folder, which must exist, is locked until it ends.

    Raises:
      ValueError: the folder holds results of another identity, or another run is using it.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        study: type[Study],
        identity: records.Identity,
        cells: Sequence[Cell],
    ):
        self._folder, self._study, self._identity = folder, study, identity
        self._paths = {cell: path_of(folder, cell) for cell in cells}
        if len(set(self._paths.values())) < len(cells):
            raise ValueError(f"{study.name}: two cells have the same name.")
        self._lock = open(folder / ".lock", "a")  # noqa: SIM115 - it ends with the process.
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                busy = f"{folder}: another run is writing here; choose another --output."
                raise ValueError(busy) from error
            self.finished: dict[Cell, xr.Dataset] = self._check()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def save(self, cell: Cell, result: xr.Dataset, origin: Mapping[str, Any]) -> None:
        """Writes a finished cell with where it comes from; it counts as a whole or not at all."""
        record = {"identity": self._identity, "cell": cell.coordinates, "provenance": origin}
        results.write(self._paths[cell], result, record)
        self.finished[cell] = result

    def _check(self) -> dict[Cell, xr.Dataset]:
        """The results that are there, after everything in the folder was compared."""
        run = self._folder / RUN
        there = _read_run(run)
        if there is not None:
            records.refuse_others(run, there["identity"], self._identity)
        cells = {path: cell for cell, path in self._paths.items()}
        found = {}
        for path in sorted(self._folder.glob("*.nc")):
            try:
                record, result = read_cell(path, cells.get(path))
            except DamagedError as error:
                if path in cells:
                    sys.stderr.write(f"{error}; computed anew.\n")
                continue
            records.refuse_others(path, record["identity"], self._identity)
            found[path] = result
        finished = {cell: found[path] for path, cell in cells.items() if path in found}
        if there is None:
            self._refuse_foreign(finished)
            if run.exists() or finished:
                state = "damaged" if run.exists() else "missing"
                sys.stderr.write(f"{run}: {state}; {len(finished)} cells match and are kept.\n")
        places = {path.name: cell.coordinates for cell, path in self._paths.items()}
        record = {"identity": there["identity"] if there else self._identity, "cells": places}
        if there != files.jsonable(record):
            files.write_json(run, record)
        return finished

    def _refuse_foreign(self, finished: Collection[Cell]) -> None:
        """Raises ValueError where files are not results, and a run could replace them."""
        others = [
            path.name
            for path in sorted(self._folder.iterdir())
            if path.suffix in _ENDINGS and path.stat().st_size
        ]
        if others and not finished:
            raise ValueError(
                f"{self._folder}: holds {others[0]}, but no results of {self._study.name}; it "
                "could be replaced. Choose another --output."
            )


def path_of(folder: pathlib.Path, cell: Cell) -> pathlib.Path:
    """The file of a cell; a study without axes has one."""
    return folder / f"{str(cell) or 'all'}.nc"


def read_cell(path: pathlib.Path, cell: Cell | None) -> tuple[dict[str, Any], xr.Dataset]:
    """The record of a cell, with its identity and provenance, and its result.

    Raises:
      DamagedError: the file is damaged, or it is another cell's under this cell's name.
    """
    record, result = results.read(path)
    if cell is not None and record.get("cell") != files.jsonable(cell.coordinates):
        raise DamagedError(f"{path}: damaged (it is the cell {record.get('cell')})")
    return {"identity": {}, **record}, result


def _read_run(run: pathlib.Path) -> dict[str, Any] | None:
    """What a folder's run.json says: the identity of a run and the files of its cells, or None."""
    try:
        content = json.loads(run.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not content or not isinstance(content, dict):
        return None
    if not isinstance(content.get("identity"), dict):
        raise ValueError(f"{run}: holds results of another program; choose another --output.")
    return content


def read_run(folder: str | pathlib.Path, study: type[Study]) -> Run:
    """Reads a run for its table and its figures; nothing is computed.

    Raises:
      ValueError: there is no run, it is of another study or version, or a cell is damaged or of
        another run.
    """
    folder = pathlib.Path(folder)
    if (run := _read_run(folder / RUN)) is None:
        raise ValueError(f"{folder}: no readable results are here.")
    identity: records.Identity = run["identity"]
    current = {**identity, "study": study.name, "version": study.version}
    records.refuse_others(folder / RUN, identity, current)
    resolved = records.typed(study, identity["resolved"])
    finished, origins, missing = {}, {}, []
    for cell in resolved.cells():
        path = path_of(folder, cell)
        if not path.exists():
            missing.append(cell)
            continue
        record, finished[cell] = read_cell(path, cell)
        records.refuse_others(path, record["identity"], identity)
        origins[cell] = record["provenance"]
    return Run(resolved, folder, identity, finished, origins, missing)
