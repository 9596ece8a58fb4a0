"""How often a test finds a difference, and the smallest that it finds."""

import bisect
import functools
import math
from typing import Any, NamedTuple

import numpy as np
import scipy  # Its modules are imported when they are used.

from condvendi_jax.statistics.intervals import prompt_mean

POWER = 0.8  # By default.
MOST = 10**7  # Prompts of a study.
# With fewer groups there is no test. By Student's t, which other orders have, two samples of one
# distribution differed at the level 5% in up to 15% of 1,000 trials with 2 groups of prompts
# (information: in all), 9% with 3, 8% with 4. With unequal numbers of answers to skewed prompts,
# any two of up to eight models did in up to 6.6% with 5 or 6 prompts, and 5.8% with 7 to 20.
FEWEST_TESTED = 7


class Spread(NamedTuple):
    """How the difference of the mean similarities of two models varies, from a pilot.

    Over answers to a prompt, its variance is 4 zeta_1 / k + 2 delta / (k (k - 1)). Where the pilot
    does not tell it apart, these are NaN, and `between` has all, at the pilot's number of answers.
    """

    score: str  # 'conditional' or, without prompts, 'vendi'; of order 2.
    similarity: float  # The geometric mean of both.
    between: float  # The variance between prompts, tau^2; between rows where no prompt repeats.
    of_answers: float  # zeta_1 of both models.
    of_pairs: float  # delta of both models.
    relative_error: float  # The standard error of the whole variance, relative to it.
    prompts: int  # Of the pilot.
    answers: float  # Their mean number, of the pilot.
    unseen: float = 0.0  # What unseen prompts may add to the variance, one-sided at 95%.

    def variance(self, k: float) -> float:
        """The variance of the difference of one prompt with k answers, or of one row."""
        if math.isnan(self.of_answers):
            return self.between
        return self.between + 4 * self.of_answers / k + 2 * self.of_pairs / (k * (k - 1))

    @property
    def unit(self) -> str:
        """What varies: prompts or, without prompts, outputs."""
        return "outputs" if self.score == "vendi" else "prompts"

    @property
    def relative(self) -> float:
        """The standard deviation at the pilot's number of answers, relative to the similarity."""
        return math.sqrt(self.variance(self.answers)) / self.similarity

    def power(self, k: int, prompts: int, effect: float, level: float, at: Any = None) -> float:
        """How often a t-test finds an effect, in the mean over what the pilot leaves open.

        The logarithm of the variance is normal about the pilot's; or `at` so many standard errors.
        """
        places = scipy.special.ndtri((np.arange(20) + 0.5) / 20) if at is None else np.array([at])
        errors = np.sqrt(self.variance(k) * np.exp(self.relative_error * places) / prompts)
        shift = effect / errors - scipy.special.stdtrit(prompts - 1, 1 - level / 2)
        return float(np.mean(scipy.special.stdtr(prompts - 1, shift)))

    def needed(
        self, k: int, power: float, effect: float, level: float, at: Any = None, *, most: int
    ) -> int:
        """The smallest number of prompts with this power, at most `most`."""
        enough = functools.partial(self.power, k, effect=effect, level=level, at=at)
        return FEWEST_TESTED + bisect.bisect_left(range(FEWEST_TESTED, most), power, key=enough)

    def needed_range(self, k: int, power: float, effect: float, level: float) -> tuple[int, int]:
        """The ends of that number at one variance, in 90% of what the pilot leaves open."""
        more = self._replace(between=self.between + self.unseen)
        ends = (self, -1.645), (self, 1.645), (more, 0.0)
        low, *high = (spread.needed(k, power, effect, level, at, most=MOST) for spread, at in ends)
        return low, max(high)

    def effect(self, ratio: float) -> float:
        """The difference of similarities of this ratio and the pilot's geometric mean."""
        return self.similarity * (math.sqrt(ratio) - 1 / math.sqrt(ratio))

    def smallest_ratio(self, k: int, prompts: int, level: float, power: float) -> float:
        """The smallest ratio of two scores that is found with a power."""

        def missing(log_ratio: float) -> float:
            return power - self.power(k, prompts, self.effect(math.exp(log_ratio)), level)

        return math.exp(scipy.optimize.brentq(missing, 0.0, 100.0, xtol=1e-9))


def unseen_variance(squares: np.ndarray) -> float:
    """What the upper end at 95%, one-sided, of a mean of squares in [0, 1] adds to it.

    That of a mean over prompts, of which some that are unlike the others may not have been seen.
    """
    squares = np.minimum(squares, 1)
    mean, count = float(squares.mean()), squares.size
    changes, shares = (squares - mean) / (count - 1), np.full(count, 1 / count)
    error = float(squares.std(ddof=1)) / math.sqrt(count)
    return float(prompt_mean(mean, error, changes, shares)(0.1)[1]) - mean


def detectable(length: Any, error: Any, freedom: Any, power: float = POWER) -> Any:
    """The smallest difference whose interval excludes 0 with this power.

    `length` is that of the interval on the side of 0, and errors of an estimate are Student's.
    """
    return length + error * scipy.special.stdtrit(freedom, power)


def ratio_of(difference: Any, mean: Any) -> Any:
    """The ratio of two numbers of this difference and this geometric mean."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.where(mean > 0, np.exp(2 * np.arcsinh(np.divide(difference, mean) / 2)), math.nan)
