"""The folders of results, read as files: no study is imported, nor what studies need."""

import json
import pathlib
from typing import Any

COMMITTED = pathlib.Path(__file__).parents[1] / "results"
RUN = "run.json"


class DamagedError(ValueError):
    """A file is not what was once written under its name."""


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
