"""Statistical rates over repeated draws, and how far a right method may be from its nominal one."""

from scipy import stats

FALSE_ALARM = 1e-3


def is_nominal(rate, draws, nominal):
    """Whether a rate over draws is within the binomial band of a right method."""
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], draws, nominal) / draws
    return low <= rate <= high


def is_at_most(rate, draws, nominal):
    """Whether a rate over draws may be that of a method whose rate is at most the nominal one."""
    return rate <= stats.binom.ppf(1 - FALSE_ALARM, draws, nominal) / draws
