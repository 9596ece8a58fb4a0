"""The scores of the papers, by clusters and by modes too, and what the papers compare with."""

from condvendi_jax.scores._decompose import (
    Decomposition,
    Estimation,
    Scores,
    conditional_rke,
    conditional_vendi,
    decompose,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from condvendi_jax.scores._in_strips import decompose_in_strips

__all__ = [
    "Decomposition",
    "Estimation",
    "Scores",
    "conditional_rke",
    "conditional_vendi",
    "decompose",
    "decompose_in_strips",
    "information_rke",
    "information_vendi",
    "rke",
    "vendi",
]
