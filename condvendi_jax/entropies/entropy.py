"""Entropies, functions Gram -> scalar in nats, and their differences H(X|T) and I(X;T)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from condvendi_jax.base import checks
from condvendi_jax.entropies import eigenvalues

# Within this distance of order 1 the factor 1 / (1 - order) magnifies rounding: see `_renyi`.
NEAR_ONE = 0.1
# Beyond this order H differs from its limit by less than log(n) / order: no digit of float64.
_INFINITE = 1e17


@dataclasses.dataclass(frozen=True)
class Entropy:
    """The Renyi entropy of a Gram's spectrum, of all eigenvalues or of the leading ones.

    Attributes:
      order: the Renyi order in (0, inf]; 1 is the von Neumann entropy (CV eq. 2), 2 the order of
        RKE (CV eq. 4), infinity the min-entropy. At orders below 1, eigenvalues up to 16 eps of the
        largest count as zero.
      truncation: how many leading eigenvalues to keep and shift to sum to one (CV eq. 13), or None.
    """

    order: float = 1.0
    truncation: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", checks.check_order(self.order))
        object.__setattr__(self, "truncation", checks.check_truncation(self.truncation))

    @property
    def needs_spectrum(self) -> bool:
        """Whether eigenvalues are needed; order 2 without truncation is a Frobenius norm."""
        return self.order != 2 or self.truncation is not None

    def clamped(self, n: int) -> Entropy:
        """The same entropy for n points: a truncation above n becomes n, with a warning."""
        fitted = self.fitted(n)
        if fitted is not self:
            checks.warn(f"truncation {self.truncation} exceeds n = {n}: all eigenvalues are kept.")
        return fitted

    def fitted(self, n: int) -> Entropy:
        """The same entropy for n points: a truncation above n becomes n."""
        if self.truncation is None or self.truncation <= n:
            return self
        return dataclasses.replace(self, truncation=n)

    def __call__(self, gram: Any) -> jax.Array:
        """The entropy of K / n, an `Operator`: a scalar in nats between 0 and log n."""
        if not self.needs_spectrum:
            return of_squared_norm(gram.squared_frobenius_norm())
        return self.clamped(gram.n).of_spectrum(gram.eigenvalues())

    def of_spectrum(self, values: jax.Array) -> jax.Array:
        """The entropy of eigenvalues `[n]` of sum one, at least `truncation` of them."""
        if self.truncation is not None:
            values = eigenvalues.truncate(values, self.truncation)
        if self.order < 1:
            floor = eigenvalues.NOISE_FLOOR * jnp.finfo(values.dtype).eps * jnp.max(values)
            # A NaN marks a spectrum that was refused, and stays.
            values = jnp.where(values <= floor, 0, values)
        entropy = _nonnegative(_renyi(values, self.order))
        eigenvalues.check_spectra(entropy)
        return entropy


von_neumann = Entropy()
"""The von Neumann entropy: order 1, without truncation (CV eq. 2)."""


class PerTerm(NamedTuple):
    """One value for each entropy of a decomposition; None where there is none."""

    outputs: Any  # H(X)
    prompts: Any  # H(T)
    joint: Any  # H(X, T)


def of_pairs(values: PerTerm) -> PerTerm:
    """H(X), H(T) and H(X, T): outputs alone count as answers to one prompt, so that H(T) = 0."""
    if values.prompts is not None:
        return values
    return PerTerm(values.outputs, 0 * values.outputs, values.outputs)


class PerScore(NamedTuple):
    """One value for each of the three scores of a decomposition."""

    vendi: Any
    conditional: Any
    information: Any

    def map(self, function: Callable[..., Any], *others: PerScore) -> PerScore:
        """A function of the value of each score, here and in others."""
        return PerScore(*map(function, self, *others))


def log_scores(entropy_x: Any, entropy_t: Any, entropy_joint: Any) -> PerScore:
    """H(X), H(X|T) and I(X;T) in nats (CV eq. 5, 7); None if an entropy that it needs is None."""
    if entropy_t is None or entropy_joint is None:
        return PerScore(entropy_x, None, None)
    return PerScore(
        vendi=entropy_x,
        conditional=entropy_joint - entropy_t,
        information=None if entropy_x is None else entropy_x + entropy_t - entropy_joint,
    )


def of_squared_norm(norm: jax.Array) -> jax.Array:
    """The entropy of order 2 in nats, -log ||K / n||_F^2 (CV eq. 4)."""
    return _nonnegative(-jnp.log(norm))


def _nonnegative(entropy: jax.Array) -> jax.Array:
    """Rounding can leave the entropy of a constant Gram an ulp below zero."""
    return jnp.maximum(entropy, 0)


def _renyi(p: jax.Array, order: float) -> jax.Array:
    """The Renyi entropy of weights p `[n]`, of sum one; zeros and their gradients add nothing."""
    positive = ~(p <= 0)  # True for a NaN, which stays a NaN.
    log_p = jnp.log(jnp.where(positive, p, 1))
    if order == 1:
        return -jnp.sum(p * log_p)
    if order > _INFINITE:
        # The slope of `max` looks for the largest again, which a compiler may round otherwise.
        largest = p >= jax.lax.stop_gradient(jnp.max(p)) * (1 - 8 * jnp.finfo(p.dtype).eps)
        return -jnp.log(jnp.mean(p, where=largest))
    if abs(order - 1) < NEAR_ONE:
        # sum p^order - 1 = sum p (p^(order - 1) - 1), without the cancellation.
        return jnp.log1p(jnp.sum(p * jnp.expm1((order - 1) * log_p))) / (1 - order)
    largest = jax.lax.stop_gradient(jnp.max(jnp.where(positive, log_p, -jnp.inf)))  # Cancels.
    powers = jnp.where(positive, jnp.exp(order * (log_p - largest)), 0)
    return (order * largest + jnp.log(jnp.sum(powers))) / (1 - order)
