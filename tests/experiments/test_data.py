"""The shipped embeddings: whole, consistent, lawful and sensible; and the loader's manners."""

import json

import numpy as np
import pytest

from experiments.data import SETS, load, load_files, mixture
from experiments.data.sets import EMOJI_FILE, FOLDER
from experiments.generators.pictures import FASHION_FILE

ATTRIBUTION = (FOLDER / "ATTRIBUTION.md").read_text(encoding="utf-8")
NON_COMMERCIAL = {"dogs", "animals", "objects", "captions", "captioning", "judged_captions"}
# To multiples of a step, so not of norm 1.
ROUNDED = ("captions", "captioning", "judged_captions", "stories", "answers", "post_training")
ROUNDED += ("same_answers", "interventions", "captioners", "ten_captions", "fifty_captions")
ROUNDED += ("judged_pairs",)
FILES = [name for name in SETS if name not in ("emoji", "mixture", "t2i_second", "caption_pairs")]


def test_the_file_of_emoji_is_whole_and_its_designers_allow_shipping():
    with np.load(EMOJI_FILE, allow_pickle=False) as arrays:
        stored = dict(arrays)
    assert stored["outputs"].shape == (11_822, 1280)
    assert stored["prompt_embeddings"].shape == (1_652, 384)
    assert stored["outputs"].dtype == stored["prompt_embeddings"].dtype == np.float16
    assert len(np.unique(stored["prompt_texts"])) == 1_652
    assert len(np.unique(stored["designers"])) == 9
    # Pairs are ordered, and none is there twice.
    order = stored["prompt_index"].astype(int) * 9 + stored["designer_index"]
    assert np.all(np.diff(order) > 0)
    assert set(stored["licences"].tolist()) <= {"Apache-2.0", "MIT", "CC-BY-4.0", "CC-BY-SA-4.0"}
    facts = zip(*(stored[k] for k in ("packages", "licences", "sources")), strict=True)
    counts = np.bincount(stored["designer_index"])
    for name, count, said in zip(stored["designers"], counts, facts, strict=True):
        [row] = [line for line in ATTRIBUTION.splitlines() if line.startswith(f"| {name} |")]
        assert all(str(fact) in row for fact in said) and f"{count:,}" in row, row


def test_emoji_of_one_prompt_share_its_embedding_and_others_do_not():
    emoji = load("emoji")
    first = np.unique(emoji.labels["prompt"], return_index=True)[1]
    np.testing.assert_array_equal(emoji.prompts, emoji.prompts[first][emoji.labels["prompt"]])
    norms = np.linalg.norm(np.concatenate([emoji.outputs, emoji.prompts], axis=1), axis=1)
    np.testing.assert_allclose(norms, 2**0.5, atol=1e-6)
    nearest = emoji.prompts[first] @ emoji.prompts[first].T - 2 * np.eye(len(first))
    assert nearest.max() < 1 - 1e-4
    # One concept looks alike across designers.
    same = (emoji.labels["prompt"][1:] == emoji.labels["prompt"][:-1]).nonzero()[0]
    other = np.random.default_rng(0).permutation(len(emoji))[: len(same)]
    alike, random = (
        np.einsum("nd,nd->n", emoji.outputs[same], emoji.outputs[of]) for of in (same + 1, other)
    )
    assert np.mean(alike) > 0.55 > 0.45 > np.mean(random)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "outputs": rng.normal(size=(6, 3)).astype(np.float32),
        "prompts": rng.normal(size=(6, 2)).astype(np.float32),
        "types": np.array(["cat", "cat", "dog", "dog", "dog", "cow"]),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array.astype(np.float16) if name == "outputs" else array)
    return {name: tmp_path / f"{name}.npy" for name in arrays}, arrays


def test_own_files_round_trip(files, tmp_path):
    paths, arrays = files
    lines = tmp_path / "models.txt"
    lines.write_text("a b\nc\n \u2028d\nd\ne\nf\n", encoding="utf-8")
    own = load_files(**paths, models=lines)
    np.testing.assert_allclose(own.outputs, arrays["outputs"], rtol=1e-3)
    assert own.outputs.dtype == np.float32
    np.testing.assert_array_equal(own.prompts, arrays["prompts"])
    np.testing.assert_array_equal(own.labels["types"], arrays["types"])
    assert own.labels["models"].tolist() == ["a b", "c", " \u2028d", "d", "e", "f"]
    assert own.name == "outputs" and "6 pairs" in own.description


EQUAL = np.arange(18, dtype=np.float32).reshape(6, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"outputs": EQUAL, "prompts": EQUAL}, "--outputs and --prompts are equal in every row"),
        ({"types": np.array(list("abcd"))}, "outputs and types .*received 6 and 4"),
        ({"prompts": EQUAL[:4]}, "received 6 outputs and 4 prompts"),
        ({"outputs": np.zeros(6)}, r"outputs: expected a two-dimensional .*shape \(6,\)"),
        ({"prompts": np.full((6, 2), "x")}, "prompts: expected real numbers.*<U1"),
        ({"outputs": np.diag(np.array([1, 1, 1, 1, np.nan, 1], np.float32))}, "outputs: .*row 4"),
        ({"types": EQUAL}, r"types.npy: expected one label a row .*shape \[6, 3\]"),
    ],
)
def test_files_that_are_no_pairs_are_refused(files, changed, message):
    for role, array in changed.items():
        np.save(files[0][role], array)
    with pytest.raises((TypeError, ValueError), match=message):
        load_files(**files[0])


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match="'coco'; known: emoji, dogs, .*, mixture"):
        load("coco")


@pytest.mark.parametrize("name", SETS)
def test_every_set_says_what_it_is_and_whose(name):
    found, pairs = SETS[name], load(name)
    assert pairs.name == name
    stated = ("Apache-2.0", "MIT", "CC0-1.0", "NC: ", "not stated")
    assert any(licence in found.licence for licence in stated)
    if found.builder != "-":
        assert f"{name.removesuffix('_second')}.npz" in ATTRIBUTION
        readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
        terms = readme.partition("Licensed under")[2]
        assert (name in terms) == ("NC" in found.licence or "not stated" in found.licence)
    assert {len(label) for label in pairs.labels.values()} <= {len(pairs)}


def test_the_shipped_files_are_small():
    sizes = {path.stem: path.stat().st_size for path in FOLDER.glob("*.npz")}
    beside = {FASHION_FILE.stem, "human_similarities"}
    assert set(sizes) == set(SETS) - {"mixture", "t2i_second"} | beside
    assert sum(sizes.values()) - sizes["emoji"] <= 125e6


def test_a_mixture_is_drawn_alike_whatever_its_size():
    drawn = (mixture.draw(n, (6, 4), seed) for n, seed in ((50, 3), (40, 3), (40, 4)))
    for longer, shorter, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(longer[:40], shorter)
        assert (shorter != other).all(axis=1).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_whole_and_says_whose_it_is_and_what_was_cut(name):
    path = FOLDER / f"{name}.npz"
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    assert path.stat().st_size <= 25e6
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
    assert len(str(arrays["description"])) > 20
    assert len(arrays["provenance"]) > 1
    assert json.loads(str(arrays["cut"]))
    licence = str(arrays["licence"])
    assert licence and ("non-commercial" in licence) == (name in NON_COMMERCIAL)
    assert SETS[name].licence.startswith("NC: ") == (name in NON_COMMERCIAL)


@pytest.mark.slow
@pytest.mark.parametrize(  # With the photographs of the kind that has the fewest.
    ("name", "least"),
    [("dogs", 140), ("fruits", 78), ("clothing", 136), ("animals", 140), ("objects", 140)],
)
def test_a_set_of_types_has_ten_kinds_twenty_wordings_and_prompts_four_times(name, least):
    pairs = load(name)
    types, wording = pairs.labels["types"], pairs.labels["wording"]
    kinds, counts = np.unique(types, return_counts=True)
    assert (len(kinds), counts.min(), counts.max()) == (10, least, 140)
    for description in (SETS[name].description, pairs.description):
        assert description.startswith(f"{len(pairs):,} ")
    # A prompt is its wording, or its wording and its kind, by either encoder.
    different = len(np.unique(wording)), len({*zip(types, wording, strict=True)})
    assert different[0] >= 20
    for prefix in ("", "second_"):
        both = (pairs.arrays[f"{prefix}{role}"] for role in ("prompts", "typed_prompts"))
        assert tuple(len(np.unique(rows, axis=0)) for rows in both) == different
    # Photographs of one kind are nearer to each other; a tenth by chance.
    alike = pairs.outputs @ pairs.outputs.T
    np.fill_diagonal(alike, -1)
    assert np.mean(types[alike.argmax(axis=1)] == types) > 0.3


@pytest.mark.slow
def test_every_photograph_has_one_caption_or_five():
    captions, captioning, pairs = map(load, ("captions", "captioning", "caption_pairs"))
    assert len(pairs) == 25_000 and SETS["caption_pairs"].licence.startswith("NC: ")
    # No caption of a photograph stands twice.
    every = np.column_stack([pairs.labels["photograph"], pairs.prompts])
    assert len(np.unique(every, axis=0)) > 24_900
    assert captions.labels["photograph"].tolist() == list(range(8091))
    assert captioning.labels["caption"].tolist() == list(range(5)) * 2300
    number, first = captioning.labels["prompt"], captioning.labels["caption"] == 0
    assert len(np.unique(number)) == 2300
    # Of the same photographs and captions.
    np.testing.assert_array_equal(captioning.prompts, captions.outputs[number])
    np.testing.assert_array_equal(captioning.outputs[first], captions.prompts[number[first]])
    assert len(np.unique(captions.labels["prompt"])) == 8075
    kinds = captions.labels["pictures"]
    np.testing.assert_array_equal(captioning.labels["pictures"], kinds[number])
    for labels, counts in ((kinds, [1678, 169, 321]), (kinds[number[::5]], [439, 160, 160])):
        assert [np.sum(labels == kind) for kind in ("dog", "street", "water")] == counts
    # Captions of a photograph are nearer to each other than to those of another.
    one, two = captioning.outputs.reshape(2300, 5, -1)[:, :2].swapaxes(0, 1)
    own, others = (np.einsum("pd,pd->p", one, of) for of in (two, np.roll(two, 1, axis=0)))
    assert own.mean() > 0.5 > 0.2 > others.mean()


@pytest.mark.slow
def test_the_gallery_and_the_judged_responses_are_those_of_their_descriptions():
    pairs = load("gallery")
    names, counts = np.unique(pairs.labels["models"], return_counts=True)
    assert ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True)) == (
        "DALL-E 2 77, DALL-E mini 369, GLID-3-XL 243, Midjourney 199, Stability beta 101, "
        "latent diffusion 369, simulacra 104"
    )
    assert np.unique(pairs.labels["prompt"]).size == 41
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
