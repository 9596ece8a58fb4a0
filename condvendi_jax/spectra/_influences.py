"""The influence of every row on an entropy: its derivative in the weight of the row.

Rows of weights w, of sum one, have the operator C(w) = sum_i w_i phi_i phi_i^T, with A = K / n at
equal weights. For an entropy H = F(lambda) of the eigenvalues of C, with slopes c_k = dF/dlambda_k,

    dH / dw_i = phi_i^T V diag(c) V^T phi_i = n sum_k c_k lambda_k u_ki^2,

where u_k are the eigenvectors of A: the diagonal of a function of A. Only shares of the weight can
change, so that the influence is this less its mean over the rows, sum_k c_k lambda_k. At order 2 it
is -2 (r_i / mean_j r_j - 1), with the row sums r_i of the squared kernels: no eigenvector.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import Operator
from condvendi_jax.grams import _eigenvalues as spectra


def of_row_sums(sums: jax.Array) -> jax.Array:
    """The influences on the entropy of order 2, `[..., n]`, by row sums of squared kernels."""
    return -2 * (sums / jnp.mean(sums, axis=-1, keepdims=True) - 1)


def of_gram(gram: Operator, entropy: Entropy) -> jax.Array:
    """The influences of the n rows on an entropy in nats, `[n]`, of mean zero.

    Takes all eigenvectors: O(n^3) time and n x n arrays.
    """
    return _of_matrix(gram.dense().matrix / gram.n, entropy)


@functools.partial(jax.jit, static_argnums=1)
def _of_matrix(matrix: jax.Array, entropy: Entropy) -> jax.Array:
    values, vectors = jnp.linalg.eigh(matrix)
    # As the entropies take them: descending, not negative, of sum one.
    values, squares = spectra.project_to_simplex(values), jnp.square(vectors[:, ::-1])
    weighted = values * jax.grad(entropy.of_spectrum)(values)
    of_rows = jnp.matmul(squares, weighted, precision=lax.Precision.HIGHEST)
    return matrix.shape[0] * of_rows - jnp.sum(weighted)
