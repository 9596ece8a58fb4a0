"""Claims on the MID paper: verdicts, counterexamples by hand, and that they can fail."""

import math
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from hypothesis.extra import numpy as arrays
from scipy import stats

from theory_checks import mid
from theory_checks.claim import Verdict, registry, try_claim

CLAIMS = {name: entry for name, entry in registry().items() if entry.theme == "mid"}


def verdict(name: str, seed: int = 0) -> Verdict:
    return try_claim(CLAIMS[name], seed=seed).judgement.verdict


@pytest.mark.parametrize("name", CLAIMS)
def test_verdict_stands_under_another_seed(name):
    """The registry's own test runs seed 0."""
    outcome = try_claim(CLAIMS[name], seed=1)
    assert outcome.judgement.verdict is outcome.claim.expected, outcome.judgement


def test_coverage():
    """Every numbered equation from 2 to 25, some under the number that they repeat."""
    sources = " ".join(entry.source for entry in CLAIMS.values())
    found = {int(number) for number in re.findall(r"\d+", sources)}
    assert "eq. 16-21" in sources
    assert set(range(2, 26)) - found <= {8, 10, 17, 18, 19, 20}, "8 is RefCLIP-S, 10 is 1"


def test_false_claims_are_corrected():
    corrected = {entry.corrects for entry in CLAIMS.values()}
    false = {name for name, entry in CLAIMS.items() if entry.expected is Verdict.FALSE}
    assert false == corrected - {None}


def test_counterexample_of_eq_13():
    """Samples 1 and 3: mean 2, variance 1, (1/2)(1 + 9) = 5, and D = 1."""
    x = np.array([[1.0], [3.0]])
    mean, cov = mid.moments(x)
    assert (mean[0], cov[0, 0]) == (2.0, 1.0)
    assert np.sum(x**2) / 2 == 5.0
    assert mid.mahalanobis(x, mean, cov).mean() == 1.0


def test_counterexample_of_eq_6():
    """Rows -1 and 1 about N(0, 1): mean distance 1; with variance 2 (N - 1) eq. 6 says 2."""
    rows = np.array([[-1.0], [1.0]])
    assert mid.mahalanobis(rows, np.zeros(1), np.eye(1)).mean() == 1.0
    assert np.cov(rows.T) - 1 + 1 == 2.0


def test_counterexample_of_eq_7():
    """x shared, y moved by 1, no correlation: MID 0, but eq. 7 gives -KL(y_hat || y) = -1/2."""
    example = try_claim(CLAIMS["mid-eq-7-condition-x"]).judgement.counterexample
    assert example["lhs"] == pytest.approx(0.0, abs=1e-12)
    assert example["rhs"] == pytest.approx(-0.5)
    example = try_claim(CLAIMS["mid-eq-7-separate-sets"]).judgement.counterexample
    assert example["lhs"] == pytest.approx(0.0, abs=1e-12)
    assert example["rhs"] == pytest.approx(0.5 - 1.0)


def test_counterexample_of_the_ridge():
    """Pairs (1, 1) and (-1, -1), eps = 1: D^2(x) = D^2(y) = 1/2, D^2(z) = 2/3."""
    example = try_claim(CLAIMS["mid-expectation-ridge"]).judgement.counterexample
    assert example["lhs"] == pytest.approx(0.5 * (0.5 + 0.5 - 2 / 3))


def test_counterexample_of_the_divergence():
    """Correlation 1/2, pairs +-(2, 2): D^2(x) = D^2(y) = 4, D^2(z) = 8 / (3/2)."""
    example = try_claim(CLAIMS["mid-divergence"]).judgement.counterexample
    cov = np.array([[1.0, 0.5], [0.5, 1.0]])
    points = np.array([[2.0, 2.0], [-2.0, -2.0]])
    ratio = stats.multivariate_normal.logpdf(points, cov=cov) - stats.norm.logpdf(points).sum(1)
    assert example["lhs"] == pytest.approx(ratio.mean())
    assert example["rhs"] == pytest.approx(-0.5 * math.log(0.75))
    assert example["lhs"] > example["rhs"]


def test_moments_and_divergence():
    sample = np.random.default_rng(0).normal(size=(9, 3))
    mean, cov = mid.moments(sample)
    np.testing.assert_allclose(cov, np.cov(sample.T, bias=True), rtol=1e-12)
    assert mid.divergence((mean, cov), (mean, cov)) == pytest.approx(0.0, abs=1e-12)
    # N(0, 1) against N(1, 4): (1/4 - 1 + 1/4 + log 4) / 2.
    value = mid.divergence((np.zeros(1), np.eye(1)), (np.ones(1), 4 * np.eye(1)))
    assert value == pytest.approx(0.5 * (0.25 - 1 + 0.25 + math.log(4)))


def test_biases_that_the_note_quotes():
    """n = 30000, d = 768 + 768: +10 nats of plug-in information, -21 nats of fresh distances."""
    assert mid.plug_in_bias(30000, 768, 768) == pytest.approx(10.1, abs=0.3)
    assert mid.fresh_excess(30000, 768, 768) == pytest.approx(-21.3, abs=0.3)
    assert mid.plug_in_bias(10**6, 3, 2) == pytest.approx(3 * 2 / 2e6, rel=1e-3)
    assert mid.fresh_excess(10**6, 3, 2) == pytest.approx(-3 * 2 / 1e6, rel=1e-3)


@hypothesis.settings(deadline=None, max_examples=150, derandomize=True)
@hypothesis.given(arrays.arrays(float, (3, 7), elements=strategies.floats(-5, 5)))
def test_mid_never_exceeds_the_evaluated_information(rows):
    """One marginal shared: MID <= I(X_hat; Y_hat), for any seven pairs."""
    x, y, x_hat = (row[:, None] for row in rows)
    for pairs in ((x, y), (x_hat, y)):
        values = np.linalg.eigvalsh(mid.moments(np.hstack(pairs))[1])
        hypothesis.assume(values[0] > 1e-3)
    terms = mid._mid_and_terms((x, y), (x_hat, y))
    assert terms["mid"] <= terms["information_hat"] + 1e-8 * max(1.0, abs(terms["mid"]))


@pytest.mark.parametrize(
    ("function", "wrong", "claims"),
    [
        (
            "gaussian_information",
            lambda joint, d: 0.51 / 0.5 * mid_information(joint, d),
            ["mid-eq-3", "mid-eq-3-canonical", "mid-eq-4", "mid-eq-5", "mid-eq-23", "mid-eq-24"],
        ),
        (
            "divergence",
            lambda p, q: 0.99 * mid_divergence(p, q),
            ["mid-kl", "mid-eq-7", "mid-eq-23", "mid-eq-7-separate-sets-corrected"],
        ),
        (
            "mahalanobis",
            lambda *args: 1.01 * mid_distance(*args),
            ["mid-eq-2", "mid-eq-6", "mid-eq-13-corrected", "mid-condition-distance"],
        ),
        ("plug_in_bias", lambda *sizes: 0.0, ["mid-real-pairs-corrected"]),
        ("fresh_excess", lambda *sizes: 0.0, ["mid-real-pairs-corrected"]),
        (
            "pointwise",
            lambda x, y, reference: mid_pointwise(x, y, reference) + 0.01,
            ["mid-eq-4", "mid-eq-14", "mid-negative-xmi-corrected"],
        ),
    ],
)
def test_a_wrong_formula_turns_the_claim_red(monkeypatch, function, wrong, claims):
    monkeypatch.setattr(mid, function, wrong)
    # The centred trace is computed without `mahalanobis`; all others must fail.
    for name in claims:
        expected = Verdict.HOLDS if name == "mid-eq-13-corrected" else Verdict.FALSE
        assert verdict(name) is expected, name


mid_information, mid_divergence = mid.gaussian_information, mid.divergence
mid_distance, mid_pointwise = mid.mahalanobis, mid.pointwise
