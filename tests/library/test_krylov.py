"""Krylov spaces and recurrences of a small matrix, against dense linear algebra in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close
from small_spectra import N, block, decaying, draw, matrix, recurrences

from condvendi_jax.spectra import _krylov as krylov


def test_a_space_is_orthonormal_and_its_projection_is_that_of_the_matrix(dtype):
    a, _ = matrix(decaying(), dtype)
    space = krylov.krylov_space(a, block(4, dtype), sweeps=3)
    basis = np.asarray(space.basis, np.float64)
    dense = np.asarray(a.values, np.float64)
    assert basis.shape == (N, 12)
    np.testing.assert_allclose(basis.T @ basis, np.eye(12), atol=50 * jnp.finfo(dtype).eps)
    upper = np.triu(np.asarray(space.projected))
    np.testing.assert_allclose(
        upper, np.triu(basis.T @ dense @ basis), atol=50 * jnp.finfo(dtype).eps
    )
    image = dense @ basis[:, -4:]
    rest = image - basis @ (basis.T @ image)
    assert_close(space.remainder, rest.T @ rest, loosened=10)


def test_a_space_spans_the_powers_of_the_start(x64):
    a, _ = matrix(decaying())
    start = block(2)
    basis = np.asarray(krylov.krylov_space(a, start, sweeps=4).basis)
    dense = np.asarray(a.values)
    powers = np.concatenate([np.linalg.matrix_power(dense, k) @ start for k in range(4)], axis=1)
    outside = powers - basis @ (basis.T @ powers)
    assert np.abs(outside).max() < 1e-9


def test_an_exhausted_space_holds_the_range_and_has_zero_columns(x64):
    """Three directions, in four sweeps of two: the last finds nothing. A direction that was poorly
    resolved may leave one more behind, which is orthogonal to the others."""
    spectrum = np.concatenate([[0.5, 0.3, 0.2], np.zeros(N - 3)])
    a, q = matrix(spectrum)
    space = krylov.krylov_space(a, a.matvec(block(2)), sweeps=4)
    basis = np.asarray(space.basis, np.float64)
    kept = np.linalg.norm(basis, axis=0) > 0.5
    assert kept.sum() >= 3
    assert not kept[-2:].any()
    np.testing.assert_allclose(basis.T @ basis, np.diag(kept), atol=1e-10)
    assert not basis[:, ~kept].any()
    outside = q[:, :3] - basis @ (basis.T @ q[:, :3])
    np.testing.assert_allclose(outside, 0, atol=1e-10)
    assert np.abs(space.remainder).max() < 1e-10


def test_columns_of_the_rounding_of_others_are_no_directions(dtype):
    basis = np.linalg.qr(draw(3))[0]
    vectors = basis @ np.ones((3, 2)) + 1e-9 * draw(2, seed=2)
    vectors[:, 1] = draw(1, seed=3)[:, 0]
    floor = jnp.asarray(100 * jnp.finfo(dtype).eps, dtype)
    found = krylov.orthonormal(jnp.asarray(vectors, dtype), jnp.asarray(basis, dtype), floor)
    lengths = np.sort(np.linalg.norm(found, axis=0))
    # In float64 a part of 1e-9 is well above rounding, in float32 it is not.
    assert lengths == pytest.approx([0 if dtype == np.float32 else 1, 1], abs=1e-5)
    np.testing.assert_allclose(basis.T @ np.asarray(found), 0, atol=2e-6)


def test_projecting_once_leaves_what_projecting_twice_removes():
    basis = np.linalg.qr(draw(3))[0].astype(np.float32)
    vectors = (basis @ np.full((3, 1), 1e6) + draw(1, seed=5)).astype(np.float32)
    once = vectors - basis @ (basis.T @ vectors)
    twice = np.asarray(krylov.project_off(jnp.asarray(vectors), jnp.asarray(basis)))
    assert np.abs(basis.T @ twice).max() < 1e-3 * np.abs(basis.T @ once).max()


def test_recurrences_resume_where_they_stopped_and_can_be_given_room(dtype):
    a, _ = matrix(decaying(), dtype)
    probes, empty = block(2, dtype), jnp.zeros((N, 0), dtype)
    whole, *_ = recurrences(a, empty, probes, 9, capacity=9)
    state, *_ = recurrences(a, empty, probes, 4, capacity=4)
    state = krylov.enlarge(state, capacity=9)
    assert state.history.shape == (2, 9, N)
    state = krylov.lanczos(a, empty, state, jnp.asarray(4), jnp.asarray(9))
    for one, other in zip(whole, state, strict=True):
        assert_close(one, np.asarray(other, np.float64), loosened=10)


def test_vectors_stay_orthonormal_and_out_of_the_deflated_space(dtype):
    a, q = matrix(decaying(rate=0.4), dtype)
    basis = jnp.asarray(q[:, :3], dtype)
    state, *_ = recurrences(a, basis, block(2, dtype), 8)
    for probe in range(2):
        vectors = np.asarray(state.history[probe, :8], np.float64)
        allowed = 1000 * float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(8), atol=allowed)
        np.testing.assert_allclose(vectors @ q[:, :3], 0, atol=allowed)


def test_a_complete_space_ends_with_zeros(dtype):
    a, _ = matrix(np.concatenate([[0.6, 0.4], np.zeros(N - 2)]), dtype)
    _, alpha, beta = recurrences(a, jnp.zeros((N, 0), dtype), block(3, dtype), 6)
    # Two eigenvalues and zero: three steps, and after them nothing but rounding.
    rounding = 100 * jnp.finfo(dtype).eps
    assert np.abs(beta[:, 2:]).max() < rounding
    assert np.abs(alpha[:, 3:]).max() < rounding
    assert (beta[:, :2] > 1e-3).all()


def test_combinations_of_the_vectors(x64):
    a, _ = matrix(decaying())
    state, *_ = recurrences(a, jnp.zeros((N, 0)), block(2), 5)
    coefficients = jnp.asarray(np.random.default_rng(4).normal(size=(2, 16)))
    found = krylov.unroll(state, coefficients)
    expected = np.einsum("pkn,pk->np", state.history, coefficients)
    assert_close(found, expected)
    assert_close(krylov.combine(block(4), jnp.eye(4)[:, :2]), np.asarray(block(4))[:, :2])
