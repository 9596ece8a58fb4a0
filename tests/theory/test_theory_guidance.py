"""The numerics behind the claims on guidance, by hand."""

import math

import numpy as np
import pytest

from theory_checks import claim, guidance
from theory_checks.evidence import Verdict


def test_difference_is_exact_for_quartics():
    assert guidance.difference(lambda h: h**4 + 3 * h + 1) == pytest.approx(3.0, abs=1e-10)


def test_truncated_entropy_by_hand():
    """diag(1/2, 1/4, 1/4) at t = 2: shift 1/8, weights 5/8 and 3/8; at t = n no shift."""
    value = guidance.truncated_entropy(np.diag([0.5, 0.25, 0.25]), 2)
    assert value == pytest.approx(-5 / 8 * math.log(5 / 8) - 3 / 8 * math.log(3 / 8))
    assert guidance.truncated_entropy(np.diag([0.5, 0.5]), 2) == pytest.approx(math.log(2))


def test_printed_gradient_by_hand():
    """diag(1/2, 1/3, 1/6), t = 2: shift 1/12, weights +-log(7/5)/2 on the first two."""
    gradient = guidance.printed_gradient(np.diag([1 / 2, 1 / 3, 1 / 6]), 2)
    half = 0.5 * math.log(7 / 5)
    np.testing.assert_allclose(gradient, np.diag([-half, half, 0.0]), atol=1e-12)


def test_where_equation_24_fails_by_hand():
    """The tie: the slope along diag(0, 1, -1) is log(5/3) / 2; repeated pairs: NaN for a slope."""
    matrix, along = np.diag([0.5, 0.25, 0.25]), np.diag([0.0, 1.0, -1.0])
    rise = guidance.truncated_entropy(matrix + 1e-6 * along, 2)
    slope = (rise - guidance.truncated_entropy(matrix, 2)) / 1e-6
    assert slope == pytest.approx(0.5 * math.log(5 / 3), abs=1e-5)
    printed = np.sum(guidance.printed_gradient(matrix, 2) * along)
    assert abs(printed) == pytest.approx(0.5 * math.log(5 / 3), abs=1e-5)
    # Eigenvalues of 0, 0, 1 with one prompt: 0 and (3 +- sqrt(1 + 8 k^2)) / 6, k = exp(-1/2).
    batch = guidance.Batch(np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1)))
    root = math.sqrt(1 + 8 * math.exp(-1))
    low, high = (3 - root) / 6, (3 + root) / 6
    slope = (math.log(high) - math.log(low)) * 8 * math.exp(-1) / (6 * root)
    assert np.isnan(guidance.printed_gradient(batch.product() / 3, 3)).any()
    assert batch.measured(batch.entropy(3))[0] == pytest.approx(slope)


def test_order_2_by_hand():
    """Two latents at distance h, equal prompts: score 2/(1 + e^(-h^2)), derivative by hand."""
    h = 0.8
    batch = guidance.Batch(np.array([[0.0], [h]]), np.zeros((2, 1)))
    near = math.exp(-(h**2))
    assert batch.conditional_rke() == pytest.approx(2 / (1 + near))
    expected = 4 * h * near / (1 + near) ** 2
    assert batch.measured(batch.conditional_rke)[0] == pytest.approx(expected)
    with claim.double_precision():
        assert batch.library()[0] == pytest.approx(expected)


def test_a_random_matrix_for_the_gradient_is_found_out(monkeypatch):
    """The check of -log A + beta I compares with differences, not with itself."""
    right = guidance.printed_gradient

    def wrong(matrix, *rest):
        return np.random.default_rng(0).normal(size=matrix.shape) * np.mean(right(matrix, *rest))

    monkeypatch.setattr(guidance, "printed_gradient", wrong)
    outcome = claim.try_claim(claim.registry()["cv-eq-24-singular"])
    assert outcome.stated.judgement.verdict is Verdict.FALSE
