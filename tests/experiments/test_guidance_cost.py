"""The study of what guidance costs: sizes are known, seconds are not."""

import dataclasses

import jax
import numpy as np
import pytest
from small import small_run

from experiments import guidance_cost as study
from experiments import lab

pytestmark = pytest.mark.slow

LATENT, PROMPT, BATCH = 6, 4, 4


def _prepared(folder, **options):
    flags = small_run(study, folder, seed=0)
    given = dict(flag.removeprefix("--").split("=") for flag in flags)
    defaults = {
        "latents": given["latents"], "prompts": given["prompts"], "model": "fashion",
        "windows": (8, 32), "spectra": 32, "batch": BATCH, "repeats": 3,
    }  # fmt: skip
    return study.prepare(study.Options(**{**defaults, **options}), lambda: None, 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Settings, and what the cells of two windows cost."""
    setup = _prepared(tmp_path_factory.mktemp("pairs"))
    context = lab.Context(jax.random.key(1), jax.random.key(0), {}, lambda words: None)
    cells = study.cells(setup.settings)
    return setup, {cell: study.compute(setup, cell, context) for cell in cells}


def test_the_state_is_the_window(run):
    """Latents, prompts and filled slots; two counts and two bandwidths; two sums at order 2."""
    for cell, cost in run[1].items():
        sums = 2 if cell.kind == "conditional_rke" else 0
        assert cost.state == cell.window * (4 * (LATENT + PROMPT + sums) + 1) + 4 * 4


def test_workspace_grows_with_the_window_or_with_its_square(run):
    costs = {(cell.kind, cell.window): cost for cell, cost in run[1].items()}
    wide = 32 + BATCH
    assert costs["conditional_vendi", 32].update_bytes > 4 * 3 * wide**2
    of_pairs = costs["conditional_rke", 32].update_bytes - costs["conditional_rke", 32].state
    # A few blocks of the batch and the window, and a few copies of the points.
    assert of_pairs < 4 * wide * (8 * BATCH + 4 * (LATENT + PROMPT))


def test_every_repetition_is_kept(run):
    for cost in run[1].values():
        for seconds in (cost.step, cost.update, cost.remember):
            assert seconds.shape == (3,)
            assert (seconds > 0).all()
        assert cost.step_bytes > 2**20  # The parameters alone.


def test_relative_is_of_the_turns():
    seconds = {"step": np.array([1.0, 2.0, 4.0]), "update": np.array([2.0, 6.0, 4.0])}
    cost = study.Cost(**seconds, remember=seconds["step"], state=1, update_bytes=1, step_bytes=1)
    np.testing.assert_allclose(study.relative(cost), [1.5, 2.0, 2.5])


def test_kinds_and_windows(run):
    settings = run[0].settings
    found = study.cells(dataclasses.replace(settings, windows=(8, 32), spectra=8))
    assert [(cell.kind, cell.window) for cell in found] == [
        ("conditional_rke", 8), ("conditional_vendi", 8), ("conditional_rke", 32)
    ]  # fmt: skip


def test_bandwidths_are_half_the_root_mean_squared_distance(run):
    setup = run[0]
    latents = setup.arrays["latents"].astype(float)
    assert len(latents) == 32 + BATCH
    gaps = latents[:, None] - latents[None]
    expected = np.sqrt(np.mean(np.sum(gaps**2, axis=2))) / 2
    np.testing.assert_allclose(setup.settings.bandwidths[0], expected, rtol=1e-5)


def test_noise_has_the_shape_of_the_model(tmp_path):
    setup = _prepared(tmp_path, latents=None, prompts=None)
    assert setup.arrays["latents"].shape == (36, 256)
    assert setup.arrays["prompts"].shape == (36, 384)
    again = _prepared(tmp_path, latents=None, prompts=None)
    np.testing.assert_array_equal(setup.arrays["latents"], again.arrays["latents"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": (0,)}, "--windows: expected numbers of at least 1"),
        ({"windows": (100,)}, "--latents: expected at least 104 rows"),
        ({"batch": 0}, "--batch: expected an integer of at least 1"),
        ({"repeats": 0}, "--repeats: expected an integer of at least 1"),
        ({"prompts": None}, "--latents and --prompts are of the same pairs"),
        ({"latents": "nowhere.npy"}, "nowhere.npy"),
    ],
)
def test_bad_flags_are_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        _prepared(tmp_path, **options)
