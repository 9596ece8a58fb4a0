"""The MID paper's numerics by hand, by SciPy and by quadrature, and cases beyond the claims."""

import math

import numpy as np
import pytest
from scipy import integrate, special

from theory_checks import claim, mid


def _bias(n, d_x, d_y):
    form, *_ = claim.registry()["mid-real-pairs"].stated.argument
    return mid.plug_in_bias(form, n, d_x, d_y)


def _loss(n, d_x, d_y):
    _, form, _ = claim.registry()["mid-real-pairs"].stated.argument
    return -form({"n": n, "d_x": d_x, "d_y": d_y})


def test_moments_and_divergence_by_hand():
    """N(0, 1) against N(1, 4): (1/4 - 1 + 1/4 + log 4) / 2."""
    sample = np.random.default_rng(0).normal(size=(9, 3))
    mean, cov = mid.moments(sample)
    np.testing.assert_allclose(cov, np.cov(sample.T, bias=True), rtol=1e-12)
    assert mid.divergence((mean, cov), (mean, cov)) == pytest.approx(0.0, abs=1e-12)
    value = mid.divergence((np.zeros(1), np.eye(1)), (np.ones(1), 4 * np.eye(1)))
    assert value == pytest.approx(0.5 * (0.25 - 1 + 0.25 + math.log(4)))


def test_canonical_correlations_by_hand():
    """Three pairs of correlation 1/2: exaggerated outputs are twice the conditions."""
    rho, outwards = mid.canonical(mid.moments(mid.THREE)[1], 1)
    np.testing.assert_allclose([rho[0], outwards[0, 0]], [0.5, 2.0])


def test_counterexamples_by_hand():
    """Real pairs score -log(3/4)/2, exaggerated ones half a nat more."""
    examples = {
        name: claim.try_claim(claim.registry()[name]).stated.judgement.smallest
        for name in ("mid-divergence", "mid-eq-7-any-pairs", "mid-eq-8", "mid-xmi")
    }
    real = -0.5 * math.log(0.75)
    for name, sides in {
        "mid-divergence": (real + 0.5, real),
        "mid-eq-7-any-pairs": (0.0, -0.5), "mid-eq-8": (0.75, 0.0), "mid-xmi": (real, -real),
    }.items():  # fmt: skip
        found = examples[name]
        assert found is not None
        assert (found["lhs"], found["rhs"]) == pytest.approx(sides, abs=1e-12), name


def test_equality_needs_the_condition_given_the_output():
    """x_hat = 3x, uncorrelated: no loss, though the outputs given the conditions differ."""
    hat, of = mid.moments(mid.FOUR * [3.0, 1.0]), mid.moments(mid.FOUR)
    turned = [(m[::-1], c[::-1, ::-1]) for m, c in (hat, of)]
    assert mid.conditional_gap(hat, of, 1) == pytest.approx(0.0, abs=1e-12)
    assert mid.conditional_gap(turned[0], turned[1], 1) == pytest.approx(4 - math.log(3))
    assert mid.log_ratio(mid.FOUR * [3.0, 1.0], of, 1).mean() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("n", [5, 12, 100])
def test_bias_of_independent_coordinates_by_quadrature(n):
    """The sample correlation r of n independent pairs has density (1 - r^2)^((n-4)/2) / B."""
    norm = special.beta(0.5, (n - 2) / 2)
    power = (n - 4) / 2
    mean, _ = integrate.quad(lambda r: -0.5 * np.log1p(-r * r) * (1 - r * r) ** power, -1, 1)
    assert _bias(n, 1, 1) == pytest.approx(mean / norm, rel=1e-6)


def test_biases_are_symmetric_and_of_first_order():
    assert _bias(50, 3, 7) == pytest.approx(_bias(50, 7, 3))
    assert _bias(10**6, 3, 2) == pytest.approx(3e-6, rel=1e-3)
    assert _loss(10**6, 3, 2) == pytest.approx(-6e-6, rel=1e-3)
