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


def of_diagonal(diagonal: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The influences `[..., n]` from (A h(A))_ii, NaN for rows of share zero, which have none."""
    derivatives = diagonal / np.where(shares > 0, shares, 1)
    means = np.sum(shares * derivatives, axis=-1, keepdims=True)
    return np.where(shares > 0, derivatives - means, np.nan)


@functools.partial(jax.jit, static_argnums=1)
def diagonal(gram: Operator, entropy: Entropy) -> jax.Array:
    """(A h(A))_ii, `[n]`, from all eigenvectors: of A, or in O(n D^2) of D < n features."""
    features = _features(gram)
    if features is None:
        values, vectors = spectra.decomposed(gram.dense().matrix / gram.n)
        return _product(jnp.square(vectors), values * _slopes(values, entropy))
    features = features / math.sqrt(gram.n)
    values, vectors = spectra.decomposed(spectra.outer_products(features))
    slopes = _product(vectors * _slopes(values, entropy)[None, :], vectors.T)
    return jnp.sum(_product(features, slopes) * features, axis=1)[: gram.n]


def _features(gram: Operator) -> jax.Array | None:
    """Z `[rows, D]` with A = Z Z^T / n, where D < n."""
    if gram.rank_bound == gram.n:
        return None
    if isinstance(gram, WeightedGram) and isinstance(gram.gram, FeatureGram):
        return gram.gram.features * gram.weights[:, None]
    return gram.features if isinstance(gram, FeatureGram) else None


def _slopes(values: jax.Array, entropy: Entropy) -> jax.Array:
    """dH / d lambda for eigenvalues that may be fewer than a truncation keeps."""
    missing = max((entropy.truncation or 0) - values.size, 0)
    return jax.grad(lambda own: entropy.of_spectrum(jnp.pad(own, (0, missing))))(values)
