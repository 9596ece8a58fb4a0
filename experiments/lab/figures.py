"""Figures out of results with named axes: panels, lines, points, and what stands below."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.lab import style
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
      found: a result that has no other axes than x and these three.
      hue: the axis whose labels have a colour each; scores have theirs in every figure.
      row, column: the axes of the panels.
      across: how many panels stand side by side before the next row begins; by default all.
      kind: lines with markers, dashed where a line has their colour already, or points.
      value: the variable that is drawn.
      error: the variable of the bars of error: one standard error; with the further axis `end`,
        the lower and upper ends of an interval.
      letters: the variable of the letters that stand above points.
      colours: by label of the hue.
      names: what labels are called in the figure.
      title: `title(row label, column label)`, None where there is no such axis; by default the
        labels themselves.
      x_label: below the lowest panels, the name of the axis by default; or below every row, by its
        label.
      y_label: beside the first panels; or by the label of the row.
      size, sharey: of `style.panels`.
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
    for index, (of_row, of_column) in enumerate(itertools.product(rows, columns)):
        panel = panels[index]
        place = {k: v for k, v in ((row, of_row), (column, of_column)) if k is not None}
        part = found.sel(place)
        used: list[str] = []
        for number, label in enumerate(hues):
            marks = part if hue is None else part.sel({hue: label})
            scores = (of_row, of_column) if hue is None else (label,)
            known = [style.score_colour(str(score), "") for score in scores]
            of_cycle = style.CYCLE[number % len(style.CYCLE)]
            colour = next(filter(None, [(colours or {}).get(label), *known]), of_cycle)
            places, values = marks[x].values, marks[value].values
            if of_words:  # Side by side.
                places = np.arange(len(places)) + (number - (len(hues) - 1) / 2) * 0.5 / len(hues)
            errors = np.zeros(len(values)) if error is None else marks[error].values
            if error is not None and "end" in marks[error].dims:
                low, high = marks[error].transpose("end", ...).values
                errors = np.maximum(np.stack([values - low, high - values]), 0)
            fine = np.isfinite(values)
            named = label is not None and fine.any()
            dashes = style.DASHES[used.count(colour) % len(style.DASHES)]
            used.append(colour)
            panel.errorbar(
                places[fine],
                values[fine],
                None if error is None else np.nan_to_num(errors[..., fine]),
                **style.look(number, colour),
                label=names.get(label, word(label)) if named else None,
                linestyle=dashes if kind == "lines" else "",
                elinewidth=0.8,
            )
            if letters is not None:
                panel.margins(y=0.12)
                tops = values + np.atleast_2d(errors)[-1]
                for at, top, words in zip(places, tops, marks[letters].values, strict=True):
                    if np.isfinite(top) and words:
                        style.above(panel, str(words), (at, top))
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
            scales = {of: f"bandwidths x {of:g}" for axis, of in place.items() if axis == "scale"}
            panel.set_title(", ".join((scales | names).get(of, word(of)) for of in place.values()))
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

    The result has `value` over these axes, and any others, whose labels have a point each in a row;
    the half width of its bar, `error`, or over `end` too the `ends` of it, where there are any.
    `each(panel, its part of the result)` adds what else a panel shows.
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
    kernels: dict[str, list[str]] = {}  # What several runs have in common is said once.
    for of in (value for run in runs for value in vars(run.study).values()):
        if hasattr(of, "words"):
            kernels.setdefault(of.words(scale), []).append(of.widths)
    # The page of all studies has the encoders: here they leave too little room.
    described = [part for run in runs for part in run.study.description.rstrip(".").split("; ")]
    described = [part for part in dict.fromkeys(described) if "MiniLM" not in part]
    said = [k.format(" and ".join(dict.fromkeys(widths))) for k, widths in kernels.items()]
    parts = ["; ".join(filter(None, described))]
    if n:
        parts[0] = f"{parts[0]}: {n}" if parts[0] else n
    if first.study.random:
        said.append(f"seed {first.seed}")
    parts += ["; ".join(said), f"Bars: {bars}" if bars else ""]
    words = ". ".join(part[0].upper() + part[1:] for part in parts if part)
    return style.caption(figure, f"{words}.")
