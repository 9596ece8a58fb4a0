"""What was measured in a cell of the benchmark."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.lab import Run


def dataset(
    dimensions: Sequence[int], results: Mapping[str, Any], left_out: Mapping[str, str]
) -> xr.Dataset:
    """The measurements of a cell, with the axes `contestant`, `call`, `quantity` and `end`.

    A `value` is an estimate and the ends of its interval, or a number and NaN. `left_out` says why
    a contestant took no part or failed, '' where it did.
    """
    names = [*results, *left_out]
    quantities = list(dict.fromkeys(q for of in results.values() for v in of["values"] for q in v))
    calls = max((len(of["seconds"]) for of in results.values()), default=1)
    seconds = np.full((len(names), calls), np.nan)
    values = np.full((*seconds.shape, len(quantities), 3), np.nan)
    memory = np.full(len(names), np.nan)
    for row, of in enumerate(results.values()):
        seconds[row, : len(of["seconds"])] = of["seconds"]
        memory[row] = of.get("memory_bytes", np.nan)
        for call, found in enumerate(of["values"]):
            for name, numbers in found.items():
                values[row, call, quantities.index(name), : np.size(numbers)] = numbers
    reasons = [""] * len(results) + list(left_out.values())
    return xr.Dataset(
        {
            "seconds": (("contestant", "call"), seconds),
            "value": (("contestant", "call", "quantity", "end"), values),
            "memory_bytes": ("contestant", memory),
            "left_out": ("contestant", np.array(reasons, str)),
            "dimensions": ("of", np.array(dimensions, int)),
        },
        {"contestant": np.array(names, str), "quantity": np.array(quantities, str)},
    )


class Record(NamedTuple):
    """A cell with its `dataset`."""

    part: str
    data: str
    n: int
    measured: xr.Dataset

    def _of(self, variable: str, name: str) -> xr.DataArray:
        """What there is of a contestant; NaN of one that took no part."""
        return self.measured[variable].reindex(contestant=[name]).isel(contestant=0)

    def calls(self, name: str) -> np.ndarray:
        """The seconds of each call of a contestant; none where it took no part."""
        return self._of("seconds", name).dropna("call").values

    def seconds(self, name: str) -> float:
        """The median time of a call after the first, or of the first where there is no other."""
        taken = self.calls(name)
        return float(np.median(taken[1:] if len(taken) > 1 else taken)) if len(taken) else np.nan

    def mebibytes(self, name: str) -> float:
        """The memory that the calls took at their peak, beyond data and runtime, in MiB."""
        return self._of("memory_bytes", name).item() / 2**20

    def ratio(self, one: str, other: str) -> float:
        """The median over the rounds that both took part in of one's time over the other's.

        The first round warms up. Where one of them was not called again, its first call was long
        enough to count, and stands beside the median of the other.
        """
        pairs = list(zip(self.calls(one)[1:], self.calls(other)[1:], strict=False))
        if pairs:
            return float(np.median([a / b for a, b in pairs]))
        return self.seconds(one) / self.seconds(other)

    def values(self, name: str) -> xr.DataArray:
        """What each call of a contestant gave, `[quantity, call, end]`; only what it did give."""
        found = self._of("value", name).transpose("quantity", "call", "end")
        return found.dropna("quantity", how="all")

    def first(self, name: str) -> xr.DataArray:
        """What the first call of a contestant gave, `[quantity]`, without intervals."""
        return self.values(name).isel(call=0, end=0)


def records(run: Run) -> list[Record]:
    """What each cell of a run measured."""
    return [Record(**cell.values, measured=measured) for cell, measured in run.results.items()]
