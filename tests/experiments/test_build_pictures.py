"""The builders of sets of pictures, on small repositories."""

import collections
import io
import itertools

import numpy as np
import pytest
from PIL import Image
from small_repositories import Corners, Texts, make, picture, repository, work

from experiments.builders import captions, common, emoji, kinds, t2i, video
from experiments.data import sets
from experiments.data.wordings import WORDINGS

pytestmark = pytest.mark.slow

COUNT, WORDS, STEP = 60, ("dog", "water", "street", "hill"), 2.0**-8
COLOURS = np.random.default_rng(0).integers(0, 256, (COUNT, 3))


def captions_of(number):
    first = f"A {WORDS[number % 4]} by a {WORDS[number % 4]} ."
    return [first, *(f"caption {k} of {number % 50}" for k in range(1, 5))]


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    """Of 61 photographs, of which one has no captions, and captions of one more, and odd ones."""
    folder = tmp_path_factory.mktemp("captions")
    names = [f"{number:03}.jpg" for number in range(COUNT)]
    files = {f"data/images/{n}": picture(tuple(c)) for n, c in zip(names, COLOURS, strict=True)}
    lines = [
        f"{name}#{k}\t{caption}"
        for number, name in reversed(list(enumerate([*names, "lost.jpg"])))
        for k, caption in enumerate(captions_of(number))
    ]
    lines += ["odd.jpg.1#0\tone of five", ""]
    clones = (
        repository(folder / "p", "a/p", files | {"data/images/dumb.jpg": b"-", "a.jpg": b"no"}),
        repository(folder / "t", "a/t", {"Flickr8k.token.txt": "\n".join(lines).encode()}),
    )
    constants = {"KINDS": ("dog", "water"), "OF_A_KIND": 5, "DRAWN": 22}
    constants |= {"PAIRS": 60 + 4 * 22 + 50, "PICTURE_STEP": STEP, "TEXT_STEP": 2 * STEP}
    return make(captions, folder, *clones, **constants), folder


def test_a_photograph_is_paired_with_its_first_caption(captioned):
    (found, stored, _, _, texts), _ = captioned
    pictures = np.tile(COLOURS[:, None, None], (1, 8, 8, 1))
    expected = common.unit_rows(Corners().encode(pictures))
    np.testing.assert_allclose(found.outputs, expected, atol=STEP)
    firsts = [captions_of(number)[0] for number in range(COUNT)]
    np.testing.assert_allclose(found.prompts, texts.rows(firsts), atol=2 * STEP)
    assert not ((stored["outputs"] / STEP % 1).any() or (stored["prompts"] / STEP / 2 % 1).any())
    assert found.labels["photograph"].tolist() == list(range(COUNT))
    types = [WORDS[n % 4] if n % 4 < 2 else "other" for n in range(COUNT)]
    assert found.labels["pictures"].tolist() == types
    # Equal captions are one prompt.
    same = found.labels["prompt"]
    assert len(set(same[:4])) == 4 and all(same[n] == same[n % 4] for n in range(COUNT))
    assert "60 photographs" in found.description


def test_drawn_photographs_have_all_five_captions_and_further_ones_make_the_pairs_up(
    captioned, monkeypatch
):
    """Of 38 photographs that were not drawn a second caption, and of 12 a third."""
    (whole, _, _, _, texts), folder = captioned
    found = sets.read_set(folder / "captioning.npz")
    number, caption = found.labels["prompt"], found.labels["caption"]
    assert len(found) == 5 * 22
    assert caption.tolist() == list(range(5)) * 22
    assert (np.diff(number) >= 0).all() and len(set(number)) == 22
    np.testing.assert_array_equal(found.prompts, whole.outputs[number])
    written = [captions_of(n)[k] for n, k in zip(number, caption, strict=True)]
    np.testing.assert_allclose(found.outputs, texts.rows(written), atol=2 * STEP)
    np.testing.assert_array_equal(found.labels["pictures"], whole.labels["pictures"][number])
    assert "five human captions of each of 22 photographs" in found.description

    monkeypatch.setattr(sets, "FOLDER", folder)
    found = sets.load_caption_pairs()
    photograph, count = found.labels["photograph"], COUNT + 4 * 22
    assert len(found) == count + 50 and f"{count + 50} pairs" in found.description
    assert sorted(np.bincount(photograph)) == [2] * 26 + [3] * 12 + [5] * 22
    np.testing.assert_array_equal(found.outputs, whole.outputs[photograph])
    number = np.array([np.sum(photograph[:k] == p) for k, p in enumerate(photograph)])
    written = [captions_of(n)[k] for n, k in zip(photograph, number, strict=True)]
    np.testing.assert_allclose(found.prompts, texts.rows(written), atol=2 * STEP)


def test_photographs_are_drawn_by_kind_and_then_at_random(monkeypatch):
    types = np.array(["dog"] * 10 + ["water"] * 3 + ["other"] * 20)
    monkeypatch.setattr(captions, "OF_A_KIND", 4)
    found = {}
    for count, seed in ((15, 0), (7, 0), (15, 1)):
        monkeypatch.setattr(captions, "DRAWN", count)
        monkeypatch.setattr(captions, "SEED", seed)
        drawn = found[count, seed] = captions.draw(types)
        assert len(set(drawn)) == count and (np.diff(drawn) > 0).all()
        assert np.sum(types[drawn] == "dog") >= 4 and np.sum(types[drawn] == "water") == 3
    assert set(found[7, 0]) <= set(found[15, 0]) != set(found[15, 1])
    assert "other" not in types[found[7, 0]]


def test_judgements_and_changed_captions_are_paired_with_photographs(tmp_path, monkeypatch):
    own = {
        "a.jpg": ["A Dog runs", "two dogs", "a red dog", "it runs", "a pet"],
        "b.jpg": [f"{word} men" for word in ("some", "one", "three", "four", "few")],
    }
    monkeypatch.setattr(captions, "FIRST_CAPTIONS", tmp_path / "captions.npz")
    np.savez(captions.FIRST_CAPTIONS, outputs=np.array([[0.8, 0.6], [0, 1]], "f2"))
    lines = [f"{n}#{k}\t{text}" for n, of in own.items() for k, text in enumerate(of)]
    files = {
        "Flickr8k.token.txt": "\n".join(lines).encode(),
        "ExpertAnnotations.txt": b"a.jpg\tb.jpg#2\t1\t2\t4\nb.jpg\tb.jpg#2\t4\t4\t4",
        "CrowdFlowerAnnotations.txt": b"b.jpg\ta.jpg#2\t0.25\t1\t3\nb.jpg\tb.jpg#2\t1\t3\t0",
    }
    clone = repository(tmp_path / "t", "a/t", files)
    found, *_, texts = make(captions, tmp_path, clone, name="judged_captions")
    labels = found.labels  # Without experts' judgements of a photograph's own captions.
    assert labels["people"][:8].tolist() == [1, 2, 4, 0.25, 1, 2, 1, 0]
    assert labels["photograph"][:6].tolist() == [0, 0, 0, 1, 1, 0]
    assert labels["task"][2:6].tolist() == ["expert", "crowd", "crowd", "object"]
    written = ["three men"] * 3 + ["a red dog", "three men", "A Dog runs", "a pet"]
    np.testing.assert_allclose(found.outputs[:7], texts.rows(written), atol=STEP)
    np.testing.assert_allclose(found.prompts[:4:3], [[0.8, 0.6], [0, 1]], atol=1e-3)
    assert "two men" in texts.given  # The only number that no caption has.
    # The nearest of a photograph's captions, but for the caption itself.
    others = texts.rows([text for text in own["b.jpg"] if text != "three men"])
    nearest = (others @ texts.rows(["three men"])[0]).max()
    assert labels["metric_reference"][4] == pytest.approx(nearest, abs=1e-6)


SHEETS = {
    "gallery-9.md": b"# Preview\n\n- midjourney\n\n## a-red-cat-1 \n> A red cat \n\n`midj`\n\n"
    b"## a-blue-dog-2\n> A blue dog\n",
    "storyboard-9.md": b"## lost-3 \n> A girl is lost\n",
}
RENDERS = {
    "a-red-cat-1/ldif-1.png": picture("red"),
    "a-red-cat-1/ldif-10.png": picture("brown"),
    "a-red-cat-1/ldif-2.png": picture("pink"),
    "a-red-cat-1/midj-1.png": picture("black", 1024),
    "a-red-cat-1/midj-2.png": picture("grey", 512),
    "a-red-cat-1/dal2-1.jpg": picture("yellow", 1024, "JPEG"),
    "a-red-cat-1/dal2.jpg": picture("green", 1024, "JPEG"),
    "a-blue-dog-2/ldif-1.png": picture("red"),
    "a-blue-dog-2/disco-1.png": picture("orange"),
    "a-blue-dog-2/dmin-1.png": picture("blue"),
    "a-blue-dog-2/simu-1.png": picture("white"),
    "lost-3/dmin-1.png": picture("purple"),
    "unknown-4/dmin-1.png": picture("cyan"),
}


def test_single_pictures_of_known_prompts_are_kept_in_order(tmp_path):
    files = {f"{t2i.RENDERS}/{path}": content for path, content in RENDERS.items()}
    clone = repository(tmp_path / "clone", "dcsan/imagen", files | SHEETS)
    pairs, _, cut, _, texts = make(t2i, tmp_path, clone, name="gallery")
    models = ["latent diffusion"] * 3 + ["Midjourney", "DALL-E 2"] + ["DALL-E mini"] * 2
    assert pairs.labels["models"].tolist() == models
    assert pairs.labels["prompt"].tolist() == [0, 0, 0, 0, 0, 1, 2]
    assert pairs.labels["sample"].tolist() == [1, 2, 10, 1, 1, 1, 1]
    # Midjourney's sheet of four, simulacra's of another's size; the red picture a second time.
    assert cut["left out"] == {"smaller than the source's own": 2, "repeated": 1}
    red = np.array([1.01, 0.01, 0.01] * 2)
    np.testing.assert_allclose(pairs.outputs[0], red / np.linalg.norm(red), atol=1e-3)
    prompts = texts.rows(["A red cat", "A blue dog", "A girl is lost"])
    np.testing.assert_allclose(pairs.prompts[4:], prompts, atol=1e-3)
    assert "7 pictures by 4 text-to-image sources on 3 prompts" in pairs.description


def test_every_model_has_a_picture_of_every_prompt_with_its_category(tmp_path, monkeypatch):
    sheet = "\ufeffPrompt,文本,类别,来源\nA red cat,猫,颜色,DrawBench\n"
    sheet += '"Fish, burning",鱼,反事实,ViLG\n'
    colours = ["red", "blue", "lime", "white", "grey", "pink", "gold", "cyan"]
    shown = zip(t2i.MODELS, colours, reversed(colours), strict=True)
    files = {f"saved/{m}/{k}.jpg": picture(c) for m, *two in shown for k, c in enumerate(two)}
    files[t2i.PROMPTS] = sheet.encode()
    clone = repository(tmp_path / "clone", t2i.REPOSITORY[0], files)
    monkeypatch.setattr(t2i, "load_lite2", lambda: Corners())
    pairs, _, _, _, texts = make(t2i, tmp_path, clone)
    assert pairs.labels["models"].tolist() == [*t2i.MODELS.values()] * 2
    assert pairs.labels["types"].tolist() == ["colours"] * 8 + ["counterfactual"] * 8
    assert pairs.labels["prompt"].tolist() == [0] * 8 + [1] * 8
    cyan = np.array([0.01, 1.01, 1.01] * 2)
    for rows in (pairs.outputs, pairs.further["second"]):
        np.testing.assert_allclose(rows[[7, 8]], [cyan / np.linalg.norm(cyan)] * 2, atol=1e-3)
    prompts = texts.rows(["A red cat", "Fish, burning"])
    np.testing.assert_allclose(pairs.prompts[[0, 8]], prompts, atol=1e-3)


CONCEPTS = [emoji.Concept(code, f"name {code}", "group", "sub") for code in ("1a", "2b", "3c")]
DRAWN_IN = np.array([[20, 9, 0], [10, 0, 0]], np.uint8)  # By the designer.


def icon_set(designer, icons, characters=(), **more):
    """A designer's drawings: icons by name, each an entry of the package or empty."""
    info = {"license": {"spdx": "MIT"}, "author": {"url": "https://example.org"}}
    entries = {name: {"body": f"<!-- {name} -->"} | entry for name, entry in icons.items()}
    return emoji.IconSet(designer, info, {"icons": entries, **more}, dict(characters))


@pytest.fixture
def build_emoji(monkeypatch, tmp_path):
    """Makes the set; a drawing is of one colour by its designer, and encoders need no weights."""
    found, pictures = {}, Corners()
    for designer, codes in {"One": ["1a", "2b", "3c"], "Two": ["2b", "3c"]}.items():
        drawings = {code: f"{code} {designer}" for code in codes}
        found[designer] = icon_set(designer, dict.fromkeys(drawings.values(), {}), drawings)
    patched = {
        "DESIGNERS": {"One": "one@1", "Two": "two@1"},
        "load_icon_set": lambda designer, cache: found[designer],
        "load_concepts": lambda cache: CONCEPTS,
        "render": lambda svg: np.tile(DRAWN_IN[int("Two" in svg)], (8, 8, 1)),
    }
    for name, value in patched.items():
        monkeypatch.setattr(emoji, name, value)
    monkeypatch.setattr(common, "load_efficientnet", lambda: pictures)
    monkeypatch.setattr(common, "load_minilm", Texts)
    monkeypatch.setattr(common.importlib.metadata, "version", lambda package: "1")

    def run(**values):
        work("emoji", tmp_path, **{"pictures": None, "overwrite": False} | values).make()
        if "pictures" not in values:
            with np.load(tmp_path / "emoji.npz", allow_pickle=False) as stored:
                return dict(stored), pictures.given

    return run


def test_the_emoji_have_a_row_a_drawing_and_are_embedded_once(build_emoji, monkeypatch):
    stored, given = build_emoji()
    assert stored["prompt_index"].tolist() == [0, 1, 1, 2, 2]
    assert stored["designer_index"].tolist() == [0, 0, 1, 0, 1]
    assert stored["prompt_texts"].tolist() == ["name 1a", "name 2b", "name 3c"]
    pictures = np.tile(DRAWN_IN[stored["designer_index"]][:, None, None], (1, 8, 8, 1))
    rows = common.unit_rows(Corners().encode(pictures))
    np.testing.assert_allclose(stored["outputs"], rows, atol=1e-3)
    prompts = Texts().rows(stored["prompt_texts"].tolist())
    np.testing.assert_allclose(stored["prompt_embeddings"], prompts, atol=1e-3)
    assert stored["provenance"][:3].tolist() == ["one@1", "two@1", emoji.NAMES_PACKAGE]
    assert stored["provenance"][-1] == "tokenizers 1"
    assert given == build_emoji()[1] == 5
    # Other packages, or other drawings, are embedded anew.
    monkeypatch.setattr(common.importlib.metadata, "version", lambda package: "2")
    assert build_emoji()[1] == 10
    monkeypatch.setattr(emoji, "SIDE", 32)  # Part of every drawing.
    assert build_emoji()[1] == 15


def test_drawings_are_written_in_the_order_of_the_rows(build_emoji, tmp_path):
    folder = tmp_path / "drawings"
    build_emoji(pictures=str(folder))
    found = []
    for row in range(5):
        with Image.open(folder / f"{row}.png") as drawn:
            assert drawn.size == (64, 64)
            found.append(np.asarray(drawn)[32, 32, 0])
    assert found == [20, 20, 10, 20, 10]
    with pytest.raises(ValueError, match="--pictures: .* holds pictures already"):
        build_emoji(pictures=str(folder))
    build_emoji(pictures=str(folder), overwrite=True)


def test_drawings_are_left_out_where_turned_or_withdrawn_and_matched_by_name():
    turned = {"turned": {"parent": "kept", "hFlip": True}, "alias": {"parent": "kept"}}
    icons = {"kept": {}, "gone": {"hidden": True}, "sunglasses": {}}
    found = icon_set("Firefox OS", icons, aliases=turned)
    drawn = [found.drawing(name) for name in ("kept", "alias", "turned", "gone", "sunglasses")]
    assert drawn == ["kept", "kept", None, None, None]
    # There are no code points.
    names = {"name1a": "1a", "other": "1a", "name2b": "2b", "name3c": "3c"}
    aliases = {"other": {"parent": "name 1a"}, "name-3c": {"parent": "name 2b"}}
    found = icon_set("One", {"name 1a": {}, "name 2b": {}}, aliases=aliases)
    assert emoji.match(found, CONCEPTS, names) == {"1a": "name 1a", "2b": "name 2b"}


def test_a_drawing_is_rendered_over_white():
    pytest.importorskip("resvg_py")
    icons = icon_set("One", {"half": {"body": '<path d="M0 0h8v16h-8z"/>'}, "blank": {}})
    drawn = emoji.render(icons.svg("half"))
    assert drawn.shape == (224, 224, 3)
    assert (drawn[:, :111] == 0).all() and (drawn[:, 113:] == 255).all()
    with pytest.raises(ValueError, match="the drawing is blank"):
        emoji.render(icons.svg("blank"))


DOGS = {"n02085936-Maltes": 5, "n02110958-pug": 4, "n02088364-beagle": 4, "n02086240-Shih": 1}
NAMES = ("n02085936_Maltese_dog", "n02110958_pug", "n02088364_beagle", "n02086240_Shih-Tzu")


def test_the_named_kinds_or_those_with_the_most_photographs_are_taken_ties_by_name(tmp_path):
    files = {"data/labels.csv": b"none"} | {
        f"data/{folder}/{k}.jpg": picture((40 * number + 5 * k, 40, 255 - 40 * number - 5 * k))
        for number, (folder, count) in enumerate(DOGS.items())
        for k in range(count)
    }
    clones = (
        repository(tmp_path / "dogs", "me/dogs", files),
        repository(tmp_path / "names", "me/n", {f"{name}.JPEG": b"-" for name in NAMES}),
    )

    def build(*wanted):
        knobs = {"flag_values": {"kinds": list(wanted)}, "KINDS": 2, "PER_KIND": 3}
        return make(kinds, tmp_path, *clones, name="dogs", **knobs)

    found, _, cut, _, _ = build()
    # Maltese dogs are five; of the two kinds of four, beagles come first.
    assert collections.Counter(found.labels["types"]) == {"beagle": 3, "Maltese dog": 3}
    assert cut["kinds"] == "2 of 4: those with the most photographs, ties by name"
    assert cut["photographs"]["Maltese dog"] == {"of": 5, "kept": 3}
    assert found.description.startswith("6 photographs of dogs (Stanford Dogs) of 2 kinds, 24")
    # Prompts are the wordings of the labels by both encoders.
    of, wording = WORDINGS["dogs"], found.labels["wording"]
    unspecified = [of.unspecified()[place] for place in wording]
    named = zip(found.labels["types"], wording, strict=True)
    typed = [of.specified([name])[place] for name, place in named]
    assert typed[0] == unspecified[0].replace("A dog", "A beagle")
    for prefix, encoder in (("", Texts()), ("second_", Texts("others"))):
        for role, texts in (("prompts", unspecified), ("typed_prompts", typed)):
            rows = found.arrays[f"{prefix}{role}"]
            np.testing.assert_allclose(rows, encoder.rows(texts), atol=1e-3)

    found, _, cut, _, _ = build("PUG", "Shih-Tzu")  # Whole where they have fewer.
    assert found.labels["types"].tolist() == ["pug"] * 3 + ["Shih-Tzu"]
    # The later a folder, the brighter its pictures.
    brightness = found.outputs[:, 0] / found.outputs[:, 2]
    assert brightness[3] > brightness[:3].max()
    assert "named" in cut["kinds"]
    with pytest.raises(ValueError, match="some of beagle, Maltese dog, pug, .*received 'zebra'"):
        build("zebra")


CLASSES = b"n01443537\tgoldfish, Carassius auratus\nn02666196\tabacus\nn07873807\tpizza\n"
GOLDFISH, ABACUS, PIZZA = (
    f"tiny-imagenet-200/train/{line[:9]}/0.JPEG" for line in CLASSES.decode().splitlines()
)
FRUIT = "dataset/train/Fruit/Apple/Royal-Gala/1.jpg", "dataset/val/Fruit/Apple/Pink-Lady/2.jpg"
OTHERS = "dataset/train/Vegetables/Carrots/4.jpg", "dataset/iconic/Fruit/Apple/5.jpg", "README.md"
GRAPEFRUIT = "dataset/test/Fruit/Red-Grapefruit/3.jpg"
HATS = ["test/hat/1.jpg", "train/hat/2.jpg", "validation/hat/3.jpg"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fruits", {"apple": [*FRUIT], "red grapefruit": [GRAPEFRUIT]}),
        ("clothing", {"hat": HATS}),
        ("animals", {"goldfish": [GOLDFISH]}),
        ("objects", {"abacus": [ABACUS]}),
    ],
)
def test_photographs_are_found_by_their_kind(tmp_path, name, found):
    files = dict.fromkeys([*itertools.chain(*found.values()), *OTHERS, PIZZA], b"-")
    files |= {GOLDFISH: b"-", ABACUS: b"-", "tiny-imagenet-200/words.txt": CLASSES}
    by_kind = kinds.SOURCES[name][1](repository(tmp_path / name, "me/it", files))
    assert {kind: sorted(paths) for kind, paths in by_kind.items()} == found


@pytest.mark.parametrize("name", WORDINGS)
def test_every_set_has_distinct_wordings_with_one_slot(name):
    of = WORDINGS[name]
    assert len(of.templates) == len(set(of.templates)) >= (12 if name == "fashion" else 20)
    assert all(t.count("{}") == 1 and t.endswith(".") for t in of.templates)
    assert all(s[0].isupper() for s in of.unspecified() + of.specified(["pug", "rain"]))
    assert of.unspecified()[0].startswith(of.category.capitalize())
    drawn = of.pair(2000, seed=0)
    assert set(drawn) == set(range(len(of.templates)))
    assert (drawn != of.pair(2000, seed=1)).any()


RED, BLUE, CLEAR = (250, 0, 0, 255), (0, 0, 250, 255), (0, 0, 0, 0)


def gif(*colours, size=(12, 8)):
    first, *rest = (Image.new("RGBA", size, colour) for colour in colours)
    content, knobs = io.BytesIO(), {"disposal": 2, "loop": 0, "duration": 50}
    first.save(content, "GIF", save_all=True, append_images=rest, **knobs)
    return content.getvalue()


def fetv():
    """Three prompts; the first is listed twice, the last has no real clip."""
    rows, files, every = [], {}, list(video.MODELS)
    for category, prompt, number in (
        *(("actions", "a red dog", 1), ("light", "a blue cat", 2)),
        *(("colour", "a red dog", 1), ("speed", "no real one", 3)),
    ):
        folders = every if number < 3 else every[:-1]
        paths = [f"assets/{category}/{folder}/{number}.gif" for folder in folders]
        rows += [f"| {prompt} | " + " | ".join(f"![]({path})" for path in paths) + " |"]
        rows += ["|  | SQ=3, TQ=3 | SQ=4, TQ=1 |"]
        for place, path in enumerate(paths):
            colours = (RED, BLUE) if place % 2 else (RED, RED)
            files[f"generated_video_examples/{path}"] = gif(*colours, *colours)
    page = "# Examples\n| Prompt | CogVideo |\n| --- | :---: |\n" + "\n".join(rows)
    return files | {"generated_video_examples/README.md": page.encode()}


def shap_e():
    paths = [f"samples/{name}/{k}.gif" for name in ("a_chair", "a_car") for k in range(4)]
    cells = [f'<td><img src="{p}" alt="{p.split("/")[1].replace("_", " ")}"></td>' for p in paths]
    files = {path: gif(CLEAR, (0, 200, 0, 255)) for path in paths}
    return files | {"samples.md": "".join(cells).encode()}


def test_frames_are_evenly_spaced_over_white_and_square(monkeypatch):
    monkeypatch.setattr(video, "FRAMES", 3)
    frames = video.decode_frames(gif(*((red, 0, 0, 255) for red in range(0, 90, 10))), side=8)
    assert frames.shape == (3, 8, 8, 3)
    assert frames[:, 4, 4, 0].tolist() == [0, 40, 80]
    # A shorter one repeats frames, and what is transparent is white.
    monkeypatch.setattr(video, "FRAMES", 4)
    frames = video.decode_frames(gif(CLEAR, RED), side=8)
    assert frames[:, 0, 0].tolist() == [[255] * 3] * 2 + [[250, 0, 0]] * 2


def test_the_set_of_clips_knows_source_model_and_prompt(tmp_path):
    clones = [
        repository(tmp_path / "fetv", "llyx97/FETV", fetv()),
        repository(tmp_path / "shap_e", "openai/shap-e", shap_e()),
    ]
    pairs, _, cut, pictures, texts = make(video, tmp_path, *clones, FRAMES=4)
    assert pictures.given == 4 * 18
    assert sorted(texts.given) == ["a blue cat", "a car", "a chair", "a red dog"]
    assert pairs.labels["source"].tolist() == ["FETV"] * 10 + ["Shap-E"] * 8
    assert pairs.labels["prompt"].tolist() == [0] * 5 + [1] * 5 + [2] * 4 + [3] * 4
    assert pairs.labels["models"][:6].tolist() == [*video.MODELS.values(), "CogVideo"]
    assert cut["clips"] == {"FETV": 10, "Shap-E": 8}
    moving = np.linalg.norm(pairs.outputs[:, 6:], axis=1)
    assert cut["spread"]["CogVideo"] == pytest.approx(0, abs=1e-6)
    assert cut["spread"]["Text2Video-Zero"] == pytest.approx(moving[1] ** 2, rel=1e-2)
    assert moving[1] > 0.1
    # Clips that stand still are their one frame.
    apart = np.abs(pairs.further["stills"] - pairs.further["means"]).max(axis=1)
    assert apart[0] < 1e-3 and apart[1] > 0.1
    means = common.unit_rows(pairs.outputs[:, :6])
    np.testing.assert_allclose(pairs.further["means"], means, atol=1e-3)
