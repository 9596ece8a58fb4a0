"""More components of prompts against fixed outputs, and of outputs: CV figure 11.

Points of two Gaussian mixtures in the plane are paired by the matching of least total weight.
"""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.conditional_vendi import gmm_search
from experiments.conditional_vendi.gmm_search import PRINTED, GmmSearch, nearest
from experiments.generators.mixtures2d import Geometry, draw_pairs
from experiments.lab import Cell, figures, runner, scales, store, style, tables

SCORES = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")
_VENDI = list(gmm_search.SCORES)
# Of CV fig 11: the modes of one mixture while those of the other vary, and those of the panels.
_FIXED = {"prompts": 2, "outputs": 4}
_DRAWN = (1, 2, 3, 4, 6)
_WEIGHTS = {"distance": "distances", "squared": "squared distances"}


class GmmToy(lab.Study):
    """How do the scores change with more modes of prompts, or more modes of outputs?"""

    name = "gmm_toy"
    reproduces = "CV fig 11"
    duration = "1 minute"
    data = None
    drawings = ("gmm_toy", "gmm_toy_curves")

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
    fitted: Geometry | None = lab.resolved()

    def prepare(self, load, seed):
        most = max(*self.prompt_modes, *self.output_modes, *_FIXED.values())
        if self.n < most:
            raise ValueError(f"--n: expected at least one pair a mode, {most}, received {self.n}.")
        if 1.0 not in self.scales:
            raise ValueError(f"--scales: expected 1 among them, received {self.scales}.")
        fitted = nearest(store.read_run(runner.COMMITTED / GmmSearch.name, GmmSearch))
        numbers = [fitted.extent, *fitted.prompt_spreads, *fitted.output_spreads]
        return self.ready(
            arrays={"geometry": np.array(numbers)},
            description=f"Two Gaussian mixtures, {fitted.layout} of extent {fitted.extent:.3g} "
            f"(the nearest of gmm_search), matched by the least sum of {_WEIGHTS[fitted.weight]}",
            fitted=fitted,
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
        assert self.fitted is not None  # The study is resolved.
        mixtures = self.fitted.outputs(outputs), self.fitted.prompts(prompts)
        pairs = draw_pairs(*mixtures, context.key, self.n, self.fitted.weight)
        values = []
        for scale in self.scales:
            kernel = cv.Gaussian(scale * self.bandwidth)
            kernels = {"output_kernel": kernel, "prompt_kernel": kernel, "method": cv.Exact()}
            found = [cv.decompose(*pairs[:2], order=order, **kernels) for order in (1.0, 2.0)]
            values.append([float(score) for of in found for score in of.scores[1:]])
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
        rows, names = ("scale", "varied", "modes"), {"varied": "more modes of"}
        found = _by_modes(run)
        yield tables.table(
            found, rows=rows, columns="score", error="error", letters="printed", names=names
        )

    @classmethod
    def figures(cls, runs):
        return {"gmm_toy": _panels(runs[-1]), "gmm_toy_curves": _curves(runs[-1])}


def _by_modes(run: lab.Run) -> xr.Dataset:
    """The scores by which mixture's modes vary and by their number, and what is printed of them."""
    known = xr.full_like(run.found.value.isel(repeat=0, drop=True), np.nan)
    for panel in PRINTED:
        here = (known.prompts == panel.prompts) & (known.outputs == panel.outputs)
        for score, value in zip(_VENDI, (panel.conditional, panel.information), strict=True):
            known = known.where(~(here & (known.scale == 1) & (known.score == score)), value)
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
        "[printed in the paper]; Gaussian kernel"
    )
    return figures.caption(figure, run, n=n)


def _curves(run: lab.Run) -> Figure:
    """Scores against the number of modes: a row a varied mixture, a column a bandwidth."""
    study, found = run.study, _by_modes(run)
    other = {"prompts": "outputs", "outputs": "prompts"}

    def title(varied, scale):
        return "\n".join([f"bandwidth {scale * study.bandwidth:g}", *_moves(found, varied, scale)])

    def crosses(panel, part):
        known = part.known.transpose("modes", "score")
        panel.plot(part.modes, known, "x", markersize=9, color=style.BLACK)

    figure = figures.facets(
        found.assign(error=2 * found.error),
        x="modes",
        hue="score",
        row="varied",
        column="scale",
        error="error",
        title=title,
        x_label=lambda of: f"modes of {of}, beside {_FIXED[other[of]]} of {other[of]}",
        size=(3.6, 3.1),
        each=crosses,
    )
    n = f"n = {study.n:,} pairs; Gaussian kernel; crosses: printed in the paper"
    bars = f"two standard deviations over {study.repeats} draws"
    return figures.caption(figure, run, n=n, bars=bars)
