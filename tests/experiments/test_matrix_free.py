"""The measurement of order 1 without a stored matrix: its data, oracle and table."""

import numpy as np
import pytest

import condvendi_jax as cv
from experiments import matrix_free


@pytest.mark.parametrize("data", matrix_free.DATA)
def test_a_row_says_what_was_measured(data, monkeypatch):
    monkeypatch.setattr(matrix_free.engines, "_CPU_SIDE", 64)
    fields = matrix_free.measure(data, 600, 0.2, keys=1).split(" | ")
    assert fields[:2] == [data, "600"]
    assert fields[5].endswith(" of 3")
    assert len(fields) == 11
    points, bandwidths = matrix_free.draw(data, 600)
    kernel, other = map(cv.Gaussian, bandwidths)
    exact = cv.vendi(points[0], kernel=kernel)
    assert abs(float(fields[2].split()[0]) / exact - 1) < 0.4
    entropies = matrix_free.oracle(points, bandwidths)
    assert np.exp(entropies[0]) == pytest.approx(float(exact), rel=1e-3)
    found = cv.decompose(*points, output_kernel=kernel, prompt_kernel=other)
    conditional = np.exp(entropies[2] - entropies[1])
    assert conditional == pytest.approx(float(found.conditional), rel=1e-3)


def test_other_data_are_refused():
    with pytest.raises(ValueError, match="expected one of mixture, emoji-like"):
        matrix_free.main(["matrix_free", "--data=emoji"])
