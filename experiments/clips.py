"""Clips of text-to-video models: what those of a source share, and scores with fewer of them."""

from __future__ import annotations

import dataclasses

import numpy as np

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import models

_ALL = "all"


@dataclasses.dataclass(frozen=True)
class Part:
    """What is compared with each other: the clips of one source.

    Attributes:
      models: in the order in which they occur.
      prompts: how many different prompts they have.
      clips: the least number of clips of a prompt that a model has.
      bandwidths: chosen on all clips of the source together.
    """

    models: tuple[str, ...]
    prompts: int
    clips: int
    bandwidths: lab.Scales


def by_source(pairs: PairedEmbeddings) -> dict[str, PairedEmbeddings]:
    """The clips of each source, in their order; of one called 'all' where there is no label."""
    if "source" not in pairs.labels:
        return {_ALL: pairs}
    sources = models.rows_by_model(pairs.labels["source"])
    return {name: pairs.rows(rows) for name, rows in sources.items()}


def part_of(pairs: PairedEmbeddings, bandwidths: lab.Scales, seed: int) -> Part:
    """What the clips of a source have in common.

    Raises:
      ValueError: its models have other numbers of clips, or no three prompts.
    """
    rows = models.rows_by_model(pairs.labels["models"])
    numbers = {name: len(found) for name, found in rows.items()}
    if len(set(numbers.values())) > 1:
        raise ValueError(f"--models: expected as many clips of each, received {numbers}.")
    prompts = len(np.unique(pairs.prompts, axis=0))
    if prompts < 3:
        raise ValueError(f"--prompts: expected at least 3 different prompts, received {prompts}.")
    clips = min(len(taken) for found in rows.values() for taken in _by_prompt(pairs.prompts[found]))
    return Part(tuple(rows), prompts, clips, bandwidths.resolve(pairs, seed))


def _by_prompt(prompts: np.ndarray) -> list[np.ndarray]:
    """The row numbers of each distinct prompt."""
    _, which = np.unique(prompts, axis=0, return_inverse=True)
    return [np.flatnonzero(which == number) for number in range(which.max() + 1)]


def fewer_clips(
    outputs: np.ndarray, prompts: np.ndarray, clips: int, bandwidths: lab.Bandwidths
) -> np.ndarray:
    """All scores with k of the first K clips of every prompt, `[scores, K, K]`.

    Args:
      outputs: of one model `[n, d_x]`.
      prompts: `[n, d_t]`, equal for the clips of a prompt.
      clips: K.
      bandwidths: of the kernels.

    Returns:
      By score of `models.SCORES`, k = 1 ... K, and with which of the K clips the k begin.
    """
    of_prompt = [found[:clips] for found in _by_prompt(prompts)]
    found = np.zeros((len(models.SCORES), clips, clips))
    for count in range(1, clips + 1):
        for start in range(clips if count < clips else 1):
            taken = np.concatenate([np.roll(rows, -start)[:count] for rows in of_prompt])
            by_order = {
                order: cv.decompose(
                    outputs[taken], prompts[taken], order=order, **bandwidths.kernels
                ).scores
                for order in (1.0, 2.0)
            }
            # All of a prompt's clips are the same wherever they begin.
            places = start if count < clips else slice(None)
            for row, (score, order) in enumerate(models.SCORES):
                found[row, count - 1, places] = float(getattr(by_order[order], score))
    return found
