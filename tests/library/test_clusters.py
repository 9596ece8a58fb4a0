"""Cluster scores against means of NumPy's, and modes of prompts against its eigenvectors."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import slow
from oracles import assert_close, directional_difference, entropy, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.scores import clusters
from condvendi_jax.spectra import exact

WIDTH = 0.9
KERNEL = cv.Gaussian(WIDTH)


def clustered(n=40, count=4, seed=0):
    """Outputs of unequal clusters, one of them a single point, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.r_[0, rng.choice(np.arange(1, count), n - 1, p=np.array([1, 2, 5]) / 8)]
    outputs = rng.normal(size=(n, 3)) * (0.4 + 0.4 * labels[:, None])
    return outputs.astype(np.float32).astype(float), labels


@pytest.mark.parametrize("order", [1, 2, np.inf, slow(0.5), slow(1.05), slow(3)])
def test_scores_are_the_oracles(order, dtype):
    outputs, labels = clustered()
    options = {"kernel": cv.Gaussian(WIDTH), "order": order}
    given = outputs.astype(dtype), labels
    found = cv.clusters.cluster_vendi(*given, **options)
    assert clusters.scores_by_cluster(*given, **options).sizes.tolist() == [*np.bincount(labels)]
    grams = [gaussian_gram(outputs[labels == c], WIDTH) for c in labels]
    expected = np.mean([np.exp(entropy(gram, order=order)) for gram in grams])
    assert found.shape == ()
    # Roots of what rounding leaves of zero eigenvalues: the oracle counts them below order 1.
    loosened = 1e4 if order < 1 and dtype == np.float64 else 10
    assert_close(found, expected, loosened=loosened)


@pytest.mark.parametrize(
    "labels",
    [
        [0, 0, 1, 1, 1],
        ["b", "b", "a", "a", "a"],
        np.array(["b", "b", "a", "a", "a"], object),
        np.array([2.5, 2.5, -1, -1, -1]),
        jnp.array([False, False, True, True, True]),
    ],
)
def test_labels_of_any_plain_kind(labels):
    """And of `Pairs`, whose prompts have no part in the score."""
    outputs = np.array([0, 1, 2, 2, 4], np.float32)[:, None]
    kernel = cv.Gaussian(0.1)
    pairs = cv.Pairs(outputs, outputs, output_kernel=kernel, prompt_kernel=kernel)
    for points, options in ((outputs, {"kernel": kernel}), (pairs, {})):
        found = cv.clusters.cluster_vendi(points, labels, order=2, **options)
        assert float(found) == pytest.approx(0.4 * 2 + 0.6 * 9 / 5, rel=1e-5)
    with pytest.raises(TypeError, match="kernel: expected none beside Pairs"):
        cv.clusters.cluster_vendi(pairs, labels, kernel=kernel)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_large_clusters_go_by_the_method(order, monkeypatch):
    """A cluster above the limit gives the same, by whichever method, and the method is asked."""
    outputs, labels = clustered()
    outputs = outputs.astype(np.float32)
    together = cv.clusters.cluster_vendi(outputs, labels, kernel=KERNEL, order=order)
    asked = []

    class Asked(exact.Exact):
        def entropies(self, *arguments):
            asked.append(1)
            return super().entropies(*arguments)

    monkeypatch.setattr(clusters, "_TOGETHER_UP_TO", 8)
    apart = cv.clusters.cluster_vendi(outputs, labels, kernel=KERNEL, order=order, method=Asked())
    np.testing.assert_allclose(apart, together, rtol=1e-5)
    assert bool(asked) == (order == 1)


@pytest.mark.parametrize("order", [slow(1), 2])
def test_gradients_are_finite_differences(order, x64):
    """In outputs and bandwidth at once; and finite where two outputs are equal."""
    outputs, labels = clustered(n=14)
    direction = np.random.default_rng(2).normal(size=outputs.shape)

    @jax.jit
    def score(step):
        moved, kernel = outputs + step * direction, cv.Gaussian(WIDTH + 0.3 * step)
        return cv.clusters.cluster_vendi(moved, labels, kernel=kernel, order=order)

    slope = directional_difference(score, 0.0, 1.0, step=1e-3)
    np.testing.assert_allclose(jax.grad(score)(0.0), slope, rtol=1e-6)
    outputs[5] = outputs[6]
    assert np.isfinite(jax.grad(score)(0.0))


@pytest.mark.slow
def test_many_clusters_of_many_sizes_are_few_programs():
    sizes = np.r_[np.arange(1, 65), 97, 128, 129, 700, 1000]
    rows, weights = np.arange(sizes.sum()), np.repeat(1 / sizes, sizes)
    points = cv.Pairs(np.float32(rows[:, None] % 7), output_kernel=KERNEL)
    of = points, rows, sizes, np.arange(sizes.size), weights, cv.Entropy(2)
    padded = {each.places.shape[1] for each in exact.compute_sets(*of)}
    assert sorted(padded) == [16, 32, 64, 128, 129, 1000]


def test_modes_of_any_prompts_are_numpys(x64):
    """K_X o v v^T by its definition, of prompts some of which are equal."""
    rng = np.random.default_rng(3)
    prompts = rng.normal(size=(12, 2))[rng.integers(0, 12, 30)]
    outputs = rng.normal(size=(30, 3))
    kernels = {"output_kernel": cv.Gaussian(0.9), "prompt_kernel": cv.Gaussian(0.7)}
    gram_x, gram_t = gaussian_gram(outputs, 0.9), gaussian_gram(prompts, 0.7)
    values, vectors = np.linalg.eigh(gram_t / 30)
    modes = cv.clusters.prompt_modes(outputs, prompts, **kernels)
    assert len(modes) == 3
    for index, mode in enumerate(modes, start=1):
        v = vectors[:, -index]
        assert mode.share == pytest.approx(values[-index], rel=1e-10)
        v *= np.sign(v[np.argmax(np.abs(v))])
        np.testing.assert_allclose(mode.direction, v, atol=1e-9)
        np.testing.assert_allclose(mode.weights, v**2, atol=1e-9)
        matrix = 30 * gram_x * np.outer(v, v)
        assert_close(np.float64(mode.vendi), np.exp(entropy(matrix)), loosened=100)
        assert_close(np.float64(mode.rke), 1 / np.sum((matrix / 30) ** 2), loosened=100)
        assert mode.size == pytest.approx(1 / np.sum(v**4), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("output_kernel", [cv.Gaussian(0.9), cv.Cosine()])
def test_modes_without_a_matrix_agree_with_those_of_one(output_kernel, monkeypatch):
    """Iterated, tiled and estimated, in float32."""
    rng = np.random.default_rng(5)
    prompts, outputs = (rng.normal(size=(90, d)).astype(np.float32) for d in (2, 3))
    options = {"output_kernel": output_kernel, "prompt_kernel": cv.Gaussian(1.0), "count": 2}
    dense = cv.clusters.prompt_modes(outputs, prompts, **options)
    monkeypatch.setattr(clusters, "_DENSE_UP_TO", 10)
    monkeypatch.setattr("condvendi_jax.grams.operators._DENSE_UP_TO", 10)
    jax.clear_caches()
    for fits in (True, False):
        memory = types.SimpleNamespace(fits=lambda *_, fits=fits, **__: fits)
        monkeypatch.setattr(clusters, "memory", memory)
        method = cv.MatrixFree(jax.random.key(0), rtol=0.01)
        modes = cv.clusters.prompt_modes(outputs, prompts, **options, method=method)
        for mode, known in zip(modes, dense, strict=True):
            assert mode.share == pytest.approx(known.share, rel=1e-4)
            assert mode.vendi == pytest.approx(known.vendi, rel=0.02)
            assert mode.rke == pytest.approx(known.rke, rel=1e-4)
            np.testing.assert_allclose(mode.direction, known.direction, atol=2e-3)
    jax.clear_caches()


ROWS, UNIT = np.arange(8, dtype=np.float32).reshape(4, 2), np.eye(4, dtype=np.float32)
CLUSTERED = functools.partial(cv.clusters.cluster_vendi, ROWS, kernel=KERNEL)
PROMPTED = {"prompts": UNIT, "output_kernel": KERNEL, "prompt_kernel": KERNEL}
MASKED = np.ma.masked_array([0, 1, 1, 1], [1, 0, 0, 0])


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 1], {}, r"expected 4 labels, one .* shape \(2,\)"),
        ([0.0, np.nan, 1, 1], {}, "labels: received NaN in row 1"),
        ([0, None, 1, 1], {}, "expected all numbers or all strings"),
        ([0, "0", 1, 1], {}, "expected all numbers or all strings"),  # One label to NumPy.
        (MASKED, {}, "mask"),
        (np.array(["NaT"] * 4, "M8[D]"), {}, "labels: received NaN in row 0"),
        ([0, 0, 1, 1], {"method": "exact"}, "method: expected"),
        (None, {"count": 5}, "count: expected at most 4, received 5"),
        (None, {"count": 0}, "count: expected an integer of at least 1"),
        (None, {"method": None}, "method: expected"),
        (None, {"prompts": UNIT[:3]}, "4 outputs and 3 prompts"),
        (None, {"prompts": None, "prompt_kernel": None}, "prompts: expected embeddings"),
    ],
)
def test_bad_labels_and_modes_are_refused(labels, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        if labels is None:
            cv.clusters.prompt_modes(ROWS, **(PROMPTED | options))
        else:
            CLUSTERED(labels, **options)


def test_traced_labels_are_refused():
    with pytest.raises(TypeError, match="traced"):
        jax.jit(CLUSTERED)(jnp.arange(4))
