"""The README's picture shows what it claims of its two models."""

import pathlib

import numpy as np
import precision
import pytest

from experiments import idea

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawn():
    with precision.optimised():
        return idea.draw()


def test_models_are_equally_diverse_for_opposite_reasons(drawn):
    follows, ignores = (drawn[1][name] for name in "AB")
    assert abs(follows.vendi - ignores.vendi) < 0.1
    assert 1.0 < follows.conditional < 1.1
    assert 3.7 < follows.information < 4.0
    assert 3.9 < ignores.conditional < 4.2
    assert 0.99 < ignores.information < 1.03


def test_bars_are_the_scores(drawn):
    figure, found = drawn
    bars = figure.axes[2]
    widths = [bar.get_width() for bar in bars.patches]
    wanted = [getattr(scores, name) for scores in found.values() for name in idea._SCORES]
    np.testing.assert_allclose(widths, np.array(wanted, float), rtol=1e-5)
    written = {text.get_text() for text in bars.texts}
    assert written >= {f"{width:.2f}" for width in widths}


def test_outputs_have_the_colours_of_their_prompts(drawn):
    kinds, _, models = idea.toy()
    for axes, outputs in zip(drawn[0].axes, models.values(), strict=False):
        points = axes.collections[-1]
        shown = len(points.get_offsets())
        np.testing.assert_allclose(points.get_offsets(), outputs[:shown])
        _, colours = np.unique(points.get_facecolors(), axis=0, return_inverse=True)
        assert len(np.unique(np.stack([colours.ravel(), kinds[:shown]]), axis=1).T) == 4


def test_picture_is_in_the_readme():
    assert "(figures/idea.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
