"""Mixtures whose scores are known."""

import numpy as np
import pytest
import studies
from oracles import gaussian_gram, scores
from small import flags
from studies import execute

from experiments.conditional_vendi import gmm_toy
from experiments.conditional_vendi.gmm_toy import GEOMETRY, PRINTED, GmmToy
from experiments.generators.mixtures2d import Geometry, draw_pairs
from experiments.lab import runner

pytestmark = pytest.mark.slow


def small(folder, seed):
    return flags(n=24, repeats=2, prompt_modes="1,2,4", output_modes="2,4,6")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Components so far apart and so narrow that each is one mode."""
    narrow = {modes: 1e-3 for modes in (1, 2, 4)}, {modes: 1e-3 for modes in (2, 4, 6)}
    folder = tmp_path_factory.mktemp("gmm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gmm_toy, "GEOMETRY", Geometry(20.0, *narrow))
        return execute(GmmToy, folder, *small(folder, 0))


test_bad_flags_are_refused = studies.refuses(
    GmmToy,
    ("--scales=2", "--scales: expected 1 among them"),
    ("--n=1", "--n: expected at least one pair a mode"),
)


def test_scores_are_those_of_the_pairs_of_the_fitted_geometry(tmp_path):
    flags = ("--prompt_modes=2", "--output_modes=3", "--n=30", "--bandwidth=0.5", "--scales=1,3")
    found = execute(GmmToy, tmp_path, *flags, "--repeats=2", "--seed=3").found
    found = found.sel(prompts=2, outputs=3)
    pairs = draw_pairs(GEOMETRY.outputs(3), GEOMETRY.prompts(2), runner.cell_key(3, "2-3-1"), 30)
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
    facts = GmmToy.facts([finished])
    assert facts["mean"]("Conditional-Vendi", prompts=1) == pytest.approx(4, abs=0.01)
    assert facts["farthest"] == pytest.approx(4 / PRINTED[1, 4][0] - 1, abs=0.01)
