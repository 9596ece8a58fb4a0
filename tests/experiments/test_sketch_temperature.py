"""The study of the temperature, on outputs whose modes are known."""

import dataclasses
import itertools

import numpy as np
import pytest
from small import small_run
from studies import execute

from experiments import sketch_temperature
from experiments.lab import models
from experiments.sketch_temperature import GIVEN, STUDY, Cell

pytestmark = pytest.mark.slow

MODES = np.array([1, 2, 4])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    flags = small_run(STUDY, folder, 0)
    return flags, execute(STUDY, folder, *flags)


def values(run, name, given="types", scale="1"):
    return run.results[Cell(given, scale)].values[models.NAMES.index(name)]


def test_the_conditional_scores_count_the_modes_and_the_others_the_types(small):
    _, run = small
    assert run.settings.temperatures == ("0.1", "0.5", "1.0")
    for (given, scale), family in itertools.product(
        itertools.product(GIVEN, ("1", "2")), ("Vendi", "RKE")
    ):
        for kind, wanted in {"Conditional-": MODES, "": 3 * MODES, "Information-": 3}.items():
            found = values(run, f"{kind}{family}", given, scale)
            np.testing.assert_allclose(found, wanted, rtol=0.01)
    found = run.results[Cell("prompts", "1")]
    assert sketch_temperature.steps(found, models.NAMES.index("Conditional-Vendi")) == (2, 0)
    assert sketch_temperature.steps(found, models.NAMES.index("Information-Vendi")) == (0, 0)


def test_prompts_may_say_less_than_the_types(small, tmp_path):
    """Prompts of one direction: given them all outputs differ, given the types only the modes."""
    flags, _ = small
    np.save(
        tmp_path / "t.npy",
        (np.ones((144, 3)) + 0.02 * np.eye(3)[np.arange(144) % 3]).astype(np.float32),
    )
    run = execute(STUDY, tmp_path, *flags, f"--prompts={tmp_path / 't.npy'}")
    np.testing.assert_allclose(values(run, "Conditional-RKE", "prompts"), 3 * MODES, rtol=0.01)
    np.testing.assert_allclose(values(run, "Conditional-RKE", "types"), MODES, rtol=0.01)


def test_types_parts_and_neighbours_of_the_known_outputs(small):
    _, run = small
    for found in run.results.values():
        np.testing.assert_allclose(found.by_type, np.tile(MODES, (3, 1)), rtol=0.01)
        assert (found.known == 1).all() and (found.alike == 1).all()
        assert found.kept.tolist() == [48, 24]
        np.testing.assert_allclose(found.of_kept[:, 0], np.tile(MODES, (2, 1)), rtol=0.01)
        assert (found.of_kept[:, 1] > 0).all()
    assert sketch_temperature.rising(run.results[Cell("types", "1")].by_type) == 3


def test_an_output_is_recognised_by_its_nearest_neighbour():
    outputs, types = np.array([[0.0], [1.0], [5.0], [1.4], [4.0]]), np.array([0, 0, 1, 1, 0])
    # Of the others, the nearest to 1.0 is 1.4 of the other type, to 5.0 it is 4.0.
    found = sketch_temperature.recognised(outputs, types)
    assert found.tolist() == [True, False, False, False, False]
    examples = np.array([[0.0], [1.1], [9.0], [6.0], [9.0]])
    found = sketch_temperature.recognised(outputs, types, examples)
    assert found.tolist() == [True, True, True, False, False]


def test_parts_have_as_many_of_a_type_at_every_temperature():
    part = np.array([[1, 1, 1, 0, 1, 0], [0, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]], bool)
    types = np.array([0, 0, 0, 1, 1, 2])
    rows = sketch_temperature.balanced(part, types)
    assert [found.tolist() for found in rows] == [[0, 1], [1, 2], [0, 1]]
    part[2, 4] = True
    assert [found.tolist() for found in sketch_temperature.balanced(part, types)] == [
        [0, 1, 4],
        [1, 2, 3],
        [0, 1, 4],
    ]


def test_steps_are_counted_where_a_test_tells_them():
    shape = (len(models.NAMES), 3, 3)
    differences, p_values = np.zeros(shape), np.ones(shape)
    differences[0, 1, 0], differences[0, 2, 1] = 0.5, -0.5
    p_values[0, 1, 0], p_values[0, 2, 1] = 0.01, 0.2
    fields = {field.name: () for field in dataclasses.fields(models.ModelScores)}
    fields |= {"models": ("1", "2", "3"), "differences": differences, "p_values": p_values}
    assert sketch_temperature.steps(models.ModelScores(**fields), 0) == (1, 0)
    p_values[0, 2, 1] = 0.04
    assert sketch_temperature.steps(models.ModelScores(**fields), 0) == (1, 1)


def test_every_option_matters(small, tmp_path):
    flags, run = small
    once = [flag for flag in flags if "scales" not in flag and "groups" not in flag]
    fewer = execute(STUDY, tmp_path / "a", *once, "--scales=1", "--samples=4", "--groups=3")
    assert (fewer.settings.samples, fewer.settings.n) == (4, 12)
    groups = [found.results[Cell("prompts", "1")].groups for found in (fewer, run)]
    assert groups == [3, 6]
    without = [flag for flag in once if not flag.startswith("--ended")]
    found = execute(STUDY, tmp_path / "b", *without, "--scales=1").results[Cell("types", "1")]
    assert found.kept.tolist() == [48, 0] and np.isnan(found.of_kept[1]).all()
    whole = run.results[Cell("types", "1")]
    np.testing.assert_array_equal(found.of_kept[0, 0], whole.of_kept[0, 0])


def test_figures_and_table_say_what_is_shown(small):
    _, run = small
    figures = sketch_temperature.draw([run])
    assert set(figures) == {"sketch_temperature"}  # Drawings are of the shipped data alone.
    caption = figures["sketch_temperature"]._supxlabel.get_text().replace("\n", " ")
    for words in ("16 outputs of each of 3 types", "n = 48", "seed 0", "6 groups", "95%", "given"):
        assert words in caption
    titles = [axes.get_title() for axes in figures["sketch_temperature"].axes]
    assert titles[0] == "Conditional-Vendi, given the prompts"
    assert titles[5] == "Conditional-RKE, given the types"
    assert "RKE of each type: 3 of 3 rise" in titles
    names = [str(cell) for cell in sketch_temperature.table(run).columns[1].cells]
    assert "Conditional-RKE of 24 ended" in names and "RKE of a type" in names


@pytest.mark.parametrize(
    ("role", "words", "message"),
    [
        ("models", ["0.1", "warm"], "--models: expected temperatures, finite numbers, received 'w"),
        ("models", ["0.1", "nan"], "--models: expected temperatures, finite numbers, received 'n"),
        ("models", ["0.1", "0.1"], "--models: expected at least two temperatures, received 0.1"),
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
        execute(STUDY, tmp_path, *flags, f"--{role}={tmp_path / 'x.npy'}")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--samples=17", "--samples: received 17, but there are 16 of the type kind 0 at temp"),
        ("--samples=1", "--samples"),
        ("--groups=1", "--groups"),
    ],
)
def test_bad_flags_are_refused(small, tmp_path, flag, message):
    flags, _ = small
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *flags, flag)


def test_shipped_drawings_are_shown(monkeypatch):
    settings = sketch_temperature.Settings(
        data="", n=2, temperatures=("0.1", "1"), types=("ant", "key"), samples=2, groups=2,
        shown=True, bandwidths={},
    )  # fmt: skip
    (axes,) = sketch_temperature._drawings(settings).axes
    assert {text.get_text() for text in axes.texts} >= {"ant", "key", "0.1", "1"}
    assert len(axes.get_lines()) >= 4
