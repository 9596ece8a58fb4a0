"""The benchmark's figure: time against n, and beside that of all eigenvalues."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.cost.contests import CONTESTANTS
from experiments.cost.measured import Record, records
from experiments.cost.timing import Spread
from experiments.lab import Run, style

# By part: what a panel shows, and the lines in it, ours first.
_PANELS = {
    "order 2": ("three norms of order 2", ("library", "dense JAX", "dense torch", "rke-score")),
    "exact": (
        "all eigenvalues of one matrix",
        ("spectrum", "jnp.linalg.eigvalsh", "torch.linalg.eigvalsh", "vendi_score"),
    ),
}
_COLOURS = (style.BLUE, style.VERMILION, style.ORANGE, style.PINK)
# Fewer sizes make no curve.
_LEAST_SIZES = 3


def _curves(run: Run) -> dict[str, dict[str, list[tuple[int, Spread]]]]:
    """By part, by contestant: n and seconds on the mixture, of the parts that have curves."""
    found = {}
    for part, (_, names) in _PANELS.items():
        among = [r for r in records(run) if r.data == "mixture" and r.part == part]
        curves = {name: [(r.n, r.seconds(name)) for r in among] for name in names}
        curves = {k: [at for at in of if not math.isnan(at[1].median)] for k, of in curves.items()}
        if len(curves[names[0]]) >= _LEAST_SIZES:
            found[part] = {name: of for name, of in curves.items() if len(of) > 1}
    return found


def draw(run: Run) -> dict[str, Figure]:
    """Seconds against n, a panel a part that has curves; and order 1 beside all eigenvalues."""
    curves, shares, drawn, name = _curves(run), _shares(run), {}, run.study.name
    if curves:
        figure, panels = style.panels(len(curves), size=(7 / len(curves), 2.8), sharey=True)
        for axes, (part, of) in zip(panels, curves.items(), strict=True):
            _draw_curves(axes, part, of)
            axes.set_title(_PANELS[part][0])
        style.label_lines(*panels)
        words = filter(None, (_quickest(run, part) for part in curves))
        style.headline(figure, f"Time: {'; '.join(words)}")
        drawn[f"{name}_time"] = figure
    if shares:
        figure, (panel,) = style.panels(1, size=(7, 2.2))
        words = f"Scores of order 1 to within {run.study.rtol:.1%}"
        style.headline(figure, f"{words}: {_draw_shares(panel, shares)}")
        drawn[f"{name}_estimates"] = figure
    study, dtype = run.study, next(iter(run.provenance.values()))["dtype"]
    words = f"{study.device}, {study.cores} cores, {dtype}. Medians; bars: least to most of "
    for figure in drawn.values():
        style.caption(figure, f"{words}{study.repeats} calls or more.")
    return drawn


def _draw_curves(axes: Axes, part: str, curves: Mapping[str, list[tuple[int, Spread]]]) -> None:
    """A line a contestant, with a bar from the least to the most."""
    names = _PANELS[part][1]
    for name, of in curves.items():
        at, dashes = names.index(name), "--" if CONTESTANTS[part][name].peer else "-"
        sizes, (median, least, most) = [n for n, _ in of], np.array([s for _, s in of]).T
        look: dict[str, Any] = {"c": _COLOURS[at], "marker": style.MARKERS[at], "ls": dashes}
        axes.plot(sizes, median, label=name if at else "ours", **look)
        axes.errorbar(sizes, median, [median - least, most - median], c=look["c"], ls="", lw=1)
    axes.set_yscale("log")
    style.log_counts(axes, sorted({n for of in curves.values() for n, _ in of})[::2])
    axes.set(xlabel="sample size n", ylabel="seconds a call")
    axes.label_outer()


def _quickest(run: Run, part: str) -> str:
    """The time of the quickest peer at the largest n, in words; '' where there is none."""
    _, (ours, *others) = _PANELS[part]
    among = [r for r in records(run) if (r.part, r.data) == (part, "mixture")]
    found = [(r.n, name, r.ratio(name, ours)) for r in among for name in others]
    found = [(n, name, spread) for n, name, spread in found if not math.isnan(spread.median)]
    if not found:
        return ""
    n, name, spread = max(found, key=lambda of: (of[0], -of[2].median))
    return f"{name} {spread.median:.2g} times ours at n = {n:,}"


def _shares(run: Run) -> list[tuple[Record, Spread]]:
    """By data and n, the time of an estimate over that of all eigenvalues."""
    found = [(r, r.ratio("stored", "exact")) for r in records(run) if r.part == "measure"]
    return [(record, spread) for record, spread in found if not math.isnan(spread.median)]


def _draw_shares(panel: Axes, shares: Sequence[tuple[Record, Spread]]) -> str:
    """Draws the shares, the first at the top, and says how large they are."""
    heights = range(len(shares))[::-1]
    panel.set_yticks(heights, [f"{record.data}, {record.n:,}" for record, _ in shares])
    panel.set_ylim(-0.6, len(shares) - 0.4)
    median, least, most = 100 * np.array([spread for _, spread in shares]).T
    panel.errorbar(median, heights, xerr=[median - least, most - median], fmt="o", c=style.BLUE)
    panel.set(xlabel="% of the time of all eigenvalues", xlim=(0, None))
    return f"{min(median):.0f}% to {max(median):.0f}% of the time of all eigenvalues"
