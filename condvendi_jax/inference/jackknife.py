"""The delete-group jackknife of any score: the rows leave group by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.inference.errors import (
    DEFAULT_GROUPS,
    Groups,
    deal,
    group_influences,
    labelled,
    root_mean_square,
)


def group_rows(
    n: int,
    groups: int | ArrayLike = DEFAULT_GROUPS,
    *,
    key: jax.Array | None = None,
    kinds: np.ndarray | None = None,
) -> Groups:
    """Puts rows into groups for a jackknife: rows of one prompt stay together.

    Groups that split them understate the error (docs/errors.md). Where `kinds` (as
    `Pairs.prompt_kinds`) are all equal, or all differ, rows are grouped one by one.
    """
    if not isinstance(groups, (int, np.integer)):
        return labelled(checks.check_labels(groups, n, name="groups")[1])
    count = checks.check_count(groups, name="groups", minimum=2)
    if count > n:
        raise ValueError(f"groups: expected at most n = {n}, received {count}.")
    kinds = np.zeros(n, int) if kinds is None else kinds
    return deal(count, checks.check_key(key), kinds, np.ones(n, int))


@checks.outside_transformations
def standard_error(
    score: Callable[..., Any],
    outputs: ArrayLike,
    prompts: ArrayLike | None = None,
    *,
    key: jax.Array | None = None,
    groups: int | ArrayLike = DEFAULT_GROUPS,
) -> Any:
    """The delete-group jackknife standard error of any score.

    The score is computed without each group of rows in turn, and the spread of the results gives
    the error (the delete-m_j jackknife of Busing, Meijer and van der Leeden, 1999, which for equal
    groups is the usual (g - 1)/g sum (theta_j - mean)^2). Rows that depend on each other leave
    together: those of equal prompts do by themselves, others where labels say so.

    The error is of the sampling noise at this n, for given kernels (docs/errors.md). It knows no
    weights: a score that needs them can read them from a column of the outputs. The scores of
    `decompose` have the errors of `evaluate`, which takes weights.

    Args:
      score: `score(outputs)` or `score(outputs, prompts)`, returning a scalar or a pytree of
        scalars, a `Decomposition` for instance. It receives arrays of the compute dtype; an array
        so far from the origin that the cast would blur it arrives as it was passed.
      outputs: embeddings `[n, d_x]`.
      prompts: embeddings `[n, d_t]`, or None for a score of the outputs alone.
      key: assigns rows to groups at random; needed where `groups` is a number.
      groups: the number of groups of (almost) equal size, or the label `[n]` of each row's group.

    Returns:
      The standard errors, in the structure and units of what `score` returns. NaN, with a
      warning, where n = 1.

    Raises:
      TypeError, ValueError: the arrays are not valid or do not pair up, `groups` is below 2 or
        above n, the labels are not n or all the same, or `key` is missing.

    Examples:
      Of a mean it is s / sqrt(n):

      >>> import jax, numpy as np
      >>> import jax.numpy as jnp
      >>> import condvendi_jax as cv
      >>> values = np.arange(16, dtype=np.float32)[:, None]
      >>> error = cv.standard_error(jnp.mean, values, key=jax.random.key(0), groups=16)
      >>> print(f"{error:.4f} = {values.std(ddof=1) / 4:.4f}")
      1.1902 = 1.1902
    """
    if not callable(score):
        raise TypeError(f"score: expected a function of the arrays, received {score!r}.")
    named = {"outputs": outputs} | ({} if prompts is None else {"prompts": prompts})
    checks.check_indices(named | {"groups": groups})
    given = checks.as_arrays(named)
    blurred = [name for name, array in given.items() if checks.is_blurred(array)]
    origins = {name: checks.origin_of(given[name]) for name in blurred}
    checked = dict(zip(given, checks.check_arrays(given, origins=origins), strict=True))
    arrays = [given[name] if name in blurred else array for name, array in checked.items()]
    n = arrays[0].shape[0]
    if n == 1:
        checks.warn("a standard error needs at least two rows: it is NaN for n = 1.")
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), score(*arrays))
    kinds = None
    if prompts is not None:
        kinds = checks.equal_rows(np.asarray(arrays[1]), name="prompts")[1]
    chosen = group_rows(n, groups, key=key, kinds=kinds)
    everything, structure = jax.tree.flatten(score(*arrays))
    kept = [np.flatnonzero(chosen.membership != group) for group in range(chosen.count)]
    # By leaves: a result may record its n, which differs between the deletions.
    deleted = [jax.tree.leaves(score(*(array[rows] for array in arrays))) for rows in kept]
    each = zip(everything, *deleted, strict=True)
    errors = [
        jnp.asarray(root_mean_square(group_influences(whole, parts, chosen.fractions)))
        for whole, *parts in each
    ]
    return jax.tree.unflatten(structure, errors)
