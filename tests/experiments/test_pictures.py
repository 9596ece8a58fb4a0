"""Small real pictures: what is read of a folder, and what is refused in a line."""

import dataclasses
import gzip
import pathlib

import numpy as np
import pytest
from small_repositories import Texts, picture, work

from experiments.builders import common, features
from experiments.data import load
from experiments.generators import pictures

pytestmark = pytest.mark.slow

COUNTS = {"train": 6, "t10k": 3}


def idx(array):
    header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
    return gzip.compress(header + array.tobytes())


CUBE = idx(np.zeros((3, 2, 2), np.uint8))


@pytest.fixture
def fashion(tmp_path):
    """A folder in the form of Fashion-MNIST, with nine pictures."""
    rng = np.random.default_rng(0)
    content = {}
    for part, count in COUNTS.items():
        content[f"{part}-images-idx3"] = rng.integers(1, 256, (count, 28, 28), np.uint8)
        content[f"{part}-labels-idx1"] = rng.integers(0, 10, count).astype(np.uint8)
    for name, array in content.items():
        (tmp_path / f"{name}-ubyte.gz").write_bytes(idx(array))
    return tmp_path, content


def test_fashion_has_a_black_rim_and_holds_its_test_part_out(fashion):
    folder, content = fashion
    found = pictures.read_fashion(folder)
    assert found.pixels.shape == (9, 32, 32, 1)
    images, labels = (
        np.concatenate([content[f"{part}-{name}"] for part in COUNTS])
        for name in ("images-idx3", "labels-idx1")
    )
    np.testing.assert_array_equal(found.pixels[:, 2:30, 2:30, 0], images)
    assert found.pixels.sum() == images.sum()
    np.testing.assert_array_equal(found.kinds, labels)
    np.testing.assert_array_equal(found.held_out, [False] * 6 + [True] * 3)
    pixels, kinds = found.part(held_out=True)
    np.testing.assert_array_equal(kinds, labels[6:])
    np.testing.assert_allclose(pixels, found.pixels[6:] / 255, rtol=1e-6)
    assert found.part(held_out=False)[0].shape == (6, 32, 32, 1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"not gzip", "damaged"),
        (CUBE[:-6], "damaged"),
        (idx(np.zeros(3, np.uint8)), "not an IDX file of bytes with 3 axes"),
        (gzip.compress(gzip.decompress(CUBE)[:10]), "not an IDX file of bytes with 3 axes"),
        (gzip.compress(gzip.decompress(CUBE)[:-1]), "11 bytes where"),
    ],
    ids=["none", "no gzip", "cut", "one axis", "short header", "short"],  # Gzip holds the time.
)
def test_files_that_are_no_idx_are_named(tmp_path, content, words):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"train-images-idx3-ubyte\.gz: .*{words}"):
        pictures.read_idx(path, 3)


def test_other_pictures_than_those_of_the_digest_are_refused(fashion, tmp_path):
    folder, _ = fashion
    collection, found = pictures.COLLECTIONS["fashion"], pictures.read_fashion(folder)
    digest = pictures.digest_of(found)
    for given, words in (
        (folder, f"digest is {digest}, expected {collection.digest}"),
        (None, "fashion: no folder of pictures is given; the Debian"),
        (tmp_path / "nowhere", "nowhere: there is no such folder"),
    ):
        with pytest.raises(ValueError, match=words):
            collection.load(given)
    # The digest sees pixels, kinds and what is held out.
    for name in ("pixels", "kinds", "held_out"):
        changed = getattr(found, name).copy()
        changed.flat[0] ^= 1
        other = dataclasses.replace(found, **{name: changed})
        assert pictures.digest_of(other) != digest


def test_emoji_follow_the_rows_of_their_set(tmp_path, monkeypatch):
    rows = 29
    np.savez(tmp_path / "emoji.npz", prompt_index=np.arange(rows, dtype=np.int16) // 3)
    monkeypatch.setattr(pictures, "EMOJI_FILE", tmp_path / "emoji.npz")
    for row in range(rows):
        (tmp_path / f"{row}.png").write_bytes(picture((8 * row, 0, 255), 64))
    found = pictures.read_emoji(tmp_path)
    assert found.pixels.shape == (rows, 32, 32, 3)
    np.testing.assert_array_equal(found.pixels[:, 5, 5, 0], 8 * np.arange(rows))
    np.testing.assert_array_equal(found.kinds, np.arange(rows) // 3)
    assert found.held_out.sum() == 2
    (tmp_path / "7.png").unlink()
    with pytest.raises(ValueError, match=r"7\.png: there is no such file"):
        pictures.read_emoji(tmp_path)


def test_the_emoji_that_are_held_out_are_those_of_the_shipped_features(tmp_path, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda path: b"")
    monkeypatch.setattr(pictures, "decode_image", lambda content, **_: np.uint8(0))
    found = pictures.read_emoji(tmp_path)
    kinds = load("emoji_features").labels["kind"]
    np.testing.assert_array_equal(found.kinds[found.held_out], kinds)


def test_wordings_name_their_kind_and_fill_the_file(tmp_path, monkeypatch):
    texts = Texts()
    monkeypatch.setattr(common, "load_minilm", lambda: texts)
    work(features.FASHION_FILE.stem, tmp_path).make()
    with np.load(tmp_path / "fashion_prompts.npz") as stored:
        embeddings = stored["embeddings"]
    assert embeddings.shape == (10, 12, 4) and embeddings.dtype == np.float16
    assert len(set(texts.given)) == 120
    wording = "A pair of trousers is photographed on a plain background."
    np.testing.assert_allclose(embeddings[1, 0], *texts.rows([wording]), atol=1e-3)
