"""The process of a contestant, and its parent's end: a JSON request a line, a JSON reply a line.

    python -m experiments.scaling.worker engines

This module imports neither JAX nor a peer, so that a process loads what its contestant needs only.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import queue
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

# GPU memory is taken as needed: the processes share the device. Nothing compiled is kept on disk: a
# first call is one. Threads wait as they do by default: of those told to sleep at once
# (OMP_WAIT_POLICY) torch takes four to seven times as long over matrices of 500 to 1,000 rows.
_ENVIRONMENT = {
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PYTHONWARNINGS": "ignore",
}
# Threads that wait for work spin before they sleep, OpenBLAS's for some 25 ms. That has ended when
# the turn passes to another process; the run says what share of a core waiting took.
_SETTLE = 0.05
# Seconds: calls below the first are repeated until they have taken the second together.
_SHORT, _TOGETHER = 0.1, 0.3

Cell = Mapping[str, Any]


class Contestant(NamedTuple):
    """One way of computing something, on the data of one cell.

    Attributes:
      ready: `ready(seed)` does what is not timed and returns the call that is. The call returns
        once its result is complete.
      read: gives a result as numbers by name.
    """

    ready: Callable[[int], Callable[[], Any]]
    read: Callable[[Any], dict[str, Any]]


def load_points(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """The first n outputs and prompts, float32 `[n, d_x]` and `[n, d_t]`."""
    outputs, prompts = (
        np.array(np.load(cell[role], mmap_mode="r")[: cell["n"]]) for role in ("outputs", "prompts")
    )
    return outputs, prompts


class WorkerError(RuntimeError):
    """A contestant failed, or its process ended; the message says how."""


class Worker:
    """A process that runs one contestant; a context manager that ends it.

    Args:
      module: which of `experiments.scaling`'s modules it imports.
    """

    def __init__(self, module: str):
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - lasts as the process does.
        # A session of its own: Ctrl-C is for the parent, which ends its workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.scaling.worker", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | _ENVIRONMENT,
            start_new_session=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def request(self, do: str, **arguments: Any) -> Any:
        """The reply to a request: a method of `Server` and its arguments.

        Raises:
          WorkerError: the contestant raised, or the process ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(self._last_words())
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["reply"]

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        cause = f"killed by signal {-status}, out of memory?" if status < 0 else f"status {status}"
        return f"its process ended ({cause})" + (f": {lines[-1]}" if lines else "")


class Server:
    """Answers the requests of one process.

    Args:
      module: where the contestants' functions are. Its `device_bytes()`, if there is one, gives
        the bytes in use on an accelerator now and at the peak, or None on a CPU.
    """

    def __init__(self, module: types.ModuleType):
        self._module = module
        self._device_bytes = getattr(module, "device_bytes", lambda: None)
        self._idle = np.zeros(2)
        self._ran = False

    def ask(self, function: str) -> Any:
        """Calls a function that needs no data."""
        return getattr(self._module, function)()

    def prepare(self, function: str, cell: Cell) -> None:
        """Loads the data, compiles; memory counts from here."""
        self._contestant: Contestant = getattr(self._module, function)(cell)
        gc.collect()
        _reset_peak()
        self._baseline = self._memory()[0]
        self._left = _clocks()

    def run(self, seed: int) -> dict[str, Any]:
        """One call: its seconds, and what it gave. The median of several where they are short."""
        self._idle += _clocks() - self._left
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
        waited, used = self._idle.tolist()
        return {
            "memory_bytes": max(0, self._memory()[1] - self._baseline),
            "idle_share": used / waited if waited > 0 else 0.0,
        }

    def _memory(self) -> tuple[int, int]:
        return self._device_bytes() or _host_bytes()


def _clocks() -> np.ndarray:
    """Seconds of the wall clock, and of all threads of this process on any core."""
    return np.array([time.perf_counter(), time.process_time()])


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
        # In bytes on macOS, in KiB elsewhere. The present value is not known.
        peak *= 1 if sys.platform == "darwin" else 1024
        return peak, peak


def _receive(requests: queue.SimpleQueue[str]) -> None:
    """Queues the requests. When the parent has gone the process ends, even during a call."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def main() -> None:
    """Serves until standard input ends."""
    # What a library prints is no reply.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(importlib.import_module(f"experiments.scaling.{sys.argv[1]}"))
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        try:
            reply = {"reply": getattr(server, request.pop("do"))(**request)}
        except Exception as error:  # Whatever a contestant raises is its result.
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
