"""The shipped photographs and captions: whole, small, lawful and what they are said to be."""

import json

import numpy as np
import pytest

from experiments.data import SETS, load
from experiments.data.sets import FOLDER

pytestmark = pytest.mark.slow

NAMES = ("captions", "captioning")
PHOTOGRAPHS, DRAWN = 8091, 2300


@pytest.fixture(scope="module")
def pairs():
    return {name: load(name) for name in NAMES}


def test_both_files_are_small_together():
    assert sum((FOLDER / f"{name}.npz").stat().st_size for name in NAMES) <= 21e6


@pytest.mark.parametrize("name", NAMES)
def test_a_file_holds_numbers_names_of_kinds_and_its_origin(name):
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as stored:
        entries = {entry: stored[entry] for entry in stored.files}
    words = {entry for entry, array in entries.items() if array.dtype.kind == "U"}
    assert words == {"label_pictures", "description", "licence", "provenance", "cut"}
    assert entries["label_pictures"].tolist() == ["dog", "other", "street", "water"]
    assert entries["outputs"].dtype == entries["prompts"].dtype == np.float16
    for source in ("RlNZLER/Image-Text-Matching @ 56a15d9", "Image-Captioning @ 5ab3142"):
        assert any(source in line for line in entries["provenance"]), source
    assert "non-commercial" in str(entries["licence"])
    assert SETS[name].licence.startswith("NC: ")


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_unit_norm_and_rounding_costs_little(name, pairs):
    for rows in (pairs[name].outputs, pairs[name].prompts):
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows[:500], axis=1), 1, atol=1e-6)
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as stored:
        cut = json.loads(str(stored["cut"]))
    costs = cut if name == "captions" else cut["five_captions"]
    for score in ("vendi", "conditional", "information"):
        assert abs(costs["rounding"][score]["change"]) < 0.001


def test_every_photograph_has_one_caption_or_five(pairs):
    captions, captioning = (pairs[name] for name in NAMES)
    assert captions.labels["photograph"].tolist() == list(range(PHOTOGRAPHS))
    assert captioning.labels["caption"].tolist() == list(range(5)) * DRAWN
    number = captioning.labels["prompt"]
    assert len(np.unique(number)) == DRAWN
    np.testing.assert_array_equal(number, np.repeat(number[::5], 5))


def test_the_two_sets_are_of_the_same_photographs_and_captions(pairs):
    captions, captioning = (pairs[name] for name in NAMES)
    number = captioning.labels["prompt"]
    np.testing.assert_array_equal(captioning.prompts, captions.outputs[number])
    first = captioning.labels["caption"] == 0
    np.testing.assert_array_equal(captioning.outputs[first], captions.prompts[number[first]])
    np.testing.assert_array_equal(
        captioning.labels["pictures"], captions.labels["pictures"][number]
    )


def test_equal_captions_are_one_prompt(pairs):
    prompt = pairs["captions"].labels["prompt"]
    found, first = np.unique(prompt, return_index=True)
    assert found.tolist() == list(range(len(found))) and len(found) == 8075
    rows = pairs["captions"].prompts
    np.testing.assert_array_equal(rows, rows[first][prompt])


@pytest.mark.parametrize("name", NAMES)
def test_there_are_enough_photographs_of_each_kind(name, pairs):
    photograph = "photograph" if name == "captions" else "prompt"
    rows = np.unique(pairs[name].labels[photograph], return_index=True)[1]
    kinds, counts = np.unique(pairs[name].labels["pictures"][rows], return_counts=True)
    found = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    expected = {
        "captions": {"dog": 1678, "street": 169, "water": 321},
        "captioning": {"dog": 439, "street": 160, "water": 160},
    }[name]
    assert {kind: found[kind] for kind in expected} == expected


def test_captions_of_a_photograph_are_nearer_than_others(pairs):
    """What the embeddings are for; and photographs alike have captions alike."""
    captioning = pairs["captioning"]
    five = captioning.outputs.reshape(DRAWN, 5, -1)
    own = np.einsum("pd,pd->p", five[:, 0], five[:, 1])
    others = np.einsum("pd,pd->p", five[:, 0], np.roll(five[:, 1], 1, axis=0))
    assert own.mean() > 0.5 > 0.2 > others.mean()
    photographs = captioning.prompts[::5]
    likeness = photographs @ photographs.T - 2 * np.eye(DRAWN)
    nearest = likeness.argmax(axis=1)
    near = np.einsum("pd,pd->p", five[:, 0], five[nearest, 0])
    assert near.mean() > others.mean() + 0.1
