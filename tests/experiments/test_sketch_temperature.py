"""The study of the temperature, on outputs whose modes are known."""

import numpy as np
import pytest
from small import small_run
from studies import execute

from experiments import recognition
from experiments.sketch_temperature import GIVEN, SketchTemperature, _drawings, rising

pytestmark = pytest.mark.slow

MODES = np.array([1, 2, 4])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    flags = small_run(SketchTemperature, folder, 0)
    return flags, execute(SketchTemperature, folder, *flags)


def values(run, name, given):
    return run.found.value.sel(score=name, given=given, scale=1)


def test_the_conditional_scores_count_the_modes_and_the_others_the_types(small):
    _, run = small
    assert run.study.temperatures == ("0.1", "0.5", "1")
    for family in ("Vendi", "RKE"):
        for kind, wanted in {"Conditional-": MODES, "": 3 * MODES, "Information-": 3}.items():
            found = run.found.value.sel(score=f"{kind}{family}", given=list(GIVEN))
            np.testing.assert_allclose(found / wanted, 1, rtol=0.01)
    p_values = run.found.p_value.sel(given="prompts", scale=1)
    for lower, higher in (("0.1", "0.5"), ("0.5", "1")):
        step = p_values.sel(model=higher, other=lower)
        assert step.sel(score="Conditional-Vendi") < 0.05 < step.sel(score="Information-Vendi")


def test_prompts_may_say_less_than_the_types(small, tmp_path):
    """Prompts of one direction: given them all outputs differ, given the types only the modes."""
    flags, _ = small
    np.save(
        tmp_path / "t.npy",
        (np.ones((144, 3)) + 0.02 * np.eye(3)[np.arange(144) % 3]).astype(np.float32),
    )
    run = execute(SketchTemperature, tmp_path, *flags, f"--prompts={tmp_path / 't.npy'}")
    np.testing.assert_allclose(values(run, "Conditional-RKE", "prompts"), 3 * MODES, rtol=0.01)
    np.testing.assert_allclose(values(run, "Conditional-RKE", "types"), MODES, rtol=0.01)


def test_types_parts_and_neighbours_of_the_known_outputs(small):
    _, run = small
    found = run.found
    np.testing.assert_allclose(found.within.transpose(..., "model") / MODES, 1, rtol=0.01)
    assert (found.known == 1).all()
    assert (found.kept.sel(part="recognised") == 48).all() and (
        found.kept.sel(part="ended") == 24
    ).all()
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


def test_parts_have_as_many_of_a_type_at_every_temperature():
    part = np.array([[1, 1, 1, 0, 1, 0], [0, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]], bool)
    types = np.array([0, 0, 0, 1, 1, 2])
    rows = recognition.balanced(part, types)
    assert [found.tolist() for found in rows] == [[0, 1], [1, 2], [0, 1]]
    part[2, 4] = True
    assert [found.tolist() for found in recognition.balanced(part, types)] == [
        [0, 1, 4],
        [1, 2, 3],
        [0, 1, 4],
    ]


def test_every_option_matters(small, tmp_path):
    flags, run = small
    once = [flag for flag in flags if "scales" not in flag and "groups" not in flag]
    fewer = execute(
        SketchTemperature, tmp_path / "a", *once, "--scales=1", "--samples=4", "--groups=3"
    )
    assert fewer.study.samples == 4 and (fewer.found.n == 12).all()
    groups = [r.found.groups.sel(given="prompts", scale=1).item() for r in (fewer, run)]
    assert groups == [3, 6]
    without = [flag for flag in once if not flag.startswith("--ended")]
    found = execute(SketchTemperature, tmp_path / "b", *without, "--scales=1").found
    parts = found.sel(given="types", scale=1).of_part
    assert (found.kept.sel(part="ended") == 0).all() and np.isnan(parts.sel(part="ended")).all()
    whole = run.found.sel(given="types", scale=1).of_part
    np.testing.assert_array_equal(parts.sel(part="recognised"), whole.sel(part="recognised"))


def test_figures_and_tables_say_what_is_shown(small):
    _, run = small
    figures = SketchTemperature.figures([run])
    # Drawings are of the shipped data alone.
    assert set(figures) == {"sketch_temperature", "sketch_temperature_types"}
    for figure in figures.values():
        caption = figure._supxlabel.get_text().replace("\n", " ")
        for words in ("16 outputs of each of 3 types", "seed 0", "95%", "given"):
            assert words in caption
    titles = [axes.get_title() for axes in figures["sketch_temperature"].axes]
    assert titles[0].startswith("given the prompts (x 1):\nConditional-Vendi rises by 29")
    assert titles[6].startswith("given the types (x 1):\nInformation-Vendi ")
    titles = [axes.get_title() for axes in figures["sketch_temperature_types"].axes]
    assert "RKE of each type: 3 of 3 rise" in titles
    scores, parts, within, known = run.study.tables(run)
    assert {*parts.columns[2].cells} == {"recognised", "ended"}
    assert within.row_count == 2 and known.row_count == 2
    assert next(scores.columns[3].cells).startswith("1.0")


@pytest.mark.parametrize(
    ("role", "words", "message"),
    [
        ("models", ["0.1", "warm"], "--models: expected settings of a knob, numbers, received 'w"),
        ("models", ["0.1", "nan"], "--models: expected settings of a knob, numbers, received 'n"),
        ("models", ["0.1", "0.1"], "--models: expected at least two settings, received 0.1"),
        ("types", ["a", "a"], "--types: expected at least two types, received a"),
        ("ended", ["0", "2"], "--ended: expected 0 or 1"),
    ],
)
def test_labels_that_mean_nothing_are_refused(small, tmp_path, role, words, message):
    flags, _ = small
    np.save(tmp_path / "x.npy", np.resize(np.array(words), 144))
    if role == "ended":
        np.save(tmp_path / "x.npy", np.resize(np.array(words, int), 144))
    with pytest.raises(ValueError, match=message):
        execute(SketchTemperature, tmp_path, *flags, f"--{role}={tmp_path / 'x.npy'}")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--samples=17", "--samples: received 17, but there are 16 of the type kind 0 at 0"),
        ("--samples=1", "--samples"),
        ("--groups=1", "--groups"),
    ],
)
def test_bad_flags_are_refused(small, tmp_path, flag, message):
    flags, _ = small
    with pytest.raises(ValueError, match=message):
        execute(SketchTemperature, tmp_path, *flags, flag)


def test_shipped_drawings_are_shown():
    study = SketchTemperature(temperatures=("0.1", "1"), types=("ant", "key"), shown=True)
    (axes,) = _drawings(study).axes
    assert {text.get_text() for text in axes.texts} >= {"ant", "key", "0.1", "1"}
    assert len(axes.get_lines()) >= 4
