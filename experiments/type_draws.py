"""Draws of types and their prompts, clusters of them, and how their scores go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.scores import clusters
from experiments.data import PairedEmbeddings
from experiments.lab import agreement

PROMPTINGS = ("type unspecified", "type specified")
FAMILIES = ("Vendi", "RKE")
KINDS = ("Conditional-{}", "{}", "Cluster-{}", "K-means Cluster-{}")
SCORES = tuple(kind.format(family) for family in FAMILIES for kind in KINDS)
_ORDERS = (1, 2)
_RESAMPLES = 2000


def rows_of(model: str, pairs: PairedEmbeddings) -> np.ndarray:
    """Which pairs are of a model, booleans `[n]`.

    Raises:
      ValueError: none are, with the models that there are.
    """
    if "models" not in pairs.labels:
        raise ValueError(f"--model: {pairs.name} has no models; --models says whose outputs are.")
    models = pairs.labels["models"].astype(str)
    if model not in models:
        raise ValueError(f"--model: unknown {model!r}; known: {', '.join(np.unique(models))}.")
    return models == model


def draw_rows(
    types: np.ndarray, per_type: int, *, exchanged: bool, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of outputs and of prompts of one draw, type after type in a random order.

    Args:
      types: of each pair, `[n]`.
      per_type: how many pairs of each type.
      exchanged: whether prompts are exchanged at random between the pairs of a type.
      seed: of the draw.

    Returns:
      Row numbers `[types * per_type]` of the outputs, and of the prompts that they get.
    """
    generator = np.random.default_rng(seed)
    outputs, prompts = [], []
    for name in generator.permutation(np.unique(types)):
        rows = np.flatnonzero(types == name)
        outputs.append(generator.permutation(rows)[:per_type])
        prompts.append(generator.permutation(rows)[:per_type] if exchanged else outputs[-1])
    return np.concatenate(outputs), np.concatenate(prompts)


def scores_by_count(
    outputs: np.ndarray,
    texts: Sequence[np.ndarray],
    types: np.ndarray,
    sizes: np.ndarray,
    means: Sequence[Sequence[np.ndarray]],
    kernels: dict[str, Any],
) -> np.ndarray:
    """Every score of the first outputs, `[promptings, scores, j]`.

    Args:
      outputs: `[n, d]`, type after type.
      texts: of each prompting, the prompts of the outputs.
      types: of the outputs, numbered from 0.
      sizes: how many outputs j = 1, 2, ... types have.
      means: of each prompting, the K-means clusters of so many types.
      kernels: of outputs and prompts.
    """
    by_types, *by_means = np.split(
        cluster_scores(
            outputs, [*(types[:n] for n in sizes), *means[0], *means[1]], kernels["output_kernel"]
        ),
        1 + len(texts),
        axis=1,
    )
    found = []
    for p, text in enumerate(texts):
        for f, curve in enumerate(cv.convergence_curve(outputs, text, sizes.tolist(), **kernels)):
            # A prompt that names no type names one category: one cluster, whose score is Vendi.
            named = by_types[f] if p else curve.vendi
            found += [curve.conditional, curve.vendi, named, by_means[p][f]]
    return np.reshape(found, (len(PROMPTINGS), len(SCORES), len(sizes)))


def cluster_scores(
    outputs: np.ndarray, labelings: Sequence[np.ndarray], kernel: cv.Kernel
) -> np.ndarray:
    """Cluster-Vendi and Cluster-RKE (CV G.1, the arithmetic mean) of several clusterings at once.

    Args:
      outputs: `[n, d]`.
      labelings: the clusters of the first outputs, each of integers from 0 on.
      kernel: of the outputs.

    Returns:
      `[families, labelings]`, effective numbers of modes.
    """
    lengths = np.array([len(labels) for labels in labelings])
    rows = np.concatenate([np.arange(n) for n in lengths])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    labels = owner * len(outputs) + np.concatenate(labelings)
    found = [
        clusters.scores_by_cluster(outputs[rows], labels, kernel=kernel, order=order)
        for order in _ORDERS
    ]
    return np.stack(
        [
            np.bincount(f.names // len(outputs), f.sizes * np.asarray(f.scores)) / lengths
            for f in found
        ]
    )


def by_k_means(points: np.ndarray, k: int, restarts: int, key: jax.Array) -> np.ndarray:
    """The clusters of each start of K-means `[restarts, n]`, the best first.

    There are k, or fewer where there are fewer distinct points.
    """
    distinct = len(np.unique(points, axis=0))
    return cv.clusters.k_means(points, min(k, distinct), key=key, restarts=restarts).alternatives


def growth(found: xr.DataArray) -> xr.Dataset:
    """How many times the score of all types is that of one: mean and spread over draws."""
    ratio = found.isel(j=-1) / found.isel(j=0).mean("repeat")
    return over_draws(ratio)


def over_draws(values: xr.DataArray) -> xr.Dataset:
    """Means over the draws and their standard deviation; NaN of one draw."""
    mean, several = values.mean("repeat"), values.sizes["repeat"] > 1
    error = values.std("repeat", ddof=1) if several else mean * np.nan
    return xr.Dataset({"value": mean, "error": error})


def correlation(
    found: xr.DataArray, family: str, kind: str, prompting: str | None, seed: int
) -> tuple[float, float, float]:
    """Pearson's correlation over j of the conditional score with the one by clusters.

    Args:
      found: the scores of one bandwidth, by repeat, prompting, score and j.
      family: of `FAMILIES`.
      kind: 'Cluster' or 'K-means Cluster'.
      prompting: of `PROMPTINGS`; None takes the models of both together.
      seed: of the bootstrap.

    Returns:
      The mean over the draws of the correlation within a draw, and its 95% interval by a bootstrap
      over draws; NaN where a score does not change beyond rounding.
    """
    taken = found if prompting is None else found.sel(prompting=[prompting])
    x, y = (
        taken.sel(score=name)
        .transpose("repeat", "prompting", "j")
        .values.reshape(taken.sizes["repeat"], -1)
        for name in (f"{kind}-{family}", f"Conditional-{family}")
    )
    if any(agreement.levels(row).max() == 0 for row in (*x, *y)):
        return np.nan, np.nan, np.nan
    x, y = (v - v.mean(axis=1, keepdims=True) for v in (x, y))
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    within = np.sum(x * y, axis=1) / norms
    resampled = np.random.default_rng(seed).integers(len(x), size=(_RESAMPLES, len(x)))
    low, high = np.quantile(within[resampled].mean(axis=1), (0.025, 0.975))
    return float(within.mean()), float(low), float(high)
