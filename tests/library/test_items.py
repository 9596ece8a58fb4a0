"""A user's prompts, texts and pictures: read as they are, paired as they belong."""

import io
import pathlib
import re
import sys

import numpy as np
import pytest
from answer_files import write

from condvendi_jax.encoders import pictures
from condvendi_jax.records import items

ROW = {"text": "t", "caption": "c", "question": "q", "prompt": "p", "answer": "a", "output": "o"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("content", ["a cat\nä \u2028dog", "\ufeffa cat\r\nä \u2028dog\r\n"])
def test_a_text_file_holds_a_prompt_a_line(content):
    path = write("p.TXT", content)
    assert items.read_texts(path, prompts=True)[:3] == (["a cat", "ä \u2028dog"], "", path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_are_found_by_their_names_or_named(suffix):
    def path(row):
        if suffix == "jsonl":
            return write("x.jsonl", row)
        return write("x.csv", ",".join(row), ",".join(row.values()))

    for columns, prompts in (
        (("prompt", "question", "caption", "text"), True),
        (("output", "answer", "text"), False),
    ):
        row = dict(ROW)
        for column in columns:
            assert items.read_texts(path(row), prompts=prompts)[:2] == ([row.pop(column)], column)
    assert items.read_texts(path(ROW), column="caption")[:2] == (["c"], "caption")


DATED = "1.000000000000000000e+00 -2.500000000000000000e+00\n3.1e-05 4.0\n"
ARRAY = r"x\.txt: .* numbers alone\. If this is an array, save it as a \.npy file: np.save"
PROMPTS = {"prompts": True}
WRONG = [  # A file, its content, words of the error, and what is read.
    ("absent.txt", None, "there is no such file"),
    ("absent.csv", None, "there is no such file"),
    ("x.txt", "a\n", "has no columns, received 'b' for its texts", {"column": "b"}),
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
    ("x.jsonl", '{"text": "a"}\n{"text": " "}', "line 2: 'text' is blank", PROMPTS),
    ("x.jsonl", '{"id": 1}', "no column prompt or question or caption or text for its", PROMPTS),
    ("x.csv", "id,text\n1,a", "no column 'b' for its texts; .* are id, text", {"column": "b"}),
    ("x.xml", "<>", r"expected a file ending in \.txt, \.csv, \.tsv, \.jsonl"),
    ("x.txt", DATED, ARRAY),
    ("x.txt", "1.000000000000000000e+00\n-2.5e-01\n", ARRAY, PROMPTS),
    ("x.txt", "# x y\n1.5 2.5\n3.5 -4.5\n", ARRAY),
    ("x.txt", "1.5,2.0,3.5\n4.5,.5,-6.25\n", ARRAY),
    ("x.txt", "1.5 2.5\n1.5 2.5 3.5\n", ARRAY),
    ("x.txt", "0.5 1.5\n-1e-3 2\n3 4\n", ARRAY),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{name}: {words}" for name, _, words, *_ in WRONG])
def test_what_is_wrong_is_named_with_its_line(case):
    name, content, words, options = (*case, {})[:4]
    if content is not None:
        write(name, content)
    with pytest.raises(ValueError, match=rf"{name}.*{words}" if words != ARRAY else words):
        items.read_texts(name, **options)


@pytest.mark.parametrize(
    "texts",
    [
        *(["42", "0.5"], ["1,234", "-12,500"], ["3, 4", "5, 6"], ["2024 1 3", "2024 1 4"]),
        *(["1.5 2.5", "3.5 cats"], ["infinity nan", "nan nan"], ["#cats 1.5", "#dogs"]),
        *(["2024-01-02", "2024-01-03"], ["[]", "[]"], [",", ","], ["#", "#"]),
    ],
)
def test_texts_of_numbers_that_are_no_array_are_read(texts):
    assert items.read_texts(write("x.txt", *texts)).texts == texts
    in_a_column = ["1.5 2.5", "3.5 4.5", " "]  # A model may say nothing.
    path = write("x.jsonl", *({"text": text} for text in in_a_column))
    assert items.read_texts(path).texts == in_a_column


def test_one_column_is_not_both_texts_and_prompts():
    path = write("qa.jsonl", {"id": "1", "text": "a"})
    prompts, texts = items.read_texts(path, prompts=True), items.read_texts(path)
    words = r"qa\.jsonl: is both the texts and their prompts.*--prompt_column and --text_column"
    with pytest.raises(ValueError, match=words):
        items.pair_texts(prompts, texts)
    items.pair_texts(items.read_texts(path, column="id", prompts=True), texts)
    with pytest.raises(ValueError, match=r"1 prompts for 2 texts.*columns 'answer' and 'prompt'"):
        items.pair_texts(prompts, items.read_texts(write("other.txt", "b", "c")))


def touch(folder, names):
    for name in names.split():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()


def test_pictures_are_listed_as_people_count(tmp_path):
    with pytest.raises(ValueError, match=r"holds no pictures \(\.png"):
        items.list_images(tmp_path)
    with pytest.raises(ValueError, match="absent: there is no such folder"):
        items.list_images(tmp_path / "absent")
    touch(tmp_path, "img1.png img2.PNG img02.jpg img10.jpeg Z1.webp a.gif b.bmp 7.png t.TIFF t.tif")
    touch(tmp_path, "u.jfif notes.txt .hidden.png img3.png.part")
    (tmp_path / "folder.png").mkdir()
    order = "7.png a.gif b.bmp img1.png img02.jpg img2.PNG img10.jpeg t.tif t.TIFF u.jfif Z1.webp"
    assert [path.name for path in items.list_images(tmp_path)] == order.split()


def test_pictures_that_are_not_read_are_left_out_with_a_warning(tmp_path):
    """In folders below, or in formats that Pillow may not decode; hidden ones are ignored."""
    touch(tmp_path, "a.png prompts.csv b/1.png b/2.tif b/.3.png c/4.heic d/notes.txt")
    touch(tmp_path, ".hidden/5.png x.HEIC y.svg .hidden.psd")
    words = f"5 pictures are left out, as they lie in folders below {tmp_path}, beside a folder"
    with pytest.warns(UserWarning, match=rf"{words} .*: 1\.png, 2\.tif, 4\.heic and 2 more\. "):
        assert items.list_images(tmp_path) == [tmp_path / "a.png"]
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=f"holds no pictures .* {words}"):
        items.list_images(tmp_path)


def test_a_picture_of_all_samples_is_left_out(tmp_path):
    """GenEval writes one beside the samples of each prompt."""
    touch(tmp_path, " ".join(f"{k:05d}/grid.png {k:05d}/samples/0.png" for k in range(2)))
    with pytest.warns(UserWarning, match="2 pictures are left out, .* beside a folder of samples"):
        images = items.list_images(tmp_path, below=True)
    assert items.pair_images(prompts_of({}, 2), images)[1] == [0, 1]
    assert [image.parent.name for image in images] == ["samples", "samples"]


def prompts_of(columns, n=4):
    """Four prompts, or as many as the table's columns have."""
    n = len(next(iter(columns.values()), [None] * n))
    columns = {"prompt": [f"text {index}" for index in range(n)]} | columns
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return items.Texts(columns["prompt"], "prompt", pathlib.Path("p.csv"), list(enumerate(rows, 2)))


def paired(columns, names, column=None):
    """The row of the prompt of each picture, None of one that is left out, and how, in words."""
    names = names.split(", ") if "," in names else names.split()
    images = [pathlib.Path("images", name if "." in name else f"{name}.png") for name in names]
    found, rows, column, how = items.pair_images(prompts_of(columns), images, column=column)
    row_of = dict(zip(found, rows, strict=True))
    return [row_of.pop(image, None) for image in images], column, how


FOUR, IDS = "1 2 3 4", {"id": ["7", "2", "10", "1"]}
NAMED = ["3.png", "some/4.png", "1.png", "C:\\dos\\2.png"]
OTHER = {"other": [2, 1, 3, 4]}
FIRST = ["a red car", "an old house", "a wet dog"]
HILL = [f"{scene} on a hill in the morning light" for scene in FIRST[:2]]
CUT = "ada_a_red_car_on_a_hill_in_the_m"
LONG = "it's a big old house in the café, at night"
SLUGS = ["A red car", "an old house", "2 dogs", "3 dogs", LONG]
SEEDS = " ".join(f"seed_{j}/{k}" for j in range(4) for k in range(4))
PAIRED = {  # The columns, the names of the pictures, the rows of their prompts, and how.
    "the order": ({}, FOUR, [0, 1, 2, 3], "order"),
    "the order of other numbers": ({}, "0_9 1_8 2_7 3_6", [0, 1, 2, 3], "order"),
    "repeated numbers": ({"kind": ["1", "2"] * 2, "s": [*"abc4"]}, FOUR, [0, 1, 2, 3], "order"),
    "prompts that are numbers": ({"prompt": [*"4321"]}, FOUR, [0, 1, 2, 3], "order"),
    "numbers of no known name": ({"photograph": [1, 2, 3, 4]}, FOUR, [0, 1, 2, 3], "order"),
    "a column of names": ({"file_name": NAMED} | OTHER, FOUR, [2, 3, 0, 1], "column 'file_name'"),
    "of numbers": ({"Image": [3, 4, 1, 2]} | OTHER, FOUR, [2, 3, 0, 1], "image column 'Image'"),
    "of no known name": ({"photograph": NAMED}, FOUR, [2, 3, 0, 1], "image column 'photograph'"),
    "that is named": ({"image": NAMED} | OTHER, FOUR, [1, 0, 2, 3], "image column 'other'"),
    "without ending": (
        *({"image": ["1.jpg", "2", "1.png", "3"]}, "1.png 1.jpg 2.png 3.png", [2, 0, 1, 3]),
        "image column 'image'",
    ),
    "number from 0": ({}, "000_0 000_1 001_0 002_0 003_0", [0, 0, 1, 2, 3], "from 0 at the start"),
    "number from 1": ({}, "p_4_0 p_1_5 p_2_5 p_3_5 p_3_6", [3, 0, 1, 2, 2], "from 1 at the start"),
    "an id": (IDS, "10_0 1_0 1_1 7_0 2_0", [2, 3, 3, 0, 1], "column 'id' at the start"),
    "after a word": (IDS, "img010-s1 img001-s1 img007-s1 img002-s1 img002-s2", [2, 3, 0, 1, 1], ""),
    "a folder": (IDS, "10/a 1/a 7/b 7/c 2/a", [2, 3, 0, 0, 1], "column 'id' .* of the folders"),
    "as many": (IDS, "10/a 1/a 7/b 2/a", [2, 3, 0, 1], "folders, 1 pictures a prompt"),
    "a category": ({"kind": ["1", "2"] * 2}, "1_a 1_b 2_a 2_b 3_a 4_a", [0, 0, 1, 1, 2, 3], ""),
    "a prompt": ({}, "text_1/0 text_0/0 text_3/1 text_2/1", [1, 0, 3, 2], "text of the prompt"),
    "seeds": ({}, SEEDS, [*range(4)] * 4, ""),
}
BY_TEXT = {  # The prompts, the names of the pictures, and the rows of their prompts.
    "slugs": (SLUGS[:3], "an_old_house 2_dogs a_red_car", [1, 2, 0]),
    "samples": (SLUGS[:2], "an-old-house_0 an-old-house_1 a-red-car_0 a-red-car_1", [1, 1, 0, 0]),
    "numbers of both": (SLUGS[2:4], "2_dogs_3 3_dogs_2", [0, 1]),
    "cut": (SLUGS, "2_dogs its_a_big_old_hou a_re 3_dogs an_old_house", [2, 4, 0, 3, 1]),
    "another form": (SLUGS[3:], "its_a_big_old_house_in_the_café_at_night 3_dogs", [1, 0]),
    "a seed before": (SLUGS[:2], "s1-an old house, s7-an old house, s1-a red car", [1, 1, 0]),
    "number and seed": (FIRST, "7-70-a wet dog, 8-71-a red car, 9-72-an old house", [2, 0, 1]),
    "cut and a hash": (
        HILL,
        f"{CUT}_9e3779b97f4a7c15_0 ada_an_old_house_on_a_hi_b38c1b2f_0",
        [0, 1],
    ),
    "one within another": (["a car", "a car at sea"], "a_car_at_sea_1 a_car_1", [1, 0]),
    "the same words": (["dog bites man", "man bites dog"], "man_bites_dog dog_bites_man", [1, 0]),
    "folders": (SLUGS[:2], "an_old_house/0 an_old_house/1 a_red_car/0", [1, 1, 0]),
    "folders and seeds": (FIRST[:2], "an-old-house/seed42 a-red-car/seed41", [1, 0]),
    "some words": (SLUGS[:2], "house_a car_b", [1, 0]),
}
PAIRED |= {
    name: ({"prompt": texts}, names, rows, "text of the prompt in the names")
    for name, (texts, names, rows) in BY_TEXT.items()
}
PAIRED |= {  # These names say nothing of prompts.
    names: ({"prompt": [*SLUGS[:2], "a photo"]}, names, [0, 1, 2], "order")
    for names in ("1 2 3", "photo_1 photo_2 photo_3", "x y z")
}


@pytest.mark.parametrize("name", PAIRED)
def test_pictures_are_paired_with_their_prompts(name):
    columns, names, expected, how = PAIRED[name]
    named = "other" if name == "that is named" else None
    rows, column, by = paired(columns, names, named)
    assert rows == expected and re.search(how, by)
    assert column == (by.split("'")[1] if by.startswith("image column") else None)
    if "id" in columns:  # The same where the column is named, or is one that names pictures.
        assert paired(columns, names, "id")[0] == paired({"image": columns["id"]}, names)[0] == rows


def test_pictures_that_are_not_named_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="does not name 3 of 4 pictures.*: 1.png, 3.png, 4.png"):
        assert paired({"image": ["2.png"]}, FOUR)[0] == [None, 0, None, None]


ABSENT = ["1.png", *(f"{n}.jpg" for n in range(5, 10))]
ALIKE = " ".join([*(f"a_1_{k}" for k in range(9)), "a_2_0 b_0 c_0"])
CATS = {"prompt": ["a cat"] * 2 + ["a dog"] * 2}
NOT_PAIRED = {  # The columns, the names of the pictures, and words of the error.
    "named twice": (
        *({"image": ["1.png", "2.png", "x/1.png", "4.png"]}, FOUR),
        r"p\.csv: column 'image' names pictures twice: 1\.png",
    ),
    "no names": (
        *({"path": ["train", "train", "test", "test"]}, FOUR),
        "by the column 'path' at .* 4 of 4 pictures match no",
    ),
    "missing": (
        *({"image": ABSENT}, FOUR),
        r"column 'image' should name pictures, .*5 of 6 names .* 5\.jpg, 6\.jpg, 7\.jpg and 2 more",
    ),
    "of no known name": (
        *({"photograph": ["1.png", "2.png", "3.png", "5.jpg"]}, FOUR),
        "'photograph' should name pictures, but 1 of 4 names",
    ),
    "of two pictures": (
        *({"image": ["1", "2", "1.png", "3"]}, "1.png 1.jpg 2.png 3.png"),
        "1 of 4 names match no picture in the folder: 1. A name",
    ),
    **{
        f"blank {blank}": (
            *({"image": ["4.png", blank, "1.png", "2.png"]}, FOUR),
            "line 3: expected the name of a picture in 'image'",
        )
        for blank in (" ", None, True)
    },
    "another number": ({"prompt": [*"abc"]}, FOUR, "3 prompts for 4 pictures, whose names do"),
    "no number": ({}, "a b c d e", "each belongs to"),
    "a prompt without pictures": ({}, "0_0 0_1 1_0 1_1 2_0", "0 of 5 pictures .* 1 of 4 prompts"),
    "a picture too many": ({}, "0_0 1_0 2_0 3_0 4_0", "1 of 5 pictures match no prompt"),
    "an unknown id": (IDS, "7_a 2_a 10_a 1_a 3_a", "'id' .*1 of 5 pictures match no prompt"),
    "ids 1 and 01": ({"id": ["1", "01", "2", "3"]}, "1_0 01_0 2_0 3_0 3_1", "which prompt each"),
    "ids that begin alike": ({"id": ["a", "a_1", "b", "c"]}, ALIKE, "9 of 12 pictures match no pr"),
    "samples as prompts": (
        *({}, "0_1 1_2 2_3 3_0 0_2 1_3"),
        "at the start .* at the end of the names disagree",
    ),
    "samples before": ({}, "0_000 0_001 1_002 1_003 1_000", "2 of 4 prompts"),
    "words beside numbers": (
        *({"id": ["fox", "owl", "cat", "elk"]}, "0_owl 1_owl 2_cat 3_elk 3_fox"),
        "from 0 at the start .*'id' at the end of the names disagree",
    ),
    "ids of another order": ({"id": ["3", "2", "1", "0"]}, "0_a 1_a 2_a 3_a 3_b", "disagree"),
    "ids from 1": ({"id": ["1", "2", "3", "4"]}, "0_a 1_a 2_a 3_a 3_b", "from 0 .*'id' .*disagree"),
    "ids, as many": (IDS, "1_0 2_0 7_0 10_0", "the order and the column 'id' at the start of"),
    "seeds, as many": ({}, "3_1 5_0 7_3 8_2", "the order and the number of the prompt from 0"),
    "a word and the order": (
        *({"prompt": SLUGS[:3]}, "house x y"),
        "and the text of the prompt .*disagree.*--image_column",
    ),
    "texts and the order": (CATS, "a_dog_0 a_dog_1 a_cat_0 a_cat_1", "and the text of the prompt"),
    "numbers and texts": (
        *({"prompt": SLUGS[:3]}, "0_2_dogs 1_an_old_house 2_a_red_car"),
        "and the number of the prompt from 0 .*disagree.*--image_column",
    ),
}


@pytest.mark.parametrize("name", NOT_PAIRED)
def test_no_prompt_of_a_picture_is_guessed(name):
    columns, names, words = NOT_PAIRED[name]
    with pytest.raises(ValueError, match=words):
        paired(columns, names)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no column 'absent' for its pictures"):
        paired(IDS, FOUR, "absent")


def encoded(picture, format="PNG", **options):
    stream = io.BytesIO()
    picture.save(stream, format, **options)
    return stream.getvalue()


@pytest.fixture
def image():
    return pytest.importorskip("PIL.Image")


GREY = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
COLOURS = np.stack([GREY, 255 - GREY, GREY // 2], axis=-1)


def test_a_picture_keeps_its_colours_and_size(image):
    content = encoded(image.fromarray(COLOURS))
    np.testing.assert_array_equal(pictures.decode_image(content, name="x"), COLOURS)
    palette = image.fromarray(COLOURS).quantize(24)
    got = pictures.decode_image(encoded(palette), name="x")
    np.testing.assert_array_equal(got, np.asarray(palette.convert("RGB")))
    # Sixteen bits are scaled, not clipped; values up to 255 are of eight bits in any file.
    wide = GREY.astype(np.uint16)
    for grey in (GREY, wide * 257, wide, wide.astype(np.int32) * 257, wide.astype(np.int32)):
        got = pictures.decode_image(encoded(image.fromarray(grey), "TIFF"), name="x")
        np.testing.assert_array_equal(got, np.repeat(GREY[:, :, None], 3, axis=2))
    for outside in (-1, 65536):
        grey = np.full((4, 6), outside, np.int32)
        with pytest.raises(ValueError, match="x: .*expected colours of 8 or 16 bits, received wid"):
            pictures.decode_image(encoded(image.fromarray(grey), "TIFF"), name="x")


def test_a_picture_is_turned_as_its_camera_was(image):
    exif = image.Exif()
    exif[0x0112] = 6  # Turned by 90 degrees: to be shown, it is turned clockwise.
    content = encoded(image.fromarray(COLOURS), exif=exif)
    got = pictures.decode_image(content, name="x")
    np.testing.assert_array_equal(got, np.rot90(COLOURS, -1))


def test_what_is_transparent_is_put_on_white(image):
    alpha = np.zeros((4, 6, 1), np.uint8)
    alpha[:, 3:] = 255
    content = encoded(image.fromarray(np.concatenate([COLOURS, alpha], axis=2)))
    got = pictures.decode_image(content, name="x")
    assert (got[:, :3] == 255).all()
    np.testing.assert_array_equal(got[:, 3:], COLOURS[:, 3:])
    palette = image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    got = pictures.decode_image(encoded(palette, transparency=0), name="x")
    np.testing.assert_array_equal(got, [[[255, 255, 255], [40, 50, 60]]])


def test_tiff_is_read_and_real_numbers_are_refused(image):
    pages = [image.fromarray(COLOURS), image.new("RGB", (6, 4), "red")]
    content = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    np.testing.assert_array_equal(pictures.decode_image(content, name="x"), COLOURS)
    content = encoded(image.fromarray(GREY.astype(np.float32) / 255), "TIFF")
    with pytest.raises(ValueError, match="x: cannot be decoded .* received real numbers"):
        pictures.decode_image(content, name="x")


@pytest.mark.parametrize("turned", [False, True])
def test_a_square_is_the_middle_and_the_shorter_side_fits(image, turned):
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = [200, 100, 50]
    wide = wide.transpose(1, 0, 2) if turned else wide
    for side in (8, 4):
        got = pictures.decode_image(encoded(image.fromarray(wide)), name="x", side=side)
        assert got.shape == (side, side, 3)
        # The cubic kernel rings at the two edges by a few steps of 255.
        np.testing.assert_allclose(got[1:-1, 1:-1] - np.array([200.0, 100, 50]), 0, atol=3)


def test_without_pillow_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"needs Pillow.*: pip install -e '\.\[embed\]'"):
        pictures.decode_image(b"", name="x")


TABLE = ("file_name,prompt", "a.png,p", "b.png,q")


def geneval(folder):
    for k, prompt in enumerate("pq"):
        touch(folder, f"0000{k}/grid.png 0000{k}/samples/0000.png 0000{k}/samples/0001.png")
        write(f"0000{k}/metadata.jsonl", {"tag": "two", "include": [], "prompt": prompt})


def imagefolder(folder):
    touch(folder, "train/b.png train/a.png")
    named = [{"file_name": f"{x}.png", "text": p} for x, p in (("b", "q"), ("a", "p"))]
    write("train/metadata.jsonl", *named)


def described_table(folder):
    touch(folder, "b.png a.png")
    write("metadata.csv", *TABLE)


def named_folders(folder):
    touch(folder, "p/0.png p/1.png q/0.png q/1.png")


DESCRIBED = {
    "GenEval": (geneval, ["p/0000", "p/0001", "q/0000", "q/0001"]),
    "imagefolder": (imagefolder, ["p/a", "q/b"]),
    "a table": (described_table, ["p/a", "q/b"]),
    "folders named by prompts": (named_folders, ["p/0", "p/1", "q/0", "q/1"]),
}


@pytest.mark.filterwarnings("ignore:2 pictures are left out, .* beside a folder of samples")
@pytest.mark.parametrize("name", DESCRIBED)
def test_prompts_of_pictures_are_in_their_folder(tmp_path, name):
    make, expected = DESCRIBED[name]
    make(tmp_path)
    prompts = items.read_texts(tmp_path, prompts=True)
    images, rows, *_ = items.pair_images(prompts, items.list_images(tmp_path, below=True))
    found = [f"{prompts.texts[k]}/{image.stem}" for image, k in zip(images, rows, strict=True)]
    assert sorted(found) == expected
    assert items.are_described(tmp_path) == (name != "folders named by prompts")


UNDESCRIBED = {  # The rows of metadata.csv, and of metadata.jsonl, in a folder of pictures.
    "a picture without a row": ("a.png b.png c.png", TABLE, []),
    "no names": ("a.png b.png", ("prompt", "p", "q"), []),
    "no prompts": ("a.png b.png", ("file_name,kind", "a.png,1", "b.png,2"), []),
    "answers": ("a.png", ("file_name,prompt,answer", "a.png,p,x"), []),
    "two files": ("a.png b.png", TABLE, [{"file_name": "a.png", "prompt": "other"}]),
    "a part": ("a.png b.png", (), [{"file_name": "a.png", "prompt": "p"}]),
}


@pytest.mark.parametrize("name", UNDESCRIBED)
def test_prompts_in_a_folder_are_not_taken_unless_all_pictures_have_one(tmp_path, name):
    names, table, rows = UNDESCRIBED[name]
    touch(tmp_path, names)
    for file, lines in (("metadata.csv", table), ("metadata.jsonl", rows)):
        if lines:
            write(file, *lines)
    assert not items.are_described(tmp_path)


def test_pictures_in_folders_alone_name_the_flag_that_takes_their_names(tmp_path):
    named_folders(tmp_path)
    with pytest.raises(ValueError, match=rf"holds no pictures .*add --prompts={tmp_path} "):
        items.list_images(tmp_path)
    images = [tmp_path.parent / "b/r/0.png", tmp_path.parent / "b/s/0.png"]
    with pytest.raises(ValueError, match=rf"own pictures, .* --prompts={tmp_path},.*/b\."):
        items.pair_images(items.read_texts(tmp_path, prompts=True), images)
