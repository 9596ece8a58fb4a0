"""What one output to each prompt says: the truth, other constants and other methods."""

import numpy as np
import pytest
import studies
import xarray as xr
from small import flags

from condvendi_jax.statistics import asked_once as statistics
from experiments.calibration import asked_once as reports
from experiments.calibration import asked_once_methods as methods
from experiments.calibration.asked_once import AskedOnce, papers_scores, said
from experiments.calibration.asked_once_methods import Outputs
from experiments.data import PairedEmbeddings

WIDTHS = [0.1, 0.8, 1.6]


def small(folder, seed):
    return flags(families="video,stories", draws=2, tried=1, scored=1, seed=seed)


run = studies.finished(AskedOnce)
test_families_without_repeated_prompts_are_refused = studies.refuses(
    AskedOnce, ("--families=language", "none of .* has repeated prompts")
)


def smooth(count=100, each=3, columns=2, groups=None):
    """Outputs that move with their prompts, and scatter."""
    rng = np.random.default_rng(1)
    prompts = np.repeat(rng.normal(size=(count, columns)), each, axis=0).astype(np.float32)
    outputs = 0.8 * prompts[:, :2] + 0.25 * rng.normal(size=(count * each, 2)).astype(np.float32)
    starts = np.arange(0, count * each + 1, each)
    return Outputs(outputs, prompts[::each], starts, groups)


@pytest.mark.slow
def test_tables_have_a_row_for_each_set_family_and_choice(run):
    tables = reports.by_family(run, "set"), reports.by_family(run), reports.by_constants(run)
    assert [len(table) for table in tables] == [1 + 5 * 3, 1 + 3 * 3, 1 + 2 + 12]
    assert all(len({len(row) for row in table}) == 1 for table in tables)
    assert reports.judged(run.found).held.mean() > 0.9
    assert (run.found.total > run.found.total.sel(scale=2).max()).sel(scale=0.5).all()


def test_only_prompts_with_several_outputs_are_kept():
    numbers = np.array([2, 0, 2, 1, 0, 2])
    outputs, prompts = np.arange(6.0)[:, None], 10.0 * numbers[:, None]
    labels = {"prompt": numbers, "models": np.array(list("abcdef"))}
    kept = Outputs.of(PairedEmbeddings("set", outputs, prompts, "", labels), grouped=True)
    assert kept.outputs.ravel().tolist() == [1, 4, 0, 2, 5]
    assert kept.prompts.ravel().tolist() == [0, 20] and kept.starts.tolist() == [0, 2, 5]
    assert kept.groups is not None and kept.groups.tolist() == list("beacf")
    drawn = kept.drawn(np.random.default_rng(0), 200)
    assert set(drawn[:, 0]) == {0, 1} and set(drawn[:, 1]) == {2, 3, 4}


def test_the_truth_counts_each_prompt_once_and_no_output_with_itself():
    outputs = Outputs(np.array([[0.0], [1], [1], [0], [2]]), np.eye(2), np.array([0, 3, 5]))
    expected = [(np.exp(-1 / s**2) * 2 + 1) / 6 + np.exp(-4 / s**2) / 2 for s in WIDTHS]
    np.testing.assert_allclose(outputs.similarity(WIDTHS), expected)


@pytest.mark.parametrize("columns", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_librarys_constants_decide_as_the_library(columns, monkeypatch):
    """Where outputs and prompts have one space, and where they have none in common.

    No prompts of a shipped set are so close that a flat curve says something.
    """
    monkeypatch.setattr(statistics, "CLOSE", 0.0)
    outputs = smooth(columns=columns)
    drawn = outputs.drawn(np.random.default_rng(0), 2)
    found = methods.tried(outputs, drawn, WIDTHS)
    of = methods.decided(found).sel(methods.OWN)
    told = np.array([[said(outputs, rows, width) for rows in drawn] for width in WIDTHS])
    assert (of.given == (told[..., 0] == 0)).all() and 0 < of.given.mean() < 1
    np.testing.assert_allclose(1 / of.low, told[..., 4], rtol=1e-4)
    np.testing.assert_allclose((1 / of.high).where(of.given), told[..., 2], rtol=1e-4)
    np.testing.assert_allclose(1 / found.far, told[..., 5], rtol=1e-4)


def test_every_constant_changes_what_is_decided():
    outputs = smooth()
    drawn = outputs.drawn(np.random.default_rng(0), 3)
    found = methods.tried(outputs, drawn, WIDTHS)
    found = found.assign(far=0.99 * found.near_low)  # So that little of the rise was seen.
    found = methods.decided(found)
    for name, values in methods.GRID.items():
        choices = [found.sel({**methods.OWN, name: value}) for value in values]
        one, *others = [of.high.where(of.given, 0) for of in choices]
        assert any(not np.array_equal(one, other) for other in others), name


@pytest.mark.slow
def test_outputs_of_one_label_are_not_compared():
    labels = np.tile(np.repeat([0, 1], 3), 50)
    plain, grouped = said(smooth(), np.arange(0, 300, 3), 0.8), None
    grouped = said(smooth(groups=labels), np.arange(0, 300, 3), 0.8)
    assert plain[4:] != grouped[4:]


@pytest.mark.slow
def test_papers_scores_keep_the_rules_prompt_kernel():
    """Of the prompts alone, so that it is the same for all draws."""
    outputs = smooth()
    drawn = outputs.drawn(np.random.default_rng(0), 2)
    both = papers_scores(outputs, drawn, [0.4, 0.8])
    for place, rows in enumerate(drawn):
        np.testing.assert_allclose(papers_scores(outputs, rows[None], [0.8])[0], both[1][place])


def test_other_methods_read_known_similarities():
    """Outputs to near prompts are equal, to others far apart: all methods say one."""
    places = np.repeat(np.arange(6.0), 10)[:, None]
    prompts = 100 * places + np.random.default_rng(0).uniform(size=(60, 1))
    outputs = Outputs(50 * places, prompts, np.arange(61))
    found = methods.read_outs(outputs, np.arange(60)[None], 1.0)
    np.testing.assert_allclose(found[0][:2], 1)
    assert found[0][2] > 0.95


def test_sets_are_split_alternately_in_each_family():
    names = ["human: a", "human: c", "human: b", "video: x", "sketches: 2", "sketches: 1", "emoji"]
    found = xr.Dataset({"truth": ("set", np.ones(7))}, {"set": names})
    one, two = ([str(k) for k in half.set.values] for half in reports.halves(found))
    assert one == ["human: a", "human: c", "sketches: 1", "video: x"]
    assert two == ["human: b", "sketches: 2"]


def test_constants_are_chosen_that_hold():
    """One error more would lose nothing, one less would miss the truth."""
    axes = {name: methods.GRID[name] for name in ("neighbours", "narrow", "line")}
    values = {"near": 0.42, "near_low": 0.4, "at_least": 0.4, "far": 0.1}
    values |= {"zero": 0.45, "zero_error": 0.02, "truth": 0.48}
    dims = {name: ("set", "scale", "tried") for name in values}
    dims |= {name: (*axes, *dims["far"]) for name in ("zero", "zero_error")}
    dims |= {name: (*list(axes)[:2], *dims["far"]) for name in ("near", "near_low", "at_least")}
    dims["truth"] = ("set", "scale")
    sizes = {name: len(of) for name, of in axes.items()} | {"set": 1, "scale": 1, "tried": 4}
    found = xr.Dataset(
        {k: (dims[k], np.full([sizes[d] for d in dims[k]], of)) for k, of in values.items()}, axes
    )
    of = reports.reached(found)
    best = reports.best_choice(of)
    assert of.sel({**best, "errors": 1}).holds == 0
    assert best["errors"] == 2 and best["neighbours"] == min(axes["neighbours"])
