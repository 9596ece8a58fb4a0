"""Steps of guides and of a sampler, compiled, and the memory that they take."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import condvendi_jax as cv
from experiments.generators import diffusion, latent_diffusion

# Of classifier-free guidance; the paper's.
_SCALE = 7.5


def noise(model: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random latents `[n, d]` and prompts of unit length `[n, p]` of a model's shapes."""
    generator = np.random.default_rng(seed)
    sizes = latent_diffusion.TRAININGS[model].sizes
    latents = generator.normal(size=(n, sizes.latent * latent_diffusion.GRID**2))
    prompts = generator.normal(size=(n, sizes.prompt))
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    return latents.astype(np.float32), prompts.astype(np.float32)


def bandwidth_of(rows: np.ndarray) -> float:
    """Half the root mean squared distance of two rows: a spectrum that is neither flat nor one."""
    return float(np.sqrt(np.sum(np.var(rows, axis=0, dtype=np.float64)) / 2))


def guide(
    kind: str, window: int, bandwidths: tuple[float, float], prompt_size: int
) -> optax.GradientTransformationExtraArgs:
    """Guidance by Conditional-RKE, or by Conditional-Vendi with a tenth of its eigenvalues."""
    latents, prompts = map(cv.Gaussian, bandwidths)
    make: Any = cv.guidance.conditional_rke
    if kind == "conditional_vendi":
        make = functools.partial(cv.guidance.conditional_vendi, truncation=max(1, window // 10))
    return make(
        output_kernel=latents, prompt_kernel=prompts, window=window, prompt_size=prompt_size
    )


def update(
    guide: optax.GradientTransformationExtraArgs, state: Any, latents: jax.Array, prompts: jax.Array
) -> tuple[Any, Any]:
    """The updates of one step of a guide, and what it changes in the state.

    The rest of the state stays where it is in a compiled loop. As a result it would be copied.
    """
    updates, state = guide.update(jnp.zeros_like(latents), state, latents, prompts=prompts)
    return updates, state.skipped


def sampler(model: str, batch: int, key: jax.Array) -> tuple[Any, tuple[Any, ...]]:
    """One step of DDIM, compiled, and parameters, latents, a time and prompts for it."""
    sizes = latent_diffusion.TRAININGS[model].sizes
    graph, params = nnx.split(latent_diffusion.Denoiser(sizes, rngs=nnx.Rngs(0)))

    def step(params: Any, latents: jax.Array, time: jax.Array, prompts: jax.Array) -> jax.Array:
        def denoise(latents: jax.Array, time: jax.Array, prompts: jax.Array) -> jax.Array:
            times = jnp.broadcast_to(time, latents.shape[:1])
            velocity = nnx.merge(graph, params)(latents, times, prompts)
            return diffusion.alpha(time) * latents - diffusion.sigma(time) * velocity

        nothing = jnp.zeros(prompts.shape[1:])
        clean = diffusion.guided(denoise, nothing, _SCALE)(latents, time, prompts)
        later = 0.9 * time
        noise = (latents - diffusion.alpha(time) * clean) / diffusion.sigma(time)
        return diffusion.alpha(later) * clean + diffusion.sigma(later) * noise

    side = latent_diffusion.GRID
    inputs = (
        params,
        jax.random.normal(key, (batch, side, side, sizes.latent)),
        jnp.asarray(0.5),
        jax.random.normal(key, (batch, sizes.prompt)),
    )
    return jax.jit(step).lower(*inputs).compile(), inputs


def memory(program: Any) -> int:
    """Bytes of the arguments and the workspace of a compiled program."""
    needs = program.memory_analysis()
    return needs.argument_size_in_bytes + needs.temp_size_in_bytes
