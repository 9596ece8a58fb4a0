"""Spectral measures in place of all eigenvalues, with probes and steps until scores are precise."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from condvendi_jax.base import checks, devices, memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Computed, Entropy, log_scores, von_neumann
from condvendi_jax.grams.operators import Dense, Gram, Operator
from condvendi_jax.spectra import blocks, order_two
from condvendi_jax.spectra.estimators import DEFAULT_RTOL, MAX_STEPS, Budget, Sampler, Samplers
from condvendi_jax.spectra.measures import Estimate, SpectralMeasure
from condvendi_jax.spectra.methods import Grams, Method, Terms, grams_of_terms, per_term
from condvendi_jax.spectra.pair_sums import Leaving

_MAX_PROBES = 256
# A tight tolerance begins with more deflation and steps where there are more points than this. It
# takes 0.5 times the products for 10,000 emoji, and as much time for 5,000.
_MANY = 8192
_TRIED = 4  # Numbers of steps that a plan considers, each twice the one before.
# A plan aims at this part of the tolerance, because the predicted noise is itself an estimate.
_AIMED_AT = 0.9

#: One entropy of all Grams, for several entropies; and what makes quantities in nats of a row.
Estimates = list[list[Estimate]]
Combine = Callable[[list[Estimate]], Iterable[Estimate]]
_store = jax.jit(lambda gram: gram.store())


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
      TypeError: `key` is no random key; or inside `jit`, `vmap` or `grad`, because the number of
        steps depends on the numbers.

    Examples:
      >>> import jax, numpy as np
      >>> import condvendi_jax as cv
      >>> points = np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
      >>> gram = cv.gram(cv.Gaussian(0.3), points)
      >>> measure = cv.spectra.spectral_measure(gram, key=jax.random.key(0))
      >>> low, high = np.exp(measure.entropy(cv.Entropy(truncation=20)).interval)
      >>> bool(0 < high - low < 0.01 * high)
      True
    """
    return refine([gram], entropies, list, key=key, rtol=rtol, budget=budget)[0][0].measure()


def refine(
    grams: Sequence[Operator],
    entropies: Sequence[Entropy],
    combine: Combine,
    *,
    key: jax.Array,
    rtol: float | None = None,
    budget: Budget | None = None,
) -> tuple[list[Sampler], Estimates]:
    """Samplers of several Grams, and `[entropies][grams]` estimates that are precise enough.

    Each Gram gets the same probes. `combine` turns one entropy of all Grams into the quantities, in
    nats, that `rtol` is about. The rest is as in `spectral_measure`.
    """
    if rtol is not None and budget is not None:
        raise ValueError("rtol and budget: expected at most one of them.")
    checks.check_key(key)
    if not checks.is_concrete(*grams):
        why = "adapts to numbers and cannot run inside jit, vmap or grad"
        mend = "compute all eigenvalues there (method=cv.Exact()), or call it outside."
        raise TypeError(f"the spectral measure {why}: {mend}")
    wanted = DEFAULT_RTOL if rtol is None else checks.check_rtol(rtol)
    tight = grams[0].n > _MANY and wanted <= DEFAULT_RTOL
    start = budget or (Budget(sweeps=12, steps=24) if tight else Budget())
    if budget is None and all(entropy == Entropy(math.inf) for entropy in entropies):
        # The Krylov space gives the largest eigenvalue; probes add nothing.
        start = dataclasses.replace(start, probes=2, steps=1)
    sampled = Samplers(grams, key=key, budget=start, rtol=wanted)
    samplers = sampled.members
    while True:
        measures = [sampler.measure() for sampler in samplers]
        rows = [[measure.entropy(entropy) for measure in measures] for entropy in entropies]
        worst = max(e.half_width for row in rows for e in combine(row))
        if budget is not None or worst <= wanted:
            return samplers, rows
        halves = [measure.at_half_depth() for measure in measures]
        shallow = [[half.entropy(entropy) for half in halves] for entropy in entropies]
        plan = _plan(samplers, rows, shallow, combine, wanted)
        if plan is None:
            reached = f"reached a relative error of {worst:.1e}, not {wanted:.1e}"
            mend = "a larger rtol, or all eigenvalues (method=cv.Exact()), end sooner."
            checks.warn(f"the spectral measure {reached}: {mend}")
            return samplers, rows
        _, steps, probes = plan
        sampled.deepen(steps)
        sampled.widen(probes)


def _plan(
    samplers: Sequence[Sampler], rows: Estimates, shallow: Estimates, combine: Combine, rtol: float
) -> tuple[int, int, int] | None:
    """The fewest products, with steps and probes, predicted to do; None at the limits.

    From the estimates at these steps and at half of them. Where nothing will do, steps double. The
    products are of the Lanczos steps with each Gram, past ones included.
    """
    sampled = [sampler for sampler in samplers if not sampler.complete]
    if not sampled:
        return None
    steps, probes, batch = sampled[0].steps, sampled[0].probes, sampled[0].batch

    def probes_at(deeper: int) -> float:
        """How many, in whole batches, suffice if gaps fall as they did when the steps doubled."""
        doublings, needed = math.log2(deeper / steps), []
        for row, halves in zip(rows, shallow, strict=True):
            predicted = []
            for now, half in zip(row, halves, strict=True):
                fall = now.gap / half.gap if half.gap > 0 else 1.0
                gap = now.gap * min(max(fall, 0.05), 1.0) ** doublings  # A cautious 0.05.
                predicted.append(dataclasses.replace(now, gap=gap))
            for estimate in combine(predicted):
                left = _AIMED_AT * rtol - estimate.systematic
                if left <= 0:
                    return math.inf
                batches = estimate.per_probe.size * (estimate.noise / left) ** 2 / batch
                needed.append(math.ceil(batches) * batch)
        return max(needed)

    plans = []
    for deeper in {min(steps * 2**power, MAX_STEPS) for power in range(_TRIED)}:
        needed = probes_at(deeper)
        if needed <= _MAX_PROBES and (needed > probes or deeper > steps):
            target = max(probes, int(needed))
            plans.append((deeper * target, deeper, target))
    if plans:
        return min(plans)
    deeper = min(2 * steps, MAX_STEPS)
    return (deeper * probes, deeper, probes) if deeper > steps else None


@dataclasses.dataclass(frozen=True, eq=False)
class Estimating(Method):
    """A spectral measure of each Gram: the base of `Stored` and `MatrixFree`."""

    #: Whether products are taken with the stored n x n matrix.
    _stores: ClassVar[bool] = False
    key: jax.Array
    rtol: float = dataclasses.field(default=DEFAULT_RTOL, kw_only=True)

    def __post_init__(self) -> None:
        vars(self).update(key=checks.check_key(self.key), rtol=checks.check_rtol(self.rtol))

    def entropies(self, grams: Grams, wanted: Sequence[Entropy], terms: Terms) -> list[Computed]:
        return self._estimated(grams, wanted, terms)[1]

    def sloped(
        self, points: Pairs, entropy: Entropy, terms: Terms, leaving: Sequence[Leaving] | None
    ) -> order_two.Sloped:
        """The slopes, from the probes of the estimate: no further product with A."""
        samplers, (computed,) = self._estimated(grams_of_terms(points, terms), (entropy,), terms)
        rows = [sampler.influences(entropy, points.shares) for sampler in samplers]
        return order_two.Sloped(computed, per_term(terms, rows))

    def _estimated(
        self, grams: Grams, wanted: Sequence[Entropy], terms: Terms
    ) -> tuple[list[Sampler], list[Computed]]:
        """Samplers and the entropies, refined until the scores are precise enough."""
        held, n, dtype = self._held(grams, terms), grams["outputs"].n, grams["outputs"].dtype
        by_term = functools.partial(per_term, terms)

        def scores(row: list[Estimate]) -> list[Estimate]:
            return [score for score in log_scores(*by_term(row)) if score is not None]

        of_terms = [held[name] for name in terms]
        with memory.explained(n, dtype):
            samplers, rows = refine(of_terms, wanted, scores, key=self.key, rtol=self.rtol)
        measures = by_term(sampler.measure() for sampler in samplers)
        values = [by_term(jnp.asarray(e.value, dtype) for e in row) for row in rows]
        pairs = zip(values, map(by_term, rows), strict=True)
        return samplers, [Computed(*pair, self.name, measures) for pair in pairs]

    def _held(self, grams: Grams, terms: Terms) -> Grams:
        """The Grams to multiply with; that of pairs is the product of the other two."""

        def held(gram: Operator) -> Any:
            # All eigenvalues of blocks take less time than products.
            if isinstance(gram, blocks.IN_BLOCKS):
                return gram
            return _store(gram) if self._stores else jax.tree.map(devices.placed, gram)

        with memory.explained(grams["outputs"].n, grams["outputs"].dtype):
            joint = grams.get("joint")
            if isinstance(joint, blocks.IN_BLOCKS) or not isinstance(joint, Gram):
                return {name: held(grams[name]) for name in terms}
            factors = {name: held(gram) for name, gram in grams.items() if name != "joint"}
            joint = factors["outputs"] * factors["prompts"]
            # Storing a dense Gram again would copy it.
            return factors | {"joint": joint if isinstance(joint, Dense) else held(joint)}


class Stored(Estimating):
    """A spectral measure of each Gram, whose n x n matrix is stored: seconds at n = 14,000.

    Needs a key, and memory for the matrices of outputs, prompts and pairs; on a mesh every device
    holds some of their rows. Not inside `jax.jit`, because the work depends on the numbers.

    Attributes:
      key: draws the probes. The same key gives the same number on any number of devices.
      rtol: how wide on either side, relatively, the 95% intervals of the scores may be.
    """

    name: ClassVar[str] = "stored"
    _stores: ClassVar[bool] = True

    def suited_to(self, grams: Grams, terms: Terms) -> Method:
        gram = grams["outputs"]
        memory.check(gram.n, gram.dtype, share=gram.stored_share)
        return self


class MatrixFree(Estimating):
    """A spectral measure of each Gram, from products with a matrix that is never formed: any n.

    Needs a key. Not inside `jax.jit`, because the work depends on the numbers. `key` and `rtol` are
    as in `Stored`.
    """

    name: ClassVar[str] = "matrix-free"
