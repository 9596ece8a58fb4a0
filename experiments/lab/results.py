"""Results as arrays with named axes: those of all cells together, and the netCDF file of one."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from condvendi_jax.base import files
from experiments.lab.folders import DamagedError

_WIDER = {"float16": "float32", "uint8": "int16"}  # Types that netCDF lacks.
_UNSEALED = b"0" * 64  # In the place of a file's checksum while it is computed.
_CHECKSUM = re.compile(rb"sha256.{10}([0-9a-f]{64})", re.DOTALL)  # The first attribute of a file.


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


def write(path: pathlib.Path, found: xr.Dataset, record: Mapping[str, Any]) -> None:
    """Writes a result as netCDF, which counts as a whole or not at all.

    Any program that reads netCDF opens it: `xarray.open_dataset(path)`.

    Args:
      path: of the file.
      found: the result; what has an axis without labels is left out.
      record: plain data that become attributes, each as JSON.
    """
    words = {name: json.dumps(files.jsonable(value)) for name, value in record.items()}
    full = found.drop_dims([dim for dim, size in found.sizes.items() if size == 0])
    named = full.assign(
        {k: v.astype(_WIDER.get(v.dtype.name, v.dtype)) for k, v in full.variables.items()}
    )
    named = named.assign_attrs({"sha256": _UNSEALED.decode(), **words})
    content = bytes(named.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
    with files.atomic_writer(path) as stream:
        checksum = hashlib.sha256(content).hexdigest().encode()
        stream.write(content.replace(_UNSEALED, checksum, 1))


def read(path: pathlib.Path) -> tuple[dict[str, Any], xr.Dataset]:
    """The record and the result that `write` wrote.

    Raises:
      DamagedError: the file is missing, or any bit of it is not as it was written.
    """
    try:
        content = path.read_bytes()
        found = _CHECKSUM.search(content)
        blank = found and content[: found.start(1)] + _UNSEALED + content[found.end(1) :]
        if not (found and blank) or hashlib.sha256(blank).hexdigest().encode() != found[1]:
            raise ValueError("its content is not what its checksum says")
        loaded = xr.load_dataset(io.BytesIO(content), engine="scipy")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: damaged ({error})") from error
    words = {name: json.loads(word) for name, word in loaded.attrs.items() if name != "sha256"}
    texts = {name: of.astype(str) for name, of in loaded.variables.items() if of.dtype.hasobject}
    plain = loaded.assign(texts) if texts else loaded
    plain.attrs = {}
    for of in plain.variables.values():  # Twice as fast as `drop_attrs`.
        of.attrs = {}
    return words, plain
