"""What models share: prompts that all of them answered, and as many samples of each; every two."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

from condvendi_jax import inference
from experiments.data import PairedEmbeddings
from experiments.lab import models

# Below this no error is worth its name.
FEWEST_PROMPTS = 3


@dataclasses.dataclass(frozen=True)
class Design:
    """What some models are compared on: how many shared prompts, how many samples of each."""

    models: tuple[str, ...]
    prompts: int
    samples: int


def match(names: Sequence[str], counts: np.ndarray, samples: int | None, most: int) -> Design:
    """Prompts and samples that some models share: as many rows as possible, then prompts.

    Each of the models has `counts` outputs of every prompt, `[models, prompts]`. `samples` of each
    prompt are taken (None: as many as leave the most rows), and `most` prompts at most.
    """
    fewest = counts.min(axis=0)
    tried = range(1, max(fewest.max(), 1) + 1) if samples is None else [samples]
    shared = {k: min(int(np.sum(fewest >= k)), most) for k in tried}
    samples = max(tried, key=lambda k: (k * shared[k], -k))
    return Design(tuple(names), shared[samples], samples)


def share(
    names: Sequence[str], counts: np.ndarray, samples: int | None, least: int, most: int
) -> tuple[Design, tuple[str, ...]]:
    """The comparison of as many models as share `least` prompts, and who is left out of it.

    The other arguments are those of `match`.

    Raises:
      ValueError: the last two share fewer than three.
    """
    rows, left_out = list(range(len(names))), []
    while True:
        design = match([names[row] for row in rows], counts[rows], samples, most)
        if design.prompts >= min(least, most) or len(rows) == 2:
            break
        fewest = min(rows, key=lambda row: (np.sum(counts[row] > 0), -row))
        rows.remove(fewest)
        left_out.append(names[fewest])
    if design.prompts < FEWEST_PROMPTS:
        several = "" if samples is None else f" with {samples} samples each"
        raise ValueError(
            f"--prompt: the models must share at least {FEWEST_PROMPTS} prompts{several}; "
            f"{' and '.join(design.models)} share {design.prompts}."
        )
    return design, tuple(left_out)


def draw_rows(pairs: PairedEmbeddings, design: Design, key: jax.Array) -> np.ndarray:
    """Rows of the pairs, `[models, prompts, samples]`: the same prompts of every model."""
    generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
    prompt, model = pairs.prompt_numbers.tolist(), pairs.labels["models"].astype(str).tolist()
    of_cell: dict[tuple[str, int], list[int]] = {}
    for row in generator.permutation(len(pairs)).tolist():
        of_cell.setdefault((model[row], prompt[row]), []).append(row)
    shared = [
        p
        for p in generator.permutation(max(prompt) + 1).tolist()
        if all(len(of_cell.get((m, p), ())) >= design.samples for m in design.models)
    ]
    return np.array(
        [[of_cell[m, p][: design.samples] for p in shared[: design.prompts]] for m in design.models]
    )


def of_pairs(compared: Sequence[xr.Dataset]) -> xr.Dataset:
    """Comparisons of two models each as one, with p-values adjusted for all of them by Holm.

    Over score, model and other: `of_pair`, the score of a model where it is compared with the
    other, `difference` and `p_value`; NaN of a model and itself.
    """
    first_two = np.array([one.p_value.values[:, 0, 1] for one in compared])
    adjusted = np.apply_along_axis(lambda p: inference.holm(p.tolist()), 0, first_two)
    found = []
    for one, p_value in zip(compared, adjusted, strict=True):
        fields = {"of_pair": one.value, "of_pair_error": one.error, "difference": one.difference}
        fields |= {"difference_error": one.difference_error, "p_value": ("score", p_value)}
        found.append(xr.Dataset(fields).where(one.model != one.other))
    return functools.reduce(xr.Dataset.combine_first, found)


def verdicts(pairs: xr.Dataset) -> xr.DataArray:
    """By what share a model exceeds another where a test tells the two apart; NaN elsewhere."""
    second = pairs.of_pair.rename(model="other", other="model")
    return (pairs.of_pair / second - 1).where(pairs.p_value <= models.LEVEL)
