"""The default bandwidth: no draw, no order of the rows and no number of them decides it.

It is the smallest at which RKE of m = `ROWS` independent rows has a variance below `THRESHOLD`, as
it has at all larger ones. RKE is 1 / (1/m + (1 - 1/m) U), U the mean of h = k^2 over pairs of rows.
By the delta method, and by Hoeffding (1948) for U, its variance is

    RKE^4 (1 - 1/m)^2 (4 (m - 2) (E h12 h13 - U^2) + 2 (E h12^2 - U^2)) / (m (m - 1))
"""

import functools
import itertools
import math
import zlib
from typing import Any

import numpy as np

from condvendi_jax.base.devices import to_host
from condvendi_jax.data import bandwidth
from condvendi_jax.data.bandwidth import ROWS, THRESHOLD, RuledBandwidth

#: How many rows are compared, at most: a few seconds on two CPU cores.
MOST_ROWS = 3000
_FEWEST_PROMPTS = 6  # A mean over sets of four different ones is mostly noise below.
_TILE = 256  # Rows, about, whose kernel values are in memory at a time.
_NEARLY, _NOTHING = 0.9999, 1e-9  # Of the largest variance; a variance of rounding alone.
_FARTHEST = 1e100  # In units: its square is a number.


def compared(
    weights: np.ndarray, copies: np.ndarray | None, *, most: int, content: Any, prompts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numbers of the rows to compare, labels of independent ones, and weights of sum one.

    They are the rows of a weight above 0, as often as their `copies`. If these are more than `most`
    they are so many, by the weights, in an order that the bytes of `content` `[n, d]` decide and,
    where these are equal, those of all rows of their `prompts` `[n]`.
    """
    size, order = len(weights) if copies is None else int(copies.sum()), np.arange(len(weights))
    if copies is None and size <= most:
        rows = np.flatnonzero(weights)
        return rows, rows, weights[rows] / weights.sum()
    if size > most:
        size, sums = most, np.array([zlib.crc32(row.tobytes()) for row in to_host(content)])
        order = np.lexsort((np.bincount(prompts, sums)[prompts], sums))
    reached = np.cumsum(weights[order])
    rows = order[np.searchsorted(reached, reached[-1] * (np.arange(size) + 0.5) / size)]
    return rows, rows if copies is None else np.arange(size), np.full(size, 1 / size)


def default_bandwidth(
    points: np.ndarray,
    prompts: np.ndarray,
    rows: np.ndarray | None,
    weights: np.ndarray,
    *,
    name: str,
    repeated: bool,
) -> RuledBandwidth:
    """The default bandwidth of points `[n, d]` of `weights` `[n]`; half of it where `repeated`.

    Points of one of the `prompts` `[n]` are not compared. Where these are fewer than six, outputs
    are, if the labels `rows` `[n]` differ. Below 20 points or six prompts it is the median
    distance, and arbitrary where all points are equal.
    """
    n = len(points)
    if (equal := bandwidth.arbitrary(points)) is not None:
        return equal
    if rows is not None and _effective_number(prompts, weights) < _FEWEST_PROMPTS:
        prompts = rows
    if _effective_number(prompts, weights) < _FEWEST_PROMPTS:  # One row or prompt is nearly all.
        weights = np.full(n, 1 / n)
    first = np.unique(prompts, return_index=True)[1]
    if n < bandwidth.FEWEST_ROWS or len(first) < _FEWEST_PROMPTS:
        order = np.arange(n) if n < bandwidth.FEWEST_ROWS else first
        return RuledBandwidth(bandwidth.median_distance(points, order, name), "median distance")
    width = _smallest(points, prompts, weights)
    if repeated:
        return RuledBandwidth(width / 2, f"half of {bandwidth.DEFAULT}, because prompts repeat")
    return RuledBandwidth(width, bandwidth.DEFAULT)


def _effective_number(kinds: np.ndarray, weights: np.ndarray) -> float:
    """1 / sum W^2, W the weights of the kinds; of equal ones their number."""
    totals = np.bincount(np.unique(kinds, return_inverse=True)[1], weights)
    return float(np.round(1 / np.square(totals).sum(), 6))


def _smallest(points: np.ndarray, prompts: np.ndarray, weights: np.ndarray) -> float:
    """The bandwidth at which the variance reaches the threshold, or else its largest value.

    It is the first one, coming from above: below the largest value, RKE only counts rows.
    """
    from scipy.optimize import brentq  # Imported where it is used: it is slow to import.

    order = np.argsort(prompts, kind="stable")
    starts = np.flatnonzero(np.diff(prompts[order], prepend=-1))
    squares, typical = _squared_distances(points[order], starts)

    @functools.cache
    def variance(octave: float) -> float:
        return _variance(squares, weights[order], starts, 2.0**octave)

    octaves = [2.0]  # From four typical distances, or more, to a sixteenth.
    while variance(octaves[0]) > THRESHOLD:
        octaves = [octaves[0] + 1]
    while variance(octaves[-1]) <= THRESHOLD and octaves[-1] > -4:
        octaves.append(octaves[-1] - 0.5)
    level = min(THRESHOLD, _NEARLY * max(map(variance, octaves)))
    if level <= _NOTHING:
        return typical * 2.0 ** octaves[-1]
    place = next(k for k, octave in enumerate(octaves) if variance(octave) >= level)
    octave: Any = octaves[place]
    if place > 0:
        octave = brentq(lambda o: variance(o) - level, octave, octaves[place - 1], xtol=1e-10)
    return typical * 2.0**octave


def _squared_distances(points: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, float]:
    """Squared distances `[n, n]` in squares of a typical one, infinite within a prompt; and it."""
    centred = points.astype(np.float64) - np.median(points, axis=0)  # No far row moves it.
    sizes = np.abs(centred).max(axis=1)
    scaled = np.clip(centred / (unit := np.median(sizes[sizes > 0])), -_FARTHEST, _FARTHEST)
    norms = np.square(scaled).sum(axis=1)
    squares = norms[:, None] + norms - 2 * scaled @ scaled.T
    for first, last in itertools.pairwise([*starts, len(points)]):
        squares[first:last, first:last] = np.inf
    typical = 2 * np.median(norms[norms > 0])
    return np.maximum(squares / typical, 0), float(unit * math.sqrt(typical))


def _variance(squares: np.ndarray, weights: np.ndarray, starts: np.ndarray, width: float) -> float:
    """The variance of RKE, from unbiased means over sets of two, three and four prompts.

    Rows are sorted by prompt; `starts` are the first rows of each.
    """
    total = of_prompts = of_pairs = triples = h_square = 0.0
    ends, tiles = np.append(starts[1:], len(weights)), -(-len(weights) // _TILE)
    for some in np.array_split(np.arange(len(starts)), min(tiles, len(starts))):
        rows = slice(starts[some[0]], ends[some[-1]])
        h, of_rows = np.exp(-squares[rows] / width**2), weights[rows]
        h_square += of_rows @ (np.square(h) @ weights)
        h *= weights
        pairs = h * of_rows[:, None]
        if len(starts) < len(weights):
            h = np.add.reduceat(h, starts, axis=1)
            pairs = np.add.reduceat(h * of_rows[:, None], starts[some] - rows.start, axis=0)
        triples += of_rows @ (h.sum(axis=1) ** 2 - np.square(h).sum(axis=1))
        total += pairs.sum()
        of_prompts += np.square(pairs.sum(axis=1)).sum()
        of_pairs += np.square(pairs).sum()
    # Of the weights of all sets: h is 0 within a prompt, and a set has no prompt twice.
    p2, p3, p4 = (np.sum(np.add.reduceat(weights, starts) ** power) for power in (2, 3, 4))
    u, h_square, triple = total / (1 - p2), h_square / (1 - p2), triples / (1 - 3 * p2 + 2 * p3)
    fours = total**2 - 4 * of_prompts + 2 * of_pairs
    square = fours / (1 - 6 * p2 + 8 * p3 + 3 * p2**2 - 6 * p4)
    rke = 1 / (1 / ROWS + (1 - 1 / ROWS) * u)
    components = 4 * (ROWS - 2) * max(triple - square, 0) + 2 * (h_square - square)
    return rke**4 * (1 - 1 / ROWS) ** 2 * components / (ROWS * (ROWS - 1))
