"""The score of every prompt by itself, and what the prompt contributes to the scores of all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax import validation
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.grams import _eigenvalues as spectra
from condvendi_jax.grams import _memory as memory
from condvendi_jax.inference import saturation
from condvendi_jax.inference._contributions import contributions
from condvendi_jax.pairs import Pairs, takes_pairs
from condvendi_jax.report import _render
from condvendi_jax.scores._decompose import Decomposition
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import AUTO, Method

# Errors from fewer outputs say little: with 5, two errors cover the mean score in 50 to 99% of
# samples, with 10 in 75 to 95% (by simulation, docs/contributions.md).
FEWEST_WITH_ERRORS = 5
# Entries of the points and kernels that one program holds a few times.
_ENTRIES = 2**22


class PromptScore(NamedTuple):
    """One prompt by itself.

    Attributes:
      prompt: its label; None where there are no labels.
      row: the first of its rows, from 0.
      n: the number of its outputs. Rows of integer weights count as often, those of weight zero not
        at all.
      share: of its rows in the weights of all rows.
      score: the effective number of different outputs among its own; at order 2 one over the
        similarity, unless the papers' score, of at most n, is asked for.
      standard_error: of the score, over other outputs of the same prompt; NaN where there are fewer
        than 5, or where nothing varies: all count as different or as the same, say.
      similarity: the mean of the squared kernel over all pairs of different outputs, from 0, where
        all count as different, to 1, where all count as the same. Its expectation does not depend
        on n, as that of the score does. NaN of one output.
      contributions: what its rows contribute to the scores of all rows (`Contributions.by`).
    """

    prompt: Any
    row: int
    n: int
    share: float
    score: float
    standard_error: float
    similarity: float
    contributions: PerScore

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with an entry for each contribution."""
        plain = self._asdict()
        for name, value in plain.pop("contributions")._asdict().items():
            plain[f"contribution_to_{name}"] = value
        return plain


@dataclasses.dataclass(frozen=True)
class PromptTable:
    """Every prompt by itself. Prints as a table of the least and the most diverse prompts.

    Attributes:
      prompts: one entry for each distinct prompt or label, in the order of their first rows.
      decomposition: the scores of all rows.
    """

    prompts: tuple[PromptScore, ...]
    decomposition: Decomposition

    def least_diverse(self, count: int) -> list[PromptScore]:
        """The prompts whose outputs are most similar, the most similar first.

        By their similarity, because scores of different numbers of outputs cannot be compared.
        Prompts with one output are left out. Of equal similarities, the one of more outputs is
        first.
        """
        return self._sorted(count, lambda scored: -scored.similarity)

    def most_diverse(self, count: int) -> list[PromptScore]:
        """The prompts whose outputs are least similar, as `least_diverse`."""
        return self._sorted(count, lambda scored: scored.similarity)

    def _sorted(self, count: int, key: Any) -> list[PromptScore]:
        validation.check_count(count, name="count", minimum=1)
        compared = [scored for scored in self.prompts if not math.isnan(scored.similarity)]
        return sorted(compared, key=lambda scored: (key(scored), -scored.n))[:count]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        order = self.decomposition.order
        return {
            "order": "inf" if math.isinf(order) else order,  # JSON has no infinity.
            "truncation": self.decomposition.truncation,
            "prompts": [scored.as_dict() for scored in self.prompts],
        }

    def comma_separated(self) -> str:
        """CSV: one line for each prompt, unrounded."""
        return _render.prompts_in_csv([self])

    def __str__(self) -> str:
        """The three least and the three most diverse prompts, and what the numbers mean."""
        return _render.prompts([self])


@validation.outside_transformations
@takes_pairs
def prompt_table(
    pairs: Pairs,
    *,
    order: float = 1,
    truncation: int | None = None,
    labels: ArrayLike | None = None,
    method: Method = AUTO,
    unbiased: bool = True,
) -> PromptTable:
    """The score of every prompt by itself, with its error, and its contribution to all scores.

    The own score of a prompt is Vendi or RKE of its outputs alone, under the same output kernel.
    Its error comes from the influences of the outputs, which count as independent; at order 1
    without truncation, from their exact deletions.

    Args:
      pairs: the data, or what makes it, as for `decompose`. Rows of equal prompts are one prompt.
      order, truncation: as `decompose`. A prompt with fewer outputs keeps all eigenvalues.
      labels: of the rows, `[n]`, in place of their prompts: texts or themes, all numbers or all
        strings.
      method: how the eigenvalues of all rows are computed. Own scores take all those of a prompt.
      unbiased: whether the own scores of order 2 do not count the pairs of an output with itself;
        contributions are to the papers' score of all rows.

    Returns:
      A `PromptTable`; `print` shows the least and the most diverse prompts.

    Raises:
      TypeError, ValueError: as `contributions`; there are neither prompts nor labels; there are not
        n labels; or the outputs of one prompt are too many for the memory.

    Examples:
      The first prompt has two different outputs, the second has three equal ones:

      >>> import condvendi_jax as cv
      >>> data = [[0], [1], [2], [2], [2]], [[0], [0], [1], [1], [1]]
      >>> kernels = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> table = cv.prompt_table(*data, **kernels, order=2, labels=["a", "a", "b", "b", "b"])
      >>> for found in table.prompts:
      ...     print(found.prompt, found.n, round(found.score, 2), round(found.similarity, 2))
      a 2 inf 0.0
      b 3 1.0 1.0
    """
    entropy, names = Entropy(order=order, truncation=truncation), None
    if labels is not None:
        validation.check_indices({"outputs": pairs, "labels": labels})
        names, numbers = validation.check_labels(labels, pairs.n)
    elif pairs.paired:
        _, numbers = pairs.prompt_kinds
    else:
        raise ValueError(
            "labels: there are outputs alone; expected the prompt of every row [n], received None."
        )
    _, first, kinds = np.unique(numbers, return_index=True, return_inverse=True)
    rows = np.sort(first)
    membership = np.searchsorted(rows, first[kinds.reshape(-1)])  # In the order of the first rows.
    alike = validation.check_flag(unbiased, name="unbiased") and not entropy.needs_spectrum
    own = _Own(pairs, membership, entropy, alike)
    found = contributions(pairs, order=order, truncation=truncation, method=method)
    columns = (
        [None] * rows.size if names is None else names[numbers[rows]].tolist(),
        rows.tolist(),
        *(column.tolist() for column in own.columns()),
        found.by(membership).values(),
    )
    return PromptTable(
        tuple(PromptScore(*row) for row in zip(*columns, strict=True)), found.decomposition
    )


class _Own:
    """The rows of each of p prompts, and their scores."""

    def __init__(self, pairs: Pairs, membership: np.ndarray, entropy: Entropy, unbiased: bool):
        self.near, self.entropy, shares = pairs.gathered(), entropy, pairs.shares
        self.unbiased = unbiased
        counted = np.flatnonzero(shares > 0)
        self.rows = counted[np.argsort(membership[counted], kind="stable")]
        self.shares = np.bincount(membership, shares)
        self.sizes = np.bincount(membership[counted], minlength=self.shares.size)
        copies = np.ones(pairs.n) if pairs.copies is None else pairs.copies.astype(np.float64)
        self.n = np.bincount(membership[counted], copies[counted], self.shares.size).astype(int)
        # Of a row within its prompt, and of one of its copies.
        self.weights = shares / np.where(self.shares > 0, self.shares, 1)[membership]
        self.units = np.where(shares > 0, self.weights / np.maximum(copies, 1), 0)
        most = int(self.sizes.max())
        if not memory.fits(most, pairs.dtype):
            raise ValueError(
                f"pairs: the n x n arrays of the {most:,} outputs of one prompt do not fit in "
                "memory; score some of them, with cv.decompose."
            )

    def columns(self) -> tuple[np.ndarray, ...]:
        """Of each prompt: n, its share, its score, the error of the score, and the similarity."""
        score, error, squared_norm = np.full((3, self.sizes.size), np.nan)
        # Compiling takes longer than the numbers: one program for up to 16 rows, 64, 256, ...
        programs = np.ceil(np.log2(np.maximum(self.sizes, 16)) / 2)
        for program in np.unique(programs[self.sizes > 0]):
            chosen = np.flatnonzero((self.sizes > 0) & (programs == program))
            most = int(self.sizes[chosen].max())
            at_once = max(1, _ENTRIES // (most * (most + self.near.arrays[0].shape[1])))
            for start in range(0, chosen.size, at_once):
                # As many each time, so that all are one program: the last of them again.
                places = np.arange(start, start + min(at_once, chosen.size))
                some = chosen[np.minimum(places, chosen.size - 1)]
                score[some], error[some], squared_norm[some] = self._scores(some, most)
        squared_units = np.zeros(self.sizes.size)
        of_row = np.repeat(np.arange(self.sizes.size), self.sizes)
        np.add.at(squared_units, of_row, self.weights[self.rows] * self.units[self.rows])
        several = self.n > 1
        rest = np.where(several, 1 - squared_units, np.nan)
        similarity = np.clip((squared_norm - squared_units) / rest, 0, 1)
        rounding = saturation.rounding(Entropy(2), self.near.dtype)
        similarity[several & (squared_norm <= squared_units * (1 + rounding))] = 0
        similarity[several & (squared_norm >= 1 - rounding)] = 1
        if self.unbiased:
            with np.errstate(divide="ignore"):
                score = np.where(several, 1 / similarity, score)
                error = error * np.where(similarity > 0, score, 0) ** 2
        varies = (similarity > 0) & (similarity < 1)
        with np.errstate(invalid="ignore"):
            varies &= error > saturation.rounding(self.entropy, self.near.dtype) * score
        error = np.where(varies & (self.n >= FEWEST_WITH_ERRORS), error, np.nan)
        return self.n, self.shares, score, error, similarity

    def _scores(self, prompts: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
        """The scores of prompts of up to `most` rows, their errors, and their squared norms."""
        starts = (np.cumsum(self.sizes) - self.sizes)[prompts, None]
        inside = np.arange(most) < self.sizes[prompts, None]
        rows = self.rows[np.where(inside, starts + np.arange(most), starts)]
        weights, units = (np.where(inside, of[rows], 0) for of in (self.weights, self.units))
        apart = methods.compute_apart(
            self.near.kernels[0],
            self.near.arrays[0][rows],
            *(jnp.asarray(of, self.near.dtype) for of in (weights, units)),
            self.entropy.fitted(most),
        )
        spectra.check_spectra(apart.values)
        values, of_rows, norms = (np.asarray(of, np.float64) for of in apart)
        n = self.n[prompts]
        if self.unbiased:
            return np.exp(values), _error_of_similarity(of_rows, weights, units, norms, n), norms
        centred = of_rows - np.sum(weights * of_rows, axis=1, keepdims=True)
        # Of independent rows (docs/errors.md); a row of weight c stands for c of them.
        variances = np.sum(weights * units * centred**2, axis=1) * n / np.maximum(n - 1, 1)
        return np.exp(values), np.exp(values) * np.sqrt(variances), norms


def _error_of_similarity(
    of_rows: np.ndarray, weights: np.ndarray, units: np.ndarray, norms: np.ndarray, n: np.ndarray
) -> np.ndarray:
    """The jackknife error of the similarity of each prompt, `[p]`, from exact deletions of outputs.

    The derivative of the entropy in the weight of a row is -2 r / norm, for its weighted sum r of
    squared kernels with all rows.
    """
    sums = -of_rows * norms[:, None] / 2
    own = np.sum(weights * units, axis=1)[:, None]
    rest = norms[:, None] - own - 2 * units * (sums - units)
    with np.errstate(divide="ignore", invalid="ignore"):
        without = rest / ((1 - units) ** 2 - own + units**2)
        copies = np.where(units > 0, weights / units, 0)
        without = np.where(copies > 0, without, 0)
        mean = np.sum(copies * without, axis=1) / n
        return np.sqrt((n - 1) / n * np.sum(copies * (without - mean[:, None]) ** 2, axis=1))
