"""From scores to conclusions: standard errors, evaluations, comparisons and plans."""

from condvendi_jax.inference import saturation
from condvendi_jax.inference.between import between_models
from condvendi_jax.inference.comparisons import compare
from condvendi_jax.inference.errors import Groups, delete_groups
from condvendi_jax.inference.evaluations import evaluate
from condvendi_jax.inference.finite_sample import FiniteSampleInterval, finite_sample_interval
from condvendi_jax.inference.leaderboards import leaderboard
from condvendi_jax.inference.mixing import Mix, mix
from condvendi_jax.inference.monitoring import Look, Looks, Monitor, monitor
from condvendi_jax.inference.planning import Size, StudyPlan, plan
from condvendi_jax.inference.profiles import LADDER, profile
from condvendi_jax.inference.prompt_tables import (
    Contributions,
    PromptScore,
    PromptTable,
    contributions,
    prompt_table,
)
from condvendi_jax.inference.selection import Selection, select
from condvendi_jax.inference.stopping import AskedPrompt, Enough, enough
from condvendi_jax.results.between import Between
from condvendi_jax.results.comparison import Agreement, Comparison, Consensus
from condvendi_jax.results.estimate import Quality
from condvendi_jax.results.evaluation import Evaluation, ScoredOrder
from condvendi_jax.results.one_prompt import Curve, OnePrompt
from condvendi_jax.results.profile import PairProfile, Profile
from condvendi_jax.results.ranking import Difference, Ranking
from condvendi_jax.statistics.multiplicity import holm, letter_display
from condvendi_jax.statistics.shrinkage import PromptSpread

__all__ = ["LADDER", "Agreement", "AskedPrompt", "Between", "Comparison", "Consensus", "Curve"]
__all__ += ["Contributions", "Difference", "Enough", "Evaluation", "FiniteSampleInterval", "Groups"]
__all__ += ["Look", "Looks", "Monitor", "OnePrompt", "PairProfile", "Profile", "PromptScore"]
__all__ += ["PromptSpread", "PromptTable", "Quality", "Ranking", "ScoredOrder", "Selection", "Size"]
__all__ += ["StudyPlan", "between_models", "compare", "contributions", "delete_groups", "enough"]
__all__ += ["evaluate", "finite_sample_interval", "holm", "leaderboard", "letter_display", "plan"]
__all__ += ["Mix", "mix", "monitor", "profile", "prompt_table", "saturation", "select"]
