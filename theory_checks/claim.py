"""A formal statement as data: what a paper says, how it was tried, and the verdict.

A `Claim` carries a statement as printed and an evidence function. The evidence holds both sides of
the statement over many trials; `judge` computes the verdict from it. A verdict is never typed in:
what is typed is the *expected* verdict, and the report, pytest and the tables compare the two.
"""

import contextlib
import dataclasses
import enum
import importlib
import math
import pkgutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Relation = Literal["==", "<=", "limit", "rate", "probability"]

# A bound is called vacuous when it exceeds what it bounds by this factor in every trial, or when
# it never falls below what is known without any theorem (`Evidence.trivial`).
VACUOUS_FACTOR = 100.0
# A fitted slope whose confidence interval is wider than this says nothing either way.
WIDEST_SLOPE_INTERVAL = 0.4


class Verdict(enum.Enum):
    """What the evidence says about a statement as printed."""

    HOLDS = "HOLDS"
    VACUOUS = "HOLDS (VACUOUS)"
    PREMISE_UNMET = "PREMISE UNMET"
    FALSE = "FALSE AS PRINTED"
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
        trivial: upper bound on lhs known without the statement (log n for an entropy): a printed
            bound never below it is vacuous.
        steps: the parameter that runs along a sequence ('limit', 'rate').
        delta: failure probability that each cell allows ('probability').
        false_alarm: chance that a true 'probability' claim is called false (over all cells).
        parameters: arrays of the shape of lhs (or scalars), reported for the counterexample.
        size: what makes a counterexample small (the violating trial of least size is reported);
            without it, the worst violation is.
        counterexample: plain numbers, where the evidence function knows a smaller one by hand.
        data: arrays for figures.
    """

    relation: Relation
    lhs: np.ndarray
    rhs: np.ndarray
    premise_met: np.ndarray
    tolerance: float = 1e-10
    trivial: np.ndarray | None = None
    steps: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    delta: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    false_alarm: float = 1e-6
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    size: np.ndarray | None = None
    counterexample: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Number of comparisons made."""
        return int(self.lhs.size)


def _sides(lhs: Any, rhs: Any, ndim: int) -> tuple[np.ndarray, np.ndarray]:
    lhs, rhs = np.broadcast_arrays(np.asarray(lhs, float), np.asarray(rhs, float))
    while lhs.ndim < ndim:
        lhs, rhs = lhs[None], rhs[None]
    return lhs, rhs


def equal(lhs: Any, rhs: Any, *, premise_met: Any = True, **fields: Any) -> Evidence:
    """Evidence for an identity, trial by trial."""
    lhs, rhs = _sides(lhs, rhs, 1)
    met = np.broadcast_to(np.asarray(premise_met, bool), lhs.shape)
    return Evidence("==", lhs, rhs, met, **fields)


def at_most(lhs: Any, rhs: Any, *, premise_met: Any = True, **fields: Any) -> Evidence:
    """Evidence for an inequality lhs <= rhs, trial by trial."""
    lhs, rhs = _sides(lhs, rhs, 1)
    met = np.broadcast_to(np.asarray(premise_met, bool), lhs.shape)
    return Evidence("<=", lhs, rhs, met, **fields)


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
    lhs, rhs = _sides(values, target, 2)
    met = np.broadcast_to(np.asarray(premise_met, bool), lhs.shape[:1])
    return Evidence(
        "limit", lhs, rhs, met, tolerance=tolerance, steps=np.asarray(steps, float), **fields
    )


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
    lhs, _ = _sides(errors, 0.0, 2)
    low, high = exponents
    rhs = np.stack([np.full(len(lhs), low), np.full(len(lhs), high)], axis=1)
    met = np.broadcast_to(np.asarray(premise_met, bool), lhs.shape[:1])
    return Evidence("rate", lhs, rhs, met, steps=np.asarray(steps, float), **fields)


def probability(
    lhs: Any, rhs: Any, delta: Any, *, premise_met: Any = True, **fields: Any
) -> Evidence:
    """Evidence for P(lhs <= rhs) >= 1 - delta, cell by cell (`[cells, trials]`).

    False when some cell fails more often than a binomial with probability delta explains, at the
    level `false_alarm` shared over the cells.
    """
    lhs, rhs = _sides(lhs, rhs, 2)
    delta = np.broadcast_to(np.asarray(delta, float), lhs.shape[:1])
    met = np.broadcast_to(np.asarray(premise_met, bool), lhs.shape[:1])
    return Evidence("probability", lhs, rhs, met, delta=delta, **fields)


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
        counterexample: plain numbers of a violating trial.
        detail: one line on what was measured.
    """

    verdict: Verdict
    slack: float
    looseness: float | None
    violations: int
    trials: int
    counterexample: Mapping[str, Any] | None
    detail: str


def judge(evidence: Evidence) -> Judgement:
    """Compute the verdict that the evidence supports."""
    if not evidence.premise_met.any():
        return Judgement(
            Verdict.PREMISE_UNMET, math.nan, None, 0, evidence.trials, evidence.counterexample,
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


def _distance(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return np.abs(_difference(lhs, rhs))


def _judge_equal(evidence: Evidence) -> Judgement:
    gap = _distance(evidence.lhs, evidence.rhs)
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
    gap = _distance(evidence.lhs, evidence.rhs)
    met = evidence.premise_met
    last = gap[:, -1]
    shrinks = (last <= gap[:, 0]) | (last <= evidence.tolerance)
    wrong = ~((last <= evidence.tolerance) & shrinks) & met
    slack = float(np.max(last[met]))
    orders = [_slope(np.abs(evidence.steps), row)[0] for row in gap[met]]
    detail = f"last distance {slack:.2g}, observed order {np.nanmedian(orders):.2f}"
    wrong_steps = np.zeros_like(gap, bool)
    wrong_steps[:, -1] = wrong
    return _close(evidence, wrong_steps, gap, slack, None, detail)


def _judge_rate(evidence: Evidence) -> Judgement:
    met = evidence.premise_met
    fits = [_slope(evidence.steps, row) for row in evidence.lhs]
    slopes, halves = (np.array(part) for part in zip(*fits, strict=True))
    low, high = evidence.rhs[:, 0], evidence.rhs[:, 1]
    miss = np.maximum(np.maximum(slopes - halves - high, low - slopes - halves), 0.0)
    # An infinite or undefined fit is a miss too.
    wrong = ~(miss <= evidence.tolerance) & met
    slack = float(np.max(np.where(met, miss, 0.0)))
    detail = f"slope {slopes[met][0]:.3f} +- {halves[met][0]:.3f}"
    if not wrong.any() and (2 * halves[met] > WIDEST_SLOPE_INTERVAL).any():
        return Judgement(Verdict.INCONCLUSIVE, slack, None, 0, evidence.trials, None, detail)
    wrong_steps = np.zeros_like(evidence.lhs, bool)
    wrong_steps[:, -1] = wrong
    excess = np.broadcast_to(miss[:, None], evidence.lhs.shape)
    return _close(evidence, wrong_steps, excess, slack, None, detail)


def _judge_probability(evidence: Evidence) -> Judgement:
    met, cells = evidence.premise_met, len(evidence.lhs)
    failed = ~(evidence.lhs <= evidence.rhs + _allowance(evidence))
    failures = failed.sum(axis=1)
    tails = np.array(
        [
            binomial_tail(int(count), failed.shape[1], float(delta))
            for count, delta in zip(failures, evidence.delta, strict=True)
        ]
    )
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
    if count:
        example = _plain(evidence.counterexample or _counterexample(evidence, wrong, excess))
        return Judgement(Verdict.FALSE, slack, None, count, evidence.trials, example, detail)
    loose = looseness is not None and looseness >= VACUOUS_FACTOR
    verdict = Verdict.VACUOUS if loose or trivial else Verdict.HOLDS
    return Judgement(verdict, slack, looseness, 0, evidence.trials, None, detail)


def _plain(value: Any) -> Any:
    """Python's own numbers out of NumPy's and JAX's."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _counterexample(evidence: Evidence, wrong: np.ndarray, excess: np.ndarray) -> dict[str, Any]:
    if evidence.size is None:
        key = np.where(np.isnan(excess), np.inf, -excess)
    else:
        key = np.broadcast_to(np.asarray(evidence.size, float), wrong.shape)
    index = np.unravel_index(np.argmin(np.where(wrong, key, np.inf)), wrong.shape)
    if not wrong[index]:  # every violating trial has an infinite key
        index = tuple(np.argwhere(wrong)[0])
    example: dict[str, Any] = {}
    for name, values in evidence.parameters.items():
        array = np.asarray(values)
        leading = array.shape[: wrong.ndim] == wrong.shape
        example[name] = (array[index] if leading else array).tolist()
    if evidence.relation == "rate":
        example["slope"] = _slope(evidence.steps, evidence.lhs[index[0]])[0]
    else:
        example |= {"lhs": float(evidence.lhs[index]), "rhs": float(evidence.rhs[index])}
    if evidence.relation == "probability":
        row = index[0]
        example["failures"] = int((~(evidence.lhs[row] <= evidence.rhs[row])).sum())
        example["trials"] = int(evidence.lhs.shape[1])
        example["delta"] = float(evidence.delta[row])
    return example


def binomial_tail(count: int, trials: int, chance: float) -> float:
    """P(Bin(trials, chance) >= count), summed in logarithms."""
    if count <= 0:
        return 1.0
    if chance <= 0.0:
        return 0.0
    if chance >= 1.0:
        return 1.0
    terms = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        for k in range(count, trials + 1)
    ]  # fmt: skip
    top = max(terms)
    return min(1.0, math.exp(top) * sum(math.exp(term - top) for term in terms))


def _slope(steps: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Log-log slope and the half width of its 95% confidence interval."""
    usable = (errors > 0) & np.isfinite(errors) & (steps > 0)
    if usable.sum() < 3:
        return math.nan, math.inf
    x, y = np.log(steps[usable]), np.log(errors[usable])
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    residual = y - y.mean() - slope * x
    freedom = len(x) - 2
    error = math.sqrt(float(residual @ residual) / freedom / float(x @ x))
    return slope, _student_quantile(freedom) * error


def _student_quantile(freedom: int) -> float:
    """97.5% quantile of Student's t (table to 10 degrees of freedom, then Cornish-Fisher)."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    if freedom <= len(table):
        return table[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


EvidenceFunction = Callable[[np.random.Generator, Budget], Evidence]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A formal statement of a paper (or its corrected form).

    Attributes:
        name: slug, unique in the registry ('cv-theorem-3-appendix').
        source: paper and number ('CV Theorem 3 (appendix A.1)').
        statement: LaTeX, as printed (for a corrected claim: as corrected).
        evidence: function of a NumPy generator and a `Budget`.
        expected: the verdict that the project stands by.
        assumptions: as printed, in words.
        parameters: names with the range tried ({'n': '1..64'}).
        note: one line: why it differs from the print, or how loose it is.
        corrects: name of the printed claim that this one replaces.
    """

    name: str
    source: str
    statement: str
    evidence: EvidenceFunction
    expected: Verdict
    assumptions: str = ""
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    corrects: str | None = None

    @property
    def theme(self) -> str:
        """The module that the claim lives in ('concentration')."""
        return self.evidence.__module__.rpartition(".")[2]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A claim after it was tried."""

    claim: Claim
    evidence: Evidence
    judgement: Judgement
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the computed verdict is the one that the project stands by."""
        return self.judgement.verdict is self.claim.expected


_REGISTRY: dict[str, Claim] = {}


def claim(
    *,
    name: str,
    source: str,
    statement: str,
    expected: Verdict,
    assumptions: str = "",
    parameters: Mapping[str, str] | None = None,
    note: str = "",
    corrects: str | None = None,
) -> Callable[[EvidenceFunction], EvidenceFunction]:
    """Register the decorated evidence function as a claim; see `Claim` for the arguments."""

    def register(evidence: EvidenceFunction) -> EvidenceFunction:
        if name in _REGISTRY:
            raise ValueError(f"claim {name!r} is registered twice: names are unique.")
        _REGISTRY[name] = Claim(
            name,
            source,
            statement,
            evidence,
            expected,
            assumptions,
            parameters or {},
            note,
            corrects,
        )
        return evidence

    return register


_NOT_THEMES = {"__main__", "claim", "report"}


def registry() -> dict[str, Claim]:
    """Every claim by name, after importing every theme module of the package."""
    package = importlib.import_module("theory_checks")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _NOT_THEMES:
            importlib.import_module(f"theory_checks.{module.name}")
    for entry in _REGISTRY.values():
        if entry.corrects is not None and entry.corrects not in _REGISTRY:
            raise ValueError(f"claim {entry.name!r} corrects {entry.corrects!r}: no such claim.")
    return dict(sorted(_REGISTRY.items()))


def corrections(name: str) -> list[str]:
    """Names of the claims that correct this one (the link back)."""
    return sorted(entry.name for entry in _REGISTRY.values() if entry.corrects == name)


def try_claim(entry: Claim, *, seed: int = 0, budget: Budget = QUICK) -> Outcome:
    """Gather the evidence in float64 and judge it.

    The generator depends on the seed and the claim's name alone, so that a claim gives the same
    numbers whether it runs alone or with all others.
    """
    rng = np.random.default_rng([seed, zlib.crc32(entry.name.encode())])
    start = time.perf_counter()
    with double_precision():
        evidence = entry.evidence(rng, budget)
    judgement = judge(evidence)
    return Outcome(entry, evidence, judgement, time.perf_counter() - start)


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """JAX computes in float64 inside this block."""
    before = jnp.zeros(()).dtype == jnp.float64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
