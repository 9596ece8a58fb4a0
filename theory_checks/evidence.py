"""Both sides of a statement over many trials, and the verdict that they support.

The verdict is computed here and nowhere else. What is false comes with two counterexamples, both
among the points that were evaluated: the smallest, and the clearest.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import stats

Relation = Literal["==", "<=", "limit", "rate", "probability"]

# A bound is called vacuous when it exceeds what it bounds by this factor in every trial, or when
# it never falls below what is known without any theorem (`Evidence.trivial`).
VACUOUS_FACTOR = 100.0
# A violation below this part of the larger side is a rounding affair: it does not make a smallest
# counterexample while there are others.
_CLEAR = 0.01
# A fitted slope whose confidence interval is wider than this says nothing either way.
WIDEST_SLOPE_INTERVAL = 0.4


class Verdict(enum.Enum):
    """What the evidence says about a statement."""

    HOLDS = "HOLDS"
    VACUOUS = "HOLDS (VACUOUS)"
    PREMISE_UNMET = "PREMISE UNMET"
    FALSE = "FALSE"
    INCONCLUSIVE = "INCONCLUSIVE"


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

    def pick(self, quick: Any, full: Any) -> Any:
        """One of two settings (sizes of a sequence, say)."""
        return full if self.name == "full" else quick


QUICK = Budget("quick", 1)
FULL = Budget("full", 10)
BUDGETS = {budget.name: budget for budget in (QUICK, FULL)}


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Both sides of a statement over many trials.

    Build one with `equal`, `at_most`, `limit`, `rate` or `probability`.

    Attributes:
        relation: how lhs and rhs are meant to stand to each other.
        lhs: left side; `[trials]`, or `[cells, trials]` for 'probability',
            or `[sequences, steps]` for 'limit' and 'rate'.
        rhs: right side, of the shape of lhs after broadcasting.
        premise_met: where the assumptions of the statement hold (one entry a trial; one a cell for
            'probability'; one a sequence for 'limit' and 'rate'). Other trials are not judged.
        tolerance: numerical allowance, relative to max(1, |lhs|, |rhs|); for 'limit' the distance
            that the last step must reach.
        trivial: upper bound on lhs known without the statement (log n for an entropy): a
            bound never below it is vacuous.
        steps: the parameter that runs along a sequence ('limit', 'rate').
        delta: failure probability that each cell allows ('probability').
        false_alarm: chance that a true 'probability' claim is called false (over all cells).
        parameters: what a counterexample reports: lists with an entry a trial (of any Python
            value: arrays, texts), arrays of the shape of lhs, or values that all trials share.
        size: number of points (or whatever makes a counterexample small), one entry a trial.
        measured: numbers that the table shows whatever the verdict ({'loose at n = 1000': 12.3}).
        data: arrays for figures.
    """

    relation: Relation
    lhs: np.ndarray
    rhs: np.ndarray
    premise_met: np.ndarray
    tolerance: float = 1e-10
    trivial: Any = None
    steps: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    delta: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    false_alarm: float = 1e-6
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    size: Any = None
    measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

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


def limit(
    values: Any,
    target: Any,
    steps: Any,
    *,
    tolerance: float,
    premise_met: Any = True,
    **fields: Any,
) -> Evidence:
    """Evidence for values[k] -> target as steps[k] grows (or shrinks) towards its limit.

    Holds when the distance shrinks along each sequence and its last step is within tolerance.
    """
    fields |= {"tolerance": tolerance, "steps": np.asarray(steps, float)}
    return _evidence("limit", values, target, 2, premise_met, fields)


def rate(
    errors: Any,
    exponents: tuple[float, float],
    steps: Any,
    *,
    premise_met: Any = True,
    **fields: Any,
) -> Evidence:
    """Evidence for errors ~ steps^p with p inside the closed range `exponents`.

    Holds when the 95% confidence interval of the log-log slope meets the range. `-inf` as the lower
    end states 'at least as fast as'.
    """
    errors = np.atleast_2d(np.asarray(errors, float))
    met = np.broadcast_to(np.asarray(premise_met, bool), errors.shape[:1])
    rhs = np.tile(np.asarray(exponents, float), (len(errors), 1))
    return Evidence("rate", errors, rhs, met, steps=np.asarray(steps, float), **fields)


def probability(
    lhs: Any, rhs: Any, delta: Any, *, premise_met: Any = True, **fields: Any
) -> Evidence:
    """Evidence for P(lhs <= rhs) >= 1 - delta, cell by cell (`[cells, trials]`).

    False when some cell fails more often than a binomial with probability delta explains, at the
    level `false_alarm` shared over the cells.
    """
    found = _evidence("probability", lhs, rhs, 2, premise_met, fields)
    delta = np.broadcast_to(np.asarray(delta, float), found.lhs.shape[:1])
    return dataclasses.replace(found, delta=delta)


def concatenate(*parts: Evidence) -> Evidence:
    """One piece of evidence out of several of a relation ('==' or '<=') with equal parameters."""
    names = [part.parameters.keys() for part in parts]
    if any(other != names[0] for other in names) or len({part.relation for part in parts}) > 1:
        raise ValueError("concatenate: the parts differ in their relation or their parameters.")
    rows = {
        name: [value for part in parts for value in _rows(part, part.parameters[name])]
        for name in names[0]
    }
    sizes = [part.size for part in parts]
    return dataclasses.replace(
        parts[0],
        lhs=np.concatenate([part.lhs for part in parts]),
        rhs=np.concatenate([part.rhs for part in parts]),
        premise_met=np.concatenate([part.premise_met for part in parts]),
        parameters=rows,
        size=None if sizes[0] is None else np.concatenate([np.asarray(size) for size in sizes]),
    )


def _rows(part: Evidence, value: Any) -> list[Any]:
    if _one_each(value, part.lhs.shape):
        return list(value)
    return [value] * len(part.lhs)


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
            (negative: violated), largest |lhs - rhs| for identities and limits, the distance of the
            fitted slope to its range for rates.
        looseness: smallest rhs / lhs over the trials (bounds only); `None` where it has no meaning.
        violations: number of trials (cells, sequences) against the statement.
        trials: number of comparisons made.
        smallest: the violating trial of least size that is no rounding affair, the first of them;
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
    judges = {
        "==": _judge_equal,
        "<=": _judge_at_most,
        "limit": _judge_limit,
        "rate": _judge_rate,
        "probability": _judge_probability,
    }
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
    detail = f"largest gap {slack:.2g} over {int(evidence.premise_met.sum())} trials"
    return _close(evidence, wrong, gap, slack, None, detail)


def _judge_at_most(evidence: Evidence) -> Judgement:
    gap = _difference(evidence.lhs, evidence.rhs)
    wrong = ~((gap >= -_allowance(evidence)) | (evidence.lhs == evidence.rhs))
    wrong &= evidence.premise_met
    slack = float(np.min(np.where(evidence.premise_met, gap, np.inf)))
    looseness = _looseness(evidence, evidence.premise_met)
    detail = f"least slack {slack:.3g} over {int(evidence.premise_met.sum())} trials"
    trivial = _never_informative(evidence, evidence.premise_met)
    return _close(evidence, wrong, -gap, slack, looseness, detail, trivial=trivial)


def _judge_limit(evidence: Evidence) -> Judgement:
    gap = np.abs(_difference(evidence.lhs, evidence.rhs))
    met = evidence.premise_met
    last = gap[:, -1]
    shrinks = (last <= gap[:, 0]) | (last <= evidence.tolerance)
    wrong = ~((last <= evidence.tolerance) & shrinks) & met
    slack = float(np.max(last[met]))
    orders = [slope(np.abs(evidence.steps), row)[0] for row in gap[met]]
    detail = f"last distance {slack:.2g}, observed order {np.nanmedian(orders):.2f}"
    wrong_steps = np.zeros_like(gap, bool)
    wrong_steps[:, -1] = wrong
    return _close(evidence, wrong_steps, gap, slack, None, detail)


def _judge_rate(evidence: Evidence) -> Judgement:
    met = evidence.premise_met
    fits = [slope(evidence.steps, row) for row in evidence.lhs]
    slopes, halves = (np.array(part) for part in zip(*fits, strict=True))
    low, high = evidence.rhs[:, 0], evidence.rhs[:, 1]
    miss = np.maximum(np.maximum(slopes - halves - high, low - slopes - halves), 0.0)
    # An infinite or undefined fit is a miss too.
    wrong = ~(miss <= evidence.tolerance) & met
    slack = float(np.max(np.where(met, miss, 0.0)))
    worst = int(np.argmax(np.where(met, miss, -1.0)))
    detail = f"slope {slopes[worst]:.3f} +- {halves[worst]:.3f}"
    if not wrong.any() and (2 * halves[met] > WIDEST_SLOPE_INTERVAL).any():
        return Judgement(Verdict.INCONCLUSIVE, slack, None, 0, evidence.trials, None, None, detail)
    wrong_steps = np.zeros_like(evidence.lhs, bool)
    wrong_steps[:, -1] = wrong
    excess = np.broadcast_to(miss[:, None], evidence.lhs.shape)
    return _close(evidence, wrong_steps, excess, slack, None, detail)


def _judge_probability(evidence: Evidence) -> Judgement:
    met, cells = evidence.premise_met, len(evidence.lhs)
    failed = ~(evidence.lhs <= evidence.rhs + _allowance(evidence))
    failures = failed.sum(axis=1)
    # P(Bin(trials, delta) >= failures)
    tails = stats.binom.sf(failures - 1, failed.shape[1], np.clip(evidence.delta, 0.0, 1.0))
    wrong = (tails < evidence.false_alarm / cells) & met
    gap = _difference(evidence.lhs, evidence.rhs)
    met_trials = np.broadcast_to(met[:, None], gap.shape)
    slack = float(np.min(gap[met_trials]))
    # The bound is compared with the quantile that it claims to bound.
    quantiles = np.array(
        [np.quantile(row, 1 - d) for row, d in zip(evidence.lhs, evidence.delta, strict=True)]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.min(evidence.rhs, axis=1) / quantiles
    ratios = ratios[met & (quantiles > 0)]
    looseness = float(np.min(ratios)) if ratios.size else None
    detail = (
        f"{int(failures[met].sum())} failures in {int(met.sum())} x {failed.shape[1]} trials, "
        f"false-alarm rate {evidence.false_alarm:g}"
    )
    trivial = _never_informative(evidence, met_trials)
    return _close(
        evidence, failed & wrong[:, None], -gap, slack, looseness, detail, trivial=trivial
    )


def _looseness(evidence: Evidence, met: np.ndarray) -> float | None:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = evidence.rhs / evidence.lhs
    usable = met & (evidence.lhs > 0) & (evidence.rhs >= 0) & ~np.isnan(ratios)
    return float(np.min(ratios[usable])) if usable.any() else None


def _never_informative(evidence: Evidence, met: np.ndarray) -> bool:
    if evidence.trivial is None:
        return False
    trivial = np.broadcast_to(np.asarray(evidence.trivial, float), evidence.lhs.shape)
    return bool(np.all(evidence.rhs[met] >= trivial[met]))


def _close(
    evidence: Evidence,
    wrong: np.ndarray,
    excess: np.ndarray,
    slack: float,
    looseness: float | None,
    detail: str,
    *,
    trivial: bool = False,
) -> Judgement:
    """Turn the mask of violating trials into a judgement."""
    count = int(wrong.sum())
    if not count:
        loose = looseness is not None and looseness >= VACUOUS_FACTOR
        verdict = Verdict.VACUOUS if loose or trivial else Verdict.HOLDS
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
    if evidence.relation == "rate":
        example["slope"] = slope(evidence.steps, evidence.lhs[index[0]])[0]
    else:
        example |= {"lhs": float(evidence.lhs[index]), "rhs": float(evidence.rhs[index])}
    if evidence.relation == "probability":
        row = index[0]
        example["failures"] = int((~(evidence.lhs[row] <= evidence.rhs[row])).sum())
        example["trials"] = int(shape[1])
        example["delta"] = float(evidence.delta[row])
    return example


def slope(steps: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Log-log slope and the half width of its 95% confidence interval."""
    usable = (errors > 0) & np.isfinite(errors) & (steps > 0)
    if usable.sum() < 3:
        return math.nan, math.inf
    fit, spread = np.polyfit(np.log(steps[usable]), np.log(errors[usable]), 1, cov=True)
    half = stats.t.ppf(0.975, usable.sum() - 2) * math.sqrt(max(spread[0, 0], 0.0))
    return float(fit[0]), float(half)
