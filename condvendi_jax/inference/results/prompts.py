"""The scores of the outputs of each prompt, and its contributions to all scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from condvendi_jax.base import checks, tables
from condvendi_jax.base.result import Result
from condvendi_jax.base.tables import Table
from condvendi_jax.entropies import Decomposition, PerScore
from condvendi_jax.inference.results.evaluation import plain_order, score_name


class PromptScore(NamedTuple):
    """One prompt by itself.

    Attributes:
      prompt: its label; None where there are no labels.
      row: the first of its rows, from 0.
      n: the number of its outputs. Rows of integer weights count as often, those of weight zero not
        at all.
      share: of its rows in the weights of all rows.
      score: the effective number of different outputs among its outputs; at order 2 one over the
        similarity, unless the papers' score, of at most n, is asked for.
      standard_error: of the score, over other outputs of the same prompt; NaN where there are fewer
        than 5, or where nothing varies: all count as different or as the same, say.
      similarity: the mean of the squared kernel over all pairs of different outputs, from 0, where
        all count as different, to 1, where all count as the same. Its expectation does not depend
        on n, as that of the score does. NaN of one output.
      contributions: of its rows to the scores of all rows (`Contributions.by`).
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


@dataclasses.dataclass(frozen=True, repr=False)
class PromptTable(Result):
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
        """The prompts whose outputs are least similar, the least similar first."""
        return self._sorted(count, lambda scored: scored.similarity)

    def _sorted(self, count: int, key: Any) -> list[PromptScore]:
        checks.check_count(count, name="count", minimum=1)
        compared = [scored for scored in self.prompts if not math.isnan(scored.similarity)]
        return sorted(compared, key=lambda scored: (key(scored), -scored.n))[:count]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "order": plain_order(self.decomposition.order),
            "truncation": self.decomposition.truncation,
            "prompts": [scored.as_dict() for scored in self.prompts],
        }

    def lines(self) -> list[dict[str, Any]]:
        """A line for each prompt."""
        order, truncation = self.decomposition.order, self.decomposition.truncation
        start = {"order": plain_order(order), "truncation": truncation}
        plain = [scored.as_dict() for scored in self.prompts]
        return [{"prompt": of.pop("prompt"), **start, **of} for of in plain]

    def parts(self) -> list[str | Table]:
        """The three least and the three most diverse prompts, and what the numbers mean."""
        return parts([self])


def parts(prompt_tables: Sequence[PromptTable], count: int = 3) -> list[str | Table]:
    """The least and the most diverse prompts, with their own scores of the order of each table."""
    first = prompt_tables[0]
    shown = [*first.least_diverse(count), *reversed(first.most_diverse(count))]
    orders = [(of.decomposition.order, of.decomposition.truncation) for of in prompt_tables]
    heading = ["prompt", "n", "similarity", *(score_name("vendi", *order) for order in orders)]
    heading += ["to " + score_name("conditional", *order) for order in orders]
    by_row = [{scored.row: scored for scored in of.prompts} for of in prompt_tables]
    rows = []
    for row in dict.fromkeys(scored.row for scored in shown):
        of_tables = [scores[row] for scores in by_row]
        name = of_tables[0].prompt
        rows.append(
            [
                f"row {row}" if name is None else tables.shortened(str(name)),
                f"{of_tables[0].n:,}",
                f"{of_tables[0].similarity:.3f}",
                *(tables.with_error(scored.score, scored.standard_error) for scored in of_tables),
                *(f"{scored.contributions.conditional:+.3g}" for scored in of_tables),
            ]
        )
    compared = sum(not math.isnan(scored.similarity) for scored in first.prompts)
    if compared > 2 * count:
        rows.insert(count, ["..."] + [""] * (len(heading) - 1))
    title = f"{len(first.prompts):,} prompts, the least diverse first"
    table = [Table(heading, rows)] if rows else []
    return [title, *table, *_notes(first.prompts, compared)]


def _notes(prompts: Sequence[PromptScore], compared: int) -> list[str]:
    """The meaning of the columns, and how many prompts only rounding tells apart."""
    if not compared:
        return [
            "no prompt has two outputs: all scores of prompts are 1, and only contributions differ"
        ]
    notes = [
        "similarity: the mean over pairs of different outputs of a prompt; 0 if all count as "
        "different, 1 if all count as the same",
        "scores: of the outputs of a prompt alone; to Conditional: the contribution of the prompt "
        "to the papers' score of all rows",
    ]
    alone = len(prompts) - compared
    if alone:
        notes.append(f"prompts without a similarity, because they have one output: {alone:,}")
    for limit, words in ((0, "different"), (1, "the same")):
        saturated = sum(scored.similarity == limit for scored in prompts)
        if saturated:
            notes.append(f"prompts whose outputs all count as {words}: {saturated:,}")
    return notes
