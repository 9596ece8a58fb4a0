"""Checks of arguments, before any heavy work; of numbers only where they are concrete.

Under `jax.jit`, `jax.vmap` or `jax.grad` an array is a tracer, and nothing can raise on its values.
"""

import contextlib
import difflib
import functools
import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from condvendi_jax.base.devices import is_here, placed, take, where_it_lies

_ROWS_FOR_ORIGIN = 64
_FEWEST_COLUMNS = 8  # Rows of fewer may well hold one number.
_LARGEST = [float(jnp.finfo(t).max) for t in (jnp.float16, jnp.bfloat16, np.float32, np.float64)]
# How far copies of one embedding lie apart, relative to the spread of all rows, and how many rows
# must be such copies. Other batches or processors move an embedding by 1e-8 to 1e-4 of its norm.
_JITTER = ((1e-3, 2), (1e-6, 1))
# Different rows differ along so many random directions. Over its root, these keep mean distances.
_DIRECTIONS = 16
PICTURES = (
    "For pictures: `from PIL import Image`, then `outputs = [Image.fromarray(x) for x in outputs]`."
)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_concrete(*values: Any) -> bool:
    """Whether no leaf of `values` is a tracer, so that their numbers are known."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


class TransformationError(TypeError):
    """A function was called inside jax.jit, jax.vmap or jax.grad, where it cannot run."""


_TRACED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
_TRACED += (jax.errors.TracerIntegerConversionError, TransformationError)


def outside_transformations(function: _Function) -> _Function:
    """Explains JAX's error where a function that depends on concrete numbers is transformed."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def explained(*args: Any, **kwargs: Any) -> Any:
        check_keywords(kwargs, signature, name=function.__name__)
        try:
            return function(*args, **kwargs)
        except _TRACED as error:
            # Inside jit an array is traced even where no argument is.
            if is_concrete(args, kwargs, jnp.zeros(())):
                raise  # From a function of the caller's.
            raise TransformationError(
                f"{function.__name__}: cannot run inside jax.jit, jax.vmap or jax.grad, because it "
                "depends on the values of the arrays. Call it outside; inside, compute scores with "
                "given kernels by cv.decompose."
            ) from error

    return cast(_Function, explained)


def check_keywords(given: Iterable[str], signature: inspect.Signature, *, name: str) -> None:
    """Raises TypeError for a keyword that a function does not have, and names the likeliest one."""
    known = signature.parameters
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for word in given:
        if word not in known:
            likely = "output_kernel" if word == "kernel" else word
            near = difflib.get_close_matches(likely, known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}."
            if difflib.get_close_matches(word, ("bandwidth", "output_bandwidth", "sigma"), n=1):
                meant = "for a bandwidth of 0.5, say, pass output_kernel=cv.Gaussian(0.5)."
            raise TypeError(f"{name}: unknown keyword {word}; {meant}")


# What numbers and memory raise, beside other ValueErrors; mistakes in programs are neither.
_NUMERICAL = (np.linalg.LinAlgError, ArithmeticError, MemoryError, jax.errors.JaxRuntimeError)
# The library, and the modules of `cached_property` and of context managers.
_LIBRARY = os.path.dirname(os.path.dirname(__file__)) + os.sep
_INSIDE = (_LIBRARY, functools.__file__, contextlib.__file__)


def warn(message: str) -> None:
    """Warns at the line of the first caller outside the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


@contextlib.contextmanager
def naming(model: str) -> Iterator[None]:
    """Puts the name of the model, if it has one, in front of what its arrays raise."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not model:
            raise
        raise type(error)(f"{model}: {error}") from error


@contextlib.contextmanager
def optional(name: str, failed: dict[str, str], *, asked: bool = False) -> Iterator[None]:
    """Warns, and notes the reason in `failed` by the name, where a part of a result fails by data.

    If the user `asked` for the part, a ValueError is raised, but for those of linear algebra.
    """
    try:
        yield
    except (*_NUMERICAL, ValueError) as error:
        if asked and not isinstance(error, _NUMERICAL):
            raise
        failed[name] = str(error).partition("\n")[0] or type(error).__name__
        warn(f"not computed: {name} ({failed[name]}). The scores stand.")


def compute_dtype() -> jnp.dtype:
    """float64 where the user enabled x64, float32 otherwise."""
    return jax.dtypes.canonicalize_dtype(np.float64)


def check_embeddings(array: ArrayLike, *, name: str, origin: np.ndarray | None = None) -> jax.Array:
    """Checks one array of embeddings, and casts it to the compute dtype."""
    return check_arrays({name: array}, origins={name: origin})[0]


def check_arrays(
    named: Mapping[str, Any], *, origins: Mapping[str, np.ndarray | None] | None = None
) -> list[jax.Array]:
    """Checks embeddings `[n, d]` that pair up row by row, and casts them to the compute dtype.

    `origins` are, by name, rows `[1, d]` to subtract before the cast: see `origin_of`.
    """
    arrays = as_paired(named)
    warn_of_float64(arrays)
    origins = origins or {}
    return [cast_array(array, name, placed, origins.get(name)) for name, array in arrays.items()]


def warn_of_float64(*several: Mapping[str, Any]) -> None:
    """Warns once where arrays of float64, by name, will be computed in float32."""
    arrays = [(name, array) for named in several for name, array in named.items()]
    wide = dict.fromkeys(name for name, array in arrays if array.dtype == np.float64)
    if wide and compute_dtype() == jnp.float32:
        warn(
            f"{' and '.join(wide)}: float64 input is computed in float32 because x64 is off; "
            "enable it with jax.config.update('jax_enable_x64', True), or --x64 of the command."
        )


def check_shapes(arrays: Mapping[str, Any]) -> None:
    """Raises unless all arrays are real, two-dimensional, not empty, and of one number of rows."""
    for name, array in arrays.items():
        real = jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)
        if not real and array.dtype != np.bool_:
            to = f"[*map(str, {name})]" if array.dtype.kind == "U" else f"np.array({name}).tolist()"
            hint = f" For texts, numbers or labels, pass a list: `{name} = {to}`."
            raise TypeError(
                f"{name}: expected real numbers, received an array of dtype {array.dtype}."
                f"{hint * (array.dtype.kind in 'OU' and array.ndim > 1)}"
            )
        if array.ndim != 2:
            column = f"For one number a row: `{name} = np.reshape({name}, (-1, 1))`; labels are "
            column += f"strings or integers: np.unique({name}, return_inverse=True)[1]."
            if array.ndim == 1 and is_concrete(array) and bool((array != array).any()):
                column = "NaN is no class. Leave its rows out of outputs and prompts, then pass "
                column += f"classes as integers: `{name} = {name}[~np.isnan({name})].astype(int)`."
            small = f"{PICTURES} For embeddings: `{name} = {name}.astype(np.float32)`."
            hints = {1: column, 3: small if array.dtype == np.uint8 else "", 4: PICTURES}
            expected = f"{name}: expected a two-dimensional array [n, d], received shape"
            raise ValueError(f"{expected} {array.shape}. {hints.get(array.ndim, '')}".strip())
        if 0 in array.shape:
            expected = "expected at least one row and one column"
            raise ValueError(f"{name}: {expected}, received shape {array.shape}.")
    lengths = [array.shape[0] for array in arrays.values()]
    if len(set(lengths)) > 1:
        rows = " and ".join(f"{n} {name}" for name, n in zip(arrays, lengths, strict=True))
        answers, rest = divmod(lengths[0], lengths[1])
        hint = ""
        if [*arrays] == ["outputs", "prompts"] and not rest:
            line = f"prompts = np.repeat(prompts, {answers}, axis=0)"
            hint = f" If each {answers} rows in turn answer one prompt: `{line}`."
        raise ValueError(f"{' and '.join(arrays)} must pair up row by row: received {rows}.{hint}")


def to_numpy(value: Any) -> np.ndarray:
    """An array of another package, such as a tensor on any device, as one of NumPy."""
    value = getattr(value, "detach", lambda: value)()
    value = getattr(value, "cpu", lambda: value)()
    if "bfloat16" in str(getattr(value, "dtype", "")) and hasattr(value, "float"):
        value = value.float()
    return np.asarray(value)


def as_array(array: ArrayLike, *, name: str) -> np.ndarray | jax.Array:
    """Returns an array of JAX as it is, and others as arrays of NumPy."""
    if isinstance(array, jax.Array):
        return array
    if isinstance(array, np.ma.MaskedArray):
        mend = "select the rows to use, or fill the masked entries"
        raise TypeError(f"{name}: a masked array would lose its mask: {mend}.")
    if getattr(array, "requires_grad", False):
        lost = "no gradient flows back to PyTorch (docs/inputs.md)"
        warn(f"{name}: the tensor requires a gradient and is detached: {lost}.")
    try:
        return to_numpy(array)
    except Exception as error:  # Whatever a foreign type raises.
        received = f"{type(array).__name__}, which does not convert to one: {error}"
        raise TypeError(f"{name}: expected an array [n, d], received {received}") from error


def as_arrays(named: Mapping[str, Any]) -> dict[str, np.ndarray | jax.Array]:
    """`as_array` of each, whose rows pair up by their index where they have one."""
    check_indices(named)
    return {name: as_array(array, name=name) for name, array in named.items()}


def as_paired(named: Mapping[str, Any]) -> dict[str, np.ndarray | jax.Array]:
    """The arrays, of shapes that fit together."""
    arrays = as_arrays(named)
    check_shapes(arrays)
    for name, array in arrays.items():
        _refuse_similarities(array, name)
    return arrays


def index_of(value: Any) -> Any:
    """The index of the rows of a DataFrame or a Series; None of anything else."""
    index = getattr(value, "index", None)
    return index if hasattr(index, "equals") else None


def check_indices(named: Mapping[str, Any]) -> None:
    """Raises ValueError where indices of DataFrames or Series differ: rows pair up by position."""
    indexed = {name: i for name, value in named.items() if (i := index_of(value)) is not None}
    for name, index in indexed.items():
        first, expected = next(iter(indexed.items()))
        if not index.equals(expected):
            raise ValueError(
                f"{name}: expected the index of {first}, since rows pair up by position, received "
                f"{list(index[:5])} beside {list(expected[:5])} at its start. Give "
                f"{name}.loc[{first}.index], or both as arrays if their positions are right."
            )


def _refuse_similarities(array: np.ndarray | jax.Array, name: str) -> None:
    """Raises ValueError where embeddings are a matrix of similarities; one-hot rows are none."""
    n = array.shape[0]
    if array.shape != (n, n) or n < 3 or not is_here(array):
        return
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    within = max(1e-4, 8 * float(jnp.finfo(array.dtype).eps)) if floating else 0.0
    if np.abs(np.diagonal(np.asarray(array)).astype(np.float64) - 1).max() > within:
        return
    host = np.asarray(array, np.float64)
    similar = np.abs(host).max() <= 1 + within and np.abs(host - host.T).max() <= within
    if similar and np.count_nonzero(host) > n:
        raise ValueError(
            f"{name}: expected embeddings, received a symmetric {n} x {n} matrix of unit diagonal "
            "and entries in [-1, 1], which is one of similarities: pass cv.Similarities(K)."
        )


def origin_of(array: np.ndarray | jax.Array) -> np.ndarray | None:
    """A row near the others where the cast to the compute dtype would lose digits, or None.

    Less this row, rows far from the origin keep their differences, which are all that a
    shift-invariant kernel sees. The median of some rows in each coordinate: no far row moves it.
    """
    if not is_here(array) or array.ndim != 2 or 0 in array.shape or not _loses(array.dtype):
        return None
    some = np.sort(np.asarray(array)[:: -(-array.shape[0] // _ROWS_FOR_ORIGIN)], axis=0)
    return some[(len(some) - 1) // 2][None]


def _loses(dtype: np.dtype) -> bool:
    if dtype.kind not in "iuf":
        return False
    bits = np.finfo(dtype).nmant + 1 if dtype.kind == "f" else 8 * dtype.itemsize
    return bits > jnp.finfo(compute_dtype()).nmant + 1


def cast_array(
    array: Any, name: str, place: Callable[[Any], jax.Array], origin: np.ndarray | None
) -> jax.Array:
    """An array of a checked shape in the compute dtype, placed; its numbers are checked."""
    if isinstance(array, jax.Array) and (origin is None or not is_here(array)):
        placed = place(array.astype(compute_dtype()))
        check_finite(placed, name=name)
        if is_here(array):
            _warn_of_padding(array, name)
        return placed
    host = np.asarray(array)  # Arrays on the host are checked there, without compiling a program.
    check_finite(host, name=name)
    with np.errstate(over="ignore"):
        cast = (host if origin is None else minus(host, origin)).astype(compute_dtype())
    if cast.dtype != host.dtype and (beyond := ~np.isfinite(cast).all(axis=1)).any():
        limit = float(jnp.finfo(cast.dtype).max)
        raise ValueError(
            f"{name}: {int(beyond.sum())} row(s) hold numbers beyond the range of {cast.dtype} "
            f"({limit:.1e}), the first of them row {int(beyond.argmax())}: rescale the embeddings "
            "(and the bandwidth), or enable x64."
        )
    _warn_of_padding(cast if origin is None else host, name)
    if _loses(host.dtype) and (distinct := distinct_rows(cast)[0]) < len(cast):
        merged = distinct_rows(host)[0] - distinct
        if merged > 0:
            differ = f"{merged} row(s) that differ in {host.dtype} are equal in {cast.dtype}"
            warn(f"{name}: {differ}, and count as duplicates; rescale, or enable x64.")
    return place(cast)


def _warn_of_padding(array: Any, name: str) -> None:
    """Warns of rows that no encoder gives, but not of whole numbers: they are labels or pixels."""
    if array.shape[1] < _FEWEST_COLUMNS or not jnp.issubdtype(array.dtype, jnp.floating):
        return
    high, low = (numbers.astype(np.float64) for numbers in _extremes(array))
    odd = (high == low) | (np.maximum(high, -low)[:, None] == _LARGEST).any(axis=1)
    if not odd.any():
        return
    with jax.ensure_compile_time_eval():
        others = np.asarray(take(array, np.flatnonzero(~odd)[:_ROWS_FOR_ORIGIN]))
    if (others != np.round(others)).any():
        row = int(odd.argmax())
        warn(
            f"{name}: {int(odd.sum())} row(s) look like padding, an overflow or a failed "
            "embedding: one number in all columns, or the largest of a float dtype. They count "
            "like all others: leave them out. The first is row "
            f"{row}, with {max(high[row], low[row], key=abs):g}."
        )


_extremes = where_it_lies(lambda _, array: (array.max(axis=1), array.min(axis=1)))


def minus(array: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """array - origin in float64 or wider, exact of integers that are near each other."""
    (high, low), (first, rest) = map(_parts, (array, origin))
    return (high - first) + (low - rest)


def _parts(array: np.ndarray) -> tuple[Any, Any]:
    """Two arrays of float64 or wider, whose sum is the array without rounding."""
    if array.dtype.kind not in "iu":
        return array.astype(np.promote_types(array.dtype, np.float64)), 0.0
    high, low = np.divmod(array if array.dtype == np.uint64 else array.astype(np.int64), 2**32)
    return high * 2.0**32, low.astype(np.float64)


def distinct_rows(array: np.ndarray) -> tuple[int, np.ndarray]:
    """The number of distinct rows of `[n, d]`, and that of each row, in the order of the first."""
    # The comparison is of bytes, so that a negative zero must become a zero first.
    rows = np.ascontiguousarray(array + np.zeros((), array.dtype))
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    return number_values(as_bytes)


def number_values(values: np.ndarray) -> tuple[int, np.ndarray]:
    """The number of distinct values, and that of each value, `[n]`, in the order of the first."""
    _, first, kinds = np.unique(values, return_index=True, return_inverse=True)
    return first.size, np.argsort(np.argsort(first))[kinds.ravel()]


def equal_rows(array: np.ndarray, *, name: str) -> tuple[int, np.ndarray]:
    """`distinct_rows`, where rows that differ by rounding alone count as equal, with a warning.

    Rows count as copies if they are closer than a tolerance, and hardly any others are closer than
    ten times it: continuous data have more neighbours at larger distances. Single columns hold
    labels or measurements rather than embeddings, and are compared exactly.
    """
    count, kind = distinct_rows(array)
    if array.shape[1] == 1 or count < 2:
        return count, kind
    directions = np.eye(array.shape[1])
    if array.shape[1] > _DIRECTIONS:
        directions = np.random.default_rng(0).normal(size=(array.shape[1], _DIRECTIONS))
        directions /= math.sqrt(_DIRECTIONS)
    parts = np.array_split(np.unique(kind, return_index=True)[1], 1 + array.size // 2**24)
    rows = np.concatenate([minus(array[part], array[:1]) @ directions for part in parts])
    distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    spread = float(np.quantile(distances, 0.9))  # Few rows far away do not change it.
    for tolerance, fewest in _JITTER:
        near = _chained(rows, tolerance * spread)
        first = np.unique(near, return_index=True)[1]
        chains = np.abs(rows - rows[first][near]).max(axis=1) > 2 * tolerance * spread
        around = count - _chained(rows, 10 * tolerance * spread).max() - 1
        if count - first.size >= max(fewest, 0.9 * around) and not chains.any():
            warn(
                f"{name}: {count:,} different rows are {first.size:,} up to rounding, and count as "
                f"{first.size:,}: one text that is embedded in several batches gives such rows. "
                "Pass prompt_ids (for outputs: one column of labels) to say which are equal."
            )
            return number_values(near[kind])
    return count, kind


def _chained(rows: np.ndarray, tolerance: float) -> np.ndarray:
    """A number for each row, `[n]`: equal where steps of up to `tolerance` lead to each other."""
    chain = np.zeros(len(rows), int)
    for column in rows.T:
        order = np.lexsort((column, chain))
        apart = (np.diff(column[order]) > tolerance) | (np.diff(chain[order]) > 0)
        chain[order] = np.concatenate([[0], np.cumsum(apart)])
        if apart.all():
            break
    return chain


def check_finite(array: np.ndarray | jax.Array, *, name: str) -> None:
    """Raises ValueError where a concrete array holds a NaN or an infinity."""
    if not is_concrete(array) or array.dtype.kind in "biu":
        return
    row, count = _not_finite(array)
    if count > 0:
        rows = f"{count} row(s), the first of them row {row}"
        raise ValueError(f"{name}: expected finite numbers, received NaN or infinity in {rows}.")


@where_it_lies
def _not_finite(xp: Any, array: Any) -> tuple[Any, Any]:
    """The first row that is not finite, and how many are not."""
    # The largest and the least of a row with a NaN are NaN.
    bad = ~xp.isfinite(array.max(axis=1)) | ~xp.isfinite(array.min(axis=1))
    return xp.argmax(bad), xp.sum(bad)


def check_number(
    value: Any, *, name: str, above: float, below: float = math.inf, expected: str | None = None
) -> float:
    """Returns a number between `above` and `below` as a float, or raises ValueError."""
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not real or not above < float(value) < below:
        within = f"a number between {above:g} and {below:g}"
        words = f"a finite number above {above:g}" if math.isinf(below) else within
        raise ValueError(f"{name}: expected {expected or words}, received {value!r}.")
    return float(value)


def check_flag(value: Any, *, name: str) -> bool:
    """Returns a boolean, or raises ValueError."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: expected True or False, received {value!r}.")
    return bool(value)


def check_count(value: Any, *, name: str, minimum: int, expected: str | None = None) -> int:
    """Returns an integer of at least `minimum` as an int, or raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        words = expected or f"an integer of at least {minimum}"
        raise ValueError(f"{name}: expected {words}, received {value!r}.")
    return int(value)


def check_rtol(rtol: Any) -> float:
    """Returns a relative tolerance between 0 and 1, or raises ValueError."""
    return check_number(rtol, name="rtol", above=0, below=1)


def check_order(order: Any) -> float:
    """Returns the order of a Renyi entropy, in (0, inf], or raises ValueError."""
    words = "a number above 0, where 1 is the von Neumann entropy and float('inf') the min-entropy"
    largest = isinstance(order, (float, np.floating)) and order == math.inf
    return math.inf if largest else check_number(order, name="order", above=0, expected=words)


def check_truncation(truncation: Any) -> int | None:
    """Returns a truncation, None or an integer of at least 1, or raises ValueError."""
    words = "None or an integer of at least 1 (the number of leading eigenvalues kept)"
    if truncation is None:
        return None
    return check_count(truncation, name="truncation", minimum=1, expected=words)


def check_seed(seed: Any) -> int:
    """Returns a seed below 2^31, or raises: beyond 32 bits two seeds would give the same key."""
    if check_count(seed, name="seed", minimum=0) >= 2**31:
        raise ValueError(f"seed: expected an integer below 2^31, received {seed}.")
    return int(seed)


def check_key(key: Any) -> jax.Array:
    """Returns one key of `jax.random.key` or `jax.random.PRNGKey`, or raises."""
    if key is None:
        raise ValueError("key: expected a random key, such as jax.random.key(0).")
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    shape = np.shape(key) if dtype is not None else None
    if not (typed and shape == ()) and not (dtype == np.uint32 and shape == (2,)):
        expected = "expected one random key, such as jax.random.key(0)"
        raise TypeError(f"key: {expected}, received {key!r}.")
    return key


def check_weights(
    weights: Any, n: int, *, name: str = "weights", signed: bool = False
) -> np.ndarray | jax.Array:
    """Returns checked weights `[n]`, integers as int64, some above zero, or `signed` numbers."""
    array = as_array(weights, name=name)
    if array.shape != (n,):
        expected = f"expected {n} {'numbers' if signed else 'weights'}, one for each row"
        raise ValueError(f"{name}: {expected}, received shape {array.shape}.")
    if not is_concrete(array):
        return array
    host = np.asarray(array)
    if host.dtype.kind not in "iufb" and not jnp.issubdtype(host.dtype, jnp.floating):
        raise TypeError(f"{name}: expected real numbers, not {max(map(str, host.tolist()))!r}.")
    negative = (host < 0) & (not signed)
    for wrong, words in ((~np.isfinite(host), "finite"), (negative, "non-negative")):
        if wrong.any():
            row, more = int(wrong.argmax()), int(wrong.sum()) - 1
            others = f", and {more:,} more such rows" if more else ""
            raise ValueError(
                f"{name}: expected {words} numbers, received {host[row]} in row {row}{others}; "
                "correct them, or leave these rows out."
            )
    if not signed and not host.any():
        raise ValueError(f"{name}: expected one above zero, received {n} zeros.")
    if signed or host.dtype.kind not in "iu":
        return host
    if (total := np.sum(host, dtype=np.float64)) >= 2**53:
        expected = "expected integers (numbers of rows) with a sum below 2^53"
        mend = "for shares of the rows, give floating-point numbers"
        raise ValueError(f"{name}: {expected}, received a sum of {total:.3g}; {mend}.")
    return host.astype(np.int64)  # In which arithmetic is exact.
