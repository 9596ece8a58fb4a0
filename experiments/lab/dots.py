"""Figures of points in rows, one below the other: names may be long."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.lab import style
from experiments.lab.tables import word


def facets(
    found: xr.Dataset,
    *,
    row: str,
    hue: str,
    column: str,
    headline: str,
    x_label: str,
    each: Callable[[Axes, xr.Dataset], object] = lambda panel, part: None,
) -> Figure:
    """A panel for each label of `column`, three abreast; in it a row for each of `row`.

    Args:
      found: `value` over these axes, and any others, whose labels have a point each in a row; the
        half width of its bar, `error`, or over `end` too the `ends` of it, where there are any.
      row, hue, column: the axes of the rows, from above to below, of the colours, of the panels.
      headline: the finding.
      x_label: the quantity.
      each: `each(panel, its part of the result)` adds what else a panel shows.
    """
    names, hues, columns = (found[axis].values.tolist() for axis in (row, hue, column))
    size = 7 / min(3, len(columns)), 1.1 + len(names) * max(0.14, 0.07 * len(hues))
    figure, panels = style.panels(
        len(columns), columns=min(3, len(columns)), size=size, sharex=True, sharey=True
    )
    said: list[str] = []
    for panel, label in zip(panels, columns, strict=True):
        part = found.sel({column: label}).transpose(row, ..., "end", missing_dims="ignore")
        there = [of for of in hues if part.value.sel({hue: of}).notnull().any()]
        for place, of in enumerate(there):
            marks, number = part.sel({hue: of}), hues.index(of)
            values, bars = marks.value.values.ravel(), marks.get("error", None)
            if "ends" in marks:
                bars = abs(marks.ends.values.reshape(-1, 2).T - values)
            below = np.arange(len(names)) + 0.6 * ((place + 0.5) / len(there) - 0.5)
            heights = -np.repeat(below, len(values) // len(names))
            look = {"linestyle": "", "label": word(of), **style.look(number, style.CYCLE[number])}
            panel.errorbar(values, heights, xerr=bars, **look)
        panel.set(title=word(label) if len(columns) > 1 else "", xlabel=x_label)
        panel.set(ylim=(0.5 - len(names), 0.5), yticks=-np.arange(len(names)), yticklabels=names)
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="y", visible=False)
        panel.label_outer()
        each(panel, part)
        if len(words := panel.get_legend_handles_labels()[1]) > 1 and words != said:
            panel.legend()
            said = words  # Once, where panels have the same colours.
    return style.headline(figure, headline)
