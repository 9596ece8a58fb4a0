"""The results of `evaluate`, `compare` and the like: plain data that prints as text."""

from condvendi_jax.inference.results.between import Between
from condvendi_jax.inference.results.comparison import Comparison, Design
from condvendi_jax.inference.results.evaluation import (
    Advice,
    ErrorsBy,
    Evaluation,
    Limit,
    ScoredOrder,
)
from condvendi_jax.inference.results.looks import Look, Looks
from condvendi_jax.inference.results.planning import Size, StudyPlan
from condvendi_jax.inference.results.profile import PairProfile, Profile
from condvendi_jax.inference.results.prompts import PromptScore, PromptSpread, PromptTable
from condvendi_jax.inference.results.quality import Quality
from condvendi_jax.inference.results.ranking import Difference, Ranking

__all__ = [
    "Advice",
    "Between",
    "Comparison",
    "Design",
    "Difference",
    "ErrorsBy",
    "Evaluation",
    "Look",
    "Looks",
    "PairProfile",
    "Profile",
    "PromptScore",
    "PromptSpread",
    "PromptTable",
    "Quality",
    "Ranking",
    "ScoredOrder",
    "Size",
    "StudyPlan",
]
