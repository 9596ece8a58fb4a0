"""The study of what guidance costs: sizes are known, seconds are not."""

import numpy as np
import pytest
import studies
from small import flags

from experiments.cost.guidance_cost import GuidanceCost

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Two small windows; the seed changes the noise that fills them."""
    return flags(model="fashion", windows="8,32", spectra=8, batch=4, repeats=3, seed=seed)


# Of the fashion model.
LATENT, PROMPT = 256, 384

finished = studies.finished(GuidanceCost)


def test_the_state_is_the_window_and_every_repetition_is_kept(finished):
    """Pairs, which slots hold one, and sums; counts and bandwidths."""
    measured = finished.found
    for kind, sums in (("conditional_rke", 2), ("conditional_vendi", 0)):
        numbers = LATENT + PROMPT
        state = measured.state.sel(kind=kind).dropna("window")
        expected = state.window * (4 * (numbers + sums) + 1) + 4 * 4
        np.testing.assert_array_equal(state, expected)
    for name in ("step", "update", "remember"):
        assert measured[name].sizes["repeat"] == 3
        assert (measured[name].sel(window=8) > 0).all()


def test_windows_bandwidths_and_noise_follow_the_flags():
    options = {"model": "fashion", "windows": (32, 8), "spectra": 8, "batch": 4, "repeats": 3}
    setup = GuidanceCost(**options).prepare(lambda: None, 0)
    assert " ".join(map(str, setup.study.cells())) == (
        "conditional_rke-8 conditional_rke-32 conditional_vendi-8"
    )
    latents, prompts = (setup.arrays[name].astype(float) for name in ("latents", "prompts"))
    assert (latents.shape, prompts.shape) == ((36, LATENT), (36, PROMPT))
    np.testing.assert_allclose(np.linalg.norm(prompts, axis=1), 1, rtol=1e-5)
    # Half the root mean squared distance.
    gaps = latents[:, None] - latents[None]
    expected = np.sqrt(np.mean(np.sum(gaps**2, axis=2))) / 2
    np.testing.assert_allclose(setup.study.bandwidths[0], expected, rtol=1e-5)
