"""The spectrum of a Gram as a discrete measure, and every entropy of it with an interval.

What a measure is made of, and how it is sampled, is in `estimators`. Here it is given: quadratures
of the deflated part, tridiagonal matrices of the probes for the rest, and exact moments. An entropy
is a function of it, of any order and truncation; everything is small, float64, and on the host.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from condvendi_jax.entropies import Entropy, von_neumann
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.spectra import _quadrature as quadrature

Function = Callable[[np.ndarray], np.ndarray]

CONFIDENCE = 0.95
# In eps of the dtype: what products leave in a trace.
_ROUNDING = 30
# How many depths of quadrature a function with a kink is averaged over, and by how much its errors
# exceed what they vary by.
_DEPTHS = 4
_KINKED = 3.0
# A density even over the cell of a kink leaves at most this part of it; nothing is known to be even
# between the last node and zero.
_OF_CELL = 1 / 8
# In eps of the largest eigenvalue: what rounding makes of a zero.
_ZERO = 4
# Stands for zero where logarithms are taken.
_LEAST = 1e-30
# Relative: eigenvalues so near the largest are it.
_SAME = 1e-6


def standard_error(values: np.ndarray) -> float:
    """Of the mean of independent values `[m]`."""
    return float(np.std(values, ddof=1) / math.sqrt(values.size))


def half_interval(values: np.ndarray) -> float:
    """Half of Student's confidence interval for the mean of independent values `[m]`."""
    # Imported where it is used: it takes a sixth of the time of importing JAX.
    from scipy.special import stdtrit

    return float(stdtrit(values.size - 1, (1 + CONFIDENCE) / 2)) * standard_error(values)


class Kink(NamedTuple):
    """Where the slope of a function jumps: above `at` it is `excess` less its value there, below 0.

    Attributes:
      at: an eigenvalue of A, in [0, 1].
      excess: a function of arrays of eigenvalues of any shape.
    """

    at: float
    excess: Function


class Trace(NamedTuple):
    """An estimated trace: a value for each probe, and the errors that all probes share."""

    per_probe: np.ndarray
    gap: float
    coupling: float
    rounding: float

    @property
    def mean(self) -> float:
        """The estimate."""
        return float(np.mean(self.per_probe))


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimated entropy in nats, and what is not known about it.

    Attributes:
      per_probe: `[probes]`, independent estimates; all equal where nothing was sampled.
      gap: what the quadratures may be off by, half the distance of two; more steps reduce it.
      coupling: what the projection in the Lanczos steps may move.
      rounding: of the dtype that the products were computed in.
      offset: of the middle of the interval from the estimate.
    """

    per_probe: np.ndarray
    gap: float = 0.0
    coupling: float = 0.0
    rounding: float = 0.0
    offset: float = 0.0

    @property
    def value(self) -> float:
        """The estimate."""
        return float(np.mean(self.per_probe))

    @property
    def standard_error(self) -> float:
        """Of the mean over the probes."""
        return standard_error(self.per_probe)

    @property
    def systematic(self) -> float:
        """What may shift all probes alike, at most."""
        return self.gap + self.coupling + self.rounding

    @property
    def noise(self) -> float:
        """Half the confidence interval that the probes alone give, by Student's t."""
        return half_interval(self.per_probe)

    @property
    def half_width(self) -> float:
        """Half the confidence interval. Of an exponential it is, to first order, relative."""
        return self.noise + self.systematic

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval."""
        middle = self.value + self.offset
        return middle - self.half_width, middle + self.half_width

    def __add__(self, other: Estimate) -> Estimate:
        """The sum, paired by probe."""
        return self._with(other, self.per_probe + other.per_probe, self.offset + other.offset)

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference, paired by probe: what common random numbers share cancels."""
        return self._with(other, self.per_probe - other.per_probe, self.offset - other.offset)

    def _with(self, other: Estimate, per_probe: np.ndarray, offset: float) -> Estimate:
        return Estimate(
            per_probe,
            self.gap + other.gap,
            self.coupling + other.coupling,
            self.rounding + other.rounding,
            offset,
        )


class Rule(NamedTuple):
    """A quadrature of a spectrum: nodes and, in numbers of eigenvalues, their weights."""

    nodes: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class SpectralMeasure:
    """The spectrum of A = K / n as a discrete measure.

    Attributes:
      deflated: Gauss and Gauss-Radau quadratures of the deflated part, `[m]` nodes each.
      alpha: `[probes, steps]`, diagonals of the probes' tridiagonal matrices.
      beta: `[probes, steps]`, their off-diagonals; the last couples to the step not taken.
      squares: `[probes]`, squared norms of the projected probes, about the number of eigenvalues
        that are left.
      moments: Tr P, Tr P A P and Tr P A^2 P of what is left, known exactly.
      moment_errors: what rounding may have moved each of them by.
      projected: Ritz values `[k]` and residual norms `[k]` of what each Lanczos step projects off.
      squared_norm: ||A||_F^2.
      largest: the largest eigenvalue.
      largest_error: how far it may be off, relatively.
      eps: of the dtype that the products were computed in.
      n: the number of eigenvalues.
      products: matrix-vector products that it took; 0 where all eigenvalues were computed.
    """

    deflated: tuple[Rule, Rule]
    alpha: np.ndarray
    beta: np.ndarray
    squares: np.ndarray
    moments: np.ndarray
    moment_errors: np.ndarray
    projected: tuple[np.ndarray, np.ndarray]
    squared_norm: float
    largest: float
    largest_error: float
    eps: float
    n: int
    products: int

    def at_half_depth(self) -> SpectralMeasure:
        """The measure after half of the Lanczos steps."""
        depth = max(self.alpha.shape[1] // 2, 1)
        return dataclasses.replace(self, alpha=self.alpha[:, :depth], beta=self.beta[:, :depth])

    @functools.cached_property
    def sampled(self) -> tuple[tuple[Rule, Rule], ...]:
        """Gauss and Gauss-Radau quadratures of what is left, after the last few Lanczos steps.

        The deepest comes first; nodes and weights are `[probes, depth]` and `[probes, depth + 1]`.
        """
        deepest = self.alpha.shape[1]
        rules = []
        for depth in range(deepest, max(deepest - _DEPTHS, 0), -1):
            pair = (
                quadrature.gauss(self.alpha[:, :depth], self.beta[:, : depth - 1]),
                quadrature.radau(self.alpha[:, :depth], self.beta[:, :depth]),
            )
            rules.append(
                tuple(Rule(nodes, weights * self.squares[:, None]) for nodes, weights in pair)
            )
        return tuple(rules)

    def entropy(self, entropy: Entropy = von_neumann) -> Estimate:
        """The entropy of this spectrum, of any order and truncation, in nats.

        Order 2 without truncation comes from the Frobenius norm and is exact.

        Raises:
          ValueError: the truncation exceeds n.
        """
        t, order = entropy.truncation, entropy.order
        if t is not None and t > self.n:
            raise ValueError(f"truncation: expected at most n = {self.n}, received {t}.")
        rounding = _ROUNDING * self.eps
        if not entropy.needs_spectrum:
            return self._constant(max(-math.log(self.squared_norm), 0.0), rounding=rounding)
        if t is not None and t < self.n:
            return _Top(self, t).entropy(order)
        if order == 1:
            total = self.trace(_plogp)
            return Estimate(total.per_probe, total.gap, total.coupling, total.rounding)
        if math.isinf(order):
            value = -math.log(self.largest)
            # Of the Krylov space: no step of Lanczos makes it smaller.
            return self._constant(value, coupling=self.largest_error, rounding=rounding)
        powers = self.trace(_power(order, self.largest))
        if order < 1:
            floor = spectra.NOISE_FLOOR * self.eps * self.largest
            floored = self.trace(_power(order, self.largest, floor))
            lost = abs(powers.mean - floored.mean)
            powers = floored._replace(rounding=floored.rounding + lost)
        return _of_power_sum(powers, order, self.largest)

    def _constant(self, value: float, **errors: float) -> Estimate:
        return Estimate(np.full(self.squares.size, value), **errors)

    def trace(self, function: Function, kink: Kink | None = None) -> Trace:
        """Estimates Tr f(A) for an f of arrays of eigenvalues in [0, 1].

        Args:
          function: f, which is called on arrays of any shape.
          kink: where f has one. Gauss and Gauss-Radau quadrature bracket the trace of a smooth f.
            Beside a kink both err in either direction, by what the nodes next to it weigh: their
            mean is then averaged over the last few depths, and the gap is what it varies by, thrice
            to be safe, or what eigenvalues between those nodes may add, whichever is more.
        """
        smooth = kink is None
        fits = [self._with_moments(function, degree, smooth) for degree in range(3)]
        per_probe, gap, unknown = min(fits, key=lambda fit: half_interval(fit[0]) + fit[2])
        exact, bracket = (float(rule.weights @ function(rule.nodes)) for rule in self.deflated)
        total = (exact + bracket) / 2 + per_probe
        rounding = _ROUNDING * self.eps * max(abs(float(np.mean(total))), 1.0) + unknown
        factor = 1.0 if smooth else _KINKED
        gap = factor * (gap + abs(exact - bracket) / 2)
        if kink is not None:
            gap = max(gap, self._within_cell(kink))
        return Trace(total, gap, factor * self._coupling(function), rounding)

    def _within_cell(self, kink: Kink) -> float:
        """What the eigenvalues between the two nodes beside a kink may add to the trace.

        Of m eigenvalues spread evenly over the cell, between whose ends the excess grows by d, a
        quadrature by these ends misses at most m d / 8, wherever the kink is. Below the last node
        nothing says how they are spread: they may all be zero. A kink among what rounding makes of
        zeros adds nothing.
        """
        if kink.at <= _ZERO * self.eps * self.largest:
            return 0.0
        found = []
        for nodes, weights in zip(*self.sampled[0][0], strict=True):
            above = int(np.searchsorted(nodes, kink.at))
            if above == nodes.size:
                found.append(0.0)
                continue
            inside = above > 0
            ends = np.array([nodes[above - 1] if inside else 0.0, nodes[above]])
            count = float(weights[max(above - 1, 0) : above + 1].mean())
            part = _OF_CELL if inside else 1.0
            found.append(part * count * abs(float(np.subtract(*kink.excess(ends)))))
        return float(np.mean(found))

    def _with_moments(
        self, function: Function, degree: int, smooth: bool
    ) -> tuple[np.ndarray, float, float]:
        """Tr P f(A) P by every probe, with the moments up to a degree as control variates.

        The moments are differences, one minus what is deflated: where little is left their
        rounding counts, so that fewer of them can be better.

        Returns:
          `[probes]`; what the quadrature may be off by; what rounding of the moments may move.
        """
        nodes, weights = self.sampled[0][0]
        scale = float(nodes.max()) or 1.0

        def powers(nodes: np.ndarray) -> np.ndarray:
            return (nodes / scale)[..., None] ** np.arange(degree + 1)

        root = np.sqrt(weights)
        fit, *_ = np.linalg.lstsq(
            (powers(nodes) * root[..., None]).reshape(-1, degree + 1),
            (function(nodes) * root).ravel(),
            rcond=1e-12,
        )

        def remainder(rule: Rule) -> np.ndarray:
            values = function(rule.nodes) - powers(rule.nodes) @ fit
            return np.sum(rule.weights * values, axis=1)

        pairs = [(remainder(one), remainder(other)) for one, other in self.sampled]
        if smooth:
            (one, other), *_ = pairs
            middle, gap = (one + other) / 2, abs(float(np.mean(one - other))) / 2
        else:
            middles = np.array([(one + other) / 2 for one, other in pairs])
            middle = middles.mean(axis=0)
            gap = float(np.abs(np.mean(middles - middle, axis=1)).max())
        scales = scale ** np.arange(degree + 1)
        known = float(self.moments[: degree + 1] / scales @ fit)
        unknown = float(self.moment_errors[: degree + 1] / scales @ np.abs(fit))
        return middle + known, gap, unknown

    def _coupling(self, function: Function) -> float:
        """To second order, what projecting Ritz vectors off in every Lanczos step changes.

        With r the residual norm of a pair, r^2 (f(theta) - f(b) - f'(b) (theta - b)) /
        (theta - b)^2 at the mean b of what is left.
        """
        values, residuals = self.projected
        if values.size == 0 or self.moments[1] <= 0:
            return 0.0
        mean = max(self.moments[2] / self.moments[1], self.eps * self.largest)
        b = np.minimum(mean, 0.9 * values)
        step = 1e-4 * b
        slopes = (function(b + step) - function(b - step)) / (2 * step)
        bend = function(values) - function(b) - slopes * (values - b)
        return float(np.sum(np.abs(np.square(residuals / (values - b)) * bend)))

    def derivative(self, entropy: Entropy) -> Function:
        """dH / d lambda, as a function of the eigenvalue (for truncated entropies, CV eq. 24).

        At a zero eigenvalue, where it may be infinite, it is what it is at the rounding of zero.
        """
        t, order = entropy.truncation, entropy.order
        if t is not None and t < self.n:
            return _Top(self, t).derivative(order)
        floor = self.eps * self.largest
        if math.isinf(order):
            return lambda x: np.where(x >= self.largest * (1 - _SAME), -1 / self.largest, 0.0)
        if order == 1:
            return lambda x: -np.log(np.maximum(x, floor)) - 1
        total = self.trace(_power(order, self.largest)).mean
        slope = _power(order - 1, self.largest)
        scale = order / (1 - order) / (self.largest * total)
        return lambda x: scale * slope(np.maximum(x, floor))

    def thresholds(self, t: int) -> tuple[float, float]:
        """The t-th eigenvalue, where eigenvalues are apart and where they pile up.

        Of those that are apart, half of what a node stands for lies above it: between nodes the
        logarithm is linear in the rank, and the geometric mean over probes and the last few depths
        evens out their steps. Of those that pile up, as at zero, all lie at the node.

        Args:
          t: a rank, from 1 (the largest eigenvalue) to n.

        Returns:
          Two eigenvalues of A = K / n, in [0, 1]: by either assumption.
        """
        head, rank = self.deflated[0], t - 0.5
        apart, piled = [], []
        for gauss, _ in self.sampled:
            for nodes, weights in zip(*gauss, strict=True):
                values = np.concatenate([head.nodes, nodes])
                order = np.argsort(values)[::-1]
                logs = np.log(np.maximum(values[order], _LEAST))
                counts = np.concatenate([head.weights, weights])[order]
                ends = np.cumsum(counts)
                apart.append(np.interp(rank, ends - counts / 2, logs))
                piled.append(logs[min(int(np.searchsorted(ends, rank)), logs.size - 1)])
        return math.exp(float(np.mean(apart))), math.exp(float(np.median(piled)))


def _log(x: np.ndarray) -> np.ndarray:
    """log, with 0 at 0, where it only ever multiplies a zero."""
    return np.log(np.where(x > 0, x, 1))


def _plogp(x: np.ndarray) -> np.ndarray:
    return -x * _log(x)


def _power(order: float, largest: float, floor: float = 0.0) -> Function:
    """(x / largest)^order, zero up to the floor."""

    def power(x: np.ndarray) -> np.ndarray:
        kept = x > floor
        return np.where(kept, (np.where(kept, x, 1.0) / largest) ** order, 0.0)

    return power


def _of_power_sum(powers: Trace, order: float, largest: float) -> Estimate:
    """The Renyi entropy out of sum (lambda / largest)^order, linearised about its mean."""
    # The largest eigenvalue alone contributes one.
    mean = max(powers.mean, 1.0)
    value = (math.log(mean) + order * math.log(largest)) / (1 - order)
    slope = 1 / ((1 - order) * mean)
    per_probe = value + slope * (powers.per_probe - powers.mean)
    return Estimate(per_probe, *(abs(slope) * error for error in powers[1:]))


class _Top:
    """Sums over the t largest eigenvalues of a measure, for CV eq. 13.

    A sum of g over the t largest is, for increasing g, the minimum over tau of
    t g(tau) + sum (g(lambda) - g(tau))_+: at the minimum tau is the t-th eigenvalue, and an error
    in tau counts to second order only. Which eigenvalues are the largest does not depend on g, so
    one tau serves every g: of the two that the nodes suggest, the one with the smaller sum.
    """

    def __init__(self, measure: SpectralMeasure, t: int):
        self.measure, self.t = measure, t
        tried = {tau: self._sum(lambda x: x, tau) for tau in measure.thresholds(t)}
        self.tau, self.kept = min(tried.items(), key=lambda found: found[1].mean)
        # Lemma A of CV: each of the t gains an equal part of what was cut off.
        self.shift = max(0.0, (1 - self.kept.mean) / t)

    def sum(self, g: Function) -> Trace:
        """The sum of g over the t largest eigenvalues."""
        return self._sum(g, self.tau)

    def _sum(self, g: Function, tau: float) -> Trace:
        base = float(g(np.array(tau)))
        trace = self.measure.trace(lambda x: np.where(x > tau, g(x) - base, 0.0), Kink(tau, g))
        return trace._replace(per_probe=trace.per_probe + self.t * base)

    def entropy(self, order: float) -> Estimate:
        """The entropy of the shifted t largest, with the error of the shift in it."""
        shift, largest = self.shift, self.measure.largest + self.shift
        if math.isinf(order):
            rate = 1 / (self.t * largest)
            deviations = self.kept.per_probe - self.kept.mean
            gap, coupling, rounding = (rate * error for error in self.kept[1:])
            coupling += self.measure.largest_error
            rounding += _ROUNDING * self.measure.eps
            return Estimate(-math.log(largest) + rate * deviations, gap, coupling, rounding)
        if order == 1:
            joined = self._with_shift(lambda x: _plogp(x + shift), lambda x: -_log(x + shift) - 1)
            return Estimate(joined.per_probe, joined.gap, joined.coupling, joined.rounding)
        power, slope = _power(order, largest), _power(order - 1, largest)
        joined = self._with_shift(
            lambda x: power(x + shift), lambda x: order / largest * slope(x + shift)
        )
        return _of_power_sum(joined, order, largest)

    def derivative(self, order: float) -> Function:
        """dH / d lambda: each of the t moves H by itself, and by what it leaves to the shift."""
        shift, largest = self.shift, self.measure.largest + self.shift
        if math.isinf(order):

            def own(x: np.ndarray) -> np.ndarray:
                return np.where(x >= self.measure.largest * (1 - _SAME), -1 / largest, 0.0)

            mean = -1 / largest / self.t
        else:
            floor = self.measure.eps * largest
            if order == 1:

                def own(x: np.ndarray) -> np.ndarray:
                    return -np.log(np.maximum(x + shift, floor)) - 1

            else:
                power, slope = _power(order, largest), _power(order - 1, largest)
                scale = order / (1 - order) / largest / self.sum(lambda x: power(x + shift)).mean

                def own(x: np.ndarray) -> np.ndarray:
                    return scale * slope(np.maximum(x + shift, floor))

            mean = self.sum(own).mean / self.t
        return lambda x: np.where(x > self.tau, own(x) - mean, 0.0)

    def _with_shift(self, g: Function, derivative: Function) -> Trace:
        """The sum of g, a function of the shifted eigenvalues, and all that is unknown about it.

        The shift is estimated too, and an error of what is kept moves it: the errors are those of
        the sum of g(x) + rate x. Largely they cancel, since the t-th eigenvalue is in both.
        """
        rate = -self.sum(derivative).mean / self.t
        joined = self.sum(lambda x: g(x) + rate * x)
        return joined._replace(per_probe=joined.per_probe - rate * self.kept.mean)
