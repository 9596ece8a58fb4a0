"""What makes the figures one family: palette, panels, labels, captions, saving."""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from scipy.optimize import isotonic_regression

from condvendi_jax.base import files

# Okabe and Ito (2008): eight colours that colour-blind readers tell apart.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, BLACK, GREY = "#56B4E9", "#D55E00", "#000000", "#777777"
CYCLE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK)
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# A score has one colour in every figure; its truncated forms share it and differ in the dashes.
SCORES = {
    "Conditional-Vendi": BLUE,
    "Conditional-RKE": VERMILION,
    "Information-Vendi": GREEN,
    "Information-RKE": ORANGE,
    "Vendi": PINK,
    "RKE": BLACK,
}
# What stands beside a bound in the figures of theorems.
MEASURED, PRINTED, PROVED = BLUE, VERMILION, GREEN

Shared = bool | Literal["none", "all", "row", "col"]

_TEXT = 7.5  # Points: legends and labels at lines.
_HEADLINE, _CAPTION = 10, 7

matplotlib.rcParams.update(
    {
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.labelsize": 9,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 9,
        "errorbar.capsize": 2,
        "figure.titlesize": 10,
        "font.size": 9,
        "grid.alpha": 0.3,
        "grid.linewidth": 0.5,
        "legend.fontsize": _TEXT,
        "legend.frameon": False,
        "lines.linewidth": 1.5,
        "lines.markersize": 4,
        "pdf.fonttype": 42,  # Letters that can be searched and copied.
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
    }
)


def score_colour(name: str, other: str = GREY) -> str:
    """The colour of a score by its name; what follows a comma ('Vendi, t = 200') has no part."""
    return SCORES.get(name.partition(",")[0], other)


def look(number: int, colour: str) -> dict[str, Any]:
    """The marker of the line of a number; every second one is hollow, to be told apart in grey."""
    face = "white" if number % 2 else colour
    return {"color": colour, "marker": MARKERS[number % len(MARKERS)], "markerfacecolor": face}


def panels(
    count: int,
    *,
    columns: int | None = None,
    size: tuple[float, float] = (3.6, 3.0),
    sharex: Shared = False,
    sharey: Shared = False,
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of a size in inches, row by row.

    By default three stand in a row at most, and two where there are four.
    """
    columns = columns or (2 if count == 4 else min(count, 3))
    rows = -(-count // columns)
    # Not pyplot's: nothing is shown, and nothing stays open.
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def log_counts(axes: Axes, ticks: Sequence[int]) -> None:
    """A logarithmic axis of sample sizes, with ticks at some of them written out."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())


def log_numbers(axis: Axis) -> None:
    """A logarithmic axis whose few decades are written out as numbers: 0.1, 1, 10."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def log_axis(panel: Axes, digits: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """A logarithmic axis of one or two decades, with some digits of each written out."""
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    if high < 5 * low:
        digits = (1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8)
    panel.yaxis.set_major_locator(LogLocator(subs=digits))
    panel.yaxis.set_minor_locator(NullLocator())
    log_numbers(panel.yaxis)


def matrix(
    panel: Axes,
    values: np.ndarray,
    names: Sequence[str],
    words: Sequence[Sequence[str]],
    **look: Any,
) -> None:
    """A square matrix in colours, with words in its cells and names at two sides; NaN has none."""
    image = panel.imshow(values, **look)
    for (row, column), text in np.ndenumerate(np.array(words)):
        red, green, blue, _ = image.cmap(image.norm(values[row, column]))
        dark = 0.30 * red + 0.59 * green + 0.11 * blue < 0.5 and np.isfinite(values[row, column])
        colour = "white" if dark else BLACK
        panel.text(column, row, text, color=colour, fontsize=7, ha="center", va="center")
    panel.set_xticks(range(len(names)), names, rotation=50, ha="right")
    panel.set_yticks(range(len(names)), names)
    panel.grid(visible=False)


def label_lines(*panels: Axes) -> None:
    """Writes the label of each line at its right end, off the data and off each other.

    Lines without a label are left alone. The panels' limits and scales must be final.
    """
    figure = panels[0].figure.get_figure(root=True)
    figure.draw_without_rendering()  # Only then do the panels have their heights.
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        lines: Any = [of[0] if isinstance(of, ErrorbarContainer) else of for of in handles]
        ends = [axes.transData.transform(_last_point(line))[1] for line in lines]
        order, pixels = np.argsort(ends), figure.dpi / 72
        rows = np.array([1 + labels[index].count("\n") for index in order])
        spacing = 1.25 * _TEXT * pixels * (rows[:-1] + rows[1:]) / 2
        lowest = np.append(0, np.cumsum(spacing))  # Moved as little as needed to be so far apart.
        heights = isotonic_regression(np.array(ends)[order] - lowest).x + lowest
        for index, height in zip(order, heights, strict=True):
            look = {"color": lines[index].get_color(), "fontsize": _TEXT, "va": "center"}
            look |= {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
            end, away = (1, _last_point(lines[index])[1]), (height - ends[index]) / pixels
            axes.annotate(labels[index], end, (4, away), **look)


def above(
    panel: Axes, words: str, point: tuple[float, float], points: float = 4, side="center"
) -> None:
    """Writes words so many points above a point of the data; their right or left end is there."""
    look: dict[str, Any] = {"textcoords": "offset points", "ha": side, "fontsize": 7}
    look["path_effects"] = [patheffects.withStroke(linewidth=1.5, foreground="white")]
    panel.annotate(words, point, (0, points), **look)


def known(panel: Axes, value: float, words: str, *, side="right", below=False) -> None:
    """Draws a dotted line at a known or printed value, and says above or below it what it is."""
    panel.axhline(value, color=BLACK, linestyle=":", linewidth=1.2)
    at, away = ((1, -2) if side == "right" else (0, 3)), (-3 if below else 2)
    look: dict[str, Any] = {"ha": side, "va": "top" if below else "bottom", "fontsize": _TEXT}
    look |= {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    panel.annotate(words, (at[0], value), (at[1], away), **look)


def _last_point(line: Line2D) -> tuple[float, float]:
    points = np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float)
    return tuple(points[np.isfinite(points).all(axis=1)][-1])


def legend_above(figure: Figure, axes: Axes, *, columns: int = 4) -> None:
    """One legend for all panels, above them: their lines mean the same."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)


def headline(figure: Figure, finding: str) -> Figure:
    """Writes the finding above all panels and legends; the figure grows by its lines.

    Legends that come later are not below it.
    """
    width, height = figure.get_size_inches()
    words = textwrap.fill(finding, int(width * 72 / (0.6 * _HEADLINE)))
    lines = (1.25 * _HEADLINE * (1 + words.count("\n")) + 6) / 72
    figure.set_size_inches(width, height + lines)
    figure.draw_without_rendering()
    room = [legend.get_window_extent().height / figure.dpi + 0.1 for legend in figure.legends]
    for legend in figure.legends:  # Anchored, it makes no room for itself.
        legend.set_bbox_to_anchor((0, 0, 1, height / (height + lines)))
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0, 0, 1, (height - max(room, default=0)) / (height + lines)))
    look: dict[str, Any] = {"fontsize": _HEADLINE, "fontweight": "bold", "va": "top"}
    figure.text(0.01, 1 - 0.05 / (height + lines), words, **look).set_in_layout(False)
    return figure


def caption(figure: Figure, text: str) -> Figure:
    """What data, n, bandwidths and seed a figure shows: a line or two below the panels."""
    width = int(figure.get_size_inches()[0] * 72 / (0.57 * _CAPTION))
    figure.supxlabel(textwrap.fill(text, width), fontsize=_CAPTION, x=0.01, ha="left")
    return figure


def paths(path: pathlib.Path) -> list[pathlib.Path]:
    """The files of a figure by its path without a suffix."""
    return [path.with_name(path.name + suffix) for suffix in (".png", ".pdf")]


def save(figure: Figure, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes the `paths` of a figure, each whole or not at all; the same figure, the same bytes."""
    for target in paths(path):
        # Without a date the same results give the same bytes.
        metadata = {"CreationDate": None} if target.suffix == ".pdf" else {"Software": None}
        with files.atomic_writer(target) as stream:
            figure.savefig(stream, format=target.suffix[1:], dpi=160, metadata=metadata)
    return paths(path)
