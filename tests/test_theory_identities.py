"""The checks of theory_checks.identities can fail: each defect below turns one red."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theory_checks import claim, identities, oracle
from theory_checks.claim import Verdict, try_claim

CLAIMS = claim.registry()


def _verdict(name):
    return try_claim(CLAIMS[name]).judgement.verdict


def _rescale(eigenvalues, t):
    top = -np.sort(-eigenvalues, axis=-1)[..., :t]
    return top / top.sum(axis=-1, keepdims=True)


def _base_two(eigenvalues, order=1.0, _entropy=oracle.entropy):
    return _entropy(eigenvalues, order) / np.log(2)


def _wrong_bandwidth(points, bandwidth, _gram=oracle.gaussian_gram):
    return _gram(points, 1.01 * bandwidth)


@pytest.mark.parametrize(
    ("name", "attribute", "defect"),
    [
        ("cv-a42-shift", "truncate", _rescale),
        ("cv-eq-13-gap", "truncate", _rescale),
        ("cv-eq-4", "entropy", _base_two),
        ("cv-eq-8", "gaussian_gram", _wrong_bandwidth),
        ("cv-eq-11-product", "gaussian_gram", _wrong_bandwidth),
        ("cv-eq-11-conditional", "entropy", _base_two),
    ],
)
def test_a_defect_is_seen(monkeypatch, name, attribute, defect):
    """A broken oracle or definition changes the verdict."""
    monkeypatch.setattr(oracle, attribute, defect)
    assert _verdict(name) is Verdict.FALSE


def test_three_points_have_negative_information():
    """The counterexample to CV-early eq. 6 by hand: u = k_T(1,3)^2, the far output alone."""
    u = np.exp(-0.25)
    mean_x, mean_t, mean_joint = 5 / 9, (3 + 4 * u + 2 * u**4) / 9, (3 + 2 * u**4) / 9
    by_hand = np.log(mean_joint / (mean_x * mean_t))
    assert by_hand < -0.01
    np.testing.assert_allclose(oracle.information(*identities._three_points(), 2), by_hand)


def test_algorithm_1_scales_with_n():
    """The printed score is n^4 times the right one at order 2."""
    k = oracle.gaussian_gram(np.random.default_rng(0).normal(size=(5, 2)), 1.0)
    printed = np.exp(identities._algorithm_1(k, k, 2.0, 1 / 5))
    np.testing.assert_allclose(printed, 5**4 * np.exp(oracle.conditional_entropy(k, k, 2)))


@given(
    st.integers(2, 5).flatmap(
        lambda n: hnp.arrays(float, 2 * n, elements=st.floats(-5, 5, width=16))
    )
)
def test_signs_property(coordinates):
    """H(X|T) >= 0 at every order; I(X;T) >= 0 at order 1."""
    k_x, k_t = identities._line_grams(coordinates)
    for order in (1.0, 1.5, 2.0, np.inf):
        assert oracle.conditional_entropy(k_x, k_t, order) >= -1e-9
    assert oracle.information(k_x, k_t, 1.0) >= -1e-9
