"""How fast the conditional scores converge: CV section 5 and appendix A.

Populations have finite support, so that both sides are exact. A sample enters through the
frequencies of the atoms alone: with two atoms its law is binomial and n is free, with more atoms
all samples of a small n are enumerated. A bound that holds with probability 1 - delta is tried at
every level of the error, at a delta just below the chance of that level: no delta is harder for it.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import linalg, optimize, stats
from scipy.special import entr

from theory_checks import latex, numerics, statements
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, Verdict, at_most, compared
from theory_checks.populations import Population, finite_populations, product

Rng = np.random.Generator
_DELTA, _C, _NORM = r"\delta", r"\lVert C\rVert", r"\sqrt{1-\lVert C\rVert^2}"


@dataclasses.dataclass(frozen=True)
class Unrepeated(Population):
    """Two far prompts: answers to the first never repeat, the second has one; samples of n."""

    n: int

    def norms(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """In a sample (a batch of weights), a row of the first prompt equals itself alone."""
        joint, prompts = super().norms(weights)
        own = weights[..., 0] / self.n if weights.ndim > 1 else 0.0
        return np.sqrt(joint**2 + own), prompts


@dataclasses.dataclass(frozen=True)
class Asked(Population):
    """Prompts that never repeat, with k even answers each, which all differ, or all are equal.

    Atoms are the two kinds of prompts, and n counts prompts.
    """

    k: int

    def conditional_entropy(self, weights: np.ndarray, t: int | None = None) -> np.ndarray:
        """The share of prompts whose answers differ, times log k."""
        return weights[..., 0] * np.log(self.k)


@dataclasses.dataclass(frozen=True)
class Endless(Population):
    """Even pairs of very many: squared norms, and those of a sample that bounds the others."""

    squares: tuple[float, float]
    sample: tuple[float, float]

    def dimension(self, gram: np.ndarray) -> int:
        """The number of prompts or of outputs."""
        joint, prompts = self.squares
        return round(1 / prompts if gram is self.gram_t else prompts / joint)

    def norms(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the sample (a batch of weights) or of the population."""
        joint, prompts = self.sample if weights.ndim > 1 else self.squares
        return np.sqrt(joint * weights[..., 0]), np.sqrt(prompts * weights[..., 0])

    def conditional_entropy(self, weights: np.ndarray, t: int | None = None) -> np.ndarray:
        """Of even spectra."""
        return np.log(self.conditional_rke(weights))


# --- The samples of a population, and what bounds are made of -------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A population and a sample size, with the law of every error."""

    population: Population
    n: int

    @functools.cached_property
    def outcomes(self) -> tuple[np.ndarray, np.ndarray]:
        """Frequencies of the atoms in every sample, `[outcomes, k]`, and its log probability."""
        w, n = self.population.weights, self.n
        if len(w) == 1:
            return np.ones((1, 1)), np.zeros(1)
        if len(w) == 2:  # Chances beyond the reach are below e^-690.
            reach = 40 * np.sqrt(n * w[0] * w[1]) + 400
            counts = np.arange(max(0, int(n * w[0] - reach)), min(n, int(n * w[0] + reach)) + 1)
            return np.stack([counts, n - counts], 1) / n, stats.binom.logpmf(counts, n, w[0])
        bars = np.array(list(itertools.combinations(range(n + len(w) - 1), len(w) - 1)))
        ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, n + len(w) - 1)))
        counts = np.diff(ends, axis=1) - 1
        return counts / n, np.asarray(stats.multinomial.logpmf(counts, n, w / w.sum()))

    @functools.cache  # noqa: B019 (the cells below are kept for good)
    def levels(self, error: Callable[..., np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Levels of an error of (population, frequencies), and the chances to reach them."""
        frequencies, logs = self.outcomes
        return numerics.exceedances(error(self.population, frequencies), logs)


def orthogonal(*weights: float) -> Population:
    """Orthogonal outputs of one prompt."""
    return product("many outputs", list(weights), [1.0])


_EVEN, _SKEWED, _RARE = orthogonal(0.5, 0.5), orthogonal(0.9, 0.1), orthogonal(0.999, 0.001)
_TWO_PROMPTS = Population("rare prompt", np.eye(2), np.eye(2), np.array([0.9, 0.1]))
_HALF = Population("half alike", np.array([[1, 0.6], [0.6, 1]]), np.eye(2), np.array([0.7, 0.3]))
_TWO_ATOMS = (_EVEN, _SKEWED, _RARE, _TWO_PROMPTS, _HALF)
_COINS = [Cell(p, n) for p in _TWO_ATOMS for n in (1, 3, 100, 10**4, 10**5, 10**7)]
_SMALL = [Cell(p, n) for p in finite_populations() for n in (2, 3, 4)]
_SMALL += [Cell(orthogonal(*[1 / d] * d), n) for d, n in ((3, 12), (60, 2), (12, 3))]
_HUNDREDTH = orthogonal(0.99, 0.01)
_FEW = [Cell(p, n) for p in (_EVEN, _HUNDREDTH, _TWO_PROMPTS, _HALF) for n in (2, 3, 100)]
_FEW += [Cell(_HUNDREDTH, 10**5), *_SMALL]
# Varying prompts, where the quadratic terms of Theorem 3 matter.
_ALIKE = np.array([[1, -1, 0.65], [-1, 1, -0.65], [0.65, -0.65, 1]])
_NEAR = np.array([[1, 0.2, 0], [0.2, 1, -0.97], [0, -0.97, 1]])
_NEVER = "answers that never repeat", np.diag([0.0, 1]), np.eye(2), np.array([0.155, 0.845])
_VARYING = [Cell(Unrepeated(*_NEVER, 30000), 30000)]
_VARYING += [Cell(Population("near", _ALIKE, _NEAR, np.array([0.992, 0.004, 0.004])), 60)]


def bernstein_names(values: np.ndarray, w: np.ndarray, sign: float, log: Any, n: int) -> dict:
    """Names of Bernstein's bound for the mean of sign * values `[k, ..]`, centred, weights w."""
    top = np.maximum((sign * values).max(axis=0), 0.0)
    return {"v": w @ values**2, "b": top, "L": log, "n": n}


# How delta is split between the linear part and the rest.
_SHARES = np.array([1e-12, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1 - 1e-12])[:, None]


def operator(gram: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of C and features of the atoms along its eigenvectors."""
    values, vectors = np.linalg.eigh(gram)
    features = (vectors * np.sqrt(np.maximum(values, 0)))[:, values > 1e-10]
    eigenvalues, axes = np.linalg.eigh(features.T @ (w[:, None] * features))
    return eigenvalues, features @ axes


def linear_part(p: Population, prompts: float = 1.0) -> np.ndarray:
    """g at the atoms: -<phi, log C phi> of the pairs less that of the prompts, centred."""
    parts = [operator(gram, p.weights) for gram in (p.joint, p.gram_t)]
    joint, own = (-(features**2) @ np.log(values) for values, features in parts)
    return joint - prompts * own - p.weights @ (joint - prompts * own)


def chi_square(gram: np.ndarray, w: np.ndarray, n: int) -> tuple[float, float]:
    """Mean and variance of |C^(-1/2) (C_n - C)|^2 over samples of size n."""
    eigenvalues, features = operator(gram, w)
    inner = (features / eigenvalues) @ features.T * gram - 1
    own = np.diag(inner)
    diagonal = w @ own**2 - (w @ own) ** 2
    variance = (diagonal + 2 * (n - 1) * (w @ inner**2 @ w)) / n**3
    return float(w @ own / n), float(variance)


def binary(share: Any) -> Any:
    """The entropy of a share and of the rest, in nats."""
    return entr(share) + entr(1 - share)


def fannes_names(distance: Any, t: int) -> dict[str, Any]:
    """Names of the Fannes-Audenaert bound at this total variation distance."""
    s = np.minimum(distance, 1 - 1 / t)
    return {"s": s, "t": t, "h(s)": binary(s)}


# --- The bounds against all samples ---------------------------------------------------------------


def operator_error(p: Population, f: np.ndarray, both: bool = False) -> np.ndarray:
    """HS distance of the empirical to the population operator: of the pairs, or the larger."""
    off, grams = f - p.weights, [p.joint, p.gram_t][: 1 + both]
    squares = [np.sum(off @ gram**2 * off, axis=-1) for gram in grams]
    return np.sqrt(np.maximum(np.max(squares, axis=0), 0.0))


def entropy_error(p: Population, f: np.ndarray, t: int | None = None) -> np.ndarray:
    """Sample minus population log Conditional-Vendi, truncated to t eigenvalues where given."""
    return p.conditional_entropy(f, t) - p.conditional_entropy(p.weights, t)


def rke_error(p: Population, f: np.ndarray) -> np.ndarray:
    """Sample minus population Conditional-RKE."""
    return p.conditional_rke(f) - p.conditional_rke(p.weights)


def kept(p: Population) -> int:
    """The t of Theorem 2: 3, or all outputs of one prompt."""
    return p.dimension(p.gram_x) if np.all(p.gram_t == 1) else min(3, len(p.weights))


def modulus(error: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The absolute error, for bounds of both sides at once."""
    return lambda p, f: np.abs(error(p, f))


@dataclasses.dataclass(frozen=True)
class Tail:
    """A bound that errors exceed with probability delta at most.

    Attributes:
        errors: the error, or how far samples lie above and below.
        bound: of a cell's population and n, delta `[levels]`, the index of the error, the levels,
            and the formulas: the bound, or both sides of what it says.
        cells: where it is tried.
        attained: populations with n, delta, the index of the error, and a level that the bound
            exceeds by less than four percent.
    """

    errors: Sequence[Callable[..., np.ndarray]]
    bound: Callable[..., Any]
    cells: Sequence[Cell]
    attained: Sequence[tuple[Population, int, float, int, float]] = ()


def _one_formula(p: Population, n: int, delta: Any, which: int, levels: Any, form: Any) -> Any:
    k = getattr(p, "k", 1)  # Answers to each of n prompts.
    names = {"m": n, "k": k, "n": n * k, _DELTA: delta, "t": kept(p)}
    names |= {r"h(\tfrac1m)": binary(1 / n), r"h(\tfrac1n)": binary(1 / (n * k))}
    names |= {"d_X": p.dimension(p.gram_x), "d_T": p.dimension(p.gram_t)}
    return form(names | {_C: p.norms(p.weights)[0]})


def _theorem_2_sharp(
    p: Population, n: int, delta: Any, which: int, levels: Any, change: Any, moved: Any, near: Any
) -> Any:
    total = np.zeros_like(delta)
    for norm in np.minimum(p.norms(p.weights), 1.0):  # Roundings of 1 are on either side of it.
        epsilon = near({"n": n, _DELTA: delta, _C: norm})
        distance = moved({"t": kept(p), r"\epsilon_C": epsilon})
        total = total + change(fannes_names(distance, kept(p)))
    return total


def _theorem_1_sharp(
    p: Population, n: int, delta: Any, which: int, levels: Any, below: Any, beta: Any
) -> Any:
    g, w = linear_part(p), p.weights
    if which == 0:
        return beta(bernstein_names(g, w, 1, -np.log(delta), n))
    first = beta(bernstein_names(g, w, -1, -np.log((1 - _SHARES) * delta), n))
    names = {r"\beta": first, "d": p.dimension(p.joint), "n": n, r"\delta_2": _SHARES * delta}
    variance = chi_square(p.joint, w, n)[1]
    return np.min(below(names | {r"\operatorname{Var}\chi^2_n": variance}), axis=0)


def norm_names(p: Population) -> dict[str, Any]:
    """Names of Theorem 3, with m = M the norms themselves: the best case of Assumption 2."""
    joint, prompts = p.norms(p.weights)
    c_0 = 2 / prompts + 2 * joint / prompts**2
    return {"C_0": c_0, "L": joint / prompts, r"m_T": prompts, r"m_{X,T}": joint}


def _theorem_3(p: Population, n: int, delta: Any, which: int, levels: Any, *forms: Any) -> Any:
    names = norm_names(p) | {"n": n, _DELTA: delta}
    return np.where(n >= forms[1](names), forms[0](names), np.nan)


def theorem_3_margin(
    p: Population, n: int, delta: Any, which: int, c: Any, above: Any, below: Any, beta: Any
) -> tuple[Any, Any]:
    """Sides of the claim that the sample's Conditional-RKE passes 1 / c with chance <= delta."""
    joint, prompts = p.norms(p.weights)
    sign = (-1, 1)[which]
    rows = (p.joint**2 @ p.weights)[:, None] - np.outer(p.gram_t**2 @ p.weights, c)
    mean = joint**2 - c * prompts**2
    log = -np.log((1 - _SHARES) * delta)
    names = {r"\beta": beta(bernstein_names(rows - mean, p.weights, sign, log, n)), "c": c, "n": n}
    names[r"\delta_2"] = _SHARES * delta
    names |= {r"\lVert C_T\rVert": prompts, r"\lVert C_{X,T}\rVert": joint}
    return -sign * mean, np.min((above, below)[which](names), axis=0)


def _theorem_3_sharp(
    p: Population, n: int, delta: Any, which: int, levels: Any, *forms: Any
) -> Any:
    c = 1 / (p.conditional_rke(p.weights) + (1, -1)[which] * levels)
    return theorem_3_margin(p, n, delta, which, c, *forms)


def tails(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Levels of the error, and the bound at the delta that is hardest there."""
    tail, *forms = value
    rows, populations = [], []
    for cell, (which, error) in itertools.product(tail.cells, enumerate(tail.errors)):
        p, (levels, chances) = cell.population, cell.levels(error)
        found = tail.bound(p, cell.n, chances, which, levels, *forms)
        left, right = found if isinstance(found, tuple) else (levels, found)
        met = ~np.isnan(right) | (tail.bound is not _theorem_3)
        row = np.broadcast_arrays(left, right, met, p.name, cell.n, chances)
        rows += zip(*row, strict=True)
        populations += [p] * len(levels)
    for p, n, delta, which, level in tail.attained:
        (least,) = tail.bound(p, n, np.array([delta]), which, level, *forms)
        rows.append((least, 1.04 * level, True, p.name, n, delta))
        populations.append(p)
    cases = {
        "two atoms": [len(p.weights) == 2 and not isinstance(p, Asked) for p in populations],
        "one prompt": [np.all(p.gram_t == 1) for p in populations],
        "orthogonal pairs": [np.all(p.joint == np.eye(len(p.weights))) for p in populations],
        "equal weights": [np.ptp(p.weights) == 0 for p in populations],
    }
    return compared("<=", rows, "met", "population", "n", "delta", cases=cases)


_BOTH_ENTROPY = [entropy_error, lambda p, f: -entropy_error(p, f)]
_BOTH_RKE = [rke_error, lambda p, f: -rke_error(p, f)]
_TRUNCATED, _RKE = [modulus(lambda p, f: entropy_error(p, f, kept(p)))], [modulus(rke_error)]
_ALL = [*_COINS, *_SMALL]
_ASKED = [
    Cell(Asked("k answers to a prompt", np.eye(2), np.eye(2), np.array([p, 1 - p]), k), m)
    for p, k, m in itertools.product((0.5, 0.1), (100, 10**6), (2, 10, 1000))
]
_MANY = [Cell(product("fifty", [0.02] * 50, [1.0]), 2)]
_POINT = "endless", np.ones((1, 1)), 1.0 * np.ones((1, 1)), np.ones(1)
# At best all of n rows differ.
_ENDLESS = [Cell(Endless(*_POINT, (1e-12, 1), (1 / n, 1)), n) for n in (10, 1000)]
# By Chebyshev's inequality, but for a chance below 1e-9: N |C_n|^2 > 1 + 0.95 N / n at N = 1e14.
_ASKED_FOR = [
    Cell(Endless(*_POINT, (1e-14 / p, 1 / p), (1e-14 / p + 0.95 / n, 1 / p + 1.05 / n)), n)
    for p, n in ((1, 2 * 10**17), (1e14, 2 * 10**31))
]
# Two of a thousand outputs, which differ, and two of three, which are equal.
_TWO_OF_MANY = Endless(*_POINT, (1e-3, 1), (1 / 2, 1)), 2, 1 - 1e-3, 0, np.sqrt(1 / 2 - 1e-3)
_ALIKE_TWICE = orthogonal(*[1 / 3] * 3), 2, 1 / 3, 1, np.log(3)
TAILS = {
    "cv-lemma-4": Tail([functools.partial(operator_error, both=True)], _one_formula, _ALL),
    "cv-lemma-4-sharp": Tail([operator_error], _one_formula, _ALL, attained=[_TWO_OF_MANY]),
    "cv-theorem-1": Tail([modulus(entropy_error)], _one_formula, [*_ALL, *_MANY, *_ENDLESS]),
    "cv-theorem-1-sharp": Tail(_BOTH_ENTROPY, _theorem_1_sharp, _ALL, [_ALIKE_TWICE]),
    "cv-theorem-1-any-n": Tail(_BOTH_ENTROPY[:1], _one_formula, [*_ALL, *_ASKED]),
    "cv-theorem-2": Tail(_TRUNCATED, _one_formula, [*_ALL, *_ENDLESS]),
    "cv-theorem-2-sharp": Tail(_TRUNCATED, _theorem_2_sharp, [*_ALL, *_ENDLESS]),
    "cv-theorem-3-appendix": Tail(_RKE, _theorem_3, [*_ALL, *_ASKED_FOR]),
    "cv-theorem-3-sharp": Tail(_BOTH_RKE, _theorem_3_sharp, [*_ALL, *_VARYING]),
}
for _name, _tail in TAILS.items():
    _vacuous = Verdict.VACUOUS if _tail.bound is _theorem_3 else None
    claim(_name, stated=_tail, expected=_vacuous)(tails)


# --- An interval from the sample alone ------------------------------------------------------------


def h_means(p: Population, f: np.ndarray, n: int, own: bool) -> tuple[np.ndarray, np.ndarray]:
    """Means of h_c and of its square over pairs of rows at the score's c, by the frequencies."""
    h = p.joint**2 - p.gram_t**2 / p.conditional_rke(p.weights)
    means = [np.sum(f @ each * f, axis=1) for each in (h, h**2)]
    if not own:
        means = [(n * m - each[0, 0]) / (n - 1) for m, each in zip(means, (h, h**2), strict=True)]
    return means[0], np.maximum(means[1], 0.0)  # A sum of zeros may be rounded below zero.


def answer_means(c: float, count: int, own: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of U_p - c and of its square over prompts with two answers, the same in a share c.

    For every count of the prompts with equal answers; and the logarithms of its chances.
    """
    (f, logs), values = Cell(orthogonal(c, 1 - c), count).outcomes, [1 - c, 0.5 * own - c]
    return f @ values, f @ np.square(values), logs


def hardest(gaps: np.ndarray, bound: Callable[..., Any], logs: np.ndarray) -> tuple[Any, Any]:
    """Samples that their bound just rejects, and the chance of those that it rejects before.

    At a delta just below this chance no bound of level delta may reject the sample.

    Args:
        gaps: what must be within the bound, `[samples]`.
        bound: of delta `[..]` and of the numbers of the samples `[..]`; it falls in delta.
        logs: logarithms of the chances of the samples.
    """
    low, high = np.full(len(gaps), -700.0), np.zeros(len(gaps))
    everyone = np.arange(len(gaps))
    for _ in range(32):
        middle = (low + high) / 2
        rejects = ~(bound(np.exp(middle), everyone) >= gaps)
        low, high = np.where(rejects, low, middle), np.where(rejects, middle, high)
    high = np.round(high, 6)
    levels, chances = numerics.exceedances(-high, logs, most=30)
    return np.argmax(high == -levels[:, None], axis=1), chances


@claim("cv-interval-any-n", stated=False, mutants={"pairs of a row with itself": True})
def interval(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Both bounds at the score of the population, where the chance of a sample is hardest."""
    (own, hoeffding, bernstein, share, blocks), laws, rows = value, [], []
    for p, n, (f, logs) in ((cell.population, cell.n, cell.outcomes) for cell in _FEW):
        c, m = 1 / p.conditional_rke(p.weights), max(blocks({"n": n}), 1)
        laws.append((p.name, n, c, m, *h_means(p, f, n, own), logs))
    designs = [*itertools.product((0.5, 0.2, 0.02, 0.9), (1, 10, 1000)), (0.2, 10**5)]
    for c, n in designs:
        laws.append(("two answers to each prompt", n, c, n, *answer_means(c, n, own)))

    def bound(form: Any, names: dict[str, Any], square: Any, delta: Any, i: Any) -> Any:
        names = names | {_DELTA: delta, "Q": square[i]}
        return form(names | {"x": share(names)})

    for law, form in itertools.product(laws, (hoeffding, bernstein)):
        name, n, c, m, mean, square, logs = law
        of = functools.partial(bound, form, {"m": m, "b": max(c, 1 - c)}, square)
        samples, chances = hardest(gaps := np.abs(mean), of, logs)
        sides = zip(gaps[samples], of(chances, samples), chances, strict=True)
        rows += [(*pair, name, n) for pair in sides]
    return compared("<=", rows, "delta", "population", "n", tolerance=1e-12)


# --- Lemmas 1 to 3, A and B ----------------------------------------------------------------------


@claim("cv-lemma-1")
def power_difference(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Random numbers, many at u_0; the bound is attained where both are close to it."""
    (bound,) = value
    size = budget.trials(2000)
    beta, floor = -rng.uniform(0, 6, size), 10 ** rng.uniform(-1, 1, size)
    z, w = floor + rng.exponential(size=(2, size)) * 10 ** rng.uniform(-4, 1, (2, size))
    z = np.where(rng.random(size) < 0.3, floor, z)
    names = {r"\beta": beta, "u_0": floor, r"\epsilon": np.abs(z - w)}
    ratio = np.abs(z**beta - w**beta) / bound(names)
    near = np.abs(floor**beta - (1.0001 * floor) ** beta)
    loose = bound(names | {r"\epsilon": 1e-4 * floor}) / near
    return at_most([*ratio, *loose], [1.0] * size + [1.001] * size, tolerance=1e-7)


@claim("cv-lemma-2", stated=0.5, mutants={"a gap of 0.52": 0.52})
def entropy_difference(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Gaps up to the widest, many of them at an end of the interval."""
    widest, bound = value
    size = budget.trials(2000)
    gap = widest * np.where(rng.random(size) < 0.2, 1.0, rng.random(size) ** 3)
    ends = rng.integers(0, 2, size)
    low = (1 - gap) * np.where(rng.random(size) < 0.2, ends, rng.random(size))
    change, most = np.abs(entr(low) - entr(low + gap)), bound({r"\lvert b-a\rvert": gap})
    at_zero = low == 0
    return at_most([*change, *most[at_zero]], [*most, *change[at_zero]])


def pairs_of_points(rng: Rng, trials: int) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Pairs of descending simplex points, near or far, and a t; one by hand."""
    points = [(np.array([0.5, 0.25, 0.25]), np.array([0.4, 0.4, 0.2]), 2)]
    for _ in range(trials):
        d = int(rng.integers(4, 9))
        u, v = (rng.dirichlet(np.full(d, rng.choice([0.05, 1, 20]))) + 1e-6 for _ in range(2))
        if rng.random() < 0.7:
            v = np.abs(u + 0.05 * rng.normal(size=d) * rng.random())
        u, v = (np.sort(x / x.sum())[::-1] for x in (u, v))
        points.append((u, v, int(rng.integers(1, d + 1))))
    return points


@claim("cv-lemma-3", stated=1.0, mutants={"up to 1.2 sqrt(d)/e": 1.2})
def entropy_sum(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Vectors up to the longest admitted, often of equal entries; then pairs of spectra."""
    (reach, bound, of_pairs), rows = value, []
    for trial in range(budget.trials(500)):
        d = int(rng.integers(1, 12))
        u = np.ones(d) if trial % 5 == 0 else rng.random(d) ** rng.choice([0.1, 1.0, 5.0])
        u *= np.sqrt(d) / np.e * rng.choice([1.0, rng.random()]) / np.linalg.norm(u)
        pair = entr(u).sum(), bound({r"\epsilon": reach * np.linalg.norm(u), "d": d})
        rows += [(*pair, d), (*pair[::-1], d)][: 1 + (trial % 5 == 0)]
    pairs = [(u, v) for u, v, _ in pairs_of_points(rng, budget.trials(300))]
    pairs += [(np.array([1.0, 0]), np.array([1 - s, s])) for s in (0.01, 0.1, 0.26)]
    for u, v in pairs:
        change, gap, d = abs(entr(u).sum() - entr(v).sum()), np.linalg.norm(u - v), len(u)
        if gap <= 1 / np.e:
            rows.append((change, of_pairs({r"\epsilon": gap, "d": d}), d))
    return compared("<=", rows, "d")


@claim("cv-lemma-a-multiplier")
def multiplier(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Stationarity at a coordinate that stays positive, where mu_i vanishes."""
    rows = []
    for v, _, t in ((np.array([0.5, 0.5]), None, 1), *pairs_of_points(rng, budget.trials(100))):
        left = 2 * (numerics.truncate(v, t)[0] - v[0])
        rows.append((left + value[0]({"S_t": v[:t].sum(), "t": t}), 0.0, v, t, len(v)))
    return compared("==", rows, "v", "t", "size")


def projected(v: np.ndarray, t: int) -> np.ndarray:
    """Euclidean projection of the first t coordinates onto the simplex, by its threshold."""
    sides = v.min() - 1, v.max()
    return (v[:t] - optimize.brentq(lambda x: np.sum((v[:t] - x).clip(0)) - 1, *sides)).clip(0)


@claim("cv-lemma-a")
@claim("cv-a42-rescaling")
def projection(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The largest distance of an entry to the projection; then whether distances do not grow."""
    rows = []
    for u, v, t in pairs_of_points(rng, budget.trials(300)):
        names = ({"v_i": of[:t], "S_t": of[:t].sum(), "t": t, "n": len(of)} for of in (u, v))
        a, b = map(np.atleast_1d, map(value[0], names))
        rows.append((np.abs(a - projected(u, t)).max(), 0.0, u, t, len(u)))
        rows.append((np.linalg.norm(a - b), np.linalg.norm(u - v), u, t, len(u)))
    return compared("<=", rows, "u", "t", "size")


# --- The displays of the proofs ------------------------------------------------------------------


@claim("cv-a42-last-lines")
def last_lines(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Both sides of the substitution on a grid of sizes that meet the condition of Theorem 2."""
    grid = np.meshgrid(2.0 ** np.arange(9, 40), [2, 3, 10, 1e4], [0.05, 0.5, 1 - 1e-9, 1e-9])
    n, t, delta = (np.ravel(part) for part in grid)
    c = 1 + np.sqrt(2 * np.log(4 / delta))
    names = {"n": n, "t": t, _DELTA: delta, r"\epsilon'_\delta": 2 * c / np.sqrt(n)}
    left, right, condition = (form(names) for form in value)
    shown = {"n": n, "t": t, "delta": delta}
    return at_most(left, right, premise_met=condition, parameters=shown, size=n * t)


@claim("cv-theorem-2-second-inequality")
def second_inequality(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The inequality and the reason that is given for it, on a grid of delta."""
    condition, left, right, reason = value
    names = {_DELTA: np.append(np.linspace(0.01, 0.999, 199), [0.91, 0.95])}
    lhs, rhs = [*left(names), *np.ones(201)], [*right(names), *reason(names)]
    delta = np.tile(names[_DELTA], 2)
    met, shown = condition({_DELTA: delta}), {"delta": delta}
    return at_most(lhs, rhs, premise_met=met, size=1 - delta, parameters=shown)


@claim("cv-a43-steps")
def theorem_3_steps(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Each step, often at the ends of the range that the step before leaves it; ratios to 1."""
    size, (asked, within, first, middle, c_0, power) = budget.trials(2000), value
    big_t = 10 ** rng.uniform(-2, 0, size)
    big = big_t * 10 ** rng.uniform(-2, 0, size)
    m_t, least = (v * 10 ** -rng.exponential(size=size) for v in (big_t, big))
    end = rng.random(size) < 0.5
    star = np.where(end, big, least), np.where(end, m_t, big_t)
    names = {"m_T": m_t, "L": least / big_t, r"c_\delta": 1 + rng.exponential(size=size)}
    names |= {"A_*": star[0], "B_*": star[1], "C_0": 2 / m_t + 2 * big / m_t**2}
    epsilon = 2 * names[r"c_\delta"] / np.sqrt(asked(names))
    reach = m_t / 2 * np.where(end, 1.0, rng.random(size))
    off = reach * [rng.choice(most, size) for most in ([-1.0, 1.0, 0.3], [-1.0, 1.0, 0.3, 0.0])]
    names |= {"A": star[0] + off[0], "B": star[1] + off[1], r"\epsilon": reach}
    moved = names["L"] / 2 * np.where(end, 1.0, rng.random(size))
    high = names["L"] * np.where(end, 1.0, 1 + rng.exponential(size=size))
    steps = [
        epsilon / within(names),
        first(names) / middle(names),
        middle(names) / c_0(names),
        ((high - moved) ** -2 - high**-2) / power(names | {"R_*": high, "R": high - moved}),
    ]
    return at_most(np.concatenate(steps), 1.0, tolerance=1e-5)


@claim("cv-theorem-3-condition")
def theorem_3_condition(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The condition and the bound of Theorem 3 where m = M, against their closed forms."""
    bound, condition = latex.formulas(statements.texts()["cv-theorem-3-appendix"]["printed"])
    rows, delta = [], 0.05
    two = product("RKE(T) = Conditional-RKE = 2", [0.5] * 2, [0.5] * 2)
    for p in (two, product("one prompt", [0.5, 0.3, 0.2], [1.0]), *finite_populations()):
        joint, prompts = p.norms(p.weights)
        names = norm_names(p) | {_DELTA: delta, r"\mathrm{CRKE}(P)": (prompts / joint) ** 2}
        names |= {r"\mathrm{RKE}(X,T)": joint**-2, r"\mathrm{RKE}(T)": prompts**-2}
        least, there = (form(names) for form in value)
        rows += [(condition(names), least), (bound(names | {"n": least}), there)]
        delta = rng.uniform(0.01, 0.9)
    return compared("==", rows, measured={f"n asked for at {two.name}, delta = 0.05": rows[0][1]})


@claim("cv-section-5-dropped-condition")
def dropped_condition(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The short bounds against what no error can exceed, below the condition."""
    size = budget.trials(2000)
    delta = np.where(rng.random(size) < 0.5, rng.random(size), 10 ** -rng.uniform(0, 300, size))
    d_x, d_t = np.floor(10 ** rng.uniform(0, 6, (2, size)))
    condition, first, second = value
    n = np.ceil(condition({_DELTA: delta}) * np.sqrt(rng.random(size))) - 1
    names = {"n": n, _DELTA: delta, "d": d_x * d_t, "t": d_t}
    sides = np.array([np.log(d_x) - first(names), 2 * np.log(d_t) - second(names)])[:, n >= 1]

    def informative() -> dict[str, float]:
        names = {"d": 512**2, _DELTA: 0.05}
        found = optimize.root_scalar(
            lambda u: first(names | {"n": np.exp(u)}) - np.log(512), bracket=(2, 40)
        )
        return {"informative at d_X = d_T = 512 from n": np.exp(found.root)}

    return at_most(sides.ravel(), 0.0, measured=informative)


@claim("cv-theorem-3-main", expected=Verdict.FALSE)
def theorem_3_main(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All n rows fall on that of two even prompts whose images never repeat; the other has one."""
    (bound,) = value
    n, images = np.array([10.0, 100, 300, 600, 1000]), 1e12
    # The chance that n of the images differ is at least (1 - n / images)^n.
    delta = 0.5**n * (1 - n / images) ** n * (1 - 1e-9)
    prompts, joint = np.sqrt(0.5), np.sqrt(0.25 * (1 + 1 / images))
    names = {"n": n, _DELTA: delta, "M_T": prompts, "m_T": prompts, "m_{X,T}": joint}
    lhs = n - (prompts / joint) ** 2
    shown = {"n": n, "delta": delta, "score of the sample": n}
    return at_most(lhs, bound(names | {"M_{X,T}": joint}), size=n, parameters=shown)


@claim("cv-assumption-2-always")
def assumption_2_always(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The inequalities, with equality for one prompt or for independent, equally likely modes."""
    rows, even = [], [0.25] * 4
    extremes = [(product("", [1 - 1e-12, 1e-12], [1.0]), (1, 3, 4))]
    extremes += [(product("", even, [0.5, 0.5]), (0, 2)), (product("", even, [1.0]), (0, 1, 2))]
    for p, attained in (*((p, ()) for p in finite_populations()), *extremes):
        joint, prompts = p.norms(p.weights)
        d_x, d_t = p.dimension(p.gram_x), p.dimension(p.gram_t)
        farthest = np.sqrt(np.max(1 - 2 * p.joint**2 @ p.weights) + joint**2)
        names = {"d_X": d_x, "d_T": d_t, r"\lVert C_T\rVert": prompts}
        least, one, low, high, most = (form(names) for form in value)
        pairs = [(least, prompts), (prompts, one), (low, joint), (joint, high), (farthest, most)]
        rows += [*pairs, *(pairs[index][::-1] for index in attained)]
    return compared("<=", rows)


@claim("cv-theorem-1-one-sided", stated=1.0, mutants={"g without the prompts": 0.0})
def one_sided(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Every sample of small populations; equality at n = 1 for equally likely outputs."""
    prompts, mean, bound = value
    populations = [product("even", [1 / d] * d, [1.0]) for d in (2, 3, 6)]
    for _ in range(budget.trials(10)):
        x, t = (numerics.unit_features(rng, 3, 2) for _ in range(2))
        weights = rng.dirichlet(np.full(3, 5.0))
        populations.append(Population("random", x @ x.T, t @ t.T, weights))
    rows: list[Any] = []
    for p, n in itertools.product(populations, (1, 2, 3, 4)):
        f, logs = Cell(p, n).outcomes
        change, d = entropy_error(p, f), p.dimension(p.joint)
        bias, most = -np.exp(logs) @ change, bound({"d": d, "n": n})
        alike = (n * f * linear_part(p, prompts)).T  # Rows of a sample that are equal, together.
        pairs = zip(change, mean({"n": n, "g(x_i,t_i)": alike}), strict=True)
        rows += [(*pair, d) for pair in (*pairs, (-bias, 0.0), (bias, most))]
        rows += [(most, bias, d)] * (n == 1 and p.name == "even")
    return compared("<=", rows, "d", tolerance=1e-7)


# --- Concavity, and what one row does -------------------------------------------------------------

_ONE, _PAIR = np.ones((2, 2)), np.eye(2)
_ORDER_2 = functools.partial(numerics.conditional_entropy, order=2.0)
# Grams of outputs and prompts, and two laws over the atoms.
_LAWS = [
    # One prompt; an output in each law.
    (_PAIR, _ONE, _PAIR),
    # A prompt with one output; another prompt with two.
    (np.eye(3), linalg.block_diag(1, _ONE), np.array([[1, 0, 0], [0, 0.5, 0.5]])),
    # Each of two prompts has an output; has the other's.
    (np.kron(_ONE, _PAIR), np.kron(_PAIR, _ONE), np.array([[1, 0, 0, 1], [0, 1, 1, 0]]) / 2),
]


def _drawn(rng: Rng, atoms: int) -> tuple[np.ndarray, np.ndarray]:
    x, t = (numerics.unit_features(rng, atoms, int(rng.integers(1, 5))) for _ in range(2))
    return x @ x.T, t @ t.T


@claim(
    "cv-concave",
    stated=numerics.conditional_entropy,
    mutants={"information": numerics.information, "order 2": _ORDER_2},
)
def concave(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Mixtures of two laws, drawn and at extremes; samples without each of their rows in turn."""
    entropy = value[0]
    cases = [(share, *case) for share, case in itertools.product((0.5, 0.1), _LAWS)]
    for atoms in rng.integers(2, 7, budget.trials(200)):
        laws = rng.dirichlet(np.full(atoms, rng.choice([0.1, 1.0, 10.0])), size=2)
        cases.append((rng.uniform(), *_drawn(rng, int(atoms)), laws))
    rows = []
    for share, k_x, k_t, laws in cases:
        mixed, n = share * laws[0] + (1 - share) * laws[1], len(k_x)
        first, second, both, whole, *others = (
            entropy(k_x, k_t, weights=of)
            for of in (*laws, mixed, np.full(n, 1 / n), *(1 - np.eye(n)) / (n - 1))
        )
        gap, (p, q, m) = both - share * first - (1 - share) * second, entr([*laws, mixed]).sum(1)
        names = {r"h(\lambda)": binary(share), r"\lambda": share, "S_p": p, "S_q": q, "S": m}
        smooth, most = (form(names) for form in value[1:])
        rows += [(0.0, gap), (gap, smooth), (smooth, most), (np.mean(others), whole)]
        rows += [(smooth, gap), (most, smooth)] * (k_x is _PAIR)
    return compared("<=", rows, tolerance=1e-7)


@claim("cv-one-row")
def one_row(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The largest change over drawn samples and all replaced rows; and where it is attained."""
    rows = []
    grams = [_drawn(rng, int(atoms)) for atoms in rng.integers(3, 8, budget.trials(200))]
    for n in (2, 3, 50):  # The last row has a prompt, or an answer, of its own.
        last = linalg.block_diag(np.ones((n, n)), 1)
        grams += [(np.eye(n + 1), last), (last, np.ones_like(last))]
    for trial, (k_x, k_t) in enumerate(grams):
        n, samples = len(k_x) - 1, (1 - np.eye(len(k_x))) / (len(k_x) - 1)
        change = np.ptp([numerics.conditional_entropy(k_x, k_t, weights=of) for of in samples])
        most = value[0]({"n": n, r"h(\tfrac1n)": binary(1 / n)})
        rows += [(change, most, n), (most, change, n)][: 1 + (trial >= len(grams) - 6)]
    return compared("<=", rows, "n", tolerance=1e-7)
