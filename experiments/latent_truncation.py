"""What truncating a generator's latents does to the scores: RKE figure 2.

Outputs of the same types were made at several settings of a knob: latents multiplied by psi, or a
temperature. RKE-MC of all of them, as the paper has it, and what the paper does not ask: how much
of it is within a type, where the knob works, and what Conditional- and Information-* say of it.

    python -m experiments.latent_truncation --data=sketches
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
from scipy import stats

from condvendi_jax import validation
from condvendi_jax.scores import clusters
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.data.sets import FOLDER, SEED
from experiments.lab import agreement, choices, models, style
from experiments.lab.study import option

DATA = "quickdraw"
_LARGEST = 900  # Pairs at one setting of the knob, by default.
_CURVES = models.NAMES
_DRAWINGS = FOLDER / "drawings" / f"{DATA}.npz"
# What the knob of a shipped set is; of others it is 'knob'.
_KNOBS = {"quickdraw": "psi", "sketches": "temperature"}


@dataclasses.dataclass(frozen=True)
class Options(choices.ScaledOptions):
    """The flags of the study."""

    samples: int | None = option(
        None,
        "Outputs of each type at each setting; as many as there are everywhere, up to "
        f"{_LARGEST} in all, if unset.",
    )
    groups: int = option(8, "Groups of prompts of the jackknife.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on; `knob` is its name, `values` its settings, rising."""

    data: str
    knob: str
    values: tuple[float, ...]
    types: tuple[str, ...]
    samples: int
    groups: int
    bandwidths: dict[str, choices.Bandwidths]

    @property
    def n(self) -> int:
        """How many pairs there are at each setting."""
        return len(self.types) * self.samples

    @property
    def base(self) -> str:
        """The bandwidths that are drawn where only some are."""
        return choices.shown(self.bandwidths)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One multiple of the bandwidths."""

    scale: str


@dataclasses.dataclass(frozen=True)
class Scores(models.ModelScores):
    """The scores at every setting, as of so many models, and those within each type.

    Attributes:
      by_type: RKE of the outputs of each type, `[types, settings]`.
    """

    by_type: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the knob and the types, and takes as many outputs of each."""
    validation.check_count(options.groups, name="--groups", minimum=2)
    pairs = load()
    values = knob_values(pairs.labels["models"])
    kinds = pairs.labels["types"].astype(str)
    knob, types = np.unique(values), np.unique(kinds)
    if len(knob) < 2:
        raise ValueError(f"--models: expected at least two settings, received {knob[0]:g}.")
    rows = {(v, t): np.flatnonzero((values == v) & (kinds == t)) for v in knob for t in types}
    fewest, (value, kind) = min((len(found), name) for name, found in rows.items())
    usual = max(2, min(fewest, _LARGEST // len(types)))
    samples = usual if options.samples is None else options.samples
    validation.check_count(samples, name="--samples", minimum=2)
    if samples > fewest:
        raise ValueError(
            f"--samples: expected at most {fewest}, of which there are of the type {kind} at "
            f"{value:g}, received {samples}."
        )
    chosen = pairs.rows(np.concatenate([found[:samples] for found in rows.values()]))
    settings = Settings(
        data=pairs.description,
        knob=_KNOBS.get(pairs.name, "knob"),
        values=tuple(knob.tolist()),
        types=tuple(types.tolist()),
        samples=samples,
        groups=options.groups,
        bandwidths=choices.choose_scaled(chosen, options, seed),
    )
    roles = ("outputs", "prompts", "types", "models")
    return lab.Setup(settings, {role: chosen.arrays[role] for role in roles}, state=chosen)


def knob_values(labels: np.ndarray) -> np.ndarray:
    """Labels `[n]` as numbers.

    Raises:
      ValueError: one is no finite number.
    """
    words, index = np.unique(labels.astype(str), return_inverse=True)
    for word in words.tolist():
        try:
            bad = not math.isfinite(float(word))
        except ValueError:
            bad = True
        if bad:
            raise ValueError(f"--models: expected settings of a knob, numbers, received {word!r}.")
    return words.astype(float)[index]


def cells(settings: Settings) -> list[Cell]:
    """Every multiple of the bandwidths."""
    return [Cell(scale) for scale in settings.bandwidths]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scores:
    """All scores of all settings with errors, and RKE within every type."""
    settings, pairs = setup.settings, setup.state
    bandwidths = settings.bandwidths[cell.scale]
    names = [f"{value:g}" for value in settings.values]
    shape = (len(names), settings.n, -1)
    found = models.score_models(
        dict(zip(names, pairs.outputs.reshape(shape), strict=True)),
        dict(zip(names, pairs.prompts.reshape(shape), strict=True)),
        bandwidths,
        groups=settings.groups,
        seed=int(jax.random.randint(context.shared_key, (), 0, 2**31 - 1)),
        say=context.say,
    )
    context.say("types")
    kernels: dict[str, Any] = bandwidths.kernels()
    number = np.repeat(np.arange(len(names) * len(settings.types)), settings.samples)
    within = clusters.scores_by_cluster(
        pairs.outputs, number, kernel=kernels["output_kernel"], order=2
    )
    return Scores(
        **{f.name: getattr(found, f.name) for f in dataclasses.fields(found)},
        by_type=np.asarray(within.scores, float).reshape(len(names), -1).T,
    )


@dataclasses.dataclass(frozen=True)
class Trend:
    """How RKE within a type follows the knob, over the types.

    Attributes:
      mean: over the types, `[settings]`.
      error: its standard error, types as units, `[settings]`.
      correlation: mean over the types of the rank correlation of RKE and the knob.
      interval: of that mean at 95%, by Student's t over the types.
    """

    mean: np.ndarray
    error: np.ndarray
    correlation: float
    interval: tuple[float, float]


def trend(found: Scores, values: Sequence[float]) -> Trend:
    """What the RKE of the types says of the knob; types that never change are left out."""
    each = agreement.spearman(found.by_type, np.asarray(values), 2.0)
    each = each[~np.isnan(each)]
    count = len(each)
    half = 0.0
    if count > 1:
        half = float(stats.t.ppf(0.975, count - 1) * stats.sem(each))
    error = np.full(len(values), np.nan) if count < 2 else stats.sem(found.by_type, axis=0)
    mean = float(each.mean()) if count else math.nan
    return Trend(found.by_type.mean(axis=0), error, mean, (mean - half, mean + half))


def table(run: lab.Run) -> Table:
    """Every score at every setting, and how RKE within a type follows the knob."""
    settings: Settings = run.settings
    grid = Table("bandwidths", settings.knob, *_CURVES, "RKE within a type", "rank correlation")
    for cell, found in run.results.items():
        within = trend(found, settings.values)
        low, high = within.interval
        for at, value in enumerate(settings.values):
            scores = (
                f"{found.values[row, at]:.4g} ± {found.errors[row, at]:.2g}"
                for row in range(len(_CURVES))
            )
            grid.add_row(
                cell.scale,
                f"{value:g}",
                *scores,
                f"{within.mean[at]:.3f} ± {within.error[at]:.2g}",
                "" if at else f"{within.correlation:.2f} ({low:.2f} to {high:.2f})",
            )
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """RKE-MC as the paper has it, every score at every bandwidth, and drawings by the knob."""
    figures = {"latent_truncation": _as_printed(runs), "latent_truncation_scores": _scores(runs)}
    known = next((run for run in runs if run.settings.knob == _KNOBS[DATA]), None)
    if known is not None and _DRAWINGS.exists():
        figures["latent_truncation_drawings"] = _drawings(known)
    return figures


def _as_printed(runs: Sequence[lab.Run]) -> Figure:
    """A row a generator: RKE-MC of all its outputs against the knob, and within a type."""
    figure, axes = style.panels(2 * len(runs), columns=2, size=(4.6, 3.1))
    for run, whole, within in zip(runs, axes[::2], axes[1::2], strict=True):
        settings: Settings = run.settings
        row = models.NAMES.index("RKE")
        for index, (cell, found) in enumerate(run.results.items()):
            look = {
                "color": style.CYCLE[index],
                "marker": style.MARKERS[index],
                "capsize": 2,
                "label": f"{cell.scale} x bandwidth",
            }
            of_types = trend(found, settings.values)
            whole.errorbar(settings.values, found.values[row], 2 * found.errors[row], **look)
            within.errorbar(settings.values, of_types.mean, 2 * of_types.error, **look)
        whole.set(title=f"{_generator(run)}: all {len(settings.types)} types", ylabel="RKE-MC")
        within.set(title="within a type, mean over types", ylabel="RKE-MC")
        for panel in (whole, within):
            _logarithmic(panel, settings.knob)
    style.legend_above(figure, axes[0], columns=3)
    style.caption(figure, _caption(runs))
    return figure


def _scores(runs: Sequence[lab.Run]) -> Figure:
    """A row a generator, a column a multiple of the bandwidths."""
    columns = max(len(run.settings.bandwidths) for run in runs)
    figure = Figure(figsize=(3.7 * columns, 3.1 * len(runs)), layout="constrained")
    grid = figure.subplots(len(runs), columns, squeeze=False)
    for run, row in zip(runs, grid, strict=True):
        for panel, (cell, found) in zip(row, run.results.items(), strict=False):
            _panel(panel, found, run.settings)
            panel.set_title(f"{_generator(run)}, {cell.scale} x bandwidth")
        for panel in row[len(run.results) :]:
            panel.remove()
        row[0].set_ylabel("effective number of modes")
    style.legend_above(figure, grid[0, 0], columns=6)
    style.caption(figure, _caption(runs))
    return figure


def _panel(axes: Axes, found: Scores, settings: Settings) -> None:
    for row, name in enumerate(_CURVES):
        axes.errorbar(
            settings.values,
            found.values[row],
            2 * found.errors[row],
            color=style.score_colour(name),
            marker=style.MARKERS[row % len(style.MARKERS)],
            linestyle="-" if "Vendi" in name else "--",
            capsize=2,
            label=name,
        )
    _logarithmic(axes, settings.knob)


def _logarithmic(axes: Axes, knob: str) -> None:
    """Scores on a logarithmic axis with 1, 2, 3 and 5 of every decade written out."""
    style.log_axis(axes, (1.0, 2.0, 3.0, 5.0))
    axes.set_xlabel(knob)


def _drawings(run: lab.Run) -> Figure:
    """A row a setting, a column a drawing: the same latents down a column."""
    with np.load(_DRAWINGS, allow_pickle=False) as stored:
        ink, types, words = stored["ink"], stored["types"], stored["models"]
    rows, classes, draws = ink.shape[:3]
    figure = Figure(figsize=(0.52 * classes * draws, 0.56 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, classes * draws, squeeze=False)
    for row, (panels, word) in enumerate(zip(grid, words, strict=True)):
        for column, axes in enumerate(panels):
            axes.imshow(255 - ink[row, column // draws, column % draws], cmap="gray", vmin=0)
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(False)
            if row == 0 and column % draws == 0:
                axes.set_title(str(types[column // draws]), loc="left", fontsize=7.5)
        panels[0].set_ylabel(f"{run.settings.knob} {word}", rotation=0, ha="right", va="center")
    style.caption(
        figure,
        f"Drawings by the conditional VAE of {classes} of its {len(run.settings.types)} classes, "
        f"the first {draws} of each (seed {SEED}); down a column the same latents multiplied by "
        f"{run.settings.knob}. {run.settings.data.rstrip('.')}.",
    )
    return figure


def _generator(run: lab.Run) -> str:
    return {"psi": "conditional VAE", "temperature": "Sketch-RNN"}.get(
        run.settings.knob, "generator"
    )


def _caption(runs: Sequence[lab.Run]) -> str:
    """What data, n, bandwidths, errors and seed are shown."""
    parts = [f"{run.settings.data.rstrip('.')}; n = {run.settings.n:,} a setting" for run in runs]
    first = next(iter(runs[0].results.values()))
    parts.append(
        f"Bars are two standard errors: by the jackknife over {first.groups} groups of "
        f"{first.units}, and within a type over the types; seed {runs[0].seed}"
    )
    widths = [
        f"of {_generator(run)} {base.outputs:.3g} (outputs) and {base.prompts:.3g} (prompts)"
        for run in runs
        if (base := run.settings.bandwidths[run.settings.base]).outputs is not None
    ]
    if widths:
        parts.append(f"Bandwidths {', '.join(widths)}")
    parts.append(choices.describe(runs[0].settings.bandwidths))
    return ". ".join(filter(None, parts)) + "."


STUDY = lab.StudyRecord(
    name="latent_truncation",
    version=1,
    question="What does truncating a generator's latents, or its temperature, do to the scores?",
    reproduces="RKE fig 2",
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
    committed=((), ("--data=sketches",)),
    figures=("latent_truncation", "latent_truncation_scores", "latent_truncation_drawings"),
    data=DATA,
    labels=("types", "models"),
)


if __name__ == "__main__":
    lab.main(STUDY)
