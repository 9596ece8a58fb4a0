"""H(X) = H(X|T) + I(X;T): the three entropies of pairs, and the scores, which are exponentials."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax.base.checks import is_concrete
from condvendi_jax.base.result import Result, plain
from condvendi_jax.entropies.entropy import Entropy, PerScore, PerTerm, log_scores, of_pairs


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
        return _scores(*self.entropies)

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


@jax.jit
def _scores(entropy_x: jax.Array, entropy_t: jax.Array, entropy_joint: jax.Array) -> PerScore:
    return log_scores(entropy_x, entropy_t, entropy_joint).map(jnp.exp)


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
    def of(
        cls,
        computed: Computed,
        entropy: Entropy,
        *,
        n: int,
        rounding: PerScore | None = None,
        unbiased: bool = False,
    ) -> Decomposition:
        """The decomposition of computed entropies; of H(X) alone where there are no prompts."""
        values = of_pairs(computed.values)
        return cls(
            *values,
            order=entropy.order,
            truncation=entropy.truncation,
            n=n,
            dtype=jnp.dtype(values.outputs.dtype).name,
            method=computed.method,
            estimation=None if computed.estimates is None else _estimation(computed.estimates),
            rounding=rounding,
            unbiased=unbiased,
        )

    def as_dict(self) -> dict[str, Any]:
        """The scores and all attributes as plain data."""
        return {**plain(self.scores), **super().as_dict()}

    def parts(self) -> list[str]:
        """The order, and the scores."""
        scores = ", ".join(
            f"{name} {np.array2string(np.asarray(value), precision=4)}"
            if is_concrete(value)
            else f"{name} {value}"
            for name, value in self.scores._asdict().items()
        )
        return [f"order {self.order:g}, n = {self.n:,}: {scores}"]

    @property
    def intervals(self) -> PerScore:
        """(low, high) of each score at 95%, for estimation and rounding; equal at order 2."""
        exact = self.scores.map(lambda score: (score, score))
        ends = self.estimation.intervals if self.estimation else exact
        moved = (self.rounding or PerScore(0.0, 0.0, 0.0)).map(math.exp)
        return ends.map(lambda interval, by: (interval[0] / by, interval[1] * by), moved)


def _estimation(estimates: PerTerm) -> Estimation:
    """The errors of the scores from those of the entropies."""
    if estimates.prompts is None:
        vendi = _with_interval(estimates.outputs)
        scores = PerScore(vendi, vendi, information=(0.0, (1.0, 1.0)))
    else:
        scores = log_scores(*estimates).map(_with_interval)
    return Estimation(*(scores.map(operator.itemgetter(part)) for part in (0, 1)))


def _with_interval(log: Any) -> tuple[float, tuple[float, float]]:
    """The standard error and the interval of the exponential."""
    low, high = (math.exp(min(end, 700.0)) for end in log.interval)  # Below the overflow.
    return math.exp(log.value) * log.standard_error, (low, high)
