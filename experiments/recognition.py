"""Which outputs are told by their neighbours, and the scores of equally many of each type."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import condvendi_jax as cv


def recognised(
    outputs: np.ndarray, types: np.ndarray, examples: np.ndarray | None = None
) -> np.ndarray:
    """Whether the nearest neighbour of each output is of its type, `[n]`.

    Args:
      outputs: `[n, d]`.
      types: of the outputs and of the examples, `[n]`.
      examples: among which neighbours are sought; the other outputs where None.
    """
    among = outputs if examples is None else examples
    distances = np.sum(among**2, axis=1) - 2 * outputs @ among.T  # Less what a row has in common.
    if examples is None:
        np.fill_diagonal(distances, np.inf)
    return types[distances.argmin(axis=1)] == types


def balanced(part: np.ndarray, types: np.ndarray) -> list[np.ndarray]:
    """Rows of a part of the outputs, equally many of each type at every temperature.

    Args:
      part: whether a row belongs to it, `[temperatures, n]`.
      types: of the rows, numbered from 0, `[n]`.
    """
    counts = np.array([np.bincount(types[own], minlength=types.max() + 1) for own in part])
    fewest = counts.min(axis=0)
    return [
        np.concatenate(
            [np.flatnonzero(own & (types == kind))[:most] for kind, most in enumerate(fewest)]
        )
        for own in part
    ]


def conditional(
    outputs: np.ndarray, prompts: np.ndarray, kernels: dict[str, Any], groups: int, seed: int
) -> tuple[float, float]:
    """Conditional-RKE and its standard error."""
    distinct = len({row.tobytes() for row in prompts})
    if distinct < 3:
        return np.nan, np.nan
    groups, key = min(groups, distinct), jax.random.key(seed)
    error = cv.decomposition_errors(outputs, prompts, order=2, groups=groups, key=key, **kernels)
    return float(cv.conditional_rke(outputs, prompts, **kernels)), float(error.conditional)
