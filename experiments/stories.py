"""Stories of a language model at several temperatures: matched sets, and signs of nonsense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.data import PairedEmbeddings
from experiments.lab import models

FINISHED = "finished"
CONTROLS = ("perplexity", "finished", "tokens")
LABELS = ("finished", "tokens", "log_likelihood")


def names_of(pairs: PairedEmbeddings) -> np.ndarray:
    """The temperature, or the model, of each story in words."""
    return pairs.labels["models"].astype(str)


def in_order(names: np.ndarray) -> list[str]:
    """The distinct names: by their value where all are numbers, as they first occur otherwise."""
    found = list(models.rows_by_model(names))
    return sorted(found, key=float) if places(found) is not None else found


def places(names: Sequence[str]) -> list[float] | None:
    """The names as numbers; None where one is none."""
    try:
        return [float(name) for name in names]
    except ValueError:
        return None


def balanced(model: np.ndarray, prompt: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """As many chosen rows of each prompt from every model: its first ones, bool `[n]`.

    Scores grow with n and weigh prompts by their rows; models differ in neither afterwards.

    Args:
      model, prompt: of each row, numbered from 0, `[n]`.
      chosen: which rows may be taken, bool `[n]`.
    """
    counts = np.zeros((model.max() + 1, prompt.max() + 1), int)
    np.add.at(counts, (model[chosen], prompt[chosen]), 1)
    kept, least = np.zeros(len(chosen), bool), counts.min(axis=0)
    taken = np.zeros_like(counts)
    for row in np.flatnonzero(chosen):
        place = model[row], prompt[row]
        kept[row] = taken[place] < least[prompt[row]]
        taken[place] += 1
    return kept


def balanced_finished(pairs: PairedEmbeddings) -> np.ndarray:
    """As many stories that ended of each prompt from every model, bool `[n]`."""
    model = np.unique(names_of(pairs), return_inverse=True)[1]
    return balanced(model, pairs.prompt_numbers, pairs.labels[FINISHED].astype(bool))


def controls_of(pairs: PairedEmbeddings) -> tuple[np.ndarray, np.ndarray]:
    """Each of CONTROLS of one model's stories and its standard error, `[controls]` both.

    Perplexity is exp(-total log-likelihood / total tokens). The error is that of the jackknife
    that leaves out one prompt at a time.
    """
    prompt = pairs.prompt_numbers
    unknown = np.full(len(pairs), np.nan)
    finished, tokens, likelihood = (
        np.asarray(pairs.labels.get(role, unknown), float) for role in LABELS
    )
    columns = np.stack([np.ones(len(pairs)), finished, tokens, likelihood])
    sums = np.array([np.bincount(prompt, column) for column in columns])

    def of(totals: np.ndarray) -> np.ndarray:
        count, ended, length, log = totals
        return np.array([np.exp(-log / length), ended / count, length / count])

    whole, parts = sums.sum(axis=1), sums.shape[1]
    deleted = of(whole[:, None] - sums)
    spread = np.sum((deleted - deleted.mean(axis=1, keepdims=True)) ** 2, axis=1)
    return of(whole), np.sqrt((parts - 1) / parts * spread)
