"""The README's picture shows what it claims of its two models."""

from typing import Any

import numpy as np
import precision
import pytest

from experiments.conditional_vendi import idea


@pytest.mark.slow
def test_models_are_equally_diverse_for_opposite_reasons_and_bars_say_so():
    with precision.optimised():
        figure, found = idea.draw()
    follows, ignores = found["A"], found["B"]
    assert abs(follows.vendi - ignores.vendi) < 0.1
    assert 1.0 < follows.conditional < 1.1
    assert 3.7 < follows.information < 4.0
    assert 3.9 < ignores.conditional < 4.2
    assert 0.99 < ignores.information < 1.03
    bars: Any = figure.axes[2]
    widths = [bar.get_width() for bar in bars.patches]
    wanted = [getattr(scores, name) for scores in found.values() for name in idea._SCORES]
    np.testing.assert_allclose(widths, np.array(wanted, float), rtol=1e-5)
    assert {text.get_text() for text in bars.texts} >= {f"{width:.2f}" for width in widths}
