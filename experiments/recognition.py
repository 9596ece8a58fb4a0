"""Which outputs are told by their neighbours, and the scores of equally many of each type."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments import knobs
from experiments.lab import Bandwidths, Context

OWN, LOWEST = NEIGHBOURS = ("at its own temperature", "at the lowest one")
PARTS = ("recognised", "ended")


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


def measure(
    outputs: np.ndarray,
    prompts: np.ndarray,
    ended: np.ndarray,
    types: np.ndarray,
    scale: Bandwidths,
    groups: int,
    context: Context,
) -> xr.Dataset:
    """What outputs are taken for, and Conditional-RKE of those that are recognised, or ended.

    Args:
      outputs, prompts: at each temperature, the lowest first, `[temperatures, n, d]`.
      ended: whether the generator ended an output by itself, `[temperatures, n]`.
      types: numbers of the types of the rows, as many of each side by side, `[n]`.
      scale: the bandwidths.
      groups: of the jackknife over prompts.
      context: whose seed draws them.

    Returns:
      `known` over neighbour, type and model: the share of the outputs whose nearest neighbour at
      their own temperature, or at the lowest, is of their type. Over part: `kept`, how many a
      temperature, of each type as many as are at every temperature; over part and model `of_part`
      with `of_part_error`, the Conditional-RKE of those, NaN where they are too few.
    """
    own = np.stack([recognised(rows, types) for rows in outputs])
    later = [recognised(rows, types, outputs[0]) for rows in outputs[1:]]
    shares = np.stack([own, [own[0], *later]]).reshape(2, len(outputs), types.max() + 1, -1)
    setting, kind = np.indices(own.shape)[0].ravel(), np.tile(types, len(own))
    parts = [knobs.balanced(setting, kind, part.ravel()) for part in (own, ended)]
    kept = np.reshape(parts, (len(PARTS), *own.shape))
    scores = [
        [
            _conditional(x[rows], t[rows], scale.kernels, groups, context)
            for x, t, rows in zip(outputs, prompts, part, strict=True)
        ]
        for part in kept
    ]
    values, errors = np.moveaxis(np.array(scores), -1, 0)
    return xr.Dataset(
        {
            "known": (("neighbour", "type", "model"), shares.mean(axis=-1).swapaxes(1, 2)),
            "kept": ("part", kept[:, 0].sum(axis=-1)),
            "of_part": (("part", "model"), values),
            "of_part_error": (("part", "model"), errors),
        },
        {"neighbour": list(NEIGHBOURS), "part": list(PARTS)},
    )


def _conditional(
    outputs: np.ndarray, prompts: np.ndarray, kernels: Any, groups: int, context: Context
) -> tuple[float, float]:
    """Conditional-RKE and its standard error."""
    distinct = len(np.unique(prompts, axis=0))
    if distinct < 3:
        return np.nan, np.nan
    error = cv.decomposition_errors(
        outputs,
        prompts,
        order=2,
        groups=min(groups, distinct),
        key=jax.random.key(context.shared_seed),
        **kernels,
    )
    return float(cv.conditional_rke(outputs, prompts, **kernels)), float(error.conditional)
