r"""Mixtures of prompts: CV appendix B and Cluster-Vendi (G.1), CV-early Theorem 1 and A.3.

Prompts T come from m components with weights w_i, means mu_i and variances s_i^2 (lengths in
bandwidths: s_i^2 is the papers' sigma_i^2 / sigma^2); C_i is the output operator of component i,
K = [k_T(mu_i, mu_j)], e_ij = K_ij^2, and lambda-hat the union of the w_i Eigs(C_i). The papers
compare H(X|T) with an aggregate of the H(X|G=i). Proofs of what holds: docs/proofs.md.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from theory_checks import latex, numerics, populations, statements
from theory_checks.claim import claim
from theory_checks.evidence import Budget, Evidence, Verdict, compared, judge
from theory_checks.populations import Mixture, far_prompts, one_component, rare_mode, two_prompts

ORDERS = (2.0, 2.5, 4.0, 20.0, 300.0)
TRUNCATIONS = (20, 2, 3, 5)
_FOUND = 1e15  # A population that a search found is no small counterexample while others are there.
_ROUNDING = 1e-11  # Below this a left side is rounding, and its ratio to the bound says nothing.


def at(order: float, *mixtures: Mixture) -> list[tuple[Mixture, float]]:
    """These populations at one order."""
    return [(mixture, order) for mixture in mixtures]


RARE = at(
    2.0,
    rare_mode(1e-4, 3e-3, 0.5, 1e5),
    rare_mode(1e-3, 1e-3, 1.0, 1e8),
    rare_mode(1e-6, 1e-6, 0.01, 1e14, count=9),
)
FAR = at(2.0, far_prompts(6e-3, 0.6, 1e5), far_prompts(6e-4, 1.4, 1e8, 2))
SPREAD = [
    (far_prompts(p, d, n), a) for p, d, n in ((0.1, 1, 50), (0.01, 0.5, 1e5)) for a in (2.0, 4.0)
]
HIGH = [(two_prompts(0.005), 150.0), (two_prompts(0.005), 1000.0)]
EQUAL = two_prompts(0.3)
"""At every order its score lies above the aggregate as far as the bounds allow."""
CLOSE = one_component(0.05, False, 0.02)
"""One image, and a near prompt of small probability: its spectrum moves nearly as far as it may."""
TOGETHER = [two_prompts(k, own=False) for k in (0.9, 0.2, 0.1, 0.02)]
ONE_IMAGE = at(2.0, *TOGETHER)


CASES: dict[str, Callable[[Mixture], Any]] = {
    "one component": lambda m: m.modes == 1,
    "two components": lambda m: m.modes == 2,
    "one dimension": lambda m: m.location.shape[1] == 1,
    "equal weights": lambda m: np.ptp(m.weights) < 1e-12,
    "point prompts": lambda m: np.all(m.variances < 1e-20),
    "a mode of one image": lambda m: np.any(np.diag(m.pairs[2]) > (1 - 1e-9) * m.weights**2),
    "modes without a common image": lambda m: np.count_nonzero(m.pairs[1]) == m.modes,
    "orthogonal images": lambda m: all(
        np.isin(np.round(b.gram, 9), (0, 1)).all() for b in m.blocks
    ),
    "bandwidth 2": lambda m: m.bandwidth == 2,
}
"""What a search may have been confined to, by its name in the statements."""


def described(mixture: Mixture, prompts: bool = False) -> str:
    """Its label, or what there is to say of a population of single prompts on a line."""
    if mixture.label or not prompts or mixture.means.shape[1] > 1:
        return mixture.label or f"{mixture.modes} component(s), found by search"
    lists = (", ".join(f"{x:.4g}" for x in y) for y in (mixture.means[:, 0], mixture.weights))
    return "prompts at {} of weights {}".format(*lists)


Sides = Callable[[Any, Mixture, float], tuple[Any, Any]]


def hunt(
    name: str,
    *,
    examples: Sequence[tuple[Mixture, float]],
    shapes: Sequence[populations.Shape] = populations.SHAPES,
    orders: Sequence[float] = (2.0,),
    relative: bool = False,
    expected: Verdict | None = None,
) -> Callable[[Sides], Sides]:
    """Register lhs <= rhs: examples, random populations, and climbs of lhs / rhs from them.

    The decorated function gives both sides, one number or several, of a form's formulas, a
    population and an order. The search ends where a population refutes the statement. A side that
    is not a number says that the statement claims nothing there (premise unmet).

    Args:
        name: of the claim.
        examples: populations with the order to try them at.
        shapes: of the random populations.
        orders: of the random populations.
        relative: compare lhs / rhs with 1, which shows violations however small both sides are.
        expected: the verdict on the statement, as for `claim`.
    """
    columns = "order or t", "prompts", "images", "population", "left side", "right side"
    left_out = columns[1:3] if relative else columns[4:]
    tolerance = 1e-8 if relative else 1e-10

    def evidence(apply: Sides, rng: np.random.Generator, budget: Budget, form: Any) -> Evidence:
        rows: list[tuple[Any, ...]] = []
        tried: list[Mixture] = []
        found = partial(compared, "<=", rows, "met", "size", *columns, tolerance=tolerance)

        def sides(mixture: Mixture, order: float) -> Sequence[np.ndarray]:
            return np.broadcast_arrays(*map(np.atleast_1d, apply(form, mixture, order)))

        def tightness(theta: np.ndarray, order: float, shape: populations.Shape) -> float:
            lhs, rhs = sides(populations.decode(theta, shape), order)
            ratios = (lhs + 1e-12) / (np.maximum(rhs, 0.0) + 1e-12)
            return np.max(ratios[np.isfinite(lhs) & np.isfinite(rhs)], initial=-np.inf)

        def attempt(mixture: Mixture, order: float) -> None:
            prompts, images = len(mixture.component), mixture.images
            size = prompts * images + (0 if mixture.label or relative else _FOUND)
            shown = size, order, prompts, images, described(mixture, relative)
            for lhs, rhs in zip(*sides(mixture, order), strict=True):
                with np.errstate(divide="ignore", invalid="ignore"):
                    left, right = (lhs / rhs, 1.0) if relative else (lhs, rhs)
                left = 0.0 if abs(left) < _ROUNDING else left
                rows.append((left, right, not np.isnan([left, right]).any(), *shown, lhs, rhs))
                tried.append(mixture)

        for (mixture, order), bandwidth in itertools.product(examples, (2.0, 0.01)):
            attempt(replace(mixture, bandwidth=bandwidth), order)
        for shape in shapes:
            if judge(found()).verdict is Verdict.FALSE:
                break
            thetas = [1.2 * rng.standard_normal(shape.dimension) for _ in range(budget.trials(8))]
            starts = [(theta, float(rng.choice(orders))) for theta in thetas]
            for theta, order in starts:
                attempt(populations.decode(theta, shape), order)
            theta, order = max(starts, key=lambda start: tightness(*start, shape))
            climbed = partial(tightness, order=order, shape=shape)
            best, _ = numerics.climb(climbed, theta, rng, steps=budget.trials(50))
            attempt(populations.decode(best, shape), order)
        shown = {name: each for name, each in found().parameters.items() if name not in left_out}
        cases = {case: [bool(met(mixture)) for mixture in tried] for case, met in CASES.items()}
        return found(parameters=shown, cases=cases)

    def register(apply: Sides) -> Sides:
        claim(name, expected=expected)(partial(evidence, apply))
        return apply

    return register


def exchanged(lhs: Any, rhs: Any, ends: Sequence[int], near: float = 1.0) -> tuple[Any, Any]:
    """Both sides, and again the other way round where the bound is attained, or nearly so."""
    lhs, rhs = np.atleast_1d(lhs), np.atleast_1d(rhs)
    return np.append(lhs, rhs[ends] / near), np.append(rhs, lhs[ends])


def gap_within(
    ends: dict[str, int], bound: tuple[float, ...], mixture: Mixture, order: float
) -> tuple[np.ndarray, np.ndarray]:
    """The gap of the mixture against a bound below and above, with equality at some populations.

    `ends` says by label of the population which end it attains: below is 0, above is 1.
    """
    gap, reached = mixture.gap(order), [ends[mixture.label]] if mixture.label in ends else []
    return exchanged([-gap, gap], bound, reached)


def column(values: np.ndarray) -> np.ndarray:
    """Values along i."""
    return np.asarray(values)[:, None]


# --- Theorems 5 and 6 -----------------------------------------------------------------------------


def gaussian_names(mixture: Mixture) -> dict[str, Any]:
    """Names of Gamma and of what bounds are made of."""
    unit = mixture.bandwidth
    distances = unit * np.sqrt(numerics.squared_distances(mixture.means))
    return {
        r"\omega_i": mixture.weights, r"\sigma_i": unit * np.sqrt(mixture.variances),
        r"\lVert\mu_i-\mu_j\rVert": distances, r"\Delta_{ij}": distances, r"\sigma": unit,
        "i": column(np.arange(1.0, mixture.modes + 1)),
    }  # fmt: skip


GAMMA = latex.formulas(statements.texts()["cv-theorem-5"]["printed"])[1]


def gamma(mixture: Mixture, form: Any = GAMMA) -> float:
    """Gamma of CV eq. 16."""
    return form(gaussian_names(mixture))


def margin(form: Any, z: float, norm: str, size: float, order: float) -> float:
    """g(z); NaN where g is undefined (z >= norm)."""
    return form({"z": z, norm: size, r"\alpha": order}) if z < size else np.nan


def printed_bound(forms: Any, mixture: Mixture, order: float) -> tuple[float, ...]:
    """2 g(Gamma) of CV Theorems 5 and 6."""
    norm = mixture.mode_spectrum.norm(order)
    g = margin(forms[0], gamma(mixture, forms[1]), r"\lVert\omega\rVert_\alpha", norm, order)
    return (2 * g,) * 2


def kappa(form: Any, mixture: Mixture, norms: np.ndarray) -> np.ndarray:
    """Upper bound on E_ij[k_T^2 k_X^2] from means, variances and s_i, `[m, m]`.

    The prompts differ by less than theta of the distance of their means with at most the second
    probability (Cantelli's inequality along mu_i - mu_j); elsewhere the exponential bounds k_T^2.
    """
    found = form(gaussian_names(mixture) | {"s_i": norms})
    return np.reshape(found, (mixture.modes,) * 2)


def moment_ends(forms: Any, mixture: Mixture, norms: np.ndarray) -> tuple[float, float]:
    """Range of |C_{X,T}|_2^2 over sum_i omega_i^2 s_i^2 (all s_i = 1 for the prompt operator)."""
    low, high, overlap, loss = forms
    names = gaussian_names(mixture) | {"s_i": norms}
    names |= {r"\rho_i": column(np.reshape(loss(names), -1))}
    names |= {r"\kappa_{ij}": kappa(overlap, mixture, norms)}
    return low(names), high(names) if mixture.modes > 1 else 1.0


def alignment(mixture: Mixture, order: float) -> np.ndarray:
    """Diagonal of K^order, K the kernel between component means, `[m]`; each entry >= 1."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    return (vectors**2) @ np.maximum(values, 0.0) ** order


def norm_ends(forms: Any, mixture: Mixture, norms: np.ndarray, order: float) -> tuple[float, float]:
    """Range of |C_{X,T}|_order, given s_i = |C_i|_order (all 1 for the prompt operator)."""
    low, root, loss = forms
    names = gaussian_names(mixture) | {"s_i": norms, r"\alpha": order}
    names |= {r"\rho_i": column(np.reshape(loss(names), -1))}
    names |= {r"(K^\alpha)_{ii}": column(alignment(mixture, order))}
    return low(names), root(names) ** 2 if mixture.modes > 1 else float(norms[0])


def corrected_range(forms: Any, mixture: Mixture, order: float) -> tuple[float, float]:
    """The corrected CV Theorem 6, from the ranges of the two norms."""
    norms = np.array([part.norm(order) for part in mixture.outputs])
    joint_low, joint_high = norm_ends(forms, mixture, norms, order)
    prompt_low, prompt_high = norm_ends(forms, mixture, np.ones(mixture.modes), order)
    modes, joint = mixture.mode_spectrum.norm(order), mixture.stacked.norm(order)
    with np.errstate(divide="ignore"):
        lows = np.log([prompt_low / modes, joint_low / joint])
    down, up = order / (order - 1) * (np.log([joint_high / joint, prompt_high / modes]) - lows)
    return float(down), float(up)


_ONE_BY_ONE = at(2.0, *(populations.straggler(1e-3, far, 1e10) for far in (4.0, 100.0)), EQUAL)
ANY = [*RARE, *FAR, *SPREAD, ONE_IMAGE[1]]


@hunt("cv-theorem-5", examples=[*ANY, *_ONE_BY_ONE])
def _moment_sides(forms: Any, mixture: Mixture, order: float) -> tuple[np.ndarray, np.ndarray]:
    """The corrected Theorem 5; at some examples L, U and kappa, each for either operator alone."""
    if len(forms) == 2:
        return gap_within({}, printed_bound(forms, mixture, order), mixture, order)
    outputs = np.array([part.norm(order) for part in mixture.outputs])
    joint = mixture.joint, mixture.stacked, outputs, mixture.pairs[1]
    prompts = mixture.prompts, mixture.mode_spectrum, np.ones(mixture.modes), mixture.pairs[0]
    lhs, rhs, ends = [-mixture.gap(order), mixture.gap(order)], [], []
    for whole, own, norms, pairs in (prompts, joint):
        low, high = moment_ends(forms, mixture, norms)
        with np.errstate(divide="ignore"):
            ends.append(np.log([low, high]))
        if mixture.label in {example.label for example, _ in _ONE_BY_ONE}:
            change = 2 * np.log(whole.norm(order) / own.norm(order))
            between = np.triu_indices(mixture.modes, 1)
            lhs += [-change, change, *(pairs / np.outer(mixture.weights, mixture.weights))[between]]
            rhs += [-ends[-1][0], ends[-1][1], *kappa(forms[2], mixture, norms)[between]]
    rhs = [ends[1][1] - ends[0][0], ends[0][1] - ends[1][0], *rhs]
    return exchanged(lhs, rhs, [1] if mixture.label == EQUAL.label else [])


@hunt("cv-theorem-6", orders=ORDERS, examples=[*HIGH, *ANY, (EQUAL, 2.0), (EQUAL, 4.0)])
@hunt("cv-early-theorem-1", examples=HIGH, shapes=(), expected=Verdict.FALSE)
def _every_order(forms: Any, mixture: Mixture, order: float) -> tuple[Any, Any]:
    ends, bound = ({}, printed_bound) if len(forms) == 2 else ({EQUAL.label: 1}, corrected_range)
    return gap_within(ends, bound(forms, mixture, order), mixture, order)


def point_prompt_bound(form: Any, mixture: Mixture, order: float) -> tuple[float, ...]:
    """For components that are single prompts."""
    names = {r"\alpha": order, r"(K^\alpha)_{ii}": column(alignment(mixture, order))}
    return (form[0](names),) * 2


_PAIR = (rare_mode(1e-3, 0.0, 0.1, 1e10, count=2, start=10.0), 2.0)


@hunt(
    "cv-theorem-6-corrected-point-prompts",
    examples=[*((EQUAL, order) for order in (1.2, *ORDERS)), *RARE, _PAIR],
    orders=(1.2, *ORDERS),
    shapes=populations.POINT_SHAPES,
)
def _point_prompts(form: Any, mixture: Mixture, order: float) -> tuple[Any, Any]:
    bound = point_prompt_bound(form, mixture, order)
    return gap_within({EQUAL.label: 1}, bound, mixture, order)


# --- Order 2, any number of prompts a mode --------------------------------------------------------


_SHARES = itertools.product(((0.1, 0.1), (0.05, 0.3, 0.01)), (0.5,), (5, 1e3, 1e6))
_CORES = itertools.starmap(populations.cores, _SHARES)
_ALIGNED = map(populations.aligned, ((0, 0.5), (0, 0.3, 3), (0, 0.2, 0.4, 9)))
_MODES = at(2.0, *_ALIGNED, *_CORES, populations.typical(3.0, 0.5), EQUAL)


@hunt("cv-order-2-sharp-aggregation", examples=[*_MODES, *RARE[:2]])
def order_two(forms: Any, mixture: Mixture, _: float) -> tuple[np.ndarray, np.ndarray]:
    """Spectra on the left, pair averages on the right; equality where outputs never or always meet.

    Of the ends, the upper is reached where modes have orthogonal outputs, the lower where the
    outputs coincide wherever prompts of different modes meet.
    """
    low, high, ratio, overlap, sums = forms
    prompts, joint = mixture.pairs[:2]
    own = np.diag(prompts)
    names = {"W_{ij}": prompts, "W_{ii}": column(own), "J_{ii}": column(np.diag(joint))}
    names |= {"R": ratio(names), "C_{ij}": prompts / np.sqrt(np.outer(own, own))}
    names |= {r"\varepsilon": overlap(names)}
    down, up, eps, rows = -low(names), high(names), names[r"\varepsilon"], sums(names)
    top = np.linalg.eigvalsh(names["C_{ij}"])[-1] - 1
    within = mixture.prompt_gram * mixture.same
    apart = (populations.spectrum(blocks, within) for blocks in (mixture.blocks, mixture.alone))
    together = mixture.joint, mixture.prompts
    log_rke, log_r = (joint.entropy(2) - prompts.entropy(2) for joint, prompts in (together, apart))
    off = log_rke - log_r
    pairs = [(-off, down), (off, up), (eps, top), (top, rows)]
    pairs += [(top, eps)] if mixture.label == "top eigenvector" else []
    pairs += [(rows, top)] if mixture.label == EQUAL.label else []
    prompts, joint = (matrix[~np.eye(mixture.modes, dtype=bool)] for matrix in (prompts, joint))
    pairs += [(up, off)] if not joint.any() else []
    pairs += [(down, -off)] if np.allclose(joint, prompts, rtol=1e-12, atol=0) else []
    lhs, rhs = np.array(pairs).T
    return lhs, rhs


@claim("cv-order-2-gaussian-modes")
def order_2_gaussian(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Gauss-Hermite quadrature, coordinate by coordinate, against the closed form."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def average(a: float, b: float, shift: float) -> float:
        return weights @ np.exp(-((shift + a * nodes[:, None] - b * nodes) ** 2)) @ weights

    rows = []
    for trial in range(budget.trials(20)):
        (s, r), shifts = rng.uniform(0, 0.8, 2), rng.uniform(0, 3, int(rng.integers(1, 4)))
        r, unit = (r if trial % 4 else s), (0.5, 2.0)[trial % 2]
        own = average(s, s, 0.0) * average(r, r, 0.0)
        found = np.prod([average(s, r, shift) / np.sqrt(own) for shift in shifts])
        names = {r"\sigma": unit, "s_i": unit * s, "s_j": unit * r, "d": len(shifts)}
        names[r"\lVert\mu_i-\mu_j\rVert"] = unit * np.linalg.norm(shifts)
        rows.append((found, value[0](names), len(shifts)))
    return compared("==", rows, "d", tolerance=1e-8)


@claim("cv-order-2-identity")
def identity(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """Spectra of operators against means of features, of either sign; two prompts attain bounds."""
    (borrowed, low, high, one_prompt, marginal, weights), rows = value, []
    for trial in range(budget.trials(100)):
        m, a = (2 if trial % 4 == 0 else int(rng.integers(1, 7))), int(rng.integers(1, 5))
        p, x = rng.dirichlet(np.full(m, rng.choice([0.3, 10]))), numerics.unit_features(rng, a, 2)
        given, t = rng.dirichlet(np.ones(a), size=m), numerics.unit_features(rng, m, 3)
        k_t = (t @ t.T, numerics.gaussian(3 * t[:, :1]), np.ones((m, m)))[trial % 3]
        grams = np.tile(x @ x.T, (m, m)), np.kron(k_t, np.ones((a, a)))
        inverse = np.exp(-numerics.conditional_entropy(*grams, 2, np.ravel(p[:, None] * given)))
        means = given @ np.einsum("ai,aj->aij", x, x).reshape(a, -1)
        names = {"p_i": p, "k_{ij}": k_t, "s_i": np.sum(means**2, axis=1), "m": m}
        names["w_{ij}"] = w = np.reshape(weights(names), (m, m))
        names |= {"v_i": np.reshape(marginal(names), m), "w_{ii}": column(np.diag(w))}
        names["D_{ij}"] = np.sum((means[:, None] - means) ** 2, axis=-1)
        excess, found = one_prompt(names) - inverse, borrowed(names)
        pairs = [(found, excess), (excess, found), (low(names), excess), (excess, high(names))]
        pairs += [pair[::-1] for pair in pairs[2:]] * (m == 2)
        rows += [(*pair, m) for pair in pairs]
    return compared("<=", rows, "prompts")


_TABLE = np.hstack([np.full((200, 1), 1 / 400), np.eye(200) / 400])
EQUIDISTANT = populations.listed(np.eye(200), _TABLE, label="equal distances")


@hunt("cv-order-2-smooth", examples=at(2.0, EQUIDISTANT, EQUAL, two_prompts(0.99)))
def smooth(forms: Any, mixture: Mixture, _: float) -> tuple[Any, Any]:
    """What the score borrows, and the bound by the steepest change between two prompts."""
    p, rke = mixture.prompt_weights, mixture.prompts.norm(2) ** -2
    inner, v = mixture.collisions / np.outer(p, p), rke * p * (mixture.prompt_gram**2 @ p)
    s, apart = np.diag(inner), mixture.bandwidth**2 * numerics.squared_distances(mixture.location)
    excess, change = v @ s - rke * mixture.joint.norm(2) ** 2, s[:, None] + s - 2 * inner
    slope = np.sqrt(np.max(change[apart > 0] / apart[apart > 0], initial=0.0))
    slope = slope if rke > 1 + 1e-6 else np.nan  # Else the logarithm is rounding.
    names = {"L": slope, r"\sigma": mixture.bandwidth, r"\mathrm{RKE}(T)": rke}
    reached = [1] * (mixture.label == EQUIDISTANT.label)
    return exchanged([0.0, excess], [excess, forms[0](names)], reached, 1.03)


# --- The aggregate, and Cluster-Vendi and Cluster-RKE (CV G.1, CV-early B.5) ----------------------


@claim("cv-theorem-6-aggregate")
def aggregate(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
    """The parts' scores one by one, against the whole spectra and against pair averages.

    Clusters told apart exactly are prompts of which each is a component. Order 1 is a limit of the
    formula: an order just above stands for it.
    """
    four = populations.listed([0, 9], [[0.25, 0.25, 0], [0, 0, 0.5]], label="two clusters")
    trials = [(four, order) for order in (2.0, 1.001, 0.5)]
    for shape in populations.SHAPES * budget.trials(15):
        mixture = populations.decode(1.2 * rng.standard_normal(shape.dimension), shape)
        trials += at(float(rng.choice([1.001, 1.2, 3.0, 8.0])), mixture) + at(2.0, mixture)
    rows = []
    for mixture, order in trials:
        scores = np.exp([part.entropy(order) for part in mixture.outputs])
        names = {r"\omega_i": mixture.weights, r"\alpha": order, "S_i": scores}
        whole = mixture.stacked.entropy(order) - mixture.mode_spectrum.entropy(order)
        rows.append((value[0](names), whole, order))
        if order == 2:
            means = np.log(np.sum(mixture.weights**2) / np.trace(mixture.pairs[2]))
            rows += [(value[1](names), other, order) for other in (whole, means)]
    return compared("==", rows, "order", tolerance=1e-9)


# --- Their proof: Gram-Schmidt and eq. 17 ---------------------------------------------------------


def orthonormal(gram: np.ndarray) -> np.ndarray:
    """Rows: coefficients of the Gram-Schmidt vectors u_i in phi(mu_1) .. phi(mu_i)."""
    return np.linalg.inv(np.linalg.cholesky(gram))


def neighbours(count: int, distance: float, step: float, weight: float) -> Mixture:
    """`count` prompts of this weight from `distance` on, one at the origin; one image for all."""
    means = [*(distance + step * np.arange(count)), 0.0]
    return populations.listed(means, [weight] * count + [1 - count * weight])


POINTS = at(
    2.0,
    populations.listed([0, 1], [1 / 2] * 2),
    populations.listed([0, 1, -1], [1 / 3] * 3),
    populations.listed([(0, 0), (1, 0), (0.5, 0.9)], [1 / 3] * 3),
    *(neighbours(2, *case) for case in ((3, 0.5, 1 / 3), (2, 0.7, 1 / 3), (2.5, 0.6, 1e-7))),
    *(neighbours(2, *case) for case in ((2.5, 0.3, 1e-3), (3, 0.3, 1e-5))),
    *(neighbours(n, 3, 0.3, weight) for n, weight in ((4, 1e-5), (6, 1e-5), (6, 1e-8))),
)
_LINES = [*(populations.Shape(m, 1, 1) for m in (1, 2, 3, 5)), populations.Shape(3, 1, 1, 2)]


def _apart(gram: np.ndarray, overlap: float = 1e-4) -> bool:
    """Whether Gram-Schmidt loses no digits, and overlaps are no rounding."""
    overlaps = np.tril(gram**2, -1).sum(1)[1:]
    return np.linalg.eigvalsh(gram)[0] > 1e-6 and np.min(overlaps, initial=1.0) > overlap


def names_of_means(mixture: Mixture) -> dict[str, Any]:
    """Names of the Gaussian statement, and the least eigenvalues of the predecessors' kernels."""
    grams = [mixture.mean_gram[:i, :i] for i in range(1, mixture.modes)]
    least = column(np.array([1.0, *(np.linalg.eigvalsh(gram)[0] for gram in grams)]))
    return gaussian_names(mixture) | {r"\lambda_{\min}(K_{<i})": least}


@hunt("cv-gram-schmidt-coefficients", examples=POINTS, shapes=_LINES, relative=True)
def _coefficients(forms: Any, mixture: Mixture, _: float) -> tuple[Any, Any]:
    gram = mixture.mean_gram
    if not _apart(gram):
        return np.nan, np.nan
    squares = (orthonormal(gram) ** 2).sum(1)
    most = forms[0]({r"\lambda_{\min}(K)": np.linalg.eigvalsh(gram)[0]})
    return [1.0, *squares], [squares.min(), *[most] * len(gram)]


@hunt("cv-eq-17", examples=POINTS, shapes=_LINES, relative=True)
def _eq_17(forms: Any, mixture: Mixture, _: float) -> tuple[Any, Any]:
    gram, weights = mixture.mean_gram, mixture.weights
    if not _apart(gram):
        return np.nan, np.nan
    inner = np.tril((gram @ orthonormal(gram).T) ** 2, -1)
    two = [0] if len(gram) == 2 and "lambda" in forms[0].text else []  # Equality.
    return exchanged(2 * weights @ inner.sum(1), forms[0](names_of_means(mixture)), two)


@hunt("cv-eq-18", examples=POINTS + at(2.0, neighbours(2, 5, 0.05, 1e-14)), relative=True)
def eq_18(forms: Any, mixture: Mixture, _: float) -> tuple[Any, Any]:
    """The squared distance of the operators by kernels, u_i by its coefficients."""
    if not _apart(mixture.mean_gram, 0.0):
        return np.nan, np.nan
    to_u = numerics.gaussian(mixture.location, mixture.means) @ orthonormal(mixture.mean_gram).T
    own = mixture.collisions * mixture.prompt_gram**2
    mixed = (to_u**2 * (mixture.collisions @ mixture.members.T)).sum()
    found = own.sum() - 2 * mixed + np.trace(mixture.pairs[2])
    return found if found > 1e-12 else 0.0, forms[0](names_of_means(mixture))


# --- From the spectra to the entropies ------------------------------------------------------------


def stacked_distance(forms: Any, mixture: Mixture) -> float:
    """The corrected distance of the spectra, from its formula and that of rho_i."""
    names = gaussian_names(mixture)
    names |= {r"\rho_i": column(np.reshape(forms[1](names), -1))}
    means = mixture.pairs[0] / np.outer(mixture.weights, mixture.weights)
    return forms[0](names | {r"\mathbb{E}_{ij}[k_T^2]": means})


@hunt("cv-g-chain-norm", examples=ONE_IMAGE + at(2.0, CLOSE))
def _norm_step(forms: Any, mixture: Mixture, _: float) -> tuple[Any, Any]:
    found = populations.distance(mixture.joint, mixture.stacked, 2.0)
    if len(forms) == 1:
        return found, gamma(mixture, forms[0])
    reached = mixture.label in {example.label for example in (CLOSE, *TOGETHER)}
    return exchanged(found, stacked_distance(forms, mixture), [0] * reached, 1.01)


_SPREAD = [*map(one_component, (0.02, 0.4, 2.0)), one_component(300.0, share=0.01)]
_SPREAD += [one_component(0.4, False)]


@hunt("cv-lemma-5", examples=at(2.0, *_SPREAD))
def _lemma_5(forms: Any, mixture: Mixture, _: float) -> tuple[Any, Any]:
    """Steps (a) to (g); the squared distance by kernels, and the first step with features."""
    own, component = mixture.deviations, mixture.component
    to_means = numerics.gaussian(mixture.location, mixture.means)[:, component] ** 2
    kernel = mixture.prompt_gram**2 - to_means - to_means.T
    kernel += mixture.mean_gram[np.ix_(component, component)] ** 2
    distance = float((mixture.collisions * kernel).sum())
    # phi(t) is the first unit vector, phi(mu) = (k, sqrt(1 - k^2)).
    mu = np.stack([np.exp(-own / 2), np.sqrt(-np.expm1(-own))], axis=1)
    change = np.diag([1.0, 0.0]) - mu[:, :, None] * mu[:, None]
    explicit = mixture.prompt_weights @ np.sum(change**2, axis=(1, 2))
    mean = mixture.members * mixture.prompt_weights @ -np.expm1(-own) / mixture.weights
    names = gaussian_names(mixture)
    names[r"\mathbb{E}_i[2-2e^{-\lVert T-\mu_i\rVert^2/\sigma^2}]"] = 2 * column(mean)
    kernels, *others = (form(names) for form in forms)
    lhs = [distance, explicit, kernels, kernels, others[0]]
    return lhs, [explicit, kernels, explicit, *others]


@hunt("cv-g-chain-steps", orders=ORDERS[:4], examples=ONE_IMAGE)
def _chain(forms: Any, mixture: Mixture, order: float) -> tuple[Any, Any]:
    pairs = (mixture.joint, mixture.stacked), (mixture.prompts, mixture.mode_spectrum)
    near, wide = (populations.distance(*pairs[0], power) for power in (order, 2.0))
    norms = abs(mixture.joint.norm(order) - mixture.stacked.norm(order))
    cut = [(a.truncated(t), b.truncated(t)) for t in (1, 3, 20) for a, b in pairs]
    most = forms[0]({r"\Gamma": gamma(mixture)})
    gaps = [populations.distance(a, b, 2.0) for a, b in (*pairs, *cut)]
    return [norms, near, *gaps], [near, wide, *[most] * len(gaps)]


_SAME = (one_component(0.6, False, copies=2.0), 2.0)


@hunt("cv-g-chain-normaliser", orders=ORDERS, examples=[_SAME, *FAR, *RARE[:2], ONE_IMAGE[1]])
def _normaliser_step(forms: Any, mixture: Mixture, order: float) -> tuple[float, float]:
    joint, stacked = mixture.joint.norm(order), mixture.stacked.norm(order)
    norms = {r"\lVert\hat\lambda\rVert_\alpha": stacked}
    norms |= {r"\lVert\omega\rVert_\alpha": mixture.mode_spectrum.norm(order)}
    ((name, size),) = [(name, size) for name, size in norms.items() if name in forms[0].text]
    gap = mixture.joint.entropy(order) - mixture.stacked.entropy(order)
    return abs(gap), margin(forms[0], abs(joint - stacked), name, size, order)


# --- Theorem 7: von Neumann entropy, truncated and whole ------------------------------------------


CUT = [(populations.square(t), float(t)) for t in (2, 10)]
CUT += [(two_prompts(k), t) for k in (0.02, 0.2) for t in (2.0, 5.0)]
CUT += [(far_prompts(p, 0.5, 4), t) for p in (1e-3, 1e-2) for t in (2.0, 20.0)]
CUT += at(2.0, *TOGETHER, CLOSE, one_component(4.0, share=0.1), one_component(5.0, False, 0.3))
CUT += at(61.0, far_prompts(0.1, 4.0, 1, 30), far_prompts(0.5, 4.0, 1, 30))
CUT += at(5.0, far_prompts(0.5, 1.0, 1, 2))


@hunt("cv-theorem-7", orders=TRUNCATIONS, examples=CUT)
def _eq_19(forms: Any, mixture: Mixture, t: float) -> tuple[Any, Any]:
    """Entropies of spectra cut at t: joint, prompts, stacked, weights; the mean of the C_i's."""
    spectra = mixture.joint, mixture.prompts, mixture.stacked, mixture.mode_spectrum
    found = [part.truncated(int(t)).entropy(1) for part in (*spectra, *mixture.outputs)]
    joint, prompts, stacked, modes, *parts = found
    if len(forms) == 2:
        z = gamma(mixture, forms[1])
        bound = forms[0]({"t": t, r"\Gamma": z}) if 0 < z <= np.exp(-2) else np.nan
        return abs(joint - prompts - mixture.weights @ parts), bound if z else 0.0
    twice, change, near, *distance = forms
    s = min(near({"t": t, r"\delta": stacked_distance(distance, mixture)}), 1 - 1 / t)
    most = change({"s": s, "t": t, "h(s)": numerics.entropy(np.array([s, 1 - s]))})
    gaps = np.abs([joint - prompts - stacked + modes, joint - stacked, prompts - modes])
    ends = [1, 2] if mixture.label == CLOSE.label else []
    return exchanged(gaps, [twice({"F_t": most}), most, most], ends, 1.01)


_WIDE = [one_component(6.0), one_component(6.0, False), populations.typical(2.0, 0.5), SPREAD[0][0]]


@hunt("cv-theorem-7-von-neumann", orders=(1.0,), examples=at(1.0, EQUAL, RARE[1][0], *_WIDE))
def holevo_bounds(forms: Any, mixture: Mixture, order: float) -> tuple[Any, Any]:
    """The prompts' own entropies below and above."""
    states = mixture.members * mixture.prompt_weights / column(mixture.weights)
    own = numerics.entropy(numerics.spectrum(mixture.prompt_gram, states))
    names = {r"\omega_i": mixture.weights, r"H(C_{T\mid i})": column(own)}
    names |= {r"H(\omega)": mixture.mode_spectrum.entropy(1)}
    low, high = (form(names | {"H(C_T)": mixture.prompts.entropy(1)}) for form in forms)
    return gap_within({_WIDE[0].label: 0, EQUAL.label: 1}, (-low, high), mixture, order)


_ATTAINED = at(
    1.0,
    *(two_prompts(k) for k in (0.3, 0.9)),
    populations.listed([0, 0.3, 9], np.diag([0.45, 0.45, 0.1]), label="two near, a far one"),
)


@hunt(
    "cv-theorem-7-point-prompts",
    orders=(1.0,),
    shapes=populations.POINT_SHAPES,
    examples=[*_ATTAINED, (RARE[1][0], 1.0)],
)
def klogk_bound(forms: Any, mixture: Mixture, order: float) -> tuple[Any, Any]:
    """0 below, sum_i w_i (K log K)_ii above."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    values = np.maximum(values, 1e-300)
    diagonal = (vectors**2) @ (values * np.log(values))
    most = forms[0]({r"\omega_i": mixture.weights, r"(K\log K)_{ii}": column(diagonal)})
    return gap_within({each.label: 1 for each, _ in _ATTAINED}, (0.0, most), mixture, order)


# --- Printed displays that are false, each at one population --------------------------------------


_ONCE: Any = {"shapes": (), "expected": Verdict.FALSE}


@hunt("cv-theorem-7-domain", examples=at(2.0, two_prompts(np.exp(-0.5))), **_ONCE)
@hunt("cv-theorem-7-equivalently", examples=at(2.0, two_prompts(0.05)), **_ONCE)
def _displays(forms: Any, mixture: Mixture, t: float) -> tuple[float, float]:
    """The two formulas; 0 is the first of them where there is one."""
    *first, last = (form({"t": t, r"\Gamma": gamma(mixture)}) for form in forms)
    return (first or [0.0])[0], last


@hunt("cv-early-orthogonality", examples=POINTS, relative=True, **_ONCE)
def _orthogonality(_: Any, mixture: Mixture, __: float) -> tuple[float, float]:
    """The largest eigenvalue of the cosines of CV-early's u_i, which are not normalised."""
    gram = mixture.mean_gram
    rows = np.eye(len(gram))
    for i in range(len(gram)):
        rows[i] -= (rows[:i] @ gram[:, i]) @ rows[:i]
    products = rows @ gram @ rows.T
    lengths = np.sqrt(np.diag(products))
    return np.linalg.eigvalsh(products / np.outer(lengths, lengths))[-1], 1.0
