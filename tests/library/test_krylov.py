"""Krylov spaces, recurrences and quadratures of a small matrix, against dense linear algebra."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from oracles import assert_close

from condvendi_jax.spectra import krylov

N = 40


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Matrix:
    """A symmetric matrix with the only method that Krylov spaces and recurrences ask for."""

    values: jax.Array

    def matvecs(self, vectors):
        (of_this,) = vectors
        return (jnp.matmul(self.values, of_this, precision=jax.lax.Precision.HIGHEST),)


def matrix(spectrum, dtype=np.float64, seed=0):
    """A positive semidefinite matrix of a given spectrum, and its eigenvectors."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum),) * 2))
    return Matrix(jnp.asarray((q * spectrum) @ q.T, dtype)), q


def decaying(n=N, rate=0.7):
    spectrum = rate ** np.arange(n)
    return spectrum / spectrum.sum()


def draw(width, seed=1):
    return np.random.default_rng(seed).normal(size=(N, width))


def block(width, dtype=np.float64):
    return jnp.asarray(draw(width), dtype)


def space_of(a, start, sweeps):
    (space,) = krylov.krylov_spaces(a, (start,), sweeps=sweeps)
    return space


def recurrences(a, basis, probes, steps):
    state = krylov.start_lanczos(basis, probes, capacity=16)
    bounds = jnp.asarray(0), jnp.asarray(steps)
    ((state,),) = krylov.lanczos(a, (basis,), ((state,),), *bounds)
    alpha, beta = (np.asarray(t, np.float64)[:, :steps] for t in (state.alpha, state.beta))
    return state, alpha, beta


def test_a_space_is_orthonormal_and_its_projection_is_that_of_the_matrix(dtype):
    a, _ = matrix(decaying(), dtype)
    space = space_of(a, block(4, dtype), 3)
    basis = np.asarray(space.basis, np.float64)
    dense = np.asarray(a.values, np.float64)
    assert basis.shape == (N, 12)
    allowed = 50 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(basis.T @ basis, np.eye(12), atol=allowed)
    upper, expected = np.triu(space.projected), np.triu(basis.T @ dense @ basis)
    np.testing.assert_allclose(upper, expected, atol=allowed)
    image = dense @ basis[:, -4:]
    rest = image - basis @ (basis.T @ image)
    assert_close(space.remainder, rest.T @ rest, loosened=10)


def test_an_exhausted_space_holds_the_range_and_has_zero_columns(x64):
    """Three directions, four sweeps of two. A poorly resolved one may leave another."""
    spectrum = np.concatenate([[0.5, 0.3, 0.2], np.zeros(N - 3)])
    a, q = matrix(spectrum)
    space = space_of(a, *a.matvecs((block(2),)), 4)
    basis = np.asarray(space.basis, np.float64)
    kept = np.linalg.norm(basis, axis=0) > 0.5
    assert kept.sum() >= 3
    assert not kept[-2:].any()
    np.testing.assert_allclose(basis.T @ basis, np.diag(kept), atol=1e-10)
    assert not basis[:, ~kept].any()
    outside = q[:, :3] - basis @ (basis.T @ q[:, :3])
    np.testing.assert_allclose(outside, 0, atol=1e-10)
    assert np.abs(space.remainder).max() < 1e-10


def test_projecting_once_leaves_what_projecting_twice_removes():
    basis = np.linalg.qr(draw(3))[0].astype(np.float32)
    vectors = (basis @ np.full((3, 1), 1e6) + draw(1, seed=5)).astype(np.float32)
    once = vectors - basis @ (basis.T @ vectors)
    twice = np.asarray(krylov.project_off(jnp.asarray(vectors), jnp.asarray(basis)))
    assert np.abs(basis.T @ twice).max() < 1e-3 * np.abs(basis.T @ once).max()


def test_vectors_stay_orthonormal_and_out_of_the_deflated_space(dtype):
    a, q = matrix(decaying(rate=0.4), dtype)
    basis = jnp.asarray(q[:, :3], dtype)
    state, *_ = recurrences(a, basis, block(2, dtype), 8)
    for probe in range(2):
        vectors = np.asarray(state.history[probe, :8], np.float64)
        allowed = 1000 * float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(8), atol=allowed)
        np.testing.assert_allclose(vectors @ q[:, :3], 0, atol=allowed)


def test_gauss_and_radau_bracket_the_entropy(x64):
    """For -x log x: its even derivatives are negative and its odd ones positive."""
    a, q = matrix(decaying())
    spectrum, probes = decaying(), block(5)
    state, alpha, beta = recurrences(a, jnp.zeros((N, 0)), probes, 5)
    exact = ((q.T @ np.asarray(probes)) ** 2 * (-spectrum * np.log(spectrum))[:, None]).sum(axis=0)

    def entropy(rule):
        nodes, weights = rule
        return np.sum(weights * -nodes * np.log(np.where(nodes > 0, nodes, 1)), axis=1)

    upper = entropy(krylov.gauss(alpha, beta[:, :4])) * np.asarray(state.squares)
    lower = entropy(krylov.radau(alpha, beta)) * np.asarray(state.squares)
    assert (lower < exact).all()
    assert (exact < upper).all()
    nodes, weights = krylov.radau(alpha, beta)
    assert np.abs(nodes[:, 0]).max() < 1e-12
    assert_close(weights.sum(axis=1), np.ones(5))


def test_a_negative_node_is_rounding_of_zero():
    nodes, _ = krylov.gauss(np.array([[0.5, -1e-12]]), np.array([[0.0]]))
    assert nodes.min() == 0


def test_the_block_form_has_the_same_rank():
    generator = np.random.default_rng(7)
    projected, remainder = (f @ f.T for f in (generator.normal(size=(k, k)) for k in (6, 2)))
    extended = krylov.with_null_space(projected, remainder, 0.0)
    np.testing.assert_array_equal(extended[:6, :6], projected)
    np.testing.assert_allclose(extended[6:, 4:6] @ extended[4:6, 6:], remainder, atol=1e-10)
    assert np.linalg.matrix_rank(extended, tol=1e-8) == 6
