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
        _, write, callers, _, rounds = ROWS[row]
        spent, why = np.full((2, len(callers), rounds), np.nan), [""] * len(callers)
        with tempfile.TemporaryDirectory() as scratch:
            folder, cache = (pathlib.Path(scratch) / name for name in ("data", "cache"))
            folder.mkdir()
            write(folder)
            # The first round compiles what is kept.
            for number in range(-1 if rounds > 1 else 0, rounds):
                for place, (name, caller) in enumerate(callers.items()):
                    context.say(f"round {number + 1} of {rounds}: {name}")
                    try:
                        if not why[place]:
                            numbers = measured(caller, ROWS[row].later, folder, cache, self.peers)
                            spent[:, place, max(number, 0)] = numbers
                    except (OSError, subprocess.SubprocessError) as error:
                        why[place] = reason(error)
        axes = "contestant", "round"
        return xr.Dataset(
            {"seconds": (axes, spent[0]), "peak": (axes, spent[1]), "left_out": (axes[:1], why)},
            {"contestant": list(callers)},
        )

    def tables(self, run):
        """The median of each contestant, and that of ours over the least of the peers."""
        grid = Table("call", "by", "CPU s", "of the fastest peer", "peak, MB")
        for cell, found in run.results.items():
            row, ratios = ROWS[cell.values["row"]], ratios_of(cell.values["row"], found)
            for name, caller in row.callers.items():
                of = found.sel(contestant=name)
                numbers = of.seconds.median(), ratios[name], of.peak.median() / 1e6
                shown = [tables.number(float(number), digits=3) for number in numbers]
                shown = [of.left_out.item() or shown[0], "" if caller.peer else shown[1], shown[2]]
                grid.add_row(row.words, name, *shown)
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """The table; `ratio(row, contestant)`; `seconds` and `peak`, in GB, of the same."""
        by_row = {cell.values["row"]: of for run in runs[:1] for cell, of in run.results.items()}

        def ratio(row: str, contestant: str = "ours") -> float:
            return ratios_of(row, by_row[row])[contestant]

        def median(of: str, row: str, contestant: str = "ours") -> float:
            return by_row[row][of].sel(contestant=contestant).median().item()

        return {
            "ratio": ratio,
            "first": lambda call: median("seconds", f"first_{call}", "ours, nothing kept"),
            "seconds": partial(median, "seconds"),
            "peak": lambda *where: median("peak", *where) / 1e9,
            "table": next((table for run in runs for table in run.study.tables(run)), []),
        }


def ratios_of(row: str, found: xr.Dataset) -> dict[str, float]:
    """By contestant, its median CPU seconds over the least of its peers."""
    callers = ROWS[row].callers
    medians = {n: found.seconds.sel(contestant=n).median().item() for n in callers}
    peers = [medians[name] for name, caller in callers.items() if caller.peer]
    least = min((seconds for seconds in peers if not np.isnan(seconds)), default=np.nan)
    return {name: seconds / least for name, seconds in medians.items()}


def measured(
    caller: Caller, later: bool, folder: pathlib.Path, cache: pathlib.Path, peers: str | None
) -> tuple[float, float]:
    """The CPU seconds and the peak memory of one contestant, in a process on one core.

    Raises:
      OSError, subprocess.SubprocessError: it failed, or took longer than the limit.
    """
    words = [os.fspath(_CALLERS), *caller[:2], *["later"] * later]
    words = words if caller.setup else shlex.split(caller.call)
    own = {"PYTHONPATH": os.fspath(_CALLERS.parents[2]), "XDG_CACHE_HOME": os.fspath(cache)}
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


def reason(error: Exception) -> str:
    """Why a contestant has no numbers, in a few words."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took more than {_LIMIT:.0f} s"
    return f"{getattr(error, 'stderr', None) or error}".splitlines()[-1][:100]


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
