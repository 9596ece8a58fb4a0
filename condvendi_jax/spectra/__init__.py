"""Eigenvalues of Grams: all of them, estimates with an interval, and finite features."""

from condvendi_jax.grams._eigenvalues import truncate
from condvendi_jax.spectra._estimators import Budget, spectral_measure
from condvendi_jax.spectra._feature_maps import fourier_features
from condvendi_jax.spectra._measures import Estimate, SpectralMeasure
from condvendi_jax.spectra._methods import (
    AUTO,
    BY_NAME,
    Auto,
    Computed,
    Exact,
    MatrixFree,
    Method,
    RandomFeatures,
    Sampled,
    Stored,
    compute,
    named,
)

__all__ = [
    "AUTO",
    "BY_NAME",
    "Auto",
    "Budget",
    "Computed",
    "Estimate",
    "Exact",
    "MatrixFree",
    "Method",
    "RandomFeatures",
    "Sampled",
    "SpectralMeasure",
    "Stored",
    "compute",
    "fourier_features",
    "named",
    "spectral_measure",
    "truncate",
]
