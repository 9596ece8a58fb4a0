"""Entropies, functions Gram -> scalar in nats, and the scores that are their exponentials."""

from condvendi_jax.entropies import eigenvalues
from condvendi_jax.entropies.entropy import (
    Computed,
    Decomposition,
    Entropy,
    Estimation,
    PerScore,
    PerTerm,
    Scores,
    log_scores,
    of_pairs,
    of_squared_norm,
    scores_of,
    von_neumann,
)

__all__ = ["Computed", "Decomposition", "Entropy", "Estimation", "PerScore", "PerTerm", "Scores"]
__all__ += ["log_scores", "of_pairs", "of_squared_norm", "scores_of", "von_neumann"]
