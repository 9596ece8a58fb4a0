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
    log_scores,
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
    """The scores of the first n' pairs against n': every field of a `Decomposition` along sizes.

    The intervals of each score are `[2, m]`, equal where all eigenvalues were taken. Unbiased is
    the curve without the pairs of a row with itself, at order 2 without truncation.
    """

    sizes: tuple[int, ...]
    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    intervals: PerScore
    standard_errors: PerScore
    methods: tuple[str, ...]
    order: float
    truncation: int | None
    dtype: str
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
        The weights of the first n' are divided by their sum.
      sizes: the n', ascending, between 1 and n.
      entropies: what is computed. A truncation above a size keeps all its eigenvalues.
      method: see `decompose`, for each size: with a key, `Auto` estimates the larger ones.
    """
    pairs = pairs.gathered()
    sizes = tuple(checks.check_count(size, name="sizes", minimum=1) for size in sizes)
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[-1] > pairs.n:
        raise ValueError(
            f"sizes: expected ascending numbers up to n = {pairs.n}, received {sizes}."
        )
    if not pairs.shares[: sizes[0]].any():
        raise ValueError(f"sizes: all weights of the first {sizes[0]} rows are zero.")
    rows_scored.note(sizes)
    method, largest = methods.check_method(method), pairs.rows(slice(sizes[-1]))
    spectral = [entropy for entropy in entropies if entropy.needs_spectrum]
    if spectral:
        computation.check(largest, method)  # What is refused is refused before the first size.
    curves: dict[Entropy, ConvergenceCurve] = {}
    if len(spectral) < len(entropies):
        copies = None if largest.copies is None else jnp.asarray(largest.copies, largest.dtype)
        prefixes = _prefix_entropies(largest, copies)
        for entropy in set(entropies) - set(spectral):
            plug_in, unbiased = (_of_prefixes(values, sizes, entropy) for values in prefixes)
            curves[entropy] = dataclasses.replace(plug_in, unbiased=unbiased)
    by_size = []
    for size in sizes:
        fitted = [entropy.fitted(size) for entropy in spectral]
        computed = computation.compute(pairs.rows(slice(size)), fitted, method) if spectral else ()
        each = zip(computed, spectral, strict=True)
        by_size.append([Decomposition.of(part, entropy, n=size) for part, entropy in each])
    along = [_along(decompositions) for decompositions in zip(*by_size, strict=True)]
    curves |= dict(zip(spectral, along, strict=True))
    return [curves[entropy] for entropy in entropies]


def _of_prefixes(values: PerTerm, sizes: tuple[int, ...], entropy: Entropy) -> ConvergenceCurve:
    """The curve of exact entropies, from those of every prefix, `[n]` each."""
    last = np.array(sizes) - 1
    terms = of_pairs(jax.tree.map(lambda of_prefixes: of_prefixes[last], values))
    scores = PerScore(*(np.exp(np.asarray(log, np.float64)) for log in log_scores(*terms)))
    return ConvergenceCurve(
        sizes=sizes,
        entropy_outputs=terms.outputs,
        entropy_prompts=terms.prompts,
        entropy_joint=terms.joint,
        intervals=PerScore(*(np.stack([score, score]) for score in scores)),
        standard_errors=PerScore(*(np.zeros(len(sizes)) for _ in scores)),
        methods=(order_two.FROBENIUS,) * len(sizes),
        order=entropy.order,
        truncation=entropy.truncation,
        dtype=terms.outputs.dtype.name,
    )


def _along(curve: Sequence[Decomposition]) -> ConvergenceCurve:
    """The decompositions of all sizes as one curve."""
    first = curve[0]
    exact = PerScore(0.0, 0.0, 0.0)
    errors = [result.estimation.standard_errors if result.estimation else exact for result in curve]
    ends = [jax.tree.map(float, result.intervals) for result in curve]
    return ConvergenceCurve(
        sizes=tuple(result.n for result in curve),
        entropy_outputs=jnp.stack([result.entropy_outputs for result in curve]),
        entropy_prompts=jnp.stack([result.entropy_prompts for result in curve]),
        entropy_joint=jnp.stack([result.entropy_joint for result in curve]),
        intervals=PerScore(*(np.array(score).T for score in zip(*ends, strict=True))),
        standard_errors=PerScore(*map(np.array, zip(*errors, strict=True))),
        methods=tuple(result.method for result in curve),
        order=first.order,
        truncation=first.truncation,
        dtype=first.dtype,
    )


@jax.jit
def _prefix_entropies(pairs: Pairs, copies: jax.Array | None) -> tuple[PerTerm, PerTerm]:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[n]` each, and the unbiased ones.

    Each of the `copies` of a row is a row.
    """
    weights = jnp.ones(pairs.n, pairs.dtype) if pairs.weights is None else pairs.weights
    weights = weights[None]
    sums = pairwise.arrival_sums(pair_sums.tiles_of(pairs), weights=weights.T)[:, 0]
    squares = jnp.square(weights)
    alone = squares if copies is None else squares / jnp.maximum(copies, 1)[None]
    others = 2 * sums * weights
    parts = (others + squares, others + (squares - alone), weights, alone)
    # Scanned sums add in a tree: the error grows with log n, not with n.
    scanned = lax.associative_scan(jnp.add, jnp.concatenate(parts), axis=1)
    norms, unbiased = scanned[: len(sums)], scanned[len(sums) : -2]
    total, equal = jnp.square(scanned[-2:-1]), scanned[-1:]
    return order_two.entropies_of(norms / total), order_two.entropies_of(unbiased / (total - equal))
