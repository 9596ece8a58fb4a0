"""More components of prompts against fixed outputs, and of outputs: CV figure 11.

Points of two Gaussian mixtures in the plane are paired by the matching with the least sum of
distances. The paper prints neither centres nor spreads. Ours are stated and not fitted to its
scores: neighbouring centres are five bandwidths apart, and every component has one spread, of a
quarter of the bandwidth, half of it, or all of it.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import condvendi_jax as cv
from experiments import lab
from experiments.lab import Cell, figures, papers, style, tables

SCORES = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")
_FIXED = {"prompts": 2, "outputs": 4}  # Modes of one mixture while those of the other vary.
_COLUMNS = 3  # Of the picture.


def columns(extent: float, modes: int) -> np.ndarray:
    """Places in two columns, neighbours `2 * extent` apart, `[modes, 2]`; a single one is at 0."""
    if modes == 1:
        return np.zeros((1, 2))
    left = -(-modes // 2)
    rows = [(x, np.arange(m) - (m - 1) / 2) for x, m in ((-1, left), (1, modes - left))]
    return np.concatenate([[(x * extent, 2 * extent * y) for y in of] for x, of in rows])


def match(outputs: np.ndarray, prompts: np.ndarray) -> np.ndarray:
    """The output of each prompt, `[n]`, in the matching with the least sum of distances."""
    distances = cdist(prompts.astype(np.float64), outputs.astype(np.float64))
    return linear_sum_assignment(distances)[1]


def draw_pairs(
    modes: tuple[int, int], apart: float, spread: float, key: jax.Array, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Paired points of a mixture of outputs and one of prompts, `[2, n, 2]`, and their components.

    As evenly of the components `[2, n]` as n allows. The same key gives the same noise.
    """
    kinds = np.array([np.arange(n) % count for count in modes])
    noise = np.array([jax.random.normal(own, (n, 2)) for own in jax.random.split(key)])
    centres = [columns(apart / 2, count)[of] for count, of in zip(modes, kinds, strict=True)]
    points = (centres + spread * noise).astype(np.float32)
    order = match(*points)
    points[0], kinds[0] = points[0, order], kinds[0, order]
    return points, kinds


class GmmToy(lab.Study):
    """How do the scores change with more modes of prompts, or more modes of outputs?"""

    control = "All mixtures have as many pairs, and components of one spread."
    version = 2
    data = None

    prompt_modes: tuple[int, ...] = lab.flag(
        (1, 2, 3, 4), "Components of the prompts, beside four of the outputs.", at_least=1
    )
    output_modes: tuple[int, ...] = lab.flag(
        (2, 3, 4, 5, 6), "Components of the outputs, beside two of the prompts.", at_least=1
    )
    n: int = lab.flag(1000, "Pairs.", at_least=1)
    bandwidth: float = lab.flag(0.6, "Of both kernels, in the units of the plane.", above=0)
    apart: float = lab.flag(3.0, "Distance of neighbouring centres.", above=0)
    spreads: tuple[float, ...] = lab.flag(
        (0.15, 0.3, 0.6), "Standard deviations of all components.", above=0
    )
    repeats: int = lab.flag(5, "Draws of every mixture.", at_least=2)

    def prepare(self, load, seed):
        most = max(*self.prompt_modes, *self.output_modes, *_FIXED.values())
        if self.n < most:
            raise ValueError(f"--n: expected at least one pair a mode, {most}, received {self.n}.")
        words = f"neighbouring centres {self.apart:g} apart, matched by the least sum of distances"
        return self.ready(description=f"Two Gaussian mixtures in the plane, {words}")

    @property
    def varied(self) -> dict[str, tuple[int, ...]]:
        """The numbers of modes of each mixture while those of the other are `_FIXED`."""
        return {"prompts": self.prompt_modes, "outputs": self.output_modes}

    def cells(self):
        """The mixtures of both rows of CV fig 11, each once, at every spread."""
        rows = self.varied.items()
        places = [tuple((_FIXED | {name: modes}).items()) for name, row in rows for modes in row]
        return [
            Cell((*place, ("spread", spread)))
            for place in dict.fromkeys(places)
            for spread in self.spreads
        ]

    def compute(self, state, context, *, prompts, outputs, spread):
        """Draws, pairs and scores two mixtures; the points of the first draw are kept."""
        kernel, values = cv.Gaussian(self.bandwidth), []
        kernels: dict[str, Any] = {"output_kernel": kernel, "prompt_kernel": kernel}
        keys = jax.random.split(context.key, self.repeats)
        modes = outputs, prompts
        drawn = [draw_pairs(modes, self.apart, spread, key, self.n) for key in keys]
        for points, _ in drawn:
            orders = [cv.decompose(*points, order=order, **kernels) for order in (1, 2)]
            values.append([float(score) for of in orders for score in of.scores[1:]])
        points, kinds = (np.moveaxis(of, 0, 1) for of in drawn[0])
        axes = ("pair", "role")
        fields = {"value": (("repeat", "score"), values), "mode": (axes, kinds.astype(np.int8))}
        fields["point"] = ((*axes, "place"), points.astype(np.float16))
        return xr.Dataset(fields, {"score": list(SCORES), "role": ["outputs", "prompts"]})

    def tables(self, run):
        """The scores, with 95% intervals, and where they rise and fall."""
        rows, names = ("spread", "varied", "modes"), {"varied": "more modes of"}
        look: dict[str, Any] = {"rows": rows, "columns": "score", "names": names, "digits": 3}
        yield tables.table(_by_modes(run), error="error", **look)
        yield tables.grid_of(_trends(run))

    @classmethod
    def figures(cls, runs):
        return {"gmm_toy": _lines(runs[-1]), "gmm_toy_pairs": _picture(runs[-1])}

    @classmethod
    def facts(cls, runs):
        return {"trends": _trends(runs[0]), "by": _by_modes(runs[0])}


def _by_modes(run: lab.Run) -> xr.Dataset:
    """The scores by which mixture's modes vary and by their number."""
    found = tables.t_intervals(run.found.value, "repeat")
    rows = [
        found.sel(_FIXED | {name: list(modes)}, drop=True).rename({name: "modes"})
        for name, modes in run.study.varied.items()
    ]
    varied = xr.IndexVariable("varied", list(_FIXED))
    return xr.concat(rows, varied, join="outer").sortby("modes")


def moves(values: np.ndarray) -> str:
    """From where to where values go, and whether each step goes the same way."""
    steps = np.sign(np.diff(values))
    ends = f"{values[0]:.2f} to {values[-1]:.2f}"
    return ends if len(set(steps)) == 1 else f"{ends}, up and down"


def _comes_out(printed: list[float], values: np.ndarray, errors: np.ndarray) -> bool:
    """Whether values move as printed by more than their errors, and no step goes back by more."""
    moved = np.sign(printed[1] - printed[0]) * values
    whole, steps = moved[:, -1] - moved[:, 0], np.diff(moved)
    noise = np.hypot(errors[:, 1:], errors[:, :-1])
    return bool((whole > np.hypot(errors[:, -1], errors[:, 0])).all() and (steps > -noise).all())


def _moving(run: lab.Run) -> Iterator[tuple[str, str, list[float], np.ndarray, np.ndarray]]:
    """Of each trend: what varies, its score, its printed ends; ours, errors `[spreads, modes]`."""
    found = _by_modes(run)
    for trend, ends in papers.printed("CV", "fig 11").items():
        score, varied = trend.split(", ")
        line = found.sel(varied=varied, score=score).dropna("modes").transpose("spread", "modes")
        yield varied, score, ends, line.value.values, line.error.values


def _trends(run: lab.Run) -> list[list[str]]:
    """How the scores of order 1 move as the modes of one mixture become more, a row a trend."""
    spreads = [f"spread {of:g}" for of in run.study.spreads]
    return [["more modes of", "score", "printed", *spreads]] + [
        [varied, score, *map(moves, [np.array(ends), *ours])]
        for varied, score, ends, ours, _ in _moving(run)
    ]


def _lines(run: lab.Run) -> Figure:
    """Both scores of order 1 against the modes of either mixture, a line a spread."""
    study, found = run.study, _by_modes(run).sel(score=list(SCORES[:2]))
    drawn = figures.facets(
        found, x="modes", hue="spread", row="score", column="varied", error="error",
        x_label="number of modes", size=(3.45, 2.2), sharey="row",
        names={of: f"spread {of:g}" for of in study.spreads},
        y_label=lambda score: score, title=lambda _, varied: f"more modes of {varied}",
    )  # fmt: skip
    places = itertools.product(SCORES[:2], study.varied.items())
    for panel, (score, (varied, modes)) in zip(drawn.axes, places, strict=False):
        ends = papers.printed("CV", "fig 11")[f"{score}, {varied}"]
        panel.plot([modes[0], modes[-1]], ends, "k*", label="_", zorder=3)
    come_out = sum(_comes_out(ends, *ours) for _, _, ends, *ours in _moving(run))
    everywhere = " at every spread" * (len(study.spreads) > 1)
    style.headline(drawn, f"{come_out} of 4 printed trends come out{everywhere}")
    n = f"n = {study.n:,} pairs, {study.repeats} draws, bandwidth {study.bandwidth:g}"
    return figures.caption(drawn, run, n=f"{n}; stars: printed, of another geometry", bars="95%")


def _picture(run: lab.Run) -> Figure:
    """Pairs of the first draw at the middle spread, prompts above outputs as in CV fig 11."""
    study = run.study
    spread = study.spreads[len(study.spreads) // 2]
    figure = Figure(figsize=(5.0, 6.2), layout="constrained")
    parts: Any = figure.subfigures(2)
    for part, (varied, counts) in zip(parts, study.varied.items(), strict=True):
        part.suptitle(f"more modes of {varied}", fontsize=9)
        shown = [counts[i] for i in np.linspace(0, len(counts) - 1, _COLUMNS).astype(int)]
        for column, count in zip(part.subplots(2, len(shown), squeeze=False).T, shown, strict=True):
            place = _FIXED | {varied: count}
            draw = run.found.sel(place | {"spread": spread})
            modes = draw["mode"].sel(role="prompts").astype(int)
            colours = np.take(style.CYCLE, modes, mode="wrap")
            for role, axes in zip(("prompts", "outputs"), column, strict=True):
                axes.scatter(*draw.point.sel(role=role).T, s=2, c=colours, linewidths=0)
                axes.set(aspect="equal", xticks=[], yticks=[], title=f"{place[role]} of {role}")
    edge = 1.05 * float(abs(run.found.point.sel(spread=spread)).max())
    for axes in figure.axes:
        axes.set(xlim=(-edge, edge), ylim=(-edge, edge))
    style.headline(figure, "Each mode of prompts has the outputs nearby (one colour)")
    return figures.caption(figure, run, n=f"n = {study.n:,} pairs; spread {spread:g}")
