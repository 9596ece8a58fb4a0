"""Guidance: the gradient of a score, as a pure step that any sampler can add (CV section 6).

In optax's manner a `Guidance` is a few pure functions around a state of fixed size:

    guide = cv.guidance.conditional_rke(output_kernel=..., prompt_kernel=..., weight=0.03)
    state = guide.init(latents, prompts)
    updates, state = guide.update(latents, prompts, state)  # at every step: add them
    state = guide.remember(latents, prompts, state)         # once the samples are finished

The score is that of the pairs remembered and the batch together. At order 2 its gradient is in
closed form: a step costs O(window) a sample and the terms of the memory alone are kept in the
state. At order 1, and truncated, it takes the eigenvectors of all window + batch pairs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.grams._grams import DenseGram
from condvendi_jax.kernels import Kernel, check_kernel

Schedule = Callable[[jax.Array], ArrayLike]
AMONG: tuple[str, ...] = ("batch", "memory")
OBJECTIVES: tuple[str, ...] = ("score", "entropy")


class GuidanceState(NamedTuple):
    """What a guide remembers: a ring buffer of the last `window` pairs, and counts.

    Attributes:
      latents: `[window, d]`, flattened, in the compute dtype; zeros where there are none yet.
      prompts: `[window, p]`; None for the kinds that see no prompts.
      filled: `[window]` booleans, which slots hold a pair.
      position: the slot that the next pair goes to.
      step: how many updates there have been since the last `remember`.
      skipped: how many latents were not guided or not remembered since they, their prompts or their
        updates were not finite. It only grows.
      squares: at order 2, sums of squared kernel values of every pair and all later ones,
        `[window]`, of the joint kernel and of the prompts'; None at other orders.
    """

    latents: jax.Array
    prompts: jax.Array | None
    filled: jax.Array
    position: jax.Array
    step: jax.Array
    skipped: jax.Array
    squares: tuple[jax.Array, jax.Array] | None


class InitFn(Protocol):
    """The first function of a `Guidance`."""

    def __call__(self, latents: Any, prompts: Any = None) -> GuidanceState:
        """The empty memory for batches like this one: arrays, or their shapes and dtypes."""
        ...


class UpdateFn(Protocol):
    """The second function of a `Guidance`."""

    def __call__(
        self, latents: ArrayLike, prompts: ArrayLike | None, state: GuidanceState
    ) -> tuple[jax.Array, GuidanceState]:
        """What to add to the latents `[b, ...]`, and the state with one more step counted."""
        ...


class RememberFn(Protocol):
    """The third function of a `Guidance`."""

    def __call__(
        self, latents: ArrayLike, prompts: ArrayLike | None, state: GuidanceState
    ) -> GuidanceState:
        """The state after finished pairs took the place of the oldest; its steps are at zero."""
        ...


class Guidance(NamedTuple):
    """Pure functions that guide a sampler; see the module for how they are called.

    Attributes:
      init: (latents `[b, ...]`, prompts `[b, p]`) -> state. Only shapes and dtypes are looked at.
      update: (latents, prompts, state) -> (updates, state). Updates are of the latents' shape and
        dtype, and are added to them.
      remember: (latents, prompts, state) -> state. Of more pairs than slots the last are kept.
    """

    init: InitFn
    update: UpdateFn
    remember: RememberFn


class Options(TypedDict, total=False):
    """What all kinds of guidance take, by keyword.

    Attributes:
      weight: eta of CV eq. 14, in units of squared latents over the score: a number, or a function
        of the number of the step, such as a schedule of optax. 1 where not given.
      window: how many finished pairs are remembered, 300 (CV appendix E.3) where not given; 0
        guides the batch by itself.
      among: "batch", the score of the memory and the whole batch, ascended in all its latents at
        once; "memory", the score of the memory and one latent, for each latent by itself.
      every: it acts at steps start, start + every, ..., and costs nothing at the others.
      start: the first step at which it acts, counted from 0.
      stop: the step from which on it does not; None for no end.
      normalise: each latent's gradient is divided by its norm, so that the weight is a length.
      max_norm: the longest update of a latent, in the units of the latents; None for no limit.
      objective: "score" ascends the score (CV eq. 25), "entropy" its logarithm, in nats.
    """

    weight: float | jax.Array | Schedule
    window: int
    among: Literal["batch", "memory"]
    every: int
    start: int
    stop: int | None
    normalise: bool
    max_norm: float | None
    objective: Literal["score", "entropy"]


def vendi(
    *,
    output_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    **options: Unpack[Options],
) -> Guidance:
    """Guidance by the Vendi score of the latents, whatever their prompts.

    Args:
      output_kernel: the kernel of the flattened latents.
      order: the Renyi order; 2 is `rke`, which needs no eigenvectors.
      truncation: how many eigenvalues are kept (CV eq. 23); all where None.
      **options: as `Options`.

    Returns:
      A `Guidance`, whose functions take None, or anything, for prompts.

    Raises:
      TypeError, ValueError: an argument is not what it should be.

    References:
      Askari Hemmat et al. (2024), as in CV section 6 and appendix E.2.

    Examples:
      Two latents are pushed apart:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> guide = cv.guidance.vendi(output_kernel=cv.Gaussian(1.0), window=0)
      >>> latents = np.array([[0.0], [1.0]], np.float32)
      >>> updates, _ = guide.update(latents, None, guide.init(latents))
      >>> print(np.asarray(updates).round(2).ravel())
      [-0.7  0.7]
    """
    entropy = Entropy(order=order, truncation=truncation)
    return _guidance(entropy, (output_kernel,), options)


def conditional_vendi(
    *,
    output_kernel: Kernel,
    prompt_kernel: Kernel,
    order: float = 1,
    truncation: int | None = None,
    **options: Unpack[Options],
) -> Guidance:
    """Guidance by the (truncated) Conditional-Vendi score (CV eq. 14 and 24-27).

    Where the spectrum ties across the truncation the entropy has a kink: the tied eigenvectors
    share the weight of those that are kept, which is a subgradient that no choice of basis changes.
    Eigenvalues of zero have no part in the gradient, where eq. 24 prints log 0. Latents that
    coincide are a critical point and stay together.

    Args:
      output_kernel: the kernel of the flattened latents.
      prompt_kernel: the kernel of the prompts.
      order: the Renyi order; 2 is `conditional_rke`, which needs no eigenvectors.
      truncation: how many eigenvalues both entropies keep (CV eq. 23); all where None.
      **options: as `Options`.

    Returns:
      A `Guidance`. A step costs O((window + b)^3) time, O((window + b)^2) memory.

    Raises:
      TypeError, ValueError: an argument is not what it should be.

    Examples:
      Two latents of the same prompt are pushed apart, that of another prompt is left alone:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> guide = cv.guidance.conditional_vendi(
      ...     output_kernel=cv.Gaussian(1.0), prompt_kernel=cv.Gaussian(0.1), truncation=3)
      >>> latents = np.array([[0.0], [1.0], [2.0]], np.float32)
      >>> prompts = np.array([[0.0], [0.0], [9.0]], np.float32)
      >>> updates, _ = guide.update(latents, prompts, guide.init(latents, prompts))
      >>> print(abs(np.asarray(updates)).round(2).ravel())
      [0.4 0.4 0. ]
    """
    entropy = Entropy(order=order, truncation=truncation)
    return _guidance(entropy, (output_kernel, prompt_kernel), options)


def rke(*, output_kernel: Kernel, **options: Unpack[Options]) -> Guidance:
    """Guidance by the RKE score of the latents, n^2 / ||K_Z||_F^2, whatever their prompts.

    Args:
      output_kernel: the kernel of the flattened latents.
      **options: as `Options`.

    Returns:
      A `Guidance`, whose functions take None, or anything, for prompts. A step costs
      O(window + b) a sample.

    Raises:
      TypeError, ValueError: an argument is not what it should be.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> guide = cv.guidance.rke(output_kernel=cv.Gaussian(1.0), window=0)
      >>> latents = np.array([[0.0], [1.0]], np.float32)
      >>> updates, _ = guide.update(latents, None, guide.init(latents))
      >>> print(np.asarray(updates).round(2).ravel())
      [-0.79  0.79]
    """
    return _guidance(Entropy(order=2), (output_kernel,), options)


def conditional_rke(
    *, output_kernel: Kernel, prompt_kernel: Kernel, **options: Unpack[Options]
) -> Guidance:
    """Guidance by the Conditional-RKE score, ||K_T||_F^2 / ||K_Z * K_T||_F^2 (CV appendix C).

    Every latent is pushed straight away from every other, by the square of the joint kernel: only
    those of similar prompts count.

    Args:
      output_kernel: the kernel of the flattened latents.
      prompt_kernel: the kernel of the prompts.
      **options: as `Options`.

    Returns:
      A `Guidance`. A step costs O(window + b) a sample.

    Raises:
      TypeError, ValueError: an argument is not what it should be.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> guide = cv.guidance.conditional_rke(
      ...     output_kernel=cv.Gaussian(1.0), prompt_kernel=cv.Gaussian(0.1), weight=0.1)
      >>> latents = np.array([[0.0], [1.0], [2.0]], np.float32)
      >>> prompts = np.array([[0.0], [0.0], [9.0]], np.float32)
      >>> state = guide.remember(latents[1:], prompts[1:], guide.init(latents, prompts))
      >>> updates, state = guide.update(latents[:1], prompts[:1], state)
      >>> print(np.asarray(updates).round(3))
      [[-0.053]]
    """
    return _guidance(Entropy(order=2), (output_kernel, prompt_kernel), options)


@dataclasses.dataclass(frozen=True)
class _Settings:
    """What is static in a guide."""

    entropy: Entropy
    schedule: Schedule | None
    among: str
    every: int
    start: int
    stop: int | None
    normalise: bool
    max_norm: float | None
    objective: str


def _guidance(entropy: Entropy, kernels: tuple[Kernel, ...], options: Options) -> Guidance:
    """The guide of all kinds; without a kernel of prompts their kernel is one everywhere."""
    for kernel, name in zip(kernels, ("output_kernel", "prompt_kernel"), strict=False):
        check_kernel(kernel, name=name)
    settings, weight, window = _checked(entropy, **options)
    checked = functools.partial(_points, needs_spectrum=entropy.needs_spectrum)

    def init(latents: Any, prompts: Any = None) -> GuidanceState:
        shapes = _shapes(latents, prompts, paired=len(kernels) == 2)
        if entropy.needs_spectrum:
            memory.check(window + shapes[0][0], validation.compute_dtype())
        dtype = validation.compute_dtype()
        rows = [jnp.zeros((window, math.prod(shape[1:])), dtype) for shape in shapes]
        zero = jnp.zeros((), jnp.int32)
        squares = None
        if not entropy.needs_spectrum:
            squares = (jnp.zeros((window,), dtype), jnp.zeros((window,), dtype))
        return GuidanceState(
            latents=rows[0],
            prompts=rows[1] if len(rows) == 2 else None,
            filled=jnp.zeros((window,), bool),
            position=zero,
            step=zero,
            skipped=zero,
            squares=squares,
        )

    def update(
        latents: ArrayLike, prompts: ArrayLike | None, state: GuidanceState
    ) -> tuple[jax.Array, GuidanceState]:
        batch = checked(latents, prompts, kernels, state)
        updates, state = _update(settings, kernels, weight, batch, state)
        given = jnp.result_type(latents)
        floating = jnp.issubdtype(given, jnp.floating)
        return updates.reshape(jnp.shape(latents)).astype(
            given if floating else updates.dtype
        ), state

    def remember(
        latents: ArrayLike, prompts: ArrayLike | None, state: GuidanceState
    ) -> GuidanceState:
        batch = checked(latents, prompts, kernels, state)
        last = tuple(array[-window:] for array in batch) if window else ()
        return _remember(kernels, last, state)

    return Guidance(init, update, remember)


def _checked(
    entropy: Entropy,
    *,
    weight: float | jax.Array | Schedule = 1.0,
    window: int = 300,
    among: str = "batch",
    every: int = 1,
    start: int = 0,
    stop: int | None = None,
    normalise: bool = False,
    max_norm: float | None = None,
    objective: str = "score",
) -> tuple[_Settings, jax.Array, int]:
    """What is static, the weight and the window, or the error that an option deserves."""
    window = validation.check_count(window, name="window", minimum=0)
    for name, value, valid in (("among", among, AMONG), ("objective", objective, OBJECTIVES)):
        if value not in valid:
            raise ValueError(f"{name}: expected one of {', '.join(valid)}, received {value!r}.")
    if among == "memory" and window == 0:
        raise ValueError('window: expected at least 1 with among="memory", received 0.')
    every = validation.check_count(every, name="every", minimum=1)
    start = validation.check_count(start, name="start", minimum=0)
    if stop is not None:
        stop = validation.check_count(stop, name="stop", minimum=start + 1)
    if not isinstance(normalise, bool):
        raise TypeError(f"normalise: expected True or False, received {normalise!r}.")
    if max_norm is not None:
        max_norm = float(_number(max_norm, name="max_norm"))
        if max_norm <= 0:
            raise ValueError(f"max_norm: expected a number above 0, received {max_norm!r}.")
    schedule = weight if callable(weight) else None
    number = jnp.zeros(()) if callable(weight) else _number(weight, name="weight")
    settings = _Settings(
        entropy, schedule, among, every, start, stop, normalise, max_norm, objective
    )
    return settings, number, window


def _number(value: Any, *, name: str) -> jax.Array:
    """A finite real scalar in the compute dtype, or an error; a tracer is taken as it is."""
    if isinstance(value, (bool, str, bytes)) or np.shape(value) != ():
        raise TypeError(f"{name}: expected a number, received {value!r}.")
    number = jnp.asarray(value, validation.compute_dtype())
    if validation.is_concrete(number) and not math.isfinite(float(number)):
        raise ValueError(f"{name}: expected a finite number, received {value!r}.")
    return number


def _shapes(latents: Any, prompts: Any, *, paired: bool) -> list[tuple[int, ...]]:
    """The shapes of a batch, or an error; arrays or `jax.ShapeDtypeStruct`s."""
    named = {"latents": latents, "prompts": prompts} if paired else {"latents": latents}
    shapes = []
    for name, value in named.items():
        shape = tuple(np.shape(value) if not hasattr(value, "shape") else value.shape)
        if value is None or len(shape) < 2 or 0 in shape:
            raise ValueError(
                f"{name}: expected an array [b, ...] of at least one row and one column, received "
                f"{'None' if value is None else f'shape {shape}'}."
            )
        shapes.append(shape)
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            "latents and prompts must pair up row by row: received "
            f"{shapes[0][0]} latents and {shapes[1][0]} prompts."
        )
    return shapes


def _points(
    latents: Any,
    prompts: Any,
    kernels: tuple[Kernel, ...],
    state: GuidanceState,
    *,
    needs_spectrum: bool,
) -> tuple[jax.Array, ...]:
    """The batch as rows in the compute dtype, or the error that it deserves."""
    paired = len(kernels) == 2
    shapes = _shapes(latents, prompts, paired=paired)
    named = {"latents": latents, "prompts": prompts} if paired else {"latents": latents}
    remembered = (state.latents, state.prompts)
    rows = {}
    for (name, value), shape, kept in zip(named.items(), shapes, remembered, strict=False):
        size = math.prod(shape[1:])
        if kept is None or size != kept.shape[1]:
            raise ValueError(
                f"{name}: expected rows of {'no' if kept is None else kept.shape[1]} numbers as in "
                f"the state, received shape {shape}."
            )
        rows[name] = validation.as_array(value, name=name).reshape(shape[0], size)
    if (state.squares is None) != needs_spectrum:
        raise ValueError("state: of a guide of another order, whose memory keeps other sums.")
    checked = validation.check_arrays(rows)
    for kernel, (name, array) in zip(kernels, zip(rows, checked, strict=True), strict=True):
        if validation.is_concrete(array, kernel):
            with jax.ensure_compile_time_eval():
                kernel.check_points(array, name=name)
    return tuple(checked)


@functools.partial(jax.jit, static_argnums=0)
def _update(
    settings: _Settings,
    kernels: tuple[Kernel, ...],
    weight: jax.Array,
    batch: tuple[jax.Array, ...],
    state: GuidanceState,
) -> tuple[jax.Array, GuidanceState]:
    """Updates `[b, d]`, and the state after them."""
    present, batch, remembered = _sound(batch, state)
    latents, *prompts = batch
    passed = state.step - settings.start
    acts = (passed >= 0) & (passed % settings.every == 0)
    if settings.stop is not None:
        acts &= state.step < settings.stop
    if settings.schedule is not None:
        weight = jnp.asarray(settings.schedule(state.step)).astype(latents.dtype)

    def ascend(latents: jax.Array) -> jax.Array:
        def objective(latents: jax.Array) -> jax.Array:
            points = (latents, *prompts)
            return jnp.sum(_objectives(settings, kernels, points, present, remembered, state))

        return _scaled(jax.grad(objective)(latents), weight, settings)

    updates = lax.cond(acts, ascend, jnp.zeros_like, latents)
    sound = present & jnp.isfinite(updates).all(axis=1)
    skipped = jnp.where(acts, jnp.sum(~sound, dtype=jnp.int32), 0)
    state = state._replace(step=state.step + 1, skipped=state.skipped + skipped)
    return jnp.where(sound[:, None], updates, 0), state


def _sound(
    batch: tuple[jax.Array, ...], state: GuidanceState
) -> tuple[jax.Array, tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """Which rows of the batch are finite, the batch, and the memory.

    A row of the batch that does not count stands in for every other, and for the slots that are
    not filled, so that no kernel meets a NaN, a row of zeros, or a mean far from the points.
    """
    finite = [jnp.isfinite(array).all(axis=1) for array in batch]
    present = functools.reduce(jnp.logical_and, finite)
    stand_ins = [
        lax.stop_gradient(lax.dynamic_slice_in_dim(array, jnp.argmax(present), 1))
        for array in batch
    ]
    kept = [array for array in (state.latents, state.prompts) if array is not None]
    of_batch = [
        jnp.where(present[:, None], array, row) for array, row in zip(batch, stand_ins, strict=True)
    ]
    of_memory = [
        jnp.where(state.filled[:, None], array, row)
        for array, row in zip(kept, stand_ins, strict=True)
    ]
    return present, tuple(of_batch), tuple(of_memory)


def _scaled(gradient: jax.Array, weight: jax.Array, settings: _Settings) -> jax.Array:
    """The gradients `[b, d]` as updates: normalised, weighted, clipped."""
    if settings.normalise:
        norms = _norms(gradient)
        gradient = gradient / jnp.where(norms > 0, norms, 1)
    updates = weight * gradient
    if settings.max_norm is not None:
        norms = _norms(updates)
        updates = updates * jnp.where(norms > settings.max_norm, settings.max_norm / norms, 1)
    return updates


def _norms(rows: jax.Array) -> jax.Array:
    """Norms of rows `[b, 1]`; their squares may leave the range of the dtype."""
    largest = lax.stop_gradient(jnp.max(jnp.abs(rows), axis=1, keepdims=True))
    unit = jnp.where(largest > 0, largest, 1)
    squares = jnp.sum(jnp.square(rows / unit), axis=1, keepdims=True)
    return jnp.where(largest > 0, unit * jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


class _Blocks(NamedTuple):
    """A kernel's values of the batch `[b, b]`, and of the batch with the memory `[b, window]`."""

    within: jax.Array
    across: jax.Array


def _blocks(
    kernel: Kernel, batch: jax.Array, remembered: jax.Array
) -> tuple[_Blocks, Callable[[], jax.Array]]:
    """The blocks of the batch, and a function that gives that of the memory `[window, window]`."""
    prepared = kernel.prepare(jnp.concatenate([batch, remembered]))
    first = jax.tree.map(lambda leaf: leaf[: batch.shape[0]], prepared)
    rest = jax.tree.map(lambda leaf: leaf[batch.shape[0] :], prepared)
    blocks = _Blocks(_of_unit_diagonal(kernel.cross(first, first)), kernel.cross(first, rest))
    return blocks, lambda: _of_unit_diagonal(kernel.cross(rest, rest))


def _of_unit_diagonal(matrix: jax.Array) -> jax.Array:
    return jnp.where(jnp.eye(matrix.shape[0], dtype=bool), 1, matrix)


def _objectives(
    settings: _Settings,
    kernels: tuple[Kernel, ...],
    batch: tuple[jax.Array, ...],
    present: jax.Array,
    remembered: tuple[jax.Array, ...],
    state: GuidanceState,
) -> jax.Array:
    """The score of memory and batch, or those of the memory and one pair of the batch, `[b]`."""
    parts = [_blocks(*of) for of in zip(kernels, batch, remembered, strict=True)]
    blocks = tuple(part for part, _ in parts)
    if settings.entropy.needs_spectrum:
        memories = tuple(of_memory() for _, of_memory in parts)
        log_score = functools.partial(_log_score_of_spectra, settings, memories, state.filled)
    else:
        log_score = functools.partial(_log_score_of_squares, state)
    if settings.among == "batch":
        logs = log_score(blocks, present)
    else:
        alone = tuple(
            _Blocks(jnp.ones((present.shape[0], 1, 1), part.within.dtype), part.across[:, None])
            for part in blocks
        )
        logs = jax.vmap(log_score)(alone, present[:, None])
    return jnp.exp(logs) if settings.objective == "score" else logs


def _log_score_of_squares(
    state: GuidanceState, blocks: tuple[_Blocks, ...], present: jax.Array
) -> jax.Array:
    """log ||K_T||_F^2 - log ||K_Z * K_T||_F^2, where K_T is of ones if there are no prompts."""
    assert state.squares is not None
    of_joint, of_prompts = state.squares
    counted = jnp.sum(state.filled, dtype=of_joint.dtype)

    def squared_norm(blocks: tuple[_Blocks, ...], later: jax.Array) -> jax.Array:
        within, across = _squared(blocks, present, state.filled)
        return counted + 2 * jnp.sum(later) + jnp.sum(within) + 2 * jnp.sum(across)

    return jnp.log(squared_norm(blocks[1:], of_prompts)) - jnp.log(squared_norm(blocks, of_joint))


def _squared(blocks: tuple[_Blocks, ...], present: jax.Array, filled: jax.Array) -> _Blocks:
    """The squared products of blocks, zero for what does not count; no block is a kernel of one."""

    def product(factors: tuple[jax.Array, ...], counts: jax.Array) -> jax.Array:
        own = counts.astype(validation.compute_dtype())
        return functools.reduce(lambda left, right: left * jnp.square(right), factors, own)

    return _Blocks(
        product(tuple(part.within for part in blocks), present[:, None] & present[None, :]),
        product(tuple(part.across for part in blocks), present[:, None] & filled[None, :]),
    )


def _log_score_of_spectra(
    settings: _Settings,
    memories: tuple[jax.Array, ...],
    filled: jax.Array,
    blocks: tuple[_Blocks, ...],
    present: jax.Array,
) -> jax.Array:
    """H(Z, T) - H(T) in nats, of the pairs that count."""
    kept = jnp.concatenate([present, filled])
    entropy = settings.entropy.fitted(kept.shape[0])
    whole = [
        jnp.block([[part.within, part.across], [part.across.T, of_memory]])
        for part, of_memory in zip(blocks, memories, strict=True)
    ]
    joint = DenseGram.trusted(functools.reduce(jnp.multiply, whole)).restricted(kept).dense()
    of_joint = _entropy(entropy, joint.matrix / joint.n)
    if len(whole) == 1 or settings.objective == "entropy":
        return of_joint
    prompts = DenseGram.trusted(whole[1]).restricted(kept)
    return of_joint - entropy.of_spectrum(prompts.eigenvalues())


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _entropy(entropy: Entropy, matrix: jax.Array) -> jax.Array:
    """The entropy of a matrix `[n, n]` of trace one, differentiable twice, in nats."""
    return _entropy_and_slope(entropy, matrix)[0]


@_entropy.defjvp
def _entropy_jvp(entropy: Entropy, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    value, slope = _entropy_and_slope(entropy, *primals)
    return value, jnp.sum(slope * tangents[0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _entropy_and_slope(entropy: Entropy, matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The entropy, and its gradient in the matrix: CV eq. 24 for any order."""
    values, vectors = _decompose(matrix)
    value, weights = _value_and_weights(entropy, values)
    return value, _compose(vectors, weights)


@_entropy_and_slope.defjvp
def _entropy_and_slope_jvp(entropy: Entropy, primals: Any, tangents: Any) -> Any:
    """V (D * V^T dA V) V^T with divided differences D, which no tie makes infinite."""
    values, vectors = _decompose(*primals)
    value, weights = _value_and_weights(entropy, values)
    slope = _compose(vectors, weights)
    inner = _product(_product(vectors.T, tangents[0]), vectors)
    hessian = jax.hessian(entropy.of_spectrum)(values)
    gaps = values[:, None] - values[None, :]
    tied = jnp.abs(gaps) <= _tolerance(values)
    divided = jnp.where(
        tied,
        jnp.diagonal(hessian)[:, None] - hessian,
        (weights[:, None] - weights[None, :]) / gaps,
    )
    own = jnp.diag(_product(hessian, jnp.diagonal(inner)))
    moved = jnp.where(jnp.eye(values.shape[0], dtype=bool), own, divided * inner)
    turned = _product(_product(vectors, moved), vectors.T)
    return (value, slope), (jnp.sum(slope * tangents[0]), turned)


def _decompose(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues, descending and of sum one, and the eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(matrix)
    return spectra.project_to_simplex(values), vectors[:, ::-1]


def _value_and_weights(entropy: Entropy, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The entropy and its slope in every eigenvalue; equal among those that tie at the truncation.

    Which of them are kept is up to the last digit: the mean over the choices is a subgradient too,
    and does not depend on it.
    """
    value, weights = jax.value_and_grad(entropy.of_spectrum)(values)
    if entropy.truncation is None:
        return value, weights
    last, tolerance = values[entropy.truncation - 1], _tolerance(values)
    # Zeros are no such tie: what little differs from zero among them has a slope of its own.
    tied = (jnp.abs(values - last) <= tolerance) & (last > tolerance)
    count = jnp.maximum(jnp.sum(tied, dtype=values.dtype), 1)
    shared = jnp.sum(jnp.where(tied, weights, 0)) / count
    return value, jnp.where(tied, shared, weights)


def _tolerance(values: jax.Array) -> jax.Array:
    """Eigenvalues nearer than this differ by rounding."""
    return spectra.NOISE_FLOOR * jnp.finfo(values.dtype).eps * values[0]


def _compose(vectors: jax.Array, weights: jax.Array) -> jax.Array:
    return _product(vectors * weights[None, :], vectors.T)


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


@jax.jit
def _remember(
    kernels: tuple[Kernel, ...], batch: tuple[jax.Array, ...], state: GuidanceState
) -> GuidanceState:
    """The state after the batch took the place of the oldest pairs.

    Of every two pairs the square is kept with the older one and leaves together with it, so that
    nothing is ever subtracted and no rounding adds up.
    """
    state = state._replace(step=jnp.zeros_like(state.step))
    if not batch:
        return state
    window, b = state.filled.shape[0], batch[0].shape[0]
    slots = (state.position + jnp.arange(b, dtype=jnp.int32)) % window
    present, sound, remembered = _sound(batch, state)
    squares = state.squares
    if squares is not None:
        blocks = tuple(_blocks(*of)[0] for of in zip(kernels, sound, remembered, strict=True))

        def with_batch(later: jax.Array, blocks: tuple[_Blocks, ...]) -> jax.Array:
            within, across = _squared(blocks, present, state.filled)
            fresh = jnp.sum(jnp.triu(within, 1), axis=1)
            return (later + jnp.sum(across, axis=0)).at[slots].set(fresh)

        squares = (with_batch(squares[0], blocks), with_batch(squares[1], blocks[1:]))
    kept = [jnp.where(present[:, None], array, 0) for array in batch]
    return state._replace(
        latents=state.latents.at[slots].set(kept[0]),
        prompts=None if state.prompts is None else state.prompts.at[slots].set(kept[1]),
        filled=state.filled.at[slots].set(present),
        position=(state.position + b) % window,
        skipped=state.skipped + jnp.sum(~present, dtype=jnp.int32),
        squares=squares,
    )
