"""Baselines: MID against densities, RRKE against matrix definitions; values by hand, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import directional_difference
from precision import x64
from scipy import linalg, stats

from condvendi_jax.base import memory
from condvendi_jax.data.kernels import Cosine, Gaussian
from condvendi_jax.scores.baselines import mutual_information_divergence as mid
from condvendi_jax.scores.baselines import pointwise_mutual_information as pmi
from condvendi_jax.scores.baselines import rrke

pytestmark = pytest.mark.usefixtures("module_in_x64")


def draw(seed: int, n: int = 60, d_x: int = 3, d_t: int = 2):
    """Correlated, skewed pairs away from the origin."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=(n, d_t)) + 0.5 * rng.exponential(size=(n, d_t)) - 4.0
    x = t @ rng.normal(size=(d_t, d_x)) + rng.normal(size=(n, d_x)) + 7.0
    return x, t


def normal(seed: int, n: int, d: int = 3):
    return np.random.default_rng(seed).normal(size=(n, d))


def references(x, t):
    return {"reference_outputs": x, "reference_prompts": t}


def oracle(x, t, reference_x, reference_t, ridge=0.0):
    """log p(x, t) - log p(x) - log p(t) by SciPy's densities."""
    z = np.hstack([reference_x, reference_t])
    d, mean = reference_x.shape[1], z.mean(axis=0)
    cov = np.cov(z.T, bias=True) + ridge * np.eye(z.shape[1])
    density = stats.multivariate_normal.logpdf
    marginals = density(x, mean[:d], cov[:d, :d]) + density(t, mean[d:], cov[d:, d:])
    return density(np.hstack([x, t]), mean, cov) - marginals


def test_mid_by_hand():
    """Four corners weighted to correlation 1/2: I = -log(3/4)/2, PMI(2, 2) = I + 4/3."""
    corners = np.array([[1, 1], [1, 1], [1, 1], [-1, -1], [-1, -1], [-1, -1], [1, -1], [-1, 1]])
    x, t = corners[:, :1], corners[:, 1:]
    information = -0.5 * np.log(0.75)
    np.testing.assert_allclose(mid(x, t), information, rtol=1e-12)
    value = pmi([[2.0]], [[2.0]], **references(x, t))
    np.testing.assert_allclose(value, [information + 4 / 3], rtol=1e-12)
    # Misaligned by as much: D^2(z) = 8 / (1 - 1/2), so PMI = I + (8 - 16) / 2.
    value = pmi([[2.0]], [[-2.0]], **references(x, t))
    np.testing.assert_allclose(value, [information - 4.0], rtol=1e-12)


@pytest.mark.parametrize("ridge", [None, 0.3])
@pytest.mark.parametrize(("d_x", "d_t"), [(1, 1), (3, 2), (2, 4)])
def test_pmi_matches_densities_and_mid_is_its_mean(ridge, d_x, d_t):
    pairs, reference = draw(0, 9, d_x, d_t), draw(1, 50, d_x, d_t)
    value = pmi(*pairs, **references(*reference), ridge=ridge)
    np.testing.assert_allclose(value, oracle(*pairs, *reference, ridge or 0.0), rtol=1e-9)
    mean = mid(*pairs, **references(*reference), ridge=ridge)
    np.testing.assert_allclose(mean, value.mean(), rtol=1e-12)


def test_gradient_of_mid_is_that_of_the_formula():
    """d MID / dx = Q z / n of the quadratic form of MID eq. 5."""
    x, t = draw(9, 5)
    ref_x, ref_t = draw(10, 40)
    gradient = jax.grad(lambda rows: mid(rows, t, **references(ref_x, ref_t)))(jnp.asarray(x))
    z, ref = np.hstack([x, t]), np.hstack([ref_x, ref_t])
    cov = np.cov(ref.T, bias=True)
    marginal = (x - ref_x.mean(0)) @ np.linalg.inv(cov[:3, :3])
    joint = ((z - ref.mean(0)) @ np.linalg.inv(cov))[:, :3]
    np.testing.assert_allclose(gradient, (marginal - joint) / 5, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_gradient_of_mid_through_the_fit():
    x, t = draw(11, 30)
    direction = normal(0, 30)
    gradient = jax.grad(lambda rows: mid(rows, t))(jnp.asarray(x))
    slope = directional_difference(lambda r: mid(r, t), x, direction)
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-5)
    few = jax.grad(lambda r: mid(r, t[:4], ridge=0.1))(x[:4])
    assert np.isfinite(few).all()


def test_float32_keeps_the_information_that_a_covariance_loses():
    """Condition number 1e9: QR of the rows is within 1%, float32 covariances are not even PSD."""
    rng = np.random.default_rng(12)
    scales = np.geomspace(1.0, 10**-4.5, 40)
    z = rng.normal(size=(400, 40)) * scales @ np.linalg.qr(rng.normal(size=(40, 40)))[0]
    exact = float(mid(z[:, :20], z[:, 20:]))
    with x64(False):
        single = z.astype(np.float32)
        value = mid(single[:, :20], single[:, 20:])
        assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact, rtol=1e-2)
    cov = np.cov(single.T, bias=True, dtype=np.float32)
    blocks = cov[:20, :20], cov[20:, 20:], cov
    with np.errstate(all="ignore"):
        logs = [np.log(np.linalg.eigvalsh(block)).sum() for block in blocks]
    naive = 0.5 * float(logs[0] + logs[1] - logs[2])
    assert not abs(naive - exact) < 0.1 * exact


def test_mid_compiles_and_maps():
    x, t = draw(14, 30)
    value = pmi(x, t)
    np.testing.assert_allclose(jax.jit(pmi)(x, t), value, rtol=1e-10)
    batch = jax.vmap(mid)(np.stack([x, 2 * x]), np.stack([t, t]))
    np.testing.assert_allclose(batch, np.full(2, value.mean()), rtol=1e-8)


def test_a_ridge_makes_few_pairs_possible():
    for few in (1, 5):
        with pytest.raises(ValueError, match=f"more than 5 reference pairs, received {few}"):
            mid(*draw(16, few))
    assert np.isfinite(mid(*draw(16, 6)))
    x, t = draw(16, 4)
    np.testing.assert_allclose(pmi(x, t, ridge=0.2), oracle(x, t, x, t, 0.2), rtol=1e-9)
    x, t = draw(18)
    x[:, 1] = 5.0
    assert np.isfinite(mid(x, t, ridge=1e-3))


def test_rrke_by_hand():
    """{0, h} against {0} is (1, k) / sqrt(2); of c common modes exp(-RRKE) = c^2 / (k l)."""
    h, kernel = 0.7, Gaussian(1.3)
    expected = -np.log((1 + np.exp(-((h / 1.3) ** 2))) / 2)
    np.testing.assert_allclose(rrke([[0.0], [h]], [[0.0]], kernel=kernel), expected, rtol=1e-12)
    x, y = 100.0 * np.arange(4)[:, None], 100.0 * np.arange(1, 7)[:, None]
    np.testing.assert_allclose(np.exp(-rrke(x, y, kernel=kernel)), 3**2 / (4 * 6), rtol=1e-10)
    assert np.isinf(rrke(x, y + 1e6, kernel=Gaussian(1.0)))


def test_rrke_matches_the_matrix_definition():
    """-2 log Tr sqrt(B^{1/2} A B^{1/2}) on explicit features (RKE section 3.3)."""
    x, y = normal(0, 9), normal(1, 14)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    a, b = (rows.T @ rows / len(rows) for rows in unit)
    root = np.real(linalg.sqrtm(b))
    expected = -2 * np.log(np.trace(np.real(linalg.sqrtm(root @ a @ root))))
    np.testing.assert_allclose(rrke(x, y, kernel=Cosine()), expected, rtol=1e-8)


def test_gradient_of_rrke_against_differences():
    """In the rows and in the bandwidth; and finite where rows are equal."""
    x, y = normal(8, 6), normal(9, 5)
    direction = normal(0, 6)

    def score(step):
        return rrke(x + step * direction, y, kernel=Gaussian(1.1 + 0.3 * step))

    slope = directional_difference(score, 0.0, 1.0, step=1e-4)
    np.testing.assert_allclose(jax.grad(score)(0.0), slope, rtol=1e-6)
    repeated = np.repeat(normal(10, 2), 3, axis=0)
    gradient = jax.grad(lambda rows: rrke(rows, repeated, kernel=Gaussian(1.0)))(repeated + 0.1)
    assert np.isfinite(gradient).all()


def test_mid_in_float32_does_not_move_with_the_origin():
    x, t = draw(13, 200)
    near = mid(x, t)
    with x64(False):
        moved = mid(np.float32(x + 1e3), np.float32(t))
    assert moved.dtype == np.float32
    # Rows near 1e3 carry 6e-5 of rounding each in float32.
    np.testing.assert_allclose(moved, near, rtol=5e-3)


X, T = draw(18)
Y = normal(16, 60)
CONSTANT = X * [1, 0, 1]


def changed(array, row, value):
    rows = np.arange(len(array))[:, None]
    return np.where(rows == row, value, array)


@pytest.mark.parametrize(
    ("function", "pair", "options", "message"),
    [
        (mid, (X, np.hstack([T, T[:, :1] + T[:, 1:]])), {}, "column 2 of the prompts"),
        (mid, (X, X[:, :2]), {}, "column 0 of the prompts"),
        (mid, (CONSTANT, T), {}, "column 1 of the outputs"),
        (mid, (X, T[:-1]), {}, "60 outputs and 59 prompts"),
        (mid, (X, T), {"reference_outputs": X}, "reference_prompts: expected both"),
        (mid, (X, T), {"reference_prompts": T}, "reference_outputs: expected both"),
        (mid, (X, T), references(X, T[:50]), "60 reference_outputs and 50 reference_prompts"),
        (mid, (X, T), references(X[:, :2], T), "reference_outputs: expected 3 columns"),
        (mid, (changed(X, 7, np.nan), T), {}, r"outputs.*row 7"),
        (mid, (X, T), references(changed(X, 7, np.nan), T), r"reference_outputs.*row 7"),
        *((mid, (X, T), {"ridge": r}, "ridge") for r in (0.0, -1.0, np.nan, np.inf, "small", True)),
        (rrke, (X, Y[:, :2]), {"kernel": Cosine()}, r"references.*2 columns for 3"),
        (rrke, (X, changed(Y, 4, np.inf)), {"kernel": Cosine()}, r"references.*row 4"),
        (rrke, (X, changed(Y, 2, 0)), {"kernel": Cosine()}, r"references.*row 2"),
        (rrke, (X[0], Y), {"kernel": Cosine()}, "outputs"),
        (rrke, (X, Y), {"kernel": Cosine()}, "60 x 60 cross Gram"),
    ],
)
def test_what_the_baselines_refuse(function, pair, options, message, monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: 10_000)
    with pytest.raises(ValueError, match=message):
        function(*pair, **options)
