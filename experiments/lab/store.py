"""Whose a result is, and a store that never shows the results of other data.

The identity of a result is the study and its version, the settings, the seed and a hash of every
array that entered. It stands in `run.json` and in every cell, with a checksum of the cell's own
content and where it was computed. What is damaged is named and computed anew; what belongs to
another identity is refused with the difference.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import io
import json
import pathlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.cli import files, provenance
from experiments.data import SETS
from experiments.lab.study import Study, cell_name, plain, typed

RUN = "run.json"
_ENDINGS = (".json", ".npz", ".png", ".pdf")  # Of what a run writes.
_SHOWN = 80  # Characters of a setting in a message.

Identity = Mapping[str, Any]


class DamagedError(ValueError):
    """A file is not what was once written under its name."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The saved results of one run, read back.

    Attributes:
      study: whose results they are.
      folder: where they are.
      identity: what they depend on; `settings` are its settings, typed.
      results: by cell, in the order of the study; those that are finished.
      provenance: of each of them: versions, device, dtype, date and seconds.
      missing: the cells that are not finished.
    """

    study: Study
    folder: pathlib.Path
    identity: Identity
    settings: Any
    results: Mapping[Any, Any]
    provenance: Mapping[Any, Mapping[str, Any]]
    missing: Sequence[Any]

    @property
    def seed(self) -> int:
        """What every random choice derives from."""
        return self.identity["seed"]

    @property
    def data(self) -> str:
        """The shipped set, other than the study's own, that the folder names; '' for none."""
        words = f"{self.folder.name}-"
        names = (name for name in SETS if words.startswith(f"{self.study.name}-{name}-"))
        return next(names, "")


def hash_array(array: np.ndarray) -> str:
    """The SHA-256 of an array's dtype, shape and contents in order; the first two are readable."""
    array = np.asarray(array)
    content = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} has no contents that a file could hold.")
    rows = max(1, (1 << 24) // max(1, array[:1].nbytes)) if array.ndim else 1
    for start in range(0, len(array) if array.ndim else 1, rows):  # A memory map stays on disk.
        block = array[start : start + rows] if array.ndim else array
        content.update(block.tobytes())
    return f"{array.dtype} {list(array.shape)} sha256 {content.hexdigest()}"


def identify(
    name: str, version: int, settings: Any, arrays: Mapping[str, np.ndarray], seed: int
) -> Identity:
    """What a result depends on, as plain data."""
    return {
        "study": name,
        "version": version,
        "seed": seed,
        "arrays": {role: hash_array(array) for role, array in arrays.items()},
        "settings": files.jsonable(plain(settings)),
    }


def differences(found: Identity, wanted: Identity) -> list[str]:
    """What differs between two identities, each in a few words with both sides."""
    words = []
    for name in ("study", "version", "seed"):
        if found.get(name) != wanted[name]:
            words.append(f"{name}: {found.get(name)} there, {wanted[name]} asked for")
    there, asked = (dict(_flat(identity.get("settings") or {})) for identity in (found, wanted))
    for name in [*asked, *(n for n in there if n not in asked)]:
        if there.get(name) != asked.get(name):
            words.append(f"{name}: {_both(there.get(name), asked.get(name))}")
    there, asked = found.get("arrays") or {}, wanted["arrays"]
    for name in sorted({*there, *asked}):
        if there.get(name) != asked.get(name):
            words.append(f"{name}: {_contents(there.get(name), asked.get(name))}")
    return words


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting under its full name: 'bandwidths.median.outputs'."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _both(found: Any, wanted: Any) -> str:
    there, asked = (json.dumps(value) for value in (found, wanted))
    start = next((i for i, (a, b) in enumerate(zip(there, asked, strict=False)) if a != b), 0)
    start = max(0, start - _SHOWN // 2) if max(len(there), len(asked)) > _SHOWN else 0
    there, asked = (("... " if start else "") + t[start : start + _SHOWN] for t in (there, asked))
    return f"{there} there, {asked} asked for"


def _contents(found: str | None, wanted: str | None) -> str:
    if found is None or wanted is None:
        return f"{'no array' if found is None else 'an array'} there"
    (there, one), (asked, other) = (text.split(" sha256 ") for text in (found, wanted))
    shapes = f"{there} there, {asked} asked for" if there != asked else "other contents"
    return f"{shapes} (sha256 {one[:8]} there, {other[:8]} asked for)"


def write(stem: pathlib.Path, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes `stem`.json, and `stem`.npz where there are arrays; they count once both are there."""
    content: dict[str, Any] = files.jsonable(dict(record))
    if arrays:
        packed = io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        content["npz_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
        with files.atomic_writer(_npz(stem)) as stream:
            stream.write(packed.getvalue())
    # Last, because it vouches for the arrays.
    files.write_json(_json(stem), {**content, "sha256": digest(content)})


def read(stem: pathlib.Path, cell: Any = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write` wrote, of this cell where one is given.

    Raises:
      DamagedError: a file is missing, any bit of its content is not as it was written, or it is
        another cell's under this cell's name.
    """
    try:
        record = json.loads(_json(stem).read_bytes())
        if record.pop("sha256") != digest(record):
            raise ValueError("its content is not what its checksum says")
        if cell is not None and record["cell"] != files.jsonable(plain(cell)):
            raise ValueError(f"it is the cell {record['cell']}")
        if "npz_sha256" not in record:
            return record, {}
        content = _npz(stem).read_bytes()
        if hashlib.sha256(content).hexdigest() != record.pop("npz_sha256"):
            raise ValueError("its arrays are not what their checksum says")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return record, dict(archive)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        missing = isinstance(error, FileNotFoundError)
        why = f"{pathlib.Path(str(error.filename)).name} is missing" if missing else error
        raise DamagedError(f"{stem}: damaged ({why})") from error


def _json(stem: pathlib.Path) -> pathlib.Path:
    return stem.with_name(stem.name + ".json")


def _npz(stem: pathlib.Path) -> pathlib.Path:
    return stem.with_name(stem.name + ".npz")


def digest(record: Mapping[str, Any]) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


class Store:
    """The folder of one run's results: `run.json`, and one or two files a finished cell.

    A context manager; the folder is locked until it ends.

    Args:
      folder: created where missing.
      study: whose results they are.
      identity: what they depend on.
      cells: all of the run's cells.

    Raises:
      ValueError: the folder holds results of another identity, or another run is using it.
      OSError: the folder cannot be written to.
    """

    def __init__(
        self, folder: pathlib.Path, study: Study, identity: Identity, cells: Sequence[Any]
    ):
        self._folder, self._study, self._identity = folder, study, identity
        self._stems = {cell: folder / cell_name(cell) for cell in cells}
        if len(set(self._stems.values())) < len(cells):
            raise ValueError(f"{study.name}: two cells have the same name.")
        folder.mkdir(parents=True, exist_ok=True)
        files.check_writable(folder / RUN)
        self._lock = _acquire(folder)
        try:
            self.finished: dict[Any, Any] = self._check()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def save(self, cell: Any, result: Any, origin: Mapping[str, Any]) -> None:
        """Writes a finished cell with where it comes from; it counts as a whole or not at all."""
        arrays = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
        record = {"identity": self._identity, "cell": plain(cell), "result": plain(result)}
        write(
            self._stems[cell],
            record | {"provenance": origin},
            {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)},
        )
        self.finished[cell] = result

    def _check(self) -> dict[Any, Any]:
        """The results that are there, after everything in the folder was compared."""
        run = self._folder / RUN
        there = _read_identity(run)
        if there is not None:
            _refuse_others(run, there, self._identity)
        cells = {stem: cell for cell, stem in self._stems.items()}
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            stem = path.with_suffix("")
            if path == run:
                continue
            try:
                record, arrays = read(stem, cells.get(stem))
            except DamagedError as error:
                if stem in cells:
                    sys.stderr.write(f"{error}; computed anew.\n")
                continue
            _refuse_others(path, record.get("identity", {}), self._identity)
            found[stem] = typed(self._study.result, record["result"] | arrays)
        finished = {cell: found[stem] for stem, cell in cells.items() if stem in found}
        if there is None:
            self._refuse_foreign(finished)
            if run.exists() or finished:
                state = "damaged" if run.exists() else "missing"
                sys.stderr.write(f"{run}: {state}; {len(finished)} cells match and are kept.\n")
            files.write_json(run, {"identity": self._identity})
        return finished

    def _refuse_foreign(self, finished: Collection[Any]) -> None:
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


def _read_identity(run: pathlib.Path) -> Identity | None:
    """What a folder's run.json says; None where there is nothing that it says."""
    try:
        content = json.loads(run.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not content or not isinstance(content, dict):
        return None
    if not isinstance(content.get("identity"), dict):
        raise ValueError(f"{run}: holds results of another program; choose another --output.")
    return content["identity"]


def _refuse_others(path: pathlib.Path, found: Identity, wanted: Identity) -> None:
    words = differences(found, wanted)
    if words:
        raise ValueError(
            f"{path}: of another run ({'; '.join(words)}); resume that run, or choose another "
            "--output."
        )


def _acquire(folder: pathlib.Path) -> Any:
    """A lock that ends with the process, however it ends."""
    lock = open(folder / ".lock", "a")  # noqa: SIM115 - the lock lasts as long as the file is open.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise ValueError(f"{folder}: another run is writing here; choose another --output.") from (
            error
        )
    return lock


def read_run(folder: str | pathlib.Path, study: Study) -> Run:
    """Reads a run for its table and its figures; nothing is computed.

    Raises:
      ValueError: there is no run, it is of another study or version, or a cell is damaged or of
        another run.
    """
    folder = pathlib.Path(folder)
    identity = _read_identity(folder / RUN)
    if identity is None:
        raise ValueError(f"{folder}: no readable results are here.")
    current = {**identity, "study": study.name, "version": study.version}
    _refuse_others(folder / RUN, identity, current)
    settings = typed(study.settings, identity["settings"])
    results, origins, missing = {}, {}, []
    for cell in study.cells(settings):
        stem = folder / cell_name(cell)
        if not _json(stem).exists():
            missing.append(cell)
            continue
        record, arrays = read(stem, cell)
        _refuse_others(_json(stem), record["identity"], identity)
        results[cell] = typed(study.result, record["result"] | arrays)
        origins[cell] = record["provenance"]
    return Run(study, folder, identity, settings, results, origins, missing)


def cached(
    folder: str | pathlib.Path,
    name: str,
    *,
    version: int,
    settings: Any,
    arrays: Mapping[str, np.ndarray],
    build: Callable[[], Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """What is dear to make (embeddings, trained parameters), made once an identity.

    Args:
      folder: of the cache, created where missing.
      name: what is made.
      version: of the code that makes it; raised when that changes.
      settings: a dataclass, or plain data, of what it depends on beside the arrays.
      arrays: every array that enters, by name.
      build: makes it, as NumPy arrays by name.

    Returns:
      The arrays, of `build` or of an earlier call with the same identity. A damaged file is named
      and made anew.

    Raises:
      OSError: the folder cannot be written to.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    identity = identify(name, version, settings, arrays, seed=0)
    stem = folder / f"{name}-{digest(identity)[:16]}"
    if _json(stem).exists():
        try:
            record, found = read(stem)
            _refuse_others(stem, record["identity"], identity)
            return found
        except DamagedError as error:
            sys.stderr.write(f"{error}; made anew.\n")
    made = dict(build())
    write(stem, {"identity": identity, "provenance": provenance.collect()}, made)
    return made
