"""MID and point-wise mutual information against densities, values by hand and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from precision import x64
from scipy import stats

from condvendi_jax.scores import _mid as mid
from condvendi_jax.scores._mid import (
    gaussian_mutual_information,
    mutual_information_divergence,
    pointwise_mutual_information,
)


@pytest.fixture(autouse=True)
def _double_precision():
    with x64(True):
        yield


def draw(seed: int, n: int = 60, d_x: int = 3, d_t: int = 2):
    """Correlated, skewed pairs away from the origin."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=(n, d_t)) + 0.5 * rng.exponential(size=(n, d_t)) - 4.0
    x = t @ rng.normal(size=(d_t, d_x)) + rng.normal(size=(n, d_x)) + 7.0
    return x, t


def oracle(x, t, reference_x, reference_t, ridge=0.0):
    """log p(x, t) - log p(x) - log p(t) by SciPy's densities."""
    z = np.hstack([reference_x, reference_t])
    d, mean = reference_x.shape[1], z.mean(axis=0)
    cov = np.cov(z.T, bias=True) + ridge * np.eye(z.shape[1])
    normal = stats.multivariate_normal
    return (
        normal.logpdf(np.hstack([x, t]), mean, cov)
        - normal.logpdf(x, mean[:d], cov[:d, :d])
        - normal.logpdf(t, mean[d:], cov[d:, d:])
    )


def test_value_by_hand():
    """Four corners weighted to correlation 1/2: I = -log(3/4)/2, PMI(2, 2) = I + 4/3."""
    corners = np.array([[1, 1], [1, 1], [1, 1], [-1, -1], [-1, -1], [-1, -1], [1, -1], [-1, 1]])
    x, t = corners[:, :1], corners[:, 1:]
    information = -0.5 * np.log(0.75)
    np.testing.assert_allclose(gaussian_mutual_information(x, t), information, rtol=1e-12)
    value = pointwise_mutual_information([[2.0]], [[2.0]], reference_outputs=x, reference_prompts=t)
    np.testing.assert_allclose(value, [information + 4 / 3], rtol=1e-12)
    # Misaligned by as much: D^2(z) = 8 / (1 - 1/2), so PMI = I + (8 - 16) / 2.
    value = pointwise_mutual_information(
        [[2.0]], [[-2.0]], reference_outputs=x, reference_prompts=t
    )
    np.testing.assert_allclose(value, [information - 4.0], rtol=1e-12)


@pytest.mark.parametrize("ridge", [None, 0.3])
@pytest.mark.parametrize(("d_x", "d_t"), [(1, 1), (3, 2), (2, 4)])
def test_matches_densities(ridge, d_x, d_t):
    x, t = draw(0, 9, d_x, d_t)
    reference = draw(1, 50, d_x, d_t)
    value = pointwise_mutual_information(
        x, t, reference_outputs=reference[0], reference_prompts=reference[1], ridge=ridge
    )
    np.testing.assert_allclose(value, oracle(x, t, *reference, ridge or 0.0), rtol=1e-9)


def test_mid_is_the_mean_and_information_in_sample():
    """MID eq. 5 and 14."""
    x, t = draw(2)
    reference = dict(zip(("reference_outputs", "reference_prompts"), draw(3), strict=True))
    mean = pointwise_mutual_information(x, t, **reference).mean()
    assert mutual_information_divergence(x, t, **reference) == pytest.approx(float(mean))
    assert mutual_information_divergence(x, t) == pytest.approx(
        float(gaussian_mutual_information(x, t)), rel=1e-12
    )


def test_symmetric_in_the_modalities():
    x, t = draw(4)
    there, back = pointwise_mutual_information(x, t), pointwise_mutual_information(t, x)
    np.testing.assert_allclose(there, back, rtol=1e-9)


def test_invariant_to_affine_maps_without_a_ridge():
    x, t = draw(5)
    rng = np.random.default_rng(5)
    mapped = x @ (rng.normal(size=(3, 3)) + 2 * np.eye(3)) + 3.0
    value = pointwise_mutual_information(x, t)
    np.testing.assert_allclose(pointwise_mutual_information(mapped, t), value, rtol=1e-8)
    plain = mutual_information_divergence(x, t, ridge=0.5)
    assert abs(mutual_information_divergence(10 * x, t, ridge=0.5) - plain) > 1e-3


def test_every_argument_changes_the_answer():
    x, t = draw(6)
    other_x, other_t = draw(7)
    base = mutual_information_divergence(x, t, reference_outputs=x, reference_prompts=t)
    for changed in (
        mutual_information_divergence(other_x, t, reference_outputs=x, reference_prompts=t),
        mutual_information_divergence(x, other_t, reference_outputs=x, reference_prompts=t),
        mutual_information_divergence(x, t, reference_outputs=other_x, reference_prompts=t),
        mutual_information_divergence(x, t, reference_outputs=x, reference_prompts=other_t),
        mutual_information_divergence(x, t, ridge=0.1),
    ):
        assert abs(changed - base) > 1e-3
    assert gaussian_mutual_information(x, t, ridge=0.1) < gaussian_mutual_information(x, t)


def test_shuffled_prompts_score_less():
    """Of independent pairs the expectation is minus a divergence."""
    x, t = draw(8, 400)
    shuffled = np.random.default_rng(0).permutation(t)
    reference = {"reference_outputs": x, "reference_prompts": t}
    assert mutual_information_divergence(x, t, **reference) > 0
    assert mutual_information_divergence(x, shuffled, **reference) < 0


def test_gradient_against_formula_and_differences():
    """d MID / dx = Q z / n of the quadratic form of MID eq. 5."""
    x, t = draw(9, 5)
    ref_x, ref_t = draw(10, 40)
    reference = {"reference_outputs": ref_x, "reference_prompts": ref_t}

    def score(rows):
        return mutual_information_divergence(rows, t, **reference)

    gradient = np.asarray(jax.grad(score)(jnp.asarray(x)))
    z, ref = np.hstack([x, t]), np.hstack([ref_x, ref_t])
    cov = np.cov(ref.T, bias=True)
    marginal = (x - ref_x.mean(0)) @ np.linalg.inv(cov[:3, :3])
    joint = ((z - ref.mean(0)) @ np.linalg.inv(cov))[:, :3]
    np.testing.assert_allclose(gradient, (marginal - joint) / 5, rtol=1e-8, atol=1e-10)
    step = np.zeros_like(x)
    step[2, 1] = 1e-6
    difference = (score(x + step) - score(x - step)) / 2e-6
    np.testing.assert_allclose(gradient[2, 1], difference, rtol=1e-6)


@pytest.mark.slow
def test_gradient_through_the_fit_is_finite():
    x, t = draw(11, 30)
    gradient = jax.grad(lambda rows: gaussian_mutual_information(rows, t))(jnp.asarray(x))
    step = np.zeros_like(x)
    step[0, 0] = 1e-6
    high, low = (gaussian_mutual_information(x + s * step, t) for s in (1, -1))
    np.testing.assert_allclose(gradient[0, 0], (high - low) / 2e-6, rtol=1e-5)
    few = jax.grad(lambda rows: gaussian_mutual_information(rows, t[:4], ridge=0.1))(x[:4])
    assert np.isfinite(few).all()


def test_float32_keeps_the_information_that_a_covariance_loses():
    """Condition number 1e9: QR of the rows is within 1%, float32 covariances are not even PSD."""
    rng = np.random.default_rng(12)
    scales = np.geomspace(1.0, 10**-4.5, 40)
    z = rng.normal(size=(400, 40)) * scales @ np.linalg.qr(rng.normal(size=(40, 40)))[0]
    exact = float(gaussian_mutual_information(z[:, :20], z[:, 20:]))
    with x64(False):
        single = z.astype(np.float32)
        value = gaussian_mutual_information(single[:, :20], single[:, 20:])
        assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact, rtol=1e-2)
    cov = np.cov(single.T, bias=True, dtype=np.float32)
    with np.errstate(all="ignore"):
        logs = [
            np.log(np.linalg.eigvalsh(block)).sum() for block in (cov[:20, :20], cov[20:, 20:], cov)
        ]
    naive = 0.5 * float(logs[0] + logs[1] - logs[2])
    assert not abs(naive - exact) < 0.1 * exact


def test_far_from_the_origin_in_float32():
    """The score does not move when a constant is added to all rows."""
    x, t = draw(13, 200)
    with x64(False):
        near = gaussian_mutual_information(x.astype(np.float32), t.astype(np.float32))
        far = gaussian_mutual_information((x + 3e3).astype(np.float32), t.astype(np.float32))
    np.testing.assert_allclose(far, near, rtol=1e-2)


def test_jit_and_vmap_agree_with_eager():
    x, t = draw(14, 30)
    value = pointwise_mutual_information(x, t)
    np.testing.assert_allclose(jax.jit(pointwise_mutual_information)(x, t), value, rtol=1e-10)
    batch = jax.vmap(mutual_information_divergence)(jnp.stack([x, 2 * x]), jnp.stack([t, t]))
    np.testing.assert_allclose(batch, np.full(2, value.mean()), rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8, bool])
def test_small_types_are_cast_first(dtype):
    rng = np.random.default_rng(15)
    x, t = rng.integers(0, 2, (50, 2)).astype(dtype), rng.integers(0, 2, (50, 1)).astype(dtype)
    value = gaussian_mutual_information(x, t)
    exact = gaussian_mutual_information(x.astype(float), t.astype(float))
    np.testing.assert_allclose(value, exact, rtol=1e-6)


def test_a_ridge_makes_few_pairs_possible():
    x, t = draw(16, 4)
    with pytest.raises(ValueError, match="more than 5 reference pairs, received 4"):
        mutual_information_divergence(x, t)
    value = pointwise_mutual_information(x, t, ridge=0.2)
    np.testing.assert_allclose(value, oracle(x, t, x, t, 0.2), rtol=1e-9)
    with pytest.raises(ValueError, match="more than 5 reference pairs, received 5"):
        mutual_information_divergence(*draw(16, 5))
    assert np.isfinite(mutual_information_divergence(*draw(16, 6)))


def test_singular_covariances_are_refused():
    x, t = draw(17)
    repeated = np.hstack([t, t[:, :1] + t[:, 1:]])
    with pytest.raises(ValueError, match="column 2 of the prompts"):
        mutual_information_divergence(x, repeated)
    with pytest.raises(ValueError, match="column 0 of the prompts"):
        mutual_information_divergence(x, x[:, :2])
    constant = x.copy()
    constant[:, 1] = 5.0
    with pytest.raises(ValueError, match="column 1 of the outputs"):
        mutual_information_divergence(constant, t)
    assert np.isfinite(mutual_information_divergence(constant, t, ridge=1e-3))


def test_bad_inputs():
    x, t = draw(18)
    with pytest.raises(ValueError, match="60 outputs and 59 prompts"):
        mutual_information_divergence(x, t[:-1])
    with pytest.raises(ValueError, match="reference_prompts"):
        mutual_information_divergence(x, t, reference_outputs=x)
    with pytest.raises(ValueError, match="reference_outputs"):
        mutual_information_divergence(x, t, reference_prompts=t)
    with pytest.raises(ValueError, match="60 reference_outputs and 50 reference_prompts"):
        mutual_information_divergence(x, t, reference_outputs=x, reference_prompts=t[:50])
    with pytest.raises(ValueError, match="reference_outputs: expected 3 columns"):
        mutual_information_divergence(x, t, reference_outputs=x[:, :2], reference_prompts=t)
    bad = x.copy()
    bad[7, 1] = np.nan
    with pytest.raises(ValueError, match=r"outputs.*row 7"):
        mutual_information_divergence(bad, t)
    with pytest.raises(ValueError, match=r"reference_outputs.*row 7"):
        mutual_information_divergence(x, t, reference_outputs=bad, reference_prompts=t)
    with pytest.raises(ValueError, match="prompts"):
        mutual_information_divergence(x, t[:, 0])
    for ridge in (0.0, -1.0, np.nan, np.inf, "small", True):
        with pytest.raises(ValueError, match="ridge"):
            mutual_information_divergence(x, t, ridge=ridge)
    with pytest.raises(ValueError, match="received 1"):
        mutual_information_divergence(x[:1], t[:1])


def test_one_evaluated_pair_is_enough():
    reference = dict(zip(("reference_outputs", "reference_prompts"), draw(19), strict=True))
    x, t = draw(20, 1)
    assert pointwise_mutual_information(x, t, **reference).shape == (1,)


def test_documented_bias_of_fresh_pairs():
    """Fresh real pairs score about d_x d_t / m below the information of the fit's population."""
    rng = np.random.default_rng(21)
    m, d = 120, 4
    scores = []
    for _ in range(200):
        sample = rng.normal(size=(2, m, 2 * d))
        scores.append(
            mutual_information_divergence(
                sample[0][:, :d],
                sample[0][:, d:],
                reference_outputs=sample[1][:, :d],
                reference_prompts=sample[1][:, d:],
            )
        )
    # Information 0; expected -d^2/m + d^2/(2m) up to second order, and a standard error of 0.006.
    np.testing.assert_allclose(np.mean(scores), -d * d / (2 * m), atol=0.03)


def test_public_names():
    """What the package offers of this module."""
    assert {name for name in dir(mid) if "information" in name and name[0] != "_"} == {
        "gaussian_mutual_information",
        "mutual_information_divergence",
        "pointwise_mutual_information",
    }
