"""The scores of the outputs of each prompt, and its contributions to all scores."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.base import checks, tables
from condvendi_jax.base.result import Result, plain
from condvendi_jax.entropies import Decomposition, PerScore
from condvendi_jax.results.evaluation import of_entropy, score_name
from condvendi_jax.statistics import intervals
from condvendi_jax.statistics.reasons import Reason
from condvendi_jax.statistics.shrinkage import RELIABLE, PromptSpread

_SHOWN = 3  # Prompts at each end.


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
    spread: PromptSpread | None = None
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
        if reliability >= RELIABLE:
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
        names = ("mean", "standard_error", "spread", "reason", "prompts")
        return of_entropy(self.decomposition) | plain({name: getattr(self, name) for name in names})

    def lines(self) -> list[dict[str, Any]]:
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
        title = f"{len(self.prompts):,} prompts, the least diverse first"
        return [title, *table, *_notes(self.prompts, compared)]


def _notes(prompts: Sequence[PromptScore], compared: int) -> list[str]:
    if not compared:
        return [
            "no prompt has two outputs: all scores of prompts are 1, and only contributions differ"
        ]
    notes = [
        "similarity: the mean over pairs of different outputs of a prompt, from 0 to 1; different: "
        "one over it, drawn to the other prompts, with an interval that holds at the ends too",
        "scores: of the outputs of a prompt alone; to Conditional: the contribution of the prompt "
        "to the papers' score of all rows",
    ]
    limits = []
    if alone := len(prompts) - compared:
        limits.append(f"prompts without a similarity, because they have one output: {alone:,}")
    apart, same = (sum(scored.similarity == limit for scored in prompts) for limit in (0, 1))
    if apart or same:
        limits.append(f"all outputs count as different: {apart:,} prompts; as the same: {same:,}")
    return [*notes, "; ".join(limits)] if limits else notes
