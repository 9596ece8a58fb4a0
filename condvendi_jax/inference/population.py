"""Scores of order 2 without the sample size in them, with errors and intervals of the population.

The scores are functions of mean similarities, squared kernels over pairs of different rows, each
of which is unbiased if answers are independent (`cv-order-2-designs` of docs/theory.md). Errors and
intervals are made where a mean over prompts is nearly normal, and are inverted at the end.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Entropy, PerScore
from condvendi_jax.inference import saturation
from condvendi_jax.inference.errors import Groups, leaves_one_prompt, unit_influences
from condvendi_jax.results.estimate import Estimate
from condvendi_jax.spectra import order_two, pair_sums
from condvendi_jax.spectra.order_two import Answers, Inside, PairMeans
from condvendi_jax.spectra.pair_sums import Leaving, PairSums
from condvendi_jax.statistics import intervals, reasons, shrinkage
from condvendi_jax.statistics.influences import Error, TwoWayError, root_mean_square
from condvendi_jax.statistics.intervals import LEAST, Ends

_NO_SHARE = 1e-100  # The share of the pairs of a prompt with itself, of prompts without end.
# Scores that are one over a similarity; information is a ratio of similarities itself.
INVERTED = ("vendi", "conditional")


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Unbiased scores of order 2: of the population, not of the sample.

    Where most rows answer a prompt that has several answers, of these prompts with any number of
    answers to each; elsewhere of any number of rows. `at` gives the scores of other designs.
    """

    answers: Answers  # Which rows count, and which answer the same prompt.
    sums: np.ndarray  # `pair_sums.row_sums`, `[terms, n]`.
    inside: Inside  # `Answers.inside`.
    units: Groups | None = None  # That count as independent; None where there are no errors.
    leaving: Sequence[Leaving] = ()  # The rows of these groups.
    among: Sequence[np.ndarray] = ()  # `pair_sums.sums_inside` them.
    share: float | None = 0.0  # See `at`; None for that of the sample, for the papers' scores.
    same: float = 0.0
    reason: reasons.Reason | None = None  # Why there are no errors.
    # Groups that split the answers to a prompt, such as by seed: the units are then the prompts,
    # and errors of the conditional score are over other prompts and other labels.
    labels: Groups | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that there are: of outputs alone, vendi."""
        return PerScore._fields if self.answers.points.paired else ("vendi",)

    @property
    def repeated(self) -> bool:
        """Whether the scores are those of these prompts, with any number of answers."""
        return self.answers.kind is not None

    @property
    def of_prompts(self) -> float:
        """The share of the pairs of a prompt with itself, 0 where no prompt repeats."""
        return self.answers.of_prompts

    @property
    def freedom(self) -> int:
        """The number of independent units that count, less one; 0 where there are no errors."""
        if self.units is None:
            return 0
        fewest = self.units.independent(self.answers.points)
        return (fewest if self.labels is None else min(fewest, self.labels.present)) - 1

    def at(self, share: float | None, same: float) -> Self:
        """The scores that other numbers of prompts and of answers show on average.

        `share` is that of the pairs of a prompt with itself, and of these `same` that of an answer
        with itself: 1 / P and 1 / k in the papers' scores of P prompts and k answers to each. Of n
        rows without a repeated prompt, share = 1 / n; of any number of further prompts, 0.
        """
        if share == 0 and self.repeated and self.answers.points.kernels[-1].compares_equality:
            share = _NO_SHARE  # Only answers to one prompt tell the conditional score.
        other = dataclasses.replace(self, share=share, same=same)
        other.__dict__["_means"] = self._means  # They are the same at every design.
        return other

    @functools.cached_property
    def _means(self) -> tuple[PairMeans, PairMeans]:
        return order_two.pair_means(self.sums, self.inside, self.answers, self.leaving, self.among)

    def _similarities(self, means: PairMeans) -> np.ndarray:
        """`[scores, ...]` of means `[terms, ...]`."""
        norms = means.norms(self.share, self.same)
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
        *means, information = self.similarities
        # Smaller similarities are rounding.
        vendi, conditional = (math.inf if mean < 1e-12 else 1 / mean for mean in means)
        return PerScore(vendi, conditional, information)

    @functools.cached_property
    def given(self) -> Estimate | None:
        """How many of the k given answers to a prompt differ, each prompt once, with its interval.

        One over the mean over prompts of 1 / k + (1 - 1 / k) U, with the ends of the unbiased score
        in place of U. None where prompts do not repeat, or count as similar.
        """
        kind, points, inside = self.answers.kind, self.answers.points, self.inside.prompt
        if inside is None or kind is None or not points.kernels[-1].compares_equality:
            return None
        prompts = np.square(np.bincount(kind, points.shares))
        same = np.bincount(kind, points.shares * (inside[-1] + points.shares)) / prompts
        alone = np.bincount(kind, np.square(points.shares)) / prompts  # 1 / k.
        prompts /= prompts.sum()
        mean, error, ends = float(prompts @ same), math.nan, None
        if self.units is not None:
            unit, count = np.zeros(prompts.size, int), self.units.independent(points)
            unit[kind] = self.units.membership
            losses = np.bincount(unit, prompts * (same - mean))
            error = math.sqrt(count / (count - 1) * np.sum(np.square(losses)))
        if self.errors and not (of_score := self.errors.conditional).reason:
            if self.labels is not None:  # Over other labels, too.
                error = (1 - prompts @ alone) * of_score.standard_error / of_score.value**2
            moved = 1 / np.array(of_score.interval()) - self.similarities.conditional
            means = mean + (1 - float(prompts @ alone)) * moved
            ends = tuple((1 / np.clip(means, float(alone.min()), 1.0)).tolist())
        return Estimate(1 / mean, error / mean**2, ends)

    @property
    def by_prompt(self) -> dict[str, tuple[int, float]]:
        """By the text of a prompt, its number of answers and the mean similarity of two.

        Empty where the conditional score is not one over the mean of these similarities.
        """
        points, kind = self.answers.points, self.answers.kind
        if kind is None or self.inside.prompt is None or points.prompt_ids is None:
            return {}
        apart = self.units is None or self.units.independent(points) == kind.max() + 1
        alike = np.ptp(shares := np.bincount(kind, points.shares)) < 1e-4 * shares.max()
        if not (points.kernels[-1].compares_equality and apart and alike) or self.labels:
            return {}
        numbers = points.prompt_numbers.items()
        texts = {number: label for (label, of_type), number in numbers if of_type == "str"}
        rows = np.unique(kind, return_index=True)[1]
        labels = [texts.get(number, "") for number in points.prompt_ids[rows].tolist()]
        counts = np.bincount(kind, self.answers.copies).astype(int).tolist()
        means = np.clip(order_two.within_each(self.answers, self.inside)[-1], 0, 1).tolist()
        known = zip(labels, zip(counts, means, strict=True), strict=True)
        return dict(known) if all(labels) else {}

    @functools.cached_property
    def _lost(self) -> np.ndarray:
        """The share of the rows that each unit has, `[G]`."""
        return pair_sums.weight_of(self.leaving)

    def _changes(self, whole: np.ndarray, without: np.ndarray) -> np.ndarray:
        """What numbers `[...]` lose without each unit, `[..., G]`."""
        return np.where(self._lost > 0, np.asarray(whole)[..., None] - without, 0)

    @functools.cached_property
    def _losses(self) -> np.ndarray:
        """What the similarities lose without each unit, `[scores, G]`."""
        return self._changes(*map(self._similarities, self._means))

    def _influences(self, changes: np.ndarray) -> np.ndarray:
        """The influences of units, `[G]`, from what a number loses without each."""
        assert self.units is not None
        scaled = changes * (1 - self._lost) / np.where(self._lost > 0, self._lost, 1)
        return unit_influences(scaled[None], self.answers.points, self.units, deleted=True)[0]

    @functools.cached_property
    def influences(self) -> PerScore | None:
        """The influence of each unit on the similarities, `[1, G]`."""
        if self.units is None:
            return None
        influences = [self._influences(of_score)[None] for of_score in self._losses]
        return _per_score(influences, np.zeros_like(influences[0]))

    @functools.cached_property
    def errors(self) -> PerScore | None:
        """The `Error` of each score, over other prompts and answers; over rows if none repeats."""
        if self.units is None:
            return None
        return _per_score([*map(self._error, self.names)], Error(1.0, np.zeros((1, 1))))

    @property
    def standard_errors(self) -> PerScore | None:
        """Over other prompts and answers to them; over other rows where no prompt repeats."""
        return self.errors and self.errors.map(lambda error: error.standard_error)

    @property
    def intervals(self) -> PerScore | None:
        """(low, high) at 95%, inside what is possible.

        Where nearly all rows, or answers to a prompt, count as different, so few pairs are alike
        that n rows give no upper end: high is infinite, and nothing is known of information.
        """
        return self.errors and self.errors.map(lambda error: error.interval())

    def _error(self, name: str) -> Error:
        assert self.units is not None
        influences, ends = getattr(self.influences, name), self._ends(name)
        reason, freedom = None, self.freedom
        if math.isnan(getattr(self.values, name)):
            reason = reasons.NO_PAIRS
        elif np.isnan(influences).any():
            one_left = leaves_one_prompt(self.answers.points.prompt_kinds[1], self.units)
            reason = reasons.ONE_PROMPT if one_left else reasons.ONE_HAS_PAIRS
        if self.repeated:  # Of as many units of equal shares, less one.
            freedom = max(1 / np.sum(self._shares**2) - 1, 1.0)
        value = getattr(self.similarities, name)
        error = Error(value, influences, self.units.units, freedom, reason, ends)
        if self.labels is not None:
            error = self._two_ways(error, name)
        return error.inverted() if name in INVERTED else error

    def _two_ways(self, error: Error, name: str) -> Error:
        """The error of the conditional score over prompts and labels; others are not known."""
        points, kind, inside = self.answers.points, self.answers.kind, self.inside
        drawn = points.kernels[-1].compares_equality and inside.batch is None
        if name != "conditional" or kind is None or inside.prompt is None or not drawn:
            unknown: Any = {"influences": np.full_like(error.influences, math.nan), "ends": None}
            return dataclasses.replace(error, **unknown, reason=reasons.SPLIT)
        assert self.labels is not None
        # Of each answer the mean with the others to its prompt, whose mean is that of the prompt.
        one, whole = points.shares / self.answers.copies, np.bincount(kind, points.shares)[kind]
        means = (inside.prompt[-1] + points.shares - one) / (whole - one)
        of_prompt = (np.bincount(kind, points.shares * means))[kind] / whole
        weights = whole * points.shares / np.sum(whole * points.shares)
        rows = weights * (2 * (means - of_prompt) + of_prompt - error.value)
        cells = np.unique([kind, self.labels.membership], axis=1, return_inverse=True)[1]
        parts = []
        for groups in (self.labels.membership, cells.reshape(-1)):
            sums = np.bincount(groups, rows)[np.bincount(groups) > 0]
            scale = sums.size / math.sqrt(max(sums.size - 1, 1))
            parts.append(Error(error.value, scale * sums[None], freedom=sums.size - 1))
        both = TwoWayError(**vars(error), labels=parts[0], cells=parts[1])
        spread = both.standard_error, self._losses[1], self._shares, parts[0].freedom
        ends = intervals.prompt_mean(error.value, *spread)
        ends = intervals.open_below(ends) if self.limits.largest[1] else ends
        return dataclasses.replace(both, ends=ends)

    def _ends(self, name: str) -> Ends:
        """The interval of a similarity at each level, inside what is possible."""
        prompts = self._means[0].norms(self.share, self.same)[1:2].sum()  # One over their number.
        many = not self.repeated or prompts <= _NO_SHARE
        most = 1.0 if name in INVERTED else math.inf if many else 1 / prompts
        if np.isnan(getattr(self.influences, name)).any():
            return lambda level: (np.zeros_like(level, float), np.full_like(level, most, float))
        of_prompts = PerScore(self._of_all_outputs, self._of_prompts, self._of_information)
        ends = getattr(of_prompts, name)() if self.repeated else self._of_rows(name)
        if self.limits.largest[self.names.index(name)]:
            ends = intervals.open_below(ends, None if name in INVERTED else most)
        return intervals.inside(ends, 0.0, most)

    def _of_rows(self, name: str) -> Ends:
        value = getattr(self.similarities, name)
        error = root_mean_square(getattr(self.influences, name)[0])
        if name not in INVERTED:
            return intervals.ratio(value, error, self.freedom)
        rows = 1 / np.sum(self.answers.points.shares**2 / self.answers.copies)
        return intervals.row_mean(value, error, min(self.freedom, rows - 1), rows)

    def _mean(self, ends: Callable[..., Ends], value: float, changes: np.ndarray) -> Ends:
        """The interval of a mean over prompts, or between them."""
        return ends(value, root_mean_square(self._influences(changes)), changes, self._shares)

    @property
    def _shares(self) -> np.ndarray:
        """The share of the pairs of a prompt with itself that each unit has."""
        return self._lost**2 / np.sum(self._lost**2)

    def _of_answers(self, place: str) -> tuple[float, np.ndarray]:
        """The mean similarity `within` or `between` prompts; what it loses without each unit."""
        mean, without = (getattr(means, place)[0] for means in self._means)
        return mean, self._changes(mean, without)

    def _of_prompts(self) -> Ends:
        return self._mean(intervals.prompt_mean, self.similarities.conditional, self._losses[1])

    def _of_all_outputs(self) -> Ends:
        """The interval of the similarity of two outputs: answers to one prompt, or to two."""
        within, changes = self._of_answers("within")
        between, of_between = self._of_answers("between")
        share = self._means[0].share if self.share is None else self.share
        shares, constant = (share * (1 - self.same), 1 - share), share * self.same
        one, two = map(self._influences, (changes, of_between))
        square = np.sum(one**2) * np.sum(two**2)
        # 1 is the worst, where one of them is 0 everywhere.
        correlation = float(np.sum(one * two) / math.sqrt(square)) if square > 0 else 1.0
        of_within = self._mean(intervals.prompt_mean, within, changes)
        ends = of_within, self._mean(intervals.between_mean, between, of_between)
        scaled = [*map(intervals.scaled, shares, ends)]
        values = shares[0] * within, shares[1] * between
        return intervals.shifted(constant, intervals.total(values, scaled, correlation))

    def _of_information(self) -> Ends:
        """Of information: it moves with the conditional similarity, and with what else is left."""
        (between, of_between), changes = self._of_answers("between"), self._losses[1]
        assert self.influences is not None
        outputs, conditional, value = self.similarities
        mean = self.influences.conditional[0]
        square = max(np.sum(mean**2), LEAST)
        slope = np.sum(self._influences(of_between) * mean) / square
        left = self._mean(intervals.between_mean, between, of_between - slope * changes)
        share = 1 - (self._means[0].share if self.share is None else self.share)
        # Of the outputs, of which a share of the pairs are of two prompts.
        moved = intervals.shifted(outputs - share * between, intervals.scaled(share, left))
        rest = intervals.scaled(value * outputs, intervals.of_reciprocal(moved))
        if not 0 < value < math.inf:
            return rest
        slope = np.sum(self.influences.information[0] * mean) / square * conditional / value
        return intervals.joined(value, rest, slope, conditional, self._of_prompts())

    @functools.cached_property
    def fixed_error(self) -> float | None:
        """The error of the conditional score over other answers to these very prompts.

        None where prompts do not repeat or count as similar, answers to a prompt have unequal
        weights, or one has fewer than four answers.
        """
        answers, kernel = self.answers, self.answers.points.kernels[-1]
        if self.units is None or self.inside.prompt is None or answers.kind is None:
            return None
        if self.labels is not None or not kernel.compares_equality:
            return None
        parts = components_of(answers, self.inside)
        if parts is None or parts.answers.min() < shrinkage.FEWEST_ANSWERS:
            return None
        shares = np.square(np.bincount(answers.kind, answers.points.shares))
        return parts.error(shares / shares.sum()) * self.values.conditional**2

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain numbers of the named scores; None for an end that is open."""

        def plain(scores: PerScore | None) -> dict[str, Any] | None:
            return scores and {name: _finite(getattr(scores, name)) for name in names}

        return {
            "of": "these prompts, any number of answers" if self.repeated else "any number of rows",
            **(plain(self.values) or {}),
            "standard_errors": plain(self.standard_errors),
            "intervals": plain(self.intervals),
            "standard_error_of_fixed_prompts": self.fixed_error and _finite(self.fixed_error),
            "prompts_left_out": self.answers.left_out,
        }


def of_pairs(pairs: Pairs, units: Groups | None, pair_sums: PairSums | None = None) -> Population:
    """The unbiased scores of pairs, with errors where there are `units`; by known `pair_sums`."""
    answers = Answers.of(pairs)
    units, leaving, labels = _leaving(answers, units)
    if pair_sums is None or answers.points is not pairs or labels is not None:
        pair_sums = PairSums.of(answers.points, leaving)
    inside = answers.inside()
    return _checked(labels, answers, pair_sums.rows, inside, units, leaving, pair_sums.inside)


def of_each(
    answers: Answers,
    units: Groups | None,
    sums: np.ndarray,
    inside: Inside,
    inside_of: Callable[[Leaving], np.ndarray],
) -> list[Population]:
    """The populations of rows under several kernels, from sums `[kernels, terms, n]`."""
    units, leaving, labels = _leaving(answers, units)
    among, populations = [inside_of(group) for group in leaving], []
    for k in range(len(sums)):  # Sums of single rows are of all kernels.
        within = Inside(*(x if x is None or x.ndim == 2 else x[k] for x in inside))
        groups = [part if part.ndim == 3 else part[k] for part in among]
        populations.append(_checked(labels, answers, sums[k], within, units, leaving, groups))
    return populations


def _leaving(
    answers: Answers, units: Groups | None
) -> tuple[Groups | None, list[Leaving], Groups | None]:
    """The units of the rows that count, the rows of each unit, and labels that split prompts."""
    if units is None:
        return None, [], None
    labels, kind = None, answers.kind
    units = units._replace(membership=units.membership[answers.rows], of_all=units.count)
    if kind is not None and splits(units.membership, kind):
        labels, units = units, Groups(kind, "rows of one prompt")
    return units, units.leaving(answers.points), labels


def _checked(labels: Groups | None, *parts: Any) -> Population:
    """Of these prompts; without errors where all rows are in one group."""
    scores = Population(*parts, labels=labels)
    if scores.units is not None and scores.freedom < 1:
        scores = dataclasses.replace(scores, units=None, labels=None, reason=reasons.ONE_UNIT)
    return scores.at(scores.of_prompts, 0.0)


def splits(groups: np.ndarray, kind: np.ndarray) -> bool:
    """Whether a group has a part of the answers to a prompt."""
    parts = np.unique([kind, groups], axis=1)[0]
    return np.unique(parts).size < parts.size


def _per_score(values: Sequence[Any], information: Any) -> PerScore:
    """Of outputs alone, `values` are of vendi: all outputs then answer the same prompt."""
    return PerScore(*values) if len(values) > 1 else PerScore(values[0], values[0], information)


def _finite(value: Any) -> Any:
    """For JSON, which has no infinity; None of an interval that is not known."""
    if isinstance(value, tuple):
        return None if math.isnan(value[0]) else [_finite(end) for end in value]
    return None if math.isinf(value) else float(value)


def components_of(answers: Answers, inside: Inside) -> shrinkage.Components | None:
    """The components of prompts from sums with other answers; None of unequal weights, batches."""
    kind, points, copies = answers.kind, answers.points, answers.copies
    assert kind is not None and inside.prompt is not None
    k = np.bincount(kind, copies)
    one = points.shares / copies
    equal = np.allclose(one, (np.bincount(kind, points.shares) / k)[kind], atol=0)
    if not equal or points.batches is not None:
        return None
    twice = points.arrays[:1] * 2, points.kernels[:1] * 2
    twice = Pairs.trusted(*twice, n=points.n, weights=points.weights)
    squares: Any = answers._replace(points=twice).inside().prompt
    return shrinkage.of_sums(  # Of each answer with the others; copies are alike.
        inside.prompt[0] / one + copies - 1, squares[2] / one + copies - 1, copies, kind, k.size
    )
