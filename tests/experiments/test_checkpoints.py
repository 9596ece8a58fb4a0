"""Trained parameters on disk: whose they are, what is refused, when something is trained."""

import json
import os
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from experiments import records
from experiments.generators import checkpoints

pytestmark = pytest.mark.slow

TREE = {
    "layers": {0: {"kernel": np.arange(6.0).reshape(2, 3)}, 1: {"bias": np.float32(2.5)}},
    "trace": np.arange(4, dtype=np.float16),
}
IDENTITY = records.identify("model", 1, {"width": 3}, {"data": np.arange(3)}, seed=0)


def equal(tree, other):
    found, wanted = checkpoints.flatten(tree), checkpoints.flatten(other)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    return True


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    checkpoints.save(path, TREE, IDENTITY)
    return path


def test_leaves_are_named_by_their_paths_and_come_back():
    flat = checkpoints.flatten(TREE)
    assert list(flat) == ["layers/0/kernel", "layers/1/bias", "trace"]
    assert equal(checkpoints.unflatten(flat), TREE)
    for key in ("a/b", "", "7"):
        with pytest.raises(ValueError, match="expected words without '/'"):
            checkpoints.flatten({"layers": {key: np.zeros(1)}})


def test_a_saved_tree_is_read_back_bit_by_bit_in_any_memory_order(path):
    assert equal(checkpoints.load(path), TREE)
    transposed = {"a": np.arange(6.0).reshape(2, 3).T}
    checkpoints.save(path, transposed, IDENTITY)
    assert equal(checkpoints.load(path, IDENTITY), transposed)


def test_an_nnx_model_survives(path):
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    graph, state = nnx.split(model)
    checkpoints.save(path, {"linear": nnx.to_pure_dict(state)}, IDENTITY)
    other = nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(1)))[1]
    found = nnx.merge(graph, checkpoints.restore(other, checkpoints.load(path)["linear"]))
    x = jnp.ones((4, 3))
    np.testing.assert_array_equal(found(x), model(x))
    shapes = nnx.eval_shape(lambda: nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))[1])
    half = jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), nnx.to_pure_dict(state))
    restored = checkpoints.restore(shapes, half)
    assert restored["kernel"].get_value().dtype == np.float32
    with pytest.raises(ValueError, match=r"another model: expected kernel \(3, 2\)"):
        checkpoints.restore(shapes, {**half, "kernel": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="another model: expected no scale"):
        checkpoints.restore(shapes, {**half, "scale": np.zeros(2)})


def one_line(caught, path):
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message


def test_every_bit_of_a_file_counts(path):
    content = path.read_bytes()
    for place in (0, 3, 20, len(content) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError) as caught:
            checkpoints.load(path, IDENTITY)
        one_line(caught, path)


@pytest.mark.parametrize("keep", [0, 7, 40, 0.5, 0.999])
def test_a_truncated_file_is_refused_in_a_line(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ValueError, match="damaged") as caught:
        checkpoints.load(path)
    one_line(caught, path)


def test_files_of_others_are_refused_in_a_line(path):
    safetensors.numpy.save_file({"a": np.zeros(2)}, path)
    with pytest.raises(ValueError, match="not a file of this project") as caught:
        checkpoints.load(path)
    one_line(caught, path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="damaged") as caught:
        checkpoints.load(path)
    one_line(caught, path)


def test_the_identity_itself_is_under_the_checksum(path):
    with safetensors.safe_open(path, framework="numpy") as archive:
        metadata = archive.metadata()
    forged = json.dumps({**json.loads(metadata["identity"]), "seed": 1})
    arrays = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(arrays, path, {**metadata, "identity": forged})
    with pytest.raises(ValueError, match="checksum"):
        checkpoints.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "other"}, "study: model there, other asked for"),
        ({"version": 2}, "version: 1 there, 2 asked for"),
        ({"settings": {"width": 4}}, "width: 3 there, 4 asked for"),
        ({"arrays": {"data": np.arange(1, 4)}}, "data: other contents"),
        ({"seed": 1}, "seed: 0 there, 1 asked for"),
    ],
)
def test_another_training_is_refused_with_what_differs(path, change, message):
    wanted = {"name": "model", "version": 1, "settings": {"width": 3}}
    wanted |= {"arrays": {"data": np.arange(3)}, "seed": 0} | change
    with pytest.raises(ValueError, match=message) as caught:
        checkpoints.load(path, records.identify(**wanted))
    one_line(caught, path)


class Training:
    """Counts how often it is run."""

    def __init__(self, folder):
        self.times, self.folder = 0, folder

    def __call__(self, name="model", version=1, seed=0, data=0.0, **settings):
        def train():
            self.times += 1
            return {"width": np.array(settings.get("width", 1)), "seed": np.array(seed)}

        identity = records.identify(name, version, settings, {"data": np.array([data])}, seed)
        folders = {name: self.folder / name for name in ("cache", "shipped")}
        return checkpoints.trained(identity, train, **folders)


@pytest.fixture
def get(tmp_path):
    return Training(tmp_path)


def test_each_identity_is_trained_once(get, capsys):
    assert get() == get()
    assert get.times == 1
    assert re.match(r"model-\w{16}.safetensors: neither in", capsys.readouterr().err)
    assert get(width=3)["width"] == 3
    assert get(seed=4)["seed"] == 4
    get(version=2)
    get(name="other")
    get(data=1.0)
    assert get.times == 6
    assert not (get.folder / "shipped").exists()


def test_what_is_shipped_comes_first(get, capsys):
    get()
    (get.folder / "cache").rename(get.folder / "shipped")
    get()
    assert get.times == 1
    assert not (get.folder / "cache").exists()
    (file,) = (get.folder / "shipped").iterdir()
    other = checkpoints.load(file) | {"width": np.array(7)}
    identity = records.identify("model", 1, {}, {"data": np.array([0.0])}, 0)
    (get.folder / "cache").mkdir()
    checkpoints.save(get.folder / "cache" / file.name, other, identity)
    assert get()["width"] == 1
    shutil.rmtree(get.folder / "cache")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    capsys.readouterr()
    get()
    assert get.times == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert str(file) in lines[0] and "damaged" in lines[0]
    assert file.read_bytes() == content[:-1]


def test_a_damaged_or_foreign_file_of_the_cache_is_named_and_made_anew(get, capsys):
    get()
    (file,) = (get.folder / "cache").iterdir()
    whole = file.read_bytes()
    checkpoints.save(file, TREE, IDENTITY)
    foreign = file.read_bytes()
    for content, word in ((whole[:50], "damaged"), (foreign, "of another training")):
        file.write_bytes(content)
        capsys.readouterr()
        assert get()["width"] == 1
        line, _ = capsys.readouterr().err.splitlines()
        assert str(file) in line and word in line
        checkpoints.load(file)
    assert get.times == 3


def test_a_cache_that_cannot_be_written_is_found_out_before_training(get):
    (get.folder / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        get()
    assert get.times == 0


def test_the_users_cache_is_taken_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checkpoints.trained(IDENTITY, lambda: {"a": np.zeros(1)})
    (file,) = (tmp_path / "condvendi" / "trained").iterdir()
    assert file.name.startswith("model-") and os.path.getsize(file) < 2000


def test_what_is_shipped_is_whole():
    for path in checkpoints.SHIPPED.glob("*"):
        assert path.suffix == ".safetensors"
        checkpoints.load(path)
