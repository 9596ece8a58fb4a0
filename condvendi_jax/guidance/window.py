"""The memory of a guide: a ring buffer of the last finished pairs, and kernel values with it."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import Kernel


class GuidanceState(NamedTuple):
    """The state of a guide: its kernels and a ring buffer of the last `window` pairs.

    Attributes:
      kernels: of the latents, and of the prompts for conditional scores.
      rows: the pairs, one array `[window, d]` for each kernel, flattened, in the compute dtype.
      filled: `[window]` booleans: which slots hold a pair.
      position: the slot of the next pair.
      skipped: how many latents were neither guided nor remembered, because they, their prompts or
        their gradients were not finite. It only grows.
      squares: at order 2, for every pair, the sums `[window]` of its squared kernel values with all
        later pairs, of the joint kernel and of the prompt kernel; None at other orders.
    """

    kernels: tuple[Kernel, ...]
    rows: tuple[jax.Array, ...]
    filled: jax.Array
    position: jax.Array
    skipped: jax.Array
    squares: tuple[jax.Array, jax.Array] | None


def remember(state: Any, latents: ArrayLike, prompts: ArrayLike | None = None) -> Any:
    """The state of a guide after finished samples replaced the oldest pairs of its memory.

    Counters of schedules and conditions run on: see `restart`.

    Args:
      state: of a guide alone, or of any transformation that contains one, such as `optax.chain`.
      latents: the finished samples `[b, ...]`. If there are more than the window, the last are
        kept. Rows with a NaN or an infinity are counted in `skipped` and not kept.
      prompts: their prompts `[b, ...]`; not used by `vendi` and `rke`.

    Raises:
      TypeError, ValueError: there is no guide in the state, or the samples do not fit it.
    """

    def replaced(node: Any) -> Any:
        if not _is_memory(node):
            return node
        batch, window = checked_rows(node, latents, prompts), len(node.filled)
        return _remember(tuple(rows[-window:] for rows in batch), node) if window else node

    if not any(map(_is_memory, jax.tree.leaves(state, is_leaf=_is_memory))):
        received = f"received {type(state).__name__} without one"
        raise ValueError(f"state: expected the state of a guide, {received}.")
    return jax.tree.map(replaced, state, is_leaf=_is_memory)


def restart(guide: optax.GradientTransformation, state: Any, latents: Any) -> Any:
    """The first state of a guide for a new batch of latents, with the memory of an earlier state.

    Call it before each batch if the guide contains schedules, conditions on the step, or momenta.
    """
    trees = guide.init(latents), state
    return jax.tree.map(lambda a, b: b if _is_memory(b) else a, *trees, is_leaf=_is_memory)


def _is_memory(node: Any) -> bool:
    return isinstance(node, GuidanceState)


def check_shape(value: Any, *, name: str) -> tuple[int, ...]:
    """The shape of an array, or of a `jax.ShapeDtypeStruct`; raises if it has no rows."""
    shape = tuple(np.shape(value) if not hasattr(value, "shape") else value.shape)
    if value is None or len(shape) < 2 or 0 in shape:
        expected = "expected an array [b, ...] of at least one row and one column"
        received = "None" if value is None else f"shape {shape}"
        raise ValueError(f"{name}: {expected}, received {received}.")
    return shape


def checked_rows(state: GuidanceState, latents: Any, prompts: Any) -> tuple[jax.Array, ...]:
    """The batch as flattened rows in the compute dtype, one array for each kernel of the state."""
    flat, given = {}, (("latents", latents), ("prompts", prompts))
    for (name, value), kept in zip(given, state.rows, strict=False):
        shape = check_shape(value, name=name)
        if math.prod(shape[1:]) != kept.shape[1]:
            expected = f"expected rows of {kept.shape[1]} numbers as in the state"
            raise ValueError(f"{name}: {expected}, received shape {shape}.")
        flat[name] = checks.as_array(value, name=name).reshape(shape[0], kept.shape[1])
    checked = tuple(checks.check_arrays(flat))
    for kernel, name, array in zip(state.kernels, flat, checked, strict=True):
        if checks.is_concrete(array, kernel):
            with jax.ensure_compile_time_eval():
                kernel.check_points(array, name=name)
    return checked


def finite_rows(batch: tuple[jax.Array, ...]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Flags of the finite rows, `[b]`, and the batch with the first of them in place of others."""
    present = jnp.all(jnp.stack([jnp.isfinite(rows).all(axis=1) for rows in batch]), axis=0)
    first = jnp.argmax(present)
    stand_ins = (lax.stop_gradient(lax.dynamic_slice_in_dim(rows, first, 1)) for rows in batch)
    return present, tuple(map(functools.partial(jnp.where, present[:, None]), batch, stand_ins))


def kernel_values(
    state: GuidanceState, batch: tuple[jax.Array, ...], *, among_all: bool = False
) -> tuple[jax.Array, ...]:
    """Each kernel of batch and memory with the batch, `[b + window, b]`, or all with all."""

    def values(kernel: Kernel, rows: jax.Array, kept: jax.Array) -> jax.Array:
        # Empty slots get a row of the batch: kernels meet no zero, no mean far from the points.
        kept = jnp.where(state.filled[:, None], kept, lax.stop_gradient(rows[:1]))
        points = kernel.prepare(jnp.concatenate([rows, kept]))
        right = points if among_all else jax.tree.map(lambda leaf: leaf[: len(rows)], points)
        # With the memory as rows the matrix product takes half the time on a CPU.
        crossed = kernel.cross(points, right)
        return jnp.where(jnp.eye(*crossed.shape, dtype=bool), 1, crossed)

    return tuple(map(values, state.kernels, batch, state.rows))


def squared(values: tuple[jax.Array, ...], present: jax.Array, filled: jax.Array) -> jax.Array:
    """The squared product of kernel values `[b + window, b]`, zero for rows that do not count."""
    counted = jnp.concatenate([present, filled])[:, None] & present[None, :]
    ones = jnp.ones(counted.shape, checks.compute_dtype())
    return jnp.where(counted, functools.reduce(jnp.multiply, map(jnp.square, values), ones), 0)


@jax.jit
def _remember(batch: tuple[jax.Array, ...], state: GuidanceState) -> GuidanceState:
    """The state after the batch, of at most `window` rows, replaced the oldest pairs."""
    # The square of two pairs leaves with the older: nothing is subtracted, no rounding adds up.
    window, b = state.filled.shape[0], batch[0].shape[0]
    slots = (state.position + jnp.arange(b, dtype=jnp.int32)) % window
    present, finite = finite_rows(batch)
    squares = state.squares
    if squares is not None:
        values = kernel_values(state, finite)

        def with_batch(later: jax.Array, values: tuple[jax.Array, ...]) -> jax.Array:
            square = squared(values, present, state.filled)
            fresh = jnp.sum(jnp.triu(square[:b], 1), axis=1)
            return (later + jnp.sum(square[b:], axis=1)).at[slots].set(fresh)

        squares = (with_batch(squares[0], values), with_batch(squares[1], values[1:]))
    both = zip(state.rows, batch, strict=True)
    rows = tuple(kept.at[slots].set(jnp.where(present[:, None], new, 0)) for kept, new in both)
    skipped = state.skipped + jnp.sum(~present, dtype=jnp.int32)
    filled, position = state.filled.at[slots].set(present), (state.position + b) % window
    return GuidanceState(state.kernels, rows, filled, position, skipped, squares)
