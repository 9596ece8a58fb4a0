"""The engine for sums over pairs, on virtual blocks of one device."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import precision
import pytest
from oracles import assert_close, draw_pairs, gaussian_grams

import condvendi_jax as cv
from condvendi_jax.grams import Layout, fold
from condvendi_jax.grams import sums as pairwise

N = 50
BANDWIDTHS = (0.7, 0.5)
SUBSETS = ((0,), (1,), (0, 1))


def _tiles(outputs, prompts, bandwidths=BANDWIDTHS, layout=None):
    kernels = map(cv.Gaussian, bandwidths)
    points = (jnp.asarray(outputs), jnp.asarray(prompts))
    pairs = zip(kernels, points, strict=True)
    return fold.Tiles(tuple(fold.Factor(k, k.prepare(p)) for k, p in pairs), SUBSETS, layout)


def _oracle_grams(outputs, prompts, bandwidths=BANDWIDTHS):
    x, t = gaussian_grams((outputs, prompts), bandwidths)
    return x, t, x * t


@functools.partial(jax.jit, static_argnames="layout")
def _norms(outputs, prompts, bandwidths=BANDWIDTHS, *, layout=None):
    return pairwise.squared_norms(_tiles(outputs, prompts, bandwidths, layout))


@pytest.fixture
def ring():
    """A ring of one device: what is spread by a layout, in a process with one device."""
    return Layout(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",)), "rows", N)


@pytest.mark.parametrize("blocks, tiles", [(2, 1), (2, 3), (3, 2), (4, 3), (5, 1), (8, 2), (9, 2)])
def test_every_pair_of_blocks_meets_once_and_what_was_gathered_comes_home(blocks, tiles):
    layout, n = types.SimpleNamespace(blocks=blocks, axis="ring"), blocks * tiles

    def tile(rows, columns, *, diagonal):
        met = jnp.zeros((n, n), int).at[rows[0], columns[0]].set(1)
        to_rows, to_columns = (jax.nn.one_hot(k, n, dtype=int) for k in (columns, rows))
        return met, (to_rows,), (None if diagonal else to_columns,)

    def one(block):
        return fold.fold_pairs(layout, 1, block, tile)

    met, (partners,) = jax.vmap(one, axis_name="ring")(jnp.arange(n).reshape(blocks, tiles))
    met = np.asarray(met).sum(axis=0)
    np.testing.assert_array_equal(met + met.T, 1 + np.eye(n))
    # The sums of a block on its way come home: every point has met every point.
    np.testing.assert_array_equal(np.asarray(partners).reshape(n, n), 1)


def test_sums_over_many_rows_keep_six_digits_where_a_running_sum_does_not():
    values = np.full(1_000_003, 0.1, np.float32)
    exact = float(np.sum(values, dtype=np.float64))
    running = float(np.cumsum(values)[-1])
    assert abs(running / exact - 1) > 1e-4
    assert abs(float(fold.pairwise_sum(jnp.asarray(values))) / exact - 1) < 1e-6


@pytest.fixture
def tiles():
    """Four tiles a side, the last padded."""
    with precision.tiles(16):
        yield


def test_norms_do_not_depend_on_the_tiling_or_the_ring(ring, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    expected = [np.sum((k / N) ** 2) for k in _oracle_grams(*pairs)]
    for size in (16, 64):
        with precision.tiles(size):
            for layout in (None, ring):
                assert_close(_norms(*pairs, layout=layout), expected)


def test_arrivals_are_weighted_sums_over_the_earlier_points(tiles, x64):
    pairs = draw_pairs(N)
    weights = np.random.default_rng(1).normal(size=(N, 2))
    sums = pairwise.arrival_sums(_tiles(*pairs), weights=jnp.asarray(weights))
    for got, gram in zip(sums, _oracle_grams(*pairs), strict=True):
        assert_close(got, weights.T @ np.triu(gram**2, 1))


def test_the_gradient_of_every_norm_is_that_of_the_dense_formula(tiles, x64):
    """In the points and in the bandwidths, with padding in play (50 rows in tiles of 16)."""
    pairs = tuple(map(jnp.asarray, draw_pairs(N)))

    def dense(outputs, prompts, bandwidths):
        x, t = (
            jnp.exp(-jnp.sum(jnp.square(p[:, None] - p[None]), axis=-1) / (2 * s**2))
            for p, s in zip((outputs, prompts), bandwidths, strict=True)
        )
        return jnp.mean(jnp.square(jnp.stack([x, t, x * t])), axis=(1, 2))

    got, expected = (jax.jacrev(f, argnums=(0, 1, 2))(*pairs, BANDWIDTHS) for f in (_norms, dense))
    jax.tree.map(assert_close, got, expected)


@pytest.mark.slow
def test_the_sums_of_accelerators_are_those_of_a_cpu(monkeypatch, tiles, x64):
    """With their gradients: the branch that is compiled for a GPU, taken here."""
    pairs = tuple(map(jnp.asarray, draw_pairs(N)))

    def norms(outputs, prompts):
        return pairwise.squared_norms(_tiles(outputs, prompts))

    expected = norms(*pairs), jax.jacrev(norms, argnums=(0, 1))(*pairs)
    taken = []

    def of_accelerators(*arrays, cpu, default):
        taken.append(default)
        return default(*arrays)

    monkeypatch.setattr(fold.lax, "platform_dependent", of_accelerators)
    jax.clear_caches()
    got = norms(*pairs), jax.jacrev(norms, argnums=(0, 1))(*pairs)
    assert taken
    jax.tree.map(assert_close, got, expected)


def test_float32_is_within_a_millionth_of_float64_at_three_thousand_points():
    """n is large for the sums of float32 to matter, and not a multiple of the tile."""
    n = 3001
    outputs, prompts = draw_pairs(n, dtype=np.float32, d_x=16, d_t=8, modes=12)
    bandwidths = (3.0, 2.0)
    got = _norms(outputs, prompts, bandwidths)
    x, t = (gram**2 for gram in gaussian_grams((outputs, prompts), bandwidths))
    np.testing.assert_allclose(got, [x.mean(), t.mean(), (x * t).mean()], rtol=1e-6)
