"""More components of prompts against fixed outputs, and of outputs: CV figure 11.

Points of two Gaussian mixtures in the plane are paired by the matching with the least sum of
distances. The paper prints eight scores, but neither centres nor spreads. `GEOMETRY` was fitted to
these scores: among eighteen families (three layouts of the centres, distances or their squares in
the matching, three ways to tie the spreads), least squares of logarithms chose the numbers. All
eight scores come out within 3%. The search is in the history, gmm_search.py at commit 0307ea3f.
"""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

import condvendi_jax as cv
from experiments import lab
from experiments.generators.mixtures2d import Geometry, draw_pairs
from experiments.lab import Cell, figures, scales, style, tables

SCORES = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")
_VENDI = list(SCORES[:2])
GEOMETRY = Geometry(
    extent=1.749730112436828,
    prompt_spreads={1: 0.6271182549824065, 2: 0.3551936938603969, 4: 0.15390407947980106},
    output_spreads={2: 0.306538571666118, 4: 0.14744776154070294, 6: 0.12218606816590062},
)
# Conditional-Vendi and Information-Vendi that CV fig 11 prints, by modes of prompts and of outputs.
PRINTED = {(1, 4): (2.21, 2.97), (4, 4): (1.34, 4.61), (2, 2): (1.55, 4.01), (2, 6): (2.46, 3.42)}
# Of CV fig 11: the modes of one mixture while those of the other vary, and those of the panels.
_FIXED = {"prompts": 2, "outputs": 4}
_DRAWN = (1, 2, 3, 4, 6)


class GmmToy(lab.Study):
    """How do the scores change with more modes of prompts, or more modes of outputs?"""

    name = "gmm_toy"
    control = "All mixtures have as many pairs."
    data = None
    drawings = ("gmm_toy",)

    prompt_modes: tuple[int, ...] = lab.flag(
        (1, 2, 3, 4), "Components of the prompts, beside four of the outputs.", at_least=1
    )
    output_modes: tuple[int, ...] = lab.flag(
        (2, 3, 4, 5, 6), "Components of the outputs, beside two of the prompts.", at_least=1
    )
    n: int = lab.flag(1000, "Pairs.", at_least=1)
    bandwidth: float = lab.flag(0.6, "Of both kernels, in the units of the plane.", above=0)
    scales: tuple[float, ...] = lab.flag(scales.SCALES, "Multiples of it, 1 among them.", above=0)
    repeats: int = lab.flag(10, "Draws of every mixture.", at_least=1)

    def prepare(self, load, seed):
        most = max(*self.prompt_modes, *self.output_modes, *_FIXED.values())
        if self.n < most:
            raise ValueError(f"--n: expected at least one pair a mode, {most}, received {self.n}.")
        if 1.0 not in self.scales:
            raise ValueError(f"--scales: expected 1 among them, received {self.scales}.")
        spreads = (GEOMETRY.prompt_spreads, GEOMETRY.output_spreads)
        numbers = [GEOMETRY.extent, *(spread for of in spreads for spread in of.values())]
        return self.ready(
            state=GEOMETRY,
            arrays={"geometry": np.array(numbers)},
            description="Two Gaussian mixtures in the plane, neighbouring centres "
            f"{2 * GEOMETRY.extent:.2g} apart, matched by the least sum of distances",
        )

    @property
    def varied(self) -> dict[str, tuple[int, ...]]:
        """The numbers of modes of each mixture while those of the other are `_FIXED`."""
        return {"prompts": self.prompt_modes, "outputs": self.output_modes}

    def cells(self):
        """The mixtures of both rows of CV fig 11, each once, in every draw."""
        rows = self.varied.items()
        places = [tuple((_FIXED | {name: modes}).items()) for name, row in rows for modes in row]
        return [
            Cell((*place, ("repeat", repeat)))
            for place in dict.fromkeys(places)
            for repeat in range(self.repeats)
        ]

    def compute(self, state, context, *, prompts, outputs, repeat):
        """Draws, pairs and scores two mixtures; the points of the first draw are kept."""
        mixtures = state.outputs(outputs), state.prompts(prompts)
        pairs = draw_pairs(*mixtures, context.key, self.n)
        values = []
        for scale in self.scales:
            kernel = cv.Gaussian(scale * self.bandwidth)
            kernels: dict[str, Any] = {"output_kernel": kernel, "prompt_kernel": kernel}
            vendi = cv.decompose(*pairs[:2], order=1.0, method=cv.Exact(), **kernels)
            rke = cv.decompose(*pairs[:2], order=2.0, **kernels)
            values.append([float(score) for of in (vendi, rke) for score in of.scores[1:]])
        labels = {"scale": list(self.scales), "score": list(SCORES), "role": ["outputs", "prompts"]}
        found = xr.Dataset({"value": (("scale", "score"), values)}, labels)
        if repeat > 0:
            return found
        points = np.stack(pairs[:2], axis=1).astype(np.float16)
        modes = np.stack(pairs[2:], axis=1).astype(np.int8)
        axes = ("pair", "role")
        return found.assign(point=((*axes, "place"), points), mode=(axes, modes))

    def tables(self, run):
        """Means and standard deviations of one draw, beside what is printed."""
        yield _table(_by_modes(run))

    @classmethod
    def figures(cls, runs):
        return {"gmm_toy": _panels(runs[-1])}

    @classmethod
    def facts(cls, runs):
        found = _by_modes(runs[0])

        def mean(score, scale=1, **varied):
            ((name, modes),) = varied.items()
            return found.value.sel(score=score, scale=scale, varied=name, modes=modes)

        farthest = abs(found.value / found.known - 1).max()
        return {
            "mean": mean,
            "farthest": farthest,
            "table": _table(found.sel(scale=[1], score=_VENDI)),
        }


def _table(found: xr.Dataset) -> Table:
    rows, names = ("scale", "varied", "modes"), {"varied": "more modes of"}
    ends = {"error": "error", "letters": "printed"}
    return tables.table(found, rows=rows, columns="score", names=names, digits=3, **ends)


def _by_modes(run: lab.Run) -> xr.Dataset:
    """The scores by which mixture's modes vary and by their number, and what is printed of them."""
    known = xr.full_like(run.found.value.isel(repeat=0, drop=True), np.nan)
    for (prompts, outputs), printed in PRINTED.items():
        here = (known.prompts == prompts) & (known.outputs == outputs) & (known.scale == 1)
        for score, value in zip(_VENDI, printed, strict=True):
            known = known.where(~(here & (known.score == score)), value)
    words = xr.where(known.isnull(), "", "[" + known.astype(str) + "]")
    found = tables.spreads(run.found.value, "repeat").assign(known=known, printed=words)
    rows = [
        found.sel(_FIXED | {name: list(modes)}, drop=True).rename({name: "modes"})
        for name, modes in run.study.varied.items()
    ]
    of = xr.DataArray(list(_FIXED), dims="varied", name="varied")
    return xr.concat(rows, of, join="outer").sortby("modes")


def _moves(found: xr.Dataset, varied: str, scale: float) -> list[str]:
    """From where to where the scores of order 1 go as the modes of one mixture become more."""
    ends = found.value.sel(varied=varied, scale=scale, score=_VENDI).dropna("modes")
    return [
        f"{score} {'rises' if last > first else 'falls'} from {first:.2f} to {last:.2f}"
        for score, first, last in zip(_VENDI, ends.isel(modes=0), ends.isel(modes=-1), strict=True)
    ]


def _panels(run: lab.Run) -> Figure:
    """A pair of axes a panel, prompts above outputs, as CV fig 11 has them."""
    study, found = run.study, _by_modes(run)
    rows = {k: [m for m in of if m in _DRAWN] or of for k, of in study.varied.items()}
    width = 2.2 * max(map(len, rows.values()))
    figure = Figure(figsize=(width, 10.6), layout="constrained")
    parts: Any = figure.subfigures(2)
    for part, (varied, all_modes) in zip(parts, rows.items(), strict=True):
        part.suptitle(f"More modes of {varied}: {', '.join(_moves(found, varied, 1))}")
        grid = part.subplots(2, len(all_modes), squeeze=False)
        for column, modes in zip(grid.T, all_modes, strict=True):
            place = _FIXED | {varied: modes}
            draw = run.found.sel(place | {"repeat": 0})
            of_prompts = draw["mode"].sel(role="prompts").astype(int)
            colours = np.take(style.CYCLE, of_prompts, mode="wrap")
            for role, axes in zip(("prompts", "outputs"), column, strict=True):
                axes.scatter(*draw.point.sel(role=role).T, s=2, c=colours, linewidths=0)
            lines = [f"modes of T: {place['prompts']}, of X: {place['outputs']}"]
            for score in _VENDI:
                of = found.sel(varied=varied, modes=modes, scale=1, score=score)
                lines.append(f"{score} {of.value:.2f} {of.printed.item()}".rstrip())
            column[0].set_title("\n".join(lines))
        grid[0, 0].set_ylabel("prompts T")
        grid[1, 0].set_ylabel("outputs X")
    edge = 1.05 * float(abs(run.found.point).max())
    for axes in figure.axes:
        axes.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal", xticks=[], yticks=[])
    first, corner = figure.axes[0], -0.92 * edge
    first.plot([corner, corner + study.bandwidth], [corner, corner], color=style.BLACK, linewidth=2)
    first.text(corner, corner + 0.06 * edge, f"bandwidth {study.bandwidth:g}", fontsize=7.5)
    n = (
        f"n = {study.n:,} pairs; colour: the prompt's mode. Scores: means of {study.repeats} draws "
        "[printed in the paper, to which the geometry is fitted]; Gaussian kernel"
    )
    return figures.caption(figure, run, n=n)
