"""What every result does: it prints, shows itself in a notebook, and gives plain data."""

import base64
import csv
import html
import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from condvendi_jax.base import extras
from condvendi_jax.base.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
else:  # Types of what is returned; both packages are slow to import.
    DataFrame = Figure = Any

_RUN = re.compile(r"^(?=[=+@\t\r-])(?![+-]?[\d.]+$)")  # The start of what spreadsheets would run.
_LINES = 15  # Of `repr`, which a notebook or a session of Python shows unasked.


class Result:
    """A result of the library: text by `print`, at most 15 lines of it by `repr`, and plain data.

    A notebook shows its tables and, if it has one, its picture.
    """

    def parts(self) -> Sequence[str | Table]:
        """The lines and tables of which the text consists."""
        raise NotImplementedError  # Every result has its own.

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {name: plain(value) for name, value in vars(self).items() if name[0] != "_"}

    def lines(self) -> list[dict[str, Any]]:
        """A line for each number with the names that belong to it, for a table of data."""
        return [self.as_dict()]

    def pair_lines(self) -> list[dict[str, Any]]:
        """A line for each number of two models; none if the result has no such numbers."""
        return []

    def to_dataframe(self, part: Literal["models", "pairs"] = "models") -> DataFrame:
        """The numbers, unrounded, as a DataFrame of pandas.

        Args:
          part: 'pairs' for the differences and overlaps of every two models of a comparison.

        Raises:
          ModuleNotFoundError: pandas is not installed.
        """
        with extras.needed("notebook", package="pandas", purpose="to_dataframe"):
            import pandas  # Imported where it is used: it is optional.
        return pandas.DataFrame(self.pair_lines() if part == "pairs" else self.lines())

    def comma_separated(self, part: Literal["models", "pairs"] = "models") -> str:
        """The numbers, unrounded, as CSV: see `to_dataframe`."""
        return comma_separated(self.pair_lines() if part == "pairs" else self.lines())

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts()))

    def __repr__(self) -> str:
        lines = str(self).splitlines()
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [f"... {len(lines) - _LINES + 1:,} more lines: use print()"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        plot, parts = getattr(self, "plot", None), self.parts()
        shown = [
            _table(p) if isinstance(p, Table) else f"<div>{html.escape(p)}</div>" for p in parts
        ]
        picture = f'<img src="data:image/svg+xml;base64,{encoded(plot())}">' if plot else ""
        return "\n".join([*shown, picture])


def _table(table: Table) -> str:
    def row(cells: Iterable[str], tag: str) -> str:
        return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    return f"<table><thead><tr>{row(table.heading, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def plain(value: Any) -> Any:
    """A value of a result as numbers, texts, lists and dictionaries."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


def comma_separated(lines: Sequence[Mapping[str, Any]]) -> str:
    """CSV of lines with the same names; nothing for None and NaN."""
    # NaN is no number that equals itself; the writer leaves None out.
    rows = [["" if value != value else value for value in line.values()] for line in lines]
    rows = [[_RUN.sub("'", cell) if isinstance(cell, str) else cell for cell in r] for r in rows]
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([*lines[:1], *rows])
    return stream.getvalue()


def encoded(figure: Any, kind: str = "svg", dots: float = 240) -> str:
    """A figure as an SVG, or a PNG of so many dots an inch, in base64; equal ones are equal."""
    import matplotlib  # Imported where it is used: it is slow to import.

    stream = io.BytesIO()
    # The browser draws the letters. Fixed ids make equal figures equal files.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "condvendi_jax"}
    metadata: Any = {"Date" if kind == "svg" else "Software": None}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # Names in any script.
        figure.savefig(stream, format=kind, dpi=dots, metadata=metadata)
    return base64.b64encode(stream.getvalue()).decode()
