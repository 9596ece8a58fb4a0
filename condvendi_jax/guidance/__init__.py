"""Guidance: gradients of the scores as gradient transformations of optax (CV section 6)."""

from condvendi_jax.guidance.transforms import conditional_rke, conditional_vendi, rke, vendi
from condvendi_jax.guidance.window import GuidanceState, remember, restart

__all__ = ["GuidanceState", "conditional_rke", "conditional_vendi", "remember", "restart"]
__all__ += ["rke", "vendi"]
