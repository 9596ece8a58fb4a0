"""A greedy choice of k diverse rows, by the scores of order 2."""

import dataclasses
import functools
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
    """

    rows: np.ndarray
    scores: np.ndarray


@checks.outside_transformations
@takes_pairs
def select(pairs: Pairs, *, k: int, per_prompt: int | None = None) -> Selection:
    """The k rows with the largest Conditional-RKE, or RKE without prompts, chosen greedily.

    Every step adds the row after which the score of the chosen rows is largest; of equal ones, the
    row of the lowest number. The first is the row of largest influence (`contributions`), O(n^2 d);
    every further step is O(n d). Greedy sets are often, not always the best.

    Conditional-RKE is large where the same prompt has different outputs, so that the rows of a few
    prompts are chosen first, unless `per_prompt` limits their number.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      k: how many rows to choose, 1 to n.
      per_prompt: the largest number of rows with equal prompts; no limit where None.

    Raises:
      TypeError, ValueError: the pairs or a number are not valid, or `per_prompt` allows fewer rows.

    Examples:
      Three outputs are the same, and two others differ:

      >>> import condvendi_jax as cv
      >>> chosen = cv.select([[0], [0], [0], [1], [2]], k=4, kernel=cv.Gaussian(0.1))
      >>> print(chosen.rows, chosen.scores.round(2))
      [3 0 4 1] [1.   2.   3.   2.67]
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
    near = pairs.gathered()
    tiles = pair_sums.tiles_of(near)
    if near.paired:  # The prompts and the pairs, or the outputs alone.
        tiles = dataclasses.replace(tiles, subsets=tiles.subsets[1:])
    # By the influence on an entropy of order 2, but for a constant.
    sums = 1 + pairwise.row_norms(tiles)
    *of_prompts, of_score = -sums / jnp.mean(sums, axis=-1, keepdims=True)
    start = jnp.argmax(of_score - of_prompts[0] if of_prompts else of_score)
    kinds = np.zeros(near.n, int) if per_prompt is None else near.prompt_kinds[1]
    rows, added = _greedy(tiles, start, kinds, most, k=k)
    above, below = np.cumsum(np.asarray(added, np.float64), axis=0).T
    return Selection(np.asarray(rows), above / below)


@functools.partial(jax.jit, static_argnames="k")
def _greedy(
    tiles: fold.Tiles, first: jax.Array, kinds: jax.Array, most: jax.Array, *, k: int
) -> tuple[jax.Array, jax.Array]:
    """The chosen rows `[k]`, and what each adds to the sums above and below the line, `[k, 2]`.

    The score is A / B. A row that adds a and b changes it by (a - (A / B) b) / (B + b): a
    difference of two scores would lose these digits.
    """
    n, dtype = tiles.n, tiles.factors[0].dtype

    def step(carry: Any, _: None) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        row, sums, totals, free, counts = carry
        added = 2 * sums[:, row] + 1
        geometries = fold.geometries_of(tiles.kernels, fold.cut(tiles.points, row, 1), tiles.points)
        products = pairwise.squared_products(tiles.subsets, tiles.kernels, geometries)
        sums += jnp.concatenate([jnp.ones((2 - len(tiles.subsets), n), dtype), *products])
        totals += added
        free, counts = free.at[row].set(False), counts.at[kinds[row]].add(1)
        above, below = 2 * sums + 1
        changes = (above - totals[0] / totals[1] * below) / (totals[1] + below)
        allowed = free & (counts[kinds] < most)
        following = jnp.argmax(jnp.where(allowed, changes, -jnp.inf)).astype(row.dtype)
        return (following, sums, totals, free, counts), (row, added)

    start = (jnp.zeros((2, n), dtype), jnp.zeros(2, dtype), jnp.full(n, True), jnp.zeros(n, int))
    return jax.lax.scan(step, (first, *start), length=k)[1]
