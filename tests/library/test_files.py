"""Reading embeddings and writing results, whole or not at all."""

import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import threading

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from processes import HANG_S
from safetensors.numpy import save_file

from condvendi_jax.base import files

ARRAY = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def saved(tmp_path):
    np.save(tmp_path / "one.npy", ARRAY)
    np.savez(tmp_path / "one.npz", points=ARRAY)
    np.savez_compressed(tmp_path / "two.npz", points=ARRAY, labels=np.arange(3))
    save_file({"points": ARRAY}, tmp_path / "one.safetensors")
    save_file({"points": ARRAY, "labels": np.arange(3)}, tmp_path / "two.safetensors")
    return tmp_path


def test_arrays_come_back_as_they_were_written_and_the_key_chooses(saved):
    whole = [("one.npy", None), ("one.npz", None), ("one.safetensors", None)]
    for name, key in [*whole, ("two.npz", "points"), ("two.safetensors", "points")]:
        got = files.read_array(str(saved / name), key=key)
        np.testing.assert_array_equal(got, ARRAY)
        assert got.dtype == np.float32
    for name in ("two.npz", "two.safetensors"):
        np.testing.assert_array_equal(files.read_array(saved / name, key="labels"), np.arange(3))
        for key in (None, "absent"):
            with pytest.raises(ValueError, match=rf"{name}: .*its keys are labels, points"):
                files.read_array(saved / name, key=key)
    with pytest.raises(ValueError, match=r"one\.npy: .*without a key, received 'points'"):
        files.read_array(saved / "one.npy", key="points")


def test_what_is_no_array_of_numbers_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    np.save(tmp_path / "records.npy", np.zeros(3, [("x", "f4"), ("y", "f4")]))
    np.save(tmp_path / "raw.npy", ARRAY.astype(ml_dtypes.bfloat16))  # NumPy forgets its dtype.
    for name, words in {
        "absent.npy": "there is no such file",
        "table.csv": r"expected a file ending in \.npy, \.npz",
        "pipe.npy": "is no regular file",
        "records.npy": "received records",
        "raw.npy": "save float32",
    }.items():
        with pytest.raises(ValueError, match=f"{name}: .*{words}"):
            files.read_array(tmp_path / name)


def test_endings_are_read_in_either_case_and_the_home_folder_is_known(saved, monkeypatch):
    monkeypatch.setenv("HOME", str(saved))
    (saved / "one.npy").rename(saved / "ONE.NPY")
    np.testing.assert_array_equal(files.read_array("~/ONE.NPY"), ARRAY)
    files.check_writable("~/x.json")
    files.write_json("~/x.json", [1])
    assert json.loads((saved / "x.json").read_text()) == [1]


def test_bfloat16_is_read_as_float32(tmp_path):
    path = tmp_path / "x.safetensors"
    array = np.array([[1.5, -0.0], [3e38, 2.0**-120], [np.inf, 7]], ml_dtypes.bfloat16)
    save_file({"points": array}, path)
    got = files.read_array(path)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, array.astype(np.float32))


def test_what_may_not_be_read_or_written_is_named():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        np.save(folder / "x.npy", ARRAY)
        (folder / "x.npy").chmod(0)
        (folder / "closed").mkdir(mode=0o000)
        folder.chmod(0o555)
        superuser = os.geteuid() == 0  # It may read everything: without that right, for a while.
        if superuser:
            os.seteuid(65534)
        try:
            with pytest.raises(ValueError, match=r"x\.npy: may not be read"):
                files.read_array(folder / "x.npy")
            words = "denied: .*closed/x.npy|closed/x.npy: may not be read"
            with pytest.raises((OSError, ValueError), match=words):
                files.read_array(folder / "closed" / "x.npy")
            for write in (files.check_writable, lambda path: files.write_json(path, 1)):
                with pytest.raises(PermissionError, match="new.json"):
                    write(folder / "new.json")
        finally:
            if superuser:
                os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.parametrize("name", ["one.npy", "two.npz", "one.safetensors"])
@pytest.mark.parametrize("kept", [0, 0.95])
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
    with pytest.raises(ValueError, match=rf"fuse\.{suffix}: .* pickled .* never loaded") as error:
        files.read_array(path)
    assert "allow_pickle" not in str(error.value)
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(ValueError, match="its content is in another format"):
        files.read_array(path)


def test_json_has_null_and_a_reason_where_a_number_is_not_finite(tmp_path):
    why = "not a finite number: "
    reason = {"value": None, "reason": f"{why}nan"}
    contents = {  # What is written, and what is read.
        "numbers": (
            {"nan": float("nan"), "inf": np.float32("inf"), "jax": jnp.asarray(jnp.nan)},
            {"nan": None, "nan_reason": f"{why}nan", "inf": None, "inf_reason": f"{why}inf"}
            | {"jax": None, "jax_reason": f"{why}nan"},
        ),
        "lists": ([1.0, float("nan")], [1.0, reason]),
        "arrays": (np.array([np.nan, 2.0]), [reason, 2.0]),
        "fine": ([np.float64(1.5), np.int64(3), np.bool_(True), None], [1.5, 3, True, None]),
    }
    files.write_json(tmp_path / "x.json", {name: value for name, (value, _) in contents.items()})
    text = (tmp_path / "x.json").read_text()
    read = json.loads(text, parse_constant=pytest.fail)  # Of NaN and Infinity.
    assert read == {name: expected for name, (_, expected) in contents.items()}


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
    assert names_in(tmp_path) == ["result.json"]


def test_a_path_that_cannot_be_written_is_found_out_beforehand(tmp_path):
    files.check_writable(tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link.json").symlink_to(tmp_path / "absent" / "x.json")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name, words in {
            "absent/result.json": "absent",
            "": tmp_path.name,
            "loop": "loop",
            "link.json": r"link\.json: there is no directory .*absent",
            "socket": "socket: is neither a file nor a pipe",
        }.items():
            for write in (files.check_writable, lambda path: files.write_json(path, 1)):
                with pytest.raises(OSError, match=words):
                    write(tmp_path / name)


def refused(message, targets, sources=(), *, overwrite=True):
    with pytest.raises((ValueError, OSError), match=message) as error:
        files.check_targets(targets, {"--outputs": sources}, overwrite=overwrite)
    assert "\n" not in str(error.value)


def test_a_file_that_is_read_is_never_written_under_any_name(tmp_path):
    """Nor is one in a folder that is read."""
    read, folder = tmp_path / "x.npy", tmp_path / "clone"
    (folder / "deep").mkdir(parents=True)
    for path in (read, folder / "1.png", folder / "deep" / "2.png", tmp_path / "far.png"):
        path.write_bytes(b"content")
    (tmp_path / "link.npy").symlink_to("x.npy")
    os.link(read, tmp_path / "hard.npy")
    (tmp_path / "folder").symlink_to(tmp_path)
    (folder / "link.png").symlink_to(tmp_path / "far.png")
    for name in ("clone/../x.npy", "link.npy", "hard.npy", "folder/x.npy"):
        target = tmp_path / name
        refused(r"--json=.* would replace .*x\.npy", {"--json": target}, [read])
        refused("--csv=.* and --json=.* are the same", {"--csv": read, "--json": target})
        refused(r"would replace .*\*\.npy", {"--json": target}, [tmp_path / "x*.npy"])
    for name in ("clone/1.png", "clone/deep/2.png", "far.png"):
        refused("would replace a file in", {"--json": tmp_path / name}, [folder])
    new = {"--json": folder / "new.json"}
    files.check_targets(new, {"--source": [folder]}, overwrite=False)


def test_two_outputs_that_are_yet_to_be_written_are_told_apart(tmp_path):
    (tmp_path / "link.csv").symlink_to("o.csv")
    for other in ("o.csv", "./o.csv", "link.csv"):
        refused("are the same file", {"--csv": tmp_path / "o.csv", "--json": tmp_path / other})
    fine = {"--csv": tmp_path / "o.csv", "--json": tmp_path / "p.csv"}
    files.check_targets(fine, {"--outputs": [tmp_path / "absent.npy"]}, overwrite=False)
    null = {"--csv": os.devnull, "--json": os.devnull}
    files.check_targets(null, {"--outputs": [os.devnull]}, overwrite=False)
    assert names_in(tmp_path) == ["link.csv"]


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path):
    target = {"--json": tmp_path / "notes.json"}
    target["--json"].write_text("mine")
    refused("--json: .* exists. Choose another name, or add --overwrite", target, overwrite=False)
    files.check_targets(target, {}, overwrite=True)
    assert target["--json"].read_text() == "mine"
    (tmp_path / "empty").touch()
    files.check_targets({"--json": tmp_path / "empty"}, {}, overwrite=False)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, there):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target.json", tmp_path / "link.json"
    if there:
        target.write_text("before")
    link.symlink_to("far/target.json")  # Relative to the link, not to where the process runs.
    again = tmp_path / "again.json"
    again.symlink_to(link)
    files.check_writable(again)
    assert target.exists() == there
    with files.atomic_writer(again) as stream:
        stream.write(b"after")
        stream.flush()
        assert (target.read_text() if there else target.exists()) == ("before" if there else False)
    assert target.read_text() == "after"
    assert os.readlink(link) == "far/target.json"
    assert again.is_symlink()
    assert not target.is_symlink()
    assert names_in(tmp_path) == ["again.json", "far", "link.json"]
    assert names_in(tmp_path / "far") == ["target.json"]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_umasks_mode_and_an_old_one_its_own(tmp_path, umask, mode):
    old = tmp_path / "old.json"
    old.write_text("before")
    old.chmod(0o640)
    before = os.umask(umask)
    try:
        files.write_json(tmp_path / "new.json", 1)
        files.write_json(old, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == mode
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert old.read_text() == "1\n"


def test_a_pipe_is_written_through_and_asking_does_not_wait(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    files.check_writable(pipe)  # Nobody reads yet: opening it would wait for ever.
    for name in ("pipe", "link"):
        read = []
        reader = threading.Thread(target=lambda r=read: r.append(pipe.read_text()), daemon=True)
        reader.start()
        files.write_json(tmp_path / name, {"x": list(range(20_000))})
        reader.join(timeout=HANG_S)
        assert json.loads(read[0])["x"][-1] == 19_999
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names_in(tmp_path) == ["link", "pipe"]


PROGRAM = """
import sys
from condvendi_jax.base import files
sys.stdout.write("table\\n")
files.check_writable("/dev/stdout")
files.write_json("/dev/stdout", 1)
sys.stdout.write("end\\n")
"""


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_output_is_written_in_order_wherever_it_goes(tmp_path, kind):
    log = tmp_path / "log"
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with open(log, "wb") as stream:
        out = subprocess.PIPE if kind == "pipe" else stream
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, stdout=out, cwd=tmp_path, env=buffered, check=True)
    written = done.stdout if kind == "pipe" else log.read_bytes()
    assert written == b"table\n1\nend\n"
