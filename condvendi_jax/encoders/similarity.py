"""Matrices of similarities by a function of two items: every pair once, kept by its contents."""

from __future__ import annotations

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
_FAILURES = 10  # One after the other, after which no other pair is tried.


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
    symmetric = getattr(loaded.encoder, "symmetric", True)
    keys = list(map(_key, items))
    item_of = dict(zip(keys, items, strict=True))
    # Of every two contents of a label; in the order of the keys, which does not depend on the rows.
    distinct = {label: sorted({keys[row] for row in rows}) for label, rows in rows_of.items()}
    pairs = dict.fromkeys(
        pair if forward else pair[::-1]
        for of in distinct.values()
        for pair in itertools.combinations(of, 2)
        for forward in ([True] if symmetric else [True, False])
    )
    named = {f"{one}{other}": (item_of[one], item_of[other]) for one, other in pairs}
    values = _computed(loaded, named, cache, progress or (lambda *_: None), symmetric)
    found = {}
    for label, rows in rows_of.items():
        of = distinct[label]
        matrix = np.eye(len(of))
        for i, j in itertools.combinations(range(len(of)), 2):
            value = values[of[i] + of[j]]
            value = value if symmetric else (value + values[of[j] + of[i]]) / 2
            matrix[i, j] = matrix[j, i] = value
        place_of = {key: place for place, key in enumerate(of)}
        places = [place_of[keys[row]] for row in rows]
        found[label] = matrix[np.ix_(places, places)]
    return found


def _is_known(function: Any) -> bool:
    """Whether its file, or its `details`, tell all that its values depend on."""
    if hasattr(function, "details"):
        return True
    if inspect.isfunction(function):
        inside = function.__closure__ or "<" in function.__qualname__
        return not inside and not hasattr(function, "__wrapped__")
    called = vars(type(function)).get("__call__")  # A method, not one of a compiled class.
    return inspect.isfunction(called) and not vars(function)


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
    symmetric: bool,
) -> dict[str, float]:
    """The value of every pair; those in the cache are not computed again."""
    shelf = None
    if loaded.source and _is_known(loaded.encoder):
        shelf = Shelf.of(cache, loaded, "similarity")
    kept = shelf.read(set(pairs)) if shelf else {}
    values = {key: float(row[0]) for key, row in kept.items()}
    missing = [(key, *pair) for key, pair in pairs.items() if key not in values]
    # In a random order, so that an output that always fails does not fail many times in turn.
    missing = [missing[k] for k in np.random.default_rng(0).permutation(len(missing))]
    if missing:
        _check(loaded, missing[:_BOTH_ORDERS], symmetric)
    size, failed, in_turn = getattr(loaded.encoder, "batch_size", 1), [], 0
    checks.check_count(size, name="batch_size", minimum=1)
    fresh: dict[str, np.ndarray] = {}
    kept_at = time.monotonic()
    try:
        for start in range(0, len(missing), size):
            tell(len(values), len(pairs))
            computed, failures = _attempt(loaded, missing[start : start + size])
            values |= computed
            fresh |= {key: np.array([value]) for key, value in computed.items()}
            failed += failures
            in_turn = 0 if computed else in_turn + len(failures)
            if in_turn >= _FAILURES:
                break
            if shelf and fresh and time.monotonic() - kept_at > _KEPT_EVERY:
                shelf = shelf if shelf.write(fresh) else None
                fresh, kept_at = {}, time.monotonic()
    finally:
        if shelf and fresh:
            shelf.write(fresh)
    tell(len(values), len(pairs))
    if failed:
        (one, other, error), left = failed[0], len(pairs) - len(values)
        rest = f"The other {len(values):,} are kept, and the next call computes the rest."
        if not shelf:
            rest = "None is kept, as help(cv.Similarities.from_function) says of its cache."
        raise EncoderError(
            f"the similarity {loaded.name} failed for {_of(one, other)}: {told(error)}. "
            f"{left:,} of {len(pairs):,} pairs have no value. {rest}"
        ) from error
    return values


def _attempt(loaded: LoadedEncoder, pairs: Sequence[Any]) -> tuple[dict[str, float], list[Any]]:
    """The values of a batch; if it fails, of each pair, and those that fail with their errors."""
    try:
        values = _values(loaded, [pair[1:] for pair in pairs])
        return {key: value for (key, *_), value in zip(pairs, values, strict=True)}, []
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        if len(pairs) == 1:
            return {}, [(*pairs[0][1:], error)]
    parts = [_attempt(loaded, [pair]) for pair in pairs]
    computed = {key: value for values, _ in parts for key, value in values.items()}
    return computed, [failure for _, failures in parts for failure in failures]


def _values(loaded: LoadedEncoder, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    """The checked values of pairs, of one only where the function takes no batches."""
    ones, others = map(list, zip(*pairs, strict=True))
    if hasattr(loaded.encoder, "batch_size"):
        found = loaded.encoder(ones, others)
    else:
        found = [loaded.encoder(ones[0], others[0])]
    values = np.asarray(found, np.float64).reshape(-1)
    if values.size != len(pairs):
        raise ValueError(f"expected {len(pairs)} numbers, received {values.size}")
    for value in values:
        if not abs(value) <= 1 + _SYMMETRIC:
            raise ValueError(
                f"expected a similarity in [-1, 1], received {value:g}; of a distance return, for "
                "example, exp(-distance)"
            )
    return values.tolist()


def _check(loaded: LoadedEncoder, pairs: Sequence[Any], symmetric: bool) -> None:
    """Raises where values are distances, or others in the other order of a pair."""
    name, (_, one, _) = f"the similarity {loaded.name}", pairs[0]
    itself, _ = _attempt(loaded, [("", one, one)])
    if itself and abs(itself[""] - 1) > _ITSELF:
        raise ValueError(
            f"{name}: expected 1 for an output and itself, received {itself['']:g} for "
            f"{repr(one)[:80]}; of a distance return, for example, exp(-distance)."
        )
    for _, one, other in pairs if symmetric else ():
        there, back = (_attempt(loaded, [("", *of)])[0] for of in ((one, other), (other, one)))
        if there and back and abs(there[""] - back[""]) > _SYMMETRIC:
            raise ValueError(
                f"{name}: expected one value for both orders of two outputs, received "
                f"{there['']:g} and {back['']:g} for {_of(one, other)}; set its attribute "
                "`symmetric = False`, and the mean of both is taken."
            )


def _of(one: Any, other: Any) -> str:
    return " and ".join(repr(of)[:80] for of in (one, other))
