"""The names of the package; `__init__.py` imports each from here when it is first used."""

from .inspect_ai import answer_diversity as answer_diversity
from .runs import numbers as numbers
from .runs import score_run as score_run
from .trl_reward import DiversityReward as DiversityReward

__all__: list[str]
