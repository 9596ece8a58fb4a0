"""The entropy of order 1 of many rows, from samples of them and from how new further rows are.

Let G(k) be the mean von Neumann entropy of k of n rows, S the sum of phi phi^T over k rows, and psi
the feature of one more row. docs/any_n.md derives

    G(n) = G(m) + log(n / m) - sum_{m <= k < n} (1 - v(k)) / k,
    1 - v(k) = E F(S),  F(S) = Tr S (log(S + psi psi^T) - log S).

The novelty v(k) is 1 where the row is orthogonal to the others, and 0 where they span it many times
over. F is concave, and grows with S; and it is minus a relative entropy, which no projection
increases. So a sample of the rows, with weights, gives a mean at or above the novelty, and a
projection to a Krylov space, measured with an independent sample, one at or below it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax.grams._pairwise import Factor, Factors
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra._measures import ROUNDING, Estimate

# Independent samples of the rows: Student's t has seven degrees of freedom.
REPLICATES = 8
# Steps of the Krylov space of a row: 96 take a tenth more time than 48, for an interval that is a
# sixth narrower (n = 10^6, 4,096 rows).
STEPS = 96
# Relative to a vector: what is left of it outside of the Krylov space is rounding below this.
_NOISE = 32

# Where the estimate lies between the bounds, the lower of which is the wider. Empirical.
_TOWARDS_HIGH = 0.75

# Rows whose kernel values with all rows are held at once.
_AT_ONCE = 16

#: The entropies `Estimate` of the terms of some rows.
OfSample = Callable[[Pairs, jax.Array], Sequence[Estimate]]


class Bounds(NamedTuple):
    """A novelty from below and from above."""

    low: float
    high: float


def estimates(
    points: Pairs,
    subsets: Sequence[tuple[int, ...]],
    of_sample: OfSample,
    *,
    key: jax.Array,
    rows: int,
    new_rows: int,
) -> list[Estimate]:
    """The entropy of order 1 of each product of kernels, whose indices are in `subsets`.

    Each of eight replicates draws an order of all rows. `of_sample` gives the entropies of the
    first `rows` of it. Some of the rows after them are compared with all rows before them; their
    places are drawn at equal steps of the logarithm, so that the sum over k is not approximated.
    """
    n = points.n
    prepared = [k.prepare(part) for k, part in zip(points.kernels, points.arrays, strict=True)]
    factors = tuple(map(Factor, points.kernels, prepared))
    places = np.arange(rows, n)
    cumulative = np.cumsum(1 / places)
    low, high = np.zeros((2, REPLICATES, len(subsets)))
    gaps = np.zeros(len(subsets))
    each = max(1, math.ceil(new_rows / REPLICATES))
    for replicate, own in enumerate(jax.random.split(key, REPLICATES)):
        of_start, of_rest = jax.random.split(own)
        seed = np.asarray(jax.random.key_data(of_rest)).ravel()
        rng = np.random.default_rng(seed)
        order = rng.permutation(n)
        started = of_sample(points.rows(order[:rows]), of_start)
        shares = (np.arange(each) + rng.random(each)) / each
        chosen = places[np.searchsorted(cumulative, shares * cumulative[-1])]
        found = np.array(_novelties(factors, subsets, order, chosen, rows, rng))
        for index, start in enumerate(started):
            known = start.value + math.log(n / rows) - cumulative[-1]
            low[replicate, index] = known + cumulative[-1] * found[:, index, 0].mean()
            high[replicate, index] = known + cumulative[-1] * found[:, index, 1].mean()
            gaps[index] += start.systematic / REPLICATES
    value = low + _TOWARDS_HIGH * (high - low)
    between = np.mean(high - low, axis=0)
    rounding = ROUNDING * float(jnp.finfo(points.dtype).eps) * np.maximum(value.mean(axis=0), 1)
    return [
        Estimate(
            value[:, index],
            gap=max(between[index], 0) / 2 + gaps[index],
            rounding=rounding[index],
            offset=between[index] * (0.5 - _TOWARDS_HIGH),
        )
        for index in range(len(subsets))
    ]


def _novelties(
    factors: Factors,
    subsets: Sequence[tuple[int, ...]],
    order: np.ndarray,
    chosen: np.ndarray,
    rows: int,
    rng: np.random.Generator,
) -> list[list[Bounds]]:
    """For the rows at the chosen places of an order, the novelty of each beside all before it."""
    near, count = rows // 4, 3 * rows // 8
    found = []
    for test, place in enumerate(chosen):
        if test % _AT_ONCE == 0:
            block = order[chosen[test : test + _AT_ONCE]]
            with_all = [np.asarray(_rows_with_all(factor, block)) for factor in factors]
            if not all(np.isfinite(values).all() for values in with_all):
                raise ValueError(
                    "The kernels are not finite on these points: do their squared distances "
                    "overflow? Rescale embeddings and bandwidth."
                )
        before = order[:place]
        apart = rng.choice(place - near, 2 * count, replace=False, shuffle=False)
        rng.shuffle(apart)
        bounds = []
        for subset in subsets:
            values = np.prod([with_all[k][test % _AT_ONCE] for k in subset], axis=0)
            nearest = np.argpartition(-values[before], near - 1)
            used = np.concatenate([order[[place]], before[nearest[:near]]])
            sampled = before[nearest[near:][apart]]
            matrices = compressed(
                tuple(factors[k] for k in subset),
                np.concatenate([used, sampled]),
                (place - near) / count,
                near=near,
                steps=STEPS,
            )
            bounds.append(bracket(*map(np.asarray, matrices)))
        found.append(bounds)
    return found


@jax.jit
def _rows_with_all(factor: Factor, chosen: jax.Array) -> jax.Array:
    """Kernel values of some rows with all, `[t, n]`."""
    return factor.kernel.cross(
        jax.tree.map(lambda leaf: leaf[chosen], factor.points), factor.points
    )


@functools.partial(jax.jit, static_argnames=("near", "steps"))
def compressed(
    factors: Factors, chosen: jax.Array, weight: jax.Array, *, near: int, steps: int
) -> tuple[jax.Array, jax.Array]:
    """Two samples of S in the Krylov space that the first of them spans from psi, `[steps, steps]`.

    `chosen` are the numbers of psi, of the `near` rows that are in both samples, and of the others
    of either sample, as many each. Every other row stands for `weight` rows. The first vector of
    the basis is psi.
    """
    count = (chosen.size - 1 - near) // 2
    size = 1 + near + count
    gram = jnp.ones((), jax.tree.leaves(factors[0].points)[0].dtype)
    for kernel, points in factors:
        own = jax.tree.map(lambda leaf: leaf[chosen], points)
        gram = gram * kernel.cross(jax.tree.map(lambda leaf: leaf[:size], own), own)
    inside, beside = gram[:, :size], gram[:, size:]
    product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    scales = jnp.concatenate([jnp.zeros(1), jnp.ones(near), jnp.full(count, weight)])
    scales = scales.astype(gram.dtype)

    # A vector of the space is a combination of the rows' features, and its image holds its inner
    # products with them.
    def step(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        vectors, images = carry
        vector = scales * images[index - 1]
        image = product(inside, vector)
        before = jnp.vdot(vector, image)
        for _ in range(2):
            vector = vector - product(product(vectors, image), vectors)
            image = product(inside, vector)
        square = jnp.vdot(vector, image)
        new = square > jnp.square(_NOISE * jnp.finfo(gram.dtype).eps) * before
        scale = jnp.where(new, lax.rsqrt(jnp.where(new, square, 1)), 0)
        return vectors.at[index].set(scale * vector), images.at[index].set(scale * image)

    empty = jnp.zeros((steps, size), gram.dtype)
    start = empty.at[0, 0].set(1), empty.at[0].set(inside[0])
    vectors, images = lax.fori_loop(1, steps, step, start)
    in_both = images[:, 1 : 1 + near]
    apart = images[:, 1 + near :], product(vectors, beside)
    first, second = (
        product(in_both, in_both.T) + weight * product(sampled, sampled.T) for sampled in apart
    )
    return first, second


def bracket(first: np.ndarray, second: np.ndarray) -> Bounds:
    """The novelty from what `compressed` gives, `[steps, steps]`.

    The first sample is at least the matrix whose last diagonal entry is lowered until it is
    singular (Gauss-Radau): its novelty is an upper bound for any number of steps. Rounding moves S
    by about eps of its largest eigenvalue, and so the novelty: at n = 10^6 in float32, by 0.003 at
    most where the bounds allow for 0.006.
    """
    rounding = float(np.finfo(first.dtype).eps) * float(np.linalg.norm(first, 2))
    first, second = first.astype(np.float64), second.astype(np.float64)
    below = first.copy()
    coupling = first[-1, :-1]
    below[-1, -1] = min(coupling @ np.linalg.pinv(first[:-1, :-1]) @ coupling, first[-1, -1])
    low, high = novelty(second) - rounding, novelty(below) + rounding
    return Bounds(min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0))


def novelty(matrix: np.ndarray) -> float:
    """1 - Tr S (log(S + e e^T) - log S) of S `[s, s]`, e the first unit vector."""
    extended = matrix.copy()
    extended[0, 0] += 1
    values, vectors = np.linalg.eigh(extended)
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    own = np.maximum(np.linalg.eigvalsh(matrix), np.finfo(np.float64).tiny)
    explained = np.sum(np.maximum(values, 0) * logs) - vectors[0] ** 2 @ logs
    return float(1 - (explained - np.sum(own * np.log(own))))
