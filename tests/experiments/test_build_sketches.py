"""The drawings by Sketch-RNN: strokes, pictures, and the builder on a small repository."""

import json
import types

import numpy as np
import pytest
from small_repositories import Corners, WordCounts, repository
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


def test_lines_are_fitted_to_the_unit_square():
    fitted = np.concatenate(strokes.fitted(strokes.lines(POINTS)))
    assert fitted.min() == 0 and fitted.max() == 1
    np.testing.assert_allclose(fitted.min(axis=0) + fitted.max(axis=0), 1)
    larger = POINTS * [30, 30, 1, 1, 1]
    np.testing.assert_allclose(np.concatenate(strokes.fitted(strokes.lines(larger))), fitted)


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


def test_strokes_are_read_as_they_were_written(tmp_path):
    drawings = {("ape", "0.1"): strokes.lines(POINTS), ("bee", "1"): []}
    strokes.write(tmp_path / "s.json", drawings)
    found = strokes.read(tmp_path / "s.json")
    assert list(found) == list(drawings) and found["bee", "1"] == []
    for ours, wanted in zip(
        found["ape", "0.1"], strokes.fitted(drawings["ape", "0.1"]), strict=True
    ):
        np.testing.assert_allclose(ours, wanted, atol=0.5 / 255 + 1e-9)


NAMES, TEMPERATURES, DRAWS = ("ape", "palm tree", "zebra"), (0.2, 0.6, 1.0), 4


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three classes, two of them animals, at three temperatures, four times each."""
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("sketches")
    files = {
        f"models/{sketches.file_name(name)}.gen.json": content(
            sketches.file_name(name), random_arrays(seed), length=8 + seed
        )
        for seed, name in enumerate(NAMES)
    }
    clone = repository(folder / "clone", "me/models", files)
    pictures = Corners()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sketches, "load_efficientnet", lambda: pictures)
        patched.setattr(sketches, "load_minilm", WordCounts)
        patched.setattr(sketches.common, "versions", lambda *packages: list(packages))
        patched.setattr(sketches, "ANIMALS", ("ape", "zebra"))
        patched.setattr(sketches, "TYPES", 1)
        for output in ("first", "second"):
            (folder / output).mkdir()
            sketches.build(
                clone,
                NAMES,
                temperatures=TEMPERATURES,
                draws=DRAWS,
                cache=folder / "cache",
                output=folder / output / "sketches.npz",
            )
    return folder, clone, pictures


def test_every_class_is_drawn_at_every_temperature_with_the_same_wordings(built):
    folder, _, pictures = built
    found = sets.read_set(folder / "first" / "sketches.npz")
    each = len(NAMES) * DRAWS
    assert len(found) == pictures.given == each * len(TEMPERATURES)  # Embedded once.
    labels = found.labels
    assert labels["models"].tolist() == np.repeat(["0.2", "0.6", "1"], each).tolist()
    assert labels["types"][:each].tolist() == np.repeat(NAMES, DRAWS).tolist()
    for role in ("wording", "prompt", "types"):
        of_temperature = labels[role].reshape(len(TEMPERATURES), each)
        assert (of_temperature == of_temperature[0]).all()
    prompts = found.prompts.reshape(len(TEMPERATURES), each, -1)
    assert (prompts == prompts[0]).all()
    assert len(np.unique(labels["prompt"])) == len(
        set(zip(labels["types"], labels["wording"], strict=True))
    )
    outputs = found.outputs.reshape(len(TEMPERATURES), -1)
    assert (outputs[0] != outputs[1]).any()


def test_what_was_cut_and_whose_it_is_is_said(built):
    folder, clone, _ = built
    with np.load(folder / "first" / "sketches.npz", allow_pickle=False) as stored:
        cut, licence = json.loads(str(stored["cut"])), str(stored["licence"])
        assert stored["provenance"][0] == clone.reference
    assert "not stated" in licence
    assert set(cut["ended"]) == {"0.2", "0.6", "1"}
    assert all(0 <= share <= 1 for share in cut["ended"].values())
    assert set(cut["cost"]) == {"bandwidths", "directions", "float16"}


def test_animals_have_prompts_that_name_them_and_that_do_not(built):
    folder, *_ = built
    animals = sets.read_set(folder / "first" / "sketched_animals.npz")
    whole = sets.read_set(folder / "first" / "sketches.npz")
    assert set(animals.labels["types"]) == {"ape"}
    assert len(animals) == DRAWS * len(TEMPERATURES)
    rows = whole.rows(whole.labels["types"] == "ape")
    np.testing.assert_array_equal(animals.outputs, rows.outputs)
    np.testing.assert_array_equal(animals.further["typed_prompts"], rows.prompts)
    assert (animals.prompts != animals.further["typed_prompts"]).any()
    same = animals.labels["wording"][:, None] == animals.labels["wording"]
    assert (animals.prompts[:, None] == animals.prompts).all(axis=-1)[same].all()


def test_a_drawing_of_every_class_and_temperature_is_shown(built):
    folder, *_ = built
    found = strokes.read(folder / "first" / "drawings" / "sketches.json")
    assert list(found) == [(n, w) for n in NAMES for w in ("0.2", "0.6", "1")]


def test_the_same_key_gives_the_same_files(built):
    folder, *_ = built
    for name in ("sketches.npz", "sketched_animals.npz"):
        first, second = (sets.read_set(folder / of / name) for of in ("first", "second"))
        for role, array in first.arrays.items():
            np.testing.assert_array_equal(array, second.arrays[role])


def test_drawings_are_cut_at_the_length_of_their_class(tmp_path):
    files, lengths = {}, (8, 9, 10)
    for seed, (name, length) in enumerate(zip(NAMES, lengths, strict=True)):
        arrays, file = random_arrays(seed), sketches.file_name(name)
        arrays[1][2] = -30000  # The pen never ends a drawing.
        files[f"models/{file}.gen.json"] = content(file, arrays, length=length)
    clone = repository(tmp_path / "clone", "me/models", files)
    published = sketches.sketch_rnn.load(clone, ["ape", "palm_tree", "zebra"])
    points = sketches.draw(published, [1.0, 0.2], 16)
    assert points.shape == (2, 3, 16, 10, 5)
    for index, length in enumerate(lengths):
        assert (points[:, index, :, length:, 4] == 1).all()
        assert (points[:, index, :, :length, 4] == 0).mean() > 0.9
    assert (points[0] != points[1]).any()


def test_the_command_refuses_what_it_cannot_do(tmp_path, monkeypatch):
    values = {"cache_dir": str(tmp_path), "output": str(tmp_path / "x.npz"), "draws": 0}
    values["overwrite"] = False
    values["source"] = str(tmp_path / "nowhere")
    monkeypatch.setattr(sketches.flags, "FLAGS", types.SimpleNamespace(**values))
    with pytest.raises(ValueError, match="--draws: expected a positive number, received 0"):
        sketches.main(["sketches"])
    values["draws"] = 1
    monkeypatch.setattr(sketches.flags, "FLAGS", types.SimpleNamespace(**values))
    with pytest.raises(ValueError, match="nowhere: there is no such folder"):
        sketches.main(["sketches"])
    (tmp_path / "x.npz").write_text("mine")
    with pytest.raises(ValueError, match=r"--output: .*x\.npz exists .* add --overwrite"):
        sketches.main(["sketches"])
    values |= {"source": str(tmp_path), "overwrite": True}
    monkeypatch.setattr(sketches.flags, "FLAGS", types.SimpleNamespace(**values))
    with pytest.raises(ValueError, match="--output=.* would replace a file in .* --source reads"):
        sketches.main(["sketches"])
    assert (tmp_path / "x.npz").read_text() == "mine"
    with pytest.raises(ValueError, match="unexpected argument"):
        sketches.main(["sketches", "word"])


def test_the_classes_are_distinct_and_have_articles():
    names = (*sketches.ANIMALS, *sketches.THINGS)
    assert len(set(names)) == 29 and len(sketches.ANIMALS) == 14
    sentences = sketches.WORDINGS["sketches"].specified(names)
    assert len(set(sentences)) == 29 * 24
    for phrase in ("An ant is ", "Rain is ", "A tube of toothpaste is ", "A palm tree is "):
        assert any(sentence.startswith(phrase) for sentence in sentences)
