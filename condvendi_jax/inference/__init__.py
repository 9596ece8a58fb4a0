"""From scores to conclusions: standard errors, convergence in n, evaluations and comparisons."""

from condvendi_jax.inference import saturation
from condvendi_jax.inference._compare import Comparison, Difference, Ranking, compare
from condvendi_jax.inference._evaluate import Evaluation, ScoredOrder, evaluate
from condvendi_jax.inference._jackknife import (
    ConvergenceCurve,
    convergence_curve,
    decomposition_errors,
    settled_from,
    standard_error,
)

__all__ = [
    "Comparison",
    "ConvergenceCurve",
    "Difference",
    "Evaluation",
    "Ranking",
    "ScoredOrder",
    "compare",
    "convergence_curve",
    "decomposition_errors",
    "evaluate",
    "saturation",
    "settled_from",
    "standard_error",
]
