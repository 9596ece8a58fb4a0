"""The points of a call: checked, cast, placed on their devices and measured once, at the border.

What comes after asks a `Points` for its n, its dtype, its Grams; nothing else needs to know whether
the rows lie on one device or on many.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from condvendi_jax import grams, sharding, validation
from condvendi_jax.grams import Gram
from condvendi_jax.kernels import Gaussian, Kernel, check_kernel
from condvendi_jax.layouts import Layout

NAMES: tuple[str, str] = ("outputs", "prompts")
# Rows compared to find a bandwidth under which the kernel is constant or the identity.
_PROBED_ROWS = 256
# All kernel values between different points this near to one, or to zero, say nothing.
_NEGLIGIBLE = 1e-6


@jax.tree_util.register_pytree_node_class
class Points:
    """Outputs, or outputs with their prompts, and a kernel for each.

    A pytree whose leaves are the arrays and the kernels' parameters. Made by `checked`.

    Attributes:
      arrays: `[n, d_x]` and, where there are prompts, `[n, d_t]`; `[layout.rows, ...]` on many
        devices.
      kernels: one for each array, in the form that suits its points.
      n: the number of rows that are meant.
      layout: the devices that the rows are spread over; None for one device.
    """

    def __init__(
        self,
        arrays: tuple[jax.Array, ...],
        kernels: tuple[Kernel, ...],
        *,
        n: int,
        layout: Layout | None = None,
    ):
        self.arrays, self.kernels, self.n, self.layout = arrays, kernels, n, layout

    @classmethod
    def checked(
        cls,
        outputs: ArrayLike,
        prompts: ArrayLike | None = None,
        *,
        output_kernel: Kernel,
        prompt_kernel: Kernel | None = None,
        mesh: Mesh | None = None,
        kernel_names: tuple[str, str] = ("output_kernel", "prompt_kernel"),
    ) -> Points:
        """The points of a call, or the error that it deserves.

        Args:
          outputs, prompts, output_kernel, prompt_kernel, mesh: as `scores.decompose`.
          kernel_names: what the kernels are called in error messages.

        Raises:
          TypeError, ValueError: as `scores.decompose`.
        """
        if (prompts is None) != (prompt_kernel is None):
            given, missing = (
                ("prompts", kernel_names[1])
                if prompt_kernel is None
                else (kernel_names[1], NAMES[1])
            )
            raise ValueError(f"{missing}: expected beside {given}, received None.")
        kernels = (output_kernel,) if prompt_kernel is None else (output_kernel, prompt_kernel)
        for kernel, name in zip(kernels, kernel_names, strict=False):
            check_kernel(kernel, name=name)
        given = (outputs,) if prompts is None else (outputs, prompts)
        named = {
            name: validation.as_array(array, name=name)
            for name, array in zip(NAMES, given, strict=False)
        }
        layout = sharding.layout_of(named["outputs"], mesh=mesh)
        origins = {
            name: validation.origin_of(array)
            for (name, array), kernel in zip(named.items(), kernels, strict=True)
            if kernel.shift_invariant
        }
        arrays = validation.check_arrays(
            named, place=jnp.asarray if layout is None else layout.shard, origins=origins
        )
        suited = _suited(kernels, arrays, names=tuple(named))
        # Of the arrays as they came: those of a layout are padded.
        return cls(tuple(arrays), suited, n=named["outputs"].shape[0], layout=layout)

    @property
    def dtype(self) -> np.dtype:
        """What everything is computed in."""
        return np.dtype(self.arrays[0].dtype)

    @property
    def paired(self) -> bool:
        """Whether there are prompts."""
        return len(self.arrays) == 2

    def grams(self, *, in_tiles: bool = False) -> tuple[Gram, ...]:
        """The Gram of the outputs and, where there are any, of the prompts.

        Args:
          in_tiles: no Gram of points is an array, however few they are: the quickest way to a norm,
            without derivatives in forward mode.
        """
        return _grams(self, in_tiles)

    def rows(self, chosen: Any) -> Points:
        """Some of the rows, by a slice or by their numbers; of points on one device."""
        arrays = tuple(array[chosen] for array in self.arrays)
        return Points(arrays, self.kernels, n=arrays[0].shape[0])

    def at_bandwidth(self, index: int, bandwidth: float) -> Points:
        """The same points, with another bandwidth of one of their Gaussian kernels."""
        kernels = list(self.kernels)
        kernels[index] = Gaussian(bandwidth, unit=getattr(kernels[index], "unit", None))
        return Points(self.arrays, tuple(kernels), n=self.n, layout=self.layout)

    def gathered(self) -> Points:
        """The same points on one device, without padding."""
        if self.layout is None:
            return self
        arrays = tuple(jnp.asarray(sharding.to_host(array)[: self.n]) for array in self.arrays)
        return Points(arrays, self.kernels, n=self.n)

    def duplicates(self) -> int:
        """How many rows repeat an earlier one exactly, outputs and prompts together."""
        host = [sharding.to_host(array)[: self.n] for array in self.arrays]
        return self.n - validation.distinct_rows(np.concatenate(host, axis=1))[0]

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Arrays and kernels are children; n and the layout are static."""
        return (self.arrays, self.kernels), (self.n, self.layout)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Points:
        """Rebuilds the points."""
        return cls(*children, n=static[0], layout=static[1])


@functools.partial(jax.jit, static_argnums=1)
def _grams(points: Points, in_tiles: bool) -> tuple[Gram, ...]:
    pairs = zip(points.kernels, points.arrays, strict=True)
    if points.layout is None:
        return tuple(grams.represent(kernel, array, in_tiles=in_tiles) for kernel, array in pairs)
    return tuple(
        sharding.ShardedGram.from_points(kernel, array, layout=points.layout)
        for kernel, array in pairs
    )


def _suited(
    kernels: Sequence[Kernel], arrays: Sequence[jax.Array], *, names: Sequence[str]
) -> tuple[Kernel, ...]:
    """The kernels in the form that suits the points.

    Raises where one is not defined on them, and warns where one says nothing of them.
    """
    suited = list(kernels)
    pairs = zip(kernels, arrays, strict=True)
    known = [index for index, pair in enumerate(pairs) if validation.is_concrete(*pair)]
    # At once, also for constants inside jit.
    with jax.ensure_compile_time_eval():
        for index in known:
            kernels[index].check_points(arrays[index], name=names[index])
            suited[index] = kernels[index].suited_to(arrays[index])
        found = _off_diagonal_ranges([(suited[index], arrays[index]) for index in known])
        for index, values in zip(known, found, strict=True):
            rows = min(arrays[index].shape[0], _PROBED_ROWS)
            _warn_of_extremes(kernels[index], rows, *map(float, values), name=names[index])
    return tuple(suited)


def _warn_of_extremes(
    kernel: Kernel, rows: int, identical: float, smallest: float, largest: float, *, name: str
) -> None:
    """Says so where a kernel cannot tell the points apart, or tells all apart."""
    compared = f"all kernel values between {rows} rows"
    if identical:
        return
    if smallest > 1 - _NEGLIGIBLE:
        warnings.warn(
            f"{name}: under {kernel!r} {compared} exceed 1 - 1e-6, the Gram is numerically "
            "constant and its scores are 1: it cannot tell these embeddings apart.",
            stacklevel=5,
        )
    elif max(abs(smallest), abs(largest)) < _NEGLIGIBLE:
        warnings.warn(
            f"{name}: under {kernel!r} {compared} are below 1e-6, the Gram is numerically the "
            "identity and its scores only count points.",
            stacklevel=5,
        )


@jax.jit
def _off_diagonal_ranges(
    pairs: Sequence[tuple[Kernel, jax.Array]],
) -> list[tuple[jax.Array, jax.Array, jax.Array]]:
    """`_off_diagonal_range` of each: one program, not one a pair."""
    return [_off_diagonal_range(kernel, points) for kernel, points in pairs]


def _off_diagonal_range(
    kernel: Kernel, points: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of some rows: whether they are identical, and their least and largest kernel values."""
    rows = points[:: -(-points.shape[0] // _PROBED_ROWS)]
    prepared = kernel.prepare(rows)
    values = kernel.cross(prepared, prepared)
    # A constant of NumPy: inside of compile-time evaluation JAX would compile its making.
    diagonal = np.eye(rows.shape[0], dtype=bool)
    smallest = jnp.min(jnp.where(diagonal, jnp.inf, values))
    return (rows == rows[:1]).all(), smallest, jnp.max(jnp.where(diagonal, -jnp.inf, values))
