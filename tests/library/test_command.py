"""What every command line of the project shares: progress, flags, errors and provenance."""

import io
import json
import os
import pathlib
import sys

import jax
import pytest
from processes import HANG_S, started
from rich.console import Console

import condvendi_jax
from condvendi_jax.cli import command


def _bar(clock):
    """A bar whose job does nothing but wait: a first step, which is there already, and two more."""
    bar = command.progress_bar()
    bar.get_time = lambda: clock[0]
    bar.add_task("the [bandwidth]\x1b", total=None)
    task = bar.add_task("embedding answers", total=1000)
    for seconds, count in ((0, 400), (100, 50), (300, 100)):
        clock[0] = float(seconds)
        bar.advance(task, count)
    return bar


def test_progress_shows_the_time_left_also_of_slow_steps(monkeypatch):
    """What is there already, the first step, does not count as speed."""
    terminal, drawn = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    Console(width=200, file=drawn).print(_bar([0.0]).get_renderable())
    assert "550/1,000 0:05:00 0:15:00" in drawn.getvalue()
    assert "the [bandwidth]" in drawn.getvalue() and "?" not in drawn.getvalue()


def test_without_a_terminal_a_line_says_what_is_done(monkeypatch, capsys):
    clock, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            bar.add_task("order 2 of [a]\x1b", total=None)
        if len(slept) == 3:
            clock[0] = 319.0
        if len(slept) == 4:
            bar.live._started = False

    monkeypatch.setattr(command.threading.Thread, "start", lambda self: None)
    bar = _bar(clock)
    monkeypatch.undo()
    monkeypatch.setattr(command.time, "sleep", sleep)
    bar.live._started = True
    command._write_lines(bar)
    assert slept == [20] * 4
    assert capsys.readouterr().err.splitlines() == [
        "embedding answers: 550 of 1,000, about 0:15:00 left",
        "order 2 of [a]\\x1b: 0:00:00 so far",
        "order 2 of [a]\\x1b: 0:00:19 so far",
    ]


def test_a_short_job_prints_no_progress(capsys):
    with command.progress_bar() as bar:
        bar.add_task("scores", total=None)
    assert capsys.readouterr().err == ""


def test_control_characters_are_shown_as_python_writes_them():
    shown = command.escaped("a\x1b[31m\x9b\tné 👨\u200d👩\n\ud800\u202e")
    assert shown == "a\\x1b[31m\\x9b\tné 👨\u200d👩\n\\ud800\\u202e"


def test_provenance_has_versions_and_precision():
    found = command.provenance()
    assert found["versions"]["condvendi_jax"] == condvendi_jax.__version__
    assert found["versions"]["jax"] == jax.__version__
    assert (found["dtype"], found["x64"]) == ("float32", False)


# What Python 3.11 lacks on Windows.
ON_WINDOWS = """
import os, select, signal, sys
names = "fork forkpty getuid geteuid getgid getpgid killpg mkfifo openpty register_at_fork sysconf"
names += " set_blocking get_blocking sched_getaffinity setsid uname wait4 getloadavg statvfs fchmod"
import jax, matplotlib, pandas, rich.console, subprocess  # Which do without them there.
for name in names.split():
    vars(os).pop(name, None)
for name in ("SIGPIPE", "SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "pthread_kill", "alarm"):
    vars(signal).pop(name, None)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp", "pty", "termios"))
from condvendi_jax.cli.__main__ import run
run()
"""


@pytest.mark.parametrize("words", ["--version", "score a.jsonl", "compare a.jsonl b.jsonl"])
def test_the_command_runs_on_windows_and_where_characters_cannot_be_encoded(words, tmp_path):
    for file, name in ("a", "a"), ("b", "é"):
        rows = [
            {"model": name, "prompt": f"p{k % 3}", "answer": f"{file} {k % 4}"} for k in range(24)
        ]
        (tmp_path / f"{file}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    call = [sys.executable, "-c", ON_WINDOWS, *words.split()]
    call += ["--text_encoder=fake_encoders:Ideas", "--order=2"] * (words != "--version")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "XDG_CACHE_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parents[1]), *sys.path])
    with started(call, cwd=tmp_path, env=environment) as process:
        shown, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, said
    assert shown.isascii() and ("?" in shown) == words.startswith("compare")
