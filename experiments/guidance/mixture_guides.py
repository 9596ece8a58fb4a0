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

    Guided by a kind of KINDS in the first `stop` steps, by nothing (PLAIN), or of the law itself
    (LAW). A batch has so many `copies` of every prompt; the options are of `diffusion.sample`.
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
    if kind == LAW:
        points = mixture.sample(key, prompts.reshape(-1, count))
    else:
        points, _ = diffusion.sample_batches(
            mixture.denoise, key, prompts, shape=(2,), guide=guide, **options
        )
    by_prompt = points.reshape(batches, count, copies, 2).swapaxes(0, 1)
    return by_prompt.reshape(count, -1, 2)


def measured(
    mixture: PromptedMixture, points: np.ndarray, kernels: Mapping[str, Any]
) -> np.ndarray:
    """What SCORES names, `[scores]`, of samples of every prompt `[m, n, 2]`.

    The modes of a prompt are one over the share of pairs of one prompt's samples on the support
    that share a component: what Conditional-RKE tends to for narrow components far apart; NaN where
    no two do. RKE and Conditional-RKE are those of the samples' law, without bias but for the
    ratio; the scores of order 1 are those of the samples. The energy distance to the law is in
    units of the plane, 'off' is the share off the support, 'variation' the total variation of the
    components' shares.
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


def at_limit(path: xr.DataArray, limit: float) -> xr.DataArray:
    """The scores where a share `limit` of the samples is off the support, or at the last weight.

    The path is as of `guided`; the weights, interpolated as the scores are, become one more score.
    """
    weights = path.weight.broadcast_like(path.isel(score=0, drop=True))
    whole = xr.concat([path, weights.expand_dims(score=["weight"])], "score")
    (off,) = np.flatnonzero(whole.score == "off")

    def read(values: np.ndarray) -> np.ndarray:
        found = diffusion_guides.along(values[:, off], values, limit)
        return values[-1] if np.isnan(found[off]) else found

    core = ["weight", "score"]
    return xr.apply_ufunc(
        read, whole, input_core_dims=[core], output_core_dims=[["score"]], vectorize=True
    )


def differences(reached: xr.DataArray) -> dict[str, xr.DataArray]:
    """Conditional guides less the marginal ones, of what `at_limit` gives, by both names."""
    of = {kind: reached.sel(kind=kind, drop=True) for kind in reached.kind.values.tolist()}
    pairs = [(f"Conditional-{kind}", kind) for kind in ("Vendi", "RKE")]
    return {f"{a} less {b}": of[a] - of[b] for a, b in pairs if a in of and b in of}
