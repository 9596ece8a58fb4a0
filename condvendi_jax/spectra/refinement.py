"""How many probes and steps an estimate needs, until its scores are precise enough."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax

from condvendi_jax.base import checks
from condvendi_jax.entropies import Entropy, renyi, von_neumann
from condvendi_jax.grams.operators import Operator
from condvendi_jax.spectra.estimators import DEFAULT_RTOL, MAX_STEPS, Budget, Sampler, Samplers
from condvendi_jax.spectra.measures import Estimate, SpectralMeasure

_MAX_PROBES = 256
# A tight tolerance begins with more deflation and steps where there are more points than this. It
# takes 0.5 times the products for 10,000 emoji, and as much time for 5,000.
_MANY = 8192
# A plan considers this many numbers of steps, each twice the one before.
_TRIED = 4
# A plan aims at this part of the tolerance, because the predicted noise is itself an estimate.
_AIMED_AT = 0.9


def spectral_measure(
    gram: Operator,
    *,
    key: jax.Array,
    rtol: float | None = None,
    budget: Budget | None = None,
    entropies: Sequence[Entropy] = (von_neumann,),
) -> SpectralMeasure:
    """The spectral measure of a Gram, from products with it alone.

    Args:
      gram: of any representation; a tiled or a sharded one is never formed.
      key: draws the start of the Krylov space and the probes. The same key gives the same numbers
        on any number of devices, and common random numbers to Grams of equal n.
      rtol: steps and probes are added until the intervals of all `entropies`, as relative errors
        of their exponentials, are this narrow on either side; 0.002 where neither is given.
      budget: exactly this much work instead.
      entropies: those that the tolerance is about; the measure gives any other as well.

    Returns:
      The measure, on the host in float64; products are computed in the Gram's dtype. All
      eigenvalues are computed where they are cheap: few features, or no more points than products.

    Raises:
      ValueError: both `rtol` and `budget` are given, or `rtol` is not between 0 and 1.
      TypeError: `key` is no random key; or inside `jit` or `vmap`, because the number of steps
        depends on the numbers.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
      >>> gram = cv.gram(cv.Gaussian(0.3), points)
      >>> measure = cv.spectra.spectral_measure(gram, key=jax.random.key(0))
      >>> low, high = np.exp(measure.entropy(cv.truncated(20)).interval)
      >>> bool(0 < high - low < 0.01 * high)
      True
    """
    return refine([gram], entropies, list, key=key, rtol=rtol, budget=budget).samplers[0].measure()


class Refined(NamedTuple):
    """Samplers and `[entropies][grams]` estimates; not within the limit where that ended it."""

    samplers: list[Sampler]
    estimates: list[list[Estimate]]
    within_limit: bool = True


def refine(
    grams: Sequence[Operator],
    entropies: Sequence[Entropy],
    combine: Callable[[list[Estimate]], Iterable[Estimate]],
    *,
    key: jax.Array,
    rtol: float | None = None,
    budget: Budget | None = None,
    limit: int | None = None,
) -> Refined:
    """Samples the spectra of several Grams until everything asked of them is precise.

    Each Gram gets the same probes. `combine` turns one entropy of all Grams into the quantities, in
    nats, that `rtol` is about. No products are spent if more than `limit` with each Gram are
    predicted. The rest is as in `spectral_measure`.
    """
    if rtol is not None and budget is not None:
        raise ValueError("rtol and budget: expected at most one of them.")
    checks.check_key(key)
    if not checks.is_concrete(*grams):
        raise TypeError(
            "the spectral measure adapts to numbers and cannot run inside jit or vmap: compute all "
            "eigenvalues there (method=cv.Exact()), or call it outside."
        )
    wanted = DEFAULT_RTOL if rtol is None else checks.check_rtol(rtol)
    tight = grams[0].n > _MANY and wanted <= DEFAULT_RTOL
    start = budget or (Budget(sweeps=12, steps=24) if tight else Budget())
    if budget is None and all(entropy == renyi(math.inf) for entropy in entropies):
        # The Krylov space gives the largest eigenvalue; probes add nothing.
        start = dataclasses.replace(start, probes=2, steps=1)
    sampled = Samplers(grams, key=key, budget=start, rtol=wanted)
    samplers = sampled.of
    while True:
        measures = [sampler.measure() for sampler in samplers]
        rows = [[measure.entropy(entropy) for measure in measures] for entropy in entropies]
        worst = max(e.half_width for row in rows for e in combine(row))
        if budget is not None or worst <= wanted:
            return Refined(samplers, rows)
        plan = _plan(samplers, measures, entropies, combine, wanted, even=sampled.even)
        if limit is not None and (plan is None or plan.products > limit * len(samplers)):
            return Refined(samplers, rows, within_limit=False)
        if plan is None:
            checks.warn(
                f"the spectral measure reached a relative error of {worst:.1e}, not "
                f"{wanted:.1e}: a larger rtol, or all eigenvalues (method=cv.Exact()), end sooner."
            )
            return Refined(samplers, rows)
        sampled.deepen(plan.steps)
        sampled.widen(plan.probes)


class Plan(NamedTuple):
    """The steps of each sampler, and the probes of all, since differences are paired by probe."""

    products: int  # Of the Lanczos steps in all, past ones included.
    steps: tuple[int, ...]
    probes: int


def _plan(
    samplers: Sequence[Sampler],
    measures: Sequence[SpectralMeasure],
    entropies: Sequence[Entropy],
    combine: Callable[[list[Estimate]], Iterable[Estimate]],
    rtol: float,
    *,
    even: bool = False,
) -> Plan | None:
    """The plan of fewest products that is predicted to reach the tolerance; None at the limits.

    Where no plan will do, the steps are doubled. `even` asks for as many steps of all.
    """
    shallow = [measure.at_half_depth() for measure in measures]
    rows = [[measure.entropy(entropy) for measure in measures] for entropy in entropies]
    falls = [
        [
            _fall(deep.gap, measure.entropy(entropy).gap)
            for deep, measure in zip(row, shallow, strict=True)
        ]
        for entropy, row in zip(entropies, rows, strict=True)
    ]
    choices = [
        [s.steps] if s.complete else sorted({min(s.steps * 2**k, MAX_STEPS) for k in range(_TRIED)})
        for s in samplers
    ]
    probes, current = samplers[0].probes, tuple(s.steps for s in samplers)
    plans = []
    for steps in itertools.product(*choices):
        if even and len({k for k, s in zip(steps, samplers, strict=True) if not s.complete}) > 1:
            continue
        powers = [math.log2(new / old) for new, old in zip(steps, current, strict=True)]
        predicted = [
            dataclasses.replace(estimate, gap=estimate.gap * fall**power)
            for row, row_falls in zip(rows, falls, strict=True)
            for estimate, fall, power in zip(row, row_falls, powers, strict=True)
        ]
        width = len(samplers)
        asked = (combine(predicted[k : k + width]) for k in range(0, len(predicted), width))
        needed = max(
            _probes_for(estimate, _AIMED_AT * rtol, samplers[0].batch)
            for estimate in itertools.chain.from_iterable(asked)
        )
        if needed <= _MAX_PROBES and (needed > probes or steps != current):
            target = max(probes, int(needed))
            plans.append(Plan(sum(steps) * target, steps, target))
    if plans:
        return min(plans)
    deeper = tuple(options[min(1, len(options) - 1)] for options in choices)
    return Plan(sum(deeper) * probes, deeper, probes) if deeper != current else None


def _fall(deep: float, shallow: float) -> float:
    """The factor by which a gap fell when the steps were doubled, limited to a cautious 0.05."""
    return min(max(deep / shallow, 0.05), 1.0) if shallow > 0 else 1.0


def _probes_for(estimate: Estimate, tolerance: float, batch: int) -> float:
    """How many probes, in whole batches, bring an estimate within a tolerance."""
    left = tolerance - estimate.systematic
    if left <= 0:
        return math.inf
    return math.ceil(estimate.per_probe.size * (estimate.noise / left) ** 2 / batch) * batch
