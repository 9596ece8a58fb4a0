"""Eigenvalues of Grams: all of them, estimates with an interval, and finite features."""

from condvendi_jax.grams._eigenvalues import truncate
from condvendi_jax.spectra._estimators import Budget, spectral_measure
from condvendi_jax.spectra._feature_maps import fourier_features, nystroem_features
from condvendi_jax.spectra._measures import Estimate, SpectralMeasure
from condvendi_jax.spectra._methods import (
    AUTO,
    Auto,
    Computed,
    Exact,
    MatrixFree,
    Method,
    Nystroem,
    RandomFeatures,
    Stored,
)

__all__ = [
    "AUTO",
    "Auto",
    "Budget",
    "Computed",
    "Estimate",
    "Exact",
    "MatrixFree",
    "Method",
    "Nystroem",
    "RandomFeatures",
    "SpectralMeasure",
    "Stored",
    "fourier_features",
    "nystroem_features",
    "spectral_measure",
    "truncate",
]
