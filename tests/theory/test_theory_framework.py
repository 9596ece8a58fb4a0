"""The claims as data: verdicts are computed, what holds can fail, the documents are whole."""

import dataclasses
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import HANG_S
from rich.console import Console
from scipy import stats

from condvendi_jax.cli import files
from theory_checks import claim as framework
from theory_checks import evidence, report, statements
from theory_checks.__main__ import select, surprises, survivors
from theory_checks.claim import Claim, Form, Kind, try_claim
from theory_checks.evidence import (
    QUICK,
    Verdict,
    at_most,
    concatenate,
    equal,
    judge,
    limit,
    probability,
    rate,
)
from theory_checks.roots import ROOTS

CLAIMS = framework.registry()
MUTANTS = [(name, mutant) for name, entry in CLAIMS.items() for mutant in entry.mutants]
ROOT = Path(__file__).resolve().parents[2]
HEADINGS = re.findall(r"^### (.*)$", (ROOT / "docs" / "proofs.md").read_text(), re.MULTILINE)


def _claim(name="cv-a", evidence_function=None, **fields):
    """A claim outside the registry."""
    function = evidence_function or (lambda rng, budget, value: at_most(rng.random(3), 1.0))
    return Claim(name, "cv", "CV", "1", Kind.READING, Form("x"), function, **fields)


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_has_its_verdict(name):
    """Every verdict of the registry, at the quick budget; what is false has a counterexample."""
    outcome = try_claim(CLAIMS[name])
    assert not surprises(outcome)
    for tried in outcome.tried:
        if tried.judgement.verdict is Verdict.FALSE:
            assert tried.judgement.clearest


@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_mutant_is_judged_false(name, mutant):
    """No check of what holds survives a wrong formula."""
    entry = dataclasses.replace(CLAIMS[name], mutants={mutant: CLAIMS[name].mutants[mutant]})
    (tried,) = framework.try_mutants(entry).values()
    assert tried.judgement.verdict is Verdict.FALSE, tried.judgement


def test_what_holds_has_a_mutant_and_what_is_false_a_root():
    """Every statement that holds can be refuted; only what is printed can be false as printed."""
    for name, entry in CLAIMS.items():
        holds = entry.expected is not Verdict.FALSE or entry.corrected is not None
        assert entry.mutants or not holds, name
        assert (entry.root in ROOTS) is (entry.expected is Verdict.FALSE), name
        if entry.label(Verdict.FALSE) == "FALSE AS PRINTED":
            assert entry.kind is Kind.PRINTED and entry.quote, name


def test_every_root_is_shown_by_a_false_claim_of_its_own():
    """The page of root errors shows counterexamples that were evaluated."""
    for key, root in ROOTS.items():
        entry = CLAIMS[root.shown_by]
        assert entry.root == key and entry.expected is Verdict.FALSE


def test_results_beyond_the_papers_are_proved():
    """At least three, and every proof that a claim names is in docs/proofs.md, each named once."""
    proofs = [entry.proof for entry in CLAIMS.values() if entry.proof]
    assert set(proofs) <= set(HEADINGS)
    assert len(HEADINGS) == len(set(HEADINGS))
    assert set(HEADINGS) <= set(proofs)
    assert sum(entry.beyond for entry in CLAIMS.values()) >= 3


def test_latex_can_be_shown_in_a_table():
    """No bare bar, no line break, braces in pairs."""
    texts = [form.text for entry in CLAIMS.values() for form, _ in entry.forms.values()]
    texts += [text for root in ROOTS.values() for text in (root.printed, root.corrected)]
    for text in texts:
        assert text and not set("|\n`$") & set(text), text
        assert text.count("{") == text.count("}"), text


def test_verdicts_of_inequalities():
    """Slack, looseness, violation and premise each decide."""
    one = np.ones(4)
    assert judge(at_most(one, 2 * one)).verdict is Verdict.HOLDS
    assert judge(at_most(one, 200 * one)).verdict is Verdict.VACUOUS
    assert judge(at_most(one, 2 * one, trivial=1.5)).verdict is Verdict.VACUOUS
    assert judge(at_most(2 * one, one, premise_met=False)).verdict is Verdict.PREMISE_UNMET
    assert judge(at_most(one, [2, 2, 2, np.nan])).verdict is Verdict.FALSE


def test_counterexamples_are_points_that_were_evaluated():
    """The smallest that is no rounding affair, and the clearest; lists may hold anything."""
    points = [np.zeros(1), np.zeros(3), np.ones(2), np.zeros(2)]
    found = judge(
        at_most(
            [1.0, 4.0, 2.0, 3.0], 1.5, size=[1, 3, 2, 2],
            parameters={"n": np.array([1, 3, 2, 2]), "points": points, "order": 2},
        )
    )  # fmt: skip
    assert found.verdict is Verdict.FALSE and found.violations == 3 and found.slack == -2.5
    assert found.smallest == {"n": 2, "points": [1.0, 1.0], "order": 2, "lhs": 2.0, "rhs": 1.5}
    assert found.clearest == {"n": 3, "points": [0.0] * 3, "order": 2, "lhs": 4.0, "rhs": 1.5}
    rounding = judge(at_most([1.501, 4.0], 1.5, size=[1, 2]))
    assert rounding.smallest == rounding.clearest == {"lhs": 4.0, "rhs": 1.5}
    assert judge(at_most(2.0, 1.0)).smallest is None
    unmet = judge(at_most([9.0, 2.0], 1.0, premise_met=[False, True]))
    assert unmet.clearest == {"lhs": 2.0, "rhs": 1.0}


def test_evidence_is_concatenated_with_its_parameters():
    """Parts keep their points, sizes and premises."""
    first = at_most([1.0, 2.0], 3.0, size=[2, 3], parameters={"name": ["a", "b"], "order": 2})
    second = at_most([5.0], 3.0, size=[1], parameters={"name": ["c"], "order": 3})
    found = judge(concatenate(first, second))
    assert found.smallest == {"name": "c", "order": 3, "lhs": 5.0, "rhs": 3.0}
    with pytest.raises(ValueError, match="differ"):
        concatenate(first, equal(1.0, 1.0))


def test_verdicts_of_identities_and_limits():
    """A gap above the tolerance is a violation; a sequence must arrive and must shrink."""
    assert judge(equal([1.0, np.inf], [1.0 + 1e-12, np.inf])).verdict is Verdict.HOLDS
    assert judge(equal([1.0, np.nan], [1.0, np.nan])).verdict is Verdict.FALSE
    assert judge(equal(1.0, 1.0 + 1e-8)).verdict is Verdict.FALSE
    steps = 2.0 ** np.arange(6)
    assert judge(limit(1 / steps, 0.0, steps, tolerance=0.05)).verdict is Verdict.HOLDS
    assert judge(limit(1 / steps, 0.0, steps, tolerance=0.01)).verdict is Verdict.FALSE
    assert judge(limit(1 / steps, 0.5, steps, tolerance=0.05)).verdict is Verdict.FALSE


def test_verdicts_of_rates():
    """The slope's interval must meet the range, and must be narrow enough to say so."""
    steps = 2.0 ** np.arange(8)
    noise = np.exp(np.random.default_rng(0).normal(size=8))
    assert judge(rate(steps**-0.5, (-0.6, -0.4), steps)).verdict is Verdict.HOLDS
    assert judge(rate(steps**-0.5, (-np.inf, -0.4), steps)).verdict is Verdict.HOLDS
    assert judge(rate(steps**-1.0, (-0.6, -0.4), steps)).verdict is Verdict.FALSE
    assert judge(rate(steps**-0.5 * noise, (-2, 2), steps)).verdict is Verdict.INCONCLUSIVE


def test_slope_against_scipy():
    """The slope and the half width of its interval, against SciPy's regression."""
    rng = np.random.default_rng(0)
    steps, errors = 2.0 ** np.arange(6), rng.random(6)
    fit = stats.linregress(np.log(steps), np.log(errors))
    found = evidence.slope(steps, errors)
    np.testing.assert_allclose(found, [fit.slope, stats.t.ppf(0.975, 4) * fit.stderr])


def test_verdicts_of_probabilities():
    """Failures are compared with a binomial at the stated false-alarm rate."""
    uniform = np.random.default_rng(0).random((5, 400))
    assert judge(probability(uniform, 0.9, 0.1)).verdict is Verdict.HOLDS
    assert judge(probability(uniform, 0.7, 0.1)).verdict is Verdict.FALSE
    assert judge(probability(uniform, 200.0, 0.1)).verdict is Verdict.VACUOUS
    # All of four fail with chance 1/16 at delta = 1/2, for which no false-alarm rate is so high.
    few = np.ones((1, 4))
    assert judge(probability(few, 0.0, 0.5, false_alarm=0.06)).verdict is Verdict.HOLDS
    assert judge(probability(few, 0.0, 0.5, false_alarm=0.07)).verdict is Verdict.FALSE


@pytest.mark.parametrize(
    ("table", "fields", "message"),
    [
        ({"reading": "x", "ours": "y"}, {}, "one of printed"),
        ({}, {}, "one of printed"),
        ({"printed": "x"}, {"mutants": {"m": 1}}, "quotes"),
        ({"reading": "x"}, {}, "mutant"),
        ({"reading": "x"}, {"expected": Verdict.FALSE}, "root"),
        ({"ours": "x", "root": next(iter(ROOTS))}, {"expected": Verdict.FALSE}, "must hold"),
        ({"ours": "x", "beyond": True}, {"mutants": {"m": 1}}, "proof"),
        ({"reading": "x", "root": "no such root", "corrected": "y"}, {"mutants": {"m": 1}}, "root"),
    ],
)
def test_what_a_claim_lacks_is_said(table, fields, message, monkeypatch):
    """A claim that cannot be judged, or could not fail, is not registered."""
    table = {"paper": "cv", "source": "CV", "section": "1", **table}
    monkeypatch.setattr(statements, "texts", lambda: {"cv-new": table})
    with pytest.raises(ValueError, match=message):
        framework.claim("cv-new", **fields)(lambda rng, budget, value: at_most(0, 1))
    assert "cv-new" not in framework.registry()


def test_evidence_and_statements_go_together():
    """A second claim of one name is refused, and one that is not written down."""
    for name, message in ((next(iter(CLAIMS)), "taken"), ("cv-unwritten", "no statement")):
        with pytest.raises(ValueError, match=message):
            framework.claim(name, mutants={"m": 1})(lambda rng, budget, value: at_most(0, 1))
    assert list(CLAIMS) == list(statements.texts())


def test_seeds_belong_to_claims():
    """A claim's numbers depend on the seed and on its name, not on what ran before."""
    first = try_claim(_claim()).stated.evidence.lhs
    np.testing.assert_array_equal(first, try_claim(_claim()).stated.evidence.lhs)
    assert not np.array_equal(first, try_claim(_claim("cv-b")).stated.evidence.lhs)
    assert not np.array_equal(first, try_claim(_claim(), seed=1).stated.evidence.lhs)


def test_forms_meet_the_same_trials():
    """The correction is tried where the print is, and a wrong verdict of either is said."""
    entry = _claim(
        evidence_function=lambda rng, budget, value: at_most(2 * rng.random(9), value),
        corrected=Form("y", 2.0), expected=Verdict.FALSE, mutants={"less": 0.1, "more": 3.0},
    )  # fmt: skip
    outcome = try_claim(dataclasses.replace(entry, stated=Form("x", 0.1)))
    assert outcome.corrected is not None and not surprises(outcome)
    np.testing.assert_array_equal(outcome.stated.evidence.lhs, outcome.corrected.evidence.lhs)
    (line,) = survivors(entry, seed=0, budget=QUICK)
    assert "more" in line
    wrong = try_claim(dataclasses.replace(entry, stated=Form("x", 3.0)))
    (line,) = surprises(wrong)
    assert "expected FALSE" in line


def test_statements_are_in_the_order_of_their_paper():
    """The abstract, numbered sections, appendices."""

    def key(section):
        parts = section.split(".")
        return [(part.isalpha(), int(part) if part.isdigit() else 0, part) for part in parts]

    for paper in statements.PAPERS:
        sections = [entry.section for entry in CLAIMS.values() if entry.paper == paper]
        numbered = [section for section in sections if section != "abstract"]
        assert sections == ["abstract"] * (len(sections) - len(numbered)) + numbered
        assert numbered == sorted(numbered, key=key)


def test_a_text_is_one_line_however_it_was_broken():
    """White space does not count; what is no text stays what it is."""
    for table in statements.read("roots").values():
        for field in table.values():
            assert "\n" not in field and "  " not in field
    assert {table["section"] for table in statements.read("mid").values()} > {"3.3"}


def test_json_replaces_what_it_cannot_hold(tmp_path):
    """NaN and infinity become null with a reason, and the file is whole or absent."""
    entry = _claim(evidence_function=lambda rng, budget, value: at_most(1.0, np.inf))
    record = report.to_json([try_claim(entry)], seed=0, budget="quick")
    assert record["claims"][0]["stated"]["slack"] is None
    assert "infinite" in record["claims"][0]["null_because"]["stated.slack"]
    path = tmp_path / "report.json"
    files.write_json(path, record)
    assert json.loads(path.read_text())["counts"]


def test_the_terminal_shows_counts_then_what_is_false():
    """Brackets are not swallowed; every claim on request alone."""
    root = next(iter(ROOTS))
    entry = _claim(
        evidence_function=lambda rng, budget, value: at_most(
            [2.0], 1.0, parameters={"x": [[0.5]]}, size=[1]
        ),
        expected=Verdict.FALSE, root=root,
    )  # fmt: skip
    texts = {}
    for everything in (False, True):
        stream = io.StringIO()
        Console(file=stream, width=200).print(
            report.pages([try_claim(entry)], everything=everything)
        )
        texts[everything] = stream.getvalue()
    assert texts[False].index("Claims: 1") < texts[False].index(ROOTS[root].title)
    assert "x = [0.5]" in texts[False] and "[cv-a]" in texts[False]
    assert "FALSE IN OUR READING" not in texts[False] and "--all" in texts[False]
    assert "FALSE IN OUR READING" in texts[True]


def test_unknown_pattern_lists_the_names():
    """A bad --only names every claim."""
    with pytest.raises(ValueError, match=next(iter(CLAIMS))):
        select("no such claim", CLAIMS)
    assert [entry.name for entry in select("cv-lemma-[12]", CLAIMS)] == ["cv-lemma-1", "cv-lemma-2"]


def test_documents_keep_what_was_written_by_hand(tmp_path):
    """Only what stands between the marks is renewed; a missing mark is said."""
    path = tmp_path / "theory.md"
    path.write_text("before\n<!-- roots: generated -->\nold\n<!-- end of roots -->\nafter\n")
    report.insert(path, {"roots": "new"})
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "new" in text and "old" not in text
    with pytest.raises(ValueError, match="marks"):
        report.insert(path, {"table": "new"})


@pytest.mark.parametrize("flag", ["output", "document"])
def test_files_of_others_are_refused_before_anything_is_tried(tmp_path, flag):
    """A report replaces no other file, and a document without marks is left alone."""
    path = tmp_path / "mine"
    path.write_text("mine")
    command = [sys.executable, "-m", "theory_checks", f"--{flag}={path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=HANG_S)
    words = {"output": "--output: .* exists and is not", "document": "expected the marks"}
    assert done.returncode == 2
    assert re.search(words[flag], done.stderr), done.stderr
    assert path.read_text() == "mine"


def test_an_earlier_report_is_replaced(tmp_path):
    """The report says which version wrote it."""
    path = tmp_path / "report.json"
    files.write_report(path, report.to_json([], seed=0, budget="quick"))
    files.check_targets({"--output": path}, {}, overwrite=False)


def test_the_document_is_current():
    """docs/theory.md shows every claim with its verdict, and every root error."""
    text = (ROOT / "docs" / "theory.md").read_text()
    for name, entry in CLAIMS.items():
        (line,) = (line for line in text.splitlines() if line.count(f"<br>`{name}` |"))
        assert f"| **{entry.label(entry.expected)}**" in line
        assert entry.stated.text in line
    for root in ROOTS.values():
        assert f"**{root.title}**" in text


def test_document_counts_the_claims_of_the_registry():
    printed = [entry for entry in CLAIMS.values() if entry.kind is Kind.PRINTED]
    false = sum(entry.expected is Verdict.FALSE for entry in printed)
    text = (ROOT / "docs" / "theory.md").read_text()
    assert f"{len(CLAIMS)} claims, {len(ROOTS)} root errors, " in text
    assert f" HOLDS, {false} FALSE, " in text.partition("printed: ")[2].partition(";")[0]


def test_the_report_of_the_figures_is_that_of_these_claims():
    """docs/theory.json was written by the statements and the evidence that stand here now."""
    record = json.loads((ROOT / "docs" / "theory.json").read_text())
    assert {entry["name"]: entry["stated"]["statement"] for entry in record["claims"]} == {
        name: entry.stated.text for name, entry in CLAIMS.items()
    }
    assert record["budget"] == "full"
    assert record["sources"] == report.sources_digest()


def _run(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "theory_checks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=HANG_S)


def test_command_line(tmp_path):
    """The command prints its pages, writes JSON, and refuses what it does not know."""
    path = tmp_path / "report.json"
    done = _run("--only=cv-lemma-[12]", f"--output={path}", "--seed=3", "--mutants")
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["seed"] == 3
    assert [entry["name"] for entry in record["claims"]] == ["cv-lemma-1", "cv-lemma-2"]
    assert "cv-lemma-1" in done.stdout
    bad = _run("--only=nothing")
    assert bad.returncode == 2 and "cv-lemma-1" in bad.stderr
    both = _run("--only=cv-lemma-1", f"--document={path}")
    assert both.returncode == 2 and "--only" in both.stderr
