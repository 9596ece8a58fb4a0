"""The study of what guidance costs: sizes are known, seconds are not."""

import jax
import numpy as np
import pytest
import studies
import xarray as xr

from experiments import lab
from experiments.cost.guidance_cost import GuidanceCost, quartiles

pytestmark = pytest.mark.slow

# Of the fashion model.
LATENT, PROMPT, BATCH = 256, 384, 4


def prepared(**options):
    defaults = {"model": "fashion", "windows": (8, 32), "spectra": 32, "batch": BATCH, "repeats": 3}
    return GuidanceCost(**(defaults | options)).prepare(lambda: None, 0)


@pytest.fixture(scope="module")
def measured():
    """What the cells of two windows cost."""
    setup = prepared()
    context = lab.Context(jax.random.key(1), jax.random.key(0), {}, lambda words: None)
    cells = [cell.values for cell in setup.study.cells()]
    return lab.gather([(c, setup.study.compute(setup.state, context, **c)) for c in cells])


def test_the_state_is_the_window_and_every_repetition_is_kept(measured):
    """Latents and prompts, as they are and centred with their norms and their centres; filled
    slots; two counts and two bandwidths; two sums at order 2."""
    state = measured.state
    for kind, sums in (("conditional_rke", 2), ("conditional_vendi", 0)):
        numbers = LATENT + PROMPT
        expected = state.window * (4 * (2 * numbers + 2 + sums) + 1) + 4 * (numbers + 4)
        np.testing.assert_array_equal(state.sel(kind=kind), expected)
    for name in ("step", "update", "remember"):
        assert measured[name].sizes["repeat"] == 3
        assert (measured[name] > 0).all()
    assert (measured.step_bytes > 2**20).all()  # The parameters alone.


def test_workspace_grows_with_the_window_or_with_its_square(measured):
    found = measured.sel(window=32)
    wide = 32 + BATCH
    assert found.update_bytes.sel(kind="conditional_vendi") > 4 * 3 * wide**2
    of_pairs = (found.update_bytes - found.state).sel(kind="conditional_rke")
    # A few blocks of the batch and the window, and a few copies of the points.
    assert of_pairs < 4 * wide * (8 * BATCH + 4 * (LATENT + PROMPT))


def test_quartiles_are_of_the_turns_and_of_the_cells_that_there_are():
    turns = np.full((2, 2, 4), np.nan)
    turns[0, 0, :3], turns[1, 0] = [2.0, 3.0, 1.0], [4.0, 8.0, 2.0, 6.0]
    axes = {"kind": ["a", "b"], "window": [8, 32], "repeat": range(4)}
    found = quartiles(xr.DataArray(turns, axes))
    np.testing.assert_allclose(found.sel(kind="a", window=8), [1.5, 2.0, 2.5])
    np.testing.assert_allclose(found.sel(kind="b", window=8), [3.5, 5.0, 6.5])
    assert np.isnan(found.sel(window=32)).all()


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


test_bad_flags_are_refused = studies.refuses(
    GuidanceCost,
    ("--windows=0", "--windows: expected a number at least 1, received 0"),
    ("--batch=0", "--batch: expected a number at least 1, received 0"),
    ("--repeats=0", "--repeats: expected a number at least 1, received 0"),
    ("--spectra=0", "--spectra: expected a number at least 1, received 0"),
)
