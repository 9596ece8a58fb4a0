"""Quadratures of the spectrum of a small matrix, against dense linear algebra in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close
from scipy.optimize import linprog
from small_spectra import N, block, decaying, matrix, recurrences

from condvendi_jax import quadrature


def test_a_gauss_quadrature_is_exact_for_polynomials_of_twice_its_steps(x64):
    a, _ = matrix(decaying())
    probes, steps = block(3), 4
    state, alpha, beta = recurrences(a, jnp.zeros((N, 0)), probes, steps)
    nodes, weights = quadrature.gauss(alpha, beta[:, : steps - 1])
    assert_close(weights.sum(axis=1), np.ones(3))
    assert_close(state.squares, np.sum(np.square(probes), axis=0))
    dense, v = np.asarray(a.values), np.asarray(probes)
    for degree in range(2 * steps):
        exact = np.sum(v * (np.linalg.matrix_power(dense, degree) @ v), axis=0)
        found = np.sum(weights * nodes**degree, axis=1) * np.asarray(state.squares)
        assert_close(found, exact)
    off = np.sum(v * (np.linalg.matrix_power(dense, 2 * steps) @ v), axis=0)
    found = np.sum(weights * nodes ** (2 * steps), axis=1) * np.asarray(state.squares)
    assert (np.abs(found / off - 1) > 1e-9).any()


def test_gauss_and_radau_bracket_the_entropy(x64):
    """For -x log x: its even derivatives are negative and its odd ones positive."""
    a, q = matrix(decaying())
    spectrum, probes = decaying(), block(5)
    state, alpha, beta = recurrences(a, jnp.zeros((N, 0)), probes, 5)
    exact = ((q.T @ np.asarray(probes)) ** 2 * (-spectrum * np.log(spectrum))[:, None]).sum(axis=0)

    def entropy(rule):
        nodes, weights = rule
        return np.sum(weights * -nodes * np.log(np.where(nodes > 0, nodes, 1)), axis=1)

    upper = entropy(quadrature.gauss(alpha, beta[:, :4])) * np.asarray(state.squares)
    lower = entropy(quadrature.radau(alpha, beta)) * np.asarray(state.squares)
    assert (lower < exact).all()
    assert (exact < upper).all()
    nodes, weights = quadrature.radau(alpha, beta)
    assert np.abs(nodes[:, 0]).max() < 1e-12
    assert_close(weights.sum(axis=1), np.ones(5))


def test_tridiagonal_matrices_have_their_eigenvalues():
    generator = np.random.default_rng(6)
    alpha, beta = generator.normal(size=(3, 5)), generator.normal(size=(3, 4))
    values, vectors = quadrature.tridiagonal_eigen(alpha, beta)
    for k in range(3):
        dense = np.diag(alpha[k]) + np.diag(beta[k], 1) + np.diag(beta[k], -1)
        np.testing.assert_allclose(values[k], np.linalg.eigvalsh(dense), atol=1e-12)
        np.testing.assert_allclose(dense @ vectors[k], vectors[k] * values[k], atol=1e-12)


def test_a_negative_node_is_rounding_of_zero():
    nodes, _ = quadrature.gauss(np.array([[0.5, -1e-12]]), np.array([[0.0]]))
    assert nodes.min() == 0


def test_the_block_form_has_one_block_more_and_the_same_rank():
    generator = np.random.default_rng(7)
    factor = generator.normal(size=(6, 6))
    projected = factor @ factor.T
    other = generator.normal(size=(2, 2))
    remainder = other @ other.T
    extended = quadrature.with_null_space(projected, remainder, 0.0)
    assert extended.shape == (8, 8)
    np.testing.assert_array_equal(extended[:6, :6], projected)
    np.testing.assert_allclose(extended, extended.T)
    assert np.linalg.matrix_rank(extended, tol=1e-8) == 6
    assert np.linalg.eigvalsh(extended).min() > -1e-9
    coupling = extended[6:, 4:6]
    np.testing.assert_allclose(coupling @ coupling, remainder, atol=1e-10)
    # One block of width one is the scalar form.
    alpha, beta = np.array([[0.5, 0.3, 0.2]]), np.array([[0.1, 0.05, 0.02]])
    dense = np.diag(alpha[0]) + np.diag(beta[0, :2], 1) + np.diag(beta[0, :2], -1)
    nodes, _ = quadrature.radau(alpha, beta)
    extended = quadrature.with_null_space(dense, beta[:, 2:] ** 2, 0.0)
    np.testing.assert_allclose(np.linalg.eigvalsh(extended), nodes[0], atol=1e-12)


def test_quadratures_through_a_place_have_it_as_a_node_and_all_moments(x64):
    a, _ = matrix(decaying())
    state, alpha, beta = recurrences(a, jnp.zeros((N, 0)), block(4), 4)
    places = np.linspace(0.01, 0.25, 12)[:, None] * np.ones(4)
    nodes, weights = quadrature.through(alpha, beta, places)
    assert nodes.shape == weights.shape == (12, 4, 5)
    assert np.abs(nodes - places[..., None]).min(axis=-1).max() < 1e-8
    vectors = np.asarray(block(4))
    for degree in range(9):
        power = np.linalg.matrix_power(np.asarray(a.values), degree)
        exact = np.sum(vectors * (power @ vectors), axis=0) / np.asarray(state.squares)
        found = np.sum(weights * nodes**degree, axis=-1)
        np.testing.assert_allclose(found, np.tile(exact, (12, 1)), rtol=1e-7)


@pytest.mark.parametrize("kink", [0.05, 0.06, 0.08])
def test_at_a_kink_the_canonical_measures_are_extreme(kink, x64):
    """Against linear programming over all measures on a fine grid with the same moments."""
    spectrum = decaying(rate=0.9) * 3
    a, _ = matrix(spectrum)
    probes = block(2)
    _, alpha, beta = recurrences(a, jnp.zeros((N, 0)), probes, 3)
    nodes, weights = quadrature.canonical(alpha, beta, kink)
    found = np.sum(weights * np.maximum(nodes - kink, 0), axis=-1)
    # The line, as far out as a measure of these moments has anything to do.
    end = 1.0
    grid = np.union1d(np.linspace(-end, end, 6001), nodes[-1])
    conditions = np.polynomial.chebyshev.chebvander(grid / end, 6).T
    for probe in range(2):
        met = np.polynomial.chebyshev.chebvander(nodes[-1, probe] / end, 6).T @ weights[-1, probe]
        least, most = (
            sign * linprog(sign * np.maximum(grid - kink, 0), A_eq=conditions, b_eq=met).fun
            for sign in (1, -1)
        )
        assert found[:, probe].min() == pytest.approx(least, abs=1e-5)
        assert 0.88 * (most - least) < np.ptp(found[:, probe]) < 1.01 * (most - least)
