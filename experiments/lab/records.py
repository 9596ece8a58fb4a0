"""Results and cached arrays, saved with their identity and a checksum of their content.

An identity is a name and its version, settings, a seed and a hash of every array that entered.
"""

import dataclasses
import hashlib
import io
import json
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from condvendi_jax.base import files
from condvendi_jax.cli import provenance

_SHOWN = 120  # Characters of a setting in a message.
Identity = Mapping[str, Any]


class DamagedError(ValueError):
    """A file is not what was once written under its name."""


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
    for part in ("settings", "arrays"):
        there, asked = (dict(_flat(identity.get(part) or {})) for identity in (found, wanted))
        for name in there | asked:
            one, other = (json.dumps(of.get(name)) for of in (there, asked))
            if one != other:
                words.append(f"{name}: {one[:_SHOWN]} there, {other[:_SHOWN]} asked for")
    return words


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting under its full name: 'bandwidths.median.outputs'."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def refuse_others(path: pathlib.Path, found: Identity, wanted: Identity) -> None:
    """Raises ValueError, naming the file and what differs, where two identities differ."""
    words = differences(found, wanted)
    if words:
        raise ValueError(
            f"{path}: of another run ({'; '.join(words)}); resume that run, or choose another "
            "--output."
        )


def write(stem: pathlib.Path, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes `stem`.json, and `stem`.npz where there are arrays; they count once both are there."""
    content: dict[str, Any] = files.jsonable(dict(record))
    if arrays:
        packed = io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        content["npz_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
        with files.atomic_writer(file_of(stem, ".npz")) as stream:
            stream.write(packed.getvalue())
    # Last, because it vouches for the arrays.
    files.write_json(file_of(stem, ".json"), {**content, "sha256": digest(content)})


def read(
    stem: pathlib.Path, cell: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write` wrote, of this cell where one is given.

    Raises:
      DamagedError: a file is missing, any bit of its content is not as it was written, or it is
        another cell's under this cell's name.
    """
    try:
        record = json.loads(file_of(stem, ".json").read_bytes())
        if record.pop("sha256") != digest(record):
            raise ValueError("its content is not what its checksum says")
        if cell is not None and record["cell"] != files.jsonable(dict(cell)):
            raise ValueError(f"it is the cell {record['cell']}")
        if "npz_sha256" not in record:
            return record, {}
        content = file_of(stem, ".npz").read_bytes()
        if hashlib.sha256(content).hexdigest() != record.pop("npz_sha256"):
            raise ValueError("its arrays are not what their checksum says")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return record, dict(archive)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        missing = isinstance(error, FileNotFoundError)
        why = f"{pathlib.Path(str(error.filename)).name} is missing" if missing else error
        raise DamagedError(f"{stem}: damaged ({why})") from error


def file_of(stem: pathlib.Path, suffix: str) -> pathlib.Path:
    """The file of a record, '.json', or of its arrays, '.npz'."""
    return stem.with_name(stem.name + suffix)


def digest(record: Mapping[str, Any]) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


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

    The identity is the name, the version of the code, and all settings and arrays that enter.
    Returns the arrays of `build`, or those of an earlier call with the same identity from the
    folder, which is created where missing. A damaged file is named and made anew.

    Raises:
      OSError: the folder cannot be written to.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    identity = identify(name, version, settings, arrays, seed=0)
    stem = folder / f"{name}-{digest(identity)[:16]}"
    if file_of(stem, ".json").exists():
        try:
            record, found = read(stem)
            refuse_others(stem, record["identity"], identity)
            return found
        except DamagedError as error:
            sys.stderr.write(f"{error}; made anew.\n")
    made = dict(build())
    write(stem, {"identity": identity, "provenance": provenance.collect()}, made)
    return made


def plain(value: Any) -> Any:
    """A value with dataclasses in it as dictionaries."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(v) for name, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def typed(kind: Any, value: Any) -> Any:
    """What `plain` made of an object, read back from JSON, as that object again.

    Its kind is a dataclass, or the annotation of a field.

    Raises:
      TypeError, ValueError, KeyError: the data are not of that kind.
    """
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {f.name: _finite_or_not(value, f.name) for f in dataclasses.fields(kind)}
        return kind(**{name: typed(hints[name], v) for name, v in fields.items()})
    arguments = typing.get_args(kind)
    if optional(kind):
        return None if value is None else typed(optional(kind), value)
    if typing.get_origin(kind) is tuple:
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return tuple(typed(k, v) for k, v in zip(kinds, value, strict=True))
    if typing.get_origin(kind) in (dict, Mapping):
        return {name: typed(arguments[1], _finite_or_not(value, name)) for name in value}
    if kind is float:
        return float(_number(value["reason"]) if isinstance(value, dict) else value)
    return value


def optional(kind: Any) -> Any:
    """The `T` of the annotation `T | None`, None of any other."""
    if typing.get_origin(kind) not in (types.UnionType, typing.Union):
        return None
    (inner,) = (k for k in typing.get_args(kind) if k is not type(None))
    return inner


def _finite_or_not(fields: Mapping[str, Any], name: str) -> Any:
    """An entry; of a number that JSON does not have, null there, what the reason beside it says."""
    if fields[name] is None and f"{name}_reason" in fields:
        return _number(fields[f"{name}_reason"])
    return fields[name]


def _number(reason: str) -> float:
    """The infinity or NaN that a reason of `files.jsonable` ends in."""
    return float(reason.rpartition(" ")[2])
