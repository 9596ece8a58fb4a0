"""The builder of the captions sets, on small repositories and by encoders that count colours."""

import io
import json
import subprocess

import numpy as np
import pytest

from experiments.builders import captions, common
from experiments.data import sets

pytestmark = pytest.mark.slow

COUNT = 60
WORDS = ("dog", "water", "street", "hill")


def commit(folder, files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *who, "-C", str(folder), *words], check=True)
    return common.Repository("me/it", "HEAD", folder)


def picture(number):
    pixels = np.random.default_rng(number).integers(0, 256, 3).astype(np.uint8)
    stream = io.BytesIO()
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.tile(pixels, (8, 8, 1))).save(stream, "PNG")
    return stream.getvalue()


def captions_of(number):
    first = f"A {WORDS[number % 4]} by a {WORDS[number % 4]} ."
    return [first, *(f"caption {k} of {number % 50}" for k in range(1, 5))]


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """The files of 61 photographs, of which one has no captions; captions of one more, and odd."""
    folder = tmp_path_factory.mktemp("repositories")
    names = [f"{number:03}.jpg" for number in range(COUNT)]
    pictures = {f"data/images/{name}": picture(i) for i, name in enumerate(names)}
    lines = [
        f"{name}#{k}\t{caption}"
        for number, name in reversed(list(enumerate([*names, "lost.jpg"])))
        for k, caption in enumerate(captions_of(number))
    ]
    lines += ["odd.jpg.1#0\tone of five", ""]
    return (
        commit(folder / "p", pictures | {"data/images/dumb.jpg": picture(99), "a.jpg": b"no"}),
        commit(folder / "t", {"Flickr8k.token.txt": "\n".join(lines).encode()}),
    )


class Pictures:
    name, dimension, side = "colours", 6, 4

    def encode(self, items):
        colours = np.asarray(items, float).reshape(len(items), -1, 3).mean(1) / 255
        return np.concatenate([colours, 1 - colours], axis=1)


class Texts:
    name, dimension = "letters", 4

    def encode(self, items):
        rows = [np.random.default_rng(list(item.encode())).random(4) for item in items]
        return np.array(rows)


@pytest.fixture(scope="module")
def built(repositories, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    targets = [folder / "captions.npz", folder / "captioning.npz"]
    cuts = captions.Cuts(("dog", "water"), 5, 22, 2.0**-8, 2.0**-7, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captions, "load_efficientnet", Pictures)
        patch.setattr(captions, "load_minilm", Texts)
        patch.setattr(common, "versions", lambda *packages: ["weights 1"])
        captions.build(*repositories, cuts, targets, cache=folder)
    return folder, [sets.read_set(target) for target in targets]


def test_a_photograph_is_paired_with_its_first_caption(built):
    _, (captions, _) = built
    assert len(captions) == COUNT
    colours = np.stack([np.random.default_rng(i).integers(0, 256, 3) for i in range(COUNT)]) / 255
    expected = common.unit_rows(np.concatenate([colours, 1 - colours], axis=1))
    np.testing.assert_allclose(captions.outputs, expected, atol=2.0**-8)
    firsts = [captions_of(number)[0] for number in range(COUNT)]
    expected = common.unit_rows(Texts().encode(firsts))
    np.testing.assert_allclose(captions.prompts, expected, atol=2.0**-7)
    assert captions.labels["photograph"].tolist() == list(range(COUNT))
    kinds = [WORDS[n % 4] if n % 4 < 2 else "other" for n in range(COUNT)]
    assert captions.labels["pictures"].tolist() == kinds
    # Equal captions are one prompt.
    same = captions.labels["prompt"]
    assert len(set(same[:4])) == 4 and all(same[n] == same[n % 4] for n in range(COUNT))
    assert "60 photographs" in captions.description


def test_drawn_photographs_have_all_five_captions(built):
    _, (captions, captioning) = built
    number, caption = captioning.labels["prompt"], captioning.labels["caption"]
    assert len(captioning) == 5 * 22
    assert caption.tolist() == list(range(5)) * 22
    assert (np.diff(number) >= 0).all() and len(set(number)) == 22
    np.testing.assert_array_equal(captioning.prompts, captions.outputs[number])
    texts = [captions_of(n)[k] for n, k in zip(number, caption, strict=True)]
    expected = common.unit_rows(Texts().encode(texts))
    np.testing.assert_allclose(captioning.outputs, expected, atol=2.0**-7)
    kinds, counts = np.unique(captioning.labels["pictures"][::5], return_counts=True)
    assert dict(zip(kinds, counts, strict=True))["dog"] >= 5
    np.testing.assert_array_equal(
        captioning.labels["pictures"], captions.labels["pictures"][number]
    )
    assert "five human captions of each of 22 photographs" in captioning.description


def test_the_files_say_whose_they_are_and_what_cuts_cost(built):
    folder, _ = built
    for name, parts in {
        "captions": ("rounding",),
        "captioning": ("five_captions", "first_captions"),
    }.items():
        with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
            assert "non-commercial" in str(stored["licence"])
            assert stored["provenance"].tolist() == ["me/it @ HEAD", "me/it @ HEAD", "weights 1"]
            cut = json.loads(str(stored["cut"]))
        assert set(parts) <= set(cut), cut
    assert cut["drawn"] == "22 of 60 photographs, seed 0"
    assert abs(cut["five_captions"]["rounding"]["vendi"]["change"]) < 0.02
    drawing = cut["first_captions"]["drawing"]["vendi"]
    assert drawing["before"] != drawing["after"]


def test_no_text_and_no_picture_is_written(built):
    folder, _ = built
    for name in ("captions", "captioning"):
        with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
            words = " ".join(
                str(stored[entry]) for entry in stored if stored[entry].dtype.kind == "U"
            )
            assert max(stored[entry].ndim for entry in stored) == 2
        assert "caption 1 of" not in words and "by a" not in words


def test_a_caption_names_a_kind_by_whole_words():
    kinds = ("dog", "water", "street")
    for caption, kind in {
        "Two Dogs run": "dog",
        "a hotdog stand": "other",
        "dog, in the water": "other",
        "The street-car": "street",
        "waterfall": "other",
        "": "other",
    }.items():
        assert captions.kind_of(caption, kinds) == kind, caption


def test_captions_are_read_by_name_and_number():
    lines = [f"a b.jpg#{k}\t caption {k} ." for k in (3, 1, 0, 2, 4)]
    assert captions.read_captions("\n".join(lines)) == {
        "a b.jpg": [f"caption {k} ." for k in range(5)]
    }
    assert captions.read_captions("\n".join([*lines[:4], "a b.jpg#4\t "])) == {}
    assert captions.read_captions("\n".join(lines[:4])) == {}
    with pytest.raises(ValueError, match="line 6: a b.jpg has a caption 3 already"):
        captions.read_captions("\n".join([*lines, lines[0]]))
    with pytest.raises(ValueError, match="line 1: expected name#number, a tab and a caption"):
        captions.read_captions("a.jpg 0 caption")


def test_photographs_are_drawn_by_kind_and_then_at_random():
    kinds = np.array(["dog"] * 10 + ["water"] * 3 + ["other"] * 20)
    drawn = captions.draw(kinds, count=15, per_kind=4, seed=0)
    assert len(set(drawn)) == 15 and (np.diff(drawn) > 0).all()
    assert np.sum(kinds[drawn] == "dog") >= 4 and np.sum(kinds[drawn] == "water") == 3
    exact = captions.draw(kinds, count=7, per_kind=4, seed=0)
    assert sorted(kinds[exact]) == ["dog"] * 4 + ["water"] * 3
    assert set(exact) <= set(drawn)
    assert set(captions.draw(kinds, count=15, per_kind=4, seed=1)) != set(drawn)
    for count in (6, 34):
        with pytest.raises(ValueError, match=rf"expected 7 \(the kinds\) to 33 .*received {count}"):
            captions.draw(kinds, count=count, per_kind=4, seed=0)


def test_rounded_rows_are_multiples_that_float16_holds():
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 30))
    found = common.rounded(rows, 2.0**-6)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, found.astype(np.float16))
    np.testing.assert_array_equal(found * 64, np.round(rows * 64))
    for step in (0.3, 0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match="step: expected a power of two below 1"):
            common.rounded(rows, step)
