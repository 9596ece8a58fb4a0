"""Reading embeddings and writing results: nothing is half read or half written."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

_SUFFIXES = (".npy", ".npz", ".safetensors")


def read_array(path: str | os.PathLike[str], *, key: str | None = None) -> np.ndarray:
    """Reads one array from a .npy, .npz or .safetensors file.

    Args:
      path: the file.
      key: which array of a .npz or .safetensors file; may be None where it holds only one.

    Returns:
      The array. Pickled objects are never loaded.

    Raises:
      ValueError: the file is missing, damaged, of another format or holds no such array; the
        message gives the path and the keys that were found.
    """
    path = pathlib.Path(path)
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"{path}: expected a file ending in {', '.join(_SUFFIXES)}.")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    if path.suffix == ".npy" and key is not None:
        raise ValueError(f"{path}: a .npy file holds one array without a key, received {key!r}.")
    try:
        return _read(path, key)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from error
    except ImportError as error:
        raise ValueError(f"{path}: reading it needs `pip install safetensors`.") from error
    except Exception as error:  # Damaged files fail in any of the readers' ways.
        raise ValueError(f"{path}: cannot be read as {path.suffix}: {error}") from error


def _read(path: pathlib.Path, key: str | None) -> np.ndarray:
    # Opened here, since np.load leaves a damaged file open.
    with open(path, "rb") as stream:
        if path.suffix == ".npy":
            return np.load(stream, allow_pickle=False)
        if path.suffix == ".npz":
            with np.load(stream, allow_pickle=False) as archive:
                return archive[_only_key(key, archive.files)]
    from safetensors.numpy import load_file  # Imported where used: an optional format.

    arrays = load_file(path)
    return arrays[_only_key(key, list(arrays))]


def _only_key(key: str | None, found: list[str]) -> str:
    if key is None and len(found) == 1:
        return found[0]
    if key not in found:
        wanted = "which array is meant" if key is None else f"no array {key!r}"
        raise KeyError(f"{wanted}; the keys found are {', '.join(sorted(found)) or 'none'}.")
    return key


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only once it is complete and on disk.

    Raises:
      OSError: the folder cannot be written to, or the disk is full; nothing is left behind.
    """
    path = pathlib.Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises OSError if a file `path` could not be written, before anything is computed."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory, expected the name of a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no directory {path.parent}.")
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Writes JSON atomically; NaN and infinities become null with a reason beside them."""
    text = json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def jsonable(value: Any) -> Any:
    """The value in JSON's types; a number that is not finite becomes null with a reason."""
    if isinstance(value, dict):
        result = {}
        for name, entry in value.items():
            result[str(name)] = jsonable(entry)
            if _not_finite(entry):
                result[str(name)] = None
                result[f"{name}_reason"] = f"not a finite number: {float(entry)}"
        return result
    if isinstance(value, (list, tuple)):
        return [
            {"value": None, "reason": f"not a finite number: {float(entry)}"}
            if _not_finite(entry)
            else jsonable(entry)
            for entry in value
        ]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    return value


def _not_finite(value: Any) -> bool:
    scalar = isinstance(value, float) or (hasattr(value, "ndim") and value.ndim == 0)
    return scalar and not math.isfinite(value)
