"""Renyi Kernel Entropy: every statement of the RKE paper, on populations with exact answers.

The Gaussian kernel is k(x, y) = exp(-|x - y|^2 / (2 sigma^2)) as in the paper, so that the order-2
scores see k^2 = exp(-|x - y|^2 / sigma^2). The energy is exp(-RKE_2), the mean of k^2 over two
independent draws; the root fidelity is exp(-RRKE_{1/2} / 2).
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from theory_checks import numerics
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, at_most, equal, limit, rate
from theory_checks.numerics import gaussian

Rng = np.random.Generator

# Modes this many bandwidths apart have a kernel value of 1e-87.
FAR = 20.0


def _power(matrix: np.ndarray, power: float) -> np.ndarray:
    """Power of a positive semi-definite matrix on its support."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-13 * values.max()
    return (vectors[:, kept] * values[kept] ** power) @ vectors[:, kept].T


def sandwiched(a: np.ndarray, b: np.ndarray, order: float) -> float:
    """Relative Renyi entropy as printed in RKE section 3.3, in nats."""
    side = _power(b, (1 - order) / (2 * order))
    values = np.linalg.eigvalsh(side @ a @ side)
    return float(np.log(np.sum(values[values > 0] ** order)) / (order - 1))


nuclear_norm = partial(np.linalg.norm, ord="nuc")


# --- The scores as functions of the kernel --------------------------------------------------------


@claim(
    "rke-theorem-5",
    stated=(2, 2.0),
    mutants={"k for k^2": (1, 2.0), "Frobenius norm not squared": (2, 1.0)},
)
def _order_two(rng: Rng, budget: Budget, value: tuple[int, float]) -> Evidence:
    power, norm = value
    lhs, rhs = [], []
    for _ in range(budget.trials(40)):
        n, order = int(rng.integers(2, 21)), float(rng.uniform(0.4, 5.0))
        phi = numerics.unit_features(rng, n, int(rng.integers(2, 7)))
        weights, gram = rng.dirichlet(np.ones(n)), phi @ phi.T
        population = phi.T @ (weights[:, None] * phi)
        sample = np.linalg.eigvalsh(phi.T @ phi / n)
        a = 10.0 ** rng.uniform(-3, 3)
        top = a + 0.5 + math.sqrt(a**2 + a)
        lhs += [
            numerics.entropy(np.maximum(np.linalg.eigvalsh(population), 0.0), 2),
            -math.log((2 * a / top) / (1 - (0.5 / top) ** 2)),
            numerics.entropy(numerics.spectrum(gram), 2),
            numerics.entropy(numerics.spectrum(gram), order),
        ]
        rhs += [
            -math.log(weights @ np.abs(gram) ** power @ weights),
            0.5 * math.log1p(power / (2 * a)),
            -norm * math.log(np.linalg.norm(gram / n)),
            numerics.entropy(np.where(sample > 1e-13, sample, 0.0), order),
        ]
    return equal(lhs, rhs, tolerance=1e-9)


# --- Section 4.2: Gaussian mixtures ---------------------------------------------------------------


def pair_mean(shift: np.ndarray, cov: np.ndarray, sigma: float) -> float:
    """Mean of exp(-|Z|^2 / sigma^2), Z ~ N(shift, cov), d <= 2, by the trapezoidal rule."""
    axis = np.linspace(-9.0, 9.0, 161)
    grid = np.array(list(itertools.product(axis, repeat=len(shift))))
    density = np.prod(stats.norm.pdf(grid) * (axis[1] - axis[0]), axis=1)
    points = shift + grid @ np.linalg.cholesky(cov).T
    return float(density @ np.exp(-np.sum(points**2, 1) / sigma**2))


def five_terms(a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    """`A_ij` of RKE Theorem 1, with `scale` for the printed 2 sigma^2."""
    eye, inverse = np.eye(len(a)), np.linalg.inv
    p, q = scale * inverse(a), scale * inverse(b)
    first, second = (inverse(eye + r - inverse(eye + s)) for r, s in ((p, q), (q, p)))
    return eye - first - second + inverse(p + q + p @ q) + inverse(p + q + q @ p)


def compact(a: np.ndarray, b: np.ndarray, sigma: float, *, factor: float = 2.0) -> np.ndarray:
    """`A_ij` as it should be."""
    return np.linalg.inv(np.eye(len(a)) + factor / sigma**2 * (a + b))


def _scalar(power: float) -> Callable[..., np.ndarray]:
    """a_ij of Corollary 1 to a power, times the identity."""
    return lambda a, b, sigma: (1 + 2 * (a + b)[0, 0] / sigma**2) ** power * np.eye(len(a))


@claim(
    "rke-corollary-1",
    stated=(_scalar(1.0), -0.5, True),
    corrected=(_scalar(-1.0), -0.5, True),
    mutants={"root of a_ij in the exponent": (_scalar(-0.5), -0.5, True)},
)
@claim(
    "rke-theorem-1",
    stated=(lambda a, b, sigma: five_terms(a, b, 2 * sigma**2), -0.5, False),
    corrected=(compact, -0.5, False),
    mutants={
        "covariances counted once": (partial(compact, factor=1.0), -0.5, False),
        "determinant to the power -1": (compact, -1.0, False),
        "five terms with sigma^2": (lambda a, b, sigma: five_terms(a, b, sigma**2), -0.5, False),
    },
)
def _mixture(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """RKE of two modes by a closed form with the given `A_ij`, and by quadrature."""
    norm_matrix, power, isotropic = value
    trials = [(np.full(2, 0.5), np.array([[0.0], [1.0]]), np.ones((2, 1, 1)), 1.0)]
    for trial in range(budget.trials(10)):
        d = 1 + trial % 2
        covs = np.array([numerics.covariance(rng, d) + 0.05 * np.eye(d) for _ in range(2)])
        if isotropic:
            covs = rng.uniform(0.05, 1.5, size=(2, 1, 1)) * np.eye(d)
        means = rng.normal(size=(2, d)) * rng.uniform(0.2, 2.0)
        trials.append((rng.dirichlet(np.ones(2)), means, covs, float(rng.uniform(0.7, 5.0))))
    sums = np.zeros((2, len(trials)))
    for index, (weights, means, covs, sigma) in enumerate(trials):
        for i, j in itertools.product(range(2), repeat=2):
            gap, total = means[i] - means[j], covs[i] + covs[j]
            height = np.linalg.det(np.eye(len(gap)) + 2 / sigma**2 * total) ** power
            reach = gap @ norm_matrix(covs[i], covs[j], sigma) @ gap / sigma**2
            terms = [height * math.exp(-reach), pair_mean(gap, total, sigma)]
            sums[:, index] += weights[i] * weights[j] * np.array(terms)
    names = ("frequencies", "means", "covariances", "sigma")
    parameters = dict(zip(names, map(list, zip(*trials, strict=True)), strict=True))
    size = [trial[1].size for trial in trials]
    return equal(-np.log(sums[0]), -np.log(sums[1]), parameters=parameters, size=size)


@claim(
    "rke-approximation",
    stated=(1, 0),
    corrected=(2, 1),
    mutants={"spectral norm against sigma^2": (2, 0), "trace against sigma": (1, 1)},
)
def _approximation(rng: Rng, budget: Budget, value: tuple[int, int]) -> Evidence:
    """One mode, and two, by the corrected Corollary 1, on three ways for the ratio to vanish."""
    length, dimension = value
    ratios, one = 10.0 ** -np.arange(1, 7), np.ones(6)
    sigma, d = np.array([[one, ratios, one] * 2, [one, one, 1 / ratios] * 2])
    modes = np.repeat([[1], [2]], 3, axis=0) + 0 * sigma
    apart, square = (modes - 1) * rng.uniform(0, 0.5), rng.exponential()
    a = 1 + 4 * ratios * sigma ** (length - 2) / d**dimension
    exact = a ** (-d / 2) * (1 - apart + apart * np.exp(-square / a))
    return limit(
        np.log((1 - apart + apart * np.exp(-square)) / exact),
        0.0,
        ratios,
        tolerance=1e-4,
        size=modes * d,
        parameters={"modes": modes, "sigma": sigma, "d": d, "ratio": ratios + 0 * d},
        measured={"e^RKE of one mode, sigma_i = sigma/4, d = 64": (1 + 4 / 16) ** 32},
    )


# --- Section 4.2: sub-Gaussian modes --------------------------------------------------------------


class Modes(NamedTuple):
    """k modes whose d coordinates are all mean +- spread, independently; sigma = 1.

    Those of a pair have d = 1 and lie along an axis of the plane.
    """

    weights: np.ndarray  # [k]
    means: np.ndarray  # [k]
    spreads: np.ndarray  # [k], the sub-Gaussian parameters
    d: int = 1
    axis: int = 0

    @property
    def points(self) -> np.ndarray:
        """Mean + and - spread of a coordinate, `[2, k]`."""
        return self.means + self.spreads * np.array([[1.0], [-1.0]])

    def placed(self, positions: np.ndarray) -> np.ndarray:
        """Positions along the axis as points of the plane, `[positions, 2]`."""
        return np.outer(positions, np.eye(2)[self.axis])

    def energies(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of k^2 over pairs of modes, and k^2 of their centres, `[k, k]` each."""
        gaps = self.points[:, None, :, None] - self.points[:, None, :]
        centres = np.exp(-self.d * np.subtract.outer(self.means, self.means) ** 2)
        return np.exp(-(gaps**2)).mean((0, 1)) ** self.d, centres


def _modes(rng: Rng, budget: Budget) -> list[Modes]:
    """Where the bounds are closest, by hand, and random modes of any width and dimension."""
    found = [
        Modes(np.ones(1), np.zeros(1), np.full(1, math.sqrt(t / d)), d)
        for d, t in ((1, 0.3), (64, math.log(3)), (64, 0.02), (512, 1.0))
    ]
    rare = np.array([0.01, 0.99]), np.array([0.0, math.sqrt(1.5)]), np.array([0.1, 0.0])
    found.append(Modes(*rare))
    for trial in range(budget.trials(100)):
        k, d = 1 + trial % 3, int(rng.choice([1, 2, 16]))
        means, spreads = rng.normal(size=k) / math.sqrt(d), 10.0 ** rng.uniform(-2, 0.5, k)
        found.append(Modes(rng.dirichlet(np.ones(k)), means, spreads, d))
    return found


def _printed_radius(modes: Modes, *, constant: float = 8.0, d: int | None = None) -> Any:
    exact, centres = modes.energies()
    radii = 1 - (1 + 2 * modes.spreads**2) ** (-(d or modes.d) / 2)
    error = abs(modes.weights @ (exact - centres) @ modes.weights)
    return [error], [math.sqrt(constant * modes.weights @ radii)]


def _two_sided_at(modes: Modes, *, low: float = 1.0, high: float = 1.0) -> Any:
    exact, centres = modes.energies()
    t = modes.d * np.add.outer(modes.spreads**2, modes.spreads**2)
    bounds = centres * np.exp(-low * t), exact, centres + 2 * math.exp(-1.5) * high * t
    lower, energy, upper = (modes.weights @ bound @ modes.weights for bound in bounds)
    return [energy, lower], [upper, energy]


def _two_sided(**changes: float) -> Any:
    """The sides, and of each bound the place in `_modes` where it is nearly attained."""
    return partial(_two_sided_at, **changes), [4, 3]


def _radius(**changes: Any) -> Any:
    return partial(_printed_radius, **changes), []


@claim(
    "rke-theorem-2-sharper",
    stated=_two_sided(),
    mutants={
        "lower bound: t / 1.5": _two_sided(low=1 / 1.5),
        "upper bound: t / 1.5": _two_sided(high=1 / 1.5),
        "lower bound 1.5 times weaker": _two_sided(low=1.5),
        "upper bound 1.5 times weaker": _two_sided(high=1.5),
    },
)
@claim(
    "rke-theorem-2",
    stated=_radius(),
    mutants={"the factor 8 dropped": _radius(constant=1.0), "the dimension dropped": _radius(d=1)},
)
def _bounded_modes(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The sides; where a bound is attained, its slack by what the widths do to the energy."""
    sides, attained = value
    found = _modes(rng, budget)
    lhs, rhs = np.array([sides(modes) for modes in found]).transpose(1, 0, 2)
    measured = {"times too large, d sigma_i^2 = 0.02 sigma^2": rhs[2, -1] / lhs[2, -1]}
    slacks, allowed = [], []
    for bound, place in enumerate(attained):
        exact, centres = found[place].energies()
        weights = found[place].weights
        slacks.append(rhs[place, bound] - lhs[place, bound])
        allowed.append(0.05 * abs(weights @ (exact - centres) @ weights))
    return at_most(
        [*lhs.ravel(), *slacks], [*rhs.ravel(), *allowed], tolerance=1e-12, measured=measured
    )


@claim(
    "rke-mode-count",
    stated=np.size,
    corrected=lambda weights: 1 / np.sum(weights**2),
    mutants={
        "one over the largest frequency": lambda weights: 1 / weights.max(),
        "Shannon's entropy": lambda weights: np.exp(-weights @ np.log(weights)),
    },
)
def _mode_count(rng: Rng, budget: Budget, count: Any) -> Evidence:
    weights = [np.array([0.9, 0.1]), *(rng.dirichlet(np.ones(k)) for k in (3, 4, 5, 6))]
    grams = (gaussian(FAR * np.arange(len(each))[:, None]) for each in weights)
    spectra = (numerics.spectrum(gram, each) for gram, each in zip(grams, weights, strict=True))
    return equal(
        [np.exp(numerics.entropy(spectrum, 2)) for spectrum in spectra],
        [count(each) for each in weights],
        tolerance=1e-9,
        parameters={"frequencies": weights},
        size=[*map(len, weights)],
    )


# --- Section 4.2: differential entropy ------------------------------------------------------------


class Density(NamedTuple):
    """A density by its energy as a function of sigma; listed entropies."""

    d: int
    energy: Callable[[float], float]
    square: float  # integral of P^2
    shannon: float = math.nan


def uniform_energy(sigma: float) -> float:
    """Energy of the uniform distribution on [0, 1]."""
    return sigma * math.sqrt(math.pi) * math.erf(1 / sigma) + sigma**2 * math.expm1(-1 / sigma**2)


def exponential_energy(sigma: float) -> float:
    """Energy of the unit exponential: the difference of two is Laplace."""
    return 0.5 * math.sqrt(math.pi) * sigma * float(special.erfcx(sigma / 2))


_ROOT, _NORMAL = 1 / math.sqrt(4 * math.pi), 0.5 * math.log(2 * math.pi * math.e)
DENSITIES = {
    "normal": Density(1, lambda s: (1 + 4 / s**2) ** -0.5, _ROOT, _NORMAL),
    "normal, d = 3": Density(3, lambda s: (1 + 4 / s**2) ** -1.5, _ROOT**3),
    # The difference of two has density (1 + |z|) e^{-|z|} / 4.
    "Laplace": Density(1, lambda s: exponential_energy(s) * (0.5 - s**2 / 4) + s**2 / 4, 0.25),
    "exponential": Density(1, exponential_energy, 0.5, 1.0),
    "uniform": Density(1, uniform_energy, 1.0, 0.0),
    "uniform, d = 2": Density(2, lambda s: uniform_energy(s) ** 2, 1.0),
    "two normals": Density(
        1,
        lambda s: (1 + 4 / s**2) ** -0.5 * (1 + math.exp(-4 / (s**2 + 4))) / 2,
        _ROOT * (1 + math.exp(-1.0)) / 2,
    ),
}


def entropy_gap(
    density: Density, sigma: float, *, scale: float | None = math.pi, order: int = 2
) -> float:
    """RKE + d/2 log(scale sigma^2), if there is a scale, less the differential entropy.

    At order 2 the difference of the sides of RKE Theorem 3; at order 1 Shannon's entropy, where
    listed.
    """
    shift = 0.0 if scale is None else density.d / 2 * math.log(scale * sigma**2)
    target = density.shannon if order == 1 else -math.log(density.square)
    return shift - math.log(density.energy(sigma)) - target


@claim(
    "rke-differential-entropy",
    stated=partial(entropy_gap, scale=None, order=1),
    corrected=entropy_gap,
    mutants={
        "shifted, Shannon's entropy": partial(entropy_gap, order=1),
        "not shifted": partial(entropy_gap, scale=None),
    },
)
@claim(
    "rke-theorem-3",
    stated=entropy_gap,
    mutants={"2 pi for pi": partial(entropy_gap, scale=2 * math.pi)},
)
def _small_sigma(rng: Rng, budget: Budget, distance: Callable[[Density, float], float]) -> Evidence:
    sigmas = np.geomspace(0.5, 1e-5, 12)
    rows = np.array([[distance(each, s) for s in sigmas] for each in DENSITIES.values()])
    names = np.repeat(np.array(list(DENSITIES))[:, None], len(sigmas), axis=1)
    return limit(
        rows,
        0.0,
        sigmas,
        premise_met=~np.isnan(rows[:, 0]),
        tolerance=1e-3,
        size=np.arange(len(rows))[:, None] + 0 * rows,
        parameters={"density": names, "sigma": sigmas + 0 * rows},
        data={"sigma": sigmas, "density": list(DENSITIES), "gap": rows},
    )


@claim("rke-small-bandwidth", stated=(0.9, 1.1), mutants={"like the root of n": (0.4, 0.6)})
def _small_bandwidth(rng: Rng, budget: Budget, slopes: Any) -> Evidence:
    """Mode count of uniform samples, whose pairs within a few bandwidths are near neighbours."""
    sizes, sigma, moments = np.array([20, 32, 50, 80, 125, 200]), 2e-4, []
    counts = np.empty(0)
    for n in sizes:
        x = np.sort(rng.uniform(size=(budget.trials(1500), n)), axis=1)
        near = [np.exp(-(((x[:, lag:] - x[:, :-lag]) / sigma) ** 2)).sum(1) for lag in range(1, 5)]
        counts = 1 / (1 / n + 2 * sum(near) / n**2)
        moments.append((counts.mean(), counts.std()))
    measured = {
        "deviation of the score at n = 200, true score 7.9": np.log(counts).std(),
        "score at n = 200": np.log(counts).mean(),
    }
    return rate(np.transpose(moments), slopes, sizes.astype(float), measured=measured)


# --- Section 4.3: relative entropy ----------------------------------------------------------------


def fidelity(x: Modes, y: Modes) -> float:
    """exp(-RRKE_{1/2} / 2), from the points."""
    masses = np.outer(np.tile(x.weights, 2), np.tile(y.weights, 2)) / 4
    kernel = gaussian(x.placed(x.points), y.placed(y.points))
    return float(nuclear_norm(np.sqrt(masses) * kernel))


def centres(x: Modes, y: Modes, power: int = 1) -> np.ndarray:
    """[sqrt(omega_i eta_j) k(mu_i, zeta_j)^power]."""
    kernel = gaussian(x.placed(x.means), y.placed(y.means))
    return np.sqrt(np.outer(x.weights, y.weights)) * kernel**power


def overlaps(x: Modes, y: Modes, noise: float) -> np.ndarray:
    """[sqrt(omega_i eta_j) int sqrt(p_i q_j)] of the modes after adding N(0, noise^2)."""
    ends = np.concatenate([x.means, y.means, np.zeros(1)])
    grid = np.arange(ends.min() - 8, ends.max() + 8, noise / 6)
    found = np.sqrt(np.outer(x.weights, y.weights))
    for axis in range(2):  # smoothed modes are products of what they are along each axis
        points = (part.points[..., None] * (part.axis == axis) for part in (x, y))
        a, b = (np.sqrt(stats.norm.pdf(grid, each, noise).mean(0)) for each in points)
        found = found * (a @ b.T) * noise / 6
    return found


def _pairs(rng: Rng, budget: Budget) -> list[tuple[Modes, Modes]]:
    """Pairs that show or attain something, by hand; then random ones, most of them far apart."""
    half, zero, places = np.full(2, 0.5), np.zeros(2), np.array([0.0, FAR])
    single = np.ones(1), np.zeros(1), np.full(1, 0.3)
    found = [
        (Modes(half, places, zero), Modes(half, -places, zero)),  # one common mode of two
        (Modes(half, places, zero + 0.003), Modes(half, -places, zero + 0.003)),
        (Modes(half, zero, zero), Modes(half, zero, zero)),  # X = Y, modes that coincide
        (Modes(half, places, zero), Modes(half, places, half)),
        (Modes(half, places, zero), Modes(half, places, np.array([0.0, 0.5]))),
        (Modes(*single), Modes(*single, axis=1)),  # a mode each, of perpendicular widths
    ]
    for trial in range(budget.trials(60)):
        k = 1 + trial % 3
        mu = FAR * np.arange(k) if trial % 4 else rng.normal(size=k)
        zeta = mu + rng.uniform(0, 2) * rng.normal(size=k) + FAR * rng.integers(0, 2) * (mu > 0)
        omega, eta = rng.dirichlet(np.ones(k), size=2)
        widths = 10.0 ** rng.uniform(-3, 0.3, size=(2, k))
        found.append((Modes(omega, mu, widths[0]), Modes(eta, zeta, widths[1])))
    return found


def _fidelity_printed(x: Modes, y: Modes) -> Any:
    d = 1 + abs(x.axis - y.axis)
    radii = 1 - (1 + 2 * np.maximum(x.spreads, y.spreads) ** 2) ** (-d / 2)
    error = abs(fidelity(x, y) ** 2 - centres(x, y, 2).sum())
    return [error], [(32 * (x.weights + y.weights) @ radii) ** 0.25]


def _fidelity_corrected(
    x: Modes,
    y: Modes,
    *,
    norm: Any = nuclear_norm,
    kernel: int = 1,
    power: int = 1,
    less: float = 1,
    joined: Any = sum,
    inner: float = 1.0,
) -> Any:
    values = fidelity(x, y) ** power, norm(centres(x, y, kernel))
    sides = [math.sqrt(abs(1 - value)) for value in values]
    moved = [
        (part.weights @ (-np.expm1(-(part.spreads**2) / 2)) ** inner) ** (0.5 / inner)
        for part in (x, y)
    ]
    return [abs(sides[0] - sides[1])], [joined(moved) / less]


def _fidelity_between(
    x: Modes,
    y: Modes,
    *,
    looser: float = 1.0,
    noise: float = 0.5,
    cross: bool = True,
    joined: Any = np.add,
    weaker: tuple[float, float] = (1.0, 1.0),
) -> Any:
    shrink = np.exp(-joined(x.spreads**2, y.spreads**2) / 2 / looser)
    value, terms = fidelity(x, y), overlaps(x, y, noise)
    lower, upper = np.diag(centres(x, y)) @ shrink, terms.sum() if cross else np.trace(terms)
    return [lower / weaker[0], value], [value, upper * weaker[1]]


def _corrected(**changes: Any) -> Any:
    """The sides, and of each bound the places in `_pairs` where it is attained."""
    return partial(_fidelity_corrected, **changes), [[0, 3, 4]]


def _between(**changes: Any) -> Any:
    return partial(_fidelity_between, **changes), [[0, 3, 4, 5], [0]]


@claim(
    "rke-theorem-4-separated",
    stated=_between(),
    mutants={
        "lower: widths / 1.5": _between(looser=1.5),
        "lower: the larger width for both": _between(joined=np.maximum),
        "lower: a bound 1.5 times weaker": _between(weaker=(1.5, 1.0)),
        "upper: half the noise": _between(noise=0.25),
        "upper: matched modes only": _between(cross=False),
        "upper: a bound 1.5 times weaker": _between(weaker=(1.0, 1.5)),
    },
)
@claim(
    "rke-theorem-4",
    stated=(_fidelity_printed, []),
    corrected=_corrected(),
    mutants={
        "bound / 1.5": _corrected(less=1.5),
        "a bound 1.5 times weaker": _corrected(less=1 / 1.5),
        "the larger root for the sum of both": _corrected(joined=max),
        "sum of roots for the root of the sum": _corrected(inner=0.5),
        "sum for the nuclear norm": _corrected(norm=np.sum),
        "k^2 for k": _corrected(kernel=2),
        "RRKE for RRKE / 2": _corrected(power=2),
    },
)
def _relative(rng: Rng, budget: Budget, value: Any) -> Evidence:
    """The sides; where a bound is attained, the other way round as well."""
    sides, attained = value
    pairs = _pairs(rng, budget)
    lhs, rhs = np.array([sides(*pair) for pair in pairs]).transpose(1, 2, 0)
    where = [(bound, place) for bound, places in enumerate(attained) for place in places]
    below = [*lhs.ravel(), *(rhs[each] for each in where)]
    above = [*rhs.ravel(), *(lhs[each] for each in where)]
    pairs = pairs * len(lhs) + [pairs[place] for _, place in where]
    names = ("omega", "mu", "widths_x", "eta", "zeta", "widths_y")
    rows = [(*x[:3], *y[:3]) for x, y in pairs]
    # Counterexamples with separated modes come first. Roots of 1 - 1 are of the order 1e-8.
    near = [min(np.diff(np.sort(m.means)).min(initial=FAR) for m in pair) < 6 for pair in pairs]
    return at_most(
        below,
        above,
        tolerance=1e-7,
        parameters=dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)),
        size=[len(row[0]) + 10 * close for row, close in zip(rows, near, strict=True)],
    )


# --- Section 5: estimation ------------------------------------------------------------------------


class Law(NamedTuple):
    """Modes far apart: one of mass `share`, the others one mode as well, or all different."""

    share: float
    one_other: bool

    def energy(self, share: Any = None, n: float = math.inf) -> Any:
        """Mean of k^2 over two draws; of a sample of size n, by the share of the mode in it."""
        share = self.share if share is None else share
        return share**2 + ((1 - share) ** 2 if self.one_other else (1 - share) / n)

    def variance(self) -> float:
        """Of E k^2(x, X) over x."""
        return self.share**3 + (1 - self.share) ** 3 * self.one_other - self.energy() ** 2

    def errors(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Empirical energy less energy by the count of the mode, and the chances' logarithms."""
        counts = np.arange(n + 1)
        return self.energy(counts / n, n) - self.energy(), stats.binom.logpmf(counts, n, self.share)

    def quantile(self, n: int, level: float) -> float:
        """Of the absolute error, exactly."""
        errors, chances = self.errors(n)
        order = np.argsort(np.abs(errors))
        where = np.searchsorted(np.cumsum(np.exp(chances[order])), level)
        return float(np.abs(errors)[order][where])


LAWS = [Law(share, one) for share in (0.75, 0.3, 0.03, 1e-4) for one in (False, True)]
LAWS += [Law(0.5, True), Law(0.85, True)]


def printed_bound(n: Any, delta: float, energy: float, _: float, *, constant: float = 1.0) -> Any:
    """RKE Theorem 6 with a constant for its O."""
    return constant * np.sqrt(np.log(n / delta) / n)


def hoeffding_bound(
    n: Any, delta: float, energy: float, _: float, *, divisor: float = 1, bias: int = 1
) -> Any:
    """Hoeffding's inequality for U-statistics, and the bias."""
    deviation = (1 - 1 / n) * np.sqrt(np.log(2 / delta) / (2 * (n // 2)))
    return (deviation + bias * (1 - energy) / n) / divisor


def largest_variance(energy: float) -> float:
    """The most that the variance of E k^2(x, X) can be, given the energy."""
    return energy**1.5 * (1 - math.sqrt(energy))


def variance_bound(
    n: Any, delta: float, energy: float, variance: float, *, divisor: float = 1, order: int = 1
) -> Any:
    """Bernstein's inequality for the linear part, bounded differences for the quadratic one."""
    log, root = math.log(3 / delta), math.sqrt(energy)
    rest = 2 * root * log / 3 + (math.sqrt(1 - energy) + math.sqrt(log)) ** 2
    return (2 * np.sqrt(2 * variance * log / n) + order * rest / n) / divisor


@claim(
    "rke-theorem-6-variance",
    stated=variance_bound,
    mutants={
        "divided by 1.5": partial(variance_bound, divisor=1.5),
        "without the terms 1/n": partial(variance_bound, order=0),
    },
)
@claim(
    "rke-theorem-6-sharper",
    stated=hoeffding_bound,
    mutants={
        "divided by 1.5": partial(hoeffding_bound, divisor=1.5),
        "without the bias": partial(hoeffding_bound, bias=0),
    },
)
@claim(
    "rke-theorem-6",
    stated=printed_bound,
    mutants={"constant 1 / 1.5": partial(printed_bound, constant=1 / 1.5)},
)
def _tails(rng: Rng, budget: Budget, bound: Callable[..., Any]) -> Evidence:
    """Logarithm of the exact chance that the error exceeds the bound, against that of delta."""
    cells = []
    sizes = budget.pick((2, 6, 7, 100, 10**3, 10**5), (2, 6, 7, 8, 30, 100, 10**3, 10**4, 10**5))
    for law, n in [(law, int(n)) for law in LAWS for n in sizes]:
        errors, chances = law.errors(n)
        moments = law.energy(), law.variance()
        for delta in (0.9,) if n == 2 else (0.5, 0.05, 1e-3, 1e-8):
            failed = np.abs(errors) > bound(n, delta, *moments) + 1e-12
            cells.append((np.logaddexp.reduce(chances[failed], initial=-np.inf), math.log(delta)))
    # The variance is at most what the score allows.
    cells += [(law.variance(), largest_variance(law.energy())) for law in LAWS]
    measured = {
        f"times too large, {name}, n = {n}": float(
            bound(n, 0.05, law.energy(), law.variance()) / law.quantile(n, 0.95)
        )
        for name, law in (("largest variance", LAWS[0]), ("two equal modes", Law(0.5, True)))
        for n in (1000, 100_000)
    }
    return at_most(*np.transpose(cells), measured=measured)


@claim("rke-theorem-6-rate", stated=(-0.53, -0.47), mutants={"like 1/n": (-1.04, -0.96)})
def _error_rate(rng: Rng, budget: Budget, slopes: Any) -> Evidence:
    """Root mean square error, exactly; that of equal modes times the root of n."""
    sizes = 2.0 ** np.arange(6, 14)
    laws = {
        "modes of 0.95 and 0.05": Law(0.95, True),
        "a mode of 3/4 and rare ones": Law(0.75, False),
        "two equal modes": Law(0.5, True),
    }
    found = [[law.errors(int(n)) for n in sizes] for law in laws.values()]
    rows = np.array(
        [[math.sqrt(np.exp(logs) @ errors**2) for errors, logs in row] for row in found]
    )
    data = {"n": sizes, "population": list(laws), "error": rows}
    data |= {
        "printed": printed_bound(sizes, 0.05, 0, 0),
        "sharper": hoeffding_bound(sizes, 0.05, 0, 0),
    }
    return rate([*rows[:2], rows[2] * np.sqrt(sizes)], slopes, sizes, data=data)


@claim(
    "rke-theorem-7",
    stated=(nuclear_norm, 2.0),
    mutants={
        "Frobenius norm for the nuclear norm": (np.linalg.norm, 2.0),
        "nuclear norm not squared": (nuclear_norm, 1.0),
    },
)
def _fidelity(rng: Rng, budget: Budget, value: Any) -> Evidence:
    norm, power = value
    lhs, rhs = [], []
    for _ in range(budget.trials(40)):
        d, n, m = (int(size) for size in rng.integers(2, 8, 3))
        x, y = numerics.unit_features(rng, n, d), numerics.unit_features(rng, m, d)
        a, b = x.T @ x / n, y.T @ y / m
        lhs += [sandwiched(a, b, 0.5)] * 2 + [sandwiched(a, a, 0.5)]
        products = x @ y.T / math.sqrt(n * m), _power(a, 0.5) @ _power(b, 0.5), x @ x.T / n
        rhs += [-power * math.log(norm(product)) for product in products]
    # The root of an eigenvalue that is zero up to rounding is of the order 1e-8.
    return equal(lhs, rhs, tolerance=1e-6)


# RKE-MC of Table 1: the data set, its number of images, the generators.
TABLE_1 = {
    "CIFAR-10": (39.58, 50_000, (10.19, 10.64, 19.07, 24.46, 25.83, 29.80)),
    "Tiny-ImageNet": (155.86, 100_000, (25.68, 27.18, 39.61, 56.94)),
    "ImageNet": (
        1823.52,
        1_281_167,
        (105.57, 115.62, 152.89, 106.07, 119.76, 606.18, 1375.17, 1321.24, 1407.75),
    ),
}


@claim(
    "rke-table-1",
    stated=printed_bound,
    corrected=variance_bound,
    mutants={
        "a thirtieth of the samples": lambda n, *rest: variance_bound(n / 30, *rest),
        "Hoeffding's bound": hoeffding_bound,
    },
)
def _table_1(rng: Rng, budget: Budget, bound: Any) -> Evidence:
    """Energy of the data set and the least energy of the generator that the bound allows."""
    rows = [(name, count, n, o) for name, (count, n, others) in TABLE_1.items() for o in others]
    allowed = []
    for _, _, n, other in rows:
        least = 1 / other
        for _ in range(60):
            least = max(1 / other - bound(n, 0.05, least, largest_variance(least)), 0.0)
        allowed.append(least)
    return at_most(
        [1 / count for _, count, *_ in rows],
        allowed,
        parameters={"data set, its count, the generator's": [(*row[:2], row[3]) for row in rows]},
        size=[count for _, count, *_ in rows],
    )
