"""Who meets whom, and the rounds in which they do.

In every round the contestants of a cell are called in turn, so that what else the machine does
meets all of them, and the next cell starts when all their processes have ended.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.scaling.processes import Worker, WorkerError
from experiments.scaling.records import Record

# What each line is; the package imports its modules when their names are first used.
_COLD_STARTS = {
    "import jax": "import jax",
    "import condvendi_jax": "from condvendi_jax import Gaussian, decompose, evaluate",
}
# Who took less, in seconds, in all its calls after the first has so many times the rounds.
_SHORT, _MANY = 0.5, 4


class Entry(NamedTuple):
    """A contestant as the study knows it.

    Attributes:
      module, function: where it is, under `experiments.scaling`.
      power: its time grows as n^power.
      arrays: how many n x n arrays of float32 it holds at the peak.
      package: what must be installed for it.
      once: it is called once only, for its values.
      seeds: it is called once a seed, for its values.
      warms_up: it compiles in its first call, which is followed by another however long it took.
      largest_only: it takes part at the largest n of the mixture only.
      up_to: the largest n at which it takes part.
      up_to_real: the same, on real data.
      beside: whom it is nothing without.
    """

    module: str
    function: str
    power: int
    arrays: float = 0
    package: str | None = None
    once: bool = False
    seeds: bool = False
    warms_up: bool = False
    largest_only: bool = False
    up_to: float = math.inf
    up_to_real: float = math.inf
    beside: str | None = None


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
        "rke-score": Entry("peers", "rke_score", 2, package="rke_score", up_to=2000, up_to_real=0),
        "float64": Entry("reference", "norms", 2, once=True),
    },
    "exact": {
        "spectrum": Entry("engines", "spectrum", 3, arrays=3),
        "jnp.linalg.eigvalsh": Entry("engines", "eigvalsh", 3, arrays=4),
        "torch.linalg.eigvalsh": Entry("peers", "torch_eigvalsh", 3, arrays=3, package="torch"),
        "vendi_score": Entry("peers", "vendi_score", 3, arrays=3, package="vendi_score"),
        "float64": Entry("reference", "eigenvalues", 3, arrays=5, once=True),
    },
    "measure": {
        "exact": Entry("engines", "exact", 3, arrays=4),
        "stored": Entry("engines", "stored", 2, arrays=3, warms_up=True),
        "matrix-free": Entry("engines", "matrix_free", 2, up_to_real=0),
        "by tolerance": Entry("engines", "by_tolerance", 2, arrays=3, seeds=True, beside="exact"),
        "by budget": Entry(
            "engines", "by_budget", 2, arrays=3, seeds=True, up_to=4000, beside="exact"
        ),
        "plain SLQ": Entry(
            "peers",
            "plain_quadrature",
            2,
            arrays=3,
            package="matfree",
            seeds=True,
            up_to=4000,
            beside="exact",
        ),
    },
    "features": {
        "Fourier": Entry("engines", "fourier_features", 1, seeds=True),
        "Nystroem": Entry("engines", "nystroem_features", 1, seeds=True),
        "Fourier as they are": Entry("engines", "plain_features", 1, seeds=True, up_to=4000),
        "exact": Entry("engines", "exact", 3, arrays=4, once=True, up_to=4000),
    },
    # Each call in a fresh process.
    "first call": {
        "decompose": Entry("engines", "decompose", 3, arrays=4),
        "decompose, stored": Entry("engines", "stored", 2, arrays=3),
    },
    "jackknife": {"evaluate": Entry("engines", "jackknife", 3, arrays=4)},
}
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


def find_peers(wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which of the packages are installed, none of them imported; a line on each that is not."""
    present = [name for name in wanted if importlib.util.find_spec(name) is not None]
    lines = []
    for package in wanted:
        if package not in present:
            names = [
                name
                for entries in CONTESTANTS.values()
                for name, entry in entries.items()
                if entry.package == package
            ]
            lines.append(
                f"{package} is not installed, left out: {', '.join(names)}; "
                "pip install -e '.[bench]' brings it"
            )
    return present, lines


def versions(names: Sequence[str]) -> dict[str, str]:
    """The versions of packages that are installed."""
    distributions = {name: name.replace("_", "-") for name in names}
    return {distributions[name]: importlib.metadata.version(distributions[name]) for name in names}


class Limits(NamedTuple):
    """What a cell may take.

    Attributes:
      repeats: rounds at most, after the first.
      seeds: calls at most of what is called once a seed.
      patience: seconds; what is expected to take longer for a call is left out.
      enough: seconds; who took that long, in all its calls after the first, is not called again.
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
      earlier: the records of the same part that are there.
      largest: whether this is the largest n of the mixture.
      real: whether the data are real.
      missing: the packages that are not installed or not wanted.

    Returns:
      The names of those who take part, and the reason by the name of those left out. Who does not
      belong to this n is in neither.
    """
    taking_part, left_out = [], {}
    for name, entry in entries.items():
        up_to = min(entry.up_to, entry.up_to_real) if real else entry.up_to
        if n > up_to or (entry.largest_only and not largest):
            continue
        needed = 4 * entry.arrays * n * n
        expected = _expected_seconds(name, entry.power, n, earlier)
        if entry.package in missing:
            left_out[name] = f"{entry.package} is not there"
        elif needed > limits.memory:
            left_out[name] = f"needs about {needed / 2**30:.0f} GiB"
        elif expected > limits.patience:
            left_out[name] = f"a call would take about {expected:.0f} s"
        elif entry.beside is not None and entry.beside not in taking_part:
            left_out[name] = f"nothing without {entry.beside}"
        else:
            taking_part.append(name)
    return taking_part, left_out


def _expected_seconds(name: str, power: int, n: int, earlier: Sequence[Record]) -> float:
    """What a call should take, by the largest n at which it was timed; 0 where it never was."""
    timed = [record for record in earlier if name in record.results]
    if not timed:
        return 0.0
    last = max(timed, key=lambda record: record.n)
    taken = last.results[name]["seconds"]
    return statistics.median(taken[1:] or taken) * (n / last.n) ** power


def run_cell(
    entries: Mapping[str, Entry],
    cell: Mapping[str, Any],
    limits: Limits,
    advance: Callable[[str], None] = lambda text: None,
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

        def attempt(name: str, do: str, **arguments: Any) -> Any:
            advance(f"{name}: {do}")
            try:
                return workers[name].request(do, **arguments)
            except WorkerError as error:
                failed[name] = str(error)
                results.pop(name, None)
                return None

        for name, entry in entries.items():
            reply = attempt(name, "prepare", function=entry.function, cell=dict(cell))
            if reply is not None:
                results[name] = reply | {"seconds": [], "values": []}
        round_ = 0
        while due := [n for n in results if _due(entries[n], results[n]["seconds"], limits)]:
            for name in due:
                reply = attempt(name, "run", seed=round_)
                if reply is not None:
                    results[name]["seconds"].append(reply["seconds"])
                    results[name]["values"].append(reply["values"])
            round_ += 1
        for name in list(results):
            reply = attempt(name, "finish")
            if reply is not None:
                results[name] |= reply
    return results, failed


def _due(entry: Entry, seconds: Sequence[float], limits: Limits) -> bool:
    """Whether another call is wanted after calls of these seconds."""
    if not seconds:
        return True
    if entry.once:
        return False
    if entry.seeds:
        return len(seconds) < limits.seeds and sum(seconds[1:]) < limits.enough
    # The first call warms up and counts only where it was long enough to be the last.
    if seconds[0] >= limits.enough and not (entry.warms_up and len(seconds) == 1):
        return False
    taken = sum(seconds[1:])
    # What takes milliseconds is called more often: single calls of it vary twofold.
    rounds = limits.repeats if taken >= _SHORT else _MANY * limits.repeats
    return len(seconds) <= rounds and taken < limits.enough


def first_calls(
    entries: Mapping[str, Entry],
    cell: Mapping[str, Any],
    processes: int,
    advance: Callable[[str], None] = lambda text: None,
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
    for _ in range(processes):
        for name, entry in entries.items():
            if name in failed:
                continue
            advance(f"{name}: first call")
            try:
                with Worker(entry.module) as worker:
                    worker.request("prepare", function=entry.function, cell=dict(cell))
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
    for name in failed:
        for key in (name, name + AGAIN):
            results.pop(key, None)
    return results, failed


def cold_starts(repeats: int) -> dict[str, Any]:
    """Seconds that fresh processes take to import JAX and the library, in turn."""
    results: dict[str, Any] = {name: {"seconds": []} for name in _COLD_STARTS}
    for _ in range(repeats + 1):
        for name, line in _COLD_STARTS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", line], check=True, capture_output=True)
            results[name]["seconds"].append(time.perf_counter() - started)
    return results
