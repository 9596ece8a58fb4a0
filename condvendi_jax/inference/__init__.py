"""From scores to conclusions: standard errors, convergence in n, evaluations and comparisons."""

from condvendi_jax.inference import saturation
from condvendi_jax.inference._between import Between, between_models
from condvendi_jax.inference._certain import FiniteSampleInterval, bounds_at, finite_sample_interval
from condvendi_jax.inference._compare import compare, holm, letter_display
from condvendi_jax.inference._contributions import Contributions, contributions
from condvendi_jax.inference._convergence import ConvergenceCurve, convergence_curve, settled_from
from condvendi_jax.inference._designs import AtCoverage, at_equal_coverage
from condvendi_jax.inference._evaluate import decomposition_errors, evaluate
from condvendi_jax.inference._jackknife import (
    Deletions,
    Groups,
    delete_groups,
    group_rows,
    standard_error,
)
from condvendi_jax.inference._mixture import Mixture, mixture
from condvendi_jax.inference._profile import LADDER, PairProfile, Profile, profile
from condvendi_jax.inference._prompt_table import PromptScore, PromptTable, prompt_table
from condvendi_jax.inference._results import (
    Comparison,
    Difference,
    Evaluation,
    Ranking,
    ScoredOrder,
)
from condvendi_jax.inference._select import Selection, select

__all__ = [
    "LADDER",
    "AtCoverage",
    "Between",
    "Comparison",
    "Contributions",
    "ConvergenceCurve",
    "Deletions",
    "Difference",
    "Evaluation",
    "FiniteSampleInterval",
    "Groups",
    "Mixture",
    "PairProfile",
    "Profile",
    "PromptScore",
    "PromptTable",
    "Ranking",
    "ScoredOrder",
    "Selection",
    "at_equal_coverage",
    "between_models",
    "bounds_at",
    "compare",
    "contributions",
    "convergence_curve",
    "decomposition_errors",
    "delete_groups",
    "evaluate",
    "finite_sample_interval",
    "group_rows",
    "holm",
    "letter_display",
    "mixture",
    "profile",
    "prompt_table",
    "saturation",
    "select",
    "settled_from",
    "standard_error",
]
