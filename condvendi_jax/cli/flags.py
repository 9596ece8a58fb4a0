"""Typed flags: the fields of a dataclass are the flags of a command line.

Flags are `--name=value`, `--name value` or, of booleans, `--name` and `--noname`; one dash will do.
"""

import argparse
import dataclasses
import difflib
import functools
import inspect
import math
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack

Flags = TypeVar("Flags")

_EXPECTED = {float: "a number", int: "a whole number", bool: "true or false"}
_HINT = "--help lists all flags."
_TRUTH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_RULES: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "choices": (lambda value, choices: value in choices, "one of {}"),
    "endings": (lambda value, endings: value.lower().endswith(endings), "a file ending in {}"),
    "at_least": (lambda value, bound: bound <= value < math.inf, "a number at least {}"),
    "above": (lambda value, bound: bound < value < math.inf, "a number above {}"),
    "below": (lambda value, bound: -math.inf < value < bound, "a number below {}"),
}


class Rules(TypedDict, total=False):
    """The rules of a flag: of its value or, where it has several, of each."""

    choices: Collection[str]
    endings: tuple[str, ...]  # Of the name of a file.
    at_least: float
    above: float
    below: float
    check: Callable[[Any], Any]  # Raises ValueError with a message `name: reason`.
    excludes: Sequence[str]  # The flags that may not be given beside it.
    needs: Mapping[str, Any]  # The values of others without which it means nothing.


def flag(default: Any = None, help: str = "", **rules: Unpack[Rules]) -> Any:
    """A field that becomes a flag of its name and type; `help` is what the flag means."""
    return dataclasses.field(default=default, metadata={"help": help, **rules})


def fields(kind: type) -> Iterator[tuple[dataclasses.Field, Any, bool]]:
    """The flags of a dataclass and of its fields, their type, and whether they take several."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default):
            yield from fields(type(field.default))
        elif "help" in field.metadata:
            hint, several = hints[field.name], False
            while arguments := typing.get_args(hint):
                several, hint = several or typing.get_origin(hint) is tuple, arguments[0]
            yield field, hint, several


def parse(kind: type[Flags], argv: Sequence[str], usage: str = "") -> tuple[list[str], Flags]:
    """Returns the words of a command line that are no flags, and its flags.

    ValueError where a flag is unknown, refused or given twice. A request for help, which starts
    with the docstring of `kind` and the `usage`, ends the process.
    """
    hidden, style = argparse.SUPPRESS, argparse.RawDescriptionHelpFormatter
    what = f"{inspect.getdoc(kind)}\n\n{usage}".strip()
    parser = _Parser(description=what, formatter_class=style, usage=hidden, allow_abbrev=False)
    parser.add_argument(" words", nargs="*", help=hidden)
    # The flags of the class itself come before those that it inherits.
    bases = [vars(base).get("__dataclass_fields__", {}) for base in kind.__mro__[1:]]
    own_first = sorted(fields(kind), key=lambda f: sum(f[0].name in base for base in bases))
    names: dict[str, str] = {}  # What each stands for where it has no value.
    for field, hint, several in own_first:
        read, words = functools.partial(_read, hint, several), _help(field, several)
        settings: Any = {"action": "append", "default": hidden, "type": read}
        settings["metavar"] = "true|false" if hint is bool else "VALUE"
        on, off = f"--{field.name}", f"--no{field.name}"
        parser.add_argument(on, help=words.replace("%", "%%"), **settings)
        names |= {on: f"{on}=true", off: f"{on}=false"} if hint is bool else {on: on}
    argv = [re.sub("^-(?=[a-z])", "--", word) for word in argv]
    if {"--h", "--help", "--helpfull", "--helpshort"} & {*argv}:
        print(parser.format_help(), flush=True)
        sys.exit()
    parsed, unknown = parser.parse_known_intermixed_args([names.get(word, word) for word in argv])
    if unknown:
        name = unknown[0].partition("=")[0].lstrip("-")
        near = difflib.get_close_matches(name, [known.lstrip("-") for known in names], 1)
        hint = f"did you mean --{near[0]}? {_HINT}" if near else _HINT
        raise ValueError(f"unknown flag --{name}; {hint}")
    rest = (given := vars(parsed)).pop(" words", [])
    for name in (name for name in given if len(given[name]) > 1):
        raise ValueError(f"--{name}: is given {len(given[name])} times; give it once.")
    return rest, _made(kind, {name: value for name, (value,) in given.items()})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.removeprefix('argument ')}; {_HINT}")


def _help(field: dataclasses.Field, several: bool) -> str:
    rules, default = field.metadata, field.default
    words = ["several are separated by commas"] * several
    words += [f"only with --{name}={value}" for name, value in rules.get("needs", {}).items()]
    words += [f"default {_text(default, ',')}"] * (default not in (None, (), False))
    words += [f"--no{field.name} turns it off"] * (default is True)
    words += [f"of {_text(choices)}" for choices in [rules.get("choices")] if choices]
    return rules["help"] + (f" ({'; '.join(words)})" if words else "")


def _text(value: Any, separator: str = ", ") -> str:
    """A value, or several, as a command line has it."""
    if isinstance(value, Collection) and not isinstance(value, str):
        return separator.join(map(_text, value))
    words = f"{value:g}" if isinstance(value, float) else str(value)
    return words.lower() if isinstance(value, bool) else words


def _read(hint: Any, several: bool, text: str) -> Any:
    parts = [part.strip() for part in text.split(",")] if several else [text]
    try:
        values = [_TRUTH[part.lower()] if hint is bool else hint(part) for part in parts if part]
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"expected {_EXPECTED[hint]}, received {text!r}") from None
    if not values:
        raise argparse.ArgumentTypeError("received nothing; leave it out, or give a value")
    return tuple(values) if several else values[0]


def _made(kind: type[Flags], given: Mapping[str, Any]) -> Flags:
    """The dataclass, and those that are its fields; ValueError where a value breaks a rule."""
    known = dataclasses.fields(typing.cast(Any, kind))
    groups = [(f.name, type(f.default)) for f in known if dataclasses.is_dataclass(f.default)]
    values = {f.name: given[f.name] for f in known if "help" in f.metadata and f.name in given}
    made = kind(**{name: _made(group, given) for name, group in groups}, **values)
    for field in known:
        value = getattr(made, field.name)
        if value != field.default and (problems := [*_problems(value, made, field.metadata)]):
            raise ValueError(f"--{field.name}{problems[0]}")
    return made


def _problems(value: Any, given: Any, rules: Mapping[str, Any]) -> Iterator[str]:
    values = value if isinstance(value, tuple) else (value,)
    limits = {name: rules[name] for name in _RULES if rules.get(name) not in (None, ())}
    for one in values:
        if not all(_RULES[name][0](one, limit) for name, limit in limits.items()):
            words = " and ".join(_RULES[name][1].format(_text(limits[name])) for name in limits)
            yield f": expected {words.replace(' and a number', ' and')}, received {one!r}."
        if values.count(one) > 1:
            yield f": {_text(one)} is given twice; give it once."
        try:
            rules.get("check", str)(one)
        except ValueError as error:  # It names the argument of the library.
            yield f": {str(error).partition(': ')[2]}".replace("float('inf')", "inf")
    for other in rules.get("excludes", ()):
        if getattr(given, other) != given.__dataclass_fields__[other].default:
            yield f" and --{other}: give one or the other."
    for other, wanted in rules.get("needs", {}).items():
        if (value := getattr(given, other)) != wanted:
            yield f" means nothing with --{other}={value}; it is for --{other}={wanted}."
