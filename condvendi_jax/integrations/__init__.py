"""The scores where other packages use them: a metric for Inspect, a reward for TRL and verl.

No package is imported before its part is called. `condvendi_jax.integrations.torch` is apart.
"""

from condvendi_jax.integrations.inspect_metric import answer_diversity
from condvendi_jax.integrations.trl_reward import DiversityReward

__all__ = ["DiversityReward", "answer_diversity"]
