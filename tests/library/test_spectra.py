"""Normalised spectra and their truncation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, draw_pairs, eigenvalues, gaussian_gram, renyi
from scipy.optimize import brentq

import condvendi_jax as cv
from condvendi_jax.entropies import eigenvalues as spectra


def test_spectrum_is_descending_non_negative_and_of_sum_one(dtype):
    gram = gaussian_gram(draw_pairs(40)[0], 1.0)
    values = spectra.spectrum(jnp.asarray(gram / 40, dtype))
    assert_close(values, eigenvalues(gram))
    assert (jnp.diff(values) <= 0).all()
    assert (values >= 0).all()
    assert_close(jnp.sum(values), 1.0)


@pytest.mark.parametrize("n", [1, 40])
def test_identical_points_have_one_eigenvalue_exactly(n, dtype):
    values = spectra.spectrum(jnp.full((n, n), 1 / n, dtype))
    assert values.tolist() == [1.0] + [0.0] * (n - 1)


def test_projection_is_the_nearest_point_of_the_simplex(x64):
    """max(v - theta, 0) for the theta at which the sum is one, by root finding."""
    values = np.random.default_rng(0).normal(size=30)
    theta = brentq(lambda c: np.maximum(values - c, 0).sum() - 1, -5, 5, xtol=1e-15)
    expected = np.sort(np.maximum(values - theta, 0))[::-1]
    assert_close(spectra.project_to_simplex(jnp.asarray(values)), expected)


def test_the_spectrum_of_a_nearly_constant_gram_keeps_its_digits():
    gram = gaussian_gram(draw_pairs(600)[0], 100.0)
    exact = np.exp(renyi(eigenvalues(gram), 1))
    matrix = jnp.asarray(gram / 600, jnp.float32)
    assert_close(jnp.exp(cv.von_neumann.of_spectrum(spectra.spectrum(matrix))), exact)


def test_spectrum_gradient_is_the_eigenvectors_around_the_cotangent(x64):
    matrix = jnp.asarray(gaussian_gram(draw_pairs(8)[0], 0.5) / 8)
    cotangent = jnp.arange(8.0)
    (got,) = jax.vjp(spectra.spectrum, matrix)[1](cotangent)
    _, vectors = np.linalg.eigh(np.asarray(matrix))
    vectors = vectors[:, ::-1]
    assert_close(got, vectors @ np.diag(np.arange(8.0)) @ vectors.T)


def test_truncation_shifts_and_does_not_rescale(dtype):
    """CV eq. 13 by hand: (0.5, 0.3) lack 0.2, and each gains half of it."""
    values = jnp.asarray([0.15, 0.5, 0.05, 0.3], dtype)
    assert_close(cv.spectra.truncate(values, 2), [0.6, 0.4])
    assert not np.allclose(cv.spectra.truncate(values, 2), [0.625, 0.375])
    assert_close(cv.spectra.truncate(values, np.int64(1)), [1.0])
    assert_close(cv.spectra.truncate(values, 4), [0.5, 0.3, 0.15, 0.05])


def test_truncation_is_the_projection_of_the_leading_values(x64):
    """Lemma A."""
    values = np.sort(np.random.default_rng(0).dirichlet(np.ones(12)))
    projected = spectra.project_to_simplex(jnp.asarray(values[-5:]))
    assert_close(cv.spectra.truncate(jnp.asarray(values), 5), projected)


@pytest.mark.parametrize("t", [0, -1, 5, 2.0, True, "2", None])
def test_truncation_takes_integers_from_one_to_n(t):
    with pytest.raises(ValueError, match=r"t: expected an integer between 1 and n = 4"):
        cv.spectra.truncate(jnp.full(4, 0.25), t)


# Grams of K / n whose rows or blocks are apart: a first row without neighbours was counted wrongly.
_N = 24


def _one_hot(rng, kinds):
    labels = rng.integers(kinds, size=_N)
    return (labels[:, None] == labels[None, :]).astype(float)


def _first_row_times(factor):
    def gram(rng):
        found = gaussian_gram(rng.normal(size=(_N, 2)), 1.0)
        found[0, 1:] *= factor
        found[1:, 0] *= factor
        return found

    return gram


def _blocks(rng):
    return gaussian_gram(rng.normal(size=(_N, 2)) + 1000 * (np.arange(_N) % 3)[:, None], 1.0)


def _without_rows(rng):
    kept = np.arange(_N) >= 5
    scale = kept * np.sqrt(_N / kept.sum())
    return gaussian_gram(rng.normal(size=(_N, 2)), 1.0) * scale[:, None] * scale[None, :]


_APART = {
    "one hot": lambda rng: _one_hot(rng, _N // 2),
    "one hot, many kinds": lambda rng: _one_hot(rng, 2 * _N),
    "one hot pairs": lambda rng: _one_hot(rng, _N // 2) * _one_hot(rng, 3),
    "first row isolated": _first_row_times(0.0),
    "first row nearly isolated": _first_row_times(1e-13),
    "first row below the smallest square": _first_row_times(1e-25),
    "blocks": _blocks,
    "rows deleted": _without_rows,
    "duplicates": lambda rng: gaussian_gram(rng.integers(4, size=(_N, 1)), 0.1),
    "identity": lambda rng: np.eye(_N),
}


@pytest.mark.parametrize("name", _APART)
def test_spectra_of_rows_and_blocks_that_are_apart(name, dtype):
    for seed in range(10):
        gram = _APART[name](np.random.default_rng(seed))
        expected = eigenvalues(gram)
        assert_close(spectra.spectrum(jnp.asarray(gram / _N, dtype)), expected / expected.sum())


@pytest.mark.parametrize("order", [0.5, 1, 2, np.inf])
@pytest.mark.parametrize("factor", [2, -1])
def test_a_wrong_spectrum_is_refused(factor, order, monkeypatch):
    """One of 24 eigenvalues is doubled, as the isolated row's was, or keeps its square only."""
    matrix = jnp.asarray(gaussian_gram(draw_pairs(_N)[0], 0.5) / _N, jnp.float32)
    right = jnp.linalg.eigvalsh(matrix)
    monkeypatch.setattr(spectra, "_eigenvalues", lambda _: right.at[_N // 2].mul(factor))
    values = spectra.spectrum(matrix)
    assert jnp.isnan(values).all()
    assert jnp.isnan(jax.jit(cv.renyi(order).of_spectrum)(values))
    with pytest.raises(FloatingPointError, match="eigenvalues do not add up"):
        cv.renyi(order).of_spectrum(values)


def test_scores_of_a_wrong_spectrum_are_refused(monkeypatch):
    """The sum is right, and the sum of the squares is not."""
    points = np.random.default_rng(0).normal(size=(_N - 1, 2)).astype(np.float32)
    monkeypatch.setattr(spectra, "_eigenvalues", lambda a: jnp.full(a.shape[0], 1 / a.shape[0]))
    with pytest.raises(FloatingPointError, match="eigenvalues do not add up"):
        cv.vendi(points, kernel=cv.Gaussian(1.0))
