"""The studies, by name: the files of the themes that define a `lab.Study`."""

import functools
import importlib
import pathlib
import re

import experiments
from experiments.lab.study import Study

_ROOT = pathlib.Path(__file__).parents[1]
# A class that derives from another, and its name before the next class.
_STUDY = re.compile(r'^class (\w+)\(\S+\):\n(?:(?!class ).*\n)*?    name = "(\w+)"$', re.MULTILINE)


def _found() -> dict[str, tuple[str, str]]:
    """The module and the class of every study; read, not imported, as that would be slow."""
    found = {}
    for theme in experiments.THEMES:
        for path in sorted((_ROOT / theme).rglob("*.py")):
            module = ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts)
            for kind, name in _STUDY.findall(path.read_text(encoding="utf-8")):
                found[name] = module, kind
    return found


_MODULES = _found()
NAMES = tuple(_MODULES)


@functools.cache
def load(name: str) -> type[Study]:
    """The study of that name.

    Raises:
      ValueError: there is none, with the names of those that there are.
    """
    if name not in _MODULES:
        raise ValueError(f"unknown study {name!r}; the studies are {', '.join(NAMES)}.")
    module, kind = _MODULES[name]
    return getattr(importlib.import_module(module), kind)
