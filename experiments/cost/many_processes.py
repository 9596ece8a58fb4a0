"""How time and traffic grow with the number of processes, each of one thread, on this machine."""

import functools
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
import xarray as xr
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from rich.table import Table

import condvendi_jax as cv
from condvendi_jax.grams import Layout, TiledGram
from condvendi_jax.grams.operators import together
from condvendi_jax.spectra import Budget, spectral_measure
from experiments import lab
from experiments.cost import timing, worker
from experiments.data import mixture
from experiments.lab import tables

DIMENSIONS = 768, 512  # Of outputs and prompts.
WAYS = ("order 2", "spectral")
_TAKEN = ("wall", "busy", "loopback")  # Of a call.
_BANDWIDTH = 0.7
_BUDGET = Budget()  # 512 products, whatever the number of processes.
# Read when a process starts: threads of NumPy and of XLA.
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


class ManyProcesses(lab.Study):
    """What do several processes gain, and what do they send each other?"""

    control = "The same work is done by one process; weak scaling lets n grow with them."
    grows = ("n",)
    unrepeated = ("wall", "busy", "loopback", "sent", "messages")
    data = None

    n: int = lab.flag(8192, "Pairs, with the largest number of processes.", at_least=1024)
    processes: tuple[int, ...] = lab.flag((1, 2, 4), "How many processes.", at_least=1)
    repeats: int = lab.flag(5, "Calls after the first.", at_least=timing.AT_LEAST)

    def prepare(self, load, seed):
        """Nothing is drawn here: each process draws its pairs."""
        if max(self.processes) == 1:
            raise ValueError("--processes: expected a number above 1, to compare with one process.")
        return self.ready(processes=tuple(sorted({1, *self.processes})))

    def cells(self):
        """Every way with n pairs, and with n^2 / P fixed."""
        found = []
        for count in self.processes:
            weak = round(self.n * math.sqrt(count / self.processes[-1]))
            sizes = [(way, n) for way in WAYS for n in dict.fromkeys((self.n, weak))]
            found += [lab.Cell((("way", w), ("n", n), ("processes", count))) for w, n in sizes]
        return found

    def compute(self, state, context, *, way, n, processes):
        """Starts the processes, each limited to one thread, and collects what they measured.

        Of the fastest call and the slowest, `wall` is of the slowest process, `busy` the CPU
        seconds of the busiest, `loopback` all bytes on the wire.
        """
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            address = f"localhost:{probe.getsockname()[1]}"
        measure = functools.partial(_measure, address, processes, way, n, self.repeats)
        with mock.patch.dict(os.environ, _ONE_THREAD), worker.processes(processes) as pool:
            parts = list(pool.map(measure, range(processes)))
        by_call = {name: np.max([part[name] for part in parts], axis=0) for name in _TAKEN}
        return xr.Dataset({k: ("end", [min(of), max(of)]) for k, of in by_call.items()})

    def tables(self, run):
        """A row a way, n and number of processes: the fastest call, and the slowest in brackets."""
        grid = Table("way", "n", "P", "wall, s", "busiest, CPU s", "gain", "MB on the wire / P")
        for cell, found in run.results.items():
            way, n, count = cell.values.values()
            gain = run.found.busy.sel(way=way, n=n, processes=1)[0] / found.busy[0]
            times = ("{:.3g} ({:.3g})".format(*of.values) for of in (found.wall, found.busy))
            ends = tables.number(gain.item(), digits=3), f"{found.loopback[0] / 1e6 / count:.1f}"
            grid.add_row(way, f"{n:,}", str(count), *times, *ends)
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """`fastest(variable, way, n, processes)`; `gain(way, processes)`; the table."""
        (run,) = runs
        (table,) = run.study.tables(run)

        def fastest(variable: str, way: str, n: int, processes: int) -> float:
            cell = {"way": way.replace("_", " "), "n": n, "processes": processes}
            return run.found[variable].sel(cell)[0].item()

        def gain(way: str, processes: int) -> float:
            one, several = (fastest("busy", way, run.study.n, p) for p in (1, processes))
            return one / several

        return {"fastest": fastest, "gain": gain, "table": table}


def _measure(
    address: str, processes: int, way: str, n: int, repeats: int, index: int
) -> dict[str, Sequence[float]]:
    """Seconds of the clock and of the CPU, and bytes on the loopback, of each call but the first.

    All processes run it together.
    """
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, index)
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    grams = [
        TiledGram.from_points(cv.Gaussian(_BANDWIDTH), array, layout=Layout(mesh, "rows", n))
        for array in mixture.draw(n, DIMENSIONS, seed=0)
    ]
    if way == "order 2":  # What is timed: three norms, or a measure of the stored joint matrix.
        norms = jax.jit(lambda x, t: together((x, t, x * t)).squared_frobenius_norms())
        call = functools.partial(norms, *grams)
    else:
        gram = jax.block_until_ready((grams[0] * grams[1]).store())
        call = functools.partial(spectral_measure, gram, key=jax.random.key(0), budget=_BUDGET)
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        before = _loopback()  # Of all processes: the barriers' own few bytes count too.
        multihost_utils.sync_global_devices("start")
        started, spent = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        ends = time.perf_counter() - started, time.process_time() - spent
        multihost_utils.sync_global_devices("end")
        taken.append((*ends, _loopback() - before))
    return dict(zip(_TAKEN, zip(*taken, strict=True), strict=True))


def _loopback() -> float:
    """The bytes that the loopback interface has carried; NaN where the system does not say."""
    try:
        with open("/proc/net/dev") as stream:
            fields = next(line.split() for line in stream if line.strip().startswith("lo:"))
    except OSError:
        return np.nan
    return float(fields[1])
