"""Standard errors from influences: how much each unit moves an estimate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Where noise is a larger part of the variance, it stays in.
NOISE = 0.5


def root_mean_square(values: np.ndarray) -> Any:
    """The root mean square over the last axis."""
    return np.sqrt(np.mean(np.square(values), axis=-1))


def error_of(of_units: np.ndarray) -> float:
    """The error of the mean of replicates `[replicates, G]`, less what their noise adds to it."""
    naive, unbiased = root_mean_square(np.mean(of_units, axis=0)), _without_noise(of_units)
    return float(naive) if is_noisy(of_units) else math.sqrt(unbiased)


def is_noisy(of_units: np.ndarray) -> bool:
    """Whether most of the mean square is the noise of the replicates, which then stays in it."""
    return (
        _without_noise(of_units) < NOISE * float(root_mean_square(np.mean(of_units, axis=0))) ** 2
    )


def _without_noise(of_units: np.ndarray) -> float:
    """The mean square without noise: from products of different replicates."""
    count = of_units.shape[0]
    if count == 1:
        return float(np.mean(np.square(of_units)))
    products = np.square(of_units.sum(axis=0)) - np.square(of_units).sum(axis=0)
    return float(np.mean(products)) / (count * (count - 1))


def group_influences(whole: Any, deleted: Any, shares: np.ndarray) -> np.ndarray:
    """The influence of each group on a score, `[..., g]`; their root mean square is the error.

    The delete-m_j jackknife. The score is `whole` `[...]` with all rows, and `deleted` `[..., g]`
    without each group, of the given share of the rows. The error of a difference of two scores is
    that of the differences of their influences, where both were computed without the same groups.
    A group without rows has no influence, and does not count in the mean square.
    """
    whole, deleted = np.asarray(whole, np.float64)[..., None], np.asarray(deleted, np.float64)
    present = shares > 0
    count = np.count_nonzero(present)
    h = 1 / np.where(present, shares, 0.5)
    pseudo = h * whole - (h - 1) * deleted
    rest = np.where(present, (1 - shares) * deleted, 0)
    estimate = count * whole - np.sum(rest, axis=-1, keepdims=True)
    return np.where(present, (pseudo - estimate) * np.sqrt(shares.size / count / (h - 1)), 0)
