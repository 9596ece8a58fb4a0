"""Both sides of a statement over many trials, and the verdict that they support.

The verdict is computed here and nowhere else. What is false comes with two counterexamples, both
among the points that were evaluated: the smallest, and the clearest.
"""

import contextlib
import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

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
            met = met.reshape(met.shape + (1,) * (self.rhs.ndim - met.ndim))
            rhs = np.where(met == at, wrong, self.rhs)
            yield ("" if at else "not ") + words, dataclasses.replace(self, rhs=rhs)

    def same_as(self, other: "Evidence") -> bool:
        """Whether both have the same sides, but for rounding."""
        pairs = (self.lhs, other.lhs), (self.rhs, other.rhs)
        return all(a.shape == b.shape and np.allclose(a, b, equal_nan=True) for a, b in pairs)

    @property
    def trials(self) -> int:
        """Number of comparisons made."""
        return int(self.lhs.size)


def _evidence(relation: Relation, lhs: Any, rhs: Any, ndim: int, met: Any, fields: Any) -> Evidence:
    lhs, rhs = np.broadcast_arrays(np.asarray(lhs, float), np.asarray(rhs, float))
    while lhs.ndim < ndim:
        lhs, rhs = lhs[None], rhs[None]
    rows = lhs.shape if ndim == 1 else lhs.shape[:1]
    return Evidence(relation, lhs, rhs, np.broadcast_to(np.asarray(met, bool), rows), **fields)


def equal(lhs: Any, rhs: Any, *, premise_met: Any = True, **fields: Any) -> Evidence:
    """Evidence for an identity, trial by trial."""
    return _evidence("==", lhs, rhs, 1, premise_met, fields)


def at_most(lhs: Any, rhs: Any, *, premise_met: Any = True, **fields: Any) -> Evidence:
    """Evidence for an inequality lhs <= rhs, trial by trial."""
    return _evidence("<=", lhs, rhs, 1, premise_met, fields)


def compared(relation: Literal["==", "<="], rows: Any, *names: str, **fields: Any) -> Evidence:
    """Evidence of rows: both sides, then what has these names: parameters, or 'size', 'met'."""
    lhs, rhs, *columns = map(list, zip(*rows, strict=True))
    shown = dict(zip(names, columns, strict=True))
    met, size = shown.pop("met", True), shown.pop("size", shown.get("n"))
    return _evidence(relation, lhs, rhs, 1, met, {"parameters": shown, "size": size} | fields)


def limit(
    values: Any, target: Any, *, tolerance: float, premise_met: Any = True, **fields: Any
) -> Evidence:
    """Evidence for values -> target along the last axis.

    Holds when the distance shrinks along each sequence and its last step is within tolerance.
    """
    return _evidence("limit", values, target, 2, premise_met, fields | {"tolerance": tolerance})


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
        slack: how far the two sides are apart, in the closest trial: rhs - lhs for inequalities
            (negative: violated), largest |lhs - rhs| for identities and limits.
        looseness: smallest rhs / lhs over the trials (bounds only); `None` where it has no meaning.
        violations: number of trials (or sequences) against the statement.
        trials: number of comparisons made.
        smallest: the first violating trial of least size whose violation is clear;
            `None` where nothing is violated or sizes are not given.
        clearest: the trial that violates the statement most.
        detail: one line on what was measured.
    """

    verdict: Verdict
    slack: float
    looseness: float | None
    violations: int
    trials: int
    smallest: Mapping[str, Any] | None
    clearest: Mapping[str, Any] | None
    detail: str


def judge(evidence: Evidence) -> Judgement:
    """Compute the verdict that the evidence supports."""
    if not evidence.premise_met.any():
        return Judgement(
            Verdict.PREMISE_UNMET, math.nan, None, 0, evidence.trials, None, None,
            "no trial meets the premise",
        )  # fmt: skip
    judges = {"==": _judge_equal, "<=": _judge_at_most, "limit": _judge_limit}
    return judges[evidence.relation](evidence)


def _allowance(evidence: Evidence) -> np.ndarray:
    scale = np.maximum(1.0, np.maximum(np.abs(evidence.lhs), np.abs(evidence.rhs)))
    return evidence.tolerance * np.where(np.isfinite(scale), scale, 1.0)


def _difference(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """rhs - lhs; equal infinities are no distance apart."""
    with np.errstate(invalid="ignore"):
        return np.where(lhs == rhs, 0.0, rhs - lhs)


def _judge_equal(evidence: Evidence) -> Judgement:
    gap = np.abs(_difference(evidence.lhs, evidence.rhs))
    # A NaN or an infinity on one side alone is a violation: the comparison is written to say so.
    wrong = ~((gap <= _allowance(evidence)) | (evidence.lhs == evidence.rhs))
    wrong &= evidence.premise_met
    slack = float(np.max(np.where(evidence.premise_met, gap, 0.0)))
    detail = f"{int(evidence.premise_met.sum())} comparisons, largest gap {slack:.2g}"
    return _close(evidence, wrong, gap, slack, None, detail)


def _judge_at_most(evidence: Evidence) -> Judgement:
    gap = _difference(evidence.lhs, evidence.rhs)
    wrong = ~((gap >= -_allowance(evidence)) | (evidence.lhs == evidence.rhs))
    wrong &= evidence.premise_met
    slack = float(np.min(np.where(evidence.premise_met, gap, np.inf)))
    looseness = _looseness(evidence, evidence.premise_met)
    detail = f"{int(evidence.premise_met.sum())} comparisons, least margin {slack:.3g}"
    return _close(evidence, wrong, -gap, slack, looseness, detail)


def _judge_limit(evidence: Evidence) -> Judgement:
    gap = np.abs(_difference(evidence.lhs, evidence.rhs))
    met = evidence.premise_met
    last = gap[:, -1]
    shrinks = (last <= gap[:, 0]) | (last <= evidence.tolerance)
    wrong = ~((last <= evidence.tolerance) & shrinks) & met
    slack = float(np.max(last[met]))
    detail = f"{len(gap)} sequences, last distance {slack:.2g}"
    wrong_steps = np.zeros_like(gap, bool)
    wrong_steps[:, -1] = wrong
    return _close(evidence, wrong_steps, gap, slack, None, detail)


def _looseness(evidence: Evidence, met: np.ndarray) -> float | None:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = evidence.rhs / evidence.lhs
    usable = met & (evidence.lhs > 0) & (evidence.rhs >= 0) & ~np.isnan(ratios)
    return float(np.min(ratios[usable])) if usable.any() else None


def _close(
    evidence: Evidence,
    wrong: np.ndarray,
    excess: np.ndarray,
    slack: float,
    looseness: float | None,
    detail: str,
) -> Judgement:
    """Turn the mask of violating trials into a judgement."""
    count = int(wrong.sum())
    if not count:
        loose = looseness is not None and looseness >= VACUOUS_FACTOR
        verdict = Verdict.VACUOUS if loose else Verdict.HOLDS
        return Judgement(verdict, slack, looseness, 0, evidence.trials, None, None, detail)
    excess = np.where(wrong, np.where(np.isnan(excess), np.inf, excess), -np.inf)
    clearest = _trial(evidence, np.unravel_index(np.argmax(excess), wrong.shape))
    smallest = None
    if evidence.size is not None:
        size = np.asarray(evidence.size, float)
        size = size.reshape(size.shape + (1,) * (wrong.ndim - size.ndim))
        larger = np.maximum(np.abs(evidence.lhs), np.abs(evidence.rhs))
        clear = wrong & ~(excess < _CLEAR * larger)
        among = np.where(clear if clear.any() else wrong, size, np.inf)
        smallest = _trial(evidence, np.unravel_index(np.argmin(among), wrong.shape))
    return Judgement(
        Verdict.FALSE, slack, looseness, count, evidence.trials, smallest, clearest, detail
    )


def plain(value: Any) -> Any:
    """Python's own numbers out of NumPy's and JAX's."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _trial(evidence: Evidence, index: tuple[Any, ...]) -> dict[str, Any]:
    """The parameters and both sides of one trial, as plain numbers."""
    shape = evidence.lhs.shape
    example: dict[str, Any] = {}
    for name, values in evidence.parameters.items():
        if _one_each(values, shape):
            values = values[index[0]] if isinstance(values, Sequence) else values[index]
        example[name] = plain(values)
    return example | {"lhs": float(evidence.lhs[index]), "rhs": float(evidence.rhs[index])}
