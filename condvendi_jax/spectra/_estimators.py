"""Entropies at any n, with an interval: the sampling of a `SpectralMeasure`.

docs/any_n.md derives it. For A = K / n, Tr f(A) is computed in three parts:

1. *Deflation.* A block Krylov space gives approximate eigenvectors V of the large eigenvalues, and
   a block Gauss quadrature gives Tr V^T f(A) V.
2. *Stochastic Lanczos quadrature* of the rest, Tr P f(A) P with P = I - V V^T (Ubaru, Chen and
   Saad, 2017).
3. *Exact moments as control variates.* Tr I = n, Tr A = 1 and Tr A^2 = ||A||_F^2 are known.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, von_neumann
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams._grams import Operator, SharedTiles
from condvendi_jax.grams._layouts import to_host
from condvendi_jax.spectra import _influences as influences
from condvendi_jax.spectra import _krylov as krylov
from condvendi_jax.spectra import _quadrature as quadrature
from condvendi_jax.spectra._measures import Estimate, Function, Rule, SpectralMeasure

DEFAULT_RTOL = 2e-3
# In eps of the dtype, an empirical bound: rounding in the sum and the squares of the Ritz values.
_MOMENT_ROUNDING = 4
# Empirical limits of a Ritz pair's residual, relative to its value. Up to the first a pair is
# deflated, at no bias since the quadrature follows it. Up to the second Lanczos steps project it
# off, an error of second order in the residual: 0.03^2 is about half of the default tolerance.
_DEFLATED = 0.3
_PROJECTED = 0.03
# Limits of the refinement: the memory of the Lanczos vectors is probes x steps x n numbers.
_MAX_STEPS = 96
_MAX_PROBES = 256
# A tight tolerance begins with more deflation and steps where there are more points than this. It
# takes 0.5 times the products for 10,000 emoji, and as much time for 5,000.
_MANY = 8192
# A plan considers this many numbers of steps, each twice the one before.
_TRIED = 4
# A plan aims at this part of the tolerance, because the predicted noise is itself an estimate.
_AIMED_AT = 0.9
# Below this side all eigenvalues of a dual matrix take less time than a measure (docs/how_fast.md).
_DUAL_UP_TO = 4096


@dataclasses.dataclass(frozen=True)
class Budget:
    """The work of a measure: `block * sweeps + probes * steps` products with A.

    Attributes:
      block: columns of a block of the Krylov space that deflates.
      sweeps: blocks of that space; the last serves the quadrature of the others.
      probes: random vectors, each an independent estimate of the rest; at least 2.
      steps: Lanczos steps of each probe.
    """

    block: int = 32
    sweeps: int = 8
    probes: int = 16
    steps: int = 16

    def __post_init__(self) -> None:
        for name, minimum in {"block": 1, "sweeps": 1, "probes": 2, "steps": 1}.items():
            validation.check_count(getattr(self, name), name=f"budget.{name}", minimum=minimum)

    @property
    def products(self) -> int:
        """Matrix-vector products with A."""
        return self.block * self.sweeps + self.probes * self.steps


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

    Each Gram gets the same probes, so that differences of their entropies are paired. `combine`
    turns one entropy of all Grams into the quantities, in nats, that `rtol` is about. No products
    are spent if more than `limit` with each Gram are predicted. Where the limits of steps and
    probes end the refinement, a warning says so. The rest is as in `spectral_measure`.
    """
    if rtol is not None and budget is not None:
        raise ValueError("rtol and budget: expected at most one of them.")
    validation.check_key(key)
    if not validation.is_concrete(*grams):
        raise TypeError(
            "the spectral measure adapts to numbers and cannot run inside jit or vmap: compute all "
            "eigenvalues there (method=cv.Exact()), or call it outside."
        )
    wanted = DEFAULT_RTOL if rtol is None else validation.check_rtol(rtol)
    start = _first_budget(grams[0].n, wanted) if budget is None else budget
    if budget is None and all(entropy.of_largest for entropy in entropies):
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
            validation.warn(
                f"the spectral measure reached a relative error of {worst:.1e}, not "
                f"{wanted:.1e}: a larger rtol, or all eigenvalues (method=cv.Exact()), end sooner."
            )
            return Refined(samplers, rows)
        sampled.deepen(plan.steps)
        sampled.widen(plan.probes)


def _first_budget(n: int, rtol: float) -> Budget:
    """The work before a tolerance decides about more."""
    return Budget(sweeps=12, steps=24) if n > _MANY and rtol <= DEFAULT_RTOL else Budget()


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

    The noise falls with the root of the probes. The gap between the quadratures falls by the same
    factor with every doubling of the steps as it did at the last one. Where no plan is predicted to
    do, the steps are doubled, because a gap need not fall evenly. `even` asks for as many steps of
    all, because a pass serves all.
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
        [s.steps]
        if s.complete
        else sorted({min(s.steps * 2**k, _MAX_STEPS) for k in range(_TRIED)})
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
            for row, of_row in zip(rows, falls, strict=True)
            for estimate, fall, power in zip(row, of_row, powers, strict=True)
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


class Samplers:
    """A sampler for every Gram; where Grams share tiles, a pass over the pairs serves them all.

    They begin with the work of `budget`; `rtol` decides which Ritz pairs are projected off.
    """

    def __init__(self, grams: Sequence[Operator], *, key: jax.Array, budget: Budget, rtol: float):
        shared = SharedTiles.of(grams)
        norms = map(_squared_norm, grams) if shared is None else _squared_norms(shared)
        self.of = [
            Sampler(gram, float(norm), key=key, budget=budget)
            for gram, norm in zip(grams, norms, strict=True)
        ]
        sampled = [sampler for sampler in self.of if not sampler.complete]
        together = SharedTiles.of([sampler.gram for sampler in sampled])
        #: Whether all that sample take the same steps, in the same passes.
        self.even = together is not None
        self._groups: list[tuple[krylov.Products, list[Sampler]]] = (
            [(sampler.gram, [sampler]) for sampler in sampled]
            if together is None
            else [(together, sampled)]
        )
        self._batch = budget.probes
        for products, samplers in self._groups:
            starts = tuple(sampler.start() for sampler in samplers)
            spaces = krylov.krylov_spaces(products, starts, sweeps=budget.sweeps)
            for sampler, space in zip(samplers, spaces, strict=True):
                sampler.deflate(space, budget.block, rtol)
            removed = zip(*(sampler.removed() for sampler in samplers), strict=True)
            rests = _row_squares_beside_each(products, *removed)
            for sampler, rest in zip(samplers, rests, strict=True):
                sampler.remains(rest)
        self._draw(0, budget.probes)

    def _draw(self, first: int, last: int) -> None:
        """Adds a batch of probes to each sampler, at the steps of those before."""
        for products, samplers in self._groups:
            for sampler in samplers:
                sampler.draw(first, last)
            self._advance(products, samplers, slice(-1, None), 0)

    def _advance(
        self, products: krylov.Products, samplers: list[Sampler], batches: slice, before: int
    ) -> None:
        """Continues the recurrences of some batches up to the steps of the samplers."""
        states = tuple(tuple(sampler.batches[batches]) for sampler in samplers)
        bases = tuple(sampler.invariant for sampler in samplers)
        bounds = jnp.asarray(before), jnp.asarray(samplers[0].steps)
        found = krylov.lanczos(products, bases, states, *bounds)
        for sampler, of in zip(samplers, found, strict=True):
            sampler.batches[batches] = of

    def deepen(self, steps: Sequence[int]) -> None:
        """Continues every recurrence up to these steps, one number for every Gram."""
        before = {id(sampler): sampler.steps for sampler in self.of}
        for sampler, upto in zip(self.of, steps, strict=True):
            sampler.steps = upto
        for products, samplers in self._groups:
            known = before[id(samplers[0])]
            # Without a step to take, a program would be compiled for nothing.
            if samplers[0].steps > known:
                for sampler in samplers:
                    sampler.enlarge()
                self._advance(products, samplers, slice(None), known)

    def widen(self, probes: int) -> None:
        """Adds batches of probes until there are at least this many: one, of all that are new."""
        first = self.of[0].probes
        last = first + math.ceil(max(probes - first, 0) / self._batch) * self._batch
        if last > first:
            self._draw(first, last)
        for sampler in self.of:
            sampler.probes = last


class Sampler:
    """The parts of a measure of one Gram, kept so that steps and probes can be added."""

    def __init__(self, gram: Operator, norm: float, *, key: jax.Array, budget: Budget):
        self.gram, self._budget = gram, budget
        self._start_key, self._probe_key = jax.random.split(key)
        self.probes, self.steps = budget.probes, budget.steps
        #: Probes that are drawn at once.
        self.batch = budget.probes
        self._norm = norm
        self._eps = float(jnp.finfo(gram.dtype).eps)
        self.batches: list[krylov.Tridiagonals] = []
        dual = gram.rank_bound < gram.n and gram.rank_bound <= _DUAL_UP_TO
        # Tr A = 1 bounds the largest eigenvalue from below by ||A||_F^2.
        rank_one = self._norm >= 1 - spectra.RANK_ONE * self._eps
        #: Whether all eigenvalues are known, so that nothing was sampled.
        self.complete = gram.n <= budget.products or dual or rank_one
        if self.complete:
            self._eigenvalues = np.ones(1) if rank_one else _host(all_eigenvalues(gram))

    def start(self) -> jax.Array:
        """The first block of the Krylov space, as placed."""
        shape = self.gram.n, self._budget.block
        return self.gram.place(jax.random.normal(self._start_key, shape, self.gram.dtype))

    def deflate(self, space: krylov.KrylovSpace, width: int, rtol: float) -> None:
        """Chooses Ritz vectors of all blocks but the last, which gives their residuals."""
        upper = np.triu(_host(space.projected))
        projected = upper + np.triu(upper, 1).T
        size = projected.shape[0] - width
        values, rotation = np.linalg.eigh(projected[:size, :size])
        values, rotation = values[::-1], rotation[:, ::-1]
        residuals = np.linalg.norm(projected[size:, :size] @ rotation, axis=0)
        floor = 4 * self._eps * float(values.max(initial=0.0))
        deflated = (residuals <= _DEFLATED * values) & (values > floor)
        limit = min(_PROJECTED, _PROJECTED * math.sqrt(rtol / DEFAULT_RTOL))
        projected_off = deflated & (residuals <= limit * values)
        chosen = np.zeros((projected.shape[0], size))
        chosen[:size] = rotation * deflated[None, :]
        self._chosen, self._projected_off = chosen, projected_off
        self._space = projected, _host(space.remainder)
        self.values, self.residuals = values[deflated], residuals[deflated]
        self.projected = values[projected_off], residuals[projected_off]
        self._rules = self._block_rules(floor)
        self._basis = space.basis
        self.vectors = self._combined(chosen)
        self._scaled = self._like(values * deflated)
        self.invariant = self._combined(chosen * projected_off[None, :])
        self._largest = float(self._rules[0].nodes.max())
        self._largest_error = self._error_of_largest()

    def removed(self) -> tuple[jax.Array, jax.Array]:
        """V diag(values) and V, whose product is what the deflation takes from A."""
        return self.vectors * self._scaled[None, :], self.vectors

    def remains(self, rest: jax.Array) -> None:
        """Takes the diagonal of the square of A - V diag(values) V^T, `[rows]`."""
        self._rest = _host(rest)[: self.gram.n]

    def _like(self, array: np.ndarray) -> jax.Array:
        return jnp.asarray(array, self.gram.dtype)

    def _block_rules(self, floor: float) -> tuple[Rule, Rule]:
        """The block Gauss and Gauss-Radau quadratures of Tr V^T f(A) V."""
        projected, remainder = self._space

        def rule(matrix: np.ndarray) -> Rule:
            nodes, vectors = np.linalg.eigh(matrix)
            shares = vectors[: projected.shape[0]].T @ self._chosen
            return Rule(np.maximum(nodes, 0), np.sum(np.square(shares), axis=1))

        return rule(projected), rule(quadrature.with_null_space(projected, remainder, floor))

    def _error_of_largest(self) -> float:
        """The relative error of the largest eigenvalue: the residual, or its square over the gap.

        The second is the theorem of Kato and Temple.
        """
        projected, remainder = self._space
        values, vectors = np.linalg.eigh(projected)
        last = vectors[-remainder.shape[0] :, -1]
        residual = math.sqrt(max(float(last @ remainder @ last), 0.0))
        gap = float(values[-1] - values[-2:-1].sum())
        return min(residual, residual**2 / gap if gap > 0 else residual) / float(values[-1])

    def draw(self, first: int, last: int) -> None:
        """Draws a batch of probes, one key each, so that more probes begin with the fewer."""
        gram = self.gram
        keys = jax.vmap(functools.partial(jax.random.fold_in, self._probe_key))(
            jnp.arange(first, last)
        )
        draw = functools.partial(jax.random.rademacher, shape=(gram.n,), dtype=gram.dtype)
        signs = gram.place(jax.vmap(draw, out_axes=1)(keys))
        self.batches.append(krylov.start_lanczos(self.vectors, signs, capacity=self._capacity))

    @property
    def _capacity(self) -> int:
        """Room for the steps. Each capacity is a program to compile, so that there are few."""
        first = 2 * self._budget.steps
        return first if self.steps <= first else max(self.steps, _MAX_STEPS)

    def enlarge(self) -> None:
        """Makes room for the steps in every batch."""
        for index, state in enumerate(self.batches):
            if state.alpha.shape[1] < self.steps:
                self.batches[index] = krylov.enlarge(state, capacity=self._capacity)

    def measure(self) -> SpectralMeasure:
        """The measure of everything sampled so far."""
        n, eps = self.gram.n, self._eps
        if self.complete:
            found = self._eigenvalues
            return SpectralMeasure.of_eigenvalues(found, n=n, eps=eps, probes=self.probes)
        alpha, beta, squares = (
            np.concatenate([_host(getattr(state, name)) for state in self.batches])
            for name in ("alpha", "beta", "squares")
        )
        count, mass = self.values.size, np.sum(self.values)
        # A - V diag(values) V^T consists of P A P and, in either of the two corners beside it, the
        # part of A V outside of the span of V. Tr P A^2 P has one such corner.
        square = float(np.sum(self._rest) - np.sum(np.square(self.residuals)))
        moments = np.array([n - count, 1 - mass, square])
        # The square is a sum of squares over the entries of what is left, rounded like the entries.
        of_square = math.sqrt(square * self._norm) + square
        return SpectralMeasure(
            deflated=self._rules,
            alpha=alpha[:, : self.steps],
            beta=beta[:, : self.steps],
            squares=squares,
            moments=np.maximum(moments, 0),
            moment_errors=_MOMENT_ROUNDING * eps * np.array([0.0, mass, of_square]),
            projected=self.projected,
            squared_norm=self._norm,
            largest=self._largest,
            largest_error=self._largest_error,
            eps=eps,
            n=n,
            products=self._budget.block * self._budget.sweeps + self.probes * self.steps,
        )

    def slope(self, entropy: Entropy, gram: Operator) -> jax.Array:
        """A zero whose gradient is that of the entropy of `gram`, whose values were sampled."""
        if self.complete:
            value = entropy(gram)
            return value - lax.stop_gradient(value)
        left, right, factor = self.sensitivity(entropy)
        norm = gram.squared_frobenius_norm()
        return gram.bilinear_slope(left, right) + factor * (norm - lax.stop_gradient(norm))

    def sensitivity(self, entropy: Entropy) -> tuple[jax.Array, jax.Array, float]:
        """How the entropy of this sample changes with A, which is what its gradient needs.

        With h = dH / d lambda, dH = Tr h(A) dA. A least-squares line of h over the nodes, of slope
        b, gives b Tr A dA = (b / 2) d||A||_F^2, exactly. The remainder is r(A) V V^T + r(A) P: the
        block quadrature gives r(A) V = Q r(T) Y, and Lanczos, over the probes, the mean of
        r(A) P z (P z)^T. What the Lanczos steps projected off is taken from the first.

        The result is left and right `[rows, m]` and a number, of which dH is
        sum_ij dA_ij <left_i, right_j> + number d||A||^2.
        """
        measure = self.measure()
        derivative = measure.derivative(entropy)
        rules = [measure.deflated[0], measure.sampled[0][0]]
        nodes, weights = (
            np.concatenate([part.ravel() for part in p]) for p in zip(*rules, strict=True)
        )
        line = np.polynomial.Polynomial.fit(nodes, derivative(nodes), 1, w=np.sqrt(weights))

        def remainder(x: np.ndarray) -> np.ndarray:
            return derivative(x) - line(x)

        lefts, rights = [self.vectors], [self._combined(self._coefficients(remainder))]
        for state in self.batches:
            starts, images = self._images_of_probes(state, remainder)
            lefts.append(starts)
            rights.append(images / self.probes)
        slope = float(line.convert().coef[1:].sum())
        return jnp.concatenate(lefts, axis=1), jnp.concatenate(rights, axis=1), slope / 2

    def influences(self, entropy: Entropy, shares: np.ndarray | None = None) -> np.ndarray:
        """The influences of rows on the entropy, as independent estimates `[replicates, n]`.

        Row i of share p_i of the weight has dH / dp_i = (A h(A))_ii / p_i with h = dH / d lambda,
        and as influence this less the mean over the weight. A_ii = p_i adds the same to all rows,
        and the diagonal of A^2 is known. So of x h(x) a least-squares quadratic, zero at zero, is
        taken away. What remains, s(A), has the diagonal of s(A) V V^T, from the block quadrature,
        and that of s(A) P, which over probes is the mean of those of s(A) P z (P z)^T.

        Args:
          entropy: of any order and truncation.
          shares: p `[n]`, of sum one; 1 / n where None. A row of share zero has NaN: it is not in
            A.

        Returns:
          An estimate a probe, whose mean estimates the influences; what is deflated is in all of
          them. Products of two of them are unbiased, their squares are not: a sum over groups of
          squared sums is estimated by (|sum_r x_r|^2 - sum_r |x_r|^2) / (R (R - 1)). One replicate
          where all eigenvalues are known, which is exact.
        """
        n = self.gram.n
        shares = np.full(n, 1 / n) if shares is None else np.asarray(shares, np.float64)
        if self.complete:
            if self._eigenvalues.size == 1:
                return np.zeros((1, n))
            return influences.of_diagonal(
                _host(influences.diagonal(self.gram, entropy))[None], shares
            )
        measure = self.measure()
        derivative = measure.derivative(entropy)
        c = self._quadratic(measure, lambda x: x * derivative(x))

        def remainder(x: np.ndarray) -> np.ndarray:
            return x * (derivative(x) - c[0] - c[1] * x)

        # A^2 less the square of what is left has V diag(theta) (A V)^T and its transpose.
        images = self._space[0] @ self._chosen
        theta = np.sum(self._chosen * images, axis=0)
        squares = (2 * images - self._chosen * theta) * theta
        deflated = self._combined(self._coefficients(remainder) + c[1] * squares)
        known = c[1] * self._rest + _host(_row_sums(self.vectors, deflated))[:n]
        sampled = [
            _host(starts * images)[:n].T
            for starts, images in (self._images_of_probes(s, remainder) for s in self.batches)
        ]
        return influences.of_diagonal(known + np.concatenate(sampled), shares)

    def _quadratic(self, measure: SpectralMeasure, function: Function) -> np.ndarray:
        """The coefficients of x and x^2 that leave least noise in the diagonal of f(A).

        The variances of the diagonal of s(A) P z (P z)^T add up to less than ||P s(A) P||_F^2.
        """
        nodes, weights = measure.sampled[0][0]
        powers = np.stack([nodes, np.square(nodes)], axis=-1) * np.sqrt(weights)[..., None]
        scales = np.linalg.norm(powers, axis=(0, 1))
        scales = np.where(scales > 0, scales, 1)
        values = function(nodes) * np.sqrt(weights)
        fit, *_ = np.linalg.lstsq((powers / scales).reshape(-1, 2), values.ravel(), rcond=1e-12)
        return fit / scales

    def _images_of_probes(
        self, state: krylov.Tridiagonals, function: Function
    ) -> tuple[jax.Array, jax.Array]:
        """P z and f(A) P z for a batch of probes, `[rows, probes]` each."""
        alpha, beta, squares = map(_host, (state.alpha, state.beta, state.squares))
        nodes, vectors = quadrature.tridiagonal_eigen(
            alpha[:, : self.steps], beta[:, : self.steps - 1]
        )
        roots = np.sqrt(squares)
        first = function(np.maximum(nodes, 0)) * vectors[:, 0, :]
        coefficients = np.einsum("pkj,pj->pk", vectors, first) * roots[:, None]
        unused = state.alpha.shape[1] - self.steps
        padded = np.pad(coefficients, ((0, 0), (0, unused)))
        starts = state.history[:, 0].T * self._like(roots)[None, :]
        return starts, krylov.unroll(state, self._like(padded))

    def _coefficients(self, function: Function) -> np.ndarray:
        """f(A) V, and P f(A) V again for the vectors that Lanczos projects off, `[m, k]`.

        As combinations of the basis of the Krylov space.
        """
        projected, _ = self._space
        nodes, vectors = np.linalg.eigh(projected)
        values = function(np.maximum(nodes, 0))
        images = vectors @ (values[:, None] * (vectors.T @ self._chosen))
        outside = images - self._chosen @ (self._chosen.T @ images)
        return images + outside * self._projected_off[None, :]

    def _combined(self, coefficients: np.ndarray) -> jax.Array:
        """Combinations `[rows, k]` of the basis of the Krylov space."""
        return krylov.combine(self._basis, self._like(coefficients))


_squared_norm = jax.jit(lambda gram: gram.squared_frobenius_norm())
_squared_norms = jax.jit(lambda shared: shared.squared_frobenius_norms())
_row_squares_beside_each = jax.jit(
    lambda products, lefts, rights: products.row_squares_beside_each(lefts, rights)
)
_row_sums = jax.jit(lambda left, right: jnp.sum(left * right, axis=1))
# Compiled alone, because compiling it takes most of the time of a first call: one program serves
# outputs, prompts and pairs, at every order and truncation.
all_eigenvalues = jax.jit(lambda gram: gram.eigenvalues())


def _host(array: jax.Array) -> np.ndarray:
    """A small array in float64, in every process."""
    return np.asarray(to_host(array), np.float64)
