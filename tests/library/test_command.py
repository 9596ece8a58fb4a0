"""What every command line of the project shares: tables that lose nothing."""

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from condvendi_jax.cli import command

HEADINGS = ("model", "Conditional-Vendi", "Information-Vendi", "p")
CELLS = (("first one", "12.3456 ± 0.0012", "1.2 ± 0.1", "3.14159e-08"), ("b", "7", "", "0.25"))


@pytest.fixture
def printed(monkeypatch):
    """Prints the table on a terminal of some width, or into a file."""

    def run(width, *, terminal):
        stream = io.StringIO()

        def make(**options):
            own = {"width": width, "force_terminal": terminal, "no_color": True, "file": stream}
            return Console(**(own | options))

        monkeypatch.setattr(command.console, "Console", make)
        table = Table(*HEADINGS, title="a title")
        for cells in CELLS:
            table.add_row(*cells)
        command.print_table(table)
        return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())

    return run


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [200, 40, 18])
def test_no_cell_of_a_table_is_cut_or_broken(printed, width, terminal):
    text = printed(width, terminal=terminal)
    for words in (*HEADINGS, *sum(CELLS, ())):
        assert words in text
    assert "…" not in text and "a title" in text
    if terminal:
        assert max(map(len, text.splitlines())) <= width


def test_a_log_has_a_table_of_one_piece(printed):
    text = printed(20, terminal=False)
    (line,) = [line for line in text.splitlines() if "first one" in line]
    assert all(cell in line for cell in CELLS[0])
    assert text == printed(200, terminal=True)


def test_rows_that_do_not_fit_become_lists(printed):
    lines = [line.strip() for line in printed(40, terminal=True).splitlines()]
    first, second = ([lines.index(cell) for cell in cells if cell] for cells in CELLS)
    assert first == sorted(first)
    assert max(first) < min(second)
    assert lines.count("Conditional-Vendi") == len(CELLS)
