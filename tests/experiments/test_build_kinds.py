"""The sets of types, built from small repositories of the same layouts, and their wordings."""

import collections
import io
import json
import subprocess
import types

import numpy as np
import pytest

from experiments.builders import kinds
from experiments.data import sets, wordings
from experiments.data.wordings import WORDINGS, with_article

pytestmark = pytest.mark.slow


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", *who, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def repository(folder, files):
    folder.mkdir()
    git(folder, "init", "-q")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return str(folder), git(folder, "rev-parse", "HEAD")


def picture(brightness):
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.new("RGB", (9, 9), (brightness, 40, 255 - brightness)).save(stream, "JPEG")
    return stream.getvalue()


class Pictures:
    name, dimension, side = "brightness", 3, 8

    def encode(self, items):
        return items.reshape(len(items), -1, 3).mean(axis=1) + 1


class Texts:
    """A direction for each text, by its letters."""

    def __init__(self, name):
        self.name, self.dimension = name, 4

    def encode(self, items):
        return np.array([[len(t), sum(map(ord, t)) % 97, ord(t[2]), len(self.name)] for t in items])


@pytest.fixture
def fakes(monkeypatch):
    monkeypatch.setattr(kinds, "load_efficientnet", Pictures)
    monkeypatch.setattr(kinds, "load_minilm", lambda: Texts("first"))
    monkeypatch.setattr(kinds, "load_universal", lambda: Texts("another"))
    monkeypatch.setattr(kinds.common, "versions", lambda *packages: list(packages))


DOGS = {"n02085936-Maltes": 5, "n02110958-pug": 4, "n02088364-beagle": 4, "n02086240-Shih": 1}
NAMES = ("n02085936_Maltese_dog", "n02110958_pug", "n02088364_beagle", "n02086240_Shih-Tzu")


@pytest.fixture
def build(tmp_path, monkeypatch, fakes):
    """Runs the builder of dogs, as its command does, with flags; gives the set and its cut."""
    photographs = {
        f"data/{folder}/{k}.jpg": picture(40 * number + 5 * k)
        for number, (folder, count) in enumerate(DOGS.items())
        for k in range(count)
    }
    source, commit = repository(tmp_path / "dogs", {**photographs, "data/labels.csv": b"none"})
    names_source, names_commit = repository(
        tmp_path / "names", {f"{name}.JPEG": b"-" for name in NAMES}
    )
    changed = kinds.dataclasses.replace(
        kinds.SOURCES["dogs"], repository=("me/dogs", commit), names=("me/n", names_commit)
    )
    monkeypatch.setitem(kinds.SOURCES, "dogs", changed)
    monkeypatch.setattr(kinds, "KINDS", 2)

    def run(word="dogs", **given):
        values = {"kinds": [], "per_kind": 3, "cache_dir": str(tmp_path / "cache")}
        values |= {"output": str(tmp_path / "out.npz"), "source": source}
        values |= {"names_source": names_source, "overwrite": True, **given}
        monkeypatch.setattr(kinds.flags, "FLAGS", types.SimpleNamespace(**values))
        kinds.main(["kinds", *word.split()])
        with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
            return sets.read_set(tmp_path / "out.npz"), {k: stored[k] for k in stored.files}

    return run


def test_the_kinds_with_the_most_photographs_are_taken_ties_by_name(build):
    found, stored = build()
    # Maltese dogs are five; of the two kinds of four, beagles come first.
    assert collections.Counter(found.labels["types"]) == {"beagle": 3, "Maltese dog": 3}
    cut = json.loads(str(stored["cut"]))
    assert cut["kinds"] == "2 of 4: those with the most photographs, ties by name"
    assert cut["photographs"] == {
        "beagle": {"of": 4, "kept": 3},
        "Maltese dog": {"of": 5, "kept": 3},
    }
    assert set(cut["cost"]) == {"bandwidths", "photographs", "float16"}
    assert "non-commercial" in str(stored["licence"])
    assert stored["provenance"][0].startswith("me/dogs @ ")


def test_named_kinds_are_taken_whole_where_they_have_fewer(build):
    found, stored = build(kinds=["PUG", "Shih-Tzu"], per_kind=2)
    assert found.labels["types"].tolist() == ["pug", "pug", "Shih-Tzu"]
    # The later a folder, the brighter its pictures.
    brightness = found.outputs[:, 0] / found.outputs[:, 2]
    assert brightness[2] > brightness[:2].max()
    assert "named" in json.loads(str(stored["cut"]))["kinds"]
    assert found.description.startswith("3 photographs of dogs (Stanford Dogs) of 2 kinds, 24")


def test_the_photographs_of_a_kind_do_not_hang_on_the_other_kinds(build):
    alone, _ = build(kinds=["pug"])
    among, _ = build(kinds=["pug", "beagle"])
    pugs = among.rows(among.labels["types"] == "pug")
    np.testing.assert_array_equal(alone.outputs, pugs.outputs)
    assert len(np.unique(alone.outputs, axis=0)) == 3


def test_prompts_are_the_wordings_of_the_labels_by_both_encoders(build):
    found, _ = build()
    of = WORDINGS["dogs"]
    kinds = ["beagle", "Maltese dog"]
    for i, (kind, wording) in enumerate(
        zip(found.labels["types"], found.labels["wording"], strict=True)
    ):
        unspecified = of.unspecified()[wording]
        typed = of.specified(kinds)[kinds.index(kind) * len(of.templates) + wording]
        assert typed == unspecified.replace("A dog", with_article(kind).replace("a ", "A ", 1))
        for role, text, name in (
            ("second_prompts", unspecified, "another"),
            ("typed_prompts", typed, "first"),
            ("second_typed_prompts", typed, "another"),
        ):
            (row,) = Texts(name).encode([text])
            np.testing.assert_allclose(found.further[role][i], row / np.linalg.norm(row), atol=1e-3)
        (row,) = Texts("first").encode([unspecified])
        np.testing.assert_allclose(found.prompts[i], row / np.linalg.norm(row), atol=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kinds": ["bagle"]}, "unknown kind 'bagle'; like it: beagle"),
        ({"kinds": ["maltese"]}, "like it: Maltese dog"),
        ({"kinds": ["zebra"]}, "known: beagle, Maltese dog, pug, Shih-Tzu"),
        ({"kinds": ["pug", "Pug"]}, "named twice in pug, Pug"),
        ({"per_kind": 0}, "--per_kind: expected a positive number, received 0"),
        ({"word": "cats"}, "expected one of dogs, fruits, .*, received 'cats'"),
        ({"word": "dogs fruits"}, "received 'dogs fruits'"),
        ({"word": "fruits"}, "--names_source means nothing for fruits"),
    ],
)
def test_what_makes_no_sense_is_refused(build, given, message):
    with pytest.raises(ValueError, match=message):
        build(**given)


def paths_of(name, tmp_path, files):
    source, commit = repository(tmp_path / name, files)
    opened = kinds.Repository.opened("me/it", commit, source=source, cache=tmp_path)
    found = kinds.SOURCES[name].kinds(opened, None)
    return {kind: sorted(paths) for kind, paths in found.items()}


def test_fruits_are_found_in_the_three_parts_and_below_varieties(tmp_path):
    paths = [
        "dataset/train/Fruit/Apple/Royal-Gala/1.jpg",
        "dataset/val/Fruit/Apple/Pink-Lady/2.jpg",
        "dataset/test/Fruit/Red-Grapefruit/3.jpg",
    ]
    others = ["dataset/train/Vegetables/Carrots/4.jpg", "dataset/iconic/Fruit/Apple/5.jpg"]
    found = paths_of("fruits", tmp_path, {p: b"-" for p in paths + others})
    assert found == {"apple": paths[:2], "red grapefruit": paths[2:]}


def test_clothes_are_found_in_the_three_parts(tmp_path):
    paths = ["test/hat/1.jpg", "train/hat/2.jpg", "validation/t-shirt/3.jpg"]
    found = paths_of("clothing", tmp_path, {p: b"-" for p in [*paths, "README.md"]})
    assert found == {"hat": paths[:2], "t-shirt": paths[2:]}


def test_animals_and_objects_are_parted_by_their_wordnet_ids(tmp_path):
    words = "n01443537\tgoldfish, Carassius auratus\nn02666196\tabacus\nn07873807\tpizza\n"
    paths = [f"tiny-imagenet-200/train/{line[:9]}/images/0.JPEG" for line in words.splitlines()]
    files = {p: b"-" for p in paths} | {"tiny-imagenet-200/words.txt": words.encode()}
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    assert paths_of("animals", tmp_path / "a", files) == {"goldfish": paths[:1]}
    assert paths_of("objects", tmp_path / "b", files) == {"abacus": paths[1:2]}


@pytest.mark.parametrize(
    ("kind", "phrase"),
    [
        ("Afghan hound", "an Afghan hound"),
        ("pug", "a pug"),
        ("umbrella", "an umbrella"),
        ("unicycle", "a unicycle"),
        ("European fire salamander", "a European fire salamander"),
        ("hourglass", "an hourglass"),
        ("swimming trunks", "a pair of swimming trunks"),
        ("shoes", "a pair of shoes"),
        ("satsumas", "a satsuma"),
    ],
)
def test_articles(kind, phrase):
    assert with_article(kind) == phrase


@pytest.mark.parametrize("name", WORDINGS)
def test_every_set_has_distinct_wordings_with_one_slot(name):
    of = WORDINGS[name]
    assert len(of.templates) == len(set(of.templates)) >= (12 if name == "fashion" else 20)
    assert all(t.count("{}") == 1 and t.endswith(".") for t in of.templates)
    assert all(s[0].isupper() for s in of.unspecified() + of.specified(["pug"]))
    assert of.unspecified()[0].startswith(of.category.capitalize())
    drawn = of.pair(2000, seed=0)
    assert set(drawn) == set(range(len(of.templates)))
    assert (drawn != of.pair(2000, seed=1)).any()


def test_every_set_has_wordings():
    assert set(WORDINGS) == {*kinds.SOURCES, "sketches", "quickdraw", "fashion"}
    assert wordings.WORDINGS["dogs"].unspecified()[0] == "A dog is rolling in the grass."
