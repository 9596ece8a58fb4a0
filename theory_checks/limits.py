"""What no estimator of the scores can do, and what noise in embeddings changes: exact laws."""

import functools
import itertools
from typing import Any

import numpy as np
from scipy import stats

from theory_checks.claim import claim
from theory_checks.concentration import _FEW, Rng, binary
from theory_checks.evidence import Budget, Evidence, compared
from theory_checks.numerics import conditional_entropy, exceedances, gaussian, unit_features

_FAR = 20.0  # Stands for all larger logarithmic errors, and for a ratio that is 0 or undefined.
# RKE(T), Conditional-RKE, and n in units of the root of RKE(X,T).
_HARD = tuple(itertools.product([(1, 4), (1, 100), (100, 30), (1, 1e6), (1e4, 1e2)], (1.5, 3, 50)))


def repeats(n: int, mass: float, *rates: float) -> tuple[np.ndarray, ...]:
    """Counts `[outcomes]` of the one prompt and answer that repeat; log chances at each rate."""
    counts, chances = np.arange(n + 1), mass * np.array([1, *rates])
    kept = [stats.binom.logpmf(counts, n, chance) > -60 for chance in chances]
    rows, answers = np.meshgrid(counts[kept[0]], counts[np.any(kept[1:], axis=0)])
    rows, answers = rows.ravel(), answers.ravel()
    logs = stats.binom.logpmf(rows, n, mass)
    return rows, answers, *(logs + stats.binom.logpmf(answers, rows, rate) for rate in rates)


@functools.cache
def errors(own: int) -> list[tuple[int, float, np.ndarray, np.ndarray]]:
    """Of all laws n, RKE(X,T), logarithmic errors and the chances that the ratio reaches them."""
    laws, reached = [], []
    for p, n, (f, logs) in ((cell.population, cell.n, cell.outcomes) for cell in _FEW):
        counts = np.rint(n * f)
        sums = (np.sum(counts @ gram**2 * counts, axis=1) - n for gram in (p.joint, p.gram_t))
        laws.append((n, 1 / p.conditional_rke(p.weights), p.norms(p.weights)[0] ** -2, *sums, logs))
    for (q, r), size in _HARD:
        rows, answers, logs = repeats(n := int(size * np.sqrt(q * r)), q**-0.5, r**-0.5)
        laws.append((n, 1 / r, q * r, answers * (answers - 1.0), rows * (rows - 1.0), logs))
    for n, c, rho, joint, prompts, logs in laws:
        ratio = np.maximum(joint + own * n, 1e-300) / np.maximum(prompts + own * n, 1e-300) / c
        error = np.minimum(np.where(prompts + own > 0, np.abs(np.log(ratio)), _FAR), _FAR)
        reached.append((n, rho, *exceedances(error, logs)))
    return reached


@claim("cv-minimax", stated=0, mutants={"pairs of a row with itself": 1})
def minimax(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Chances of all errors over all samples; the second inequality is attained at epsilon = 1."""
    (own, *forms), rows = value, []
    for n, rho, levels, chances in errors(own):
        names = {"n": n, r"\rho": rho}
        bounds = forms[0](names | {r"\epsilon": np.expm1(levels)})
        rows += [(*pair, n) for pair in zip(chances, np.atleast_1d(bounds), strict=True)]
        sides = [[form(names | {r"\epsilon": e}) for form in forms] for e in (1e-3, 0.1, 1)]
        rows += [(*pair, n) for pair in (*sides, sides[-1][::-1])]
    return compared("<=", rows, "n")


@claim("cv-minimax-below")
def minimax_below(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Total variation of all counts, and the best of all guesses after each of them."""
    (most, error), rows = value, []
    laws = itertools.product([(1, 4), (4, 4), (100, 30), (1e4, 4)], (1, 0.5, 0.1), (0.25, 1, 3))
    for (q, r), e, size in laws:
        n, rates = int(max(size * np.sqrt(q * r) / e**2, 2)), np.array([1, 1 + e]) / np.sqrt(r)
        chances = np.exp(repeats(n, q**-0.5, *rates)[2:])
        tv, unit, logs = np.abs(np.diff(chances, axis=0)).sum() / 2, np.log1p(e), 2 * np.log(rates)
        guesses = logs[0] + unit * np.linspace(-0.5, 2.5, 10)  # None is off by one unit.
        wrong = np.abs(guesses[:, None] - logs) >= unit
        pair = np.sum(np.min(wrong @ chances, axis=0)) / 2, error({r"\mathrm{TV}": tv})
        pairs = (tv, most({"n": n, r"\rho": q * r, r"\epsilon": e})), pair, pair[::-1]
        rows += [(*sides, q, n) for sides in pairs]
    return compared("<=", rows, "RKE(T)", "n", tolerance=1e-9)


def noisy_squares(points: np.ndarray, bandwidth: float, tau: float) -> np.ndarray:
    """Means of the squared Gaussian kernel over the noise of both points, one coordinate a time."""
    grid = np.linspace(-8, 8, 81)  # The trapezoid rule: its error is far below rounding.
    weight = stats.norm.pdf(grid) * (grid[1] - grid[0])
    gaps = (points[:, None] - points)[..., None, None] + tau * np.subtract.outer(grid, grid)
    return np.prod(np.exp(-((gaps / bandwidth) ** 2)) @ weight @ weight, axis=-1)


@claim("cv-encoder-noise")
def encoder_noise(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Drawn points, weights and noise; two rows, and points that are equal or far apart."""
    (product, wider, low, high), rows = value, []
    for trial in range(budget.trials(30)):
        d, d_t, k = *rng.integers(1, 4, 2), int(rng.integers(2, 6)) if trial > 1 else 2
        x, t, w = rng.normal(size=(k, d)), rng.normal(size=(k, d_t)), rng.dirichlet(np.ones(k))
        x = x if trial > 1 else 100.0**trial * np.eye(2, d)
        pairs = np.outer(w, w) * (1 - np.eye(k) * (trial % 3 == 0))  # Of a sample, or of a law.
        s, s_t, tau, tau_t = rng.uniform(0.5, 1, 4) * [2, 2, 0.5, 0.5]
        wide, wide_t = (wider({"s": a, r"\tau": b}) for a, b in ((s, tau), (s_t, tau_t)))
        k_t, clean_t = noisy_squares(t, s_t, tau_t), gaussian(t, bandwidth=wide_t) ** 2
        clean = [gaussian(x, bandwidth=width) ** 2 for width in (s, wide)]
        both = (k_t, noisy_squares(x, s, tau)), *((clean_t, k_x) for k_x in clean)
        noisy, narrow, wider_score = (np.sum(pairs * a) / np.sum(pairs * a * b) for a, b in both)
        names = {"R_s": narrow, "R_{s'}": wider_score, "d": d, "s": s, "s'": wide}
        change, pair = np.log(noisy / narrow), (np.log(noisy), np.log(product(names)))
        sides = [pair, pair[::-1], (low(names), change), (change, high(names))]
        sides += [side[::-1] for side in sides[2 + trial : 3 + trial]]
        rows += [(*side, d, d_t, k, tau_t) for side in sides]
    return compared("<=", rows, "d", "d_t", "rows", "noise of prompts")


@claim("cv-no-upper-limit")
def no_upper_limit(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of up to four rows; scores by Grams of drawn laws with a prompt added."""
    (score, distance, spread), rows = value, []
    for k, new, n in rng.integers(1, 5, (budget.trials(30), 3)):
        x, t = (np.pad(unit_features(rng, k, 4), ((0, new), (0, 1))) for _ in range(2))
        x[k:, :new], t[k:, 4] = np.eye(new), 1  # The prompt is new; outputs need not be.
        share, w, even = rng.uniform(), rng.dirichlet(np.ones(k)), np.full(new, 1 / new)
        laws = np.append(w, 0 * even), np.append((1 - share) * w, share * even)
        before, after = (conditional_entropy(x @ x.T, t @ t.T, weights=law) for law in laws)
        drawn = np.indices((k + new,) * n).reshape(n, -1)
        tv = np.sum(np.abs(np.subtract(*(law[drawn].prod(0) for law in laws)))) / 2
        law, one = np.append(share * even, 1 - share), np.ones((new + 1, new + 1))
        entropy = conditional_entropy(np.eye(new + 1), one, weights=law)
        names = {r"\eta": share, "s": share, "h(s)": binary(share), "N": new, "n": n}
        pairs = (after, score(names | {r"\mathrm{CV}(P)": np.exp(before)})), (tv, distance(names))
        rows += [(*pair, n, new, k) for pair in (*pairs, (entropy, spread(names)))]
    return compared("==", rows, "n", "N", "pairs", tolerance=1e-9)
