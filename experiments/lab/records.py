"""Results and cached arrays, saved with their identity and a checksum of their content.

An identity is a name and its version, settings, a seed and a hash of every array that entered.
What a run resolved out of them stands beside them: its numbers are compared within a tolerance,
because a bandwidth that a rule computes has other last digits on another processor.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import sys
import typing
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from condvendi_jax.base import files

_SHOWN = 120  # Characters of a setting in a message.
NEAR = 1e-4  # Relative difference of two numbers that are resolved from the same settings.
_IDENTITY = "identity"  # The entry of a cached file that says what it depends on.
Identity = Mapping[str, Any]


def hash_array(array: np.ndarray) -> str:
    """The SHA-256 of an array's dtype, shape and contents in order; the first two are readable."""
    array = np.asarray(array)
    content = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} has no contents that a file could hold.")
    blocks = np.atleast_1d(array)
    rows = max(1, (1 << 24) // max(1, blocks[:1].nbytes))
    for start in range(0, len(blocks), rows):  # A memory map stays on disk.
        content.update(blocks[start : start + rows].tobytes())
    return f"{array.dtype} {list(array.shape)} sha256 {content.hexdigest()}"


def identify(
    name: str,
    version: int,
    settings: Any,
    arrays: Mapping[str, np.ndarray],
    seed: int,
    resolved: Any = None,
) -> Identity:
    """What a result depends on, as plain data, and what was resolved out of that."""
    beside = {} if resolved is None else {"resolved": files.jsonable(plain(resolved))}
    return {
        "study": name,
        "version": version,
        "seed": seed,
        "arrays": {role: hash_array(array) for role, array in arrays.items()},
        "settings": files.jsonable(plain(settings)),
        **beside,
    }


def differences(found: Identity, wanted: Identity) -> list[str]:
    """What differs between two identities, each in a few words with both sides."""
    words = []
    for part in ("study", "version", "seed", "settings", "arrays", "resolved"):
        if part == "resolved" and words:
            break  # Resolved from others, it differs because they do.
        there, asked = (dict(_flat(part, identity.get(part))) for identity in (found, wanted))
        for name in there | asked:
            values = there.get(name), asked.get(name)
            if not (near if part == "resolved" else _equal)(*values):
                one, other = (json.dumps(value)[:_SHOWN] for value in values)
                words.append(f"{name.removeprefix(part + '.')}: {one} there, {other} asked for")
    return words


def _equal(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def near(one: Any, other: Any) -> bool:
    """Whether plain data are equal but for the last digits of numbers that are not whole."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=NEAR)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[name], other[name]) for name in one)
    return _equal(one, other)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every setting under its full name: 'settings.bandwidths.median.outputs'."""
    if not isinstance(value, dict):
        yield name, value
        return
    for inner, of in value.items():
        yield from _flat(f"{name}.{inner}", of)


def refuse_others(path: pathlib.Path, found: Identity, wanted: Identity) -> None:
    """Raises ValueError, naming the file and what differs, where two identities differ."""
    words = differences(found, wanted)
    if words:
        raise ValueError(
            f"{path}: of another run ({'; '.join(words)}); resume that run, or choose another "
            "--output."
        )


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
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    identity = identify(name, version, settings, arrays, seed=0)
    path = folder / f"{name}-{digest(identity)[:16]}.npz"
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            found = dict(archive)  # Checks the checksum of each.
        refuse_others(path, json.loads(found.pop(_IDENTITY).item()), identity)
        return found
    except FileNotFoundError:
        pass
    except (OSError, ValueError, LookupError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"{path}: damaged ({error}); made anew.\n")
    made = dict(build())
    with files.atomic_writer(path) as stream:
        arrays = {**made, _IDENTITY: np.array(json.dumps(identity))}
        np.savez_compressed(stream, **arrays)  # pyright: ignore[reportArgumentType]
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
    """
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints, entries = typing.get_type_hints(kind), _with_numbers(value)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: typed(hints[name], entries[name]) for name in names})
    arguments = typing.get_args(kind)
    if type(None) in arguments:
        (inner,) = (k for k in arguments if k is not type(None))
        return None if value is None else typed(inner, value)
    if typing.get_origin(kind) is tuple:
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return tuple(typed(k, v) for k, v in zip(kinds, value, strict=True))
    if typing.get_origin(kind) in (dict, Mapping):
        return {name: typed(arguments[1], v) for name, v in _with_numbers(value).items()}
    if kind is float:
        return float(_number(value["reason"]) if isinstance(value, dict) else value)
    return value


def _with_numbers(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries; a number that JSON lacks, null there, as the reason beside it says."""
    why = {k: f"{k}_reason" for k, v in entries.items() if v is None and f"{k}_reason" in entries}
    numbers = {name: _number(entries[reason]) for name, reason in why.items()}
    return {k: numbers.get(k, v) for k, v in entries.items() if k not in why.values()}


def _number(reason: str) -> float:
    """The infinity or NaN that a reason of `files.jsonable` ends in."""
    return float(reason.rpartition(" ")[2])
