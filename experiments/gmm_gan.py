"""RKE-MC and RRKE of GANs trained on mixtures whose modes can be counted: RKE figure 1.

Five kinds of GAN on the ring of 8 and the grid of 25 Gaussians, several seeds each: whether RKE-MC
counts the modes that a GAN captures, and whether RRKE rises with what it misses. Beside them stand
samples of the mixture itself, and of the mixture with modes removed one by one: what the scores
tell where only modes are missing.

    python -m experiments.gmm_gan --mixtures=ring
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import bandwidth, report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.generators import checkpoints, mixture_gan
from experiments.lab import agreement, choices, style
from experiments.lab.study import option, positive

REAL, REMOVED = "real", "removed"
# The bandwidth at which the closed form of RKE-MC counts the modes of the mixture.
_COUNTING = "count"
_RULED = 10_000  # Samples of the mixture that the other rules are followed on.
_SHOWN = 1000  # Samples a panel.
_RESAMPLES = 1000
_NAMES = {kind: of.label for kind, of in mixture_gan.KINDS.items()} | {
    REAL: "the mixture",
    REMOVED: "modes removed",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    mixtures: tuple[str, ...] = option(
        tuple(mixture_gan.MIXTURES), "The data.", choices=mixture_gan.MIXTURES
    )
    kinds: tuple[str, ...] = option(
        tuple(mixture_gan.KINDS), "The kinds of GAN.", choices=mixture_gan.KINDS
    )
    seeds: int = option(5, "Trainings of each kind; with other numbers they are trained anew.")
    steps: int | None = option(
        None, "Updates of each generator; each kind's own if unset. Others are trained anew."
    )
    samples: int = option(5000, "Samples of RKE-MC and of what is captured.")
    references: int = option(500, "Of them, samples of RRKE, against as many of the mixture.")
    rules: tuple[str, ...] = option(
        (_COUNTING, "std"),
        "How bandwidths are chosen on the mixture itself: where the closed form of RKE-MC is the "
        "number of modes (count), std (RKE), variance (CV), median distance. The first is repeated "
        "at scales.",
        choices=(_COUNTING, *bandwidth.RULES),
    )
    scales: tuple[float, ...] = option(choices.SCALES, "Multiples of the first bandwidth.")
    repeats: int = option(3, "Random orders in which modes are removed from the mixture.")
    cache: str | None = option(
        None, "Folder of what is trained here; in the user's cache folder if unset."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on beside the generators.

    Attributes:
      bandwidths: of each mixture by name: a multiple of the first rule's, or another rule.
      trainings: of each mixture's kinds, updates of the generator.
    """

    bandwidths: dict[str, dict[str, float]]
    trainings: dict[str, dict[str, int]]
    seeds: int
    samples: int
    references: int
    rules: tuple[str, ...]
    repeats: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """A mixture, and a kind of GAN, 'real' or 'removed'."""

    mixture: str
    source: str


@dataclasses.dataclass(frozen=True)
class Scores:
    """What was found of each set of samples: a seed, or a number of modes in one random order.

    Attributes:
      rke, rrke: `[sets, bandwidths]`.
      shares: good samples of each mode, as parts of all samples, `[sets, k]`.
      shown: the first samples of the first set, float16 `[m, 2]`.
      steps, traces: of a training, `[points]` updates and `[3, sets, points]`: RKE-MC at the
        counting bandwidth, captured modes, share of good samples. Empty for other samples.
      seconds: of the training, all seeds together.
    """

    rke: np.ndarray
    rrke: np.ndarray
    shares: np.ndarray
    shown: np.ndarray
    steps: np.ndarray
    traces: np.ndarray
    seconds: float

    def captured(self, mixture: str) -> np.ndarray:
        """How many modes each set has, `[sets]`."""
        return mixture_gan.MIXTURES[mixture].captured(self.shares)

    @property
    def missing(self) -> np.ndarray:
        """The mass of the mixture that no good sample stands for, `[sets]`, between 0 and 1."""
        return 1 - np.minimum(self.shares, 1 / self.shares.shape[1]).sum(axis=1)


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Chooses the bandwidths, and reads or trains the generators."""
    for name in ("seeds", "samples", "references", "repeats"):
        least = 2 if name in ("samples", "references") else 1
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=least)
    if options.references > options.samples:
        raise ValueError(
            f"--references: expected at most --samples={options.samples}, received "
            f"{options.references}."
        )
    if options.steps is not None:
        validation.check_count(options.steps, name="--steps", minimum=1)
    for name in ("mixtures", "kinds", "rules", "scales"):
        if len(set(given := getattr(options, name))) < len(given):
            raise ValueError(f"--{name}: one is given twice in {', '.join(map(str, given))}.")
    trainings = {
        mixture: {
            kind: mixture_gan.KINDS[kind].steps if options.steps is None else options.steps
            for kind in options.kinds
        }
        for mixture in options.mixtures
    }
    settings = Settings(
        bandwidths={name: _bandwidths(name, options, seed) for name in options.mixtures},
        trainings=trainings,
        seeds=options.seeds,
        samples=options.samples,
        references=options.references,
        rules=options.rules,
        repeats=options.repeats,
    )
    cache = None if options.cache is None else pathlib.Path(options.cache)
    found = {
        (mixture, kind): mixture_gan.trained(
            mixture_gan.Training(mixture, kind, steps, options.seeds),
            cache=cache,
            say=lambda words: print(words, file=sys.stderr),
        )
        for mixture, kinds in trainings.items()
        for kind, steps in kinds.items()
    }
    arrays = {
        f"{mixture} {kind}": np.concatenate(
            [leaf.ravel() for leaf in checkpoints.flatten(of["generator"]).values()]
        )
        for (mixture, kind), of in found.items()
    }
    for name in options.mixtures:
        of = mixture_gan.MIXTURES[name]
        arrays[name] = np.append(np.ravel(of.centres), of.scale)
    return lab.Setup(settings, arrays, state=found)


def _bandwidths(mixture: str, options: Options, seed: int) -> dict[str, float]:
    """The bandwidths of one mixture by name, chosen on the mixture itself."""
    of = mixture_gan.MIXTURES[mixture]
    key, rule_key = jax.random.split(jax.random.key(seed))
    found = {}
    for index, rule in enumerate(options.rules):
        if rule == _COUNTING:
            width = of.counting_bandwidth()
        else:
            points = of.population().sample(key, _RULED)
            ruled = bandwidth.bandwidth_by_rule(points, rule, key=rule_key, partitions=1)
            width = ruled.bandwidth
        assert width is not None
        for scale in (1.0,) if index else options.scales:
            found[rule if index else f"{positive(scale, name='scales'):g}"] = scale * width
    return found


def cells(settings: Settings) -> list[Cell]:
    """Every kind on every mixture, the mixture itself, and what is left of it."""
    return [
        Cell(mixture, source)
        for mixture, kinds in settings.trainings.items()
        for source in (*kinds, REAL, REMOVED)
    ]


def removals(modes: int, repeats: int, key: jax.Array) -> np.ndarray:
    """Weights of all modes, all but one ... one, in each of some random orders, `[sets, modes]`."""
    orders = [np.asarray(jax.random.permutation(k, modes)) for k in jax.random.split(key, repeats)]
    return np.array([(o < left) / left for left in range(modes, 0, -1) for o in orders])


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scores:
    """The scores of every seed of a GAN, of the mixture, or of what is left of it."""
    settings: Settings = setup.settings
    mixture = mixture_gan.MIXTURES[cell.mixture]
    order_key, key = jax.random.split(context.key)
    found = setup.state.get((cell.mixture, cell.source))
    of_mixture = jax.jit(mixture.sample, static_argnums=1)
    modes, seeds = len(mixture.centres), range(settings.seeds)
    if found is not None:
        params = [mixture_gan.one(found["generator"], seed) for seed in seeds]
        draws = [functools.partial(mixture_gan.sample, of) for of in params]
    elif cell.source == REAL:
        draws = [of_mixture for _ in seeds]
    else:
        every = removals(modes, settings.repeats, order_key)
        draws = [functools.partial(of_mixture, weights=weights) for weights in every]
    kernels = [cv.Gaussian(width) for width in settings.bandwidths[cell.mixture].values()]
    rke, rrke, shares, shown = [], [], [], []
    for index, draw in enumerate(draws):
        context.say(f"{index + 1} of {len(draws)}")
        sample_key, reference_key = jax.random.split(jax.random.fold_in(key, index))
        points = draw(sample_key, settings.samples)
        references = of_mixture(reference_key, settings.references)
        few = points[: settings.references]
        rke.append([float(cv.rke(points, kernel=kernel)) for kernel in kernels])
        rrke.append(
            [float(cv.baselines.rrke(few, references, kernel=kernel)) for kernel in kernels]
        )
        shares.append(mixture.good_shares(np.asarray(points)))
        shown.append(np.asarray(points[:_SHOWN], np.float16))
    trace = {} if found is None else found["trace"]
    traces = [trace[name] for name in mixture_gan.TRACES] if trace else np.zeros((3, 0, 0))
    return Scores(
        rke=np.array(rke),
        rrke=np.array(rrke),
        shares=np.array(shares),
        shown=shown[0],
        steps=np.array(trace.get("step", [])),
        traces=np.array(traces),
        seconds=0.0 if found is None else float(found["seconds"]),
    )


def correlations(run: lab.Run, mixture: str, name: str, sources: Sequence[str]) -> np.ndarray:
    """Spearman's correlations of the scores at one bandwidth with what is captured.

    Args:
      run: of the study.
      mixture: whose samples.
      name: of the bandwidth.
      sources: of the samples: kinds of GAN, or what is left of the mixture.

    Returns:
      `[2, 2, 3]`: of RKE-MC and RRKE, with the modes captured and the mass missing, value and 95%
      bootstrap interval over the sets of samples. NaN where one of the two does not vary beyond
      rounding.
    """
    column = list(run.settings.bandwidths[mixture]).index(name)
    found = [run.results[Cell(mixture, source)] for source in sources]
    scores = np.concatenate([[of.rke[:, column], of.rrke[:, column]] for of in found], axis=1)
    truths = np.concatenate([[of.captured(mixture), of.missing] for of in found], axis=1)
    n = scores.shape[1]
    draws = list(agreement.resampled(np.arange(n), _RESAMPLES, np.random.default_rng(run.seed)))
    results = np.full((2, 2, 3), np.nan)
    for row, score in enumerate(scores):
        for column, truth in enumerate(truths):
            statistic = functools.partial(_spearman, score, truth)
            results[row, column] = agreement.with_interval(statistic, draws, n)
    return results


def _spearman(score: np.ndarray, truth: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return agreement.spearman(score[rows][None], truth[rows])


def table(run: lab.Run) -> Table:
    """Means and standard errors over the seeds, and rank correlations with 95% intervals."""
    grid = Table("mixture", "bandwidth", "samples", "captured", "good", "RKE-MC", "RRKE")
    for mixture, widths in run.settings.bandwidths.items():
        kinds = tuple(run.settings.trainings[mixture])
        for column, (name, width) in enumerate(widths.items()):
            way = mixture, f"{name}: {width:.3g}"
            for source in (*kinds, REAL):
                of = run.results[Cell(mixture, source)]
                scores = of.rke[:, column], of.rrke[:, column]
                values = map(_with_error, (of.captured(mixture), of.shares.sum(1), *scores))
                grid.add_row(*way, _NAMES[source], *values)
            exact = mixture_gan.MIXTURES[mixture].population().rke(kernel=cv.Gaussian(width))
            grid.add_row(*way, "closed form", "", "", f"{float(exact):.4g}", "")
            for sources, words in ((kinds, "GANs"), ((REMOVED,), _NAMES[REMOVED])):
                found = correlations(run, mixture, name, sources)
                for index, truth in enumerate(("modes captured", "mass missing")):
                    values = [f"{v:.2f} [{a:.2f}, {b:.2f}]" for v, a, b in found[:, index]]
                    grid.add_row(*way, f"{words}: rank correlation with {truth}", "", "", *values)
    for mixture, kinds in run.settings.trainings.items():
        for kind in kinds:
            of = run.results[Cell(mixture, kind)]
            moves = [f"{mixture_gan.settled(values):.2f}" for values in of.traces]
            words = f"{_NAMES[kind]}: last move, of the seeds' sd"
            grid.add_row(mixture, "", words, moves[1], moves[2], moves[0], "")
    return grid


def _with_error(values: np.ndarray) -> str:
    """Mean and standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return report.with_error(float(np.mean(values)), float(error))


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The samples as in RKE fig 1, the scores against what is captured, and the trainings."""
    figures = {}
    for run in runs:
        name = run.folder.name
        figures[name] = _samples(run)
        figures[f"{name}_scores"] = _scores(run)
        figures[f"{name}_training"] = _training(run)
    return figures


def _samples(run: lab.Run) -> Figure:
    """Columns of methods, rows of mixtures; the mixture blue and generated samples red."""
    settings = run.settings
    rows = {mixture: (*kinds, REAL) for mixture, kinds in settings.trainings.items()}
    columns = max(map(len, rows.values()))
    figure, axes = style.panels(columns * len(rows), columns=columns, size=(2.1, 2.5))
    panels = iter(axes)
    for mixture, sources in rows.items():
        real = run.results[Cell(mixture, REAL)].shown
        reach = 1.35 * np.abs(real.astype(float)).max()
        widths = settings.bandwidths[mixture]
        column = list(widths).index(choices.shown(widths))
        for source, panel in zip(sources, panels, strict=False):
            of = run.results[Cell(mixture, source)]
            look = {"linestyle": "", "marker": ".", "markeredgewidth": 0}
            panel.plot(*real.T, color=style.BLUE, markersize=4, **look)
            if source != REAL:
                panel.plot(*of.shown.T, color=style.VERMILION, markersize=2.5, alpha=0.6, **look)
            panel.set_title(
                f"{_NAMES[source]}\nRKE-MC {of.rke[0, column]:.2f}, RRKE {of.rrke[0, column]:.3f}\n"
                f"{of.captured(mixture)[0]} modes, {of.shares[0].sum():.0%} good"
            )
            panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            panel.set(xticks=[], yticks=[])
            panel.grid(visible=False)
    used = ", ".join(
        f"{own[choices.shown(own)]:.3g} ({mixture})" for mixture, own in settings.bandwidths.items()
    )
    words = f"The first of {settings.seeds} trainings; bandwidths {used}."
    style.caption(figure, f"{words} {_caption(run)}")
    return figure


def _scores(run: lab.Run) -> Figure:
    """RKE-MC against captured modes, and RRKE against the missing mass; columns of bandwidths."""
    settings = run.settings
    columns = max(map(len, settings.bandwidths.values()))
    count = 2 * len(settings.bandwidths)
    figure, axes = style.panels(columns * count, columns=columns, size=(3.0, 2.4))
    rows = iter(np.array(axes, object).reshape(count, columns))
    for mixture, widths in settings.bandwidths.items():
        modes = len(mixture_gan.MIXTURES[mixture].centres)
        for upper, lower, column, (name, width) in zip(
            next(rows), next(rows), range(columns), widths.items(), strict=True
        ):
            left = run.results[Cell(mixture, REMOVED)]
            grey = {"color": style.GREY, "marker": ".", "linestyle": "", "label": _NAMES[REMOVED]}
            upper.plot(left.captured(mixture), left.rke[:, column], **grey)
            lower.plot(left.missing, left.rrke[:, column], **grey)
            for index, kind in enumerate(settings.trainings[mixture]):
                of = run.results[Cell(mixture, kind)]
                look = {
                    "color": style.CYCLE[index],
                    "marker": style.MARKERS[index],
                    "linestyle": "",
                    "label": _NAMES[kind],
                }
                upper.plot(of.captured(mixture), of.rke[:, column], **look)
                lower.plot(of.missing, of.rrke[:, column], **look)
            upper.plot([0, modes], [0, modes], color=style.GREY, linewidth=0.8)
            upper.set_title(f"{mixture}, {_named(name, run)}: {width:.3g}")
            upper.set(xlabel="modes captured", ylabel="RKE-MC", xlim=(-0.5, modes + 0.5))
            upper.set_ylim(0, None)
            lower.set(xlabel="mass missing", ylabel="RRKE, nats", xlim=(-0.03, 1.03))
            lower.set_ylim(0, None)
    style.legend_above(figure, axes[0], columns=6)
    style.caption(
        figure,
        f"Points: each of {settings.seeds} trainings, and the mixture with modes removed one by "
        f"one in {settings.repeats} random orders. On the thin line RKE-MC is what is captured; "
        "mass is missing where a mode has fewer good samples than its due. "
        f"{_caption(run)}",
    )
    return figure


def _training(run: lab.Run) -> Figure:
    """RKE-MC, captured modes and good samples during the trainings; rows of mixtures."""
    settings = run.settings
    figure, axes = style.panels(
        3 * len(settings.trainings), columns=3, size=(3.6, 2.5), sharex=True
    )
    panels = np.array(axes, object).reshape(-1, 3)
    words = ("RKE-MC", "modes captured", "share of good samples")
    for row, (mixture, kinds) in zip(panels, settings.trainings.items(), strict=True):
        for index, kind in enumerate(kinds):
            of = run.results[Cell(mixture, kind)]
            for panel, values in zip(row, of.traces, strict=True):
                _band(panel, of.steps / of.steps[-1], values, index, _NAMES[kind])
        modes = len(mixture_gan.MIXTURES[mixture].centres)
        for panel, word in zip(row, words, strict=True):
            panel.set(ylabel=word, title=mixture, ylim=(0, None))
        for panel in row[:2]:
            panel.axhline(modes, color=style.GREY, linewidth=0.8)
    for panel in panels[-1]:
        panel.set_xlabel("part of the training")
    style.legend_above(figure, axes[0], columns=5)
    lengths = {
        f"{_NAMES[kind]} {steps:,}"
        for of in settings.trainings.values()
        for kind, steps in of.items()
    }
    counting = ", ".join(
        f"{mixture_gan.MIXTURES[mixture].counting_bandwidth():.3g} ({mixture})"
        for mixture in settings.trainings
    )
    style.caption(
        figure,
        f"Means over {settings.seeds} seeds and bands of one standard deviation, of 1,000 samples; "
        f"updates of the generator: {', '.join(sorted(lengths))}. RKE-MC at the bandwidth that "
        f"counts the mixture's modes in closed form, {counting}. Seed {mixture_gan.SEED}.",
    )
    return figure


def _band(panel: Axes, x: np.ndarray, values: np.ndarray, index: int, label: str) -> None:
    mean = values.mean(axis=0)
    sd = values.std(axis=0, ddof=1) if len(values) > 1 else 0 * mean
    panel.plot(x, mean, color=style.CYCLE[index], label=label)
    panel.fill_between(x, mean - sd, mean + sd, color=style.CYCLE[index], alpha=0.2, linewidth=0)


def _named(name: str, run: lab.Run) -> str:
    rules = run.settings.rules
    return f"rule '{name}'" if name in rules[1:] else f"{name} x '{rules[0]}'"


def _caption(run: lab.Run) -> str:
    """What data, n, bandwidths and seed are shown, and what is a captured mode."""
    settings = run.settings
    data = "; ".join(mixture_gan.MIXTURES[m].description for m in settings.trainings)
    words = [
        f"Mixtures: {data}. RKE-MC of {settings.samples:,} samples, RRKE of "
        f"{settings.references:,} against as many of the mixture; seed {run.seed}",
        f"Good: within {mixture_gan.RADIUS:g} sd of a centre; a mode is captured with "
        f"{mixture_gan.LEAST:g} of its due good samples",
    ]
    if settings.rules[0] == _COUNTING:
        words.append("Bandwidth 1: RKE-MC of the mixture in closed form is its number of modes")
    return ". ".join(words) + "."


STUDY = lab.StudyRecord(
    name="gmm_gan",
    version=1,
    question="Does RKE-MC count the modes that a GAN captures, and does RRKE see those it misses?",
    reproduces="RKE fig 1",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Scores,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("gmm_gan", "gmm_gan_scores", "gmm_gan_training"),
    data=None,
)


if __name__ == "__main__":
    lab.main(STUDY)
