"""Every figure and table of the four papers has one answer, and the page says what it is."""

import re

import pytest

from experiments.lab import papers, registry

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
