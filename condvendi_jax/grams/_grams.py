"""Kernel matrices behind one interface, dense, tile by tile or of finite features.

An `Operator` is what the spectral methods need: a positive semidefinite A = K / n of trace one. A
`Gram` has a K of unit diagonal, the kernel matrix of n points; `gram_x * gram_t` is the Hadamard
product, the Gram of the pairs (CV eq. 5). With a `Layout` the points, or the rows of a stored
matrix, are spread over devices; arrays have `layout.rows` rows, and `place` pads vectors to that.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.grams._layouts import Layout, layout_of
from condvendi_jax.grams._pairwise import Factor, Factors
from condvendi_jax.kernels import Cosine, Kernel, check_kernel

# Up to this n a matrix takes 16 MiB in float32 and milliseconds to make; the eigenvalues need it,
# and it has derivatives of every mode.
_DENSE_UP_TO = 2048
# Up to this many products of features the joint is solved in the dual, a matrix of this side, which
# takes at most 4 MiB in float32. A choice: above, the joint is summed tile by tile.
_PRODUCT_FEATURES = 1024
# How far a matrix may be off a Gram: what float64 and float32 (or less) leave of a unit diagonal.
_TOLERANCES = (1e-8, 1e-4)
# The largest share of the trace that negative eigenvalues may have, and the rows that are looked at
# for them, in a fifth of a second. Choices.
_NEGATIVE, _LOOKED_AT = 0.05, 1000


class Operator(abc.ABC):
    """A positive semidefinite matrix A = K / n of trace one, known by its products."""

    #: The names of the attributes that are arrays, and of those that are static under `jax.jit`.
    _arrays: ClassVar[tuple[str, ...]] = ()
    _static: ClassVar[tuple[str, ...]] = ()

    #: Where the rows are; None for one device.
    layout: Layout | None

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

    def matvecs(self, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """`SharedTiles.matvecs` of this operator alone."""
        (of_this,) = vectors
        return (self.matvec(of_this),)

    @abc.abstractmethod
    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """Sums of squares along the rows of K / n - L R^T, `[rows]`, entry by entry.

        L and R are `[n, m]` as placed, L R^T symmetric.
        """

    def row_squares_beside_each(
        self, lefts: tuple[jax.Array, ...], rights: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        """`SharedTiles.row_squares_beside_each` of this operator alone."""
        (left,), (right,) = lefts, rights
        return (self.row_squares_beside(left, right),)

    @abc.abstractmethod
    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """A zero with the gradient of sum_ij (K / n)_ij <left_i, right_j>, `[n, m]` constants."""

    @abc.abstractmethod
    def dense(self) -> Dense:
        """The same as an n x n array on every device; ValueError where it does not fit there."""

    def store(self) -> Operator:
        """The same operator for many products: K as an array, where that makes them faster."""
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
        """The part of the matrix that one memory holds after `store`."""
        return 1.0 if self.layout is None else self.layout.stored_share

    def place(self, vectors: jax.Array) -> jax.Array:
        """Vectors `[n, m]` in the form that `matvec` takes: as they are, or sharded by rows."""
        return vectors if self.layout is None else self.layout.place(vectors)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arrays, and what is static."""
        arrays = tuple(getattr(self, name) for name in self._arrays)
        return arrays, tuple(getattr(self, name) for name in self._static)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> Self:
        """Rebuilds the operator without checks: arrays may be placeholders."""
        made = object.__new__(cls)
        for name, value in zip(cls._arrays + cls._static, (*arrays, *static), strict=True):
            setattr(made, name, value)
        return made


class Gram(Operator):
    """The kernel matrix K of n points with unit diagonal; its methods speak of A = K / n."""

    def store(self) -> Gram:
        return self

    def weighted(self, shares: ArrayLike) -> Operator:
        """The operator diag(p)^(1/2) K diag(p)^(1/2) for the shares p of the points, `[n]`.

        Its eigenvalues are those of the points with these weights: `p` of vendi-score's `score_K`.

        Raises:
          ValueError: the shares are negative, not finite or not of sum one, unless they are traced
            or on several devices.
        """
        if validation.is_concrete(shares) and self.layout is None:
            checked = validation.check_weights(shares, self.n, name="shares")
            total = float(np.sum(checked, dtype=np.float64))
            if abs(total - 1) > _TOLERANCES[1]:
                raise ValueError(
                    f"shares: expected numbers of sum one, received a sum of {total:.6g}: divide "
                    "them by it."
                )
        return self.scaled(square_roots(jnp.asarray(shares, self.dtype)))

    @abc.abstractmethod
    def scaled(self, weights: jax.Array) -> Operator:
        """The operator diag(w) K diag(w), for weights `[n]` of unit norm and any sign."""

    @abc.abstractmethod
    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        """sum_ij p_i K_ij^2 p_j for the shares p of the points, of sum one, as placed.

        The squared norm of `weighted` at their roots, which have no derivative at zero.
        """

    def restricted(self, kept: jax.Array) -> Operator:
        """The operator of some of the points, booleans `[n]`, at the size of all.

        Its eigenvalues are those of the points that are kept, and a zero for every other.
        """
        return self.scaled(kept.astype(self.dtype) / jnp.sqrt(jnp.sum(kept, dtype=self.dtype)))

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their Hadamard product."""
        joint = (self * other).squared_frobenius_norm()
        return self.squared_frobenius_norm(), other.squared_frobenius_norm(), joint

    def __mul__(self, other: Gram) -> Gram:
        """The Hadamard product: the Gram of the pairs of points (CV eq. 5).

        Raises:
          ValueError: the Grams have different n, or are not on the same devices.
        """
        if not isinstance(other, Gram):
            return NotImplemented
        self._check_match(other)
        if isinstance(self, OfPoints) and isinstance(other, OfPoints):
            factors = self.factors() + other.factors()
            return TiledGram(factors, tile_size=_tile_size(self, other), layout=self.layout)
        return DenseGram.trusted(_matrix(self) * _matrix(other), self.layout)

    def _check_match(self, other: Gram) -> None:
        n, layout = (self.n, other.n), (self.layout, other.layout)
        if n[0] != n[1]:
            raise ValueError(
                f"Gram: expected the same number of points, received {n[0]} and {n[1]}."
            )
        if layout[0] != layout[1]:
            raise ValueError(f"Gram: expected another of layout {layout[0]}, received {layout[1]}.")


def _matrix(gram: Gram) -> jax.Array:
    """K as an array on one device, where it has derivatives of every mode, or by rows on many."""
    if isinstance(gram, OfPoints) and gram.layout is not None:
        return pairwise.assemble(gram.factors(), **gram._options)
    return gram.matrix if isinstance(gram, DenseGram) else gram.dense().matrix


def _scale(gram: Gram, weights: jax.Array) -> jax.Array:
    """sqrt(n) w as placed, for weights w `[n]` of unit norm."""
    return gram.place((math.sqrt(gram.n) * weights)[:, None])[:, 0]


def square_roots(weights: jax.Array) -> jax.Array:
    """Square roots; the infinite derivative at a zero counts as zero."""
    return jnp.where(weights > 0, jnp.sqrt(jnp.where(weights > 0, weights, 1)), 0)


@jax.tree_util.register_pytree_node_class
class Dense(Operator):
    """An operator stored as an array.

    Args:
      matrix: K, `[n, n]`; with a layout `[rows, rows]`, sharded by rows and zero in the padding.
    """

    _arrays, _static = ("matrix",), ("layout",)

    def __init__(self, matrix: jax.Array, layout: Layout | None = None):
        self.matrix, self.layout = matrix, layout

    @property
    def _rows(self) -> jax.Array:
        return self.matrix

    def squared_frobenius_norm(self) -> jax.Array:
        return jnp.sum(jnp.sum(jnp.square(self.matrix), axis=1) / self.n) / self.n

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v; on many devices the vectors alone are gathered."""
        if self.layout is None:
            return _product(self.matrix, vectors) / self.n
        gathered = lax.with_sharding_constraint(vectors, _whole(self.layout))
        missing = self.layout.rows - vectors.shape[0]
        gathered = jnp.pad(gathered, ((0, missing), *[(0, 0)] * (vectors.ndim - 1)))
        product = _product(self.matrix, gathered) / self.n
        return self.layout.constrain(product)[: vectors.shape[0]]

    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return pairwise.stored_row_squares_beside(
            self.matrix, left, right, n=self.n, layout=self.layout
        )

    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        total = jnp.sum(left * self.matvec(right))
        return total - lax.stop_gradient(total)

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues of K / n in O(n^3) time, on every device for itself."""
        return spectra.spectrum(self.dense().matrix / self.n)

    def dense(self) -> Self:
        """The n x n array on one device or on every device."""
        if self.layout is None:
            return self
        memory.check(self.n, self.dtype)
        matrix = lax.with_sharding_constraint(self.matrix, _whole(self.layout))
        return self.tree_unflatten((None,), (matrix[: self.n, : self.n],))


@jax.tree_util.register_pytree_node_class
class DenseGram(Dense, Gram):
    """A Gram stored as an n x n array.

    Args:
      matrix: `[n, n]`, real, finite, symmetric, of unit diagonal and with entries in [-1, 1], to
        1e-4, or 1e-8 in float64; cast to the compute dtype. Negative eigenvalues above rounding
        are warned of, and refused above 5% of the trace; of more than 1,000 rows as many, drawn at
        random, are looked at, which show at most the share of all. Tracers are taken as they are.

    Raises:
      TypeError: the numbers are not real.
      ValueError: the matrix is not one of these things.
    """

    def __init__(self, matrix: Any):
        if validation.is_concrete(matrix):
            matrix = validation.as_array(matrix, name="matrix")
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
                shape = f"received shape {matrix.shape}"
                raise ValueError(f"matrix: expected a square array [n, n], {shape}.")
            given, named = matrix.dtype, {"matrix": matrix}
            validation.check_shapes(named)
            validation.warn_of_float64(named)
            host = np.asarray(matrix, np.promote_types(given, np.float32))
            (matrix,) = validation.cast_arrays(named, place=jnp.asarray, origins={})
            _check_gram(host, _TOLERANCES[given != np.float64 or matrix.dtype != np.float64])
            rounded = [of for of in (given, matrix.dtype) if jnp.issubdtype(of, jnp.floating)]
            _check_semidefinite(host, eps=max(float(jnp.finfo(of).eps) for of in rounded))
        super().__init__(matrix)

    @classmethod
    def trusted(cls, matrix: jax.Array, layout: Layout | None = None) -> Self:
        """The Gram of a matrix that is one by construction: nothing is checked."""
        return cls.tree_unflatten((layout,), (matrix,))

    @classmethod
    def from_points(cls, kernel: Kernel, points: jax.Array) -> DenseGram:
        """The Gram of `points` `[n, d]`; the diagonal is exactly one."""
        return TiledGram.from_points(kernel, points).dense()

    def scaled(self, weights: jax.Array) -> Dense:
        scale = _scale(self, weights)
        return Dense(self.matrix * scale[:, None] * scale[None, :], self.layout)

    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        return jnp.sum(_product(jnp.square(self.matrix), shares) * shares)


def _product(matrix: jax.Array, vectors: jax.Array) -> jax.Array:
    return jnp.matmul(matrix, vectors, precision=lax.Precision.HIGHEST)


def _whole(layout: Layout) -> NamedSharding:
    """All of an array on every device."""
    return NamedSharding(layout.mesh, PartitionSpec())


def _check_gram(matrix: np.ndarray, tolerance: float) -> None:
    """Raises where a matrix is not symmetric, of unit diagonal and within [-1, 1]."""
    by_row = {
        "the unit diagonal of a normalised kernel (K_ij / sqrt(K_ii K_jj) has one, a matrix of "
        "distances has none)": np.abs(np.diagonal(matrix) - 1),
        "entries in [-1, 1]": np.max(np.abs(matrix), axis=1) - 1,
        "a symmetric matrix": np.max(np.abs(matrix - matrix.T), axis=1),
    }
    for expected, by in by_row.items():
        if by.max() > tolerance:
            off = f"received one that is off by {by.max():.2g} in row {int(by.argmax())}"
            raise ValueError(f"matrix: expected {expected}, {off}.")


def _check_semidefinite(matrix: np.ndarray, *, eps: float) -> None:
    """Warns where negative eigenvalues are more than rounding, and raises where they are many."""
    n = min(matrix.shape[0], _LOOKED_AT)
    # The negative share of a principal submatrix is, in the mean, at most that of the matrix.
    rows = np.sort(np.random.default_rng(0).permutation(matrix.shape[0])[:n])
    values = np.linalg.eigvalsh(matrix[np.ix_(rows, rows)].astype(np.float64) / n)[::-1]
    share = float(-np.minimum(values, 0).sum())
    if share <= min(n * eps, _NEGATIVE):
        return
    says = f"expected a positive semidefinite matrix, received one in which {n} rows have negative "
    says += f"eigenvalues of {share:.2g} of the trace"
    if share > _NEGATIVE:
        raise ValueError(
            f"matrix: {says}: no score is defined. Use a kernel of embeddings (cv.gram), or "
            "replace negative eigenvalues by zero and divide K_ij by sqrt(K_ii K_jj)."
        )
    projected = values - np.max((np.cumsum(values) - 1) / np.arange(1, n + 1))
    scores = []
    for kept in (projected, values / (1 + share)):
        kept = kept[kept > 0]
        scores.append(float(np.exp(-kept @ np.log(kept))))
    validation.warn(
        f"matrix: {says}. Their Vendi score is {scores[0]:.4g} with the nearest eigenvalues that "
        f"are not negative, which are used, and {scores[1]:.4g} with zeros in the place of "
        "negative ones; order 2 counts their squares."
    )


class OfPoints(Gram):
    """A Gram that keeps its points: K is a Hadamard product of kernels on them."""

    #: About how many points a tile has a side; what suits the device where None.
    tile_size: int | None = None

    @abc.abstractmethod
    def factors(self) -> Factors:
        """The kernels and the prepared points, `[n, ...]` or `[layout.rows, ...]`."""

    @property
    def _options(self) -> dict[str, Any]:
        """What the functions of `pairwise` take beside the factors."""
        return {"tile_size": self.tile_size, "layout": self.layout}

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their product, in one pass."""
        if not isinstance(other, OfPoints):
            return super().squared_norms_with(other)
        self._check_match(other)
        own, others = self.factors(), other.factors()
        indices = tuple(range(len(own) + len(others)))
        subsets = (indices[: len(own)], indices[len(own) :], indices)
        options = {"tile_size": _tile_size(self, other), "layout": self.layout}
        of_own, of_other, of_joint = pairwise.squared_norms(own + others, subsets, **options)
        return of_own, of_other, of_joint

    def _everything(self) -> pairwise.Subsets:
        """The one product of all factors, as the functions of `pairwise` name it."""
        return (tuple(range(len(self.factors()))),)

    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return self._row_squares_beside(left, right)

    def _row_squares_beside(
        self, left: jax.Array, right: jax.Array, scale: jax.Array | None = None
    ) -> jax.Array:
        of = self.factors(), self._everything(), (left,), (right,)
        return pairwise.row_squares_beside(*of, scale=scale, **self._options)[0]

    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return pairwise.bilinear_slope(self.factors(), left, right, **self._options)

    def dense(self) -> DenseGram:
        """The n x n array; the diagonal is exactly one. Differentiable in every mode."""
        memory.check(self.n, self.dtype)
        factors = self.factors()
        if self.layout is not None:
            factors = lax.with_sharding_constraint(factors, _whole(self.layout))
        points = jax.tree.map(lambda leaf: leaf[: self.n], tuple(f.points for f in factors))
        crossed = [f.kernel.cross(p, p) for f, p in zip(factors, points, strict=True)]
        matrix = functools.reduce(jnp.multiply, crossed)
        return DenseGram.trusted(jnp.where(jnp.eye(self.n, dtype=bool), 1, matrix))

    def scaled(self, weights: jax.Array) -> WeightedGram:
        return WeightedGram(self, _scale(self, weights))

    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        of = self.factors(), self._everything()
        return pairwise.squared_norms(*of, weights=shares, **self._options)[0]


def _tile_size(*grams: OfPoints) -> int | None:
    return min((gram.tile_size for gram in grams if gram.tile_size), default=None)


@functools.partial(jax.jit, static_argnames="layout")
def _prepared(kernel: Kernel, points: jax.Array, layout: Layout) -> Any:
    """The prepared points, which lie like the points."""
    return layout.constrain(kernel.prepare(points))


def _factor(kernel: Kernel, points: Any, layout: Layout | None) -> Factor:
    """A kernel and its prepared points, placed as the layout says."""
    if layout is None:
        return Factor(kernel, kernel.prepare(points))
    padded = points.shape[0] == layout.rows and isinstance(points, Tracer)
    placed = layout.constrain(points) if padded else layout.shard(points)
    return Factor(kernel, _prepared(kernel, placed, layout))


@jax.tree_util.register_pytree_node_class
class TiledGram(OfPoints):
    """A Gram that exists tile by tile, whatever n: O(tile^2 + n d) memory, n d / P on P devices.

    Args:
      hadamard: the factors of the product, whose points lie as `layout` says.
      tile_size: the side of a tile; what suits the device where None.
    """

    _arrays, _static = ("_factors",), ("tile_size", "layout")

    def __init__(
        self, hadamard: Factors, *, tile_size: int | None = None, layout: Layout | None = None
    ):
        self._factors, self.tile_size, self.layout = hadamard, tile_size, layout

    @classmethod
    def from_points(
        cls,
        kernel: Kernel,
        points: Any,
        *,
        tile_size: int | None = None,
        layout: Layout | None = None,
    ) -> TiledGram:
        """The Gram of `points` `[n, d]`, or `[layout.rows, d]` where `Layout.shard` padded them.

        Without a layout the points stay where they are. Inside `jax.jit` points that are sharded
        need one, since a tracer does not know where it is.
        """
        layout = layout or layout_of(points)
        return cls((_factor(kernel, points, layout),), tile_size=tile_size, layout=layout)

    @property
    def _rows(self) -> jax.Array:
        return jax.tree.leaves(self._factors[0].points)[0]

    def factors(self) -> Factors:
        return self._factors

    def squared_frobenius_norm(self) -> jax.Array:
        return pairwise.squared_norms(self._factors, self._everything(), **self._options)[0]

    def matvec(self, vectors: jax.Array) -> jax.Array:
        rows = self._rows.shape[0]
        columns = vectors.reshape(vectors.shape[0], -1)
        columns = columns if vectors.shape[0] == rows else self.place(columns)
        of = self._factors, self._everything(), (columns,)
        (product,) = pairwise.matvecs(*of, **self._options)
        return product[: vectors.shape[0]].reshape(vectors.shape)

    def store(self) -> DenseGram:
        """K as an array, written tile by tile: nothing else of its size is made."""
        return DenseGram.trusted(pairwise.assemble(self._factors, **self._options), self.layout)


@jax.tree_util.register_pytree_node_class
class FeatureGram(OfPoints):
    """A Gram of known finite features, K = Z Z^T: everything costs O(n D^2), not O(n^2).

    The non-zero eigenvalues of K / n are those of the D x D matrix Z^T Z / n (CV Proposition 1).
    Products with other Grams are of kernels again.

    Args:
      features: Z, `[n, D]`, real, finite, rows of unit norm to 1e-4; cast to the compute dtype.
        Tracers are taken as they are.

    Raises:
      TypeError, ValueError: the features are not one of these things.
    """

    _arrays, _static = ("features",), ("layout",)

    def __init__(self, features: ArrayLike):
        if validation.is_concrete(features):
            features = validation.check_embeddings(features, name="features")
            norms = jnp.sum(jnp.square(features), axis=1)
            off = jnp.abs(norms - 1)
            if float(jnp.max(off)) > 2 * _TOLERANCES[1]:
                row = int(jnp.argmax(off))
                found = f"received one of squared norm {float(norms[row]):.6g} in row {row}"
                raise ValueError(f"features: expected rows of unit norm, {found}.")
        self.features, self.layout = jnp.asarray(features), None

    @classmethod
    def trusted(cls, features: jax.Array, layout: Layout | None = None) -> FeatureGram:
        """The Gram of features that have unit norm by construction, zero in the padding."""
        return cls.tree_unflatten((layout,), (features,))

    @property
    def _rows(self) -> jax.Array:
        return self.features

    def factors(self) -> Factors:
        """One factor: the cosine kernel on the features, whose rows have unit norm already."""
        return (Factor(Cosine(), self.features),)

    def covariance(self) -> jax.Array:
        """Z^T Z / n, `[D, D]`, of trace one."""
        return spectra.outer_products(self.features) / self.n

    def squared_frobenius_norm(self) -> jax.Array:
        """||Z^T Z / n||_F^2, which equals ||K / n||_F^2."""
        return spectra.squared_norm(self.covariance())

    def squared_norm_by(self, shares: jax.Array) -> jax.Array:
        return spectra.squared_norm(_product(self.features.T, self.features * shares[:, None]))

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """Z (Z^T v) / n."""
        features = self.features[: vectors.shape[0]]
        return _product(features, _product(features.T, vectors)) / self.n

    def eigenvalues(self) -> jax.Array:
        """The eigenvalues of Z^T Z / n, padded with zeros to `[n]` where D < n."""
        if self.rank_bound == self.n:
            return self.dense().eigenvalues()
        return spectra.padded_spectrum(self.covariance(), self.n)

    @property
    def rank_bound(self) -> int:
        return min(self.n, self.features.shape[1])

    def __mul__(self, other: Gram) -> Gram:
        """The Hadamard product; a `FeatureGram` again where all products of features are few."""
        if isinstance(other, FeatureGram) and (self.n, self.layout) == (other.n, other.layout):
            count = self.features.shape[1] * other.features.shape[1]
            if count <= min(_PRODUCT_FEATURES, self.n // 2):
                products = jnp.einsum("ni,nj->nij", self.features, other.features)
                return FeatureGram.trusted(products.reshape(-1, count), self.layout)
        return super().__mul__(other)


@jax.tree_util.register_pytree_node_class
class WeightedGram(Operator):
    """K o w w^T of a Gram of points K and weights w as placed, `[n]`, of squared norm n."""

    _arrays, _static = ("gram", "weights"), ("layout",)

    def __init__(self, gram: OfPoints, weights: jax.Array):
        self.gram, self.weights, self.layout = gram, weights, gram.layout

    @property
    def _rows(self) -> jax.Array:
        return self.weights

    @property
    def rank_bound(self) -> int:
        return self.gram.rank_bound

    def squared_frobenius_norm(self) -> jax.Array:
        """sum_ij w_i^2 (K_ij / n)^2 w_j^2."""
        return self.gram.squared_norm_by(jnp.square(self.weights) / self.n)

    def matvec(self, vectors: jax.Array) -> jax.Array:
        weights = self.weights[: vectors.shape[0]].reshape(-1, *(1,) * (vectors.ndim - 1))
        return weights * self.gram.matvec(weights * vectors)

    def row_squares_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return self.gram._row_squares_beside(left, right, self.weights)

    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        weights = lax.stop_gradient(self.weights)[:, None]
        slope = self.gram.bilinear_slope(weights * left, weights * right)
        if validation.is_concrete(self.weights):
            return slope
        constant = jax.tree.map(lax.stop_gradient, self.gram)
        products = constant.matvec(jnp.concatenate([weights * left, weights * right], axis=1))
        beside = jnp.concatenate([right, left], axis=1)
        total = jnp.sum(self.weights * jnp.sum(products * beside, axis=1))
        return slope + total - lax.stop_gradient(total)

    def eigenvalues(self) -> jax.Array:
        if isinstance(self.gram, FeatureGram) and self.rank_bound < self.n:
            return self._features().eigenvalues()
        return self.dense().eigenvalues()

    def _features(self) -> FeatureGram:
        """Of features: the rows times their weights."""
        assert isinstance(self.gram, FeatureGram)
        return FeatureGram.trusted(self.gram.features * self.weights[:, None], self.layout)

    def dense(self) -> Dense:
        return self.gram.dense().scaled(self._unit())

    def store(self) -> Operator:
        stored = self.gram.store()
        return self if stored is self.gram else stored.scaled(self._unit())

    def _unit(self) -> jax.Array:
        """The weights `[n]`, of unit norm."""
        return self.weights[: self.n] / math.sqrt(self.n)


@jax.tree_util.register_pytree_node_class
class SharedTiles:
    """Grams made of the same factors: one pass over the pairs of points serves all of them.

    Of outputs, prompts and pairs, the last has the kernels of both others.

    Args:
      factors: all factors, each once.
      subsets: which of them make each Gram.
      tile_size, layout: as of the Grams.
    """

    def __init__(
        self,
        factors: Factors,
        subsets: pairwise.Subsets,
        tile_size: int | None = None,
        layout: Layout | None = None,
    ):
        self._factors, self._subsets = factors, subsets
        self._options = {"tile_size": tile_size, "layout": layout}

    @classmethod
    def of(cls, grams: Sequence[Operator]) -> SharedTiles | None:
        """What the Grams share; None where one is not tiled or has no factor of another."""
        if len(grams) < 2 or not all(isinstance(gram, TiledGram) for gram in grams):
            return None
        tiled = cast("Sequence[TiledGram]", grams)
        known = {id(factor): factor for gram in tiled for factor in gram.factors()}
        if len({gram.layout for gram in tiled}) > 1 or len(known) == sum(
            len(gram.factors()) for gram in tiled
        ):
            return None
        order = list(known)
        subsets = tuple(tuple(order.index(id(f)) for f in gram.factors()) for gram in tiled)
        tile_size = _tile_size(*tiled) or pairwise.shared_tile_size()
        return cls(tuple(known.values()), subsets, tile_size, tiled[0].layout)

    def squared_frobenius_norms(self) -> jax.Array:
        """||K / n||_F^2 of every Gram."""
        return pairwise.squared_norms(self._factors, self._subsets, **self._options)

    def matvecs(self, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """(K / n) V of every Gram, each with its own V, `[n, m]` as placed."""
        return pairwise.matvecs(self._factors, self._subsets, vectors, **self._options)

    def row_squares_beside_each(
        self, lefts: tuple[jax.Array, ...], rights: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        """`Operator.row_squares_beside` of every Gram."""
        of = self._factors, self._subsets, lefts, rights
        return pairwise.row_squares_beside(*of, **self._options)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The factors, and what is static."""
        return (self._factors,), (self._subsets, *self._options.values())

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> Self:
        return cls(*arrays, *static)


def gram(kernel: Kernel, points: ArrayLike, *, tile_size: int | None = None) -> Gram:
    """The Gram of `points` under `kernel`, in a representation that suits n.

    The cosine kernel on fewer dimensions than points gives a `FeatureGram`. Otherwise a small Gram
    is a `DenseGram` and a large one a `TiledGram`. To choose by hand, construct one of them.

    Args:
      kernel: a normalised kernel.
      points: embeddings `[n, d]`.
      tile_size: makes the Gram a `TiledGram` of that tile size.

    Raises:
      TypeError, ValueError: as `validation.check_embeddings`, or the kernel is not one or is not
        defined on the points, or `tile_size` is not a positive integer.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
      >>> gram = cv.gram(cv.Gaussian(0.1), points)
      >>> print(gram.eigenvalues().round(3))
      [0.5 0.5 0.  0. ]
    """
    check_kernel(kernel, name="kernel")
    array = validation.as_array(points, name="points")
    origin = validation.origin_of(array) if kernel.shift_invariant else None
    checked = validation.check_embeddings(array, name="points", origin=origin)
    if validation.is_concrete(checked, kernel):
        with jax.ensure_compile_time_eval():
            kernel.check_points(checked, name="points")
            kernel = kernel.suited_to(checked)
    if tile_size is not None:
        tile_size = validation.check_count(tile_size, name="tile_size", minimum=1)
        return TiledGram.from_points(kernel, checked, tile_size=tile_size)
    return represent(kernel, checked)


def represent(
    kernel: Kernel, points: jax.Array, *, layout: Layout | None = None, in_tiles: bool = False
) -> Gram:
    """`gram` of points that were checked before, on the devices of a layout.

    `points` are `[n, d]`, or `[layout.rows, d]` where they were padded. `in_tiles` says not to
    store a matrix of few points either.
    """
    n, dimension = points.shape[0] if layout is None else layout.n, points.shape[1]
    if isinstance(kernel, Cosine) and dimension < n:
        z = _factor(kernel, points, layout).points
        if layout is not None:
            inside = jnp.arange(layout.rows) < n
            z = layout.constrain(jnp.where(inside[:, None], z, 0))
        return FeatureGram.trusted(z, layout)
    if layout is None and n <= _DENSE_UP_TO and not in_tiles:
        return DenseGram.from_points(kernel, points)
    return TiledGram.from_points(kernel, points, layout=layout)
