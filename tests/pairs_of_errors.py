"""Two estimates by their errors, one pair at a time: the library tests all pairs at once."""

import math

from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.influences import Error, apart


def minus(one, other, *, matched):
    """The error of the difference; of inverses, of what they invert, with the sign of this one."""
    if one.inverse is not None and other.inverse is not None:
        return minus(other.inverse, one.inverse, matched=matched)
    both = (one.value, other.value), (one.at_levels, other.at_levels)
    ends = intervals.difference(*both, one.correlation(other, matched=matched))
    influences = apart(one.influences, other.influences, matched=matched)
    known = one.units, min(one.freedom, other.freedom), one.reason or other.reason
    noise = math.hypot(one.noise, other.noise)
    return Error(one.value - other.value, influences, *known, ends, noise)


def over(one, other, *, matched, level):
    """The interval of the ratio, which excludes 1 where that of the difference excludes 0."""
    if one.inverse is not None and other.inverse is not None:
        return over(other.inverse, one.inverse, matched=matched, level=level)
    both = (one.value, other.value), (one.at_levels, other.at_levels)
    low, high = intervals.quotient(*both, one.correlation(other, matched=matched))(level)
    return float(low), float(high)


def p_value(error):
    """The smallest level at which the interval excludes 0."""
    return intervals.p_value(error.at_levels)
