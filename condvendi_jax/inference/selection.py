"""A greedy choice of k diverse and good rows, by the scores of order 2."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Pairs, takes_pairs
from condvendi_jax.grams import fold
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.spectra import pair_sums


class Selection(NamedTuple):
    """The rows that `select` chose.

    Attributes:
      rows: their numbers, a NumPy array `[k]`, in the order in which they were chosen.
      scores: the score of the first 1, 2, ..., k of them, `[k]`, in effective numbers of modes.
      gap: the objective of `select` is at most this far above that of the best k rows (`cv-greedy`
        of docs/theory.md); NaN with prompts, where the score is a ratio and not convex.
    """

    rows: np.ndarray
    scores: np.ndarray
    gap: float


@checks.outside_transformations
@takes_pairs
def select(
    pairs: Pairs, *, k: int, per_prompt: int | None = None, quality: Any = None, trade: Any = None
) -> Selection:
    """The k rows with the largest Conditional-RKE, or RKE without prompts, chosen greedily.

    Every step adds the row after which `1 / score - trade * mean quality` of the chosen rows is
    least; of equal ones, the row of the lowest number. 1 / score is the mean similarity of two
    chosen rows, with themselves too. The first is the row of best quality or, without quality, of
    largest influence (`contributions`), O(n^2 d); every further step O(n d). `gap` bounds the loss.

    Conditional-RKE is large where the same prompt has different outputs, so that the rows of a few
    prompts are chosen first, unless `per_prompt` limits their number.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      k: how many rows to choose, 1 to n.
      per_prompt: the largest number of rows with equal prompts; no limit where None.
      quality: a number for each row, `[n]`; more is better.
      trade: how much mean similarity one unit of quality is worth, at least 0.

    Raises:
      TypeError, ValueError: the pairs or a number are not valid, or `per_prompt` allows fewer rows.

    Examples:
      Three outputs are the same, and two others differ:

      >>> import condvendi_jax as cv
      >>> chosen = cv.select([[0], [0], [0], [1], [2]], k=4, kernel=cv.Gaussian(0.1))
      >>> print(chosen.rows, chosen.scores.round(2))
      [3 0 4 1] [1.   2.   3.   2.67]
      >>> near = cv.Gaussian(0.1)  # The second best is the best again: the third is chosen.
      >>> print(cv.select([[0], [0], [7]], k=2, kernel=near, quality=[9, 8, 5], trade=0.1).rows)
      [0 2]
    """
    pairs.refuse_weights("rows to choose")
    k = checks.check_count(k, name="k", minimum=1)
    most, available, limit = k, pairs.n, ""
    if per_prompt is not None:
        most = checks.check_count(per_prompt, name="per_prompt", minimum=1)
        available = int(np.minimum(np.bincount(pairs.prompt_kinds[1]), most).sum())
        limit = f", at most {most} of each prompt"
    if k > available:
        raise ValueError(f"k: expected at most {available} rows{limit}, received {k}.")
    if (quality is None) != (trade is None):
        missing = "quality" if quality is None else "trade"
        raise ValueError(f"quality, trade: expected both or neither, received no {missing}.")
    start, gains = None, np.zeros(pairs.n)
    if quality is not None:
        values = checks.check_weights(quality, pairs.n, name="quality", signed=True)
        start, gains = np.argmax(values), np.asarray(values, np.float64)
        gains = gains - np.partition(gains, -k)[-k]  # So that rows that compete keep their digits.
        limits = {"above": -math.ulp(0), "below": 1e30 / max(1, np.ptp(gains))}  # As float32 has.
        words = "a number of at least 0, and below 1e30 over the range of quality"
        gains *= checks.check_number(trade, name="trade", expected=words, **limits)
    near = pairs.gathered()
    tiles = pair_sums.tiles_of(near)
    if near.paired:  # The prompts and the pairs, or the outputs alone.
        tiles = dataclasses.replace(tiles, subsets=tiles.subsets[1:])
    if start is None:  # By the influence on an entropy of order 2, but for a constant.
        sums = 1 + pairwise.row_norms(tiles)
        *of_prompts, of_score = -sums / jnp.mean(sums, axis=-1, keepdims=True)
        start = jnp.argmax(of_score - of_prompts[0] if of_prompts else of_score)
    kinds = np.zeros(near.n, int) if per_prompt is None else near.prompt_kinds[1]
    rows, added, sums = map(np.asarray, _greedy(tiles, start, gains, kinds, most, k=k))
    above, below = np.cumsum(added, axis=0, dtype=np.float64).T
    # The objective is above its tangent plane, and a mean similarity at least 1 / k.
    means, gap = sums.astype(np.float64) / k, math.nan
    if not near.paired:
        costs = 2 * means - gains, -gains
        plane, worse = (c[rows].mean() - np.partition(c, k - 1)[:k].mean() for c in costs)
        gap = max(0.0, float(min(plane, means[rows].mean() - 1 / k + worse)))
    return Selection(rows, above / below, gap)


@functools.partial(jax.jit, static_argnames="k")
def _greedy(
    tiles: fold.Tiles, first: Any, gains: Any, kinds: Any, most: Any, *, k: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The chosen rows `[k]`, what each adds above and below the line, `[k, 2]`, and sums, `[n]`.

    The score is A / B. A row that adds a and b changes B / A by (b - (B / A) a) / (A + a): a
    difference would lose these digits. The sums are of similarity to the chosen rows.
    """
    n, dtype = tiles.n, tiles.factors[0].dtype

    def step(carry: Any, size: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        row, sums, totals, free, counts = carry
        added = 2 * sums[:, row] + 1
        geometries = fold.geometries_of(tiles.kernels, fold.cut(tiles.points, row, 1), tiles.points)
        products = pairwise.squared_products(tiles.subsets, tiles.kernels, geometries)
        sums += jnp.concatenate([jnp.ones((2 - len(tiles.subsets), n), dtype), *products])
        totals += added
        free, counts = free.at[row].set(False), counts.at[kinds[row]].add(1)
        above, below = 2 * sums + 1
        changes = (below - totals[1] / totals[0] * above) / (totals[0] + above) - gains / size
        allowed = free & (counts[kinds] < most)
        following = jnp.argmin(jnp.where(allowed, changes, jnp.inf)).astype(row.dtype)
        return (following, sums, totals, free, counts), (row, added)

    start = (jnp.zeros((2, n), dtype), jnp.zeros(2, dtype), jnp.full(n, True), jnp.zeros(n, int))
    sizes, gains = jnp.arange(2, k + 2, dtype=dtype), jnp.asarray(gains, dtype)
    (_, sums, *_), chosen = jax.lax.scan(step, (jnp.asarray(first), *start), sizes)
    return *chosen, sums[1]
