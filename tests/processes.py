"""Starting commands as users do, never leaving one behind, and what they write."""

import contextlib
import json
import os
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


def wait_until(condition, process, timeout=HANG_S):
    """Waits for a condition, or fails when the process has ended or time has."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)


def write_lines(path, rows):
    """A file of records, one a line of JSON; its folder is made."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def written(result):
    """A result as the file has it that a command writes."""
    return json.loads(json.dumps(files.jsonable(result.as_dict())))
