"""Recall and coverage: what share of references samples reach, by nearest neighbours."""

from __future__ import annotations

import numpy as np


def recall(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references within the reach of a sample (Kynkaanniemi et al. 2019, eq. 2).

    Args:
      across: distances of references and samples, `[r, s]`.
      within: of the samples among themselves, `[s, s]`; a sample reaches to its k-th neighbour.
      k: less than s.
    """
    return float(np.mean(np.any(across <= _reach(within, k)[None, :], axis=1)))


def coverage(across: np.ndarray, within: np.ndarray, k: int) -> float:
    """The share of references with a sample within their reach (Naeem et al. 2020, eq. 4).

    Args:
      across: distances of references and samples, `[r, s]`.
      within: of the references among themselves, `[r, r]`; each reaches to its k-th neighbour.
      k: less than r.
    """
    return float(np.mean(np.min(across, axis=1) <= _reach(within, k)))


def _reach(within: np.ndarray, k: int) -> np.ndarray:
    """The distance to the k-th neighbour; the zero in front is that to the point itself."""
    return np.partition(within, k, axis=1)[:, k]


def expected_coverage(sizes: np.ndarray, k: int) -> np.ndarray:
    """The coverage of n references by n samples of the same distribution (Naeem et al. 2020).

    Of a reference's neighbours among n - 1 references and n samples, the k nearest must not all be
    references: all orders are equally likely.
    """
    steps = np.arange(1, k + 1)
    sizes = np.asarray(sizes, float)[:, None]
    return 1 - np.prod((sizes - steps) / (2 * sizes - steps), axis=1)
