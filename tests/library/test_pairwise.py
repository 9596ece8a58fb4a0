"""The engine for sums over pairs: its sums, gradients and accuracy, and that nothing is n x n.

The half ring is run on many virtual blocks of one device, as lanes of a vmap with an axis name; the
sums of several real devices are tried in test_sharding.py.
"""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array, matrix_product_precisions
from oracles import assert_close, cosine_gram, directional_difference, draw_pairs, gaussian_gram
from scipy.spatial.distance import cdist

import condvendi_jax as cv
from condvendi_jax.grams import Layout
from condvendi_jax.grams import _pairwise as pairwise

N = 50
BANDWIDTHS = (0.7, 0.5)
SUBSETS = ((0,), (1,), (0, 1))


def _factors(outputs, prompts, bandwidths=BANDWIDTHS, *, kernels=None):
    kernels = kernels or [cv.Gaussian(s) for s in bandwidths]
    points = (jnp.asarray(outputs), jnp.asarray(prompts))
    return tuple(pairwise.Factor(k, k.prepare(p)) for k, p in zip(kernels, points, strict=True))


def _oracle_grams(outputs, prompts, bandwidths=BANDWIDTHS):
    x, t = (gaussian_gram(p, s) for p, s in zip((outputs, prompts), bandwidths, strict=True))
    return x, t, x * t


@functools.partial(jax.jit, static_argnames=("tile_size", "layout"))
def _norms(outputs, prompts, bandwidths=BANDWIDTHS, *, tile_size, layout=None):
    factors = _factors(outputs, prompts, bandwidths)
    return pairwise.squared_norms(factors, SUBSETS, tile_size=tile_size, layout=layout)


@pytest.fixture
def ring():
    """A ring of one device: what is spread by a layout, in a process with one device."""
    return Layout(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",)), "rows", N)


# Blocks


def test_padding_repeats_the_first_point_in_every_leaf():
    tree = (jnp.arange(1.0, 4), jnp.arange(6.0).reshape(3, 2) + 1)
    one, two = pairwise.pad(tree, 5)
    np.testing.assert_array_equal(one, [1, 2, 3, 1, 1])
    np.testing.assert_array_equal(two, [[1, 2], [3, 4], [5, 6], [1, 2], [1, 2]])


@pytest.mark.parametrize(
    ("blocks", "tiles"), [(2, 1), (2, 3), (3, 2), (4, 3), (5, 1), (8, 2), (9, 2)]
)
def test_every_pair_of_blocks_meets_once_and_what_was_gathered_comes_home(blocks, tiles):
    layout = types.SimpleNamespace(blocks=blocks, axis="ring")
    indices = jnp.arange(tiles)

    def between(bounds):
        return (indices >= bounds[0]) & (indices < bounds[1])

    def one(me):
        def visit(origin, other, rows, columns, stay, go):
            # The visitor's tiles against one's own; it carries its own index, and says so.
            met = (between(rows)[:, None] & between(columns)[None, :]).astype(int)
            seen = jnp.zeros((blocks, tiles, tiles), int).at[other].set(met)
            wrong = jnp.where(other == origin, 0, 1)
            return (stay[0] + seen, stay[1] + wrong), go + met

        stay = (jnp.zeros((blocks, tiles, tiles), int), jnp.asarray(0))
        go = jnp.zeros((tiles, tiles), int)
        return pairwise._half_ring(layout, tiles, me, visit, stay, go)

    (met, wrong), home = jax.vmap(one, axis_name="ring")(jnp.arange(blocks))
    # [me, other, tile of the other, tile of mine] and the same pair seen from the other side.
    both = np.asarray(met) + np.asarray(met).transpose(1, 0, 3, 2)
    apart = ~np.eye(blocks, dtype=bool)
    assert (both[apart] == 1).all()
    assert (both[~apart] == 0).all()
    assert not wrong.any()
    # What a block gathered on its way is what the others did with it.
    np.testing.assert_array_equal(home, np.asarray(met).sum(axis=0))


def test_sums_over_many_rows_keep_six_digits_where_a_running_sum_does_not():
    values = np.full(1_000_003, 0.1, np.float32)
    exact = float(np.sum(values, dtype=np.float64))
    running = float(np.cumsum(values)[-1])
    assert abs(running / exact - 1) > 1e-4
    assert abs(float(pairwise.pairwise_sum(jnp.asarray(values))) / exact - 1) < 1e-6


# Sums. 50 rows: seven tiles a side and a loop over them, or few enough for strips.


@pytest.fixture(params=[8, 16], ids=["in a loop", "in strips"])
def tile_size(request, monkeypatch):
    monkeypatch.setattr(pairwise, "_ONE_STRIP_UP_TO", 20)
    jax.clear_caches()
    return request.param


@pytest.mark.parametrize("tile_size", [8, 11, 16, 64])
def test_norms_do_not_depend_on_the_tiling_or_the_ring(tile_size, ring, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    expected = [np.sum((k / N) ** 2) for k in _oracle_grams(*pairs)]
    for layout in (None, ring):
        assert_close(_norms(*pairs, tile_size=tile_size, layout=layout), expected)


def test_arrivals_are_weighted_sums_over_the_earlier_points(tile_size, x64):
    pairs = draw_pairs(N)
    weights = np.random.default_rng(1).normal(size=(N, 2))
    sums, plain = (
        pairwise.arrival_sums(_factors(*pairs), SUBSETS, tile_size=tile_size, weights=w)
        for w in (jnp.asarray(weights), None)
    )
    for got, alone, gram in zip(sums, plain, _oracle_grams(*pairs), strict=True):
        assert_close(got, weights.T @ np.triu(gram**2, 1))
        assert_close(alone[0], np.triu(gram**2, 1).sum(axis=0))


def test_prefix_norms_are_those_of_separate_evaluations(tile_size, dtype):
    pairs = draw_pairs(N, dtype=dtype)
    sum_up = functools.partial(pairwise.prefix_norms, subsets=SUBSETS, tile_size=tile_size)
    prefixes = jax.jit(lambda *p: sum_up(_factors(*p)))(*pairs)
    assert prefixes.shape == (3, N)
    for size in (1, 2, 16, 17, 33, N):
        grams = _oracle_grams(*(p[:size] for p in pairs))
        assert_close(prefixes[:, size - 1], [np.sum((k / size) ** 2) for k in grams])


@pytest.mark.parametrize("tile_size", [4, 16, 23, 50, 64])
def test_products_and_the_matrix_are_the_oracles(tile_size, ring, dtype):
    outputs, prompts = draw_pairs(N, dtype=dtype)
    factors = _factors(outputs, prompts, kernels=(cv.Gaussian(0.7), cv.Cosine()))
    joint = gaussian_gram(outputs, 0.7) * cosine_gram(prompts)
    vectors, scale = np.split(np.random.default_rng(0).normal(size=(N, 4)).astype(dtype), [3], 1)
    beside = np.sum((scale * joint * scale.T / N - vectors @ vectors.T) ** 2, axis=1)
    everything = ((0, 1),)
    for layout in (None, ring):
        options = {"tile_size": tile_size, "layout": layout}
        several = (*everything, (1,)), (vectors, vectors[:, :1])
        of_joint, of_prompts = pairwise.matvecs(factors, *several, **options)
        assert_close(of_joint, joint @ vectors / N)
        assert_close(of_prompts, cosine_gram(prompts) @ vectors[:, :1] / N)
        matrix = pairwise.assemble(factors, **options)
        assert_close(matrix, joint)
        assert (jnp.diagonal(matrix) == 1).all()
        of = factors, everything, (vectors,), (vectors,)
        (found,) = pairwise.row_squares_beside(*of, scale=scale[:, 0], **options)
        assert_close(found[:N], beside)
        assert not found[N:].any()


# Gradients


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
    if subset < 2:  # A factor in no sum has no gradient.
        assert not got[1 - subset].any()
    expected = jax.grad(dense, argnums=(0, 1, 2))(*pairs, BANDWIDTHS)
    jax.tree.map(assert_close, got, expected)


def test_the_bilinear_slope_is_zero_with_the_slope_of_the_form(ring, x64):
    outputs, _ = draw_pairs(N)
    left, right = np.random.default_rng(2).normal(size=(2, N, 2))

    def zero(outputs, layout):
        factor = pairwise.Factor(cv.Gaussian(0.7), cv.Gaussian(0.7).prepare(outputs))
        return pairwise.bilinear_slope((factor,), left, right, layout=layout, tile_size=8)

    def form(outputs):
        return np.sum(gaussian_gram(outputs, 0.7) * (left @ right.T)) / N

    direction = np.random.default_rng(3).normal(size=outputs.shape)
    expected = directional_difference(form, outputs, direction)
    for layout in (None, ring):
        value, slope = jax.value_and_grad(zero)(jnp.asarray(outputs), layout)
        assert value == 0
        np.testing.assert_allclose(np.vdot(slope, direction), expected, rtol=1e-8)


# Transformations, precision and memory


def test_sweeps_and_batches_by_vmap_give_separate_evaluations(x64):
    """Of bandwidths, and of sample sets with their gradients."""
    batch = [jnp.stack(p) for p in zip(*(draw_pairs(N, seed=s) for s in range(2)), strict=True)]
    grid = jnp.array([0.3, 0.7, 2.0])
    swept = jax.vmap(lambda s: _norms(*(p[0] for p in batch), (s, 0.5), tile_size=16))(grid)
    for bandwidth, got in zip(grid, swept, strict=True):
        grams = _oracle_grams(*(p[0] for p in batch), (float(bandwidth), 0.5))
        assert_close(got, [np.sum((k / N) ** 2) for k in grams])

    joint = jax.value_and_grad(lambda *pairs: _norms(*pairs, tile_size=16)[2])
    for k, got in enumerate(zip(*jax.vmap(joint)(*batch), strict=True)):
        jax.tree.map(assert_close, got, joint(batch[0][k], batch[1][k]))


@pytest.mark.slow
def test_the_sums_of_accelerators_are_those_of_a_cpu(monkeypatch, x64):
    """With their gradients: the branch that is compiled for a GPU, taken here."""
    pairs = tuple(map(jnp.asarray, draw_pairs(N)))

    def norms(outputs, prompts):
        return pairwise.squared_norms(_factors(outputs, prompts), SUBSETS, tile_size=8)

    expected = norms(*pairs), jax.jacrev(norms, argnums=(0, 1))(*pairs)
    taken = []

    def of_accelerators(*arrays, cpu, default):
        taken.append(default)
        return default(*arrays)

    monkeypatch.setattr(pairwise.lax, "platform_dependent", of_accelerators)
    jax.clear_caches()
    got = norms(*pairs), jax.jacrev(norms, argnums=(0, 1))(*pairs)
    jax.clear_caches()
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
    # The control: the walk finds the array of a dense Gram.
    dense = functools.partial(cv.grams.DenseGram.from_points, cv.Gaussian(1.0))
    assert largest_array(jax.jit(dense), pairs[0]) == n**2


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


@pytest.mark.parametrize("n", [70, 96])
def test_row_squares_of_a_stored_matrix_take_tiles_that_overlap(n, x64, monkeypatch):
    monkeypatch.setattr(pairwise, "CPU_TILE", 32)
    rng = np.random.default_rng(0)
    half, vectors, values = (rng.normal(size=shape) for shape in ((n, n), (n, 3), 3))
    matrix, left = half + half.T, vectors * values
    given = map(jnp.asarray, (matrix, left, vectors))
    found = pairwise.stored_row_squares_beside(*given, n=n)
    expected = np.sum((matrix / n - left @ vectors.T) ** 2, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
