"""Shows what a run is computing and how long it may still take, on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from rich import console

# Seconds between two lines; a terminal is refreshed more often.
_BETWEEN_LINES = 4.0
_REFRESH = 0.5


class Progress:
    """What a run is computing, and how much of its work is done.

    Work is in the unit of the costs that `plan` receives; only their ratios matter.

    Attributes:
      visible: whether it is shown; of several processes one shows it.
    """

    def __init__(self) -> None:
        self.visible = True
        self._what = "reading the data"
        self._count = 0
        self._costs: list[float] = []  # Of the cells that are not finished, the current one first.
        self._finished = 0.0  # The work of the cells that were finished since the start.
        self._done = 0.0  # That, and what is known to be done of the current cell.
        self._started = self._done_at = time.monotonic()

    def plan(self, costs: Sequence[float], count: int) -> None:
        """Sets the work: the costs of the cells that are missing, in order, of `count` cells."""
        self._costs, self._count = list(costs), count
        self._started = self._done_at = time.monotonic()

    def say(self, name: str, words: str = "", share: float | None = None) -> None:
        """Sets what is being done, and where it is known, which share of the cell is done."""
        self._what = f"{name}: {words}" if words else name
        if share is not None:
            self._done, self._done_at = self._finished + share * self._costs[0], time.monotonic()

    def finish(self) -> str:
        """Counts the current cell as finished; returns how many of all are: '[2/9]'."""
        self._finished += self._costs.pop(0)
        self._done, self._done_at = self._finished, time.monotonic()
        return self._counter

    @property
    def _counter(self) -> str:
        return f"[{self._count - len(self._costs)}/{self._count}]"

    @property
    def line(self) -> str:
        """How many cells are finished, what is being computed, for how long, and the time left."""
        now = time.monotonic()
        times = f"{_duration(now - self._started)} so far"
        if self._done:
            left = self._finished + sum(self._costs) - self._done
            seconds = (self._done_at - self._started) * left / self._done - (now - self._done_at)
            times += f", about {_duration(max(seconds, 1))} left"
        counter = f"{self._counter} " if self._count else ""
        return f"{counter}{self._what}; {times}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def shown(progress: Progress) -> Iterator[None]:
    """Shows the progress during the block: a line that changes on a terminal, elsewhere lines."""
    ended = threading.Event()

    def refresh() -> None:
        with console.Console(stderr=True).status(progress.line) as status:
            while progress.visible and not ended.wait(_REFRESH):
                status.update(progress.line)

    def write() -> None:
        while not ended.wait(_BETWEEN_LINES) and progress.visible:
            sys.stderr.write(f"{progress.line}\n")
            sys.stderr.flush()

    thread = threading.Thread(target=refresh if sys.stderr.isatty() else write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
