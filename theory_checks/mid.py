"""Mutual Information Divergence: what the MID paper states, on samples and by quadrature.

Rows are pairs z = [x; y] of the two modalities, with d_x and d_y coordinates; a hat marks
evaluated pairs as against reference pairs. Covariances divide by the number of rows: that is what
MID eq. 13 and 18-19 use.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special, stats

import condvendi_jax as cv
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, at_most, equal
from theory_checks.numerics import covariance

# A Monte-Carlo mean is compared within five of its standard errors: a true identity is then called
# false with chance 6e-7 a trial.
STANDARD_ERRORS = 5.0

Moments = tuple[np.ndarray, np.ndarray]
NORMAL: Any = stats.multivariate_normal

# Three pairs of correlation 1/2, and four of correlation 0.
THREE = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
FOUR = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])


def moments(sample: np.ndarray) -> Moments:
    """Mean and covariance (divided by N) of the rows of a sample `[n, d]`."""
    mean = sample.mean(axis=0)
    return mean, (sample - mean).T @ (sample - mean) / len(sample)


def blocks(of: Moments, d_x: int) -> tuple[Moments, Moments, Moments]:
    """Moments of x, of y, and of both."""
    mean, cov = of
    return (mean[:d_x], cov[:d_x, :d_x]), (mean[d_x:], cov[d_x:, d_x:]), of


def log_det(cov: np.ndarray) -> float:
    """Sum of the logarithms of the eigenvalues (MID section 3.1)."""
    return float(np.log(np.linalg.eigvalsh(cov)).sum())


def information(of: Moments, d_x: int) -> float:
    """Mutual information of a Gaussian by determinants (MID eq. 3), in nats."""
    x, y, both = (log_det(cov) for _, cov in blocks(of, d_x))
    return 0.5 * (x + y - both)


def divergence(p: Moments, q: Moments) -> float:
    """Kullback-Leibler divergence of Gaussians (MID appendix A.3), in nats."""
    shift, gap = q[0] - p[0], np.trace(np.linalg.solve(q[1], p[1] - q[1]))
    return 0.5 * float(gap + shift @ np.linalg.solve(q[1], shift) + log_det(q[1]) - log_det(p[1]))


def mahalanobis(rows: np.ndarray, of: Moments) -> np.ndarray:
    """Squared distance of every row (`D_M^2` of MID eq. 4)."""
    centred = rows - of[0]
    return np.sum(centred * np.linalg.solve(of[1], centred.T).T, axis=1)


def log_ratio(z: np.ndarray, of: Moments, d_x: int) -> np.ndarray:
    """log p(x, y) / (p(x) p(y)) of every pair by SciPy's densities: what PMI is defined as."""
    parts = zip((z[:, :d_x], z[:, d_x:], z), blocks(of, d_x), strict=True)
    x, y, joint = (np.atleast_1d(NORMAL.logpdf(rows, *own)) for rows, own in parts)
    return joint - x - y


def pmi(z: np.ndarray, of: Moments, d_x: int, signs: Any = (1.0, 0.5, 1.0)) -> np.ndarray:
    """MID eq. 4 for every pair; of its signs every one can be wrong."""
    parts = zip((z[:, :d_x], z[:, d_x:], z), blocks(of, d_x), strict=True)
    x, y, both = (mahalanobis(*part) for part in parts)
    return signs[0] * information(of, d_x) + signs[1] * (x + y - signs[2] * both)


def canonical(cov: np.ndarray, d_x: int) -> tuple[np.ndarray, np.ndarray]:
    """Canonical correlations, and the map `[d_x, d_y]` that takes y to x = y / rho in them."""
    root_x, root_y = (np.linalg.cholesky(block) for block in (cov[:d_x, :d_x], cov[d_x:, d_x:]))
    white = np.linalg.solve(root_y, np.linalg.solve(root_x, cov[:d_x, d_x:]).T).T
    left, rho, right = np.linalg.svd(white, full_matrices=False)
    return rho, root_x @ (left / rho) @ np.linalg.solve(root_y.T, right.T).T


def regression(of: Moments, d: int) -> Moments:
    """Slopes of the last coordinates on the first d, and the covariance that is left."""
    gain = np.linalg.solve(of[1][:d, :d], of[1][:d, d:]).T
    return gain, of[1][d:, d:] - gain @ of[1][:d, d:]


def conditional_gap(hat: Moments, of: Moments, d: int) -> float:
    """E KL(p(b hat given a hat) || p(b given a)) for a the first d coordinates, in nats."""
    (gain_hat, rest_hat), (gain, rest) = regression(hat, d), regression(of, d)
    shift = (hat[0] - of[0])[d:] - gain @ (hat[0] - of[0])[:d]
    turn = (gain_hat - gain) @ np.linalg.cholesky(hat[1][:d, :d])
    moved = np.sum(turn * np.linalg.solve(rest, turn))
    return divergence((shift, rest_hat), (0 * shift, rest)) + 0.5 * float(moved)


def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Correlated, skewed rows with their own scales and means: nothing that is Gaussian."""
    noise = rng.normal(size=(n, d)) + 0.4 * rng.exponential(size=(n, d))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return noise * rng.uniform(0.5, 2.0, d) @ turn * rng.uniform(0.5, 2.0, d) + rng.normal(size=d)


def _samples(
    rng: np.random.Generator, trials: int, *, shared: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Reference pairs, evaluated pairs (with the conditions of the reference if shared), d_x."""
    for _ in range(trials):
        d_x, d_y = (int(d) for d in rng.integers(1, 5, 2))
        n = int(rng.integers(3 * (d_x + d_y), 60))
        pairs, z = draw(rng, n, d_x + d_y), draw(rng, n, d_x + d_y)
        yield pairs, np.hstack([z[:, :d_x], (pairs if shared else z)[:, d_x:]]), d_x


def _shown(cases: list[tuple[np.ndarray, np.ndarray, int]]) -> dict[str, Any]:
    """Reference and evaluated pairs, where they are few, and how many numbers they are."""
    few = [case[:2] if case[0].size < 9 else "random" for case in cases]
    return {"parameters": {"reference, evaluated": few}, "size": [c[0].size for c in cases]}


@claim("mid-xmi", stated=-1.0, corrected=1.0, mutants={"two thirds of it": 2 / 3})
def cross_information(rng: np.random.Generator, budget: Budget, sign: float) -> Evidence:
    """Eq. 5 against cross-entropies by regression of y on x."""
    cases = [(THREE, THREE, 1), *_samples(rng, budget.trials(30))]
    mids, crosses = [], []
    for pairs, z, d in cases:
        of = moments(pairs)
        gain, rest = regression(of, d)
        missed = z[:, d:] - of[0][d:] - (z[:, :d] - of[0][:d]) @ gain.T
        alone = NORMAL.logpdf(z[:, d:], *blocks(of, d)[1])
        crosses.append(sign * np.mean(NORMAL.logpdf(missed, cov=rest) - alone))
        mids.append(pmi(z, of, d).mean())
    return equal(mids, crosses, **_shown(cases))


@claim(
    "mid-eq-3",
    stated=(0.5, 1.0, 0.5),
    mutants={
        "no half": (1.0, 1.0, 0.5),
        "the joint determinant twice": (0.5, 2.0, 0.5),
        "a density without its root": (0.5, 1.0, 1.0),
    },
)
def information_by_determinants(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Against the expectation of eq. 1 by quadrature and the canonical correlations."""
    half, joint, power = value
    printed, others = [], []
    points, weights = special.roots_hermitenorm(4)
    for trial in range(budget.trials(12)):
        d_x, d = 1 + trial % 2, 2 + trial % 2 + trial % 3
        of = rng.normal(size=d), covariance(rng, d, rank=d + 3)
        x, y, z = (log_det(block) for _, block in blocks(of, d_x))
        nodes, chances = (
            np.array(list(itertools.product(part, repeat=d))) for part in (points, weights)
        )
        nodes = of[0] + nodes @ np.linalg.cholesky(of[1]).T
        expected = chances.prod(1) @ log_ratio(nodes, of, d_x) / chances.prod(1).sum()
        by_correlations = -0.5 * np.sum(np.log1p(-(canonical(of[1], d_x)[0] ** 2)))
        scale = (2 * math.pi) ** (d / 2) * np.linalg.det(of[1]) ** power
        printed += [half * (x + y - joint * z)] * 2
        printed.append(np.exp(-0.5 * mahalanobis(nodes[:1], of)[0]) / scale)
        others += [expected, by_correlations, NORMAL.pdf(nodes[0], *of)]
    wide = 1e-4 * covariance(rng, 200, rank=400)
    by_cholesky = 2 * np.log(np.diag(np.linalg.cholesky(wide))).sum()
    return equal([*printed, log_det(wide)], [*others, by_cholesky])


@claim(
    "mid-maximum-entropy",
    stated=2 * math.pi * math.e,
    mutants={"two thirds of the variance": 4 * math.pi * math.e / 3},
)
def gaussian_has_most_entropy(rng: np.random.Generator, budget: Budget, factor: float) -> Evidence:
    """Differential entropies in closed form against the Gaussian's of equal variance."""
    families: list[Any] = [stats.norm(), stats.uniform(), stats.laplace(), stats.logistic()]
    for a, b in rng.uniform(0.3, 8.0, size=(budget.trials(10), 2)):
        families += [stats.t(2.05 + 4 * a), stats.gamma(a), stats.beta(a, b)]
    limits = [0.5 * math.log(factor * family.var()) for family in families]
    return at_most([float(family.entropy()) for family in families], limits)


@claim(
    "mid-eq-4",
    stated=(1.0, 0.5, 1.0),
    mutants={
        "no information": (0.0, 0.5, 1.0),
        "no half": (1.0, 1.0, 1.0),
        "the joint distance added": (1.0, 0.5, -1.0),
    },
)
def pointwise_formula(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The formula against the log ratio of densities, and its mean against the library."""
    printed, defined = [], []
    for _ in range(budget.trials(10)):
        pairs, z = draw(rng, 24, 5), draw(rng, 16, 5)
        scores = pmi(z, moments(pairs), 2, value)
        printed += [*scores, scores.mean()]
        named: Any = {"reference_outputs": pairs[:, :2], "reference_prompts": pairs[:, 2:]}
        library = float(cv.baselines.mutual_information_divergence(z[:, :2], z[:, 2:], **named))
        defined += [*log_ratio(z, moments(pairs), 2), library]
    return equal(printed, defined)


@claim(
    "mid-divergence",
    stated=0.0,
    corrected=0.5,
    mutants={"two thirds of the excess": 1 / 3, "three halves of it": 0.75},
)
def best_evaluated_pairs(rng: np.random.Generator, budget: Budget, share: float) -> Evidence:
    """MID of real, random and exaggerated outputs of the reference's conditions."""
    cases, values, limits = [], [], []
    for pairs, _, d in [(THREE, THREE, 1), *_samples(rng, budget.trials(30))]:
        of = moments(pairs)
        rho, outwards = canonical(of[1], d)
        exaggerated = of[0][:d] + (pairs[:, d:] - of[0][d:]) @ outwards.T
        for x in (pairs[:, :d], exaggerated, exaggerated + draw(rng, len(pairs), d)):
            cases.append((pairs, np.hstack([x, pairs[:, d:]]), d))
            values.append(pmi(cases[-1][1], of, d).mean())
            limits.append(information(of, d) + share * len(rho))
            # The bound is attained: the second of each three is tried from both sides.
            if x is exaggerated:
                cases.append(cases[-1])
                values.append(limits[-1])
                limits.append(values[-2])
    return at_most(values, limits, **_shown(cases))


@claim(
    "mid-chain",
    stated="y given x",
    mutants={"the output given the condition": "x given y", "the divergence of pairs": "joint"},
)
def information_less_divergence(rng: np.random.Generator, budget: Budget, which: str) -> Evidence:
    """MID against information less divergence, equality cases included."""
    cases = [(FOUR, FOUR * [3.0, 1.0], 1), (THREE, THREE * [2.0, 1.0], 1), (THREE, THREE, 1)]
    cases += _samples(rng, budget.trials(30), shared=True)
    mids, others = [], []
    for pairs, z, d in cases:
        hat, of = moments(z), moments(pairs)
        turned = [(np.roll(m, -d), np.roll(c, (-d, -d), (0, 1))) for m, c in (hat, of)]
        gaps = {
            "y given x": conditional_gap(hat, of, d),
            "x given y": conditional_gap(turned[0], turned[1], len(of[0]) - d),
            "joint": divergence(hat, of),
        }
        mids.append(log_ratio(z, of, d).mean())
        others.append(information(hat, d) - gaps[which])
    return equal(mids, others, **_shown(cases))


@claim(
    "mid-eq-7-any-pairs",
    stated=(False, lambda t: t["I hat"] + t["x"] - t["z"]),
    corrected=(False, lambda t: t["I hat"] + t["x"] + t["y"] - t["z"]),
    mutants={"the reference information": (False, lambda t: t["I"] + t["x"] + t["y"] - t["z"])},
)
@claim(
    "mid-eq-7",
    stated=(
        True,
        lambda t: [t["I hat"] + t["x"] - t["z"], t["I"] + t["x"] + t["y"] - t["z"] - t["logs"]],
    ),
    mutants={
        "the condition's divergence instead": (True, lambda t: t["I hat"] + t["y"] - t["z"]),
        "the reference information": (True, lambda t: t["I"] + t["x"] - t["z"]),
        "divergences in the other direction": (True, lambda t: t["I hat"] + t["back"]),
        "determinants added": (True, lambda t: t["I"] + t["x"] + t["y"] - t["z"] + t["logs"]),
    },
)
def relation_to_divergences(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """MID by densities against its terms, the conditions shared with the reference or not."""
    shared, side = value
    moved = FOUR + ([1.0, 0.0] if shared else [0.0, 1.0])
    cases = [(FOUR, moved, 1), *_samples(rng, budget.trials(30), shared=shared)]
    mids, right = [], []
    for pairs, z, d in cases:
        hat, of = moments(z), moments(pairs)
        parts = list(zip(blocks(hat, d), blocks(of, d), strict=True))
        terms = {name: divergence(*pair) for name, pair in zip("xyz", parts, strict=True)}
        logs = [0.5 * (log_det(reference[1]) - log_det(own[1])) for own, reference in parts]
        terms["logs"] = logs[0] + logs[1] - logs[2]
        terms["back"] = divergence(*parts[0][::-1]) - divergence(*parts[2][::-1])
        right.append(side(terms | {"I": information(of, d), "I hat": information(hat, d)}))
        mids.append(log_ratio(z, of, d).mean())
    lines = np.reshape(right, (len(cases), -1)).T
    mids, shown = np.tile(mids, len(lines)), _shown(cases * len(lines))
    return equal(mids, lines.ravel(), tolerance=1e-9, **shown)


@claim(
    "mid-eq-13",
    stated=(0.0, 0),
    corrected=(1.0, 0),
    mutants={"half of the mean": (0.5, 0), "covariance divided by N - 1": (1.0, 1)},
)
def mean_distance_is_dimension(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The trace of samples against their dimension."""
    samples = [np.array([[1.0], [3.0]])]
    samples += [pairs for pairs, _, _ in _samples(rng, budget.trials(20))]
    traces = []
    for x in samples:
        mean, cov = moments(x)
        rows, cov = x - value[0] * mean, cov * len(x) / (len(x) - value[1])
        traces.append(np.trace(rows @ np.linalg.solve(cov, rows.T)) / len(x))
    shown = [x.ravel() if x.size < 5 else "random" for x in samples]
    dimensions, sizes = [x.shape[1] for x in samples], [x.size for x in samples]
    return equal(traces, dimensions, parameters={"samples": shown}, size=sizes)


@claim(
    "mid-eq-6",
    stated=(None, 0),
    mutants={f"no bias in eq. {16 + line}": (line, 0) for line in range(7)}
    | {"covariance divided by N - 1": (None, 1)},
)
def bias_and_variance(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Each of the seven displayed lines, computed on its own, against the mean distance."""
    lines, means = [], []
    for pairs, rows, _ in _samples(rng, budget.trials(20)):
        (mean, cov), (n, d) = moments(pairs), rows.shape
        inverse, (hat, cov_hat) = np.linalg.inv(cov), moments(rows)
        cov_hat *= n / (n - value[1])
        shifts = [(hat - mean) * (line != value[0]) for line in range(7)]
        bias = [shift @ inverse @ shift for shift in shifts]
        outer = [np.outer(shift, shift) for shift in shifts]
        of_16, of_17 = ((rows - hat + shift).T for shift in shifts[:2])
        lines += [
            np.trace(of_16.T @ inverse @ of_16) / n,
            np.trace(inverse @ of_17 @ of_17.T) / n,
            np.trace(inverse @ (rows.T @ rows - n * np.outer(hat, hat) + n * outer[2])) / n,
            np.trace(inverse @ (cov_hat + outer[3])),
            bias[4] + np.trace(inverse @ cov_hat),
            bias[5] + np.trace(inverse @ cov_hat) - np.trace(inverse @ cov) + d,
            bias[6] + np.trace(inverse @ (cov_hat - cov)) + d,
        ]
        means += [mahalanobis(rows, (mean, cov)).mean()] * 7
    return equal(lines, means)


@claim(
    "mid-shuffling",
    stated=(1.0, 1.0, 1.0),
    mutants={
        "squares of correlations alone": (0.0, 1.0, 1.0),
        "the share squared": (1.0, 2.0, 1.0),
        "two thirds of the divergence": (1.0, 1.0, 2 / 3),
    },
)
def shuffling_is_linear(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Mean PMI of true pairs and of all pairs crossed, against correlations and divergences."""
    mids, formula = [], []
    for pairs, _, d in _samples(rng, budget.trials(20)):
        of, share, n = moments(pairs), rng.uniform(0.2, 0.8), len(pairs)
        x, y = np.divmod(np.arange(n * n), n)
        crossed = log_ratio(np.hstack([pairs[x, :d], pairs[y, d:]]), of, d).mean()
        squares = canonical(of[1], d)[0] ** 2
        loss = np.sum(squares / (1 - squares) ** value[0])
        mids += [(1 - share) * log_ratio(pairs, of, d).mean() + share * crossed, crossed]
        apart = of[1].copy()
        apart[:d, d:] = apart[d:, :d] = 0.0
        formula += [information(of, d) - share ** value[1] * loss]
        formula.append(-value[2] * divergence((of[0], apart), of))
        table = rng.dirichlet(np.ones(6)).reshape(2, 3)
        product = np.outer(table.sum(1), table.sum(0))
        mids.append(np.sum(product * np.log(table / product)))
        formula.append(-value[2] * stats.entropy(product.ravel(), table.ravel()))
    return equal(mids, formula)


@claim(
    "mid-ridge",
    stated=0.5,
    mutants={"three halves of the correction": 0.75, "two thirds of it": 1 / 3, "none": 0.0},
)
def ridge_on_reference(rng: np.random.Generator, budget: Budget, half: float) -> Evidence:
    """The chain of inequalities, and the formula from both sides."""
    lower, upper = [], []
    for pairs, _, d in [(THREE, THREE, 1), *_samples(rng, budget.trials(30))]:
        of, epsilon = moments(pairs), 10.0 ** rng.uniform(-3, 0)
        wide = of[0], of[1] + epsilon * np.eye(len(of[1]))
        x, y, z = (np.trace(np.linalg.inv(block)) for _, block in blocks(wide, d))
        mid, less = log_ratio(pairs, wide, d).mean(), information(wide, d)
        formula = less + half * epsilon * (z - x - y)
        lower += [less, mid, formula, mid]
        upper += [mid, formula, mid, information(of, d)]
    return at_most(lower, upper)


def plug_in_bias(n: int, d_x: int, d_y: int) -> float:
    """E of eq. 3 on n Gaussian pairs less the true information, in nats; about d_x d_y / (2n)."""
    less = np.arange(d_y)
    halves = special.digamma((n - 1 - less) / 2) - special.digamma((n - 1 - d_x - less) / 2)
    return 0.5 * float(halves.sum())


def fresh_loss(n: int, d_x: int, d_y: int) -> float:
    """E of the second term of eq. 5 on other real pairs, in nats; about -d_x d_y / n."""
    x, y, both = ((n + 1) * d / (n - d - 2) for d in (d_x, d_y, d_x + d_y))
    return 0.5 * (x + y - both)


@claim(
    "mid-real-pairs",
    stated=(1.0, 1.0),
    mutants={
        "no bias of the information": (0.0, 1.0),
        "two thirds of it": (2 / 3, 1.0),
        "two thirds of the loss of fresh pairs": (1.0, 2 / 3),
    },
)
def fresh_real_pairs(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Monte-Carlo means of plug-in information and fresh second term, against expectations."""
    beyond = []
    for n, d_x, d_y in ((12, 1, 1), (14, 2, 2), (30, 3, 2)):
        true = 0.3 * covariance(rng, d_x + d_y, rank=2 * d_x + d_y) + np.eye(d_x + d_y)
        z = rng.multivariate_normal(0 * true[0], true, (budget.trials(4000), n))
        mean = z.mean(axis=1)
        fit = np.einsum("rni,rnj->rij", z, z) / n - np.einsum("ri,rj->rij", mean, mean)
        second = true + np.einsum("ri,rj->rij", mean, mean)
        found = np.zeros((2, len(z)))
        for part, sign in ((slice(d_x), 0.5), (slice(d_x, None), 0.5), (slice(None), -0.5)):
            own, of = fit[:, part, part], second[:, part, part]
            found[0] += sign * np.linalg.slogdet(own)[1]
            found[1] += sign * np.sum(np.linalg.inv(own) * of, axis=(1, 2))
        known = information((true[0], true), d_x) + value[0] * plug_in_bias(n, d_x, d_y)
        expected = np.array([known, value[1] * fresh_loss(n, d_x, d_y)])
        error = np.std(found, axis=1) / math.sqrt(len(z))
        beyond += list(np.abs(np.mean(found, axis=1) - expected) - STANDARD_ERRORS * error)
    gained, lost = plug_in_bias(30_000, 768, 768), -fresh_loss(30_000, 768, 768)
    measured = {"nats gained by the fit, n = 30000, d = 768 + 768": gained}
    measured |= {"nats that fresh real pairs lose to it": lost}
    return at_most(beyond, 0.0, tolerance=0.0, measured=measured)


@claim(
    "mid-eq-26",
    stated=(True, lambda a, b: 0.5 * (a + b)),
    mutants={"the harmonic mean": (True, lambda a, b: 2 * a * b / (a + b))}
    | {"no half": (True, lambda a, b: a + b)},
)
@claim(
    "mid-eq-8",
    stated=(True, lambda a, b: 2 * a * b / (a + b)),
    corrected=(False, lambda a, b: 2 * a * b / (a + b)),
    mutants={"two thirds of it": (False, lambda a, b: 4 / 3 * a * b / (a + b))}
    | {"three halves of it": (False, lambda a, b: 3 * a * b / (a + b))},
)
def mean_of_scores(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """How far outside of its two scores a mean of them falls."""
    negative, mean = value
    scores = np.vstack([[-0.1, 0.5], rng.uniform([-1, 0], 1, (budget.trials(60), 2))]) * [2.5, 1.0]
    scores[:, 0] = scores[:, 0] if negative else np.maximum(scores[:, 0], 0.0)
    means = mean(*scores.T)
    outside = np.maximum(scores.min(1) - means, means - scores.max(1))
    shown = list(np.column_stack([scores, means]))
    size = 1 + (np.arange(len(scores)) > 0)
    return at_most(outside, 0.0, parameters={"two scores and their mean": shown}, size=size)
