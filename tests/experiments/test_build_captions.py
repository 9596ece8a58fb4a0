"""The builder of the captions sets, on small repositories."""

import numpy as np
import pytest
from small_repositories import Corners, make, picture, repository

from experiments.builders import captions, common
from experiments.data import sets

pytestmark = pytest.mark.slow

COUNT, WORDS = 60, ("dog", "water", "street", "hill")
COLOURS = np.random.default_rng(0).integers(0, 256, (COUNT, 3))


def captions_of(number):
    first = f"A {WORDS[number % 4]} by a {WORDS[number % 4]} ."
    return [first, *(f"caption {k} of {number % 50}" for k in range(1, 5))]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
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
    constants |= {"PAIRS": 60 + 4 * 22 + 50, "PICTURE_STEP": 2.0**-8, "TEXT_STEP": 2.0**-7}
    made = make(captions, folder, *clones, **constants)
    return made, folder / "captioning.npz"


def test_a_photograph_is_paired_with_its_first_caption(built):
    (found, stored, cut, _, texts), _ = built
    pictures = np.tile(COLOURS[:, None, None], (1, 8, 8, 1))
    expected = common.unit_rows(Corners().encode(pictures))
    np.testing.assert_allclose(found.outputs, expected, atol=2.0**-8)
    firsts = [captions_of(number)[0] for number in range(COUNT)]
    np.testing.assert_allclose(found.prompts, texts.rows(firsts), atol=2.0**-7)
    assert not ((stored["outputs"] * 2**8 % 1).any() or (stored["prompts"] * 2**7 % 1).any())
    assert found.labels["photograph"].tolist() == list(range(COUNT))
    kinds = [WORDS[n % 4] if n % 4 < 2 else "other" for n in range(COUNT)]
    assert found.labels["pictures"].tolist() == kinds
    # Equal captions are one prompt.
    same = found.labels["prompt"]
    assert len(set(same[:4])) == 4 and all(same[n] == same[n % 4] for n in range(COUNT))
    assert "60 photographs" in found.description


def test_drawn_photographs_have_all_five_captions(built):
    (whole, _, _, _, texts), path = built
    found = sets.read_set(path)
    number, caption = found.labels["prompt"], found.labels["caption"]
    assert len(found) == 5 * 22
    assert caption.tolist() == list(range(5)) * 22
    assert (np.diff(number) >= 0).all() and len(set(number)) == 22
    np.testing.assert_array_equal(found.prompts, whole.outputs[number])
    written = [captions_of(n)[k] for n, k in zip(number, caption, strict=True)]
    np.testing.assert_allclose(found.outputs, texts.rows(written), atol=2.0**-7)
    np.testing.assert_array_equal(found.labels["pictures"], whole.labels["pictures"][number])
    assert "five human captions of each of 22 photographs" in found.description


def test_further_captions_make_the_pairs_up(built, monkeypatch):
    """Of 38 photographs that were not drawn a second caption, and of 12 a third."""
    (whole, _, _, _, texts), path = built
    monkeypatch.setattr(sets, "FOLDER", path.parent)
    found = sets.load_caption_pairs()
    photograph, count = found.labels["photograph"], COUNT + 4 * 22
    assert len(found) == count + 50 and f"{count + 50} pairs" in found.description
    assert sorted(np.bincount(photograph)) == [2] * 26 + [3] * 12 + [5] * 22
    np.testing.assert_array_equal(found.outputs, whole.outputs[photograph])
    number = np.array([np.sum(photograph[:k] == p) for k, p in enumerate(photograph)])
    written = [captions_of(n)[k] for n, k in zip(photograph, number, strict=True)]
    np.testing.assert_allclose(found.prompts, texts.rows(written), atol=2.0**-7)


def test_photographs_are_drawn_by_kind_and_then_at_random(monkeypatch):
    kinds = np.array(["dog"] * 10 + ["water"] * 3 + ["other"] * 20)
    monkeypatch.setattr(captions, "OF_A_KIND", 4)
    found = {}
    for count, seed in ((15, 0), (7, 0), (15, 1)):
        monkeypatch.setattr(captions, "DRAWN", count)
        monkeypatch.setattr(captions, "SEED", seed)
        drawn = found[count, seed] = captions.draw(kinds)
        assert len(set(drawn)) == count and (np.diff(drawn) > 0).all()
        assert np.sum(kinds[drawn] == "dog") >= 4 and np.sum(kinds[drawn] == "water") == 3
    assert set(found[7, 0]) <= set(found[15, 0]) != set(found[15, 1])
    assert "other" not in kinds[found[7, 0]]
