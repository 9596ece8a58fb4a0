"""Mixtures of Gaussians whose RKE and Conditional-RKE are known in closed form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import Gaussian


class GaussianMixture:
    """A mixture of Gaussians, of outputs alone or of pairs [output, prompt].

    Args:
      means: `[m, d]`; for pairs the first `d_x` coordinates are the output, the rest the prompt.
      covariances: `[m]` variances (isotropic) or `[m, d, d]` matrices.
      weights: probabilities `[m]`; equal when not given.
      d_x: number of output coordinates; None for a population without prompts.

    Raises:
      ValueError: shapes disagree, or concrete weights are negative or do not sum to 1.
    """

    def __init__(self, means: Any, covariances: Any, weights: Any = None, d_x: int | None = None):
        self.means = _rows(means, name="means")
        m, d = self.means.shape
        covariances = jnp.asarray(covariances, dtype=float)
        if covariances.shape == (m,):
            covariances = covariances[:, None, None] * jnp.eye(d)[None]
        if covariances.shape != (m, d, d):
            raise ValueError(
                f"covariances: expected shape ({m},) or ({m}, {d}, {d}), "
                f"received {covariances.shape}."
            )
        if d_x is not None and not 0 < d_x < d:
            raise ValueError(f"d_x: expected an integer from 1 to {d - 1}, received {d_x}.")
        self.covariances, self.d_x = covariances, d_x
        self.weights = _probabilities(weights, m)

    def sample(self, key: jax.Array, n: int) -> Any:
        """Draws n points `[n, d]`, or the pair (outputs, prompts) where `d_x` is given."""
        key_mode, key_noise = jax.random.split(key)
        mode = jax.random.choice(key_mode, self.weights.shape[0], (n,), p=self.weights)
        noise = jax.random.normal(key_noise, (n, self.means.shape[1]), self.means.dtype)
        factors = _matrix_square_roots(self.covariances)
        points = self.means[mode] + jnp.einsum("nij,nj->ni", factors[mode], noise)
        return points if self.d_x is None else (points[:, : self.d_x], points[:, self.d_x :])

    def rke(self, *, kernel: Gaussian) -> jax.Array:
        """Population RKE of the outputs: 1 / E[k(X, X')^2], a sum of m^2 Gaussian integrals."""
        d_x = self.means.shape[1] if self.d_x is None else self.d_x
        return 1 / self._mean_squared_kernel(slice(d_x), jnp.full(d_x, kernel.bandwidth))

    def conditional_rke(self, *, output_kernel: Gaussian, prompt_kernel: Gaussian) -> jax.Array:
        """Population Conditional-RKE E[k_T^2] / E[k_X^2 k_T^2] (CV eq. 11 as n grows)."""
        if self.d_x is None:
            raise ValueError("conditional_rke: this population has no prompts; give d_x.")
        scales = jnp.full(self.means.shape[1], prompt_kernel.bandwidth)
        scales = scales.at[: self.d_x].set(output_kernel.bandwidth)
        prompts = self._mean_squared_kernel(slice(self.d_x, None), scales[self.d_x :])
        return prompts / self._mean_squared_kernel(slice(None), scales)

    def _mean_squared_kernel(self, part: slice, scales: jax.Array) -> jax.Array:
        """E exp(-|Z|^2) for Z the scaled difference of two independent draws.

        For Z ~ N(m, S) it is det(I + 2 S)^(-1/2) exp(-m^T (I + 2 S)^(-1) m).
        """
        means = self.means[:, part] / scales[None, :]
        covariances = self.covariances[:, part, part] / (scales[:, None] * scales[None, :])[None]
        difference = means[:, None] - means[None, :]
        widened = jnp.eye(scales.shape[0])[None, None] + 2 * (
            covariances[:, None] + covariances[None, :]
        )
        solved = jnp.linalg.solve(widened, difference[..., None])[..., 0]
        log_value = -0.5 * jnp.linalg.slogdet(widened)[1] - jnp.sum(difference * solved, axis=-1)
        return self.weights @ jnp.exp(log_value) @ self.weights


def _rows(points: Any, *, name: str) -> jax.Array:
    points = jnp.asarray(points, dtype=float)
    if points.ndim != 2:
        raise ValueError(f"{name}: expected rows [n, d], received shape {points.shape}.")
    return points


def _probabilities(weights: Any, count: int) -> jax.Array:
    """Weights `[count]`, equal where None; checked where they are concrete."""
    weights = jnp.full(count, 1 / count) if weights is None else jnp.asarray(weights, float)
    if weights.shape != (count,):
        raise ValueError(f"weights: expected shape ({count},), received {weights.shape}.")
    if checks.is_concrete(weights):
        total, least = float(jnp.sum(weights)), float(jnp.min(weights))
        # A float32 sum of many weights is off by their rounding.
        if not (least >= 0 and abs(total - 1) <= 1e-4):
            raise ValueError(
                f"weights: expected non-negative numbers that sum to 1, received sum {total}, "
                f"smallest {least}."
            )
    return weights


def _matrix_square_roots(covariances: jax.Array) -> jax.Array:
    """Symmetric square roots `[m, d, d]`: unlike Cholesky's factor they allow a variance of 0."""
    values, vectors = jnp.linalg.eigh(covariances)
    roots = jnp.sqrt(jnp.maximum(values, 0))
    return jnp.einsum("mij,mj,mkj->mik", vectors, roots, vectors)
