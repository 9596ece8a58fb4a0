"""The command line of a study: its flags, its progress, its interruption, its figures."""

import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import re
import sys
import time
import traceback
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from absl import app, flags

from condvendi_jax.base import extras, files
from condvendi_jax.cli import command, provenance
from experiments import data
from experiments.lab import papers, records, store, style, tables
from experiments.lab.cells import Cell, Context, Run
from experiments.lab.study import Setup, Study, check_bounds, check_needs

_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}
COMMITTED = pathlib.Path(__file__).parents[1] / "results"
_PAIRS = {"outputs": "[n, d_x]", "prompts": "[n, d_t]"}
_DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def main(study: type[Study]) -> None:
    """The entry of `python -m experiments.NAME`."""
    command.run(functools.partial(execute, study))


def run_flagged(main: Callable[[list[str]], Any]) -> None:
    """As `command.run`, for a program whose flags are global: `main` receives the other words."""
    command.run(lambda argv: main(_without_global_flags(argv)))


def _without_global_flags(argv: list[str]) -> list[str]:
    app.define_help_flags()
    try:
        return app.parse_flags_with_usage(argv)
    except SystemExit:
        if _HELP & set(argv[1:]):  # absl counts a request for help among the errors.
            sys.exit(0)
        raise


def no_words(words: Sequence[str]) -> None:
    """Raises ValueError where there are words on a command line that takes flags only."""
    if words:
        raise ValueError(f"unexpected argument {words[0]!r}; flags are written --name=value.")


def execute(study: type[Study], argv: Sequence[str]) -> None:
    """Runs a study as its command line says: computes what is missing, prints, draws.

    Raises:
      ValueError, TypeError: a flag or the data are refused, or the folder holds another run.
      OSError: the folder cannot be written to.
    """
    values = define_flags(study)
    words = parse(values, argv)
    if values["help"].value:
        print(usage(study, values))
        return
    no_words(words)
    given = given_by(study, values)
    check_needs(given)
    check_bounds(given)
    if not values["output"].value:
        raise ValueError("--output: expected a folder, received nothing.")
    for extra, package in study.packages.items():  # Before the data are read, which takes long.
        extras.check(extra, package=package, purpose=f"the study {study.name}")
    named = values["data"].value if study.data is not None else None
    folder = pathlib.Path(values["output"].value) / given.folder(named)
    load = functools.partial(_load, study, values)
    seed = int(values["seed"].value or 0) if study.random else 0
    finished = run(given, load, seed, folder)
    for grid in finished.study.tables(finished):
        tables.print_table(grid)
    sys.stdout.flush()
    for path in draw(study, [finished], folder):
        print(path)


def parse(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Parses the flags of one program, and returns the words that are no flags, without its name.

    Raises:
      ValueError: a flag is unknown or malformed, or is given twice although it has one value.
    """
    for word in argv[1:]:
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("-") and name in ("flagfile", "undefok"):
            raise ValueError(f"unknown flag --{name}; --help lists all flags.")
    try:
        words = values(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        raise ValueError(f"{error}; --help lists all flags.") from error
    except flags.Error as error:
        raise ValueError(_malformed(values, str(error))) from error
    for name in values:
        if values[name].present > 1 and not isinstance(values[name], flags.MultiFlag):
            raise ValueError(f"--{name}: is given {values[name].present} times; give it once.")
    return words


def _malformed(values: flags.FlagValues, message: str) -> str:
    """The message for a malformed flag: absl's own, but where that is Python's."""
    match = re.fullmatch(r"flag --(?P<name>\w+)=(?P<value>.*?): (?P<why>.*)", message, re.DOTALL)
    if not match:
        return message
    name, value, why = match.groups()
    flag = values[name]
    expected = {"float": "a number", "int": "a whole number", "bool": "true or false"}
    wanted = expected.get(flag.flag_type(), "")
    if choices := getattr(flag.parser, "enum_values", None):
        wanted = f"one of {', '.join(choices)}"
    if any(word in why for word in ("bound", "number", "positive")) or not wanted:
        return f"--{name}: {why}, received {value!r}."
    return f"--{name}: expected {wanted}, received {value!r}."


def define_flags(study: type[Study]) -> flags.FlagValues:
    """The flags of a study: its own first, then those that all studies have."""
    values = flags.FlagValues()
    string = functools.partial(flags.DEFINE_string, flag_values=values)
    for field, kind in flag_fields(study):
        _define(field, kind, values)
    if study.data is not None:
        words = f"A data set of the project; {study.data} where none is named."
        flags.DEFINE_enum("data", None, list(data.SETS), words, flag_values=values)
        for role, shape in _roles(study).items():
            string(role, None, f"File of your own {role}: {shape}.")
            key = f"Which array of the file of --{role}, where it holds several."
            string(f"{role}_key", None, key)
    if study.random:
        words = "Every random choice derives from it."
        flags.DEFINE_integer("seed", 0, words, 0, 2**31 - 1, flag_values=values)
    string("output", "results", "Folder of the results; an unfinished run resumes.")
    flags.DEFINE_bool("help", False, "List these flags.", short_name="h", flag_values=values)
    return values


def flag_fields(options: type) -> Iterator[tuple[dataclasses.Field, Any]]:
    """The fields of a study that are flags, those of nested groups of flags among them."""
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        if dataclasses.is_dataclass(field.default):
            yield from flag_fields(type(field.default))
        elif "help" in field.metadata:
            yield field, hints[field.name]


def _roles(study: type[Study]) -> dict[str, str]:
    """What a user may bring, with its shape."""
    further = dict.fromkeys(study.further, "[n, d]")
    labels = dict.fromkeys([*study.needs, *study.takes], "one for each row (.npy or .txt)")
    labels |= {role: f"{labels[role]}; required with --outputs" for role in study.needs}
    embeddings = _PAIRS if study.paired else {"outputs": _PAIRS["outputs"]}
    return embeddings | further | labels


def _define(field: dataclasses.Field, kind: Any, values: flags.FlagValues) -> None:
    """The flag of one option, by its annotation."""
    choices, inner = list(field.metadata["choices"]), records.optional(kind) or kind
    default: Any = field.default
    name, words = field.name, field.metadata["help"]
    if typing.get_origin(inner) is tuple:
        parser = _TupleParser(typing.get_args(inner)[0], choices)
        default = None if default is None else [str(value) for value in default]
        commas = flags.CsvListSerializer(",")
        flags.DEFINE(parser, name, default, words, flag_values=values, serializer=commas)
    elif choices:
        flags.DEFINE_enum(name, default, choices, words, flag_values=values)
    else:
        _DEFINE[inner](name, default, words, flag_values=values)


class _TupleParser(flags.ListParser):
    """Values of one type, separated by commas."""

    def __init__(self, element: type, choices: Sequence[str]):
        super().__init__()
        self._element, self.choices = element, choices

    def parse(self, argument: str | list[str]) -> list[Any]:
        words = [word for word in super().parse(argument) if word]
        if not words and argument != []:
            raise ValueError("expected at least one value, separated by commas")
        return [self._convert(word) for word in words]

    def _convert(self, word: str) -> Any:
        if self.choices and word not in self.choices:
            raise ValueError(f"expected some of {', '.join(self.choices)}")
        try:
            return self._element(word)
        except ValueError as error:
            kind = {int: "whole numbers", float: "numbers"}.get(self._element, "words")
            raise ValueError(f"expected {kind}") from error


def given_by(kind: Any, values: flags.FlagValues) -> Any:
    """A study, or a group of flags, as its flags, already parsed, give it."""
    given = {}
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default):
            given[field.name] = given_by(type(field.default), values)
        elif "help" in field.metadata:
            value = values[field.name].value
            given[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


def usage(study: type[Study], values: flags.FlagValues) -> str:
    """The help of a study: what it asks, and every flag with its default and choices."""
    repeated = papers.repeats(study.name)
    source = [] if repeated == "-" else [f"Repeats {repeated}."]
    lines = [study.question(), *source, ""]
    if study.packages:
        lines.insert(-1, f"Needs pip install 'condvendi_jax[{','.join(study.packages)}]'.")
    lines += [f"usage: python -m experiments.{study.name} [--flag=value ...]", ""]
    needs = {field.name: field.metadata["needs"] for field, _ in flag_fields(study)}
    for name in values:
        flag = values[name]
        if name == flag.short_name:
            continue
        words = ["several are separated by commas"] * isinstance(flag.parser, _TupleParser)
        words += [f"only with --{k}={v}" for k, v in needs.get(name, {}).items()]
        if flag.default is not None and name != "help":
            words.append(f"default {flag.serialize().partition('=')[2] or flag.default_as_str}")
        help_text = re.sub(r"^<[^>]*>: ", "", flag.help or "")  # absl repeats the choices there.
        choices = getattr(flag.parser, "enum_values", None) or getattr(flag.parser, "choices", ())
        if choices:
            words.append(f"of {', '.join(choices)}")
        lines.append(f"  --{name}: {help_text}" + (f" ({'; '.join(words)})" if words else ""))
    return "\n".join(lines)


def _load(study: type[Study], values: flags.FlagValues) -> data.PairedEmbeddings:
    """The pairs that the flags name; ValueError where they contradict or name no such files."""
    if study.data is None:
        raise ValueError(f"the study {study.name} takes no pairs.")
    roles = _roles(study)
    own: dict[str, Any] = {r: values[r].value for r in roles if values[r].value is not None}
    named: dict[str, Any] = {role: values[f"{role}_key"].value for role in roles}
    keys = {role: key for role, key in named.items() if key is not None}
    alone = [role for role in keys if role not in own]
    if alone:
        raise ValueError(f"--{alone[0]}_key without --{alone[0]}: there is no file to look in.")
    if own and values["data"].value is not None:
        raise ValueError(f"--data and --{next(iter(own))}: give a data set or your own files.")
    further = {role: own.pop(role) for role in study.further if role in own}
    if own or further:
        pairs = data.load_files(**own, further=further, keys=keys, paired=study.paired)
    else:
        pairs = data.load(values["data"].value or study.data)
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
    files.check_writable(folder / store.RUN)  # Before anything takes long.
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(command.progress_bar())
        task = bar.add_task("reading the data", total=None)
        setup = given.prepare(load, seed)
        stack.callback(setup.close)
        study, kind = setup.study, type(given)
        identity = identity_of(given, setup, seed)
        cells = study.cells()
        saved = stack.enter_context(store.Store(folder, kind, identity, cells))
        cells = cells[:count]
        missing = [cell for cell in cells if cell not in saved.finished]
        if not missing:
            sys.stderr.write(f"{folder}: all {len(cells)} cells are there; nothing is computed.\n")
        bar.update(task, total=len(cells))
        bar.advance(task, len(cells) - len(missing))
        costs = [study.costs(**cell.values) for cell in missing]
        progress = _Progress(functools.partial(bar.advance, task), costs)
        for done, cell in enumerate(missing, start=len(cells) - len(missing) + 1):
            name = f"[{done}/{len(cells)}] {cell}"
            bar.update(task, description=name)

            def say(words: str, name: str = name) -> None:
                bar.update(task, description=f"{name}: {words}")
                progress.begin_step()

            context = Context(cell_key(seed, cell), jax.random.key(seed), say)
            started = time.perf_counter()
            try:
                found = study.compute(setup.state, context, **cell.values)
            except (TypeError, ValueError) as error:
                place = traceback.extract_tb(error.__traceback__)[1]  # In the study.
                error.add_note(f"{place.filename}:{place.lineno}: where {cell} was computed.")
                raise
            seconds = time.perf_counter() - started
            progress.end_cell()
            origin = {**provenance.collect(), **setup.provenance, "seconds": seconds}
            saved.save(cell, found, origin)
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
    return records.identify(
        given.name, given.version, settings, setup.arrays, seed, resolved=setup.study
    )


def cell_key(seed: int, cell: Cell) -> jax.Array:
    """The random key of a cell, the same whatever was computed before it."""
    word = int.from_bytes(hashlib.sha256(str(cell).encode()).digest()[:4], "big")
    return jax.random.fold_in(jax.random.key(seed), word)


def draw(
    study: type[Study], runs: Sequence[Run], folder: pathlib.Path, *, overwrite: bool = True
) -> list[pathlib.Path]:
    """Draws a study's figures from saved results into a folder, as PNG and PDF.

    Raises:
      ValueError: a run is not whole, so that part of it might be taken for all; or a figure is
        there and may not be replaced.
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
    folder.mkdir(parents=True, exist_ok=True)
    there = [path for name in figures for path in style.paths(folder / name) if path.exists()]
    if there and not overwrite:
        raise ValueError(
            f"{there[0]}: exists already. Choose another --figures, or add --overwrite to replace "
            "it."
        )
    return [path for name, figure in figures.items() for path in style.save(figure, folder / name)]


def run_folders(study: type[Study], results: pathlib.Path) -> list[pathlib.Path]:
    """The folders of the study's runs among some results, in the order of their names."""
    folders = sorted(path.parent for path in results.glob(f"{study.name}*/{store.RUN}"))
    return [f for f in folders if f.name == study.name or f.name.startswith(f"{study.name}-")]


class _Progress:
    """Moves a bar on by what steps are expected to cost.

    Nothing moves before a tenth of the cost is over, as small first steps tell no speed.

    Args:
      move: `move(more)` moves the bar.
      costs: of the steps of each cell; all cells together are as long as their number.
    """

    def __init__(self, move: Callable[[float], object], costs: Sequence[Sequence[float]]):
        unit = len(costs) / (sum(map(sum, costs)) or 1)
        self._cells = iter([[unit * cost for cost in of_cell] for of_cell in costs])
        self._move, self._least = move, 0.1 * len(costs)
        self._done = self._shown = self._step = 0.0
        self._steps = next(self._cells, [])

    def begin_step(self) -> None:
        """Begins the next step, if there is one left in the cell: the one before is done."""
        if self._steps:
            self._done += self._step
            self._step = self._steps.pop(0)
            self._show()

    def end_cell(self) -> None:
        """All steps of the cell are done."""
        self._done += self._step + sum(self._steps)
        self._steps, self._step = next(self._cells, []), 0.0
        self._show()

    def _show(self) -> None:
        if self._done >= self._least and self._done > self._shown:
            self._move(self._done - self._shown)
            self._shown = self._done
