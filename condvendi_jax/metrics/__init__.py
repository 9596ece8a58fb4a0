"""Accumulators in the form of `flax.nnx.Metric`, for training loops and for streams of batches.

They give the scores of `decompose` whatever the batches and their order. `StoredDecomposition`, and
`RKE`, `ConditionalRKE` and `InformationRKE`, each one score of it, take any kernel and keep the
points on the host. Flax is imported by this package alone: `from condvendi_jax import metrics`.
"""

from condvendi_jax.metrics.stored import RKE, ConditionalRKE, InformationRKE, StoredDecomposition

__all__ = ["RKE", "ConditionalRKE", "InformationRKE", "StoredDecomposition"]
