"""Figures out of results with named axes: panels, lines, points, and what stands below."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.lab import scales, style
from experiments.lab.cells import Run
from experiments.lab.tables import word

_AT_ENDS = 6  # A legend is for more lines.


def facets(
    found: xr.Dataset,
    *,
    x: str,
    hue: str | None = None,
    row: str | None = None,
    column: str | None = None,
    across: int | None = None,
    kind: Literal["lines", "points"] = "lines",
    value: str = "value",
    error: str | None = None,
    letters: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    colours: Mapping[Any, str] | None = None,
    names: Mapping[Any, str] | None = None,
    title: Callable[[Any, Any], str] | None = None,
    x_label: str | Callable[[Any], str] | None = None,
    y_label: str | Callable[[Any], str] = "effective modes",
    size: tuple[float, float] = (3.6, 2.8),
    sharey: style.Shared = "row",
    each: Callable[[Axes, xr.Dataset], object] | None = None,
) -> Figure:
    """A panel for each label of `row` and `column`; in it the values against `x`, a mark a `hue`.

    Up to six lines are named at their ends, in the last panel of each row; else a legend is above.

    Args:
      found: a result that has no other axes than those named.
      x: the axis from left to right.
      hue: the axis whose labels have a colour each; scores have theirs in every figure.
      row: the axis of the panels from above to below.
      column: the axis of the panels from left to right.
      across: how many panels stand side by side before the next row begins; by default all.
      kind: lines with markers, dashed where a line has their colour already, or points.
      value: the variable that is drawn.
      error: the variable of the bars of error: one standard error; with the further axis `end`,
        the lower and upper ends of an interval.
      letters: the variable of the letters that stand above points.
      log_x, log_y: whether x or the values are logarithmic.
      colours: by label of the hue.
      names: what labels are called in the figure.
      title: `title(row label, column label)`: what is seen in a panel; None where there is no such
        axis. By default the labels themselves.
      x_label: below the lowest panels, the name of the axis by default; or below every row, by its
        label.
      y_label: beside the first panels; or by the label of the row.
      size: of a panel, in inches.
      sharey: which panels have the same values at their sides, as `Figure.subplots`.
      each: `each(panel, its part of the result)` adds what else a panel shows.
    """
    names = dict(names or {})
    rows, columns, hues = (
        [None] if axis is None else found[axis].values.tolist() for axis in (row, column, hue)
    )
    across = across or len(columns)
    figure, panels = style.panels(
        len(rows) * len(columns), columns=across, size=size, sharex=True, sharey=sharey
    )
    of_words = found[x].dtype.kind in "USO"
    for index, panel in enumerate(panels):
        of_row, of_column = rows[index // len(columns)], columns[index % len(columns)]
        place = {k: v for k, v in ((row, of_row), (column, of_column)) if k is not None}
        part = found.sel(place)
        used: list[str] = []
        for number, label in enumerate(hues):
            marks = part if hue is None else part.sel({hue: label})
            scores = (of_row, of_column) if hue is None else (label,)
            found_colours = [style.SCORES.get(str(score).partition(",")[0]) for score in scores]
            colour = (colours or {}).get(label) or next(filter(None, found_colours), None)
            colour = colour or style.CYCLE[number % len(style.CYCLE)]
            places, values, errors = marks[x].values, marks[value].values, None
            if of_words:  # Side by side.
                places = np.arange(len(places)) + (number - (len(hues) - 1) / 2) * 0.5 / len(hues)
            if error is not None:
                errors = marks[error].values
                if "end" in marks[error].dims:
                    low, high = marks[error].transpose("end", ...).values
                    errors = np.maximum(np.stack([values - low, high - values]), 0)
            fine, name = np.isfinite(values), None
            if label is not None and fine.any():
                name = names.get(label, word(label))
            dashes = style.DASHES[used.count(colour) % len(style.DASHES)]
            used.append(colour)
            panel.errorbar(
                places[fine],
                values[fine],
                None if errors is None else np.nan_to_num(errors[..., fine]),
                **style.look(number, colour),
                label=name,
                linestyle=dashes if kind == "lines" else "",
                elinewidth=0.8,
            )
            if letters is not None:
                tops = values + (0 if errors is None else np.atleast_2d(errors)[-1])
                of_marks = zip(places, tops, marks[letters].values.tolist(), strict=True)
                for place_x, height, words in of_marks:
                    if np.isfinite(height) and words:
                        style.above(panel, str(words), (place_x, height))
        if letters is not None:
            panel.margins(y=0.12)
        if log_y:
            style.log_axis(panel)
        if log_x:
            panel.set_xscale("log")
            style.log_numbers(panel.xaxis)
        if each is not None:
            each(panel, part)
        if of_words:
            labels = [names.get(label, word(label)) for label in found[x].values.tolist()]
            long = max(map(len, labels)) * len(labels) > 12 * size[0]
            turned: dict[str, Any] = {"rotation": 25, "ha": "right"} if long else {}
            panel.set_xticks(range(len(labels)), labels, **turned)
            panel.grid(axis="x", visible=False)
        if title is not None:
            panel.set_title(title(of_row, of_column))
        elif place:
            times = {place.get("scale"): "bandwidths x {:g}".format} if "scale" in place else {}
            panel.set_title(", ".join(names.get(v, times.get(v, word)(v)) for v in place.values()))
        if index % across == 0:
            panel.set_ylabel(y_label(of_row) if callable(y_label) else y_label)
        if callable(x_label) or index >= len(panels) - across:
            panel.tick_params(labelbottom=True)
            label = x_label(of_row) if callable(x_label) else x_label
            panel.set_xlabel(x if label is None else label)
    if hue is not None and len(hues) > 1:
        if kind == "lines" and len(hues) <= _AT_ENDS:
            style.label_lines(*panels[across - 1 : -1 : across], panels[-1])
        else:
            style.legend_above(figure, panels[0], columns=max(2, 2 * across))
    return figure


def dots(
    found: xr.Dataset,
    *,
    row: str,
    hue: str,
    column: str,
    headline: str,
    x_label: str,
    each: Callable[[Axes, xr.Dataset], object] = lambda panel, part: None,
) -> Figure:
    """Points in rows, whose names may be long: a panel for each label of `column`, three abreast.

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


def caption(
    figure: Figure,
    runs: Run | Sequence[Run],
    *,
    n: str = "",
    bars: str = "",
    scale: float | None = None,
) -> Figure:
    """Writes below a figure what it shows: the data, n, kernels, seed and what its bars are.

    It is two lines at most, so that a study keeps its words short: `n` is how much of the data, as
    in '40 photographs of each kind', and `bars` 'one standard error over 10 groups of prompts'.
    `scale` is the one multiple of the bandwidths that is shown, where it is one.
    """
    runs = [runs] if isinstance(runs, Run) else runs
    first = runs[0]
    fields = [value for run in runs for value in vars(run.study).values()]
    # The page of all studies has the encoders: here they leave too little room.
    described = [part for run in runs for part in run.study.description.rstrip(".").split("; ")]
    described = [part for part in dict.fromkeys(described) if "MiniLM" not in part]
    kernels = scales.words([v for v in fields if hasattr(v, "words")], scale)
    parts = ["; ".join(filter(None, described))]
    if n:
        parts[0] = f"{parts[0]}: {n}" if parts[0] else n
    if first.study.random:
        kernels.append(f"seed {first.seed}")
    parts += ["; ".join(kernels), f"Bars: {bars}" if bars else ""]
    words = ". ".join(part[0].upper() + part[1:] for part in parts if part)
    return style.caption(figure, f"{words}.")
