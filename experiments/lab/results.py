"""Results as arrays with named axes: those of all cells together, and as files hold them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr


def gather(parts: Sequence[tuple[Mapping[str, Any], xr.Dataset]]) -> xr.Dataset:
    """The results of cells at their coordinates as one, the axes of the cells first.

    NaN where there is no cell.
    """
    if not parts[0][0]:
        return parts[0][1]
    axis = next(iter(parts[0][0]))
    groups: dict[Any, list[tuple[dict[str, Any], xr.Dataset]]] = {}
    for place, found in parts:
        rest = {name: value for name, value in place.items() if name != axis}
        groups.setdefault(place[axis], []).append((rest, found))
    whole = [gather(group) for group in groups.values()]
    along = xr.concat(
        whole, dim=axis, data_vars="all", coords="minimal", join="outer", compat="equals"
    )
    return along.assign_coords({axis: list(groups)})


def packed(found: xr.Dataset) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A result as plain data, the axes of its arrays, and the arrays."""
    arrays = {str(name): np.asarray(array.values) for name, array in found.variables.items()}
    arrays = {
        name: array.astype(str) if array.dtype.hasobject else array
        for name, array in arrays.items()
    }
    axes = {str(name): list(array.dims) for name, array in found.variables.items()}
    return {"axes": axes}, arrays


def unpacked(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
    """A result out of what `packed` gave."""
    axes = record["axes"]
    found = {name: (axes[name], arrays[name]) for name in axes}
    labels = {name: entry for name, entry in found.items() if list(entry[0]) == [name]}
    return xr.Dataset({k: v for k, v in found.items() if k not in labels}, labels)
