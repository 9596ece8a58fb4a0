"""Vendi of models over a ladder of bandwidths, from all eigenvalues: as `cv.profile` has RKE."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import condvendi_jax as cv
from condvendi_jax.data.kernels import Kernel
from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import errors, profiles, saturation
from condvendi_jax.inference.errors import Groups, Units
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.results.profile import Over
from condvendi_jax.statistics.influences import Error
from condvendi_jax.statistics.reasons import FEW_ROWS, Reason

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
        curves[name] = _curve(rows, over, multiples, units.of_models[name])
    options: dict[str, Any] = {"over": over, "ladder": np.array(multiples), "seed": seed}
    return profiles.of_curves(pairs, curves, units, entropy=_ENTROPY, level=0.05, **options)


def _curve(pairs: cv.Pairs, over: Over, multiples: Any, units: Groups) -> profiles.Curve:
    """The scores of one model at every bandwidth, with the errors of groups of rows."""
    terms, of_scores, leaving = [], [], units.leaving(pairs)
    for times in multiples:
        kernels: Any = pairs.kernels
        scaled = [
            cv.Gaussian(k.bandwidth * (times if over in (name, "both") else 1), unit=k.unit)
            for name, k in zip(("outputs", "prompts"), kernels, strict=True)
        ]
        moved = pairs.under(tuple(map(Kernel.suited_to, scaled, pairs.arrays)))
        influences = errors.row_influences(moved, _ENTROPY, cv.Exact(), leaving)
        whole = influences.decomposition
        changes = errors.influences_of_units(influences, moved, units)
        few = FEW_ROWS if errors.too_many_modes(moved, influences, units) else None
        freedom = units.independent(pairs) - 1
        scores = zip(map(float, whole.scores), changes, strict=True)
        similarities = [
            Error(1 / score, -of / score**2, units.units, freedom, few) for score, of in scores
        ]
        terms.append(np.array(whole.entropies, np.float64))
        of_scores.append(PerScore(*(of.inverted().in_logarithms() for of in similarities)))
    largest = saturation.largest_score(pairs, _ENTROPY)
    limits = saturation.of_entropies(np.transpose(terms), largest)
    few = errors.too_few(pairs, units, _ENTROPY)
    return profiles.Curve(of_scores, limits, Reason(few) if few else None)
