"""Results as figures."""

import io
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from condvendi_jax.base.tables import OPEN, span
from condvendi_jax.results.estimate import Quality, undominated
from condvendi_jax.results.evaluation import Evaluation, chosen_kernels, score_name

_PANEL_IN = (3.6, 3.2)
# Okabe and Ito's colours, which colour-blind readers can tell apart, in an order in which
# neighbours also differ in grey. Markers and dashes repeat at other periods.
_COLOURS = ("#0072B2", "#E69F00", "#000000", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)))
_DOTS = 120  # An inch of a picture, in a notebook.
_SHADE = "0.9"
# The ticks of a logarithmic axis of many decades, and of one at most.
_FEW, _MANY = (1,), (1, 1.5, 2, 3, 4, 5, 7)


class Picture(Figure):
    """A figure of Matplotlib that a notebook shows also without `%matplotlib inline`."""

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=2 * _DOTS)  # Screens have two dots to a pixel.
        width, height = _DOTS * self.get_size_inches()
        return stream.getvalue(), {"width": float(width), "height": float(height)}


def _finish(panel: Any, title: str, label: str) -> None:
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(label, fontsize=8)
    panel.tick_params(labelsize=8)
    panel.grid(alpha=0.3)


def over_bandwidths(profile: Any) -> Picture:
    """The scores of a `Profile` with bands, a panel each; lines end where models are at a limit."""
    names, widths = profile.names, profile.bandwidths
    size = (_PANEL_IN[0] * max(len(names), 2), _PANEL_IN[1] + 0.2 * (1 + len(profile.models) // 6))
    drawn = Picture(figsize=size, layout="constrained")
    panels = drawn.subplots(1, len(names), squeeze=False)[0]
    ends = np.concatenate([widths[:1], np.sqrt(widths[1:] * widths[:-1]), widths[-1:]])
    for panel, name in zip(panels, names, strict=True):
        values, bands, saturated = profile.curves(name)
        for index, model in enumerate(profile.models):
            drawn_as = look(index)
            label = model.replace("$", r"\$").lstrip("_") or None
            line = np.where(saturated[index], math.nan, values[index])
            panel.plot(widths, line, linewidth=1.3, label=label, markersize=3, **drawn_as)
            shown = np.clip(bands[index].T, values[index] / OPEN, values[index] * OPEN)
            panel.fill_between(widths, *shown, alpha=0.25, linewidth=0, color=drawn_as["color"])
        for k in np.flatnonzero(np.all(saturated, axis=0)):  # Up to half way to the next ones.
            panel.axvspan(ends[k], ends[k + 1], color=_SHADE, linewidth=0, zorder=0)
        chosen = widths[0] / profile.multiples[0]
        if widths[0] <= chosen <= widths[-1]:
            panel.axvline(chosen, color="0.4", linewidth=0.9, dashes=(4, 3))
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.margins(x=0)
        low, high = panel.get_ylim()
        panel.yaxis.set_major_locator(LogLocator(subs=_FEW if high > 30 * low else _MANY))
        for axis in (panel.xaxis, panel.yaxis):  # Without powers of ten, at the main ticks.
            axis.set_major_formatter("{x:.3g}")
            axis.set_minor_formatter("")
        _finish(panel, score_name(name, profile.order, None), f"bandwidth of the {profile.axis}")
    panels[0].set_ylabel("effective number of modes", fontsize=8)
    if any(profile.models):
        labels = panels[0].get_legend_handles_labels()
        drawn.legend(*labels, loc="outside upper center", ncols=6, fontsize=8)
    drawn.supxlabel(_caption(profile), fontsize=7)
    return drawn


def look(index: int) -> dict[str, Any]:
    """The colour, marker and dashes of a model by its place: no two of 56 look the same."""
    cycles = {"color": _COLOURS, "marker": _MARKERS, "linestyle": _DASHES}
    return {name: values[index % len(values)] for name, values in cycles.items()}


def qualities(models: Mapping[str, Quality], n: Iterable[int], first: Evaluation) -> Picture:
    """The share of good outputs of models, and the diversity among them, with intervals.

    The caption has the choices of the `first` evaluation.
    """
    best, drawn = undominated(models), Picture(figsize=(4.2, 3.6), layout="constrained")
    plane = drawn.subplots()
    for index, (model, rated) in enumerate(models.items()):
        drawn_as, name = look(index), model.replace("$", r"\$")
        colour, marker = drawn_as["color"], drawn_as["marker"]
        x, y = rated.share.value, rated.diversity.value
        if math.isfinite(y):
            ends = [np.array(e.ends or [e.value] * 2) for e in (rated.share, rated.diversity)]
            bars = ends[0], [y, y], [x, x], np.minimum(ends[1], OPEN * y)
            plane.plot(*bars, linewidth=1, color=colour)
            fill = "full" if model in best else "none"
            plane.plot(x, y, marker, fillstyle=fill, color=colour)
            plane.annotate(name, (x, y), (3, 3), textcoords="offset points", size=7)
    _finish(plane, "Filled: no other model is better in both", "share of good outputs")
    plane.set_ylabel("diversity among good outputs", fontsize=8)
    caption = f"{chosen_kernels(first.bandwidths)}; seed {first.seed}"
    drawn.supxlabel(f"n = {span(n)}; lines: 95% intervals\n{caption}", fontsize=7)
    return drawn


def _caption(profile: Any) -> str:
    moves, multiples = "the bandwidth", profile.multiples
    if len(profile.names) > 1:
        moves = "both bandwidths" if profile.over == "both" else f"{moves} of {profile.over} alone"
    bands = f"bands: {1 - profile.level:.0%}, of a model at all bandwidths at once"
    if np.isnan(profile.bands.vendi).all() and profile.reason is not None:
        bands = f"without bands: {profile.reason}"
    rule = profile.chosen[profile.axis].rule
    return (
        f"n = {span(profile.n)}; {moves} times {multiples[0]:.3g} to {multiples[-1]:.3g}; {bands}; "
        f"seed {profile.seed}.\nDashed: the chosen bandwidth ({rule}). "
        "Grey: all models are at a limit."
    )
