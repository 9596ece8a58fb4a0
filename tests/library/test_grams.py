"""One interface, three representations that agree; and the engine for sums over pairs below it."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import precision
import pytest
from canonical import N, slow
from oracles import (
    assert_close,
    cosine_gram,
    draw_pairs,
    eigenvalues,
    gaussian_gram,
    gaussian_grams,
)

import condvendi_jax as cv
from condvendi_jax.grams import Layout, TiledGram, fold
from condvendi_jax.grams import sums as pairwise
from condvendi_jax.grams.operators import DenseGram, FeatureGram, together

WIDTHS = (0.8, 0.6)
TILE = 11  # 48 rows are five tiles; the last is padded, or reaches back over its neighbour.


@pytest.fixture(autouse=True, scope="module")
def several_tiles():
    with precision.tiles(TILE):
        yield


def _features(kernel, points):
    assert isinstance(kernel, cv.Cosine)
    return FeatureGram(kernel.prepare(points))


REPRESENTATIONS = {
    "dense": DenseGram.from_points,
    "tiled": TiledGram.from_points,
    "features": _features,
}


def _single(name, dtype):
    points = jnp.asarray(draw_pairs(N, dtype=dtype)[0])
    return REPRESENTATIONS[name](cv.Cosine(), points), cosine_gram(points)


def _wide(_, dtype):
    points = jnp.asarray(draw_pairs(N, dtype=dtype, d_x=70)[0])
    return _features(cv.Cosine(), points), cosine_gram(points)


def _product_of(name, other):
    def build(_, dtype):
        x, t = map(jnp.asarray, draw_pairs(N, dtype=dtype))
        left = REPRESENTATIONS[name](cv.Cosine(), x)
        if other == "features":
            return left * _features(cv.Cosine(), t), cosine_gram(x) * cosine_gram(t)
        right = REPRESENTATIONS[other](cv.Gaussian(0.6), t)
        return left * right, cosine_gram(x) * gaussian_gram(t, 0.6)

    return build


CASES = {name: _single for name in REPRESENTATIONS} | {
    f"{a} * {b}": _product_of(a, b) for a in REPRESENTATIONS for b in ("tiled", "features")
}
CASES["more features than points"] = _wide


@jax.jit
def _measured(gram, vectors):
    """What an operator gives, itself and stored, in one program."""
    stored, one = gram.store(), vectors[:, 0]
    return {
        "norm": gram.squared_frobenius_norm(),
        "products": (gram.matvec(vectors), stored.matvec(vectors)),
        "product of one": gram.matvec(one),
        "beside": [of.row_squares_beside(-vectors, vectors) for of in (gram, stored)],
        "eigenvalues": gram.eigenvalues(),
        "matrix": gram.dense().matrix,
    }


@pytest.mark.parametrize(
    "name, weighted, dtype",
    [
        *(slow(name, False, "float64") for name in CASES),
        *((name, weighted, "float32") for name in REPRESENTATIONS for weighted in (False, True)),
        ("tiled * features", False, "float32"),
        ("more features than points", False, "float32"),
    ],
    indirect=["dtype"],
)
def test_all_representations_agree_on_every_method(name, weighted, dtype):
    """Also of rows with weights p, some zero, where K / n is diag(p)^(1/2) K diag(p)^(1/2)."""
    gram, expected = CASES[name](name, dtype)
    if weighted:
        p = np.random.default_rng(3).dirichlet(np.arange(N) % 3 + 1e-300)
        gram, expected = gram.weighted(p.astype(dtype)), expected * np.sqrt(np.outer(p, p)) * N
    assert (gram.n, gram.dtype) == (N, dtype)
    vectors = np.random.default_rng(1).normal(size=(N, 3)).astype(dtype)
    found = _measured(gram, vectors)  # Flattened and made again, as an argument of jit.
    assert_close(found["norm"], np.sum((expected / N) ** 2))
    for products in found["products"]:
        assert_close(products, expected @ vectors / N)
    assert_close(found["product of one"], expected @ vectors[:, 0] / N)
    for beside in found["beside"]:
        assert_close(beside, np.sum((expected / N + vectors @ vectors.T) ** 2, axis=1))
    assert np.sum(eigenvalues(expected) > 1e-12) <= gram.rank_bound <= N
    assert_close(found["eigenvalues"], eigenvalues(expected))
    if weighted:
        assert not isinstance(gram, cv.grams.Gram)
    else:
        assert_close(found["matrix"], expected)
        assert (np.diagonal(found["matrix"]) == 1).all()


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        (np.full(N, N**-0.5), "sum one, received a sum of 6.92"),
        (np.linspace(-1, 1, N) + 1 / N, "non-negative"),
        (np.ones(3) / 3, "48 weights"),
    ],
)
def test_shares_of_the_rows_that_are_none_are_refused(shares, says):
    with pytest.raises(ValueError, match="^shares: .*" + says):
        DenseGram(jnp.eye(N)).weighted(shares)


def test_gram_chooses_by_kernel_and_size():
    points = jnp.ones((40, 3)) * jnp.arange(40.0)[:, None] + 1
    assert isinstance(cv.gram(cv.Cosine(), points), FeatureGram)
    assert isinstance(cv.gram(cv.Cosine(), points[:3]), DenseGram)
    assert isinstance(cv.gram(cv.Gaussian(1.0), points), DenseGram)
    assert isinstance(cv.gram(cv.Gaussian(1.0), jnp.ones((3000, 1))), TiledGram)


# The engine: tiles, rings of devices, and sums over pairs.


def _grams(outputs, prompts, widths=WIDTHS):
    """Those of outputs, prompts and pairs, in NumPy."""
    x, t = gaussian_grams((outputs, prompts), widths)
    return x, t, x * t


def _tiles(outputs, prompts, widths=WIDTHS, layout=None):
    pairs = zip(map(cv.Gaussian, widths), map(jnp.asarray, (outputs, prompts)), strict=True)
    factors = tuple(fold.Factor(kernel, kernel.prepare(points)) for kernel, points in pairs)
    return fold.Tiles(factors, ((0,), (1,), (0, 1)), layout)


@functools.partial(jax.jit, static_argnames="layout")
def _norms(outputs, prompts, widths=WIDTHS, *, layout=None):
    return pairwise.squared_norms(_tiles(outputs, prompts, widths, layout))


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


def test_norms_and_arrivals_do_not_depend_on_the_tiling_or_the_ring(dtype):
    """A ring of one device: what is spread by a layout. `together` leaves no Gram out."""
    pairs, weights = draw_pairs(N, dtype=dtype), np.random.default_rng(1).normal(size=(N, 2))
    grams = _grams(*pairs)
    expected = [np.mean(gram**2) for gram in grams]
    ring = Layout(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",)), "rows", N)
    for layout in (None, ring):
        assert_close(_norms(*pairs, layout=layout), expected)
    arrivals = pairwise.arrival_sums(_tiles(*pairs), weights=jnp.asarray(weights, dtype))
    assert_close(arrivals, [weights.T @ np.triu(gram**2, 1) for gram in grams])
    x, t = (TiledGram.from_points(cv.Gaussian(s), p) for s, p in zip(WIDTHS, pairs, strict=True))
    features = _features(cv.Cosine(), jnp.asarray(pairs[0]))
    assert_close(together([x, t, x * t]).squared_frobenius_norms(), expected)
    mixed = together([features, t, features * t]).squared_frobenius_norms()
    cosine = cosine_gram(pairs[0])
    assert_close(mixed, [np.mean(k**2) for k in (cosine, grams[1], cosine * grams[1])])


def test_the_gradient_of_every_norm_is_that_of_the_dense_formula(x64):
    """In the points and in the bandwidths, with padding in play."""
    pairs = tuple(map(jnp.asarray, draw_pairs(N)))

    def dense(outputs, prompts, widths):
        x, t = (
            jnp.exp(-jnp.sum(jnp.square(p[:, None] - p[None]), axis=-1) / (2 * s**2))
            for p, s in zip((outputs, prompts), widths, strict=True)
        )
        return jnp.mean(jnp.square(jnp.stack([x, t, x * t])), axis=(1, 2))

    got, expected = (jax.jacrev(f, argnums=(0, 1, 2))(*pairs, WIDTHS) for f in (_norms, dense))
    jax.tree.map(assert_close, got, expected)


@pytest.mark.slow
def test_the_sums_of_accelerators_are_those_of_a_cpu(monkeypatch, x64):
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
    outputs, prompts = draw_pairs(3001, dtype=np.float32, d_x=16, d_t=8, modes=12)
    widths = (3.0, 2.0)
    with precision.tiles(1024):
        got = _norms(outputs, prompts, widths)
    expected = [np.mean(gram**2) for gram in _grams(outputs, prompts, widths)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
