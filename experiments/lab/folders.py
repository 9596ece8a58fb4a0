"""The folders of results, read as files: no study is imported, nor what studies need."""

import hashlib
import json
import pathlib
import re
from typing import Any, Protocol

COMMITTED = pathlib.Path(__file__).parents[1] / "results"
RUN = "run.json"

UNSEALED = "0" * 64  # In the place of a file's checksum while it is computed.
_CHECKSUM = re.compile(rb"sha256.{10}([0-9a-f]{64})", re.DOTALL)  # The first attribute of a file.


class DamagedError(ValueError):
    """A file is not what was once written under its name."""


class Known(Protocol):
    """What is needed of a study: the class, or what the registry read of it."""

    @property
    def name(self) -> str:
        """Of the study and of its folders."""
        ...

    @property
    def version(self) -> int:
        """Of its results."""
        ...


def run_folders(study: Known, results: pathlib.Path) -> list[pathlib.Path]:
    """The folders of the study's runs among some results, in the order of their names."""
    folders = sorted(path.parent for path in results.glob(f"{study.name}*/{RUN}"))
    return [f for f in folders if f.name == study.name or f.name.startswith(f"{study.name}-")]


def state(study: Known, folder: pathlib.Path) -> str:
    """How many of the cells of a run are there; '' where only the study itself can tell.

    The study can tell why results are unreadable, and which cells a run has that an earlier
    version of the project wrote.
    """
    try:
        run = json.loads((folder / RUN).read_bytes())
        identity, cells = run["identity"], run["cells"]
        there = [name for name in cells if (folder / name).exists()]
        for name in there:
            content = checked((folder / name).read_bytes())
            record = {"identity": identity, "cell": cells[name]}
            if any(_attribute(content, key) != value for key, value in record.items()):
                return ""
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""
    if (identity.get("study"), identity.get("version")) != (study.name, study.version):
        return ""
    return progress(len(there), len(cells))


def progress(there: int, total: int) -> str:
    """The state of a run in words."""
    return "complete" if there == total else f"{there} of {total} cells"


def sealed(content: bytes) -> bytes:
    """The content of a file of a cell with its checksum in the place of `UNSEALED`."""
    checksum = hashlib.sha256(content).hexdigest()
    return content.replace(UNSEALED.encode(), checksum.encode(), 1)


def checked(content: bytes) -> bytes:
    """The content of a file of a cell.

    Raises:
      ValueError: any bit of it is not as it was written.
    """
    found = _CHECKSUM.search(content)
    blank = found and content[: found.start(1)] + UNSEALED.encode() + content[found.end(1) :]
    if not (found and blank) or hashlib.sha256(blank).hexdigest().encode() != found[1]:
        raise ValueError("its content is not what its checksum says")
    return content


def _attribute(content: bytes, name: str) -> Any:
    """An attribute of a netCDF file, from JSON: after the name and a type stands the length."""
    start = content.index(name.encode(), content.index(b"sha256"))
    start += len(name) + -len(name) % 4 + 4
    length = int.from_bytes(content[start : start + 4])
    return json.loads(content[start + 4 : start + 4 + length])
