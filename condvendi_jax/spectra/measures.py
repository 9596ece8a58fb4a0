"""The spectrum of a Gram as a discrete measure, and every entropy of it with an interval.

docs/any_n.md derives the formulas; `estimators` samples the parts: quadratures of the deflated
eigenvalues, tridiagonal matrices of the probes for the rest, and exact moments. An entropy of any
order and truncation is a function of them. All of it is small, float64, and on the host.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from condvendi_jax.entropies import Entropy, eigenvalues, von_neumann
from condvendi_jax.spectra import krylov
from condvendi_jax.statistics import intervals

Function = Callable[[np.ndarray], np.ndarray]

ROUNDING = 30  # In eps of the dtype, an empirical bound: rounding of products with A in a trace.
# Beside a kink the error of a quadrature changes its sign with the depth, as nodes move past the
# kink: a mean over this many depths cancels most of it. Empirical.
_DEPTHS = 4
# A safety factor on how much those depths differ, which is no bound of their error. Empirical: the
# coverage of truncated scores in docs/how_fast.md was measured with it.
_KINKED = 3.0
# Of m eigenvalues that are uniform between two nodes, where a hinge grows by d, the nodes miss
# m d s (1 - s) / 2 with the kink at the share s of the way: at most m d / 8.
_OF_CELL = 1 / 8
_ZERO = 4  # In eps of the largest eigenvalue: a rounded zero (`eigenvalues.NOISE_FLOOR`).
_LEAST = 1e-30  # Stands for zero in logarithms: far below any eigenvalue above rounding.
# Eigenvalues within this relative distance of the largest have its derivative at infinite order.
_SAME = 1e-6


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimated entropy in nats, or an estimated trace, and its errors.

    Attributes:
      per_probe: `[probes]`, independent estimates; all equal where nothing was sampled.
      gap: the error of the quadratures, half the distance of two; more steps reduce it.
      coupling: the error of projecting eigenvectors off in the Lanczos steps.
      rounding: of the dtype that the products were computed in.
    """

    per_probe: np.ndarray
    gap: float = 0.0
    coupling: float = 0.0
    rounding: float = 0.0

    @property
    def value(self) -> float:
        return float(np.mean(self.per_probe))

    @property
    def standard_error(self) -> float:
        """That of the mean over the probes."""
        return float(np.std(self.per_probe, ddof=1) / math.sqrt(self.per_probe.size))

    @property
    def systematic(self) -> float:
        """The errors that all probes share."""
        return self.gap + self.coupling + self.rounding

    @property
    def noise(self) -> float:
        """Half the confidence interval of the probes alone, by Student's t."""
        error = self.standard_error  # Zero of what is exact, which needs no quantile.
        return error and float(intervals.student(self.per_probe.size - 1)) * error

    @property
    def half_width(self) -> float:
        """Half the confidence interval. For an exponential it is, to first order, relative."""
        return self.noise + self.systematic

    @property
    def interval(self) -> tuple[float, float]:
        return self.value - self.half_width, self.value + self.half_width

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(operator.add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Self) -> Self:
        """The difference, paired by probe: noise that both share cancels."""
        return self + dataclasses.replace(other, per_probe=-other.per_probe)

    def through(self, value: float, slope: float) -> Self:
        """The estimate of a function with this value and slope at the estimate, to first order."""
        errors = (abs(slope) * error for error in (self.gap, self.coupling, self.rounding))
        return type(self)(value + slope * (self.per_probe - self.value), *errors)


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
      squares: `[probes]`, squared norms of the projected probes, about how many eigenvalues remain.
      moments: Tr P, Tr P A P and Tr P A^2 P of what is left, known exactly.
      moment_errors: bounds of their rounding.
      projected: Ritz values `[k]` and residual norms `[k]` of what each Lanczos step projects off.
      squared_norm: ||A||_F^2.
      largest: the largest eigenvalue.
      largest_error: its relative error.
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
    squared_norm: float
    largest: float
    eps: float
    n: int
    projected: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))
    largest_error: float = 0.0
    products: int = 0

    @classmethod
    def of_eigenvalues(cls, values: np.ndarray, *, n: int, eps: float, probes: int = 2) -> Self:
        """The exact measure of n eigenvalues whose positive ones are among `values`."""
        values = np.sort(values[values > 0])[::-1]
        rest, zeros = float(n - values.size), np.zeros((probes, 1))
        everything = Rule(values, np.ones_like(values))
        left = zeros, zeros, np.full(probes, rest), np.array([rest, 0.0, 0.0]), np.zeros(3)
        known = float(np.sum(values**2)), float(values[0])
        return cls((everything, everything), *left, *known, eps, n)

    def at_half_depth(self) -> Self:
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
            alpha, beta = self.alpha[:, :depth], self.beta[:, :depth]
            pair = krylov.gauss(alpha, beta[:, :-1]), krylov.radau(alpha, beta)
            rules.append(tuple(Rule(x, weights * self.squares[:, None]) for x, weights in pair))
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
        rounding = ROUNDING * self.eps
        if not entropy.needs_spectrum:
            return self._constant(max(-math.log(self.squared_norm), 0.0), rounding=rounding)
        if t is not None and t < self.n:
            return _Top(self, t).entropy(order)
        if math.isinf(order):
            # The error of the Krylov space, which no Lanczos step reduces.
            value = -math.log(self.largest)
            return self._constant(value, coupling=self.largest_error, rounding=rounding)
        total = self.trace(_summand(order, self.largest)[0])
        if order < 1:
            floor = eigenvalues.NOISE_FLOOR * self.eps * self.largest
            floored = self.trace(_power(order, self.largest, floor))
            lost = abs(total.value - floored.value)
            total = dataclasses.replace(floored, rounding=floored.rounding + lost)
        return _of_sum(total, order, self.largest)

    def rounding(self, entropy: Entropy, relative: float) -> float:
        """The largest change of an entropy, in nats, by rounding of kernel values and eigenvalues.

        Values that are off by `relative` move A by its product with ||A||_F, and eigenvalue
        routines leave each eigenvalue off by about eps / 2 of the largest. Eigenvalues of sum one
        then move by a vector d of sum zero and at most the norm e of both together (Hoffman and
        Wielandt), which the projection to the simplex does not lengthen. An entropy is concave, so
        that it lies below its tangent at the eigenvalues raised to f = e / n^(1/2): it moves by up
        to e times the norm of its slopes there, less their mean, and what raising adds, at most f
        for each. Below order 1, m eigenvalues up to a floor, which count as zero or are rounding,
        have powers of a sum of at most m (their mean + e / m^(1/2))^order. The most is log n.
        """
        order, root, slope = entropy.order, math.sqrt(self.n), self.derivative(entropy)
        off = relative * math.sqrt(self.squared_norm) + root * self.eps * self.largest / 2
        floor, moved = off / root, off * root

        def total(function: Function) -> float:
            return self.trace(function).value

        if order < 1:
            floor = max(floor, eigenvalues.NOISE_FLOOR * self.eps * self.largest)
            low = total(lambda x: np.where(x > floor, 0.0, 1.0))
            low = max(low - (self.n - (entropy.truncation or self.n)), 1.0)
            mass = max(total(lambda x: np.where(x > floor, 0.0, x)), 0.0)
            added = low * (mass / low + off / math.sqrt(low)) ** order
            moved = math.log1p(added / total(_power(order, 1.0, floor))) / (1 - order)
        first, second = (total(lambda x, k=k: slope(np.maximum(x, floor)) ** k) for k in (1, 2))
        moved += off * math.sqrt(max(second - first**2 / self.n, 0.0))
        return min(moved, math.log(self.n))

    def _constant(self, value: float, **errors: float) -> Estimate:
        return Estimate(np.full(self.squares.size, value), **errors)

    def trace(self, function: Function, kink: tuple[float, Function] | None = None) -> Estimate:
        """Estimates Tr f(A) for an f of arrays of eigenvalues in [0, 1].

        A kink is an eigenvalue x and a function g, where f is zero below x and g less g(x) above.
        The gap is half the distance of two quadratures; beside a kink, as docs/any_n.md says.
        """
        smooth = kink is None
        fits = [self._with_moments(function, degree, smooth) for degree in range(3)]
        per_probe, gap, unknown = min(fits, key=lambda fit: Estimate(fit[0]).noise + fit[2])
        exact, bracket = (float(rule.weights @ function(rule.nodes)) for rule in self.deflated)
        total = (exact + bracket) / 2 + per_probe
        rounding = ROUNDING * self.eps * max(abs(float(np.mean(total))), 1.0) + unknown
        factor = 1.0 if smooth else _KINKED
        gap = factor * (gap + abs(exact - bracket) / 2)
        if kink is not None:
            gap = max(gap, self._within_cell(*kink))
        return Estimate(total, gap, factor * self._coupling(function), rounding)

    def _within_cell(self, at: float, excess: Function) -> float:
        """The most that eigenvalues between the two nodes beside a kink may add to a trace."""
        if at <= _ZERO * self.eps * self.largest:
            return 0.0  # A kink at the rounding of zeros adds nothing.
        missed = []
        for nodes, weights in zip(*self.sampled[0][0], strict=True):
            above = int(np.searchsorted(nodes, at))
            inside = 0 < above < nodes.size
            below = nodes[above - 1] if inside else 0.0
            ends = np.array([below, nodes[min(above, nodes.size - 1)]])
            count = float(weights[max(above - 1, 0) : above + 1].mean())
            # Below the last node nothing says how eigenvalues are spread: they count in full.
            part = _OF_CELL if inside else float(above == 0)
            missed.append(part * count * abs(float(np.subtract(*excess(ends)))))
        return float(np.mean(missed))

    def _with_moments(
        self, function: Function, degree: int, smooth: bool
    ) -> tuple[np.ndarray, float, float]:
        """Tr P f(A) P by every probe, with moments as control variates, and the errors of both."""
        fit = fitted(function, self.sampled[0][0], degree)

        def remainder(rule: Rule) -> np.ndarray:
            values = function(rule.nodes) - np.polyval(fit[::-1], rule.nodes)
            return np.sum(rule.weights * values, axis=1)

        pairs = [(remainder(one), remainder(other)) for one, other in self.sampled]
        if smooth:
            (one, other), *_ = pairs
            middle, gap = (one + other) / 2, abs(float(np.mean(one - other))) / 2
        else:
            middles = np.array([(one + other) / 2 for one, other in pairs])
            middle = middles.mean(axis=0)
            gap = float(np.abs(np.mean(middles - middle, axis=1)).max())
        known = float(self.moments[: degree + 1] @ fit)
        return middle + known, gap, float(self.moment_errors[: degree + 1] @ np.abs(fit))

    def _coupling(self, function: Function) -> float:
        """To second order, what projecting Ritz vectors off in every Lanczos step changes."""
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

        Where it is infinite at zero, a zero has its value at the rounding of zero.
        """
        t, order = entropy.truncation, entropy.order
        if t is not None and t < self.n:
            return _Top(self, t).derivative(order)
        return self._slope(order, 0.0, self.trace)

    def _slope(self, order: float, shift: float, total: Callable[[Function], Estimate]) -> Function:
        """dH / d lambda for eigenvalues lambda + shift, whose sum of f is total(f)."""
        largest = self.largest + shift
        floor = self.eps * largest
        if math.isinf(order):
            return lambda x: np.where(x >= self.largest * (1 - _SAME), -1 / largest, 0.0)
        g, slope = _summand(order, largest)
        rate = 1 if order == 1 else 1 / ((1 - order) * total(lambda x: g(x + shift)).value)
        return lambda x: rate * slope(np.maximum(x + shift, floor))

    def at_rank(self, rank: float) -> tuple[float, float]:
        """The eigenvalue of a rank, k - 1/2 for the k-th, if eigenvalues lie apart or pile up.

        Apart: half of a node's weight lies above it, and between nodes the logarithm is linear in
        the rank; the geometric mean over probes and the last depths evens out their steps. Piled
        up, as at zero: all of the weight lies at the node.
        """
        head = self.deflated[0]
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


def fitted(function: Function, rule: Rule, degree: int) -> np.ndarray:
    """The coefficients `[degree + 1]` of a polynomial in x, by least squares over a quadrature."""
    roots, scale = np.sqrt(rule.weights).ravel(), float(rule.nodes.max()) or 1.0
    powers = (rule.nodes / scale).reshape(-1, 1) ** np.arange(degree + 1)
    values = function(rule.nodes).ravel() * roots
    fit, *_ = np.linalg.lstsq(powers * roots[:, None], values, rcond=1e-12)
    return fit / scale ** np.arange(degree + 1)


def log(x: np.ndarray) -> np.ndarray:
    """log, and 0 at 0, where it only ever multiplies a zero."""
    return np.log(np.where(x > 0, x, 1))


def _summand(order: float, largest: float) -> tuple[Function, Function]:
    """The function of eigenvalues whose sum gives the entropy, and its derivative."""
    if order == 1:
        return lambda x: -x * log(x), lambda x: -log(x) - 1
    slope = _power(order - 1, largest)
    return _power(order, largest), lambda x: order / largest * slope(x)


def _power(order: float, largest: float, floor: float = 0.0) -> Function:
    """(x / largest)^order, zero up to the floor."""

    def power(x: np.ndarray) -> np.ndarray:
        kept = x > floor
        return np.where(kept, (np.where(kept, x, largest) / largest) ** order, 0.0)

    return power


def _of_sum(powers: Estimate, order: float, largest: float) -> Estimate:
    """The Renyi entropy out of sum (lambda / largest)^order, linearised about its mean."""
    if order == 1:
        return powers
    mean = max(powers.value, 1.0)  # The largest eigenvalue alone contributes one.
    value = (math.log(mean) + order * math.log(largest)) / (1 - order)
    return powers.through(value, 1 / ((1 - order) * mean))


class _Top:
    """Sums over the t largest eigenvalues of a measure, for CV eq. 13."""

    def __init__(self, measure: SpectralMeasure, t: int):
        self.measure, self.t = measure, t
        # A sum is least at the right tau (docs/any_n.md): of two candidates the smaller decides.
        tried = {tau: self.sum(lambda x: x, tau) for tau in measure.at_rank(t - 0.5)}
        self.tau, self.kept = min(tried.items(), key=lambda pair: pair[1].value)
        # Lemma A of CV: each of the t gains an equal part of what was cut off.
        self.shift = max(0.0, (1 - self.kept.value) / t)

    def sum(self, g: Function, tau: float | None = None) -> Estimate:
        """The sum of g over the t largest eigenvalues."""
        tau = self.tau if tau is None else tau
        base = float(g(np.array(tau)))
        trace = self.measure.trace(lambda x: np.where(x > tau, g(x) - base, 0.0), (tau, g))
        return dataclasses.replace(trace, per_probe=trace.per_probe + self.t * base)

    def entropy(self, order: float) -> Estimate:
        """The entropy of the t largest, shifted; its errors include that of the shift."""
        shift, largest = self.shift, self.measure.largest + self.shift
        if math.isinf(order):
            kept = self.kept.through(-math.log(largest), 1 / (self.t * largest))
            coupling, rounding = self.measure.largest_error, ROUNDING * self.measure.eps
            return kept + self.measure._constant(0.0, coupling=coupling, rounding=rounding)
        g, slope = _summand(order, largest)
        # An error of the kept sum moves the shift, at this rate. The errors largely cancel.
        rate = -self.sum(lambda x: slope(x + shift)).value / self.t
        total = self.sum(lambda x: g(x + shift) + rate * x)
        total = dataclasses.replace(total, per_probe=total.per_probe - rate * self.kept.value)
        return _of_sum(total, order, largest)

    def derivative(self, order: float) -> Function:
        """dH / d lambda: an eigenvalue moves H by itself, and all t by what it takes from them."""
        slope = self.measure._slope(order, self.shift, self.sum)
        if math.isinf(order):
            mean = -1 / (self.measure.largest + self.shift) / self.t
        else:
            mean = self.sum(slope).value / self.t
        # Between the t-th and the next. At tau, the t-th itself, rounding would decide.
        cut, _ = self.measure.at_rank(self.t)
        return lambda x: np.where(x > cut, slope(x) - mean, 0.0)
