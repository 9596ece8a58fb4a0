"""What a hostile user tried: each number is right, or refused in words that are true."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import kernels
from oracles import assert_close, conditional_rke_gradient, draw_pairs, gaussian_gram, scores

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
from condvendi_jax.spectra import estimators, refinement

KEY = jax.random.key(0)


def with_outlier(n=120, d=8, far=1e6):
    points = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    points[17] += far / (1 + np.arange(d))
    return points, 1.5


def tight_clusters(n=120):
    rng = np.random.default_rng(1)
    centres = np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0)
    return (centres + 1e-3 * rng.normal(size=(n, 3))).astype(np.float32), 1e-3


def scaled(scale):
    return scale * np.random.default_rng(2).normal(size=(60, 3)).astype(np.float32), scale


def narrow_beside_one():
    points, sigma = scaled(1e-20)
    points[5] = 1
    return points, sigma


UNRESOLVED = {
    "outlier": with_outlier,
    "overflow": lambda: with_outlier(far=3e38),
    "tight": tight_clusters,
    "far": lambda: (tight_clusters()[0][:, :1] + np.float32(64), 1e-3),
    "tiny": lambda: scaled(1e-20),
    "huge": lambda: scaled(1e25),
    "narrow": narrow_beside_one,
}
SLOW = [pytest.param(name, 1, marks=pytest.mark.slow) for name in ("outlier", "tight")]


@pytest.mark.parametrize(("name", "order"), [*((name, 2) for name in UNRESOLVED), *SLOW])
def test_bandwidths_below_the_rounding_of_a_matrix_product(name, order):
    """RKE was 2.27 for 104.65, and 2.66 for 30.3."""
    points, sigma = UNRESOLVED[name]()
    # The oracle's own range is no matter: lengths are measured in bandwidths.
    gram = gaussian_gram(points.astype(np.float64) / sigma, 1.0)
    prompts = draw_pairs(len(points), dtype=np.float32)[1]
    expected = scores(gram, gaussian_gram(prompts, 1.0), order=order)
    found = cv.decompose(points, prompts, **kernels((sigma, 1.0)), order=order)
    for name, value in expected.items():
        assert_close(getattr(found, name), value, loosened=10)
    alone = cv.vendi(points, kernel=cv.Gaussian(sigma), order=order)
    assert_close(alone, expected["vendi"], loosened=10)
    points = jnp.asarray(points)
    kernel = cv.Gaussian(sigma).suited_to(points)
    tiled = cv.grams.TiledGram.from_points(kernel, points)
    assert_close(tiled.squared_frobenius_norm(), np.mean(gram**2), loosened=10)


def test_the_form_by_differences_is_taken_only_where_it_is_needed():
    plain = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    for sigma in (0.5, 8.0, 1e3):
        assert cv.Gaussian(sigma).suited_to(jnp.asarray(plain)).unit is None
    for make in UNRESOLVED.values():
        points, sigma = make()
        assert cv.Gaussian(sigma).suited_to(jnp.asarray(points)).unit is not None


def test_units_are_the_callers_to_give_inside_jit():
    points, sigma = tight_clusters()
    expected = 1 / np.mean(gaussian_gram(points, sigma) ** 2)

    def score(points, sigma, unit):
        return cv.rke(points, kernel=cv.Gaussian(sigma, unit=unit))

    assert_close(jax.jit(score, static_argnums=2)(points, sigma, 1e-3), expected, loosened=10)
    for bad in (0, -1.0, np.inf, "1", True):
        with pytest.raises((TypeError, ValueError), match="unit: expected"):
            cv.Gaussian(1.0, unit=bad)


def test_the_gradient_by_differences_is_that_of_the_formula():
    outputs, sigma = tight_clusters(60)
    prompts = draw_pairs(60, dtype=np.float32)[1]
    expected = conditional_rke_gradient(np.float64(outputs), np.float64(prompts), (sigma, 1.0))
    options = kernels((sigma, 1.0)) | {"output_kernel": cv.Gaussian(sigma, unit=sigma)}
    found = jax.grad(lambda x: cv.conditional_rke(x, prompts, **options))(jnp.asarray(outputs))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_points_that_are_infinitely_far_have_no_slope():
    """Of the plain square of a difference it is 0 * inf."""
    points = jnp.array([[0.0, 0.0], [5e-4, 0.0], [3e38, -3e38], [-3e38, 1.0]])
    kernel = cv.Gaussian(1e-3, unit=1e-3)
    slope = jax.grad(lambda p: jnp.sum(kernel.cross(p, p)))(points)
    # Twice the slope -(x - y) / sigma^2 exp(-1 / 8) of the near pair.
    pull = 2 * 5e-4 / 1e-6 * np.exp(-1 / 8)
    assert_close(slope, [[pull, 0], [-pull, 0], [0, 0], [0, 0]])


FAR = {"int64 + 2^40": lambda x: x + 2**40, "float64 + 1e8": lambda x: x + 1e8}


@pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")
@pytest.mark.parametrize("name", FAR)
def test_points_are_moved_near_the_origin_before_they_are_cast(name):
    """Scores were 1 for 31.6, and 1 for 7.86."""
    near = np.random.default_rng(0).integers(0, 40, size=(80, 2))
    points = FAR[name](near)
    expected = scores(gaussian_gram(near, 3.0), gaussian_gram(near, 5.0), order=2)
    found = cv.decompose(points, points, **kernels((3.0, 5.0)), order=2)
    assert_close(found.vendi, expected["vendi"])
    assert_close(found.conditional, expected["conditional"])
    assert_close(cv.gram(cv.Gaussian(3.0), points).squared_frobenius_norm(), 1 / expected["vendi"])
    far, close = (cv.baselines.rrke(p, p[:50], kernel=cv.Gaussian(3.0)) for p in (points, near))
    assert_close(far, float(close))
    of_far, of_near = (cv.bandwidth_by_rule(of, "median", key=KEY) for of in (points, near))
    assert of_far.bandwidth == pytest.approx(of_near.bandwidth, rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")
def test_a_far_first_row_leaves_the_others_their_digits():
    """Less the first row, the others were equal in float32."""
    points = np.random.default_rng(0).normal(size=(80, 2))
    points[0] = 1e12, -1e12
    expected = 1 / np.mean(gaussian_gram(points, 3.0) ** 2)
    assert_close(cv.rke(points, kernel=cv.Gaussian(3.0)), expected)


def test_rows_that_a_cast_merges_are_told():
    points = np.arange(20, dtype=np.int64)[:, None] + 2**40
    with pytest.warns(UserWarning, match=r"outputs: 1. row\(s\) that differ in int64 are equal"):
        cv.rke(points, kernel=cv.Cosine())
    merged = np.array([[0.0], [0.0], [1.0], [1.0 + 1e-12]])
    with pytest.warns(UserWarning) as caught:
        cv.rke(merged, kernel=cv.Gaussian(1.0))
    assert any("1 row(s) that differ in float64 are equal in" in str(w.message) for w in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cv.rke(np.arange(20)[:, None], kernel=cv.Gaussian(1.0))


@pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")
def test_numbers_beyond_float32_are_said_to_be_that():
    points = np.ones((3, 1))
    points[1] = 1e300
    for kernel in (cv.Gaussian(1.0), cv.Cosine()):
        with pytest.raises(ValueError, match=r"outputs: 1 row.* beyond .* of float32.* row 1"):
            cv.rke(points, kernel=kernel)


def test_what_no_framework_can_convert_is_named():
    class Broken:
        def __array__(self, *_, **__):
            raise RuntimeError("on another device")

    with pytest.raises(TypeError, match="outputs: expected an array .*Broken.*on another device"):
        cv.rke(Broken(), kernel=cv.Gaussian(1.0))


def test_memory_that_runs_out_is_a_clear_error(monkeypatch):
    def fail(_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    outputs, prompts = draw_pairs(30, dtype=np.float32)
    monkeypatch.setattr(estimators, "all_eigenvalues", fail)
    with pytest.raises(ValueError, match=r"Memory ran out.*n = 30.*cv.Auto\(key"):
        cv.decompose(outputs, prompts, **kernels((1.0, 1.0)))
    monkeypatch.setattr(refinement, "_store", fail)
    with pytest.raises(ValueError, match=r"Memory ran out.*n = 30"):
        cv.decompose(outputs, prompts, **kernels((1.0, 1.0)), method=cv.Stored(KEY))


def test_the_min_entropy_takes_the_krylov_space_alone(monkeypatch, x64):
    """It took 25 times the products: steps were added that its error does not depend on."""
    points = draw_pairs(900, d_x=5, dtype=np.float64)[0]
    budgets = []
    original = estimators.Sampler.__init__

    def counting(self, *given, **options):
        original(self, *given, **options)
        budgets.append(self)

    monkeypatch.setattr(estimators.Sampler, "__init__", counting)
    kernel = cv.Gaussian(0.5)
    found = cv.decompose(points, output_kernel=kernel, order=np.inf, method=cv.Stored(KEY))
    exact = 1 / np.linalg.eigvalsh(gaussian_gram(points, 0.5) / 900)[-1]
    low, high = found.intervals.vendi
    assert low <= exact <= high
    assert high / low - 1 < 1e-3
    (sampler,) = budgets
    assert sampler.measure().products < 300


@pytest.mark.parametrize(
    "call",
    [
        lambda p: bandwidth.bandwidth_by_rule(p, "variance", key="k"),
        lambda p: cv.spectra.spectral_measure(cv.gram(cv.Cosine(), p), key=1),
    ],
)
def test_keys_of_another_kind_are_named(call):
    with pytest.raises(TypeError, match="key: expected one random key"):
        call(draw_pairs(40, dtype=np.float32)[0])
