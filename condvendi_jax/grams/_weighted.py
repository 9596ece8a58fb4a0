"""A Gram whose pairs of points have weights: the operator diag(w) K diag(w) / n."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.grams._blocks import Factors
from condvendi_jax.grams._grams import DenseGram, FeatureGram, Gram


def weighted(gram: Gram, weights: np.ndarray) -> Gram:
    """The Gram whose K / n is diag(w) K diag(w), for weights `[n]` of unit norm: K o w w^T.

    What it answers of K / n holds for that matrix; its diagonal is not one.
    """
    return WeightedGram(gram, math.sqrt(gram.n) * jnp.asarray(weights, gram.dtype))


@jax.tree_util.register_pytree_node_class
class WeightedGram(Gram):
    """K o w w^T of another Gram, which is formed where that one is.

    Args:
      gram: K.
      weights: w, `[n]`, of squared norm n.
    """

    def __init__(self, gram: Gram, weights: jax.Array):
        self.gram, self.weights = gram, weights

    @property
    def n(self) -> int:
        """The number of points."""
        return self.gram.n

    @property
    def dtype(self) -> jnp.dtype:
        """Of the Gram."""
        return self.gram.dtype

    def squared_frobenius_norm(self) -> jax.Array:
        """sum_ij w_i^2 (K_ij / n)^2 w_j^2, a product with K o K: never n x n."""
        squares = jnp.square(self.weights)
        return jnp.sum(squares * (self.gram * self.gram).matvec(squares)) / self.n

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K o w w^T / n) v."""
        weights = self.weights.reshape(-1, *(1,) * (vectors.ndim - 1))
        return weights * self.gram.matvec(weights * vectors)

    def store(self) -> Gram:
        """With the other Gram's matrix as an array."""
        return WeightedGram(self.gram.store(), self.weights)

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues, through the n x n array or the features."""
        if isinstance(self.gram, FeatureGram):
            return FeatureGram.trusted(self.gram.features * self.weights[:, None]).eigenvalues()
        return self.dense().eigenvalues()

    @property
    def rank_bound(self) -> int:
        """As of the Gram."""
        return self.gram.rank_bound

    def dense(self) -> DenseGram:
        """The n x n array."""
        matrix = self.gram.dense().matrix
        return DenseGram.trusted(matrix * self.weights[:, None] * self.weights[None, :])

    def factors(self) -> Factors:
        """Not available: a weight is no normalised kernel."""
        raise ValueError("WeightedGram: it has no factors.")

    def tree_flatten(self) -> tuple[tuple[Gram, jax.Array], None]:
        """The Gram and the weights are children."""
        return (self.gram, self.weights), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> WeightedGram:
        """Rebuilds the Gram."""
        return cls(*children)
