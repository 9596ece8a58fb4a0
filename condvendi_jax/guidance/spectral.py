"""The entropy of a matrix through its eigenvectors, differentiable twice where they tie."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.entropies import Entropy, eigenvalues


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def entropy_of(entropy: Entropy, matrix: jax.Array) -> jax.Array:
    """The entropy, in nats, of a matrix `[n, n]` of trace one."""
    return entropy_and_slope(entropy, matrix)[0]


@entropy_of.defjvp
def _entropy_jvp(entropy: Entropy, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    value, slope = entropy_and_slope(entropy, *primals)
    return value, jnp.sum(slope * tangents[0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def entropy_and_slope(entropy: Entropy, matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The entropy and its gradient in the matrix: CV eq. 24 for any order."""
    values, vectors = _decompose(matrix)
    value, weights = _value_and_weights(entropy, values)
    return value, _product(vectors * weights[None, :], vectors.T)


@entropy_and_slope.defjvp
def _entropy_and_slope_jvp(entropy: Entropy, primals: Any, tangents: Any) -> Any:
    """V (D * V^T dA V) V^T with divided differences D, which stay finite at ties."""
    values, vectors = _decompose(*primals)
    value, weights = _value_and_weights(entropy, values)
    slope = _product(vectors * weights[None, :], vectors.T)
    inner = _product(_product(vectors.T, tangents[0]), vectors)
    hessian = jax.hessian(entropy.of_spectrum)(values)
    gaps = values[:, None] - values[None, :]
    divided = jnp.where(
        jnp.abs(gaps) <= _tolerance(values),
        jnp.diagonal(hessian)[:, None] - hessian,
        (weights[:, None] - weights[None, :]) / gaps,
    )
    diagonal = jnp.diag(_product(hessian, jnp.diagonal(inner)))
    moved = jnp.where(jnp.eye(values.shape[0], dtype=bool), diagonal, divided * inner)
    turned = _product(_product(vectors, moved), vectors.T)
    return (value, slope), (jnp.sum(slope * tangents[0]), turned)


def _decompose(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues, descending and of sum one, and the eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(matrix)
    return eigenvalues.project_to_simplex(values), vectors[:, ::-1]


def _value_and_weights(entropy: Entropy, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The entropy and its slope in every eigenvalue; equal among those that tie at the truncation.

    Rounding decides which of the tied eigenvalues the truncation keeps. The mean over all choices
    is also a subgradient, and it does not depend on rounding.
    """
    value, weights = jax.value_and_grad(entropy.of_spectrum)(values)
    if entropy.truncation is None:
        return value, weights
    last, tolerance = values[entropy.truncation - 1], _tolerance(values)
    # Eigenvalues of zero are not shared: those a little above zero have slopes of their own.
    tied = (jnp.abs(values - last) <= tolerance) & (last > tolerance)
    count = jnp.maximum(jnp.sum(tied, dtype=values.dtype), 1)
    shared = jnp.sum(jnp.where(tied, weights, 0)) / count
    return value, jnp.where(tied, shared, weights)


def _tolerance(values: jax.Array) -> jax.Array:
    """Eigenvalues that are closer than this differ only by rounding."""
    return eigenvalues.NOISE_FLOOR * jnp.finfo(values.dtype).eps * values[0]


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
