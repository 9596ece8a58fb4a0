"""Files of parameters and of pictures: what is read, and what is refused in a line."""

import dataclasses
import functools
import gzip
import itertools
import pathlib
import re

import chex
import jax
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx
from small_repositories import Texts, picture, work

from experiments.builders import common, features
from experiments.data import load
from experiments.generators import fitting, latent_diffusion, mixture_gan, picture_encoder, pictures
from experiments.generators.fitting import Places
from experiments.generators.mixture_gan import Training as Gan
from experiments.lab import records

pytestmark = pytest.mark.slow

TREE = {
    "layers": {0: {"kernel": np.arange(6.0).reshape(2, 3)}, 1: {"bias": np.float32(2.5)}},
    "trace": np.arange(4, dtype=np.float16),
}
IDENTITY = records.identify("model", 1, {"width": 3}, {"data": np.arange(3)}, seed=0)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    fitting.save(path, TREE, IDENTITY)
    return path


def test_a_saved_tree_is_read_back_bit_by_bit_in_any_memory_order(path):
    with safetensors.safe_open(path, framework="numpy") as archive:
        assert set(archive.keys()) == {"layers/0/kernel", "layers/1/bias", "trace"}
    for tree in (TREE, {"a": np.arange(6.0).reshape(2, 3).T}):
        fitting.save(path, tree, IDENTITY)
        chex.assert_trees_all_equal(fitting.load(path, IDENTITY), tree, strict=True)


def test_an_nnx_model_survives_in_half_precision_and_is_refused_another_ones_parameters(path):
    make = functools.partial(nnx.Linear, 3)
    model = make(2, rngs=nnx.Rngs(1))
    half = jax.tree.map(lambda x: np.asarray(x, np.float16), nnx.to_pure_dict(nnx.state(model)))
    fitting.save(path, half, IDENTITY)
    restored = fitting.restore(make, 2, fitting.load(path, IDENTITY))
    assert restored.kernel[...].dtype == np.float32
    np.testing.assert_allclose(restored.kernel[...], model.kernel[...], rtol=1e-3)
    others = {"kernel": half | {"kernel": np.zeros((2, 2))}, "scale": half | {"scale": np.zeros(2)}}
    for name, tree in (others | {"bias": {"kernel": half["kernel"]}}).items():
        with pytest.raises(ValueError, match=f"another model: {name}."):
            fitting.restore(make, 2, tree)


def refused(path, words="damaged"):
    """Whether the file is refused, in one line with its path."""
    with pytest.raises(ValueError, match=words) as caught:
        fitting.load(path, IDENTITY)
    return str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_every_bit_of_a_file_counts(path):
    content = path.read_bytes()
    for place in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert refused(path, "safetensors")
    for keep in (0, 7, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:keep])
        assert refused(path)


def test_files_of_others_are_refused(path):
    fitting.save(path, TREE, records.identify("model", 1, {"width": 4}, {}, seed=0))
    assert refused(path, "of another training .width: 4 there, 3 asked for")
    safetensors.numpy.save_file({"a": np.zeros(2)}, path)
    assert refused(path, "not a file of this project")
    path.unlink()
    path.mkdir()
    assert refused(path)


@pytest.fixture
def get(tmp_path):
    """The number of the training whose parameters an identity has."""
    places = Places(cache=tmp_path / "cache", shipped=tmp_path / "shipped")
    times = itertools.count(1)

    def run(name="model", version=1, seed=0, data=0.0, **settings):
        identity = records.identify(name, version, settings, {"data": np.array([data])}, seed)
        return places.trained(identity, lambda: {"run": np.array(next(times))})["run"]

    return run


def test_each_identity_is_trained_once(get, tmp_path, capsys):
    assert get() == get() == 1
    assert re.match(r"model-\w{16}.safetensors: neither in", capsys.readouterr().err)
    runs = get(width=3), get(seed=4), get(version=2), get(name="other"), get(data=1.0), get()
    assert runs == (2, 3, 4, 5, 6, 1)
    assert not (tmp_path / "shipped").exists()


@pytest.mark.parametrize("place", ["shipped", "cache"])
@pytest.mark.parametrize("word", ["damaged", "of another training"])
def test_what_is_shipped_comes_first_but_no_damaged_or_foreign_file(
    get, tmp_path, place, word, capsys
):
    get()
    if place == "shipped":
        (tmp_path / "cache").rename(tmp_path / "shipped")
        assert get() == 1 and not (tmp_path / "cache").exists()
    (file,) = (tmp_path / place).iterdir()
    fitting.save(file, TREE, IDENTITY)
    if word == "damaged":
        file.write_bytes(file.read_bytes()[:50])
    content = file.read_bytes()
    capsys.readouterr()
    assert get() == get() == 2
    assert any(str(file) in line and word in line for line in capsys.readouterr().err.splitlines())
    assert (file.read_bytes() == content) == (place == "shipped")


def test_a_cache_that_cannot_be_written_is_found_out_before_training(get, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        get()
    (tmp_path / "cache").unlink()
    assert get() == 1


def test_every_shipped_file_is_of_a_training_as_it_is_now():
    """A number of a training that changes, or leaves its identity, changes the file's name."""
    kinds = mixture_gan.KINDS.items()
    gans = [Gan(m, kind, of.steps) for m in mixture_gan.MIXTURES for kind, of in kinds]
    identities = [
        *map(latent_diffusion.coder_identity, latent_diffusion.TRAININGS.values()),
        *map(latent_diffusion.identity, latent_diffusion.TRAININGS.values()),
        *map(picture_encoder.identity, picture_encoder.TRAININGS.values()),
        *map(mixture_gan.identity, gans),
    ]
    names = {path.name for path in fitting.SHIPPED.iterdir()}
    assert names == {fitting.file_name(identity) for identity in identities}


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
