"""Scores against a generator's knob, on outputs whose modes are counted."""

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram
from small import flags, widths, write
from studies import execute

from experiments.lab import tables
from experiments.lab.knobs import trend
from experiments.rke.latent_truncation import LatentTruncation

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Three types far apart, of four outputs each that the knob moves apart: one mode, then four.

    Prompts are one of two wordings of the type, as far apart.
    """
    generator = np.random.default_rng(seed)
    types, draws, values = 3, 8, (0.0, 0.5, 1.0)
    kind, which = (part.ravel() for part in np.indices((types, draws)))
    centres = 1000.0 * (kind + 1) + generator.normal()
    outputs = [
        np.stack([centres + 80.0 * value * (which % 4), np.zeros(len(kind))], axis=1)
        for value in values
    ]
    prompts = np.stack([1000.0 * kind, 1000.0 * (which // 4)], axis=1)
    files = write(
        folder,
        outputs=np.concatenate(outputs),
        prompts=np.tile(prompts, (len(values), 1)),
        types=np.tile(kind, len(values)),
        models=np.repeat(values, len(kind)),
    )
    return [*files, *widths(4), *flags(groups=3, scales="1,2")]


finished = studies.finished(LatentTruncation)


def test_the_knob_opens_the_modes_within_a_type(finished):
    """Three types of two wordings: a mode each without latents, and four each with them.

    The wordings of a type have the same four modes, so that outputs do not tell them.
    """
    assert finished.study.values == (0.0, 0.5, 1.0)
    found = finished.found
    assert (found.n == 24).all()
    for order in ("Vendi", "RKE"):
        known = {order: [3, 12, 12], f"Conditional-{order}": [1, 4, 4]}
        for name, expected in {**known, f"Information-{order}": [3, 3, 3]}.items():
            np.testing.assert_allclose(found.value.sel(score=name), [expected] * 2, rtol=1e-3)
    within = found.within.transpose("scale", "type", "setting")
    np.testing.assert_allclose(within, [[[1, 4, 4]] * 3] * 2, rtol=1e-3)


def test_scores_hang_on_the_bandwidth_and_are_those_of_the_pairs(tmp_path):
    flags = small(tmp_path, 0)
    drawn = np.load(tmp_path / "x.npy")
    drawn += np.random.default_rng(1).normal(scale=20, size=drawn.shape).astype(np.float32)
    np.save(tmp_path / "x.npy", drawn)
    flags += ["--output_bandwidth=30", "--prompt_bandwidth=700", "--scales=0.5,1"]
    run = execute(LatentTruncation, tmp_path, *flags, "--samples=5", "--groups=2")
    assert run.study.samples == 5
    outputs, prompts = (np.load(tmp_path / name).reshape(3, 3, 8, 2) for name in ("x.npy", "t.npy"))
    for scale in (0.5, 1.0):
        found = run.found.sel(scale=scale)
        for at in range(3):
            k_x = gaussian_gram(outputs[at, :, :5].reshape(15, 2).astype(float), 30 * scale)
            k_t = gaussian_gram(prompts[at, :, :5].reshape(15, 2).astype(float), 700 * scale)
            of_x, of_t, joint = (np.mean(k**2) for k in (k_x, k_t, k_x * k_t))
            scores = found.value.isel(setting=at)[3:]
            np.testing.assert_allclose(
                scores, [of_t / joint, joint / (of_x * of_t), 1 / of_x], 1e-3
            )
            within = [1 / np.mean(k_x[i : i + 5, i : i + 5] ** 2) for i in (0, 5, 10)]
            np.testing.assert_allclose(found.within.isel(setting=at), within, rtol=1e-3)
    opened = run.found.within.isel(setting=[1, 2])
    assert (opened.sel(scale=0.5) > opened.sel(scale=1)).all()


def test_the_trend_is_over_the_types():
    by_type = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0], [3.0, 2.0, 1.0]])
    axes = {"type": list("abcd"), "setting": [0.0, 0.5, 1.0]}
    found = xr.Dataset({"within": (tuple(axes), by_type)}, axes)
    averaged = tables.means(found.within, "type")
    np.testing.assert_allclose(averaged.value, by_type.mean(axis=0))
    np.testing.assert_allclose(averaged.error, by_type.std(axis=0, ddof=1) / 2)
    correlation, interval = trend(found.within)
    each = np.array([1.0, 0.5, -1.0])  # The type that does not change says nothing.
    assert correlation == pytest.approx(each.mean())
    half = 4.302653 * each.std(ddof=1) / np.sqrt(3)
    assert interval == pytest.approx((each.mean() - half, each.mean() + half))
