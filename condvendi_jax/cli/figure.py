"""A comparison as a figure: every score of every model with its error, and what is told apart."""

from __future__ import annotations

import math
import os
import pathlib
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from condvendi_jax import files
from condvendi_jax.inference._results import Comparison, Ranking
from condvendi_jax.report import _render

_COLUMN_IN, _ROW_IN = 2.9, 0.3
_MARGIN_IN, _CAPTION_IN = 0.8, 0.6


def draw(comparison: Comparison) -> Figure:
    """A row of panels for each order, with standard errors.

    The panels of a row share one axis, which begins at zero, so that lengths can be compared.
    """
    models, rankings = comparison.models, comparison.rankings
    columns = len({found.score for found in rankings})
    rows = len(rankings) // columns
    width = max(_COLUMN_IN * columns + 1, 5)
    height = _CAPTION_IN + rows * (_MARGIN_IN + _ROW_IN * len(models))
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, sharex="row", sharey=True, squeeze=False)
    panels = grid.ravel()
    places = range(len(models))[::-1]
    for panel, found in zip(panels, rankings, strict=True):
        shown = [_shown(found, model) for model in models]
        values, errors = ([own[k] for own in shown] for k in (0, 1))
        panel.errorbar(values, places, xerr=errors, fmt="o", markersize=4, capsize=3, color="C0")
        above: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center"}
        for place, model, (value, _, words) in zip(places, models, shown, strict=True):
            label, at = f"{words} {found.letters[model]}", 0.0 if math.isnan(value) else value
            panel.annotate(label, (at, place), fontsize=8, **above)
        panel.set_title(found.name, fontsize=10)
        panel.set_ylim(-0.6, len(models) - 0.3)
        panel.grid(axis="x", alpha=0.3)
        panel.tick_params(labelsize=8)
    for row, panel in enumerate(grid[:, 0]):
        of_row = rankings[row * columns : (row + 1) * columns]
        ends = [value + error for r in of_row for value, error, _ in (_shown(r, m) for m in models)]
        panel.set_xlim(0, 1.1 * np.nanmax([1.0, *ends]))  # Room for the last label.
    for panel in grid[-1]:
        panel.set_xlabel("effective number of modes", fontsize=8)
    panels[0].set_yticks(list(places), [model.replace("$", r"\$") for model in models])
    figure.supxlabel(_caption(comparison), fontsize=7)
    return figure


def _shown(found: Ranking, model: str) -> tuple[float, float, str]:
    """Where a score is drawn, its error and its label; NaN and '-' where there is no score.

    Of an unbiased score without an upper end, the lower end of its interval.
    """
    value, error = found.values[model], found.standard_errors[model]
    low, high = found.population[model] if found.population else (value, value)
    if math.isnan(value):
        return value, 0.0, "-"
    if math.isinf(value) or math.isinf(high):
        return low, 0.0, f"> {low:#.3g}"
    return value, error if math.isfinite(error) else 0.0, f"{value:#.3g}"


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure (.png, .pdf, .svg), with the mark of this command."""
    suffix = pathlib.Path(path).suffix.lower().removeprefix(".")
    metadata = {"Software" if suffix == "png" else "Creator": files.MARK}
    with files.atomic_writer(path) as stream:
        figure.savefig(stream, format=suffix, dpi=200, metadata=metadata)


def _caption(comparison: Comparison) -> str:
    """What data, n, bandwidth and seed it shows."""
    numbers = sorted(set(comparison.n.values()))
    n = f"n = {numbers[0]:,}" if len(numbers) == 1 else f"n = {numbers[0]:,} to {numbers[-1]:,}"
    chosen = {role: ruled.bandwidth for role, ruled in comparison.bandwidths.items()}
    widths = ", ".join(f"{role} {width:.3g}" for role, width in chosen.items() if width)
    bandwidths = f"bandwidth of {widths}; " if widths else ""
    tests = f"Models that share a letter cannot be told apart at the level {comparison.level:g}."
    if comparison.untested:
        tests = f"Without letters: {comparison.untested}."
    if any(ranking.saturated for ranking in comparison.rankings):
        tests += " Without letters: not tested, because saturated."
    by = dict.fromkeys(
        _render.errors_in_words(scored.errors_by)
        for evaluation in comparison.evaluations.values()
        for scored in evaluation.orders
        if scored.errors_by is not None
    )
    errors = f"± one standard error ({'; '.join(by)})"
    order = "order 2 unbiased; " if any(found.unbiased for found in comparison.rankings) else ""
    return f"{n}; {bandwidths}{order}{errors}; seed {comparison.first.seed}.\n{tests}"
