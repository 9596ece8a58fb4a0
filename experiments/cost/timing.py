"""The rules of benchmarks: contestants take turns, and less than three calls give no number."""

import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import xarray as xr

# Fewer calls of a contestant give no number.
AT_LEAST = 3


def in_turns(
    calls: Mapping[str, Callable[[int], Any]],
    wanted: Callable[[str, list[Any]], int],
    say: Callable[[str], None],
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Lets contestants take turns: what each call gave, and why some failed, by name.

    Args:
      calls: by name, what is called with the number of its call, from 0.
      wanted: how many calls a contestant shall have, of its name and what its calls gave so far.
      say: called with the name of whose turn it is.
    """
    given, failed = {name: [] for name in calls}, {}
    while due := [name for name, of in given.items() if len(of) < wanted(name, of)]:
        for name in due:
            number = len(given[name])
            say(f"{name}: call {number + 1}")
            try:
                given[name].append(calls[name](number))
            except Exception as error:  # Whatever a contestant raises is its result.
                failed[name] = _reason(error)
                del given[name]
    return given, failed


def _reason(error: Exception) -> str:
    """Why a contestant has no numbers, in a few words."""
    if isinstance(error, BrokenProcessPool):
        return "its process ended; out of memory?"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took more than {error.timeout:.0f} s"
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        return error.stderr.splitlines()[-1][:100]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def spread(taken: xr.DataArray, axis: str) -> xr.DataArray:
    """The median along an axis of calls, the least and the most: `[end, ...]`.

    NaN among them is no call, and fewer than `AT_LEAST` give NaN.
    """
    ends = [taken.median(axis), taken.min(axis), taken.max(axis)]
    return xr.concat(ends, "end").where(taken.count(axis) >= AT_LEAST)


def in_words(spreads: xr.DataArray, digits: int = 3) -> xr.DataArray:
    """'1.2 (1.1-1.4)' with so many digits; NaN where there is no number."""

    def written(*ends: float) -> str:
        shown = {"precision": digits, "unique": False, "fractional": False, "trim": "-"}
        return "{} ({}-{})".format(*(np.format_float_positional(of, **shown) for of in ends))

    return xr.apply_ufunc(written, *spreads, vectorize=True).where(spreads[0].notnull())
