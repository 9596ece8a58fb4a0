"""Outputs of the same types at several settings of a generator's knob: psi, or a temperature."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from scipy import stats

from condvendi_jax import validation
from experiments.data import PairedEmbeddings
from experiments.lab import agreement


def settings(pairs: PairedEmbeddings) -> np.ndarray:
    """The setting of the knob of each output, of the labels of the models, `[n]`.

    Raises:
      ValueError: one is not a finite number, or all are equal.
    """
    words, index = np.unique(pairs.labels["models"].astype(str), return_inverse=True)
    for word in words.tolist():
        try:
            bad = not math.isfinite(float(word))
        except ValueError:
            bad = True
        if bad:
            raise ValueError(f"--models: expected settings of a knob, numbers, received {word!r}.")
    values = words.astype(float)
    if len(np.unique(values)) < 2:
        raise ValueError(f"--models: expected at least two settings, received {values[0]:g}.")
    return values[index]


def take(
    pairs: PairedEmbeddings, samples: int | None, most: int
) -> tuple[PairedEmbeddings, int, list[str]]:
    """The same number of outputs of each type at each setting.

    Args:
      pairs: with the labels `models`, the settings, and `types`.
      samples: how many; if None, as many as there are everywhere.
      most: how many are taken at most if `samples` is None.

    Returns:
      The pairs in the order of settings, then types; how many of each; the types.

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
    validation.check_count(samples, name="--samples", minimum=2)
    if samples > fewest:
        raise ValueError(
            f"--samples: received {samples}, but there are {fewest} of the type {kind} at "
            f"{value:g}."
        )
    chosen = np.concatenate([found[:samples] for found in rows.values()])
    return pairs.rows(chosen), samples, types


def trend(within: xr.DataArray) -> tuple[float, tuple[float, float]]:
    """How a score within each type follows the knob: the mean rank correlation over the types.

    Types that never change are left out. The interval is Student's at 95%, over the types.
    """
    by_type = within.transpose("type", "setting").values
    each = agreement.spearman(by_type, within.setting.values, 2.0)
    each = each[~np.isnan(each)]
    mean = float(each.mean()) if len(each) else math.nan
    half = 0.0
    if len(each) > 1:
        half = float(stats.t.ppf(0.975, len(each) - 1) * stats.sem(each))
    return mean, (mean - half, mean + half)
