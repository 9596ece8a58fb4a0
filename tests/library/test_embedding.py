"""Embeddings belong to contents and encoders, whatever the files are called."""

import pathlib
import re
import sys
import types
import warnings
from unittest import mock

import fake_encoders
import numpy as np
import pytest
from fake_encoders import Means, Others, Squares

from condvendi_jax.encoders import embedding
from condvendi_jax.encoders.embedding import LoadedEncoder, default_cache, embed, load_encoder
from condvendi_jax.encoders.interface import EncoderError
from condvendi_jax.inference import datasets
from condvendi_jax.records.items import list_images

TEXTS = ["a cat", "ä dog", "a", "a cat", ""]
ROWS = np.array([[len(t), t.count("a"), sum(map(ord, t)), 1] for t in TEXTS], np.float32)


@pytest.fixture
def folder(tmp_path):
    """Five pictures of four contents and two sizes."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "images"
    folder.mkdir()
    for index, level in enumerate((10, 20, 30, 40)):
        size = (12, 6 + 2 * (index % 2))
        image.new("RGB", size, (level, 2 * level, 3 * level)).save(folder / f"{index}.png")
    (folder / "4.png").write_bytes((folder / "1.png").read_bytes())
    return folder


def _levels(rows):
    return rows[:, 0].tolist()


@pytest.mark.parametrize("attribute", ["ready", "make", "Means", "Nested.ready"])
def test_an_import_path_names_an_encoder_or_what_gives_one(attribute):
    loaded = load_encoder(f"fake_encoders:{attribute}", Others)
    assert isinstance(loaded.encoder, Means)
    assert (loaded.name, loaded.spec) == ("means", f"fake_encoders:{attribute}")
    np.testing.assert_array_equal(loaded.encoder.encode(TEXTS), ROWS)
    assert (loaded.encoder is fake_encoders.ready) == (attribute == "ready")


NO_ENCODER = {
    "fake_encoders": "'fake_encoders': .*st:fake_encoders, or package.module:attribute",
    "no_such_module:x": "no_such_module:x: cannot be imported: No module",
    "openclip:a/b": "openclip:a/b: cannot be .* st:, open_clip:, timm:",
    "clip": "'clip': expected open_clip:ARCH/PRETRAINED, timm:NAME or st:NAME, such as open_clip:V",
    "openai/clip-vit-base-patch32": "such as open_clip:ViT-B-32/openai",
    "dinov2": "such as timm:vit_small_patch14_dinov2.lvd142m",
    "all-mpnet-base-v2": "such as st:all-mpnet-base-v2",
    "fake_encoders:absent": "cannot be imported: .*has no attribute 'absent'",
    "time:time": "gives float, which has no `encode`",
    "datetime:date": "could not be made: TypeError: .*year",
    "fake_encoders:make_without_weights": "could not be made: the weights .*pip install",
}


@pytest.mark.parametrize("spec", NO_ENCODER)
def test_what_is_no_encoder_is_refused(spec):
    with pytest.raises(ValueError, match=NO_ENCODER[spec]):
        load_encoder(spec, Others)


def test_a_function_is_no_encoder_and_becomes_one_by_the_line_of_the_error():
    with pytest.raises(
        TypeError, match=r"types\.SimpleNamespace\(encode=f\) .*, received method\."
    ):
        embedding.encoder_of("texts", Means().encode)
    assert embedding.encoder_of("texts", types.SimpleNamespace(encode=Means().encode)).encoder


def test_texts_are_embedded_once_each(tmp_path):
    encoder = Means()
    for _ in range(2):
        got = embed(TEXTS, encoder, kind="texts", cache=tmp_path)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, ROWS)
        assert encoder.seen == [["a cat", "ä dog", "a", ""]]
    again = Means()  # As in the next process.
    got = embed(TEXTS[::-1], again, kind="texts", cache=tmp_path)
    np.testing.assert_array_equal(got, ROWS[::-1])
    assert again.count == 0
    for texts in (np.array(TEXTS), np.array(TEXTS, object), tuple(TEXTS)):
        np.testing.assert_array_equal(embed(texts, Means(), kind="texts", cache=tmp_path), ROWS)


class Encoded:
    """An encoder by a function of the items."""

    name = "given"

    def __init__(self, encode):
        self.encode = encode


def test_different_texts_of_one_embedding_are_counted_also_where_all_rows_are_kept(tmp_path):
    far, near = [0.3, -0.2, 0.1], [0.300001, -0.2, 0.1]  # A relative difference of 3e-6.
    rows = dict(b=far, c=[0.3001, -0.2, 0.1], a=near, d=[0, 0, 0], e=[0, 0, 0], f=far)
    words = (
        r"^given: 5 of 6 different texts have the embedding of another, which no kernel tells "
        r"apart, for example 'b' and '[af]'\. An encoder may not know some words"
    )
    for scale in (1, 1, 1e37, 1e-30):
        encoder = Encoded(lambda items, s=scale: np.array([np.multiply(rows[x], s) for x in items]))
        texts, folder = [*("bcadefbb" if scale == 1 else "bcdbb")], tmp_path / f"{scale}"
        with warnings.catch_warnings(record=True, action="always") as caught:
            embed(texts, encoder, kind="texts", cache=folder)
        assert len(caught) == (scale == 1) and all(re.search(words, str(c.message)) for c in caught)


def test_different_pictures_of_one_embedding_are_counted(folder, tmp_path):
    image = pytest.importorskip("PIL.Image")
    with image.open(folder / "0.png") as picture:
        picture.save(folder / "0.bmp")  # The same pixels in another file.
    words = r"means: 2 of 5 different pictures .* '0\.bmp' and '0\.png'\."
    with pytest.warns(UserWarning, match=words):
        embed(list_images(folder), Means(), kind="images", cache=tmp_path)


def test_a_square_encoder_gets_squares_and_rows_of_its_own(folder, tmp_path):
    means, squares = Means(), Squares()
    rows = embed(list_images(folder), means, kind="images", cache=tmp_path)
    assert _levels(rows) == [10, 20, 30, 40, 20]
    assert [picture.shape for picture in means.seen[0]] == [(6, 12, 3), (8, 12, 3)] * 2
    for call, squares.side in enumerate((8, 4)):
        embed(list_images(folder), squares, kind="images", cache=tmp_path)
        assert {picture.shape for picture in squares.seen[call]} == {(squares.side,) * 2 + (3,)}


def test_renamed_and_reordered_files_keep_their_rows_and_changed_ones_do_not(folder, tmp_path):
    first, second = Means(), Means()
    embed(list_images(folder), first, kind="images", cache=tmp_path)
    (folder / "0.png").rename(folder / "9.png")
    got = embed(list_images(folder), second, kind="images", cache=tmp_path)
    assert _levels(got) == [20, 30, 40, 20, 10]
    paths = [str(path) for path in reversed(list_images(folder))]
    assert _levels(embed(paths, second, kind="images", cache=tmp_path)) == [10, 20, 40, 30, 20]
    assert (first.count, second.count) == (4, 0)
    pytest.importorskip("PIL.Image").new("RGB", (4, 4), (99, 0, 0)).save(folder / "2.png")
    got = embed(list_images(folder), second, kind="images", cache=tmp_path)
    assert _levels(got) == [20, 99, 40, 20, 10]
    assert second.count == 1


def test_encoders_do_not_share_rows(tmp_path):
    means = Means()
    for encoder, kept in (
        (means, False),
        (means, True),
        (Others(), False),
        (LoadedEncoder(means, "elsewhere:ready"), False),
        (LoadedEncoder(means, "elsewhere:ready"), True),
        (LoadedEncoder(means, "elsewhere:other"), False),
    ):
        inner = encoder.encoder if isinstance(encoder, LoadedEncoder) else encoder
        before = inner.count
        embed(TEXTS, encoder, kind="texts", cache=tmp_path)
        assert (inner.count == before) == kept


class Scaled:
    """An encoder without a name, as fine-tuned models of one class are."""

    def __init__(self, scale, **more):
        self.scale = scale
        vars(self).update(more)

    def encode(self, texts):
        return np.array([[self.scale * int(text)] for text in texts], np.float32)


def test_nothing_is_kept_of_an_encoder_without_a_name_or_details(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for scale in (1, 2, 1):  # As `evaluate`, `compare` and `monitor` embed.
        data = datasets.Dataset.of({"A": ["1", "5"]}, None, Scaled(scale), None, True, across=False)
        np.testing.assert_array_equal(data.embed["outputs"](["1", "5"]), [[scale], [5 * scale]])
    with pytest.warns(UserWarning, match="^cache: not used, since .*Scaled has neither a `name`"):
        embed(["1"], Scaled(1), kind="texts", cache=tmp_path)
    assert not _shards(tmp_path)


@pytest.mark.parametrize("known", [{"details": {}}, {"details": {"weights": 1}}, {"name": "one"}])
def test_a_name_or_details_tell_encoders_of_one_class_apart(tmp_path, known):
    for encoder in (Scaled(1, **known), Scaled(2, **known), Scaled(3, details={"weights": 3})):
        rows = embed(["1", "5"], encoder, kind="texts", cache=tmp_path)
        kept = 3 if encoder.scale == 3 else 1  # The second says that it is the first.
        np.testing.assert_array_equal(rows, [[kept], [5 * kept]])


def test_an_encoder_whose_source_was_edited_is_another(tmp_path, monkeypatch):
    path = tmp_path / "edited_encoder.py"
    monkeypatch.syspath_prepend(tmp_path)
    answers = []
    for scale in ("1.0", "2.00"):  # Of another length, so that no compiled module is taken for it.
        path.write_text(
            "import numpy as np\nclass Own:\n name = 'own'\n"
            f" def encode(self, items): return np.full((len(items), 2), {scale})\n"
        )
        monkeypatch.delitem(sys.modules, "edited_encoder", raising=False)
        loaded = load_encoder("edited_encoder:Own", Others)
        answers.append(embed(["a"], loaded, kind="texts", cache=tmp_path / "cache")[0, 0])
    assert answers == [1, 2]


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_batches_are_bounded_and_what_is_finished_is_kept(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "_BATCHES", {"texts": 2, "images": 2})
    items = [f"text {n}" + "a" * n for n in range(7)]
    if kind == "images":
        image = pytest.importorskip("PIL.Image")
        (tmp_path / "images").mkdir()
        for n, name in enumerate(items):
            image.new("RGB", (4, 4), (30 * n, 0, 0)).save(tmp_path / "images" / f"{name}.png")
        items = [str(path) for path in list_images(tmp_path / "images")]
    expected = embed(items, Means(), kind=kind, cache=tmp_path / "other")

    class Interrupted(Means):
        def encode(self, items):
            if self.count == 4:
                raise KeyboardInterrupt
            return super().encode(items)

    how = {"kind": kind, "cache": tmp_path / "cache"}
    encoder, done = Interrupted(), []
    with pytest.raises(KeyboardInterrupt):
        embed(items, encoder, progress=done.append, **how)
    assert done == [0, 2, 4]
    encoder.seen, resumed = [], []
    got = embed([*items, items[0]], encoder, progress=resumed.append, **how)  # Equal ones count.
    assert [len(batch) for batch in encoder.seen] == [2, 1]
    assert resumed == [5, 7, 8]
    np.testing.assert_array_equal(got, [*expected, expected[0]])


def _shards(cache):
    return sorted(cache.rglob("*.npz"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_named_and_made_anew(tmp_path, capfd, damage):
    embed(TEXTS, Means(), kind="texts", cache=tmp_path)
    (shard,) = _shards(tmp_path)
    content = bytearray(shard.read_bytes())
    if damage == "flipped":
        content[content.index(np.load(shard)["embeddings"].tobytes())] ^= 1
    kept = {"cut": content[: len(content) // 2], "flipped": content, "empty": b""}
    shard.write_bytes(kept[damage])
    for count, told in ((4, f"{shard}: damaged"), (0, "")):
        encoder = Means()
        np.testing.assert_array_equal(embed(TEXTS, encoder, kind="texts", cache=tmp_path), ROWS)
        err = capfd.readouterr().err
        assert encoder.count == count and told in err and bool(told) == bool(err)


def test_the_default_folder_is_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "xdg" / "condvendi"
    embed(TEXTS, Means(), kind="texts")
    assert len(_shards(tmp_path / "xdg" / "condvendi")) == 1
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert default_cache() == tmp_path / "home" / ".cache" / "condvendi"
    encoder = Means()
    embed(TEXTS, encoder, kind="texts", cache="~/own")
    assert len(_shards(tmp_path / "home" / "own")) == 1


def test_a_named_folder_must_be_writable_and_the_default_need_not(tmp_path, monkeypatch):
    blocked, encoder = tmp_path / "file", Means()
    blocked.touch()
    with pytest.raises(OSError, match="file"):
        embed(TEXTS, encoder, kind="texts", cache=blocked)
    assert encoder.count == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.warns(UserWarning, match="embeddings are not kept: .*file"):
        np.testing.assert_array_equal(embed(TEXTS, encoder, kind="texts"), ROWS)
    blocked.unlink()
    # On a full disk the cache is lost, and not the embeddings.
    monkeypatch.setattr(embedding, "_BATCHES", {"texts": 1})
    monkeypatch.setattr(np, "savez", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.warns(UserWarning, match="no longer kept: .*No space left") as caught:
        np.testing.assert_array_equal(embed(TEXTS, Means(), kind="texts", cache=tmp_path), ROWS)
    assert len(caught) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Tensor:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("it requires a gradient")


WRONG = [  # Of the texts a to e.
    (lambda items: np.zeros(len(items)), r"expected embeddings \[5, d\], received \[5\]"),
    (lambda items: np.array([["a"]] * len(items)), "expected real numbers, received <U1"),
    (lambda items: np.diag([1, 1, np.nan, 1, 1]), "NaN or infinity for 'c'"),
    (lambda items: np.diag([1, 1e300, 1, 1, 1]), "NaN or infinity for 'b'"),
    (lambda items: Tensor(), "expected arrays, received it requires a gradient"),
]


@pytest.mark.parametrize(("answer", "words"), WRONG)
def test_what_is_no_row_an_item_is_refused_and_not_kept(tmp_path, answer, words):
    with pytest.raises(ValueError, match=f"given: .*{words}"):
        embed(list("abcde"), Encoded(answer), kind="texts", cache=tmp_path)
    assert _shards(tmp_path) == []


class Picky:
    """Fails on texts with a b."""

    def encode(self, items):
        if any("b" in item for item in items):
            raise KeyError("no weights\nfor this")
        return np.ones((len(items), 2))


def test_an_encoder_that_fails_is_named_with_the_start_of_its_batch():
    words = "test_embedding:Picky failed on a batch of 2 that starts with 'a': KeyError: 'no"
    with pytest.raises(EncoderError, match=words) as error:
        embed(["a", "b"], Picky(), kind="texts")
    assert isinstance(error.value.__cause__, KeyError)
    assert "\n" not in str(error.value)


def test_rows_of_two_lengths_are_refused(tmp_path):
    encoder = Encoded(lambda items: np.ones((len(items), len(items[0]))))
    embed(["a"], encoder, kind="texts", cache=tmp_path)
    with pytest.raises(ValueError, match="given: gave rows of 1 and of 2 numbers"):
        embed(["a", "ab"], encoder, kind="texts", cache=tmp_path)


def test_items_that_cannot_be_embedded_are_named(folder, tmp_path):
    encoder, images, several = Means(), list_images(folder), r"expected a sequence, received one"
    (folder / "5.png").write_bytes((folder / "0.png").read_bytes()[:-30])
    (folder / "6.png").write_text("no picture")
    for items, kind, words in (
        (["a", None], "texts", r"items\[1\]: expected a text \(str\), received NoneType "),
        (["a", b"a"], "texts", r"items\[1\]: expected a text \(str\), received bytes "),
        (["a", ["a"]], "texts", r"items\[1\]: expected a text \(str\), received list "),
        ("hello", "texts", f"items: {several} str; .* pass a list"),
        (pathlib.Path("a"), "images", f"items: {several} PosixPath; .* pass a list"),
        ([], "texts", "no texts to embed"),
        (TEXTS, "video", "expected one of images, texts, received 'video'"),
        ([*images, folder / "absent.png"], "images", r"absent\.png"),
        ([*images, folder / "5.png"], "images", r"5\.png: cannot be decoded as"),
        ([folder / "6.png"], "images", r"6\.png: .* cannot identify image file\. Save it again"),
    ):
        with pytest.raises((TypeError, ValueError, OSError), match=words):
            embed(items, encoder, kind=kind, cache=tmp_path)
        assert encoder.count == 0 and _shards(tmp_path) == []
