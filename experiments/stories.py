"""Stories of a language model at several temperatures: matched sets, and signs of nonsense."""

from __future__ import annotations

import numpy as np

from experiments import knobs
from experiments.data import PairedEmbeddings

FINISHED = "finished"
CONTROLS = ("perplexity", FINISHED, "tokens")
LABELS = (FINISHED, "tokens", "log_likelihood")


def balanced_finished(pairs: PairedEmbeddings) -> np.ndarray:
    """As many stories that ended of each prompt at every temperature, bool `[n]`."""
    temperature = np.unique(knobs.settings(pairs), return_inverse=True)[1]
    return knobs.balanced(temperature, pairs.prompt_numbers, pairs.labels[FINISHED].astype(bool))


def controls_of(pairs: PairedEmbeddings) -> tuple[np.ndarray, np.ndarray]:
    """Each of CONTROLS of the stories at one temperature and its standard error, `[controls]` both.

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
