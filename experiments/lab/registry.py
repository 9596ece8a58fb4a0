"""The studies, by name: the files of the themes that define a `lab.Study`."""

from __future__ import annotations

import functools
import importlib
import pathlib
import re
from typing import TYPE_CHECKING, NamedTuple

import experiments

if TYPE_CHECKING:
    from experiments.lab.study import Study

_ROOT = pathlib.Path(__file__).parents[1]
_STUDY = re.compile(r'^class (\w+)\(lab\.Study\):\n {4}"""(.*?)(?:"""|\n)', re.MULTILINE)
_VERSION = re.compile(r"^ {4}version = (\d+)$", re.MULTILINE)


class Entry(NamedTuple):
    """What the source of a study says of it."""

    name: str
    question: str
    version: int
    module: str
    kind: str


def _found() -> dict[str, Entry]:
    """Every study; read, not imported, as that would be slow."""
    found = {}
    for theme in experiments.THEMES:
        for path in sorted((_ROOT / theme).glob("*.py")):
            text, module = path.read_text(encoding="utf-8"), f"experiments.{theme}.{path.stem}"
            if study := _STUDY.search(text):
                kind, question = study.groups()
                version = _VERSION.search(text)
                number = int(version[1]) if version else 1
                found[path.stem] = Entry(path.stem, question, number, module, kind)
    return found


_ENTRIES = _found()
NAMES = tuple(_ENTRIES)


def entry(name: str) -> Entry:
    """What is known of the study of that name without importing it.

    Raises:
      ValueError: there is none, with the names of those that there are.
    """
    if name not in _ENTRIES:
        raise ValueError(f"unknown study {name!r}; the studies are {', '.join(NAMES)}.")
    return _ENTRIES[name]


@functools.cache
def load(name: str) -> type[Study]:
    """The study of that name; ValueError as of `entry`."""
    return getattr(importlib.import_module(entry(name).module), entry(name).kind)
