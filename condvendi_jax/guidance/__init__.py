"""Guidance: gradients of the scores as gradient transformations of optax (CV section 6).

A transformation for each score, and the memory of a guide: a ring buffer of the last pairs.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams.operators import DenseGram

__all__ = ["GuidanceState", "conditional_rke", "conditional_vendi", "remember", "restart"]
__all__ += ["rke", "vendi"]


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


def vendi(
    *, output_kernel: Kernel, order: float = 1, truncation: int | None = None, window: int = 300
) -> optax.GradientTransformationExtraArgs:
    """The gradient of the Vendi score of the memory and the batch, for latents of any prompts.

    `update` takes the latents as optax's `params`, in one array. It ignores the incoming updates
    and returns the gradient in their place, in the latents' shape and dtype. Updates are added, so
    the score rises: `optax.scale(eta)` after it gives the weight of CV eq. 14. A latent that is not
    finite, or whose prompt or gradient is not, gets zeros and is counted in
    `GuidanceState.skipped`; outside jit latents and prompts that are not finite raise.

    Args:
      output_kernel: the kernel of the flattened latents.
      order: the Renyi order; 2 is `rke`.
      truncation: the number of eigenvalues that the entropy keeps (CV eq. 23); all if None.
      window: how many finished samples `remember` keeps (CV appendix E.3). A step costs
        O((window + b)^3) time and O((window + b)^2) memory; at order 2 it needs no eigenvectors and
        costs O(window + b) a sample.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> guide = cv.guidance.vendi(output_kernel=cv.Gaussian(1.0), window=0)
      >>> latents = np.array([[0.0], [1.0]], np.float32)
      >>> updates, _ = guide.update(0 * latents, guide.init(latents), latents)
      >>> print(np.asarray(updates).round(2).ravel())
      [-0.7  0.7]
    """
    return _transformation(Entropy(order, truncation), {"output_kernel": output_kernel}, (), window)


def conditional_vendi(
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    prompt_size: int,
    order: float = 1,
    truncation: int | None = None,
    window: int = 300,
) -> optax.GradientTransformationExtraArgs:
    """The gradient of the (truncated) Conditional-Vendi score (CV eq. 14 and 24-27); see `vendi`.

    `update` takes the prompts of the batch as the extra argument `prompts=`. Where eigenvalues tie
    across the truncation the entropy has a kink: they share the weight of those kept.
    Eigenvalues of zero have no part in the gradient, where eq. 24 prints log 0. Latents that
    coincide are a critical point and stay together.

    Args:
      output_kernel, order, truncation, window: as in `vendi`, for both entropies.
      prompt_kernel: the kernel of the flattened prompts.
      prompt_size: how many numbers a prompt has, for the memory of prompts.
    """
    kernels = {"output_kernel": output_kernel, "prompt_kernel": prompt_kernel}
    size = checks.check_count(prompt_size, name="prompt_size", minimum=1)
    return _transformation(Entropy(order, truncation), kernels, (size,), window)


def rke(*, output_kernel: Kernel, window: int = 300) -> optax.GradientTransformationExtraArgs:
    """The gradient of the RKE score, n^2 / ||K_Z||_F^2: `vendi` of order 2, in closed form."""
    return vendi(output_kernel=output_kernel, order=2, window=window)


def conditional_rke(
    *, output_kernel: Kernel, prompt_kernel: Kernel, prompt_size: int, window: int = 300
) -> optax.GradientTransformationExtraArgs:
    """The gradient of the Conditional-RKE score, ||K_T||_F^2 / ||K_Z * K_T||_F^2 (CV appendix C).

    This is `conditional_vendi` of order 2, in closed form.

    Examples:
      >>> import numpy as np
      >>> import optax
      >>> import condvendi_jax as cv
      >>> kernels = dict(output_kernel=cv.Gaussian(1.0), prompt_kernel=cv.Gaussian(0.1))
      >>> score = cv.guidance.conditional_rke(**kernels, prompt_size=1)
      >>> guide = optax.chain(score, optax.scale(0.1))
      >>> latents, prompts = np.array([[[0.0], [1.0]], [[0.0], [0.0]]], np.float32)
      >>> state = cv.guidance.remember(guide.init(latents), latents[1:], prompts[1:])
      >>> updates, state = guide.update(latents[:1], state, latents[:1], prompts=prompts[:1])
      >>> print(np.asarray(updates).round(3))
      [[-0.079]]
    """
    named: Any = {"output_kernel": output_kernel, "prompt_kernel": prompt_kernel}
    return conditional_vendi(**named, prompt_size=prompt_size, order=2, window=window)


def _transformation(
    entropy: Entropy, kernels: dict[str, Kernel], prompt_sizes: tuple[int, ...], window: int
) -> optax.GradientTransformationExtraArgs:
    """The guide of any score; without a kernel of prompts their kernel is one everywhere."""
    for name, kernel in kernels.items():
        check_kernel(kernel, name=name)
    window = checks.check_count(window, name="window", minimum=0)
    needs_spectrum, given = entropy.needs_spectrum, tuple(kernels.values())

    def init(params: Any) -> Any:
        shape = check_shape(params, name="latents")
        if needs_spectrum:
            memory.check(window + shape[0], checks.compute_dtype())
        zeros = functools.partial(jnp.zeros, dtype=checks.compute_dtype())
        rows = tuple(zeros((window, size)) for size in (math.prod(shape[1:]), *prompt_sizes))
        filled, zero = jnp.zeros((window,), bool), jnp.zeros((), jnp.int32)
        squares = None if needs_spectrum else (zeros((window,)), zeros((window,)))
        return GuidanceState(given, rows, filled, zero, skipped=zero, squares=squares)

    def update(
        updates: Any, state: Any, params: Any = None, *, prompts: Any = None, **extra_args: Any
    ) -> tuple[jax.Array, Any]:
        if (len(state.kernels), state.squares is None) != (len(kernels), needs_spectrum):
            raise ValueError("state: expected that of this guide, received that of another score.")
        gradient, skipped = _gradient(entropy, checked_rows(state, params, prompts), state)
        dtype = jnp.result_type(params)
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else gradient.dtype
        return gradient.reshape(jnp.shape(params)).astype(dtype), state._replace(skipped=skipped)

    return optax.GradientTransformationExtraArgs(init, update)


@functools.partial(jax.jit, static_argnums=0)
def _gradient(entropy: Entropy, batch: Any, state: GuidanceState) -> tuple[jax.Array, jax.Array]:
    """The gradients `[b, d]`, zero where they are not finite, and how many latents were skipped."""
    present, (latents, *prompts) = finite_rows(batch)
    b, squares = len(present), state.squares

    def log_norm(values: tuple[jax.Array, ...], later: jax.Array) -> jax.Array:
        """log ||K||_F^2 of a product of kernels, which is of ones if there are none."""
        square = squared(values, present, state.filled)
        remembered = jnp.sum(state.filled, dtype=later.dtype) + 2 * jnp.sum(later)
        return jnp.log(remembered + jnp.sum(square[:b]) + 2 * jnp.sum(square[b:]))

    def entropy_of(matrix: jax.Array) -> jax.Array:
        """The entropy in nats, of the pairs that count."""
        counts = jnp.concatenate([present, state.filled]).astype(matrix.dtype)
        spectrum = DenseGram(matrix).weighted(counts / jnp.sum(counts)).eigenvalues()
        return entropy.fitted(len(counts)).of_spectrum(spectrum)

    def objective(latents: jax.Array) -> jax.Array:
        values = kernel_values(state, (latents, *prompts), among_all=entropy.needs_spectrum)
        if squares is not None:
            return jnp.exp(log_norm(values[1:], squares[1]) - log_norm(values, squares[0]))
        if not prompts:
            return jnp.exp(entropy_of(values[0]))
        return jnp.exp(entropy_of(values[0] * values[1]) - entropy_of(values[1]))

    gradient = jax.grad(objective)(latents)
    finite = present & jnp.isfinite(gradient).all(axis=1)
    skipped = state.skipped + jnp.sum(~finite, dtype=jnp.int32)
    return jnp.where(finite[:, None], gradient, 0), skipped
