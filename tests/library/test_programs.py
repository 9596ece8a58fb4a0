"""The command's cache of compiled programs: it saves compiling, and never gives wrong numbers."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from processes import HANG_S, started

from condvendi_jax.cli import programs

# A program of 3 and of an argument, so that its result is known, and how often the cache was hit.
SCRIPT = """
import pathlib, sys
import jax
from condvendi_jax.cli import programs
{before}
programs.keep()
{after}
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
print(float(jax.jit(lambda x: 2 * x + 1)(3.0)), sum("cache_hits" in name for name in hits))
"""


def environment(folder, **others):
    kept = {name: of for name, of in os.environ.items() if not name.startswith("JAX_")}
    return kept | {"XDG_CACHE_HOME": str(folder), "JAX_PLATFORMS": "cpu"} | others


def call(folder, *, before="", after="", **others):
    """Whether the cache was hit; the result is right, and nothing is complained about."""
    script = SCRIPT.format(before=before, after=after)
    ended = subprocess.run(
        [sys.executable, "-c", script],
        **{"env": environment(folder, **others), "timeout": HANG_S},
        **{"capture_output": True, "text": True, "check": True},
    )
    result, hits = ended.stdout.split()
    assert result == "7.0"
    assert ended.stderr == ""
    return int(hits) > 0


def stored(folder):
    return sorted(pathlib.Path(folder).rglob("*-cache"))


def test_the_next_call_takes_the_programs_of_the_first(tmp_path):
    assert not call(tmp_path)
    before = {path: path.read_bytes() for path in stored(tmp_path)}
    assert before
    assert call(tmp_path)
    assert {path: path.read_bytes() for path in stored(tmp_path)} == before


def change(content):
    """Another program of the same name, which JAX would run."""
    return content[: len(content) // 2] + b"\x00" + content[len(content) // 2 + 1 :]


@pytest.mark.parametrize("changed", [change, lambda content: content[:100], lambda _: b""])
def test_a_program_that_has_changed_is_compiled_again(tmp_path, changed):
    call(tmp_path)
    names = stored(tmp_path)
    for path in names:
        path.write_bytes(changed(path.read_bytes()))
    assert not call(tmp_path)
    assert call(tmp_path)
    assert stored(tmp_path) == names


def test_a_program_that_nobody_vouches_for_is_not_run(tmp_path):
    call(tmp_path)
    for path in tmp_path.rglob(programs._CHECKSUMS):
        path.write_text("not JSON")
    assert not call(tmp_path)


def test_programs_that_change_or_vanish_during_a_call_do_no_harm(tmp_path):
    """As another call would truncate or remove them."""
    for action in ("path.write_bytes(path.read_bytes()[:50])", "path.unlink()"):
        call(tmp_path)
        lines = f"for path in programs.root().rglob('*-cache'): {action}"
        assert not call(tmp_path, after=lines)
    assert call(tmp_path) or call(tmp_path)


def test_programs_of_another_processor_are_not_taken(tmp_path):
    other = "programs._machine = lambda: 'other'"
    call(tmp_path, before=other)
    assert not call(tmp_path)
    assert call(tmp_path, before=other)
    assert len({path.parent for path in stored(tmp_path)}) == 2


def test_the_oldest_programs_are_removed_above_the_limit(tmp_path):
    folder = tmp_path / "version"
    folder.mkdir()
    for age, size in ((3, 10), (1, programs.LIMIT - 15), (2, 10)):
        path = folder / f"{age}-cache"
        with open(path, "wb") as stream:
            stream.truncate(size)
        os.utime(path, (1000 - age, 1000 - age))
    programs._remove_oldest(tmp_path)
    assert [path.name for path in stored(tmp_path)] == ["1-cache", "2-cache"]


def test_two_calls_at_once_do_not_disturb_each_other(tmp_path):
    script = SCRIPT.format(before="", after="")
    command = [sys.executable, "-c", script]
    with (
        started(command, env=environment(tmp_path)) as one,
        started(command, env=environment(tmp_path)) as two,
    ):
        for process in (one, two):
            output, errors = process.communicate(timeout=HANG_S)
            assert output.split()[0] == "7.0"
            assert errors == ""
    assert call(tmp_path) or call(tmp_path)


def test_a_folder_that_cannot_be_written_is_not_used(tmp_path):
    path = tmp_path / "file"
    path.write_text("not a folder")
    assert not call(path)
    assert not call(path)


@pytest.mark.parametrize(
    "others",
    [
        {"JAX_ENABLE_COMPILATION_CACHE": "false"},
        {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    ],
)
def test_the_cache_stays_off_where_jax_says_so_or_would_be_wrong(tmp_path, others):
    assert not call(tmp_path, **others)
    assert not call(tmp_path, **others)
    assert not (tmp_path / "condvendi_jax").exists()


def test_the_users_own_cache_is_left_alone(tmp_path):
    own = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own")}
    call(tmp_path, **own)
    assert not (tmp_path / "condvendi_jax").exists()


def test_the_command_keeps_programs_unless_told_not_to_and_the_library_never(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    score = ["-m", "condvendi_jax", "score", "--outputs=x.npy", "--order=2", "--output_bandwidth=1"]
    library = "import condvendi_jax as cv; cv.rke([[0.0], [1.0]], kernel=cv.Gaussian(1.0))"
    tables = []
    for words in (["-c", library], [*score, "--compile_cache=false"], score, score):
        tables.append(
            subprocess.run(
                [sys.executable, *words, *["--json=r.json"] * ("-m" in words)],
                **{"cwd": tmp_path, "env": environment(tmp_path), "timeout": HANG_S},
                **{"capture_output": True, "text": True, "check": True},
            ).stdout
        )
        assert bool(stored(tmp_path)) == (words == score)
    assert tables[1] == tables[2] == tables[3]
