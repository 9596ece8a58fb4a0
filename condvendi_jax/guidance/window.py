"""The memory of a guide: a ring buffer of the last finished pairs, and its blocks of kernels.

Quantities that depend on the remembered pairs alone are computed when they are remembered, once a
batch and not at every step of the sampler: centred rows, their norms, and sums of squares.
"""

from __future__ import annotations

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
      centres: of the rows of each kernel, `[d]`.
      prepared: the rows of each kernel as it prepares them about that centre: a pytree of arrays
        with leading axis `window`.
      filled: `[window]` booleans: which slots hold a pair.
      position: the slot of the next pair.
      skipped: how many latents were neither guided nor remembered, because they, their prompts or
        their gradients were not finite. It only grows.
      squares: at order 2, for every pair, the sums `[window]` of its squared kernel values with all
        later pairs, of the joint kernel and of the prompt kernel; None at other orders.
    """

    kernels: tuple[Kernel, ...]
    rows: tuple[jax.Array, ...]
    centres: tuple[jax.Array, ...]
    prepared: tuple[Any, ...]
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
        raise ValueError(
            f"state: expected the state of a guide, received {type(state).__name__} without one."
        )
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
        raise ValueError(
            f"{name}: expected an array [b, ...] of at least one row and one column, received "
            f"{'None' if value is None else f'shape {shape}'}."
        )
    return shape


def checked_rows(state: GuidanceState, latents: Any, prompts: Any) -> tuple[jax.Array, ...]:
    """The batch as flattened rows in the compute dtype, one array for each kernel of the state."""
    named = dict(zip(("latents", "prompts")[: len(state.rows)], (latents, prompts), strict=False))
    flat = {}
    for (name, value), kept in zip(named.items(), state.rows, strict=True):
        shape = check_shape(value, name=name)
        if math.prod(shape[1:]) != kept.shape[1]:
            raise ValueError(
                f"{name}: expected rows of {kept.shape[1]} numbers as in the state, received "
                f"shape {shape}."
            )
        flat[name] = checks.as_array(value, name=name).reshape(shape[0], kept.shape[1])
    checked = tuple(checks.check_arrays(flat))
    for kernel, name, array in zip(state.kernels, flat, checked, strict=True):
        if checks.is_concrete(array, kernel):
            with jax.ensure_compile_time_eval():
                kernel.check_points(array, name=name)
    return checked


@jax.jit
def prepare(
    kernels: tuple[Kernel, ...], rows: tuple[jax.Array, ...], filled: jax.Array
) -> tuple[tuple[jax.Array, ...], tuple[Any, ...]]:
    """The `centres` and `prepared` of a state.

    The first pair stands in for empty slots, and ones where there is none: kernels meet no zero
    row, and no mean far from the points.
    """
    if not len(filled):
        centres = tuple(jnp.zeros_like(kept, shape=kept.shape[1:]) for kept in rows)
    else:
        stand_ins = (jnp.where(filled.any(), kept[jnp.argmax(filled)], 1) for kept in rows)
        rows = tuple(map(functools.partial(jnp.where, filled[:, None]), rows, stand_ins))
        centres = tuple(kept[0] + jnp.mean(kept - kept[:1], axis=0) for kept in rows)
    parts = zip(kernels, rows, centres, strict=True)
    return centres, tuple(kernel.prepare_about(kept, centre) for kernel, kept, centre in parts)


def finite_rows(batch: tuple[jax.Array, ...]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Flags of the finite rows, `[b]`, and the batch with the first of them in place of others."""
    present = jnp.all(jnp.stack([jnp.isfinite(rows).all(axis=1) for rows in batch]), axis=0)
    first = jnp.argmax(present)
    stand_ins = (lax.stop_gradient(lax.dynamic_slice_in_dim(rows, first, 1)) for rows in batch)
    finite = map(functools.partial(jnp.where, present[:, None]), batch, stand_ins)
    return present, tuple(finite)


class Blocks(NamedTuple):
    """A kernel's values of the batch `[b, b]`, and of the memory with the batch `[window, b]`."""

    within: jax.Array
    across: jax.Array


def blocks_of(state: GuidanceState, batch: tuple[jax.Array, ...]) -> tuple[Blocks, ...]:
    """The blocks of every kernel that have the batch in them."""

    def blocks(kernel: Kernel, rows: jax.Array, centre: jax.Array, remembered: Any) -> Blocks:
        first, beside = kernel.prepare(rows), kernel.prepare_about(rows, centre)
        # With the memory as rows the matrix product takes half the time on a CPU.
        return Blocks(
            _with_unit_diagonal(kernel.cross(first, first)), kernel.cross(remembered, beside)
        )

    return tuple(map(blocks, state.kernels, batch, state.centres, state.prepared))


def blocks_of_memory(state: GuidanceState) -> tuple[jax.Array, ...]:
    """The values of every kernel among the remembered pairs, `[window, window]`."""
    pairs = zip(state.kernels, state.prepared, strict=True)
    return tuple(_with_unit_diagonal(kernel.cross(kept, kept)) for kernel, kept in pairs)


def _with_unit_diagonal(matrix: jax.Array) -> jax.Array:
    return jnp.where(jnp.eye(matrix.shape[0], dtype=bool), 1, matrix)


def squared(blocks: tuple[Blocks, ...], present: jax.Array, filled: jax.Array) -> Blocks:
    """The squared products of blocks, zero for rows that do not count; ones without any block."""
    dtype = checks.compute_dtype()
    counts = Blocks(*(rows[:, None] & present[None, :] for rows in (present, filled)))
    product = jax.tree.map(lambda counted: jnp.ones(counted.shape, dtype), counts)
    for block in blocks:
        product = jax.tree.map(lambda left, right: left * jnp.square(right), product, block)
    return jax.tree.map(lambda counted, square: jnp.where(counted, square, 0), counts, product)


@jax.jit
def _remember(batch: tuple[jax.Array, ...], state: GuidanceState) -> GuidanceState:
    """The state after the batch, of at most `window` rows, replaced the oldest pairs."""
    # The square of two pairs leaves with the older: nothing is subtracted, no rounding adds up.
    window, b = state.filled.shape[0], batch[0].shape[0]
    slots = (state.position + jnp.arange(b, dtype=jnp.int32)) % window
    present, finite = finite_rows(batch)
    squares = state.squares
    if squares is not None:
        blocks = blocks_of(state, finite)

        def with_batch(later: jax.Array, blocks: tuple[Blocks, ...]) -> jax.Array:
            within, across = squared(blocks, present, state.filled)
            fresh = jnp.sum(jnp.triu(within, 1), axis=1)
            return (later + jnp.sum(across, axis=1)).at[slots].set(fresh)

        squares = (with_batch(squares[0], blocks), with_batch(squares[1], blocks[1:]))
    rows = tuple(
        kept.at[slots].set(jnp.where(present[:, None], new, 0))
        for kept, new in zip(state.rows, batch, strict=True)
    )
    filled = state.filled.at[slots].set(present)
    centres, prepared = prepare(state.kernels, rows, filled)
    position = (state.position + b) % window
    skipped = state.skipped + jnp.sum(~present, dtype=jnp.int32)
    return GuidanceState(state.kernels, rows, centres, prepared, filled, position, skipped, squares)
