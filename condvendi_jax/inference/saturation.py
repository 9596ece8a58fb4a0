"""Saturated scores: those that differ by nothing but rounding.

A score is saturated if it is 1, or as large as it can be (the number of rows), up to rounding. The
scores of several models are saturated if all of them are at the same limit, or if all of them are
equal. At these bandwidths they tell nothing apart: ranks, correlations and tests would order
rounding errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.scores._decompose import Decomposition

Limit = Literal["smallest", "largest", "equal"]
# What rounding moves a score by when its rows are permuted, in eps of the dtype relative to the
# score. Measured under narrow, usual and wide bandwidths, in float32 at n = 10 to 2,000 and in
# float64 at 10 and 200: where scores are 1 or n, at most 4 at order 2, which sums kernel values,
# and 205 from eigenvalues. Elsewhere distances round too: the scores of tight clusters far from
# the origin moved by 2,500.
_EPS_OF_SUMS = 8
_EPS_OF_EIGENVALUES = 256


def rounding(entropy: Entropy, dtype: Any) -> float:
    """How far rounding may move a score, relative to it.

    Args:
      entropy: the order and truncation of the score. Below order 1 small eigenvalues count more,
        and so does their rounding.
      dtype: the dtype in which the score was computed.

    Examples:
      >>> import condvendi_jax as cv
      >>> print(f"{cv.inference.saturation.rounding(cv.renyi(2), 'float32'):.1e}")
      9.5e-07
    """
    units = _EPS_OF_EIGENVALUES if entropy.needs_spectrum else _EPS_OF_SUMS
    return float(units * np.finfo(dtype).eps) ** min(1.0, entropy.order)


def limit_of(
    values: Sequence[float] | np.ndarray,
    n: Sequence[float] | np.ndarray | float,
    entropy: Entropy,
    dtype: Any,
) -> Limit | None:
    """Returns where scores are saturated, or None where they are not.

    Args:
      values: one score of one model or several, `[m]`, in effective numbers of modes.
      n: the number of rows of each model, or of all of them; of rows of unequal weights, the
        score of as many that share nothing.
      entropy, dtype: as `rounding`.

    Returns:
      "smallest" if all values are 1 up to rounding; "largest" if all are the number of rows of
      their model, or of kept eigenvalues; "equal" if there are several and all are equal; None
      otherwise, if one is NaN, or if there is one row.

    Examples:
      >>> import condvendi_jax as cv
      >>> cv.inference.saturation.limit_of([1.0, 1.0000001], 100, cv.renyi(2), "float32")
      'smallest'
      >>> cv.inference.saturation.limit_of([3.0, 3.1], 100, cv.renyi(2), "float32")
    """
    values = np.asarray(values, np.float64)
    allowed = rounding(entropy, dtype)
    largest = np.minimum(n, entropy.truncation or np.inf)
    if np.all(largest <= 1):
        return None
    if np.all(np.abs(values - 1) <= allowed):
        return "smallest"
    if np.all(np.abs(values / largest - 1) <= allowed):
        return "largest"
    if values.size > 1 and np.ptp(values) <= allowed * np.abs(values).max():
        return "equal"
    return None


def limits_of(decomposition: Decomposition, *, paired: bool, largest: float) -> dict[str, Limit]:
    """By name, the limits that scores of one model have reached; of Vendi alone unless paired.

    `largest` is the largest score that the weights of the rows allow: n where they are equal.
    """
    entropy = Entropy(decomposition.order, decomposition.truncation)
    limits: dict[str, Limit] = {}
    for name in PerScore._fields if paired else ("vendi",):
        value = float(getattr(decomposition.scores, name))
        limit = limit_of([value], largest, entropy, decomposition.dtype)
        if limit is not None:
            limits[name] = limit
    return limits
