"""A study is a frozen dataclass: its fields are its flags and, once resolved, its identity."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from condvendi_jax.cli.flags import flag as flag
from experiments.lab.cells import Cell, Context, Run

if TYPE_CHECKING:  # Only in annotations; importing them is slow.
    import numpy as np
    import xarray as xr
    from matplotlib.figure import Figure
    from rich.table import Table

    from experiments.data import PairedEmbeddings


def resolved(default: Any = None) -> Any:
    """A field that is no flag: `prepare` sets it, and it is part of the identity of the results."""
    return dataclasses.field(default=default)


@dataclasses.dataclass(frozen=True)
class Setup:
    """A study made ready: what its results depend on, resolved."""

    study: Study  # Resolved: all but the arrays that numbers depend on, and saved in the identity.
    arrays: Mapping[str, np.ndarray]  # All that enter; hashed into the identity in their order.
    state: Any = None  # What `compute` needs beside the study; it is not saved.
    # What is saved of a cell's origin in the place of what this process would say: a study that
    # measures in other processes knows their device.
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    close: Callable[[], None] = lambda: None  # Called when the run ends, however it does.


@typing.dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Study(abc.ABC):
    """A study: a subclass, made a frozen dataclass, states its fields and overrides methods.

    The first line of the subclass's docstring is the question that it asks. `prepare` resolves
    what the flags leave open; the cells are all combinations of `axes`; `compute` gives one cell's
    result as an `xarray.Dataset`; `tables` and `figures` take the results of whole runs.
    """

    name: ClassVar[str]  # Of its module, its command `python -m experiments.NAME` and its folders.
    control: ClassVar[str] = ""  # A sentence: what else could explain the result, or rules it out.
    grows: ClassVar[Collection[str]] = ()  # Axes along which the rows behind a value change.
    version: ClassVar[int] = 1  # Raised when numbers change their meaning; others are refused.
    data: ClassVar[str | None] = "emoji"  # The shipped set by default; None: it takes no pairs.
    needs: ClassVar[Collection[str]] = ()  # Labels that a user's own files must have: 'types'.
    takes: ClassVar[Collection[str]] = ()  # Labels that it takes where they are given.
    further: ClassVar[Collection[str]] = ()  # More embeddings of the pairs, where they are given.
    packages: ClassVar[Mapping[str, str]] = types.MappingProxyType({})  # That it needs, by extra.
    paired: ClassVar[bool] = True  # Whether it takes prompts, and not outputs and labels alone.
    random: ClassVar[bool] = True  # Whether anything is drawn, so that a seed has a meaning.
    runs: ClassVar[Sequence[Sequence[str]]] = ((),)  # The flags of each committed run.
    # How far results that are computed again may lie from the committed ones, relative to the
    # largest number of a variable in a cell.
    tolerance: ClassVar[float] = 1e-3
    # Variables, and resolved fields, that another machine cannot repeat, such as those of a clock.
    unrepeated: ClassVar[Collection[str]] = ()

    description: str = resolved("")  # Of the data, in words for a caption.

    def __init_subclass__(cls) -> None:
        """Makes every study a frozen dataclass; TypeError where it does not name its control."""
        if not cls.control.strip():
            wanted = "set `control` to one sentence that names its confound, or what rules it out"
            raise TypeError(f"{cls.__name__}: {wanted}.")
        if cls.__module__ == "__main__":
            name = pathlib.Path(sys.argv[0]).stem
            raise SystemExit(f"run this study as python -m experiments.{name}")
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.rpartition(".")[2]
        dataclasses.dataclass(frozen=True)(cls)

    @abc.abstractmethod
    def prepare(self, load: Any, seed: int) -> Setup:
        """Resolves the flags against the data, or refuses them: returns `self.ready(...)`.

        `load()` gives the pairs that the user named; every random choice derives from the seed.
        """

    def ready(
        self,
        pairs: PairedEmbeddings | None = None,
        *,
        state: Any = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        setup: Mapping[str, Any] = types.MappingProxyType({}),
        **fields: Any,
    ) -> Setup:
        """A `Setup` of the study with these fields resolved; `setup` has further fields of it.

        The description of the pairs enters the captions, and their arrays the identity where no
        others are named.
        """
        if pairs is not None:
            fields = {"description": pairs.description, **fields}
            arrays = pairs.arrays if arrays is None else arrays
        return Setup(dataclasses.replace(self, **fields), arrays or {}, state, **setup)

    def axes(self) -> Mapping[str, Iterable[Any]]:
        """The values of each axis whose combinations are the cells, of a resolved study.

        Without axes there is one cell. A study whose cells are not all combinations of axes
        overrides `cells`.
        """
        return {}

    def cells(self) -> list[Cell]:
        """The cells in the order in which they are computed: all combinations of the axes."""
        axes = self.axes()
        return [
            Cell(tuple(zip(axes, values, strict=True)))
            for values in itertools.product(*axes.values())
        ]

    @abc.abstractmethod
    def compute(self, state: Any, context: Context, /, *args: Any, **kwargs: Any) -> xr.Dataset:
        """The result of one cell; the values of its axes come as keyword arguments."""

    def costs(self, **_: Any) -> Sequence[float]:
        """The expected time of each step of a cell that `compute` says, in any unit."""
        return [1.0]

    @abc.abstractmethod
    def tables(self, run: Run) -> Iterable[Table]:
        """What is printed of a finished run, whose resolved study this is."""

    @classmethod
    def figures(cls, runs: Sequence[Run]) -> Mapping[str, Figure]:
        """The figures by name, of one or several finished runs."""
        return {}

    @classmethod
    def facts(cls, runs: Sequence[Run]) -> Mapping[str, Any]:
        """What the numbers of the study's page are written from, by name (`experiments.lab.pages`).

        The runs are the committed ones, in the order of their folders' names.
        """
        return {}

    def checked(self, committed: xr.Dataset) -> Mapping[str, Any]:
        """The labels, by dimension, of a committed cell that a check compares; all by default."""
        return {}

    def variant(self) -> str:
        """The folder of a run among the study's own, by its flags: 'gaussian', say."""
        return ""

    @classmethod
    def question(cls) -> str:
        """What the study asks, in one line."""
        return (cls.__doc__ or "").partition("\n")[0]

    def folder(self, data: str | None = None) -> str:
        """The name of the folder of a run, with the shipped set in it that is not the default."""
        named = None if data == self.data else data
        return "-".join(filter(None, (self.name, named, self.variant())))
