"""Tables out of results with named axes."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from rich.table import Table
from scipy import stats


def grid_of(rows: Sequence[Sequence[str]]) -> Table:
    """A table of words, whose first row is the heading."""
    heading, *others = rows
    grid = Table(*heading)
    for row in others:
        grid.add_row(*row)
    return grid


def table(
    found: xr.Dataset,
    *,
    rows: Sequence[str],
    columns: str | None = None,
    value: str = "value",
    error: str | None = None,
    letters: str | None = None,
    names: Mapping[Any, str] | None = None,
    digits: int = 4,
) -> Table:
    """A table of one variable of a result.

    Args:
      found: the result; other axes than those of rows and columns must have been selected.
      rows: the axes whose combinations are the rows; one without any number is left out.
      columns: the axis of the columns, or None for one column.
      value, error, letters: the variables that are shown, after ±, and behind them.
      names: what a column is called, where it is not called as the axis or its label.
      digits: of the values; errors have two.
    """
    names = names or {}
    heads = [value] if columns is None else found[columns].values.tolist()
    grid = Table(*(names.get(row, row) for row in rows), *(names.get(h, word(h)) for h in heads))
    for labels in itertools.product(*(found[row].values.tolist() for row in rows)):
        line = found.sel(dict(zip(rows, labels, strict=True)))
        picks = [line if columns is None else line.sel({columns: head}) for head in heads]
        numbers = [pick[value].item() for pick in picks]
        if all(isinstance(n, float) and np.isnan(n) for n in numbers):
            continue
        errors = [None if error is None else pick[error].item() for pick in picks]
        cells = [number(n, e, digits) for n, e in zip(numbers, errors, strict=True)]
        if letters is not None:
            cells = [f"{c} {pick[letters].item()}" for c, pick in zip(cells, picks, strict=True)]
        grid.add_row(*map(word, labels), *cells)
    return grid


def spreads(values: xr.DataArray, axis: str) -> xr.Dataset:
    """The means along an axis as `value`, with the standard deviations of one draw as `error`."""
    mean = values.mean(axis, skipna=False)
    several = values.sizes[axis] > 1
    spread = values.std(axis, ddof=1, skipna=False) if several else mean * np.nan
    return xr.Dataset({"value": mean, "error": spread})


def means(values: xr.DataArray, axis: str) -> xr.Dataset:
    """The means along an axis as `value`, with their standard errors as `error`."""
    found = spreads(values, axis)
    return found.assign(error=found.error / np.sqrt(values.sizes[axis]))


def t_intervals(values: xr.DataArray, axis: str) -> xr.Dataset:
    """The means along an axis as `value`, half of their 95% intervals (by t) as `error`."""
    found = means(values, axis)
    return found.assign(error=stats.t.ppf(0.975, values.sizes[axis] - 1) * found.error)


def interval(value: float, low: float, high: float) -> str:
    """A value with the ends of its interval, where it has any; '-' where there is none."""
    ends = "" if np.isnan([low, high]).all() else f" [{low:.2f}, {high:.2f}]"
    return "-" if np.isnan(value) else f"{value:.2f}{ends}"


def intervals(found: xr.DataArray) -> xr.Dataset:
    """Values with their intervals in words, as `value`, of their axis `end`: value, low, high."""
    ends = (found.isel(end=place, drop=True) for place in range(3))
    return xr.Dataset({"value": xr.apply_ufunc(interval, *ends, vectorize=True)})


def number(value: Any, error: float | None = None, digits: int = 4) -> str:
    """A number with its error; '-' where there is none."""
    if not isinstance(value, (int, float)):
        return str(value)
    if np.isnan(value):
        return "-"
    ending = "" if error is None or np.isnan(error) else f" ± {error:.2g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}{ending}"


def word(label: Any) -> str:
    """The label of an axis in a table or a figure."""
    return f"{label:g}" if isinstance(label, float) else str(label)
