"""The influence of every row on an entropy, from a diagonal.

Rows of weights p, of sum one, have the operator C = sum_i p_i phi_i phi_i^T. With h = dH / d lambda
an entropy H of its eigenvalues has dH / dp_i = phi_i^T h(C) phi_i. For the weighted Gram A this is
(A h(A))_ii / p_i. The influence is this less its mean over p.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.entropies import Entropy
from condvendi_jax.grams.operators import Operator


def of_diagonal(diagonal: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The influences `[..., n]` from (A h(A))_ii, NaN for rows of share zero, which have none."""
    derivatives = diagonal / np.where(shares > 0, shares, 1)
    means = np.sum(shares * derivatives, axis=-1, keepdims=True)
    return np.where(shares > 0, derivatives - means, np.nan)


@functools.partial(jax.jit, static_argnums=1)
def diagonal(gram: Operator, entropy: Entropy) -> jax.Array:
    """(A h(A))_ii, `[n]`: half the derivative in s_i of the entropy of diag(s) A diag(s)."""
    root = math.sqrt(gram.n)
    return jax.grad(lambda s: entropy(gram.scaled(s / root)))(jnp.ones(gram.n, gram.dtype)) / 2
