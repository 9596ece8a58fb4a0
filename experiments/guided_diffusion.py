"""Guidance of a text-conditioned diffusion model that was trained here: CV tables 1 and 3.

Batch after batch is drawn from the same noise without guidance, guided in the space of the latents
by Vendi, RKE, truncated Conditional-Vendi and Conditional-RKE, and by Vendi in the space of an
encoder's features. Every guide is swept over its strength, so that methods are compared where they
cost the same alignment with the prompts, not at one weight each. An encoder that was trained on
real pictures judges, and held-out real pictures are what generated ones are held against.

    python -m experiments.guided_diffusion --model=fashion
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from rich.table import Table
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax import bandwidth, report, validation
from experiments import lab
from experiments.data import PairedEmbeddings, pictures
from experiments.data.sets import SEED
from experiments.generators import benches, diffusion, picture_encoder
from experiments.generators.benches import Bench
from experiments.lab import choices, style
from experiments.lab.study import option, positive

REAL, NONE = "real pictures", "none"
OF_FEATURES = "Vendi of features"
METHODS = ("Vendi", "RKE", "Conditional-Vendi", "Conditional-RKE", OF_FEATURES)
SCORES = ("Conditional-Vendi", "Vendi", "Conditional-RKE", "RKE")
# Where methods are compared: what guidance has cost, and how much of it.
COSTS = {
    "1 point of alignment": ("alignment", -1.0),
    "2 points of alignment": ("alignment", -2.0),
    "kernel distance + 2": ("kernel distance", 2.0),
}
_SHOWN_COST = COSTS["2 points of alignment"]  # At most, of the pictures that are drawn.
_SHOWN = 6, 4  # Kinds, and samples of each, whose pictures are kept; fewer if there are.
_STRIPS = 5  # Kinds in a row where the samples of all are shown.
_CALIBRATION = 0xCA1B  # Folded into the seed for the samples that bandwidths are chosen on.
_DIGITS = 3  # Of chosen numbers: what another machine's rounding does not change.


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    model: str = option(
        "fashion",
        "What draws: a trained model of real pictures, or a mixture in closed form.",
        choices=benches.NAMES,
    )
    methods: tuple[str, ...] = option(METHODS, "What guides.", choices=METHODS)
    strengths: tuple[float, ...] = option(
        (0.1, 0.3, 1.0, 3.0, 10.0),
        "How far a guide would move a sample in all, in norms of its latents, were its gradients "
        "those at samples without guidance; a weight for each method follows.",
    )
    seeds: int = option(
        5, "Repetitions with other noise and prompts; they are the units of errors."
    )
    samples: int = option(150, "Samples of each seed.")
    kinds: int = option(50, "Kinds of thing that are asked for in each seed; all if fewer.")
    batch: int = option(50, "Samples that are drawn and guided together.")
    steps: int = option(20, "Calls of the model a sample, by DPM-Solver++(2M).")
    scale: float = option(2.0, "Of classifier-free guidance.")
    every: int = option(4, "Guidance acts at every so many steps.")
    at: str = option("clean", "Where it is evaluated.", choices=diffusion.PLACES)
    window: int = option(300, "Finished pairs that a guide remembers.")
    truncation: int = option(100, "Eigenvalues that the guide Conditional-Vendi keeps.")
    references: int = option(1000, "Real pictures that distances and bandwidths are taken on.")
    rule: str = option(
        "variance",
        "How the bandwidths of the scores are chosen, on real pictures: variance (CV), std (RKE), "
        "median.",
        choices=bandwidth.RULES,
    )
    scales: tuple[float, ...] = option(choices.SCALES, "Multiples of them.")
    mixture: str | None = option(
        None,
        "File .npz with centres [k, 2], spread [] and weights [m, k] of the mixture.",
        needs={"model": benches.MIXTURE},
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the results depend on beside the trained parameters.

    Attributes:
      latents: the bandwidth of the guides' latents.
      features: that of the features, for `OF_FEATURES`.
      prompts: that of the guides' prompts.
      weights: of each method at each strength, CV eq. 14.
      bandwidths: of the scores, by their multiple.
    """

    model: str
    seeds: int
    samples: int
    kinds: int
    batch: int
    steps: int
    scale: float
    every: int
    at: str
    window: int
    truncation: int
    references: int
    latents: float
    features: float
    prompts: float
    strengths: tuple[float, ...]
    weights: dict[str, tuple[float, ...]]
    bandwidths: dict[str, choices.Bandwidths]
    best: int
    judged: str
    words: str

    @property
    def base(self) -> str:
        """The bandwidths that are drawn where only some are."""
        return choices.shown(self.bandwidths)


@dataclasses.dataclass(frozen=True)
class Cell:
    """What guides, and how strongly; 0 for what is not guided."""

    method: str
    strength: float


@dataclasses.dataclass(frozen=True)
class Judged:
    """What was found of the samples of every seed.

    Attributes:
      alignment: percent whose kind is the judge's first, and among its best, `[seeds, 2]`.
      distance: kernel distance to real pictures x 100, `[seeds]`.
      scores: by bandwidths and `SCORES`, `[seeds, scales, 4]`.
      similarity: mean cosine of the features of two samples of one kind x 100, `[seeds]`.
      seconds: that sampling took, `[seeds]`; 0 for real pictures.
      skipped: latents that a guide did not move since something was not finite.
      pictures: samples of the first seed, uint8 `[kinds, samples, side, side, channels]`, of all
        kinds where nothing guides; empty where outputs are no pictures.
      shown: the kinds of the pictures, `[kinds]`.
    """

    alignment: np.ndarray
    distance: np.ndarray
    scores: np.ndarray
    similarity: np.ndarray
    seconds: np.ndarray
    skipped: int
    pictures: np.ndarray
    shown: np.ndarray


# --- guides ----------------------------------------------------------------------------------


def guide_of(
    method: str, settings: Settings, bench: Bench, weight: Any
) -> optax.GradientTransformationExtraArgs | None:
    """The guide of a method; None for none."""
    if method == NONE:
        return None
    width = settings.features if method == OF_FEATURES else settings.latents
    options: dict[str, Any] = {"output_kernel": cv.Gaussian(width), "window": settings.window}
    if method.startswith("Conditional"):
        options["prompt_kernel"] = cv.Gaussian(settings.prompts)
        options["prompt_size"] = bench.prompts.shape[-1]
    if method == "RKE":
        score = cv.guidance.rke(**options)
    elif method == "Conditional-RKE":
        score = cv.guidance.conditional_rke(**options)
    elif method == "Conditional-Vendi":
        score = cv.guidance.conditional_vendi(**options, truncation=settings.truncation)
    else:
        score = cv.guidance.vendi(**options)
    guide = optax.chain(score, optax.scale(weight))
    if method == OF_FEATURES:
        guide = pulled_back(guide, lambda latents: bench.features(bench.model.decode(latents)))
    return optax.conditionally_mask(
        guide, lambda step, **_: jnp.asarray(step) % settings.every == 0
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


# --- preparing -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class State:
    """What cells are computed with: the bench and the compiled samplers of its methods."""

    bench: Bench
    samplers: Mapping[str, Callable[..., Any]]


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Reads the models, and chooses bandwidths and weights before anything is guided."""
    _check(options)
    bench = benches.load(options.model, options.mixture)
    spare = len(bench.real) - options.samples
    if options.references > spare:
        raise ValueError(
            f"--references: expected at most {spare} of {len(bench.real)} real outputs beside "
            f"--samples={options.samples}, received {options.references}."
        )
    scored = choices.ScaledOptions(rule=options.rule, scales=options.scales)
    reference = bench.real.rows(_references(bench, options.references)[0])
    bandwidths = choices.choose_scaled(reference, scored, seed)
    widths = bandwidths[choices.shown(bandwidths)]
    assert widths.prompts is not None
    settings = Settings(
        **{
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(Options)
            if field.name in {f.name for f in dataclasses.fields(Settings)} - {"kinds"}
        },
        kinds=min(options.kinds, len(bench.names)),
        latents=1.0,
        features=1.0,
        prompts=_rounded(widths.prompts),
        weights={method: tuple(options.strengths) for method in options.methods},
        bandwidths=bandwidths,
        best=bench.best,
        judged=bench.judged,
        words=bench.words,
    )
    settings = _calibrated(settings, bench, seed)
    arrays = {
        name: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        for name, tree in bench.params.items()
    }
    arrays |= {"prompts of kinds": bench.prompts, **bench.real.arrays}
    samplers = {name: sampler(name, settings, bench) for name in (NONE, *options.methods)}
    return lab.Setup(settings, arrays, state=State(bench, samplers))


def _check(options: Options) -> None:
    for name in ("seeds", "samples", "kinds", "batch", "steps", "every", "truncation"):
        least = {"seeds": 2, "samples": 2, "batch": 2}.get(name, 1)
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=least)
    validation.check_count(options.window, name="--window", minimum=0)
    validation.check_count(options.references, name="--references", minimum=40)
    for strength in options.strengths:
        positive(strength, name="strengths")
    positive(options.scale, name="scale")
    for name in ("methods", "strengths"):
        if len(set(given := getattr(options, name))) < len(given):
            raise ValueError(f"--{name}: one is given twice in {', '.join(map(str, given))}.")
    if options.samples % options.batch:
        raise ValueError(
            f"--samples: expected a multiple of --batch={options.batch}, received "
            f"{options.samples}."
        )
    if options.samples < 2 * options.batch:
        raise ValueError(
            f"--samples: expected at least two batches of {options.batch}, received "
            f"{options.samples}."
        )


def _references(bench: Bench, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the real outputs that others are held against, and the rest."""
    order = np.random.default_rng(SEED).permutation(len(bench.real))
    return order[:count], order[count:]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def asked(settings: Settings, bench: Bench, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """What a seed asks for: kinds `[samples]` and prompts `[samples, p]`, in random order.

    Each of some random kinds as often, in random wordings.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chosen = rng.permutation(len(bench.names))[: settings.kinds]
    kinds = rng.permutation(np.resize(chosen, settings.samples))
    words = rng.integers(bench.prompts.shape[1], size=settings.samples)
    return kinds, bench.prompts[kinds, words].astype(np.float32)


def sampler(method: str, settings: Settings, bench: Bench) -> Callable[..., Any]:
    """A compiled `(denoise, key, prompts [n, p], weight) -> latents [n, ...], skipped`."""

    def draw(
        denoise: diffusion.Denoiser, key: jax.Array, prompts: jax.Array, weight: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        guide = guide_of(method, settings, bench, weight)
        latents, state = diffusion.sample_batches(
            diffusion.guided(denoise, bench.model.unconditional, settings.scale),
            key,
            prompts.reshape(-1, settings.batch, prompts.shape[1]),
            shape=bench.model.shape,
            steps=settings.steps,
            solver="dpm2",
            guide=guide,
            remember=remember_of(method, bench),
            at=settings.at,
        )
        skipped = 0 if guide is None else optax.tree_utils.tree_get(state, "skipped")
        return latents.reshape(-1, *bench.model.shape), jnp.asarray(skipped)

    return jax.jit(draw)


def _calibrated(settings: Settings, bench: Bench, seed: int) -> Settings:
    """Bandwidths and weights of the guides, by samples without guidance of another seed.

    Bandwidths are median distances of latents and of features of one kind. At strength 1 a method's
    weight would move a sample by the norm of its latents in all, if at each of its steps its
    gradient was that at a finished batch with the batches before in memory.
    """
    key = jax.random.fold_in(jax.random.key(seed), _CALIBRATION)
    kinds, prompts = asked(settings, bench, key)
    prompts = jnp.asarray(prompts)
    draw = sampler(NONE, settings, bench)
    latents, _ = draw(bench.model.denoise, key, prompts, jnp.zeros(()))
    found = bench.features(bench.model.decode(latents))
    flat = np.asarray(latents).reshape(len(latents), -1)
    settings = dataclasses.replace(
        settings,
        latents=_rounded(distance_within(flat, kinds)),
        features=_rounded(distance_within(np.asarray(found), kinds)),
    )
    length = np.sqrt(np.mean(np.sum(np.square(flat), axis=1)))
    actions = math.ceil(settings.steps / settings.every)
    weights = {}
    for method in settings.weights:
        moved = np.asarray(_updates(method, settings, bench)(latents, prompts))
        norms = np.sum(np.square(moved.reshape(len(moved), -1)), axis=1)
        if not 0 < np.mean(norms) < np.inf:
            raise ValueError(f"{method}: its gradients at samples without guidance are no guide.")
        whole = length / (actions * np.sqrt(np.mean(norms)))
        weights[method] = tuple(_rounded(whole * strength) for strength in settings.strengths)
    return dataclasses.replace(settings, weights=weights)


def _updates(method: str, settings: Settings, bench: Bench) -> Callable[..., jax.Array]:
    """A compiled `(latents [n, ...], prompts [n, p]) -> updates` of the last batch, weight 1."""
    guide: Any = guide_of(method, settings, bench, 1.0)
    assert guide is not None

    def last(latents: jax.Array, prompts: jax.Array) -> jax.Array:
        batch = latents[-settings.batch :], prompts[-settings.batch :]
        before = latents[: -settings.batch], prompts[: -settings.batch]
        state = remember_of(method, bench)(guide.init(batch[0]), *before)
        return guide.update(jnp.zeros_like(batch[0]), state, batch[0], prompts=batch[1])[0]

    return jax.jit(last)


# --- cells -----------------------------------------------------------------------------------


def cells(settings: Settings) -> list[Cell]:
    """Real pictures, samples without guidance, and every method at every strength."""
    swept = [Cell(method, s) for method in settings.weights for s in settings.strengths]
    return [Cell(REAL, 0.0), Cell(NONE, 0.0), *swept]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Judged:
    """What the judge says of a method's samples, the same noise and prompts in every cell."""
    settings: Settings = setup.settings
    bench: Bench = setup.state.bench
    chosen, others = _references(bench, settings.references)
    reference = bench.real.outputs[chosen]
    found, seconds, skipped, kept = [], [], 0, (np.zeros(0, np.uint8), np.zeros(0, np.int64))
    for index in range(settings.seeds):
        context.say(f"seed {index + 1} of {settings.seeds}")
        key = jax.random.fold_in(context.shared_key, index)
        if cell.method == REAL:
            order = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            rows = order.choice(others, settings.samples, replace=False)
            features, prompts = bench.real.outputs[rows], bench.real.prompts[rows]
            kinds = bench.real.labels["kind"][rows]
            seconds.append(0.0)
        else:
            kinds, prompts = asked(settings, bench, key)
            weight = 0.0
            if cell.method != NONE:
                weight = settings.weights[cell.method][settings.strengths.index(cell.strength)]
            draw = setup.state.samplers[cell.method]
            given = bench.model.denoise, key, jnp.asarray(prompts), jnp.asarray(weight)
            started = time.perf_counter()
            latents, left = jax.block_until_ready(draw(*given))
            seconds.append(time.perf_counter() - started)
            skipped += int(left)
            outputs = bench.model.decode(latents)
            features = np.asarray(bench.features(outputs))
            if index == 0:
                rows = settings.kinds if cell.method == NONE else _SHOWN[0]
                kept = _pictures(np.asarray(outputs), kinds, rows)
        found.append(judge(features, prompts, kinds, reference, settings, bench))
    alignment, distances, scores, similar = (np.array(part) for part in zip(*found, strict=True))
    return Judged(
        alignment=alignment,
        distance=distances,
        scores=scores,
        similarity=similar,
        seconds=np.array(seconds),
        skipped=skipped,
        pictures=kept[0],
        shown=kept[1],
    )


def judge(
    features: np.ndarray,
    prompts: np.ndarray,
    kinds: np.ndarray,
    reference: np.ndarray,
    settings: Settings,
    bench: Bench,
) -> tuple[list[float], float, np.ndarray, float]:
    """Alignment, kernel distance, scores and similarity of one seed's samples, as `Judged`."""
    logits = np.asarray(bench.logits(jnp.asarray(features)))
    alignment = [
        100 * float(np.mean(picture_encoder.found_among(logits, kinds, best)))
        for best in (1, settings.best)
    ]
    scores = []
    for widths in settings.bandwidths.values():
        kernels: dict[str, Any] = widths.kernels()
        orders = [cv.decompose(features, prompts, order=order, **kernels) for order in (1.0, 2.0)]
        scores.append([float(v) for of in orders for v in (of.conditional, of.vendi)])
    away = 100 * kernel_distance(features, reference)
    return alignment, away, np.array(scores), 100 * similarity(features, kinds)


def kernel_distance(one: np.ndarray, other: np.ndarray) -> float:
    """The squared maximum mean discrepancy of unit features, without bias: it may be negative.

    With the kernel (x . y / d + 1)^3 of Binkowski et al. (2018) on features of norm sqrt(d), which
    is that of cosines: (cos + 1)^3.

    Args:
      one: `[n, d]`.
      other: `[m, d]`.
    """

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) @ y.T.astype(np.float64) + 1) ** 3

    def within(x: np.ndarray) -> float:
        matrix, n = kernel(x, x), len(x)
        return float((matrix.sum() - np.trace(matrix)) / (n * (n - 1)))

    return within(one) + within(other) - 2 * float(kernel(one, other).mean())


def distance_within(rows: np.ndarray, kinds: np.ndarray) -> float:
    """The median distance of two rows `[n, d]` of one kind."""
    found = [distance.pdist(rows[kinds == kind]) for kind in np.unique(kinds)]
    return float(np.median(np.concatenate(found)))


def similarity(features: np.ndarray, kinds: np.ndarray) -> float:
    """Mean cosine of unit features `[n, d]` over the pairs of different samples of one kind."""
    alike = (kinds[:, None] == kinds[None, :]) & ~np.eye(len(kinds), dtype=bool)
    return float((features @ features.T)[alike].mean()) if alike.any() else np.nan


def _pictures(outputs: np.ndarray, kinds: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The first samples of the first kinds that have so many, and those kinds."""
    if outputs.ndim < 4:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    found, counts = np.unique(kinds, return_counts=True)
    columns = min(_SHOWN[1], counts.max())
    chosen = found[counts >= columns][:rows]
    of = [outputs[np.flatnonzero(kinds == kind)[:columns]] for kind in chosen]
    return np.round(255 * np.stack(of)).astype(np.uint8), chosen


# --- what is made of them --------------------------------------------------------------------


def columns(found: Judged, scale: int) -> dict[str, np.ndarray]:
    """What is compared, by name, each `[seeds]`, with the scores at one of the bandwidths."""
    scores = dict(zip(SCORES, found.scores[:, scale].T, strict=True))
    return {
        "alignment": found.alignment[:, 1],
        "kernel distance": found.distance,
        **scores,
        "similarity": found.similarity,
    }


def swept(run: lab.Run, method: str, scale: int) -> dict[str, np.ndarray]:
    """Paired differences to no guidance, by what is compared, `[strengths, seeds]`."""
    plain = columns(run.results[Cell(NONE, 0.0)], scale)
    guided = [columns(run.results[Cell(method, s)], scale) for s in run.settings.strengths]
    return {name: np.stack([of[name] for of in guided]) - plain[name] for name in plain}


def at_cost(costs: np.ndarray, differences: np.ndarray, cost: float) -> tuple[float, float]:
    """A mean difference where guidance has cost so much, and its standard error.

    Between strengths, from none upwards, both are interpolated linearly up to where the mean cost
    over the seeds first is so high; the error is the jackknife's over the seeds, all of it
    repeated.

    Args:
      costs: paired differences of what is lost, `[strengths, seeds]`.
      differences: of what is asked for, `[strengths, seeds]`.
      cost: how much, with the sign of the costs.

    Returns:
      Both NaN where it never costs so much; the error alone where that hangs on one seed.
    """

    def read(kept: np.ndarray) -> float:
        paid = np.append(0.0, costs[:, kept].mean(axis=1)) / cost
        gained = np.append(0.0, differences[:, kept].mean(axis=1))
        over = np.flatnonzero(paid >= 1)
        if not len(over):
            return np.nan
        after = over[0]
        part = (1 - paid[after - 1]) / (paid[after] - paid[after - 1])
        return float(gained[after - 1] + part * (gained[after] - gained[after - 1]))

    seeds = np.arange(costs.shape[1])
    each = np.array([read(seeds != seed) for seed in seeds])
    error = np.sqrt((len(seeds) - 1) * np.mean(np.square(each - each.mean())))
    return read(seeds >= 0), float(error)


def _sem(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def table(run: lab.Run) -> Table:
    """Means, paired differences to no guidance with standard errors; then at equal alignment."""
    settings: Settings = run.settings
    scale = list(settings.bandwidths).index(settings.base)
    plain = run.results[Cell(NONE, 0.0)]
    names = list(columns(plain, scale))
    grid = Table("guidance", "strength", "weight", *names, "time")
    for cell, found in run.results.items():
        of = columns(found, scale)
        guided = cell.method in settings.weights
        words = [report.with_error(float(v.mean()), _sem(v)) for v in of.values()]
        weight = ""
        if guided:
            minus = swept(run, cell.method, scale)
            at = settings.strengths.index(cell.strength)
            words = [
                f"{of[name].mean():.4g} ({report.with_error(float(d.mean()), _sem(d))})"
                for name, d in ((name, minus[name][at]) for name in names)
            ]
            weight = f"{settings.weights[cell.method][at]:g}"
        ratio = np.median(found.seconds) / np.median(plain.seconds)
        shown = f"{cell.strength:g}" if guided else ""
        last = "" if cell.method == REAL else f"{ratio:.2f}"
        grid.add_row(cell.method, shown, weight, *words, last)
    for words, (name, cost) in COSTS.items():
        for method in settings.weights:
            minus = swept(run, method, scale)
            shown = []
            for other in names:
                value, error = at_cost(minus[name], minus[other], cost)
                if other == name:
                    shown.append("never" if np.isnan(value) else f"{cost:+g}")
                else:
                    shown.append("" if np.isnan(value) else report.with_error(value, error))
            grid.add_row(method, f"at {words}", "", *shown, "")
    return grid


def _colour(method: str) -> str:
    return style.SKY if method == OF_FEATURES else style.score_colour(method)


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Diversity against alignment, gains at equal alignment, and pictures."""
    figures = {"guided_diffusion": _curves(runs), "guided_diffusion_gains": _gains(runs)}
    for run in runs:
        if run.results[Cell(NONE, 0.0)].pictures.size:
            figures[f"guided_diffusion_{run.settings.model}"] = _grid(run)
            figures[f"guided_diffusion_samples_{run.settings.model}"] = _samples(run)
    return figures


# Panels: what is across, and what is up.
_AXES = (
    ("alignment", "Conditional-Vendi"),
    ("kernel distance", "Conditional-Vendi"),
    ("alignment", "Vendi"),
    ("alignment", "similarity"),
)
# How far a panel goes from no guidance, with the sign of a cost.
_FAR = {"alignment": -12.0, "kernel distance": 25.0}
_LABELS = {
    "alignment": "alignment, %",
    "kernel distance": "kernel distance x 100",
    "similarity": "similarity within a kind x 100",
}


def _curves(runs: Sequence[lab.Run]) -> Figure:
    """A row a model; what is bought against what it costs, a line a method."""
    figure, axes = style.panels(len(_AXES) * len(runs), columns=len(_AXES), size=(3.3, 2.9))
    panels = iter(axes)
    for run in runs:
        settings: Settings = run.settings
        scale = list(settings.bandwidths).index(settings.base)
        plain = columns(run.results[Cell(NONE, 0.0)], scale)
        for across, up in _AXES:
            panel, heights = next(panels), []
            start, far = plain[across].mean(), _FAR[across]
            ends = sorted((start - far / 4, start + far))
            for index, method in enumerate(settings.weights):
                x, y = (_path(plain[of], swept(run, method, scale)[of]) for of in (across, up))
                heights.extend(y[0][(x[0] >= ends[0]) & (x[0] <= ends[1])])
                panel.errorbar(
                    x[0],
                    y[0],
                    xerr=x[1],
                    yerr=y[1],
                    color=_colour(method),
                    marker=style.MARKERS[index],
                    elinewidth=0.7,
                    label=method,
                )
            panel.plot(
                start,
                plain[up].mean(),
                color=style.BLACK,
                marker="*",
                markersize=9,
                linestyle="",
                zorder=3,
                label="no guidance",
            )
            room = 0.1 * np.ptp(heights)
            panel.set_ylim(np.min(heights) - room, np.max(heights) + room)
            panel.set_xlim(*ends)
            panel.set(xlabel=_LABELS[across], ylabel=_LABELS.get(up, up), title=settings.model)
    style.legend_above(figure, axes[0], columns=6)
    style.caption(figure, _caption(runs))
    return figure


def _path(plain: np.ndarray, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means from no guidance on, `[1 + strengths]`, and two errors of their differences to it."""
    means = np.append(0.0, differences.mean(axis=1)) + plain.mean()
    return means, 2 * np.append(0.0, [_sem(values) for values in differences])


def _gains(runs: Sequence[lab.Run]) -> Figure:
    """A row a model, a column a multiple of the bandwidths: what equal costs buy."""
    most = max(len(run.settings.bandwidths) for run in runs)
    figure = Figure(figsize=(3.6 * most, 2.5 * len(runs) + 0.8), layout="constrained")
    grid = figure.subplots(len(runs), most, squeeze=False)
    for run, row in zip(runs, grid, strict=True):
        settings: Settings = run.settings
        methods = list(settings.weights)
        for scale, (panel, word) in enumerate(zip(row, settings.bandwidths, strict=False)):
            plain = columns(run.results[Cell(NONE, 0.0)], scale)["Conditional-Vendi"].mean()
            for index, (words, (name, cost)) in enumerate(COSTS.items()):
                found = [
                    at_cost(minus[name], minus["Conditional-Vendi"], cost)
                    for minus in (swept(run, method, scale) for method in methods)
                ]
                values, errors = 100 * np.array(found).T / plain
                panel.errorbar(
                    values,
                    -np.arange(len(methods)) - 0.2 * index,
                    xerr=2 * np.nan_to_num(errors),
                    color=style.CYCLE[index],
                    marker=style.MARKERS[index],
                    linestyle="",
                    capsize=2,
                    label=words,
                )
            panel.axvline(0, color=style.GREY, linewidth=0.8)
            panel.set_yticks(-np.arange(len(methods)) - 0.2, methods)
            panel.set(title=f"{settings.model}, {word} x bandwidths", ylim=(-len(methods), 0.5))
            panel.set_xlabel("gain in Conditional-Vendi, %")
            panel.tick_params(labelleft=not scale)
        for panel in row[len(settings.bandwidths) :]:
            panel.remove()
    style.legend_above(figure, grid[0, 0])
    bars = (
        "Where guidance has cost so much, interpolated between strengths; bars are two standard "
        "errors by the jackknife over the seeds, and there is no mark where it never costs so much"
    )
    style.caption(figure, _caption(runs, bars))
    return figure


def _names(run: lab.Run, kinds: np.ndarray) -> np.ndarray:
    """Of kinds of the model's collection."""
    return pictures.COLLECTIONS[run.settings.model].prompts().names[kinds]


def _samples(run: lab.Run) -> Figure:
    """What the model draws by itself: a strip a kind, its samples side by side."""
    settings: Settings = run.settings
    plain = run.results[Cell(NONE, 0.0)]
    kinds, draws = plain.pictures.shape[:2]
    size = 0.55 * draws, 0.75
    figure, panels = style.panels(kinds, columns=min(kinds, _STRIPS), size=size)
    for panel, name, strip in zip(panels, _names(run, plain.shown), plain.pictures, strict=True):
        panel.imshow(np.concatenate(list(strip), axis=1).squeeze(), cmap="gray", vmin=0, vmax=255)
        panel.set_axis_off()
        panel.set_title(textwrap.shorten(str(name), 9 * draws, placeholder=" ..."), fontsize=7)
    words = [
        f"{settings.words}: without guidance, the first samples of the first of {settings.seeds} "
        f"seeds, {settings.steps} steps of DPM-Solver++(2M), classifier-free guidance "
        f"{settings.scale:g}",
        f"{settings.judged.capitalize()}: {plain.alignment[:, 1].mean():.1f}%; kernel distance x "
        f"100 to {settings.references:,} real pictures: {plain.distance.mean():.1f}",
        f"Seed {run.seed}",
    ]
    style.caption(figure, ". ".join(words) + ".")
    return figure


def _grid(run: lab.Run) -> Figure:
    """A row a method, a column a sample: the same noise and prompt down a column."""
    settings: Settings = run.settings
    plain = run.results[Cell(NONE, 0.0)]
    rows = {"no guidance": plain.pictures[: _SHOWN[0]]}
    middle = settings.strengths[len(settings.strengths) // 2]
    for method in settings.weights:
        for strength in sorted({comparable(run, method), middle}):
            rows[f"{method}, {strength:g}"] = run.results[Cell(method, strength)].pictures
    kinds, draws = rows["no guidance"].shape[:2]
    figure = Figure(
        figsize=(0.5 * kinds * draws + 1.6, 0.5 * len(rows) + 1.3), layout="constrained"
    )
    grid = figure.subplots(len(rows), kinds * draws, squeeze=False)
    for column, name in enumerate(_names(run, plain.shown[:kinds])):
        words = textwrap.fill(str(name), 5 * draws)  # No wider than its pictures.
        grid[0, column * draws].set_title(words, loc="left", fontsize=7)
    for panels, (word, shown) in zip(grid, rows.items(), strict=True):
        flat = shown.reshape(-1, *shown.shape[2:])
        for panel, picture in zip(panels, flat, strict=True):
            panel.imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255)
            panel.set(xticks=[], yticks=[])
            for spine in panel.spines.values():
                spine.set_visible(False)
        panels[0].set_ylabel(word, rotation=0, ha="right", va="center", fontsize=7)
    style.caption(
        figure,
        _caption(
            [run],
            "Down a column the same prompt and the same noise, the first of the first seed; each "
            f"method at the largest strength that cost at most {-_SHOWN_COST[1]:g} points of "
            f"alignment, or at its smallest, and at {middle:g}",
        ),
    )
    return figure


def comparable(run: lab.Run, method: str) -> float:
    """The largest strength that costs at most `_SHOWN_COST`, or the smallest."""
    name, cost = _SHOWN_COST
    paid = swept(run, method, 0)[name].mean(axis=1) / cost
    strengths = np.array(run.settings.strengths)
    few = strengths[paid <= 1]
    return float(few.max() if len(few) else strengths.min())


def _caption(
    runs: Sequence[lab.Run],
    bars: str = "Bars are two standard errors of paired differences to no guidance over the seeds; "
    "lines go on beyond the panels",
) -> str:
    """What is drawn, how it is guided and judged, n, bandwidths with their rule, and seed."""
    words = [bars]
    for run in runs:
        own: Settings = run.settings
        base = own.bandwidths[own.base]
        words.append(
            f"{own.words}: {own.seeds} seeds of {own.samples} samples of {own.kinds} kinds, "
            f"{own.steps} steps of DPM-Solver++(2M), classifier-free guidance {own.scale:g}; "
            f"alignment is {own.judged}; guides act every {own.every} steps at bandwidths "
            f"{own.latents:g} (latents), {own.prompts:g} (prompts) and {own.features:g} "
            f"(features, the judge's own), window {own.window}; scores on features of "
            f"{own.samples} samples at {base.outputs:.3g} and {base.prompts:.3g}"
        )
    rules = choices.describe(runs[0].settings.bandwidths)
    words.append(f"{rules}, on {runs[0].settings.references:,} real pictures")
    return ". ".join(filter(None, [*words, f"Seed {runs[0].seed}"])) + "."


STUDY = lab.StudyRecord(
    name="guided_diffusion",
    version=1,
    question="What does guidance add to the diversity of generated pictures, at which cost?",
    reproduces="CV tables 1, 3; figs 7, 9, 10",
    duration="5 minutes a model",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Judged,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    variant=lambda options: options.model,
    committed=((), ("--model=emoji",)),
    figures=(
        "guided_diffusion",
        "guided_diffusion_gains",
        "guided_diffusion_fashion",
        "guided_diffusion_emoji",
        "guided_diffusion_samples_fashion",
        "guided_diffusion_samples_emoji",
    ),
    data=None,
)


if __name__ == "__main__":
    lab.main(STUDY)
