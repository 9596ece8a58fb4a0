"""Guidance: gradients of the scores as gradient transformations of optax (CV section 6)."""

from condvendi_jax.guidance._memory import GuidanceState, remember, restart
from condvendi_jax.guidance._transforms import (
    clip_rows,
    conditional_rke,
    conditional_vendi,
    normalise_rows,
    rke,
    vendi,
)

__all__ = [
    "GuidanceState",
    "clip_rows",
    "conditional_rke",
    "conditional_vendi",
    "normalise_rows",
    "remember",
    "restart",
    "rke",
    "vendi",
]
