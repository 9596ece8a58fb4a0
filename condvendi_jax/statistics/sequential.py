"""Evidence that grows look by look, and the bounds that it starts from."""

import math
from typing import Any

import numpy as np
import scipy  # Its modules are imported when they are used.

# Shares of the largest stake; at 1 a look without any similarity would lose everything.
_STAKES = np.array([0.9, 0.45, 0.225, 0.1125])
_ENDS = np.arange(1, 1000) / 1000  # Upper ends of a chance are rounded up to one of them.
_TINY = 1e-300  # So that nothing is divided by 0.


def bounds(mean: Any, error: Any, pairs: float, quantile: float) -> tuple[Any, Any]:
    """Both bounds `[...]` of the mean similarity of fixed prompts, of its estimate and error.

    As in Wilson's interval, the variance is taken as linear in the mean, because a low estimate has
    a low error, too; with a slope of at least one of the `pairs` of answers.
    """
    slope = np.maximum(np.square(error) / np.maximum(mean, _TINY), 1 / pairs)
    middle = mean + quantile**2 * slope / 2
    width = quantile * np.sqrt(np.square(error) + np.square(quantile * slope) / 4)
    return np.maximum(middle - width, 0), np.minimum(middle + width, 1)


def upper_end(mean: Any, pairs: int, level: float) -> Any:
    """The largest s with `pairs` kl(mean, s) <= log(1 / level), `[...]`.

    The true mean similarity of P prompts exceeds it with probability at most `level`, if answers
    are independent and `pairs` is P floor(k / 2), k the smallest number of them (`cv-alarms`).
    """
    low, high = np.asarray(mean, np.float64), np.ones(np.shape(mean))
    for _ in range(60):
        middle = (low + high) / 2
        accepted = pairs * kl(mean, middle) <= -math.log(level)
        low, high = np.where(accepted, middle, low), np.where(accepted, high, middle)
    return high


def kl(p: Any, q: Any) -> Any:
    """The divergence of two Bernoulli variables of these means, in nats."""
    return scipy.special.rel_entr(p, q) + scipy.special.rel_entr(1 - p, 1 - q)


class EProcess:
    """Evidence against: at every look so far, the true mean similarity is at most the bound.

    If it is, and answers are independent, the evidence ever reaches 1 / alpha with a probability of
    at most alpha: it mixes products of bets over stakes and starts (Ville 1939; Waudby-Smith and
    Ramdas 2024; Shin, Ramdas and Rinaldo 2023). The claim is `cv-alarms`.

    Args:
      baseline: similarities `[..., P]`. What is expected of each prompt is made of them: shrunk to
        their mean by the share of noise in their variance, and scaled to the bound.
      error: of their mean, over other answers, `[...]`.
      bound: above 0 and at most 1, `[...]`.
    """

    def __init__(self, baseline: Any, error: Any, bound: Any):
        mean, bound = np.mean(baseline, axis=-1, keepdims=True), np.asarray(bound)[..., None]
        relative = np.where(mean > 0, baseline / np.maximum(mean, _TINY), 1) - 1
        noise = baseline.shape[-1] * np.square(error)[..., None]
        kept = 1 - noise / np.maximum(np.var(baseline, axis=-1, keepdims=True, ddof=1), _TINY)
        most = np.maximum(relative.max(axis=-1, keepdims=True), _TINY)
        kept = np.clip(kept, 0, np.minimum((1 / bound - 1) / most, 1))  # No a_p is above 1.
        self.expected = bound * (1 + kept * relative)
        self.stakes = _STAKES / self.expected.max(axis=-1, keepdims=True)
        self.looks, self.logs = 0, np.full(self.stakes.shape, -math.inf)

    def update(self, similarities: Any) -> Any:
        """The logarithm of the evidence after one more look, of similarities `[..., P]`."""
        gains = self.stakes[..., None, :] * (similarities - self.expected)[..., None]
        self.looks += 1
        start = -math.log(self.looks * (self.looks + 1))
        self.logs = np.logaddexp(self.logs, start) + np.sum(np.log1p(gains), axis=-2)
        mixed = np.logaddexp.reduce(self.logs, axis=-1) - math.log(_STAKES.size)
        return np.logaddexp(mixed, -math.log(self.looks + 1))  # With the starts still to come.


def after_each(similar: np.ndarray, good: np.ndarray, level: float) -> tuple[np.ndarray, ...]:
    """The estimate of M_k and its upper end after each of 1, 2, ..., k independent answers, `[k]`.

    M_k is the mean over x of g(x) prod_j (1 - g_j s(x, x_j)); `similar` `[k, k]` has s, the squared
    kernel, `good` `[k]` g in {0, 1}. The estimate is the mean over answers beside others (Good,
    1953). An end m is excluded where products of 1 - c (Y_t - m) / (1 - m), mixed over stakes c and
    starts, reach 1 / level (Ville, 1939): Y_t, whether answer t was new, has the mean M_(t-1), at
    least M_k. All ends hold at once with probability 1 - level (`cv-new-answers`).
    """
    different = 1 - good * np.clip(similar, 0, 1)
    np.fill_diagonal(different, 1)
    new = good[:, None] * np.cumprod(different, axis=1)  # Answer i beside the first t others.
    estimates, ends = np.triu(new).sum(axis=0) / np.arange(1, len(good) + 1), np.ones(len(good))
    estimates[0], evidence, stakes = np.nan, 0.0, np.array([1, 0.5])[:, None]
    for t, chance in enumerate(np.diagonal(new)[1:], start=1):
        factors = 1 - stakes * (chance - _ENDS) / (1 - _ENDS)
        # What is once excluded stays so: larger numbers, which may overflow, say no more.
        evidence = np.minimum((evidence + 1 / (t * (t + 1))) * factors, 1e99)
        excluded = np.mean(evidence, axis=0) + 1 / (t + 1) >= 1 / level
        ends[t] = _ENDS[excluded.argmax()] if excluded.any() else 1
    return estimates, np.minimum.accumulate(ends)
