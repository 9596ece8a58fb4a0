"""What every metric does with a batch before it counts it, and with entropies in the end."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerTerm
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods

Points = tuple[Any, ...]  # Outputs `[n, d_x]` and, where there are prompts, prompts `[n, d_t]`.

NAMES = ("outputs", "prompts")
_ARGUMENTS = (*NAMES, "mask", "weights")


def refuse_misspelt(others: Collection[str]) -> None:
    """Raises TypeError where an argument that another metric may read looks like one of ours."""
    for name in others:
        within = any(argument.rstrip("s") in name.lower() for argument in _ARGUMENTS)
        if within or difflib.get_close_matches(name, _ARGUMENTS, cutoff=0.7):
            raise TypeError(
                f"update: received {name}, which is no argument; expected {', '.join(_ARGUMENTS)}, "
                "or arguments of other metrics, whose names are not like these."
            )


def check_batch(
    outputs: ArrayLike,
    prompts: ArrayLike | None,
    mask: ArrayLike | None,
    weights: ArrayLike | None,
    *,
    with_prompts: bool,
    origins_for: Callable[[dict[str, Any]], dict[str, Any]] = lambda arrays: {},
) -> tuple[Points, jax.Array, dict[str, Any]]:
    """The points of a batch, checked and cast, their weights, and the rows subtracted before that.

    Weights are `[n]`, zero where rows are masked, which may hold anything, and one where none are
    given. `origins_for` chooses the subtracted row of each array.
    """
    if with_prompts and prompts is None:
        raise ValueError("prompts: expected embeddings [n, d], as the metric has a prompt kernel.")
    given: dict[str, Any] = {"outputs": outputs} | ({"prompts": prompts} if with_prompts else {})
    validation.check_indices(given | {"mask": mask, "weights": weights})
    arrays = validation.as_arrays(given)
    kept = arrays
    if mask is not None:
        mask = jnp.asarray(mask)
        arrays = {name: _without_masked(array, mask) for name, array in arrays.items()}
        if validation.is_concrete(mask, arrays) and all(a.ndim == 2 for a in arrays.values()):
            kept = {name: array[np.asarray(mask)] for name, array in arrays.items()}
    origins = origins_for(kept)
    points = tuple(validation.check_arrays(arrays, origins=origins))
    n, dtype = points[0].shape[0], points[0].dtype
    of_rows = jnp.ones(n, dtype)
    if weights is not None:
        checked = validation.check_weights(weights, n, some=False)
        with np.errstate(over="ignore"):
            of_rows = jnp.asarray(checked.astype(dtype))
        if (
            validation.is_concrete(of_rows)
            and ((of_rows > 0) & (of_rows < jnp.inf) != (checked > 0)).any()
        ):
            raise ValueError(f"weights: expected numbers in the range of {dtype}: rescale all.")
    return points, of_rows if mask is None else jnp.where(mask, of_rows, 0), origins


def _without_masked(array: Any, mask: jax.Array) -> Any:
    """The array with ones, on which every kernel is defined, in the place of masked rows."""
    if array.ndim != 2:
        return array  # The checks that follow refuse it.
    if mask.shape != array.shape[:1] or mask.dtype != bool:
        raise ValueError(
            f"mask: expected booleans of shape {array.shape[:1]}, one a row, received {mask.dtype} "
            f"of shape {mask.shape}."
        )
    if validation.is_concrete(array, mask):
        ones = np.ones_like(array)
        ones[::2, :1] = 2  # So that they do not look like padding.
        ones[1::2, 1:2] = 3
        return np.where(np.asarray(mask)[:, None], array, ones)
    return jnp.where(mask[:, None], array, jnp.ones_like(array))


def check_dimensions(points: Points, expected: tuple[int, ...]) -> None:
    """Raises where points are not of the dimensions that the stream has, if it has any yet."""
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
    values = PerTerm(*entropies, *(None,) * (3 - len(entropies)))
    method = methods.Exact.name if entropy.needs_spectrum else methods.FROBENIUS
    return Decomposition.of(methods.Computed(values, None, method), entropy, n=n)
