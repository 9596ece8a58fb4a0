"""Candidates for a rule: bandwidths from the distances of rows, and from labelled pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import numpy as np

import condvendi_jax as cv

PAIRS, SHARE = "pairs", "pairs with their share"
_PARTS = (1.0, 0.7, 0.5, 0.35, 0.25)
_PARTITIONS = 16  # The noise that they leave in a bandwidth is 1 to 2%.
_LADDER = 2.0 ** (np.arange(-24, 25) / 6)  # Of the median distance, as in the papers' rules.
_FINE = 2.0 ** (np.arange(-240, 241) / 60)


def squared_distances(points: np.ndarray) -> np.ndarray:
    """Of all rows `[n, n]`, in float64; 0 where rows are equal."""
    rows = points.astype(np.float64) - points[:1]
    norms = np.sum(rows**2, axis=1)
    squares = norms[:, None] + norms - 2 * rows @ rows.T
    # Rounding leaves equal rows a distance of about 1e-15.
    return np.where(squares < 1e-12 * norms.max(), 0, squares)


def by_distances(points: np.ndarray, key: jax.Array) -> dict[str, float]:
    """The bandwidth of rows `[n, d]` by every rule that needs no labels, NaN where it has none.

    `A x p` is a multiple of a rule of the library, or of the median distance of a row to the
    nearest other one. `plateau`: where log RKE changes least with the log of the bandwidth, between
    a tenth and nine tenths of its largest value. `least / 3`, `1% / 3`: a third of the smallest
    distance, or of their first percentile. `90% apart`, `50% apart`: the largest at which RKE is
    that share of its value where all different rows are apart.
    """
    squares = squared_distances(points)
    apart = np.sqrt(squares[np.triu_indices(len(squares), 1)])
    apart = apart[apart > 0]
    median = float(np.median(apart))
    nearest = np.sqrt(np.min(np.where(squares > 0, squares, np.inf), axis=1))
    options = {"key": key, "partitions": _PARTITIONS}
    ruled = {r: cv.bandwidth_by_rule(points, r, **options).bandwidth for r in ("variance", "std")}
    widths = {"nearest": float(np.median(nearest)), "median": median, **ruled}
    found = {f"{r} x {p:g}": p * (w or math.nan) for p in _PARTS for r, w in widths.items()}
    found |= {"least / 3": apart.min() / 3, "1% / 3": np.quantile(apart, 0.01) / 3}
    ladder, few = median * _LADDER, squares.astype(np.float32)
    logs = -np.log([np.mean(np.exp(few / np.float32(-(w**2))), dtype=np.float64) for w in ladder])
    largest = -np.log(np.mean(squares == 0))
    slopes = np.abs(np.gradient(logs, np.log(ladder)))
    inner = (logs > 0.1 * largest) & (logs < 0.9 * largest)
    found["plateau"] = ladder[np.argmin(np.where(inner, slopes, np.inf))]
    for share in (0.9, 0.5):
        # Logarithms are about linear in that of the bandwidth; RKE falls with it.
        wanted = largest + math.log(share)
        found[f"{share:.0%} apart"] = math.exp(np.interp(-wanted, -logs, np.log(ladder)))
    return {rule: float(width) for rule, width in found.items()}


def by_labels(
    outputs: np.ndarray, classes: np.ndarray | None, rng: np.random.Generator
) -> dict[str, float]:
    """The bandwidths of outputs `[n, d]` from pairs of them with labels; NaN without classes.

    `PAIRS` is the likeliest; under `SHARE` the mean squared kernel over random pairs is the share
    of them that are the same.
    """
    if classes is None:
        return dict.fromkeys((PAIRS, SHARE), math.nan)
    one, two = rng.integers(0, len(outputs), (2, 20_000))
    one, two = one[one != two], two[one != two]
    same = classes[one] == classes[two]
    squares = np.sum((outputs[one].astype(np.float64) - outputs[two]) ** 2, axis=1)
    ladder = math.sqrt(np.median(squares)) * _FINE
    means = [np.mean(np.exp(-squares / width**2)) for width in ladder]
    share = float(np.interp(same.mean(), means, ladder))
    return {PAIRS: cv.bandwidth_from_pairs(outputs[one], outputs[two], same), SHARE: share}


def counts(
    squares: tuple[np.ndarray, np.ndarray | None],
    slot: np.ndarray,
    levels: Sequence[Sequence[int]],
    of_x: np.ndarray,
    of_t: np.ndarray,
) -> np.ndarray:
    """RKE or Conditional-RKE at every pair of bandwidths, `[outputs, prompts, levels]`.

    Args:
      squares: squared distances of outputs and prompts, `[n, n]`; without prompts the score is RKE.
      slot: of each row, `[n]`; a level is the rows of some slots.
      levels: the slots of each.
      of_x: bandwidths of the outputs; NaN gives NaN.
      of_t: bandwidths of the prompts.
    """
    rows = [np.flatnonzero(slot == one) for one in range(slot.max() + 1)]
    shape = (len(rows), len(rows), len(of_x), len(of_t))
    joint, marginal = np.zeros(shape), np.zeros((*shape[:2], shape[3]))
    for a, b in itertools.combinations_with_replacement(range(len(rows)), 2):
        block = np.ix_(rows[a], rows[b])
        size = len(rows[a]) * len(rows[b])
        k_x, k_t = (
            np.ones((len(width), size), np.float32)
            if of is None
            else np.exp(np.outer(-1 / width**2, of[block]).astype(np.float32))
            for of, width in zip(squares, (of_x, of_t), strict=True)
        )
        joint[a, b] = joint[b, a] = k_x @ k_t.T
        marginal[a, b] = marginal[b, a] = k_t.sum(axis=1, dtype=np.float64)
    inside = [np.ix_(list(level), list(level)) for level in levels]
    sums = [[of[one].sum(axis=(0, 1)) for of in (marginal, joint)] for one in inside]
    return np.stack([above / below for above, below in sums], axis=-1)
