"""Tables as text, and numbers rounded to the digits that their errors leave them."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LISTED = 6  # More names than this are counted, not listed.
# An interval whose upper end is so many times the lower one says no more than the lower.
OPEN = 100


class Table(NamedTuple):
    """A table of texts: a heading, and rows as long as it. Prints as columns of equal width."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        """The first column is aligned to the left, the others to the right."""
        everything = [self.heading, *self.rows]
        widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
        lines = [
            "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip()
            for first, *rest in everything
        ]
        return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def with_error(value: float, error: float | None) -> str:
    """A value to the digits that its error, if there is one, leaves it: '4.63 ± 0.12'."""
    if math.isinf(value):
        return "unknown"
    if error is None or math.isnan(error):
        return f"{value:.4g}"
    if not 1e-6 * abs(value) < error < math.inf:  # Zero, or one of rounding alone.
        return f"{value:.4g} (no error known)"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def with_interval(value: float, error: float | None, ends: Sequence[float] | None) -> str:
    """A value with its error; 'more than 4.2' or 'unknown' where its interval has no end above.

    The value alone where the interval, which callers print, is `lopsided`.
    """
    if math.isnan(value):
        return "-"
    if ends and ends[1] > OPEN * ends[0]:
        return f"more than {ends[0]:.4g}" if ends[0] * OPEN > 1 else "unknown"
    return with_error(value, None if lopsided(value, error, ends) else error)


def lopsided(value: float, error: float | None, ends: Sequence[float] | None) -> bool:
    """Whether ± would mislead: one arm of the interval is 1.5 times the other, or the error 0."""
    if not ends:
        return False
    short, long = sorted((value - ends[0], ends[1] - value))
    return long > 1.5 * short or not (error or 0) > 1e-6 * abs(value)


def up_to(value: float, n: int) -> str:
    """A value, or 'above 8' where it is larger than the n rows that it comes from can show."""
    return f"above {n:,}" if value > 1.0001 * n else f"{value:.4g}"


def even(value: float) -> str:
    """A value with as many digits as others of its size: '3.00', '31.2', '312'."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def rough(value: float) -> str:
    """A value for a sentence: '7.6', '112'."""
    return f"{value:.2g}" if not value >= 10 else f"{value:,.0f}"


def interval(ends: Sequence[float]) -> str:
    """An interval: '[4.2, 5.6]'."""
    return "[{:.4g}, {:.4g}]".format(*ends)


def span(counts: Iterable[int]) -> str:
    """The least and the most of some numbers, once where they are equal: '5', '2 to 19'."""
    least, most = min(counts := [*counts]), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: 'A, B and C'; those beyond the first six as a number."""
    shown = list(names[:LISTED])
    if len(names) > LISTED:
        shown.append(f"{len(names) - LISTED} more")
    *start, last = shown
    return f"{', '.join(start)} and {last}" if start else last


def shortened(text: str, width: int = 48) -> str:
    """A text in one line of at most `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."


def capitalized(text: str) -> str:
    """A text whose first letter is a capital, and whose other letters are kept."""
    return text[:1].upper() + text[1:]
