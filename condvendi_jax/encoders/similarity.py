"""Matrices of similarities by a function of two items: every pair once, kept by its contents."""

import ast
import contextlib
import fractions
import inspect
import itertools
import os
import pickle
import re
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.base import checks, files
from condvendi_jax.encoders import embedding, interface
from condvendi_jax.encoders.embedding import LoadedEncoder, Shelf, digest_of, imported, made, told

_KEPT_EVERY = 10.0  # Seconds between two files of the cache.
_BOTH_ORDERS = 10  # Pairs that are compared in both orders, to see whether a function is symmetric.
_DISTANCE = "of a distance return, for example, exp(-distance)"
_SYMMETRIC, _ITSELF = 1e-4, 0.1  # How far orders, and an item and itself, may be apart.
_FINAL = re.compile(  # What is in a box, or follows 'the answer is' or '####' at the end.
    r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
    r"|(?:\banswer(?: is:?|:)|^####)[*\s]*(\S[^\n]{0,99})\Z",
    re.MULTILINE,
)
_MARKED = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`+)(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)", re.DOTALL)
_STARTS = re.compile(r"^[ \t]*(?:```\w*$|(?:#{1,6}|>|\d\d?[.)])(?=\s)|[-*+•](?=\s+[^\d\s]))", re.M)
_AROUND = re.compile(r"\A(?:\$+([^$]+)\$+|\\[(\[](.+)\\[)\]]|\((\w+)\)|\\text\{([^{}]*)\})\Z")
_STRAIGHT = str.maketrans("“”„«»‘’−", '"""""\'\'-')
_COMMENTS = re.compile(  # And what may hold their signs.
    r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|(?:(?<!:)//|#\s)[^\n]*|(?s:/\*.*?\*/)"
)
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_DOCSTRING = re.compile(r"(:\s*\n\s*)(\"{3}|'{3}).*?\2\s*(?=\S)", re.DOTALL)
_NAMED = {ast.FunctionDef: "name", ast.ClassDef: "name", ast.arg: "arg", ast.alias: "asname"}
_NAMED |= {ast.AsyncFunctionDef: "name", ast.Name: "id"}


def exact(text: str) -> str:
    r"""What answers share that are equal but for capitals, blanks, quotes, Markdown or notation.

    Of a text that holds `\boxed{42}` or ends in 'The answer is 42' or '#### 42', this answer alone.
    """
    whole = key = unicodedata.normalize("NFC", text).translate(_STRAIGHT).casefold().strip()
    while marked := [*_FINAL.finditer(key)]:
        key = marked[-1][marked[-1].lastindex or 0].strip()
    key = re.sub(r"\\[dt]?frac\{(\w+)\}\{(\w+)\}", r"\1/\2", _STARTS.sub("", key))
    key, before = " ".join(key.split()), ""
    while key != before:
        before, key = key, _MARKED.sub(r"\2", key).lstrip(" \"',;:").rstrip(" \"',;:.。")
        key = re.sub(r"(?<=[^\W\d_]{2})[!?]+\Z", "", key)
        key = _AROUND.sub(lambda match: match[match.lastindex or 0], key)
    with contextlib.suppress(ValueError, ZeroDivisionError):
        number = re.sub(r"(?<=\d)(?<!\b0),(?=\d{3}\b)", "", key)
        return str(fractions.Fraction(number.replace("e", "!")))  # A power may be too large.
    return re.sub(r" (?=[^\w\s])|(?<=[^\w\s]) ", "", key) or whole


def code(text: str) -> str:
    """What programs share that are equal but for comments, blanks and, in Python, their names.

    Of a text with blocks of Markdown, these alone.
    """
    text = "\n".join(_FENCED.findall(text)) or text
    errors = SyntaxError, ValueError, RecursionError, MemoryError
    with contextlib.suppress(*errors), warnings.catch_warnings(action="ignore"):
        nodes = [*ast.walk(tree := ast.parse(_DOCSTRING.sub(r"\1", text)))]
        named = [(node, field) for node in nodes if (field := _NAMED.get(type(node)))]
        given = (getattr(*at) for at in named if not isinstance(getattr(at[0], "ctx", 0), ast.Load))
        kept = {getattr(node, "attr", None) for node in nodes}  # Also names of others, perhaps.
        kept |= {node.arg for node in nodes if isinstance(node, ast.keyword)}
        numbers = {name: f"_{k}" for k, name in enumerate(dict.fromkeys(given)) if name not in kept}
        for node, field in named:
            setattr(node, field, numbers.get(name := getattr(node, field), name))
        return ast.unparse(tree)
    return " ".join(re.findall(r"\w+|[^\w\s]", _COMMENTS.sub(lambda match: match[1] or "", text)))


def calls(one: str, other: str) -> float:
    """The share L / (n + m - L) of two runs of n and m tool calls, one a line, L in one order."""
    runs = [[*filter(None, map(str.strip, text.split("\n")))] for text in (one, other)]
    tools = [[re.split(r"[({]", call)[0].strip() or call for call in run] for run in runs]
    equal = [np.equal.outer(*(np.array(part, object) for part in parts)) for parts in (runs, tools)]
    common, total = np.zeros(len(runs[1]) + 1), sum(map(len, runs))
    for row in np.mean(equal, axis=0):  # A tool with other arguments, after ( or {, counts 1/2.
        common[1:] = np.maximum.accumulate(np.maximum(common[1:], common[:-1] + row))
    return float(common[-1] / (total - common[-1])) if total else 1.0


#: By name: texts are the same if their keys are equal, or similar as `calls` says.
BUILT_IN: dict[str, Callable[..., Any]] = {"exact": exact, "code": code, "calls": calls}


def as_loaded(function: Any) -> LoadedEncoder:
    """The function, object or class, with its name or import path, which may be given alone."""
    if isinstance(function, str):
        if function not in BUILT_IN and ":" not in function:
            expected = f"{', '.join(BUILT_IN)} or package.module:function"
            raise ValueError(f"similarity: expected {expected}, received {function!r}.")
        function = LoadedEncoder(BUILT_IN.get(function) or imported(function), function)
    loaded = embedding.as_loaded(function)
    if isinstance(loaded.encoder, type):
        loaded = LoadedEncoder(made(loaded.spec, loaded.encoder), loaded.spec)
    if not callable(loaded.encoder):
        raise TypeError(f"similarity: expected a function of two outputs, received {function!r}.")
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
    items = interface.checked_texts(items) if loaded.spec in BUILT_IN else items
    if loaded.spec in BUILT_IN and loaded.spec != "calls":
        kinds = checks.number_values(np.fromiter(map(loaded.encoder, items), object))[1]
        return {label: np.equal.outer(kinds[r], kinds[r]) for label, r in rows_of.items()}
    keys = list(map(_key, items))
    item_of = dict(zip(keys, items, strict=True))
    # Every two contents of a label, in the order of their keys, which is not that of the rows.
    contents = (sorted({keys[row] for row in rows}) for rows in rows_of.values())
    twos = itertools.chain.from_iterable(itertools.combinations(some, 2) for some in contents)
    pairs = {one + other: (item_of[one], item_of[other]) for one, other in twos}
    values, matrices = _computed(loaded, pairs, cache, progress or (lambda *_: None)), {}
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
    # What an object depends on may be in its `__dict__`, or in slots, also of inherited classes.
    slots = any(vars(kind).get("__slots__") for kind in type(function).__mro__)
    bare = plain or (getattr(function, "__dict__", None) == {} and not slots)
    return bare and not hasattr(code, "__wrapped__")


def _key(item: Any) -> str:
    """What an item is known by: its content, that of the file if it is a path."""
    if isinstance(item, os.PathLike):
        return digest_of(files.expanded(item).read_bytes())[:16]
    text = isinstance(item, str)
    return digest_of(item.encode("utf-8", "surrogatepass") if text else pickle.dumps(item))[:16]


def _computed(
    loaded: LoadedEncoder, pairs: Mapping[str, tuple[Any, Any]], cache: Any, tell: Callable
) -> dict[str, float]:
    """The value of every pair; those in the cache are not computed again."""
    size = getattr(loaded.encoder, "batch_size", 1)
    checks.check_count(size, name="batch_size", minimum=1)
    known = loaded.spec not in BUILT_IN and loaded.source and _is_known(loaded.encoder)
    shelf = Shelf.of(cache, loaded, "similarity") if known else None
    values = {k: float(row[0]) for k, row in (shelf.read({*pairs}) if shelf else {}).items()}
    missing = [key for key in pairs if key not in values]
    batch, fresh, kept_at = missing[:1], dict[str, np.ndarray](), time.monotonic()
    try:
        _check(loaded, [pairs[key] for key in missing[:_BOTH_ORDERS]])
        for start in range(0, len(missing), size):
            tell(len(values), len(pairs))
            batch = missing[start : start + size]
            values |= zip(batch, _values(loaded, [pairs[key] for key in batch]), strict=True)
            fresh |= {key: np.array([values[key]]) for key in batch}
            if shelf and time.monotonic() - kept_at > _KEPT_EVERY:
                shelf = shelf if shelf.write(fresh) else None
                fresh, kept_at = {}, time.monotonic()
    except (Exception, SystemExit) as error:  # The code is the user's: anything may come.
        rest = f" The other {len(values):,} are kept, and the next call computes the rest."
        rest *= bool(values)
        if not shelf:
            rest = " None is kept, as help(cv.Similarities.from_function) says of its cache."
        which = f"a batch of {len(batch)} that starts with " if len(batch) > 1 else ""
        refused = traceback.extract_tb(error.__traceback__)[-1].filename == __file__  # Its value.
        raise (ValueError if refused else interface.EncoderError)(
            f"the similarity {loaded.name} failed for {which}{_of(*pairs[batch[0]])}: "
            f"{error if refused else told(error)}. "
            f"{len(pairs) - len(values):,} of {len(pairs):,} pairs have no value.{rest}"
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
            raise ValueError(f"expected a similarity, 0 to 1, received {value:g}; {_DISTANCE}")
    return values.tolist()


def _check(loaded: LoadedEncoder, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Raises where values are distances, or others in the other order of a pair."""
    for one, other in pairs:
        orders = (one, one), (one, other), (other, one)
        itself, there, back = (_values(loaded, [pair])[0] for pair in orders)
        if abs(itself - 1) > _ITSELF:
            expected = "expected 1 for an output and itself"
            raise ValueError(f"{expected}, received {itself:g}; {_DISTANCE}")
        if abs(there - back) > _SYMMETRIC:
            expected = "expected one value for both orders of two outputs"
            received = f"received {there:g} and {back:g} for {_of(one, other)}"
            raise ValueError(f"{expected}, {received}; return the mean of both")


def _of(one: Any, other: Any) -> str:
    return f"{repr(one)[:80]} and {repr(other)[:80]}"
