"""What a language model's temperature does to the diversity of its stories (CV tables 2, 4, 5).

The scores rise with the temperature in the papers' tables. So do they where a model falls apart:
text without sense is diverse too. Beside the scores therefore stand the stories' perplexity under
the model itself at temperature 1, the share of them that ended and their length. The scores are
computed again on the stories that ended, and on all stories cut to the same number of words.

    python -m experiments.temperature --scales=1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import report, validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import choices, models, style
from experiments.lab.study import option

ALL, FINISHED, CUT = "all", "finished", "cut"
CONTROLS = ("perplexity", "finished", "tokens")
_RTOL = 0.005
_WORDS = {ALL: "all stories", FINISHED: "those that ended", CUT: "all, cut to one length"}
_COLOURS = {ALL: style.BLUE, FINISHED: style.GREEN, CUT: style.ORANGE}
_LABELS = ("finished", "tokens", "log_likelihood")


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    groups: int = option(10, "Groups of prompts that the jackknife leaves out, one at a time.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on."""

    data: str
    n: dict[str, int]
    prompts: int
    models: tuple[str, ...]
    texts: tuple[str, ...]
    bandwidths: dict[str, choices.Bandwidths]
    groups: int

    @property
    def base(self) -> str:
        """The scale that the figure shows where it shows one."""
        return choices.shown(self.bandwidths)


@dataclasses.dataclass(frozen=True)
class Cell:
    """Which stories, under the bandwidths of one scale."""

    text: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Result(models.ModelScores):
    """The scores at each temperature, and what tells diversity from incoherence.

    Attributes:
      controls: each of CONTROLS of the stories that were scored, `[controls, m]`: perplexity under
        the model at temperature 1; the share that ended; mean length in tokens. NaN where the data
        do not say, and for cut stories, of which they say nothing.
      control_errors: their standard errors, by the jackknife over prompts.
    """

    controls: np.ndarray
    control_errors: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options and the labels, and orders the temperatures."""
    validation.check_count(options.groups, name="--groups", minimum=2)
    pairs = load()
    rows = {name: np.flatnonzero(_names(pairs) == name) for name in in_order(_names(pairs))}
    if len(rows) < 2:
        raise ValueError(f"--models: expected at least two, received {', '.join(rows)}.")
    for role in set(_LABELS) & set(pairs.labels):
        kind = pairs.labels[role].dtype
        if kind.kind not in "biuf":
            raise ValueError(f"--{role}: expected a number of each story, received {kind}.")
    if "log_likelihood" in pairs.labels and "tokens" not in pairs.labels:
        raise ValueError("--log_likelihood: a perplexity needs --tokens too.")
    texts = [ALL]
    if FINISHED in pairs.labels:
        left = len(np.unique(pairs.prompt_numbers[_balanced_finished(pairs)]))
        if left < options.groups:
            raise ValueError(
                f"--finished: {left} prompts have a story that ended from every model, fewer than "
                f"--groups={options.groups}."
            )
        texts.append(FINISHED)
    if "truncated" in pairs.further:
        texts.append(CUT)
    settings = Settings(
        data=pairs.description,
        n={name: len(found) for name, found in rows.items()},
        prompts=len(np.unique(pairs.prompt_numbers)),
        models=tuple(rows),
        texts=tuple(texts),
        bandwidths=choices.choose_scaled(pairs, options, seed),
        groups=options.groups,
    )
    return lab.Setup(settings, pairs.arrays, state=pairs)


def _names(pairs: PairedEmbeddings) -> np.ndarray:
    return pairs.labels["models"].astype(str)


def in_order(names: np.ndarray) -> list[str]:
    """The distinct names: by their value where all are numbers, as they first occur otherwise."""
    found = list(models.rows_by_model(names))
    return sorted(found, key=float) if places(found) is not None else found


def places(names: Sequence[str]) -> list[float] | None:
    """The names as numbers; None where one is none."""
    try:
        return [float(name) for name in names]
    except ValueError:
        return None


def balanced(model: np.ndarray, prompt: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """As many chosen rows of each prompt from every model: its first ones, bool `[n]`.

    Scores grow with n and weigh prompts by their rows; models differ in neither afterwards.

    Args:
      model, prompt: of each row, numbered from 0, `[n]`.
      chosen: which rows may be taken, bool `[n]`.
    """
    counts = np.zeros((model.max() + 1, prompt.max() + 1), int)
    np.add.at(counts, (model[chosen], prompt[chosen]), 1)
    kept, least = np.zeros(len(chosen), bool), counts.min(axis=0)
    taken = np.zeros_like(counts)
    for row in np.flatnonzero(chosen):
        place = model[row], prompt[row]
        kept[row] = taken[place] < least[prompt[row]]
        taken[place] += 1
    return kept


def _balanced_finished(pairs: PairedEmbeddings) -> np.ndarray:
    model = np.unique(_names(pairs), return_inverse=True)[1]
    return balanced(model, pairs.prompt_numbers, pairs.labels[FINISHED].astype(bool))


def cells(settings: Settings) -> list[Cell]:
    """Every text under every scale."""
    return [Cell(text, scale) for scale in settings.bandwidths for text in settings.texts]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Result:
    """All scores at each temperature with paired differences, and the controls."""
    settings, pairs = setup.settings, setup.state
    if cell.text == FINISHED:
        pairs = pairs.rows(_balanced_finished(pairs))
    texts = pairs.further["truncated"] if cell.text == CUT else pairs.outputs
    rows = {name: np.flatnonzero(_names(pairs) == name) for name in settings.models}
    seed = int(jax.random.randint(context.shared_key, (), 0, 2**31 - 1))
    scores = models.score_models(
        {name: texts[found] for name, found in rows.items()},
        {name: pairs.prompts[found] for name, found in rows.items()},
        settings.bandwidths[cell.scale],
        groups=settings.groups,
        seed=seed,
        method=cv.Auto(context.shared_key, rtol=_RTOL),  # Exact up to n = 4,096.
        say=context.say,
    )
    controls = np.array([controls_of(pairs.rows(found)) for found in rows.values()])
    if cell.text == CUT:
        controls[:] = np.nan
    return Result(
        **{f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)},
        controls=controls[:, 0].T,
        control_errors=controls[:, 1].T,
    )


def controls_of(pairs: PairedEmbeddings) -> tuple[np.ndarray, np.ndarray]:
    """Each of CONTROLS of one model's stories and its standard error, `[controls]` both.

    Perplexity is exp(-total log-likelihood / total tokens). The error is that of the jackknife
    that leaves out one prompt at a time.
    """
    prompt = pairs.prompt_numbers
    unknown = np.full(len(pairs), np.nan)
    finished, tokens, likelihood = (
        np.asarray(pairs.labels.get(role, unknown), float) for role in _LABELS
    )
    columns = np.stack([np.ones(len(pairs)), finished, tokens, likelihood])
    sums = np.array([np.bincount(prompt, column) for column in columns])

    def of(totals: np.ndarray) -> np.ndarray:
        count, ended, length, log = totals
        return np.array([np.exp(-log / length), ended / count, length / count])

    whole, parts = sums.sum(axis=1), sums.shape[1]
    deleted = of(whole[:, None] - sums)
    spread = np.sum((deleted - deleted.mean(axis=1, keepdims=True)) ** 2, axis=1)
    return of(whole), np.sqrt((parts - 1) / parts * spread)


def table(run: lab.Run) -> Table:
    """The papers' tables: a row a score, a column a temperature; then steps, then controls."""
    settings = run.settings
    steps = list(zip(settings.models[1:], settings.models, strict=False))
    names = [f"T = {name}" if places([name]) else name for name in settings.models]
    grid = Table("stories", "bandwidths", "", *names, *(f"{a} - {b}" for a, b in steps))
    for cell, found in run.results.items():
        scores = models.NAMES if cell.scale == settings.base else models.NAMES[::3]
        for name in scores:
            i = models.NAMES.index(name)
            values = [
                f"{report.with_error(value, error)} {letters}"
                for value, error, letters in zip(
                    found.values[i], found.errors[i], found.letters[i], strict=True
                )
            ]
            changes = [_change(found, i, j + 1, j) for j in range(len(steps))]
            grid.add_row(_WORDS[cell.text], cell.scale, name, *values, *changes)
        if cell.scale == settings.base:
            for name, values, errors in zip(
                CONTROLS, found.controls, found.control_errors, strict=True
            ):
                if np.isnan(values).all():
                    continue
                words = [report.with_error(v, e) for v, e in zip(values, errors, strict=True)]
                grid.add_row(_WORDS[cell.text], "", name, *words, *[""] * len(steps))
    return grid


def _change(found: Result, score: int, one: int, other: int) -> str:
    """The difference of a score between two temperatures, with its adjusted p."""
    at = (score, one, other)
    words = report.with_error(found.differences[at], found.difference_errors[at])
    return f"{words} ({models.p_in_words(found.p_values[at])})"


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """Scores against temperature; what is left of them in the controls; the controls."""
    (run,) = runs
    settings = run.settings
    found = run.results[Cell(ALL, settings.base)]
    figure, axes = style.panels(6, size=(3.5, 2.6))
    for panel, kind in zip(axes, ("Conditional-", "Information-", ""), strict=False):
        for order in ("Vendi", "RKE"):
            _line(panel, run, found, kind + order, style.score_colour(kind + order))
        panel.set(ylabel="effective number")
        if kind != "Conditional-":
            style.log_axis(panel)
        panel.legend()
    conditional = "Conditional-RKE"
    for text in settings.texts:
        scored = run.results[Cell(text, settings.base)]
        label = f"{_WORDS[text]}, n = {scored.n[0]:,}"
        _line(axes[3], run, scored, conditional, _COLOURS[text], label=label)
    axes[3].set(ylabel=conditional)
    axes[3].legend(fontsize=6.5)
    for scale, marker in zip(settings.bandwidths, style.MARKERS, strict=False):
        scored = run.results[Cell(ALL, scale)]
        first = scored.values[models.NAMES.index(conditional), 0]
        label = scale if scale == "cosine" else f"bandwidths x {scale}"
        colour = style.CYCLE[style.MARKERS.index(marker)]
        _line(axes[4], run, scored, conditional, colour, label=label, unit=first)
    axes[4].set(ylabel=f"{conditional}, first = 1")
    axes[4].legend(fontsize=6.5)
    _controls(axes[5], run, found)
    for panel in axes:
        _ticks(panel, settings.models)
    style.caption(figure, _caption(run))
    return {"temperature": figure}


def _line(
    panel: Axes,
    run: lab.Run,
    found: Result,
    score: str,
    colour: str,
    *,
    label: str | None = None,
    unit: float = 1.0,
) -> None:
    """One score of every temperature with 95% intervals, in multiples of a unit."""
    i = models.NAMES.index(score)
    panel.errorbar(
        _positions(run.settings.models),
        found.values[i] / unit,
        yerr=1.96 * found.errors[i] / unit,
        color=colour,
        marker="o",
        elinewidth=0.8,
        capsize=2,
        label=label or score,
    )


def _controls(panel: Axes, run: lab.Run, found: Result) -> None:
    """Perplexity on a logarithmic axis, the share that ended written at each point."""
    positions = _positions(run.settings.models)
    values, errors = found.controls, found.control_errors
    if np.isnan(values[0]).all():
        panel.set_axis_off()
        return
    panel.errorbar(positions, values[0], 1.96 * errors[0], color=style.BLACK, marker="o", capsize=2)
    panel.set_yscale("log")
    style.log_numbers(panel.yaxis)
    panel.set(ylabel="perplexity, model at T = 1")
    panel.margins(x=0.6, y=0.15)
    for x, perplexity, share in zip(positions, values[0], values[1], strict=True):
        if not np.isnan(share):
            words = f"{share:.0%} ended"
            panel.annotate(
                words,
                (x, perplexity),
                (-4, 4),
                textcoords="offset points",
                ha="right",
                fontsize=7.5,
            )


def _positions(names: Sequence[str]) -> list[float]:
    return places(names) or [float(i) for i in range(len(names))]


def _ticks(panel: Axes, names: Sequence[str]) -> None:
    panel.set_xticks(_positions(names), names)
    panel.set_xlabel("temperature" if places(names) else "model")


def _caption(run: lab.Run) -> str:
    """What data, n, bandwidths, rule and seed are shown, and what the errors are."""
    settings = run.settings
    found = run.results[Cell(ALL, settings.base)]
    numbers = ", ".join(f"{n:,}" for n in found.n)
    if len(set(found.n)) == 1:
        numbers = f"{found.n[0]:,} each"
    parts = [
        f"{settings.data.rstrip('.')}; n = {numbers} on {settings.prompts} "
        f"prompts; seed {run.seed}",
        "Lower left: again on stories that ended, as many of each prompt at every temperature, and "
        "on all cut to one number of words",
        choices.describe(settings.bandwidths),
    ]
    base = settings.bandwidths[settings.base]
    units = found.units.replace("rows of one prompt", "prompts")
    if base.outputs is not None:
        parts[-1] += f"; {base.outputs:.3g} (stories) and {base.prompts:.3g} (prompts)"
    parts.append(f"Bars: 95% intervals; jackknife over {found.groups} groups of {units}")
    return ". ".join(part for part in parts if part) + "."


STUDY = lab.StudyRecord(
    name="temperature",
    version=1,
    question="Does a language model's temperature raise its stories' diversity, or their nonsense?",
    reproduces="CV tables 2, 4, 5; fig 21",
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
    figures=("temperature",),
    data="stories",
    labels=("models",),
    more_labels=("prompt", *_LABELS),
    further=("truncated",),
)

if __name__ == "__main__":
    lab.main(STUDY)
