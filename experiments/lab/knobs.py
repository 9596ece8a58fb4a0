"""Outputs of the same types at several settings of a generator's knob: psi, or a temperature."""

import math

import numpy as np
import xarray as xr
from scipy import stats

from experiments.data import PairedEmbeddings
from experiments.lab import agreement


def settings(pairs: PairedEmbeddings) -> np.ndarray:
    """The setting of the knob of each output, of the labels of the models, `[n]`.

    Raises:
      ValueError: one is not a finite number, or all are equal.
    """
    try:
        values = pairs.labels["models"].astype(str).astype(float)  # 0.1 in float32 is 0.1.
    except ValueError as error:
        raise ValueError(f"--models: expected settings of a knob, numbers: {error}.") from error
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise ValueError(f"--models: expected settings of a knob, numbers, received {bad}.")
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
    knob, kinds = settings(pairs), pairs.labels["types"].astype(str)
    types = np.unique(kinds).tolist()
    rows = {
        (value, kind): np.flatnonzero((knob == value) & (kinds == kind))
        for value in np.unique(knob).tolist()
        for kind in types
    }
    fewest, (value, kind) = min((len(found), name) for name, found in rows.items())
    samples = max(2, min(fewest, most)) if samples is None else samples
    if samples > fewest:
        raise ValueError(
            f"--samples: received {samples}, but there are {fewest} of the type {kind} at "
            f"{value:g}."
        )
    chosen = np.concatenate([found[:samples] for found in rows.values()])
    return pairs.rows(chosen), samples, types


def balanced(setting: np.ndarray, kind: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """As many chosen rows (bool `[n]`) of each kind at every setting: its first ones, bool `[n]`.

    Scores grow with n and weigh kinds by their rows; settings differ in neither afterwards. The
    setting and the kind of each row are numbered from 0, `[n]`.
    """
    counts = np.zeros((setting.max() + 1, kind.max() + 1), int)
    np.add.at(counts, (setting[chosen], kind[chosen]), 1)
    kept, least = np.zeros(len(chosen), bool), counts.min(axis=0)
    taken = np.zeros_like(counts)
    for row in np.flatnonzero(chosen):
        place = setting[row], kind[row]
        kept[row] = taken[place] < least[kind[row]]
        taken[place] += 1
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
