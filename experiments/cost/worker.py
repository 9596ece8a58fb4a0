"""The process of a contestant, which imports only what that contestant needs."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import numpy as np

from experiments.cost import callers

# GPU memory is taken as needed: the processes share the device. Nothing compiled is kept on disk.
# Threads wait as they do by default: of those told to sleep at once (OMP_WAIT_POLICY) torch takes
# four to seven times as long over matrices of 500 to 1,000 rows.
_ENVIRONMENT = {
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
# Threads that wait for work spin before they sleep, OpenBLAS's for some 25 ms. That has ended when
# the turn passes to another process.
_SETTLE = 0.05
# Seconds: calls below the first are repeated until they have taken the second together.
_SHORT, _TOGETHER = 0.1, 0.3

Cell = Mapping[str, Any]


class Contestant(NamedTuple):
    """One way of computing something, on the data of one cell.

    `ready(seed)` does what is not timed and returns the call that is, which returns once its result
    is complete; `read` gives a result as numbers by name.
    """

    ready: Callable[[int], Callable[[], Any]]
    read: Callable[[Any], dict[str, Any]]


def load_points(cell: Cell) -> list[np.ndarray]:
    """The first n outputs and prompts, float32 `[n, d_x]` and `[n, d_t]`."""
    maps = [np.load(cell[role], mmap_mode="r") for role in ("outputs", "prompts")]
    return [np.array(points[: cell["n"]]) for points in maps]


class WorkerError(RuntimeError):
    """A contestant failed, or its process ended; the message says how."""


class Worker:
    """A process that runs one contestant; a context manager that ends it."""

    def __init__(self):
        # Forking would copy the runtime of this process.
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown()

    def request(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns there: `prepare`, `run`, `finish`, or any other.

        Raises:
          WorkerError: it raised, or the process ended.
        """
        try:
            return self._pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            raise WorkerError("its process ended; out of memory?") from None
        except Exception as error:  # Whatever a contestant raises is its result.
            raise WorkerError(f"{type(error).__name__}: {error}".splitlines()[0]) from None


_here: dict[str, Any] = {}  # Of this process: its contestant, and the bytes before any call.


def prepare(function: Callable[[Cell], Contestant], cell: Cell) -> None:
    """Loads the data, compiles; memory counts from here."""
    _here["contestant"] = function(cell)
    gc.collect()
    # Starts the peak anew where the system can; else that of loading and compiling counts too.
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")
    _here["bytes"] = _memory()[0]


def run(seed: int) -> dict[str, Any]:
    """One call: its seconds, and what it gave. The median of several where they are short."""
    contestant, taken = _here["contestant"], []
    call = contestant.ready(seed)
    # The first after another process's turn finds cold caches and threads asleep.
    while not taken or (taken[0] < _SHORT and sum(taken) < _TOGETHER and "ran" in _here):
        started = time.perf_counter()
        result = call()
        taken.append(time.perf_counter() - started)
    _here["ran"] = True
    values = contestant.read(result)
    del call, result
    gc.collect()
    time.sleep(_SETTLE)
    return {"seconds": statistics.median(taken), "values": values}


def finish() -> dict[str, Any]:
    """The memory that the calls took."""
    return {"memory_bytes": float(np.maximum(0, _memory()[1] - _here["bytes"]))}


def _memory() -> tuple[float, float]:
    """The bytes now and at the peak, of the accelerator or of this process; NaN without /proc."""
    torch: Any = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    jax: Any = sys.modules.get("jax")
    if jax and (of := jax.local_devices()[0].memory_stats()):
        return of["bytes_in_use"], of["peak_bytes_in_use"]
    return callers.memory()


def _start() -> None:
    """Prepares the process, before anything imports a runtime."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent.
    parent = multiprocessing.parent_process()
    assert parent is not None
    # It ends when the parent has gone, even during a call.
    threading.Thread(target=lambda: (parent.join(), os._exit(0)), daemon=True).start()
    os.environ.update(_ENVIRONMENT)
    warnings.simplefilter("ignore")
