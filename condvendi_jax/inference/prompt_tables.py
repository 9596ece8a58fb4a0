"""What every row, and every prompt, contributes to the scores: to find redundant outputs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks, labelling, memory
from condvendi_jax.base.result import Figure, Result
from condvendi_jax.base.tables import Table
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.pairs import Labels, Pairs, takes_pairs
from condvendi_jax.entropies import Decomposition, Entropy, PerScore
from condvendi_jax.inference import saturation
from condvendi_jax.inference.errors import row_influences
from condvendi_jax.results.evaluation import score_name, score_names
from condvendi_jax.results.prompts import PromptScore, PromptTable
from condvendi_jax.spectra import exact, pair_sums
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method
from condvendi_jax.statistics import components, shrinkage
from condvendi_jax.statistics.reasons import Reason

_ROUNDING = 1e-12  # Of shares of pairs: less than this may be rounding.


@dataclasses.dataclass(frozen=True, repr=False)
class Contributions(Result):
    """The contribution of every row to the scores, in effective numbers of modes.

    Attributes:
      decomposition: the scores of all rows.
      influences: of each row on each score, `[n]`, of weighted mean zero: the derivative in the
        weight of the row, while the others shrink in proportion. A negative one marks a redundant
        row. Without prompts, information has none. Of a row of weight zero, NaN unless order 2.
      shares: the weight of each row, `[n]`, of sum one.
      bandwidths: of outputs and prompts, and where they come from.
    """

    decomposition: Decomposition
    influences: PerScore
    shares: np.ndarray
    bandwidths: Mapping[str, RuledBandwidth]

    def lines(self) -> list[dict[str, Any]]:
        """A line for each row."""
        influences = self.influences._asdict().items()
        columns = {"share": self.shares} | {f"influence_on_{name}": x for name, x in influences}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [{"row": k, **dict(zip(columns, row, strict=True))} for k, row in enumerate(rows)]

    @property
    def _titles(self) -> dict[str, str]:
        """The scores in words, by their names."""
        cut = self.decomposition.order, self.decomposition.truncation
        return {name: score_name(name, *cut) for name in score_names(self.bandwidths)}

    def parts(self) -> list[str | Table]:
        """The rows with the smallest and the largest influence on the conditional score."""
        order = np.argsort(self.influences.conditional, kind="stable").tolist()
        shown = order if len(order) <= 6 else [*order[:3], *order[-3:]]
        titles = self._titles
        scores = [getattr(self.influences, name) for name in titles]
        rows = [[f"{k}", *(f"{score[k]:+.3g}" for score in scores)] for k in shown]
        words = f"{self.decomposition.n:,} outputs, the most redundant first"
        words += f", by their influence on {titles.get('conditional') or titles['vendi']}:"
        return [words, Table(["row", *titles.values()], rows)]

    def plot(self, labels: ArrayLike | None = None) -> Figure:
        """The rows, or their `labels` as for `by`, that add least and most to the main score."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        values = {f"row {k}": x for k, x in enumerate(self.influences.conditional.tolist())}
        if labels is not None:
            values = {str(name): x.conditional for name, x in self.by(labels).items()}
        return plots.of_parts(values, self._titles.get("conditional") or self._titles["vendi"])

    def by(self, labels: ArrayLike) -> dict[Any, PerScore]:
        """The contribution of the rows of each label: the sum of influences times shares.

        In effective modes, in the order of the labels, of sum zero. If the rows of a label leave, a
        score falls, to first order, by its contribution over the share of the other rows.

        Args:
          labels: of prompts, models or themes, `[n]`, all numbers or all strings.

        Raises:
          TypeError, ValueError: there are not n labels, or they are of several kinds.
        """
        names, numbers = labelling.check_labels(labels, self.decomposition.n, name="labels")
        weighed = [np.where(self.shares > 0, values * self.shares, 0) for values in self.influences]
        sums = [np.bincount(numbers, of_rows) for of_rows in weighed]
        scores = (PerScore(*map(float, column)) for column in zip(*sums, strict=True))
        return labelling.by_label(names, scores)


@checks.outside_transformations
@takes_pairs
def contributions(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> Contributions:
    """The influence of every row on the three scores of `decompose`.

    If c_k is the derivative of the entropy in the eigenvalue lambda_k of A = K / n, and u_k its
    eigenvector, row i has the influence n sum_k c_k lambda_k u_ki^2 - sum_k c_k lambda_k on the
    entropy (docs/contributions.md). At order 2 one pass over the pairs gives it at any n; other
    orders and truncations take all eigenvectors, O(n^3) time, or estimates of a method.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      order, truncation, method: see `decompose`.

    Raises:
      TypeError, ValueError: `decompose` would refuse the data, or n x n arrays exceed the memory.

    Examples:
      Three outputs are the same, and the fourth stands alone:

      >>> import condvendi_jax as cv
      >>> result = cv.contributions([[0], [0], [0], [1]], kernel=cv.Gaussian(0.1), order=2)
      >>> print(result.influences.vendi.round(2))
      [-0.64 -0.64 -0.64  1.92]
    """
    entropy = Entropy(order=order, truncation=truncation).clamped(pairs.n)
    result = row_influences(pairs, entropy, method)
    of_rows = PerScore(*(rows.mean(axis=0) for rows in result.changes))
    return Contributions(result.decomposition, of_rows, pairs.shares, pairs.bandwidths)


@checks.outside_transformations
@takes_pairs
def prompt_table(
    pairs: Pairs,
    *,
    order: float = 1,
    truncation: int | None = None,
    labels: Labels | None = None,
    method: Method = AUTO,
) -> PromptTable:
    """Scores the outputs of each prompt by itself, and tests whether prompts differ.

    The score of a prompt is Vendi or RKE of its outputs alone, under the same output kernel. The
    test, and values that are shrunken because the ends of the table are there partly by chance, are
    those of the similarity of its outputs, at every order. Outputs count as independent.

    Args:
      pairs: the data, or what makes it, as for `decompose`.
      order, truncation: see `decompose`. A prompt with fewer outputs keeps all eigenvalues.
      labels: of the rows, `[n]`, in place of their prompts: all numbers or all strings.
      method: how the eigenvalues of all rows are computed. Those of a prompt are exact.

    Raises:
      TypeError, ValueError: `contributions` would refuse the data; there are neither prompts nor n
        labels; or the outputs of one prompt are too many for the memory.

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
        distinct, numbers = labelling.check_labels(labels, pairs.n)
        names = distinct[numbers]
    elif pairs.paired:
        _, numbers = pairs.prompt_kinds
    else:
        expected = "expected the prompt of every row [n], received None."
        raise ValueError(f"labels: there are outputs alone; {expected}")
    result = contributions(pairs, order=order, truncation=truncation, method=method)
    return tabulate(pairs, result, entropy, numbers, names)


def tabulate(
    pairs: Pairs, result: Contributions, entropy: Entropy, numbers: np.ndarray, names: Any = None
) -> PromptTable:
    """The table of the prompts of rows, by their numbers and, where there are, names, `[n]`."""
    _, membership = checks.number_values(numbers)
    rows = np.unique(membership, return_index=True)[1]  # The first of each.
    scored, spread, reason = _by_prompt(pairs, membership, entropy)
    named = [None] * rows.size if names is None else names[rows].tolist()
    columns = [named, *(column.tolist() for column in (rows, *scored))]
    columns.append(result.by(membership).values())
    prompts = tuple(PromptScore(*row) for row in zip(*columns, strict=True))
    return PromptTable(prompts, result.decomposition, spread, reason)


def _by_prompt(
    pairs: Pairs, membership: np.ndarray, entropy: Entropy
) -> tuple[list[np.ndarray], shrinkage.PromptSpread | None, Reason | None]:
    """The columns of `PromptScore` after the first row, `[p]` each, the spread, or why not."""
    near, shares = pairs.gathered(), pairs.shares
    counted = np.flatnonzero(shares > 0)
    rows = counted[np.argsort(membership[counted], kind="stable")]
    prompt, of_prompts = membership[rows], np.bincount(membership, shares)
    sizes = np.bincount(prompt, minlength=of_prompts.size)
    most = int(sizes.max())
    if not memory.fits(most, pairs.dtype):
        arrays = f"the n x n arrays of the {most:,} outputs of one prompt do not fit in memory"
        raise ValueError(f"pairs: {arrays}; score some of them, with cv.decompose.")
    copies = (np.ones(pairs.n) if pairs.copies is None else pairs.copies.astype(np.float64))[rows]
    n = np.bincount(prompt, copies, sizes.size).astype(int)
    within = shares / np.where(of_prompts > 0, of_prompts, 1)[membership]  # Of a row in its prompt.
    score, sums = np.full(sizes.size, np.nan), np.zeros((2, rows.size))
    for block in exact.compute_sets(near, rows, sizes, np.flatnonzero(sizes), within, entropy):
        score[block.sets] = np.exp(np.asarray(block.values, np.float64))
        by_row = np.moveaxis(np.asarray(block.sums, np.float64), 1, 0)
        sums[:, block.places[block.inside]] = by_row[:, block.inside]
    weights = within[rows]
    left_out = alone = units = weights / copies
    if near.batches is not None:
        kinds, outputs = near.batch_kinds, pair_sums.factor(near, 0)  # With their batches.
        leaving = pair_sums.leaving_of(within, kinds)
        inside = [pair_sums.sums_inside(outputs, part) for part in leaving]
        left_out = (pair_sums.by_rows(leaving, inside, near.n)[0] + within)[rows]
        alone = np.bincount(kinds, within)[kinds][rows]
    totals = (np.bincount(prompt, weights * x, sizes.size) for x in (sums[0], left_out, alone))
    squared_norm, squares, same = totals
    several = (n > 1) & (same < 1 - _ROUNDING)
    similarity = np.clip((squared_norm - squares) / np.where(several, 1 - same, np.nan), 0, 1)
    rounding = saturation.rounding(Entropy(2), pairs.dtype)
    similarity[several & (squared_norm <= squares * (1 + rounding))] = 0
    similarity[several & (squared_norm >= 1 - rounding)] = 1
    columns = [n, of_prompts, score, score, similarity]
    if not entropy.needs_spectrum:
        with np.errstate(divide="ignore"):
            columns[2] = np.where(several, 1 / similarity, score)
    if near.batches is not None:
        result = "answers of one batch depend on each other"
    elif not np.allclose(units * n[prompt], 1, atol=0):
        result = "the outputs of a prompt have unequal weights"
    else:
        similar, squared = sums / units - 1
        parts = components.of_sums(similar, squared, copies, prompt, n.size)
        result, failed = "", dict[str, str]()
        with checks.optional("shrunken similarities", failed):
            result = shrinkage.shrink(parts._replace(similarity=similarity))
        result = result or next(iter(failed.values()))
    if isinstance(result, str):
        return [*columns, *np.full((3, n.size), np.nan)], None, Reason(result)
    spread, shrunken = result
    return [*columns, *shrunken], spread, None
