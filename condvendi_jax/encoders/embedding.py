"""Items to embeddings, each made once: the encoder of a user's choice, and a cache by content."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import itertools
import json
import os
import pathlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from condvendi_jax import encoders
from condvendi_jax.base import checks, extras, files
from condvendi_jax.encoders import pictures
from condvendi_jax.encoders.interface import EncoderError, check_several, checked_texts
from condvendi_jax.encoders.named import PREFIXES, NamedEncoder

_DEFAULTS = ("all-MiniLM-L6-v2", "EfficientNet-Lite0")  # As results name them.
_FORMAT = 2  # Of the cache's files, and of how pictures are decoded: raised when either changes.
_BATCHES = {"images": 64, "texts": 256}
_BYTES = 2**28  # Of decoded pictures that are held at once.
_ROUNDING = 1e-5  # Of a row's largest entry. Encoders round at 1e-6; one pixel's step moves 8e-5.

_MODELS = {"clip": "open_clip:ViT-B-32/openai", "dino": "timm:vit_small_patch14_dinov2.lvd142m"}
Kind = Literal["images", "texts"]


@dataclasses.dataclass(frozen=True)
class LoadedEncoder:
    """An encoder, which has `encode(items)`, with its import path, `package.module:attribute`."""

    encoder: Any
    spec: str

    @property
    def name(self) -> str:
        """The name that the encoder has, or else its import path."""
        return str(getattr(self.encoder, "name", None) or self.spec)

    @property
    def bandwidth(self) -> float | None:
        """The Gaussian bandwidth that fits people's judgements, if it is known."""
        return getattr(self.encoder, "bandwidth", None)

    @property
    def source(self) -> str | None:
        """The digest of the file of its code; None if it was made at a prompt, or compiled."""
        code = self.encoder if inspect.isfunction(self.encoder) else type(self.encoder)
        with contextlib.suppress(TypeError, OSError):
            return digest_of(pathlib.Path(inspect.getfile(code)).read_bytes())
        return None

    def described(self, kind: str) -> dict[str, Any]:
        """For JSON: its name, path, revision and details, by `text_encoder` or `image_encoder`."""
        details, package = (getattr(self.encoder, n, "") for n in ("details", "package"))
        role = kind if kind == "similarity" else f"{kind[:-1]}_encoder"
        told = {role: self.name, f"{role}_path": self.spec}
        with contextlib.suppress(ModuleNotFoundError, ValueError):  # Of weights without a package.
            told[f"{role}_revision"] = f"{package} {importlib.metadata.version(package)}"
        return told | ({f"{role}_details": details} if details else {})


def load_encoder(
    spec: str | None, default: Any = None, *, named: Any = None, **options: Any
) -> LoadedEncoder:
    """Return the encoder that a name or an import path gives.

    Args:
      spec: a model or its folder, `st:NAME` of sentence-transformers, `timm:NAME`, both also with
        `@REVISION`, or `open_clip:ARCH/PRETRAINED`; or `package.module:attribute`: an object with
        `encode(items)`, or what makes one. The current folder is searched last. None: the default.
      default: makes the encoder where `spec` is None.
      named: options of a model by name: `kind`, `images` or `texts` (if unset, images for timm);
        `device`, `cuda`, `mps` or `cpu` (the best there is); `batch_size` (32).
      options: arguments of the class or function.
    """
    spec = None if spec in _DEFAULTS else spec
    encoder: Any = default if spec is None else imported(spec, named or {})
    spec = spec or f"{encoder.__module__}:{encoder.__qualname__}"
    if callable(encoder) and (isinstance(encoder, type) or not hasattr(encoder, "encode")):
        encoder = made(spec, encoder, **options)
    if not callable(getattr(encoder, "encode", None)):
        raise ValueError(f"{spec}: gives {type(encoder).__name__}, which has no `encode`.")
    return LoadedEncoder(encoder, spec)


def as_loaded(encoder: Any) -> LoadedEncoder:
    """The encoder with the import path of its class, if it has none yet."""
    maker = encoder if hasattr(encoder, "__qualname__") else type(encoder)
    spec = f"{maker.__module__}:{maker.__qualname__}"
    return encoder if isinstance(encoder, LoadedEncoder) else LoadedEncoder(encoder, spec)


def encoder_of(kind: Kind, encoder: Any) -> LoadedEncoder:
    """An encoder that is passed or named; all-MiniLM-L6-v2 or EfficientNet-Lite0 where None."""
    if encoder is None or isinstance(encoder, str):
        default = encoders.load_minilm if kind == "texts" else encoders.load_efficientnet
        return load_encoder(encoder, default, named={"kind": kind})
    if not callable(getattr(encoder, "encode", None)) and not isinstance(encoder, LoadedEncoder):
        expected = "expected an object with encode(items), or types.SimpleNamespace(encode=f)"
        raise TypeError(f"encoder: {expected} of a function f, received {type(encoder).__name__}.")
    return as_loaded(encoder)


def made(spec: str, maker: Any, **options: Any) -> Any:
    """What a class or function of a user makes."""
    try:
        return maker(**options)
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        kind = extras.MissingExtra if isinstance(error, extras.MissingExtra) else ValueError
        raise kind(f"{spec}: could not be made: {told(error)}") from error


def told(error: BaseException) -> str:
    """The first line of an error, and its kind."""
    kind = "" if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: "
    return f"{kind}{error}".partition("\n")[0][:500]


def imported(spec: str, named: Mapping[str, Any] | None = None) -> Any:
    """What an import path gives, or the maker of a model by name with options, if `named`."""
    if named is not None and spec.startswith(PREFIXES):
        return functools.partial(NamedEncoder, spec, **named)
    if not all(spec.partition(":")):
        model = next((m for key, m in _MODELS.items() if key in spec.lower()), f"st:{spec}")
        names = f"open_clip:ARCH/PRETRAINED, timm:NAME or st:NAME, such as {model}, or "
        names *= named is not None
        raise ValueError(f"{spec!r}: expected {names}package.module:attribute.")
    if not {"", os.getcwd()} & {*sys.path}:
        sys.path.append(os.getcwd())  # An installed command does not look there, `python -m` does.
    try:
        return pkgutil.resolve_name(spec)
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        names = "" if named is None else f". By name: {', '.join(PREFIXES)}"
        raise ValueError(f"{spec}: cannot be imported: {told(error)}{names}") from error


def default_cache() -> pathlib.Path:
    """The folder of the cache where none is named: `condvendi` in the user's cache folder."""
    return files.user_cache() / "condvendi"


def embed(
    items: Sequence[Any],
    encoder: Any,
    *,
    kind: Kind,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int], Any] = lambda _: None,
) -> np.ndarray:
    """Embeds pictures or texts, float32 `[n, d]`, each content once, now and in later calls.

    The cache knows an item by its content: files may be renamed, reordered and copied. It knows an
    encoder by its name, import path, `details`, the source file of its class and its size of
    pictures: give other weights another name. Nothing is kept of an encoder that has neither a
    `name` nor `details`. What is finished is kept when a call is interrupted.

    Args:
      items: n paths of pictures or pictures of Pillow, or n texts.
      encoder: with `encode(items) -> [n, d]`. Pictures are lists of uint8 `[height, width, 3]`.
      kind: `images` or `texts`.
      cache: folder of the cache; `default_cache()` if None. Where that cannot be written, nothing
        is kept, with a warning; with one, too, if a folder is given and the encoder is not known.
      progress: called with the number of items that are done.
    """
    if kind not in _BATCHES:
        raise ValueError(f"kind: expected one of {', '.join(_BATCHES)}, received {kind!r}.")
    check_several(items)
    items = checked_texts(items) if kind == "texts" else [*map(pictures.located, items)]
    if not items:
        raise ValueError(f"no {kind} to embed.")
    loaded = as_loaded(encoder)
    if kind == "texts" and (cut := getattr(loaded.encoder, "describe_cut", lambda _: None)(items)):
        checks.warn(cut)
    known = getattr(loaded.encoder, "name", None) or hasattr(loaded.encoder, "details")
    shelf = Shelf.of(cache, loaded, kind) if known else None
    if cache is not None and not known:
        checks.warn(f"cache: not used, since {loaded.name} has neither a `name` nor `details`.")
    digests = [digest_of(i.encode() if isinstance(i, str) else i.read_bytes()) for i in items]
    counts = collections.Counter(digests)
    # Of equal contents the first stands for all.
    first = {digest: row for row, digest in reversed([*enumerate(digests)])}
    rows = shelf.read(set(first)) if shelf else {}
    missing = {digest: items[first[digest]] for digest in counts if digest not in rows}
    progress(done := sum(counts[digest] for digest in rows))
    for batch in _batches(missing, kind, getattr(loaded.encoder, "side", None)):
        names = [str(missing[digest]) for digest in batch]
        made = dict(zip(batch, _embeddings(loaded, [*batch.values()], names), strict=True))
        if shelf and not shelf.write(made):
            shelf = None
        rows |= made
        progress(done := done + sum(counts[digest] for digest in batch))
    lengths = sorted({row.size for row in rows.values()})
    if len(lengths) > 1:
        raise ValueError(f"{loaded.name}: gave rows of {lengths[0]} and of {lengths[1]} numbers.")
    embeddings = np.stack([rows[digest] for digest in digests])
    rows.clear()  # Else they are there twice.
    _warn_of_equal(items, embeddings, list(first.values()), loaded)
    return embeddings


def _warn_of_equal(items: Sequence[Any], rows: np.ndarray, unlike: list[int], encoder: Any) -> None:
    """Warns where the rows of items with `unlike` contents are equal up to rounding."""
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), rows.shape[1])
    order = sorted(unlike, key=(rows @ (signs / max(largest.max(), 1))).tolist().__getitem__)
    pairs = [  # Equal rows are neighbours in the order of a random sum of their entries.
        sorted(pair)
        for pair in itertools.pairwise(order)
        if np.abs(np.subtract(*rows[[*pair]])).max() <= _ROUNDING * largest[pair[0]]
    ]
    if pairs:
        what, why = "pictures", "Pixels may be equal, or all of one colour"
        if isinstance(items[0], str):
            what, why = "texts", "An encoder may not know some words, or ignore capitals and spaces"
        one, two = (str(getattr(items[row], "name", items[row]))[:80] for row in min(pairs))
        checks.warn(
            f"{encoder.name}: {len({*itertools.chain(*pairs)}):,} of {len(unlike):,} different "
            f"{what} have the embedding of another, which no kernel tells apart, for example "
            f"{one!r} and {two!r}. {why}."
        )


def digest_of(content: bytes) -> str:
    """The name of a content."""
    return hashlib.sha256(content).hexdigest()


def _batches(missing: Mapping[str, Any], kind: Kind, side: int | None) -> Iterator[dict[str, Any]]:
    batch, held = dict[str, Any](), 0
    for digest, item in missing.items():
        batch[digest] = item
        if kind == "images":
            batch[digest] = pictures.decode_image(item.read_bytes(), name=f"{item}", side=side)
            held += batch[digest].nbytes
        if len(batch) == _BATCHES[kind] or held > _BYTES:
            yield batch
            batch, held = {}, 0
    if batch:
        yield batch


def _embeddings(loaded: LoadedEncoder, batch: list[Any], names: list[str]) -> np.ndarray:
    """Return the batch's embeddings, float32 `[n, d]`, after checks."""
    try:
        rows = loaded.encoder.encode(batch)
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        which = ", ".join(dict.fromkeys((loaded.name, loaded.spec)))
        items = f"a batch of {len(batch)} that starts with {names[0][:80]!r}"
        raise EncoderError(f"the encoder {which} failed on {items}: {told(error)}") from error
    try:
        rows = np.asarray(rows)
    except Exception as error:  # A tensor on another device, or one that requires a gradient.
        raise ValueError(f"{loaded.name}: expected arrays, received {error}") from error
    shape = list(rows.shape)
    if rows.ndim != 2 or len(rows) != len(batch) or not rows.size:
        raise ValueError(f"{loaded.name}: expected embeddings [{len(batch)}, d], received {shape}.")
    if rows.dtype.kind in "OSUMmc":
        raise ValueError(f"{loaded.name}: expected real numbers, received {rows.dtype}.")
    with np.errstate(over="ignore"):  # Named below.
        rows = rows.astype(np.float32)
    if (bad := np.flatnonzero(~np.isfinite(rows).all(axis=1))).size:
        raise ValueError(f"{loaded.name}: gives NaN or infinity for {names[bad[0]][:80]!r}.")
    return rows


@dataclasses.dataclass(frozen=True)
class Shelf:
    """One encoder's folder: a file a batch, with digests `[m]` and rows `[m, d]` of numbers."""

    folder: pathlib.Path

    @classmethod
    def of(cls, cache: files.StrPath | None, loaded: LoadedEncoder, kind: str) -> Self | None:
        """The folder of an encoder in a cache; None, with a warning, if there can be none."""
        made_by = {"format": _FORMAT, "kind": kind, "encoder": loaded.name, "spec": loaded.spec}
        made_by |= {"source": loaded.source, "side": getattr(loaded.encoder, "side", None)}
        made_by |= getattr(loaded.encoder, "details", {})
        identity = json.dumps(made_by, sort_keys=True, default=str)
        root = default_cache() if cache is None else files.expanded(cache)
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", loaded.name)[:60].lstrip(".")
        folder = root / f"{name}-{digest_of(identity.encode())[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files.check_writable(folder / "x.npz")
        except OSError as error:
            if cache is not None:
                raise
            checks.warn(f"embeddings are not kept: {error}")
            return None
        return cls(folder)

    def read(self, wanted: set[str]) -> dict[str, np.ndarray]:
        """The rows of those digests that are there; a file that cannot be read is removed."""
        rows: dict[str, np.ndarray] = {}
        for path in sorted(self.folder.glob("*.npz")):
            try:
                with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
                    if wanted.isdisjoint(digests := archive["digests"].tolist()):
                        continue
                    embeddings = archive["embeddings"]  # NumPy checks the checksum of each array.
                rows |= {d: r for d, r in zip(digests, embeddings, strict=True) if d in wanted}
            except Exception as error:  # Damaged files fail in any of the readers' ways.
                sys.stderr.write(f"{path}: damaged ({error}); made anew.\n")
                path.unlink(missing_ok=True)
        return rows

    def write(self, rows: Mapping[str, np.ndarray]) -> bool:
        """Keeps the rows of a batch, all or none, and says whether it could."""
        digests, embeddings = list(rows), np.stack(list(rows.values()))
        name = digest_of("".join(digests).encode())[:32]
        try:
            with files.atomic_writer(self.folder / f"{name}.npz") as stream:
                np.savez(stream, digests=digests, embeddings=embeddings)
        except OSError as error:
            checks.warn(f"embeddings are no longer kept: {error}")
            return False
        return True
