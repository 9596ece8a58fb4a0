"""Positive semidefinite kernels with unit diagonal: k(x, y) of two points, composed with `*`.

A kernel is written for two points. What makes it fast is said beside it, in three steps:
`prepare` does what needs doing once per point (centring, normalising, squared norms), `geometry`
what a pair of blocks needs whatever the parameters (one matrix product), and `profile` the rest,
so that a sweep over bandwidths pays for the distances once.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from condvendi_jax import validation

# Rounding in a matrix product moves k(x, x) off 1, and the lower-precision products that are the
# default on accelerators move it by 1e-3: inner products are always taken at full precision.
_PRECISION = lax.Precision.HIGHEST
# Distances below the rounding of a Gram-trick subtraction, in eps of the squared norms.
_ROUNDING = 8


class Kernel(abc.ABC):
    """A normalised kernel, k(x, x) = 1, as a pytree whose leaves are its parameters.

    A kernel of one's own needs `__call__` alone, and to be registered as a pytree: with
    `jax.tree_util.register_static` where it has no parameters to trace.
    """

    @abc.abstractmethod
    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """k(x, y) of two points `[d]`, a scalar in [-1, 1]."""

    def prepare(self, points: jax.Array) -> Any:
        """What the kernel needs of `points` `[n, d]`: a pytree of arrays with leading axis n."""
        return points

    def geometry(self, left: Any, right: Any) -> Any:
        """What `profile` needs of all pairs of two blocks of prepared points, arrays `[m, n]`."""
        return jax.vmap(jax.vmap(self, in_axes=(None, 0)), in_axes=(0, None))(left, right)

    def profile(self, geometry: Any) -> jax.Array:
        """k of all pairs, `[m, n]`, out of their geometry."""
        return geometry

    def cross(self, left: Any, right: Any) -> jax.Array:
        """k of all pairs of two blocks of prepared points, `[m, n]`."""
        return self.profile(self.geometry(left, right))

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError where the kernel is not defined on concrete `points` `[n, d]`."""

    def __mul__(self, other: Kernel) -> Product:
        """The product kernel, (k1 * k2)(x, y) = k1(x, y) k2(x, y)."""
        if not isinstance(other, Kernel):
            return NotImplemented
        return Product(self, other)


def _inner(left: jax.Array, right: jax.Array) -> jax.Array:
    """Inner products of the rows of `[m, d]` and `[n, d]`, `[m, n]`, at full precision."""
    return lax.dot_general(left, right, (((1,), (1,)), ((), ())), precision=_PRECISION)


@jax.jit
def _extent(points: jax.Array) -> jax.Array:
    """The largest distance of an entry from the first point's."""
    return jnp.max(jnp.abs(points - points[:1]))


@jax.tree_util.register_pytree_node_class
class Gaussian(Kernel):
    """The Gaussian kernel k(x, y) = exp(-|x - y|^2 / (2 bandwidth^2)) (CV section 3.2).

    Args:
      bandwidth: the length scale sigma > 0, in the units of the embeddings. It may be traced, so
        that scores can be vmapped over bandwidths and differentiated in them.

    Raises:
      ValueError, TypeError: a concrete bandwidth that is not a finite number above 0.
    """

    def __init__(self, bandwidth: Any):
        self.bandwidth = validation.check_bandwidth(bandwidth)

    def __repr__(self) -> str:
        return f"Gaussian(bandwidth={self.bandwidth})"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """exp(-|x - y|^2 / (2 bandwidth^2)) of two points `[d]`."""
        return self.profile(jnp.sum(jnp.square(x - y)) / 2)

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError where squared distances would overflow."""
        largest = float(_extent(points))
        limit = math.sqrt(float(jnp.finfo(points.dtype).max) / points.shape[1]) / 4
        if not largest < limit:
            raise ValueError(
                f"{name}: squared distances overflow {points.dtype} for entries {largest:.1e} "
                f"apart; expected less than {limit:.1e}: rescale embeddings and bandwidth."
            )

    def prepare(self, points: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Centred points `[n, d]` and half their squared norms `[n]`.

        Centring first is what keeps float32 distances right for data far from the origin: the
        matrix product subtracts numbers of the size of |x|^2. The mean itself is taken relative to
        the first row for the same reason. The score does not depend on the shift, so no gradient
        flows through it.
        """
        shifted = points - lax.stop_gradient(points[:1])
        centred = shifted - lax.stop_gradient(jnp.mean(shifted, axis=0, keepdims=True))
        return centred, jnp.sum(jnp.square(centred), axis=1) / 2

    def geometry(self, left: Any, right: Any) -> jax.Array:
        """Half the squared distances of all pairs, `[m, n]`."""
        (x, half_x), (y, half_y) = left, right
        norms = half_x[:, None] + half_y[None, :]
        half = norms - _inner(x, y)
        # What is left of the norms' size by rounding is no distance: duplicates are at zero,
        # whatever the bandwidth, and no kernel value exceeds 1.
        # (A NaN fails the comparison and stays one.)
        return jnp.where(half <= _ROUNDING * jnp.finfo(half.dtype).eps * norms, 0, half)

    def profile(self, geometry: jax.Array) -> jax.Array:
        """exp(-geometry / bandwidth^2), where geometry is half a squared distance."""
        # The bandwidth's own square may leave the range of float32.
        inverse = (1 / self.bandwidth).astype(geometry.dtype)
        return jnp.exp(-(geometry * inverse) * inverse)

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """The bandwidth is the only leaf."""
        return (self.bandwidth,), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[Any]) -> Gaussian:
        """Rebuilds the kernel without checks: leaves may be placeholders."""
        kernel = object.__new__(cls)
        (kernel.bandwidth,) = leaves
        return kernel


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Cosine(Kernel):
    """The cosine kernel k(x, y) = <x, y> / (|x| |y|), the papers' normalised linear kernel.

    Its feature space has the dimension d of the embeddings, so that n points with n > d have at
    most d non-zero eigenvalues. Not invariant to translation: embeddings are not centred.
    """

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """<x, y> / (|x| |y|) of two points `[d]`."""
        return jnp.vdot(self._normalise(x), self._normalise(y), precision=_PRECISION)

    def prepare(self, points: jax.Array) -> jax.Array:
        """Points scaled to unit norm, `[n, d]`."""
        return self._normalise(points)

    def geometry(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """Inner products of all pairs, `[m, n]`: the kernel itself."""
        return _inner(left, right)

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError if a row is zero: it has no direction."""
        zero = jnp.all(points == 0, axis=1)
        if bool(zero.any()):
            raise ValueError(
                f"{name}: the cosine kernel is not defined for a zero row, received "
                f"{int(zero.sum())} of them, the first of them row {int(zero.argmax())}."
            )

    @staticmethod
    def _normalise(points: jax.Array) -> jax.Array:
        # Scaling by the largest entry first: squares of embeddings beyond 1e19 or below 1e-23
        # leave the range of float32.
        scaled = points / lax.stop_gradient(jnp.max(jnp.abs(points), axis=-1, keepdims=True))
        return scaled / jnp.linalg.norm(scaled, axis=-1, keepdims=True)


@jax.tree_util.register_pytree_node_class
class Product(Kernel):
    """The product of kernels on the same points, itself a kernel with unit diagonal."""

    def __init__(self, *factors: Kernel):
        self.factors = factors

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.factors))

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """The product of the factors at two points `[d]`."""
        return _product(kernel(x, y) for kernel in self.factors)

    def prepare(self, points: jax.Array) -> tuple[Any, ...]:
        """What each factor needs of the points."""
        return tuple(kernel.prepare(points) for kernel in self.factors)

    def geometry(self, left: Any, right: Any) -> tuple[Any, ...]:
        """The geometry of every factor."""
        blocks = zip(self.factors, left, right, strict=True)
        return tuple(kernel.geometry(a, b) for kernel, a, b in blocks)

    def profile(self, geometry: Any) -> jax.Array:
        """The product of the factors for all pairs, `[m, n]`."""
        return _product(
            kernel.profile(part) for kernel, part in zip(self.factors, geometry, strict=True)
        )

    def check_points(self, points: jax.Array, *, name: str) -> None:
        """Raises ValueError where a factor is not defined."""
        for kernel in self.factors:
            kernel.check_points(points, name=name)

    def tree_flatten(self) -> tuple[tuple[Kernel, ...], None]:
        """The factors are the children."""
        return self.factors, None

    @classmethod
    def tree_unflatten(cls, _: None, factors: tuple[Any, ...]) -> Product:
        """Rebuilds the product from its factors."""
        return cls(*factors)


def _product(values: Any) -> jax.Array:
    first, *rest = values
    for value in rest:
        first = first * value
    return first


def check_kernel(kernel: Any, *, name: str) -> Kernel:
    """Returns `kernel`, or raises TypeError where it is not a kernel."""
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"{name}: expected a kernel such as Gaussian(bandwidth) or Cosine(), "
            f"received {kernel!r}."
        )
    return kernel
