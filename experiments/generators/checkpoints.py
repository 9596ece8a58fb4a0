"""Trained parameters on disk: one safetensors file a model, which says whose it is.

A file's metadata hold the identity of the training (`experiments.records.identify`: name,
version, settings, arrays, seed), where it was trained, and a checksum of all of it and of every
tensor. Trees of parameters are stored under the paths of their leaves: 'generator/layers/0/kernel'.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from flax import nnx

from condvendi_jax.cli import files, provenance
from condvendi_jax.encoders.embedding import default_cache
from experiments import records

SHIPPED = pathlib.Path(__file__).parent / "trained"


def flatten(tree: Mapping[Any, Any] | nnx.State) -> dict[str, np.ndarray]:
    """The leaves of nested dictionaries, or of an nnx state, by their path joined with '/'.

    Raises:
      ValueError: a key would not come back: it is empty, has a '/', or is a word of digits.
    """
    return dict(_leaves(nnx.to_pure_dict(tree) if isinstance(tree, nnx.State) else tree, ""))


def _leaves(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    for key, value in tree.items():
        word = str(key)
        if not word or "/" in word or word.isdecimal() != isinstance(key, int):
            raise ValueError(f"{prefix}{key!r}: expected words without '/', or whole numbers.")
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{word}/")
        else:
            yield prefix + word, np.asarray(value)


def unflatten(arrays: Mapping[str, np.ndarray]) -> dict[Any, Any]:
    """Nested dictionaries, as `flatten` took them; parts of digits become whole numbers."""
    tree: dict[Any, Any] = {}
    for path, array in arrays.items():
        *parents, last = (int(word) if word.isdecimal() else word for word in path.split("/"))
        branch = tree
        for key in parents:
            branch = branch.setdefault(key, {})
        branch[last] = array
    return tree


def restore(state: nnx.State, tree: Mapping[Any, Any]) -> nnx.State:
    """An nnx state of the same structure with the values of nested dictionaries.

    Args:
      state: of a model; shapes are enough (`nnx.eval_shape`).
      tree: values, cast to the dtypes of the state.

    Raises:
      ValueError: names or shapes are not those of the state.
    """
    wanted, found = _shapes(nnx.to_pure_dict(state), ""), _shapes(tree, "")
    if wanted != found:
        words = [f"{n} {wanted.get(n)}" for n in wanted if wanted[n] != found.get(n)]
        words = words or [f"no {name}" for name in found if name not in wanted]
        raise ValueError(f"parameters of another model: expected {words[0]}.")
    return _restored(state, tree)


def _shapes(tree: Mapping[Any, Any], prefix: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= _shapes(value, f"{prefix}{key}/")
        else:
            found[f"{prefix}{key}"] = tuple(value.shape)
    return found


def _restored(state: nnx.State, tree: Mapping[Any, Any]) -> nnx.State:
    leaves = {
        path: variable.replace(_at(tree, path).astype(variable.get_value().dtype))
        for path, variable in nnx.to_flat_state(state)
    }
    return nnx.from_flat_state(leaves)


def _at(tree: Any, path: tuple[Any, ...]) -> np.ndarray:
    for key in path:
        tree = tree[key]
    return np.asarray(tree)


def save(path: pathlib.Path, tree: Mapping[Any, Any], identity: records.Identity) -> None:
    """Writes parameters and whose they are; the file appears whole or not at all.

    Raises:
      OSError: the file cannot be written.
    """
    arrays = {name: np.array(array, order="C") for name, array in flatten(tree).items()}
    record = {"identity": dict(identity), "provenance": provenance.collect()}
    metadata = {name: json.dumps(entry) for name, entry in record.items()}
    metadata["sha256"] = _checksum(record, arrays)
    content = safetensors.numpy.save(arrays, metadata)
    with files.atomic_writer(path) as stream:
        stream.write(content)


def load(path: pathlib.Path, identity: records.Identity | None = None) -> dict[Any, Any]:
    """Reads what `save` wrote.

    Args:
      path: of the file.
      identity: whose parameters they must be; any where it is None.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is damaged, is no file of `save`, or holds what another training made;
        in one line, with its path.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as archive:
            metadata = archive.metadata() or {}
            names = archive.keys()
            arrays = {name: archive.get_tensor(name) for name in names}
        record = {name: json.loads(metadata[name]) for name in ("identity", "provenance")}
        if metadata["sha256"] != _checksum(record, arrays):
            raise ValueError("its content is not what its checksum says")
    except FileNotFoundError:
        raise
    except KeyError as error:
        raise ValueError(f"{path}: not a file of this project ({error} is missing).") from error
    except (OSError, ValueError, TypeError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: damaged ({str(error).splitlines()[0]}).") from error
    if identity is not None and (words := records.differences(record["identity"], identity)):
        raise ValueError(f"{path}: of another training ({'; '.join(words)}).")
    return unflatten(arrays)


def _checksum(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    tensors = {name: records.hash_array(array) for name, array in arrays.items()}
    return records.digest({**record, "tensors": tensors})


def file_name(identity: records.Identity) -> str:
    """Of a model's file: its name, and a digest of all that it depends on."""
    return f"{identity['study']}-{records.digest(identity)[:16]}.safetensors"


def trained(
    identity: records.Identity,
    train: Callable[[], Mapping[Any, Any]],
    *,
    cache: pathlib.Path | None = None,
    shipped: pathlib.Path = SHIPPED,
) -> dict[Any, Any]:
    """Parameters that were trained once: the project's, those of the cache, or new ones.

    Args:
      identity: what the training depends on (`experiments.records.identify`).
      train: gives nested dictionaries of arrays.
      cache: folder of what is not shipped, created where missing; `trained` in the user's cache
        folder where None.
      shipped: folder that is looked in first.

    Returns:
      Nested dictionaries of NumPy arrays. A damaged file, or one of another training under this
      name, is named in a line and not used; in the cache it is replaced.

    Raises:
      OSError: there is something to train, and the cache cannot be written to.
    """
    file = file_name(identity)
    cache = default_cache() / "trained" if cache is None else cache
    for folder in dict.fromkeys((shipped, cache)):
        try:
            return load(folder / file, identity)
        except FileNotFoundError:
            continue
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
    cache.mkdir(parents=True, exist_ok=True)
    files.check_writable(cache / file)
    sys.stderr.write(f"{file}: neither in {shipped} nor in {cache}; trained now.\n")
    save(cache / file, train(), identity)
    return load(cache / file, identity)
