"""What does a generator's temperature do, given the prompt? Drawings by Sketch-RNN.

The papers leave out a knob whose effect on a generator is known. Here outputs of the same prompts
were made at several temperatures. What the generator adds to the prompt, Conditional-*, should rise
with the temperature, and what the outputs tell of the prompt, Information-*, should not: given the
prompts as they are embedded, in many wordings, and given the types that they name, exactly.

Whether a rise is more than noise is asked of the types: how often the nearest neighbour of an
output is of its own type, and how diverse the outputs are for which it is. Where it is known which
outputs the generator ended by itself, the same is asked of those.

    python -m experiments.sketch_temperature --samples=50
"""

from __future__ import annotations

import dataclasses
import itertools
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
from condvendi_jax.scores import clusters
from experiments import lab
from experiments.data import PairedEmbeddings, strokes
from experiments.data.sets import FOLDER, SEED
from experiments.lab import choices, models, style
from experiments.lab.study import option

DATA = "sketches"
_SAMPLES = 30
_CONDITIONAL = models.NAMES.index("Conditional-RKE")
_SHOWN = ("Conditional-Vendi", "Conditional-RKE", "Information-Vendi", "Information-RKE")
PROMPTS, TYPES = GIVEN = ("prompts", "types")
PARTS = ("recognised", "ended")
_NAME = 2.2  # Drawings that the name of a type takes the room of.
_APART = 20.0  # Bandwidths between the rows of two types: their kernel is zero.
_LOOKS = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    samples: int | None = option(
        None,
        "Outputs of each type at each temperature; as many as there are everywhere, up to "
        f"{_SAMPLES}, if unset.",
    )
    groups: int = option(8, "Groups of prompts of the jackknife.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on; `shown` says whether drawings of these data are shipped."""

    data: str
    n: int
    temperatures: tuple[str, ...]
    types: tuple[str, ...]
    samples: int
    groups: int
    shown: bool
    bandwidths: dict[str, choices.Bandwidths]

    @property
    def base(self) -> str:
        """The scale that is drawn where one is."""
        return choices.shown(self.bandwidths)


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is given, of `GIVEN`, and one multiple of the bandwidths."""

    given: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Result(models.ModelScores):
    """The scores of the temperatures, which are the models, and what a control says.

    Attributes:
      by_type: RKE of the outputs of each type, `[types, temperatures]`.
      known: share of the outputs of each type whose nearest neighbour at their own temperature is
        of that type, `[types, temperatures]`.
      alike: the same of the neighbours at the lowest temperature.
      kept: how many outputs a temperature are of each part of PARTS, of each type as many as are at
        every temperature, `[parts]`.
      of_kept: Conditional-RKE of those, and its standard error, `[parts, 2, temperatures]`; NaN
        where they are too few.
    """

    by_type: np.ndarray
    known: np.ndarray
    alike: np.ndarray
    kept: np.ndarray
    of_kept: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the temperatures and types, and takes as many outputs of each."""
    validation.check_count(options.groups, name="--groups", minimum=2)
    pairs = load()
    ended = pairs.labels.get("ended")
    if ended is not None and not np.isin(ended, (0, 1)).all():
        raise ValueError(f"--ended: expected 0 or 1 for each output, received {ended.dtype}.")
    temperatures = _rising(pairs.labels["models"])
    types = np.unique(pairs.labels["types"].astype(str)).tolist()
    if len(types) < 2:
        raise ValueError(f"--types: expected at least two types, received {', '.join(types)}.")
    of = {
        (kind, word): np.flatnonzero(
            (pairs.labels["types"].astype(str) == kind)
            & (pairs.labels["models"].astype(str) == word)
        )
        for word in temperatures
        for kind in types
    }
    fewest, (kind, word) = min((len(rows), name) for name, rows in of.items())
    samples = min(fewest, _SAMPLES) if options.samples is None else options.samples
    validation.check_count(samples, name="--samples", minimum=2)
    if samples > fewest:
        raise ValueError(
            f"--samples: received {samples}, but there are {fewest} of the type {kind} at "
            f"temperature {word}."
        )
    chosen = pairs.rows(np.concatenate([rows[:samples] for rows in of.values()]))
    settings = Settings(
        data=pairs.description,
        n=len(types) * samples,
        temperatures=tuple(temperatures),
        types=tuple(types),
        samples=samples,
        groups=options.groups,
        shown=pairs.name == DATA and "prompt" in pairs.labels,
        bandwidths=choices.choose_scaled(chosen, options, seed),
    )
    roles = ("outputs", "prompts", "types", "models", "ended")
    arrays = {role: chosen.arrays[role] for role in roles if role in chosen.arrays}
    return lab.Setup(settings, arrays, state=chosen)


def _rising(labels: np.ndarray) -> list[str]:
    """The temperatures from the lowest to the highest, as they are written.

    Raises:
      ValueError: one is no finite number, or there are fewer than two.
    """
    words = np.unique(labels.astype(str)).tolist()
    for word in words:
        try:
            bad = not math.isfinite(float(word))
        except ValueError:
            bad = True
        if bad:
            raise ValueError(f"--models: expected temperatures, finite numbers, received {word!r}.")
    if len(words) < 2:
        raise ValueError(f"--models: expected at least two temperatures, received {words[0]}.")
    return sorted(words, key=float)


def cells(settings: Settings) -> list[Cell]:
    """Both at every multiple of the bandwidths."""
    return [Cell(given, scale) for scale in settings.bandwidths for given in GIVEN]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Result:
    """All scores of all temperatures with errors, by type, and of the recognised outputs."""
    settings, pairs = setup.settings, setup.state
    bandwidths = settings.bandwidths[cell.scale]
    count, each = len(settings.temperatures), (len(settings.types), settings.samples)
    types = np.repeat(np.arange(each[0]), each[1])
    outputs = pairs.outputs.reshape(count, settings.n, -1)
    prompts = pairs.prompts.reshape(count, settings.n, -1)
    if cell.given == TYPES:
        apart = np.eye(each[0], dtype=np.float32) * _APART * (bandwidths.prompts or 1.0)
        prompts = np.broadcast_to(apart[types], (count, settings.n, each[0]))
    seed = int(jax.random.randint(context.shared_key, (), 0, 2**31 - 1))
    scores = models.score_models(
        dict(zip(settings.temperatures, outputs, strict=True)),
        dict(zip(settings.temperatures, prompts, strict=True)),
        bandwidths,
        groups=settings.groups,
        seed=seed,
        say=context.say,
    )
    context.say("types and neighbours")
    kernels: dict[str, Any] = bandwidths.kernels()
    numbers = np.repeat(np.arange(count * each[0]), each[1])
    found = clusters.scores_by_cluster(
        pairs.outputs, numbers, kernel=kernels["output_kernel"], order=2
    )
    known = np.stack([recognised(own, types) for own in outputs])
    alike = np.stack([known[0], *(recognised(o, types, outputs[0]) for o in outputs[1:])])
    ended = pairs.labels.get("ended", np.zeros(len(pairs))).reshape(count, -1) == 1
    kept = [balanced(part, types) for part in (known, ended)]
    return Result(
        **{f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)},
        by_type=np.asarray(found.scores, float).reshape(count, -1).T,
        known=known.reshape(count, *each).mean(axis=-1).T,
        alike=alike.reshape(count, *each).mean(axis=-1).T,
        kept=np.array([len(rows[0]) for rows in kept]),
        of_kept=np.array(
            [
                [
                    _conditional(outputs[t, own], prompts[t, own], kernels, settings.groups, seed)
                    for t, own in enumerate(rows)
                ]
                for rows in kept
            ]
        ).swapaxes(1, 2),
    )


def recognised(
    outputs: np.ndarray, types: np.ndarray, examples: np.ndarray | None = None
) -> np.ndarray:
    """Whether the nearest neighbour of each output is of its type, `[n]`.

    Args:
      outputs: `[n, d]`.
      types: of the outputs and of the examples, `[n]`.
      examples: among which neighbours are sought; the other outputs where None.
    """
    among = outputs if examples is None else examples
    distances = np.sum(among**2, axis=1) - 2 * outputs @ among.T  # Less what a row has in common.
    if examples is None:
        np.fill_diagonal(distances, np.inf)
    return types[distances.argmin(axis=1)] == types


def balanced(part: np.ndarray, types: np.ndarray) -> list[np.ndarray]:
    """Rows of a part of the outputs, equally many of each type at every temperature.

    Args:
      part: whether a row belongs to it, `[temperatures, n]`.
      types: of the rows, numbered from 0, `[n]`.
    """
    counts = np.array([np.bincount(types[own], minlength=types.max() + 1) for own in part])
    fewest = counts.min(axis=0)
    return [
        np.concatenate(
            [np.flatnonzero(own & (types == kind))[:most] for kind, most in enumerate(fewest)]
        )
        for own in part
    ]


def _conditional(
    outputs: np.ndarray, prompts: np.ndarray, kernels: dict[str, Any], groups: int, seed: int
) -> tuple[float, float]:
    """Conditional-RKE and its standard error."""
    distinct = len({row.tobytes() for row in prompts})
    if distinct < 3:
        return np.nan, np.nan
    groups, key = min(groups, distinct), jax.random.key(seed)
    error = cv.decomposition_errors(outputs, prompts, order=2, groups=groups, key=key, **kernels)
    return float(cv.conditional_rke(outputs, prompts, **kernels)), float(error.conditional)


def over_types(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over types of `[types, ...]`."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def rising(by_type: np.ndarray) -> int:
    """How many types have more modes at the highest temperature than at the lowest."""
    return int(np.sum(by_type[:, -1] > by_type[:, 0]))


def table(run: lab.Run) -> Table:
    """Every temperature at every multiple; steps say whether neighbours can be told apart."""
    settings: Settings = run.settings
    grid = Table("bandwidths", "", *settings.temperatures, "steps up, down", "highest - lowest")
    for cell, found in run.results.items():
        what = f"{cell.scale}, given the {cell.given}"
        for index, name in enumerate(models.NAMES):
            cells = map(report.with_error, found.values[index], found.errors[index])
            up, down = steps(found, index)
            whole = report.with_error(
                found.differences[index, -1, 0], found.difference_errors[index, -1, 0]
            )
            p_value = models.p_in_words(found.p_values[index, -1, 0])
            words = f"{up}, {down} of {len(found.models) - 1}", f"{whole}, {p_value}"
            grid.add_row(what, name, *cells, *words)
        for part, kept, of_kept in zip(PARTS, found.kept, found.of_kept, strict=True):
            cells = map(report.with_error, *of_kept)
            grid.add_row(what, f"Conditional-RKE of {kept:,} {part}", *cells)
    for scale in settings.bandwidths:
        by_type = run.results[Cell(TYPES, scale)].by_type
        more = f"{rising(by_type)} of {len(settings.types)} types rise"
        cells = map(report.with_error, *over_types(by_type))
        grid.add_row(scale, "RKE of a type", *cells, more)
    found = run.results[Cell(TYPES, settings.base)]
    for words, values in _controls(found).items():
        cells = map(report.with_error, *over_types(values))
        grid.add_row("-", f"nearest neighbour {words}", *cells)
    return grid


def _controls(found: Result) -> dict[str, np.ndarray]:
    return {"at its own temperature": found.known, "at the lowest one": found.alike}


def steps(found: models.ModelScores, index: int) -> tuple[int, int]:
    """How many steps to the next temperature a test tells to raise a score, and to lower it."""
    one, two = np.arange(len(found.models) - 1), np.arange(1, len(found.models))
    apart = found.p_values[index, two, one] <= models.LEVEL
    change = found.differences[index, two, one]
    return int(np.sum(apart & (change > 0))), int(np.sum(apart & (change < 0)))


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The curves against the temperature; and drawings, where they are shipped."""
    (run,) = runs
    figures = {"sketch_temperature": _curves(run)}
    if run.settings.shown:
        figures["sketch_drawings"] = _drawings(run.settings)
    return figures


def _curves(run: lab.Run) -> Figure:
    """Scores given the prompts, and given the types; below, types and recognition."""
    settings: Settings = run.settings
    x = np.array(settings.temperatures, float)
    figure, axes = style.panels(12, columns=4, size=(2.9, 2.5))
    for panel, (given, name) in zip(axes, itertools.product(GIVEN, _SHOWN), strict=False):
        index, colour = models.NAMES.index(name), style.score_colour(name)
        for scale, (line, marker) in zip(settings.bandwidths, _LOOKS, strict=False):
            found = run.results[Cell(given, scale)]
            value, error = found.values[index], found.errors[index]
            look: dict[str, Any] = {"linestyle": line, "marker": marker, "color": colour}
            panel.plot(x, value / value[0], label=f"bandwidths x {scale}", **look)
            panel.errorbar(x, value / value[0], 1.96 * error / value[0], fmt="none", ecolor=colour)
        panel.set_title(f"{name}, given the {given}")
    style.legend_above(figure, axes[0])
    for panel in (axes[0], axes[4]):
        panel.set_ylabel("score / that of the lowest")
    found = run.results[Cell(TYPES, settings.base)]
    _types(axes[8], x, found.by_type)
    for (words, values), colour in zip(_controls(found).items(), style.CYCLE, strict=False):
        mean, error = over_types(values)
        axes[9].errorbar(x, mean, 1.96 * error, marker="o", color=colour, label=words)
    axes[9].axhline(1 / len(settings.types), color=style.GREY, linewidth=0.8, linestyle=":")
    axes[9].set(title="nearest neighbour of the same type", ylim=(0, 1.05))
    axes[9].legend(loc="lower left")
    _left(axes[10], x, found)
    _against(axes[11], found, settings)
    for panel in axes[:11]:
        panel.set_xlabel("temperature")
    for panel, (given, name) in zip(axes, itertools.product(GIVEN, _SHOWN), strict=False):
        for line, scale in zip(panel.get_lines(), settings.bandwidths, strict=False):
            value = run.results[Cell(given, scale)].values[models.NAMES.index(name)]
            line.set_label(f"{value[0]:.3g}\nto {value[-1]:.3g}")
    style.label_lines(*axes[:8], gap=2.8)
    style.caption(figure, _caption(run))
    return figure


def _types(panel: Axes, x: np.ndarray, by_type: np.ndarray) -> None:
    panel.plot(x, by_type.T, color=style.GREY, linewidth=0.6, alpha=0.7)
    mean, error = over_types(by_type)
    panel.errorbar(x, mean, 1.96 * error, color=style.BLACK, marker="o")
    panel.set(title=f"RKE of each type: {rising(by_type)} of {len(by_type)} rise", ylim=(0, None))


def _left(panel: Axes, x: np.ndarray, found: Result) -> None:
    """Conditional-RKE of all outputs and of the parts, over the value at the lowest."""
    every = np.stack([found.values[_CONDITIONAL], found.errors[_CONDITIONAL]])
    parts = {"all": every, **dict(zip(PARTS, found.of_kept, strict=True))}
    colours = (style.score_colour("Conditional-RKE"), style.GREEN, style.PINK)
    for (words, (value, error)), colour in zip(parts.items(), colours, strict=True):
        panel.errorbar(
            x, value / value[0], 1.96 * error / value[0], marker="o", color=colour, label=words
        )
    panel.set_title("Conditional-RKE given types, of parts")
    panel.set_ylabel("score / that of the lowest")
    panel.margins(y=0.25)  # Room for the legend.
    panel.legend(loc="upper left", ncols=2)


def _against(panel: Axes, found: Result, settings: Settings) -> None:
    """What diversity costs: recognition against Conditional-RKE, a point a temperature."""
    value, (known, _) = found.values[_CONDITIONAL], over_types(found.known)
    panel.plot(value, known, "-o", color=style.BLUE)
    for word, place in zip(settings.temperatures, zip(value, known, strict=True), strict=True):
        panel.annotate(word, place, (4, 4), textcoords="offset points", fontsize=7)
    panel.set(
        title="a point a temperature",
        xlabel="Conditional-RKE given the types",
        ylabel="share of the same type",
    )


def _caption(run: lab.Run) -> str:
    settings: Settings = run.settings
    of_prompts, found = (run.results[Cell(given, settings.base)] for given in GIVEN)
    used = settings.bandwidths[settings.base]
    widths = "Cosine kernel"
    if used.outputs is not None:
        widths = f"At 1: {used.outputs:.3g} (outputs) and {used.prompts:.3g} (prompts)"
    return (
        f"{settings.data.rstrip('.')}. {settings.samples} outputs of each of "
        f"{len(settings.types)} types at each temperature, n = {settings.n:,}; seed {run.seed}. "
        f"{choices.describe(settings.bandwidths)}. {widths}, as in the lower row. At the "
        "curves: the scores at the lowest and at the highest temperature. Bars: 95% "
        f"intervals, of scores by the jackknife over {of_prompts.groups} groups of prompts, or "
        f"{found.groups} of types, in the lower row over types (grey: each type; dotted: chance). "
        "Neighbours are sought among "
        "outputs of all types at the output's own temperature, or at the lowest. Recognised: the "
        f"first is of the output's type, {found.kept[0]:,} a temperature; ended: by the generator, "
        f"{found.kept[1]:,} a temperature; of each type as many as are at every temperature."
    )


def _drawings(settings: Settings) -> Figure:
    """The first drawing of every type at every temperature."""
    drawings = strokes.read(FOLDER / "drawings" / f"{DATA}.json")
    columns = 3
    rows = -(-len(settings.types) // columns)
    wide = len(settings.temperatures) + _NAME
    figure = Figure(figsize=(0.47 * wide * columns, 0.47 * (rows + 2)), layout="constrained")
    panel = figure.subplots()
    for index, kind in enumerate(settings.types):
        column, row = divmod(index, rows)
        panel.text(
            column * wide + _NAME - 0.2, row + 0.5, kind, ha="right", va="center", fontsize=7.5
        )
        for place, word in enumerate(settings.temperatures):
            left = column * wide + _NAME + place
            if row == 0:
                panel.text(left + 0.5, -0.2, word, ha="center", fontsize=7.5)
            for line in drawings[kind, word]:
                x, y = (0.08 + 0.84 * line).T
                panel.plot(left + x, row + y, color=style.BLACK, linewidth=0.6)
    panel.set(xlim=(0, columns * wide), ylim=(rows, -0.5), aspect="equal")
    panel.set_axis_off()
    style.caption(
        figure,
        "One drawing by Sketch-RNN (weights: github.com/hardmaru/sema-demo) of every class at "
        f"every temperature, the first of each that was drawn (seed {SEED}); each fitted to its "
        f"square. {settings.data.rstrip('.')}.",
    )
    return figure


STUDY = lab.StudyRecord(
    name="sketch_temperature",
    version=1,
    question="What does a generator's temperature do to the scores, given the prompt?",
    reproduces="-",
    duration="1 minute",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Result,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    data=DATA,
    labels=("types", "models"),
    more_labels=("ended",),
    committed=((),),
    figures=("sketch_temperature", "sketch_drawings"),
)


if __name__ == "__main__":
    lab.main(STUDY)
