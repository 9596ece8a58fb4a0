"""What was measured in a cell of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.lab import Cell

_ONCE = ("memory_bytes", "idle_share", "compile_seconds")


def dataset(
    dimensions: Sequence[int], results: Mapping[str, Any], left_out: Mapping[str, str]
) -> xr.Dataset:
    """What came of a cell, with the axes `contestant`, `call`, `quantity` and `end`.

    Args:
      dimensions: d_x and d_t.
      results: by contestant: the seconds of each call and its values, memory, compilation.
      left_out: by contestant, why it took no part or failed.

    Returns:
      `seconds` of each call, `value` of each quantity (its estimate and the ends of its interval,
      or a number and NaN), what is measured once of a contestant, and `left_out`, '' for those who
      took part.
    """
    every = [value for of in results.values() for value in of.get("values", ())]
    lists = [found for of in results.values() for found in (of["seconds"], of.get("values", ()))]
    calls = max(map(len, lists), default=0)
    quantities = list(dict.fromkeys(name for value in every for name in value))
    names = [*results, *left_out]
    seconds = np.full((len(names), calls), np.nan)
    values = np.full((*seconds.shape, len(quantities), 3), np.nan)
    for row, of in enumerate(results.values()):
        seconds[row, : len(of["seconds"])] = of["seconds"]
        for call, found in enumerate(of.get("values", ())):
            for name, value in found.items():
                numbers = np.atleast_1d(value)
                values[row, call, quantities.index(name), : len(numbers)] = numbers
    of_all = [*results.values(), *({} for _ in left_out)]
    once = {name: [_or_nan(of.get(name)) for of in of_all] for name in _ONCE}
    reasons = ["" for _ in results] + list(left_out.values())
    return xr.Dataset(
        {
            "seconds": (("contestant", "call"), seconds),
            "value": (("contestant", "call", "quantity", "end"), values),
            **{name: ("contestant", np.array(of, float)) for name, of in once.items()},
            "left_out": ("contestant", np.array(reasons, str)),
            "dimensions": ("of", np.array(dimensions, int)),
        },
        {"contestant": np.array(names, str), "quantity": np.array(quantities, str)},
    )


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


class Record(NamedTuple):
    """A cell with what was measured in it, as plain data; fields as in `dataset`."""

    part: str
    data: str
    n: int
    dimensions: tuple[int, ...]
    results: Mapping[str, Any]
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, cell: Cell, measured: xr.Dataset) -> Record:
        """The two together."""
        results, left_out = {}, {}
        quantities = measured["quantity"].values.tolist()
        columns = {name: measured[name].values for name in (*_ONCE, "seconds", "value", "left_out")}
        for row, name in enumerate(measured.contestant.values.tolist()):
            if columns["left_out"][row]:
                left_out[name] = str(columns["left_out"][row])
                continue
            seconds, values = columns["seconds"][row], columns["value"][row]
            called = np.isfinite(seconds) | np.isfinite(values).any(axis=(1, 2))
            results[name] = {
                "seconds": seconds[np.isfinite(seconds)].tolist(),
                "values": [_by_name(quantities, of) for of in values[called]],
            }
            once = {name: columns[name][row].item() for name in _ONCE}
            results[name] |= {name: of for name, of in once.items() if np.isfinite(of)}
        dimensions = tuple(measured.dimensions.values.tolist())
        return cls(**cell.values, dimensions=dimensions, results=results, left_out=left_out)


def _by_name(quantities: Sequence[str], values: np.ndarray) -> dict[str, Any]:
    """The quantities of one call: a number, or an estimate with its interval."""
    pairs = zip(quantities, values, strict=True)
    return {
        name: row.tolist() if np.isfinite(row[1]) else row[0].item()
        for name, row in pairs
        if np.isfinite(row[0])
    }
