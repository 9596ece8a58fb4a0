"""The prompts that models share, and scores of any order at one design, with which they grow."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from condvendi_jax.data.pairs import Pairs
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.entropies import Decomposition, Entropy, PerScore
from condvendi_jax.inference import errors as errors_of
from condvendi_jax.inference.errors import Groups
from condvendi_jax.inference.population import Population
from condvendi_jax.results.comparison import Design, SharedPrompts
from condvendi_jax.spectra import computation, order_two
from condvendi_jax.spectra.methods import Method
from condvendi_jax.statistics import reasons
from condvendi_jax.statistics.influences import Error


class Rows(NamedTuple):
    """The prompt of each row of several models, and which prompts count."""

    models: Mapping[str, Pairs]
    prompts: dict[str, np.ndarray]  # Of each model, the number of the prompt of each row.
    counted: dict[str, np.ndarray]  # Whether the prompt counts in the model, `[prompts]`.

    @classmethod
    def of(cls, models: Mapping[str, Pairs]) -> Self:
        """Where prompts repeat, those count to which the model has several answers."""
        every = [*models.values()]
        count, prompts = prompts_by_model(every)
        model = np.repeat(np.arange(len(every)), [pairs.n for pairs in every])
        draws = [pairs.draws for pairs in every]
        answers = [np.bincount(*rows, count) for rows in zip(prompts, draws, strict=True)]
        rows = np.concatenate(prompts), np.concatenate(draws), model
        single = order_two.single_answers(*rows, exact=every[0].kernels[-1].compares_equality)
        counted = np.array(answers) > (0 if single is None else 1.5)
        return cls(models, *(dict(zip(models, part, strict=True)) for part in (prompts, counted)))

    def shared(self, models: Sequence[str]) -> np.ndarray:
        """Whether all of these models have the prompt, `[prompts]`."""
        return np.all([self.counted[name] for name in models], axis=0)

    def chosen(self, models: Sequence[str]) -> dict[str, np.ndarray]:
        """The rows of these models whose prompt they share."""
        shared = self.shared(models)
        return {name: np.flatnonzero(shared[self.prompts[name]]) for name in models}

    def restricted(self, models: Sequence[str]) -> dict[str, Pairs]:
        """These models on the prompts that they share."""
        return {name: self.models[name].rows(rows) for name, rows in self.chosen(models).items()}

    def together(self, shared: SharedPrompts | None) -> Mapping[str, Pairs]:
        """All models on the prompts that they share; all rows where these are too few."""
        return self.models if shared is None or shared.apart else self.restricted([*self.models])

    def numbers(self) -> SharedPrompts | None:
        """How many prompts models share; None where all have the same ones."""
        counts = {name: int(counted.sum()) for name, counted in self.counted.items()}
        of_all = int(self.shared([*counts]).sum())
        if {*counts.values()} == {of_all}:
            return None
        pairs = itertools.combinations(counts, 2)
        return SharedPrompts(counts, of_all, {pair: int(self.shared(pair).sum()) for pair in pairs})


def design_of(pairs: Pairs) -> Design | None:
    """The design of a model, with its smallest number of answers; None of unequal weights."""
    if pairs.copies is None and not np.allclose(pairs.shares, 1 / pairs.n, rtol=1e-5, atol=0):
        return None
    rows = _rows_by_prompt(pairs)
    return Design(len(rows), min(map(len, rows)))


class Common(NamedTuple):
    """The design that all models have, because scores grow with prompts and answers."""

    design: Design | None  # The smallest common one, where designs differ.
    reason: reasons.Reason | None  # Why scores that grow cannot be compared.

    @classmethod
    def of(cls, models: Mapping[str, Pairs]) -> Self:
        """The common design of models."""
        count, prompts = prompts_by_model([*models.values()])
        parts = zip(*map(_design, models.values(), prompts, [count] * len(models)), strict=True)
        pairs = ((first, other) for first, *others in parts for other in others)
        if all(a.size == b.size and np.allclose(a, b, rtol=1e-5, atol=0) for a, b in pairs):
            return cls(None, None)  # They are equal up to rounding.
        known = [design for design in map(design_of, models.values()) if design is not None]
        if len(known) == len(models):
            return cls(Design(*map(min, *known)), None)
        return cls(None, reasons.DESIGNS)

    def shares(
        self, populations: Iterable[Population | order_two.Answers], *, unbiased: bool
    ) -> tuple[float, float]:
        """The shares of pairs of a prompt and of an answer with itself at which models are scored.

        Unbiased: of the fewest prompts, or of any number where those of some model do not repeat.
        """
        if unbiased or self.design is None:
            shares = [population.of_prompts for population in populations]
            return (max(shares) if min(shares) > 0 else 0.0), 0.0
        return 1 / self.design.prompts, 1 / self.design.answers


def _design(pairs: Pairs, kinds: np.ndarray, count: int) -> list[np.ndarray]:
    """The numbers of answers to each prompt, by its number, the shares of prompts and of rows."""
    rows = pairs.shares
    if pairs.copies is not None or np.allclose(rows, rows[0], rtol=1e-5, atol=0):
        rows = np.full(1, 1 / pairs.total)
    of_prompts = [np.bincount(kinds, weights, count) for weights in (pairs.copies, pairs.shares)]
    return [*(sums[of_prompts[0] > 0] for sums in of_prompts), np.sort(rows)]


def _rows_by_prompt(pairs: Pairs) -> list[np.ndarray]:
    """The rows of each prompt, copies repeated; every row by itself where most are single."""
    answers = order_two.Answers.of(pairs)
    rows = np.repeat(answers.rows, answers.copies)
    if answers.kind is None:
        return list(rows[:, None])
    kinds = np.repeat(answers.kind, answers.copies)
    return np.split(rows[np.argsort(kinds, kind="stable")], np.cumsum(np.bincount(kinds))[:-1])


class AtDesign(NamedTuple):
    """The scores of one model at the design at which models are compared."""

    scores: Any  # Each field is a `PerScore`, or has the one score that is compared.
    errors: Any = None  # An `Error` for each score.
    intervals: Any = None  # Of unbiased scores, or of estimated ones.


def at_design(
    pairs: Pairs, entropy: Entropy, method: Method, units: Groups | None, at: Design, seed: int = 0
) -> AtDesign:
    """The mean of each score over subsets of some prompts and of some answers to each.

    Of 4 random subsets or, up to 64, as many as use every answer twice. The influence of a unit is
    the mean over the subsets, so that errors hold their noise. ValueError for a smaller model.
    """
    most, rows = design_of(pairs), _rows_by_prompt(pairs)
    if most is None or not (1 <= at.prompts <= most.prompts and 1 <= at.answers <= most.answers):
        raise ValueError(f"at: expected a design of at most {most}, received {at}.")
    near, chosen, errors = pairs.gathered(), _subsets(rows, at, seed), None
    if units is None:
        parts = [near.sample(rows) for rows in chosen]
        scored = [computation.score(part, entropy.fitted(part.n), method) for part in parts]
    else:
        every = np.concatenate(rows)
        total = every.size if units.units == "rows" else np.unique(units.membership[every]).size
        results = [_with_influences(near, rows, entropy, method, units, total) for rows in chosen]
        scored, of_subsets = zip(*results, strict=True)
    numbers = [[whole.scores, *zip(*whole.intervals, strict=True)] for whole in scored]
    scores, *ends = np.mean(np.array(numbers, np.float64), axis=0).tolist()
    if units is not None:
        replicates = min(subset.shape[1] for subset in of_subsets)
        influences = np.mean([subset[:, :replicates] for subset in of_subsets], axis=0)
        of_units: Any = {"units": units.units, "freedom": units.independent(pairs) - 1}
        errors = PerScore(*map(functools.partial(Error, **of_units), scores, influences))
    estimated = PerScore(*zip(*ends, strict=True)) if scored[0].estimation else None
    return AtDesign(PerScore(*scores), errors, estimated)


def _with_influences(
    pairs: Pairs, rows: np.ndarray, entropy: Entropy, method: Method, units: Groups, total: int
) -> tuple[Decomposition, np.ndarray]:
    """The scores of some rows, and the influences `[3, replicates, G]`; NaN where too few."""
    points, entropy = pairs.sample(rows), entropy.fitted(rows.size)
    local = Groups(units.membership[rows], units.units, units.count)
    by_row, reason = errors_of.row_influences(points, entropy, method, local.leaving(points)), None
    if not by_row.deleted:
        reason = errors_of.too_few(points, local, entropy)
        reason = reason or errors_of.too_many_modes(points, by_row, local)
    influences = np.array(errors_of.influences_of_units(by_row, points, local))
    if reason is not None and local.present <= errors_of.FEWEST_SPECTRAL_GROUPS:
        deleted = errors_of.delete_groups(points, entropy, local, method=method)
        influences = np.array(deleted.influences)
    elif reason is not None:
        influences = np.full_like(influences, np.nan)
    # Relative to the mean of m units, squares are too small by (m - 1) / m; of all, by less.
    count = local.independent(points)
    influences *= math.sqrt(count / max(count - 1, 1) * (total - 1) / total)
    if units.units == "rows" and pairs.copies is not None:  # Row i stands for copies_i units.
        influences[..., units.membership] /= np.sqrt(pairs.copies)
    return by_row.decomposition, influences


def _subsets(rows: Sequence[np.ndarray], at: Design, seed: int) -> np.ndarray:
    """Different random subsets of a design, `[subsets, rows]`."""
    most = max(4, min(64, math.ceil(2 * sum(map(len, rows)) / math.prod(at))))
    of_prompts, of_answers = map(np.random.default_rng, ([seed, 0], [seed, 1]))
    windows = _windows(np.arange(len(rows)), at.prompts, of_prompts)
    answers = [_windows(items, at.answers, of_answers) for items in rows]
    some = (np.sort(next(windows)) for _ in range(most))
    chosen = [np.concatenate([next(answers[prompt]) for prompt in prompts]) for prompts in some]
    return np.unique(np.sort(chosen, axis=1), axis=0)


def _windows(items: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Sets of items that are next to each other on a random circle; after each round, another."""
    while True:
        circle = rng.permutation(items)
        for start in range(0, math.lcm(size, items.size), size):
            yield np.take(circle, np.arange(start, start + size), mode="wrap")


def slope(
    pairs: Pairs, entropy: Entropy, method: Method, scores: PerScore, *, seed: int = 0
) -> PerScore | None:
    """By how much scores grew with the last doubling, from random halves of each prompt's answers.

    Near 0 where a score has settled. None where there is no design or one row.
    """
    rng, copies = np.random.default_rng(seed), 1 if pairs.copies is None else pairs.copies
    rows = np.repeat(np.arange(pairs.n), copies)
    if design_of(pairs) is None or rows.size < 2:
        return None
    kinds = rng.permutation(pairs.n)[pairs.prompt_kinds[1][rows]]
    order = rows[np.lexsort((rng.random(rows.size), kinds))]  # Random within each prompt.
    halves = [order[::2], order[1::2]][: 1 if rows.size > 4096 else 2]
    parts = [pairs.sample(rows).prompts_once() for rows in halves]
    less = [computation.score(part, entropy.fitted(part.n), method).scores for part in parts]
    grown = np.array(scores, np.float64) - np.mean(np.array(less, np.float64), axis=0)
    return PerScore(*(grown / math.log2(rows.size / np.mean([*map(len, halves)]))).tolist())
