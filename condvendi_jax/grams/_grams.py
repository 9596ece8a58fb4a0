"""Gram matrices behind one interface, whatever they are made of.

A `Gram` is the kernel matrix K of n points, of unit diagonal. What it answers is about A = K / n,
whose eigenvalues are non-negative and sum to one. `gram_x * gram_t` is the Hadamard product, the
Gram of the pairs (CV eq. 5), and a Gram like any other.
"""

from __future__ import annotations

import abc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _features as features
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams import _tiles as tiles
from condvendi_jax.grams._blocks import Factor, Factors
from condvendi_jax.kernels import Cosine, Kernel, check_kernel

# Up to here a matrix costs nothing, the eigenvalues need it, and it has derivatives of every mode.
_DENSE_UP_TO = 2048
# Up to so many products of features the joint is solved in the dual: its matrix has that side.
_PRODUCT_FEATURES = 1024


class Gram(abc.ABC):
    """The kernel matrix K of n points with unit diagonal; its methods speak of A = K / n."""

    @property
    @abc.abstractmethod
    def n(self) -> int:
        """The number of points."""

    @property
    @abc.abstractmethod
    def dtype(self) -> jnp.dtype:
        """The dtype that everything is computed in."""

    @abc.abstractmethod
    def squared_frobenius_norm(self) -> jax.Array:
        """||K / n||_F^2, a scalar in [1/n, 1]."""

    @abc.abstractmethod
    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v for vectors `[n]` or `[n, m]`, of the same shape."""

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their Hadamard product."""
        joint = (self * other).squared_frobenius_norm()
        return self.squared_frobenius_norm(), other.squared_frobenius_norm(), joint

    def store(self) -> Gram:
        """The same Gram for many products: K as an array, where that makes them faster."""
        return self

    def squared_norm_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """||K / n - L R^T||_F^2 for L, R `[n, m]` as placed, L R^T symmetric, entry by entry.

        Where L R^T is nearly all of K / n, a difference of norms has no digits left.
        """
        return tiles.squared_norm_beside(self.factors(), left, right, tile_size=_tile_size(self))

    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """A zero whose gradient is that of sum_ij (K / n)_ij <left_i, right_j>, `[n, m]` each."""
        return tiles.bilinear_slope(self.factors(), left, right, tile_size=_tile_size(self))

    @property
    def stored_share(self) -> float:
        """The part of the matrix that one memory holds where it is stored."""
        return 1.0

    def restricted(self, kept: jax.Array) -> Gram:
        """The Gram of some of the points, booleans `[n]`, at the size of all.

        Its eigenvalues are those of the points that are kept, and a zero for every other. Of
        `eigenvalues` alone: its diagonal is not one.
        """
        return self.dense().restricted(kept)

    @property
    def rank_bound(self) -> int:
        """How many eigenvalues can differ from zero, as far as that is known beforehand."""
        return self.n

    def place(self, vectors: jax.Array) -> jax.Array:
        """Vectors `[n, m]` where and how `matvec` wants them; itself unless the Gram is sharded."""
        return vectors

    @abc.abstractmethod
    def eigenvalues(self) -> jax.Array:
        """The eigenvalues of K / n, `[n]`, descending, non-negative, of sum one."""

    @abc.abstractmethod
    def dense(self) -> DenseGram:
        """The same Gram as an n x n array."""

    @abc.abstractmethod
    def factors(self) -> Factors:
        """The same Gram as a Hadamard product of kernels on points."""

    def __mul__(self, other: Gram) -> Gram:
        """The Hadamard product: the Gram of the pairs of points (CV eq. 5)."""
        if not isinstance(other, Gram):
            return NotImplemented
        if self.n != other.n:
            raise ValueError(
                f"Gram: expected the same number of points, received {self.n} and {other.n}."
            )
        if getattr(other, "layout", None) is not None:
            return NotImplemented  # It says itself why points on one device do not fit.
        if isinstance(self, DenseGram) or isinstance(other, DenseGram):
            return DenseGram.trusted(self.dense().matrix * other.dense().matrix)
        return TiledGram(self.factors() + other.factors(), tile_size=_tile_size(self, other))


def _tile_size(*grams: Gram) -> int:
    sizes = [gram.tile_size for gram in grams if isinstance(gram, TiledGram)]
    return min(sizes, default=tiles.default_tile_size())


@jax.tree_util.register_pytree_node_class
class DenseGram(Gram):
    """A Gram stored as an n x n array.

    Args:
      matrix: `[n, n]`, real, finite, symmetric, of unit diagonal and with entries in [-1, 1], to
        1e-4, or 1e-8 in float64; cast to the compute dtype. It must be positive semidefinite as
        well, which is not checked: that takes its spectrum. Tracers are taken as they are.

    Raises:
      TypeError: the numbers are not real.
      ValueError: the matrix is not one of these things.
    """

    def __init__(self, matrix: Any):
        if validation.is_concrete(matrix):
            matrix = validation.as_array(matrix, name="matrix")
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
                raise ValueError(
                    f"matrix: expected a square array [n, n], received shape {matrix.shape}."
                )
            given = matrix.dtype
            matrix = validation.check_embeddings(matrix, name="matrix")
            _check_gram(matrix, 1e-8 if given == matrix.dtype == np.float64 else 1e-4)
        self.matrix = matrix

    @classmethod
    def trusted(cls, matrix: jax.Array) -> DenseGram:
        """The Gram of a matrix that is one by construction: nothing is looked at."""
        gram = object.__new__(cls)
        gram.matrix = matrix
        return gram

    @classmethod
    def from_points(cls, kernel: Kernel, points: jax.Array) -> DenseGram:
        """The Gram of `points` `[n, d]`; the diagonal is exactly one."""
        return TiledGram.from_points(kernel, points).dense()

    @property
    def n(self) -> int:
        """The number of points."""
        return self.matrix.shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the matrix."""
        return self.matrix.dtype

    def squared_frobenius_norm(self) -> jax.Array:
        """||K / n||_F^2, summed by rows first, for float32's sake."""
        return jnp.sum(jnp.sum(jnp.square(self.matrix), axis=1) / self.n) / self.n

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v."""
        return jnp.matmul(self.matrix, vectors, precision=lax.Precision.HIGHEST) / self.n

    def squared_norm_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """||K / n - L R^T||_F^2, a block of rows at a time."""
        return tiles.squared_norm_of_rows(self.matrix, left, right, n=self.n)

    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """A zero whose gradient is that of sum_ij (K / n)_ij <left_i, right_j>."""
        images = jnp.matmul(self.matrix, right, precision=lax.Precision.HIGHEST)
        total = jnp.sum(left * images) / self.n
        return total - lax.stop_gradient(total)

    def restricted(self, kept: jax.Array) -> Gram:
        """The Gram of some of the points, zero in the rows and columns of the others."""
        weights = kept.astype(self.dtype) * jnp.sqrt(self.n / jnp.sum(kept, dtype=self.dtype))
        return DenseGram.trusted(self.matrix * weights[:, None] * weights[None, :])

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues of K / n in O(n^3) time."""
        return spectra.spectrum(self.matrix / self.n)

    def dense(self) -> DenseGram:
        """Itself."""
        return self

    def factors(self) -> Factors:
        """Not available: the points are not known."""
        raise ValueError("DenseGram: the points are not stored, so it has no factors.")

    def tree_flatten(self) -> tuple[tuple[jax.Array], None]:
        """The matrix is the only leaf."""
        return (self.matrix,), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[jax.Array]) -> DenseGram:
        """Rebuilds the Gram."""
        return cls.trusted(*leaves)


def _check_gram(matrix: jax.Array, tolerance: float) -> None:
    """Raises where a matrix is concrete and not symmetric, of unit diagonal and within [-1, 1]."""
    if not validation.is_concrete(matrix):
        return
    with jax.ensure_compile_time_eval():
        worst = [(float(by), int(row)) for by, row in _deviations(matrix)]
    for expected, (by, row) in zip(
        (
            "the unit diagonal of a normalised kernel (K_ij / sqrt(K_ii K_jj) has one, a matrix of "
            "distances has none)",
            "entries in [-1, 1]",
            "a symmetric matrix",
        ),
        worst,
        strict=True,
    ):
        if by > tolerance:
            raise ValueError(
                f"matrix: expected {expected}, received one that is off by {by:.2g} in row {row}."
            )


@jax.jit
def _deviations(matrix: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """How far, and in which row, a matrix is off a unit diagonal, off [-1, 1], and off symmetry."""
    by_row = (
        jnp.abs(jnp.diagonal(matrix) - 1),
        jnp.max(jnp.abs(matrix), axis=1) - 1,
        jnp.max(jnp.abs(matrix - matrix.T), axis=1),
    )
    return [(jnp.max(by), jnp.argmax(by)) for by in by_row]


@jax.tree_util.register_pytree_node_class
class TiledGram(Gram):
    """A Gram that exists tile by tile: O(tile^2 + n d) memory, whatever n.

    Args:
      hadamard: the factors of the product.
      tile_size: the side of a tile; what suits the device where None.
    """

    def __init__(self, hadamard: Factors, *, tile_size: int | None = None):
        self._factors = hadamard
        self.tile_size = tile_size or tiles.default_tile_size()

    @classmethod
    def from_points(
        cls, kernel: Kernel, points: jax.Array, *, tile_size: int | None = None
    ) -> TiledGram:
        """The Gram of `points` `[n, d]`."""
        return cls((Factor(kernel, kernel.prepare(points)),), tile_size=tile_size)

    @property
    def n(self) -> int:
        """The number of points."""
        return self._factors[0].n

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the points."""
        return self._factors[0].dtype

    def squared_frobenius_norm(self) -> jax.Array:
        """||K / n||_F^2 in one pass over the tiles above the diagonal."""
        everything = (tuple(range(len(self._factors))),)
        return tiles.squared_norms(self._factors, everything, tile_size=self.tile_size)[0]

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v in one pass over the tiles above the diagonal."""
        columns = vectors[:, None] if vectors.ndim == 1 else vectors
        product = tiles.matvec(self._factors, columns, tile_size=self.tile_size)
        return product.reshape(vectors.shape)

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues of K / n, through the n x n array."""
        return self.dense().eigenvalues()

    def dense(self) -> DenseGram:
        """The n x n array; the diagonal is exactly one.

        Raises:
          ValueError: the array does not fit in memory.
        """
        memory.check(self.n, self.dtype)
        products = [f.kernel.cross(f.points, f.points) for f in self._factors]
        matrix = functools.reduce(jnp.multiply, products)
        return DenseGram.trusted(jnp.where(jnp.eye(self.n, dtype=bool), 1, matrix))

    def store(self) -> DenseGram:
        """K as an array, written tile by tile: nothing else of its size is made."""
        return DenseGram.trusted(tiles.assemble(self._factors, tile_size=self.tile_size))

    def factors(self) -> Factors:
        """The factors of the Hadamard product."""
        return self._factors

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their product, in one pass."""
        return _one_pass(self, other) or super().squared_norms_with(other)

    def tree_flatten(self) -> tuple[tuple[Factors], int]:
        """Factors are children, the tile size is static."""
        return (self._factors,), self.tile_size

    @classmethod
    def tree_unflatten(cls, tile_size: int, children: tuple[Any]) -> TiledGram:
        """Rebuilds the Gram."""
        return cls(*children, tile_size=tile_size)


class FiniteFeatures(Gram):
    """What Grams of finite features answer, wherever their features lie: K = Z Z^T.

    The non-zero eigenvalues of K / n are those of the D x D matrix Z^T Z / n (CV Proposition 1).
    """

    #: Z, `[n, D]`, rows of unit norm; rows of zeros may follow.
    features: jax.Array

    def covariance(self) -> jax.Array:
        """Z^T Z / n, `[D, D]`, of trace one."""
        return features.outer_products(self.features) / self.n

    def squared_frobenius_norm(self) -> jax.Array:
        """||Z^T Z / n||_F^2, which equals ||K / n||_F^2."""
        return features.squared_norm(self.covariance())

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """Z (Z^T v) / n, for vectors of as many rows as Z, or of n."""
        return features.matvec(self.features[: vectors.shape[0]], vectors) / self.n

    def eigenvalues(self) -> jax.Array:
        """The eigenvalues of Z^T Z / n, padded with zeros to `[n]` where D < n."""
        if self.rank_bound == self.n:
            return self.dense().eigenvalues()
        return features.eigenvalues(self.covariance(), self.n)

    @property
    def rank_bound(self) -> int:
        """The number of features, where it is less than n."""
        return min(self.n, self.factors()[0].points.shape[1])


@jax.tree_util.register_pytree_node_class
class FeatureGram(FiniteFeatures):
    """A Gram of known finite features, K = Z Z^T: everything costs O(n D^2), not O(n^2).

    Args:
      features: Z, `[n, D]`, real, finite, rows of unit norm to 1e-4; cast to the compute dtype.
        Tracers are taken as they are.

    Raises:
      TypeError, ValueError: the features are not one of these things.
    """

    def __init__(self, features: ArrayLike):
        if validation.is_concrete(features):
            features = validation.check_embeddings(features, name="features")
            norms = jnp.sum(jnp.square(features), axis=1)
            off = jnp.abs(norms - 1)
            if float(jnp.max(off)) > 2e-4:
                row = int(jnp.argmax(off))
                raise ValueError(
                    f"features: expected rows of unit norm, received one of squared norm "
                    f"{float(norms[row]):.6g} in row {row}."
                )
        self.features = jnp.asarray(features)

    @classmethod
    def trusted(cls, features: jax.Array) -> FeatureGram:
        """The Gram of features that have unit norm by construction: nothing is looked at."""
        gram = object.__new__(cls)
        gram.features = features
        return gram

    @property
    def n(self) -> int:
        """The number of points."""
        return self.features.shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the features."""
        return self.features.dtype

    def dense(self) -> DenseGram:
        """The n x n array; the diagonal is exactly one."""
        return TiledGram(self.factors()).dense()

    def factors(self) -> Factors:
        """One factor: the cosine kernel on the features, whose rows have unit norm already."""
        return (Factor(Cosine(), self.features),)

    def restricted(self, kept: jax.Array) -> Gram:
        """The Gram of some of the points; the features of the others are zero."""
        if self.features.shape[1] >= self.n:
            return self.dense().restricted(kept)
        weights = kept.astype(self.dtype) * jnp.sqrt(self.n / jnp.sum(kept, dtype=self.dtype))
        return FeatureGram.trusted(self.features * weights[:, None])

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their product, in one pass."""
        return _one_pass(self, other) or super().squared_norms_with(other)

    def __mul__(self, other: Gram) -> Gram:
        """The Hadamard product; a `FeatureGram` again where the products of features are few.

        The features of the product are all products of one feature of each (CV Proposition 1).
        """
        if isinstance(other, FeatureGram) and self.n == other.n:
            count = self.features.shape[1] * other.features.shape[1]
            if count <= min(_PRODUCT_FEATURES, self.n // 2):
                products = jnp.einsum("ni,nj->nij", self.features, other.features)
                return FeatureGram.trusted(products.reshape(self.n, count))
        return super().__mul__(other)

    def tree_flatten(self) -> tuple[tuple[jax.Array], None]:
        """The features are the only leaf."""
        return (self.features,), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[jax.Array]) -> FeatureGram:
        """Rebuilds the Gram."""
        return cls.trusted(*leaves)


def gram(kernel: Kernel, points: ArrayLike, *, tile_size: int | None = None) -> Gram:
    """The Gram of `points` under `kernel`, in a representation that suits n.

    The cosine kernel on fewer dimensions than points is a `FeatureGram`. Otherwise a small Gram is
    a `DenseGram` and a large one a `TiledGram`. To choose by hand, construct one of them.

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
    return represent(kernel, checked, tile_size=tile_size)


def represent(
    kernel: Kernel, points: jax.Array, *, tile_size: int | None = None, in_tiles: bool = False
) -> Gram:
    """`gram` on points that were checked before; `in_tiles` makes no array of few points either."""
    n, dimension = points.shape
    if tile_size is not None:
        tile_size = validation.check_count(tile_size, name="tile_size", minimum=1)
        return TiledGram.from_points(kernel, points, tile_size=tile_size)
    if isinstance(kernel, Cosine) and dimension < n:
        return FeatureGram.trusted(kernel.prepare(points))
    if n <= _DENSE_UP_TO and not in_tiles:
        return DenseGram.from_points(kernel, points)
    return TiledGram.from_points(kernel, points)


def _one_pass(gram_x: Gram, gram_t: Gram) -> tuple[jax.Array, jax.Array, jax.Array] | None:
    """The squared norms of both and of their product in one pass; None where one is no tiles."""
    if not all(isinstance(gram, (TiledGram, FeatureGram)) for gram in (gram_x, gram_t)):
        return None
    factors_x, factors_t = gram_x.factors(), gram_t.factors()
    indices = tuple(range(len(factors_x) + len(factors_t)))
    subsets = (indices[: len(factors_x)], indices[len(factors_x) :], indices)
    of_x, of_t, of_joint = tiles.squared_norms(
        factors_x + factors_t, subsets, tile_size=_tile_size(gram_x, gram_t)
    )
    return of_x, of_t, of_joint
