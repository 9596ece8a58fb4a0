"""Guides of latent diffusion models: what they are, how samples are drawn, how weights are chosen.

A guide acts on latents, or on an encoder's features of what they are decoded to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.spatial import distance

import condvendi_jax as cv
from experiments.generators import diffusion
from experiments.generators.benches import Bench

NONE = "none"
OF_FEATURES = "Vendi of features"
METHODS = ("Vendi", "RKE", "Conditional-Vendi", "Conditional-RKE", OF_FEATURES)
CALIBRATION = 0xCA1B  # Folded into the seed for the samples that weights are chosen on.
_DIGITS = 3  # Of chosen numbers: what another machine's rounding does not change.


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How samples are drawn and guided.

    Attributes:
      batch: samples that are drawn and guided together.
      steps: calls of the model a sample.
      scale: of classifier-free guidance.
      every: guidance acts at every so many steps.
      at: where it is evaluated, at 'clean' or 'noisy' latents.
      window: finished pairs that a guide remembers.
      truncation: eigenvalues that the guide Conditional-Vendi keeps.
      latents: the bandwidth of the guides' latents.
      features: that of the features, for `OF_FEATURES`.
      prompts: that of the guides' prompts.
    """

    batch: int
    steps: int
    scale: float
    every: int
    at: str
    window: int
    truncation: int
    latents: float
    features: float
    prompts: float


def guide_of(
    method: str, sampling: Sampling, bench: Bench, weight: Any
) -> optax.GradientTransformationExtraArgs | None:
    """The guide of a method; None for none."""
    if method == NONE:
        return None
    width = sampling.features if method == OF_FEATURES else sampling.latents
    options: dict[str, Any] = {"output_kernel": cv.Gaussian(width), "window": sampling.window}
    if method.startswith("Conditional"):
        options["prompt_kernel"] = cv.Gaussian(sampling.prompts)
        options["prompt_size"] = bench.prompts.shape[-1]
    if method == "RKE":
        score = cv.guidance.rke(**options)
    elif method == "Conditional-RKE":
        score = cv.guidance.conditional_rke(**options)
    elif method == "Conditional-Vendi":
        score = cv.guidance.conditional_vendi(**options, truncation=sampling.truncation)
    else:
        score = cv.guidance.vendi(**options)
    guide = optax.chain(score, optax.scale(weight))
    if method == OF_FEATURES:
        guide = pulled_back(guide, lambda latents: bench.features(bench.model.decode(latents)))
    return optax.conditionally_mask(
        guide, lambda step, **_: jnp.asarray(step) % sampling.every == 0
    )


def pulled_back(
    guide: optax.GradientTransformationExtraArgs, features: Callable[[jax.Array], jax.Array]
) -> optax.GradientTransformationExtraArgs:
    """A guide of features as one of latents: its updates by the transposed Jacobian.

    Its memory holds features: `remember_of` computes them.
    """

    def init(params: Any) -> Any:
        return guide.init(jax.eval_shape(features, params))

    def update(
        updates: Any, state: Any, params: Any = None, **extra_args: Any
    ) -> tuple[jax.Array, Any]:
        del updates
        found, back = jax.vjp(features, params)
        moved, state = guide.update(jnp.zeros_like(found), state, found, **extra_args)
        return back(moved)[0], state

    return optax.GradientTransformationExtraArgs(init, update)


def remember_of(method: str, bench: Bench) -> Callable[[Any, jax.Array, jax.Array], Any]:
    """`cv.guidance.remember` of what the guide of a method sees: latents, or their features."""
    if method != OF_FEATURES:
        return cv.guidance.remember

    def remember(state: Any, latents: jax.Array, prompts: jax.Array) -> Any:
        return cv.guidance.remember(state, bench.features(bench.model.decode(latents)), prompts)

    return remember


def asked(kinds: int, samples: int, bench: Bench, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """What a seed asks for: kinds `[samples]` and prompts `[samples, p]`, in random order.

    Each of some random kinds as often, in random wordings.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chosen = rng.permutation(len(bench.names))[:kinds]
    each = rng.permutation(np.resize(chosen, samples))
    words = rng.integers(bench.prompts.shape[1], size=samples)
    return each, bench.prompts[each, words].astype(np.float32)


def sampler(method: str, sampling: Sampling, bench: Bench) -> Callable[..., Any]:
    """A compiled `(denoise, key, prompts [n, p], weight) -> latents [n, ...], skipped`."""

    def draw(
        denoise: diffusion.Denoiser, key: jax.Array, prompts: jax.Array, weight: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        guide = guide_of(method, sampling, bench, weight)
        latents, state = diffusion.sample_batches(
            diffusion.guided(denoise, bench.model.unconditional, sampling.scale),
            key,
            prompts.reshape(-1, sampling.batch, prompts.shape[1]),
            shape=bench.model.shape,
            steps=sampling.steps,
            solver="dpm2",
            guide=guide,
            remember=remember_of(method, bench),
            at=sampling.at,
        )
        skipped = 0 if guide is None else optax.tree_utils.tree_get(state, "skipped")
        return latents.reshape(-1, *bench.model.shape), jnp.asarray(skipped)

    return jax.jit(draw)


def calibrated(
    sampling: Sampling,
    methods: Sequence[str],
    strengths: Sequence[float],
    bench: Bench,
    *,
    kinds: int,
    samples: int,
    seed: int,
) -> tuple[Sampling, Mapping[str, tuple[float, ...]]]:
    """Bandwidths of the guides and weights of the methods, by samples of another seed.

    Bandwidths are median distances of latents and of features of one kind, without guidance. At
    strength 1 a method's weight would move a sample by the norm of its latents in all, if at each
    of its steps its gradient was that at a finished batch with the batches before in memory.

    Raises:
      ValueError: the gradients of a method are zero or not finite.
    """
    key = jax.random.fold_in(jax.random.key(seed), CALIBRATION)
    shown, embedded = asked(kinds, samples, bench, key)
    prompts = jnp.asarray(embedded)
    latents, _ = sampler(NONE, sampling, bench)(bench.model.denoise, key, prompts, jnp.zeros(()))
    features = np.asarray(bench.features(bench.model.decode(latents)))
    flat = np.asarray(latents).reshape(len(latents), -1)
    sampling = dataclasses.replace(
        sampling,
        latents=rounded(distance_within(flat, shown)),
        features=rounded(distance_within(features, shown)),
    )
    length = np.sqrt(np.mean(np.sum(np.square(flat), axis=1)))
    actions = math.ceil(sampling.steps / sampling.every)
    weights = {}
    for method in methods:
        moved = np.asarray(_updates(method, sampling, bench)(latents, prompts))
        norms = np.sum(np.square(moved.reshape(len(moved), -1)), axis=1)
        if not 0 < np.mean(norms) < np.inf:
            raise ValueError(f"{method}: its gradients at samples without guidance are no guide.")
        whole = length / (actions * np.sqrt(np.mean(norms)))
        weights[method] = tuple(rounded(whole * strength) for strength in strengths)
    return sampling, weights


def _updates(method: str, sampling: Sampling, bench: Bench) -> Callable[..., jax.Array]:
    """A compiled `(latents [n, ...], prompts [n, p]) -> updates` of the last batch, weight 1."""
    guide: Any = guide_of(method, sampling, bench, 1.0)

    def last(latents: jax.Array, prompts: jax.Array) -> jax.Array:
        batch = latents[-sampling.batch :], prompts[-sampling.batch :]
        before = latents[: -sampling.batch], prompts[: -sampling.batch]
        state = remember_of(method, bench)(guide.init(batch[0]), *before)
        return guide.update(jnp.zeros_like(batch[0]), state, batch[0], prompts=batch[1])[0]

    return jax.jit(last)


def distance_within(rows: np.ndarray, kinds: np.ndarray) -> float:
    """The median distance of two rows `[n, d]` of one kind."""
    found = [distance.pdist(rows[kinds == kind]) for kind in np.unique(kinds)]
    return float(np.median(np.concatenate(found)))


def rounded(value: float) -> float:
    """The value to so many digits as do not depend on the machine."""
    return float(f"{value:.{_DIGITS}g}")
