"""What names a cell of the benchmark, and what was measured in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True)
class Cell:
    """One part of the benchmark on one data set at one n."""

    part: str
    data: str
    n: int


@dataclasses.dataclass(frozen=True)
class Measured:
    """What came of a cell.

    Attributes:
      dimensions: d_x and d_t.
      results: by contestant: the seconds of each call and its values, memory, compilation.
      left_out: by contestant, why it took no part or failed.
    """

    dimensions: tuple[int, ...]
    results: dict[str, Any]
    left_out: dict[str, str]


class Record(NamedTuple):
    """A cell with what was measured in it."""

    part: str
    data: str
    n: int
    dimensions: tuple[int, ...]
    results: Mapping[str, Any]
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, cell: Cell, measured: Measured) -> Record:
        """The two together."""
        return cls(
            cell.part, cell.data, cell.n, measured.dimensions, measured.results, measured.left_out
        )
