"""Documents say what the committed results give: every number is written from them, or given."""

import numpy as np
import pytest
import xarray as xr
from rich.table import Table

from experiments.lab import pages, registry

PAGES = [pages.STUDIES / f"{name}.md" for name in (*registry.NAMES, "index")]


@pytest.fixture(scope="module")
def written():
    return pages.written()


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PAGES, *pages.OTHERS], ids=lambda path: path.stem)
def test_a_page_is_written_from_the_committed_results(path, written):
    text = path.read_text(encoding="utf-8")
    assert text == written[path], "run python -m experiments pages"
    unbound, unused = pages.unbound(text)
    assert not unbound, "numbers without a mark that <!--given ...--> does not list"
    assert not unused, "numbers in <!--given ...--> that the page does not have"


def test_every_page_of_a_study_is_there():
    assert {path.name for path in pages.STUDIES.glob("*.md")} == {
        *(path.name for path in PAGES),
        "your_own.md",
    }


@pytest.fixture
def facts(monkeypatch):
    """The facts of two studies, in the place of committed ones."""
    value = xr.DataArray([0.5, 1234.5], coords={"n": [10, 20]}, dims="n")
    table = Table("n", "value")
    table.add_row("10", "0.5")
    known = {"convergence": {"value": value, "table": table}, "human": {"best": np.str_("MiniLM")}}
    monkeypatch.setattr(pages, "facts_of", lambda name: pages.Facts(**known[name]))


def test_marked_tokens_and_tables_are_written_anew(facts):
    text = (
        "It is **9<!--value.sel(n=10):.0%-->** of 3<!--value[1]:,.1f-->, "
        "[7<!--value.n.max():d-->,\n8<!--sorted(value.values)[0]:.2f-->] by X<!--human.best:s-->.\n"
        "<!--table:table-->\nold\n<!--/table-->\n"
    )
    assert pages.filled(text, "convergence") == (
        "It is **50%<!--value.sel(n=10):.0%-->** of 1,234.5<!--value[1]:,.1f-->, "
        "[20<!--value.n.max():d-->,\n"
        "0.50<!--sorted(value.values)[0]:.2f-->] by MiniLM<!--human.best:s-->.\n"
        "<!--table:table-->\n|n|value|\n|---|---|\n|10|0.5|\n<!--/table-->\n"
    )
    for mark in ("1<!--value.sel(n=11):.1f-->", "1<!--nothing:.1f-->", "1<!--value:.1f-->"):
        with pytest.raises(ValueError, match="convergence: "):
            pages.filled(mark, "convergence")


@pytest.mark.parametrize(
    "text",
    [
        "It is 6.57 there.",
        "| a | 3 |",
        "[0.70, 0.97<!--x:.2f-->]",
        "± 0.03",
        "-0.66 here",
        "1e-7",
        "in 2.5 of CV fig. 5",
    ],
)
def test_a_number_that_nothing_binds_is_seen(text):
    assert len(pages.unbound(text)[0]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "6.57<!--crke.sel(n=5):.2f-->, 7%<!--a:.0%-->",
        "CV figs 2, 3 and 19; CV-early figure 22; RKE Theorems 3, 6; CV section 6 (eq. 14)",
        "`x = 5` in [a](a_7.md#3), order 2 with 95% of 0.05 in 2025 by Llama-3.2-1B and gpt-4o",
        "```bash\n--n=5\n```",
        "<!--table:t-->\n|5|\n<!--/table-->\n",
        "on 5 and 0.5\n<!--given 5;0.5-->",
    ],
)
def test_what_is_no_number_of_a_result_is_free(text):
    assert pages.unbound(text) == ([], [])


def test_given_numbers_that_a_page_lacks_are_seen():
    assert pages.unbound("on 5\n<!--given 5;6-->") == ([], ["6"])
