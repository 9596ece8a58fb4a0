"""A user's prompts, texts and pictures: read as they are, paired as they belong."""

import io
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from condvendi_jax.encoders import items

READ = {"prompts": items.read_prompts, "texts": items.read_texts}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def _jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["a cat\nä \u2028dog\n", "a cat\nä \u2028dog", "a cat\r\nä \u2028dog\r\n"],
    ids=["unix", "no last line end", "windows"],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_file_holds_a_prompt_a_line(write, content, mark):
    path = write("p.TXT", mark + content)
    assert items.read_prompts(path) == (["a cat", "ä \u2028dog"], None, path)
    assert items.read_texts(path) == ["a cat", "ä \u2028dog"]


def test_a_csv_file_is_read_as_spreadsheets_write_it(write):
    text = '\ufefffile_name,Prompt,other\r\nb.png,"a ""big"", red\ncat",1\r\na.png,dog,2\r\n'
    prompts = items.read_prompts(write("p.csv", text))
    assert prompts.texts == ['a "big", red\ncat', "dog"]
    assert prompts.images == ["b.png", "a.png"]


def test_a_jsonl_file_has_an_object_a_line(write):
    path = write(
        "p.jsonl", _jsonl({"caption": "ä\ncat", "image": "1.png"}, {"image": "2", "caption": "b"})
    )
    assert items.read_prompts(path) == (["ä\ncat", "b"], ["1.png", "2"], path)


ROW = {"text": "t", "caption": "c", "prompt": "p", "output": "o", "file_name": "f", "image": "i"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_are_found_by_their_names_or_named(write, suffix):
    def path(row):
        if suffix == "jsonl":
            return write("x.jsonl", _jsonl(row))
        return write("x.csv", ",".join(row) + "\n" + ",".join(row.values()) + "\n")

    row = dict(ROW)
    for column in ("prompt", "caption", "text"):
        assert items.read_prompts(path(row)).texts == [row.pop(column)]
    with pytest.raises(ValueError, match="no column prompt or caption or text for its prompts"):
        items.read_prompts(path(row))
    row = dict(ROW)
    for column in ("image", "file_name"):
        assert items.read_prompts(path(row)).images == [row.pop(column)]
    assert items.read_prompts(path(row)).images is None
    assert items.read_texts(path(ROW)) == ["o"]
    assert items.read_texts(path(ROW), column="caption") == ["c"]
    prompts = items.read_prompts(path(ROW), column="output", image_column="text")
    assert prompts[:2] == (["o"], ["t"])
    with pytest.raises(ValueError, match="no column 'absent' for its prompts; .* text, caption"):
        items.read_prompts(path(ROW), column="absent")
    with pytest.raises(ValueError, match="no column 'absent' for its pictures"):
        items.read_prompts(path(ROW), image_column="absent")


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.txt", "a\n\nb\n", "line 2: is blank"),
        ("x.txt", "a\nb\n \n", "line 3: is blank"),
        ("x.txt", "a\nb\n\n", "line 3: is blank"),
        ("x.txt", "", "holds no rows"),
        ("x.txt", b"a\nb\n\xe4\n", "line 3: is not UTF-8"),
        ("x.csv", "", "holds no rows"),
        ("x.csv", "text\n", "holds no rows"),
        ("x.csv", 'text\n"a\nb"\n\nc\n', "line 4: is blank"),
        ("x.csv", 'id,text\n1,"a\nb"\n2\n', "line 4: holds 1 cells, the header 2"),
        ("x.csv", "id,text\n1,a,b\n", "line 2: holds 3 cells, the header 2"),
        ("x.csv", 'text\na\n"b"c\n', "line 3: "),
        ("x.csv", "text,text\na,b\n", "line 1: names the column 'text' twice"),
        ("x.csv", "prompts\na\n", "columns found are prompts"),
        ("x.jsonl", "", "holds no rows"),
        ("x.jsonl", '{"text": "a"}\n\n', "line 2: is blank"),
        ("x.jsonl", '{"text": "a"}\n{"text": \n', "line 2: is not JSON"),
        ("x.jsonl", '["a"]\n', "line 1: expected an object"),
        (
            "x.jsonl",
            '{"text": "a"}\n{"id": 1}\n',
            "line 2: .* text in 'text', found nothing",
        ),
        ("x.jsonl", '{"text": "a"}\n{"text": 1}\n', "line 2: expected a text in 'text', found 1"),
        ("x.jsonl", '{"text": "a"}\n{"text": null}\n', "line 2: .* found null"),
        ("x.jsonl", '{"text": "a\\ud800"}\n', "line 1: .* surrogate"),
        ("x.json", "[]", r"expected a file ending in \.txt, \.csv, \.jsonl"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(write, what, name, content, words):
    with pytest.raises(ValueError, match=rf"{name}.*{words}"):
        READ[what](write(name, content))


def test_a_blank_prompt_is_refused_and_an_empty_answer_is_not(write):
    for name, content in (
        ("x.csv", 'text,id\na,1\n" ",2\n'),
        ("x.csv", 'text\na\n" "\n'),
        ("x.jsonl", _jsonl({"text": "a"}, {"text": " "})),
    ):
        path = write(name, content)
        with pytest.raises(ValueError, match="line [23]: 'text' is blank"):
            items.read_prompts(path)
        assert items.read_texts(path) == ["a", " "]


def test_one_row_without_its_picture_is_not_passed_over(write):
    path = write("x.jsonl", _jsonl({"prompt": "a"}, {"prompt": "b", "image": "b.png"}))
    with pytest.raises(ValueError, match="line 1: expected a text in 'image', found nothing"):
        items.read_prompts(path)


def test_files_without_columns_and_missing_files_are_named(write, tmp_path):
    path = write("x.txt", "a\n")
    with pytest.raises(ValueError, match=r"x\.txt: has no columns, received 'prompt'"):
        items.read_prompts(path, column="prompt")
    with pytest.raises(ValueError, match=r"x\.txt: has no columns, received 'image'"):
        items.read_prompts(path, image_column="image")
    with pytest.raises(ValueError, match=r"absent\.txt: there is no such file"):
        items.read_prompts(tmp_path / "absent.txt")


def test_the_home_folder_is_known(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write("x.txt", "a\n")
    write("1.png", "")
    assert items.read_prompts("~/x.txt").texts == ["a"]
    assert items.list_images("~") == [tmp_path / "1.png"]


# --- pictures ------------------------------------------------------------------------------------


def test_pictures_are_listed_as_people_count(tmp_path):
    names = [
        "img1.png",
        "img2.PNG",
        "img02.jpg",
        "img10.jpeg",
        "Z1.webp",
        "a.gif",
        "b.bmp",
        "7.png",
    ]
    for name in [*names, "notes.txt", ".hidden.png", "img3.png.part"]:
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "folder.png" / "below.png").touch()
    expected = [
        "7.png",
        "a.gif",
        "b.bmp",
        "img1.png",
        "img02.jpg",
        "img2.PNG",
        "img10.jpeg",
        "Z1.webp",
    ]
    assert [path.name for path in items.list_images(tmp_path)] == expected


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no pictures \(\.png"):
        items.list_images(tmp_path)
    with pytest.raises(ValueError, match="absent: there is no such folder"):
        items.list_images(tmp_path / "absent")


def _prompts(*images, n=None):
    texts = [f"text {index}" for index in range(n or len(images))]
    return items.Prompts(texts, list(images) or None, pathlib.Path("p.csv"))


PICTURES = [pathlib.Path("images", name) for name in ("1.png", "2.png", "3.png", "4.png")]


def test_pictures_are_paired_by_name():
    paired = items.pair_images(_prompts("3.png", "some/4.png", "1.png", "dos\\2.png"), PICTURES)
    assert [path.name for path in paired] == ["3.png", "4.png", "1.png", "2.png"]
    assert all(path in PICTURES for path in paired)


def test_pictures_that_are_not_named_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="does not name 3 of 4 pictures.*: 1.png, 3.png, 4.png"):
        assert items.pair_images(_prompts("2.png"), PICTURES) == [PICTURES[1]]


def test_pictures_named_twice_or_missing_are_refused():
    with pytest.raises(ValueError, match=r"p\.csv: names pictures twice: 1\.png"):
        items.pair_images(_prompts("1.png", "2.png", "x/1.png", "4.png"), PICTURES)
    with pytest.raises(ValueError, match=r"not there: 5\.png, 6\.png, 7\.png and 2 more"):
        items.pair_images(_prompts("1.png", *(f"{n}.png" for n in range(5, 10))), PICTURES)


def test_without_names_order_pairs_and_the_numbers_must_agree():
    assert items.pair_images(_prompts(n=4), PICTURES) == PICTURES
    with pytest.raises(ValueError, match=r"3 prompts for 4 pictures.*'text 0' and '1\.png'"):
        items.pair_images(_prompts(n=3), PICTURES)
    items.pair_texts(_prompts(n=2), ["a", "b"])
    with pytest.raises(ValueError, match=r"2 prompts for 1 texts.*'text 0' and 'a'"):
        items.pair_texts(_prompts(n=2), ["a"])


# --- decoding ------------------------------------------------------------------------------------


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
    np.testing.assert_array_equal(items.decode_image(content, name="x"), COLOURS)
    palette = image.fromarray(COLOURS).quantize(24)
    got = items.decode_image(_encoded(palette), name="x")
    np.testing.assert_array_equal(got, np.asarray(palette.convert("RGB")))
    grey = items.decode_image(_encoded(image.fromarray(GREY)), name="x")
    np.testing.assert_array_equal(grey, np.repeat(GREY[:, :, None], 3, axis=2))


def test_sixteen_bits_of_grey_are_scaled_and_not_clipped(image):
    content = _encoded(image.fromarray(GREY.astype(np.uint16) * 257))
    got = items.decode_image(content, name="x")
    np.testing.assert_array_equal(got, np.repeat(GREY[:, :, None], 3, axis=2))


def test_a_picture_is_turned_as_its_camera_was(image):
    exif = image.Exif()
    exif[0x0112] = 6  # Turned by 90 degrees: to be shown, it is turned clockwise.
    content = _encoded(image.fromarray(COLOURS), exif=exif)
    got = items.decode_image(content, name="x")
    np.testing.assert_array_equal(got, np.rot90(COLOURS, -1))


def test_what_is_transparent_is_put_on_white(image):
    alpha = np.zeros((4, 6, 1), np.uint8)
    alpha[:, 3:] = 255
    content = _encoded(image.fromarray(np.concatenate([COLOURS, alpha], axis=2)))
    got = items.decode_image(content, name="x")
    assert (got[:, :3] == 255).all()
    np.testing.assert_array_equal(got[:, 3:], COLOURS[:, 3:])
    palette = image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    got = items.decode_image(_encoded(palette, transparency=0), name="x")
    np.testing.assert_array_equal(got, [[[255, 255, 255], [40, 50, 60]]])


def test_of_an_animation_the_first_frame_is_taken(image):
    frames = [image.new("RGB", (5, 4), colour) for colour in ("red", "lime", "blue")]
    content = _encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    got = items.decode_image(content, name="x")
    np.testing.assert_array_equal(got, np.broadcast_to([255, 0, 0], (4, 5, 3)))


@pytest.mark.parametrize("turned", [False, True])
def test_a_square_is_the_middle_and_the_shorter_side_fits(image, turned):
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = [200, 100, 50]
    wide = wide.transpose(1, 0, 2) if turned else wide
    for side in (8, 4):
        got = items.decode_image(_encoded(image.fromarray(wide)), name="x", side=side)
        assert got.shape == (side, side, 3)
        # The cubic kernel rings at the two edges by a few steps of 255.
        np.testing.assert_allclose(got[1:-1, 1:-1] - np.array([200.0, 100, 50]), 0, atol=3)


@pytest.mark.parametrize("kept", [0, 30, -200])
def test_a_damaged_picture_is_named(image, kept):
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    content = _encoded(image.fromarray(noise))
    with pytest.raises(ValueError, match=r"x\.png: cannot be decoded as a picture"):
        items.decode_image(content[:kept], name="x.png")


def test_without_pillow_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"needs Pillow: pip install 'condvendi_jax\[embed\]'"):
        items.decode_image(b"", name="x")


# --- what is imported ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "modules", ["condvendi_jax", "condvendi_jax.encoders.items, condvendi_jax.encoders.embedding"]
)
def test_what_is_rarely_needed_is_imported_late(modules):
    program = f"""
import sys, {modules}
rare = ("flax", "tokenizers", "PIL", "safetensors", "matplotlib", "experiments")
print([name for name in rare if name in sys.modules], "condvendi_jax.encoders" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.split("\n")[0] == f"[] {modules != 'condvendi_jax'}"
