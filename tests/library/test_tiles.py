"""The tile engine: its sums, gradients and accuracy, and that it never makes an n x n array."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array, matrix_product_precisions
from oracles import assert_close, draw_pairs, gaussian_gram
from scipy.spatial.distance import cdist

import condvendi_jax as cv
from condvendi_jax.grams import _blocks as blocks
from condvendi_jax.grams import _tiles as tiles

N = 50
BANDWIDTHS = (0.7, 0.5)
SUBSETS = ((0,), (1,), (0, 1))


def _factors(outputs, prompts, bandwidths=BANDWIDTHS):
    kernels = [cv.Gaussian(s) for s in bandwidths]
    points = (jnp.asarray(outputs), jnp.asarray(prompts))
    return tuple(tiles.Factor(k, k.prepare(p)) for k, p in zip(kernels, points, strict=True))


def _oracle_grams(outputs, prompts, bandwidths=BANDWIDTHS):
    x, t = (gaussian_gram(p, s) for p, s in zip((outputs, prompts), bandwidths, strict=True))
    return x, t, x * t


@functools.partial(jax.jit, static_argnames="tile_size")
def _norms(outputs, prompts, bandwidths=BANDWIDTHS, *, tile_size):
    return tiles.squared_norms(_factors(outputs, prompts, bandwidths), SUBSETS, tile_size=tile_size)


# 50 rows: seven tiles a side and a loop over them, or few enough for strips.
IN_A_LOOP, IN_STRIPS = 8, 16


@pytest.fixture(params=[IN_A_LOOP, IN_STRIPS])
def tile_size(request, monkeypatch):
    monkeypatch.setattr(tiles, "_ONE_STRIP_UP_TO", 20)
    return request.param


@pytest.mark.parametrize("tile_size", [8, 11, 16, 64])
def test_norms_do_not_depend_on_the_tiling(tile_size, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    expected = [np.sum((k / N) ** 2) for k in _oracle_grams(*pairs)]
    assert_close(_norms(*pairs, tile_size=tile_size), expected)


def test_arrivals_are_weighted_sums_over_the_earlier_points(tile_size, x64):
    pairs = draw_pairs(N)
    weights = np.random.default_rng(1).normal(size=(N, 2))
    find = functools.partial(tiles.arrival_sums, _factors(*pairs), SUBSETS, tile_size=tile_size)
    sums, plain = find(weights=jnp.asarray(weights)), find()
    for got, alone, gram in zip(sums, plain, _oracle_grams(*pairs), strict=True):
        assert_close(got, weights.T @ np.triu(gram**2, 1))
        assert_close(alone[0], np.triu(gram**2, 1).sum(axis=0))


def test_prefix_norms_are_those_of_separate_evaluations(tile_size, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    find = functools.partial(tiles.prefix_norms, subsets=SUBSETS, tile_size=tile_size)
    prefixes = jax.jit(lambda *p: find(_factors(*p)))(*pairs)
    assert prefixes.shape == (3, N)
    for size in (1, 2, 16, 17, 33, N):
        grams = _oracle_grams(*(p[:size] for p in pairs))
        assert_close(prefixes[:, size - 1], [np.sum((k / size) ** 2) for k in grams])


def test_group_norms_split_the_norm_by_groups(tile_size, x64):
    pairs = draw_pairs(N)
    membership = np.eye(3)[np.random.default_rng(1).integers(3, size=N)]
    of_groups = jnp.asarray(membership)
    blocks = tiles.group_norms(_factors(*pairs), SUBSETS, of_groups, tile_size=tile_size)
    for got, gram in zip(blocks, _oracle_grams(*pairs), strict=True):
        assert_close(got, membership.T @ gram**2 @ membership)


@pytest.mark.parametrize("subset", range(3))
def test_the_gradient_of_every_norm_is_that_of_the_dense_formula(subset, x64):
    """In the points and in the bandwidths, with padding in play (50 rows in tiles of 16)."""
    pairs = tuple(map(jnp.asarray, draw_pairs(N)))

    def dense(outputs, prompts, bandwidths):
        grams = [
            jnp.exp(-jnp.sum(jnp.square(p[:, None] - p[None]), axis=-1) / (2 * s**2))
            for p, s in zip((outputs, prompts), bandwidths, strict=True)
        ]
        return jnp.mean(jnp.square((grams[0], grams[1], grams[0] * grams[1])[subset]))

    def tiled(*arguments):
        return _norms(*arguments, tile_size=16)[subset]

    got = jax.grad(tiled, argnums=(0, 1, 2))(*pairs, BANDWIDTHS)
    expected = jax.grad(dense, argnums=(0, 1, 2))(*pairs, BANDWIDTHS)
    jax.tree.map(assert_close, got, expected)


def test_bandwidths_swept_by_vmap_give_separate_evaluations(x64):
    pairs = draw_pairs(N)
    grid = jnp.array([0.3, 0.7, 2.0])
    swept = jax.vmap(lambda s: _norms(*pairs, (s, 0.5), tile_size=16))(grid)
    for bandwidth, got in zip(grid, swept, strict=True):
        grams = _oracle_grams(*pairs, (float(bandwidth), 0.5))
        assert_close(got, [np.sum((k / N) ** 2) for k in grams])


def test_batches_of_sample_sets_by_vmap_give_separate_evaluations(x64):
    """Values and gradients."""
    batch = [jnp.stack(p) for p in zip(*(draw_pairs(N, seed=s) for s in range(2)), strict=True)]

    def joint(outputs, prompts):
        return _norms(outputs, prompts, tile_size=16)[2]

    values, gradients = jax.vmap(jax.value_and_grad(joint))(*batch)
    for k in range(2):
        value, gradient = jax.value_and_grad(joint)(batch[0][k], batch[1][k])
        assert_close(values[k], value)
        assert_close(gradients[k], gradient)


@pytest.mark.slow
def test_the_sums_of_accelerators_are_those_of_a_cpu(monkeypatch, x64):
    """With their gradients: the branch that is compiled for a GPU, taken here."""
    pairs = tuple(map(jnp.asarray, draw_pairs(N)))

    def norms(outputs, prompts):
        return tiles.squared_norms(_factors(outputs, prompts), SUBSETS, tile_size=16)

    expected = norms(*pairs), jax.jacrev(norms, argnums=(0, 1))(*pairs)
    taken = []

    def of_accelerators(*arrays, cpu, default):
        taken.append(default)
        return default(*arrays)

    monkeypatch.setattr(blocks.lax, "platform_dependent", of_accelerators)
    got = norms(*pairs), jax.jacrev(norms, argnums=(0, 1))(*pairs)
    assert taken
    jax.tree.map(assert_close, got, expected)


def _conditional_rke(outputs, prompts, tile_size=256):
    grams = (
        cv.gram(cv.Gaussian(s), p, tile_size=tile_size)
        for p, s in zip((outputs, prompts), BANDWIDTHS, strict=True)
    )
    return cv.entropies.conditional(cv.renyi(2), *grams)


def test_no_array_of_n_by_n_is_made_for_the_value_or_the_gradient():
    n = 3000
    pairs = (jnp.ones((n, 4)), jnp.ones((n, 4)))
    assert largest_array(_conditional_rke, *pairs) < n * n / 40
    assert largest_array(jax.grad(_conditional_rke, argnums=(0, 1)), *pairs) < n * n / 40
    bandwidths = jnp.ones(8)
    sweep = jax.vmap(lambda s, x: cv.renyi(2)(cv.gram(cv.Gaussian(s), x, tile_size=256)), (0, None))
    assert largest_array(sweep, bandwidths, pairs[0]) < n * n / 50


def test_the_walk_finds_the_array_of_a_dense_gram():
    points = jnp.ones((3000, 4))
    dense = functools.partial(cv.grams.DenseGram.from_points, cv.Gaussian(1.0))
    assert largest_array(jax.jit(dense), points) == 3000**2


def test_every_matrix_product_is_at_full_precision():
    """Lower-precision products, the default of accelerators, move the kernel by 1e-3."""
    pairs = (jnp.ones((60, 4)), jnp.ones((60, 4)))
    for function in (_conditional_rke, jax.grad(_conditional_rke)):
        precisions = matrix_product_precisions(function, *pairs)
        assert precisions
        assert {p for pair in precisions for p in pair} == {jax.lax.Precision.HIGHEST}


def test_float32_is_within_a_millionth_of_float64_at_three_thousand_points():
    """n is large for the sums of float32 to matter, and not a multiple of the tile."""
    n = 3001
    outputs, prompts = draw_pairs(n, dtype=np.float32, d_x=16, d_t=8, modes=12)
    bandwidths = (3.0, 2.0)
    got = _norms(outputs, prompts, bandwidths, tile_size=512)
    x, t = (
        np.exp(-cdist(p.astype(np.float64), p.astype(np.float64), "sqeuclidean") / s**2)
        for p, s in zip((outputs, prompts), bandwidths, strict=True)
    )
    np.testing.assert_allclose(got, [x.mean(), t.mean(), (x * t).mean()], rtol=1e-6)
