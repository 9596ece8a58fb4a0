"""What a user of Python waits for, beside NumPy and named packages: ratios on one core."""

import contextlib
import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from rich.table import Table

from experiments import lab
from experiments.cost import timing
from experiments.cost.call_rows import ROWS, Caller
from experiments.lab import tables

_CALLERS = pathlib.Path(__file__).with_name("callers.py")
_LIMIT = 300.0  # Seconds of the clock that a process may take.


class Calls(lab.Study):
    """How long do calls in Python take on one core, beside NumPy and other packages?"""

    name = "calls"
    control = "Contestants take turns on the same data, on one core and one thread."
    unrepeated = ("seconds", "peak", "left_out")
    data = None
    random = False
    runs = (("--peers=python-with-peers",),)

    rows: tuple[str, ...] = lab.flag(tuple(ROWS), "What is measured.", choices=ROWS)
    peers: str | None = lab.flag(
        None, "The Python that has other packages; that of the study if unset."
    )

    def prepare(self, load, seed):
        """Nothing is read: each row writes what it measures."""
        return self.ready()

    def axes(self):
        return {"row": self.rows}

    def compute(self, state, context, *, row):
        """By contestant and round: CPU `seconds` and the `peak` memory in bytes.

        `left_out` says why a contestant has no numbers.
        """
        _, write, callers, later, rounds = ROWS[row]
        first = rounds > 1  # It compiles what is kept.
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch, "data")
            folder.mkdir()
            write(folder)
            calls = {
                name: lambda _, of=caller: measured(of, later, folder, self.peers)
                for name, caller in callers.items()
            }
            given, why = timing.in_turns(calls, lambda *_: rounds + first, context.say)
        nothing = rounds * [(np.nan, np.nan)]
        seconds, peak = np.transpose(
            [given.get(of, nothing)[-rounds:] for of in callers], (2, 0, 1)
        )
        axes = "contestant", "round"
        reasons = [why.get(name, "") for name in callers]
        return xr.Dataset(
            {"seconds": (axes, seconds), "peak": (axes, peak), "left_out": (axes[0], reasons)},
            {"contestant": list(callers)},
        )

    def tables(self, run):
        """The median of each contestant, and that of ours over the least of the peers."""
        grid = Table("call", "by", "CPU s", "of the fastest peer", "peak, MB")
        for cell, found in run.results.items():
            row = ROWS[cell.values["row"]]
            medians = found[["seconds", "peak"]].median("round")
            numbers = [medians.seconds, ratios_of(cell.values["row"], found), medians.peak / 1e6]
            for place, (name, caller) in enumerate(row.callers.items()):
                shown = [tables.number(of[place].item(), digits=3) for of in numbers]
                shown[0] = found.left_out[place].item() or shown[0]
                grid.add_row(row.words, name, shown[0], "" if caller.peer else shown[1], shown[2])
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """The table; `ratio(row, contestant)`; `seconds` and `peak`, in GB, of the same."""
        (run,) = runs
        by_row = {cell.values["row"]: of for cell, of in run.results.items()}

        def ratio(row: str, contestant: str = "ours") -> float:
            return ratios_of(row, by_row[row]).sel(contestant=contestant).item()

        def median(of: str, row: str, contestant: str = "ours") -> float:
            return by_row[row][of].sel(contestant=contestant).median().item()

        (table,) = run.study.tables(run)
        return {
            "ratio": ratio,
            "first": lambda call: median("seconds", f"first_{call}", "ours, nothing kept"),
            "seconds": partial(median, "seconds"),
            "peak": lambda *where: median("peak", *where) / 1e9,
            "table": table,
        }


def ratios_of(row: str, found: xr.Dataset) -> xr.DataArray:
    """Median CPU seconds by contestant, over the least of the peers."""
    medians = found.seconds.median("round")
    peers = [name for name, caller in ROWS[row].callers.items() if caller.peer]
    return medians / medians.where(medians.contestant.isin(peers)).min()


def measured(
    caller: Caller, later: bool, folder: pathlib.Path, peers: str | None
) -> tuple[float, float]:
    """The CPU seconds and the peak memory of one contestant, in a process on one core.

    Raises:
      OSError, subprocess.SubprocessError: it failed, or took longer than the limit.
    """
    words = [os.fspath(_CALLERS), *caller[:2], *["later"] * later]
    words = words if caller.setup else shlex.split(caller.call)
    own = {"PYTHONPATH": os.fspath(_CALLERS.parents[2]), "XDG_CACHE_HOME": f"{folder}-cache"}
    own |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    own |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": str(caller.keeps).lower()}
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    python = peers if caller.elsewhere and peers else sys.executable
    given: Any = {"cwd": folder, "env": kept | own, "timeout": _LIMIT, "text": True}
    shutil.rmtree(folder / "embedded", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with _on_one_core():
        finished = subprocess.run([python, *words], check=True, capture_output=True, **given)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not caller.setup:
        return seconds, np.nan
    told = json.loads(finished.stdout.splitlines()[-1])
    return told["seconds"] if later else seconds, told["peak"]


@contextlib.contextmanager
def _on_one_core():
    """Processes that start within have one core, where the system can say so."""
    cores = getattr(os, "sched_getaffinity", lambda _: {0})(0)
    pin = getattr(os, "sched_setaffinity", lambda *_: None)
    pin(0, {min(cores)})
    try:
        yield
    finally:
        pin(0, cores)
