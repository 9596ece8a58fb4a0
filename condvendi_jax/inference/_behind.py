"""The outputs behind a comparison: what each contributes, which are alike, and where they lie."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from condvendi_jax import validation
from condvendi_jax.inference._contributions import contributions
from condvendi_jax.inference._prompt_table import PromptScore, prompt_table
from condvendi_jax.kernels import Kernel
from condvendi_jax.pairs import Pairs, distinct_prompts

#: Outputs whose kernel is at least this are joined as near-duplicates.
ALIKE = 0.9
#: Of each model, this many outputs of a prompt are shown and compared.
SHOWN = 50
# Rows whose eigenvalues take seconds, and eigenvalues that are drawn.
_SPECTRUM_ROWS, _EIGENVALUES = 2048, 30

Texts = Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True, eq=False)
class OutputsOf:
    """The n outputs of one model; `[n]` each, without rows of weight zero.

    Attributes:
      rows: their numbers in the arrays of the user, from 0.
      prompt: the number of the prompt.
      group: the number of the near-duplicates of one prompt, shared by all models; -1 where the
        output is not compared.
      influence: on the main score, as `Contributions.influences`, of order 2.
      score: the main score of order 2 of all rows.
      prompts: every prompt by itself, of order 2, by its number.
      places: the two principal components, `[n, 2]`.
      eigenvalues: the largest of the Gram of the outputs, of trace one.
    """

    rows: np.ndarray
    prompt: np.ndarray
    group: np.ndarray
    influence: np.ndarray
    score: float
    prompts: dict[int, PromptScore]
    places: np.ndarray
    eigenvalues: np.ndarray

    def grouped(self, prompt: int) -> dict[int, np.ndarray]:
        """The positions of the outputs of a prompt by group, the first output's group first."""
        own = np.flatnonzero((self.prompt == prompt) & (self.group >= 0))
        groups = dict.fromkeys(self.group[own].tolist())
        return {group: own[self.group[own] == group] for group in groups}


class Group(NamedTuple):
    """Near-duplicates of one prompt: their positions by model."""

    prompt: int
    number: int
    positions: dict[str, np.ndarray]


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

    def shared(self, count: int) -> list[Group]:
        """The near-duplicates of several models, those of most models first, then the largest."""
        found: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        for name, own in self.models.items():
            for group in np.unique(own.group[own.group >= 0]).tolist():
                positions = np.flatnonzero(own.group == group)
                found.setdefault((int(own.prompt[positions[0]]), group), {})[name] = positions
        groups = [Group(*key, of) for key, of in found.items() if len(of) > 1]
        size = {g.number: sum(map(len, g.positions.values())) for g in groups}
        return sorted(groups, key=lambda g: (-len(g.positions), -size[g.number]))[:count]

    def redundant(self, count: int) -> list[tuple[str, np.ndarray, float]]:
        """The largest groups of near-duplicates of one model, then single outputs by influence.

        Influences sum to zero, so that a model that always repeats itself has none.

        Returns:
          The model, the positions, and their mean influence relative to the score.
        """
        found = []
        for name, own in self.models.items():
            for group in np.unique(own.group[own.group >= 0]).tolist():
                positions = np.flatnonzero(own.group == group)
                influence = float(own.influence[positions].mean() / own.score)
                if len(positions) > 1 or influence < 0:
                    found.append((name, positions, influence))
        return sorted(found, key=lambda entry: (-len(entry[1]), entry[2]))[:count]


def of_pairs(models: Mapping[str, Pairs]) -> Behind:
    """What lies behind the scores of models under the same kernels."""
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
    places = np.split(_principal(outputs), ends[:-1])
    main = "conditional" if paired else "vendi"
    found = {}
    for index, (name, pairs) in enumerate(models.items()):
        of_rows = contributions(pairs, order=2)
        table = prompt_table(pairs, order=2, labels=prompt[name], unbiased=False)
        found[name] = OutputsOf(
            kept[name],
            prompt[name],
            groups[index],
            getattr(of_rows.influences, main),
            float(getattr(of_rows.decomposition.scores, main)),
            {int(scored.prompt): scored for scored in table.prompts},
            places[index],
            _eigenvalues(pairs),
        )
    first = []
    for number in range(int(numbers.max()) + 1):
        name = next(name for name in models if (prompt[name] == number).any())
        first.append((name, int((prompt[name] == number).argmax())))
    return Behind(found, first, main, nearest)


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


def _principal(outputs: np.ndarray) -> np.ndarray:
    """The two principal components of `[n, d]`, float64 `[n, 2]`."""
    centred = outputs.astype(np.float64) - outputs.mean(axis=0, dtype=np.float64)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :2]
    return np.pad(centred @ axes, ((0, 0), (0, 2 - axes.shape[1])))


def _eigenvalues(pairs: Pairs) -> np.ndarray:
    """The largest eigenvalues of the Gram of outputs, of trace one; of every k-th row of many."""
    rows = np.arange(0, pairs.n, math.ceil(pairs.n / _SPECTRUM_ROWS))
    roots = np.sqrt(pairs.shares[rows] / pairs.shares[rows].sum())
    gram = _gram(pairs.kernels[0], np.asarray(pairs.arrays[0])[rows])
    return np.linalg.eigvalsh(roots[:, None] * gram * roots)[::-1][:_EIGENVALUES]


def check_texts(given: Any, numbers: Mapping[str, int]) -> dict[str, list[Any]]:
    """The texts, or paths of pictures, of the outputs of each model, in the order of its rows.

    Raises:
      TypeError, ValueError: they are not of these models, not as many as their rows, or neither
        texts nor paths.
    """
    if not isinstance(given, Mapping) or set(given) != set(numbers):
        received = sorted(given) if isinstance(given, Mapping) else type(given).__name__
        raise ValueError(f"outputs: expected those of {sorted(numbers)}, received {received}.")
    return {name: _texts(given[name], n, f"outputs of {name}") for name, n in numbers.items()}


def check_prompts(given: Any, models: Mapping[str, Pairs]) -> dict[str, list[Any]]:
    """The texts of the prompts of each model, in the order of its rows.

    Warns where equal embeddings have different texts, as texts in another order have.

    Raises:
      TypeError, ValueError: as `check_texts`; one list stands for all models.
    """
    if not isinstance(given, Mapping):
        given = dict.fromkeys(models, given)
    if set(given) != set(models):
        raise ValueError(f"prompts: expected those of {sorted(models)}, received {sorted(given)}.")
    found, known, apart = {}, {}, 0
    for name, pairs in models.items():
        found[name] = _texts(given[name], pairs.n, f"prompts of {name}")
        if not pairs.paired:
            continue
        for row, text in zip(np.asarray(pairs.arrays[1]) + 0.0, found[name], strict=True):
            apart += known.setdefault(row.tobytes(), text) != text
    if apart:
        validation.warn(
            f"prompts: {apart:,} rows have the embedding of an earlier row and another text; "
            "expected texts in the order of the embeddings. The page shows the first text."
        )
    return found


def _texts(given: Any, n: int, name: str) -> list[Any]:
    if isinstance(given, (str, bytes, os.PathLike)) or not hasattr(given, "__len__"):
        raise TypeError(f"{name}: expected a list of {n:,}, received {type(given).__name__}.")
    if len(given) != n:
        raise ValueError(
            f"{name}: expected {n:,}, one for each row of the embeddings and in their order, "
            f"received {len(given):,}."
        )
    for row, item in enumerate(given):
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"{name}: expected texts or paths, received {item!r} in row {row}.")
    return [str(item) if isinstance(item, str) else item for item in given]
