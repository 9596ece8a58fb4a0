"""Which language models answer more diversely, and how much of that is their length.

Beyond the papers: the answers of many models to the same instructions, by all scores with paired
differences, and again with every answer cut to one number of words. There is one answer an
instruction, so what Conditional-* measures is how far the answers to similar instructions differ:
the prompts' bandwidth says which are similar, and as it goes to zero no two are, and Conditional-*
is 1 for every model. The study shows that too.

    python -m experiments.language --scales=1
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, choices, models, style
from experiments.lab.study import option, positive

WHOLE, CUT = "whole", "cut"
VARIANTS = ("_concise", "", "_verbose")
_MULTIPLES = tuple(2.0**power for power in range(-2, 6))
_COLOURS = {WHOLE: style.BLUE, CUT: style.ORANGE}
_CONDITIONAL = models.NAMES.index("Conditional-RKE")


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    groups: int = option(20, "Groups of prompts that the jackknife leaves out, one at a time.")
    resamples: int = option(2000, "Resamples of the models, for the correlations' intervals.")
    multiples: tuple[float, ...] = option(
        _MULTIPLES, "Multiples of the prompts' bandwidth at which Conditional-RKE is followed."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on."""

    data: str
    n: int
    prompts: int
    models: tuple[str, ...]
    texts: tuple[str, ...]
    bandwidths: dict[str, choices.Bandwidths]
    groups: int
    resamples: int
    multiples: tuple[float, ...]

    @property
    def base(self) -> str:
        """The scale that the figures show where they show one."""
        return choices.shown(self.bandwidths)


@dataclasses.dataclass(frozen=True)
class Cell:
    """Whole or cut answers, under the bandwidths of one scale."""

    text: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Result(models.ModelScores):
    """The scores of the models, and what length has to do with them.

    Attributes:
      words: mean length of the whole answers, `[m]`; NaN where it is not known.
      correlations: Spearman's, of each score with that length over the models, `[scores]`.
      intervals: their 95% intervals over resamples of the models, `[scores, 2]`.
      prompt_modes: Vendi and RKE of the prompts alone, `[2]`: how many neighbourhoods they form.
      swept: Conditional-RKE at the multiples of the prompts' bandwidth, `[m, multiples]`, of whole
        answers at the base scale; none elsewhere, and none for the cosine kernel.
    """

    words: np.ndarray
    correlations: np.ndarray
    intervals: np.ndarray
    prompt_modes: np.ndarray
    swept: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options, and that the models answered the same prompts equally often."""
    validation.check_count(options.groups, name="--groups", minimum=2)
    validation.check_count(options.resamples, name="--resamples", minimum=100)
    multiples = tuple(sorted(positive(m, name="multiples") for m in options.multiples))
    pairs = load()
    rows = models.rows_by_model(pairs.labels["models"])
    prompts = check_shared(pairs, rows)
    words = pairs.labels.get("words")
    if words is not None and words.dtype.kind not in "iuf":
        raise ValueError(f"--words: expected the length of each answer, received {words.dtype}.")
    bandwidths = choices.choose_scaled(pairs, options, seed)
    settings = Settings(
        data=pairs.description,
        n=len(pairs) // len(rows),
        prompts=prompts,
        models=tuple(rows),
        texts=(WHOLE, CUT) if "truncated" in pairs.further else (WHOLE,),
        bandwidths=bandwidths,
        groups=options.groups,
        resamples=options.resamples,
        multiples=() if "cosine" in bandwidths else multiples,
    )
    return lab.Setup(settings, pairs.arrays, state=pairs)


def check_shared(pairs: PairedEmbeddings, rows: Mapping[str, np.ndarray]) -> int:
    """The number of distinct prompts, which all models must share.

    Raises:
      ValueError: there is one model, or they have other prompts or other numbers of outputs.
    """
    if len(rows) < 2:
        raise ValueError(f"--models: expected at least two models, received {', '.join(rows)}.")
    first, *others = rows
    expected = _sorted_rows(pairs.prompts[rows[first]])
    for other in others:
        if not np.array_equal(_sorted_rows(pairs.prompts[rows[other]]), expected):
            raise ValueError(
                f"--models: expected the same prompts for each; those of {other} are not those of "
                f"{first}."
            )
    return len(np.unique(expected, axis=0))


def _sorted_rows(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T)]


def cells(settings: Settings) -> list[Cell]:
    """Every text under every scale."""
    return [Cell(text, scale) for scale in settings.bandwidths for text in settings.texts]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Result:
    """All scores of all models with errors, their correlation with length, and the sweep."""
    settings, pairs = setup.settings, setup.state
    bandwidths = settings.bandwidths[cell.scale]
    texts = pairs.outputs if cell.text == WHOLE else pairs.further["truncated"]
    rows = models.rows_by_model(pairs.labels["models"])
    outputs = {name: texts[found] for name, found in rows.items()}
    prompts = {name: pairs.prompts[found] for name, found in rows.items()}
    seed = int(jax.random.randint(context.shared_key, (), 0, 2**31 - 1))
    scores = models.score_models(
        outputs, prompts, bandwidths, groups=settings.groups, seed=seed, say=context.say
    )
    words = np.full(len(rows), np.nan)
    correlations, intervals = np.full(len(models.SCORES), np.nan), np.full((6, 2), np.nan)
    if "words" in pairs.labels:
        words = np.array([pairs.labels["words"][found].mean() for found in rows.values()])
        drawn = np.random.default_rng(seed).integers(
            len(rows), size=(settings.resamples, len(rows))
        )
        orders = [order for _, order in models.SCORES]
        found = agreement.with_interval(
            lambda taken: agreement.spearman(scores.values[:, taken], words[taken], orders),
            list(drawn),
            len(rows),
        )
        correlations, intervals = found[:, 0], found[:, 1:]
    context.say("prompt bandwidths")
    alone = [
        cv.decompose(
            next(iter(prompts.values())),
            output_kernel=bandwidths.kernels()["prompt_kernel"],
            order=o,
        ).vendi
        for o in (1.0, 2.0)
    ]
    followed = settings.multiples if cell == Cell(WHOLE, settings.base) else ()
    swept = [
        [_conditional(outputs[name], prompts[name], bandwidths, m) for m in followed]
        for name in rows
    ]
    return Result(
        **{f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)},
        words=words,
        correlations=correlations,
        intervals=intervals,
        prompt_modes=np.array(alone, float),
        swept=np.array(swept, float),
    )


def _conditional(
    outputs: np.ndarray, prompts: np.ndarray, bandwidths: choices.Bandwidths, multiple: float
) -> float:
    """Conditional-RKE with the prompts' bandwidth multiplied, the outputs' as it is."""
    assert bandwidths.prompts is not None
    wider = dataclasses.replace(bandwidths, prompts=multiple * bandwidths.prompts)
    kernels: dict[str, Any] = wider.kernels()
    return float(cv.conditional_rke(outputs, prompts, **kernels))


def variants(names: Sequence[str]) -> dict[str, list[int]]:
    """By model, the places of its concise, plain and verbose variants where it has all three."""
    return {
        name: [names.index(name + words) for words in VARIANTS]
        for name in names
        if all(name + words in names for words in VARIANTS)
    }


def table(run: lab.Run) -> Table:
    """Every model at the base scale, whole answers; below, the correlations with length."""
    settings = run.settings
    shown = [0, 1, 3, 4, 5]
    grid = Table("answers", "model", "words", *(models.NAMES[index] for index in shown))
    for text in settings.texts:
        found = run.results[Cell(text, settings.base)]
        for place, name in enumerate(found.models):
            cells = [
                f"{report.with_error(found.values[i, place], found.errors[i, place])} "
                f"{found.letters[i][place]}"
                for i in shown
            ]
            words = found.words[place]
            grid.add_row(text, name, "-" if math.isnan(words) else f"{words:.0f}", *cells)
        for scale in settings.bandwidths:
            found = run.results[Cell(text, scale)]
            cells = [_correlation(found, index) for index in shown]
            grid.add_row(text, f"rank correlation, scale {scale}", "", *cells)
    return grid


def _correlation(found: Result, index: int) -> str:
    low, high = found.intervals[index]
    if math.isnan(found.correlations[index]):
        return "-"
    return f"{found.correlations[index]:.2f} [{low:.2f}, {high:.2f}]"


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The models side by side, and what length and the prompts' bandwidth do."""
    (run,) = runs
    return {"language": _models(run), "language_length": _length(run)}


def _models(run: lab.Run) -> Figure:
    """Order 1 above, order 2 below: a line a model, whole and cut answers."""
    settings = run.settings
    height = 0.6 + 0.155 * len(settings.models)
    figure, axes = style.panels(6, columns=3, size=(3.0, height), sharey="row")
    places = -np.arange(len(settings.models))
    for index, panel in enumerate(axes):
        for offset, text in zip((0.14, -0.14), settings.texts, strict=False):
            found = run.results[Cell(text, settings.base)]
            panel.errorbar(
                found.values[index],
                places + offset,
                xerr=1.96 * found.errors[index],
                fmt="o",
                markersize=3,
                elinewidth=0.8,
                color=_COLOURS[text],
                label=f"{text} answers",
            )
        panel.set(xlabel=f"{models.NAMES[index]}, effective number", ylim=(places[-1] - 0.7, 0.7))
        panel.set_yticks(places, settings.models, fontsize=6.5)
    style.legend_above(figure, axes[0])
    style.caption(figure, _caption(run, errors=True))
    return figure


def _length(run: lab.Run) -> Figure:
    """Score against length, whole and cut; the correlations; the prompts' bandwidth."""
    settings = run.settings
    figure, axes = style.panels(4, columns=2, size=(4.2, 3.1))
    for panel, text in zip(axes, (WHOLE, CUT), strict=False):
        if text in settings.texts:
            _scatter(panel, run.results[Cell(text, settings.base)], text)
        else:
            panel.set_axis_off()
    _correlations(axes[2], run)
    _sweep(axes[3], run)
    style.caption(figure, _caption(run, errors=False))
    return figure


def _scatter(panel: Axes, found: Result, text: str) -> None:
    """Conditional-RKE against the mean length of the whole answers; variants of a model joined."""
    values, errors = found.values[_CONDITIONAL], found.errors[_CONDITIONAL]
    joined = variants(found.models)
    alone = sorted(set(range(len(values))) - {place for of in joined.values() for place in of})
    looks = zip(style.CYCLE, style.MARKERS, strict=True)
    for (name, of), (colour, marker) in zip(joined.items(), looks, strict=False):
        panel.errorbar(
            found.words[of], values[of], errors[of], color=colour, marker=marker, label=name, lw=1
        )
    if alone:
        grey = style.GREY
        panel.errorbar(
            found.words[alone],
            values[alone],
            errors[alone],
            color=grey,
            fmt="x",
            label="other models",
        )
    panel.set(
        xlabel="mean length of the whole answers, words", ylabel=f"Conditional-RKE, {text} answers"
    )
    if text == WHOLE:
        title = "concise, plain, verbose:" if joined else None
        panel.legend(fontsize=5.5, title=title, title_fontsize=5.5)


def _correlations(panel: Axes, run: lab.Run) -> None:
    """Rank correlation of each score with length: texts by colour, scales side by side."""
    settings = run.settings
    count = len(settings.texts) * len(settings.bandwidths)
    offsets = np.linspace(-0.3, 0.3, count) if count > 1 else [0.0]
    cells = [Cell(text, scale) for text in settings.texts for scale in settings.bandwidths]
    markers = dict(zip(settings.bandwidths, style.MARKERS, strict=False))
    for offset, cell in zip(offsets, cells, strict=True):
        found = run.results[cell]
        centre, (low, high) = found.correlations, found.intervals.T
        label = cell.text if cell.scale == "cosine" else f"{cell.text}, bandwidths x {cell.scale}"
        panel.errorbar(
            np.arange(len(centre)) + offset,
            centre,
            np.maximum([centre - low, high - centre], 0),
            fmt=markers[cell.scale],
            color=_COLOURS[cell.text],
            markersize=3,
            elinewidth=0.8,
            label=label,
        )
    panel.axhline(0, color=style.GREY, linewidth=0.8)
    panel.set(ylim=(-1.05, 1.05), ylabel="rank correlation with length")
    panel.set_xticks(
        range(len(models.NAMES)), [n.replace("-", "-\n") for n in models.NAMES], fontsize=6.5
    )
    panel.legend(fontsize=5.5, ncols=2)


def _sweep(panel: Axes, run: lab.Run) -> None:
    """Conditional-RKE of every model against the prompts' bandwidth, between its two limits."""
    settings = run.settings
    found = run.results[Cell(WHOLE, settings.base)]
    if not settings.multiples:
        panel.set_axis_off()
        return
    for index, row in enumerate(found.swept):
        label = "a model" if index == 0 else None
        panel.plot(settings.multiples, row, color=style.BLUE, linewidth=0.7, label=label)
    limit = {"color": style.VERMILION, "linewidth": 0.7, "linestyle": "--"}
    for index, value in enumerate(found.values[models.NAMES.index("RKE")]):
        label = "its RKE, the limit of wide bandwidths" if index == 0 else None
        panel.plot(settings.multiples[-2:], [value] * 2, label=label, **limit)
    panel.axhline(1, color=style.BLACK, linewidth=0.8, label="1, the limit of narrow ones")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    style.log_numbers(panel.yaxis)
    style.log_numbers(panel.xaxis)
    panel.set(xlabel="multiple of the prompts' bandwidth", ylabel="Conditional-RKE, whole answers")
    panel.legend(fontsize=6)


def _caption(run: lab.Run, *, errors: bool) -> str:
    """What data, n, bandwidths, rule and seed are shown, and what the errors are."""
    settings = run.settings
    base = settings.bandwidths[settings.base]
    found = run.results[Cell(WHOLE, settings.base)]
    each = settings.n / settings.prompts
    parts = [
        f"{settings.data.rstrip('.')}; n = {settings.n} answers of each of {len(settings.models)} "
        f"models, {each:.3g} a prompt; seed {run.seed}"
    ]
    if base.outputs is not None:
        parts.append(
            f"Bandwidths {base.outputs:.3g} (answers) and {base.prompts:.3g} (prompts): {base.rule}"
        )
    parts.append(f"The prompts' own RKE there is {found.prompt_modes[1]:.1f}")
    bars = (
        "95% intervals"
        if errors
        else "one standard error; 95% over resampled models for correlations, which saturated "
        "scores do not have"
    )
    parts.append(f"Bars: {bars}; jackknife over {found.groups} groups of prompts")
    return ". ".join(parts) + "."


STUDY = lab.StudyRecord(
    name="language",
    version=2,
    question="Which language models answer more diversely, and how much of that is length?",
    reproduces="-",
    duration="2 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Result,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("language", "language_length"),
    data="language",
    labels=("models",),
    more_labels=("words",),
    further=("truncated",),
)

if __name__ == "__main__":
    lab.main(STUDY)
