"""The scores of the first rows against their number: does a score settle?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, renyi, von_neumann
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.scores._decompose import Decomposition, Scores
from condvendi_jax.spectra import _methods as methods
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
        prefix = _prefix_entropies(pairs.rows(slice(sizes[-1])))
    curves: list[list[Decomposition]] = [[] for _ in entropies]
    for size in sizes:
        fitted = [entropy.fitted(size) for entropy in spectral]
        found = iter(methods.compute(pairs.rows(slice(size)), fitted, method) if spectral else ())
        for entropy, curve, own in zip(entropies, curves, of_method, strict=True):
            if own:
                computed = next(found)
            else:
                assert prefix is not None
                values = jax.tree.map(lambda all_sizes, size=size: all_sizes[size - 1], prefix)
                computed = Computed(values, None, methods.FROBENIUS)
            curve.append(Decomposition.of(computed, entropy, n=size))
        progress()
    return [_along(curve) for curve in curves]


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
def _prefix_entropies(pairs: Pairs) -> PerTerm:
    """The order-2 entropies of X, T and (X, T) of every prefix, `[n]` each."""
    norms = pairwise.prefix_norms(*methods.factors_of(pairs), weights=pairs.weights)
    return methods.order_two_entropies(norms)


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
