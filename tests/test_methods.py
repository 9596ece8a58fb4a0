"""How scores are computed: which way is taken, and that all ways agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw_pairs

import condvendi_jax as cv
from condvendi_jax import memory, scores, uncertainty

N = 700
KEY = jax.random.key(5)
KERNELS = {"output_kernel": cv.Gaussian(0.5), "prompt_kernel": cv.Gaussian(0.6)}
ESTIMATED = ["stored", "matrix-free"]


def pairs(dtype=np.float64, n=N):
    return draw_pairs(n, d_x=5, d_t=3, dtype=dtype)


def chosen(method="auto", *, n=100, key=KEY, entropy=cv.von_neumann, kernel=None, arrays=2, d=3):
    points = [jnp.zeros((n, d), jnp.float32)] * arrays
    kernels = [kernel or cv.Gaussian(1.0)] * arrays
    return scores.choose_method(method, (entropy,), points, kernels, key=key)


def test_the_way_goes_by_order_kernel_n_memory_and_key(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: 4 * 8000 * 8000 * 4)
    assert chosen(entropy=cv.renyi(2), n=20_000) == "frobenius"
    assert chosen("stored", entropy=cv.renyi(2), n=20_000) == "frobenius"
    assert chosen(entropy=cv.truncated(5, order=2)) == "exact"
    assert chosen(n=4096) == "exact"
    assert chosen(n=4097) == "stored"
    assert chosen(n=4097, key=None) == "exact"
    assert chosen(n=8001) == "matrix-free"
    assert chosen("matrix-free", n=100) == "matrix-free"
    assert chosen(n=20_000, kernel=cv.Cosine(), arrays=1) == "exact"
    assert chosen(n=20_000, kernel=cv.Cosine()) == "matrix-free"
    assert chosen("stored", n=5000, kernel=cv.Cosine(), arrays=1) == "stored"


def test_what_cannot_be_done_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: 4 * 8000 * 8000 * 4)
    with pytest.raises(ValueError, match="method: expected one of auto, exact, stored"):
        chosen("fast")
    for method in ESTIMATED:
        with pytest.raises(ValueError, match=r"key: expected a random key.*n = 100"):
            chosen(method, key=None)
    for method in ("exact", "stored"):
        with pytest.raises(ValueError, match="n = 8001 points need about"):
            chosen(method, n=8001)
    with pytest.raises(ValueError, match=r"n = 8001.*Give method=cv.Auto.key="):
        chosen(n=8001, key=None)


@pytest.mark.parametrize(
    "order, truncation, dtype",
    [
        (1, None, "float32"),
        (1, None, "float64"),
        (3, None, "float64"),
        (1, 80, "float32"),
        (0.7, None, "float32"),
    ],
    indirect=["dtype"],
)
def test_estimates_agree_with_all_eigenvalues_within_their_intervals(order, truncation, dtype):
    options = KERNELS | {"order": order, "truncation": truncation}
    exact = cv.decompose(*pairs(dtype), **options)
    assert exact.method == "exact"
    assert exact.estimation is None
    options |= {"key": KEY, "rtol": 4e-3}
    found = [cv.decompose(*pairs(dtype), **options, method=m) for m in ESTIMATED]
    for result, method in zip(found, ESTIMATED, strict=True):
        assert result.method == method
        for name in scores.PerScore._fields:
            value, truth = float(getattr(result, name)), float(getattr(exact, name))
            low, high = getattr(result.estimation.intervals, name)
            slack = (high - low) / 4
            assert low - slack <= truth <= high + slack
            assert high - low <= 2.1 * 4e-3 * value
            assert low < value < high
            assert 0 < getattr(result.estimation.standard_errors, name) < high - low
    np.testing.assert_allclose(found[0].conditional, found[1].conditional, rtol=2e-3)


@pytest.mark.parametrize("method", ESTIMATED)
def test_single_scores_are_those_of_the_decomposition(method, x64):
    outputs, prompts = pairs()
    options = {"method": method, "key": KEY, "rtol": 5e-3}
    whole = cv.decompose(outputs, prompts, **KERNELS, **options)
    conditional = cv.conditional_vendi(outputs, prompts, **KERNELS, **options)
    information = cv.information_vendi(outputs, prompts, **KERNELS, **options)
    np.testing.assert_allclose(conditional, whole.conditional, rtol=5e-3)
    np.testing.assert_allclose(information, whole.information, rtol=1e-12)
    alone = scores.vendi_with_interval(outputs, kernel=KERNELS["output_kernel"], **options)
    assert alone.method == method
    assert alone.interval[0] < alone.vendi < alone.interval[1]
    np.testing.assert_allclose(alone.vendi, whole.vendi, rtol=5e-3)
    assert cv.vendi(outputs, kernel=KERNELS["output_kernel"], **options) == alone.vendi
    exact = scores.vendi_with_interval(outputs, kernel=KERNELS["output_kernel"])
    assert (exact.method, exact.interval, exact.standard_error) == ("exact", None, None)


def test_order_two_is_exact_by_any_method(x64):
    outputs, prompts = pairs(n=50)
    for method in scores.METHODS:
        result = cv.decompose(outputs, prompts, **KERNELS, order=2, method=method)
        assert result.method == "frobenius"
        assert result.estimation is None


def test_a_narrower_tolerance_gives_a_narrower_interval(x64):
    widths = []
    for rtol in (1e-2, 1e-3):
        result = cv.decompose(*pairs(), **KERNELS, method="stored", key=KEY, rtol=rtol)
        ends = np.log(result.estimation.intervals)
        widths.append(float((ends[:, 1] - ends[:, 0]).max()) / 2)
    assert widths[1] <= 1e-3 < widths[0] <= 1e-2


def test_another_key_gives_another_number_and_the_same_key_the_same(x64):
    one, same, other = (
        float(cv.conditional_vendi(*pairs(), **KERNELS, method="stored", key=jax.random.key(k)))
        for k in (0, 0, 1)
    )
    assert one == same != other


@pytest.mark.parametrize(
    "method, dtype",
    [("stored", "float32"), ("matrix-free", "float64")],
    indirect=["dtype"],
)
def test_cosine_marginals_are_solved_in_the_dual_beside_an_estimated_joint(method, dtype):
    outputs, prompts = draw_pairs(N, d_x=40, d_t=30, dtype=dtype, modes=30)
    kernels = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine()}
    exact = cv.decompose(outputs, prompts, **kernels)
    found = cv.decompose(outputs, prompts, **kernels, method=method, key=KEY, rtol=0.01)
    np.testing.assert_allclose(found.vendi, exact.vendi, rtol=1e-4)
    assert found.estimation.standard_errors.vendi == 0
    low, high = found.estimation.intervals.conditional
    assert low - (high - low) / 4 <= exact.conditional <= high + (high - low) / 4
    assert found.estimation.standard_errors.conditional > 0


@pytest.mark.parametrize(
    "method, order, truncation",
    [("stored", 1, None), ("matrix-free", 1, None), ("matrix-free", 3, None), ("stored", 1, 80)],
)
def test_the_estimated_gradient_follows_the_exact_one(method, order, truncation, x64):
    outputs, prompts = map(jnp.asarray, pairs())

    def score(outputs, bandwidth, **options):
        return cv.conditional_vendi(
            outputs,
            prompts,
            output_kernel=cv.Gaussian(bandwidth),
            prompt_kernel=KERNELS["prompt_kernel"],
            order=order,
            truncation=truncation,
            **options,
        )

    gradient = jax.value_and_grad(score, argnums=(0, 1))
    value, exact = gradient(outputs, 0.5)
    estimate, found = gradient(outputs, 0.5, method=method, key=KEY)
    np.testing.assert_allclose(estimate, value, rtol=3e-3)
    np.testing.assert_allclose(found[1], exact[1], rtol=0.02)
    error = jnp.linalg.norm(found[0] - exact[0]) / jnp.linalg.norm(exact[0])
    assert error < 0.12
    assert abs(jnp.vdot(found[0], exact[0]) / jnp.vdot(exact[0], exact[0]) - 1) < 0.01


def test_inside_jit_only_all_eigenvalues_can_be_had(x64):
    outputs, prompts = map(jnp.asarray, pairs(n=60))

    def score(outputs, **options):
        return cv.conditional_vendi(outputs, prompts, **KERNELS, **options)

    np.testing.assert_allclose(jax.jit(lambda x: score(x, key=KEY))(outputs), score(outputs))
    with pytest.raises(TypeError, match="inside jit or vmap"):
        jax.jit(lambda x: score(x, key=KEY, method="stored"))(outputs)


def test_a_curve_says_size_by_size_how_it_was_computed(monkeypatch, x64):
    monkeypatch.setattr(scores, "_EXACT_UP_TO", 300)
    sizes = (200, 300, N)
    wanted = [cv.von_neumann, cv.truncated(80), cv.renyi(2)]
    exact = uncertainty.convergence_curve(*pairs(), sizes, **KERNELS, entropies=wanted)
    found = uncertainty.convergence_curve(*pairs(), sizes, **KERNELS, entropies=wanted, key=KEY)
    for one, other, entropy in zip(exact, found, wanted, strict=True):
        if not entropy.needs_spectrum:
            assert other.method == ("frobenius",) * 3
            assert other.estimation is None
            continue
        assert one.method == ("exact",) * 3
        assert other.method == ("exact", "exact", "stored")
        np.testing.assert_allclose(other.conditional[:2], one.conditional[:2])
        low, high = other.estimation.intervals.conditional
        np.testing.assert_allclose(low[:2], high[:2])
        assert low[2] - 0.01 < one.conditional[2] < high[2] + 0.01
        assert 0 < high[2] - low[2] < 0.1
        assert other.estimation.standard_errors.conditional.shape == (3,)
    tighter = uncertainty.convergence_curve(
        *pairs(), sizes, **KERNELS, entropies=wanted, key=KEY, rtol=1e-3
    )
    low, high = tighter[0].estimation.intervals.conditional
    assert (high[2] - low[2]) / 2 <= 1e-3 * tighter[0].conditional[2] * 1.01
    with pytest.raises(ValueError, match="key: expected a random key"):
        uncertainty.convergence_curve(*pairs(), sizes, **KERNELS, method="stored")
