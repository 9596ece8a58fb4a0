"""RRKE against the sandwiched matrix definition, hand-made values and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from precision import x64
from scipy import linalg

from condvendi_jax.grams import _memory as memory
from condvendi_jax.kernels import Cosine, Gaussian
from condvendi_jax.scores._relative import root_fidelity, rrke


@pytest.fixture(autouse=True)
def _double_precision():
    with x64(True):
        yield


def draw(seed: int, n: int, d: int = 3):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_value_by_hand():
    """Two points against two: k(0, h) = e^{-h^2/2}; 2 x 2 cross Grams have known norms."""
    h = 0.7
    value = root_fidelity([[0.0]], [[h]], kernel=Gaussian(1.0))
    np.testing.assert_allclose(value, np.exp(-(h**2) / 2), rtol=1e-12)
    np.testing.assert_allclose(rrke([[0.0]], [[h]], kernel=Gaussian(1.0)), h**2, rtol=1e-12)
    # {0, h} against {0}: column (1, k) / sqrt(2).
    k = np.exp(-(h**2) / 2)
    value = root_fidelity([[0.0], [h]], [[0.0]], kernel=Gaussian(1.0))
    np.testing.assert_allclose(value, np.sqrt((1 + k**2) / 2), rtol=1e-12)


def test_shared_modes():
    """c common modes of k and l: exp(-RRKE) = c^2 / (k l)."""
    x, y = 100.0 * np.arange(4)[:, None], 100.0 * np.arange(1, 7)[:, None]
    value = rrke(x, y, kernel=Gaussian(1.0))
    np.testing.assert_allclose(np.exp(-value), 3**2 / (4 * 6), rtol=1e-10)
    assert np.isinf(rrke(x, y + 1e6, kernel=Gaussian(1.0)))


def test_matches_the_matrix_definition():
    """-2 log Tr sqrt(B^{1/2} A B^{1/2}) on explicit features (RKE section 3.3)."""
    x, y = draw(0, 9), draw(1, 14)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    a, b = (rows.T @ rows / len(rows) for rows in unit)
    root = np.real(linalg.sqrtm(b))
    expected = -2 * np.log(np.trace(np.real(linalg.sqrtm(root @ a @ root))))
    np.testing.assert_allclose(rrke(x, y, kernel=Cosine()), expected, rtol=1e-8)


def test_matches_numpy_on_the_cross_gram():
    x, y = draw(2, 12), draw(3, 7)
    squares = np.sum((x[:, None] - y[None]) ** 2, -1)
    cross = np.exp(-squares / (2 * 1.3**2)) / np.sqrt(12 * 7)
    expected = linalg.svdvals(cross).sum()
    np.testing.assert_allclose(root_fidelity(x, y, kernel=Gaussian(1.3)), expected, rtol=1e-10)


def test_distance_like():
    x, y = draw(4, 20), draw(5, 30) + 0.5
    kernel = Gaussian(1.0)
    np.testing.assert_allclose(rrke(x, x, kernel=kernel), 0.0, atol=1e-12)
    np.testing.assert_allclose(rrke(x, np.vstack([x, x]), kernel=kernel), 0.0, atol=1e-12)
    np.testing.assert_allclose(rrke(x, y, kernel=kernel), rrke(y, x, kernel=kernel), rtol=1e-10)
    assert rrke(x, y, kernel=kernel) > 0


def test_every_argument_changes_the_answer():
    x, y = draw(6, 10), draw(7, 10)
    base = rrke(x, y, kernel=Gaussian(1.0))
    for changed in (
        rrke(x + 0.3, y, kernel=Gaussian(1.0)),
        rrke(x, 1.2 * y, kernel=Gaussian(1.0)),
        rrke(x, y, kernel=Gaussian(1.5)),
        rrke(x, y, kernel=Cosine()),
        rrke(x, y, kernel=Gaussian(1.0) * Cosine()),
    ):
        assert abs(changed - base) > 1e-3


def test_gradient_against_differences():
    x, y = draw(8, 6), draw(9, 5)
    kernel = Gaussian(1.1)
    gradient = jax.grad(lambda rows: rrke(rows, y, kernel=kernel))(jnp.asarray(x))
    step = np.zeros_like(x)
    step[3, 2] = 1e-6
    high, low = (rrke(x + s * step, y, kernel=kernel) for s in (1, -1))
    np.testing.assert_allclose(gradient[3, 2], (high - low) / 2e-6, rtol=1e-6)
    slope = jax.grad(lambda width: rrke(x, y, kernel=Gaussian(width)))(1.1)
    high, low = (rrke(x, y, kernel=Gaussian(1.1 + s)) for s in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (high - low) / 2e-6, rtol=1e-6)


def test_gradient_is_finite_for_duplicates():
    """Repeated rows make equal and zero singular values."""
    x = np.repeat(draw(10, 2), 3, axis=0)
    gradient = jax.grad(lambda rows: rrke(rows, x, kernel=Gaussian(1.0)))(jnp.asarray(x) + 0.1)
    assert np.isfinite(gradient).all()


def test_far_from_the_origin_in_float32():
    x, y = draw(11, 15), draw(12, 15)
    exact = rrke(x, y, kernel=Gaussian(1.0))
    with x64(False):
        far = [np.asarray(rows + 1e3, np.float32) for rows in (x, y)]
        value = rrke(*far, kernel=Gaussian(1.0))
        assert value.dtype == jnp.float32
    # Rows near 1e3 carry 6e-5 of rounding each in float32.
    np.testing.assert_allclose(value, exact, rtol=1e-3)


def test_jit_agrees_with_eager():
    x, y = draw(13, 8), draw(14, 8)
    value = jax.jit(lambda a, b: rrke(a, b, kernel=Gaussian(1.0)))(x, y)
    np.testing.assert_allclose(value, rrke(x, y, kernel=Gaussian(1.0)), rtol=1e-12)


def test_bad_inputs(monkeypatch):
    x, y = draw(15, 8), draw(16, 8)
    with pytest.raises(ValueError, match=r"references.*2 columns for 3"):
        rrke(x, y[:, :2], kernel=Gaussian(1.0))
    bad = y.copy()
    bad[4, 0] = np.inf
    with pytest.raises(ValueError, match=r"references.*row 4"):
        rrke(x, bad, kernel=Gaussian(1.0))
    with pytest.raises(ValueError, match="outputs"):
        rrke(x[0], y, kernel=Gaussian(1.0))
    with pytest.raises(TypeError, match="kernel"):
        rrke(x, y, kernel="gaussian")
    y[2] = 0.0
    with pytest.raises(ValueError, match=r"references.*row 2"):
        rrke(x, y, kernel=Cosine())
    monkeypatch.setattr(memory, "limit", lambda: 1000)
    with pytest.raises(ValueError, match="8 x 8 cross Gram"):
        rrke(x, y, kernel=Gaussian(1.0))
