"""Scores that the papers compare with: RRKE, and mutual information of Gaussian embeddings."""

from condvendi_jax.scores._mid import (
    gaussian_mutual_information,
    mutual_information_divergence,
    pointwise_mutual_information,
)
from condvendi_jax.scores._relative import root_fidelity, rrke

__all__ = [
    "gaussian_mutual_information",
    "mutual_information_divergence",
    "pointwise_mutual_information",
    "root_fidelity",
    "rrke",
]
