"""Choosing the bandwidth of a Gaussian kernel: the papers' rule, and the median heuristic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax import scores, validation
from condvendi_jax.kernels import Gaussian

Criterion = Literal["std", "variance"]
_SOURCES = {"std": "RKE section 6", "variance": "CV appendix E.1"}
_MEDIAN_SAMPLE = 2000
DEFAULT_SUBSETS = 10
# How a bandwidth can be chosen from data: the papers' two criteria, and the usual heuristic.
RULES = ("variance", "std", "median")


@dataclasses.dataclass(frozen=True)
class BandwidthSelection:
    """A bandwidth, and everything that says how it was chosen.

    Attributes:
      bandwidth: the choice, in the units of the embeddings.
      criterion: 'std' (RKE) or 'variance' (CV): what had to stay below the threshold.
      threshold: in units of the score, or of its square for 'variance'.
      candidates: the bandwidths tried, ascending.
      means: the mean score over the subsets at each candidate.
      spreads: the criterion at each candidate.
      subsets: how many disjoint subsets.
      subset_size: how many rows each had.
    """

    bandwidth: float
    criterion: str
    threshold: float
    candidates: np.ndarray
    means: np.ndarray
    spreads: np.ndarray
    subsets: int
    subset_size: int

    def describe(self) -> str:
        """The rule in one line, for captions and reports."""
        return (
            f"smallest bandwidth with {self.criterion} < {self.threshold:g} over {self.subsets} "
            f"disjoint subsets of {self.subset_size} ({_SOURCES[self.criterion]})"
        )


def select_bandwidth(
    points: Any,
    *,
    key: jax.Array,
    criterion: Criterion = "variance",
    threshold: float = 0.01,
    subsets: int = DEFAULT_SUBSETS,
    subset_size: int | None = None,
    candidates: Sequence[float] | np.ndarray | None = None,
    score: Callable[..., jax.Array] = scores.rke,
    progress: Callable[[], Any] = lambda: None,
) -> BandwidthSelection:
    """The smallest bandwidth whose score varies less than a threshold over disjoint subsets.

    The two papers state the rule with different spreads: the standard deviation of the score is
    below 0.01 (RKE section 6), its variance is below 0.01 (CV appendix E.1), which allows ten
    times the standard deviation.

    Read literally the rule has a second solution: as the bandwidth goes to zero the Gram becomes
    the identity, every score equals the subset's size, and the spread vanishes. So the smallest
    bandwidth is taken *of the upper branch*: every larger candidate must satisfy the rule too.

    Args:
      points: embeddings `[n, d]`.
      key: draws the subsets.
      criterion: 'std' or 'variance'.
      threshold: what the spread must stay below.
      subsets: how many disjoint subsets, at least 2.
      subset_size: rows of each; as many as there are, up to 1,000, where None.
      candidates: the bandwidths tried, ascending; where None, 49 of ratio 2^(1/6) from 1/16 to 16
        times the median distance.
      score: `score(points, kernel=...)`, `rke` or `vendi` for instance.
      progress: called after each subset.

    Raises:
      TypeError, ValueError: the points or an argument are not valid, or no candidate satisfies
        the rule.
    """
    points = validation.check_embeddings(points, name="points")
    n = points.shape[0]
    if criterion not in _SOURCES:
        raise ValueError(f"criterion: expected one of {sorted(_SOURCES)}, received {criterion!r}.")
    if not threshold > 0:
        raise ValueError(f"threshold: expected a number above 0, received {threshold!r}.")
    subsets = validation.check_count(subsets, name="subsets", minimum=2)
    size = min(n // subsets, 1000) if subset_size is None else subset_size
    if not 2 <= size <= n // subsets:
        raise ValueError(
            f"subset_size: {subsets} disjoint subsets of n = {n} rows have between 2 and "
            f"{n // subsets} rows each, received {size!r}."
        )
    order_key, median_key = jax.random.split(key)
    if candidates is None:
        median = median_heuristic(points, key=median_key)
        candidates = median * 2.0 ** (np.arange(-24, 25) / 6)
    grid = np.asarray(candidates, np.float64)
    ascending = grid.ndim == 1 and grid.size > 0 and (np.diff(grid) > 0).all()
    if not ascending or not (grid > 0).all() or not np.isfinite(grid).all():
        raise ValueError("candidates: expected ascending finite numbers above 0.")

    rows = jax.random.permutation(order_key, n)[: subsets * size]

    @jax.jit
    def sweep(subset: jax.Array, grid: jax.Array) -> jax.Array:
        return jax.lax.map(lambda bandwidth: score(subset, kernel=Gaussian(bandwidth)), grid)

    values = []
    for subset in rows.reshape(subsets, size):
        values.append(np.asarray(sweep(points[subset], jnp.asarray(grid, points.dtype))))
        progress()
    table = np.asarray(values, np.float64)
    spreads = (np.std if criterion == "std" else np.var)(table, axis=0, ddof=1)
    return BandwidthSelection(
        bandwidth=float(grid[_start_of_upper_branch(spreads < threshold, spreads, threshold)]),
        criterion=criterion,
        threshold=threshold,
        candidates=grid,
        means=table.mean(axis=0),
        spreads=spreads,
        subsets=subsets,
        subset_size=size,
    )


class RuledBandwidth(NamedTuple):
    """A bandwidth in the units of the embeddings, and the rule it follows in words."""

    bandwidth: float
    rule: str


def bandwidth_by_rule(
    points: Any,
    rule: str,
    *,
    key: jax.Array,
    progress: Callable[[], Any] = lambda: None,
) -> RuledBandwidth:
    """A bandwidth by one of `RULES`, with the words that say how it came about.

    Args:
      points: embeddings `[n, d]`.
      rule: 'variance' (CV) or 'std' (RKE), as the criterion of `select_bandwidth`, or 'median'
        for `median_heuristic`.
      key: draws the subsets, or the rows.
      progress: called after each subset.

    Raises:
      TypeError, ValueError: there is no such rule, the points are not valid, there are too few of
        them for the rule's subsets, or no bandwidth satisfies it.
    """
    if rule not in RULES:
        raise ValueError(f"rule: expected one of {', '.join(RULES)}, received {rule!r}.")
    if rule == "median":
        return RuledBandwidth(median_heuristic(points, key=key), "median distance")
    n = np.shape(points)[0]
    if n < 2 * DEFAULT_SUBSETS:
        raise ValueError(
            f"the rule {rule!r} needs {2 * DEFAULT_SUBSETS} rows, received {n}; give the "
            "bandwidth, or take the rule 'median'."
        )
    criterion: Criterion = "std" if rule == "std" else "variance"
    chosen = select_bandwidth(points, key=key, criterion=criterion, progress=progress)
    return RuledBandwidth(chosen.bandwidth, chosen.describe())


def _start_of_upper_branch(allowed: np.ndarray, spreads: np.ndarray, threshold: float) -> int:
    if not allowed[-1]:
        raise ValueError(
            f"candidates: at the largest bandwidth the spread is {spreads[-1]:.3g}, not below "
            f"{threshold:g}: give larger candidates or a larger threshold."
        )
    refused = np.flatnonzero(~allowed)
    return int(refused[-1]) + 1 if refused.size else 0


def median_heuristic(points: Any, *, key: jax.Array) -> float:
    """The median distance between two different points, of at most 2,000 random rows.

    Args:
      points: embeddings `[n, d]`.
      key: draws the rows where there are more.

    Returns:
      The median over the pairs at a positive distance, in the units of the embeddings.

    Raises:
      ValueError: all rows are identical, which no bandwidth resolves.
    """
    points = validation.check_embeddings(points, name="points")
    rows = jax.random.permutation(key, points.shape[0])[:_MEDIAN_SAMPLE]
    sample = Gaussian(1.0).prepare(points[rows])
    half_squares = np.asarray(Gaussian(1.0).geometry(sample, sample), np.float64)
    half_squares = half_squares[np.triu_indices(rows.size, 1)]
    distinct = half_squares[half_squares > 0]
    if distinct.size == 0:
        raise ValueError("points: all rows are identical, so there is no distance to choose from.")
    return float(np.sqrt(2 * np.median(distinct)))
