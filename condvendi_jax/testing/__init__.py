"""Populations whose scores are known exactly, to check estimates against."""

from condvendi_jax.testing._populations import FiniteSupport, GaussianMixture

__all__ = ["FiniteSupport", "GaussianMixture"]
