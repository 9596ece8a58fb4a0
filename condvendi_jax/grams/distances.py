"""Pairs of rows by the distance of their prompts: sums of squared kernels, and nearest rows."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.data.kernels import Gaussian, Kernel
from condvendi_jax.grams import fold

_AT_ONCE = 1 << 24  # Distances that are held at once.
_PAIRS_AT_ONCE = 1 << 12  # Pairs of rows, with all their coordinates.


def distance_kernel(points: Any) -> tuple[Gaussian, float]:
    """A kernel whose geometry is that of distances of points, and twice the square of its unit."""
    scale = float(jnp.sqrt(jnp.sum(jnp.var(points, axis=0))))
    kernel = Gaussian(scale if scale > 0 else 1.0).suited_to(points)
    return kernel, 2.0 * (1.0 if kernel.unit is None else kernel.unit) ** 2


@jax.jit
def sums_by_distance(
    tiles: fold.Tiles, edges: jax.Array, weights: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Of each row, by the distance of its prompt to others, weights and squared kernels.

        sum over j in b of w_j,    sum over j in b of w_j k_X(i, j)^2

    for every bin b of distances, `[bins, rows]` each, in one pass. Weights and labels are as
    placed; rows of one label, -1 excepted, are no pair.

    Args:
      tiles: outputs, and prompts under a kernel whose geometry is that of distances.
      edges: the lower and upper ends of the bins as geometries, `[2, bins]`.
    """

    def tile(tiles: fold.Tiles, rows: fold.Block, columns: fold.Block, diagonal: bool) -> Any:
        outputs, prompts = fold.geometries_of(tiles.kernels, rows.points, columns.points)
        squares = jnp.square(tiles.kernels[0].profile(outputs))
        (w_rows, l_rows), (w_columns, l_columns) = rows.beside, columns.beside
        counted = (l_rows[:, None] != l_columns[None]) | (l_rows[:, None] < 0)
        if diagonal:
            counted &= ~jnp.eye(l_rows.size, dtype=bool)
        prompts = jnp.where(counted, prompts, -2)  # Below all edges.

        def of_bin(ends: jax.Array) -> tuple[jax.Array, jax.Array]:
            inside = (prompts > ends[0]) & (prompts <= ends[1])
            ones, kept = inside.astype(squares.dtype), jnp.where(inside, squares, 0)
            to_rows = [part @ w_columns for part in (ones, kept)]
            to_columns = [w_rows @ part for part in (ones, kept)]
            return jnp.stack(to_rows, -1), jnp.stack(to_columns, -1)

        return [jnp.moveaxis(part, 0, 1) for part in jax.lax.map(of_bin, edges.T)]

    sums = fold.sums_by_row(tiles, tile, weights, labels)
    return sums[..., 0].T, sums[..., 1].T


@functools.partial(jax.jit, static_argnums=3)
def _nearest(kernel: Kernel, points: Any, labels: jax.Array, count: int) -> tuple[Any, Any]:
    """The squared distances of each row to its nearest rows and their numbers, `[n, count]`."""
    n = labels.shape[0]

    def of_row(row: tuple[Any, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        point, label, number = row
        squares = kernel.geometry(jax.tree.map(lambda leaf: leaf[None], point), points)[0]
        same = (labels == label) & (label >= 0)
        squares = jnp.where(same | (jnp.arange(n) == number), jnp.inf, squares)
        least, which = jax.lax.top_k(-squares, count)
        return -least, which

    at_once = max(1, min(n, _AT_ONCE // n))
    return jax.lax.map(of_row, (points, labels, jnp.arange(n)), batch_size=at_once)


def nearest(points: Any, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The distances of each row to the nearest rows of other labels, and their numbers.

    `[n, count]` each, by rising distance, which is infinite where there are fewer. Rows labelled -1
    are near any.
    """
    count = min(count, points.shape[0] - 1)
    kernel, unit = distance_kernel(points)
    squares, which = _nearest(kernel, kernel.prepare(points), jnp.asarray(labels), count)
    return np.sqrt(unit * np.asarray(squares, np.float64)), np.asarray(which)


@jax.jit
def _squares(kernel: Kernel, left: jax.Array, right: jax.Array) -> jax.Array:
    at_once = min(left.shape[0], _PAIRS_AT_ONCE)
    return jnp.square(jax.lax.map(lambda pair: kernel(*pair), (left, right), batch_size=at_once))


def squares_of_pairs(kernel: Kernel, left: Any, right: Any) -> np.ndarray:
    """The squared kernel of each row of one array with the same row of another, `[m]`."""
    m = left.shape[0]
    padded = np.resize(np.arange(m), 1 << (m - 1).bit_length())  # So that one program serves many.
    return np.asarray(_squares(kernel, left[padded], right[padded]), np.float64)[:m]


def few_distances(points: Any, rows: int) -> np.ndarray:
    """The distances of some rows, evenly spaced, to all others, sorted; fewer rows of many."""
    n = points.shape[0]
    rows = min(rows, n, max(1, _AT_ONCE // n))
    chosen = np.unique(np.linspace(0, n - 1, rows).astype(int))
    kernel, unit = distance_kernel(points)
    prepared = kernel.prepare(points)
    some = jax.tree.map(lambda leaf: leaf[chosen], prepared)
    squares = np.array(kernel.geometry(some, prepared), np.float64)
    squares[np.arange(chosen.size), chosen] = math.inf
    return np.sqrt(unit * np.sort(squares, axis=None)[: -chosen.size])
