"""How alike outputs to one prompt are, from prompts that were asked once.

Independent outputs to prompts t, t' count as the same with the probability <m_t, m_t'>, and to one
prompt with s(t) = |m_t|^2. A mean of <m_t, m_t'> over pairs of prompts is a mean of s less half a
mean of |m_t - m_t'|^2 (`cv-order-2-identity` of docs/theory.md): it is at most the mean of s,
whatever the weights of the pairs. Near prompts make it a better bound.
"""

import math
from typing import NamedTuple, Self

import numpy as np

from condvendi_jax.statistics import intervals

# Chosen on one half of the sets of the study `asked_once`, and judged on the other.
NEIGHBOURS = 5  # Of each prompt.
NARROW = 0.25  # Of a neighbour's weight: relative to the nearest, in squared distances.
WIDEST = 3.0  # The ratio of the ends of an interval that is given.
ERRORS = 3.0  # Standard errors that are added to the similarity at distance 0.
# A choice, of the mean distance of all prompts: nearer ones show the number even if the curve is
# flat. No shipped set has prompts that are so near.
CLOSE = 0.25
_BALANCED, _ROUNDS = 0.01, 200  # Of the weights of prompts.
_DRAWS = 4000  # Of a simultaneous band.
_LEAST = 1e-12  # A similarity that may be rounding.
_LEVEL = 0.05  # The share of samples for which the limit fails.


class Near(NamedTuple):
    """Pairs of near prompts, with weights by which each prompt counts by its share."""

    one: np.ndarray  # The numbers of the two prompts of each pair, `[m]`.
    other: np.ndarray
    distances: np.ndarray  # Of the two, `[m]`.
    weights: np.ndarray  # Of the pairs, of sum one, `[m]`.
    shares: np.ndarray  # By which prompts count, halves of the weights of their pairs, `[n]`.

    def by_prompt(self, of_pairs: np.ndarray) -> np.ndarray:
        """The sum over the pairs of each prompt, `[n]`."""
        n = self.shares.size
        return np.bincount(self.one, of_pairs, n) + np.bincount(self.other, of_pairs, n)


def near_pairs(
    distances: np.ndarray, others: np.ndarray, shares: np.ndarray, narrow: float = NARROW
) -> Near:
    """The pairs of each prompt with its nearest ones, weighed so that prompts count by `shares`.

    A pair's weight falls with its distance, relative to how far the nearest of the two are, as a
    Gaussian kernel whose bandwidth suits each point (Zelnik-Manor and Perona, 2004). It is then
    scaled to `shares` `[n]`, of sum one (Sinkhorn, 1964). `others` `[n, k]` are the nearest prompts
    of each, by rising `distances` `[n, k]`, infinite where there is none.
    """
    n, count = distances.shape
    row, there = np.repeat(np.arange(n), count), np.isfinite(distances.reshape(-1))
    both = np.stack([row, others.reshape(-1)])[:, there]
    pairs, first = np.unique(np.sort(both, axis=0), axis=1, return_index=True)
    apart = distances.reshape(-1)[there][first]
    nearest = np.where(np.isfinite(distances[:, 0]), distances[:, 0], 0.0)
    usual = float(np.median(nearest))
    nearest = np.maximum(nearest, 1e-6 * usual if usual > 0 else 1.0)
    one, other = pairs
    ratio = apart**2 / (nearest[one] * nearest[other])
    near = Near(one, other, apart, np.exp(np.maximum((1 - ratio) / narrow, -200.0)), shares)
    for _ in range(_ROUNDS):
        sums = near.by_prompt(near.weights)
        factors = np.sqrt(np.where(sums > 0, shares, 0) / np.where(sums > 0, sums, 1))
        near = near._replace(weights=near.weights * factors[one] * factors[other])
        if np.all(np.abs(np.square(factors[sums > 0]) - 1) < _BALANCED):
            break
    total = near.weights.sum()
    weights = near.weights / (total if total > 0 else 1.0)
    return near._replace(weights=weights, shares=near.by_prompt(weights) / 2)


class Mean(NamedTuple):
    """A mean similarity of pairs of prompts, with what it loses without each prompt `[n]`."""

    value: float
    changes: np.ndarray

    @property
    def error(self) -> float:
        """The standard error over prompts."""
        n = self.changes.size
        return math.sqrt(float(np.sum(self.changes**2)) * n / max(n - 1, 1))

    def by(self, groups: np.ndarray | None) -> Self:
        """The same mean, with what it loses without each group of prompts."""
        if groups is None:
            return self
        _, kinds = np.unique(groups, return_inverse=True)
        return self._replace(changes=np.bincount(kinds, self.changes))


def near_mean(near: Near, similarities: np.ndarray) -> Mean:
    """The mean similarity `[m]` of outputs to near prompts."""
    value = float(near.weights @ similarities)
    return Mean(value, near.by_prompt(near.weights * (similarities - value)))


def at_zero(near: Near, similarities: np.ndarray) -> Mean:
    """The similarity read at distance 0, from a line through those of near prompts.

    A weighted regression on the distance; NaN where all distances are equal.
    """
    centre = float(near.weights @ near.distances)
    apart = near.distances - centre
    spread = float(near.weights @ apart**2)
    if spread <= (1e-6 * centre) ** 2:
        return Mean(math.nan, np.full(near.shares.size, math.nan))
    slope = float(near.weights @ (apart * similarities)) / spread
    value = float(near.weights @ similarities) - slope * centre
    left = similarities - value - slope * near.distances
    return Mean(value, near.by_prompt(near.weights * left * (1 - centre * apart / spread)))


class Known(NamedTuple):
    """What is known of the mean similarity of two outputs to one prompt."""

    at_least: float  # Its lower limit, at about 95%.
    low: float  # The ends of its interval where it can be told, else NaN.
    high: float


def known(
    everywhere: Mean,
    near: Mean,
    shifted: Mean | None,
    zero: Mean,
    shares: np.ndarray,
    reach: float = 1.0,
    groups: np.ndarray | None = None,
) -> Known:
    """A lower limit of the similarity to one prompt, and an interval where the sample shows it.

    The limit is the largest of those of several means, at a level that holds for all. The interval
    goes from there up to three standard errors above what a line reads at distance 0. It is given
    where its ends are within a factor of 3, and near prompts are close, or more alike than others
    beyond chance: a flat curve far from distance 0 shows nothing of it.

    The means are those of all pairs; of near ones; of these with outputs `shifted` along with their
    prompts, None where they cannot be; and `at_zero`. `shares` are of the prompts, `[n]`; `reach`
    is the mean distance of near ones relative to that of all; `groups` depend on each other, `[n]`.
    """
    everywhere, near, zero = (mean.by(groups) for mean in (everywhere, near, zero))
    shifted, shares = shifted and shifted.by(groups), Mean(1.0, shares).by(groups).changes
    means = [everywhere, near, *([] if shifted is None else [shifted])]
    lower = [lower_limit(mean, shares, _LEVEL / len(means)) for mean in means]
    at_least = max(lower)
    high = min(1.0, zero.value + ERRORS * zero.error)
    seen = reach <= CLOSE or lower[1] > everywhere.value
    if not (seen and high > at_least > _LEAST) or high > WIDEST * at_least:
        return Known(at_least, math.nan, math.nan)
    return Known(at_least, at_least, high)


def lower_limit(mean: Mean, shares: np.ndarray, level: float) -> float:
    """The lower end of the interval of a mean over prompts, one-sided, at a level."""
    if not np.isfinite(mean.value):
        return 0.0
    low, _ = ends_of(mean, shares)(2 * level)
    return max(float(low), 0.0)


def ends_of(mean: Mean, shares: np.ndarray) -> intervals.Ends:
    """The interval of a mean similarity of pairs of prompts."""
    return intervals.between_mean(mean.value, mean.error, mean.changes, shares)


class Bins(NamedTuple):
    """Mean similarities `[b]` of outputs by the distance of their prompts."""

    values: np.ndarray
    low: np.ndarray  # The ends of a band that holds all in about 95% of samples.
    high: np.ndarray
    changes: np.ndarray  # What each loses without each prompt, `[b, n]`.
    pairs: np.ndarray  # How many pairs of rows there are, by weight, `[b]`.


def in_bins(weights: np.ndarray, sums: np.ndarray, shares: np.ndarray, level: float) -> Bins:
    """Mean similarities by distance, with a simultaneous band.

    The band is as wide, in standard errors, as the largest of correlated normal numbers at the
    level: the errors of bins share prompts. These numbers are drawn with a fixed seed. `weights`
    and `sums` `[b, n]` are those of the others of each row in a bin and of their similarities,
    without its own of the `shares` `[n]`. `level` is how often the band misses the truth somewhere.
    """
    weights, sums = weights * shares, sums * shares
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = sums.sum(axis=1, keepdims=True) / total
        changes = 2 * (sums - values * weights) / total
    n = shares.size
    products = changes @ changes.T * n / max(n - 1, 1)
    errors = np.sqrt(np.diag(products))
    good = errors > 0
    width = 0.0
    if good.any():
        scaled = products[np.ix_(good, good)] / np.outer(errors[good], errors[good])
        normal = np.zeros(len(scaled)), scaled, _DRAWS, "ignore"
        drawn = np.random.default_rng(0).multivariate_normal(*normal, method="eigh")
        width = float(np.quantile(np.abs(drawn).max(axis=1), 1 - level))
    values = values[:, 0]
    low, high = (np.clip(values + side * width * errors, 0, 1) for side in (-1, 1))
    return Bins(values, low, high, changes, total[:, 0])
