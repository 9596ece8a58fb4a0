"""Who meets whom, and the rounds in which they do.

In every round the contestants of a cell are called in turn, so that what else the machine does
meets all of them, and the next cell starts when all their processes have ended.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from experiments.scaling.records import Record
from experiments.scaling.worker import Cell, Worker, WorkerError

# What each line is; the package imports its modules when their names are first used.
_COLD_STARTS = {
    "import jax": "import jax",
    "import condvendi_jax": "from condvendi_jax import Gaussian, decompose, evaluate",
}
# A contestant whose calls after the first took less, in seconds, has so many times the rounds.
_SHORT, _MANY = 0.5, 4


class Entry(NamedTuple):
    """A contestant as the study knows it.

    Attributes:
      module, function: where it is, under `experiments.scaling`.
      power: its time grows as n^power.
      arrays: how many n x n arrays of float32 it holds at the peak.
      package: what must be installed for it.
      calls: how often it is called: in `rounds`, of which the first warms up; the same, but called
        again however long the first call took, as that one compiles; `once`, for its values; once a
        `seed`, for its values; or once a seed, for `errors` against `exact`, without which it is
        left out.
      largest_only: it takes part at the largest n of the mixture only.
      up_to: the largest n at which it takes part.
      mixture_only: it takes no part on real data.
    """

    module: str
    function: str
    power: int
    arrays: float = 0
    package: str | None = None
    calls: Literal["rounds", "rounds after compiling", "once", "seed", "errors"] = "rounds"
    largest_only: bool = False
    up_to: float = math.inf
    mixture_only: bool = False


# The first of each part is what the others are compared with.
CONTESTANTS: dict[str, dict[str, Entry]] = {
    "order 2": {
        "library": Entry("engines", "library_norms", 2),
        "decompose": Entry("engines", "order_two_call", 2, up_to=4000),
        "tiles": Entry("engines", "tile_norms", 2),
        "all prefixes": Entry("engines", "all_prefixes", 2, largest_only=True),
        "16 bandwidths": Entry("engines", "many_bandwidths", 2, largest_only=True),
        "value and gradient": Entry("engines", "value_and_gradient", 2, largest_only=True),
        "matrix product": Entry("engines", "matrix_product", 0, largest_only=True),
        "dense JAX": Entry("engines", "dense_norms", 2, arrays=3),
        "dense torch": Entry("peers", "torch_norms", 2, arrays=2, package="torch"),
        # Its time for a pair of points does not change with n.
        "rke-score": Entry(
            "peers", "rke_score", 2, package="rke_score", up_to=2000, mixture_only=True
        ),
        "float64": Entry("reference", "norms", 2, calls="once"),
    },
    "exact": {
        "spectrum": Entry("engines", "spectrum", 3, arrays=3),
        "jnp.linalg.eigvalsh": Entry("engines", "eigvalsh", 3, arrays=4),
        "torch.linalg.eigvalsh": Entry("peers", "torch_eigvalsh", 3, arrays=3, package="torch"),
        "vendi_score": Entry("peers", "vendi_score", 3, arrays=3, package="vendi_score"),
        "float64": Entry("reference", "eigenvalues", 3, arrays=5, calls="once"),
    },
    "measure": {
        "exact": Entry("engines", "exact", 3, arrays=4),
        "stored": Entry("engines", "stored", 2, arrays=3, calls="rounds after compiling"),
        "matrix-free": Entry("engines", "matrix_free", 2, mixture_only=True),
        "by tolerance": Entry("engines", "by_tolerance", 2, arrays=3, calls="errors"),
        "by budget": Entry("engines", "by_budget", 2, arrays=3, calls="errors", up_to=4000),
        "plain SLQ": Entry(
            "peers", "plain_quadrature", 2, arrays=3, package="matfree", calls="errors", up_to=4000
        ),
    },
    "features": {
        "Fourier": Entry("engines", "fourier_features", 1, calls="seed"),
        "Nystroem": Entry("engines", "nystroem_features", 1, calls="seed"),
        "Fourier as they are": Entry("engines", "plain_features", 1, calls="seed", up_to=4000),
        "exact": Entry("engines", "exact", 3, arrays=4, calls="once", up_to=4000),
    },
    "first call": {
        "decompose": Entry("engines", "decompose", 3, arrays=4),
        "decompose, stored": Entry("engines", "stored", 2, arrays=3),
    },
    "jackknife": {"evaluate": Entry("engines", "jackknife", 3, arrays=4)},
}
# The parts whose calls are the first of their processes, and what a second call is called.
FRESH = ("first call", "jackknife")
AGAIN = ", again"
PACKAGES = ("torch", "rke_score", "vendi_score", "matfree")
# Products with the matrix -> how ours spends them, and the splits that plain quadrature may choose
# among (the best in hindsight counts): probes x steps.
BUDGETS = {
    "160": {"block": 12, "sweeps": 8, "probes": 8, "steps": 8},
    "448": {"block": 32, "sweeps": 8, "probes": 16, "steps": 12},
    "1024": {"block": 64, "sweeps": 9, "probes": 28, "steps": 16},
}
SPLITS = {"160": [(20, 8), (10, 16)], "448": [(56, 8), (28, 16)], "1024": [(128, 8), (64, 16)]}


def peer_versions(wanted: Sequence[str]) -> dict[str, str]:
    """The versions of the packages that are installed; says on standard error which are not."""
    found = {}
    for package in wanted:
        try:
            found[package.replace("_", "-")] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            parts = CONTESTANTS.values()
            names = [n for entries in parts for n, e in entries.items() if e.package == package]
            sys.stderr.write(
                f"{package} is not installed, left out: {', '.join(names)}; "
                "pip install -e '.[bench]' installs it.\n"
            )
    return found


class Limits(NamedTuple):
    """What a cell may take.

    Attributes:
      repeats: the most rounds, after the first.
      seeds: the most calls of what is called once a seed.
      patience: seconds; a contestant whose call should take longer is left out.
      enough: seconds; a contestant whose calls after the first took as long is not called again.
      memory: bytes of the device.
    """

    repeats: int
    seeds: int
    patience: float
    enough: float
    memory: int


def choose(
    entries: Mapping[str, Entry],
    n: int,
    limits: Limits,
    earlier: Sequence[Record],
    *,
    largest: bool,
    real: bool,
    missing: Sequence[str],
) -> tuple[list[str], dict[str, str]]:
    """Who takes part at n, and why the others do not.

    Args:
      entries: the contestants of the part.
      n: the number of points.
      limits: what a cell may take.
      earlier: the finished records of the same part.
      largest: whether this is the largest n of the mixture.
      real: whether the data are real.
      missing: the packages that are not installed or not wanted.

    Returns:
      The names of those who take part, and the reason by the name of those left out. Contestants
      that do not belong to this n are in neither.
    """
    taking_part, left_out = [], {}
    for name, entry in entries.items():
        elsewhere = (entry.largest_only and not largest) or (entry.mixture_only and real)
        if n > entry.up_to or elsewhere:
            continue
        needed = 4 * entry.arrays * n * n
        timed = [record for record in earlier if len(record.calls(name))]
        last = max(timed, key=lambda record: record.n, default=None)
        expected = last.seconds(name) * (n / last.n) ** entry.power if last else 0.0
        if entry.package in missing:
            left_out[name] = f"{entry.package} is not there"
        elif needed > limits.memory:
            left_out[name] = f"needs about {needed / 2**30:.0f} GiB"
        elif expected > limits.patience:
            left_out[name] = f"a call would take about {expected:.0f} s"
        elif entry.calls == "errors" and "exact" not in taking_part:
            left_out[name] = "nothing without exact"
        else:
            taking_part.append(name)
    return taking_part, left_out


def run_cell(
    entries: Mapping[str, Entry], cell: Cell, limits: Limits, advance: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Starts the contestants' processes, compiles one after the other, calls all in turn.

    Args:
      entries: who takes part.
      cell: what the contestants need to know, as plain data.
      limits: what it may take.
      advance: called with the name of whose turn it is.

    Returns:
      The results by name, and the reason by the name of those that failed.
    """
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(entry.module)) for name, entry in entries.items()
        }

        def attempt(name: str, do: str, **arguments: Any) -> dict[str, Any]:
            advance(f"{name}: {do}")
            try:
                return workers[name].request(do, **arguments) or {}
            except WorkerError as error:
                failed[name] = str(error)
                results.pop(name, None)
                return {}

        for name, entry in entries.items():
            results[name] = {"seconds": [], "values": []}
            attempt(name, "prepare", function=entry.function, cell=cell)
        seed = 0
        while due := [n for n in results if _due(entries[n], results[n]["seconds"], limits)]:
            for name in due:
                for quantity, value in attempt(name, "run", seed=seed).items():
                    results[name][quantity].append(value)
            seed += 1
        for name in list(results):
            if finished := attempt(name, "finish"):
                results[name] |= finished
    return results, failed


def _due(entry: Entry, seconds: Sequence[float], limits: Limits) -> bool:
    """Whether another call is wanted after calls of these seconds."""
    if not seconds:
        return True
    if entry.calls == "once":
        return False
    taken = sum(seconds[1:])
    if entry.calls in ("seed", "errors"):
        return len(seconds) < limits.seeds and taken < limits.enough
    # The first call warms up and counts only where it was long enough to be the last.
    compiled = entry.calls == "rounds after compiling" and len(seconds) == 1
    if seconds[0] >= limits.enough and not compiled:
        return False
    # What takes milliseconds is called more often: single calls of it vary twofold.
    rounds = limits.repeats if taken >= _SHORT else _MANY * limits.repeats
    return len(seconds) <= rounds and taken < limits.enough


def first_calls(
    entries: Mapping[str, Entry], cell: Cell, processes: int, advance: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Starts a fresh process a call, contestants in turn, and calls twice in each.

    Args:
      entries, cell, advance: as `run_cell`.
      processes: how many for each contestant.

    Returns:
      The results by name, those of the second calls under the name with `AGAIN`; and the reason by
      the name of those that failed. The seconds are of a process each.
    """
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, entry in [*entries.items()] * processes:
        if name in failed:
            continue
        advance(f"{name}: first call")
        try:
            with Worker(entry.module) as worker:
                worker.request("prepare", function=entry.function, cell=cell)
                replies = [worker.request("run", seed=0) for _ in range(2)]
                finished = worker.request("finish")
        except WorkerError as error:
            failed[name] = str(error)
            continue
        for key, reply in zip((name, name + AGAIN), replies, strict=True):
            found = results.setdefault(key, {"seconds": [], "values": []})
            for quantity, value in reply.items():
                found[quantity].append(value)
            found |= finished
    return {k: v for k, v in results.items() if k.removesuffix(AGAIN) not in failed}, failed


def cold_starts(repeats: int) -> dict[str, Any]:
    """Seconds that fresh processes take to import JAX and the library, in turn."""
    results: dict[str, Any] = {name: {"seconds": []} for name in _COLD_STARTS}
    for name, line in [*_COLD_STARTS.items()] * (repeats + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", line], check=True, capture_output=True)
        results[name]["seconds"].append(time.perf_counter() - started)
    return results
