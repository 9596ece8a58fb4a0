"""What meets over a guided step: guides by the library, and a step of the sampler that they guide.

The cost of a step does not depend on the sampler's parameters, so they are random. Apart from the
other engines, whose processes need no networks.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import condvendi_jax as cv
from experiments.cost import engines
from experiments.cost.worker import Cell, Contestant
from experiments.generators import diffusion, latent_diffusion
from experiments.lab import Bandwidths

_SIZES = latent_diffusion.TRAININGS["emoji"].sizes
_SHAPE = latent_diffusion.GRID, latent_diffusion.GRID, _SIZES.latent
_SCALE = 7.5  # Of classifier-free guidance; the paper's.
_ROWS = 100  # Remembered at once.


def random_pairs(n: int, seed: int) -> tuple[list[np.ndarray], Bandwidths]:
    """Latents and unit prompts of the model's shapes, `[n, 512]` and `[n, 384]`, and bandwidths.

    A bandwidth is half the root mean squared distance of two rows: a spectrum that is neither flat
    nor one.
    """
    generator = np.random.default_rng(seed)
    latents, prompts = (generator.normal(size=(n, d)) for d in (np.prod(_SHAPE), _SIZES.prompt))
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    pairs = [latents.astype(np.float32), prompts.astype(np.float32)]
    of_z, of_t = (float(np.sqrt(np.var(of, axis=0, dtype=float).sum() / 2)) for of in pairs)
    return pairs, Bandwidths("given", of_z, of_t, "half the root mean squared distance")


def _norm(found: Any) -> dict[str, float]:
    return {"norm": float(np.linalg.norm(jax.tree.leaves(found)[0]))}


def guide(cell: Cell, *, order: int) -> Contestant:
    """Ours: one update by a score that remembers n pairs; of order 1, a tenth of eigenvalues."""
    n, points = cell["n"], engines.load({**cell, "n": cell["n"] + cell["batch"]})
    batch = [of[n:] for of in points]
    options: Any = {"prompt_size": batch[1].shape[1], "window": n, **engines.gaussians(cell)}
    truncation = max(1, n // 10) if order == 1 else None
    guide = cv.guidance.conditional_vendi(**options, order=order, truncation=truncation)
    state = guide.init(batch[0])
    for start in range(0, n, _ROWS):
        state = cv.guidance.remember(state, *(of[start : min(start + _ROWS, n)] for of in points))

    def update(state: Any, latents: jax.Array, prompts: jax.Array) -> Any:
        updates, state = guide.update(jnp.zeros_like(latents), state, latents, prompts=prompts)
        # The rest of the state stays where it is in a compiled loop. Here it would be copied.
        return updates, state.skipped

    return engines.compiled(update, _norm, [state, *batch])


def sampler(cell: Cell) -> Contestant:
    """What is guided: one step of DDIM, with classifier-free guidance."""
    latents, prompts = engines.load({**cell, "n": cell["batch"]})
    network = latent_diffusion.Denoiser(_SIZES, rngs=nnx.Rngs(0))
    denoise = jax.tree_util.Partial(latent_diffusion.clean_prediction, network)

    def step(denoise: Any, latents: jax.Array, at: jax.Array, prompts: jax.Array) -> jax.Array:
        nothing = jnp.zeros(prompts.shape[1:])
        clean = diffusion.guided(denoise, nothing, _SCALE)(latents, at, prompts)
        later = 0.9 * at
        noise = (latents - diffusion.alpha(at) * clean) / diffusion.sigma(at)
        return diffusion.alpha(later) * clean + diffusion.sigma(later) * noise

    inputs = [denoise, latents.reshape(-1, *_SHAPE), jnp.asarray(0.5), prompts]
    return engines.compiled(step, _norm, inputs)
