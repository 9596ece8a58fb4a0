"""The sets that are shipped as files: whole, described, lawful and sensible."""

import json

import numpy as np
import pytest

from experiments.data import SETS, load
from experiments.data.sets import FOLDER

pytestmark = pytest.mark.slow

TYPES = {"dogs": 140, "fruits": 78, "clothing": 136, "animals": 140, "objects": 140}
"""The sets of types, with the photographs of the kind that has the fewest."""
NON_COMMERCIAL = {"dogs", "animals", "objects", "captions", "captioning", "judged_captions"}
FILES = [name for name in SETS if name not in ("emoji", "mixture", "t2i_second", "caption_pairs")]
# To multiples of a step, so not of norm 1.
ROUNDED = ("captions", "captioning", "judged_captions", "stories", "answers")
ROUNDED += ("post_training", "same_answers", "interventions", "captioners", "ten_captions")
ROUNDED += ("fifty_captions", "judged_pairs")
PHOTOGRAPHS, DRAWN = 8091, 2300  # Of captions and of captioning.


@pytest.fixture(scope="module", params=FILES)
def stored(request):
    with np.load(FOLDER / f"{request.param}.npz", allow_pickle=False) as arrays:
        return request.param, dict(arrays)


def test_a_file_is_whole(stored):
    name, arrays = stored
    assert (FOLDER / f"{name}.npz").stat().st_size <= 25e6
    lengths = set()
    for field, array in arrays.items():
        if array.ndim == 2:
            assert array.dtype == np.float16, field
            norms = np.linalg.norm(array.astype(np.float64), axis=1)
            np.testing.assert_allclose(norms, 1, atol=0.03 if name in ROUNDED else 1e-3)
        if field.endswith("_index"):
            table = arrays[field.removesuffix("_index")]
            assert array.min() >= 0 and array.max() < len(table), field
        if field.startswith(("outputs", "prompts", "label_", "further_")):
            lengths |= {len(arrays.get(f"{field}_index", array))}
    assert len(lengths) == 1


def test_a_file_says_whose_it_is_and_what_was_cut(stored):
    name, arrays = stored
    assert len(str(arrays["description"])) > 20
    assert len(arrays["provenance"]) > 1
    assert json.loads(str(arrays["cut"]))
    licence = str(arrays["licence"])
    assert licence and ("non-commercial" in licence) == (name in NON_COMMERCIAL)
    assert SETS[name].licence.startswith("NC: ") == (name in NON_COMMERCIAL)


@pytest.mark.parametrize("name", TYPES)
def test_a_set_of_types_has_ten_kinds_twenty_wordings_and_prompts_four_times(name):
    pairs = load(name)
    kinds, counts = np.unique(pairs.labels["types"], return_counts=True)
    assert len(kinds) == 10
    assert counts.min() == TYPES[name] and counts.max() == 140
    assert SETS[name].description.startswith(f"{len(pairs):,} ")
    assert pairs.description.startswith(f"{len(pairs):,} ")
    wording = pairs.labels["wording"]
    assert len(np.unique(wording)) >= 20
    both = np.unique([f"{k} {w}" for k, w in zip(pairs.labels["types"], wording, strict=True)])
    # A prompt is its wording, or its wording and its kind, by either encoder.
    for rows, different in (
        (pairs.prompts, np.unique(wording)),
        (pairs.further["typed_prompts"], both),
        (pairs.further["second_prompts"], np.unique(wording)),
        (pairs.further["second_typed_prompts"], both),
    ):
        assert len(np.unique(rows, axis=0)) == len(different)
    # Photographs of one kind are nearer to each other; a tenth by chance.
    alike = pairs.outputs @ pairs.outputs.T
    np.fill_diagonal(alike, -1)
    types = pairs.labels["types"]
    assert np.mean(types[alike.argmax(axis=1)] == types) > 0.3


def test_every_photograph_has_one_caption_or_five():
    captions, captioning = load("captions"), load("captioning")
    pairs = load("caption_pairs")
    assert len(pairs) == 25_000 and SETS["caption_pairs"].licence.startswith("NC: ")
    # No caption of a photograph stands twice.
    every = np.column_stack([pairs.labels["photograph"], pairs.prompts])
    assert len(np.unique(every, axis=0)) > 24_900
    assert captions.labels["photograph"].tolist() == list(range(PHOTOGRAPHS))
    assert captioning.labels["caption"].tolist() == list(range(5)) * DRAWN
    number = captioning.labels["prompt"]
    assert len(np.unique(number)) == DRAWN
    # Of the same photographs and captions.
    np.testing.assert_array_equal(captioning.prompts, captions.outputs[number])
    first = captioning.labels["caption"] == 0
    np.testing.assert_array_equal(captioning.outputs[first], captions.prompts[number[first]])
    assert len(np.unique(captions.labels["prompt"])) == 8075
    kinds = captions.labels["pictures"]
    np.testing.assert_array_equal(captioning.labels["pictures"], kinds[number])
    for labels, counts in ((kinds, [1678, 169, 321]), (kinds[number[::5]], [439, 160, 160])):
        assert [np.sum(labels == kind) for kind in ("dog", "street", "water")] == counts
    # Captions of a photograph are nearer to each other than to those of another.
    five = captioning.outputs.reshape(DRAWN, 5, -1)
    own = np.einsum("pd,pd->p", five[:, 0], five[:, 1])
    others = np.einsum("pd,pd->p", five[:, 0], np.roll(five[:, 1], 1, axis=0))
    assert own.mean() > 0.5 > 0.2 > others.mean()


def test_the_gallery_has_the_pictures_of_its_description():
    pairs = load("gallery")
    names, counts = np.unique(pairs.labels["models"], return_counts=True)
    assert ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True)) == (
        "DALL-E 2 77, DALL-E mini 369, GLID-3-XL 243, Midjourney 199, Stability beta 101, "
        "latent diffusion 369, simulacra 104"
    )
    assert np.unique(pairs.labels["prompt"]).size == 41


def test_people_judged_every_set_of_responses_of_nine_tasks():
    pairs = load("human")
    labels = pairs.labels
    first = np.unique(labels["sets"], return_index=True)[1]
    counts = np.unique(labels["task"][first], return_counts=True)[1]
    assert (len(pairs), len(first), len(counts)) == (12_440, 1_879, 9)
    assert counts.min() == 200 and counts.max() == 250
    assert np.all((labels["people"] >= 1) & (labels["people"] <= 5))
    assert np.all(np.isnan(labels["label"]) != np.isnan(labels["temperature"]))
    assert sum(role.startswith("metric_") for role in labels) == 10
    own = np.arange(len(pairs)), np.arange(len(pairs)) - first[labels["sets"]]
    similar = [rows for role, rows in pairs.further.items() if role.endswith("_similarity")]
    assert len(similar) == 3
    assert all(of.min() == 0 and of.max() == 1 and (of[own] == 1).all() for of in similar)
