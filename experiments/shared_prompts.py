"""What models share: prompts that all of them answered, and as many samples of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

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
