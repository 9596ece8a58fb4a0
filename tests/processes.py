"""Starting commands as users do, on a terminal if need be, and never leaving one behind."""

import contextlib
import json
import os
import pty
import subprocess
import time

from condvendi_jax.base import files

# Ends a hang. A processor may be slow, and others may use it too.
HANG_S = 1800


def on_devices(count):
    """The environment of a process that sees so many CPU devices; JAX counts them only once.

    Their programs must not come from JAX's cache, which gives wrong ones (`layouts`).
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return os.environ | {
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }


@contextlib.contextmanager
def started(command, **options):
    """A process that has ended, in whatever way, when the block does; its output is captured."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **(pipes | options))
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


class Terminal:
    """A terminal that a process writes its errors to."""

    def __init__(self):
        self._reading, self.writing = pty.openpty()
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._reading)
        os.close(self.writing)

    def wait_for(self, words, process, timeout=HANG_S):
        """Reads until the words appear, or fails when the process has ended or time has."""
        os.set_blocking(self._reading, False)
        deadline = time.monotonic() + timeout
        while words not in self.text:
            assert process.poll() is None, f"it ended with {process.returncode}:\n{self.text}"
            assert time.monotonic() < deadline, f"{words!r} never appeared:\n{self.text}"
            self.read()
            time.sleep(0.02)

    def read(self):
        """What has been written so far."""
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self._reading, 65536).decode()
        return self.text


def wait_until(condition, process, timeout=HANG_S):
    """Waits for a condition, or fails when the process has ended or time has."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)


def written(result):
    """A result as the file has it that a command writes."""
    return json.loads(json.dumps(files.jsonable(result.as_dict())))
