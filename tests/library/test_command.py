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
    task = bar.add_task("embedding answers", total=1000)
    for seconds, count in ((0, 400), (100, 50), (300, 100)):
        clock[0] = float(seconds)
        bar.advance(task, count)
    Console(width=200, file=drawn).print(bar.get_renderable())
    assert "550/1000 0:05:00 0:15:00" in drawn.getvalue()


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
