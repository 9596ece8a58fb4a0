"""What every command line of the project shares: flags, progress, errors and provenance."""

import dataclasses
import io
import math
import os
import pathlib
import sys

import jax
import pytest
from processes import HANG_S, started, write_lines
from rich.console import Console

import condvendi_jax
from condvendi_jax.cli import command, flags
from condvendi_jax.cli.flags import flag


def _even(value):
    if value % 2:
        raise ValueError(f"number: expected an even one, received {value}.")


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of flags."""

    kernel: str = flag("gaussian", "The kernel.", choices=("gaussian", "cosine"))
    width: float | None = flag(None, "Its width.", above=0, needs={"kernel": "gaussian"})
    share: float = 0.0  # No flag, although there is one of this name beside the group.


@dataclasses.dataclass(frozen=True)
class Base:
    """What is inherited."""

    loud: bool = flag(False, "Says 100% more.")
    group: Group = Group()
    resolved: str = "no flag"


@dataclasses.dataclass(frozen=True)
class Flags(Base):
    """Does something.

    usage: program [--flag=value ...]
    """

    sizes: tuple[int, ...] | None = flag(None, "Sizes.", at_least=2)
    orders: tuple[float, ...] = flag((2.0, math.inf), "Orders.", above=0)
    names: tuple[str, ...] = flag((), "Names.", choices=("a", "b"))
    share: float = flag(0.5, "A share.", above=0, below=1)
    count: int = flag(2, "A count.", check=_even)
    picture: str | None = flag(None, "A file.", endings=(".png", ".pdf"), excludes=("loud",))
    quiet: bool = flag(True, "Says less.", excludes=("picture", "count"))


def parse(*argv: str) -> tuple[list[str], Flags]:
    return flags.parse(Flags, argv)


GIVEN = {
    "": {},
    "--share=0.25": {"share": 0.25},
    "--share 0.25": {"share": 0.25},
    "-share=0.999 -loud": {"share": 0.999, "loud": True},
    "--sizes=3,2": {"sizes": (3, 2)},
    "--sizes=2": {"sizes": (2,)},
    "--orders=1,,3,": {"orders": (1.0, 3.0)},
    "--names=b,a": {"names": ("b", "a")},
    "--names=a,|b": {"names": ("a", "b")},  # Spaces beside commas are no part of a value.
    "--sizes=|3|,|4": {"sizes": (3, 4)},
    "--picture=a.PNG": {"picture": "a.PNG"},
    "--loud": {"loud": True},
    "--loud=T --noquiet": {"loud": True, "quiet": False},
    "--loud=0 --quiet=false": {"quiet": False},
    "--count=-2": {"count": -2},
    "--count -2": {"count": -2},
    "--width=1e-9": {"group": Group(width=1e-9)},
    "--kernel=cosine": {"group": Group(kernel="cosine")},
}


@pytest.mark.parametrize("argv", GIVEN)
def test_a_flag_has_its_type_however_it_is_written(argv):
    words, made = parse("one", *(word.replace("|", " ") for word in argv.split()), "two")
    assert words == ["one", "two"]
    assert repr(made) == repr(Flags(**GIVEN[argv]))  # 1 and 1.0 are equal.


REFUSED = {
    "--share=x": "--share: expected a number, received 'x'; --help lists all flags.",
    "--count=1.5": "--count: expected a whole number, received '1.5'; --help lists all flags.",
    "--loud=perhaps": "--loud: expected true or false, received 'perhaps'; --help lists",
    "--sizes=4,x": "--sizes: expected a whole number, received '4,x'; --help lists all",
    "--picture=": "--picture: received nothing; leave it out, or give a value; --help lists",
    "--sizes=,": "--sizes: received nothing; leave it out, or give a value; --help lists all",
    "--share": "--share: expected one argument; --help lists all flags.",
    "--size=3": "unknown flag --size; did you mean --sizes? --help lists all flags.",
    "--noquie": "unknown flag --noquie; did you mean --noquiet? --help lists all flags.",
    "--kernels cosine": "unknown flag --kernels; did you mean --kernel? --help lists all",
    "--zzzzzz=1": "unknown flag --zzzzzz; --help lists all flags.",
    "--resolved=1": "unknown flag --resolved; --help lists all flags.",
    "--nosizes": "unknown flag --nosizes; did you mean --sizes? --help lists all flags.",
    "-x": "unknown flag --x; --help lists all flags.",
    "--share=0.1 -share 0.2": "--share: is given 2 times; give it once.",
    "--sizes=3 --sizes=4": "--sizes: is given 2 times; give it once.",
    "--loud --noloud": "--loud: is given 2 times; give it once.",
    "--width=1 --width=1 --width=1": "--width: is given 3 times; give it once.",
    # The rules.
    "--names=a,c": "--names: expected one of a, b, received 'c'.",
    "--kernel=linear": "--kernel: expected one of gaussian, cosine, received 'linear'.",
    "--picture=a.svg": "--picture: expected a file ending in .png, .pdf, received 'a.svg'.",
    "--sizes=1,2": "--sizes: expected a number at least 2, received 1.",
    "--share=0": "--share: expected a number above 0 and below 1, received 0.0.",
    "--share=1": "--share: expected a number above 0 and below 1, received 1.0.",
    "--share=nan": "--share: expected a number above 0 and below 1, received nan.",
    "--width=inf": "--width: expected a number above 0, received inf.",
    "--width=-1": "--width: expected a number above 0, received -1.0.",
    "--sizes=3,4,3": "--sizes: 3 is given twice; give it once.",
    "--names=b,b": "--names: b is given twice; give it once.",
    "--count=3": "--count: expected an even one, received 3.",
    "--loud --picture=a.png": "--picture and --loud: give one or the other.",
    "--noquiet --picture=a.png": "--quiet and --picture: give one or the other.",
    "--noquiet --count=4": "--quiet and --count: give one or the other.",
    "--width=1 --kernel=cosine": (
        "--width means nothing with --kernel=cosine; it is for --kernel=gaussian."
    ),
}


@pytest.mark.parametrize("argv", REFUSED)
def test_what_is_wrong_is_said_in_one_line(argv):
    with pytest.raises(ValueError) as caught:
        parse(*argv.split())
    assert str(caught.value).startswith(REFUSED[argv]) and "\n" not in str(caught.value)


@pytest.mark.parametrize("word", ["-h", "-help", "--help", "--helpfull", "--helpshort"])
def test_the_help_has_every_flag_with_its_default_and_rules(word, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        parse("--share=x", word)
    assert ended.value.code is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Does something.", "", "usage: program [--flag=value ...]"]
    expected = {
        "sizes": "Sizes. (several are separated by commas)",
        "orders": "Orders. (several are separated by commas; default 2,inf)",
        "names": "Names. (several are separated by commas; of a, b)",
        "share": "A share. (default 0.5)",
        "count": "A count. (default 2)",
        "picture": "A file.",
        "quiet": "Says less. (default true; --noquiet turns it off)",
        "kernel": "The kernel. (default gaussian; of gaussian, cosine)",
        "width": "Its width. (only with --kernel=gaussian)",
        "loud": "Says 100% more.",
    }
    shown = [line.split(maxsplit=2) for line in lines if line.startswith("  --")]
    assert {name: text for name, _, text in shown} == {f"--{k}": v for k, v in expected.items()}
    # Those that are inherited come last.
    assert [name for name, _, _ in shown][:2] + [shown[-1][0]] == ["--kernel", "--width", "--loud"]


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


def test_the_command_runs_on_windows_and_where_characters_cannot_be_encoded(tmp_path):
    for file, name in ("a", "a"), ("b", "é"):
        asked = [{"prompt": f"p{k % 3}", "answer": f"{file} {k % 4}"} for k in range(24)]
        write_lines(tmp_path / f"{file}.jsonl", [{"model": name, **row} for row in asked])
    words = ["compare", "a.jsonl", "b.jsonl", "--text_encoder=fake_encoders:Ideas", "--order=2"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "XDG_CACHE_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parents[1]), *sys.path])
    call = [sys.executable, "-c", ON_WINDOWS, *words]
    with started(call, cwd=tmp_path, env=environment) as process:
        shown, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, said
    assert shown.isascii() and "?" in shown
