"""Entropies: closed forms, limits, guards; normalised spectra and their truncation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, draw_pairs, eigenvalues, gaussian_gram, renyi
from scipy.optimize import brentq

import condvendi_jax as cv
from condvendi_jax.entropies import eigenvalues as spectra
from condvendi_jax.grams.operators import DenseGram

ORDERS = (0.3, 0.5, 0.95, 1, 1.0001, 1.05, 2, 3.5, 50, np.inf)


@pytest.mark.parametrize("order", ORDERS)
def test_entropies_have_the_closed_form(order, dtype):
    of_spectrum = cv.Entropy(order).of_spectrum
    assert_close(of_spectrum(jnp.zeros(12, dtype).at[:5].set(0.2)), np.log(5))
    assert_close(of_spectrum(jnp.asarray([0.9, 0.1], dtype)), renyi(np.array([0.9, 0.1]), order))


def test_eigenvalues_of_a_few_eps_are_rounding():
    values = jnp.asarray([0.5, 0.5] + [8 * np.finfo(np.float32).eps] * 50, jnp.float32)
    assert_close(jnp.exp(cv.Entropy(0.2).of_spectrum(values)), 2)


@pytest.mark.parametrize("order", [1e4, 1e30, 1e39, 1e300])
def test_very_large_orders_reach_infinity(order):
    values = jnp.asarray([0.5, 0.3, 0.2, 0.0], jnp.float32)
    # H_a lies within a / (a - 1) of the min-entropy: 1e-4 of it at the smallest of these orders.
    assert_close(cv.Entropy(order).of_spectrum(values), np.log(2), loosened=20)


@pytest.mark.parametrize("order", [1 - 1e-7, 1 + 1e-7, 1 + 1e-3])
def test_orders_near_one_keep_their_digits_where_the_plain_formula_does_not(order):
    values = np.random.default_rng(0).dirichlet(np.ones(200)).astype(np.float32)
    wide = np.float64(values)
    expected = renyi(wide, 1) if abs(order - 1) < 1e-6 else renyi(wide / wide.sum(), order)
    with np.errstate(divide="ignore"):
        plain = np.log(np.sum(values ** np.float32(order))) / np.float32(1 - order)
    assert not abs(plain / expected - 1) < 1e-5
    assert_close(cv.Entropy(order).of_spectrum(jnp.asarray(values)), expected)


def test_zero_eigenvalues_have_zero_gradient_where_minus_log_zero_is_infinite():
    values = jnp.array([0.7, 0.3, 0.0])
    naive = jax.grad(lambda p: -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0)))(values)
    assert not np.isfinite(naive).all()
    for order in ORDERS:
        gradient = jax.grad(cv.Entropy(order).of_spectrum)(values)
        assert np.isfinite(gradient).all()
        assert float(gradient[2]) == 0


def test_noise_does_not_count_as_modes_below_order_one():
    """A Gram of rank 3: at order 0.3 the rounding of 197 zero eigenvalues would add modes."""
    points = draw_pairs(200, dtype=np.float32)[0]
    gram = DenseGram.from_points(cv.Cosine(), jnp.asarray(points))
    eigen = eigenvalues(np.asarray(gram.matrix, np.float64))
    exact = renyi(eigen[:3] / eigen[:3].sum(), 0.3)
    noise = np.full(197, np.finfo(np.float32).eps / 4)
    raw = np.concatenate([eigen[:3] / eigen[:3].sum(), noise])
    assert np.exp(renyi(raw, 0.3)) > 1.2 * np.exp(exact)
    assert_close(cv.Entropy(0.3)(gram), exact)


def test_an_entropy_is_never_negative():
    """Rounding leaves the norm of a constant Gram an ulp above one."""
    constant = DenseGram(jnp.full((7, 7), np.float32(1 + 1e-7)))
    assert float(-jnp.log(constant.squared_frobenius_norm())) < 0
    assert float(cv.Entropy(2)(constant)) == 0


# Spectra and their truncation.


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
    assert_close(spectra.truncate(values, 2), [0.6, 0.4])
    assert not np.allclose(spectra.truncate(values, 2), [0.625, 0.375])
    assert_close(spectra.truncate(values, 1), [1.0])
    assert_close(spectra.truncate(values, 4), [0.5, 0.3, 0.15, 0.05])


def test_a_spectrum_of_fewer_eigenvalues_than_the_truncation_is_refused():
    with pytest.raises(ValueError, match="t: expected at most n = 4, received 5"):
        cv.Entropy(truncation=5).of_spectrum(jnp.full(4, 0.25))


# Grams whose rows or blocks are apart: a first row without neighbours was counted wrongly.
_N = 24


def _near(rng):
    return gaussian_gram(rng.normal(size=(_N, 2)), 1.0)


def _scaled(gram, scale):
    return gram * scale[:, None] * scale


def _first_row_times(factor):
    """The first row and column times a factor, but for the diagonal."""
    scale = np.where(np.arange(_N) > 0, 1, factor)
    return lambda rng: np.where(np.eye(_N), 1, _scaled(_near(rng), scale))


_APART = {
    "one hot": lambda rng: np.equal.outer(*[rng.integers(_N // 2, size=_N)] * 2).astype(float),
    "first row isolated": _first_row_times(0.0),
    "first row nearly isolated": _first_row_times(1e-13),
    "first row below the smallest square": _first_row_times(1e-25),
    "blocks": lambda rng: np.kron(np.eye(3), _near(rng)[:8, :8]),
    "rows deleted": lambda rng: _scaled(_near(rng), (np.arange(_N) >= 5) * np.sqrt(_N / (_N - 5))),
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
    monkeypatch.setattr(jnp.linalg, "eigvalsh", lambda _: right.at[_N // 2].mul(factor))
    values = spectra.spectrum(matrix)
    assert jnp.isnan(values).all()
    assert jnp.isnan(jax.jit(cv.Entropy(order).of_spectrum)(values))
    with pytest.raises(FloatingPointError, match="eigenvalues do not add up"):
        cv.Entropy(order).of_spectrum(values)


def test_scores_of_a_wrong_spectrum_are_refused(monkeypatch):
    """The sum is right, and the sum of the squares is not."""
    points = np.random.default_rng(0).normal(size=(_N - 1, 2)).astype(np.float32)

    def equal(matrices, vectors):
        shape = matrices.shape[:-1]
        return np.full(shape, np.trace(matrices.T)[..., None] / shape[-1], np.float32), vectors

    monkeypatch.setattr(spectra, "eigenpairs", equal)
    for score, prompts in ((cv.vendi, ()), (cv.conditional_vendi, (np.arange(_N - 1) % 4,))):
        with pytest.raises(FloatingPointError, match="eigenvalues do not add up"):
            score(points, *prompts, output_kernel=cv.Gaussian(1.0))


@pytest.mark.parametrize("entropy", [(1,), (0.5,), (0.95,), (3,), (np.inf,), (1, 4), (3, 4)])
def test_slopes_are_the_gradient_up_to_a_constant(entropy, x64):
    """A constant moves no influence, since the eigenvalues of every row have one sum."""
    values = np.sort(np.random.default_rng(0).dirichlet(np.ones(9)))[::-1]
    gradient = jax.grad(cv.Entropy(*entropy).of_spectrum)(jnp.asarray(values))
    difference = cv.Entropy(*entropy).slopes(values) - np.asarray(gradient)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)


@pytest.mark.parametrize("kernel", [cv.Gaussian(1.0), cv.Cosine(), cv.Indicator()])
def test_points_on_the_host_score_as_in_a_program(kernel, x64):
    """Also where at most half of the points are distinct, which are then decomposed once."""
    points = np.random.default_rng(0).integers(1, 4, size=(60, 2)).astype(float)
    host = cv.vendi(points, kernel=kernel)
    assert_close(host, jax.jit(lambda x: cv.vendi(x, kernel=kernel))(jnp.asarray(points)))
