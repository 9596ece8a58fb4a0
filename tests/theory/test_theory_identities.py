"""What theory_checks.identities rests on, against hand, enumeration, SciPy and the library."""

import itertools
import math

import numpy as np
import pytest

import condvendi_jax as cv
from theory_checks import identities, numerics
from theory_checks.claim import double_precision


def test_three_labels_have_negative_information():
    """Outputs a a b of prompts r s r: both marginals (2/3, 1/3), three distinct pairs."""
    k_x, k_t = identities._same("aab"), identities._same("rsr")
    by_hand = 2 * math.log(3 / 2) - math.log(3)
    assert numerics.information(k_x, k_t, math.inf) == pytest.approx(by_hand)
    assert by_hand < -0.28


def test_conditional_rke_can_exceed_conditional_vendi():
    """Prompts a, a, b with three unlike outputs: 2^(2/3) at order 1 and 5/3 at order 2."""
    scores = [
        np.exp(numerics.conditional_entropy(np.eye(3), identities._same("aab"), order))
        for order in (1, 2)
    ]
    np.testing.assert_allclose(scores, [2 ** (2 / 3), 5 / 3])


@pytest.mark.parametrize("order", [2, 3])
def test_the_library_gives_the_traces_of_powers(order):
    """`decompose` and `rke` against products of Grams."""
    outputs, prompts = identities._pairs(np.random.default_rng(order))
    grams = identities._grams(np.random.default_rng(order))
    expected = identities._trace_forms(order, *grams)
    with double_precision():
        found = cv.decompose(
            outputs, prompts, output_kernel=cv.Gaussian(1.0), prompt_kernel=cv.Gaussian(0.7),
            order=order,
        )  # fmt: skip
        whole = cv.rke(outputs, kernel=cv.Gaussian(1.0)) if order == 2 else found.vendi
    np.testing.assert_allclose([found.conditional, found.information, whole], expected)


def _with_moments(mass, second, cap):
    """All triples in [0, cap] of this sum and sum of squares, on a fine grid of the circle."""
    radius = math.sqrt(max(second - mass**2 / 3, 0.0))
    first, other = np.array([1, -1, 0]) / math.sqrt(2), np.array([1, 1, -2]) / math.sqrt(6)
    angles = np.linspace(0, 2 * np.pi, 20001)[:, None]
    triples = mass / 3 + radius * (np.cos(angles) * first + np.sin(angles) * other)
    return triples[(triples >= -1e-12).all(1) & (triples <= cap + 1e-12).all(1)].clip(0)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 3.0])
def test_tails_are_extreme_among_all_triples(order):
    """Enumeration of a tail of three values, with and without a cap that binds."""
    for top in ([0.4], [0.3, 0.25], [0.5, 0.2]):
        rest = 1 - sum(top)
        for tail in itertools.product((0.1, 0.5, 0.9), repeat=3):
            p = np.array([*top, *(rest * np.array(tail) / sum(tail))])
            if p[len(top) :].max() > min(top):
                continue
            second = np.sum(p[len(top) :] ** 2)
            triples = _with_moments(rest, second, min(top))
            spectra = np.c_[np.tile(top, (len(triples), 1)), triples]
            found = numerics.entropy(spectra, order)
            low, high = sorted(
                numerics.entropy(end, order) for end in identities._extremes(p, len(top))
            )
            np.testing.assert_allclose([low, high], [found.min(), found.max()], atol=3e-4)
