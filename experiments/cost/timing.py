"""How benchmarks time calls, and their rule: three calls of a contestant, or no number."""

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

# Fewer calls of a contestant give no number.
AT_LEAST = 3
# A slow call is repeated less often once all took this many seconds.
ENOUGH_S = 60.0


def in_turns(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, in turns, so that what else the machine does falls on all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    started = time.perf_counter()
    for done in range(repeats):
        if time.perf_counter() - started > ENOUGH_S and done >= AT_LEAST:
            break
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return seconds


def of_process(call: Sequence[str], **given: Any) -> tuple[float, Any]:
    """The CPU seconds of a process and its children, and what `subprocess.run` returns."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = subprocess.run(call, check=True, capture_output=True, **given)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, finished


class Spread(NamedTuple):
    """The median of several calls, the least and the most; NaN of fewer than `AT_LEAST`."""

    median: float
    least: float
    most: float

    def words(self, digits: int = 3) -> str:
        """'1.2 (1.1-1.4)' with so many digits, '-' where there is no number."""
        if np.isnan(self.median):
            return "-"
        shown = {"precision": digits, "unique": False, "fractional": False, "trim": "-"}
        median, least, most = (np.format_float_positional(value, **shown) for value in self)
        return f"{median} ({least}-{most})"


def spread(values: Sequence[float] | np.ndarray | xr.DataArray) -> Spread:
    """The spread of the calls of one contestant; NaN among them is no call."""
    taken = [float(value) for value in np.ravel(values) if not np.isnan(value)]
    if len(taken) < AT_LEAST:
        return Spread(np.nan, np.nan, np.nan)
    return Spread(statistics.median(taken), min(taken), max(taken))
