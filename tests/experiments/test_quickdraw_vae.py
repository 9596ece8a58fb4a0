"""The conditional VAE against NumPy, and its truncation."""

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
    return np.asarray(quickdraw_vae.sample(published.decoder, key, prompts, psi))


def test_samples_are_those_of_the_format_at_scaled_latents(published):
    assert published.names == ("cat", "alarm clock", "key")
    assert published.decoder.sizes == quickdraw_vae.Sizes(3, 4, 2, (2, 4, 3))
    prompts = np.array([2, 0, 1, 1])
    latents = np.asarray(jax.random.normal(jax.random.key(5), (4, 3)))
    for psi in (0.0, 0.3, 1.0):
        expected = small_quickdraw.decode(small_quickdraw.arrays(), psi * latents, prompts)
        assert expected.shape == (4, 8, 8) and np.ptp(expected) > 0.5
        np.testing.assert_allclose(drawn(published, 5, prompts, psi), expected, atol=1e-5)


def test_without_latents_a_class_has_one_drawing_whatever_the_key(published):
    prompts = np.array([1, 1, 2, 1])
    first, again, other = (drawn(published, seed, prompts) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    still, other = (drawn(published, seed, prompts, psi=0.0) for seed in (1, 2))
    np.testing.assert_array_equal(still, other)
    np.testing.assert_array_equal(still[[1, 3]], still[[0, 0]])
    assert not np.allclose(still[0], still[2])


def test_a_missing_file_is_named(tmp_path):
    files = small_quickdraw.files()
    del files[small_quickdraw.SHARD]
    with pytest.raises(ValueError, match="group1-shard1of1 is not in"):
        quickdraw_vae.load(repository(tmp_path / "clone", "a/b", files))
