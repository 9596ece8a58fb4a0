"""Populations whose entropies are known exactly, for checking estimates."""

from condvendi_jax.testing._populations import (
    Exponential,
    FiniteSupport,
    GaussianMixture,
    Uniform,
)

__all__ = ["Exponential", "FiniteSupport", "GaussianMixture", "Uniform"]
