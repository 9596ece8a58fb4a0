"""Calls beside their peers: the process of a contestant, its reasons, and what a row compares."""

import os
import sys

import numpy as np
import pytest
import studies

from experiments.cost import callers, calls
from experiments.cost.calls import ROWS, Caller, Calls, Row

_KEEPS = "import os; assert os.environ['JAX_ENABLE_COMPILATION_CACHE'] == "


def small(folder, seed):
    """No row of the study takes seconds; this one starts Python."""
    return ["--rows=import"]


@pytest.fixture
def toy(monkeypatch):
    """Adds a row of contestants to the study; gives what adds it."""

    def add(later=False, **contestants):
        def write(folder):
            np.save(folder / "x.npy", np.arange(3))

        monkeypatch.setitem(ROWS, "toy", Row("a toy", write, contestants, later, rounds=1))

    return add


def test_contestants_are_timed_as_processes_on_one_core_and_failures_say_why(
    toy, tmp_path, monkeypatch
):
    one_core = "import os; assert len(getattr(os, 'sched_getaffinity', lambda _: [0])(0)) == 1"
    toy(
        kept=Caller(f"{_KEEPS}'true'", "x.sum()"),
        fresh=Caller(f"{_KEEPS}'false'", "x.sum()", keeps=False),
        peer=Caller(one_core, "[k * k for k in range(1_000_000)]", peer=True),
        wrong=Caller("import json", "x.nothing", peer=True),
        asleep=Caller("import time", "time.sleep(60)", peer=True),
    )
    monkeypatch.setattr(calls, "_LIMIT", 5.0)
    before = getattr(os, "sched_getaffinity", lambda _: {0})(0)
    run = studies.execute(Calls, tmp_path, "--rows=toy")
    assert getattr(os, "sched_getaffinity", lambda _: {0})(0) == before
    found = run.found.sel(row="toy")
    assert found.left_out.values.tolist() == [
        *[""] * 3,
        "AttributeError: 'numpy.ndarray' object has no attribute 'nothing'",
        "took more than 5 s",
    ]
    seconds = found.seconds.values.ravel()
    assert (seconds[:3] > 0).all() and np.isnan(seconds[3:]).all()
    assert (found.peak.values[:3] > 1e6).all() or sys.platform != "linux"
    facts = Calls.facts([run])
    assert facts["ratio"]("toy", "kept") == seconds[0] / seconds[2]
    rows = [[*column.cells] for column in facts["table"].columns]
    assert rows[1] == ["kept", "fresh", "peer", "wrong", "asleep"]
    assert rows[3][0] == f"{seconds[0] / seconds[2]:.3g}" and rows[3][2] == ""


def test_a_later_call_is_timed_alone(toy, tmp_path):
    slow_first = "import time; t = []; f = lambda: t or t.append([k for k in range(10_000_000)])"
    for later in (False, True):
        toy(later, ours=Caller(slow_first, "f()"), peer=Caller("t = []", "1", peer=True))
        run = studies.execute(Calls, tmp_path / f"{later}", "--rows=toy")
        spent = run.found.seconds.sel(contestant="ours").item()
        assert (spent < 0.01) == later


def test_peers_run_in_their_own_environment(toy, tmp_path):
    contestants = {
        "ours": Caller("import json", "1"),
        "here": Caller("import json", "1", peer=True),
        "there": Caller("import json", "1", peer=True, elsewhere=True),
    }
    toy(**contestants)
    run = studies.execute(Calls, tmp_path, "--rows=toy", f"--peers={tmp_path / 'python'}")
    *here, there = run.found.left_out.sel(row="toy").values
    assert here == ["", ""] and "No such file" in there


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
