"""Order 2 at a design, order 1 by a series that is cut, and the limit of order 1: all samples."""

import itertools
from typing import Any

import numpy as np
from scipy import special, stats

from theory_checks import numerics
from theory_checks.claim import claim
from theory_checks.concentration import Cell, Orthogonal, Rng, entropy_error, linear_part, operator
from theory_checks.evidence import Budget, Evidence, at_most, equal, limit
from theory_checks.populations import Population

# Probabilities of prompts `[m]`, of the answers to each `[m, a]`, and the kernels of both.
Law = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def samples(law: Law, counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Chances of all samples of so many answers to each prompt, and the kernel `[n, n, s]`."""
    w, p, k_t, k_x = law
    drawn = np.indices([size for k in counts for size in (len(w), *[p.shape[1]] * k)])
    drawn = drawn.reshape(len(drawn), -1)
    first = np.cumsum([0, *(k + 1 for k in counts[:-1])])
    t, x = np.repeat(drawn[first], counts, axis=0), np.delete(drawn, first, axis=0)
    return w[drawn[first]].prod(0) * p[t, x].prod(0), k_t[t[:, None], t] * k_x[x[:, None], x]


def moments(law: Law) -> dict[str, float]:
    """Names of the moments of the kernel between answers to one prompt, and to two."""
    w, p, k_t, k_x = law
    joint, rows = w[:, None] * p, p @ k_x
    mean, shared, single = (np.sum(p * of, axis=1) for of in (rows, rows**2, p @ k_x**2))
    first, second = w @ (shared - mean**2), w @ (single - mean**2)
    other, spread = np.sum(k_t @ joint @ k_x * joint), np.sqrt(w @ (mean - w @ mean) ** 2)
    return {"s_w": w @ mean, "s_b": other, r"\tau": spread, r"\zeta_1": first, r"\zeta_2": second}


@claim("cv-order-2-designs")
def designs(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Small designs, with even outputs, with one law for all prompts, and with drawn laws."""
    (norm, variance), rows = value, []
    laws: list[Law] = [(np.full(2, 0.5), np.full((2, 2), 0.5), np.eye(2), np.eye(2))]
    for trial in range(budget.trials(8)):
        (w, *p), x = rng.dirichlet(np.ones(2), size=3), numerics.unit_features(rng, 4, 2)
        kernels = (x[:2] @ x[:2].T) ** 2, (x[2:] @ x[2:].T) ** 2
        laws.append((w, np.array([p[0], p[trial % 4 > 0]]), *kernels))
    several = ((2, 2), (3,), (1, 1, 1), (2, 3), (1, 2), (4,), (2, 2, 2))
    for law, counts in itertools.product(laws, several):
        (chances, h), k, prompts = samples(law, counts), np.array(counts), len(counts)
        names = moments(law) | {"k_i": k, "P": prompts, "n": k.sum()}
        cases = names[r"\tau"] < 1e-9, names[r"\zeta_1"] < 1e-12
        cases += np.ptp(k) == 0, k.max() == 1, k.min() == k.max() == 2
        for shares in (np.ones(prompts) / prompts, k / k.sum(), rng.dirichlet(np.ones(prompts))):
            each = np.repeat(shares / k, k)
            left = np.tensordot(np.outer(each, each), h, 2) @ chances
            right, even = norm(names | {"w_i": shares}), np.allclose(shares, 1 / prompts)
            rows.append((left, right, *cases, even))
        if k.min() > 1:
            prompt = np.repeat(np.arange(prompts), k)
            others = np.equal.outer(prompt, prompt) - np.eye(len(prompt))
            u = np.tensordot(others / (prompts * k * (k - 1))[prompt], h, 2)
            rows.append((u @ chances, names["s_w"], *cases, True))
            rows.append(((u - u @ chances) ** 2 @ chances, variance(names), *cases, True))
    lhs, rhs, *met = zip(*rows, strict=True)
    words = "one law of answers", "zeta_1 is 0", "equal numbers of answers"
    words += "one answer to each prompt", "two answers to each prompt", "equal shares"
    return equal(lhs, rhs, cases=dict(zip(words, met, strict=True)))


def cut(kernels: np.ndarray, depth: int) -> np.ndarray:
    """The cut entropy by means over tuples of different rows, of kernels `[n, n, s]`."""
    sets = [itertools.permutations(range(len(kernels)), m) for m in range(1, depth + 1)]
    traces = [np.mean([kernels[t, t[1:] + t[:1]].prod(0) for t in map(list, of)], 0) for of in sets]
    j, power = np.meshgrid(np.arange(1, depth), np.arange(depth))
    return np.sum((-1.0) ** power * special.comb(j, power) / j, axis=1) @ traces


@claim("cv-cut-series")
def cut_series(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Two to four rows of three pairs, which are orthogonal in every third population."""
    rows, sizes = [], ((2, 2), (3, 2), (3, 3), (4, 3), (4, 4))
    for trial, (n, depth) in itertools.product(range(budget.trials(6)), sizes):
        x, w = numerics.unit_features(rng, 3, 2), rng.dirichlet(np.ones(3))
        gram = x @ x.T if trial % 3 else np.eye(3)
        chances, kernels = samples((np.ones(1), w[None], np.ones((1, 1)), gram), (n,))
        names = {r"\lambda_i": numerics.spectrum(gram, w), "w_i": w, "j": np.arange(1, depth)}
        rows.append((cut(kernels, depth) @ chances, value[0](names), depth, trial % 3 == 0))
    lhs, rhs, depths, orthogonal = map(list, zip(*rows, strict=True))
    return equal(lhs, rhs, parameters={"K": depths}, cases={"orthogonal pairs": orthogonal})


@claim("cv-cut-saturates")
def saturates(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Random pairs; and 10^13 orthogonal outputs of each prompt, where the bounds are attained."""
    (most, last, series), sides = value, []
    for trial in range(budget.trials(100)):
        n, depth = int(rng.integers(2, 9)), int(rng.integers(2, 12)) if trial % 4 else 2
        x, t = (numerics.unit_features(rng, n, int(rng.integers(1, 9))) for _ in range(2))
        w, copies = rng.dirichlet(np.full(n, rng.choice([0.3, 1, 10]))), 1e13 if trial < 20 else 1
        prompts = numerics.spectrum(t @ t.T, w)
        pairs = prompts / copies if trial < 20 else numerics.spectrum(x @ x.T * (t @ t.T), w)
        names = {"K": depth, "j": np.arange(1, depth), r"\mathrm{RKE}(T)": 1 / np.sum(prompts**2)}
        names["H^K(T)"] = series(names | {r"\lambda_i": prompts})
        score = copies * series(names | {r"\lambda_i": pairs}) - names["H^K(T)"]
        first, second = most(names), last(names)
        sides += [(0.0, score, depth), (score, first, depth), (first, second, depth)]
        sides += [(first, score, depth)] * (trial < 20) + [(second, first, 2)] * (depth == 2)
    lhs, rhs, depths = map(list, zip(*sides, strict=True))
    return at_most(lhs, rhs, parameters={"K": depths})


@claim("cv-order-1-limit", stated=1.0, mutants={"g without the prompts": 0.0})
def normal_limit(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Moments relative to their limits, distances to the normal law; of `tied`, biases alone."""
    (part, variance, bias, curvature), found = value, []
    x, t = (np.cos(np.subtract.outer(a, a)) for a in ((0, 1.2, 2.5), (0, 2.0, 1.4)))
    two = Population("two", x[:2, :2], t[:2, :2], np.array([0.7, 0.3]))
    three = Population("three", x, t, np.array([0.5, 0.3, 0.2]))
    tied = Population("prompts of one eigenvalue", x, 1.5 * np.eye(3) - 0.5, np.full(3, 1 / 3))
    for p, last in ((Orthogonal([0.9, 0.1]), 10**5), (two, 10**5), (three, 300), (tied, 300)):
        v, of = variance({"w_i": p.weights, "g_i": linear_part(p, part)}), {}
        for key, gram in (("b_{X,T}", p.joint), ("b_T", p.gram_t)):
            lam, features = operator(gram, p.weights)
            m = np.einsum("a,ai,aj->ij", p.weights, features**2, features**2)
            logs, gaps = (np.subtract.outer(each, each) for each in (np.log(lam), lam))
            mean = np.where(np.abs(gaps) < 1e-9, 1 / lam, logs / (gaps + (gaps == 0)))
            of[key] = curvature({"m_{ij}": m, "L_{ij}": mean, r"\lambda_i": lam})
        for n in (30, 100, last):
            f, logs = Cell(p, n).outcomes
            errors, chances = entropy_error(p, f), np.exp(logs)
            order = np.argsort(errors)
            gap = np.cumsum(chances[order]) - stats.norm.cdf(errors[order] * np.sqrt(n / v))
            distance = np.max(np.abs([gap, gap - chances[order]]))
            second = n * errors**2 @ chances / v
            second, distance = (1.0, 0.0) if p is tied else (second, distance)
            found.append((second, -n * errors @ chances / bias(of), distance))
    values = np.reshape(found, (4, 3, 3)).swapaxes(1, 2).reshape(12, 3)
    cases = {"orthogonal pairs": np.arange(12) < 3}
    return limit(values, [[1.0], [1.0], [0.0]] * 4, tolerance=0.05, cases=cases)


@claim("cv-orthogonal-outputs")
def shannon(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Conditional-Vendi of tables of probabilities."""
    lhs, rhs, sizes = [], [], rng.integers(1, 6, (budget.trials(40), 2))
    for m, a in sizes:
        table = rng.dirichlet(np.ones(m * a)).reshape(m, a)
        k_x, k_t = np.kron(np.ones((m, m)), np.eye(a)), np.kron(np.eye(m), np.ones((a, a)))
        lhs.append(numerics.conditional_entropy(k_x, k_t, weights=table.ravel()))
        rhs.append(value[0]({"p_{ij}": table}))
    return equal(lhs, rhs, cases={"one prompt": sizes[:, 0] == 1})
