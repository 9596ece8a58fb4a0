"""How many rows reach the scores of each cell: a study whose axis changes it has to say so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from condvendi_jax.data import kernel_choice

if TYPE_CHECKING:
    from experiments.lab.cells import Run

_seen: set[int] = set()
_ALIKE = 1.1  # Numbers of rows of one ratio or less are taken as equal.


def note(sizes: Iterable[int]) -> None:
    """Adds numbers of rows that are scored and that no `Pairs` has: of the first rows of some."""
    _seen.update(sizes)


@contextlib.contextmanager
def seen() -> Iterator[set[int]]:
    """The set that collects the number of rows of all `Pairs` that are made in this context."""
    chosen = kernel_choice.chosen  # The last step of every `Pairs`.

    def noting(made: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        note(pairs.n for pairs in made.values())
        return chosen(made, *args, **kwargs)

    _seen.clear()
    with mock.patch.object(kernel_choice, "chosen", noting):
        yield _seen


def refuse_unsaid(run: Run) -> None:
    """Raises ValueError where numbers of rows behind values differ and `grows` does not say so.

    The numbers may differ by a tenth, from one cell to another along the axes that `grows` names,
    and within a cell where `grows` names what is no axis of the cells.
    """
    kind, grows = type(run.study).__name__, set(run.study.grows)
    if absent := grows - {*run.found.dims, *run.found.data_vars}:
        raise ValueError(f"{kind}.grows: its results have no {sorted(absent)[0]!r}.")
    groups: dict[Any, list[list[int]]] = {}
    unsaid = []
    for cell, origin in run.provenance.items():
        if ends := origin.get("sizes"):
            if not grows - set(cell.values) and ends[1] > _ALIKE * ends[0]:
                unsaid.append(f"{cell}: {ends[0]} to {ends[1]}")
            place = tuple(str(value) for name, value in cell.axes if name in grows)
            groups.setdefault(place, []).append(ends)
    for group in groups.values():
        for ends in zip(*group, strict=True):  # The smallest numbers of all cells; the largest.
            if max(ends) > _ALIKE * min(ends):
                unsaid.append(f"from {min(ends)} in one cell to {max(ends)} in another")
    if unsaid:
        wanted = "hold the number, or name in `grows` along which axis it changes"
        raise ValueError(f"{kind} scores different numbers of rows ({unsaid[0]}): {wanted}.")
