"""Clips of text-to-video models: what those of a source share, and scores with fewer of them."""

from __future__ import annotations

import dataclasses

import numpy as np

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import models


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
    sources = models.rows_by_model(pairs.labels.get("source", np.full(len(pairs), "all")))
    return {name: pairs.rows(rows) for name, rows in sources.items()}


def part_of(pairs: PairedEmbeddings, bandwidths: lab.Scales, seed: int) -> Part:
    """What the clips of a source have in common.

    Raises:
      ValueError: its models have other prompts or numbers of clips, or no three prompts.
    """
    counts = models.check_shared(pairs, least=1)
    if len(counts) < 3:
        raise ValueError(
            f"--prompts: expected at least 3 different prompts, received {len(counts)}."
        )
    names = tuple(models.rows_by_model(pairs.labels["models"]))
    return Part(names, len(counts), int(counts.min()), bandwidths.resolve(pairs, seed))


def fewer_clips(
    outputs: np.ndarray, prompts: np.ndarray, clips: int, bandwidths: lab.Bandwidths
) -> np.ndarray:
    """All scores of one model with k of the first K clips of every prompt, `[scores, K, K]`.

    By score of `models.SCORES`, k = 1 ... K, and with which of the K clips the k begin.
    """
    _, which = np.unique(prompts, axis=0, return_inverse=True)
    of_prompt = np.stack(
        [np.flatnonzero(which == number)[:clips] for number in range(which.max() + 1)]
    )
    found = np.zeros((len(models.SCORES), clips, clips))
    for count in range(1, clips + 1):
        for start in range(clips if count < clips else 1):
            taken = np.roll(of_prompt, -start, axis=1)[:, :count].ravel()
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
