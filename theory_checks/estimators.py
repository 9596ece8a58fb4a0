"""Estimators of both orders, the limit of order 1, and what follows from a score: all samples."""

import itertools
from typing import Any

import numpy as np
from scipy import special, stats

from theory_checks import numerics
from theory_checks.claim import claim
from theory_checks.concentration import Cell, Rng, entropy_error, linear_part, operator, orthogonal
from theory_checks.evidence import Budget, Evidence, compared, limit
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
        near = law[2][0, 1]
        names = moments(law) | {"k_i": k, "P": prompts, "n": k.sum()}
        for shares in (np.ones(prompts) / prompts, k / k.sum(), rng.dirichlet(np.ones(prompts))):
            each = np.repeat(shares / k, k)
            left = np.tensordot(np.outer(each, each), h, 2) @ chances
            rows.append((left, norm(names | {"w_i": shares}), near))
        if k.min() > 1:
            prompt = np.repeat(np.arange(prompts), k)
            others = np.equal.outer(prompt, prompt) - np.eye(len(prompt))
            u = np.tensordot(others / (prompts * k * (k - 1))[prompt], h, 2)
            rows.append((u @ chances, names["s_w"], near))
            rows.append(((u - u @ chances) ** 2 @ chances, variance(names), near))
    return compared("==", rows, "k_T of two prompts")


@claim("cv-asked-once")
def asked_once(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of prompts 1 / m apart; in one law a prompt's answers never repeat, or always."""
    total, first, second, rate = value
    names = {"L": 0, r"\kappa": 0, r"\beta": 1 / 450, "n": 30}
    names |= {"V": first(names), "V'": second(names)}  # All answers are equal: only V' is needed.
    rows = [(np.sqrt(np.prod(1 - np.arange(30) / 450)), total(names), 30)]
    for trial, n in itertools.product(range(budget.trials(12)), (2, 3, 4)):
        m, (near, far) = trial % 3 + 1, rng.uniform(size=2)
        p, k_x = rng.dirichlet(np.ones(2), size=m), near + (1 - near) * np.eye(2)
        weights = far + (1 - far) * np.eye(m)
        if trial == 1:
            p, k_x, weights = np.eye(2), np.diag([1, 0]), np.eye(2)
        gram, beta, (t, x) = p @ k_x @ p.T, weights.mean(), np.divmod(np.indices((2 * m,) * n), 2)
        s, c, norms = np.trace(gram) / m, np.mean(weights * gram) / beta, np.diag(gram)
        steep = m * np.sqrt(np.max(norms[:, None] + norms - 2 * gram))
        names = {"L": steep, r"\beta": beta, r"\kappa": (1 - 1 / (m * beta)) / m**2, "n": n}
        names |= {"V": first(names), "V'": second(names)}
        chances, (i, j) = (p / m)[t, x].prod(0), np.triu_indices(n, 1)
        w, k = weights[t[i], t[j]], k_x[x[i], x[j]]
        mean, h = w.mean(0), np.mean(w * (k - c), axis=0)
        estimate = np.where(mean > 0, np.mean(w * k, axis=0) / np.maximum(mean, 1e-9), 0.0)
        squares = [np.sum(chances * e**2) for e in (h / beta, mean / beta - 1, estimate - s)]
        bias = total(names | {"V": 0, "V'": 0})
        pairs = [(squares[0], names["V"]), (squares[1], names["V'"]), (s - c, bias)]
        pairs += [pair[::-1] for pair in pairs[2 * (trial != 1) : 3 * (m == 2)]]
        rows += [(*pair, n) for pair in (*pairs, (c, s), (np.sqrt(squares[2]), total(names)))]
    for d, n, steep in itertools.product((1, 2, 4, 8, 20), (2, 10**3, 10**6), (0.0, 1.0, 100.0)):
        square = float(n) ** (-4 / (4 + d))
        one = np.sqrt(np.pi * square) * special.erf(0.5 / np.sqrt(square))
        kappa = d * square / 2 * (1 - np.exp(-0.25 / square) / one)
        names = {"L": steep, r"\kappa": kappa, r"\beta": one**d, "n": n, "d": d}
        most = total(names | {"V": first(names), "V'": second(names)})
        rows.append((min(most, 1.0), rate(names), n))
    return compared("<=", rows, "n")


def confused(shares: Any, cells: int, letters: int, n: int) -> tuple[Any, ...]:
    """How well n rows tell even letters from letters of which a drawn function prefers one a cell.

    `shares` of the rows at each place in a cell have that one, others are even. Returns the total
    variation, chi-squared, the least mean error of an estimator of E s, and both values of it.
    """
    ratios = 1 + np.reshape(shares, (-1, 1, 1)) * (letters * np.eye(letters) - 1)
    shape = cells, len(ratios), 1, letters
    frequencies, logs = Cell(orthogonal(*np.full(np.prod(shape), 1 / np.prod(shape))), n).outcomes
    powers = ratios ** np.rint(n * frequencies).reshape(-1, *shape)
    ratio, chances = powers.prod((2, 4)).mean(-1).prod(-1), np.exp(logs)
    s = np.array([1 / letters, np.mean(np.sum(ratios[:, 0] ** 2, axis=-1)) / letters**2])
    guess = np.linspace(s[0], s[1], 41)[:, None]
    errors = np.min(np.abs(guess - s[0]) + ratio * np.abs(guess - s[1]), axis=0) / 2
    return chances @ np.abs(ratio - 1) / 2, chances @ ratio**2 - 1, chances @ errors, s


@claim("cv-asked-once-coins")
def coins(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of a few rows."""
    (most, error), rows = value, []
    sizes = (2, 1, 2), (2, 3, 2), (3, 4, 2), (5, 2, 2), (2, 8, 3), (2, 3, 6), (4, 3, 4)
    for a, cells, n in sizes:
        tv, _, least, _ = confused([1.0], cells, a, n)
        bound, half = most({"a": a, "n": n, "M": cells}), error({"a": a, r"\mathrm{TV}": tv})
        rows += [(tv, bound, a, n), (half, least, a, n), (least, half, a, n)]
        rows += [(bound, tv, a, n)] * (n == 2)
    return compared("<=", rows, "a", "n")


@claim("cv-asked-once-signs")
def signs(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of up to 40 rows; r of a uniform point of a cube, by quadrature."""
    (most, error, height), rows = value, []
    sizes = ([0.3], 1, 2), ([0.1], 2, 40), ([0.2], 3, 8), ([0, 0.25], 2, 6), ([0.1, 0.3], 1, 9)
    for q, cells, n in sizes:
        _, chi, least, s = confused(2 * np.array(q), cells, 2, n)
        names = {"n": n, "M": cells, r"\tau": np.mean(np.square(q)), r"\chi^2": chi}
        pairs = [(chi, most(names)), (error(names), least), (s[1], 0.5 + 2 * names[r"\tau"])]
        pairs += [pair[::-1] for pair in pairs[1 + (n > 2) :]]
        rows += [(*pair, cells, 0) for pair in pairs]
    nodes, weights = np.polynomial.legendre.leggauss(9)
    for d, steep, h in itertools.product((1, 2, 5), (0.7, 3.0), (0.1, 0.4)):
        r = h * (1 + nodes) / 4
        square = d * weights / 2 @ ((1 - 2 * r / h) ** (d - 1) * (steep * r) ** 2 / 2)
        pair = square, height({"L": steep, "h": h, "d": d})
        rows += [(*pair, 1, d), (*pair[::-1], 1, d)]
    return compared("<=", rows, "M", "d")


@claim("cv-asked-twice")
def asked_twice(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of up to three prompts; the first two laws attain the bounds."""
    rows: list[tuple[float, ...]] = []
    for trial, prompts in itertools.product(range(budget.trials(8)), (1, 2, 3)):
        w, *p = rng.dirichlet(np.ones(2), size=3) if trial else np.full((3, 2), 0.5)
        near = rng.uniform() * (trial > 1)
        law = w, np.array(p), np.eye(2), np.array([[1, near], [near, 1]])
        (chances, h), r = samples(law, (2,) * prompts), moments(law)["s_w"]
        s = np.mean([h[2 * i, 2 * i + 1] for i in range(prompts)], axis=0)
        most, last = (form({"r": r, "P": prompts}) for form in value)
        pairs = [(r, chances @ s), (chances @ s, r), (most, last), (chances @ (s - r) ** 2, most)]
        pairs += [pair[::-1] for pair in pairs[2 + (trial > 0) : 4 * (trial < 2)]]
        rows += [(*pair, prompts) for pair in pairs]
    return compared("<=", rows, "P")


def cut(kernels: np.ndarray, depth: int) -> np.ndarray:
    """The cut entropy by means over tuples of different rows, of kernels `[n, n, s]`."""
    sets = [itertools.permutations(range(len(kernels)), m) for m in range(1, depth + 1)]
    traces = [np.mean([kernels[t, t[1:] + t[:1]].prod(0) for t in map(list, of)], 0) for of in sets]
    j, power = np.meshgrid(np.arange(1, depth), np.arange(depth))
    return np.sum((-1.0) ** power * special.comb(j, power) / j, axis=1) @ traces


@claim("cv-cut-series", stated=False, mutants={"n in place of K": True})
def cut_series(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Two to four rows of three pairs, which are orthogonal in every third population."""
    rows, sizes = [], ((2, 2), (3, 2), (3, 3), (4, 3), (4, 4))
    for trial, (n, depth) in itertools.product(range(budget.trials(6)), sizes):
        x, w = numerics.unit_features(rng, 3, 2), rng.dirichlet(np.ones(3))
        gram = x @ x.T if trial % 3 else np.eye(3)
        chances, kernels = samples((np.ones(1), w[None], np.ones((1, 1)), gram), (n,))
        names = {r"\lambda_i": numerics.spectrum(gram, w), "w_i": w}
        right = value[1](names | {"j": np.arange(1, n if value[0] else depth)})
        rows.append((cut(kernels, depth) @ chances, right, depth))
    return compared("==", rows, "K")


@claim("cv-cut-saturates")
def saturates(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Random pairs; and 10^13 orthogonal outputs of each prompt, where the bounds are attained."""
    (most, last, series), rows = value, []
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
        rows += [(0.0, score, depth), (score, first, depth), (first, second, depth)]
        rows += [(first, score, depth)] * (trial < 20) + [(second, first, 2)] * (depth == 2)
    return compared("<=", rows, "K")


@claim("cv-order-1-limit", stated="", mutants={x: x for x in ("g of pairs", "no ties", "j near i")})
def normal_limit(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Moments relative to their limits, distances to the normal law; of `tied`, biases alone."""
    (fault, variance, bias, curvature), found = value, []
    x, t = (np.cos(np.subtract.outer(a, a)) for a in ((0, 1.2, 2.5), (0, 2.0, 1.4)))
    two = Population("two", x[:2, :2], t[:2, :2], np.array([0.7, 0.3]))
    three = Population("three", x, t, np.array([0.5, 0.3, 0.2]))
    tied = Population("prompts of one eigenvalue", x, 1.5 * np.eye(3) - 0.5, np.full(3, 1 / 3))
    for p, last in ((orthogonal(0.9, 0.1), 10**5), (two, 10**5), (three, 300), (tied, 300)):
        v, of = variance({"w_i": p.weights, "g_i": linear_part(p, fault != "g of pairs")}), {}
        for key, gram in (("b_{X,T}", p.joint), ("b_T", p.gram_t)):
            lam, features = operator(gram, p.weights)
            m = np.einsum("a,ai,aj->ij", p.weights, features**2, features**2)
            logs, gaps = (np.subtract.outer(each, each) for each in (np.log(lam), lam))
            rule = np.maximum(fault != "no ties", np.eye(len(lam))) / lam
            mean = np.where(np.abs(gaps) < 1e-9, rule, logs / (gaps + (gaps == 0)))
            m = np.tril(np.triu(m, -1), 1) if fault == "j near i" else m
            of[key] = curvature({"m_{ij}": m, "L_{ij}": mean, r"\lambda_i": lam})
        for n in (30, 100, last):
            f, logs = Cell(p, n).outcomes
            errors, chances = entropy_error(p, f), np.exp(logs)
            order = np.argsort(errors)
            gap = np.cumsum(chances[order]) - stats.norm.cdf(errors[order] * np.sqrt(n / v))
            distance = np.max(np.abs([gap, gap - chances[order]]))
            second = n * errors**2 @ chances / v
            second, distance = (1.0, 0.0) if p is tied else (second, distance)
            found.append((second, float(-n * errors @ chances) / bias(of), distance))
    values = np.reshape(found, (4, 3, 3)).swapaxes(1, 2).reshape(12, 3)
    return limit(values, [[1.0], [1.0], [0.0]] * 4, tolerance=0.05)


@claim("cv-orthogonal-outputs")
def shannon(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Conditional-Vendi of tables of probabilities."""
    rows = []
    for m, a in rng.integers(1, 6, (budget.trials(40), 2)):
        table = rng.dirichlet(np.ones(m * a)).reshape(m, a)
        k_x, k_t = np.kron(np.ones((m, m)), np.eye(a)), np.kron(np.eye(m), np.ones((a, a)))
        score = numerics.conditional_entropy(k_x, k_t, weights=table.ravel())
        rows.append((score, value[0]({"p_{ij}": table}), m))
    return compared("==", rows, "prompts")


@claim("cv-new-answers")
def new_answers(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of k classes, of answers never alike, of drawn laws; many classes by moments."""
    (bias, square, most, weight, factor, rest), rows = value, []
    for trial, k in itertools.product(range(budget.trials(12)), (1, 2, 3, 4, 5)):
        p, s, g = np.full(k, 1 / k), np.eye(k) * (trial == 0), np.ones(k)
        if trial > 1:
            p, s, g = rng.dirichlet(np.ones(3)), rng.uniform(size=(3, 3)), rng.uniform(size=3)
            s, g = np.maximum(s, s.T), g ** (trial % 3)
        x = np.indices((len(p),) * k).reshape(k, -1)
        differs, every, i = 1 - (g * s)[:, x], np.arange(x.shape[1]), np.arange(k)[:, None]
        seen, others = np.insert(differs, 0, 1.0, axis=1).cumprod(1), differs[x[:, None], i, every]
        others[i, i] = 1
        chances, y, m = p[x].prod(0), g[x] * seen[x, i, every], np.tensordot(p * g, seen, 1)
        estimate, top = np.mean(g[x] * others.prod(1), axis=0), 0 * chances
        mean, before, after = (part @ chances for part in (estimate, m[-2], m[-1]))
        pairs = [(mean, before), (before, mean), (after, mean), (mean - after, bias({"k": k}))]
        pairs += [(np.max(m[1:] - m[:-1]), 0)] + [pairs[3][::-1]] * (trial == 0)
        pairs += [((estimate - m[-1]) ** 2 @ chances, square({"k": k}))] * (k > 1)
        for n in range(1, k + 1):
            gains = factor({r"\lambda": 1 - trial % 9 / 10, "M_k": m[n], "Y_i": y[:n]})
            bets = np.reshape(gains, (n, -1))[::-1].cumprod(0)[::-1]
            look = weight({"j": np.arange(1, n + 1)}) @ bets + rest({"k": n})
            top = np.maximum(top, look)
        levels = np.quantile(top, np.linspace(0, 1, 9), method="nearest") * (1 - 1e-12)
        pairs += [(chances[top >= level].sum(), 1 / level) for level in levels if level > 0]
        rows += [(*pair, k, np.min(g)) for pair in pairs]
    for k, n in ((3, 4), (30, 35), (3000, 3519)):
        one, two = 1 - np.array([1, 2]) / n
        error = one ** (k - 1) / k + one**k / n + one * two ** (k - 2) * (4 / n**2 - 1 / k)
        pairs = (error, square({"k": k})), (square({"k": k}), most({"k": k}))
        rows += [(*pair, k, 1) for pair in pairs]
    return compared("<=", rows, "k", "least quality")


@claim("cv-alarms", stated=1.0, mutants={"means of 5/4 of the bound": 1.25})
def alarms(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All outcomes of four looks at two prompts, stopped at any height; answers of two kinds."""
    (share, most, factor, one, weight, rest, chance), rows = value, []
    u = np.indices((2,) * 8).reshape(4, 2, -1)
    seen = np.cumsum(u.sum(1), axis=0) - u.sum(1)  # In looks before: means may depend on them.
    for trial in range(budget.trials(15)):
        a, off = rng.uniform(0.05, 0.7, 2), rng.uniform(-0.05, 0.05, 9)[seen] * (trial % 2)
        s = np.stack([share * a[0] + off, share * a[1] - off], axis=1)
        chances, m = np.where(u, s, 1 - s).prod((0, 1)), [0.0]
        names = {"U_{tp}": u, "a_p": a[:, None], r"\lambda": most({r"a_{\max}": a.max()})}
        names[r"\lambda"] *= 1 - trial % 3 / 3
        for t, gain in enumerate(gains := factor(names).prod(1), start=1):
            m.append((m[-1] + weight({"j": t})) * gain)
        m = np.array(m[1:]) + rest({"t": np.arange(1, 5)})[:, None]
        for height in np.quantile(m, np.linspace(0, 1, 9), method="nearest") * (1 - 1e-12):
            stop = np.append(m[:3] >= height, np.ones_like(m[:1]), axis=0).argmax(0)
            mean, alarm = np.choose(stop, m) @ chances, (m.max(0) >= height) @ chances
            pairs = (mean, one({})), (alarm, 1 / height), (0.0, gains.min()), (one({}), mean)
            rows += [(*pair, 2, trial % 2) for pair in pairs[: 4 - trial % 2]]
    for trial, (n, k) in itertools.product(range(9), ((1, 2), (1, 8), (2, 3))):
        h = rng.uniform(size=3) if trial % 2 else np.array([0, 1, 0])
        a, c = rng.uniform(size=n) ** (trial % 3 * 4 + 1), np.indices((k + 1,) * n).reshape(n, -1)
        u = h @ np.mean([c * (c - 1), 2 * c * (k - c), (k - c) * (k - c - 1)], 1) / (k * (k - 1))
        names = {"P": n, "k": k, "s": h @ np.mean([a**2, 2 * a * (1 - a), (1 - a) ** 2], axis=1)}
        chances = stats.binom.pmf(c, k, a[:, None]).prod(0)
        for level in np.unique(u[u < names["s"]]):
            pair = (u <= level * (1 + 1e-12)) @ chances, chance(names | {"u": max(level, 1e-300)})
            both = pair, pair[:: -1 if level == 0 and n * k == 2 else 1]
            rows += [(*sides, n, 2) for sides in both]
    return compared("<=", rows, "P", "drift")


@claim("cv-good-and-different", stated=2, mutants={"at three draws, any kernel": 3})
def good_and_different(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """All samples of three outputs on a line, then of any and of classes; more alike; one bad."""
    (draws, estimate, second, most, classes), k, rows = value, np.arange(1, 4), []
    x, line = np.indices((3,) * 3).reshape(3, -1), 0.9 ** np.square(np.subtract.outer(k, k))

    def counted(g: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """N_1 to N_3, draw by draw; and what leaves each output different from each other one."""
        others = 1 - g[x] * s[x[:, None], x] * (1 - np.eye(3)[..., None])
        new = g[x] * np.where(np.tri(3)[..., None], others, 1).prod(1)
        return np.cumsum(new @ p[x].prod(0)), others.transpose(2, 0, 1)

    for trial in range(budget.trials(20)):
        p, g = rng.dirichlet(np.ones(3)), rng.permutation([1, 1, trial % 3 > 0])
        s, alike = (np.maximum(part, part.T) for part in rng.uniform(size=(2, 3, 3)))
        s, last = (np.eye(3), 3) if trial % 2 else (s, draws)
        p, s, g = (p, s, g) if trial else (np.array([0.45, 0.1, 0.45]), line, np.ones(3))
        (count, v), y, good = counted(g, s), p @ g, p * g
        names = {"p_i": good, "y": y, "s": good @ s @ good / y**2}
        same = [(count[0], y), (second(names), count[1])]
        for n, m in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3)):
            part = v[:, :n, :n]
            e = np.stack([np.ones_like(part[..., 0]), part.sum(2) - 1, part.prod(2)], axis=2)
            names |= {"n": n, "k": m, "g_i": g[x[:n].T, None], "e_{ij}": e[..., :m]}
            names[r"\tbinom{n-1}j"] = special.comb(n - 1, np.arange(m))
            mean = estimate(names) @ p[x].prod(0)
            same += [(mean, count[m - 1]), (classes(names), count[m - 1])][: 1 + trial % 2]
        gains, fewer = np.diff(count, prepend=0), counted(g * (k != 2), s)[0]
        same += [pair[::-1] for pair in same] + [(0, gains[2]), *np.c_[gains[1:], gains[:2]]]
        same += [*np.c_[counted(g, np.maximum(s, alike))[0], count], *np.c_[fewer, count][:last]]
        same += [*np.c_[count, most({"k": k, "y": y})]]
        rows += [(*pair, trial % 2, g.min()) for pair in same]
    return compared("<=", rows, "classes", "least quality")


@claim("cv-all-encoders")
def encoders(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Couplings of two p-values on a grid, with effects and without; equal ones attain levels."""
    rows, k, alpha = [], np.arange(1, 41), np.arange(1, 11)[:, None] / 20
    for trial in range(budget.trials(60)):
        half, true = rng.permutation(20), rng.integers(-1, 2, (2, 1)) * (trial % 3 == 2)
        ranks = [k, rng.permutation(k) if trial % 2 else k[np.append(half, half + 20)]]
        more = np.clip((ranks if trial else [k, k]) - 4 * true, 1, 40)
        p, sign = np.minimum(more, 41 - more) / 20, np.sign(20.5 - more)
        wrong = np.any(sign != true, axis=0) & (sign[0] == sign[1])
        pairs = np.c_[np.mean(wrong & (value[0]({"p_i": p}) < alpha + 0.01), axis=1), alpha]
        pairs = [*pairs, *pairs[: 10 * (trial == 0), ::-1]]
        rows += [(*pair, np.any(true), trial % 2) for pair in pairs]
    return compared("<=", rows, "differences", "any ranks")


@claim("cv-shares")
def shares(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Two laws of answers; their estimates by all samples of two answers each to one prompt."""
    w, (a, b, c, d), rows = np.linspace(0, 1, 101), np.indices((3,) * 4).reshape(4, -1), []
    weights = np.stack([w**2, 2 * w * (1 - w), (1 - w) ** 2], axis=1)
    for _ in range(budget.trials(40)):
        x, (p, q) = numerics.unit_features(rng, 3, 2), rng.dirichlet(np.ones(3), 2)
        k, chances = (x @ x.T) ** 2, p[a] * p[b] * q[c] * q[d]
        j = np.array([k[a, b], (k[a, c] + k[a, d] + k[b, c] + k[b, d]) / 4, k[c, d]])
        true = np.array([p @ k @ p, p @ k @ q, q @ k @ q])
        chosen, best = weights[np.argmin(weights @ j, axis=0)], np.min(weights @ true)
        naive, held = chances @ np.sum(chosen.T * j, axis=0), chances @ (chosen @ j) @ chances
        names = dict(zip(("J_{aa}", "J_{ab}", "J_{bb}"), true, strict=True))
        real, least, share = chances @ chosen @ true, *(form(names) for form in value)
        mixed, ends = share * p + (1 - share) * q, min(true[0], true[2])
        pair = (least, mixed @ k @ mixed) if true[1] < ends else (ends, best)
        rows += [pair, pair[::-1], (pair[0], best), (naive, best), (best, real)]
        rows += [(held, real), (real, held)]
    return compared("<=", rows)


@claim("cv-greedy")
def greedy(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """Three to five rows, c such that even shares are best; first one row between two; subsets."""
    (rate, certificate), rows = value, []
    for trial in range(budget.trials(30)):
        x = numerics.unit_features(rng, trial % 3 + 3, 3)
        x = x if trial else np.array([[1, 0], [0.8, 0.6], [0.8, -0.6]])
        k, w, best = 0.9 * (x @ x.T) ** 2, 0.0, np.arange(len(x)) >= 1 - trial % 2
        np.fill_diagonal(k, 1)
        best = best / best.sum()
        s, c = best @ k @ best, 2 * k @ best - 0.08 * (best == 0)
        for n in range(1, 8):
            ends = ((n - 1) * w + np.eye(len(x))) / n
            f = np.sum(ends @ k * ends, axis=1) - ends @ c
            names, w = {"s": s, "j": np.arange(1, n + 1), "k": n}, ends[np.argmin(f)]
            rows += [(min(f) + s, rate(names)), (-s, min(f))]
        for n, v in itertools.product(range(1, len(x) + 1), (w, best)):
            for kept in map(list, itertools.combinations(range(len(x)), n)):
                names = {"r_i": (k @ v)[kept], "c_i": c[kept], "z": v @ k @ v, "k": n}
                rows.append((certificate(names), np.mean(k[kept][:, kept]) - c[kept].mean()))
    return compared("<=", rows)
