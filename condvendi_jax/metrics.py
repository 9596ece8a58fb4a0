"""Accumulators in the form of `flax.nnx.Metric`, for training loops and for streams of batches.

Where `decompose` wants all samples at once, these take them batch by batch and give the same
scores whatever the batches and their order. There are two ways of remembering a stream:

- `StoredDecomposition`, and `RKE`, `ConditionalRKE` and `InformationRKE`, which are one score of
  it: any kernel. The points stay on the host and the sums over pairs are kept up to date.
- `FeatureDecomposition`: kernels of finitely many features, such as the cosine kernel. What is
  kept are the sums of their outer products: a state of fixed size, whatever the stream.

Flax is imported by this module alone: `from condvendi_jax import metrics`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from condvendi_jax import blocks, scores, spectra, tiles, validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.kernels import Cosine, Gaussian, Kernel, check_kernel
from condvendi_jax.scores import Decomposition

FeatureMap = Callable[[jax.Array], jax.Array]
Points = tuple[Any, ...]  # Outputs `[n, d_x]` and, where there are prompts, prompts `[n, d_t]`.

_NAMES = ("outputs", "prompts")
# Batches are padded to 16, 32, 64 ... rows, so that few sizes are ever compiled.
_FEWEST_ROWS = 16
# Rows of a batch whose outer products are summed at once: they bound the memory of an update, and
# longer sums would lose digits in float32.
_ROWS_AT_ONCE = 1024
# Mean squares of kernel values between different points: all below 1e-6, or all above 1 - 1e-6.
_NUMERICALLY_IDENTITY, _NUMERICALLY_CONSTANT = 1e-12, 1 - 2e-6


@dataclasses.dataclass(frozen=True, eq=False)
class _Stream:
    """All points of a stream and the sums over their pairs, on the host.

    Never changed in place, so that copies of a metric may share it; and no pytree, so that Flax
    leaves it where it is.

    Attributes:
      kernels: of the outputs and, where there are any, of the prompts.
      tile_size: the points of a block.
      blocks: the points, all blocks full but the last.
      totals: sums over the pairs i < j of k_X^2 and, with prompts, of k_T^2 and of their product,
        in float64.
    """

    kernels: tuple[Kernel, ...]
    tile_size: int
    blocks: tuple[Points, ...]
    totals: np.ndarray

    @classmethod
    def empty(cls, kernels: tuple[Kernel, ...], tile_size: int) -> _Stream:
        """The stream of no points."""
        return cls(kernels, tile_size, (), np.zeros(2 * len(kernels) - 1))

    @property
    def n(self) -> int:
        """The number of samples."""
        return sum(block[0].shape[0] for block in self.blocks)

    @property
    def dimensions(self) -> tuple[int, ...] | None:
        """Of the points, where there are any."""
        return tuple(part.shape[1] for part in self.blocks[0]) if self.blocks else None

    def points(self) -> Points:
        """All samples, in the order of their arrival."""
        return tuple(np.concatenate(parts) for parts in zip(*self.blocks, strict=True))

    def identical(self, index: int) -> bool:
        """Whether all outputs (0) or all prompts (1) are the same."""
        parts = [block[index] for block in self.blocks]
        return all(bool((part == parts[0][:1]).all()) for part in parts)

    def with_points(self, points: Points) -> _Stream:
        """The stream with points `[n, d]` added."""
        return self._extended(points, np.arange(self.n, self.n + points[0].shape[0]))

    def with_stream(self, other: _Stream) -> _Stream:
        """The stream with those of another added, whose own pairs are known."""
        points = other.points()
        return self._extended(points, np.full(points[0].shape[0], self.n), known=other.totals)

    def _extended(self, points: Points, earlier: np.ndarray, known: Any = 0) -> _Stream:
        """With points that each pair with the first `earlier` of all, and sums known already."""
        blocks = _in_blocks(self.blocks, points, self.tile_size)
        new = _sums_of_pairs(self.kernels, blocks, self.tile_size, points, earlier)
        totals = self.totals + known + new
        if not np.isfinite(totals).all():
            raise ValueError(
                "The kernels are not finite on these and the earlier points: do their squared "
                "distances overflow? Rescale embeddings and bandwidth."
            )
        return dataclasses.replace(self, blocks=blocks, totals=totals)


class _StoredPoints(nnx.Metric):
    """What the metrics that keep their points share: everything but the number they report."""

    def __init__(
        self, output_kernel: Kernel, prompt_kernel: Kernel | None, tile_size: int | None
    ) -> None:
        kernels = (check_kernel(output_kernel, name="output_kernel"),)
        if prompt_kernel is not None:
            kernels += (check_kernel(prompt_kernel, name="prompt_kernel"),)
        size = tiles.default_tile_size() if tile_size is None else tile_size
        size = validation.check_count(size, name="tile_size", minimum=1)
        self._stream = _Stream.empty(kernels, size)

    def reset(self) -> None:
        """Forgets all samples."""
        self._stream = _Stream.empty(self._stream.kernels, self._stream.tile_size)

    @property
    def n(self) -> int:
        """The number of samples so far."""
        return self._stream.n

    def update(self, *, outputs: Any, prompts: Any = None, mask: Any = None, **_: Any) -> None:
        """Adds a batch: its points, and its pairs with themselves and with all stored points.

        Args:
          outputs: embeddings `[b, d_x]`, any number of them.
          prompts: embeddings `[b, d_t]`; not read by a metric without a prompt kernel.
          mask: booleans `[b]`, False for rows to leave out, such as the padding of a last batch.
          _: what the other metrics of an `nnx.MultiMetric` read.

        Raises:
          TypeError, ValueError: as `decompose`, or the dimensions are not those of the first
            batch, or the call is inside `jax.jit`. The metric is then as it was before.
        """
        points, mask = _check_batch(
            outputs, prompts, mask, with_prompts=len(self._stream.kernels) == 2
        )
        if not validation.is_concrete(points, mask):
            raise ValueError(
                f"{type(self).__name__} keeps its points on the host and cannot be updated inside "
                "jit: call update outside, or use FeatureDecomposition."
            )
        _check_dimensions(points, self._stream.dimensions)
        for name, kernel, part in zip(_NAMES, self._stream.kernels, points, strict=False):
            kernel.check_points(part, name=name)
        rows = slice(None) if mask is None else np.asarray(mask)
        points = tuple(np.asarray(part)[rows] for part in points)
        if points[0].shape[0]:
            self._stream = self._stream.with_points(points)

    def merge(self, other: _StoredPoints) -> None:
        """Adds all samples of another metric, at the cost of the pairs between the two.

        Raises:
          TypeError, ValueError: the other metric does not store its points, or its kernels or
            dimensions are others. The metric is then as it was before.
        """
        if not isinstance(other, _StoredPoints):
            raise TypeError(f"other: expected a metric of stored points, received {other!r}.")
        mine, theirs = self._stream, other._stream
        if not _same_kernels(mine.kernels, theirs.kernels):
            raise ValueError(
                f"other: expected the kernels {mine.kernels}, received {theirs.kernels}."
            )
        if theirs.n:
            _check_dimensions(theirs.blocks[0], mine.dimensions)
            self._stream = mine.with_stream(theirs)

    def decompose(
        self, *, order: float = 2, truncation: int | None = None, **options: Any
    ) -> Decomposition:
        """The three entropies and the scores of all samples so far.

        Args:
          order: the Renyi order in (0, inf]. Order 2 is known at any moment, at no cost; every
            other order, and any truncation, runs `decompose` on the stored points.
          truncation: how many eigenvalues every entropy keeps; all where None.
          **options: further keyword arguments of `decompose`, which is then what runs: `method`,
            `key` and `rtol`, for instance, where n is large.

        Returns:
          A `Decomposition`. Without prompts it is that of one and the same prompt for all samples:
          H(T) = 0, and the conditional score is the score itself.

        Raises:
          ValueError: there are no samples yet; otherwise as `decompose`.
        """
        entropy = Entropy(order=order, truncation=truncation)
        _check_not_empty(self, self.n)
        entropy = entropy.clamped(self.n)
        if entropy.needs_spectrum or options:
            return self._decompose_points(entropy, options)
        self._warn_of_extreme_bandwidths()
        n = self.n
        norms = jnp.asarray((2 * self._stream.totals / n + 1) / n, validation.compute_dtype())
        return _decomposition(tuple(jnp.maximum(-jnp.log(norms), 0)), entropy, n)

    def _decompose_points(self, entropy: Entropy, options: dict[str, Any]) -> Decomposition:
        """`decompose` on the stored points; without prompts, with one and the same for all."""
        points, kernels = self._stream.points(), self._stream.kernels
        if len(kernels) == 1:
            points = (*points, np.zeros((self.n, 1), points[0].dtype))
            kernels = (*kernels, Gaussian(1.0))
        return scores.decompose(
            *points,
            output_kernel=kernels[0],
            prompt_kernel=kernels[1],
            order=entropy.order,
            truncation=entropy.truncation,
            **options,
        )

    def _warn_of_extreme_bandwidths(self) -> None:
        """Warns where a Gram is numerically constant or the identity, as `decompose` does."""
        pairs = self.n * (self.n - 1) / 2
        if not pairs:
            return
        for index, (name, kernel) in enumerate(zip(_NAMES, self._stream.kernels, strict=False)):
            mean = self._stream.totals[index] / pairs
            if mean > _NUMERICALLY_CONSTANT and not self._stream.identical(index):
                says = "constant and its scores are 1"
            elif mean < _NUMERICALLY_IDENTITY:
                says = "the identity and its scores only count points"
            else:
                continue
            warnings.warn(f"{name}: under {kernel!r} the Gram is numerically {says}.", stacklevel=4)


class StoredDecomposition(_StoredPoints):
    """The decomposition of a stream under any kernels, from all of its points.

        metric = metrics.StoredDecomposition(
            output_kernel=cv.Gaussian(0.8), prompt_kernel=cv.Gaussian(1.0)
        )
        for batch in batches:
            metric.update(outputs=batch.outputs, prompts=batch.prompts)
        print(metric.compute().conditional, metric.compute(order=1).conditional)

    The points are kept, O(n d) memory of the host. An update of b points costs O(b n d) time, its
    pairs with every point before it, tile by tile; that makes the scores of order 2 free at any
    moment. It runs outside `jax.jit`. Keep the metric out of the arguments of compiled functions
    too: to them it is a constant, and every update would compile them anew.

    Batches may be of any and of varying sizes. The result does not depend on them or on their
    order, nor on how streams were merged, beyond rounding. `nnx.clone` gives an independent copy.

    Args:
      output_kernel: the kernel of the outputs.
      prompt_kernel: the kernel of the prompts; None for the diversity of outputs alone.
      tile_size: how many points a tile has a side; what suits the device where None.

    Raises:
      TypeError, ValueError: a kernel is not one, or the tile size is not a positive integer.
    """

    def __init__(
        self,
        *,
        output_kernel: Kernel,
        prompt_kernel: Kernel | None = None,
        tile_size: int | None = None,
    ) -> None:
        super().__init__(output_kernel, prompt_kernel, tile_size)

    def compute(
        self, *, order: float = 2, truncation: int | None = None, **options: Any
    ) -> Decomposition:
        """All entropies and scores: see `decompose`."""
        return self.decompose(order=order, truncation=truncation, **options)


class RKE(_StoredPoints):
    """RKE of the outputs of a stream, the prompts unread (CV eq. 4).

    Args:
      kernel: the kernel of the outputs.
      tile_size, Raises: as `StoredDecomposition`, of which this is one score.
    """

    def __init__(self, *, kernel: Kernel, tile_size: int | None = None) -> None:
        super().__init__(kernel, None, tile_size)

    def compute(self) -> jax.Array:
        """The effective number of modes, in [1, n]; ValueError where there are no samples."""
        return self.decompose().vendi


class ConditionalRKE(_StoredPoints):
    """Conditional-RKE of a stream, the diversity that the model adds (CV eq. 9 and 11).

    Args:
      output_kernel, prompt_kernel, tile_size, Raises: as `StoredDecomposition`, of which this is
        one score. Several scores of one stream cost no more than one: take that class for them.
    """

    def __init__(
        self, *, output_kernel: Kernel, prompt_kernel: Kernel, tile_size: int | None = None
    ) -> None:
        super().__init__(
            output_kernel, check_kernel(prompt_kernel, name="prompt_kernel"), tile_size
        )

    def compute(self) -> jax.Array:
        """The effective number of modes, in [1, n]; ValueError where there are no samples."""
        return self.decompose().conditional


class InformationRKE(ConditionalRKE):
    """Information-RKE of a stream, the diversity owed to the prompts (CV eq. 10 and 11).

    Args, Raises: as `ConditionalRKE`.
    """

    def compute(self) -> jax.Array:
        """The effective number of modes; ValueError where there are no samples."""
        return self.decompose().information


class _OuterSums(NamedTuple):
    """The state of a `FeatureDecomposition`.

    Attributes:
      totals: sums of the outer products of the features of X and, with prompts, of T and of the
        pairs, `[D, D]` each.
      remainders: what rounding left out of each of them: sums keep twice the digits of the dtype.
      count: the number of samples.
      refused: how many batches were left out because they were not finite.
    """

    totals: tuple[jax.Array, ...]
    remainders: tuple[jax.Array, ...]
    count: jax.Array
    refused: jax.Array


class FeatureDecomposition(nnx.Metric):
    """The decomposition of a stream under kernels of finitely many features, in a fixed state.

    The non-zero eigenvalues of K / n are those of the D x D matrix Z^T Z / n (CV Proposition 1),
    a mean over samples: what is kept is its sum, compensated for rounding, and nothing else.
    O(D^2) memory whatever n, and `update` may be part of a compiled training step. The features of
    a pair are all products of a feature of X and one of T, D = D_x D_t of them.

        metric = metrics.FeatureDecomposition(output_dimension=64, prompt_dimension=32)

        @nnx.jit
        def train_step(model, optimizer, metric, batch):
            ...
            metric.update(outputs=outputs, prompts=batch.prompts)

        print(metric.compute(order=1).conditional)

    Without feature maps the kernels are `Cosine`, exactly. A map of one's own gives the kernel
    <z(x), z(y)> / (|z(x)| |z(y)|). Random Fourier features, for instance, approach the Gaussian
    kernel of a bandwidth:

        frequencies = jax.random.normal(key, (64, 30)) / bandwidth

        def fourier(points):
            angles = points @ frequencies
            return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1)

        metrics.FeatureDecomposition(output_dimension=64, output_features=fourier)

    but only roughly for order 1: even 2,000 of them left Vendi 6 to 31% off on mixtures. Where the
    Gaussian kernel is meant, `StoredDecomposition` is exact.

    Args:
      output_dimension: d_x, of the embeddings.
      prompt_dimension: d_t; None for the diversity of outputs alone.
      output_features: a pure map of points `[n, d_x]` to features `[n, D_x]`, each row from its
        own point, which are then scaled to unit norm; the points themselves where None.
      prompt_features: the same for prompts.
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
        maps, dimensions = [output_features or _identity], [output_dimension]
        if prompt_dimension is not None:
            maps.append(prompt_features or _identity)
            dimensions.append(prompt_dimension)
        elif prompt_features is not None:
            raise ValueError("prompt_features: given without a prompt_dimension.")
        sizes = [
            _feature_count(feature_map, d, name=name)
            for name, feature_map, d in zip(_NAMES, maps, dimensions, strict=False)
        ]
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

    def update(self, *, outputs: Any, prompts: Any = None, mask: Any = None, **_: Any) -> None:
        """Adds a batch.

        Args:
          outputs: embeddings `[b, d_x]`; every size of batch is compiled once.
          prompts: embeddings `[b, d_t]`; not read by a metric without prompts.
          mask: booleans `[b]`, False for rows to leave out, such as the padding of a last batch.
          _: what the other metrics of an `nnx.MultiMetric` read.

        Raises:
          TypeError, ValueError: as `decompose`, or the dimensions are not those of the metric, or
            features are not finite or all zero. The metric is then as it was before. Inside jit
            nothing can raise on values: the batch is left out whole and counted, and `compute`
            warns of it.
        """
        points, mask = _check_batch(outputs, prompts, mask, with_prompts=len(self._maps) == 2)
        _check_dimensions(points, self._dimensions)
        before = self.sums.get_value()
        after = _add_outer_products(before, points, mask, self._maps)
        if validation.is_concrete(before, points, mask) and int(after.refused - before.refused):
            self._raise_on_features(points)
        self.sums.set_value(after)

    def _raise_on_features(self, points: Points) -> None:
        """Names what is wrong with the features of a batch that was refused."""
        for name, feature_map, part in zip(_NAMES, self._maps, points, strict=False):
            features = validation.check_embeddings(feature_map(part), name=f"features of {name}")
            Cosine().check_points(features, name=f"features of {name}")
        raise ValueError("The features of this batch cannot be scaled to unit norm.")

    def merge(self, other: FeatureDecomposition) -> None:
        """Adds all samples of another metric; its state is a sum, and so is theirs together.

        Raises:
          TypeError, ValueError: the other metric is not one of features, or has other feature maps
            or dimensions.
        """
        if not isinstance(other, FeatureDecomposition):
            raise TypeError(f"other: expected a FeatureDecomposition, received {other!r}.")
        mine, theirs = ((m._maps, m._dimensions) for m in (self, other))
        if mine != theirs:
            raise ValueError(
                f"other: expected the feature maps and dimensions {mine}, received {theirs}."
            )
        self.sums.set_value(_merge_outer_sums(self.sums.get_value(), other.sums.get_value()))

    def compute(self, *, order: float = 2, truncation: int | None = None) -> Decomposition:
        """The three entropies and the scores of all samples so far; not inside jit.

        Args:
          order: the Renyi order in (0, inf]; order 2 without truncation needs no eigenvalues, any
            other takes O(D^3) time.
          truncation: how many eigenvalues every entropy keeps; all where None.

        Returns:
          A `Decomposition`. Without prompts it is that of one and the same prompt for all samples:
          H(T) = 0, and the conditional score is the score itself.

        Raises:
          ValueError: there are no samples yet, or an argument is out of range.
        """
        entropy = Entropy(order=order, truncation=truncation)
        sums, n = self.sums.get_value(), self.n
        if sums.refused:
            warnings.warn(
                f"{int(sums.refused)} batch(es) were left out inside jit: their features were not "
                "finite or all zero.",
                stacklevel=2,
            )
        _check_not_empty(self, n)
        entropy = entropy.clamped(n)
        return _decomposition(_entropies_of_sums(sums, entropy), entropy, n)


def _check_batch(
    outputs: Any, prompts: Any, mask: Any, *, with_prompts: bool
) -> tuple[Points, jax.Array | None]:
    """The points of a batch, checked and cast, and its mask; masked rows may hold anything."""
    if with_prompts and prompts is None:
        raise ValueError("prompts: expected embeddings [n, d], as the metric has a prompt kernel.")
    arrays = [outputs, prompts] if with_prompts else [outputs]
    if mask is not None:
        mask = jnp.asarray(mask)
        arrays = [_without_masked(a, mask) for a in arrays]
    if not with_prompts:
        return (validation.check_embeddings(arrays[0], name="outputs"),), mask
    return validation.check_pairs(*arrays), mask


def _without_masked(array: Any, mask: jax.Array) -> Any:
    """The array with ones, on which every kernel is defined, in the place of masked rows."""
    array = array if isinstance(array, jax.Array) else np.asarray(array)
    if array.ndim != 2:
        return array  # The checks that follow refuse it.
    if mask.shape != array.shape[:1] or mask.dtype != bool:
        raise ValueError(
            f"mask: expected booleans of shape {array.shape[:1]}, one a row, received {mask.dtype} "
            f"of shape {mask.shape}."
        )
    if validation.is_concrete(array, mask):
        return np.where(np.asarray(mask)[:, None], array, np.ones_like(array))
    return jnp.where(mask[:, None], array, jnp.ones_like(array))


def _check_dimensions(points: Points, expected: tuple[int, ...] | None) -> None:
    """Raises where points are not of the dimensions that the stream has."""
    if expected is None:
        return
    for name, want, part in zip(_NAMES, expected, points, strict=False):
        got = part.shape[1]
        if want != got:
            raise ValueError(f"{name}: expected embeddings of dimension {want}, received {got}.")


def _check_not_empty(metric: nnx.Metric, n: int) -> None:
    if n == 0:
        raise ValueError(f"{type(metric).__name__} has no samples yet: call update first.")


def _decomposition(entropies: tuple[jax.Array, ...], entropy: Entropy, n: int) -> Decomposition:
    """Of H(X), H(T) and H(X, T), or of H(X) alone: then every sample has the same prompt."""
    if len(entropies) == 1:
        entropies = (entropies[0], jnp.zeros_like(entropies[0]), entropies[0])
    return Decomposition(
        *entropies,
        order=entropy.order,
        truncation=entropy.truncation,
        n=n,
        dtype=np.dtype(entropies[0].dtype).name,
        method="exact" if entropy.needs_spectrum else "frobenius",
    )


def _same_kernels(one: tuple[Kernel, ...], two: tuple[Kernel, ...]) -> bool:
    """Whether kernels are of the same kinds and parameters."""
    if jax.tree.structure(one) != jax.tree.structure(two):
        return False
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def _in_blocks(blocks: tuple[Points, ...], points: Points, size: int) -> tuple[Points, ...]:
    """The blocks with points appended, all full but the last; none of the given ones changes."""
    if blocks and blocks[-1][0].shape[0] < size:
        points = tuple(np.concatenate(pair) for pair in zip(blocks[-1], points, strict=True))
        blocks = blocks[:-1]
    starts = range(0, points[0].shape[0], size)
    return (*blocks, *(tuple(part[start : start + size] for part in points) for start in starts))


def _sums_of_pairs(
    kernels: tuple[Kernel, ...],
    blocks: tuple[Points, ...],
    size: int,
    points: Points,
    earlier: np.ndarray,
) -> np.ndarray:
    """Sums of squared kernel values over the pairs of each point with the first in the blocks.

    Args:
      kernels: of the outputs and, where there are any, of the prompts.
      blocks: tiles of `size` points each but for the last.
      size: of a tile.
      points: arrays `[n, d]`.
      earlier: with how many of those in the blocks every point pairs, `[n]`.

    Returns:
      The sums for X and, with prompts, for T and the pairs: float32 within a row of a tile, float64
      beyond.
    """
    totals = np.zeros(2 * len(kernels) - 1)
    for start in range(0, earlier.shape[0], size):
        rows = tuple(part[start : start + size] for part in points)
        limits = earlier[start : start + size]
        height = min(size, max(_FEWEST_ROWS, 1 << (limits.shape[0] - 1).bit_length()))
        # Rows of the padding pair with none.
        padded_limits = np.pad(limits, (0, height - limits.shape[0]))
        padded_rows = jax.device_put(_padded(rows, height))
        for index in range(-(-int(limits.max()) // size)):
            counted = np.clip(padded_limits - index * size, 0, size).astype(np.int32)
            sums = _sums_in_tile(kernels, padded_rows, _padded(blocks[index], size), counted)
            totals += np.asarray(sums, np.float64).sum(axis=1)
    return totals


def _padded(points: Points, length: int) -> Points:
    """Points with copies of the first at the end: a kernel may be undefined at zero."""
    missing = length - points[0].shape[0]
    if not missing:
        return points
    return tuple(np.concatenate([part, np.repeat(part[:1], missing, axis=0)]) for part in points)


@jax.jit
def _sums_in_tile(
    kernels: tuple[Kernel, ...], rows: Points, columns: Points, counted: jax.Array
) -> jax.Array:
    """For every row the sums over the first `counted[row]` columns, `[1 or 3, row]`.

    Rows and columns are prepared together: what a kernel does relative to its points, such as the
    Gaussian's centring, is then the same for both, and as near to them as it can be.
    """
    height, width = rows[0].shape[0], columns[0].shape[0]
    inside = jnp.arange(width, dtype=counted.dtype)[None, :] < counted[:, None]
    squares = []
    for kernel, left, right in zip(kernels, rows, columns, strict=True):
        prepared = kernel.prepare(jnp.concatenate([left, right]))
        of_rows, of_columns = (
            jax.tree.map(lambda leaf, part=part: leaf[part], prepared)
            for part in (slice(height), slice(height, None))
        )
        squares.append(jnp.where(inside, jnp.square(kernel.cross(of_rows, of_columns)), 0))
    if len(squares) == 2:
        squares.append(squares[0] * squares[1])
    return jnp.stack([blocks.pairwise_sum(square) for square in squares])


def _identity(points: jax.Array) -> jax.Array:
    return points


def _feature_count(feature_map: FeatureMap, dimension: int, *, name: str) -> int:
    """How many features a map gives of points of a dimension."""
    dimension = validation.check_count(
        dimension, name=f"{name.removesuffix('s')}_dimension", minimum=1
    )
    points = jax.ShapeDtypeStruct((2, dimension), validation.compute_dtype())
    shape = getattr(jax.eval_shape(feature_map, points), "shape", ())
    if len(shape) != 2 or shape[0] != 2 or shape[1] < 1:
        raise ValueError(
            f"{name.removesuffix('s')}_features: expected a map of points [n, {dimension}] to "
            f"features [n, D], received one that gives shape {shape} for n = 2."
        )
    return shape[1]


@functools.partial(jax.jit, static_argnames="maps")
def _add_outer_products(
    sums: _OuterSums, points: Points, mask: jax.Array | None, maps: tuple[FeatureMap, ...]
) -> _OuterSums:
    """The sums with a batch added, or with one more refused where its features are not finite."""
    dtype = sums.totals[0].dtype
    n = points[0].shape[0]
    weights = jnp.ones(n, dtype) if mask is None else mask.astype(dtype)
    count, size = blocks.tiling(n, _ROWS_AT_ONCE)
    padded = (*blocks.pad(points, count * size), jnp.pad(weights, (0, count * size - n)))
    cut = jax.tree.map(lambda leaf: leaf.reshape(count, size, *leaf.shape[1:]), padded)

    def add(carry: Any, block: Any) -> tuple[Any, None]:
        *parts, inside = block
        features = [
            Cosine().prepare(feature_map(part).astype(dtype))
            for feature_map, part in zip(maps, parts, strict=True)
        ]
        if len(features) == 2:
            pairs = features[0][:, :, None] * features[1][:, None, :]
            features.append(pairs.reshape(size, -1))
        products = [
            jnp.matmul((z * inside[:, None]).T, z, precision=lax.Precision.HIGHEST)
            for z in features
        ]
        added = [_add_exactly(*terms) for terms in zip(*carry, products, strict=True)]
        return tuple(zip(*added, strict=True)), None

    (totals, remainders), _ = lax.scan(add, (sums.totals, sums.remainders), cut)
    after = _OuterSums(
        totals, remainders, sums.count + jnp.sum(weights).astype(jnp.int32), sums.refused
    )
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
    added = [
        _add_exactly(total, remainder + other_remainder, other)
        for total, remainder, other, other_remainder in zip(
            one.totals, one.remainders, two.totals, two.remainders, strict=True
        )
    ]
    totals, remainders = zip(*added, strict=True)
    return _OuterSums(totals, remainders, one.count + two.count, one.refused + two.refused)


@functools.partial(jax.jit, static_argnames="entropy")
def _entropies_of_sums(sums: _OuterSums, entropy: Entropy) -> tuple[jax.Array, ...]:
    """The entropies of the mean outer products, whose spectra are those of the Grams."""
    values = []
    for total, remainder in zip(sums.totals, sums.remainders, strict=True):
        covariance = (total + remainder) / sums.count.astype(total.dtype)
        if not entropy.needs_spectrum:
            norm = jnp.sum(jnp.sum(jnp.square(covariance), axis=1))
            values.append(jnp.maximum(-jnp.log(norm), 0))
            continue
        spectrum = spectra.spectrum(covariance)
        # A truncation counts eigenvalues of K / n, all but D of which are zero.
        missing = max((entropy.truncation or 0) - spectrum.shape[0], 0)
        values.append(entropy.of_spectrum(jnp.pad(spectrum, (0, missing))))
    return tuple(values)
