"""Scores on all devices of two processes against those on one device."""

import os
import socket
import sys

import numpy as np
import pytest
from processes import HANG_S, started

from experiments.cost.many_devices import ManyDevices
from experiments.lab import store
from experiments.lab.study import check_bounds


@pytest.mark.slow
def test_the_example_gives_the_same_scores_by_every_way_in_two_processes(tmp_path):
    """The second shares the folder: it must neither wait for the lock nor for cells of its own."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    arguments = ["--devices=1", "--n=201", "--rtol=0.02", f"--output={tmp_path}"]
    arguments += [f"--coordinator=localhost:{port}", "--num_processes=2"]
    command = [sys.executable, "-m", "experiments.many_devices", *arguments]
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    with (
        started([*command, "--process_id=0"], env=environment) as one,
        started([*command, "--process_id=1"], env=environment) as other,
    ):
        processes = one, other
        ends = [process.communicate(timeout=HANG_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    assert "201 pairs, 2 x cpu of 2 processes" in ends[0][0]
    assert "pairs" not in ends[1][0]
    run = store.read_run(tmp_path / "many_devices-2x1", ManyDevices)
    assert (run.study.num_processes, run.study.devices, len(run.results)) == (2, 2, 5)
    found = run.found
    ways = found.sel(way=["order 2", "stored"]).value
    np.testing.assert_allclose(ways.sel(devices="one"), ways.sel(devices="all"), rtol=1e-4)
    stored, free = (found.value.sel(way=w, devices="all") for w in ("stored", "matrix-free"))
    np.testing.assert_allclose(free, stored, rtol=1e-4)
    stored, exact = (found.sel(way=w, devices="all", score="vendi") for w in ("stored", "order 2"))
    low, high = stored.interval.values
    assert low < stored.value.item() < high
    assert (exact.interval == exact.value).all()


def test_the_example_refuses_half_an_address():
    for options, message in (
        ({"process_id": 1}, "--coordinator: several processes"),
        ({"coordinator": "localhost:1", "num_processes": 2}, "--process_id: expected beside"),
        ({"n": 1}, "--n: expected a number at least 2"),
        ({"devices": 0}, "--devices"),
    ):
        with pytest.raises(ValueError, match=message):
            check_bounds(ManyDevices(**options))
            ManyDevices(**options).prepare(lambda: None, 0)
