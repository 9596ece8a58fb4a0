"""The process of one contestant: a JSON request a line in, a JSON reply a line out.

    python -m experiments.scaling.worker engines

This module imports neither JAX nor a peer: the process holds the runtime of its contestant only.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import queue
import resource
import statistics
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from experiments.scaling.contestant import Cell, Contestant

# Threads that wait for work spin before they sleep, OpenBLAS's for some 25 ms. That has ended when
# the turn passes to another process; the run says what share of a core waiting took.
_SETTLE = 0.05
# Seconds: calls below the first are repeated until they have taken the second together.
_SHORT, _TOGETHER = 0.1, 0.3


class Server:
    """Answers the requests of one process.

    Args:
      module: where the contestants' functions are.
    """

    def __init__(self, module: types.ModuleType):
        self._module = module
        self._idle = [0.0, 0.0]
        self._ran = False

    def ask(self, function: str) -> Any:
        """Calls a function that needs no data."""
        return getattr(self._module, function)()

    def prepare(self, function: str, cell: Cell) -> dict[str, Any]:
        """Loads the data, compiles; memory counts from here."""
        self._contestant: Contestant = getattr(self._module, function)(cell)
        gc.collect()
        _reset_peak()
        self._baseline = self._memory()[0]
        self._left = _clocks()
        return {"compile_seconds": self._contestant.compile_seconds}

    def run(self, seed: int) -> dict[str, Any]:
        """One call: its seconds, and what it gave. The median of several where they are short."""
        for index, (now, before) in enumerate(zip(_clocks(), self._left, strict=True)):
            self._idle[index] += now - before
        call = self._contestant.ready(seed)
        result, seconds = _timed(call)
        taken = [seconds]
        # The first after another process's turn finds cold caches and threads asleep.
        while seconds < _SHORT and sum(taken) < _TOGETHER and self._ran:
            taken.append(_timed(call)[1])
        self._ran, seconds = True, statistics.median(taken)
        values = self._contestant.read(result)
        del call, result
        gc.collect()
        time.sleep(_SETTLE)
        self._left = _clocks()
        return {"seconds": seconds, "values": values}

    def finish(self) -> dict[str, Any]:
        """The memory that the calls took, and the share of a core that waiting took."""
        waited, used = self._idle
        return {
            "memory_bytes": max(0, self._memory()[1] - self._baseline),
            "idle_share": used / waited if waited > 0 else 0.0,
        }

    def _memory(self) -> tuple[int, int]:
        return self._contestant.device_bytes() or _host_bytes()


def _clocks() -> tuple[float, float]:
    """Seconds of the wall clock, and of all threads of this process on any core."""
    return time.perf_counter(), time.process_time()


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its seconds."""
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def _reset_peak() -> None:
    """Starts the peak anew, where the operating system can."""
    try:
        with open("/proc/self/clear_refs", "w") as stream:
            stream.write("5")
    except OSError:
        pass  # Then the peak of loading and compiling counts as well.


def _host_bytes() -> tuple[int, int]:
    """The resident bytes of this process now and at the peak."""
    try:
        with open("/proc/self/status") as stream:
            fields = dict(line.split(":", 1) for line in stream)
        now, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak
    except (OSError, KeyError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # In bytes on macOS, in KiB elsewhere; the present value is not to be had.
        peak *= 1 if sys.platform == "darwin" else 1024
        return peak, peak


def _requests() -> Iterator[dict[str, Any]]:
    """The requests as they come. When the parent has gone the process ends, in a call even."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


def main() -> None:
    """Serves until standard input ends."""
    # What a library prints is no reply.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(importlib.import_module(f"experiments.scaling.{sys.argv[1]}"))
    for request in _requests():
        try:
            reply = {"reply": getattr(server, request.pop("do"))(**request)}
        except Exception as error:  # Whatever a contestant raises is its result.
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
