"""The encoder of pictures: its network, its loss, its training, and what is shipped of it."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.data import load
from experiments.generators import fitting, latent_diffusion, picture_encoder, pictures
from experiments.generators.fitting import Places
from experiments.generators.picture_encoder import Training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optax_promotes")]

TINY = Training("fashion", channels=1, hidden=4, features=8, steps=60, batch=16, rate=1e-2)


def stirred():
    """A network for loops none of whose parameters is zero."""
    graph, state = nnx.split(
        latent_diffusion.looped(picture_encoder.PictureEncoder(TINY, rngs=nnx.Rngs(0)))
    )
    leaves, tree = jax.tree.flatten(state)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    pairs = zip(keys, leaves, strict=True)
    moved = [0.3 * jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in pairs]
    return nnx.merge(graph, jax.tree.unflatten(tree, moved))


def test_features_are_directions_and_the_same_in_the_loops_of_a_sampler():
    network = stirred()
    pixels = jax.random.uniform(jax.random.key(0), (3, 32, 32, 1))
    features = network(pixels)
    assert features.shape == (3, 8)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    assert np.abs(features[0] - features[1]).max() > 1e-3
    graph = nnx.graphdef(picture_encoder.PictureEncoder(TINY, rngs=nnx.Rngs(0)))
    plain = nnx.merge(graph, nnx.state(network))
    assert plain.blocks[0].first.conv_general_dilated is not latent_diffusion.as_product
    np.testing.assert_allclose(features, plain(pixels), atol=1e-5)


def test_a_shifted_picture_is_moved_whole_and_its_edge_repeated():
    picture = np.arange(36).reshape(6, 6)
    wide = np.pad(picture, 2, mode="edge")
    allowed = {wide[i : i + 6, j : j + 6].tobytes(): (i, j) for i in range(5) for j in range(5)}
    many = jnp.asarray(np.repeat(picture[None, :, :, None], 200, axis=0))
    found = np.asarray(picture_encoder.shifted(many, jax.random.key(0)))[..., 0]
    seen = {allowed[np.ascontiguousarray(one, picture.dtype).tobytes()] for one in found}
    assert len(seen) == 25


def test_the_loss_is_the_cross_entropy_of_the_right_prompt():
    network = stirred()
    pixels = np.full((5, 32, 32, 1), 90, np.uint8)  # No shift changes it.
    prompts = jax.random.normal(jax.random.key(2), (4, 384))
    arrays = jnp.asarray(pixels), jnp.full(5, 2), prompts
    found = jax.jit(functools.partial(picture_encoder._loss, batch=3))(
        network, arrays, jax.random.key(0)
    )
    features = network(jnp.asarray(pixels / np.float32(255)))
    logits = np.asarray(network.logits(features, prompts), np.float64)[0]
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
    embeddings = np.random.default_rng(1).normal(size=(3, 2, 384)).astype(np.float32)
    prompts = pictures.Prompts(np.array(["lies", "stands", "none"]), embeddings)
    collection = pictures.Collection(
        "fashion", lambda _: found, lambda: prompts, pictures.digest_of(found), "here"
    )
    monkeypatch.setitem(pictures.COLLECTIONS, "fashion", collection)
    monkeypatch.setitem(picture_encoder.TRAININGS, "fashion", TINY)
    places = Places(cache=tmp_path, shipped=tmp_path)
    with pytest.raises(ValueError, match="no folder of pictures is given"):
        picture_encoder.load("fashion", places)
    found_there = dataclasses.replace(places, pictures=tmp_path)
    for seen, of in zip(found_there.seen("fashion"), (found.pixels, found.kinds), strict=True):
        np.testing.assert_array_equal(seen, of[~found.held_out])
    encoder = picture_encoder.load("fashion", found_there)
    mean = embeddings.mean(axis=1)
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    directions = picture_encoder.prompts_of("fashion")
    np.testing.assert_allclose(directions, unit, atol=1e-6)
    pixels, kinds = found.part(held_out=True)
    features = fitting.in_parts(encoder, pixels)
    logits = np.asarray(encoder.logits(jnp.asarray(features), directions))
    assert np.mean(picture_encoder.found_among(logits, kinds, 1)) > 0.95
    again = picture_encoder.load("fashion", places)  # Without pictures.
    chex.assert_trees_all_equal(again, encoder)


@pytest.mark.parametrize(("name", "best", "least"), [("fashion", 1, 0.88), ("emoji", 5, 0.53)])
def test_the_shipped_encoder_finds_the_prompts_of_shipped_held_out_features(name, best, least):
    encoder, pairs = picture_encoder.load(name), load(f"{name}_features")
    kinds = pairs.labels["kind"]
    judged = encoder.logits(jnp.asarray(pairs.outputs), picture_encoder.prompts_of(name))
    logits = np.asarray(judged)
    assert np.mean(picture_encoder.found_among(logits, kinds, best)) > least
    prompts = pictures.COLLECTIONS[name].prompts()
    np.testing.assert_array_equal(prompts.names[kinds], pairs.labels["types"])
    cosines = np.max(np.einsum("np,nwp->nw", pairs.prompts, prompts.embeddings[kinds]), axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-3)  # A wording of its own kind.
