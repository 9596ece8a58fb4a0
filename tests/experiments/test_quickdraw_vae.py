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
