"""What a saved result of the benchmark says. A number stands on three calls, or there is none."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

from experiments.cost import engines, timing
from experiments.cost.contests import CONTESTANTS, counted
from experiments.cost.timing import Spread
from experiments.lab import Run, style

PARTS = {"order2": "order 2", "exact": "exact", "measure": "measure"}
"""The names of the parts in cells, by what flags call them."""
# By part: what a panel shows, and the lines in it, ours first.
_PANELS = {
    "order 2": ("three norms of order 2", ("library", "dense JAX", "dense torch", "rke-score")),
    "exact": (
        "all eigenvalues of one matrix",
        ("spectrum", "jnp.linalg.eigvalsh", "torch.linalg.eigvalsh", "vendi_score"),
    ),
}
_COLOURS = (style.BLUE, style.VERMILION, style.ORANGE, style.PINK)


class Record(NamedTuple):
    """A cell with what `contests.dataset` made of it."""

    part: str
    data: str
    n: int
    found: xr.Dataset

    def _of(self, variable: str, name: str) -> xr.DataArray:
        """What there is of a contestant; NaN of one that took no part."""
        return self.found[variable].reindex(contestant=[name]).isel(contestant=0)

    def calls(self, name: str) -> np.ndarray:
        """The seconds of the calls of a contestant that count."""
        seconds = self._of("seconds", name).dropna("call").values
        return counted(CONTESTANTS[self.part][name], seconds)

    def seconds(self, name: str) -> Spread:
        """The seconds of a call."""
        return timing.spread(self.calls(name))

    def ratio(self, one: str, other: str) -> Spread:
        """One's time over the other's, of calls that took turns.

        Raises:
          ValueError: a contestant is compared with itself, which says nothing.
        """
        if one == other:
            raise ValueError(f"{one} is compared with itself.")
        pairs = zip(self.calls(one), self.calls(other), strict=False)
        return timing.spread([a / b for a, b in pairs])

    def mebibytes(self, name: str) -> float:
        """The memory that the calls took at their peak, beyond data and runtime, in MiB."""
        there = len(self.calls(name)) >= timing.AT_LEAST
        return self._of("memory_bytes", name).item() / 2**20 if there else np.nan

    def values(self, name: str) -> xr.DataArray:
        """What each call of a contestant gave, `[quantity, call, end]`; only what it did give."""
        found = self._of("value", name).transpose("quantity", "call", "end")
        return found.dropna("quantity", how="all")

    def errors(self, name: str) -> xr.Dataset:
        """The relative errors of a contestant's scores over the seeds, `[quantity, call]`.

        Quantities are called 'vendi', 'conditional-t200' or 'joint 448': what follows a space says
        how it was computed and has no part in the exact value. `half` is half the width of the
        interval, relative to the score; `held` whether it holds the exact value, 0 or 1.
        """
        exact, found = self.values("exact").isel(call=0, end=0), self.values(name)
        exact_of = {q: q.partition(" ")[0] for q in found.quantity.values.tolist()}
        enough = found.isel(end=0).count("call") >= timing.AT_LEAST
        known = [q for q, of in exact_of.items() if of in exact.quantity and enough.sel(quantity=q)]
        truth = exact.sel(quantity=[exact_of[q] for q in known]).drop_vars("quantity")
        value, low, high = found.sel(quantity=known).dropna("call", how="all").transpose("end", ...)
        held = ((low <= truth) & (truth <= high)).where(low.notnull())
        error, half = abs(np.expm1(value - truth)), np.expm1((high - low) / 2)
        return xr.Dataset({"error": error, "half": half, "held": held})

    def at_products(self, name: str) -> np.ndarray:
        """The relative errors of exp H(X, T) at `engines.PRODUCTS` products, of the best split."""
        error = self.errors(name).error
        wanted = [q for q in error.quantity.values.tolist() if f"joint {engines.PRODUCTS}" in q]
        if not wanted:
            return np.array([])
        splits = error.sel(quantity=wanted)
        return splits.isel(quantity=int((splits**2).mean("call").argmin("quantity"))).values

    def norm_error(self) -> float:
        """The largest relative error of our squared norms against float64, 0 without them."""
        exact, ours = (self.values(name).isel(call=0, end=0) for name in ("float64", "library"))
        return float(abs(ours / exact - 1).max()) if exact.size and ours.size else 0.0


def rms(errors: np.ndarray) -> float:
    """Their root mean square; NaN where there are none."""
    return float(np.sqrt(np.mean(np.square(errors)))) if errors.size else np.nan


def records(run: Run) -> list[Record]:
    """What each cell of a run measured."""
    return [Record(**cell.values, found=found) for cell, found in run.results.items()]


def contest(part: str, among: Sequence[Record], memory: bool = False) -> Table:
    """Seconds a call of a part's contestants, or the MiB that it takes, a row a data set and n."""
    rows = {}
    for record in (record for record in among if record.part == part):
        for name in (k for k, entry in CONTESTANTS[part].items() if entry.calls == "rounds"):
            mebibytes = record.mebibytes(name)
            if not np.isnan(mebibytes):
                shown = f"{mebibytes:,.0f}" if memory else record.seconds(name).words()
                rows.setdefault((record.data, f"{record.n:,}"), {})[name] = shown
    names = [k for k in CONTESTANTS[part] if any(k in row for row in rows.values())]
    grid = Table("data", "n", *names, title=f"{part}: {'MiB' if memory else 'seconds a call'}")
    for place, row in rows.items():
        grid.add_row(*place, *(row.get(name, "-") for name in names))
    return grid


def accuracy(among: Sequence[Record]) -> Table:
    """The accuracy of order 1 against all eigenvalues: a row a data set and n."""
    heads = ("seeds", "largest error", "mean half interval", "truncated: largest error", "held")
    per = f"rms error at {engines.PRODUCTS} products", "plain SLQ"
    grid = Table("data", "n", *heads, *per, title="order 1: accuracy")
    for record in among:
        if record.part != "measure" or not (of := record.errors("by tolerance")).quantity.size:
            continue
        cut = np.array(["-t" in quantity for quantity in of.quantity.values.tolist()])
        numbers = [of.error[~cut].max(), of.half[~cut].mean(), of.error[cut].max()]
        numbers = [f"{number.item():.3%}" for number in numbers]
        held = f"{of.held.sum().item():.0f} of {of.held.count().item()}"
        both = [f"{rms(record.at_products(name)):.2%}" for name in ("by budget", "plain SLQ")]
        both = ["-" if word == "nan%" else word for word in both]
        grid.add_row(record.data, f"{record.n:,}", str(of.sizes["call"]), *numbers, held, *both)
    return grid


class Ratio(NamedTuple):
    """One contestant over another at the largest n at which both have numbers."""

    n: float
    median: float
    least: float
    most: float
    memory: float


def ratio(among: Sequence[Record], part: str, one: str, other: str, n: int = 0) -> Ratio:
    """One's time and memory over the other's, at n or the largest; names have _ for no letters."""
    names = {re.sub(r"\W", "_", name): name for name in CONTESTANTS[PARTS[part]]}
    found = Ratio(*[np.nan] * 5)
    for record in _of_mixtures(among, PARTS[part]):
        spread = record.ratio(names[one], names[other])
        if n in (0, record.n) and not math.isnan(spread.median):
            more = record.mebibytes(names[one]) / record.mebibytes(names[other])
            found = Ratio(record.n, *spread, more)
    return found


def _of_mixtures(among: Sequence[Record], part: str) -> list[Record]:
    return [record for record in among if (record.part, record.data) == (part, "mixture")]


def draw(run: Run) -> dict[str, Figure]:
    """Seconds against n, a panel a part; the time of estimates over that of all eigenvalues."""
    among, drawn, name, study = records(run), {}, run.study.name, run.study
    parts = {part: of for part in _PANELS if len(of := _of_mixtures(among, part)) > 2}
    if parts:
        figure, panels = style.panels(len(parts), size=(7 / len(parts), 2.8), sharey=True)
        for panel, (part, of) in zip(panels, parts.items(), strict=True):
            _draw_times(panel, part, of)
        style.label_lines(*panels)
        words = "; ".join(filter(None, (_quickest(part, of) for part, of in parts.items())))
        drawn[f"{name}_time"] = style.headline(figure, f"Time: {words}")
    shares = [(r, r.ratio("stored", "exact")) for r in among if r.part == "measure"]
    shares = [(r, spread) for r, spread in shares if not math.isnan(spread.median)]
    if shares:
        figure, (panel,) = style.panels(1, size=(7, 2.2))
        heights = range(len(shares))[::-1]
        median, least, most = 100 * np.array([spread for _, spread in shares]).T
        panel.errorbar(median, heights, xerr=[median - least, most - median], fmt="o", c=style.BLUE)
        panel.set_yticks(heights, [f"{record.data}, {record.n:,}" for record, _ in shares])
        panel.set(xlabel="% of the time of all eigenvalues", xlim=(0, None))
        panel.set_ylim(-0.6, len(shares) - 0.4)
        words = f"Scores of order 1 to within {study.rtol:.1%}: {min(median):.0f}% to "
        words += f"{max(median):.0f}% of the time of all eigenvalues"
        drawn[f"{name}_estimates"] = style.headline(figure, words)
    dtype = next(iter(run.provenance.values()))["dtype"]
    words = f"{study.device}, {study.cores} cores, {dtype}. Medians; bars: least to most of "
    return {
        k: style.caption(of, f"{words}{study.repeats} calls or more.") for k, of in drawn.items()
    }


def _draw_times(panel: Any, part: str, among: Sequence[Record]) -> None:
    """A line a contestant with two sizes or more, and bars from the least to the most."""
    title, names = _PANELS[part]
    for at, name in enumerate(names):
        spreads = {r.n: r.seconds(name) for r in among}
        spreads = {n: spread for n, spread in spreads.items() if not math.isnan(spread.median)}
        if len(spreads) < 2:
            continue
        median, least, most = np.array([*spreads.values()]).T
        look: dict[str, Any] = {"c": _COLOURS[at], "marker": style.MARKERS[at]}
        dashes = "--" if CONTESTANTS[part][name].peer else "-"
        panel.plot([*spreads], median, label=name if at else "ours", ls=dashes, **look)
        bars = [median - least, most - median]
        panel.errorbar([*spreads], median, bars, c=_COLOURS[at], ls="", lw=1)
    panel.set_yscale("log")
    style.log_counts(panel, sorted(record.n for record in among)[::2])
    panel.set(xlabel="sample size n", ylabel="seconds a call", title=title)
    panel.label_outer()


def _quickest(part: str, among: Sequence[Record]) -> str:
    """The time of the quickest peer at the largest n, in words; '' where there is none."""
    ours, *others = _PANELS[part][1]
    found = [(r.n, name, r.ratio(name, ours).median) for r in among for name in others]
    found = [(n, name, median) for n, name, median in found if not math.isnan(median)]
    if not found:
        return ""
    n, name, median = max(found, key=lambda of: (of[0], -of[2]))
    return f"{name} {median:.2g} times ours at n = {n:,}"
