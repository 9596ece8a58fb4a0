"""A user's prompts, texts and pictures: read as they are, paired as they belong."""

import io
import json
import pathlib
import re
import sys

import numpy as np
import pytest

from condvendi_jax.encoders import pictures
from condvendi_jax.records import items


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def _jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("content", ["a cat\nä \u2028dog", "\ufeffa cat\r\nä \u2028dog\r\n"])
def test_a_text_file_holds_a_prompt_a_line(write, content):
    path = write("p.TXT", content)
    assert items.read_texts(path, prompts=True)[:3] == (["a cat", "ä \u2028dog"], "", path)


ROW = {"text": "t", "caption": "c", "question": "q", "prompt": "p", "answer": "a", "output": "o"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_are_found_by_their_names_or_named(write, suffix):
    def path(row):
        if suffix == "jsonl":
            return write("x.jsonl", _jsonl(row))
        return write("x.csv", ",".join(row) + "\n" + ",".join(row.values()) + "\n")

    row = dict(ROW)
    for column in ("prompt", "question", "caption", "text"):
        assert items.read_texts(path(row), prompts=True)[:2] == ([row.pop(column)], column)
    with pytest.raises(ValueError, match="no column prompt or question or caption or text for its"):
        items.read_texts(path(row), prompts=True)
    row = dict(ROW)
    for column in ("output", "answer", "text"):
        assert items.read_texts(path(row))[:2] == ([row.pop(column)], column)
    assert items.read_texts(path(ROW), column="caption")[:2] == (["c"], "caption")
    with pytest.raises(ValueError, match="no column 'absent' for its prompts; .* text, caption"):
        items.read_texts(path(ROW), column="absent", prompts=True)
    with pytest.raises(ValueError, match="no column 'absent' for its pictures"):
        items.pair_images(items.read_texts(path(ROW), prompts=True), PICTURES, column="absent")


WRONG = [
    ("absent.txt", None, "there is no such file"),
    ("x.txt", "a\n\nb\n", "line 2: is blank"),
    ("x.txt", "", "holds no rows"),
    ("x.txt", b"a\nb\n\xe4\n", "line 3: is not UTF-8"),
    ("x.csv", "text\n", "holds no rows"),
    ("x.csv", 'id,text\n1,"a\nb"\n2\n', "line 4: holds 1 cells, the header 2"),
    ("x.csv", "prompts\na\n", "columns are prompts"),
    ("x.csv", "0.5,1\n2,3\n", "numbers alone"),
    ("x.jsonl", '{"text": "a"}\n{"id": 1}\n', "line 2: .* text in 'text', received nothing"),
    ("x.jsonl", '{"text": "a"}\n{"text": null}\n', "line 2: .* received null"),
    ("x.jsonl", '{"text": "a\\ud800"}\n', "line 1: .* surrogate"),
    ("x.xml", "<>", r"expected a file ending in \.txt, \.csv, \.tsv, \.jsonl"),
]


@pytest.mark.parametrize(("name", "content", "words"), WRONG)
def test_what_is_wrong_is_named_with_its_line(write, name, content, words):
    with pytest.raises(ValueError, match=rf"{name}.*{words}"):
        items.read_texts(name if content is None else write(name, content))


def test_a_blank_prompt_is_refused_and_an_empty_answer_is_not(write):
    path = write("x.jsonl", _jsonl({"text": "a"}, {"text": " "}))
    with pytest.raises(ValueError, match="line 2: 'text' is blank"):
        items.read_texts(path, prompts=True)
    assert items.read_texts(path).texts == ["a", " "]


ARRAYS = {
    "savetxt": "1.000000000000000000e+00 -2.500000000000000000e+00\n3.1e-05 4.0\n",
    "one column of savetxt": "1.000000000000000000e+00\n-2.5e-01\n",
    "header": "# x y\n1.5 2.5\n3.5 -4.5\n",
    "commas": "1.5,2.0,3.5\n4.5,.5,-6.25\n",
    "ragged": "1.5 2.5\n1.5 2.5 3.5\n",
    "integers among them": "0.5 1.5\n-1e-3 2\n3 4\n",
}


@pytest.mark.parametrize("name", ARRAYS)
def test_array_of_numbers_is_refused_as_texts(write, name):
    words = r"x\.txt: .* numbers alone\. If this is an array, save it as a \.npy file: np.save"
    with pytest.raises(ValueError, match=words):
        items.read_texts(write("x.txt", ARRAYS[name]), prompts=True)


@pytest.mark.parametrize(
    "texts",
    [
        *(["42", "0.5"], ["1,234", "-12,500"], ["3, 4", "5, 6"], ["2024 1 3", "2024 1 4"]),
        *(["1.5 2.5", "3.5 cats"], ["infinity nan", "nan nan"], ["#cats 1.5", "#dogs"]),
        *(["2024-01-02", "2024-01-03"], ["[]", "[]"], [",", ","], ["#", "#"]),
    ],
)
def test_texts_of_numbers_that_are_no_array_are_read(write, texts):
    assert items.read_texts(write("x.txt", "\n".join(texts))).texts == texts
    in_a_column = _jsonl({"text": "1.5 2.5"}, {"text": "3.5 4.5"})
    assert items.read_texts(write("x.jsonl", in_a_column)).texts == ["1.5 2.5", "3.5 4.5"]


def test_one_column_is_not_both_texts_and_prompts(write):
    path = write("qa.jsonl", _jsonl({"id": "1", "text": "a"}))
    prompts, texts = items.read_texts(path, prompts=True), items.read_texts(path)
    words = r"qa\.jsonl: is both the texts and their prompts.*--prompt_column and --text_column"
    with pytest.raises(ValueError, match=words):
        items.pair_texts(prompts, texts)
    items.pair_texts(items.read_texts(path, column="id", prompts=True), texts)
    with pytest.raises(ValueError, match=r"1 prompts for 2 texts.*columns 'answer' and 'prompt'"):
        items.pair_texts(prompts, items.read_texts(write("other.txt", "b\nc\n")))


def test_pictures_are_listed_as_people_count(tmp_path):
    with pytest.raises(ValueError, match=r"holds no pictures \(\.png"):
        items.list_images(tmp_path)
    with pytest.raises(ValueError, match="absent: there is no such folder"):
        items.list_images(tmp_path / "absent")
    names = "img1.png img2.PNG img02.jpg img10.jpeg Z1.webp a.gif b.bmp 7.png t.TIFF t.tif u.jfif"
    for name in [*names.split(), "notes.txt", ".hidden.png", "img3.png.part"]:
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    order = "7.png a.gif b.bmp img1.png img02.jpg img2.PNG img10.jpeg t.tif t.TIFF u.jfif Z1.webp"
    assert [path.name for path in items.list_images(tmp_path)] == order.split()


def _touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()


def test_pictures_that_are_not_read_are_left_out_with_a_warning(tmp_path):
    """In folders below, or in formats that Pillow may not decode; hidden ones are ignored."""
    _touch(tmp_path, "a.png", "prompts.csv", "b/1.png", "b/2.tif", "b/.3.png", "c/4.heic")
    _touch(tmp_path, "d/notes.txt", ".hidden/5.png", "x.HEIC", "y.svg", ".hidden.psd")
    words = f"5 pictures are left out, as they lie in folders below {tmp_path}, beside a folder"
    with pytest.warns(UserWarning, match=rf"{words} .*: 1\.png, 2\.tif, 4\.heic and 2 more\. "):
        assert items.list_images(tmp_path) == [tmp_path / "a.png"]
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=f"holds no pictures .* {words}"):
        items.list_images(tmp_path)


PICTURES = [pathlib.Path("images", name) for name in ("1.png", "2.png", "3.png", "4.png")]


def _prompts(n=4, **columns):
    """n prompts, in a table with some more columns."""
    columns = {"prompt": [f"text {index}" for index in range(n)]} | columns
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return items.Texts(columns["prompt"], "prompt", pathlib.Path("p.csv"), list(enumerate(rows, 2)))


def _paired(prompts, *names, column=None):
    images = [pathlib.Path("images", name) for name in names] or PICTURES
    paired, rows, column, _ = items.pair_images(prompts, images, column=column)
    assert all(path in images for path in paired)
    assert rows == list(range(len(paired)))
    return [path.name for path in paired], column


NAMED = ["3.png", "some/4.png", "1.png", "dos\\2.png"]
ORDER = ["3.png", "4.png", "1.png", "2.png"]


@pytest.mark.parametrize("column", ["file_name", "Image"])
def test_pictures_are_paired_by_a_column_of_a_known_name_or_that_is_named(column):
    for names in (NAMED, [3, 4, 1, 2]):
        prompts = _prompts(**{column: names}, other=[2, 1, 3, 4])
        assert _paired(prompts) == (ORDER, column)
        assert _paired(prompts, column="other") == (["2.png", "1.png", "3.png", "4.png"], "other")


def test_a_column_of_names_of_pictures_needs_no_known_name():
    assert _paired(_prompts(photograph=NAMED)) == (ORDER, "photograph")
    with pytest.raises(ValueError, match="'photograph' should name pictures, but 1 of 4 names"):
        _paired(_prompts(photograph=["1.png", "2.png", "3.png", "5.jpg"]))
    assert _paired(_prompts(photograph=[1, 2, 3, 4]))[1] is None


def test_name_without_ending_must_match_one_picture():
    pictures = ("1.png", "1.jpg", "2.png", "3.png")
    prompts = _prompts(image=["1.jpg", "2", "1.png", "3"])
    assert _paired(prompts, *pictures)[0] == ["1.jpg", "2.png", "1.png", "3.png"]
    with pytest.raises(ValueError, match="1 of 4 names match no picture in the folder: 1. A name"):
        _paired(_prompts(image=["1", "2", "1.png", "3"]), *pictures)


def test_pictures_that_are_not_named_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="does not name 3 of 4 pictures.*: 1.png, 3.png, 4.png"):
        assert _paired(_prompts(1, image=["2.png"]))[0] == ["2.png"]


def test_pictures_named_twice_or_missing_are_refused():
    column = "image"
    words = rf"p\.csv: column '{column}' names pictures twice: 1\.png"
    with pytest.raises(ValueError, match=words):
        _paired(_prompts(**{column: ["1.png", "2.png", "x/1.png", "4.png"]}))
    with pytest.raises(ValueError, match="by the column 'path' at .* 4 of 4 pictures match no"):
        _paired(_prompts(path=["train", "train", "test", "test"]))
    absent = ["1.png", *(f"{n}.jpg" for n in range(5, 10))]
    words = r"5 of 6 names match no picture in the folder: 5\.jpg, 6\.jpg, 7\.jpg and 2 more"
    with pytest.raises(ValueError, match=rf"column '{column}' should name pictures, .*{words}"):
        _paired(_prompts(6, **{column: absent}))


@pytest.mark.parametrize("blank", [" ", None, True])
def test_row_without_its_picture_is_refused(blank):
    with pytest.raises(ValueError, match="line 3: expected the name of a picture in 'image'"):
        _paired(_prompts(image=["4.png", blank, "1.png", "2.png"]))


def test_order_pairs_where_no_column_names_pictures_and_the_numbers_must_agree():
    in_order = [path.name for path in PICTURES], None
    assert _paired(_prompts()) == in_order
    # Repeated numbers are a category, other texts are no names, and prompts never name pictures.
    assert _paired(_prompts(kind=["1", "2", "1", "2"], style=["a", "b", "c", "4"])) == in_order
    assert _paired(_prompts(prompt=["4", "3", "2", "1"])) == in_order
    with pytest.raises(ValueError, match=r"3 prompts for 4 pictures, whose names do"):
        _paired(_prompts(3))


IDS = {"id": ["7", "2", "10", "1"]}
BY_NAME = {  # The columns, the names of the pictures, the rows of their prompts, and how.
    "the order": ({}, "0_9 1_8 2_7 3_6", [0, 1, 2, 3], "order"),
    "number from 0": ({}, "000_0 000_1 001_0 002_0 003_0", [0, 0, 1, 2, 3], "from 0 at the start"),
    "number from 1": ({}, "p_4_0 p_1_5 p_2_5 p_3_5 p_3_6", [3, 0, 1, 2, 2], "from 1 at the start"),
    "an id": (IDS, "10_0 1_0 1_1 7_0 2_0", [2, 3, 3, 0, 1], "column 'id' at the start"),
    "after a word": (IDS, "img010-s1 img001-s1 img007-s1 img002-s1 img002-s2", [2, 3, 0, 1, 1], ""),
    "a folder": (IDS, "10/a 1/a 7/b 7/c 2/a", [2, 3, 0, 0, 1], "column 'id' .* of the folders"),
    "as many": (IDS, "10/a 1/a 7/b 2/a", [2, 3, 0, 1], "folders, 1 pictures a prompt"),
    "a prompt": ({}, "text_1/0 text_0/0 text_3/1 text_2/1", [1, 0, 3, 2], "text of the prompt"),
    "a category": ({"kind": ["1", "2"] * 2}, "1_a 1_b 2_a 2_b 3_a 4_a", [0, 0, 1, 1, 2, 3], ""),
    "seeds": (
        {},
        " ".join(f"seed_{j}/{k}" for j in range(4) for k in range(4)),
        [*range(4)] * 4,
        "",
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_pictures_are_paired_by_what_their_names_hold_of_a_prompt(name):
    columns, names, rows, how = BY_NAME[name]
    images = [pathlib.Path("images", f"{name}.png") for name in names.split()]
    *paired, by = items.pair_images(_prompts(**columns), images)
    assert paired == [images, rows, None]
    assert re.search(how, by)
    if "id" in columns:  # The same where the column is named, or is one that names pictures.
        assert items.pair_images(_prompts(**columns), images, column="id")[1] == rows
        assert items.pair_images(_prompts(image=columns["id"]), images)[1] == rows


SLUGS = [
    "A red car",
    "an old house",
    "2 dogs",
    "3 dogs",
    "it's a big old house in the café, at night",
]
BY_TEXT = {  # The prompts, the names of the pictures, and the rows of their prompts.
    "slugs": (SLUGS[:3], "an_old_house 2_dogs a_red_car", [1, 2, 0]),
    "samples": (SLUGS[:2], "an-old-house_0 an-old-house_1 a-red-car_0 a-red-car_1", [1, 1, 0, 0]),
    "numbers of both": (SLUGS[2:4], "2_dogs_3 3_dogs_2", [0, 1]),
    "cut": (SLUGS, "2_dogs its_a_big_old_hou a_re 3_dogs an_old_house", [2, 4, 0, 3, 1]),
    "another form": (SLUGS[3:], "its_a_big_old_house_in_the_café_at_night 3_dogs", [1, 0]),
    "a seed before": (SLUGS[:2], "s1-an old house s7-an old house s1-a red car", [1, 1, 0]),
    "one within another": (["a car", "a car at sea"], "a_car_at_sea_1 a_car_1", [1, 0]),
    "the same words": (["dog bites man", "man bites dog"], "man_bites_dog dog_bites_man", [1, 0]),
    "folders": (SLUGS[:2], "an_old_house/0 an_old_house/1 a_red_car/0", [1, 1, 0]),
    "some words": (SLUGS[:2], "house_a car_b", [1, 0]),
}


@pytest.mark.parametrize("name", BY_TEXT)
def test_pictures_are_paired_by_the_text_of_the_prompt_in_their_names(name):
    prompts, names, rows = BY_TEXT[name]
    images = [pathlib.Path("images", f"{name}.png") for name in re.split(r" (?=\S+[_/-])", names)]
    *paired, how = items.pair_images(_prompts(len(prompts), prompt=prompts), images)
    assert paired == [images, rows, None] and "text of the prompt in the names" in how


@pytest.mark.parametrize(
    ("prompts", "names", "other"),
    [
        (SLUGS[:3], "house x y", "text of the prompt"),
        (["a cat"] * 2 + ["a dog"] * 2, "a_dog_0 a_dog_1 a_cat_0 a_cat_1", "text of the prompt"),
        (SLUGS[:3], "0_2_dogs 1_an_old_house 2_a_red_car", "number of the prompt from 0"),
    ],
)
def test_names_that_contradict_the_order_are_refused(prompts, names, other):
    images = [pathlib.Path("images", f"{name}.png") for name in names.split()]
    with pytest.raises(ValueError, match=f"and the {other} .*disagree.*--image_column"):
        items.pair_images(_prompts(len(prompts), prompt=prompts), images)


@pytest.mark.parametrize("names", ["1 2 3", "photo_1 photo_2 photo_3", "x y z"])
def test_names_that_say_nothing_of_prompts_are_paired_by_order(names):
    images = [pathlib.Path("images", f"{name}.png") for name in names.split()]
    paired = items.pair_images(_prompts(3, prompt=SLUGS[:2] + ["a photo"]), images)
    assert paired[1:] == ([0, 1, 2], None, "order")


NOT_BY_NAME = {
    "no number": ({}, "a b c d e", "each belongs to"),
    "a prompt without pictures": ({}, "0_0 0_1 1_0 1_1 2_0", "0 of 5 pictures .* 1 of 4 prompts"),
    "a picture too many": ({}, "0_0 1_0 2_0 3_0 4_0", "1 of 5 pictures match no prompt"),
    "an unknown id": (IDS, "7_a 2_a 10_a 1_a 3_a", "'id' .*1 of 5 pictures match no prompt"),
    "ids 1 and 01": ({"id": ["1", "01", "2", "3"]}, "1_0 01_0 2_0 3_0 3_1", "which prompt each"),
    "ids that begin alike": (
        {"id": ["a", "a_1", "b", "c"]},
        " ".join([*(f"a_1_{k}" for k in range(9)), "a_2_0 b_0 c_0"]),
        "9 of 12 pictures match no prompt",
    ),
    "samples as prompts": (
        {},
        "0_1 1_2 2_3 3_0 0_2 1_3",
        "at the start .* at the end of the names disagree",
    ),
    "samples before": ({}, "0_000 0_001 1_002 1_003 1_000", "2 of 4 prompts"),
    "words beside numbers": (
        {"id": ["fox", "owl", "cat", "elk"]},
        "0_owl 1_owl 2_cat 3_elk 3_fox",
        "from 0 at the start .*'id' at the end of the names disagree",
    ),
    "ids of another order": ({"id": ["3", "2", "1", "0"]}, "0_a 1_a 2_a 3_a 3_b", "disagree"),
    "ids from 1": ({"id": ["1", "2", "3", "4"]}, "0_a 1_a 2_a 3_a 3_b", "from 0 .*'id' .*disagree"),
    "ids, as many": (IDS, "1_0 2_0 7_0 10_0", "the order and the column 'id' at the start of"),
    "seeds, as many": ({}, "3_1 5_0 7_3 8_2", "the order and the number of the prompt from 0"),
}


@pytest.mark.parametrize("name", NOT_BY_NAME)
def test_no_prompt_of_a_picture_is_guessed(name):
    columns, names, words = NOT_BY_NAME[name]
    images = [pathlib.Path("images", f"{name}.png") for name in names.split()]
    with pytest.raises(ValueError, match=words):
        items.pair_images(_prompts(**columns), images)


def test_a_picture_of_all_samples_is_left_out(tmp_path):
    """GenEval writes one beside the samples of each prompt."""
    for k in range(2):
        _touch(tmp_path, f"{k:05d}/grid.png", f"{k:05d}/samples/0.png")
    with pytest.warns(UserWarning, match="2 pictures are left out, .* beside a folder of samples"):
        images = items.list_images(tmp_path, below=True)
    assert items.pair_images(_prompts(2), images)[1] == [0, 1]
    assert [image.parent.name for image in images] == ["samples", "samples"]


def _encoded(picture, format="PNG", **options):
    stream = io.BytesIO()
    picture.save(stream, format, **options)
    return stream.getvalue()


@pytest.fixture
def image():
    return pytest.importorskip("PIL.Image")


GREY = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
COLOURS = np.stack([GREY, 255 - GREY, GREY // 2], axis=-1)


def test_a_picture_keeps_its_colours_and_size(image):
    content = _encoded(image.fromarray(COLOURS))
    np.testing.assert_array_equal(pictures.decode_image(content, name="x"), COLOURS)
    palette = image.fromarray(COLOURS).quantize(24)
    got = pictures.decode_image(_encoded(palette), name="x")
    np.testing.assert_array_equal(got, np.asarray(palette.convert("RGB")))
    # Sixteen bits are scaled, not clipped; values up to 255 are of eight bits in any file.
    wide = GREY.astype(np.uint16)
    for grey in (GREY, wide * 257, wide, wide.astype(np.int32) * 257, wide.astype(np.int32)):
        got = pictures.decode_image(_encoded(image.fromarray(grey), "TIFF"), name="x")
        np.testing.assert_array_equal(got, np.repeat(GREY[:, :, None], 3, axis=2))
    for outside in (-1, 65536):
        grey = np.full((4, 6), outside, np.int32)
        with pytest.raises(ValueError, match="x: .*expected colours of 8 or 16 bits, received wid"):
            pictures.decode_image(_encoded(image.fromarray(grey), "TIFF"), name="x")


def test_a_picture_is_turned_as_its_camera_was(image):
    exif = image.Exif()
    exif[0x0112] = 6  # Turned by 90 degrees: to be shown, it is turned clockwise.
    content = _encoded(image.fromarray(COLOURS), exif=exif)
    got = pictures.decode_image(content, name="x")
    np.testing.assert_array_equal(got, np.rot90(COLOURS, -1))


def test_what_is_transparent_is_put_on_white(image):
    alpha = np.zeros((4, 6, 1), np.uint8)
    alpha[:, 3:] = 255
    content = _encoded(image.fromarray(np.concatenate([COLOURS, alpha], axis=2)))
    got = pictures.decode_image(content, name="x")
    assert (got[:, :3] == 255).all()
    np.testing.assert_array_equal(got[:, 3:], COLOURS[:, 3:])
    palette = image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    got = pictures.decode_image(_encoded(palette, transparency=0), name="x")
    np.testing.assert_array_equal(got, [[[255, 255, 255], [40, 50, 60]]])


def test_tiff_is_read_and_real_numbers_are_refused(image):
    pages = [image.fromarray(COLOURS), image.new("RGB", (6, 4), "red")]
    content = _encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    np.testing.assert_array_equal(pictures.decode_image(content, name="x"), COLOURS)
    content = _encoded(image.fromarray(GREY.astype(np.float32) / 255), "TIFF")
    with pytest.raises(ValueError, match="x: cannot be decoded .* received real numbers"):
        pictures.decode_image(content, name="x")


@pytest.mark.parametrize("turned", [False, True])
def test_a_square_is_the_middle_and_the_shorter_side_fits(image, turned):
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = [200, 100, 50]
    wide = wide.transpose(1, 0, 2) if turned else wide
    for side in (8, 4):
        got = pictures.decode_image(_encoded(image.fromarray(wide)), name="x", side=side)
        assert got.shape == (side, side, 3)
        # The cubic kernel rings at the two edges by a few steps of 255.
        np.testing.assert_allclose(got[1:-1, 1:-1] - np.array([200.0, 100, 50]), 0, atol=3)


def test_without_pillow_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"needs Pillow.*: pip install -e '\.\[embed\]'"):
        pictures.decode_image(b"", name="x")


def _lines(folder, name, *rows):
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(_jsonl(*rows))


def _geneval(folder):
    for k, prompt in enumerate("pq"):
        _touch(folder, f"0000{k}/grid.png", *(f"0000{k}/samples/000{i}.png" for i in range(2)))
        _lines(folder, f"0000{k}/metadata.jsonl", {"tag": "two", "include": [], "prompt": prompt})


def _imagefolder(folder):
    _touch(folder, "train/b.png", "train/a.png")
    named = [{"file_name": f"{x}.png", "text": p} for x, p in (("b", "q"), ("a", "p"))]
    _lines(folder, "train/metadata.jsonl", *named)


def _table(folder):
    _touch(folder, "b.png", "a.png")
    (folder / "metadata.csv").write_text("file_name,prompt\na.png,p\nb.png,q\n")


def _named_folders(folder):
    _touch(folder, *(f"{p}/{k}.png" for p in "pq" for k in range(2)))


DESCRIBED = {
    "GenEval": (_geneval, ["p/0000", "p/0001", "q/0000", "q/0001"]),
    "imagefolder": (_imagefolder, ["p/a", "q/b"]),
    "a table": (_table, ["p/a", "q/b"]),
    "folders named by prompts": (_named_folders, ["p/0", "p/1", "q/0", "q/1"]),
}


@pytest.mark.filterwarnings("ignore:2 pictures are left out, .* beside a folder of samples")
@pytest.mark.parametrize("name", DESCRIBED)
def test_prompts_of_pictures_are_in_their_folder(tmp_path, name):
    make, expected = DESCRIBED[name]
    make(tmp_path)
    prompts = items.read_texts(tmp_path, prompts=True)
    images, rows, *_ = items.pair_images(prompts, items.list_images(tmp_path, below=True))
    paired = [f"{prompts.texts[k]}/{image.stem}" for image, k in zip(images, rows, strict=True)]
    assert sorted(paired) == expected
    assert items.are_described(tmp_path) == (name != "folders named by prompts")


def _undescribed(folder, name):
    _table(folder)
    if name == "a picture without a row":
        _touch(folder, "c.png")
    elif name == "no names":
        (folder / "metadata.csv").write_text("prompt\np\nq\n")
    elif name == "no prompts":
        (folder / "metadata.csv").write_text("file_name,kind\na.png,1\nb.png,2\n")
    elif name == "two files":
        _lines(folder, "metadata.jsonl", {"file_name": "a.png", "prompt": "other"})
    else:
        _lines(folder, "metadata.jsonl", {"file_name": "a.png", "prompt": "p"})
        (folder / "metadata.csv").unlink()


@pytest.mark.parametrize(
    "name", ["a picture without a row", "no names", "no prompts", "two files", "a part"]
)
def test_prompts_in_a_folder_are_not_taken_unless_all_pictures_have_one(tmp_path, name):
    _undescribed(tmp_path, name)
    assert not items.are_described(tmp_path)


def test_pictures_in_folders_alone_name_the_flag_that_takes_their_names(tmp_path):
    _named_folders(tmp_path)
    with pytest.raises(ValueError, match=rf"holds no pictures .*add --prompts={tmp_path}\."):
        items.list_images(tmp_path)
