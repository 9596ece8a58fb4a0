"""The sets of types, built from small repositories of the same layouts, and their wordings."""

import collections
import itertools

import numpy as np
import pytest
from small_repositories import Texts, make, picture, repository

from experiments.builders import kinds
from experiments.data.wordings import WORDINGS

pytestmark = pytest.mark.slow

DOGS = {"n02085936-Maltes": 5, "n02110958-pug": 4, "n02088364-beagle": 4, "n02086240-Shih": 1}
NAMES = ("n02085936_Maltese_dog", "n02110958_pug", "n02088364_beagle", "n02086240_Shih-Tzu")


@pytest.fixture
def build(tmp_path):
    """Makes the set of dogs, of these kinds or of the two with the most photographs."""
    photographs = {
        f"data/{folder}/{k}.jpg": picture((40 * number + 5 * k, 40, 255 - 40 * number - 5 * k))
        for number, (folder, count) in enumerate(DOGS.items())
        for k in range(count)
    }
    files = {**photographs, "data/labels.csv": b"none"}
    clones = (
        repository(tmp_path / "dogs", "me/dogs", files),
        repository(tmp_path / "names", "me/n", {f"{name}.JPEG": b"-" for name in NAMES}),
    )

    def run(*wanted):
        values = {"kinds": list(wanted)}
        constants = {"KINDS": 2, "PER_KIND": 3}
        return make(kinds, tmp_path, *clones, name="dogs", flag_values=values, **constants)

    return run


def test_the_kinds_with_the_most_photographs_are_taken_ties_by_name(build):
    found, _, cut, _, _ = build()
    # Maltese dogs are five; of the two kinds of four, beagles come first.
    assert collections.Counter(found.labels["types"]) == {"beagle": 3, "Maltese dog": 3}
    assert cut["kinds"] == "2 of 4: those with the most photographs, ties by name"
    assert cut["photographs"]["Maltese dog"] == {"of": 5, "kept": 3}
    assert found.description.startswith("6 photographs of dogs (Stanford Dogs) of 2 kinds, 24")


def test_named_kinds_are_taken_whole_where_they_have_fewer(build):
    found, _, cut, _, _ = build("PUG", "Shih-Tzu")
    assert found.labels["types"].tolist() == ["pug"] * 3 + ["Shih-Tzu"]
    # The later a folder, the brighter its pictures.
    brightness = found.outputs[:, 0] / found.outputs[:, 2]
    assert brightness[3] > brightness[:3].max()
    assert "named" in cut["kinds"]
    with pytest.raises(ValueError, match="some of beagle, Maltese dog, pug, .*received 'zebra'"):
        build("zebra")


def test_prompts_are_the_wordings_of_the_labels_by_both_encoders(build):
    found, of = build().pairs, WORDINGS["dogs"]
    wording = found.labels["wording"]
    unspecified = [of.unspecified()[place] for place in wording]
    named = zip(found.labels["types"], wording, strict=True)
    typed = [of.specified([name])[place] for name, place in named]
    assert typed[0] == unspecified[0].replace("A dog", "A beagle")
    for rows, texts, encoder in (
        (found.prompts, unspecified, Texts()),
        (found.further["typed_prompts"], typed, Texts()),
        (found.further["second_prompts"], unspecified, Texts("others")),
        (found.further["second_typed_prompts"], typed, Texts("others")),
    ):
        np.testing.assert_allclose(rows, encoder.rows(texts), atol=1e-3)


WORDS = b"n01443537\tgoldfish, Carassius auratus\nn02666196\tabacus\nn07873807\tpizza\n"
GOLDFISH, ABACUS, PIZZA = (
    f"tiny-imagenet-200/train/{line[:9]}/0.JPEG" for line in WORDS.decode().splitlines()
)
FRUIT = "dataset/train/Fruit/Apple/Royal-Gala/1.jpg", "dataset/val/Fruit/Apple/Pink-Lady/2.jpg"
OTHERS = "dataset/train/Vegetables/Carrots/4.jpg", "dataset/iconic/Fruit/Apple/5.jpg", "README.md"


@pytest.mark.parametrize(
    ("name", "found"),
    {
        "fruits": {
            "apple": [*FRUIT],
            "red grapefruit": ["dataset/test/Fruit/Red-Grapefruit/3.jpg"],
        },
        "clothing": {"hat": ["test/hat/1.jpg", "train/hat/2.jpg", "validation/hat/3.jpg"]},
        "animals": {"goldfish": [GOLDFISH]},
        "objects": {"abacus": [ABACUS]},
    }.items(),
)
def test_photographs_are_found_by_their_kind(tmp_path, name, found):
    files = dict.fromkeys([*itertools.chain(*found.values()), *OTHERS, PIZZA], b"-")
    files |= {GOLDFISH: b"-", ABACUS: b"-"}
    files["tiny-imagenet-200/words.txt"] = WORDS
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
