"""Guided samples of mixtures whose law is known, and what is measured of them."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

import condvendi_jax as cv
from experiments.data import PairedEmbeddings
from experiments.generators import diffusion
from experiments.generators.mixture_diffusion import PromptedMixture
from experiments.guidance import diffusion_guides

KINDS = {
    "vendi": "Vendi",
    "conditional_vendi": "Conditional-Vendi",
    "rke": "RKE",
    "conditional_rke": "Conditional-RKE",
}
LAW, PLAIN = "law", "plain"
SCORES = ("modes", *KINDS, "energy", "off", "variation")
_STATIC = "kind", "stop", "batches", "copies", "window", "truncation", "steps", "solver", "at"
_RULED = 2000  # Samples of the law that the bandwidths are chosen on.


def pairs_of(name: str, mixture: PromptedMixture, seed: int) -> PairedEmbeddings:
    """Pairs of the law, equally many of every prompt."""
    copies = -(-_RULED // len(mixture.weights))
    prompts = jnp.repeat(mixture.prompts, copies, axis=0)
    outputs = mixture.sample(jax.random.key(seed), prompts)
    return PairedEmbeddings(name, np.asarray(outputs), np.asarray(prompts), "")


@functools.partial(jax.jit, static_argnames=_STATIC)
def draw(
    mixture: PromptedMixture,
    key: jax.Array,
    kernels: Mapping[str, Any],
    weight: jax.Array,
    *,
    kind: str,
    stop: int,
    batches: int,
    copies: int,
    window: int,
    truncation: int,
    **options: Any,
) -> jax.Array:
    """Samples of every prompt, `[prompts, n, 2]`: the batches in order within each.

    Guided by a kind of KINDS in the first `stop` steps, by nothing (PLAIN), or of the law (LAW).
    """
    count = len(mixture.weights)
    batch = jnp.repeat(mixture.prompts, copies, axis=0)
    prompts = jnp.tile(batch[None], (batches, 1, 1))
    guide = None
    if kind in KINDS:
        whole = diffusion_guides.weighted(
            kind, weight, **kernels, prompt_size=count, window=window, truncation=truncation
        )
        guide = optax.conditionally_mask(whole, lambda step, **_: jnp.asarray(step) < stop)
    points = mixture.sample(key, prompts.reshape(-1, count))
    if kind != LAW:
        options |= {"shape": (2,), "guide": guide}
        points, _ = diffusion.sample_batches(mixture.denoise, key, prompts, **options)
    return points.reshape(batches, count, copies, 2).swapaxes(0, 1).reshape(count, -1, 2)


def measured(
    mixture: PromptedMixture, points: np.ndarray, kernels: Mapping[str, Any]
) -> np.ndarray:
    """What SCORES names, `[scores]`, of samples of every prompt `[m, n, 2]`.

    The modes of a prompt are one over the share of pairs of its samples on the support that share a
    component, as Conditional-RKE of narrow components far apart; NaN where no two do. Scores of
    order 2 are of the samples' law, without bias but for the ratio; those of order 1 of the
    samples. 'off' is the share off the support, 'variation' that of the components' shares.
    """
    m, n, _ = points.shape
    shares = np.stack([mixture.shares(of, prompt) for prompt, of in enumerate(points)])
    on = shares.sum(axis=1)
    pairs, meeting = (np.sum(of * (n * of - 1)) for of in (on, shares))
    weights = np.asarray(mixture.weights, float)
    outputs = points.reshape(-1, 2)
    prompts = np.repeat(np.asarray(mixture.prompts), n, axis=0)
    spectral = cv.decompose(outputs, prompts, order=1, method=cv.Exact(), **kernels)
    of_prompts = np.square(_gram(kernels["prompt_kernel"], mixture.prompts))
    of_outputs = mean_squares(kernels["output_kernel"], points)
    energies = [mixture.energy_distance(of, prompt) for prompt, of in enumerate(points)]
    found = {
        "modes": pairs / meeting if meeting > 0 else np.nan,
        "vendi": spectral.vendi,
        "conditional_vendi": spectral.conditional,
        "rke": m**2 / of_outputs.sum(),
        "conditional_rke": of_prompts.sum() / np.sum(of_prompts * of_outputs),
        "energy": np.mean(energies),
        "off": 1 - on.mean(),
        "variation": np.mean(np.abs(shares - weights).sum(axis=1) + 1 - on) / 2,
    }
    return np.array([float(found[name]) for name in SCORES])


def mean_squares(kernel: cv.Kernel, points: np.ndarray) -> np.ndarray:
    """E k(x, y)^2 of different samples x and y of every two prompts, `[m, m]`, without bias."""
    m, n, _ = points.shape
    squares = np.square(_gram(kernel, points.reshape(-1, 2)))
    means = squares.reshape(m, n, m, n).mean(axis=(1, 3))
    np.fill_diagonal(means, (n * np.diagonal(means) - 1) / (n - 1))
    return means


def _gram(kernel: cv.Kernel, points: Any) -> np.ndarray:
    prepared = kernel.prepare(jnp.asarray(points))
    return np.asarray(kernel.cross(prepared, prepared), float)


def guided(values: xr.DataArray) -> xr.DataArray:
    """The scores of the guides by their names, and at the weight 0 those without guidance."""
    kinds = [kind for kind in values.kind.values.tolist() if kind in KINDS]
    plain = values.sel(kind=PLAIN, until=0.0, weight=0.0, drop=True)
    guides = values.sel(kind=kinds, until=values.until > 0)
    guides = guides.assign_coords(kind=[KINDS[kind] for kind in kinds])
    return guides.where(guides.weight > 0, plain)


def within(path: xr.DataArray, limit: float) -> xr.DataArray:
    """The scores, as of `guided`, at the largest weight within a share `limit` off the support.

    The share is the mean over the seeds; the weight becomes one more score.
    """
    share = path.sel(score="off", drop=True).mean("seed", skipna=False)
    weight = path.weight.where(share <= limit).max("weight").fillna(0.0)
    chosen = path.sel(weight=weight).drop_vars("weight")
    weights = weight.broadcast_like(chosen.isel(score=0, drop=True))
    return xr.concat([chosen, weights.expand_dims(score=["weight"])], "score")


def differences(reached: xr.DataArray) -> xr.DataArray:
    """Conditional guides less the marginal ones, of what `within` gives, by both names."""
    kinds = reached.kind.values.tolist()
    marginal = [kind for kind in ("Vendi", "RKE") if {kind, f"Conditional-{kind}"} <= {*kinds}]
    first, second = (
        reached.sel(kind=[s + kind for kind in marginal]) for s in ("Conditional-", "")
    )
    pairs = [f"Conditional-{kind} less {kind}" for kind in marginal]
    return (first.assign_coords(kind=pairs) - second.assign_coords(kind=pairs)).rename(kind="pair")
