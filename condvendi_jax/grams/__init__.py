"""Gram matrices behind one interface: dense, tiled, of finite features, sharded over devices."""

from condvendi_jax.grams._blocks import Factor
from condvendi_jax.grams._grams import DenseGram, FeatureGram, Gram, TiledGram, gram, represent
from condvendi_jax.grams._layouts import Layout, layout_of, mesh_of, to_host
from condvendi_jax.grams._sharding import ShardedFeatures, ShardedGram, StoredGram

__all__ = [
    "DenseGram",
    "Factor",
    "FeatureGram",
    "Gram",
    "Layout",
    "ShardedFeatures",
    "ShardedGram",
    "StoredGram",
    "TiledGram",
    "gram",
    "layout_of",
    "mesh_of",
    "represent",
    "to_host",
]
