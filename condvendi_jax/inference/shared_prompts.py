"""The prompts that models share: a difference on other prompts would be one of the prompts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from condvendi_jax.data.pairs import Pairs
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.results.comparison import SharedPrompts
from condvendi_jax.spectra import order_two


class Rows(NamedTuple):
    """The prompt of each row of several models, and which prompts count."""

    prompts: dict[str, np.ndarray]  # Of each model, the number of the prompt of each row.
    counted: dict[str, np.ndarray]  # Whether the prompt counts in the model, `[prompts]`.

    @classmethod
    def of(cls, models: Mapping[str, Pairs]) -> Rows:
        """Where prompts repeat, those count to which the model has several answers."""
        every = [*models.values()]
        count, prompts = prompts_by_model(every)
        model = np.repeat(np.arange(len(every)), [pairs.n for pairs in every])
        draws = [pairs.draws for pairs in every]
        answers = [np.bincount(*rows, count) for rows in zip(prompts, draws, strict=True)]
        of_rows = np.concatenate(prompts), np.concatenate(draws), model
        repeated = order_two.single_answers(*of_rows) is not None
        counted = np.array(answers) > (1.5 if repeated else 0)
        return cls(dict(zip(models, prompts, strict=True)), dict(zip(models, counted, strict=True)))

    def shared(self, models: Sequence[str]) -> np.ndarray:
        """Whether all of these models have the prompt, `[prompts]`."""
        return np.all([self.counted[name] for name in models], axis=0)

    def chosen(self, models: Sequence[str]) -> dict[str, np.ndarray]:
        """The rows of these models whose prompt they share."""
        shared = self.shared(models)
        return {name: np.flatnonzero(shared[self.prompts[name]]) for name in models}

    def restricted(self, models: Mapping[str, Pairs], names: Sequence[str]) -> dict[str, Pairs]:
        """The named models on the prompts that they share."""
        return {name: models[name].rows(rows) for name, rows in self.chosen(names).items()}

    def together(
        self, models: Mapping[str, Pairs], shared: SharedPrompts | None
    ) -> Mapping[str, Pairs]:
        """All models on the prompts that they share; all rows where these are too few."""
        return models if shared is None or shared.apart else self.restricted(models, [*models])

    def numbers(self) -> SharedPrompts | None:
        """How many prompts models share; None where all have the same ones."""
        counts = {name: int(counted.sum()) for name, counted in self.counted.items()}
        of_all = int(self.shared([*counts]).sum())
        if {*counts.values()} == {of_all}:
            return None
        pairs = itertools.combinations(counts, 2)
        return SharedPrompts(counts, of_all, {pair: int(self.shared(pair).sum()) for pair in pairs})
