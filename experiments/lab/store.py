"""The folder of a run: one that never shows the results of other data.

A damaged cell is named and computed anew; a cell of another identity is refused with what differs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xarray as xr

from condvendi_jax.base import files
from experiments.lab import records
from experiments.lab.cells import Cell, Run
from experiments.lab.registry import RUN
from experiments.lab.study import Study

_ENDINGS = (".json", ".nc", ".png", ".pdf")  # Of what a run writes.
_WIDER = {"float16": "float32", "uint8": "int16"}  # Types that netCDF lacks.
_UNSEALED = b"0" * 64  # In the place of a file's checksum while it is computed.
_CHECKSUM = re.compile(rb"sha256.{10}([0-9a-f]{64})", re.DOTALL)  # The first attribute of a file.


class DamagedError(ValueError):
    """A file is not what was once written under its name."""


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Keeps a folder, which must exist, to one run; ValueError where another is writing there."""
    with open(folder / ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            busy = f"{folder}: another run is writing here; choose another --output."
            raise ValueError(busy) from error
        yield


def finished(
    folder: pathlib.Path, name: str, identity: records.Identity, cells: Sequence[Cell]
) -> set[Cell]:
    """The cells of a study that its folder has, after everything there was compared.

    Writes the description of the run, `run.json`, where it is missing or damaged.

    Raises:
      ValueError: the folder holds results of another identity, or files that are no results and
        that a run could replace; or two cells have the same name.
    """
    by_path = {path_of(folder, cell): cell for cell in cells}
    if len(by_path) < len(cells):
        raise ValueError(f"{name}: two cells have the same name.")
    run = folder / RUN
    if (there := _read_run(run)) is not None:
        records.refuse_others(run, there["identity"], identity)
    found = set()
    for path in sorted(folder.glob("*.nc")):
        try:
            record, _ = read_cell(path, by_path.get(path))
        except DamagedError as error:
            if path in by_path:
                sys.stderr.write(f"{error}; computed anew.\n")
            continue
        records.refuse_others(path, record["identity"], identity)
        if path in by_path:
            found.add(by_path[path])
    if there is None:
        others = (path for path in sorted(folder.iterdir()) if path.suffix in _ENDINGS)
        if not found and (other := next((p for p in others if p.stat().st_size), None)):
            raise ValueError(
                f"{folder}: holds {other.name}, but no results of {name}; it could be replaced. "
                "Choose another --output."
            )
        if run.exists() or found:
            state = "damaged" if run.exists() else "missing"
            sys.stderr.write(f"{run}: {state}; {len(found)} cells match and are kept.\n")
    places = {path.name: cell.coordinates for path, cell in by_path.items()}
    record = {"identity": there["identity"] if there else identity, "cells": places}
    if there != files.jsonable(record):
        files.write_json(run, record)
    return found


def write(path: pathlib.Path, found: xr.Dataset, record: Mapping[str, Any]) -> None:
    """Writes a result as netCDF, whole or not at all: `xarray.open_dataset(path)` opens it.

    What has an axis without labels is left out; plain data of the record become attributes, each as
    JSON.
    """
    words = {name: json.dumps(files.jsonable(value)) for name, value in record.items()}
    full = found.drop_dims([dim for dim, size in found.sizes.items() if size == 0])
    named = full.assign(
        {k: v.astype(_WIDER.get(v.dtype.name, v.dtype)) for k, v in full.variables.items()}
    )
    named = named.assign_attrs({"sha256": _UNSEALED.decode(), **words})
    content = bytes(named.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
    with files.atomic_writer(path) as stream:
        checksum = hashlib.sha256(content).hexdigest().encode()
        stream.write(content.replace(_UNSEALED, checksum, 1))


def read(path: pathlib.Path) -> tuple[dict[str, Any], xr.Dataset]:
    """The record and the result that `write` wrote; DamagedError where any bit is another."""
    try:
        content = path.read_bytes()
        found = _CHECKSUM.search(content)
        blank = found and content[: found.start(1)] + _UNSEALED + content[found.end(1) :]
        if not (found and blank) or hashlib.sha256(blank).hexdigest().encode() != found[1]:
            raise ValueError("its content is not what its checksum says")
        loaded = xr.load_dataset(io.BytesIO(content), engine="scipy")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: damaged ({error})") from error
    words = {name: json.loads(word) for name, word in loaded.attrs.items() if name != "sha256"}
    texts = {name: of.astype(str) for name, of in loaded.variables.items() if of.dtype.hasobject}
    plain = loaded.assign(texts) if texts else loaded
    plain.attrs = {}
    for of in plain.variables.values():  # Twice as fast as `drop_attrs`.
        of.attrs = {}
    return words, plain


def path_of(folder: pathlib.Path, cell: Cell) -> pathlib.Path:
    """The file of a cell; a study without axes has one."""
    return folder / f"{str(cell) or 'all'}.nc"


def read_cell(path: pathlib.Path, cell: Cell | None) -> tuple[dict[str, Any], xr.Dataset]:
    """The record of a cell, with its identity and provenance, and its result.

    Raises:
      DamagedError: the file is damaged, or it is another cell's under this cell's name.
    """
    record, result = read(path)
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

    ValueError where there is none, or it or a cell is damaged or of another study, version or run.
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
