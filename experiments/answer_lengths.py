"""Answers of language models to the same prompts: their length, and the prompts' bandwidth."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import condvendi_jax as cv
from experiments import lab
from experiments.lab import agreement, models

_VARIANTS = ("_concise", "", "_verbose")
_RESAMPLES = 2000  # Of the models.


def variants(names: Sequence[str]) -> dict[str, list[str]]:
    """By model, its concise, plain and verbose variants where it has all three."""
    found = {name: [name + ending for ending in _VARIANTS] for name in names}
    return {name: of for name, of in found.items() if set(of) <= set(names)}


def correlations(values: np.ndarray, words: np.ndarray, seed: int) -> np.ndarray:
    """Spearman's correlation of each score with the length, and its 95% interval, `[scores, 3]`.

    Args:
      values: `models.SCORES` of m models, and others of order 2, `[scores, m]`.
      words: the mean length of each model's answers, `[m]`.
      seed: draws the resamples of the models, from which the interval comes.
    """
    drawn = np.random.default_rng(seed).integers(len(words), size=(_RESAMPLES, len(words)))
    orders = [order for _, order in models.SCORES] + [2.0] * (len(values) - len(models.SCORES))
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
