"""Which geometries give the numbers that CV figure 11 prints.

Families of geometries were fitted to the printed scores by least squares of their logarithms. The
fits (gmm_fits.toml) are judged here on new draws.
"""

import dataclasses
import pathlib
import tomllib
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments import lab
from experiments.generators.mixtures2d import (
    LAYOUTS,
    OUTPUT_MODES,
    PROMPT_MODES,
    WEIGHTS,
    Geometry,
    draw_pairs,
)
from experiments.lab import figures, style, tables

SCORES = ("Conditional-Vendi", "Information-Vendi")
NEAR = 0.03
NUMBERS = (
    "extent",
    *(f"prompts {modes}" for modes in PROMPT_MODES),
    *(f"outputs {modes}" for modes in OUTPUT_MODES),
)
FITS: dict[str, list[float]] = tomllib.loads(
    pathlib.Path(__file__).with_name("gmm_fits.toml").read_text(encoding="utf-8")
)
"""The `NUMBERS` of each family's fitted geometry."""
_SPREADS = {"one": "one spread for all", "power": "a power of the modes", "own": "a spread each"}
_STEP = 0.04  # Of a number, relatively, in a difference quotient: matchings are not smooth.


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


class GmmSearch(lab.Study):
    """Which Gaussian mixtures give the scores that CV fig 11 prints?"""

    name = "gmm_search"
    reproduces = "CV fig 11 (its geometry)"
    duration = "5 minutes"
    data = None
    drawings = ("gmm_toy_search",)

    layouts: tuple[str, ...] = lab.flag(
        tuple(LAYOUTS), "The layouts of the centres.", choices=tuple(LAYOUTS)
    )
    weights: tuple[str, ...] = lab.flag(
        tuple(WEIGHTS), "What the matching minimises.", choices=tuple(WEIGHTS)
    )
    spreads: tuple[str, ...] = lab.flag(
        tuple(_SPREADS), "How the components' spreads are tied.", choices=tuple(_SPREADS)
    )
    bandwidth: float = lab.resolved(0.6)  # Of both kernels.
    n: int = lab.flag(1000, "Pairs of a mixture.", at_least=12)
    trial: int = lab.flag(150, "Pairs of the mixtures whose numbers are varied.", at_least=12)
    repeats: int = lab.flag(3, "Draws of n pairs that a fitted geometry is judged on.", at_least=1)
    panels: tuple[Panel, ...] = lab.resolved(PRINTED)

    def prepare(self, load, seed):
        return self.ready(
            arrays={"printed": np.array([dataclasses.astuple(panel) for panel in self.panels])},
            description="Geometries of two mixtures fitted to the scores that CV fig 11 prints",
        )

    def axes(self):
        return {"layout": self.layouts, "weight": self.weights, "spreads": self.spreads}

    def compute(self, state, context, *, layout, weight, spreads):
        """Scores of a fitted geometry.

        Returns:
          `value`, the scores of every draw at every panel; `geometry`, its `NUMBERS`; where each
          mixture has a spread of its own, `sensitivity`, how the logarithms of the scores change
          with those of the numbers.
        """
        numbers = np.array(FITS[f"{layout}, {weight}, {spreads}"])
        first, *seeds = jax.random.bits(context.shared_key, (self.repeats + 1,)).tolist()

        def logs(numbers: np.ndarray, n: int, seed: int) -> list[np.ndarray]:
            geometry = geometry_of(layout, weight, numbers)
            options = {"n": n, "seed": seed, "bandwidth": self.bandwidth}
            return [log_scores(geometry, panel, **options) for panel in self.panels]

        found = xr.Dataset(
            {
                "value": (
                    ("draw", "panel", "score"),
                    np.exp([logs(numbers, self.n, seed) for seed in seeds]),
                ),
                "geometry": ("number", numbers),
            },
            {
                "panel": [f"T: {panel.prompts}, X: {panel.outputs}" for panel in self.panels],
                "score": list(SCORES),
                "number": list(NUMBERS),
            },
        )
        if spreads != "own":
            return found
        context.say("sensitivity")
        steps = numbers * np.exp(_STEP * np.eye(len(numbers)))
        moved = np.array([logs(step, self.trial, first) for step in steps])
        slopes = (moved - logs(numbers, self.trial, first)) / _STEP
        axes = ("parameter", "panel", "score")
        return found.assign(sensitivity=(axes, slopes)).assign_coords(parameter=list(NUMBERS))

    def tables(self, run):
        """The families from the nearest on, and by how much what was fitted could be off."""
        farthest = 100 * off(run.found, self.panels).max(("panel", "score"))
        families = _in_a_row(run.found.assign(off=farthest), *self.axes()).sortby("off")
        percents = families.off.expand_dims(number=["off by, %"])
        fitted = xr.Dataset({"value": xr.concat([percents, families.geometry], "number")})
        yield tables.table(fitted, rows=("family",), columns="number", digits=3)
        sharp = [
            widths(families.sel(family=name)).expand_dims(family=[name])
            for name in families.family.values.tolist()
            if name.endswith(", own")
        ]
        if sharp:
            names = {name: f"{name}, ± %" for name in NUMBERS}
            shown = xr.Dataset({"value": 100 * xr.concat(sharp, "family")})
            shown = shown.sel(parameter=list(NUMBERS))
            yield tables.table(shown, rows=("family",), columns="parameter", names=names, digits=2)

    @classmethod
    def figures(cls, runs):
        run = runs[-1]
        study = run.study
        farthest = 100 * off(run.found, study.panels).max("panel")

        def title(_, spreads):
            best = farthest.sel(spreads=spreads).max("score").min().item()
            return f"{_SPREADS[spreads]}: {best:.2g}% off at best"

        drawn = figures.facets(
            _in_a_row(farthest.round(1).to_dataset(name="value"), "layout", "weight"),
            x="family",
            hue="score",
            column="spreads",
            kind="bars",
            numbers=True,
            title=title,
            x_label="layout, weight of the matching",
            y_label="worst score: off by, %",
            size=(3.6, 3.1),
            each=lambda panel, _: panel.axhline(100 * NEAR, color=style.GREY, linestyle="--"),
        )
        n = (
            f"the mean of {study.repeats} draws of n = {study.n:,} pairs at {len(study.panels)} "
            f"panels; Gaussian kernel of bandwidth {study.bandwidth:g}; dashed: {NEAR:.0%}"
        )
        return {"gmm_toy_search": figures.caption(drawn, run, n=n)}


def _in_a_row(found: xr.Dataset, *axes: str) -> xr.Dataset:
    """With one axis `family` in the place of these."""
    flat = found.stack(family=axes)
    names = [", ".join(words) for words in flat.family.values.tolist()]
    return flat.drop_vars(("family", *axes)).assign_coords(family=names)


def off(found: xr.Dataset, printed: Sequence[Panel]) -> xr.DataArray:
    """How far the mean scores are off the printed ones, relatively, by panel and score."""
    wanted = [(panel.conditional, panel.information) for panel in printed]
    return abs(found.value.mean("draw") / xr.DataArray(wanted, dims=("panel", "score")) - 1)


def widths(found: xr.Dataset) -> xr.DataArray:
    """By how much each fitted number could be off, if the scores were off by `NEAR`.

    Relatively, of the fit of one family; far above 1 where the scores do not say.
    """
    sensitivity = found.sensitivity.dropna("parameter").transpose("panel", "score", "parameter")
    slopes = sensitivity.values.reshape(-1, sensitivity.sizes["parameter"])
    _, singular, directions = np.linalg.svd(slopes, full_matrices=False)
    # A direction below the second number is not seen in the scores.
    sharp = NEAR * np.linalg.norm(directions / np.maximum(singular, 1e-4)[:, None], axis=0)
    return xr.DataArray(sharp, {"parameter": sensitivity.parameter})


def log_scores(
    geometry: Geometry, panel: Panel, *, n: int, seed: int, bandwidth: float
) -> np.ndarray:
    """H(X|T) and I(X;T) of one draw of n pairs, in nats, `[2]`."""
    mixtures = geometry.outputs(panel.outputs), geometry.prompts(panel.prompts)
    pairs = draw_pairs(*mixtures, jax.random.key(seed), n, geometry.weight)
    kernel = cv.Gaussian(bandwidth)
    found = cv.decompose(pairs.outputs, pairs.prompts, output_kernel=kernel, prompt_kernel=kernel)
    return np.array(found.log_scores[1:], np.float64)


def geometry_of(layout: str, weight: str, numbers: np.ndarray) -> Geometry:
    """The geometry of a layout and a weight with these `NUMBERS`."""
    extent, *spreads = np.asarray(numbers).tolist()
    return Geometry(layout, extent, tuple(spreads[:3]), tuple(spreads[3:]), weight)


def nearest(run: lab.Run) -> Geometry:
    """The geometry of all families whose worst score is the least off."""
    farthest = off(run.found, run.study.panels).max(("panel", "score"))
    best = run.found.isel(farthest.argmin(("layout", "weight", "spreads")))
    return geometry_of(best.layout.item(), best.weight.item(), best.geometry.values)
