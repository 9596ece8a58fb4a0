"""The shipped embeddings: whole, consistent, lawful and sensible; and the loader's manners."""

import numpy as np
import pytest

from experiments.data import SETS, load, load_files, mixture
from experiments.data.sets import EMOJI_FILE, FOLDER
from experiments.generators.pictures import FASHION_FILE


@pytest.fixture(scope="module")
def stored():
    with np.load(EMOJI_FILE, allow_pickle=False) as arrays:
        return dict(arrays)


def test_every_array_has_the_size_that_it_should(stored):
    n, n_prompts, n_designers = 11_822, 1_652, 9
    assert stored["outputs"].shape == (n, 1280)
    assert stored["prompt_embeddings"].shape == (n_prompts, 384)
    assert stored["outputs"].dtype == stored["prompt_embeddings"].dtype == np.float16
    assert len(np.unique(stored["prompt_texts"])) == n_prompts
    assert len(np.unique(stored["designers"])) == n_designers
    # Pairs are ordered, and none is there twice.
    order = stored["prompt_index"].astype(int) * 9 + stored["designer_index"]
    assert np.all(np.diff(order) > 0)


def test_the_attribution_names_every_designer_with_a_licence_that_allows_shipping(stored):
    assert set(stored["licences"].tolist()) <= {"Apache-2.0", "MIT", "CC-BY-4.0", "CC-BY-SA-4.0"}
    text = (FOLDER / "ATTRIBUTION.md").read_text(encoding="utf-8")
    counts = np.bincount(stored["designer_index"])
    for name, *facts in zip(
        stored["designers"], stored["packages"], stored["licences"], stored["sources"], strict=True
    ):
        [row] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert all(str(fact) in row for fact in facts), row
        assert f"{counts[stored['designers'] == name][0]:,}" in row


def test_pairs_of_one_prompt_share_its_embedding_and_others_do_not():
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
    alike = np.einsum("nd,nd->n", emoji.outputs[same], emoji.outputs[same + 1])
    random = np.einsum("nd,nd->n", emoji.outputs[same], emoji.outputs[other])
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
    paths, _ = files
    for role, array in changed.items():
        np.save(paths[role], array)
    with pytest.raises((TypeError, ValueError), match=message):
        load_files(**paths)


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
        file = f"{name.removesuffix('_second')}.npz"
        assert file in (FOLDER / "ATTRIBUTION.md").read_text(encoding="utf-8")
        readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
        terms = readme.partition("Licensed under")[2]
        assert (name in terms) == ("NC" in found.licence or "not stated" in found.licence)
    assert {len(label) for label in pairs.labels.values()} <= {len(pairs)}


def test_the_shipped_files_are_small():
    sizes = {path.stem: path.stat().st_size for path in FOLDER.glob("*.npz")}
    assert set(sizes) == set(SETS) - {"mixture", "t2i_second"} | {
        FASHION_FILE.stem,
        "human_similarities",
    }
    assert sum(sizes.values()) - sizes["emoji"] <= 125e6


def test_a_mixture_is_drawn_alike_whatever_its_size():
    drawn = (mixture.draw(n, (6, 4), seed) for n, seed in ((50, 3), (40, 3), (40, 4)))
    for longer, shorter, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(longer[:40], shorter)
        assert (shorter != other).all(axis=1).any()
