"""Grams of finitely many features: the D x D matrix Z^T Z / n in the place of K / n = Z Z^T / n.

This module sees arrays only. The non-zero eigenvalues of both matrices are the same (CV
Proposition 1), and everything costs O(n D^2), not O(n^2).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.grams import _eigenvalues as spectra

_PRECISION = lax.Precision.HIGHEST


def outer_products(features: jax.Array) -> jax.Array:
    """Z^T Z `[D, D]`, the sum of the rows' outer products; rows of zeros add nothing."""
    return jnp.matmul(features.T, features, precision=_PRECISION)


def matvec(features: jax.Array, vectors: jax.Array) -> jax.Array:
    """Z (Z^T v) for vectors `[n]` or `[n, m]`."""
    inner = jnp.matmul(features.T, vectors, precision=_PRECISION)
    return jnp.matmul(features, inner, precision=_PRECISION)


def squared_norm(covariance: jax.Array) -> jax.Array:
    """||Z^T Z / n||_F^2, which equals ||K / n||_F^2, of the covariance Z^T Z / n."""
    return jnp.sum(jnp.sum(jnp.square(covariance), axis=1))


def eigenvalues(covariance: jax.Array, length: int) -> jax.Array:
    """The `length` largest eigenvalues of K / n, `length` >= D: those of Z^T Z / n, and zeros."""
    values = spectra.spectrum(covariance)
    return jnp.pad(values, (0, length - values.shape[0]))
