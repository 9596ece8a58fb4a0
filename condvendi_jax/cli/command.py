"""Exit statuses, one-line errors, interrupts and progress, of every command line of the project."""

import contextlib
import datetime
import functools
import os
import platform
import re
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

BAD_INPUT, INTERRUPTED = 2, 130

_THREADS = "OPENBLAS_NUM_THREADS"
_ONE_THREAD_UP_TO = 1_500  # Rows.
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"  # A progress bar hides it.
_BETWEEN_LINES = 20  # Seconds, of progress without a terminal.
_one_thread = False  # Whether we have set the number of threads.


def run(main: Callable[[list[str]], Any]) -> None:
    """Runs `main`, which takes `sys.argv` and may return a status; bad input ends in one line."""
    _prepare_streams()
    _end_on_interrupt()
    show = functools.cache(lambda text: print(f"warning: {escaped(text)}", file=sys.stderr))
    warnings.showwarning = lambda text, *_, **__: show(str(text))  # Once.
    try:
        status = main(list(sys.argv))
        sys.stdout.flush()  # Here, where a reader that has gone can be handled.
        sys.exit(status)
    except BrokenPipeError:  # The reader closed the pipe: exit quietly.
        _discard_output()
        sys.exit(1)
    except (ValueError, TypeError, OSError, FloatingPointError) as error:
        words: object = error
        if isinstance(error, OSError) and error.strerror and error.filename:
            words = f"{error.filename}: {error.strerror}."  # Without the error's number.
        lines = [f"error: {words}", *getattr(error, "__notes__", ())]
        sys.stderr.write("".join(f"{escaped(line)}\n" for line in lines))
        if getattr(error, "caused_by_users_code", False):
            traceback.print_exception(error.__cause__)
        try:
            sys.stdout.flush()
        except OSError:  # For example, the disk is full. Python would try again, and complain.
            _discard_output()
        sys.exit(BAD_INPUT)


def _end_on_interrupt() -> None:
    """Makes Ctrl-C end the process at once, unless interrupts are ignored (nohup)."""
    # Python calls a handler between two of its instructions: not while JAX computes eigenvalues for
    # minutes. But it writes the signal's number to the wakeup descriptor at once.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    reading, writing = socket.socketpair()  # Of pipes, Windows has no way not to wait in 3.11.
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_end_when_told, args=(reading, writing), daemon=True).start()


def _end_when_told(reading: socket.socket, _: socket.socket) -> None:
    while reading.recv(1) != bytes([signal.SIGINT]):
        pass
    # Before the module that writes files is imported, there are none to remove.
    for path in list(getattr(sys.modules.get("condvendi_jax.base.files"), "UNFINISHED", ())):
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        os.write(2, _SHOW_CURSOR * os.isatty(2) + b"interrupted\n")
    os._exit(INTERRUPTED)


def _prepare_streams() -> None:
    """Opens the null device for closed streams; otherwise the next file takes their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we run.
    # A question mark stands for a character that it cannot encode.
    getattr(sys.stdout, "reconfigure", lambda **_: None)(errors="replace")


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def provenance() -> dict[str, Any]:
    """Where a number comes from: versions, device, operating system, precision and time."""
    import jax  # Like the others, after `use_one_thread`.
    import jaxlib
    import numpy as np

    import condvendi_jax

    device, dtype = jax.devices()[0], jax.numpy.zeros(()).dtype
    return {
        "versions": {p.__name__: p.__version__ for p in (condvendi_jax, jax, jaxlib, np)},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{len(jax.devices())} x {device.platform} ({device.device_kind})",
        **{"dtype": dtype.name, "x64": dtype == "float64"},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def use_one_thread() -> None:
    """Makes OpenBLAS, whose threads spin, use one unless the user says otherwise, before NumPy."""
    global _one_thread
    _one_thread = _THREADS not in os.environ
    os.environ.setdefault(_THREADS, "1")


def use_threads(n: int) -> None:
    """Lets OpenBLAS use all threads for the eigenvalues of `n` rows, if they are many.

    SciPy's OpenBLAS, which computes eigenvalues for JAX, reads the variable at its first use.
    """
    if _one_thread and n > _ONE_THREAD_UP_TO:
        os.environ.pop(_THREADS, None)


def escaped(words: object) -> str:
    """The words with control characters as Python writes them: a terminal would obey them."""
    controls = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e]"
    return re.sub(controls, lambda match: repr(match[0])[1:-1], str(words))


def progress_bar() -> Any:
    """Progress on standard error: a bar of rich on a terminal, else a line every 20 seconds."""
    from rich import console, progress  # Imported where they are used: they are slow.

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        *(progress.TimeElapsedColumn(), progress.TimeRemainingColumn()),
        console=console.Console(stderr=True, force_interactive=True),  # No empty line at the end.
        transient=True,
        speed_estimate_period=3600,  # Seconds. A batch of a large encoder takes minutes.
    )
    if not sys.stderr.isatty():
        threading.Thread(target=_write_lines, args=(bar,), daemon=True).start()
    return bar


def _write_lines(bar: Any) -> None:
    time.sleep(_BETWEEN_LINES)
    while bar.live.is_started:
        with contextlib.suppress(OSError, ValueError):  # Nobody reads them any more.
            sys.stderr.writelines(f"{escaped(_line(task))}\n" for task in bar.tasks[-1:])
            sys.stderr.flush()
        time.sleep(_BETWEEN_LINES)


def _line(task: Any) -> str:
    when = f"{datetime.timedelta(seconds=round(task.elapsed))} so far"
    if task.total is None:
        return f"{task.description}: {when}"
    if task.time_remaining is not None:
        when = f"about {datetime.timedelta(seconds=round(task.time_remaining))} left"
    return f"{task.description}: {task.completed:,.0f} of {task.total:,.0f}, {when}"
