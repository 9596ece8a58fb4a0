"""Kernels: values by hand, the block form against the two-point form, and numerical guards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, cosine_gram, draw_pairs, gaussian_gram, renyi

import condvendi_jax as cv


@jax.jit
def _gram(kernel, points):
    prepared = kernel.prepare(points)
    return kernel.cross(prepared, prepared)


KERNELS = {
    "gaussian": (lambda: cv.Gaussian(0.7), lambda p: gaussian_gram(p, 0.7)),
    "cosine": (cv.Cosine, cosine_gram),
}


@pytest.mark.parametrize("name", KERNELS)
def test_blocks_agree_with_pairs_and_with_the_oracle(name, dtype):
    kernel, oracle = KERNELS[name][0](), KERNELS[name][1]
    points = jnp.asarray(draw_pairs(20, dtype=dtype)[0])
    assert_close(_gram(kernel, points), oracle(points))
    blocks = jax.vmap(jax.vmap(kernel, in_axes=(None, 0)), in_axes=(0, None))
    pairwise = jax.jit(blocks)(points, points)
    assert_close(pairwise, oracle(points))
    assert pairwise.dtype == dtype


def test_kernels_are_pytrees_of_their_bandwidths_and_have_values_by_hand():
    """exp(-1 / (2 * 0.5^2)), the cosine of 45 degrees, and exp(-1 / (2 * 2^2))."""
    leaves, structure = jax.tree.flatten((cv.Gaussian(0.5), cv.Cosine(), cv.Gaussian(2.0)))
    assert [float(leaf) for leaf in leaves] == [0.5, 2.0]
    x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
    values = [kernel(x, y) for kernel in jax.tree.unflatten(structure, leaves)]
    assert_close(np.array(values), np.array([np.exp(-2), np.sqrt(0.5), np.exp(-1 / 8)]))


def test_repr_names_the_parameters():
    assert repr(cv.Gaussian(0.5)) == "Gaussian(bandwidth=0.5)"
    seen = []

    def build(bandwidth):
        seen.append(repr(cv.Gaussian(bandwidth)))  # Whose value is not known here.
        return cv.Gaussian(bandwidth)

    assert repr(jax.vmap(build)(jnp.ones(3))) == "Gaussian(bandwidth=[1. 1. 1.])"
    assert seen[0].startswith("Gaussian(bandwidth=")


def test_no_kernel_value_exceeds_one_for_near_duplicates():
    """Without the clip, rounding makes the squared distance of near-duplicates negative."""
    rng = np.random.default_rng(0)
    points = jnp.asarray(30 * rng.normal(size=(1, 8)) + 1e-3 * rng.normal(size=(60, 8)), "float32")
    spread_out = jnp.concatenate([points, -points])
    (x, half), kernel = cv.Gaussian(0.1).prepare(spread_out), cv.Gaussian(0.1)
    unclipped = half[:, None] + half[None, :] - x @ x.T
    assert float(unclipped.min()) < 0
    assert float(_gram(kernel, spread_out).max()) <= 1


def test_uncentred_distances_fail_far_from_the_origin():
    points = draw_pairs(60, dtype=np.float32)[0] + np.float32(1e4)
    expected = gaussian_gram(points, 0.7)
    half = jnp.sum(jnp.square(points), axis=1) / 2
    naive = jnp.exp(-jnp.maximum(half[:, None] + half[None, :] - points @ points.T, 0) / 0.49)
    assert float(np.abs(naive - expected).max()) > 0.1
    # The float32 points differ from each other by whole multiples of 1e-3: so far they are exact.
    assert_close(_gram(cv.Gaussian(0.7), jnp.asarray(points)), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_rows_whose_squares_leave_the_range_are_taken(scale):
    kernel, oracle = cv.Cosine(), cosine_gram
    points = draw_pairs(10, dtype=np.float32)[0]
    scaled = jnp.asarray(points * np.float32(scale))
    assert not bool(jnp.isfinite(1 / jnp.sum(jnp.square(scaled), axis=1)).all()) or scale > 1
    mixed = jnp.where(jnp.arange(10)[:, None] < 5, points / np.float32(scale), scaled)
    pull = jax.jit(lambda p: jax.vjp(lambda p: _gram(kernel, p), p))
    for rows, wanted in ((scaled, oracle(points)), (mixed, oracle(mixed))):
        gram, slope = pull(rows)
        assert_close(gram, wanted)
        assert np.isfinite(slope(jnp.ones((10, 10)))[0]).all()


def _entropy_of_counts(labels, order):
    """The Renyi entropy of how often each row of labels occurs, in nats."""
    counts = np.unique(labels, axis=0, return_counts=True)[1]
    return renyi(counts / len(labels), order)


@pytest.mark.parametrize("order", [1, 2, 0.5])
def test_scores_under_the_indicator_are_those_of_counted_labels(order, x64):
    rng = np.random.default_rng(0)
    outputs, prompts = rng.integers(0, 4, (70, 2)), rng.integers(0, 3, (70, 1))
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    found = cv.decompose(cv.Pairs(outputs, prompts, **kernels), order=order)
    counted = [_entropy_of_counts(p, order) for p in (outputs, prompts)]
    counted.append(_entropy_of_counts(np.hstack([outputs, prompts]), order))
    entropies = (found.entropy_outputs, found.entropy_prompts, found.entropy_joint)
    assert_close(jnp.stack(entropies), counted)
    entropy = cv.Entropy(order)
    points = jnp.asarray(outputs, float)
    tiled = cv.grams.TiledGram.from_points(cv.Indicator(), points)
    for gram in (cv.gram(cv.Indicator(), outputs), tiled):
        assert_close(entropy(gram), counted[0])


@pytest.mark.parametrize("place", [np.asarray, jnp.asarray])
def test_labels_far_from_zero_are_told_apart(place):
    """In float32 each of these is 1e9."""
    labels = place(np.array([[1_000_000_000], [1_000_000_001], [1_000_000_001]], np.int32))
    assert_close(cv.rke(labels, kernel=cv.Indicator()), 9 / 5)
    for start in (2**53, 2**62, -(2**62)):  # In float64 each of these is one number.
        assert_close(cv.rke(start + np.array([[0], [1], [1]]), kernel=cv.Indicator()), 9 / 5)


def test_labels_that_the_cast_may_merge_are_refused():
    largest = 2**24
    labels = np.array([[0], [0], [largest - 2], [largest - 1]])
    assert_close(cv.rke(labels, kernel=cv.Indicator()), 16 / 6)
    with pytest.raises(ValueError, match="outputs: .* below 16,777,216; .* in row 3. Number"):
        cv.rke(labels + [[0], [0], [0], [1]], kernel=cv.Indicator())
    # Processors that flush what is below the smallest normal number would count two.
    with pytest.raises(ValueError, match="outputs: .* below 1e-38 from zero; .* in row 2. Number"):
        cv.rke(np.array([[0], [1], [1e-40], [1e-39]], np.float32), kernel=cv.Indicator())


def test_the_indicator_compares_all_coordinates_and_has_no_slope():
    kernel, points = cv.Indicator(), jnp.array([[1.0, 2.0], [1.0, 0.0], [1.0, 2.0]])
    assert jax.tree.leaves(kernel) == []
    np.testing.assert_allclose(_gram(kernel, points), [[1, 0, 1], [0, 1, 0], [1, 0, 1]], atol=1e-6)
    slope = jax.grad(lambda p: cv.Indicator()(p, points[0]))(points[2])
    np.testing.assert_array_equal(slope, 0)
