"""Reading embeddings and writing results: nothing is half read or half written."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import pathlib
import re
import secrets
import stat
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from condvendi_jax import interrupts, validation

_SUFFIXES = (".npy", ".npz", ".safetensors")
_BEGINNINGS = (b"\x93NUMPY", b"PK")  # Of .npy and .npz.
_PICKLED = (
    "it holds pickled Python objects, which are never loaded, since loading them can run any "
    "program. Save an array of numbers: np.save('x.npy', np.asarray(rows, np.float32))."
)
_CONVERSIONS = {
    (".csv", ".tsv", ".txt"): "np.save({npy!r}, {table})",
    # Floats and lists of each row: names and numbers of rows are no features.
    (".parquet",): "np.save({npy!r}, np.array([np.hstack([v for v in row if isinstance(v, (float, "
    "np.ndarray))]) for row in pandas.read_parquet({path!r}).itertuples(index=False)]))",
    (".pt", ".pth"): "np.save({npy!r}, torch.load({path!r}, map_location='cpu').detach().float())",
    (".h5", ".hdf5"): "np.savez({npz!r}, **h5py.File({path!r}))",
    (".mat",): "np.savez({npz!r}, **{{k: v for k, v in scipy.io.loadmat({path!r}).items() "
    "if k[0] != '_'}})",
    (".pkl",): "np.save({npy!r}, np.array(np.load({path!r}, allow_pickle=True), np.float32))"
    "  # Only if you trust the file: this runs what it holds",
}
_DESCRIPTOR = re.compile(
    r"/dev/fd/(?P<own>\d+)|/proc/(?P<process>\d+)(?:/task/\d+)?/fd/(?P<number>\d+)"
)
_LINKS = 40  # As many as Linux follows before it calls them a loop.

MARK = "written by condvendi_jax"
"""Stands in every table of Markdown and every figure of the command line."""
_MARKED = re.compile(rb"<!-- written by condvendi_jax, sha256 ([0-9a-f]{64}) -->\n\Z")
_LARGEST_OWN = 1 << 26  # Bytes. Results are smaller.


def expanded(path: str | os.PathLike[str]) -> pathlib.Path:
    """The path with a leading `~` or `~user` replaced: no shell does that in --name=~/file."""
    return pathlib.Path(os.path.expanduser(path))


def names_of(paths: Sequence[str]) -> list[str]:
    """A name for each path: that of the file or, where several share it, what differs."""
    plain = [pathlib.Path(os.path.normpath(expanded(path))) for path in paths]
    plain = [path if path.is_dir() else path.with_suffix("") for path in plain]
    names = [path.name for path in plain]
    for name in set(names):
        places = [k for k, other in enumerate(names) if other == name]
        if len(places) < 2:
            continue
        parts = [list(plain[k].parts) for k in places]
        if len(set(map(tuple, parts))) < len(parts):  # They differ in their endings, if at all.
            parts = [list(pathlib.Path(os.path.normpath(paths[k])).parts) for k in places]
        for end in (-1, 0):
            while min(map(len, parts)) > 1 and len({part[end] for part in parts}) == 1:
                parts = [part[:-1] if end else part[1:] for part in parts]
        for k, part in zip(places, parts, strict=True):
            names[k] = "/".join(part)
    return names


def read_array(path: str | os.PathLike[str], *, key: str | None = None) -> np.ndarray:
    """Reads one array from a .npy, .npz or .safetensors file, whatever the ending's case.

    `key` names the array of a .npz or .safetensors file; it may be None where there is only one.
    bfloat16 and smaller floats of a .safetensors file become float32, exactly. Pickled objects are
    never loaded.

    Raises:
      ValueError: the file is missing, damaged, of another format, holds no such array or holds
        records in its place; the message gives the path and the keys that were found.
      OSError: a folder on the way to it may not be entered.
    """
    path = expanded(path)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        convert = convert_command(path)
        hint = f" Convert it, for example with {convert}." if convert else ""
        raise ValueError(f"{path}: expected a file ending in {', '.join(_SUFFIXES)}.{hint}")
    if not path.exists():
        raise ValueError(f"{path}: there is no such file.")
    if not path.is_file():
        what = "a directory" if path.is_dir() else "no regular file"
        raise ValueError(f"{path}: is {what}, expected a {suffix} file.")
    if suffix == ".npy" and key is not None:
        raise ValueError(f"{path}: a .npy file holds one array without a key, received {key!r}.")
    try:
        return _read(path, suffix, key)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from error
    except PermissionError as error:
        raise ValueError(f"{path}: may not be read: {error.strerror}.") from error
    except Exception as error:  # Damaged files fail in any of the readers' ways.
        why = _PICKLED if "allow_pickle" in str(error) else error
        raise ValueError(f"{path}: cannot be read as {suffix}: {why}") from error


def convert_command(path: str | os.PathLike[str]) -> str | None:
    """The line of Python that saves a file of another format as .npy or .npz, if known."""
    path = pathlib.Path(path)
    names = {f"np{kind}": str(path.with_suffix(f".np{kind}")) for kind in "yz"}
    for endings, line in _CONVERSIONS.items():
        if path.suffix.lower() in endings:
            return line.format(path=str(path), table=_table_reading(path), **names)
    return None


def _table_reading(path: pathlib.Path) -> str:
    """What reads the numbers of a table of text; below a header, its decimal columns."""
    first = ""
    if path.is_file():
        with open(path, encoding="utf-8", errors="replace") as stream:
            first = stream.readline().strip("\ufeff\n ")
    delimiter = next((character for character in "\t;," if character in first), None)
    header = "." not in first or re.search("[a-df-z_]", first, re.IGNORECASE)
    if first[:1] in ("", "#") or not header:
        return f"np.loadtxt({str(path)!r}, delimiter={delimiter!r})"
    separator = repr(delimiter or r"\s+")
    return f"pandas.read_csv({str(path)!r}, sep={separator}).select_dtypes('float').to_numpy()"


def read_weights(path: str | os.PathLike[str]) -> np.ndarray:
    """Reads n weights, as `read_labels` reads labels; integers if all of them are written as such.

    Raises:
      ValueError: as `read_labels`; or one is no number, is negative or not finite, or all are zero.
    """
    found = read_labels(path, kind="weight")
    if found.dtype.kind == "U" and expanded(path).suffix.lower() == ".txt":
        numbers = []
        for line, text in enumerate(found.tolist(), 1):
            try:
                numbers.append(int(text) if text.strip("+0123456789 ") == "" else float(text))
            except ValueError:
                place = f"{path}, line {line}"
                raise ValueError(f"{place}: expected a number, received {text!r}.") from None
        found = np.array(numbers)
    return np.asarray(validation.check_weights(found, found.size, name=str(path)))


def read_labels(
    path: str | os.PathLike[str], *, key: str | None = None, kind: str = "label"
) -> np.ndarray:
    """Reads n labels, numbers or strings, from a .txt file or one that `read_array` reads.

    A .txt file has one label a line, in UTF-8. An array is `[n]`, `[n, 1]` or `[1, n]`. Errors call
    the labels by their `kind`.

    Raises:
      ValueError: as `read_array`; a line is blank, the file is not UTF-8, or the array has another
        shape or dtype.
    """
    path = expanded(path)
    if path.suffix.lower() != ".txt":
        if path.suffix.lower() not in _SUFFIXES:
            endings = ", ".join((".txt", *_SUFFIXES))
            raise ValueError(f"{path}: expected a file of {kind}s ending in {endings}.")
        array = read_array(path, key=key)
        if array.size != max(array.shape, default=0) or array.dtype.kind not in "iubUSf":
            received = f"{array.dtype} of shape {list(array.shape)}"
            raise ValueError(f"{path}: expected one {kind} a row [n], received {received}.")
        return array.reshape(-1)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    if key is not None:
        raise ValueError(f"{path}: a .txt file has no keys, received {key!r}.")
    labels = [label for _, label in numbered_lines(path, read_text(path))]
    if not labels:
        raise ValueError(f"{path}: holds no {kind}s.")
    return np.array(labels)


def read_text(path: pathlib.Path) -> str:
    """The content of a text file in UTF-8, without a byte order mark.

    Raises:
      ValueError: the file is not UTF-8; the message gives the line.
    """
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: is not UTF-8 ({error.reason}).") from error


def numbered_lines(path: pathlib.Path, text: str) -> list[tuple[int, str]]:
    """The lines of a file's text without their ends, with their numbers; none may be blank.

    Not `str.splitlines`: a text may hold the other characters that Unicode counts as line ends.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise ValueError(f"{path}, line {number}: is blank.")
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, 1)]


def _read(path: pathlib.Path, suffix: str, key: str | None) -> np.ndarray:
    # Opened here, since np.load leaves a damaged file open.
    with open(path, "rb") as stream:
        if suffix == ".safetensors":
            return _read_safetensors(path, stream, key)
        start = stream.read(len(_BEGINNINGS[0]))
        if start and not start.startswith(_BEGINNINGS):  # np.load would speak of pickles.
            raise ValueError("its content is in another format.")
        stream.seek(0)
        found = np.load(stream, allow_pickle=False)
        # np.load goes by the content, which has to be what the name says.
        content = ".npy" if isinstance(found, np.ndarray) else ".npz"
        if content != suffix:
            raise ValueError(f"its content is that of a {content} file.")
        array = found if isinstance(found, np.ndarray) else found[_only_key(key, found.files)]
    if array.dtype.names is not None:
        raise ValueError(f"expected an array of numbers, received records {array.dtype}.")
    if array.dtype.kind == "V":
        raise ValueError(
            f"its dtype {array.dtype} is raw bytes: NumPy's formats forget what bfloat16 and "
            "float8 are; save float32."
        )
    return array


def _read_safetensors(path: pathlib.Path, stream: BinaryIO, key: str | None) -> np.ndarray:
    from safetensors import safe_open

    with safe_open(path, framework="np") as tensors:
        key = _only_key(key, list(tensors.keys()))
        if tensors.get_slice(key).get_dtype() != "BF16":
            array = tensors.get_tensor(key)
            return array.astype(np.float32) if array.dtype.kind == "V" else array
    # Read by hand: older releases of safetensors have no bfloat16 for NumPy. `safe_open` has found
    # the header sound: its length in 8 bytes, then JSON, then the tensors.
    import ml_dtypes

    length = int.from_bytes(stream.read(8), "little")
    entry = json.loads(stream.read(length))[key]
    start, end = entry["data_offsets"]
    stream.seek(8 + length + start)
    numbers = np.frombuffer(stream.read(end - start), ml_dtypes.bfloat16)
    return numbers.astype(np.float32).reshape(entry["shape"])


def _only_key(key: str | None, found: list[str]) -> str:
    if key is None and len(found) == 1:
        return found[0]
    if key not in found:
        wanted = "which array is meant" if key is None else f"no array {key!r}"
        raise KeyError(f"{wanted}; the keys found are {', '.join(sorted(found)) or 'none'}.")
    return key


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only once it is complete and on disk.

    A link stays, and what it points to is replaced. A pipe, a terminal or another device
    (/dev/stdout, /dev/null) is written to when all is complete, never replaced or truncated. A new
    file has the mode that the umask gives, one that was there keeps its own.

    Raises:
      OSError: the folder cannot be written to, or the disk is full; nothing is left behind.
    """
    path = expanded(path)
    target = _target(path)
    if target is None:
        content = io.BytesIO()
        yield content
        _write_through(path, content.getvalue())
        return
    temporary = target.with_name(f".condvendi-{secrets.token_hex(8)}")
    with _naming(path):
        stream = open(temporary, "xb")  # noqa: SIM115 - closed below. The umask gives its mode.
    interrupts.UNFINISHED.add(temporary)
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
        interrupts.UNFINISHED.discard(temporary)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises OSError if `path` could not be written, before anything is computed.

    Nothing is created, and a pipe is not opened: it would wait for a reader.
    """
    path = expanded(path)
    target = _target(path)
    if target is not None:
        with _naming(path), tempfile.TemporaryFile(dir=target.parent):
            return
    descriptor = _descriptor(path)
    writable = os.access(path, os.W_OK)
    if descriptor is not None:
        import fcntl  # Where descriptors have names, it exists.

        writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    if not writable:
        raise PermissionError(errno.EACCES, "cannot be written to", str(path))


def check_targets(
    targets: Mapping[str, str | os.PathLike[str] | None],
    sources: Mapping[str, Iterable[str | os.PathLike[str]]],
    *,
    overwrite: bool,
) -> None:
    """Checks, before anything is computed, that no file is lost when the targets are written.

    An empty file may be replaced, and a result that this project wrote, if nobody changed it since:
    JSON and Markdown carry a checksum, figures a mark. CSV has room for neither.

    `targets` are the files to write by flag, None where not wanted; `sources` the files, and the
    folders of files, that are read. `overwrite` allows other files to be replaced, except sources.

    Raises:
      ValueError: a target is a source or another target, under any name, or it exists, was not
        written by this project, and `overwrite` is False.
      OSError: a target cannot be written.
    """
    wanted = {flag: expanded(path) for flag, path in targets.items() if path is not None}
    flags: dict[Any, str] = {}
    for flag, path in wanted.items():
        if str(targets[flag]).endswith(("/", os.sep)):
            raise ValueError(f"{flag}={targets[flag]}: names a folder, expected a file.")
        try:
            check_writable(path)
        except OSError as error:
            why = (error.strerror or str(error).removeprefix(f"{path}: ")).rstrip(".")
            advice = "Choose a file in a folder that you can write to."
            raise type(error)(f"{flag}: {path} cannot be written ({why}). {advice}") from error
        place = _place(path)
        if place in flags:
            other = flags[place]
            raise ValueError(
                f"{other}={wanted[other]} and {flag}={path} are the same file, or would be where "
                "upper and lower case are not told apart; give two names."
            )
        if place is not None:
            flags[place] = flag
    for flag, paths in sources.items():
        for path in paths:
            _refuse_source(flag, expanded(path), wanted, flags)
    for flag, path in wanted.items():
        target = _target(path)
        if overwrite or target is None or not target.exists():
            continue
        own = is_own(target) or (flag == "--checkpoint" and is_own(target, checkpoint=True))
        if own and os.access(target, os.W_OK):
            continue
        foreign = "exists and is not an unchanged result of this command"
        why = "is write-protected" if own else foreign
        raise ValueError(
            f"{flag}: {path} {why}. Choose another name, or add --overwrite to replace it."
        )


def _refuse_source(
    flag: str, source: pathlib.Path, targets: Mapping[str, pathlib.Path], flags: Mapping[Any, str]
) -> None:
    """Raises ValueError where a target is the source, or lies in it."""
    try:
        found = os.stat(source)
    except OSError:  # Reading it will say why.
        return
    place = found.st_dev, found.st_ino
    advice = f"{source}, which {flag} reads; choose another name."
    if place in flags:
        raise ValueError(f"{flags[place]}={targets[flags[place]]} would replace {advice}")
    if stat.S_ISDIR(found.st_mode):
        folder = os.path.realpath(source)
        for name, path in targets.items():
            target = os.path.realpath(path)
            if os.path.exists(target) and os.path.commonpath([folder, target]) == folder:
                raise ValueError(f"{name}={path} would replace a file in {advice}")
    for number, name in ((1, "standard output goes"), (2, "standard error goes")):
        with contextlib.suppress(OSError):  # It is closed.
            if os.path.samestat(found, os.fstat(number)) and stat.S_ISREG(found.st_mode):
                why = f"into {source}, which {flag} reads; redirect it elsewhere."
                raise ValueError(f"{name} {why}")


def _place(path: pathlib.Path) -> Any:
    """What all names of a file, there or to be, have in common; None for the null device."""
    descriptor = _descriptor(path)
    if descriptor is None and not path.exists():
        target = pathlib.Path(os.path.realpath(path))
        folder = os.stat(target.parent)
        # Two names that differ in case only are one file on many systems.
        name = unicodedata.normalize("NFC", target.name).casefold()
        return folder.st_dev, folder.st_ino, name
    found = os.stat(path) if descriptor is None else os.fstat(descriptor)
    if stat.S_ISCHR(found.st_mode) and os.path.samestat(found, os.stat(os.devnull)):
        return None
    return found.st_dev, found.st_ino


def is_own(path: pathlib.Path, *, checkpoint: bool = False) -> bool:
    """Whether a file is empty or, by its content, a result or else a checkpoint of this project."""
    try:
        if path.stat().st_size > _LARGEST_OWN:
            return False
        content = path.read_bytes()
    except OSError:
        return False
    if not content.strip():
        return True
    if content.startswith((b"\x89PNG", b"%PDF", b"<?xml")):
        return MARK.encode() in content
    if marked := _MARKED.search(content):
        return marked[1].decode() == hashlib.sha256(content[: marked.start()]).hexdigest()
    try:
        found = json.loads(content)
        own = found.pop("checksum") == _checksum(found)
        return own and str(found.get("kind")).startswith("checkpoint") == checkpoint
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return False


def marked(text: str) -> str:
    """A text with a comment of Markdown at its end that says who wrote it, with its checksum."""
    digest = hashlib.sha256(f"{text}\n".encode()).hexdigest()
    return f"{text}\n<!-- {MARK}, sha256 {digest} -->\n"


def write_report(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Writes a result as JSON, with the checksum by which `check_targets` knows it unchanged."""
    report = jsonable(dict(content))
    write_json(path, {**report, "checksum": _checksum(report)})


def _checksum(report: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(report, sort_keys=True).encode()).hexdigest()


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Whether what is written to `path`, a name or link of any kind, arrives at standard output.

    False for /dev/null, where nothing arrives.
    """
    path = expanded(path)
    if _descriptor(path) == 1:
        return True
    try:
        there, own, null = os.stat(path), os.fstat(1), os.stat(os.devnull)
    except OSError:
        return False
    return os.path.samestat(there, own) and not os.path.samestat(there, null)


def _target(path: pathlib.Path) -> pathlib.Path | None:
    """The regular file, there or to be, that a path means; None for what is written through."""
    descriptor = _descriptor(path)
    if descriptor is not None:
        with _naming(path):
            os.fstat(descriptor)
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


def _descriptor(path: pathlib.Path) -> int | None:
    """The descriptor of this process that a path names, itself or through links.

    Not left to `realpath`: it would go on to the file behind the descriptor, and replacing that
    takes it from under whoever redirected.
    """
    for _ in range(_LINKS):
        parent = os.path.realpath(path.parent)
        found = _DESCRIPTOR.fullmatch(os.path.join(parent, path.name))
        if found and found["own"]:
            return int(found["own"])
        if found and int(found["process"]) == os.getpid():
            return int(found["number"])
        try:
            path = pathlib.Path(parent, os.readlink(path))
        except OSError:
            return None
    return None


def _write_through(path: pathlib.Path, content: bytes) -> None:
    descriptor = _descriptor(path)
    with _naming(path):
        if descriptor is None:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        else:
            # What was printed before comes first. A duplicate shares the place in a file; opening
            # the name anew would begin at the file's beginning.
            sys.stdout.flush()
            sys.stderr.flush()
            handle = os.dup(descriptor)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Names the path, as the user gave it, in an error of the operating system."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Writes JSON atomically; NaN and infinities become null with a reason beside them."""
    text = json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"
    with atomic_writer(path) as stream:
        stream.write(text.encode())


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
        return [
            {"value": None, "reason": reason} if (reason := _not_finite(entry)) else jsonable(entry)
            for entry in value
        ]
    return value


def _not_finite(value: Any) -> str:
    """Why a scalar has no number in JSON; empty where it has one."""
    scalar = isinstance(value, float) or (hasattr(value, "ndim") and value.ndim == 0)
    return f"not a finite number: {float(value)}" if scalar and not math.isfinite(value) else ""
