"""The scores of the first rows against their number: does a score settle?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, renyi, von_neumann
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.scores._decompose import Decomposition, Scores
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra import _order_two as order_two
from condvendi_jax.spectra._methods import AUTO, Computed, Method


@dataclasses.dataclass(frozen=True)
class ConvergenceCurve(Scores):
    """The scores of the first n' pairs against n': every field of a `Decomposition` along sizes.

    Attributes:
      sizes: the n', `m` of them, ascending.
      entropy_outputs, entropy_prompts, entropy_joint: H(X), H(T) and H(X, T) in nats, `[m]` each.
      intervals: the ends (low, high) of each score's interval at 95%, `[2, m]`, as far as estimates
        go; equal where all eigenvalues were taken.
      standard_errors: of the estimates, `[m]` each; zero where exact.
      methods: how each size was computed.
      order, truncation, dtype: as `Decomposition`; a truncation above a size keeps all eigenvalues.
      unbiased: the curve without the pairs of a row with itself, of the same pass, at order 2
        without truncation; None elsewhere. It does not grow with n', and is NaN at one row.
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


@validation.outside_transformations
@takes_pairs
def convergence_curve(
    pairs: Pairs,
    sizes: Sequence[int],
    *,
    entropies: Sequence[Entropy] = (von_neumann, renyi(2)),
    method: Method = AUTO,
    progress: Callable[[], Any] = lambda: None,
) -> list[ConvergenceCurve]:
    """The scores of the first n' pairs, for every size n' (CV figs 2, 3 and 19).

    Order 2 is one pass over the largest size, whatever the number of sizes; every other entropy
    shares one set of spectra a size. Shuffle the rows first: a prefix must be a random sample.
    Unbiased scores are then those of any number of rows at every size. Rows with equal prompts
    count as any two rows: how many answers a prompt has in a prefix is chance.

    Args:
      pairs: the data, or `outputs, prompts` (None without prompts) and kernels, as `decompose`. The
        weights of the first n' are divided by their sum.
      sizes: the n', ascending, between 1 and n.
      entropies: what is computed. A truncation above a size keeps all its eigenvalues.
      method: as `decompose`, size by size: with a key, `Auto` estimates the larger ones.
      progress: called after each size.

    Returns:
      A curve for each entropy.

    Raises:
      TypeError, ValueError: as `decompose`; a size is not in range or not ascending; or all weights
        up to the first size are zero.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.tile(np.arange(4, dtype=np.float32), 25)[:, None]
      >>> (curve,) = cv.convergence_curve(
      ...     outputs, None, [2, 4, 100], output_kernel=cv.Gaussian(0.1), entropies=[cv.renyi(2)]
      ... )
      >>> print(curve.vendi.round(2))
      [2. 4. 4.]
    """
    pairs = pairs.gathered()
    sizes = tuple(validation.check_count(size, name="sizes", minimum=1) for size in sizes)
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[-1] > pairs.n:
        raise ValueError(
            f"sizes: expected ascending numbers up to n = {pairs.n}, received {sizes}."
        )
    if not pairs.shares[: sizes[0]].any():
        raise ValueError(f"sizes: all weights of the first {sizes[0]} rows are zero.")
    for entropy in entropies:
        if not isinstance(entropy, Entropy):
            raise TypeError(
                f"entropies: expected such as cv.von_neumann or cv.renyi(2), received {entropy!r}."
            )
    of_method = [methods.check_method(method).computes(entropy) for entropy in entropies]
    spectral = tuple(e for e, own in zip(entropies, of_method, strict=True) if own)
    if spectral:
        # For the largest size first: what is refused is refused before anything is computed.
        methods.check(pairs.rows(slice(sizes[-1])), method)
    prefix = None
    if len(spectral) < len(entropies):
        largest = pairs.rows(slice(sizes[-1]))
        copies = None if largest.copies is None else jnp.asarray(largest.copies, largest.dtype)
        prefix = _prefix_entropies(largest, copies)
    curves: list[list[Decomposition]] = [[] for _ in entropies]
    others: list[list[Decomposition]] = [[] for _ in entropies]
    for size in sizes:
        fitted = [entropy.fitted(size) for entropy in spectral]
        found = iter(methods.compute(pairs.rows(slice(size)), fitted, method) if spectral else ())
        for entropy, curve, other, own in zip(entropies, curves, others, of_method, strict=True):
            if own:
                curve.append(Decomposition.of(next(found), entropy, n=size))
                continue
            assert prefix is not None
            for values, of in zip(prefix, (curve, other), strict=True):
                at = jax.tree.map(lambda all_sizes, size=size: all_sizes[size - 1], values)
                of.append(Decomposition.of(Computed(at, None, methods.FROBENIUS), entropy, n=size))
        progress()
    unbiased = [_along(curve) if curve else None for curve in others]
    return [
        dataclasses.replace(_along(curve), unbiased=other)
        for curve, other in zip(curves, unbiased, strict=True)
    ]


def _along(curve: Sequence[Decomposition]) -> ConvergenceCurve:
    """The decompositions of all sizes as one curve."""
    first = curve[0]
    exact = PerScore(0.0, 0.0, 0.0)
    errors = [found.estimation.standard_errors if found.estimation else exact for found in curve]
    ends = [jax.tree.map(float, found.intervals) for found in curve]
    return ConvergenceCurve(
        sizes=tuple(found.n for found in curve),
        entropy_outputs=jnp.stack([found.entropy_outputs for found in curve]),
        entropy_prompts=jnp.stack([found.entropy_prompts for found in curve]),
        entropy_joint=jnp.stack([found.entropy_joint for found in curve]),
        intervals=PerScore(*(np.array(of_score).T for of_score in zip(*ends, strict=True))),
        standard_errors=PerScore(*(np.array(of_score) for of_score in zip(*errors, strict=True))),
        methods=tuple(found.method for found in curve),
        order=first.order,
        truncation=first.truncation,
        dtype=first.dtype,
    )


@jax.jit
def _prefix_entropies(pairs: Pairs, copies: jax.Array | None) -> tuple[PerTerm, PerTerm]:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[n]` each, and the unbiased ones.

    Each of the `copies` of a row is a row.
    """
    factors, subsets = order_two.factors_of(pairs)
    weights = jnp.ones(pairs.n, pairs.dtype) if pairs.weights is None else pairs.weights
    weights = weights[None]
    sums = pairwise.arrival_sums(factors, subsets, weights=weights.T)[:, 0]
    squares = jnp.square(weights)
    alone = squares if copies is None else squares / jnp.maximum(copies, 1)[None]
    others = 2 * sums * weights
    parts = (others + squares, others + (squares - alone), weights, alone)
    # Scanned sums add in a tree: the error grows with log n, not with n.
    scanned = lax.associative_scan(jnp.add, jnp.concatenate(parts), axis=1)
    norms, unbiased = scanned[: len(sums)], scanned[len(sums) : -2]
    total, own = jnp.square(scanned[-2:-1]), scanned[-1:]
    return order_two.entropies_of(norms / total), order_two.entropies_of(unbiased / (total - own))


def settled_from(sizes: Sequence[int], values: ArrayLike, *, tolerance: float) -> int | None:
    """The smallest size from which a curve stays within a relative tolerance of its last value.

    Args:
      sizes: `[m]`, ascending.
      values: the score at every size, `[m]`.
      tolerance: relative, 0.02 for two per cent.

    Returns:
      The size, or None where only the last point itself is that near.

    Examples:
      >>> import condvendi_jax as cv
      >>> cv.inference.settled_from([100, 200, 400, 800], [3.0, 3.9, 4.01, 4.0], tolerance=0.03)
      200
    """
    values = np.asarray(values, np.float64)
    if values.shape != np.shape(sizes) or values.ndim != 1 or not values.size:
        raise ValueError(
            f"values: expected one for each of {len(sizes)} sizes, received shape {values.shape}."
        )
    near = np.abs(values / values[-1] - 1) <= tolerance
    first = len(near) - int(np.argmin(near[::-1])) if not near.all() else 0
    if not math.isfinite(values[-1]) or first >= len(near) - 1:
        return None
    return int(sizes[first])
