"""What people pass from Python as outputs and prompts: pictures, columns, ids and classes."""

import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import condvendi_jax as cv
from condvendi_jax import encoders
from condvendi_jax.encoders import embedding

ONCE = {"orders": [2], "errors": False}
PROMPTS = ["p", "p", "q", "q"]
COLOURS = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 0, 0)]
PICTURES = [Image.new("RGB", (4, 4), colour) for colour in COLOURS]
KERNEL = cv.Gaussian(1.0)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Hues:
    """The mean colour of a picture."""

    name = "hues"

    def encode(self, pictures):
        assert all(picture.dtype == np.uint8 for picture in pictures)
        return np.array([picture.mean(axis=(0, 1)) / 25 for picture in pictures])


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The paths of the pictures; embeddings are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for row, picture in enumerate(PICTURES):
        picture.save(tmp_path / f"{row}.png")
    return [tmp_path / f"{row}.png" for row in range(len(PICTURES))]


def conditional(outputs, prompts=PROMPTS, **options):
    result = cv.evaluate(outputs, prompts, **ONCE, **options)
    return float(result.order(2).decomposition.scores.conditional)


def score(outputs, prompts=PROMPTS, **options):
    return conditional(outputs, prompts, output_kernel=KERNEL, **options)


GIVEN = {
    "paths": lambda files: files,
    "names": lambda files: [*map(str, files)],
    "an array of names": lambda files: np.array([*map(str, files)]),
    "a column": lambda files: pd.Series(files),
    "of Pillow": lambda files: PICTURES,
    "of other modes": lambda files: (
        [p.convert("RGBA") for p in PICTURES[:2]] + [p.quantize(2) for p in PICTURES[2:]]
    ),
    "lists": lambda files: [files[:2], [str(files[2]), PICTURES[3]]],
}


@pytest.mark.parametrize("name", GIVEN)
def test_pictures_are_embedded(name, files, monkeypatch):
    rows, given = np.array(COLOURS) / 25, GIVEN[name](files)
    expected = score(rows.astype(np.float32))
    prompts = ["p", "q"] if name == "lists" else PROMPTS
    assert score(given, prompts, encoder=Hues()) == pytest.approx(expected)
    monkeypatch.setattr(encoders, "load_efficientnet", Hues)
    found = cv.compare({"a": given}, prompts, **ONCE)
    assert found.evaluations["a"].encoder["image_encoder"] == "hues"
    assert score(given, prompts) == pytest.approx(expected)


def test_a_picture_of_pillow_is_known_by_its_content(files, monkeypatch):
    rows = embedding.embed(PICTURES, Hues(), kind="images")
    np.testing.assert_allclose(rows, np.array(COLOURS) / 25, rtol=1e-6)
    monkeypatch.setattr(Hues, "encode", None)
    kept = embedding.embed([PICTURES[3].copy(), PICTURES[1]], Hues(), kind="images")
    np.testing.assert_array_equal(kept, rows[[0, 1]])


class Letters:
    def __init__(self):
        self.seen = []

    def encode(self, texts):
        self.seen += texts
        return np.array([[len(text)] for text in texts])


@pytest.fixture
def letters(monkeypatch):
    """The encoder of texts, with what it has seen."""
    encoder = Letters()
    monkeypatch.setattr(encoders, "load_minilm", lambda: encoder)
    return encoder


def test_prompts_of_pictures_that_differ_are_embedded_as_texts(files, letters):
    score(files, ["a", "bb", "ccc", "dddd"], encoder=Hues())
    assert letters.seen == ["a", "bb", "ccc", "dddd"]


def test_the_name_of_a_picture_is_never_scored_as_a_text(files, letters):
    names = [*map(str, files)]
    for outputs, row in (
        ([*names[:3], "absent.png"], "'absent.png' in row 3"),
        ([f"x/{name}" for name in names], "in row 0"),
        (["text", *names[1:]], "'text' in row 0"),
        (["text", "other", "more", names[0]], "'text' in row 0"),
        ([*files[:3], None], "'None' in row 3"),
    ):
        with pytest.raises(ValueError, match=rf"expected a picture in every row, .*{row}, which"):
            cv.evaluate(outputs, PROMPTS, **ONCE)
    with pytest.raises(TypeError, match="received one beside arrays; expected texts or pictures"):
        cv.compare({"a": files, "b": ["s", "t", "u", "v"]}, PROMPTS)
    mixed = ["a", "The file is logo.png", "c", "d"]
    assert "text_encoder" in cv.evaluate(mixed, PROMPTS, **ONCE).encoder


def mends(call, **names):
    """What `call` gives after each line of Python that its error names; `then` joins two."""
    with pytest.raises((TypeError, ValueError)) as refused:
        call(**names)
    found = []
    for lines in re.findall(r"`[^`]+`(?:[^`.;]*then `[^`]+`)?", str(refused.value)):
        scope = {"np": np, "cv": cv, **names}
        exec("\n".join(re.findall("`([^`]+)`", lines)), scope)
        found.append(call(**{name: scope[name] for name in names}))
    return found


ARRAYS = [np.asarray(picture) for picture in PICTURES]
UNEVEN = [*PICTURES[:3], PICTURES[3].resize((4, 5))]
GREY = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
IDS = np.array([[3, 7], [5, 5], [3, 9], [2, 2]])
OF_IDS = [4 / (2 * (1 / 2) + 2), (IDS.astype(np.float32), [*range(4)])]
MENDS = {  # Outputs, prompts, and for each line of the error the score, or what has it.
    "an array of pictures": (np.stack(ARRAYS), PROMPTS, [(PICTURES, PROMPTS)]),
    "arrays of pictures": (ARRAYS, PROMPTS, [(PICTURES, PROMPTS)]),
    "pictures of other sizes": ([*map(np.asarray, UNEVEN)], PROMPTS, [(PICTURES, PROMPTS)]),
    "grey pictures, or embeddings": (
        *(GREY, PROMPTS),
        [([*map(Image.fromarray, GREY)], PROMPTS), (GREY.astype(np.float32), PROMPTS)],
    ),
    "ids, or coordinates": (IDS, np.arange(4), OF_IDS),
    "of 16 bits": (IDS.astype(np.int16), np.arange(4), OF_IDS),
    "in lists": (IDS.tolist(), np.arange(4), OF_IDS),
    "in a table": (pd.DataFrame(IDS), np.arange(4), OF_IDS),
    "labels in uneven lists": ([[1, 2], [3]], ["p", "q"], [([1, 2, 3], ["p", "p", "q"])]),
}


@pytest.mark.parametrize("name", MENDS)
def test_what_may_be_two_things_is_refused_with_the_lines_that_mend_it(name, files, monkeypatch):
    monkeypatch.setattr(encoders, "load_efficientnet", Hues)
    outputs, prompts, meant = MENDS[name]
    expected = [conditional(*case) if isinstance(case, tuple) else case for case in meant]
    assert mends(conditional, outputs=outputs, prompts=prompts) == pytest.approx(expected)


def test_integers_under_a_given_kernel_and_of_8_bits_are_coordinates():
    wide = IDS.astype(np.float32)
    assert score(IDS) == pytest.approx(score(wide))
    assert conditional(IDS.astype(np.int8)) == pytest.approx(conditional(wide))
    with pytest.raises(ValueError, match=r"b: outputs: received integers \[4, 2\]"):
        cv.compare({"a": wide, "b": IDS}, list("abcd"))


@pytest.mark.parametrize("labels", [[0, -1, -1, -1], np.array([0, -1, -1, -1])])
def test_noise_of_a_clustering_is_no_class_unless_the_user_says_so(labels):
    apart, together = mends(conditional, outputs=labels)
    assert apart == pytest.approx(2) and together == pytest.approx(conditional([0, 1, 1, 1]))
    make = cv.Similarities.from_classes
    apart, together = mends(
        lambda classes: conditional(make(classes, PROMPTS), None), classes=labels
    )
    assert apart == pytest.approx(2) and together == pytest.approx(conditional([0, 1, 1, 1]))
    for fine in ([0, -1, 1, 1], [-2, -1, -1, 0]):
        assert conditional(fine) > 1
    with pytest.raises(ValueError, match="received -1 in 2 rows"):
        make(["a", "-1", "-1", "b"])


TEXTS = ["a", "bb", "ccc", "a"]
COLUMNS = {
    "bytes": lambda texts: [text.encode() for text in texts],
    "an array of bytes": lambda texts: np.array(texts, "S"),
    "bytes as HDF5 gives them": lambda texts: np.array([text.encode() for text in texts], object),
    "StringDType": lambda texts: np.array(texts, np.dtypes.StringDType()),
    "a column": pd.Series,
    "a column of categories": lambda texts: pd.Series(texts, dtype="category"),
    "Arrow": lambda texts: pytest.importorskip("pyarrow").array(texts),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_texts_are_texts(name, files, letters):
    column = COLUMNS[name]
    value = score(column(TEXTS), column(PROMPTS))
    assert {*letters.seen} == {*TEXTS}
    assert value == pytest.approx(score(np.array([[1.0], [2], [3], [1]], np.float32)))


def test_lists_of_answers_by_group_are_answers(files, letters):
    data = pd.DataFrame({"prompt": PROMPTS, "output": TEXTS})
    lists = data.groupby("prompt")["output"].apply(list)
    expected = pytest.approx(score(TEXTS))
    assert score(lists, lists.index) == expected
    assert score(data[["output"]]) == expected
    table = np.array(TEXTS).reshape(2, 2)
    for dtype in (None, object, np.dtypes.StringDType(), "S"):
        assert score(table.astype(dtype or "U"), ["p", "q"]) == expected
    frame = pd.DataFrame(table, index=["p", "q"])
    assert score(frame, frame.index) == expected
    for bad in (frame.mask(frame == "ccc"), frame.assign(asked=frame.index)):
        with pytest.raises(TypeError, match="Keep the answers"):
            score(bad, frame.index)
    (value,) = mends(score, outputs=frame.mask(frame == "ccc"), prompts=frame.index)
    assert value == pytest.approx(score([["a", "bb"], ["a"]], ["p", "q"]))
    assert score([[b"a", b"bb"], [b"ccc", b"a"]], ["p", "q"]) == expected


@pytest.mark.parametrize("dtype", [object, "string", "list"])
@pytest.mark.parametrize("role", ["outputs", "prompts"])
def test_missing_texts_are_named_with_their_row(dtype, role, files, letters):
    data = pd.DataFrame(
        {"outputs": TEXTS, "prompts": PROMPTS}, dtype=None if dtype == "list" else dtype
    )
    data.loc[2, role] = None
    made = {name: data[name].tolist() if dtype == "list" else data[name] for name in data}
    for encoder in (None, letters):
        with pytest.raises(
            ValueError, match=rf"^{role}: .*received .* in row 2.*`data\.dropna\(\)`"
        ):
            cv.evaluate(made["outputs"], made["prompts"], encoder=encoder, **ONCE)
    data = data.dropna()
    assert cv.evaluate(data["outputs"], data["prompts"], **ONCE).n == 3


ASKED = [f"q{i}" for i in range(8) for _ in range(3)]
SAID = ["yes", "no", "yes"] * 8
REFUSED = {  # Outputs, prompts, and words that say what to pass.
    "bytes that are no text": ([b"\xe4", b"a"], ["p", "q"], "utf-8"),
    "a dictionary of lists": (dict.fromkeys(ASKED, SAID[:3]), None, r"list\(outputs.values\(\)\)"),
    "one prompt as a text": (SAID, "Do you?", r"expected 24, .* `prompts = \[prompt\]"),
    "prompts that are pairs": (
        np.eye(24, dtype=np.float32),
        [(name, 0) for name in ASKED],
        "For texts, numbers or labels",
    ),
    "clusters with NaN": (np.array([0, 1, np.nan] * 8), ASKED, r"NaN is no class.*astype\(int\)"),
    "chats": ([[{"role": "user", "content": "q"}]] * 24, None, r"\[row\[-1\]\['content'\] for row"),
    "chats of several lengths": ([[{"role": "r"}] * k for k in (1, 2)], ["p"] * 2, "dictionaries"),
    "records": ([{"prompt": "p", "answer": "a"}] * 24, ASKED, r"\[row\['answer'\] for row in outp"),
    "a table without prompts": (pd.DataFrame({"q": ASKED, "a": SAID}), None, "Keep the answers"),
    "a table with prompts": (pd.DataFrame({"q": SAID, "a": SAID}), ASKED, "Keep the answers"),
    "tokens in place of texts": (
        [[12, 7, 9], [4, 4], [12, 7, 9]] * 8,
        ASKED,
        "decode tokens to texts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_list_of_outputs_is_refused_with_what_to_pass(name):
    outputs, prompts, words = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=words):
        cv.evaluate(outputs, prompts, **ONCE)


def test_pairs_have_a_kernel_by_its_short_name():
    rows = np.eye(4, dtype=np.float32)
    pairs = cv.Pairs(rows, kernel=KERNEL)
    assert pairs.kernels == cv.Pairs(rows, output_kernel=KERNEL).kernels
    assert cv.Pairs.of_models({"a": rows}, kernel=KERNEL)["a"].kernels == pairs.kernels
    with pytest.raises(TypeError, match="kernel: received beside output_kernel"):
        cv.Pairs(rows, kernel=KERNEL, output_kernel=KERNEL)
    with pytest.raises(
        TypeError, match=r"Pairs\.of_models: unknown keyword rul; did you mean rule"
    ):
        cv.Pairs.of_models({"a": rows}, rul="auto")
    with pytest.raises(TypeError, match="evaluate: unknown keyword kernel; did you mean output_ke"):
        cv.evaluate(rows, kernel=KERNEL)
