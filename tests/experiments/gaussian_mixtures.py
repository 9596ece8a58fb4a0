"""Mixtures of Gaussians whose RKE and Conditional-RKE are known in closed form."""

from typing import Any

import jax
import jax.numpy as jnp

from condvendi_jax.data.kernels import Gaussian


class GaussianMixture:
    """A mixture of Gaussians, of outputs alone or of pairs [output, prompt].

    Args:
      means: `[m, d]`; for pairs the first `d_x` coordinates are the output, the rest the prompt.
      covariances: `[m, d, d]`.
      weights: probabilities `[m]`; equal when not given.
      d_x: number of output coordinates; None for a population without prompts.
    """

    def __init__(self, means: Any, covariances: Any, weights: Any = None, d_x: int | None = None):
        self.means, self.covariances = (jnp.asarray(a, float) for a in (means, covariances))
        m = self.means.shape[0]
        self.weights = jnp.full(m, 1 / m) if weights is None else jnp.asarray(weights, float)
        self.d_x = d_x

    def sample(self, key: jax.Array, n: int) -> Any:
        """Draws n points `[n, d]`, or the pair (outputs, prompts) where `d_x` is given."""
        key_mode, key_noise = jax.random.split(key)
        mode = jax.random.choice(key_mode, self.weights.shape[0], (n,), p=self.weights)
        noise = jax.random.normal(key_noise, (n, self.means.shape[1]), self.means.dtype)
        # Symmetric roots: unlike Cholesky's factor they allow a variance of 0.
        values, vectors = jnp.linalg.eigh(self.covariances)
        roots = jnp.sqrt(jnp.maximum(values, 0))
        factors = jnp.einsum("mij,mj,mkj->mik", vectors, roots, vectors)
        points = self.means[mode] + jnp.einsum("nij,nj->ni", factors[mode], noise)
        return points if self.d_x is None else (points[:, : self.d_x], points[:, self.d_x :])

    def rke(self, *, kernel: Gaussian) -> jax.Array:
        """Population RKE of the outputs: 1 / E[k(X, X')^2], a sum of m^2 Gaussian integrals."""
        d_x = self.means.shape[1] if self.d_x is None else self.d_x
        return 1 / self._mean_squared_kernel(slice(d_x), jnp.full(d_x, kernel.bandwidth))

    def conditional_rke(self, *, output_kernel: Gaussian, prompt_kernel: Gaussian) -> jax.Array:
        """Population Conditional-RKE E[k_T^2] / E[k_X^2 k_T^2] (CV eq. 11 as n grows)."""
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
