"""Scores of the first rows against their number, to see whether a score settles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Pairs, takes_pairs
from condvendi_jax.entropies import (
    Decomposition,
    Entropy,
    PerScore,
    PerTerm,
    Scores,
    of_pairs,
    von_neumann,
)
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.spectra import computation, methods, order_two, pair_sums
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method
from experiments.lab import sizes as rows_scored


@dataclasses.dataclass(frozen=True, repr=False)
class ConvergenceCurve(Scores):
    """The scores of the first n' pairs, by the entropies along sizes, `[m]` each.

    Attributes:
      intervals: of each score, `[2, m]`, equal where all eigenvalues were taken; None at order 2.
      unbiased: the curve without the pairs of a row with itself, at order 2 without truncation.
    """

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    intervals: PerScore | None = None
    unbiased: ConvergenceCurve | None = None


@checks.outside_transformations
@takes_pairs
def convergence_curve(
    pairs: Pairs,
    sizes: Sequence[int],
    *,
    entropies: Sequence[Entropy] = (von_neumann, Entropy(2)),
    method: Method = AUTO,
) -> list[ConvergenceCurve]:
    """A curve for each entropy: the scores of the first n' pairs, for every size n' (CV figs 2, 3).

    Order 2 is one pass over the largest size, whatever the number of sizes; every other entropy
    shares one set of spectra a size. Shuffle the rows first: a prefix must be a random sample.

    Args:
      pairs: the data, or `outputs, prompts` (None without prompts) and kernels: see `decompose`.
      sizes: the n', ascending, between 1 and n.
      entropies: what is computed. A truncation above a size keeps all its eigenvalues.
      method: see `decompose`, for each size: with a key, `Auto` estimates the larger ones.

    Raises:
      ValueError: the sizes are no such numbers, or the pairs have weights.
    """
    pairs = pairs.gathered()
    sizes = tuple(checks.check_count(size, name="sizes", minimum=1) for size in sizes)
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[-1] > pairs.n:
        raise ValueError(
            f"sizes: expected ascending numbers up to n = {pairs.n}, received {sizes}."
        )
    if pairs.weights is not None:
        raise ValueError("weights: a curve takes pairs without weights.")
    rows_scored.note(sizes)
    method, largest = methods.check_method(method), pairs.rows(slice(sizes[-1]))
    spectral, by_size = [entropy for entropy in entropies if entropy.needs_spectrum], []
    if spectral:
        computation.check(largest, method)  # What is refused is refused before the first size.
        for size in sizes:
            fitted = [entropy.fitted(size) for entropy in spectral]
            computed = computation.compute(pairs.rows(slice(size)), fitted, method)
            both = zip(computed, spectral, strict=True)
            by_size.append([Decomposition.of(part, entropy, n=size) for part, entropy in both])
    curves: dict[Entropy, ConvergenceCurve] = {}
    for entropy, results in zip(spectral, zip(*by_size, strict=True), strict=True):
        terms = map(jnp.stack, zip(*(result.entropies for result in results), strict=True))
        ends = np.array([jax.tree.map(float, result.intervals) for result in results])
        curves[entropy] = ConvergenceCurve(*terms, intervals=PerScore(*np.moveaxis(ends, 0, -1)))
    if len(spectral) < len(entropies):
        last = np.array(sizes) - 1
        plug_in, unbiased = (
            ConvergenceCurve(*of_pairs(jax.tree.map(lambda along: along[last], terms)))
            for terms in _prefix_entropies(largest)
        )
        curves[Entropy(2)] = dataclasses.replace(plug_in, unbiased=unbiased)
    return [curves[entropy] for entropy in entropies]


@jax.jit
def _prefix_entropies(pairs: Pairs) -> tuple[PerTerm, PerTerm]:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[n]`, and the unbiased ones."""
    n = jnp.arange(1, pairs.n + 1, dtype=pairs.dtype)[None]
    ones = jnp.ones((pairs.n, 1), pairs.dtype)
    sums = 2 * pairwise.arrival_sums(pair_sums.tiles_of(pairs), weights=ones)[:, 0]
    # Scanned sums add in a tree: the error grows with log n, not with n.
    others = lax.associative_scan(jnp.add, sums, axis=1)
    return order_two.entropies_of((others + n) / n**2), order_two.entropies_of(others / (n**2 - n))
