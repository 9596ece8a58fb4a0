"""The drawings by Sketch-RNN: strokes, pictures, and the builder on a small repository."""

import itertools

import numpy as np
import pytest
from small_repositories import make, repository
from small_sketches import content, random_arrays

from experiments.builders import sketches
from experiments.data import sets, strokes

pytestmark = pytest.mark.slow

POINTS = np.array(
    [
        [1.0, 0.0, 1, 0, 0],
        [0.0, 2.0, 0, 1, 0],
        [5.0, 5.0, 1, 0, 0],
        [1.0, 0.0, 0, 1, 0],
        [3.0, 3.0, 0, 1, 0],  # A dot: no line.
        [9.0, 9.0, 0, 0, 1],
        [7.0, 7.0, 1, 0, 0],
    ]
)


def test_lines_begin_at_the_origin_and_end_where_the_pen_is_lifted():
    first, second = strokes.lines(POINTS)
    np.testing.assert_array_equal(first, [[0, 0], [1, 0], [1, 2]])
    np.testing.assert_array_equal(second, [[6, 7], [7, 7]])
    assert strokes.lines(POINTS[5:]) == []
    # Without an end of its own a drawing goes as far as its points.
    assert len(strokes.lines(POINTS[:1])) == 1


def test_a_picture_is_black_on_white_centred_and_smoothed():
    pytest.importorskip("PIL")
    square = np.array([[0, 0], [3, 0], [3, 3], [0, 3], [0, 0.0]])
    picture = strokes.picture([square], side=100)
    assert picture.shape == (100, 100, 3) and picture.dtype == np.uint8
    grey = picture[:, :, 0]
    assert (picture == grey[:, :, None]).all()
    assert grey[50, 50] == grey[1, 1] == 255 and grey.min() == 0
    assert len(np.unique(grey)) > 4  # Smoothed.
    for axis in (0, 1):
        ink = np.flatnonzero((grey < 200).any(axis=axis))
        assert abs(ink[0] + ink[-1] - 99) <= 1 and 6 <= ink[0] <= 9
    assert (strokes.picture([], side=20) == 255).all()


def test_strokes_are_fitted_to_the_unit_square_and_read_as_they_were_written(tmp_path):
    drawings = {("ape", "0.1"): strokes.lines(POINTS * [30, 15, 1, 1, 1]), ("bee", "1"): []}
    strokes.write(tmp_path / "s.json", drawings)
    found = strokes.read(tmp_path / "s.json")
    assert list(found) == list(drawings) and found["bee", "1"] == []
    # Seven wide and half as high: from side to side, in the middle.
    for ours, wanted in zip(found["ape", "0.1"], strokes.lines(POINTS), strict=True):
        np.testing.assert_allclose(ours, wanted / [7, 14] + [0, 0.25], atol=0.5 / 255 + 1e-9)


NAMES, TEMPERATURES, DRAWS = ("ape", "palm tree", "zebra"), (0.2, 0.6, 1.0), 4


def clone(folder, lengths=(8, 9, 10), *, ends=True):
    """A repository with three models; where nothing ends, the pen never ends a drawing."""
    files = {}
    for seed, (name, length) in enumerate(zip(NAMES, lengths, strict=True)):
        arrays, file = random_arrays(seed), name.replace(" ", "_")
        if not ends:
            arrays[1][2] = -30000
        files[f"models/{file}.gen.json"] = content(file, arrays, length=length)
    return repository(folder, "me/models", files)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three classes, two of them animals, at three temperatures, four times each."""
    folder = tmp_path_factory.mktemp("sketches")
    constants = {"ANIMALS": ("ape", "zebra"), "THINGS": ("palm tree",), "TYPES": 1}
    constants |= {"TEMPERATURES": TEMPERATURES, "DRAWS": DRAWS}
    return folder, make(sketches, folder, clone(folder / "clone"), **constants)


def test_every_class_is_drawn_at_every_temperature_with_the_same_wordings(built):
    folder, (found, _, cut, pictures, _) = built
    each = len(NAMES) * DRAWS
    assert len(found) == pictures.given == each * len(TEMPERATURES)  # Embedded once.
    labels = found.labels
    assert labels["models"].tolist() == np.repeat(["0.2", "0.6", "1"], each).tolist()
    assert labels["types"][:each].tolist() == np.repeat(NAMES, DRAWS).tolist()
    for role in ("wording", "prompt", "types"):
        of_temperature = labels[role].reshape(len(TEMPERATURES), each)
        assert (of_temperature == of_temperature[0]).all()
    assert len(np.unique(labels["prompt"])) == len(np.unique(found.prompts, axis=0))
    assert (found.outputs[:each] != found.outputs[each : 2 * each]).any()
    ended = [found.labels["ended"][labels["models"] == word].mean() for word in cut["ended"]]
    np.testing.assert_allclose(ended, list(cut["ended"].values()), atol=1e-4)
    shown = strokes.read(folder / "drawings" / "sketches.json")
    assert list(shown) == list(itertools.product(NAMES, ("0.2", "0.6", "1")))


def test_animals_have_prompts_that_name_them_and_that_do_not(built):
    folder, (whole, _, _, _, texts) = built
    animals = sets.read_set(folder / "sketched_animals.npz")
    assert set(animals.labels["types"]) == {"ape"}
    assert len(animals) == DRAWS * len(TEMPERATURES)
    chosen = whole.labels["types"] == "ape"
    np.testing.assert_array_equal(animals.outputs, whole.outputs[chosen])
    np.testing.assert_array_equal(animals.further["typed_prompts"], whole.prompts[chosen])
    unnamed = texts.rows(sketches.WORDINGS["sketches"].unspecified())
    np.testing.assert_allclose(animals.prompts, unnamed[animals.labels["wording"]], atol=1e-3)


def test_drawings_are_cut_at_the_length_of_their_class(tmp_path, monkeypatch):
    lengths = (8, 9, 10)
    opened = clone(tmp_path / "clone", lengths, ends=False)
    monkeypatch.setattr(sketches, "TEMPERATURES", (1.0, 1.0))
    monkeypatch.setattr(sketches, "DRAWS", 16)
    points = sketches.draw(sketches.sketch_rnn.load(opened, ["ape", "palm_tree", "zebra"]))
    assert points.shape == (2, 3, 16, 10, 5)
    for index, length in enumerate(lengths):
        assert (points[:, index, :, :, 4] == (np.arange(10) >= length)).all()
        assert not sketches.has_ended(points[0, index], np.full(16, length)).any()
        assert sketches.has_ended(points[0, index], np.full(16, length + 1)).all() == (length < 10)
    assert (points[0] != points[1]).any()
