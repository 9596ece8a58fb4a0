"""Many tests at once: adjusted p-values, letters that show which models differ, ranks, a winner."""

import string
from collections.abc import Sequence

import numpy as np

from condvendi_jax.statistics.intervals import Ends


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, by Holm's step-down (1979).

    The k-th smallest of m is multiplied by m - k + 1; none may be less than a smaller one's.
    If each p-value is valid, rejecting those up to a level keeps the probability of any false
    rejection at it, whatever the dependence; that of a wrong sign if they are independent
    (Shaffer, 1980). NaN were not tested: they stay NaN and do not count.
    """
    rising = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN comes last.
    adjusted, times = np.full(len(p_values), np.nan), np.arange(rising.size, 0, -1)
    scaled = times * np.asarray(p_values, np.float64)[rising]
    adjusted[rising] = np.minimum(np.maximum.accumulate(scaled), 1.0)
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


def rank_sets(ahead: np.ndarray) -> list[tuple[int, int]]:
    """The first and the last rank that each model may have; `ahead[i, j]`: a test puts i before j.

    All of them hold where no test is wrong (Mogstad, Romano, Shaikh and Wilhelm, 2024, section 3).
    """
    first, last = 1 + ahead.sum(axis=0), len(ahead) - ahead.sum(axis=1)
    return list(zip(first.tolist(), last.tolist(), strict=True))


def best_p_values(p_ahead: np.ndarray) -> np.ndarray:
    """The p-value of each model to be the best, from one-sided `p_ahead[i, j]` that i is before j.

    Times the number of others (Hsu, 1981), at least 2: of two models, as their two-sided test.
    """
    return np.minimum(max(len(p_ahead) - 1, 2) * p_ahead.min(axis=0), 1.0)


def winner_interval(ends: Sequence[Ends], level: float) -> tuple[float, float]:
    """The interval of the first of several scores, which is the first because it is the largest.

    Each of them may have been selected, so that the lower end is Bonferroni's. No score is larger
    than the best one, which is no larger than the largest upper end.
    """
    return float(ends[0](level / len(ends))[0]), max(float(interval(level)[1]) for interval in ends)


def stepped_down(observed: np.ndarray, drawn: np.ndarray, level: float) -> np.ndarray:
    """Which statistics are larger than `drawn` `[draws, ...]` ones (Romano and Wolf, 2005)."""
    rising = np.argsort(observed, axis=None)
    # Those that are not told yet are always the smallest ones.
    ordered, drawn = observed.ravel()[rising], drawn.reshape(len(drawn), -1).take(rising, axis=1)
    largest, left, before = np.maximum.accumulate(drawn, axis=1), rising.size, -1
    while left not in (0, before):
        limit, before = np.quantile(largest[:, left - 1], 1 - level), left
        left = min(left, int(np.searchsorted(ordered, limit, side="right")))
    told = np.zeros(rising.size, bool)
    told[rising[left:]] = True
    return told.reshape(observed.shape)


def joint_p_values(observed: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The p-values of statistics `[k]`, and those of all at once (Westfall and Young, 1993)."""
    rising = np.argsort(observed)
    largest = np.maximum.accumulate(drawn.take(rising, axis=1), axis=1)  # Of none larger.
    counts = [np.sum(drawn >= observed, axis=0), np.sum(largest >= observed[rising], axis=0)]
    alone, adjusted = (1 + np.array(counts)) / (len(drawn) + 1)
    adjusted[rising] = np.maximum.accumulate(adjusted[::-1])[::-1]
    return alone, adjusted
