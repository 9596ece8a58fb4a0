"""Models side by side: their scores, with the paired differences of every two, as a result."""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr

import condvendi_jax as cv
from experiments.data import PairedEmbeddings
from experiments.lab.scales import Bandwidths

LEVEL = 0.05
_PLACES = ("conditional", "information", "vendi")
SCORES = tuple((score, order) for order in (1.0, 2.0) for score in _PLACES)


def compare(
    outputs: Mapping[str, np.ndarray],
    prompts: Any,
    scale: Bandwidths,
    *,
    groups: Any,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> xr.Dataset:
    """The scores of models under the same kernels, with the paired differences of every two.

    The outputs of each model are `[n, d_x]`, the prompts, of each or of all of them, `[n, d_t]`;
    `say` is the `progress` of `cv.compare`, whose further arguments and errors are its own.

    Returns:
      With the axes `score` (names such as 'Conditional-Vendi'), `model` and `other`:
      `value` and `error` (of a model by itself) over score and model; `difference` (the model less
      the other), `difference_error` and `p_value` (adjusted by Holm over all pairs within a score;
      1 for a model and itself, NaN where the score is saturated) over all three; `letters` over
      score and model (models that share one cannot be told apart; '' where saturated); `n` over
      model; `groups` and `units` of the jackknife.
    """
    options = {"level": LEVEL, "profile": False, **scale.kernels, **options}
    compared = cv.compare(outputs, prompts, groups=groups, seed=seed, progress=say, **options)
    by, models = compared.first.orders[0].errors_by, list(outputs)
    assert by is not None  # There are always errors.
    # Where prompts were asked once, there is one more ranking, by near prompts.
    rankings = [ranking for ranking in compared.rankings if ranking.score in _PLACES]
    rankings.sort(key=lambda r: (r.order, _PLACES.index(r.score)))
    shape = len(rankings), len(models), len(models)
    differences, errors, p_values = np.zeros(shape), np.zeros(shape), np.ones(shape)
    for row, ranking in enumerate(rankings):
        for d in ranking.differences:
            i, j = models.index(d.first), models.index(d.second)
            differences[row, i, j], differences[row, j, i] = d.value, -d.value
            errors[row, [i, j], [j, i]] = d.standard_error
            p_values[row, [i, j], [j, i]] = d.adjusted
    one, two = ("score", "model"), ("score", "model", "other")
    return xr.Dataset(
        {
            "value": (one, [[r.values[m] for m in models] for r in rankings]),
            "error": (one, [[r.standard_errors[m] for m in models] for r in rankings]),
            "letters": (one, [[r.letters[m] for m in models] for r in rankings]),
            "n": ("model", [compared.n[m] for m in models]),
            "groups": by.groups,
            "units": by.units,
            "difference": (two, differences),
            "difference_error": (two, errors),
            "p_value": (two, p_values),
        },
        {"score": [ranking.name for ranking in rankings], "model": models, "other": models},
    )


def of_pairs(compared: Sequence[xr.Dataset]) -> xr.Dataset:
    """Comparisons of two models each as one, with p-values adjusted for all of them by Holm.

    `of_pair` is the score of a model where it is compared with the other. NaN with itself.
    """
    first_two = np.array([one.p_value.values[:, 0, 1] for one in compared])
    adjusted = np.apply_along_axis(lambda p: cv.inference.holm(p.tolist()), 0, first_two)
    found = []
    for one, p_value in zip(compared, adjusted, strict=True):
        fields = one[["difference", "difference_error"]].assign(of_pair=one.value)
        found.append(fields.assign(p_value=("score", p_value)).where(one.model != one.other))
    return functools.reduce(xr.Dataset.combine_first, found)


def shared_rows(
    pairs: PairedEmbeddings, names: Sequence[str], samples: int, key: jax.Array | None
) -> np.ndarray:
    """Rows of the prompts of which models have so many samples, `[models, prompts, samples]`.

    In random order, and samples drawn at random; in that of the pairs without a key.
    """
    cells, numbers = defaultdict(list), pairs.prompt_numbers
    orders = [np.arange(len(pairs)), np.arange(numbers.max() + 1)]
    if key is not None:
        generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        orders = [generator.permutation(of) for of in orders]
    for row in orders[0]:
        cells[pairs.labels["models"][row], numbers[row]].append(row)
    every = [[cells[m, p][:samples] for m in names] for p in orders[1]]
    return np.swapaxes([of for of in every if min(map(len, of)) == samples], 0, 1)


def rows_by_model(models: np.ndarray) -> dict[str, np.ndarray]:
    """The row numbers of each model, in the order in which the models first occur."""
    names = models.astype(str)
    return {name: np.flatnonzero(names == name) for name in pd.unique(names).tolist()}


def rows_by_cell(group: np.ndarray, slot: np.ndarray, rank: np.ndarray | None = None) -> np.ndarray:
    """The rows of the groups that have rows in every slot, `[groups, slots, k]`.

    The group and the slot of each row are numbered from 0, `[n]`. As many rows as all those groups
    have are taken: the first by rank, or by row if None.
    """
    counts = np.zeros((group.max() + 1, slot.max() + 1), int)
    np.add.at(counts, (group, slot), 1)
    whole = np.flatnonzero(counts.min(axis=1))
    order = np.lexsort((np.arange(len(group)) if rank is None else rank, slot, group))
    starts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    each = counts[whole].min() if whole.size else 0
    return order[starts[whole, :, None] + np.arange(each)]


def count_rows(pairs: PairedEmbeddings, least: int = 2) -> tuple[list[str], np.ndarray]:
    """The models, at least so many, and their numbers of outputs by prompt, `[models, prompts]`."""
    counts = pd.crosstab(pairs.labels["models"].astype(str), pairs.prompt_numbers)
    names = counts.index.tolist()
    if len(names) < least:
        raise ValueError(f"--models: expected at least two models, received {', '.join(names)}.")
    return names, counts.to_numpy()


def check_shared(pairs: PairedEmbeddings) -> np.ndarray:
    """How many outputs of every prompt each model has, `[prompts]`; ValueError where two differ."""
    names, counts = count_rows(pairs)
    if (other := (counts != counts[0]).any(axis=1)).any():
        raise ValueError(
            "--models: expected the same prompts for each model, and as many outputs of each "
            f"prompt; those of {names[other.argmax()]} are not those of {names[0]}."
        )
    return counts[0]
