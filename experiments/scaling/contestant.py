"""What a worker runs: the interface of everything that is timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Cell = Mapping[str, Any]


def _nothing() -> None:
    return None


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way of computing something, on the data of one cell.

    Attributes:
      ready: `ready(seed)` does what is not timed and returns the call that is. The call returns
        once its result is complete.
      read: a result as plain numbers by name.
      compile_seconds: what compiling ahead of time took; None where the first call compiles.
      device_bytes: the bytes in use on an accelerator now and at the peak; None on a CPU.
    """

    ready: Callable[[int], Callable[[], Any]]
    read: Callable[[Any], dict[str, Any]]
    compile_seconds: float | None = None
    device_bytes: Callable[[], tuple[int, int] | None] = _nothing


def load_points(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """The first n outputs and prompts, float32 `[n, d_x]` and `[n, d_t]`."""
    outputs, prompts = (
        np.array(np.load(cell[role], mmap_mode="r")[: cell["n"]]) for role in ("outputs", "prompts")
    )
    return outputs, prompts
