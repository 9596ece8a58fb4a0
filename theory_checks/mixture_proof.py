r"""The proofs of CV Theorems 5-7 and CV-early Theorem 1, one displayed step at a time.

Steps carry the papers' letters (a)-(k) and equation numbers (CV appendix B, CV-early appendix A.3).
All Frobenius norms of operators are computed from pair averages of kernels, without features.
Lengths are in bandwidths. (CV's text calls its Lemma 5 'Lemma 1' when it combines eq. 17 with it.)
"""

from collections.abc import Callable, Sequence

import numpy as np

from theory_checks import mixture_populations as populations
from theory_checks import mixtures as theorems
from theory_checks.claim import Budget, Evidence, Verdict, at_most, claim, equal
from theory_checks.mixture_populations import Mixture, gaussian

PointSides = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray | float, np.ndarray | float]]
_PROMPTS = "Gaussian k_T; T from m components with means mu_i and variances sigma_i^2"
_MEANS = "Gaussian k_T; distinct means mu_1 .. mu_m; u_i by Gram-Schmidt"
_RANGE = {"modes": "1..4", "sigma_i / sigma": "0..10", "images": "1..1e10"}
_SPACING = {"m": "2..6", "means": "[-6, 6]^d, d = 1, 2", "omega": "any, to 1e-8"}


def pair_average(mixture: Mixture, kernel: np.ndarray) -> float:
    """E[k_X^2 kernel] over independent pairs, for a matrix over the prompt atoms `[p, p]`."""
    total = 0.0
    for block in mixture.blocks:
        weights = np.outer(block.weights, block.weights) * block.gram**2 / block.copies
        total += float((weights * kernel[np.ix_(block.prompts, block.prompts)]).sum())
    return total


def squared_distance(mixture: Mixture, coefficients: np.ndarray) -> float:
    """||C_{X,T} - sum_i omega_i C_i x u_i u_i^T||_F^2, u_i = sum_l coefficients[i, l] phi(mu_l)."""
    component = mixture.component
    to_prompts = (coefficients @ gaussian(mixture.means, mixture.location))[component]
    between = (coefficients @ mixture.mean_gram @ coefficients.T)[np.ix_(component, component)]
    kernel = mixture.prompt_gram**2 - to_prompts**2 - to_prompts.T**2 + between**2
    return pair_average(mixture, kernel)


def gram_schmidt(gram: np.ndarray) -> np.ndarray:
    """CV's coefficients: row i gives the orthonormal u_i in terms of phi(mu_1) .. phi(mu_i)."""
    return np.linalg.inv(np.linalg.cholesky(gram))


def gram_schmidt_early(gram: np.ndarray) -> np.ndarray:
    """CV-early's coefficients: u_i = phi_i - sum_{j<i} <phi_i, u_j> u_j, never normalised."""
    rows = np.eye(len(gram))
    for i in range(len(gram)):
        rows[i] -= (rows[:i] @ gram[:, i]) @ rows[:i]
    return rows


def well_conditioned(gram: np.ndarray) -> bool:
    """Whether Gram-Schmidt keeps ten digits."""
    return bool(np.linalg.eigvalsh(gram)[0] > 1e-6)


# ---------------------------------------------------------------------------------------------
# CV Lemma 5 (CV-early Lemma 1), steps (a) to (g).


def lemma_terms(mixture: Mixture) -> dict[str, float]:
    """The quantities that the chain of Lemma 5 passes through."""
    to_means = gaussian(mixture.location, mixture.means)
    own = to_means[np.arange(len(mixture.component)), mixture.component]
    return {
        "distance": squared_distance(mixture, np.eye(mixture.modes)),
        "expected": float(mixture.prompt_weights @ (2 - 2 * own**2)),
        "jensen": float(mixture.weights @ (-2 * np.expm1(-mixture.variances))),
        "linear": 2 * mixture.variance,
    }


def _lemma_step(lower: str, upper: str) -> theorems.Sides:
    def sides(mixture: Mixture, _: float) -> tuple[float, float]:
        terms = lemma_terms(mixture)
        return terms[lower], terms[upper]

    return sides


def _one_image_each() -> list[tuple[Mixture, float]]:
    """Prompts at +-d, each with its own image: step (a) is off by a factor of 2 only."""
    block = populations.Block(np.arange(2), np.array([0.5, 0.5]), np.eye(2))
    return [
        (Mixture(np.zeros(2, int), np.array([[-d], [d]]), (block,), "prompts at +-d"), 2.0)
        for d in (1e-3, 0.1, 1.0)
    ]


@claim(
    name="cv-lemma-5",
    source="CV Lemma 5, CV-early Lemma 1",
    statement=r"\Big\|C_{X,T}-\sum_i\omega_iC_i\otimes\phi_T(\mu_i)\phi_T(\mu_i)^\top\Big\|_F^2 "
    r"\le "
    r"\frac{\sum_i2\omega_i\sigma_i^2}{\sigma^2}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
    note="True, of the squared norm; the theorems then use it as a bound of the norm.",
)
def lemma_5(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The whole chain."""
    step = _lemma_step("distance", "linear")
    return theorems.hunt(step, rng, budget, examples=_one_image_each())


@claim(
    name="cv-lemma-5-a",
    source="CV Lemma 5, step (a) (Jensen for the squared Frobenius norm)",
    statement=r"\|\sum_i\omega_i\mathbb{E}[\cdot|G=i]\|_F^2 \le \sum_i\omega_i\mathbb{E}[\|"
    r"\phi_X\phi_X^"
    r"\top\otimes(\phi_T\phi_T^\top-\phi_T(\mu_i)\phi_T(\mu_i)^\top)\|_F^2|G=i]",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
)
def lemma_5_a(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Pair averages on the left, single averages on the right."""
    step = _lemma_step("distance", "expected")
    return theorems.hunt(step, rng, budget, examples=_one_image_each())


@claim(
    name="cv-lemma-5-bcd",
    source="CV Lemma 5, steps (b), (c), (d)",
    statement=r"\|\phi_X\phi_X^\top\otimes(\phi_T\phi_T^\top-\phi_\mu\phi_\mu^\top)\|_F^2 = "
    r"\|\phi_T\phi_T^\top-\phi_\mu\phi_\mu^\top\|_F^2 = 2-2e^{-\|t-\mu\|_2^2/\sigma^2}",
    expected=Verdict.HOLDS,
    assumptions="normalised k_X, Gaussian k_T",
    parameters={"d": "1..4", "|t - mu| / sigma": "0..6"},
)
def lemma_5_bcd(rng: np.random.Generator, budget: Budget) -> Evidence:
    """With explicit features and Kronecker products."""
    lhs, rhs = [], []
    for _ in range(budget.trials(60)):
        points = rng.standard_normal((2, rng.integers(1, 5))) * rng.uniform(0, 2)
        values, vectors = np.linalg.eigh(gaussian(points))
        t, mu = vectors * np.sqrt(np.maximum(values, 0.0))
        x = rng.standard_normal(3)
        x /= np.linalg.norm(x)
        difference = np.outer(t, t) - np.outer(mu, mu)
        target = 2 - 2 * np.exp(-((points[0] - points[1]) ** 2).sum())
        lhs += [(np.kron(np.outer(x, x), difference) ** 2).sum(), (difference**2).sum()]
        rhs += [target, target]
    return equal(lhs, rhs)


@claim(
    name="cv-lemma-5-ef",
    source="CV Lemma 5, steps (e), (f) (Jensen for 1 - exp(-z))",
    statement=r"\mathbb{E}[2-2e^{-\|t-\mu_i\|^2/\sigma^2}|G=i] \le 2-2e^{-\sigma_i^2/\sigma^2}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
    note="(f) is an equality: sigma_i^2 is defined as that expectation.",
)
def lemma_5_ef(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Equality for prompts at one distance of their mean."""
    step = _lemma_step("expected", "jensen")
    return theorems.hunt(step, rng, budget, examples=_one_image_each())


@claim(
    name="cv-lemma-5-g",
    source="CV Lemma 5, step (g)",
    statement=r"2-2e^{-\sigma_i^2/\sigma^2} \le 2\sigma_i^2/\sigma^2",
    expected=Verdict.HOLDS,
    assumptions="none",
    parameters=_RANGE,
)
def lemma_5_g(rng: np.random.Generator, budget: Budget) -> Evidence:
    """1 - exp(-z) <= z."""
    return theorems.hunt(_lemma_step("jensen", "linear"), rng, budget, examples=_one_image_each())


@claim(
    name="cv-lemma-5-sharper",
    source="spectral sharpening of CV Lemma 5",
    statement=r"\|\lambda(C_{X,T|i})-\lambda(C_i)\|_1 \le 2(1-e^{-\sigma_i^2/\sigma^2})",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
    note="In l1, and linear in the variance: the square root is not lost within a component. Both "
    "spectra dominate that of the compression to phi(mu_i), whose trace is at least exp(-s_i^2).",
)
def lemma_5_sharper(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Eigenvalue by eigenvalue, both spectra lie above that of the compression."""

    def sides(mixture: Mixture, _: float) -> tuple[np.ndarray, np.ndarray]:
        gaps = [
            populations.distance(mixture.joint_given(i), mixture.outputs[i], 1.0)
            for i in range(mixture.modes)
        ]
        return np.array(gaps), 2 * theorems.spread_losses(mixture)

    far = [(populations.far_prompts(p, 2.0, 10, 3), 2.0) for p in (1e-3, 1e-1)]
    return theorems.hunt(sides, rng, budget, examples=far)


# ---------------------------------------------------------------------------------------------
# Gram-Schmidt, steps (h) to (k), eq. 17 and 18.


def hunt_points(
    sides: PointSides,
    rng: np.random.Generator,
    budget: Budget,
    examples: Sequence[tuple[Sequence, Sequence]] = (),
) -> Evidence:
    """Evidence for lhs <= rhs over means and weights, as a ratio to the right side.

    The ratio makes violations visible however small both sides are. Nearly coincident means are
    not judged: Gram-Schmidt would lose its digits.
    """
    trials = [(np.array(means, float), np.array(weights, float)) for means, weights in examples]

    def split(theta: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
        logits = 2 * theta[:m]
        weights = np.exp(logits - logits.max())
        return 2 * theta[m:].reshape(m, -1), weights / weights.sum()

    def tightness(means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if not well_conditioned(gaussian(means)):
            return np.array([np.nan])
        lhs, rhs = np.broadcast_arrays(*map(np.atleast_1d, sides(means, weights)))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(rhs > 1e-9, lhs / rhs, np.nan)

    for m, axes in ((2, 1), (3, 1), (3, 2), (5, 1), (6, 2)):
        starts = [rng.standard_normal(m + m * axes) for _ in range(budget.trials(15))]
        trials += [split(theta, m) for theta in starts]

        def objective(theta: np.ndarray, m: int = m) -> float:
            value = tightness(*split(theta, m))
            return float(np.nanmax(value)) if np.isfinite(value).any() else -np.inf

        best = populations.climb(objective, max(starts, key=objective), rng, budget.pick(250, 1500))
        trials.append(split(best, m))
    ratios = [(ratio, *pair) for pair in trials for ratio in tightness(*pair)]
    lhs = np.array([row[0] for row in ratios])
    size = np.array([len(row[2]) for row in ratios])
    parameters = {
        "means": np.array([str(row[1].round(4).tolist()) for row in ratios]),
        "weights": np.array([str([float(f"{w:.4g}") for w in row[2]]) for row in ratios]),
    }
    return at_most(
        lhs, 1.0, premise_met=~np.isnan(lhs), parameters=parameters, size=size, tolerance=1e-8
    )


def projections(gram: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """<phi(mu_i), u_j>^2 for every i and j, `[m, m]`."""
    return (gram @ coefficients.T) ** 2


def squared_overlaps(gram: np.ndarray) -> np.ndarray:
    """sum_{j<i} k_T(mu_i, mu_j)^2 for every i, `[m]`."""
    return np.tril(gram**2, -1).sum(1)


def _random_means(rng: np.random.Generator, budget: Budget) -> list[np.ndarray]:
    """Grams of random means that Gram-Schmidt can digest."""
    grams = []
    for _ in range(budget.trials(60)):
        m, axes = rng.integers(2, 6), rng.integers(1, 3)
        grams.append(gaussian(2.5 * rng.standard_normal((m, axes))))
    return [gram for gram in grams if well_conditioned(gram)]


LINE = ([[0.0], [1.0], [-1.0]], [1 / 3, 1 / 3, 1 / 3])
"""Three prompts on a line, the first in the middle, one bandwidth apart."""
CLUSTER = ([[3.0], [3.5], [0.0]], [1 / 3, 1 / 3, 1 / 3])
"""Two neighbours and a third prompt three bandwidths off."""
RARE_CLUSTER = ([[4.5], [4.6], [0.0]], [1e-11, 1e-11, 1 - 2e-11])
"""Two rare neighbours before a frequent prompt 4.5 bandwidths off."""
RARE_CLUSTERS = [RARE_CLUSTER, ([[4.5], [4.7], [4.9], [5.1], [0.0]], [1e-11] * 4 + [1 - 4e-11])]


@claim(
    name="cv-gram-schmidt-h",
    source="CV and CV-early, steps (h) and (i)",
    statement=r"\|\sum_i\omega_iC_i\otimes(\phi_i\phi_i^\top-u_iu_i^\top)\|_F^2 \le "
    r"\sum_i\omega_i\|\phi_i\phi_i^\top-u_iu_i^\top\|_F^2",
    expected=Verdict.HOLDS,
    assumptions=_MEANS + "; any C_i of unit trace (here all equal and pure, the extreme case)",
    parameters=_SPACING,
)
def step_h(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Jensen, and ||C_i||_F <= 1."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        gram = gaussian(means)
        inner = projections(gram, gram_schmidt(gram))
        m = len(weights)
        between = gram**2 - inner - inner.T + np.eye(m)
        return float(weights @ between @ weights), float(weights @ np.diag(between))

    return hunt_points(sides, rng, budget, [LINE, CLUSTER])


@claim(
    name="cv-gram-schmidt-jk",
    source="CV, steps (j) and (k)",
    statement=r"\|\phi_i\phi_i^\top-u_iu_i^\top\|_F^2 = 2-2(u_i^\top\phi_i)^2 = "
    r"2\sum_{j<i}(u_j^\top\phi_i)^2",
    expected=Verdict.HOLDS,
    assumptions=_MEANS + " (orthonormal)",
    parameters=_SPACING,
)
def step_jk(rng: np.random.Generator, budget: Budget) -> Evidence:
    """phi_i lies in the span of u_1 .. u_i; the left side with explicit matrices."""
    lhs, rhs = [], []
    for gram in _random_means(rng, budget):
        features = np.linalg.cholesky(gram)
        vectors = gram_schmidt(gram) @ features
        inner = projections(gram, gram_schmidt(gram))
        for i, (phi, u) in enumerate(zip(features, vectors, strict=True)):
            lhs += [((np.outer(phi, phi) - np.outer(u, u)) ** 2).sum(), 2 - 2 * inner[i, i]]
            rhs += [2 * inner[i, :i].sum()] * 2
    return equal(lhs, rhs, tolerance=1e-8)


@claim(
    name="cv-gram-schmidt-coefficients",
    source="CV appendix B ('u_j = sum_l r_jl phi_T(mu_l), ||r_j||_2 <= 1')",
    statement=r"\|r_j\|_2 \le 1",
    expected=Verdict.FALSE,
    assumptions=_MEANS,
    parameters=_SPACING,
    note="Two prompts: ||r_2||^2 = (1 + k^2) / (1 - k^2) > 1 for every k > 0; always r_jj >= 1.",
)
def gram_schmidt_coefficients(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Row norms of the inverse Cholesky factor."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.linalg.norm(gram_schmidt(gaussian(means)), axis=1)
        return rows, np.ones_like(rows)

    return hunt_points(sides, rng, budget, [([[0.0], [1.0]], [0.5, 0.5])])


@claim(
    name="cv-gram-schmidt-coefficients-corrected",
    source="correction of the coefficient bound",
    statement=r"1 \le \|r_j\|_2^2 \le 1/\lambda_{\min}(K)",
    expected=Verdict.HOLDS,
    assumptions=_MEANS,
    parameters=_SPACING,
    note="K^{-1} = sum_j r_j r_j^T, and r_jj = 1 / ||v_j||.",
    corrects="cv-gram-schmidt-coefficients",
)
def gram_schmidt_coefficients_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Both sides of the range."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gram = gaussian(means)
        squares = (gram_schmidt(gram) ** 2).sum(1)
        top = np.full_like(squares, 1 / np.linalg.eigvalsh(gram)[0])
        return np.concatenate([np.ones_like(squares), squares]), np.concatenate([squares, top])

    return hunt_points(sides, rng, budget, [([[0.0], [1.0]], [0.5, 0.5])])


@claim(
    name="cv-gram-schmidt-cauchy-schwarz",
    source="CV appendix B (display before eq. 17)",
    statement=r"(u_j^\top\phi_T(\mu_i))^2 \le \sum_{\ell\le j}k_T(\mu_\ell,\mu_i)^2,\quad j<i",
    expected=Verdict.FALSE,
    assumptions=_MEANS,
    parameters=_SPACING,
    note="The next step sums this over j.",
)
def gram_schmidt_cauchy_schwarz(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Two close predecessors amplify a difference of small kernel values."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gram = gaussian(means)
        inner, sums = projections(gram, gram_schmidt(gram)), np.cumsum(gram**2, axis=1)
        lower = np.tril_indices(len(gram), -1)
        return inner[lower], sums[lower]

    return hunt_points(sides, rng, budget, [CLUSTER, LINE])


@claim(
    name="cv-gram-schmidt-sums",
    source="CV appendix B (summing over j < i)",
    statement=r"\sum_{j<i}\sum_{\ell\le j}k_{\ell i}^2 = \sum_{\ell<i}(i-\ell)k_{\ell i}^2",
    expected=Verdict.HOLDS,
    assumptions="none",
    parameters={"m": "2..8"},
    note="At most (i-1) sum_{l<i} k_li^2, as printed, since l >= 1.",
)
def gram_schmidt_sums(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Counting."""
    lhs, rhs = [], []
    for _ in range(budget.trials(100)):
        i = int(rng.integers(2, 9))
        squares = rng.uniform(size=i - 1)
        lhs.append(sum(squares[:j].sum() for j in range(1, i)))
        rhs.append(float((i - np.arange(1, i)) @ squares))
    return equal(lhs, rhs)


@claim(
    name="cv-eq-17",
    source="CV eq. 17",
    statement=r"\sum_i\omega_i\|\phi_i\phi_i^\top-u_iu_i^\top\|_F^2 \le 2\sum_i\omega_i(i-1)"
    r"\sum_{\ell<i}"
    r"e^{-\|\mu_i-\mu_\ell\|^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions=_MEANS,
    parameters=_SPACING,
    note="No factor in m alone repairs it: close predecessors span derivatives of phi too.",
)
def equation_17(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Holds for two prompts, fails for three. The left side by steps (j) and (k)."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        gram = gaussian(means)
        left = 2 * np.tril(projections(gram, gram_schmidt(gram)), -1).sum(1)
        ranks = np.arange(len(weights))
        return float(weights @ left), float(2 * weights @ (ranks * squared_overlaps(gram)))

    return hunt_points(sides, rng, budget, [(CLUSTER[0], [0.01, 0.01, 0.98])])


@claim(
    name="cv-eq-17-corrected",
    source="correction of CV eq. 17",
    statement=r"\sum_i\omega_i\|\phi_i\phi_i^\top-u_iu_i^\top\|_F^2 \le \sum_i\frac{2\omega_i}"
    r"{\lambda_{\min}(K_{<i})}\sum_{\ell<i}e^{-\|\mu_i-\mu_\ell\|^2/\sigma^2}",
    expected=Verdict.HOLDS,
    assumptions=_MEANS + "; K_{<i} the kernel matrix of the predecessors",
    parameters=_SPACING,
    note="The left side is 2 sum_i omega_i b_i^T K_{<i}^{-1} b_i, b_i = (k(mu_i, mu_l))_{l<i}.",
    corrects="cv-eq-17",
)
def equation_17_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The price of Gram-Schmidt is the conditioning of the means."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        gram = gaussian(means)
        left = 2 * np.tril(projections(gram, gram_schmidt(gram)), -1).sum(1)
        least = [np.linalg.eigvalsh(gram[:i, :i])[0] for i in range(1, len(weights))]
        right = 2 * squared_overlaps(gram) / np.array([1.0, *least])
        return float(weights @ left), float(weights @ right)

    return hunt_points(sides, rng, budget, [CLUSTER])


@claim(
    name="cv-eq-18-parallelogram",
    source="CV appendix B (before eq. 18), CV-early appendix A.3",
    statement=r"\|A+B\|_F^2 \le 2\|A\|_F^2 + 2\|B\|_F^2",
    expected=Verdict.HOLDS,
    assumptions="none",
    parameters={"d": "1..5"},
)
def parallelogram(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Equality at A = B."""
    lhs, rhs = [], []
    for trial in range(budget.trials(100)):
        a, b = rng.standard_normal((2, *rng.integers(1, 6, 2)))
        b = a if trial == 0 else b
        lhs.append(((a + b) ** 2).sum())
        rhs.append(2 * (a**2).sum() + 2 * (b**2).sum())
    return at_most(lhs, rhs)


def _four_eight(means: np.ndarray, weights: np.ndarray, ranks: np.ndarray | float) -> float:
    return float(8 * weights @ (ranks * squared_overlaps(gaussian(means))))


def _operator_distance(means: np.ndarray, weights: np.ndarray, early: bool) -> float:
    """||C_{X,T} - sum omega_i C_i x u_i u_i^T||_F^2 for single prompts that show the same image."""
    gram = gaussian(means)
    coefficients = gram_schmidt_early(gram) if early else gram_schmidt(gram)
    inner = projections(gram, coefficients)
    between = (coefficients @ gram @ coefficients.T) ** 2
    return float(weights @ (gram**2 - inner - inner.T + between) @ weights)


@claim(
    name="cv-eq-18",
    source="CV eq. 18",
    statement=r"\|C_{X,T}-\sum_i\omega_iC_i\otimes u_iu_i^\top\|_F^2 \le 4\sum_i\omega_i\frac{"
    r"\sigma_i^2}"
    r"{\sigma^2}+8\sum_i\omega_i(i-1)\sum_{\ell<i}e^{-\|\mu_i-\mu_\ell\|^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions=_MEANS + "; single prompts (sigma_i = 0), one image",
    parameters=_SPACING,
    note="Three prompts: two rare neighbours 4.5 bandwidths from a frequent one.",
)
def equation_18(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The operator itself, not only its bound."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        ranks = np.arange(len(weights))
        return _operator_distance(means, weights, False), _four_eight(means, weights, ranks)

    return hunt_points(sides, rng, budget, RARE_CLUSTERS)


@claim(
    name="cv-eq-18-corrected",
    source="correction of CV eq. 18, for what the proof needs of it",
    statement=r"\|\lambda(C_{X,T})-\hat\lambda\|_2 \le \big(2\textstyle\sum_i\omega_i(1-e^{-"
    r"\sigma_i^2/"
    r"\sigma^2})\big)^{1/2}+\big(2\sum_{j<i}\omega_i\omega_je^{-\|\mu_i-\mu_j\|^2/\sigma^2}"
    r"\big)^{1/2}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; lambda-hat: union of omega_i Eigs(C_i)",
    parameters=_RANGE,
    note="The spectra are close even where the operators of eq. 18 are not; no Gram-Schmidt.",
    corrects="cv-eq-18",
)
def equation_18_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """See `mixtures.spectral_distance_bound`."""

    def sides(mixture: Mixture, _: float) -> tuple[float, float]:
        gap = populations.distance(mixture.joint, mixture.stacked, 2.0)
        return gap, theorems.spectral_distance_bound(mixture)

    return theorems.hunt(sides, rng, budget, examples=_same_image())


def _same_image(kernels: Sequence[float] = (0.02, 0.1, 0.2, 0.9)) -> list[tuple[Mixture, float]]:
    """Two equally likely prompts that always show the same image."""
    pairs = []
    for k in kernels:
        means = np.array([[0.0], [np.sqrt(-2 * np.log(k))]])
        label = f"two equally likely prompts with k_T = {k:g} and the same image"
        mixture = populations.point_modes(means, np.array([0.5, 0.5]), np.ones((2, 1)), label=label)
        pairs.append((mixture, 2.0))
    return pairs


@claim(
    name="cv-hoffman-wielandt",
    source="CV Theorem 7 (first display), CV-early appendix A.3",
    statement=r"\|\lambda(C_{X,T})-\lambda(\sum_i\omega_iC_i\otimes u_iu_i^\top)\|_2^2 \le "
    r"\|C_{X,T}-\sum_i\omega_iC_i\otimes u_iu_i^\top\|_F^2",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; orthonormal u_i",
    parameters=_RANGE,
)
def hoffman_wielandt(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Spectra on the left, pair averages on the right."""

    def sides(mixture: Mixture, _: float) -> tuple[float, float]:
        if not well_conditioned(mixture.mean_gram):
            return np.nan, np.nan
        gap = populations.distance(mixture.joint, mixture.stacked, 2.0) ** 2
        return gap, squared_distance(mixture, gram_schmidt(mixture.mean_gram))

    return theorems.hunt(sides, rng, budget, examples=_same_image())


@claim(
    name="cv-stacked-eigenvalues",
    source="CV appendix B (union of eigenvalues)",
    statement=r"\lambda(\sum_i\omega_iC_i\otimes u_iu_i^\top) = \mathrm{Union}(\omega_i"
    r"\mathrm{Eigs}(C_i))",
    expected=Verdict.HOLDS,
    assumptions="orthonormal u_i",
    parameters={"m": "2..5", "rank C_i": "1..3"},
)
def stacked_eigenvalues(rng: np.random.Generator, budget: Budget) -> Evidence:
    """With explicit Kronecker products."""
    lhs, rhs = [], []
    for gram in _random_means(rng, budget):
        vectors = gram_schmidt(gram) @ np.linalg.cholesky(gram)
        weights, spectra = rng.dirichlet(np.ones(len(gram))), rng.dirichlet(np.ones(3), len(gram))
        total = np.zeros((3 * len(gram), 3 * len(gram)))
        for w, spectrum, u in zip(weights, spectra, vectors, strict=True):
            turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
            total += w * np.kron((turn * spectrum) @ turn.T, np.outer(u, u))
        lhs.extend(np.linalg.eigvalsh(total))
        rhs.extend(np.sort((weights[:, None] * spectra).ravel()))
    return equal(lhs, rhs, tolerance=1e-8)


# ---------------------------------------------------------------------------------------------
# CV-early's Gram-Schmidt, without normalisation.


def early_losses(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """s_i = 1 - u_i^T phi_i and r_i = 1 - |u_i|^2 without cancellation, `[m]` each.

    With u_i = phi_i - sum_j c_j u_j: s_i = |c|^2 and r_i = 2 s_i - |sum_j c_j u_j|^2, terms that
    are all proportional to the small squared overlaps.
    """
    rows = gram_schmidt_early(gram)
    inner = np.tril(gram @ rows.T, -1)
    s = (inner**2).sum(1)
    return s, 2 * s - ((inner @ rows @ gram @ rows.T) * inner).sum(1)


def early_last_distance(gram: np.ndarray) -> float:
    """||phi_m phi_m^T - u_m u_m^T||_F^2 = 1 + |u|^4 - 2 (u^T phi)^2 for the last mean."""
    s, r = (losses[-1] for losses in early_losses(gram))
    return float(4 * s - 2 * s**2 - 2 * r + r**2)


@claim(
    name="cv-early-orthogonality",
    source="CV-early appendix A.3 ('u_1, .., u_m are orthogonal vectors')",
    statement=r"u_i := \phi_i-\sum_{j<i}\langle\phi_i,u_j\rangle u_j\ \Rightarrow\ "
    r"\langle u_i,u_j\rangle = 0\ (i\ne j)",
    expected=Verdict.FALSE,
    assumptions="u_j not normalised, as printed",
    parameters=_SPACING,
    note="<u_3, u_2> = <phi_3, u_2> (1 - ||u_2||^2): zero for two prompts, not for three.",
)
def early_orthogonality(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The projection lacks the division by ||u_j||^2."""
    grams = [gaussian(np.array(LINE[0])), *_random_means(rng, budget)]
    lhs, modes = [], []
    for gram in grams:
        rows = gram_schmidt_early(gram)
        between = rows @ gram @ rows.T
        lhs.append(np.abs(between - np.diag(np.diag(between))).max())
        modes.append(len(gram))
    example = {"means": LINE[0], "largest |<u_i, u_j>|": float(lhs[0])}
    return equal(lhs, 0.0, parameters={"m": np.array(modes)}, counterexample=example)


@claim(
    name="cv-early-orthogonality-corrected",
    source="correction of the CV-early Gram-Schmidt step (made in CV)",
    statement=r"v_i=\phi_i-\sum_{j<i}\langle\phi_i,u_j\rangle u_j,\ u_i=v_i/\|v_i\|\ \Rightarrow\ "
    r"\langle u_i,u_j\rangle = \delta_{ij}",
    expected=Verdict.HOLDS,
    assumptions="distinct means",
    parameters=_SPACING,
    corrects="cv-early-orthogonality",
)
def early_orthogonality_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Normalised after each step, by the recursion itself."""
    gaps = []
    for gram in _random_means(rng, budget):
        rows = np.eye(len(gram))
        for i in range(len(gram)):
            rows[i] -= (rows[:i] @ gram[:, i]) @ rows[:i]
            rows[i] /= np.sqrt(rows[i] @ gram @ rows[i])
        gaps.append(np.abs(rows @ gram @ rows.T - np.eye(len(gram))).max())
    return equal(gaps, 0.0, tolerance=1e-8)


@claim(
    name="cv-early-inner-product",
    source="CV-early appendix A.3 (equality below (k))",
    statement=r"u_i^\top\phi_T(\mu_i) = 1-\sum_{j<i}\langle\phi_T(\mu_i),u_j\rangle^2",
    expected=Verdict.HOLDS,
    assumptions="u_i as printed",
    parameters=_SPACING,
)
def early_inner_product(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Immediate from the recursion."""
    lhs, rhs = [], []
    for gram in _random_means(rng, budget):
        inner = gram @ gram_schmidt_early(gram).T
        lhs.extend(np.diag(inner))
        rhs.extend(1 - np.tril(inner**2, -1).sum(1))
    return equal(lhs, rhs)


@claim(
    name="cv-early-inner-product-bound",
    source="CV-early appendix A.3 (inequality below (k))",
    statement=r"\sum_{j<i}\langle\phi_T(\mu_i),u_j\rangle^2 \le \sum_{j<i}e^{-\|\mu_i-\mu_j"
    r"\|^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions="u_i as printed",
    parameters=_SPACING,
    note="Three prompts on a line, the first in the middle: 0.422 against 0.386.",
)
def early_inner_product_bound(rng: np.random.Generator, budget: Budget) -> Evidence:
    """u_2 is not phi(mu_2): it carries a part of phi(mu_1)."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gram = gaussian(means)
        inner = projections(gram, gram_schmidt_early(gram))
        return np.tril(inner, -1).sum(1)[1:], squared_overlaps(gram)[1:]

    return hunt_points(sides, rng, budget, [LINE])


@claim(
    name="cv-early-j",
    source="CV-early, step (j) and the next",
    statement=r"\|\phi_i\phi_i^\top-u_iu_i^\top\|_F^2 = 1+\|u_i\|^4-2(u_i^\top\phi_i)^2 \le "
    r"2-2(u_i^\top\phi_i)^2",
    expected=Verdict.HOLDS,
    assumptions="u_i as printed",
    parameters=_SPACING,
    note="||u_i|| <= 1 although the u_i are not orthogonal: I - sum u_j u_j^T stays within [0, I].",
)
def early_j(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Explicit matrices on the left."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gram = gaussian(means)
        features = np.linalg.cholesky(gram)
        vectors = gram_schmidt_early(gram) @ features
        left = [
            ((np.outer(phi, phi) - np.outer(u, u)) ** 2).sum()
            for phi, u in zip(features, vectors, strict=True)
        ]
        return np.array(left), 2 - 2 * (features * vectors).sum(1) ** 2

    return hunt_points(sides, rng, budget, [LINE, CLUSTER])


@claim(
    name="cv-early-k",
    source="CV-early, step (k)",
    statement=r"2\sum_i\omega_i(1+u_i^\top\phi_i)(1-u_i^\top\phi_i) \le 4\sum_i\sum_{j<i}\omega_i"
    r"e^{-\|\mu_i-\mu_j\|^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions="u_i as printed",
    parameters=_SPACING,
    note="False with the inequality below it: two rare neighbours before a frequent prompt.",
)
def early_k(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Needs the bound on the inner products."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        s, _ = early_losses(gaussian(means))
        return float(2 * weights @ (s * (2 - s))), float(
            4 * weights @ squared_overlaps(gaussian(means))
        )

    return hunt_points(sides, rng, budget, [([[2.5], [3.1], [0.0]], [1e-7, 1e-7, 1 - 2e-7])])


@claim(
    name="cv-early-norms",
    source="CV-early appendix A.3 ('1 >= ||u_i||^2 >= 1 - 2 sum exp(..)')",
    statement=r"1-\|u_i\|_2^2 \le 2\sum_{j<i}e^{-\|\mu_i-\mu_j\|_2^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions="u_i as printed",
    parameters=_SPACING,
    note="Several close predecessors share a direction that phi(mu_i) points along.",
)
def early_norms(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The factor 2 is not enough from some number of predecessors on."""

    def sides(means: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, r = early_losses(gaussian(means))
        return r[1:], 2 * squared_overlaps(gaussian(means))[1:]

    chain = ([[2.5], [3.1], [3.7], [4.3], [0.0]], [0.2] * 5)
    return hunt_points(sides, rng, budget, [chain])


@claim(
    name="cv-early-frobenius",
    source="CV-early appendix A.3 (constants 4 and 8)",
    statement=r"\|C_{X\otimes T}-\sum_i\omega_iC_i\otimes u_iu_i^\top\|_F^2 \le 4\sum_i\omega_i"
    r"\frac{\sigma_i^2}{\sigma^2}+8\sum_i\sum_{j<i}\omega_ie^{-\|\mu_i-\mu_j\|^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions="u_i as printed; single prompts, one image; all weights but the last tend to 0",
    parameters={"m": "3..62", "coincident prompts": "1..60"},
    note="Needs many rare prompts: the missing normalisation of u_j hides most of the error.",
)
def early_frobenius(rng: np.random.Generator, budget: Budget) -> Evidence:
    """A rare prompt at 0, `count` rare ones at 0.3, a frequent one at -8.5; ratio of the sides."""
    lhs, counts = [], []
    for count in (1, 5, 10, 20, 30, 60):
        means = np.concatenate([[0.0], np.full(count, 0.3), [-8.5]])[:, None]
        gram = gaussian(means)
        lhs.append(early_last_distance(gram) / (8 * squared_overlaps(gram)[-1]))
        counts.append(count)
    for gram in _random_means(rng, budget):
        if squared_overlaps(gram)[-1] > 0:
            lhs.append(early_last_distance(gram) / (8 * squared_overlaps(gram)[-1]))
            counts.append(len(gram) - 2)
    parameters = {"rare prompts at 0.3 sigma": np.array(counts)}
    return at_most(lhs, 1.0, parameters=parameters, size=np.array(counts))


@claim(
    name="cv-early-stacked-eigenvalues",
    source="CV-early appendix A.3 (eigenvalues omega_i ||u_i||^2 Eigs(C_i))",
    statement=r"\lambda(\sum_i\omega_iu_iu_i^\top) = \mathrm{sort}(\omega_i\|u_i\|_2^2)",
    expected=Verdict.FALSE,
    assumptions="u_i as printed; one image (C_i = 1)",
    parameters=_SPACING,
    note="Needs orthogonality; CV normalises the u_i.",
)
def early_stacked_eigenvalues(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Least eigenvalue of non-orthogonal summands (the largest is u_1's own)."""
    lhs, rhs = [], []
    for gram in [gaussian(np.array(LINE[0])), *_random_means(rng, budget)]:
        rows = gram_schmidt_early(gram) / np.sqrt(len(gram))
        between = rows @ gram @ rows.T
        lhs.append(np.linalg.eigvalsh(between)[0])
        rhs.append(np.diag(between).min())
    example = {"means": LINE[0], "lhs": float(lhs[0]), "rhs": float(rhs[0])}
    return equal(lhs, rhs, counterexample=example)


# ---------------------------------------------------------------------------------------------
# From spectra to entropies: the g-chain.


def four_eight(mixture: Mixture) -> float:
    """4 sum omega_i sigma_i^2 + 8 sum omega_i (i-1) sum_{j<i} e_ij: the last line of the chain."""
    ranks = np.arange(mixture.modes)
    overlaps = 8 * ranks * theorems.overlaps_before(mixture)
    return float(mixture.weights @ (4 * mixture.variances + overlaps))


def _independent_images() -> tuple[Mixture, float]:
    """One component, prompts at +-0.3 sigma; each shows images a and b equally often."""
    block = populations.Block(np.arange(2), np.array([0.5, 0.5]), np.ones((2, 2)), 2.0)
    label = "one component, prompts at +-0.3 sigma, each shows a or b equally often"
    location = np.array([[-0.3], [0.3]])
    return Mixture(np.zeros(2, int), location, (block,), label), 2.0


@claim(
    name="cv-g-chain-1",
    source="CV appendix B, g-chain line 1 (also CV-early)",
    statement=r"|\widetilde H_\alpha(X,T)-\tfrac{1}{1-\alpha}\log\|\hat\lambda\|_\alpha^\alpha| "
    r"\le "
    r"g(|\|\tilde\lambda\|_\alpha-\|\hat\lambda\|_\alpha|),\ g(z)=\tfrac{\alpha}{\alpha-1}\log"
    r"\tfrac{1}{1-z/\|\omega\|_\alpha}",
    expected=Verdict.FALSE,
    assumptions=_PROMPTS + "; read with |.| inside g (printed without |.|)",
    parameters=_RANGE | {"alpha": "2..300"},
    note="g divides by ||omega||_alpha, but the joint has ||lambda-hat||_alpha <= ||omega||_alpha.",
)
def g_chain_1(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Two images suffice."""

    def sides(mixture: Mixture, order: float) -> tuple[float, float]:
        norms = mixture.joint.norm(order), mixture.stacked.norm(order)
        bound = theorems.margin(abs(norms[0] - norms[1]), mixture.mode_spectrum.norm(order), order)
        return abs(mixture.joint.entropy(order) - mixture.stacked.entropy(order)), bound

    return theorems.hunt(
        sides, rng, budget, orders=theorems.ORDERS, examples=[_independent_images()]
    )


@claim(
    name="cv-g-chain-1-corrected",
    source="correction of line 1",
    statement=r"|\widetilde H_\alpha(X,T)-\tfrac{1}{1-\alpha}\log\|\hat\lambda\|_\alpha^\alpha| "
    r"\le "
    r"\tfrac{\alpha}{\alpha-1}\log\tfrac{1}{1-|\|\tilde\lambda\|_\alpha-\|\hat\lambda\|_\alpha|/"
    r"\|\hat\lambda\|_\alpha}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; the difference below ||lambda-hat||_alpha",
    parameters=_RANGE | {"alpha": "2..300"},
    note="Equality whenever the norm shrinks.",
    corrects="cv-g-chain-1",
)
def g_chain_1_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """log(1 + x) <= -log(1 - x)."""

    def sides(mixture: Mixture, order: float) -> tuple[float, float]:
        joint, stacked = mixture.joint.norm(order), mixture.stacked.norm(order)
        bound = theorems.margin(abs(joint - stacked), stacked, order)
        return abs(mixture.joint.entropy(order) - mixture.stacked.entropy(order)), bound

    return theorems.hunt(
        sides, rng, budget, orders=theorems.ORDERS, examples=[_independent_images()]
    )


@claim(
    name="cv-g-chain-2",
    source="CV appendix B, g-chain lines 2 and 3",
    statement=r"|\|\tilde\lambda\|_\alpha-\|\hat\lambda\|_\alpha| \le \|\tilde\lambda-\hat"
    r"\lambda\|_\alpha"
    r" \le \|\tilde\lambda-\hat\lambda\|_2,\ \alpha\ge 2",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; both spectra sorted",
    parameters=_RANGE | {"alpha": "2..20"},
)
def g_chain_2(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Triangle inequality, and l_alpha <= l_2."""

    def sides(mixture: Mixture, order: float) -> tuple[np.ndarray, np.ndarray]:
        near = populations.distance(mixture.joint, mixture.stacked, order)
        wide = populations.distance(mixture.joint, mixture.stacked, 2.0)
        norms = abs(mixture.joint.norm(order) - mixture.stacked.norm(order))
        return np.array([norms, near]), np.array([near, wide])

    return theorems.hunt(sides, rng, budget, orders=(2.0, 2.5, 4.0, 20.0))


@claim(
    name="cv-g-chain-4",
    source="CV appendix B, g-chain line 4 (the missing square root)",
    statement=r"\|\mathrm{sort}(\tilde\lambda)-\mathrm{sort}(\hat\lambda)\|_2 \le 4\sum_i\omega_i"
    r"\frac{\sigma_i^2}{\sigma^2}+8\sum_i(i-1)\omega_i\sum_{j<i}e^{-\|\mu_i-\mu_j\|^2/\sigma^2}",
    expected=Verdict.FALSE,
    assumptions=_PROMPTS,
    parameters=_RANGE,
    note="Eq. 18 bounds the squared norm. Two prompts, one image: k/sqrt(2) against 4 k^2.",
)
def g_chain_4(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Fails for all sufficiently separated prompts with a shared image."""

    def sides(mixture: Mixture, _: float) -> tuple[float, float]:
        return populations.distance(mixture.joint, mixture.stacked, 2.0), four_eight(mixture)

    return theorems.hunt(sides, rng, budget, examples=_same_image((0.1, 0.02)))


@claim(
    name="cv-g-chain-4-corrected",
    source="correction of line 4",
    statement=r"\|\mathrm{sort}(\tilde\lambda)-\mathrm{sort}(\hat\lambda)\|_2^2 \le 4\sum_i\omega_i"
    r"\frac{\sigma_i^2}{\sigma^2}+8\sum_i(i-1)\omega_i\sum_{j<i}e^{-\|\mu_i-\mu_j\|^2/\sigma^2}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
    note="True of spectra by `cv-eq-18-corrected`, although eq. 18 itself is false.",
    corrects="cv-g-chain-4",
)
def g_chain_4_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The squared distance."""

    def sides(mixture: Mixture, _: float) -> tuple[float, float]:
        return populations.distance(mixture.joint, mixture.stacked, 2.0) ** 2, four_eight(mixture)

    return theorems.hunt(sides, rng, budget, examples=_same_image())


@claim(
    name="cv-deterministic-output",
    source="CV appendix B ('we choose a deterministic constant X = 0')",
    statement=r"X\text{ constant}:\quad H_\alpha(C_{X,T}) = H_\alpha(C_T),\ \hat\lambda = \omega",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
)
def deterministic_output(rng: np.random.Generator, budget: Budget) -> Evidence:
    """phi_X is one unit vector."""
    lhs, rhs = [], []
    for mixture in theorems.sample_mixtures(rng, budget):
        constant = mixture.outputs_constant()
        lhs += [constant.joint.entropy(2.0), constant.stacked.entropy(3.0)]
        rhs += [mixture.prompts.entropy(2.0), mixture.mode_spectrum.entropy(3.0)]
    return equal(lhs, rhs)


@claim(
    name="cv-zero-output-operator",
    source="CV Theorem 7, proof ('with X fixed (or C_X = 0)')",
    statement=r"X\text{ fixed}\ \Rightarrow\ C_X = 0",
    expected=Verdict.FALSE,
    assumptions="normalised k_X",
    parameters={"images": "1"},
    note="A normalised kernel gives C_X unit trace: a fixed X has C_X = phi phi^T, never 0.",
)
def zero_output_operator(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Trace of the output operator of a constant."""
    traces = [
        mixture.outputs_constant().outputs[0].norm(1.0)
        for mixture in theorems.sample_mixtures(rng, budget)
    ]
    return equal(traces, 0.0, counterexample={"X": 0, "trace of C_X": 1.0})


def _prompt_sides(mixture: Mixture, order: float) -> tuple[float, float]:
    norm = mixture.mode_spectrum.norm(order)
    lhs = abs(mixture.prompts.entropy(order) - mixture.mode_spectrum.entropy(order))
    return lhs, theorems.margin(four_eight(mixture), norm, order)


@claim(
    name="cv-prompt-entropy",
    source="CV appendix B (display after 'X = 0')",
    statement=r"|\widetilde H_\alpha(T)-\tfrac{1}{1-\alpha}\log\|\omega\|_\alpha^\alpha| \le "
    r"g\Big(4\sum_i\omega_i\tfrac{\sigma_i^2}{\sigma^2}+8\sum_i(i-1)\omega_i\sum_{j<i}e^{-\|"
    r"\mu_i-\mu_j"
    r"\|^2/\sigma^2}\Big)",
    expected=Verdict.FALSE,
    assumptions=_PROMPTS + "; argument < ||omega||_alpha",
    parameters=_RANGE | {"alpha": "2..300"},
    note="Two equally likely prompts at alpha >= 60: the largest eigenvalue moves by k_T / 2.",
)
def prompt_entropy(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Large orders see the first-order shift of the largest eigenvalue."""
    examples = [(theorems.two_images(0.06), 100.0), (theorems.two_images(0.03), 300.0)]
    return theorems.hunt(_prompt_sides, rng, budget, orders=theorems.ORDERS, examples=examples)


@claim(
    name="cv-prompt-entropy-order-2",
    source="CV appendix B (display after 'X = 0') at alpha = 2",
    statement=r"|\widetilde H_2(T)-\log(1/\|\omega\|_2^2)| \le g(4v+8s)",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; v and s the two sums; argument < ||omega||_2",
    parameters=_RANGE,
    note="For single prompts ||C_T||_F^2 = sum_ij w_i w_j k_ij^2, which is linear in s.",
    corrects="cv-prompt-entropy",
)
def prompt_entropy_order_2(rng: np.random.Generator, budget: Budget) -> Evidence:
    """At order 2 the missing square root does not show on the prompt side."""
    examples = [(theorems.two_images(kernel), 2.0) for kernel in (0.02, 0.1)]
    return theorems.hunt(_prompt_sides, rng, budget, examples=examples)


@claim(
    name="cv-prompt-entropy-corrected",
    source="correction of the prompt-side display, every alpha > 1",
    statement=r"\tfrac{\alpha}{1-\alpha}\log\tfrac{U_T}{\|\omega\|_\alpha} \le \widetilde H_"
    r"\alpha(T)-"
    r"\tfrac{1}{1-\alpha}\log\|\omega\|_\alpha^\alpha \le \tfrac{\alpha}{1-\alpha}\log\tfrac{L_T}"
    r"{\|\omega\|_\alpha}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; L_T, U_T as in cv-theorem-6-corrected with s_i = 1",
    parameters=_RANGE | {"alpha": "1.2..300"},
    corrects="cv-prompt-entropy",
)
def prompt_entropy_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Pinching, compression, Araki-Lieb-Thirring."""

    def sides(mixture: Mixture, order: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = theorems.norm_range(mixture, np.ones(mixture.modes), order)
        norm, factor = mixture.mode_spectrum.norm(order), order / (order - 1)
        gap = mixture.prompts.entropy(order) - mixture.mode_spectrum.entropy(order)
        with np.errstate(divide="ignore"):
            bounds = factor * (np.log([high, norm]) - np.log([norm, low]))
        return np.array([-gap, gap]), bounds

    examples = [(theorems.two_images(0.06), 100.0), (theorems.two_images(0.03), 300.0)]
    return theorems.hunt(sides, rng, budget, orders=(1.2, *theorems.ORDERS), examples=examples)


@claim(
    name="cv-two-g-gamma",
    source="CV appendix B ('.. = 2g(Gamma)')",
    statement=r"2g\Big(4\sum_i\omega_i\tfrac{\sigma_i^2}{\sigma^2}+8\sum_i(i-1)\omega_i\sum_{j<i}"
    r"e^{-\|\mu_i-\mu_j\|^2/\sigma^2}\Big) = 2g(\Gamma)",
    expected=Verdict.FALSE,
    assumptions=_PROMPTS + "; Gamma < ||omega||_2",
    parameters=_RANGE,
    note="Gamma carries 32 where the proof has 4 and 8: an inequality, by factors 8 and 4.",
)
def two_g_gamma(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The constants of eq. 16 are not those of the proof."""
    return equal(*_two_margins(rng, budget))


@claim(
    name="cv-two-g-gamma-corrected",
    source="correction of '= 2g(Gamma)'",
    statement=r"2g(4v+8s) \le 2g(\Gamma/4) \le 2g(\Gamma)",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; Gamma < ||omega||_2",
    parameters=_RANGE,
    corrects="cv-two-g-gamma",
)
def two_g_gamma_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Monotone g."""
    return at_most(*_two_margins(rng, budget))


def _two_margins(rng: np.random.Generator, budget: Budget) -> tuple[list[float], list[float]]:
    lhs, rhs = [], []
    mixtures = [theorems.two_images(0.1), populations.far_prompts(1e-3, 1.0, 5, 1)]
    for mixture in mixtures + theorems.sample_mixtures(rng, budget):
        norm, z = mixture.mode_spectrum.norm(2), theorems.gamma(mixture)
        if z < norm:
            lhs.append(2 * theorems.margin(four_eight(mixture), norm, 2.0))
            rhs.append(2 * theorems.margin(z, norm, 2.0))
    return lhs, rhs


@claim(
    name="cv-power-mean",
    source="CV appendix B ('we can simplify the above expression as')",
    statement=r"\tfrac{1}{1-\alpha}\log\|\hat\lambda\|_\alpha^\alpha-\tfrac{1}{1-\alpha}\log\|"
    r"\omega\|_"
    r"\alpha^\alpha = f_\alpha^{-1}\Big(\sum_i\tfrac{\omega_i^\alpha}{\sum_j\omega_j^\alpha}"
    r"f_\alpha(\widetilde H_\alpha(X|G=i))\Big)",
    expected=Verdict.HOLDS,
    assumptions="none",
    parameters=_RANGE | {"alpha": "1.2..20"},
)
def power_mean(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The expectation over omega^alpha, computed from the component entropies."""
    lhs, rhs = [], []
    for mixture in theorems.sample_mixtures(rng, budget):
        order = float(rng.choice([1.2, 2.0, 4.0, 20.0]))
        law = mixture.weights**order / (mixture.weights**order).sum()
        entropies = np.array([part.entropy(order) for part in mixture.outputs])
        rhs.append(np.log(law @ np.exp((1 - order) * entropies)) / (1 - order))
        lhs.append(mixture.stacked.entropy(order) - mixture.mode_spectrum.entropy(order))
    finite = np.isfinite(rhs)  # the plain power underflows for very diverse outputs
    return equal(lhs, rhs, premise_met=finite, tolerance=1e-9)


# ---------------------------------------------------------------------------------------------
# CV Theorem 7, its proof.


@claim(
    name="cv-theorem-7-spectra",
    source="CV Theorem 7, proof (first display)",
    statement=r"\|\lambda(C_{X,T})-\hat\lambda\|_2^2 \le \Gamma",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE,
    note="Not by eq. 18, which is false, but by `cv-eq-18-corrected`.",
)
def theorem_7_spectra(rng: np.random.Generator, budget: Budget) -> Evidence:
    """The squared distance of the spectra."""

    def sides(mixture: Mixture, _: float) -> tuple[float, float]:
        gap = populations.distance(mixture.joint, mixture.stacked, 2.0)
        return gap**2, theorems.gamma(mixture)

    return theorems.hunt(sides, rng, budget, examples=_same_image())


@claim(
    name="cv-theorem-7-projection",
    source="CV Theorem 7, proof (Lemma B)",
    statement=r"\|\tilde\lambda^{(t)}_{X,T}-\hat\lambda^{(t)}_{X,T}\|_2 \le \sqrt\Gamma,\quad "
    r"\|\tilde\lambda^{(t)}_T-\hat\lambda^{(t)}_T\|_2 \le \sqrt\Gamma",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS + "; truncation of Lemma A on the sorted spectra",
    parameters=_RANGE | {"t": "2..20"},
)
def theorem_7_projection(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Projections onto the simplex do not expand."""

    def sides(mixture: Mixture, t: float) -> tuple[np.ndarray, float]:
        pairs = (mixture.joint, mixture.stacked), (mixture.prompts, mixture.mode_spectrum)
        gaps = [
            populations.distance(a.truncated(int(t)), b.truncated(int(t)), 2.0) for a, b in pairs
        ]
        return np.array(gaps), float(np.sqrt(theorems.gamma(mixture)))

    return theorems.hunt(sides, rng, budget, orders=theorems.TRUNCATIONS, examples=_same_image())


def _entropy_step(mixture: Mixture, t: float, largest: float) -> tuple[np.ndarray, float]:
    """Both entropy differences against sqrt(t Gamma) log sqrt(t / Gamma), for Gamma <= largest."""
    z, pairs = theorems.gamma(mixture), [(mixture.joint, mixture.stacked)]
    pairs.append((mixture.prompts, mixture.mode_spectrum))
    gaps = [abs(a.truncated(int(t)).entropy(1) - b.truncated(int(t)).entropy(1)) for a, b in pairs]
    bound = theorems.truncation_bound(z, t) / 2 if z <= largest else np.nan
    return np.array(gaps), bound


@claim(
    name="cv-theorem-7-entropies",
    source="CV Theorem 7, proof (Lemmas 2 and 3)",
    statement=r"|H(\tilde\lambda^{(t)})-H(\hat\lambda^{(t)})| \le \sqrt{t\Gamma}\log\sqrt{t/"
    r"\Gamma}",
    expected=Verdict.FALSE,
    assumptions=_PROMPTS + "; Gamma <= t, where the right side is >= 0 (none is printed)",
    parameters=_RANGE | {"t": "2..20"},
    note="Lemma 2 needs differences <= 1/e: Gamma <= e^{-2}. At Gamma = t the right side is 0. "
    "Some displays print sqrt(t) Gamma; all are read as sqrt(t Gamma).",
)
def theorem_7_entropies(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Two prompts with Gamma just below t = 2."""

    def sides(mixture: Mixture, t: float) -> tuple[np.ndarray, float]:
        return _entropy_step(mixture, t, t)

    near = theorems.two_images(0.3535)
    return theorems.hunt(sides, rng, budget, orders=theorems.TRUNCATIONS, examples=[(near, 2.0)])


@claim(
    name="cv-theorem-7-entropies-corrected",
    source="CV Theorem 7, proof, with the premise of Lemmas 2 and 3",
    statement=r"\Gamma\le e^{-2}:\quad |H(\tilde\lambda^{(t)})-H(\hat\lambda^{(t)})| \le "
    r"\sqrt{t\Gamma}\log\sqrt{t/\Gamma}",
    expected=Verdict.HOLDS,
    assumptions=_PROMPTS,
    parameters=_RANGE | {"t": "2..20"},
    corrects="cv-theorem-7-entropies",
)
def theorem_7_entropies_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Lemmas 2 and 3 within their range."""

    def sides(mixture: Mixture, t: float) -> tuple[np.ndarray, float]:
        return _entropy_step(mixture, t, np.exp(-2))

    examples = [(theorems.two_images(k), 2.0) for k in (0.05, 0.09)]
    examples += [(populations.far_prompts(1e-3, 0.5, 4, 1), 5.0)]
    return theorems.hunt(sides, rng, budget, orders=theorems.TRUNCATIONS, examples=examples)


@claim(
    name="cv-theorem-7-blocks",
    source="CV Theorem 7, proof ('by construction of the stacked union')",
    statement=r"H(\hat\lambda^{(t)}_{X,T})-H(\hat\lambda^{(t)}_T) = \sum_i\omega_iH^{(t)}_i",
    expected=Verdict.FALSE,
    assumptions="lambda-hat: union of omega_i Eigs(C_i); Gamma plays no part",
    parameters=_RANGE | {"t": "2..20"},
    note="Truncation does not commute with stacking: t places for all blocks, not for each.",
)
def theorem_7_blocks(rng: np.random.Generator, budget: Budget) -> Evidence:
    """Two prompts, two images, t = 2: the left side is even negative."""
    mixtures = [theorems.two_prompts_two_images(), *theorems.sample_mixtures(rng, budget)]
    t = np.array([2, *rng.choice(theorems.TRUNCATIONS, len(mixtures) - 1)])
    lhs = [theorems.stacked_truncated(m, int(s)) for m, s in zip(mixtures, t, strict=True)]
    rhs = [
        float(m.weights @ [part.truncated(int(s)).entropy(1) for part in m.outputs])
        for m, s in zip(mixtures, t, strict=True)
    ]
    parameters = {
        "t": t,
        "images": np.array([m.images for m in mixtures]),
        "population": np.array([m.label for m in mixtures]),
    }
    return equal(lhs, rhs, parameters=parameters, size=parameters["images"])


@claim(
    name="cv-theorem-7-blocks-corrected",
    source="correction of the last step of CV Theorem 7",
    statement=r"t\ge\sum_i\mathrm{rank}\,C_i:\quad H(\hat\lambda^{(t)})-H(\omega^{(t)}) = "
    r"\sum_i\omega_iH(C_i)",
    expected=Verdict.HOLDS,
    assumptions="nothing is cut",
    parameters=_RANGE,
    note="The chain rule of Shannon entropy.",
    corrects="cv-theorem-7-blocks",
)
def theorem_7_blocks_corrected(rng: np.random.Generator, budget: Budget) -> Evidence:
    """At t = number of stacked eigenvalues."""
    mixtures = [theorems.two_prompts_two_images(), *theorems.sample_mixtures(rng, budget)]
    lhs = [theorems.stacked_truncated(m, int(m.stacked.copies.sum())) for m in mixtures]
    return equal(lhs, [m.aggregate(1) for m in mixtures])
