"""The study of what guidance costs: sizes are known, seconds are not."""

import jax
import numpy as np
import pytest
import xarray as xr
from small import small_run
from studies import execute

from experiments import lab
from experiments.guidance_cost import GuidanceCost, quartiles

pytestmark = pytest.mark.slow

LATENT, PROMPT, BATCH = 6, 4, 4


def prepared(folder, **options):
    flags = small_run(GuidanceCost, folder, seed=0)
    given = dict(flag.removeprefix("--").split("=") for flag in flags)
    defaults = {
        "latents": given["latents"], "prompts": given["prompts"], "model": "fashion",
        "windows": (8, 32), "spectra": 32, "batch": BATCH, "repeats": 3,
    }  # fmt: skip
    return GuidanceCost(**{**defaults, **options}).prepare(lambda: None, 0)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The study made ready, and what the cells of two windows cost."""
    setup = prepared(tmp_path_factory.mktemp("pairs"))
    study = setup.study
    context = lab.Context(jax.random.key(1), jax.random.key(0), {}, lambda words: None)
    found = {c: study.compute(setup.state, context, **c.values) for c in study.cells()}
    return setup, lab.gather(found)


def test_the_state_is_the_window(measured):
    """Latents, prompts and filled slots; two counts and two bandwidths; two sums at order 2."""
    state = measured[1].state
    for kind, sums in (("conditional_rke", 2), ("conditional_vendi", 0)):
        expected = state.window * (4 * (LATENT + PROMPT + sums) + 1) + 4 * 4
        np.testing.assert_array_equal(state.sel(kind=kind), expected)


def test_workspace_grows_with_the_window_or_with_its_square(measured):
    found = measured[1].sel(window=32)
    wide = 32 + BATCH
    assert found.update_bytes.sel(kind="conditional_vendi") > 4 * 3 * wide**2
    of_pairs = (found.update_bytes - found.state).sel(kind="conditional_rke")
    # A few blocks of the batch and the window, and a few copies of the points.
    assert of_pairs < 4 * wide * (8 * BATCH + 4 * (LATENT + PROMPT))


def test_every_repetition_is_kept(measured):
    found = measured[1]
    for name in ("step", "update", "remember"):
        assert found[name].sizes["repeat"] == 3
        assert (found[name] > 0).all()
    assert (found.step_bytes > 2**20).all()  # The parameters alone.


def test_quartiles_are_of_the_turns_and_of_the_cells_that_there_are():
    turns = np.full((2, 2, 4), np.nan)
    turns[0, 0, :3], turns[1, 0] = [2.0, 3.0, 1.0], [4.0, 8.0, 2.0, 6.0]
    axes = {"kind": ["a", "b"], "window": [8, 32], "repeat": range(4)}
    found = quartiles(xr.DataArray(turns, axes))
    np.testing.assert_allclose(found.sel(kind="a", window=8), [1.5, 2.0, 2.5])
    np.testing.assert_allclose(found.sel(kind="b", window=8), [3.5, 5.0, 6.5])
    assert np.isnan(found.sel(window=32)).all()


def test_kinds_and_windows(tmp_path):
    setup = prepared(tmp_path, windows=(32, 8, 8), spectra=8)
    assert list(map(str, setup.study.cells())) == [
        "conditional_rke-8", "conditional_rke-32", "conditional_vendi-8"
    ]  # fmt: skip


def test_bandwidths_are_half_the_root_mean_squared_distance(measured):
    setup = measured[0]
    latents = setup.arrays["latents"].astype(float)
    assert len(latents) == 32 + BATCH
    gaps = latents[:, None] - latents[None]
    expected = np.sqrt(np.mean(np.sum(gaps**2, axis=2))) / 2
    np.testing.assert_allclose(setup.study.bandwidths[0], expected, rtol=1e-5)


def test_noise_has_the_shape_of_the_model(tmp_path):
    setup = prepared(tmp_path, latents=None, prompts=None)
    assert setup.arrays["latents"].shape == (36, 256)
    assert setup.arrays["prompts"].shape == (36, 384)
    again = prepared(tmp_path, latents=None, prompts=None)
    np.testing.assert_array_equal(setup.arrays["latents"], again.arrays["latents"])


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--windows=0", "--windows: expected a number at least 1, received 0"),
        ("--windows=100", "--latents: expected at least 104 rows"),
        ("--batch=0", "--batch: expected a number at least 1, received 0"),
        ("--repeats=0", "--repeats: expected a number at least 1, received 0"),
        ("--spectra=0", "--spectra: expected a number at least 1, received 0"),
        ("--latents=nowhere.npy", "nowhere.npy"),
    ],
)
def test_bad_flags_are_refused(flag, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        execute(GuidanceCost, tmp_path, *small_run(GuidanceCost, tmp_path, 0), flag)


def test_latents_without_prompts_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--latents and --prompts are of the same pairs"):
        prepared(tmp_path, prompts=None)
