"""The claims as data: verdicts are computed, what holds can fail, the documents are whole."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import HANG_S

from theory_checks import claim as framework
from theory_checks import (
    concentration,
    identities,
    latex,
    mid,
    narrowing,
    numerics,
    populations,
    report,
    roots,
    statements,
)
from theory_checks.__main__ import select, unexpected
from theory_checks.claim import Claim, Form, Kind, try_claim
from theory_checks.evidence import Budget, Verdict, at_most, compared, equal, judge, limit
from theory_checks.roots import ROOTS

CLAIMS = framework.registry()
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text()
HEADINGS = re.findall(r"^### (.*)$", (ROOT / "docs" / "proofs.md").read_text(), re.MULTILINE)


def _claim(name="cv-a", evidence_function=None, **fields):
    function = evidence_function or (lambda rng, budget, value: at_most(rng.random(3), 1.0))
    return Claim(name, "cv", "CV", Kind.READING, Form("x"), function, **fields)


class ThirdOfTrials(Budget):
    """A third of those of a quick run, which the documents and the mutants below have in full."""

    def trials(self, quick):
        return -(-quick // 3)


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_has_its_verdict(name):
    """Every verdict of the registry; what is false has a counterexample."""
    outcome = try_claim(CLAIMS[name], budget=ThirdOfTrials("third", 1))
    assert not unexpected(CLAIMS[name], outcome.tried)
    assert not unexpected(CLAIMS[name], framework.other_way_round(outcome))
    for tried in outcome.tried.values():
        if tried.judgement.verdict is Verdict.FALSE:
            assert tried.judgement.clearest


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_wrong_versions_are_rejected(name):
    """Mutants; a constant changed by 1.25, or its stated factor; what is true in special cases."""
    entry = CLAIMS[name]
    assert not unexpected(entry, framework.try_mutants(entry) | framework.try_narrowed(entry))


MISPRINTS = [(name, fault) for name, entry in CLAIMS.items() for fault in entry.misprints]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), MISPRINTS)
def test_a_misprint_of_what_is_false_is_seen(name, fault):
    entry = CLAIMS[name]
    swap = entry.misprints[fault]
    printed, other = (
        try_claim(dataclasses.replace(entry, stated=form, corrected=None)).stated.evidence
        for form in (entry.stated, entry.stated.swapped(*swap))
    )
    assert not printed.same_as(other)


def test_roots_are_shown_and_results_beyond_the_papers_proved():
    """Every root by a false claim of its own; three results, every proof named by a claim once."""
    for key, root in ROOTS.items():
        entry = CLAIMS[root.shown_by]
        assert entry.root == key and entry.expected is Verdict.FALSE
    proofs = {entry.proof for entry in CLAIMS.values() if entry.proof}
    assert proofs == set(HEADINGS)
    assert len(HEADINGS) == len(set(HEADINGS))
    assert sum(entry.beyond for entry in CLAIMS.values()) >= 3


def test_latex_can_be_shown_in_a_table():
    texts = [form.text for entry in CLAIMS.values() for form, _ in entry.forms.values()]
    for text in texts:
        assert text and not set("|\n`$⟦⟧") & set(text), text
        assert text.count("{") == text.count("}"), text


ONE, STEPS = np.ones(4), 2.0 ** np.arange(6)


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (at_most(ONE, 2 * ONE), Verdict.HOLDS),
        (at_most(ONE, 200 * ONE), Verdict.VACUOUS),
        (at_most(2 * ONE, ONE, premise_met=False), Verdict.PREMISE_UNMET),
        (at_most(ONE, [2, 2, 2, np.nan]), Verdict.FALSE),
        # A gap above the tolerance is a violation.
        (equal([1.0, np.inf], [1.0 + 1e-12, np.inf]), Verdict.HOLDS),
        (equal([1.0, np.nan], [1.0, np.nan]), Verdict.FALSE),
        (equal(1.0, 1.0 + 1e-8), Verdict.FALSE),
        # A sequence must arrive.
        (limit(1 / STEPS, 0.0, tolerance=0.05), Verdict.HOLDS),
        (limit(1 / STEPS, 0.0, tolerance=0.01), Verdict.FALSE),
        (limit(1 / STEPS, 0.5, tolerance=0.05), Verdict.FALSE),
    ],
)
def test_verdicts_of_inequalities_identities_and_limits(evidence, verdict):
    assert judge(evidence).verdict is verdict


def test_counterexamples_are_points_that_were_evaluated():
    """The smallest that rounding cannot explain, and the clearest; lists may hold anything."""
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


def test_exceedances_by_hand():
    """Three equally likely errors, two of them equal: chances 1/3, and 1 of the lower level."""
    levels, chances = numerics.exceedances(np.array([1.0, 3.0, 1.0]), np.log([1 / 3] * 3) - 1e-9)
    np.testing.assert_allclose(levels, [3.0, 1.0])
    np.testing.assert_allclose(chances, [1 / 3, 1.0], rtol=1e-6)
    levels, _ = numerics.exceedances(np.arange(1.0, 1001), np.full(1000, -np.log(1001)), most=20)
    assert levels[0] == 1000 and len(levels) <= 20


def test_a_changed_formula_is_a_mutant_of_its_statement():
    """Text and evidence are one: 2 beta cannot become beta / 2; an absent piece is refused."""
    entry = CLAIMS["cv-theorem-3-sharp"]
    wrong = dataclasses.replace(entry, mutants={"half": ("2\\beta", r"\tfrac{\beta}2")})
    tried = framework.try_mutants(dataclasses.replace(wrong, loose=(np.inf,) * 99))
    assert tried["half"].judgement.verdict is Verdict.FALSE
    with pytest.raises(ValueError, match="not in the statement"):
        framework.try_mutants(dataclasses.replace(entry, mutants={"absent": ("no such", "")}))


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
    table = {"paper": "cv", "source": "CV", **table}
    monkeypatch.setattr(statements, "texts", lambda: {"cv-new": table})
    with pytest.raises(ValueError, match=message):
        framework.claim("cv-new", **fields)(lambda rng, budget, value: at_most(0, 1))
    assert "cv-new" not in framework.registry()


def test_evidence_and_statements_go_together():
    for name, message in ((next(iter(CLAIMS)), "taken"), ("cv-unwritten", "no statement")):
        with pytest.raises(ValueError, match=message):
            framework.claim(name, mutants={"m": 1})(lambda rng, budget, value: at_most(0, 1))
    assert list(CLAIMS) == list(statements.texts())


def test_seeds_belong_to_claims():
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
    assert not unexpected(entry, outcome.tried)
    np.testing.assert_array_equal(outcome.stated.evidence.lhs, outcome.last.evidence.lhs)
    (line,) = unexpected(entry, framework.try_mutants(entry))
    assert "more" in line
    wrong = try_claim(dataclasses.replace(entry, stated=Form("x", 3.0)))
    (line,) = unexpected(entry, wrong.tried)
    assert "expected FALSE" in line


def test_unknown_pattern_lists_the_names():
    with pytest.raises(ValueError, match=next(iter(CLAIMS))):
        select("no such claim", CLAIMS)
    assert [entry.name for entry in select("cv-lemma-[12]", CLAIMS)] == ["cv-lemma-1", "cv-lemma-2"]


COMMANDS = set(
    re.findall(
        r"\w+",
        """frac tfrac sqrt le ge leq geq ne log exp sum int max min lim to Rightarrow mid parallel
        lVert rVert lvert rvert lfloor rfloor lbrace rbrace quad in hat tilde bar underline overline
        widetilde widehat mathbf odot otimes cdot top prime infty Big big det succeq gg approx nabla
        langle rangle wedge sim pi cos setminus psi textstyle ell mathbb
        mathcal qquad e i j F N O Var Tr tr rank eig""",
    )
)


def _symbols(text):
    """The letters and words of LaTeX that stand for something of the statement."""
    text = re.sub(r"\\text\{[^}]*\}", " ", latex.shown(text))
    named = r"\\(?:mathrm|operatorname|mathcal|mathbb)\{([^}]+)\}"
    found = re.findall(r"\\([a-zA-Z]+)|([A-Za-z])", re.sub(named, " ", text))
    return {*re.findall(named, text), *(a or b for a, b in found)} - COMMANDS


def _defined(text):
    """The symbols that a relation follows: what is set, or has a range."""
    relation = r"\s*(?::?=|<|>|\\(?:in|ll|le|ge|leq|geq|to)(?![a-z]))"
    marks = r"(?:[_^](?:\{[^}]*\}|\w))*(?:\([^)]*\))?(?:,\s*\w)*"
    name = rf"(?=(?:\\(?:mathrm\{{(\w+)\}}|([a-zA-Z]+))|(?<![a-zA-Z])([A-Za-z])){marks}{relation})"
    return {symbol for found in re.findall(name, latex.shown(text)) for symbol in found}


@pytest.mark.parametrize("name", CLAIMS)
def test_every_symbol_is_defined_in_the_text(name):
    entry = CLAIMS[name]
    paper = entry.paper.removesuffix("-early")
    notation = [words for part, words in statements.NOTATION.items() if part.startswith(paper)]
    notes = latex.shown(" ".join([entry.assumptions, *notation]))
    known = _symbols(" ".join(re.findall(r"\$([^$]*)\$", notes)))
    for form, _ in entry.forms.values():
        text = form.latex
        assert _symbols(text) <= known | _defined(entry.stated.latex + " , " + text)


def test_an_undefined_symbol_is_found():
    assert _symbols(r"⟦\tfrac{\eta_i}n⟧ \text{ if } \mathrm{RKE} = 1") == {"eta", "n", "RKE"}
    assert {"n", "eta"} <= _defined(r"n \ge 2, \eta_i = 1") and "k" not in _defined("n = k")


def test_documents_keep_what_was_written_by_hand(tmp_path):
    path = tmp_path / "theory.md"
    path.write_text("before\n<!--roots-->\nold\n<!--/roots-->\nafter\n")
    report.insert(path, {"roots": "new"})
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "new" in text and "old" not in text
    with pytest.raises(ValueError, match="marks"):
        report.insert(path, {"table": "new"})


def test_the_document_has_the_texts():
    """docs/theory.md has the verdict and every text of every claim and root error, and no other."""
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(CLAIMS)
    for name, entry in CLAIMS.items():
        words = "ours" if entry.kind is Kind.OURS else entry.label(entry.expected).lower()
        assert f"**{entry.source}**: {words}." in re.sub(r"\[|\]\(#.*\)", "", sections[name])
        assumed = latex.shown(entry.assumptions)[1:]
        for part in (entry.stated.text, entry.holding.text, assumed, entry.note):
            assert part in sections[name]
    for root in ROOTS.values():
        title = f"**[{root.title}](#{root.shown_by}).**"
        for part in (title, root.meaning, root.corrected, *re.split(r"\{.*?\}", root.example)):
            assert part in PAGE
    results, constants, _, readings = (
        sum(root.severity is severity for root in ROOTS.values()) for severity in roots.Severity
    )
    assert f"We found {len(ROOTS) - readings} errors" in PAGE
    for said in (f"{results} results", f"{constants} constants", f"and {readings} readings"):
        assert said in PAGE


@pytest.mark.slow
def test_the_document_is_what_the_code_writes(tmp_path):
    """But for measured digits: those outside formulas, links and bold, in lines that have them."""
    path = tmp_path / "theory.md"
    path.write_text(PAGE)
    outcomes = [*map(try_claim, CLAIMS.values())]
    assert not any(unexpected(outcome.claim, outcome.tried) for outcome in outcomes)
    report.insert(path, report.documents(outcomes, wrong_versions=0))
    whole = r"(?m)(^(?!We found|\*\*\[|(?:- )?Counterexample|(?:- )?\d+ (?:comp|seq)).+"
    parts = whole + r"|\$.*?\$|\*\*.*?\*\*|`.*?`|\]\(.*?\))|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    written, page = (re.sub(parts, lambda m: m[1] or "#", t) for t in (path.read_text(), PAGE))
    assert written.splitlines() == page.splitlines()


def _run(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "theory_checks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=HANG_S)


@pytest.mark.slow
def test_command_line(tmp_path):
    done = _run("--only=cv-lemma-[12]", "--seed=3", "--mutants")
    assert done.returncode == 0, done.stderr
    assert "cv-lemma-1" in done.stdout and "Held: 2 of 2 statements" in done.stdout
    assert "Unexpected: nothing." in done.stdout
    path = tmp_path / "mine"
    path.write_text("mine")
    both = _run("--only=cv-lemma-1", f"--document={path}")
    assert both.returncode == 2 and "--only" in both.stderr
    marks = _run(f"--document={path}")
    assert marks.returncode == 2 and "expected the marks" in marks.stderr
    assert path.read_text() == "mine"


# Wrong versions that are true for a part of the populations alone.


def _versions(text, *values):
    """What the formula gives for the last of these values in each version, by its words."""
    (formula,) = latex.formulas(text)
    for value in values:
        formula(value)
    return {
        words: [given[0](values[-1]) for ways in others for given in ways]
        for words, moved, others in narrowing.versions([formula])
        if moved or " of formula " in words
    }


def test_versions_by_hand():
    """Numbers at either end, equal weights, a matrix of one number, the largest term of a sum."""
    found = _versions(r"⟦\sum_in\omega_i^2⟧", *({"n": n, r"\omega_i": [0.9, 0.1]} for n in (2, 5)))
    np.testing.assert_allclose(found["n: one value"], [2 * 0.82, 5 * 0.82])
    np.testing.assert_allclose(found[r"\omega_i: all equal"], [5 * 0.5])
    np.testing.assert_allclose(found[r"\sum in place 0 of formula 1"], [5 * 0.81])
    gram = latex.matrix([[1.0, 0.5], [0.5, 1.0]])
    found = _versions(r"⟦\lVert K\rVert_F^2⟧", {"K": gram})
    np.testing.assert_allclose(found["K: 0 off the diagonal"], [2])
    np.testing.assert_allclose(found["K: one number"], [4, 1], rtol=0.01)
    found = _versions(r"⟦\lfloor n/2\rfloor+\sigma_i+\sigma_j⟧", {"n": 5, r"\sigma_i": 1})
    assert found[r"\lfloorn/2\rfloor in place 0 of formula 1"] == [4.5]
    assert found[r"\sigma_i: 0"] == [2] and not any("all equal" in words for words in found)


def test_kinds_are_wrong_in_turn():
    """A bound is tried at a hundredth of itself where a kind is met, and where it is not."""
    right = compared("<=", [(1, 2, 0.5), (3, 5, 1.0)], "order", cases={"even": [True, True]})
    verdicts = {words: judge(found).verdict for words, found in right.kinds()}
    wrong = {"order = 0.5", "not order = 0.5", "even"}
    assert {words for words, verdict in verdicts.items() if verdict is Verdict.FALSE} == wrong


def _flat(part):
    """Populations whose parameters have zeros in one of the sections."""
    decode = populations.decode

    def narrow(theta, shape):
        ends = np.cumsum([0, *(np.prod(section) for section in shape.sections)])
        theta = np.array(theta)
        theta[ends[part] : ends[part + 1]] = 0
        return decode(theta, shape)

    return narrow


PAIRS, SAMPLES = identities._pairs, mid._samples


def _on_lines(rng, trials, **named):
    return (each for each in SAMPLES(rng, 9 * trials, **named) if each[2] == 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "part", "narrow", "name", "found"),
    [
        (populations, "decode", _flat(6), "cv-g-chain-norm", "orthogonal images"),
        (identities, "_pairs", lambda rng, n=12: PAIRS(rng), "cv-eq-8", "n: one value"),
        (mid, "_samples", _on_lines, "mid-eq-13", "D: one value"),
        (concentration, "finite_populations", tuple, "cv-lemma-4", ""),
    ],
)
def test_a_narrowed_check_is_found_out(module, part, narrow, name, found, monkeypatch):
    """Where populations, sizes or dimensions are of one kind, a wrong version is not rejected."""
    entry = CLAIMS[name]
    monkeypatch.setattr(module, part, narrow)
    if name == "cv-lemma-4":
        tail, *_ = entry.stated.argument
        cells = [cell for cell in tail.cells if cell.n == 3]
        stated = dataclasses.replace(entry.stated, value=dataclasses.replace(tail, cells=cells))
        entry = dataclasses.replace(entry, stated=stated)
    tried = framework.try_narrowed(entry)
    missed = [words for words, version in tried.items() if not version.as_expected]
    assert any(found in words for words in missed)
