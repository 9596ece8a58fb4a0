"""What every command line of the project shares: progress, flags, errors and provenance."""

import importlib.metadata
import io
import os
import subprocess
import sys

import jax
import pytest
from rich.console import Console

import condvendi_jax
from condvendi_jax.cli import command, provenance


def test_progress_shows_the_time_left_also_of_slow_steps(monkeypatch):
    """What is there already, the first step, does not count as speed."""
    clock, terminal, drawn = [0.0], io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = command.progress_bar()
    bar.get_time = lambda: clock[0]
    bar.add_task("the [bandwidth]", total=None)
    task = bar.add_task("embedding answers", total=1000)
    for seconds, count in ((0, 400), (100, 50), (300, 100)):
        clock[0] = float(seconds)
        bar.advance(task, count)
    Console(width=200, file=drawn).print(bar.get_renderable())
    assert "550/1,000 0:05:00 0:15:00" in drawn.getvalue()
    assert "the [bandwidth]" in drawn.getvalue() and "?" not in drawn.getvalue()


class Clock:
    """A clock, and an event that ends when the seconds are over; waiting moves the clock."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        return self.now > self.seconds

    set = __call__


def _lines(seconds, steps, capsys):
    """The lines of a job whose steps, by their seconds, are calls of the bar."""
    clock = Clock(seconds)
    bar = command._Lines(clock)
    bar.ended = clock
    waited = clock.wait

    def wait(span):
        until = clock.now + span
        for at in [at for at in steps if clock.now <= at < until]:
            clock.now = at
            steps[at](bar)
        clock.now = until - span
        return waited(span)

    clock.wait = wait
    bar.run()
    return capsys.readouterr().err.splitlines()


def test_without_a_terminal_a_line_every_20_seconds_says_what_is_done(capsys):
    steps = {
        0: lambda bar: bar.add_task("embedding answers", total=1000),
        1: lambda bar: bar.advance(0, 400),  # What is there already.
        30: lambda bar: bar.advance(0, 50),
        41: lambda bar: bar.advance(0, 100),
        61: lambda bar: bar.add_task("scores"),
        62: lambda bar: bar.update(0, description="order 2 of [a]\x1b"),
    }
    assert _lines(100, steps, capsys) == [
        "embedding answers: 400 of 1,000, 0:00:20 so far",
        "embedding answers: 450 of 1,000, about 0:07:09 left",
        "embedding answers: 550 of 1,000, about 0:02:57 left",
        "order 2 of [a]\\x1b: 0:00:19 so far",
        "order 2 of [a]\\x1b: 0:00:39 so far",
    ]


def test_a_short_job_prints_no_progress(capsys):
    assert _lines(19, {0: lambda bar: bar.add_task("scores")}, capsys) == []


def test_progress_ends_with_its_block_and_where_nobody_reads(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with command.progress_bar() as bar:
        bar.add_task("scores")
    assert bar.ended.is_set()
    sys.stderr.close()
    clock = Clock(50)
    bar.ended = clock
    bar.run()
    assert clock.now == 60


def test_control_characters_are_shown_as_python_writes_them():
    shown = command.escaped("a\x1b[31m\x9b\tné 👨\u200d👩\n\ud800\u202e")
    assert shown == "a\\x1b[31m\\x9b\tné 👨\u200d👩\n\\ud800\\u202e"


SPARED = "--xla_gpu_enable_triton_gemm=false"


@pytest.mark.parametrize(
    "plugin, version, given, expected",
    [
        ("jax_cuda13_plugin", "0.11.2", None, SPARED),
        ("jax_cuda12_plugin", "0.9.0.1", "--xla_other=1", f"--xla_other=1 {SPARED}"),
        ("jax_cuda13_plugin", "0.11.2", "--xla_gpu_enable_triton_gemm=true", None),
        ("jax_cuda13_plugin", "0.12.0", "", None),  # XLA would end the process if it were unknown.
        ("jax_rocm7_plugin", "0.11.2", "", None),
    ],
)
def test_only_known_compilers_do_not_search(plugin, version, given, expected, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: name == plugin or None)
    monkeypatch.setattr(command.importlib.metadata, "version", lambda name: version)
    if given is None:
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    else:
        monkeypatch.setenv("XLA_FLAGS", given)
    command._compile_quickly()
    assert command.os.environ.get("XLA_FLAGS") == (given if expected is None else expected)


def test_every_command_spares_the_search_before_it_starts(tmp_path):
    (tmp_path / "jax_cuda13_plugin.py").touch()
    program = "import os; from condvendi_jax.cli import command; command._KNOWN_JAXLIB = (99, 0); "
    program += "command.run(lambda _: print(os.environ['XLA_FLAGS']), parse_flags=False)"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths, "XLA_FLAGS": ""}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == SPARED


def test_without_metadata_the_modules_say_their_versions(monkeypatch):
    def fail(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", fail)
    versions = provenance.collect()["versions"]
    assert versions["condvendi_jax"] == condvendi_jax.__version__
    assert versions["jax"] == jax.__version__
    assert provenance.version("no_such_package") is None


def test_the_installed_version_comes_first(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} as installed")
    assert provenance.version("jax") == "jax as installed"
