"""The representation that suits the points, and several Grams in one pass."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.base.devices import Layout
from condvendi_jax.data.kernels import Cosine, Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.grams import operators, products, sums
from condvendi_jax.grams.fold import Tiles
from condvendi_jax.grams.operators import DenseGram, FeatureGram, Gram, Operator, TiledGram

# Up to this n a matrix takes milliseconds and 16 MiB, and it has derivatives of every mode.
_DENSE_UP_TO = 2048


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SharedTiles(Tiles):
    """Grams that share factors, as pairs do with outputs and prompts."""

    def squared_frobenius_norms(self) -> jax.Array:
        """||K / n||_F^2 of every Gram."""
        return sums.squared_norms(self)

    def matvecs(self, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """(K / n) V of every Gram, with a V, `[n, m]` as placed, for each."""
        return products.matvecs(self, vectors)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Apart:
    """Operators that share nothing, with the methods of `SharedTiles`."""

    operators: tuple[Operator, ...]

    def squared_frobenius_norms(self) -> jax.Array:
        return jnp.stack([gram.squared_frobenius_norm() for gram in self.operators])

    def matvecs(self, vectors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(gram.matvec(v) for gram, v in zip(self.operators, vectors, strict=True))


#: Several operators that are multiplied together.
Together = SharedTiles | Apart


def together(grams: Sequence[Operator]) -> Together:
    """The tiles that Grams share, or each operator apart."""
    tiled = [gram for gram in grams if isinstance(gram, TiledGram)]
    factors = [factor for gram in tiled for factor in gram.factors]
    known = {id(factor): factor for factor in factors}
    one_layout = len({gram.layout for gram in tiled}) == 1
    if len(tiled) < len(grams) or not one_layout or len(known) == len(factors):
        return Apart(tuple(grams))
    order = list(known)
    subsets = tuple(tuple(order.index(id(f)) for f in gram.factors) for gram in tiled)
    return SharedTiles(tuple(known.values()), subsets, tiled[0].layout)


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


def represent(kernel: Kernel, points: jax.Array, *, layout: Layout | None = None) -> Gram:
    """The Gram of points that are checked already, on the devices of a layout.

    `points` are `[n, d]`, or `[layout.rows, d]` where they were padded.
    """
    n, dimension = points.shape[0] if layout is None else layout.n, points.shape[1]
    if isinstance(kernel, Cosine) and dimension < n:
        z = operators.factor_of(kernel, points, layout).points
        if layout is not None:
            inside = jnp.arange(layout.rows) < n
            z = layout.constrain(jnp.where(inside[:, None], z, 0))
        return FeatureGram(z, layout=layout)
    if layout is None and n <= _DENSE_UP_TO:
        return DenseGram.from_points(kernel, points)
    return TiledGram.from_points(kernel, points, layout=layout)


@jax.jit
def grams_of(pairs: Pairs) -> tuple[Gram, ...]:
    """The Gram of the outputs and, where there are any, of the prompts, without weights."""
    parts = zip(pairs.kernels, pairs.arrays, strict=True)
    return tuple(represent(kernel, array, layout=pairs.layout) for kernel, array in parts)
