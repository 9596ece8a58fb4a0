"""What every row contributes to the scores: which outputs are redundant, and which prompts."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore, PerTerm, log_scores, of_pairs
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.scores._decompose import Decomposition, decompose
from condvendi_jax.spectra import _influences
from condvendi_jax.spectra import _methods as methods


@dataclasses.dataclass(frozen=True)
class Contributions:
    """What every row contributes to the scores, in effective numbers of modes.

    Attributes:
      decomposition: the scores of all rows.
      influences: of each row on each score, NumPy arrays `[n]` of mean zero: the derivative of the
        score in the weight of the row, while the weights of the other rows shrink in proportion. A
        negative one marks a redundant row. Without prompts, all information is 1 and has none.
      left_out: of each row, `[n]` for each score: the score of all rows less the score without the
        row, exactly; at order 2 without truncation, None elsewhere. Its mean is not zero, because a
        score changes with n as well.
    """

    decomposition: Decomposition
    influences: PerScore
    left_out: PerScore | None

    def by(self, labels: ArrayLike) -> dict[Any, PerScore]:
        """What the rows of each label contribute: the sums of influences / n, in effective modes.

        All labels together contribute zero. To first order a score falls by the contribution of a
        label, divided by the share of the other rows, if the rows of the label leave.

        Args:
          labels: of prompts, models or themes, `[n]`, all numbers or all strings.

        Returns:
          The contributions by label, in the order of the labels.

        Raises:
          TypeError, ValueError: there are not n labels, or they are of several kinds.
        """
        n = self.decomposition.n
        names, numbers = validation.check_labels(labels, n, name="labels")
        sums = [np.bincount(numbers, of_rows) / n for of_rows in self.influences]
        by_label = zip(names.tolist(), *sums, strict=True)
        return {name: PerScore(*map(float, of)) for name, *of in by_label}


@validation.outside_transformations
@takes_pairs
def contributions(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None
) -> Contributions:
    """The influence of every row on the three scores of `decompose`.

    If c_k is the derivative of the entropy in the eigenvalue lambda_k of A = K / n, and u_k its
    eigenvector, row i has the influence n sum_k c_k lambda_k u_ki^2 - sum_k c_k lambda_k on the
    entropy (docs/contributions.md). At order 2 row sums of squared kernels give it, in one pass
    over the pairs at any n; other orders and truncations take all eigenvectors, O(n^3) time.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      order, truncation: as `decompose`.

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
    near = pairs.gathered()
    entropy = Entropy(order=order, truncation=truncation).clamped(near.n)
    whole = decompose(near, order=entropy.order, truncation=entropy.truncation)
    left_out = None
    if entropy.needs_spectrum:
        methods.check(near, methods.Exact())
        grams = methods.grams_of_terms(near)
        of_terms = [_influences.of_gram(gram, entropy) for gram in grams.values()]
    else:
        sums = pairwise.row_norms(*methods.factors_of(near))
        of_terms = [*_influences.of_row_sums(sums)]
        left_out = _left_out(whole.scores, sums)
    logs = log_scores(*of_pairs(PerTerm(*of_terms, *(None,) * (3 - len(of_terms)))))
    influences = [np.asarray(score * of) for score, of in zip(whole.scores, logs, strict=True)]
    return Contributions(whole, PerScore(*influences), left_out)


def _left_out(scores: PerScore, sums: jax.Array) -> PerScore:
    """Every score less that without each row, by the row sums of squared kernels `[terms, n]`.

    NaN where n = 1, since nothing is left without the row.
    """
    n = sums.shape[1]
    without = pairwise.pairwise_sum(sums)[:, None] - 2 * sums + 1
    logs = log_scores(*of_pairs(methods.order_two_entropies(without / (n - 1) / (n - 1))))
    changes = [np.asarray(s - jnp.exp(log)) for s, log in zip(scores, logs, strict=True)]
    return PerScore(*changes) if n > 1 else PerScore(*np.full((3, 1), np.nan))
