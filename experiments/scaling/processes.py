"""The other end of a worker: starting it, asking it, ending it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

# GPU memory is taken as needed: the processes share the device. Nothing compiled is kept on disk: a
# first call is one. Threads wait as they do by default: of those told to sleep at once
# (OMP_WAIT_POLICY) torch takes four to seven times as long over matrices of 500 to 1,000 rows.
_ENVIRONMENT = {
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PYTHONWARNINGS": "ignore",
}


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
        """One request and its reply.

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
