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
    rare_modes,
    square,
    straggler,
    two_prompts,
    typical,
)

Sides = Callable[[Mixture, float], tuple[Any, Any]]
Bound = Callable[[Mixture, float], tuple[float, ...]]
"""How far H(X|T) may lie below and above its aggregate."""
ORDERS = (2.0, 2.5, 4.0, 20.0, 300.0)
TRUNCATIONS = (20, 2, 3, 5)
_ROUNDING = 1e-11  # Below this a left side is rounding, and its ratio to the bound says nothing.

RARE = [
    (rare_mode(1e-4, 3e-3, 0.5, 1e5), 2.0),
    (rare_mode(1e-3, 1e-3, 1.0, 1e8), 2.0),
    (rare_modes(9, 1e-6, 0.01, 1e14), 2.0),
]
FAR = [(far_prompts(6e-3, 0.6, 1e5, 1), 2.0), (far_prompts(6e-4, 1.4, 1e8, 2), 2.0)]
SPREAD = [
    (far_prompts(p, d, n, 1), a) for p, d, n in ((0.1, 1, 50), (0.01, 0.5, 1e5)) for a in (2.0, 4.0)
]
HIGH = [(two_prompts(0.005), 150.0), (two_prompts(0.005), 1000.0)]
ONE_IMAGE = [(two_prompts(k, 1), 2.0) for k in (0.9, 0.2, 0.1, 0.02)]
CUT = [(square(2), 2.0), (square(10), 10.0), (one_component(4.0, share=0.1), 2.0)]
CUT += [(two_prompts(k), t) for k in (0.02, 0.2) for t in (2.0, 5.0)]
CUT += [(far_prompts(p, 0.5, 4, 1), t) for p in (1e-3, 1e-2) for t in (2.0, 20.0)]
NEAR = (two_prompts(np.exp(-0.5)), 2.0)
"""Two equally likely prompts one bandwidth apart: Gamma = 16 / e."""


def _tightness(lhs: Any, rhs: Any) -> float:
    """Largest lhs / rhs; minus infinity where no bound is stated."""
    lhs, rhs = np.broadcast_arrays(np.atleast_1d(lhs), np.atleast_1d(rhs))
    stated = np.isfinite(rhs) & np.isfinite(lhs)
    if not stated.any():
        return -np.inf
    return float(np.max((lhs[stated] + 1e-12) / (np.maximum(rhs[stated], 0.0) + 1e-12)))


def hunt(
    sides: Sides,
    rng: np.random.Generator,
    budget: Budget,
    *,
    shapes: Sequence[Shape] = populations.SHAPES,
    orders: Sequence[float] = (2.0,),
    examples: Sequence[tuple[Mixture, float]] = (),
    **fields: Any,
) -> Evidence:
    """Evidence for lhs <= rhs: examples, random populations, and climbs of lhs / rhs from them.

    A side that is not a number says that the statement claims nothing there (premise unmet).
    """
    trials = list(examples)
    for shape in shapes:
        thetas = [1.2 * rng.standard_normal(shape.dimension) for _ in range(budget.trials(10))]
        starts = [(theta, float(rng.choice(orders))) for theta in thetas]

        def tightness(theta: np.ndarray, order: float, shape: Shape = shape) -> float:
            return _tightness(*sides(populations.decode(theta, shape), order))

        theta, order = max(starts, key=lambda start: tightness(*start))
        steps = budget.pick(50, 600)
        best, _ = numerics.climb(partial(tightness, order=order), theta, rng, steps=steps)
        trials += [(populations.decode(point, shape), a) for point, a in [*starts, (best, order)]]
    rows = []
    for mixture, order in trials:
        found = np.broadcast_arrays(*map(np.atleast_1d, sides(mixture, order)))
        rows += [(*pair, order, mixture) for pair in zip(*found, strict=True)]
    lhs, rhs = (np.array([row[side] for row in rows], float) for side in (0, 1))
    parameters = {
        "order or t": [row[2] for row in rows],
        "prompts": [len(row[3].component) for row in rows],
        "images": [row[3].images for row in rows],
        "population": [row[3].label for row in rows],
    }
    return at_most(
        np.where(np.abs(lhs) < _ROUNDING, 0.0, lhs),
        rhs,
        premise_met=~(np.isnan(lhs) | np.isnan(rhs)),
        parameters=parameters,
        size=np.array(parameters["images"]),
        **fields,
    )


def hunting(
    spreads: Sequence[float] = (),
    wrap: Callable[[Any], Sides] = lambda sides: sides,
    **options: Any,
) -> EvidenceFunction:
    """The evidence of a claim whose forms are `Sides`, with looseness on ordinary populations."""

    def evidence(rng: np.random.Generator, budget: Budget, value: Any) -> Evidence:
        sides, order, measured = wrap(value), options.get("orders", (2.0,))[0], {}
        for distance, spread in [(d, spread) for d in (2, 4) for spread in spreads]:
            found = map(np.atleast_1d, sides(typical(distance, spread), order))
            lhs, rhs = np.broadcast_arrays(*found)
            ratio = rhs[np.argmax(lhs)] / lhs.max()
            where = f"three modes {distance} sigma apart, prompts +- {spread:g} sigma"
            measured |= {f"loose, {where}": float(ratio)} if np.isfinite(ratio) else {}
        return hunt(sides, rng, budget, measured=measured, **options)

    return evidence


def _against(bound: Bound) -> Sides:
    def sides(mixture: Mixture, order: float) -> tuple[np.ndarray, np.ndarray]:
        gap = mixture.gap(order)
        return np.array([-gap, gap]), np.array(bound(mixture, order), float)

    return sides


def aggregation(spreads: Sequence[float] = (0.0, 0.1), **options: Any) -> EvidenceFunction:
    """The evidence of a claim whose forms are `Bound`s."""
    return hunting(spreads, _against, **options)


def _samples(rng: np.random.Generator, budget: Budget) -> list[Mixture]:
    """Random populations of every shape."""
    return [
        populations.decode(1.2 * rng.standard_normal(shape.dimension), shape)
        for shape in populations.SHAPES
        for _ in range(budget.trials(15))
    ]


def two_thirds(bound: Callable) -> Callable:
    """A mutant: what is 1.5 times too small."""
    return lambda *arguments: np.multiply(2 / 3, bound(*arguments))


def without(bound: Callable, *parts: str) -> dict[str, Callable]:
    """Mutants: the bound without each of its parts, and two thirds of it."""
    mutants = {f"without {part}": partial(bound, **{part: False}) for part in parts}
    return mutants | {"two thirds": two_thirds(bound)}


# ---------------------------------------------------------------------------------------------
# Theorems 5 and 6.


def overlaps_before(mixture: Mixture) -> np.ndarray:
    """sum_{j < i} exp(-|mu_i - mu_j|^2 / sigma^2) for each i, `[m]`."""
    return np.tril(mixture.mean_gram**2, -1).sum(1)


def gamma(mixture: Mixture, variance: float = 32.0, overlap: float = 32.0) -> float:
    """Gamma of CV eq. 16; the proof reaches 4 and 8 in place of 32."""
    ranks = np.arange(mixture.modes)
    inner = variance * mixture.variances + overlap * ranks * overlaps_before(mixture)
    return float(mixture.weights @ inner)


def margin(z: float, norm: float, order: float) -> float:
    """g(z) = order / (order - 1) log 1 / (1 - z / norm); NaN where g is undefined (z >= norm)."""
    return order / (order - 1) * -np.log1p(-z / norm) if z < norm else np.nan


def printed_bound(mixture: Mixture, order: float) -> tuple[float, ...]:
    """2 g(Gamma) of CV Theorems 5 and 6."""
    return (2 * margin(gamma(mixture), mixture.mode_spectrum.norm(order), order),) * 2


def early_bound(mixture: Mixture, order: float) -> tuple[float, ...]:
    """The same without the factor i - 1, of CV-early Theorem 1."""
    z = float(32 * mixture.weights @ (mixture.variances + overlaps_before(mixture)))
    return (2 * margin(z, mixture.mode_spectrum.norm(order), order),) * 2


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


def moment_range(
    mixture: Mixture, _: float, cantelli: bool = True, spread: bool = True, overlap: bool = True
) -> tuple[float, float]:
    """The corrected CV Theorem 5: from means, variances and the components' RKE scores."""
    weights, losses = mixture.weights, spread * spread_losses(mixture)

    def ends(norms: np.ndarray) -> tuple[float, float]:
        centre = ((weights * norms) ** 2).sum()
        low = ((weights * np.maximum(norms - losses, 0.0)) ** 2).sum()
        between = overlap * overlap_bound(mixture, np.outer(norms, norms), cantelli)
        np.fill_diagonal(between, 0.0)
        return low / centre, 1 + weights @ between @ weights / centre

    joint_low, joint_high = ends(np.array([part.norm(2) for part in mixture.outputs]))
    prompt_low, prompt_high = ends(np.ones(mixture.modes))
    with np.errstate(divide="ignore"):
        lows = np.log([prompt_low, joint_low])
    down, up = np.log([joint_high, prompt_high]) - lows
    return float(down), float(up)


claim(
    "cv-theorem-5",
    stated=printed_bound,
    corrected=moment_range,
    mutants=without(moment_range, "cantelli", "spread", "overlap"),
)(
    aggregation(
        examples=[*RARE, *FAR, *SPREAD, (straggler(1e-3, 4.0, 1e10), 2.0), (two_prompts(0.3), 2.0)]
    )
)


def alignment(mixture: Mixture, order: float) -> np.ndarray:
    """Diagonal of K^order, K the kernel between component means, `[m]`; each entry >= 1."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    return (vectors**2) @ np.maximum(values, 0.0) ** order


def norm_range(
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
    aligned = aggregated(norms, alignment(mixture, order) if overlap else 1.0)
    return low, min((np.sqrt(aligned) + np.sqrt(weights @ losses)) ** 2, 1.0)


def entropy_range(mixture: Mixture, order: float, **parts: bool) -> tuple[float, float]:
    """The corrected CV Theorem 6."""
    norms = np.array([part.norm(order) for part in mixture.outputs])
    joint_low, joint_high = norm_range(mixture, norms, order, **parts)
    prompt_low, prompt_high = norm_range(mixture, np.ones(mixture.modes), order, **parts)
    modes, joint = mixture.mode_spectrum.norm(order), mixture.stacked.norm(order)
    with np.errstate(divide="ignore"):
        lows = np.log([prompt_low / modes, joint_low / joint])
    down, up = order / (order - 1) * (np.log([joint_high / joint, prompt_high / modes]) - lows)
    return float(down), float(up)


claim(
    "cv-theorem-6",
    stated=printed_bound,
    corrected=entropy_range,
    mutants=without(entropy_range, "spread", "overlap"),
)(aggregation(orders=ORDERS, examples=[*RARE, *FAR, *SPREAD, *HIGH, (two_prompts(0.3), 2.0)]))


def point_prompt_bound(
    mixture: Mixture, order: float, most: Callable = lambda a, _: a.max()
) -> tuple[float, ...]:
    """1 / (order - 1) log max_i (K^order)_ii, for components that are single prompts."""
    return (float(np.log(most(alignment(mixture, order), mixture.weights)) / (order - 1)),) * 2


def _curves() -> dict[str, np.ndarray]:
    """Both sides over the separation of the modes, for the figure; NaN where g is undefined."""
    separation = np.linspace(0.05, 7.0, 60)
    rows: dict[str, list[float]] = {"separation": list(separation)}
    for d in separation:
        for name, mixture in (("ordinary", typical(d)), ("rare", rare_mode(1e-3, 1e-3, d, 1e8))):
            sides = {
                "gap": abs(mixture.gap(2.0)),
                "printed": printed_bound(mixture, 2.0)[0],
                "corrected": point_prompt_bound(mixture, 2.0)[0],
            }
            for side, value in sides.items():
                rows.setdefault(f"{name}_{side}", []).append(value)
    return {name: np.array(values) for name, values in rows.items()}


@claim(
    "cv-theorem-6-corrected-point-prompts",
    stated=point_prompt_bound,
    mutants={
        "the mean over the weights in place of the maximum": partial(
            point_prompt_bound, most=lambda a, w: w @ a
        ),
        "two thirds": two_thirds(point_prompt_bound),
    },
)
def theorem_6_point_prompts(rng: np.random.Generator, budget: Budget, bound: Bound) -> Evidence:
    """Equality: two equally likely prompts with an image each, at every order."""
    examples = [(two_prompts(0.3), order) for order in (1.2, *ORDERS)] + RARE
    examples += [(rare_modes(2, 1e-3, 0.1, 1e10, start=10.0), 2.0)]
    options = {"orders": (2.0, 1.2, *ORDERS), "examples": examples, "data": _curves()}
    return aggregation((0.0,), shapes=populations.POINT_SHAPES, **options)(rng, budget, bound)


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


def _order_two(mixture: Mixture, ends: Callable) -> tuple[np.ndarray, np.ndarray]:
    eps, down, up, top, rows = ends(mixture)
    prompts, joint, _ = mixture.pairs
    modes = range(mixture.modes)
    own = np.array([mixture.prompts_given(i).norm(2) for i in modes]) * mixture.weights
    both = np.array([mixture.joint_given(i).norm(2) for i in modes]) * mixture.weights
    centre = 2 * np.log(np.linalg.norm(own) / np.linalg.norm(both))
    off = mixture.conditional(2.0) - centre
    cross = ~np.eye(mixture.modes, dtype=bool)
    rows = [(-off, down), (off, up), (eps, top), (top, rows)]
    rows += [(top, eps)] if mixture.label == "top eigenvector" else []
    rows += [(up, off)] if not joint[cross].any() else []
    rows += [(down, -off)] if np.array_equal(joint[cross], prompts[cross]) else []
    lhs, rhs = np.array(rows).T
    return lhs, rhs


@claim(
    "cv-order-2-sharp-aggregation",
    stated=sharp_ends,
    mutants={
        "eps with j = i": partial(sharp_ends, diagonal=True),
        "R left out of the lower end": partial(sharp_ends, diverse=False),
        "mean in place of the maximum": partial(sharp_ends, most=np.mean),
    },
)
def order_2_sharp(rng: np.random.Generator, budget: Budget, ends: Callable) -> Evidence:
    """Spectra on the left, pair averages on the right; equality where outputs never or always meet.

    Of the ends, the upper is reached where modes have orthogonal outputs, the lower where the
    outputs coincide wherever prompts of different modes meet.
    """
    examples = [(aligned(means), 2.0) for means in ((0, 0.5), (0, 0.3, 3), (0, 0.2, 0.4, 9))]
    examples += [
        (cores(shares, 0.5, n), 2.0)
        for shares in ((0.1, 0.1), (0.05, 0.3, 0.01))
        for n in (5, 1e3, 1e6)
    ]
    measured = {}
    for spread in (0.1, 0.5):
        mixture = typical(3.0, spread)
        eps, down, up, *_, rows = sharp_ends(mixture)
        where = f"three modes 3 sigma apart, prompts +- {spread:g} sigma"
        measured[f"log(1 + eps), {where}"] = float(up)
        measured[f"lower end, {where}"] = float(down)
        printed = printed_bound(mixture, 2.0)[0]
        measured |= {f"2 g(Gamma), {where}": printed} if np.isfinite(printed) else {}
    examples += [(typical(3.0, 0.5), 2.0), *RARE[:2]]
    return hunt(lambda m, _: _order_two(m, ends), rng, budget, examples=examples, measured=measured)


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
    for mixture in _samples(rng, budget):
        for order in (2.0, float(rng.choice([1.2, 3.0, 8.0]))):
            scores = np.exp([part.entropy(order) for part in mixture.outputs])
            lhs.append(mixture.stacked.entropy(order) - mixture.mode_spectrum.entropy(order))
            rhs.append(np.log(power_mean(mixture.weights, scores, *form(order))))
        pairs = np.diag(mixture.pairs[2]).sum() / np.sum(mixture.weights**2)
        lhs.append(-np.log(pairs))
        rhs.append(rhs[-2])
    return equal(lhs, rhs, tolerance=1e-9)


# ---------------------------------------------------------------------------------------------
# Their proof: Lemma 5, Gram-Schmidt, eq. 17 and 18, the g-chain.


def _lemma_steps(
    mixture: Mixture, _: float, a: float = 1.0, d: float = 2.0, e: float = 1.0, g: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    own = np.sum((mixture.location - mixture.means[mixture.component]) ** 2, axis=1)
    change = np.zeros((len(own), 2, 2))
    change[:, 0, 0] += 1  # phi(t) is the first unit vector, phi(mu) = (k, sqrt(1 - k^2)).
    mu = np.stack([np.exp(-own / 2), np.sqrt(-np.expm1(-own))], axis=1)
    change -= np.einsum("pi,pj->pij", mu, mu)
    x = np.outer([0.6, 0.8], [0.6, 0.8])
    explicit = float(mixture.prompt_weights @ [np.sum(np.kron(x, one) ** 2) for one in change])
    kernels = d * float(mixture.prompt_weights @ -np.expm1(-own))
    jensen = -2 * float(mixture.weights @ np.expm1(-mixture.variances))
    distance = operator_distance(mixture, np.eye(mixture.modes))
    lhs = [distance, explicit, kernels, explicit, jensen]
    return np.array(lhs), np.array(
        [a * explicit, kernels, explicit, e * jensen, g * mixture.variance]
    )


def operator_distance(mixture: Mixture, coefficients: np.ndarray) -> float:
    """|C_{X,T} - sum_i omega_i C_i x u_i u_i^T|_F^2, u_i = sum_l coefficients[i, l] phi(mu_l)."""
    component = mixture.component
    means = numerics.gaussian(mixture.means, mixture.location)
    to_prompts = (coefficients @ means)[component]
    between = (coefficients @ mixture.mean_gram @ coefficients.T)[np.ix_(component, component)]
    kernel = mixture.prompt_gram**2 - to_prompts**2 - to_prompts.T**2 + between**2
    return sum(
        float(
            (
                np.outer(block.weights, block.weights)
                * block.gram**2
                / block.copies
                * kernel[np.ix_(block.prompts, block.prompts)]
            ).sum()
        )
        for block in mixture.blocks
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
        examples=[(one_component(d), 2.0) for d in (0.02, 0.4, 2.0)]
        + [(one_component(300.0, share=0.01), 2.0)]
    )
)


def orthonormal(gram: np.ndarray) -> np.ndarray:
    """Rows: coefficients of the Gram-Schmidt vectors u_i in phi(mu_1) .. phi(mu_i)."""
    return np.linalg.inv(np.linalg.cholesky(gram))


def recursion(gram: np.ndarray) -> np.ndarray:
    """The same for CV-early's recursion, which does not normalise."""
    rows = np.eye(len(gram))
    for i in range(len(gram)):
        rows[i] -= (rows[:i] @ gram[:, i]) @ rows[:i]
    return rows


def squared_overlaps(gram: np.ndarray) -> np.ndarray:
    """sum_{j<i} k_T(mu_i, mu_j)^2 for every i, `[m]`."""
    return np.tril(gram**2, -1).sum(1)


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


PointSides = Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]
"""From the Gram of the means and the weights."""


def _cluster(count: int, distance: float, step: float, weight: float) -> tuple[Any, Any]:
    """`count` neighbours of this weight each, from `distance` on, then one prompt at the origin."""
    means = [[round(distance + step * i, 3)] for i in range(count)] + [[0.0]]
    return means, [weight] * count + [1 - count * weight]


POINTS = [([[0.0], [1.0]], [0.5, 0.5]), ([[0.0], [1.0], [-1.0]], [1 / 3] * 3)]
POINTS += [
    _cluster(*case)
    for case in (
        (2, 3.0, 0.5, 1 / 3),
        (2, 2.0, 0.7, 1 / 3),
        (2, 2.5, 0.6, 1e-7),
        (2, 2.5, 0.3, 1e-3),
        (2, 3.0, 0.3, 1e-5),
        (4, 3.0, 0.3, 1e-5),
        (6, 3.0, 0.3, 1e-5),
        (6, 3.0, 0.3, 1e-8),
    )
]
FAR_POINTS = [
    _cluster(2, 4.5, 0.1, 1e-11),
    _cluster(2, 4.6, 0.5, 1 / 3),
    _cluster(4, 4.6, 0.4, 0.2),
]
CROWDS = [([[0.0], *[[0.3]] * n, [-8.5]], [0.0] * (n + 1) + [1.0]) for n in (1, 15, 20, 60)]


def _few(values: Any) -> Any:
    """A crowd in words."""
    if len(values) < 9:
        return values
    return f"{values[0]}, {len(values) - 2} times {values[1]}, {values[-1]}"


def points(examples: Sequence[Any], search: bool = False) -> EvidenceFunction:
    """The evidence of lhs <= rhs over means and weights, as a ratio to the right side.

    The ratio shows violations however small both sides are. A search keeps to means in which
    Gram-Schmidt loses no digits.
    """

    def split(theta: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
        return 2 * theta[m:].reshape(m, -1), numerics.softmax(2 * theta[:m])

    def evidence(rng: np.random.Generator, budget: Budget, sides: PointSides) -> Evidence:
        trials = [(np.array(means), np.array(weights)) for means, weights in examples]
        for m, axes in ((2, 1), (3, 1), (5, 1)) if search else ():
            starts = [rng.standard_normal(m + m * axes) for _ in range(budget.trials(15))]

            def tightness(theta: np.ndarray, m: int = m) -> float:
                means, weights = split(theta, m)
                gram = numerics.gaussian(means)
                if np.linalg.eigvalsh(gram)[0] < 0.02 or np.min(squared_overlaps(gram)[1:]) < 1e-4:
                    return -np.inf
                return _tightness(*sides(gram, weights))

            steps = budget.pick(150, 1500)
            best, value = numerics.climb(tightness, max(starts, key=tightness), rng, steps=steps)
            trials += [split(best, m)] if np.isfinite(value) else []
        rows = []
        for means, weights in trials:
            found = map(np.atleast_1d, sides(numerics.gaussian(means), weights))
            pairs = zip(*np.broadcast_arrays(*found), strict=True)
            rows += [(*pair, means, weights) for pair in pairs]
        lhs, rhs = (np.array([row[side] for row in rows]) for side in (0, 1))
        parameters = {
            "means": [_few(row[2].round(4)) for row in rows],
            "weights": [_few([float(f"{w:.4g}") for w in row[3]]) for row in rows],
            "left side": list(lhs),
            "right side": list(rhs),
        }
        sizes = np.array([len(row[3]) for row in rows])
        return at_most(lhs / rhs, 1.0, parameters=parameters, size=sizes, tolerance=1e-8)

    return evidence


def _coefficients(gram: np.ndarray, _: np.ndarray, most: Callable) -> tuple[Any, Any]:
    squares = (orthonormal(gram) ** 2).sum(1)
    lows = np.ones_like(squares)
    return np.concatenate([lows, squares]), np.concatenate([squares, most(gram) * lows])


claim(
    "cv-gram-schmidt-coefficients",
    stated=partial(_coefficients, most=lambda gram: 1.0),
    corrected=partial(_coefficients, most=lambda gram: 1 / np.linalg.eigvalsh(gram)[0]),
    mutants={
        "the largest eigenvalue": partial(
            _coefficients, most=lambda gram: np.linalg.eigvalsh(gram)[-1]
        ),
        "two thirds": partial(_coefficients, most=lambda gram: 2 / 3 / np.linalg.eigvalsh(gram)[0]),
    },
)(points(POINTS, search=True))


def _equation_17(gram: np.ndarray, weights: np.ndarray, factor: Callable) -> tuple[Any, Any]:
    inner = (gram @ orthonormal(gram).T) ** 2
    left = 2 * weights @ np.tril(inner, -1).sum(1)
    return left, 2 * weights @ (factor(gram) * squared_overlaps(gram))


def _least(gram: np.ndarray, which: int = 0) -> np.ndarray:
    heads = [np.linalg.eigvalsh(gram[:i, :i])[which] for i in range(1, len(gram))]
    return 1 / np.array([1.0, *heads])


claim(
    "cv-eq-17",
    stated=partial(_equation_17, factor=lambda gram: np.arange(len(gram))),
    corrected=partial(_equation_17, factor=_least),
    mutants={
        "the largest eigenvalue": partial(_equation_17, factor=partial(_least, which=-1)),
        "no eigenvalue": partial(_equation_17, factor=lambda gram: np.ones(len(gram))),
        "two thirds": partial(_equation_17, factor=two_thirds(_least)),
    },
)(points(POINTS, search=True))


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
        (0.0, 0.1), examples=ONE_IMAGE + [(one_component(d, False, 0.02), 2.0) for d in (2.5, 4.0)]
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


def truncated(spectrum: populations.Spectrum, t: float) -> float:
    """The entropy of the spectrum cut at t."""
    return spectrum.truncated(int(t)).entropy(1)


def _parts(mixture: Mixture, t: float) -> float:
    return float(mixture.weights @ [truncated(part, t) for part in mixture.outputs])


def _stack(mixture: Mixture, t: float) -> float:
    return truncated(mixture.stacked, t) - truncated(mixture.mode_spectrum, t)


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
    z, conditional = gamma(mixture), truncated(mixture.joint, t) - truncated(mixture.prompts, t)
    bound = truncation_bound(z, t) if z <= np.exp(-2) else np.nan
    return abs(conditional - _parts(mixture, t)), bound


def _eq_19_corrected(
    mixture: Mixture, t: float, centre=_stack, distance=stacked_distance, change=audenaert
) -> tuple[np.ndarray, np.ndarray]:
    joint, prompts = truncated(mixture.joint, t), truncated(mixture.prompts, t)
    gaps = [joint - prompts - centre(mixture, t), joint - truncated(mixture.stacked, t)]
    gaps.append(prompts - truncated(mixture.mode_spectrum, t))
    return np.abs(gaps), np.array([2.0, 1.0, 1.0]) * change(distance(mixture), t)


claim(
    "cv-theorem-7",
    stated=_eq_19,
    corrected=_eq_19_corrected,
    mutants={
        "the weighted sum as centre": partial(_eq_19_corrected, centre=_parts),
        "delta squared": partial(_eq_19_corrected, distance=lambda m: stacked_distance(m) ** 2),
        "two thirds": partial(_eq_19_corrected, change=two_thirds(audenaert)),
    },
)(
    hunting(
        (0.0, 0.1),
        orders=TRUNCATIONS,
        examples=[
            *CUT,
            (one_component(5.0, False, 0.3), 2.0),
            (far_prompts(0.1, 4.0, 1, 30), 61.0),
            (far_prompts(0.5, 4.0, 1, 30), 61.0),
            *((mixture, 2.0) for mixture, _ in ONE_IMAGE),
        ],
    )
)


def holevo_bounds(
    mixture: Mixture, _: float, spread: bool = True, overlap: bool = True
) -> tuple[float, float]:
    """The prompts' own entropies: sum_i w_i H(C_{T|i}), and H(w) + that - H(C_T)."""
    inside = [mixture.prompts_given(i).entropy(1) for i in range(mixture.modes)]
    inside = float(mixture.weights @ inside)
    lost = max(mixture.mode_spectrum.entropy(1) + inside - mixture.prompts.entropy(1), 0.0)
    return spread * inside, overlap * lost


claim(
    "cv-theorem-7-von-neumann",
    stated=holevo_bounds,
    mutants=without(holevo_bounds, "spread", "overlap"),
)(
    aggregation(
        orders=(1.0,),
        examples=[
            (mixture, 1.0)
            for mixture in (
                two_prompts(0.3),
                one_component(6.0),
                one_component(6.0, False),
                typical(2.0, 0.5),
                RARE[1][0],
                SPREAD[0][0],
            )
        ],
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
        (0.0,),
        orders=(1.0,),
        shapes=populations.POINT_SHAPES,
        examples=[(mixture, 1.0) for mixture in (two_prompts(0.3), two_prompts(0.9), RARE[1][0])],
    )
)


# ---------------------------------------------------------------------------------------------
# Printed displays that are false as a consequence, tried on the populations above.


def _gap_against(bound: Bound) -> Sides:
    return lambda mixture, order: (abs(mixture.gap(order)), bound(mixture, order)[0])


def _prompt_entropy(mixture: Mixture, order: float) -> tuple[float, float]:
    gap = mixture.prompts.entropy(order) - mixture.mode_spectrum.entropy(order)
    return abs(gap), margin(gamma(mixture, 4, 8), mixture.mode_spectrum.norm(order), order)


def _entropy_step(mixture: Mixture, t: float) -> tuple[float, float]:
    z, gap = gamma(mixture), truncated(mixture.prompts, t) - truncated(mixture.mode_spectrum, t)
    return abs(gap), truncation_bound(z, t) / 2 if z <= t else np.nan


def _two_g(mixture: Mixture, order: float) -> tuple[Any, Any]:
    norm = mixture.mode_spectrum.norm(order)
    sides = [2 * margin(z, norm, order) for z in (gamma(mixture), gamma(mixture, 4, 8))]
    return sides[0], sides[1]


def _exponents(mixture: Mixture, t: float) -> tuple[float, float]:
    z = gamma(mixture)
    return 2 * np.sqrt(t * z) * np.log(t / z), truncation_bound(z, t)


for _name, _sides, _examples in (
    ("cv-early-theorem-1", _gap_against(early_bound), [*RARE, *FAR, *HIGH]),
    (
        "cv-prompt-entropy",
        _prompt_entropy,
        [*HIGH, (two_prompts(0.06), 100.0), (two_prompts(0.02), 1000.0)],
    ),
    ("cv-theorem-7-blocks", lambda mixture, t: (_parts(mixture, t), _stack(mixture, t)), CUT),
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
    ("cv-two-g-gamma", _two_g, [(two_prompts(0.1), 2.0), SPREAD[2]]),
    ("cv-theorem-7-equivalently", _exponents, [(two_prompts(0.05), 2.0)]),
    (
        "cv-zero-output-operator",
        lambda mixture, _: (mixture.outputs[0].norm(1.0), 0.0),
        ONE_IMAGE[:1],
    ),
):
    claim(_name, stated=_sides, expected=Verdict.FALSE)(hunting(shapes=(), examples=_examples))


def early_losses(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 - u_i^T phi_i and 1 - |u_i|^2 of CV-early without cancellation, `[m]` each.

    With u_i = phi_i - sum_j c_j u_j they are |c|^2 and 2 |c|^2 - |sum_j c_j u_j|^2, terms that
    are all proportional to the small squared overlaps.
    """
    rows = recursion(gram)
    inner = np.tril(gram @ rows.T, -1)
    s = (inner**2).sum(1)
    return s, 2 * s - ((inner @ rows @ gram @ rows.T) * inner).sum(1)


def _inner_products(gram: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower = np.tril_indices(len(gram), -1)
    return (gram @ orthonormal(gram).T)[lower] ** 2, np.cumsum(gram**2, axis=1)[lower]


def _equation_18(gram: np.ndarray, weights: np.ndarray) -> tuple[Any, Any]:
    inner = (gram @ orthonormal(gram).T) ** 2
    left = weights @ (gram**2 - inner - inner.T + np.eye(len(gram))) @ weights
    return left, 8 * weights @ (np.arange(len(gram)) * squared_overlaps(gram))


def _early_k(gram: np.ndarray, weights: np.ndarray) -> tuple[Any, Any]:
    s, _ = early_losses(gram)
    return 2 * weights @ (s * (2 - s)), 4 * weights @ squared_overlaps(gram)


def _early_frobenius(gram: np.ndarray, _: np.ndarray) -> tuple[Any, Any]:
    """The last term alone; 1 + |u|^4 - 2 (u^T phi)^2 on the left."""
    s, r = (losses[-1] for losses in early_losses(gram))
    return 4 * s - 2 * s**2 - 2 * r + r**2, 8 * squared_overlaps(gram)[-1]


def _early_cosines(gram: np.ndarray, _: np.ndarray) -> tuple[Any, Any]:
    rows = recursion(gram)
    between = rows @ gram @ rows.T
    norms = np.sqrt(np.diag(between))
    return np.linalg.eigvalsh(between / np.outer(norms, norms))[-1], 1.0


def _early_eigenvalues(gram: np.ndarray, weights: np.ndarray) -> tuple[Any, Any]:
    rows = np.sqrt(weights)[:, None] * recursion(gram)
    between = rows @ gram @ rows.T
    return np.diag(between).min(), np.linalg.eigvalsh(between)[0]


_points = {
    "cv-eq-18": POINTS + FAR_POINTS,
    "cv-early-norms": POINTS + FAR_POINTS,
    "cv-early-frobenius": CROWDS,
}
for _name, _sides in (
    ("cv-gram-schmidt-inner-products", _inner_products),
    ("cv-eq-18", _equation_18),
    ("cv-early-orthogonality", _early_cosines),
    (
        "cv-early-inner-products",
        lambda gram, _: (early_losses(gram)[0][1:], squared_overlaps(gram)[1:]),
    ),
    ("cv-early-k", _early_k),
    ("cv-early-norms", lambda gram, _: (early_losses(gram)[1][1:], 2 * squared_overlaps(gram)[1:])),
    ("cv-early-eigenvalues", _early_eigenvalues),
    ("cv-early-frobenius", _early_frobenius),
):
    claim(_name, stated=_sides, expected=Verdict.FALSE)(points(_points.get(_name, POINTS)))


# ---------------------------------------------------------------------------------------------
# Cluster-Vendi and Cluster-RKE (CV G.1, CV-early B.5).


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
    trials = [(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2]), 2.0, np.eye(3))]
    trials += [(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2]), 1.0, np.eye(3))]
    for _ in range(budget.trials(40)):
        n = int(rng.integers(4, 13))
        features = numerics.unit_features(rng, 5, 4)
        order = float(rng.choice([0.5, 1.0, 2.0, 3.0]))
        labels, images = np.sort(rng.integers(0, 3, n)), rng.integers(0, 5, n)
        trials.append((labels, images, order, features @ features.T))
    lhs, rhs = [], []
    for labels, images, order, gram in trials:
        k_x, k_t = gram[np.ix_(images, images)], (labels[:, None] == labels).astype(float)
        names, sizes = np.unique(labels, return_counts=True)
        groups = [np.flatnonzero(labels == name) for name in names]
        scores = [
            np.exp(numerics.entropy(numerics.spectrum(k_x[np.ix_(g, g)]), order)) for g in groups
        ]
        lhs.append(power_mean(sizes.astype(float), np.array(scores), *form(order)))
        rhs.append(np.exp(numerics.conditional_entropy(k_x, k_t, order)))
    ones, measured = np.ones(2), {}
    for name, scores in (("1 and 4", [1.0, 4.0]), ("2 and 2", [2.0, 2.0])):
        for kind, mean in (("Cluster-RKE", 1.0), ("Conditional-RKE", -1.0)):
            found = power_mean(ones, np.array(scores), 2.0, mean)
            measured[f"{kind}, two prompts with {name} images"] = found
    return equal(
        lhs,
        rhs,
        tolerance=1e-9,
        measured=measured,
        size=np.array([len(t[0]) for t in trials]),
        parameters={
            "cluster": [t[0] for t in trials],
            "image": [t[1] for t in trials],
            "order": [t[2] for t in trials],
        },
    )
