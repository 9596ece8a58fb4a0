"""Kernel matrices behind one interface: dense, tile by tile or of finite features.

The spectral methods need an `Operator`: a positive semidefinite A = K / n of trace one. A
`Gram` has a K of unit diagonal, the kernel matrix of n points; `gram_x * gram_t` is the Hadamard
product, the Gram of the pairs (CV eq. 5). With a `Layout` the points, or the rows of a stored
matrix, are spread over devices; arrays have `layout.rows` rows, and `place` pads vectors to that.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from condvendi_jax.base import checks, memory
from condvendi_jax.base.devices import Layout, compiled_elsewhere, layout_of, namespace
from condvendi_jax.data.kernels import Cosine, Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import eigenvalues
from condvendi_jax.grams import sums
from condvendi_jax.grams.fold import Factor, Tiles

_TOLERANCE = 1e-4  # Of shares, whose sum is one.
# Up to this n a matrix takes milliseconds and 16 MiB, and it has derivatives of every mode.
_DENSE_UP_TO = 2048


@dataclasses.dataclass(frozen=True, eq=False)
class Operator(abc.ABC):
    """A positive semidefinite matrix A = K / n of trace one, known by its sums."""

    #: Where the rows are; None for one device.
    layout: Layout | None = dataclasses.field(default=None, kw_only=True, metadata={"static": True})

    @property
    @abc.abstractmethod
    def _rows(self) -> jax.Array:
        """An array with a row for every point, and the padding."""

    @property
    def n(self) -> int:
        """The number of points, without padding."""
        return self._rows.shape[0] if self.layout is None else self.layout.n

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype that everything is computed in."""
        return self._rows.dtype

    @abc.abstractmethod
    def squared_frobenius_norm(self) -> jax.Array:
        """||K / n||_F^2, a scalar in [1/n, 1]."""

    @abc.abstractmethod
    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v for vectors `[n]` or `[n, m]`, or as `place` returned them, of that shape."""

    @abc.abstractmethod
    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """Row sums of squares of K / n - L R^T, `[rows]`, L and R `[n, m]` as placed, symmetric."""

    @abc.abstractmethod
    def scaled(self, weights: jax.Array) -> "Operator":
        """n diag(w) A diag(w), for weights w `[n]` of any sign that leave the trace one."""

    @abc.abstractmethod
    def dense(self) -> "Dense":
        """The operator as an n x n array on every device; ValueError if it does not fit there."""

    def store(self) -> "Operator":
        """The operator for many products: it keeps K as an array if that makes them faster."""
        return self

    def eigenvalues(self) -> jax.Array:
        """The eigenvalues of K / n, `[n]`, descending, non-negative, of sum one."""
        return self.dense().eigenvalues()

    @property
    def rank_bound(self) -> int:
        """The largest possible number of eigenvalues above zero, as far as it is known."""
        return self.n

    @property
    def stored_share(self) -> float:
        """The share of the matrix that is in one memory after `store`."""
        return 1.0 if self.layout is None else self.layout.stored_share

    def place(self, vectors: jax.Array) -> jax.Array:
        """Vectors `[n, ...]` in the form that `matvec` takes: as they are, or sharded by rows."""
        return vectors if self.layout is None else self.layout.place(vectors)


class Gram(Operator):
    """The kernel matrix K of n points with unit diagonal; its methods speak of A = K / n."""

    def weighted(self, shares: ArrayLike) -> Operator:
        """The operator diag(p)^(1/2) K diag(p)^(1/2) for the shares p of the points, `[n]`.

        Its eigenvalues are those of the points with these weights: `p` of vendi-score's `score_K`.

        Raises:
          ValueError: the shares are negative, not finite or not of sum one, unless they are traced
            or on several devices.
        """
        if checks.is_concrete(shares) and self.layout is None:
            checked = checks.check_weights(shares, self.n, name="shares")
            total = float(np.sum(checked, dtype=np.float64))
            if abs(total - 1) > _TOLERANCE:
                received = f"received a sum of {total:.6g}: divide them by it."
                raise ValueError(f"shares: expected numbers of sum one, {received}")
        return self.scaled(square_roots(namespace(self._rows).asarray(shares, self.dtype)))

    @abc.abstractmethod
    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        """sum_ij p_i K_ij^2 p_j for the shares p of the points, of sum one, as placed.

        The squared norm of `weighted` at their roots, which have no derivative at zero.
        """

    def __mul__(self, other: "Gram") -> "Gram":
        """The Hadamard product: the Gram of the pairs of points (CV eq. 5).

        Raises:
          ValueError: the Grams have different n, or are not on the same devices.
        """
        if not isinstance(other, Gram):
            return NotImplemented
        if self.n != other.n:
            received = f"received {self.n} and {other.n}."
            raise ValueError(f"Gram: expected the same number of points, {received}")
        if self.layout != other.layout:
            received = f"received {other.layout}."
            raise ValueError(f"Gram: expected another of layout {self.layout}, {received}")
        if isinstance(self, OfPoints) and isinstance(other, OfPoints):
            return TiledGram(self.factors + other.factors, layout=self.layout)
        return DenseGram(_matrix(self) * _matrix(other), layout=self.layout)


def _matrix(gram: Gram) -> jax.Array:
    """K as an array on one device, where it has derivatives of every mode, or by rows on many."""
    if isinstance(gram, OfPoints) and gram.layout is not None:
        return sums.assemble(gram.tiles)
    return gram.matrix if isinstance(gram, DenseGram) else gram.dense().matrix


def square_roots(weights: jax.Array) -> jax.Array:
    """Square roots; the infinite derivative at a zero counts as zero."""
    xp = namespace(weights)
    return xp.where(weights > 0, xp.sqrt(xp.where(weights > 0, weights, 1)), 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Operator):
    """An operator stored as an array."""

    #: K, `[n, n]`; with a layout `[rows, rows]`, sharded by rows and zero in the padding.
    matrix: jax.Array

    _rows = property(lambda self: self.matrix)

    def squared_frobenius_norm(self) -> jax.Array:
        return jnp.sum(jnp.sum(jnp.square(self.matrix), axis=1) / self.n) / self.n

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v; on many devices the vectors alone are gathered."""
        if self.layout is None:
            return eigenvalues.matmul(self.matrix, vectors) / self.n
        gathered = jax.lax.with_sharding_constraint(vectors, _whole(self.layout))
        missing = self.layout.rows - vectors.shape[0]
        gathered = jnp.pad(gathered, ((0, missing), *[(0, 0)] * (vectors.ndim - 1)))
        product = eigenvalues.matmul(self.matrix, gathered) / self.n
        return self.layout.constrain(product)[: vectors.shape[0]]

    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return sums.stored_row_squares_beside(self.matrix, left, right, layout=self.layout)

    def scaled(self, weights: jax.Array) -> "Dense":
        scale = self.place(math.sqrt(self.n) * weights)
        return Dense(self.matrix * scale[:, None] * scale[None, :], layout=self.layout)

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues of K / n in O(n^3) time, on every device for itself."""
        return eigenvalues.spectrum(self.dense().matrix / self.n)

    def dense(self) -> Self:
        if self.layout is None:
            return self
        memory.check(self.n, self.dtype)
        matrix = jax.lax.with_sharding_constraint(self.matrix, _whole(self.layout))
        return type(self)(matrix[: self.n, : self.n])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class DenseGram(Dense, Gram):
    """A Gram stored as an n x n array, which is not checked."""

    @classmethod
    def from_points(cls, kernel: Kernel, points: Any) -> "DenseGram":
        """The Gram of `points` `[n, d]`; the diagonal is exactly one."""
        return TiledGram.from_points(kernel, points).dense()

    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        return jnp.sum(eigenvalues.matmul(jnp.square(self.matrix), shares) * shares)


def _whole(layout: Layout) -> NamedSharding:
    """All of an array on every device."""
    return NamedSharding(layout.mesh, PartitionSpec())


class OfPoints(Gram):
    """A Gram that keeps its points: K is a Hadamard product of kernels on them."""

    #: The kernels and the prepared points, `[n, ...]` or `[layout.rows, ...]`.
    factors: Any

    @property
    def tiles(self) -> Tiles:
        return Tiles(self.factors, (tuple(range(len(self.factors))),), self.layout)

    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return sums.row_squares_beside(self.tiles, left, right)

    def dense(self) -> DenseGram:
        """The n x n array; the diagonal is exactly one. Differentiable in every mode."""
        memory.check(self.n, self.dtype)
        points = self.tiles.points
        if self.layout is not None:
            points = jax.lax.with_sharding_constraint(points, _whole(self.layout))
        points = jax.tree.map(lambda leaf: leaf[: self.n], points)
        return DenseGram(*self.tiles.values(points, points, diagonal=True))

    def scaled(self, weights: jax.Array) -> "WeightedGram":
        return WeightedGram(self, self.place(math.sqrt(self.n) * weights), layout=self.layout)

    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        return sums.squared_norms(self.tiles, weights=shares)[0]


@functools.partial(jax.jit, static_argnames="layout")
def _prepared(kernel: Kernel, points: jax.Array, layout: Layout) -> Any:
    return layout.constrain(kernel.prepare(points))


def factor_of(kernel: Kernel, points: Any, layout: Layout | None) -> Factor:
    """A kernel and its prepared points, placed as the layout says."""
    if layout is None:
        return Factor(kernel, kernel.prepare(points))
    padded = points.shape[0] == layout.rows and not checks.is_concrete(points)
    placed = layout.constrain(points) if padded else layout.shard(points)
    return Factor(kernel, _prepared(kernel, placed, layout))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class TiledGram(OfPoints):
    """A Gram evaluated tile by tile at any n: O(tile^2 + n d) memory, n d / P on P devices."""

    factors: tuple[Factor, ...]

    @classmethod
    def from_points(cls, kernel: Kernel, points: Any, *, layout: Layout | None = None) -> Self:
        """The Gram of `points` `[n, d]`, or `[layout.rows, d]` where `Layout.shard` padded them.

        Without a layout the points stay where they are. Inside `jax.jit` points that are sharded
        need one, since a tracer does not know where it is.
        """
        layout = layout or layout_of(points)
        return cls((factor_of(kernel, points, layout),), layout=layout)

    _rows = property(lambda self: jax.tree.leaves(self.factors[0].points)[0])

    def squared_frobenius_norm(self) -> jax.Array:
        return sums.squared_norms(self.tiles)[0]

    def matvec(self, vectors: jax.Array) -> jax.Array:
        columns = vectors.reshape(vectors.shape[0], -1)
        columns = columns if vectors.shape[0] == self._rows.shape[0] else self.place(columns)
        (product,) = sums.matvecs(self.tiles, (columns,))
        return product[: vectors.shape[0]].reshape(vectors.shape)

    def store(self) -> DenseGram:
        return DenseGram(sums.assemble(self.tiles), layout=self.layout)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureGram(OfPoints):
    """A Gram of known finite features, K = Z Z^T: everything costs O(n D^2), not O(n^2).

    The non-zero eigenvalues of K / n are those of the D x D matrix Z^T Z / n (CV Proposition 1).
    A product with another Gram uses kernel values, not features.

    `cv.gram(cv.Cosine(), features)` makes one of features `[n, D]`, D < n, scaled to unit norm.
    """

    features: jax.Array  # Of unit norm, zero in the padding.

    _rows = property(lambda self: self.features)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """One factor: the cosine kernel on the features, whose rows have unit norm already."""
        return (Factor(Cosine(), self.features),)

    def covariance(self) -> jax.Array:
        """Z^T Z / n, `[D, D]`, of trace one."""
        return eigenvalues.matmul(self.features.T, self.features) / self.n

    def squared_frobenius_norm(self) -> jax.Array:
        """||Z^T Z / n||_F^2, which equals ||K / n||_F^2."""
        return eigenvalues.squared_norm(self.covariance())

    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        weighted = self.features * shares[:, None]
        return eigenvalues.squared_norm(eigenvalues.matmul(self.features.T, weighted))

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """Z (Z^T v) / n."""
        features = self.features[: vectors.shape[0]]
        return eigenvalues.matmul(features, eigenvalues.matmul(features.T, vectors)) / self.n

    def eigenvalues(self) -> jax.Array:
        """The eigenvalues of Z^T Z / n, padded with zeros to `[n]` where D < n."""
        if self.rank_bound == self.n:
            return self.dense().eigenvalues()
        values = eigenvalues.spectrum(self.covariance())
        return namespace(values).pad(values, (0, self.n - values.shape[0]))

    rank_bound = property(lambda self: min(self.n, self.features.shape[1]))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class WeightedGram(Operator):
    """K o w w^T of a Gram of points K and weights w as placed, `[n]`, of squared norm n."""

    gram: OfPoints
    weights: jax.Array

    _rows = property(lambda self: self.weights)

    rank_bound = property(lambda self: self.gram.rank_bound)

    def squared_frobenius_norm(self) -> jax.Array:
        """sum_ij w_i^2 (K_ij / n)^2 w_j^2."""
        return self.gram.squared_norm_by(jnp.square(self.weights) / self.n)

    def matvec(self, vectors: jax.Array) -> jax.Array:
        weights = self.weights[: vectors.shape[0]].reshape(-1, *(1,) * (vectors.ndim - 1))
        return weights * self.gram.matvec(weights * vectors)

    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return sums.row_squares_beside(self.gram.tiles, left, right, scale=self.weights)

    def eigenvalues(self) -> jax.Array:
        if isinstance(self.gram, FeatureGram) and self.rank_bound < self.n:
            weighted = self.gram.features * self.weights[:, None]
            return FeatureGram(weighted, layout=self.layout).eigenvalues()
        return self.dense().eigenvalues()

    def scaled(self, weights: jax.Array) -> Self:
        scale = self.place(math.sqrt(self.n) * weights)
        return dataclasses.replace(self, weights=self.weights * scale)

    def dense(self) -> Dense:
        return self.gram.dense().scaled(self._unit())

    def store(self) -> Operator:
        stored = self.gram.store()
        return self if stored is self.gram else stored.scaled(self._unit())

    def _unit(self) -> jax.Array:
        """The weights `[n]`, of unit norm."""
        return self.weights[: self.n] / math.sqrt(self.n)


class Together(NamedTuple):
    """Operators that are multiplied together: each apart, unless Grams share factors."""

    apart: tuple[Operator, ...]
    tiles: Tiles | None = None  # In place of the operators, as pairs share outputs and prompts.

    def squared_frobenius_norms(self) -> jax.Array:
        """||K / n||_F^2 of every operator."""
        if self.tiles is not None:
            return sums.squared_norms(self.tiles)
        return jnp.stack([gram.squared_frobenius_norm() for gram in self.apart])

    def matvecs(self, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """(K / n) V of every operator, with a V, `[n, m]` as placed, for each."""
        if self.tiles is not None:
            return sums.matvecs(self.tiles, vectors)
        return tuple(gram.matvec(v) for gram, v in zip(self.apart, vectors, strict=True))


def together(grams: Sequence[Operator]) -> Together:
    """The tiles that Grams share, or each operator apart."""
    tiled = [gram for gram in grams if isinstance(gram, TiledGram)]
    factors = [factor for gram in tiled for factor in gram.factors]
    known = {id(factor): factor for factor in factors}
    if len(tiled) < len(grams) or len(known) == len(factors):
        return Together(tuple(grams))
    subsets = tuple(tuple([*known].index(id(f)) for f in gram.factors) for gram in tiled)
    return Together((), Tiles(tuple(known.values()), subsets, tiled[0].layout))


def gram(kernel: Kernel, points: ArrayLike) -> Gram:
    """The Gram of `points` under `kernel`, in a representation that suits n.

    The cosine kernel on fewer dimensions than points gives a `FeatureGram`. Otherwise a small Gram
    is a `DenseGram` and a large one a `TiledGram`. To choose between these, construct one of them.

    Args:
      kernel: a normalised kernel.
      points: embeddings `[n, d]`.

    Raises:
      TypeError, ValueError: the points are not a finite real array `[n, d]`, or the kernel is not a
        kernel or is not defined on them.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
      >>> gram = cv.gram(cv.Gaussian(0.1), points)
      >>> print(gram.eigenvalues().round(3))
      [0.5 0.5 0.  0. ]
    """
    check_kernel(kernel, name="kernel")
    array = checks.as_array(points, name="points")
    origin = checks.origin_of(array) if kernel.shift_invariant else None
    checked = checks.check_embeddings(array, name="points", origin=origin)
    if checks.is_concrete(checked, kernel):
        with jax.ensure_compile_time_eval():
            kernel.check_points(checked, name="points")
            kernel = kernel.suited_to(checked)
    return represent(kernel, checked)


def represent(
    kernel: Kernel, points: Any, *, layout: Layout | None = None, dense_up_to: int | None = None
) -> Gram:
    """The Gram of checked points `[n, d]`, or padded `[layout.rows, d]`, on a layout's devices."""
    n, dimension = points.shape[0] if layout is None else layout.n, points.shape[1]
    if isinstance(kernel, Cosine) and dimension < n:
        z = factor_of(kernel, points, layout).points
        if layout is not None:
            z = layout.constrain(jnp.where((jnp.arange(layout.rows) < n)[:, None], z, 0))
        return FeatureGram(z, layout=layout)
    if layout is None and n <= (_DENSE_UP_TO if dense_up_to is None else dense_up_to):
        merged = _merged(kernel, points) if isinstance(points, np.ndarray) else None
        return merged or DenseGram.from_points(kernel, points)
    return TiledGram.from_points(kernel, points, layout=layout)


def _merged(kernel: Kernel, points: Any) -> FeatureGram | None:
    """A Gram by features of the distinct points, where these are at most half of all."""
    if 2 * np.unique(points[:, 0]).size > len(points):
        return None
    count, kinds = checks.distinct_rows(points)
    if 2 * count > len(points):
        return None
    matrix = DenseGram.from_points(kernel, points[np.unique(kinds, return_index=True)[1]]).matrix
    values, vectors = eigenvalues.decomposed(np.asarray(matrix) / count)
    return FeatureGram((vectors * np.sqrt(count * values))[kinds])


@functools.partial(compiled_elsewhere, static_argnums=1)
def grams_of(points: Pairs, dense_up_to: int | None = None) -> tuple[Gram, ...]:
    """The Gram of the outputs and of any prompts, unweighted; of NumPy for points on the host."""
    how: Any = {"layout": points.layout, "dense_up_to": dense_up_to}
    return tuple(map(functools.partial(represent, **how), points.kernels, points.arrays))
