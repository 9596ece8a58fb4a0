"""The rule of benchmarks: three calls of a contestant, or no number."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

# Fewer calls of a contestant give no number.
AT_LEAST = 3


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
