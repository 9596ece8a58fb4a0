"""Mixtures of prompts and of outputs, more components of one against fixed ones: CV figure 11.

Points of two Gaussian mixtures in the plane are paired by the matching of least total weight. With
more modes of prompts a prompt says more of its output; with more modes of outputs the model adds
more. The geometry is the nearest that `gmm_search` found to the scores that the paper prints.

    python -m experiments.gmm_toy --repeats=20
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax import validation
from experiments import gmm_search, lab
from experiments.data import PairedEmbeddings
from experiments.generators.mixtures2d import LAYOUTS, WEIGHTS, Geometry, draw_pairs
from experiments.gmm_search import PRINTED
from experiments.lab import choices, runner, store, style
from experiments.lab.study import option, positive, typed

ORDERS = (1.0, 2.0)
_ROWS = ("prompts", "outputs")
_NO_POINTS = np.zeros((0, 2, 2), np.float16)


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    prompt_modes: tuple[int, ...] = option(
        (1, 2, 3, 4), "Components of the prompts, beside --outputs_fixed of the outputs."
    )
    output_modes: tuple[int, ...] = option(
        (2, 3, 4, 5, 6), "Components of the outputs, beside --prompts_fixed of the prompts."
    )
    outputs_fixed: int = option(4, "Components of the outputs while those of the prompts vary.")
    prompts_fixed: int = option(2, "Components of the prompts while those of the outputs vary.")
    shown: tuple[int, ...] | None = option(
        None, "Those of --output_modes that are scatter panels; 2, 3, 4 and 6 if unset, or all."
    )
    geometry: str | None = option(
        None, "A JSON file of a geometry; the nearest of the committed search if unset."
    )
    n: int = option(1000, "Pairs.")
    bandwidth: float = option(0.6, "Of both kernels, in the units of the plane.")
    scales: tuple[float, ...] = option(choices.SCALES, "Multiples of it; the panels are at 1.")
    repeats: int = option(10, "Draws of every mixture.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the scores depend on."""

    geometry: Geometry
    source: str
    prompt_modes: tuple[int, ...]
    output_modes: tuple[int, ...]
    outputs_fixed: int
    prompts_fixed: int
    shown: tuple[int, ...]
    n: int
    bandwidth: float
    scales: tuple[float, ...]
    repeats: int

    def row(self, name: str) -> list[tuple[int, int]]:
        """The components (of prompts, of outputs) of the row in which those of one vary."""
        if name == "prompts":
            return [(modes, self.outputs_fixed) for modes in self.prompt_modes]
        return [(self.prompts_fixed, modes) for modes in self.output_modes]


@dataclasses.dataclass(frozen=True)
class Cell:
    """The components of both mixtures, and one draw."""

    prompts: int
    outputs: int
    repeat: int


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of one draw.

    Attributes:
      scores: Conditional- and Information-Vendi, then -RKE, at every bandwidth,
        `[scales, orders, 2]`.
      points: of the first draw, for the panels: outputs and prompts `[n, 2, 2]`; of others none.
      modes: the components of `points`, `[n, 2]`.
    """

    scores: np.ndarray
    points: np.ndarray
    modes: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options and reads the geometry."""
    for name in ("n", "repeats", "outputs_fixed", "prompts_fixed"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=1)
    for name in ("prompt_modes", "output_modes"):
        modes = getattr(options, name)
        if min(modes) < 1 or list(modes) != sorted(set(modes)):
            raise ValueError(
                f"--{name}: expected ascending numbers from 1, received {_listed(modes)}."
            )
    fixed = options.outputs_fixed, options.prompts_fixed
    most = max(*options.prompt_modes, *options.output_modes, *fixed)
    if options.n < most:
        raise ValueError(f"--n: expected at least one pair a mode, {most}, received {options.n}.")
    usual = tuple(m for m in options.output_modes if m != 5)
    shown = options.shown or (usual if len(usual) == 4 else options.output_modes)
    if not set(shown) <= set(options.output_modes):
        raise ValueError(
            f"--shown: expected some of --output_modes, {_listed(options.output_modes)}, received "
            f"{_listed(shown)}."
        )
    scales = tuple(positive(scale, name="scales") for scale in options.scales)
    if 1.0 not in scales:
        raise ValueError(f"--scales: expected 1 among them, received {_listed(scales)}.")
    geometry = read_geometry(options.geometry)
    settings = Settings(
        geometry=geometry,
        source="the nearest of the committed search" if options.geometry is None else "given",
        prompt_modes=options.prompt_modes,
        output_modes=options.output_modes,
        outputs_fixed=options.outputs_fixed,
        prompts_fixed=options.prompts_fixed,
        shown=shown,
        n=options.n,
        bandwidth=positive(options.bandwidth, name="bandwidth"),
        scales=scales,
        repeats=options.repeats,
    )
    numbers = [geometry.extent, *geometry.prompt_spreads, *geometry.output_spreads]
    return lab.Setup(settings, {"geometry": np.array(numbers)})


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def read_geometry(path: str | None) -> Geometry:
    """The geometry of a file, or the nearest of the committed search.

    Raises:
      ValueError: the file is no geometry, or there is no whole search.
    """
    if path is None:
        study = gmm_search.STUDY
        return gmm_search.nearest(store.read_run(runner.COMMITTED / study.name, study))
    try:
        geometry = typed(Geometry, json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
        numbers = [geometry.extent, *geometry.prompt_spreads, *geometry.output_spreads]
        if geometry.layout not in LAYOUTS or geometry.weight not in WEIGHTS:
            raise ValueError(f"{geometry.layout}, {geometry.weight}: unknown")
        if len(numbers) != 7 or not np.all(np.isfinite(numbers)) or min(numbers) <= 0:
            raise ValueError("an extent and twice three spreads above 0")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--geometry: {path}: expected layout, extent, prompt_spreads, output_spreads and "
            f"weight ({error})."
        ) from error
    return geometry


def cells(settings: Settings) -> list[Cell]:
    """The panels of both rows, each once, in every draw."""
    panels = dict.fromkeys(panel for name in _ROWS for panel in settings.row(name))
    return [Cell(*panel, repeat) for panel in panels for repeat in range(settings.repeats)]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Scores:
    """Draws, pairs and scores one panel."""
    settings: Settings = setup.settings
    outputs = settings.geometry.outputs(cell.outputs)
    prompts = settings.geometry.prompts(cell.prompts)
    pairs = draw_pairs(outputs, prompts, context.key, settings.n, settings.geometry.weight)
    scores = []
    for scale in settings.scales:
        kernel = cv.Gaussian(scale * settings.bandwidth)
        for order in ORDERS:
            found = cv.decompose(
                pairs.outputs,
                pairs.prompts,
                output_kernel=kernel,
                prompt_kernel=kernel,
                order=order,
                method=cv.Exact(),
            )
            scores.append((float(found.conditional), float(found.information)))
    first = cell.repeat == 0
    points = np.stack([pairs.outputs, pairs.prompts], axis=1).astype(np.float16)
    modes = np.stack([pairs.output_modes, pairs.prompt_modes], axis=1).astype(np.int8)
    return Scores(
        np.array(scores).reshape(len(settings.scales), len(ORDERS), 2),
        points if first else _NO_POINTS,
        modes if first else np.zeros((0, 2), np.int8),
    )


def scores(run: lab.Run, prompts: int, outputs: int) -> np.ndarray:
    """The scores of every draw of a panel, `[repeats, scales, orders, 2]`."""
    return np.stack(
        [f.scores for c, f in run.results.items() if (c.prompts, c.outputs) == (prompts, outputs)]
    )


def table(run: lab.Run) -> Table:
    """Means and standard deviations of one draw, beside what is printed."""
    settings: Settings = run.settings
    printed = {(p.prompts, p.outputs): (p.conditional, p.information) for p in PRINTED}
    names = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")
    grid = Table("bandwidth", "prompts", "outputs", *names, "printed")
    for at, scale in enumerate(settings.scales):
        for panel in dict.fromkeys(panel for name in _ROWS for panel in settings.row(name)):
            found = scores(run, *panel)[:, at].reshape(settings.repeats, -1)
            spread = found.std(axis=0, ddof=1) if len(found) > 1 else np.full(4, np.nan)
            means = zip(found.mean(axis=0), spread, strict=True)
            beside = printed.get(panel) if scale == 1 else None
            grid.add_row(
                f"{scale * settings.bandwidth:g}",
                *map(str, panel),
                *(f"{mean:.2f} ± {sd:.2f}" for mean, sd in means),
                "" if beside is None else f"{beside[0]:.2f}, {beside[1]:.2f}",
            )
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The panels of the paper, and the whole curves at every bandwidth."""
    return {"gmm_toy": _panels(runs[-1]), "gmm_toy_curves": _curves(runs[-1])}


def _panels(run: lab.Run) -> Figure:
    """A pair of axes a panel, prompts above outputs, as CV fig 11 has them."""
    settings: Settings = run.settings
    rows = [settings.row("prompts"), [(settings.prompts_fixed, m) for m in settings.shown]]
    columns = max(map(len, rows))
    figure = Figure(figsize=(2.9 * columns, 11.8), layout="constrained")
    grid = figure.subplots(4, columns, squeeze=False)
    for pair, panels in zip((grid[:2], grid[2:]), rows, strict=True):
        for (above, below), panel in zip(pair.T, panels, strict=False):
            _scatter(above, below, run, *panel)
        points = [run.results[Cell(*panel, 0)].points for panel in panels]
        edge = 1.05 * float(np.max(np.abs(np.stack(points))))
        for axes in pair.flat:
            axes.set(xlim=(-edge, edge), ylim=(-edge, edge))
        for axes in pair[:, len(panels) :].flat:
            axes.remove()
    for axes, name in zip(grid[:, 0], ("prompts T", "outputs X") * 2, strict=True):
        axes.set_ylabel(name)
    style.caption(
        figure,
        f"One draw of n = {settings.n:,} pairs of two Gaussian mixtures, matched by the least sum "
        f"of {_weight(settings)}, seed {run.seed}; colour: the prompt's mode. Scores: mean ± one "
        f"standard deviation of {settings.repeats} such draws; in brackets what the paper prints. "
        f"Gaussian kernel, bandwidth {settings.bandwidth:g}. Geometry: {_words(settings)}.",
    )
    return figure


def _weight(settings: Settings) -> str:
    return {"distance": "distances", "squared": "squared distances"}[settings.geometry.weight]


def _words(settings: Settings) -> str:
    geometry = settings.geometry
    spreads = (
        ", ".join(f"{spread:.3g}" for spread in values)
        for values in (geometry.prompt_spreads, geometry.output_spreads)
    )
    return (
        f"{settings.source}, {geometry.layout} of extent {geometry.extent:.3g}; spreads of 1, 2, 4 "
        "components of prompts {}; of 2, 4, 6 of outputs {}".format(*spreads)
    )


def _scatter(above: Axes, below: Axes, run: lab.Run, prompts: int, outputs: int) -> None:
    """The prompts and the outputs of a panel, with its scores as the title."""
    found = run.results[Cell(prompts, outputs, 0)]
    values = scores(run, prompts, outputs)[:, run.settings.scales.index(1.0), 0]
    printed = next((p for p in PRINTED if (p.prompts, p.outputs) == (prompts, outputs)), None)
    lines = [f"T: {prompts} mode{'s' * (prompts > 1)}, X: {outputs} modes"]
    for index, name in enumerate(("conditional", "information")):
        mean, sd = values[:, index].mean(), values[:, index].std(ddof=min(1, len(values) - 1))
        known = "" if printed is None else f" [{getattr(printed, name):.2f}]"
        lines.append(f"{name.capitalize()}-Vendi {mean:.2f} ± {sd:.2f}{known}")
    above.set_title("\n".join(lines))
    for role, axes in ((1, above), (0, below)):
        colours = np.array(style.CYCLE)[found.modes[:, 1] % len(style.CYCLE)]
        axes.scatter(*found.points[:, role].T, s=2, c=colours.tolist(), linewidths=0)
        axes.set_aspect("equal")


def _curves(run: lab.Run) -> Figure:
    """Scores against the number of modes: a row a family of mixtures, a column a bandwidth."""
    settings: Settings = run.settings
    count = len(settings.scales)
    figure, axes = style.panels(2 * count, columns=count, size=(3.6, 2.9), sharey=True)
    for row, name in enumerate(_ROWS):
        panels = settings.row(name)
        modes = [panel[row] for panel in panels]
        found = np.stack([scores(run, *panel) for panel in panels])
        for at, scale in enumerate(settings.scales):
            panel = axes[row * count + at]
            for order, family in enumerate(("Vendi", "RKE")):
                for index, kind in enumerate(("Conditional", "Information")):
                    values = found[:, :, at, order, index]
                    sd = values.std(axis=1, ddof=min(1, settings.repeats - 1))
                    label = f"{kind}-{family}"
                    panel.errorbar(
                        modes,
                        values.mean(axis=1),
                        2 * sd,
                        color=style.score_colour(label),
                        marker=style.MARKERS[2 * order + index],
                        capsize=2,
                        label=label,
                    )
            if scale == 1:
                _mark(panel, panels, row)
            fixed = settings.outputs_fixed if row == 0 else settings.prompts_fixed
            other = "outputs" if row == 0 else "prompts"
            panel.set_title(f"bandwidth {scale * settings.bandwidth:g}, {fixed} modes of {other}")
            panel.set_xticks(modes)
            panel.set_xlabel(f"modes of {name}")
        axes[row * count].set_ylabel("effective number of modes")
    middle = axes[settings.scales.index(1.0)]
    style.legend_above(figure, middle, columns=6)
    style.caption(
        figure,
        f"Mixtures of n = {settings.n:,} matched pairs; means and bars of two standard deviations "
        f"over {settings.repeats} draws, seed {run.seed}. Geometry: {_words(settings)}.",
    )
    return figure


def _mark(axes: Axes, panels: Sequence[tuple[int, int]], row: int) -> None:
    """What the paper prints of a row, as crosses."""
    for index, name in enumerate(("conditional", "information")):
        known = [p for p in PRINTED if (p.prompts, p.outputs) in panels]
        axes.plot(
            [(p.prompts, p.outputs)[row] for p in known],
            [getattr(p, name) for p in known],
            linestyle="",
            marker="x",
            markersize=9,
            color=style.BLACK,
            label="printed in the paper" if index == 0 else None,
        )


STUDY = lab.StudyRecord(
    name="gmm_toy",
    version=1,
    question="What do more modes of prompts, and more modes of outputs, do to the scores?",
    reproduces="CV fig 11",
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
    figures=("gmm_toy", "gmm_toy_curves"),
    data=None,
)


if __name__ == "__main__":
    lab.main(STUDY)
