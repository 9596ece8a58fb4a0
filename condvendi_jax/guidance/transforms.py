"""One gradient transformation of optax for each score."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from condvendi_jax.base import checks, memory
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.entropies import Entropy
from condvendi_jax.grams.operators import DenseGram
from condvendi_jax.guidance import window as ring


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
    entropy = Entropy(order=order, truncation=truncation)
    return _transformation(entropy, {"output_kernel": output_kernel}, (), window)


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
    across the truncation the entropy has a kink, and rounding decides which of them are kept.
    Eigenvalues of zero have no part in the gradient, where eq. 24 prints log 0. Latents that
    coincide are a critical point and stay together.

    Args:
      output_kernel, order, truncation, window: as in `vendi`, for both entropies.
      prompt_kernel: the kernel of the flattened prompts.
      prompt_size: how many numbers a prompt has, for the memory of prompts.
    """
    entropy = Entropy(order=order, truncation=truncation)
    kernels = {"output_kernel": output_kernel, "prompt_kernel": prompt_kernel}
    size = checks.check_count(prompt_size, name="prompt_size", minimum=1)
    return _transformation(entropy, kernels, (size,), window)


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
        shape = ring.check_shape(params, name="latents")
        if needs_spectrum:
            memory.check(window + shape[0], checks.compute_dtype())
        zeros = functools.partial(jnp.zeros, dtype=checks.compute_dtype())
        rows = tuple(zeros((window, size)) for size in (math.prod(shape[1:]), *prompt_sizes))
        filled = jnp.zeros((window,), bool)
        zero = jnp.zeros((), jnp.int32)
        squares = None if needs_spectrum else (zeros((window,)), zeros((window,)))
        return ring.GuidanceState(given, rows, filled, zero, skipped=zero, squares=squares)

    def update(
        updates: Any, state: Any, params: Any = None, *, prompts: Any = None, **extra_args: Any
    ) -> tuple[jax.Array, Any]:
        if (len(state.kernels), state.squares is None) != (len(kernels), needs_spectrum):
            raise ValueError("state: expected that of this guide, received that of another score.")
        gradient, skipped = _gradient(entropy, ring.checked_rows(state, params, prompts), state)
        dtype = jnp.result_type(params)
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else gradient.dtype
        return gradient.reshape(jnp.shape(params)).astype(dtype), state._replace(skipped=skipped)

    return optax.GradientTransformationExtraArgs(init, update)


@functools.partial(jax.jit, static_argnums=0)
def _gradient(
    entropy: Entropy, batch: tuple[jax.Array, ...], state: ring.GuidanceState
) -> tuple[jax.Array, jax.Array]:
    """The gradients `[b, d]`, zero where they are not finite, and how many latents were skipped."""
    present, (latents, *prompts) = ring.finite_rows(batch)

    def objective(latents: jax.Array) -> jax.Array:
        values = ring.kernel_values(state, (latents, *prompts), among_all=entropy.needs_spectrum)
        if not entropy.needs_spectrum:
            return jnp.exp(_log_score_of_squares(values, present, state))
        counts = jnp.concatenate([present, state.filled])
        return jnp.exp(_log_score_of_spectra(entropy, values, counts))

    gradient = jax.grad(objective)(latents)
    finite = present & jnp.isfinite(gradient).all(axis=1)
    skipped = state.skipped + jnp.sum(~finite, dtype=jnp.int32)
    return jnp.where(finite[:, None], gradient, 0), skipped


def _log_score_of_squares(values: Any, present: jax.Array, state: Any) -> jax.Array:
    """log ||K_T||_F^2 - log ||K_Z * K_T||_F^2, where K_T is of ones if there are no prompts."""
    b = len(present)

    def log_norm(values: tuple[jax.Array, ...], later: jax.Array) -> jax.Array:
        square = ring.squared(values, present, state.filled)
        remembered = jnp.sum(state.filled, dtype=later.dtype) + 2 * jnp.sum(later)
        return jnp.log(remembered + jnp.sum(square[:b]) + 2 * jnp.sum(square[b:]))

    return log_norm(values[1:], state.squares[1]) - log_norm(values, state.squares[0])


def _log_score_of_spectra(entropy: Entropy, values: Any, counts: jax.Array) -> jax.Array:
    """H(Z, T) - H(T) in nats, of the pairs that count."""
    latents, *prompts = values
    entropy = entropy.fitted(counts.shape[0])
    shares = counts.astype(latents.dtype) / jnp.sum(counts, dtype=latents.dtype)

    def log_score(matrix: jax.Array) -> jax.Array:
        return entropy.of_spectrum(DenseGram(matrix).weighted(shares).eigenvalues())

    if not prompts:
        return log_score(latents)
    return log_score(latents * prompts[0]) - log_score(prompts[0])
