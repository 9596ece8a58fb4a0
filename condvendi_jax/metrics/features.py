"""The metric of kernels of finitely many features: sums of their outer products, a fixed state."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, of_squared_norm
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.kernels import Cosine
from condvendi_jax.metrics import batches
from condvendi_jax.metrics.batches import Points
from condvendi_jax.scores._decompose import Decomposition

FeatureMap = Callable[[jax.Array], jax.Array]
"""From points `[b, d]` to their features `[b, D]`."""

# Rows of a batch whose outer products are summed at once: they bound the memory of an update, and
# longer sums would lose digits in float32.
_ROWS_AT_ONCE = 1024


class _OuterSums(NamedTuple):
    """The state of a `FeatureDecomposition`: sums for X and, with prompts, for T and the pairs."""

    # The sums of the outer products of the features, times their weights, `[D, D]` each.
    totals: tuple[jax.Array, ...]
    remainders: tuple[jax.Array, ...]  # What rounding left out of each: twice the dtype's digits.
    count: jax.Array  # The number of samples of a weight above zero.
    refused: jax.Array  # How many batches were left out because their numbers were not right.


class FeatureDecomposition(nnx.Metric):
    """The decomposition of a stream under kernels of finitely many features, in a fixed state.

    The non-zero eigenvalues of K / n are those of the D x D matrix Z^T Z / n (CV Proposition 1), a
    mean over samples, whose sum is kept, compensated for rounding: O(D^2) memory whatever n.
    `update` may be part of a compiled training step. A pair has D = D_x D_t features, all products.

        metric = metrics.FeatureDecomposition(output_dimension=64, prompt_dimension=32)

        @nnx.jit
        def train_step(model, optimizer, metric, batch):
            ...
            metric.update(outputs=outputs, prompts=batch.prompts)

        print(metric.compute(order=1).conditional)

    Without feature maps the kernels are `Cosine`, exactly. A map of one's own gives the kernel
    <z(x), z(y)> / (|z(x)| |z(y)|). Random Fourier features, cos and sin of `points @ frequencies`
    for normal frequencies over the bandwidth, approach the Gaussian kernel, but only roughly for
    order 1: 2,000 of them left Vendi 6 to 31% off on mixtures. `StoredDecomposition` is exact.

    Args:
      output_dimension: d_x, of the embeddings.
      prompt_dimension: d_t; None for the diversity of outputs alone.
      output_features, prompt_features: pure maps of points `[n, d]` to features `[n, D]`, each row
        from its own point, which are then scaled to unit norm; the points themselves where None.
      max_features: the largest D accepted: the state holds two D x D arrays for the pairs, 128 MiB
        at 4,096 in float32.

    Raises:
      ValueError: a dimension is not a positive integer, a map does not give `[n, D]`, or there are
        more than `max_features` features.
    """

    def __init__(
        self,
        *,
        output_dimension: int,
        prompt_dimension: int | None = None,
        output_features: FeatureMap | None = None,
        prompt_features: FeatureMap | None = None,
        max_features: int = 4096,
    ) -> None:
        maps, dimensions = [output_features or jnp.asarray], [output_dimension]
        if prompt_dimension is not None:
            maps.append(prompt_features or jnp.asarray)
            dimensions.append(prompt_dimension)
        elif prompt_features is not None:
            raise ValueError("prompt_features: given without a prompt_dimension.")
        sizes = list(map(_feature_count, batches.NAMES, maps, dimensions))
        limit = validation.check_count(max_features, name="max_features", minimum=1)
        if math.prod(sizes) > limit:
            raise ValueError(
                f"max_features = {limit} is exceeded by {math.prod(sizes)} features "
                f"({' x '.join(map(str, sizes))}), whose outer products the state holds. Give "
                "fewer features (project the embeddings first), raise max_features, or use "
                "StoredDecomposition, which keeps the points in place of products."
            )
        self._maps, self._dimensions = tuple(maps), tuple(dimensions)
        self._sizes = (sizes[0],) if len(sizes) == 1 else (*sizes, math.prod(sizes))
        self.sums = nnx.metrics.MetricState(self._empty())

    def _empty(self) -> _OuterSums:
        zeros = tuple(jnp.zeros((size, size)) for size in self._sizes)
        return _OuterSums(zeros, zeros, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def reset(self) -> None:
        """Forgets all samples."""
        self.sums.set_value(self._empty())

    @property
    def n(self) -> int:
        """The number of samples so far; not inside jit."""
        return int(self.sums.get_value().count)

    def update(
        self,
        *,
        outputs: ArrayLike,
        prompts: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        **others: Any,
    ) -> None:
        """Adds a batch.

        Args:
          outputs, prompts, mask, weights, **others: as for `StoredDecomposition`; sizes of batch
            compile once each.

        Raises:
          TypeError, ValueError: as there, or features are not finite or all zero. Inside jit
            nothing can raise on values: the batch is left out whole, and `compute` warns of it.
        """
        batches.refuse_misspelt(others)
        with_prompts = len(self._maps) == 2
        points, weights, _ = batches.check_batch(
            outputs, prompts, mask, weights, with_prompts=with_prompts
        )
        batches.check_dimensions(points, self._dimensions)
        before = self.sums.get_value()
        after = _add_outer_products(before, points, weights, self._maps)
        if validation.is_concrete(before, points, weights) and int(after.refused - before.refused):
            self._raise_on_features(points)
        self.sums.set_value(after)

    def _raise_on_features(self, points: Points) -> None:
        """Names what is wrong with the features of a batch that was refused."""
        for name, feature_map, part in zip(batches.NAMES, self._maps, points, strict=False):
            name = f"features of {name}"
            made = validation.check_embeddings(feature_map(part), name=name)
            Cosine().check_points(made, name=name)
        raise ValueError("The features of this batch cannot be scaled to unit norm.")

    def merge(self, other: FeatureDecomposition) -> None:
        """Adds all samples of another metric; its state is a sum, and so is theirs together.

        Raises:
          TypeError, ValueError: the other has no features, or other feature maps or dimensions.
        """
        if not isinstance(other, FeatureDecomposition):
            raise TypeError(f"other: expected a FeatureDecomposition, received {other!r}.")
        mine, theirs = ((m._maps, m._dimensions) for m in (self, other))
        if mine != theirs:
            maps = f"{mine}, received {theirs}"
            raise ValueError(f"other: expected the feature maps and dimensions {maps}.")
        self.sums.set_value(_merge_outer_sums(self.sums.get_value(), other.sums.get_value()))

    def compute(self, *, order: float = 1, truncation: int | None = None) -> Decomposition:
        """The three entropies and the scores of all samples so far; not inside jit.

        Args:
          order, truncation: as for `StoredDecomposition`; order 2 without truncation needs no
            eigenvalues, any other takes O(D^3) time.

        Returns, Raises: as `StoredDecomposition.decompose`.
        """
        entropy = Entropy(order=order, truncation=truncation)
        sums, n = self.sums.get_value(), self.n
        if sums.refused:
            why = (
                "were left out inside jit: their features were not finite or all zero, or a weight "
                "was negative or not finite."
            )
            validation.warn(f"{int(sums.refused)} batch(es) {why}")
        batches.check_not_empty(self, n)
        entropy = entropy.clamped(n)
        found = _entropies_of_sums(sums, entropy)
        spectra.check_spectra(*found)
        return batches.decomposition(found, entropy, n)


def _feature_count(name: str, feature_map: FeatureMap, dimension: int) -> int:
    """How many features a map gives of points of a dimension."""
    name = name.removesuffix("s")
    dimension = validation.check_count(dimension, name=f"{name}_dimension", minimum=1)
    points = jax.ShapeDtypeStruct((2, dimension), validation.compute_dtype())
    shape = getattr(jax.eval_shape(feature_map, points), "shape", ())
    if len(shape) != 2 or shape[0] != 2 or shape[1] < 1:
        raise ValueError(
            f"{name}_features: expected a map of points [n, {dimension}] to "
            f"features [n, D], received one that gives shape {shape} for n = 2."
        )
    return shape[1]


@functools.partial(jax.jit, static_argnames="maps")
def _add_outer_products(
    sums: _OuterSums, points: Points, weights: jax.Array, maps: tuple[FeatureMap, ...]
) -> _OuterSums:
    """The sums with a batch added, or with one more refused where its numbers are not right."""
    dtype = sums.totals[0].dtype
    n = points[0].shape[0]
    roots = jnp.sqrt(weights.astype(dtype))
    blocks, size = pairwise.tiling(n, _ROWS_AT_ONCE)
    padded = (*pairwise.pad(points, blocks * size), jnp.pad(roots, (0, blocks * size - n)))
    cut = jax.tree.map(lambda leaf: leaf.reshape(blocks, size, *leaf.shape[1:]), padded)

    def add(carry: Any, block: Any) -> tuple[Any, None]:
        *parts, root = block
        unit = [
            Cosine().prepare(feature_map(part).astype(dtype))
            for feature_map, part in zip(maps, parts, strict=True)
        ]
        if len(unit) == 2:
            unit.append((unit[0][:, :, None] * unit[1][:, None, :]).reshape(size, -1))
        products = [spectra.outer_products(z * root[:, None]) for z in unit]
        added = [_add_exactly(*terms) for terms in zip(*carry, products, strict=True)]
        return tuple(zip(*added, strict=True)), None

    (totals, remainders), _ = lax.scan(add, (sums.totals, sums.remainders), cut)
    count = sums.count + jnp.sum(weights > 0, dtype=jnp.int32)
    after = _OuterSums(totals, remainders, count, sums.refused)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(total)) for total in totals]))
    refused = sums._replace(refused=sums.refused + 1)
    return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, refused)


def _add_exactly(
    total: jax.Array, remainder: jax.Array, more: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """total + more, rounded, and the remainder with what rounding lost (Knuth's two-sum).

    A running sum of k batches alone would lose up to k units in the last place.
    """
    rounded = total + more
    virtual = rounded - total
    return rounded, remainder + ((total - (rounded - virtual)) + (more - virtual))


@jax.jit
def _merge_outer_sums(one: _OuterSums, two: _OuterSums) -> _OuterSums:
    sums = zip(one.totals, one.remainders, two.totals, two.remainders, strict=True)
    added = [_add_exactly(total, lost + lost_too, other) for total, lost, other, lost_too in sums]
    totals, remainders = zip(*added, strict=True)
    return _OuterSums(totals, remainders, one.count + two.count, one.refused + two.refused)


@functools.partial(jax.jit, static_argnames="entropy")
def _entropies_of_sums(sums: _OuterSums, entropy: Entropy) -> tuple[jax.Array, ...]:
    """The entropies of the mean outer products, whose spectra are those of the Grams."""
    values = []
    for total, remainder in zip(sums.totals, sums.remainders, strict=True):
        summed = total + remainder
        # Features have unit norm: the trace is the sum of the weights.
        covariance = summed / jnp.trace(summed)
        if not entropy.needs_spectrum:
            values.append(of_squared_norm(spectra.squared_norm(covariance)))
            continue
        # A truncation counts eigenvalues of K / n, all but D of which are zero.
        length = max(entropy.truncation or 0, covariance.shape[0])
        values.append(entropy.of_spectrum(spectra.padded_spectrum(covariance, length)))
    return tuple(values)
