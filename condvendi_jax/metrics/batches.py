"""What every metric does with a batch before it counts it, and with entropies in the end."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.scores import Decomposition

Points = tuple[Any, ...]  # Outputs `[n, d_x]` and, where there are prompts, prompts `[n, d_t]`.

NAMES = ("outputs", "prompts")


def check_batch(
    outputs: Any, prompts: Any, mask: Any, *, with_prompts: bool
) -> tuple[Points, jax.Array | None]:
    """The points of a batch, checked and cast, and its mask; masked rows may hold anything."""
    if with_prompts and prompts is None:
        raise ValueError("prompts: expected embeddings [n, d], as the metric has a prompt kernel.")
    arrays = [outputs, prompts] if with_prompts else [outputs]
    if mask is not None:
        mask = jnp.asarray(mask)
        arrays = [_without_masked(a, mask) for a in arrays]
    if not with_prompts:
        return (validation.check_embeddings(arrays[0], name="outputs"),), mask
    return validation.check_pairs(*arrays), mask


def _without_masked(array: Any, mask: jax.Array) -> Any:
    """The array with ones, on which every kernel is defined, in the place of masked rows."""
    array = array if isinstance(array, jax.Array) else np.asarray(array)
    if array.ndim != 2:
        return array  # The checks that follow refuse it.
    if mask.shape != array.shape[:1] or mask.dtype != bool:
        raise ValueError(
            f"mask: expected booleans of shape {array.shape[:1]}, one a row, received {mask.dtype} "
            f"of shape {mask.shape}."
        )
    if validation.is_concrete(array, mask):
        return np.where(np.asarray(mask)[:, None], array, np.ones_like(array))
    return jnp.where(mask[:, None], array, jnp.ones_like(array))


def check_dimensions(points: Points, expected: tuple[int, ...] | None) -> None:
    """Raises where points are not of the dimensions that the stream has."""
    if expected is None:
        return
    for name, want, part in zip(NAMES, expected, points, strict=False):
        got = part.shape[1]
        if want != got:
            raise ValueError(f"{name}: expected embeddings of dimension {want}, received {got}.")


def check_not_empty(metric: nnx.Metric, n: int) -> None:
    """Raises where there is nothing to score."""
    if n == 0:
        raise ValueError(f"{type(metric).__name__} has no samples yet: call update first.")


def decomposition(entropies: tuple[jax.Array, ...], entropy: Entropy, n: int) -> Decomposition:
    """Of H(X), H(T) and H(X, T), or of H(X) alone: then every sample has the same prompt."""
    if len(entropies) == 1:
        entropies = (entropies[0], jnp.zeros_like(entropies[0]), entropies[0])
    return Decomposition(
        *entropies,
        order=entropy.order,
        truncation=entropy.truncation,
        n=n,
        dtype=np.dtype(entropies[0].dtype).name,
        method="exact" if entropy.needs_spectrum else "frobenius",
    )
