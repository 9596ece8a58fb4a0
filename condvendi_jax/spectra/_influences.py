"""The influence of every row on an entropy, from diagonals and from finite features.

Rows of weights p, of sum one, have the operator C = sum_i p_i phi_i phi_i^T. With h = dH / d lambda
an entropy H of its eigenvalues has dH / dp_i = phi_i^T h(C) phi_i. For the weighted Gram A this is
(A h(A))_ii / p_i, and for features z_i^T h(C) z_i. The influence is this less its mean over p.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams._grams import FeatureGram, Operator, WeightedGram

_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def centred(derivatives: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The influences `[..., n]` from dH / dp_i, NaN for rows of share zero, which have none."""
    means = np.sum(shares * derivatives, axis=-1, keepdims=True)
    return np.where(shares > 0, derivatives - means, np.nan)


def of_diagonal(diagonal: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The influences `[..., n]` from (A h(A))_ii."""
    return centred(diagonal / np.where(shares > 0, shares, 1), shares)


@functools.partial(jax.jit, static_argnums=1)
def diagonal(gram: Operator, entropy: Entropy) -> jax.Array:
    """(A h(A))_ii, `[n]`, from all eigenvectors: of A, or in O(n D^2) of D < n features."""
    features = _features(gram)
    if features is None:
        return of_matrix(gram.dense().matrix / gram.n, entropy)
    features = features / math.sqrt(gram.n)
    return row_forms(features, slopes(spectra.outer_products(features), entropy))[: gram.n]


def _features(gram: Operator) -> jax.Array | None:
    """Z `[rows, D]` with A = Z Z^T / n, where D < n."""
    if gram.rank_bound == gram.n:
        return None
    if isinstance(gram, WeightedGram) and isinstance(gram.gram, FeatureGram):
        return gram.gram.features * gram.weights[:, None]
    return gram.features if isinstance(gram, FeatureGram) else None


@functools.partial(jax.jit, static_argnums=1)
def of_matrix(matrix: jax.Array, entropy: Entropy) -> jax.Array:
    """(A h(A))_ii of a matrix A `[n, n]` of trace one, `[n]`."""
    values, vectors = spectra.decomposed(matrix)
    return _product(jnp.square(vectors), values * _slopes(values, entropy))


@functools.partial(jax.jit, static_argnums=1)
def slopes(covariance: jax.Array, entropy: Entropy) -> jax.Array:
    """h(C), `[D, D]`, of a covariance C of trace one."""
    values, vectors = spectra.decomposed(covariance)
    return _product(vectors * _slopes(values, entropy)[None, :], vectors.T)


def row_forms(features: jax.Array, matrix: jax.Array) -> jax.Array:
    """z_i^T S z_i for rows z `[n, D]` and a matrix S `[D, D]`, `[n]`."""
    return jnp.sum(_product(features, matrix) * features, axis=1)


def _slopes(values: jax.Array, entropy: Entropy) -> jax.Array:
    """dH / d lambda for eigenvalues that may be fewer than a truncation keeps."""
    missing = max((entropy.truncation or 0) - values.size, 0)
    return jax.grad(lambda own: entropy.of_spectrum(jnp.pad(own, (0, missing))))(values)
