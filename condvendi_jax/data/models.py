"""Models of one call: what is theirs by name, which prompts are equal, and what a rule sees."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.base.devices import placed, take, to_host
from condvendi_jax.data import default_rule
from condvendi_jax.data.kernels import is_equality
from condvendi_jax.data.rows import RESAMPLED, Rows, prompts_by_model


def check_names(models: Any) -> None:
    """Raises unless `models` is a mapping from names of printable text."""
    if not isinstance(models, Mapping) or not models:
        raise ValueError("models: expected the outputs of each model by its name.")
    for name in models:
        if not isinstance(name, str):
            raise TypeError(f"models: expected names that are strings, received {name!r}.")
        if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e]", name):
            raise ValueError(f"models: expected names of printable text, received {name!r}.")


def of_each_model(value: Any, models: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """The value of each model: from a mapping by its name, or one value for all."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(models, value)
    if set(value) != set(models):
        raise ValueError(
            f"{argument}: expected those of {sorted(models)}, received those of {sorted(value)}."
        )
    return {name: value[name] for name in models}


def count_as_repeated(
    models: Sequence[Rows], given: Sequence[Any], rule: str | None, similar: bool
) -> bool:
    """Whether prompts are equal or different, and more than half of the rows share theirs."""
    if rule is None or not models[0].paired or similar and given[1] is None:
        return False
    if given[1] is not None and not (given[0] is None and is_equality(given[1])):
        return False
    total = several = 0.0
    for pairs in models:
        numbers = (pairs.shares > 0) * (1 if pairs.copies is None else pairs.copies)
        kinds = pairs.prompt_kinds[1]
        total += numbers.sum()
        several += numbers[np.bincount(kinds, numbers)[kinds] > 1].sum()
    return several > total / 2


def resampled(pairs: Rows) -> tuple[jax.Array, ...]:
    """The rows that a rule sees, by systematic resampling: each by its weight, within one row."""
    if pairs.weights is None or not checks.is_concrete(pairs.weights):
        return pairs.arrays
    shares = pairs.shares
    rows = int(np.count_nonzero(shares))
    if pairs.copies is not None:  # As many as integer weights say, up to a limit.
        rows = max(rows, min(pairs.total, RESAMPLED))
    chosen = np.searchsorted(np.cumsum(shares), (np.arange(rows) + 0.5) / rows)
    return tuple(take(array, chosen) for array in pairs.arrays)


def compared(
    models: Mapping[str, Rows], content: Mapping[str, Mapping[str, Any]], role: str
) -> tuple[Any, ...]:
    """What the default rule compares: points, prompts, labels, weights, of outputs or prompts.

    All models weigh the same, and so do all prompts of a model for which no weights are given.
    """
    parts, start, every = [], 0, [*models.values()]
    for (name, pairs), kinds in zip(models.items(), prompts_by_model(every)[1], strict=True):
        rows, labels, weights = default_rule.compared(
            pairs.prompts_once().shares,
            None if pairs.paired else pairs.copies,
            most=default_rule.MOST_ROWS // len(models),
            content=content[name][role],
            prompts=kinds,
        )
        points = to_host(take(pairs.arrays[role == "prompts"], rows))
        parts.append((points, kinds[rows], start + labels, weights / len(models)))
        start += max(pairs.n, pairs.total)
    points, kinds, labels, weights = map(np.concatenate, zip(*parts, strict=True))
    return points, kinds, None if role == "prompts" else labels, weights


def numbered(models: Sequence[Rows]) -> list[tuple[jax.Array, ...]]:
    """The arrays of models, with numbers, `[n, 1]`, in place of rows under an `Indicator`.

    Comparing d coordinates of all pairs takes d times as long. Equal rows have one number.
    """
    first = models[0]
    columns = [list(arrays) for arrays in zip(*(pairs.arrays for pairs in models), strict=True)]
    for index, (kernel, arrays) in enumerate(zip(first.kernels, columns, strict=True)):
        numbers = arrays[0].shape[1] == 1 and (index == 0 or first.prompt_ids is None)
        alone = first.layout is None and checks.is_concrete(arrays)
        if numbers or not alone or not kernel.compares_equality:
            continue
        if index == 1:
            parts = prompts_by_model(models)[1]
        else:
            stacked = np.concatenate([np.asarray(array) for array in arrays])
            kinds = checks.equal_rows(stacked, name="outputs")[1]
            parts = np.split(kinds, np.cumsum([pairs.n for pairs in models])[:-1])
        with jax.ensure_compile_time_eval():
            numbered = {
                id(array): placed(part[:, None].astype(first.dtype))
                for array, part in zip(arrays, parts, strict=True)
            }
        columns[index] = [numbered[id(array)] for array in arrays]
    return list(zip(*columns, strict=True))
