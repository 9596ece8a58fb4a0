"""Which contestants meet in a cell of the benchmark, and the rounds in which they take turns."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from experiments.cost import engines, guides, peers, timing, worker
from experiments.cost.worker import Cell, Contestant

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
    "guided step": {
        "Conditional-RKE guide": Entry(partial(guides.guide, order=2)),
        "Conditional-Vendi guide": Entry(partial(guides.guide, order=1), arrays=8, up_to=3000),
        "the sampler's step": _OTHER(guides.sampler),
    },
}
PACKAGES = ("torch", "rke-score", "vendi-score", "matfree")
EVERY = {name: entry for of in CONTESTANTS.values() for name, entry in of.items()}


def timed(part: str) -> list[str]:
    """The contestants of a part whose time counts, ours first."""
    return [name for name, entry in CONTESTANTS[part].items() if entry.calls == "rounds"]


def counted(seconds: xr.DataArray) -> xr.DataArray:
    """Those of the calls that count, first: not that of the first call, where it warms up.

    Seconds are over `contestant` and `call`; NaN is no call.
    """
    compiles = seconds.contestant.isin([name for name, entry in EVERY.items() if entry.compiles])
    warms_up = compiles | (seconds.min("call") < _LONG)
    return seconds.shift(call=-1).where(warms_up, seconds)


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
    entries: Mapping[str, Entry], cell: Cell, study: Any, say: Callable[[str], None]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Lets the contestants of a cell take turns, each in its process, as `timing.in_turns`."""

    def wanted(name: str, calls: list[dict[str, Any]]) -> int:
        entry = entries[name]
        if entry.calls != "rounds":
            return {"once": 1, "seeds": study.seeds}[entry.calls]
        warms_up = entry.compiles or min((of["seconds"] for of in calls), default=0) < _LONG
        return study.repeats + warms_up

    with contextlib.ExitStack() as stack:
        pools = {name: stack.enter_context(worker.processes()) for name in entries}

        def call(name: str, seed: int) -> dict[str, Any]:
            return pools[name].submit(worker.run, entries[name].function, cell, seed).result()

        calls = {name: partial(call, name) for name in entries}
        return timing.in_turns(calls, wanted, say)


def dataset(
    given: Mapping[str, Sequence[Mapping[str, Any]]], left_out: Mapping[str, str]
) -> xr.Dataset:
    """The measurements of a cell, with the axes `contestant`, `call`, `quantity` and `end`.

    A `value` is an estimate and the ends of its interval, or a number and NaN. `left_out` says why
    a contestant took no part or failed, '' where it did.
    """
    names = [*given, *left_out]
    quantities = list(dict.fromkeys(q for of in given.values() for c in of for q in c["values"]))
    seconds = np.full((len(names), max(map(len, given.values()), default=1)), np.nan)
    values, memory = np.full((*seconds.shape, len(quantities), 3), np.nan), seconds[:, 0].copy()
    for row, calls in enumerate(given.values()):
        for number, of in enumerate(calls):
            seconds[row, number], memory[row] = of["seconds"], of["memory_bytes"]
            for name, numbers in of["values"].items():
                values[row, number, quantities.index(name), : np.size(numbers)] = numbers
    return xr.Dataset(
        {
            "seconds": (("contestant", "call"), seconds),
            "value": (("contestant", "call", "quantity", "end"), values),
            "memory_bytes": ("contestant", memory),
            "left_out": ("contestant", np.array([left_out.get(name, "") for name in names], str)),
        },
        {"contestant": np.array(names, str), "quantity": np.array(quantities, str)},
    )
