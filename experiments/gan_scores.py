"""RKE-MC and RRKE of sets of samples of a mixture, beside the modes that the samples capture."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax import bandwidth
from experiments.generators import mixture_gan
from experiments.generators.mixture_gan import Mixture
from experiments.lab import agreement

SCORES, TRUTHS = ("RKE-MC", "RRKE"), ("captured", "missing")
# The bandwidth at which the closed form of RKE-MC counts the modes of the mixture.
COUNTING = "count"
_RULED = 10_000  # Samples of the mixture that the other rules are followed on.
_SHOWN = 1000  # Samples a panel.
_RESAMPLES = 1000


def bandwidths(
    mixture: Mixture, rules: Sequence[str], scales: Sequence[float], seed: int
) -> dict[str, float]:
    """The bandwidths by name, chosen on the mixture itself; the first rule's at all scales."""
    key, rule_key = jax.random.split(jax.random.key(seed))
    found = {}
    for index, rule in enumerate(rules):
        if rule == COUNTING:
            width = mixture.counting_bandwidth()
        else:
            points = mixture.population().sample(key, _RULED)
            ruled = bandwidth.bandwidth_by_rule(points, rule, key=rule_key, partitions=1)
            width = ruled.bandwidth
        assert width is not None
        for scale in (1.0,) if index else scales:
            found[rule if index else f"{scale:g}"] = scale * width
    return found


def removals(modes: int, repeats: int, key: jax.Array) -> np.ndarray:
    """Weights of all modes, all but one ... one, in each of some random orders, `[sets, modes]`."""
    orders = [np.asarray(jax.random.permutation(k, modes)) for k in jax.random.split(key, repeats)]
    return np.array([(o < left) / left for left in range(modes, 0, -1) for o in orders])


def score(
    draws: Sequence[Callable[[jax.Array, int], jax.Array]],
    mixture: Mixture,
    widths: Mapping[str, float],
    key: jax.Array,
    *,
    samples: int,
    references: int,
    say: Callable[..., None],
) -> xr.Dataset:
    """The scores of sets of samples, and what they capture.

    Args:
      draws: of each set, `draw(key, n)`.
      mixture: what the samples stand for.
      widths: the bandwidths by name.
      key: of the samples.
      samples: of RKE-MC and of what is captured.
      references: of the mixture, against as many of the samples, for RRKE.
      say: called with a few words before each set.
    """
    of_mixture = jax.jit(mixture.sample, static_argnums=1)
    kernels = [cv.Gaussian(width) for width in widths.values()]
    values, shares, shown = [], [], []
    for index, draw in enumerate(draws):
        say(f"{index + 1} of {len(draws)}")
        sample_key, reference_key = jax.random.split(jax.random.fold_in(key, index))
        points = draw(sample_key, samples)
        reference = of_mixture(reference_key, references)
        few = points[:references]
        values.append([
            (float(cv.rke(points, kernel=k)), float(cv.baselines.rrke(few, reference, kernel=k)))
            for k in kernels
        ])  # fmt: skip
        shares.append(mixture.good_shares(np.asarray(points)))
        shown.append(np.asarray(points[:_SHOWN], np.float16))
    return as_result(mixture, tuple(widths), np.array(values), np.array(shares), shown[0])


def as_result(
    mixture: Mixture,
    widths: Sequence[str],
    values: np.ndarray,
    shares: np.ndarray,
    shown: np.ndarray,
) -> xr.Dataset:
    """What `score` returns, with names.

    Args:
      mixture: what the samples stand for.
      widths: the names of the bandwidths.
      values: `[sets, bandwidths, scores]`.
      shares: good samples of each mode, as parts of all samples, `[sets, k]`.
      shown: the first samples of the first set.
    """
    count, modes = shares.shape
    return xr.Dataset(
        {
            "value": (("set", "bandwidth", "score"), values),
            "share": (("set", "mode"), shares),
            "captured": (("set",), mixture.captured(shares)),
            # The mass that no good sample stands for.
            "missing": (("set",), 1 - np.minimum(shares, 1 / modes).sum(axis=1)),
            "shown": (("point", "place"), shown),
        },
        {
            "set": range(count),
            "bandwidth": list(widths),
            "score": list(SCORES),
            "mode": range(modes),
        },
    )


def with_training(found: xr.Dataset, trace: Mapping[str, Any], seconds: float) -> xr.Dataset:
    """The scores of a GAN with what its training went through: `step`, and `TRACES` by step."""
    steps = np.asarray(trace["step"])
    values = np.array([trace[name] for name in mixture_gan.TRACES])
    axes = ("quantity", "set", "checkpoint")
    found = found.assign(trace=(axes, values), step=(("checkpoint",), steps), seconds=seconds)
    labels = {"quantity": list(mixture_gan.TRACES), "checkpoint": range(len(steps))}
    return found.assign_coords(labels)


def sets_of(found: xr.Dataset, mixture: str, source: str) -> xr.Dataset:
    """The results of one source of samples, without the sets that only others have."""
    return found.sel(mixture=mixture, source=source).dropna("set", subset=["captured"])


def correlations(found: xr.Dataset, mixture: str, name: str, sources: Sequence[str]) -> np.ndarray:
    """Spearman's correlations of the scores at one bandwidth with what is captured.

    Args:
      found: all results.
      mixture: whose samples.
      name: of the bandwidth.
      sources: of the samples: kinds of GAN, or what is left of the mixture.

    Returns:
      `[2, 2, 3]`: of RKE-MC and RRKE, with the modes captured and the mass missing, value and 95%
      bootstrap interval over the sets of samples. NaN where one of the two does not vary beyond
      rounding.
    """
    scores, truths = _pairs(found, mixture, name, sources)
    n = scores.shape[1]
    draws = list(agreement.resampled(np.arange(n), _RESAMPLES, np.random.default_rng(0)))
    results = np.full((2, 2, 3), np.nan)
    for row, of_score in enumerate(scores):
        for column, truth in enumerate(truths):
            statistic = functools.partial(_spearman, of_score, truth)
            results[row, column] = agreement.with_interval(statistic, draws, n)
    return results


def correlation(
    found: xr.Dataset, mixture: str, name: str, sources: Sequence[str], place: int
) -> float:
    """RKE-MC's with the modes captured (place 0), or RRKE's with the mass missing (place 1)."""
    scores, truths = _pairs(found, mixture, name, sources)
    return _spearman(scores[place], truths[place], np.arange(scores.shape[1])).item()


def _pairs(
    found: xr.Dataset, mixture: str, name: str, sources: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The scores, and what they should tell, of all sets, `[2, n]` each."""
    parts = [sets_of(found, mixture, source) for source in sources]
    scores = [of.value.sel(bandwidth=name).transpose("score", "set").values for of in parts]
    truths = [np.stack([of[truth].values for truth in TRUTHS]) for of in parts]
    return np.concatenate(scores, axis=1), np.concatenate(truths, axis=1)


def _spearman(scores: np.ndarray, truth: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return agreement.spearman(scores[rows][None], truth[rows])


def over_sets(values: xr.DataArray) -> xr.Dataset:
    """Mean and standard error over the sets; NaN for the error of one set."""
    count, mean = values.count("set"), values.mean("set")
    variance = ((values - mean) ** 2).sum("set") / (count - 1).where(count > 1)
    return xr.Dataset({"value": mean, "error": np.sqrt(variance / count)})
