"""Answers of language models to the same prompts: their length, and the prompts' bandwidth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement

VARIANTS = ("_concise", "", "_verbose")


def check_shared(pairs: PairedEmbeddings, rows: Mapping[str, np.ndarray]) -> int:
    """The number of distinct prompts, which all models must share.

    Raises:
      ValueError: there is one model, or they have other prompts or other numbers of outputs.
    """
    if len(rows) < 2:
        raise ValueError(f"--models: expected at least two models, received {', '.join(rows)}.")
    first, *others = rows
    expected = _sorted_rows(pairs.prompts[rows[first]])
    for other in others:
        if not np.array_equal(_sorted_rows(pairs.prompts[rows[other]]), expected):
            raise ValueError(
                f"--models: expected the same prompts for each; those of {other} are not those of "
                f"{first}."
            )
    return len(np.unique(expected, axis=0))


def _sorted_rows(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T)]


def variants(names: Sequence[str]) -> dict[str, list[str]]:
    """By model, its concise, plain and verbose variants where it has all three."""
    found = {name: [name + ending for ending in VARIANTS] for name in names}
    return {name: of for name, of in found.items() if set(of) <= set(names)}


def correlations(
    values: np.ndarray, words: np.ndarray, orders: Sequence[float], resamples: int, seed: int
) -> np.ndarray:
    """Spearman's correlation of each score with the length, and its 95% interval, `[scores, 3]`.

    Args:
      values: the scores of m models, `[scores, m]`.
      words: the mean length of each model's answers, `[m]`.
      orders: of each score.
      resamples: of the models, which the interval comes from.
      seed: draws them.
    """
    drawn = np.random.default_rng(seed).integers(len(words), size=(resamples, len(words)))
    return agreement.with_interval(
        lambda taken: agreement.spearman(values[:, taken], words[taken], orders),
        list(drawn),
        len(words),
    )


def conditional_rke(
    outputs: np.ndarray, prompts: np.ndarray, bandwidths: lab.Bandwidths, multiple: float
) -> float:
    """Conditional-RKE with the prompts' bandwidth multiplied, the outputs' as it is."""
    assert bandwidths.prompts is not None
    wider = dataclasses.replace(bandwidths, prompts=multiple * bandwidths.prompts)
    kernels: dict[str, Any] = wider.kernels
    return float(cv.conditional_rke(outputs, prompts, **kernels))


def modes(prompts: np.ndarray, bandwidths: lab.Bandwidths) -> list[float]:
    """Vendi and RKE of the prompts alone: how many neighbourhoods they form."""
    kernel = bandwidths.kernels["prompt_kernel"]
    found = (cv.decompose(prompts, output_kernel=kernel, order=order) for order in (1.0, 2.0))
    return [float(parts.vendi) for parts in found]
