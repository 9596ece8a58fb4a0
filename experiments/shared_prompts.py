"""What models share: prompts that all of them answered, and as many samples of each; every two."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

from condvendi_jax import inference
from experiments.data import PairedEmbeddings

# Below this no error is worth its name.
FEWEST_PROMPTS = 3


@dataclasses.dataclass(frozen=True)
class Design:
    """What some models are compared on: how many shared prompts, how many samples of each."""

    models: tuple[str, ...]
    prompts: int
    samples: int


def count_rows(pairs: PairedEmbeddings) -> tuple[list[str], np.ndarray]:
    """The models, and how many pairs each has of every prompt, `[models, prompts]`.

    Raises:
      ValueError: there are fewer than two models.
    """
    names, model = np.unique(pairs.labels["models"].astype(str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"--models: expected at least two models, received {', '.join(names)}.")
    prompt = pairs.prompt_numbers
    counts = np.zeros((len(names), prompt.max() + 1), int)
    np.add.at(counts, (model, prompt), 1)
    return names.tolist(), counts


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a comparison may be.

    Attributes:
      samples: of each prompt; None for as many as leave the most rows.
      least_prompts: models are left out until the others share so many.
      most_prompts: that are taken where models share more.
    """

    samples: int | None
    least_prompts: int
    most_prompts: int


def match(names: Sequence[str], counts: np.ndarray, rows: Sequence[int], sizes: Sizes) -> Design:
    """Prompts and samples that some models share: as many rows as possible, then prompts."""
    fewest = counts[list(rows)].min(axis=0)
    tried = range(1, max(fewest.max(), 1) + 1) if sizes.samples is None else [sizes.samples]
    shared = {k: min(int(np.sum(fewest >= k)), sizes.most_prompts) for k in tried}
    samples = max(tried, key=lambda k: (k * shared[k], -k))
    return Design(tuple(names[row] for row in rows), shared[samples], samples)


def share(names: Sequence[str], counts: np.ndarray, sizes: Sizes) -> tuple[Design, tuple[str, ...]]:
    """The comparison of as many models as share enough prompts, and who is left out of it.

    Raises:
      ValueError: the last two share fewer than three.
    """
    rows, left_out = list(range(len(names))), []
    wanted = min(sizes.least_prompts, sizes.most_prompts)
    while (design := match(names, counts, rows, sizes)).prompts < wanted and len(rows) > 2:
        least = min(rows, key=lambda row: (np.sum(counts[row] > 0), -row))
        rows.remove(least)
        left_out.append(names[least])
    if design.prompts < FEWEST_PROMPTS:
        several = "" if sizes.samples is None else f" with {sizes.samples} samples each"
        raise ValueError(
            f"--prompt: the models must share at least {FEWEST_PROMPTS} prompts{several}; "
            f"{' and '.join(design.models)} share {design.prompts}."
        )
    return design, tuple(left_out)


def draw_rows(pairs: PairedEmbeddings, design: Design, key: jax.Array) -> np.ndarray:
    """Rows of the pairs, `[models, prompts, samples]`: the same prompts of every model."""
    generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
    prompt, model = pairs.prompt_numbers.tolist(), pairs.labels["models"].astype(str).tolist()
    order = generator.permutation(len(pairs))
    of_cell: dict[tuple[str, int], list[int]] = {}
    for row in order.tolist():
        of_cell.setdefault((model[row], prompt[row]), []).append(row)
    shared = [
        p
        for p in generator.permutation(max(prompt) + 1).tolist()
        if all(len(of_cell.get((m, p), ())) >= design.samples for m in design.models)
    ]
    return np.array(
        [[of_cell[m, p][: design.samples] for p in shared[: design.prompts]] for m in design.models]
    )


def of_pairs(compared: list[xr.Dataset]) -> xr.Dataset:
    """Comparisons of two models each as one, with p-values adjusted for all of them by Holm."""
    names = list(dict.fromkeys(name for one in compared for name in one.model.values.tolist()))
    scores = compared[0].score.values
    shape = (len(scores), len(names), len(names))
    fields = ("of_pair", "of_pair_error", "difference", "difference_error", "p_value")
    found = {field: np.full(shape, np.nan) for field in fields}
    p_values = np.array([one.p_value.values[:, 0, 1] for one in compared])
    adjusted = np.array([inference.holm(of_score.tolist()) for of_score in p_values.T]).T
    for one, p_value in zip(compared, adjusted, strict=True):
        first, second = (names.index(name) for name in one.model.values)
        for side, at in ((0, (first, second)), (1, (second, first))):
            found["of_pair"][:, *at] = one.value[:, side]
            found["of_pair_error"][:, *at] = one.error[:, side]
            found["difference"][:, *at] = one.difference[:, side, 1 - side]
            found["difference_error"][:, *at] = one.difference_error[:, side, 1 - side]
            found["p_value"][:, *at] = p_value
    axes = {"score": scores, "model": names, "other": names}
    return xr.Dataset({field: (tuple(axes), values) for field, values in found.items()}, axes)


def verdicts(pairs: xr.Dataset, level: float) -> xr.DataArray:
    """By what share a model exceeds another where a test tells the two apart; NaN elsewhere."""
    second = pairs.of_pair.rename(model="other", other="model")
    return (pairs.of_pair / second - 1).where(pairs.p_value <= level)
