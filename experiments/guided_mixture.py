"""Guidance where the truth is known: a diffusion on mixtures in the plane, four kinds of guide.

Each prompt's law is a mixture that prefers one of its components, and the sampler knows its score
in closed form. Guided by Vendi, RKE and their conditional forms at ever larger weights: how many
components a prompt's samples then have, and how far they are from the law that they should have.

    python -m experiments.guided_mixture --kinds=rke,conditional_rke
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.generators import diffusion, mixture_diffusion
from experiments.generators.mixture_diffusion import PromptedMixture
from experiments.lab import choices, style
from experiments.lab.study import option, positive

KINDS = {
    "vendi": "Vendi",
    "conditional_vendi": "Conditional-Vendi",
    "rke": "RKE",
    "conditional_rke": "Conditional-RKE",
}
LAW, PLAIN = "law", "plain"
_NAMES = KINDS | {LAW: "the law itself", PLAIN: "no guidance"}
_RULED = 2000  # Samples of the law that the bandwidths are chosen on.
_SHOWN = 240  # Samples a panel.
_WORDS = {
    "modes": "modes of a prompt",
    **KINDS,
    "energy": "energy distance to the law",
    "off": "share off the support",
    "variation": "total variation",
}
SCORES = tuple(_WORDS)
"""What is found of a set of samples, in the order of `Found.scores`."""


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    mixtures: tuple[str, ...] = option(
        tuple(mixture_diffusion.MIXTURES),
        "Mixtures whose components all prompts share, or whose prompts are apart.",
        choices=mixture_diffusion.MIXTURES,
    )
    law: str | None = option(
        None,
        "A JSON file of a mixture of your own in their place: centres [k, 2], spread, weights "
        "[prompts, k].",
    )
    kinds: tuple[str, ...] = option(tuple(KINDS), "The guides.", choices=KINDS)
    weights: tuple[float, ...] = option(
        (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0), "Weights of the guides, ascending."
    )
    until: tuple[float, ...] = option(
        (0.5, 1.0), "Parts of the steps, from the first one on, in which the guide acts."
    )
    at: str = option(
        "clean",
        "Where the gradient is taken: at the predicted clean samples, or at the noisy ones as "
        "printed in CV eq. 14.",
        choices=diffusion.PLACES,
    )
    seeds: int = option(5, "Repetitions, each from noise of its own, the same for every guide.")
    batches: int = option(12, "Batches one after another in each.")
    copies: int = option(4, "Samples of every prompt in a batch.")
    window: int = option(48, "Finished samples that the guide remembers.")
    truncation: int = option(36, "Eigenvalues that Conditional-Vendi keeps as a guide.")
    steps: int = option(12, "Steps of the sampler.")
    solver: str = option("dpm2", "The sampler.", choices=diffusion.SOLVERS)
    limit: float = option(
        0.05, "The share of samples off their prompt's support at which guides are compared."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on; bandwidths of each mixture by the scale as a word."""

    bandwidths: dict[str, dict[str, choices.Bandwidths]]
    kinds: tuple[str, ...]
    weights: tuple[float, ...]
    until: tuple[float, ...]
    at: str
    seeds: int
    batches: int
    copies: int
    window: int
    truncation: int
    steps: int
    solver: str
    limit: float


@dataclasses.dataclass(frozen=True)
class Cell:
    """A mixture, the scale of the bandwidths, a kind of guide or none, and when it acts."""

    mixture: str
    scale: str
    kind: str
    until: float


@dataclasses.dataclass(frozen=True)
class Found:
    """What was found of the samples of every weight and seed.

    Attributes:
      scores: `[weights, seeds, scores]`, in the order of SCORES: the modes of a prompt, the four
        scores, the energy distance to the law in units of the plane, the share off the support, and
        the total variation of the components' shares. Without a guide there is one weight.
      shown: the first samples of the first seed, float16 `[weights, shown, 2]`.
      prompts: theirs, `[shown]`.
    """

    scores: np.ndarray
    shown: np.ndarray
    prompts: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, and chooses the bandwidths on samples of the law."""
    for name in ("seeds", "batches", "steps", "truncation"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=1)
    # Modes of a prompt and energy distances are of pairs of different samples.
    validation.check_count(options.copies, name="--copies", minimum=2)
    validation.check_count(options.window, name="--window", minimum=0)
    for name in ("weights", "until"):
        given = [positive(value, name=name) for value in getattr(options, name)]
        if given != sorted(set(given)):
            raise ValueError(f"--{name}: expected ascending numbers, received {_listed(given)}.")
    if options.until[-1] > 1:
        raise ValueError(f"--until: expected parts up to 1, received {options.until[-1]:g}.")
    if not 0 < options.limit < 1:
        raise ValueError(f"--limit: expected a number between 0 and 1, received {options.limit}.")
    for name in ("mixtures", "kinds"):
        if len(set(given := getattr(options, name))) < len(given):
            raise ValueError(f"--{name}: one is given twice in {', '.join(given)}.")
    mixtures = _mixtures(options)
    settings = Settings(
        bandwidths={
            name: choices.choose_scaled(_of_law(name, mixture, seed), options, seed)
            for name, mixture in mixtures.items()
        },
        kinds=options.kinds,
        weights=options.weights,
        until=options.until,
        at=options.at,
        seeds=options.seeds,
        batches=options.batches,
        copies=options.copies,
        window=options.window,
        truncation=options.truncation,
        steps=options.steps,
        solver=options.solver,
        limit=options.limit,
    )
    arrays = {
        f"{name} {part}": np.asarray(array)
        for name, mixture in mixtures.items()
        for part, array in mixture._asdict().items()
    }
    return lab.Setup(settings, arrays, state=mixtures)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _mixtures(options: Options) -> dict[str, PromptedMixture]:
    """The mixtures by name, that of a user's file as 'given'."""
    if options.law is None:
        return {name: mixture_diffusion.MIXTURES[name]() for name in options.mixtures}
    if options.mixtures != Options.mixtures:
        raise ValueError("--mixtures and --law: give one or the other.")
    try:
        read = json.loads(pathlib.Path(options.law).read_text(encoding="utf-8"))
        return {"given": mixture_diffusion.mixture(**read)}
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"--law: {options.law}: expected centres [k, 2], spread and weights [prompts, k] "
            f"({error})."
        ) from error


def _of_law(name: str, mixture: PromptedMixture, seed: int) -> PairedEmbeddings:
    """Pairs of the law, of every prompt equally many."""
    copies = -(-_RULED // len(mixture.weights))
    prompts = jnp.repeat(mixture.prompts, copies, axis=0)
    outputs = mixture.sample(jax.random.key(seed), prompts)
    return PairedEmbeddings(name, np.asarray(outputs), np.asarray(prompts), "")


def cells(settings: Settings) -> list[Cell]:
    """The law and the sampler by itself, then every guide."""
    return [
        Cell(mixture, scale, kind, until)
        for mixture, bandwidths in settings.bandwidths.items()
        for scale in bandwidths
        for kind in (LAW, PLAIN, *settings.kinds)
        for until in (settings.until if kind in KINDS else (0.0,))
    ]


@functools.partial(jax.jit, static_argnames=("kind", "stop", "settings"))
def _draw(
    mixture: PromptedMixture,
    key: jax.Array,
    kernels: Mapping[str, Any],
    weight: jax.Array,
    *,
    kind: str,
    stop: int,
    settings: _Sampling,
) -> jax.Array:
    """Samples of every prompt, `[prompts, n, 2]`: the batches in order within each."""
    count = len(mixture.weights)
    batch = jnp.repeat(mixture.prompts, settings.copies, axis=0)
    prompts = jnp.tile(batch[None], (settings.batches, 1, 1))
    if kind == LAW:
        points = mixture.sample(key, prompts.reshape(-1, count))
    else:
        guide = None if kind == PLAIN else _guide(kind, kernels, weight, stop, count, settings)
        points, _ = diffusion.sample_batches(
            mixture.denoise,
            key,
            prompts,
            shape=(2,),
            steps=settings.steps,
            solver=settings.solver,
            guide=guide,
            at=settings.at,
        )
    by_prompt = points.reshape(settings.batches, count, settings.copies, 2).swapaxes(0, 1)
    return by_prompt.reshape(count, -1, 2)


@dataclasses.dataclass(frozen=True)
class _Sampling:
    """What is static in the sampling of a cell, so that cells share a compiled program."""

    at: str
    batches: int
    copies: int
    window: int
    truncation: int
    steps: int
    solver: str

    @classmethod
    def of(cls, settings: Settings) -> _Sampling:
        return cls(
            **{field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)}
        )


def _guide(
    kind: str,
    kernels: Mapping[str, Any],
    weight: jax.Array,
    stop: int,
    prompt_size: int,
    settings: _Sampling,
) -> optax.GradientTransformationExtraArgs:
    """The weighted gradient of a score in the first `stop` steps."""
    options: dict[str, Any] = {"output_kernel": kernels["output_kernel"]}
    if kind.startswith("conditional"):
        options |= {"prompt_kernel": kernels["prompt_kernel"], "prompt_size": prompt_size}
    if kind == "conditional_vendi":
        options["truncation"] = settings.truncation
    score = getattr(cv.guidance, kind)(**options, window=settings.window)
    weighted = optax.chain(score, optax.scale(weight))
    return optax.conditionally_mask(weighted, lambda step, **_: jnp.asarray(step) < stop)


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Found:
    """Samples at every weight with the same noise, and what is found of them."""
    settings: Settings = setup.settings
    mixture: PromptedMixture = setup.state[cell.mixture]
    kernels = settings.bandwidths[cell.mixture][cell.scale].kernels()
    draw = functools.partial(
        _draw,
        mixture,
        kernels=kernels,
        kind=cell.kind,
        stop=max(1, round(cell.until * settings.steps)),
        settings=_Sampling.of(settings),
    )
    keys = [jax.random.fold_in(context.shared_key, seed) for seed in range(settings.seeds)]
    scores, shown = [], []
    for weight in settings.weights if cell.kind in KINDS else (0.0,):
        context.say(f"weight {weight:g}")
        points = [np.asarray(draw(key=key, weight=jnp.asarray(weight))) for key in keys]
        scores.append([measured(mixture, of, kernels) for of in points])
        every = -(-_SHOWN // len(mixture.weights))
        shown.append(points[0][:, :every].reshape(-1, 2).astype(np.float16))
    return Found(
        scores=np.array(scores),
        shown=np.stack(shown),
        prompts=np.repeat(np.arange(len(mixture.weights)), len(shown[0]) // len(mixture.weights)),
    )


def measured(
    mixture: PromptedMixture, points: np.ndarray, kernels: Mapping[str, Any]
) -> np.ndarray:
    """What SCORES names, of samples of every prompt.

    The modes of a prompt are one over the share of pairs of one prompt's samples on the support
    that share a component: what Conditional-RKE tends to for narrow components far apart. RKE and
    Conditional-RKE are those of the samples' law, without bias but for the ratio; the scores of
    order 1 are those of the samples.

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
    found = {
        "modes": pairs / meeting if meeting > 0 else np.nan,
        "vendi": spectral.vendi,
        "conditional_vendi": spectral.conditional,
        "rke": m**2 / of_outputs.sum(),
        "conditional_rke": of_prompts.sum() / np.sum(of_prompts * of_outputs),
        "energy": np.mean(
            [mixture.energy_distance(of, prompt) for prompt, of in enumerate(points)]
        ),
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


def score_of(run: lab.Run, cell: Cell, score: str) -> np.ndarray:
    """One score at every weight and seed, `[weights, seeds]`."""
    return run.results[cell].scores[:, :, SCORES.index(score)]


def at_limit(run: lab.Run, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """A guide's scores where `limit` of the samples are off the support, or at the last weight.

    Weights run from none on; between two of them values are interpolated linearly, weights too.

    Returns:
      Weights `[seeds]` and scores `[seeds, scores]`.
    """
    settings: Settings = run.settings
    plain = run.results[Cell(cell.mixture, cell.scale, PLAIN, 0.0)].scores
    path = np.concatenate([plain, run.results[cell].scores])
    weights = np.array([0.0, *settings.weights])
    found = []
    for values in path.swapaxes(0, 1):
        off = values[:, SCORES.index("off")]
        beyond = np.flatnonzero(off > settings.limit)
        last = beyond[0] if beyond.size else len(off) - 1
        part = (settings.limit - off[last - 1]) / (off[last] - off[last - 1]) if beyond.size else 1
        whole = np.column_stack([weights, values])
        found.append(
            whole[max(last - 1, 0)] * (1 - part) + whole[last] * part if last else whole[0]
        )
    return np.array(found)[:, 0], np.array(found)[:, 1:]


def table(run: lab.Run) -> Table:
    """Guides at the same share off the support: means and standard errors over the seeds."""
    settings: Settings = run.settings
    names = "modes", "conditional_rke", "conditional_vendi", "energy", "variation"
    heads = [_WORDS[name] for name in names]
    grid = Table("mixture", "bandwidths", "guide", "steps", "weight", "off", *heads)

    def add(mixture: str, scale: str, words: str, way: Sequence[str], values: np.ndarray) -> None:
        off = f"{values[:, SCORES.index('off')].mean():.1%}"
        found = (_with_error(values[:, SCORES.index(name)]) for name in names)
        grid.add_row(mixture, scale, words, *way, off, *found)

    for mixture, bandwidths in settings.bandwidths.items():
        for scale in bandwidths:
            for kind in (LAW, PLAIN):
                values = run.results[Cell(mixture, scale, kind, 0.0)].scores[0]
                add(mixture, scale, _NAMES[kind], ("", ""), values)
            for kind in settings.kinds:
                for until in settings.until:
                    weights, values = at_limit(run, Cell(mixture, scale, kind, until))
                    way = f"{until:.0%}", _with_error(weights)
                    add(mixture, scale, KINDS[kind], way, values)
            for conditional, marginal, until, values in differences(run, mixture, scale):
                words = f"{KINDS[conditional]} less {KINDS[marginal]}"
                add(mixture, scale, words, (f"{until:.0%}", ""), values)
    return grid


def differences(run: lab.Run, mixture: str, scale: str) -> list[tuple[str, str, float, np.ndarray]]:
    """Conditional guides less the marginal ones at the limit, seed by seed, `[seeds, scores]`."""
    settings: Settings = run.settings
    found = []
    for marginal in ("vendi", "rke"):
        conditional = f"conditional_{marginal}"
        if {marginal, conditional} <= set(settings.kinds):
            for until in settings.until:
                pair = (Cell(mixture, scale, kind, until) for kind in (conditional, marginal))
                first, second = (at_limit(run, cell)[1] for cell in pair)
                found.append((conditional, marginal, until, first - second))
    return found


def _with_error(values: np.ndarray) -> str:
    """Mean and standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return report.with_error(float(np.mean(values)), float(error))


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The samples, modes against what is off the support, and everything against the weight."""
    figures = {}
    for run in runs:
        name = run.folder.name.replace("-", "_")
        figures[name] = _samples(run)
        figures[f"{name}_curves"] = _curves(run)
        figures[f"{name}_weights"] = _weights(run)
    return figures


def _middle(run: lab.Run, mixture: str) -> str:
    """The scale that is drawn where only one is."""
    scales = list(run.settings.bandwidths[mixture])
    return "1" if "1" in scales else scales[0]


def _samples(run: lab.Run) -> Figure:
    """The law, plain samples, and each guide at the largest weight within the limit."""
    settings: Settings = run.settings
    kinds = (LAW, PLAIN, *settings.kinds)
    figure, axes = style.panels(
        len(kinds) * len(settings.bandwidths), columns=len(kinds), size=(2.2, 2.6)
    )
    panels = iter(axes)
    for mixture in settings.bandwidths:
        scale = _middle(run, mixture)
        law = run.results[Cell(mixture, scale, LAW, 0.0)].shown[0].astype(float)
        reach = 1.35 * np.abs(law).max()
        for kind, panel in zip(kinds, panels, strict=False):
            until = settings.until[0] if kind in KINDS else 0.0
            cell = Cell(mixture, scale, kind, until)
            found, index = run.results[cell], 0
            words = _NAMES[kind]
            if kind in KINDS:
                within = score_of(run, cell, "off").mean(axis=1) <= settings.limit
                index = max(int(np.argmin(within)) - 1, 0) if not within.all() else -1
                words += f", weight {settings.weights[index]:g}"
            colours = np.array(style.CYCLE)[found.prompts % len(style.CYCLE)]
            panel.scatter(*found.shown[index].T, s=3, c=colours.tolist(), linewidths=0)
            modes, off = (score_of(run, cell, name)[index].mean() for name in ("modes", "off"))
            panel.set_title(f"{words}\n{modes:.2f} modes a prompt\n{off:.1%} off the support")
            panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            panel.set(xticks=[], yticks=[])
            panel.grid(visible=False)
    style.caption(
        figure,
        f"The first samples of the first seed; colour: the prompt. Rows: {_row_words(run)}. Guides "
        f"act in the first {settings.until[0]:.0%} of the steps, at the largest weight that leaves "
        f"at most {settings.limit:.0%} of the samples off the support. {_caption(run)}",
    )
    return figure


def _curves(run: lab.Run) -> Figure:
    """Modes of a prompt against the share off the support: rows of mixtures, columns of scales."""
    settings: Settings = run.settings
    scales, rows = max(map(len, settings.bandwidths.values())), len(settings.bandwidths)
    columns = scales if scales > 1 else rows
    figure, axes = style.panels(
        scales * rows, columns=columns, size=(3.6, 2.9), sharey="row" if scales > 1 else "none"
    )
    panels = iter(axes)
    for mixture, bandwidths in settings.bandwidths.items():
        for (scale, widths), panel in zip(bandwidths.items(), panels, strict=False):
            plain = Cell(mixture, scale, PLAIN, 0.0)
            for kind in settings.kinds:
                for until in settings.until:
                    cell = Cell(mixture, scale, kind, until)
                    x, y = (
                        np.concatenate([found(run, plain), found(run, cell)])
                        for found in (functools.partial(score_of, score="off"), _modes)
                    )
                    _line(panel, 100 * x.mean(axis=1), y, kind, until, settings)
            law = Cell(mixture, scale, LAW, 0.0)
            panel.axhline(score_of(run, law, "modes").mean(), color=style.GREY, linewidth=0.8)
            panel.axvline(100 * settings.limit, color=style.GREY, linewidth=0.8, linestyle=":")
            panel.set_title(f"{mixture}, {_words(scale, widths)}")
            panel.set(xlabel="off the support, %", ylabel=_WORDS["modes"], xlim=(0, 50))
    style.legend_above(figure, axes[0], columns=4 if columns > 2 else 2)
    style.caption(
        figure,
        f"Each line from no guidance on, with the weights {_listed(settings.weights)}, up to half "
        f"of the samples off the support: means and standard errors over {settings.seeds} seeds. "
        "Dashed: the guide acts in a part of the steps. Grey: the modes of the law, and the share "
        f"off the support at which guides are compared. {_row_words(run)}. {_caption(run)}",
    )
    return figure


def _weights(run: lab.Run) -> Figure:
    """Diversity and distances to the law against the weight, at one scale; rows of mixtures."""
    settings: Settings = run.settings
    shown = "modes", "conditional_rke", "energy", "off"
    figure, axes = style.panels(
        len(shown) * len(settings.bandwidths), columns=len(shown), size=(2.9, 2.7)
    )
    panels = iter(axes)
    for mixture in settings.bandwidths:
        scale = _middle(run, mixture)
        for name, panel in zip(shown, panels, strict=False):
            for kind in settings.kinds:
                for until in settings.until:
                    cell = Cell(mixture, scale, kind, until)
                    y = _modes(run, cell) if name == "modes" else score_of(run, cell, name)
                    _line(panel, np.array(settings.weights), y, kind, until, settings)
            for kind, look in ((LAW, "-"), (PLAIN, ":")):
                value = score_of(run, Cell(mixture, scale, kind, 0.0), name).mean()
                panel.axhline(value, color=style.GREY, linewidth=0.8, linestyle=look)
            panel.set_xscale("log")
            style.log_numbers(panel.xaxis)
            panel.set(xlabel="weight", ylabel=_WORDS[name], title=mixture)
            if name == "energy":
                panel.set_yscale("symlog", linthresh=0.1)
                panel.set_ylim(-0.05, None)
            if name == "conditional_rke":
                panel.set_yscale("log")
                style.log_numbers(panel.yaxis)
    style.legend_above(figure, axes[0], columns=4)
    style.caption(
        figure,
        f"Means and standard errors over {settings.seeds} seeds, from the same noise for every "
        "guide; modes where at most half of the samples are off the support. Dashed: the guide "
        "acts in a part of the steps. Grey: as many samples of the law (whole), and no guidance "
        f"(dotted). {_row_words(run)}. {_caption(run)}",
    )
    return figure


def _modes(run: lab.Run, cell: Cell) -> np.ndarray:
    """Modes of a prompt, `[weights, seeds]`; NaN where more than half of the samples are off."""
    return np.where(score_of(run, cell, "off") > 0.5, np.nan, score_of(run, cell, "modes"))


def _line(
    panel: Axes, x: np.ndarray, y: np.ndarray, kind: str, until: float, settings: Settings
) -> None:
    """Means with standard errors; dashed where the guide acts in a part of the steps."""
    error = y.std(axis=1, ddof=1) / np.sqrt(y.shape[1]) if y.shape[1] > 1 else None
    panel.errorbar(
        x,
        y.mean(axis=1),
        error,
        color=style.score_colour(KINDS[kind]),
        marker=style.MARKERS[list(KINDS).index(kind)],
        linestyle="-" if until == 1 else "--",
        capsize=2,
        label=f"{KINDS[kind]}, {until:.0%} of the steps",
    )


def _words(scale: str, widths: choices.Bandwidths) -> str:
    if widths.outputs is None:
        return "cosine kernel"
    return f"bandwidths {widths.outputs:.3g}, {widths.prompts:.3g} (x {scale})"


def _row_words(run: lab.Run) -> str:
    """What the mixtures are."""
    known = {
        "shared": "shared: all prompts have the same components, each prefers another",
        "apart": "apart: each prompt has components of its own and prefers one",
        "given": "given: a mixture of a file",
    }
    return "; ".join(known[mixture] for mixture in run.settings.bandwidths)


def _caption(run: lab.Run) -> str:
    """How the samples were made, and which bandwidths and seed."""
    settings: Settings = run.settings
    rules = choices.describe(
        {scale: b for of in settings.bandwidths.values() for scale, b in of.items()}
    )
    kept = f"; Conditional-Vendi guides with t = {settings.truncation}"
    words = [
        f"{settings.batches} batches of {settings.copies} samples a prompt and seed, window "
        f"{settings.window}, {settings.steps} steps of {settings.solver}, gradient at the "
        f"{settings.at} samples{kept if 'conditional_vendi' in settings.kinds else ''}. Off the "
        "support: more than 3 sd from every component of the prompt",
        rules,
        f"Seed {run.seed}",
    ]
    return ". ".join(filter(None, words)) + "."


def variant(options: Options) -> str:
    """'noisy' where the gradient is taken as printed."""
    return "" if options.at == Options.at else options.at


STUDY = lab.StudyRecord(
    name="guided_mixture",
    version=1,
    question="What do guided samplers gain and lose where the true law is known?",
    reproduces="CV section 6 (eq. 14)",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Found,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    variant=variant,
    committed=((), ("--at=noisy", "--kinds=rke,conditional_rke", "--scales=1")),
    figures=tuple(
        f"guided_mixture{at}{what}" for at in ("", "_noisy") for what in ("", "_curves", "_weights")
    ),
    data=None,
)


if __name__ == "__main__":
    lab.main(STUDY)
