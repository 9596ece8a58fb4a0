"""Order 2 in strips of rows, with progress and a file from which an interrupted call goes on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax import __version__, files, validation
from condvendi_jax.entropies import renyi
from condvendi_jax.grams import _pairwise as pairwise
from condvendi_jax.grams import to_host
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra import _order_two as order_two

# Seconds between two writes of the checkpoint: a write takes milliseconds.
_BETWEEN_WRITES = 10.0


class _State(NamedTuple):
    """What is known after the first strips."""

    strips: int  # How many are done.
    totals: np.ndarray  # The weighted sums of squares over their pairs i < j, float64.


@validation.outside_transformations
@takes_pairs
def decompose_in_strips(
    pairs: Pairs,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[float], Any] = lambda _: None,
    strip: int | None = None,
) -> Decomposition:
    """`decompose` at order 2 for many rows: it shows progress and survives an interruption.

    The rows are taken a strip at a time, each against itself and all rows before it. One compiled
    program serves all strips, and their sums are added in float64. The result is that of
    `decompose(order=2)` up to rounding, on one device, without derivatives.

    Args:
      pairs: the data, or what makes it, as for `decompose`. Arrays may be memory maps.
      checkpoint: a file that is written at most every 10 seconds, at an exception and at the end. A
        later call with the same data, kernels, strip and version of the library goes on from it. A
        finished file stays, and gives the result at once. A kernel of your own is known by its
        `repr`, its parameters and its attributes.
      progress: called with the share of the pairs that is done, in [0, 1]: first with what the
        checkpoint holds, then after each strip. It may raise an exception to stop.
      strip: the rows of a strip, about; where None, what suits the device.

    Returns:
      A `Decomposition`.

    Raises:
      TypeError, ValueError: as `Pairs`; the checkpoint is damaged or belongs to other data,
        kernels, strip or version; rows lie on several devices; or kernel values are not finite.
      OSError: the checkpoint cannot be written.

    Examples:
      >>> import condvendi_jax as cv
      >>> outputs, sharp = [[0], [0], [1], [2]], cv.Gaussian(0.1)
      >>> scores = cv.scores.decompose_in_strips(outputs, kernel=sharp)
      >>> print(f"{scores.vendi:.3f}")  # 8 / 3
      2.667
    """
    if strip is not None:
        strip = validation.check_count(strip, name="strip", minimum=1)
    if pairs.layout is not None:
        raise ValueError(
            "decompose_in_strips: received rows over several devices, expected rows on one. Pass "
            "the arrays without a mesh, or call cv.decompose, which uses all devices."
        )
    count, size = pairwise.tiling(pairs.n, strip)
    given = jnp.ones(pairs.n, pairs.dtype) if pairs.weights is None else pairs.weights
    factors, subsets = order_two.factors_of(pairs)
    identity, state = {}, _State(0, np.zeros(len(subsets)))
    if checkpoint is not None:
        path = files.expanded(checkpoint)
        if path.exists() and not path.is_file():
            raise ValueError(f"checkpoint: expected a file, received {path}, which is none.")
        files.check_writable(checkpoint)
        identity = _identity(pairs, given, size)
        state = _read(checkpoint, identity, state)
    kernels = tuple(factor.kernel for factor in factors)
    points = pairwise.pad(tuple(factor.points for factor in factors), count * size)
    weights = jnp.pad(given, (0, count * size - pairs.n))
    mass = np.asarray(weights, np.float64)
    written, at = state, time.monotonic()
    progress(_share(state.strips, count))
    try:
        while state.strips < count:
            j = state.strips
            sums = pairwise.strip_sums(kernels, points, subsets, weights, jnp.asarray(j), size)
            more = np.asarray(sums, np.float64) @ mass[j * size : (j + 1) * size]
            if not np.isfinite(more).all():
                raise ValueError(
                    f"The kernels are not finite on the rows {j * size} to "
                    f"{min((j + 1) * size, pairs.n) - 1} and those before them: do their squared "
                    "distances overflow? Rescale embeddings and bandwidth."
                )
            state = _State(j + 1, state.totals + more)
            if checkpoint is not None and time.monotonic() - at >= _BETWEEN_WRITES:
                _write(checkpoint, identity, state)
                written, at = state, time.monotonic()
            progress(_share(state.strips, count))
    finally:
        if checkpoint is not None and state is not written:
            _write(checkpoint, identity, state)
    norms = (2 * state.totals + np.square(mass).sum()) / mass.sum() ** 2
    values = order_two.entropies_of(jnp.asarray(norms, pairs.dtype))
    return Decomposition.of(methods.Computed(values, None, methods.FROBENIUS), renyi(2), n=pairs.n)


def _share(strips: int, count: int) -> float:
    """The share of the pairs that the first strips hold: strip j meets j before it, and itself."""
    return strips * (strips + 1) / (count * (count + 1))


def _identity(pairs: Pairs, weights: jax.Array, size: int) -> dict[str, Any]:
    """What the sums of a strip depend on, as JSON keeps it."""
    data = hashlib.sha256()
    for array in (*pairs.arrays, weights):
        data.update(np.ascontiguousarray(to_host(array)).data.cast("B"))
    return files.jsonable(
        {
            "version": __version__,
            "shapes": [array.shape for array in pairs.arrays],
            "dtype": pairs.dtype.name,
            "kernels": [_described(kernel) for kernel in pairs.kernels],
            "strip": size,
            "data": data.hexdigest(),
        }
    )


def _described(value: Any) -> list[Any]:
    """What tells a kernel from others: `repr`, structure, a function's line, leaves, attributes."""
    leaves, structure = jax.tree.flatten(value)
    shown = [repr(value), str(structure), repr(getattr(value, "__code__", None))]
    described: list[Any] = [re.sub(r" at 0x[0-9a-f]+", "", text) for text in shown]
    described += [leaf for leaf in map(np.asarray, leaves) if leaf.dtype != object]
    if described[:3] != shown:  # Python shows an object without a `repr` by its address in memory.
        parts = getattr(value, "__dict__", {})
        described += [*parts, *map(_described, jax.tree.leaves(parts, is_leaf=callable))]
    return described


def _write(path: str | os.PathLike[str], identity: dict[str, Any], state: _State) -> None:
    """Replaces the checkpoint as a whole."""
    content = {"of": identity, "strips_done": state.strips, "totals": state.totals}
    files.write_report(path, {"kind": "checkpoint of decompose_in_strips", **content})


def _read(path: str | os.PathLike[str], identity: dict[str, Any], start: _State) -> _State:
    """What a checkpoint holds, or the start where there is none; ValueError if it is another's."""
    path = files.expanded(path)
    if not path.exists():
        return start
    try:
        if not files.is_own(path, checkpoint=True):
            raise ValueError("its checksum differs")
        found = json.loads(path.read_bytes())
        of, state = found["of"], _State(found["strips_done"], np.asarray(found["totals"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: is no checkpoint of decompose_in_strips, or is damaged. Remove it to start "
            "from the beginning, or name another file."
        ) from error
    for name, own in identity.items():
        if of.get(name) != own:
            raise ValueError(
                f"{path}: is the checkpoint of another computation: {name} {of.get(name)} there, "
                f"{own} here. Call with what it was written for, or name another file."
            )
    return state
