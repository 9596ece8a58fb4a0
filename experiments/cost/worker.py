"""The process of a contestant, which imports only what that contestant needs."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
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

Cell = Mapping[str, Any]


class Contestant(NamedTuple):
    """One way of computing something, on the data of one cell.

    `call(seed)` is timed, and returns once its result is complete; `read` gives a result as numbers
    by name.
    """

    call: Callable[[int], Any]
    read: Callable[[Any], dict[str, Any]]


def load_points(cell: Cell) -> list[np.ndarray]:
    """The first n outputs and prompts, float32 `[n, d_x]` and `[n, d_t]`."""
    maps = [np.load(cell[role], mmap_mode="r") for role in ("outputs", "prompts")]
    return [np.array(points[: cell["n"]]) for points in maps]


@contextlib.contextmanager
def processes(count: int = 1) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, one for a contestant, which are killed at the end."""
    # Forking would copy the runtime of this process.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start)
    try:
        yield pool
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown()


_here: dict[str, Any] = {}  # Of this process: its contestant, and the bytes before any call.


def run(make: Callable[[Cell], Contestant], cell: Cell, seed: int) -> dict[str, Any]:
    """One call: its seconds, what it gave, and the memory in bytes that all calls took so far.

    The first loads the data and compiles before; memory counts from there.
    """
    if not _here:
        _here["contestant"] = make(cell)
        gc.collect()
        # Starts the peak anew where the system can; else that of loading and compiling counts too.
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as stream:
            stream.write("5")
        _here["bytes"] = _memory()[0]
    call, read = _here["contestant"]
    # The first call after another process's turn finds cold caches and threads asleep.
    seconds, result = callers.timed(lambda: call(seed), time.perf_counter)
    values = read(result)
    del result
    gc.collect()
    time.sleep(_SETTLE)
    memory = float(np.maximum(0, _memory()[1] - _here["bytes"]))
    return {"seconds": seconds, "values": values, "memory_bytes": memory}


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
