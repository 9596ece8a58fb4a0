"""Many tests at once: adjusted p-values, and letters that show which models differ."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, by Holm's step-down (1979).

    The k-th smallest of m is multiplied by m - k + 1; none may be less than a smaller one's.
    Rejecting those up to a level keeps the probability of any false rejection at that level,
    whatever the dependence. Those that are NaN were not tested: they stay NaN and do not count.
    """
    tested = int(np.sum(~np.isnan(p_values)))
    adjusted = np.full(len(p_values), np.nan)
    largest = 0.0
    for rank, index in enumerate(np.argsort(p_values)[:tested].tolist()):  # NaN comes last.
        largest = max(largest, min(1.0, (tested - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def letter_display(models: Sequence[str], apart: set[frozenset[str]]) -> dict[str, str]:
    """A compact letter display (Piepho, 2004): models share a letter unless a test parts them."""
    columns = [set(models)]
    # In another order than that of the models there would be far more columns on the way.
    for one, two in ((one, two) for k, two in enumerate(models) for one in models[:k]):
        pair = {one, two}
        if frozenset(pair) not in apart:
            continue
        for column in [column for column in columns if pair <= column]:
            columns.remove(column)
            columns += [column - {one}, column - {two}]
        distinct = list(map(set, dict.fromkeys(map(frozenset, columns))))
        columns = [column for column in distinct if not any(column < other for other in distinct)]
    columns.sort(key=lambda column: [model not in column for model in models])
    # After a to z and A to Z, the accented letters of Unicode.
    letters = string.ascii_letters + "".join(map(chr, range(0x100, 0x100 + len(columns))))
    lettered = list(zip(letters, columns, strict=False))
    return {model: "".join(x for x, column in lettered if model in column) for model in models}


def stepped_down(observed: np.ndarray, drawn: np.ndarray, level: float) -> np.ndarray:
    """Which statistics are larger than `drawn` `[draws, ...]` ones (Romano and Wolf, 2005)."""
    told = np.zeros(observed.shape, bool)
    while not told.all():
        limit = np.quantile(drawn[:, ~told].max(axis=1), 1 - level)
        further = ~told & (observed > limit)
        if not further.any():
            break
        told |= further
    return told


def joint_p_values(observed: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The p-values of statistics `[k]`, and those of all at once (Westfall and Young, 1993)."""
    rising = np.argsort(observed)
    largest = np.maximum.accumulate(drawn[:, rising], axis=1)  # Of those that are no larger.
    counts = [np.sum(drawn >= observed, axis=0), np.sum(largest >= observed[rising], axis=0)]
    alone, adjusted = (1 + np.array(counts)) / (len(drawn) + 1)
    adjusted[rising] = np.maximum.accumulate(adjusted[::-1])[::-1]
    return alone, adjusted
