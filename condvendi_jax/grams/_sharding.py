"""Grams of points that are spread over many devices, on one host or on several.

They answer what every `Gram` answers. `ShardedGram` is the kernel matrix of row-sharded points that
is never formed; `ShardedFeatures` is the same where the kernel has few features; `StoredGram` has
the matrix itself, a block of rows on every device, for many products with it. The entropies, the
spectral measure and the scores need to know nothing of devices.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from condvendi_jax.grams import _blocks as blocks
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams import _rings as rings
from condvendi_jax.grams import _tiles as tiles
from condvendi_jax.grams._blocks import Factor, Factors, Subsets
from condvendi_jax.grams._grams import DenseGram, FiniteFeatures, Gram, TiledGram
from condvendi_jax.grams._layouts import Layout, layout_of, mesh_of, to_host
from condvendi_jax.kernels import Cosine, Kernel

__all__ = [
    "Layout",
    "ShardedFeatures",
    "ShardedGram",
    "StoredGram",
    "layout_of",
    "mesh_of",
    "to_host",
]

_PRECISION = lax.Precision.HIGHEST


@jax.tree_util.register_pytree_node_class
class ShardedGram(Gram):
    """A Gram whose points are spread over devices: O(n d / P) memory on each, whatever n.

    Args:
      hadamard: the factors of the product; their prepared points have `layout.rows` rows, the
        padding included, and lie as the layout says.
      layout: where the points are.
      tile_size: the side of a tile; what suits the device where None.
    """

    def __init__(self, hadamard: Factors, layout: Layout, *, tile_size: int | None = None):
        self._factors = hadamard
        self.layout = layout
        self.tile_size = tile_size or tiles.default_tile_size()

    @classmethod
    def from_points(
        cls,
        kernel: Kernel,
        points: np.ndarray | jax.Array,
        *,
        layout: Layout | None = None,
        tile_size: int | None = None,
    ) -> ShardedGram:
        """The Gram of points `[n, d]`, or `[layout.rows, d]` where `Layout.shard` padded them.

        The cosine kernel on fewer dimensions than points is a `ShardedFeatures`.

        Args:
          kernel: a normalised kernel.
          points: sharded by rows, or of the host.
          layout: where they shall be; as they are where None. Inside `jax.jit` it must be given,
            since a tracer does not know where it is.
          tile_size: the side of a tile.

        Raises:
          ValueError: there is no layout, or it is one of another number of points.
        """
        layout = layout or layout_of(points)
        if layout is None:
            raise ValueError(
                "ShardedGram: the points are not sharded by rows; give layout=Layout(mesh, axis, n)"
                ", or use TiledGram on one device."
            )
        padded = points.shape[0] == layout.rows and isinstance(points, Tracer)
        placed = layout.constrain(points) if padded else layout.shard(points)
        factor = Factor(kernel, _prepare(kernel, placed, layout))
        finite = isinstance(kernel, Cosine) and points.shape[1] < layout.n
        return (ShardedFeatures if finite else ShardedGram)((factor,), layout, tile_size=tile_size)

    @property
    def n(self) -> int:
        """The number of points, without the padding."""
        return self.layout.n

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the points."""
        return self._factors[0].dtype

    @property
    def _where(self) -> dict[str, Any]:
        """What the functions of `rings` want to know."""
        return {"layout": self.layout, "tile_size": self.tile_size}

    def factors(self) -> Factors:
        """The factors of the Hadamard product, on points that include the padding."""
        return self._factors

    @property
    def stored_share(self) -> float:
        """The part of the matrix that one memory holds where it is stored."""
        return self.layout.stored_share

    def place(self, vectors: jax.Array) -> jax.Array:
        """Vectors `[n, m]` as `[layout.rows, m]`, sharded like the points, zero in the padding."""
        return self.layout.place(vectors)

    def squared_frobenius_norm(self) -> jax.Array:
        """||K / n||_F^2 by a half ring: every pair of points meets once."""
        return self._squared_norms((tuple(range(len(self._factors))),), self._factors)[0]

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their Hadamard product: one half ring.

        Raises:
          ValueError: the other Gram does not lie on the same devices in the same way.
        """
        own, others = self._factors, self._matching(other).factors()
        indices = tuple(range(len(own) + len(others)))
        subsets = (indices[: len(own)], indices[len(own) :], indices)
        of_own, of_other, of_joint = self._squared_norms(subsets, own + others)
        return of_own, of_other, of_joint

    def _squared_norms(self, subsets: Subsets, factors: Factors) -> jax.Array:
        kernels, points = blocks.kernels_and_points(factors)
        return rings.squared_norms(kernels, points, subsets=subsets, **self._where)

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v by a half ring, for vectors `[layout.rows]` or `[layout.rows, m]` as placed.

        Where there is padding, vectors of n rows are placed first and give n rows, which costs a
        copy.
        """
        if vectors.shape[0] != self.layout.rows:
            columns = vectors.reshape(self.n, -1)
            return self.matvec(self.place(columns))[: self.n].reshape(vectors.shape)
        columns = vectors[:, None] if vectors.ndim == 1 else vectors
        kernels, points = blocks.kernels_and_points(self._factors)
        product = rings.matvec(kernels, points, columns, **self._where)
        return product.reshape(vectors.shape)

    def bilinear_slope(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """A zero whose gradient is that of sum_ij (K / n)_ij <left_i, right_j>, by a half ring.

        Args:
          left: `[layout.rows, m]` as placed, a constant.
          right: `[layout.rows, m]` as placed, a constant.
        """
        kernels, points = blocks.kernels_and_points(self._factors)
        return rings.bilinear_slope(kernels, points, left, right, **self._where)

    def squared_norm_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """||K / n - L R^T||_F^2, by a half ring."""
        kernels, points = blocks.kernels_and_points(self._factors)
        return rings.squared_norm_beside(kernels, points, left, right, **self._where)

    def store(self) -> StoredGram:
        """The same Gram with the matrix K stored, `[rows / P, rows]` on every device."""
        kernels, points = blocks.kernels_and_points(self._factors)
        return StoredGram(rings.matrix(kernels, points, **self._where), self.layout)

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues of K / n, computed by every device for itself: see `dense`."""
        return self.dense().eigenvalues()

    def dense(self) -> DenseGram:
        """The n x n array on every device, from gathered points: for n of a few thousand.

        Raises:
          ValueError: the array does not fit in the memory of one device. `store()` and `matvec`
            are what the spectral measure needs at any n.
        """
        whole = NamedSharding(self.layout.mesh, PartitionSpec())
        gathered = lax.with_sharding_constraint(self._factors, whole)
        points = jax.tree.map(lambda leaf: leaf[: self.n], tuple(f.points for f in gathered))
        kernels = tuple(f.kernel for f in gathered)
        return TiledGram(tuple(map(Factor, kernels, points)), tile_size=self.tile_size).dense()

    def _matching(self, other: Gram) -> ShardedGram:
        """The other Gram, checked to lie like this one."""
        if isinstance(other, ShardedGram) and other.layout == self.layout:
            return other
        where = other.layout if isinstance(other, ShardedGram) else type(other).__name__
        raise ValueError(
            f"ShardedGram: expected another ShardedGram of {self.layout}, received {where}."
        )

    def __mul__(self, other: Gram) -> Gram:
        """The Hadamard product: the Gram of the pairs of points (CV eq. 5).

        Raises:
          ValueError: the other Gram does not lie on the same devices in the same way.
        """
        if not isinstance(other, Gram):
            return NotImplemented
        if isinstance(other, StoredGram):
            return self.store() * other
        other = self._matching(other)
        size = min(self.tile_size, other.tile_size)
        return ShardedGram(self._factors + other.factors(), self.layout, tile_size=size)

    def __rmul__(self, other: Gram) -> Gram:
        """Reached from Grams that are not sharded, and refused."""
        return self * other

    def tree_flatten(self) -> tuple[tuple[Factors], tuple[Layout, int]]:
        """Factors are children; the layout and the tile size are static."""
        return (self._factors,), (self.layout, self.tile_size)

    @classmethod
    def tree_unflatten(cls, static: tuple[Layout, int], children: tuple[Any]) -> ShardedGram:
        """Rebuilds the Gram."""
        return cls(*children, static[0], tile_size=static[1])


@jax.tree_util.register_pytree_node_class
class ShardedFeatures(FiniteFeatures, ShardedGram):
    """A sharded Gram of finite features, K = Z Z^T: an all-reduce of D x D takes the ring's place.

    Products with other Grams are of kernels again, and go around the ring.
    """

    @property
    def features(self) -> jax.Array:
        """Z `[rows, D]`, zero in the padding: there the eigenvalues are those without it."""
        features = self._factors[0].points
        inside = jnp.arange(self.layout.rows) < self.n
        return self.layout.constrain(jnp.where(inside[:, None], features, 0))


@jax.tree_util.register_pytree_node_class
class StoredGram(Gram):
    """A Gram whose matrix is stored, a block of rows on every device.

    Args:
      matrix: K `[rows, rows]`, sharded by rows, zero in the rows and columns of the padding.
      layout: how the rows lie.
    """

    def __init__(self, matrix: jax.Array, layout: Layout):
        self.matrix = matrix
        self.layout = layout

    @property
    def n(self) -> int:
        """The number of points, without the padding."""
        return self.layout.n

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the matrix."""
        return self.matrix.dtype

    def place(self, vectors: jax.Array) -> jax.Array:
        """Vectors `[n, m]` as `[layout.rows, m]`, sharded like the rows, zero in the padding."""
        return self.layout.place(vectors)

    def squared_frobenius_norm(self) -> jax.Array:
        """||K / n||_F^2, summed by rows first, for float32's sake."""
        return jnp.sum(jnp.sum(jnp.square(self.matrix), axis=1) / self.n) / self.n

    def squared_norms_with(self, other: Gram) -> tuple[jax.Array, jax.Array, jax.Array]:
        """||.||_F^2 of K / n, of the other Gram's and of their Hadamard product."""
        joint = (self * other).squared_frobenius_norm()
        return self.squared_frobenius_norm(), other.squared_frobenius_norm(), joint

    def matvec(self, vectors: jax.Array) -> jax.Array:
        """(K / n) v, for vectors as placed or of n rows: these alone are gathered."""
        whole = NamedSharding(self.layout.mesh, PartitionSpec())
        gathered = lax.with_sharding_constraint(vectors, whole)
        missing = self.layout.rows - vectors.shape[0]
        gathered = jnp.pad(gathered, ((0, missing), *[(0, 0)] * (vectors.ndim - 1)))
        product = jnp.matmul(self.matrix, gathered, precision=_PRECISION) / self.n
        return self.layout.constrain(product)[: vectors.shape[0]]

    def squared_norm_beside(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """||K / n - L R^T||_F^2, of its rows on every device; R is gathered."""
        return rings.squared_norm_of_rows(self.matrix, left, right, layout=self.layout)

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues of K / n, computed by every device for itself: see `dense`."""
        return self.dense().eigenvalues()

    def dense(self) -> DenseGram:
        """The n x n array on every device: for n of a few thousand.

        Raises:
          ValueError: the array does not fit in the memory of one device.
        """
        memory.check(self.n, self.dtype)
        whole = NamedSharding(self.layout.mesh, PartitionSpec())
        matrix = lax.with_sharding_constraint(self.matrix, whole)
        return DenseGram.trusted(matrix[: self.n, : self.n])

    def factors(self) -> Factors:
        """Not available: the points are not known."""
        raise ValueError("StoredGram: the points are not stored, so it has no factors.")

    def __mul__(self, other: Gram) -> Gram:
        """The Hadamard product, of the stored matrices.

        Raises:
          ValueError: the other Gram does not lie on the same devices in the same way.
        """
        if isinstance(other, ShardedGram):
            other = other.store()
        if not isinstance(other, Gram):
            return NotImplemented
        if not isinstance(other, StoredGram) or other.layout != self.layout:
            where = other.layout if isinstance(other, StoredGram) else type(other).__name__
            raise ValueError(
                f"StoredGram: expected another sharded Gram of {self.layout}, received {where}."
            )
        return StoredGram(self.matrix * other.matrix, self.layout)

    def __rmul__(self, other: Gram) -> Gram:
        """Reached from Grams that are not sharded, and refused."""
        return self * other

    def tree_flatten(self) -> tuple[tuple[jax.Array], Layout]:
        """The matrix is the only leaf; the layout is static."""
        return (self.matrix,), self.layout

    @classmethod
    def tree_unflatten(cls, layout: Layout, leaves: tuple[jax.Array]) -> StoredGram:
        """Rebuilds the Gram."""
        return cls(*leaves, layout)


@functools.partial(jax.jit, static_argnames="layout")
def _prepare(kernel: Kernel, points: jax.Array, layout: Layout) -> Any:
    """The prepared points, which lie like the points."""
    return layout.constrain(kernel.prepare(points))
