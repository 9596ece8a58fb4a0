"""What every row contributes to the scores: which outputs are redundant, and which prompts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, log_scores
from condvendi_jax.inference._infinitesimal import of_scores
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Method


@dataclasses.dataclass(frozen=True)
class Contributions:
    """What every row contributes to the scores, in effective numbers of modes.

    Attributes:
      decomposition: the scores of all rows.
      influences: of each row on each score, NumPy arrays `[n]` of weighted mean zero: the
        derivative of the score in the weight of the row, while the weights of the other rows shrink
        in proportion. A negative one marks a redundant row. Without prompts, all information is 1
        and has none. Of a row of weight zero, NaN unless the order is 2.
      left_out: of each row, `[n]` for each score: the score of all rows less the score without the
        row, exactly; at order 2 without truncation, None elsewhere. Its mean is not zero, because a
        score changes with n as well.
      shares: the weight of each row, `[n]`, of sum one.
    """

    decomposition: Decomposition
    influences: PerScore
    left_out: PerScore | None
    shares: np.ndarray

    def by(self, labels: ArrayLike) -> dict[Any, PerScore]:
        """What the rows of each label contribute: the sums of influences times shares.

        In effective modes. All labels together contribute zero. To first order, a score falls by
        the contribution of a label, divided by the share of the other rows, if its rows leave.

        Args:
          labels: of prompts, models or themes, `[n]`, all numbers or all strings.

        Returns:
          The contributions by label, in the order of the labels.

        Raises:
          TypeError, ValueError: there are not n labels, or they are of several kinds.
        """
        n = self.decomposition.n
        names, numbers = validation.check_labels(labels, n, name="labels")
        weighed = [np.where(self.shares > 0, of * self.shares, 0) for of in self.influences]
        sums = [np.bincount(numbers, of_rows) for of_rows in weighed]
        by_label = zip(names.tolist(), *sums, strict=True)
        return {name: PerScore(*map(float, of)) for name, *of in by_label}


@validation.outside_transformations
@takes_pairs
def contributions(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> Contributions:
    """The influence of every row on the three scores of `decompose`.

    If c_k is the derivative of the entropy in the eigenvalue lambda_k of A = K / n, and u_k its
    eigenvector, row i has the influence n sum_k c_k lambda_k u_ki^2 - sum_k c_k lambda_k on the
    entropy (docs/contributions.md). At order 2 row sums of squared kernels give it, in one pass
    over the pairs at any n; other orders and truncations take all eigenvectors, O(n^3) time, or
    estimates of a method.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      order, truncation, method: as `decompose`.

    Returns:
      `Contributions`: arrays `[n]`, in effective numbers of modes.

    Raises:
      TypeError, ValueError: as `decompose`; or n x n arrays do not fit in memory.

    Examples:
      Three outputs are the same, and the fourth stands alone. RKE is 1.6; without one of the
      three it is 9 / 5, without the fourth it is 1:

      >>> import condvendi_jax as cv
      >>> found = cv.contributions([[0], [0], [0], [1]], kernel=cv.Gaussian(0.1), order=2)
      >>> print(found.influences.vendi.round(2))
      [-0.64 -0.64 -0.64  1.92]
      >>> print(found.left_out.vendi.round(2))
      [-0.2 -0.2 -0.2  0.6]
    """
    entropy = Entropy(order=order, truncation=truncation).clamped(pairs.n)
    leaving, rows = None, np.arange(pairs.n)
    if not entropy.needs_spectrum:
        leaving = [methods.Leaving(rows, rows[:, None], pairs.shares[:, None])]
    sloped = methods.compute_sloped(pairs, entropy, method, leaving)
    whole = Decomposition.of(sloped.computed, entropy, n=pairs.n, points=pairs)
    influences = of_scores(
        whole, PerTerm(*(None if of is None else of.mean(axis=0) for of in sloped.of_rows))
    )
    left_out = None
    if sloped.computed.method == methods.FROBENIUS and sloped.of_deletions is not None:
        left_out = _left_out(whole, sloped.of_deletions, pairs.shares)
    return Contributions(whole, influences, left_out, pairs.shares)


def _left_out(whole: Decomposition, lost: PerTerm, shares: np.ndarray) -> PerScore:
    """Every score less that without each row, from what the entropies lose (`methods.Sloped`).

    NaN where nothing is left without the row.
    """
    left = np.where(shares < 1, 1 - shares, np.nan)
    logs = [np.asarray(of) * shares / left for of in lost if of is not None]
    if len(logs) == 1:
        logs = [logs[0], np.zeros_like(logs[0]), logs[0]]
    changes = log_scores(*logs)
    return PerScore(
        *(-float(of) * np.expm1(-by) for of, by in zip(whole.scores, changes, strict=True))
    )
