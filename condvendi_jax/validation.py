"""What a bad input gets: checks that run before any heavy work.

Every check looks at shapes and dtypes always, and at values only where they are concrete: under
`jax.jit`, `jax.vmap` or `jax.grad` an array is a tracer, nothing can raise on its values, and
only the static part is checked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def is_concrete(*values: Any) -> bool:
    """Whether no leaf of `values` is a tracer, so that its numbers may be looked at."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def compute_dtype() -> jnp.dtype:
    """float64 where the user enabled x64, float32 otherwise."""
    return jnp.zeros(()).dtype


def check_embeddings(
    array: Any, *, name: str, place: Callable[[Any], jax.Array] = jnp.asarray
) -> jax.Array:
    """Checks one array of embeddings and casts it to the compute dtype.

    Args:
      array: embeddings `[n, d]` of any real dtype. Small floats, integers and booleans are cast
        before any arithmetic; float64 is cast to float32, with a warning, where x64 is off.
      name: what the array is called in an error message.
      place: puts the array, of the compute dtype, on the device, or on several.

    Returns:
      The array `[n, d]` in float32, or in float64 where x64 is enabled.

    Raises:
      TypeError: the dtype is not real (object, string, complex).
      ValueError: the array is not two-dimensional, is empty, or holds a NaN or an infinity.
    """
    return _check_arrays({name: array}, place)[0]


def check_pairs(
    outputs: Any, prompts: Any, *, place: Callable[[Any], jax.Array] = jnp.asarray
) -> tuple[jax.Array, jax.Array]:
    """Checks outputs `[n, d_x]` and prompts `[n, d_t]` and that they pair up.

    Args:
      outputs, prompts: as for `check_embeddings`.
      place: puts an array of the compute dtype on the device, or on several.

    Raises:
      TypeError, ValueError: as `check_embeddings`, or the two lengths differ.
    """
    outputs, prompts = _check_arrays({"outputs": outputs, "prompts": prompts}, place)
    return outputs, prompts


def _check_arrays(
    named: dict[str, Any], place: Callable[[Any], jax.Array] = jnp.asarray
) -> list[jax.Array]:
    arrays = {
        name: array if isinstance(array, jax.Array) else np.asarray(array)
        for name, array in named.items()
    }
    for name, array in arrays.items():
        _check_static(array, name=name)
    lengths = [array.shape[0] for array in arrays.values()]
    if len(set(lengths)) > 1:
        raise ValueError(
            "outputs and prompts must pair up row by row: received "
            f"{lengths[0]} outputs and {lengths[1]} prompts."
        )
    wide = [name for name, array in arrays.items() if array.dtype == np.float64]
    if wide and compute_dtype() == jnp.float32:
        warnings.warn(
            f"{' and '.join(wide)}: float64 input is computed in float32 because x64 is off; "
            "enable it with jax.config.update('jax_enable_x64', True).",
            stacklevel=4,
        )
    placed = []
    for name, array in arrays.items():
        cast = array.astype(compute_dtype())
        placed.append(place(cast))
        # What is on the host is looked at there: nothing is compiled for it.
        _check_finite(cast if isinstance(cast, np.ndarray) else placed[-1], name=name)
    return placed


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


def _check_finite(array: np.ndarray | jax.Array, *, name: str) -> None:
    if not is_concrete(array):
        return
    if isinstance(array, np.ndarray):
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


def check_bandwidth(bandwidth: Any) -> jax.Array:
    """Returns the bandwidth as an array, or raises if it is concrete and not in (0, inf).

    Raises:
      TypeError: not a real number.
      ValueError: zero, negative, NaN, infinite, or not a scalar.
    """
    if isinstance(bandwidth, (str, bool)):
        raise TypeError(f"bandwidth: expected a positive number, received {bandwidth!r}.")
    try:
        value = jnp.asarray(bandwidth, dtype=compute_dtype())
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"bandwidth: expected a positive number, received {bandwidth!r}."
        ) from error
    if is_concrete(value):
        if value.ndim != 0:
            raise ValueError(f"bandwidth: expected a scalar, received shape {value.shape}.")
        # Its inverse must be finite too: a bandwidth below 1e-38 has none in float32.
        if not (float(value) > 0 and math.isfinite(float(value)) and bool(jnp.isfinite(1 / value))):
            raise ValueError(
                f"bandwidth: expected a finite number above 0, received {bandwidth!r}."
            )
    return value


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
