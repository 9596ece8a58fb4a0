"""Reading embeddings and writing results, whole or not at all."""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from condvendi_jax import files

ARRAY = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def saved(tmp_path):
    np.save(tmp_path / "one.npy", ARRAY)
    np.savez(tmp_path / "one.npz", points=ARRAY)
    np.savez_compressed(tmp_path / "two.npz", points=ARRAY, labels=np.arange(3))
    save_file({"points": ARRAY}, tmp_path / "one.safetensors")
    save_file({"points": ARRAY, "labels": np.arange(3)}, tmp_path / "two.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("one.npy", None),
        ("one.npz", None),
        ("one.npz", "points"),
        ("two.npz", "points"),
        ("one.safetensors", None),
        ("two.safetensors", "points"),
    ],
)
def test_arrays_come_back_as_they_were_written(saved, name, key):
    got = files.read_array(saved / name, key=key)
    np.testing.assert_array_equal(got, ARRAY)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(files.read_array(str(saved / name), key=key), ARRAY)


def test_the_key_chooses_the_array(saved):
    for name in ("two.npz", "two.safetensors"):
        np.testing.assert_array_equal(files.read_array(saved / name, key="labels"), np.arange(3))


@pytest.mark.parametrize("key", [None, "absent"])
@pytest.mark.parametrize("name", ["two.npz", "two.safetensors"])
def test_a_wrong_key_lists_those_found(saved, name, key):
    with pytest.raises(ValueError, match=rf"{name}: .*keys found are labels, points"):
        files.read_array(saved / name, key=key)


def test_a_single_array_has_no_key(saved):
    with pytest.raises(ValueError, match=r"one\.npy: .*without a key, received 'points'"):
        files.read_array(saved / "one.npy", key="points")


def test_missing_files_and_other_formats_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"absent\.npy: there is no such file"):
        files.read_array(tmp_path / "absent.npy")
    with pytest.raises(ValueError, match=r"table\.csv: expected a file ending in \.npy, \.npz"):
        files.read_array(tmp_path / "table.csv")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValueError, match=r"folder\.npy: "):
        files.read_array(tmp_path / "folder.npy")


@pytest.mark.parametrize("name", ["one.npy", "one.npz", "two.npz", "one.safetensors"])
@pytest.mark.parametrize("kept", [0, 0.5, 0.95])
def test_damaged_files_are_refused_with_their_path(saved, name, kept):
    path = saved / name
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=rf"{name}: cannot be read"):
        files.read_array(path, key="points" if name == "two.npz" else None)


class Fuse:
    """An object whose unpickling would be noticed."""

    def __reduce__(self):
        return os._exit, (99,)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_pickled_objects_are_never_loaded(tmp_path, suffix):
    path = tmp_path / f"fuse.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, np.array([Fuse()], dtype=object))
    with pytest.raises(ValueError, match=rf"fuse\.{suffix}: cannot be read"):
        files.read_array(path)


def test_json_has_null_and_a_reason_where_a_number_is_not_finite(tmp_path):
    content = {
        "nan": float("nan"),
        "inf": np.float32("inf"),
        "jax": jnp.asarray(jnp.nan),
        "fine": np.float64(1.5),
        "list": [1.0, float("nan")],
        "array": np.array([np.nan, 2.0]),
        "deep": {"nan": np.nan},
        "count": np.int64(3),
        "flag": np.bool_(True),
        "none": None,
    }
    files.write_json(tmp_path / "result.json", content)
    text = (tmp_path / "result.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    read = json.loads(text)
    for name in ("nan", "inf", "jax"):
        assert read[name] is None
        assert "not a finite number" in read[f"{name}_reason"]
    assert read["deep"]["nan"] is None
    assert "not a finite number" in read["deep"]["nan_reason"]
    assert (read["fine"], read["count"], read["flag"], read["none"]) == (1.5, 3, True, None)
    reason = {"value": None, "reason": "not a finite number: nan"}
    assert read["list"] == [1.0, reason]
    assert read["array"] == [reason, 2.0]


def test_nothing_is_left_of_a_write_that_fails(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("before")

    def interrupted():
        with files.atomic_writer(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_file_appears_under_its_name_only_when_complete(tmp_path):
    path = tmp_path / "result.bin"
    with files.atomic_writer(path) as stream:
        stream.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"


def test_a_folder_that_cannot_be_written_is_found_out_beforehand(tmp_path):
    files.check_writable(tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="absent"):
        files.check_writable(tmp_path / "absent" / "result.json")
    with pytest.raises(OSError, match=tmp_path.name):
        files.check_writable(tmp_path)
