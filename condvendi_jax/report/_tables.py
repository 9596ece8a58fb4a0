"""Tables of words: aligned for a terminal, in Markdown, as CSV. Rounding happens before."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def aligned(heading: Sequence[str], rows: Rows) -> str:
    """Columns of equal width, the first to the left and the others to the right."""
    everything = [list(heading), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def markdown(heading: Sequence[str], rows: Rows) -> str:
    """A table of Markdown; a vertical bar in a cell is escaped."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heading), "|" + "---|" * len(heading), *map(line, rows)])


def comma_separated(heading: Sequence[str], rows: Rows) -> str:
    """CSV with a heading, quoted where a cell needs it."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([heading, *rows])
    return stream.getvalue()


def with_error(value: float, error: float | None) -> str:
    """A value to the digits that its error leaves it: '4.63 ± 0.12'.

    An error that is missing, or NaN because it is not defined, is left out.
    """
    if error is None or math.isnan(error):
        return f"{value:.4g}"
    if not 1e-6 * abs(value) < error < math.inf:  # None, or one of rounding alone.
        return f"{value:.4g} ± {error:.2g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"
