"""Optional parts of a result: where one fails, a line says why, and the scores stand."""

import contextlib
from collections.abc import Iterator

import jax
import numpy as np

from condvendi_jax.base import checks

# What numbers and memory raise, beside other ValueErrors; mistakes in programs are neither.
_NUMERICAL = (np.linalg.LinAlgError, ArithmeticError, MemoryError, jax.errors.JaxRuntimeError)


@contextlib.contextmanager
def part(name: str, failed: dict[str, str], *, asked: bool = False) -> Iterator[None]:
    """Warns, and notes the reason in `failed` by the name, where what is inside fails by its data.

    If the user `asked` for the part, a ValueError may refuse their arguments: it is raised, but for
    those of linear algebra.
    """
    try:
        yield
    except (*_NUMERICAL, ValueError) as error:
        if asked and not isinstance(error, _NUMERICAL):
            raise
        failed[name] = str(error).partition("\n")[0] or type(error).__name__
        checks.warn(f"not computed: {name} ({failed[name]}). The scores stand.")
