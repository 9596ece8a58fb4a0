"""RKE-MC and RRKE of sets of samples of a mixture, beside the modes that the samples capture."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
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
    for rule in rules:
        if rule == COUNTING:
            width = mixture.counting_bandwidth()
        else:
            points = mixture.population().sample(key, _RULED)
            chosen = bandwidth.bandwidth_by_rule(points, rule, key=rule_key, partitions=1)
            width = chosen.bandwidth
        assert width is not None
        scaled = {f"{scale:g}": scale * width for scale in scales}
        found |= scaled if rule == rules[0] else {rule: width}
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
    """The scores of sets of samples, what they capture, and the first samples of the first set.

    Each of `draws` gives a set, `draw(key, n)`. RKE-MC and what is captured are of `samples` of
    them; RRKE is of the first `references`, against as many of the mixture.
    """
    of_mixture = jax.jit(mixture.sample, static_argnums=1)
    kernels = [cv.Gaussian(width) for width in widths.values()]
    values, shares, shown = [], [], []
    for index, draw in enumerate(draws):
        say(f"{index + 1} of {len(draws)}")
        sample_key, reference_key = jax.random.split(jax.random.fold_in(key, index))
        points = draw(sample_key, samples)
        few, reference = points[:references], of_mixture(reference_key, references)
        values.append([
            (float(cv.rke(points, kernel=k)), float(cv.baselines.rrke(few, reference, kernel=k)))
            for k in kernels
        ])  # fmt: skip
        shares.append(mixture.good_shares(np.asarray(points)))
        shown.append(np.asarray(points[:_SHOWN], np.float16))
    modes = len(mixture.centres)
    return xr.Dataset(
        {
            "value": (("set", "bandwidth", "score"), values),
            "share": (("set", "mode"), shares),
            "captured": (("set",), mixture.captured(np.array(shares))),
            # The mass that no good sample stands for.
            "missing": (("set",), 1 - np.minimum(shares, 1 / modes).sum(axis=1)),
            "shown": (("point", "place"), shown[0]),
        },
        {
            "set": range(len(draws)),
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


def sets_of(found: xr.Dataset, mixture: str, sources: Sequence[str]) -> xr.Dataset:
    """Scores and truths of the sets of some sources of samples, one after another: axis `sets`."""
    of = found[["value", *TRUTHS]].sel(mixture=mixture, source=list(sources))
    of = of.stack(sets=("source", "set")).dropna("sets", subset=["captured"])
    return of.transpose("sets", ...)


def correlations(found: xr.Dataset, sources: Sequence[str]) -> xr.DataArray:
    """Spearman's correlations of the scores with what is captured, over sets of samples.

    By mixture, bandwidth, score, truth (`with`), and `end`: the value and its 95% bootstrap
    interval over the sets. NaN where a score or a truth does not vary beyond rounding.
    """
    labels = {name: found[name].values.tolist() for name in ("mixture", "bandwidth", "score")}
    labels |= {"with": list(TRUTHS), "end": ["value", "low", "high"]}
    results = xr.DataArray(np.nan, labels, list(labels))
    for mixture in labels["mixture"]:
        sets = sets_of(found, mixture, sources)
        n = sets.sizes["sets"]
        draws = list(agreement.resampled(np.arange(n), _RESAMPLES, np.random.default_rng(0)))
        for name, truth in itertools.product(labels["bandwidth"], TRUTHS):
            scores, wanted = sets.value.sel(bandwidth=name).values.T, sets[truth].values
            place = {"mixture": mixture, "bandwidth": name, "with": truth}
            results.loc[place] = agreement.correlate(scores, wanted, draws)
    return results
