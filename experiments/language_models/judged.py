"""The bandwidth at which people's judgements are met: which answers to a prompt count as the same.

The kernel of the answers is Gaussian, with the bandwidth at which the mean of the squared kernel is
the share of the pairs that people called the same (the set `same_answers`). Prompts are the same or
different, nothing between. Conditional-* is then an effective number of answers to a prompt, a mean
over the prompts: at order 2 the harmonic mean of 1 over the mean squared kernel of a prompt's
answers, at order 1 the geometric mean of the exponential of their entropy.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtr

import condvendi_jax as cv
from condvendi_jax import inference
from experiments import data, lab
from experiments.lab import models

SET = "same_answers"
ENCODER = "all-MiniLM-L6-v2"  # Whose embeddings were judged.


@dataclasses.dataclass(frozen=True)
class Judgements:
    """Pairs of answers to one prompt, and whether people called them the same.

    Attributes:
      first: embeddings `[m, d]`, one answer of each pair.
      second: embeddings `[m, d]`, the other.
      same: booleans `[m]`.
      train: booleans `[m]`, of the pairs from which the bandwidth is chosen.
      equal: booleans `[m]`, where the two texts are equal.
      classes: what the benchmark's own classifier says, 1 for the same class, 0 for different ones,
        -1 where it is not known, `[m]`.
    """

    first: np.ndarray
    second: np.ndarray
    same: np.ndarray
    train: np.ndarray
    equal: np.ndarray
    classes: np.ndarray

    @classmethod
    def of(cls, pairs: data.PairedEmbeddings) -> Judgements:
        """Those of a set whose outputs and further embeddings `second` are the two answers.

        Raises:
          ValueError: there are no second answers, or labels are not 0 and 1.
        """
        if "second" not in pairs.further:
            raise ValueError("--second: the embeddings of the second answers are missing.")
        for name in ("same", "train"):
            values = pairs.labels[name]
            if values.dtype.kind not in "biuf" or set(np.unique(values)) != {0, 1}:
                received = ", ".join(map(str, np.unique(values)[:4]))
                raise ValueError(f"--{name}: expected 0 and 1, and both, received {received}.")
        first, second, labels = pairs.outputs, pairs.further["second"], pairs.labels
        equal = labels.get("equal", np.all(first == second, axis=1))
        return cls(
            first,
            second,
            same=labels["same"] == 1,
            train=labels["train"] == 1,
            equal=equal == 1,
            classes=labels.get("classes", np.full(len(pairs), -1)),
        )

    def rows(self, chosen: np.ndarray) -> Judgements:
        """Some of the pairs."""
        return Judgements(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(self)))

    @property
    def cosines(self) -> np.ndarray:
        """The cosine of the two answers, float64 `[m]`."""
        return np.einsum("ij,ij->i", self.first.astype(np.float64), self.second)

    def squares(self, bandwidth: float) -> np.ndarray:
        """The squared kernel of the two answers, float64 `[m]`."""
        differences = self.first.astype(np.float64) - self.second
        return np.exp(-np.sum(differences**2, axis=1) / bandwidth**2)

    def bandwidth(self, *, share: bool = True) -> float:
        """The bandwidth from the pairs for training.

        Pairs of equal embeddings that people called different are left out: no bandwidth tells them
        apart.

        Args:
          share: whether the mean of the squared kernel shall be the share of the pairs that are the
            same, so that RKE counts as people do; otherwise the bandwidth is the likeliest.
        """
        used = self.rows(self.train & (self.same | np.any(self.first != self.second, axis=1)))
        of_same = float(used.same.mean()) if share else None
        return cv.bandwidth_from_pairs(used.first, used.second, used.same, share=of_same)


@functools.cache
def bandwidth() -> float:
    """The bandwidth that people's judgements of the shipped pairs give."""
    return Judgements.of(data.load(SET)).bandwidth()


class Width(lab.Bandwidths):
    """A bandwidth of the answers beside prompts that are the same or different."""

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
        widths = {float(scale): scale * self.bandwidth for scale in self.scales}
        return tuple(Width(scale, of, None, self.described) for scale, of in widths.items())

    @property
    def shown(self) -> float:
        """The scale that a figure shows where it shows one: 1, or the first where that is not."""
        return 1.0 if 1.0 in self.scales else self.scales[0]

    def words(self, scale: float | None = None) -> str:
        """The kernels, with `{}` for the bandwidth, for a caption; at one scale or at all."""
        times = ", ".join(f"{scale:g}" for scale in ([scale] if scale else self.scales))
        ending = "" if times == "1" else f" x {times}"
        chosen = "given" if self.described == "given" else f"from {self.described}"
        return f"Bandwidth of the answers {{}} {chosen}{ending}, prompts equal or different"

    @property
    def widths(self) -> str:
        """The bandwidth, for a caption."""
        return f"{self.bandwidth:.3g}"


def by_prompt(pairs: data.PairedEmbeddings, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """The row numbers of every answer, `[models, prompts, answers]`, and the prompts' labels.

    Models are in the order in which they occur, prompts in that of their labels, the answers to a
    prompt in that of the rows.

    Args:
      pairs: with the labels `models` and `prompt`.
      least: how many models are needed.

    Raises:
      ValueError: a model has another number of answers to a prompt than the others, the prompts
        have different numbers of answers, or one each.
    """
    counts = models.check_shared(pairs, least)
    if len(set(counts.tolist())) > 1 or counts[0] < 2:
        raise ValueError(
            "--prompt: expected at least two answers of each model to every prompt, to all as "
            f"many; received {counts.min()} to {counts.max()}."
        )
    names, numbers = models.rows_by_model(pairs.labels["models"]), pairs.prompt_numbers
    rows = [of[np.argsort(numbers[of], kind="stable")] for of in names.values()]
    ordered = np.array(rows).reshape(len(names), len(counts), counts[0])
    return ordered, pairs.labels["prompt"][ordered[0, :, 0]]


def entropies(outputs: np.ndarray, bandwidth: float) -> np.ndarray:
    """The entropies of order 1 and 2 of the answers to each prompt, float64 `[2, ..., prompts]`.

    Under prompts that are equal or different, Conditional-Vendi is the exponential of the mean of
    the first over the prompts, Conditional-RKE 1 over the mean of exp of minus the second.

    Args:
      outputs: embeddings `[..., prompts, answers, d]`.
      bandwidth: of the Gaussian kernel.
    """
    rows = outputs.astype(np.float64)
    norms = np.sum(rows**2, axis=-1)
    inner = np.einsum("...id,...jd->...ij", rows, rows)
    squares = np.maximum(norms[..., :, None] + norms[..., None, :] - 2 * inner, 0)
    gram = np.exp(-squares / (2 * bandwidth**2)) / rows.shape[-2]
    p = np.maximum(np.linalg.eigvalsh(gram), 0)
    first = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=-1)
    return np.stack([first, -np.log(np.sum(gram**2, axis=(-2, -1)))])


def scores_of(entropies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Conditional-Vendi and -RKE, and how far each prompt moves them.

    Under prompts that are equal or different, log Conditional-Vendi is a mean over the prompts, and
    so is 1 / Conditional-RKE. The influence of a prompt is to first order.

    Args:
      entropies: of orders 1 and 2, `[2, models, prompts]`.

    Returns:
      The scores `[2, models]`, and the influences `[2, models, prompts]`, of mean 0.
    """
    values = conditional(entropies)
    first, second = entropies
    terms = np.stack([first, np.exp(-second)])
    slopes = np.stack([values[0], -(values[1] ** 2)])
    return values, slopes[..., None] * (terms - terms.mean(axis=-1, keepdims=True))


def error_of(influences: np.ndarray) -> np.ndarray:
    """The standard error of a score of the influences `[..., prompts]`."""
    n = influences.shape[-1]
    return influences.std(axis=-1, ddof=1) / np.sqrt(n)


def p_values(difference: np.ndarray, error: np.ndarray, prompts: int) -> np.ndarray:
    """Two-sided p-values of `[scores, pairs]` by Student's t, adjusted by Holm within a score."""
    with np.errstate(invalid="ignore", divide="ignore"):
        alone = 2 * stdtr(prompts - 1, -np.abs(difference / error))
    alone = np.where(difference == 0, 1.0, alone)
    return np.array([inference.holm(of) for of in alone.tolist()])


SCORES = ("Conditional-Vendi", "Conditional-RKE")


def ranked(entropies: np.ndarray, models: Sequence[str], level: float = 0.05) -> xr.Dataset:
    """The conditional scores of models on the same prompts, and which can be told apart.

    Args:
      entropies: `[2, models, prompts]`, as `entropies` gives them.
      models: their names.
      level: the family-wise rate of false differences that the letters allow.

    Returns:
      Over `score`: `value` and `error`, one standard error over the prompts, by `model`; `letters`
      (models that share one cannot be told apart); `difference`, of the model less the `other`,
      with `difference_error` and `p_value`, of a paired t-test, adjusted by Holm over all pairs
      within a score.
    """
    names, (values, influences) = list(models), scores_of(entropies)
    pairs = list(itertools.combinations(range(len(names)), 2))
    one, two = np.transpose(pairs)
    errors = error_of(influences[:, :, None] - influences[:, None])
    differences = values[:, :, None] - values[:, None]
    count, tests = entropies.shape[2], np.ones(errors.shape)
    adjusted = p_values(differences[:, one, two], errors[:, one, two], count)
    tests[:, one, two] = tests[:, two, one] = adjusted
    letters = []
    for value, p in zip(values, adjusted, strict=True):
        apart = {frozenset((names[a], names[b])) for a, b in itertools.compress(pairs, p < level)}
        order = np.argsort(-value, kind="stable").tolist()
        shown = inference.letter_display([names[m] for m in order], apart)
        letters.append([shown[name] for name in names])
    of_two = ("score", "model", "other")
    return xr.Dataset(
        {
            "value": (of_two[:2], values),
            "error": (of_two[:2], error_of(influences)),
            "letters": (of_two[:2], letters),
            "difference": (of_two, differences),
            "difference_error": (of_two, errors),
            "p_value": (of_two, tests),
        },
        {"score": list(SCORES), "model": names, "other": names},
    )


def conditional(entropies: np.ndarray) -> np.ndarray:
    """Conditional-Vendi and -RKE, `[2, ...]`, of the entropies `[2, ..., prompts]`."""
    first, second = entropies
    return np.stack([np.exp(first.mean(axis=-1)), 1 / np.exp(-second).mean(axis=-1)])
