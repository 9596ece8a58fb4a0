"""Matrices of similarities by a function of two items: every pair once, kept by its contents."""

import inspect
import itertools
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.base import checks, files
from condvendi_jax.encoders import embedding
from condvendi_jax.encoders.embedding import LoadedEncoder, Shelf, digest_of, imported, made, told
from condvendi_jax.encoders.interface import EncoderError

_KEPT_EVERY = 10.0  # Seconds between two files of the cache.
_BOTH_ORDERS = 10  # Pairs that are compared in both orders, to see whether a function is symmetric.
_SYMMETRIC, _ITSELF = 1e-4, 0.1  # How far orders, and an item and itself, may be apart.


def as_loaded(function: Any) -> LoadedEncoder:
    """The function, object or class, with its import path, from which it is imported if given."""
    if isinstance(function, str):
        function = LoadedEncoder(imported(function), function)
    loaded = embedding.as_loaded(function)
    if isinstance(loaded.encoder, type):
        loaded = LoadedEncoder(made(loaded.spec, loaded.encoder), loaded.spec)
    if not callable(loaded.encoder):
        expected = "similarity: expected a function of two outputs"
        raise TypeError(f"{expected}, received {loaded.encoder!r}.")
    return loaded


def matrices(
    function: Any,
    items: Sequence[Any],
    rows_of: Mapping[Any, np.ndarray],
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> dict[Any, np.ndarray]:
    """The matrix `[k, k]` of the items of each label: see `Similarities.from_function`."""
    loaded = as_loaded(function)
    keys = list(map(_key, items))
    item_of = dict(zip(keys, items, strict=True))
    # Every two contents of a label, in the order of their keys, which is not that of the rows.
    pairs = {
        one + other: (item_of[one], item_of[other])
        for rows in rows_of.values()
        for one, other in itertools.combinations(sorted({keys[row] for row in rows}), 2)
    }
    values = _computed(loaded, pairs, cache, progress or (lambda *_: None))
    matrices = {}
    for label, rows in rows_of.items():
        matrix = matrices[label] = np.eye(len(rows))
        for (i, one), (j, other) in itertools.combinations(enumerate(keys[row] for row in rows), 2):
            value = 1.0 if one == other else values[min(one, other) + max(one, other)]
            matrix[i, j] = matrix[j, i] = value
    return matrices


def _is_known(function: Any) -> bool:
    """Whether its file, or its `details`, tell all that its values depend on."""
    if hasattr(function, "details"):
        return True
    plain = inspect.isfunction(function)
    # A function, or a method: a compiled class has none.
    code = function if plain else vars(type(function)).get("__call__")
    if not inspect.isfunction(code) or code.__closure__ or "<" in code.__qualname__:
        return False
    return not hasattr(code, "__wrapped__") and (plain or getattr(function, "__dict__", None) == {})


def _key(item: Any) -> str:
    """What an item is known by: its content, that of the file if it is a path."""
    if isinstance(item, os.PathLike):
        content = files.expanded(item).read_bytes()
    elif isinstance(item, str):
        content = item.encode("utf-8", "surrogatepass")
    else:
        content = pickle.dumps(item)
    return digest_of(content)[:16]


def _computed(
    loaded: LoadedEncoder,
    pairs: Mapping[str, tuple[Any, Any]],
    cache: str | os.PathLike[str] | None,
    tell: Callable[[int, int], Any],
) -> dict[str, float]:
    """The value of every pair; those in the cache are not computed again."""
    size = getattr(loaded.encoder, "batch_size", 1)
    checks.check_count(size, name="batch_size", minimum=1)
    shelf = None
    if loaded.source and _is_known(loaded.encoder):
        shelf = Shelf.of(cache, loaded, "similarity")
    kept = shelf.read(set(pairs)) if shelf else {}
    values = {key: float(row[0]) for key, row in kept.items()}
    missing = [key for key in pairs if key not in values]
    batch = missing[:1]
    fresh: dict[str, np.ndarray] = {}
    kept_at = time.monotonic()
    try:
        _check(loaded, [pairs[key] for key in missing[:_BOTH_ORDERS]])
        for start in range(0, len(missing), size):
            tell(len(values), len(pairs))
            batch = missing[start : start + size]
            computed = _values(loaded, [pairs[key] for key in batch])
            values |= zip(batch, computed, strict=True)
            fresh |= {key: np.array([values[key]]) for key in batch}
            if shelf and time.monotonic() - kept_at > _KEPT_EVERY:
                shelf = shelf if shelf.write(fresh) else None
                fresh, kept_at = {}, time.monotonic()
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        rest = f"The other {len(values):,} are kept, and the next call computes the rest."
        if not shelf:
            rest = "None is kept, as help(cv.Similarities.from_function) says of its cache."
        which = f"a batch of {len(batch)} that starts with " if len(batch) > 1 else ""
        raise EncoderError(
            f"the similarity {loaded.name} failed for {which}{_of(*pairs[batch[0]])}: "
            f"{told(error)}. "
            f"{len(pairs) - len(values):,} of {len(pairs):,} pairs have no value. {rest}"
        ) from error
    finally:
        if shelf and fresh:
            shelf.write(fresh)
    tell(len(values), len(pairs))
    return values


def _values(loaded: LoadedEncoder, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    """The checked values of pairs, of one only where the function takes no batches."""
    ones, others = map(list, zip(*pairs, strict=True))
    if not hasattr(loaded.encoder, "batch_size"):
        ones, others = ones[0], others[0]
    values = np.asarray(loaded.encoder(ones, others), np.float64).reshape(-1)
    if values.size != len(pairs):
        raise ValueError(f"expected {len(pairs)} numbers, received {values.size}")
    for value in values:
        if not abs(value) <= 1 + _SYMMETRIC:
            raise ValueError(
                f"expected a similarity in [-1, 1], received {value:g}; of a distance return, for "
                "example, exp(-distance)"
            )
    return values.tolist()


def _check(loaded: LoadedEncoder, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Raises where values are distances, or others in the other order of a pair."""
    for one, other in pairs:
        orders = (one, one), (one, other), (other, one)
        itself, there, back = (_values(loaded, [pair])[0] for pair in orders)
        if abs(itself - 1) > _ITSELF:
            raise ValueError(
                f"expected 1 for an output and itself, received {itself:g}; of a distance return, "
                "for example, exp(-distance)"
            )
        if abs(there - back) > _SYMMETRIC:
            raise ValueError(
                f"expected one value for both orders of two outputs, received {there:g} and "
                f"{back:g} for {_of(one, other)}; return the mean of both"
            )


def _of(one: Any, other: Any) -> str:
    return f"{repr(one)[:80]} and {repr(other)[:80]}"
