"""Samplers of diffusion models that predict clean latents, with room for a guidance step.

The process is variance preserving in continuous time t of (0, 1]: z_t = alpha x + sigma e with
alpha = cos(pi t / 2), sigma = sin(pi t / 2) (the cosine schedule). A model of it is a function

    denoise(latents [b, ...], time [], prompts [b, p]) -> predicted clean latents [b, ...]

the estimate of E[x | z_t, prompt]. One that has parameters is a pytree, as
`jax.tree_util.Partial(function, parameters)`, and may then be an argument of a jitted function.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import condvendi_jax as cv
from condvendi_jax.base import checks

Denoiser = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

# Where sampling starts: at t = 1 the latents hold no signal, and the log-SNR is minus infinity.
TIME_MAX = 0.995
SOLVERS = ("ddim", "dpm2")
PLACES = ("clean", "noisy")


def alpha(time: jax.Array) -> jax.Array:
    """The signal's share of the noisy latents, cos(pi t / 2)."""
    return jnp.cos(jnp.pi / 2 * time)


def sigma(time: jax.Array) -> jax.Array:
    """The noise's share of the noisy latents, sin(pi t / 2)."""
    return jnp.sin(jnp.pi / 2 * time)


def guided(denoiser: Denoiser, unconditional_prompts: jax.Array, scale: float) -> Denoiser:
    """Classifier-free guidance: x_u + scale (x_c - x_u), computed as one batch of twice the size.

    At scale 1 it is the conditional model, at 0 that of the prompt that stands for none, `[p]`. It
    is a pytree if the given denoiser is.
    """
    return jax.tree_util.Partial(_guided, denoiser, unconditional_prompts, scale)


def _guided(denoiser, nothing, scale, latents, time, prompts):
    nothing = jnp.broadcast_to(nothing, prompts.shape).astype(prompts.dtype)
    both = denoiser(jnp.concatenate([latents] * 2), time, jnp.concatenate([nothing, prompts]))
    unconditional, conditional = jnp.split(both, 2)
    return unconditional + scale * (conditional - unconditional)


def _steps(steps: int, solver: str) -> dict[str, np.ndarray]:
    """The coefficients of DPM-Solver++(2M) (Lu et al. 2022, algorithm 2); DDIM is its first order.

    Each step's numbers, `[steps]`: z' = keep z + clean (x + extrapolated (x - last x)). With h the
    step of the log-SNR / 2, keep = sigma' / sigma and clean = alpha' (1 - exp(-h)). The first step
    has no step before it, and the last one is infinite: both are of first order.
    """
    times = np.linspace(TIME_MAX, 0.0, steps + 1)
    signal, noise = np.cos(np.pi / 2 * times), np.sin(np.pi / 2 * times)
    ratio = noise / signal
    extrapolated = np.zeros(steps)
    if solver == "dpm2" and steps > 2:
        h = -np.diff(np.log(ratio[:-1]))
        extrapolated[1:-1] = h[1:] / (2 * h[:-1])
    return {
        "time": times[:-1],
        "keep": noise[1:] / noise[:-1],
        "clean": signal[1:] * (1 - ratio[1:] / ratio[:-1]),
        "extrapolated": extrapolated,
        "alpha_next": signal[1:],
    }


def sample(
    denoise: Denoiser,
    key: jax.Array,
    prompts: jax.Array,
    *,
    shape: tuple[int, ...],
    steps: int = 50,
    solver: str = "ddim",
    guide: Any = None,
    state: Any = None,
    remember: Callable[[Any, jax.Array, jax.Array], Any] = cv.guidance.remember,
    at: str = "clean",
) -> tuple[jax.Array, Any]:
    """Draws latents `[b, *shape]` of prompts `[b, p]`, in their dtype, and the guide's last state.

    From noise at `TIME_MAX` to the clean prediction at the end, in `steps` calls of the model by
    DDIM (first order) or DPM-Solver++(2M) (second order). All randomness is the noise that it
    starts from, so that the same key with and without a guide gives paired samples.

    The guide is a transformation of `condvendi_jax.guidance`, whose schedules and conditions count
    the steps of this batch. Its state is new, or that of batches before, and `remember` gives it
    after finished latents. The additive term of CV eq. 14 enters at each step: z' gains
    alpha' * update, with the update evaluated at the predicted clean latents (`at="clean"`: the
    prediction is moved and the noise that it implies is kept), or z' gains the update evaluated
    at z (`at="noisy"`, as printed). Without a guide the state is None.

    Raises:
      ValueError: an unknown solver or place, no steps, or prompts that are not `[b, p]`.
    """
    checks.check_count(steps, name="steps", minimum=1)
    for name, value, known in (("solver", solver, SOLVERS), ("at", at, PLACES)):
        if value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, received {value!r}.")
    if prompts.ndim != 2:
        raise ValueError(f"prompts: expected [b, p], received shape {prompts.shape}.")
    latents = jax.random.normal(key, (prompts.shape[0], *shape), prompts.dtype)
    if guide is not None:
        new = state is None
        state = guide.init(latents) if new else cv.guidance.restart(guide, state, latents)

    def step(carry: tuple, numbers: Any) -> tuple[tuple, None]:
        latents, last, state = carry
        clean = denoise(latents, numbers["time"], prompts).astype(latents.dtype)
        ahead = clean + numbers["extrapolated"] * (clean - last)
        moved = numbers["keep"] * latents + numbers["clean"] * ahead
        if guide is not None:
            place, gain = (clean, numbers["alpha_next"]) if at == "clean" else (latents, 1)
            nothing = jnp.zeros_like(place)
            updates, state = guide.update(nothing, state, place, prompts=prompts)
            moved += gain * updates
        return (moved, clean, state), None

    numbers = jax.tree.map(lambda x: jnp.asarray(x, latents.dtype), _steps(steps, solver))
    (latents, _, state), _ = jax.lax.scan(step, (latents, jnp.zeros_like(latents), state), numbers)
    if guide is not None:
        state = remember(state, latents, prompts)
    return latents, state


def sample_batches(
    denoise: Denoiser, key: jax.Array, prompts: jax.Array, **options: Any
) -> tuple[jax.Array, Any]:
    """Latents `[batches, b, *shape]` of prompts `[batches, b, p]`, and the guide's last state.

    Each batch is drawn as by `sample` with these options, under a key of its own; the guide
    remembers the batches before.
    """
    guide, first = options.get("guide"), (prompts.shape[1], *options["shape"])
    state = None if guide is None else guide.init(jnp.zeros(first, prompts.dtype))

    def batch(state: Any, given: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        key, prompts = given
        latents, state = sample(denoise, key, prompts, state=state, **options)
        return state, latents

    state, latents = jax.lax.scan(batch, state, (jax.random.split(key, prompts.shape[0]), prompts))
    return latents, state


def weighted(kind: str, weight: Any, **options: Any) -> optax.GradientTransformationExtraArgs:
    """The gradient of a score, a function of `cv.guidance` by its name, times eta of CV eq. 14.

    Of the kernels, `prompt_size`, `window` and `truncation` it takes what the score has: only
    conditional scores see prompts, and only Conditional-Vendi is truncated.
    """
    unused = set() if kind == "conditional_vendi" else {"truncation"}
    unused |= set() if kind.startswith("conditional") else {"prompt_kernel", "prompt_size"}
    given = {name: value for name, value in options.items() if name not in unused}
    return optax.chain(getattr(cv.guidance, kind)(**given), optax.scale(weight))


def pulled_back(
    guide: optax.GradientTransformationExtraArgs, features: Callable[[jax.Array], jax.Array]
) -> optax.GradientTransformationExtraArgs:
    """A guide of features as one of latents, by the transposed Jacobian; it remembers features."""

    def init(params: Any) -> Any:
        return guide.init(jax.eval_shape(features, params))

    def update(updates: Any, state: Any, params: Any = None, **given: Any) -> tuple[Any, Any]:
        found, back = jax.vjp(features, params)
        moved, state = guide.update(jnp.zeros_like(found), state, found, **given)
        return back(moved)[0], state

    return optax.GradientTransformationExtraArgs(init, update)
