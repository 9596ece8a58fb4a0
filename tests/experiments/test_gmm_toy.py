"""Mixtures whose scores are known, and the search for the paper's geometry."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from oracles import gaussian_gram
from small import small_run
from studies import execute

from experiments import gmm_search, gmm_toy
from experiments.generators.mixtures2d import Geometry, draw_pairs
from experiments.lab import runner, store

pytestmark = pytest.mark.slow

STUDY = gmm_toy.STUDY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gmm")
    return execute(STUDY, folder, *small_run(STUDY, folder, 0))


def test_separate_points_have_the_scores_of_counting(finished):
    """Prompts of k points and outputs of m: the model adds m / k, the prompt says k of them."""
    expected = {(1, 4): (4, 1), (2, 4): (2, 2), (4, 4): (1, 4), (2, 2): (1, 2), (2, 6): (3, 2)}
    for panel, scores in expected.items():
        found = gmm_toy.scores(finished, *panel)
        assert found.shape == (2, 3, 2, 2)
        np.testing.assert_allclose(found, np.broadcast_to(scores, found.shape), rtol=1e-3)


def test_scores_are_those_of_the_pairs(tmp_path):
    geometry = Geometry("polygon", 1.0, (0.5, 0.4, 0.3), (0.3, 0.25, 0.2), "squared")
    path = tmp_path / "geometry.json"
    path.write_text(json.dumps(dataclasses.asdict(geometry)))
    flags = [f"--geometry={path}", "--n=30", "--repeats=2", "--bandwidth=0.5", "--scales=1,3"]
    run = execute(STUDY, tmp_path, *flags, "--prompt_modes=2", "--output_modes=3", "--seed=3")
    cell = gmm_toy.Cell(2, 3, 1)
    key = runner.cell_key(3, "2-3-1")
    pairs = draw_pairs(geometry.outputs(3), geometry.prompts(2), key, 30, "squared")
    for at, width in enumerate((0.5, 1.5)):
        k_x, k_t = (gaussian_gram(points, width) for points in (pairs.outputs, pairs.prompts))
        spectra = [np.linalg.eigvalsh(k / 30) for k in (k_x, k_t, k_x * k_t)]
        for index, entropy in enumerate((shannon, collision)):
            h_x, h_t, h_joint = map(entropy, spectra)
            expected = np.exp([h_joint - h_t, h_x + h_t - h_joint])
            np.testing.assert_allclose(run.results[cell].scores[at, index], expected, rtol=1e-4)
    first = run.results[gmm_toy.Cell(2, 3, 0)]
    assert first.points.shape == (30, 2, 2)
    assert set(first.modes[:, 0]) == {0, 1, 2}
    assert not len(run.results[cell].points)


def shannon(values):
    kept = values[values > 1e-12]
    return -np.sum(kept * np.log(kept))


def collision(values):
    return -np.log(np.sum(values**2))


def test_the_row_of_the_table_that_is_printed_says_so(tmp_path, finished):
    columns = [list(column.cells) for column in gmm_toy.table(finished).columns]
    assert "2.46, 3.42" in columns[-1]
    assert columns[-1].count("") == len(columns[-1]) - 4  # Printed at one bandwidth only.
    figures = gmm_toy.draw([finished])
    titles = [axes.get_title() for axes in figures["gmm_toy"].axes]
    assert any("X: 6 modes\nConditional-Vendi 3.00 ± 0.00 [2.46]" in title for title in titles)
    assert "2 draws" in figures["gmm_toy_curves"]._supxlabel.get_text().replace("\n", " ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--prompt_modes=2,1",), "--prompt_modes: expected ascending numbers from 1"),
        (("--output_modes=0,1",), "--output_modes: expected ascending numbers from 1"),
        (("--shown=7",), "--shown: expected some of --output_modes"),
        (("--scales=2",), "--scales: expected 1 among them, received 2"),
        (("--bandwidth=0",), "--bandwidth: expected a positive number"),
        (("--n=0",), "--n"),
        (("--n=1",), "--n: expected at least one pair a mode"),
        (("--repeats=0",), "--repeats"),
        (("--geometry=missing.json",), "--geometry: missing.json: expected layout"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message) as caught:
        execute(STUDY, tmp_path, *small_run(STUDY, tmp_path, 0), *flags)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [{"layout": "star"}, {"weight": "cubed"}, {"extent": -1.0}, {"prompt_spreads": [1.0]}],
)
def test_a_file_that_is_no_geometry_is_refused(tmp_path, changed):
    small_run(STUDY, tmp_path, 0)
    path = tmp_path / "geometry.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ValueError, match=r"--geometry: .*geometry\.json: expected layout"):
        gmm_toy.read_geometry(str(path))


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return execute(gmm_search.STUDY, folder, *small_run(gmm_search.STUDY, folder, 0))


def test_the_search_meets_scores_that_a_geometry_has(search):
    cell = gmm_search.Cell("polygon", "distance", "power")
    judged = gmm_search.judge(search.results[cell], search.settings.printed)
    assert judged.worst < 0.12  # Of 60 points: another draw differs by as much.
    assert gmm_search.nearest(search) in [fit.geometry for fit in search.results.values()]
    fit = search.results[cell]
    assert fit.trials > 10
    first, second, _ = fit.geometry.prompt_spreads
    power = np.log(first / second) / np.log(2)
    assert fit.geometry.outputs(2).spread / fit.geometry.outputs(4).spread == pytest.approx(
        2**power, rel=1e-4
    )
    # A spread weighs on the scores; where centres are that are far apart does not.
    assert judged.widths[1] < 1 < judged.widths[0]


def test_a_family_of_one_spread_has_one(search):
    fit = search.results[gmm_search.Cell("polygon", "distance", "one")]
    assert len(set(fit.geometry.prompt_spreads)) == len(set(fit.geometry.output_spreads)) == 1


def test_what_is_judged_is_the_mean_of_the_draws():
    geometry = Geometry("line", 1.0, (1.0,) * 3, (1.0,) * 3, "distance")
    scores = np.array([[[2.0, 3.0]], [[2.2, 2.8]]])
    sensitivity = np.array([[2.0, 0.0], [0.0, 0.5]])
    fit = gmm_search.Fit(geometry, 1, scores, sensitivity)
    judged = gmm_search.judge(fit, [gmm_search.Panel(1, 4, 2.0, 3.0)])
    np.testing.assert_allclose(judged.deviations, [[0.05, -1 / 30]])
    np.testing.assert_allclose(judged.errors, [[0.05, 1 / 30]])
    np.testing.assert_allclose(judged.widths, [0.03 / 2, 0.03 / 0.5])


def test_the_last_step_makes_the_largest_residual_least():
    """Of r + J d over a box: two residuals meet, or the box ends the step."""
    step = gmm_search._least_worst(np.array([0.05, -0.01]), np.array([[1.0], [1.0]]))
    assert step == pytest.approx([-0.02])
    step = gmm_search._least_worst(np.array([0.5]), np.array([[1.0, 0.0]]))
    assert step[0] == pytest.approx(-0.08)


def test_scores_of_a_panel_are_of_its_mixtures():
    geometry = Geometry("polygon", 20.0, (1e-3,) * 3, (1e-3,) * 3, "distance")
    panel = gmm_search.Panel(2, 4, 1.0, 1.0)
    found = gmm_search.log_scores(geometry, panel, n=24, seed=0, bandwidth=0.6)
    np.testing.assert_allclose(found, np.log([2, 2]), atol=1e-3)


@pytest.mark.parametrize(
    "content", ["{", "[]", '[{"prompts": 1}]',
    '[{"prompts": 1, "outputs": 5, "conditional": 1, "information": 1}]',
    '[{"prompts": 1, "outputs": 4, "conditional": 0, "information": 1}]'],
)  # fmt: skip
def test_scores_that_no_panel_has_are_refused(tmp_path, content):
    path = tmp_path / "printed.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"--printed: .*printed\.json: expected a list"):
        gmm_search.read_printed(str(path))


def test_the_committed_search_is_of_the_paper():
    assert gmm_toy.read_geometry(None) in [
        fit.geometry
        for fit in store.read_run(
            runner.COMMITTED / "gmm_search", gmm_search.STUDY
        ).results.values()
    ]
    assert jax.tree.all(jax.tree.map(np.isfinite, gmm_toy.read_geometry(None).extent))
