"""The scores: exponentials of entropies, of conditional entropies and of information.

    Vendi(X) = Conditional-Vendi(X|T) * Information-Vendi(X;T)        (CV eq. 8)

at every order: order 1 is Vendi, order 2 is RKE. All are effective numbers of modes.

A call goes straight down: its arrays become `Pairs`, a `Method` computes their entropies, and the
algebra of `entropies` makes scores of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from condvendi_jax.entropies import Entropy, PerScore, PerTerm, log_scores
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._measures import Estimate
from condvendi_jax.spectra._methods import AUTO, Computed, Method


class Estimation(NamedTuple):
    """How far estimated scores may be from what all eigenvalues would give.

    Not the noise of another sample of data: for that, see `uncertainty`.

    Attributes:
      standard_errors: over the random probes, in effective numbers of modes.
      intervals: (low, high) at 95% confidence, which also hold what is systematic.
    """

    standard_errors: PerScore
    intervals: PerScore


class Scores:
    """The scores of three entropies, numbers or arrays of one shape: an algebra, no state."""

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array

    @property
    def log_scores(self) -> PerScore:
        """H(X), H(X|T) and I(X;T) in nats."""
        return log_scores(self.entropy_outputs, self.entropy_prompts, self.entropy_joint)

    @property
    def scores(self) -> PerScore:
        """Vendi, Conditional- and Information-Vendi (or -RKE), effective numbers of modes."""
        return _scores(self.entropy_outputs, self.entropy_prompts, self.entropy_joint)

    @property
    def vendi(self) -> jax.Array:
        """exp H(X): Vendi, or RKE at order 2. The product of the next two."""
        return jnp.exp(self.log_scores.vendi)

    @property
    def conditional(self) -> jax.Array:
        """exp(H(X, T) - H(T)): the diversity that the model adds (CV eq. 6 and 9)."""
        return jnp.exp(self.log_scores.conditional)

    @property
    def information(self) -> jax.Array:
        """exp(H(X) + H(T) - H(X, T)): the diversity owed to the prompt (CV eq. 7 and 10)."""
        return jnp.exp(self.log_scores.information)


@jax.jit
def _scores(entropy_x: jax.Array, entropy_t: jax.Array, entropy_joint: jax.Array) -> PerScore:
    """One program for what would be five."""
    return PerScore(*map(jnp.exp, log_scores(entropy_x, entropy_t, entropy_joint)))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("entropy_outputs", "entropy_prompts", "entropy_joint", "estimation"),
    meta_fields=("order", "truncation", "n", "dtype", "duplicates", "method"),
)
@dataclasses.dataclass(frozen=True)
class Decomposition(Scores):
    """H(X) = H(X|T) + I(X;T), and the scores that are the exponentials of its terms.

    Without prompts it is that of one and the same prompt for all outputs: H(T) = 0, the conditional
    score is Vendi itself, and the information is 1.

    Attributes:
      entropy_outputs: H(X) in nats.
      entropy_prompts: H(T) in nats.
      entropy_joint: H(X, T) in nats.
      order: the order of all three entropies.
      truncation: how many eigenvalues all three keep, or None.
      n: the number of pairs.
      dtype: the name of the dtype they were computed in.
      duplicates: how many pairs repeat an earlier one, where that was asked for.
      method: how it was computed: frobenius, or the name of the method.
      estimation: standard errors and intervals where it was estimated, None where it is exact.
    """

    entropy_outputs: jax.Array
    entropy_prompts: jax.Array
    entropy_joint: jax.Array
    order: float
    truncation: int | None
    n: int
    dtype: str
    duplicates: int | None = None
    method: str = "exact"
    estimation: Estimation | None = None

    @classmethod
    def of(
        cls, computed: Computed, entropy: Entropy, *, n: int, duplicates: int | None = None
    ) -> Decomposition:
        """The decomposition of computed entropies, of pairs or of outputs alone."""
        values = computed.values
        if values.prompts is None:
            values = PerTerm(values.outputs, jnp.zeros_like(values.outputs), values.outputs)
        return cls(
            *values,
            order=entropy.order,
            truncation=entropy.truncation,
            n=n,
            dtype=jnp.dtype(values.outputs.dtype).name,
            duplicates=duplicates,
            method=computed.method,
            estimation=None if computed.estimates is None else _estimation(computed.estimates),
        )

    @property
    def intervals(self) -> PerScore:
        """(low, high) of each score at 95%, of the estimate alone; equal where it is exact."""
        if self.estimation is None:
            return PerScore(*((score, score) for score in self.scores))
        return self.estimation.intervals


@takes_pairs
def decompose(
    pairs: Pairs,
    *,
    order: float = 1,
    truncation: int | None = None,
    method: Method = AUTO,
    count_duplicates: bool = False,
) -> Decomposition:
    """Splits the diversity of outputs into what the model adds and what the prompts bring.

    Args:
      pairs: the data, or what makes it: outputs, prompts, `output_kernel=`, `prompt_kernel=` and
        `mesh=` as for `Pairs`. Without prompts there is H(X) alone: Vendi.
      order: the Renyi order in (0, inf]; 1 gives Vendi, 2 gives RKE, in one streamed pass.
      truncation: how many eigenvalues every entropy keeps (CV eq. 13); all where None.
      method: how eigenvalues are computed: `Auto` (with a key, estimates where all of them would
        take long), `Exact`, `Stored` or `MatrixFree`. Order 2 without truncation needs none.
        Or finite features in the place of the kernels, at any order: `RandomFeatures`, `Nystroem`.
      count_duplicates: also count the pairs that repeat an earlier one exactly; not inside jit.

    Returns:
      A `Decomposition`: three entropies in nats and the scores as effective numbers of modes, with
      how they were computed and, where they were estimated, standard errors and intervals. In
      float32 the orders other than 2 carry four to five digits; enable x64 for more.

      Differentiable in the arrays and the bandwidths. Where the scores are estimated the gradient
      is too, from the same probes, which is not available inside jit.

    Raises:
      TypeError, ValueError: as `Pairs`; an argument is out of range, a key is needed and missing,
        or the matrices that the method needs do not fit in memory.

    References:
      CV eq. 5-10 and 13; for a general order CV-early eq. 5.

    Examples:
      Two prompts; the model answers each with one of two outputs of its own:

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> prompts = np.repeat([[0.0], [1.0]], 8, axis=0).astype(np.float32)
      >>> outputs = np.tile([[0.0], [1.0]], (8, 1)).astype(np.float32) + 2 * prompts
      >>> sharp = cv.Gaussian(0.1)
      >>> found = cv.decompose(outputs, prompts, output_kernel=sharp, prompt_kernel=sharp)
      >>> print(f"{found.vendi:.2f} = {found.conditional:.2f} x {found.information:.2f}")
      4.00 = 2.00 x 2.00
    """
    entropy, (computed,) = _computed(pairs, order, truncation, method)
    duplicates = pairs.duplicates() if count_duplicates else None
    return Decomposition.of(computed, entropy, n=pairs.n, duplicates=duplicates)


def _computed(
    pairs: Pairs,
    order: float,
    truncation: int | None,
    method: Method,
    terms: methods.Terms = methods.ALL_TERMS,
) -> tuple[Entropy, list[Computed]]:
    """The entropy that was asked for, and its terms."""
    if terms == methods.GIVEN_PROMPTS and not pairs.paired:
        raise ValueError("prompts: expected embeddings [n, d], received None.")
    entropy = Entropy(order=order, truncation=truncation).clamped(pairs.n)
    return entropy, methods.compute(pairs, (entropy,), method, terms)


def _estimation(estimates: PerTerm) -> Estimation:
    """Standard errors and intervals of the scores."""
    if estimates.prompts is None:
        (own,) = (_with_interval(estimates.outputs),)
        both = PerScore(own, own, (0.0, (1.0, 1.0)))
    else:
        both = PerScore(*map(_with_interval, log_scores(*estimates)))
    return Estimation(
        PerScore(*(error for error, _ in both)), PerScore(*(ends for _, ends in both))
    )


def _with_interval(log: Estimate) -> tuple[float, tuple[float, float]]:
    """The standard error and the interval of the exponential."""
    low, high = map(math.exp, log.interval)
    return math.exp(log.value) * log.standard_error, (low, high)


@takes_pairs
def conditional_vendi(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> jax.Array:
    """exp H(X|T), the model-induced diversity (CV eq. 6; truncated, eq. 13).

    Args, Raises: as `decompose`, of which this is one score; H(X) is not computed. Where it is
      estimated, `decompose` also gives its interval.

    Returns:
      A scalar, the effective number of modes that the model adds, in [1, n]; a truncated score can
      fall below 1.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.repeat(np.arange(6, dtype=np.float32), 2)[:, None]
      >>> prompts = np.repeat(outputs[::10], 6, axis=0)
      >>> kernels = dict(output_kernel=cv.Gaussian(0.1), prompt_kernel=cv.Gaussian(0.1))
      >>> print(f"{cv.conditional_vendi(outputs, prompts, **kernels):.2f}")
      3.00
    """
    _, (computed,) = _computed(pairs, order, truncation, method, methods.GIVEN_PROMPTS)
    return jnp.exp(log_scores(*computed.values).conditional)


@takes_pairs
def information_vendi(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> jax.Array:
    """exp I(X;T), the prompt-induced diversity (CV eq. 7).

    Args, Raises: as `decompose`, of which this is one score.

    Returns:
      A scalar, an effective number of modes. At orders other than 1 it may fall below 1.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.repeat(np.arange(6, dtype=np.float32), 2)[:, None]
      >>> prompts = np.repeat(outputs[::10], 6, axis=0)
      >>> kernels = dict(output_kernel=cv.Gaussian(0.1), prompt_kernel=cv.Gaussian(0.1))
      >>> print(f"{cv.information_vendi(outputs, prompts, **kernels):.2f}")
      2.00
    """
    _, (computed,) = _computed(pairs, order, truncation, method)
    if not pairs.paired:
        raise ValueError("prompts: expected embeddings [n, d], received None.")
    return jnp.exp(log_scores(*computed.values).information)


@takes_pairs
def conditional_rke(pairs: Pairs) -> jax.Array:
    """||K_T||_F^2 / ||K_X o K_T||_F^2, `conditional_vendi` at order 2 (CV eq. 9 and 11).

    Args, Returns, Raises: as `conditional_vendi`; exact at any n.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.repeat(np.arange(6, dtype=np.float32), 2)[:, None]
      >>> prompts = np.repeat(outputs[::10], 6, axis=0)
      >>> kernels = dict(output_kernel=cv.Gaussian(0.1), prompt_kernel=cv.Gaussian(0.1))
      >>> print(f"{cv.conditional_rke(outputs, prompts, **kernels):.2f}")
      3.00
    """
    return conditional_vendi(pairs, order=2)


@takes_pairs
def information_rke(pairs: Pairs) -> jax.Array:
    """n^2 ||K_X o K_T||^2 / (||K_X||^2 ||K_T||^2), `information_vendi` at order 2 (CV eq. 11).

    Args, Returns, Raises: as `information_vendi`; exact at any n.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.repeat(np.arange(6, dtype=np.float32), 2)[:, None]
      >>> prompts = np.repeat(outputs[::10], 6, axis=0)
      >>> kernels = dict(output_kernel=cv.Gaussian(0.1), prompt_kernel=cv.Gaussian(0.1))
      >>> print(f"{cv.information_rke(outputs, prompts, **kernels):.2f}")
      2.00
    """
    return information_vendi(pairs, order=2)


@takes_pairs
def vendi(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> jax.Array:
    """exp H(X), the unconditional Vendi score (CV eq. 3).

    Args, Raises: as `decompose`, of which this is one score; prompts have no part in it. `kernel=`
      is short for `output_kernel=`.

    Returns:
      A scalar, the effective number of modes, in [1, n]. Where it is estimated, `decompose` gives
      the same number and how far it may be off.

    Examples:
      Frequencies of 1/2, 1/4 and 1/4: exp H = 2^1.5.

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.array([[0.0], [0.0], [1.0], [2.0]], np.float32)
      >>> print(f"{cv.vendi(outputs, kernel=cv.Gaussian(0.1)):.3f}")
      2.828
    """
    _, (computed,) = _computed(pairs, order, truncation, method, methods.OUTPUTS)
    return jnp.exp(computed.values.outputs)


@takes_pairs
def rke(pairs: Pairs) -> jax.Array:
    """||K / n||_F^-2, the Renyi kernel entropy score: `vendi` at order 2 (CV eq. 4).

    Args, Returns, Raises: as `vendi`; exact at any n.

    Examples:
      Frequencies of 1/2, 1/4 and 1/4: 1 / (1/4 + 1/16 + 1/16).

      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> outputs = np.array([[0.0], [0.0], [1.0], [2.0]], np.float32)
      >>> print(f"{cv.rke(outputs, kernel=cv.Gaussian(0.1)):.3f}")
      2.667
    """
    return vendi(pairs, order=2)
