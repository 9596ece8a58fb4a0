"""What was measured in a cell of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.lab import Run

_ONCE = ("memory_bytes", "idle_share")


def dataset(
    dimensions: Sequence[int], results: Mapping[str, Any], left_out: Mapping[str, str]
) -> xr.Dataset:
    """The measurements of a cell, with the axes `contestant`, `call`, `quantity` and `end`.

    Args:
      dimensions: d_x and d_t.
      results: by contestant: the seconds of each call and its values, memory, time while idle.
      left_out: by contestant, why it took no part or failed.

    Returns:
      `seconds` of each call, `value` of each quantity (its estimate and the ends of its interval,
      or a number and NaN), what is measured once of a contestant, and `left_out`, '' for those who
      took part.
    """
    names = [*results, *left_out]
    every = [of.get("values", []) for of in results.values()]
    quantities = list(dict.fromkeys(name for calls in every for call in calls for name in call))
    calls = max((len(of["seconds"]) for of in results.values()), default=0)
    seconds = np.full((len(names), calls), np.nan)
    values = np.full((*seconds.shape, len(quantities), 3), np.nan)
    for row, of in enumerate(results.values()):
        seconds[row, : len(of["seconds"])] = of["seconds"]
        for call, found in enumerate(every[row]):
            for name, numbers in found.items():
                values[row, call, quantities.index(name), : np.size(numbers)] = numbers
    absent = [np.nan] * len(left_out)
    once = {name: [of.get(name, np.nan) for of in results.values()] + absent for name in _ONCE}
    return xr.Dataset(
        {
            "seconds": (("contestant", "call"), seconds),
            "value": (("contestant", "call", "quantity", "end"), values),
            **{name: ("contestant", np.array(of, float)) for name, of in once.items()},
            "left_out": ("contestant", np.array([""] * len(results) + [*left_out.values()], str)),
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

    def calls(self, name: str) -> np.ndarray:
        """The seconds of each call of a contestant; none where it took no part."""
        return self._finite("seconds", name)

    def seconds(self, name: str) -> float:
        """The median time of a call after the first, or of the first where there is no other."""
        taken = self.calls(name)
        return float(np.median(taken[1:] if len(taken) > 1 else taken)) if len(taken) else np.nan

    def mebibytes(self, name: str) -> float:
        """The memory that the calls took at their peak, beyond data and runtime, in MiB."""
        return float(self._finite("memory_bytes", name).sum()) / 2**20

    def ratio(self, one: str, other: str) -> float:
        """The median over the rounds that both took part in of one's time over the other's.

        The first round warms up. Where one of them was not called again, its first call was long
        enough to count, and stands beside the median of the other.
        """
        pairs = list(zip(self.calls(one)[1:], self.calls(other)[1:], strict=False))
        if pairs:
            return float(np.median([a / b for a, b in pairs]))
        return self.seconds(one) / self.seconds(other)

    def values(self, name: str) -> dict[str, np.ndarray]:
        """By quantity, what each call of a contestant gave, `[calls, 3]`."""
        if name not in self.measured.contestant:
            return {}
        values = self.measured.value.sel(contestant=name).transpose("quantity", "call", "end")
        found = zip(self.measured.quantity.values.tolist(), values.values, strict=True)
        numbers = {quantity: of[np.isfinite(of[:, 0])] for quantity, of in found}
        return {quantity: of for quantity, of in numbers.items() if len(of)}

    def _finite(self, variable: str, name: str) -> np.ndarray:
        """What there is of a contestant."""
        if name not in self.measured.contestant:
            return np.empty(0)
        found = np.atleast_1d(self.measured[variable].sel(contestant=name).values)
        return found[np.isfinite(found)]


def records(run: Run) -> list[Record]:
    """What each cell of a run measured."""
    return [Record(**cell.values, measured=measured) for cell, measured in run.results.items()]
