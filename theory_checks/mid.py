"""Mutual Information Divergence: what the MID paper states, on samples and by quadrature.

Rows are pairs z = [x; y] of the two modalities, with d_x and d_y coordinates; a hat marks
evaluated pairs as against reference pairs. Covariances divide by the number of rows: that is what
MID eq. 13 and 18-19 use.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from theory_checks import latex
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, at_most, compared, equal

Moments = tuple[np.ndarray, np.ndarray]
NORMAL: Any = stats.multivariate_normal

# Three pairs of correlation 1/2, and four of correlation 0.
THREE = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
FOUR = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
_log_mean = functools.cache(lambda degrees: stats.chi2(degrees).expect(np.log))


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


def log_ratio_by_regression(z: np.ndarray, of: Moments, d_x: int) -> np.ndarray:
    """The same as log p(y | x) / p(y), without differences of large terms.

    They leave no digit where exaggerated outputs have squared distances of order 1 / rho^2 = 1e16.
    """
    gain, rest = regression(of, d_x)
    missed = z[:, d_x:] - of[0][d_x:] - (z[:, :d_x] - of[0][:d_x]) @ gain.T
    alone = NORMAL.logpdf(z[:, d_x:], *blocks(of, d_x)[1])
    return np.atleast_1d(NORMAL.logpdf(missed, cov=rest) - alone)


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
    """Reference pairs, evaluated ones (often the same, or with the same conditions), d_x."""
    for trial in range(trials):
        d_x, d_y = (int(d) for d in rng.integers(1, 5, 2))
        n = int(rng.integers(3 * (d_x + d_y), 60))
        pairs, z = draw(rng, n, d_x + d_y), draw(rng, n, d_x + d_y)
        z = np.hstack([z[:, :d_x], (pairs if shared else z)[:, d_x:]])
        yield pairs, z if trial % 8 else pairs, d_x


def _compared(relation: Any, rows: list[tuple[Any, ...]], **fields: Any) -> Evidence:
    """Evidence of rows: both sides, then the reference pairs, the evaluated ones, and d_x."""
    cases = {
        "reference pairs": [np.array_equal(x, z) for *_, x, z, _ in rows],
        "shared conditions": [np.array_equal(x[:, d:], z[:, d:]) for *_, x, z, d in rows],
        "one canonical correlation": [min(d, x.shape[1] - d) == 1 for *_, x, _, d in rows],
    }
    shown = [(*pair, (x, z) if x.size < 9 else "random", x.size) for *pair, x, z, _ in rows]
    return compared(relation, shown, "reference, evaluated", "size", cases=cases, **fields)


@claim("mid-xmi")
def cross_information(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Eq. 5 against cross-entropies by regression of y on x."""
    rows = []
    for pairs, z, d in [(THREE, THREE, 1), *_samples(rng, budget.trials(30))]:
        of = moments(pairs)
        cross = log_ratio_by_regression(z, of, d).mean()
        found = value[0]({r"\mathrm{XMI}(x\to y)": cross, "I(X;Y)": information(of, d)})
        rows.append((log_ratio(z, of, d).mean(), found, pairs, z, d))
    return _compared("==", rows)


@claim("mid-eq-4")
def information_of_pairs(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Eq. 3 against canonical correlations, eq. 4 and 6 against SciPy's densities and a mean."""
    lhs, rhs = [], []
    for pairs, z, d in _samples(rng, budget.trials(30)):
        of, hat = moments(pairs), moments(z)
        means = (latex.matrix(part[0][:d, None]) for part in (of, hat))
        names: dict[str, Any] = dict(zip((r"\mu_x", r"\mu_{\hat x}"), means, strict=True))
        for name, part, own in zip("xyz", blocks(of, d), blocks(hat, d), strict=True):
            rows = {"x": z[:, :d], "y": z[:, d:], "z": z}[name]
            names[rf"\Sigma_{name}"] = latex.matrix(part[1])
            names[rf"\Sigma_{{\hat {name}}}"] = latex.matrix(own[1])
            names[f"D_M^2({name})"] = mahalanobis(rows, part)
        names |= {"D": d, "I(X;Y)": value[0](names)}
        lhs += [names["I(X;Y)"], *value[1](names), np.mean(names["D_M^2(x)"])]
        rhs += [-0.5 * np.log1p(-(canonical(of[1], d)[0] ** 2)).sum(), *log_ratio(z, of, d)]
        rhs.append(np.sum(value[2](names)))
    return equal(lhs, rhs, tolerance=1e-9)


@claim("mid-divergence")
def best_evaluated_pairs(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """MID of real, random and exaggerated outputs of the reference's conditions.

    Exaggerated ones attain the bound, and are tried from both sides.
    """
    rows = []
    for pairs, _, d in [(THREE, THREE, 1), *_samples(rng, budget.trials(30))]:
        of = moments(pairs)
        rho, outwards = canonical(of[1], d)
        exaggerated = of[0][:d] + (pairs[:, d:] - of[0][d:]) @ outwards.T
        limit = value[0]({"I(X;Y)": information(of, d), "r": len(rho)})
        for x in (exaggerated, pairs[:, :d], exaggerated + draw(rng, len(pairs), d)):
            z = np.hstack([x, pairs[:, d:]])
            rows.append((log_ratio_by_regression(z, of, d).mean(), limit, pairs, z, d))
        rows.append((*rows[-3][1::-1], *rows[-3][2:]))
    return _compared("<=", rows)


@claim("mid-chain")
def information_less_divergence(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """MID against information less divergence, equality cases included."""
    cases = [(FOUR, FOUR * [3.0, 1.0], 1), (THREE, THREE * [2.0, 1.0], 1), (THREE, THREE, 1)]
    rows = []
    for pairs, z, d in [*cases, *_samples(rng, budget.trials(30), shared=True)]:
        hat, of = moments(z), moments(pairs)
        turned = [(np.roll(m, -d), np.roll(c, (-d, -d), (0, 1))) for m, c in (hat, of)]
        of_y = conditional_gap(hat, of, d)
        of_x = conditional_gap(turned[0], turned[1], len(of[0]) - d)
        names = {r"I(\hat X;\hat Y)": information(hat, d)}
        names[r"D_{\mathrm{KL}}(p(\hat y\mid\hat x)\parallel p(y\mid x))"] = of_y
        names[r"D_{\mathrm{KL}}(p(\hat x\mid\hat y)\parallel p(x\mid y))"] = of_x
        rows.append((log_ratio(z, of, d).mean(), value[0](names), pairs, z, d))
    return _compared("==", rows)


@claim("mid-eq-7-any-pairs", stated=False, corrected=False)
@claim("mid-eq-7", stated=True)
def relation_to_divergences(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """MID by densities against its terms, the conditions shared with the reference or not."""
    shared, *sides = value
    moved = FOUR + ([1.0, 0.0] if shared else [0.0, 1.0])
    cases = [(FOUR, moved, 1), (THREE, THREE, 1), (THREE, THREE * [2.0, 1.0], 1)]
    rows = []
    for pairs, z, d in [*cases, *_samples(rng, budget.trials(30), shared=shared)]:
        hat, of = moments(z), moments(pairs)
        names = {"I": information(of, d), r"\hat I": information(hat, d)}
        for name, own, reference in zip("xyz", blocks(hat, d), blocks(of, d), strict=True):
            names[f"D_{name}"] = divergence(own, reference)
            names[f"l_{name}"] = log_det(reference[1]) - log_det(own[1])
        rows += [(log_ratio(z, of, d).mean(), side(names), pairs, z, d) for side in sides]
    return _compared("==", rows, tolerance=1e-9)


@claim("mid-eq-13")
def mean_distance_is_dimension(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The mean squared distance for either covariance."""
    lhs, rhs = [], []
    for rows, _, d in _samples(rng, budget.trials(20)):
        x, n = rows[:, :d], len(rows)
        mean, cov = moments(x)
        for part in (cov, np.atleast_2d(np.cov(x.T))):
            lhs.append(mahalanobis(x, (mean, part)).mean())
        rhs += [d, value[0]({"N": n, "D": d})]
    return equal(lhs, rhs)


@claim("mid-shuffling")
def shuffling_is_linear(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Mean PMI of true pairs and of all pairs crossed, against correlations and divergences."""
    shuffled, of_products = value
    rows = []
    for pairs, z, d in _samples(rng, budget.trials(20)):
        of, share, n = moments(pairs), rng.uniform(0.2, 0.8), len(pairs)
        x, y = np.divmod(np.arange(n * n), n)
        crossed = log_ratio(np.hstack([pairs[x, :d], pairs[y, d:]]), of, d).mean()
        mixed = (1 - share) * log_ratio(pairs, of, d).mean() + share * crossed
        names = {r"\rho_i": canonical(of[1], d)[0], "I": information(of, d), "s": share}
        apart = of[1].copy()
        apart[:d, d:] = apart[d:, :d] = 0.0
        names[r"D_{\mathrm{KL}}(p(x)p(y) \parallel p(x,y))"] = divergence((of[0], apart), of)
        sides = (mixed, shuffled(names)), (crossed, of_products(names))
        rows += [(*pair, pairs, z, d) for pair in sides]
    return _compared("==", rows)


@claim("mid-ridge")
def ridge_on_reference(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The chain of inequalities, and the formula from both sides."""
    rows, trials = [], [(FOUR, FOUR, 1), (THREE, THREE, 1), *_samples(rng, budget.trials(30))]
    for place, (pairs, z, d) in enumerate(trials):
        of, epsilon = moments(pairs), 10.0 ** rng.uniform(-3, 0)
        # Every second one so small that the first order is what is left.
        epsilon *= np.linalg.eigvalsh(of[1])[0] / 1e3 if place % 2 else 1.0
        wide = of[0], of[1] + epsilon * np.eye(len(of[1]))
        x, y, z_trace = (np.trace(np.linalg.inv(block)) for _, block in blocks(wide, d))
        mid, less, most = log_ratio(pairs, wide, d).mean(), information(wide, d), information(of, d)
        names = {r"I_\epsilon": less, r"\epsilon": epsilon, "r_x": x, "r_y": y, "r_z": z_trace}
        formula = value[0](names)
        sides = [(less, mid), (mid, formula), (formula, mid), (mid, most)]
        sides += [(most, formula + 0.1 * (most - less))] if place % 2 else []
        rows += [(*pair, pairs, z, d) for pair in sides]
    return _compared("<=", rows)


def plug_in_bias(form: Any, n: int, d_x: int, d_y: int) -> float:
    """E of eq. 3 on n Gaussian pairs less the true information, in nats; about d_x d_y / (2n)."""
    return 0.5 * sum(form({"n": n, "d_x": d_x, "d_y": d_y, "i": i}) for i in range(d_y))


@claim("mid-real-pairs")
def fresh_real_pairs(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Means of log-determinants of Wishart matrices by quadrature, of their inverses by SciPy.

    With independent coordinates, the fit of d of them is a Wishart matrix of n - 1 degrees: its
    determinant is a product of chi-squares, and an entry of its inverse is one over another.
    """
    bias, loss, condition = value
    rows = []
    for n, d_x, d_y in ((4, 1, 1), (5, 1, 1), (7, 1, 1), (12, 1, 2), (14, 2, 2), (30, 3, 2)):
        names, sizes = {"n": n, "d_x": d_x, "d_y": d_y}, (d_x, d_y, d_x + d_y)
        logs = [sum(_log_mean(n - 1 - i) for i in range(d)) for d in sizes]
        fresh = [(n + 1) * d * stats.invgamma((n - d) / 2, scale=0.5).mean() for d in sizes]
        for side, (x, y, both) in ((plug_in_bias(bias, **names), logs), (-loss(names), fresh)):
            rows.append((side, 0.5 * (x + y - both), condition(names)))
    size = {"n": 30_000, "d_x": 768, "d_y": 768}

    def measured() -> dict[str, float]:
        gained = "nats gained by the fit, n = 30000, d = 768 + 768"
        return {gained: plug_in_bias(bias, **size), "nats that fresh real pairs lose": loss(size)}

    return compared("==", rows, "met", tolerance=1e-7, measured=measured)


@claim("mid-eq-8")
def mean_of_scores(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """How far outside of its two scores a mean of them falls."""
    by_hand = [[-0.1, 0.5], [0.2, 0.5], [0.001, 0.9]]
    cosines = np.vstack([by_hand, rng.uniform([-1, 0], 1, (budget.trials(60), 2))])
    mean, *forms = value
    names = {r"\cos(x,y)": cosines[:, 0], r"\max_r\cos(r,y)": cosines[:, 1]}
    scores = np.column_stack([form(names) for form in forms])
    means = mean({"a": scores[:, 0], "b": scores[:, 1]})
    outside = np.maximum(scores.min(1) - means, means - scores.max(1))
    shown = {"two scores and their mean": list(np.column_stack([scores, means]))}
    size = 1 + (np.arange(len(scores)) > 0)
    return at_most(outside, 0.0, parameters=shown, size=size)
