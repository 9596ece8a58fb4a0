"""What a study is: options in, typed cells, typed results, a table and figures out.

Options, settings, cells and results are frozen dataclasses. Their fields are what JSON has
(numbers, strings, tuples, dictionaries, None, other dataclasses), and for results also NumPy
arrays; from their annotations the lab makes flags, writes files and reads the same objects back.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.data import PairedEmbeddings

if typing.TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from experiments.lab.store import Run


@dataclasses.dataclass(frozen=True)
class Setup:
    """A study made ready: what its results depend on, resolved.

    Attributes:
      settings: everything but the arrays that the numbers depend on, an instance of the study's
        `settings`. It is saved beside the results and belongs to their identity.
      arrays: every array that enters, by name; hashed into the identity, their order included.
      state: what `compute` needs beside the settings; it is not saved.
      provenance: what is saved of a cell's origin in the place of what this process would say: a
        study that measures in other processes knows their device.
      close: called when the run ends, however it does.
    """

    settings: Any
    arrays: Mapping[str, np.ndarray]
    state: Any = None
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    close: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class Context:
    """What a cell is computed in.

    Attributes:
      key: the cell's own random key, folded from the seed and the cell's name.
      shared_key: the key of the seed, for what all cells have in common.
      finished: the results of the cells before it.
      say: `say(words)` shows what is being done; `say(words, share)` also which share of the
        cell's work is done, from which the time left is estimated.
    """

    key: jax.Array
    shared_key: jax.Array
    finished: Mapping[Any, Any]
    say: Callable[..., None]

    @property
    def shared_seed(self) -> int:
        """A seed of NumPy's by the shared key."""
        return int(jax.random.randint(self.shared_key, (), 0, 2**31 - 1))


@dataclasses.dataclass(frozen=True)
class StudyRecord:
    """A study as data; `experiments.lab.runner` does everything else.

    Attributes:
      name: its module, its command `python -m experiments.NAME` and the folder of its results.
      version: raised whenever the numbers of a cell change their meaning; results of another
        version are refused.
      question: what it asks, in one line.
      reproduces: the figures and tables of the papers that it reproduces, or '-'.
      duration: how long the default run takes on two cores.
      options: the dataclass of its flags; `option` gives the help of each.
      settings: the dataclass of what they are resolved to.
      cell: the dataclass of what names a cell.
      result: the dataclass of what a cell gives.
      prepare: `prepare(options, load, seed)`: checks and resolves the options; `load()` gives the
        pairs that the user named.
      cells: the cells of some settings, in the order in which they are computed.
      compute: `compute(setup, cell, context)`: the result of one cell.
      cost: `cost(settings, cell)`: the work of a cell in any unit, to estimate the time left.
      table: what is printed of a finished run.
      draw: `draw(runs)`: figures by name, of one or several runs. None where there is nothing to
        draw.
      committed: the flags of each committed run.
      figures: the names of the committed figures.
      variant: the folder of a run among the study's own, by its options: 'gaussian', say.
      data: the shipped set that is taken by default; None where a study takes no pairs.
      labels: the labels that it needs of a user's own files, such as 'types' or 'models'.
      more_labels: those that it takes where they are given.
      further: more embeddings of the pairs that it takes where they are given; what it cannot do
        without, it checks itself.
      paired: whether it takes prompts; where not, a user's own files are of outputs and labels.
      random: whether anything is drawn at random, so that a seed has a meaning.
    """

    name: str
    version: int
    question: str
    reproduces: str
    duration: str
    options: type
    settings: type
    cell: type
    result: type
    prepare: Callable[[Any, Callable[[], PairedEmbeddings], int], Setup]
    cells: Callable[[Any], Sequence[Any]]
    compute: Callable[[Setup, Any, Context], Any]
    table: Callable[[Run], Table]
    draw: Callable[[Sequence[Run]], Mapping[str, Figure]] | None = None
    committed: Sequence[Sequence[str]] = ()
    figures: Sequence[str] = ()
    variant: Callable[[Any], str] = lambda options: ""
    cost: Callable[[Any, Any], float] = lambda settings, cell: 1.0
    data: str | None = "emoji"
    labels: Collection[str] = ()
    more_labels: Collection[str] = ()
    further: Collection[str] = ()
    paired: bool = True
    random: bool = True

    def folder(self, options: Any, data: str | None = None) -> str:
        """The name of the folder that a run's results go to.

        Args:
          options: of the run.
          data: the shipped set that was named; it is part of the name unless it is the default.
        """
        named = None if data == self.data else data
        return "-".join(filter(None, (self.name, named, self.variant(options))))


def option(
    default: Any,
    help: str,
    *,
    choices: Collection[str] = (),
    needs: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
    """A field of a study's options, which becomes a flag of its type and name.

    Args:
      default: its value where the flag is not given. A field that `needs` others has None.
      help: what the flag means.
      choices: the words that are allowed, of a registry; of each element of a tuple.
      needs: what other options must be for this one to mean anything; otherwise it is refused.
    """
    metadata = {"help": help, "choices": tuple(choices), "needs": needs}
    return dataclasses.field(default=default, metadata=metadata)


def check_needs(options: Any) -> None:
    """Raises ValueError where an option was given that the others make meaningless."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            check_needs(value)
        if value == field.default:
            continue
        for other, wanted in field.metadata.get("needs", {}).items():
            if getattr(options, other) != wanted:
                raise ValueError(
                    f"--{field.name} means nothing with --{other}={getattr(options, other)}; it is "
                    f"for --{other}={wanted}."
                )


def cell_name(cell: Any) -> str:
    """A cell's fields as one word: the name of its files, and what its key is folded from."""
    words = [str(value) for _, value in cell.axes] if hasattr(cell, "axes") else None
    words = words or [str(getattr(cell, field.name)) for field in dataclasses.fields(cell)]
    return "-".join(re.sub(r"[^\w.+]+", "_", word) for word in words)


def typed(kind: Any, value: Any) -> Any:
    """What `plain` made of an object, read back from JSON, as that object again.

    Args:
      kind: a dataclass, or the annotation of a field.
      value: plain data, and NumPy arrays in the fields that had them.

    Raises:
      TypeError, ValueError, KeyError: the data are not of that kind.
    """
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {f.name: _finite_or_not(value, f.name) for f in dataclasses.fields(kind)}
        return kind(**{name: typed(hints[name], v) for name, v in fields.items()})
    arguments = typing.get_args(kind)
    if optional(kind):
        return None if value is None else typed(optional(kind), value)
    if typing.get_origin(kind) is tuple:
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return tuple(typed(k, v) for k, v in zip(kinds, value, strict=True))
    if typing.get_origin(kind) in (dict, Mapping):
        return {name: typed(arguments[1], _finite_or_not(value, name)) for name in value}
    if kind is float:
        return float(_number(value["reason"]) if isinstance(value, dict) else value)
    return value


def optional(kind: Any) -> Any:
    """The `T` of the annotation `T | None`, None of any other."""
    if typing.get_origin(kind) not in (types.UnionType, typing.Union):
        return None
    (inner,) = (k for k in typing.get_args(kind) if k is not type(None))
    return inner


def _finite_or_not(fields: Mapping[str, Any], name: str) -> Any:
    """An entry; of a number that JSON does not have, null there, what the reason beside it says."""
    if fields[name] is None and f"{name}_reason" in fields:
        return _number(fields[f"{name}_reason"])
    return fields[name]


def _number(reason: str) -> float:
    """The infinity or NaN that a reason of `files.jsonable` ends in."""
    return float(reason.rpartition(" ")[2])


def positive(value: float, *, name: str) -> float:
    """The value of a flag, or ValueError where it is not a positive finite number."""
    if not 0 < value < math.inf:
        raise ValueError(f"--{name}: expected a positive number, received {value}.")
    return value
