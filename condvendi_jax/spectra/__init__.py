"""Eigenvalues of Grams: all of them, or estimates with an interval."""

from condvendi_jax.spectra.computation import AUTO, Auto, compute, named
from condvendi_jax.spectra.estimators import Budget
from condvendi_jax.spectra.exact import Exact
from condvendi_jax.spectra.measures import Estimate, SpectralMeasure
from condvendi_jax.spectra.methods import Method
from condvendi_jax.spectra.refinement import MatrixFree, Stored, spectral_measure

__all__ = ["AUTO", "Auto", "Budget", "Estimate", "Exact", "MatrixFree", "Method"]
__all__ += ["SpectralMeasure", "Stored", "compute", "named", "spectral_measure"]
