"""Reading embeddings and writing results: nothing is half read or half written."""

import codecs
import contextlib
import errno
import glob
import gzip
import io
import json
import math
import os
import pathlib
import secrets
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from condvendi_jax.base import checks

StrPath = str | os.PathLike[str]
_SUFFIXES = (".npy", ".npz", ".safetensors")
_BEGINNINGS = (b"\x93NUMPY", b"PK")  # Of .npy and .npz.
_SAVE = "Save an array of numbers: np.save('x.npy', np.asarray(rows, np.float32))."
_PICKLED = (
    f"it holds pickled Python objects, which are never loaded: they can run any program. {_SAVE}"
)
_LOADED = {  # What loads the array or table of a file in Python, after its module.
    ".pt .pth": ("torch", "torch.load({0!r}, map_location='cpu').float().numpy()"),
    ".h5 .hdf5": ("h5py", "[*h5py.File({0!r}).values()][0][()]"),
    ".mat": ("scipy.io", "[*scipy.io.loadmat({0!r}).values()][-1]"),
    ".pkl .pickle": ("numpy", "np.asarray(np.load({0!r}, allow_pickle=True))"),
    ".xlsx .xls": ("pandas", "pandas.read_excel({0!r}).to_csv({1!r}, index=False)"),
}
STANDARD_OUTPUT = "/dev/stdout"
UNFINISHED: set[pathlib.Path] = set()
"""The temporary files that are being written; an interrupt removes them."""


def expanded(path: StrPath) -> pathlib.Path:
    """The path with a leading `~` or `~user` replaced: no shell does that in --name=~/file."""
    return pathlib.Path(os.path.expanduser(path))


def user_cache() -> pathlib.Path:
    """The folder of the user's caches: XDG_CACHE_HOME, or else `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return expanded(root if os.path.isabs(root) else "~/.cache")


def names_of(paths: Sequence[str]) -> list[str]:
    """A name for each path: that of the file or, where two share one, the path in their folder."""
    plain = [pathlib.Path(os.path.abspath(expanded(path))) for path in paths]
    packed = [path.with_suffix("") if path.suffix.lower() == ".gz" else path for path in plain]
    names = [path.name if path.is_dir() else path.stem for path in packed]
    if len({*names}) < len(names):
        folder = os.path.commonpath([path.parent for path in plain])
        names = [path.relative_to(folder).as_posix() for path in plain]
    return names


def unread(path: pathlib.Path, endings: Iterable[str], remedy: str = "") -> ValueError:
    """The error of a file with another ending, with a line of Python that converts it."""
    if path.suffix.lower() == ".zip":
        remedy = f"Unpack it first: unzip {path}."
    for kinds, (module, line) in _LOADED.items():
        if path.suffix.lower() in kinds.split():
            line = line if "to_csv" in line else f"import numpy as np; np.save({{2!r}}, {line})"
            line = line.format(*(str(path.with_suffix(s)) for s in (path.suffix, ".csv", ".npy")))
            remedy = f"Convert it: import {module}; {line}"
            remedy += "; this can run any program: trust who wrote it" * ("pickle" in line)
    return ValueError(f"{path}: expected a file ending in {', '.join(endings)}. {remedy}".strip())


def check_there(path: pathlib.Path) -> None:
    """Raises ValueError where there is no regular file, PermissionError in a closed folder."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path}: there is no such file.") from None
    if not regular:
        raise ValueError(f"{path}: is no regular file.")


def read_array(path: StrPath, *, key: str | None = None, flag: str = "") -> np.ndarray:
    """Reads one array from a .npy, .npz or .safetensors file, whatever the ending's case.

    `key` names one of several arrays, as the `flag` of a command. bfloat16 and smaller floats of a
    .safetensors file become float32, exactly. Pickled objects are never loaded.
    """
    suffix = (path := expanded(path)).suffix.lower()
    if suffix not in _SUFFIXES:
        raise unread(path, _SUFFIXES, _SAVE)
    check_there(path)
    if suffix == ".npy" and key is not None:
        raise ValueError(f"{path}: a .npy file holds one array without a key, received {key!r}.")
    try:
        return _read(path, suffix, key)
    except KeyError as error:
        mend = f"Name one, {flag}=NAME." if flag else "Save one in a file of its own."
        raise ValueError(f"{path}: {error.args[0]} {mend}") from error
    except PermissionError as error:
        raise ValueError(f"{path}: may not be read: {error.strerror}.") from error
    except Exception as error:  # Damaged files fail in any of the readers' ways.
        why = _PICKLED if "allow_pickle" in str(error) else error
        raise ValueError(f"{path}: cannot be read as {suffix}: {why}") from error


def read_weights(path: StrPath) -> np.ndarray:
    """Reads n weights, as `read_labels` reads labels; integers if all are written as such."""
    weights = read_labels(path, kind="weight")
    if weights.dtype.kind in "UO":
        try:
            weights = weights.astype(int if all(map(str.isdigit, weights.tolist())) else float)
        except ValueError as error:
            raise ValueError(f"{path}: expected numbers: {error}.") from error
    return np.asarray(checks.check_weights(weights, weights.size, name=str(path)))


def read_labels(path: StrPath, *, key: str | None = None, kind: str = "label") -> np.ndarray:
    """Reads n labels: the lines of a .txt file, or an array `[n]`, `[n, 1]` or `[1, n]`."""
    if (path := expanded(path)).suffix.lower() != ".txt":
        array = read_array(path, key=key)
        if array.size != max(array.shape, default=0) or array.dtype.kind not in "iubUSf":
            received = f"{array.dtype} of shape {list(array.shape)}"
            raise ValueError(f"{path}: expected one {kind} a row [n], received {received}.")
        return array.reshape(-1)
    if not (labels := read_lines(path)):
        raise ValueError(f"{path}: holds no {kind}s.")
    return np.array(labels, object)


@contextlib.contextmanager
def open_text(path: pathlib.Path, newline: str) -> Iterator[io.TextIOWrapper]:
    """A text file, packed (.gz) or not, in UTF-8 or marked UTF-16; other bytes as surrogates."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb") as stream:
            wide = stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            encoding = "utf-16" if wide else "utf-8-sig"
            yield io.TextIOWrapper(stream, encoding, "surrogateescape", newline)
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}.") from error


def read_lines(path: pathlib.Path) -> list[str]:
    """The lines of a text file, as `open_text` reads it, without their ends."""
    check_there(path)
    with open_text(path, "\n") as stream:
        text = stream.read()
    # Not `splitlines`: a text may hold the other characters that Unicode counts as line ends.
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise ValueError(f"{path}, line {number}: is blank.")
        if not line.isascii() and any("\ud800" <= char <= "\udfff" for char in line):
            raise ValueError(f"{path}, line {number}: is not UTF-8.")
    return [line.removesuffix("\r") for line in lines]


def _read(path: pathlib.Path, suffix: str, key: str | None) -> np.ndarray:
    with open(path, "rb") as stream:  # Opened here, since np.load leaves a damaged file open.
        if suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="np") as tensors:
                array = tensors.get_tensor(_only_key(key, list(tensors.keys())))
            # JAX has told NumPy of bfloat16.
            return array.astype(np.float32) if array.dtype.kind == "V" else array
        start = stream.read(len(_BEGINNINGS[0]))
        if start and not start.startswith(_BEGINNINGS):  # np.load would speak of pickles.
            raise ValueError("its content is in another format.")
        stream.seek(0)
        loaded = np.load(stream, allow_pickle=False)
        array = loaded if isinstance(loaded, np.ndarray) else loaded[_only_key(key, loaded.files)]
    if array.dtype.names is not None:
        raise ValueError(f"expected an array of numbers, received records {array.dtype}.")
    if array.dtype.kind == "V":
        why = "NumPy's formats forget what bfloat16 and float8 are; save float32."
        raise ValueError(f"its dtype {array.dtype} is raw bytes: {why}")
    return array


def _only_key(key: str | None, keys: list[str]) -> str:
    if key is None and len(keys) == 1:
        return keys[0]
    if key not in keys:
        wanted = "which array is meant" if key is None else f"no array {key!r}"
        raise KeyError(f"{wanted}; its keys are {', '.join(sorted(keys)) or 'none'}.")
    return key


@contextlib.contextmanager
def atomic_writer(path: StrPath) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only once it is complete and on disk.

    A link stays, and what it points to is replaced, with its mode. A pipe or a device, such as
    /dev/stdout, is written to when all is complete. After an error nothing is left behind.
    """
    target = _target(path := expanded(path))
    if target is None:
        content = io.BytesIO()
        yield content
        with _naming(path):
            if path.as_posix() == STANDARD_OUTPUT:
                sys.stdout.flush()  # What was printed before comes first.
                sys.stdout.buffer.write(content.getvalue())
                sys.stdout.buffer.flush()
            else:
                path.write_bytes(content.getvalue())
        return
    temporary = target.with_name(f".condvendi-{secrets.token_hex(8)}")
    with _naming(path):
        stream = open(temporary, "xb")  # noqa: SIM115 - closed below. The umask gives its mode.
    UNFINISHED.add(temporary)
    try:
        with _naming(path), stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        UNFINISHED.discard(temporary)


def check_writable(path: StrPath) -> None:
    """Raises OSError if `path` could not be written; creates nothing, and opens no pipe."""
    target = _target(path := expanded(path))
    if target is not None:
        with _naming(path), tempfile.TemporaryFile(dir=target.parent):
            return
    if path.as_posix() != STANDARD_OUTPUT and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written to", str(path))


def check_targets(
    targets: Mapping[str, StrPath], sources: Mapping[str, Iterable[StrPath]], *, overwrite: bool
) -> None:
    """Checks, before anything is computed, that no file is lost when the targets are written.

    Targets are by flag; sources may be patterns. `overwrite` allows to replace others than sources.
    """
    wanted, checked = {f: expanded(p) for f, p in targets.items()}, dict[str, pathlib.Path]()
    for flag, path in wanted.items():
        try:
            check_writable(path)
        except OSError as error:
            why = (error.strerror or str(error).removeprefix(f"{path}: ")).rstrip(".")
            advice = "Choose a file in a folder that you can write to."
            raise type(error)(f"{flag}: {path} cannot be written ({why}). {advice}") from error
        if (target := _target(path)) is None:
            continue
        for other, earlier in checked.items():
            if _same(target, earlier):
                both = f"{other}={wanted[other]} and {flag}={path}"
                raise ValueError(f"{both} are the same file; give two names.")
        checked[flag] = target
    for reader, paths in sources.items():
        for source in map(expanded, paths):
            folder = os.path.realpath(source) if source.is_dir() else None
            inner = source.iterdir() if folder else glob.glob(f"{source}", recursive=True)
            names, start = [source, *inner], "a file in " if folder else ""
            for flag, target in checked.items():
                inside = folder and target.exists() and target.is_relative_to(folder)
                if inside or any(_same(name, target) for name in names):  # Some may be links.
                    what = f"{start}{source}, which {reader} reads; choose another name."
                    raise ValueError(f"{flag}={wanted[flag]} would replace {what}")
    for flag, target in checked.items():
        if not overwrite and target.exists() and target.stat().st_size > 0:
            mend = "Choose another name, or add --overwrite to replace it."
            raise ValueError(f"{flag}: {wanted[flag]} exists. {mend}")


def _same(path: StrPath, other: StrPath) -> bool:
    """Whether two names are those of one file, there or to be."""
    try:
        return os.path.samefile(path, other)
    except OSError:  # One of them is not there.
        return os.path.realpath(path) == os.path.realpath(other)


def _target(path: pathlib.Path) -> pathlib.Path | None:
    """The regular file, there or to be, that a path means; None for what is written through."""
    if path.as_posix() == STANDARD_OUTPUT:
        return None
    target = pathlib.Path(os.path.realpath(path))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if target.parent.is_dir():
            return target
        raise FileNotFoundError(f"{path}: there is no directory {target.parent}.") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path}: is a directory, expected the name of a file.")
    if stat.S_ISREG(mode):
        return target
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return None
    raise OSError(f"{path}: is neither a file nor a pipe nor a character device.")


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Names the path, as the user gave it, in an error of the operating system."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error


def write_text(path: StrPath, text: str) -> None:
    """Writes a text in UTF-8, whole or not at all."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def write_json(path: StrPath, content: Any) -> None:
    """Writes JSON atomically; NaN and infinities become null with a reason beside them."""
    write_text(path, json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n")


def jsonable(value: Any) -> Any:
    """The value in JSON's types; a number that is not finite becomes null with a reason."""
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, dict):
        result = {}
        for name, entry in value.items():
            reason = _not_finite(entry)
            result[str(name)] = None if reason else jsonable(entry)
            if reason:
                result[f"{name}_reason"] = reason
        return result
    if isinstance(value, (list, tuple)):
        both = zip(value, map(_not_finite, value), strict=True)
        return [{"value": None, "reason": why} if why else jsonable(one) for one, why in both]
    return value


def _not_finite(value: Any) -> str:
    """Why a scalar has no number in JSON; empty where it has one."""
    scalar = isinstance(value, float) or (hasattr(value, "ndim") and value.ndim == 0)
    return f"not a finite number: {float(value)}" if scalar and not math.isfinite(value) else ""
