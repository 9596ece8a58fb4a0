"""The scores where other packages use them: one function for finished runs, and adapters.

No package is imported before its part is. Each evaluation tool has a module of its name.
"""

from condvendi_jax.integrations.inspect_ai import answer_diversity
from condvendi_jax.integrations.runs import numbers, score_run
from condvendi_jax.integrations.trl_reward import DiversityReward

__all__ = ["DiversityReward", "answer_diversity", "numbers", "score_run"]
