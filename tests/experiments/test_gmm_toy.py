"""Mixtures whose scores are known, and the search for the paper's geometry."""

import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from small import small_run
from studies import execute

from experiments.conditional_vendi import gmm_search, gmm_toy
from experiments.conditional_vendi.gmm_search import GmmSearch, Panel, nearest
from experiments.conditional_vendi.gmm_toy import GmmToy
from experiments.generators.mixtures2d import Geometry, draw_pairs
from experiments.lab import runner

pytestmark = pytest.mark.slow

search = studies.finished(GmmSearch)


def toy(folder, geometry, *flags):
    """The run of the study with this geometry in the place of the committed search's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gmm_toy, "nearest", lambda run: geometry)
        return execute(GmmToy, folder, *small_run(GmmToy, folder), *flags)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Components so far apart and so narrow that each is one mode."""
    geometry = Geometry("columns", 20.0, (1e-3,) * 3, (1e-3,) * 3, "distance")
    return toy(tmp_path_factory.mktemp("gmm"), geometry)


test_bad_flags_are_refused = studies.refuses(
    GmmToy,
    ("--output_modes=0,1", "--output_modes: expected a number at least 1, received 0"),
    ("--scales=2", "--scales: expected 1 among them"),
    ("--bandwidth=0", "--bandwidth: expected a number above 0"),
    ("--n=1", "--n: expected at least one pair a mode"),
    ("--repeats=0", "--repeats"),
)


def test_scores_are_those_of_the_pairs(tmp_path):
    geometry = Geometry("polygon", 1.0, (0.5, 0.4, 0.3), (0.3, 0.25, 0.2), "squared")
    modes = ("--prompt_modes=2", "--output_modes=3")
    run = toy(tmp_path, geometry, *modes, "--n=30", "--bandwidth=0.5", "--scales=1,3", "--seed=3")
    found = run.found.sel(prompts=2, outputs=3)
    key = runner.cell_key(3, "2-3-1")
    pairs = draw_pairs(geometry.outputs(3), geometry.prompts(2), key, 30, "squared")
    for scale, width in ((1, 0.5), (3, 1.5)):
        grams = [gaussian_gram(points, width) for points in (pairs.outputs, pairs.prompts)]
        known = [scores(*grams, order=order) for order in (1, 2)]
        expected = [of[score] for of in known for score in ("conditional", "information")]
        np.testing.assert_allclose(found.value.sel(repeat=1, scale=scale), expected, rtol=1e-4)
    first = found.sel(repeat=0)
    assert first.point.shape == (30, 2, 2)
    assert set(first["mode"].sel(role="outputs").values) == {0, 1, 2}
    assert found.point.sel(repeat=1).isnull().all()


def test_what_is_printed_stands_beside_the_scores_of_its_bandwidth(finished):
    (grid,) = finished.study.tables(finished)
    rows = list(zip(*(column.cells for column in grid.columns), strict=True))
    (row,) = (row for row in rows if row[:3] == ("1", "outputs", "6"))
    assert row[3].startswith("3 ± ") and row[3].endswith(" [2.46]")
    assert row[4].startswith("2 ± ") and row[4].endswith(" [3.42]")
    assert sum("[" in cell for row in rows for cell in row) == 8  # At one bandwidth only.
    figures = GmmToy.figures([finished])
    above, below = figures["gmm_toy"].subfigs
    assert "X: 6\nConditional-Vendi 3.00 [2.46]" in below.axes[2].get_title()
    assert "prompts: Conditional-Vendi falls from 4.00 to 1.00" in above.get_suptitle()
    assert "2 draws" in figures["gmm_toy_curves"].get_supxlabel()


def test_a_fit_is_judged_by_its_own_scores(search):
    fit = search.found.sel(layout="polygon", weight="distance", spreads="own")
    # Of 60 points: another draw differs by as much.
    assert gmm_search.off(fit, gmm_search.PRINTED).max() < 0.2
    # A spread weighs on the scores; where centres are that are far apart does not.
    widths = gmm_search.widths(fit)
    assert widths.sel(parameter="outputs 2") < 0.1 < widths.sel(parameter="extent")
    one = search.found.geometry.sel(layout="polygon", weight="distance", spreads="one")
    assert len(set(one[1:4].values)) == len(set(one[4:].values)) == 1


def test_the_nearest_family_comes_first_in_the_table_and_is_named_in_the_title(search):
    off = 100 * gmm_search.off(search.found, search.study.panels)
    worst = off.max(("panel", "score")).sel(layout="polygon", weight="distance")
    best = worst.idxmin("spreads").item()
    grid, sharp = search.study.tables(search)
    assert len(sharp.rows) == 1  # Where each mixture has a spread of its own.
    first = [next(iter(column.cells)) for column in grid.columns]
    assert first[:2] == [f"polygon, distance, {best}", f"{worst.min().item():.3g}"]
    numbers = search.found.geometry.sel(layout="polygon", weight="distance", spreads=best)
    known = gmm_search.geometry_of("polygon", "distance", numbers.values)
    assert nearest(search) == known
    (figure,) = GmmSearch.figures([search]).values()
    for panel, spreads in zip(figure.axes, ("one", "own"), strict=True):
        assert f"{worst.sel(spreads=spreads).item():.2g}% off at best" in panel.get_title()


def test_what_is_judged_is_the_mean_of_the_draws():
    axes = {"value": ("draw", "panel", "score"), "sensitivity": ("panel", "score", "parameter")}
    scores = np.array([[[2.0, 3.0]], [[2.2, 2.8]]])
    sensitivity = np.array([[[2.0, 0.0], [0.0, 0.5]]])
    fit = xr.Dataset({k: (axes[k], of) for k, of in zip(axes, (scores, sensitivity), strict=True)})
    fit = fit.assign_coords(parameter=["extent", "prompts"])
    np.testing.assert_allclose(gmm_search.off(fit, [Panel(1, 4, 2.0, 3.0)]), [[0.05, 1 / 30]])
    np.testing.assert_allclose(gmm_search.widths(fit), [0.03 / 2, 0.03 / 0.5])


def test_scores_of_a_panel_are_of_its_mixtures():
    geometry = Geometry("polygon", 20.0, (1e-3,) * 3, (1e-3,) * 3, "distance")
    found = gmm_search.log_scores(geometry, Panel(1, 4, 1.0, 1.0), n=24, seed=0, bandwidth=0.6)
    np.testing.assert_allclose(found, np.log([4, 1]), atol=1e-3)


def test_the_geometry_is_that_of_the_committed_search():
    settings = GmmToy().prepare(None, 0).study
    assert settings.fitted.layout == "columns"
    assert settings.fitted.extent == pytest.approx(1.7497, rel=1e-4)
    assert "nearest of gmm_search" in settings.description
