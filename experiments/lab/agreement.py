"""Agreement of scores with judgements: rank correlation, accuracy, intervals over groups."""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import stats

import condvendi_jax as cv


@functools.cache
def rounding(order: float) -> float:
    """How far rounding may move a score, relative to it: no study ranks scores closer than that."""
    return cv.inference.saturation.rounding(cv.Entropy(order=order), np.float32)


def rounded(values: np.ndarray, order: float = 1.0) -> np.ndarray:
    """Values to a power of ten that is larger than what rounding moves them by."""
    least = np.maximum(np.abs(values), np.finfo(np.float32).tiny) * rounding(order)
    unit = 10.0 ** np.ceil(np.log10(least))
    return np.round(values / unit) * unit


def ranks(values: np.ndarray, order: float = 1.0) -> np.ndarray:
    """Ranks from 1, `[n]`, NaN last; values that are equal up to rounding share their mean rank."""
    return stats.rankdata(np.nan_to_num(rounded(values, order), nan=np.inf))


def spearman(
    scores: np.ndarray, wanted: np.ndarray, orders: float | Sequence[float] = 1.0
) -> np.ndarray:
    """Spearman's rank correlation of each of some scores `[r, n]` with `wanted` `[n]`, `[r]`.

    `orders` are the Renyi orders of the scores, or of all of them. NaN where either is constant up
    to rounding: such a score is saturated.
    """
    of_rows = np.broadcast_to(orders, len(scores)).tolist()
    x = np.stack([ranks(row, order) for row, order in zip(scores, of_rows, strict=True)])
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
        _, index = np.unique(rounded(row), return_inverse=True)
        # Of the sets up to each value, those of label 0 and of label 1.
        zeros, ones = (
            np.cumsum(np.bincount(index[labels == label], minlength=index.max() + 1))
            for label in (0, 1)
        )
        right = (zeros + ones[-1] - ones) / len(labels)
        found.append(max(right.max(), 1 - right.min()))
    return np.array(found)


def resampled(
    groups: np.ndarray, times: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """Numbers of items: those of as many of the `groups` of each item as there are, drawn anew."""
    _, index = np.unique(groups, return_inverse=True)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    for _ in range(times):
        drawn = generator.integers(len(members), size=len(members))
        yield np.concatenate([members[c] for c in drawn])


def correlate(
    scores: np.ndarray,
    wanted: np.ndarray,
    draws: Sequence[np.ndarray],
    orders: float | Sequence[float] = 1.0,
) -> np.ndarray:
    """Spearman's correlations of scores `[r, n]` with `wanted` `[n]`, and intervals, `[r, 3]`.

    The 95% intervals are over draws of row numbers; the other arguments are those of `spearman`.
    """
    return with_interval(
        lambda rows: spearman(scores[:, rows], wanted[rows], orders), draws, len(wanted)
    )


def with_interval(
    statistic: Callable[[np.ndarray], np.ndarray], draws: Sequence[np.ndarray], n: int
) -> np.ndarray:
    """A statistic of sets `[r]` and its 95% interval over draws of them, `[r, 3]`.

    NaN where the statistic is undefined; draws where it is undefined are left out.
    """
    whole = statistic(np.arange(n))
    found, defined = np.full((len(whole), 3), np.nan), ~np.isnan(whole)
    found[:, 0] = whole
    if defined.any():
        drawn = np.stack([statistic(rows)[defined] for rows in draws])
        found[defined, 1:] = np.nanpercentile(drawn, [2.5, 97.5], axis=0).T
    return found
