"""The kernels of a call: given or by a rule, checked, and in the form that suits its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax import bandwidth, validation
from condvendi_jax.bandwidth import RuledBandwidth
from condvendi_jax.grams import to_host
from condvendi_jax.kernels import Gaussian, Indicator, Kernel, check_kernel

NAMES: tuple[str, str] = ("outputs", "prompts")
# Rows compared to find a bandwidth under which the kernel is constant or the identity.
_PROBED_ROWS = 256
# All kernel values between different points this near to one, or to zero, say nothing.
_NEGLIGIBLE = 1e-6


def check(
    paired: bool, output_kernel: Kernel | None, prompt_kernel: Kernel | None, rule: str | None
) -> tuple[Kernel | None, ...]:
    """The kernel of each array, None where a rule chooses it, or the error that it deserves."""
    if not paired and prompt_kernel is not None:
        raise ValueError("prompts: expected beside prompt_kernel, received None.")
    given = (output_kernel, prompt_kernel) if paired else (output_kernel,)
    for kernel, name in zip(given, ("output_kernel", "prompt_kernel"), strict=False):
        if kernel is not None:
            check_kernel(kernel, name=name)
        elif rule is None:
            beside = " beside prompts" if name == "prompt_kernel" else ""
            raise ValueError(
                f"{name}: expected{beside} a kernel such as Gaussian(bandwidth) or Cosine(), "
                "received None."
            )
    if rule is not None:
        bandwidth.check_rule(rule)
    return given


def shiftable(given: Sequence[Kernel | None]) -> list[str]:
    """The names of the arrays that may be moved: those of kernels of differences alone."""
    named = zip(NAMES, given, strict=False)
    return [name for name, kernel in named if kernel is None or kernel.shift_invariant]


def by_rule(
    arrays: Sequence[jax.Array],
    given: Sequence[Kernel | None],
    rule: str | None,
    key: jax.Array | None,
    progress: Callable[[str], Any],
) -> tuple[tuple[Kernel, ...], dict[str, RuledBandwidth]]:
    """The kernel of each array, given or by the rule, and the bandwidths that the rule chose."""
    kernels: list[Kernel] = []
    ruled: dict[str, RuledBandwidth] = {}
    for index, (name, array, kernel) in enumerate(zip(NAMES, arrays, given, strict=False)):
        if kernel is None:
            progress(f"bandwidth of {name}")
            assert rule is not None  # `check` has seen to it.
            own = jax.random.fold_in(validation.check_key(key), index)
            ruled[name] = bandwidth.of_checked(array, rule, key=own, name=name)
            chosen = ruled[name].bandwidth
            assert chosen is not None  # Every rule gives one.
            kernel = Gaussian(chosen)
        kernels.append(kernel)
    return tuple(kernels), ruled


def suited(kernels: Sequence[Kernel], arrays: Sequence[jax.Array]) -> tuple[Kernel, ...]:
    """The kernels in the form that suits the points.

    Raises where one is not defined on them, and warns where one says nothing of them.
    """
    fitting = list(kernels)
    pairs = zip(kernels, arrays, strict=True)
    known = [index for index, pair in enumerate(pairs) if validation.is_concrete(*pair)]
    # At once, also for constants inside jit.
    with jax.ensure_compile_time_eval():
        for index in known:
            kernels[index].check_points(arrays[index], name=NAMES[index])
            fitting[index] = kernels[index].suited_to(arrays[index])
        probed = [(fitting[index], arrays[index]) for index in known]
        found = np.asarray(_off_diagonal_ranges(probed)) if known else ()
        for index, (identical, smallest, largest) in zip(known, found, strict=True):
            exact = isinstance(kernels[index], Indicator)
            repeated = exact and largest < 1 and _repeats(arrays[index])
            if not identical and not repeated:
                rows = min(arrays[index].shape[0], _PROBED_ROWS)
                _warn_of_extremes(kernels[index], rows, smallest, largest, name=NAMES[index])
    return tuple(fitting)


def _repeats(array: jax.Array) -> bool:
    """Whether two of all rows are equal, which a sample of them need not show."""
    return validation.distinct_rows(to_host(array))[0] < array.shape[0]


def _warn_of_extremes(
    kernel: Kernel, rows: int, smallest: float, largest: float, *, name: str
) -> None:
    """Says so where a kernel cannot tell the points apart, or tells all apart."""
    compared = f"all kernel values between {rows} rows"
    if smallest > 1 - _NEGLIGIBLE:
        validation.warn(
            f"{name}: under {kernel!r} {compared} exceed 1 - 1e-6, the Gram is numerically "
            "constant and its scores are 1: it cannot tell these embeddings apart."
        )
    elif max(abs(smallest), abs(largest)) < _NEGLIGIBLE:
        validation.warn(
            f"{name}: under {kernel!r} {compared} are below 1e-6, the Gram is numerically the "
            "identity and its scores only count points."
        )


@jax.jit
def _off_diagonal_ranges(pairs: Sequence[tuple[Kernel, jax.Array]]) -> jax.Array:
    """For some rows of each, whether they are identical, and the least and largest kernel values.

    One array `[pairs, 3]`, so that one program and one transfer serve all.
    """
    found = []
    for kernel, points in pairs:
        rows = points[:: -(-points.shape[0] // _PROBED_ROWS)]
        prepared = kernel.prepare(rows)
        values = kernel.cross(prepared, prepared)
        # A constant of NumPy: inside of compile-time evaluation JAX would compile its making.
        diagonal = np.eye(rows.shape[0], dtype=bool)
        smallest = jnp.min(jnp.where(diagonal, jnp.inf, values))
        largest = jnp.max(jnp.where(diagonal, -jnp.inf, values))
        identical = (rows == rows[:1]).all().astype(values.dtype)
        found.append(jnp.stack([identical, smallest, largest]))
    return jnp.stack(found)
