"""The memory that there is: refuse n x n arrays that do not fit, and explain a failure."""

import contextlib
import functools
import os
import pathlib
import sys
from collections.abc import Iterator

import jax
import numpy as np
from numpy.typing import DTypeLike

try:
    import resource
except ImportError:  # There are no such limits on Windows.
    resource = None

_ARRAYS_HELD = 4  # The matrix, its two factors and the copy that is reduced to tridiagonal form.
_CROSS_ARRAYS_HELD = 3  # The cross Gram, its copy that is reduced to bidiagonal form, work space.
# cuSOLVER accepts matrices up to this side. Users report refusals from n = 23,100 in float32 and
# 25,000 in float64, on devices with memory to spare: its work space is counted in 32 bits.
_SOLVERS_TAKE = 20_000
_ABSURD = 2**60  # Larger values mean no limit.


def limit() -> int:
    """The bytes for arrays, including those that other processes use.

    The limit that a device reports; for a CPU the least of those of machine, container and process.
    """
    statistics = jax.local_devices()[0].memory_stats() or {}
    if statistics.get("bytes_limit"):
        return statistics["bytes_limit"]
    known = (machine_memory(), container_limit(), process_limit())
    return min((value for value in known if value is not None), default=sys.maxsize)


def machine_memory() -> int | None:
    """The physical memory in bytes; None where the system does not say."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def process_limit() -> int | None:
    """The least of the process's limits of address space and data (`ulimit`); None without any."""
    if resource is None:
        return None
    names = ("RLIMIT_AS", "RLIMIT_DATA")
    soft = [resource.getrlimit(getattr(resource, n))[0] for n in names if hasattr(resource, n)]
    return min((value for value in soft if 0 <= value < _ABSURD), default=None)


@functools.cache
def container_limit(root: str | os.PathLike[str] = "/") -> int | None:
    """The least memory limit of the process's control groups, in bytes; None without any."""
    root = pathlib.Path(root)
    lines = _read(root / "proc" / "self" / "cgroup").splitlines()
    group = next((line[3:] for line in lines if line.startswith("0::")), "")
    # Groups above a group limit it too. In a container only the top of the host's path may exist.
    parts = [part for part in group.split("/") if part not in ("", "..")]
    folders = [root.joinpath("sys/fs/cgroup", *parts[:k]) for k in range(len(parts) + 1)]
    texts = [(_read(folder / "memory.max") or "max").strip() for folder in folders]
    limits = [int(text) for text in texts if text.isdecimal() and int(text) < _ABSURD]
    return min(limits, default=None)


def _read(path: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def needed(n: int, dtype: DTypeLike) -> int:
    """The bytes of the n x n arrays of an exact spectrum, or of three stored Grams."""
    return _ARRAYS_HELD * n * n * np.dtype(dtype).itemsize


def fits(n: int, dtype: DTypeLike, *, share: float = 1) -> bool:
    """Whether the n x n arrays, or a share of them, fit in the memory."""
    return needed(n, dtype) * share <= limit()


def check(n: int, dtype: DTypeLike, *, share: float = 1) -> None:
    """Raises ValueError where the n x n arrays, or a share of them, exceed the memory."""
    if not fits(n, dtype, share=share):
        raise ValueError(_too_large(n, dtype))


def check_cross(n: int, m: int, dtype: DTypeLike) -> None:
    """Raises ValueError where the arrays of a cross Gram's singular values exceed the memory."""
    if (total := _CROSS_ARRAYS_HELD * n * m * np.dtype(dtype).itemsize) > limit():
        raise ValueError(
            f"The singular values of a {n} x {m} cross Gram need about {_gib(total)} of "
            f"{np.dtype(dtype).name} and there are {_gib(limit())}: score subsamples."
        )


@contextlib.contextmanager
def explained(n: int, dtype: DTypeLike) -> Iterator[None]:
    """Raises ValueError where memory runs out inside, or an eigensolver refuses a large matrix.

    JAX computes asynchronously: wait for the n x n arrays inside as well.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        text, why = str(error).lower(), "Memory ran out."
        ran_out = "resource_exhausted" in text or "out of memory" in text
        if not (ran_out or isinstance(error, MemoryError)):
            if n <= _SOLVERS_TAKE or "cusolver" not in text:
                raise
            why = "cuSOLVER refused so large a matrix."
        raise ValueError(f"{why} {_too_large(n, dtype, ', not all of it free')}") from error


def _too_large(n: int, dtype: DTypeLike, free: str = "") -> str:
    return (
        f"The n x n arrays of n = {n} points need about {_gib(needed(n, dtype))} of "
        f"{np.dtype(dtype).name} and there are {_gib(limit())}{free}. Give "
        "method=cv.Auto(key=...), and the spectrum is estimated, with an interval, from products "
        "that never form them; order 2 (rke, conditional_rke, order=2) is exact at any n."
    )


def _gib(size: int) -> str:
    gib = size / 2**30
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.2g} GiB"
