"""What a saved result of the benchmark says. A number stands on three calls, or there is none."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from rich.table import Table

from experiments.cost import engines, timing
from experiments.cost.contests import CONTESTANTS, counted
from experiments.cost.timing import Spread
from experiments.lab import Run


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
        return counted(
            CONTESTANTS[self.part][name], self._of("seconds", name).dropna("call").values
        )

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
