"""Which geometries give the numbers that CV fig 11 prints: the search behind `gmm_toy`.

The paper says neither where the components of its mixtures are nor how wide. Every family of plain
geometries is fitted to the eight printed scores by least squares of their logarithms, first on few
points and then with what 1,000 points change; the families that come near are more than one.

    python -m experiments.gmm_search --layouts=polygon --weights=distance
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import xarray as xr

from experiments import lab, mixture_fits
from experiments.generators.mixtures2d import LAYOUTS, WEIGHTS, Geometry
from experiments.lab import Cell, figures, style, tables
from experiments.mixture_fits import NEAR, NUMBERS, PRINTED, SPREADS, Family, Panel, off

_SPREADS = {"one": "one spread for all", "power": "a power of the modes", "own": "a spread each"}


@dataclasses.dataclass(frozen=True)
class GmmSearch(lab.Study):
    """Which Gaussian mixtures give the scores that CV fig 11 prints?"""

    name = "gmm_search"
    reproduces = "CV fig 11 (its geometry)"
    duration = "5 minutes"
    data = None
    runs = ((),)
    drawings = ("gmm_toy_search",)

    layouts: tuple[str, ...] = lab.flag(
        ("polygon", "line", "columns"),
        "The centres: a polygon or a line, of fixed extent or gaps (side, chain), or two columns.",
        choices=tuple(LAYOUTS),
    )
    weights: tuple[str, ...] = lab.flag(
        tuple(WEIGHTS), "What the matching minimises.", choices=tuple(WEIGHTS)
    )
    spreads: tuple[str, ...] = lab.flag(
        tuple(SPREADS), "How the components' spreads are tied.", choices=tuple(SPREADS)
    )
    printed: str | None = lab.flag(
        None,
        "A JSON file: [{prompts, outputs, conditional, information}, ...]; the paper's if unset.",
    )
    bandwidth: float = lab.flag(0.6, "Of both kernels.", above=0)
    n: int = lab.flag(1000, "Pairs of a mixture.", at_least=12)
    trial: int = lab.flag(150, "Pairs in the trials of the search.", at_least=12)
    repeats: int = lab.flag(3, "Draws of n pairs that a fitted geometry is judged on.", at_least=1)
    panels: tuple[Panel, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Reads the scores to be met."""
        panels = PRINTED if self.printed is None else mixture_fits.read_printed(self.printed)
        return self.ready(
            arrays={"printed": np.array([dataclasses.astuple(panel) for panel in panels])},
            description="Geometries of two mixtures fitted to the scores that CV fig 11 prints",
            printed=None,  # The file is known by its contents, wherever it stands.
            panels=panels,
        )

    def axes(self):
        """Every layout with every weight and family of spreads."""
        return {"layout": self.layouts, "weight": self.weights, "spreads": self.spreads}

    def compute(self, state, context, *, layout, weight, spreads):
        """Fits one family; where that is worse than a family in it, again from there."""
        family = Family(layout, weight, spreads)
        seeds = jax.random.bits(context.shared_key, (self.repeats + 1,)).tolist()
        aim = mixture_fits.Aim(self.panels, self.bandwidth, self.n, self.trial, seeds)
        found = mixture_fits.fit(aim, family, family.start(self.bandwidth), context.say)
        contained = Cell((("layout", layout), ("weight", weight), ("spreads", "power")))
        within = context.finished.get(contained)
        if spreads != "own" or within is None or self._worst(found) <= self._worst(within):
            return found
        again = mixture_fits.fit(aim, family, np.log(within.geometry.values), context.say)
        again = again.assign(trials=found.trials + again.trials)
        return min(found, again, key=self._worst)

    def _worst(self, found: xr.Dataset) -> float:
        return off(found, self.panels).max().item()

    def tables(self, run):
        """The families from the nearest on, and by how much what was fitted could be off."""
        farthest = 100 * off(run.found, self.panels).max(("panel", "score"))
        families = _in_a_row(run.found.assign(off=farthest), *self.axes()).sortby("off")
        percents = families.off.expand_dims(number=["off by, %"])
        fitted = xr.Dataset({"value": xr.concat([percents, families.geometry], "number")})
        yield tables.table(fitted, rows=("family",), columns="number", digits=3)
        sharp = [
            mixture_fits.widths(families.sel(family=name)).expand_dims(family=[name])
            for name in families.family.values.tolist()
            if name.endswith(", own")
        ]
        if sharp:
            names = {name: f"{name}, ± %" for name in NUMBERS}
            widths = xr.concat(sharp, "family").sel(parameter=list(NUMBERS))
            shown = xr.Dataset({"value": 100 * widths})
            yield tables.table(shown, rows=("family",), columns="parameter", names=names, digits=2)

    @classmethod
    def figures(cls, runs):
        """What is farthest off in every family, a panel a family of spreads."""
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


def nearest(run: lab.Run) -> Geometry:
    """The geometry of all families whose worst score is the least off."""
    farthest = off(run.found, run.study.panels).max(("panel", "score"))
    best = run.found.isel(farthest.argmin(("layout", "weight", "spreads")))
    extent, *spreads = best.geometry.values.tolist()
    prompts, outputs = tuple(spreads[:3]), tuple(spreads[3:])
    return Geometry(best.layout.item(), extent, prompts, outputs, best.weight.item())


if __name__ == "__main__":
    lab.main(GmmSearch)
