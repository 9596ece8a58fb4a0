"""Distributions whose scores are known exactly: what an estimate converges to.

Each population draws samples with an explicit key (`sample(key, n)`) and states its population
values in closed form, so that bias, rate and coverage can be measured instead of guessed.

On finite support everything is exact at every order: the population operator has the spectrum of
D^(1/2) K D^(1/2), K the kernel matrix of the k distinct atoms and D their weights, and a sample of
any size has the same spectrum with the weights replaced by its frequencies (`reweighted`). The
number of samples is therefore free. On a continuum (Gaussian mixture, uniform, exponential) the
order-2 scores of the Gaussian kernel are Gaussian integrals.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, log_ndtr

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.kernels import Gaussian, Kernel, check_kernel


@dataclasses.dataclass(frozen=True, eq=False)
class FiniteSupport:
    """Outputs, or pairs of an output and a prompt, that take k values.

    Args:
      outputs: atoms `[k, d_x]`.
      prompts: the prompt of each atom `[k, d_t]`; None for a population without prompts. Several
        atoms may share a prompt.
      weights: probabilities `[k]`; equal when not given.

    Raises:
      ValueError: shapes disagree, or concrete weights are negative or do not sum to 1.
    """

    outputs: Any
    prompts: Any = None
    weights: Any = None

    def __post_init__(self) -> None:
        """Converts to arrays and checks that they belong together."""
        outputs = jnp.asarray(self.outputs, dtype=float)
        if outputs.ndim != 2:
            raise ValueError(f"outputs: expected [k, d], received shape {outputs.shape}.")
        k = outputs.shape[0]
        weights = jnp.full(k, 1 / k) if self.weights is None else jnp.asarray(self.weights, float)
        if weights.shape != (k,):
            raise ValueError(f"weights: expected shape ({k},), received {weights.shape}.")
        if validation.is_concrete(weights):
            _check_weights(weights)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "weights", weights)
        if self.prompts is None:
            return
        prompts = jnp.asarray(self.prompts, dtype=float)
        if prompts.ndim != 2 or prompts.shape[0] != k:
            raise ValueError(f"prompts: expected [{k}, d], received shape {prompts.shape}.")
        object.__setattr__(self, "prompts", prompts)

    def sample(self, key: jax.Array, n: int) -> Any:
        """Draws n outputs `[n, d_x]`, or the pair (outputs, prompts) where there are prompts."""
        chosen = jax.random.choice(key, self.weights.shape[0], (n,), p=self.weights)
        if self.prompts is None:
            return self.outputs[chosen]
        return self.outputs[chosen], self.prompts[chosen]

    def frequencies(self, key: jax.Array, n: int) -> jax.Array:
        """Frequencies `[k]` of the atoms in a sample of n: all that a spectrum needs to know."""
        chosen = jax.random.choice(key, self.weights.shape[0], (n,), p=self.weights)
        return jnp.zeros_like(self.weights).at[chosen].add(1.0 / n)

    def reweighted(self, weights: Any) -> FiniteSupport:
        """The same atoms with other weights, a sample's frequencies say."""
        return dataclasses.replace(self, weights=weights)

    def spectrum(
        self, *, output_kernel: Kernel | None = None, prompt_kernel: Kernel | None = None
    ) -> jax.Array:
        """Eigenvalues `[k]` of the population operator, in descending order, summing to 1.

        With one kernel this is C_X or C_T, with both the joint C_XT (CV Proposition 1).
        """
        grams = []
        if output_kernel is not None:
            check_kernel(output_kernel, name="output_kernel")
            points = output_kernel.prepare(self.outputs)
            grams.append(output_kernel.cross(points, points))
        if prompt_kernel is not None:
            check_kernel(prompt_kernel, name="prompt_kernel")
            if self.prompts is None:
                raise ValueError("prompt_kernel: this population has no prompts.")
            points = prompt_kernel.prepare(self.prompts)
            grams.append(prompt_kernel.cross(points, points))
        if not grams:
            raise ValueError("spectrum: expected output_kernel, prompt_kernel, or both.")
        gram = functools.reduce(jnp.multiply, grams)
        roots = jnp.sqrt(self.weights)
        eigenvalues = jnp.linalg.eigvalsh(roots[:, None] * gram * roots[None, :])[::-1]
        # Rounding leaves eigenvalues of either sign near 0 where the atoms are dependent.
        floor = eigenvalues.shape[0] * jnp.finfo(eigenvalues.dtype).eps
        eigenvalues = jnp.where(eigenvalues > floor, eigenvalues, 0)
        return eigenvalues / jnp.sum(eigenvalues)

    def entropy(
        self, *, order: float = 1.0, truncation: int | None = None, **kernels: Kernel
    ) -> jax.Array:
        """Population entropy in nats; `kernels` as in `spectrum`, truncation as in CV eq. 13."""
        return Entropy(order=order, truncation=truncation).of_spectrum(self.spectrum(**kernels))

    def vendi(
        self, *, kernel: Kernel, order: float = 1.0, truncation: int | None = None
    ) -> jax.Array:
        """Population Vendi score, an effective number of modes (CV eq. 3; RKE at order 2)."""
        return jnp.exp(self.entropy(output_kernel=kernel, order=order, truncation=truncation))

    def rke(self, *, kernel: Kernel) -> jax.Array:
        """Population RKE score 1 / |C_X|_HS^2 (CV eq. 4)."""
        return self.vendi(kernel=kernel, order=2)

    def conditional_vendi(
        self,
        *,
        output_kernel: Kernel,
        prompt_kernel: Kernel,
        order: float = 1.0,
        truncation: int | None = None,
    ) -> jax.Array:
        """Population Conditional-Vendi score exp(H(C_XT) - H(C_T)) (CV eq. 6; RKE at order 2)."""
        entropy = functools.partial(self.entropy, order=order, truncation=truncation)
        joint = entropy(output_kernel=output_kernel, prompt_kernel=prompt_kernel)
        return jnp.exp(joint - entropy(prompt_kernel=prompt_kernel))

    def information_vendi(
        self,
        *,
        output_kernel: Kernel,
        prompt_kernel: Kernel,
        order: float = 1.0,
        truncation: int | None = None,
    ) -> jax.Array:
        """Population Information-Vendi score exp(H(C_X) + H(C_T) - H(C_XT)) (CV eq. 7)."""
        conditional = self.conditional_vendi(
            output_kernel=output_kernel,
            prompt_kernel=prompt_kernel,
            order=order,
            truncation=truncation,
        )
        return self.vendi(kernel=output_kernel, order=order, truncation=truncation) / conditional


@dataclasses.dataclass(frozen=True, eq=False)
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

    means: Any
    covariances: Any
    weights: Any = None
    d_x: int | None = None

    def __post_init__(self) -> None:
        """Brings the covariances to `[m, d, d]` and checks the shapes."""
        means = jnp.asarray(self.means, dtype=float)
        if means.ndim != 2:
            raise ValueError(f"means: expected [m, d], received shape {means.shape}.")
        m, d = means.shape
        covariances = jnp.asarray(self.covariances, dtype=float)
        if covariances.shape == (m,):
            covariances = covariances[:, None, None] * jnp.eye(d)[None]
        if covariances.shape != (m, d, d):
            raise ValueError(
                f"covariances: expected shape ({m},) or ({m}, {d}, {d}), "
                f"received {covariances.shape}."
            )
        weights = jnp.full(m, 1 / m) if self.weights is None else jnp.asarray(self.weights, float)
        if weights.shape != (m,):
            raise ValueError(f"weights: expected shape ({m},), received {weights.shape}.")
        if validation.is_concrete(weights):
            _check_weights(weights)
        if self.d_x is not None and not 0 < self.d_x < d:
            raise ValueError(f"d_x: expected a number from 1 to {d - 1}, received {self.d_x}.")
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", covariances)
        object.__setattr__(self, "weights", weights)

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
        scales = jnp.full(d_x, kernel.bandwidth)
        return 1 / self._mean_squared_kernel(slice(0, d_x), scales)

    def conditional_rke(self, *, output_kernel: Gaussian, prompt_kernel: Gaussian) -> jax.Array:
        """Population Conditional-RKE E[k_T^2] / E[k_X^2 k_T^2] (CV eq. 11 as n grows).

        Raises:
          ValueError: the population has no prompts (`d_x` was not given).
        """
        if self.d_x is None:
            raise ValueError("conditional_rke: this population has no prompts; give d_x.")
        d_t = self.means.shape[1] - self.d_x
        scale_x = jnp.full(self.d_x, output_kernel.bandwidth)
        scale_t = jnp.full(d_t, prompt_kernel.bandwidth)
        joint = self._mean_squared_kernel(slice(None), jnp.concatenate([scale_x, scale_t]))
        return self._mean_squared_kernel(slice(self.d_x, None), scale_t) / joint

    def collision_density(self) -> jax.Array:
        """Integral of the squared density; minus its logarithm is the order-2 entropy in nats."""
        d = self.means.shape[1]
        difference = self.means[:, None] - self.means[None, :]
        total = self.covariances[:, None] + self.covariances[None, :]
        solved = jnp.linalg.solve(total, difference[..., None])[..., 0]
        log_density = -0.5 * (
            jnp.sum(difference * solved, axis=-1)
            + jnp.linalg.slogdet(total)[1]
            + d * jnp.log(2 * jnp.pi)
        )
        return self.weights @ jnp.exp(log_density) @ self.weights

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


@dataclasses.dataclass(frozen=True, eq=False)
class Uniform:
    """The uniform distribution on a box.

    Args:
      low: `[d]` lower corner.
      high: `[d]` upper corner.

    Raises:
      ValueError: shapes disagree, or a side of the box is not longer than 0.
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        """Converts to arrays and checks that the box is one."""
        low, high = jnp.asarray(self.low, float), jnp.asarray(self.high, float)
        if low.ndim != 1 or low.shape != high.shape or not _holds(high > low):
            raise ValueError(f"Uniform: expected [d] corners, low < high, received {low}, {high}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """Draws n points `[n, d]`."""
        unit = jax.random.uniform(key, (n, self.low.shape[0]), self.low.dtype)
        return self.low[None, :] + (self.high - self.low)[None, :] * unit

    def rke(self, *, kernel: Gaussian) -> jax.Array:
        """Population RKE, the product over coordinates of a one-dimensional integral.

        For a side of r bandwidths, E[k^2] = sqrt(pi) erf(r) / r - (1 - exp(-r^2)) / r^2.
        """
        r = (self.high - self.low) / kernel.bandwidth
        mean = jnp.sqrt(jnp.pi) * erf(r) / r + jnp.expm1(-jnp.square(r)) / jnp.square(r)
        return 1 / jnp.prod(mean)

    def collision_density(self) -> jax.Array:
        """Integral of the squared density: one over the volume."""
        return 1 / jnp.prod(self.high - self.low)


@dataclasses.dataclass(frozen=True, eq=False)
class Exponential:
    """Independent exponential coordinates.

    Args:
      rates: `[d]`, each above 0; the mean of a coordinate is one over its rate.

    Raises:
      ValueError: the rates are not a vector of numbers above 0.
    """

    rates: Any

    def __post_init__(self) -> None:
        """Converts to an array and checks it."""
        rates = jnp.asarray(self.rates, float)
        if rates.ndim != 1 or not _holds(rates > 0):
            raise ValueError(f"Exponential: expected rates [d] above 0, received {rates}.")
        object.__setattr__(self, "rates", rates)

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """Draws n points `[n, d]`."""
        draws = jax.random.exponential(key, (n, self.rates.shape[0]), self.rates.dtype)
        return draws / self.rates[None, :]

    def rke(self, *, kernel: Gaussian) -> jax.Array:
        """Population RKE: the difference of two draws is Laplace.

        With s = rate * bandwidth / 2, E[k^2] = sqrt(pi) s exp(s^2) erfc(s). It is taken through
        the logarithm of the normal tail: exp(s^2) alone overflows.
        """
        s = self.rates * kernel.bandwidth / 2
        log_erfc = jnp.log(2.0) + log_ndtr(-jnp.sqrt(2.0) * s)
        return 1 / jnp.prod(jnp.sqrt(jnp.pi) * s * jnp.exp(jnp.square(s) + log_erfc))

    def collision_density(self) -> jax.Array:
        """Integral of the squared density: the product of half the rates."""
        return jnp.prod(self.rates / 2)


def _holds(condition: jax.Array) -> bool:
    """Whether a concrete condition holds throughout; a traced one is taken on trust."""
    return not validation.is_concrete(condition) or bool(jnp.all(condition))


def _check_weights(weights: jax.Array) -> None:
    total, least = float(jnp.sum(weights)), float(jnp.min(weights))
    # A float32 sum of many weights is off by their rounding.
    if not (least >= 0 and abs(total - 1) <= 1e-4):
        raise ValueError(
            f"weights: expected non-negative numbers that sum to 1, received sum {total}, "
            f"least {least}."
        )


def _matrix_square_roots(covariances: jax.Array) -> jax.Array:
    """Symmetric square roots `[m, d, d]`: unlike Cholesky's factor they allow a variance of 0."""
    values, vectors = jnp.linalg.eigh(covariances)
    roots = jnp.sqrt(jnp.maximum(values, 0))
    return jnp.einsum("mij,mj,mkj->mik", vectors, roots, vectors)
