"""The README's picture: what it claims of its two models, and that it is drawn."""

import pathlib

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import idea

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found():
    _, prompts, models = idea.toy()
    return idea.score(prompts, models)


def test_models_are_equally_diverse_for_opposite_reasons(found):
    follows, ignores = (found[0][name] for name in "AB")
    assert abs(follows.vendi - ignores.vendi) < 0.1
    assert 1.0 < follows.conditional < 1.1
    assert 3.7 < follows.information < 4.0
    assert 3.9 < ignores.conditional < 4.2
    assert 0.99 < ignores.information < 1.03


def test_scores_are_products(found):
    for scores in found[0].values():
        np.testing.assert_allclose(scores.vendi, scores.conditional * scores.information, rtol=1e-5)


def test_picture_shows_these_scores(found, tmp_path, monkeypatch):
    figures = []
    write = Figure.savefig

    def savefig(figure, *arguments, **named):
        figures.append(figure)
        write(figure, *arguments, **named)

    monkeypatch.setattr(Figure, "savefig", savefig)
    paths = idea.draw(tmp_path)
    assert [path.name for path in paths] == ["idea.png", "idea.pdf"]
    assert all(path.stat().st_size > 5000 for path in paths)
    bars = figures[0].axes[2]
    widths = [bar.get_width() for bar in bars.patches]
    wanted = [getattr(s, name) for s in found[0].values() for name in idea._SCORES]
    np.testing.assert_allclose(widths, np.array(wanted, float), rtol=1e-5)
    written = {text.get_text() for text in bars.texts}
    assert written >= {f"{width:.2f}" for width in widths}
    for bandwidth in found[1].values():
        assert f"{bandwidth:.2f} for" in figures[0].get_supxlabel()


def test_picture_is_in_the_readme():
    assert "(figures/idea.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
    for suffix in (".png", ".pdf"):
        assert (ROOT / "figures" / f"idea{suffix}").stat().st_size > 5000


def test_words_are_refused():
    with pytest.raises(ValueError, match="unexpected argument 'big'"):
        idea.main(["idea", "big"])
