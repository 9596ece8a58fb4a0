"""Trained parameters on disk: one safetensors file a model, which says whose it is.

A file's metadata hold the identity of the training (`experiments.lab.records.identify`: name,
version, settings, arrays, seed), where it was trained, and a checksum of all of it and of every
tensor. Trees of parameters are stored under the paths of their leaves: 'generator/layers/0/kernel'.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
import safetensors
import safetensors.numpy
from flax import nnx, traverse_util

from condvendi_jax.base import files
from condvendi_jax.cli import provenance
from experiments.lab import records

SHIPPED = pathlib.Path(__file__).parent / "trained"
M = TypeVar("M")


def restore(make: Callable[[], M], tree: Mapping[Any, Any]) -> M:
    """The nnx model that `make` gives with the values of nested dictionaries, in its own dtypes.

    Raises:
      ValueError: names or shapes are not those of the model.
    """
    graph, state = nnx.split(nnx.eval_shape(make))
    variables = dict(nnx.to_flat_state(state))
    values: dict[Any, Any] = traverse_util.flatten_dict(dict(tree))
    wanted = {path: variable.shape for path, variable in variables.items()}
    if odd := wanted.items() ^ {path: np.shape(of) for path, of in values.items()}.items():
        names = {"/".join(map(str, path)) for path, _ in odd}
        raise ValueError(f"parameters of another model: {', '.join(sorted(names))}.")
    found = {
        # jnp.asarray would compile a program for every shape.
        path: variable.replace(jax.device_put(np.asarray(values[path], variable.dtype)))
        for path, variable in variables.items()
    }
    return nnx.merge(graph, nnx.from_flat_state(found))


def save(path: pathlib.Path, tree: Mapping[Any, Any], identity: records.Identity) -> None:
    """Writes parameters and whose they are; the file appears whole or not at all."""
    leaves = traverse_util.flatten_dict(dict(tree))
    arrays = {"/".join(map(str, path)): np.array(leaf, order="C") for path, leaf in leaves.items()}
    record = {"identity": dict(identity), "provenance": provenance.collect()}
    metadata = {name: json.dumps(entry) for name, entry in record.items()}
    metadata["sha256"] = _checksum(record, arrays)
    content = safetensors.numpy.save(arrays, metadata)
    with files.atomic_writer(path) as stream:
        stream.write(content)


def load(path: pathlib.Path, identity: records.Identity | None = None) -> dict[Any, Any]:
    """Reads what `save` wrote, of any training where no identity is given.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is damaged, is no file of `save`, or holds what another training made;
        in one line, with its path.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as archive:
            metadata = archive.metadata() or {}
            arrays = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118 - no dict
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
    # Parts of digits become whole numbers.
    return nnx.restore_int_paths(traverse_util.unflatten_dict(arrays, sep="/"))


def _checksum(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    tensors = {name: records.hash_array(array) for name, array in arrays.items()}
    return records.digest({**record, "tensors": tensors})


def file_name(identity: records.Identity) -> str:
    """Of a model's file: its name, and a digest of all that it depends on."""
    return f"{identity['study']}-{records.digest(identity)[:16]}.safetensors"
