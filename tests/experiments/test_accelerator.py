"""The measurement of one device: what a row says, and what is refused."""

import numpy as np
import pytest

from experiments.cost import accelerator
from experiments.cost.scaling import engines, points


@pytest.fixture
def cell(tmp_path):
    points.write_mixture(tmp_path, "mixture", 200, (16, 12), seed=0)
    outputs, prompts = points.paths(tmp_path, "mixture")
    given = {"outputs": outputs, "prompts": prompts, "n": 200, "bandwidths": [0.7, 0.7]}
    return given | {"rtol": 0.01}


def test_a_row_has_times_their_share_of_the_arithmetic_and_the_error(cell):
    program = accelerator.Program(engines.tile_norms, (200,), lambda n: n**2)
    first, seconds, cpu, beside, error, scores = accelerator.measure(program, cell, 0.0, rate=4e9)
    assert float(first) >= 0 and float(seconds) > 0 and float(cpu) >= 0
    assert float(beside) == pytest.approx(float(seconds) * 4e9 / 200**2, rel=0.01, abs=0.01)
    assert 0 <= float(error) < 1e-6
    assert scores == ""


def test_a_wrong_norm_is_an_error(cell):
    truth = accelerator.reference.norms(cell)
    right = truth.read(truth.ready(0)())
    assert accelerator._error(right, cell) == 0
    assert accelerator._error(right | {"joint": 1.01 * right["joint"]}, cell) == pytest.approx(0.01)


def test_a_row_of_order_1_has_scores_and_no_share(cell):
    program = accelerator.Program(accelerator._by("auto"), (200,))
    *_, beside, error, scores = accelerator.measure(program, cell, 0.0, rate=1.0)
    assert (beside, error) == ("", "")
    assert [score.split()[0] for score in scores.split("; ")] == [
        "vendi",
        "conditional",
        "information",
    ]
    values = [float(score.split()[1]) for score in scores.split("; ")]
    assert values[1] * values[2] == pytest.approx(values[0], rel=1e-2)
    assert np.min(values) >= 1


def test_a_program_that_cannot_run_is_a_row_that_says_why(monkeypatch, capsys):
    def refuse(cell):
        raise ValueError("there is no room")

    known = {"one": accelerator.Program(refuse, (100, 200))}
    monkeypatch.setattr(accelerator, "PROGRAMS", known)
    monkeypatch.setattr(accelerator, "_rate", lambda: 1e12)
    accelerator.main(["accelerator", "--n=100"])
    rows = capsys.readouterr().out.strip().splitlines()
    assert rows[-1] == "| one | 100 |  |  |  |  |  | there is no room |"
    with pytest.raises(ValueError, match="no program is one of --programs=two and --n: one"):
        accelerator.main(["accelerator", "--programs=two"])


_EMOJI = pytest.param(accelerator._EMOJI, marks=pytest.mark.slow)


@pytest.mark.parametrize("data", ["mixture", accelerator._FEW, _EMOJI])
def test_points_are_written_with_their_bandwidths(tmp_path, data):
    cell = accelerator.write(tmp_path, data, 30)
    outputs, prompts = (np.load(cell[role]) for role in ("outputs", "prompts"))
    wanted = (768, 512) if data == "mixture" else (64, 48)
    assert outputs.shape == (30, wanted[0]) and prompts.shape == (30, wanted[1])
    assert len(np.unique(outputs, axis=0)) == 30
    assert (cell["bandwidths"] == [0.7, 0.7]) == data.startswith("mixture")
