"""The contribution of every row to the scores, to find redundant outputs and prompts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks, labelling
from condvendi_jax.base.result import Result
from condvendi_jax.base.tables import Table
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.pairs import Pairs, takes_pairs
from condvendi_jax.entropies import Decomposition, Entropy, PerScore
from condvendi_jax.inference.errors import row_influences
from condvendi_jax.results.evaluation import score_name, score_names
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method


@dataclasses.dataclass(frozen=True, repr=False)
class Contributions(Result):
    """The contribution of every row to the scores, in effective numbers of modes.

    Attributes:
      decomposition: the scores of all rows.
      influences: of each row on each score, NumPy arrays `[n]` of weighted mean zero: the
        derivative of the score in the weight of the row, while the weights of the other rows shrink
        in proportion. A negative one marks a redundant row. Without prompts, all information is 1
        and has none. Of a row of weight zero, NaN unless the order is 2.
      shares: the weight of each row, `[n]`, of sum one.
      bandwidths: of outputs and prompts, and where they come from.
    """

    decomposition: Decomposition
    influences: PerScore
    shares: np.ndarray
    bandwidths: Mapping[str, RuledBandwidth]

    def lines(self) -> list[dict[str, Any]]:
        """A line for each row."""
        influences = self.influences._asdict().items()
        columns = {"share": self.shares} | {f"influence_on_{name}": x for name, x in influences}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [{"row": k, **dict(zip(columns, row, strict=True))} for k, row in enumerate(rows)]

    def parts(self) -> list[str | Table]:
        """The rows with the smallest and the largest influence on the conditional score."""
        order = np.argsort(self.influences.conditional, kind="stable").tolist()
        shown = order if len(order) <= 6 else [*order[:3], *order[-3:]]
        whole, names = self.decomposition, score_names(self.bandwidths)
        titles = {name: score_name(name, whole.order, whole.truncation) for name in names}
        scores = [getattr(self.influences, name) for name in names]
        rows = [[f"{k}", *(f"{score[k]:+.3g}" for score in scores)] for k in shown]
        main = titles.get("conditional") or titles["vendi"]
        return [
            f"{whole.n:,} outputs, the most redundant first, by their influence on {main}:",
            Table(["row", *titles.values()], rows),
        ]

    def by(self, labels: ArrayLike) -> dict[Any, PerScore]:
        """The contribution of the rows of each label: the sum of influences times shares.

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
        names, numbers = labelling.check_labels(labels, n, name="labels")
        weighed = [np.where(self.shares > 0, values * self.shares, 0) for values in self.influences]
        sums = [np.bincount(numbers, of_rows) for of_rows in weighed]
        scores = (PerScore(*map(float, column)) for column in zip(*sums, strict=True))
        return labelling.by_label(names, scores)


@checks.outside_transformations
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
      order, truncation, method: see `decompose`.

    Returns:
      `Contributions`: arrays `[n]`, in effective numbers of modes.

    Raises:
      TypeError, ValueError: `decompose` would refuse the data, or n x n arrays exceed the memory.

    Examples:
      Three outputs are the same, and the fourth stands alone:

      >>> import condvendi_jax as cv
      >>> result = cv.contributions([[0], [0], [0], [1]], kernel=cv.Gaussian(0.1), order=2)
      >>> print(result.influences.vendi.round(2))
      [-0.64 -0.64 -0.64  1.92]
    """
    entropy = Entropy(order=order, truncation=truncation).clamped(pairs.n)
    result = row_influences(pairs, entropy, method)
    of_rows = PerScore(*(rows.mean(axis=0) for rows in result.rows))
    return Contributions(result.decomposition, of_rows, pairs.shares, pairs.bandwidths)
