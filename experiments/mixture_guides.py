"""Guided samples of mixtures whose law is known, and what is measured of them."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

import condvendi_jax as cv
from experiments.data import PairedEmbeddings
from experiments.generators import diffusion, mixture_diffusion
from experiments.generators.mixture_diffusion import PromptedMixture

KINDS = {
    "vendi": "Vendi",
    "conditional_vendi": "Conditional-Vendi",
    "rke": "RKE",
    "conditional_rke": "Conditional-RKE",
}
LAW, PLAIN = "law", "plain"
SCORES = ("modes", *KINDS, "energy", "off", "variation")
_RULED = 2000  # Samples of the law that the bandwidths are chosen on.


@dataclasses.dataclass(frozen=True)
class Sampling:
    """What is static when samples are drawn: those that share it share a compiled program.

    Attributes:
      at: where the gradient is taken, at the 'clean' or the 'noisy' samples.
      batches: drawn one after another.
      copies: samples of every prompt in a batch.
      window: finished samples that the guide remembers.
      truncation: eigenvalues that Conditional-Vendi keeps.
      steps: of the sampler.
      solver: its name.
    """

    at: str
    batches: int
    copies: int
    window: int
    truncation: int
    steps: int
    solver: str


def read(path: str) -> PromptedMixture:
    """The mixture of a JSON file.

    Raises:
      ValueError: it cannot be read or is no mixture.
    """
    try:
        given = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return mixture_diffusion.mixture(**given)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"--law: {path}: expected centres [k, 2], spread and weights [prompts, k] ({error})."
        ) from error


def pairs_of(name: str, mixture: PromptedMixture, seed: int) -> PairedEmbeddings:
    """Pairs of the law, equally many of every prompt."""
    copies = -(-_RULED // len(mixture.weights))
    prompts = jnp.repeat(mixture.prompts, copies, axis=0)
    outputs = mixture.sample(jax.random.key(seed), prompts)
    return PairedEmbeddings(name, np.asarray(outputs), np.asarray(prompts), "")


@functools.partial(jax.jit, static_argnames=("kind", "stop", "sampling"))
def draw(
    mixture: PromptedMixture,
    key: jax.Array,
    kernels: Mapping[str, Any],
    weight: jax.Array,
    *,
    kind: str,
    stop: int,
    sampling: Sampling,
) -> jax.Array:
    """Samples of every prompt, `[prompts, n, 2]`: the batches in order within each.

    Args:
      mixture: the law.
      key: of the noise.
      kernels: of outputs and prompts, as the scores take them.
      weight: of the guide.
      kind: what guides, LAW for samples of the law itself, or PLAIN for no guide.
      stop: the guide acts in so many of the first steps.
      sampling: what else is static.
    """
    count = len(mixture.weights)
    batch = jnp.repeat(mixture.prompts, sampling.copies, axis=0)
    prompts = jnp.tile(batch[None], (sampling.batches, 1, 1))
    if kind == LAW:
        points = mixture.sample(key, prompts.reshape(-1, count))
    else:
        guide = None if kind == PLAIN else _guide(kind, kernels, weight, stop, count, sampling)
        points, _ = diffusion.sample_batches(
            mixture.denoise,
            key,
            prompts,
            shape=(2,),
            steps=sampling.steps,
            solver=sampling.solver,
            guide=guide,
            at=sampling.at,
        )
    by_prompt = points.reshape(sampling.batches, count, sampling.copies, 2).swapaxes(0, 1)
    return by_prompt.reshape(count, -1, 2)


def _guide(
    kind: str,
    kernels: Mapping[str, Any],
    weight: jax.Array,
    stop: int,
    prompt_size: int,
    sampling: Sampling,
) -> optax.GradientTransformationExtraArgs:
    """The weighted gradient of a score in the first `stop` steps."""
    options: dict[str, Any] = {"output_kernel": kernels["output_kernel"]}
    if kind.startswith("conditional"):
        options |= {"prompt_kernel": kernels["prompt_kernel"], "prompt_size": prompt_size}
    if kind == "conditional_vendi":
        options["truncation"] = sampling.truncation
    score = getattr(cv.guidance, kind)(**options, window=sampling.window)
    weighted = optax.chain(score, optax.scale(weight))
    return optax.conditionally_mask(weighted, lambda step, **_: jnp.asarray(step) < stop)


def measured(
    mixture: PromptedMixture, points: np.ndarray, kernels: Mapping[str, Any]
) -> np.ndarray:
    """What SCORES names, of samples of every prompt.

    The modes of a prompt are one over the share of pairs of one prompt's samples on the support
    that share a component: what Conditional-RKE tends to for narrow components far apart. RKE and
    Conditional-RKE are those of the samples' law, without bias but for the ratio; the scores of
    order 1 are those of the samples. The energy distance to the law is in units of the plane, 'off'
    is the share off the support, 'variation' the total variation of the components' shares.

    Args:
      mixture: the law.
      points: `[m, n, 2]`.
      kernels: of outputs and prompts, as the scores take them.

    Returns:
      `[scores]`; modes are NaN where no two samples share a component.
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
    """The scores of the guides only, and at the weight 0 those without guidance."""
    kinds = [kind for kind in values.kind.values.tolist() if kind in KINDS]
    until = [part for part in values.until.values.tolist() if part > 0]
    plain = values.sel(kind=PLAIN, until=0.0, weight=0.0, drop=True)
    guides = values.sel(kind=kinds, until=until)
    return guides.where(guides.weight > 0, plain)


def at_limit(path: xr.DataArray, limit: float) -> xr.DataArray:
    """The scores where `limit` of the samples are off the support, or at the last weight.

    Args:
      path: as of `guided`; between two weights scores are interpolated linearly, and so are the
        weights, which become one more score.
      limit: a share of the samples.
    """
    weights = path.weight.broadcast_like(path.isel(score=0, drop=True))
    whole = xr.concat([path, weights.expand_dims(score=["weight"])], "score")
    (off,) = np.flatnonzero(whole.score == "off")

    def read(values: np.ndarray) -> np.ndarray:
        beyond = np.flatnonzero(values[:, off] > limit)
        if not beyond.size or not beyond[0]:
            return values[0 if beyond.size else -1]
        before, after = values[beyond[0] - 1], values[beyond[0]]
        part = (limit - before[off]) / (after[off] - before[off])
        return before * (1 - part) + after * part

    core = ["weight", "score"]
    return xr.apply_ufunc(
        read, whole, input_core_dims=[core], output_core_dims=[["score"]], vectorize=True
    )


def differences(reached: xr.DataArray) -> dict[str, xr.DataArray]:
    """Conditional guides less the marginal ones, of what `at_limit` gives, by both names."""
    pairs = {}
    for name in ("vendi", "rke"):
        kinds = [f"conditional_{name}", name]
        if set(kinds) <= set(reached.kind.values.tolist()):
            first, second = (reached.sel(kind=kind, drop=True) for kind in kinds)
            pairs[f"{KINDS[kinds[0]]} less {KINDS[name]}"] = first - second
    return pairs
