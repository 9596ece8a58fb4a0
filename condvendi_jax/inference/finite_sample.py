"""Intervals that hold the RKE scores of a population at any n (`cv-interval-any-n`)."""

import dataclasses
import math

import numpy as np

from condvendi_jax.base import checks, result
from condvendi_jax.data.pairs import Pairs, takes_pairs
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.spectra import pair_sums
from condvendi_jax.statistics import intervals


@dataclasses.dataclass(frozen=True, repr=False)
class FiniteSampleInterval(result.Result):
    """An interval that holds the score of the population with at least this confidence.

    Attributes:
      name: 'Conditional-RKE', or 'RKE' where there are no prompts.
      score: without pairs of a row with itself, in effective numbers of modes.
      low, high: the ends; `high` is infinite where the rows rule out no larger score.
      confidence, units: its probability (`cv-interval-any-n`); the independent rows or prompts.
    """

    name: str
    score: float
    low: float
    high: float
    confidence: float
    units: str

    def parts(self) -> list[str]:
        """The interval in words."""
        to = f"to {self.high:.3g}" if self.high < math.inf else "or more"
        ends = f"{self.low:.3g} {to} (confidence {self.confidence:g} from {self.units})"
        return [f"{self.name} {self.score:.3g}; of the population {ends}"]


@checks.outside_transformations
@takes_pairs
def finite_sample_interval(pairs: Pairs, *, confidence: float = 0.95) -> FiniteSampleInterval:
    """An interval for RKE, or Conditional-RKE, of the population, valid at any n.

    Rows count as independent if all prompts differ. If prompts repeat under `Indicator`, prompts
    do, and the score is 1 over the probability that two answers to one prompt are the same, in the
    mean over prompts with several answers. Proof: `cv-interval-any-n` of docs/theory.md.

    Args:
      pairs: independent draws, as for `decompose`; the kernels must not be chosen from them. If
        rows of equal prompts are independent, give `Pairs` n different `groups`.
      confidence: the probability, between 0 and 1.

    Raises ValueError for one row, unequal float weights, no similar prompts, or dependent rows.

    Examples:
      >>> import condvendi_jax as cv
      >>> print(cv.inference.finite_sample_interval([[0], [1]] * 500, kernel=cv.Indicator()))
      RKE 2; of the population 1.75 to 2.33 (confidence 0.95 from 1,000 independent rows)
    """
    confidence = checks.check_number(confidence, name="confidence", above=0, below=1)
    pairs = pairs.repeated()
    if pairs.n < 2:
        raise ValueError("outputs: expected at least two rows, received 1.")
    if pairs.weights is not None and np.ptp(pairs.shares) > 0:
        raise ValueError("weights: expected equal ones or integers, received other numbers.")
    if pairs.groups is not None and np.unique(pairs.groups).size < pairs.n:
        raise ValueError("groups: expected None or n different ones, received some twice.")
    if pairs.batches is not None:
        raise ValueError("batches: expected None, as answers must be independent, received some.")
    repeated = pairs.groups is None and pairs.paired and pairs.prompt_kinds[0] < pairs.n
    means, blocks, units = (_of_prompts if repeated else _of_rows)(pairs)
    least, most = intervals.bernstein(means, blocks, 1 - confidence)
    low, score, high = (1 / c if c else math.inf for c in (most, means[1] / means[0], least))
    name = "Conditional-RKE" if pairs.paired else "RKE"
    return FiniteSampleInterval(name, float(score), low, high, confidence, units)


def _of_rows(pairs: Pairs) -> tuple[np.ndarray, int, str]:
    """Means over pairs of different rows, how many pairs are independent, the rows in words."""
    # Of k_T^2, k_T^2 k_X^2, k_T^4, k_T^4 k_X^2, k_T^4 k_X^4, by the numbers of the squared kernels.
    subsets = ((1,), (0, 1), (1, 1), (0, 1, 1), (0, 0, 1, 1)) if pairs.paired else ((0,), (0, 0))
    tiles = dataclasses.replace(pair_sums.tiles_of(pairs), subsets=subsets)
    means = pairs.n / (pairs.n - 1) * pair_sums.to_float64(pairwise.squares_of_others(tiles))
    if not pairs.paired:
        means = np.array([1, means[0], 1, *means])
    if not means[0]:
        raise ValueError("prompts: expected some that are similar, received none.")
    return np.minimum(means, means[0]), pairs.n // 2, f"{pairs.n:,} independent rows"


def _of_prompts(pairs: Pairs) -> tuple[np.ndarray, int, str]:
    """The means of `_of_rows` over prompts, how many prompts have several answers, and in words."""
    if not pairs.kernels[1].compares_equality:
        expected = "expected cv.Indicator() as prompts repeat, so that rows are dependent"
        cure = "If yours are independent, give n different groups."
        raise ValueError(f"prompt_kernel: {expected}, received {pairs.kernels[1]!r}. {cure}")
    sums = pairs.n * pair_sums.row_sums(pairs)[2]
    answers, sums = (np.bincount(pairs.prompt_kinds[1], weights) for weights in (None, sums))
    used = answers > 1
    same = (sums[used] / (answers * (answers - 1))[used]).clip(0, 1)
    means = np.array([1, same.mean(), 1, same.mean(), np.mean(same**2)])
    return means, same.size, f"{same.size:,} of {used.size:,} independent prompts"
