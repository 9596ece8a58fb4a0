"""Packages that only some users need: extras of the installation, named where one is missing."""

import contextlib
from collections.abc import Iterator

INSTALL = "in a clone of the project: pip install -e '.[{}]'"  # No registry has this package.


class MissingExtra(ModuleNotFoundError, ValueError):
    """A package of an extra is missing; a command prints this as one line, like bad input."""


@contextlib.contextmanager
def needed(extra: str, *, package: str, purpose: str) -> Iterator[None]:
    """Raises `MissingExtra`, with the purpose and a command, where an import inside fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f"{purpose} needs {package}, which is not installed"
        raise MissingExtra(f"{missing}; {INSTALL.format(extra)}", name=error.name) from error
