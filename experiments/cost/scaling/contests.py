"""Which contestants meet in a cell, and the rounds in which they are called in turn."""

import contextlib
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from experiments.cost.scaling import engines, peers, reference
from experiments.cost.scaling.records import Record
from experiments.cost.scaling.worker import Cell, Contestant, Worker, WorkerError

# A contestant whose calls after the first took less, in seconds, has so many times the rounds.
_SHORT, _MANY = 0.5, 4


class Entry(NamedTuple):
    """A contestant as the study knows it.

    It is called in `rounds`, of which the first warms up; the same, but called again however long
    the first call took, as that one compiles; `twice`, in fresh processes; `once`, for its values;
    or once a seed, for `errors` against `exact`, without which it is left out.
    """

    function: Callable[[Cell], Contestant]  # Makes it, in its process.
    power: int  # Its time grows as n^power.
    arrays: float = 0  # So many n x n arrays of float32 it holds at the peak.
    package: str | None = None  # What must be installed for it.
    calls: Literal["rounds", "rounds after compiling", "twice", "once", "errors"] = "rounds"
    up_to: float = math.inf  # The largest n at which it takes part.
    # The data on which it takes part: all, the mixture only, or its largest n only.
    on: Literal["all", "mixture", "largest"] = "all"


_STORED = partial(engines.decompose, "stored")
# The first of each part is what the others are compared with.
CONTESTANTS: dict[str, dict[str, Entry]] = {
    "order 2": {
        "library": Entry(engines.library_norms, 2),
        "decompose": Entry(engines.order_two_call, 2, up_to=4000),
        "tiles": Entry(engines.tile_norms, 2),
        "all prefixes": Entry(engines.all_prefixes, 2, on="largest"),
        "16 bandwidths": Entry(engines.many_bandwidths, 2, on="largest"),
        "value and gradient": Entry(engines.value_and_gradient, 2, on="largest"),
        "matrix product": Entry(engines.matrix_product, 0, on="largest"),
        "dense JAX": Entry(engines.dense_norms, 2, arrays=3),
        "dense torch": Entry(peers.torch_norms, 2, arrays=2, package="torch"),
        # Its time for a pair of points does not change with n.
        "rke-score": Entry(peers.rke_score, 2, package="rke-score", up_to=2000, on="mixture"),
        "float64": Entry(reference.norms, 2, calls="once"),
    },
    "exact": {
        "spectrum": Entry(engines.spectrum, 3, arrays=3),
        "jnp.linalg.eigvalsh": Entry(partial(engines.spectrum, ours=False), 3, arrays=4),
        "torch.linalg.eigvalsh": Entry(peers.torch_eigvalsh, 3, arrays=3, package="torch"),
        "vendi_score": Entry(peers.vendi_score, 3, arrays=3, package="vendi-score"),
        "float64": Entry(reference.eigenvalues, 3, arrays=5, calls="once"),
    },
    "measure": {
        "exact": Entry(engines.exact, 3, arrays=4),
        "stored": Entry(_STORED, 2, arrays=3, calls="rounds after compiling"),
        "matrix-free": Entry(partial(engines.decompose, "matrix-free"), 2, on="mixture"),
        "by tolerance": Entry(engines.by_tolerance, 2, arrays=3, calls="errors"),
        "by budget": Entry(engines.by_budget, 2, arrays=3, calls="errors", up_to=4000),
        "plain SLQ": Entry(
            peers.plain_quadrature, 2, arrays=3, package="matfree", calls="errors", up_to=4000
        ),
    },
    "first call": {
        "decompose": Entry(partial(engines.decompose, "auto"), 3, arrays=4, calls="twice"),
        "decompose, stored": Entry(_STORED, 2, arrays=3, calls="twice"),
        "evaluate": Entry(engines.evaluate, 3, arrays=4, calls="twice"),
    },
    "jackknife": {
        "scores": Entry(partial(engines.evaluate, errors=False), 3, arrays=4),
        "errors": Entry(engines.evaluate, 3, arrays=4, calls="rounds after compiling"),
        "20 deletions": Entry(
            partial(engines.evaluate, groups=20), 3, arrays=4, calls="rounds after compiling"
        ),
        "contributions": Entry(engines.contributions, 3, arrays=4),
        "every row deleted": Entry(
            partial(engines.evaluate, orders=[1], groups=10**6), 4, arrays=4
        ),
        "select": Entry(engines.select, 2),
        "every candidate scored": Entry(reference.select, 4, arrays=6),
    },
}
# The parts whose calls are the first of their processes, and what a second call is called.
FRESH = ("first call",)
AGAIN = ", again"
PACKAGES = ("torch", "rke-score", "vendi-score", "matfree")
# Products with the matrix -> how ours spends them, and the splits that plain quadrature may choose
# among (the best in hindsight counts): probes x steps.
BUDGETS = {
    "160": {"block": 12, "sweeps": 8, "probes": 8, "steps": 8},
    "448": {"block": 32, "sweeps": 8, "probes": 16, "steps": 12},
    "1024": {"block": 64, "sweeps": 9, "probes": 28, "steps": 16},
}
SPLITS = {"160": [(20, 8), (10, 16)], "448": [(56, 8), (28, 16)], "1024": [(128, 8), (64, 16)]}


def choose(
    study: Any, part: str, data: str, n: int, memory: int, earlier: Sequence[Record]
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Who takes part in a cell, and why the others do not.

    Contestants that do not belong to this n or these data are in neither. The memory is that of the
    device, in bytes; earlier records say how long a call takes.
    """
    kind = study.points[data].kind
    on = {"all", kind}
    if kind == "mixture" and n == study.largest[part]:
        on.add("largest")
    taking_part: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for name, entry in CONTESTANTS[part].items():
        if n > entry.up_to or entry.on not in on:
            continue
        needed = 4 * entry.arrays * n * n
        timed = [of for of in earlier if of.part == part and len(of.calls(name))]
        last = max(timed, key=lambda record: record.n, default=None)
        expected = last.seconds(name) * (n / last.n) ** entry.power if last else 0.0
        if entry.package not in (None, *study.versions):
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

    `advance` is called with the name of whose turn it is. Gives the results by name, and the reason
    by the name of those that failed.
    """
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker()) for name in entries}

        def attempt(name: str, do: str, *arguments: Any) -> dict[str, Any]:
            advance(f"{name}: {do}")
            try:
                return workers[name].request(do, *arguments) or {}
            except WorkerError as error:
                failed[name] = str(error)
                results.pop(name, None)
                return {}

        for name, entry in entries.items():
            results[name] = {"seconds": [], "values": []}
            attempt(name, "prepare", entry.function, request)
        seed = 0
        while due := [n for n in results if is_due(entries[n], results[n]["seconds"], study)]:
            for name in due:
                of_call = 0 if entries[name].calls == "twice" else seed
                for quantity, value in attempt(name, "run", of_call).items():
                    results[name][quantity].append(value)
            seed += 1
        for name in list(results):
            if finished := attempt(name, "finish"):
                results[name] |= finished
    return results, failed


def is_due(entry: Entry, seconds: Sequence[float], study: Any) -> bool:
    """Whether another call is wanted after calls of these seconds."""
    called, taken = len(seconds), sum(seconds[1:])
    if entry.calls in ("once", "twice"):
        return called < (1 if entry.calls == "once" else 2)
    if entry.calls == "errors":
        return called < study.seeds and taken < study.enough
    # The first call warms up and counts only where it was long enough to be the last.
    if called and seconds[0] >= study.enough:
        return called == 1 and entry.calls == "rounds after compiling"
    # What takes milliseconds is called more often: single calls of it vary twofold.
    rounds = study.repeats if taken >= _SHORT else _MANY * study.repeats
    return called <= rounds and taken < study.enough


def first_calls(
    entries: Mapping[str, Entry], request: Cell, study: Any, advance: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """As `run_cell`, but each contestant in turn in fresh processes, which it is called in twice.

    The results of the second calls have names that end in `AGAIN`.
    """
    found: dict[str, Any] = {name: [] for name in entries}
    failed: dict[str, str] = {}
    # The first process finds nothing in the caches, and counts as a first call does.
    for name, entry in [*entries.items()] * (study.repeats + 1):
        if name not in failed:
            twice, why = run_cell({name: entry}, request, study, advance)
            failed |= why
            found[name].append(twice.get(name))
    return {
        name + again: runs[-1] | {k: [of[k][call] for of in runs] for k in ("seconds", "values")}
        for name, runs in found.items()
        for call, again in enumerate(("", AGAIN))
        if name not in failed
    }, failed


def cold_starts(repeats: int) -> dict[str, Any]:
    """Seconds that fresh processes take to import JAX and the library, in turn."""
    # The package imports its modules when their names are first used.
    lines = {
        "import jax": "import jax",
        "import condvendi_jax": "from condvendi_jax import Gaussian, decompose, evaluate",
    }
    results: dict[str, Any] = {name: {"seconds": [], "values": []} for name in lines}
    for name, line in [*lines.items()] * (repeats + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", line], check=True, capture_output=True)
        results[name]["seconds"].append(time.perf_counter() - started)
    return results
