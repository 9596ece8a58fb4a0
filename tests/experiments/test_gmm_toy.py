"""Mixtures whose scores are known."""

from typing import Any

import jax
import numpy as np
import pytest
import studies
from oracles import gaussian_gram, scores
from small import flags
from studies import execute

from experiments.conditional_vendi.gmm_toy import SCORES, GmmToy, moves
from experiments.generators.mixtures2d import draw_pairs, mixture
from experiments.lab import runner

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Components so far apart and so narrow that each is one mode."""
    return flags(
        n=24, repeats=2, prompt_modes="1,2,4", output_modes="2,4,6", apart=40, spreads=1e-3
    )


finished = studies.finished(GmmToy)
test_bad_flags_are_refused = studies.refuses(
    GmmToy, ("--n=1", "--n: expected at least one pair a mode")
)


def test_scores_are_those_of_the_pairs_of_the_stated_geometry(tmp_path):
    flags = ("--prompt_modes=2", "--output_modes=3", "--n=30", "--bandwidth=0.5", "--spreads=0.3")
    found = execute(GmmToy, tmp_path, *flags, "--apart=2", "--repeats=2", "--seed=3").found
    found = found.sel(prompts=2, outputs=3, spread=0.3)
    cell: Any = "2-3-0.3"
    key = jax.random.split(runner.cell_key(3, cell), 2)[1]
    pairs = draw_pairs(mixture(3, 2.0, 0.3), mixture(2, 2.0, 0.3), key, 30)
    grams = [gaussian_gram(points, 0.5) for points in (pairs.outputs, pairs.prompts)]
    known = [scores(*grams, order=order) for order in (1, 2)]
    expected = [of[score] for of in known for score in ("conditional", "information")]
    np.testing.assert_allclose(found.value.sel(repeat=1), expected, rtol=1e-4)
    assert found.point.shape == (30, 2, 2)
    assert set(found["mode"].sel(role="outputs").values) == {0, 1, 2}


def test_modes_are_counted_and_trends_said(finished):
    conditional = GmmToy.facts([finished])["by"].value.sel(score=SCORES[0], spread=1e-3)
    np.testing.assert_allclose(
        conditional.sel(varied="prompts").dropna("modes"), [4, 2, 1], rtol=0.01
    )
    _, trends = finished.study.tables(finished)
    assert [*trends.columns[3].cells][0] == "4.00 to 1.00"
    assert moves(np.array([1.0, 3.0, 2.0])) == "1.00 to 2.00, up and down"
