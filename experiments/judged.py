"""The bandwidth at which people's judgements are met: which answers to a prompt count as the same.

The kernel of the answers is Gaussian, with the bandwidth that best predicts which pairs of answers
people called the same (the set `same_answers`). Prompts are the same or different, nothing between,
so that Conditional-* is an effective number of answers to one prompt: at order 2 the harmonic mean
over the prompts of 1 over the mean squared kernel of each prompt's answers, at order 1 the
geometric mean of exp of their entropies.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

import condvendi_jax as cv
from experiments import data, lab

SET = "same_answers"
ENCODER = "all-MiniLM-L6-v2"  # Whose embeddings were judged.


@dataclasses.dataclass(frozen=True)
class Judgements:
    """Pairs of answers to one prompt, and whether people called them the same.

    Attributes:
      first: embeddings `[m, d]`, one answer of each pair.
      second: embeddings `[m, d]`, the other.
      same: booleans `[m]`.
      prompt: the number of the prompt of each pair, `[m]`.
      train: booleans `[m]`, of the pairs from which the bandwidth is chosen.
      equal: booleans `[m]`, where the two texts are equal.
      classes: what the benchmark's own classifier says, 1 for the same class, 0 for different ones,
        -1 where it is not known, `[m]`.
    """

    first: np.ndarray
    second: np.ndarray
    same: np.ndarray
    prompt: np.ndarray
    train: np.ndarray
    equal: np.ndarray
    classes: np.ndarray

    @classmethod
    def of(cls, pairs: data.PairedEmbeddings) -> Judgements:
        """Those of a set; its pairs are of answers, not of an answer and a prompt."""
        labels = pairs.labels
        return cls(
            pairs.outputs,
            pairs.further["second"],
            labels["same"] == 1,
            pairs.prompt_numbers,
            labels["train"] == 1,
            labels["equal"] == 1,
            labels["classes"],
        )

    def bandwidth(self) -> float:
        """The likeliest bandwidth that counts right, from the pairs for training.

        The pairs were drawn at random, so that the share of the same among them is the mean of the
        squared kernel. Pairs of equal embeddings that people called different are left out: no
        bandwidth tells them apart.
        """
        apart = np.any(self.first != self.second, axis=1)
        used = self.train & (apart | self.same)
        return cv.bandwidth_from_pairs(
            self.first[used], self.second[used], self.same[used], share=self.same[used].mean()
        )


@functools.cache
def bandwidth() -> float:
    """The bandwidth that people's judgements of the shipped pairs give."""
    return Judgements.of(data.load(SET)).bandwidth()


@dataclasses.dataclass(frozen=True)
class Width:
    """A bandwidth of the answers beside prompts that are the same or different.

    Attributes:
      coordinate: the multiple of the bandwidth from the judgements.
      outputs: the bandwidth.
    """

    coordinate: float
    outputs: float

    @property
    def kernels(self) -> dict[str, Any]:
        """The two kernels, as the scores take them; the prompts are numbers `[n, 1]`."""
        return {"output_kernel": cv.Gaussian(self.outputs), "prompt_kernel": cv.Indicator()}


@dataclasses.dataclass(frozen=True)
class Widths:
    """Multiples of the bandwidth from people's judgements, as flags of a study."""

    bandwidth: float | None = lab.flag(
        None, "The bandwidth of the answers, instead of the one from people's judgements.", above=0
    )
    scales: tuple[float, ...] = lab.flag(
        (0.5, 1.0, 2.0), "Factors of the bandwidth; everything is computed for each.", above=0
    )
    described: str = lab.resolved("")

    def resolve(self, pairs: data.PairedEmbeddings) -> Widths:
        """With the bandwidth from the judgements where none is given.

        Raises:
          ValueError: none is given, and the pairs are not embedded by what embedded the judged
            answers.
        """
        if self.bandwidth is not None:
            return dataclasses.replace(self, described="given")
        if ENCODER not in pairs.description:
            raise ValueError(
                "--bandwidth: your own embeddings need one, as the bandwidth from people's "
                f"judgements holds for {ENCODER} alone. cv.bandwidth_from_pairs chooses one from "
                "pairs that you label."
            )
        return dataclasses.replace(self, bandwidth=bandwidth(), described="people's judgements")

    @property
    def axis(self) -> tuple[Width, ...]:
        """The bandwidth at every scale, once resolved."""
        assert self.bandwidth is not None
        return tuple(Width(float(scale), scale * self.bandwidth) for scale in self.scales)

    @property
    def shown(self) -> float:
        """The scale that a figure shows where it shows one: 1, or the first where that is not."""
        return 1.0 if 1.0 in self.scales else self.scales[0]

    def words(self, scale: float | None = None) -> str:
        """The kernels, with `{}` for the bandwidth, for a caption; at one scale or at all."""
        times = ", ".join(f"{scale:g}" for scale in ([scale] if scale else self.scales))
        ending = "" if times == "1" else f" x {times}"
        chosen = "given" if self.described == "given" else f"from {self.described}"
        return f"Gaussian bandwidth of the answers {{}} {chosen}{ending}; prompts equal or not"

    @property
    def widths(self) -> str:
        """The bandwidth, for a caption."""
        return f"{self.bandwidth:.3g}"
