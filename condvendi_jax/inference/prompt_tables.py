"""What every row, and every prompt, contributes to the scores: to find redundant outputs."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks, labelling, memory, tables
from condvendi_jax.base.result import Figure, Result, plain
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.pairs import Labels, Pairs, takes_pairs
from condvendi_jax.entropies import Decomposition, Entropy, PerScore
from condvendi_jax.inference import saturation
from condvendi_jax.inference.errors import row_influences
from condvendi_jax.results.evaluation import of_entropy, score_name, score_names
from condvendi_jax.spectra import exact, pair_sums
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method
from condvendi_jax.statistics import intervals, shrinkage
from condvendi_jax.statistics.reasons import Reason

_ROUNDING = 1e-12  # Of shares of pairs: less than this may be rounding.
_SHOWN = 3  # Prompts at each end.
_ALONE = "no prompt has two outputs: all scores of prompts are 1, and only contributions differ"
_NOTES = (
    "similarity: the mean over pairs of different outputs of a prompt, from 0 to 1; different: "
    "one over it, drawn to the other prompts, with an interval that holds at the ends too",
    "scores: of the outputs of a prompt alone; to Conditional: the contribution of the prompt "
    "to the papers' score of all rows",
)


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

    def parts(self) -> list[str | tables.Table]:
        """The rows with the smallest and the largest influence on the conditional score."""
        order = np.argsort(self.influences.conditional, kind="stable").tolist()
        shown = order if len(order) <= 6 else [*order[:3], *order[-3:]]
        titles = self._titles
        scores = [getattr(self.influences, name) for name in titles]
        rows = [[f"{k}", *(f"{score[k]:+.3g}" for score in scores)] for k in shown]
        words = f"{self.decomposition.n:,} outputs, the most redundant first"
        words += f", by their influence on {titles.get('conditional') or titles['vendi']}:"
        return [words, tables.Table(["row", *titles.values()], rows)]

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


class PromptScore(NamedTuple):
    """One prompt by itself.

    Attributes:
      prompt: its label; None where there are no labels.
      row: the first of its rows, from 0.
      n: the number of its outputs, where rows of integer weights count as often.
      share: of its rows in the weights of all rows.
      score: the effective number of different outputs; at order 2 one over the similarity.
      plug_in: the papers' score, of at most n.
      similarity: the mean of the squared kernel over all pairs of different outputs, from 0, where
        all count as different, to 1, where all count as the same. Its expectation does not depend
        on n, as that of the score does. NaN of one output.
      shrunken: the similarity, drawn to those of others; NaN where `PromptTable.reason` says why.
      low, high: of an interval for the similarity of any number of outputs, which holds that of
        the first and the last prompt of the table, too, in 90% to 100% of samples.
      contributions: of its rows to the scores of all rows (`Contributions.by`).
    """

    prompt: Any
    row: int
    n: int
    share: float
    score: float
    plug_in: float
    similarity: float
    shrunken: float
    low: float
    high: float
    contributions: PerScore

    @property
    def known(self) -> float:
        """The shrunken similarity, or the plain one where that is not known."""
        return self.similarity if math.isnan(self.shrunken) else self.shrunken

    def in_words(self) -> str:
        """One over the shrunken similarity, with its interval: '3.5 [2.8, 4.4]'; '' if NaN."""
        if math.isnan(self.shrunken):
            return ""
        value, *ends = (1 / x if x else math.inf for x in (self.shrunken, self.high, self.low))
        return tables.with_interval(value, ends)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with an entry for each contribution."""
        shown = self._asdict()
        parts = shown.pop("contributions")._asdict()
        return shown | {f"contribution_to_{name}": value for name, value in parts.items()}


@dataclasses.dataclass(frozen=True, repr=False)
class PromptTable(Result):
    """Every prompt by itself. Prints as a table of the least and the most diverse prompts.

    Attributes:
      prompts: one entry for each distinct prompt or label, in the order of their first rows.
      decomposition: the scores of all rows.
      spread: how much prompts differ; None where nothing was tested.
      reason: why.
    """

    prompts: tuple[PromptScore, ...]
    decomposition: Decomposition
    spread: shrinkage.PromptSpread | None = None
    reason: Reason | None = None

    @property
    def mean(self) -> float:
        """The arithmetic mean over prompts of their scores, as papers on text-to-image print it.

        It grows with the number of outputs. Conditional-Vendi with `Indicator` prompts is at most
        as large: at order 1 a geometric mean, of prompts with equal numbers of outputs.
        """
        return float(np.mean(self._scores))

    @property
    def standard_error(self) -> float:
        """Of `mean`, over prompts: for other prompts, with as many outputs. NaN for one prompt."""
        count = len(self._scores)
        return float(np.std(self._scores, ddof=1)) / math.sqrt(count) if count > 1 else math.nan

    @property
    def _scores(self) -> list[float]:
        """Those of the prompts whose rows do not all have weight zero."""
        return [scored.plug_in for scored in self.prompts if scored.n]

    def least_diverse(self, count: int) -> list[PromptScore]:
        """The prompts whose outputs are most similar, the most similar first.

        By their shrunken similarities, or the plain ones if these are not known; of equal ones, the
        prompt of more outputs is first. Prompts with one output are left out.
        """
        return self._sorted(count, -1)

    def most_diverse(self, count: int) -> list[PromptScore]:
        """The prompts whose outputs are least similar, the least similar first."""
        return self._sorted(count, 1)

    def _sorted(self, count: int, sign: int) -> list[PromptScore]:
        checks.check_count(count, name="count", minimum=1)
        compared = [scored for scored in self.prompts if not math.isnan(scored.similarity)]
        compared.sort(key=lambda one: (sign * one.known, sign * one.similarity, -one.n))
        return compared[:count]

    def sentence(self) -> str:
        """Whether prompts differ, and whether the table can rank them."""
        if self.spread is None:
            return f"not tested whether prompts differ: {self.reason}"
        p_value, _, reliability, needed = self.spread
        if p_value >= 0.05:
            seen = f"no sign that prompts differ (p = {p_value:.2f})"
            return f"{seen}: do not read a ranking into this table"
        outputs = f"{self._outputs(2)} outputs to a prompt"
        chance = f"{1 - reliability:.0%} of how the prompts differ is chance"
        if reliability >= shrinkage.RELIABLE:
            return f"{outputs} can rank them: {chance}"
        return f"{outputs} are too few to rank them: {chance}; about {math.ceil(needed):,} would do"

    def _outputs(self, least: int) -> str:
        """How many outputs prompts with at least so many have: '5', '2 to 19'."""
        return tables.span(scored.n for scored in self.prompts if scored.n >= least)

    def mean_in_words(self) -> str:
        """The mean over prompts with its error, and what this error covers."""
        name = score_name("vendi", self.decomposition.order, self.decomposition.truncation)
        width = intervals.student(len(self._scores) - 1) * self.standard_error
        value = tables.with_interval(self.mean, (max(self.mean - width, 1.0), self.mean + width))
        cover = "[low, high]: 95%, over prompts, at this number of outputs"
        prompts = f"{len(self._scores):,} prompts with {self._outputs(1)} outputs"
        return f"mean of the {name} of {prompts}: {value} ({cover})"

    def as_dict(self) -> dict[str, Any]:
        """The mean and every prompt as plain data."""
        names = ("mean", "standard_error", "spread", "reason", "prompts")
        return of_entropy(self.decomposition) | plain({name: getattr(self, name) for name in names})

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        start = {"prompt": None} | of_entropy(self.decomposition)
        return [start | scored.as_dict() for scored in self.prompts]

    def parts(self) -> list[str | tables.Table]:
        """The three least and the three most diverse prompts, and what the numbers mean."""
        order = self.decomposition.order, self.decomposition.truncation
        shown = [*self.least_diverse(_SHOWN), *reversed(self.most_diverse(_SHOWN))]
        heading = ["prompt", "n", "similarity", "different", score_name("vendi", *order)]
        heading.append("to " + score_name("conditional", *order))
        rows = []
        for row, scored in {scored.row: scored for scored in shown}.items():
            name = f"row {row}" if scored.prompt is None else tables.shortened(str(scored.prompt))
            cells = [name, f"{scored.n:,}", f"{scored.similarity:.3f}", scored.in_words()]
            value = tables.up_to(scored.score, scored.n)
            rows.append([*cells, value, f"{scored.contributions.conditional:+.3g}"])
        compared = sum(not math.isnan(scored.similarity) for scored in self.prompts)
        if compared > 2 * _SHOWN:
            rows.insert(_SHOWN, ["..."] + [""] * (len(heading) - 1))
        table = [self.sentence(), tables.Table(heading, rows), self.mean_in_words()] if rows else []
        notes, limits = [*_NOTES] if compared else [_ALONE], []
        alone = len(self.prompts) - compared
        if alone and compared:
            limits.append(f"prompts without a similarity, because they have one output: {alone:,}")
        apart, same = (sum(one.similarity == end for one in self.prompts) for end in (0, 1))
        if apart or same:
            limits.append(f"all outputs count as different: {apart:,} prompts")
            limits.append(f"as the same: {same:,}")
        notes += ["; ".join(limits)] if limits else []
        return [f"{len(self.prompts):,} prompts, the least diverse first", *table, *notes]


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
        parts = shrinkage.of_sums(similar, squared, copies, prompt, n.size)
        result, failed = "", dict[str, str]()
        with checks.optional("shrunken similarities", failed):
            result = shrinkage.shrink(parts._replace(similarity=similarity))
        result = result or next(iter(failed.values()))
    if isinstance(result, str):
        return [*columns, *np.full((3, n.size), np.nan)], None, Reason(result)
    spread, shrunken = result
    return [*columns, *shrunken], spread, None
