"""Claims on the guidance gradients: verdicts, values by hand, and that they can fail."""

import math

import numpy as np
import pytest

from theory_checks import gradients
from theory_checks.claim import Verdict, registry, try_claim

CLAIMS = {name: entry for name, entry in registry().items() if entry.theme == "gradients"}


def verdict(name: str) -> Verdict:
    return try_claim(CLAIMS[name]).judgement.verdict


@pytest.mark.parametrize("name", CLAIMS)
def test_verdict_stands_under_another_seed(name):
    """The registry's own test runs seed 0."""
    outcome = try_claim(CLAIMS[name], seed=1)
    assert outcome.judgement.verdict is outcome.claim.expected, outcome.judgement


def test_coverage():
    sources = {entry.source for entry in CLAIMS.values()}
    assert {f"CV eq. {number}" for number in (14, 21, 24, 25, 26, 27)} <= sources
    assert any("Conditional-RKE guidance" in source for source in sources)


def test_false_claims_are_corrected():
    corrected = {entry.corrects for entry in CLAIMS.values()}
    false = {name for name, entry in CLAIMS.items() if entry.expected is Verdict.FALSE}
    assert false == corrected - {None}


def test_difference_is_exact_for_quartics():
    assert gradients.difference(lambda h: h**4 + 3 * h + 1) == pytest.approx(3.0, abs=1e-10)


def test_truncated_entropy_by_hand():
    """diag(1/2, 1/4, 1/4) at t = 2: shift 1/8, weights 5/8 and 3/8."""
    value = gradients.truncated_entropy(np.diag([0.5, 0.25, 0.25]), 2)
    assert value == pytest.approx(-5 / 8 * math.log(5 / 8) - 3 / 8 * math.log(3 / 8))
    # t = n: no shift, the von Neumann entropy.
    assert gradients.truncated_entropy(np.diag([0.5, 0.5]), 2) == pytest.approx(math.log(2))


def test_printed_gradient_by_hand():
    """diag(1/2, 1/3, 1/6), t = 2: shift 1/12, weights +-log(7/5)/2 on the first two."""
    gradient = gradients.printed_gradient(np.diag([1 / 2, 1 / 3, 1 / 6]), 2)
    half = 0.5 * math.log(7 / 5)
    np.testing.assert_allclose(gradient, np.diag([-half, half, 0.0]), atol=1e-12)


def test_counterexample_of_the_tie():
    """diag(1/2, 1/4, 1/4) along diag(0, 1, -1): +-log(5/3)/2 on the two sides."""
    example = try_claim(CLAIMS["gradient-eq-24-tie"]).judgement.counterexample
    assert example["derivative to the right"] == pytest.approx(0.5 * math.log(5 / 3), abs=1e-8)
    assert example["derivative to the left"] == pytest.approx(-0.5 * math.log(5 / 3), abs=1e-8)


def test_conditional_rke_gradient_by_hand():
    """Two latents at distance h, equal prompts: score 2/(1 + e^{-h^2}), derivative by hand."""
    batch = gradients.Batch(np.random.default_rng(0), 2, n=2)
    h, batch.bandwidth, batch.gram_t = 0.8, 1.0, np.ones((2, 2))
    batch.z = np.array([[0.0, 0.0, 0.0], [h, 0.0, 0.0]])
    expected = 4 * h * math.exp(-(h**2)) / (1 + math.exp(-(h**2))) ** 2
    np.testing.assert_allclose(gradients._rke_repulsion(batch), [expected, 0, 0], atol=1e-12)


original_gradient, original_slopes = gradients.printed_gradient, gradients.kernel_gradient


def _without_mean(matrix, truncation):
    """Eq. 24 with the shift held constant: no mean logarithm."""
    values, vectors = np.linalg.eigh(matrix)
    top, basis = values[::-1][:truncation], vectors[:, ::-1][:, :truncation]
    return -(basis * np.log(top + (1 - top.sum()) / truncation)) @ basis.T


@pytest.mark.parametrize(
    ("function", "wrong", "claims"),
    [
        (
            "printed_gradient",
            lambda matrix, t: -original_gradient(matrix, t),
            ["gradient-eq-24", "gradient-eq-24-inner-ties", "gradient-eq-26", "gradient-eq-27"],
        ),
        ("printed_gradient", _without_mean, ["gradient-eq-24", "gradient-eq-26", "gradient-eq-27"]),
        (
            "kernel_gradient",
            lambda z, width: 0.5 * original_slopes(z, width),
            [
                "gradient-eq-27",
                "gradient-conditional-rke-latent",
                "gradient-eq-24-singular-corrected",
            ],
        ),
    ],
)
def test_a_wrong_formula_turns_the_claim_red(monkeypatch, function, wrong, claims):
    monkeypatch.setattr(gradients, function, wrong)
    for name in claims:
        assert verdict(name) is Verdict.FALSE, name
