"""Arrays of other packages, and what to run for the shape `[n, d]`, in backquotes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

_HOST = (1, 3)  # DLPack's numbers for the memory of a host: ordinary and pinned.
# By the number of axes of the array of this name.
HINTS = {
    1: " For one number a row: `{0} = np.reshape({0}, (-1, 1))`.",
    3: " For a row from each vector: `{0} = np.reshape({0}, (-1, np.shape({0})[2]))`; for outputs "
    "[prompts, k, d]: `prompts = np.arange(len(outputs))`.",
    4: " For the means of [n, d, ...]: `{0} = {0}.mean((2, 3))`.",
}


def converted(value: Any) -> np.ndarray | jax.Array:
    """A foreign array as one of NumPy, or of JAX where it lies on a device that JAX has."""
    value = getattr(value, "detach", lambda: value)()
    try:
        if value.__dlpack_device__()[0] not in _HOST:
            shared = jax.dlpack.from_dlpack(value.contiguous())
            if shared.nbytes == value.nbytes:  # Where x64 is off, JAX would round 64 bits to 32.
                return shared
    except Exception:  # It speaks no DLPack, or JAX has no such device: each has its own error.
        pass
    value = getattr(value, "cpu", lambda: value)()  # NumPy refuses tensors of other devices.
    if "bfloat16" in str(getattr(value, "dtype", "")) and hasattr(value, "float"):
        value = value.float()
    return np.asarray(value)


def hint_of_rows(outputs: Any, prompts: Any) -> str:
    """What to run, and when, where outputs and prompts have other numbers of rows."""
    each, rest = divmod(len(outputs), max(len(prompts), 1))
    line = f"`prompts = np.repeat(prompts, {each}, axis=0)`"
    hint = "" if rest or each < 2 else f" If each {each} rows in turn answer one prompt: {line}."
    if outputs.shape[1] == len(prompts):
        hint += " If outputs are [d, n]: `outputs = np.transpose(outputs)`."
    return hint
