"""Which geometries give the numbers that CV fig 11 prints: the search behind `gmm_toy`.

The paper says neither where the components of its mixtures are nor how wide. Every family of plain
geometries is fitted to the eight printed scores by least squares of their logarithms, first on few
points and then with what 1,000 points change; the families that come near are more than one.

    python -m experiments.gmm_search --layouts=polygon --weights=distance
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from scipy.optimize import least_squares, linprog

import condvendi_jax as cv
from condvendi_jax import validation
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.generators import mixtures2d
from experiments.generators.mixtures2d import OUTPUT_MODES, PROMPT_MODES, Geometry
from experiments.lab import style
from experiments.lab.study import option, positive, typed


@dataclasses.dataclass(frozen=True)
class Panel:
    """What a panel of CV fig 11 prints: the components of both mixtures, and two scores."""

    prompts: int
    outputs: int
    conditional: float
    information: float


PRINTED = (
    Panel(1, 4, 2.21, 2.97),
    Panel(4, 4, 1.34, 4.61),
    Panel(2, 2, 1.55, 4.01),
    Panel(2, 6, 2.46, 3.42),
)
NEAR = 0.03
# Families of spreads, by how many numbers they leave free beside the extent.
SPREADS = {
    "one": "one for all prompts, one for all outputs",
    "power": "a power of the number of components",
    "own": "each mixture's own",
}
_ROUNDS, _STEPS = 3, 5
_EXTENT = 3.5  # Bandwidths.
_FLAT = 1e-4  # Of a singular value: its direction is not seen in the scores.
_BOUNDS = (0.02, 10.0)  # Bandwidths.
_FARTHEST = 0.08  # Of a parameter in one step, relatively.
_STEP = 0.04  # Of a parameter, relatively, in a difference quotient: matchings are not smooth.


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of the study."""

    layouts: tuple[str, ...] = option(
        ("polygon", "line", "columns"),
        "Where the centres are: a polygon or a line of fixed extent, with fixed gaps (side, "
        "chain), or two columns.",
        choices=tuple(mixtures2d.LAYOUTS),
    )
    weights: tuple[str, ...] = option(
        tuple(mixtures2d.WEIGHTS), "What the matching minimises.", choices=tuple(mixtures2d.WEIGHTS)
    )
    spreads: tuple[str, ...] = option(
        tuple(SPREADS), "How the components' spreads are tied.", choices=tuple(SPREADS)
    )
    printed: str | None = option(
        None,
        "A JSON file of the scores to be met, a list of {prompts, outputs, conditional, "
        "information}; those that the paper prints if unset.",
    )
    bandwidth: float = option(0.6, "Of both kernels.")
    n: int = option(1000, "Pairs of a mixture.")
    trial: int = option(150, "Pairs in the trials of the search.")
    repeats: int = option(3, "Draws of n pairs that a fitted geometry is judged on.")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the fits depend on."""

    layouts: tuple[str, ...]
    weights: tuple[str, ...]
    spreads: tuple[str, ...]
    printed: tuple[Panel, ...]
    bandwidth: float
    n: int
    trial: int
    repeats: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """A family of geometries."""

    layout: str
    weight: str
    spreads: str


@dataclasses.dataclass(frozen=True)
class Fit:
    """The geometry of a family that comes nearest.

    Attributes:
      geometry: with its numbers.
      trials: how many geometries were tried.
      scores: Conditional- and Information-Vendi of each draw at the printed panels,
        `[repeats, panels, 2]`.
      sensitivity: how the logarithms of the scores change with those of the fitted numbers, the
        extent first, `[2 * panels, parameters]`.
    """

    geometry: Geometry
    trials: int
    scores: np.ndarray
    sensitivity: np.ndarray


def prepare(options: Options, load: Callable[[], PairedEmbeddings], seed: int) -> lab.Setup:
    """Checks the options and reads the scores."""
    for name in ("n", "trial"):
        validation.check_count(getattr(options, name), name=f"--{name}", minimum=12)
    validation.check_count(options.repeats, name="--repeats", minimum=1)
    positive(options.bandwidth, name="bandwidth")
    printed = PRINTED if options.printed is None else read_printed(options.printed)
    settings = Settings(
        layouts=options.layouts,
        weights=options.weights,
        spreads=options.spreads,
        printed=printed,
        bandwidth=options.bandwidth,
        n=options.n,
        trial=options.trial,
        repeats=options.repeats,
    )
    array = np.array([dataclasses.astuple(panel) for panel in printed])
    return lab.Setup(settings, {"printed": array})


def read_printed(path: str) -> tuple[Panel, ...]:
    """Scores of a file.

    Raises:
      ValueError: it is no list of panels that a geometry can have.
    """
    try:
        panels = tuple(typed(Panel, entry) for entry in json.loads(pathlib.Path(path).read_text()))
        if not panels or not all(_possible(panel) for panel in panels):
            raise ValueError("components from 1 to 6, scores above 0")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--printed: {path}: expected a list of {{prompts, outputs, conditional, "
            f"information}} ({error})."
        ) from error
    return panels


def _possible(panel: Panel) -> bool:
    known = panel.prompts in PROMPT_MODES and panel.outputs in OUTPUT_MODES
    return known and panel.conditional > 0 and panel.information > 0


def cells(settings: Settings) -> list[Cell]:
    """Every layout with every weight and family of spreads."""
    return [
        Cell(*names)
        for names in itertools.product(settings.layouts, settings.weights, settings.spreads)
    ]


def compute(setup: lab.Setup, cell: Cell, context: lab.Context) -> Fit:
    """Fits one family; where that is worse than a family in it, again from there."""
    settings: Settings = setup.settings
    seeds = jax.random.bits(context.shared_key, (settings.repeats + 1,)).tolist()
    found = _fit(settings, cell, start(cell, settings.bandwidth), seeds, context.say)
    within = context.finished.get(Cell(cell.layout, cell.weight, "power"))
    if cell.spreads != "own" or within is None:
        return found
    worst, of_within = (judge(fit, settings.printed).worst for fit in (found, within))
    if worst <= of_within:
        return found
    geometry = within.geometry
    numbers = (geometry.extent, *geometry.prompt_spreads, *geometry.output_spreads)
    again = _fit(settings, cell, np.log(numbers), seeds, context.say)
    again = dataclasses.replace(again, trials=found.trials + again.trials)
    return min(found, again, key=lambda fit: judge(fit, settings.printed).worst)


def _fit(
    settings: Settings,
    cell: Cell,
    parameters: np.ndarray,
    words: Sequence[int],
    say: Callable[[str], None],
) -> Fit:
    """Fits one family on few points, then twice with what many points change.

    The last time it is fourth powers of the residuals whose sum is made least, so that what is
    farthest off counts for most. A family that comes within twice `NEAR` is then moved, on all
    draws of n points, to where its worst score is the least off.
    """
    first, *seeds = words
    wanted = np.log([(panel.conditional, panel.information) for panel in settings.printed])
    trials, change = 0, np.zeros_like(wanted)

    def on(geometry: Geometry, n: int, seed: int) -> np.ndarray:
        return np.stack([
            log_scores(geometry, panel, n=n, seed=seed, bandwidth=settings.bandwidth)
            for panel in settings.printed
        ])  # fmt: skip

    def residuals(parameters: np.ndarray) -> np.ndarray:
        nonlocal trials
        trials += 1
        found = on(geometry_of(cell, parameters), settings.trial, first)
        return (found + change - wanted).ravel()

    def steep(parameters: np.ndarray) -> np.ndarray:
        found = residuals(parameters)
        return found * np.abs(found) / NEAR

    bounds = np.log(settings.bandwidth * np.array(_BOUNDS))
    parameters = np.clip(parameters, bounds[0] + _STEP, bounds[1] - _STEP)
    for step in range(_ROUNDS):
        say(f"round {step + 1} of {_ROUNDS}")
        last = step == _ROUNDS - 1
        aim = steep if last else residuals
        fitted = least_squares(aim, parameters, bounds=bounds, diff_step=_STEP, max_nfev=_STEPS)
        parameters, geometry = fitted.x, geometry_of(cell, fitted.x)
        many = np.stack([on(geometry, settings.n, seed) for seed in seeds[: None if last else 1]])
        change = many.mean(axis=0) - on(geometry, settings.trial, first)

    def fit() -> Fit:
        moved = [residuals(parameters + _STEP * unit) for unit in np.eye(len(parameters))]
        sensitivity = (np.stack(moved, axis=1) - residuals(parameters)[:, None]) / _STEP
        return Fit(geometry_of(cell, parameters), trials, np.exp(many), sensitivity)

    found = fit()
    for _ in range(_ROUNDS):
        worst = judge(found, settings.printed).worst
        if not NEAR < worst <= 2 * NEAR:
            break
        say(f"{worst:.1%} off")
        parameters = parameters + _least_worst(
            (many.mean(axis=0) - wanted).ravel(), found.sensitivity
        )
        geometry = geometry_of(cell, parameters)
        many = np.stack([on(geometry, settings.n, seed) for seed in seeds])
        further = fit()
        if judge(further, settings.printed).worst >= worst:
            break
        found = further
    return dataclasses.replace(found, trials=trials)


def _least_worst(residuals: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
    """The step after which, to first order, the largest residual is the least: a linear program."""
    count = sensitivity.shape[1]
    worst = -np.ones((len(residuals), 1))
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.block([[sensitivity, worst], [-sensitivity, worst]]),
        b_ub=np.concatenate([-residuals, residuals]),
        bounds=[(-_FARTHEST, _FARTHEST)] * count + [(0, None)],
    )
    return found.x[:count]


def start(cell: Cell, bandwidth: float) -> np.ndarray:
    """Where a fit starts: the logarithms of the extent and of what the spreads are made of.

    Components far apart add their effective numbers of modes, so that the printed Vendi scores say
    how wide each is: half of the bandwidth for two, a quarter for four, a fifth for six.
    """
    spreads = {
        "one": (0.75, 0.5),
        "power": (1.0, 1.0, 1.0 / bandwidth),
        "own": (1.0, 0.5, 0.25, 0.5, 0.25, 0.2),
    }
    return np.log(bandwidth * np.array([_EXTENT, *spreads[cell.spreads]]))


def geometry_of(cell: Cell, parameters: np.ndarray) -> Geometry:
    """The geometry of a family with these numbers, as `start` has them."""
    extent, *rest = np.exp(parameters).tolist()
    if cell.spreads == "own":
        prompts, outputs = rest[: len(PROMPT_MODES)], rest[len(PROMPT_MODES) :]
    else:
        of_prompts, of_outputs, power = (*rest, 0.0)[:3]
        prompts = [of_prompts * modes**-power for modes in PROMPT_MODES]
        outputs = [of_outputs * modes**-power for modes in OUTPUT_MODES]
    return Geometry(cell.layout, extent, tuple(prompts), tuple(outputs), cell.weight)


def log_scores(
    geometry: Geometry, panel: Panel, *, n: int, seed: int, bandwidth: float
) -> np.ndarray:
    """H(X|T) and I(X;T) of one draw of n pairs, in nats, `[2]`."""
    mixtures = geometry.outputs(panel.outputs), geometry.prompts(panel.prompts)
    centres = tuple(np.asarray(mixture.centres).tobytes() for mixture in mixtures)
    spreads = tuple(float(mixture.spread) for mixture in mixtures)
    return _log_scores(centres, spreads, geometry.weight, n, seed, bandwidth)


# Most panels stay as they are when one number changes.
@functools.lru_cache(maxsize=1024)
def _log_scores(
    centres: tuple[bytes, ...],
    spreads: tuple[float, ...],
    weight: str,
    n: int,
    seed: int,
    bandwidth: float,
) -> np.ndarray:
    outputs, prompts = (
        mixtures2d.Mixture(jnp.asarray(np.frombuffer(c, np.float32).reshape(-1, 2)), jnp.asarray(s))
        for c, s in zip(centres, spreads, strict=True)
    )
    pairs = mixtures2d.draw_pairs(outputs, prompts, jax.random.key(seed), n, weight)
    kernel = cv.Gaussian(bandwidth)
    found = cv.decompose(pairs.outputs, pairs.prompts, output_kernel=kernel, prompt_kernel=kernel)
    return np.array(found.log_scores[1:], np.float64)


@dataclasses.dataclass(frozen=True)
class Judged:
    """A fit beside what is printed.

    Attributes:
      deviations: of the mean scores from the printed ones, relatively, `[panels, 2]`.
      errors: standard errors of those means over the draws, relatively; NaN of one draw.
      widths: by how much each fitted number could be off, relatively, if the printed scores were
        off by `NEAR`; far above 1 where they do not say.
    """

    deviations: np.ndarray
    errors: np.ndarray
    widths: np.ndarray

    @property
    def worst(self) -> float:
        """The largest deviation."""
        return float(np.max(np.abs(self.deviations)))


def judge(fit: Fit, printed: Sequence[Panel]) -> Judged:
    """How near a fit is, and how sharply its numbers are determined."""
    wanted = np.array([(panel.conditional, panel.information) for panel in printed])
    count = len(fit.scores)
    spread = np.std(fit.scores, axis=0, ddof=1) if count > 1 else np.full(wanted.shape, np.nan)
    _, singular, directions = np.linalg.svd(fit.sensitivity, full_matrices=False)
    widths = NEAR * np.linalg.norm(directions / np.maximum(singular, _FLAT)[:, None], axis=0)
    return Judged(fit.scores.mean(axis=0) / wanted - 1, spread / np.sqrt(count) / wanted, widths)


def nearest(run: lab.Run) -> Geometry:
    """The geometry of all families whose worst score is the least off."""
    worst = {cell: judge(fit, run.settings.printed).worst for cell, fit in run.results.items()}
    return run.results[min(worst, key=worst.__getitem__)].geometry


def table(run: lab.Run) -> Table:
    """The families from the nearest on, with what was fitted."""
    grid = Table("layout", "weight", "spreads", "off by", "extent", "of prompts", "of outputs")
    judged = {cell: judge(fit, run.settings.printed) for cell, fit in run.results.items()}
    for cell in sorted(judged, key=lambda cell: judged[cell].worst):
        geometry = run.results[cell].geometry
        spreads = (
            " ".join(f"{spread:.3f}" for spread in values)
            for values in (geometry.prompt_spreads, geometry.output_spreads)
        )
        names = cell.layout, cell.weight, cell.spreads
        grid.add_row(*names, f"{judged[cell].worst:.1%}", f"{geometry.extent:.2f}", *spreads)
    return grid


def draw(runs: Sequence[lab.Run]) -> Mapping[str, Figure]:
    """The deviations of every family, and how sharp the numbers of the nearest ones are."""
    return {"gmm_toy_search": _figure(runs[-1])}


def _figure(run: lab.Run) -> Figure:
    settings: Settings = run.settings
    judged = {cell: judge(fit, settings.printed) for cell, fit in run.results.items()}
    order = sorted(judged, key=lambda cell: judged[cell].worst)
    figure, (axes,) = style.panels(1, size=(8.0, 1.8 + 0.26 * len(order)))
    for row, cell in enumerate(order):
        for index, panel in enumerate(settings.printed):
            for score, name in enumerate(("Conditional", "Information")):
                axes.plot(
                    100 * judged[cell].deviations[index, score],
                    row,
                    linestyle="",
                    marker=style.MARKERS[index],
                    color=style.SCORES[f"{name}-Vendi"],
                    label=None if row else f"{name}, T: {panel.prompts}, X: {panel.outputs}",
                )
    axes.axvspan(-100 * NEAR, 100 * NEAR, color=style.GREY, alpha=0.2)
    names = (f"{c.layout}, {c.weight}, {c.spreads}: {judged[c].worst:.1%}" for c in order)
    axes.set_yticks(range(len(order)), list(names))
    axes.invert_yaxis()
    axes.set_xlabel("off the printed score, %")
    style.legend_above(figure, axes, columns=4)
    spreads = "; ".join(f"{name}: {words}" for name, words in SPREADS.items())
    style.caption(
        figure,
        f"Families of geometries (layout, weight of the matching, spreads) fitted to the scores of "
        f"{len(settings.printed)} panels (modes of prompts T and outputs X); means over "
        f"{settings.repeats} draws of n = {settings.n:,}, seed {run.seed}; Gaussian kernel, "
        f"bandwidth {settings.bandwidth:g}. The band is {NEAR:.0%}; beside the names what is "
        f"farthest off. Spreads: {spreads}.",
    )
    return figure


STUDY = lab.StudyRecord(
    name="gmm_search",
    version=1,
    question="Which geometries of mixtures give the scores that CV fig 11 prints?",
    reproduces="CV fig 11 (its geometry)",
    duration="5 minutes",
    options=Options,
    settings=Settings,
    cell=Cell,
    result=Fit,
    prepare=prepare,
    cells=cells,
    compute=compute,
    table=table,
    draw=draw,
    committed=((),),
    figures=("gmm_toy_search",),
    data=None,
)


if __name__ == "__main__":
    lab.main(STUDY)
