"""Arrays as people have them: a label for each row, columns of vectors, answers by prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import Indicator


def are_labels(values: Any) -> bool:
    """Whether values are a label for each row, `[n]`: strings, integers or booleans."""
    array = _column(values)
    if array is None or array.size == 0:
        return False
    if array.dtype.kind == "O":
        return all(isinstance(value, (str, int, np.integer)) for value in array.tolist())
    return array.dtype.kind in "iubUS"


def check_labels(
    models: Mapping[str, Mapping[str, Any]],
    labelled: Sequence[str],
    kernels: Sequence[Any],
    similar_prompts: bool,
) -> None:
    """Refuses labels under a kernel of distances, and texts in place of embeddings of outputs."""
    for role, kernel in zip(("outputs", "prompts"), kernels, strict=True):
        if role in labelled and not (kernel is None or isinstance(kernel, Indicator)):
            raise ValueError(
                f"{role}: expected embeddings [n, d] under {kernel!r}, received labels, which are "
                "equal or different: leave the kernel out, or pass embeddings."
            )
    if "prompts" in labelled and similar_prompts:
        raise ValueError("prompts: expected embeddings for similar_prompts, received labels.")
    for arrays in models.values():
        if "outputs" in labelled and any(isinstance(x, str) for x in arrays["outputs"]):
            raise TypeError(
                "outputs: received texts, which cv.evaluate and cv.compare embed; expected "
                "embeddings [n, d], or integers that say which are equal."
            )


def by_row(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs and their prompts by row: columns of vectors stacked, answers one after the other.

    Outputs `[prompts, k, d]` have prompts `[prompts, d]`, labels `[prompts]`, or `[prompts, k, d]`.
    """
    made = {name: _stacked(values, name) for name, values in arrays.items()}
    outputs, prompts = made["outputs"], made.get("prompts")
    if getattr(outputs, "ndim", None) != 3 or prompts is None:
        return made
    outputs, each = checks.as_array(outputs, name="outputs"), outputs.shape[1]
    if are_labels(prompts):
        prompts = np.asarray(prompts)
    prompts = checks.as_array(prompts, name="prompts")
    if prompts.ndim == 3 and prompts.shape[:2] == outputs.shape[:2]:
        prompts = prompts.reshape(-1, prompts.shape[2])
    elif prompts.ndim < 3 and prompts.shape[0] == outputs.shape[0]:
        prompts = prompts.repeat(each, axis=0)
    else:
        expected = f"outputs: expected [{len(prompts)}, k, d] or [n, d], one or k for each prompt"
        raise ValueError(f"{expected}, received shape {outputs.shape}.")
    return {"outputs": outputs.reshape(-1, outputs.shape[2]), "prompts": prompts}


def _stacked(values: Any, name: str) -> Any:
    """A column of vectors as a matrix, and lists of lists of vectors; other values as they are."""
    if isinstance(values, (list, tuple)) and values and np.ndim(values[0]) == 2:
        return np.stack([np.asarray(rows) for rows in values])
    column = _column(values)
    if column is None or column.dtype.kind != "O" or are_labels(column):
        return values
    rows = column.tolist()
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        return values
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise ValueError(
            f"{name}: expected vectors of one length, received some of {lengths[0]} and of "
            f"{lengths[-1]} numbers."
        )
    return np.stack(rows)


def _column(values: Any) -> np.ndarray | None:
    """Values that have one axis, outside of JAX; None elsewhere."""
    if isinstance(values, (list, tuple)):
        return None if not values or not np.isscalar(values[0]) else np.asarray(values)
    if isinstance(values, jax.Array) or getattr(values, "ndim", None) != 1:
        return None
    return np.asarray(values) if hasattr(values, "dtype") else None
