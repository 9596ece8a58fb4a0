"""The shipped embeddings: whole, consistent, lawful and sensible; and the loader's manners."""

import dataclasses

import numpy as np
import pytest

from experiments.data import PairedEmbeddings, load, load_files
from experiments.data.loading import EMOJI_FILE

ALLOWED = {"Apache-2.0", "MIT", "CC-BY-4.0", "CC-BY-SA-4.0"}


@pytest.fixture(scope="module")
def stored():
    with np.load(EMOJI_FILE, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.fixture(scope="module")
def emoji():
    return load("emoji")


# --- the file ------------------------------------------------------------------------------------


def test_the_file_is_small_and_holds_plain_arrays(stored):
    assert EMOJI_FILE.stat().st_size <= 25e6
    assert {array.dtype.kind for array in stored.values()} <= set("fiU")


def test_every_array_has_the_size_that_it_should(stored):
    n, n_prompts, n_designers = 11_822, 1_652, 9
    assert stored["outputs"].shape == (n, 1280)
    assert stored["prompt_embeddings"].shape == (n_prompts, 384)
    assert stored["outputs"].dtype == stored["prompt_embeddings"].dtype == np.float16
    for name in ("prompt_index", "designer_index"):
        assert stored[name].shape == (n,)
    for name in ("prompt_texts", "concept_codes", "groups", "subgroups"):
        assert stored[name].shape == (n_prompts,)
    for name in ("designers", "packages", "licences", "sources"):
        assert stored[name].shape == (n_designers,)


def test_indices_reach_every_prompt_and_designer(stored):
    for index, names in (("prompt_index", "prompt_texts"), ("designer_index", "designers")):
        np.testing.assert_array_equal(np.unique(stored[index]), np.arange(len(stored[names])))


def test_pairs_are_ordered_and_none_is_twice(stored):
    order = stored["prompt_index"].astype(int) * 9 + stored["designer_index"]
    assert np.all(np.diff(order) > 0)


def test_names_are_unique_and_not_empty(stored):
    for name in ("prompt_texts", "concept_codes", "designers", "packages"):
        assert len(set(stored[name].tolist())) == len(stored[name]), name
    assert all(text.strip() for text in stored["prompt_texts"])


def test_rows_have_unit_norm(stored):
    for name in ("outputs", "prompt_embeddings"):
        norms = np.linalg.norm(stored[name].astype(np.float64), axis=1)
        np.testing.assert_allclose(norms, 1.0, atol=2e-4)


def test_every_designer_has_a_licence_that_allows_shipping(stored):
    assert set(stored["licences"].tolist()) <= ALLOWED
    assert all(source.startswith("https://") for source in stored["sources"])


def test_the_attribution_names_every_set(stored):
    text = (EMOJI_FILE.parent / "ATTRIBUTION.md").read_text(encoding="utf-8")
    counts = np.bincount(stored["designer_index"])
    for name, *facts in zip(
        stored["designers"], stored["packages"], stored["licences"], stored["sources"], strict=True
    ):
        [row] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert all(str(fact) in row for fact in facts), row
        assert f"{counts[stored['designers'] == name][0]:,}" in row


def test_no_skin_tones_nor_country_flags(stored):
    assert not any("skin tone" in text for text in stored["prompt_texts"])
    assert "country-flag" not in stored["subgroups"]
    assert np.sum(stored["groups"] == "flags") == 8


# --- what the loader gives -----------------------------------------------------------------------


def test_the_loaded_set_is_float32_with_exact_unit_norms(emoji):
    for rows in (emoji.outputs, emoji.prompts):
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)


def test_fields_describe_the_same_pairs(emoji, stored):
    row = 7_000
    prompt, designer = stored["prompt_index"][row], stored["designer_index"][row]
    assert len(emoji) == len(emoji.outputs) == 11_822
    assert emoji.prompt_texts[row] == stored["prompt_texts"][prompt]
    assert emoji.types[row] == stored["groups"][prompt]
    assert emoji.subtypes[row] == stored["subgroups"][prompt]
    assert emoji.designers[row] == stored["designers"][designer]
    assert "11,822" in emoji.description and "\n" not in emoji.description


def test_pairs_of_one_prompt_share_its_embedding_and_others_do_not(emoji):
    first = np.unique(emoji.prompt_index, return_index=True)[1]
    np.testing.assert_array_equal(emoji.prompts, emoji.prompts[first][emoji.prompt_index])
    nearest = emoji.prompts[first] @ emoji.prompts[first].T - 2 * np.eye(len(first))
    assert nearest.max() < 1 - 1e-4


def test_one_concept_looks_alike_across_designers(emoji):
    same = (emoji.prompt_index[1:] == emoji.prompt_index[:-1]).nonzero()[0]
    other = np.random.default_rng(0).permutation(len(emoji))[: len(same)]
    alike = np.einsum("nd,nd->n", emoji.outputs[same], emoji.outputs[same + 1])
    random = np.einsum("nd,nd->n", emoji.outputs[same], emoji.outputs[other])
    assert np.mean(alike) > 0.55 > 0.45 > np.mean(random)


def test_the_nearest_picture_of_another_designer_is_often_the_same_concept(emoji):
    ours, theirs = emoji.designers == "Twemoji", emoji.designers == "Noto"
    nearest = np.argmax(emoji.outputs[ours] @ emoji.outputs[theirs].T, axis=1)
    accuracy = np.mean(emoji.prompt_index[theirs][nearest] == emoji.prompt_index[ours])
    assert accuracy > 300 / 1_652, "chance is 1 in 1,652"


def test_related_names_are_near(emoji):
    def row(text):
        return emoji.prompts[np.flatnonzero(emoji.prompt_texts == text)[0]]

    assert row("tiger") @ row("lion") > row("tiger") @ row("hammer") + 0.1


# --- one's own files -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "outputs": rng.normal(size=(6, 3)).astype(np.float32),
        "prompts": rng.normal(size=(6, 2)).astype(np.float32),
        "types": np.array(["cat", "cat", "dog", "dog", "dog", "cow"]),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return {name: tmp_path / f"{name}.npy" for name in arrays}, arrays


def test_own_files_round_trip(files):
    paths, arrays = files
    for own in (load_files(**paths), load(paths)):
        for field, array in arrays.items():
            np.testing.assert_array_equal(getattr(own, field), array)
        assert own.name == "outputs" and "6 pairs" in own.description
    assert load_files(outputs=paths["outputs"], prompts=paths["prompts"]).types is None


def test_own_numbers_are_cast_to_float32(files):
    paths, arrays = files
    np.save(paths["outputs"], arrays["outputs"].astype(np.float16))
    own = load_files(**paths)
    assert own.outputs.dtype == np.float32
    np.testing.assert_allclose(own.outputs, arrays["outputs"], rtol=1e-3)


@pytest.mark.parametrize("role", ["prompts", "types"])
def test_other_lengths_are_refused_with_both(files, role):
    paths, arrays = files
    np.save(paths[role], arrays[role][:4])
    with pytest.raises(ValueError, match=f"outputs and {role} .*received 6 and 4"):
        load_files(**paths)


@pytest.mark.parametrize(
    "role, array, message",
    [
        ("outputs", np.zeros(6), r"outputs must be a matrix .*shape \(6,\)"),
        ("prompts", np.zeros((6, 2, 2)), r"prompts must be a matrix .*shape \(6, 2, 2\)"),
        ("prompts", np.full((6, 2), "x"), "prompts must be a matrix .*<U1"),
        ("types", np.zeros((6, 2)), r"types must be one label .*shape \(6, 2\)"),
    ],
)
def test_other_shapes_and_dtypes_are_refused(files, role, array, message):
    paths, _ = files
    np.save(paths[role], array)
    with pytest.raises(ValueError, match=message):
        load_files(**paths)


def test_a_pickled_array_is_refused(files):
    paths, _ = files
    np.save(paths["outputs"], np.array([[{}]], object), allow_pickle=True)
    with pytest.raises((TypeError, ValueError)):
        load_files(**paths)


def test_unknown_names_and_roles_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'coco'; known: emoji"):
        load("coco")
    with pytest.raises(ValueError, match="outputs, prompts and .*received labels, outputs"):
        load({"outputs": "x.npy", "labels": "y.npy"})
    with pytest.raises(ValueError, match="received none"):
        load({})


def test_the_pairs_are_frozen_and_of_one_length():
    own = PairedEmbeddings("own", np.zeros((3, 2)), np.zeros((3, 1)), "three pairs")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(own, "name", "other")  # noqa: B010 - a plain assignment does not type-check.
    with pytest.raises(ValueError, match="outputs and designers .*received 3 and 2"):
        dataclasses.replace(own, designers=np.array(["a", "b"]))
