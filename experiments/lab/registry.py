"""The studies, by name: the files of the themes that define a `lab.Study`.

They and the folders of their results are read as files: no study is imported, nor what it needs.
"""

from __future__ import annotations

import functools
import importlib
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import experiments

if TYPE_CHECKING:
    from experiments.lab.study import Study

_ROOT = pathlib.Path(__file__).parents[1]
COMMITTED = _ROOT / "results"
RUN = "run.json"
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
    """Every study."""
    found = {}
    for path in (p for theme in experiments.THEMES for p in sorted((_ROOT / theme).glob("*.py"))):
        text = path.read_text(encoding="utf-8")
        if study := _STUDY.search(text):
            version = int(stated[1]) if (stated := _VERSION.search(text)) else 1
            module = f"experiments.{path.parent.name}.{path.stem}"
            found[path.stem] = Entry(path.stem, study[2], version, module, study[1])
    return found


_ENTRIES = _found()
NAMES = tuple(_ENTRIES)


def entry(name: str) -> Entry:
    """What is known of the study of that name; ValueError, with all names, if there is none."""
    if name not in _ENTRIES:
        raise ValueError(f"unknown study {name!r}; the studies are {', '.join(NAMES)}.")
    return _ENTRIES[name]


@functools.cache
def load(name: str) -> type[Study]:
    """The study of that name; ValueError as of `entry`."""
    return getattr(importlib.import_module(entry(name).module), entry(name).kind)


def run_folders(study: Any, results: pathlib.Path) -> list[pathlib.Path]:
    """The folders of a study's runs among some results, in the order of their names.

    The study is the class, or what the registry read of it.
    """
    folders = sorted(path.parent for path in results.glob(f"{study.name}*/{RUN}"))
    return [f for f in folders if f.name == study.name or f.name.startswith(f"{study.name}-")]


def state(study: Any, folder: pathlib.Path) -> str:
    """How many of the cells of a run are there, by the names of their files; no cell is read."""
    try:
        run = json.loads((folder / RUN).read_bytes())
        version, cells = run["identity"]["version"], run["cells"]
    except (OSError, ValueError, LookupError, TypeError):
        return "unreadable"
    if version != study.version:
        return f"of version {version}; the study has version {study.version}"
    there = sum((folder / name).exists() for name in cells)
    return "complete" if there == len(cells) else f"{there} of {len(cells)} cells"
