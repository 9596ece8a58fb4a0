"""What builders share: repositories at a commit, embeddings made once, costs of cuts, files."""

import json
import pathlib
import subprocess

import numpy as np
import pytest

from experiments.builders import common
from experiments.data import PairedEmbeddings, repository, sets
from experiments.data.repository import Repository

pytestmark = pytest.mark.slow


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """A repository whose first commit holds what its second one deleted."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    for name, content in {
        "a/1.png": b"one\n\nblob 3",
        "a/2 two.png": b"",
        "b/3.png": b"three",
        "lfs.bin": b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "a" / "link.png").symlink_to("1.png")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    first = git(folder, "rev-parse", "HEAD")
    git(folder, "rm", "-rq", "a")
    git(folder, "commit", "-qm", "second")
    return Repository.opened("me/it", first, source=str(folder), cache=tmp_path / "cache")


class Encoder:
    """The mean colour, or the letters of a text; counts what it is given."""

    name, dimension, side = "fake", 3, 4

    def __init__(self):
        self.given = 0

    def encode(self, items):
        self.given += len(items)
        if isinstance(items, np.ndarray):
            return items.reshape(len(items), -1, 3).mean(1) + np.arange(3)
        return np.array([[len(item), item.count("a"), 1.0] for item in items])


def test_files_of_a_commit_are_listed_and_read_in_any_order(clone):
    assert clone.paths() == ["a/1.png", "a/2 two.png", "b/3.png", "lfs.bin"]
    assert clone.paths("a") == ["a/1.png", "a/2 two.png"]
    wanted = ["b/3.png", "a/2 two.png", "a/1.png"]
    assert list(clone.read(wanted)) == [b"three", b"", b"one\n\nblob 3"]
    assert clone.reference.startswith("me/it @ ")


def test_a_bare_clone_serves_as_well(clone, tmp_path):
    subprocess.run(
        ["git", "clone", "-q", "--bare", str(clone.folder), str(tmp_path / "bare")], check=True
    )
    bare = Repository.opened("me/it", clone.commit, source=str(tmp_path / "bare"), cache=tmp_path)
    assert list(bare.read(["b/3.png"])) == [b"three"]


def test_what_is_not_there_is_named(clone, tmp_path):
    with pytest.raises(ValueError, match=r"b/4\.png is not in"):
        list(clone.read(["b/4.png"]))
    with pytest.raises(ValueError, match=r"lfs\.bin is a pointer"):
        list(clone.read(["lfs.bin"]))
    for source, words in ((tmp_path / "none", "no such folder"), (tmp_path, "no clone of me/it")):
        with pytest.raises(ValueError, match=words):
            Repository.opened("me/it", clone.commit, source=str(source), cache=tmp_path)
    with pytest.raises(ValueError, match=r"no clone of me/it with the commit 0123456"):
        Repository.opened("me/it", "0123456", source=str(clone.folder), cache=tmp_path)


def test_a_repository_that_cannot_be_cloned_says_what_to_give(tmp_path, monkeypatch):
    monkeypatch.setattr(
        repository.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 128, b"", b"")
    )
    with pytest.raises(ValueError, match="cannot be cloned; give a clone of it with --source"):
        Repository.opened("me/none", "0" * 40, source=None, cache=tmp_path)


def test_pictures_are_embedded_once_and_again_when_anything_changes(clone, tmp_path):
    encoder, cache = Encoder(), tmp_path / "cache"
    pictures = {"a/1.png": 10, "b/3.png": 200}

    def decode(content, path):
        return np.full((4, 4, 3), pictures[path], np.uint8)

    def embed(paths):
        return common.embed_pictures(clone, paths, encoder, cache=cache, decode=decode)

    rows = embed(["a/1.png", "b/3.png"])
    expected = np.array([[10.0, 11, 12], [200, 201, 202]])
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1)[:, None], 1e-6)
    assert rows.dtype == np.float32 and encoder.given == 2
    np.testing.assert_array_equal(embed(["a/1.png", "b/3.png"]), rows)
    assert encoder.given == 2
    np.testing.assert_array_equal(embed(["b/3.png", "a/1.png"]), rows[::-1])
    assert encoder.given == 4


def test_equal_texts_are_embedded_once_and_come_back_in_their_places(tmp_path):
    encoder = Encoder()
    long = 40 * "a"  # No digest has it.
    texts = ["bb", "a", "bb", long]
    rows = common.embed_texts(texts, encoder, cache=tmp_path)
    assert encoder.given == 3
    np.testing.assert_array_equal(rows[0], rows[2])
    expected = np.array([40.0, 40, 1])
    np.testing.assert_allclose(rows[3], expected / np.linalg.norm(expected), rtol=1e-6)
    common.embed_texts(texts, encoder, cache=tmp_path)
    assert encoder.given == 3
    assert not any(long.encode() in path.read_bytes() for path in tmp_path.iterdir())


def test_a_row_without_a_direction_is_refused():
    for bad in (0.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="row 1 has no direction"):
            common.unit_rows(np.array([[1.0, 0], [bad, 0]]))


def test_principal_rows_keep_the_leading_directions():
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    rows = common.unit_rows(rng.normal(size=(50, 2)) @ plane.T)
    kept, share = common.principal_rows(rows, 2)
    np.testing.assert_allclose(kept @ kept.T, rows @ rows.T, atol=1e-5)
    assert share == pytest.approx(1)
    kept, share = common.principal_rows(rows, 1)
    values = np.linalg.svd(rows.astype(float), compute_uv=False) ** 2
    assert share == pytest.approx(values[0] / values.sum(), rel=1e-5)
    np.testing.assert_allclose(np.abs(kept), 1, rtol=1e-5)


def test_the_cost_of_a_cut_is_that_of_order_two():
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(20, 4)), rng.normal(size=(20, 3))
    whole = PairedEmbeddings("whole", x.astype(np.float32), t.astype(np.float32), "")
    cut = PairedEmbeddings("cut", whole.outputs[:10], whole.prompts[:10], "")
    cost = common.cost_of(whole, cut, {"outputs": 2.0, "prompts": 1.5})

    def rke(rows, width):
        squares = np.sum((rows[:, None] - rows[None]) ** 2, -1)
        return 1 / np.mean(np.exp(-squares / (2 * width**2)) ** 2)

    assert cost["vendi"]["before"] == pytest.approx(rke(x, 2.0), rel=1e-5)
    assert cost["vendi"]["after"] == pytest.approx(rke(x[:10], 2.0), rel=1e-5)
    assert cost["vendi"]["change"] == pytest.approx(rke(x[:10], 2.0) / rke(x, 2.0) - 1, rel=1e-4)
    assert cost["conditional"]["before"] * cost["information"]["before"] == pytest.approx(
        cost["vendi"]["before"], rel=1e-5
    )
    wider = common.cost_of(whole, cut, {"outputs": 2.0, "prompts": 9.0})
    assert wider["information"]["before"] < cost["information"]["before"]


def written(folder, **changes):
    rng = np.random.default_rng(0)
    given = {
        "outputs": common.unit_rows(rng.normal(size=(6, 5))),
        "prompts": (common.unit_rows(rng.normal(size=(3, 4))), np.array([0, 2, 2, 1, 0, 1])),
        "labels": {"types": np.array(list("uvvuuv")), "prompt": np.arange(6) - 300},
        "further": {"cut": common.unit_rows(rng.normal(size=(6, 2)))},
        "description": "six pairs",
        "licence": "mine",
        "provenance": ["me/it @ 0"],
        "cut": {"rows": 6},
    } | changes
    common.write_set(folder / "six.npz", **given)
    return given


def test_a_set_round_trips(tmp_path):
    given = written(tmp_path)
    pairs = sets.read_set(tmp_path / "six.npz")
    assert pairs.name == "six" and pairs.description == "six pairs" and len(pairs) == 6
    table, index = given["prompts"]
    np.testing.assert_allclose(pairs.outputs, given["outputs"], atol=1e-3)
    np.testing.assert_allclose(pairs.prompts, table[index], atol=1e-3)
    np.testing.assert_allclose(pairs.further["cut"], given["further"]["cut"], atol=1e-3)
    assert list(pairs.further) == ["cut"] and set(pairs.labels) == {"types", "prompt"}
    assert pairs.labels["types"].tolist() == list("uvvuuv")
    assert pairs.labels["prompt"].tolist() == [-300, -299, -298, -297, -296, -295]
    for rows in (pairs.outputs, pairs.prompts, pairs.further["cut"]):
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    with np.load(tmp_path / "six.npz", allow_pickle=False) as stored:
        assert stored["outputs"].dtype == np.float16
        assert json.loads(str(stored["cut"])) == {"rows": 6}
        assert str(stored["licence"]) == "mine"


def test_entries_of_different_lengths_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="entries of different lengths"):
        written(tmp_path, labels={"types": np.array(["u"])})
    assert not list(tmp_path.iterdir())


def test_a_file_without_its_entries_is_refused(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, outputs=np.eye(2))
    with pytest.raises(ValueError, match=r"other\.npz: description is missing; found outputs"):
        sets.read_set(path)


def test_rows_of_pairs_take_everything_along(tmp_path):
    written(tmp_path)
    pairs = sets.read_set(tmp_path / "six.npz")
    some = pairs.rows(np.array([4, 1]))
    assert len(some) == 2 and set(some.arrays) == set(pairs.arrays)
    for role, array in some.arrays.items():
        np.testing.assert_array_equal(array, pairs.arrays[role][[4, 1]])
    assert len(pairs.rows(pairs.labels["types"] == "u")) == 3


def test_every_builder_is_a_module():
    for name, entry in sets.SETS.items():
        if entry.builder != "-":
            module = entry.builder.split()[2].replace(".", "/") + ".py"
            assert (pathlib.Path(__file__).parents[2] / module).is_file(), name


def test_versions_say_what_is_not_installed():
    found = common.versions("numpy", "no-such-package")
    assert found == [f"numpy {np.__version__}", "no-such-package: not installed"]
