"""The bandwidth at which people's judgements are met: which answers to a prompt count as the same.

The kernel of the answers is Gaussian, with the bandwidth at which the mean of the squared kernel is
the share of the pairs that people called the same (the set `same_answers`). Prompts are the same or
different, nothing between. Conditional-* is then an effective number of answers to a prompt: the
geometric mean over the prompts at order 1, the harmonic one at order 2.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats
from scipy.special import entr, stdtr

import condvendi_jax as cv
from condvendi_jax import inference
from experiments import data, lab
from experiments.lab import models

WHOLE, CUT = "whole", "cut"
UNBIASED = "Conditional-RKE, unbiased"
PAPERS = {"Conditional-Vendi": 1.0, "Conditional-RKE": 2.0}  # Orders.
SCORES = *PAPERS, UNBIASED
_LEAST = 1e-30  # Of a mean squared kernel, so that scores are finite.
LEVEL = 0.05
_FAMILIES = "Claude 3", "Command R", "Gemini", "Gemma 2", "Gemma 3", "GPT-4o", "Llama 3"
SET = "same_answers"
ENCODER = "all-MiniLM-L6-v2"  # Whose embeddings were judged.


def labelled(pairs: data.PairedEmbeddings) -> data.PairedEmbeddings:
    """Pairs of answers to one prompt, the outputs and `second`, with all of their labels.

    Booleans are `same` (by people), `train` (the pairs from which a bandwidth is chosen) and
    `equal` (two equal texts); `classes` is 1 for one class of the benchmark, 0 for two, or -1.
    """
    if "second" not in pairs.further:
        raise ValueError("--second: the embeddings of the second answers are missing.")
    for name in ("same", "train"):
        values = pairs.labels[name]
        if values.dtype.kind not in "biuf" or set(np.unique(values)) != {0, 1}:
            received = ", ".join(map(str, np.unique(values)[:4]))
            raise ValueError(f"--{name}: expected 0 and 1, and both, received {received}.")
    equal = np.all(pairs.outputs == pairs.further["second"], axis=1)
    labels = {"equal": equal, "classes": np.full(len(pairs), -1), **pairs.labels}
    booleans = {name: labels[name] == 1 for name in ("same", "train", "equal")}
    return dataclasses.replace(pairs, labels=labels | booleans)


def bandwidth_of(pairs: data.PairedEmbeddings, *, share: bool = True) -> float:
    """The bandwidth from the `labelled` pairs for training; equal ones that differ do not count.

    With `share`, the mean of the squared kernel is the share of the pairs that are the same, so
    that RKE counts as people do; otherwise the bandwidth is the likeliest.
    """
    differ = np.any(pairs.outputs != pairs.further["second"], axis=1)
    used = pairs.rows(pairs.labels["train"] & (pairs.labels["same"] | differ))
    same = used.labels["same"]
    of_same = float(same.mean()) if share else None
    return cv.bandwidth_from_pairs(used.outputs, used.further["second"], same, share=of_same)


@functools.cache
def bandwidth() -> float:
    """The bandwidth that people's judgements of the shipped pairs give."""
    return bandwidth_of(labelled(data.load(SET)))


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
        """With the bandwidth from the judgements where none is given; they hold for one encoder."""
        if self.bandwidth is not None:
            return dataclasses.replace(self, described="given")
        if ENCODER not in pairs.description:
            raise ValueError(
                "--bandwidth: your own embeddings need one: the one from judgements holds for "
                f"{ENCODER} alone. cv.bandwidth_from_pairs chooses one from pairs that you label."
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


def by_prompt(pairs: data.PairedEmbeddings) -> tuple[np.ndarray, np.ndarray]:
    """The row numbers of every answer, `[models, prompts, answers]`, and the prompts' labels.

    Models are in the order in which they occur, prompts in that of their labels, the answers to a
    prompt in that of the rows: two or more, as many to every prompt.
    """
    counts = models.check_shared(pairs)
    if len(set(counts.tolist())) > 1 or counts[0] < 2:
        raise ValueError(
            "--prompt: expected at least two answers of each model to every prompt, to all as "
            f"many; received {counts.min()} to {counts.max()}."
        )
    model, _ = pd.factorize(pairs.labels["models"].astype(str))
    ordered = models.rows_by_cell(model, pairs.prompt_numbers)
    return ordered, pairs.labels["prompt"][ordered[0, :, 0]]


def texts_of(pairs: data.PairedEmbeddings) -> dict[str, np.ndarray]:
    """The embeddings of whole answers, and of those cut to one length where there are any."""
    cut = pairs.further.get("truncated")
    return {WHOLE: pairs.outputs} | ({} if cut is None else {CUT: cut})


def numbers(pairs: data.PairedEmbeddings, role: str, rows: np.ndarray) -> np.ndarray:
    """A label of every answer as a number; NaN where there is no such label."""
    values = pairs.labels.get(role)
    return np.full(rows.shape, np.nan) if values is None else values[rows].astype(float)


def by_model(pairs: data.PairedEmbeddings, rows: np.ndarray, role: str) -> tuple[str, ...]:
    """The one label of each model, or what its name says where there are no such labels."""
    labels = pairs.labels[role if role in pairs.labels else "models"].astype(str)
    words = labels[rows].reshape(len(rows), -1)
    for of_model in words:
        if len(of := set(of_model.tolist())) > 1:
            raise ValueError(f"--{role}: expected one for each model, received {sorted(of)[:2]}.")
    found = words[:, 0].tolist()
    return tuple(found if role in pairs.labels else map(family_of, found))


def family_of(model: str) -> str:
    """The family of a model by its name; the name itself where no family is known by it."""
    begins = model.lower().startswith
    return next((of for of in _FAMILIES if begins(of.lower().replace(" ", "-"))), model)


def entropies(outputs: np.ndarray, bandwidth: float) -> np.ndarray:
    """What the three scores of answers `[..., prompts, answers, d]` are made of, by prompt.

    Float64 `[3, ..., prompts]`: the entropies of order 1 and 2, and minus the log of the mean
    squared kernel of two different answers. Under prompts that are equal or different,
    Conditional-Vendi is the exponential of the mean of the first over the prompts, Conditional-RKE
    1 over the mean of exp of minus the second, and its unbiased form the same of the third.
    """
    rows, n = outputs.astype(np.float64), outputs.shape[-2]
    norms = np.sum(rows**2, axis=-1)
    inner = np.einsum("...id,...jd->...ij", rows, rows)
    squares = np.maximum(norms[..., :, None] + norms[..., None, :] - 2 * inner, 0)
    gram = np.exp(-squares / (2 * bandwidth**2)) / n
    first = np.sum(entr(np.maximum(np.linalg.eigvalsh(gram), 0)), axis=-1)
    others = np.sum((gram * ~np.eye(n, dtype=bool)) ** 2, axis=(-2, -1)) * n / (n - 1)
    second = np.log(np.sum(gram**2, axis=(-2, -1)))
    return np.stack([first, -second, -np.log(np.maximum(others, _LEAST))])


def conditional(entropies: np.ndarray) -> np.ndarray:
    """The scores `[r, ...]` of the entropies `[r, ..., prompts]`, all or the first of `SCORES`."""
    alike = np.exp(-entropies[1:]).mean(axis=-1)
    return np.concatenate([np.exp(entropies[:1].mean(axis=-1)), 1 / alike])


def scored(outputs: np.ndarray, models: Sequence[str], width: Width) -> xr.Dataset:
    """The scores of models by their answers `[models, prompts, answers, d]`, and who is apart.

    Log Conditional-Vendi and 1 / Conditional-RKE are means over the prompts: paired t-tests compare
    these means, and errors of the scores are to first order.

    Over `score` and `model`: `value`; `error`, one standard error over the prompts; `interval`,
    95%, over `side`, of the unbiased score as `cv.evaluate`; `letters` (models that share one
    cannot be told apart at 0.05); `half`, the score of the first half of the answers. Over `other`
    too: `difference`, of the model less the other, with `difference_error`, and `p_value` by Holm
    over all pairs within a score.
    """
    names, (count, n) = list(models), outputs.shape[1:3]
    of_prompts = entropies(outputs, width.outputs)
    values = conditional(of_prompts)
    terms = np.concatenate([of_prompts[:1], np.exp(-of_prompts[1:])])
    influences = np.concatenate([values[:1], -(values[1:] ** 2)])[..., None] * terms
    apart, moved = (of[:, :, None] - of[:, None] for of in (terms, influences))
    error, spread, of_two = (stats.sem(of, axis=-1) for of in (influences, apart, moved))
    mean = apart.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(count - 1, -np.abs(mean) / spread)
    p = np.where(np.abs(mean) < 1e-12, 1.0, p)  # By rounding alone.
    pairs, letters = np.triu_indices(len(names), 1), []
    for score, tests in zip(values, p, strict=True):
        tests[pairs] = tests.T[pairs] = inference.holm(tests[pairs].tolist())
        told = {frozenset((names[a], names[b])) for a, b in np.argwhere(tests < LEVEL)}
        ordered = [names[m] for m in np.argsort(-score, kind="stable")]
        shown = inference.letter_display(ordered, told)
        letters.append([shown[name] for name in names])
    ends = np.stack([values - 1.96 * error, values + 1.96 * error], axis=-1)
    prompt = np.repeat(np.arange(count, dtype=np.float32), n)[:, None]
    for model, of in enumerate(outputs.reshape(len(names), len(prompt), -1)):
        population = cv.evaluate(of, prompt, orders=[2], **width.kernels).order(2).population
        if population is not None and population.intervals is not None:
            ends[-1, model] = population.intervals.conditional
    half = conditional(entropies(outputs[:, :, : max(2, n // 2)], width.outputs))
    of_one = {"value": values, "error": error, "letters": letters, "half": half}
    of_pairs = {
        "difference": values[:, :, None] - values[:, None],
        "difference_error": of_two,
        "p_value": p,
    }
    axes = "score", "model", "other"
    fields: dict[str, Any] = {name: (axes[:2], of) for name, of in of_one.items()}
    fields |= {name: (axes, of) for name, of in of_pairs.items()}
    fields["interval"] = (*axes[:2], "side"), ends
    return xr.Dataset(fields, {"score": list(SCORES), "model": names, "other": names})


def in_words(words: str, *fields: xr.DataArray) -> xr.Dataset:
    """Fields written as these words, as `value`, for a table; '-' where there is no number."""

    def written(*numbers: float) -> str:
        return "-" if np.isnan(numbers[0]) else words.format(*numbers)

    return xr.Dataset({"value": xr.apply_ufunc(written, *fields, vectorize=True)})
