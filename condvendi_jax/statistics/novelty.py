"""The chance that a further answer to a prompt is new, and an upper end that holds at any look."""

import numpy as np

_STAKES = np.array([1, 0.5])[:, None]
_ENDS = np.arange(1, 1000) / 1000  # Upper ends are rounded up to one of them.


def after_each(similar: np.ndarray, good: np.ndarray, level: float) -> tuple[np.ndarray, ...]:
    """The estimate of M_k and its upper end after each of 1, 2, ..., k independent answers, `[k]`.

    M_k is the mean over x of g(x) prod_j (1 - g_j s(x, x_j)), `similar` `[k, k]` has the squares s
    of the kernel, `good` `[k]` the g in {0, 1}. The estimate is the mean over answers beside all
    others (Good, 1953). An end m is excluded where products of 1 - c (Y_t - m) / (1 - m), mixed
    over stakes c and starts, reach 1 / level (Ville, 1939): the chance Y_t that answer t was new
    has the mean M_(t-1), at least M_k. All ends hold at once with probability 1 - level.
    """
    different = 1 - good * np.clip(similar, 0, 1)
    np.fill_diagonal(different, 1)
    new = good[:, None] * np.cumprod(different, axis=1)  # Answer i beside the first t others.
    estimates, ends = np.triu(new).sum(axis=0) / np.arange(1, len(good) + 1), np.ones(len(good))
    estimates[0], evidence = np.nan, 0.0
    for t, chance in enumerate(np.diagonal(new)[1:], start=1):
        factors = 1 - _STAKES * (chance - _ENDS) / (1 - _ENDS)
        # What is once excluded stays so: larger numbers, which may overflow, say no more.
        evidence = np.minimum((evidence + 1 / (t * (t + 1))) * factors, 1e99)
        excluded = np.mean(evidence, axis=0) + 1 / (t + 1) >= 1 / level
        ends[t] = _ENDS[excluded.argmax()] if excluded.any() else 1
    return estimates, np.minimum.accumulate(ends)
