"""Numerics behind the claims on the RKE paper, by hand and by enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import linalg

from theory_checks import claim, latex, rke
from theory_checks.numerics import unit_features


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
