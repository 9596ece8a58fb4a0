"""Guides of diffusion models, on latents or on features of what they decode to; and a judge."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from scipy.spatial import distance

import condvendi_jax as cv
from experiments.generators import diffusion, picture_encoder
from experiments.generators.benches import Bench
from experiments.lab import Scales

NONE = "none"
OF_FEATURES = "Vendi of features"
METHODS = ("Vendi", "RKE", "Conditional-Vendi", "Conditional-RKE", OF_FEATURES)
JUDGED = ("Conditional-Vendi", "Vendi", "Conditional-RKE", "RKE")
MEASURES = ("first", "alignment", "kernel distance", *JUDGED, "similarity")
CALIBRATION = 0xCA1B  # Folded into the seed for the samples that weights are chosen on.
# Where methods are compared: what guidance has cost, and how much of it.
COSTS = {
    "2 points of alignment": ("alignment", -2.0),
    "kernel distance + 2": ("kernel distance", 2.0),
}
_DIGITS = 3  # Of chosen numbers: what another machine's rounding does not change.


def weighted(kind: str, weight: Any, **options: Any) -> optax.GradientTransformationExtraArgs:
    """The gradient of a score, a function of `cv.guidance` by its name, times eta of CV eq. 14.

    Of the kernels, `prompt_size`, `window` and `truncation` it takes what the score has: only
    conditional scores see prompts, and only Conditional-Vendi is truncated.
    """
    unused = set() if kind == "conditional_vendi" else {"truncation"}
    unused |= set() if kind.startswith("conditional") else {"prompt_kernel", "prompt_size"}
    given = {name: value for name, value in options.items() if name not in unused}
    return optax.chain(getattr(cv.guidance, kind)(**given), optax.scale(weight))


def guide_of(method: str, study: Any, bench: Bench, weight: Any) -> tuple[Any, Any]:
    """The guide of a method, and how it remembers finished latents: itself, or their features."""
    if method == NONE:
        return None, None
    of_features = method == OF_FEATURES

    def features(latents: jax.Array) -> jax.Array:
        return bench.features(bench.model.decode(latents)) if of_features else latents

    def remember(state: Any, latents: jax.Array, prompts: jax.Array) -> Any:
        return cv.guidance.remember(state, features(latents), prompts)

    guide = weighted(
        "vendi" if of_features else method.lower().replace("-", "_"),
        weight,
        output_kernel=cv.Gaussian(study.features if of_features else study.latents),
        prompt_kernel=cv.Gaussian(study.prompts),
        prompt_size=bench.prompts.shape[-1],
        window=study.window,
        truncation=study.truncation,
    )
    moved = pulled_back(guide, features)
    acts = optax.conditionally_mask(moved, lambda step, **_: jnp.asarray(step) % study.every == 0)
    return acts, remember


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


def asked(kinds: int, samples: int, bench: Bench, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """What a seed asks for: kinds `[samples]` and prompts `[samples, p]`, in random order.

    Each of some random kinds as often, in random wordings.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chosen = rng.permutation(len(bench.names))[:kinds]
    each = rng.permutation(np.resize(chosen, samples))
    words = rng.integers(bench.prompts.shape[1], size=samples)
    return each, bench.prompts[each, words].astype(np.float32)


def sampler(method: str, study: Any, bench: Bench) -> Callable[..., Any]:
    """A compiled `(denoise, key, prompts [n, p], weight) -> latents [n, ...], skipped`."""

    @jax.jit
    def draw(
        denoise: diffusion.Denoiser, key: jax.Array, prompts: jax.Array, weight: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        guide, remember = guide_of(method, study, bench, weight)
        latents, state = diffusion.sample_batches(
            diffusion.guided(denoise, bench.model.unconditional, study.scale),
            key,
            prompts.reshape(-1, study.batch, prompts.shape[1]),
            shape=bench.model.shape,
            steps=study.steps,
            solver="dpm2",
            guide=guide,
            remember=remember,
            at=study.at,
        )
        skipped = 0 if guide is None else optax.tree_utils.tree_get(state, "skipped")
        return latents.reshape(-1, *bench.model.shape), jnp.asarray(skipped)

    return draw


def calibrated(study: Any, bench: Bench, seed: int) -> Any:
    """With bandwidths of the guides and weights of the methods, by samples of another seed.

    Bandwidths are median distances of latents and of features of one kind, without guidance. At
    strength 1 a method's weight would move a sample by the norm of its latents in all, if at each
    of its steps its gradient was that at a finished batch with the batches before in memory.
    """
    key = jax.random.fold_in(jax.random.key(seed), CALIBRATION)
    kinds, embedded = asked(study.kinds, study.samples, bench, key)
    prompts = jnp.asarray(embedded)
    latents, _ = sampler(NONE, study, bench)(bench.model.denoise, key, prompts, jnp.zeros(()))
    features = np.asarray(bench.features(bench.model.decode(latents)))
    flat = np.asarray(latents).reshape(len(latents), -1)
    widths = [rounded(distance_within(rows, kinds)) for rows in (flat, features)]
    study = dataclasses.replace(study, latents=widths[0], features=widths[1])
    actions, weights = math.ceil(study.steps / study.every), {}
    for method in study.methods:
        norm = _norm(jax.jit(functools.partial(_updates, method, study, bench))(latents, prompts))
        if not 0 < norm < np.inf:
            raise ValueError(f"{method}: its gradients at samples without guidance are no guide.")
        whole = _norm(latents) / (actions * norm)
        weights[method] = tuple(rounded(whole * strength) for strength in study.strengths)
    return dataclasses.replace(study, weights=weights)


def _norm(rows: jax.Array) -> float:
    """The root mean square of the norms of rows `[n, ...]`."""
    return float(np.linalg.norm(rows)) / math.sqrt(len(rows))


def _updates(
    method: str, study: Any, bench: Bench, latents: jax.Array, prompts: jax.Array
) -> jax.Array:
    """By a guide of weight 1, of the last batch of latents `[n, ...]`; it remembers the others."""
    guide, remember = guide_of(method, study, bench, 1.0)
    before, batch = slice(-study.batch), slice(-study.batch, None)
    state = remember(guide.init(latents[batch]), latents[before], prompts[before])
    unmoved = jnp.zeros_like(latents[batch])
    return guide.update(unmoved, state, latents[batch], prompts=prompts[batch])[0]


def distance_within(rows: np.ndarray, kinds: np.ndarray) -> float:
    """The median distance of two rows `[n, d]` of one kind."""
    found = [distance.pdist(rows[kinds == kind]) for kind in np.unique(kinds)]
    return float(np.median(np.concatenate(found)))


def rounded(value: float) -> float:
    """The value to so many digits as do not depend on the machine."""
    return float(f"{value:.{_DIGITS}g}")


def gained(values: xr.DataArray) -> xr.DataArray:
    """What each method differs by from no guidance, seed by seed; 0 at the strength 0."""
    methods = [method for method in values["guide"].values.tolist() if method in METHODS]
    plain = values.sel(guide=NONE, strength=0.0, drop=True)
    return values.sel(guide=methods).where(values.strength > 0, plain) - plain


def at_costs(minus: xr.DataArray) -> xr.Dataset:
    """What each method has gained (as of `gained`) where it costs so much, with errors: COSTS."""
    core = ["strength", "seed"]
    found: list[xr.Dataset] = []
    for name, cost in COSTS.values():
        axes = {"input_core_dims": [core, core], "output_core_dims": [[], []]}
        costs = minus.sel(measure=name, drop=True) / cost
        value, error = xr.apply_ufunc(at_cost, costs, minus, vectorize=True, **axes)
        found.append(xr.Dataset({"value": value, "error": error}))
    return xr.concat(found, xr.IndexVariable("cost", list(COSTS)))


def at_cost(costs: np.ndarray, gains: np.ndarray) -> tuple[float, float]:
    """The mean gain where the mean cost over the seeds first is 1, and its standard error.

    Both are `[strengths, seeds]`, from no guidance upwards, and interpolated between strengths. The
    error is the jackknife's over the seeds, all of it repeated. Both are NaN where it never costs
    so much; the error alone where that hangs on one seed.
    """

    def reached(kept: np.ndarray) -> float:
        cost, gain = costs[:, kept].mean(axis=1), gains[:, kept].mean(axis=1)
        if not (cost >= 1).any():
            return np.nan
        end = int(np.argmax(cost >= 1))
        pair = slice(max(end - 1, 0), end + 1)
        return float(np.interp(1.0, cost[pair], gain[pair]))

    seeds = np.arange(costs.shape[1])
    without = [reached(seeds != seed) for seed in seeds]
    return reached(seeds >= 0), float(np.sqrt((len(seeds) - 1) * np.var(without)))


def judged(
    features: np.ndarray,
    prompts: np.ndarray,
    kinds: np.ndarray,
    reference: np.ndarray,
    bandwidths: Scales,
    bench: Bench,
) -> np.ndarray:
    """What MEASURES names, of some samples: `[scales, measures]`.

    'first' and 'alignment' are the percent whose kind is the judge's first, and among its best. The
    distance to the reference and the similarity are times 100. Only the scores depend on the scale.
    """
    logits = np.asarray(bench.logits(jnp.asarray(features)))
    first, alignment = (
        100 * np.mean(picture_encoder.found_among(logits, kinds, best)) for best in (1, bench.best)
    )
    away, alike = kernel_distance(features, reference), similarity(features, kinds)
    found = []
    for scale in bandwidths.axis:
        orders = [cv.decompose(features, prompts, order=o, **scale.kernels) for o in (1.0, 2.0)]
        scores = [float(v) for of in orders for v in (of.conditional, of.vendi)]
        found.append([first, alignment, 100 * away, *scores, 100 * alike])
    return np.array(found)


def kernel_distance(one: np.ndarray, other: np.ndarray) -> float:
    """The squared maximum mean discrepancy of unit features `[n, d]` and `[m, d]`, without bias.

    It may be negative. With the kernel (x . y / d + 1)^3 of Binkowski et al. (2018) on features of
    norm sqrt(d), which is that of cosines: (cos + 1)^3.
    """
    rows, n, m = np.concatenate([one, other]).astype(np.float64), len(one), len(other)
    kernel = (rows @ rows.T + 1) ** 3
    np.fill_diagonal(kernel, 0)
    within = kernel[:n, :n].sum() / (n * (n - 1)) + kernel[n:, n:].sum() / (m * (m - 1))
    return float(within - 2 * kernel[:n, n:].mean())


def similarity(features: np.ndarray, kinds: np.ndarray) -> float:
    """Mean cosine of unit features `[n, d]` over the pairs of different samples of one kind."""
    alike = (kinds[:, None] == kinds[None, :]) & ~np.eye(len(kinds), dtype=bool)
    return float((features @ features.T)[alike].mean()) if alike.any() else np.nan


def pictures(outputs: np.ndarray, kinds: np.ndarray, rows: int, columns: int) -> xr.Dataset:
    """The first samples of the first kinds that have so many, uint8; nothing of other outputs."""
    if outputs.ndim < 4:
        return xr.Dataset()
    found, counts = np.unique(kinds, return_counts=True)
    columns = min(columns, counts.max())
    chosen = found[counts >= columns][:rows]
    shown = np.stack([outputs[np.flatnonzero(kinds == kind)[:columns]] for kind in chosen])
    axes = ("kind", "sample", "row", "column", "channel")
    return xr.Dataset(
        {"pictures": (axes, np.round(255 * shown).astype(np.uint8))}, {"kind": chosen}
    )
