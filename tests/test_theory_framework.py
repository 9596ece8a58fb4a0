"""The claims as data: verdicts are computed, names unique, links good, and the report is whole."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from condvendi_jax import files
from theory_checks import claim as framework
from theory_checks import report
from theory_checks.__main__ import select
from theory_checks.claim import (
    Claim,
    Verdict,
    at_most,
    binomial_tail,
    equal,
    judge,
    limit,
    probability,
    rate,
    try_claim,
)

CLAIMS = framework.registry()
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_has_its_verdict(name):
    """Every verdict of the registry, at the quick budget; a false claim has a counterexample."""
    outcome = try_claim(CLAIMS[name])
    assert outcome.judgement.verdict is CLAIMS[name].expected, outcome.judgement
    if CLAIMS[name].expected is Verdict.FALSE:
        assert outcome.judgement.counterexample


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_is_complete(name):
    """Every claim says where it stands, and a false one says why."""
    entry = CLAIMS[name]
    assert report.paper_of(entry) and entry.statement
    assert "\n" not in entry.note
    if entry.expected is Verdict.FALSE:
        assert entry.note


def test_correction_links_go_both_ways():
    """A correction names a claim that is false as printed, and is found from it."""
    for name, entry in CLAIMS.items():
        if entry.corrects:
            assert CLAIMS[entry.corrects].expected is Verdict.FALSE, name
            assert entry.expected in (Verdict.HOLDS, Verdict.VACUOUS), name
            assert name in framework.corrections(entry.corrects)


def test_verdicts_of_inequalities():
    """Slack, looseness, violation and premise each decide."""
    one = np.ones(4)
    assert judge(at_most(one, 2 * one)).verdict is Verdict.HOLDS
    assert judge(at_most(one, 200 * one)).verdict is Verdict.VACUOUS
    assert judge(at_most(one, 2 * one, trivial=1.5)).verdict is Verdict.VACUOUS
    assert judge(at_most(2 * one, one, premise_met=False)).verdict is Verdict.PREMISE_UNMET
    assert judge(at_most(one, [2, 2, 2, np.nan])).verdict is Verdict.FALSE
    wrong = judge(at_most([1, 3, 2], 1.5, size=[1, 3, 2], parameters={"n": np.array([1, 3, 2])}))
    assert wrong.verdict is Verdict.FALSE
    assert wrong.counterexample == {"n": 2, "lhs": 2.0, "rhs": 1.5}
    assert wrong.violations == 2 and wrong.slack == -1.5


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
    assert judge(rate(steps**-0.5, (-0.5, -0.5), steps)).verdict is Verdict.HOLDS
    assert judge(rate(steps**-0.5, (-1.0, -0.6), steps)).verdict is Verdict.FALSE
    assert judge(rate(steps**-0.5 * noise**2, (-0.5, -0.5), steps)).verdict is Verdict.INCONCLUSIVE


def test_verdicts_of_probabilities():
    """Failures are compared with a binomial at the stated false-alarm rate."""
    uniform = np.random.default_rng(0).random((5, 400))
    assert judge(probability(uniform, 0.9, 0.1)).verdict is Verdict.HOLDS
    assert judge(probability(uniform, 0.7, 0.1)).verdict is Verdict.FALSE
    assert judge(probability(uniform, 200.0, 0.1)).verdict is Verdict.VACUOUS


def test_binomial_tail_against_enumeration():
    """P(Bin(4, 1/2) >= 3) = 5/16, and the ends."""
    assert np.isclose(binomial_tail(3, 4, 0.5), 5 / 16)
    assert binomial_tail(0, 4, 0.5) == 1.0
    assert binomial_tail(1, 4, 0.0) == 0.0


def test_names_are_unique():
    """A second claim of the same name is refused."""
    taken = next(iter(CLAIMS))
    with pytest.raises(ValueError, match="unique"):
        framework.claim(name=taken, source="", statement="", expected=Verdict.HOLDS)(lambda r, b: 0)


def test_seeds_belong_to_claims():
    """A claim's numbers depend on the seed and on its name, not on what ran before."""

    def draw(rng, budget):
        return at_most(rng.random(3), 1.0)

    entry = Claim("cv-a", "s", "x", draw, Verdict.HOLDS)
    other = Claim("cv-b", "s", "x", draw, Verdict.HOLDS)
    first = try_claim(entry).evidence.lhs
    np.testing.assert_array_equal(first, try_claim(entry).evidence.lhs)
    assert not np.array_equal(first, try_claim(other).evidence.lhs)
    assert not np.array_equal(first, try_claim(entry, seed=1).evidence.lhs)


def test_json_replaces_what_it_cannot_hold(tmp_path):
    """NaN and infinity become null with a reason, and the file is whole or absent."""
    entry = Claim("cv-a", "s", "x", lambda r, b: at_most(1.0, np.inf), Verdict.HOLDS)
    record = report.to_json([try_claim(entry)], seed=0, budget="quick")
    assert record["claims"][0]["slack"] is None
    assert "infinite" in record["claims"][0]["null_because"]["slack"]
    path = tmp_path / "report.json"
    files.write_json(path, record)
    assert json.loads(path.read_text())["counts"]
    with pytest.raises(TypeError):
        files.write_json(path, {"bad": object()})
    assert json.loads(path.read_text()) == json.loads(json.dumps(record))
    assert [part.name for part in path.parent.iterdir()] == ["report.json"]


def test_unknown_pattern_lists_the_names():
    """A bad --only names every claim."""
    with pytest.raises(ValueError, match=next(iter(CLAIMS))):
        select("no such claim", CLAIMS)
    assert [entry.name for entry in select("cv-lemma-[12]", CLAIMS)] == ["cv-lemma-1", "cv-lemma-2"]


def test_table_of_the_documentation_is_current():
    """docs/theory.md holds one line for every claim, with the verdict that the registry expects."""
    text = (ROOT / "docs" / "theory.md").read_text()
    for name, entry in CLAIMS.items():
        (line,) = (line for line in text.splitlines() if f"<br>`{name}` |" in line)
        assert f"| {entry.expected.value} |" in line


def _run(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "theory_checks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_command_line(tmp_path):
    """The command prints a table, writes JSON, and refuses what it does not know."""
    path = tmp_path / "report.json"
    done = _run("--only=cv-lemma-a", f"--output={path}", "--seed=3")
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["seed"] == 3
    names = [entry["name"] for entry in record["claims"]]
    assert "cv-lemma-a" in names and "FALSE AS PRINTED" in done.stdout
    bad = _run("--only=nothing")
    assert bad.returncode == 2 and "cv-lemma-a" in bad.stderr
