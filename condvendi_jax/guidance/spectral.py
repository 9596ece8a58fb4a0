"""The entropy of a matrix, with a gradient that is defined where eigenvalues tie."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.entropies import Entropy, eigenvalues


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def entropy_of(entropy: Entropy, matrix: jax.Array) -> jax.Array:
    """The entropy, in nats, of a matrix `[n, n]` of trace one; differentiable once."""
    return _entropy_and_slope(entropy, matrix)[0]


@entropy_of.defjvp
def _entropy_jvp(entropy: Entropy, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    value, slope = _entropy_and_slope(entropy, *primals)
    return value, jnp.sum(slope * tangents[0])


def _entropy_and_slope(entropy: Entropy, matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The entropy and its gradient in the matrix: CV eq. 24 for any order.

    Eigenvalues that tie at the truncation share their slopes. Rounding decides which of them are
    kept; the mean over all choices is also a subgradient, and does not depend on rounding.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    values, vectors = eigenvalues.project_to_simplex(values), vectors[:, ::-1]
    value, weights = jax.value_and_grad(entropy.of_spectrum)(values)
    if entropy.truncation is not None:
        tolerance = eigenvalues.NOISE_FLOOR * jnp.finfo(values.dtype).eps * values[0]
        last = values[entropy.truncation - 1]
        # Eigenvalues of zero are not shared: those a little above zero have slopes of their own.
        tied = (jnp.abs(values - last) <= tolerance) & (last > tolerance)
        count = jnp.maximum(jnp.sum(tied, dtype=values.dtype), 1)
        weights = jnp.where(tied, jnp.sum(jnp.where(tied, weights, 0)) / count, weights)
    slope = jnp.matmul(vectors * weights[None, :], vectors.T, precision=lax.Precision.HIGHEST)
    return value, slope
