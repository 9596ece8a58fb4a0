"""One interface, three representations: they agree on every method, products included."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canonical import N
from oracles import assert_close, cosine_gram, draw_pairs, eigenvalues, gaussian_gram

import condvendi_jax as cv


def _tiled(tile_size):
    return functools.partial(cv.grams.TiledGram.from_points, tile_size=tile_size)


def _features(kernel, points):
    assert isinstance(kernel, cv.Cosine)
    return cv.grams.FeatureGram.trusted(kernel.prepare(points))


# A tile is a multiple of 16 rows: 48 rows are two tiles, the last padded, or one.
REPRESENTATIONS = {
    "dense": cv.grams.DenseGram.from_points,
    "tiled-32": _tiled(32),
    "tiled-1000": _tiled(1000),
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
    f"{a} * {b}": _product_of(a, b)
    for a in ("dense", "tiled-32", "features")
    for b in ("tiled-1000", "features")
}


@jax.jit
def _measured(gram, vectors):
    """What an operator gives, itself and stored, in one program."""
    stored, one = gram.store(), vectors[:, 0]
    return {
        "norm": gram.squared_frobenius_norm(),
        "products": (gram.matvec(vectors), stored.matvec(vectors)),
        "product of one": gram.matvec(one),
        "beside": (
            gram.row_squares_beside(vectors, vectors),
            stored.row_squares_beside(vectors, vectors),
        ),
        "eigenvalues": gram.eigenvalues(),
        "matrix": gram.dense().matrix,
    }


@pytest.mark.parametrize(
    "name, weighted, dtype",
    [
        *(pytest.param(name, False, "float64", marks=pytest.mark.slow) for name in CASES),
        *((name, weighted, "float32") for name in REPRESENTATIONS for weighted in (False, True)),
    ],
    indirect=["dtype"],
)
def test_all_representations_agree_on_every_method(name, weighted, dtype):
    """Also of rows with weights p, where K / n is diag(p)^(1/2) K diag(p)^(1/2)."""
    gram, expected = CASES[name](name, dtype)
    if weighted:
        p = np.random.default_rng(3).dirichlet(np.ones(N))
        gram, expected = gram.weighted(p.astype(dtype)), expected * np.sqrt(np.outer(p, p)) * N
    assert (gram.n, gram.dtype) == (N, dtype)
    vectors = np.random.default_rng(1).normal(size=(N, 3)).astype(dtype)
    found = _measured(gram, vectors)  # Flattened and made again, as an argument of jit.
    assert_close(found["norm"], np.sum((expected / N) ** 2))
    for products in found["products"]:
        assert_close(products, expected @ vectors / N)
    assert_close(found["product of one"], expected @ vectors[:, 0] / N)
    for beside in found["beside"]:
        assert_close(beside, np.sum((expected / N - vectors @ vectors.T) ** 2, axis=1))
    assert np.sum(eigenvalues(expected) > 1e-12) <= gram.rank_bound <= N
    assert_close(found["eigenvalues"], eigenvalues(expected))
    if weighted:
        assert not isinstance(gram, cv.grams.Gram)
        assert gram.bilinear_slope(*map(jnp.asarray, (vectors, vectors))) == 0
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
    gram = cv.grams.DenseGram.trusted(jnp.eye(N))
    with pytest.raises(ValueError, match="^shares: .*" + says):
        gram.weighted(shares)
    p = np.random.default_rng(0).dirichlet(np.ones(N))
    assert_close(cv.von_neumann(gram.weighted(p)), -np.sum(p * np.log(p)))


@pytest.mark.parametrize("name", REPRESENTATIONS)
def test_a_gram_of_weights_zero_and_equal_has_the_eigenvalues_of_the_points_kept(name, dtype):
    gram, expected = _single(name, dtype)
    kept = np.arange(N) % 3 > 0
    found = gram.weighted(kept / kept.sum()).eigenvalues()
    values = eigenvalues(expected[np.ix_(kept, kept)])
    assert_close(found, np.pad(values, (0, N - len(values))))


def test_three_norms_are_those_of_the_grams(dtype):
    x, t = map(jnp.asarray, draw_pairs(N, dtype=dtype))
    of_x, of_t = gaussian_gram(x, 0.8), cosine_gram(t)
    expected = [np.sum((k / N) ** 2) for k in (of_x, of_t, of_x * of_t)]
    for build in (cv.grams.DenseGram.from_points, _tiled(32)):
        first, second = build(cv.Gaussian(0.8), x), _features(cv.Cosine(), t)
        found = [cv.renyi(2)(gram) for gram in (first, second, first * second)]
        assert_close(np.exp(-np.stack(found)), expected)


@pytest.mark.parametrize("name", REPRESENTATIONS)
def test_the_bilinear_slope_is_the_gradient_of_the_bilinear_form(name, x64):
    points = jnp.asarray(draw_pairs(N)[0])
    left, right = np.random.default_rng(2).normal(size=(2, N, 4))
    kernel = cv.Cosine() if name == "features" else cv.Gaussian(0.6)

    def form(points, scale):
        values = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(points * scale, points * scale)
        return jnp.sum(jnp.where(jnp.eye(N, dtype=bool), 0, values) * (left @ right.T)) / N

    def slope(points, scale):
        gram = REPRESENTATIONS[name](kernel, points * scale)
        return 3 * gram.bilinear_slope(jnp.asarray(left), jnp.asarray(right))

    value, gradients = jax.value_and_grad(slope, argnums=(0, 1))(points, 1.0)
    assert value == 0
    for found, expected in zip(gradients, jax.grad(form, (0, 1))(points, 1.0), strict=True):
        np.testing.assert_allclose(found, 3 * expected, atol=1e-9)


def test_few_features_have_few_products(dtype):
    x, t = (jnp.asarray(a[:, :2]) for a in draw_pairs(N, dtype=dtype))
    joint = _features(cv.Cosine(), x) * _features(cv.Cosine(), t)
    assert isinstance(joint, cv.grams.FeatureGram)
    assert joint.rank_bound == 4
    expected = cosine_gram(x) * cosine_gram(t)
    assert_close(joint.eigenvalues(), eigenvalues(expected))
    assert_close(joint.squared_frobenius_norm(), np.sum((expected / N) ** 2))
    wide = _features(cv.Cosine(), jnp.asarray(draw_pairs(N, dtype=dtype, d_x=70)[0]))
    assert isinstance(wide * _features(cv.Cosine(), x), cv.grams.TiledGram)
    # More features than points are valid.
    assert_close(wide.eigenvalues(), eigenvalues(cosine_gram(wide.features)))


def test_gram_chooses_by_kernel_and_size():
    points = jnp.ones((40, 3)) * jnp.arange(40.0)[:, None] + 1
    assert isinstance(cv.gram(cv.Cosine(), points), cv.grams.FeatureGram)
    assert isinstance(cv.gram(cv.Cosine(), points[:3]), cv.grams.DenseGram)
    assert isinstance(cv.gram(cv.Gaussian(1.0), points), cv.grams.DenseGram)
    assert isinstance(cv.gram(cv.Gaussian(1.0), jnp.ones((3000, 1))), cv.grams.TiledGram)
    one, two = (_tiled(size)(cv.Gaussian(1.0), points) for size in (24, 16))
    assert (one.tile_size, (one * two).tile_size) == (24, 16)


def test_a_matrix_of_similarities_is_no_gram_yet():
    with pytest.raises(TypeError, match=r"^DenseGram: .*cv.Similarities\(K\)"):
        cv.grams.DenseGram(np.eye(3))
