"""What every bad input gets, row by row: an error that names it, a warning, or the right number."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import errors_at
from oracles import assert_close, draw_pairs, gaussian_gram, scores

import condvendi_jax as cv
from condvendi_jax.base import checks, memory
from condvendi_jax.data import bandwidth

KEY = jax.random.key(0)
N = 20
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
LABELS = np.arange(N) % 3


def _kernels(kernel):
    return {"output_kernel": kernel, "prompt_kernel": kernel}


def _paired(function, **options):
    return lambda x, t, kernel: function(x, t, **_kernels(kernel), **options)


PAIRED = {
    "decompose": _paired(cv.decompose),
    "deletions": _paired(errors_at, groups=3),
    "prompt_modes": _paired(cv.clusters.prompt_modes),
    "Pairs": _paired(cv.Pairs),
}
WITH_KERNEL = {
    "vendi": lambda x, kernel: cv.vendi(x, kernel=kernel),
    "gram": lambda x, kernel: cv.gram(kernel, x),
    "cluster_vendi": lambda x, kernel: cv.clusters.cluster_vendi(x, LABELS, kernel=kernel),
    "rrke": lambda x, kernel: cv.baselines.rrke(x, OUTPUTS, kernel=kernel),
    **{
        name: lambda x, kernel, function=function: function(x, PROMPTS, kernel)
        for name, function in PAIRED.items()
    },
}
WITHOUT_KERNEL = {
    "bandwidth_by_rule": lambda x, _: bandwidth.bandwidth_by_rule(x, "variance", key=KEY),
    "median": lambda x, _: cv.bandwidth_by_rule(x, "median", key=KEY),
    "mid": lambda x, _: cv.baselines.mutual_information_divergence(x, PROMPTS),
    "evaluate": lambda x, _: cv.evaluate(x),
    "compare": lambda x, _: cv.compare({"a": x, "b": OUTPUTS}),
}
EVERYTHING = WITH_KERNEL | WITHOUT_KERNEL
every_function = pytest.mark.parametrize("name", EVERYTHING)


def _changed(value, row=7):
    changed = OUTPUTS.copy()
    changed[row, 1] = value
    return changed


@every_function
@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (_changed(np.nan), ValueError, r"(outputs|points): .*NaN or infinity.*first of them row 7"),
        (np.zeros((0, 3), np.float32), ValueError, r"(outputs|points): .*shape \(0, 3\)"),
        (OUTPUTS[:, 0], ValueError, r"(outputs|points): .*\[n, d\], received shape \(20,\)"),
        (OUTPUTS.astype(object), TypeError, r"(outputs|points): .*dtype object"),
        (OUTPUTS.astype(str), TypeError, r"(outputs|points): .*dtype <U"),
        (
            np.kron(np.eye(4), np.ones((5, 5))),
            ValueError,
            r"(outputs|points): .*similarities.*cv.Similarities\(K\)",
        ),
        (np.ma.masked_array(OUTPUTS, OUTPUTS > 1), TypeError, r"(outputs|points): a masked array"),
    ],
)
def test_bad_arrays_are_refused(name, array, error, message):
    with pytest.raises(error, match=message):
        EVERYTHING[name](array, cv.Gaussian(1.0))


def test_the_call_for_similarities_works_and_rows_of_one_hot_are_embeddings():
    similarities = np.kron(np.eye(3), np.ones((40, 40))).astype(np.float32)
    with pytest.raises(ValueError) as refused:
        cv.evaluate(similarities, orders=[2])
    call = re.search(r"cv.Similarities\(K\)", str(refused.value))
    assert call
    given = eval(call[0], {"cv": cv, "K": similarities})
    assert_close(cv.vendi(given), 3.0)
    for one_hot in (np.eye(5), np.eye(5, dtype=int)[[1, 0, 2, 4, 3]]):
        found = cv.rke(one_hot.astype(np.float32), kernel=cv.Gaussian(0.5))
        assert_close(found, 1 / (0.2 + 0.8 * np.exp(-8)))


@pytest.mark.parametrize("name", PAIRED)
def test_prompts_are_checked_like_outputs_and_counted(name):
    bad = PROMPTS.copy()
    bad[5] = np.nan
    with pytest.raises(ValueError, match=r"prompts: .*NaN.*first of them row 5"):
        PAIRED[name](OUTPUTS, bad, cv.Gaussian(1.0))
    with pytest.raises(ValueError, match="received 20 outputs and 19 prompts"):
        PAIRED[name](OUTPUTS, PROMPTS[:-1], cv.Gaussian(1.0))


@pytest.mark.parametrize("name", WITH_KERNEL)
def test_zero_rows_have_no_direction_and_kernels_are_kernels(name):
    zero = OUTPUTS.copy()
    zero[3] = 0
    words = r"(outputs|points): the cosine kernel .*zero row.*first of them row 3"
    with pytest.raises(ValueError, match=words):
        WITH_KERNEL[name](zero, cv.Cosine())
    with pytest.raises(TypeError, match=r"kernel: expected a kernel such as Gaussian"):
        WITH_KERNEL[name](OUTPUTS, "gaussian")


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e25])
def test_one_row_at_any_scale(scale):
    row = np.full((1, 2), scale, np.float32)
    for kernel in (cv.Gaussian(1.0), cv.Cosine()):
        for order in (0.5, 1, 2, np.inf):
            result = cv.decompose(row, row, **_kernels(kernel), order=order)
            assert list(map(float, result.scores)) == [1, 1, 1]
    with pytest.raises(ValueError, match="one row has no distance"):
        cv.bandwidth_by_rule(row, "median", key=KEY)


def test_identical_rows_have_scores_of_exactly_one(dtype):
    constant = np.full((65, 3), 1.234, dtype)
    kernels = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Gaussian(1.0)}
    for order in (0.3, 1, 2):
        result = cv.decompose(constant, constant[:, :2], **kernels, order=order)
        # An ulp of the diagonal, where the kernel is an inner product.
        np.testing.assert_allclose(result.scores, 1, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("small", ["float16", jnp.bfloat16, "int32", "uint8", "int8", "bool"])
def test_small_dtypes_are_cast_before_any_arithmetic(small):
    """Values near the top of uint8 and int8, whose differences and squares would wrap around."""
    spread = np.random.default_rng(0).integers(0, 2, size=(N, 3)) * 120
    try:
        jnp.ones(N, small).astype(jnp.float32)
    except jax.errors.JaxRuntimeError:
        pytest.skip(f"XLA cannot convert {small} on this processor")
    outputs = jnp.asarray(spread.astype(jnp.dtype(small)))
    exact = np.asarray(outputs.astype(jnp.float32), np.float64)
    bandwidth = 100.0 if small != "bool" else 1.0
    for order in (1, 2):
        got = cv.vendi(outputs, kernel=cv.Gaussian(bandwidth), order=order)
        expected = scores(*[gaussian_gram(exact, bandwidth)] * 2, order=order)["vendi"]
        assert got.dtype == jnp.float32
        assert_close(got, expected)


def _padded(rows, dtype=np.float32, columns=8):
    points = np.random.default_rng(0).normal(size=(40, columns)).astype(dtype)
    for row, value in rows.items():
        points[row] = value
    return points


END = dict.fromkeys(range(30, 40), 0.0)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (_padded(END), "10 row.* The first is row 30, with 0."),
        (jnp.asarray(_padded({3: -1.0})), "1 row.* The first is row 3, with -1."),
        (_padded(END)[:, ::-1] + np.float64(1e6), "10 row.* row 30, with 1e.06"),
        (_padded({5: [1, 2, -65504, *[0] * 5]}, np.float16), "1 row.* row 5, with -65504."),
        (_padded({5: [3.4028235e38, *[0] * 7]}), "1 row.* row 5, with 3.40282e.38."),
    ],
)
@pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")
def test_rows_that_no_encoder_gives_are_named(points, said):
    with pytest.warns(UserWarning, match=f"points: {said}"):
        checks.check_embeddings(points, name="points", origin=checks.origin_of(points))


def test_ordinary_rows_are_not_called_padding():
    """Few columns, labels, one-hot rows, equal rows, and answers that recur."""
    answers = _padded({})[np.arange(40) // 10]
    whole = np.round(3 * _padded(END))
    for points in (_padded(END, columns=7), whole, np.eye(20) / 3, 0 * whole + 0.5, answers):
        checks.check_embeddings(points.astype(np.float32), name="points")
    values = jax.jit(lambda x: checks.check_embeddings(x, name="points"))(_padded(END))
    np.testing.assert_array_equal(values, _padded(END))


def test_float64_is_computed_in_float32_with_one_warning_where_x64_is_off():
    x, t = (p.astype(np.float64) for p in (OUTPUTS, PROMPTS))
    calls = [lambda: cv.decompose(x, t, **_kernels(cv.Gaussian(1.0)))]
    calls += [lambda: cv.evaluate(x, t, orders=[2])]
    calls += [lambda: cv.compare({"a": x, "b": x[::-1]}, t, orders=[2]).first]
    for call in calls:
        with pytest.warns(UserWarning, match="outputs and prompts: float64 .* float32") as caught:
            result = call()
        assert {warning.filename for warning in caught} == {__file__}  # Whose call it was.
        assert len({str(warning.message) for warning in caught}) == 1
        assert result.dtype == "float32"
    # Lists are arrays. Two points at distance 5: k^2 = exp(-25 / 2.5^2).
    assert_close(cv.rke([[0, 0], [3, 4]], kernel=cv.Gaussian(2.5)), 2 / (1 + np.exp(-4)))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((0, -1.0, np.nan, np.inf, np.float32(0)), ValueError, "a finite number above 0, received"),
        (([1.0], [1.0, 2.0]), ValueError, r"a scalar, received shape \([12],\)"),
        ((None, "1", b"1", 1j, True, np.array(True)), TypeError, "a positive number, received"),
        ((1e-42, 1e-300, 1e300), ValueError, "is beyond what float32 resolves"),
    ],
)
def test_bandwidths_are_scalars_above_zero(values, error, message):
    for value in values:
        with pytest.raises(error, match=f"bandwidth: .*{message}"):
            cv.Gaussian(value)


@pytest.mark.parametrize(
    "value", [2, np.float64(2), np.float16(2), np.array(2.0), jnp.array(2), jnp.bfloat16(2)]
)
def test_scalars_of_any_kind_are_the_same_bandwidth_and_order(value):
    expected = float(cv.rke(OUTPUTS, kernel=cv.Gaussian(2.0)))
    assert float(cv.rke(OUTPUTS, kernel=cv.Gaussian(value))) == expected
    if isinstance(value, (int, np.generic)):
        assert float(cv.vendi(OUTPUTS, kernel=cv.Gaussian(2.0), order=value)) == expected


@pytest.mark.parametrize(
    ("value", "score", "message"),
    [(s, 1, "constant.*cannot tell") for s in (1e6, 1e25)]
    + [(s, N, "identity.*only count") for s in (1e-4, 1e-25)],
)
def test_bandwidths_that_say_nothing_are_computed_with_a_warning(value, score, message):
    kernel = cv.Gaussian(value)
    for order in (1, 2):
        with pytest.warns(UserWarning, match=rf"outputs: .*Gaussian\(bandwidth.*{message}"):
            assert_close(cv.vendi(OUTPUTS, kernel=kernel, order=order), score)


ORDERED = {
    "entropy": lambda **options: cv.entropies.Entropy(**options),
    "vendi": lambda **options: cv.vendi(OUTPUTS, kernel=cv.Gaussian(1.0), **options),
    **{
        name: functools.partial(function, OUTPUTS, PROMPTS, **_kernels(cv.Gaussian(1.0)), **options)
        for name, function, options in (
            ("decompose", cv.decompose, {}),
            ("conditional_vendi", cv.conditional_vendi, {}),
            ("errors", errors_at, {"groups": 3}),
        )
    },
}


@pytest.mark.parametrize("name", ORDERED)
def test_orders_are_above_zero_and_truncations_are_integers_of_at_least_one(name):
    for order in (0, -1, float("nan"), -np.inf, "two", None, True, 1j):
        with pytest.raises(ValueError, match="order: expected a number above 0.*von Neumann.*inf"):
            ORDERED[name](order=order)
    for truncation in (0, -3, 2.5, "5", True):
        with pytest.raises(ValueError, match="truncation: expected None or an integer of at least"):
            ORDERED[name](truncation=truncation)


def test_what_does_not_fit_in_memory_is_refused_with_the_alternative(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: 4 * N * N * 4 - 1)
    message = r"n = 20 points need about .* GiB.*method=cv.Auto.key=.*order 2"
    tiled = cv.grams.TiledGram.from_points(cv.Gaussian(1.0), jnp.asarray(OUTPUTS))
    paired, wide = _kernels(cv.Gaussian(1.0)), draw_pairs(N, d_x=12, d_t=12, dtype=np.float32)
    for refused in (
        lambda: cv.vendi(OUTPUTS, kernel=cv.Gaussian(1.0)),
        lambda: cv.decompose(OUTPUTS, PROMPTS, **paired),
        lambda: cv.decompose(OUTPUTS, PROMPTS, **paired, order=2, truncation=4),
        lambda: cv.conditional_vendi(*wide, **_kernels(cv.Cosine())),
        tiled.eigenvalues,
    ):
        with pytest.raises(ValueError, match=message):
            refused()
    tiled.squared_frobenius_norm()
    cv.vendi(OUTPUTS, kernel=cv.Cosine())


def test_values_are_not_looked_at_inside_jit():
    """Nothing can raise there; shapes are checked all the same."""
    score = jax.jit(lambda x: cv.rke(x, kernel=cv.Gaussian(1.0)))
    assert np.isnan(score(_changed(np.nan)))
    with pytest.raises(ValueError, match="received shape"):
        score(OUTPUTS[0])
