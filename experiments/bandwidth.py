"""What the scores are at every bandwidth: CV-early figures 25 and 26.

Conditional- and Information-Vendi and -RKE of several models on the prompts that they share, while
the bandwidth of the prompts goes from far below the rule's to far above it, and then that of the
outputs. Beside the curves: what they must tend to at both ends, and whether the ranking of the
models at the rule's bandwidths survives elsewhere.

    python -m experiments.bandwidth --least=0.9
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from condvendi_jax import validation
from experiments import bandwidth_surfaces, lab
from experiments.bandwidth_surfaces import ENDS, LEAST_PROMPTS, ORDERS, SCORES, SWEEPS, other
from experiments.lab import figures, style
from experiments.lab.scales import SCALES

_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))


@dataclasses.dataclass(frozen=True)
class Bandwidth(lab.Study):
    """What hangs on the bandwidths, and does the ranking of models?"""

    name = "bandwidth"
    reproduces = "CV-early figs 25, 26"
    duration = "2 minutes"
    needs = ("models",)
    runs = ((),)
    drawings = ("bandwidth_prompts", "bandwidth_outputs", "bandwidth_map")

    bandwidths: lab.Scales = lab.Scales()
    reach: tuple[float, ...] = lab.flag(
        (1 / 8, 32.0), "The least and the largest multiple of the bandwidths in a sweep."
    )
    per_octave: int = lab.flag(2, "Bandwidths of a sweep to a factor of two.", at_least=1)
    least: float = lab.flag(
        0.5, "Models that answer a smaller share of all prompts than this are left out.", above=0
    )
    rows: int = lab.flag(
        400, "Pairs of each model at most, of prompts drawn at random.", at_least=LEAST_PROMPTS
    )
    n: int = lab.resolved(0)
    prompts: int = lab.resolved(0)
    models: tuple[str, ...] = lab.resolved(())
    multiples: tuple[float, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Matches the models' prompts and chooses the bandwidths that the sweeps are around."""
        if self.bandwidths.kernel != "gaussian":
            raise ValueError("--kernel: expected gaussian, whose bandwidth is swept.")
        multiples = self._multiples()
        loaded = load()
        pairs = bandwidth_surfaces.matched(loaded, least=self.least, rows=self.rows, seed=seed)
        models = tuple(dict.fromkeys(pairs.labels["models"].tolist()))
        return self.ready(
            pairs,
            state=pairs,
            arrays=loaded.arrays,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            n=len(pairs) // len(models),
            prompts=validation.distinct_rows(pairs.prompts)[0],
            models=models,
            multiples=multiples,
        )

    def _multiples(self) -> tuple[float, ...]:
        """The multiples of a sweep, ascending; those that are held are among them."""
        if len(self.reach) != 2 or not 0 < self.reach[0] < 1 < self.reach[1] < math.inf:
            raise ValueError(
                "--reach: expected a multiple below 1 and one above, received "
                f"{', '.join(f'{m:g}' for m in self.reach)}."
            )
        held, (low, high) = self.bandwidths.scales or SCALES, self.reach
        if 1.0 not in held:
            raise ValueError(f"--scales: expected 1 among them, received {held}.")
        count = 1 + math.ceil(self.per_octave * math.log2(high / low) - 1e-9)
        spaced = np.geomspace(low, high, count).round(6)
        return tuple(np.union1d(spaced, np.round(held, 6)).tolist())

    @property
    def held(self) -> list[float]:
        """The multiples at which one bandwidth is held while the other is swept."""
        return [round(scale, 6) for scale in self.bandwidths.scales or ()]

    def axes(self):
        """Every model."""
        return {"model": self.models}

    def compute(self, state, context, *, model):
        """Every score of one model by the multiples of both bandwidths, and the curves' limits.

        By `left_out`: 0 is nothing, the others are groups of prompts, of order 2 alone. Of order 1
        NaN where neither bandwidth is held.
        """
        whole = self.bandwidths.axis[self.held.index(1.0)]
        multiples = list(self.multiples)
        values, limits = bandwidth_surfaces.scores(
            state.rows(state.labels["models"] == model),
            (whole.outputs * np.array(multiples), whole.prompts * np.array(multiples)),
            [multiples.index(scale) for scale in self.held],
            context.shared_key,
            context.say,
        )
        labels = {
            "order": list(ORDERS),
            "score": list(SCORES),
            "left_out": np.arange(values.shape[2]),
            "outputs": multiples,
            "prompts": multiples,
            "sweep": list(SWEEPS),
            "scale": self.held,
            "end": list(ENDS),
        }
        of_limits = ("sweep", "scale", "order", "score", "end")
        return xr.Dataset(
            {"value": (tuple(labels)[:5], values), "limit": (of_limits, limits)}, labels
        )

    def tables(self, run):
        """How far the ranking of the models at the rule's bandwidths reaches."""
        found = run.found
        heads = ("swept", "score", "the other at", "scores at the rule's", "least tau")
        grid = Table(*heads, "ranking unchanged", "pairs reversed beyond 2 errors")
        for sweep, order, score, scale in itertools.product(SWEEPS, ORDERS, SCORES, self.held):
            place = {other(sweep): scale, sweep: 1.0, "left_out": 0}
            ends = np.sort(found.value.sel(order=order, score=score, **place))[[0, -1]]
            taus = bandwidth_surfaces.taus(found, order, score, sweep, scale)
            same = bandwidth_surfaces.same_ranking(taus, np.array(self.multiples))
            grid.add_row(
                sweep,
                f"{score}-{order}",
                f"{scale:g}",
                "{:.4g} to {:.4g}".format(*ends),
                f"{np.fmin.reduce(taus):.2f}",  # NaN where every one is.
                "{:.2g} to {:.2g}".format(*same),
                bandwidth_surfaces.reversals(found, score, sweep, scale) if order == "RKE" else "",
            )
        yield grid

    @classmethod
    def figures(cls, runs):
        """A figure of each sweep (CV-early figs 25 and 26) and one of all bandwidths."""
        drawn = {}
        for run in runs:
            for sweep in SWEEPS:
                drawn[f"{run.folder.name}_{sweep}"] = _sweep(run, sweep)
            drawn[f"{run.folder.name}_map"] = _map(run)
        return drawn


def _sweep(run: lab.Run, sweep: str) -> Figure:
    """Conditional and Information side by side as in the papers, and the ranking beside them."""
    figure, axes = style.panels(6, columns=3, size=(4.0, 3.0), sharex=True)
    panels = np.array(axes, object).reshape(2, 3)
    for row, order in zip(panels, ORDERS, strict=True):
        for panel, score in zip(row[:2], SCORES, strict=True):
            _curves(panel, run, order, score, sweep)
        _rankings(row[2], run, order, sweep)
    for panel in panels[1]:
        _octaves(panel)
        panel.set_xlabel(f"bandwidth of the {sweep}, multiples of the rule's")
    style.legend_above(figure, axes[0], columns=5)
    axes[2].legend(loc="lower right", fontsize=6.5)
    return _caption(figure, run, "one standard error over prompts (RKE); triangles: the limits")


def _octaves(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(
        lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}"
    )


def _curves(panel: Axes, run: lab.Run, order: str, score: str, sweep: str) -> None:
    """A curve a model, the other bandwidth as the rule has it, and the limits at both ends."""
    place = {"order": order, "score": score}
    values = run.found.value.sel({**place, other(sweep): 1.0}).transpose("model", "left_out", sweep)
    ends = run.found.limit.sel({**place, "sweep": sweep, "scale": 1.0})
    x = values[sweep].values
    models = values.model.values.tolist()
    for index, model in enumerate(models):
        colour = style.CYCLE[index % len(style.CYCLE)]
        dash, curve = _DASHES[index // len(style.CYCLE)], values.values[index]
        panel.plot(x, curve[0], color=colour, linestyle=dash, label=model, linewidth=1.1)
        if order == "RKE":
            error = bandwidth_surfaces.jackknife(curve[None])[0]
            panel.fill_between(x, curve[0] - error, curve[0] + error, color=colour, alpha=0.25)
        for where, end, marker in zip((x[0] / 1.7, x[-1] * 1.7), ENDS, "<>", strict=True):
            label = "limit" if model == models[-1] and marker == ">" else None
            look = {"color": style.GREY, "markerfacecolor": colour, "linestyle": "", "alpha": 0.9}
            limit = ends.sel(model=model, end=end)
            panel.plot(where, limit, marker=marker, markersize=5, label=label, **look)
    panel.axvline(1, color=style.GREY, linewidth=0.8)
    mean = values.sel(left_out=0).mean("model")
    low, high = mean.isel({sweep: 0}).item(), mean.isel({sweep: -1}).item()
    panel.set_title(f"{score}-{order}: from {low:.3g} to {high:.3g} on average")
    panel.set_ylabel("effective number of modes")
    style.log_axis(panel)


def _rankings(panel: Axes, run: lab.Run, order: str, sweep: str) -> None:
    """Kendall's tau with the ranking at the rule's bandwidths, for every held multiple."""
    for score, (place, scale) in itertools.product(SCORES, enumerate(run.study.held)):
        taus = bandwidth_surfaces.taus(run.found, order, score, sweep, scale)
        panel.plot(
            run.study.multiples,
            taus,
            color=style.score_colour(f"{score}-{order}"),
            linestyle=_DASHES[place % len(_DASHES)],
            label=f"{score}, {other(sweep)} at {scale:g}",
            linewidth=1.1,
        )
    panel.axvline(1, color=style.GREY, linewidth=0.8)
    least = np.fmin.reduce(bandwidth_surfaces.taus(run.found, order, SCORES[0], sweep, 1.0))
    title = f"ranking by Conditional-{order}: tau down to {least:.2f}"
    panel.set(ylim=(-1.05, 1.05), title=title, ylabel="Kendall's tau with the rule's")


def _map(run: lab.Run) -> Figure:
    """Order 2 at all bandwidths: the mean over the models, and its ranking."""
    figure, axes = style.panels(4, columns=2, size=(4.2, 3.6), sharex=True)
    found = run.found.value.sel(order="RKE", left_out=0)
    for index, score in enumerate(SCORES):
        values = found.sel(score=score).transpose("outputs", "prompts", "model")
        mean = np.exp(np.log(values).mean("model"))
        title = f"{score}-RKE is {mean.min().item():.3g} to {mean.max().item():.3g}"
        _mesh(axes[index], mean, f"{title}\n(geometric mean over the models)", log=True)
        at_rule = values.sel(outputs=1.0, prompts=1.0).values
        taus = bandwidth_surfaces.kendall(at_rule, values.values.reshape(-1, len(at_rule)), 2.0)
        kept = f"{np.isclose(taus, 1).mean():.0%}"
        title = f"{score}-RKE keeps the rule's ranking\nat {kept} of the bandwidths (tau = 1)"
        _mesh(axes[2 + index], mean.copy(data=taus.reshape(mean.shape)), title, log=False)
    for panel in axes[-2:]:
        panel.set_xlabel("bandwidth of the prompts, multiples of the rule's")
    for panel in axes[::2]:
        panel.set_ylabel("bandwidth of the outputs")
    return _caption(figure, run, "")


def _mesh(panel: Axes, values: xr.DataArray, title: str, *, log: bool) -> None:
    norm: dict[str, Any] = (
        {"norm": "log", "cmap": "viridis"} if log else {"vmin": -1, "vmax": 1, "cmap": "RdBu"}
    )
    mesh = panel.pcolormesh(
        values.prompts, values.outputs, values, shading="nearest", rasterized=True, **norm
    )
    bar = panel.figure.colorbar(mesh, ax=panel)
    if log:
        style.log_numbers(bar.ax.yaxis)
    panel.plot(1, 1, "+", color="white" if log else style.BLACK, markersize=9)
    _octaves(panel)
    panel.set_yscale("log", base=2)
    panel.yaxis.set_major_formatter(panel.xaxis.get_major_formatter())
    panel.grid(False)
    panel.set_title(title)


def _caption(figure: Figure, run: lab.Run, bars: str) -> Figure:
    study = run.study
    n = f"{len(study.models)} models on {study.prompts:,} shared prompts, n = {study.n:,} each"
    return figures.caption(figure, run, n=n, bars=bars, scale=1.0)


if __name__ == "__main__":
    lab.main(Bandwidth)
