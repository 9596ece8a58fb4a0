"""Accumulators over batches, against the papers' definitions and one-shot decompositions."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxprs import largest_array, matrix_product_precisions
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, scores
from precision import x64 as precision_x64

import condvendi_jax as cv
from condvendi_jax import metrics
from condvendi_jax.metrics import stored

N = 45
BANDWIDTHS = (0.7, 0.5)
TRUNCATED = {"order": 1, "truncation": 4}
SMALL_TILES = 16
COSINE = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine()}


def _kernels(bandwidths=BANDWIDTHS):
    """Made where they are used: a bandwidth has the precision of the moment."""
    return dict(zip(("output_kernel", "prompt_kernel"), map(cv.Gaussian, bandwidths), strict=True))


def _stored(**changes):
    return metrics.StoredDecomposition(**({"tile_size": SMALL_TILES} | _kernels() | changes))


def _feed(metric, outputs, prompts, sizes):
    """Updates by batches of the sizes, the last of which is what is left."""
    for part in np.split(np.arange(outputs.shape[0]), np.cumsum(sizes)):
        if part.size:
            metric.update(outputs=outputs[part], prompts=prompts[part])
    return metric


def _assert_scores(result, expected, *, loosened=1):
    for name, value in expected.items():
        assert_close(getattr(result, name), value, loosened=loosened)


def _oracle(outputs, prompts, gram=None, **entropy):
    if gram is not None:
        return scores(gram(outputs), gram(prompts), **entropy)
    return scores(
        *(gaussian_gram(p, s) for p, s in zip((outputs, prompts), BANDWIDTHS, strict=True)),
        **entropy,
    )


def _snapshot(metric):
    """What a metric says of itself, to see that a refused call left it alone."""
    result = metric.compute(order=2)
    return metric.n, float(result.vendi), float(result.conditional), float(result.information)


# Values


@pytest.mark.parametrize(
    ("changes", "gram", "entropy"),
    [({}, None, {"order": 2}), ({}, None, TRUNCATED), (COSINE, cosine_gram, {"order": 2})],
)
def test_batches_give_the_scores_of_all_samples(changes, gram, entropy, dtype):
    """Batches smaller than a tile, as large as several, and of one row; memory that is reused."""
    pairs = draw_pairs(N, dtype=dtype)
    given = [p.copy() for p in pairs]
    metric = _feed(_stored(**changes), *given, [20, 1, 20])
    for array in given:
        array[:] = 0
    result = metric.compute(**entropy)
    _assert_scores(result, _oracle(*pairs, gram, **entropy))
    assert (result.n, result.order) == (N, entropy["order"])
    assert result.truncation == entropy.get("truncation")
    assert result.dtype == dtype.name
    assert result.method == ("frobenius" if entropy == {"order": 2} else "exact")


def test_each_stored_metric_reports_one_score_and_has_them_all(x64):
    pairs = draw_pairs(N)
    expected, of_one = _oracle(*pairs, order=2), _oracle(*pairs, order=1)
    for metric, name in (
        (metrics.RKE(kernel=cv.Gaussian(0.7)), "vendi"),
        (metrics.ConditionalRKE(**_kernels()), "conditional"),
        (metrics.InformationRKE(**_kernels()), "information"),
    ):
        assert_close(_feed(metric, *pairs, [20]).compute(), expected[name])
        named = ["vendi"] if name == "vendi" else list(expected)
        _assert_scores(metric.decompose(order=2), {key: expected[key] for key in named})
        _assert_scores(metric.decompose(), {key: of_one[key] for key in named})


@pytest.mark.slow
def test_without_prompts_the_diversity_is_that_of_the_outputs(x64):
    """As of one and the same prompt; prompts that are passed along are not read."""
    outputs, prompts = draw_pairs(N)
    metric, gram = _stored(prompt_kernel=None), gaussian_gram(outputs, 0.7)
    metric.update(outputs=outputs[:20], prompts="not read")
    metric.update(outputs=outputs[20:])
    for entropy in ({"order": 2}, TRUNCATED):
        result = metric.compute(**entropy)
        expected = scores(gram, gram, **entropy)["vendi"]
        assert_close(result.vendi, expected)
        assert_close(result.entropy_prompts, 0.0)
        assert_close(result.conditional, expected)
        assert_close(result.information, 1.0)


def test_one_sample_has_scores_of_one():
    metric = _stored()
    with pytest.raises(ValueError, match="no samples yet: call update"):
        metric.compute()
    metric.update(outputs=np.ones((1, 3), np.float32), prompts=np.ones((1, 2), np.float32))
    for order in (1, 2):
        result = metric.compute(order=order)
        _assert_scores(result, dict.fromkeys(("vendi", "conditional", "information"), 1.0))


@pytest.mark.parametrize("given", [np.float16, np.int32, np.uint8, bool])
def test_small_dtypes_are_cast_before_any_arithmetic(given):
    pairs = [(np.abs(4 * p) + 1).astype(given) for p in draw_pairs(N)]
    as_float = [p.astype(np.float32) for p in pairs]
    one, two = _feed(_stored(), *pairs, [20]), _feed(_stored(), *as_float, [20])
    assert _snapshot(one) == _snapshot(two)
    assert one.compute().dtype == "float32"


@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_data_far_from_the_origin(offset):
    """A stream has no mean in advance. What is left is the rounding of the points themselves."""
    outputs, prompts = (np.float32(p + offset) for p in draw_pairs(N))
    metric = _feed(_stored(), outputs, prompts, [20])
    _assert_scores(metric.compute(order=2), _oracle(outputs, prompts, order=2))


# Batches, order, merging


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_neither_batches_nor_their_order_nor_merging_matter(data):
    """Any partition of any permutation, fed to up to three metrics merged in any order."""
    n = 12
    with precision_x64(True):
        pairs = draw_pairs(n)
        order = data.draw(st.permutations(range(n)))
        cuts = sorted(data.draw(st.sets(st.sampled_from([4, 8]))))
        batches = np.split(np.array(order), cuts)
        owners = data.draw(st.lists(st.integers(0, 2), min_size=3, max_size=3))
        first, *others = parts = [_stored(tile_size=8) for _ in range(3)]
        for batch, owner in zip(batches, owners, strict=False):
            parts[owner].update(outputs=pairs[0][batch], prompts=pairs[1][batch])
        for other in data.draw(st.permutations(others)):
            first.merge(other)
        assert first.n == n
        _assert_scores(first.compute(order=2), _oracle(*pairs, order=2))


def test_merging_with_nothing_with_itself_and_with_more(x64):
    pairs = draw_pairs(N)
    metric, empty = _feed(_stored(), *pairs, [20]), _stored()
    before = _snapshot(metric)
    first, rest = (
        _feed(_stored(), *(p[part] for p in pairs), []) for part in (slice(20), slice(20, N))
    )
    other = _snapshot(rest)
    first.merge(rest)
    assert _snapshot(rest) == other
    assert_close(first.compute(**TRUNCATED).conditional, metric.compute(**TRUNCATED).conditional)
    metric.merge(empty)
    assert _snapshot(metric) == before
    empty.merge(metric)
    assert _snapshot(empty) == before
    # Every row twice leaves every score as it was.
    metric.merge(metric)
    assert metric.n == 2 * N
    for got, expected in zip(_snapshot(metric)[1:], before[1:], strict=True):
        assert_close(got, expected)


def test_reset_forgets_everything(x64):
    pairs = draw_pairs(N)
    metric = _feed(_stored(), *(5 * p for p in pairs), [20])
    metric.reset()
    assert metric.n == 0
    assert _snapshot(_feed(metric, *pairs, [20])) == _snapshot(_feed(_stored(), *pairs, [20]))


def test_a_clone_goes_its_own_way():
    """Tiles that both have begun are not shared."""
    pairs = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(), *(p[:20] for p in pairs), [])
    before, clone = _snapshot(metric), nnx.clone(metric)
    clone.update(outputs=pairs[0][20:], prompts=pairs[1][20:])
    assert _snapshot(metric) == before
    metric.update(outputs=-pairs[0][20:], prompts=pairs[1][20:])
    assert _snapshot(clone) == _snapshot(_feed(_stored(), *pairs, [20]))


def test_masked_rows_are_left_out_whatever_they_hold(x64):
    outputs, prompts = draw_pairs(N)
    keep = np.random.default_rng(1).random(N) < 0.6
    metric = _stored()
    metric.update(outputs=outputs, prompts=prompts, mask=np.zeros(N, bool))
    assert metric.n == 0
    spoiled = [np.where(keep[:, None], p, np.nan) for p in (outputs, prompts)]
    metric.update(outputs=spoiled[0], prompts=spoiled[1], mask=keep)
    assert metric.n == keep.sum()
    expected = _feed(_stored(), outputs[keep], prompts[keep], [])
    for got, want in zip(_snapshot(metric)[1:], _snapshot(expected)[1:], strict=True):
        assert_close(got, want)


# Training loops


def test_stored_points_beside_other_metrics(x64):
    pairs = draw_pairs(N)
    every = nnx.MultiMetric(
        loss=nnx.metrics.Average("loss"),
        rke=metrics.RKE(kernel=cv.Gaussian(0.7)),
        conditional=metrics.ConditionalRKE(**_kernels()),
    )
    for part in (slice(0, 20), slice(20, N)):
        every.update(outputs=pairs[0][part], prompts=pairs[1][part], loss=1.0)
    expected = _oracle(*pairs, order=2)
    with jax.numpy_dtype_promotion("standard"):  # Flax divides floats by integers.
        values = every.compute()
    assert_close(values["rke"], expected["vendi"])
    assert_close(values["conditional"], expected["conditional"])
    every.reset()
    assert every.rke.n == every.conditional.n == 0


def test_stored_points_survive_a_compiled_function_and_are_not_updated_in_one(x64):
    pairs = draw_pairs(N)
    metric = _feed(_stored(), *(p[:20] for p in pairs), [])
    step = nnx.jit(lambda m, x, t: m.update(outputs=x, prompts=t))
    with pytest.raises(ValueError, match="outside, or return cv.decompose"):
        step(metric, pairs[0][20:], pairs[1][20:])
    nnx.jit(lambda m: None)(metric)
    metric.update(outputs=pairs[0][20:], prompts=pairs[1][20:])
    _assert_scores(metric.compute(order=2), _oracle(*pairs, order=2))


# What is refused


@pytest.mark.parametrize("name", ["outputs", "prompts"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_batch_that_is_not_finite_is_refused_whole(name, value):
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(), outputs, prompts, [20])
    before = _snapshot(metric)
    batch = {"outputs": outputs[:5].copy(), "prompts": prompts[:5].copy()}
    batch[name][3, 1] = value
    with pytest.raises(ValueError, match=f"{name}: .* row 3"):
        metric.update(**batch)
    assert _snapshot(metric) == before


@pytest.mark.parametrize("name", ["outputs", "prompts"])
def test_a_zero_row_under_the_cosine_kernel_is_refused(name):
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(**COSINE), outputs, prompts, [20])
    before = _snapshot(metric)
    batch = {"outputs": outputs[:5].copy(), "prompts": prompts[:5].copy()}
    batch[name][3] = 0
    with pytest.raises(ValueError, match=f"{name}: .* zero row.* row 3"):
        metric.update(**batch)
    assert _snapshot(metric) == before


def test_batches_may_be_far_apart():
    """Squared distances between them leave the range of float32; they are not alike."""
    metric = metrics.RKE(kernel=cv.Gaussian(1.0))
    metric.update(outputs=np.full((2, 2), 1e19, np.float32))
    metric.update(outputs=np.full((2, 2), -3e19, np.float32))
    assert_close(metric.compute(), 2.0)


def test_updates_that_do_not_fit():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(), outputs, prompts, [20])
    before = _snapshot(metric)
    for problem, batch in (
        ("outputs: expected .* dimension 3, received 2", {"outputs": prompts, "prompts": prompts}),
        ("prompts: expected .* dimension 2, received 3", {"outputs": outputs, "prompts": outputs}),
        ("prompts: expected", {"outputs": outputs}),
        ("45 outputs and 44 prompts", {"outputs": outputs, "prompts": prompts[1:]}),
        ("two-dimensional", {"outputs": outputs[0], "prompts": prompts}),
        ("two-dimensional", {"outputs": outputs[0], "prompts": prompts, "mask": np.ones(N, bool)}),
        ("one row", {"outputs": outputs[:0], "prompts": prompts[:0]}),
        ("mask: .* bool", {"outputs": outputs, "prompts": prompts, "mask": np.ones(N)}),
        ("mask: .*45", {"outputs": outputs, "prompts": prompts, "mask": np.ones(N - 1, bool)}),
    ):
        with pytest.raises(ValueError, match=problem):
            metric.update(**batch)
    with pytest.raises(TypeError, match="prompts: expected real numbers"):
        metric.update(outputs=outputs, prompts=np.full((N, 2), "a"))
    for name in ("masks", "sample_weight", "maks"):
        with pytest.raises(
            TypeError, match=f"update: received {name}, .* expected outputs, prompts"
        ):
            metric.update(outputs=outputs, prompts=prompts, **{name: np.ones(N, bool)})
    with pytest.raises(ValueError, match="weights: expected numbers in the range of float32"):
        metric.update(outputs=outputs, prompts=prompts, weights=np.full(N, 1e-60))
    assert _snapshot(metric) == before


def test_metrics_of_other_kernels_do_not_merge():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(), outputs, prompts, [])
    before = _snapshot(metric)
    for other in (
        _stored(output_kernel=cv.Gaussian(0.71)),
        _stored(prompt_kernel=cv.Cosine()),
        _stored(prompt_kernel=None),
    ):
        with pytest.raises(ValueError, match="other: expected the kernels"):
            metric.merge(other)
    swapped = _feed(_stored(), prompts, outputs, [])
    with pytest.raises(ValueError, match="outputs: expected .* dimension 3, received 2"):
        metric.merge(swapped)
    with pytest.raises(TypeError, match="other"):
        metric.merge(nnx.metrics.Average())
    assert _snapshot(metric) == before
    # Any metrics of the same stored points merge.
    one_score = metrics.ConditionalRKE(**_kernels())
    one_score.merge(metric)
    assert_close(one_score.compute(), before[2])


def test_arguments_of_the_constructors():
    kernel = cv.Gaussian(1.0)
    both = {"output_kernel": kernel, "prompt_kernel": None}
    for error, says, make, arguments in (
        (TypeError, "output_kernel", metrics.StoredDecomposition, {"output_kernel": "gaussian"}),
        (TypeError, "prompt_kernel", metrics.ConditionalRKE, both),
        (ValueError, "tile_size", metrics.RKE, {"kernel": kernel, "tile_size": 0}),
    ):
        with pytest.raises(error, match=says):
            make(**arguments)


def test_orders_and_truncations_out_of_range():
    metric = _feed(_stored(), *draw_pairs(5, dtype=np.float32), [])
    for wrong in ({"order": 0}, {"order": 1, "truncation": 0}):
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            metric.compute(**wrong)
    with pytest.warns(UserWarning, match="truncation 9 exceeds n = 5"):
        assert metric.compute(order=1, truncation=9).truncation == 5


def test_further_arguments_are_those_of_decompose():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(), outputs, prompts, [])
    _feed(metric, outputs[:4], prompts[:4], [])
    assert metric.compute(count_duplicates=True).duplicates == 4
    assert metric.compute().duplicates is None
    with pytest.raises(TypeError, match="unexpected"):
        metric.compute(unexpected=1)


@pytest.mark.parametrize("name", ["outputs", "prompts"])
@pytest.mark.parametrize(("bandwidth", "says"), [(1e4, "constant"), (1e-3, "the identity")])
def test_a_bandwidth_that_says_nothing_is_warned_of(name, bandwidth, says):
    pairs = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(**{f"{name[:-1]}_kernel": cv.Gaussian(bandwidth)}), *pairs, [20])
    with pytest.warns(UserWarning, match=f"{name}: .* numerically {says}"):
        metric.compute()


def test_a_kernel_value_a_millionth_and_a_half_below_one_is_not_constant():
    """No warning, which would be an error here."""
    outputs = np.float32([[-1], [1]]) * math.sqrt(3e-6) / 2
    metric = _stored(output_kernel=cv.Gaussian(1.0), prompt_kernel=cv.Gaussian(1.0))
    _feed(metric, outputs, np.float32([[0], [1]]), []).compute(order=2)


def test_equal_rows_are_no_fault_of_the_bandwidth():
    """One prompt for all: no warning, which would be an error here."""
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    result = _feed(_stored(), outputs, np.broadcast_to(prompts[:1], prompts.shape), [20]).compute(
        order=2
    )
    assert_close(result.conditional, float(result.vendi))


# Precision, memory, compilation


def test_stored_sums_in_float32_are_within_a_millionth():
    n = 1000
    pairs = draw_pairs(n, dtype=np.float32, d_x=8, d_t=4, modes=12)
    kernels = {"output_kernel": cv.Gaussian(2.0), "prompt_kernel": cv.Gaussian(1.5)}
    metric = _feed(metrics.StoredDecomposition(**kernels, tile_size=256), *pairs, [500])
    grams = [gaussian_gram(p, s) for p, s in zip(pairs, (2.0, 1.5), strict=True)]
    x, t, joint = (np.mean(g**2) for g in (*grams, grams[0] * grams[1]))
    found = metric.compute(order=2)
    scored = (found.vendi, found.conditional, found.information)
    np.testing.assert_allclose(scored, [1 / x, t / joint, joint / (x * t)], rtol=1e-6)


def test_no_array_of_n_by_n_is_made(monkeypatch):
    n, seen = 1000, []
    inner = stored._sums_in_tile

    def watched(*arguments):
        seen.append(arguments)
        return inner(*arguments)

    monkeypatch.setattr(stored, "_sums_in_tile", watched)
    pairs = draw_pairs(n, dtype=np.float32)
    _feed(_stored(tile_size=64), *pairs, [500])
    shapes = {tuple(leaf.shape for leaf in jax.tree.leaves(a)): a for a in seen}
    assert len(seen) > n * n / 64**2 / 2
    assert max(largest_array(inner, *arguments) for arguments in shapes.values()) < n * n / 50


def test_few_programs_serve_batches_of_every_size(monkeypatch):
    """16 and 32 rows against tiles of 32, whatever the sizes of the batches."""
    traced_twice = chex.assert_max_traces(stored._sums_in_tile.__wrapped__, n=2)
    monkeypatch.setattr(stored, "_sums_in_tile", jax.jit(traced_twice))
    pairs = draw_pairs(N, dtype=np.float32, d_x=4)
    metric = _feed(_stored(tile_size=32), *pairs, [1, 20, 10])
    _feed(metric, *pairs, [])
    # Another bandwidth is no other program.
    _feed(_stored(tile_size=32, output_kernel=cv.Gaussian(0.3)), *pairs, [1])
    with pytest.raises(AssertionError, match="traced > 2 times"):
        _feed(_stored(tile_size=16), *pairs, [1])
    assert [block[0].shape[0] for block in metric._stream.blocks] == [32, 32, 26]


def test_every_matrix_product_is_at_full_precision():
    rows = (jnp.ones((16, 3)), jnp.ones((16, 2)))
    kernels = tuple(_kernels().values())
    arguments = kernels, rows, rows, jnp.ones(16), jnp.ones(16, jnp.int32)
    precisions = matrix_product_precisions(stored._sums_in_tile, *arguments)
    assert precisions
    assert {p for pair in precisions for p in pair} == {jax.lax.Precision.HIGHEST}
