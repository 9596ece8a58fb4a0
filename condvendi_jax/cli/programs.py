"""Compiled programs that are kept between calls of the command, so that the next one starts sooner.

JAX reads and writes them. It recompiles whatever it cannot read, but runs whatever it can: so only
files that an earlier call has vouched for, by their SHA-256, are left for it to read.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pathlib
import platform
import warnings
from typing import Any

import jax
import jaxlib.version

from condvendi_jax import files

LIMIT = 2**28
"""Bytes that the folder may have at the start of a call: the oldest programs are removed first."""

_CHECKSUMS = "checksums.json"


def root() -> pathlib.Path:
    """The folder of the programs of all versions and processors."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (
        files.expanded(base if os.path.isabs(base) else "~/.cache") / "condvendi_jax" / "programs"
    )


def keep() -> None:
    """Lets JAX keep the programs of this process, and take those of earlier ones.

    Does nothing where JAX has a cache already or is told to have none, where the folder cannot be
    written, and on several CPU devices, for which JAX's cache gives wrong programs.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    if len(jax.devices("cpu")) > 1:
        return
    folder = root() / _machine()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.check_writable(folder / _CHECKSUMS)
        trusted = _remove_unknown(folder)
        _remove_oldest(root())
    except OSError:
        return
    # Files may vanish, or be incomplete, where other calls run at once. JAX then compiles.
    words = "Error (reading|writing) persistent compilation cache entry"
    warnings.filterwarnings("ignore", message=words)
    for name, value in {
        "jax_compilation_cache_dir": os.fspath(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_enable_xla_caches": "none",
    }.items():
        config.update(name, value)
    atexit.register(_vouch, folder, trusted)


def _machine() -> str:
    """A name of what a program depends on: the processor, and the versions that compiled it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        kinds = ("model name", "flags", "Features", "CPU part")
        processor = sorted({line for line in lines.splitlines() if line.startswith(kinds)})
    except OSError:
        processor = [platform.processor()]
    parts = [platform.system(), platform.machine(), jax.__version__, jaxlib.version.__version__]
    return _digest(json.dumps([*parts, *processor]).encode())[:16]


def _remove_unknown(folder: pathlib.Path) -> dict[str, str]:
    """Removes what no call has vouched for or what has changed since; the rest by its checksum."""
    try:
        known = json.loads((folder / _CHECKSUMS).read_bytes())
    except (OSError, ValueError):
        known = {}
    found = _checksums(folder)
    trusted = {name: digest for name, digest in found.items() if known.get(name) == digest}
    for name in found.keys() - trusted.keys():
        (folder / name).unlink(missing_ok=True)
    return trusted


def _remove_oldest(folder: pathlib.Path) -> None:
    """Removes the oldest programs, of any version, until the rest is within the limit."""
    programs = []
    for path in folder.glob("*/*-cache"):
        try:
            status = path.stat()
        except FileNotFoundError:  # Another call has removed it.
            continue
        programs.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in programs)
    for _, size, path in sorted(programs):
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size


def _vouch(folder: pathlib.Path, trusted: dict[str, str]) -> None:
    """Writes down the checksums of all programs: of those that were read, from before."""
    try:
        content = json.dumps(_checksums(folder) | trusted)
        with files.atomic_writer(folder / _CHECKSUMS) as stream:
            stream.write(content.encode())
    except OSError:  # The disk is full, say. The next call compiles.
        return


def _checksums(folder: pathlib.Path) -> dict[str, str]:
    found = {}
    for path in folder.glob("*-cache"):
        try:
            found[path.name] = _digest(path.read_bytes())
        except FileNotFoundError:  # Another call has removed it.
            continue
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
