"""Time and memory against n, and error against products and against the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from experiments.lab import Run, style
from experiments.scaling import report
from experiments.scaling.records import Record

# Who is drawn of each part; the first are ours.
_CONTESTANTS = {
    "order 2": (("library", "tiles"), ("dense JAX", "dense torch", "rke-score")),
    "exact": (("spectrum",), ("jnp.linalg.eigvalsh", "torch.linalg.eigvalsh", "vendi_score")),
    "measure": (("stored", "matrix-free", "exact"), ()),
}
_TITLES = {
    "order 2": "order 2: three squared norms",
    "exact": "all eigenvalues of one Gram",
    "measure": "three scores of order 1",
}
_WORDS = {"exact": "all eigenvalues"}
# Who is compared in a panel's title with whom of ours.
_COMPARED = {
    "order 2": ("dense torch", "library"),
    "exact": ("torch.linalg.eigvalsh", "spectrum"),
    "measure": ("exact", "stored"),
}
_OURS = (style.BLUE, style.SKY, style.BLACK)
_PEERS = (style.VERMILION, style.ORANGE, style.PINK, style.GREEN)
# Below this the memory of a process says nothing about the call.
_RESOLVED_MIB = 1.0
_COLUMNS = 3
_SCORES = ("vendi", "conditional", "information")


def draw(run: Run) -> Mapping[str, Figure]:
    """The figures 'time', 'memory', 'real' and 'error': those that have something to show."""
    mixture = next(iter(run.study.points))
    of_mixture = [record for record in report.records(run) if record.data == mixture]
    figures = {}
    for name, measure, unit in (
        ("time", report.seconds, "seconds a call"),
        ("memory", _resolved, "memory beyond the points, MiB"),
    ):
        parts = [part for part in _CONTESTANTS if any(r.part == part for r in of_mixture)]
        if not parts:
            continue
        figure, grid = style.panels(len(parts), size=(4.4, 3.2), sharey=True)
        for axes, part in zip(grid, parts, strict=True):
            of_part = [r for r in of_mixture if r.part == part]
            _against_n(axes, of_part, measure)
            axes.set_title(f"{_TITLES[part]}{_seen(of_part, measure)}")
        grid[0].set_ylabel(unit)
        style.label_lines(*grid)
        words = "Whole lines: ours; dashed: peers"
        if name == "memory":
            words += f"; less than {_RESOLVED_MIB:g} MiB is not resolved"
        style.caption(figure, _caption(run, [mixture], words))
        figures[name] = figure
    shares = _shares(run)
    if shares:
        figures["real"] = _real(run, shares)
    compared = _compared(run)
    if compared:
        figures["error"] = _errors(run, compared)
    return figures


def _seen(records: Sequence[Record], measure: Callable[[Record, str], float | None]) -> str:
    """How much more the peer of a panel's title takes than ours, at the largest n of both."""
    peer, ours = _COMPARED[records[0].part]
    both = [(r.n, measure(r, peer), measure(r, ours)) for r in records]
    found = [(n, of_peer / of_ours) for n, of_peer, of_ours in both if of_peer and of_ours]
    if not found:
        return ""
    n, times = max(found)
    return f"\nat n = {n:,}, {_WORDS.get(peer, peer)}: {times:.2g} times {ours}"


def _resolved(record: Record, name: str) -> float | None:
    found = report.mebibytes(record, name)
    return found if found is not None and found >= _RESOLVED_MIB else None


def _against_n(
    axes: Axes, records: Sequence[Record], measure: Callable[[Record, str], float | None]
) -> None:
    ours, peers = _CONTESTANTS[records[0].part]
    looks = [*zip(ours, _OURS, strict=False), *zip(peers, _PEERS, strict=False)]
    for (name, colour), marker in zip(looks, style.MARKERS, strict=False):
        points = [(record.n, measure(record, name)) for record in records]
        points = [(n, value) for n, value in points if value]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                color=colour,
                marker=marker,
                linestyle="-" if name in ours else "--",
                label=_WORDS.get(name, name),
            )
    axes.set_yscale("log")
    style.log_counts(axes, [record.n for record in records])  # They double.
    axes.set_xlabel("sample size n")


def _shares(run: Run) -> list[tuple[Record, float]]:
    """Of every data set and n of the measure, our time as a share of that of all eigenvalues."""
    measured = [r for r in report.records(run) if r.part == "measure"]
    found = [(record, report.ratio(record, "stored", "exact")) for record in measured]
    return [(record, share) for record, share in reversed(found) if share is not None]


def _real(run: Run, shares: Sequence[tuple[Record, float]]) -> Figure:
    """The shares, a line a data set and n; below 100% the estimate was quicker."""
    height = 1.4 + 0.26 * len(shares)
    figure, (axes,) = style.panels(1, size=(8.4, height))
    heights = range(len(shares))
    axes.plot([100 * share for _, share in shares], heights, "o", color=style.BLUE)
    axes.axvline(100, color=style.GREY, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    style.log_numbers(axes.xaxis)
    axes.set_yticks(heights, [f"{r.data}, {r.n:,}" for r, _ in shares])
    axes.set_ylim(-0.6, len(shares) - 0.4)
    axes.set_xlabel(f"time within {run.study.rtol:.1%}, % of that of all eigenvalues")
    quickest = min(shares, key=lambda entry: entry[1])
    axes.set_title(
        f"{_TITLES['measure']}: {quickest[0].data} takes {100 * quickest[1]:.2g}% of the time of "
        "all eigenvalues"
    )
    names = dict.fromkeys(record.data for record, _ in reversed(shares))
    words = "Stored matrices, from points to intervals"
    style.caption(figure, _caption(run, list(names), words))
    return figure


def _compared(run: Run) -> list[Record]:
    """The largest n of each data set at which ours met plain quadrature and the exact values."""
    found = [r for r in report.records(run) if "exact" in r.results and report.plain_over_ours(r)]
    return list({record.data: record for record in found}.values())


def _errors(run: Run, compared: Sequence[Record]) -> Figure:
    """Every data set at the tolerance; then a panel a data set against products."""
    columns = min(len(compared) + 1, _COLUMNS)
    figure, grid = style.panels(len(compared) + 1, columns=columns, size=(3.6, 3.2))
    _at_tolerance(grid[0], run)
    for axes, record in zip(grid[1:], compared, strict=True):
        if axes is not grid[1]:
            axes.sharey(grid[1])
        _against_products(axes, record)
        axes.set_ylabel("rms error of exp H(X, T), %")
    style.log_numbers(grid[1].yaxis)
    style.label_lines(grid[-1])
    names = list(dict.fromkeys(r.data for r in report.records(run) if r.part == "measure"))
    style.caption(figure, _caption(run, names, "Errors are relative"))
    return figure


def _against_products(axes: Axes, record: Record) -> None:
    """The rms error of the joint entropy by the number of products, of ours and of plain SLQ."""
    for name, label, colour, dashes in (
        ("by budget", "ours: deflated,\nwith moments", style.BLUE, "-"),
        ("plain SLQ", "plain SLQ,\nbest split", style.VERMILION, "--"),
    ):
        best: dict[int, float] = {}
        for quantity in report.quantities(record, name):
            entropy, products, *_ = quantity.split()
            found = report.accuracy(record, name, quantity)
            if entropy == "joint" and found:
                best[int(products)] = min(100 * found.rms, best.get(int(products), np.inf))
        axes.plot(*zip(*best.items(), strict=True), dashes, color=colour, marker="o", label=label)
    axes.set_yscale("log")
    style.log_counts(axes, list(best))
    axes.set_xlabel("matrix-vector products")
    times = report.plain_over_ours(record).get(f"joint {report.DEFAULT_PRODUCTS}", 0)
    seen = f": plain SLQ errs\n{times:,.0f} times as much ({report.DEFAULT_PRODUCTS} products)"
    axes.set_title(f"{record.data}, n = {record.n:,}" + (seen if times else ""))


def _at_tolerance(axes: Axes, run: Run) -> None:
    """By data and n: the error of the worst score of order 1, and the interval it was given."""
    found = [(r, _worst(r)) for r in report.records(run) if r.part == "measure"]
    rows = [(record, worst) for record, worst in reversed(found) if worst is not None]
    heights = range(len(rows))
    for values, face, label in (
        ([100 * worst.within for _, worst in rows], style.BLUE, "error at 95%"),
        ([100 * float(np.mean(w.half_widths)) for _, w in rows], "white", "mean half interval"),
    ):
        look: dict[str, Any] = {"color": style.BLUE, "markerfacecolor": face, "label": label}
        axes.plot(values, heights, "o", **look)
    tolerance = 100 * run.study.rtol
    axes.axvline(tolerance, color=style.GREY, linestyle=":", label="tolerance")
    axes.set_yticks(heights, [f"{r.data}, {r.n:,} ({len(w.errors)})" for r, w in rows])
    axes.set(xlabel="worst score of order 1, % (seeds)", xlim=(0, 1.15 * tolerance))
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)


def _worst(record: Record) -> report.Accuracy | None:
    """The accuracy of the score of order 1 that came off worst."""
    found = [report.accuracy(record, "by tolerance", quantity) for quantity in _SCORES]
    return max((a for a in found if a is not None), key=lambda a: a.within, default=None)


def _caption(run: Run, names: Sequence[str], words: str) -> str:
    """Bandwidths, what is shown, precision, seed and machine kind; the data are in the report."""
    points = [(name, run.study.points[name].bandwidths) for name in names]
    widths = "; ".join(f"{name} {b.outputs:.3g}, {b.prompts:.3g}" for name, b in points)
    return (
        f"Bandwidths of outputs, prompts: {widths}. {words}; medians of up to "
        f"{run.study.repeats} rounds, seed {run.seed}; {run.study.device}, "
        f"{run.study.cores} cores, {next(iter(run.provenance.values()))['dtype']}."
    )
