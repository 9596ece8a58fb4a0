"""Which contestants meet in a cell of the benchmark, and the rounds in which they take turns."""

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from experiments.cost import engines, peers, worker
from experiments.cost.worker import Cell, Contestant, Worker, WorkerError

# Seconds: calls as long as this need no warming up.
_LONG = 1.0


class Entry(NamedTuple):
    """A contestant as the benchmark knows it.

    It is called in `rounds`, in turn with the others, for its time; `once`, for its values; or once
    for each of the `seeds`, for its errors against `exact`, without which it is left out.
    """

    function: Callable[[Cell], Contestant]  # Makes it, in its process.
    peer: bool = False  # Whether it is other software than ours.
    arrays: float = 0  # So many n x n arrays of float32 it holds at the peak.
    package: str | None = None  # What must be installed for it.
    calls: Literal["rounds", "once", "seeds"] = "rounds"
    compiles: bool = False  # Whether the first call does, so that it never counts.
    up_to: float = math.inf  # The largest n at which it takes part.
    cpu: bool = False  # Whether it is ours itself elsewhere, and no contestant.


_OTHER = partial(Entry, peer=True)
_SEEDS = partial(Entry, arrays=3, calls="seeds")
CONTESTANTS: dict[str, dict[str, Entry]] = {
    "order 2": {
        "library": Entry(engines.library, compiles=True),
        "dense JAX": _OTHER(engines.dense_jax, arrays=3, up_to=8000),
        "dense torch": _OTHER(peers.dense_torch, arrays=2, package="torch"),
        # Its time for a pair of points does not change with n.
        "rke-score": _OTHER(peers.rke_score, package="rke-score", up_to=1000),
        "float64": Entry(peers.float64, calls="once", up_to=8000),
    },
    "exact": {
        "spectrum": Entry(engines.eigenvalues, arrays=3),
        "jnp.linalg.eigvalsh": _OTHER(partial(engines.eigenvalues, ours=False), arrays=4, cpu=True),
        "torch.linalg.eigvalsh": _OTHER(peers.torch_eigenvalues, arrays=3, package="torch"),
        "vendi_score": _OTHER(peers.vendi_score, arrays=3, package="vendi-score"),
    },
    "measure": {
        "exact": Entry(engines.exact, arrays=4),
        "stored": Entry(engines.stored, arrays=3, compiles=True),
        "by tolerance": _SEEDS(engines.by_tolerance),
        "by budget": _SEEDS(engines.by_budget),
        "plain SLQ": _SEEDS(engines.plain_quadrature, peer=True, package="matfree"),
    },
}
PACKAGES = ("torch", "rke-score", "vendi-score", "matfree")


def counted(entry: Entry, seconds: np.ndarray) -> np.ndarray:
    """The calls that count: all but the first, which warms up, unless all are long and compiled."""
    warm = seconds.size > 0 and seconds.min() >= _LONG and not entry.compiles
    return seconds[0 if warm else 1 :]


def choose(study: Any, part: str, n: int, memory: float) -> tuple[dict[str, Entry], dict[str, str]]:
    """Who takes part in a cell, and why the others do not.

    Contestants that do not belong to this n are in neither. The memory is that of the device, in
    bytes.
    """
    taking_part: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for name, entry in CONTESTANTS[part].items():
        needed = 4 * entry.arrays * n * n
        if n > entry.up_to:
            continue
        if entry.package not in (None, *study.versions):
            left_out[name] = f"{entry.package} is not there"
        elif entry.cpu and study.platform != "cpu":
            left_out[name] = "the same program as ours here"
        elif needed > memory:
            left_out[name] = f"needs about {needed / 2**30:.0f} GiB"
        elif entry.calls == "seeds" and "exact" not in taking_part:
            left_out[name] = "nothing without exact"
        else:
            taking_part[name] = entry
    return taking_part, left_out


def run_cell(
    entries: Mapping[str, Entry], request: Cell, study: Any, say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Starts the contestants' processes, compiles one after the other, calls all in turn.

    `say` is called with the name of whose turn it is. Gives the results by name, and the reason by
    the name of those that failed.
    """
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def is_due(name: str) -> bool:
        seconds, calls = results[name]["seconds"], entries[name].calls
        if calls == "rounds":
            return counted(entries[name], np.array(seconds)).size < study.repeats
        return len(seconds) < (1 if calls == "once" else study.seeds)

    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker()) for name in entries}

        def attempt(name: str, do: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
            say(f"{name}: {do.__name__}")
            try:
                return workers[name].request(do, *arguments) or {}
            except WorkerError as error:
                failed[name] = str(error)
                results.pop(name, None)
                return {}

        for name, entry in entries.items():
            results[name] = {"seconds": [], "values": []}
            attempt(name, worker.prepare, entry.function, request)
        seed = 0
        while due := [*filter(is_due, results)]:
            for name in due:
                for quantity, value in attempt(name, worker.run, seed).items():
                    results[name][quantity].append(value)
            seed += 1
        for name in list(results):
            if finished := attempt(name, worker.finish):
                results[name] |= finished
    return results, failed


def dataset(results: Mapping[str, Any], left_out: Mapping[str, str]) -> xr.Dataset:
    """The measurements of a cell, with the axes `contestant`, `call`, `quantity` and `end`.

    A `value` is an estimate and the ends of its interval, or a number and NaN. `left_out` says why
    a contestant took no part or failed, '' where it did.
    """
    names, runs = [*results, *left_out], list(results.values())
    quantities = list(dict.fromkeys(q for of in runs for values in of["values"] for q in values))
    seconds = np.full((len(names), max((len(of["seconds"]) for of in runs), default=1)), np.nan)
    values = np.full((*seconds.shape, len(quantities), 3), np.nan)
    for row, of in enumerate(runs):
        seconds[row, : len(of["seconds"])] = of["seconds"]
        for call, found in enumerate(of["values"]):
            for name, numbers in found.items():
                values[row, call, quantities.index(name), : np.size(numbers)] = numbers
    memory = [results.get(name, {}).get("memory_bytes", np.nan) for name in names]
    reasons = [left_out.get(name, "") for name in names]
    return xr.Dataset(
        {
            "seconds": (("contestant", "call"), seconds),
            "value": (("contestant", "call", "quantity", "end"), values),
            "memory_bytes": ("contestant", np.array(memory, float)),
            "left_out": ("contestant", np.array(reasons, str)),
        },
        {"contestant": np.array(names, str), "quantity": np.array(quantities, str)},
    )
