"""The accumulator of batches, against the papers' definitions and one-shot decompositions."""

import pickle

import jax
import numpy as np
import pytest
from canonical import kernels
from flax import nnx
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, gaussian_grams, scores

import condvendi_jax as cv
from condvendi_jax.integrations import flax_metric as metrics

N = 45
BANDWIDTHS = (0.7, 0.5)
TRUNCATED = {"order": 1, "truncation": 4}
COSINE = {"output_kernel": cv.Cosine(), "prompt_kernel": cv.Cosine()}


def _stored(**changes):
    """With kernels that have the precision of the moment."""
    return metrics.StoredDecomposition(**(kernels(BANDWIDTHS) | changes))


def _feed(metric, outputs, prompts, sizes):
    """Updates by batches of the sizes, the last of which is what is left."""
    for part in np.split(np.arange(outputs.shape[0]), np.cumsum(sizes)):
        if part.size:
            metric.update(outputs=outputs[part], prompts=prompts[part])
    return metric


def _assert_scores(result, expected, *, loosened=1):
    for name, value in expected.items():
        assert_close(getattr(result, name), value, loosened=loosened)


def _oracle(*pairs, gram=None, **entropy):
    grams = map(gram, pairs) if gram else gaussian_grams(pairs, BANDWIDTHS)
    return scores(*grams, **entropy)


def _snapshot(metric):
    """The number of samples and the scores, to see that a refused call changed nothing."""
    result = metric.compute(order=2)
    return metric.n, float(result.vendi), float(result.conditional), float(result.information)


@pytest.mark.parametrize(
    ("changes", "gram", "entropy"),
    [({}, None, {"order": 2}), ({}, None, TRUNCATED), (COSINE, cosine_gram, {"order": 2})],
)
def test_batches_give_the_scores_of_all_samples(changes, gram, entropy, dtype):
    """Batches of several sizes, from memory that is reused."""
    pairs = draw_pairs(N, dtype=dtype)
    given = [p.copy() for p in pairs]
    metric = _feed(_stored(**changes, **entropy), *given, [20, 1, 20])
    for array in given:
        array[:] = 0
    result = metric.compute()
    _assert_scores(result, _oracle(*pairs, gram=gram, **entropy))
    assert (result.n, result.order) == (N, entropy["order"])
    assert result.truncation == entropy.get("truncation")
    assert result.dtype == dtype.name
    # Options of the call win, and all samples serve other functions too.
    _assert_scores(metric.compute(order=3, truncation=None), _oracle(*pairs, gram=gram, order=3))
    assert cv.evaluate(metric.pairs(), orders=[2]).n == N


def test_without_prompts_the_diversity_is_that_of_the_outputs(x64):
    """Prompts that are passed along are not read."""
    outputs, _ = draw_pairs(N)
    metric = _stored(prompt_kernel=None)
    metric.update(outputs=outputs[:20], prompts="not read")
    metric.update(outputs=outputs[20:])
    result, gram = metric.compute(order=2), gaussian_gram(outputs, 0.7)
    expected = scores(gram, gram, order=2)["vendi"]
    _assert_scores(result, {"vendi": expected, "conditional": expected, "information": 1.0})


def test_one_sample_has_scores_of_one():
    metric = _stored()
    with pytest.raises(ValueError, match="no samples yet: call update"):
        metric.compute()
    metric.update(outputs=np.ones((1, 3), np.float32), prompts=np.ones((1, 2), np.float32))
    _assert_scores(metric.compute(), dict.fromkeys(("vendi", "conditional", "information"), 1.0))


def test_merging_with_nothing_with_itself_and_across_processes(x64):
    pairs = draw_pairs(N)
    metric, empty = _feed(_stored(), *pairs, [20]), _stored()
    before = _snapshot(metric)
    first, rest = (_feed(_stored(), *(p[part] for p in pairs), []) for part in np.s_[:20, 20:])
    other = _snapshot(rest)
    first.merge(pickle.loads(pickle.dumps(rest)))  # As another process would send it.
    assert _snapshot(rest) == other
    assert _snapshot(first) == before
    metric.merge(empty)
    assert _snapshot(metric) == before
    empty.merge(metric)
    assert _snapshot(empty) == before
    # Every row twice leaves every score as it was.
    metric.merge(metric)
    assert metric.n == 2 * N
    for got, expected in zip(_snapshot(metric)[1:], before[1:], strict=True):
        assert_close(got, expected)


def test_a_clone_goes_its_own_way_and_reset_forgets_everything():
    pairs = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(), *(p[:20] for p in pairs), [])
    before, clone = _snapshot(metric), nnx.clone(metric)
    clone.update(outputs=pairs[0][20:], prompts=pairs[1][20:])
    assert _snapshot(metric) == before
    metric.reset()
    assert metric.n == 0
    assert _snapshot(_feed(metric, *pairs, [20])) == _snapshot(clone)


def test_masked_rows_are_left_out_whatever_they_hold():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    keep = np.random.default_rng(1).random(N) < 0.6
    metric = _stored()
    metric.update(outputs=outputs, prompts=prompts, mask=np.zeros(N, bool))
    assert metric.n == 0
    spoiled = [np.where(keep[:, None], p, np.nan) for p in (outputs, prompts)]
    metric.update(outputs=spoiled[0], prompts=spoiled[1], mask=keep)
    assert _snapshot(metric) == _snapshot(_feed(_stored(), outputs[keep], prompts[keep], []))


def test_a_metric_stands_beside_others_and_survives_a_compiled_function(x64):
    pairs = draw_pairs(N)
    every = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), scores=_stored(order=2))
    every.update(outputs=pairs[0][:20], prompts=pairs[1][:20], loss=1.0)
    nnx.jit(lambda m: None)(every.scores)
    with pytest.raises(TypeError, match="update: cannot run inside jax.jit, .* cv.decompose"):
        nnx.jit(lambda m, x, t: m.update(outputs=x, prompts=t))(every.scores, *pairs)
    every.update(outputs=pairs[0][20:], prompts=pairs[1][20:], loss=1.0)
    with jax.numpy_dtype_promotion("standard"):  # Flax divides floats by integers.
        _assert_scores(every.compute()["scores"], _oracle(*pairs, order=2))
    every.reset()
    assert every.scores.n == 0


def test_updates_that_do_not_fit():
    outputs, prompts = draw_pairs(N, dtype=np.float32)
    metric = _feed(_stored(prompt_kernel=cv.Cosine()), outputs, prompts, [20])
    before, both = _snapshot(metric), {"outputs": outputs, "prompts": prompts}
    spoiled, zeros = outputs.copy(), prompts.copy()
    spoiled[3, 1], zeros[3] = np.nan, 0
    for problem, batch in (
        ("outputs: expected .* dimension 3, received 2", {"outputs": prompts, "prompts": prompts}),
        ("prompts: expected .* dimension 2, received 3", {"outputs": outputs, "prompts": outputs}),
        ("prompts: expected", {"outputs": outputs}),
        ("45 outputs and 44 prompts", {"outputs": outputs, "prompts": prompts[1:]}),
        ("two-dimensional", {"outputs": outputs[0], "prompts": prompts}),
        ("one row", {"outputs": outputs[:0], "prompts": prompts[:0]}),
        ("outputs: .* row 3", both | {"outputs": spoiled}),
        ("prompts: .* zero row.* row 3", both | {"prompts": zeros}),
        ("mask: .* bool", both | {"mask": np.ones(N)}),
        ("mask: .*45", both | {"mask": np.ones(N - 1, bool)}),
        ("weights: expected 45", both | {"weights": np.ones(N - 1)}),
    ):
        with pytest.raises(ValueError, match=problem):
            metric.update(**batch)
    with pytest.raises(TypeError, match="prompts: expected real numbers"):
        metric.update(outputs=outputs, prompts=np.full((N, 2), "a"))
    for name in ("masks", "sample_weight", "maks"):
        words = f"update: received {name}, .* expected outputs, prompts"
        with pytest.raises(TypeError, match=words):
            metric.update(**both, **{name: np.ones(N, bool)})
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
    for name in ("output_kernel", "prompt_kernel"):
        with pytest.raises(TypeError, match=name):
            _stored(**{name: "gaussian"})
    assert _snapshot(metric) == before
