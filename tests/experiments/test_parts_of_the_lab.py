"""Parts of the lab: bandwidths, records, tables, pages with numbers, and what papers print."""

import ast
import dataclasses
import json
import math
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import xarray as xr
from rich.table import Table

from condvendi_jax.base import files
from condvendi_jax.cli.flags import parse
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import Rules, Scales, pages, papers, printing, records, registry, scales, store


def widths(found):
    return [(b.outputs, b.prompts) for b in found.axis]


def test_bandwidths_are_the_rules_and_multiples_of_them():
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(200, d)).astype(np.float32) for d in (3, 2))
    pairs = PairedEmbeddings("own", *rows, "own")
    for rule in ("variance", "median"):
        ruled: Any = scales.by_rule(pairs, rule, 0)
        found = Scales(rule=rule).resolve(pairs, 0)
        assert widths(found) == [(s * ruled.outputs, s * ruled.prompts) for s in (0.5, 1.0, 2.0)]
        assert found.described == ruled.rule and found.shown == 1
        assert Rules(rules=(rule,)).resolve(pairs, 0).axis == (ruled,)
        assert [str(b) for b in found.axis] == ["0.5", "1", "2"]
    assert Scales().resolve(pairs, 0).axis == Scales(rule="variance").resolve(pairs, 0).axis
    assert str(*Rules().resolve(pairs, 0).axis) == "variance"
    own: Any = {"output_bandwidth": 2.0, "prompt_bandwidth": 3.0}
    given = Scales(**own, scales=(0.25, 0.5)).resolve(pairs, 0)
    assert widths(given) == [(0.5, 0.75), (1.0, 1.5)] and given.shown == 0.25
    assert widths(Rules(**own).resolve(pairs, 0)) == [(2.0, 3.0)]
    assert widths(Scales(kernel="cosine").resolve(pairs, 0)) == [(None, None)]
    with pytest.raises(ValueError, match="give both"):
        Scales(output_bandwidth=1.0).resolve(pairs, 0)


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        (Scales, "--rule=std --kernel=cosine", "--rule means nothing with --kernel=cosine"),
        (Scales, "--rule=std --output_bandwidth=1", "--rule and --output_bandwidth: give one"),
        (Rules, "--rules=std --prompt_bandwidth=1", "--rules and --prompt_bandwidth: give one"),
        (Scales, "--scales=1,1", "--scales: 1 is given twice; give it once"),
        (Scales, "--scales=1,0", r"--scales: expected a number above 0, received 0\.0"),
        (Scales, "--output_bandwidth=inf", "--output_bandwidth: expected a number above 0"),
    ],
)
def test_bandwidths_that_make_no_sense_are_refused(kind, flags, message):
    with pytest.raises(ValueError, match=message):
        parse(kind, flags.split())


@dataclasses.dataclass(frozen=True)
class Inner:
    a: float | None
    b: tuple[int, str]


@dataclasses.dataclass(frozen=True)
class Outer:
    many: tuple[float, ...]
    by_name: dict[str, Inner]
    widths: dict[str, float]


@pytest.mark.parametrize("x", [1.5, math.inf, -math.inf])
def test_what_is_written_is_read_back_equal(x, tmp_path):
    by_name = {"one": Inner(None, (1, "b")), "two": Inner(x, (2, ""))}
    outer = Outer((1.0, x), by_name, {"a": x, "b_reason": 2.0})
    files.write_json(tmp_path / "record.json", {"result": records.plain(outer)})
    assert "Infinity" not in (content := (tmp_path / "record.json").read_text())
    assert records.typed(Outer, json.loads(content)["result"]) == outer


def test_a_hash_tells_order_dtype_shape_and_contents_apart():
    base = np.arange(6, dtype=np.float32)
    long = np.random.default_rng(0).normal(size=(9000, 300))  # More than one block.
    assert long.nbytes > 1 << 24
    changed, near = long.copy(), base.copy()
    changed[-1, -1] += 1
    near[-1] = 5.0000005
    others = [long, changed, near, base[::-1], base.astype(np.float64), base.reshape(2, 3)]
    others += map(np.array, (["a", "b"], ["b", "a"], 1.0))
    hashes = [records.hash_array(array) for array in (base, *others, np.zeros((0, 3)))]
    assert len(set(hashes)) == len(hashes)
    assert records.hash_array(base.copy()) == hashes[0]
    for strided in (np.tile(base, 2)[::2], np.asfortranarray(long)):
        assert records.hash_array(strided) == records.hash_array(strided.copy(order="C"))
    with pytest.raises(TypeError, match="no contents"):
        records.hash_array(np.array([{}], object))


def test_what_is_dear_is_made_once_an_identity(tmp_path, capsys):
    made = []

    def get(version=1, width=2, points=(1.0, 2.0)):
        def build():
            made.append(1)
            return {"embeddings": np.array(points) * width}

        identity = {"settings": {"width": width}, "arrays": {"points": np.array(points)}}
        found = records.cached(tmp_path, "embeddings", version=version, build=build, **identity)
        return found["embeddings"].tolist()

    assert get() == get() == [2.0, 4.0] and len(made) == 1
    assert get(width=3) == [3.0, 6.0]
    assert get(points=(2.0, 1.0)) == [4.0, 2.0]
    assert get(version=2) == [2.0, 4.0] and len(made) == 4
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:-9])
    assert get() == [2.0, 4.0] and len(made) == 5
    assert "made anew" in capsys.readouterr().err


def test_types_that_netcdf_lacks_grow_and_what_has_no_labels_is_left_out(tmp_path):
    values = {
        "half": np.array([0.5, 2], "f2"),
        "byte": np.array([7, 255], "u1"),
        "yes": [True, False],
    }
    found = xr.Dataset({name: ("x", of) for name, of in values.items()}, {"x": ["ä", "b|c"]})
    store.write(tmp_path / "a.nc", found.assign(none=(("x", "empty"), np.ones((2, 0)))), {})
    record, again = store.read(tmp_path / "a.nc")
    assert record == {} and again.equals(found)
    assert [again[name].dtype.name for name in values] == ["float32", "int16", "bool"]


def test_a_package_imports_only_what_is_below_it_and_a_study_no_benchmark():
    order = ["data", "lab", "generators", "builders"]
    for path in pathlib.Path(lab.__file__).parents[1].rglob("*.py"):
        package, names = path.parent.name, []
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import):
                before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names += [before + of.name for of in node.names]
        layers = {name.split(".")[1] for name in names if name.startswith("experiments.")}
        if package in order:
            assert layers <= {*order[: order.index(package) + 1]}, path
        if package != "cost":
            assert "cost" not in layers, path
        if path.stem != "theorems":
            assert "theory_checks" not in " ".join(names), path


def test_no_cell_of_a_table_is_cut_or_broken(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "18")
    grid = Table("model", "Conditional-Vendi", title="a title")
    grid.add_row("first one", "12.3456 ± 0.0012")
    printing.print_table(grid)
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if "first one" in line]
    assert "12.3456 ± 0.0012" in line and "Conditional-Vendi" in text and "a title" in text


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


FREE = [
    "6.57<!--crke.sel(n=5):.2f-->, 7%<!--a:.0%-->",
    "CV figs 2, 3 and 19; CV-early figure 22; RKE Theorems 3, 6; CV section 6 (eq. 14)",
    "`x = 5` in [a](a_7.md#3), order 2 with 95% of 0.05 in 2025 by Llama-3.2-1B and gpt-4o",
    "```bash\n--n=5\n```",
    "<!--table:t-->\n|5|\n<!--/table-->\n",
    "on 5 and 0.5\n<!--given 5;0.5-->",
]
BOUND = [
    "It is 6.57 there.",
    "| a | 3 |",
    "[0.70, 0.97<!--x:.2f-->]",
    "± 0.03",
    "-0.66 here",
    "1e-7",
    "in 2.5 of CV fig. 5",
]


def test_numbers_of_results_that_nothing_binds_are_seen_and_others_are_free():
    for text in BOUND:
        assert len(pages.unbound(text)[0]) == 1, text
    for text in FREE:
        assert pages.unbound(text) == ([], []), text
    assert pages.unbound("on 5\n<!--given 5;6-->") == ([], ["6"])  # A page lacks it.


# Figures and tables, counted in the papers with their appendices.
PRINTED = {"CV": (24, 5), "CV-early": (26, 0), "RKE": (3, 2), "MID": (11, 10)}


def test_every_figure_and_table_has_one_answer():
    found = sorted((group["paper"], item) for group in papers.groups() for item in group["items"])
    assert found == sorted(
        (paper, f"{kind} {number}")
        for paper, counts in PRINTED.items()
        for kind, count in zip(("fig", "table"), counts, strict=True)
        for number in range(1, count + 1)
    )


@pytest.mark.parametrize("group", papers.groups(), ids=lambda group: papers.cited([group]))
def test_an_answer_names_registered_studies_and_its_reason(group):
    outcome = group["outcome"]
    assert outcome in papers.OUTCOMES
    assert set(group["studies"]) <= set(registry.NAMES)
    assert bool(group["studies"]) == bool(group["stand_in"]) == (outcome != "not tried")
    assert 0 < len(group["shows"].split()) <= 12
    assert group.get("why") or outcome == "comes out"
    assert len(group.get("why", "").split()) <= 15


def test_figures_are_cited_by_paper_and_in_runs(monkeypatch):
    first = {"paper": "CV", "items": ["fig 3", "fig 1", "fig 2", "fig 5", "table 1"], "studies": []}
    second = {"paper": "RKE", "items": ["table 1", "table 2"], "studies": ["human"]}
    assert papers.cited([first, second]) == "CV figs 1-3, 5; table 1; RKE tables 1, 2"
    monkeypatch.setattr(papers, "groups", lambda: [first, second])
    assert papers.repeats("human") == "RKE tables 1, 2"
    assert papers.repeats("scaling") == "-"


def test_the_page_counts_figures_and_has_a_row_for_every_answer():
    head, *table = papers.lines()
    total, tried, compared, *outcomes = map(int, re.findall(r"\d+", head))
    assert compared == sum(outcomes[:3])
    assert total == sum(outcomes) == tried + outcomes[-1] == sum(map(sum, PRINTED.values()))
    for outcome, meaning in papers.OUTCOMES.items():
        assert f"- *{outcome}*: {meaning}." in table
    for group in papers.groups():
        cited = papers.cited([group])
        assert [row for row in table if cited in row and f"|{group['outcome']}" in row], cited
