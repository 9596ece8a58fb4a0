"""Scores of order 2 without the sample size in them, with errors and intervals of the population.

The scores are functions of mean similarities, squared kernels over pairs of different rows, of
which every one is unbiased (docs/proofs.md). Errors and intervals are made on the scale of the
similarity, where a mean over prompts is nearly normal, and are inverted at the end.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from condvendi_jax.data.kernels import Indicator
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import saturation
from condvendi_jax.inference.errors import Groups, unit_influences
from condvendi_jax.spectra import order_two
from condvendi_jax.spectra.order_two import Answers, Inside, Leaving, PairMeans, PairSums
from condvendi_jax.statistics import components, intervals
from condvendi_jax.statistics.influences import root_mean_square

# Scores that are one over a similarity; information is a ratio of similarities itself.
INVERTED = (True, True, False)


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Unbiased scores of order 2: of the population, not of the sample.

    Where most rows answer a prompt that has several answers, of these prompts with any number of
    answers to each; elsewhere of any number of rows. Errors and intervals are over other prompts
    and answers to them. `at` gives the scores of other designs.

    Attributes:
      answers: which rows count, and which answer the same prompt.
      sums, inside: `order_two.row_sums`, `[terms, n]`, and `Answers.inside`.
      units: the groups of rows that count as independent; None where there are no errors.
      leaving, among: these groups, and `order_two.sums_inside` them.
      own: the share of the pairs of a prompt with itself; where no prompt repeats, of a row. None:
        as the sample has it, for the papers' scores.
      same: of these pairs, the share of an answer with itself: 1 / k of k answers to each prompt.
      withheld: why there are no errors, in words.
    """

    answers: Answers
    sums: np.ndarray
    inside: Inside
    units: Groups | None = None
    leaving: Sequence[Leaving] = ()
    among: Sequence[np.ndarray] = ()
    own: float | None = 0.0
    same: float = 0.0
    withheld: str | None = None

    @property
    def repeated(self) -> bool:
        """Whether the scores are those of these prompts, with any number of answers."""
        return self.answers.kind is not None

    @property
    def of_prompts(self) -> float:
        """The share of the pairs of a prompt with itself, 0 where no prompt repeats."""
        return self._means[0].own if self.repeated else 0.0

    @property
    def freedom(self) -> int:
        """The number of independent units that count, less one; 0 where there are no errors."""
        if self.units is None:
            return 0
        return self.units.independent(self.answers.points) - 1

    def at(self, own: float | None, same: float) -> Population:
        """The scores that other numbers of prompts and of answers show on average.

        The papers' scores of P prompts and k answers to each have own = 1 / P and same = 1 / k, and
        those of n rows without a repeated prompt own = 1 / n. If no pairs are of a prompt with
        itself, own = 0, the prompts are any number of further ones.
        """
        other = dataclasses.replace(self, own=own, same=same)
        other.__dict__["_means"] = self._means  # They are the same at every design.
        return other

    @functools.cached_property
    def _means(self) -> tuple[PairMeans, PairMeans]:
        return order_two.pair_means(self.sums, self.inside, self.answers, self.leaving, self.among)

    def _similarities(self, means: PairMeans) -> np.ndarray:
        """`[scores, ...]` of means `[terms, ...]`."""
        norms = means.norms(self.own, self.same)
        return order_two.similarities(norms.reshape(len(norms), -1)).reshape(norms.shape)

    @functools.cached_property
    def limits(self) -> saturation.Nearly:
        """Whether nearly all rows that count, or pairs, are different, or alike, `[scores]`."""
        points = self.answers.points
        terms = -np.log((self.sums + points.shares) @ points.shares)
        return saturation.of_entropies(terms, saturation.largest_score(points, Entropy(order=2)))

    @functools.cached_property
    def similarities(self) -> PerScore:
        """One over vendi and over conditional, and information."""
        return _per_score(self._similarities(self._means[0]).tolist(), 1.0)

    @functools.cached_property
    def values(self) -> PerScore:
        """The scores, in effective numbers of modes; infinite where no two rows are alike."""
        each = zip(self.similarities, INVERTED, strict=True)
        return PerScore(*(_inverse(of) if inverted else of for of, inverted in each))

    @functools.cached_property
    def given(self) -> tuple[float, float] | None:
        """How many of the k given answers to a prompt differ, each prompt once; and the error.

        One over the mean over prompts of 1 / k + (1 - 1 / k) U, the similarity of two draws of the
        given answers. None where prompts do not repeat, or count as similar.
        """
        kind, points, inside = self.answers.kind, self.answers.points, self.inside.prompt
        if inside is None or kind is None or not isinstance(points.kernels[-1], Indicator):
            return None
        prompts = np.square(np.bincount(kind, points.shares))
        same = np.bincount(kind, points.shares * (inside[-1] + points.shares)) / prompts
        prompts /= prompts.sum()
        mean, error = float(prompts @ same), math.nan
        if self.units is not None:
            unit, count = np.zeros(prompts.size, int), self.freedom + 1
            unit[kind] = self.units.membership
            losses = np.bincount(unit, prompts * (same - mean))
            error = math.sqrt(count / (count - 1) * np.sum(np.square(losses)))
        return 1 / mean, error / mean**2

    @functools.cached_property
    def _deletions(self) -> tuple[np.ndarray, np.ndarray]:
        """The losses of similarities without each unit, `[scores, G]`, and the units' shares."""
        means, without = self._means
        lost = order_two.weight_of(self.leaving)
        whole = self._similarities(means)[:, None]
        return np.where(lost > 0, whole - self._similarities(without), 0), lost

    @functools.cached_property
    def influences(self) -> PerScore | None:
        """The influence of each unit on the similarities, `[1, G]`."""
        if self.units is None:
            return None
        changes, lost = self._deletions
        scaled = changes * (1 - lost) / np.where(lost > 0, lost, 1)
        of = self.answers.points, self.units
        influences = [unit_influences(each[None], *of, deleted=True) for each in scaled]
        return _per_score(influences, np.zeros_like(influences[0]))

    @functools.cached_property
    def standard_errors(self) -> PerScore | None:
        """Over other prompts and answers to them; over other rows where no prompt repeats."""
        if self.influences is None:
            return None
        errors = [float(root_mean_square(of[0])) for of in self.influences]  # Of similarities.
        each = zip(errors, self.values, INVERTED, strict=True)
        return PerScore(*(error * (value**2 if inv else 1.0) for error, value, inv in each))

    @functools.cached_property
    def intervals(self) -> PerScore | None:
        """(low, high) at 95%, for the scores of the population, inside what is possible.

        RKE and Conditional-RKE are at least 1, and information of repeated prompts at most their
        number. Where nearly all rows, or answers to a prompt, count as different, so few pairs are
        alike that n rows give no upper end: high is infinite, and nothing is known of information.
        """
        if self.influences is None or self.units is None:
            return None
        (changes, lost), ends_of = self._deletions, []
        rows = 1 / np.sum(self.answers.points.shares**2 / self.answers.copies)
        mean, of_mean, ends = self.similarities.conditional, self.influences.conditional, None
        if self.repeated:  # A mean over prompts, not over pairs of them.
            error, shares = root_mean_square(of_mean[0]), lost**2 / np.sum(lost**2)
            ends = intervals.prompt_mean(mean, error, changes[1], shares)
        prompts = self._means[0].norms(self.own, self.same)[1:2].sum()  # Of one over their number.
        for index, inverted in enumerate(INVERTED[: len(changes)]):
            value, influence, slope = self.similarities[index], self.influences[index], 0.0
            if np.isnan(influence).any():  # Not known without a unit that has all others' pairs.
                ends_of.append((1.0 if inverted else 0.0, math.inf))
                continue
            if ends is not None:  # Of the rest, to which the mean over prompts is added.
                slope = np.sum(influence * of_mean) / max(np.sum(np.square(of_mean)), 1e-300)
                slope = prompts if self.limits.largest[1] else slope  # Not by a kernel's tail.
            error = root_mean_square((influence - slope * of_mean)[0])
            if inverted:
                of = intervals.row_mean(value, error, min(self.freedom, rows - 1), rows)
            else:
                of = intervals.ratio(value, error, self.freedom)
            if ends is not None and index == 1:
                of = ends
            elif ends is not None:
                of = intervals.joined(value, of, slope, mean, ends, not inverted)
            most = 1.0 if inverted else 1 / prompts if self.repeated else math.inf
            if self.limits.largest[index]:
                of = 0.0, of[1] if inverted else most
            of = max(of[0], 0.0), min(of[1], most)
            ends_of.append((_inverse(of[1]), _inverse(of[0])) if inverted else of)
        return _per_score(ends_of, (1.0, 1.0))

    @functools.cached_property
    def fixed_error(self) -> float | None:
        """The error of the conditional score over other answers to these very prompts.

        None where it is not known: where prompts do not repeat or count as similar, answers to a
        prompt have unequal weights, or one has fewer than four answers.
        """
        answers, kernel = self.answers, self.answers.points.kernels[-1]
        if self.units is None or self.inside.prompt is None or answers.kind is None:
            return None
        if not isinstance(kernel, Indicator):
            return None
        parts = components_of(answers, self.inside)
        if parts is None or parts.answers.min() < components.FEWEST_ANSWERS:
            return None
        shares = np.square(np.bincount(answers.kind, answers.points.shares))
        return parts.error(shares / shares.sum()) * self.values.conditional**2

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain numbers of the named scores; None for an end that is open."""

        def plain(of: PerScore | None) -> dict[str, Any] | None:
            return of and {name: _finite(getattr(of, name)) for name in names}

        return {
            "of": "these prompts, any number of answers" if self.repeated else "any number of rows",
            **(plain(self.values) or {}),
            "standard_errors": plain(self.standard_errors),
            "intervals": plain(self.intervals),
            "standard_error_of_fixed_prompts": self.fixed_error and _finite(self.fixed_error),
            "prompts_left_out": self.answers.left_out,
        }


def of_pairs(pairs: Pairs, units: Groups | None, pair_sums: PairSums | None = None) -> Population:
    """The unbiased scores of pairs, with errors where there are `units`.

    `pair_sums` are those of these pairs, if they are known.
    """
    answers = Answers.of(pairs)
    units, leaving = _leaving(answers, units)
    if pair_sums is None or answers.points is not pairs:
        pair_sums = PairSums.of(answers.points, leaving)
    inside = answers.inside(order_two.sums_inside)
    return _checked(answers, pair_sums.rows, inside, units, leaving, pair_sums.inside)


def of_each(
    answers: Answers,
    units: Groups | None,
    sums: np.ndarray,
    inside: Inside,
    inside_of: Callable[[Leaving], np.ndarray],
) -> list[Population]:
    """The populations of rows under several kernels, from sums `[kernels, terms, n]`."""
    units, leaving = _leaving(answers, units)
    among, populations = [inside_of(of) for of in leaving], []
    for k in range(len(sums)):
        within = Inside(*(None if sums is None else sums[k] for sums in inside))
        groups = [of[k] for of in among]
        populations.append(_checked(answers, sums[k], within, units, leaving, groups))
    return populations


def _leaving(answers: Answers, units: Groups | None) -> tuple[Groups | None, list[Leaving]]:
    """The units of the rows that count, and the rows of each unit."""
    if units is None:
        return None, []
    units = units._replace(membership=units.membership[answers.rows], of_all=units.count)
    return units, order_two.leaving_of(answers.points, units.labels, units.count)


def _checked(answers: Answers, *of: Any) -> Population:
    """Of these prompts, and without errors where units split the answers to a prompt."""
    scores = Population(answers, *of)
    units, kind = scores.units, answers.kind
    if units is not None and kind is not None and splits(units.membership, kind):
        scores = dataclasses.replace(scores, units=None, withheld=SPLIT)
    elif units is not None and scores.freedom < 1:
        scores = dataclasses.replace(scores, units=None, withheld=_ONE_UNIT)
    return scores.at(scores.of_prompts, 0.0)


_ONE_UNIT = "all rows that count, of prompts with several answers, are in one group"
SPLIT = "the labels of the groups split the answers to a prompt"


def splits(groups: np.ndarray, kind: np.ndarray) -> bool:
    """Whether a group has a part of the answers to a prompt."""
    parts = np.unique([kind, groups], axis=1)[0]
    return np.unique(parts).size < parts.size


def _per_score(values: Sequence[Any], information: Any) -> PerScore:
    """Of outputs alone, `values` are of vendi: all outputs then answer the same prompt."""
    return PerScore(*values) if len(values) > 1 else PerScore(values[0], values[0], information)


def _inverse(value: float) -> float:
    return math.inf if value < 1e-12 else 1 / value  # Smaller ones are rounding.


def _finite(value: Any) -> Any:
    """For JSON, which has no infinity."""
    if isinstance(value, tuple):
        return [_finite(end) for end in value]
    return None if math.isinf(value) else float(value)


def components_of(answers: Answers, inside: Inside) -> components.Components | None:
    """The components of each prompt from sums with its other answers.

    None where the answers to a prompt have unequal weights, or come in batches.
    """
    kind, points, copies = answers.kind, answers.points, answers.copies
    assert kind is not None and inside.prompt is not None
    k = np.bincount(kind, copies)
    one = points.shares / copies
    equal = np.allclose(one, (np.bincount(kind, points.shares) / k)[kind], atol=0)
    if not equal or points.batches is not None:
        return None
    twice = Pairs.trusted(points.arrays[:1] * 2, points.kernels[:1] * 2, n=points.n)
    twice.weights = points.weights
    squares: Any = answers._replace(points=twice).inside(order_two.sums_inside).prompt
    # Of each answer with the others; copies are alike.
    return components.of_sums(
        inside.prompt[0] / one + copies - 1, squares[2] / one + copies - 1, copies, kind, k.size
    )
