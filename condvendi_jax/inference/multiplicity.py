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
