"""Krylov spaces, recurrences and quadratures of a small matrix, against dense linear algebra."""

import jax.numpy as jnp
import numpy as np
from oracles import assert_close

from condvendi_jax.grams.operators import Dense, together
from condvendi_jax.spectra import krylov

N = 40
DECAYING = 0.6 ** np.arange(N) / np.sum(0.6 ** np.arange(N))
ROTATION, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(N, N)))


def matrix(spectrum, dtype=np.float64):
    """An operator of this spectrum, whose eigenvectors are `ROTATION`, and its entries."""
    a = (ROTATION * spectrum) @ ROTATION.T
    return together([Dense(jnp.asarray(N * a, dtype))]), a


def draw(width, seed=1):
    return np.random.default_rng(seed).normal(size=(N, width))


def recurrences(products, basis, probes, steps):
    state = krylov.start_lanczos(basis, probes, capacity=16)
    bounds = jnp.asarray(0), jnp.asarray(steps)
    ((state,),) = krylov.lanczos(products, (basis,), ((state,),), *bounds)
    alpha, beta = (np.asarray(t, np.float64)[:, :steps] for t in (state.alpha, state.beta))
    return state, alpha, beta


def test_spaces_and_vectors_are_orthonormal_and_a_projection_is_that_of_the_matrix(dtype):
    products, dense = matrix(DECAYING, dtype)
    (space,) = krylov.krylov_spaces(products, (jnp.asarray(draw(4), dtype),), sweeps=3)
    basis = np.asarray(space.basis, np.float64)
    assert basis.shape == (N, 12)
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(basis.T @ basis, np.eye(12), atol=50 * eps)
    upper, expected = np.triu(space.projected), np.triu(basis.T @ dense @ basis)
    np.testing.assert_allclose(upper, expected, atol=50 * eps)
    image = dense @ basis[:, -4:]
    rest = image - basis @ (basis.T @ image)
    assert_close(space.remainder, rest.T @ rest, loosened=10)
    deflated = ROTATION[:, :3]
    state, *_ = recurrences(products, jnp.asarray(deflated, dtype), jnp.asarray(draw(2), dtype), 8)
    for vectors in np.asarray(state.history[:, :8], np.float64):
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(8), atol=1000 * eps)
        np.testing.assert_allclose(vectors @ deflated, 0, atol=1000 * eps)


def test_an_exhausted_space_holds_the_range_and_has_zero_columns(x64):
    """Three directions, four sweeps of two. A poorly resolved one may leave another."""
    products, dense = matrix(np.concatenate([[0.5, 0.3, 0.2], np.zeros(N - 3)]))
    (space,) = krylov.krylov_spaces(products, (jnp.asarray(dense @ draw(2)),), sweeps=4)
    basis = np.asarray(space.basis, np.float64)
    kept = np.linalg.norm(basis, axis=0) > 0.5
    assert kept.sum() >= 3
    assert not kept[-2:].any()
    np.testing.assert_allclose(basis.T @ basis, np.diag(kept), atol=1e-10)
    assert not basis[:, ~kept].any()
    np.testing.assert_allclose(basis @ (basis.T @ dense), dense, atol=1e-10)
    assert np.abs(space.remainder).max() < 1e-10


def test_projecting_once_leaves_what_projecting_twice_removes():
    basis = np.linalg.qr(draw(3))[0].astype(np.float32)
    vectors = (basis @ np.full((3, 1), 1e6) + draw(1, seed=5)).astype(np.float32)
    once = vectors - basis @ (basis.T @ vectors)
    twice = np.asarray(krylov.project_off(jnp.asarray(vectors), jnp.asarray(basis)))
    assert np.abs(basis.T @ twice).max() < 1e-3 * np.abs(basis.T @ once).max()


def test_gauss_and_radau_bracket_the_entropy(x64):
    """For -x log x: its even derivatives are negative and its odd ones positive."""
    probes, values = draw(5), -DECAYING * np.log(DECAYING)
    products, _ = matrix(DECAYING)
    state, alpha, beta = recurrences(products, jnp.zeros((N, 0)), jnp.asarray(probes), 5)
    exact = np.square(ROTATION.T @ probes).T @ values

    def entropy(rule):
        nodes, weights = rule
        of_nodes = -nodes * np.log(np.where(nodes > 0, nodes, 1))
        return np.sum(weights * of_nodes, axis=1) * np.asarray(state.squares)

    radau = krylov.radau(alpha, beta)
    assert (entropy(radau) < exact).all()
    assert (exact < entropy(krylov.gauss(alpha, beta[:, :4]))).all()
    assert np.abs(radau[0][:, 0]).max() < 1e-12
    assert_close(radau[1].sum(axis=1), np.ones(5))
    # A negative node is rounding of zero.
    assert krylov.gauss(np.array([[0.5, -1e-12]]), np.array([[0.0]]))[0].min() == 0


def test_the_block_form_has_the_same_rank():
    generator = np.random.default_rng(7)
    projected, remainder = (f @ f.T for f in (generator.normal(size=(k, k)) for k in (6, 2)))
    extended = krylov.with_null_space(projected, remainder, 0.0)
    np.testing.assert_array_equal(extended[:6, :6], projected)
    np.testing.assert_allclose(extended[6:, 4:6] @ extended[4:6, 6:], remainder, atol=1e-10)
    assert np.linalg.matrix_rank(extended, tol=1e-8) == 6
