"""The gradients of the scores, for samplers and for training."""

from condvendi_jax.guidance._guidance import (
    Guidance,
    GuidanceState,
    conditional_rke,
    conditional_vendi,
    rke,
    vendi,
)

__all__ = [
    "Guidance",
    "GuidanceState",
    "conditional_rke",
    "conditional_vendi",
    "rke",
    "vendi",
]
