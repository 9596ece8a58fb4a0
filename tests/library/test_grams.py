"""One interface, three representations: they agree on every method, products included."""

import jax
import jax.numpy as jnp
import numpy as np
import precision
import pytest
from canonical import N
from oracles import assert_close, cosine_gram, draw_pairs, eigenvalues, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.grams import TiledGram
from condvendi_jax.grams.operators import DenseGram, FeatureGram, together


@pytest.fixture(autouse=True, scope="module")
def several_tiles():
    """48 rows are five tiles; the last is padded, or reaches back over its neighbour."""
    with precision.tiles(11):
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
        *(pytest.param(name, False, "float64", marks=pytest.mark.slow) for name in CASES),
        *((name, weighted, "float32") for name in REPRESENTATIONS for weighted in (False, True)),
        ("tiled * features", False, "float32"),
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
def test_a_gram_is_weighted_by_shares(shares, says):
    gram = DenseGram(jnp.eye(N))
    with pytest.raises(ValueError, match="^shares: .*" + says):
        gram.weighted(shares)
    p = np.random.default_rng(0).dirichlet(np.ones(N))
    assert_close(cv.von_neumann(gram.weighted(p)), -np.sum(p * np.log(p)))


def test_more_features_than_points_are_valid(dtype):
    wide = _features(cv.Cosine(), jnp.asarray(draw_pairs(N, dtype=dtype, d_x=70)[0]))
    assert_close(wide.eigenvalues(), eigenvalues(cosine_gram(wide.features)))


def test_grams_share_tiles_where_all_have_them_and_none_is_left_out():
    x, t = map(jnp.asarray, draw_pairs(N, dtype=np.float32))
    tiled = TiledGram.from_points(cv.Gaussian(0.6), t)
    for first in (_features(cv.Cosine(), x), TiledGram.from_points(cv.Gaussian(0.8), x)):
        grams = [first, tiled, first * tiled]
        norms = together(grams).squared_frobenius_norms()
        assert_close(norms, [float(gram.squared_frobenius_norm()) for gram in grams])


def test_gram_chooses_by_kernel_and_size():
    points = jnp.ones((40, 3)) * jnp.arange(40.0)[:, None] + 1
    assert isinstance(cv.gram(cv.Cosine(), points), FeatureGram)
    assert isinstance(cv.gram(cv.Cosine(), points[:3]), DenseGram)
    assert isinstance(cv.gram(cv.Gaussian(1.0), points), DenseGram)
    assert isinstance(cv.gram(cv.Gaussian(1.0), jnp.ones((3000, 1))), TiledGram)
