"""Outputs of the same types at several settings of a generator's knob: psi, or a temperature."""

import math

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from experiments.data import PairedEmbeddings
from experiments.lab import agreement


def settings(pairs: PairedEmbeddings) -> np.ndarray:
    """The setting of the knob of each output, by the label of its model: finite numbers, `[n]`."""
    try:
        values = pairs.labels["models"].astype(str).astype(float)  # 0.1 in float32 is 0.1.
    except ValueError as error:
        raise ValueError(f"--models: expected settings of a knob, numbers: {error}.") from error
    if (bad := values[~np.isfinite(values)]).size:
        raise ValueError(f"--models: expected settings of a knob, numbers, received {bad[0]}.")
    if (values == values[0]).all():
        raise ValueError(f"--models: expected at least two settings, received {values[0]:g}.")
    return values


def take(
    pairs: PairedEmbeddings, samples: int | None, most: int
) -> tuple[PairedEmbeddings, int, list[str]]:
    """The same number of outputs of each type at each setting, by settings, then types.

    Takes `samples` of each, or, if None, as many as there are everywhere, `most` at most. Also
    returns how many it took of each, and the types.

    Raises:
      ValueError: a type has fewer at some setting.
    """
    own = pd.DataFrame({"setting": settings(pairs), "type": pairs.labels["types"].astype(str)})
    counts = pd.crosstab(own.setting, own.type)
    fewest, least = int(counts.values.min()), divmod(int(counts.values.argmin()), counts.shape[1])
    samples = max(2, min(fewest, most)) if samples is None else samples
    if samples > fewest:
        raise ValueError(
            f"--samples: received {samples}, but there are {fewest} of the type "
            f"{counts.columns[least[1]]} at {counts.index[least[0]]:g}."
        )
    own = own.sort_values(["setting", "type"], kind="stable")
    rows = own.groupby(["setting", "type"]).head(samples).index.to_numpy()
    return pairs.rows(rows), samples, list(counts)


def balanced(setting: np.ndarray, kind: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """As many chosen rows (bool `[n]`) of each kind at every setting: its first ones, bool `[n]`.

    Scores grow with n and weigh kinds by their rows; settings differ in neither afterwards. The
    setting and the kind of each row are numbered from 0, `[n]`.
    """
    cells = pd.DataFrame({"setting": setting, "kind": kind})[chosen]
    counts = pd.crosstab(cells.setting, cells.kind)
    least = cells.kind.map(counts.reindex(range(setting.max() + 1), fill_value=0).min())
    kept = np.zeros(len(chosen), bool)
    kept[chosen] = cells.groupby(["setting", "kind"]).cumcount() < least
    return kept


def trend(within: xr.DataArray) -> tuple[float, tuple[float, float]]:
    """How a score within each type follows the knob: the mean rank correlation over the types.

    Types that never change are left out. The interval is Student's at 95%, over the types.
    """
    by_type = within.transpose("type", "setting").values
    each = agreement.spearman(by_type, within.setting.values, 2.0)
    each = each[~np.isnan(each)]
    mean, half = float(each.mean()) if len(each) else math.nan, 0.0
    if len(each) > 1:
        half = float(stats.t.ppf(0.975, len(each) - 1) * stats.sem(each))
    return mean, (mean - half, mean + half)
