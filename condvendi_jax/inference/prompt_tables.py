"""The score of the outputs of each prompt, and the contribution of the prompt to all scores."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from condvendi_jax.base import checks, memory
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.data.signatures import takes_pairs
from condvendi_jax.entropies import Entropy, eigenvalues
from condvendi_jax.inference import saturation
from condvendi_jax.inference.results import PromptScore, PromptTable
from condvendi_jax.inference.row_contributions import contributions
from condvendi_jax.spectra import exact
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method

# Errors from fewer outputs say little: with 5, two errors cover the mean score in 50 to 99% of
# samples, with 10 in 75 to 95% (by simulation, docs/contributions.md).
FEWEST_WITH_ERRORS = 5
# Entries of the points and kernels that one program holds a few times.
_ENTRIES = 2**22


@checks.outside_transformations
@takes_pairs
def prompt_table(
    pairs: Pairs,
    *,
    order: float = 1,
    truncation: int | None = None,
    labels: Labels | None = None,
    method: Method = AUTO,
    unbiased: bool = True,
) -> PromptTable:
    """Scores the outputs of each prompt by itself, with errors and contributions to all scores.

    The score of a prompt is Vendi or RKE of its outputs alone, under the same output kernel. Its
    error comes from the influences of the outputs, which count as independent; at order 1 without
    truncation, from their exact deletions.

    Args:
      pairs: the data, or what makes it, as for `decompose`. Rows of equal prompts are one prompt.
      order, truncation: see `decompose`. A prompt with fewer outputs keeps all eigenvalues.
      labels: of the rows, `[n]`, in place of their prompts: texts or themes, all numbers or all
        strings.
      method: how the eigenvalues of all rows are computed. Those of a prompt are exact.
      unbiased: whether scores of order 2 leave out the pairs of an output with itself.
        Contributions are to the papers' score of all rows.

    Returns:
      A `PromptTable`; `print` shows the least and the most diverse prompts.

    Raises:
      TypeError, ValueError: `contributions` would refuse the data; there are neither prompts nor
        labels; there are not n labels; or the outputs of one prompt are too many for the memory.

    Examples:
      The first prompt has two different outputs, the second has three equal ones:

      >>> import condvendi_jax as cv
      >>> data = [[0], [1], [2], [2], [2]], [[0], [0], [1], [1], [1]]
      >>> kernels = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> table = cv.prompt_table(*data, **kernels, order=2, labels=["a", "a", "b", "b", "b"])
      >>> for of in table.prompts:
      ...     print(of.prompt, of.n, round(of.score, 2), round(of.similarity, 2))
      a 2 inf 0.0
      b 3 1.0 1.0
    """
    entropy, names = Entropy(order=order, truncation=truncation), None
    if labels is not None:
        checks.check_indices({"outputs": pairs, "labels": labels})
        names, numbers = checks.check_labels(labels, pairs.n)
    elif pairs.paired:
        _, numbers = pairs.prompt_kinds
    else:
        raise ValueError(
            "labels: there are outputs alone; expected the prompt of every row [n], received None."
        )
    _, first, kinds = np.unique(numbers, return_index=True, return_inverse=True)
    rows = np.sort(first)
    membership = np.searchsorted(rows, first[kinds.reshape(-1)])  # In the order of the first rows.
    alike = checks.check_flag(unbiased, name="unbiased") and not entropy.needs_spectrum
    scored = _ByPrompt(pairs, membership, entropy, alike)
    result = contributions(pairs, order=order, truncation=truncation, method=method)
    columns = (
        [None] * rows.size if names is None else names[numbers[rows]].tolist(),
        rows.tolist(),
        *(column.tolist() for column in scored.columns()),
        result.by(membership).values(),
    )
    return PromptTable(
        tuple(PromptScore(*row) for row in zip(*columns, strict=True)), result.decomposition
    )


class _ByPrompt:
    """The rows of p prompts, and the score of each prompt."""

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
        """The n, the share, the score, its error and the similarity of each prompt, `[p]` each."""
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
        apart = exact.compute_apart(
            self.near.kernels[0],
            self.near.arrays[0][rows],
            *(jnp.asarray(of, self.near.dtype) for of in (weights, units)),
            self.entropy.fitted(most),
        )
        eigenvalues.check_spectra(apart.values)
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
    same_row = np.sum(weights * units, axis=1)[:, None]
    rest = norms[:, None] - same_row - 2 * units * (sums - units)
    with np.errstate(divide="ignore", invalid="ignore"):
        without = rest / ((1 - units) ** 2 - same_row + units**2)
        copies = np.where(units > 0, weights / units, 0)
        without = np.where(copies > 0, without, 0)
        mean = np.sum(copies * without, axis=1) / n
        return np.sqrt((n - 1) / n * np.sum(copies * (without - mean[:, None]) ** 2, axis=1))
