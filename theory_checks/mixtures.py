r"""Mixtures of prompts: CV appendix B and Cluster-Vendi (G.1), CV-early Theorem 1 and A.3.

Prompts T come from m components with weights w_i, means mu_i and variances s_i^2 (lengths in
bandwidths: s_i^2 is the papers' sigma_i^2 / sigma^2); C_i is the output operator of component i,
K = [k_T(mu_i, mu_j)], e_ij = K_ij^2, and lambda-hat the union of the w_i Eigs(C_i). The papers
compare H(X|T) with an aggregate of the H(X|G=i). Proofs of what holds: docs/proofs.md.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from theory_checks import numerics, populations
from theory_checks.claim import EvidenceFunction, claim
from theory_checks.evidence import Budget, Evidence, Verdict, at_most, equal
from theory_checks.populations import (
    Mixture,
    Shape,
    aligned,
    cores,
    far_prompts,
    one_component,
    rare_mode,
    square,
    straggler,
    two_prompts,
    typical,
)

Sides = Callable[[Mixture, float], tuple[Any, Any]]
"""Both sides of lhs <= rhs, one number or several, at this order (or truncation t)."""
Bound = Callable[[Mixture, float], tuple[float, ...]]
"""How far H(X|T) may lie below and above its aggregate."""
ORDERS = (2.0, 2.5, 4.0, 20.0, 300.0)
TRUNCATIONS = (20, 2, 3, 5)
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
ONE_IMAGE = at(2.0, *(two_prompts(k, 1) for k in (0.9, 0.2, 0.1, 0.02)))
CUT = [(square(2), 2.0), (square(10), 10.0), (one_component(4.0, share=0.1), 2.0)]
CUT += [(two_prompts(k), t) for k in (0.02, 0.2) for t in (2.0, 5.0)]
CUT += [(far_prompts(p, 0.5, 4), t) for p in (1e-3, 1e-2) for t in (2.0, 20.0)]
NEAR = (two_prompts(np.exp(-0.5)), 2.0)
"""Two equally likely prompts one bandwidth apart: Gamma = 16 / e."""


def _parameters(trials: Sequence[tuple[Mixture, float]]) -> dict[str, list]:
    return {
        "order or t": [order for _, order in trials],
        "prompts": [len(mixture.component) for mixture, _ in trials],
        "images": [mixture.images for mixture, _ in trials],
        "population": [mixture.label for mixture, _ in trials],
    }


def _shown(values: np.ndarray) -> Any:
    """Numbers for a counterexample, a crowd in words."""
    plain = [float(f"{value:.4g}") for value in values]
    if len(plain) < 9:
        return plain
    return f"{plain[0]:g}, {len(plain) - 2} times {plain[1]:g}, {plain[-1]:g}"


def hunting(
    apply: Callable = lambda form, mixture, order: form(mixture, order),
    *,
    examples: Sequence[tuple[Mixture, float]],
    shapes: Sequence[Shape] = populations.SHAPES,
    orders: Sequence[float] = (2.0,),
    spreads: Sequence[float] = (),
    relative: bool = False,
    **late: Callable[[], Any],
) -> EvidenceFunction:
    """Evidence for lhs <= rhs: examples, random populations, and climbs of lhs / rhs from them.

    A side that is not a number says that the statement claims nothing there (premise unmet).

    Args:
        apply: of a form's value, a population and an order: both sides, one number or several.
        examples: populations with the order to try them at.
        shapes: of the random populations.
        orders: of the random populations; the first is that of the looseness.
        spreads: of the prompts of the ordinary populations whose looseness is measured.
        relative: compare lhs / rhs with 1, which shows violations however small both sides are,
            of single prompts, which a counterexample then lists.
        late: makes other fields of the evidence.
    """

    def evidence(rng: np.random.Generator, budget: Budget, form: Any) -> Evidence:
        def sides(mixture: Mixture, order: float) -> np.ndarray:
            found = map(np.atleast_1d, apply(form, mixture, order))
            return np.array(np.broadcast_arrays(*found), float)

        def tightness(theta: np.ndarray, order: float, shape: Shape) -> float:
            lhs, rhs = sides(populations.decode(theta, shape), order)
            ratios = (lhs + 1e-12) / (np.maximum(rhs, 0.0) + 1e-12)
            return np.max(ratios[np.isfinite(lhs) & np.isfinite(rhs)], initial=-np.inf)

        trials = list(examples)
        for shape in shapes:
            thetas = [1.2 * rng.standard_normal(shape.dimension) for _ in range(budget.trials(10))]
            starts = [(theta, float(rng.choice(orders))) for theta in thetas]
            theta, order = max(starts, key=lambda start: tightness(*start, shape))
            climbed = partial(tightness, order=order, shape=shape)
            best, _ = numerics.climb(climbed, theta, rng, steps=budget.pick(50, 600))
            starts.append((best, order))
            trials += [(populations.decode(point, shape), order) for point, order in starts]
        measured = {}
        for distance, spread in [(d, spread) for d in (2, 4) for spread in spreads]:
            lhs, rhs = sides(typical(distance, spread), orders[0])
            ratio = float(rhs[np.argmax(lhs)] / lhs.max())
            where = f"three modes {distance} sigma apart, prompts +- {spread:g} sigma"
            measured |= {f"loose, {where}": ratio} if np.isfinite(ratio) else {}
        found = [sides(*trial) for trial in trials]
        rows = [trial for trial, pair in zip(trials, found, strict=True) for _ in pair[0]]
        lhs, rhs = np.concatenate(found, axis=1)
        parameters, fields = _parameters(rows), {"measured": measured}
        size = np.array(parameters["prompts" if relative else "images"])
        if relative:
            parameters = {
                "means": [_shown(mixture.means[:, 0]) for mixture, _ in rows],
                "weights": [_shown(mixture.weights) for mixture, _ in rows],
                "left side": list(lhs),
                "right side": list(rhs),
            }
            lhs, rhs, fields["tolerance"] = lhs / rhs, 1.0, 1e-8
        else:
            lhs = np.where(np.abs(lhs) < _ROUNDING, 0.0, lhs)
        fields |= {name: make() for name, make in late.items()}
        met = ~(np.isnan(lhs) | np.isnan(rhs))
        return at_most(lhs, rhs, premise_met=met, parameters=parameters, size=size, **fields)

    return evidence


def _against(bound: Bound, mixture: Mixture, order: float) -> tuple[np.ndarray, np.ndarray]:
    gap = mixture.gap(order)
    return np.array([-gap, gap]), np.array(bound(mixture, order), float)


aggregation = partial(hunting, _against)
"""The evidence of a claim whose forms are `Bound`s."""


def two_thirds(bound: Callable) -> Callable:
    """A mutant: what is 1.5 times too small."""
    return lambda *arguments: np.multiply(2 / 3, bound(*arguments))


def without(bound: Callable, *parts: str) -> dict[str, Callable]:
    """Mutants: the bound without each of its parts, and two thirds of it."""
    mutants = {f"without {part}": partial(bound, **{part: False}) for part in parts}
    return mutants | {"two thirds": two_thirds(bound)}


# ---------------------------------------------------------------------------------------------
# Theorems 5 and 6.


def earlier_overlaps(gram: np.ndarray) -> np.ndarray:
    """sum_{j < i} k_T(mu_i, mu_j)^2 for each i, `[m]`: its terms are e^{-|mu_i - mu_j|^2}."""
    return np.tril(gram**2, -1).sum(1)


def gamma(
    mixture: Mixture, variance: float = 32, overlap: float = 32, early: bool = False
) -> float:
    """Gamma of CV eq. 16; the proof reaches 4 and 8 for 32. CV-early has no factor i - 1."""
    ranks = 1 if early else np.arange(mixture.modes)
    overlaps = ranks * earlier_overlaps(mixture.mean_gram)
    return float(mixture.weights @ (variance * mixture.variances + overlap * overlaps))


def margin(z: float, norm: float, order: float) -> float:
    """g(z) = order / (order - 1) log 1 / (1 - z / norm); NaN where g is undefined (z >= norm)."""
    return order / (order - 1) * -np.log1p(-z / norm) if z < norm else np.nan


def printed_bound(mixture: Mixture, order: float, **parts: Any) -> tuple[float, ...]:
    """2 g(Gamma) of CV Theorems 5 and 6."""
    return (2 * margin(gamma(mixture, **parts), mixture.mode_spectrum.norm(order), order),) * 2


def spread_losses(mixture: Mixture) -> np.ndarray:
    """rho_i = 1 - exp(-sigma_i^2 / sigma^2), `[m]`: at least E[1 - k(T, mu_i)^2 | i] (Jensen)."""
    return -np.expm1(-mixture.variances)


_THETAS = np.linspace(0.0, 1.0, 101)[:, None, None]


def overlap_bound(mixture: Mixture, alike: np.ndarray, cantelli: bool = True) -> np.ndarray:
    """Upper bound on E_ij[k_T^2 k_X^2] from means, variances and E_ij[k_X^2] <= alike, `[m, m]`.

    The prompts differ by less than theta of the distance of their means with at most the second
    probability (Cantelli's inequality along mu_i - mu_j); elsewhere the exponential bounds k_T^2.
    """
    squares = numerics.squared_distances(mixture.means)
    spread = mixture.variances[:, None] + mixture.variances
    reach = (1 - _THETAS) ** 2 * squares
    with np.errstate(invalid="ignore"):
        chance = np.where(spread > 0, spread / (spread + reach), 0.0)
    bounds = np.exp(-(_THETAS**2) * squares) * alike + cantelli * chance
    return np.minimum(bounds.min(0), alike)


def moment_ends(
    mixture: Mixture,
    norms: np.ndarray,
    _: float,
    cantelli: bool = True,
    spread: bool = True,
    overlap: bool = True,
) -> tuple[float, float]:
    """Range of |C_{X,T}|_2, given s_i = |C_i|_2 (all 1 for the prompt operator)."""
    weights, left = mixture.weights, np.maximum(norms - spread * spread_losses(mixture), 0.0)
    between = overlap * overlap_bound(mixture, np.outer(norms, norms), cantelli)
    np.fill_diagonal(between, norms**2)
    return np.linalg.norm(weights * left), np.sqrt(weights @ between @ weights)


def alignment(mixture: Mixture, order: float) -> np.ndarray:
    """Diagonal of K^order, K the kernel between component means, `[m]`; each entry >= 1."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    return (vectors**2) @ np.maximum(values, 0.0) ** order


def norm_ends(
    mixture: Mixture, norms: np.ndarray, order: float, spread: bool = True, overlap: bool = True
) -> tuple[float, float]:
    """Range of |C_{X,T}|_order, given s_i = |C_i|_order (all 1 for the prompt operator)."""
    weights, losses = mixture.weights, spread * spread_losses(mixture)

    def aggregated(values: np.ndarray, factors: np.ndarray | float = 1.0) -> float:
        entries = weights * values * np.asarray(factors) ** (1 / order)
        return float(entries.max() * ((entries / entries.max()) ** order).sum() ** (1 / order))

    left = np.maximum(norms - losses, 0.0)
    low = aggregated(left) if left.any() else 0.0
    if mixture.modes == 1:
        return low, float(norms[0])
    most = aggregated(norms, alignment(mixture, order) if overlap else 1.0)
    return low, min((np.sqrt(most) + np.sqrt(weights @ losses)) ** 2, 1.0)


def corrected_range(
    mixture: Mixture, order: float, ends: Callable = norm_ends, **parts: bool
) -> tuple[float, float]:
    """The corrected CV Theorems 5 and 6, from the ranges of the two norms."""
    norms = np.array([part.norm(order) for part in mixture.outputs])
    joint_low, joint_high = ends(mixture, norms, order, **parts)
    prompt_low, prompt_high = ends(mixture, np.ones(mixture.modes), order, **parts)
    modes, joint = mixture.mode_spectrum.norm(order), mixture.stacked.norm(order)
    with np.errstate(divide="ignore"):
        lows = np.log([prompt_low / modes, joint_low / joint])
    down, up = order / (order - 1) * (np.log([joint_high / joint, prompt_high / modes]) - lows)
    return float(down), float(up)


moment_range = partial(corrected_range, ends=moment_ends)
claim(
    "cv-theorem-5",
    stated=printed_bound,
    corrected=moment_range,
    mutants=without(moment_range, "cantelli", "spread", "overlap"),
)(
    aggregation(
        spreads=(0.0, 0.1),
        examples=[*RARE, *FAR, *SPREAD, *at(2.0, straggler(1e-3, 4.0, 1e10), two_prompts(0.3))],
    )
)
claim(
    "cv-theorem-6",
    stated=printed_bound,
    corrected=corrected_range,
    mutants=without(corrected_range, "spread", "overlap"),
)(
    aggregation(
        spreads=(0.0, 0.1),
        orders=ORDERS,
        examples=[*RARE, *FAR, *SPREAD, *HIGH, (two_prompts(0.3), 2.0)],
    )
)


def point_prompt_bound(
    mixture: Mixture, order: float, most: Callable = lambda a, _: a.max()
) -> tuple[float, ...]:
    """1 / (order - 1) log max_i (K^order)_ii, for components that are single prompts."""
    return (float(np.log(most(alignment(mixture, order), mixture.weights)) / (order - 1)),) * 2


def _curves() -> dict[str, np.ndarray]:
    """Both sides over the separation of the modes, for the figure; NaN where g is undefined."""
    separation = np.linspace(0.05, 7.0, 60)
    curves = {"separation": separation}
    for name, mixtures in (
        ("ordinary", [typical(d) for d in separation]),
        ("rare", [rare_mode(1e-3, 1e-3, d, 1e8) for d in separation]),
    ):
        curves[f"{name}_gap"] = np.array([abs(mixture.gap(2.0)) for mixture in mixtures])
        for side, bound in (("printed", printed_bound), ("corrected", point_prompt_bound)):
            curves[f"{name}_{side}"] = np.array([bound(mixture, 2.0)[0] for mixture in mixtures])
    return curves


claim(
    "cv-theorem-6-corrected-point-prompts",
    stated=point_prompt_bound,
    mutants={
        "the mean over the weights in place of the maximum": partial(
            point_prompt_bound, most=lambda a, w: w @ a
        ),
        "two thirds": two_thirds(point_prompt_bound),
    },
)(
    aggregation(
        # Equality at every order: two equally likely prompts with an image each.
        examples=[(two_prompts(0.3), order) for order in (1.2, *ORDERS)]
        + [*RARE, (rare_mode(1e-3, 0.0, 0.1, 1e10, count=2, start=10.0), 2.0)],
        orders=(2.0, 1.2, *ORDERS),
        shapes=populations.POINT_SHAPES,
        spreads=(0.0,),
        data=_curves,
    )
)


# ---------------------------------------------------------------------------------------------
# Order 2, any number of prompts a mode.


def sharp_ends(
    mixture: Mixture, diagonal: bool = False, diverse: bool = True, most: Callable = np.max
) -> tuple[float, ...]:
    """eps, how far log Conditional-RKE lies below and above log R, and the two bounds on eps."""
    prompts, joint, _ = mixture.pairs
    own = np.trace(prompts)
    eps = prompts[diagonal | ~np.eye(mixture.modes, dtype=bool)].sum() / own
    ratio = own / np.trace(joint) if diverse else 1.0
    norms = np.sqrt(np.diag(prompts))
    cosines = prompts / np.outer(norms, norms)
    top = np.linalg.eigvalsh(cosines)[-1] - 1
    down = np.log1p(eps * ratio) - np.log1p(eps)
    return eps, down, np.log1p(eps), top, most(cosines.sum(1) - 1)


def _order_two(ends: Callable, mixture: Mixture, _: float) -> tuple[np.ndarray, np.ndarray]:
    """Spectra on the left, pair averages on the right; equality where outputs never or always meet.

    Of the ends, the upper is reached where modes have orthogonal outputs, the lower where the
    outputs coincide wherever prompts of different modes meet.
    """
    eps, down, up, top, rows = ends(mixture)
    within = mixture.prompt_gram * mixture.same
    apart = populations.spectrum(mixture.blocks, within), mixture.prompts_under(within)
    together = mixture.joint, mixture.prompts
    log_rke, log_r = (joint.entropy(2) - prompts.entropy(2) for joint, prompts in (together, apart))
    off = log_rke - log_r
    pairs = [(-off, down), (off, up), (eps, top), (top, rows)]
    pairs += [(top, eps)] if mixture.label == "top eigenvector" else []
    prompts, joint = (matrix[~np.eye(mixture.modes, dtype=bool)] for matrix in mixture.pairs[:2])
    pairs += [(up, off)] if not joint.any() else []
    pairs += [(down, -off)] if np.allclose(joint, prompts, rtol=1e-12, atol=0) else []
    lhs, rhs = np.array(pairs).T
    return lhs, rhs


def _ordinary_ends() -> dict[str, float]:
    """Both ends and the printed bound on ordinary populations."""
    measured = {}
    for spread in (0.1, 0.5):
        mixture = typical(3.0, spread)
        _, down, up, *_ = sharp_ends(mixture)
        printed = printed_bound(mixture, 2.0)[0]
        for name, value in (("log(1 + eps)", up), ("lower end", down), ("2 g(Gamma)", printed)):
            where = f"three modes 3 sigma apart, prompts +- {spread:g} sigma"
            measured |= {f"{name}, {where}": float(value)} if np.isfinite(value) else {}
    return measured


claim(
    "cv-order-2-sharp-aggregation",
    stated=sharp_ends,
    mutants={
        "eps with j = i": partial(sharp_ends, diagonal=True),
        "R left out of the lower end": partial(sharp_ends, diverse=False),
        "mean in place of the maximum": partial(sharp_ends, most=np.mean),
    },
)(
    hunting(
        _order_two,
        examples=[
            *at(2.0, *map(aligned, ((0, 0.5), (0, 0.3, 3), (0, 0.2, 0.4, 9)))),
            *at(2.0, *(cores((0.1, 0.1), 0.5, n) for n in (5, 1e3, 1e6))),
            *at(2.0, *(cores((0.05, 0.3, 0.01), 0.5, n) for n in (5, 1e3, 1e6))),
            *at(2.0, typical(3.0, 0.5)),
            *RARE[:2],
        ],
        measured=_ordinary_ends,
    )
)


def cosine(squares: float, first: float, second: float, d: int, width: float = 2.0) -> float:
    """C_ij of Gaussian modes N(mu, s^2 I_d) at these squared distances, in bandwidths."""
    total = 1 + width * (first**2 + second**2)
    own = (1 + 2 * width * first**2) * (1 + 2 * width * second**2)
    return (np.sqrt(own) / total) ** (d / 2) * np.exp(-squares / total)


@claim(
    "cv-order-2-gaussian-modes",
    stated=cosine,
    mutants={
        "half of the spread": partial(cosine, width=1.0),
        "no spread": partial(cosine, width=0.0),
    },
)
def order_2_gaussian(rng: np.random.Generator, budget: Budget, form: Callable) -> Evidence:
    """Gauss-Hermite quadrature, coordinate by coordinate, against the closed form."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def average(a: float, b: float, shift: float) -> float:
        return weights @ np.exp(-((shift + a * nodes[:, None] - b * nodes) ** 2)) @ weights

    lhs, rhs = [], []
    for _ in range(budget.trials(40)):
        (s, r), shifts = rng.uniform(0, 0.8, 2), rng.uniform(0, 3, int(rng.integers(1, 4)))
        own = average(s, s, 0.0) * average(r, r, 0.0)
        lhs.append(np.prod([average(s, r, shift) / np.sqrt(own) for shift in shifts]))
        rhs.append(form(np.sum(shifts**2), s, r, len(shifts)))
    return equal(lhs, rhs, tolerance=1e-8)


# ---------------------------------------------------------------------------------------------
# The aggregate, and Cluster-Vendi and Cluster-RKE (CV G.1, CV-early B.5).


def power_mean(sizes: np.ndarray, scores: np.ndarray, power: float, mean: float) -> float:
    """Mean of order `mean` of scores, weights proportional to sizes^power."""
    law = sizes**power / np.sum(sizes**power)
    if mean == 0:
        return float(np.exp(law @ np.log(scores)))
    return float((law @ scores**mean) ** (1 / mean))


@claim(
    "cv-theorem-6-aggregate",
    stated=lambda a: (a, 1 - a),
    mutants={
        "weights omega": lambda a: (1.0, 1 - a),
        "arithmetic mean of the scores": lambda a: (a, 1.0),
        "mean of the entropies": lambda a: (a, 0.0),
    },
)
def theorem_6_aggregate(rng: np.random.Generator, budget: Budget, form: Callable) -> Evidence:
    """From the stacked spectrum, from the entropies one by one, and from pair averages."""
    lhs, rhs = [], []
    for shape in populations.SHAPES * budget.trials(15):
        mixture = populations.decode(1.2 * rng.standard_normal(shape.dimension), shape)
        for order in (float(rng.choice([1.0, 1.2, 3.0, 8.0])), 2.0):
            scores = np.exp([part.entropy(order) for part in mixture.outputs])
            lhs.append(mixture.stacked.entropy(order) - mixture.mode_spectrum.entropy(order))
            rhs.append(np.log(power_mean(mixture.weights, scores, *form(order))))
        lhs.append(-np.log(np.diag(mixture.pairs[2]).sum() / np.sum(mixture.weights**2)))
        rhs.append(rhs[-1])
    return equal(lhs, rhs, tolerance=1e-9)


@claim(
    "cv-cluster-vendi",
    stated=lambda a: (1.0, 1.0),
    corrected=lambda a: (a, 1 - a),
    mutants={
        "weights proportional to the sizes": lambda a: (1.0, 1 - a),
        "arithmetic mean": lambda a: (a, 1.0),
        "mean of order 1 - alpha / 2": lambda a: (a, 1 - a / 2),
    },
)
def cluster_vendi(rng: np.random.Generator, budget: Budget, form: Callable) -> Evidence:
    """Scores of the clusters one by one, against the entropies of the whole Grams."""
    four = np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2])
    trials = [(*four, 2.0, np.eye(3)), (*four, 1.0, np.eye(3))]
    for _ in range(budget.trials(40)):
        n, features = int(rng.integers(4, 13)), numerics.unit_features(rng, 5, 4)
        labels, images = np.sort(rng.integers(0, 3, n)), rng.integers(0, 5, n)
        trials.append((labels, images, rng.choice([0.5, 1.0, 2.0, 3.0]), features @ features.T))
    lhs, rhs = [], []
    for labels, images, order, gram in trials:
        k_x, same = gram[np.ix_(images, images)], labels[:, None] == labels
        groups = [np.flatnonzero(row) for row in np.unique(same, axis=0)]
        spectra = [numerics.spectrum(k_x[np.ix_(group, group)]) for group in groups]
        scores = np.exp([numerics.entropy(spectrum, order) for spectrum in spectra])
        lhs.append(power_mean(np.array([float(len(g)) for g in groups]), scores, *form(order)))
        rhs.append(np.exp(numerics.conditional_entropy(k_x, same.astype(float), order)))
    measured = {
        f"{kind}, two prompts with {x:g} and {y:g} images": power_mean(
            np.ones(2), np.array([x, y]), 2.0, mean
        )
        for x, y in ((1.0, 4.0), (2.0, 2.0))
        for kind, mean in (("Cluster-RKE", 1.0), ("Conditional-RKE", -1.0))
    }
    columns = zip(("cluster", "image", "order"), zip(*trials, strict=True), strict=False)
    parameters = {name: list(column) for name, column in columns}
    size = np.array([len(labels) for labels in parameters["cluster"]])
    return equal(lhs, rhs, tolerance=1e-9, measured=measured, size=size, parameters=parameters)


# ---------------------------------------------------------------------------------------------
# Their proof: Lemma 5, Gram-Schmidt, eq. 17 and 18, the g-chain.


def operator_distance(mixture: Mixture, coefficients: np.ndarray) -> float:
    """|C_{X,T} - sum_i omega_i C_i x u_i u_i^T|_F^2, u_i = sum_l coefficients[i, l] phi(mu_l)."""
    component, means = mixture.component, numerics.gaussian(mixture.means, mixture.location)
    to_prompts = (coefficients @ means)[component]
    between = (coefficients @ mixture.mean_gram @ coefficients.T)[np.ix_(component, component)]
    kernel = mixture.prompt_gram**2 - to_prompts**2 - to_prompts.T**2 + between**2
    return float((mixture.collisions * kernel).sum())


def _lemma_steps(
    mixture: Mixture, _: float, a: float = 1.0, d: float = 2.0, e: float = 1.0, g: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    own = np.sum((mixture.location - mixture.means[mixture.component]) ** 2, axis=1)
    # phi(t) is the first unit vector, phi(mu) = (k, sqrt(1 - k^2)); x is any output.
    mu = np.stack([np.exp(-own / 2), np.sqrt(-np.expm1(-own))], axis=1)
    change = np.diag([1.0, 0.0]) - mu[:, :, None] * mu[:, None]
    x = np.outer([0.6, 0.8], [0.6, 0.8])
    explicit = mixture.prompt_weights @ [np.sum(np.kron(x, one) ** 2) for one in change]
    kernels = d * mixture.prompt_weights @ -np.expm1(-own)
    jensen = -2 * mixture.weights @ np.expm1(-mixture.variances)
    distance = operator_distance(mixture, np.eye(mixture.modes))
    return np.array([distance, explicit, kernels, explicit, jensen]), np.array(
        [a * explicit, kernels, explicit, e * jensen, g * mixture.weights @ mixture.variances]
    )


claim(
    "cv-lemma-5",
    stated=_lemma_steps,
    mutants={
        "two thirds at (a)": partial(_lemma_steps, a=2 / 3),
        "1 - e^{-z} at (d)": partial(_lemma_steps, d=1.0),
        "two thirds at (e)": partial(_lemma_steps, e=2 / 3),
        "4/3 for 2 at (g)": partial(_lemma_steps, g=4 / 3),
    },
)(
    hunting(
        examples=at(2.0, *map(one_component, (0.02, 0.4, 2.0)), one_component(300.0, share=0.01))
    )
)


def orthonormal(gram: np.ndarray) -> np.ndarray:
    """Rows: coefficients of the Gram-Schmidt vectors u_i in phi(mu_1) .. phi(mu_i)."""
    return np.linalg.inv(np.linalg.cholesky(gram))


def _chain_steps(
    mixture: Mixture, order: float, factors: Sequence[float] = (1, 1, 1, 1), power: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    pairs = (mixture.joint, mixture.stacked), (mixture.prompts, mixture.mode_spectrum)
    near, wide = (populations.distance(*pairs[0], p) for p in (order, 2.0))
    norms, frobenius = abs(mixture.joint.norm(order) - mixture.stacked.norm(order)), np.nan
    if np.linalg.eigvalsh(mixture.mean_gram)[0] > 1e-6:
        frobenius = max(operator_distance(mixture, orthonormal(mixture.mean_gram)), 0.0) ** 0.5
    cut = [(a.truncated(3), b.truncated(3)) for a, b in pairs]
    gaps = [populations.distance(a, b, 2.0) for a, b in (*pairs, *cut)]
    bounds = np.multiply(factors, [near, wide, frobenius, gamma(mixture) ** power])
    return np.array([norms, near, wide, *gaps]), np.array([*bounds[:3], *[bounds[3]] * 4])


claim(
    "cv-g-chain-steps",
    stated=_chain_steps,
    mutants={
        "two thirds at the triangle inequality": partial(_chain_steps, factors=(2 / 3, 1, 1, 1)),
        "two thirds at the order of the norm": partial(_chain_steps, factors=(1, 2 / 3, 1, 1)),
        "two thirds at Hoffman-Wielandt": partial(_chain_steps, factors=(1, 1, 2 / 3, 1)),
        "2/3 for 32 in Gamma": partial(_chain_steps, factors=(1, 1, 1, 48**-0.5)),
        "Gamma without the root": partial(_chain_steps, power=1.0),
    },
)(
    hunting(
        orders=ORDERS[:4],
        examples=[
            *((two_prompts(k, 1), a) for k in (0.02, 0.1, 0.2) for a in (2.0, 20.0)),
            (one_component(2.0, own=False), 20.0),
        ],
    )
)


def single_prompts(means: Sequence[float], weights: Sequence[float]) -> tuple[Mixture, float]:
    """Prompts on a line with one image for all."""
    return populations.listed(means, np.array(weights)[:, None]), 2.0


def neighbours(count: int, distance: float, step: float, weight: float) -> tuple[Mixture, float]:
    """`count` neighbours of this weight each, from `distance` on, then one prompt at the origin."""
    means = [*(distance + step * np.arange(count)), 0.0]
    return single_prompts(means, [weight] * count + [1 - count * weight])


POINTS = [single_prompts([0, 1], [1 / 2] * 2), single_prompts([0, 1, -1], [1 / 3] * 3)]
POINTS += [neighbours(2, 3.0, 0.5, 1 / 3), neighbours(2, 2.0, 0.7, 1 / 3)]
POINTS += [neighbours(2, 2.5, 0.6, 1e-7), neighbours(2, 2.5, 0.3, 1e-3)]
POINTS += [neighbours(n, 3.0, 0.3, w) for n, w in ((2, 1e-5), (4, 1e-5), (6, 1e-5), (6, 1e-8))]
FAR_POINTS = [neighbours(2, 4.5, 0.1, 1e-11), neighbours(2, 4.6, 0.5, 1 / 3)]
FAR_POINTS += [neighbours(4, 4.6, 0.4, 0.2)]
CROWDS = [
    single_prompts([0.0, *[0.3] * n, -8.5], [1e-99] * (n + 1) + [1.0]) for n in (1, 15, 20, 60)
]


def _of_points(form: Callable, mixture: Mixture, _: float) -> tuple[Any, Any]:
    return form(mixture.mean_gram, mixture.weights)


def _of_apart(form: Callable, mixture: Mixture, _: float) -> tuple[Any, Any]:
    """No statement where Gram-Schmidt loses digits, or where all overlaps are rounding."""
    gram = mixture.mean_gram
    if np.linalg.eigvalsh(gram)[0] < 1e-6 or np.min(earlier_overlaps(gram)[1:]) < 1e-4:
        return np.nan, np.nan
    return form(gram, mixture.weights)


def _coefficients(gram: np.ndarray, _: np.ndarray, most: Callable) -> tuple[Any, Any]:
    squares = (orthonormal(gram) ** 2).sum(1)
    lows = np.ones_like(squares)
    return np.concatenate([lows, squares]), np.concatenate([squares, most(gram) * lows])


def _eq_17(gram: np.ndarray, weights: np.ndarray, factor: Callable) -> tuple[Any, Any]:
    inner = (gram @ orthonormal(gram).T) ** 2
    left = 2 * weights @ np.tril(inner, -1).sum(1)
    return left, 2 * weights @ (factor(gram) * earlier_overlaps(gram))


def inverse_eigenvalue(gram: np.ndarray, which: int = 0) -> float:
    """1 / lambda_min; of another eigenvalue for the mutants."""
    return 1 / np.linalg.eigvalsh(gram)[which]


def _inverses(gram: np.ndarray, which: int = 0) -> np.ndarray:
    """The same of the kernel matrix of the predecessors, `[m]`."""
    heads = [inverse_eigenvalue(gram[:i, :i], which) for i in range(1, len(gram))]
    return np.array([1.0, *heads])


_searched = hunting(
    _of_apart, examples=POINTS, shapes=[Shape(m, 1, 1) for m in (2, 3, 5)], relative=True
)
claim(
    "cv-gram-schmidt-coefficients",
    stated=partial(_coefficients, most=lambda gram: 1.0),
    corrected=partial(_coefficients, most=inverse_eigenvalue),
    mutants={
        "the largest eigenvalue": partial(
            _coefficients, most=partial(inverse_eigenvalue, which=-1)
        ),
        "two thirds": partial(_coefficients, most=two_thirds(inverse_eigenvalue)),
    },
)(_searched)
claim(
    "cv-eq-17",
    stated=partial(_eq_17, factor=lambda gram: np.arange(len(gram))),
    corrected=partial(_eq_17, factor=_inverses),
    mutants={
        "the largest eigenvalue": partial(_eq_17, factor=partial(_inverses, which=-1)),
        "no eigenvalue": partial(_eq_17, factor=lambda gram: np.ones(len(gram))),
        "two thirds": partial(_eq_17, factor=two_thirds(_inverses)),
    },
)(_searched)


# ---------------------------------------------------------------------------------------------
# From the spectra to the entropies.


def stacked_distance(mixture: Mixture, spread: float = 1.0, overlap: float = 1.0) -> float:
    """sqrt(2) |(omega_i rho_i)_i|_2 + sqrt(sum_{i != j} omega_i omega_j E_ij[k_T^2])."""
    cross = mixture.pairs[0][~np.eye(mixture.modes, dtype=bool)].sum()
    within = np.sqrt(2) * np.linalg.norm(mixture.weights * spread_losses(mixture))
    return float(spread * within + overlap * np.sqrt(cross))


def _norm_step(mixture: Mixture, _: float, bound: Callable = stacked_distance, **parts: float):
    return populations.distance(mixture.joint, mixture.stacked, 2.0), bound(mixture, **parts)


claim(
    "cv-g-chain-norm",
    stated=partial(_norm_step, bound=gamma, variance=4.0, overlap=8.0),
    corrected=_norm_step,
    mutants={
        "two thirds of the spread": partial(_norm_step, spread=2 / 3),
        "two thirds of the overlap": partial(_norm_step, overlap=2 / 3),
        "squared": partial(_norm_step, bound=lambda m: stacked_distance(m) ** 2),
    },
)(
    hunting(
        spreads=(0.0, 0.1),
        examples=ONE_IMAGE + at(2.0, *(one_component(d, False, 0.02) for d in (2.5, 4.0))),
    )
)


def _normaliser_step(mixture: Mixture, order: float, own: bool = True, factor: float = 1.0):
    joint, stacked = mixture.joint.norm(order), mixture.stacked.norm(order)
    norm = stacked if own else mixture.mode_spectrum.norm(order)
    gap = mixture.joint.entropy(order) - mixture.stacked.entropy(order)
    return abs(gap), factor * margin(abs(joint - stacked), norm, order)


claim(
    "cv-g-chain-normaliser",
    stated=partial(_normaliser_step, own=False),
    corrected=_normaliser_step,
    mutants={"two thirds": partial(_normaliser_step, factor=2 / 3)},
)(hunting(orders=ORDERS, examples=[(one_component(0.6, False, copies=2.0), 2.0), *FAR, *RARE[:2]]))


# ---------------------------------------------------------------------------------------------
# Theorem 7: von Neumann entropy, truncated and whole.


def cut_entropies(mixture: Mixture, t: float) -> list[float]:
    """Entropies of joint and prompts, and of their stacked counterparts, each cut at t."""
    spectra = mixture.joint, mixture.prompts, mixture.stacked, mixture.mode_spectrum
    return [spectrum.truncated(int(t)).entropy(1) for spectrum in spectra]


def cut_parts(mixture: Mixture, t: float) -> float:
    """sum_i w_i H of Eigs(C_i), each cut at t."""
    return mixture.weights @ [part.truncated(int(t)).entropy(1) for part in mixture.outputs]


def truncation_bound(z: float, t: float) -> float:
    """sqrt(t z) log(t / z): right side of CV eq. 19."""
    return float(np.sqrt(t * z) * (np.log(t) - np.log(z))) if z > 0 else 0.0


def audenaert(delta: float, t: float) -> float:
    """Largest change of the entropy of t probabilities that move by delta in l_2."""
    moved = np.sqrt(t) * delta / 2
    if moved >= 1 - 1 / t:
        return float(np.log(t))
    binary = -moved * np.log(moved) - (1 - moved) * np.log1p(-moved) if moved > 0 else 0.0
    return float(binary + moved * np.log(t - 1))


def _eq_19(mixture: Mixture, t: float) -> tuple[float, float]:
    z, (joint, prompts, *_) = gamma(mixture), cut_entropies(mixture, t)
    bound = truncation_bound(z, t) if z <= np.exp(-2) else np.nan
    return abs(joint - prompts - cut_parts(mixture, t)), bound


def _eq_19_corrected(
    mixture: Mixture, t: float, centre: Callable | None = None, power: int = 1, change=audenaert
) -> tuple[np.ndarray, np.ndarray]:
    joint, prompts, stacked, modes = cut_entropies(mixture, t)
    middle = centre(mixture, t) if centre else stacked - modes
    gaps = [joint - prompts - middle, joint - stacked, prompts - modes]
    return np.abs(gaps), np.array([2, 1, 1]) * change(stacked_distance(mixture) ** power, t)


claim(
    "cv-theorem-7",
    stated=_eq_19,
    corrected=_eq_19_corrected,
    mutants={
        "the weighted sum as centre": partial(_eq_19_corrected, centre=cut_parts),
        "delta squared": partial(_eq_19_corrected, power=2),
        "two thirds": partial(_eq_19_corrected, change=two_thirds(audenaert)),
    },
)(
    hunting(
        spreads=(0.0, 0.1),
        orders=TRUNCATIONS,
        examples=[
            *CUT,
            (one_component(5.0, False, 0.3), 2.0),
            *at(61.0, far_prompts(0.1, 4.0, 1, 30), far_prompts(0.5, 4.0, 1, 30)),
            *ONE_IMAGE,
        ],
    )
)


def holevo_bounds(
    mixture: Mixture, _: float, spread: bool = True, overlap: bool = True
) -> tuple[float, float]:
    """The prompts' own entropies: sum_i w_i H(C_{T|i}), and H(w) + that - H(C_T)."""
    within = mixture.prompts_under(mixture.prompt_gram * mixture.same).entropy(1)
    lost = max(within - mixture.prompts.entropy(1), 0.0)
    return spread * (within - mixture.mode_spectrum.entropy(1)), overlap * lost


claim(
    "cv-theorem-7-von-neumann",
    stated=holevo_bounds,
    mutants=without(holevo_bounds, "spread", "overlap"),
)(
    aggregation(
        spreads=(0.0, 0.1),
        orders=(1.0,),
        examples=at(
            1.0,
            two_prompts(0.3),
            one_component(6.0),
            one_component(6.0, False),
            typical(2.0, 0.5),
            RARE[1][0],
            SPREAD[0][0],
        ),
    )
)


def klogk_bound(mixture: Mixture, _: float) -> tuple[float, float]:
    """0 below, sum_i w_i (K log K)_ii above."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    values = np.maximum(values, 1e-300)
    return 0.0, float(mixture.weights @ (vectors**2) @ (values * np.log(values)))


claim(
    "cv-theorem-7-point-prompts",
    stated=klogk_bound,
    mutants={"two thirds": two_thirds(klogk_bound)},
)(
    aggregation(
        spreads=(0.0,),
        orders=(1.0,),
        shapes=populations.POINT_SHAPES,
        examples=at(1.0, two_prompts(0.3), two_prompts(0.9), RARE[1][0]),
    )
)


# ---------------------------------------------------------------------------------------------
# Printed displays that are false as a consequence, tried on the populations above.


def _early_theorem(mixture: Mixture, order: float) -> tuple[float, float]:
    return abs(mixture.gap(order)), printed_bound(mixture, order, early=True)[0]


def _prompt_entropy(mixture: Mixture, order: float) -> tuple[float, float]:
    gap = mixture.prompts.entropy(order) - mixture.mode_spectrum.entropy(order)
    return abs(gap), margin(gamma(mixture, 4, 8), mixture.mode_spectrum.norm(order), order)


def _blocks(mixture: Mixture, t: float) -> tuple[float, float]:
    *_, stacked, modes = cut_entropies(mixture, t)
    return cut_parts(mixture, t), stacked - modes


def _entropy_step(mixture: Mixture, t: float) -> tuple[float, float]:
    z, (_, prompts, _, modes) = gamma(mixture), cut_entropies(mixture, t)
    return abs(prompts - modes), truncation_bound(z, t) / 2 if z <= t else np.nan


def _exponents(mixture: Mixture, t: float) -> tuple[float, float]:
    z = gamma(mixture)
    return 2 * np.sqrt(t * z) * np.log(t / z), truncation_bound(z, t)


for _name, _sides, _examples in (
    ("cv-early-theorem-1", _early_theorem, [*RARE, *FAR, *HIGH]),
    (
        "cv-prompt-entropy",
        _prompt_entropy,
        [*HIGH, (two_prompts(0.06), 100.0), (two_prompts(0.02), 1000.0)],
    ),
    ("cv-theorem-7-blocks", _blocks, CUT),
    ("cv-theorem-7-entropies", _entropy_step, [(two_prompts(0.3535), 2.0), *CUT]),
    (
        "cv-theorem-7-domain",
        lambda mixture, t: (0.0, truncation_bound(gamma(mixture), t)),
        [NEAR, *CUT[:2]],
    ),
    (
        "cv-theorem-6-domain",
        lambda mixture, a: (gamma(mixture), mixture.mode_spectrum.norm(a)),
        [NEAR, *RARE],
    ),
    (
        "cv-two-g-gamma",
        lambda mixture, a: (
            printed_bound(mixture, a)[0],
            printed_bound(mixture, a, variance=4, overlap=8)[0],
        ),
        [(two_prompts(0.1), 2.0), SPREAD[2]],
    ),
    ("cv-theorem-7-equivalently", _exponents, [(two_prompts(0.05), 2.0)]),
    ("cv-zero-output-operator", lambda mixture, _: (mixture.outputs[0].norm(1), 0), ONE_IMAGE[:1]),
):
    claim(_name, stated=_sides, expected=Verdict.FALSE)(hunting(shapes=(), examples=_examples))


def _inner_products(gram: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower = np.tril_indices(len(gram), -1)
    return (gram @ orthonormal(gram).T)[lower] ** 2, np.cumsum(gram**2, axis=1)[lower]


def _eq_18(gram: np.ndarray, weights: np.ndarray) -> tuple[Any, Any]:
    inner = (gram @ orthonormal(gram).T) ** 2
    left = weights @ (gram**2 - inner - inner.T + np.eye(len(gram))) @ weights
    return left, 8 * weights @ (np.arange(len(gram)) * earlier_overlaps(gram))


def recursion(gram: np.ndarray) -> np.ndarray:
    """Rows: coefficients of CV-early's u_i, which are not normalised, in phi(mu_1) .. phi(mu_i)."""
    rows = np.eye(len(gram))
    for i in range(len(gram)):
        rows[i] -= (rows[:i] @ gram[:, i]) @ rows[:i]
    return rows


def early_losses(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 - u_i^T phi_i and 1 - |u_i|^2 of CV-early without cancellation, `[m]` each.

    With u_i = phi_i - sum_j c_j u_j they are |c|^2 and 2 |c|^2 - |sum_j c_j u_j|^2, terms that
    are all proportional to the small squared overlaps.
    """
    rows = recursion(gram)
    inner = np.tril(gram @ rows.T, -1)
    s = (inner**2).sum(1)
    return s, 2 * s - ((inner @ rows @ gram @ rows.T) * inner).sum(1)


def _of_early(form: Callable, mixture: Mixture, _: float) -> tuple[Any, Any]:
    """Forms get the weights, [<u_i, u_j>], the squared overlaps and the `early_losses`."""
    gram = mixture.mean_gram
    rows = recursion(gram)
    products = rows @ gram @ rows.T
    return form(mixture.weights, products, earlier_overlaps(gram), *early_losses(gram))


def _eigenvalues(products: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(products * np.sqrt(np.outer(scale, scale)))


for _name, _apply, _sides, _examples in (
    ("cv-gram-schmidt-inner-products", _of_points, _inner_products, POINTS),
    ("cv-eq-18", _of_points, _eq_18, POINTS + FAR_POINTS),
    (
        "cv-early-orthogonality",
        _of_early,
        lambda w, u, k, s, r: (_eigenvalues(u, 1 / np.diag(u))[-1], 1.0),
        POINTS,
    ),
    ("cv-early-inner-products", _of_early, lambda w, u, k, s, r: (s[1:], k[1:]), POINTS),
    ("cv-early-k", _of_early, lambda w, u, k, s, r: (w @ (s * (2 - s)), 2 * w @ k), POINTS),
    (
        "cv-early-norms",
        _of_early,
        lambda w, u, k, s, r: (r[1:], 2 * k[1:]),
        POINTS + FAR_POINTS,
    ),
    (
        "cv-early-eigenvalues",
        _of_early,
        lambda w, u, k, s, r: (np.min(w * np.diag(u)), _eigenvalues(u, w)[0]),
        POINTS,
    ),
    (  # The last term alone; 1 + |u|^4 - 2 (u^T phi)^2 on the left.
        "cv-early-frobenius",
        _of_early,
        lambda w, u, k, s, r: ((4 * s - 2 * s**2 - 2 * r + r**2)[-1], 8 * k[-1]),
        CROWDS,
    ),
):
    claim(_name, stated=_sides, expected=Verdict.FALSE)(
        hunting(_apply, shapes=(), examples=_examples, relative=True)
    )
