"""Agreement of scores with judgements: rank correlation, accuracy, intervals over groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, the mean rank where values are equal, `[n]`."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[index]


def spearman(scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of each of some scores `[r, n]` with `wanted` `[n]`, `[r]`.

    NaN where either is constant.
    """
    x = np.stack([ranks(row) for row in scores])
    x, y = x - x.mean(axis=1, keepdims=True), ranks(wanted) - (len(wanted) + 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return x @ y / np.sqrt(np.sum(x**2, axis=1) * np.sum(y**2))


def best_accuracy(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of labels in {0, 1} that the best threshold tells right, for each score `[r]`.

    The optimal classification accuracy of Tevet and Berant, section 5: every threshold, either
    side of which may be called 1.
    """
    found = []
    for row in scores:
        values, index = np.unique(row, return_inverse=True)
        # Of the sets up to each value, those of label 0 and of label 1.
        zeros, ones = (
            np.cumsum(np.bincount(index[labels == label], minlength=len(values)))
            for label in (0, 1)
        )
        right = (zeros + ones[-1] - ones) / len(labels)
        found.append(max(right.max(), 1 - right.min()))
    return np.array(found)


def resampled(
    groups: np.ndarray, times: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """Numbers of items, those of each of as many groups as there are, drawn anew.

    Args:
      groups: of each item, `[n]`; the items of one group are drawn together.
      times: how many draws.
      generator: of the draws.
    """
    _, index = np.unique(groups, return_inverse=True)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    for _ in range(times):
        drawn = generator.integers(len(members), size=len(members))
        yield np.concatenate([members[c] for c in drawn])


def with_interval(
    statistic: Callable[[np.ndarray], np.ndarray], draws: Sequence[np.ndarray], n: int
) -> np.ndarray:
    """A statistic of sets `[r]` and its 95% interval over draws of them, `[r, 3]`."""
    drawn = np.stack([statistic(rows) for rows in draws])
    low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
    return np.stack([statistic(np.arange(n)), low, high], axis=1)
