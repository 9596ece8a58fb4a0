"""Mixtures of prompts and of outputs, more components of one against fixed ones: CV figure 11.

Points of two Gaussian mixtures in the plane are paired by the matching of least total weight. With
more modes of prompts a prompt says more of its output; with more modes of outputs the model adds
more. The geometry is the nearest that `gmm_search` found to the scores that the paper prints.

    python -m experiments.gmm_toy --repeats=20
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab, mixture_fits
from experiments.generators.mixtures2d import Geometry, draw_pairs
from experiments.gmm_search import GmmSearch, nearest
from experiments.lab import Cell, figures, runner, scales, store, style, tables
from experiments.mixture_fits import PRINTED

SCORES = ("Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE")
_NEAREST = "the nearest of gmm_search"
_WEIGHTS = {"distance": "distances", "squared": "squared distances"}


@dataclasses.dataclass(frozen=True)
class GmmToy(lab.Study):
    """What do more modes of prompts, and more modes of outputs, do to the scores?"""

    name = "gmm_toy"
    reproduces = "CV fig 11"
    duration = "1 minute"
    data = None
    runs = ((),)
    drawings = ("gmm_toy", "gmm_toy_curves")

    prompt_modes: tuple[int, ...] = lab.flag(
        (1, 2, 3, 4),
        "Components of the prompts, beside --outputs_fixed of the outputs.",
        at_least=1,
    )
    output_modes: tuple[int, ...] = lab.flag(
        (2, 3, 4, 5, 6),
        "Components of the outputs, beside --prompts_fixed of the prompts.",
        at_least=1,
    )
    outputs_fixed: int = lab.flag(
        4, "Components of the outputs while those of the prompts vary.", at_least=1
    )
    prompts_fixed: int = lab.flag(
        2, "Components of the prompts while those of the outputs vary.", at_least=1
    )
    shown: tuple[int, ...] | None = lab.flag(
        None, "Those of --output_modes that are scatter panels; 2, 3, 4 and 6 if unset, or all."
    )
    geometry: str | None = lab.flag(
        None, "A JSON file of a geometry; the nearest of the committed search if unset."
    )
    n: int = lab.flag(1000, "Pairs.", at_least=1)
    bandwidth: float = lab.flag(0.6, "Of both kernels, in the units of the plane.", above=0)
    scales: tuple[float, ...] = lab.flag(
        scales.SCALES, "Multiples of it; the panels are at 1.", above=0
    )
    repeats: int = lab.flag(10, "Draws of every mixture.", at_least=1)
    fitted: Geometry | None = lab.resolved()

    def prepare(self, load, seed):
        """Checks the flags and reads the geometry."""
        most = max(*self.prompt_modes, *self.output_modes, self.outputs_fixed, self.prompts_fixed)
        if self.n < most:
            raise ValueError(f"--n: expected at least one pair a mode, {most}, received {self.n}.")
        usual = tuple(m for m in self.output_modes if m != 5)
        shown = self.shown or (usual if len(usual) == 4 else self.output_modes)
        if not set(shown) <= set(self.output_modes):
            raise ValueError(
                f"--shown: expected some of --output_modes, {_listed(self.output_modes)}, received "
                f"{_listed(shown)}."
            )
        if 1.0 not in self.scales:
            raise ValueError(f"--scales: expected 1 among them, received {_listed(self.scales)}.")
        if self.geometry is None:
            search = GmmSearch
            fitted = nearest(store.read_run(runner.COMMITTED / search.name, search))
        else:
            fitted = mixture_fits.read_geometry(self.geometry)
        # A file is known by its contents, wherever it stands.
        return self.ready(
            arrays={"geometry": mixture_fits.numbers_of(fitted)},
            description=_described(fitted, "given" if self.geometry else _NEAREST),
            geometry=None,
            prompt_modes=tuple(sorted(self.prompt_modes)),
            output_modes=tuple(sorted(self.output_modes)),
            shown=shown,
            fitted=fitted,
        )

    def panels(self, varied: str) -> list[tuple[int, int]]:
        """The components (of prompts, of outputs) where those of one vary."""
        if varied == "prompts":
            return [(modes, self.outputs_fixed) for modes in self.prompt_modes]
        return [(self.prompts_fixed, modes) for modes in self.output_modes]

    def cells(self):
        """The panels of both rows, each once, in every draw."""
        panels = dict.fromkeys(self.panels("prompts") + self.panels("outputs"))
        return [
            Cell((("prompts", prompts), ("outputs", outputs), ("repeat", repeat)))
            for prompts, outputs in panels
            for repeat in range(self.repeats)
        ]

    def compute(self, state, context, *, prompts, outputs, repeat):
        """Draws, pairs and scores one panel; the points of the first draw are kept."""
        assert self.fitted is not None  # The study is resolved.
        mixtures = self.fitted.outputs(outputs), self.fitted.prompts(prompts)
        pairs = draw_pairs(*mixtures, context.key, self.n, self.fitted.weight)
        values = []
        for scale in self.scales:
            kernel = cv.Gaussian(scale * self.bandwidth)
            kernels = {"output_kernel": kernel, "prompt_kernel": kernel, "method": cv.Exact()}
            found = [
                cv.decompose(pairs.outputs, pairs.prompts, order=order, **kernels)
                for order in (1.0, 2.0)
            ]
            values.append([float(s) for f in found for s in (f.conditional, f.information)])
        points = np.stack([pairs.outputs, pairs.prompts], axis=1)
        modes = np.stack([pairs.output_modes, pairs.prompt_modes], axis=1)
        return as_result(self.scales, values, points, modes if repeat == 0 else None)

    def tables(self, run):
        """Means and standard deviations of one draw, beside what is printed."""
        found = run.found
        beside = _printed(found).sel(score=list(SCORES[:2]))
        beside = beside.assign_coords(score=[f"{name}, printed" for name in SCORES[:2]])
        shown = xr.concat([_over_draws(found)[["value", "error"]], beside], "score")
        yield tables.table(
            shown,
            rows=("scale", "prompts", "outputs"),
            columns="score",
            error="error",
            names={"scale": f"bandwidth, of {self.bandwidth:g}"},
        )

    @classmethod
    def figures(cls, runs):
        """The panels of the paper, and the whole curves at every bandwidth."""
        return {"gmm_toy": _panels(runs[-1]), "gmm_toy_curves": _curves(runs[-1])}


def as_result(scales, values, points, modes) -> xr.Dataset:
    """The scores of one draw; with its points and their components where those are not None."""
    labels = {"scale": list(scales), "score": list(SCORES), "role": ["outputs", "prompts"]}
    found = xr.Dataset({"value": (("scale", "score"), values)}, labels)
    if modes is None:
        return found
    axes = ("pair", "role")
    points = np.asarray(points, np.float16)
    return found.assign(point=((*axes, "place"), points), mode=(axes, np.asarray(modes, np.int8)))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _described(geometry: Geometry, source: str) -> str:
    """The data, for a caption."""
    return (
        f"Two Gaussian mixtures, {geometry.layout} of extent {geometry.extent:.3g} ({source}), "
        f"matched by the least sum of {_WEIGHTS[geometry.weight]}"
    )


def _over_draws(found: xr.Dataset) -> xr.Dataset:
    """Mean and standard deviation of one draw."""
    value, several = found.value, min(1, found.sizes["repeat"] - 1)
    spread = value.std("repeat", ddof=several, skipna=False)
    return xr.Dataset({"value": value.mean("repeat", skipna=False), "error": spread})


def _printed(found: xr.Dataset) -> xr.Dataset:
    """What the paper prints, at the labels of a result; NaN elsewhere."""
    value = xr.full_like(found.value.isel(repeat=0), np.nan)
    for panel in PRINTED:
        place = {"prompts": panel.prompts, "outputs": panel.outputs, "scale": 1.0}
        if panel.prompts in value.prompts and panel.outputs in value.outputs:
            value.loc[place | {"score": SCORES[0]}] = panel.conditional
            value.loc[place | {"score": SCORES[1]}] = panel.information
    value = value.where(found.value.isel(repeat=0).notnull())
    return xr.Dataset({"value": value, "error": xr.full_like(value, np.nan)})


def _panels(run: lab.Run) -> Figure:
    """A pair of axes a panel, prompts above outputs, as CV fig 11 has them."""
    study, found = run.study, run.found
    rows = {"prompts": study.panels("prompts")}
    rows["outputs"] = [(study.prompts_fixed, modes) for modes in study.shown]
    columns = max(map(len, rows.values()))
    means = _over_draws(found).value.sel(scale=1.0, score=list(SCORES[:2]))
    printed = _printed(found).value.sel(scale=1.0)
    edge = 1.05 * float(abs(found.point).max())
    figure = Figure(figsize=(2.2 * columns, 10.6), layout="constrained")
    parts: Any = figure.subfigures(2)
    for part, (varied, panels) in zip(parts, rows.items(), strict=True):
        moves = [_moves(means, panels, score) for score in SCORES[:2]]
        part.suptitle(f"More modes of {varied}: {', '.join(moves)}")
        grid = part.subplots(2, columns, squeeze=False)
        for column, (prompts, outputs) in zip(grid.T, panels, strict=False):
            place = {"prompts": prompts, "outputs": outputs}
            lines = [f"T: {prompts} mode{'s' * (prompts > 1)}, X: {outputs}"]
            for score in SCORES[:2]:
                value, known = (of.sel(place | {"score": score}).item() for of in (means, printed))
                lines.append(f"{score} {value:.2f}" + ("" if np.isnan(known) else f" [{known}]"))
            column[0].set_title("\n".join(lines))
            for role, axes in zip(("prompts", "outputs"), column, strict=True):
                _scatter(axes, found.sel(place | {"repeat": 0}), role)
                axes.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
        for axes, name in zip(grid[:, 0], ("prompts T", "outputs X"), strict=True):
            axes.set_ylabel(name)
        for axes in grid[:, len(panels) :].flat:
            axes.remove()
    _bar(figure.axes[0], study.bandwidth)
    n = (
        f"n = {study.n:,} pairs; colour: the prompt's mode. Scores: means of {study.repeats} draws "
        "[printed in the paper]; Gaussian kernel"
    )
    return figures.caption(figure, run, n=n)


def _moves(means: xr.DataArray, panels: Sequence[tuple[int, int]], score: str) -> str:
    """From where to where a score goes along a row of panels."""
    first, last = (
        means.sel(prompts=prompts, outputs=outputs, score=score).item()
        for prompts, outputs in (panels[0], panels[-1])
    )
    return f"{score} {'rises' if last > first else 'falls'} from {first:.2f} to {last:.2f}"


def _scatter(axes: Axes, draw: xr.Dataset, role: str) -> None:
    """The prompts or the outputs of one draw."""
    modes = draw["mode"].sel(role="prompts").values.astype(int)
    colours = np.array(style.CYCLE)[modes % len(style.CYCLE)]
    points = draw.point.sel(role=role).values.astype(float)
    axes.scatter(*points.T, s=2, c=colours.tolist(), linewidths=0)
    axes.set(xticks=[], yticks=[])


def _bar(axes: Axes, width: float) -> None:
    """A bar as long as the bandwidth, in the lower left corner."""
    left, bottom = 0.92 * axes.get_xlim()[0], 0.92 * axes.get_ylim()[0]
    axes.plot([left, left + width], [bottom, bottom], color=style.BLACK, linewidth=2)
    axes.annotate(
        f"bandwidth {width:g}", (left, bottom), (0, 4), textcoords="offset points", fontsize=7.5
    )


def _curves(run: lab.Run) -> Figure:
    """Scores against the number of modes: a row a family of mixtures, a column a bandwidth."""
    study, found = run.study, run.found
    drawn = _over_draws(found)
    drawn = xr.Dataset(
        {"value": drawn.value, "error": 2 * drawn.error, "printed": _printed(found).value}
    )
    rows = {
        "prompts": drawn.sel(outputs=study.outputs_fixed, prompts=list(study.prompt_modes)),
        "outputs": drawn.sel(prompts=study.prompts_fixed, outputs=list(study.output_modes)),
    }
    rows = [of.drop_vars(_other(name)).rename({name: "modes"}) for name, of in rows.items()]
    shown = xr.concat(
        rows, xr.DataArray(["prompts", "outputs"], dims="varied", name="varied"), join="outer"
    )
    fixed = {"prompts": study.outputs_fixed, "outputs": study.prompts_fixed}

    def title(varied: str, scale: float) -> str:
        words = []
        for score in SCORES[:2]:
            of = shown.value.sel(varied=varied, scale=scale, score=score).dropna("modes").values
            words.append(f"{score.partition('-')[0]} {of[-1] / of[0] - 1:+.0%}")
        return f"bandwidth {scale * study.bandwidth:g}: {', '.join(words)}"

    def crosses(panel: Axes, part: xr.Dataset) -> None:
        values = part.printed.sel(score=list(SCORES[:2])).values
        panel.plot(part.modes, values, "x", markersize=9, color=style.BLACK)

    figure = figures.facets(
        shown,
        x="modes",
        hue="score",
        row="varied",
        column="scale",
        error="error",
        title=title,
        x_label="modes",
        y_label=lambda varied: f"more modes of {varied},\n{fixed[varied]} of {_other(varied)}",
        each=crosses,
    )
    n = (
        f"n = {study.n:,} pairs; Gaussian kernel. Titles: Vendi scores from end to end; crosses: "
        "printed in the paper"
    )
    bars = f"two standard deviations over {study.repeats} draws"
    return figures.caption(figure, run, n=n, bars=bars)


def _other(varied: str) -> str:
    return "outputs" if varied == "prompts" else "prompts"


if __name__ == "__main__":
    lab.main(GmmToy)
