"""Tables on the terminal."""

from rich import console
from rich.table import Table

_UNLIMITED = 10_000  # Characters; wider than any table.


def print_table(shown: Table) -> None:
    """Prints a table as wide as its cells need, whatever the width of the terminal."""
    console.Console(width=_UNLIMITED).print(shown)
