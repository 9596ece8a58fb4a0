"""Time and memory against n, and error against products and against the tolerance."""

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from experiments.cost.scaling import report
from experiments.cost.scaling.records import Record, records
from experiments.lab import Run, style

# By part: what a panel shows, whose lines it has, ours first, and which peer its title compares
# with which of ours.
_PANELS = {
    "order 2": (
        "order 2: three squared norms",
        ("library", "tiles"),
        ("dense JAX", "dense torch", "rke-score"),
        ("dense torch", "library"),
    ),
    "exact": (
        "all eigenvalues of one Gram",
        ("spectrum",),
        ("jnp.linalg.eigvalsh", "torch.linalg.eigvalsh", "vendi_score"),
        ("torch.linalg.eigvalsh", "spectrum"),
    ),
    "measure": (
        "three scores of order 1",
        ("stored", "matrix-free", "exact"),
        (),
        ("exact", "stored"),
    ),
}
_WORDS = {"exact": "all eigenvalues"}
_OURS = (style.BLUE, style.SKY, style.BLACK)
_PEERS = (style.VERMILION, style.ORANGE, style.PINK)
# Below this the memory of a process says nothing about the call.
_RESOLVED_MIB = 1.0

_Measure = Callable[[Record, str], float]


def draw(run: Run) -> Mapping[str, Figure]:
    """The figures 'time', 'memory', 'real' and 'error': those that have something to show."""
    medians = f"medians of up to {run.study.repeats} rounds"
    unresolved = f"less than {_RESOLVED_MIB:g} MiB is not resolved"
    found = {
        "time": _against_n(run, Record.seconds, "seconds a call", medians),
        "memory": _against_n(run, _resolved, "memory beyond the points, MiB", unresolved),
        "real": _real(run),
        "error": _errors(run),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _resolved(record: Record, name: str) -> float:
    memory = record.mebibytes(name)
    return memory if memory >= _RESOLVED_MIB else math.nan


def _against_n(run: Run, measure: _Measure, unit: str, words: str) -> Figure | None:
    """A panel a part: what each contestant takes on the mixture, a line each."""
    of_mixture = [record for record in records(run) if record.data == "mixture"]
    parts = [part for part in _PANELS if any(r.part == part for r in of_mixture)]
    if not parts:
        return None
    figure, panels = style.panels(len(parts), size=(4.4, 3.2), sharey=True)
    for axes, part in zip(panels, parts, strict=True):
        title, ours, peers, (peer, of_ours) = _PANELS[part]
        of_part = [record for record in of_mixture if record.part == part]
        colours = [*_OURS[: len(ours)], *_PEERS[: len(peers)]]
        for name, colour, marker in zip((*ours, *peers), colours, style.MARKERS, strict=False):
            points = [(record.n, measure(record, name)) for record in of_part]
            if points := [point for point in points if not math.isnan(point[1])]:
                dashes, label = "-" if name in ours else "--", _WORDS.get(name, name)
                axes.plot(*zip(*points, strict=True), dashes, c=colour, marker=marker, label=label)
        axes.set_yscale("log")
        style.log_counts(axes, [record.n for record in of_part])  # They double.
        axes.set_xlabel("sample size n")
        # How much more the peer takes than ours, at the largest n of both.
        times = [(record.n, measure(record, peer) / measure(record, of_ours)) for record in of_part]
        if times := [pair for pair in times if not math.isnan(pair[1])]:
            n, ratio = max(times)
            title += f"\nat n = {n:,}, {_WORDS.get(peer, peer)}: {ratio:.2g} times {of_ours}"
        axes.set_title(title)
    panels[0].set_ylabel(unit)
    style.label_lines(*panels)
    _caption(figure, run, ["mixture"], f"Solid lines: ours; dashed: peers; {words}")
    return figure


def _rows(axes: Axes, labels: Sequence[str]) -> range:
    """Makes the labels the rows of a panel, the first at the top; gives their heights."""
    heights = range(len(labels))[::-1]
    axes.set_yticks(heights, labels)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    return heights


def _real(run: Run) -> Figure | None:
    """Our time as a share of that of all eigenvalues, a row a data set and n."""
    ratios = [(r, r.ratio("stored", "exact")) for r in records(run) if r.part == "measure"]
    shares = [(record, 100 * share) for record, share in ratios if not math.isnan(share)]
    if not shares:
        return None
    figure, (axes,) = style.panels(1, size=(8.4, 1.4 + 0.26 * len(shares)))
    heights = _rows(axes, [f"{record.data}, {record.n:,}" for record, _ in shares])
    axes.plot([share for _, share in shares], heights, "o", color=style.BLUE)
    axes.axvline(100, color=style.GREY, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    style.log_numbers(axes.xaxis)
    axes.set_xlabel(f"time within {run.study.rtol:.1%}, % of that of all eigenvalues")
    record, least = min(shares, key=lambda entry: entry[1])
    axes.set_title(
        f"{_PANELS['measure'][0]}: {record.data}, n = {record.n:,}, take {least:.2g}% of the time "
        "of all eigenvalues"
    )
    _caption(figure, run, [record.data for record, _ in shares], "With stored matrices, medians")
    return figure


def _errors(run: Run) -> Figure | None:
    """Every data set at the tolerance; then a panel a data set that plain quadrature met."""
    measured = [record for record in records(run) if record.part == "measure"]
    met = [r for r in measured if report.best_splits(r) and report.ours_by_budget(r)]
    compared = list({record.data: record for record in met}.values())
    if not compared:
        return None
    figure, panels = style.panels(len(compared) + 1, size=(3.6, 3.2))
    _at_tolerance(panels[0], run, [(r, of) for r in measured if (of := report.worst(r))])
    for axes, record in zip(panels[1:], compared, strict=True):
        if axes is not panels[1]:
            axes.sharey(panels[1])
        _against_products(axes, record)
    style.log_numbers(panels[1].yaxis)
    style.label_lines(panels[-1])
    _caption(figure, run, [record.data for record in measured], "Errors are relative")
    return figure


def _against_products(axes: Axes, record: Record) -> None:
    """The rms error of the joint entropy by the number of products, of ours and of plain SLQ."""
    for errors, label, colour, dashes in (
        (report.ours_by_budget(record), "ours: deflated,\nwith moments", style.BLUE, "-"),
        (report.best_splits(record), "plain SLQ,\nbest split", style.VERMILION, "--"),
    ):
        # Earlier runs have truncated entropies too: 'joint-t200 448'.
        of_joint = {name: 100 * rms for name, rms in errors.items() if name.startswith("joint ")}
        products = [int(name.partition(" ")[2]) for name in of_joint]
        axes.plot(products, [*of_joint.values()], dashes, color=colour, marker="o", label=label)
    axes.set_yscale("log")
    style.log_counts(axes, products)
    axes.set(xlabel="matrix-vector products", ylabel="rms error of exp H(X, T), %")
    title, times = f"{record.data}, n = {record.n:,}", report.plain_over_ours(record)
    if not math.isnan(times):
        title += (
            f": plain SLQ errs\n{times:,.0f} times as much ({report.DEFAULT_PRODUCTS} products)"
        )
    axes.set_title(title)


def _at_tolerance(
    axes: Axes, run: Run, found: Sequence[tuple[Record, Mapping[str, float]]]
) -> None:
    """By data and n: the largest error of a score of order 1, and the widest interval."""
    heights = _rows(axes, [f"{r.data}, {r.n:,} ({of['seeds']})" for r, of in found])
    for label, face in (("error at 95%", style.BLUE), ("mean half interval", "white")):
        values = [100 * of[label] for _, of in found]
        axes.plot(values, heights, "o", color=style.BLUE, markerfacecolor=face, label=label)
    tolerance = 100 * run.study.rtol
    axes.axvline(tolerance, color=style.GREY, linestyle=":", label="tolerance")
    axes.set(xlabel="worst score of order 1, % (seeds)", xlim=(0, 1.15 * tolerance))
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)


def _caption(figure: Figure, run: Run, names: Sequence[str], words: str) -> None:
    """Bandwidths, what is shown, precision, seed and machine kind; the data are in the report."""
    points = [(name, run.study.points[name].bandwidths) for name in dict.fromkeys(names)]
    widths = "; ".join(f"{name} {b.outputs:.3g}, {b.prompts:.3g}" for name, b in points)
    style.caption(
        figure,
        f"Bandwidths of outputs, prompts: {widths}. {words}; seed {run.seed}; {run.study.device}, "
        f"{run.study.cores} cores, {next(iter(run.provenance.values()))['dtype']}.",
    )
