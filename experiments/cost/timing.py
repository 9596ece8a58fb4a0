"""How the benchmarks time calls: one call in CPU and wall seconds, and several calls in turns."""

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

# A slow call is repeated less often once all took this many seconds, but three times at least.
ENOUGH_S, AT_LEAST = 60.0, 3


class Spent(NamedTuple):
    """CPU seconds, wall seconds and the result of a call."""

    cpu: float
    seconds: float
    result: Any


def cpu_seconds(whose: int = resource.RUSAGE_SELF) -> float:
    """User and system seconds of this process until now, or of its children (RUSAGE_CHILDREN)."""
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def spent(call: Callable[[], Any]) -> Spent:
    """Times a call until its result is complete."""
    before, start = cpu_seconds(), time.perf_counter()
    result = jax.block_until_ready(call())
    return Spent(cpu_seconds() - before, time.perf_counter() - start, result)


def in_turns(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, in turns, so that what else the machine does falls on all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    started = time.perf_counter()
    for done in range(repeats):
        if time.perf_counter() - started > ENOUGH_S and done >= AT_LEAST:
            break
        for name, call in calls.items():
            seconds[name].append(spent(call).seconds)
    return seconds
