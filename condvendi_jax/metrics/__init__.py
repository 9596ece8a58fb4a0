"""Accumulators in the form of `flax.nnx.Metric`, for training loops and for streams of batches.

Where `decompose` wants all samples at once, these take them batch by batch and give the same
scores whatever the batches and their order. There are two ways of remembering a stream:

- `StoredDecomposition`, and `RKE`, `ConditionalRKE` and `InformationRKE`, which are one score of
  it: any kernel. The points stay on the host and the sums over pairs are kept up to date.
- `FeatureDecomposition`: kernels of finitely many features, such as the cosine kernel. What is
  kept are the sums of their outer products: a state of fixed size, whatever the stream.

Flax is imported by this package alone: `from condvendi_jax import metrics`.
"""

from condvendi_jax.metrics.features import FeatureDecomposition, FeatureMap
from condvendi_jax.metrics.stored import RKE, ConditionalRKE, InformationRKE, StoredDecomposition

__all__ = [
    "RKE",
    "ConditionalRKE",
    "FeatureDecomposition",
    "FeatureMap",
    "InformationRKE",
    "StoredDecomposition",
]
