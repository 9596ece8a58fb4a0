"""What bad and hostile inputs get: an error that names them, a warning, or the right number."""

import functools
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import errors_at, kernels, named, slow
from oracles import assert_close, conditional_rke_gradient, draw_pairs, gaussian_gram, scores

import condvendi_jax as cv
from condvendi_jax.base import checks, memory
from condvendi_jax.spectra import estimators, refinement

KEY = jax.random.key(0)
N = 20
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
LABELS = np.arange(N) % 3
ONE, COSINE = cv.Gaussian(1.0), cv.Cosine()
in_float32 = pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")


def _paired(function, **options):
    def call(x, t, kernel, **more):
        return function(x, t, **named((kernel, kernel)), **options, **more)

    return call


PAIRED = {
    "decompose": _paired(cv.decompose),
    "deletions": _paired(errors_at, groups=3),
    "prompt_modes": _paired(cv.clusters.prompt_modes),
    "Pairs": _paired(cv.Pairs),
}
WITH_KERNEL = PAIRED | {
    "vendi": lambda x, _, kernel: cv.vendi(x, kernel=kernel),
    "gram": lambda x, _, kernel: cv.gram(kernel, x),
    "cluster_vendi": lambda x, _, kernel: cv.clusters.cluster_vendi(x, LABELS, kernel=kernel),
    "rrke": lambda x, _, kernel: cv.baselines.rrke(x, OUTPUTS, kernel=kernel),
}
EVERYTHING = WITH_KERNEL | {
    "bandwidth_by_rule": lambda x, *_: cv.bandwidth_by_rule(x, "variance", key=KEY),
    "median": lambda x, *_: cv.bandwidth_by_rule(x, "median", key=KEY),
    "mid": lambda x, t, _: cv.baselines.mutual_information_divergence(x, t),
    "evaluate": lambda x, *_: cv.evaluate(x),
    "compare": lambda x, *_: cv.compare({"a": x, "b": OUTPUTS}),
}


def _changed(value, row=7, array=OUTPUTS):
    changed = array.copy()
    changed[row] = value
    return changed


MASKED = np.ma.masked_array(OUTPUTS, OUTPUTS > 1)
BLOCKS = np.kron(np.eye(4), np.ones((5, 5)))


@pytest.mark.parametrize(
    ("calls", "given", "error", "words"),
    [
        (EVERYTHING, (_changed(np.nan),), ValueError, "@: .*NaN or infinity.*first of them row 7"),
        (EVERYTHING, (np.zeros((0, 3), np.float32),), ValueError, r"@: .*shape \(0, 3\)"),
        (EVERYTHING, (OUTPUTS[:, 0],), ValueError, r"@: .*\[n, d\], received shape \(20,\)"),
        (EVERYTHING, (OUTPUTS.astype(object),), TypeError, "@: .*dtype object"),
        (EVERYTHING, (OUTPUTS.astype(str),), TypeError, "@: .*dtype <U"),
        (EVERYTHING, (BLOCKS,), ValueError, r"@: .*similarities.*cv.Similarities\(K\)"),
        (EVERYTHING, (MASKED,), TypeError, "@: a masked array"),
        (PAIRED, (OUTPUTS, _changed(np.nan, 5, PROMPTS)), ValueError, "prompts: .*NaN.*row 5"),
        (PAIRED, (OUTPUTS, PROMPTS[:-1]), ValueError, "received 20 outputs and 19 prompts"),
        (
            WITH_KERNEL,
            (_changed(0), PROMPTS, COSINE),
            ValueError,
            "@: the cosine .*zero row.*row 7",
        ),
        (WITH_KERNEL, (OUTPUTS, PROMPTS, "gaussian"), TypeError, "kernel: expected a kernel such"),
    ],
)
def test_every_function_refuses_bad_arrays_and_kernels(calls, given, error, words):
    default = OUTPUTS, PROMPTS, ONE
    for call in calls.values():
        with pytest.raises(error, match=words.replace("@", "(outputs|points)")):
            call(*given, *default[len(given) :])


def test_the_call_for_similarities_works_and_rows_of_one_hot_are_embeddings():
    similarities = np.kron(np.eye(3), np.ones((40, 40))).astype(np.float32)
    with pytest.raises(ValueError) as refused:
        cv.evaluate(similarities, orders=[2])
    call = re.search(r"cv.Similarities\(K\)", str(refused.value))
    assert call
    assert_close(cv.vendi(eval(call[0], {"cv": cv, "K": similarities})), 3.0)
    for one_hot in (np.eye(5), np.eye(5, dtype=int)[[1, 0, 2, 4, 3]]):
        found = cv.rke(one_hot.astype(np.float32), kernel=cv.Gaussian(0.5))
        assert_close(found, 1 / (0.2 + 0.8 * np.exp(-8)))


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e25])
def test_one_row_at_any_scale(scale):
    row = np.full((1, 2), scale, np.float32)
    for kernel in (ONE, COSINE):
        for order in (0.5, 1, 2, np.inf):
            result = PAIRED["decompose"](row, row, kernel, order=order)
            assert list(map(float, result.scores)) == [1, 1, 1]
    with pytest.raises(ValueError, match="one row has no distance"):
        cv.bandwidth_by_rule(row, "median", key=KEY)


def test_identical_rows_have_scores_of_exactly_one(dtype):
    constant = np.full((65, 3), 1.234, dtype)
    for order in (0.3, 1, 2):
        kernels = named((COSINE, cv.Gaussian(1.0)))
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
    bandwidth = 100.0 if small != "bool" else 1.0
    gram = gaussian_gram(outputs.astype(jnp.float32), bandwidth)
    for order in (1, 2):
        got = cv.vendi(outputs, kernel=cv.Gaussian(bandwidth), order=order)
        assert got.dtype == jnp.float32
        assert_close(got, scores(gram, gram, order=order)["vendi"])


def _padded(rows, dtype=np.float32, columns=8):
    points = np.random.default_rng(0).normal(size=(40, columns)).astype(dtype)
    for row, value in rows.items():
        points[row] = value
    return points


END = dict.fromkeys(range(30, 40), 0.0)


@in_float32
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
    for call in (
        lambda: PAIRED["decompose"](x, t, ONE),
        lambda: cv.evaluate(x, t, orders=[2]),
        lambda: cv.compare({"a": x, "b": x[::-1]}, t, orders=[2]).first,
    ):
        with pytest.warns(UserWarning, match="outputs and prompts: float64 .* float32") as caught:
            result = call()
        assert {warning.filename for warning in caught} == {__file__}  # Whose call it was.
        assert len({str(warning.message) for warning in caught}) == 1
        assert result.dtype == "float32"
    # Lists are arrays. Two points at distance 5: k^2 = exp(-25 / 2.5^2).
    assert_close(cv.rke([[0, 0], [3, 4]], kernel=cv.Gaussian(2.5)), 2 / (1 + np.exp(-4)))


ORDERED = (
    cv.entropies.Entropy,
    functools.partial(cv.vendi, OUTPUTS, kernel=ONE),
    *(
        functools.partial(function, OUTPUTS, PROMPTS, **named((ONE, ONE)))
        for function in (cv.decompose, cv.conditional_vendi, errors_at)
    ),
)


NAN, INF = np.nan, np.inf
WIDTH, UNIT = [cv.Gaussian], [functools.partial(cv.Gaussian, 1.0)]
KEYED = (
    functools.partial(cv.bandwidth_by_rule, OUTPUTS, "variance"),
    functools.partial(cv.spectra.spectral_measure, cv.gram(COSINE, OUTPUTS)),
)


@pytest.mark.parametrize(
    ("calls", "values", "error", "message"),
    [
        (WIDTH, (0, -1.0, NAN, INF, np.float32(0)), ValueError, "bandwidth: .*number above 0"),
        (WIDTH, ([1.0], [1.0, 2.0]), ValueError, r"bandwidth: .*scalar, received shape \([12],\)"),
        (WIDTH, (None, "1", b"1", 1j, True, np.array(True)), TypeError, "bandwidth: .*a positive "),
        (WIDTH, (1e-42, 1e-300, 1e300), ValueError, "bandwidth: .*is beyond what float32 resolves"),
        (UNIT, (0, -1.0, INF, "1", True), ValueError, "unit: expected a finite number above 0"),
        (ORDERED, (0, -1, NAN, -INF, "two", None, True, 1j), ValueError, "order: .*above 0.*inf"),
        (ORDERED, (0, -3, 2.5, "5", True), ValueError, "truncation: expected None or an integer"),
        (KEYED, ("k", 1), TypeError, "key: expected one random key"),
    ],
)
def test_numbers_and_keys_that_are_none_are_refused(calls, values, error, message):
    for call in calls:
        for value in values:
            with pytest.raises(error, match=message):
                call(**{message.partition(":")[0]: value})


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
    for order in (1, 2):
        with pytest.warns(UserWarning, match=rf"outputs: .*Gaussian\(bandwidth.*{message}"):
            assert_close(cv.vendi(OUTPUTS, kernel=cv.Gaussian(value), order=order), score)


def test_what_does_not_fit_in_memory_is_refused_with_the_alternative(monkeypatch):
    monkeypatch.setattr(memory, "limit", lambda: 4 * N * N * 4 - 1)
    message = r"n = 20 points need about .* GiB.*method=cv.Auto.key=.*order 2"
    tiled = cv.grams.TiledGram.from_points(ONE, jnp.asarray(OUTPUTS))
    wide = draw_pairs(N, d_x=12, d_t=12, dtype=np.float32)
    for refused in (
        lambda: cv.vendi(OUTPUTS, kernel=ONE),
        lambda: PAIRED["decompose"](OUTPUTS, PROMPTS, ONE),
        lambda: PAIRED["decompose"](OUTPUTS, PROMPTS, ONE, order=2, truncation=4),
        lambda: cv.conditional_vendi(*wide, **named((COSINE, COSINE))),
        tiled.eigenvalues,
    ):
        with pytest.raises(ValueError, match=message):
            refused()
    tiled.squared_frobenius_norm()
    cv.vendi(OUTPUTS, kernel=COSINE)


def test_memory_that_runs_out_is_a_clear_error(monkeypatch):
    def fail(_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr(estimators, "all_eigenvalues", fail)
    with pytest.raises(ValueError, match=r"Memory ran out.*n = 20.*cv.Auto\(key"):
        PAIRED["decompose"](OUTPUTS, PROMPTS, ONE)
    monkeypatch.setattr(refinement, "_store", fail)
    with pytest.raises(ValueError, match=r"Memory ran out.*n = 20"):
        PAIRED["decompose"](OUTPUTS, PROMPTS, ONE, method=cv.Stored(KEY))


def test_values_are_not_looked_at_inside_jit():
    """Nothing can raise there; shapes are checked all the same."""
    score = jax.jit(lambda x: cv.rke(x, kernel=ONE))
    assert np.isnan(score(_changed(np.nan)))
    with pytest.raises(ValueError, match="received shape"):
        score(OUTPUTS[0])


def test_what_no_framework_can_convert_is_named():
    class Broken:
        def __array__(self, *_, **__):
            raise RuntimeError("on another device")

    with pytest.raises(TypeError, match="outputs: expected an array .*Broken.*on another device"):
        cv.rke(Broken(), kernel=ONE)


# Distances that a matrix product of float32 rounds away, and numbers that a cast would merge.


def with_outlier(far=1e6):
    points = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    points[17] += far / (1 + np.arange(8))
    return points, 1.5


def tight_clusters(n=120):
    rng = np.random.default_rng(1)
    centres = np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0)
    return (centres + 1e-3 * rng.normal(size=(n, 3))).astype(np.float32), 1e-3


def scaled(scale, **rows):
    points = scale * np.random.default_rng(2).normal(size=(60, 3)).astype(np.float32)
    points[5] = rows.get("fifth", points[5])
    return points, scale


UNRESOLVED = {
    "outlier": with_outlier(),
    "overflow": with_outlier(far=3e38),
    "tight": tight_clusters(),
    "far": (tight_clusters()[0][:, :1] + np.float32(64), 1e-3),
    "tiny": scaled(1e-20),
    "huge": scaled(1e25),
    "narrow beside one": scaled(1e-20, fifth=1),
}


@pytest.mark.parametrize(
    ("name", "order"), [*((name, 2) for name in UNRESOLVED), slow("outlier", 1), slow("tight", 1)]
)
def test_bandwidths_below_the_rounding_of_a_matrix_product(name, order):
    """RKE was 2.27 for 104.65, and 2.66 for 30.3."""
    points, sigma = UNRESOLVED[name]
    # The oracle's own range is no matter: lengths are measured in bandwidths.
    gram = gaussian_gram(points.astype(np.float64) / sigma, 1.0)
    prompts = draw_pairs(len(points), dtype=np.float32)[1]
    expected = scores(gram, gaussian_gram(prompts, 1.0), order=order)
    found = cv.decompose(points, prompts, **kernels((sigma, 1.0)), order=order)
    for score, value in expected.items():
        assert_close(getattr(found, score), value, loosened=10)
    alone = cv.vendi(points, kernel=cv.Gaussian(sigma), order=order)
    assert_close(alone, expected["vendi"], loosened=10)
    kernel = cv.Gaussian(sigma).suited_to(jnp.asarray(points))
    tiled = cv.grams.TiledGram.from_points(kernel, jnp.asarray(points))
    assert_close(tiled.squared_frobenius_norm(), np.mean(gram**2), loosened=10)


def test_the_form_by_differences_is_taken_only_where_it_is_needed():
    plain = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    for sigma in (0.5, 8.0, 1e3):
        assert cv.Gaussian(sigma).suited_to(jnp.asarray(plain)).unit is None
    for points, sigma in UNRESOLVED.values():
        assert cv.Gaussian(sigma).suited_to(jnp.asarray(points)).unit is not None


def test_a_unit_makes_scores_and_slopes_by_differences_inside_transformations():
    outputs, sigma = tight_clusters(60)
    prompts = draw_pairs(60, dtype=np.float32)[1]
    options = kernels((sigma, 1.0)) | {"output_kernel": cv.Gaussian(sigma, unit=sigma)}
    expected = 1 / np.mean(gaussian_gram(outputs, sigma) ** 2)
    found = jax.jit(lambda x: cv.rke(x, kernel=options["output_kernel"]))(outputs)
    assert_close(found, expected, loosened=10)
    expected = conditional_rke_gradient(np.float64(outputs), np.float64(prompts), (sigma, 1.0))
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


@in_float32
@pytest.mark.parametrize("move", [lambda x: x + 2**40, lambda x: x + 1e8], ids=["int", "float"])
def test_points_are_moved_near_the_origin_before_they_are_cast(move):
    """Scores were 1 for 31.6, and 1 for 7.86."""
    near = np.random.default_rng(0).integers(0, 40, size=(80, 2))
    points = move(near)
    expected = scores(gaussian_gram(near, 3.0), gaussian_gram(near, 5.0), order=2)
    found = cv.decompose(points, points, **kernels((3.0, 5.0)), order=2)
    assert_close(found.vendi, expected["vendi"])
    assert_close(found.conditional, expected["conditional"])
    assert_close(cv.gram(cv.Gaussian(3.0), points).squared_frobenius_norm(), 1 / expected["vendi"])
    far, close = (cv.baselines.rrke(p, p[:50], kernel=cv.Gaussian(3.0)) for p in (points, near))
    assert_close(far, float(close))
    of_far, of_near = (cv.bandwidth_by_rule(of, "median", key=KEY) for of in (points, near))
    assert of_far.bandwidth == pytest.approx(of_near.bandwidth, rel=1e-6)


@in_float32
def test_a_far_first_row_leaves_the_others_their_digits():
    """Less the first row, the others were equal in float32."""
    points = np.random.default_rng(0).normal(size=(80, 2))
    points[0] = 1e12, -1e12
    expected = 1 / np.mean(gaussian_gram(points, 3.0) ** 2)
    assert_close(cv.rke(points, kernel=cv.Gaussian(3.0)), expected)


@in_float32
def test_what_a_cast_would_merge_or_lose_is_told():
    points = np.arange(20, dtype=np.int64)[:, None] + 2**40
    with pytest.warns(UserWarning, match=r"outputs: 1. row\(s\) that differ in int64 are equal"):
        cv.rke(points, kernel=COSINE)
    with pytest.warns(UserWarning, match=r"1 row\(s\) that differ in float64 are equal in"):
        cv.rke(np.array([[0.0], [0.0], [1.0], [1.0 + 1e-12]]), kernel=ONE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cv.rke(np.arange(20)[:, None], kernel=ONE)
    for kernel in (ONE, COSINE):
        with pytest.raises(ValueError, match=r"outputs: 1 row.* beyond .* of float32.* row 1"):
            cv.rke(np.array([[1.0], [1e300], [1.0]]), kernel=kernel)


def test_the_min_entropy_takes_the_krylov_space_alone(monkeypatch, x64):
    """It took 25 times the products: steps were added that its error does not depend on."""
    points, budgets = draw_pairs(900, d_x=5)[0], []
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
