"""The study of the temperature, on outputs whose modes are known."""

import numpy as np
import pytest
import studies
from small import small_run
from studies import execute

from experiments import recognition
from experiments.drawings import by_temperature
from experiments.sketch_temperature import GIVEN, SketchTemperature, rising

pytestmark = pytest.mark.slow

MODES = np.array([1, 2, 4])

finished = studies.finished(SketchTemperature)


def test_the_conditional_scores_count_the_modes_and_the_others_the_types(finished):
    assert finished.study.temperatures == ("0.1", "0.5", "1")
    for family in ("Vendi", "RKE"):
        for kind, wanted in {"Conditional-": MODES, "": 3 * MODES, "Information-": 3}.items():
            found = finished.found.value.sel(score=f"{kind}{family}", given=list(GIVEN))
            np.testing.assert_allclose(found / wanted, 1, rtol=0.01)


def test_types_parts_and_neighbours_of_the_known_outputs(finished):
    found = finished.found
    np.testing.assert_allclose(found.within.transpose(..., "model") / MODES, 1, rtol=0.01)
    assert (found.known == 1).all()
    assert (found.kept.sel(part="recognised") == 48).all()
    assert (found.kept.sel(part="ended") == 24).all()
    np.testing.assert_allclose(found.of_part.transpose(..., "model") / MODES, 1, rtol=0.01)
    assert (found.of_part_error > 0).all()
    assert rising(found.within.sel(given="types", scale=1)) == 3


def test_an_output_is_recognised_by_its_nearest_neighbour():
    outputs, types = np.array([[0.0], [1.0], [5.0], [1.4], [4.0]]), np.array([0, 0, 1, 1, 0])
    # Of the others, the nearest to 1.0 is 1.4 of the other type, to 5.0 it is 4.0.
    found = recognition.recognised(outputs, types)
    assert found.tolist() == [True, False, False, False, False]
    examples = np.array([[0.0], [1.1], [9.0], [6.0], [9.0]])
    found = recognition.recognised(outputs, types, examples)
    assert found.tolist() == [True, True, True, False, False]


@pytest.mark.filterwarnings("ignore:models. .* differ in the numbers of their outputs")
def test_every_option_matters(finished, tmp_path):
    """Prompts of one direction: given them all outputs differ, given the types only the modes."""
    flags = small_run(SketchTemperature, tmp_path, 0)
    alike = 1 + 0.02 * np.eye(3, dtype=np.float32)[np.arange(144) % 3]
    np.save(tmp_path / "t.npy", alike)
    options = ("--scales=1", "--samples=4", "--groups=3")
    flags = [flag for flag in flags if not flag.startswith("--ended")]
    run = execute(SketchTemperature, tmp_path, *flags, *options)
    assert run.study.samples == 4 and (run.found.n == 12).all()
    of_types = run.found.sel(given="types", scale=1)
    groups = [part.groups.item() for part in (of_types, finished.found.sel(given="types", scale=1))]
    assert groups == [3, 3]
    whole = run.found.value.sel(score="RKE")
    for given, told in {"prompts": 1, "types": 3}.items():
        values = run.found.value.sel(score="Conditional-RKE", given=given)
        np.testing.assert_allclose(values, whole.sel(given=given) / told, rtol=0.01)
    # Nothing is known of outputs that ended.
    assert (run.found.kept.sel(part="ended") == 0).all()
    assert np.isnan(of_types.of_part.sel(part="ended")).all()


def test_figures_and_tables_say_what_is_shown(finished):
    figures = SketchTemperature.figures([finished])
    # Drawings are of the shipped data alone.
    assert set(figures) == {"sketch_temperature", "sketch_temperature_types"}
    for figure in figures.values():
        caption = figure._supxlabel.get_text().replace("\n", " ")
        for words in ("16 outputs of each of 3 types", "seed 0", "95%", "given"):
            assert words in caption
    curves = figures["sketch_temperature"].axes
    title = curves[0].get_title()
    assert title.startswith("given the prompts (x 1):\nConditional-Vendi rises by 29")
    assert {text.get_text() for text in curves[1].texts} == {"4"}
    titles = [axes.get_title() for axes in figures["sketch_temperature_types"].axes]
    assert "RKE of each type: 3 of 3 rise" in titles
    scores, parts, within, known = finished.study.tables(finished)
    assert {*parts.columns[2].cells} == {"recognised", "ended"}
    assert within.row_count == 2 and known.row_count == 2
    assert next(scores.columns[3].cells).startswith("1.0")


@pytest.mark.parametrize(
    ("role", "labels", "message"),
    [
        ("models", ["0.1", "warm"], "--models: expected settings of a knob, numbers: .*'warm'"),
        ("models", ["0.1", "nan"], "--models: expected settings of a knob, numbers, received nan"),
        ("models", ["0.1", "0.10"], "--models: expected at least two settings, received 0.1"),
        ("types", ["a", "a"], "--types: expected at least two types, received a"),
        ("ended", [0, 2], "--ended: expected 0 or 1"),
    ],
)
def test_labels_that_mean_nothing_are_refused(tmp_path, role, labels, message):
    flags = small_run(SketchTemperature, tmp_path, 0)
    np.save(tmp_path / "labels.npy", np.resize(labels, 144))
    with pytest.raises(ValueError, match=message):
        execute(SketchTemperature, tmp_path, *flags, f"--{role}={tmp_path / 'labels.npy'}")


test_bad_flags_are_refused = studies.refuses(
    SketchTemperature,
    ("--samples=17", "--samples: received 17, but there are 16 of the type kind 0 at 0"),
    ("--samples=1", "--samples"),
    ("--groups=1", "--groups"),
)


def test_shipped_drawings_are_shown():
    (axes,) = by_temperature(("ant", "key"), ("0.1", "1")).axes
    assert {text.get_text() for text in axes.texts} >= {"ant", "key", "0.1", "1"}
    assert len(axes.get_lines()) >= 4
