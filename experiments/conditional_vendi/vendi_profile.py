"""Vendi of models over a ladder of bandwidths, from all eigenvalues: as `cv.profile` has RKE."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import condvendi_jax as cv
from condvendi_jax.data.kernels import Kernel
from condvendi_jax.entropies import log_scores
from condvendi_jax.inference import errors, profiles, saturation
from condvendi_jax.inference.errors import Groups, Units
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.results.profile import Over

_ENTROPY = cv.Entropy(order=1)


def vendi_profile(
    models: Mapping[str, np.ndarray],
    prompts: np.ndarray,
    kernels: Mapping[str, Any],
    *,
    over: Over,
    multiples: Sequence[float],
    seed: int,
    progress: Callable[[str], Any],
) -> cv.inference.Profile:
    """The scores, bands and signs of order 1; the arguments are those of `cv.profile`."""
    pairs = cv.Pairs.of_models(models, prompts, **kernels)
    units = Units.of(pairs, None, Keys(seed).groups)
    curves = {}
    for name, rows in pairs.items():
        progress(f"all bandwidths of {name}")
        along = [_moved(rows, over, times) for times in multiples]
        curves[name] = _curve(rows, along, units.of_models[name])
    options: dict[str, Any] = {"over": over, "ladder": np.array(multiples), "seed": seed}
    return profiles.of_curves(pairs, curves, units, entropy=_ENTROPY, level=0.05, **options)


def _moved(pairs: cv.Pairs, over: Over, times: float) -> cv.Pairs:
    """The pairs with some bandwidths multiplied."""
    kernels: Any = pairs.kernels
    moved = tuple(
        cv.Gaussian(kernel.bandwidth * (times if over in (name, "both") else 1), unit=kernel.unit)
        for name, kernel in zip(("outputs", "prompts"), kernels, strict=True)
    )
    return pairs.under(tuple(map(Kernel.suited_to, moved, pairs.arrays)))


def _curve(pairs: cv.Pairs, along: Sequence[cv.Pairs], units: Groups) -> profiles.Curve:
    """The scores of one model at every bandwidth, with the influences of groups of rows."""
    terms, of_units, refused = [], [], []
    leaving = units.leaving(pairs)
    for moved in along:
        influences = errors.row_influences(moved, _ENTROPY, cv.Exact(), leaving)
        whole = influences.decomposition
        changes = errors.influences_of_units(influences, moved, units)
        scores = np.array(whole.scores, np.float64)[:, None]
        terms.append(np.array(whole.entropies, np.float64))
        of_units.append(-np.concatenate(changes) / scores**2)
        refused.append(errors.too_many_modes(moved, influences, units) is not None)
    logs = np.stack(log_scores(*np.transpose(terms)))
    return profiles.Curve(
        logs,
        np.exp(-logs),
        np.transpose(of_units, (1, 0, 2)),
        np.ones(units.count, int),
        np.tile(np.bincount(units.membership, pairs.shares, units.count), (3, 1)),
        None,
        saturation.of_entropies(np.transpose(terms), saturation.largest_score(pairs, _ENTROPY)),
        units.independent(pairs) - 1,
        errors.too_few(pairs, units, _ENTROPY),
        np.array(refused),
    )
