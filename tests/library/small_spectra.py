"""Small matrices of a chosen spectrum, and their Lanczos recurrences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.spectra import _krylov as krylov

N = 40


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Matrix:
    """A symmetric matrix with the only method that Krylov spaces ask for."""

    values: jax.Array

    def matvec(self, vectors):
        return jnp.matmul(self.values, vectors, precision=jax.lax.Precision.HIGHEST)


def matrix(spectrum, dtype=np.float64, seed=0):
    """A positive semidefinite matrix of a given spectrum, and its eigenvectors."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum),) * 2))
    return Matrix(jnp.asarray((q * spectrum) @ q.T, dtype)), q


def decaying(n=N, rate=0.7):
    spectrum = rate ** np.arange(n)
    return spectrum / spectrum.sum()


def draw(width, seed=1):
    return np.random.default_rng(seed).normal(size=(N, width))


def block(width, dtype=np.float64):
    return jnp.asarray(draw(width), dtype)


def recurrences(a, basis, probes, steps, capacity=16):
    state = krylov.start_lanczos(basis, probes, capacity=capacity)
    state = krylov.lanczos(a, basis, state, jnp.asarray(0), jnp.asarray(steps))
    alpha, beta = (np.asarray(t, np.float64)[:, :steps] for t in (state.alpha, state.beta))
    return state, alpha, beta
