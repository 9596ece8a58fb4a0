"""Ctrl-C ends a command at once, with status 130, also while compiled code runs.

Python calls a signal's handler between two lines of Python: not while JAX computes eigenvalues for
minutes. The signal's number is also written to the wakeup descriptor at once, by C. A thread reads
it there and, where the main thread does not respond, ends the process with all that it computes.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

INTERRUPTED = 130
UNFINISHED: set[pathlib.Path] = set()
"""Temporary files that are being written; they are removed when the process is ended."""

# Seconds for the main thread to run the handler: Python takes milliseconds. After that, compiled
# code runs, which has nothing to clean up.
_RESPONSE = 0.5
_PATIENCE = 5.0  # Seconds to clean up after the handler has run: a few writes to a slow disk.
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"  # A progress bar hides it.

_responded = threading.Event()


def handle() -> None:
    """Makes an interrupt end the process, unless interrupts are ignored (nohup)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _raise_once)
    sys.unraisablehook = _repeat_interrupt
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()


def happened() -> bool:
    """Whether this process was interrupted."""
    return _responded.is_set()


def leave(*_: Any) -> None:
    """Ends an interrupted process at once, without waiting for what it computes."""
    for path in list(UNFINISHED):
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + b"interrupted\n")
    # Not sys.exit: finalising the interpreter while XLA's threads still compute can crash.
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While modules are imported, an interrupt ends the process at once.

    Nothing needs cleaning up yet, and raised inside an extension module it can become another
    error, or a crash.
    """
    ours = signal.getsignal(signal.SIGINT) is _raise_once
    if ours:
        signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, _raise_once)


def _raise_once(*_: Any) -> None:
    """Raises KeyboardInterrupt for the first interrupt; later ones do not disturb the cleanup."""
    if not _responded.is_set():
        _responded.set()
        raise KeyboardInterrupt


def _repeat_interrupt(unraisable: Any) -> None:
    """Interrupts again where Python drops the exception: in `__del__`, or while it frees memory."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _responded.clear()
    # Later, as here it would be dropped once more.
    threading.Timer(0.05, _thread.interrupt_main).start()


def _watch(reading: int) -> None:
    """Ends the process after the first interrupt where it does not end itself."""
    while os.read(reading, 1) != bytes([signal.SIGINT]):
        pass
    if _responded.wait(_RESPONSE):
        time.sleep(_PATIENCE)
    leave()
