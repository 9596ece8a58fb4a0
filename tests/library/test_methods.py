"""How scores are computed: which way is taken, and that all ways agree."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw_pairs, gaussian_gram, scores

import condvendi_jax as cv
from condvendi_jax.base import memory
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.spectra import computation, exact, methods

N = 700
KEY = jax.random.key(5)
KERNELS = {"output_kernel": cv.Gaussian(0.5), "prompt_kernel": cv.Gaussian(0.6)}
ROOM_FOR_8000 = 4 * 8000 * 8000 * 4


def pairs(dtype=np.float64, n=N):
    return draw_pairs(n, d_x=5, d_t=3, dtype=dtype)


def oracle_scores(outputs, prompts, **entropy):
    return scores(gaussian_gram(outputs, 0.5), gaussian_gram(prompts, 0.6), **entropy)


def chosen(method=None, *, n=100, kernel=None, arrays=2):
    """The name of the method that runs."""
    made = (jnp.ones((n, 3), jnp.float32),) * arrays, (kernel or cv.Gaussian(1.0),) * arrays
    points = Pairs.trusted(*made, n=n)
    method = cv.Auto(KEY) if method is None else method
    terms = methods.ALL_TERMS if arrays == 2 else methods.OUTPUTS
    return method.suited_to(methods.grams_of_terms(points), terms).name


def test_the_way_goes_by_kernel_n_memory_and_key_or_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: ROOM_FOR_8000)
    assert chosen(n=4096) == "exact"
    assert chosen(n=4097) == "stored"
    assert chosen(cv.Auto(), n=4097) == "exact"
    assert chosen(n=8001) == "matrix-free"
    assert chosen(cv.MatrixFree(KEY), n=100) == "matrix-free"
    assert chosen(n=20_000, kernel=cv.Cosine(), arrays=1) == "exact"
    assert chosen(n=20_000, kernel=cv.Cosine()) == "matrix-free"  # Of pairs.
    assert chosen(cv.Stored(KEY), n=5000, kernel=cv.Cosine(), arrays=1) == "stored"
    for method in (cv.Exact(), cv.Stored(KEY), cv.Auto()):
        with pytest.raises(ValueError, match=r"n = 8001 points need about.*cv.Auto\(key"):
            chosen(method, n=8001)


@pytest.mark.parametrize("method", ["exact", None, cv.Exact, 1])
def test_a_method_is_an_object_also_where_it_does_nothing(method):
    with pytest.raises(TypeError, match=r"method: expected cv.Auto\(key=...\), cv.Exact"):
        cv.vendi(np.ones((3, 1), np.float32), kernel=cv.Cosine(), order=2, method=method)


@pytest.mark.parametrize("method", [cv.Auto, cv.Stored, cv.MatrixFree])
def test_keys_and_tolerances_are_checked_where_they_are_given(method):
    for rtol in (-1e-3, 0, 1, np.nan, "small", True):
        with pytest.raises(ValueError, match="rtol: expected a number between 0 and 1"):
            method(KEY, rtol=rtol)
    for key in (0, "key", jax.random.split(KEY), np.zeros(3)):
        with pytest.raises(TypeError, match="key: expected one random key"):
            method(key)
    assert method(jax.random.PRNGKey(0)).rtol == 2e-3
    if method is not cv.Auto:
        with pytest.raises(ValueError, match="key: expected a random key"):
            method(None)


def test_methods_have_names_for_command_lines():
    assert list(computation.BY_NAME) == ["auto", "exact", "stored", "matrix-free"]
    for name, kind in computation.BY_NAME.items():
        assert type(computation.named(name, key=KEY, rtol=0.1)) is kind
    assert computation.named("stored", key=KEY, rtol=0.1).rtol == 0.1
    assert computation.named("stored", key=KEY).rtol == 2e-3
    with pytest.raises(ValueError, match="method: expected one of auto, exact, stored"):
        computation.named("fast", key=KEY)


def test_the_time_of_long_work_is_that_of_the_cube_of_the_rows():
    """5e-11 seconds times 20,000 cubed are 400 seconds."""
    gram = types.SimpleNamespace(n=20_000, rank_bound=20_000)
    with pytest.warns(UserWarning, match="n = 20,000 points take some 7 minutes"):
        exact.warn_of_long_work({"outputs": gram}, ["outputs"])


@pytest.mark.slow
def test_long_exact_work_is_announced_with_the_remedy(monkeypatch):
    monkeypatch.setattr(exact, "_LONG_ABOVE", 50)
    with pytest.warns(UserWarning, match=r"n = 60 points take .* minutes.*cv.Auto\(key") as caught:
        cv.decompose(*pairs(np.float32, 60), **KERNELS)
    assert len(caught) == 1
    cv.decompose(*pairs(np.float32, 60), **KERNELS, order=2)
    cv.vendi(pairs(np.float32, 60)[0], kernel=cv.Cosine())


@pytest.mark.parametrize(
    "method, order, truncation, dtype",
    [
        (cv.Stored, 1, None, "float32"),
        (cv.MatrixFree, 1, None, "float64"),
        pytest.param(cv.Stored, 1, 80, "float32", marks=pytest.mark.slow),
    ],
    indirect=["dtype"],
)
def test_estimates_agree_with_eigenvalues_within_their_intervals(method, order, truncation, dtype):
    options = KERNELS | {"order": order, "truncation": truncation}
    oracle = oracle_scores(*pairs(dtype), order=order, truncation=truncation)
    rtol = 1e-2
    result = cv.decompose(*pairs(dtype), **options, method=method(KEY, rtol=rtol))
    assert (result.method, result.n) == (method.name, N)
    for name, truth in oracle.items():
        value = float(getattr(result, name))
        low, high = getattr(result.estimation.intervals, name)
        slack = (high - low) / 4
        assert low - slack <= truth <= high + slack
        assert high - low <= 2.1 * rtol * value
        assert low < value < high
        assert 0 < getattr(result.estimation.standard_errors, name) < high - low


@pytest.mark.parametrize("order", [1, 0.5])
@pytest.mark.parametrize("method", [cv.Exact(), cv.Stored(KEY)])
def test_intervals_hold_what_float32_rounds_away(method, order):
    """Of 64 tight clusters float32 hardly resolves the small eigenvalues: a distance is rounded."""
    rng = np.random.default_rng(0)
    centres, rows = 3 * rng.normal(size=(64, 8)), np.arange(256) % 64
    points = (centres[rows] + 0.003 * rng.normal(size=(256, 8))).astype(np.float32)
    options = {"output_kernel": cv.Gaussian(1.0), "order": order}
    gram = gaussian_gram(points, 1.0)
    truth = scores(gram, np.ones_like(gram), order=order)["vendi"]
    low, high = cv.decompose(points, **options, method=method).intervals.vendi
    assert low <= truth <= high < low * (1.005 if order == 1 else 1.3)


def test_without_prompts_a_decomposition_is_that_of_one_prompt_for_all(x64):
    outputs, _ = pairs(n=60)
    kernel = KERNELS["output_kernel"]
    same = {"output_kernel": kernel, "prompt_kernel": cv.Gaussian(1.0)}
    one_prompt = cv.decompose(outputs, np.zeros((60, 1)), **same)
    found = cv.decompose(outputs, output_kernel=kernel)
    np.testing.assert_allclose(one_prompt.scores, found.scores, rtol=1e-9)
    assert (found.entropy_prompts, found.information) == (0, 1)
    low, high = found.intervals.vendi
    assert low < found.vendi < high < low * (1 + 1e-9)

    estimated = cv.decompose(pairs()[0], output_kernel=kernel, method=cv.Stored(KEY, rtol=5e-3))
    assert estimated.vendi == estimated.conditional
    assert estimated.intervals.conditional == estimated.intervals.vendi
    assert estimated.intervals.information == (1, 1)
    assert estimated.estimation.standard_errors.vendi > 0
    assert estimated.estimation.standard_errors.information == 0


def test_several_entropies_of_one_call_keep_their_order(x64):
    """Those of a norm and those of a spectrum are computed apart."""
    points = Pairs(*pairs(n=50), **KERNELS)
    wanted = (cv.von_neumann, cv.Entropy(2), cv.Entropy(truncation=5), cv.Entropy(3))
    found = computation.compute(points, wanted, cv.Exact())
    assert [each.method for each in found] == ["exact", "frobenius", "exact", "exact"]
    for entropy, each in zip(wanted, found, strict=True):
        (alone,) = computation.compute(points, (entropy,), cv.Exact())
        np.testing.assert_allclose(each.values, alone.values, rtol=1e-12)


def test_inside_jit_only_all_eigenvalues_can_be_had(x64):
    outputs, prompts = map(jnp.asarray, pairs(n=60))

    def score(outputs, function=cv.conditional_vendi, **options):
        return function(outputs, prompts, **KERNELS, **options)

    inside = jax.jit(lambda x: score(x, method=cv.Auto(KEY)))(outputs)
    np.testing.assert_allclose(inside, score(outputs))
    for function in (cv.conditional_vendi, cv.information_vendi):
        for transformed in (jax.jit, jax.grad):
            with pytest.raises(TypeError, match="inside jit, vmap or grad"):
                transformed(lambda x, f=function: score(x, f, method=cv.Stored(KEY)))(outputs)
