"""Kernel matrices behind one interface: dense, tile by tile or of finite features."""

from condvendi_jax.grams._grams import (
    DenseGram,
    FeatureGram,
    Gram,
    Operator,
    SharedTiles,
    TiledGram,
    gram,
    represent,
)
from condvendi_jax.grams._layouts import Layout, layout_of, mesh_of, to_host

__all__ = [
    "DenseGram",
    "FeatureGram",
    "Gram",
    "Layout",
    "Operator",
    "SharedTiles",
    "TiledGram",
    "gram",
    "layout_of",
    "mesh_of",
    "represent",
    "to_host",
]
