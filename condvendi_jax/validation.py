"""What a bad input gets: checks that run before any heavy work.

Every check looks at shapes and dtypes always, and at values only where they are concrete: under
`jax.jit`, `jax.vmap` or `jax.grad` an array is a tracer, nothing can raise on its values, and
only the static part is checked.
"""

from __future__ import annotations

import functools
import math
import numbers
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

_BLURRED = 1e-4
_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_concrete(*values: Any) -> bool:
    """Whether no leaf of `values` is a tracer, so that its numbers may be looked at."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


class TransformationError(TypeError):
    """A function was called inside jax.jit, jax.vmap or jax.grad, where it cannot run."""


_TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    TransformationError,
)


def outside_transformations(function: _Function) -> _Function:
    """Explains JAX's error where a function that depends on concrete numbers is transformed."""

    @functools.wraps(function)
    def explained(*args: Any, **kwargs: Any) -> Any:
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


_PACKAGE = os.path.dirname(__file__) + os.sep


def warn(message: str) -> None:
    """Warns at the line of the first caller outside the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def compute_dtype() -> jnp.dtype:
    """float64 where the user enabled x64, float32 otherwise."""
    return jax.dtypes.canonicalize_dtype(np.float64)


def check_embeddings(
    array: ArrayLike,
    *,
    name: str,
    place: Callable[[Any], jax.Array] = jnp.asarray,
    origin: np.ndarray | None = None,
) -> jax.Array:
    """Checks one array of embeddings and casts it to the compute dtype.

    Args:
      array: embeddings `[n, d]` of any real dtype. Small floats, integers and booleans are cast
        before any arithmetic; float64 is cast to float32, with a warning, where x64 is off.
        Tensors of other frameworks are converted.
      name: what the array is called in an error message.
      place: puts the array, of the compute dtype, on the device, or on several.
      origin: a row `[1, d]` that is subtracted before the cast: see `origin_of`.

    Returns:
      The array `[n, d]` in float32, or in float64 where x64 is enabled.

    Raises:
      TypeError: the dtype is not real (object, string, complex), or the array is masked.
      ValueError: the array is not two-dimensional, is empty, or holds a NaN, an infinity or a
        number beyond the range of the compute dtype.
    """
    return check_arrays({name: array}, place=place, origins={name: origin})[0]


def check_arrays(
    named: Mapping[str, Any],
    *,
    place: Callable[[Any], jax.Array] = jnp.asarray,
    origins: Mapping[str, np.ndarray | None] | None = None,
) -> list[jax.Array]:
    """Checks arrays by name, that they pair up row by row, and casts them.

    Args:
      named: the arrays `[n, d]`, as for `check_embeddings`.
      place: puts an array of the compute dtype on the device, or on several.
      origins: by name, the row that is subtracted before the cast, if any.

    Raises:
      TypeError, ValueError: as `check_embeddings`, or the lengths differ.
    """
    arrays = {name: as_array(array, name=name) for name, array in named.items()}
    check_shapes(arrays)
    warn_of_float64(arrays)
    return cast_arrays(arrays, place=place, origins=origins or {})


def warn_of_float64(*several: Mapping[str, Any]) -> None:
    """Warns once where arrays of float64, by name, will be computed in float32."""
    arrays = [(name, array) for named in several for name, array in named.items()]
    wide = dict.fromkeys(name for name, array in arrays if array.dtype == np.float64)
    if wide and compute_dtype() == jnp.float32:
        warn(
            f"{' and '.join(wide)}: float64 input is computed in float32 because x64 is off; "
            "enable it with jax.config.update('jax_enable_x64', True), or --x64 of the command."
        )


def cast_arrays(
    arrays: Mapping[str, Any],
    *,
    place: Callable[[Any], jax.Array],
    origins: Mapping[str, np.ndarray | None],
) -> list[jax.Array]:
    """`check_arrays` of arrays whose shapes were checked before: looks at their numbers."""
    return [_cast(array, name, place, origins.get(name)) for name, array in arrays.items()]


def check_shapes(arrays: Mapping[str, Any]) -> None:
    """Raises where arrays are not real, two-dimensional and of the same number of rows."""
    for name, array in arrays.items():
        _check_static(array, name=name)
    lengths = [array.shape[0] for array in arrays.values()]
    if len(set(lengths)) > 1:
        counts = " and ".join(f"{n} {name}" for name, n in zip(arrays, lengths, strict=True))
        raise ValueError(f"{' and '.join(arrays)} must pair up row by row: received {counts}.")


def as_array(array: ArrayLike, *, name: str) -> np.ndarray | jax.Array:
    """What a caller passed as an array of NumPy or JAX; tensors of other frameworks come along.

    Raises:
      TypeError: it is masked (the mask would be lost), or cannot be converted.
    """
    if isinstance(array, jax.Array):
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: a masked array would lose its mask: select the rows that are meant, or fill "
            "what is masked."
        )
    value: Any = array
    try:
        # A tensor that requires gradients, or is on another device, gives no array by itself.
        for step in ("detach", "cpu"):
            value = getattr(value, step, lambda value=value: value)()
        if "bfloat16" in str(getattr(value, "dtype", "")) and hasattr(value, "float"):
            value = value.float()
        return np.asarray(value)
    except Exception as error:  # Whatever a foreign type raises.
        raise TypeError(
            f"{name}: expected an array [n, d], received {type(array).__name__}, which does not "
            f"convert to one: {error}"
        ) from error


def origin_of(array: np.ndarray | jax.Array) -> np.ndarray | None:
    """The row to subtract before a cast that would lose digits: the first, or None.

    What is far from the origin keeps its differences that way, which is all that a shift-invariant
    kernel sees. None where the cast loses nothing, and for arrays that are on several hosts.
    """
    if isinstance(array, jax.Array) and (not is_concrete(array) or not array.is_fully_addressable):
        return None
    if array.ndim != 2 or 0 in array.shape or not _loses(array.dtype):
        return None
    return np.asarray(array[:1])


def _loses(dtype: np.dtype) -> bool:
    """Whether a cast of the dtype to the compute dtype loses digits."""
    if dtype.kind not in "iuf" or dtype == np.dtype(compute_dtype()):
        return False
    bits = jnp.finfo(compute_dtype()).nmant + 1
    if dtype.kind == "f":
        return np.finfo(dtype).nmant + 1 > bits
    return 8 * dtype.itemsize > bits


def is_blurred(array: np.ndarray | jax.Array) -> bool:
    """Whether a cast to the compute dtype costs an array more than 1e-4 of its spread."""
    if origin_of(array) is None:
        return False
    host = np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = host.astype(compute_dtype())
        exact, blurred = (minus(rows, rows[:1]) for rows in (host, cast))
        return bool(np.abs(exact - blurred).max() > _BLURRED * np.abs(exact).max())


def _cast(
    array: Any, name: str, place: Callable[[Any], jax.Array], origin: np.ndarray | None
) -> jax.Array:
    """The array in the compute dtype, placed, after its numbers were looked at where they are."""
    whole = is_concrete(array) and not (
        isinstance(array, jax.Array) and not array.is_fully_addressable
    )
    if isinstance(array, jax.Array) and (origin is None or not whole):
        placed = place(array.astype(compute_dtype()))
        check_finite(placed, name=name)
        return placed
    # What is on the host is looked at there: nothing is compiled for it.
    host = np.asarray(array)
    check_finite(host, name=name)
    moved = host if origin is None else minus(host, origin)
    with np.errstate(over="ignore"):
        cast = moved.astype(compute_dtype())
    beyond = ~np.isfinite(cast).all(axis=1)
    if beyond.any():
        limit = float(jnp.finfo(cast.dtype).max)
        raise ValueError(
            f"{name}: {int(beyond.sum())} row(s) hold numbers beyond the range of {cast.dtype} "
            f"({limit:.1e}), the first of them row {int(beyond.argmax())}: rescale the embeddings "
            "(and the bandwidth), or enable x64."
        )
    if _loses(host.dtype):
        _warn_of_merged_rows(host, cast, name)
    return place(cast)


def minus(array: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """array - origin, exactly where both are integers, in float64 or wider where they are not."""
    if array.dtype.kind in "biu" and origin.dtype.kind in "biu":
        spread = [int(extreme(part)) for part in (array, origin) for extreme in (np.min, np.max)]
        if max(spread) - min(spread) < 2**63:
            # Modular: exact whatever the signs.
            difference = array.astype(np.uint64) - origin.astype(np.uint64)
            return difference.view(np.int64)
    wide = np.promote_types(np.promote_types(array.dtype, origin.dtype), np.float64)
    return array.astype(wide) - origin.astype(wide)


def _warn_of_merged_rows(before: np.ndarray, after: np.ndarray, name: str) -> None:
    """Says so where rows that differed are equal after the cast."""
    distinct = distinct_rows(after)[0]
    if distinct == after.shape[0]:
        return
    merged = distinct_rows(before)[0] - distinct
    if merged > 0:
        warn(
            f"{name}: {merged} row(s) that differ in {before.dtype} are equal in {after.dtype}, "
            "and count as duplicates; rescale, or enable x64."
        )


def distinct_rows(array: np.ndarray) -> tuple[int, np.ndarray]:
    """How many rows of `[n, d]` differ, and for each the number of its kind, `[n]`.

    Kinds are numbered in the order in which they first appear.
    """
    # Bytes are compared: a negative zero is made a zero first.
    rows = np.ascontiguousarray(array + np.zeros((), array.dtype))
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, kinds = np.unique(as_bytes, return_index=True, return_inverse=True)
    rank = np.empty(first.size, int)
    rank[np.argsort(first)] = np.arange(first.size)
    return first.size, rank[kinds.ravel()]


def _check_static(array: Any, *, name: str) -> None:
    dtype = array.dtype
    real = jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)
    if not real and dtype != np.bool_:
        raise TypeError(f"{name}: expected real numbers, received an array of dtype {dtype}.")
    if array.ndim != 2:
        raise ValueError(
            f"{name}: expected a two-dimensional array [n, d], received shape {array.shape}."
        )
    if 0 in array.shape:
        raise ValueError(
            f"{name}: expected at least one row and one column, received shape {array.shape}."
        )


def check_finite(array: np.ndarray | jax.Array, *, name: str) -> None:
    """Raises ValueError, naming the first such row, where an array holds a NaN or an infinity."""
    if not is_concrete(array):
        return
    if isinstance(array, np.ndarray):
        if array.dtype.kind in "biu":
            return
        bad = ~np.isfinite(array).all(axis=1)
        row, count = int(np.argmax(bad)), int(bad.sum())
    else:
        # At once, also for a constant inside jit; and in JAX, not NumPy: the rows may lie on
        # several hosts, and only a scalar is on all of them.
        with jax.ensure_compile_time_eval():
            row, count = map(int, _not_finite(array))
    if count == 0:
        return
    raise ValueError(
        f"{name}: expected finite numbers, received NaN or infinity in {count} row(s), the first "
        f"of them row {row}."
    )


@jax.jit
def _not_finite(array: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first row that is not finite, and how many are not: one program, not one a step."""
    finite_rows = jnp.isfinite(array).all(axis=1)
    return jnp.argmin(finite_rows), jnp.sum(~finite_rows)


def check_unit(unit: Any) -> float | None:
    """Returns a unit of length, or raises. It is static, and so a number also inside jit.

    Raises:
      TypeError, ValueError: neither None nor a finite number above 0.
    """
    if unit is None:
        return None
    if isinstance(unit, bool) or not isinstance(unit, (int, float, np.integer, np.floating)):
        raise TypeError(f"unit: expected None or a positive number, received {unit!r}.")
    if not (float(unit) > 0 and math.isfinite(float(unit))):
        raise ValueError(f"unit: expected a finite number above 0, received {unit!r}.")
    return float(unit)


def check_bandwidth(bandwidth: Any) -> jax.Array:
    """Returns the bandwidth as an array, or raises if it is concrete and not in (0, inf).

    Raises:
      TypeError: not a real number.
      ValueError: zero, negative, NaN, infinite, not a scalar, or beyond what the compute dtype
        resolves.
    """
    no_number = isinstance(bandwidth, (str, bytes, bool)) or getattr(
        bandwidth, "dtype", None
    ) == np.dtype(bool)
    if no_number:
        raise TypeError(f"bandwidth: expected a positive number, received {bandwidth!r}.")
    try:
        given = None if isinstance(bandwidth, Tracer) else np.asarray(bandwidth, np.float64)
        with np.errstate(over="ignore"):
            value = jnp.asarray(bandwidth, dtype=compute_dtype())
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"bandwidth: expected a positive number, received {bandwidth!r}."
        ) from error
    if not is_concrete(value):
        return value
    if value.ndim != 0:
        raise ValueError(f"bandwidth: expected a scalar, received shape {value.shape}.")
    assert given is not None  # Its value is at hand.
    number = float(given)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"bandwidth: expected a finite number above 0, received {bandwidth!r}.")
    limits = jnp.finfo(value.dtype)
    # Its inverse must be a number too.
    if not float(limits.tiny) <= number <= 1 / float(limits.tiny):
        raise ValueError(
            f"bandwidth: {number:g} is beyond what {value.dtype} resolves, "
            f"{float(limits.tiny):.1e} to {1 / float(limits.tiny):.1e}: rescale the embeddings "
            "and it, or enable x64."
        )
    return value


def check_key(key: Any, *, name: str = "key") -> jax.Array:
    """Returns the random key, or raises.

    Raises:
      ValueError: there is none.
      TypeError: it is not one key of `jax.random.key` or of `jax.random.PRNGKey`.
    """
    if key is None:
        raise ValueError(f"{name}: expected a random key, such as jax.random.key(0).")
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    shape = np.shape(key) if dtype is not None else None
    if not (typed and shape == ()) and not (dtype == np.uint32 and shape == (2,)):
        raise TypeError(
            f"{name}: expected one random key, such as jax.random.key(0), received {key!r}."
        )
    return key


def check_seed(seed: Any, *, name: str = "seed") -> int:
    """Returns the seed, or raises: beyond 32 bits two seeds would give one and the same key.

    Raises:
      ValueError: not an integer between 0 and 2^31 - 1.
    """
    seed = check_count(seed, name=name, minimum=0)
    if seed >= 2**31:
        raise ValueError(f"{name}: expected an integer below 2^31, received {seed}.")
    return seed


def check_rtol(rtol: Any, *, name: str = "rtol") -> float:
    """Returns the relative tolerance as a float, or raises.

    Raises:
      ValueError: not a number between 0 and 1.
    """
    number = isinstance(rtol, (int, float, np.number)) and not isinstance(rtol, bool)
    if not number or not 0 < float(rtol) < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, received {rtol!r}.")
    return float(rtol)


def check_order(order: Any) -> float:
    """Returns the order of a Renyi entropy as a float, or raises.

    Raises:
      ValueError: not a number in (0, inf]; order 1 (von Neumann) and infinity are valid.
    """
    valid = isinstance(order, (int, float, np.integer, np.floating)) and not isinstance(order, bool)
    if not valid or not float(order) > 0:
        raise ValueError(
            "order: expected a number above 0, where 1 is the von Neumann entropy and "
            f"float('inf') the min-entropy, received {order!r}."
        )
    return float(order)


def check_truncation(truncation: Any) -> int | None:
    """Returns the truncation as a positive integer or None, or raises.

    Raises:
      ValueError: not None and not an integer of at least 1.
    """
    if truncation is None:
        return None
    if (
        isinstance(truncation, bool)
        or not isinstance(truncation, (int, np.integer))
        or truncation < 1
    ):
        raise ValueError(
            "truncation: expected None or an integer of at least 1 (the number of leading "
            f"eigenvalues kept), received {truncation!r}."
        )
    return int(truncation)


def check_count(value: Any, *, name: str, minimum: int) -> int:
    """Returns a counting argument as an int, or raises.

    Raises:
      ValueError: not an integer of at least `minimum`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ValueError(f"{name}: expected an integer of at least {minimum}, received {value!r}.")
    return int(value)


def _kind_of_label(label: Any) -> type | None:
    """What labels must have in common; None for what is no label."""
    kinds = (str, bytes, (numbers.Real, np.bool_))
    found = next((kind for kind in kinds if isinstance(label, kind)), None)
    return numbers.Real if isinstance(found, tuple) else found


def check_labels(labels: Any, n: int, *, name: str = "labels") -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct labels, sorted, and for each row the number of its label, `[n]`.

    Args:
      labels: one for each of n rows: all numbers, all strings, or an array of dates.
      n: how many rows there are.
      name: what the labels are called in an error message.

    Raises:
      TypeError: the labels are traced or masked, or of different kinds.
      ValueError: they are not `[n]`, or hold a NaN.
    """
    if not is_concrete(labels):
        raise TypeError(
            f"{name}: expected concrete labels, received a traced array: they decide shapes."
        )
    array = labels
    if isinstance(labels, (list, tuple)):
        # As objects: NumPy would make the number 1 and the string "1" one label.
        array = np.empty(len(labels), object)
        array[:] = labels
    array = np.asarray(as_array(array, name=name))
    if array.shape != (n,):
        raise ValueError(
            f"{name}: expected {n} labels, one for each row, received shape {array.shape}."
        )
    if array.dtype == object:
        # By Python's equality: a common dtype would make large integers equal.
        labels = [
            label.item() if np.ndim(label) == 0 and hasattr(label, "item") else label
            for label in array
        ]
        kinds = [_kind_of_label(label) for label in labels]
        for row, kind in enumerate(kinds):
            if kind is None or kind != kinds[0]:
                raise TypeError(
                    f"{name}: expected all numbers or all strings, received {labels[row]!r} in row "
                    f"{row}" + (f" after {labels[0]!r} in row 0." if row else ".")
                )
            if labels[row] != labels[row]:
                raise ValueError(f"{name}: received NaN in row {row}.")
        names = sorted(set(labels))
        numbering = {label: number for number, label in enumerate(names)}
        return np.array(names), np.array([numbering[label] for label in labels])
    if array.dtype.kind not in "iubUSfMm":
        raise TypeError(
            f"{name}: expected numbers, strings or dates [n], received an array of dtype "
            f"{array.dtype}."
        )
    missing = array != array
    if missing.any():
        raise ValueError(f"{name}: received NaN in row {int(missing.argmax())}.")
    distinct, membership = np.unique(array, return_inverse=True)
    return distinct, membership.reshape(n)
