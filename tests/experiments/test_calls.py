"""Calls beside their peers, and several processes."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import studies

from experiments import lab
from experiments.cost import callers, calls
from experiments.cost import many_processes as study
from experiments.cost.calls import ROWS, Caller, Calls, Row

_KEEPS = "import os; assert os.environ['JAX_ENABLE_COMPILATION_CACHE'] == "


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Runs the study on one row of these contestants."""

    def run(*flags, **contestants):
        def write(folder):
            np.save(folder / "x.npy", np.arange(3))

        monkeypatch.setitem(ROWS, "toy", Row("a toy", write, contestants, False, rounds=1))
        return studies.execute(Calls, tmp_path, "--rows=toy", *flags)

    return run


def test_contestants_are_processes_on_one_core_and_failures_say_why(measure, monkeypatch):
    start, limits = calls.subprocess.run, set()

    def run(words, *, timeout, **options):
        limits.add(timeout)
        return start(words, timeout=0.1 if "asleep" in words else 600, **options)

    monkeypatch.setattr(calls.subprocess, "run", run)
    before = getattr(os, "sched_getaffinity", lambda _: {0})(0)
    one_core = "import os; assert len(getattr(os, 'sched_getaffinity', lambda _: [0])(0)) == 1"
    contestants = {
        "kept": Caller(f"{_KEEPS}'true'", "x.sum()"),
        "fresh": Caller(f"{_KEEPS}'false'", "x.sum()", keeps=False),
        "peer": Caller(one_core, "[k * k for k in range(1000)]", peer=True),
        "wrong": Caller("import json", "x.nothing", peer=True),
        "asleep": Caller("", "-c 'import time; time.sleep(600)' asleep", peer=True),
        "there": Caller("import json", "1", peer=True, elsewhere=True),
    }
    run = measure("--peers=/nowhere/python", **contestants)
    assert getattr(os, "sched_getaffinity", lambda _: {0})(0) == before and limits == {300.0}
    found = run.found.sel(row="toy")
    *measured, wrong, asleep, there = found.left_out.values
    assert measured == 3 * [""]
    assert wrong.startswith("AttributeError: 'numpy.ndarray' object has no attribute 'nothing'")
    assert asleep == "took more than 0 s" and "No such file" in there
    seconds = found.seconds.values.ravel()
    assert (seconds[:3] > 0).all() and np.isnan(seconds[3:]).all()
    assert (found.peak.values[:3] > 1e6).all() or sys.platform != "linux"
    facts = Calls.facts([run])
    assert facts["ratio"]("toy", "kept") == seconds[0] / seconds[2]
    rows = [[*column.cells] for column in facts["table"].columns]
    assert rows[1] == [*contestants]
    assert rows[3][0] == f"{seconds[0] / seconds[2]:.3g}" and rows[3][2] == ""


@pytest.mark.parametrize("later", [True, False])
def test_a_later_call_is_timed_alone(later, tmp_path, monkeypatch, capsys):
    """By a clock that only calls move; a first call, which takes long, does not count."""
    now = [0.0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(callers.time, "process_time", lambda: now[0])
    monkeypatch.setattr(callers, "takes", lambda s: now.append(now.pop() + s), raising=False)

    def run(words, **_):
        callers.main(*words[2:])
        return subprocess.CompletedProcess(words, 0, capsys.readouterr().out)

    monkeypatch.setattr(calls.subprocess, "run", run)
    setup = "from experiments.cost import callers; each = iter([9, 0.125, 0.0625, 0.125])"
    caller = Caller(setup, "callers.takes(next(each))")
    seconds, peak = calls.measured(caller, later, tmp_path, None)
    assert (seconds == 0.125) == later and (peak > 0 or sys.platform != "linux")


def test_rows_of_other_numbers_of_rounds_are_gathered(measure, monkeypatch):
    """Rows that take long have one round, and others three."""
    run = measure(ours=Caller("import json", "1"))
    (one, found), other = *run.results.items(), lab.Cell((("row", "other"),))
    three = found.isel(round=[0, 0, 0])
    both = dataclasses.replace(run, results={one: found, other: three}).found
    assert both.seconds.count("round").values.tolist() == [[1], [3]]


@pytest.mark.parametrize("row", ["rke_500", "conditional_rke_500"])
def test_numpy_computes_what_we_compute(row, tmp_path):
    calls._pairs(tmp_path, n=60)
    names = {"gram": callers.gram, **{k: np.load(tmp_path / f"{k}.npy") for k in "xt"}}
    ours, peer = (ROWS[row].callers[name] for name in ("ours", "NumPy"))
    exec(ours.setup, names)
    sums = np.ravel(eval(peer.call, names))
    expected = len(names["x"]) ** 2 / sums[0] if len(sums) == 1 else sums[0] / sums[1]
    np.testing.assert_allclose(eval(ours.call, names), expected, rtol=1e-4)


def test_a_command_runs_without_and_with_kept_programs_and_embeds_anew(tmp_path, monkeypatch):
    """It reads files that the row writes; in the folder of embeddings nothing is left of a call."""
    seen = []

    def run(call, *, cwd, env, **_):
        seen.append((call[1:3], env["JAX_ENABLE_COMPILATION_CACHE"], (cwd / "embedded").exists()))
        (cwd / "embedded").mkdir()
        assert (cwd / "pictures" / "127.png").exists() and (cwd / "titles.txt").exists()

    monkeypatch.setattr(calls.subprocess, "run", run)
    found = studies.execute(Calls, tmp_path, "--rows=command_pictures").found
    assert found.contestant.values.tolist() == ["ours, nothing kept", "ours, programs kept"]
    assert seen == 4 * [(["-m", "condvendi_jax.cli"], kept, False) for kept in ("false", "true")]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_peer_and_all_of_it_compiles(row):
    for caller in ROWS[row].callers.values():
        if caller.setup:
            compile(caller.setup, "setup", "exec")
            compile(f"lambda: {caller.call}", "call", "eval")
    peers = [caller.peer for caller in ROWS[row].callers.values()]
    assert any(peers) or row.startswith("command")


def test_cells_keep_the_pairs_or_the_work_of_a_process():
    cells = [tuple(cell.values.values()) for cell in study.ManyProcesses(n=1024).cells()]
    spectral = [cell[1:] for cell in cells if cell[0] == "spectral"]
    assert spectral == [(1024, 1), (512, 1), (1024, 2), (724, 2), (1024, 4)]
    assert len(cells) == 2 * len(spectral)
