"""Blocks that meet in a ring: that every pair meets once, and the sums of one block.

The half ring is run on many virtual blocks of one device, as lanes of a vmap with an axis name; the
sums of several real devices are tried in test_sharding.py.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close, cosine_gram, directional_difference, draw_pairs, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.grams import _rings as rings
from condvendi_jax.grams._layouts import Layout

N, WIDTHS = 23, (0.7, 0.9)
SUBSETS = ((0,), (1,), (0, 1))


@pytest.mark.parametrize(
    ("blocks", "tiles"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 3), (5, 1), (8, 2), (9, 2)]
)
def test_every_pair_of_blocks_meets_once_and_what_was_gathered_comes_home(blocks, tiles):
    layout = types.SimpleNamespace(blocks=blocks, axis="ring")
    indices = jnp.arange(tiles)

    def between(bounds):
        return (indices >= bounds[0]) & (indices < bounds[1])

    def one(me):
        def visit(hop, origin, other, rows, columns, stay, go):
            # The visitor's tiles against one's own; it carries its own index, and says so.
            met = (between(rows)[:, None] & between(columns)[None, :]).astype(int)
            seen = jnp.zeros((blocks, tiles, tiles), int).at[other].set(met)
            wrong = jnp.where(other == origin, 0, 1)
            return (stay[0] + seen, stay[1] + wrong), go + met

        stay = (jnp.zeros((blocks, tiles, tiles), int), jnp.asarray(0))
        go = jnp.zeros((tiles, tiles), int)
        return rings._half_ring(layout, tiles, me, visit, stay, go)

    (met, wrong), home = jax.vmap(one, axis_name="ring")(jnp.arange(blocks))
    # [me, other, tile of the other, tile of mine] and the same pair seen from the other side.
    both = np.asarray(met) + np.asarray(met).transpose(1, 0, 3, 2)
    apart = ~np.eye(blocks, dtype=bool)
    assert (both[apart] == 1).all()
    assert (both[~apart] == 0).all()
    assert not wrong.any()
    # What a block gathered on its way is what the others did with it.
    np.testing.assert_array_equal(home, np.asarray(met).sum(axis=0))


@pytest.mark.parametrize("distance", [-3, -1, 1, 2])
def test_a_shift_brings_what_the_device_ahead_has(distance):
    layout = types.SimpleNamespace(blocks=5, axis="ring")
    found = jax.vmap(lambda me: rings._shift(layout, me, distance), axis_name="ring")(jnp.arange(5))
    np.testing.assert_array_equal(found, (np.arange(5) + distance) % 5)


@pytest.fixture
def layout():
    return Layout(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",)), "rows", N)


@pytest.fixture
def factors(dtype, layout):
    """A Gaussian and a cosine kernel, prepared points, and the oracle's two Grams."""
    outputs, prompts = draw_pairs(N, dtype=dtype)
    kernels = (cv.Gaussian(WIDTHS[0]), cv.Cosine())
    prepared = tuple(
        kernel.prepare(layout.shard(points))
        for kernel, points in zip(kernels, (outputs, prompts), strict=True)
    )
    return kernels, prepared, (gaussian_gram(outputs, WIDTHS[0]), cosine_gram(prompts))


@pytest.mark.parametrize("tile_size", [4, 64])
def test_the_sums_of_one_block_are_the_oracles(factors, layout, tile_size):
    kernels, points, (x, t) = factors
    where = {"layout": layout, "tile_size": tile_size}
    norms = rings.squared_norms(kernels, points, subsets=SUBSETS, **where)
    assert_close(norms, [np.mean(k**2) for k in (x, t, x * t)])
    vectors = np.random.default_rng(0).normal(size=(N, 3)).astype(norms.dtype)
    assert_close(rings.matvec(kernels, points, vectors, **where), x * t @ vectors / N)
    assert_close(rings.matrix(kernels, points, **where), x * t)


@pytest.mark.slow
@pytest.mark.parametrize("tile_size", [8])
def test_the_gradient_is_that_of_differences(layout, tile_size, x64):
    outputs, prompts = map(jnp.asarray, draw_pairs(N))
    worth = jnp.array([0.5, -1.0, 2.0])

    def value(outputs, width):
        kernels = (cv.Gaussian(width), cv.Gaussian(WIDTHS[1]))
        points = tuple(k.prepare(p) for k, p in zip(kernels, (outputs, prompts), strict=True))
        where = {"layout": layout, "tile_size": tile_size}
        return worth @ rings.squared_norms(kernels, points, subsets=SUBSETS, **where)

    in_points, in_width = jax.grad(value, argnums=(0, 1))(outputs, 0.7)
    direction = np.random.default_rng(1).normal(size=outputs.shape)
    expected = directional_difference(lambda x: value(x, 0.7), outputs, direction)
    np.testing.assert_allclose(jnp.vdot(in_points, direction), expected, rtol=1e-8)
    expected = directional_difference(lambda w: value(outputs, w), 0.7, 1.0)
    np.testing.assert_allclose(in_width, expected, rtol=1e-8)


def test_the_bilinear_slope_is_zero_with_the_slope_of_the_form(layout, x64):
    outputs, _ = draw_pairs(N)
    left, right = np.random.default_rng(2).normal(size=(2, N, 2))

    def zero(outputs):
        kernel = cv.Gaussian(0.7)
        points = (kernel.prepare(outputs),)
        return rings.bilinear_slope((kernel,), points, left, right, layout=layout, tile_size=8)

    def form(outputs):
        return np.sum(gaussian_gram(outputs, 0.7) * (left @ right.T)) / N

    value, slope = jax.value_and_grad(zero)(jnp.asarray(outputs))
    assert value == 0
    direction = np.random.default_rng(3).normal(size=outputs.shape)
    expected = directional_difference(form, outputs, direction)
    np.testing.assert_allclose(np.vdot(slope, direction), expected, rtol=1e-8)
