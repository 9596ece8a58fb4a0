"""Quadratures of the spectrum of a small matrix, against dense linear algebra in float64."""

import jax.numpy as jnp
import numpy as np
from oracles import assert_close
from small_spectra import N, block, decaying, matrix, recurrences

from condvendi_jax.spectra import _quadrature as quadrature


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
