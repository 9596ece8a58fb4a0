"""Entropies: closed forms, limits, guards, and what is built from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, draw_pairs, eigenvalues, entropy, gaussian_gram, renyi

import condvendi_jax as cv

ORDERS = (0.3, 0.5, 0.95, 1, 1.0001, 1.05, 2, 3.5, 50, np.inf)


@pytest.mark.parametrize("order", ORDERS)
def test_entropies_have_the_closed_form(order, dtype):
    of_spectrum = cv.renyi(order).of_spectrum
    assert_close(of_spectrum(jnp.zeros(12, dtype).at[:5].set(0.2)), np.log(5))
    assert_close(of_spectrum(jnp.asarray([0.9, 0.1], dtype)), renyi(np.array([0.9, 0.1]), order))


@pytest.mark.parametrize("order", [1 - 1e-7, 1 + 1e-7, 1 + 1e-3])
def test_orders_near_one_keep_their_digits_where_the_plain_formula_does_not(order):
    values = np.random.default_rng(0).dirichlet(np.ones(200)).astype(np.float32)
    wide = np.float64(values)
    expected = renyi(wide, 1) if abs(order - 1) < 1e-6 else renyi(wide / wide.sum(), order)
    with np.errstate(divide="ignore"):
        plain = np.log(np.sum(values ** np.float32(order))) / np.float32(1 - order)
    assert not abs(plain / expected - 1) < 1e-5
    assert_close(cv.renyi(order).of_spectrum(jnp.asarray(values)), expected)


@pytest.mark.parametrize("order", [1e4, 1e30, 1e39, 1e300])
def test_very_large_orders_reach_infinity(order):
    values = jnp.asarray([0.5, 0.3, 0.2, 0.0], jnp.float32)
    # H_a lies within a / (a - 1) of the min-entropy: 1e-4 of it at the smallest of these orders.
    assert_close(cv.renyi(order).of_spectrum(values), np.log(2), loosened=20)


def test_order_one_is_von_neumann():
    assert cv.renyi(1) == cv.von_neumann
    assert cv.truncated(3) == cv.entropies.Entropy(order=1.0, truncation=3)


def test_zero_eigenvalues_have_zero_gradient_where_minus_log_zero_is_infinite():
    values = jnp.array([0.7, 0.3, 0.0])
    naive = jax.grad(lambda p: -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0)))(values)
    assert not np.isfinite(naive).all()
    for order in ORDERS:
        gradient = jax.grad(cv.renyi(order).of_spectrum)(values)
        assert np.isfinite(gradient).all()
        assert float(gradient[2]) == 0


def test_noise_does_not_count_as_modes_below_order_one():
    """A Gram of rank 3: at order 0.3 the rounding of 197 zero eigenvalues would add modes."""
    points = draw_pairs(200, dtype=np.float32)[0]
    gram = cv.grams.DenseGram.from_points(cv.Cosine(), jnp.asarray(points))
    eigen = eigenvalues(np.asarray(gram.matrix, np.float64))
    exact = renyi(eigen[:3] / eigen[:3].sum(), 0.3)
    raw = np.clip(np.asarray(jnp.linalg.eigvalsh(gram.matrix / 200), np.float64), 0, None)
    assert np.exp(renyi(raw, 0.3)) > 1.2 * np.exp(exact)
    assert_close(cv.renyi(0.3)(gram), exact)


@pytest.mark.parametrize("order", [0.5, 1, 2, np.inf])
@pytest.mark.parametrize("truncation", [None, 4])
def test_entropy_of_a_gram_is_that_of_the_oracle(order, truncation, dtype):
    points = draw_pairs(30, dtype=dtype)[0]
    got = cv.Entropy(order=order, truncation=truncation)(cv.gram(cv.Gaussian(0.3), points))
    expected = entropy(gaussian_gram(points, 0.3), order=order, truncation=truncation)
    assert_close(got, expected)
    assert got.dtype == dtype


@pytest.mark.parametrize("entropy_of", [cv.von_neumann, cv.renyi(2), cv.truncated(5)])
def test_conditional_and_information_are_differences(entropy_of, x64):
    x, t = (cv.gram(cv.Gaussian(0.5), p) for p in draw_pairs(30))
    h = {name: float(entropy_of(g)) for name, g in {"x": x, "t": t, "xt": x * t}.items()}
    terms = cv.entropies.entropies(entropy_of, x, t)
    assert_close(jnp.stack(terms), [h["x"], h["t"], h["xt"]])
    logs = cv.entropies.log_scores(*terms)
    assert_close(logs.conditional, h["xt"] - h["t"])
    assert_close(logs.information, h["x"] + h["t"] - h["xt"])


def test_truncation_beyond_n_is_clamped_with_a_warning():
    gram = cv.gram(cv.Gaussian(0.5), jnp.eye(5))
    with pytest.warns(UserWarning, match="truncation 9 exceeds n = 5"):
        clamped = cv.truncated(9)(gram)
    assert_close(clamped, cv.von_neumann(gram))


def test_an_entropy_is_never_negative():
    """Rounding leaves the norm of a constant Gram an ulp above one."""
    constant = cv.grams.DenseGram(jnp.full((7, 7), np.float32(1 + 1e-7)))
    assert float(-jnp.log(constant.squared_frobenius_norm())) < 0
    assert float(cv.renyi(2)(constant)) == 0
