"""Items to embeddings, each made once: the encoder of a user's choice, and a cache by content.

The encoder runs in this process or, by an executor, in others, on this host or on several.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from typing import Any, Literal

import numpy as np

from condvendi_jax import files, validation
from condvendi_jax.encoders.interface import EncoderError, Progress, checked_texts
from condvendi_jax.encoders.items import decode_image

_FORMAT = 2  # Of the cache's files, and of how pictures are decoded: raised when either changes.
_BATCHES = {"images": 64, "texts": 1024}
_BYTES = 2**28  # Of decoded pictures that are held at once.
_ROUNDING = 1e-5  # Of a row's largest entry. Encoders round at 1e-6; one pixel's step moves 8e-5.

Kind = Literal["images", "texts"]


@dataclasses.dataclass(frozen=True)
class LoadedEncoder:
    """An encoder, which has `encode(items)`, with its import path, `package.module:attribute`.

    `options` are the arguments, by name, of the function that the path names.
    """

    encoder: Any
    spec: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the encoder calls itself, or else its import path."""
        return str(getattr(self.encoder, "name", None) or self.spec)

    @property
    def side(self) -> int | None:
        """Pixels along each side of the pictures that it takes; None for those of any size."""
        return getattr(self.encoder, "side", None)


def load_encoder(
    spec: str | None, default: Callable[..., Any] | None = None, **options: Any
) -> LoadedEncoder:
    """The encoder that an import path names.

    Args:
      spec: `package.module:attribute`: an object with `encode(items)`, or a class or function that
        makes one. The current folder is searched last. None takes the default.
      default: makes the encoder where `spec` is None.
      options: arguments of the class or function.

    Raises:
      ValueError: it cannot be imported or made, for example because a package or the weights are
        missing, or what is found has no `encode`.
    """
    found: Any = default if spec is None else _import(spec)
    spec = spec or f"{found.__module__}:{found.__qualname__}"
    if isinstance(found, type) or not callable(getattr(found, "encode", None)):
        if not callable(found):
            raise ValueError(f"{spec}: is {type(found).__name__}, which has no `encode`.")
        try:
            found = found(**options)
        except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
            raise ValueError(f"{spec}: could not be made: {_told(error)}") from error
    if not callable(getattr(found, "encode", None)):
        raise ValueError(f"{spec}: gives {type(found).__name__}, which has no `encode`.")
    return LoadedEncoder(found, spec, options)


def _told(error: BaseException) -> str:
    kind = "" if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: "
    return f"{kind}{error}"


def source_of(spec: str) -> str | None:
    """The file of the module that an import path names, without importing it; None if unknown."""
    _search_here()
    try:
        found = importlib.util.find_spec(spec.partition(":")[0])
    except (Exception, SystemExit):  # Packages on the way are imported: anything may come.
        return None
    return found.origin if found and found.has_location else None


def _search_here() -> None:
    """Lets modules of the current folder be imported, after all others."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # An installed command does not look there, `python -m` does.


def _import(spec: str) -> Any:
    module_name, colon, attribute = spec.partition(":")
    if not (colon and module_name and attribute):
        raise ValueError(f"{spec!r}: expected package.module:attribute.")
    _search_here()
    try:
        value: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        raise ValueError(f"{spec}: {module_name} cannot be imported: {_told(error)}") from error
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise ValueError(f"{spec}: {module_name} has no attribute {attribute!r}.")
        value = getattr(value, name)
    return value


def default_cache() -> pathlib.Path:
    """The folder of the cache where none is named: `condvendi` in the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return files.expanded(root if os.path.isabs(root) else "~/.cache") / "condvendi"


def embed(
    items: Sequence[str | os.PathLike[str]],
    encoder: Any,
    *,
    kind: Kind,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> np.ndarray:
    """Embeds pictures or texts, each content once, now and in later calls.

    The cache knows an item by its content: files may be renamed, reordered and copied. It knows an
    encoder by its name, import path, the source file of its class and its size of pictures: give
    other weights another name. What is finished is kept when a call is interrupted.

    With an executor, the encoder runs in other processes, on parts of the items; this process keeps
    what they return. If one of them is killed, the call fails and the next call makes the rest.

    Args:
      items: n paths of pictures, or n texts.
      encoder: with `encode(items) -> [n, d]`. Pictures are lists of uint8 `[height, width, 3]`.
      kind: `images` or `texts`.
      cache: folder of the cache; `default_cache()` if None. Where that cannot be written, nothing
        is kept, with a warning.
      progress: called with the number of items that were just finished.
      executor: of other processes, such as `concurrent.futures.ProcessPoolExecutor` or Dask's
        `client.get_executor()`. Each loads the encoder by its import path, once, and reads the
        pictures itself. `encoder` must then be what `load_encoder` returns.

    Returns:
      float32 `[n, d]`, row by row.

    Raises:
      TypeError: `items` is one text or path instead of a sequence, an item is not a text, or
        `executor` is given an encoder without an import path.
      ValueError: there are no items, a picture cannot be decoded, Pillow is not installed, or what
        the encoder gives is not one finite row an item.
      EncoderError: the encoder raised an error; the message names the first item that it failed on.
      OSError: a picture cannot be read, or the folder that was named cannot be written to.
    """
    if kind not in _BATCHES:
        raise ValueError(f"kind: expected one of {', '.join(_BATCHES)}, received {kind!r}.")
    if kind == "texts":
        items = checked_texts(items)
    elif isinstance(items, (str, bytes, os.PathLike)):
        raise TypeError(
            f"items: expected a sequence of paths, received one {type(items).__name__}; for one "
            "picture pass a list, [path]."
        )
    else:
        items = [files.expanded(item) for item in items]
    if not items:
        raise ValueError(f"no {kind} to embed.")
    spec = f"{type(encoder).__module__}:{type(encoder).__qualname__}"
    if executor is not None and not isinstance(encoder, LoadedEncoder):
        raise TypeError(
            "executor: other processes load the encoder by its import path. Pass what "
            f"load_encoder('package.module:attribute') returns; received {spec}."
        )
    loaded = encoder if isinstance(encoder, LoadedEncoder) else LoadedEncoder(encoder, spec)
    describe_cut = getattr(loaded.encoder, "describe_cut", None)
    if describe_cut and kind == "texts" and (cut := describe_cut(items)):
        validation.warn(cut)
    shelf = _open_shelf(cache, _identity(loaded, kind))
    contents = (i.read_bytes() if isinstance(i, pathlib.Path) else i.encode() for i in items)
    digests = list(map(_digest, contents))
    counts = collections.Counter(digests)
    # Of equal contents the first stands for all.
    places = {digest: item for digest, item in zip(reversed(digests), reversed(items), strict=True)}
    rows = shelf.read(set(places)) if shelf else {}
    missing = {digest: places[digest] for digest in dict.fromkeys(digests) if digest not in rows}
    if progress is not None and rows:
        progress(sum(counts[digest] for digest in rows))
    for found in _made(missing, kind, loaded, executor):
        if shelf and not shelf.write(found):
            shelf = None
        rows |= found
        if progress is not None:
            progress(sum(counts[digest] for digest in found))
    lengths = sorted({row.size for row in rows.values()})
    if len(lengths) > 1:
        raise ValueError(f"{loaded.name}: gave rows of {lengths[0]} and of {lengths[1]} numbers.")
    _warn_of_equal({places[digest]: rows[digest] for digest in counts}, loaded)
    return np.stack([rows[digest] for digest in digests])


def _warn_of_equal(embedded: Mapping[Any, np.ndarray], encoder: LoadedEncoder) -> None:
    """Warns where the rows of different contents are equal up to rounding."""
    items, rows = list(embedded), np.stack(list(embedded.values()))
    rows = rows / max(np.abs(rows).max(), 1)
    largest = np.abs(rows).max(axis=1)
    order = np.argsort(rows @ np.random.default_rng(0).choice([-1, 1], rows.shape[1])).tolist()
    pairs = [  # Equal rows are neighbours in the order of a random sum of their entries.
        sorted(pair)
        for step in (1, 2)
        for pair in zip(order, order[step:], strict=False)
        if np.abs(np.subtract(*rows[[*pair]])).max() <= _ROUNDING * largest[pair[0]]
    ]
    if not pairs:
        return
    equal = [items[row] for row in sorted(set(itertools.chain(*pairs)))]
    one, two = (str(getattr(items[row], "name", items[row]))[:80] for row in min(pairs))
    what, cause = "pictures", "Their pixels may be equal, or all of one colour."
    if isinstance(items[0], str):
        what, cause = "texts", "It may not know some words, or ignore capitals, accents and spaces."
    validation.warn(
        f"{encoder.name}: {len(equal):,} of {len(items):,} different {what} have the embedding of "
        f"another, which no kernel tells apart, for example {one!r} and {two!r}. "
        f"{cause}"
    )


def _made(
    missing: dict[str, Any], kind: Kind, loaded: LoadedEncoder, executor: Executor | None
) -> Iterator[dict[str, np.ndarray]]:
    """The rows of the items by digest, a batch at a time, in the order in which they are ready."""
    if executor is None:
        for batch in _batches(missing, kind, loaded.side):
            names = [str(missing[digest]) for digest in batch]
            yield dict(zip(batch, _checked(loaded, list(batch.values()), names), strict=True))
        return
    entries, size = list(missing.items()), _BATCHES[kind]
    parts = [dict(entries[start : start + size]) for start in range(0, len(entries), size)]
    origin = loaded.spec, tuple(sorted(loaded.options.items())), _identity(loaded, kind)
    tasks = [executor.submit(_made_elsewhere, part, kind, *origin) for part in parts]
    failure = None
    try:
        for task in as_completed(tasks):
            if task.cancelled():
                continue
            error = task.exception()
            if error is None:
                yield task.result()
            elif failure is None:
                failure = error  # Raised when the parts that are under way have ended: they count.
                for other in tasks:
                    other.cancel()
    finally:
        for task in tasks:
            task.cancel()
    if failure is not None:
        raise failure


def _made_elsewhere(
    part: dict[str, Any], kind: Kind, spec: str, options: tuple[Any, ...], identity: str
) -> dict[str, np.ndarray]:
    """The rows of a part of the items, in another process."""
    loaded = _loaded_once(spec, options)
    if _identity(loaded, kind) != identity:
        raise ValueError(
            f"executor: another process loads another encoder by {spec}, or another version of it: "
            f"{_identity(loaded, kind)} instead of {identity}."
        )
    rows: dict[str, np.ndarray] = {}
    for found in _made(part, kind, loaded, None):
        rows |= found
    return rows


@functools.cache
def _loaded_once(spec: str, options: tuple[Any, ...]) -> LoadedEncoder:
    return load_encoder(spec, **dict(options))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _batches(
    missing: Mapping[str, str | pathlib.Path], kind: Kind, side: int | None
) -> Iterator[dict[str, Any]]:
    """What the encoder is given, a batch at a time, by digest; one error names all that break."""
    batch: dict[str, Any] = {}
    held, broken = 0, []
    for digest, item in missing.items():
        if isinstance(item, pathlib.Path):
            content = item.read_bytes()
            if _digest(content) != digest:
                raise ValueError(f"{item}: was changed while it was read.")
            try:
                batch[digest] = decode_image(content, name=str(item), side=side)
                held += batch[digest].nbytes
            except ValueError as error:
                broken.append(str(error))
        else:
            batch[digest] = item
        if len(batch) == _BATCHES[kind] or held > _BYTES:
            if not broken:
                yield batch
            batch, held = {}, 0
    if broken:
        raise ValueError("\n".join(dict.fromkeys(broken)))
    if batch:
        yield batch


def _checked(loaded: LoadedEncoder, batch: list[Any], names: list[str]) -> np.ndarray:
    """The batch's embeddings, float32 `[n, d]`, finite."""
    try:
        found = loaded.encoder.encode(batch)
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        raise EncoderError(_failure(loaded, batch, names, error)) from error
    try:
        found = np.asarray(found)
    except Exception as error:  # A tensor on another device, or one that requires a gradient.
        raise ValueError(f"{loaded.name}: expected arrays, received {error}") from error
    shape = list(found.shape)
    if found.ndim != 2 or len(found) != len(batch) or not found.size:
        raise ValueError(f"{loaded.name}: expected embeddings [{len(batch)}, d], received {shape}.")
    if found.dtype.kind in "OSUMmc":
        raise ValueError(f"{loaded.name}: expected real numbers, received {found.dtype}.")
    with np.errstate(over="ignore"):  # Named below.
        found = found.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise ValueError(f"{loaded.name}: gives NaN or infinity for {names[bad[0]][:80]!r}.")
    return found


def _failure(loaded: LoadedEncoder, batch: list[Any], names: list[str], error: Any) -> str:
    """Which encoder raised an error, and on which item first: each is tried by itself."""
    for item, name in zip(batch, names, strict=True):
        try:
            loaded.encoder.encode([item])
        except (Exception, SystemExit):  # The code is the user's: anything may come.
            where = f"on {name[:80]!r}"
            break
    else:
        where = f"on a batch of {len(batch)}, though on none of its items alone"
    told = _told(error).partition("\n")[0]  # The traceback has the rest.
    which = dict.fromkeys((loaded.name, loaded.spec))
    return f"the encoder {', '.join(which)} failed {where}: {told}"


def _identity(loaded: LoadedEncoder, kind: Kind) -> str:
    """What the rows depend on beside the items, as JSON."""
    try:
        source = _digest(pathlib.Path(inspect.getfile(type(loaded.encoder))).read_bytes())
    except (TypeError, OSError):  # Made at a prompt, or compiled.
        source = None
    identity = {"format": _FORMAT, "kind": kind, "encoder": loaded.name, "spec": loaded.spec}
    return json.dumps(identity | {"source": source, "side": loaded.side}, sort_keys=True)


def _open_shelf(cache: str | os.PathLike[str] | None, identity: str) -> _Shelf | None:
    root = default_cache() if cache is None else files.expanded(cache)
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", json.loads(identity)["encoder"])[:60].lstrip(".")
    shelf = _Shelf(root / f"{name}-{_digest(identity.encode())[:16]}", identity)
    try:
        shelf.folder.mkdir(parents=True, exist_ok=True)
        files.check_writable(shelf.folder / "x.npz")
    except OSError as error:
        if cache is not None:
            raise
        validation.warn(f"embeddings are not kept: {error}")
        return None
    return shelf


def _name(digests: Sequence[str], embeddings: np.ndarray) -> str:
    return _digest("".join(digests).encode() + embeddings.tobytes())[:32]


@dataclasses.dataclass(frozen=True)
class _Shelf:
    """One encoder's folder: a file a batch, of digests [m] and embeddings [m, d], by checksum."""

    folder: pathlib.Path
    identity: str

    def read(self, wanted: set[str]) -> dict[str, np.ndarray]:
        """The rows of those digests that are there; damaged files are named and removed."""
        rows: dict[str, np.ndarray] = {}
        for path in sorted(self.folder.glob("*.npz")):
            try:
                rows |= self._read_file(path, wanted)
            except (OSError, MemoryError) as error:
                sys.stderr.write(f"{path}: cannot be read ({error}); made anew.\n")
            except Exception as error:  # Damaged files fail in any of the readers' ways.
                sys.stderr.write(f"{path}: damaged ({error}); made anew.\n")
                path.unlink(missing_ok=True)
        return rows

    def _read_file(self, path: pathlib.Path, wanted: set[str]) -> dict[str, np.ndarray]:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if str(archive["identity"]) != self.identity:
                raise ValueError("it is another encoder's")
            digests = archive["digests"].tolist()
            if wanted.isdisjoint(digests):
                return {}
            embeddings = archive["embeddings"]
        if embeddings.dtype != np.float32 or embeddings.ndim != 2:
            raise ValueError(f"it holds {embeddings.dtype} {list(embeddings.shape)}")
        if path.stem != _name(digests, embeddings) or not np.isfinite(embeddings).all():
            raise ValueError("its numbers are not those that were written")
        pairs = zip(digests, embeddings, strict=True)
        return {digest: row for digest, row in pairs if digest in wanted}

    def write(self, rows: Mapping[str, np.ndarray]) -> bool:
        """Keeps the rows of a batch, all or none, and says whether it could."""
        digests, embeddings = list(rows), np.stack(list(rows.values()))
        try:
            with files.atomic_writer(self.folder / f"{_name(digests, embeddings)}.npz") as stream:
                np.savez(stream, identity=self.identity, digests=digests, embeddings=embeddings)
        except OSError as error:
            validation.warn(f"embeddings are no longer kept: {error}")
            return False
        return True
