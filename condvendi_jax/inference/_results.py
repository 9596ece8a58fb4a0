"""What `evaluate` and `compare` return: plain data, which `report` turns into text."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from condvendi_jax.bandwidth import RuledBandwidth
from condvendi_jax.entropies import PerScore
from condvendi_jax.inference import saturation
from condvendi_jax.inference.saturation import Advice, Limit
from condvendi_jax.pairs import Pairs
from condvendi_jax.report import _paper, _render
from condvendi_jax.report._paper import Report
from condvendi_jax.scores._decompose import Decomposition

if TYPE_CHECKING:  # They import this module.
    from condvendi_jax.inference._between import Between
    from condvendi_jax.inference._designs import Design
    from condvendi_jax.inference._population import Population
    from condvendi_jax.inference._profile import Profile

# A choice: the Gram of this many distinct prompts takes a second.
_LOOKED_AT = 4096


def _order(order: float) -> float | str:
    """An order for JSON, which has no infinity."""
    return "inf" if math.isinf(order) else order


class ErrorsBy(NamedTuple):
    """How standard errors were computed.

    Attributes:
      method: 'influences' of rows, or 'deletions' of groups.
      groups: the number of groups of rows that count as independent.
      units: what a group is, in words: 'rows', 'rows of one prompt' or 'given labels'.
      reason: why groups were deleted although influences were asked for, or why there is no error
        (NaN) from influences; None elsewhere.
    """

    method: Literal["influences", "deletions"]
    groups: int
    units: str
    reason: str | None = None

    @property
    def withheld(self) -> bool:
        """Whether influences would give a wrong error, so that there is none."""
        return self.method == "influences" and self.reason is not None


@dataclasses.dataclass(frozen=True)
class ScoredOrder:
    """The scores of one order.

    Attributes:
      decomposition: the scores, and how they were computed.
      standard_errors: of the sample, at these kernels; None where they were not computed.
      bandwidth_errors: the standard deviations of the scores over other draws of the rule's random
        subsets; None where no bandwidth was drawn, or no errors were computed.
      saturated: by name, the limit (`saturation.limit_of`) that a score has reached.
      influences: the effect of each group of rows on each score, `[replicates, g]`, whose root
        mean square is the standard error; exact ones have one replicate.
      errors_by: how the standard errors were computed.
      largest: the largest score that the weights of the rows allow; n where they are equal.
      slope: how much each score grew with the last doubling of the answers to each prompt, or of
        the rows where no prompt repeats; None where it was not computed.
      population: at order 2 without truncation, of all pairs of rows, the unbiased scores with
        their errors and intervals; None elsewhere.
    """

    decomposition: Decomposition
    standard_errors: PerScore | None
    bandwidth_errors: PerScore | None = None
    saturated: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    influences: PerScore | None = None
    errors_by: ErrorsBy | None = None
    largest: float = math.nan
    slope: PerScore | None = None
    population: Population | None = None

    @property
    def unbiased(self) -> PerScore | None:
        """The unbiased scores of order 2, which do not depend on n: see `decompose`."""
        return self.population and self.population.values

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain numbers: the named scores, their errors and intervals, the entropies."""
        result = self.decomposition

        def plain(values: PerScore | None) -> dict[str, Any] | None:
            return values and {name: float(getattr(values, name)) for name in names}

        intervals = None
        if result.estimation is not None:
            intervals = {name: list(getattr(result.intervals, name)) for name in names}
        entropies = ("entropy_outputs", "entropy_prompts", "entropy_joint")[: len(names)]
        return {
            "order": _order(result.order),
            "truncation": result.truncation,
            "method": result.method,
            **(plain(result.scores) or {}),
            "intervals": intervals,
            "standard_errors": plain(self.standard_errors),
            "errors_by": self.errors_by and self.errors_by._asdict(),
            "bandwidth_errors": plain(self.bandwidth_errors),
            "saturated": dict(self.saturated),
            **{name: float(getattr(result, name)) for name in entropies},
            "slope_per_doubling": plain(self.slope),
            "unbiased": self.population and self.population.as_dict(names),
        }


class RepeatedPrompts(NamedTuple):
    """How many distinct prompts there are where they repeat, and how many the kernel tells apart.

    Attributes:
      distinct: the number of distinct prompts.
      frequency: the number of equally frequent prompts that have their order-2 diversity.
      counted: RKE of the prompts: how many of them count as different under their kernel.
    """

    distinct: int
    frequency: float
    counted: float

    @classmethod
    def of(cls, pairs: Pairs) -> RepeatedPrompts | None:
        """Those of pairs on one device; None unless each prompt comes twice on average."""
        kinds, of_row = pairs.prompt_kinds
        if pairs.layout is not None or not 1 < kinds <= min(pairs.n // 2, _LOOKED_AT):
            return None
        _, first = np.unique(of_row, return_index=True)
        shares = np.bincount(of_row, pairs.shares)
        kernel = pairs.kernels[1]
        prepared = kernel.prepare(pairs.arrays[1][first])
        gram = np.array(kernel.cross(prepared, prepared), np.float64)
        np.fill_diagonal(gram, 1.0)
        return cls(
            kinds, float(1 / np.sum(shares**2)), float(1 / (shares @ np.square(gram) @ shares))
        )

    @property
    def blurred(self) -> bool:
        """Whether different prompts count as alike, so that their outputs are mixed."""
        return self.counted < saturation.APART * self.frequency


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores with errors, and everything that was chosen on the way. Prints as a table.

    Attributes:
      n: the number of pairs, or of outputs.
      dtype: the name of the dtype of the computation.
      bandwidths: of outputs and prompts, with the rule in words.
      orders: the scores of each order.
      seed: of everything that is drawn.
      repeated_prompts: how many prompts the kernel tells apart; None unless prompts repeat.
      distinct_prompts: how many prompts differ; None without prompts, and on several devices.
      weighted: whether the rows have weights.
      unbiased: whether order 2 is shown without the pairs of a row with itself.
      elsewhere: the scores of order 2 at half and at twice the bandwidths, by the multiple; None
        where order 2 was not computed from all pairs of rows, and above 10,000 rows.
    """

    n: int
    dtype: str
    bandwidths: Mapping[str, RuledBandwidth]
    orders: tuple[ScoredOrder, ...]
    seed: int
    repeated_prompts: RepeatedPrompts | None = None
    distinct_prompts: int | None = None
    weighted: bool = False
    unbiased: bool = True
    elsewhere: Mapping[float, PerScore] | None = None

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What is nearly saturated, and what to do about it: see `saturation.advice`."""
        return saturation.advice(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores: one without prompts, three with them."""
        return PerScore._fields if "prompts" in self.bandwidths else ("vendi",)

    def order(self, order: float) -> ScoredOrder:
        """The scores of one order; KeyError where it was not computed."""
        for scored in self.orders:
            if scored.decomposition.order == order:
                return scored
        computed = [scored.decomposition.order for scored in self.orders]
        raise KeyError(f"order {order}: computed were {computed}.")

    def choices(self) -> dict[str, Any]:
        """What was chosen, as plain data."""
        return {
            "dtype": self.dtype,
            "bandwidths": {name: chosen._asdict() for name, chosen in self.bandwidths.items()},
            "seed": self.seed,
            "errors_cover": _render.ERRORS_COVER if any(o.errors_by for o in self.orders) else None,
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return {
            "n": self.n,
            **self.choices(),
            "distinct_prompts": self.distinct_prompts,
            "repeated_prompts": self.repeated_prompts and self.repeated_prompts._asdict(),
            "advice": [item.as_dict() for item in self.advice],
            "elsewhere": self.elsewhere
            and {
                f"{times:g}": {name: float(getattr(of, name)) for name in self.names}
                for times, of in self.elsewhere.items()
            },
            "scores": [scored.as_dict(self.names) for scored in self.orders],
        }

    def report(self, *, encoder: str | None = None) -> Report:
        """What a paper says of it: a paragraph, a table in LaTeX, and what to cite in BibTeX.

        Args:
          encoder: the name of the encoder of the embeddings; the paragraph asks for it where None.
        """
        return _paper.of_evaluation(self, encoder)

    def __str__(self) -> str:
        """The table, and below it what its numbers mean."""
        return _render.evaluation(self)


class Difference(NamedTuple):
    """How two models differ in one score.

    Attributes:
      first, second: the models.
      value: the score of the first minus that of the second, in effective numbers of modes.
      standard_error: of the value: of the sample and of the estimates, if any.
      p_value: of no difference, two-sided, by Student's t with one degree of freedom less than
        there are groups; 1 where the values differ by no more than rounding; NaN where there is no
        test (`Comparison.untested`, `Ranking.saturated`).
      adjusted: the same for all pairs of models at once, by Holm's step-down.
    """

    first: str
    second: str
    value: float
    standard_error: float
    p_value: float
    adjusted: float


@dataclasses.dataclass(frozen=True)
class Ranking:
    """All models by one score of one order.

    Attributes:
      score: vendi, conditional or information.
      order: the Renyi order.
      truncation: how many eigenvalues are kept, or None.
      values: the score of each model, the largest first; in the given order where saturated.
      standard_errors: of each model by itself; NaN where there are none.
      intervals: (low, high) of each model's estimate at 95%; None where exact.
      differences: of every pair of models, in the order of `values`.
      letters: models that share a letter cannot be told apart at the level; empty where
        differences are not tested.
      bandwidth_errors: as `ScoredOrder`, of each model.
      saturated: the limit that all values have reached; the models are neither ranked nor tested.
      unbiased: whether the values are unbiased scores, whose differences are tested on the scale of
        the similarity (`Population`).
      population: (low, high) of unbiased scores, as `Population.intervals`.
      plug_in: the score of each model's sample as the papers have it.
    """

    score: str
    order: float
    truncation: int | None
    values: dict[str, float]
    standard_errors: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None
    differences: tuple[Difference, ...]
    letters: dict[str, str]
    bandwidth_errors: dict[str, float] | None = None
    saturated: Limit | None = None
    unbiased: bool = False
    population: dict[str, tuple[float, float]] | None = None
    plug_in: dict[str, float] | None = None

    @property
    def tested(self) -> bool:
        """Whether differences were tested, so that models have letters."""
        return all(self.letters.values())

    @property
    def name(self) -> str:
        """The score in words: 'Conditional-Vendi', 'RKE', 'Vendi, t = 50'."""
        return _render.score_name(self.score, self.order, self.truncation)

    def difference(self, first: str, second: str) -> Difference:
        """The difference of two models, in that order; KeyError where they were not compared."""
        for found in self.differences:
            if (found.first, found.second) == (first, second):
                return found
            if (found.second, found.first) == (first, second):
                return found._replace(first=first, second=second, value=-found.value)
        raise KeyError(f"{first!r} and {second!r} were not compared; there are {[*self.values]}.")

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        differences = [difference._asdict() for difference in self.differences]
        population = self.population and {
            name: [_order(end) for end in ends] for name, ends in self.population.items()
        }
        own = {"order": _order(self.order), "differences": differences, "population": population}
        return vars(self) | own


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models side by side. Prints as tables.

    Attributes:
      evaluations: the scores of each model by its name, all under the same bandwidths.
      rankings: one for each order and score.
      matched: how outputs of different models belong together: 'rows', 'prompts', 'labels' or
        'none'.
      level: the family-wise rate of false differences that the letters allow.
      untested: why differences are not tested, or None where all are.
      between: how many models are different; None of one model, and where order 2 is not computed
        from all pairs of rows.
      profile: order 2 over a ladder of bandwidths; None where it is not computed (`compare`).
      pairs: the data of each model, with rows of weight zero; for `report_html`.
      at: the numbers of prompts and answers at which models of other designs are scored, where
        scores grow with them; None where all have one design, or all scores are unbiased.
    """

    evaluations: dict[str, Evaluation]
    rankings: tuple[Ranking, ...]
    matched: str
    level: float
    untested: str | None = None
    between: Between | None = None
    profile: Profile | None = None
    pairs: Mapping[str, Pairs] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    at: Design | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order in which they were given."""
        return tuple(self.evaluations)

    @property
    def n(self) -> dict[str, int]:
        """The number of outputs of each model."""
        return {name: evaluation.n for name, evaluation in self.evaluations.items()}

    @property
    def first(self) -> Evaluation:
        """That of the first model: what was chosen is the same for all."""
        return next(iter(self.evaluations.values()))

    @property
    def bandwidths(self) -> Mapping[str, RuledBandwidth]:
        """As `Evaluation`, of all models."""
        return self.first.bandwidths

    @property
    def repeated_prompts(self) -> dict[str, RepeatedPrompts] | None:
        """By model, how many prompts the kernel tells apart; None where no prompts repeat."""
        repeated = {name: e.repeated_prompts for name, e in self.evaluations.items()}
        return {name: found for name, found in repeated.items() if found is not None} or None

    @property
    def advice(self) -> tuple[Advice, ...]:
        """As `Evaluation`, with the evidence of all models."""
        return saturation.merged({name: e.advice for name, e in self.evaluations.items()})

    def ranking(self, score: str, order: float) -> Ranking:
        """The models by one score; KeyError where it was not computed."""
        for ranking in self.rankings:
            if (ranking.score, ranking.order) == (score, order):
                return ranking
        computed = ", ".join(f"({r.score!r}, {r.order:g})" for r in self.rankings)
        raise KeyError(f"({score!r}, {order:g}): computed were {computed}.")

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        repeated = self.repeated_prompts
        return {
            **self.first.choices(),
            "n": self.n,
            "matched": self.matched,
            "errors_by": [o.errors_by and o.errors_by._asdict() for o in self.first.orders],
            "level": self.level,
            "untested": self.untested,
            "at": self.at and self.at._asdict(),
            "distinct_prompts": {name: e.distinct_prompts for name, e in self.evaluations.items()},
            "repeated_prompts": repeated and {k: r._asdict() for k, r in repeated.items()},
            "advice": [item.as_dict() for item in self.advice],
            "rankings": [ranking.as_dict() for ranking in self.rankings],
            "between": self.between and self.between.as_dict(),
            "profile": self.profile and self.profile.as_dict(),
        }

    def markdown(self) -> str:
        """Both tables and their notes in Markdown."""
        return _render.comparison_in_markdown(self)

    def comma_separated(self) -> str:
        """CSV: a line for each score and model, each difference and each overlap, unrounded."""
        return _render.comparison_in_csv(self)

    def report(self, *, encoder: str | None = None) -> Report:
        """As `Evaluation.report`, of all models."""
        return _paper.of_comparison(self, encoder)

    def html(
        self,
        *,
        outputs: Mapping[str, Sequence[str | os.PathLike[str]]] | None = None,
        prompts: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        encoder: str | None = None,
        command: str | None = None,
    ) -> str:
        """What `report_html` writes, as a text."""
        from condvendi_jax.inference import _behind  # It imports what imports this module.
        from condvendi_jax.report import _html

        sizes = {name: pairs.n for name, pairs in self.pairs.items()}
        return _html.page(
            self,
            outputs=None if outputs is None else _behind.check_texts(outputs, sizes),
            prompts=None if prompts is None else _behind.check_prompts(prompts, self.pairs),
            behind=_behind.of_pairs(self.pairs),
            encoder=encoder,
            command=command,
        )

    def report_html(
        self,
        path: str | os.PathLike[str],
        *,
        outputs: Mapping[str, Sequence[str | os.PathLike[str]]] | None = None,
        prompts: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        encoder: str | None = None,
        command: str | None = None,
    ) -> None:
        """Writes one page of HTML, which needs no network: the scores and the outputs behind them.

        Args:
          path: the file, which is replaced once the page is complete.
          outputs: the texts of each model's outputs, or the paths of its pictures, by the name of
            the model and in the order of its embeddings, `[n]`. A string is a text; a picture is a
            `pathlib.Path`. Where None, the page shows rows by their numbers.
          prompts: the texts of the prompts in the order of their embeddings: `[n]` that all models
            share, or those of each model by name.
          encoder: the name of the encoder of the embeddings.
          command: the command that was called, to be shown.

        Raises:
          TypeError, ValueError: the texts are not of these models or not as many as the rows.
          OSError: the file cannot be written, or a picture cannot be read.
        """
        from condvendi_jax import files  # The command's way to write a file whole.

        files.check_writable(path)
        page = self.html(outputs=outputs, prompts=prompts, encoder=encoder, command=command)
        with files.atomic_writer(path) as stream:
            stream.write(files.marked(page).encode())

    def __str__(self) -> str:
        """The tables, and below them what their numbers mean."""
        return _render.comparison(self)
