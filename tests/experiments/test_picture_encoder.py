"""The encoder of pictures: its network, its loss, its training, and what is shipped of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.data import load, pictures
from experiments.data.sets import FOLDER
from experiments.generators import checkpoints, latent_diffusion, picture_encoder
from experiments.generators.fitting import Places
from experiments.generators.picture_encoder import Training

pytestmark = pytest.mark.slow

TINY = Training("fashion", channels=1, hidden=4, features=8, steps=60, batch=16, rate=1e-2)


@pytest.fixture(autouse=True)
def optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def stirred(training, seed=0):
    """A network none of whose parameters is zero."""
    shapes = nnx.state(nnx.eval_shape(lambda: picture_encoder._make(training)))
    leaves, tree = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moved = [
        0.3 * jax.random.normal(key, leaf.shape, leaf.dtype)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def plain(training, params):
    return nnx.merge(nnx.graphdef(nnx.eval_shape(lambda: picture_encoder._make(training))), params)


def test_a_convolution_as_a_product_is_xlas():
    x = jax.random.normal(jax.random.key(0), (2, 5, 6, 3))
    for sides in ((3, 3), (1, 3), (5, 1)):
        kernel = jax.random.normal(jax.random.key(1), (*sides, 3, 4))
        numbers = ("NHWC", "HWIO", "NHWC")
        wanted = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=numbers, precision="highest"
        )
        with jax.default_matmul_precision("highest"):
            found = latent_diffusion.as_product(x, kernel)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_features_are_directions_and_the_same_in_the_loops_of_a_sampler():
    params = stirred(TINY)
    pixels = jax.random.uniform(jax.random.key(0), (3, 32, 32, 1))
    features = picture_encoder._features(TINY, params, pixels)
    assert features.shape == (3, 8)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        features, jax.jit(lambda p: plain(TINY, p)(pixels))(params), atol=1e-5
    )
    assert np.abs(features[0] - features[1]).max() > 1e-3


def test_logits_are_cosines_times_a_bounded_scale():
    params = stirred(TINY)
    prompts = jax.random.normal(jax.random.key(2), (4, 384))
    rows = picture_encoder.unit(jax.random.normal(jax.random.key(3), (2, 8)))
    words = np.asarray(prompts @ params["words"]["kernel"][...], np.float64)
    cosines = np.asarray(rows, np.float64) @ (words / np.linalg.norm(words, axis=1)[:, None]).T
    for log_scale, scale in ((0.5, np.exp(0.5)), (50.0, 100.0)):
        params["scale"][...] = jnp.asarray(log_scale)
        found = picture_encoder._logits(TINY, params, rows, prompts)
        np.testing.assert_allclose(found, scale * cosines, rtol=1e-3, atol=1e-3)


def test_a_shifted_picture_is_moved_whole_and_its_edge_repeated():
    picture = np.arange(36).reshape(6, 6)
    wide = np.pad(picture, 2, mode="edge")
    allowed = {wide[i : i + 6, j : j + 6].tobytes(): (i, j) for i in range(5) for j in range(5)}
    many = jnp.asarray(np.repeat(picture[None, :, :, None], 200, axis=0))
    found = np.asarray(picture_encoder.shifted(many, jax.random.key(0)))[..., 0]
    seen = {allowed[np.ascontiguousarray(one, picture.dtype).tobytes()] for one in found}
    assert len(seen) == 25


def test_the_loss_is_the_cross_entropy_of_the_right_prompt():
    params = stirred(TINY)
    pixels = np.full((5, 32, 32, 1), 90, np.uint8)  # No shift changes it.
    kinds = np.full(5, 2)
    prompts = jax.random.normal(jax.random.key(2), (4, 384))
    arrays = jnp.asarray(pixels), jnp.asarray(kinds), prompts
    loss = picture_encoder._loss(3)
    found = jax.jit(lambda p: loss(plain(TINY, p), arrays, jax.random.key(0)))(params)
    features = picture_encoder._features(TINY, params, jnp.asarray(pixels / np.float32(255)))
    logits = np.asarray(picture_encoder._logits(TINY, params, features, prompts), np.float64)[0]
    assert float(found) == pytest.approx(np.log(np.exp(logits).sum()) - logits[2], rel=1e-4)


def test_what_is_found_among_the_best_by_hand():
    logits = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 1.0, 0.0]])
    kinds = np.array([0, 1, 0])
    for best, wanted in ((1, [True, False, False]), (2, [True, True, True])):
        assert picture_encoder.found_among(logits, kinds, best).tolist() == wanted


def of_three_kinds(n, seed):
    """Pictures with a bar that lies, stands or is not there, in noise."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(3, size=n)
    pixels = rng.integers(0, 60, size=(n, 32, 32, 1))
    pixels[kinds == 0, 12:20] += 150
    pixels[kinds == 1, :, 12:20] += 150
    return pictures.Pictures(pixels.astype(np.uint8), kinds, rng.random(n) < 0.3)


def test_a_training_learns_what_is_not_held_out_and_is_kept(tmp_path, monkeypatch):
    found = of_three_kinds(300, seed=0)
    rng = np.random.default_rng(1)
    embeddings = rng.normal(size=(3, 2, 384)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=2, keepdims=True)
    collection = pictures.Collection(
        "fashion",
        lambda folder: found,
        lambda: pictures.Prompts(np.array(["lies", "stands", "none"]), embeddings),
        channels=1,
        digest=pictures.digest_of(found),
        source="here",
    )
    monkeypatch.setitem(pictures.COLLECTIONS, "fashion", collection)
    places = Places(cache=tmp_path, shipped=tmp_path)
    with pytest.raises(ValueError, match="no folder of pictures is given"):
        picture_encoder.load("fashion", places, training=TINY)
    lines, seen, train = [], [], picture_encoder.train

    def watched(*given):
        seen.extend(given[1:3])
        return train(*given)

    monkeypatch.setattr(picture_encoder, "train", watched)
    found_there = dataclasses.replace(places, pictures=tmp_path, say=lines.append)
    encoder = picture_encoder.load("fashion", found_there, training=TINY)
    assert "60 of 60" in lines[-1]
    for given, of in zip(seen, (found.pixels, found.kinds), strict=True):
        np.testing.assert_array_equal(given, of[~found.held_out])
    np.testing.assert_allclose(np.linalg.norm(encoder.prompts, axis=1), 1, atol=1e-6)
    mean = embeddings.mean(axis=1)
    np.testing.assert_allclose(
        encoder.prompts, mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-6
    )
    pixels, kinds = found.part(held_out=True)
    logits = np.asarray(encoder.logits(jnp.asarray(picture_encoder.features_of(encoder, pixels))))
    assert np.mean(picture_encoder.found_among(logits, kinds, 1)) > 0.95

    again = picture_encoder.load("fashion", places, training=TINY)  # Without pictures.
    for one, other in zip(
        jax.tree.leaves(again.params), jax.tree.leaves(encoder.params), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="expected one of fashion, emoji, received 'cars'"):
        picture_encoder.load("cars")


def test_the_identity_knows_every_setting_and_the_pictures(monkeypatch):
    identity = picture_encoder.identity(TINY)
    for field in dataclasses.fields(TINY):
        if field.name != "collection":
            changed = dataclasses.replace(TINY, **{field.name: 2 * getattr(TINY, field.name)})
            assert picture_encoder.identity(changed) != identity
    other = dataclasses.replace(pictures.COLLECTIONS["fashion"], digest="other")
    monkeypatch.setitem(pictures.COLLECTIONS, "fashion", other)
    assert picture_encoder.identity(TINY) != identity


@pytest.mark.parametrize(("name", "best", "least"), [("fashion", 1, 0.88), ("emoji", 5, 0.53)])
def test_the_shipped_encoder_finds_the_prompts_of_shipped_held_out_features(name, best, least):
    encoder, pairs = picture_encoder.load(name), load(f"{name}_features")
    kinds = pairs.labels["kind"]
    logits = np.asarray(encoder.logits(jnp.asarray(pairs.outputs)))
    assert logits.shape == (len(pairs), len(encoder.prompts))
    assert np.mean(picture_encoder.found_among(logits, kinds, best)) > least
    with np.load(FOLDER / f"{name}_features.npz") as stored:
        file = checkpoints.file_name(picture_encoder.identity(encoder.training))
        assert f"parameters {file}" in stored["provenance"]
    prompts = pictures.COLLECTIONS[name].prompts()
    np.testing.assert_array_equal(prompts.names[kinds], pairs.labels["types"])
    cosines = np.max(np.einsum("np,nwp->nw", pairs.prompts, prompts.embeddings[kinds]), axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-3)  # A wording of its own kind.
    folder = checkpoints.SHIPPED
    assert sum(path.stat().st_size for path in folder.glob("picture_encoder-*")) < 0.8e6
