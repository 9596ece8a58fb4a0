"""Numerics behind the claims on the RKE paper, by hand, by quadrature and by enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, linalg

from theory_checks import claim, latex, rke
from theory_checks.numerics import covariance, gaussian, unit_features


def test_pair_mean_by_quadrature():
    """N(1, 2) and sigma = 1, the smallest counterexample to Theorem 1."""

    def integrand(z):
        return math.exp(-(z**2) - (z - 1) ** 2 / 4) / math.sqrt(4 * math.pi)

    expected = integrate.quad(integrand, -20, 20)[0]
    assert rke.pair_mean(np.ones(1), 2 * np.eye(1), 1.0) == pytest.approx(expected, rel=1e-10)
    assert expected == pytest.approx(5**-0.5 * math.exp(-1 / 5))


def test_both_ways_of_writing_theorem_1():
    """Two modes N(0, 1) and N(1, 1), bandwidth 1: the exponent is 1/5, as printed 1/2."""
    entry = claim.registry()["rke-theorem-1"]
    mean, five, *wrong = entry.stated.argument
    compact, *parts = entry.holding.argument
    gap, one = np.ones(1), np.ones((2, 1, 1))
    for forms, exponent in (((compact,), 0.2), ((five, *parts), 0.2), ((five, *wrong), 0.5)):
        value = rke.closed_form((mean, *forms), gap, one, 1.0)
        assert value == pytest.approx(5**-0.5 * math.exp(-exponent))
    rng = np.random.default_rng(0)
    for d, sigma in ((1, 0.5), (2, 1.0), (4, 2.0)):
        covs = np.array([covariance(rng, d) + 0.1 * np.eye(d) for _ in range(2)])
        values = [
            rke.closed_form((mean, *forms), np.ones(d), covs, sigma)
            for forms in ((compact,), (five, *parts))
        ]
        assert values[0] == pytest.approx(values[1])


def test_order_two_needs_nested_ranges_only():
    """B need not be invertible; by hand where A and B commute."""
    a, b = np.diag([0.5, 0.5, 0.0]), np.diag([0.2, 0.8, 0.0])
    names = {"A": latex.matrix(a), "B^+": latex.matrix(np.diag([5.0, 1.25, 0.0]))}
    score = _forms("rke-order-2")[0](names)
    assert score == pytest.approx(math.log(0.25 / 0.2 + 0.25 / 0.8))
    general = _forms("rke-theorem-7")[-1]
    names |= {"B": latex.matrix(b + 1e-9 * np.eye(3)), r"\alpha": 2.0}
    assert general(names) == pytest.approx(score, abs=1e-7)


def test_fidelity_against_matrix_roots():
    rng = np.random.default_rng(0)
    x, y = unit_features(rng, 5, 4), unit_features(rng, 6, 4)
    root = linalg.sqrtm(y.T @ y / 6)
    expected = np.trace(np.real(linalg.sqrtm(root @ x.T @ x @ root / 5)))
    formula = claim.registry()["rke-theorem-7"].stated.argument[0]
    score = formula({"K_{XY}": x @ y.T / math.sqrt(30)})
    assert math.exp(-score / 2) == pytest.approx(expected, rel=1e-6)


def test_energies_of_modes_by_enumeration():
    modes = rke.Modes(np.full(2, 0.5), np.array([0.0, 0.8]), np.array([0.3, 0.7]), 2)
    signs = np.array(list(itertools.product((-1, 1), repeat=2)))
    points = modes.means[:, None, None] + modes.spreads[:, None, None] * signs
    exact, at_centres = modes.energies()
    expected = [[np.mean(gaussian(p, q) ** 2) for q in points] for p in points]
    np.testing.assert_allclose(exact, expected, rtol=1e-12)
    np.testing.assert_allclose(at_centres[0, 1], math.exp(-2 * 0.8**2))


def test_overlaps_of_points_are_the_kernel():
    ones, zero = np.full(2, 0.5), np.zeros(2)
    pair = rke.Modes(ones, np.array([0.0, 2.0]), zero), rke.Modes(ones, np.array([0.5, 3.0]), zero)
    centres = gaussian(pair[0].means[:, None], pair[1].means[:, None])
    np.testing.assert_allclose(rke.overlaps(*pair, 0.5), centres, atol=1e-10)


def test_laws_by_enumeration():
    """Mean of three draws from modes of 3/4 and 1/4; the bias is exact."""
    cell = rke.far_modes(0.75, True, 3)
    p, (f, logs) = cell.population, cell.outcomes
    samples = itertools.product((0, 1), repeat=3)
    mean = sum(
        np.prod(np.where(s, 0.75, 0.25)) * (np.mean(s) ** 2 + (1 - np.mean(s)) ** 2)
        for s in map(np.array, samples)
    )
    energy = 0.75**2 + 0.25**2
    assert np.exp(logs) @ rke.energy_error(p, f) + energy == pytest.approx(mean)
    assert mean == pytest.approx(energy + (1 - energy) / 3)


def _forms(name):
    """The formulas of a statement, without those of its assumptions."""
    return latex.formulas(claim.registry()[name].stated.latex)


def test_constant_of_theorem_6_is_one():
    """The proved bound is below the printed one with constant 1, from n = 6 on."""
    n = np.concatenate([np.arange(6, 200), np.geomspace(200, 1e8, 60).astype(int)])
    ours, printed = _forms("rke-theorem-6-sharper"), _forms("rke-theorem-6")
    for delta in np.concatenate([np.linspace(0.01, 1, 60), np.geomspace(1e-40, 0.01, 80)]):
        sides = (rke.energy_bound(forms, n, delta, 0.0) for forms in (ours, printed))
        assert np.all(next(sides) < next(sides))


@pytest.mark.parametrize("name", ["Laplace", "exponential", "uniform", "two normals"])
def test_energies_of_densities(name):
    """Closed forms against the double sum over a grid."""
    densities = {
        "Laplace": (lambda x: np.exp(-abs(x)) / 2, -25, 25),
        "exponential": (lambda x: np.exp(-x), 0, 35),
        "uniform": (np.ones_like, 0, 1),
        "two normals": (
            lambda x: np.exp(-((abs(x) - 1) ** 2) / 2) * (1 + np.exp(-2 * abs(x))) / 5.0132565,
            -10,
            10,
        ),
    }
    density, low, high = densities[name]
    grid = np.linspace(low, high, 4000, endpoint=False) + (high - low) / 8000
    mass = density(grid) * (high - low) / 4000
    energy = mass @ np.exp(-((grid[:, None] - grid) ** 2) / 1.3**2) @ mass
    assert rke.DENSITIES[name].energy(1.3) == pytest.approx(energy, rel=1e-4)
    assert rke.DENSITIES[name].square == pytest.approx(mass @ density(grid), rel=1e-4)
