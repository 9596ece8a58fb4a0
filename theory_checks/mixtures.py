r"""Mixtures of prompts: CV appendix B and Cluster-Vendi (G.1), CV-early Theorem 1 and A.3.

Prompts T come from m components with weights w_i, means mu_i and variances s_i^2 (lengths in
bandwidths: s_i^2 is the papers' sigma_i^2 / sigma^2); C_i is the output operator of component i,
K = [k_T(mu_i, mu_j)], e_ij = K_ij^2, and lambda-hat the union of the w_i Eigs(C_i). The papers
compare H(X|T) with an aggregate of the H(X|G=i). Proofs of what holds: docs/proofs.md.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from theory_checks import numerics, populations
from theory_checks.claim import EvidenceFunction, claim
from theory_checks.evidence import Budget, Evidence, Verdict, at_most, equal
from theory_checks.populations import (
    Mixture,
    Shape,
    Spectrum,
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

Bound = Callable[[Mixture, float], tuple[float, ...]]
"""How far H(X|T) may lie below and above its aggregate."""
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
ONE_IMAGE = at(2.0, *(two_prompts(k, own=False) for k in (0.9, 0.2, 0.1, 0.02)))
CUT = [(square(2), 2.0), (square(10), 10.0), (one_component(4.0, share=0.1), 2.0)]
CUT += [(two_prompts(k), t) for k in (0.02, 0.2) for t in (2.0, 5.0)]
CUT += [(far_prompts(p, 0.5, 4), t) for p in (1e-3, 1e-2) for t in (2.0, 20.0)]
NEAR = (two_prompts(np.exp(-0.5)), 2.0)
"""Two equally likely prompts one bandwidth apart: Gamma = 16 / e."""


def described(mixture: Mixture, prompts: bool = False) -> str:
    """Its label, or what there is to say of a population of single prompts on a line."""
    if mixture.label or not prompts:
        return mixture.label or f"{mixture.modes} component(s), found by search"
    lists = (", ".join(f"{x:.4g}" for x in y) for y in (mixture.means[:, 0], mixture.weights))
    return "prompts at {} of weights {}".format(*lists)


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
        relative: compare lhs / rhs with 1, which shows violations however small both sides are.
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
        found = [sides(*trial) for trial in trials]
        rows = [trial for trial, pair in zip(trials, found, strict=True) for _ in pair[0]]
        lhs, rhs = np.concatenate(found, axis=1)
        parameters: dict[str, Any] = {
            "order or t": [order for _, order in rows],
            "prompts": np.array([len(mixture.component) for mixture, _ in rows]),
            "images": np.array([mixture.images for mixture, _ in rows]),
            "population": [described(mixture, relative) for mixture, _ in rows],
        }
        size = parameters["prompts"] * parameters["images"]
        size = size + np.array([0 if mixture.label or relative else _FOUND for mixture, _ in rows])
        if relative:
            names = parameters["population"]
            parameters = {"population": names, "left side": lhs, "right side": rhs}
            lhs, rhs = lhs / rhs, np.ones_like(rhs)
        fields = {"measured": {}, "tolerance": 1e-8 if relative else 1e-10}
        for mixture in [typical(distance, spread) for distance in (2, 4) for spread in spreads]:
            left, right = sides(mixture, orders[0])
            ratio = float(right[np.argmax(left)] / left.max())
            fields["measured"] |= {f"loose, {mixture.label}": ratio} if np.isfinite(ratio) else {}
        return at_most(
            np.where(np.abs(lhs) < _ROUNDING, 0.0, lhs),
            rhs,
            premise_met=~(np.isnan(lhs) | np.isnan(rhs)),
            parameters=parameters,
            size=size,
            **fields | {name: make() for name, make in late.items()},
        )

    return evidence


def hunted(
    name: str,
    form: Any,
    mutants: Mapping[str, Mapping[str, Any] | Callable],
    *,
    stated: Any = None,
    **options: Any,
) -> None:
    """Register a claim that `hunting` tries.

    Args:
        name: of its statement.
        form: what holds.
        mutants: arguments of `form` that make it wrong, or another form.
        stated: the statement, where it does not hold.
        options: of `hunting`.
    """
    changed = {
        fault: mutant if callable(mutant) else partial(form, **mutant)
        for fault, mutant in mutants.items()
    }
    corrected = form if stated else None
    claim(name, stated=stated or form, corrected=corrected, mutants=changed)(hunting(**options))


def _against(bound: Bound, mixture: Mixture, order: float) -> tuple[np.ndarray, np.ndarray]:
    gap = mixture.gap(order)
    return np.array([-gap, gap]), np.array(bound(mixture, order), float)


def _attained(
    ends: Mapping[str, int], bound: Bound, mixture: Mixture, order: float
) -> tuple[np.ndarray, np.ndarray]:
    """`_against`, with equality at the populations of these labels: below is 0, above is 1."""
    lhs, rhs = _against(bound, mixture, order)
    equal_at = [ends[mixture.label]] if mixture.label in ends else []
    return np.append(lhs, rhs[equal_at]), np.append(rhs, lhs[equal_at])


def two_thirds(bound: Callable) -> Callable:
    """A mutant: what is 1.5 times too small."""
    return lambda *arguments: np.multiply(2 / 3, bound(*arguments))


def weaker(bound: Callable) -> Callable:
    """A mutant of what is attained: a bound 1.5 times too large."""
    return lambda *arguments: np.multiply(1.5, bound(*arguments))


def without(*parts: str) -> dict[str, dict[str, bool]]:
    """Mutants: a bound without each of its parts."""
    return {f"without {part}": {part: False} for part in parts}


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


def overlap_bound(mixture: Mixture, alike: np.ndarray, cantelli: float = 1.0) -> np.ndarray:
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
    cantelli: float = 1.0,
    spread: bool = True,
    overlap: bool = True,
) -> tuple[float, float]:
    """Range of |C_{X,T}|_2, given s_i = |C_i|_2 (all 1 for the prompt operator)."""
    weights, left = mixture.weights, np.maximum(norms - spread * spread_losses(mixture), 0.0)
    between = overlap * overlap_bound(mixture, np.outer(norms, norms), cantelli)
    np.fill_diagonal(between, norms**2)
    return float(np.linalg.norm(weights * left)), float(np.sqrt(weights @ between @ weights))


def alignment(mixture: Mixture, order: float) -> np.ndarray:
    """Diagonal of K^order, K the kernel between component means, `[m]`; each entry >= 1."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    return (vectors**2) @ np.maximum(values, 0.0) ** order


def norm_ends(
    mixture: Mixture, norms: np.ndarray, order: float, spread: bool = True, overlap: bool = True
) -> tuple[float, float]:
    """Range of |C_{X,T}|_order, given s_i = |C_i|_order (all 1 for the prompt operator)."""
    losses = spread * spread_losses(mixture)

    def norm(values: np.ndarray) -> float:
        return Spectrum(mixture.weights * values, np.ones(mixture.modes)).norm(order)

    left = np.maximum(norms - losses, 0.0)
    low = norm(left) if left.any() else 0.0
    if mixture.modes == 1:
        return low, float(norms[0])
    most = norm(norms * alignment(mixture, order) ** (1 / order) if overlap else norms)
    return low, min((np.sqrt(most) + np.sqrt(mixture.weights @ losses)) ** 2, 1.0)


def corrected_range(
    mixture: Mixture, order: float, ends: Callable = norm_ends, **parts: Any
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


_ONE_BY_ONE = at(2.0, straggler(1e-3, 4.0, 1e10), straggler(1e-3, 100.0, 1e10), two_prompts(0.3))


def _moment_sides(
    mixture: Mixture, order: float, scale: float = 1.0, **parts: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The corrected Theorem 5; at some examples L, U and kappa, each for either operator alone."""
    bound = np.array(corrected_range(mixture, order, moment_ends, **parts))
    lhs, rhs = [-mixture.gap(order), mixture.gap(order)], [*(scale * bound)]
    if mixture.label in {example.label for example, _ in _ONE_BY_ONE}:
        outputs = np.array([part.norm(order) for part in mixture.outputs])
        cantelli, between = parts.get("cantelli", 1.0), np.triu_indices(mixture.modes, 1)
        for whole, own, norms, pairs in (
            (mixture.prompts, mixture.mode_spectrum, np.ones(mixture.modes), mixture.pairs[0]),
            (mixture.joint, mixture.stacked, outputs, mixture.pairs[1]),
        ):
            low, high = moment_ends(mixture, norms, order, **parts)
            change = 2 * np.log(whole.norm(order) / own.norm(order))
            with np.errstate(divide="ignore"):
                rhs += [*(scale * 2 * np.log([own.norm(order) / low, high / own.norm(order)]))]
            kappa = overlap_bound(mixture, np.outer(norms, norms), cantelli)
            lhs += [-change, change, *(pairs / np.outer(mixture.weights, mixture.weights))[between]]
            rhs += [*(scale * kappa[between])]
    return np.array(lhs), np.array(rhs)


hunted(
    "cv-theorem-5",
    _moment_sides,
    {
        **without("cantelli", "spread", "overlap"),
        "half of Cantelli's term": {"cantelli": 0.5},
        "two thirds": {"scale": 2 / 3},
    },
    stated=partial(_against, printed_bound),
    spreads=(0.0, 0.1),
    examples=[*RARE, *FAR, *SPREAD, *_ONE_BY_ONE],
)
hunted(
    "cv-theorem-6",
    corrected_range,
    {**without("spread", "overlap"), "two thirds": two_thirds(corrected_range)},
    stated=printed_bound,
    apply=_against,
    spreads=(0.0, 0.1),
    orders=ORDERS,
    examples=[*RARE, *FAR, *SPREAD, *HIGH, (two_prompts(0.3), 2.0)],
)
claim("cv-early-theorem-1", stated=partial(printed_bound, early=True), expected=Verdict.FALSE)(
    hunting(_against, shapes=(), examples=[*RARE, *FAR, *HIGH])
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


# Equality at every order: two equally likely prompts with an image each.
_EQUAL = [(two_prompts(0.3), order) for order in (1.2, *ORDERS)]
hunted(
    "cv-theorem-6-corrected-point-prompts",
    point_prompt_bound,
    {
        "the mean over the weights in place of the maximum": {"most": lambda a, w: w @ a},
        "two thirds": two_thirds(point_prompt_bound),
        "1.5 times weaker": weaker(point_prompt_bound),
    },
    apply=partial(_attained, {two_prompts(0.3).label: 1}),
    examples=[*_EQUAL, *RARE, (rare_mode(1e-3, 0.0, 0.1, 1e10, count=2, start=10.0), 2.0)],
    orders=(2.0, 1.2, *ORDERS),
    shapes=populations.POINT_SHAPES,
    spreads=(0.0,),
    data=_curves,
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
    return eps, float(down), float(np.log1p(eps)), top, most(cosines.sum(1) - 1)


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
            measured |= {f"{name}, {mixture.label}": value} if np.isfinite(value) else {}
    return measured


_CORES = [
    cores(shares, 0.5, n) for shares in ((0.1, 0.1), (0.05, 0.3, 0.01)) for n in (5, 1e3, 1e6)
]
_ALIGNED = map(aligned, ((0, 0.5), (0, 0.3, 3), (0, 0.2, 0.4, 9)))
hunted(
    "cv-order-2-sharp-aggregation",
    sharp_ends,
    {
        "eps with j = i": {"diagonal": True},
        "R left out of the lower end": {"diverse": False},
        "mean in place of the maximum": {"most": np.mean},
    },
    apply=_order_two,
    examples=[*at(2.0, *_ALIGNED, *_CORES, typical(3.0, 0.5)), *RARE[:2]],
    measured=_ordinary_ends,
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


def aggregate(rng: np.random.Generator, budget: Budget, form: Callable) -> Evidence:
    """The parts' scores one by one, against the whole spectra and against pair averages.

    Clusters told apart exactly are prompts of which each is a component.
    """
    label = "two clusters of two samples: two different images; one image twice"
    four = populations.listed([0, 9], [[0.25, 0.25, 0], [0, 0, 0.5]], label=label)
    one_rich = rare_mode(0.5, 0.0, 9.0, 1e6)
    trials = [(mixture, order) for mixture in (four, one_rich) for order in (2.0, 1.0, 0.5)]
    for shape in populations.SHAPES * budget.trials(15):
        mixture = populations.decode(1.2 * rng.standard_normal(shape.dimension), shape)
        trials += at(float(rng.choice([1.0, 1.2, 3.0, 8.0])), mixture) + at(2.0, mixture)
    rows = []
    for mixture, order in trials:
        scores = np.exp([part.entropy(order) for part in mixture.outputs])
        mean = power_mean(mixture.weights, scores, *form(order))
        whole = np.exp(mixture.stacked.entropy(order) - mixture.mode_spectrum.entropy(order))
        size = mixture.images + (0 if mixture.label else _FOUND)
        rows.append((mean, whole, order, described(mixture), size))
        if order == 2:
            pairs = np.sum(mixture.weights**2) / np.trace(mixture.pairs[2])
            rows.append((mean, pairs, *rows[-1][2:]))
    measured = {}
    for name, power in (("Cluster-RKE", 1.0), ("Conditional-RKE", -1.0)):
        for scores in ((1.0, 4.0), (2.0, 2.0)):
            where = "two prompts with {:g} and {:g} images".format(*scores)
            measured[f"{name}, {where}"] = power_mean(np.ones(2), np.array(scores), 2.0, power)
    lhs, rhs, orders, names, size = zip(*rows, strict=True)
    parameters = {"order": orders, "population": names}
    fields = {"parameters": parameters, "size": size, "measured": measured}
    return equal(lhs, rhs, tolerance=1e-9, **fields)


for _name, _stated, _corrected in (
    ("cv-theorem-6-aggregate", lambda a: (a, 1 - a), None),
    ("cv-cluster-vendi", lambda a: (1.0, 1.0), lambda a: (a, 1 - a)),
):
    _mutants = {
        "weights proportional to the sizes": lambda a: (1.0, 1 - a),
        "arithmetic mean of the scores": lambda a: (a, 1.0),
        "mean of the entropies": lambda a: (a, 0.0),
        "mean of order 1 - alpha / 2": lambda a: (a, 1 - a / 2),
    }
    claim(_name, stated=_stated, corrected=_corrected, mutants=_mutants)(aggregate)


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
    own = mixture.deviations
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


hunted(
    "cv-lemma-5",
    _lemma_steps,
    {
        "two thirds at (a)": {"a": 2 / 3},
        "1 - e^{-z} at (d)": {"d": 1.0},
        "two thirds at (e)": {"e": 2 / 3},
        "4/3 for 2 at (g)": {"g": 4 / 3},
    },
    examples=at(2.0, *map(one_component, (0.02, 0.4, 2.0)), one_component(300.0, share=0.01)),
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
    shortened = [(a.truncated(3), b.truncated(3)) for a, b in pairs]
    gaps = [populations.distance(a, b, 2.0) for a, b in (*pairs, *shortened)]
    bounds = np.multiply(factors, [near, wide, frobenius, gamma(mixture) ** power])
    return np.array([norms, near, wide, *gaps]), np.array([*bounds[:3], *[bounds[3]] * 4])


hunted(
    "cv-g-chain-steps",
    _chain_steps,
    {
        "two thirds at the triangle inequality": {"factors": (2 / 3, 1, 1, 1)},
        "two thirds at the order of the norm": {"factors": (1, 2 / 3, 1, 1)},
        "two thirds at Hoffman-Wielandt": {"factors": (1, 1, 2 / 3, 1)},
        "2/3 for 32 in Gamma": {"factors": (1, 1, 1, 48**-0.5)},
        "Gamma without the root": {"power": 1.0},
    },
    orders=ORDERS[:4],
    examples=[
        *((two_prompts(k, own=False), a) for k in (0.02, 0.1, 0.2) for a in (2.0, 20.0)),
        (one_component(2.0, own=False), 20.0),
    ],
)


def single_prompts(means: Sequence[float], weights: Sequence[float], label: str = "") -> Mixture:
    """Prompts on a line with one image for all."""
    return populations.listed(means, np.array(weights)[:, None], label=label)


def neighbours(count: int, distance: float, step: float, weight: float) -> Mixture:
    """`count` neighbours of this weight each, from `distance` on, then one prompt at the origin."""
    means = [*(distance + step * np.arange(count)), 0.0]
    return single_prompts(means, [weight] * count + [1 - count * weight])


def crowd(n: int) -> Mixture:
    """n prompts in one place."""
    label = f"prompts at 0, {n} times at 0.3, at -8.5; the last has all the weight"
    return single_prompts([0.0, *[0.3] * n, -8.5], [1e-99] * (n + 1) + [1.0], label)


POINTS = at(
    2.0,
    single_prompts([0, 1], [1 / 2] * 2),
    single_prompts([0, 1, -1], [1 / 3] * 3),
    *(neighbours(2, *case) for case in ((3, 0.5, 1 / 3), (2, 0.7, 1 / 3), (2.5, 0.6, 1e-7))),
    *(neighbours(2, *case) for case in ((2.5, 0.3, 1e-3), (3, 0.3, 1e-5))),
    *(neighbours(n, 3, 0.3, weight) for n, weight in ((4, 1e-5), (6, 1e-5), (6, 1e-8))),
)
FAR_POINTS = at(
    2.0,
    neighbours(2, 4.5, 0.1, 1e-11),
    neighbours(2, 4.6, 0.5, 1 / 3),
    neighbours(4, 4.6, 0.4, 0.2),
)


def _apart(gram: np.ndarray) -> bool:
    """Whether Gram-Schmidt loses no digits, and overlaps are no rounding."""
    return np.linalg.eigvalsh(gram)[0] > 1e-6 and np.min(earlier_overlaps(gram)[1:]) > 1e-4


def _coefficients(most: Callable, mixture: Mixture, _: float) -> tuple[Any, Any]:
    gram = mixture.mean_gram
    if not _apart(gram):
        return np.nan, np.nan
    squares = (orthonormal(gram) ** 2).sum(1)
    return [1.0, *squares], [squares.min(), *[most(gram)] * len(gram)]


def _eq_17(most: Callable, mixture: Mixture, _: float) -> tuple[Any, Any]:
    gram, weights = mixture.mean_gram, mixture.weights
    if not _apart(gram):
        return np.nan, np.nan
    inner = np.tril((gram @ orthonormal(gram).T) ** 2, -1)
    factors = [most(gram[:i, :i]) for i in range(len(gram))]
    return 2 * weights @ inner.sum(1), 2 * weights @ (factors * earlier_overlaps(gram))


def _inverse(gram: np.ndarray, which: int = 0) -> float:
    """1 / lambda_min; of another eigenvalue in a mutant."""
    return 1 / np.linalg.eigvalsh(gram)[which] if len(gram) else 1.0


for _name, _apply, _printed in (
    ("cv-gram-schmidt-coefficients", _coefficients, lambda gram: 1.0),
    ("cv-eq-17", _eq_17, len),
):
    hunted(
        _name,
        _inverse,
        {
            "the largest eigenvalue": {"which": -1},
            "no eigenvalue": lambda gram: 1.0,
            "two thirds": two_thirds(_inverse),
        },
        stated=_printed,
        apply=_apply,
        examples=POINTS,
        shapes=[Shape(m, 1, 1) for m in (2, 3, 5)],
        relative=True,
    )


# ---------------------------------------------------------------------------------------------
# From the spectra to the entropies.


def stacked_distance(mixture: Mixture, spread: float = 1.0, overlap: float = 1.0) -> float:
    """sqrt(2) |(omega_i rho_i)_i|_2 + sqrt(sum_{i != j} omega_i omega_j E_ij[k_T^2])."""
    cross = mixture.pairs[0][~np.eye(mixture.modes, dtype=bool)].sum()
    within = np.sqrt(2) * np.linalg.norm(mixture.weights * spread_losses(mixture))
    return float(spread * within + overlap * np.sqrt(cross))


def _norm_step(mixture: Mixture, _: float, bound: Callable = stacked_distance, **parts: float):
    return populations.distance(mixture.joint, mixture.stacked, 2.0), bound(mixture, **parts)


hunted(
    "cv-g-chain-norm",
    _norm_step,
    {
        "two thirds of the spread": {"spread": 2 / 3},
        "two thirds of the overlap": {"overlap": 2 / 3},
        "squared": {"bound": lambda mixture: stacked_distance(mixture) ** 2},
    },
    stated=partial(_norm_step, bound=gamma, variance=4.0, overlap=8.0),
    spreads=(0.0, 0.1),
    examples=ONE_IMAGE + at(2.0, one_component(0.05, False, 0.02)),
)


def _normaliser_step(mixture: Mixture, order: float, own: bool = True, factor: float = 1.0):
    joint, stacked = mixture.joint.norm(order), mixture.stacked.norm(order)
    norm = stacked if own else mixture.mode_spectrum.norm(order)
    gap = mixture.joint.entropy(order) - mixture.stacked.entropy(order)
    return abs(gap), factor * margin(abs(joint - stacked), norm, order)


hunted(
    "cv-g-chain-normaliser",
    _normaliser_step,
    {"two thirds": {"factor": 2 / 3}},
    stated=partial(_normaliser_step, own=False),
    orders=ORDERS,
    examples=[(one_component(0.6, False, copies=2.0), 2.0), *FAR, *RARE[:2]],
)


# ---------------------------------------------------------------------------------------------
# Theorem 7: von Neumann entropy, truncated and whole.


def cut(mixture: Mixture, t: float) -> tuple[float, ...]:
    """Entropies of spectra cut at t: joint, prompts, stacked, weights; the mean of the C_i's."""
    spectra = mixture.joint, mixture.prompts, mixture.stacked, mixture.mode_spectrum
    found = [part.truncated(int(t)).entropy(1) for part in (*spectra, *mixture.outputs)]
    return *found[:4], float(mixture.weights @ found[4:])


def truncation_bound(z: float, t: float) -> float:
    """sqrt(t z) log(t / z): right side of CV eq. 19."""
    return float(np.sqrt(t * z) * (np.log(t) - np.log(z))) if z > 0 else 0.0


def audenaert(delta: float, t: float, among: bool = True) -> float:
    """Largest change of the entropy of t probabilities that move by delta in l_2."""
    moved = np.sqrt(t) * delta / 2
    if moved >= 1 - 1 / t:
        return float(np.log(t))
    binary = -moved * np.log(moved) - (1 - moved) * np.log1p(-moved) if moved > 0 else 0.0
    return float(binary + among * moved * np.log(t - 1))


def _eq_19(mixture: Mixture, t: float) -> tuple[float, float]:
    z, (joint, prompts, _, _, parts) = gamma(mixture), cut(mixture, t)
    return abs(joint - prompts - parts), truncation_bound(z, t) if z <= np.exp(-2) else np.nan


def _eq_19_corrected(
    mixture: Mixture, t: float, whole: bool = True, power: int = 1, change: Callable = audenaert
) -> tuple[np.ndarray, np.ndarray]:
    joint, prompts, stacked, modes, parts = cut(mixture, t)
    centre = stacked - modes if whole else parts
    gaps = [joint - prompts - centre, joint - stacked, prompts - modes]
    return np.abs(gaps), np.array([2, 1, 1]) * change(stacked_distance(mixture) ** power, t)


hunted(
    "cv-theorem-7",
    _eq_19_corrected,
    {
        "the weighted sum as centre": {"whole": False},
        "delta squared": {"power": 2},
        "two thirds": {"change": two_thirds(audenaert)},
        "without tau log(t - 1)": {"change": partial(audenaert, among=False)},
    },
    stated=_eq_19,
    spreads=(0.0, 0.1),
    orders=TRUNCATIONS,
    examples=[*CUT, *ONE_IMAGE, (one_component(5.0, False, 0.3), 2.0)]
    + at(5.0, far_prompts(0.5, 1.0, 1, 2))
    + at(61.0, far_prompts(0.1, 4.0, 1, 30), far_prompts(0.5, 4.0, 1, 30)),
)


def holevo_bounds(
    mixture: Mixture, _: float, spread: bool = True, overlap: bool = True
) -> tuple[float, float]:
    """The prompts' own entropies: sum_i w_i H(C_{T|i}), and H(w) + that - H(C_T)."""
    within = mixture.prompts_under(mixture.prompt_gram * mixture.same).entropy(1)
    lost = max(within - mixture.prompts.entropy(1), 0.0)
    return spread * (within - mixture.mode_spectrum.entropy(1)), overlap * lost


_WIDE = [one_component(6.0), one_component(6.0, False), typical(2.0, 0.5), SPREAD[0][0]]
hunted(
    "cv-theorem-7-von-neumann",
    holevo_bounds,
    {
        **without("spread", "overlap"),
        "two thirds": two_thirds(holevo_bounds),
        "1.5 times weaker below": lambda *data: np.multiply((1.5, 1), holevo_bounds(*data)),
        "1.5 times weaker above": lambda *data: np.multiply((1, 1.5), holevo_bounds(*data)),
    },
    apply=partial(_attained, {_WIDE[0].label: 0, two_prompts(0.3).label: 1}),
    spreads=(0.0, 0.1),
    orders=(1.0,),
    examples=at(1.0, two_prompts(0.3), RARE[1][0], *_WIDE),
)


def klogk_bound(mixture: Mixture, _: float) -> tuple[float, float]:
    """0 below, sum_i w_i (K log K)_ii above."""
    values, vectors = np.linalg.eigh(mixture.mean_gram)
    values = np.maximum(values, 1e-300)
    return 0.0, float(mixture.weights @ (vectors**2) @ (values * np.log(values)))


hunted(
    "cv-theorem-7-point-prompts",
    klogk_bound,
    {"two thirds": two_thirds(klogk_bound), "1.5 times weaker": weaker(klogk_bound)},
    apply=partial(_attained, {two_prompts(k).label: 1 for k in (0.3, 0.9)}),
    spreads=(0.0,),
    orders=(1.0,),
    shapes=populations.POINT_SHAPES,
    examples=at(1.0, two_prompts(0.3), two_prompts(0.9), RARE[1][0]),
)


# ---------------------------------------------------------------------------------------------
# Printed displays that are false as a consequence, tried on the populations above.


def _prompt_entropy(mixture: Mixture, order: float) -> tuple[float, float]:
    gap = mixture.prompts.entropy(order) - mixture.mode_spectrum.entropy(order)
    return abs(gap), margin(gamma(mixture, 4, 8), mixture.mode_spectrum.norm(order), order)


def _blocks(mixture: Mixture, t: float) -> tuple[float, float]:
    *_, stacked, modes, parts = cut(mixture, t)
    return parts, stacked - modes


def _entropy_step(mixture: Mixture, t: float) -> tuple[float, float]:
    z, (_, prompts, _, modes, _) = gamma(mixture), cut(mixture, t)
    return abs(prompts - modes), truncation_bound(z, t) / 2 if z <= t else np.nan


def _eq_20(mixture: Mixture, t: float) -> tuple[float, float]:
    return 2 * truncation_bound(gamma(mixture), t), truncation_bound(gamma(mixture), t)


for _name, _sides, _examples in (
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
    ("cv-theorem-7-equivalently", _eq_20, [(two_prompts(0.05), 2.0)]),
    ("cv-zero-output-operator", lambda mixture, _: (mixture.outputs[0].norm(1), 0), ONE_IMAGE[:1]),
):
    claim(_name, stated=_sides, expected=Verdict.FALSE)(hunting(shapes=(), examples=_examples))


def _inner_products(mixture: Mixture, _: float) -> tuple[Any, Any]:
    gram, lower = mixture.mean_gram, np.tril_indices(mixture.modes, -1)
    return (gram @ orthonormal(gram).T)[lower] ** 2, np.cumsum(gram**2, axis=1)[lower]


def _eq_18(mixture: Mixture, _: float) -> tuple[Any, Any]:
    gram, weights = mixture.mean_gram, mixture.weights
    left = operator_distance(mixture, orthonormal(gram))
    return left, 8 * weights @ (np.arange(len(gram)) * earlier_overlaps(gram))


def early_vectors(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of CV-early's u_i: [<u_i, u_j>], 1 - u_i^T phi_i and 1 - |u_i|^2 without cancellation.

    With u_i = phi_i - sum_j c_j u_j, not normalised, the last two are |c|^2 and
    2 |c|^2 - |sum_j c_j u_j|^2, terms that are all proportional to the small squared overlaps.
    """
    rows = np.eye(len(gram))
    for i in range(len(gram)):
        rows[i] -= (rows[:i] @ gram[:, i]) @ rows[:i]
    products, inner = rows @ gram @ rows.T, np.tril(gram @ rows.T, -1)
    s = (inner**2).sum(1)
    return products, s, 2 * s - ((inner @ products) * inner).sum(1)


def _early(form: Callable, mixture: Mixture, _: float) -> tuple[Any, Any]:
    """Forms get the weights, the squared overlaps and what `early_vectors` says."""
    gram = mixture.mean_gram
    return form(mixture.weights, earlier_overlaps(gram), *early_vectors(gram))


def _eigenvalues(products: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(products * np.sqrt(np.outer(scale, scale)))


for _name, _sides, _examples in (
    ("cv-gram-schmidt-inner-products", _inner_products, POINTS),
    ("cv-eq-18", _eq_18, POINTS + FAR_POINTS),
):
    claim(_name, stated=_sides, expected=Verdict.FALSE)(
        hunting(shapes=(), examples=_examples, relative=True)
    )
for _name, _form, _examples in (
    (
        "cv-early-orthogonality",
        lambda w, k, u, s, r: (_eigenvalues(u, 1 / np.diag(u))[-1], 1.0),
        POINTS,
    ),
    ("cv-early-inner-products", lambda w, k, u, s, r: (s[1:], k[1:]), POINTS),
    ("cv-early-k", lambda w, k, u, s, r: (2 * w @ (s * (2 - s)), 4 * w @ k), POINTS),
    ("cv-early-norms", lambda w, k, u, s, r: (r[1:], 2 * k[1:]), POINTS + FAR_POINTS),
    (
        "cv-early-eigenvalues",
        lambda w, k, u, s, r: (np.min(w * np.diag(u)), _eigenvalues(u, w)[0]),
        POINTS,
    ),
    (  # The last term alone; 1 + |u|^4 - 2 (u^T phi)^2 on the left.
        "cv-early-frobenius",
        lambda w, k, u, s, r: ((4 * s - 2 * s**2 - 2 * r + r**2)[-1], 8 * k[-1]),
        at(2.0, *map(crowd, (1, 15, 20, 60))),
    ),
):
    claim(_name, stated=_form, expected=Verdict.FALSE)(
        hunting(_early, shapes=(), examples=_examples, relative=True)
    )
