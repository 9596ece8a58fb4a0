"""Entropies, functions Gram -> scalar in nats, and the scores that are their exponentials.

Of pairs, H(X) = H(X|T) + I(X;T).
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, devices
from condvendi_jax.base.result import Result, plain
from condvendi_jax.entropies import eigenvalues

__all__ = ["Computed", "Decomposition", "Entropy", "Estimation", "PerScore", "PerTerm", "Scores"]
__all__ += ["log_scores", "of_pairs", "of_squared_norm", "scores_of", "von_neumann"]

# Within this distance of order 1 the factor 1 / (1 - order) magnifies rounding: see `_renyi`.
NEAR_ONE = 0.1
# Beyond this order H differs from its limit by less than log(n) / order: no digit of float64.
_INFINITE = 1e17


@dataclasses.dataclass(frozen=True)
class Entropy:
    """The Renyi entropy of a Gram's spectrum, of all eigenvalues or of the leading ones.

    Attributes:
      order: the Renyi order in (0, inf]; 1 is the von Neumann entropy (CV eq. 2), 2 the order of
        RKE (CV eq. 4), infinity the min-entropy. At orders below 1, eigenvalues up to 16 eps of the
        largest count as zero.
      truncation: how many leading eigenvalues to keep and shift to sum to one (CV eq. 13), or None.
    """

    order: float = 1.0
    truncation: int | None = None

    def __post_init__(self) -> None:
        truncation = checks.check_truncation(self.truncation)
        vars(self).update(order=checks.check_order(self.order), truncation=truncation)

    @property
    def needs_spectrum(self) -> bool:
        """Whether eigenvalues are needed; order 2 without truncation is a Frobenius norm."""
        return self.order != 2 or self.truncation is not None

    def clamped(self, n: int, most: int = 0) -> Self:
        """The same entropy for n points, or for several sets of n to `most` points.

        Without a truncation that keeps every eigenvalue; one above n becomes n, with a warning.
        """
        fitted, every = self.fitted(n), (self.truncation or 0) >= max(n, most)
        if fitted is not self:
            kept = "all eigenvalues" if every else f"{n} eigenvalues of each"
            checks.warn(f"truncation {self.truncation} exceeds n = {n}: {kept} are kept.")
        return dataclasses.replace(self, truncation=None) if every else fitted

    def fitted(self, n: int) -> Self:
        """The same entropy for n points: a truncation above n becomes n."""
        if self.truncation is None or self.truncation <= n:
            return self
        return dataclasses.replace(self, truncation=n)

    def __call__(self, gram: Any) -> jax.Array:
        """The entropy of K / n, an `Operator`: a scalar in nats between 0 and log n."""
        if not self.needs_spectrum:
            return of_squared_norm(gram.squared_frobenius_norm())
        return self.clamped(gram.n).of_spectrum(gram.eigenvalues())

    def of_spectrum(self, values: Any) -> Any:
        """The entropy of eigenvalues `[n]` of sum one, at least `truncation` of them."""
        if self.truncation is not None:
            values = eigenvalues.truncate(values, self.truncation)
        if self.order < 1:
            floor = eigenvalues.NOISE_FLOOR * jnp.finfo(values.dtype).eps * values.max()
            # A NaN marks a spectrum that was refused, and stays.
            values = devices.namespace(values).where(values <= floor, 0, values)
        entropy = devices.namespace(values).maximum(_renyi(values, self.order), 0)
        eigenvalues.check_spectra(entropy)
        return entropy

    def slopes(self, values: np.ndarray) -> np.ndarray:
        """The derivative of `of_spectrum` in each of descending eigenvalues `[n]`, zero at zero."""
        if self.truncation is not None:
            leading = dataclasses.replace(self, truncation=None)
            kept = leading.slopes(eigenvalues.truncate(values, self.truncation))
            slopes = np.pad(kept - kept.mean(), (0, values.size - kept.size))
            tied = eigenvalues.tied_across(values, self.truncation)
            return np.where(tied, slopes[tied].mean(), slopes)
        largest, eps = values[0], np.finfo(values.dtype).eps
        if self.order > _INFINITE:
            same = values >= largest * (1 - 8 * eps)
            return np.where(same, -1 / np.sum(values, where=same), 0)
        kept = values > (eigenvalues.NOISE_FLOOR * eps * largest if self.order < 1 else 0)
        ratios = np.where(kept, values / largest, 1)  # Whose powers stay in range.
        if self.order == 1:
            return np.where(kept, -np.log(ratios * largest) - 1, 0)
        powers = np.where(kept, ratios ** (self.order - 1), 0)
        return self.order / (1 - self.order) * powers / np.sum(powers * values)


von_neumann = Entropy()
"""The von Neumann entropy: order 1, without truncation (CV eq. 2)."""


class PerTerm(NamedTuple):
    """One value for each entropy of a decomposition; None where there is none."""

    outputs: Any  # H(X)
    prompts: Any  # H(T)
    joint: Any  # H(X, T)


def of_pairs(values: PerTerm) -> PerTerm:
    """H(X), H(T) and H(X, T): outputs alone count as answers to one prompt, so that H(T) = 0."""
    if values.prompts is not None:
        return values
    return PerTerm(values.outputs, 0 * values.outputs, values.outputs)


class PerScore(NamedTuple):
    """One value for each of the three scores of a decomposition."""

    vendi: Any
    conditional: Any
    information: Any

    def map(self, function: Callable[..., Any], *others: Self) -> Self:
        """A function of the value of each score, here and in others."""
        return type(self)(*map(function, self, *others))


def log_scores(entropy_x: Any, entropy_t: Any, entropy_joint: Any) -> PerScore:
    """H(X), H(X|T) and I(X;T) in nats (CV eq. 5, 7); None if an entropy that it needs is None."""
    if entropy_t is None or entropy_joint is None:
        return PerScore(entropy_x, None, None)
    information = None if entropy_x is None else entropy_x + entropy_t - entropy_joint
    return PerScore(entropy_x, entropy_joint - entropy_t, information)


def of_squared_norm(norm: jax.Array) -> jax.Array:
    """The entropy of order 2 in nats, -log ||K / n||_F^2 (CV eq. 4)."""
    xp = devices.namespace(norm)
    return xp.maximum(-xp.log(norm), 0)  # Of a constant Gram it may be an ulp below.


def _renyi(p: jax.Array, order: float) -> jax.Array:
    """The Renyi entropy of weights p `[n]`, of sum one; zeros and their gradients add nothing."""
    xp = devices.namespace(p)
    positive = ~(p <= 0)  # True for a NaN, which stays a NaN.
    log_p = xp.log(xp.where(positive, p, 1))
    if order == 1:
        return -xp.sum(p * log_p)
    if order > _INFINITE:
        # The slope of `max` looks for the largest again, which a compiler may round otherwise.
        largest = p >= devices.fixed(xp.max(p)) * (1 - 8 * jnp.finfo(p.dtype).eps)
        return -xp.log(xp.mean(p, where=largest))
    if abs(order - 1) < NEAR_ONE:
        # sum p^order - 1 = sum p (p^(order - 1) - 1), without the cancellation.
        return xp.log1p(xp.sum(p * xp.expm1((order - 1) * log_p))) / (1 - order)
    largest = devices.fixed(xp.max(xp.where(positive, log_p, -xp.inf)))  # Cancels.
    powers = xp.where(positive, xp.exp(order * (log_p - largest)), 0)
    return (order * largest + xp.log(xp.sum(powers))) / (1 - order)


class Computed(NamedTuple):
    """The entropies of one order and truncation, in nats."""

    values: PerTerm  # None for terms that were not computed.
    estimates: PerTerm | None  # The `Estimate` of each term, where values are not exact.
    method: str  # 'frobenius', or the name of a method.
    spectra: PerTerm | None = None  # Eigenvalues or a `SpectralMeasure` of each term, of Grams.


class Estimation(NamedTuple):
    """How far estimated scores may be from the exact scores, in effective numbers of modes."""

    standard_errors: PerScore  # Over the random probes.
    intervals: PerScore  # (low, high) at 95%, which also cover systematic errors.


class Scores:
    """Scores as functions of three entropies, numbers or arrays of one shape."""

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array

    @property
    def entropies(self) -> PerTerm:
        """H(X), H(T) and H(X, T) in nats."""
        return PerTerm(self.entropy_outputs, self.entropy_prompts, self.entropy_joint)

    @property
    def log_scores(self) -> PerScore:
        """H(X), H(X|T) and I(X;T) in nats."""
        return log_scores(*self.entropies)

    @property
    def scores(self) -> PerScore:
        """Vendi, Conditional- and Information-Vendi (or -RKE), effective numbers of modes."""
        return scores_of(*self.entropies)

    @property
    def vendi(self) -> jax.Array:
        """exp H(X): Vendi, or RKE at order 2; the conditional score times the information."""
        return self.scores.vendi

    @property
    def conditional(self) -> jax.Array:
        """exp(H(X, T) - H(T)): the diversity that the model adds (CV eq. 6 and 9)."""
        return self.scores.conditional

    @property
    def information(self) -> jax.Array:
        """exp(H(X) + H(T) - H(X, T)): the diversity due to the prompts (CV eq. 7 and 10)."""
        return self.scores.information


@functools.partial(devices.compiled_elsewhere, of_jax=True)
def scores_of(*entropies: Any) -> PerScore:
    """The exponentials of the `log_scores` of H(X), H(T) and H(X, T), arrays of JAX."""
    return jax.tree.map(lambda log: devices.namespace(log).exp(log), log_scores(*entropies))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("entropy_outputs", "entropy_prompts", "entropy_joint", "estimation", "rounding"),
    meta_fields=("order", "truncation", "n", "dtype", "method", "unbiased"),
)
@dataclasses.dataclass(frozen=True, repr=False)
class Decomposition(Result, Scores):
    """H(X) = H(X|T) + I(X;T), and the scores, which are the exponentials of its terms.

    Without prompts, all outputs count as answers to the same prompt: H(T) = 0, the conditional
    score is Vendi itself, and the information is 1.

    Attributes:
      entropy_outputs, entropy_prompts, entropy_joint: H(X), H(T) and H(X, T) in nats.
      order, truncation: of all three entropies; the number of eigenvalues that they keep, or None.
      n, dtype: the number of pairs, and the name of the dtype of the computation.
      method: 'frobenius', or the name of the method.
      estimation: standard errors and intervals of estimated scores, None for exact ones.
      rounding: the largest change of the logarithm of each score by rounding of kernel values and
        eigenvalues; None at order 2 and in transformations.
      unbiased: whether the pairs of a row with itself are left out, at order 2.
    """

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    order: float
    truncation: int | None
    n: int
    dtype: str
    method: str = "exact"
    estimation: Estimation | None = None
    rounding: PerScore | None = None
    unbiased: bool = False

    @classmethod
    def of(cls, computed: Computed, entropy: Entropy, *, n: int, **more: Any) -> Self:
        """The decomposition of computed entropies; `more` are `rounding` and `unbiased`."""
        values = of_pairs(computed.values)
        dtype = jnp.dtype(values.outputs.dtype).name
        estimation, estimates = None, computed.estimates
        if estimates is not None:
            scores = log_scores(*estimates)
            if estimates.prompts is None:
                scores = PerScore(estimates.outputs, estimates.outputs, None)
            ends = scores.map(_with_interval)
            estimation = Estimation(*(ends.map(operator.itemgetter(part)) for part in (0, 1)))
        how = dtype, computed.method, estimation
        return cls(*values, entropy.order, entropy.truncation, n, *how, **more)

    def as_dict(self) -> dict[str, Any]:
        """The scores and all attributes as plain data."""
        return {**plain(self.scores), **super().as_dict()}

    def parts(self) -> list[str]:
        """The order, and the scores."""
        scores = []
        for name, value in self.scores._asdict().items():
            known = checks.is_concrete(value)
            words = np.array2string(np.asarray(value), precision=4) if known else value
            scores.append(f"{name} {words}")
        return [f"order {self.order:g}, n = {self.n:,}: {', '.join(scores)}"]

    @property
    def intervals(self) -> PerScore:
        """(low, high) of each score at 95%, for estimation and rounding; equal at order 2."""
        exact = self.scores.map(lambda score: (score, score))
        ends = self.estimation.intervals if self.estimation else exact
        moved = (self.rounding or PerScore(0.0, 0.0, 0.0)).map(math.exp)
        return ends.map(lambda interval, by: (interval[0] / by, interval[1] * by), moved)


def _with_interval(log: Any) -> tuple[float, tuple[float, float]]:
    """The standard error and the interval of the exponential; of one where there is no estimate."""
    if log is None:
        return 0.0, (1.0, 1.0)
    low, high = (math.exp(min(end, 700.0)) for end in log.interval)  # Below the overflow.
    return math.exp(log.value) * log.standard_error, (low, high)
