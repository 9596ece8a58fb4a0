"""Both sides of a statement over many trials, and the verdict that they support.

The verdict is computed here and nowhere else. What is false comes with two counterexamples, both
among the points that were evaluated: the smallest, and the clearest.
"""

import contextlib
import dataclasses
import enum
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from condvendi_jax.base.result import plain

Relation = Literal["==", "<=", "limit"]

# A bound is called vacuous when it exceeds what it bounds by this factor in every trial.
VACUOUS_FACTOR = 100.0
# The smallest counterexample is one whose violation exceeds this part of the larger side, so that
# rounding cannot explain it, wherever there is such a one.
_CLEAR = 0.01


class Verdict(enum.Enum):
    """What the evidence says about a statement."""

    HOLDS = "HOLDS"
    VACUOUS = "HOLDS (VACUOUS)"
    PREMISE_UNMET = "PREMISE UNMET"
    FALSE = "FALSE"


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much work an evidence function may spend.

    Attributes:
        name: 'quick' or 'full'.
        factor: the multiple of the quick number of trials.
    """

    name: str
    factor: int

    def trials(self, quick: int) -> int:
        """Number of trials under this budget, given the number for a quick run."""
        return quick * self.factor


QUICK = Budget("quick", 1)
BUDGETS = {budget.name: budget for budget in (QUICK, Budget("full", 10))}


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Both sides of a statement over many trials.

    Build one with `equal`, `at_most` or `limit`.

    Attributes:
        relation: how lhs and rhs are meant to stand to each other.
        lhs: left side; `[trials]`, or `[sequences, steps]` for 'limit'.
        rhs: right side, of the shape of lhs after broadcasting.
        premise_met: where the assumptions of the statement hold, one entry a trial (a sequence for
            'limit'). Other trials are not judged.
        tolerance: numerical allowance, relative to max(1, |lhs|, |rhs|); for 'limit' the distance
            that the last step must reach.
        parameters: what a counterexample reports: lists with an entry a trial (of any Python
            value: arrays, texts), arrays of the shape of lhs, or values that all trials share.
        cases: by kind of population ('one component'), whether a trial is of it, one entry a trial.
        size: number of points (or whatever makes a counterexample small), one entry a trial.
        measured: numbers for the register, by their names, or a function that computes them.
    """

    relation: Relation
    lhs: np.ndarray
    rhs: np.ndarray
    premise_met: np.ndarray
    tolerance: float = 1e-10
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cases: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    size: Any = None
    measured: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )

    def kinds(self) -> Iterator[tuple[str, "Evidence"]]:
        """The cases and 'n = 2' of a parameter: the right side wrong at this kind, or at others.

        A bound is a hundredth of itself there, a value is off by a quarter and more.
        """
        kinds = {words: np.asarray(met, bool) for words, met in self.cases.items()}
        for name, values in self.parameters.items():
            if _one_each(values, self.lhs.shape) and np.shape(values[0]) == ():
                with contextlib.suppress(ValueError):  # Words.
                    numbers = np.asarray(values, float)
                    first = numbers[self.premise_met][0]
                    kinds[f"{name} = {first:g}"] = numbers == first
        if self.relation == "<=":
            wrong = np.where(self.rhs > 0, self.rhs / 100, 2 * self.rhs - 1)
        else:
            wrong = 1.25 * self.rhs + 1
        for (words, met), at in itertools.product(kinds.items(), (True, False)):
            rhs = np.where(_by_trial(met, self.rhs.ndim) == at, wrong, self.rhs)
            yield ("" if at else "not ") + words, dataclasses.replace(self, rhs=rhs)

    def same_as(self, other: "Evidence") -> bool:
        """Whether both have the same sides, but for rounding."""
        pairs = (self.lhs, other.lhs), (self.rhs, other.rhs)
        near = functools.partial(np.allclose, rtol=1e-9, atol=1e-12, equal_nan=True)
        return all(a.shape == b.shape and near(a, b) for a, b in pairs)

    def defined(self) -> "Evidence":
        """Without trials whose sides have no difference, as 0 / 0."""
        with np.errstate(invalid="ignore"):
            met = ~np.isnan(np.where(self.lhs == self.rhs, 0.0, self.lhs - self.rhs))
        met = met.all(axis=-1) if met.ndim > self.premise_met.ndim else met
        return dataclasses.replace(self, premise_met=self.premise_met & met)


def _evidence(
    relation: Relation, lhs: Any, rhs: Any, /, *, premise_met: Any = True, **fields: Any
) -> Evidence:
    lhs, rhs = np.atleast_1d(*np.broadcast_arrays(np.asarray(lhs, float), np.asarray(rhs, float)))
    rows = lhs.shape
    if relation == "limit":
        lhs, rhs = np.atleast_2d(lhs, rhs)
        rows = lhs.shape[:1]
    return Evidence(
        relation, lhs, rhs, np.broadcast_to(np.asarray(premise_met, bool), rows), **fields
    )


equal = functools.partial(_evidence, "==")
"""Evidence for an identity, trial by trial."""
at_most = functools.partial(_evidence, "<=")
"""Evidence for an inequality lhs <= rhs, trial by trial."""
limit = functools.partial(_evidence, "limit")
"""Evidence for values -> target along the last axis: its end must be within `tolerance`."""


def compared(relation: Literal["==", "<="], rows: Any, *names: str, **fields: Any) -> Evidence:
    """Evidence of rows: both sides, then what has these names: parameters, or 'size', 'met'."""
    lhs, rhs, *columns = [*map(list, zip(*rows, strict=True))] or [[] for _ in (0, 0, *names)]
    shown = dict(zip(names, columns, strict=True))
    own = {"premise_met": shown.pop("met", True), "size": shown.pop("size", shown.get("n"))}
    return _evidence(relation, lhs, rhs, **({"parameters": shown} | own | fields))


def _one_each(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether a parameter has an entry a trial."""
    if isinstance(value, list | tuple):
        return len(value) == shape[0]
    return isinstance(value, np.ndarray) and value.shape[: len(shape)] == shape


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A verdict with the numbers behind it.

    Attributes:
        verdict: computed from the evidence.
        detail: one line on what was measured.
        slack: how far the two sides are apart, in the closest trial: rhs - lhs for inequalities
            (negative: violated), largest |lhs - rhs| for identities and limits.
        looseness: smallest rhs / lhs over the trials (bounds only); `None` where it has no meaning.
        violations: number of trials (or sequences) against the statement.
        smallest: the first violating trial of least size whose violation is clear;
            `None` where nothing is violated or sizes are not given.
        clearest: the trial that violates the statement most.
    """

    verdict: Verdict
    detail: str
    slack: float = math.nan
    looseness: float | None = None
    violations: int = 0
    smallest: Mapping[str, Any] | None = None
    clearest: Mapping[str, Any] | None = None


def judge(evidence: Evidence) -> Judgement:
    """Compute the verdict that the evidence supports."""
    lhs, rhs, judged = evidence.lhs, evidence.rhs, evidence.premise_met
    if not judged.any():
        return Judgement(Verdict.PREMISE_UNMET, "no trial meets the premise")
    larger = np.maximum(np.abs(lhs), np.abs(rhs))
    scale = np.where(np.isfinite(larger), np.maximum(1.0, larger), 1.0)
    if evidence.relation == "limit":  # The last step of a sequence is judged.
        scale, judged = 1.0, judged[:, None] & (np.arange(lhs.shape[1]) == lhs.shape[1] - 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Equal infinities are no distance apart.
        gap, ratios = np.where(lhs == rhs, 0.0, rhs - lhs), rhs / lhs
    excess = -gap if evidence.relation == "<=" else np.abs(gap)
    # A NaN or an infinity on one side alone is a violation: the comparison is written to say so.
    wrong = judged & ~(excess <= evidence.tolerance * scale)
    looseness = None
    if evidence.relation == "<=":
        slack = float(np.min(gap[judged]))
        detail = f"{judged.sum()} comparisons, least margin {slack:.3g}"
        usable = judged & (lhs > 0) & (rhs >= 0) & ~np.isnan(ratios)
        looseness = float(np.min(ratios[usable])) if usable.any() else None
    else:
        slack = float(np.max(excess[judged]))
        count = f"{judged.sum()} comparisons, largest gap"
        if evidence.relation == "limit":
            count = f"{len(lhs)} sequences, last distance"
        detail = f"{count} {slack:.2g}"
    if not wrong.any():
        loose = looseness is not None and looseness >= VACUOUS_FACTOR
        return Judgement(Verdict.VACUOUS if loose else Verdict.HOLDS, detail, slack, looseness)
    excess = np.where(wrong, np.where(np.isnan(excess), np.inf, excess), -np.inf)
    clearest, smallest = _trial(evidence, np.argmax(excess)), None
    if evidence.size is not None:
        size = _by_trial(np.asarray(evidence.size, float), wrong.ndim)
        clear = wrong & ~(excess < _CLEAR * larger)
        among = np.where(clear if clear.any() else wrong, size, np.inf)
        smallest = _trial(evidence, np.argmin(among))
    violations = int(wrong.sum())
    return Judgement(Verdict.FALSE, detail, slack, looseness, violations, smallest, clearest)


def _by_trial(values: np.ndarray, ndim: int) -> np.ndarray:
    """An array with an entry a trial, along the first of this many axes."""
    return values.reshape(values.shape + (1,) * (ndim - values.ndim))


def _trial(evidence: Evidence, number: Any) -> dict[str, Any]:
    """The parameters and both sides of one trial, as plain numbers."""
    index, example = np.unravel_index(number, evidence.lhs.shape), dict[str, Any]()
    for name, values in evidence.parameters.items():
        if _one_each(values, evidence.lhs.shape):
            values = values[index[0]] if isinstance(values, Sequence) else values[index]
        example[name] = plain(values)
    return example | {"lhs": float(evidence.lhs[index]), "rhs": float(evidence.rhs[index])}
