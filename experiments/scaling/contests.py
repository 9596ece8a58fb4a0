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
        again however long the first call took, as that one compiles; `twice`, in fresh processes;
        `once`, for its values; once a `seed`, for its values; or once a seed, for `errors` against
        `exact`, without which it is left out.
      largest_only: it takes part at the largest n of the mixture only.
      up_to: the largest n at which it takes part.
      mixture_only: it takes no part on real data.
    """

    module: str
    function: str
    power: int
    arrays: float = 0
    package: str | None = None
    calls: Literal["rounds", "rounds after compiling", "twice", "once", "seed", "errors"] = "rounds"
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
        "decompose": Entry("engines", "decompose", 3, arrays=4, calls="twice"),
        "decompose, stored": Entry("engines", "stored", 2, arrays=3, calls="twice"),
    },
    "jackknife": {"evaluate": Entry("engines", "jackknife", 3, arrays=4, calls="twice")},
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


def choose(
    study: Any, cell: Cell, memory: int, earlier: Sequence[Record]
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Who takes part in a cell, and why the others do not.

    Args:
      study: whose patience limits the seconds of a call.
      cell: its part, data and n.
      memory: of the device, in bytes.
      earlier: the finished records.

    Returns:
      Those who take part, and the reason by the name of those left out. Contestants that do not
      belong to this n are in neither.
    """
    part, n, kind = cell["part"], cell["n"], study.points[cell["data"]].kind
    largest = kind == "mixture" and n == study.largest[part]
    taking_part: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for name, entry in CONTESTANTS[part].items():
        elsewhere = entry.mixture_only and kind in ("real", "narrow")
        if n > entry.up_to or elsewhere or (entry.largest_only and not largest):
            continue
        needed = 4 * entry.arrays * n * n
        timed = [of for of in earlier if of.part == part and len(of.calls(name))]
        last = max(timed, key=lambda record: record.n, default=None)
        expected = last.seconds(name) * (n / last.n) ** entry.power if last else 0.0
        if entry.package and entry.package.replace("_", "-") not in study.versions:
            left_out[name] = f"{entry.package} is not there"
        elif needed > memory:
            left_out[name] = f"needs about {needed / 2**30:.0f} GiB"
        elif expected > study.patience:
            left_out[name] = f"a call would take about {expected:.0f} s"
        elif entry.calls == "errors" and "exact" not in taking_part:
            left_out[name] = "nothing without exact"
        else:
            taking_part[name] = entry
    return taking_part, left_out


def run_cell(
    entries: Mapping[str, Entry], request: Cell, study: Any, advance: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Starts the contestants' processes, compiles one after the other, calls all in turn.

    Args:
      entries: who takes part.
      request: what the contestants need to know, as plain data.
      study: whose options say how often they are called.
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
            attempt(name, "prepare", function=entry.function, cell=request)
        seed = 0
        while due := [n for n in results if is_due(entries[n], results[n]["seconds"], study)]:
            for name in due:
                of_call = 0 if entries[name].calls == "twice" else seed
                for quantity, value in attempt(name, "run", seed=of_call).items():
                    results[name][quantity].append(value)
            seed += 1
        for name in list(results):
            if finished := attempt(name, "finish"):
                results[name] |= finished
    return results, failed


def is_due(entry: Entry, seconds: Sequence[float], study: Any) -> bool:
    """Whether another call is wanted after calls of these seconds."""
    if not seconds:
        return True
    if entry.calls in ("once", "twice"):
        return entry.calls == "twice" and len(seconds) < 2
    taken = sum(seconds[1:])
    if entry.calls in ("seed", "errors"):
        return len(seconds) < study.seeds and taken < study.enough
    # The first call warms up and counts only where it was long enough to be the last.
    compiled = entry.calls == "rounds after compiling" and len(seconds) == 1
    if seconds[0] >= study.enough and not compiled:
        return False
    # What takes milliseconds is called more often: single calls of it vary twofold.
    rounds = study.repeats if taken >= _SHORT else _MANY * study.repeats
    return len(seconds) <= rounds and taken < study.enough


def first_calls(
    entries: Mapping[str, Entry], request: Cell, study: Any, advance: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """As `run_cell`, but each contestant in turn in fresh processes, which it is called in twice.

    The results of the second calls have names that end in `AGAIN`.
    """
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    # The first process finds nothing in the caches, and counts as a first call does.
    for name, entry in [*entries.items()] * (study.repeats + 1):
        if name not in failed:
            twice, why = run_cell({name: entry}, request, study, advance)
            failed |= why
            for call, key in enumerate((name, name + AGAIN) if twice else ()):
                found = results.setdefault(key, twice[name] | {"seconds": [], "values": []})
                for quantity in ("seconds", "values"):
                    found[quantity].append(twice[name][quantity][call])
    return {k: v for k, v in results.items() if k.removesuffix(AGAIN) not in failed}, failed


def cold_starts(repeats: int) -> dict[str, Any]:
    """Seconds that fresh processes take to import JAX and the library, in turn."""
    results: dict[str, Any] = {name: {"seconds": []} for name in _COLD_STARTS}
    for name, line in [*_COLD_STARTS.items()] * (repeats + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", line], check=True, capture_output=True)
        results[name]["seconds"].append(time.perf_counter() - started)
    return results
