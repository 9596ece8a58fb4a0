"""Scores against a generator's knob, on outputs whose modes are counted."""

import dataclasses

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram
from small import small_run
from studies import execute

from experiments.data import load
from experiments.lab import runner, store, tables
from experiments.lab.knobs import trend
from experiments.rke.latent_truncation import LatentTruncation, by_temperature

pytestmark = pytest.mark.slow

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
    flags = small_run(LatentTruncation, tmp_path, 0)
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


def test_the_tables_and_the_figures(finished):
    scores, within, trends = finished.study.tables(finished)
    assert [*scores.columns[1].cells] == [*within.columns[1].cells] == ["0", "0.5", "1"] * 2
    assert next(within.columns[2].cells).startswith("1 ± ")
    assert len([*trends.columns[0].cells]) == 2
    figures = LatentTruncation.figures([finished])
    assert set(figures) == {"latent_truncation", "latent_truncation_scores"}
    assert "RKE rises by 300%" in figures["latent_truncation"].axes[0].get_title()
    caption = figures["latent_truncation"]._supxlabel.get_text().replace("\n", " ")
    for part in ("3 groups of", "seed 0", "(outputs / prompts) 4 / 4"):
        assert part in caption


def test_errors_within_types_are_over_each_generators_own_types(finished):
    """Of two types that have one and three modes the error is 1, whoever else has more types."""
    within = xr.DataArray([1.0, 3.0], dims="type")
    results = {
        cell: found.isel(type=[0, 1]).assign(within=xr.zeros_like(found.setting) + within)
        for cell, found in finished.results.items()
    }
    study = dataclasses.replace(finished.study, knob="temperature")
    fewer = dataclasses.replace(finished, study=study, results=results)
    axes = LatentTruncation.figures([finished, fewer])["latent_truncation"].axes
    (bars,) = axes[3].containers[0][2]
    assert [top - low for (_, low), (_, top) in bars.get_segments()] == pytest.approx([3.92] * 3)


test_bad_flags_are_refused = studies.refuses(
    LatentTruncation, ("--samples=1", "--samples"), ("--groups=1", "--groups")
)


def test_the_shipped_drawings_without_latents_are_one_a_class():
    pairs = load("quickdraw")
    still = pairs.rows(pairs.labels["models"] == "0")
    for kind in np.unique(still.labels["types"]):
        assert len(np.unique(still.outputs[still.labels["types"] == kind], axis=0)) == 1
    assert len(np.unique(still.outputs, axis=0)) == 50
    run = store.read_run(runner.COMMITTED / "latent_truncation", LatentTruncation)
    np.testing.assert_allclose(run.found.within.sel(setting=0), 1, rtol=1e-5)
    assert (run.found.within.mean("type").diff("setting") > 0).all()


def test_the_shipped_drawings_are_shown():
    (axes,) = by_temperature(("ant", "key"), ("0.1", "1")).axes
    assert {text.get_text() for text in axes.texts} >= {"ant", "key", "0.1", "1"}
    assert len(axes.get_lines()) >= 4
