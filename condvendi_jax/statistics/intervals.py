"""Intervals of numbers, from errors and from what skews them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_OF_A_PROMPT = 0.2  # Of a typical prompt, which `prompt_mean` adds; by simulation.


# Poisson means of which two and none are seen in 2.5% of samples: `row_mean`.
_NO_PAIR, _NO_OTHER = 5.6, 3.7


_LEAST = 1e-300  # So that nothing is divided by 0.


def prompt_mean(
    value: float, error: float, changes: np.ndarray, shares: np.ndarray
) -> tuple[float, float]:
    """The 95% interval of a similarity in [0, 1], a mean over prompts of these shares.

    `changes` are what it loses without each prompt. The variance is linear in the mean, by the
    skewness of the prompts: Wilson's interval where all are 0 or 1. At the end that is far from
    them, a fifth of a prompt is added (docs/errors.md has the coverage).
    """
    flipped = value > 0.5
    near, sign = (1 - value, -1.0) if flipped else (value, 1.0)
    t = student(max(1 / np.sum(shares**2) - 1, 1))
    second, third = np.sum(changes**2), sign * np.sum(changes**3)
    scale = second**1.5  # Which may underflow.
    skewness = 2 * third / scale if scale > 0 else 0.0
    low = near + error * (skewness - math.hypot(t, skewness))
    typical, far = np.sum(shares**3) / np.sum(shares**2), 1 - near
    added = _OF_A_PROMPT * typical
    variance = added * typical * far**2
    skewness = 1.25 * (third + variance * typical * far) / (second + variance) ** 1.5
    spread = math.sqrt(error**2 + variance) * (skewness + math.hypot(t, skewness))
    high = (near + added + spread) / (1 + added)
    low, high = (1 - high, 1 - low) if flipped else (low, high)
    return max(float(low), 0.0), min(float(high), 1.0)


def row_mean(value: float, error: float, freedom: float, rows: float) -> tuple[float, float]:
    """The 95% interval of a mean over all pairs of rows: Student's, of the logit; or one-sided."""
    if value < 1e-12:  # By rounding, as below.
        return 0.0, min((_NO_PAIR / rows) ** 2, 1.0)
    if value > 1 - 1e-6 or error < 1e-7 * value:
        return max(value - _NO_OTHER / rows, 0.0), min(value + _NO_OTHER / rows, 1.0)
    logit = math.log(value / (1 - value))
    width = student(freedom) * error / (value * (1 - value))
    low, high = (1 / (1 + math.exp(min(-logit + side * width, 700.0))) for side in (1, -1))
    return low, high


def ratio(value: float, error: float, freedom: float) -> tuple[float, float]:
    """The 95% interval of a ratio of similarities: Student's, on the scale of the logarithm."""
    if not 0 < value < math.inf:
        return 0.0, math.inf
    times = math.exp(min(student(freedom) * error / value, 700.0))
    return value / times, value * times


def joined(value: float, of: Any, slope: float, mean: float, ends: Any, in_logs: bool) -> Any:
    """Joins the interval `of` a value with that of the mean, of `slope` (Zou and Donner, 2008)."""
    if not in_logs:
        far = np.hypot(np.subtract(of, value), np.sort(slope * (np.asarray(ends) - mean)))
        return float(value - far[0]), float(value + far[1])
    if not 0 < value < math.inf:
        return of
    slope, logs = slope * mean / value, [np.log(np.maximum(x, _LEAST)) for x in (of, ends)]
    ends = joined(math.log(value), logs[0], slope, math.log(mean), logs[1], in_logs=False)
    return tuple(math.exp(min(end, 700.0)) for end in ends)


def student(freedom: float) -> float:
    """Half the width of a 95% interval of Student's t, in standard errors."""
    from scipy.special import stdtrit  # Imported where it is used: it is slow to import.

    return float(stdtrit(freedom, 0.975))


def bernstein(means: np.ndarray, blocks: int, delta: float) -> tuple[float, float]:
    """The ends of c in [0, 1] with a mean of k_T^2 (k_X^2 - c) within Bernstein's bound."""
    from scipy.optimize import brentq  # Imported where it is used: it is slow to import.

    (t, j, tt, tj, jj), x = means, math.log(3 / delta) / blocks

    def margin(c: float) -> float:
        bx, square = max(c, 1 - c) * x, max(jj - 2 * c * tj + c**2 * tt, 0)
        return 4 / 3 * bx + math.sqrt(bx**2 + 2 * x * square) - abs(j - c * t)

    # The bound is convex in c, so that there is at most one root on either side of the estimate.
    root: Any = brentq
    least = root(margin, 0.0, j / t) if margin(0.0) < 0 else 0.0
    return least, root(margin, j / t, 1.0) if margin(1.0) < 0 else 1.0
