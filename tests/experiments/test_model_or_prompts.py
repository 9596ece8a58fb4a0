"""CV figure 1 on photographs whose diversity, and what prompts explain of it, are known."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from small import flags, widths
from studies import execute

from experiments.conditional_vendi import model_or_prompts
from experiments.conditional_vendi.model_or_prompts import SETS, ModelOrPrompts
from experiments.data import PairedEmbeddings

pytestmark = pytest.mark.slow


def small(folder, seed):
    return flags(scales=1)


def loaded(name):
    """Ten breeds, alike within, and 24 wordings; ten scenes that the captions ask for."""
    n = 1010 if name == "captions" else 1400
    types, wording, scene = np.arange(n) // 140, np.arange(n) % 24, np.arange(n) % 10
    pictures = np.where(np.arange(n) < 1000, "dog", "other")
    labels = {"types": types, "wording": wording, "pictures": pictures}
    of = (scene, scene) if name == "captions" else (types, wording)
    outputs, prompts = (np.outer(kind, [9]).astype("f4") for kind in of)
    return PairedEmbeddings(name, outputs, prompts, "", labels)


def test_only_what_prompts_leave_open_is_conditional(tmp_path, monkeypatch):
    """Ten breeds for one prompt are 10 and 10; one breed 1 and 1; ten scenes about 10, and 1."""
    monkeypatch.setattr(model_or_prompts, "load", loaded)
    run = execute(ModelOrPrompts, tmp_path, *widths(0.5), "--scales=1")
    expected = zip(SETS, ([10, 10], [1, 1], [10, 1]), (1e-4, 1e-4, 0.2), strict=True)
    for name, values, rtol in expected:
        for scores in (["Vendi", "Conditional-Vendi"], ["RKE", "Conditional-RKE"]):
            found = run.found.value.sel(scale=1, set=name, score=scores)
            np.testing.assert_allclose(found, [values] * 10, rtol=rtol)


def test_draws_share_no_photograph_and_have_the_wordings_that_they_say():
    dogs, scenes = (loaded(name) for name in ("dogs", "captions"))
    for pairs in (dogs, scenes):
        pairs.outputs[:, 0] = np.arange(len(pairs))  # Their rows.
    drawn = list(model_or_prompts.draws(dogs, scenes.rows(np.arange(1000)), 0))
    rows = np.array([[outputs[:, 0] for outputs, _ in sets] for sets in drawn])
    assert rows.shape == (10, 3, 100)
    assert [len(np.unique(rows[:, kind])) for kind in range(3)] == [1000] * 3
    for (many, one, _), sets in zip(rows // 140, drawn, strict=True):
        assert np.bincount(many.astype(int)).tolist() == [10] * 10 and len(np.unique(one)) == 1
        assert len({*sets[0][0][:, 0], *sets[1][0][:, 0]}) == 200
        assert [len(np.unique(prompts, axis=0)) for _, prompts in sets] == [1, 10, 10]


def test_ratios_are_geometric_means_with_students_intervals():
    values = np.random.default_rng(0).uniform(1, 2, size=(5, 3))
    logs = np.log(values[:, 2] / values[:, 0])
    ends = stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs))
    found = model_or_prompts.ratios(xr.DataArray(values, {"draw": range(5), "set": list(SETS)}))
    np.testing.assert_allclose(found.sel(set=SETS[2]), np.exp([logs.mean(), *ends]))
