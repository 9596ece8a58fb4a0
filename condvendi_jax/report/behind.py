"""The outputs behind a comparison: their contributions, near-duplicates and places on a map."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import Kernel
from condvendi_jax.data.pairs import Pairs, distinct_prompts
from condvendi_jax.inference import contributions, prompt_table
from condvendi_jax.inference.results import PromptScore

#: Outputs whose kernel is at least this are joined as near-duplicates.
ALIKE = 0.9
#: Of each model, this many outputs of a prompt are shown and compared.
SHOWN = 50


@dataclasses.dataclass(frozen=True, eq=False)
class OutputsOf:
    """The n outputs of one model; `[n]` each, without rows of weight zero.

    Attributes:
      rows: their numbers in the arrays of the user, from 0.
      prompt: the number of the prompt.
      group: the number of the near-duplicates of one prompt, shared by all models; -1 where the
        output is not compared.
      influence: on the main score of order 2, see `Contributions.influences`.
      score: the main score of order 2 of all rows.
      prompts: every prompt by itself, of order 2, by its number.
    """

    rows: np.ndarray
    prompt: np.ndarray
    group: np.ndarray
    influence: np.ndarray
    score: float
    prompts: dict[int, PromptScore]

    def grouped(self, prompt: int) -> dict[int, np.ndarray]:
        """The positions of the outputs of a prompt by group, the first output's group first."""
        own = np.flatnonzero((self.prompt == prompt) & (self.group >= 0))
        groups = dict.fromkeys(self.group[own].tolist())
        return {group: own[self.group[own] == group] for group in groups}


@dataclasses.dataclass(frozen=True, eq=False)
class Behind:
    """The outputs behind a comparison.

    Attributes:
      models: the outputs of each model by its name.
      first: of each prompt, by its number, a model and a position that has it.
      main: the score that contributions are of, 'conditional' or, without prompts, 'vendi'.
      nearest: the largest kernel between outputs of two models to one prompt; NaN of one model.
    """

    models: dict[str, OutputsOf]
    first: list[tuple[str, int]]
    main: str
    nearest: float

    def _groups(self) -> Iterator[tuple[int, str, np.ndarray]]:
        """The number, the model and the positions of all near-duplicates of one model."""
        for name, own in self.models.items():
            for group in np.unique(own.group[own.group >= 0]).tolist():
                yield group, name, np.flatnonzero(own.group == group)

    def shared(self, count: int) -> list[tuple[int, dict[str, np.ndarray]]]:
        """The prompt of near-duplicates of several models, and their positions by model.

        Those of most models are first, then the largest.
        """
        groups: dict[int, dict[str, np.ndarray]] = {}
        for group, name, positions in self._groups():
            groups.setdefault(group, {})[name] = positions
        several = [group for group in groups.values() if len(group) > 1]
        several.sort(key=lambda group: (-len(group), -sum(map(len, group.values()))))
        return [
            (int(self.models[name].prompt[positions[0]]), group)
            for group in several[:count]
            for name, positions in [next(iter(group.items()))]
        ]

    def redundant(self, count: int) -> list[tuple[str, np.ndarray, float]]:
        """The largest groups of near-duplicates of one model, then single outputs by influence.

        Influences sum to zero, so that a model that always repeats itself has none.

        Returns:
          The model, the positions, and their mean influence relative to the score.
        """
        redundant = []
        for _, name, positions in self._groups():
            own = self.models[name]
            influence = float(own.influence[positions].mean() / own.score)
            if len(positions) > 1 or influence < 0:
                redundant.append((name, positions, influence))
        return sorted(redundant, key=lambda entry: (-len(entry[1]), entry[2]))[:count]


def of_pairs(models: Mapping[str, Pairs]) -> Behind:
    """The outputs of models under the same kernels."""
    kept = {name: np.flatnonzero(pairs.shares > 0) for name, pairs in models.items()}
    models = {name: pairs.supported() for name, pairs in models.items()}
    ends = np.cumsum([pairs.n for pairs in models.values()])
    outputs = np.concatenate([np.asarray(pairs.arrays[0]) for pairs in models.values()])
    _, numbers = distinct_prompts([*models.values()])
    paired = next(iter(models.values())).paired
    prompt = dict(zip(models, np.split(numbers, ends[:-1]), strict=True))
    model = np.repeat(np.arange(len(models)), [pairs.n for pairs in models.values()])
    kernel = next(iter(models.values())).kernels[0].suited_to(jnp.asarray(outputs))
    group, nearest = _grouped(outputs, numbers, model, kernel)
    groups = np.split(group, ends[:-1])
    main = "conditional" if paired else "vendi"
    outputs_of = {}
    for index, (name, pairs) in enumerate(models.items()):
        of_rows = contributions(pairs, order=2)
        table = prompt_table(pairs, order=2, labels=prompt[name], unbiased=False)
        outputs_of[name] = OutputsOf(
            kept[name],
            prompt[name],
            groups[index],
            getattr(of_rows.influences, main),
            float(getattr(of_rows.decomposition.scores, main)),
            {int(scored.prompt): scored for scored in table.prompts},
        )
    first = []
    for number in range(int(numbers.max()) + 1):
        name = next(name for name in models if (prompt[name] == number).any())
        first.append((name, int((prompt[name] == number).argmax())))
    return Behind(outputs_of, first, main, nearest)


def _gram(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    prepared = kernel.prepare(jnp.asarray(points))
    return np.asarray(kernel.cross(prepared, prepared), np.float64)


def _grouped(
    outputs: np.ndarray, prompt: np.ndarray, model: np.ndarray, kernel: Kernel
) -> tuple[np.ndarray, float]:
    """The group of each output, -1 beyond the first of its model and prompt; as `nearest`."""
    groups, count, nearest = np.full(len(outputs), -1), 0, math.nan
    order = np.argsort(prompt, kind="stable")
    for of_prompt in np.split(order, np.flatnonzero(np.diff(prompt[order])) + 1):
        own = model[of_prompt]
        rows = np.concatenate([of_prompt[own == m][:SHOWN] for m in np.unique(own)])
        gram = _gram(kernel, outputs[rows])
        across = gram[model[rows][:, None] != model[rows]]
        nearest = np.fmax(nearest, across.max(initial=-math.inf)) if across.size else nearest
        for place, row in enumerate(rows):
            if groups[row] < 0:  # It stands for all that are near it and stand nowhere yet.
                near = rows[(gram[place] >= ALIKE) & (groups[rows] < 0)]
                groups[near] = groups[row] = count
                count += 1
    return groups, float(nearest)


def check_outputs(given: Any, models: Mapping[str, Pairs]) -> dict[str, list[Any]]:
    """The texts, or paths of pictures, of the outputs of each model, in the order of its rows."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f"outputs: expected those of {[*models]}, received {type(given).__name__}."
        )
    return _texts(given, models, "outputs")


def check_prompts(given: Any, models: Mapping[str, Pairs]) -> dict[str, list[Any]]:
    """The texts of the prompts of each model; one list stands for all models.

    Warns where equal embeddings have different texts, as texts in another order have.
    """
    if not isinstance(given, Mapping):
        given = dict.fromkeys(models, given)
    texts = _texts(given, models, "prompts")
    known, apart = {}, 0
    for name, pairs in models.items():
        if pairs.paired:
            for row, text in zip(np.asarray(pairs.arrays[1]) + 0.0, texts[name], strict=True):
                apart += known.setdefault(row.tobytes(), text) != text
    if apart:
        checks.warn(
            f"prompts: {apart:,} rows have the embedding of an earlier row and another text; "
            "expected texts in the order of the embeddings. The page shows the first text."
        )
    return texts


def _texts(
    given: Mapping[str, Any], models: Mapping[str, Pairs], what: str
) -> dict[str, list[Any]]:
    """A list for each model, or TypeError or ValueError: other models, numbers or types."""
    if set(given) != set(models):
        raise ValueError(f"{what}: expected those of {[*models]}, received {[*given]}.")
    for model, pairs in models.items():
        name, items = f"{what} of {model}", given[model]
        if isinstance(items, (str, bytes, os.PathLike)) or not hasattr(items, "__len__"):
            raise TypeError(
                f"{name}: expected a list of {pairs.n:,}, received {type(items).__name__}."
            )
        if len(items) != pairs.n:
            raise ValueError(
                f"{name}: expected {pairs.n:,}, one for each row of the embeddings and in their "
                f"order, received {len(items):,}."
            )
        for row, item in enumerate(items):
            if not isinstance(item, (str, os.PathLike)):
                raise TypeError(f"{name}: expected texts or paths, received {item!r} in row {row}.")
    return {
        model: [str(item) if isinstance(item, str) else item for item in given[model]]
        for model in models
    }
