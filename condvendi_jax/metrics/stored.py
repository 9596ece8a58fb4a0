"""The stream of stored points, any kernel, and the metrics that are its scores."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.kernels import Kernel, check_kernel
from condvendi_jax.scores import _decompose as scores
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra import _order_two as order_two

Points = tuple[Any, ...]  # Outputs `[n, d_x]` and, where there are prompts, prompts `[n, d_t]`.

_NAMES = ("outputs", "prompts")
_ARGUMENTS = (*_NAMES, "mask", "weights")
# Batches are padded to 16, 32, 64 ... rows, so that few sizes are ever compiled.
_FEWEST_ROWS = 16
# Mean squares of kernel values between different points: all below 1e-6, or all above 1 - 1e-6.
_NUMERICALLY_IDENTITY, _NUMERICALLY_CONSTANT = 1e-12, 1 - 2e-6


@dataclasses.dataclass(frozen=True, eq=False)
class _Stream:
    """All points of a stream and the sums over their pairs, on the host.

    Never changed in place, so that copies of a metric may share it; and no pytree, so that Flax
    leaves it where it is.
    """

    kernels: tuple[Kernel, ...]  # Of the outputs and, where there are any, of the prompts.
    tile_size: int  # The points of a block.
    blocks: tuple[Points, ...]  # All blocks are full but the last.
    weights: np.ndarray  # Of the points, `[n]` in float64.
    # Sums over the pairs i < j of w_i w_j k_X^2 and, with prompts, of k_T^2 and of their product.
    totals: np.ndarray
    # By name, the row that was subtracted from all points before they were cast.
    origins: dict[str, np.ndarray | None] = dataclasses.field(default_factory=dict)

    @classmethod
    def empty(cls, kernels: tuple[Kernel, ...], tile_size: int) -> _Stream:
        """The stream of no points."""
        return cls(kernels, tile_size, (), np.zeros(0), np.zeros(2 * len(kernels) - 1))

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.weights.size

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Of the points; empty where there are none."""
        return tuple(part.shape[1] for block in self.blocks[:1] for part in block)

    def origins_for(self, arrays: dict[str, Any]) -> dict[str, np.ndarray | None]:
        """The stream's origins; where it has no points yet, those that suit these arrays."""
        if self.blocks:
            return self.origins
        return {
            name: validation.origin_of(array) if kernel.shift_invariant else None
            for (name, array), kernel in zip(arrays.items(), self.kernels, strict=True)
        }

    def points(self) -> Points:
        """All samples, in the order of their arrival."""
        return tuple(np.concatenate(parts) for parts in zip(*self.blocks, strict=True))

    def identical(self, index: int) -> bool:
        """Whether all outputs (0) or all prompts (1) are the same."""
        parts = [block[index] for block in self.blocks]
        return all(bool((part == parts[0][:1]).all()) for part in parts)

    def with_stream(self, other: _Stream) -> _Stream:
        """The stream with those of another added, whose own pairs are known."""
        base = self if self.blocks else dataclasses.replace(self, origins=other.origins)
        moved = tuple(
            _moved(part, other.origins.get(name), base.origins.get(name))
            for name, part in zip(_NAMES, other.points(), strict=False)
        )
        earlier = np.full(other.n, self.n)
        return base.extended(moved, other.weights, earlier, known=other.totals)

    def extended(
        self, points: Points, weights: np.ndarray, earlier: np.ndarray, known: Any = 0
    ) -> _Stream:
        """With points that each pair with the first `earlier` of all, and sums known already."""
        blocks = _in_blocks(self.blocks, points, self.tile_size)
        everything = np.concatenate([self.weights, weights])
        size = self.tile_size
        new = _sums_of_pairs(self.kernels, blocks, everything, size, points, weights, earlier)
        totals = self.totals + known + new
        if not np.isfinite(totals).all():
            raise ValueError(
                "The kernels are not finite on these and the earlier points: do their squared "
                "distances overflow? Rescale embeddings and bandwidth."
            )
        return dataclasses.replace(self, blocks=blocks, weights=everything, totals=totals)


class _StoredPoints(nnx.Metric):
    """What the metrics that keep their points share: everything but the number they report."""

    def __init__(
        self,
        *,
        output_kernel: Kernel,
        prompt_kernel: Kernel | None = None,
        tile_size: int | None = None,
    ) -> None:
        kernels = (check_kernel(output_kernel, name="output_kernel"),)
        if prompt_kernel is not None:
            kernels += (check_kernel(prompt_kernel, name="prompt_kernel"),)
        size = pairwise.default_tile_size() if tile_size is None else tile_size
        size = validation.check_count(size, name="tile_size", minimum=1)
        self._stream = _Stream.empty(kernels, size)

    def reset(self) -> None:
        """Forgets all samples."""
        self._stream = _Stream.empty(self._stream.kernels, self._stream.tile_size)

    @property
    def n(self) -> int:
        """The number of samples so far."""
        return self._stream.n

    def update(
        self,
        *,
        outputs: ArrayLike,
        prompts: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        **others: Any,
    ) -> None:
        """Adds a batch: its points, and its pairs with themselves and with all stored points.

        Args:
          outputs: embeddings `[b, d_x]`, any number of them.
          prompts: embeddings `[b, d_t]`; not read by a metric without a prompt kernel.
          mask: booleans `[b]`, False for rows to leave out, such as the padding of a last batch.
          weights: numbers `[b]`, not negative; one each where None. A weight of 2 counts as two
            equal rows, zero leaves a row out.
          **others: what the other metrics of an `nnx.MultiMetric` read.

        Raises:
          TypeError, ValueError: as `decompose`, or the name of another argument is like one of
            these, as `masks` is; or the dimensions are not those of the first batch, or the call is
            inside `jax.jit`. The metric is then as it was before.
        """
        _refuse_misspelt(others)
        given: dict[str, Any] = {"outputs": outputs}
        if len(self._stream.kernels) == 2:
            if prompts is None:
                raise ValueError(
                    "prompts: expected embeddings [n, d], as the metric has a prompt kernel."
                )
            given["prompts"] = prompts
        if not validation.is_concrete(given, mask, weights):
            raise ValueError(
                f"{type(self).__name__} keeps its points on the host and cannot be updated inside "
                "jit: call update outside, or return cv.decompose of the batch."
            )
        points, of_rows, origins = _checked_batch(self._stream, given, mask, weights)
        _check_dimensions(points, self._stream.dimensions)
        for name, kernel, part in zip(_NAMES, self._stream.kernels, points, strict=False):
            kernel.check_points(part, name=name)
        rows = of_rows > 0
        points = tuple(np.asarray(part)[rows] for part in points)
        if points[0].shape[0]:
            stream = dataclasses.replace(self._stream, origins=origins)
            earlier = self.n + np.arange(points[0].shape[0])
            self._stream = stream.extended(points, of_rows[rows], earlier)

    def merge(self, other: _StoredPoints) -> None:
        """Adds all samples of another metric, at the cost of the pairs between the two.

        Raises:
          TypeError, ValueError: it does not store its points, or its kernels or dimensions differ.
        """
        if not isinstance(other, _StoredPoints):
            raise TypeError(f"other: expected a metric of stored points, received {other!r}.")
        mine, theirs = self._stream, other._stream
        if not _same_kernels(mine.kernels, theirs.kernels):
            kernels = f"{mine.kernels}, received {theirs.kernels}"
            raise ValueError(f"other: expected the kernels {kernels}.")
        if theirs.n:
            _check_dimensions(theirs.blocks[0], mine.dimensions)
            self._stream = mine.with_stream(theirs)

    def decompose(
        self, *, order: float = 1, truncation: int | None = None, **options: Any
    ) -> Decomposition:
        """The three entropies and the scores of all samples so far.

        Args:
          order: the Renyi order in (0, inf]. Order 2 costs nothing; every other order, and any
            truncation, runs `decompose` on the stored points.
          truncation: how many eigenvalues every entropy keeps; all where None.
          **options: further keyword arguments of `decompose`, which is then what runs; for
            example a `method` with a key, where n is large.

        Returns:
          A `Decomposition`. Without prompts it is that of one and the same prompt for all samples:
          H(T) = 0, and the conditional score is the score itself.

        Raises:
          ValueError: there are no samples yet; otherwise as `decompose`.
        """
        entropy = Entropy(order=order, truncation=truncation)
        if self.n == 0:
            raise ValueError(f"{type(self).__name__} has no samples yet: call update first.")
        entropy = entropy.clamped(self.n)
        if entropy.needs_spectrum or options:
            names = ("output_kernel", "prompt_kernel")
            options |= dict(zip(names, self._stream.kernels, strict=False))
            options |= {"order": entropy.order, "truncation": entropy.truncation}
            weights = self._stream.weights
            if not (weights == weights[0]).all():
                options["weights"] = weights
            return scores.decompose(*self._stream.points(), **options)
        self._warn_of_extreme_bandwidths()
        weight, squares = self._stream.weights.sum(), np.square(self._stream.weights).sum()
        norms = jnp.asarray(
            (2 * self._stream.totals + squares) / weight**2, validation.compute_dtype()
        )
        computed = methods.Computed(order_two.entropies_of(norms), None, methods.FROBENIUS)
        return Decomposition.of(computed, entropy, n=self.n)

    def _warn_of_extreme_bandwidths(self) -> None:
        """Warns where a Gram is numerically constant or the identity, as `decompose` does."""
        weights = self._stream.weights
        pairs = (weights.sum() ** 2 - np.square(weights).sum()) / 2 if self.n > 1 else 0
        for index, kernel in enumerate(self._stream.kernels if pairs else ()):
            name, mean = _NAMES[index], self._stream.totals[index] / pairs
            if mean > _NUMERICALLY_CONSTANT and not self._stream.identical(index):
                says = "constant and its scores are 1"
            elif mean < _NUMERICALLY_IDENTITY:
                says = "the identity and its scores only count points"
            else:
                continue
            validation.warn(f"{name}: under {kernel!r} the Gram is numerically {says}.")


class StoredDecomposition(_StoredPoints):
    """The decomposition of a stream under any kernels, from all of its points.

        metric = metrics.StoredDecomposition(
            output_kernel=cv.Gaussian(0.8), prompt_kernel=cv.Gaussian(1.0)
        )
        for batch in batches:
            metric.update(outputs=batch.outputs, prompts=batch.prompts)
        print(metric.compute(order=2).conditional, metric.compute().conditional)

    The points are kept, O(n d) memory of the host. An update of b points costs O(b n d) time, for
    its pairs with all before it, which makes the scores of order 2 free at any moment. It runs
    outside `jax.jit`; as an argument of a compiled function the metric is a constant, and every
    update compiles that anew. The result does not depend, beyond rounding, on the sizes and the
    order of batches and merges. `nnx.clone` gives an independent copy.

    Args:
      output_kernel: the kernel of the outputs.
      prompt_kernel: the kernel of the prompts; None for the diversity of outputs alone.
      tile_size: how many points a tile has a side; what suits the device where None.

    Raises:
      TypeError, ValueError: a kernel is not one, or the tile size is not a positive integer.
    """

    def compute(self, **options: Any) -> Decomposition:
        """`decompose`, with its keyword arguments."""
        return self.decompose(**options)


class RKE(_StoredPoints):
    """RKE of the outputs of a stream, the prompts unread (CV eq. 4).

    Args:
      kernel: the kernel of the outputs.
      tile_size: as in `StoredDecomposition`, which computes this score too.
    """

    def __init__(self, *, kernel: Kernel, tile_size: int | None = None) -> None:
        super().__init__(output_kernel=kernel, tile_size=tile_size)

    def compute(self) -> jax.Array:
        """The effective number of modes, in [1, n]; ValueError where there are no samples."""
        return self.decompose(order=2).vendi


class ConditionalRKE(_StoredPoints):
    """Conditional-RKE of a stream, the diversity that the model adds (CV eq. 9 and 11).

    Args:
      output_kernel, prompt_kernel, tile_size: as in `StoredDecomposition`, which raises the same
        errors. For several scores of one stream, use that class: they cost no more than one.
    """

    def __init__(
        self, *, output_kernel: Kernel, prompt_kernel: Kernel, tile_size: int | None = None
    ) -> None:
        check_kernel(prompt_kernel, name="prompt_kernel")
        super().__init__(
            output_kernel=output_kernel, prompt_kernel=prompt_kernel, tile_size=tile_size
        )

    def compute(self) -> jax.Array:
        """The effective number of modes, in [1, n]; ValueError where there are no samples."""
        return self.decompose(order=2).conditional


class InformationRKE(ConditionalRKE):
    """Information-RKE of a stream, the diversity owed to the prompts (CV eq. 10 and 11).

    Args, Raises: as `ConditionalRKE`.
    """

    def compute(self) -> jax.Array:
        """The effective number of modes; ValueError where there are no samples."""
        return self.decompose(order=2).information


def _refuse_misspelt(others: Collection[str]) -> None:
    """Raises TypeError where an argument that another metric may read looks like one of ours."""
    for name in others:
        within = any(argument.rstrip("s") in name.lower() for argument in _ARGUMENTS)
        if within or difflib.get_close_matches(name, _ARGUMENTS, cutoff=0.7):
            raise TypeError(
                f"update: received {name}, which is no argument; expected {', '.join(_ARGUMENTS)}, "
                "or arguments of other metrics, whose names are not like these."
            )


def _checked_batch(
    stream: _Stream, given: dict[str, Any], mask: ArrayLike | None, weights: ArrayLike | None
) -> tuple[Points, np.ndarray, dict[str, np.ndarray | None]]:
    """The points of a batch, checked and cast, their weights, and the rows subtracted before that.

    Weights are `[n]`, zero where rows are masked, which may hold anything, and one where none are
    given.
    """
    validation.check_indices(given | {"mask": mask, "weights": weights})
    arrays = kept = validation.as_arrays(given)
    if mask is not None:
        mask = np.asarray(mask)
        arrays = {name: _without_masked(array, mask) for name, array in arrays.items()}
        if all(array.ndim == 2 for array in arrays.values()):
            kept = {name: array[mask] for name, array in arrays.items()}
    origins = stream.origins_for(kept)
    points = tuple(validation.check_arrays(arrays, origins=origins))
    n, dtype = points[0].shape[0], points[0].dtype
    of_rows = np.ones(n)
    if weights is not None:
        checked = validation.check_weights(weights, n, some=False)
        with np.errstate(over="ignore"):
            of_rows = np.asarray(checked, dtype).astype(np.float64)
        if ((of_rows > 0) & (of_rows < np.inf) != (checked > 0)).any():
            raise ValueError(f"weights: expected numbers in the range of {dtype}: rescale all.")
    return points, of_rows if mask is None else np.where(mask, of_rows, 0), origins


def _without_masked(array: Any, mask: np.ndarray) -> Any:
    """The array with ones, on which every kernel is defined, in the place of masked rows."""
    if array.ndim != 2:
        return array  # The checks that follow refuse it.
    if mask.shape != array.shape[:1] or mask.dtype != bool:
        raise ValueError(
            f"mask: expected booleans of shape {array.shape[:1]}, one a row, received {mask.dtype} "
            f"of shape {mask.shape}."
        )
    ones = np.ones_like(array)
    ones[::2, :1] = 2  # So that they do not look like padding.
    ones[1::2, 1:2] = 3
    return np.where(mask[:, None], array, ones)


def _check_dimensions(points: Points, expected: tuple[int, ...]) -> None:
    """Raises where points are not of the dimensions that the stream has, if it has any yet."""
    for name, want, part in zip(_NAMES, expected, points, strict=False):
        got = part.shape[1]
        if want != got:
            raise ValueError(f"{name}: expected embeddings of dimension {want}, received {got}.")


def _same_kernels(one: tuple[Kernel, ...], two: tuple[Kernel, ...]) -> bool:
    """Whether kernels are of the same kinds and parameters."""
    same = jax.tree.structure(one) == jax.tree.structure(two)
    return same and all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(two)))


def _moved(points: np.ndarray, old: np.ndarray | None, new: np.ndarray | None) -> np.ndarray:
    """Points relative to one origin, relative to another."""
    if old is None and new is None:
        return points
    zero = np.zeros((1, points.shape[1]), np.int8)
    # Of each other, not of zero: they may be near one another and both far away.
    shift = validation.minus(zero if old is None else old, zero if new is None else new)
    return (points + shift.astype(np.float64)).astype(points.dtype)


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
    of_blocks: np.ndarray,
    size: int,
    points: Points,
    of_points: np.ndarray,
    earlier: np.ndarray,
) -> np.ndarray:
    """Sums of squared kernel values over the pairs of each point with the first in the blocks.

    Every point pairs with the first `earlier` `[n]` of those in the blocks of `size` points; the
    values are times the weights of both, `of_points` and `of_blocks`. The sums, as in
    `_Stream.totals`, are of the dtype within a row of a tile, and float64 beyond.
    """
    totals = np.zeros(2 * len(kernels) - 1)
    for start in range(0, earlier.shape[0], size):
        rows = tuple(part[start : start + size] for part in points)
        limits = earlier[start : start + size]
        weights = of_points[start : start + size]
        height = min(size, max(_FEWEST_ROWS, 1 << (limits.shape[0] - 1).bit_length()))
        # Rows of the padding pair with none.
        padded_limits = np.pad(limits, (0, height - limits.shape[0]))
        padded_rows = jax.device_put(_padded(rows, height))
        for index in range(-(-int(limits.max()) // size)):
            counted = np.clip(padded_limits - index * size, 0, size).astype(np.int32)
            columns = _padded(blocks[index], size)
            beside = of_blocks[index * size : (index + 1) * size]
            beside = np.pad(beside, (0, size - beside.size)).astype(columns[0].dtype)
            suited = tuple(
                kernel.suited_to(jnp.concatenate([left, right]))
                for kernel, left, right in zip(kernels, padded_rows, columns, strict=True)
            )
            sums = _sums_in_tile(suited, padded_rows, columns, beside, counted)
            totals += np.asarray(sums, np.float64)[:, : weights.size] @ weights
    return totals


def _padded(points: Points, length: int) -> Points:
    """Points with copies of the last at the end: a kernel may be undefined at zero."""
    missing = ((0, length - points[0].shape[0]), (0, 0))
    return tuple(np.pad(part, missing, mode="edge") for part in points)


@jax.jit
def _sums_in_tile(
    kernels: tuple[Kernel, ...],
    rows: Points,
    columns: Points,
    weights: jax.Array,
    counted: jax.Array,
) -> jax.Array:
    """For every row the weighted sums over the first `counted[row]` columns, `[1 or 3, row]`.

    Rows and columns are prepared together, as the Gaussian centres its points.
    """
    height, width = rows[0].shape[0], columns[0].shape[0]
    inside = jnp.arange(width, dtype=counted.dtype)[None, :] < counted[:, None]
    geometries = []
    for kernel, left, right in zip(kernels, rows, columns, strict=True):
        prepared = kernel.prepare(jnp.concatenate([left, right]))
        of_rows = jax.tree.map(lambda leaf: leaf[:height], prepared)
        of_columns = jax.tree.map(lambda leaf: leaf[height:], prepared)
        geometries.append(kernel.geometry(of_rows, of_columns))
    subsets = ((0,), (1,), (0, 1)) if len(kernels) == 2 else ((0,),)
    products = pairwise.squared_products(subsets, kernels, geometries, inside)
    return jnp.stack([pairwise.pairwise_sum(product * weights[None, :]) for product in products])
