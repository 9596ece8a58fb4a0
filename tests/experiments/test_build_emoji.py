"""The builder of the emoji: what it makes of two designers of three emoji, and what it matches."""

import numpy as np
import pytest
from PIL import Image
from small_repositories import Corners, Texts, work

from experiments.builders import common, emoji

pytestmark = pytest.mark.slow

CONCEPTS = [emoji.Concept(code, f"name {code}", "group", "sub") for code in ("1a", "2b", "3c")]
COLOURS = np.array([[20, 9, 0], [10, 0, 0]], np.uint8)  # Of the drawings, by the designer.
INFO = {"license": {"spdx": "MIT"}, "author": {"url": "https://example.org"}}


def icon_set(designer, icons, characters=(), **more):
    """A designer's drawings: icons by name, each an entry of the package or empty."""
    entries = {name: {"body": f"<!-- {name} -->"} | entry for name, entry in icons.items()}
    return emoji.IconSet(designer, INFO, {"icons": entries, **more}, dict(characters))


@pytest.fixture
def build(monkeypatch, tmp_path):
    """Makes the set; a drawing is of one colour by its designer, and encoders need no weights."""
    found = {}
    for designer, codes in {"One": ["1a", "2b", "3c"], "Two": ["2b", "3c"]}.items():
        drawings = {code: f"{code} {designer}" for code in codes}
        found[designer] = icon_set(designer, dict.fromkeys(drawings.values(), {}), drawings)
    monkeypatch.setattr(emoji, "DESIGNERS", {"One": "one@1", "Two": "two@1"})
    monkeypatch.setattr(emoji, "load_icon_set", lambda designer, cache: found[designer])
    monkeypatch.setattr(emoji, "load_concepts", lambda cache: CONCEPTS)
    pictures = Corners()
    monkeypatch.setattr(common, "load_efficientnet", lambda: pictures)
    monkeypatch.setattr(common, "load_minilm", Texts)
    monkeypatch.setattr(common.importlib.metadata, "version", lambda package: "1")
    monkeypatch.setattr(emoji, "render", lambda svg: np.tile(COLOURS[int("Two" in svg)], (8, 8, 1)))

    def run(**values):
        work("emoji", tmp_path, **{"pictures": None, "overwrite": False} | values).make()
        if "pictures" not in values:
            with np.load(tmp_path / "emoji.npz", allow_pickle=False) as stored:
                return dict(stored), pictures.given

    return run


def test_a_set_has_a_row_a_drawing_and_is_embedded_once(build, monkeypatch):
    stored, given = build()
    assert stored["prompt_index"].tolist() == [0, 1, 1, 2, 2]
    assert stored["designer_index"].tolist() == [0, 0, 1, 0, 1]
    assert stored["prompt_texts"].tolist() == ["name 1a", "name 2b", "name 3c"]
    pictures = np.stack([np.tile(COLOURS[index], (8, 8, 1)) for index in stored["designer_index"]])
    rows = common.unit_rows(Corners().encode(pictures))
    np.testing.assert_allclose(stored["outputs"], rows, atol=1e-3)
    prompts = Texts().rows(stored["prompt_texts"].tolist())
    np.testing.assert_allclose(stored["prompt_embeddings"], prompts, atol=1e-3)
    assert stored["provenance"][:3].tolist() == ["one@1", "two@1", emoji.NAMES_PACKAGE]
    assert stored["provenance"][-1] == "tokenizers 1"
    assert given == build()[1] == 5
    # Other packages, or other drawings, are embedded anew.
    monkeypatch.setattr(common.importlib.metadata, "version", lambda package: "2")
    assert build()[1] == 10
    monkeypatch.setattr(emoji, "SIDE", 32)  # Part of every drawing.
    assert build()[1] == 15


def test_drawings_are_written_in_the_order_of_the_rows(build, tmp_path):
    folder = tmp_path / "drawings"
    build(pictures=str(folder))
    found = []
    for row in range(5):
        with Image.open(folder / f"{row}.png") as picture:
            assert picture.size == (64, 64)
            found.append(np.asarray(picture)[32, 32, 0])
    assert found == [20, 20, 10, 20, 10]
    with pytest.raises(ValueError, match="--pictures: .* holds pictures already"):
        build(pictures=str(folder))
    build(pictures=str(folder), overwrite=True)


def test_drawings_that_are_turned_withdrawn_or_misnamed_are_left_out():
    turned = {"turned": {"parent": "kept", "hFlip": True}, "alias": {"parent": "kept"}}
    found = icon_set(
        "Firefox OS", {"kept": {}, "gone": {"hidden": True}, "sunglasses": {}}, aliases=turned
    )
    drawn = [found.drawing(name) for name in ("kept", "alias", "turned", "gone", "sunglasses")]
    assert drawn == ["kept", "kept", None, None, None]


def test_a_drawing_is_matched_by_name_where_there_are_no_code_points():
    names = {"name1a": "1a", "other": "1a", "name2b": "2b", "name3c": "3c"}
    aliases = {"other": {"parent": "name 1a"}, "name-3c": {"parent": "name 2b"}}
    found = icon_set("One", {"name 1a": {}, "name 2b": {}}, aliases=aliases)
    assert emoji.match(found, CONCEPTS, names) == {"1a": "name 1a", "2b": "name 2b"}


def test_a_drawing_is_rendered_over_white():
    pytest.importorskip("resvg_py")
    icons = icon_set("One", {"half": {"body": '<path d="M0 0h8v16h-8z"/>'}, "blank": {}})
    picture = emoji.render(icons.svg("half"))
    assert picture.shape == (224, 224, 3)
    assert (picture[:, :111] == 0).all() and (picture[:, 113:] == 255).all()
    with pytest.raises(ValueError, match="the drawing is blank"):
        emoji.render(icons.svg("blank"))
