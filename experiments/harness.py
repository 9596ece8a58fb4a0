"""What every study shares: its flags, its data, and a store that loses nothing.

A study is a list of cells, each a pure function of the configuration and its name. `Store` keeps
the configuration beside the cells that are finished, so that an interrupted study resumes, one
with another configuration is refused, and figures are drawn without computing anything.
"""

from __future__ import annotations

import fcntl
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from condvendi_jax import command, files, provenance
from experiments.data import PairedEmbeddings, load

_CONFIGURATION = "run.json"


def define_flags(*, output: str) -> None:
    """Defines the flags that all studies have; call it once, where the script's own flags are.

    Args:
      output: the default folder of the results.
    """
    flags.DEFINE_string("data", "emoji", "A shipped data set; --outputs and --prompts replace it.")
    flags.DEFINE_string("outputs", None, "Your own embeddings of the outputs [n, d_x].")
    flags.DEFINE_string("prompts", None, "Your own embeddings of their prompts [n, d_t].")
    flags.DEFINE_string("outputs_key", None, "Which array of the outputs' file.")
    flags.DEFINE_string("prompts_key", None, "Which array of the prompts' file.")
    flags.DEFINE_integer("seed", 0, "Every random choice of the study derives from it.")
    flags.DEFINE_string("output", output, "Folder of the results; an unfinished run resumes.")


def load_data() -> PairedEmbeddings:
    """The data that the flags name.

    Raises:
      ValueError: an unknown name, one file of two, or unreadable files.
    """
    own = {"outputs": flags.FLAGS.outputs, "prompts": flags.FLAGS.prompts}
    given = {role: path for role, path in own.items() if path is not None}
    if not given:
        return load(flags.FLAGS.data)
    keys = {"outputs": flags.FLAGS.outputs_key, "prompts": flags.FLAGS.prompts_key}
    return load(given, keys=keys)


class Store:
    """The folder of one study's results: `run.json` and one .npz a finished cell.

    Args:
      folder: created where missing.
      configuration: plain data; what the cells depend on.

    Raises:
      ValueError: the folder holds another configuration, or another run is using it.
      OSError: the folder cannot be written to.
    """

    def __init__(self, folder: str | pathlib.Path, configuration: Mapping[str, Any]):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        files.check_writable(self.folder / _CONFIGURATION)
        self._lock = _acquire(self.folder)
        self.configuration = files.jsonable(dict(configuration))
        path = self.folder / _CONFIGURATION
        if path.exists():
            _check_same(path, self.configuration)
        else:
            content = {"configuration": self.configuration, "provenance": provenance.collect()}
            files.write_json(path, content)

    def close(self) -> None:
        """Lets another run use the folder."""
        self._lock.close()

    def missing(self, cells: Sequence[str]) -> list[str]:
        """Those of `cells` that are not finished."""
        return [cell for cell in cells if not self._path(cell).exists()]

    def save(self, cell: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes a finished cell; it appears whole or not at all."""
        with files.atomic_writer(self._path(cell)) as stream:
            np.savez_compressed(stream, allow_pickle=False, **arrays)

    def _path(self, cell: str) -> pathlib.Path:
        return self.folder / f"{cell}.npz"


def _acquire(folder: pathlib.Path) -> Any:
    """A lock that ends with the process, however it ends."""
    lock = open(folder / ".lock", "w")  # noqa: SIM115 - the lock lasts as long as the file is open.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise ValueError(f"{folder}: another run is writing here; choose another --output.") from (
            error
        )
    return lock


def _check_same(path: pathlib.Path, wanted: dict[str, Any]) -> None:
    found = _read_run(path)["configuration"]
    if found == wanted:
        return
    names = sorted(set(found) | set(wanted))
    lines = [
        f"  {name}: {found.get(name)!r} there, {wanted.get(name)!r} asked for"
        for name in names
        if found.get(name) != wanted.get(name)
    ]
    raise ValueError(
        f"{path.parent} holds results of another configuration:\n"
        + "\n".join(lines)
        + "\nrepeat that configuration to resume it, or choose another --output."
    )


def _read_run(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: no readable results are here: {error}") from error


def load_run(folder: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Reads a study's results for drawing.

    Returns:
      `run.json` and the arrays of every finished cell by its name.

    Raises:
      ValueError: there are no results, or they cannot be read.
    """
    folder = pathlib.Path(folder)
    run = _read_run(folder / _CONFIGURATION)
    cells = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path, allow_pickle=False) as archive:
                cells[path.stem] = dict(archive)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: cannot be read: {error}") from error
    return run, cells


def run_cells(
    store: Store,
    cells: Sequence[str],
    compute: Callable[[str, Callable[[], None]], Mapping[str, np.ndarray]],
    *,
    steps: int,
) -> None:
    """Computes and saves the cells that are missing, with a progress bar.

    Args:
      store: where the results go.
      cells: the names of all cells.
      compute: `compute(cell, advance)` returns the arrays of a cell; it calls `advance` after each
        of its steps.
      steps: how many steps a cell has.
    """
    missing = store.missing(cells)
    with command.progress_bar() as bar:
        done = steps * (len(cells) - len(missing))
        task = bar.add_task("", total=steps * len(cells), completed=done)
        for cell in missing:
            bar.update(task, description=cell)
            store.save(cell, compute(cell, lambda: bar.advance(task)))
