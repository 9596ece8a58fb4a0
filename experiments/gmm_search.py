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
from experiments.mixture_fits import NEAR, NUMBERS, PRINTED, SPREADS, Family, Panel, deviations

_SPREADS = {"one": "one spread for all", "power": "a power of the modes", "own": "a spread each"}


@dataclasses.dataclass(frozen=True)
class GmmSearch(lab.Study):
    """Which geometries of mixtures give the scores that CV fig 11 prints?"""

    name = "gmm_search"
    reproduces = "CV fig 11 (its geometry)"
    duration = "5 minutes"
    data = None
    runs = ((),)
    drawings = ("gmm_toy_search",)

    layouts: tuple[str, ...] = lab.flag(
        ("polygon", "line", "columns"),
        "Where the centres are: a polygon or a line of fixed extent, with fixed gaps (side, "
        "chain), or two columns.",
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
        "A JSON file of the scores to be met, a list of {prompts, outputs, conditional, "
        "information}; those that the paper prints if unset.",
    )
    bandwidth: float = lab.flag(0.6, "Of both kernels.", above=0)
    n: int = lab.flag(1000, "Pairs of a mixture.", at_least=12)
    trial: int = lab.flag(150, "Pairs in the trials of the search.", at_least=12)
    repeats: int = lab.flag(3, "Draws of n pairs that a fitted geometry is judged on.", at_least=1)
    panels: tuple[Panel, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Reads the scores to be met."""
        panels = PRINTED if self.printed is None else mixture_fits.read_printed(self.printed)
        array = np.array([dataclasses.astuple(panel) for panel in panels])
        # A file is known by its contents, wherever it stands.
        return self.ready(
            arrays={"printed": array},
            description="Geometries of two mixtures fitted to the scores that CV fig 11 prints",
            printed=None,
            panels=panels,
        )

    def axes(self):
        """Every layout with every weight and family of spreads."""
        return {"layout": self.layouts, "weight": self.weights, "spreads": self.spreads}

    def compute(self, state, context, *, layout, weight, spreads):
        """Fits one family; where that is worse than a family in it, again from there."""
        family = Family(layout, weight, spreads)
        seeds = jax.random.bits(context.shared_key, (self.repeats + 1,)).tolist()
        aim = mixture_fits.Aim(self.panels, self.bandwidth, self.n, self.trial)
        parameters = mixture_fits.start(family, self.bandwidth)
        found = mixture_fits.fit(aim, family, parameters, seeds, context.say)
        contained = Cell((("layout", layout), ("weight", weight), ("spreads", "power")))
        within = context.finished.get(contained)
        if spreads != "own" or within is None or self._worst(found) <= self._worst(within):
            return found
        parameters = np.log(within.geometry.values)
        again = mixture_fits.fit(aim, family, parameters, seeds, context.say)
        again = again.assign(trials=found.trials + again.trials)
        return min(found, again, key=self._worst)

    def _worst(self, found: xr.Dataset) -> float:
        return float(abs(deviations(found, self.panels)).max())

    def tables(self, run):
        """The families from the nearest on, and by how much what was fitted could be off."""
        found = run.found
        families = self._families(found)
        off = families.off.expand_dims(number=["off by, %"])
        fitted = xr.Dataset({"value": xr.concat([off, families.geometry], "number")})
        yield tables.table(fitted, rows=("family",), columns="number", digits=3)
        own = [name for name in families.family.values.tolist() if name.endswith(", own")]
        if own:
            sharp = [mixture_fits.widths(families.sel(family=name)) for name in own]
            widths = xr.concat(sharp, xr.DataArray(own, dims="family", name="family"))
            names = {name: f"{name}, ± %" for name in NUMBERS}
            shown = xr.Dataset({"value": 100 * widths.sel(parameter=list(NUMBERS))})
            yield tables.table(shown, rows=("family",), columns="parameter", names=names, digits=2)

    def _families(self, found: xr.Dataset) -> xr.Dataset:
        """One axis of all families, from the nearest on; `off` is the worst score's, in percent."""
        found = found.assign(off=100 * abs(deviations(found, self.panels)).max(("panel", "score")))
        flat = found.stack(family=("layout", "weight", "spreads"))
        names = [", ".join(words) for words in flat.family.values.tolist()]
        flat = flat.drop_vars(("family", "layout", "weight", "spreads"))
        return flat.assign_coords(family=names).sortby("off")

    @classmethod
    def figures(cls, runs):
        """What is farthest off in every family, a panel a family of spreads."""
        run = runs[-1]
        study = run.study
        off = 100 * abs(deviations(run.found, study.panels)).max("panel")
        shown = off.stack(family=("layout", "weight"))
        names = [", ".join(words) for words in shown.family.values.tolist()]
        shown = shown.drop_vars(("family", "layout", "weight")).assign_coords(family=names)
        drawn = figures.facets(
            shown.round(1).to_dataset(name="value"),
            x="family",
            hue="score",
            column="spreads",
            kind="bars",
            numbers=True,
            title=lambda _, spreads: (
                f"{_SPREADS[spreads]}: {_best(off.sel(spreads=spreads)):.2g}% off at best"
            ),
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


def _best(off: xr.DataArray) -> float:
    """The least of what is farthest off in each family."""
    return off.max("score").min().item()


def nearest(run: lab.Run) -> Geometry:
    """The geometry of all families whose worst score is the least off."""
    found = run.found
    off = abs(deviations(found, run.study.panels)).max(("panel", "score"))
    best = found.isel(off.argmin(("layout", "weight", "spreads")))
    extent, *spreads = best.geometry.values.tolist()
    count = len(spreads) // 2
    prompts, outputs = tuple(spreads[:count]), tuple(spreads[count:])
    return Geometry(best.layout.item(), extent, prompts, outputs, best.weight.item())


if __name__ == "__main__":
    lab.main(GmmSearch)
