"""Tables as text, and numbers rounded to the digits that their errors leave them."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LISTED = 6  # More names than this are counted, not listed.
OPEN = 100  # An interval whose upper end is so many times the lower says no more than the lower.


class Table(NamedTuple):
    """A table of texts: a heading, and rows as long as it. Prints as columns of equal width."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        """The first column is aligned to the left, the others to the right."""
        everything = [self.heading, *self.rows]
        widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
        cells = ([a.ljust(widths[0]), *map(str.rjust, rest, widths[1:])] for a, *rest in everything)
        lines = ["  ".join(row).rstrip() for row in cells]
        return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def with_interval(value: float, ends: Sequence[float] | None) -> str:
    """A value with its interval, to the digits that this leaves it: '4.6 [4.2, 5.1]'.

    '> 4.2' where the interval has no end above, 'unknown' where it has none; the value alone where
    there is no interval.
    """
    if math.isnan(value):
        return "-"
    low, high = (math.nan, math.nan) if ends is None else ends
    if math.isinf(value) or high > OPEN * max(low, 1):
        return f"> {low:.3g}" if low * OPEN > 1 else "unknown"
    if not 1e-6 * abs(value) < high - low < math.inf:  # None, or one of rounding alone.
        return f"{value:.4g}"
    most = 3 - math.floor(math.log10(max(abs(value), abs(high))))  # Four digits in all.
    said = len(rough(value).partition(".")[2]) if value > 1 else 0  # In a sentence about it.
    digits = max(0, min(max(1 - math.floor(math.log10((high - low) / 2)), said), most))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def up_to(value: float, n: int) -> str:
    """A value, or '> 8' where it is larger than the n rows that it comes from can show."""
    return f"> {n:,}" if value > 1.0001 * n else f"{value:.4g}"


def rough(value: float) -> str:
    """A value for a sentence: '7.6', '112'."""
    return f"{value:.2g}" if not value >= 10 else f"{value:,.0f}"


def percent(ratio: float) -> str:
    """A ratio of scores as a difference: '12%', '2.4x'; '-' of none."""
    if not math.isfinite(ratio):
        return "-"
    if not ratio < 2:
        return f"{rough(ratio)}x"
    return f"{100 * (ratio - 1):.2g}%" if ratio > 1.001 else "under 0.1%"


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
