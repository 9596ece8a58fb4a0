"""The scores of the papers, by clusters and by modes too, and what the papers compare with."""

from condvendi_jax.entropies import Decomposition, Estimation, Scores
from condvendi_jax.scores import baselines, clusters
from condvendi_jax.scores.papers import (
    conditional_rke,
    conditional_vendi,
    decompose,
    information_rke,
    information_vendi,
    rke,
    vendi,
)

__all__ = ["Decomposition", "Estimation", "Scores", "conditional_rke", "conditional_vendi"]
__all__ += ["decompose", "information_rke", "information_vendi", "rke", "vendi"]
