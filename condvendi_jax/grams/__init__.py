"""Kernel matrices behind one interface: dense, tile by tile or of finite features."""

from condvendi_jax.base.devices import Layout, layout_of, mesh_of, to_host
from condvendi_jax.grams.operators import Gram, Operator, TiledGram, gram, grams_of, represent

__all__ = ["Gram", "Layout", "Operator", "TiledGram", "gram", "grams_of", "layout_of", "mesh_of"]
__all__ += ["represent", "to_host"]
