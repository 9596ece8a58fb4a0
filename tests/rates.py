"""Statistical rates over repeated draws, and how far a right method may be from its nominal one."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-3


def is_nominal(rate, draws, nominal):
    """Whether a rate over draws is within the binomial band of a right method."""
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], draws, nominal) / draws
    return low <= rate <= high


def is_at_most(rate, draws, nominal):
    """Whether a rate over draws may be that of a method whose rate is at most the nominal one."""
    return rate <= stats.binom.ppf(1 - FALSE_ALARM, draws, nominal) / draws


def covered(values, errors, truth, freedom, *, level=0.95):
    """How often the t-interval of a value covers the truth."""
    width = stats.t.ppf((1 + level) / 2, freedom) * np.asarray(errors)
    return np.mean(np.abs(np.asarray(values) - truth) < width)
