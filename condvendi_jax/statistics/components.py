"""How much the similarity of a prompt's answers varies with the answers, and between prompts.

The similarity U of k answers to a prompt is the mean of the squared kernel h over their pairs. Over
other answers to the same prompt its variance is that of a U-statistic (Hoeffding, 1948),

    Var U = 4 zeta_1 / k + 2 delta / (k (k - 1)),   delta = zeta_2 - 2 zeta_1,

with zeta_1 = Cov(h_ij, h_il) and zeta_2 = Var(h_ij). Means over pairs, triples and quadruples of
different answers estimate both without bias; quadruples need four answers.
"""

import math
from typing import NamedTuple

import numpy as np

FEWEST_ANSWERS = 4


class Components(NamedTuple):
    """The prompts of a model, `[p]` each, by the numbers of `Answers.kind`."""

    answers: np.ndarray  # The number of answers k.
    similarity: np.ndarray  # U.
    of_answers: np.ndarray  # An unbiased estimate of zeta_1; NaN below four answers.
    of_pairs: np.ndarray  # An unbiased estimate of delta; NaN below four answers.

    def within(self) -> np.ndarray:
        """The variance of U over other answers, `[p]`."""
        k = self.answers
        return 4 * self.of_answers / k + 2 * self.of_pairs / (k * (k - 1))

    def error(self, weights: np.ndarray) -> float:
        """The error of a mean of U with weights `[p]`, over other answers to the same prompts."""
        pairs = self.answers * (self.answers - 1)
        least = 2 * (2 * self.of_answers + self.of_pairs) / pairs  # Where zeta_1 is 0.
        squares = np.square(weights)
        return math.sqrt(max(squares @ self.within(), squares @ least, 0.0))


def of_sums(
    sums: np.ndarray, squares: np.ndarray, copies: np.ndarray, kind: np.ndarray, count: int
) -> Components:
    """The components from the sums of h and h^2 of each answer with the others to its prompt."""
    k = np.bincount(kind, copies, count)
    s, r, q = (np.bincount(kind, copies * values, count) for values in (sums, sums**2, squares))
    with np.errstate(divide="ignore", invalid="ignore"):
        pair = k * (k - 1)
        triples = (r - q) / (pair * (k - 2))
        quadruples = (s**2 - 4 * r + 2 * q) / (pair * (k - 2) * (k - 3))
        parts = triples - quadruples, q / pair - 2 * triples + quadruples
        known = (np.where(k >= FEWEST_ANSWERS, part, np.nan) for part in parts)
        return Components(k.astype(int), s / pair, *known)
