"""The conditional VAE against NumPy, its truncation, and files that are refused."""

import json

import jax
import numpy as np
import pytest
import small_quickdraw
from small_repositories import repository

from experiments.generators import quickdraw_vae

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clone") / "vae"
    return quickdraw_vae.load(repository(folder, "a/b", small_quickdraw.files()))


def drawn(published, seed, prompts, psi=1.0):
    key = jax.random.key(seed)
    return np.asarray(
        quickdraw_vae.sample(published.params, key, prompts, psi=psi, sizes=published.sizes)
    )


def test_drawings_are_those_of_the_format(published):
    assert published.names == ("cat", "alarm clock", "key")
    assert published.sizes == quickdraw_vae.Sizes(3, 4, 2, (2, 4, 3))
    latents = np.random.default_rng(1).normal(size=(6, 3))
    prompts = np.array([0, 1, 2, 2, 1, 0])
    expected = small_quickdraw.decode(small_quickdraw.arrays(), latents, prompts)
    found = quickdraw_vae.decode(published.params, latents, prompts, sizes=published.sizes)
    assert found.shape == (6, 8, 8)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(expected) > 0.5


def test_samples_are_of_scaled_latents(published):
    prompts = np.array([2, 0, 1, 1])
    latents = np.asarray(jax.random.normal(jax.random.key(5), (4, 3)))
    for psi in (0.0, 0.3, 1.0):
        expected = small_quickdraw.decode(small_quickdraw.arrays(), psi * latents, prompts)
        np.testing.assert_allclose(drawn(published, 5, prompts, psi), expected, atol=1e-5)


def test_a_key_gives_its_drawings_again_and_another_key_others(published):
    prompts = np.zeros(5, int)
    first, again, other = (drawn(published, seed, prompts) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_without_latents_a_class_has_one_drawing(published):
    found = drawn(published, 3, np.array([1, 1, 2, 1]), psi=0.0)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[3])
    assert not np.allclose(found[0], found[2])
    # All draws of a class are then one, whatever the key.
    np.testing.assert_array_equal(found, drawn(published, 4, np.array([1, 1, 2, 1]), psi=0.0))


def changed(**config):
    model = small_quickdraw.topology(small_quickdraw.arrays())
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    for name, value in config.items():
        place, _, setting = name.partition("_")
        layers[int(place[1:])]["config"][setting] = value
    return json.dumps(model).encode()


WHOLE = small_quickdraw.files()
SHARD = WHOLE[small_quickdraw.SHARD]
BAD = {
    "labels that are no JSON": ({quickdraw_vae.LABELS: b"{"}, "manifest.json: expected different"),
    "a label twice": (
        {quickdraw_vae.LABELS: b'{"labels": ["a", "a", "b"]}'},
        "manifest.json: expected different labels",
    ),
    "labels too few": (
        {quickdraw_vae.LABELS: b'{"labels": ["a", "b"]}'},
        "manifest.json: expected 3 labels, as .*model.json has them, received 2",
    ),
    "no topology": ({quickdraw_vae.TOPOLOGY: b"[]"}, "model.json: not a decoder of this kind"),
    "another stride": (
        {quickdraw_vae.TOPOLOGY: changed(p5_strides=[2, 2])},
        "model.json: not a decoder of this kind: Conv2DTranspose_5 is of another kind",
    ),
    "another activation": (
        {quickdraw_vae.TOPOLOGY: changed(p9_activation="tanh")},
        "model.json: not a decoder of this kind: the layers are",
    ),
    "another enlargement": (
        {quickdraw_vae.TOPOLOGY: changed(p6_size=[3, 3])},
        "model.json: not a decoder of this kind: UpSampling2D_6 does not double",
    ),
    "other shapes": (
        {quickdraw_vae.TOPOLOGY: changed(p7_filters=5)},
        "model.json: not a decoder of this kind: the shapes of its weights",
    ),
    "a short shard": (
        {small_quickdraw.SHARD: SHARD[:-4]},
        rf"group1-shard1of1: expected {len(SHARD):,} bytes, received {len(SHARD) - 4:,}",
    ),
    "numbers that are none": (
        {small_quickdraw.SHARD: b"\xff" * len(SHARD)},
        "group1-shard1of1: not all of its numbers are finite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_or_wrong_files_are_refused_in_a_line(tmp_path, case):
    files, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        quickdraw_vae.load(repository(tmp_path / "clone", "a/b", WHOLE | files))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    files = {path: content for path, content in WHOLE.items() if path != small_quickdraw.SHARD}
    with pytest.raises(ValueError, match="group1-shard1of1 is not in"):
        quickdraw_vae.load(repository(tmp_path / "clone", "a/b", files))
