"""The study of what guidance costs: sizes are known, seconds are not."""

import jax
import numpy as np
import pytest
from small import flags

from experiments import lab
from experiments.cost.guidance_cost import GuidanceCost

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Two small windows; the seed changes the noise that fills them."""
    return flags(model="fashion", windows="8,32", spectra=8, batch=4, repeats=3, seed=seed)


# Of the fashion model.
LATENT, PROMPT, BATCH = 256, 384, 4


def prepared(**options):
    defaults = {"model": "fashion", "windows": (8, 32), "spectra": 32, "batch": BATCH, "repeats": 3}
    return GuidanceCost(**(defaults | options)).prepare(lambda: None, 0)


@pytest.fixture(scope="module")
def measured():
    """What the cells of two windows cost."""
    setup = prepared()
    context = lab.Context(jax.random.key(1), jax.random.key(0), lambda words: None)
    cells = [cell.values for cell in setup.study.cells()]
    return lab.gather([(c, setup.study.compute(setup.state, context, **c)) for c in cells])


def test_the_state_is_the_window_and_every_repetition_is_kept(measured):
    """Pairs, as they are and centred with norms and centres; slots, counts, bandwidths; sums."""
    state = measured.state
    for kind, sums in (("conditional_rke", 2), ("conditional_vendi", 0)):
        numbers = LATENT + PROMPT
        expected = state.window * (4 * (2 * numbers + 2 + sums) + 1) + 4 * (numbers + 4)
        np.testing.assert_array_equal(state.sel(kind=kind), expected)
    for name in ("step", "update", "remember"):
        assert measured[name].sizes["repeat"] == 3
        assert (measured[name] > 0).all()


def test_windows_bandwidths_and_noise_follow_the_flags():
    setup = prepared(windows=(32, 8), spectra=8)
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
