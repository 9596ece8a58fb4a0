"""The command line of a study: its flags, its progress, its interruption, its figures."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import app
from absl import flags as absl_flags

from condvendi_jax.base import checks, extras, files
from condvendi_jax.cli import command, flags
from condvendi_jax.cli.flags import flag
from experiments import data
from experiments.lab import papers, printing, records, sizes, store
from experiments.lab.cells import Cell, Context, Run
from experiments.lab.registry import COMMITTED as COMMITTED
from experiments.lab.registry import RUN
from experiments.lab.registry import run_folders as run_folders
from experiments.lab.study import Setup, Study


def main(study: type[Study]) -> None:
    """The entry of `python -m experiments.NAME`."""
    _run(functools.partial(execute, study), list)


def run_program(main: Callable[..., Any], kind: type = object, words: int = 0) -> None:
    """The entry of a program that is no study: `main` receives its words and flags.

    Its help starts with the docstring of its module.
    """
    about = {"__doc__": sys.modules["__main__"].__doc__}
    named = dataclasses.make_dataclass("Flags", [], bases=(kind,), namespace=about, frozen=True)
    _run(lambda parsed: main(*parsed), lambda argv: parse_once(named, argv[1:], words))


def parse_once(kind: type[Any], argv: Sequence[str], words: int = 0) -> tuple[list[str], Any]:
    """As `flags.parse`; refuses more words than these."""
    rest, given = flags.parse(kind, argv)
    for word in rest[words:]:
        raise ValueError(f"unexpected argument {word!r}; flags are written --name=value.")
    return rest, given


def _run(main: Callable[[Any], Any], parse: Callable[[list[str]], Any]) -> None:
    """Runs a program in absl's frame, which shows the stack where compiled code crashes."""

    def parsed(argv: list[str]) -> Any:
        absl_flags.FLAGS([argv[0], "--verbosity=-1"])  # JAX's log, without what is no warning.
        return parse(argv)

    def whole(given: Any) -> None:
        main(given)
        sys.stdout.flush()  # Here, where a reader that has gone can be handled.

    command.run(lambda argv: app.run(whole, argv, flags_parser=parsed))


def execute(study: type[Study], argv: Sequence[str]) -> None:
    """Runs a study as its command line says: computes what is missing, prints, draws."""
    given = parse(study, argv[1:])
    for extra, package in study.packages.items():  # Before the data are read, which takes long.
        with extras.needed(extra, package=package, purpose=f"the study {study.name}"):
            importlib.metadata.version(package)  # Its error is one of a module that is not found.
    folder = pathlib.Path(given.output) / given.study.folder(getattr(given, "data", None))
    load = functools.partial(_load, study, given)
    finished = run(given.study, load, getattr(given, "seed", 0), folder)
    for grid in finished.study.tables(finished):
        printing.print_table(grid)
    sys.stdout.flush()
    for path in draw(study, [finished], folder):
        print(path)


def parse(study: type[Study], argv: Sequence[str]) -> Any:
    """The flags of a study's command: the `study` with its own, and those of all studies."""
    return parse_once(flags_of(study), argv)[1]


@functools.cache
def flags_of(study: type[Study]) -> type:
    """The dataclass of the flags of a study's command."""
    further: dict[str, tuple[Any, Any]] = {"study": (study, study())}
    if study.data is not None:
        words = f"A data set of the project; {study.data} where none is named."
        further["data"] = str | None, flag(None, words, choices=list(data.SETS))
        for role, shape in _roles(study).items():
            further[role] = str | None, flag(None, f"File of your own {role}: {shape}.")
            words = f"Which array of the file of --{role}, where it holds several."
            further[f"{role}_key"] = str | None, flag(None, words)
    if study.random:
        words = "Every random choice derives from it."
        further["seed"] = int, flag(0, words, check=checks.check_seed)
    words = "Folder of the results; an unfinished run resumes."
    further["output"] = str, flag("results", words)
    entries = [(name, *entry) for name, entry in further.items()]
    repeated = papers.repeats(study.name)
    about = [study.question()] + [f"Repeats {repeated}."] * (repeated != "-") + [study.control]
    if study.packages:
        about.append(f"Needs more packages; {extras.INSTALL.format(','.join(study.packages))}")
    about += ["", f"usage: python -m experiments.{study.name} [--flag=value ...]"]
    namespace = {"__doc__": "\n".join(about)}
    return dataclasses.make_dataclass("Flags", entries, namespace=namespace, frozen=True)


def _roles(study: type[Study]) -> dict[str, str]:
    """What a user may bring, with its shape."""
    further = dict.fromkeys(study.further, "[n, d]")
    labels = dict.fromkeys([*study.needs, *study.takes], "one for each row (.npy or .txt)")
    labels |= {role: f"{labels[role]}; required with --outputs" for role in study.needs}
    prompts = {"prompts": "[n, d_t]"} if study.paired else {}
    return {"outputs": "[n, d_x]"} | prompts | further | labels


def _load(study: type[Study], given: Any) -> data.PairedEmbeddings:
    """The pairs that the flags name; ValueError where they contradict or name no such files."""
    if study.data is None:
        raise ValueError(f"the study {study.name} takes no pairs.")
    values, roles = vars(given), _roles(study)
    own: dict[str, Any] = {r: values[r] for r in roles if values[r] is not None}
    keys = {r: key for r in roles if (key := values[f"{r}_key"]) is not None}
    alone = [role for role in keys if role not in own]
    if alone:
        raise ValueError(f"--{alone[0]}_key without --{alone[0]}: there is no file to look in.")
    if own and given.data is not None:
        raise ValueError(f"--data and --{next(iter(own))}: give a data set or your own files.")
    further = {role: own.pop(role) for role in study.further if role in own}
    if own or further:
        pairs = data.load_files(**own, further=further, keys=keys, paired=study.paired)
    else:
        pairs = data.load(given.data or study.data)
    absent = [role for role in study.needs if role not in pairs.labels]
    if absent:
        raise ValueError(f"--{absent[0]}: the study {study.name} needs {absent[0]} for each row.")
    return pairs


def run(
    given: Study,
    load: Callable[[], data.PairedEmbeddings],
    seed: int,
    folder: pathlib.Path,
    count: int | None = None,
) -> Run:
    """Computes the cells of a study that the folder of results lacks, and saves them.

    Of the first `count` cells, or of all if None. Returns all results, read back from the folder.

    Raises:
      ValueError, TypeError: a flag or the data are refused, or the folder holds another run.
      OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.check_writable(folder / RUN)  # Before anything takes long.
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(command.progress_bar())
        task = bar.add_task("reading the data", total=None)
        setup = given.prepare(load, seed)
        stack.callback(setup.close)
        study, kind = setup.study, type(given)
        identity = identity_of(given, setup, seed)
        cells = study.cells()
        stack.enter_context(store.locked(folder))
        finished = store.finished(folder, study.name, identity, cells)
        cells = cells[:count]
        missing = [cell for cell in cells if cell not in finished]
        if not missing:
            sys.stderr.write(f"{folder}: all {len(cells)} cells are there; nothing is computed.\n")
        bar.update(task, total=len(cells))
        bar.advance(task, len(cells) - len(missing))
        costs = {cell: study.costs(**cell.values) for cell in missing}
        unit = len(missing) / (sum(map(sum, costs.values())) or 1)
        for done, cell in enumerate(missing, start=len(cells) - len(missing) + 1):
            name = f"[{done}/{len(cells)}] {cell}"
            bar.update(task, description=name)

            steps = [0.0, *(unit * cost for cost in costs[cell])]  # Nothing before the first.

            def say(words: str, name: str = name, steps: list[float] = steps) -> None:
                bar.update(task, description=f"{name}: {words}")
                if len(steps) > 1:  # The step before is done.
                    bar.advance(task, steps.pop(0))

            context = Context(cell_key(seed, cell), jax.random.key(seed), say)
            started = time.perf_counter()
            try:
                with sizes.seen() as seen:
                    found = study.compute(setup.state, context, **cell.values)
            except (TypeError, ValueError) as error:
                place = traceback.extract_tb(error.__traceback__)[1]  # In the study.
                error.add_note(f"{place.filename}:{place.lineno}: where {cell} was computed.")
                raise
            seconds = time.perf_counter() - started
            bar.advance(task, sum(steps))
            origin = {**command.provenance(), **setup.provenance, "seconds": seconds}
            origin["sizes"] = [min(seen), max(seen)] if seen else []
            record = {"identity": identity, "cell": cell.coordinates, "provenance": origin}
            store.write(store.path_of(folder, cell), found, record)
            sys.stderr.write(f"{name}: {seconds:.1f} s\n")
            sys.stderr.flush()
    return store.read_run(folder, kind)


def identity_of(given: Study, setup: Setup, seed: int) -> records.Identity:
    """What the results of a study depend on: its flags as they are given, the data and the seed."""
    settings = {
        field.name: getattr(given, field.name)
        for field in dataclasses.fields(given)
        if "help" in field.metadata or dataclasses.is_dataclass(field.default)
    }
    return records.identify(given.name, given.version, settings, setup.arrays, seed, setup.study)


def cell_key(seed: int, cell: Cell) -> jax.Array:
    """The random key of a cell, the same whatever was computed before it."""
    word = int.from_bytes(hashlib.sha256(str(cell).encode()).digest()[:4], "big")
    return jax.random.fold_in(jax.random.key(seed), word)


def draw(
    study: type[Study], runs: Sequence[Run], folder: pathlib.Path, *, overwrite: bool = True
) -> list[pathlib.Path]:
    """Draws a study's figures from saved results into a folder, as PNG and PDF.

    ValueError where part of a run might be taken for all, or a figure may not be replaced.
    """
    for run in runs:
        if run.missing:
            count = len(run.missing) + len(run.results)
            raise ValueError(
                f"{run.folder}: {len(run.missing)} of {count} cells are missing; repeat the "
                "command of the run to finish it."
            )
    figures = study.figures(runs)
    if not figures:
        return []
    from experiments.lab import style  # Imported where it is used: matplotlib is slow.

    folder.mkdir(parents=True, exist_ok=True)
    there = [path for name in figures for path in style.paths(folder / name) if path.exists()]
    if there and not overwrite:
        raise ValueError(
            f"{there[0]}: exists already. Choose another --figures, or add --overwrite to replace "
            "it."
        )
    return [path for name, figure in figures.items() for path in style.save(figure, folder / name)]
