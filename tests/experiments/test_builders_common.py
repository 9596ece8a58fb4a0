"""What builders share: the command, repositories at a commit, embedding once, files."""

import subprocess

import numpy as np
import pytest
from small_repositories import Corners, Texts, git, picture, work
from small_repositories import repository as clone_of

from experiments.builders import __main__ as builders
from experiments.builders import common
from experiments.data import sets
from experiments.data.repository import Repository

pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path):
    """A repository whose first commit holds what its second one deleted."""
    files = {"a/1.png": b"one\n\nblob 3", "a/2 two.png": b"", "b/3.png": b"three"}
    clone_of(tmp_path / "clone", "me/it", files)
    (tmp_path / "clone/a/link.png").symlink_to("1.png")
    git(tmp_path / "clone", "add", "-A")
    git(tmp_path / "clone", "commit", "-qm", "link")
    linked = git(tmp_path / "clone", "rev-parse", "HEAD")
    git(tmp_path / "clone", "rm", "-rq", "a")
    git(tmp_path / "clone", "commit", "-qm", "without")
    return Repository("me/it", linked, tmp_path / "clone")


def test_files_of_a_commit_are_listed_and_read_in_any_order_and_absent_ones_named(clone, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run(["git", "clone", "-q", "--bare", str(clone.folder), str(bare)], check=True)
    for source in (clone.folder, bare):
        opened = Repository.opened("me/it", clone.commit, source=str(source), cache=tmp_path)
        assert opened.paths() == ["a/1.png", "a/2 two.png", "b/3.png"]
        assert opened.paths("a") == ["a/1.png", "a/2 two.png"]
        wanted = ["b/3.png", "a/2 two.png", "a/1.png"]
        assert list(opened.read(wanted)) == [b"three", b"", b"one\n\nblob 3"]
    with pytest.raises(ValueError, match=r"b/4\.png is not in"):
        list(clone.read(["b/4.png"]))
    for source, commit, words in (
        (tmp_path / "none", clone.commit, "no such folder"),
        (clone.folder, "0123456", "no clone of me/it with the commit 0123456"),
    ):
        with pytest.raises(ValueError, match=words):
            Repository.opened("me/it", commit, source=str(source), cache=tmp_path)


@pytest.fixture
def command(tmp_path, monkeypatch, clone):
    """The command for a set of a repository, or for one of none; gives what is built with."""
    built = []

    def build(work, *found):
        built.append((work.output, found))
        return b"made", b"beside"

    monkeypatch.setattr(builders, "FOLDER", tmp_path)
    for name, sources in (("gallery", {"source": ("me/it", clone.commit)}), ("human", {})):
        recipe = common.Recipe(build, (), ["{}.txt"], {}, sources)
        monkeypatch.setitem(common.RECIPES, name, recipe)

    def run(*words, **given):
        values = {"cache_dir": tmp_path / "cache", "source": clone.folder}
        values |= {"output": tmp_path / "x.npz", **given}
        flags = (f"--{name}={value}" for name, value in values.items() if value)
        builders.main(["builders", *words, *flags])
        return built.pop()

    return run


def test_a_builder_is_given_its_output_and_the_pinned_repositories(command, clone, tmp_path):
    assert command("gallery") == (tmp_path / "x.npz", (clone,))
    assert [(tmp_path / f"x.{end}").read_bytes() for end in ("npz", "txt")] == [b"made", b"beside"]
    assert command("human", source=None, output=tmp_path / "y.npz") == (tmp_path / "y.npz", ())
    # The shipped file may be replaced, another one where that is asked for.
    assert command("gallery", output=None)[0] == tmp_path / "gallery.npz"
    assert command("gallery", overwrite=True)[0] == tmp_path / "x.npz"


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (["gallery", "word"], {}, "unexpected argument 'word'"),
        ([], {}, "expected one of .*answers, .*received '--cache_dir"),
        (["dgos"], {}, "expected one of .*, dogs, .*, received 'dgos --cache_dir"),
        (["human"], {}, "unknown flag --source"),
        (["gallery"], {"output": "y.npz"}, r"--output \(its y\.txt\): .*exists\. .* --overwrite"),
        (["gallery"], {"output": "clone/b/3.png", "overwrite": True}, "a file in .* --source"),
    ],
)
def test_what_cannot_be_done_is_refused(command, tmp_path, monkeypatch, words, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y.txt").write_text("mine")
    with pytest.raises(ValueError, match=message):
        command(*words, **given)


@pytest.mark.parametrize("name", [name for name in sets.SETS if sets.SETS[name].builder != "-"])
def test_a_shipped_set_has_a_recipe_with_pinned_repositories(name):
    *command, word = sets.SETS[name].builder.split()
    assert command == ["python", "-m", "experiments.builders"]
    recipe, shipped = common.RECIPES[word], sets.FOLDER / f"{word}.npz"
    files = (shipped, *recipe.files_beside(shipped))
    assert sets.FOLDER / f"{name.removesuffix('_second')}.npz" in files
    for owner, commit in recipe.sources.values():
        assert owner.count("/") == 1 and int(commit, 16) and len(commit) >= 7


def test_pictures_are_embedded_once_and_again_when_anything_changes(tmp_path):
    files = {"a.png": picture((255, 0, 51), 9), "b.png": picture((0, 255, 51), 20)}
    clone, encoder = clone_of(tmp_path / "pictures", "me/it", files), Corners()
    other = clone_of(tmp_path / "others", "me/other", files | {"a.png": files["b.png"]})

    def embed(*paths, clone=clone):
        return work("human", tmp_path).embed_pictures(clone, paths, encoder)

    rows = embed("a.png", "b.png")
    expected = np.array([[1.0, 0, 0.2] * 2, [0, 1, 0.2] * 2]) + 0.01
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1)[:, None], 1e-6)
    assert rows.dtype == np.float32 and encoder.given == 2
    np.testing.assert_array_equal(embed("b.png", "a.png"), rows[::-1])
    np.testing.assert_array_equal(embed("a.png", "b.png", clone=other), rows[[1, 1]])
    assert encoder.given == 6


def test_equal_texts_are_embedded_once_and_come_back_in_their_places(tmp_path):
    of, encoder, long = work("human", tmp_path), Texts(), 40 * "a"  # No digest has it.
    texts = ["bb", "a", "bb", long]
    for given, count in ((texts, 3), (texts, 3), ([long, "ab", "bb"], 6)):
        rows = of.embed_texts(given, encoder)
        np.testing.assert_array_equal(rows, Texts().rows(given))
        assert len(encoder.given) == count
    rows = of.embed(iter("abcde"), encoder, arrays={}, batch=2)
    np.testing.assert_array_equal(rows, Texts().rows("abcde"))
    assert not any(long.encode() in path.read_bytes() for path in of.cache.iterdir())


def test_principal_rows_keep_the_leading_directions_and_each_row_needs_one():
    for bad in (0.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="row 1 has no direction"):
            common.unit_rows(np.array([[1.0, 0], [bad, 0]]))
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    rows = common.unit_rows(rng.normal(size=(50, 2)) @ plane.T)
    kept, words = common.principal_rows(rows, 2)
    np.testing.assert_allclose(kept @ kept.T, rows @ rows.T, atol=1e-5)
    assert words == "2 of 6 principal directions, with 1.0000 of the squared norm"
    kept, words = common.principal_rows(rows, 1)
    values = np.linalg.svd(rows.astype(float), compute_uv=False) ** 2
    assert f"1 of 6 principal directions, with {values[0] / values.sum():.4f} of" in words
    np.testing.assert_allclose(np.abs(kept), 1, rtol=1e-5)


def test_a_set_round_trips_and_its_rows_take_everything_along(tmp_path):
    rng, shapes = np.random.default_rng(0), ((6, 5), (6, 2), (3, 4))
    outputs, cut, table = (common.unit_rows(rng.normal(size=shape)) for shape in shapes)
    index = np.array([0, 2, 2, 1, 0, 1])
    labels = {"types": list("uvvuuv"), "prompt": np.arange(6) - 300}
    about = {"description": "six pairs", "cut": {"rows": 6}, "further": {"cut": cut}}
    made = common.NewSet(outputs, (table, index), labels=labels, **about)
    np.savez(tmp_path / "six.npz", **made.entries("MIT", ["me/it @ 0"]))
    pairs = sets.read_set(tmp_path / "six.npz")
    assert pairs.name == "six" and pairs.description == "six pairs"
    assert pairs.labels["types"].tolist() == list("uvvuuv")
    assert pairs.labels["prompt"].tolist() == [-300, -299, -298, -297, -296, -295]
    written = {"outputs": outputs, "prompts": table[index], "cut": cut}
    for role, rows in written.items():
        np.testing.assert_allclose(pairs.arrays[role], rows, atol=1e-3)
        np.testing.assert_allclose(np.linalg.norm(pairs.arrays[role], axis=1), 1, atol=1e-6)
    some = pairs.rows(np.array([4, 1]))
    assert set(some.arrays) == set(pairs.arrays)
    for role, array in some.arrays.items():
        np.testing.assert_array_equal(array, pairs.arrays[role][[4, 1]])
    np.savez(tmp_path / "other.npz", outputs=np.eye(2))
    with pytest.raises(ValueError, match=r"other\.npz: description is missing; found outputs"):
        sets.read_set(tmp_path / "other.npz")
