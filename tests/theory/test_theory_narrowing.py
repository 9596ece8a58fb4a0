"""Wrong versions that are true for a part of the populations: what they are, and what they find."""

import dataclasses

import numpy as np
import pytest

from theory_checks import claim, concentration, identities, latex, mid, narrowing, populations
from theory_checks.evidence import Verdict, compared, judge

CLAIMS = claim.registry()


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
    tried = claim.try_narrowed(entry)
    missed = [words for words, version in tried.items() if not version.as_expected]
    assert any(found in words for words in missed)
